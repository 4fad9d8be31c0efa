"""Places in memory: a short tail that is gone through, and packed runs behind it.

    add --> tail --searched, TAIL entries or more--> run --> larger run ...     points, boxes apart

Who adds puts entries behind the others, and that is all: they are sorted when somebody searches.
If the tail has grown too long by then, it becomes a run; when there are RUNS of about one size,
they become one. So an entry is sorted again only when its run has grown by that factor, a search
looks at few trees, and what is sealed before anybody asks is sorted once. Entries themselves stay
where they came; a run says in which order they are, and has their coordinates beside its tree.

One writer adds. What readers take is `now`, which the writer replaces by one assignment after
everything in it is in place. Arrays that are too small are replaced by larger ones; a reader keeps
those that it took. Readers who find entries that are new take turns at sorting them; others take no
lock.
"""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tideline.addresses import address_of
from tideline.index.places import BOX_BYTES, POINT_BYTES
from tideline.index.texts import Texts
from tideline.kernels.spatial import build
from tideline.kernels.spatial import layout as at

__all__ = ["RUNS", "TAIL", "Pack", "Shown", "Side", "SpatialMemory", "pack"]

Words = NDArray[np.int64]
Doubles = NDArray[np.float64]

TAIL, RUNS = 4096, 8
_LEAST = 64
_NONE_W: Any = np.zeros(0, np.int64)
_NONE_D: Any = np.zeros(0, np.float64)


class Pack:
    """Entries in Hilbert order: their numbers, coordinates and the boxes of the nodes."""

    __slots__ = ("coordinates", "count", "nodes", "order", "row")

    def __init__(
        self, order: Words, coordinates: tuple[Doubles, ...], nodes: NDArray[np.float32]
    ) -> None:
        self.order = order
        self.coordinates = coordinates
        self.nodes = nodes
        self.count = len(order)
        self.row: Words = tree_row(coordinates, nodes)


def tree_row(coordinates: tuple[Doubles, ...], nodes: NDArray[np.float32]) -> Words:
    """The words of a place: where coordinates and nodes are. The arrays must stay."""
    row = np.zeros(at.P_WORDS, np.int64)
    count = len(coordinates[0])
    row[at.P_COUNT] = count
    for place, values in zip(
        (at.P_WEST, at.P_SOUTH, at.P_EAST, at.P_NORTH), coordinates, strict=False
    ):
        row[place] = address_of(values)
    if count:
        row[at.P_NODES] = address_of(nodes)
        build.level_words(count, address_of(row))
    return row


def pack(coordinates: tuple[Doubles, ...], order: Words | None = None) -> Pack:
    """Sort entries along the curve, those of `order` or all, and build the tree over them."""
    if order is not None:
        coordinates = tuple(_taken(values, order) for values in coordinates)
    count = len(coordinates[0])
    places = [address_of(values) for values in coordinates] + [0, 0]
    keys, other, mine, its = np.empty((4, count), np.int64)
    mine[:] = np.arange(count)
    build.hilbert_keys(*places[:4], count, address_of(keys))
    scratch = np.empty(4 * 4096, np.int64)
    build.order_by_key(
        address_of(keys), count, address_of(mine), address_of(other), address_of(its),
        address_of(scratch),
    )  # fmt: skip
    packed = tuple(_taken(values, mine) for values in coordinates)
    nodes = node_boxes(packed)
    return Pack(mine.copy() if order is None else order[mine], packed, nodes)


def node_boxes(coordinates: tuple[Doubles, ...]) -> NDArray[np.float32]:
    """The boxes of the nodes over entries that are in order."""
    count = len(coordinates[0])
    nodes = np.zeros(4 * int(build.ranked(count)) if count else 0, np.float32)
    if count:
        places = [address_of(values) for values in coordinates] + [0, 0]
        build.node_boxes(*places[:4], count, address_of(nodes))
    return nodes


def _taken(values: Doubles, order: Words) -> Doubles:
    found = np.empty(len(order), np.float64)
    build.take_doubles(
        address_of(values), len(values), address_of(order), len(order), address_of(found)
    )
    return found


