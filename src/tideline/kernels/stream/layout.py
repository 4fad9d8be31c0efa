"""What a sorted run of a stream window is to a kernel, and sizes that Python has to know."""

from __future__ import annotations

from tideline.kernels.words import Layout

RADIX_BITS = 11
RADIX = 1 << RADIX_BITS
PASSES = 6
"""Digits of `RADIX_BITS` bits in a key."""

CHUNKS = 70
"""Words of an exact sum: word i counts units of 2**(32 i - 1074)."""

ZERO = 1 << 24
"""Buckets of a sketch: v > 0 has the code of its power + ZERO, v < 0 the same below zero."""

RUN = Layout("sorted run", "R_", "keys of a stream window in ascending order", globals())
R_KEYS = RUN.address("keys: 32 bits without a sign each when narrow, else int64")
R_COUNT = RUN.count("how many")
R_NARROW = RUN.word("1 when keys are narrow")
R_LOW = RUN.word("the least key")
R_HIGH = RUN.word("the greatest key")
R_SHIFT = RUN.count("bits of a key, counted from the least, that the directory leaves out")
R_DIRECTORY = RUN.address("int32: the first position of each bucket of top bits, and the end")
R_BUCKETS = RUN.count("buckets")
R_WORDS = RUN.end()
