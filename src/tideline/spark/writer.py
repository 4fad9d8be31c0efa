"""Batch and streaming write: tasks stage their rows, the driver commits them as one.

    task      rows -> columns as `apply` takes them -> spool, a token
    driver    tokens -> check -> commit: all rows in order of time

A streaming write is at most once: a micro-batch is known by the id of its query, which lies
in the checkpoint and so goes where the checkpoint goes, and by its number. A batch write is
too when the options `writer` and `number` name it, for use inside `foreachBatch`.

Rejected rows, by the option `rejected`:

    fail      (default) nothing lands and the write fails with the count and the first reasons
    drop      the good rows land, the others are left out
    a path    the good rows land, the others go to Parquet files there, with the reason

That a row's id is taken by another event shows only when it lands: then the good rows have
landed as well, and `fail` fails afterwards.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import datasource as D
from pyspark.sql import types as T

from tideline.errors import InvalidRequest, TidelineError
from tideline.spark.client import ORDERS, Arriving, Client, Once, connect
from tideline.spark.columns import OPS, check_written, prepared
from tideline.spark.options import Target, choice, json_object, number, rejected, target

__all__ = ["Batch", "BatchWriter", "Staged", "Stream", "StreamWriter", "Writing"]


@dataclass
class Staged(D.WriterCommitMessage):
    """What a task staged."""

    job: str
    part: int
    token: str


class Writing:
    """What all writers do; a subclass says what rows are and where they go."""

    _doing: tuple[str, str]
    """What a batch and a stream are called in options.py."""
    _target: Target
    _rejected: str
    _order = "arrival"
    _arriving: Arriving = None
    """What rows for a collection are."""
    keep: Callable[[Iterator[pa.RecordBatch], str], None] | None = None
    """Writes rejected rows to a file in place of `_write`: in a process that has a session."""

    def _open(self, options: Mapping[str, str], schema: T.StructType, doing: str) -> None:
        """Look at the options and columns, and at what is written to."""
        raise NotImplementedError

    def _rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """A batch as it is staged."""
        return batch

    def _stage(self, job: str, batches: Iterator[pa.RecordBatch]) -> Staged:
        context = TaskContext.get()
        with closing(connect(self._target)) as client:
            token = client.stage(job, (self._rows(batch) for batch in batches), self._order)
        return Staged(job, context.partitionId() if context else 0, token)

    def _commit(self, job: str, messages: Sequence[Staged | None], once: Once | None) -> None:
        staged = sorted((each for each in messages if each is not None), key=lambda e: e.part)
        with closing(connect(self._target)) as client:
            try:
                self._land(client, job, [each.token for each in staged], once)
            finally:
                with suppress(TidelineError):
                    client.discard(job)

    def _land(self, client: Client, job: str, tokens: list[str], once: Once | None) -> None:
        channel, order = self._target.channel, self._order
        if self._rejected == "drop":
            client.commit(channel, tokens, once=once, order=order, arriving=self._arriving)
            return
        if self._rejected != "fail":
            self._land_and_keep(client, job, tokens, once)
            return
        found = client.check(channel, tokens, arriving=self._arriving)
        if found.rejected:
            raise InvalidRequest(
                f"{found.rejected} of {found.rows} rows are rejected and nothing was written; "
                f"first reasons: {'; '.join(found.reasons)}. Set the option rejected to 'drop', "
                "or to a path for them", channel=channel,
            )  # fmt: skip
        landed = client.commit(channel, tokens, once=once, order=order, arriving=self._arriving)
        if landed.rejected:
            raise InvalidRequest(
                f"{landed.rejected} of {landed.rows} rows were rejected, the others have landed; "
                f"first reasons: {'; '.join(landed.reasons)}. Set the option rejected to 'drop', "
                "or to a path for them", channel=channel,
            )  # fmt: skip

    def _land_and_keep(
        self, client: Client, job: str, tokens: list[str], once: Once | None
    ) -> None:
        """Write what lands, and put the rejected rows into their file.

        Rows that had landed before, in a try that was killed, are not judged by the store again:
        what is wrong with one by itself is then looked up.
        """
        channel = self._target.channel
        name = f"{job}-{secrets.token_hex(4)}" if once is None else f"{once[0]}-{once[1]}"
        told: Any = {"keep": job, "arriving": self._arriving}
        kept = client.commit(channel, tokens, once=once, order=self._order, **told)
        if kept.repeated:
            checked = client.check(channel, tokens, **told)
            kept = checked if checked.rejected > kept.rejected else kept
        if kept.token is not None:
            self._keep(client, quote(name, safe=""), kept.token)

    def _keep(self, client: Client, name: str, token: str) -> None:
        """Write rejected rows to a file of this write; the same write writes the same file."""
        (self.keep or self._write)(client.fetch(token), f"rejected-{name}.parquet")

    def _write(self, batches: Iterator[pa.RecordBatch], name: str) -> None:
        """Rows as a Parquet file, by pyarrow: there is no session in this process."""
        from pyarrow import fs
        from pyarrow import parquet as pq

        try:
            system, path = fs.FileSystem.from_uri(self._rejected)
        except pa.ArrowInvalid:  # no URI
            system, path = fs.LocalFileSystem(), self._rejected
        try:
            system.create_dir(path)
            with ExitStack() as stack:
                file: Any = None
                for batch in batches:
                    if file is None:
                        where = f"{path}/{name}"
                        file = pq.ParquetWriter(where, batch.schema, filesystem=system)
                        stack.enter_context(file)
                    file.write_batch(batch)
        except OSError as error:
            raise InvalidRequest(
                "the rejected rows cannot be written", rejected=self._rejected, error=str(error)
            ) from error

    def _abandon(self, job: str, over: bool) -> None:
        # A store that is gone has nothing staged.
        with closing(connect(self._target)) as client, suppress(TidelineError):
            client.discard(job, over)


class Batch(Writing, D.DataSourceArrowWriter):
    """`frame.write`."""

    def __init__(self, options: Mapping[str, str], schema: T.StructType, overwrite: bool) -> None:
        if overwrite:
            raise InvalidRequest("rows are added, nothing is replaced whole: use mode('append')")
        name, count = options.get("writer"), number(options, "number", 0)
        if (name is None) != (count is None):
            raise InvalidRequest("give the options writer and number together, or neither")
        self._once = None if name is None or count is None else (name, count)
        self._job = f"b-{secrets.token_hex(8)}"
        self._open(options, schema, self._doing[0])

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        return self._stage(self._job, iterator)

    def commit(self, messages: list[D.WriterCommitMessage | None]) -> None:
        self._commit(self._job, messages, self._once)  # type: ignore[arg-type]

    def abort(self, messages: list[D.WriterCommitMessage | None]) -> None:
        self._abandon(self._job, over=True)


class Stream(Writing, D.DataSourceStreamArrowWriter):
    """`frame.writeStream`."""

    def __init__(self, options: Mapping[str, str], schema: T.StructType) -> None:
        self._open(options, schema, self._doing[1])

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        query = TaskContext.get().getLocalProperty("sql.streaming.queryId")  # type: ignore[union-attr]
        return self._stage(f"q-{query}", iterator)

    def commit(self, messages: list[D.WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        jobs = {each.job for each in messages if isinstance(each, Staged)}
        for job in jobs:  # one, or none when the micro-batch had no task
            self._commit(job, messages, (job, batchId))  # type: ignore[arg-type]

    def abort(self, messages: list[D.WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        for job in {each.job for each in messages if isinstance(each, Staged)}:
            self._abandon(job, over=False)  # the query may go on; its next batch cleans up


class ChannelWriting(Writing):
    """Rows are operations of a channel."""

    _doing = ("write", "stream")

    def _open(self, options: Mapping[str, str], schema: T.StructType, doing: str) -> None:
        self._target = target(options, doing)
        self._op = choice(options, "op", OPS, "apply" if "op" in schema.names else "publish")
        self._order = choice(options, "order", ORDERS, "time")
        self._rejected = rejected(options)
        space = json_object(options, "space")
        check_written(schema, self._op)
        with closing(connect(self._target)) as client:
            if space is not None:
                client.create(self._target.channel, space)
            client.describe(self._target.channel)

    def _rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return prepared(batch, self._op)


class BatchWriter(ChannelWriting, Batch):
    """A batch into a channel."""


class StreamWriter(ChannelWriting, Stream):
    """A stream into a channel."""
