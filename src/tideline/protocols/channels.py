"""A channel, and a subscription to it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from tideline.clock import Seconds
from tideline.model import Applied, ChannelStats, Event, SubscriptionInfo, Told
from tideline.protocols.given import Body, Place, Where
from tideline.space import Space

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Channel", "Subscription"]


@runtime_checkable
class Subscription(Protocol):
    """A stored question, its past answers, and the stream of its live ones."""

    id: str
    user: str
    where: Where | None
    unseen: bool
    duplicate: bool
    """Whether the subscription was there already: the call was made twice."""

    @property
    def place(self) -> Any:
        """What is watched."""

    @property
    def since(self) -> datetime | None:
        """The window's start."""

    @property
    def until(self) -> datetime | None:
        """The window's limit; `None` for never."""

    @property
    def past(self) -> list[Event]:
        """What had already happened when it was made, in order of arrival."""

    @property
    def expired(self) -> bool:
        """Whether nothing new can come: expired, cancelled or closed."""

    def take(self, timeout_s: Seconds | None = None) -> list[Event]:
        """What arrived since the last take; waits up to `timeout_s` for the first."""

    def move(self, place: Place) -> None:
        """Watch another place from now on."""

    def cancel(self) -> None:
        """End the subscription. Cancelling one that has ended is allowed."""

    def __iter__(self) -> Iterator[Event]: ...


@runtime_checkable
class Channel(Protocol):
    """Events and subscriptions side by side."""

    @property
    def name(self) -> str:
        """What it is known by."""

    @property
    def space(self) -> Space:
        """How places relate."""

    @property
    def layout(self) -> str:
        """How it is stored: dual, two or poll."""

    @property
    def identity(self) -> str:
        """What tells it from every other, of the same name too."""

    @property
    def max_ahead_s(self) -> float:
        """How far ahead of the clock a row of a batch may be."""

    def publish(
        self, place: Place, body: Body, *, id: str | None = None, at: datetime | None = None,
        ttl_s: Seconds | None = None, until: datetime | None = None, related: bool = False,
        replace: bool = False,
    ) -> Told:  # fmt: skip
        """Store an event and return whom it answers.

        place: where it happened (`Place`). body: what is told (`Body`). id: makes a retry safe;
        one is made if there is none. at: when it happened, now by default. ttl_s, until: how long
        it is valid, for ever by default. related: also return the valid earlier events there.
        replace: end the valid event with this id, wherever it is.
        """

    def subscribe(
        self, place: Place, *, user: str, id: str | None = None, since_s: Seconds | None = None,
        since: datetime | None = None, until_s: Seconds | None = None,
        until: datetime | None = None, where: Where | None = None, unseen: bool = False,
        retractions: bool = False,
    ) -> Subscription:  # fmt: skip
        """Store a subscription; its `past` is there at once, what happens later is delivered.

        place: what is watched. user: whose it is. id: makes a retry safe. since_s, since: where the
        window begins, now by default; negative seconds are the past. until_s, until: where it
        ends, never by default. where: a condition on bodies. unseen: leave out what an earlier
        subscription of the user was answered with. retractions: be told when an event is retracted.
        """

    def retract(self, id: str) -> None:
        """End an event; `NotFound` if no valid one has this id."""

    def cancel(self, id: str) -> None:
        """End a subscription; `NotFound` if there is none (any more)."""

    def prolong(
        self, id: str, *, until_s: Seconds | None = None, until: datetime | None = None
    ) -> SubscriptionInfo:
        """Let a subscription's window end at another time, later or earlier."""

    def move(self, id: str, place: Place) -> SubscriptionInfo:
        """Have a subscription watch another place; its handle goes on."""

    def resume(
        self, id: str, after: str | None = None, *, retractions: bool = False
    ) -> Subscription:
        """A stored subscription given back, with what it missed.

        after: the token of the last event that was handled; all that is valid by default.
        """

    def get(self, id: str) -> Event | None:
        """The event with this id, if it is still valid."""

    def find(
        self, place: Place, *, since_s: Seconds | None = None, since: datetime | None = None,
        until_s: Seconds | None = None, until: datetime | None = None,
        where: Where | None = None, limit: int | None = None,
    ) -> list[Event]:  # fmt: skip
        """The valid events of a window, newest first, at most `limit`; stores nothing."""

    def subscriptions(
        self, user: str | None = None, *, limit: int | None = None, after: str | None = None
    ) -> list[SubscriptionInfo]:
        """The live subscriptions, in order of arrival, at most `limit` `after` a cursor."""

    def subscription(self, id: str) -> SubscriptionInfo:
        """One live subscription; `NotFound` if there is none with this id (any more)."""

    def apply(self, table: pa.Table, *, once: tuple[str, int] | None = None) -> Applied:
        """Run a table of operations in order; `once=(writer, number)` makes a retry safe."""

    def landed(self, writer: str, number: int) -> int | None:
        """How many rows of a writer's batch have landed by `apply`; None when it is done with."""

    def scan(
        self, kind: str, *, place: Place | None = None, since: datetime | None = None,
        until: datetime | None = None, where: Where | None = None,
    ) -> pa.Table:  # fmt: skip
        """The valid "events", or the live "subscriptions", as a table."""

    def times_between(self, parts: int) -> list[datetime]:
        """Times that cut the valid events into about so many parts."""

    def journal(
        self, kind: str, *, after: str | None = None, upto: str | None = None,
        limit: int = 1_000_000,
    ) -> tuple[pa.Table, str]:  # fmt: skip
        """What was written after a position, and the position reached."""

    def position(self) -> str:
        """Where the journal ends now."""

    def earliest(self) -> str:
        """The earliest position that the journal still reaches back to."""

    def stats(self) -> ChannelStats:
        """What the channel holds now and has done since it was made."""
