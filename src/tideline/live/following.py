"""Following the log for live queries: blocks of what was written and matched, and who waits.

    writer -> log, rings -> the thread wakes -> advance: parts -> a block -> matched -> told
    `take` of a handle   ------------------->    the same, at once

The newest blocks are kept, up to `KEPT_BYTES`, while there are handles that read them. When
something cannot be had (a bulk load is in no log), it begins anew at the end of the log, and says
so.

`Hub` (hub.py) is one of these, and says what is matched and who is told.
"""

from __future__ import annotations

import atexit
import contextlib
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np

from tideline.clock import SECOND, WAIT_S
from tideline.documents.follower import Follower, Part
from tideline.errors import Closed, TidelineError, Unavailable
from tideline.live.notes import Block, block_of
from tideline.lsm.bell import Bell
from tideline.shelter import Shelter

__all__ = ["KEPT_BYTES", "TICK_S", "Following"]

KEPT_BYTES = 64 << 20
"""How much of what was written is kept in memory for handles that have not read it."""
TICK_S = 0.002
"""The thread rests so long after each round: many writes are matched together."""
LINGER_US = 60 * SECOND
"""Old versions are written so long after the last query has gone: who comes back can go on."""
_BLOCK_ROWS, _BLOCK_BYTES = 8192, 8 << 20
T = TypeVar("T")


