"""What running rows found, as values: what the kernels leave in words and bits, decoded.

    kernel -> status word, words of call state -> here -> verbs

Only the engine reads status words (`run_rows` of kernels/rows.py). Verbs get these values and never
look into call state. Immutable; but `Done` points into the engine's memory, and is good only while
the function that is given it runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tideline.kernels import layout as at
from tideline.lsm.position import Position

if TYPE_CHECKING:
    from tideline.channel.answers import Answers

__all__ = ["CONDITIONAL", "NO_WORDS", "Done", "Taken", "Written", "cancelled_by"]

Words = NDArray[np.int64]
CONDITIONAL = 256  # bit of a kernel's result: an answer needs its condition checked
NO_WORDS: Words = np.zeros(0, np.int64)


class Written(NamedTuple):
    """What a single row did."""

    seq: int
    """The number it got; 0 when nothing was stored."""
    packed: Words
    """The records that answer it, as rows."""
    existing: int
    """When nothing was stored: the record that has its id already; 0 if there is none."""
    target: int
    """Of a cancel: the seq of the subscription that it ended."""
    position: Position | None
    """Where in the log it ends, if the disk must have it before the caller goes on."""


class Done(NamedTuple):
    """Rows [first, limit) of a batch have run: what became of them."""

    first: int
    limit: int
    answers: Answers
    """Their answers, conditions checked."""
    existing: Words
    """Of each: the record that has its id already, UNKNOWN for a cancel of nothing, or 0."""
    stored: Words
    """Of each: the record that it stored, or cancelled."""
    is_settled: bool
    """False when the kernel only waits for the conditions of these: more marks may follow."""


class Taken(NamedTuple):
    """What was taken out of the answers of some rows before they are logged."""

    answers: int
    """How many they are."""
    annotations: bytes = b""
    """What is to be logged with the rows."""


def cancelled_by(rows: Words, starts: Words) -> list[int]:
    """The seqs of the subscriptions that rows which have run cancelled."""
    cancels = starts[rows[starts] & 0xFF == at.CANCEL]
    return [int(seq) for seq in rows[cancels + at.R_AT]]
