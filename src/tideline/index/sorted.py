"""Sealed components of records: sorted by key, each key once.

    key: large_binary     bytes that sort as the keys do (where/keys.py)
    seq: int64            the number of the write that made the record
    flags: uint8          1 for a delete, 2 for a record that expires
    until: int64          only if a record expires: when it does, in microseconds; 0 for never
    doc: large_string     the JSON text, empty for a delete
    values.F: list<large_binary>      a column for each embedded index: the values of field F
    side: binary          all that has another length than the rows, in row 0

Side data, which `extra["side"]` finds by name: `starts`, the first row of each block (a run of
rows of about 4 KiB of documents) and the end; `bloom`, of the keys, 10 bits each in lines of 512;
`fence`, which leads to the few rows a key can be among (kernels/documents/fence.py); and for each
embedded field F `F.lows` and `F.highs`, the prefixes of the least and the greatest value of each
block, `F.bloom_starts` and `F.bloom`, and the same for groups of 64 blocks: `F.group_lows`,
`F.group_highs`, `F.group_starts`, `F.group_bloom`. Arrays begin at multiples of 64.

Invariants:
1. Keys grow strictly from row to row; the fence is that of the keys; seqs lie in the filter `seq`.
   Records with the flag 2 are those with an `until`, whose least and greatest is the filter.
2. Every value of a block lies in its zone and is in its bloom; every value of the component
   lies in the filter `zone.F`. Every key is in the bloom of keys.

Readers use the columns in place (kernels/documents). Byte layout: docs/internals/documents.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tideline.addresses import address_of
from tideline.errors import Corruption
from tideline.index.due import Sorted
from tideline.index.records import Records, Values, sorted_rows
from tideline.index.texts import Texts
from tideline.kernels.documents import blocks, fence, keys, merge, records
from tideline.kernels.documents import layout as at
from tideline.lsm.component import Component, Product, Streamed
from tideline.lsm.filter import MinMax
from tideline.lsm.tree import MergeContext

__all__ = ["BLOCK_BYTES", "Gathered", "SortedKind", "SortedReader", "extremes", "gather"]

Words = NDArray[np.int64]
BLOCK_BYTES = 4096
_KEY_BITS = 10
_PIECE_BYTES = 4 << 20
_NO_BYTES = np.zeros(0, np.uint8)
_ROW_BYTES = 33  # of a record in a component beside its key and document, about
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1
_SIDE_PLACES = (
    (at.F_LOWS, "lows"), (at.F_HIGHS, "highs"), (at.F_BLOOM_STARTS, "bloom_starts"),
    (at.F_BLOOM, "bloom"), (at.F_GROUP_LOWS, "group_lows"), (at.F_GROUP_HIGHS, "group_highs"),
    (at.F_GROUP_STARTS, "group_starts"), (at.F_GROUP_BLOOM, "group_bloom"),
)  # fmt: skip
Extract = Callable[[Texts, Sequence[str]], list[Any]]


@dataclass
class Gathered:
    """Records as columns: a component in the making, or what a search has found."""

    keys: Texts
    seqs: Words
    flags: NDArray[np.uint8]
    docs: Texts
    values: dict[str, Values] = field(default_factory=dict)
    untils: Words | None = None
    stream: Streamed | None = None  # in place of the bytes of the documents


class SortedReader:
    """An open component: where its columns are, for kernels."""

    def __init__(self, component: Component) -> None:
        self.component = component
        table, extra = component.table, component.info.extra
        columns = {name: table[name].chunk(0) for name in table.column_names}
        self.keys = Texts.from_arrow(columns["key"])
        self.docs = Texts.from_arrow(columns["doc"])
        self.seqs = _numbers(columns["seq"])
        self.flags = _numbers(columns["flags"])
        until = columns.get("until")
        self.untils: Words | None = None if until is None else _numbers(until)
        self.due: Sorted | None = None
        if self.untils is not None:
            self.due = Sorted(self.untils, component.info.filters["until"].low)
        self._values = {name[7:]: columns[name] for name in columns if name.startswith("values.")}
        whole = columns["side"].buffers()[2]
        if any(start + size > whole.size for start, size in extra["side"].values()):
            raise Corruption("side data is cut short", file=component.info.name)
        self._side = {
            name: (address_of(whole.slice(start, size), self), size)
            for name, (start, size) in extra["side"].items()
        }
        self._probes = extra["probes"]
        self.rows = table.num_rows
        self._field_facts: dict[str, Words] = {}
        self.facts = np.zeros(at.X_WORDS, np.int64)
        facts, seq = self.facts, component.info.filters["seq"]
        facts[at.X_ROWS] = self.rows
        facts[at.X_KEY_OFFSETS] = address_of(self.keys.offsets)
        facts[at.X_KEYS] = address_of(self.keys.data)
        facts[at.X_SEQS] = address_of(self.seqs)
        facts[at.X_FLAGS] = address_of(self.flags)
        facts[at.X_UNTILS] = 0 if self.untils is None else address_of(self.untils)
        facts[at.X_DOC_OFFSETS] = address_of(self.docs.offsets)
        facts[at.X_DOCS] = address_of(self.docs.data)
        facts[at.X_BLOOM], size = self._side["bloom"]
        facts[at.X_BLOOM_LINES] = size // 64
        facts[at.X_STARTS], size = self._side["starts"]
        facts[at.X_BLOCKS] = size // 8 - 1
        facts[at.X_LOW], facts[at.X_HIGH] = extra["key_prefixes"]
        facts[at.X_COMMON] = fence.common_bytes(*self.keys.addresses)
        if "fence" not in self._side:  # written before there were fences
            self._fence = _fence(self.keys)
            self._side["fence"] = address_of(self._fence), self._fence.nbytes
        facts[at.X_FENCE], size = self._side["fence"]
        if size != 8 * fence.fence_words(self.rows)[1]:
            raise Corruption("the fence of keys has another length", file=component.info.name)
        facts[at.X_SEQ_LOW], facts[at.X_SEQ_HIGH] = seq.low, seq.high
        self.address = address_of(facts)

    @property
    def embedded(self) -> list[str]:
        """The fields it has values of."""
        return list(self._values)

    def field_facts(self, name: str) -> Words | None:
        """What kernels have to know of an embedded field; None: there is nothing of it in here."""
        if name not in self._values or name in self._field_facts:
            return self._field_facts.get(name)
        words = np.zeros(at.F_WORDS, np.int64)
        column = self._values[name]
        words[at.F_LISTS] = address_of(column.buffers()[1], self)
        words[at.F_OFFSETS] = address_of(column.values.buffers()[1], self)
        data = column.values.buffers()[2]
        words[at.F_VALUES] = address_of(data, self) if data is not None else 0
        for place, what in _SIDE_PLACES:
            words[place] = self._side[f"{name}.{what}"][0]
        words[at.F_PROBES] = self._probes[name]
        words[at.F_LOW] = self._array(f"{name}.group_lows").min(initial=_MOST)
        words[at.F_HIGH] = self._array(f"{name}.group_highs").max(initial=_LEAST)
        self._field_facts[name] = words
        return words

    def values(self, name: str, extract: Extract) -> Values:
        """The values of a field in every row; extracted if the component has none."""
        column = self._values.get(name)
        if column is None:
            found = extract(self.docs, [name])[0]
            counts = np.bincount(found.row, minlength=self.rows)
            counts[self.flags & at.TOMB != 0] = 0
            keep = self.flags[found.row] & at.TOMB == 0
            texts = found.values if keep.all() else found.values.take(np.flatnonzero(keep))
            lists = np.zeros(self.rows + 1, np.int32)
            np.cumsum(counts, out=lists[1:])
            return Values(lists, texts)
        lists = np.frombuffer(column.buffers()[1], np.int32)[: self.rows + 1]
        return Values(lists, Texts.from_arrow(column.values))

    def row_texts(self, what: str) -> Texts:
        """The keys or the docs, in place."""
        return self.keys if what == "keys" else self.docs

    def numbers(self) -> tuple[Words, NDArray[np.uint8]]:
        """Seqs and flags of all rows, in place."""
        return self.seqs, self.flags

    def untils_of(self, rows: Words) -> Words:
        """When some rows expire; 0 for never."""
        return np.zeros(len(rows), np.int64) if self.untils is None else self.untils[rows]

    def _array(self, name: str) -> Words:
        """A side array of words, in place."""
        whole = self.component.table["side"].chunk(0).buffers()[2]
        start, size = self.component.info.extra["side"][name]
        return np.frombuffer(whole, np.int64, size // 8, start)

    def check(self) -> None:
        """Verify the checksum and the order that searches rely on."""
        self.component.verify()
        info = self.component.info
        seq = info.filters["seq"]
        if not merge.is_sorted(*self.keys.addresses):
            raise Corruption("keys are out of order", file=info.name)
        if self.seqs.min() < seq.low or self.seqs.max() > seq.high:
            raise Corruption("a seq lies outside the filter", file=info.name)
        if "fence" in info.extra["side"] and not np.array_equal(
            self._array("fence"), _fence(self.keys)
        ):
            raise Corruption("the fence of keys is wrong", file=info.name)
        has = self.flags & at.EXPIRES != 0
        if has.any() if self.untils is None else np.any(has != (self.untils > 0)):
            raise Corruption("records expire that have no time", file=info.name)
        starts = self._array("starts")
        if starts[0] != 0 or starts[-1] != self.rows or np.any(np.diff(starts) <= 0):
            raise Corruption("blocks are wrong", file=info.name)


class SortedKind:
    """How the LSM framework opens, seals and merges components of records."""

    name = "sorted"

    def __init__(self, *, seed: int, bloom_bits: int, extract: Extract) -> None:
        self.seed = seed
        self.bloom_bits = bloom_bits
        self.extract = extract

    def open(self, component: Component) -> SortedReader:
        """A reader over an open component."""
        try:
            return SortedReader(component)
        except (KeyError, IndexError, TypeError, ValueError, pa.ArrowException) as error:
            raise Corruption(
                "component has other columns than it should", file=component.info.name
            ) from error

    def seal(self, memory: Records, context: Mapping[str, MinMax]) -> list[Product]:
        """A frozen memory as a component, which gets the filters that the context gives."""
        rows = sorted_rows(memory.row_texts("keys"), memory.newest())
        seqs, flags = memory.numbers()
        whole = len(rows) == memory.rows and bool(np.array_equal(rows, np.arange(len(rows))))
        made = Gathered(
            memory.row_texts("keys"), seqs, flags, memory.row_texts("docs"),
            {name: memory.values(n) for n, name in enumerate(memory.fields)},
        )  # fmt: skip
        if not whole:
            values = {name: _take([each], rows) for name, each in made.values.items()}
            table = np.array([memory.address], np.int64)
            made = gather(table, np.zeros(len(rows), np.int64), rows, streamed=True)
            made.values = values
        if memory.due.any:
            made.untils = memory.untils_of(rows)
        span = MinMax(int(memory.facts[at.X_SEQ_LOW]), int(memory.facts[at.X_SEQ_HIGH]))
        return [self.build(made, {"seq": span, **context})]

    def merge(self, readers: Sequence[SortedReader], context: MergeContext) -> list[Product]:
        """The newest version of every key, cut into pieces by key where the context says so.

        Deletes that hide nothing any more are left out. The context's owner gives the fields
        with an embedded index.
        """
        newest_first = list(reversed(readers))
        total = sum(reader.rows for reader in readers)
        cursors = np.zeros((len(readers), at.M_WORDS), np.int64)
        for number, reader in enumerate(newest_first):
            cursors[number] = [reader.address, 0, reader.rows, 0]
        sources, rows = np.empty(total, np.int64), np.empty(total, np.int64)
        tombs = context.hides
        count = int(merge.merge_next(address_of(cursors), len(readers), tombs, 0, sources, rows))
        sources, rows = sources[:count], rows[:count]
        if count == 0:
            return []
        table = np.array([reader.address for reader in newest_first], np.int64)
        starts = np.cumsum([0, *(reader.rows for reader in newest_first)])
        values = {
            name: [reader.values(name, self.extract) for reader in newest_first]
            for name in context.owner
        }
        untils: Words | None = None
        if any(reader.untils is not None for reader in readers):
            every = [reader.untils_of(np.arange(reader.rows)) for reader in newest_first]
            untils = np.concatenate(every)
        filters: dict[str, MinMax] = {}
        for reader in readers:
            for name in ("seq", "wanted"):
                mine = reader.component.info.filters[name]
                filters[name] = filters.get(name, MinMax.empty()).merge(mine)
        products = []
        ends = _pieces(table, sources, rows, context.cut_bytes)
        for first, limit in pairwise([0, *ends]):
            made = gather(table, sources[first:limit], rows[first:limit], streamed=True)
            places = starts[sources[first:limit]] + rows[first:limit]
            for name, each in values.items():
                made.values[name] = _take(each, places)
            if untils is not None:
                made.untils = untils[places]
            span = filters["seq"]
            if limit < count:  # the last piece says how far the writes go that are in components
                span = MinMax(int(made.seqs.min()), int(made.seqs.max()))
            products.append(self.build(made, {**filters, "seq": span}))
        return products

    def build(self, made: Gathered, given: Mapping[str, MinMax]) -> Product:
        """A component of records in the order of their keys, with the filters given."""
        count = made.keys.count
        sizes = made.docs.offsets[:-1] - made.docs.offsets[0]
        firsts = np.flatnonzero(np.diff(sizes // BLOCK_BYTES, prepend=-1))
        starts = np.append(firsts, count)
        side: dict[str, NDArray[Any]] = {"starts": starts}
        lines = -(-count * _KEY_BITS // 512)
        side["bloom"] = np.zeros(lines * 8, np.int64)
        offsets, data, _ = made.keys.addresses
        blocks.key_bloom(offsets, data, count, self.seed, lines, side["bloom"])
        side["fence"] = _fence(made.keys)
        filters = {**given, "key": MinMax(made.keys[0], made.keys[count - 1])}
        probes = max(1, min(8, round(self.bloom_bits * 0.69)))
        columns = {
            "key": made.keys.to_arrow(),
            "seq": pa.array(np.ascontiguousarray(made.seqs)),
            "flags": pa.array(np.ascontiguousarray(made.flags)),
            "doc": _documents(made),
        }
        if made.untils is not None and made.untils.any():
            columns["until"] = pa.array(np.ascontiguousarray(made.untils))
            some = made.untils[made.untils > 0]
            filters["until"] = MinMax(int(some.min()), int(some.max()))
        for name, values in made.values.items():
            lists = np.ascontiguousarray(values.lists, np.int32)
            per_block = np.diff(lists[starts]).astype(np.int64)
            bloom_starts = np.zeros(len(starts), np.int64)
            np.cumsum(-(-per_block * self.bloom_bits // 64), out=bloom_starts[1:])
            bloom = np.zeros(int(bloom_starts[-1]), np.int64)
            lows, highs = np.empty((2, len(firsts)), np.int64)
            per_group = np.add.reduceat(per_block, np.arange(0, len(per_block), at.GROUP))
            group_starts = np.zeros(len(per_group) + 1, np.int64)
            np.cumsum(-(-per_group * _KEY_BITS // 512), out=group_starts[1:])
            group_bloom = np.zeros(8 * int(group_starts[-1]), np.int64)
            group_lows, group_highs = np.empty((2, len(per_group)), np.int64)
            offsets, data, _ = values.texts.addresses
            blocks.index_blocks(
                lists, offsets, data, starts, self.seed, probes, bloom_starts, bloom, lows, highs,
                at.GROUP, group_starts, group_bloom, group_lows, group_highs,
            )  # fmt: skip
            made_here = (lows, highs, bloom_starts, bloom,
                         group_lows, group_highs, group_starts, group_bloom)  # fmt: skip
            for (_, what), array in zip(_SIDE_PLACES, made_here, strict=True):
                side[f"{name}.{what}"] = array
            filters[f"zone.{name}"] = extremes(values.texts)
            columns[f"values.{name}"] = pa.ListArray.from_arrays(
                pa.array(lists), values.texts.to_arrow()
            )
        columns["side"], places = _side(side, count)
        extra = {
            "side": places,
            "probes": dict.fromkeys(made.values, probes),
            "key_prefixes": [_prefix(made.keys[0]), _prefix(made.keys[count - 1])],
        }
        streams = () if made.stream is None else (made.stream,)
        return Product(pa.table(columns), count, filters, extra, streams)


def _pieces(table: Words, sources: Words, rows: Words, cut_bytes: int | None) -> list[int]:
    """Where to cut records, so that each piece has about so many bytes; at last the end."""
    count = len(rows)
    if cut_bytes is None:
        return [count]
    sizes = np.empty((2, count + 1), np.int64)
    records.measure_rows(table, sources, rows, np.empty(count, np.int64), sizes[0], sizes[1])
    total = sizes.sum(axis=0) + _ROW_BYTES * np.arange(count + 1)
    pieces = max(1, round(int(total[-1]) / cut_bytes))
    ends = np.searchsorted(total, total[-1] * np.arange(1, pieces) / pieces)
    return [*np.unique(ends[(ends > 0) & (ends < count)]).tolist(), count]


def gather(table: Words, sources: Words, rows: Words, *, streamed: bool = False) -> Gathered:
    """Copies of records that stand in several sources, which `table` has the addresses of.

    Streamed, the documents are copied while they are written, a few MiB at a time.
    """
    count = len(rows)
    seqs = np.empty(count, np.int64)
    key_offsets, doc_offsets = np.empty(count + 1, np.int64), np.empty(count + 1, np.int64)
    records.measure_rows(table, sources, rows, seqs, key_offsets, doc_offsets)
    key_data = np.empty(int(key_offsets[-1]), np.uint8)
    flags = np.empty(count, np.uint8)
    records.copy_keys(table, sources, rows, key_offsets, key_data, flags)

    def pieces() -> Iterator[memoryview]:
        room = np.empty(_PIECE_BYTES, np.uint8)
        first = 0
        while first < count:
            end = doc_offsets[first] + _PIECE_BYTES
            limit = max(first + 1, int(np.searchsorted(doc_offsets, end, side="right")) - 1)
            size = int(doc_offsets[limit] - doc_offsets[first])
            if size > len(room):
                room = np.empty(size, np.uint8)
            records.copy_docs(table, sources, rows, doc_offsets, first, limit, room)
            yield memoryview(room[:size])  # type: ignore[arg-type]
            first = limit

    keys = Texts(key_offsets, key_data)
    if streamed:
        stream = Streamed(int(doc_offsets[-1]), pieces)
        return Gathered(keys, seqs, flags, Texts(doc_offsets, _NO_BYTES), stream=stream)
    doc_data = np.empty(int(doc_offsets[-1]), np.uint8)
    records.copy_docs(table, sources, rows, doc_offsets, 0, count, doc_data)
    return Gathered(keys, seqs, flags, Texts(doc_offsets, doc_data))


def _fence(keys_: Texts) -> Words:
    out = np.empty(fence.fence_words(keys_.count)[1], np.int64)
    fence.make_fence(*keys_.addresses, fence.common_bytes(*keys_.addresses), out)
    return out


def _documents(made: Gathered) -> Any:
    if made.stream is None:
        return made.docs.to_arrow(pa.large_string())
    buffers = [None, pa.py_buffer(made.docs.offsets), made.stream.buffer]
    return pa.Array.from_buffers(pa.large_string(), made.docs.count, buffers)


def extremes(texts: Texts) -> MinMax:
    """The least and the greatest of some texts.

    >>> extremes(Texts.of([b"b", b"a", b"c"]))
    MinMax(low=b'a', high=b'c')
    """
    if not texts.count:
        return MinMax.empty()
    found = np.zeros(2, np.int64)
    keys.extremes(*texts.addresses, found)
    low, high = found.tolist()
    return MinMax(texts[low], texts[high])


def _take(parts: Sequence[Values], rows: Words) -> Values:
    """The values of some rows of several sources one after the other."""
    lists = [
        pa.ListArray.from_arrays(pa.array(np.ascontiguousarray(p.lists)), p.texts.to_arrow())
        for p in parts
    ]
    whole = lists[0] if len(lists) == 1 else pa.concat_arrays(lists)
    taken = whole.take(pa.array(rows))
    return Values(_numbers(taken.offsets).astype(np.int32), Texts.from_arrow(taken.values))


def _side(arrays: dict[str, NDArray[Any]], rows: int) -> tuple[pa.Array, dict[str, list[int]]]:
    """Everything in row 0 of a binary column, and where."""
    places, end = {}, 0
    for name, array in arrays.items():
        places[name] = [end, array.nbytes]
        end += -(-array.nbytes // 64) * 64
    whole = np.zeros(max(end, 1), np.uint8)
    for name, array in arrays.items():
        start, size = places[name]
        whole[start : start + size] = np.ascontiguousarray(array).view(np.uint8)
    small = end < 1 << 31
    offsets = np.full(rows + 1, end, np.int32 if small else np.int64)
    offsets[0] = 0
    kind = pa.binary() if small else pa.large_binary()
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(whole)]
    return pa.Array.from_buffers(kind, rows, buffers), places


def _numbers(column: Any) -> NDArray[Any]:
    return np.asarray(column.to_numpy(zero_copy_only=True))


def _prefix(data: bytes) -> int:
    return int.from_bytes(data[:8].ljust(8, b"\0"), "big") - (1 << 63)
