"""Where things stand: a place, and its packed tree of boxes.

A *place* holds points, or boxes with the geometries they are around. With a tree they are in
Hilbert order, and the tree is nothing but boxes:

    leaf j      entries [LEAF j, LEAF (j + 1))
    node j      nodes [FAN j, FAN (j + 1)) of the level below
    levels      the leaves first, then their parents, up to one root; level l begins at node
                P_LEVEL + l
    nodes       west, south, east, north of each: float32, rounded outward

Without a tree (P_NODES is 0) a place is gone through entry by entry: the tail of a memory.

What is found is a *hit*: place << PLACE_SHIFT | position, with SURE set when a box says enough.
"""

from __future__ import annotations

from tideline.kernels.words import Layout

LEAF, FAN = 32, 16
LEVELS = 9  # enough for 32 * 16**8 entries
PLACE_SHIFT = 40
LEVEL_SHIFT = 36  # of a node: place << PLACE_SHIFT | level << LEVEL_SHIFT | number
QUEUE = 512  # words behind the room for hits: nodes that a search has yet to look at
SURE = 1 << 62
POSITION = (1 << PLACE_SHIFT) - 1
PLACES = (1 << 20) - 1

PLACE = Layout("spatial place", "P_", "points or boxes of a memory or a component", globals())
P_COUNT = PLACE.count("entries")
P_WEST = PLACE.address("longitudes of points, west edges of boxes: float64")
P_SOUTH = PLACE.address("latitudes of points, south edges of boxes: float64")
P_EAST = PLACE.address("east edges of boxes: float64; 0: points")
P_NORTH = PLACE.address("north edges of boxes: float64")
P_NODES = PLACE.address("boxes of nodes, four float32 each; 0: no tree")
P_TOP = PLACE.count("the level of the root")
P_LEVEL = PLACE.count("where level 0 begins, in nodes; the next words are the other levels")
P_LEVEL1 = PLACE.count("where level 1 begins")
P_LEVEL2 = PLACE.count("where level 2 begins")
P_LEVEL3 = PLACE.count("where level 3 begins")
P_LEVEL4 = PLACE.count("where level 4 begins")
P_LEVEL5 = PLACE.count("where level 5 begins")
P_LEVEL6 = PLACE.count("where level 6 begins")
P_LEVEL7 = PLACE.count("where level 7 begins")
P_LEVEL8 = PLACE.count("where level 8 begins")
P_LEVEL9 = PLACE.count("where all levels end")
P_IDS = PLACE.address("which entry each position is; 0: the one of that number")
P_SEQS = PLACE.address("seqs of the entries")
P_KEY_OFFSETS = PLACE.address("where the key of each entry begins")
P_KEYS = PLACE.address("bytes of the keys")
P_SHAPE_OFFSETS = PLACE.address("where the outline of each entry begins; of boxes only")
P_SHAPES = PLACE.address("bytes of the outlines (space/outline.py)")
P_LIMIT = PLACE.word("seqs from here on are not in the place as it is read; 0: all are")
P_WORDS = PLACE.end()

NEAR = Layout("nearest", "N_", "a search for the nearest; behind it its heap", globals())
N_SIZE = NEAR.count("how many are on the heap")
N_BOUNDS = NEAR.word("bounds of the entries of a leaf: LEAF float64 from here on")
N_WORDS = NEAR.end(spare=LEAF - 1)
