"""A toy kind of index for places, in plain Python: points, and components that have a box.

It serves `$geoWithin` a `$box`. What it is for: policies that keep components apart by space.
Whoever wants it registers it: it is no kind of the contract of tests/documents/test_kinds.py.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from tideline.index.kind import Asked, Chunk, Entries, Estimate, IndexKind
from tideline.index.texts import Texts
from tideline.lsm.component import Component, Product
from tideline.lsm.filter import Extent, MinMax
from tideline.lsm.tiles import parts
from tideline.lsm.tree import MergeContext
from tideline.where.geo import point_of
from tideline.where.tree import Inside

Entry = tuple[float, float, bytes, int]
"""A point, a key, and the seq of the write."""


class BoxAsk(NamedTuple):
    """A box: west, south, east, north."""

    box: tuple[float, ...]
    exact: bool = False
    point: bool = False

    def __str__(self) -> str:
        return f"box {list(self.box)}"

    @property
    def extent(self) -> Extent:
        return Extent(self.box[:2], self.box[2:])


class BoxMemory:
    """Entries in the order of their arrival."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self._seen: set[int] = set()

    @property
    def size_bytes(self) -> int:
        return 40 * len(self.entries)

    def add(self, values: Texts, keys: Texts, seqs: int, rows: Any) -> None:
        for value, row in zip(values.to_list(), rows.tolist(), strict=True):
            if seqs + row not in self._seen:  # a call that was cut is made again
                self._seen.add(seqs + row)
                x, y = struct.unpack("<2d", value)
                self.entries.append((x, y, keys[row], seqs + row))


class BoxReader:
    """An open component."""

    def __init__(self, component: Component) -> None:
        self.component = component
        columns = (component.table[name].to_pylist() for name in ("x", "y", "key", "seq"))
        self.entries: list[Entry] = list(zip(*columns, strict=True))

    @property
    def extent(self) -> Extent:
        found: Extent = self.component.info.filters["box"]
        return found

    def check(self) -> None:
        self.component.verify()


class BoxKind(IndexKind):
    name = "box"
    box = "box"

    def __init__(self, *, seed: int) -> None:
        self.seed = seed

    def extract(self, docs: Texts, fields: Sequence[str]) -> list[Entries]:
        found = []
        decoded = [msgspec.json.decode(text) if text else {} for text in docs.to_list()]
        for field in fields:
            points = [(row, point_of(each.get(field))) for row, each in enumerate(decoded)]
            there = [(row, struct.pack("<2d", *point)) for row, point in points if point]
            rows = np.array([row for row, _ in there], np.int64)
            found.append(Entries(rows, Texts.of([value for _, value in there])))
        return found

    def memory(self, capacity: int, older: Any) -> BoxMemory:
        return BoxMemory()

    def open(self, component: Component) -> BoxReader:
        return BoxReader(component)

    def seal(self, memory: BoxMemory, context: Mapping[str, Any]) -> list[Product]:
        return [_product(memory.entries, context)] if memory.entries else []

    def merge(self, readers: Sequence[BoxReader], context: MergeContext) -> list[Product]:
        found = [entry for reader in readers for entry in reader.entries]
        if context.owner is not None and found:
            kept = context.owner(Texts.of([e[2] for e in found]), np.array([e[3] for e in found]))
            found = [entry for entry, stays in zip(found, kept, strict=True) if stays]
        if not found:
            return []
        wanted = readers[0].component.info.filters["wanted"]
        for reader in readers[1:]:
            wanted = wanted.merge(reader.component.info.filters["wanted"])
        whole = sum(reader.component.info.size_bytes for reader in readers)
        count = 1 if context.cut_bytes is None else -(-whole // context.cut_bytes)
        x, y = (np.array([entry[axis] for entry in found]) for axis in (0, 1))
        return [
            _product([found[row] for row in rows], {"wanted": wanted})
            for rows in parts(x, y, count, context.partition or "str")
        ]

    def build(
        self, values: Texts, keys: Texts, seqs: Any, older: Sequence[Any],
        filters: Mapping[str, Any],
    ) -> list[Product]:  # fmt: skip
        points = [struct.unpack("<2d", value) for value in values.to_list()]
        found = zip(points, keys.to_list(), seqs.tolist(), strict=True)
        return [_product([(*point, key, seq) for point, key, seq in found], filters)]

    def serves(self, asked: Asked) -> list[tuple[BoxAsk, ...]]:
        return [
            (BoxAsk(test.numbers),)
            for test in asked.tests if isinstance(test, Inside) and test.kind == "box"
        ]  # fmt: skip

    def passing(self, view: list[Any], filters: Mapping[str, tuple[bytes, bytes]]) -> list[Any]:
        return [
            place for place in view
            if isinstance(place, BoxMemory) or all(
                place.component.info.filters[name].overlaps(*span) for name, span in filters.items()
            )
        ]  # fmt: skip

    def filters_of(self, ask: BoxAsk) -> dict[str, list[Extent]]:
        return {"box": [ask.extent]}

    def estimate(self, view: list[Any], ask: BoxAsk) -> Estimate:
        return Estimate(float(sum(1 for _ in _matches(view, ask, 1 << 62))), float(len(view)))

    def search(self, view: list[Any], ask: BoxAsk, k: int | None, below: int) -> Iterable[Chunk]:
        found = list(_matches(view, ask, below))
        if found:
            seqs, keys = zip(*found, strict=True)
            yield Chunk(np.array(seqs, np.int64), Texts.of(keys))


def _matches(view: list[Any], ask: BoxAsk, below: int) -> Iterable[tuple[int, bytes]]:
    west, south, east, north = ask.box
    for place in view:
        if isinstance(place, BoxReader) and not place.extent.meets(ask.extent):
            continue
        for x, y, key, seq in list(place.entries):
            if seq < below and west <= x <= east and south <= y <= north:
                yield seq, key


def _product(found: Sequence[Entry], filters: Mapping[str, Any]) -> Product:
    x, y, keys, seqs = zip(*found, strict=True)
    table = pa.table({
        "x": pa.array(x, pa.float64()), "y": pa.array(y, pa.float64()),
        "key": pa.array(keys, pa.large_binary()), "seq": pa.array(seqs, pa.int64()),
    })  # fmt: skip
    bounds = {
        "seq": MinMax(min(seqs), max(seqs)),
        "box": Extent((min(x), min(y)), (max(x), max(y))),
    }
    return Product(table, len(found), {**filters, **bounds})
