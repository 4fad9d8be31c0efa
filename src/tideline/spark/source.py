"""The format `tideline`: channels, collections and stream windows as Spark tables and streams.

    spark.read.format("tideline")           reader.py   what is valid now
    spark.readStream.format("tideline")     stream.py   what is written, from a position on
    frame.write.format("tideline")          writer.py   rows staged by tasks, committed as one
    frame.writeStream.format("tideline")    writer.py   the same, each micro-batch at most once

With the option `collection` instead of `channel`: documents.py; with `window`: window_source.py.

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
from tideline.spark.window_source import (
    WindowReader,
    WindowStreamWriter,
    WindowWriter,
    window_schema,
)
from tideline.spark.writer import BatchWriter, StreamWriter

__all__ = ["TidelineSource"]


class TidelineSource(DataSource):
    """`spark.read.format("tideline").option("channel", "roads").load("./data")`."""

    @classmethod
    def name(cls) -> str:
        return "tideline"

    @property
    def _what(self) -> str:
        named = {name.lower() for name in self.options}
        found = [each for each in ("channel", "collection", "window") if each in named]
        if len(found) > 1:
            raise InvalidRequest(f"give the option {found[0]} or {found[1]}, not both")
        return found[0] if found else "channel"

    def schema(self) -> T.StructType:
        if self._what == "collection":
            return documents_schema(self.options)
        if self._what == "window":
            return window_schema(self.options)
        streams = {"startingposition", "maxrowsperbatch"} & {name.lower() for name in self.options}
        kind = choice(self.options, "kind", KINDS, "events")
        found = target(self.options, "follow" if streams or kind == "answers" else "read")
        with closing(connect(found)) as client:
            space = client.describe(found.channel).space
        narrowed(self.options, kind, space)  # so that load() says what is wrong
        return reshaped(schema_of(kind, space), self.options)

    def reader(self, schema: T.StructType) -> Reader | DocumentReader | WindowReader:
        if self._what == "collection":
            return DocumentReader(self.options, schema)
        if self._what == "window":
            return WindowReader(self.options, schema)
        return Reader(self.options, schema)

    def streamReader(self, schema: T.StructType) -> Follower | DocumentFollower:  # noqa: N802
        if self._what == "collection":
            return DocumentFollower(self.options, schema)
        if self._what == "window":
            raise InvalidRequest(
                "a stream window is read as a table, or watched with window.watch; a stream of its "
                "panes is made from its rows: tideline.spark.panes"
            )
        return Follower(self.options, schema)

    def writer(
        self, schema: T.StructType, overwrite: bool
    ) -> BatchWriter | DocumentWriter | WindowWriter:
        if self._what == "collection":
            return DocumentWriter(self.options, schema, overwrite)
        if self._what == "window":
            return WindowWriter(self.options, schema, overwrite)
        return BatchWriter(self.options, schema, overwrite)

    def streamWriter(  # noqa: N802
        self, schema: T.StructType, overwrite: bool
    ) -> StreamWriter | DocumentStreamWriter | WindowStreamWriter:
        if self._what == "collection":
            return DocumentStreamWriter(self.options, schema)
        if self._what == "window":
            return WindowStreamWriter(self.options, schema)
        return StreamWriter(self.options, schema)
