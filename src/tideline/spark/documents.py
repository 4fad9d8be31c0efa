"""Collections as Spark tables: `format("tideline").option("collection", "tweets")`.

    read      key, seq, op, document      a task a range of keys; each reads at one moment
    follow    key, seq, op, document      what was written, from a seq on, each change once
    write     a column `document`, or a column a field: rows staged by tasks, then landed in the
              order of partitions (documents/landing.py)
    stream    the same for every micro-batch

A document is JSON text, a struct or VARIANT (shapes.py). Whoever gives a schema with other columns
than these gets the fields of these names.

Read, op is r. Followed, it is u for a put and d for a delete, and c for the first put of a key
where old versions are kept (option `before`). Written, a column `op` says what a row does: c, u
and r put, d deletes; with the option op "put" it is a field like any other, with "delete" all rows
delete. The option `version` names a field: an older or equal version never replaces a newer one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

import pyarrow as pa
from pyspark.sql import datasource as D
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from tideline.errors import InvalidRequest
from tideline.spark import shapes
from tideline.spark.client import connect
from tideline.spark.columns import (
    check_columns,
    check_readable,
    drifted,
    fit,
    near,
    no_json,
    reshaped,
)
from tideline.spark.options import choice, condition, json_object, number, rejected, target
from tideline.spark.stream import Following, Span
from tideline.spark.writer import Batch, Stream, Writing

__all__ = [
    "DocumentFollower", "DocumentReader", "DocumentStreamWriter", "DocumentWriter",
    "documents_schema",
]  # fmt: skip

_TEXT, _LONG = T.StringType(), T.LongType()
OPS = ("put", "delete", "change")
_SPAN = 250_000  # changes that one task reads


def documents_schema(options: Mapping[str, str]) -> T.StructType:
    """The columns of reads and streams: of a stream with the option `before`, that too."""
    return reshaped(_columns(_before(options)), options)


def _columns(before: bool) -> T.StructType:
    names = ["key", "seq", "op", "document", *(["before"] if before else [])]
    return T.StructType([
        T.StructField(name, _LONG if name == "seq" else _TEXT) for name in names
    ])  # fmt: skip


# ---- reading ----------------------------------------------------------------------------------


class Keys(D.InputPartition):
    """What one task reads: keys from `low` on, up to `high` or before `limit`."""

    def __init__(self, low: str | None, high: str | None, limit: str | None) -> None:
        self.low, self.high, self.limit = low, high, limit


class DocumentReader(D.DataSourceReader):
    """Reads a collection once."""

    def __init__(self, options: Mapping[str, str], schema: T.StructType) -> None:
        self._target = target(options, "read documents")
        condition(options)
        self._where, self._low, self._high = (options.get(n) for n in ("where", "low", "high"))
        self._parts = number(options, "partitions", 1) or 0
        self._schema = _check_read(schema, "documents", options)

    def partitions(self) -> Sequence[Keys]:
        with closing(connect(self._target)) as client:
            cuts = client.cuts(self._target.channel, self._parts)
        inner = [cut for cut in cuts if _inside(cut, self._low, self._high)]
        lows, limits = [self._low, *inner], [*inner, None]
        last = len(inner)
        return [
            Keys(low, self._high if at == last else None, limit)
            for at, (low, limit) in enumerate(zip(lows, limits, strict=True))
        ]

    def read(self, partition: D.InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Keys)
        name, keys = self._target.channel, partition
        with closing(connect(self._target)) as client:
            for batch in client.documents(
                name, where=self._where, low=keys.low, high=keys.high, limit=keys.limit
            ):
                op = pa.repeat(pa.scalar("r"), batch.num_rows)
                yield _fit(batch.append_column("op", op), self._schema)


def _check_read(asked: T.StructType, kind: str, options: Mapping[str, str]) -> pa.Schema:
    """The Arrow schema of what was asked for: columns of ours, and fields of documents."""
    documents_schema(options)  # refuses what is wrong, though what was asked for counts
    ours = _columns(_before(options))
    if "before" in asked.names and "before" not in ours.names:
        raise InvalidRequest("the column before is of streams with the option before", kind=kind)
    for field in asked:
        if field.name not in ours.names:
            check_readable(field.name, field.dataType)
    known = T.StructType([field for field in asked if field.name in ours.names])
    check_columns(known, ours, kind)
    return to_arrow_schema(asked, timezone="UTC")


def _fit(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The columns that a schema names; what is no column is a field of the document."""
    fields = [field for field in schema if field.name not in batch.schema.names]
    if not fields:
        return fit(batch, schema)
    ours = fit(batch, pa.schema([field for field in schema if field not in fields]))
    found = shapes.from_json(batch.column("document"), pa.struct(fields)).flatten()
    columns = dict(zip(ours.schema.names, ours.columns, strict=True))
    columns |= dict(zip((field.name for field in fields), found, strict=True))
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)


