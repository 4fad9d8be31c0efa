"""The object a user of a server holds: what `Database` is for a folder.

    Remote ── Http    requests, a pool of connections (http.py)
         └─── Live    one WebSocket for all subscriptions, read by one thread (live.py)

Everything that is asked of it is asked of the server; it keeps no data. Safe from any thread.
"""

from __future__ import annotations

import math
from datetime import timedelta
from types import TracebackType
from typing import NoReturn

from tideline.channel.ahead import check_max_ahead_s
from tideline.client.channel import Facts, RemoteChannel
from tideline.client.http import Http, trusting
from tideline.client.live import Live
from tideline.clock import Seconds, span_s, span_us
from tideline.errors import Conflict, InvalidRequest, NotFound
from tideline.model import ChannelStats
from tideline.space import Space

__all__ = ["Remote"]

_NOT_SERVED = "collections are not served: use them where the folder is, with tideline.open"


class Remote:
    """A server of channels; close it, or use it as a context manager. Made by `connect`."""

    def __init__(self, url: str, token: str | None, timeout_s: float, ca: str | None) -> None:
        if span_us(timeout_s, "timeout_s") <= 0:
            raise InvalidRequest("timeout_s must be positive", timeout_s=timeout_s)
        self._http = Http(url, token, timeout_s, None if ca is None else trusting(ca))
        self._live = Live(self._http)

    @property
    def url(self) -> str:
        """The server's address."""
        return self._http.url

    def channel(
        self, name: str, *, space: Space | None = None, layout: str | None = None,
        poll_s: Seconds = 1.0, journal_s: Seconds | None = None,
        max_ahead_s: Seconds | None = None,
    ) -> RemoteChannel:  # fmt: skip
        """Open a channel, or create it: `Database.channel`.

        One that is there with the same space and layout is only read: that needs no right to
        create channels.
        """
        if not isinstance(name, str) or not name:
            raise InvalidRequest("a channel's name must be text of 1 to 128 bytes", name=name)
        if space is not None and not (hasattr(space, "spec") and hasattr(space, "encode")):
            raise InvalidRequest("space must be Flat, Topics, Grid or QuadTree", space=space)
        poll_s = span_s(poll_s, "poll_s")
        journal_s = None if journal_s is None else span_s(journal_s, "journal_s")
        if isinstance(max_ahead_s, timedelta):
            max_ahead_s = span_s(max_ahead_s, "max_ahead_s")
        try:
            facts: Facts = self._http.json("GET", "v1", "channels", name, type=Facts)
        except NotFound:
            return self._put(name, space, layout, poll_s, journal_s, max_ahead_s)
        channel = RemoteChannel(self._http, self._live, facts)
        if space is not None and channel.space != space:
            raise Conflict(
                "the channel has another space", name=name, stored=channel.space, given=space
            )
        if layout is not None and channel.layout != layout:
            raise Conflict(
                "the channel has another layout", name=name, stored=channel.layout, given=layout
            )
        if (journal_s is not None and journal_s != facts.journal_s) or (
            max_ahead_s is not None and max_ahead_s != channel.max_ahead_s
        ):
            return self._put(name, space, layout, poll_s, journal_s, max_ahead_s)
        return channel

    def channels(self) -> list[str]:
        """The names of the channels."""
        return [facts.name for facts in self._list()]

    def drop_channel(self, name: str) -> None:
        """Delete a channel with everything in it."""
        if not isinstance(name, str) or not name:
            raise InvalidRequest("a channel's name must be text of 1 to 128 bytes", name=name)
        self._http.request("DELETE", "v1", "channels", name)

    def collection(self, name: str, **settings: object) -> NoReturn:
        """Refuses: a server has channels only."""
        raise InvalidRequest(_NOT_SERVED, name=name)

    def collections(self) -> NoReturn:
        """Refuses: a server has channels only."""
        raise InvalidRequest(_NOT_SERVED)

    def drop_collection(self, name: str) -> NoReturn:
        """Refuses: a server has channels only."""
        raise InvalidRequest(_NOT_SERVED, name=name)

    def stats(self) -> dict[str, ChannelStats]:
        """The numbers of every channel."""
        return {facts.name: ChannelStats(**facts.stats) for facts in self._list()}

    def close(self) -> None:
        """End every subscription's handle and the connections; what is stored stays stored."""
        self._http.close()
        self._live.close()

    def __enter__(self) -> Remote:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self.close()

    def __repr__(self) -> str:
        return f"Remote({self.url!r})"

    def _list(self) -> list[Facts]:
        found: list[Facts] = self._http.json("GET", "v1", "channels", type=list[Facts])
        return sorted(found, key=lambda facts: facts.name)

    def _put(
        self, name: str, space: Space | None, layout: str | None, poll_s: float,
        journal_s: float | None, max_ahead_s: float | None,
    ) -> RemoteChannel:  # fmt: skip
        body: dict[str, object] = {}
        if space is not None:
            body["space"] = space.spec()
        if layout is not None:
            body["layout"] = layout
        if journal_s is not None:
            span_us(journal_s, "journal_s")
            body["journal_s"] = journal_s
        if max_ahead_s is not None:
            check_max_ahead_s(max_ahead_s)
            body["max_ahead_s"] = None if max_ahead_s == math.inf else max_ahead_s
        if poll_s != 1.0:
            body["poll_s"] = poll_s
        facts = self._http.json("PUT", "v1", "channels", name, body=body, type=Facts)
        return RemoteChannel(self._http, self._live, facts)
