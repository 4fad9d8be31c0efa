"""A stored subscription, delivered to a connection.

    channel --follow--> Stream --add--> Outbox --> WebSocket or event stream

The past goes first, then what is live, in order; the channel's own lock joins the two, so nothing
falls between them and nothing comes twice. A stream remembers the token of the last event that was
handed to its socket: that is where a reader who was too slow resumes.

A stream ends once: when its subscription expires (by the database's clock), is cancelled, is
replaced by a resume elsewhere, when the reader lets go of it, or when the database closes.

Threads: `deliver` and `ended` are called by publishers; the rest on the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from tideline.clock import FOREVER
from tideline.model import Event
from tideline.server.alarm import Alarm
from tideline.server.outbox import Outbox, Wires

__all__ = ["Stream"]

_PATIENCE_S = 0.02  # how long the loop waits for a channel


class Stream:
    """One subscription on one connection."""

    __slots__ = (
        "__weakref__", "_alarm", "_armed", "_over", "channel", "handle", "on_end", "outbox",
        "prefix", "token", "wires",
    )  # fmt: skip

    def __init__(
        self, channel: Any, handle: Any, outbox: Outbox, wires: Wires, alarm: Alarm,
        *, prefix: bytes, token: str | None, on_end: Callable[[Stream, str], None],
    ) -> None:  # fmt: skip
        self.channel = channel
        self.handle = handle
        self.outbox = outbox
        self.wires = wires
        self.prefix = prefix
        self.token = token
        self.on_end = on_end
        self._alarm = alarm
        self._armed = FOREVER  # when the alarm will ring
        self._over = False

    def start(self) -> None:
        """Begin to deliver; call it on the loop, once."""
        self.attach()
        self.attached()

    def attach(self) -> None:
        """The part of `start` that waits for the channel (any thread)."""
        self.handle.follow(self._deliver, self._ended)

    def attached(self) -> None:
        """The rest of it."""
        self._set_alarm()

    def stop(self) -> None:
        """Deliver no more; the subscription stays stored."""
        self._over = True
        self.handle.unfollow()
        self.channel.core.subscriptions.let_go(self.handle)

    def sent(self, token: str | None) -> None:
        """An event was handed to the socket. Tokens rise: this is where to resume."""
        if token is not None:
            self.token = token

    def look(self) -> None:
        """Notice what the clock brought: the end of the window, or a poll that is due."""
        if self._over:
            return
        channel, handle = self.channel, self.handle
        channel.core.subscriptions.look(handle)
        if not handle.expired:
            self._set_alarm()
            return
        # Whoever publishes holds the lock and reads the clock under it: when it is free again,
        # everything that could still answer this subscription is in the outbox.
        if not channel.core.engine.lock.acquire(timeout=_PATIENCE_S):
            asyncio.get_running_loop().call_later(_PATIENCE_S, self.look)  # it takes long
            return
        channel.core.engine.lock.release()
        self._finish("expired")

    def _set_alarm(self) -> None:
        time_us = self.channel.core.subscriptions.wake_at(self.handle)
        if time_us < self._armed:
            self._armed = time_us
            self._alarm.at(time_us, self)

    def ring(self) -> None:
        """The alarm: it is the time it was set to."""
        self._armed = FOREVER
        self.look()

    def _deliver(self, events: Sequence[Event], kind: str) -> None:
        if kind == "past":
            self.outbox.add_past(self, events)
            return
        prefix, outbox, wires = self.prefix, self.outbox, self.wires
        for event in events:
            wire = wires.of(event)
            outbox.add(self, wire, len(prefix) + len(wire.data))

    def _ended(self, reason: str) -> None:
        self._finish(reason)

    def _finish(self, reason: str) -> None:
        if not self._over:
            self._over = True
            self.handle.unfollow()
            self.on_end(self, reason)