def _inside(cut: str, low: str | None, high: str | None) -> bool:
    """Whether a key lies between two others."""
    if low is None and high is None:
        return True  # without loading what compares keys
    from tideline.documents.export import key_of
    from tideline.documents.rows import key_bytes

    at = key_bytes(key_of(cut))
    return (low is None or key_bytes(key_of(low), "low") < at) and (
        high is None or at <= key_bytes(key_of(high), "high")
    )


# ---- following --------------------------------------------------------------------------------


def _before(options: Mapping[str, str]) -> bool:
    return choice(options, "before", ("true", "false"), "false") == "true"


class DocumentFollower(Following):
    """Follows the changes of a collection: what has a seq in (after, upto]."""

    _what, _where, _form = "collection", "seq", (r"[0-9]+", "the seq of a change")

    def __init__(self, options: Mapping[str, str], schema: T.StructType) -> None:
        super().__init__(options, "follow documents")
        self._before = _before(options)
        self._schema = _check_read(schema, "changes", options)
        self._facts()  # refused now, if it will be

    def _facts(self) -> dict[str, Any]:
        return self._store().collection(self._target.channel)

    def _identity(self) -> str:
        return str(self._facts()["identity"])

    def _place(self, start: str) -> int:
        name = {"latest": "position"}.get(start, start)
        return int(start if start.isdigit() else self._facts()[name])

    def _reach(self, after: int, upto: int, rows: int) -> int:
        return min(upto, after + rows)

    def _spans(self, first: int, last: int) -> Sequence[Span]:
        return [Span(at, min(at + _SPAN, last)) for at in range(first, last, _SPAN)]

    def read(self, partition: D.InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Span)
        name, after, upto = self._target.channel, partition.after, partition.upto
        with closing(connect(self._target)) as client:
            for batch in client.changes(name, after, upto, self._before):
                yield _fit(batch, self._schema)


# ---- writing ----------------------------------------------------------------------------------


class _Documents(Writing):
    """Rows are changes of documents."""

    _doing = ("write documents", "stream documents")

    def _open(self, options: Mapping[str, str], schema: T.StructType, doing: str) -> None:
        self._target = target(options, doing)
        op = choice(options, "op", OPS, "change" if "op" in schema.names else "put")
        version = options.get("version")
        self._arriving = {"op": op, "version": version}
        self._rejected = rejected(options)
        key, indexes = options.get("key"), json_object(options, "indexes")
        if indexes is not None and key is None:
            raise InvalidRequest("the option indexes goes with key: they make the collection")
        with closing(connect(self._target)) as client:
            facts = client.collection(self._target.channel, key, indexes)
        self._whole = _check_written(schema, op, facts["key"], version)

    def _rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if not self._whole:
            return batch
        at = batch.schema.get_field_index("document")
        return batch.set_column(at, "document", shapes.to_json(batch.column(at)))


class DocumentWriter(_Documents, Batch):
    """A batch into a collection."""


class DocumentStreamWriter(_Documents, Stream):
    """A stream into a collection."""


def _check_written(schema: T.StructType, op: str, key: str, version: str | None) -> bool:
    """Whether rows of these columns can be written; True: they are whole documents."""
    types = {field.name: field.dataType for field in schema}
    problems = [f"the column {name} is there twice" for name in types
                if schema.names.count(name) > 1]  # fmt: skip
    letters = types.pop("op", None) if op == "change" else T.StringType()
    if letters is None:
        problems.append("the column op is missing: text, one of c, u, r (put) and d (delete)")
    elif not isinstance(letters, T.StringType):
        problems.append("the column op must hold text, one of c, u, r (put) and d (delete), not "
                        f"{letters.simpleString()}")  # fmt: skip
    if list(types) == ["document"]:
        kind = types["document"]
        if isinstance(kind, T.StructType):
            problems.append(no_json("document", kind, "F.to_json('document')"))
        elif not isinstance(kind, (T.StringType, T.VariantType, T.NullType)):
            problems.append(f"the column document must hold JSON text, a struct or VARIANT, not "
                            f"{kind.simpleString()}: write F.to_json('document')")  # fmt: skip
        drifted([each for each in problems if each], schema)
        return True
    if key not in types:
        problems.append(f"the column of the key, {key}, is missing{near(key, types)}: give a "
                        "column a field, or one column document")  # fmt: skip
    if version is not None and version.split(".")[0] not in types:
        problems.append(f"the column of the version, {version}, is missing"
                        f"{near(version, types)}")  # fmt: skip
    if op == "delete" and not set(types) <= {key, version}:
        others = ", ".join(name for name in types if name not in (key, version))
        problems.append("to delete, give the column of the key alone, or with the version: drop "
                        f"{others}")  # fmt: skip
    whole = "the row as one column document: F.to_json(F.struct('*'))"
    problems += [no_json(name, kind, whole) for name, kind in types.items()]
    drifted([each for each in problems if each], schema, key=key)
    return False
