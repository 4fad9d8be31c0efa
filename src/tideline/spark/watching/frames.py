"""`watch`: standing queries and writes as DataFrames in, changes of the queries' results out.

    queries - pack -.
                     >- union - shuffle by cell - filter - shuffle by bucket - sort - changes
    writes -- pack -'                            cell.py                       windows.py

A cell is a query partition times a write partition: a query goes to every cell of its query
partition, a write to every cell of its write partition, so each pair meets once. Without a grid
every task has all queries and the filter keeps nothing. The sort stage is left out where no query
has a sort, limit or offset.

Everything that can be wrong with the call is found here, before Spark runs anything. Importing
this needs no pyspark; calling `watch` does, with the DataFrames it is given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tideline.errors import InvalidRequest
from tideline.spark.given import cast_columns, check_session, given_frames, used_columns

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

    from tideline.spark.watching.packets import Settings

__all__ = ["watch"]

_QUERIES = {
    "id": "text", "where": "text", "sort": "text", "limit": "whole numbers",
    "offset": "whole numbers", "op": "text",
}  # fmt: skip
_WRITES = {
    "key": "text or whole numbers", "seq": "whole numbers", "op": "text", "document": "text",
    "before": "text",
}  # fmt: skip
_NEEDED = ("key", "seq", "op", "document")
_POSITIONS = frozenset(["sort", "limit", "offset"])
_PACKETS = "part int, data binary"
_CHANGES = (
    "query string, version bigint, kind string, key string, index bigint, old_index bigint, "
    "document string, step bigint"
)
_CELLS = 4096

Batches = Iterator["pa.RecordBatch"]


def watch(
    queries: DataFrame, writes: DataFrame, grid: tuple[int, int] | None = None, *, key: str = "id",
    first: DataFrame | None = None,
) -> DataFrame:  # fmt: skip
    """How the results of standing queries change, write by write.

    `queries` have `id` and may have `where` (JSON text), `sort` (JSON text, like
    `[["total", -1]]`), `limit` and `offset`, as `find` takes them, and `op`: "register", which
    is also what no op means, or "cancel". `writes` have `key`, `seq`, `op` (c, u and r put, d
    deletes) and `document` (JSON text), as a stream of a collection has them; `key` names the
    field of documents that has their key.

    `grid=(q, w)` cuts the queries into q parts and the writes into w. Each of the q * w cells keeps
    its queries and its documents: queries may come and go as a stream, and begin with what is
    there; writes may come late or again. Without a grid `queries` must be a batch, which every
    task has as a whole, and `writes` need the column `before` and must come once and in order, as
    from a collection with the option `before`.

    `first`, with a grid, are documents that were there before a stream began: a batch with the
    columns of `writes`. The stream may bring some of them again.

    Changes have `query`, `version` (the seq of the write), `kind` ("add", "change", "changeIndex",
    "remove"; "error" for a row that was wrong, which `document` explains), `key`, `index`,
    `old_index`, `document` and `step`. A query's changes applied in order of version and step give
    its result: docs/guide/spark-live.md. Streams give a stream in append mode, batches a batch.

    >>> changes = watch(queries, writes, grid=(2, 2))                 # doctest: +SKIP
    >>> changes.writeStream.format("kafka").start()                   # doctest: +SKIP
    """
    from tideline.spark.watching.packets import Settings

    given_frames(queries=queries, writes=writes, **({} if first is None else {"first": first}))
    if not isinstance(key, str) or not key:
        raise InvalidRequest("key must be the name of a field", key=key)
    grid = _checked_grid(grid)
    asked = used_columns(queries, "queries", _QUERIES, ("id",))
    told = used_columns(writes, "writes", _WRITES, _NEEDED)
    if first is not None:
        used_columns(first, "first", _WRITES, _NEEDED)
        if grid is None or first.isStreaming or not writes.isStreaming:
            raise InvalidRequest("first must be a batch, and goes with grid=(q, w) and a stream")
    if queries.isStreaming and not writes.isStreaming:
        raise InvalidRequest("writes must be a stream as queries are: use spark.readStream")
    if grid is None and queries.isStreaming:
        raise InvalidRequest(
            "queries must be a batch to be had by every task: give grid=(q, w) for a stream"
        )
    if grid is None and "before" not in told:
        raise InvalidRequest(
            "writes need the column before (the option before of a stream), or give grid=(q, w)",
            columns=", ".join(writes.columns),
        )
    positions = bool(_POSITIONS & set(asked))
    given = None
    if not queries.isStreaming:
        given, positions = _collected(queries, asked, grid, key)
    if writes.isStreaming and (positions or grid is not None):
        check_session(writes, "watching streams")
    settings = Settings(key, grid, given)
    packets = _filtered(queries, writes, asked, first, settings)
    if positions:
        packets = _staged(packets, "sort", settings)
    return packets.mapInArrow(_unpack, _CHANGES)


def _filtered(
    queries: DataFrame, writes: DataFrame, asked: list[str], first: DataFrame | None,
    settings: Settings,
) -> DataFrame:  # fmt: skip
    """The filter stage."""
    if settings.grid is None:
        told = writes.select(*_columns(writes, (*_NEEDED, "before")))
        return told.mapInArrow(_worker("cell", "broadcast", settings), _PACKETS)
    packets = _packed(writes, "key", _NEEDED, settings)
    if queries.isStreaming:
        packets = packets.union(_packed(queries, "id", asked, settings))
    begun = None if first is None else _packed(first, "key", _NEEDED, settings)
    return _staged(packets, "filter", settings, begun)


def _packed(frame: DataFrame, by: str, names: Sequence[str], settings: Settings) -> DataFrame:
    """Rows of queries or writes as packets for cells."""
    assert settings.grid is not None
    asked = by == "id"
    rows = frame.select(_part(frame[by], settings.grid[not asked]), *_columns(frame, names))
    packer = _worker("pack", "pack_queries" if asked else "pack_writes", settings)
    return rows.mapInArrow(packer, _PACKETS)


def _staged(
    packets: DataFrame, stage: str, settings: Settings, begun: DataFrame | None = None
) -> DataFrame:  # fmt: skip
    """A stage over packets, with Spark's state in a stream."""
    if packets.isStreaming:
        from tideline.spark.watching.processor import Processor

        state = None if begun is None else begun.where("part >= 0").groupBy("part")
        return packets.groupBy("part").transformWithStateInPandas(
            Processor(stage, settings), _PACKETS, "Append", "None", state
        )

    def run(batches: Batches) -> Batches:
        from tideline.spark.watching.kept import run_whole

        return run_whole(batches, stage, settings)

    return packets.repartition("part").mapInArrow(run, _PACKETS)


