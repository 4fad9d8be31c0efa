"""Hot loops of collections of documents: a group of kernels of its own (kernels/__init__.py).

    layout.py    where things stand: sources, fields, the state of a search
    octets.py    bytes by address: hash, compare, copy, prefixes that sort
    keys.py      what a JSON reader found, as bytes that sort (where/keys.py)
    records.py   memory of records; find a key, newest first; records out
    blocks.py    blooms and zone maps of a component
    search.py    search by an embedded index
    points.py    points of documents, counted on a grid
    merge.py     several sources as one, in key order
    entries.py, places.py, order.py, build.py, found.py      stand-alone indexes

Python sees to it that what an address leads to stays where it is during a call.
"""
