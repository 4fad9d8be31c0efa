"""The memory component of an index of places: the Python side of kernels/heap.py.

Owns the heap (one reserved address range, touched page by page, given back page by
page), the two tables and the windows, and grows or shrinks them when a kernel asks.
The addresses in `state` are what kernels see.

Not thread-safe: the owner's lock is held during every call, except `export`
(index/sealed.py), which reads a frozen window that nobody writes to.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable
from functools import partial
from operator import itemgetter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tideline.addresses import address_of
from tideline.kernels import heap, tables
from tideline.kernels import layout as at
from tideline.kernels.marks import enter_marks, list_marks
from tideline.lsm.pages import ask_for_huge_pages, fetch, reserve, zeros

__all__ = ["Budget", "Memory", "WindowFacts"]

Words = NDArray[np.int64]
_LEAST = 4 * at.SPARE  # segments an index cannot do without
_LARGE = 16 << 20  # bytes from which on a heap gains by huge pages more than it may waste
_GENERATIONS = 1 << 18  # of windows that table entries can tell apart, with as many to spare
_PAGE_SLACK = 64  # free segments kept warm: giving pages back and taking them again costs
_AHEAD = (8, 16)  # segments fetched before they are needed: at least, at most
_LARGE_TABLE = 1 << 20  # bytes from which on a table is made before it is needed


class WindowFacts(NamedTuple):
    """One window's numbers, read at one moment."""

    number: int
    state: int
    width: int
    limit: int
    event_until_high: int
    segments: int
    subs: int
    events: int
    told: int
    first_log: int
    slots: int


_FACTS = itemgetter(
    at.W_STATE, at.W_WIDTH, at.W_LIMIT, at.W_EVENT_UNTIL_HIGH, at.W_SEGMENTS, at.W_SUBS,
    at.W_EVENTS, at.W_TOLD, at.W_LOG, at.W_SLOT_COUNT,
)  # fmt: skip


