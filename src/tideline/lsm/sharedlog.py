"""The log of a dataset that several machines have: the same frames at the same positions on each.

    leader     append -> this machine's log, at once, under the owner's lock
                      -> share.propose -> the machines agree -> `decided`: committed
    follower   `take`: what was decided is appended, and is committed with that

Committed is what a majority of machines has. `sync` waits for that, `committed` says how far it
is. A follower appends nothing of its own, so its log is always committed as a whole. On the leader
what is not committed yet is at the end. When it stops leading, this part is cut: the dataset is
opened anew (`open_shared`), and gets what was decided after all as a follower does.

New segments begin on all machines at the same place: where one is full, by itself; anywhere else
the leader says so (`rotate`), and a follower waits for it. So positions are the same everywhere.

What others may learn of only once it is committed is held back (`hold`) and done in the order of
the frames: deliveries of channels.

Threads: as log.py; `decided`, `take` and `tell` are for one thread, which applies what was decided.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, TypeVar
from zlib import crc32

from tideline.errors import Corruption, Unavailable
from tideline.lsm.endmark import EndMark
from tideline.lsm.files import sync_folder, unavailable
from tideline.lsm.frames import FILE_BYTES, HEADER_BYTES
from tideline.lsm.log import Log
from tideline.lsm.position import Position
from tideline.lsm.segments import Segments

__all__ = [
    "NotLeading", "OutcomeUnknown", "Share", "SharedLog", "wait_for_others", "without_waiting",
]  # fmt: skip

T = TypeVar("T")
_OTHERS_S = 5.0


class NotLeading(Unavailable):
    """Another machine of the cluster writes: nothing was stored here."""


class OutcomeUnknown(Unavailable):
    """A write was begun, and it is not known whether it landed: look before doing it again."""


class _Calls(threading.local):
    waits: list[tuple[SharedLog, Position]] | None = None


_calls = _Calls()


def without_waiting(call: Callable[[], T]) -> tuple[T, list[tuple[SharedLog, Position]]]:
    """Make a call that stores something; instead of waiting it says what is to be waited for."""
    waits: list[tuple[SharedLog, Position]] = []
    _calls.waits = waits
    try:
        return call(), waits
    finally:
        _calls.waits = None


class Share(Protocol):
    """What a dataset asks of the cluster it is shared in."""

    @property
    def leads(self) -> bool:
        """Whether this machine writes."""
        ...

    @property
    def cut(self) -> Position | None:
        """Up to where this machine's log was committed for certain when it was last closed."""
        ...

    @property
    def wait_s(self) -> float:
        """How long a write waits for the majority."""
        ...

    def propose(self, position: Position, payload: bytes | None) -> None:
        """Have a frame agreed on; without a payload: a new segment. `NotLeading` when it cannot be.

        Returns at once.
        """
        ...

    def decide(self, change: dict[str, Any], do: Callable[[], None]) -> None:
        """Have a change of settings agreed on, then done here, and on all others."""
        ...


