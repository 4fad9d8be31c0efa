"""Requests to the server that wait in an event loop: `client/http.py` says how they are retried."""

from __future__ import annotations

import asyncio
import ssl
import weakref
from collections.abc import Sequence
from typing import Any

from tideline.aclient.connection import Pool
from tideline.aclient.sockets import Sockets
from tideline.client.answers import Answer
from tideline.client.connection import Endpoint
from tideline.client.http import Requests

__all__ = ["AsyncHttp"]


class AsyncHttp(Requests):
    """A server, by its address. For one event loop."""

    def __init__(
        self, url: str | Sequence[str], token: str | None, timeout_s: float,
        tls: ssl.SSLContext | None,
    ) -> None:  # fmt: skip
        super().__init__(url, token, timeout_s, tls)
        self.sockets = Sockets(self.endpoint)
        """All there are: requests', live and those of followers."""
        self._pool = Pool(self.sockets)
        self.places.moved = self._move
        self.followers: weakref.WeakSet[Any] = weakref.WeakSet()
        """Who has a connection of its own, and is told when this is closed."""

    def _move(self, endpoint: Endpoint) -> None:
        self.sockets.endpoint = endpoint
        self._pool.leave()

    def end(self) -> None:
        """Take no more requests; whoever waits is told."""
        self._closed = True
        for follower in list(self.followers):
            follower.shut()
        self._pool.end()

    async def close(self) -> None:
        """End it, and wait until there is no connection; closing twice is allowed."""
        self.end()
        await self.sockets.close()

    async def _exchange(
        self, method: str, target: str, kind: str | None, data: bytes | None, limit: float
    ) -> Answer:
        return await self._pool.request(method, target, kind, data, limit)

    async def _sleep(self, span_s: float) -> None:
        await asyncio.sleep(span_s)