class Following:
    """The blocks of one collection, and the thread that makes them."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self.feed = engine.feed
        self.clock = engine.feed.clock
        self.lock = threading.RLock()
        """Guards all state of entries, stages and blocks."""
        self.handing = threading.Lock()
        """Held for short while a handle hands something out; taken after `lock`."""
        self._calls = threading.Lock()
        self._shelter = Shelter()
        self.why = ""
        """Why nothing more will come, once that is so."""
        self.version = 0
        """Everything up to this write was matched and told."""
        self._follower: Follower | None = None
        self._blocks: deque[Block] = deque()
        self._kept_bytes = 0
        self.first_block = self.next_block = 0
        """The blocks [first, next) are kept."""
        self.pulling = 0
        """How many handles there are: without any, no block is kept."""
        self._waiting: dict[Bell, int] = {}  # with the number of its query
        self._thread: threading.Thread | None = None
        self._bell: Bell | None = None
        self._idle_since: int | None = None
        _OPEN.add(self)

    # ---- what a hub does ----------------------------------------------------------------------

    def _match(self, block: Block) -> Block:
        """The block with the notes of all queries (the lock is held, as below)."""
        raise NotImplementedError

    def _tell(self, block: Block) -> None:
        """Tell whoever is to be told at once."""
        raise NotImplementedError

    def _lose(self) -> None:
        """Something was written that is not known: nobody may miss that."""
        raise NotImplementedError

    def _let_go(self) -> None:
        """Forget handles that nobody holds, and those whose time is over."""
        raise NotImplementedError

    def _has_left(self) -> bool:
        """Whether there is something to let go of."""
        raise NotImplementedError

    def _next_end(self) -> int:
        """When the next handle's time is over, or something has to be renewed."""
        raise NotImplementedError

    # ---- advancing ----------------------------------------------------------------------------

    def read_log(self) -> None:
        """Match and tell everything that is committed (the lock is held)."""
        self._require_open()
        self._let_go()
        while self._follower is not None:
            try:
                parts = self._read(self._follower)
            except Unavailable:
                self._begin_anew()
                return
            if not parts:
                return
            try:
                self._take(block_of(parts))
            except BaseException:
                self._begin_anew()  # nobody may miss what this block had
                raise

    def advance(self) -> int:
        """Match and tell everything that is committed; returns the last write that was told."""
        with self.lock:
            self.read_log()
            return self.version

    def is_behind(self) -> bool:
        """Whether something was written that was not told yet; `Closed` at the end."""
        self._require_open()
        if self._engine.expiry.due <= self.clock.now() or self._has_left():
            return True
        try:
            return self.newest() > self.version
        except Closed:
            self._require_open()
            raise

    def newest(self) -> int:
        """The version of now."""
        found: int = self._engine.view().seq
        return found

    def blocks_from(self, position: int) -> Iterator[Block]:
        """The blocks from one on that are kept (the lock is held)."""
        first = max(position - self.first_block, 0)
        for place in range(first, len(self._blocks)):
            yield self._blocks[place]

    def _read(self, follower: Follower) -> list[Part]:
        """The parts of some frames that follow one another."""
        parts: list[Part] = []
        rows = size = 0
        while rows < _BLOCK_ROWS and size < _BLOCK_BYTES:
            try:
                part = follower.take_part()
            except TidelineError:
                if parts:
                    break  # these first
                raise
            if part is None:
                break
            parts.append(part)
            rows += part.rows.count
            size += part.rows.docs.size_bytes
        return parts

    def _take(self, block: Block) -> None:
        block = self._match(block)
        self.version = block.limit - 1
        self._blocks.append(block)
        self._kept_bytes += block.size_bytes
        self.next_block += 1
        if len(block.notes):
            if self._waiting:
                self._ring(block)
            self._tell(block)
        if not self.pulling:
            self._drop_blocks()
        while self._kept_bytes > KEPT_BYTES and len(self._blocks) > 1:
            self._kept_bytes -= self._blocks.popleft().size_bytes
        self.first_block = self.next_block - len(self._blocks)

    def _drop_blocks(self) -> None:
        self._blocks.clear()
        self._kept_bytes, self.first_block = 0, self.next_block

    def _begin_anew(self) -> None:
        """What was written is not to be had: go on from now, and let nobody miss that."""
        if self._follower is not None:
            self._follower.close()
        self._follower = Follower(self.feed, None, True)
        self.version = self._follower.seq
        self.next_block += 1
        self._drop_blocks()
        for bell in list(self._waiting):
            bell.notify_all()
        self._lose()

    # ---- who waits ----------------------------------------------------------------------------

    def sheltered(self, work: Callable[[], T]) -> T:
        """Run something that nothing can cut in the middle; it may take the lock."""
        with self._calls:
            self._shelter.finish()
            return self._shelter.run(work)

    @contextlib.contextmanager
    def hung(self, number: int, bell: Bell) -> Iterator[None]:
        """Have a bell rung when something concerns a query, and at the end."""
        self._waiting[bell] = number
        try:
            yield
        finally:
            self._waiting.pop(bell, None)

    def ring(self, number: int) -> None:
        """Wake the handles that wait for something of a query."""
        for bell, wanted in list(self._waiting.items()):
            if wanted == number:
                bell.notify_all()

    def _ring(self, block: Block) -> None:
        """Wake the handles that wait for something of a block."""
        waiting = list(self._waiting.items())
        wanted = np.fromiter((number for _, number in waiting), np.int64, len(waiting))
        for place in np.flatnonzero(np.isin(wanted, block.numbers())).tolist():
            waiting[place][0].notify_all()

    # ---- the thread ---------------------------------------------------------------------------

    def _start(self) -> None:
        """Follow, and have a thread that advances (the lock is held)."""
        self._idle_since = None
        if self._follower is None:
            self._follower = Follower(self.feed, None, True)
            self.version = self._follower.seq
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="tideline-live", daemon=True)
            try:
                self._thread.start()
            except BaseException:  # there are too many: the next one tries again
                self._thread = None
                raise

    def _run(self) -> None:
        thread = threading.current_thread()
        while self._thread is thread and not self.why:
            self._bell = bell = Bell()
            with contextlib.suppress(Closed), self.feed.hung(bell):
                if not self.is_behind():
                    self.clock.wait(bell, self._next_time())
            with self.lock:
                if self._thread is not thread or self.why or self._rest():
                    return
            try:
                self.advance()
            except Closed:
                return
            except TidelineError:
                bell.wait(WAIT_S)  # whoever asks is told
            time.sleep(TICK_S)

    def _next_time(self) -> int:
        """When there is something to do, though nothing is written."""
        due: int = min(self._engine.expiry.due, self._next_end())
        if self._idle_since is not None:
            due = min(due, self._idle_since + LINGER_US)
        return due

    def _rest(self) -> bool:
        """Stop following if nobody has asked for long (the lock is held)."""
        idle = self._idle_since
        if idle is None or self.clock.now() < idle + LINGER_US:
            return False
        assert self._follower is not None
        self._follower.close()
        self._follower = self._thread = None
        self._drop_blocks()
        return True

    def _wake(self) -> None:
        bell = self._bell
        if bell is not None:
            bell.notify_all()

    # ---- the end ------------------------------------------------------------------------------

    def close(self, why: str) -> None:
        """End everything; `why` is told to whoever waits."""
        self.why = self.why or why
        self._wake()
        with self.lock:  # whoever is about to follow has done so, and its thread runs
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()
        with self.lock:
            if self._follower is not None:
                self._follower.close()
            self._drop_blocks()
        for bell in list(self._waiting):
            bell.notify_all()
        self._shelter.close()

    def leave_to_parent(self, why: str) -> None:
        """In a forked child: all of it is the parent's."""
        self.why = why
        self.lock, self.handing, self._calls = threading.RLock(), threading.Lock(), threading.Lock()
        self._shelter.leave_to_parent()
        self._thread = self._bell = None
        self._waiting = {}

    def _require_open(self) -> None:
        if self.why:
            raise Closed(self.why)


_OPEN: weakref.WeakSet[Following] = weakref.WeakSet()


@atexit.register
def _end_all() -> None:
    """The program ends: no thread may be torn away in the middle of something."""
    for hub in list(_OPEN):
        hub.close("the program ends")
