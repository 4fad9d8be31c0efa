"""A subscription as the user of a client holds it.

The same object as in a database (channel/subscription.py), fed by the live connection's reader
(live.py) instead of by the channel. What is different:

- it ends when the server says so: the server's clock counts;
- `take` and `expired` ask the server, one round trip, so that what was published before the
  call is there, as it is in a database;
- iteration raises when the server refuses to go on: a token that was revoked, say.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tideline.channel.checks import wait_us
from tideline.channel.subscription import Subscription
from tideline.client.blocking import run
from tideline.clock import FOREVER, SECOND, WAIT_S, Seconds
from tideline.errors import NotFound, TidelineError
from tideline.lsm.bell import Bell
from tideline.model import Event
from tideline.protocols import Place

if TYPE_CHECKING:
    from tideline.client.live import Live

__all__ = ["RemoteSubscription"]


class RemoteSubscription(Subscription):
    """A stored question, its past answers, and the stream of its live ones."""

    __slots__ = ("_channel", "_check_open", "_error", "_live", "feed")

    def __init__(
        self, channel: Any, check_open: Callable[[], None], live: Live, id: str, user: str,
        place: Any, since_us: int, until_us: int, where: dict[str, Any] | None, unseen: bool,
        past: list[Event],
    ) -> None:  # fmt: skip
        source: Any = None  # whatever asks it is replaced below
        super().__init__(source, id, user, place, since_us, until_us, where, unseen, 0, None)
        self._past = past
        self._channel = channel
        self._check_open = check_open
        self._live = live
        self.feed: Any = None
        """Where it comes from, on the live connection (live.py)."""
        self._error: TidelineError | None = None

    @property
    def expired(self) -> bool:
        """Whether nothing new can come: expired, cancelled or closed."""
        if self.inbox.ended or self.until_us >= FOREVER:
            return bool(self.inbox.ended)
        return self._live.sync() >= self.until_us or bool(self.inbox.ended)

    def take(self, timeout_s: Seconds | None = None) -> list[Event]:
        """What arrived since the last take, in order.

        Asks the server first: what it had answered before this call is there. `Unavailable`
        when it cannot be reached in time; nothing is lost by that, ask again.

        timeout_s: how long to wait for at least one event, by this machine's clock. Nothing when
            none came in that time, or when the subscription ended. Without it: no waiting.
        """
        wait_s = wait_us(timeout_s) / SECOND
        limit = time.monotonic() + wait_s
        events = self._taken()
        while not events and wait_s > 0 and not self.inbox.ended:
            bell = Bell()
            with self.inbox.hung(bell):
                if not self.inbox.arrived and not self._over():
                    bell.wait(min(max(wait_s, 0.0), WAIT_S))
            self._check_open()
            events = self._arrived()
            wait_s = limit - time.monotonic()
        return events

    def _taken(self) -> list[Event]:
        self._check_open()
        if not self.inbox.ended:
            self._live.sync()
        return self._arrived()

    def _arrived(self) -> list[Event]:
        with self._live.feeding:
            events = self.inbox.take()
        if not events and self._error is not None:
            raise self._error
        return events

    def move(self, place: Place) -> None:
        """Watch another place from now on; the window, the condition and the queue stay.

        What is valid at the new place and was no answer before has arrived when this returns.
        """
        self._check_open()
        if self.inbox.ended:
            raise NotFound("the subscription has ended", id=self.id)
        run(self._channel.move(self.id, place))

    def cancel(self) -> None:
        """End the subscription. Cancelling one that has ended is allowed."""
        self._live.cancel(self)

    def follow(
        self, deliver: Callable[[Sequence[Event], str], None],
        ended: Callable[[str], None] | None = None,
    ) -> None:  # fmt: skip
        """Have answers handed to a function from now on, instead of to `take` and iteration.

        As in a database; here it is called by the thread that reads the live connection, so
        it must not call the client, and all subscriptions wait while it runs.
        """
        self._live.followed = True
        if self.past:
            deliver(self.past, "past")
        with self._live.feeding:
            self.inbox.follow(deliver, ended)
        if self.inbox.ended:
            self.inbox.tell_end()

    def _look(self) -> None:
        """Everything comes by itself."""

    def _over(self) -> bool:
        if self._error is not None:
            raise self._error
        return bool(self.inbox.ended)

    def _wait(self, bell: Bell) -> None:
        bell.wait(WAIT_S)

    def _alarm(self) -> None:
        """The end comes from the server, no clock is watched."""

    def fail(self, reason: str, error: TidelineError | None) -> None:
        """End, and raise the error to whoever asks for more."""
        self._error = error
        self.inbox.end(reason)