def _worker(module: str, name: str, settings: Settings) -> Callable[[Batches], Batches]:
    """A function of this package, loaded in the workers alone."""

    def run(batches: Batches) -> Batches:
        import importlib

        found = importlib.import_module(f"tideline.spark.watching.{module}")
        made: Batches = getattr(found, name)(batches, settings)
        return made

    return run


def _unpack(batches: Batches) -> Batches:
    from tideline.spark.watching.packets import unpacked

    return unpacked(batches)


def _collected(
    queries: DataFrame, asked: list[str], grid: tuple[int, int] | None, key: str
) -> tuple[bytes, bool]:  # fmt: skip
    """The queries of a batch as `Settings.given`, and whether any has positions."""
    import pyarrow as pa

    from tideline.spark.watching.pack import checked_query
    from tideline.spark.watching.packets import written

    parts = 1 if grid is None else grid[0]
    table = queries.select(_part(queries["id"], parts), *_columns(queries, asked)).toArrow()
    found: dict[str, tuple[bytes, int]] = {}
    positions = False
    for row in table.to_pylist():
        id = row["id"]
        if not id:
            raise InvalidRequest("a query has no id", where=row.get("where"))
        if row["op"] != "register":
            raise InvalidRequest("op must be register in a batch of queries", id=id, op=row["op"])
        try:
            query = checked_query(row, key)
        except InvalidRequest as error:
            raise InvalidRequest(f"the query {id} is wrong: {error}") from None
        if found.setdefault(id, (query.text, row["part"]))[0] != query.text:
            raise InvalidRequest("two queries have one id", id=id)
        positions = positions or not query.is_plain
    texts, places = [each[0] for each in found.values()], [each[1] for each in found.values()]
    columns = [pa.array(list(found), pa.string()), pa.array(texts, pa.binary()),
               pa.array(places, pa.int32())]  # fmt: skip
    return written(pa.table(columns, names=["id", "text", "part"])), positions


# ---- columns -----------------------------------------------------------------------------------


def _part(column: Column, parts: int) -> Column:
    """Which of so many parts a value is in."""
    from pyspark.sql import functions as F

    return F.pmod(F.hash(column.cast("string")), F.lit(parts)).cast("int").alias("part")


def _columns(frame: DataFrame, names: Sequence[str]) -> list[Column]:
    """The columns that the stages read, `op` last; a query without an op registers."""
    from pyspark.sql import functions as F

    found = cast_columns(frame, {**_WRITES, **_QUERIES}, names)
    op = found.pop("op", None)
    if op is None:
        op = F.lit(None).cast("string")
    if "id" in names:
        op = F.coalesce(op, F.lit("register"))
    return [*found.values(), op.alias("op")]


def _checked_grid(grid: Any) -> tuple[int, int] | None:
    if grid is None:
        return None
    whole = isinstance(grid, (tuple, list)) and all(type(each) is int for each in grid)
    if not whole or len(grid) != 2 or min(grid) < 1 or grid[0] * grid[1] > _CELLS:
        raise InvalidRequest(
            "grid must be a number of query partitions and one of write partitions, like (2, 2), "
            f"with at most {_CELLS} cells", grid=grid,
        )  # fmt: skip
    return grid[0], grid[1]
