"""What a channel's log says of the batches of its writers (lsm/writers.py).

With the rows of a batch the log gets an annotation that says how many have landed
(annotations.py), so a batch that a kill cut in the middle goes on from there.
"""

from __future__ import annotations

from dataclasses import dataclass

from tideline.channel.annotations import annotate_batch
from tideline.channel.codec import Row
from tideline.clock import FOREVER
from tideline.lsm.writers import Writers as KnownWriters
from tideline.lsm.writers import check_once

__all__ = ["WriterBatch", "Writers", "check_once"]


class Writers(KnownWriters):
    """The writers of a channel."""

    def read(self, row: Row) -> None:
        """Take in an annotation from the log."""
        self.note(row.id, row.first, row.until)


@dataclass(frozen=True)
class WriterBatch:
    """Some rows of a writer's batch: from row `first` of the `total` rows of its table on."""

    writer: str
    number: int
    first: int
    total: int

    def landed(self, rows: int) -> int:
        """How much of the batch has landed when so many of these rows have."""
        return FOREVER if self.first + rows == self.total else self.first + rows

    def annotation(self, landed: int) -> bytes:
        """What the log gets with these rows."""
        return annotate_batch(self.writer, self.number, landed)
