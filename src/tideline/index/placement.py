"""Where words are looked up: dictionaries at chosen nodes of a tree over places.

The entries of a component are in Hilbert order; a node is a range of them, and the box around it.
Leaves have `LEAF` entries or more, other nodes `FAN` nodes. This is the LBAK-tree (thesis 003,
chapter 3):

    auto     one dictionary at the root: ours
    FL-n     one at every node n levels below the root
    VL       at nodes of several levels, chosen greedily by what is gained in time for space
    VLF      the same, and words that are in a part of `frequency` of a node's children, or more,
             are in a dictionary of the node instead of those of the children

A node without a dictionary only says where to go on. Whatever is chosen, the words of the
dictionaries on the way to an entry are all it has, so the answers are the same.

Costs are those of the thesis: a lookup takes `ALPHA_US` and `BETA_US` for each word, as measured
there with lists of grams; space is that of the pieces here. How likely a window meets a node is
estimated by windows of `window_m` around a sample of the entries.

Pure functions; safe from any thread.
"""

from __future__ import annotations

import heapq
import math
import re
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tideline.errors import InvalidRequest
from tideline.kernels.inverted import window as kernel

__all__ = ["ALPHA_US", "BETA_US", "FAN", "LEAF", "Placement", "piece_bytes", "place"]

Words = NDArray[np.int64]
Doubles = NDArray[np.float64]
LEAF, FAN = 32, 16
ALPHA_US, BETA_US = 20.0, 0.021  # table 3.1 of the thesis
_SAMPLE = 512
_METRES = 111_195.0  # of a degree of latitude
_MOST_M = sys.float_info.max
_FIXED = re.compile(r"FL-([0-9]{1,2})")


class Placement(NamedTuple):
    """What was asked for."""

    name: str = "auto"
    level: int = 0
    budget_bytes: int | None = None
    frequency: float = 1.0
    window_m: float = 30_000.0

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Placement:
        """From the settings of an index, checked.

        >>> Placement.of({"placement": "FL-2"}).level
        2
        >>> Placement.of({"placement": "VLF", "frequency": 1.5})
        Traceback (most recent call last):
        tideline.errors.InvalidRequest: frequency must be a number, 0 to 1. frequency=1.5
        """
        known = {"placement", "budget_bytes", "frequency", "window_m"}
        for name in settings.keys() - known:
            raise InvalidRequest(
                "this kind of index has no such setting", kind="fuzzy", setting=name,
                settings=tuple(sorted(known)),
            )  # fmt: skip
        name = settings.get("placement", "auto")
        fixed = _FIXED.fullmatch(name) if isinstance(name, str) else None
        if name not in ("auto", "VL", "VLF") and fixed is None:
            raise InvalidRequest(
                "placement must be 'auto', 'FL-n' with a number, 'VL' or 'VLF'", placement=name
            )
        budget = settings.get("budget_bytes")
        if budget is not None and (type(budget) is not int or budget < 1):
            raise InvalidRequest("budget_bytes must be a whole number above 0", budget_bytes=budget)
        frequency = settings.get("frequency", 1.0)
        if type(frequency) not in (int, float) or not 0 <= frequency <= 1:
            raise InvalidRequest("frequency must be a number, 0 to 1", frequency=frequency)
        window_m = settings.get("window_m", 30_000.0)
        if type(window_m) not in (int, float) or not 0 < window_m <= _MOST_M:
            raise InvalidRequest("window_m must be metres above 0", window_m=window_m)
        for setting, names in (
            ("budget_bytes", ("VL", "VLF")), ("frequency", ("VLF",)), ("window_m", ("VL", "VLF")),
        ):  # fmt: skip
            if setting in settings and name not in names:
                raise InvalidRequest(
                    f"{setting} is for placement {' and '.join(names)}", placement=name
                )
        level = int(fixed[1]) if fixed else 0
        return cls(name, level, budget, float(frequency), float(window_m))


def piece_bytes(lengths: Any) -> Any:
    """What a word takes in a dictionary, by its length.

    >>> piece_bytes(np.array([1, 5, 12])).tolist()
    [24, 40, 184]
    """
    pieces = 1 + 2 * (lengths > 1)
    for edits in range(2, 6):
        pieces = pieces + (edits + 1) * (lengths >= 2 * (edits + 1))
    return 8 * pieces + 16


