"""What the server says of the changes of a collection, and where a handle stands in them.

    message -> ready -> handed out        seq: the last that was handed out

1. `seq` is the last change that was handed out, and what arrived after it is in `_ready`.
2. A new connection asks for what comes after the last of these, of the same collection (its
   `identity`): `request`.
3. What the server says no more of stays said: `_error` is raised to whoever asks again.

A handle that blocks (changes.py) and one of an event loop (aclient/changes.py) are made of it; who
may touch it when, they say.
"""

from __future__ import annotations

import itertools
from collections import deque
from typing import Any

import msgspec

from tideline.client.feeds import Again, Elsewhere
from tideline.client.places import Places
from tideline.client.wire import error_of
from tideline.clock import span_us
from tideline.errors import Closed, Conflict, InvalidRequest, NotFound, TidelineError
from tideline.model import Change

__all__ = ["Arriving", "Later", "check_take"]

_TAG = 0  # of the changes; each sync has another
_DROPPED = "the collection was dropped"


class _Following(msgspec.Struct):
    seq: int
    identity: str


class _Change(msgspec.Struct):
    seq: int
    key: int | str
    after: msgspec.Raw
    before: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET

    def change(self) -> Change:
        old = self.before
        if isinstance(old, msgspec.UnsetType):
            return Change(self.seq, self.key, _text(self.after))
        return Change(self.seq, self.key, _text(self.after), _text(old))


class _Error(msgspec.Struct):
    kind: str
    message: str
    retry_after_s: float | None = None
    values: dict[str, Any] = {}


class _Message(msgspec.Struct):
    tag: int | None = None
    following: _Following | None = None
    changes: list[_Change] = []
    ended: str | None = None
    error: _Error | None = None
    synced: str | None = None


_decode = msgspec.json.Decoder(_Message).decode


def _text(raw: msgspec.Raw) -> bytes | None:
    text = bytes(raw)
    return None if text == b"null" else text


class Arriving:
    """The changes of a collection, as far as they have arrived."""

    def __init__(
        self, places: Places, name: str, identity: str, after: int | None, before: bool
    ) -> None:
        if after is not None and (isinstance(after, bool) or not isinstance(after, int)):
            raise InvalidRequest("after must be the seq of a change, 0 or more", after=after)
        if not isinstance(before, bool):
            raise InvalidRequest("before must be True or False", before=before)
        self._places = places
        self._name = name
        self._before = before
        self._identity = None if after is None else identity
        self._seq = after  # None: from now on, as long as the server has not said where that is
        self._ready: deque[Change] = deque()
        self._error: TidelineError | None = None
        self._tags = itertools.count(_TAG + 1)
        self._reached = 0  # up to here the server has told all that is to be told
        self._answered = False  # on this connection
        self._begun = False  # on any
        self._synced = 0  # the last that was answered

    @property
    def seq(self) -> int:
        """The seq of the change that was handed out last: go on after it with `after=`.

        Before the first, the seq that it began after.
        """
        return self._seq or 0

    def _request(self) -> dict[str, Any]:
        """What to ask on a new connection."""
        self._answered = False
        request: dict[str, Any] = {
            "do": "changes", "tag": _TAG, "collection": self._name, "identity": self._identity,
        }  # fmt: skip
        if self._last is not None:
            request["after"] = self._last
        if self._before:
            request["before"] = True
        return request

    def _handed_out(self) -> Change:
        found = self._ready[0]
        self._seq = found.seq
        self._ready.popleft()  # cut before it, the next call hands out the same again
        return found

    @property
    def _last(self) -> int | None:
        """The last change that arrived, or a later one that the server has nothing to tell of."""
        last = self._ready[-1].seq if self._ready else self._seq
        return last if last is None or not self._begun else max(last, self._reached)

    def _take_in_all(self, data: bytes) -> None:
        """A frame: messages, one a line."""
        for line in data.split(b"\n"):
            if line:
                self._take_in(line)

    def _take_in(self, line: bytes) -> None:
        try:
            message = _decode(line)
        except msgspec.MsgspecError as error:
            raise Again(f"not a message of a Tideline server: {error}") from None
        if message.tag is not None and message.tag > _TAG and message.error is None:
            self._synced = max(self._synced, message.tag)
        elif message.error is not None:
            self._failed(message.error)
        elif message.tag != _TAG:
            return  # a heartbeat
        elif message.following is not None:
            self._answered = self._begun = True
            self._identity = message.following.identity
            if self._seq is None:
                self._seq = message.following.seq
            self._reached = max(self._reached, message.following.seq)
        elif message.ended is not None:
            if message.ended == "closed":
                raise Again("the server closed the collection")  # it may open it again
            self._error = Closed(_DROPPED, collection=self._name)
        elif message.changes:
            last = self._last or 0
            self._ready.extend([change.change() for change in message.changes if change.seq > last])

    def _failed(self, told: _Error) -> None:
        """The server refused to tell, or to tell more."""
        if told.kind == "NotLeading":
            self._places.elsewhere(self._places.here(), told.values.get("leader"))
            raise Elsewhere(told.message)
        error = error_of(told.kind, told.message, retry_after_s=told.retry_after_s)
        if told.retry_after_s is not None or isinstance(error, Closed):
            raise Later(told)
        if self._begun and isinstance(error, (NotFound, Conflict)):
            error = Closed(_DROPPED, collection=self._name)  # while there was no connection
        error.values.update(told.values)
        self._error = error


class Later(Again):
    """The server has no time now."""

    def __init__(self, told: _Error) -> None:
        super().__init__(told.message)
        self.span_s = told.retry_after_s


def check_take(limit: Any, timeout_s: Any) -> float:
    """`InvalidRequest` for what `take` cannot be asked; the time to wait."""
    if limit is not None and (
        isinstance(limit, bool) or not isinstance(limit, int) or limit < 1
    ):  # fmt: skip
        raise InvalidRequest("limit must be a whole number above 0, or None", limit=limit)
    wait_us = span_us(timeout_s, "timeout_s")
    if wait_us < 0:
        raise InvalidRequest("timeout_s must not be negative", timeout_s=timeout_s)
    return wait_us / 1_000_000
