"""What the live connection keeps track of: subscriptions, and callers that wait for a reply.

`Live` (live.py) owns these and says which thread may touch what.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

from websockets.exceptions import ConnectionClosed, InvalidStatus

from tideline.client.wire import WireSubscription, WireWatch, error_of, raise_error
from tideline.errors import Closed, Conflict, NotFound, TidelineError
from tideline.model import Event

__all__ = [
    "Again", "Call", "Elsewhere", "Feed", "Lost", "Make", "MakeWatch", "WatchFeed",
    "refusal", "rest_s", "told",
]  # fmt: skip

_REFUSED = {4401: 401, 4403: 403}  # close codes: trying again is no use

# The handle of a subscription, of a client that blocks or of one that waits (aclient/).
Make = Callable[[WireSubscription, list[Event]], Any]
MakeWatch = Callable[["WatchFeed"], Any]


class Lost(Exception):
    """The connection broke before the reply."""


class Again(Exception):
    """Give this connection up and make another."""


class Elsewhere(Again):
    """Another node of the cluster leads."""


class Call:
    """Somebody waits for a reply."""

    __slots__ = ("done", "error", "make", "past", "result", "subscribed", "watch")

    def __init__(self, make: Make | None = None, watch: MakeWatch | None = None) -> None:
        self.make = make
        self.watch = watch
        self.subscribed: WireSubscription | None = None
        self.past: list[Event] = []
        self.result: Any = None
        self.error: Exception | None = None
        self.done = threading.Event()

    @property
    def opens(self) -> bool:
        """Whether the reply is a new handle."""
        return self.make is not None or self.watch is not None

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

    def resume_message(self) -> dict[str, Any]:
        """The request to follow it again, after what it has got."""
        message: dict[str, Any] = {
            "do": "resume", "tag": self.tag, "channel": self.channel, "id": self.id,
        }  # fmt: skip
        if self.retractions:
            message["retractions"] = True
        if self.after is not None:
            message["after"] = self.after
        return message

    def lost_error(self, error: TidelineError) -> tuple[str, TidelineError | None]:
        """Why it ended, when it cannot be resumed."""
        # Not found: it expired or was cancelled while there was no connection.
        return ("expired", None) if isinstance(error, NotFound) else ("refused", error)


class WatchFeed(Feed):
    """A live query on the connection."""

    __slots__ = ("_limit", "asked", "begun", "identity", "state", "until")

    def __init__(self, asked: Any, call: Call) -> None:
        """`asked` says what, and how its result is kept (watching.py)."""
        super().__init__(asked.request["collection"], "", None, call)
        self.asked = asked
        self.state = asked.state()
        self.begun = 0
        """The number of the message that said that it stands."""
        self.identity: str | None = None
        self.until: datetime | None = None
        self._limit: float | None = None
        """When it ends, by the clock here."""

    def begin(self, watching: WireWatch, number: int) -> None:
        """It stands."""
        if self.identity is None:
            self.lasts(self.asked.request.get("ttl_s"))
        self.begun = number
        self.identity, self.until = watching.identity, watching.until

    def lasts(self, ttl_s: float | None) -> None:
        """It ends so many seconds from now, on other connections too."""
        self._limit = None if ttl_s is None else time.monotonic() + ttl_s

    def resume_message(self) -> dict[str, Any]:
        """The request to watch again, after what has arrived, for what is left of its time."""
        self.state.begin_again()
        message = {
            **self.asked.resumed(), "tag": self.tag, "identity": self.identity,
            "after": self.state.arrived,
        }  # fmt: skip
        if self._limit is not None:
            message["ttl_s"] = max(self._limit - time.monotonic(), 0.001)
        return message

    def lost_error(self, error: TidelineError) -> tuple[str, TidelineError | None]:
        """Why it ended, when it cannot be resumed."""
        if isinstance(error, (NotFound, Conflict)):  # while there was no connection
            return "dropped", Closed("the collection was dropped", collection=self.channel)
        return "refused", error


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