def place(
    asked: Placement, boxes: Doubles, first: Words, entries: Any, lengths: Any
) -> tuple[Words, Any, Any, dict[str, Any]]:
    """Nodes for kernels; the words of dictionaries and their nodes; what to tell of it.

    `first` and `entries` are the lists of the words. No words mean all of them, at the root.
    """
    count = len(boxes)
    if asked.name == "auto" or count == 0:
        nodes = np.zeros((1, kernel.N_WORDS), np.int64)
        nodes[0, :4] = 0, count, 1, kernel.HERE
        nodes[0, kernel.N_BOX :] = np.array([-np.inf, -np.inf, np.inf, np.inf]).view(np.int64)
        return nodes, None, None, {"name": "auto", "nodes": 1, "words": len(lengths)}
    tree = _Tree(boxes, first, entries, lengths)
    if asked.name.startswith("FL"):
        level = min(asked.level, len(tree.spans) - 1)
        chosen = {(level, number) for number in range(tree.nodes[level])}
        return tree.placed(asked.name, chosen, 2.0)
    # Above every part there is none that is frequent.
    frequency = asked.frequency if asked.name == "VLF" else 2.0
    chosen = tree.choose(asked, frequency)
    return tree.placed(asked.name, chosen, frequency)


class _Tree:
    """The tree over some entries: level 0 is the root."""

    def __init__(self, boxes: Doubles, first: Words, entries: Any, lengths: Any) -> None:
        self.boxes, self.count = boxes, len(boxes)
        levels = 0
        while LEAF * FAN ** (levels + 1) <= self.count:
            levels += 1
        # The same number of nodes below each: a root with few would hide what is below them.
        leaf = -(-self.count // FAN**levels)
        self.spans = [leaf * FAN**above for above in range(levels, -1, -1)]
        self.nodes = [-(-self.count // span) for span in self.spans]
        self.weights = piece_bytes(np.asarray(lengths, np.int64))
        word = np.repeat(np.arange(len(first) - 1), np.diff(first))
        entry = np.asarray(entries, np.int64)
        self.pairs: list[Words] = [  # node << 32 | word, each once, in order
            np.unique(((entry // span) << 32) | word) for span in self.spans
        ]

    def box(self, level: int) -> Doubles:
        """The boxes of the nodes of a level."""
        starts = np.arange(0, self.count, self.spans[level])
        low = np.fmin.reduceat(self.boxes[:, :2], starts)
        return np.hstack([low, np.fmax.reduceat(self.boxes[:, 2:], starts)])

    def frequent(self, level: int, frequency: float) -> Words:
        """The pairs of words that are in so large a part of the children of a node."""
        if frequency > 1 or level + 1 == len(self.spans):
            return np.empty(0, np.int64)
        below = self.pairs[level + 1]
        pairs, counts = np.unique(
            (((below >> 32) // FAN) << 32) | (below & 0xFFFFFFFF), return_counts=True
        )
        children = np.bincount(np.arange(self.nodes[level + 1]) // FAN)
        frequent: Words = pairs[counts >= frequency * children[pairs >> 32]]
        return frequent

    def likely(self, level: int, window_m: float) -> Doubles:
        """How likely a window meets each node of a level."""
        box = self.box(level)
        step = max(self.count // _SAMPLE, 1)
        sample = self.boxes[::step]
        middle = 0.5 * (sample[:, :2] + sample[:, 2:])
        middle = middle[~np.isnan(middle[:, 0])]
        high = window_m / 2 / _METRES
        wide = high / np.maximum(np.cos(np.radians(middle[:, 1])), 0.01)
        found = np.empty(len(box))
        for start in range(0, len(box), 1024):
            part = box[start : start + 1024, None, :]
            met = (middle[:, 0] + wide >= part[:, :, 0]) & (middle[:, 0] - wide <= part[:, :, 2])
            met &= (middle[:, 1] + high >= part[:, :, 1]) & (middle[:, 1] - high <= part[:, :, 3])
            found[start : start + 1024] = met.mean(axis=1)
        return found

    def choose(self, asked: Placement, frequency: float) -> set[tuple[int, int]]:
        """The nodes whose entries are searched by a dictionary there: algorithm 6."""
        size: list[Doubles] = []  # of the dictionary of a node without what its parent has
        words: list[Doubles] = []
        shared: list[tuple[Doubles, Doubles]] = []  # size and words of what is frequent
        above = np.empty(0, np.int64)
        for level in range(len(self.spans)):
            pairs = self.pairs[level]
            own = pairs
            if len(above):
                up = (((pairs >> 32) // FAN) << 32) | (pairs & 0xFFFFFFFF)
                own = pairs[~np.isin(up, above)]
            size.append(self._sum(level, own, self.weights))
            words.append(self._sum(level, own, np.ones(len(self.weights))))
            above = self.frequent(level, frequency)
            shared.append((
                self._sum(level, above, self.weights),
                self._sum(level, above, np.ones(len(self.weights))),
            ))  # fmt: skip
        likely = [self.likely(level, asked.window_m) for level in range(len(self.spans))]

        def children(level: int, number: int) -> slice:
            return slice(FAN * number, FAN * (number + 1))

        def benefit(level: int, number: int) -> float:
            if level + 1 == len(self.spans):
                return 0.0
            its, p = children(level, number), likely[level][number]
            now = p * _time(words[level][number])
            some = shared[level][1][number]
            then = float((likely[level + 1][its] * _time(words[level + 1][its])).sum())
            then += p * _time(some) if some else 0.0
            space = size[level][number] - size[level + 1][its].sum() - shared[level][0][number]
            return float((now - then) / max(abs(space), 1.0))

        left = math.inf if asked.budget_bytes is None else float(asked.budget_bytes)
        chosen: set[tuple[int, int]] = set()
        queue = [(-benefit(0, 0), 0, 0)]
        waiting = float(size[0][0])  # what the nodes in the queue need
        while queue:
            gain, level, number = heapq.heappop(queue)
            waiting -= size[level][number]
            last = level + 1 == len(self.spans)
            below = math.inf
            if not last:
                below = size[level + 1][children(level, number)].sum() + shared[level][0][number]
            if last or left - waiting <= below or -gain <= 0:
                chosen.add((level, number))
                left -= size[level][number]
                continue
            left -= shared[level][0][number]
            stop = min(FAN * (number + 1), self.nodes[level + 1])
            for child in range(FAN * number, stop):
                waiting += size[level + 1][child]
                heapq.heappush(queue, (-benefit(level + 1, child), level + 1, child))
        return chosen

    def _sum(self, level: int, pairs: Words, weights: Any) -> Doubles:
        found: Doubles = np.bincount(
            pairs >> 32, weights[pairs & 0xFFFFFFFF], minlength=self.nodes[level]
        ).astype(np.float64)
        return found

    def placed(
        self, name: str, chosen: set[tuple[int, int]], frequency: float
    ) -> tuple[Words, Any, Any, dict[str, Any]]:
        """The nodes down to those chosen, in preorder, and the words of each."""
        boxes = [self.box(level) for level in range(len(self.spans))]
        frequent = [self.frequent(level, frequency) for level in range(len(self.spans))]
        nodes: list[list[float]] = []
        numbers: list[list[int]] = []
        members: list[Words] = []

        def words_of(pairs: Words, number: int) -> Words:
            low, high = np.searchsorted(pairs, [number << 32, (number + 1) << 32])
            return pairs[low:high] & 0xFFFFFFFF

        def walk(level: int, number: int, known: Words) -> None:
            here, span = len(nodes), self.spans[level]
            is_chosen = (level, number) in chosen
            pairs = self.pairs[level] if is_chosen else frequent[level]
            own = np.setdiff1d(words_of(pairs, number), known, assume_unique=True)
            what = kernel.HERE if is_chosen else kernel.MORE if len(own) else kernel.GO
            numbers.append([span * number, min(span * (number + 1), self.count), 0, what])
            nodes.append(boxes[level][number].tolist())
            members.append(own)
            if not is_chosen:
                both = np.union1d(known, own)
                stop = min(FAN * (number + 1), self.nodes[level + 1])
                for child in range(FAN * number, stop):
                    walk(level + 1, child, both)
            numbers[here][2] = len(nodes)

        walk(0, 0, np.empty(0, np.int64))
        made = np.empty((len(nodes), kernel.N_WORDS), np.int64)
        made[:, :4] = numbers
        made[:, kernel.N_BOX :] = np.array(nodes, np.float64).view(np.int64)
        of_nodes = np.repeat(np.arange(len(nodes)), [len(each) for each in members])
        words = np.concatenate(members)
        about = {"name": name, "nodes": len(nodes), "words": len(words)}
        return made, words.astype(np.int32), of_nodes.astype(np.int32), about


def _time(words: Any) -> Any:
    """What a lookup in a dictionary takes, in microseconds."""
    return ALPHA_US + BETA_US * words
