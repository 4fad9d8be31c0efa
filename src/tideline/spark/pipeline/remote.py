"""A channel on a server, as the pipeline feeds it: in pieces, each at most once.

    number of a piece := number of the batch << 20 | which piece of it

A server takes a batch of a bounded size in one request, so a large one goes as several, cut by
bytes: a batch that is given again is cut the same way. When an answer gets lost, the piece is given
again; what had landed is passed over, and its answers are not told again.

Numbers are larger than those that a folder is fed with: a pipeline may go from a folder to a server
on it, and `check_store` (run.py) refuses the way back.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tideline.channel.checks import BODY_LIMIT_BYTES, ID_LIMIT_BYTES
from tideline.channel.operations import read_operations
from tideline.clock import SystemClock
from tideline.errors import Unavailable
from tideline.model import Applied

if TYPE_CHECKING:
    from tideline.client.channel import RemoteChannel

__all__ = ["ServedChannel"]

_PIECE_BYTES = 16 << 20
_BITS = 20


class ServedChannel:
    """What the pipeline asks of a channel, of one on a server."""

    def __init__(self, channel: RemoteChannel, *, patience_s: float = 60.0) -> None:
        self.name = channel.name
        self.space = channel.space
        self.layout = channel.layout
        self.max_ahead_s = channel.max_ahead_s
        self.clock = SystemClock()
        """This machine's: for what is measured here."""
        self._channel = channel
        self._patience_s = patience_s

    def landed(self, writer: str, number: int) -> int | None:
        """Whether the batch has begun to land: 0 when it has not."""
        return self._channel.landed(writer, number << _BITS)

    def apply(self, table: pa.Table, *, once: tuple[str, int]) -> Applied:
        """`Channel.apply`, in pieces."""
        writer, number = once
        answers, rejected, repeated = [], [], []
        first = 0
        for i, piece in enumerate(_pieces(table)):
            applied = self._piece(piece, (writer, number << _BITS | i))
            answers.append(applied.answers)
            rows = pa.array([row + first for row in applied.rejected["row"].to_pylist()],
                            applied.rejected["row"].type)  # fmt: skip
            rejected.append(applied.rejected.set_column(0, "row", rows))
            repeated.append(applied.repeated)
            first += piece.num_rows
        together = pa.concat_tables(answers, promote_options="permissive")
        return Applied(together, pa.concat_tables(rejected), all(repeated))

    def _piece(self, table: pa.Table, once: tuple[str, int]) -> Applied:
        limit = time.monotonic() + self._patience_s
        wait_s, lost = 0.05, False
        while True:
            try:
                applied = self._channel._apply(table, once, again=False)
                break
            except Unavailable:
                if time.monotonic() + wait_s > limit:
                    raise
                lost = True
                time.sleep(wait_s)
                wait_s = min(2 * wait_s, 2.0)
        if not applied.repeated:
            return applied
        # What is wrong with a row by itself is found again.
        found = read_operations(
            table, self.space, lambda count: ["x"] * count, id_limit=ID_LIMIT_BYTES,
            body_limit=BODY_LIMIT_BYTES,
        ).rejected  # fmt: skip
        rejected = pa.table({"row": sorted(found), "reason": [found[row] for row in sorted(found)]},
                            schema=applied.rejected.schema)  # fmt: skip
        return Applied(applied.answers, rejected, applied.repeated and not lost)


def _pieces(table: pa.Table) -> list[pa.Table]:
    """A table cut so that each piece is one request; an empty one is one piece."""
    rows = max(1, table.num_rows * _PIECE_BYTES // max(_size(table), _PIECE_BYTES))
    return [table.slice(first, rows) for first in range(0, max(table.num_rows, 1), rows)]


def _size(table: Any) -> int:
    # The same for the same rows, however they are laid out in chunks.
    return int(table.combine_chunks().nbytes)