class Budget:
    """Memory that several indexes share: each may take what the others leave.

    >>> Budget(64 << 20).segments
    179
    """

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        # The tables take about a third on top of what they point to.
        self.segments = max(int(size_bytes * 0.7) // (at.SEGMENT * 8), _LEAST)
        self.members: list[Memory] = []

    def left_for(self, member: Memory) -> int:
        """Segments a member may have now."""
        others = sum(other.segments_used for other in self.members if other is not member)
        return max(self.segments - others, _LEAST)


class Memory:
    """Windows of records in memory, found by place and by id."""

    def __init__(self, budget: Budget, *, mode: int, seeds: tuple[int, int]) -> None:
        segment_bytes = at.SEGMENT * 8
        self._budget = budget
        budget.members.append(self)
        self.limit = budget.segments
        # Marks left when conditions were checked must find room even when there is none, because
        # answers point into memory then: that is the headroom.
        self._headroom = self.limit // 4 + at.SPARE
        size = (self.limit + self._headroom) * segment_bytes
        self._map = reserve(size)
        self._huge = False
        self.heap: Words = np.frombuffer(self._map, dtype=np.int64)
        self.state: Words = np.zeros(at.E_WORDS, np.int64)
        self._free: Words = np.zeros(self.limit + self._headroom, np.int64)
        self._limbo: Words = np.zeros_like(self._free)
        self._windows: Words = np.zeros(at.WINDOWS * at.W_WORDS, np.int64)
        self._active: Words = np.zeros(at.WINDOWS, np.int64)
        self._searched: Words = np.zeros(2 * at.WINDOWS, np.int64)
        self._filters: Words = np.zeros(at.WINDOWS * at.FILTER_WORDS, np.int64)
        self._dir: Words = np.zeros(at.DIR_ENTRY * 1024, np.int64)
        self._ids: Words = np.zeros(2 * 1024, np.int64)
        self._first_gen = 1  # windows made before this have left nothing in the tables
        self._tombs: Words = np.zeros(4 * 64, np.int64)
        self._told: Words = np.zeros(0, np.int64)  # made when somebody first asks: kernels/told.py
        self._cold = 0  # free segments whose pages were given back (bottom of the stack)
        self._fetched = 0  # segments below this have their pages, or will have soon
        self._spares: dict[int, Words] = {}  # tables made before they are needed, by their words
        self._foreseen: dict[int, int] = {}  # by table: the size it had when a spare was thought of
        state = self.state
        state[at.E_HEAP] = address_of(self.heap)
        state[at.E_HEAP_WORDS] = len(self.heap)
        state[at.E_FREE] = address_of(self._free)
        state[at.E_LIMBO] = address_of(self._limbo)
        state[at.E_LIMIT] = self.limit
        state[at.E_WINDOWS] = address_of(self._windows)
        state[at.E_ACTIVE] = address_of(self._active)
        state[at.E_SEARCHED] = address_of(self._searched)
        state[at.E_FILTERS] = address_of(self._filters)
        state[at.E_DIR], state[at.E_DIR_CAP] = address_of(self._dir), 1024
        state[at.E_IDS], state[at.E_IDS_CAP] = address_of(self._ids), 1024
        state[at.E_DIR_FULL] = state[at.E_IDS_FULL] = 800
        state[at.E_TOMBS], state[at.E_TOMBS_CAP] = address_of(self._tombs), 64
        state[at.E_MODE] = mode
        state[at.E_SEED1], state[at.E_SEED2] = seeds
        state[at.E_NEXT_GEN] = 1
        state[at.E_LOG] = 1
        state[at.E_NEXT_EXPIRY] = at.FOREVER

    @property
    def address(self) -> int:
        """What kernels take."""
        return address_of(self.state)

    # ---- facts -----------------------------------------------------------------------

    def windows(self) -> list[WindowFacts]:
        """The windows there are, frozen ones included."""
        rows = self._windows.reshape(at.WINDOWS, at.W_WORDS)
        count = int(self.state[at.E_ACTIVE_COUNT])
        active = self._active[:count]
        pairs = zip(active.tolist(), rows[active].tolist(), strict=True)
        return [WindowFacts(number, *_FACTS(row)) for number, row in pairs]

    @property
    def segments_used(self) -> int:
        """Segments that belong to a window."""
        return int(self.state[at.E_HIGH] - self.state[at.E_FREE_COUNT])

    @property
    def segments_free(self) -> int:
        """Segments there are still to take."""
        return self.limit - self.segments_used

    @property
    def size_bytes(self) -> int:
        """Bytes in use: segments of windows and the tables."""
        tables = self._dir.nbytes + self._ids.nbytes + self._tombs.nbytes + self._told.nbytes
        tables += int(self.state[at.E_ACTIVE_COUNT]) * at.FILTER_WORDS * 8
        return self.segments_used * at.SEGMENT * 8 + tables

    @property
    def is_short(self) -> bool:
        """Whether it is time to seal something."""
        return self.segments_used * 5 > self.limit * 3

    # ---- what kernels ask for ----------------------------------------------------------

    def lacks_segments(self, more: int = 0) -> bool:
        """Whether a row may not find room in the heap, if it takes so many segments more."""
        return self.segments_free < at.SPARE + more

    def grow_tables(self, now: int, marks: int = 0) -> bool:
        """Rebuild whichever table is too full, with so many marks to come. False when none was."""
        state = self.state
        full = False
        old = state[at.E_NEXT_GEN] - self._first_gen > _GENERATIONS
        if old or state[at.E_DIR_USED] + 64 >= state[at.E_DIR_FULL]:
            self._rebuild_dir()
            full = True
        if old or state[at.E_IDS_USED] + 8 >= state[at.E_IDS_FULL]:
            self._rebuild_ids()
            full = True
        if (state[at.E_TOMBS_USED] + 8) * 5 >= state[at.E_TOMBS_CAP] * 4:
            self._rebuild_tombs(now)
            full = True
        cap = int(state[at.E_TOLD_CAP])
        if cap and (int(state[at.E_TOLD_USED]) + marks) * 5 >= cap * 3:
            self.index_told(marks)
            full = True
        if old:
            self._first_gen = int(state[at.E_NEXT_GEN])
        return full

    def freeze(self, number: int) -> None:
        """No more records go into this window: it is about to be sealed."""
        heap.set_state(self.address, number, at.FROZEN)

    def thaw(self, number: int) -> None:
        """Sealing failed: the window takes records again."""
        heap.set_state(self.address, number, at.OPEN)

    def drop(self, number: int) -> None:
        """Drop a window whole; its memory is free after `release`."""
        heap.drop_window(self.address, number)

    def release(self) -> None:
        """Free the memory of dropped windows: no answer points there any more."""
        if self.state[at.E_LIMBO_COUNT]:
            heap.release(self.address)

    def expired(self, now: int) -> list[WindowFacts]:
        """Windows in which nothing is valid any more."""
        return [w for w in self.windows() if w.limit <= now and w.state == at.OPEN]

    def trim(self, keep: int | None = None) -> None:
        """Give free pages back to the operating system and shrink what is mostly empty.

        `keep` free segments stay warm: the next windows will want them.
        """
        self.release()
        free = int(self.state[at.E_FREE_COUNT])
        self._cold = min(self._cold, free)
        if keep is None:
            keep = min(_PAGE_SLACK, self.segments_used // 4)
        if free - self._cold > keep:
            size = at.SEGMENT * 8
            for segment in self._free[self._cold : free - keep]:
                self._map.madvise(mmap.MADV_DONTNEED, int(segment) * size, size)
            self._cold = free - keep
        state = self.state
        empty = self.segments_used * 8 <= state[at.E_HIGH]
        high = int(state[at.E_HIGH])
        if empty and self._fetched > high:
            size = at.SEGMENT * 8
            self._map.madvise(mmap.MADV_DONTNEED, high * size, (self._fetched - high) * size)
            self._fetched = 0
            self._spares.clear()
        if empty and (state[at.E_DIR_CAP] > 4096 or state[at.E_IDS_CAP] > 4096):
            if self._places * 16 < state[at.E_DIR_CAP] > 4096:
                self._rebuild_dir()
            if self._named * 16 < state[at.E_IDS_CAP] > 4096:
                self._rebuild_ids()

    def put_tombs(self, seqs: Words, ended: Words, until: Words, now: int) -> None:
        """Load the tombs of sealed components."""
        for seq, end, limit in zip(seqs.tolist(), ended.tolist(), until.tolist(), strict=True):
            if (self.state[at.E_TOMBS_USED] + 8) * 5 >= self.state[at.E_TOMBS_CAP] * 4:
                self._rebuild_tombs(now)
            tables.bury(self.address, seq, end, limit)

    def tombs(self) -> dict[int, int]:
        """Cancelled sealed subscriptions: seq -> seq of the cancel."""
        table = self._tombs.reshape(-1, 4)
        used = table[(table[:, 0] != 0) & (table[:, 1] != at.FOREVER)]
        return dict(zip((used[:, 0] - 1).tolist(), used[:, 1].tolist(), strict=True))

    def index_told(self, more: int = 0) -> None:
        """Make the table of marks anew, with room for `more`."""
        windows = [window for window in self.windows() if window.told]
        marks = sum(window.told for window in windows) + more
        cap = max(1024, 1 << (marks * 5 // 2 + 16).bit_length())
        if cap == len(self._told):
            fresh = self._told
            fresh[:] = 0
        else:
            fresh = zeros(cap)
        state, address = self.state, address_of(fresh)
        self._told, state[at.E_TOLD], state[at.E_TOLD_CAP] = fresh, address, cap
        state[at.E_TOLD_USED] = 0
        listed = np.empty(max([window.told for window in windows], default=0), np.int64)
        for window in windows:
            count = list_marks(self.address, window.number, listed)
            enter_marks(self.address, listed, count)

    def lacks_marks(self, more: int) -> bool:
        """Whether a table of all marks, with so many to come, would take too much memory.

        Then some of those in memory must be sealed. They lie there in less room than in a table.
        """
        marks = sum(window.told for window in self.windows())
        return marks > 0 and marks + more > max(self._budget.size_bytes // 96, 1 << 14)

    def share(self) -> None:
        """Take as limit what the other members of the budget leave."""
        if not self._huge and self.state[at.E_HIGH] * at.SEGMENT * 8 > _LARGE:
            self._huge = True
            ask_for_huge_pages(self._map)
        self.limit = self._budget.left_for(self)
        self.state[at.E_LIMIT] = self.limit

    def ahead(self) -> list[Callable[[], None]]:
        """What to do beside the writers now, so that they find memory ready: any thread, in order.

        Cheap when there is nothing to do: call it often.
        """
        state = self.state
        jobs: list[Callable[[], None]] = []
        high = int(state[at.E_HIGH])
        ahead = min(max(high // 8, _AHEAD[0]), _AHEAD[1])
        if 2 * _AHEAD[0] <= high < self.limit and high + ahead // 2 > self._fetched:
            first, size = max(high, self._fetched), at.SEGMENT * 8
            self._fetched = min(high + ahead, self.limit + self._headroom)
            start = int(state[at.E_HEAP]) + first * size
            jobs.append(partial(fetch, start, (self._fetched - first) * size))
        dir_words = self._foreseen_words(at.E_DIR_CAP, at.E_DIR_USED, at.E_DIR_FULL, at.DIR_ENTRY)
        ids_words = self._foreseen_words(at.E_IDS_CAP, at.E_IDS_USED, at.E_IDS_FULL, 2)
        jobs += [partial(self._make_spare, count) for count in (dir_words, ids_words) if count]
        return jobs

    def _foreseen_words(self, table: int, used: int, full: int, entry: int) -> int:
        """The words of a large table that will soon be needed in place of a smaller one, once."""
        state = self.state
        cap = int(state[table])
        nearly = state[used] * 10 > state[full] * 9
        if not nearly or cap * entry * 8 < _LARGE_TABLE or self._foreseen.get(table) == cap:
            return 0
        self._foreseen[table] = cap
        live = self._places + 128 if table == at.E_DIR_CAP else self._named + 64
        later, _ = _capacity(live, int(state[used]))
        return later * entry if later > cap else 0

    def _make_spare(self, count: int) -> None:
        spare = zeros(count)
        fetch(address_of(spare), spare.nbytes)
        if count not in (len(self._dir), len(self._ids)):  # else the table grew without it
            self._spares[count] = spare

    def _table(self, count: int) -> Words:
        """A table of zeros: the spare one, if there is one of that size."""
        found = self._spares.pop(count, None)
        self._spares.clear()  # what was foreseen did not come
        return zeros(count) if found is None else found

    def close(self) -> None:
        """Leave the budget to the others."""
        self._budget.members.remove(self)

    def allow_headroom(self, allowed: bool) -> None:
        """Let the heap grow past its limit for a moment."""
        self.state[at.E_LIMIT] = self.limit + (self._headroom if allowed else 0)

    # ---- tables ---------------------------------------------------------------------------

    @property
    def _places(self) -> int:
        """Entries of the directory that are not stale."""
        return sum(window.slots for window in self.windows())

    @property
    def _named(self) -> int:
        """Entries of the id table that are not stale, or a few more (tombs count as well)."""
        return sum(window.subs + window.events for window in self.windows())

    def _rebuild_dir(self) -> None:
        state = self.state
        cap, full = _capacity(self._places + 128, int(state[at.E_DIR_USED]))
        if cap != state[at.E_DIR_CAP]:
            old, self._dir = self._dir, self._table(at.DIR_ENTRY * cap)
            state[at.E_DIR], state[at.E_DIR_CAP] = address_of(self._dir), cap
            tables.rebuild_dir(self.address, address_of(old), len(old) // at.DIR_ENTRY)
        else:
            tables.sweep_dir(self.address)
        state[at.E_DIR_FULL] = full

    def _rebuild_ids(self) -> None:
        state = self.state
        cap, full = _capacity(self._named + 64, int(state[at.E_IDS_USED]))
        if cap != state[at.E_IDS_CAP]:
            old, self._ids = self._ids, self._table(2 * cap)
            state[at.E_IDS], state[at.E_IDS_CAP] = address_of(self._ids), cap
            tables.rebuild_ids(self.address, address_of(old), len(old) // 2)
        else:
            tables.sweep_ids(self.address)
        state[at.E_IDS_FULL] = full

    def _rebuild_tombs(self, now: int) -> None:
        cap, _ = _capacity(int(self.state[at.E_TOMBS_USED]) + 16, 0)
        old, self._tombs = self._tombs, np.zeros(4 * cap, np.int64)
        self.state[at.E_TOMBS], self.state[at.E_TOMBS_CAP] = address_of(self._tombs), cap
        tables.rebuild_tombs(self.address, address_of(old), len(old) // 4, now)


def _capacity(live: int, used: int) -> tuple[int, int]:
    """A power of two for `live` entries, and how many make the table full.

    One that only grows is made 0.6 full at most and may become 0.8 full, to save memory. One
    whose entries go stale as windows are dropped is searched more than it grows: 0.35 and 0.7.
    """
    stale = live * 5 < used * 4
    cap = max(64, 1 << (live * 3 if stale else live * 5 // 3).bit_length())
    return cap, cap * 7 // 10 if stale else cap * 4 // 5
