"""What the live connection keeps track of: subscriptions, and callers that wait for a reply.

`Live` (live.py) owns these and says which thread may touch what.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from websockets.exceptions import ConnectionClosed, InvalidStatus

from tideline.client.wire import WireSubscription, error_of, raise_error
from tideline.errors import TidelineError
from tideline.model import Event

__all__ = ["Again", "Call", "Feed", "Lost", "Make", "refusal", "rest_s", "told"]

_REFUSED = {4401: 401, 4403: 403}  # close codes: trying again is no use

# The handle of a subscription, of a client that blocks or of one that waits (aclient/).
Make = Callable[[WireSubscription, list[Event]], Any]


class Lost(Exception):
    """The connection broke before the reply."""


class Again(Exception):
    """Give this connection up and make another."""


class Call:
    """Somebody waits for a reply."""

    __slots__ = ("done", "error", "make", "past", "result", "subscribed")

    def __init__(self, make: Make | None = None) -> None:
        self.make = make
        self.subscribed: WireSubscription | None = None
        self.past: list[Event] = []
        self.result: Any = None
        self.error: Exception | None = None
        self.done = threading.Event()

    def finish(self, result: Any = None, error: Exception | None = None) -> None:
        self.result, self.error = result, error
        self.done.set()


class Feed:
    """A subscription on the connection."""

    __slots__ = (
        "after", "call", "channel", "handle", "id", "rested", "resuming", "retractions",
        "tag",
    )  # fmt: skip

    def __init__(self, channel: str, id: str, after: str | None, call: Call) -> None:
        self.channel = channel
        self.id = id
        self.after = after
        self.tag = 0
        self.retractions = False
        """Whether it is told of events that are retracted."""
        self.call: Call | None = call
        self.resuming = False
        self.rested = False
        """Whether resuming it was over the server's rate, and is asked for again."""
        self.handle: Callable[[], Any] = lambda: None


def told(error: Exception) -> TidelineError | None:
    """What the server said when it refused a connection; None when it said nothing."""
    if isinstance(error, InvalidStatus):
        try:
            raise_error(error.response.status_code, bytes(error.response.body or b""))
        except TidelineError as said:
            return said
    return None


def rest_s(error: Exception) -> float | None:
    """How long the server wants to be left alone, if an error says so."""
    said = error if isinstance(error, TidelineError) else told(error)
    found = None if said is None else said.values.get("retry_after_s")
    return None if found is None else float(found)


def refusal(error: Exception) -> TidelineError | None:
    """What the server said, if it will say so again: a wrong token, a scope that is missing."""
    if isinstance(error, InvalidStatus) and error.response.status_code in (401, 403):
        return told(error)
    if isinstance(error, ConnectionClosed) and error.rcvd and error.rcvd.code in _REFUSED:
        return error_of("", error.rcvd.reason or "the token is refused", _REFUSED[error.rcvd.code])
    return None
