"""Sorted runs: keys with values in ascending order, in memory or as a component of a window.

    key: uint32 | int64 | fixed_size_binary     as its codec packs them (index/packed.py)
    value.NAME: int32, float64, ...             a column for each value; a point is a list of two
                                                doubles, a text a large string (values.py)
    index.FIELD                                 an index of its rows, if it has any (rowindex.py)

    filters   until: when the sub-window goes; seq: the rows it has, at least
    extra     bucket: number of the sub-window; codec; indexes

`Run` searches: a directory of the top bits of its keys, made when it is first needed, leads to a
few keys; numpy's halving does where keys are bytes. `sorted_run` makes a run of rows in any order.

Invariants:
1. Keys ascend; equal ones stand in the order in which they were appended. With `keep` "last" no
   two are equal.
2. A run never changes; what reads it needs no lock.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tideline.addresses import address_of
from tideline.errors import Corruption
from tideline.index.packed import Codec, codec_from_json
from tideline.index.rowindex import RowIndexes
from tideline.index.values import as_arrow, from_arrow, joined
from tideline.kernels.stream import layout as at
from tideline.kernels.stream import runs as kernels
from tideline.kernels.stream import sort as sorting
from tideline.lsm.component import Component, Product
from tideline.lsm.filter import MinMax
from tideline.lsm.tree import MergeContext

__all__ = ["Run", "RunReader", "RunsKind", "as_codec", "ascending", "join_runs", "sorted_run"]

Array = NDArray[Any]
Words = NDArray[np.int64]
_BUCKET = 16  # keys a bucket of a directory has, about


class Run:
    """Keys in ascending order with their values.

    >>> from tideline.index.packed import Packed
    >>> codec = Packed([(0, 9), (0, 99)])
    >>> keys = codec.pack([np.array([1, 1, 4]), np.array([3, 50, 0])])
    >>> run = Run(codec, keys, (np.array([7, 8, 9], np.int32),))
    >>> run.span(codec.beginning((1,))), run.span(codec.between((1, 4), None))
    ((0, 2), (1, 3))
    """

    __slots__ = ("_made", "codec", "indexes", "keys", "owner", "rows", "values")

    def __init__(
        self, codec: Codec, keys: Array, values: Sequence[Array], owner: Any = None
    ) -> None:
        """`owner` has the memory that the arrays are in."""
        self.codec = codec
        self.keys = keys
        self.values = tuple(values)
        self.owner = owner
        self.rows = len(keys)
        self._made: tuple[Words, Array] | None = None
        self.indexes: dict[str, Any] = {}
        """Indexes of its rows by field, of those that were made."""

    @property
    def size_bytes(self) -> int:
        """Bytes of keys, values, directory and indexes."""
        own: int = self.keys.nbytes + sum(value.nbytes for value in self.values)
        own += sum(each.size_bytes for each in list(self.indexes.values()))
        made = self._made
        return own if made is None else own + int(made[1].nbytes)

    def span(self, bounds: tuple[Any, Any] | None) -> tuple[int, int]:
        """The positions of the keys within bounds, as the codec of this run gives them."""
        if bounds is None or not self.rows:
            return 0, 0
        low, high = bounds
        if not self.codec.is_packed:
            return _edge(self.keys, low), _edge(self.keys, high)
        out = np.zeros(2, np.int64)
        made = self._state()  # held until the call is over
        kernels.seek(address_of(made[0]), low, high, address_of(out))
        start, limit = out.tolist()
        return start, max(start, limit)

    def find(self, keys: Array) -> Words:
        """Of each key, in this run's codec: the last position that has it, or -1."""
        if not self.rows:
            return np.full(len(keys), -1, np.int64)
        if not self.codec.is_packed:
            places = np.searchsorted(self.keys, keys, "right") - 1
            there = (places >= 0) & (self.keys[np.maximum(places, 0)] == keys)
            return np.where(there, places, -1)
        wanted = keys.astype(np.int64)
        out = np.empty(len(keys), np.int64)
        made = self._state()  # held until the call is over
        kernels.find_many(address_of(made[0]), address_of(wanted), len(keys), address_of(out))
        return out

    def _state(self) -> tuple[Words, Array]:
        """What kernels are given, and the directory that it has the address of.

        Two threads may make it, and one takes the place of the other: so a caller holds the two
        that it was given for as long as a kernel reads them.
        """
        return self._made or self._make_state()

    def _make_state(self) -> tuple[Words, Array]:
        low, high = int(self.keys[0]), int(self.keys[-1])
        bits = (high - low).bit_length()
        shift = max(0, bits - max(1, self.rows // _BUCKET).bit_length())
        buckets = ((high - low) >> shift) + 1
        directory = np.empty(buckets + 1, np.int32)
        state = np.zeros(at.R_WORDS, np.int64)
        state[at.R_KEYS] = address_of(self.keys)
        state[at.R_COUNT] = self.rows
        state[at.R_NARROW] = self.keys.dtype == np.uint32
        state[at.R_LOW], state[at.R_HIGH], state[at.R_SHIFT] = low, high, shift
        state[at.R_DIRECTORY], state[at.R_BUCKETS] = address_of(directory), buckets
        kernels.direct(address_of(state))
        self._made = made = state, directory
        return made

    def part(self, start: int, limit: int) -> Run:
        """Some rows of it."""
        if (start, limit) == (0, self.rows):
            return self
        values = [value[start:limit] for value in self.values]
        return Run(self.codec, self.keys[start:limit], values, self)

    def take(self, places: Words) -> Run:
        """Rows of it, which need not be in order."""
        return Run(self.codec, self.keys[places], [value[places] for value in self.values])


def _edge(keys: Array, bound: bytes) -> int:
    """The first position whose key is not before a bound, which may be longer than keys are."""
    width = keys.dtype.itemsize
    cut = np.array([bound[:width]], keys.dtype)
    side: Any = "right" if bound[width:].strip(b"\0") else "left"
    return int(np.searchsorted(keys, cut, side)[0])


def as_codec(run: Run, codec: Codec) -> Run:
    """The same rows with keys of another codec of the same fields; the order stays."""
    if run.codec is codec or run.codec == codec:
        return run
    return Run(codec, codec.pack(run.codec.unpack(run.keys)), run.values, run)


def ascending(
    keys: Array, values: Sequence[Array], *, last: bool, packed: bool
) -> tuple[Array, list[Array]]:
    """Rows in the order of their keys, equal ones as they came; `last`: of equal ones the last."""
    values = list(values)
    if len(keys) > 1:
        keys, values = (_radix if packed else _by_comparing)(keys, values)
    if last and len(keys) > 1:
        kept = np.empty(len(keys), bool)
        np.not_equal(keys[1:], keys[:-1], out=kept[:-1])
        kept[-1] = True
        if not kept.all():
            keys, values = keys[kept], [value[kept] for value in values]
    return keys, values


def _by_comparing(keys: Array, values: list[Array]) -> tuple[Array, list[Array]]:
    order = np.argsort(keys, kind="stable")
    return keys[order], [value[order] for value in values]


def _radix(keys: Array, values: list[Array]) -> tuple[Array, list[Array]]:
    keys = np.ascontiguousarray(keys)
    count, narrow = len(keys), int(keys.dtype == np.uint32)
    facts = np.empty(3, np.int64)
    sorting.extent(address_of(keys), count, narrow, address_of(facts))
    low, high, ordered = facts.tolist()
    if ordered:
        return keys, values
    # One value of up to four bytes goes along with its key; else the number of the row does.
    direct = len(values) == 1 and values[0].dtype.itemsize <= 4
    if direct and values[0].dtype.itemsize == 4:
        along = np.array(values[0]).view(np.int32)
    elif direct:  # whole numbers: every float has four bytes or more
        along = values[0].astype(np.int32)
    else:
        along = np.arange(count, dtype=np.int32)
    keys = keys.copy()
    other, other_along = np.empty_like(keys), np.empty_like(along)
    counts = np.empty(at.PASSES * at.RADIX, np.int64)
    flipped = sorting.sort(
        address_of(keys), address_of(along), address_of(other), address_of(other_along), count,
        narrow, low, (high - low).bit_length(), address_of(counts),
    )  # fmt: skip
    if flipped:
        keys, along = other, other_along
    if direct:
        dtype = values[0].dtype
        return keys, [along.view(dtype) if dtype.itemsize == 4 else along.astype(dtype)]
    return keys, [value[along] for value in values]


def sorted_run(codec: Codec, keys: Array, values: Sequence[Array], *, last: bool) -> Run:
    """A run of rows that were appended in this order; `last`: of equal keys the last stays."""
    keys, values = ascending(keys, values, last=last, packed=codec.is_packed)
    return Run(codec, keys, values)


def join_runs(runs: Sequence[Run], codec: Codec, *, last: bool) -> Run:
    """One run of several, oldest first."""
    parts = [as_codec(run, codec) for run in runs]
    if len(parts) == 1:
        return parts[0]
    keys = np.concatenate([part.keys for part in parts])
    values = [joined(each) for each in zip(*(part.values for part in parts), strict=True)]
    return sorted_run(codec, keys, values, last=last)


class RunReader:
    """An open component of a window."""

    def __init__(self, component: Component, indexes: RowIndexes | None = None) -> None:
        self.component = component
        table, extra = component.table, component.info.extra
        codec = codec_from_json(extra["codec"])
        self.pane = int(extra["bucket"])
        names = [name for name in table.column_names if name.startswith("value.")]
        values = [from_arrow(table[name].chunk(0)) for name in names]
        self.run = Run(codec, _keys(table["key"].chunk(0)), values, component)
        if indexes is not None:
            file = component.info.name
            self.run.indexes |= indexes.read(table, extra.get("indexes", {}), file)
        self.seqs: MinMax = component.info.filters["seq"]
        self.filters = dict(component.info.filters)

    def check(self) -> None:
        """Verify the checksum, and that keys ascend."""
        self.component.verify()
        keys = self.run.keys
        if (keys[1:] < keys[:-1]).any():
            raise Corruption("keys are out of order", file=self.component.info.name)
        for index in list(self.run.indexes.values()):
            index.check()


class RunsKind:
    """Sub-windows as sorted runs; `names` are those of the values, `indexes` those of rows."""

    name = "runs"

    def __init__(
        self, names: Sequence[str], *, last: bool, indexes: RowIndexes | None = None
    ) -> None:
        self.names = list(names)
        self.last = last
        self.indexes = indexes

    def open(self, component: Component) -> RunReader:
        """A reader over a component's mapped columns."""
        return RunReader(component, self.indexes)

    def seal(self, memory: Run, context: Any) -> list[Product]:
        """A run as a component; `context` has its sub-window and its filters."""
        pane, filters = context
        return [self._product(memory, pane, filters)] if memory.rows else []

    def merge(self, readers: Sequence[RunReader], context: MergeContext) -> list[Product]:
        """Components of one sub-window as one."""
        codec: Codec = context.owner
        filters = readers[0].filters
        for reader in readers[1:]:
            filters = {name: value.merge(reader.filters[name]) for name, value in filters.items()}
        run = join_runs([reader.run for reader in readers], codec, last=self.last)
        return [self._product(run, readers[0].pane, filters)]

    def _product(self, run: Run, pane: int, filters: Any) -> Product:
        keys: Any = run.keys
        if not run.codec.is_packed:
            width = keys.dtype.itemsize
            buffers = [None, pa.py_buffer(np.ascontiguousarray(keys))]
            keys = pa.Array.from_buffers(pa.binary(width), len(keys), buffers)
        names = [f"value.{name}" for name in self.names]
        values = [as_arrow(value) for value in run.values]
        columns = {"key": keys, **dict(zip(names, values, strict=True))}
        extra: dict[str, Any] = {"bucket": pane, "codec": run.codec.to_json()}
        if self.indexes is not None:
            more, extra["indexes"] = self.indexes.columns(run)
            columns |= more
        return Product(pa.table(columns), run.rows, filters, extra)


def _keys(column: pa.Array) -> Array:
    if pa.types.is_fixed_size_binary(column.type):
        dtype = f"S{column.type.byte_width}"
        return np.frombuffer(column.buffers()[1], dtype=dtype)[: len(column)]
    found: Array = column.to_numpy(zero_copy_only=True)
    return found
