"""Collections as Spark tables: `format("tideline").option("collection", "tweets")`.

    read      key, seq, document          of one moment, one task; where, low, high, tests pushed
    write     a column `document` with JSON, or a column a field: rows staged by tasks, then put
              in the order of partitions; with op "delete" the key's column alone
    stream    the same for every micro-batch

A put of the same documents again leaves the same documents, so a micro-batch that is run again
needs no memory of what has landed. But it writes again: its documents are then the newest, and
what somebody else has put under the same keys in between is replaced.

Of two rows of a batch with one key the later stays, in the order of partitions and rows. Which
that is, is for the frame to say: `repartition` by the key and `sortWithinPartitions`.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import datasource as D
from pyspark.sql import types as T

from tideline.errors import InvalidRequest
from tideline.spark.client import connect
from tideline.spark.columns import check_columns, fit
from tideline.spark.options import choice, condition, json_object, rejected, target
from tideline.spark.writer import Staged, Writing

__all__ = ["SCHEMA", "DocumentReader", "DocumentStreamWriter", "DocumentWriter"]

SCHEMA = T.StructType([
    T.StructField("key", T.StringType()), T.StructField("seq", T.LongType()),
    T.StructField("document", T.StringType()),
])  # fmt: skip
OPS = ("put", "delete")

_PLAIN = (
    T.StringType, T.BooleanType, T.IntegralType, T.FloatType, T.DoubleType, T.NullType,
)  # fmt: skip


# ---- reading ----------------------------------------------------------------------------------


class DocumentReader(D.DataSourceReader):
    """Reads a collection once."""

    def __init__(self, options: Mapping[str, str], schema: T.StructType) -> None:
        self._target = target(options, "read documents")
        condition(options)
        self._narrow = {name: options.get(name) for name in ("where", "low", "high")}
        self._schema = check_columns(schema, SCHEMA, "documents")

    def read(self, partition: D.InputPartition) -> Iterator[pa.RecordBatch]:
        client = connect(self._target)
        try:
            name = self._target.channel
            for batch in client.documents(name, **self._narrow):
                yield fit(batch, self._schema)
        finally:
            client.close()


# ---- writing ----------------------------------------------------------------------------------


class _Documents(Writing):
    """What both writers do."""

    def __init__(self, options: Mapping[str, str], schema: T.StructType, doing: str) -> None:
        self._target = target(options, doing)
        self._op = choice(options, "op", OPS, "put")
        self._order = self._op  # what a commit is told: documents land as they come
        self._rejected = rejected(options)
        key, indexes = options.get("key"), json_object(options, "indexes")
        if indexes is not None and key is None:
            raise InvalidRequest("the option indexes goes with key: they make the collection")
        client = connect(self._target)
        try:
            facts = client.collection(self._target.channel, key, indexes)
        finally:
            client.close()
        _check_written(schema, self._op, facts["key"])

    def _stage(self, job: str, batches: Iterator[pa.RecordBatch]) -> Staged:
        client = connect(self._target)
        context = TaskContext.get()
        token = client.stage(job, batches, "arrival")
        return Staged(job, context.partitionId() if context else 0, token)


class DocumentWriter(_Documents, D.DataSourceArrowWriter):
    """`frame.write`."""

    def __init__(self, options: Mapping[str, str], schema: T.StructType, overwrite: bool) -> None:
        if overwrite:
            raise InvalidRequest(
                "documents are put one by one, a collection is never replaced: use mode('append')"
            )
        super().__init__(options, schema, "write documents")
        self._job = f"b-{secrets.token_hex(8)}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        return self._stage(self._job, iterator)

    def commit(self, messages: list[D.WriterCommitMessage | None]) -> None:
        self._commit(self._job, messages, None)  # type: ignore[arg-type]

    def abort(self, messages: list[D.WriterCommitMessage | None]) -> None:
        self._abandon(self._job, over=True)


class DocumentStreamWriter(_Documents, D.DataSourceStreamArrowWriter):
    """`frame.writeStream`."""

    def __init__(self, options: Mapping[str, str], schema: T.StructType) -> None:
        super().__init__(options, schema, "stream documents")

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        query = TaskContext.get().getLocalProperty("sql.streaming.queryId")  # type: ignore[union-attr]
        return self._stage(f"q-{query}", iterator)

    def commit(self, messages: list[D.WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        for job in {each.job for each in messages if isinstance(each, Staged)}:
            self._commit(job, messages, None)  # type: ignore[arg-type]

    def abort(self, messages: list[D.WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        for job in {each.job for each in messages if isinstance(each, Staged)}:
            self._abandon(job, over=False)


def _check_written(schema: T.StructType, op: str, key: str) -> None:
    names = schema.names
    if op == "delete":
        if names != [key]:
            raise InvalidRequest("to delete, give the column of the key alone",
                                 key=key, columns=names)  # fmt: skip
    elif names == ["document"]:
        if not isinstance(schema["document"].dataType, T.StringType):
            raise InvalidRequest(
                "the column document must hold JSON text: write F.to_json, or a column a field",
                type=schema["document"].dataType.simpleString(),
            )
        return
    elif key not in names:
        raise InvalidRequest(
            "the column of the key is missing: give a column a field, or one column document with "
            "JSON", key=key, columns=names,
        )  # fmt: skip
    for field in schema:
        _check_type(field.name, field.dataType)


def _check_type(name: str, kind: T.DataType) -> None:
    if isinstance(kind, T.ArrayType):
        _check_type(name, kind.elementType)
    elif isinstance(kind, T.StructType):
        for field in kind:
            _check_type(f"{name}.{field.name}", field.dataType)
    elif not isinstance(kind, _PLAIN):
        raise InvalidRequest(
            "the column has a type that no JSON value has: cast it, for example to string",
            column=name, type=kind.simpleString(),
        )  # fmt: skip
