"""Streaming read: what is written to a channel, from a position of its journal on.

    offset := {"position": ..., "channel": ...}    a micro-batch is what lies between two

A position stays good over restarts of the store and of Spark, and what lies between two
positions is always the same, so a query goes on without gap or duplicate. One that the
journal no longer reaches back to is `Unavailable`, never a silent gap; one of a channel that
was dropped and made again, or of another store, is refused.

The object lives in one process of Spark's driver and keeps a connection there; a task gets a
copy without one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import datasource as D
from pyspark.sql import types as T
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from tideline.errors import InvalidRequest
from tideline.spark.client import KINDS, Client, connect
from tideline.spark.columns import check_read, fit
from tideline.spark.options import choice, number, target

__all__ = ["Follower", "Span"]

_POSITION = re.compile(r"[0-9]+:[0-9]+")


class Span(D.InputPartition):
    """What one task reads."""

    def __init__(self, after: str, upto: str) -> None:
        self.after = after
        self.upto = upto


class Follower(D.DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows a channel's journal."""

    def __init__(self, options: Mapping[str, str], schema: T.StructType) -> None:
        self._target = target(options, "follow")
        self._kind = choice(options, "kind", KINDS, "events")
        self._start = options.get("startingPosition", "earliest")
        if self._start not in ("earliest", "latest") and not _POSITION.fullmatch(self._start):
            raise InvalidRequest(
                "the option startingPosition must be earliest, latest or a position",
                given=self._start,
            )
        self._most = number(options, "maxRowsPerBatch", 1)
        self._limit: str | None = None  # where a run that reads what there is now ends
        self._client: Client | None = None
        space = self._store().describe(self._target.channel).space
        self._schema = check_read(schema, self._kind, space, options)
        self._store().earliest(self._target.channel, self._kind)  # refused now, if it will be

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_client": None}

    def initialOffset(self) -> dict[str, str]:  # noqa: N802
        if self._start == "latest":
            return self._offset(self._store().position(self._target.channel))
        if self._start == "earliest":
            return self._offset(self._store().earliest(self._target.channel, self._kind))
        return self._offset(self._start)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadAllAvailable() if self._most is None else ReadMaxRows(self._most)

    def latestOffset(self, start: dict[str, str], limit: ReadLimit) -> dict[str, str]:  # noqa: N802
        store, channel = self._store(), self._target.channel
        self._check(start)
        end = self._limit or store.position(channel)
        if isinstance(limit, ReadMaxRows) and start["position"] != end:
            end = store.reach(channel, self._kind, start["position"], end, limit.max_rows)
        return self._offset(end)

    def reportLatestOffset(self) -> dict[str, str]:  # noqa: N802
        return self._offset(self._store().position(self._target.channel))

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._limit = self._store().position(self._target.channel)

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> Sequence[Span]:
        self._check(start)
        if start["position"] == end["position"]:
            return []
        return [Span(start["position"], end["position"])]

    def read(self, partition: D.InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Span)
        channel, kind = self._target.channel, self._kind
        client = connect(self._target)
        try:
            for batch in client.journal(channel, kind, partition.after, partition.upto):
                yield fit(batch, self._schema)
        finally:
            client.close()

    def stop(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def _offset(self, position: str) -> dict[str, str]:
        return {"position": position, "channel": self._identity()}

    def _check(self, offset: dict[str, str]) -> None:
        if offset.get("channel") != self._identity():
            raise InvalidRequest(
                "the checkpoint is of another channel: this one was dropped and made again, or is "
                "in another store. Begin with a new checkpointLocation",
                channel=self._target.channel, path=self._target.path,
            )  # fmt: skip

    def _identity(self) -> str:
        return self._store().describe(self._target.channel).identity

    def _store(self) -> Client:
        if self._client is None:
            self._client = connect(self._target)
        return self._client
