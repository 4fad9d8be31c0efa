"""How a `Client` reads a channel, whether the store is in this process or behind a server.

`Channel` and `RemoteChannel` have the same verbs; a subclass says how to get one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import pyarrow as pa

from tideline.channel.spool import SLICE
from tideline.clock import from_us
from tideline.space.plain import from_text

__all__ = ["Reading"]

_PAGE = 100_000  # rows of the journal that are read at a time


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
            place=None if place is None else from_text(place, found.space),
            since=None if since is None else from_us(since),
            until=None if until is None else from_us(until),
            where=None if where is None else msgspec.json.decode(where),
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
