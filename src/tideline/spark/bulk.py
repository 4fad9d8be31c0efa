"""Bulk load: Spark makes the components of a collection or a channel, the store adopts them.

    documents [-> repartitionByRange(key) -> sortWithinPartitions(key, version)]
         -> mapInArrow: files of components with their indexes, beside the store
         -> one call of the driver: all of them count, or none (documents/loading.py)
    events -> mapInArrow: files of components -> the same (channel/loading.py)

A task sorts the rows it has, and the store merges the components later, as it does with what it
writes itself. Of hundreds of tasks that would leave as many components over the same keys:
`clustered` spreads the rows by ranges of keys first, and there is nothing to merge.

The key is a column, compared as Spark does, which is as the store does. Of JSON texts it is taken
out first, with one more look at every row.

The tasks write files, so they must see the store's folder: on its machine, or on shared storage.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tideline.errors import InvalidRequest, TidelineError
from tideline.spark.client import connect
from tideline.spark.options import Target
from tideline.spark.options import target as named

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tideline.channel import Channel
    from tideline.documents import Collection

__all__ = ["Loaded", "bulk_load"]

_PIECE_BYTES = 64 << 20  # of rows in one component


class Loaded(NamedTuple):
    """What was loaded: how many documents or events, and the seqs they have."""

    rows: int
    first: int
    last: int
    expired: int = 0
    """Events that had expired already, and were left out."""


def bulk_load(
    frame: DataFrame, target: Collection | Channel | str | os.PathLike[str],
    collection: str | None = None, *, channel: str | None = None, version: str | None = None,
    clustered: bool = False, partitions: int | None = None,
) -> Loaded:  # fmt: skip
    """Load a frame into a collection or a channel, as finished components: all of it, or nothing.

    `target` is a collection or channel of a database that this process shares, or a store's folder
    with the name of the `collection` or `channel`.

    Of a collection, the frame has a column `document` with JSON, or a column a field. What is
    loaded is newer than everything that is there, and replaces documents with its keys. Two rows
    with one key are an error, unless `version` names a field: then the one with the greatest stays.
    `clustered`: rows are first spread by ranges of keys, so that no two components have keys of one
    range. That is a shuffle and leaves nothing to merge: for frames of hundreds of partitions. With
    a `version` it is always so. `partitions` is into how many ranges, and means `clustered` too.

    Of a channel, the frame has the columns of events that are published: `at`, `body` and a place,
    perhaps `id` and `until`. Nobody is answered, so a channel with valid subscriptions is refused.
    Two events with one id are an error, and so is an id that a valid event has. What has expired is
    left out and counted.

    >>> from tideline.spark import bulk_load, share
    >>> import tempfile, tideline
    >>> db = tideline.open(tempfile.mkdtemp())
    >>> cars = db.collection("cars", key="id", indexes={"road": "lazy"})
    >>> gate = share(db)
    >>> given = [(1, "A1"), (2, "B2")]
    >>> rows = spark.createDataFrame(given, "id long, road string")  # doctest: +SKIP
    >>> bulk_load(rows, cars)                                        # doctest: +SKIP
    Loaded(rows=2, first=1, last=2, expired=0)
    >>> cars.lookup("road", "B2")                                    # doctest: +SKIP
    [{'id': 2, 'road': 'B2'}]
    >>> db.close()
    """
    found = _target(target, collection, channel)
    client = connect(found)
    folder: Path | None = None
    try:
        recipe, spool = client.loading(found.channel, found.documents)
        folder = Path(spool) / f"load-{secrets.token_hex(8)}"
        if found.documents:
            made = _documents(frame, recipe, folder, version, clustered, partitions)
        elif version is None and not clustered and partitions is None:
            made = _events(frame, recipe, folder)
        else:
            raise InvalidRequest("version, clustered and partitions are for collections",
                                 channel=found.channel)  # fmt: skip
        folder.mkdir()
        pieces = [msgspec.json.decode(row.piece) for row in made.collect()]
        first, last = client.adopt(found.channel, found.documents, recipe, pieces)
        expired = sum(piece.get("expired", 0) for piece in pieces)
        return Loaded(last + 1 - first, first, last, expired)
    finally:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
        with contextlib.suppress(TidelineError):
            client.close()


def _target(given: Any, collection: str | None, channel: str | None) -> Target:
    if isinstance(given, (str, os.PathLike)):
        if (collection is None) == (channel is None):
            raise InvalidRequest(
                "a folder needs the name of a collection, or channel= with that of a channel",
                target=str(given), collection=collection, channel=channel,
            )  # fmt: skip
        what = "channel" if collection is None else "collection"
        where, url = os.fspath(given), str(given).startswith(("http://", "https://"))
        options = {"url" if url else "path": where, what: channel or collection or ""}
        return named(options, "write" if collection is None else "write documents")
    from tideline.spark.gate import shared_path

    is_window = hasattr(given, "append")
    if not hasattr(given, "name") or is_window or collection is not None or channel is not None:
        raise InvalidRequest(
            "give a collection, a channel, or the folder of a store with the name of one",
            target=repr(given), collection=collection, channel=channel,
        )  # fmt: skip
    path = shared_path(given)
    if path is None:
        raise InvalidRequest(
            "this is no channel or collection of a shared database: call share(db) first",
            target=repr(given),
        )
    return Target(str(path), given.name, what="collection" if hasattr(given, "key") else "channel")


def _documents(
    frame: DataFrame, recipe: dict[str, Any], folder: Path, version: str | None, clustered: bool,
    partitions: int | None,
) -> DataFrame:  # fmt: skip
    """A frame with a row for each piece of a collection."""
    key, by = recipe["key"], version
    spread = clustered or partitions is not None or version is not None
    if "document" in frame.columns:
        what = "key binary, version binary, document string"
        frame = frame.mapInArrow(_keyed(key, version), what)
        key, by = "key", version and "version"
    else:
        missing = [name for name in (key, version) if name not in (None, *frame.columns)]
        if missing:
            raise InvalidRequest(
                f"the frame has no column {missing[0]}, and no column document with JSON",
                columns=frame.columns,
            )
    if spread:
        frame = (
            frame.repartitionByRange(key)
            if partitions is None
            else frame.repartitionByRange(partitions, key)
        ).sortWithinPartitions(*([key] if by is None else [key, by]))
    make = _built(recipe, str(folder), key, by, is_sorted=spread)
    return frame.mapInArrow(make, "piece string")


def _events(frame: DataFrame, recipe: dict[str, Any], folder: Path) -> DataFrame:
    """A frame with a row for each piece of a channel."""
    from tideline.spark.columns import check_written

    check_written(frame.schema, "publish")
    where = str(folder)

    def built(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from tideline.channel.loading import Recipe, build_piece
        from tideline.spark.columns import prepared

        how = msgspec.convert(recipe, Recipe)
        for held in _gathered(prepared(batch, "publish") for batch in batches):
            table = pa.Table.from_batches(held).drop_columns("op")
            yield _row(build_piece(how, Path(where), table))

    return frame.mapInArrow(built, "piece string")


def _keyed(key: str, version: str | None) -> Callable[[Any], Iterator[pa.RecordBatch]]:
    """Rows as JSON, with the bytes that their keys and versions sort by."""

    def keyed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from tideline.documents import rows
        from tideline.documents.landing import versions_of

        for batch in batches:
            prepared = rows.prepare(batch, key, (), None)
            for row, reason in prepared.rejected.items():
                raise InvalidRequest(f"a row cannot be loaded: {reason}", row=row)
            made = prepared.rows
            found: Any = [None] * made.count
            if version is not None:
                found = versions_of(made.docs, version)
                if None in found:
                    raise InvalidRequest(
                        "a row cannot be loaded: its version is no number and no text",
                        version=version, row=found.index(None),
                    )  # fmt: skip
            yield pa.RecordBatch.from_arrays(
                [
                    made.keys.to_arrow(pa.large_binary()).cast(pa.binary()),
                    pa.array(found, pa.binary()),
                    made.docs.to_arrow(pa.large_string()).cast(pa.string()),
                ],
                names=["key", "version", "document"],
            )

    return keyed


def _built(
    recipe: dict[str, Any], folder: str, key: str, by: str | None, *, is_sorted: bool
) -> Callable[[Any], Iterator[pa.RecordBatch]]:
    """Rows as components: a row for each piece."""

    def built(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from tideline.documents.loading import Recipe, build_piece

        how = msgspec.convert(recipe, Recipe)
        for table in _pieces(batches, key, by) if is_sorted else _sorted(batches, key):
            given = table.select(["document"]) if "document" in table.column_names else table
            yield _row(build_piece(how, Path(folder), given))

    return built


def _row(piece: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"piece": [msgspec.json.encode(piece).decode()]})


def _gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """So many batches at a time as make a piece."""
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        held.append(batch)
        size += batch.nbytes
        if size >= _PIECE_BYTES:
            yield held
            held, size = [], 0
    if size:
        yield held


def _sorted(batches: Iterator[pa.RecordBatch], key: str) -> Iterator[pa.Table]:
    """Rows in any order, so many at a time in the order of their keys."""
    for held in _gathered(batches):
        yield _newest(pa.Table.from_batches(held).sort_by(key).to_batches(), key, None)


def _pieces(batches: Iterator[pa.RecordBatch], key: str, by: str | None) -> Iterator[pa.Table]:
    """Rows in the order of their keys, each key once, so many at a time."""
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        held.append(batch)
        size += batch.nbytes
        if size >= _PIECE_BYTES:
            table = _newest(held, key, by)
            last = table.num_rows - 1
            yield table.slice(0, last)
            held = table.slice(last).to_batches()  # the next row may have its key
            size = 0
    table = _newest(held, key, by) if held else None
    if table:
        yield table


def _newest(batches: list[pa.RecordBatch], key: str, by: str | None) -> pa.Table:
    """Sorted rows as one table, of those with one key the last."""
    table = pa.Table.from_batches(batches).combine_chunks()
    if by is not None and table[by].null_count:
        raise InvalidRequest("a row cannot be loaded: it has no version", version=by)
    keys, last = table[key], table.num_rows - 1
    if last < 1:
        return table
    same = pc.fill_null(pc.equal(keys.slice(0, last), keys.slice(1)), False)  # no key: told later
    if not pc.any(same).as_py():
        return table
    if by is None:
        from tideline.documents.loading import key_twice

        raise key_twice(_readable(keys[pc.index(same, True).as_py()].as_py()))
    kept = pa.concat_arrays([*pc.invert(same).chunks, pa.array([True])])
    return table.filter(kept)


def _readable(key: Any) -> Any:
    if not isinstance(key, bytes):
        return key
    from tideline.where.keys import decode

    return decode(key)
