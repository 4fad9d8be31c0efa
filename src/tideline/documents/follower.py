"""Reading the changes of a collection frame by frame, from a seq on.

    log frame -> Part (columns, in place) -> Change, one a row, when it is asked for

A follower stands after a change: (part, row) in a frame that it has read, and the position of the
next frame. All of it is moved in one step, after what is handed out was made: a call that is
cut by an exception (docs/decisions/0040-interrupts.md) hands out the same again.

Safe from any thread; each change is handed out once.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from tideline.documents.feed import Feed
from tideline.documents.payload import read_payload
from tideline.documents.types import DELETE, Rows
from tideline.errors import Closed, Corruption, TidelineError, Unavailable
from tideline.index.texts import Texts
from tideline.lsm.anylog import AnyCursor
from tideline.lsm.position import BEFORE_ALL, Position
from tideline.model import Change
from tideline.where.keys import decode

__all__ = ["Follower", "Part"]


class Part(NamedTuple):
    """The changes of one frame as columns: row i has seq `seq + i`. Views into the log."""

    seq: int
    rows: Rows
    had: NDArray[np.bool_] | None = None
    """Which rows had an old version; None when that is not known."""
    old: Texts | None = None
    """The old versions, empty where there was none."""

    @property
    def limit(self) -> int:
        """The seq after the last row's."""
        return self.seq + self.rows.count

    def fitting(self, first: int, limit: int, most_bytes: int) -> int:
        """Up to which of the rows [first, limit) so many bytes reach, and one row at least."""
        ends = self.rows.docs.offsets[first : limit + 1] - self.rows.docs.offsets[first]
        if self.old is not None:
            ends = ends + (self.old.offsets[first : limit + 1] - self.old.offsets[first])
        return max(first + int(np.searchsorted(ends, most_bytes, "right")) - 1, first + 1)

    def changes(self, first: int, limit: int, before: bool) -> Iterator[Change]:
        """The rows [first, limit), each with its texts copied."""
        deletes = (self.rows.ops[first:limit] == DELETE).tolist()
        keys = self.rows.keys.slice(first, limit).to_list()
        docs = self.rows.docs.slice(first, limit).to_list()
        olds: list[bytes | msgspec.UnsetType | None] = [msgspec.UNSET] * len(keys)
        if before and self.had is not None and self.old is not None:
            texts = self.old.slice(first, limit).to_list()
            had = self.had[first:limit].tolist()
            olds = [text if there else None for text, there in zip(texts, had, strict=True)]
        for row, key in enumerate(keys):
            after = None if deletes[row] else docs[row]
            yield Change(self.seq + first + row, decode(key), after, olds[row])  # type: ignore[arg-type]


