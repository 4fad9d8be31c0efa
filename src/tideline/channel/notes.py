"""Notes in the log: what the rows of a call alone do not say.

A note is a row that stores nothing. It stands in the frame of the rows it speaks of, so
after a kill it is there exactly when they are.

    N_MARK      a writer's batch: id the writer, at its number, until how many rows of
                the table have landed, or FOREVER when all have
    N_PROLONGED with N_MARK: a subscription's new record, see lineage.py
    of the next two, `at` is how many answers there are:
    N_ANSWERS   the answers of a batch: text an Arrow IPC stream
    N_LISTED    the answers of a single call: text JSON [[subscription, event, user, kind]],
                now the time of the call
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa

from tideline.channel.codec import Row, write_row
from tideline.channel.lineage import Exceptions, listed
from tideline.clock import FOREVER
from tideline.errors import InvalidRequest
from tideline.kernels import layout as at
from tideline.space.place import Place

__all__ = [
    "ANSWERS",
    "N_PROLONGED",
    "Mark",
    "Writers",
    "answers_note",
    "check_once",
    "listed_note",
    "prolonged_note",
    "read_answers",
]

ANSWERS = pa.schema(
    [("subscription", pa.string()), ("event", pa.string()), ("user", pa.string()),
     ("kind", pa.string()), ("at", pa.timestamp("us", "UTC"))]
)  # fmt: skip
N_PROLONGED = 8  # the kernels need not know: N_MARK beside it hands the note to its reader
_MOST_WRITERS = 10_000
_HEAD_BYTES = 56
_NOWHERE = Place(b"")


class Writers:
    """Which batch of each writer landed last; the writers not heard of for longest are forgotten.

    >>> writers = Writers([])
    >>> writers.note("loader", 7, 100)
    >>> writers.landed("loader", 7), writers.landed("loader", 8), writers.landed("loader", 6)
    (100, 0, None)
    """

    def __init__(self, known: list[Any]) -> None:
        self._last: dict[str, tuple[int, int]] = {w: (n, rows) for w, n, rows in known}

    def landed(self, writer: str, number: int) -> int | None:
        """How many rows of this batch have landed; None when it is done with."""
        last, rows = self._last.get(writer, (-1, FOREVER))
        if number > last:
            return 0
        return rows if number == last and rows < FOREVER else None

    def note(self, writer: str, number: int, rows: int) -> None:
        """So much of a batch has landed. What is older than known changes nothing."""
        if (number, rows) >= self._last.get(writer, (-1, 0)):
            self._last.pop(writer, None)  # to the end: heard of last
            self._last[writer] = (number, rows)
            if len(self._last) > _MOST_WRITERS:
                del self._last[next(iter(self._last))]

    def read(self, row: Row) -> None:
        """Take in a mark from the log."""
        self.note(row.id, row.first, row.until)

    def to_json(self) -> list[Any]:
        """What `Writers` takes."""
        return [[writer, number, rows] for writer, (number, rows) in self._last.items()]


def prolonged_note(seq: int, before: int, until: int, made: Exceptions) -> bytes:
    """The note that a subscription got a new record, and exceptions to the rule of resuming."""
    text = msgspec.json.encode((seq, before, until, listed(made)))
    return _note(at.N_MARK | N_PROLONGED, 0, 0, 0, b"", text)


@dataclass(frozen=True)
class Mark:
    """Some rows of a writer's batch: from row `first` of the `total` rows of its table on."""

    writer: str
    number: int
    first: int
    total: int

    def landed(self, rows: int) -> int:
        """How much of the batch has landed when so many of these rows have."""
        return FOREVER if self.first + rows == self.total else self.first + rows

    def note(self, landed: int) -> bytes:
        """The note that says so."""
        return _note(at.N_MARK, 0, self.number, landed, self.writer.encode(), b"")


def check_once(once: Any) -> tuple[str, int]:
    """(writer, number), or `InvalidRequest`."""
    if not isinstance(once, (tuple, list)) or len(once) != 2:
        raise InvalidRequest("once must be a writer and a number", once=once)
    writer, number = once
    if not isinstance(writer, str) or not 0 < len(writer.encode("utf-8", "replace")) <= 256:
        raise InvalidRequest("a writer must be text of 1 to 256 bytes", writer=writer)
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < FOREVER:
        raise InvalidRequest("a writer's number must be a whole number from 0 on", number=number)
    return writer, number


def answers_note(answers: pa.Table) -> bytes:
    """The answers of a batch."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, answers.schema) as stream:
        stream.write_table(answers)
    return _note(at.N_ANSWERS, 0, len(answers), 0, b"", sink.getvalue().to_pybytes())


def listed_note(now: int, answers: list[tuple[str, str, str, str]]) -> bytes:
    """The answers of a single call."""
    return _note(at.N_LISTED, now, len(answers), 0, b"", msgspec.json.encode(answers))


def _note(flags: int, now: int, first: int, until: int, ident: bytes, text: bytes) -> bytes:
    room = bytearray(_HEAD_BYTES + (len(ident) + len(text) + 7 & ~7))
    write_row(memoryview(room), at.NOTE, flags, 0, now, first, until, _NOWHERE, ident, b"", text)
    return bytes(room)


def read_answers(flags: int, now: int, text: memoryview) -> pa.Table | None:
    """The answers of a note; None when it tells of something else."""
    if flags & at.N_ANSWERS:
        with pa.ipc.open_stream(pa.py_buffer(text)) as stream:
            return stream.read_all().cast(ANSWERS)
    if flags & at.N_LISTED:
        rows = msgspec.json.decode(text, type=list[tuple[str, str, str, str]])
        columns = [pa.array(column, pa.string()) for column in zip(*rows, strict=True)]
        times = pa.array([now] * len(rows), pa.int64()).cast(ANSWERS.field("at").type)
        return pa.Table.from_arrays([*columns, times], schema=ANSWERS)
    return None
