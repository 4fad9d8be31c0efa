"""An LSM R-tree in three ways to tell which entries count: ours and two published ones.

    SeqRtree         an entry has the number of its write and counts when its key has no later one;
                     a flush or merge leaves out what no longer counts, and says up to which write
                     it looked, so that afterwards only later writes are asked (ours)
    DeletedKeyRtree  beside each tree the keys that were deleted while it was filled, sorted, with a
                     bloom filter: an entry counts when no newer component deleted its key ("LSM
                     R-tree")
    AntimatterRtree  a delete is an entry of its own with the place of the one that it takes back;
                     what is found is brought together and the newest of equal ones decides
                     ("AMLSM R-tree")

All stand on the packed trees and the search of the kind `spatial` (index/spatialmemory.py `pack`,
kernels/spatial/search.py), with whole numbers for keys, so only the way differs. They are for
comparison: in memory alone, one thread, no log. Rows are written in order: a put has the place of
an entry, a delete that of the entry it takes away. The published ways need that place, so whoever
updates a record must read it first; `SeqRtree` does not look at it. There a put of a key that is
there replaces its entry; the others must be told of the delete before.

The publication merges what its trees find along the Hilbert curve; here `AntimatterRtree` brings
equal entries together by their keys, which does the same work.

    >>> from benchmarks.peers.lsm_rtrees import WAYS
    >>> import numpy as np
    >>> for way in WAYS:
    ...     tree = way()
    ...     tree.write(np.array([1, 2]), np.array([5.0, 6.0]), np.array([5.0, 6.0]))
    ...     tree.flush()
    ...     tree.write(np.array([1]), np.array([5.0]), np.array([5.0]), np.array([True]))
    ...     print(way.name, tree.search((0, 0, 9, 9)).tolist())
    by number [2]
    deleted keys [2]
    anti-matter [2]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tideline.addresses import address_of
from tideline.index.spatialmemory import Pack, pack
from tideline.kernels.spatial import layout as at
from tideline.kernels.spatial import search
from tideline.kernels.warm import ensure

__all__ = ["WAYS", "AntimatterRtree", "DeletedKeyRtree", "Rtree", "SeqRtree"]

Words = NDArray[np.int64]
Doubles = NDArray[np.float64]
Flags = NDArray[np.bool_]
_BITS_A_KEY = 16
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


# ---- keys on the side: sorted, with a bloom filter -----------------------------------------------


@njit(cache=True)
def _hash(key):  # type: ignore[no-untyped-def]
    x = np.uint64(key) * _GOLDEN
    x ^= x >> np.uint64(29)
    x *= np.uint64(0xBF58476D1CE4E5B9)
    return x ^ (x >> np.uint64(32))


@njit(cache=True)
def _bloom(keys, words):  # type: ignore[no-untyped-def]
    bits = np.zeros(words, np.uint64)
    for key in keys:
        x = _hash(key)
        for _ in range(4):
            bits[(x >> np.uint64(6)) & np.uint64(words - 1)] |= np.uint64(1) << (x & np.uint64(63))
            x = x * _GOLDEN + np.uint64(1)
            x ^= x >> np.uint64(31)
    return bits


@njit(cache=True)
def _find(key, keys, first, limit, blooms, bloom_first, bloom_limit):  # type: ignore[no-untyped-def]
    """Where a key is among `keys[first:limit]`; -1: it is not there."""
    if first == limit:
        return -1
    x, mask = _hash(key), np.uint64(bloom_limit - bloom_first - 1)
    for _ in range(4):
        word = blooms[bloom_first + np.int64((x >> np.uint64(6)) & mask)]
        if not (word >> (x & np.uint64(63))) & np.uint64(1):
            return -1
        x = x * _GOLDEN + np.uint64(1)
        x ^= x >> np.uint64(31)
    low, high = first, limit
    while low < high:
        middle = (low + high) >> 1
        if keys[middle] < key:
            low = middle + 1
        else:
            high = middle
    return low if low < limit and keys[low] == key else -1


@njit(cache=True)
def _not_deleted(places, found, keys, starts, blooms, bloom_starts, keep):  # type: ignore[no-untyped-def]
    for i in range(len(found)):
        keep[i] = True
        for q in range(places[i]):
            if _find(
                found[i], keys, starts[q], starts[q + 1], blooms, bloom_starts[q],
                bloom_starts[q + 1],
            ) >= 0:  # fmt: skip
                keep[i] = False
                break


@njit(cache=True)
def _newest(places, found, its, sure, last, keys, seqs, starts, blooms, bloom_starts, keep):  # type: ignore[no-untyped-def]
    for i in range(len(found)):
        keep[i] = True
        p = places[i]
        for q in range(p + 1):
            if last[q] <= sure[p]:
                break  # what was written then was looked at by the merge
            at_ = _find(
                found[i], keys, starts[q], starts[q + 1], blooms, bloom_starts[q],
                bloom_starts[q + 1],
            )  # fmt: skip
            if at_ >= 0:
                keep[i] = seqs[at_] == its[i]
                break


@njit(cache=True)
def _annihilated(order, found, xs, ys, matter, keep):  # type: ignore[no-untyped-def]
    """Of equal entries the first, the newest, decides; `order` has equal keys side by side."""
    start = 0
    for n in range(len(order)):
        i = order[n]
        if n and found[order[n - 1]] != found[i]:
            start = n
        keep[i] = matter[i]
        for m in range(start, n):
            j = order[m]
            if xs[j] == xs[i] and ys[j] == ys[i]:
                keep[i] = False
                break


class Keys(NamedTuple):
    """Keys in order, each once, with a number each."""

    keys: Words
    seqs: Words
    bloom: NDArray[np.uint64]

    @classmethod
    def of(cls, keys: Words, seqs: Words) -> Keys:
        """Of keys in any order; the last of equal ones counts."""
        turned = keys[::-1]
        own, where = np.unique(turned, return_index=True)
        words = 1
        while 64 * words < _BITS_A_KEY * len(own):
            words *= 2
        bloom = _bloom(own, words) if len(own) else np.zeros(0, np.uint64)
        return cls(own, seqs[::-1][where], bloom)

    @property
    def size_bytes(self) -> int:
        """Bytes of the keys and of the filter."""
        return self.keys.nbytes + self.bloom.nbytes


def _side_by_side(parts: Sequence[Keys]) -> tuple[Any, ...]:
    """All of them for a kernel: keys, seqs, where each begins, and the same of the filters."""

    def both(arrays: list[Any]) -> tuple[Any, Words]:
        starts = np.zeros(len(arrays) + 1, np.int64)
        np.cumsum([len(each) for each in arrays], out=starts[1:])
        return np.concatenate(arrays), starts

    keys, starts = both([each.keys for each in parts])
    blooms, bloom_starts = both([each.bloom for each in parts])
    return keys, np.concatenate([each.seqs for each in parts]), starts, blooms, bloom_starts


# ---- trees ---------------------------------------------------------------------------------------


class Part(NamedTuple):
    """A component: entries in Hilbert order with a tree over them, and what belongs to them."""

    tree: Pack
    keys: Words
    seqs: Words
    matter: Flags
    """False of an entry that takes another one back."""
    side: Keys
    sure: int = -1
    """The entries were looked at after the write of this number."""

    @property
    def size_bytes(self) -> int:
        """Bytes of entries and nodes, with their seqs or their marks."""
        return int(self.tree.nodes.nbytes) + 24 * len(self.keys)

    def rows(self) -> tuple[Words, Words, Words, Doubles, Doubles, Flags]:
        """Entries in the order of their writes."""
        order = np.argsort(self.seqs, kind="stable")
        x, y = self.tree.coordinates
        return self.keys[order], self.seqs[order], order, x[order], y[order], self.matter[order]


_NO_KEYS = Keys(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.uint64))


class Rtree:
    """What the three have in common: memory, components, searching all of them at once."""

    name = ""

    def __init__(self) -> None:
        ensure("spatial")
        self.parts: list[Part] = []
        """Components, newest first."""
        self._log: list[tuple[Words, Doubles, Doubles, Flags, int]] = []
        self._memory: Part | None = None
        self._table: tuple[Any, ...] | None = None
        self.written = 0

    def write(self, keys: Words, x: Doubles, y: Doubles, delete: Flags | None = None) -> None:
        """Some rows, in order: puts, and where `delete` says so deletes."""
        gone = np.zeros(len(keys), np.bool_) if delete is None else delete
        self._log.append((keys, x, y, gone, self.written))
        self.written += len(keys)
        self._memory = self._table = None

    def flush(self) -> None:
        """Memory becomes a component."""
        if self._log:
            self.parts.insert(0, self._in_memory())
            self._log.clear()
            self._memory = self._table = None

    def merge(self, first: int, limit: int) -> None:
        """Components [first, limit) become one; the newest is number 0."""
        some = self.parts[first:limit]
        if some:
            self.parts[first:limit] = [self._merged(some, limit == len(self.parts))]
            self._table = None

    def search(self, box: Sequence[float]) -> Words:
        """The keys of the entries in a closed box, in order."""
        keys = self.found(box)
        keys.sort()
        return keys

    def found(self, box: Sequence[float]) -> Words:
        """The same in any order."""
        if self._table is None:
            self._table = self._shown()
        parts, places, side = self._table
        room = 0
        count = 4096  # hits there is room for in the first go
        while count > room:
            room = count
            hits = np.empty(room + at.QUEUE, np.int64)
            count = search.search_box(
                address_of(places), len(parts), *map(float, box), False, address_of(hits), room
            )
        hits = hits[:count]
        which, positions = (hits >> at.PLACE_SHIFT) & at.PLACES, hits & at.POSITION
        keep = np.empty(count, np.bool_)
        keys = side["keys"][side["first"][which] + positions]
        self._decide(side, which, side["first"][which] + positions, keys, keep)
        left: Words = keys[keep]
        return left

    @property
    def size_bytes(self) -> int:
        """Bytes of components, with the keys on the side that belong to the index."""
        return sum(part.size_bytes for part in self.parts) + self._side_bytes()

    def _shown(self) -> tuple[Any, ...]:
        parts = [*([self._in_memory()] if self._log else []), *self.parts]
        if not parts:
            parts = [self._part(*(np.zeros(0, kind) for kind in (int, int, float, float, bool)),
                                _NO_KEYS)]  # fmt: skip
        first = np.zeros(len(parts) + 1, np.int64)
        np.cumsum([len(part.keys) for part in parts], out=first[1:])
        side = {
            "keys": np.concatenate([part.keys for part in parts]),
            "seqs": np.concatenate([part.seqs for part in parts]),
            "matter": np.concatenate([part.matter for part in parts]),
            "x": np.concatenate([part.tree.coordinates[0] for part in parts]),
            "y": np.concatenate([part.tree.coordinates[1] for part in parts]),
            "first": first, "sides": _side_by_side([part.side for part in parts]),
            "sure": np.array([part.sure for part in parts]),
            "last": np.array([part.side.seqs.max(initial=-1) for part in parts]),
        }  # fmt: skip
        return parts, np.concatenate([part.tree.row for part in parts]), side

    def _in_memory(self) -> Part:
        if self._memory is None:
            keys, x, y, gone = (np.concatenate([each[n] for each in self._log]) for n in range(4))
            seqs = np.arange(self.written - len(keys), self.written)
            self._memory = self._of_rows(
                keys.astype(np.int64), seqs, x.astype(np.float64), y.astype(np.float64), gone
            )
        return self._memory

    def _part(
        self, keys: Words, seqs: Words, x: Doubles, y: Doubles, matter: Flags, side: Keys,
        sure: int = -1,
    ) -> Part:  # fmt: skip
        tree = pack((np.ascontiguousarray(x, np.float64), np.ascontiguousarray(y, np.float64)))
        order = tree.order
        return Part(tree, keys[order], seqs[order], matter[order], side, sure)

    # ---- what differs --------------------------------------------------------------------------

    def _of_rows(self, keys: Words, seqs: Words, x: Doubles, y: Doubles, gone: Flags) -> Part:
        raise NotImplementedError

    def _merged(self, parts: list[Part], oldest: bool) -> Part:
        raise NotImplementedError

    def _decide(self, side: Any, which: Words, rows: Words, keys: Words, keep: Flags) -> None:
        raise NotImplementedError

    def _side_bytes(self) -> int:
        return 0


class SeqRtree(Rtree):
    """By the number of the write. The keys on the side are those of the documents' own index."""

    name = "by number"

    def _of_rows(self, keys: Words, seqs: Words, x: Doubles, y: Doubles, gone: Flags) -> Part:
        rows = _last_of(keys)  # what memory itself has replaced goes, so only later writes count
        rows = rows[~gone[rows]]
        side, sure = Keys.of(keys, seqs), int(seqs[-1])
        return self._part(keys[rows], seqs[rows], x[rows], y[rows], ~gone[rows], side, sure)

    def _merged(self, parts: list[Part], oldest: bool) -> Part:
        if self._table is None:
            self._table = self._shown()
        side = self._table[2]
        numbers = [n for n, each in enumerate(self._table[0]) if any(each is p for p in parts)]
        rows = np.concatenate(
            [np.arange(side["first"][n], side["first"][n + 1]) for n in reversed(numbers)]
        )
        which = np.repeat(numbers[::-1], [len(p.keys) for p in reversed(parts)])
        keys, keep = side["keys"][rows], np.empty(len(rows), np.bool_)
        self._decide(side, which, rows, keys, keep)
        rows = rows[keep]
        merged = Keys.of(
            np.concatenate([part.side.keys for part in reversed(parts)]),
            np.concatenate([part.side.seqs for part in reversed(parts)]),
        )
        return self._part(
            keys[keep], side["seqs"][rows], side["x"][rows], side["y"][rows],
            side["matter"][rows], merged, self.written - 1,
        )  # fmt: skip

    def _decide(self, side: Any, which: Words, rows: Words, keys: Words, keep: Flags) -> None:
        every, seqs, *rest = side["sides"]
        _newest(
            which, keys, side["seqs"][rows], side["sure"], side["last"], every, seqs, *rest, keep
        )


