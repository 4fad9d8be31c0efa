"""The panes of a stream window on a server, told at each slide.

    server --one WebSocket--> RemotePanes --> take(), for ...

A handle as that of changes (changes.py): a connection of its own, read by whoever asks. When it
breaks, the next read makes another. The server keeps no panes for who is away: what slid by
meanwhile is counted in `missed` of the next pane. A server that takes the place of another one
may slide later than that did: what was told already is not handed out again.

Safe from any thread: one reads at a time, and each pane is handed out once.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import msgspec

from tideline.client.arriving import _TAG, Arriving, _Error
from tideline.client.changes import RemoteChanges
from tideline.client.feeds import Again
from tideline.client.http import Http
from tideline.errors import Closed
from tideline.model import Pane

__all__ = ["ArrivingPanes", "RemotePanes", "plain_result"]


class _Pane(msgspec.Struct):
    since: datetime
    until: datetime
    value: Any
    missed: int


class _Message(msgspec.Struct):
    tag: int | None = None
    watching: Any = None
    pane: _Pane | None = None
    ended: str | None = None
    error: _Error | None = None


_decode = msgspec.json.Decoder(_Message).decode


def plain_result(map: Any, value: Any) -> Any:
    """A result as the library gives it: the rows of `top` are tuples.

    >>> plain_result("top(1, vel)", [[[0, 7], 55]])
    [((0, 7), 55)]
    """
    if isinstance(map, str):
        if map.strip().startswith("top") and isinstance(value, list):
            return [(tuple(key), each) for key, each in value]
        return value
    if isinstance(value, dict):
        of = map if isinstance(map, dict) else {name: name for name in map}
        return {name: plain_result(of[name], each) for name, each in value.items()}
    return value


class ArrivingPanes(Arriving):
    """The panes of a window, as far as they have arrived."""

    _asks: dict[str, Any]
    _slide: timedelta
    _until: datetime | None = None
    _map: Any

    def _request(self) -> dict[str, Any]:
        self._answered = False
        return {"do": "watch_window", "tag": _TAG, **self._asks}

    def _handed_out(self) -> Any:
        return self._ready.popleft()

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
        elif message.watching is not None:
            self._answered = self._begun = True
        elif message.ended is not None:
            if message.ended == "closed":
                raise Again("the server closed the window")  # it may open it again
            self._error = Closed("the window was dropped", window=self._name)
        elif message.pane is not None and (self._until is None or message.pane.until > self._until):
            self._ready.append(self._told(message.pane))

    def _told(self, told: _Pane) -> Any:
        missed, before = told.missed, self._until
        if before is not None and told.missed == 0:
            missed = max(0, (told.until - before) // self._slide - 1)
        self._until = told.until
        return Pane(told.since, told.until, plain_result(self._map, told.value), missed)


class RemotePanes(ArrivingPanes, RemoteChanges):
    """What becomes of rows of a window at each slide; `RemoteWindow.watch` makes one."""

    def __init__(self, http: Http, name: str, asked: dict[str, Any], slide_s: float) -> None:
        """Watches at once; refuses as the server does."""
        self._asks = {"window": name, **asked}
        self._map = asked["map"]
        self._slide = timedelta(seconds=slide_s)
        super().__init__(http, name, "", None, False)

    def take(self, limit: int | None = None, *, timeout_s: float = 0) -> list[Pane]:  # type: ignore[override]
        """The panes that are there; waits up to `timeout_s` for the first: `Watch.take`.

        Asks the server: what the window had slid over before this call is there.
        """
        found: list[Any] = super().take(limit, timeout_s=timeout_s)
        return found

    def __iter__(self) -> RemotePanes:
        return self

    def __next__(self) -> Pane:  # type: ignore[override]
        found: Any = super().__next__()
        assert isinstance(found, Pane)
        return found

    def __enter__(self) -> RemotePanes:
        return self

    def __repr__(self) -> str:
        return f"RemotePanes({self._name!r})"
