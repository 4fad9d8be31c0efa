"""Entries of an index in memory: the Python side of kernels/documents/entries.py.

Owns the four parts (table, values, entries, arena) and makes room when a kernel asks.

    add      writer: entries, then `published`: where the parts are and how much is in them
    show     reader: what was published last, into a copy of the state words that is its own

Threads: one adds, under its owner's lock; any number search meanwhile, without. A reader searches
its copy of the state words; kernels/documents/entries.py tells what changes under it and why that
does no harm. `published` is one Python assignment after a kernel has returned, so the lock of the
interpreter makes all that it speaks of visible. Parts that were replaced stay until the memory
goes. `prepare` orders values for all readers, one at a time, under `lock`.

Once frozen, it may be sealed without a lock. An exception may cut a call at any moment: parts and
their addresses are replaced in one step, and `add` can be called again to end what it began.
"""

from __future__ import annotations

import ctypes
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tideline.addresses import address_of
from tideline.errors import InvalidRequest
from tideline.index.texts import Texts
from tideline.kernels.documents import entries, newest, places
from tideline.kernels.documents import order as ordering

__all__ = ["EntryMemory"]

Words = NDArray[np.int64]
_ITEM_WORDS = {
    entries.M_TABLE: 1, entries.M_VALUES: entries.V_WORDS, entries.M_ENTRIES: entries.N_WORDS,
    entries.M_ARENA: 1,
}  # fmt: skip
_UNORDERED = 1024  # values that a search for a range looks through one by one


class Order(NamedTuple):
    """The numbers of the first `size` values in the order of their bytes."""

    numbers: Words
    address: int
    size: int


Published = tuple[Any, int, int, int]
"""The state words of the parts, and how many values, entries and borrowed entries they hold.

A plain tuple: one is made for every write.
"""


