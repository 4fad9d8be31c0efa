"""Memory of records: what was written since the last seal, laid out like a component.

    key_offsets, keys, seqs, flags, doc_offsets, docs      one entry a write, in order of arrival
    untils                                                 when it expires, if its flags say so
    lists, offsets, values                                 the same for each embedded field
    lows, highs, chain, row_of, heads                      made by whoever searches (search.py)
    table                                                  hash of a key -> its newest row
    previous, later                                        a row -> the row before and the one
                                                           after with its key

A write copies a batch behind what is there: six copies of whole columns and one kernel for the
table, whatever the number of records. Every column has its address range reserved, so nothing
ever moves. Only the table is replaced by a larger one when it is half full.

Threads: one writes (`add`, `clear`), under its owner's lock; any number read meanwhile, without.
A reader knows how many rows there were at the moment it reads of, and the table there was then:
rows up to that number never change, and a row that came later leads back to them. Whoever lets
readers know of new rows does so by a Python assignment after `add` has returned: the lock of the
interpreter, which both take, is what makes all of a row visible with its number. What changes
while a kernel of a reader runs: words of the table, of `previous` and `later`, and chains and zones
of embedded fields, which `catch_up` makes under `lock` (kernels/documents/records.py, search.py).
"""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from tideline.addresses import address_of
from tideline.index.due import Growing
from tideline.index.texts import Texts
from tideline.kernels.documents import layout as at
from tideline.kernels.documents import merge, records, search
from tideline.lsm.pages import ask_for_huge_pages, reserve

__all__ = ["PART_BYTES", "PART_ROWS", "Records", "Values", "sorted_rows"]

Words = NDArray[np.int64]
PART_BYTES = 32 << 20  # what one `add` may bring at most
PART_ROWS = 1 << 16
_LARGE = 16 << 20  # bytes of a memory whose documents fill huge pages
_ROW_BYTES = 48  # of a record beside its key and document: offsets, seq, its place in the table
_HEADS = 1 << 16  # of chains of equal values, 4 bytes each
_TABLE = [at.X_TABLE, at.X_TABLE_CAP, at.X_TABLE_USED]
_RANGE = [at.X_LOW, at.X_HIGH]
_NO_RANGE = [(1 << 63) - 1, -(1 << 63)]  # of keys: before there is one
_FURTHER = 5  # bytes of values that a byte of a document can make, arrays of digits are the worst


class Table(NamedTuple):
    """Hash of a key -> its newest row. Who holds it may read it after a larger one replaced it."""

    words: Words
    address: int
    cap: int


class Values:
    """The values of one field in every row: `lists` (int32) and the texts they number."""

    def __init__(self, lists: NDArray[np.int32], texts: Texts) -> None:
        self.lists = lists
        self.texts = texts


class _Column:
    """A growing array that never moves."""

    def __init__(self, dtype: Any, count: int, *, large: bool = False) -> None:
        size = max(int(count) * np.dtype(dtype).itemsize, mmap.PAGESIZE)
        pages = reserve(size)
        if large:
            ask_for_huge_pages(pages)
        self.array: NDArray[Any] = np.frombuffer(pages, dtype)
        self.address = address_of(self.array)


