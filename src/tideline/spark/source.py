"""The format `tideline`: channels and collections as Spark tables and streams.

    spark.read.format("tideline")           reader.py   what is valid now
    spark.readStream.format("tideline")     stream.py   what is written, from a position on
    frame.write.format("tideline")          writer.py   rows staged by tasks, committed as one
    frame.writeStream.format("tideline")    writer.py   the same, each micro-batch at most once

With the option `collection` instead of `channel`: documents.py.

`tideline.spark.session` registers it. Spark calls it in processes of its own, on the driver's
machine and on every worker: they reach the store through a `Client` (client.py).
"""

from __future__ import annotations

from contextlib import closing

from pyspark.sql import types as T
from pyspark.sql.datasource import DataSource

from tideline.errors import InvalidRequest
from tideline.spark.client import KINDS, connect
from tideline.spark.columns import reshaped, schema_of
from tideline.spark.documents import (
    DocumentFollower,
    DocumentReader,
    DocumentStreamWriter,
    DocumentWriter,
    documents_schema,
)
from tideline.spark.options import choice, target
from tideline.spark.reader import Reader, narrowed
from tideline.spark.stream import Follower
from tideline.spark.writer import BatchWriter, StreamWriter

__all__ = ["TidelineSource"]


class TidelineSource(DataSource):
    """`spark.read.format("tideline").option("channel", "roads").load("./data")`."""

    @classmethod
    def name(cls) -> str:
        return "tideline"

    @property
    def _documents(self) -> bool:
        named = {name.lower() for name in self.options}
        if {"channel", "collection"} <= named:
            raise InvalidRequest("give the option channel or collection, not both")
        return "collection" in named

    def schema(self) -> T.StructType:
        if self._documents:
            return documents_schema(self.options)
        streams = {"startingposition", "maxrowsperbatch"} & {name.lower() for name in self.options}
        kind = choice(self.options, "kind", KINDS, "events")
        found = target(self.options, "follow" if streams or kind == "answers" else "read")
        with closing(connect(found)) as client:
            space = client.describe(found.channel).space
        narrowed(self.options, kind, space)  # so that load() says what is wrong
        return reshaped(schema_of(kind, space), self.options)

    def reader(self, schema: T.StructType) -> Reader | DocumentReader:
        if self._documents:
            return DocumentReader(self.options, schema)
        return Reader(self.options, schema)

    def streamReader(self, schema: T.StructType) -> Follower | DocumentFollower:  # noqa: N802
        if self._documents:
            return DocumentFollower(self.options, schema)
        return Follower(self.options, schema)

    def writer(self, schema: T.StructType, overwrite: bool) -> BatchWriter | DocumentWriter:
        if self._documents:
            return DocumentWriter(self.options, schema, overwrite)
        return BatchWriter(self.options, schema, overwrite)

    def streamWriter(  # noqa: N802
        self, schema: T.StructType, overwrite: bool
    ) -> StreamWriter | DocumentStreamWriter:
        if self._documents:
            return DocumentStreamWriter(self.options, schema)
        return StreamWriter(self.options, schema)
