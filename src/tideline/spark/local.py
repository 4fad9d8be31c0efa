"""A `Client` on a database that this process has open: what the gate does for others.

Rows go to the channel in tables of `SLICE` rows. A writer's batch of any size is therefore
many calls of `Channel.apply`, numbered so that each is at most once:

    number of a call := number of the batch << 20 | which table of it

The tables of a batch that is run again are the same, because the order of its rows is
(spool.py), so the calls that landed are skipped one by one.

Safe from any thread.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from tideline.clock import from_us
from tideline.errors import Closed, InvalidRequest, NotFound
from tideline.space import Box, Circle, Flat, Topics, space_from_spec
from tideline.spark.client import Facts, Landed, Once, Pushed
from tideline.spark.pushed import holding, span_of
from tideline.spark.spool import SLICE, Spool, merged

if TYPE_CHECKING:
    from tideline.channel import Channel
    from tideline.database import Database

__all__ = ["Local", "place_of"]

_TABLES_BITS = 20
_PAGE = 100_000  # rows of the journal that are read at a time
_REASONS = 5
_SHAPE = re.compile(r"(circle:|box:)?([-+0-9.eE]+(?:,[-+0-9.eE]+)+)")


class Local:
    """A store in this process. `spool` is a folder for staged rows."""

    def __init__(self, db: Database, spool: Spool) -> None:
        self._db = db
        self._spool = spool
        self.stopping = threading.Event()
        """Set: what takes many steps ends after the step it is in."""

    # ---- reading ------------------------------------------------------------------------

    def describe(self, channel: str) -> Facts:
        found = self._channel(channel)
        # Drawn when the channel is made: one that is dropped and made again has others.
        seeds = found._engine.facts["seeds"]
        return Facts(found.space.spec(), found.layout, "".join(f"{seed:016x}" for seed in seeds))

    def create(self, channel: str, space: dict[str, Any]) -> None:
        self._db.channel(channel, space=space_from_spec(space))

    def scan(
        self, channel: str, kind: str, *, place: str | None = None, since: int | None = None,
        until: int | None = None, where: str | None = None, pushed: Sequence[Pushed] = (),
    ) -> Iterator[pa.RecordBatch]:  # fmt: skip
        found = self._channel(channel)
        condition = None if where is None else _document(where)
        if kind == "events":
            first, limit = span_of(pushed, "at")
            since = first if since is None else since if first is None else max(since, first)
            until = limit if until is None else until if limit is None else min(until, limit)
        table = found.scan(
            kind,
            place=None if place is None else place_of(place, found.space),
            since=None if since is None else from_us(since),
            until=None if until is None else from_us(until),
            where=condition,
        )
        yield from holding(table, pushed).to_batches(max_chunksize=SLICE)

    def position(self, channel: str) -> str:
        return str(self._channel(channel).position())

    def earliest(self, channel: str, kind: str) -> str:
        found = self._channel(channel)
        end = found.position()
        found.journal(kind, after=end, upto=end, limit=1)  # refuses a kind that is not kept
        return str(found.earliest())

    def reach(self, channel: str, kind: str, after: str, upto: str, limit: int) -> str:
        _, reached = self._channel(channel).journal(kind, after=after, upto=upto, limit=limit)
        return str(reached)

    def journal(self, channel: str, kind: str, after: str, upto: str) -> Iterator[pa.RecordBatch]:
        found = self._channel(channel)
        while after != upto:
            self._go_on()
            table, reached = found.journal(kind, after=after, upto=upto, limit=_PAGE)
            yield from table.to_batches(max_chunksize=SLICE)
            if reached == after:
                return
            after = reached

    # ---- writing ------------------------------------------------------------------------

    def apply(
        self, channel: str, tables: Iterable[pa.Table | pa.RecordBatch],
        once: Once | None = None,
    ) -> Landed:  # fmt: skip
        batches = (
            batch
            for table in tables
            for batch in (table.to_batches() if isinstance(table, pa.Table) else [table])
        )
        return self._land(self._channel(channel), merged(batches, "arrival", SLICE), once, None)

    def stage(self, job: str, batches: Iterable[pa.RecordBatch], order: str = "time") -> str:
        return self._spool.stage(job, batches, order)

    def check(self, channel: str, tokens: Sequence[str], *, keep: str | None = None) -> Landed:
        from tideline.channel.checks import BODY_LIMIT_BYTES, ID_LIMIT_BYTES
        from tideline.channel.operations import read_operations

        found = self._channel(channel)
        counts = _Counts()

        def bad() -> Iterator[pa.RecordBatch]:
            for run in self._spool.runs(tokens):  # each row by itself: the order is all one
                self._go_on()
                table = pa.Table.from_batches([run])
                operations = read_operations(
                    table, found.space, lambda count: ["?"] * count, id_limit=ID_LIMIT_BYTES,
                    body_limit=BODY_LIMIT_BYTES,
                )  # fmt: skip
                counts.rows += table.num_rows
                rows = sorted(operations.rejected)
                yield from counts.reject(table, rows, [operations.rejected[row] for row in rows])

        return self._keep(bad(), counts, keep)

    def commit(
        self, channel: str, tokens: Sequence[str], *, once: Once | None = None,
        order: str = "time", keep: str | None = None,
    ) -> Landed:  # fmt: skip
        slices = merged(self._spool.runs(tokens), order, SLICE)
        with contextlib.closing(_ahead(slices)) as tables:
            return self._land(self._channel(channel), tables, once, keep)

    def fetch(self, token: str) -> Iterator[pa.RecordBatch]:
        yield from self._spool.runs([token])

    def discard(self, job: str, over: bool = False) -> None:
        self._spool.discard(job, over)

    def close(self) -> None:
        """The database is not this object's to close."""

    # ---- inside -------------------------------------------------------------------------

    def _channel(self, name: str) -> Channel:
        names = self._db.channels()
        if name not in names:
            raise NotFound("no such channel", name=name, channels=names)
        return self._db.channel(name)

    def _go_on(self) -> None:
        if self.stopping.is_set():
            raise Closed("the database is being closed", path=str(self._db.path))

    def _land(
        self, channel: Channel, slices: Iterable[pa.Table], once: Once | None, keep: str | None
    ) -> Landed:
        """Apply tables in turn; `keep` stages the rejected rows."""
        counts = _Counts()

        def bad() -> Iterator[pa.RecordBatch]:
            for i, table in enumerate(slices):
                self._go_on()
                if i >> _TABLES_BITS:
                    raise InvalidRequest("a batch has too many rows", limit=SLICE << _TABLES_BITS)
                if once is None:
                    applied = channel.apply(table)
                else:
                    number = once[1] << _TABLES_BITS | i
                    applied = channel.apply(table, once=(once[0], number))
                counts.rows += table.num_rows
                counts.repeated += table.num_rows if applied.repeated else 0
                counts.answers += applied.answers.num_rows
                rejected = applied.rejected
                yield from counts.reject(
                    table, rejected["row"].to_pylist(), rejected["reason"].to_pylist()
                )

        return self._keep(bad(), counts, keep)

    def _keep(self, bad: Iterator[pa.RecordBatch], counts: _Counts, keep: str | None) -> Landed:
        """Run through the rows; stage the bad ones, if asked to."""
        token = None
        if keep is None:
            for _ in bad:
                pass
        else:
            token = self._spool.stage(keep, bad, "arrival")
        return Landed(
            counts.rows, counts.answers, counts.rejected, counts.reasons, counts.repeated,
            token if counts.rejected else None,
        )  # fmt: skip


