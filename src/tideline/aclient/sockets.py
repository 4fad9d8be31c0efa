"""The sockets of one async client: opened here, and all gone when the client is closed.

    connect -> opening (a task of its own) -> held, from connection_made to connection_lost
    close   -> what is being opened is cancelled, what is held is cut, and both are waited for

A loop lets go of a socket only in a later turn. One that ends before that leaves the socket to the
garbage collector, which complains in whatever runs then. So `close` returns when there is none.

For one event loop; not safe from other threads.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import Callable
from typing import TypeVar, cast

from tideline.client.connection import Endpoint

__all__ = ["Held", "Sockets", "left_s"]


class Held(asyncio.Protocol):
    """A connection that its client knows of."""

    sockets: Sockets
    _transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.sockets.held.add(self)
        if self.sockets.closed:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.sockets.held.discard(self)

    def cut(self) -> None:
        """Close it now; the loop says `connection_lost` in a later turn."""
        if self._transport is not None:
            self._transport.abort()


H = TypeVar("H", bound=Held)


class Sockets:
    """The connections to one server."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.held: set[Held] = set()
        self.closed = False
        self._opening: set[asyncio.Task[Held]] = set()

    async def connect(self, protocol: Callable[[], H], limit: float) -> H:
        """A protocol on a new connection: the first of the host's addresses that takes one.

        `OSError` when there is none before `limit`, a time of `time.monotonic`.
        """
        self._check_open()

        def made() -> H:
            new = protocol()
            new.sockets = self
            return new

        task = asyncio.create_task(_connect(self.endpoint, made, limit))
        self._opening.add(cast("asyncio.Task[Held]", task))
        try:
            return await task
        except asyncio.CancelledError:
            if task.done() and not task.cancelled() and task.exception() is None:
                task.result().cut()  # it is there, and nobody wants it any more
            if not _is_cancelled():
                self._check_open()
            raise
        finally:
            self._opening.discard(cast("asyncio.Task[Held]", task))

    def _check_open(self) -> None:
        if self.closed:
            raise ConnectionAbortedError("the client was closed") from None

    async def close(self) -> None:
        """Cut all, and wait until the loop has let go of them. Twice is allowed."""
        self.closed = True
        for task in self._opening:
            task.cancel()
        if self._opening:
            await asyncio.wait([*self._opening])
            for _ in range(2):  # a connection that was given up on is closed in another turn
                await asyncio.sleep(0)
        for one in self.held:
            one.cut()
        while self.held:
            await asyncio.sleep(0)


async def _connect(endpoint: Endpoint, protocol: Callable[[], H], limit: float) -> H:
    loop = asyncio.get_running_loop()
    limit = min(limit, time.monotonic() + endpoint.connect_s)
    host, port = endpoint.address
    async with asyncio.timeout(left_s(limit)):
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    failed: OSError = OSError("the name has no address")
    for n, (family, _, number, _, address) in enumerate(found):
        # One that is silent leaves time for the others.
        span_s = left_s(limit) / (len(found) - n)
        try:
            async with asyncio.timeout(span_s):
                _, made = await loop.create_connection(
                    protocol, str(address[0]), port, family=family, proto=number,
                    ssl=endpoint.tls,
                    server_hostname=None if endpoint.tls is None else endpoint.name,
                )  # fmt: skip
                return made
        except OSError as error:
            if isinstance(error, ssl.SSLError):
                raise
            failed = error
    raise failed


def left_s(limit: float) -> float:
    """The seconds until a time of `time.monotonic`; `TimeoutError` when there are none."""
    span_s = limit - time.monotonic()
    if span_s <= 0:
        raise TimeoutError("timed out")
    return span_s


def _is_cancelled() -> bool:
    """Whether somebody wants the running task to end."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
