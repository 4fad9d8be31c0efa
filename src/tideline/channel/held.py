"""The inbox of a subscription in a cluster: what arrives waits until a majority has it.

    channel --deliver--> held by the log --a majority has it--> Inbox.deliver

So nobody is told of an event that could still be lost with the machine that took it. Deliveries
stay in order: the log holds them in the order of its frames (lsm/sharedlog.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from tideline.channel.inbox import Inbox
from tideline.lsm.sharedlog import SharedLog
from tideline.model import Event

__all__ = ["HeldInbox"]


class HeldInbox(Inbox):
    """`Inbox`, which hands out what is committed."""

    __slots__ = ("_log",)

    def __init__(self, number: int, log: SharedLog) -> None:
        super().__init__(number)
        self._log = log

    def deliver(self, events: list[Event], number: int | None = None) -> None:
        """Hand out events once a majority has them."""
        self._log.hold(partial(Inbox.deliver, self, events, number))

    def follow(
        self, deliver: Callable[[Sequence[Event], str], None], ended: Callable[[str], None] | None
    ) -> None:
        """Have what arrives handed to a function; what has arrived goes there first."""
        with self._log.telling:
            super().follow(deliver, ended)
