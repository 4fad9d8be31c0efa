"""Buffers to read with: what kernels are asked with, and where they put what they find.

    get         one key -> its document            one call of a kernel
    search      a range of an embedded field       one call of a kernel for the k newest
    lookup      a range of a stand-alone index     one call of a kernel for the k newest
    found       what either has found, as documents with the numbers of their writes
    text        the same as one JSON array

A `Reader` is for one call at a time: `Readers` has those that are idle. Whoever reads takes one,
or a new one if there is none, and gives it back; so there are as many as calls that ran at once.
One that is not given back, because an exception cut the call, is no loss: nothing else is lost
with it. A buffer and its address are replaced in one step.

A reader is told with every question what to read (`Now`, view.py). It has words of its own for the
active memory, which end where its view does. It remembers what it was set up for, and holds nothing
of that alive while it is idle: an idle reader must not keep old memories and deleted files. What
it reads is held by the caller, who holds the `Now`.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tideline.addresses import address_of
from tideline.documents.types import Found
from tideline.documents.view import Now
from tideline.index.entryview import Places, View
from tideline.index.kind import Chunk, Estimate
from tideline.index.ranges import RangeAsk
from tideline.index.sorted import BLOCK_BYTES, Gathered, gather
from tideline.index.texts import Texts
from tideline.kernels.documents import candidates, lookup, newest, records, search
from tideline.kernels.documents import layout as at

__all__ = ["NOTHING", "Reader", "Readers"]

Words = NDArray[np.int64]
_KEY_ROOM = 4096  # a key, or both ends of a range
_ALL = 1 << 62
_SOURCES = [at.S_SOURCES, at.S_SOURCE_COUNT]
_REPLY = [at.S_REPLY, at.S_REPLY_CAP]
_OUT = [at.S_OUT_SOURCES, at.S_OUT_ROWS, at.S_OUT_SEQS, at.S_ENDS, at.S_SPARE, at.S_OUT_CAP]
_FEW = 1024
_MANY = 1 << 17  # so many that room for them is not kept
_COUNTED = {
    "primary_blocks": at.S_PRIMARY_BLOCKS, "index_blocks": at.S_INDEX_BLOCKS,
    "bloom_checks": at.S_BLOOM_CHECKS, "bloom_false": at.S_BLOOM_FALSE,
}  # fmt: skip
NOTHING = Found(np.zeros(0, np.int64), [])


class Readers:
    """The readers of one collection; safe from any thread."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self.idle: list[Reader] = []
        self.give = self.idle.append
        self._states: list[Words] = []  # of all there ever were

    def take(self) -> Reader:
        """A reader, for one call at a time; `give` it back."""
        try:
            return self.idle.pop()
        except IndexError:
            return self.make()

    def make(self) -> Reader:
        """A new reader, when none is idle."""
        state: Words = np.zeros(at.S_WORDS, np.int64)
        self._states.append(state)
        return Reader(state, self._seed)

    def counters(self) -> dict[str, int]:
        """What all searches so far have read."""
        states = list(self._states)
        return {
            name: sum(int(state[place]) for state in states) for name, place in _COUNTED.items()
        }


