"""The engine of a channel: memory, components, log and recovery behind one lock.

    rows -> run -> answers          one call of a kernel; what it asks for is served here
            |-> log                 one frame a call, before anyone hears of the answers
            `-> take_back           when the log refuses

Layout `dual` keeps both sides of a place in one index; `two` keeps an index a side;
`poll` is `dual` without subscriptions. The kernels are the same: they are given two
engines, which may be one.

Exceptions thrown into a caller (Ctrl-C, a signal handler that raises) may come at any moment. A
call is whole or not at all all the same (docs/decisions/0040-interrupts.md): what takes many steps
is sheltered (shelter.py), and a single row either has its frame in the log, and then its
effects are brought to their end, or it is taken back. `unfinished` says that there is something to
bring to its end. It is looked at by whoever takes the lock, before anything else.

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
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from tideline.addresses import address_of
from tideline.channel.beside import Beside
from tideline.channel.call import Call
from tideline.channel.codec import Row, read_rows, write_row
from tideline.channel.lineage import Lineage
from tideline.channel.notes import N_PROLONGED, Mark, Writers
from tideline.clock import FOREVER
from tideline.errors import Closed, TidelineError, Unavailable
from tideline.index.memory import Budget, Memory, WindowFacts
from tideline.index.sealed import PostingsKind, SealedReader
from tideline.index.told import ToldKind, ToldReader
from tideline.kernels import export, told
from tideline.kernels import layout as at
from tideline.kernels import rows as kernel
from tideline.lsm.backup import begin_copy
from tideline.lsm.frames import HEADER_BYTES
from tideline.lsm.inventory import Listed
from tideline.lsm.log import Position
from tideline.lsm.policy import Window
from tideline.lsm.store import Store
from tideline.lsm.tree import Tree
from tideline.lsm.worker import Worker
from tideline.shelter import Shelter, run_apart

__all__ = ["Engine", "Given", "Side", "Taken"]

Words = NDArray[np.int64]
T = TypeVar("T")
Effect = Callable[[Words], None]
"""What follows from a row once it is logged, given its answers. Running it again does no harm."""
_NONE: Words = np.zeros(0, np.int64)
_SMALL_LOG = 64 << 10
_FRAMED_WORDS = 1 << 16
_LOGGED = Position(0, 0)  # stands for a position nobody will wait for
_MANY_WORDS = 1 << 15  # of rows that are logged beside the caller's own work
_MERGED_MARKS = 32 << 20  # bytes: larger components of marks are searched as fast, and not merged
_SEALING = (at.NEED_MEMORY, at.NEED_TOLD)  # what may need something sealed
_CHECK_EVERY = 256  # operations between two looks at memory, log and components
_TRIES = 8  # of an effect that is interrupted, or fails
_WORTH = 8  # what a seal must free: such a part of the memory in use, if any window has it


def _octets(words: Words) -> memoryview:
    """The bytes of an array, without a copy."""
    return memoryview(words).cast("B")  # type: ignore[arg-type]


class Taken(NamedTuple):
    """What was taken out of the answers of some rows before they are logged."""

    answers: int
    notes: bytes = b""


_Open = tuple[int, int, int, int]
"""How things stood before the row of a call: its seq, the answers given, the frames logged."""
_SHELTERED: _Open = (-1, 0, 0, 0)  # something of many steps, that undoes itself


class Given(NamedTuple):
    """The records that answer a single row, as rows, how many they are, and notes for the log."""

    packed: Words
    answers: int
    notes: bytes


class Side:
    """One index: its memory windows and its sealed components.

    The side of the events also has the marks of what users were told (kernels/told.py): in memory
    in windows of their own, sealed in a tree of their own.
    """

    def __init__(
        self, memory: Memory, tree: Tree[SealedReader], told: Tree[ToldReader] | None = None
    ) -> None:
        self.memory = memory
        self.tree = tree
        self.told = told
        self.seal: Seal | None = None
        self._table: Words = np.zeros(at.D_WORDS, np.int64)
        self._told_table: Words = np.zeros(at.T_WORDS, np.int64)

    @property
    def trees(self) -> list[Tree[Any]]:
        """All trees of this side."""
        return [self.tree] if self.told is None else [self.tree, self.told]

    def refresh(self) -> None:
        """Tell the kernels which components there are."""
        state = self.memory.state
        readers = self.tree.readers
        if readers:
            self._table = np.concatenate([reader.row for reader in readers])
        state[at.E_COMPONENTS] = address_of(self._table)
        state[at.E_COMPONENT_COUNT] = len(readers)
        if self.told is not None:
            if self.told.readers:
                self._told_table = np.concatenate([reader.row for reader in self.told.readers])
            state[at.E_TOLD_COMPONENTS] = address_of(self._told_table)
            state[at.E_TOLD_COMPONENT_COUNT] = len(self.told.readers)

    def drop_expired(self, now: int) -> None:
        """Leave out the components in which nothing is valid any more."""
        if sum([tree.drop_expired(now) for tree in self.trees]):
            self.refresh()

    def first_merge(self, now: int) -> tuple[Tree[Any], list[Any]] | None:
        """The next components to merge, and whose they are."""
        for tree in self.trees:
            groups = tree.merges(now)
            if groups:
                return tree, groups[0]
        return None


class Seal:
    """A window on its way to disk."""

    def __init__(self, side: Side, window: WindowFacts) -> None:
        self.side = side
        self.window = window
        self.tree: Tree[Any] = side.tree
        if window.told and side.told is not None:
            self.tree = side.told
        self.reader: Any = None
        self.error: Exception | None = None
        self.installed = False
        self._written = False
        self._writing = threading.Lock()

    def write(self) -> None:
        """See to it that the component is written; takes no lock of the engine.

        Whoever needs the memory calls it: one of them writes, the others wait. Somebody who is
        interrupted leaves the writing to the next.
        """
        with self._writing:
            if self._written:
                return
            try:
                kind: Any = self.tree.kind
                product = kind.seal(self.side.memory, self.window)
                if product.rows:
                    self.reader = self.tree.write(product)
            except Exception as error:
                self.error = error
            self._written = True


class Engine:
    """Everything a channel keeps, in memory and on disk."""

    def __init__(
        self, folder: Path, facts: dict[str, Any], *, mode: int, layout: str, budget: Budget,
        durability: str, logged: bool, segment_bytes: int = 64 << 20, remember: bool = True,
    ) -> None:  # fmt: skip
        self.lock = threading.Lock()
        self.store = Store(
            folder, durability=durability, logged=logged, segment_bytes=segment_bytes
        )
        if self.store.is_new:
            self.store.facts = facts
        self.facts = self.store.facts
        self.shelter = Shelter()
        self.store.log.shelter = self.shelter.run
        self.unfinished: _Open | None = None
        """Whether a call was interrupted, or runs: whoever takes the lock looks, and mends."""
        self._outer: _Open | None = None  # what `unfinished` is when a single row is done
        self._owed: tuple[Effect, Words] | None = None
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
        self.address = address_of(self.state)
        self.answers = int(self.facts.get("answers", 0))
        self._logged_answers = self.answers  # as the log has it
        self.state[at.C_REMEMBER] = remember
        # How long the log is kept to be read, by the channel's time; 0 for not at all.
        self.journal_us = int(self.facts.get("journal_us", 0))
        self.writers = Writers(self.facts.get("writers", []))
        self.lineage = Lineage(self.facts.get("lineage", []))
        self._ends: dict[int, int] = dict(self.facts.get("log_ends", []))  # by log segment: time
        # Segments before it are let go, though the manifest that says so may not be saved yet.
        self._kept_from = self.store.kept_log
        self._heavy_log = max(4 * segment_bytes, 2 * budget.size_bytes)
        self._since_check = 0
        self._busy = False  # a background check is on its way
        self._recovering = True
        self._due = False  # whether windows have expired
        self._closed = False
        self._asking, self._asks = (0, 0, 0), 0  # the row that last asked for memory, and how often
        self._aside: Call | None = None  # for questions in the middle of a call
        self.allowance: Callable[[int], None] | None = None  # for conditions: channel/answers.py
        self._beside: Beside[Position | None] = Beside("tideline-log")
        self.state[at.C_NEWEST] = self.facts.get("newest", -FOREVER)
        self.state[at.C_NEXT_SEQ] = self.facts.get("next_seq", 1)
        seed = self.facts["seeds"]
        names = ("subscriptions", "events") if layout == "two" else ("dual",)
        kind = PostingsKind(shaped=mode == 1)
        largest = max(32 << 20, budget.size_bytes // 2)
        self.sides: list[Side] = []
        self.worker = Worker("tideline-" + folder.name)
        try:
            for name in names:
                memory = Memory(budget, mode=mode, seeds=(seed[0], seed[1]))
                tree = Tree(
                    folder, name, kind, Window(max_bytes=largest), self.store.next_component,
                    sync=self.store.sync,
                )  # fmt: skip
                self.store.attach(tree, self.newest)
                for reader in tree.readers:
                    memory.put_tombs(*reader.tombs(), now=self.newest)
                self.sides.append(Side(memory, tree))
            self.sides[-1].told = Tree(
                folder, "told", ToldKind(), Window(max_bytes=_MERGED_MARKS),
                self.store.next_component, sync=self.store.sync,
            )  # fmt: skip
            self.store.attach(self.sides[-1].told, self.newest)
            for side in self.sides:
                side.refresh()
            self.state[at.C_SUBS] = self.sides[0].memory.address
            self.state[at.C_EVENTS] = self.sides[-1].memory.address
            self._recover()
            if self.store.is_outdated:
                self.facts["marks_from"] = int(self.state[at.C_NEXT_SEQ])
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

    @property
    def answers(self) -> int:
        """How many answers the channel has given."""
        return int(self.facts_now[at.C_ANSWERED])

    @answers.setter
    def answers(self, count: int) -> None:
        self.facts_now[at.C_ANSWERED] = count

    @property
    def marks_from(self) -> int:
        """Of events with a smaller seq it is not known who was told: they are from format 4."""
        return int(self.facts.get("marks_from", 0))

    def now(self, clock_now: int) -> int:
        """The channel's time: the clock's, or what writes have already seen if that is later."""
        newest = int(self.state[at.C_NEWEST])
        return clock_now if clock_now > newest else newest

    # ---- running rows (the lock is held) -------------------------------------------------

    def ask(self, words: int) -> int:
        """Run rows that store nothing. Returns what the kernel returned."""
        result = int(kernel.run_rows(self.address, words, True))
        while result & 0xFF:
            self.sheltered(partial(self._serve, result & 0xFF))
            result = int(kernel.run_rows(self.address, words, False))
        return result

    def write(
        self, words: int, count: int, part: Callable[[int], Taken], mark: Mark | None = None,
        landed: Callable[[], None] = lambda: None,
    ) -> Position | None:  # fmt: skip
        """Run rows that store something, and log them. Returns where.

        Answers point into memory. Windows that expire in the middle of a call are dropped before
        the next. `part` takes the answers of the rows done so far out, given
        the kernel's result: at the end, when conditions must be checked before the kernel can go
        on, and before anything is sealed. In the last case these rows are logged, and the rest
        is logged apart. `landed` is called each time that all which `part` took is in the log. A
        failure takes back the rows that were not logged. For sheltered work.
        """
        if self._closed:
            raise Closed("the database was closed")
        self._since_check += count
        self._before_rows()
        state = self.state
        seq = state[at.C_NEXT_SEQ]
        answered = self.answers
        result = int(kernel.run_rows(self.address, words, True))
        first_row = first_word = 0
        notes: list[bytes] = []
        position = None
        beside = self._beside

        def take(result: int) -> None:
            taken = part(result)
            self.answers += taken.answers
            notes.append(taken.notes)

        try:
            while result & 0xFF:
                status = result & 0xFF
                more = self._segments_wanted() if status in _SEALING else 0
                row = int(state[at.C_ROW])
                if status == at.NEED_VERDICT:
                    take(result)
                    kernel.begin_part(self.address, False)
                elif status in _SEALING and row > first_row and self._short(status, more):
                    take(result)
                    limit = int(state[at.C_POS])
                    position = self._log_part(first_word, limit, notes, mark) or position
                    landed()
                    first_row, first_word = row, limit
                    answered = self.answers
                    notes.clear()
                    kernel.begin_part(self.address, True)
                if status != at.NEED_VERDICT:
                    self._serve(status, more)
                result = int(kernel.run_rows(self.address, words, False))
            if result & at.EXPIRED:
                self._due = True
            if state[at.C_NEXT_SEQ] == seq:
                first_word = words  # nothing was stored: at most a note to log
            settled = not (result & 256 or notes or self.journal_us)
            if settled and words - first_word >= _MANY_WORDS:
                # Nothing of the answers is to be logged but their marks: they are taken while
                # the rows are logged.
                self.answers += result >> 16
                beside.begin(partial(self._log_part, first_word, words, notes, mark))
                part(result)
                position = beside.result() or position
            else:
                take(result)
                position = self._log_part(first_word, words, notes, mark) or position
            landed()
        except BaseException:
            if beside.failed():
                self.answers = answered
                kernel.take_back(self.address, first_word, first_row, int(state[at.C_ROW]))
            else:  # what is in the log stays, though nobody got its answers
                landed()
            raise
        return position

    def _log_part(
        self, first: int, limit: int, notes: list[bytes], mark: Mark | None
    ) -> Position | None:
        if mark is None:
            return self._log(first, limit, b"".join(notes))
        landed = mark.landed(int(self.state[at.C_ROW]))
        position = self._log(first, limit, b"".join([*notes, mark.note(landed)]))
        self.writers.note(mark.writer, mark.number, landed)
        return position

    def _before_rows(self) -> None:
        """Look after what is due. Not after the rows: answers point at components by number."""
        if self._since_check >= _CHECK_EVERY:
            self._since_check = 0
            self._look_after()
        if self._due:
            self._drop_windows(self.newest)
            for side in self.sides:
                side.memory.release()
                # After a burst most of the memory is free: half of it may stay warm.
                side.memory.trim(max(64, side.memory.segments_used))

    def write_one(
        self, words: int, take: Callable[[int], Given] | None = None, notes: bytes = b"",
        effect: Effect | None = None,
    ) -> tuple[Position | None, Words]:  # fmt: skip
        """`write` for the one row that stands in `own_rows`: the short way.

        Returns where it was logged, or None when nothing was stored, and the records that answer
        it, as rows. `take` takes them out: it is called, with the kernel's result, when there
        may be any, and its notes are logged instead of `notes`. `effect` is run once the row is
        logged; inside sheltered work, when that is over.
        """
        if self._closed:
            raise Closed("the database was closed")
        self._since_check += 1
        if self._due or self._since_check >= _CHECK_EVERY:
            self.sheltered(self._before_rows)
        view = self.facts_now
        answered = view[at.C_ANSWERED]
        frames = self.store.log.frames
        self.unfinished = (view[at.C_NEXT_SEQ], answered, frames, view[at.C_NEWEST])
        try:
            result: int = kernel.run_one(self.address, words, True)
            while result & 0xFF:
                self.sheltered(partial(self._serve, result & 0xFF))
                result = kernel.run_one(self.address, words, False)
            if result & at.EXPIRED:
                self._due = True
            if not result & at.STORED:
                self.unfinished = self._outer
                return None, _NONE
            packed = _NONE
            if result >> 16 and take is not None:
                packed, count, notes = take(result)
                view[at.C_ANSWERED] = answered + count
            if effect is not None:
                self._owed = (effect, packed)
            if result & at.FRAMED and not notes:
                frame = view[at.C_FRAME_WORDS] * 8 + HEADER_BYTES
                self._append_framed(self._own_frame[:frame])
                self._logged_answers = view[at.C_ANSWERED]
                position: Position | None = self.store.log.last if self.store.sync else _LOGGED
            else:
                position = self._log(0, words, notes)
            if effect is not None and self._outer is None:
                effect(packed)
                self._owed = None
            self.unfinished = self._outer
            return position, packed
        except BaseException:
            self.mend()
            raise

    # ---- interrupted calls (the lock is held) --------------------------------------------------

    def sheltered(self, work: Callable[[], T]) -> T:
        """Run something of many steps that nothing can cut; then what it owes."""
        if self.unfinished is not None:
            return self.shelter.run(work)  # a part of a call that is looked after
        self.unfinished = self._outer = _SHELTERED
        try:
            value = self.shelter.run(work)
            if self._owed is not None:
                self._pay()
        except BaseException:
            self.mend()
            raise
        self.unfinished = self._outer = None
        return value

    def owe(self, effect: Effect) -> None:
        """Have something run when the sheltered work is over, in the thread of the caller."""
        self._owed = (effect, _NONE)

    def run_whole(self, effect: Effect) -> None:
        """Run something short to its end, now or, after an interrupt, as soon as possible."""
        self._owed, self.unfinished = (effect, _NONE), _SHELTERED
        try:
            self._pay()
        except BaseException:
            self.mend()
            raise
        self.unfinished = None

    def mend(self) -> None:
        """Bring an interrupted call to its end: whole when its frame is logged, or not at all.

        Everything here may be done again: an exception may come in the middle of it, too.
        """
        inside = self.shelter.is_inside
        if not inside:
            self.shelter.finish()
        opened = self.unfinished
        if opened is not None and opened is not _SHELTERED:
            self.store.log.repair()
            self.sides[-1].memory.allow_headroom(False)
            seq, answered, frames, newest = opened
            if self.store.log.frames != frames:
                self._logged_answers = self.answers
            else:
                self._owed = None
                self.answers = answered
                if self.facts_now[at.C_NEXT_SEQ] != seq:
                    kernel.take_back(self.address, 0, 0, self.facts_now[at.C_ROW])
                self.facts_now[at.C_NEWEST] = newest
        if inside:
            self.unfinished = self._outer
            return
        if self._owed is not None:
            self._pay()
        self.unfinished = self._outer = None

    def _pay(self) -> None:
        """Run what is owed. What is thrown into it is raised at the end.

        An effect that was interrupted every time stays owed: whoever takes the lock next runs it.
        """
        assert self._owed is not None
        effect, packed = self._owed
        error: BaseException | None = None
        for _ in range(_TRIES):
            try:
                effect(packed)
                self._owed = None
                break
            except BaseException as raised:
                error = raised
        if isinstance(error, Exception):
            self._owed = None  # it fails by itself
        if error is not None:
            raise error

    def before(self, event: Row, now: int) -> Row | None:
        """The event that comes last before one at exactly its place, of those valid at `now`.

        A call of its own: the answers of the running one stay as they are.
        """
        call = self._aside
        if call is None:
            call = Call()
            call.state[[at.C_SUBS, at.C_EVENTS]] = self.state[[at.C_SUBS, at.C_EVENTS]]
            self._aside = call
        view = memoryview(call.rows).cast("B")  # type: ignore[arg-type]
        words = write_row(
            view, at.FIND, at.R_SAME, 0, now, -FOREVER, event.first + 1, event.place, b"", b"", b""
        )
        call.state[at.C_AFTER] = -1
        # Stamps of both must differ, also when this ends early: the kernel counts on by one.
        epoch = int(self.state[at.C_EPOCH])
        call.state[at.C_EPOCH] = epoch
        self.state[at.C_EPOCH] = (epoch + 1) & 0x7FFFFFFF
        address = address_of(call.state)
        result = int(kernel.run_rows(address, words, True))
        while result & 0xFF:
            scratch = result & 0xFF == at.NEED_SCRATCH
            self.sheltered(call.grow_scratch if scratch else call.grow_output)
            result = int(kernel.run_rows(address, words, False))
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
            run_apart(partial(self._save_fact, "deltas", True))

    def _save_fact(self, name: str, value: Any) -> None:
        """Change one of the facts, for good; it stays as it was when that fails."""
        with self.lock:
            before = {name: self.facts[name]} if name in self.facts else {}
            self.facts[name] = value
        try:
            self.store.commit(self.lock, self._snapshot)
        except BaseException:
            with self.lock:
                del self.facts[name]
                self.facts.update(before)
            raise

    def _log(self, first: int, limit: int, notes: bytes = b"") -> Position | None:
        """One frame: the rows [first, limit) of the call, tombs and marks they left, and notes."""
        if first == limit and not notes:
            return None
        payload = _octets(self.call.rows[first:limit])
        parts: list[bytes | memoryview] = [payload]
        extra = int(self.state[at.C_EXTRA_USED])
        if extra:
            parts.append(_octets(self.call.extra[:extra]))
        answers = self.answers
        if self.state[at.C_TOLD_USED] > at.R_BODY or answers != self._logged_answers:
            parts.append(_octets(self.call.told_row(self.address, answers)))
        if notes:
            parts.append(notes)
        position = self.store.log.append_parts(parts)
        self._logged_answers = answers
        return position

    def settle(self, starts: Words, first: int, limit: int, holds: NDArray[np.bool_]) -> None:
        """The conditions of the rows [first, limit) have been checked: `holds` says which of the
        call's answers hold. Those that yield to another do not, afterwards; marks are left of
        the others."""
        memory = self.sides[-1].memory
        memory.allow_headroom(True)
        try:
            while True:
                status = int(told.settle(self.address, starts, first, limit, address_of(holds)))
                if status == at.DONE:
                    return
                if status == at.NEED_OUTPUT:
                    self.sheltered(self.call.grow_output)
                elif status == at.NEED_SCRATCH:
                    self.sheltered(self.call.grow_scratch)
                elif not self.sheltered(self._grow_told):
                    raise Unavailable("memory_mb is too small for what must be remembered")
        finally:
            memory.allow_headroom(False)

    def _grow_told(self) -> bool:
        words = int(self.state[at.C_TOLD_WANTED])
        return self.sides[-1].memory.grow_tables(self._logged_newest, words)

    def keep_journal(self, span_us: int) -> None:
        """Keep the log that long from now on (the lock is not held)."""
        if span_us != self.journal_us:
            run_apart(partial(self._keep_journal, span_us))

    def _keep_journal(self, span_us: int) -> None:
        self._save_fact("journal_us", span_us)
        with self.lock:
            self.journal_us = span_us

    def allow_ahead(self, span_us: int) -> None:
        """Let the rows of a batch be that far ahead of the clock (the lock is not held)."""
        run_apart(partial(self._save_fact, "max_ahead_us", span_us))

    def _short(self, status: int, more: int) -> bool:
        """Whether it takes more than larger tables to go on: something must be sealed."""
        for side in self.sides:
            side.memory.grow_tables(self._logged_newest)
        if any(side.memory.lacks_segments(more) for side in self.sides):
            return True
        words = int(self.state[at.C_TOLD_WANTED])
        return self._wants_table(status) and self.sides[-1].memory.lacks_marks(words)

    def _wants_table(self, status: int) -> bool:
        """Whether a kernel that asks for something asks for a table of marks, or has one."""
        return status == at.NEED_TOLD or bool(self.sides[-1].memory.state[at.E_TOLD_CAP])

    def _serve(self, status: int, more: int | None = None) -> None:
        """Give a kernel what it asked for; `more` is what `_segments_wanted` said of it."""
        if status == at.NEED_OUTPUT:
            self.call.grow_output()
        elif status == at.NEED_SCRATCH:
            self.call.grow_scratch()
        else:
            if more is None:
                more = self._segments_wanted()
            words = int(self.state[at.C_TOLD_WANTED])
            if self._wants_table(status):
                self._seal_marks(words)
            if status == at.NEED_TOLD:
                self.sides[-1].memory.index_told()
            for side in self.sides:
                side.memory.grow_tables(self._logged_newest, words)
                if side.memory.lacks_segments(more):
                    self._drop_windows(self._logged_newest)
                    side.memory.release()
                while side.memory.lacks_segments(more):
                    self._make_room(side)

    def _seal_marks(self, more: int) -> None:
        """Seal marks until a table of what is left, and so many more, fits into memory."""
        side = self.sides[-1]
        if side.memory.lacks_marks(more):
            self._drop_windows(self._logged_newest)
            side.memory.release()
        while side.memory.lacks_marks(more):
            if side.seal is None:
                now = self.newest
                if not any(w.told and w.limit > now for w in side.memory.windows()):
                    return
                self._begin_seal(side, lambda w: w.told)
            self._make_room(side)

    def _segments_wanted(self) -> int:
        """How many segments the row that asks for memory wants, beside those it always finds.

        When it has asked before, what was freed for it was not enough: each time it gets more,
        until it has enough or nothing is left to seal.
        """
        state = self.state
        row = (int(state[at.C_EPOCH]), int(state[at.C_NEXT_SEQ]), int(state[at.C_POS]))
        self._asks = self._asks + 1 if row == self._asking else 0
        self._asking = row
        return self._asks + int(state[at.C_TOLD_WANTED]) // at.SEGMENT

    # ---- expiry ----------------------------------------------------------------------------

    def drop_expired(self) -> None:
        """Drop every window and component in which nothing is valid any more."""
        self._drop_windows(self.newest)
        for side in self.sides:
            side.drop_expired(self.newest)

    @property
    def _logged_newest(self) -> int:
        """The channel's time as the log has it. In the middle of a call nothing may go by a later
        one: the call may fail, and then its time has not come."""
        return int(self.state[at.C_NEWEST_LOGGED])

    def _drop_windows(self, now: int) -> None:
        """Drop the windows in which nothing is valid any more."""
        self._due = False
        for side in self.sides:
            for window in side.memory.expired(now):
                side.memory.drop(window.number)
                side.tree.dropped += 1

    # ---- sealing -----------------------------------------------------------------------------

    def _make_room(self, side: Side) -> None:
        """Free memory now: the caller cannot go on without."""
        seal = side.seal
        if seal is None:
            seal = self._begin_seal(side)
            if seal is None:
                raise Unavailable("memory_mb is too small: nothing is left to seal")
        seal.write()
        self._install(seal)

    def _begin_seal(
        self, side: Side, pick: Callable[[WindowFacts], float] | None = None
    ) -> Seal | None:
        """Freeze the window whose memory would stay taken for the longest.

        A window that frees little does not come before one that frees much, or memory would be
        sealed record by record.
        """
        now = self.newest
        windows = [w for w in side.memory.windows() if w.state == at.OPEN and w.limit > now]
        if not windows or side.seal is not None:
            return None
        if pick is None:
            used = side.memory.segments_used
            windows = [w for w in windows if w.segments * _WORTH >= used] or windows
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
        except BaseException:
            memory.thaw(seal.window.number)
            if seal.reader is not None:
                seal.reader.component.drop()
            raise
        if seal.reader is not None:
            seal.tree.install(seal.reader)
        memory.drop(seal.window.number)
        memory.release()
        seal.side.refresh()
        self._submit(self._tidy_later)

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
            side.drop_expired(self.newest)
            for job in side.memory.ahead():
                self.worker.submit(job)
        if self._busy:
            return
        first = self._first_log()
        full = any(side.memory.is_short for side in self.sides)
        heavy = self.store.log.size_from(first) > self._heavy_log
        waste = any(tree.has_waste for tree in self.store.trees)
        if full or heavy or waste or self._kept_log(first) > self.store.kept_log:
            self._busy = True
            self._submit(self._background)

    def give_back_disk(self) -> None:
        """Have files and log segments that nothing needs any more removed soon (the lock is held).

        For a channel nobody writes to: no write comes that would look after it.
        """
        with contextlib.suppress(Unavailable):  # no room for a new segment: the next call tries
            waste = any(side.tree.has_waste for side in self.sides)
            if waste or self._kept_log(self._first_log()) > self.store.kept_log:
                self._submit(self._tidy_later)

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
            if self.unfinished is not None:
                self.mend()
            seal = side.seal or begin(side)
        if seal is None:
            return False
        seal.write()
        with self.lock:
            if self.unfinished is not None:
                self.mend()
            self._install(seal)
        return True

    def _wants_seal(self, side: Side) -> Seal | None:
        """Begin to seal a window if memory is short or it keeps an old log segment alive."""
        log = self.store.log
        heavy = log.size_from(self._first_log()) > self._heavy_log
        if heavy or side.memory.is_short:
            self._drop_windows(self.newest)
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
                    if self.unfinished is not None:
                        self.mend()
                    now = self.newest
                    found = side.first_merge(now)
                    tombs = side.memory.tombs() if found else {}
                if found is None:
                    break
                tree, group = found
                kind: Any = tree.kind
                product = kind.merge(group, now, tombs)
                reader = tree.write(product) if product else None
                with self.lock:
                    if self.unfinished is not None:
                        self.mend()
                    tree.install(reader, group)
                    side.refresh()
        self.store.commit(self.lock, self._snapshot)
        with self.lock:
            if self.unfinished is not None:
                self.mend()
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
        for segment in range(self._kept_from, self.store.log.segment):
            self._ends.setdefault(segment, self.newest)
        horizon = self.newest - self.journal_us
        kept = [segment for segment, end in self._ends.items() if end >= horizon]
        return min([first, *kept]) if self.journal_us else first

    def _snapshot(self) -> tuple[dict[str, Any], int, int]:
        """What the manifest has to say (the lock is held)."""
        if self.unfinished is not None:
            self.mend()
        first = self._first_log()
        kept = self._kept_log(first)
        self._ends = {n: end for n, end in self._ends.items() if n >= kept}
        self._kept_from = kept
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
        self._logged_answers = self.answers
        self._recovering = False
        if any(tree.has_waste for tree in self.store.trees):
            self._submit(self._tidy_later)

    def _replay(self, rows: Words, segment: int) -> None:
        for side in self.sides:
            side.memory.state[at.E_LOG] = segment
        self.state[at.C_ROWS] = address_of(rows)
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
                self.state[at.C_NEWEST_LOGGED] = self.newest  # what is replayed is in the log
                self._serve(status)

    def seal_all(self) -> None:
        """Seal everything in memory to disk now."""

        def seal() -> None:
            for side in self.sides:
                for _ in range(len(side.memory.windows())):  # not what is written meanwhile
                    if not self._seal_one(side, self._begin_seal):
                        break

        self._run_in_background(seal, self._tidy)

    def maintain(self) -> None:
        """Run all pending background work to its end."""

        def drop() -> None:
            with self.lock:
                if self.unfinished is not None:
                    self.mend()
                self.drop_expired()

        self._run_in_background(drop, self._tidy)

    def _run_in_background(self, *work: Callable[[], None]) -> None:
        """Have the worker do something and wait for it; who is interrupted does not stop it."""
        failed: list[BaseException] = []

        def job() -> None:
            try:
                for each in work:
                    each()
            except BaseException as error:
                failed.append(error)

        self._submit(job)
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
                    index.memory.address, side, now, low, high, address_of(out), room
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
                    index.memory.address, side, address_of(refs), len(refs), address_of(out), room
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
            if self.unfinished is not None:
                self.mend()
            self.store.check()

    def backup(self, target: Path) -> dict[str, Listed]:
        """Copy everything as it is now into a new folder, while writers go on; its files."""
        with self.lock:
            if self._closed:
                raise Closed("the database was closed")
            if self.unfinished is not None:
                self.mend()
            first = self._first_log()
            finish = begin_copy(self.store, target, self._facts(), first, self._kept_log(first))
        return finish()

    def leave_to_parent(self) -> None:
        """In a forked child: everything here belongs to the parent, locks and threads too."""
        self._closed = True
        self.lock = threading.Lock()  # the old one may be locked for ever
        self.worker.leave_to_parent()
        self.shelter.leave_to_parent()
        self.unfinished = self._outer = self._owed = None
        self.store.log.leave_to_parent()

    def close(self) -> None:
        """Finish background work, save the manifest, let go of the files."""
        if self._closed:
            return
        self.worker.drain()
        with self.lock:
            if self.unfinished is not None:
                self.mend()
            self._closed = True
        self.worker.close()
        self._beside.close()
        with contextlib.suppress(TidelineError):  # the log has what the manifest would say
            self.store.commit(self.lock, self._snapshot, last=True)
        self.store.close()
        self.shelter.close()
        for side in self.sides:
            side.memory.close()