class SharedLog(Log):
    """A log on disk that a cluster agrees on."""

    share: Share

    @classmethod
    def open_shared(
        cls, folder: Path, share: Share, *, first: int, kept: int, end: Position | None, new: bool,
        segment_bytes: int,
    ) -> SharedLog:  # fmt: skip
        """`Log.open`, without what is not known to be committed at its end."""
        known = max(filter(None, (share.cut, end)), default=Position(first, 0))
        known = max(known, Position(first, 0))
        _shorten(folder, known)
        # What comes later is agreed on and on the disks of the others, too: here the operating
        # system is enough.
        self = cls.open(
            folder, first=first, kept=kept, end=end, new=new, durability="os",
            segment_bytes=segment_bytes,
        )  # fmt: skip
        self.share = share
        return self

    def __init__(self, folder: Path, *, disk: bool, segment_bytes: int) -> None:
        """Use `SharedLog.open_shared`."""
        super().__init__(folder, disk=disk, segment_bytes=segment_bytes)
        self._gate = threading.Lock()  # for what follows
        self._decided = Position(1, FILE_BYTES)
        self._undecided: deque[tuple[Position, Position]] = deque()  # begin and end of each
        self._proposed = self._landed = 0
        self._lost = ""
        self._waiting: list[tuple[Callable[[], bool], Callable[[], None]]] = []
        self.telling = threading.RLock()
        """Held while what was held back is done."""
        self._held: deque[tuple[int, Callable[[], None]]] = deque()
        self.on_commit: Callable[[], None] = lambda: None
        """Called when more is committed, by the thread that applies."""

    @property
    def leads(self) -> bool:
        """Whether this machine may append."""
        return self.share.leads

    # ---- the leader ----------------------------------------------------------------------------

    def _append(
        self, size: int, crc: int, payload: tuple[bytes | bytearray | memoryview, ...]
    ) -> Position:
        self.require_leading()
        position = super()._append(size, crc, payload)
        self._propose(position, b"".join(payload))
        return position

    def append_framed(self, frame: memoryview) -> None:
        """`append` for a whole frame."""
        self.require_leading()
        super().append_framed(frame)
        self._propose(self.last, bytes(frame[HEADER_BYTES:]))

    def rotate(self) -> None:
        """Begin a new segment, on all machines; a follower does when the leader did."""
        if not self.share.leads:
            return
        super().rotate()
        self._propose(self.end, None)

    def require_leading(self) -> None:
        """`NotLeading` where another machine writes."""
        if not self.share.leads:
            raise NotLeading("this machine of the cluster does not write: ask the leader")

    def _propose(self, position: Position, payload: bytes | None) -> None:
        try:
            with self._gate:
                if self._lost:
                    raise NotLeading(self._lost)
                self.share.propose(position, payload)
                self._undecided.append((position, self.end))
                self._proposed += 1
        except BaseException:
            if payload is not None:  # nobody else has heard of it
                self._end, self._last = position.offset, position.offset
                self.frames -= 1
                self._undo()
            raise

    def sync(self, position: Position) -> None:
        """Return when a majority has the frame at `position`.

        `OutcomeUnknown` when that is not known in time, or this machine leads no more: the frame
        may be decided after all. In a call by `without_waiting` it returns at once.
        """
        if position < self._decided:
            return
        if _calls.waits is not None:
            _calls.waits.append((self, position))
        else:
            self._wait(lambda: position < self._decided)

    def sync_all(self) -> None:
        """`sync` for everything appended so far."""
        limit = self._proposed
        if limit > self._landed:
            self._wait(lambda: limit <= self._landed)

    def _wait(self, done: Callable[[], bool]) -> None:
        turn = threading.Lock()
        turn.acquire()
        judge = self._notify(done, turn.release)
        turn.acquire(timeout=self.share.wait_s)
        judge()

    def notify(self, position: Position, wake: Callable[[], None]) -> Callable[[], None]:
        """`sync` for who has no thread to wait in: `wake` is called once, by any thread, when
        there is nothing to wait for any more; what this returns then raises what `sync` would.
        """
        return self._notify(lambda: position < self._decided, wake)

    def _notify(self, done: Callable[[], bool], wake: Callable[[], None]) -> Callable[[], None]:
        one = done, wake

        def judge() -> None:
            with self._gate:
                if one in self._waiting:
                    self._waiting.remove(one)
                if not done():
                    why = self._lost or "no majority of the cluster has answered"
                    raise OutcomeUnknown(f"{why}: the write may have landed or not")

        with self._gate:
            if not done() and not self._lost:
                self._waiting.append(one)
                return judge
        wake()
        return judge

    def lose(self, why: str) -> None:
        """This machine leads no more: whoever waits is told."""
        with self._gate:
            self._lost = why
            self._wake()

    def _wake(self) -> None:
        """Let those go on that need not wait any more."""
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            if self._lost or one[0]():
                one[1]()
            else:
                self._waiting.append(one)

    # ---- whoever applies what was decided -----------------------------------------------------

    def decided(self, position: Position, *, rotation: bool = False) -> bool:
        """What begins at a position was decided, a frame or a segment.

        False when it is to be taken from others.
        """
        if position < self._decided or (rotation and position == self._decided):
            return True  # it was here when the log was opened
        with self._gate:
            if not self._undecided:
                return False
            expected, end = self._undecided.popleft()
            if expected != position:
                raise Corruption(
                    "the cluster agreed on another frame than this machine has",
                    file=self._path(position.segment), position=str(position),
                    here=str(expected),
                )  # fmt: skip
            self._decided = end
            self._landed += 1
            return True

    def take(self, position: Position, payload: bytes) -> None:
        """Append what was decided, on a follower."""
        found = super()._append(len(payload), crc32(payload), (payload,))
        if found != position:
            raise Corruption(
                "this machine's log is not where the cluster's is: recover the node",
                file=self._path(found.segment), position=str(position), here=str(found),
            )  # fmt: skip
        self._decided = self.end

    def take_rotation(self, position: Position) -> None:
        """Begin a segment where the leader did."""
        super().rotate()
        self._decided = self.end
        if position != self._decided:
            raise Corruption(
                "this machine's log is not where the cluster's is: recover the node",
                file=self._path(position.segment), position=str(position), here=str(self.end),
            )  # fmt: skip

    def tell(self) -> None:
        """More is committed: do what was held back, and wake whoever waits."""
        self._release()
        with self._gate:
            self._wake()
        self.on_commit()

    def hold(self, work: Callable[[], None]) -> None:
        """Have something done once all that is appended so far is committed (the owner's lock)."""
        with self.telling:
            self._held.append((self._proposed, work))
            self._release()

    def _release(self) -> None:
        with self.telling:
            while self._held and self._held[0][0] <= self._landed:
                self._held.popleft()[1]()

    @property
    def committed(self) -> Position:
        """Where the frames end that a majority has."""
        return self._decided

    def commit_point(self) -> Callable[[], Position | None]:
        """Take note of the end (the owner's lock); what it returns waits until it is committed."""
        end, limit = self.end, self._proposed

        def settle() -> Position | None:
            if limit > self._landed:
                self._wait(lambda: limit <= self._landed)
            return None if super(SharedLog, self).settle() is None else end

        return settle

    def save(self) -> Position:
        """Bring everything to this machine's disk; up to where it is committed."""
        decided = self._decided
        if super().settle() is not None:  # else it was closed
            sync_folder(self._path(1).parent)
        return decided

    def settle(self) -> Position | None:
        """Nothing by itself: see `commit_point`."""
        return None

    def _rotate(self) -> None:
        if self._file >= 0:
            try:
                os.fsync(self._file)  # `save` looks at the last segment only
            except OSError as error:
                raise unavailable(
                    error, "log could not be synced", self._path(self._segment)
                ) from error
        super()._rotate()

    def _ready(self, numbers: list[int], end: int) -> None:
        super()._ready(numbers, end)
        self._decided = Position(self._segment, self._end)


def wait_for_others(log: Any, has: Callable[[], bool]) -> None:
    """Where another machine writes: wait a while for what was told there already."""
    limit = time.monotonic() + _OTHERS_S
    while not log.leads and not has():
        if time.monotonic() >= limit:
            raise Unavailable("this node of the cluster has not come so far yet: try again")
        time.sleep(0.01)


def _shorten(folder: Path, to: Position) -> None:
    """Cut the files of a log that nobody has open after a position."""
    segments = Segments(folder, disk=False)
    numbers = segments.numbers()
    later = [number for number in numbers if number > to.segment]
    path = segments.path(to.segment)
    try:
        size = path.stat().st_size if to.segment in numbers else 0
        keep = to.offset or FILE_BYTES
        if not later and size <= keep:
            return
        EndMark(folder, disk=False).remove()  # first: it says more than the log will have
        for number in reversed(later):
            segments.remove(number)
        if size > keep:
            os.close(segments.shorten(to.segment, keep))
    except OSError as error:
        raise unavailable(error, "log could not be cut", path) from error
