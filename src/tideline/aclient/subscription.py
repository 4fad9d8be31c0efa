"""A subscription as the user of an async client holds it.

    live connection --deliver--> inbox --> await take(), async for ...

What `client/subscription.py` says of a handle holds here too: the server's clock counts, `take` and
`expired` ask the server, one round trip, and iteration raises when the server refuses to go on.
Several tasks share one queue: each event goes to one of them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

from tideline.channel.checks import wait_us
from tideline.channel.inbox import Inbox
from tideline.client.wire import WireSubscription, info_of
from tideline.clock import FOREVER, SECOND, WAIT_S, Seconds, from_us
from tideline.errors import NotFound, TidelineError
from tideline.lsm.bell import LoopBell
from tideline.model import Event
from tideline.protocols import Place

if TYPE_CHECKING:
    from tideline.aclient.live import AsyncLive

__all__ = ["AsyncRemoteSubscription"]


class AsyncRemoteSubscription:
    """A stored question, its past answers, and the stream of its live ones."""

    def __init__(
        self, channel: Any, live: AsyncLive, wire: WireSubscription, past: list[Event]
    ) -> None:
        info = info_of(wire)
        self.id = info.id
        self.user = info.user
        self.place = info.place
        self.where = info.where
        self.unseen = info.unseen
        self.since_us = info.since_us
        self.until_us = info.until_us
        self.duplicate = wire.duplicate
        self.past = past
        """What had already happened when the subscription was made, in order of arrival."""
        self.inbox = Inbox(0)
        self.feed: Any = None
        """Where it comes from, on the live connection."""
        self._channel = channel
        self._live = live
        self._error: TidelineError | None = None

    @property
    def since(self) -> datetime | None:
        """The window's start."""
        return from_us(self.since_us)

    @property
    def until(self) -> datetime | None:
        """The window's limit; `None` for never."""
        return from_us(self.until_us)

    async def expired(self) -> bool:
        """Whether nothing new can come: expired, cancelled or closed."""
        if self.inbox.ended or self.until_us >= FOREVER:
            return bool(self.inbox.ended)
        return await self._live.sync() >= self.until_us or bool(self.inbox.ended)

    async def take(self, timeout_s: Seconds | None = None) -> list[Event]:
        """What arrived since the last take, in order.

        Asks the server first: what it had answered before this call is there. `Unavailable`
        when it cannot be reached in time; nothing is lost by that, ask again.

        timeout_s: how long to wait for at least one event. Nothing when none came in that time, or
            when the subscription ended. Without it: no waiting.
        """
        wait_s = wait_us(timeout_s) / SECOND
        self._live.check_open()
        if not self.inbox.ended:
            await self._live.sync()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                while not self.inbox.arrived and not self.inbox.ended and wait_s:
                    await self._rung()
        self._live.check_open()
        events = self.inbox.take()
        if not events and self._error is not None:
            raise self._error
        return events

    async def move(self, place: Place) -> None:
        """Watch another place from now on; the window, the condition and the queue stay.

        What is valid at the new place and was no answer before has arrived when this returns.
        """
        self._live.check_open()
        if self.inbox.ended:
            raise NotFound("the subscription has ended", id=self.id)
        await self._channel.move(self.id, place)

    async def cancel(self) -> None:
        """End the subscription. Cancelling one that has ended is allowed."""
        await self._live.cancel(self)

    async def __aiter__(self) -> AsyncIterator[Event]:
        while True:
            event = self.inbox.first()
            if event is not None:
                yield event
            elif self._error is not None:
                raise self._error
            elif self.inbox.ended:
                return
            else:
                await self._rung()

    async def _rung(self) -> None:
        """Wait for an event, or the end; both come in this loop."""
        bell = LoopBell()
        with self.inbox.hung(bell):
            await bell.rung(WAIT_S)

    def fail(self, reason: str, error: TidelineError | None) -> None:
        """End, and raise the error to whoever asks for more."""
        self._error = error
        self.inbox.end(reason)

    def __repr__(self) -> str:
        return f"AsyncRemoteSubscription(id={self.id!r}, user={self.user!r}, place={self.place!r})"
