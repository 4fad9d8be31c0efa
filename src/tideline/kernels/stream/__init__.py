"""Hot loops of stream windows: a group of kernels of its own (kernels/__init__.py).

    layout.py   what a sorted run is to a kernel
    sort.py     radix sort of keys with what belongs to them
    runs.py     directory of a run, search in it, scan of a tail
    fold.py     exact sums, least and greatest values, buckets of a sketch

Keys are numbers: `narrow` ones have 32 bits and no sign, wide ones are int64. Python sees to it
that what an address leads to stays where it is during a call. docs/internals/stream-windows.md
tells how they work together.
"""
