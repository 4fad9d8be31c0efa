"""Hot loops of places: a group of kernels of its own (kernels/__init__.py).

    outline.py   how geometries lie to one another, and how far they are
    layout.py    a place: points or boxes of a memory or a component, and its tree
    build.py     Hilbert keys, sorting, and the boxes of the nodes of a packed tree
    search.py    what meets a box, in all places of a view at once
    nearest.py   the nearest first, from all places of a view
    texts.py     places out of JSON texts

Python sees to it that what an address leads to stays where it is during a call.
"""
