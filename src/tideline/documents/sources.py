"""Everything there is to read of a collection, for kernels: memories and components, newest first.

    refresh     what there is now
    get         one key -> its document            one call of a kernel
    search      a range of an embedded field       one call of a kernel for the k newest
    lookup      a range of a stand-alone index     one call of a kernel for the k newest
    found       what either has found, as documents with the numbers of their writes
    text        the same as one JSON array

The owner's lock is held during every call, and from a search until what it found is taken: the
buffers are one set for all callers. An exception may cut a call at any moment: the next one sets
all that it asks with anew, and a buffer and its address are replaced in one step.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tideline.addresses import address_of
from tideline.documents.generation import Generation
from tideline.documents.types import Estimate, Found
from tideline.index.entryview import View
from tideline.index.sorted import Gathered, SortedReader, gather
from tideline.index.texts import Texts
from tideline.kernels.documents import layout as at
from tideline.kernels.documents import lookup, newest, records, search

__all__ = ["NOTHING", "Sources"]

Words = NDArray[np.int64]
_KEY_ROOM = 4096  # a key, or both ends of a range
_ALL = 1 << 62
_REPLY = [at.S_REPLY, at.S_REPLY_CAP]
_OUT = [at.S_OUT_SOURCES, at.S_OUT_ROWS, at.S_OUT_SEQS, at.S_ENDS, at.S_OUT_CAP]
_FEW = 1024  # that many are looked up in one call of a kernel
NOTHING = Found(np.zeros(0, np.int64), [])


class Sources:
    """The state that kernels read, and what it points to."""

    def __init__(self, seed: int) -> None:
        self._state: Words = np.zeros(at.S_WORDS, np.int64)
        # reads and writes faster than the array itself
        self._now: Any = memoryview(self._state)  # type: ignore[arg-type]
        self._address = address_of(self._state)
        self._texts = np.zeros((3, _KEY_ROOM), np.uint8)
        self._key_view, self._low_view, self._high_view = (
            memoryview(row) for row in self._texts  # type: ignore[arg-type]
        )  # fmt: skip
        state = self._state
        state[at.S_SEED] = seed
        state[at.S_KEY], state[at.S_LOW], state[at.S_HIGH] = (address_of(r) for r in self._texts)
        self._out: Words = np.zeros((4, 0), np.int64)  # sources, rows, seqs; ends of documents
        self._reply: NDArray[np.uint8]
        self._reply_view: Any
        self._reply_room(1 << 16)
        self._out_room(_FEW)
        self._call: Words = np.empty(newest.CALL_WORDS + 4 * _FEW + 1, np.int64)
        self._call_at = address_of(self._call)
        self.all: list[Any] = []  # newest first
        self.generations: list[Generation] = []
        self._fields: dict[str, int] = {}

    def _reply_room(self, size: int) -> None:
        reply = np.empty(size, np.uint8)
        view = memoryview(reply)  # type: ignore[arg-type]
        facts = [address_of(reply), size]
        # One step: no exception comes between assignments without a call.
        self._state[_REPLY], self._reply, self._reply_view = facts, reply, view

    def _out_room(self, count: int) -> None:
        """Room for what a search finds; what it has so far stays."""
        out = np.zeros((4, count), np.int64)
        out[:, : self._out.shape[1]] = self._out
        facts = [*(address_of(row) for row in out), count]
        self._state[_OUT], self._out = facts, out  # one step, as above

    def refresh(
        self, generations: Sequence[Generation], readers: Sequence[SortedReader],
        embedded: Sequence[str],
    ) -> None:  # fmt: skip
        """What there is now, each newest first."""
        self.generations = list(generations)
        self.all = [*(generation.records for generation in generations), *readers]
        for source in self.all:
            source.bind(embedded)
        self._fields = {name: number for number, name in enumerate(embedded)}
        self._table = np.array([source.address for source in self.all], np.int64)
        self._now[at.S_SOURCES] = address_of(self._table)
        self._now[at.S_SOURCE_COUNT] = len(self.all)

    # ---- by key ----------------------------------------------------------------------------

    def get(self, key: bytes) -> bytes | None:
        """The newest version of a record, or None."""
        size = len(key)
        if size > _KEY_ROOM:
            return None
        self._key_view[:size] = key
        now = self._now
        now[at.S_KEY_SIZE] = size
        length = records.find_one(self._address)
        if length < 0:
            return None
        if length <= now[at.S_REPLY_CAP]:
            return bytes(self._reply_view[:length])
        return ctypes.string_at(now[at.S_FOUND], length)

    def get_many(self, keys: Texts) -> list[bytes | None]:
        """The newest versions of many records, None for each that is not there."""
        there, made = self._find(keys)
        out: list[bytes | None] = [None] * keys.count
        for place, doc in zip(there.tolist(), made.docs.to_list(), strict=True):
            out[place] = doc
        return out

    def fetch(self, keys: Texts) -> Found:
        """The newest versions of many records, without those that are not there."""
        _, made = self._find(keys)
        return Found(made.seqs, made.docs.to_list(), made.keys.to_list())

    def _find(self, keys: Texts) -> tuple[Words, Gathered]:
        """Which keys have a record, and the records."""
        places, rows = np.empty((2, keys.count), np.int64)
        records.find_many(self._address, *keys.addresses, places, rows)
        there = np.flatnonzero(places >= 0)
        return there, gather(self._table, places[there], rows[there])

    # ---- by index --------------------------------------------------------------------------

    def search(
        self, field: str, low: bytes, high: bytes, opened: int, k: int | None,
        skipped: NDArray[np.uint8] | None,
    ) -> int:  # fmt: skip
        """Find the `k` newest records with a value of an embedded field in the range: how many."""
        self._ask(field, low, high, opened)
        now = self._now
        now[at.S_K] = _ALL if k is None else k
        now[at.S_SKIPPED] = 0 if skipped is None else address_of(skipped)
        now[at.S_OUT_COUNT] = now[at.S_AT_SOURCE] = now[at.S_AT_BLOCK] = 0
        count: int
        while (count := lookup.lookup_embedded(self._address)) < 0:
            self._out_room(4 * self._out.shape[1])
        if now[at.S_FOUND_SIZE] >= 0:
            return count
        found = self._out[:3, :count]
        found[:] = found[:, np.argsort(found[2])[::-1]]
        return self._deliver(count if k is None else min(count, k))

    def lookup(
        self, view: View, low: bytes, high: bytes, k: int | None, *, low_open: bool = False,
        high_open: bool = False,
    ) -> int:  # fmt: skip
        """Find the `k` newest records with a value in the range of an index: how many."""
        if k is None or k > _FEW:
            asked = view.search(low, high, low_open=low_open, high_open=high_open, k=k)
            return self._validate(asked, k)
        if low > high:
            return 0
        flags = view.ask(low, high, low_open=low_open, high_open=high_open)
        middle = len(low)
        self._low_view[:middle] = low
        self._low_view[middle : middle + len(high)] = high
        count: int = lookup.lookup(
            self._address, view.address, view.count, self._now[at.S_LOW], middle, len(high),
            flags, k, self._call_at, _FEW,
        )  # fmt: skip
        return count

    def _validate(self, asked: Any, k: int | None) -> int:
        """The `k` newest records of those that candidates (seqs, keys) lead to and that count."""
        now = self._now
        now[at.S_K] = _ALL if k is None else k
        count = now[at.S_OUT_COUNT] = 0
        for seqs, keys in asked:
            if count + len(seqs) > self._out.shape[1]:
                self._out_room(2 * (count + len(seqs)))
            seqs_at = address_of(seqs)
            count = records.newest(self._address, *keys.addresses, seqs_at)
            if count == k:
                break
        now[at.S_INDEX_BLOCKS] += asked.blocks
        return self._deliver(count)

    def _ask(self, field: str, low: bytes, high: bytes, opened: int) -> None:
        now = self._now
        self._low_view[: len(low)] = low
        self._high_view[: len(high)] = high
        now[at.S_LOW_SIZE], now[at.S_HIGH_SIZE] = len(low), len(high)
        now[at.S_FIELD], now[at.S_OPEN] = self._fields[field], opened

    def _deliver(self, count: int) -> int:
        """Have the documents of the first of what was found in the reply."""
        self._now[at.S_FOUND_SIZE] = records.deliver(self._address, count)
        return count

    def text(self, count: int) -> bytes:
        """The documents of what was found, as one JSON array."""
        if not count:
            return b"[]"
        size = self._now[at.S_FOUND_SIZE]
        if size > self._now[at.S_REPLY_CAP]:  # they found no room
            self._reply_room(2 * size)
            records.deliver(self._address, count)
        whole = bytes(self._reply_view[:size])
        if size > 1 << 24:
            self._reply_room(1 << 16)
        return whole

    def found(self, count: int) -> Found:
        """The documents of what was found, each with the number of its write."""
        if not count:
            return NOTHING
        whole = self.text(count)
        ends = self._out[3, :count].tolist()
        docs = [whole[start + 1 : end] for start, end in zip([0, *ends], ends, strict=False)]
        return Found(self._out[2, :count].copy(), docs)

    def estimate(self, field: str, low: bytes, high: bytes) -> Estimate:
        """What a search of an embedded field without k would look at."""
        kept = self._now[at.S_BLOOM_CHECKS]
        self._ask(field, low, high, 0)
        out, total = np.zeros(2, np.int64), np.zeros(2, np.int64)
        for reader in self.all[len(self.generations) :]:
            if field in reader.embedded:
                search.count_blocks(self._address, reader.address, out)
                total += out
        self._now[at.S_BLOOM_CHECKS] = kept
        rows = sum(generation.records.rows for generation in self.generations)
        sealed = sum(reader.rows for reader in self.all[len(self.generations) :])
        # What memory has of the range is not counted: as much as components have.
        share = int(total[1]) / sealed if sealed else 1.0
        return Estimate(float(total[1]) + share * rows, float(total[0]))

    # ---- facts -----------------------------------------------------------------------------

    def skipped(self, wanted: tuple[bytes, bytes]) -> NDArray[np.uint8]:
        """Which sources hold no value of the filter's field in a closed range."""
        ranges = [generation.wanted for generation in self.generations]
        ranges += [s.component.info.filters["wanted"] for s in self.all[len(ranges) :]]
        return np.array([not each.overlaps(*wanted) for each in ranges], np.uint8)

    def count_blocks(self, count: int) -> None:
        """Take note of blocks that were read elsewhere."""
        self._now[at.S_PRIMARY_BLOCKS] += count

    def counters(self) -> dict[str, int]:
        """What all searches so far have read."""
        now = self._now
        return {
            "primary_blocks": now[at.S_PRIMARY_BLOCKS],
            "index_blocks": now[at.S_INDEX_BLOCKS],
            "bloom_checks": now[at.S_BLOOM_CHECKS],
            "bloom_false": now[at.S_BLOOM_FALSE],
        }
