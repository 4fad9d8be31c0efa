"""An append-only log of frames, in numbered segment files.

    folder   := log-000001.log log-000002.log ...       numbers without gaps
    segment  := file header (32 bytes) | frame*          bytes: frames.py, docs/internals/log.md
                                                         files: segments.py
    frame    := header (16 bytes) | payload | zero bytes up to a multiple of 8
    LOG_END     how far the log had reached (endmark.py)

Invariants:
1. Every payload begins at a multiple of 8, so int64 columns in it are aligned in the
   memory map that `replay` reads.
2. When `append` returns, the frame is in the operating system's hands: a killed
   process loses nothing. When `sync` returns with durability "disk", it is on disk.
3. Only the end of the last segment may be incomplete, and it says so beyond doubt: fewer
   bytes than a header, a header that checks and a payload that the file's end cuts short,
   or zero bytes only. That tail was never acknowledged and is cut away. Everything
   else that does not check is `Corruption`: the header's own checksum is what keeps a flipped
   length from looking like a torn tail.
4. What is known of its length is held against it: each segment says how long the one before it was;
   the owner's manifest and LOG_END say how far the log had reached. A shorter log is `Corruption`.
5. There is never garbage before the end: a write that fails is cut away again, and when
   even that fails the log takes no more until it is opened anew.
6. `frames` rises exactly when a frame counts. An exception thrown into `append` leaves the log
   with the frame or without it; one that comes while the frame is cut away leaves that to `repair`.

The interface is anylog.py's; replay.py reads for recovery, cursor.py while the log grows.

Threads: `replay`, `append`, `truncate` and `close` are for one thread at a time (the caller's
writer lock); the others are safe from any thread. No lock here is a `threading.Condition`: one
that is entered may stay locked when an exception is thrown in.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import Self, TypeVar
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from tideline.errors import Closed, Corruption, InvalidRequest, TidelineError, Unavailable
from tideline.lsm.cursor import Cursor
from tideline.lsm.endmark import EndMark
from tideline.lsm.files import unavailable, write_all
from tideline.lsm.frames import (
    CRC,
    FILE_BYTES,
    FRAME,
    HEADER_BYTES,
    MAGIC,
    MAX_PAYLOAD,
    PADS,
)
from tideline.lsm.frames import frames as read_frames
from tideline.lsm.position import Position
from tideline.lsm.replay import replay, replay_joined
from tideline.lsm.segments import Segments, name_of

__all__ = ["Log", "Position"]

_MARK_EVERY = 4 << 10  # bytes of log between two notes of its end, durability "os"
T = TypeVar("T")


class Log:
    """Frames in the order they were appended.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> log = Log.open(Path(folder.name))
    >>> log.append(b"hello")
    Position(segment=1, offset=32)
    >>> log.close()
    >>> log = Log.open(Path(folder.name))
    >>> [(segment, bytes(payload)) for segment, payload in log.replay()]
    [(1, b'hello')]
    >>> log.close(); folder.cleanup()
    """

    def __init__(self, folder: Path, *, disk: bool, segment_bytes: int) -> None:
        """Use `Log.open`."""
        self._segments = Segments(folder, disk=disk)
        self._path = self._segments.path
        self._disk = disk
        self._segment_bytes = max(segment_bytes, FILE_BYTES)  # none is closed without a frame
        self._mark = EndMark(folder, disk=disk)
        self._look_at = 0  # an end after which there is something to do before an append
        self._kept: dict[int, int] = {}  # sizes of the segments before the current one
        self._forgotten = 0  # those below are being deleted: nobody begins to read one
        self._protected = 1  # those below are in components: nothing before is cut
        self._pending: list[int] = []  # segments that replay has still to read
        self._segment = 0
        self._end = 0  # of the last whole frame of the current segment
        self._last = 0  # where that begins
        self.frames = 0
        """How many frames were appended since the log was opened."""
        self.shelter: Callable[[Callable[[], None]], None] = lambda work: work()
        """Runs what must not be cut in the middle: see tideline/shelter.py."""
        # `_file` is the open segment; `_fd` is the same while appends are allowed, else -1, so
        # that a refused append costs the allowed ones nothing (writing to -1 fails).
        self._file = -1
        self._fd = -1
        self._refusal: tuple[type[TidelineError], str] | None = None
        self._commit = threading.Lock()  # for `_kept`
        self._syncing = threading.Lock()  # held over an fsync, and while the descriptor changes
        self._synced = (0, 0)  # everything before this (segment, offset) is on disk
        self._unsynced = False  # an fsync has failed
        self._reached: Position | None = None  # how far the log is known to have reached

    @classmethod
    def open(
        cls,
        folder: Path,
        *,
        first: int = 1,
        kept: int | None = None,
        end: Position | None = None,
        new: bool = True,
        durability: str = "os",
        segment_bytes: int = 64 << 20,
    ) -> Self:
        """Open the log in `folder` to replay it from segment `first` on; a new one when there is
        none and there may be none (`new`).

        Segments from `kept` on (default: `first`) may still be read. Earlier ones are what a
        killed `forget` left: they are removed. `end` is where the log is known to have reached:
        one that ends before is `Corruption`, and so is one that ends before what LOG_END says.
        """
        kept = first if kept is None else min(kept, first)
        if durability not in ("os", "disk"):
            raise InvalidRequest("durability must be 'os' or 'disk'", durability=durability)
        if first < 1 or segment_bytes < 1:
            raise InvalidRequest(
                "first and segment_bytes start at 1", first=first, segment_bytes=segment_bytes
            )
        self = cls(Path(folder), disk=durability == "disk", segment_bytes=segment_bytes)
        try:
            numbers = self._segments.numbers()
            for number in numbers:
                if number < kept:
                    self._path(number).unlink()
            numbers = [number for number in numbers if number >= kept]
            self._kept = {number: self._path(number).stat().st_size for number in numbers}
        except OSError as error:
            raise unavailable(error, "log cannot be opened", folder) from error
        if not new and first not in numbers:
            raise Corruption("log segment is missing", file=self._path(first))
        self._protected = first
        if not numbers and first == 1 and end is None:
            self._start(1, self._segments.create(1, 0), FILE_BYTES)
            return self
        noted = self._mark.read()
        self._reached = max(filter(None, (end, noted and Position(*noted))), default=None)
        reached = self._reached.segment if self._reached else 0
        for expected in range(kept, max([*numbers, first, reached]) + 1):
            if expected not in numbers:
                raise Corruption("log segment is missing", file=self._path(expected))
        self._segments.check_sizes(numbers)
        self._pending = [number for number in numbers if number >= first]
        self._segment = numbers[-1]
        self._refusal = (InvalidRequest, "replay the log to its end before appending")
        return self

    def replay(self) -> Iterator[tuple[int, memoryview]]:
        """Every frame's segment and payload, in order. Once, to its end, before any append.

        A payload is a view into the mapped segment and stays valid as long as it is held.
        An incomplete last frame is cut away; other damage raises `Corruption`.
        """
        numbers, self._pending = self._pending, []
        return self._to_the_end(numbers, replay(self._segments, numbers))

    def replay_joined(self) -> Iterator[tuple[int, NDArray[np.int64]]]:
        """`replay` for payloads of whole words: many frames at once, joined end to end.

        The array is overwritten by the next one.
        """
        numbers, self._pending = self._pending, []
        return self._to_the_end(numbers, replay_joined(self._segments, numbers))

    def _to_the_end(self, numbers: list[int], frames: Generator[T, None, int]) -> Iterator[T]:
        end = yield from frames
        self._ready(numbers, end)

    def append(self, payload: bytes | bytearray | memoryview) -> Position:
        """Add one frame; it is handed to the operating system before this returns.

        `Unavailable` when the disk is full or fails: nothing was added.
        """
        if type(payload) is memoryview:
            payload = payload.cast("B")  # len() of another format would not count bytes
        return self._append(len(payload), crc32(payload), (payload,))

    def append_parts(self, parts: Sequence[bytes | memoryview]) -> Position:
        """`append` for a payload that stands in several places (at most 1000): no copy of it.

        A view among them has bytes as its format.
        """
        size = crc = 0
        for part in parts:
            size += len(part)
            crc = crc32(part, crc)
        return self._append(size, crc, tuple(parts))

    def _append(
        self, size: int, crc: int, payload: tuple[bytes | bytearray | memoryview, ...]
    ) -> Position:
        if size > MAX_PAYLOAD:
            raise InvalidRequest("payload is too large", size_bytes=size, limit=MAX_PAYLOAD)
        if self._end > self._look_at:
            self._look()
        start = self._end
        head = FRAME.pack(MAGIC, size, crc)
        pad = PADS[size & 7]
        limit = start + 16 + size + len(pad)
        try:
            written = os.writev(self._fd, (head, CRC.pack(crc32(head)), *payload, pad))
            if written != limit - start:
                rest = b"".join((head, CRC.pack(crc32(head)), *payload, pad))
                write_all(self._fd, memoryview(rest)[written:])
            # One step: no exception comes between assignments without a call.
            self._end, self._last, self.frames = limit, start, self.frames + 1
        except BaseException as error:  # Ctrl-C too, between the write and the new end
            self._write_failed(error)
            raise
        return Position(self._segment, start)

    def append_framed(self, frame: memoryview) -> None:
        """`append` for a whole frame: its header is right and it needs no pad.

        The short way for single calls: one buffer, one write. `last` says where it went.
        """
        size = len(frame)
        if self._end > self._look_at:
            self._look()
        start = self._end
        try:
            written = os.write(self._fd, frame)
            if written != size:
                write_all(self._fd, frame[written:])
            self._end, self._last, self.frames = start + size, start, self.frames + 1
        except BaseException as error:  # Ctrl-C too, between the write and the new end
            self._write_failed(error)
            raise

    @property
    def is_full(self) -> bool:
        """Whether the next append begins a new segment, and waits for the disk for that."""
        return self._end > self._segment_bytes

    @property
    def last(self) -> Position:
        """Where the frame appended last begins."""
        return Position(self._segment, self._last)

    def _write_failed(self, error: BaseException) -> None:
        """Cut away what a failed write may have left; raises what the caller should know."""
        if isinstance(error, OSError) and self._refusal is not None:
            raise self._refuse() from None
        self._undo()
        if isinstance(error, OSError):
            raise unavailable(error, "log write failed", self._path(self._segment)) from error

    def sync(self, position: Position) -> None:
        """Return when the frame at `position` is on disk (durability "disk"; "os": at once).

        Group commit: of the threads that wait, one fsyncs for all that is appended by then.
        """
        if not self._disk:
            return
        with self._syncing:
            if (position.segment, position.offset) < self._synced:
                return
            if self._unsynced or self._file < 0:
                raise self._refuse()
            target = (self._segment, self._end)
            try:
                os.fsync(self._file)
            except OSError as error:
                self._fail_sync()
                raise self._refuse() from error
            self._synced = max(self._synced, target)
            self._mark.write(*self._synced)

    @property
    def mark(self) -> int:
        """A whole number for the log from about here on: what `forget` and `size_from` take.

        Frames appended from now on are kept as long as the log is kept from this mark on.
        """
        return self._segment

    def files(self, mark: int) -> tuple[list[str], str, int]:
        """The files from a mark on, for a copy, under `append`'s lock.

        Names of those that change no more, the name of the last one, and how much of it counts.
        """
        return [name_of(n) for n in range(mark, self._segment)], name_of(self._segment), self._end

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments that are kept."""
        with self._commit:
            return sum(self._kept.values()) + self._end

    def size_from(self, first: int) -> int:
        """Bytes of the segments from `first` on."""
        with self._commit:
            return sum(size for n, size in self._kept.items() if n >= first) + self._end

    @property
    def end(self) -> Position:
        """Where the next frame will begin (unless a new segment does), under `append`'s lock."""
        return Position(self._segment, self._end)

    @property
    def start(self) -> Position:
        """Where the first frame that is still kept begins."""
        with self._commit:
            number = min((n for n in self._kept if n >= self._forgotten), default=self._segment)
            return Position(number, self._segments.first_frame(number))

    @property
    def committed(self) -> Position:
        """Where the frames end that nothing takes back any more.

        Durability "os": those that were appended. "disk": those that are on disk.
        """
        return Position(*self._synced) if self._disk else Position(self._segment, self._end)

    @property
    def starts(self) -> list[Position]:
        """Where the first frame of each kept segment begins, or would."""
        with self._commit:
            numbers = sorted({*self._kept, self._segment})
            return [
                Position(n, self._segments.first_frame(n)) for n in numbers if n >= self._forgotten
            ]

    def cursor(self, position: Position) -> Cursor:
        """Reads frames from a position on, as the log grows."""
        return Cursor(self._path, self._segments.first_frame, position)

    def read(self, after: Position, upto: Position) -> Iterator[tuple[Position, memoryview]]:
        """The frames in [after, upto): each with where the following one begins.

        Both must be places between frames that `end`, `start` or an earlier `read` gave.
        """
        for number in range(after.segment, upto.segment + 1):
            path = self._path(number)
            data = self._segments.map(number)
            if number == upto.segment:
                data = data[: upto.offset]
            offset = after.offset if number == after.segment else self._segments.first_frame(number)
            if offset > len(data):
                raise InvalidRequest("position is not in the log", position=f"{number}:{offset}")
            for _, payload in read_frames(path, number, data, False, offset):
                offset += HEADER_BYTES + (len(payload) + 7 & ~7)
                yield Position(number, offset), payload

    def protect(self, before: int) -> None:
        """What was appended before a mark is in components: it is not cut any more."""
        self._protected = max(self._protected, before)

    def require_cut(self, to: Position) -> None:
        """`InvalidRequest` where the log cannot be cut: the reasons are in the message."""
        if self._refusal is not None:
            raise self._refuse()
        if to < Position(self._protected, self._segments.first_frame(self._protected)):
            raise InvalidRequest("what is before this position is in components", to=str(to))
        if to > self.end:
            raise InvalidRequest("the position is after the end of the log", to=str(to))
        size = self._end if to.segment == self._segment else self._kept[to.segment]
        first = Position(to.segment, self._segments.first_frame(to.segment))
        found = self.read(first, Position(to.segment, size))
        if to != first and all(following != to for following, _ in found):
            raise InvalidRequest("not a position between two frames", to=str(to))

    def truncate(self, to: Position) -> None:
        """Cut away every frame from `to` on, durably, under the same lock as `append`.

        `to` lies between two frames and not before `protect`. Nobody may hold a frame after
        it. Killed in the middle, the log ends at `to` or at some frame after it, whole. When
        the disk fails in the middle, `Unavailable`: the log takes no more until it is opened anew.
        """
        self.require_cut(to)
        if to < self.end:
            self.shelter(lambda: self._truncate(to))

    def _truncate(self, to: Position) -> None:
        path = self._path(to.segment)
        with self._syncing:
            file, self._file, self._fd = self._file, -1, -1
            self._refusal = (Unavailable, "log could not be cut: reopen")
            try:
                os.close(file)
                self._mark.remove()  # first: it says more than the log will have
                for number in range(self._segment, to.segment, -1):  # a kill leaves no gap
                    self._segments.remove(number)
                    with self._commit:
                        self._kept.pop(number, None)
                fd = self._segments.shorten(to.segment, to.offset)
            except OSError as error:
                raise unavailable(error, "log could not be cut", path) from error
            with self._commit:
                self._kept.pop(to.segment, None)
                self._start(to.segment, fd, to.offset)
            self._last = to.offset

    def sync_all(self) -> None:
        """`sync` for everything appended so far, under the same lock as `append`."""
        if self._disk:
            self.sync(Position(self._segment, self._end - 1))

    def settle(self) -> Position | None:
        """Bring everything to disk, whatever the durability; where the log ended then.

        None when the log refuses appends.
        """
        with self._syncing:  # the descriptor stays open, and others wait for this fsync
            if self._file < 0 or self._refusal is not None:
                return None
            target = Position(self._segment, self._end)
            try:
                os.fsync(self._file)
            except OSError as error:
                if self._disk:
                    self._fail_sync()
                path = self._path(target.segment)
                raise unavailable(error, "log could not be synced", path) from error
        return target

    def repair(self) -> None:
        """Cut away what an append left that was interrupted twice; under `append`'s lock."""
        if self._fd >= 0 and os.fstat(self._fd).st_size != self._end:
            self._undo()

    @property
    def leads(self) -> bool:
        """Whether frames may be appended here: a log of one machine takes them."""
        return True

    def commit_point(self) -> Callable[[], Position | None] | None:
        """Nobody waits for other machines."""
        return None

    def rotate(self) -> None:
        """Begin a new segment, under the same lock as `append`."""
        self._rotate()

    def verify(self) -> None:
        """Read every kept segment again and check every frame up to where it ends now."""
        with self._commit:
            ends = {**self._kept, self._segment: self._end}
        self._segments.check_sizes(sorted(ends))
        for number, end in sorted(ends.items()):
            if not self._path(number).exists():
                raise Corruption("log segment is missing", file=self._path(number))
            data = self._segments.map(number)
            if len(data) < end:
                raise Corruption(
                    "log segment is cut short", file=self._path(number), size=len(data)
                )
            for _ in read_frames(self._path(number), number, data[:end], False):
                pass

    def forget(self, before: int) -> int:
        """Delete the segments with a number below `before`; returns the bytes freed.

        The caller's manifest must already name `before` (or a later one) as the first.
        """
        with self._commit:
            if before > self._segment:
                raise InvalidRequest(
                    "the current segment cannot be forgotten", before=before, segment=self._segment
                )
            going = sorted(number for number in self._kept if number < before)
            self._forgotten = max(self._forgotten, before)
        freed = 0
        for number in going:  # oldest first: a kill in between leaves no gap
            try:
                self._path(number).unlink(missing_ok=True)
            except OSError as error:
                raise unavailable(error, "log cannot be deleted", self._path(number)) from error
            with self._commit:
                freed += self._kept.pop(number, 0)
        return freed

    def close(self) -> None:
        """Finish; with durability "disk" everything appended is on disk. Twice is allowed."""
        with self._syncing:
            file, self._file, self._fd = self._file, -1, -1
            self._refusal = (Closed, "the log was closed")
            if file < 0:
                return
            try:
                if self._disk and not self._unsynced:
                    os.fsync(file)
                    self._synced = (self._segment, self._end)
            except OSError as error:
                path = self._path(self._segment)
                raise unavailable(error, "log could not be synced", path) from error
            finally:
                os.close(file)

    def leave_to_parent(self) -> None:
        """In a forked child: let go of the file without touching it."""
        self._commit = threading.Lock()  # the old ones may be locked for ever
        self._syncing = threading.Lock()
        file, self._file, self._fd = self._file, -1, -1
        self._refusal = (Closed, "the log belongs to the process that opened it")
        if file >= 0:
            os.close(file)

    def _ready(self, numbers: list[int], end: int) -> None:
        """All frames have been read: go on after the last."""
        # A last segment without a header is one that a kill left: it begins anew.
        reached = (numbers[-1], end or FILE_BYTES) if numbers else (0, 0)
        if numbers and self._reached is not None and reached < self._reached:
            raise Corruption(
                "log segment is cut short", file=self._path(numbers[-1]), size=end,
                known=self._reached.offset,
            )  # fmt: skip
        if numbers and self._refusal is not None and self._refusal[0] is not Closed:
            self._kept.pop(numbers[-1])
            before = self._kept.get(numbers[-1] - 1, 0)
            fd = self._segments.reopen(numbers[-1], end, before)
            self._start(numbers[-1], fd, end or FILE_BYTES)

    def _start(self, number: int, fd: int, end: int) -> None:
        self._segment, self._end = number, end
        self._file = self._fd = fd
        self._refusal = None
        self._synced = (number, end)
        self._note_end()

    def _look(self) -> None:
        """Before an append: begin a new segment, or note how far this one has come."""
        if self._end > self._segment_bytes:
            self.shelter(self._rotate)
        else:
            self._note_end()

    def _note_end(self) -> None:
        if not self._disk or self._synced == (self._segment, self._end):
            self._mark.write(self._segment, self._end)
        step = self._segment_bytes if self._disk else _MARK_EVERY
        self._look_at = min(self._segment_bytes, self._end + step)

    def _rotate(self) -> None:
        if self._refusal is not None:
            raise self._refuse()
        with self._syncing:  # the descriptor must not be closed under a thread that fsyncs it
            if self._disk:
                # Before the next segment exists: only the last may ever be incomplete.
                try:
                    os.fsync(self._file)
                except OSError as error:
                    self._fail_sync()
                    raise self._refuse() from error
                self._synced = (self._segment, self._end)
            number = self._segment + 1
            fd = self._segments.create(number, self._end)
            os.close(self._file)
            with self._commit:
                self._kept[self._segment] = self._end
                self._start(number, fd, FILE_BYTES)

    def _undo(self) -> None:
        """Cut away what a failed append may have written."""
        if self._fd < 0:
            return
        try:
            os.ftruncate(self._fd, self._end)
        except OSError:
            self._fd = -1
            self._refusal = (Unavailable, "log write failed and could not be undone: reopen")

    def _fail_sync(self) -> None:
        """After a failed fsync the kernel may have dropped the pages: no retry is safe."""
        self._fd = -1
        self._unsynced = True
        self._refusal = (Unavailable, "log could not be synced: reopen")

    def _refuse(self) -> TidelineError:
        assert self._refusal is not None
        kind, message = self._refusal
        return kind(message, file=str(self._path(self._segment)))
