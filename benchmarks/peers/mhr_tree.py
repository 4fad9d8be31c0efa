"""An MHR-tree: an R-tree whose nodes keep a min-wise signature of the grams below them.

As Yao, Li, Hadjieleftheriou and Hou describe it (ICDE 2010), in small:

    word       its set of grams of two letters, with one sign before and behind
    signature  of a set of grams: under each of so many random orders, the least of them
    node       a box, and the least of the signatures below, which is that of all grams below
    question   down into nodes that meet the window and seem to have enough grams of each word;
               in a leaf, objects in the window whose words are near enough

A word within d edits of another of n letters shares n - 1 - 2 (d - 1) of its grams or more. How
many of a word's grams a node has is guessed: of the orders under which the word's least gram comes
no later than the node's, the part in which both are the same. A node without such an order seems to
have none. So a search misses answers: `recall` has to be told with its time. Without orders it is
an R-tree alone, and every word in the window is looked at.

The tree is packed along the Hilbert curve, 40 to a node. The grams are a table of 65,536, so an
order is a permutation and a signature two bytes an order. Compiled by numba.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from benchmarks.fuzzy_data import Objects, Question
from tideline.index.spatialmemory import pack

__all__ = ["MhrTree"]

_FANOUT, _GRAMS, _EDGE = 40, 1 << 16, 1
_ROOM = 1 << 16
Signs = NDArray[np.uint16]


@njit(cache=True)
def _signatures(data: Any, offsets: Any, orders: Any, out: Any) -> None:
    """The signature of each word."""
    for word in range(len(offsets) - 1):
        before = _EDGE
        for at in range(offsets[word], offsets[word + 1] + 1):
            letter = _EDGE if at == offsets[word + 1] else data[at]
            gram = before * 256 + letter
            for order in range(orders.shape[1]):
                out[word, order] = min(out[word, order], orders[gram, order])
            before = letter


@njit(cache=True)
def _within(a: Any, b: Any, most: int) -> bool:
    """Whether two words are within an edit distance."""
    m, n = len(a), len(b)
    if abs(m - n) > most:
        return False
    row = np.arange(n + 1)
    for i in range(1, m + 1):
        above, row[0] = row[0], i
        least = row[0]
        for j in range(1, n + 1):
            cost = min(row[j] + 1, row[j - 1] + 1, above + (a[i - 1] != b[j - 1]))
            above, row[j] = row[j], cost
            least = min(least, cost)
        if least > most:
            return False
    return bool(row[n] <= most)


@njit(cache=True)
def _may_have(signs: Any, node: int, asked: Any, sizes: Any, needed: Any) -> bool:
    """Whether a node seems to have enough grams of each word."""
    if signs.shape[1] == 0:
        return True
    for word in range(len(asked)):
        if needed[word] <= 0:
            continue
        same = no_later = 0
        for order in range(signs.shape[1]):
            same += signs[node, order] == asked[word, order]
            no_later += asked[word, order] <= signs[node, order]
        if same * sizes[word] < needed[word] * no_later or no_later == 0:
            return False
    return True


@njit(cache=True)
def _search(
    box: Any, lon: Any, lat: Any, keywords: Any, data: Any, offsets: Any, boxes: Any, signs: Any,
    levels: Any, asked: Any, sizes: Any, needed: Any, letters: Any, ends: Any, edits: int, out: Any,
) -> int:  # fmt: skip
    """Numbers of objects, in the order of the tree; how many, which may be more than there is room.

    `levels` has where each level of nodes begins, the leaves first, and where the last one ends.
    """
    west, south, east, north = box
    stack = np.empty((len(levels) * _FANOUT, 2), np.int64)
    top = len(levels) - 2
    used = 0
    for node in range(levels[top], levels[top + 1]):
        stack[used] = top, node
        used += 1
    found = 0
    while used:
        used -= 1
        level, node = stack[used]
        if boxes[node, 0] > east or boxes[node, 2] < west:
            continue
        if boxes[node, 1] > north or boxes[node, 3] < south:
            continue
        if not _may_have(signs, node, asked, sizes, needed):
            continue
        first = (node - levels[level]) * _FANOUT
        if level:
            below = levels[level - 1] + first
            for child in range(below, min(below + _FANOUT, levels[level])):
                stack[used] = level - 1, child
                used += 1
            continue
        for row in range(first, min(first + _FANOUT, len(lon))):
            if not (west <= lon[row] <= east and south <= lat[row] <= north):
                continue
            good = True
            for word in range(len(sizes)):
                start = 0 if word == 0 else ends[word - 1]
                near = False
                for at in range(keywords.shape[1]):
                    own = keywords[row, at]
                    own_letters = data[offsets[own] : offsets[own + 1]]
                    near = near or _within(own_letters, letters[start : ends[word]], edits)
                good = good and near
            if good:
                if found < len(out):
                    out[found] = row
                found += 1
    return found


class MhrTree:
    """Objects by place and words nearly right, some of them missed.

    >>> from benchmarks.fuzzy_data import objects, questions
    >>> of = objects(500)
    >>> tree = MhrTree(of, 50)
    >>> [question] = questions(of, 1)
    >>> len(tree.answer(question)) >= 0, tree.size_bytes > 0
    (True, True)
    """

    def __init__(self, of: Objects, signature: int, edits: int = 2) -> None:
        self._edits = edits
        draw = np.random.default_rng(7)
        self._orders: Signs = np.empty((_GRAMS, signature), np.uint16)
        for order in range(signature):
            self._orders[:, order] = draw.permutation(_GRAMS)
        encoded = [word.encode() for word in of.vocabulary]
        self._data = np.frombuffer(b"".join(encoded), np.uint8)
        self._offsets = np.concatenate([[0], np.cumsum([len(word) for word in encoded])])
        self._order = pack((of.lon, of.lat)).order
        self._lon, self._lat = of.lon[self._order], of.lat[self._order]
        self._keywords = of.keywords[self._order]
        words = self._signs_of(self._data, self._offsets)
        signs = [words[self._keywords[:, at]] for at in range(self._keywords.shape[1])]
        own = np.minimum.reduce(signs)
        boxes = np.stack([self._lon, self._lat, self._lon, self._lat], 1)
        every: list[tuple[Any, Any]] = []
        while not every or len(boxes) > 1:
            starts = np.arange(0, len(boxes), _FANOUT)
            least, most = (
                np.minimum.reduceat(boxes[:, :2], starts),
                np.maximum.reduceat(boxes[:, 2:], starts),
            )
            boxes, own = np.hstack([least, most]), np.minimum.reduceat(own, starts)
            every.append((boxes, own))
        self._boxes = np.concatenate([each for each, _ in every])
        self._signs: Signs = np.concatenate([each for _, each in every])
        self._levels = np.concatenate([[0], np.cumsum([len(each) for each, _ in every])])
        self.size_bytes = self._boxes.nbytes + self._signs.nbytes

    def _signs_of(self, data: Any, offsets: Any) -> Signs:
        out = np.full((len(offsets) - 1, self._orders.shape[1]), _GRAMS - 1, np.uint16)
        _signatures(data, offsets, self._orders, out)
        return out

    def found(self, asked: Question) -> Any:
        """The numbers of the objects, as an array."""
        words = [word.encode() for word in asked.words]
        letters = np.frombuffer(b"".join(words), np.uint8)
        ends = np.cumsum([len(word) for word in words])
        signs = self._signs_of(letters, np.concatenate([[0], ends]))
        sizes = np.array([len(set(zip(b"\1" + w, w + b"\1", strict=True))) for w in words])
        needed = sizes - 2 * self._edits  # of n + 1 grams, n - 1 - 2 (d - 1)
        room = _ROOM
        while True:
            out = np.empty(room, np.int64)
            count = _search(
                asked.box, self._lon, self._lat, self._keywords, self._data, self._offsets,
                self._boxes, self._signs, self._levels, signs, sizes, needed, letters, ends,
                self._edits, out,
            )  # fmt: skip
            if count <= room:
                return self._order[out[:count]]
            room = count

    def answer(self, asked: Question) -> set[int]:
        """The same as a set."""
        return set(self.found(asked).tolist())
