"""What Spark needs of a store, wherever the store is.

    Client          the interface: read, write, stage, follow
    Local           on a database this process has open (local.py)
    GateClient      through the gate of the process that has it open (remote.py)
    connect(path)   a client for the path that a user gave

Readers and writers know this interface and nothing else, so a store behind a network needs
one more class and no change to them.

Writing in two steps: tasks `stage` their rows in parallel, each gets a token; one `commit`
then applies all of them, in order of time. Rows that were staged and not committed are
nothing: they are gone when the store is closed.

At most once: `once` is a writer's name and the number of its batch. The numbers of a writer
rise; a batch that has landed changes nothing when it comes again, and one that landed in
part goes on where it stopped.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

import msgspec
import pyarrow as pa

__all__ = ["KINDS", "ORDERS", "Client", "Facts", "Landed", "Once", "Pushed", "connect"]

KINDS = ("events", "subscriptions", "answers")
ORDERS = ("time", "arrival")

Once = tuple[str, int]
"""A writer and the number of its batch."""

Pushed = tuple[str, str, Any]
"""A column, a comparison and a value: a test that rows must meet (pushed.py)."""


class Facts(msgspec.Struct, frozen=True):
    """What a channel is."""

    space: dict[str, Any]
    layout: str
    identity: str
    """What tells this channel from every other, of the same name too."""


class Landed(msgspec.Struct, frozen=True):
    """What became of rows that were written."""

    rows: int = 0
    """Rows given, good and bad."""
    answers: int = 0
    rejected: int = 0
    reasons: list[str] = msgspec.field(default_factory=list)
    """The first few reasons why rows were rejected."""
    repeated: int = 0
    """How many of the rows had landed before."""
    token: str | None = None
    """Where the rejected rows are staged, with their reasons, if they were asked for."""


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
        until: int | None = None, where: str | None = None, pushed: Sequence[Pushed] = (),
    ) -> Iterator[pa.RecordBatch]:  # fmt: skip
        """What is valid now: events or subscriptions."""
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

    def check(self, channel: str, tokens: Sequence[str], *, keep: str | None = None) -> Landed:
        """What is wrong with staged rows, without applying them.

        With `keep`, the name of a job, the bad rows are staged with the column `reason`.
        """
        ...

    def commit(
        self, channel: str, tokens: Sequence[str], *, once: Once | None = None,
        order: str = "time", keep: str | None = None,
    ) -> Landed:  # fmt: skip
        """Apply staged rows as one sequence."""
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


def connect(path: str | os.PathLike[str]) -> Client:
    """A client for a store's folder, which some process has opened and shared."""
    from tideline.spark.remote import GateClient

    return GateClient(path)
