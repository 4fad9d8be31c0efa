"""What a log is to everybody else: the one interface, for a log on disk and for one that travels.

    append    local and at once, under the owner's lock; its order is the order of everything
    sync      without the lock: returns when the frame is committed
    read      frames from a position on, in order
    truncate  cuts what was appended and never committed

*Committed* means that nothing takes a frame back: today it is in the hands of the operating system
(durability "os") or on disk ("disk"); replicated, a majority has it. `sync(position)` is the only
call that waits for others, and nobody holds a lock of the engine while it does
(docs/decisions/0042-the-log-can-travel.md).

Positions are opaque: others compare them, keep them, print and parse them. *Marks* are whole
numbers, so that kernels and manifests can hold them: the log from a mark on is kept, measured or
forgotten as a whole.

`Log` (log.py), `NullLog` (nulllog.py) and `SharedLog` (sharedlog.py) are the three there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tideline.lsm.position import Position

__all__ = ["AnyCursor", "AnyLog"]


class AnyCursor(Protocol):
    """Reads frames while the log grows; one thread at a time."""

    position: Position
    """Where the next frame begins."""

    def read(self, upto: Position) -> Iterator[tuple[Position, memoryview]]:
        """The frames before `upto`, each with where the following one begins."""
        ...

    def heads(self, upto: Position, size: int) -> Iterator[tuple[Position, bytes]]:
        """Where each frame before `upto` begins, and the first bytes of its payload."""
        ...

    def close(self) -> None:
        """Let go of the file."""
        ...


class AnyLog(Protocol):
    """An append-only log of frames."""

    frames: int
    """Rises by one with every frame that counts: whoever was cut looks here."""
    shelter: Callable[[Callable[[], None]], None]
    """Runs what must not be cut in the middle."""

    # ---- appending: under the owner's lock, never waits for other machines -------------------

    def append(self, payload: bytes | bytearray | memoryview) -> Position:
        """Add one frame. It is there whole, or nothing was added and an error says why."""
        ...

    def append_parts(self, parts: Sequence[bytes | memoryview]) -> Position:
        """`append` for a payload in several places."""
        ...

    def append_framed(self, frame: memoryview) -> None:
        """`append` for a whole frame; `last` says where it went."""
        ...

    @property
    def last(self) -> Position:
        """Where the frame appended last begins."""
        ...

    def repair(self) -> None:
        """Cut away what an interrupted append left."""
        ...

    # ---- committing: without a lock, may wait for long --------------------------------------

    def sync(self, position: Position) -> None:
        """Return when the frame at `position` is committed; `Unavailable` when it never will be."""
        ...

    def sync_all(self) -> None:
        """`sync` for everything appended so far."""
        ...

    @property
    def committed(self) -> Position:
        """Where the frames end that nothing takes back any more; at most `end`."""
        ...

    def truncate(self, to: Position) -> None:
        """Cut away every frame from `to` on, durably; only what was not committed."""
        ...

    def require_cut(self, to: Position) -> None:
        """`InvalidRequest` when `truncate` would refuse."""
        ...

    @property
    def leads(self) -> bool:
        """Whether frames may be appended here: not where another machine does."""
        ...

    def commit_point(self) -> Callable[[], Position | None] | None:
        """Take note of the end (the owner's lock); what it returns waits until that is committed.

        It gives the end once it is on this machine's disk. None where nobody has to wait: `settle`
        does it.
        """
        ...

    # ---- reading: from any thread ------------------------------------------------------------

    @property
    def start(self) -> Position:
        """Where the first frame that is still kept begins."""
        ...

    @property
    def starts(self) -> list[Position]:
        """Places to begin a search at: some frames begin there, or will."""
        ...

    @property
    def end(self) -> Position:
        """Where the next frame will begin."""
        ...

    def read(self, after: Position, upto: Position) -> Iterator[tuple[Position, memoryview]]:
        """The frames in [after, upto), each with where the following one begins."""
        ...

    def cursor(self, position: Position) -> AnyCursor:
        """Reads frames from a position on, as the log grows."""
        ...

    def replay(self) -> Iterator[tuple[int, memoryview]]:
        """Every frame with its mark, once, before any append."""
        ...

    def replay_joined(self) -> Iterator[tuple[int, NDArray[np.int64]]]:
        """`replay` for payloads of whole words, many at once."""
        ...

    def verify(self) -> None:
        """Read everything that is kept again and check it."""
        ...

    # ---- keeping: by marks -------------------------------------------------------------------

    @property
    def mark(self) -> int:
        """The mark of what is appended from now on."""
        ...

    @property
    def size_bytes(self) -> int:
        """Bytes of everything that is kept."""
        ...

    def size_from(self, first: int) -> int:
        """Bytes from a mark on."""
        ...

    def rotate(self) -> None:
        """Begin a new mark."""
        ...

    def protect(self, before: int) -> None:
        """What was appended before a mark is in components: it is not cut any more."""
        ...

    def forget(self, before: int) -> int:
        """Delete what was appended before a mark; the bytes that this freed."""
        ...

    def settle(self) -> Position | None:
        """Bring everything to this machine's disk; where it ended then."""
        ...

    def close(self) -> None:
        """Finish."""
        ...

    def leave_to_parent(self) -> None:
        """In a forked child: let go without touching anything."""
        ...
