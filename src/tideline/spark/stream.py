"""Streaming read: what is written to a channel, from a position of its journal on.

    offset := {"position": ..., "channel": ...}    a micro-batch is what lies between two

Collections are followed the same way, by seq (documents.py): both are a `Following`. A position
stays good over restarts of the store and of Spark, and what lies between two
positions is always the same, so a query goes on without gap or duplicate. One that the
journal no longer reaches back to is `Unavailable`, never a silent gap; one of a channel that
was dropped and made again, or of another store, is refused.

The object lives in one process of Spark's driver and keeps a connection there; a task gets a
copy without one.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
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

__all__ = ["Follower", "Following", "Span"]


class Following(D.DataSourceStreamReader, SupportsTriggerAvailableNow):
    """What is followed, from where to where. A subclass says what a place in it is."""

    _what: str
    """`channel` or `collection`."""
    _where: str
    """What a place is called in an offset."""
    _form: tuple[str, str]
    """A pattern that the text of a place matches, and what it is called in a message."""

    def __init__(self, options: Mapping[str, str], doing: str) -> None:
        self._target = target(options, doing)
        self._start = options.get("startingPosition", "earliest")
        pattern, called = self._form
        if self._start not in ("earliest", "latest") and not re.fullmatch(pattern, self._start):
            raise InvalidRequest(
                f"the option startingPosition must be earliest, latest or {called}",
                given=self._start,
            )
        self._most = number(options, "maxRowsPerBatch", 1)
        self._limit: Any = None  # where a run that reads what there is now ends
        self._client: Client | None = None

    @abstractmethod
    def _identity(self) -> str:
        """What tells this one from every other, of the same name too."""

    @abstractmethod
    def _place(self, start: str) -> Any:
        """Where it begins (`earliest`), where it ends now (`latest`), or what a text says."""

    @abstractmethod
    def _reach(self, after: Any, upto: Any, rows: int) -> Any:
        """The place after about so many rows."""

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_client": None}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return self._offset(self._place(self._start))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadAllAvailable() if self._most is None else ReadMaxRows(self._most)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        self._check(start)
        at, end = start[self._where], self._place("latest") if self._limit is None else self._limit
        if isinstance(limit, ReadMaxRows) and at != end:
            end = self._reach(at, end, limit.max_rows)
        return self._offset(end)

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        return self._offset(self._place("latest"))

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._limit = self._place("latest")

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[Span]:
        self._check(start)
        return self._spans(start[self._where], end[self._where])

    def _spans(self, first: Any, last: Any) -> Sequence[Span]:
        """What each task reads."""
        return [] if first == last else [Span(first, last)]

    def stop(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def _offset(self, place: Any) -> dict[str, Any]:
        return {self._where: place, self._what: self._identity()}

    def _check(self, offset: dict[str, Any]) -> None:
        if offset.get(self._what) != self._identity():
            raise InvalidRequest(
                f"the checkpoint is of another {self._what}: this one was dropped and made again, "
                "or is in another store. Begin with a new checkpointLocation",
                **{self._what: self._target.channel}, path=self._target.path,
            )  # fmt: skip

    def _store(self) -> Client:
        if self._client is None:
            self._client = connect(self._target)
        return self._client


class Span(D.InputPartition):
    """What one task reads: what comes after a place, up to another."""

    def __init__(self, after: Any, upto: Any) -> None:
        self.after, self.upto = after, upto


class Follower(Following):
    """Follows a channel's journal."""

    _what, _where, _form = "channel", "position", (r"[0-9]+:[0-9]+", "a position")

    def __init__(self, options: Mapping[str, str], schema: T.StructType) -> None:
        super().__init__(options, "follow")
        self._kind = choice(options, "kind", KINDS, "events")
        space = self._store().describe(self._target.channel).space
        self._schema = check_read(schema, self._kind, space, options)
        self._place("earliest")  # refused now, if it will be

    def _identity(self) -> str:
        return self._store().describe(self._target.channel).identity

    def _place(self, start: str) -> str:
        if start == "latest":
            return self._store().position(self._target.channel)
        if start == "earliest":
            return self._store().earliest(self._target.channel, self._kind)
        return start

    def _reach(self, after: str, upto: str, rows: int) -> str:
        return self._store().reach(self._target.channel, self._kind, after, upto, rows)

    def read(self, partition: D.InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Span)
        channel, kind = self._target.channel, self._kind
        with closing(connect(self._target)) as client:
            for batch in client.journal(channel, kind, partition.after, partition.upto):
                yield fit(batch, self._schema)