class Reader:
    """The state that kernels read, and the buffers it points to."""

    FEW = _FEW
    """So many are looked up in one call of a kernel."""

    def __init__(self, state: Words, seed: int) -> None:
        self._state = state
        # reads and writes faster than the array itself
        self._words: Any = memoryview(self._state)  # type: ignore[arg-type]
        self._address = address_of(self._state)
        self._texts = np.zeros((3, _KEY_ROOM), np.uint8)
        self._key_view, self._low_view, self._high_view = (
            memoryview(row) for row in self._texts  # type: ignore[arg-type]
        )  # fmt: skip
        state = self._state
        state[at.S_SEED] = seed
        state[at.S_KEY], state[at.S_LOW], state[at.S_HIGH] = (address_of(r) for r in self._texts)
        self._out: Words = np.zeros((5, 0), np.int64)  # sources, rows, seqs; ends of documents
        self._reply: NDArray[np.uint8]
        self._reply_view: Any
        self._reply_room(1 << 16)
        self._out_room(_FEW)
        self._call: Words = np.empty(newest.CALL_WORDS + 4 * _FEW + 1, np.int64)
        self._call_at = address_of(self._call)
        self._steps: Words = np.empty(candidates.STEPS_WORDS, np.int64)
        self._counts: Words = np.empty(at.COUNTS, np.int64)
        state[at.S_STEPS], state[at.S_COUNTS] = address_of(self._steps), address_of(self._counts)
        self._sources: Any = _nothing  # a weak reference: those that it is set up for,
        self._limit = -1  # and the limit
        self._ready: set[str] = set()  # indexes that it need not look after again until then
        self._own: Words = np.zeros(at.X_WORDS, np.int64)  # of the active memory
        self._active: Any = memoryview(self._own)  # type: ignore[arg-type]
        self._table: Words = np.zeros(0, np.int64)  # addresses of all sources
        self._places: dict[str, Places] = {}  # of stand-alone indexes

    def _reply_room(self, size: int) -> None:
        reply = np.empty(size, np.uint8)
        view = memoryview(reply)  # type: ignore[arg-type]
        facts = [address_of(reply), size]
        # One step: no exception comes between assignments without a call.
        self._state[_REPLY], self._reply, self._reply_view = facts, reply, view

    def _out_room(self, count: int) -> None:
        """Room for what a search finds; what it has so far stays."""
        out = np.zeros((5, count), np.int64)
        out[:, : self._out.shape[1]] = self._out
        facts = [*(address_of(row) for row in out), count]
        self._state[_OUT], self._out = facts, out  # one step, as above

    def _set_up(self, now: Now) -> None:
        """Read something else. No two `Now` have the same sources and the same limit."""
        sources, rows, limit, table = now
        if self._sources() is not sources:
            self._own[:] = sources.facts[0]
            self._table = np.array([address_of(self._own), *sources.addresses[1:]], np.int64)
            self._state[_SOURCES] = [address_of(self._table), len(self._table)]
            self._places.clear()
            self._sources = weakref.ref(sources)
        active = self._active
        active[at.X_ROWS], active[at.X_SEQ_HIGH] = rows, limit - 1
        active[at.X_TABLE], active[at.X_TABLE_CAP] = table[1], table[2]
        # Of what was written since, too: keys are in the range sooner than in a view.
        active[at.X_LOW], active[at.X_HIGH] = sources.active.key_range()
        self._words[at.S_LIMIT] = self._limit = limit
        self._ready.clear()

    def judge_at(self, time: int) -> None:
        """Let what expires up to a time be gone in what is asked next; 0: nothing is."""
        self._words[at.S_NOW] = time

    @property
    def lasts(self) -> bool:
        """Whether what `get` found has no time at which it expires."""
        return self._words[at.S_UNTIL] == 0  # type: ignore[no-any-return]

    # ---- by key ----------------------------------------------------------------------------

    def get(self, now: Now, key: bytes) -> bytes | None:
        """The newest version of a record, or None."""
        size = len(key)
        if size > _KEY_ROOM:
            return None
        if self._limit != now[2] or self._sources() is not now[0]:
            self._set_up(now)
        self._key_view[:size] = key
        state = self._words
        state[at.S_KEY_SIZE] = size
        length = records.find_one(self._address)
        if length < 0:
            return None
        if length <= state[at.S_REPLY_CAP]:
            return bytes(self._reply_view[:length])
        return ctypes.string_at(state[at.S_FOUND], length)

    def get_many(self, now: Now, keys: Texts) -> list[bytes | None]:
        """The newest versions of many records, None for each that is not there."""
        there, made = self._find(now, keys)
        out: list[bytes | None] = [None] * keys.count
        for place, doc in zip(there.tolist(), made.docs.to_list(), strict=True):
            out[place] = doc
        return out

    def fetch(self, now: Now, keys: Texts) -> Found:
        """The newest versions of many records, without those that are not there."""
        _, made = self._find(now, keys)
        return Found(made.seqs, made.docs.to_list(), made.keys.to_list())

    def untils(self, now: Now, keys: Texts) -> Words:
        """When records expire; 0 for never, and for what is not there."""
        places, rows = self._places_of(now, keys)
        found = np.zeros(keys.count, np.int64)
        for number in np.unique(places[places >= 0]).tolist():
            mine = np.flatnonzero(places == number)
            found[mine] = now[0].all[number].untils_of(rows[mine])
        return found

    def _find(self, now: Now, keys: Texts) -> tuple[Words, Gathered]:
        """Which keys have a record, and the records."""
        places, rows = self._places_of(now, keys)
        there = np.flatnonzero(places >= 0)
        return there, gather(self._table, places[there], rows[there])

    def _places_of(self, now: Now, keys: Texts) -> tuple[Words, Words]:
        """For each key the source of its record, -1 for none, and the row."""
        if self._limit != now[2] or self._sources() is not now[0]:
            self._set_up(now)
        places, rows = np.empty((2, keys.count), np.int64)
        records.find_many(self._address, *keys.addresses, places, rows)
        return places, rows

    # ---- by index --------------------------------------------------------------------------

    def search(
        self, now: Now, field: str, ask: RangeAsk, k: int | None,
        skipped: NDArray[np.uint8] | None,
    ) -> int:  # fmt: skip
        """Find the `k` newest records with a value of an embedded field in the range: how many."""
        if self._limit != now[2] or self._sources() is not now[0]:
            self._set_up(now)
        sources = now[0]
        if field not in self._ready:
            for memory in sources.memories:
                memory.catch_up(field, sources.rows_of(memory, now[1]))
            self._ready.add(field)
        opened = ask.low_open * at.LOW_OPEN | ask.high_open * at.HIGH_OPEN
        self._ask(sources.fields[field], ask.low, ask.high, opened)
        state = self._words
        state[at.S_K] = _ALL if k is None else k
        state[at.S_SKIPPED] = 0 if skipped is None else address_of(skipped)
        state[at.S_OUT_COUNT] = state[at.S_AT_SOURCE] = state[at.S_AT_BLOCK] = 0
        count: int
        while (count := lookup.lookup_embedded(self._address)) < 0:
            self._out_room(4 * self._out.shape[1])
        return count

    def lookup(self, now: Now, field: str, view: View, ask: RangeAsk, k: int) -> int:
        """Find the `k` newest records with a value in the range of an index: how many.

        At most `FEW`: one call of a kernel.
        """
        if self._limit != now[2] or self._sources() is not now[0]:
            self._set_up(now)
        low, high, low_open, high_open, _ = ask
        if low == high and not (low_open or high_open):  # the short way
            flags = view.point
        elif low > high:
            return 0
        else:
            flags = view.ask(low, high, low_open=low_open, high_open=high_open)
        places, held = self._places.get(field), None
        if places is None or places.view() is not view:
            places = self._places[field] = Places(view)
            self._ready.discard(field)
        if field not in self._ready or not flags & newest.POINT:
            held = places.follow(view, flags)
            self._ready.add(field)
        if self._words[at.S_OUT_CAP] < k:
            self._out_room(k)
        middle = len(low)
        self._low_view[:middle] = low
        self._low_view[middle : middle + len(high)] = high
        count: int = lookup.lookup(
            self._address, places.address, places.count, self._words[at.S_LOW], middle, len(high),
            flags, k, self._call_at, _FEW,
        )  # fmt: skip
        del held  # what was ordered is read until here
        return count

    def follow(
        self, now: Now, asked: Iterable[Chunk], k: int | None, newest_first: bool,
        texts: bool = True,
    ) -> int:  # fmt: skip
        """Find the `k` newest records that candidates lead to and that count: how many."""
        self.begin(now, k if newest_first else None)
        for seqs, keys in asked:
            state = self.room_for(len(seqs))
            count = candidates.newest(state, *keys.addresses, address_of(seqs))
            if count == k and newest_first:
                break
        self._words[at.S_INDEX_BLOCKS] += getattr(asked, "blocks", 0)
        return self.settle(k, texts)

    def begin(self, now: Now, k: int | None = None) -> None:
        """Nothing is found yet; `k` is how many are wanted of what comes newest first."""
        if self._limit != now[2] or self._sources() is not now[0]:
            self._set_up(now)
        self._words[at.S_K] = _ALL if k is None else k
        self._words[at.S_OUT_COUNT] = 0

    def room_for(self, more: int) -> int:
        """The state of kernels, with room for so many more of what they find."""
        count = self._words[at.S_OUT_COUNT] + more
        if count > self._out.shape[1]:
            self._out_room(2 * count)
        return self._address

    def settle(self, k: int | None, texts: bool) -> int:
        """Put what was found in order, each once, and have the texts of the `k` newest.

        How many there are. Without `texts`, nothing of them is read that `text` or `found` could
        give.
        """
        count: int = candidates.settle(self._address, _ALL if k is None else k, texts)
        return count

    def _ask(self, field: int, low: bytes, high: bytes, opened: int) -> None:
        state = self._words
        self._low_view[: len(low)] = low
        self._high_view[: len(high)] = high
        state[at.S_LOW_SIZE], state[at.S_HIGH_SIZE] = len(low), len(high)
        state[at.S_FIELD], state[at.S_OPEN] = field, opened

    def text(self, count: int) -> bytes:
        """The documents of what was found, as one JSON array."""
        if not count:
            return b"[]"
        return bytes(self._delivered(self._words[at.S_FOUND_SIZE], count, 1))

    def ends(self, count: int) -> Words:
        """Where each document of what was found ends in `text`; before, where the first begins."""
        found = np.zeros(count + 1, np.int64)
        found[1:] = self._out[3, :count]
        return found

    def _delivered(self, size: int, count: int, listed: int) -> Any:
        """What is in the reply, or has found no room there: so many bytes."""
        if size > self._words[at.S_REPLY_CAP]:
            self._reply_room(2 * size)
            records.deliver(self._address, count, listed)
        whole = self._reply_view[:size]
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
        found = Found(self._out[2, :count].copy(), docs)
        if count > _MANY:
            self._out = self._out[:, :0]
            self._out_room(_FEW)
        return found

    def columns(self, asked: Chunk, count: int) -> Gathered:
        """What `follow` has found among candidates, each given once, as columns: copies."""
        seqs, keys = self._out[2, :count].copy(), asked.keys
        if count < len(asked.seqs):
            keys = keys.take(np.flatnonzero(np.isin(asked.seqs, seqs, assume_unique=True)))
        size = records.deliver(self._address, count, 0)
        docs = np.frombuffer(self._delivered(size, count, 0), np.uint8).copy()
        offsets = np.zeros(count + 1, np.int64)
        offsets[1:] = self._out[3, :count]
        return Gathered(keys, seqs, np.zeros(count, np.uint8), Texts(offsets, docs))

    def estimate(self, now: Now, field: str, low: bytes, high: bytes) -> Estimate:
        """What a search of an embedded field without k would look at."""
        sources, active, *_ = now
        kept = self._words[at.S_BLOOM_CHECKS]
        self._ask(sources.fields[field], low, high, 0)
        out, total = np.zeros(2, np.int64), np.zeros(2, np.int64)
        addresses = sources.addresses[len(sources.memories) :]
        for reader, address in zip(sources.readers, addresses, strict=True):
            if field in reader.embedded:
                search.count_blocks(self._address, address, out)
                total += out
        self._words[at.S_BLOOM_CHECKS] = kept
        rows = sum(sources.rows_of(memory, active) for memory in sources.memories)
        sealed = sum(reader.rows for reader in sources.readers)
        # What memory has of the range is not counted: as much as components have.
        share = int(total[1]) / sealed if sealed else 1.0
        entries = float(total[1]) + share * rows
        count = rows + sealed
        size = sum(generation.size_bytes for generation in sources.generations)
        size += sum(reader.component.info.size_bytes for reader in sources.readers)
        looked = float(total[0]) * count / max(size / BLOCK_BYTES, 1.0)
        return Estimate(entries, float(total[0]), max(looked, 1.0))

    # ---- facts -----------------------------------------------------------------------------

    def count_blocks(self, count: int) -> None:
        """Take note of blocks that were read elsewhere."""
        self._words[at.S_PRIMARY_BLOCKS] += count


def _nothing() -> None:
    """What a weak reference to nothing says."""
    return
