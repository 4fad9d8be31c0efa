"""What Spark needs of a store, wherever the store is.

    Client          the interface: read, write, stage, follow
    Local           on a database this process has open (local.py)
    GateClient      through the gate of the process that has it open (remote.py)
    HttpClient      on a server, by its address (http.py)
    connect(...)    a client for the folder or the address that a user gave

Readers and writers know this interface and nothing else. `Channel` and `RemoteChannel` have the
same verbs, so a channel is read here, whichever it is; a subclass says how to get one.

Writing in two steps: tasks `stage` their rows in parallel, each gets a token; one `commit`
then applies all of them, in order of time. Rows that were staged and not committed are
nothing: they are gone when the store is closed.

At most once: `once` is a writer's name and the number of its batch. The numbers of a writer
rise; a batch that has landed changes nothing when it comes again, and one that landed in
part goes on where it stopped.
"""

from __future__ import annotations

import os
import socket
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

import msgspec
import pyarrow as pa

from tideline.channel.landed import Landed, Once
from tideline.channel.spool import SLICE
from tideline.clock import from_us, to_us
from tideline.space import space_from_spec
from tideline.space.plain import from_text

if TYPE_CHECKING:
    from tideline.spark.options import Target

__all__ = [
    "CALLS", "KINDS", "ORDERS", "STREAMS", "Arriving", "Client", "Facts", "Landed", "Once",
    "connect",
]  # fmt: skip

KINDS = ("events", "subscriptions", "answers")
ORDERS = ("time", "arrival")
_PAGE = 100_000  # rows of the journal that are read at a time

Arriving = dict[str, str | None] | None
"""What rows for a collection are: `op` and `version` (documents/landing.py). For a stream window:
`op` is "append"."""


class Facts(msgspec.Struct, frozen=True):
    """What a channel is."""

    space: dict[str, Any]
    layout: str
    identity: str
    """What tells this channel from every other, of the same name too."""


