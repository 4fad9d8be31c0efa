"""How a `Client` reads a channel, whether the store is in this process or behind a server.

`Channel` and `RemoteChannel` have the same verbs; a subclass says how to get one.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import pyarrow as pa

from tideline.channel.spool import SLICE
from tideline.clock import from_us
from tideline.errors import InvalidRequest
from tideline.space import Box, Circle, Flat, Topics

__all__ = ["Reading", "place_of"]

_PAGE = 100_000  # rows of the journal that are read at a time
_SHAPE = re.compile(r"(circle:|box:)?([-+0-9.eE]+(?:,[-+0-9.eE]+)+)")


class Reading(ABC):
    """The part of a `Client` that reads."""

    @abstractmethod
    def _channel(self, name: str) -> Any:
        """The channel, or `NotFound`."""

    def _go_on(self) -> None:  # noqa: B027 - a hook: most have no reason to end
        """Called between steps of what takes many; raises to end it."""

    def scan(
        self, channel: str, kind: str, *, place: str | None = None, since: int | None = None,
        until: int | None = None, where: str | None = None,
    ) -> Iterator[pa.RecordBatch]:  # fmt: skip
        found = self._channel(channel)
        for table in self._scan(
            found,
            kind,
            place=None if place is None else place_of(place, found.space),
            since=None if since is None else from_us(since),
            until=None if until is None else from_us(until),
            where=None if where is None else _document(where),
        ):
            self._go_on()
            yield from table.to_batches(max_chunksize=SLICE)

    def _scan(self, channel: Any, kind: str, **narrow: Any) -> Iterable[pa.Table]:
        """What `scan` of the channel finds, in one part or several."""
        return [channel.scan(kind, **narrow)]

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