class _Field:
    """What was written of an embedded field."""

    def __init__(self, rows: int, size_bytes: int) -> None:
        room = size_bytes * _FURTHER
        self.lists = _Column(np.int32, rows + 1)
        self.offsets = _Column(np.int64, room // 8)
        self.values = _Column(np.uint8, room)
        self.chain = _Column(np.int32, room // 8)
        self.row_of = _Column(np.int32, room // 8)
        self.lows = _Column(np.int64, rows // at.MEMORY_BLOCK + 1)
        self.highs = _Column(np.int64, rows // at.MEMORY_BLOCK + 1)
        self.heads = np.zeros(_HEADS, np.int32)
        self.chained = 0  # rows that are in zones and chains, for all to see
        self.facts: Words = np.zeros(at.F_WORDS, np.int64)
        words = self.facts
        words[at.F_LISTS] = self.lists.address
        words[at.F_OFFSETS] = self.offsets.address
        words[at.F_VALUES] = self.values.address
        words[at.F_LOW], words[at.F_HIGH] = -(1 << 63), (1 << 63) - 1
        words[at.F_LOWS], words[at.F_HIGHS] = self.lows.address, self.highs.address
        words[at.F_CHAIN], words[at.F_ROW_OF] = self.chain.address, self.row_of.address
        words[at.F_HEADS], words[at.F_HEADS_CAP] = address_of(self.heads), len(self.heads)
        self.address = address_of(words)

    def clear(self) -> None:
        self.heads[:] = 0
        self.facts[at.F_CHAINED] = self.chained = 0

    def add(
        self, first: int, count: int, row: Words, values: Texts, filled: tuple[int, int]
    ) -> tuple[int, int]:
        """Values of the rows from `first` on, given how many values and bytes there are.

        Returns how many there are then.
        """
        before, used = filled
        added = values.count
        if count == 1:
            self.lists.array[first + 1] = before + added
        else:
            lists = self.lists.array[first + 1 : first + count + 1]
            np.cumsum(np.bincount(row, minlength=count), out=lists)
            lists += np.int32(before)
        size = _append(self.offsets.array, self.values.array, before, used, values)
        return before + added, used + size


class Records:
    """Rows in the order of arrival, found by key.

    >>> memory = Records(1 << 20, [], seed=7)
    >>> memory.add(Texts.of([b"k", b"k"]), Texts.of([b"{}", b'{"a":1}']), np.zeros(2, np.uint8),
    ...            5, [])
    >>> memory.rows, memory.row_texts("docs")[1], memory.newest().tolist()
    (2, b'{"a":1}', [1])
    """

    def __init__(self, size_bytes: int, fields: Sequence[str], *, seed: int) -> None:
        self.limit_bytes = size_bytes
        self.fields = list(fields)
        self.seed = seed
        self.rows = 0
        self.size_bytes = 0
        self.first_seq = self.last_seq = 0
        self.lock = Lock()  # of those who catch up
        room = size_bytes + PART_BYTES + (17 << 20)
        most = (size_bytes + PART_BYTES) // _ROW_BYTES + PART_ROWS
        self._key_offsets = _Column(np.int64, most + 1)
        self._doc_offsets = _Column(np.int64, most + 1)
        self._seqs = _Column(np.int64, most)
        self._flags = _Column(np.uint8, most)
        self._untils = _Column(np.int64, most)
        self.due = Growing()
        self._previous = _Column(np.int32, most)
        self._later = _Column(np.int32, most)
        self._keys = _Column(np.uint8, room)
        self._docs = _Column(np.uint8, room, large=size_bytes >= _LARGE)
        self._values = {name: _Field(most, room) for name in self.fields}
        self._begin()
        self.table = _new_table(1024)
        self.facts: Words = np.zeros(at.X_WORDS, np.int64)
        facts = self.facts
        facts[at.X_KEY_OFFSETS] = self._key_offsets.address
        facts[at.X_KEYS] = self._keys.address
        facts[at.X_SEQS] = self._seqs.address
        facts[at.X_FLAGS] = self._flags.address
        facts[at.X_UNTILS] = self._untils.address
        facts[at.X_DOC_OFFSETS] = self._doc_offsets.address
        facts[at.X_DOCS] = self._docs.address
        facts[at.X_TABLE], facts[at.X_TABLE_CAP] = self.table[1:]
        facts[at.X_PREVIOUS] = self._previous.address
        facts[at.X_LATER] = self._later.address
        facts[_RANGE] = _NO_RANGE
        facts[at.X_SEQ_HIGH] = 1 << 62  # until there is a row: nothing says that it is old
        self._words: Any = memoryview(facts)  # type: ignore[arg-type]
        self.address = address_of(facts)

    def field_facts(self, name: str) -> Words | None:
        """What kernels have to know of an embedded field; None: there is nothing of it in here."""
        field = self._values.get(name)
        return None if field is None else field.facts

    def key_range(self) -> tuple[int, int]:
        """Prefixes of the least and the greatest key."""
        return self._words[at.X_LOW], self._words[at.X_HIGH]

    def catch_up(self, name: str, rows: int) -> None:
        """Before a reader of `rows` rows searches for values of an embedded field.

        One at a time; whoever comes meanwhile waits for it. Cut by an exception, it is done or
        not: the kernel says how far it came.
        """
        field = self._values.get(name)
        if field is not None and field.chained < rows:
            with self.lock:
                search.catch_up(field.address, rows, self.seed)
                field.chained = max(field.chained, rows)

    def _begin(self) -> None:
        # Bytes of keys, bytes of documents; of each field, how many values and their bytes.
        self._used: tuple[int, int, list[tuple[int, int]]] = (0, 0, [(0, 0)] * len(self.fields))

    def clear(self) -> None:
        """Begin anew in the same memory, whose pages are warm."""
        self._later.array[: int(self.facts[at.X_ROWS])] = 0
        self.rows = self.size_bytes = self.first_seq = self.last_seq = 0
        self._begin()
        self.table.words[:] = 0
        self.facts[[at.X_ROWS, at.X_TABLE_USED, at.X_ORDER]] = 0
        self.facts[at.X_SEQ_HIGH] = 1 << 62
        self.facts[_RANGE] = _NO_RANGE
        self.due = Growing()
        for field in self._values.values():
            field.clear()

    def add(
        self, keys: Texts, docs: Texts, flags: NDArray[np.uint8], seq: int,
        values: Sequence[tuple[Words, Texts]], untils: Words | None = None,
    ) -> None:  # fmt: skip
        """Rows with the seqs from `seq` on; `values` of each field are (row, values).

        `untils` are the times at which they expire, 0 for never; None: none of them does.
        An exception may cut it at any moment: called again with the same rows, it ends what it
        began. Rows count in one step, the last; those that count are not added again.
        """
        if seq <= self.last_seq:
            return
        count, first = keys.count, self.rows
        if first == 0:
            self.first_seq = seq
            self.facts[at.X_SEQ_LOW] = seq
        key_bytes, doc_bytes, values_used = self._used
        size = _append(self._key_offsets.array, self._keys.array, first, key_bytes, keys)
        more = _append(self._doc_offsets.array, self._docs.array, first, doc_bytes, docs)
        limit, last = first + count, seq + count - 1
        if count == 1:
            self._seqs.array[first], self._flags.array[first] = seq, flags[0]
        else:
            self._seqs.array[first:limit] = np.arange(seq, seq + count)
            self._flags.array[first:limit] = flags
        if untils is not None:
            self._untils.array[first:limit] = untils
            self.due.add(untils, first)
        total = self.size_bytes + size + more + _ROW_BYTES * count
        filled = values_used
        if values:
            filled = []
            fields = self._values.values()
            for field, before, (row, texts) in zip(fields, values_used, values, strict=True):
                after = field.add(first, count, row, texts, before)
                total += after[1] - before[1] + 12 * (after[0] - before[0])
                filled.append(after)
        facts = self.facts
        if (facts[at.X_TABLE_USED] + count) * 2 > facts[at.X_TABLE_CAP]:
            self._grow(count)
        facts[at.X_ROWS] = limit
        facts[at.X_SEQ_HIGH] = last
        records.insert(self.address, first, limit, self.seed)  # once more does no harm
        used = (key_bytes + size, doc_bytes + more, filled)
        self._used, self.rows, self.last_seq, self.size_bytes = used, limit, last, total

    def _grow(self, more: int) -> None:
        """Put a larger table in the place of the one there is, in one step."""
        facts = self.facts.copy()
        cap = 1 << int((int(facts[at.X_TABLE_USED]) + more) * 3).bit_length()
        table = _new_table(cap)
        facts[_TABLE] = [table.address, cap, 0]
        records.insert(address_of(facts), 0, self.rows, self.seed)
        self.facts[_TABLE], self.table = facts[_TABLE], table

    def newest(self, rows: int | None = None, table: Table | None = None) -> Words:
        """The rows that are the newest of their key, oldest first.

        Of all rows, or of the first `rows` by the table that a reader has.
        """
        facts = self.facts.copy()
        facts[at.X_ROWS] = self.rows if rows is None else rows
        facts[_TABLE[:2]] = (table or self.table)[1:]
        out = np.empty(int(facts[at.X_ROWS]), np.int64)
        count = int(records.newest_rows(address_of(facts), out))
        out = out[:count]
        out.sort()
        return out

    def row_texts(self, what: str, rows: int | None = None) -> Texts:
        """The keys or the docs of the first `rows`, or of all, in place."""
        count = self.rows if rows is None else rows
        offsets, data = (
            (self._key_offsets, self._keys) if what == "keys" else (self._doc_offsets, self._docs)
        )
        return Texts(offsets.array[: count + 1], data.array)

    def untils_of(self, rows: Words) -> Words:
        """When some rows expire; 0 for never."""
        expires = self._flags.array[rows] & at.EXPIRES != 0
        found: Words = np.where(expires, self._untils.array[rows], 0)
        return found

    def numbers(self) -> tuple[Words, NDArray[np.uint8]]:
        """Seqs and flags of all rows, in place."""
        return self._seqs.array[: self.rows], self._flags.array[: self.rows]

    def values(self, number: int) -> Values:
        """The values of an embedded field, in place."""
        field = self._values[self.fields[number]]
        count = self._used[2][number][0]
        texts = Texts(field.offsets.array[: count + 1], field.values.array)
        return Values(field.lists.array[: self.rows + 1], texts)


def _new_table(cap: int) -> Table:
    made: Words = np.zeros(cap, np.int64)
    return Table(made, address_of(made), cap)


def sorted_rows(keys: Texts, rows: Words) -> Words:
    """Rows in the order of their keys; all keys differ.

    >>> sorted_rows(Texts.of([b"c", b"a", b"b"]), np.array([0, 1, 2])).tolist()
    [1, 2, 0]
    """
    mine = keys if len(rows) == keys.count else keys.take(rows)
    if merge.is_sorted(address_of(mine.offsets), address_of(mine.data), mine.count):
        return rows
    order = pc.array_sort_indices(mine.to_arrow()).to_numpy()
    return np.ascontiguousarray(rows[order])


def _append(
    offsets: Words, data: NDArray[np.uint8], first: int, used: int, texts: Texts
) -> int:  # fmt: skip
    """Put texts behind those that are there; returns their bytes."""
    given = texts.offsets
    start, limit = given.item(0), given.item(-1)
    if len(given) == 2:  # the short way for single writes
        end = used + limit - start
        offsets[first + 1] = end
        data[used:end] = texts.data[start:limit]
        return limit - start
    np.add(given[1:], used - start, out=offsets[first + 1 : first + len(given)])
    data[used : used + limit - start] = texts.data[start:limit]
    return limit - start
