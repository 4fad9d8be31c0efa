"""The kind `spatial`: geometries by where they are, as packed Hilbert R-trees.

    documents --extract_places--> points and boxes --SpatialMemory--> component --merge--> ...
    a test of a place --serves--> SpatialAsk --SpatialView--> candidates, in no order

A component has its points first and then its boxes, each in Hilbert order with a tree over it
(kernels/spatial/layout.py):

    west: double | south: double        points: longitude and latitude
    east: double | north: double        only where there are boxes; of points the same again
    key: large_binary | seq: int64
    shape: large_binary                 only where there are boxes: the outline of each, else empty
    nodes: list<float>                  the boxes of the nodes: all of it in row 0

Invariants (`check` verifies them): coordinates are in range, every box of a node holds what is
below it, outlines are whole and inside their box, seqs are in the component's filter.

Filters: `seq`, `box` (an `Extent`), and those the owner gives. `extra["points"]` says how many rows
are points. Components are written once; memories are searched while one writer adds to them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tideline.addresses import address_of
from tideline.errors import Corruption
from tideline.index.kind import Asked, Chunk, Entries, Estimate, IndexKind, register
from tideline.index.places import extract_places
from tideline.index.spatialmemory import SpatialMemory, node_boxes, pack, tree_row
from tideline.index.spatialview import Found, SpatialAsk, SpatialView, boxes_of
from tideline.index.texts import Texts
from tideline.kernels.spatial import build
from tideline.kernels.spatial import layout as at
from tideline.kernels.spatial import search as kernel
from tideline.kernels.spatial.found import follow
from tideline.kernels.warm import ensure
from tideline.lsm import tiles
from tideline.lsm.component import Component, Product
from tideline.lsm.filter import Extent, Filter, MinMax
from tideline.lsm.tree import MergeContext
from tideline.where.nearest import Near
from tideline.where.tree import Inside

__all__ = ["SpatialKind", "SpatialReader"]

Words = NDArray[np.int64]
Doubles = NDArray[np.float64]

_KEEP_ROWS = 65_536  # entries the owner is asked about at a time
_WRONG = {1: "a node does not hold what is below it", 2: "a coordinate is out of range"}


class SpatialReader:
    """An open component: where its columns are, for kernels."""

    def __init__(self, component: Component) -> None:
        self.component = component
        table = component.table
        self.count = table.num_rows
        self.points = int(component.info.extra["points"])
        boxed = self.count > self.points
        if not 0 <= self.points <= self.count:
            raise KeyError("points")
        self.west = _doubles(table, "west")
        self.south = _doubles(table, "south")
        self.east = _doubles(table, "east") if boxed else self.west
        self.north = _doubles(table, "north") if boxed else self.south
        seqs = _column(table, "seq", pa.int64())
        self.seqs: Words = seqs.to_numpy(zero_copy_only=True)
        self._keys = _column(table, "key", pa.large_binary())
        self._shapes = _column(table, "shape", pa.large_binary()) if boxed else None
        nodes = _column(table, "nodes", pa.list_(pa.float32()))
        self.nodes: NDArray[np.float32] = nodes.values.to_numpy(zero_copy_only=True)
        ends = 4 * np.array([_nodes_of(self.points), _nodes_of(self.count - self.points)]).cumsum()
        if len(self.nodes) != ends[1]:
            raise KeyError("nodes")
        self.keys = Texts.from_arrow(self._keys)
        self.shapes = Texts.of([]) if self._shapes is None else Texts.from_arrow(self._shapes)
        # Maps may begin anywhere: kernels get addresses of what numpy sees.
        parts = []
        if self.points:
            own = (self.west[: self.points], self.south[: self.points])
            parts.append(self._row(own, self.nodes[: ends[0]], 0))
        if boxed:
            whole = (self.west, self.south, self.east, self.north)
            own = tuple(each[self.points :] for each in whole)  # type: ignore[assignment]
            parts.append(self._row(own, self.nodes[ends[0] :], self.points))
        self.rows: Words = np.concatenate(parts) if parts else np.zeros(0, np.int64)

    def _row(self, own: tuple[Doubles, ...], nodes: NDArray[np.float32], first: int) -> Words:
        row = tree_row(own, nodes)
        row[at.P_SEQS] = address_of(self.seqs[first:])
        row[at.P_KEY_OFFSETS] = address_of(self.keys.offsets[first:])
        row[at.P_KEYS] = address_of(self.keys.data, self)
        if first or not self.points:
            row[at.P_SHAPE_OFFSETS] = address_of(self.shapes.offsets[first:])
            row[at.P_SHAPES] = address_of(self.shapes.data, self)
        return row

    def check(self) -> None:
        """Verify the checksum, the boxes, the outlines and the seqs."""
        self.component.verify()
        file = self.component.info.name
        for row in self.rows.reshape(-1, at.P_WORDS):
            wrong = int(kernel.check_place(address_of(row)))
            if wrong:
                raise Corruption(_WRONG[wrong], file=file)
        for texts in (self.keys, self.shapes):
            if texts.count and (np.diff(texts.offsets).min() < 0 or texts.offsets[0] < 0):
                raise Corruption("offsets are out of order", file=file)
        for number in range(self.points, self.count):
            if not _is_outline(self.shapes[number], self._box(number)):
                raise Corruption("an outline is not whole, or not in its box", file=file)
        span = self.component.info.filters["seq"]
        if self.count and (self.seqs.min() < span.low or self.seqs.max() > span.high):
            raise Corruption("a seq is outside the component's filter", file=file)

    def _box(self, number: int) -> tuple[float, float, float, float]:
        columns = (self.west, self.south, self.east, self.north)
        west, south, east, north = (float(column[number]) for column in columns)
        return west, south, east, north


class SpatialKind(IndexKind):
    """An index of places.

    >>> SpatialKind(seed=1).name
    'spatial'
    """

    name = "spatial"
    box = "box"
    made_for = (Inside,)
    decides_tests = orders_arrays = True

    def __init__(self, *, seed: int) -> None:
        ensure("spatial")  # the first time it takes seconds
        self._seed = seed

    def extract(self, docs: Texts, fields: Sequence[str]) -> list[Entries]:
        """Points and boxes of documents (places.py)."""
        return extract_places(docs, fields)

    # ---- keeping -----------------------------------------------------------------------------

    def memory(self, capacity: int, older: Any) -> SpatialMemory:
        """An empty memory."""
        return SpatialMemory()

    def open(self, component: Component) -> SpatialReader:
        """A reader over an open component."""
        try:
            return SpatialReader(component)
        except (KeyError, IndexError, TypeError, ValueError, pa.ArrowException) as error:
            raise Corruption(
                "component has other columns than it should", file=component.info.name
            ) from error

    def seal(self, memory: SpatialMemory, context: Mapping[str, MinMax]) -> list[Product]:
        """A frozen memory as one component."""
        return _products(_of_memory(memory), context, None)

    def merge(self, readers: Sequence[SpatialReader], context: MergeContext) -> list[Product]:
        """One component of several, or pieces of about `cut_bytes`: of the curve, or tiles."""
        found = _joined([_of_reader(reader) for reader in readers])
        if context.owner is not None and found.count:
            kept = np.empty(found.count, np.bool_)
            for start in range(0, found.count, _KEEP_ROWS):
                limit = min(start + _KEEP_ROWS, found.count)
                kept[start:limit] = context.owner(
                    found.keys.slice(start, limit), found.seqs[start:limit]
                )
            if not kept.all():
                found = found.taken(np.flatnonzero(kept))
        filters: dict[str, MinMax] = {}
        for reader in readers:
            for name, given in reader.component.info.filters.items():
                if name != "box":
                    filters[name] = filters.get(name, MinMax.empty()).merge(given)
        return _products(found, filters, context.cut_bytes, context.partition)

    def build(
        self, values: Texts, keys: Texts, seqs: Words, older: Sequence[Any],
        filters: Mapping[str, MinMax],
    ) -> list[Product]:  # fmt: skip
        """A component of entries in any order."""
        order = np.argsort(seqs, kind="stable")
        memory = SpatialMemory()
        if len(order):
            memory.put(values.take(order), keys.take(order), np.asarray(seqs)[order])
        return self.seal(memory, filters)

    def view(
        self, memories: Sequence[SpatialMemory], readers: Sequence[SpatialReader]
    ) -> SpatialView:
        """What there is of an index."""
        return SpatialView(memories, readers)

    # ---- finding -----------------------------------------------------------------------------

    def serves(self, asked: Asked) -> Sequence[tuple[SpatialAsk, ...]]:
        """Tests of places, each a choice."""
        tests = [test for test in asked.tests if isinstance(test, Inside)]
        alone = len(asked.tests) == 1 and not asked.needs
        return [(SpatialAsk(test, alone),) for test in tests]

    def passing(self, view: SpatialView, filters: Mapping[str, tuple[bytes, bytes]]) -> SpatialView:
        """A view without components whose filters miss one of the closed ranges."""
        return view.passing(filters)

    def filters_of(self, ask: SpatialAsk) -> Mapping[str, Sequence[Extent]]:
        """The boxes around what is asked."""
        return {"box": [Extent(box[:2], box[2:]) for box in boxes_of(ask)]}

    def estimate(self, view: SpatialView, ask: SpatialAsk) -> Estimate:
        """By the boxes of the nodes."""
        return view.estimate(ask)

    def search(
        self, view: SpatialView, ask: SpatialAsk, k: int | None, below: int
    ) -> Iterable[Chunk]:
        """Candidates, in no order; those that meet what is asked, and no others."""
        return view.search(ask, below)

    def find_all(
        self, reader: Any, now: Any, view: SpatialView, asks: Sequence[SpatialAsk], k: int | None,
        texts: bool = True,
    ) -> int:  # fmt: skip
        """All that some asks lead to, without a copy of a key."""
        reader.begin(now)
        for ask in asks:
            held, places, hits, count = view.hits(ask)
            if count:
                follow(reader.room_for(count), places, address_of(hits), count, now[2])
            del held
        return int(reader.settle(k, texts))

    def ordered(self, field: str, ask: SpatialAsk, order: Sequence[tuple[str, int]]) -> bool:
        """Nearest first, when the ask is for what is near the same point."""
        test = ask.test
        return test.how == "near" and list(order) == Near(
            tuple(field.split(".")), *test.numbers
        ).order  # fmt: skip

    def nearest(
        self, view: SpatialView, ask: SpatialAsk, count: int, below: int
    ) -> Iterator[Found]:
        """Candidates of a ring, nearest first, with their haversines."""
        lon, lat, least, greatest = ask.test.numbers
        return view.nearest(lon, lat, least, greatest, count, below)


class _Columns:
    """Entries as columns: points first, then boxes."""

    def __init__(
        self, coordinates: tuple[Doubles, ...], seqs: Words, keys: Texts, shapes: Texts, points: int
    ) -> None:
        self.coordinates, self.seqs, self.keys = coordinates, seqs, keys
        self.shapes, self.points = shapes, points

    @property
    def count(self) -> int:
        return len(self.seqs)

    def taken(self, rows: Words) -> _Columns:
        """Some of them; points still come first, for rows in which they do."""
        points = int(np.searchsorted(rows >= self.points, True)) if len(rows) else 0
        shapes = self.shapes.take(rows[points:] - self.points)
        coordinates = tuple(np.ascontiguousarray(each[rows]) for each in self.coordinates)
        return _Columns(coordinates, self.seqs[rows], self.keys.take(rows), shapes, points)


def _of_memory(memory: SpatialMemory) -> _Columns:
    points, boxes, _ = memory.now
    x, y = (each[: points.count] for each in points.coordinates)
    w, s, e, n = (each[: boxes.count] for each in boxes.coordinates)
    (keys, _), (box_keys, shapes) = points.texts(), boxes.texts()
    coordinates = tuple(
        np.concatenate(pair) for pair in ((x, w), (y, s), (x, e), (y, n))
    )  # fmt: skip
    seqs = np.concatenate([points.seqs[: points.count], boxes.seqs[: boxes.count]])
    return _Columns(coordinates, seqs, Texts.join([keys, box_keys]), shapes, points.count)


def _of_reader(reader: SpatialReader) -> _Columns:
    coordinates = (reader.west, reader.south, reader.east, reader.north)
    shapes = (
        reader.shapes.slice(reader.points, reader.count) if reader.shapes.count else Texts.of([])
    )
    return _Columns(coordinates, reader.seqs, reader.keys, shapes, reader.points)


def _joined(parts: Sequence[_Columns]) -> _Columns:
    """All of them: the points of all, then the boxes of all."""

    def both(values: Sequence[Any]) -> Any:
        firsts = [each[: part.points] for each, part in zip(values, parts, strict=True)]
        return np.concatenate(
            [*firsts, *(each[part.points :] for each, part in zip(values, parts, strict=True))]
        )

    coordinates = tuple(both([part.coordinates[axis] for part in parts]) for axis in range(4))
    keys = [part.keys.slice(0, part.points) for part in parts]
    keys += [part.keys.slice(part.points, part.count) for part in parts]
    return _Columns(
        coordinates, both([part.seqs for part in parts]), Texts.join(keys),
        Texts.join([part.shapes for part in parts]), sum(part.points for part in parts),
    )  # fmt: skip


def _products(
    found: _Columns, filters: Mapping[str, MinMax], cut_bytes: int | None,
    partition: str | None = None,
) -> list[Product]:  # fmt: skip
    """Components of entries: sorted along the curve, and cut there or by a partition of space."""
    if not found.count:
        return []
    halves = [np.arange(found.points), np.arange(found.points, found.count)]
    order = np.concatenate(
        [
            half[pack(tuple(each[half] for each in found.coordinates[: 2 + 2 * number])).order]
            if len(half)
            else half
            for number, half in enumerate(halves)
        ]
    )
    found = found.taken(order)
    if cut_bytes is None:
        return [_product(found, filters)]
    size = found.keys.size_bytes + found.shapes.size_bytes + 34 * found.count
    pieces = max(1, round(size / cut_bytes))
    if partition is not None:
        west, south, east, north = found.coordinates
        cut = tiles.parts((west + east) / 2, (south + north) / 2, pieces, partition)
        return [_product(found.taken(np.sort(rows)), filters) for rows in cut]
    # Points and boxes are cut at the same places of the curve.
    keys = _curve(found)
    every = np.sort(keys)
    limits = [int(every[len(every) * number // pieces]) for number in range(1, pieces)]
    lows = [-1, *limits]
    highs = [*limits, 1 << 62]
    made = []
    for low, high in zip(lows, highs, strict=True):
        rows = np.flatnonzero((keys >= low) & (keys < high))
        if len(rows):
            made.append(_product(found.taken(rows), filters))
    return made


def _curve(found: _Columns) -> Words:
    """Where on the curve each entry is."""
    keys = np.empty(found.count, np.int64)
    places = [address_of(each) for each in found.coordinates]
    build.hilbert_keys(*places, found.count, address_of(keys))
    return keys


def _product(found: _Columns, filters: Mapping[str, MinMax]) -> Product:
    """A component of entries that are in order."""
    count, points = found.count, found.points
    west, south, east, north = (np.ascontiguousarray(each) for each in found.coordinates)
    nodes = np.concatenate(
        [
            node_boxes((west[:points], south[:points])),
            node_boxes(tuple(each[points:] for each in (west, south, east, north))),
        ]
    )
    ends = np.full(count + 1, len(nodes), np.int32)
    ends[0] = 0
    columns: dict[str, Any] = {"west": pa.array(west), "south": pa.array(south)}
    if count > points:
        offsets = np.zeros(count + 1, np.int64)
        offsets[points:] = found.shapes.offsets - found.shapes.offsets[0]
        data = found.shapes.data[found.shapes.offsets[0] :]
        columns |= {
            "east": pa.array(east), "north": pa.array(north),
            "shape": Texts(offsets, data).to_arrow(),
        }  # fmt: skip
    columns |= {
        "key": found.keys.to_arrow(), "seq": pa.array(np.ascontiguousarray(found.seqs)),
        "nodes": pa.ListArray.from_arrays(pa.array(ends), pa.array(nodes)),
    }  # fmt: skip
    box = Extent((float(west.min()), float(south.min())), (float(east.max()), float(north.max())))
    seqs = MinMax(int(found.seqs.min()), int(found.seqs.max()))
    every: dict[str, Filter] = {**filters, "seq": seqs, "box": box}
    return Product(pa.table(columns), count, every, {"points": points})


def _nodes_of(count: int) -> int:
    return int(build.ranked(count)) if count else 0


def _is_outline(data: bytes, box: tuple[float, float, float, float]) -> bool:
    """Whether bytes are an outline whose box is the one given."""
    numbers = np.frombuffer(data[: len(data) & -8], np.float64)
    if len(data) % 8 or len(numbers) < 6 or not np.isfinite(numbers).all():
        return False
    count = int(numbers[0])
    if count != numbers[0] or count < 1 or len(numbers) < 1 + 3 * count:
        return False
    heads = numbers[1 : 1 + 3 * count].reshape(-1, 3)
    rest = numbers[1 + 3 * count :]
    ends = heads[:, 2]
    good = np.isin(heads[:, 0], (1, 2, 3)).all() and (np.diff(ends, prepend=0) >= 1).all()
    if not good or (ends != np.floor(ends)).any() or 2 * ends[-1] != len(rest):
        return False
    lons, lats = rest[::2], rest[1::2]
    return (lons.min(), lats.min(), lons.max(), lats.max()) == box


def _column(table: pa.Table, name: str, kind: pa.DataType) -> Any:
    """A column of just this type, without gaps."""
    column = table[name]
    if column.type != kind or column.num_chunks != 1 or column.null_count:
        raise TypeError(f"{name} is {column.type}")
    return column.chunk(0)


def _doubles(table: pa.Table, name: str) -> Doubles:
    found: Doubles = _column(table, name, pa.float64()).to_numpy(zero_copy_only=True)
    return found


register("spatial", SpatialKind)