def _last_of(*columns: Any) -> Words:
    """The rows that are the last with their values, in order."""
    order = np.lexsort((np.arange(len(columns[0])), *columns))
    last = np.ones(len(order), np.bool_)
    if len(order) > 1:
        last[:-1] = np.any([each[order][1:] != each[order][:-1] for each in columns], axis=0)
    found: Words = np.sort(order[last])
    return found


class DeletedKeyRtree(Rtree):
    """By the keys that newer components deleted."""

    name = "deleted keys"

    def _of_rows(self, keys: Words, seqs: Words, x: Doubles, y: Doubles, gone: Flags) -> Part:
        side = Keys.of(keys[gone], seqs[gone])
        rows = _last_of(keys)
        rows = rows[~gone[rows]]
        return self._part(keys[rows], seqs[rows], x[rows], y[rows], ~gone[rows], side)

    def _merged(self, parts: list[Part], oldest: bool) -> Part:
        side = _side_by_side([part.side for part in parts])
        which = np.repeat(np.arange(len(parts)), [len(part.keys) for part in parts])
        keys = np.concatenate([part.keys for part in parts])
        keep = np.empty(len(keys), np.bool_)
        _not_deleted(which, keys, side[0], *side[2:], keep)
        deleted = Keys.of(
            np.concatenate([part.side.keys for part in reversed(parts)]),
            np.concatenate([part.side.seqs for part in reversed(parts)]),
        )
        seqs = np.concatenate([part.seqs for part in parts])[keep]
        x, y = (np.concatenate([p.tree.coordinates[n] for p in parts])[keep] for n in range(2))
        return self._part(
            keys[keep], seqs, x, y, np.ones(len(seqs), np.bool_), _NO_KEYS if oldest else deleted
        )

    def _decide(self, side: Any, which: Words, rows: Words, keys: Words, keep: Flags) -> None:
        every, _, *rest = side["sides"]
        _not_deleted(which, keys, every, *rest, keep)

    def _side_bytes(self) -> int:
        return sum(part.side.size_bytes for part in self.parts)


class AntimatterRtree(Rtree):
    """By entries that take others back."""

    name = "anti-matter"

    def _of_rows(self, keys: Words, seqs: Words, x: Doubles, y: Doubles, gone: Flags) -> Part:
        rows = _last_of(keys, x, y)
        return self._part(keys[rows], seqs[rows], x[rows], y[rows], ~gone[rows], _NO_KEYS)

    def _merged(self, parts: list[Part], oldest: bool) -> Part:
        rows = [part.rows() for part in reversed(parts)]
        keys, seqs, _, x, y, matter = (np.concatenate(each) for each in zip(*rows, strict=True))
        last = _last_of(keys, x, y)
        if oldest:
            last = last[matter[last]]  # there is nothing left to take back
        return self._part(keys[last], seqs[last], x[last], y[last], matter[last], _NO_KEYS)

    def _decide(self, side: Any, which: Words, rows: Words, keys: Words, keep: Flags) -> None:
        order = np.argsort(keys * len(side["first"]) + which)  # newer components come first
        _annihilated(order, keys, side["x"][rows], side["y"][rows], side["matter"][rows], keep)


WAYS: tuple[type[Rtree], ...] = (SeqRtree, DeletedKeyRtree, AntimatterRtree)
