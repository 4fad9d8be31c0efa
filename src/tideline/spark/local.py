"""A `Client` on a database that this process has open: what the gate does for others.

How rows are staged and applied: channel/spool.py, channel/landing.py.

Safe from any thread.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tideline.channel.landing import Landing
from tideline.channel.spool import Spool
from tideline.errors import Closed, NotFound
from tideline.space import space_from_spec
from tideline.spark.client import Facts, Landed, Once
from tideline.spark.reading import Reading

if TYPE_CHECKING:
    from tideline.channel import Channel
    from tideline.database import Database

__all__ = ["Local"]


class Local(Reading):
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