class Client(ABC):
    """A store, as Spark's readers and writers see it. One thread at a time."""

    _store: Any
    """A `Database` or a `Remote`."""

    @abstractmethod
    def _channel(self, name: str) -> Any:
        """The channel, or `NotFound`."""

    def _go_on(self) -> None:  # noqa: B027 - a hook: most have no reason to end
        """Called between steps of what takes many; raises to end it."""

    # ---- channels -----------------------------------------------------------------------

    def describe(self, channel: str) -> Facts:
        """What the channel is; `NotFound` when there is none."""
        found = self._channel(channel)
        return Facts(found.space.spec(), found.layout, found.identity)

    def create(self, channel: str, space: dict[str, Any]) -> None:
        """Make a channel if there is none; `Conflict` when there is one of another space."""
        self._store.channel(channel, space=space_from_spec(space))

    def scan(
        self, channel: str, kind: str, *, place: str | None = None, since: int | None = None,
        until: int | None = None, where: str | None = None,
    ) -> Iterator[pa.RecordBatch]:  # fmt: skip
        """What is valid now: events or subscriptions."""
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

    def times(self, channel: str, parts: int) -> list[int]:
        """Times that cut the events into about so many parts."""
        return [to_us(time, "time") for time in self._channel(channel).times_between(parts)]

    def position(self, channel: str) -> str:
        """Where the journal ends now."""
        return str(self._channel(channel).position())

    def earliest(self, channel: str, kind: str) -> str:
        """Where the journal begins; `InvalidRequest` when the channel does not keep one."""
        found = self._channel(channel)
        end = found.position()
        found.journal(kind, after=end, upto=end, limit=1)  # refuses a kind that is not kept
        return str(found.earliest())

    def reach(self, channel: str, kind: str, after: str, upto: str, limit: int) -> str:
        """The position after about `limit` rows from `after` on, at most `upto`."""
        _, reached = self._channel(channel).journal(kind, after=after, upto=upto, limit=limit)
        return str(reached)

    def journal(self, channel: str, kind: str, after: str, upto: str) -> Iterator[pa.RecordBatch]:
        """What was written after one position, up to another."""
        found = self._channel(channel)
        while after != upto:
            self._go_on()
            table, reached = found.journal(kind, after=after, upto=upto, limit=_PAGE)
            yield from table.to_batches(max_chunksize=SLICE)
            if reached == after:
                return
            after = reached

    # ---- collections --------------------------------------------------------------------

    @abstractmethod
    def collection(
        self, name: str, key: str | None = None, indexes: dict[str, str] | None = None
    ) -> dict[str, Any]:
        """What a collection is: key, indexes, identity, position, earliest.

        With `key` it is made if there is none.
        """

    @abstractmethod
    def documents(
        self, name: str, *, where: str | None = None, low: str | None = None,
        high: str | None = None, limit: str | None = None,
    ) -> Iterator[pa.RecordBatch]:  # fmt: skip
        """The documents with a key from `low` on, up to `high` or before `limit`."""

    @abstractmethod
    def cuts(self, name: str, parts: int) -> list[str]:
        """Keys that cut a collection into about so many parts of one size."""

    @abstractmethod
    def changes(
        self, name: str, after: int, upto: int, before: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """What was written to a collection with a seq in (after, upto]."""

    # ---- stream windows -----------------------------------------------------------------

    @abstractmethod
    def window(self, name: str, settings: dict[str, Any] | None = None) -> dict[str, Any]:
        """The settings of a stream window; with some it is made if there is none."""

    @abstractmethod
    def panes(
        self, name: str, keys: Any = None, last_s: float | None = None, closed: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a stream window: `StreamWindow.range`."""

    @abstractmethod
    def moment(
        self, name: str, keys: Any = None, last_s: float | None = None, closed: bool = False,
        parts: int = 0,
    ) -> tuple[str, list[list[Any]]]:  # fmt: skip
        """What names the rows there are now, and keys that cut them: `StreamWindow.moment`."""

    @abstractmethod
    def part(
        self, name: str, moment: str, low: Any, high: Any, keys: Any = None,
        last_s: float | None = None, closed: bool = False,
    ) -> Iterator[pa.RecordBatch]:  # fmt: skip
        """The rows of a moment with keys in [low, high): `StreamWindow.part`."""

    # ---- writing ------------------------------------------------------------------------

    @abstractmethod
    def stage(self, job: str, batches: Iterable[pa.RecordBatch], order: str = "time") -> str:
        """Put rows aside for a later `commit`; a token for them. `job` names who cleans up."""

    @abstractmethod
    def check(
        self, channel: str, tokens: Sequence[str], *, keep: str | None = None,
        arriving: Arriving = None,
    ) -> Landed:  # fmt: skip
        """What is wrong with staged rows, without applying them.

        With `keep`, the name of a job, the bad rows are staged with the column `reason`. With
        `arriving` they are for the collection or window of this name.
        """

    @abstractmethod
    def commit(
        self, channel: str, tokens: Sequence[str], *, once: Once | None = None,
        order: str = "time", keep: str | None = None, arriving: Arriving = None,
    ) -> Landed:  # fmt: skip
        """Apply staged rows as one sequence."""

    @abstractmethod
    def loading(self, name: str, documents: bool) -> tuple[dict[str, Any], str]:
        """How components of a channel or collection are made, and the folder for them."""

    def adopt(
        self, name: str, documents: bool, recipe: dict[str, Any], pieces: list[dict[str, Any]]
    ) -> list[int]:
        """Make finished components part of it; the first and the last seq."""
        raise NotImplementedError  # who has no folder has refused `loading`

    @abstractmethod
    def fetch(self, token: str) -> Iterator[pa.RecordBatch]:
        """Staged rows, as they are."""

    @abstractmethod
    def discard(self, job: str, over: bool = False) -> None:
        """Remove what a job staged; `over`: also what it stages later."""

    @abstractmethod
    def close(self) -> None:
        """Let go; closing twice is allowed."""


CALLS: dict[str, Any] = {
    "adopt": list[int], "check": Landed, "collection": dict[str, Any],
    "commit": Landed, "create": None, "cuts": list[str], "describe": Facts, "earliest": str,
    "loading": tuple[dict[str, Any], str], "moment": tuple[str, list[list[Any]]], "position": str,
    "reach": str, "times": list[int], "window": dict[str, Any],
}  # fmt: skip
"""The calls that go through a gate, with what each gives."""
STREAMS = frozenset(["changes", "documents", "journal", "panes", "part", "scan"])
"""Those that give batches."""


def connect(where: str | os.PathLike[str] | Target) -> Client:
    """A client for a store's folder, or for a server.

    Some process has opened the folder and shares it; if nobody has it open, it is opened on the
    machine where Spark planned the work (keeper.py).
    """
    from tideline.spark.options import Target

    found = where if isinstance(where, Target) else Target(os.fspath(where), "")
    if found.is_url:
        from tideline.spark.http import HttpClient

        return HttpClient(found.path, found.token, found.channel, found.what)
    from tideline.spark.remote import GateClient

    return cast(Client, GateClient(found.path, opens=found.host == socket.gethostname()))
