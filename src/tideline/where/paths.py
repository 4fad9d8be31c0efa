"""A few paths, and what lies at them in many JSON texts.

    dotted paths -> a tree of names (kernels/jsonpath.py) -> tags and values, a row a text

Who asks knows the tags: conditions judge them (`batch.py`), collections make index entries of
them (`index/extract.py`). What the kernel leaves open is UNSURE there, a node below an
array too; such a row is for the caller to decode.

Safe from any thread.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from tideline.addresses import address_of
from tideline.kernels import jsonpath as at

__all__ = ["Paths"]

_MAP_LEAST = 1 << 13  # bytes of text that are mapped at a time

Words = NDArray[np.int64]


class Paths:
    """Paths as nodes for the kernel, in preorder; node 0 is the text itself.

    >>> paths = Paths([("a", "b"), ("a", "c"), ("d",)])
    >>> paths.paths
    [(), ('a',), ('a', 'b'), ('a', 'c'), ('d',)]
    >>> paths.parents, paths.nodes[:, 0].tolist()
    ([0, 0, 1, 1, 0], [5, 4, 3, 4, 5])
    """

    def __init__(self, wanted: Iterable[tuple[str, ...]]) -> None:
        whole = {path[:size] for path in [(), *wanted] for size in range(len(path) + 1)}
        self.paths = sorted(whole)  # which is preorder
        self.numbers = {path: node for node, path in enumerate(self.paths)}
        self.parents = [self.numbers[path[:-1]] for path in self.paths]
        names = [path[-1].encode() if path else b"" for path in self.paths]
        # The kernel gets addresses of the names: this array keeps them where they are.
        self._names = np.frombuffer(b"".join(names) + b"\0", np.uint8)
        self.nodes = np.zeros((len(names), at.NODE), np.int64)
        self.nodes[:, 0] = np.arange(1, len(names) + 1)
        for node in range(len(names) - 1, 0, -1):  # what comes after a child comes after it too
            parent = self.parents[node]
            self.nodes[parent, 0] = max(self.nodes[parent, 0], self.nodes[node, 0])
        self.nodes[:, 2] = [len(name) for name in names]
        self.nodes[:, 1] = address_of(self._names) + np.cumsum(self.nodes[:, 2]) - self.nodes[:, 2]

    def read(self, data: NDArray[np.uint8], offsets: Words, tags: Words, values: Words) -> Words:
        """Fill `tags` and `values` for the texts between the offsets; the rows that were unread.

        An unread row is UNSURE at every node, and so is a node below an array.
        """
        self._scan(data, offsets, tags, values)
        unread = np.flatnonzero(tags[0] != at.OBJECT)
        tags[:, unread] = at.UNSURE  # what was found before something went wrong means nothing
        for node, parent in enumerate(self.parents):
            if parent:
                above = tags[parent] & 255
                tags[node][(above == at.ARRAY) | (above == at.UNSURE)] = at.UNSURE
        return unread

    def _scan(self, data: NDArray[np.uint8], offsets: Words, tags: Words, values: Words) -> None:
        rows = len(offsets) - 1
        if not offsets.flags.writeable:  # to numba a type of its own, which it would compile for
            offsets = offsets.copy()
        tags.fill(at.MISSING)
        longest = max(_MAP_LEAST, int(np.max(offsets[1:] - offsets[:-1], initial=0)))
        maps = np.empty((2, longest // 8 + 1 + at.PADDING // 8), np.uint8)
        leads = np.zeros((at.LEADS + 2) * at.LEAD, np.uint8)
        stack = np.empty(2 * at.DEPTH, np.int64)
        # The kernel reads past the ends of rows. For those too near the end of the data, it
        # gets a copy with room behind, at an address that makes the same offsets right.
        safe = int(np.searchsorted(offsets[1:], len(data) - at.PADDING, side="right"))
        tail = np.zeros(offsets[rows] - offsets[safe] + at.PADDING, np.uint8)
        tail[: -at.PADDING] = data[offsets[safe] : offsets[rows]]
        for base, first, last in (
            (address_of(data), 0, safe),
            (address_of(tail) - int(offsets[safe]), safe, rows),
        ):
            if first < last:
                at.scan(base, offsets, first, last, self.nodes, leads, stack, tags, values, maps)
