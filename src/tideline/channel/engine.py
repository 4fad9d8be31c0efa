"""The engine of a channel: memory, components, log and recovery behind one lock.

    rows -> run -> answers          one call of a kernel; what it asks for is served here
            |-> log                 one frame a call, before anyone hears of the answers
            `-> take_back           when the log refuses

Layout `dual` keeps both sides of a place in one index; `two` keeps an index a side;
`poll` is `dual` without subscriptions. The kernels are the same: they are given two
engines, which may be one.

Threads: `lock` is held by every method that names it. Sealing and merging write their
files in the background worker without the lock and take it only to install. A writer
that runs out of memory waits for the file, never for the lock, so there is no cycle.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tideline.channel.beside import Beside
from tideline.channel.call import Call
from tideline.channel.codec import Row, read_rows, write_row
from tideline.channel.lineage import Lineage
from tideline.channel.notes import N_PROLONGED, Mark, Writers
from tideline.clock import FOREVER
from tideline.errors import Closed, TidelineError, Unavailable
from tideline.index.memory import Budget, Memory, WindowFacts
from tideline.index.sealed import PostingsKind, SealedReader
from tideline.kernels import export, ghosts
from tideline.kernels import layout as at
from tideline.kernels import rows as kernel
from tideline.lsm.backup import begin_copy
from tideline.lsm.frames import HEADER_BYTES
from tideline.lsm.log import Position
from tideline.lsm.policy import Window
from tideline.lsm.store import Store
from tideline.lsm.tree import Tree
from tideline.lsm.worker import Worker

__all__ = ["Engine", "Side"]

Words = NDArray[np.int64]
_SMALL_LOG = 64 << 10
_FRAMED_WORDS = 1 << 16
_LOGGED = Position(0, 0)  # stands for a position nobody will wait for
_LINGER = 4  # widths of a window that it may stay after its end, see `_drop_windows`
_MANY_WORDS = 1 << 15  # of rows that are logged beside the caller's own work
_CHECK_EVERY = 256  # operations between two looks at memory, log and components
_WORTH = 8  # what a seal must free: such a part of the memory in use, if any window has it


class Side:
    """One index: its memory windows and its sealed components."""

    def __init__(self, memory: Memory, tree: Tree[SealedReader], kind: PostingsKind) -> None:
        self.memory = memory
        self.tree = tree
        self.kind = kind
        self.seal: Seal | None = None
        self._table: Words = np.zeros(at.D_WORDS, np.int64)

    def refresh(self) -> None:
        """Tell the kernels which components there are."""
        readers = self.tree.readers
        if readers:
            self._table = np.concatenate([reader.row for reader in readers])
        self.memory.state[at.E_COMPONENTS] = self._table.ctypes.data
        self.memory.state[at.E_COMPONENT_COUNT] = len(readers)


class Seal:
    """A window on its way to disk."""

    def __init__(self, side: Side, window: WindowFacts) -> None:
        self.side = side
        self.window = window
        self.written = threading.Event()
        self.reader: SealedReader | None = None
        self.error: BaseException | None = None
        self.installed = False

    def write(self) -> None:
        """Export and write the component; takes no lock."""
        try:
            product = self.side.kind.seal(self.side.memory, self.window)
            if product.rows:
                self.reader = self.side.tree.write(product)
        except BaseException as error:
            self.error = error
        finally:
            self.written.set()


class Engine:
    """Everything a channel keeps, in memory and on disk."""

    def __init__(
        self, folder: Path, facts: dict[str, Any], *, mode: int, layout: str, budget: Budget,
        durability: str, logged: bool, segment_bytes: int = 64 << 20,
    ) -> None:  # fmt: skip
        self.lock = threading.Lock()
        self.store = Store(
            folder, durability=durability, logged=logged, segment_bytes=segment_bytes
        )
        if self.store.is_new:
            self.store.facts = facts
        self.facts = self.store.facts
        self._append_framed = self.store.log.append_framed
        self.call = Call()
        self.state = self.call.state
        self.facts_now = self.call.view
        # A single call's row stands here, with room before it for the header of its frame.
        framed = np.zeros(_FRAMED_WORDS, np.int64)
        self.own_rows = framed[HEADER_BYTES // 8 :]
        self._own_frame = memoryview(framed).cast("B")  # type: ignore[arg-type]
        self.own_view = self._own_frame[HEADER_BYTES:]
        self.call.use_rows(self.own_rows)
        self.address = self.state.ctypes.data
        self.answers = int(self.facts.get("answers", 0))
        # How long the log is kept to be read, by the channel's time; 0 for not at all.
        self.journal_us = int(self.facts.get("journal_us", 0))
        self.writers = Writers(self.facts.get("writers", []))
        self.lineage = Lineage(self.facts.get("lineage", []))
        self._ends: dict[int, int] = dict(self.facts.get("log_ends", []))  # by log segment: time
        self._heavy_log = max(4 * segment_bytes, 2 * budget.size_bytes)
        self._since_check = 0
        self._busy = False  # a background check is on its way
        self._recovering = True
        self._limbo = False  # whether dropped windows wait for their memory to be freed
        self._closed = False
        self._asking, self._asks = (0, 0, 0), 0  # the row that last asked for memory, and how often
        self._late_ghosts: list[bytes] = []
        self._aside: Call | None = None  # for questions in the middle of a call
        self._beside: Beside[Position | None] = Beside("tideline-log")
        self.state[at.C_NEWEST] = self.facts.get("newest", -FOREVER)
        self.state[at.C_NEXT_SEQ] = self.facts.get("next_seq", 1)
        seed = self.facts["seeds"]
        names = ("subscriptions", "events") if layout == "two" else ("dual",)
        kind = PostingsKind(shaped=mode == 1)
        self.sides = []
        self.worker = Worker("tideline-" + folder.name)
        try:
            for name in names:
                memory = Memory(budget, mode=mode, seeds=(seed[0], seed[1]))
                tree = Tree(
                    folder, name, kind, Window(max_bytes=max(32 << 20, budget.size_bytes // 2)),
                    self.store.next_component, sync=self.store.sync,
                )  # fmt: skip
                self.store.attach(tree, self.newest)
                side = Side(memory, tree, kind)
                side.refresh()
                for reader in tree.readers:
                    memory.put_tombs(*reader.tombs(), now=self.newest)
                self.sides.append(side)
            self.state[at.C_SUBS] = self.sides[0].memory.address
            self.state[at.C_EVENTS] = self.sides[-1].memory.address
            self._recover()
            if self.store.is_new or self.store.is_outdated:
                self.store.commit(self.lock, self._snapshot)
        except BaseException:
            self.worker.close()
            self.store.close()
            raise

    @property
    def newest(self) -> int:
        """The newest time a write has brought; -FOREVER before the first."""
        return int(self.state[at.C_NEWEST])

    def now(self, clock_now: int) -> int:
        """The channel's time: the clock's, or what writes have already seen if that is later."""
        newest = int(self.state[at.C_NEWEST])
        return clock_now if clock_now > newest else newest

    # ---- running rows (the lock is held) -------------------------------------------------

    def ask(self, words: int) -> int:
        """Run rows that store nothing. Returns what the kernel returned."""
        result = int(kernel.run_rows(self.address, words, True))
        while result & 0xFF:
            self._serve(result & 0xFF)
            result = int(kernel.run_rows(self.address, words, False))
        return result

    def write(
        self, words: int, count: int, part: Callable[[int], bytes], mark: Mark | None = None
    ) -> Position | None:
        """Run rows that store something, and log them. Returns where.

        Answers point into memory. Windows that expire in the middle of a call are dropped but
        stay readable until the next; before anything is sealed, what has been done so far is
        handed to `part` (with the kernel's result) and logged with the notes it returns, and
        the rest is a new part. A failure takes back the rows of its part.
        """
        if self._closed:
            raise Closed("the database was closed")
        self._since_check += count
        self._before_rows()
        state = self.state
        seq = state[at.C_NEXT_SEQ]
        result = int(kernel.run_rows(self.address, words, True))
        first_row = first_word = 0
        position = None
        beside = self._beside
        try:
            while result & 0xFF:
                status = result & 0xFF
                if status == at.NEED_MEMORY and state[at.C_ROW] > first_row and self._short():
                    limit = int(state[at.C_POS])
                    position = self._log_part(first_word, limit, part(result), mark) or position
                    first_row, first_word = int(state[at.C_ROW]), limit
                    kernel.begin_part(self.address)
                self._serve(status)
                result = int(kernel.run_rows(self.address, words, False))
            if state[at.C_NEXT_SEQ] == seq:
                first_word = words  # nothing was stored: at most a note to log
            if words - first_word >= _MANY_WORDS and not self.journal_us:
                # No note of the answers is logged: they are taken while the rows are.
                beside.begin(partial(self._log_part, first_word, words, b"", mark))
                part(result)
                position = beside.result() or position
            else:
                position = self._log_part(first_word, words, part(result), mark) or position
        except BaseException:
            if beside.failed():  # what is in the log stays, though nobody got its answers
                kernel.take_back(self.address, first_word, first_row, int(state[at.C_ROW]))
            raise
        return position

    def _log_part(self, first: int, limit: int, notes: bytes, mark: Mark | None) -> Position | None:
        if mark is None:
            return self._log(first, limit, notes)
        landed = mark.landed(int(self.state[at.C_ROW]))
        position = self._log(first, limit, notes + mark.note(landed))
        self.writers.note(mark.writer, mark.number, landed)
        return position

    def _before_rows(self) -> None:
        """Look after what is due. Not after the rows: answers point at components by number."""
        if (
            self._beside.work is not None
        ):  # a caller was torn away: the frame is whole before the next begins
            self._beside.failed()
        if self._since_check >= _CHECK_EVERY:
            self._since_check = 0
            self._look_after()
        if self._limbo:
            self._limbo = False
            for side in self.sides:
                side.memory.release()
                # After a burst most of the memory is free: half of it may stay warm.
                side.memory.trim(max(64, side.memory.segments_used))

    def write_one(
        self, words: int, note: Callable[[int], bytes] | None = None
    ) -> tuple[int, Position | None]:
        """`write` for the one row that stands in `own_rows`: the short way.

        `note` is asked for a note to the result before the row is logged.
        """
        if self._closed:
            raise Closed("the database was closed")
        self._since_check += 1
        if self._limbo or self._since_check >= _CHECK_EVERY or self._beside.work is not None:
            self._before_rows()
        result: int = kernel.run_one(self.address, words, True)
        try:
            while result & 0xFF:
                self._serve(result & 0xFF)
                result = kernel.run_one(self.address, words, False)
            if result & at.FRAMED and note is None:
                self._append_framed(self._own_frame[: words * 8 + HEADER_BYTES])
                return result, self.store.log.last if self.store.sync else _LOGGED
            if not result & at.STORED:
                return result, None
            return result, self._log(0, words, note(result) if note is not None else b"")
        except BaseException:
            kernel.take_back(self.address, 0, 0, self.facts_now[at.C_ROW])
            raise

    def before(self, event: Row, now: int) -> Row | None:
        """The event that comes last before one at exactly its place, of those valid at `now`.

        A call of its own: the answers of the running one stay as they are.
        """
        if self._aside is None:
            self._aside = Call()
            self._aside.state[[at.C_SUBS, at.C_EVENTS]] = self.state[[at.C_SUBS, at.C_EVENTS]]
        call = self._aside
        view = memoryview(call.rows).cast("B")  # type: ignore[arg-type]
        words = write_row(
            view, at.FIND, at.R_SAME, 0, now, -FOREVER, event.first + 1, event.place, b"", b"", b""
        )
        call.state[at.C_AFTER] = -1
        call.state[at.C_EPOCH] = self.state[at.C_EPOCH]  # stamps of both must differ
        address = call.state.ctypes.data
        result = int(kernel.run_rows(address, words, True))
        while result & 0xFF:
            if result & 0xFF == at.NEED_SCRATCH:
                call.grow_scratch()
            else:
                call.grow_output()
            result = int(kernel.run_rows(address, words, False))
        self.state[at.C_EPOCH] = call.state[at.C_EPOCH]
        if not result >> 16:
            return None
        found = read_rows(self.pack(at.EVENTS, call.event_refs[call.codes[: result >> 16]]))
        earlier = [row for row in found if (row.first, row.seq) < (event.first, event.seq)]
        return max(earlier, key=lambda row: (row.first, row.seq), default=None)

    @property
    def deltas(self) -> bool:
        """Whether a condition of this channel ever asked for a change."""
        return bool(self.facts.get("deltas"))

    def watch_deltas(self) -> None:
        """Remember, for good, that a condition asks for a change (the lock is not held)."""
        if not self.deltas:
            self.facts["deltas"] = True
            self.store.commit(self.lock, self._snapshot)

    def _log(self, first: int, limit: int, notes: bytes = b"") -> Position | None:
        """One frame: the rows [first, limit) of the call, ghosts they made, and notes."""
        if first == limit and not notes:
            return None
        payload = memoryview(self.call.rows[first:limit]).cast("B")  # type: ignore[arg-type]
        extra = int(self.state[at.C_EXTRA_USED])
        if extra or notes:
            ghosts = self.call.extra[:extra].tobytes()
            payload = memoryview(b"".join((payload, ghosts, notes)))
        return self.store.log.append(payload)

    def keep_journal(self, span_us: int) -> None:
        """Keep the log that long from now on (the lock is not held)."""
        if span_us != self.journal_us:
            with self.lock:
                self.journal_us = self.facts["journal_us"] = span_us
            self.store.commit(self.lock, self._snapshot)

    def _short(self) -> bool:
        """Whether it takes more than larger tables to go on."""
        for side in self.sides:
            side.memory.grow_tables(self.newest)
        return any(side.memory.lacks_segments() for side in self.sides)

    def _serve(self, status: int) -> None:
        """Give a kernel what it asked for."""
        if status == at.NEED_DROP:
            self._drop_windows()
        elif status == at.NEED_OUTPUT:
            self.call.grow_output()
        elif status == at.NEED_SCRATCH:
            self.call.grow_scratch()
        else:
            more = self._asked_again()
            for side in self.sides:
                side.memory.grow_tables(self.newest)
                if side.memory.lacks_segments(more):
                    self._drop_windows(at_once=True)
                    side.memory.release()
                while side.memory.lacks_segments(more):
                    self._make_room(side)

    def _asked_again(self) -> int:
        """How often the row that asks for memory now has asked for it before.

        A row may leave a ghost and then find too little room for the next one. What was freed for
        it last time was not enough, then: each time it gets more, until it has enough or nothing
        is left to seal.
        """
        state = self.state
        row = (int(state[at.C_EPOCH]), int(state[at.C_NEXT_SEQ]), int(state[at.C_POS]))
        self._asks = self._asks + 1 if row == self._asking else 0
        self._asking = row
        return self._asks

    # ---- expiry ----------------------------------------------------------------------------

    def drop_expired(self) -> None:
        """Drop every window and component in which nothing is valid any more."""
        self._drop_windows()
        for side in self.sides:
            if side.tree.drop_expired(self.newest):
                side.refresh()

    def _drop_windows(self, *, at_once: bool = False) -> None:
        """Drop the windows in which nothing counts any more.

        Expired subscriptions count as long as an event they were answered with is valid: an
        unseen one must find out. If most do, copying each into a ghost costs more than letting
        their window linger until they do not count any more either.
        """
        now = self.newest
        self._limbo = True
        latest = self._latest_event_end()
        for side in self.sides:
            for window in side.memory.expired(now, at_once):
                if side is self.sides[0] and window.subs and latest > now:
                    until = min(window.limit + _LINGER * window.width, latest)
                    due = until <= max(now, window.drop)
                    if not due and not at_once and self._mostly_kept(window, now):
                        side.memory.linger(window.number, until)
                        continue
                    self._leave_ghosts(window.number, now, sealing=False)
                side.memory.drop(window.number)
                side.tree.dropped += 1

    def _mostly_kept(self, window: WindowFacts, now: int) -> bool:
        """Whether most of a window's subscriptions would have to stay as ghosts."""
        return 2 * int(ghosts.count_kept(self.address, window.number, now)) > window.subs

    def _latest_event_end(self) -> int:
        """No event is valid after this."""
        events = self.sides[-1]
        ends = [w.event_until_high for w in events.memory.windows() if w.events]
        ends += [int(r.row[at.D_EVENT_UNTIL_HIGH]) for r in events.tree.readers]
        return max(ends, default=-FOREVER)

    def _leave_ghosts(self, number: int, now: int, *, sealing: bool) -> None:
        memory = self.sides[0].memory
        memory.allow_headroom(True)
        try:
            while True:
                ghosts.collect_ghosts(self.address, number, now, sealing)
                status = int(self.state[at.C_STATUS])
                if status == at.DONE:
                    return
                if status == at.NEED_OUTPUT:
                    self.call.grow_output()
                elif status == at.NEED_SCRATCH:
                    self.call.grow_scratch()
                elif not memory.grow_tables(now):
                    raise Unavailable("memory_mb is too small for what must be remembered")
        finally:
            memory.allow_headroom(False)

    # ---- sealing -----------------------------------------------------------------------------

    def _make_room(self, side: Side) -> None:
        """Free memory now: the caller cannot go on without."""
        seal = side.seal
        if seal is None:
            seal = self._begin_seal(side, stuck=True)
            if seal is None:
                raise Unavailable("memory_mb is too small: nothing is left to seal")
            seal.write()
        seal.written.wait()
        self._install(seal)

    def _begin_seal(
        self, side: Side, pick: Callable[[WindowFacts], float] | None = None, *,
        stuck: bool = False,
    ) -> Seal | None:  # fmt: skip
        """Freeze the window whose memory would stay taken for the longest.

        A window that frees little does not come before one that frees much, or a memory full of
        ghosts would be sealed record by record. Whoever begins a seal writes it; everyone else
        waits for `written`. A row that is `stuck` may have left ghosts and would leave them again:
        then they come last.
        """
        now = self.newest
        windows = [w for w in side.memory.windows() if w.state == at.OPEN and w.limit > now]
        if not windows or side.seal is not None:
            return None
        if pick is None:
            used = side.memory.segments_used
            windows = [w for w in windows if w.segments * _WORTH >= used] or windows
        if stuck:
            windows = [w for w in windows if w.subs or w.events] or windows
        taken = pick or (lambda w: w.segments * float(min(w.limit, FOREVER) - now))
        window = max(windows, key=taken)
        side.memory.freeze(window.number)
        side.seal = Seal(side, window)
        return side.seal

    def _install(self, seal: Seal) -> None:
        """Let the sealed component take the place of its window (the lock is held)."""
        if seal.installed:
            return
        seal.installed = True
        seal.side.seal = None
        memory = seal.side.memory
        try:
            if seal.error is not None:
                raise seal.error
            if seal.side is self.sides[0]:
                self._ghosts_of_sealed(seal.window.number)
        except BaseException:
            memory.thaw(seal.window.number)
            if seal.reader is not None:
                seal.reader.component.drop()
            raise
        if seal.reader is not None:
            seal.side.tree.install(seal.reader)
        memory.drop(seal.window.number)
        memory.release()
        seal.side.refresh()
        self._submit(self._tidy_later)

    def _ghosts_of_sealed(self, number: int) -> None:
        """Leave ghosts for a sealed window, in memory and in the log."""
        # This may happen in the middle of a call: what that has so far is not to be touched.
        before, status = int(self.state[at.C_EXTRA_USED]), int(self.state[at.C_STATUS])
        self._leave_ghosts(number, self.newest, sealing=True)
        used = int(self.state[at.C_EXTRA_USED])
        payload = self.call.extra[before:used].tobytes()
        self.state[at.C_EXTRA_USED], self.state[at.C_STATUS] = before, status
        if not payload:
            return
        if self._recovering:
            self._late_ghosts.append(payload)
        else:
            self.store.log.append(payload)

    # ---- background ------------------------------------------------------------------------------

    def _submit(self, job: Callable[[], None]) -> None:
        # During recovery there is no lock to take: what there is to tidy waits.
        if not self._closed and not self._recovering:
            self.worker.submit(job)

    def _look_after(self) -> None:
        """Start background work when memory fills up, the log grows or components expire."""
        for side in self.sides:
            side.memory.state[at.E_LOG] = self.store.log.segment
            side.memory.share()
            side.memory.grow_tables(self.newest)
            if side.tree.drop_expired(self.newest):
                side.refresh()
            for job in side.memory.ahead():
                self.worker.submit(job)
        if self._busy:
            return
        first = self._first_log()
        full = any(side.memory.is_short for side in self.sides)
        heavy = self.store.log.size_from(first) > self._heavy_log
        waste = any(side.tree.has_waste for side in self.sides)
        if full or heavy or waste or self._kept_log(first) > self.store.kept_log:
            self._busy = True
            self._submit(self._background)

    def _background(self) -> None:
        try:
            for side in self.sides:
                while self._seal_one(side, self._wants_seal):
                    pass
            self._tidy_later()
        except Unavailable:
            pass  # no room on disk: a writer that needs the memory meets the same and says so
        finally:
            self._busy = False

    def _seal_one(self, side: Side, begin: Callable[[Side], Seal | None]) -> bool:
        """Seal one window from outside the lock. False when there was none to seal."""
        with self.lock:
            seal = side.seal
            mine = seal is None
            if seal is None:
                seal = begin(side)
        if seal is None:
            return False
        if mine:
            seal.write()
        seal.written.wait()
        with self.lock:
            self._install(seal)
        return True

    def _wants_seal(self, side: Side) -> Seal | None:
        """Begin to seal a window if memory is short or it keeps an old log segment alive."""
        log = self.store.log
        heavy = log.size_from(self._first_log()) > self._heavy_log
        if heavy or side.memory.is_short:
            self._drop_windows(at_once=True)
            for each in self.sides:
                each.memory.release()
        if side.memory.is_short:
            return self._begin_seal(side)
        if heavy:
            old = [w for w in side.memory.windows() if w.state == at.OPEN]
            if old and min(w.first_log for w in old) < log.segment:
                return self._begin_seal(side, lambda w: -w.first_log)
        return None

    def _tidy_later(self) -> None:
        """Tidy in the background: no room on disk now is tried again with the next one."""
        with contextlib.suppress(Unavailable):
            self._tidy()

    def _tidy(self) -> None:
        """Merge what the policy says, save the manifest, delete what is gone (worker thread)."""
        for side in self.sides:
            while True:
                with self.lock:
                    groups = side.tree.merges(self.newest)
                    tombs = side.memory.tombs() if groups else {}
                    now = self.newest
                if not groups:
                    break
                for group in groups:
                    product = side.kind.merge(group, now, tombs)
                    reader = side.tree.write(product) if product else None
                    with self.lock:
                        side.tree.install(reader, group)
                        side.refresh()
        self.store.commit(self.lock, self._snapshot)
        with self.lock:
            for side in self.sides:
                side.memory.trim()

    def _first_log(self) -> int:
        """The first log segment that recovery would need."""
        windows = [window for side in self.sides for window in side.memory.windows()]
        log = self.store.log
        if not windows and log.end.offset > _SMALL_LOG and not self._recovering:
            log.rotate()  # nothing in it counts any more: let it go whole
            for side in self.sides:
                side.memory.state[at.E_LOG] = log.segment
        return min([log.segment, *(window.first_log for window in windows)])

    def _kept_log(self, first: int) -> int:
        """The first log segment to keep, when `first` is the first that recovery needs."""
        for segment in range(self.store.kept_log, self.store.log.segment):
            self._ends.setdefault(segment, self.newest)
        horizon = self.newest - self.journal_us
        kept = [segment for segment, end in self._ends.items() if end >= horizon]
        return min([first, *kept]) if self.journal_us else first

    def _snapshot(self) -> tuple[dict[str, Any], int, int]:
        """What the manifest has to say (the lock is held)."""
        first = self._first_log()
        kept = self._kept_log(first)
        self._ends = {n: end for n, end in self._ends.items() if n >= kept}
        return self._facts(), first, kept

    def _facts(self) -> dict[str, Any]:
        return {
            **self.facts,
            "newest": self.newest,
            "next_seq": int(self.state[at.C_NEXT_SEQ]),
            "answers": self.answers,
            "writers": self.writers.to_json(),
            "lineage": self.lineage.to_json(self.newest),
            "log_ends": list(self._ends.items()),
        }

    # ---- recovery and the end ------------------------------------------------------------------

    def _recover(self) -> None:
        """Bring the memory back from the log."""
        for segment, rows in self.store.log.replay_joined():
            for side in self.sides:
                for job in side.memory.ahead():
                    self.worker.submit(job)
            self._replay(rows, segment)
        self.call.use_rows(self.call.rows)
        for side in self.sides:
            side.memory.state[at.E_LOG] = self.store.log.segment
        self.drop_expired()
        for late in self._late_ghosts:
            self.store.log.append(late)
        self._late_ghosts.clear()
        self._recovering = False
        if any(side.tree.has_waste for side in self.sides):
            self._submit(self._tidy_later)

    def _replay(self, rows: Words, segment: int) -> None:
        for side in self.sides:
            side.memory.state[at.E_LOG] = segment
        self.state[at.C_ROWS] = rows.ctypes.data
        self.state[at.C_ROWS_WORDS] = len(rows)
        self.state[at.C_POS] = 0
        while True:
            kernel.replay_rows(self.address)
            status = int(self.state[at.C_STATUS])
            if status == at.DONE:
                break
            if status == at.NEED_READER:
                start = int(self.state[at.C_POS])
                limit = start + (int(rows[start]) >> 32)
                note = read_rows(rows[start:limit])[0]
                (self.lineage if note.flags & N_PROLONGED else self.writers).read(note)
                self.state[at.C_POS] = limit
            else:
                self._serve(status)

    def seal_all(self) -> None:
        """Seal everything in memory to disk now."""
        for side in self.sides:
            # Ghosts left by a seal go to memory again: only what was there before counts.
            for _ in range(len(side.memory.windows())):
                if not self._seal_one(side, self._begin_seal):
                    break
        self.maintain()

    def maintain(self) -> None:
        """Run all pending background work to its end."""
        failed: list[BaseException] = []

        def tidy() -> None:
            try:
                self._tidy()
            except BaseException as error:
                failed.append(error)

        with self.lock:
            self.drop_expired()
        self._submit(tidy)
        self.worker.drain()
        self.worker.check()
        if failed:
            raise failed[0]

    def list_records(self, side: int, now: int, low: int, high: int) -> Words:
        """References to the live records of a side whose time meets [low, high)."""
        index = self.sides[0] if side == at.SUBS else self.sides[-1]
        room = 1 << 10
        while True:
            out = np.empty(room, np.int64)
            found = int(
                export.list_records(
                    index.memory.address, side, now, low, high, out.ctypes.data, room
                )
            )
            if found >= 0:
                return out[:found]
            room *= 8

    def pack(self, side: int, refs: Words) -> Words:
        """Records as rows (the lock is held)."""
        index = self.sides[0] if side == at.SUBS else self.sides[-1]
        refs = np.ascontiguousarray(refs)
        room = 64 * len(refs) + 1024
        while True:
            out = np.empty(room, np.int64)
            used = int(
                export.pack_rows(
                    index.memory.address, side, refs.ctypes.data, len(refs), out.ctypes.data, room
                )
            )
            if used >= 0:
                return out[:used]
            room *= 4

    def check(self) -> None:
        """Verify every checksum and invariant on disk."""
        self.worker.drain()
        self.worker.check()
        with self.lock:  # nothing is appended or deleted while the files are read
            self.store.check()

    def backup(self, target: Path) -> None:
        """Copy everything as it is now into a new folder, while writers go on."""
        with self.lock:
            if self._closed:
                raise Closed("the database was closed")
            first = self._first_log()
            finish = begin_copy(self.store, target, self._facts(), first, self._kept_log(first))
        finish()

    def close(self) -> None:
        """Finish background work, save the manifest, let go of the files."""
        if self._closed:
            return
        self.worker.drain()
        with self.lock:
            self._closed = True
        self.worker.close()
        self._beside.close()
        with contextlib.suppress(TidelineError):  # the log has what the manifest would say
            self.store.commit(self.lock, self._snapshot, last=True)
        self.store.close()
        for side in self.sides:
            side.memory.close()
