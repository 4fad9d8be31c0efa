"""How the subscriptions of a channel are kept: the interface that its layouts implement.

    StoredSubscriptions (stored.py)   layouts `dual` and `two`: records beside the events
    PolledSubscriptions (poll.py)     layout `poll`, the baseline: handles that ask again

Arguments that are the same for both are checked by `Channel`. Each method takes the engine's lock
itself, unless it says that the lock is held.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Protocol

import pyarrow as pa

from tideline.channel.batch import Admit
from tideline.channel.resume import After
from tideline.channel.subscription import Source, Subscription
from tideline.clock import Seconds
from tideline.model import Applied, SubscriptionInfo
from tideline.space.place import Place
from tideline.where import Condition

__all__ = ["Subscriptions"]


class Subscriptions(Source, Protocol):
    """The subscriptions of one channel."""

    def subscribe(
        self, encoded: Place, place: Any, owner: bytes, ident: bytes, condition: Condition,
        where: dict[str, Any] | None, unseen: bool, since_s: Seconds | None,
        since: datetime | None, until_s: Seconds | None, until: datetime | None,
        retractions: bool,
    ) -> Subscription:  # fmt: skip
        """Make a subscription: what has happened at once, what happens later delivered.

        `condition` is what `where`, as the user gave it, says.
        """

    def cancel(self, ident: bytes) -> None:
        """End a subscription; `NotFound` if there is none (any more)."""

    def prolong(
        self, ident: bytes, until_s: Seconds | None, until: datetime | None
    ) -> SubscriptionInfo:
        """Move the end of a subscription's window."""

    def move(self, ident: bytes, place: Place) -> SubscriptionInfo:
        """Have a subscription watch another place."""

    def get(self, ident: bytes) -> SubscriptionInfo:
        """One live subscription; `NotFound` if there is none (any more)."""

    def resume(self, ident: bytes, after: After, retractions: bool) -> Subscription:
        """A subscription given back, with what it missed."""

    def apply(
        self, table: pa.Table, once: tuple[str, int] | None, admit: Admit | None
    ) -> Applied:  # fmt: skip
        """Run a table of operations."""

    def check_listed(self, kind: str) -> None:
        """`InvalidRequest` when records of a kind are not kept."""

    def before_write(self, now: int) -> None:
        """An event is about to be stored at `now` (the lock is held)."""

    def wake_at(self, handle: Subscription) -> int:
        """When a waiting handle must look again."""

    def let_go(self, handle: Subscription) -> None:
        """Stop feeding a handle; what is stored stays stored."""

    def leave_to_parent(self) -> None:
        """In a forked child: nobody is fed any more."""

    def close(self) -> None:
        """The channel closes."""
