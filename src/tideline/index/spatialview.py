"""Searching an index of places: what there is of it at one moment, and what is asked.

    test of a condition -> SpatialAsk: boxes around what is asked, the shape itself
    boxes -> hits of all places (kernels/spatial/search.py) -> refined by the shape -> (seq, key)

All memories and components of a view are searched by one call of a kernel; so a view has a table of
all places, and what memories have of it is made anew when something was added. Geometries are
refined from what the index has, so no document is read that does not meet what is asked.

A view is safe from any thread, while one adds to its first memory.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from operator import is_
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tideline.addresses import address_of
from tideline.index.kind import Chunk, Estimate
from tideline.index.spatialmemory import TAIL, SpatialMemory
from tideline.index.texts import Texts
from tideline.index.windows import ring_boxes, with_tiny
from tideline.kernels.spatial import layout as at
from tideline.kernels.spatial import nearest as near
from tideline.kernels.spatial import search
from tideline.space import exact
from tideline.space.outline import Bounds, Outline, from_bytes
from tideline.space.shapes import EARTH_RADIUS_M
from tideline.where.geo import shape_of
from tideline.where.tree import Inside

if TYPE_CHECKING:
    from tideline.index.spatial import SpatialReader

__all__ = ["EVERYTHING", "Found", "SpatialAsk", "SpatialView", "boxes_of"]

Words = NDArray[np.int64]
EVERYTHING = 1 << 62
_FIRST = 2048  # hits there is room for in the first go
_HEAP = 1024  # items there is room for at first
_KEY_WORDS = 4  # of a key, about
_NO_NUMBERS = np.zeros(4)
_KINDS = {"box": search.BOX, "ring": search.RING, "polygon": search.AREA, "outline": search.OUTLINE}


class SpatialAsk(NamedTuple):
    """A test of places: see where/geo.py."""

    test: Inside
    exact: bool = True
    """Whether the test is all that is asked of the field."""

    @property
    def point(self) -> bool:
        """No: it asks for an area."""
        return False

    def __str__(self) -> str:
        """In words.

        >>> str(SpatialAsk(Inside("box", (0.0, 0.0, 2.0, 1.0))))
        'within the box 0, 0, 2, 1'
        """
        numbers, how = self.test.numbers, {"meets": "meets"}.get(self.test.how, "within")
        if self.test.kind == "box":
            return f"{how} the box {', '.join(f'{n:g}' for n in numbers)}"
        if self.test.kind == "ring":
            lon, lat, least, greatest = numbers
            far = "any distance" if greatest == math.inf else f"{greatest:g} m"
            start = f"{least:g} m to " if least else ""
            return f"{how} {start}{far} of {lon:g}, {lat:g}"
        what = "polygon" if self.test.kind == "polygon" else "geometry"
        return f"{how} a {what} in {', '.join(f'{n:g}' for n in shape_of(self.test).box)}"


class Found(NamedTuple):
    """Some entries, nearest first: candidates, and the haversines of their distances.

    Of those of later writes, too, which are no candidates: the last one says how far it was looked.
    """

    seqs: Words
    keys: Texts
    haversines: NDArray[np.float64]


class _Question:
    """What kernels have to know of an ask."""

    def __init__(self, ask: SpatialAsk) -> None:
        test = ask.test
        self.kind = _KINDS[test.kind]
        self.how = search.WITHIN if test.how == "within" else search.MEETS
        self.shape: Outline | None = None
        self.shape_at = 0
        self.numbers = np.array(test.numbers) if self.kind == search.RING else _NO_NUMBERS
        if self.kind == search.RING:
            lon, lat, _, greatest = test.numbers
            self.boxes = ring_boxes(lon, lat, greatest)
        else:
            if self.kind != search.BOX or test.how == "meets":
                self.shape = shape_of(test)
                self.shape_at = address_of(self.shape.numbers)
                self.numbers = np.array(self.shape.box)
                self.boxes = [self.shape.box]
                if self.kind == search.OUTLINE:
                    self.boxes = [with_tiny(self.shape.box)]
            else:
                west, south, east, north = test.numbers
                self.boxes = [(west, south, east, north)]
        # Of a geometry that lies in a shape, all lies in the box around that.
        self.whole = self.how == search.WITHIN and self.kind in (search.BOX, search.AREA)


def boxes_of(ask: SpatialAsk) -> list[tuple[float, ...]]:
    """The boxes, west, south, east and north, that everything an ask leads to has a part of.

    >>> boxes_of(SpatialAsk(Inside("box", (0.0, 0.0, 2.0, 1.0))))
    [(0.0, 0.0, 2.0, 1.0)]
    """
    return [tuple(map(float, box)) for box in _Question(ask).boxes]


class SpatialView:
    """An index at one moment: memories, then components, each newest first."""

    def __init__(self, memories: Sequence[SpatialMemory], readers: Sequence[SpatialReader]) -> None:
        self.memories = tuple(memories)
        self.readers = tuple(readers)
        rows = [reader.rows for reader in readers]
        self._still: Words = np.concatenate(rows) if rows else np.zeros(0, np.int64)
        self._known: tuple[Any, Words, int, bool] = (None, self._still, 0, False)

    def table(self) -> tuple[Any, Words, int, bool]:
        """What holds memory, the places, their address, and whether any has boxes."""
        nows = [memory.now for memory in self.memories]
        known = self._known
        before = known[0]
        if before is not None and all(map(is_, before[0], nows)):
            return known
        found = [memory.shown() for memory in self.memories]
        table = np.concatenate([*(shown.rows for shown in found), self._still])
        if not len(table):
            table = np.zeros(at.P_WORDS, np.int64)
        boxed = bool(table.reshape(-1, at.P_WORDS)[:, at.P_EAST].any())
        held = [shown.now for shown in found], found, self.readers
        known = self._known = held, table, address_of(table), boxed
        return known

    def passing(self, filters: Mapping[str, tuple[bytes, bytes]]) -> SpatialView:
        """The view without the components whose filters miss one of the closed ranges."""
        readers = [reader for reader in self.readers if _passes(reader, filters)]
        if len(readers) == len(self.readers):
            return self
        return SpatialView(self.memories, readers)

    # ---- searching --------------------------------------------------------------------------

    def hits(self, ask: SpatialAsk) -> tuple[Any, int, Words, int]:
        """What there is for an ask: what holds memory, the address of places, hits, how many."""
        question = _Question(ask)
        held, table, places, boxed = self.table()
        number = len(table) // at.P_WORDS
        parts = []
        for box in question.boxes:
            hits, count = _boxed(places, number, box, question.whole)
            if question.kind != search.BOX or (boxed and question.how == search.MEETS):
                hits_at = address_of(hits)
                count = search.refine(
                    places, hits_at, count, question.kind, question.how, question.shape_at,
                    address_of(question.numbers),
                )  # fmt: skip
                if boxed and question.whole and question.kind == search.AREA:
                    hits, count = _settled(table, hits[:count], question)
            parts.append((hits, count))
        hits, count = parts[0]
        if len(parts) > 1:
            hits = np.concatenate([each[:size] for each, size in parts])
            count = len(hits)
        return (held, table), places, hits, count

    def search(self, ask: SpatialAsk, below: int) -> Iterator[Chunk]:
        """All candidates of writes with a seq below, newest first, each once."""
        held, places, hits, count = self.hits(ask)
        if count:
            found = _newest_first(places, hits, count, below)
            del held
            if len(found.seqs):
                yield found

    def estimate(self, ask: SpatialAsk) -> Estimate:
        """How many entries there are, stale ones included: by the boxes of nodes."""
        question = _Question(ask)
        held, table, places, _ = self.table()
        number = len(table) // at.P_WORDS
        found = leaves = 0.0
        for box in question.boxes:
            entries, more = search.count_box(places, number, *box)
            found += entries
            leaves += more
        del held
        part = math.pi / 4 if question.kind == search.RING else 1.0
        return Estimate(part * found, part * found + leaves)

    def nearest(
        self, lon: float, lat: float, least_m: float, greatest_m: float, count: int, below: int
    ) -> Iterator[Found]:
        """Candidates of writes with a seq below, nearest first, about `count` at a time."""
        held, table, places, _ = self.table()
        number = len(table) // at.P_WORDS
        cap = number + _HEAP
        heap = np.empty(at.N_WORDS + 2 * cap, np.int64)
        least, most = _haversine(least_m, -1), _haversine(greatest_m, 1)
        room = max(count, 1)
        while True:
            out = np.empty((4 + _KEY_WORDS) * room + 1, np.int64)
            hits_at = address_of(out)
            filled = 0
            while True:
                got = near.next_nearest(
                    places, number, address_of(heap), cap, lon, lat, least, most,
                    hits_at + 8 * filled, hits_at + 8 * (room + filled), room - filled,
                )  # fmt: skip
                number = 0  # it has begun
                filled += got if got >= 0 else -1 - got
                if got >= 0:
                    break
                larger = np.empty(2 * len(heap) + TAIL, np.int64)
                larger[: len(heap)] = heap
                heap, cap = larger, (len(larger) - at.N_WORDS) // 2
            if filled:
                yield _found(places, out, room, filled, below)
            if filled < room:
                del held
                return
            room = min(room * 2, 1 << 16)


def _found(places: int, out: Words, room: int, count: int, below: int) -> Found:
    """Of hits and haversines, each so many words, the candidates; what is behind is for them."""
    hits_at, seqs, ends = address_of(out), 2 * room, 3 * room
    data = ends + room + 1
    kept, size = search.gather_below(
        places, hits_at, count, below, hits_at + 8 * seqs, hits_at + 8 * ends, hits_at + 8 * data,
        8 * _KEY_WORDS * room,
    )  # fmt: skip
    if size <= 8 * _KEY_WORDS * room:
        keys = Texts(out[ends : ends + kept + 1], out[data:].view(np.uint8))
    else:
        keys = _keys(places, out[:kept], size)
    return Found(out[seqs : seqs + kept], keys, out[room : room + count].view(np.float64))


def _boxed(places: int, number: int, box: Bounds, whole: bool) -> tuple[Words, int]:
    room = _FIRST
    while True:
        hits = np.empty(room + at.QUEUE, np.int64)
        count: int = search.search_box(places, number, *box, whole, address_of(hits), room)
        if count <= room:
            return hits, count
        room = count


def _newest_first(places: int, hits: Words, count: int, below: int) -> Chunk:
    """Hits of writes with a seq below, each write once.

    Records mostly lie in the order of their writes: so they are read from front to back.
    """
    found, seqs, size = _below(places, hits, count, below)
    order = seqs.argsort()[::-1]
    seqs = seqs[order]
    again = seqs[1:] == seqs[:-1]
    if again.any():  # a document with several places
        once = np.append(True, ~again)
        order, seqs = order[once], seqs[once]
    return Chunk(seqs, _keys(places, found[order], size))


def _below(places: int, hits: Words, count: int, below: int) -> tuple[Words, Words, int]:
    """Hits of writes with a seq below, their seqs, and how many bytes their keys have."""
    seqs = np.empty(count, np.int64)
    kept, size = search.keep_below(places, address_of(hits), count, below, address_of(seqs))
    return hits[:kept], seqs[:kept], size


def _keys(places: int, hits: Words, size: int) -> Texts:
    """The keys of hits, which have at most so many bytes."""
    offsets, data = np.empty(len(hits) + 1, np.int64), np.empty(size, np.uint8)
    search.gather(places, address_of(hits), len(hits), address_of(offsets), address_of(data))
    return Texts(offsets, data)


def _settled(table: Words, hits: Words, question: _Question) -> tuple[Words, int]:
    """Hits without those of which exact fractions say that they are not within the shape."""
    open_at = np.flatnonzero(hits & search.OPEN)
    if not len(open_at):
        return hits, len(hits)
    assert question.shape is not None
    parts = question.shape.parts
    keep = np.ones(len(hits), np.bool_)
    rows = table.reshape(-1, at.P_WORDS)
    for number in open_at.tolist():
        hit = int(hits[number])
        row = rows[(hit >> at.PLACE_SHIFT) & at.PLACES].tolist()
        entry = hit & at.POSITION
        if row[at.P_IDS]:
            entry = _word(row[at.P_IDS] + 8 * entry)
        first = _word(row[at.P_SHAPE_OFFSETS] + 8 * entry)
        limit = _word(row[at.P_SHAPE_OFFSETS] + 8 * entry + 8)
        own = from_bytes(ctypes.string_at(row[at.P_SHAPES] + first, limit - first))
        keep[number] = exact.within(own.parts, parts)
    kept = hits[keep] & ~search.OPEN
    return kept, len(kept)


def _word(address: int) -> int:
    return ctypes.c_int64.from_address(address).value


@lru_cache(256)
def _haversine(metres: float, towards: int) -> float:
    """The haversine of a distance, and a trifle more or less than that."""
    if metres >= math.pi * EARTH_RADIUS_M:
        return 1.0 if towards > 0 or metres < 3.2 * EARTH_RADIUS_M else 2.0
    half = math.sin(metres / EARTH_RADIUS_M / 2)
    return max(0.0, half * half * (1.0 + towards * 1e-9) + towards * 1e-24)


def _passes(reader: SpatialReader, ranges: Mapping[str, tuple[bytes, bytes]]) -> bool:
    filters = reader.component.info.filters
    return all(
        name not in filters or filters[name].overlaps(low, high)
        for name, (low, high) in ranges.items()
    )
