"""A `Client` on a database that this process has open: what the gate does for others.

How rows are staged and applied: channel/spool.py, channel/landing.py.

Safe from any thread.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from tideline.channel.landing import DocumentLanding, Landing, WindowLanding
from tideline.channel.scan import scan_parts
from tideline.channel.spool import SLICE, Spool
from tideline.errors import Closed, Conflict, InvalidRequest, NotFound
from tideline.spark.client import Arriving, Client, Landed, Once

if TYPE_CHECKING:
    from tideline.channel import Channel
    from tideline.database import Database
    from tideline.documents import Collection
    from tideline.stream import StreamWindow

__all__ = ["Local"]


class Local(Client):
    """A store in this process. `spool` is a folder for staged rows."""

    def __init__(self, db: Database, spool: Spool) -> None:
        self._db = self._store = db
        self._spool = spool
        self.stopping = threading.Event()
        """Set: what takes many steps ends after the step it is in."""

    # ---- reading ------------------------------------------------------------------------

    def _scan(self, channel: Any, kind: str, **narrow: Any) -> Iterator[pa.Table]:
        return scan_parts(channel.core, kind, **narrow)

    def collection(
        self, name: str, key: str | None = None, indexes: dict[str, str] | None = None
    ) -> dict[str, Any]:
        if key is not None and name not in self._db.collections():
            self._db.collection(name, key=key, indexes=indexes)
        found = self._collection(name)
        if key not in (None, found.key):
            raise Conflict("the collection has another key", stored=found.key, given=key)
        return {
            "key": found.key, "indexes": found.indexes, "identity": found.identity,
            "position": found.position(), "earliest": found.earliest(),
        }  # fmt: skip

    def documents(
        self, name: str, *, where: str | None = None, low: str | None = None,
        high: str | None = None, limit: str | None = None,
    ) -> Iterator[pa.RecordBatch]:  # fmt: skip
        from tideline.documents.export import key_of  # loads what only collections need

        found = self._collection(name)
        condition = None if where is None else msgspec.json.decode(where)
        bounds = {"low": key_of(low), "high": key_of(high), "limit": key_of(limit)}
        for batch in found.scan(condition, **bounds):
            self._go_on()
            yield batch

    def cuts(self, name: str, parts: int) -> list[str]:
        return self._collection(name).cuts(parts)

    def changes(
        self, name: str, after: int, upto: int, before: bool = False
    ) -> Iterator[pa.RecordBatch]:
        from tideline.documents.export import changes_table

        yield from changes_table(self._collection(name), after, upto, before=before).to_batches()

    def window(self, name: str, settings: dict[str, Any] | None = None) -> dict[str, Any]:
        if settings is None:
            return self._window(name).settings
        if settings.get("max_ahead_s") == "never":
            settings = {**settings, "max_ahead_s": math.inf}
        return self._db.window(name, **settings).settings

    def panes(
        self, name: str, keys: Any = None, last_s: float | None = None, closed: bool = False
    ) -> Iterator[pa.RecordBatch]:
        yield from self._sliced(self._window(name).range(keys, last_s=last_s, closed=closed))

    def moment(
        self, name: str, keys: Any = None, last_s: float | None = None, closed: bool = False,
        parts: int = 0,
    ) -> tuple[str, list[list[Any]]]:  # fmt: skip
        return self._window(name).moment(keys, last_s=last_s, closed=closed, parts=parts)

    def part(
        self, name: str, moment: str, low: Any, high: Any, keys: Any = None,
        last_s: float | None = None, closed: bool = False,
    ) -> Iterator[pa.RecordBatch]:  # fmt: skip
        window = self._window(name)
        yield from self._sliced(
            window.part(moment, keys, low=low, high=high, last_s=last_s, closed=closed)
        )

    def _sliced(self, table: pa.Table) -> Iterator[pa.RecordBatch]:
        for batch in table.to_batches(max_chunksize=SLICE):
            self._go_on()
            yield batch

    # ---- writing ------------------------------------------------------------------------

    def stage(self, job: str, batches: Iterable[pa.RecordBatch], order: str = "time") -> str:
        return self._spool.stage(job, batches, order)

    def check(
        self, channel: str, tokens: Sequence[str], *, keep: str | None = None,
        arriving: Arriving = None,
    ) -> Landed:  # fmt: skip
        if arriving is not None:
            return self._arriving(channel, arriving).check(tokens, keep)
        return self._landing(channel).check(tokens, keep)

    def commit(
        self, channel: str, tokens: Sequence[str], *, once: Once | None = None,
        order: str = "time", keep: str | None = None, arriving: Arriving = None,
    ) -> Landed:  # fmt: skip
        if arriving is not None:
            return self._arriving(channel, arriving).commit(tokens, once=once, keep=keep)
        return self._landing(channel).commit(tokens, once=once, order=order, keep=keep)

    def loading(self, name: str, documents: bool) -> tuple[dict[str, Any], str]:
        loading, found = self._loading(name, documents)
        return msgspec.to_builtins(loading.recipe_of(found)), str(self._spool.folder)

    def adopt(
        self, name: str, documents: bool, recipe: dict[str, Any], pieces: list[dict[str, Any]]
    ) -> list[int]:
        loading, found = self._loading(name, documents)
        given = [msgspec.convert(piece, loading.Piece) for piece in pieces]
        root = self._spool.folder.resolve()
        for piece in given:
            if root not in Path(piece.folder).resolve().parents:
                raise InvalidRequest("a piece is not in the spool", folder=piece.folder)
        return list(loading.adopt(found, msgspec.convert(recipe, loading.Recipe), given))

    def _loading(self, name: str, documents: bool) -> tuple[Any, Channel | Collection]:
        """The module that loads in bulk, and what it loads into."""
        if documents:
            from tideline.documents import loading

            return loading, self._collection(name)
        from tideline.channel import loading as of_channels

        return of_channels, self._channel(name)

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

    def _arriving(self, name: str, how: dict[str, str | None]) -> DocumentLanding | WindowLanding:
        if how["op"] == "append":
            from tideline.stream.landing import Arriving as Appending

            return WindowLanding(Appending(self._window(name)), self._spool, self._go_on)
        from tideline.documents.landing import Arriving as Batch

        found = self._collection(name)
        op, version = how["op"] or "put", how["version"]
        Batch(found, op, version)  # refuses what it cannot be
        return DocumentLanding(
            lambda once: Batch(found, op, version, once), found._landing, self._spool, self._go_on
        )

    def _landing(self, name: str) -> Landing:
        return Landing(self._channel(name), self._spool, self._go_on)

    def _window(self, name: str) -> StreamWindow:
        names = self._db.windows()
        if name not in names:
            raise NotFound("no such window", name=name, windows=names)
        return self._db.window(name)

    def _collection(self, name: str) -> Collection:
        names = self._db.collections()
        if name not in names:
            raise NotFound("no such collection", name=name, collections=names)
        return self._db.collection(name)
