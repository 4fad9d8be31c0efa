"""Calls that are interrupted are brought to their end: whole, or not at all.

Exceptions thrown into a caller (Ctrl-C, a signal handler that raises) may come at any moment
(docs/decisions/0040-interrupts.md). What takes many steps is sheltered (shelter.py). A single row
either has its frame in the log, and then its effects are brought to their end, or it is taken back.

    unfinished   how things stood before the row that runs; None when nothing runs
    owed         what follows from a row that is logged: deliveries, ends. It may be run twice

Whoever takes the engine's lock calls `finish` before anything else: the call before may have been
cut while it was being mended.

Under the engine's lock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tideline.channel.parts import Parts
from tideline.kernels import again
from tideline.kernels import layout as at

__all__ = ["Interrupts"]

T = TypeVar("T")
_Open = tuple[int, int, int, int]
"""How things stood before a row: next seq, answers given, frames logged, the channel's time."""
_SHELTERED: _Open = (-1, 0, 0, 0)  # something of many steps, that undoes itself
_TRIES = 8  # of an effect that is interrupted, or fails


class Interrupts:
    """What an interrupted call leaves, and how it ends."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self.unfinished: _Open | None = None
        self.outer: _Open | None = None
        """What `unfinished` is when a single row is done: more than None in sheltered work."""
        self.owed: Callable[[], None] | None = None

    def finish(self) -> None:
        """Bring the call before to its end, if it was interrupted."""
        if self.unfinished is not None:
            self.mend()

    def sheltered(self, work: Callable[[], T]) -> T:
        """Run something of many steps that nothing can cut; then what it owes."""
        shelter = self._parts.shelter
        if self.unfinished is not None:
            return shelter.run(work)  # a part of a call that is looked after
        self.unfinished = self.outer = _SHELTERED
        try:
            value = shelter.run(work)
            if self.owed is not None:
                self._pay()
        except BaseException:
            self.mend()
            raise
        self.unfinished = self.outer = None
        return value

    def owe(self, effect: Callable[[], None]) -> None:
        """Have something run when the sheltered work is over, in the thread of the caller."""
        self.owed = effect

    def run_whole(self, effect: Callable[[], None]) -> None:
        """Run something short to its end, now or, after an interrupt, as soon as possible."""
        self.owed, self.unfinished = effect, _SHELTERED
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
        parts = self._parts
        inside = parts.shelter.is_inside
        if not inside:
            parts.shelter.finish()
        opened = self.unfinished
        if opened is not None and opened is not _SHELTERED:
            log = parts.store.log
            log.repair()
            parts.marks.allow_headroom(False)
            seq, answered, frames, newest = opened
            if log.frames != frames:
                parts.logged_answers = parts.answers
            else:
                self.owed = None
                parts.answers = answered
                if parts.view[at.C_NEXT_SEQ] != seq:
                    again.take_back(parts.address, 0, 0, parts.view[at.C_ROW])
                parts.view[at.C_NEWEST] = newest
        if inside:
            self.unfinished = self.outer
            return
        if self.owed is not None:
            self._pay()
        self.unfinished = self.outer = None

    def _pay(self) -> None:
        """Run what is owed. What is thrown into it is raised at the end.

        An effect that was interrupted every time stays owed: whoever takes the lock next runs it.
        """
        effect = self.owed
        assert effect is not None
        error: BaseException | None = None
        for _ in range(_TRIES):
            try:
                effect()
                self.owed = None
                break
            except BaseException as raised:
                error = raised
        if isinstance(error, Exception):
            self.owed = None  # it fails by itself
        if error is not None:
            raise error

    def leave_to_parent(self) -> None:
        """In a forked child: what was unfinished is the parent's."""
        self.unfinished = self.outer = self.owed = None
