"""The way into the filter stage: rows of the two frames, checked, as packets for cells.

    queries   (part, op, id, where, sort, limit, offset)   to every cell of their query partition
    writes    (part, key, seq, op, document[, before])     to every cell of their write partition

A row that is wrong becomes a change of the kind "error", and nothing else.

Runs in Spark's Python workers; imports no pyspark.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from tideline.errors import InvalidRequest
from tideline.live.query import Query
from tideline.spark.watching.packets import (
    CANCEL,
    NOTES,
    REGISTER,
    WRITE,
    Note,
    Settings,
    errors_of,
    notes_of,
    packets_of,
)

__all__ = ["BAD", "Writes", "checked_query", "pack_queries", "pack_writes", "read_writes"]

BAD = -1
_decode = msgspec.json.Decoder().decode
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def checked_query(row: dict[str, Any], key: str) -> Query:
    """The query of a row; `InvalidRequest` says what is wrong with it.

    >>> checked_query({"where": '{"n": {"$gt": 1}}', "sort": '{"n": -1}', "limit": 3}, "id").text
    b'{"n":{"$gt":1}}\\x00[[["n",-1]],3,0]'
    """
    where, sort = (_json(row.get(name), name) for name in ("where", "sort"))
    query = Query.of(
        key, where, sort=sort, limit=row.get("limit"), offset=row.get("offset") or 0
    )  # fmt: skip
    if query.condition.deltas:
        raise InvalidRequest("where: $delta cannot be asked of documents")
    return query


def _json(text: str | None, name: str) -> Any:
    if text is None:
        return None
    try:
        return _decode(text)
    except msgspec.DecodeError as error:
        raise InvalidRequest(f"{name} is not JSON: {error}", **{name: text}) from None


def pack_queries(batches: Iterator[pa.RecordBatch], settings: Settings) -> Iterator[pa.RecordBatch]:
    """What `mapInArrow` calls with rows of queries."""
    assert settings.grid is not None
    width = settings.grid[1]
    for batch in batches:
        good: dict[int, list[Note]] = {}
        bad = []
        for row in batch.to_pylist():
            id, op = row["id"], row["op"]
            try:
                if not id:
                    raise InvalidRequest("id is missing")
                if op == "register":
                    note = Note(REGISTER, id, text=checked_query(row, settings.key).text)
                elif op == "cancel":
                    note = Note(CANCEL, id)
                else:
                    raise InvalidRequest("op must be register or cancel", op=op)
                good.setdefault(row["part"], []).append(note)
            except InvalidRequest as error:
                bad.append((id, None, None, str(error)))
        yield from packets_of([(BAD, errors_of(bad))])
        for part, notes in good.items():
            table = notes_of(notes)
            cells = settings.labels[part * width : (part + 1) * width]
            yield from packets_of((cell, table) for cell in cells)


def pack_writes(batches: Iterator[pa.RecordBatch], settings: Settings) -> Iterator[pa.RecordBatch]:
    """What `mapInArrow` calls with rows of writes."""
    assert settings.grid is not None
    width = settings.grid[1]
    for batch in batches:
        writes = read_writes(batch, settings.key)
        yield from packets_of([(BAD, writes.bad)])
        count = writes.rows.num_rows
        kinds = pa.array(np.full(count, WRITE, np.int8))
        columns = [kinds, pa.repeat("", count), *(writes.rows[n] for n in NOTES.names[2:])]
        table = pa.table(columns, schema=NOTES)
        parts = writes.rows["part"].to_numpy()
        for part in np.unique(parts).tolist():
            share = table.filter(pa.array(parts == part))
            yield from packets_of((cell, share) for cell in settings.labels[part::width])


class Writes(NamedTuple):
    """Rows of writes."""

    rows: pa.RecordBatch
    """Those that are right: `text` is the document, null for none."""
    bad: pa.Table
    """Changes that say what is wrong with the others."""


def read_writes(batch: pa.RecordBatch, key: str) -> Writes:
    """Check rows of writes."""
    names = [name for name in ("key", "seq", "op", "document") if name in batch.schema.names]
    keys, seqs, ops, texts = (batch[name].to_pylist() for name in names)
    wrong: dict[int, str] = {}
    for row, (name, seq, op, text) in enumerate(zip(keys, seqs, ops, texts, strict=True)):
        if name is None or seq is None:
            wrong[row] = "key is missing" if name is None else "seq is missing"
        elif op == "d":
            texts[row] = None
        elif op not in ("c", "u", "r"):
            wrong[row] = "op must be c, u, r (put) or d (delete)"
        else:
            try:
                if key not in _fields(text or ""):
                    wrong[row] = f"the document has no field {key}"
            except msgspec.MsgspecError as error:
                wrong[row] = f"document is no JSON object: {error}"
    bad = errors_of((None, keys[row], seqs[row], why) for row, why in wrong.items())
    made = batch.append_column("text", pa.array(texts, pa.string()).cast(pa.large_binary()))
    if wrong:
        left = np.ones(batch.num_rows, bool)
        left[list(wrong)] = False
        made = made.filter(pa.array(left))
    return Writes(made, bad)