class EntryMemory:
    """Entries of one index in memory; made by `EntryKind.memory`."""

    def __init__(self, seed: int, capacity: int, older: Any = None) -> None:
        # Pages that are not touched cost nothing: room is taken for a whole memory at once.
        count = max(capacity // 64, 64)
        self._older: Any = None
        self._older_places: Any = None
        self.since = 0  # Eager: lists in here have all that older places have from this seq on.
        self._parts: dict[int, Any] = {
            entries.M_TABLE: np.zeros(1024, np.int64),
            entries.M_VALUES: np.empty(count * entries.V_WORDS, np.int64),
            entries.M_ENTRIES: np.empty(count * entries.N_WORDS, np.int64),
            entries.M_ARENA: np.empty(max(capacity, 4096), np.uint8),
        }
        self._replaced: list[Any] = []  # parts that a reader may still read
        self.lock = Lock()  # of those who bring values into order
        self._order = Order(np.empty(0, np.int64), 0, 0)
        self._most_unordered = _UNORDERED  # values, before they are brought into order
        self._batch = (-1, 0)  # the first seq of the last `add`, and the own entries before it
        self.state: Words = np.zeros(entries.M_WORDS, np.int64)
        self.state[entries.M_SEED] = self._seed = seed
        self.state[entries.M_LOW_SEQ] = newest.EVERYTHING
        self.state[entries.M_HIGH_SEQ] = -1
        self._words: Any = memoryview(self.state)  # type: ignore[arg-type]
        self._facts = _facts(self._parts)
        self.state[: entries.M_PARTS] = self._facts
        self.address: int = address_of(self.state)
        self.row: Words = np.zeros(places.P_WORDS, np.int64)  # P_MEMORY is for each reader to fill
        self._publish()
        if older is not None:
            self.look_back(older)

    def _publish(self) -> None:
        words = self._words
        self.published: Published = (
            self._facts,
            words[entries.M_VALUE_COUNT],
            words[entries.M_ENTRY_COUNT],
            words[entries.M_BORROWED],
        )

    # ---- reading -----------------------------------------------------------------------------

    def show(self, state: Any) -> Published:
        """Fill the state words of a reader with what is published.

        Its view was taken before this: what is published has all that the view has.
        """
        parts, values, count, borrowed = published = self.published
        state[: entries.M_PARTS] = parts
        state[entries.M_SEED] = self._seed
        state[entries.M_VALUE_COUNT] = values
        state[entries.M_ENTRY_COUNT] = count
        state[entries.M_BORROWED] = borrowed
        return published

    def show_order(self, state: Any) -> Order:
        """Tell a reader how values are ordered; it holds what is returned while it searches.

        Before `show`: every value that is in order is then among those published.
        """
        order = self._order
        state[entries.M_ORDER], state[entries.M_ORDERED] = order.address, order.size
        return order

    @property
    def count(self) -> int:
        """Entries in here."""
        return int(self.state[entries.M_ENTRY_COUNT])

    @property
    def values(self) -> int:
        """Different values in here."""
        return int(self.state[entries.M_VALUE_COUNT])

    @property
    def low(self) -> int:
        """The smallest seq in here; above every seq when there is none."""
        return int(self.state[entries.M_LOW_SEQ])

    @property
    def size_bytes(self) -> int:
        """Bytes in use."""
        words = self._words
        size: int = (
            words[entries.M_ARENA_USED]
            + 8 * entries.N_WORDS * words[entries.M_ENTRY_COUNT]
            + 8 * entries.V_WORDS * words[entries.M_VALUE_COUNT]
            + 8 * words[entries.M_TABLE_CAP]
        )
        return size

    def full(self, size_bytes: int) -> bool:
        """Whether it has come to a size."""
        return self.size_bytes >= size_bytes

    def add(self, values: Texts, keys: Texts, seqs: Words | int, rows: Words | None = None) -> None:
        """Add entries: value i with key i and seq i, or with those of row rows[i].

        `seqs` as a number is the seq of row 0, and those of the others follow. They do not
        fall, from call to call either. A call with the number of the last one ends that one.
        """
        count, row_count = len(values.offsets) - 1, len(keys.offsets) - 1
        if count == 0:
            return
        first, seqs_at = 0, 0
        if isinstance(seqs, int):
            first = seqs
        else:
            seqs = np.ascontiguousarray(seqs)
            seqs_at = address_of(seqs)
            if len(seqs) != row_count:
                raise InvalidRequest("a row has a key and a seq")
        rows_at = 0
        if rows is not None:
            rows = np.ascontiguousarray(rows)
            rows_at = address_of(rows)
        if count != (row_count if rows is None else len(rows)):
            raise InvalidRequest("an entry has a value and a row")
        value_offsets, key_offsets = map(np.ascontiguousarray, (values.offsets, keys.offsets))
        at = [address_of(part) for part in (value_offsets, values.data, key_offsets, keys.data)]
        done = 0
        if first:
            own = self._words[entries.M_ENTRY_COUNT] - self._words[entries.M_BORROWED]
            if self._batch[0] == first:
                done = own - self._batch[1]
            else:
                self._batch = (first, own)
        if self._older is not None:
            older_at, older_count = self._older_places.address, self._older.count
        else:
            older_at = older_count = 0
        while done < count:
            done = entries.add(
                self.address, at[0], at[1], count, at[2], at[3], row_count, seqs_at, first, rows_at,
                done, older_at, older_count,
            )  # fmt: skip
            if done < 0:
                last = int(self.state[entries.M_HIGH_SEQ])
                raise InvalidRequest("seqs must not fall", last=last)
            if done < count:
                self._grow()
        self._publish()

    def look_back(self, older: Any) -> None:
        """Eager: begin lists with what this `View` has of them from now on.

        Components that were sealed or merged since take the place of what they were made of.
        """
        self._older, self._older_places = older, older.places()
        if self.count == 0:
            self.since = older.low

    def freeze(self) -> None:
        """Nothing is added from now on: let go of the older places, which may have gone too."""
        self._older = self._older_places = None

    def _grow(self) -> None:
        """Make the room a kernel asked for."""
        state, parts, moved = self.state, dict(self._parts), False
        for part, used, more in (
            (entries.M_ENTRIES, entries.M_ENTRY_COUNT, int(state[entries.M_NEED_ENTRIES])),
            (entries.M_VALUES, entries.M_VALUE_COUNT, 1),
            (entries.M_ARENA, entries.M_ARENA_USED, int(state[entries.M_NEED_BYTES])),
        ):
            words, old = _ITEM_WORDS[part], parts[part]
            keep, size = int(state[used]) * words, len(old)
            if keep + more * words > size:
                size = max(2 * size, keep + 2 * more * words)
            elif part != entries.M_VALUES or not moved:
                continue
            # Heads of values must not lead readers out of the entries they have: both move.
            moved = part == entries.M_ENTRIES
            parts[part] = np.empty(size, old.dtype)
            parts[part][:keep] = old[:keep]
        table = parts[entries.M_TABLE]
        if int(state[entries.M_VALUE_COUNT]) * 8 >= len(table) * 5:
            parts[entries.M_TABLE] = np.zeros(len(table) * 4, np.int64)
            aside = state.copy()
            aside[: entries.M_PARTS] = _facts(parts)
            entries.rehash(address_of(aside))
        facts = _facts(parts)
        self._replaced.append(self._parts)
        self.state[: entries.M_PARTS], self._facts, self._parts = facts, facts, parts

    def in_order(self) -> Words:
        """The numbers of all values in the order of their bytes (the memory is frozen)."""
        return _ordered(self.state, 0)

    def prepare(self) -> None:
        """Before a search for a range: bring new values into order once they are many.

        What is not in order yet is looked through one by one.
        """
        if self.published[1] > self._most_unordered:
            with self.lock:
                if self.published[1] > self._most_unordered:
                    self._bring_in_order()

    def _bring_in_order(self) -> None:
        state: Words = np.zeros(entries.M_WORDS, np.int64)
        count = self.show(memoryview(state))[1]  # type: ignore[arg-type]
        before, tail = self._order, _ordered(state, self._order.size)
        merged = np.empty(count, np.int64)
        ordering.merge_orders(
            address_of(state),
            before.address,
            before.size,
            address_of(tail),
            len(tail),
            address_of(merged),
        )
        order = Order(merged, address_of(merged), count)
        self._order, self._most_unordered = order, count + _UNORDERED + count // 16

    @property
    def longest(self) -> int:
        """The length of the longest list."""
        return int((_values(self.state)[:, entries.V_SIZE] >> 32).max(initial=0))


def _facts(parts: dict[int, Any]) -> Any:
    """The state words of the parts: where each is and how much fits."""
    facts = [
        fact
        for part, array in parts.items()
        for fact in (address_of(array), len(array) // _ITEM_WORDS[part])
    ]
    return memoryview(np.array(facts, np.int64))  # type: ignore[arg-type]


def _values(state: Words) -> Any:
    """The words of the values, a row each, in place."""
    count = int(state[entries.M_VALUE_COUNT]) * entries.V_WORDS
    at = (ctypes.c_int64 * count).from_address(int(state[entries.M_VALUES]))
    return np.frombuffer(at, np.int64).reshape(-1, entries.V_WORDS)  # type: ignore[call-overload]


def _ordered(state: Words, first: int) -> Words:
    """The numbers of the values, from the first-th on, in the order of their bytes."""
    rows = _values(state)[first:]
    prefixes = np.ascontiguousarray(rows[:, entries.V_PREFIX])
    addresses = rows[:, entries.V_AT] + state[entries.M_ARENA]
    lengths = rows[:, entries.V_SIZE] & entries.LOW32
    order = np.argsort(prefixes)
    scratch = np.empty(len(rows), np.int64)
    ordering.sort_ties(*map(address_of, (order, scratch, prefixes, addresses, lengths)), len(rows))
    return order + first
