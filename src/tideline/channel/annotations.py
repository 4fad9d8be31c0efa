"""Annotations in the log: what the rows of a call alone do not say.

An annotation is a row of kind NOTE, which stores nothing. It stands in the frame of the rows it
speaks of, so after a kill it is there exactly when they are.

    N_MARK      a writer's batch: id the writer, at its number, until how many rows of
                the table have landed, or FOREVER when all have (writers.py)
    N_PROLONGED with N_MARK: a subscription's new record (lineage.py)
    of the next two, `at` is how many answers there are:
    N_ANSWERS   the answers of a batch: text an Arrow IPC stream
    N_LISTED    the answers of a single call: text JSON [[subscription, event, user, kind]],
                now the time of the call

Answers are only annotated in a channel that keeps a journal (journal.py).

Pure functions; safe from any thread.
"""

from __future__ import annotations

import msgspec
import pyarrow as pa

from tideline.channel.codec import write_row
from tideline.channel.lineage import Exceptions, listed
from tideline.kernels import layout as at
from tideline.space.place import Place

__all__ = [
    "ANSWERS",
    "N_PROLONGED",
    "annotate_answers",
    "annotate_batch",
    "annotate_listed",
    "annotate_prolonged",
    "read_answers",
]

ANSWERS = pa.schema(
    [("subscription", pa.string()), ("event", pa.string()), ("user", pa.string()),
     ("kind", pa.string()), ("at", pa.timestamp("us", "UTC"))]
)  # fmt: skip
N_PROLONGED = 8  # the kernels need not know: N_MARK beside it hands the row to its reader
_HEAD_BYTES = 56
_NOWHERE = Place(b"")


def annotate_batch(writer: str, number: int, landed: int) -> bytes:
    """So many rows of a writer's batch have landed; FOREVER when all have."""
    return _row(at.N_MARK, 0, number, landed, writer.encode(), b"")


def annotate_prolonged(seq: int, before: int, until: int, made: Exceptions) -> bytes:
    """A subscription got a new record, and exceptions to the rule of resuming."""
    text = msgspec.json.encode((seq, before, until, listed(made)))
    return _row(at.N_MARK | N_PROLONGED, 0, 0, 0, b"", text)


def annotate_answers(answers: pa.Table) -> bytes:
    """The answers of a batch."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, answers.schema) as stream:
        stream.write_table(answers)
    return _row(at.N_ANSWERS, 0, len(answers), 0, b"", sink.getvalue().to_pybytes())


def annotate_listed(now: int, answers: list[tuple[str, str, str, str]]) -> bytes:
    """The answers of a single call: (subscription, event, user, kind) each."""
    return _row(at.N_LISTED, now, len(answers), 0, b"", msgspec.json.encode(answers))


def _row(flags: int, now: int, first: int, until: int, ident: bytes, text: bytes) -> bytes:
    room = bytearray(_HEAD_BYTES + (len(ident) + len(text) + 7 & ~7))
    write_row(memoryview(room), at.NOTE, flags, 0, now, first, until, _NOWHERE, ident, b"", text)
    return bytes(room)


def read_answers(flags: int, now: int, text: memoryview) -> pa.Table | None:
    """The answers of an annotation; None when it says something else."""
    if flags & at.N_ANSWERS:
        with pa.ipc.open_stream(pa.py_buffer(text)) as stream:
            return stream.read_all().cast(ANSWERS)
    if flags & at.N_LISTED:
        rows = msgspec.json.decode(text, type=list[tuple[str, str, str, str]])
        columns = [pa.array(column, pa.string()) for column in zip(*rows, strict=True)]
        times = pa.array([now] * len(rows), pa.int64()).cast(ANSWERS.field("at").type)
        return pa.Table.from_arrays([*columns, times], schema=ANSWERS)
    return None
