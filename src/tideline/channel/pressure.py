"""Memory pressure: a kernel that needs something only Python can give says what, and gets it.

    NEED_OUTPUT, NEED_SCRATCH   larger buffers of the call
    NEED_MEMORY                 larger tables; a window is sealed when segments are short
    NEED_TOLD                   the table of marks; marks are sealed when it would be too large

The kernel has given up the row it was at, before anything of it was stored, and begins it again.

Under the engine's lock.
"""

from __future__ import annotations

from tideline.channel.expiry import Expiry
from tideline.channel.parts import Parts
from tideline.channel.upkeep import Upkeep
from tideline.kernels import layout as at

__all__ = ["SEALING", "Pressure"]

SEALING = (at.NEED_MEMORY, at.NEED_TOLD)  # what may need something sealed


class Pressure:
    """Gives kernels the memory they ask for."""

    def __init__(self, parts: Parts, upkeep: Upkeep, expiry: Expiry) -> None:
        self._parts = parts
        self._upkeep = upkeep
        self._expiry = expiry
        self._asking, self._asks = (0, 0, 0), 0  # the row that last asked for memory, how often

    def serve(self, status: int, more: int | None = None) -> None:
        """Give a kernel what it asked for; `more` is what `segments_wanted` said of it."""
        parts = self._parts
        if status == at.NEED_OUTPUT:
            parts.call.grow_output()
        elif status == at.NEED_SCRATCH:
            parts.call.grow_scratch()
        else:
            if more is None:
                more = self.segments_wanted()
            words = int(parts.state[at.C_TOLD_WANTED])
            if self._wants_table(status):
                self._seal_marks(words)
            if status == at.NEED_TOLD:
                parts.marks.index_told()
            for side in parts.sides:
                side.memory.grow_tables(parts.logged_newest, words)
                if side.memory.lacks_segments(more):
                    self._expiry.drop_windows(parts.logged_newest)
                    side.memory.release()
                while side.memory.lacks_segments(more):
                    self._upkeep.make_room(side)

    def segments_wanted(self) -> int:
        """How many segments the row that asks for memory wants, beside those it always finds.

        When it has asked before, what was freed for it was not enough: each time it gets more,
        until it has enough or nothing is left to seal.
        """
        state = self._parts.state
        row = (int(state[at.C_EPOCH]), int(state[at.C_NEXT_SEQ]), int(state[at.C_POS]))
        self._asks = self._asks + 1 if row == self._asking else 0
        self._asking = row
        return self._asks + int(state[at.C_TOLD_WANTED]) // at.SEGMENT

    def must_seal(self, status: int, more: int) -> bool:
        """Whether it takes more than larger tables to go on: something must be sealed."""
        parts = self._parts
        for side in parts.sides:
            side.memory.grow_tables(parts.logged_newest)
        if any(side.memory.lacks_segments(more) for side in parts.sides):
            return True
        words = int(parts.state[at.C_TOLD_WANTED])
        return self._wants_table(status) and parts.marks.lacks_marks(words)

    def grow_marks(self) -> bool:
        """Make the table of marks as large as the kernel wants; False if it may not be."""
        parts = self._parts
        return parts.marks.grow_tables(parts.logged_newest, int(parts.state[at.C_TOLD_WANTED]))

    def _wants_table(self, status: int) -> bool:
        """Whether a kernel that asks for something asks for a table of marks, or has one."""
        return status == at.NEED_TOLD or bool(self._parts.marks.state[at.E_TOLD_CAP])

    def _seal_marks(self, more: int) -> None:
        """Seal marks until a table of what is left, and so many more, fits into memory."""
        parts = self._parts
        side = parts.sides[-1]
        if side.memory.lacks_marks(more):
            self._expiry.drop_windows(parts.logged_newest)
            side.memory.release()
        while side.memory.lacks_marks(more):
            if side.seal is None:
                now = parts.newest
                if not any(w.told and w.limit > now for w in side.memory.windows()):
                    return
                self._upkeep.begin_seal(side, lambda w: w.told)
            self._upkeep.make_room(side)
