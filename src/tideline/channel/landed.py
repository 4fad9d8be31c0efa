"""What became of rows that were written. Loads no kernels: Spark's readers import it.

Plain values, safe from any thread.
"""

from __future__ import annotations

import msgspec

__all__ = ["Landed", "Once"]

Once = tuple[str, int]
"""A writer and the number of its batch."""


class Landed(msgspec.Struct, frozen=True):
    """What became of rows that were written."""

    rows: int = 0
    """Rows given, good and bad."""
    answers: int = 0
    rejected: int = 0
    reasons: list[str] = msgspec.field(default_factory=list)
    """The first few reasons why rows were rejected."""
    repeated: int = 0
    """How many of the rows had landed before."""
    token: str | None = None
    """Where the rejected rows are staged, with their reasons, if they were asked for."""
    late: int = 0
    """Rows for a stream window that were older than it."""
