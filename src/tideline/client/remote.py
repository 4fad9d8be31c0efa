"""The object a user of a server holds: what `Database` is for a folder.

    Remote ── Http    requests, a pool of connections (http.py)
         └─── Live    one WebSocket for all subscriptions, read by one thread (live.py)

Everything that is asked of it is asked of the server; it keeps no data. Safe from any thread.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from tideline.channel.ahead import check_max_ahead_s
from tideline.channel.checks import check_same
from tideline.client.arguments import as_indexes, lasting
from tideline.client.blocking import blocking, run
from tideline.client.channel import Facts, RemoteChannel
from tideline.client.collection import RemoteCollection
from tideline.client.collection_verbs import CollectionFacts
from tideline.client.http import Http, Requests, trusting
from tideline.client.live import Live
from tideline.client.window import RemoteWindow, WindowFacts
from tideline.clock import Seconds, span_s, span_us
from tideline.clock import span_s as span_s_of
from tideline.errors import InvalidRequest, NotFound
from tideline.model import ChannelStats, CollectionStats, WindowStats
from tideline.space import Space
from tideline.where.plain import plain_json

__all__ = ["DatabaseVerbs", "Remote", "check_timeout"]


class Opened(Protocol):
    """What the verbs ask of a channel."""

    name: str
    space: Space
    layout: str
    max_ahead_s: float


C = TypeVar("C", bound=Opened)


class DatabaseVerbs(Generic[C]):
    """What a server can do as a whole."""

    def __init__(self, http: Requests, make: Callable[[Facts], C]) -> None:
        """`make` makes a channel of what the server says of it."""
        self._http = http
        self._make = make

    async def channel(
        self, name: str, *, space: Space | None = None, layout: str | None = None,
        poll_s: Seconds = 1.0, journal_s: Seconds | None = None,
        max_ahead_s: Seconds | None = None,
    ) -> C:  # fmt: skip
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
            facts: Facts = await self._http.ask_json("GET", "v1", "channels", name, type=Facts)
        except NotFound:
            return await self._put(name, space, layout, poll_s, journal_s, max_ahead_s)
        channel = self._make(facts)
        check_same(channel, space, layout)
        if (journal_s is not None and journal_s != facts.journal_s) or (
            max_ahead_s is not None and max_ahead_s != channel.max_ahead_s
        ):
            return await self._put(name, space, layout, poll_s, journal_s, max_ahead_s)
        return channel

    async def cluster(self) -> dict[str, Any]:
        """Who takes part in the cluster of a server, who leads, and how far each node is."""
        found: dict[str, Any] = await self._http.ask_json("GET", "v1", "cluster")
        return found

    async def cluster_add(self, node: str) -> None:
        """Take in a node that was made by `tideline cluster recover` and runs."""
        await self._http.ask("POST", "v1", "cluster", "nodes", body={"node": node})

    async def cluster_remove(self, node: str) -> None:
        """Let a node go."""
        await self._http.ask("DELETE", "v1", "cluster", "nodes", node)

    async def channels(self) -> list[str]:
        """The names of the channels."""
        return [facts.name for facts in await self._list()]

    async def drop_channel(self, name: str) -> None:
        """Delete a channel with everything in it."""
        if not isinstance(name, str) or not name:
            raise InvalidRequest("a channel's name must be text of 1 to 128 bytes", name=name)
        await self._http.ask("DELETE", "v1", "channels", name)

    async def open_collection(
        self, name: str, *, key: str | None = None,
        indexes: Mapping[str, str | Mapping[str, Any] | None] | Sequence[str] | None = None,
        policy: str | Mapping[str, Any] | None = None, filter: str | None = None,
        bloom_bits: int | None = None, journal_s: float | None = None,
        journal_before: bool | None = None, ttl_s: float | timedelta | None = None,
    ) -> CollectionFacts:  # fmt: skip
        """What the server says of a collection, which is made if there is none.

        One that is there and as given needs no right to make one: the server compares them.
        """
        check_collection(name)
        given = {
            "key": key, "indexes": as_indexes(indexes), "policy": policy, "filter": filter,
            "bloom_bits": bloom_bits, "journal_before": journal_before, "ttl_s": lasting(ttl_s),
            "journal_s": None if journal_s is None else span_s(journal_s, "journal_s"),
        }  # fmt: skip
        given = {setting: value for setting, value in given.items() if value is not None}
        if not given:
            with contextlib.suppress(NotFound):
                found: CollectionFacts = await self._http.ask_json(
                    "GET", "v1", "collections", name, type=CollectionFacts
                )
                return found
        made: CollectionFacts = await self._http.ask_json(
            "PUT", "v1", "collections", name,
            body=msgspec.Raw(plain_json(given, "settings")), type=CollectionFacts,
        )  # fmt: skip
        return made

    async def collections(self) -> list[str]:
        """The names of the collections."""
        return [facts.name for facts in await self._list_collections()]

    async def drop_collection(self, name: str) -> None:
        """Delete a collection with everything in it."""
        check_collection(name)
        await self._http.ask("DELETE", "v1", "collections", name)

    async def open_window(
        self, name: str, *, span_s: Seconds | None = None, slide_s: Seconds | None = None,
        key: str | Sequence[str] | Mapping[str, Any] | None = None,
        values: Mapping[str, str] | None = None, keep: str | None = None, time: str | None = None,
        durable: bool | None = None, max_ahead_s: Seconds | None = None,
        indexes: Mapping[str, Any] | None = None,
    ) -> WindowFacts:  # fmt: skip
        """What the server says of a stream window, which is made if there is none.

        Without settings one that is there is only read: that needs no right to make one.
        """
        check_collection(name, "window")
        ahead: Any = max_ahead_s
        if ahead is not None:
            check_max_ahead_s(ahead)
            ahead = "never" if ahead == math.inf else span_s_of(ahead, "max_ahead_s")
        given: dict[str, Any] = {
            "span_s": None if span_s is None else span_s_of(span_s, "span_s"),
            "slide_s": None if slide_s is None else span_s_of(slide_s, "slide_s"),
            "key": list(key) if isinstance(key, tuple) else key, "values": values, "keep": keep,
            "time": time, "durable": durable, "max_ahead_s": ahead, "indexes": indexes,
        }  # fmt: skip
        given = {setting: value for setting, value in given.items() if value is not None}
        if not given:
            with contextlib.suppress(NotFound):
                found: WindowFacts = await self._http.ask_json(
                    "GET", "v1", "windows", name, type=WindowFacts
                )
                return found
        made: WindowFacts = await self._http.ask_json(
            "PUT", "v1", "windows", name, body=msgspec.Raw(plain_json(given, "settings")),
            type=WindowFacts,
        )  # fmt: skip
        return made

    async def windows(self) -> list[str]:
        """The names of the stream windows."""
        return [facts.name for facts in await self._list_windows()]

    async def drop_window(self, name: str) -> None:
        """Delete a stream window with everything in it."""
        check_collection(name, "window")
        await self._http.ask("DELETE", "v1", "windows", name)

    async def _list_windows(self) -> list[WindowFacts]:
        found: list[WindowFacts] = await self._http.ask_json(
            "GET", "v1", "windows", type=list[WindowFacts]
        )
        return sorted(found, key=lambda facts: facts.name)

    async def stats(self) -> dict[str, ChannelStats | CollectionStats | WindowStats]:
        """The numbers of everything that the token may see whole."""
        found: dict[str, ChannelStats | CollectionStats | WindowStats] = {
            facts.name: ChannelStats(**facts.stats) for facts in await self._list()
        }
        for facts in await self._list_collections():
            if facts.stats is not None:
                found[facts.name] = facts.stats
        for window in await self._list_windows():
            found[window.name] = window.stats
        return dict(sorted(found.items()))

    async def _list_collections(self) -> list[CollectionFacts]:
        found: list[CollectionFacts] = await self._http.ask_json(
            "GET", "v1", "collections", type=list[CollectionFacts]
        )
        return sorted(found, key=lambda facts: facts.name)

    async def _list(self) -> list[Facts]:
        found: list[Facts] = await self._http.ask_json("GET", "v1", "channels", type=list[Facts])
        return sorted(found, key=lambda facts: facts.name)

    async def _put(
        self, name: str, space: Space | None, layout: str | None, poll_s: float,
        journal_s: float | None, max_ahead_s: float | None,
    ) -> C:  # fmt: skip
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
        facts = await self._http.ask_json("PUT", "v1", "channels", name, body=body, type=Facts)
        return self._make(facts)


class Remote:
    """A server; close it, or use it as a context manager. Made by `connect`."""

    def __init__(
        self, url: str | Sequence[str], token: str | None, timeout_s: Seconds, ca: str | None
    ) -> None:
        wait_s = check_timeout(timeout_s)
        self._http = Http(url, token, wait_s, None if ca is None else trusting(ca))
        self._live = Live(self._http)
        self._verbs = DatabaseVerbs(self._http, partial(RemoteChannel, self._http, self._live))

    @property
    def url(self) -> str:
        """The server's address."""
        return self._http.url

    channel = blocking(DatabaseVerbs[RemoteChannel].channel)
    channels = blocking(DatabaseVerbs.channels)
    drop_channel = blocking(DatabaseVerbs.drop_channel)
    cluster = blocking(DatabaseVerbs.cluster)
    cluster_add = blocking(DatabaseVerbs.cluster_add)
    cluster_remove = blocking(DatabaseVerbs.cluster_remove)
    stats = blocking(DatabaseVerbs.stats)

    def collection(
        self, name: str, *, key: str | None = None,
        indexes: Mapping[str, str | Mapping[str, Any] | None] | Sequence[str] | None = None,
        policy: str | Mapping[str, Any] | None = None, filter: str | None = None,
        bloom_bits: int | None = None, journal_s: float | None = None,
        journal_before: bool | None = None, ttl_s: float | timedelta | None = None,
    ) -> RemoteCollection:  # fmt: skip
        """Open a collection of documents, or create it: `Database.collection`.

        One that is there with the same settings needs no right to create collections.
        """
        facts = run(
            self._verbs.open_collection(
                name, key=key, indexes=indexes, policy=policy, filter=filter,
                bloom_bits=bloom_bits, journal_s=journal_s, journal_before=journal_before,
                ttl_s=ttl_s,
            )
        )  # fmt: skip
        return RemoteCollection(self._http, self._live, facts)

    def window(
        self, name: str, *, span_s: Seconds | None = None, slide_s: Seconds | None = None,
        key: str | Sequence[str] | Mapping[str, Any] | None = None,
        values: Mapping[str, str] | None = None, keep: str | None = None, time: str | None = None,
        durable: bool | None = None, max_ahead_s: Seconds | None = None,
        indexes: Mapping[str, Any] | None = None,
    ) -> RemoteWindow:  # fmt: skip
        """Open a stream window, or create it: `Database.window`."""
        facts = run(self._verbs.open_window(
            name, span_s=span_s, slide_s=slide_s, key=key, values=values, keep=keep, time=time,
            durable=durable, max_ahead_s=max_ahead_s, indexes=indexes,
        ) )  # fmt: skip
        return RemoteWindow(self._http, facts)

    windows = blocking(DatabaseVerbs.windows)
    drop_window = blocking(DatabaseVerbs.drop_window)
    collections = blocking(DatabaseVerbs.collections)
    drop_collection = blocking(DatabaseVerbs.drop_collection)

    def close(self) -> None:
        """End every subscription's handle and the connections; what is stored stays stored."""
        self._http.close()
        self._live.close()

    def __enter__(self) -> Remote:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Remote({self.url!r})"


def check_collection(name: Any, what: str = "collection") -> None:
    """`InvalidRequest` for what cannot be asked for; what is no name, the server says."""
    if not isinstance(name, str) or not name or len(name.encode(errors="replace")) > 128:
        raise InvalidRequest(f"a {what}'s name must be text of 1 to 128 bytes", name=name)
    if not name.isprintable():
        raise InvalidRequest(f"a {what}'s name must be printable, without '/'", name=name)


def check_timeout(timeout_s: Seconds) -> float:
    """How long to wait for an answer, in seconds; `InvalidRequest` for what is no time."""
    if span_us(timeout_s, "timeout_s") <= 0:
        raise InvalidRequest("timeout_s must be positive", timeout_s=timeout_s)
    return span_s(timeout_s, "timeout_s")
