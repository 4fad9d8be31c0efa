"""A `Client` on a database that this process has open: what the gate does for others.

How rows are staged and applied: channel/spool.py, channel/landing.py.

Safe from any thread.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from tideline.channel.landing import Landing
from tideline.channel.spool import Spool
from tideline.errors import Closed, Conflict, NotFound
from tideline.space import space_from_spec
from tideline.spark.client import Facts, Landed, Once
from tideline.spark.reading import Reading

if TYPE_CHECKING:
    from tideline.channel import Channel
    from tideline.database import Database
    from tideline.documents import Collection

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
        seeds = found.core.engine.facts["seeds"]
        return Facts(found.space.spec(), found.layout, "".join(f"{seed:016x}" for seed in seeds))

    def create(self, channel: str, space: dict[str, Any]) -> None:
        self._db.channel(channel, space=space_from_spec(space))

    def collection(
        self, name: str, key: str | None = None, indexes: dict[str, str] | None = None
    ) -> dict[str, Any]:
        if key is not None and name not in self._db.collections():
            self._db.collection(name, key=key, indexes=indexes)
        found = self._collection(name)
        if key not in (None, found.key):
            raise Conflict("the collection has another key", stored=found.key, given=key)
        return {"key": found.key, "indexes": found.indexes}

    def documents(
        self, name: str, *, where: str | None = None, low: str | None = None,
        high: str | None = None,
    ) -> Iterator[pa.RecordBatch]:  # fmt: skip
        found = self._collection(name)
        condition = None if where is None else msgspec.json.decode(where)
        for batch in found.scan(condition, low=_key(low), high=_key(high)):
            self._go_on()
            yield batch

    # ---- writing ------------------------------------------------------------------------

    def apply(
        self, channel: str, tables: Iterable[pa.Table | pa.RecordBatch],
        once: Once | None = None,
    ) -> Landed:  # fmt: skip
        landed: Landed = self._landing(channel).apply(tables, once)
        return landed

    def stage(self, job: str, batches: Iterable[pa.RecordBatch], order: str = "time") -> str:
        return self._spool.stage(job, batches, order)

    def check(self, channel: str, tokens: Sequence[str], *, keep: str | None = None) -> Landed:
        landed: Landed = self._landing(channel).check(tokens, keep)
        return landed

    def commit(
        self, channel: str, tokens: Sequence[str], *, once: Once | None = None,
        order: str = "time", keep: str | None = None,
    ) -> Landed:  # fmt: skip
        landing = self._landing(channel)
        landed: Landed = landing.commit(tokens, once=once, order=order, keep=keep)
        return landed

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

    def _landing(self, name: str) -> Any:
        if name in self._db.collections():  # no channel has the name of a collection
            from tideline.spark.putting import DocumentLanding

            return DocumentLanding(self._collection(name), self._spool, self._go_on)
        return Landing(self._channel(name), self._spool, self._go_on)

    def _collection(self, name: str) -> Collection:
        names = self._db.collections()
        if name not in names:
            raise NotFound("no such collection", name=name, collections=names)
        return self._db.collection(name)


def _key(text: str | None) -> Any:
    """A key from an option: JSON, or text."""
    if text is None:
        return None
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
