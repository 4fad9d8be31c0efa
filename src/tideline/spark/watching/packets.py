"""What travels between the stages: packets, many rows in one binary value.

    packet := part, int | data, an Arrow stream of NOTES or, where part is below 0, of CHANGES

Spark hands the rows of a group to stateful Python one by one; of packets there are few. A packet
with changes is done: the stages that are left hand it on.

NOTES are in the order of their kind, those of one kind in the order of their seq:

    LEAVE     a query ends, before everything else         query; to the sort stage also text
    REGISTER  a query begins                               query, text (live/query.py)
    FIRST     what a query that begins finds               query, key, seq, text
    WRITE     a document, or none (text is null)           key, seq, text; to the sort stage query
    CANCEL    a query ends, after everything else          query; to the sort stage also text
    STATE     how far a window is                          query, seq is the version, key the step

Values; imports no pyspark.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from tideline.spark.matching.settings import labels

__all__ = [
    "BUCKETS", "CANCEL", "CHANGES", "FIRST", "LEAVE", "NOTES", "PACKETS", "REGISTER", "STATE",
    "WRITE", "Note", "Settings", "bucket_of", "changes_of", "errors_of", "notes_of", "packets_of",
    "read", "rows_of", "unpacked", "written",
]  # fmt: skip

LEAVE, REGISTER, FIRST, WRITE, CANCEL, STATE = range(6)
BUCKETS = 16
"""Into how many parts the sort stage is cut."""

NOTES = pa.schema(
    [("kind", pa.int8()), ("query", pa.string()), ("key", pa.string()), ("seq", pa.int64()),
     ("text", pa.large_binary())]
)  # fmt: skip
CHANGES = pa.schema(
    [("query", pa.string()), ("version", pa.int64()), ("kind", pa.string()), ("key", pa.string()),
     ("index", pa.int64()), ("old_index", pa.int64()), ("document", pa.string()),
     ("step", pa.int64())]
)  # fmt: skip
PACKETS = pa.schema([("part", pa.int32()), ("data", pa.binary())])
_encode = msgspec.json.Encoder().encode


class Note(NamedTuple):
    """A row of NOTES."""

    kind: int
    query: str = ""
    key: str = ""
    seq: int = 0
    text: bytes | None = None


@dataclass(frozen=True)
class Settings:
    """What one `watch` is told."""

    key: str
    grid: tuple[int, int] | None
    """Query partitions and write partitions; None: every task has all queries."""
    given: bytes | None = None
    """Queries of a batch: an Arrow stream of id, text and part, as REGISTER has them."""

    @cached_property
    def labels(self) -> list[int]:
        """The number that stands for each cell: of query part i and write part j at i * w + j."""
        queries, writes = self.grid or (1, 1)
        return labels(queries * writes)

    @cached_property
    def queries(self) -> dict[str, tuple[bytes, int]]:
        """Of a batch: the canonical text and the query partition of each query, by id."""
        if self.given is None:
            return {}
        columns = read(self.given).to_pydict()
        pairs = zip(columns["text"], columns["part"], strict=True)
        return dict(zip(columns["id"], pairs, strict=True))

    @cached_property
    def fixed(self) -> str:
        """What a checkpoint is made with and must stay.

        Without a grid nothing is known of documents that came before a query, so the queries of
        the sort stage must stay, too.
        """
        told: dict[str, Any] = {"grid": self.grid, "key": self.key}
        if self.grid is None:
            pairs = sorted((id, text) for id, (text, _) in self.queries.items() if b"\0" in text)
            told["queries"] = f"{zlib.crc32(repr(pairs).encode()):08x}"
        return _encode(told).decode()


def bucket_of(query: str) -> int:
    """The part of the sort stage that a query is in; checkpoints depend on it.

    >>> bucket_of("cheap"), len(labels(BUCKETS))
    (15, 16)
    """
    return _LABELS[zlib.crc32(query.encode()) % BUCKETS]


_LABELS = labels(BUCKETS)


# ---- tables and bytes ----------------------------------------------------------------------


def written(table: pa.Table) -> bytes:
    """A table as an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    found: bytes = sink.getvalue().to_pybytes()
    return found


def read(data: bytes) -> pa.Table:
    """The table of an Arrow stream."""
    return pa.ipc.open_stream(pa.py_buffer(data)).read_all()


def notes_of(notes: Sequence[Note]) -> pa.Table:
    """Notes as a table."""
    return _table(notes, NOTES)


def rows_of(table: pa.Table) -> Iterator[Note]:
    """The notes of a table."""
    return map(Note._make, zip(*(table[name].to_pylist() for name in NOTES.names), strict=True))


def changes_of(rows: Sequence[Sequence[Any]]) -> pa.Table:
    """Rows of changes as a table."""
    return _table(rows, CHANGES)


def _table(rows: Sequence[Sequence[Any]], schema: pa.Schema) -> pa.Table:
    columns = zip(*rows, strict=True) if rows else [[]] * len(schema)
    arrays = [pa.array(column, kind) for column, kind in zip(columns, schema.types, strict=True)]
    return pa.table(arrays, schema=schema)


def errors_of(bad: Iterable[tuple[str | None, str | None, int | None, str]]) -> pa.Table:
    """Changes of the kind "error": of which query or key, at which version, and why."""
    return changes_of([
        (query, version, "error", key, None, None, _encode({"error": why}).decode(), None)
        for query, key, version, why in bad
    ])  # fmt: skip


def packets_of(parts: Iterable[tuple[int, pa.Table]]) -> Iterator[pa.RecordBatch]:
    """Tables as packets, one batch each; empty ones are left out."""
    for part, table in parts:
        if table.num_rows:
            columns = [pa.array([part], pa.int32()), pa.array([written(table)], pa.binary())]
            yield pa.RecordBatch.from_arrays(columns, schema=PACKETS)


def unpacked(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What `mapInArrow` calls last: packets of changes in, changes out."""
    for batch in batches:
        for data in batch["data"].to_pylist():
            yield from read(data).to_batches()
