"""Entries of an index in memory: the Python side of kernels/documents/entries.py.

Owns the four parts (table, values, entries, arena) and makes room when a kernel asks.

Written and searched under the owner's lock. Once frozen, it may be sealed without it. An exception
may cut a call at any moment: parts and their addresses are replaced in one step, and `add` can
be called again to end what it began.
"""

from __future__ import annotations

from typing import Any

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
_FACTS = {
    entries.M_TABLE: [entries.M_TABLE, entries.M_TABLE_CAP],
    entries.M_VALUES: [entries.M_VALUES, entries.M_VALUE_CAP],
    entries.M_ENTRIES: [entries.M_ENTRIES, entries.M_ENTRY_CAP],
    entries.M_ARENA: [entries.M_ARENA, entries.M_ARENA_CAP],
}  # where the state has the address of a part, and how much fits
_ORDER = [entries.M_ORDER, entries.M_ORDERED]
_UNORDERED = 1024  # values that a search for a range looks through one by one


class EntryMemory:
    """Entries of one index in memory; made by `EntryKind.memory`."""

    def __init__(self, seed: int, capacity: int, older: Any = None) -> None:
        # Pages that are not touched cost nothing: room is taken for a whole memory at once.
        count = max(capacity // 64, 64)
        self._older = older
        # Eager: lists in here have all that the places seen at the beginning have.
        self.since: int = older.low if older is not None else 0
        self._parts: dict[int, Any] = {
            entries.M_TABLE: np.zeros(1024, np.int64),
            entries.M_VALUES: np.empty(count * entries.V_WORDS, np.int64),
            entries.M_ENTRIES: np.empty(count * entries.N_WORDS, np.int64),
            entries.M_ARENA: np.empty(max(capacity, 4096), np.uint8),
        }
        self._order: Words = np.empty(0, np.int64)
        self._batch = (-1, 0)  # the first seq of the last `add`, and the own entries before it
        self.state: Words = np.zeros(entries.M_WORDS, np.int64)
        self.state[entries.M_SEED] = seed
        self.state[entries.M_LOW_SEQ] = newest.EVERYTHING
        self.state[entries.M_HIGH_SEQ] = -1
        for part in self._parts:
            self.state[_FACTS[part]] = self._facts(part, self._parts[part])
        self.address: int = address_of(self.state)
        self.row: Words = np.zeros(places.P_WORDS, np.int64)
        self.row[places.P_MEMORY] = self.address

    @staticmethod
    def _facts(part: int, array: Any) -> tuple[int, int]:
        """What the state says of a part: its address and how much fits."""
        return address_of(array), len(array) // _ITEM_WORDS[part]

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
        state = self.state
        return int(
            state[entries.M_ARENA_USED]
            + 8 * entries.N_WORDS * state[entries.M_ENTRY_COUNT]
            + 8 * entries.V_WORDS * state[entries.M_VALUE_COUNT]
            + 8 * state[entries.M_TABLE_CAP]
        )

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
        older = self._older
        done = 0
        if first:
            own = int(self.state[entries.M_ENTRY_COUNT] - self.state[entries.M_BORROWED])
            if self._batch[0] == first:
                done = own - self._batch[1]
            else:
                self._batch = (first, own)
        while done < count:
            done = entries.add(
                self.address, at[0], at[1], count, at[2], at[3], row_count, seqs_at, first, rows_at,
                done, older.address if older else 0, older.count if older else 0,
            )  # fmt: skip
            if done < 0:
                last = int(self.state[entries.M_HIGH_SEQ])
                raise InvalidRequest("seqs must not fall", last=last)
            if done < count:
                self._grow()

    def look_back(self, older: Any) -> None:
        """Eager: begin lists with what this `View` has of them from now on.

        Components that were sealed or merged since take the place of what they were made of.
        """
        self._older = older
        if self.count == 0:
            self.since = older.low

    def freeze(self) -> None:
        """Nothing is added from now on: let go of the older places, which may have gone too."""
        self._older = None

    def _grow(self) -> None:
        """Make the room a kernel asked for."""
        state = self.state
        for part, used, words, more in (
            (entries.M_VALUES, entries.M_VALUE_COUNT, entries.V_WORDS, 1),
            (entries.M_ENTRIES, entries.M_ENTRY_COUNT, entries.N_WORDS,
             int(state[entries.M_NEED_ENTRIES])),
            (entries.M_ARENA, entries.M_ARENA_USED, 1, int(state[entries.M_NEED_BYTES])),
        ):  # fmt: skip
            old, keep = self._parts[part], int(state[used]) * words
            if keep + more * words > len(old):
                new: Any = np.empty(max(2 * len(old), keep + 2 * more * words), old.dtype)
                new[:keep] = old[:keep]
                facts = self._facts(part, new)
                self.state[_FACTS[part]], self._parts[part] = facts, new
        table = self._parts[entries.M_TABLE]
        if int(state[entries.M_VALUE_COUNT]) * 8 >= len(table) * 5:
            new = np.zeros(len(table) * 4, np.int64)
            facts = self._facts(entries.M_TABLE, new)
            aside = state.copy()
            aside[_FACTS[entries.M_TABLE]] = facts
            entries.rehash(address_of(aside))
            self.state[_FACTS[entries.M_TABLE]], self._parts[entries.M_TABLE] = facts, new

    def in_order(self, first: int = 0) -> Words:
        """The numbers of the values, from the first-th on, in the order of their bytes."""
        count = self.values - first
        rows = self._rows[first:]
        prefixes = np.ascontiguousarray(rows[:, entries.V_PREFIX])
        addresses = rows[:, entries.V_AT] + self.state[entries.M_ARENA]
        lengths = rows[:, entries.V_SIZE] & entries.LOW32
        order = np.argsort(prefixes)
        scratch = np.empty(count, np.int64)
        ordering.sort_ties(*map(address_of, (order, scratch, prefixes, addresses, lengths)), count)
        return order + first

    def prepare(self) -> None:
        """Before a search for a range: bring new values into order once they are many.

        Under the owner's lock. What is not in order yet is looked through one by one.
        """
        ordered, count = len(self._order), self.values
        if count - ordered > _UNORDERED + ordered // 16:
            tail = self.in_order(ordered)
            merged = np.empty(count, np.int64)
            ordering.merge_orders(
                self.address,
                address_of(self._order),
                ordered,
                address_of(tail),
                len(tail),
                address_of(merged),
            )
            facts = (address_of(merged), count)
            self.state[_ORDER], self._order = facts, merged

    @property
    def _rows(self) -> Any:
        rows = self._parts[entries.M_VALUES][: self.values * entries.V_WORDS]
        return rows.reshape(-1, entries.V_WORDS)

    @property
    def longest(self) -> int:
        """The length of the longest list."""
        return int((self._rows[:, entries.V_SIZE] >> 32).max(initial=0))
