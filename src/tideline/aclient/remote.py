"""The object an async user of a server holds: what `Remote` is for one that blocks.

    AsyncRemote ── AsyncHttp    requests on a few connections (http.py, connection.py, sockets.py)
              └─── AsyncLive    one WebSocket for all subscriptions (live.py)

It belongs to the event loop it was made in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from tideline.aclient.channel import AsyncRemoteChannel
from tideline.aclient.collection import AsyncRemoteCollection
from tideline.aclient.http import AsyncHttp
from tideline.aclient.live import AsyncLive
from tideline.client.http import trusting
from tideline.client.remote import DatabaseVerbs, check_timeout
from tideline.clock import Seconds

if TYPE_CHECKING:
    from tideline.aclient.window import AsyncRemoteWindow

__all__ = ["AsyncRemote"]


class AsyncRemote(DatabaseVerbs[AsyncRemoteChannel]):
    """A server; close it, or use it as a context manager. Made by `aconnect`."""

    def __init__(
        self, url: str | Sequence[str], token: str | None, timeout_s: Seconds, ca: str | None
    ) -> None:
        wait_s = check_timeout(timeout_s)
        self._http: AsyncHttp = AsyncHttp(url, token, wait_s, None if ca is None else trusting(ca))
        self._live = AsyncLive(self._http)
        super().__init__(self._http, partial(AsyncRemoteChannel, self._http, self._live))

    async def collection(
        self, name: str, *, key: str | None = None,
        indexes: Mapping[str, str | Mapping[str, Any] | None] | Sequence[str] | None = None,
        policy: str | Mapping[str, Any] | None = None, filter: str | None = None,
        bloom_bits: int | None = None, journal_s: float | None = None,
        journal_before: bool | None = None, ttl_s: Seconds | None = None,
    ) -> AsyncRemoteCollection:  # fmt: skip
        """Open a collection of documents, or create it: `Database.collection`."""
        facts = await self.open_collection(
            name, key=key, indexes=indexes, policy=policy, filter=filter, bloom_bits=bloom_bits,
            journal_s=journal_s, journal_before=journal_before, ttl_s=ttl_s,
        )  # fmt: skip
        return AsyncRemoteCollection(self._http, self._live, facts)

    async def window(
        self, name: str, *, span_s: Seconds | None = None, slide_s: Seconds | None = None,
        key: str | Sequence[str] | Mapping[str, Any] | None = None,
        values: Mapping[str, str] | None = None, keep: str | None = None, time: str | None = None,
        durable: bool | None = None, max_ahead_s: Seconds | None = None,
        indexes: Mapping[str, Any] | None = None,
    ) -> AsyncRemoteWindow:  # fmt: skip
        """Open a stream window, or create it: `Database.window`."""
        facts = await self.open_window(
            name, span_s=span_s, slide_s=slide_s, key=key, values=values, keep=keep, time=time,
            durable=durable, max_ahead_s=max_ahead_s, indexes=indexes,
        )  # fmt: skip
        from tideline.aclient.window import AsyncRemoteWindow

        return AsyncRemoteWindow(self._http, facts)

    @property
    def url(self) -> str:
        """The server's address."""
        return self._http.url

    async def check(self) -> None:
        """Ask whether a Tideline server is there and takes the token."""
        await self._http.ask_check()

    async def close(self) -> None:
        """End every subscription's handle and the connections; what is stored stays stored."""
        self._http.end()
        await self._live.close()
        await self._http.close()

    async def __aenter__(self) -> AsyncRemote:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"AsyncRemote({self.url!r})"
