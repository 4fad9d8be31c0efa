"""What Spark needs of a store, wherever the store is.

    Client          the interface: read, write, stage, follow
    Local           on a database this process has open (local.py)
    GateClient      through the gate of the process that has it open (remote.py)
    HttpClient      on a server, by its address (http.py)
    connect(...)    a client for the folder or the address that a user gave

Readers and writers know this interface and nothing else.

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
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast

import msgspec
import pyarrow as pa

from tideline.channel.landed import Landed, Once

if TYPE_CHECKING:
    from tideline.spark.options import Target

__all__ = [
    "CALLS", "KINDS", "ORDERS", "STREAMS", "Arriving", "Client", "Facts", "Landed", "Once",
    "connect",
]  # fmt: skip

KINDS = ("events", "subscriptions", "answers")
ORDERS = ("time", "arrival")


Arriving = dict[str, str | None] | None
"""What rows for a collection are: `op` and `version` (documents/landing.py). For a stream window:
`op` is "append"."""


class Facts(msgspec.Struct, frozen=True):
    """What a channel is."""

    space: dict[str, Any]
    layout: str
    identity: str
    """What tells this channel from every other, of the same name too."""


class Client(Protocol):
    """A store, as Spark's readers and writers see it. One thread at a time."""

    def describe(self, channel: str) -> Facts:
        """What the channel is; `NotFound` when there is none."""
        ...

    def create(self, channel: str, space: dict[str, Any]) -> None:
        """Make a channel if there is none; `Conflict` when there is one of another space."""
        ...

    def scan(
        self, channel: str, kind: str, *, place: str | None = None, since: int | None = None,
        until: int | None = None, where: str | None = None,
    ) -> Iterator[pa.RecordBatch]:  # fmt: skip
        """What is valid now: events or subscriptions."""
        ...

    def times(self, channel: str, parts: int) -> list[int]:
        """Times that cut the events into about so many parts."""
        ...

    def collection(
        self, name: str, key: str | None = None, indexes: dict[str, str] | None = None
    ) -> dict[str, Any]:
        """What a collection is: key, indexes, identity, position, earliest.

        With `key` it is made if there is none.
        """
        ...

    def documents(
        self, name: str, *, where: str | None = None, low: str | None = None,
        high: str | None = None, limit: str | None = None,
    ) -> Iterator[pa.RecordBatch]:  # fmt: skip
        """The documents with a key from `low` on, up to `high` or before `limit`."""
        ...

    def cuts(self, name: str, parts: int) -> list[str]:
        """Keys that cut a collection into about so many parts of one size."""
        ...

    def changes(
        self, name: str, after: int, upto: int, before: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """What was written to a collection with a seq in (after, upto]."""
        ...

    def window(self, name: str, settings: dict[str, Any] | None = None) -> dict[str, Any]:
        """The settings of a stream window; with some it is made if there is none."""
        ...

    def panes(
        self, name: str, keys: Any = None, last_s: float | None = None, closed: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a stream window: `StreamWindow.range`."""
        ...

    def position(self, channel: str) -> str:
        """Where the journal ends now."""
        ...

    def earliest(self, channel: str, kind: str) -> str:
        """Where the journal begins; `InvalidRequest` when the channel does not keep one."""
        ...

    def reach(self, channel: str, kind: str, after: str, upto: str, limit: int) -> str:
        """The position after about `limit` rows from `after` on, at most `upto`."""
        ...

    def journal(self, channel: str, kind: str, after: str, upto: str) -> Iterator[pa.RecordBatch]:
        """What was written after one position, up to another."""
        ...

    def apply(
        self, channel: str, tables: Iterable[pa.Table | pa.RecordBatch],
        once: Once | None = None,
    ) -> Landed:  # fmt: skip
        """Run operations in the order given."""
        ...

    def stage(self, job: str, batches: Iterable[pa.RecordBatch], order: str = "time") -> str:
        """Put rows aside for a later `commit`; a token for them. `job` names who cleans up."""
        ...

    def check(
        self, channel: str, tokens: Sequence[str], *, keep: str | None = None,
        arriving: Arriving = None,
    ) -> Landed:  # fmt: skip
        """What is wrong with staged rows, without applying them.

        With `keep`, the name of a job, the bad rows are staged with the column `reason`. With
        `arriving` they are for the collection or window of this name.
        """
        ...

    def commit(
        self, channel: str, tokens: Sequence[str], *, once: Once | None = None,
        order: str = "time", keep: str | None = None, arriving: Arriving = None,
    ) -> Landed:  # fmt: skip
        """Apply staged rows as one sequence."""
        ...

    def loading(self, name: str, documents: bool) -> tuple[dict[str, Any], str]:
        """How components of a channel or collection are made, and the folder for them."""
        ...

    def adopt(
        self, name: str, documents: bool, recipe: dict[str, Any], pieces: list[dict[str, Any]]
    ) -> list[int]:
        """Make finished components part of it; the first and the last seq."""
        ...

    def fetch(self, token: str) -> Iterator[pa.RecordBatch]:
        """Staged rows, as they are."""
        ...

    def discard(self, job: str, over: bool = False) -> None:
        """Remove what a job staged; `over`: also what it stages later."""
        ...

    def close(self) -> None:
        """Let go; closing twice is allowed."""
        ...


CALLS: dict[str, Any] = {
    "adopt": list[int], "apply": Landed, "check": Landed, "collection": dict[str, Any],
    "commit": Landed, "create": None, "cuts": list[str], "describe": Facts, "earliest": str,
    "loading": tuple[dict[str, Any], str], "position": str, "reach": str, "times": list[int],
    "window": dict[str, Any],
}  # fmt: skip
"""The calls that go through a gate, with what each gives."""
STREAMS = frozenset(["changes", "documents", "journal", "panes", "scan"])
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
