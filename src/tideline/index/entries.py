"""Stand-alone secondary indexes: `composite`, `lazy` and `eager` (paper 001, section 3.4).

An entry is (value, primary key, seq): the record with this key had this value when it was
written as number seq. It is valid as long as no newer version of the record is; that is
for the owner to check, so there are no tombs in here and stale entries do no harm.

    add --> EntryMemory --seal--> component --merge--> component      (one tree an index)
              |                      |
              +------- View ---------+--> search: candidates, newest first

    composite   rows sorted by (value, key)
                value: large_binary | key: large_binary | seq: int64
    lazy        one row a value, its list newest first; a value has a list in many components
    eager       the same, but a value that is new in memory begins with a copy of its older list:
                the newest place that has a value has all there is
                value: large_binary | entries: large_list<struct<seq: int64, key: large_binary>>
                bloom: list<int64>      of the values: all of it in row 0

Invariants (`check` verifies them):
1. Rows are in rising order of value bytes; composites with the same value, of key bytes.
2. Lists are not empty and in falling order of seq; a key is in a list once.
3. Places of lazy and composite indexes, one after the other, hold disjoint ranges of seq.
4. Lists of an eager index are complete for seqs from the place's `since` on. Where older
   places reach further back (they were built later), the place is partial: a search goes on.

A memory is written and searched under its owner's lock; sealing a frozen one, merging and
searching components need no lock. Filters of every component: `seq`, `value` and those the
owner gives.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tideline.addresses import address_of
from tideline.errors import Corruption, InvalidRequest
from tideline.index import ordered as in_order
from tideline.index import ranges
from tideline.index.compound import SEPARATOR
from tideline.index.entrymemory import EntryMemory
from tideline.index.entryview import View
from tideline.index.kind import Asked, Chunk, Estimate, IndexKind, register
from tideline.index.texts import Texts
from tideline.kernels.documents import build, found, places
from tideline.lsm.component import Component, Product
from tideline.lsm.filter import MinMax
from tideline.lsm.tree import MergeContext

__all__ = ["EntryKind", "EntryMemory", "EntryReader"]

Words = NDArray[np.int64]
_new: Any = tuple.__new__
Keep = Callable[[Texts, Words], NDArray[np.bool_]]
_ALL_STAY = MergeContext()
_KINDS = ("composite", "lazy", "eager")
_KEEP_ROWS = 65_536  # entries the owner is asked about at a time
_BLOOM_VALUES = 51  # a block of 512 bits: ten bits a value
_WRONG = {1: "values are out of order", 2: "list offsets are wrong",
          3: "seqs of a list do not fall", 4: "keys are out of order"}  # fmt: skip


class EntryReader:
    """An open component: where its columns are, for kernels."""

    def __init__(self, component: Component, *, composite: bool) -> None:
        self.component = component
        table = component.table
        values = _column(table, "value", pa.large_binary())
        if composite:
            keys, seqs = _column(table, "key", pa.large_binary()), _column(table, "seq", pa.int64())
        else:
            lists = _column(table, "entries", _LISTS)
            seqs, keys = lists.values.field("seq"), lists.values.field("key")
        self._seqs = seqs
        self._held: list[Any] = [values, keys]  # the map lives as long as these do
        self.rows, self.count = len(values), len(seqs)
        self.row: Words = np.zeros(places.P_WORDS, np.int64)
        row = self.row
        row[places.P_ROWS], row[places.P_COUNT] = self.rows, self.count
        row[places.P_VALUE_OFFSETS] = _address(self, values, 1)
        row[places.P_VALUES] = _address(self, values, 2)
        row[places.P_SEQS] = _address(self, seqs, 1)
        row[places.P_KEY_OFFSETS] = _address(self, keys, 1)
        row[places.P_KEYS] = _address(self, keys, 2)
        if not composite:
            row[places.P_LISTS] = _address(self, lists, 1)
            bloom = _column(table, "bloom", pa.list_(pa.int64())).values
            self._held += [lists, bloom]
            row[places.P_BLOOM] = _address(self, bloom, 1)
            row[places.P_BLOOM_BLOCKS] = len(bloom) // 8
        fences = -(-self.rows // places.STRIDE)
        self._fence, self._newest = np.empty(fences, np.int64), np.empty(fences, np.int64)
        row[places.P_FENCE], row[places.P_FENCES] = address_of(self._fence), fences
        row[places.P_NEWEST] = address_of(self._newest)
        places.make_fence(address_of(row))

    @property
    def low(self) -> int:
        """The smallest seq in here."""
        return int(self.component.info.filters["seq"].low)

    @property
    def since(self) -> int:
        """Eager: lists in here are complete for seqs from this one on."""
        return int(self.component.info.extra.get("since", 0))

    @property
    def longest(self) -> int:
        """The length of the longest list."""
        if not self.row[places.P_LISTS]:
            return 1
        lists = self.component.table["entries"].chunk(0)
        return int(np.diff(np.asarray(lists.offsets)).max(initial=0))

    def check(self) -> None:
        """Verify the checksum and the order that searches rely on."""
        self.component.verify()
        file = self.component.info.name
        wrong = int(places.check_place(address_of(self.row)))
        if wrong:
            raise Corruption(_WRONG[wrong], file=file)
        bounds = self.component.info.filters["seq"]
        seqs = np.asarray(self._seqs)
        if self.count and (seqs.min() < bounds.low or seqs.max() > bounds.high):
            raise Corruption("a seq is outside the component's filter", file=file)


class EntryKind(IndexKind):
    """One of the three kinds: how their entries are kept and found.

    >>> EntryKind("lazy").name
    'lazy'
    """

    newest_first = True

    def __init__(self, name: str, *, seed: int | None = None) -> None:
        if name not in _KINDS:
            raise InvalidRequest("no such kind of index", kind=name)
        self.name = name
        self.composite = name == "composite"
        self.eager = self.needs_older = name == "eager"
        self._seed = seed if seed is not None else int.from_bytes(os.urandom(7), "little")

    def memory(self, capacity: int = 1 << 20, older: Any = None) -> EntryMemory:
        """An empty memory for about so many bytes; eager: `older` is a `View` of the rest."""
        if self.eager and older is None:
            raise InvalidRequest("an eager memory needs to see the older lists", kind=self.name)
        return EntryMemory(self._seed, capacity, older if self.eager else None)

    def view(self, memories: Sequence[EntryMemory], readers: Sequence[EntryReader]) -> View:
        """What there is of an index: memories, then components, each newest first."""
        return View(self, memories, readers)

    def refreshed(self, memory: EntryMemory, older: View) -> None:
        """Eager: values that are new in memory begin with what the others have of them."""
        if self.eager:
            memory.look_back(older)

    def serves(self, asked: Asked) -> Sequence[tuple[ranges.RangeAsk, ...]]:
        """Ranges of values."""
        return ranges.serves(asked)

    def estimate(self, view: View, ask: ranges.RangeAsk) -> Estimate:
        """How many entries and blocks a range has, stale ones included."""
        entries, blocks, _ = view.estimate(ask.low, ask.high)
        return Estimate(entries, blocks + entries)

    def range_ask(
        self, low: bytes, high: bytes, low_open: bool = False, high_open: bool = False
    ) -> ranges.RangeAsk:
        """A range of values."""
        # As `RangeAsk(...)` would, in half the time: every lookup makes one.
        ask: ranges.RangeAsk = _new(ranges.RangeAsk, (low, high, low_open, high_open, True))
        return ask

    def ordered(self, field: str, ask: ranges.RangeAsk, order: in_order.Order) -> bool:
        """Values of several fields are in the order of the fields."""
        return SEPARATOR in field and bool(in_order.matched(field, ask, order))

    def first_part(
        self, view: View, field: str, ask: ranges.RangeAsk, order: in_order.Order, count: int
    ) -> tuple[ranges.RangeAsk, bool]:
        """By counting the entries of parts of the range."""
        down = _is_down(field, ask, order)
        return in_order.first_part(
            lambda low, high: view.estimate(low, high).entries, ask, count, down=down
        )

    def up_to(
        self, field: str, ask: ranges.RangeAsk, order: in_order.Order, document: Any
    ) -> ranges.RangeAsk:
        """Up to the values of a document."""
        names, down = in_order.matched(field, ask, order), _is_down(field, ask, order)
        part: ranges.RangeAsk = in_order.up_to(field, ask, document, names, down=down)
        return part

    def passing(self, view: View, filters: Mapping[str, tuple[bytes, bytes]]) -> View:
        """A view without components whose filters miss one of the closed ranges."""
        return view.passing(filters)

    def search(
        self, view: View, ask: ranges.RangeAsk, k: int | None, below: int
    ) -> Iterable[Chunk]:
        """Candidates of a range, newest first."""
        return view.search(
            ask.low, ask.high, low_open=ask.low_open, high_open=ask.high_open, k=k, limit=below
        )

    def find(
        self, reader: Any, now: Any, field: str, view: View, ask: ranges.RangeAsk, k: int | None
    ) -> int:
        """A few are searched and followed by one kernel; mostly that is all there is."""
        few: int = reader.FEW if k is None else min(k, reader.FEW)
        count: int = reader.lookup(now, field, view, ask, few)
        if count < few or few == k:
            return count
        return super().find(reader, now, field, view, ask, k)

    def open(self, component: Component) -> EntryReader:
        """A reader over an open component."""
        try:
            return EntryReader(component, composite=self.composite)
        except (KeyError, IndexError, TypeError, pa.ArrowException) as error:
            raise Corruption(
                "component has other columns than it should", file=component.info.name
            ) from error

    def seal(
        self, memory: EntryMemory, context: Mapping[str, MinMax] | None = None
    ) -> list[Product]:
        """A frozen memory as a component, which gets the filters that the context gives."""
        memory.freeze()
        if memory.count == 0:
            return []
        order = memory.in_order()
        plan = _Plan(memory.count, memory.longest, 3 * memory.longest)
        build.plan_memory(
            memory.address, address_of(order), len(order), self.composite, plan.address
        )
        return [self._build(plan, dict(context or {}), memory.since)]

    def merge(
        self, readers: Sequence[EntryReader], context: MergeContext = _ALL_STAY
    ) -> list[Product]:
        """One component of several.

        The context's owner, if there is one, is asked which entries (keys, seqs) may stay.
        """
        keep: Keep | None = context.owner
        rows = np.concatenate([reader.row for reader in reversed(readers)])
        total = sum(reader.count for reader in readers)
        longest = sum(reader.longest for reader in readers)
        plan = _Plan(total, longest, 5 * len(readers))
        build.plan_merge(address_of(rows), len(readers), self.composite, plan.address)
        if keep is not None:
            kept = np.empty(plan.count, np.uint8)
            for start in range(0, plan.count, _KEEP_ROWS):
                limit = min(start + _KEEP_ROWS, plan.count)
                kept[start:limit] = keep(plan.keys(start, limit), plan.seqs[start:limit])
            build.keep_entries(address_of(kept), self.composite, plan.address)
        if plan.count == 0:
            return []
        bounds: dict[str, MinMax] = {}
        for reader in readers:
            for name, given in reader.component.info.filters.items():
                bounds[name] = bounds.get(name, MinMax.empty()).merge(given)
        return [self._build(plan, bounds, max(reader.since for reader in readers))]

    def build(
        self, values: Texts, keys: Texts, seqs: Words, older: Sequence[EntryReader] = (),
        filters: Mapping[str, MinMax] | None = None,
    ) -> list[Product]:  # fmt: skip
        """A component of entries in any order: for an index on data that is there already.

        Eager: lists begin with those of the `older` components, newest first.
        """
        order = np.argsort(seqs, kind="stable")
        memory = self.memory(len(seqs) * 64, self.view([], older))
        memory.add(values.take(order), keys.take(order), np.asarray(seqs)[order])
        return self.seal(memory, filters)

    def _build(self, plan: _Plan, filters: dict[str, MinMax], since: int) -> Product:
        rows, count = plan.rows, plan.count
        values = plan.values(0, rows)
        keys = plan.keys(0, count)
        seqs = plan.seqs[:count].copy()
        filters["seq"] = MinMax(int(seqs.min()), int(seqs.max()))
        filters["value"] = MinMax(values[0], values[rows - 1])
        columns: dict[str, pa.Array] = {"value": values.to_arrow()}
        if self.composite:
            columns |= {"key": keys.to_arrow(), "seq": pa.array(seqs)}
        else:
            struct = pa.StructArray.from_arrays(
                [pa.array(seqs), keys.to_arrow()], names=["seq", "key"]
            )
            lists = pa.array(plan.lists[: rows + 1].copy())
            columns["entries"] = pa.LargeListArray.from_arrays(lists, struct)
            columns["bloom"] = _in_first_row(plan.bloom(), rows)
        extra = {"values": rows} | ({"since": since} if self.eager else {})
        return Product(pa.table(columns), count, filters, extra)


def _is_down(field: str, ask: ranges.RangeAsk, order: in_order.Order) -> bool:
    return dict(order)[in_order.matched(field, ask, order)[0]] < 0


class _Plan:
    """A component without its bytes: the Python side of kernels/documents/build.py."""

    def __init__(self, cap: int, longest: int, scratch: int) -> None:
        self._value_at, self._value_size, self._key_at, self._key_size, self.seqs = (
            np.empty(cap, np.int64) for _ in range(5)
        )
        self.lists = np.empty(cap + 1, np.int64)
        self._table = np.empty(1 << max(2 * longest - 1, 3).bit_length(), np.int64)
        self._scratch = np.empty(max(scratch, 1), np.int64)
        self._words = np.zeros(build.B_WORDS, np.int64)
        for place, array in (
            (build.B_VALUE_AT, self._value_at), (build.B_VALUE_SIZE, self._value_size),
            (build.B_LISTS, self.lists), (build.B_SEQS, self.seqs),
            (build.B_KEY_AT, self._key_at), (build.B_KEY_SIZE, self._key_size),
            (build.B_TABLE, self._table), (build.B_SCRATCH, self._scratch),
        ):  # fmt: skip
            self._words[place] = address_of(array)
        self._words[build.B_CAP] = cap
        self.address: int = address_of(self._words)

    @property
    def rows(self) -> int:
        return int(self._words[build.B_ROWS])

    @property
    def count(self) -> int:
        return int(self._words[build.B_COUNT])

    def keys(self, start: int, limit: int) -> Texts:
        return _gathered(self._key_at[start:limit], self._key_size[start:limit])

    def values(self, start: int, limit: int) -> Texts:
        return _gathered(self._value_at[start:limit], self._value_size[start:limit])

    def bloom(self) -> Words:
        blocks = -(-self.rows // _BLOOM_VALUES)
        bits = np.zeros(blocks * 8, np.int64)
        places.make_bloom(
            address_of(self._value_at),
            address_of(self._value_size),
            self.rows,
            address_of(bits),
            blocks,
        )
        return bits


_LISTS = pa.large_list(pa.struct([("seq", pa.int64()), ("key", pa.large_binary())]))


def _gathered(addresses: Words, sizes: Words) -> Texts:
    offsets = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    data = np.empty(int(offsets[-1]), np.uint8)
    found.gather(address_of(addresses), address_of(offsets), len(sizes), address_of(data))
    return Texts(offsets, data)


def _in_first_row(words: Words, rows: int) -> pa.ListArray:
    """A list column with everything in its first row."""
    offsets = np.full(rows + 1, len(words), np.int32)
    offsets[0] = 0
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(words))


def _column(table: pa.Table, name: str, kind: pa.DataType) -> Any:
    """A column of just this type, without gaps."""
    column = table[name]
    if column.type != kind or column.num_chunks != 1 or column.null_count:
        raise TypeError(f"{name} is {column.type}")
    return column.chunk(0)


def _address(owner: Any, array: Any, number: int) -> int:
    """Where a buffer of a column is; it is there as long as the reader that owns it."""
    buffer = array.buffers()[number]
    return 0 if buffer is None else address_of(buffer, owner)


for _name in _KINDS:
    register(_name, partial(EntryKind, _name))