class _Counts:
    """What `Landed` tells, while it is being counted."""

    def __init__(self) -> None:
        self.rows = self.answers = self.rejected = self.repeated = 0
        self.reasons: list[str] = []

    def reject(
        self, table: pa.Table, rows: list[int], reasons: list[str]
    ) -> Iterator[pa.RecordBatch]:
        """Note rejected rows; gives them with the column `reason`."""
        if not rows:
            return
        self.rejected += len(rows)
        for reason in reasons:
            if len(self.reasons) == _REASONS:
                break
            if reason not in self.reasons:
                self.reasons.append(reason)
        taken = table.take(pa.array(rows, pa.int64()))
        yield from taken.append_column("reason", pa.array(reasons, pa.string())).to_batches()


def _ahead(tables: Iterator[pa.Table]) -> Generator[pa.Table, None, None]:
    """The same, the next one being made while one is used."""
    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(next, tables, None)
        while (table := coming.result()) is not None:
            coming = pool.submit(next, tables, None)
            yield table


def place_of(text: str, space: Any) -> Any:
    """A place from an option: a key, path or cell; on a map also LON,LAT, circle:, box:.

    >>> from tideline import QuadTree
    >>> place_of("circle:-73.98,40.75,500", QuadTree(bounds=(-80, 40, -70, 46), depth=4))
    Circle(center=(-73.98, 40.75), radius_m=500.0)
    """
    if isinstance(space, (Flat, Topics)):
        return text
    found = _SHAPE.fullmatch(text)
    try:
        if found is None:
            return text
        numbers = [float(part) for part in found[2].split(",")]
        if found[1] == "circle:":
            lon, lat, radius_m = numbers
            return Circle((lon, lat), radius_m=radius_m)
        if found[1] == "box:":
            west, south, east, north = numbers
            return Box(west, south, east, north)
        lon, lat = numbers
        return (lon, lat)
    except ValueError:
        raise InvalidRequest(
            "place must be a cell, LON,LAT, circle:LON,LAT,RADIUS_M or "
            "box:WEST,SOUTH,EAST,NORTH", place=text,
        ) from None  # fmt: skip


def _document(text: str) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise InvalidRequest(f"where must be JSON: {error}", where=text) from None
    if not isinstance(found, dict):
        raise InvalidRequest("where must be a JSON object", where=text)
    return found
