"""The first stage of matching: rows checked, encoded and put into packets, a packet a bucket.

    Arrow batches -> read_operations -> rows (kernels/layout.py) -> buckets -> packets

One row of Spark's is then thousands of operations in a few binary values, and what Spark
does row by row (shuffle, sort, hand over to Python) costs next to nothing. The checks are
those of `Channel.apply`, so a row is bad here if and only if it is bad there; see
docs/guide/spark-matching.md for what happens to it.

A packet holds rows end to end, in the order they came; its `at` is the newest of the rows it
was packed with, which is how Spark learns how far time has got. Every copy of a row but the first
has 1 in R_SEQ, so that what is wrong with it later is told once.

Runs in Spark's Python workers; imports no pyspark.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tideline.channel.checks import BODY_LIMIT_BYTES, ID_LIMIT_BYTES
from tideline.channel.operations import Operations, read_operations
from tideline.errors import InvalidRequest
from tideline.kernels import layout as at
from tideline.kernels import routing as kernel
from tideline.spark.matching.settings import BAD, Settings
from tideline.spark.worker import settle

__all__ = ["PACKETS", "REJECTS", "pack", "pack_batches", "read_rejects"]

Words = NDArray[np.int64]

_TIME = pa.timestamp("us", "UTC")
PACKETS = pa.schema(
    [("bucket", pa.int32()), ("deltas", pa.bool_()), ("data", pa.binary()), ("at", _TIME)]
)
REJECTS = pa.schema(
    [("subscription", pa.string()), ("event", pa.string()), ("user", pa.string()),
     ("at", pa.int64()), ("reason", pa.string())]
)  # fmt: skip
_OPS = pa.array(["publish", "subscribe", "cancel"])
_MOST_ROWS = 65_536
_MOST_BYTES = 64 << 20
_PACKET_BYTES = 1 << 30  # well below what a binary column of Arrow can hold


def pack_batches(batches: Iterator[pa.RecordBatch], settings: Settings) -> Iterator[pa.RecordBatch]:
    """What `mapInArrow` calls: operations in, packets out."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if batch.num_rows:
            held.append(batch)
            rows += batch.num_rows
            size += batch.nbytes
        if rows >= _MOST_ROWS or size >= _MOST_BYTES:
            yield from pack(pa.Table.from_batches(held), settings)
            held, rows, size = [], 0, 0
    if held:
        yield from pack(pa.Table.from_batches(held), settings)
        settle("packing")


def pack(table: pa.Table, settings: Settings) -> Iterator[pa.RecordBatch]:
    """The packets of a table of operations."""
    operations = _operations(table, settings)
    if operations.rejected and settings.rejected == "fail":
        row = min(operations.rejected)
        raise InvalidRequest(
            f"{len(operations.rejected)} rows are bad; the first: {operations.rejected[row]} "
            "(rejected='keep' hands bad rows over with the reason, 'drop' leaves them out)",
            id=table["id"][row].as_py(),
        )
    if operations.rejected and settings.rejected == "keep":
        rejects = rejects_of(table, operations)
        yield _packets([BAD], False, [_ipc(rejects)])
    yield from _routed(operations, settings)


def _operations(table: pa.Table, settings: Settings) -> Operations:
    """The table as `Channel.apply` would read it, with what is wrong with bad rows."""
    kinds = table["kind"].combine_chunks()
    op = pa.DictionaryArray.from_arrays(_codes(kinds), _OPS)
    # Rows come from one side at a time: the columns of the other are all null.
    names = [
        name for name in table.column_names
        if name != "kind" and (name in ("id", "at") or table[name].null_count < table.num_rows)
    ]  # fmt: skip
    told = table.select(names).append_column("op", op)
    # An id nobody knows would help nobody: none is made up.
    operations = read_operations(
        told, settings.space, lambda count: [""] * count, id_limit=ID_LIMIT_BYTES,
        body_limit=BODY_LIMIT_BYTES,
    )  # fmt: skip
    rejected = operations.rejected
    if kinds.null_count:
        wrong = np.flatnonzero(kinds.is_null().to_numpy(zero_copy_only=False))
        rejected.update(dict.fromkeys(wrong.tolist(), "op must be subscribe or cancel"))
    if rejected:
        ids = table["id"]
        for row in rejected:
            if not ids[row].is_valid and rejected[row].startswith("id must"):
                rejected[row] = "id is missing"
    return operations