class Side:
    """The points of a memory, or its boxes, as they were after some write; never changed.

    Runs have those of readers only.
    """

    __slots__ = (
        "coordinates", "count", "key_offsets", "keys", "runs", "seqs", "shape_offsets", "shapes",
        "sorted",
    )  # fmt: skip

    def __init__(
        self, coordinates: tuple[Doubles, ...], seqs: Words, key_offsets: Words,
        keys: NDArray[np.uint8], shape_offsets: Words, shapes: NDArray[np.uint8],
        runs: tuple[Pack, ...], sorted_: int, count: int,
    ) -> None:  # fmt: skip
        self.coordinates, self.seqs = coordinates, seqs
        self.key_offsets, self.keys = key_offsets, keys
        self.shape_offsets, self.shapes = shape_offsets, shapes
        self.runs, self.sorted, self.count = runs, sorted_, count

    @classmethod
    def empty(cls, axes: int) -> Side:
        """Nothing yet: `axes` is 2 for points, 4 for boxes."""
        none = np.zeros(1, np.int64)
        octets = np.zeros(0, np.uint8)
        return cls((_NONE_D,) * axes, _NONE_W, none, octets, none, octets, (), 0, 0)

    def added(
        self, coordinates: NDArray[np.float64], seqs: Words, keys: Texts, shapes: Texts | None
    ) -> Side:
        """With more entries: rows of coordinates, seqs, keys, outlines of boxes."""
        first, limit = self.count, self.count + len(seqs)
        room = len(self.seqs)
        columns, all_seqs, ends = self.coordinates, self.seqs, self.key_offsets
        shape_ends = self.shape_offsets
        if limit > room:
            room = max(_LEAST, limit + limit // 2)
            columns = tuple(_grown(each, first, room) for each in columns)
            all_seqs = _grown(all_seqs, first, room)
            ends = _grown(ends, first + 1, room + 1)
            if shapes is not None:
                shape_ends = _grown(shape_ends, first + 1, room + 1)
        for column, values in zip(columns, coordinates.T, strict=True):
            column[first:limit] = values
        all_seqs[first:limit] = seqs
        octets = _appended(self.keys, ends, first, keys)
        outlines = self.shapes
        if shapes is not None:
            outlines = _appended(outlines, shape_ends, first, shapes)
        return Side(columns, all_seqs, ends, octets, shape_ends, outlines, (), 0, limit)

    def packed(self, older: Side) -> Side:
        """With the runs of the same side before some writes, and a tail that is not too long."""
        runs, first = [*older.runs], older.sorted
        if self.count - first >= TAIL:
            runs.append(pack(self.coordinates, np.arange(first, self.count)))
            first = self.count
            while len(runs) >= RUNS and _alike(runs[-RUNS:]):
                order = np.concatenate([run.order for run in runs[-RUNS:]])
                runs[-RUNS:] = [pack(self.coordinates, order)]
        return Side(
            self.coordinates, self.seqs, self.key_offsets, self.keys, self.shape_offsets,
            self.shapes, tuple(runs), first, self.count,
        )  # fmt: skip

    def rows(self) -> Words:
        """What kernels see of it: its tail and its runs as places."""
        made = []
        if self.count > self.sorted:
            row = np.zeros(at.P_WORDS, np.int64)
            row[at.P_COUNT] = self.count - self.sorted
            skip = 8 * self.sorted
            for place, values in zip(
                (at.P_WEST, at.P_SOUTH, at.P_EAST, at.P_NORTH), self.coordinates, strict=False
            ):
                row[place] = address_of(values) + skip
            self._tell(row, skip)
            made.append(row)
        for run in self.runs:
            row = run.row.copy()
            row[at.P_IDS] = address_of(run.order)
            self._tell(row, 0)
            made.append(row)
        return np.concatenate(made) if made else _NONE_W

    def _tell(self, row: Words, skip: int) -> None:
        row[at.P_SEQS] = address_of(self.seqs) + skip
        row[at.P_KEY_OFFSETS] = address_of(self.key_offsets) + skip
        row[at.P_KEYS] = address_of(self.keys)
        row[at.P_SHAPE_OFFSETS] = address_of(self.shape_offsets) + skip
        row[at.P_SHAPES] = address_of(self.shapes)

    def texts(self) -> tuple[Texts, Texts]:
        """All keys and all outlines, in the order they came."""
        count = self.count
        keys = Texts(self.key_offsets[: count + 1], self.keys)
        if len(self.coordinates) == 2:
            return keys, Texts.of([])
        return keys, Texts(self.shape_offsets[: count + 1], self.shapes)

    @property
    def size_bytes(self) -> int:
        """Bytes in use, when all of it has been searched."""
        axes = len(self.coordinates)
        sizes = int(self.key_offsets[self.count]) + int(
            self.shape_offsets[self.count] if axes == 4 else 0
        )
        return sizes + self.count * (16 * axes + 34)


class Shown(NamedTuple):
    """What a search sees of a memory; it has to keep it."""

    now: Any
    """What there was, of which this is: `SpatialMemory.now`."""
    sides: tuple[Side, Side]
    rows: Words
    """The places of kernels."""


class SpatialMemory:
    """Places since the last seal."""

    def __init__(self) -> None:
        self.now: tuple[Side, Side, int] = Side.empty(2), Side.empty(4), -1
        """Points, boxes, and the last seq: replaced, never changed."""
        self._shown = Shown(self.now, self.now[:2], _NONE_W)
        self._sorting = threading.Lock()

    @property
    def size_bytes(self) -> int:
        """Bytes in use."""
        points, boxes, _ = self.now
        return points.size_bytes + boxes.size_bytes

    @property
    def count(self) -> int:
        """How many entries."""
        points, boxes, _ = self.now
        return points.count + boxes.count

    def add(self, values: Texts, keys: Texts, seqs: int, rows: Words) -> None:
        """Add entries: see `index.kind.Memory`. All of a call count at once."""
        if seqs + int(rows[-1]) > self.now[2]:  # else it was cut after all of it was in
            whole = len(rows) == keys.count and bool((rows == np.arange(len(rows))).all())
            self.put(values, keys if whole else keys.take(rows), seqs + rows)

    def put(self, values: Texts, keys: Texts, seqs: Words) -> None:
        """Add entries, each with its key and seq; those of the last count as the newest."""
        points, boxes, _ = self.now
        plain = np.diff(values.offsets) == POINT_BYTES
        if plain.all():
            points = points.added(_numbers(values, 2), seqs, keys, None)
        else:
            mine = np.flatnonzero(plain)
            if len(mine):
                points = points.added(
                    _numbers(values.take(mine), 2), seqs[mine], keys.take(mine), None
                )
            mine = np.flatnonzero(~plain)
            found = values.take(mine).to_list()
            heads = np.frombuffer(b"".join(data[:BOX_BYTES] for data in found), np.float64)
            boxes = boxes.added(
                heads.reshape(-1, 4), seqs[mine], keys.take(mine),
                Texts.of([data[BOX_BYTES:] for data in found]),
            )  # fmt: skip
        self.now = points, boxes, int(seqs[-1])

    def shown(self) -> Shown:
        """What there is now, for who searches; what is new is put in order first."""
        shown = self._shown
        if shown.now is not self.now:
            with self._sorting:
                now, before = self.now, self._shown
                if before.now is not now:
                    sides = now[0].packed(before.sides[0]), now[1].packed(before.sides[1])
                    rows = np.concatenate([side.rows() for side in sides])
                    self._shown = Shown(now, sides, rows)
                shown = self._shown
        return shown


def _numbers(values: Texts, axes: int) -> NDArray[np.float64]:
    data = values.data[values.offsets[0] : values.offsets[-1]]
    return np.ascontiguousarray(data).view(np.float64).reshape(-1, axes)


def _alike(runs: list[Pack]) -> bool:
    """Whether runs, the oldest first, are of about one size."""
    return runs[0].count < RUNS * runs[-1].count // 2


def _grown(array: Any, used: int, room: int) -> Any:
    made = np.empty(room, array.dtype)
    made[:used] = array[:used]
    return made


def _appended(data: NDArray[np.uint8], ends: Words, first: int, more: Texts) -> NDArray[np.uint8]:
    """Texts behind those there are; their ends go into `ends`."""
    start = int(ends[first])
    begin, limit = int(more.offsets[0]), int(more.offsets[-1])
    used = start + limit - begin
    if used > len(data):
        data = _grown(data, start, max(1024, used + used // 2))
    data[start:used] = more.data[begin:limit]
    ends[first + 1 : first + 1 + more.count] = more.offsets[1:] + (start - begin)
    return data