class Follower:
    """Somebody who reads the changes of one collection."""

    _cursor: AnyCursor | None = None  # also when making one was cut

    def __init__(
        self, feed: Feed, after: int | None, before: bool, *, beside: Follower | None = None
    ) -> None:
        """`beside` another one it stands where that one does, and `after` says nothing."""
        self._feed = feed
        self.before = before
        """Whether changes come with old versions."""
        self._lock = threading.Lock()
        self._closed = False
        self._cursor = None
        self._frames: Iterator[tuple[Position, memoryview]] | None = None
        self._part: Part | None = None
        self._row = 0  # of the part: the next to hand out
        self._after = 0  # the seq that it began after, while there is no part
        self.position = BEFORE_ALL
        """Where the next frame begins."""
        try:
            if beside is not None:
                self.move_to(beside)
                feed.join(self)
            else:
                feed.attach(self, after, before)
        except BaseException:
            feed.detach(self)
            raise

    def begin(self, position: Position, after: int) -> None:
        """Stand after a change; the frame at `position` has the next one, or an earlier one."""
        self.position, self._after = position, after

    def twin(self) -> Follower:
        """Another follower that stands where this one does; nothing it needs goes away."""
        return Follower(self._feed, None, self.before, beside=self)

    def move_to(self, other: Follower) -> None:
        """Stand where another one of the same collection does, which keeps what it needs."""
        with other._lock:
            part, row, position, after = other._part, other._row, other.position, other._after
        with self._lock:
            self._frames = None
            self._part, self._row, self.position, self._after = part, row, position, after

    def rest(self) -> None:
        """Let go of the file until the next take; what it needs is kept."""
        with self._lock:
            if self._cursor is not None:
                self._cursor.close()

    @property
    def seq(self) -> int:
        """The change that was handed out last, or that it began after."""
        part, row = self._part, self._row
        return self._after if part is None else part.seq + row - 1

    def take(self, most: int | None, most_bytes: int | None = None) -> list[Change]:
        """What is there now, at most so many, in order.

        `most_bytes` of documents end it, too, but for one change at least.
        """
        with self._lock:
            self._require_open()
            part, row, position = self._part, self._row, self.position
            found: list[Change] = []
            left = most_bytes
            while (most is None or len(found) < most) and (left is None or left > 0):
                if part is None or row == part.rows.count:
                    after = self._after if part is None else part.limit - 1
                    following, position = self._read(position, after)
                    if following is None:
                        break
                    part, row = following, after + 1 - following.seq
                limit = part.rows.count
                if most is not None:
                    limit = min(limit, row + most - len(found))
                if left is not None:
                    limit = part.fitting(row, limit, left)
                made = list(part.changes(row, limit, self.before))
                if left is not None:
                    left -= sum(map(_size, made))
                found += made
                row = limit
            # One step: no exception comes between assignments without a call.
            self._part, self._row, self.position = part, row, position
            return found

    def take_part(self) -> Part | None:
        """The changes of the next frame as columns, or None when there is none now.

        For whoever looks at many changes and few documents. Rows with a seq up to the one
        before are of no concern: the first frame may have some.
        """
        with self._lock:
            self._require_open()
            part, row, position = self._part, self._row, self.position
            if part is None or row == part.rows.count:
                after = self._after if part is None else part.limit - 1
                following, position = self._read(position, after)
                if following is None:
                    self.position = position
                    return None
                part = following
            self._part, self._row, self.position = part, part.rows.count, position
            return part

    def is_behind(self) -> bool:
        """Whether there is more to hand out; `Closed` when there will be no more."""
        with self._lock:
            part, row = self._part, self._row
            return (part is not None and row < part.rows.count) or (
                self.position < self._feed.limit()
            )

    def _read(self, position: Position, after: int) -> tuple[Part | None, Position]:
        """The next frame with changes later than `after`, and where the following one begins.

        None when there is no such frame now.
        """
        while True:
            cursor = self._cursor
            # It is elsewhere when a call was cut; then the frames are read again.
            if self._frames is None or cursor is None or cursor.position != position:
                limit = self._feed.limit()
                if position >= limit:
                    if after < self._feed.loaded:
                        raise self._stuck(self._feed.lost(after))
                    return None, position
                log = self._feed.log
                if position < log.start:
                    raise self._stuck(self._feed.lost(after))
                if cursor is None:
                    self._cursor = cursor = log.cursor(position)
                cursor.position = position
                self._frames = cursor.read(limit)
            try:
                found = next(self._frames, None)
            except Unavailable:
                if position < self._feed.log.start:
                    raise self._stuck(self._feed.lost(after)) from None
                raise
            if found is None:
                self._frames, position = None, cursor.position  # maybe the begin of a segment
                continue
            position = found[0]
            part = self._decoded(found[1], after)
            if part is not None:
                return part, position

    def _decoded(self, payload: memoryview, after: int) -> Part | None:
        rows, seq = read_payload(payload)
        if seq > after + 1:
            if after < self._feed.loaded:
                raise self._stuck(self._feed.lost(after))
            raise Corruption("the log lacks changes", file="log", after=after, found=seq)
        if seq + rows.count <= after + 1:
            return None
        if not self.before:
            return Part(seq, rows)
        old = self._feed.old_of(payload, seq)
        if old is None:
            raise self._stuck(self._feed.without_old(max(seq, after + 1)))
        return Part(seq, rows, *old)

    def _stuck(self, error: TidelineError) -> TidelineError:
        """It cannot go on, so nothing is kept for it any more."""
        self._feed.detach(self)
        return error

    def _require_open(self) -> None:
        if self._closed:
            raise Closed("the feed was closed")
        self._feed.require_open()

    def close(self) -> None:
        """Stop; nothing is kept for it any more."""
        self._closed = True
        self._feed.detach(self)
        with self._lock:
            self._part = self._frames = None
            if self._cursor is not None:
                self._cursor.close()

    def leave_to_parent(self) -> None:
        """In a forked child: what comes is the parent's."""
        self._lock = threading.Lock()  # the old one may be locked for ever

    def __del__(self) -> None:
        cursor = self._cursor
        if cursor is not None:
            with contextlib.suppress(OSError):
                cursor.close()


def _size(change: Change) -> int:
    """The bytes of its documents, one at least."""
    old = change.raw_before
    return len(change.raw_after or b"") + (len(old) if isinstance(old, bytes) else 0) + 1