def _codes(kinds: Any) -> pa.Array:
    """1, 2, 3 as the codes 0, 1, 2 of a dictionary."""
    numbers = kinds.fill_null(1).to_numpy(zero_copy_only=False).astype(np.int8) - 1
    if not kinds.null_count:
        return pa.array(numbers)
    return pa.array(numbers, mask=kinds.is_null().to_numpy(zero_copy_only=False))


def rejects_of(table: pa.Table, operations: Operations) -> pa.Table:
    """Bad rows as what a reader of answers gets."""
    rows = sorted(operations.rejected)
    picked = table.take(pa.array(rows, pa.int64()))
    ids, kinds = picked["id"].to_pylist(), picked["kind"].to_pylist()
    users = picked["user"].to_pylist() if "user" in picked.column_names else [None] * len(rows)
    times = picked["at"].combine_chunks().cast(pa.timestamp("us", "UTC")).view(pa.int64())
    return pa.table(
        [
            [None if kind == at.PUBLISH else id for id, kind in zip(ids, kinds, strict=True)],
            [id if kind == at.PUBLISH else None for id, kind in zip(ids, kinds, strict=True)],
            users,
            times,
            [operations.rejected[row] for row in rows],
        ],
        schema=REJECTS,
    )


def read_rejects(data: bytes) -> pa.Table:
    """The bad rows of a packet."""
    return pa.ipc.open_stream(pa.py_buffer(data)).read_all()


def _ipc(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    found: bytes = sink.getvalue().to_pybytes()
    return found


# ---- routing ---------------------------------------------------------------------------------


def _routed(operations: Operations, settings: Settings) -> Iterator[pa.RecordBatch]:
    """Encode the rows and deal them out."""
    rows, starts, _used = operations.encode()
    picked, buckets = routes(operations, settings)
    if not len(picked):
        return
    newest = operations.now[picked].max()
    copies = np.zeros(len(picked), np.int64)
    copies[1:] = picked[1:] == picked[:-1]
    order = np.argsort(buckets.astype(np.uint16), kind="stable")
    picked, buckets, copies = picked[order], buckets[order], copies[order]
    sizes = (rows[starts] >> 32)[picked]
    ends = np.cumsum(sizes)
    first = 0
    while first < len(picked):  # more than one round only if bodies are huge
        begin = int(ends[first] - sizes[first])
        limit = int(np.searchsorted(ends, begin + _PACKET_BYTES // 8, side="right"))
        limit = max(limit, first + 1)
        out = np.empty(int(ends[limit - 1]) - begin, np.int64)
        kernel.gather(rows, starts, np.ascontiguousarray(picked[first:limit]), out)
        at_rows = ends[first:limit] - sizes[first:limit] - begin
        out[at_rows + at.R_SEQ] = copies[first:limit]
        changes = np.flatnonzero(np.diff(buckets[first:limit])) + 1
        heads = np.concatenate(([0], changes))
        offsets = np.append(at_rows[heads], len(out)) * 8
        names = np.array(settings.labels, np.int32)[buckets[first:limit][heads]]
        data = pa.Array.from_buffers(
            pa.binary(), len(heads),
            [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(out)],
        )  # fmt: skip
        flags = pa.array(np.full(len(heads), operations.deltas))
        times = pa.array(np.full(len(heads), newest), pa.int64()).cast(_TIME)
        yield pa.RecordBatch.from_arrays([pa.array(names), flags, data, times], schema=PACKETS)
        first = limit


def routes(operations: Operations, settings: Settings) -> tuple[Words, Words]:
    """Which rows go to which buckets, as pairs in order of rows."""
    places = operations.places
    count = settings.buckets * (2 if settings.wide else 1)
    room = 2 * len(operations.kinds) + count
    seen = np.zeros(settings.buckets, np.int64)
    while True:
        picked, buckets = np.empty(room, np.int64), np.empty(room, np.int64)
        used = int(
            kernel.route(
                operations.kinds, places.data, places.offsets, places.kinds, places.shapes,
                *operations.users, settings.space.mode, *settings.tree, settings.levels,
                settings.buckets, settings.wide, seen, picked, buckets,
            )
        )  # fmt: skip
        if used >= 0:
            return picked[:used], buckets[:used]
        room = -used
        seen[:] = 0


def _packets(buckets: list[int], deltas: bool, data: list[bytes]) -> pa.RecordBatch:
    count = len(buckets)
    return pa.RecordBatch.from_arrays(
        [pa.array(buckets, pa.int32()), pa.array([deltas] * count), pa.array(data, pa.binary()),
         pa.nulls(count, _TIME)],
        schema=PACKETS,
    )  # fmt: skip
