"""A `Client` on a database that this process has open: what the gate does for others.

How rows are staged and applied: channel/spool.py, channel/landing.py.

Safe from any thread.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from tideline.channel.landing import Landing
from tideline.channel.spool import SLICE, Spool
from tideline.clock import from_us
from tideline.errors import Closed, InvalidRequest, NotFound
from tideline.space import Box, Circle, Flat, Topics, space_from_spec
from tideline.spark.client import Facts, Landed, Once, Pushed
from tideline.spark.pushed import holding, span_of

if TYPE_CHECKING:
    from tideline.channel import Channel
    from tideline.database import Database

__all__ = ["Local", "place_of"]

_PAGE = 100_000  # rows of the journal that are read at a time
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
        return self._landing(channel).apply(tables, once)

    def stage(self, job: str, batches: Iterable[pa.RecordBatch], order: str = "time") -> str:
        return self._spool.stage(job, batches, order)

    def check(self, channel: str, tokens: Sequence[str], *, keep: str | None = None) -> Landed:
        return self._landing(channel).check(tokens, keep)

    def commit(
        self, channel: str, tokens: Sequence[str], *, once: Once | None = None,
        order: str = "time", keep: str | None = None,
    ) -> Landed:  # fmt: skip
        return self._landing(channel).commit(tokens, once=once, order=order, keep=keep)

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

    def _landing(self, channel: str) -> Landing:
        return Landing(self._channel(channel), self._spool, self._go_on)


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
