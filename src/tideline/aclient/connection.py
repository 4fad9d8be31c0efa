"""HTTP/1.1 in an event loop: requests one behind the other on a few kept connections.

    Pool.request -> an idle connection, a new one, or the one with the fewest requests
                 -> sent at once, behind those that wait for their answers
                 -> answers come in the order of the requests (client/answers.py)

1. A request waits for no other: it is sent at once (pipelining). What a turn of the loop brings
   for one connection is one write.
2. Answers and requests are matched by their order alone. So a connection on which somebody gave up
   (cancelled, or too late) takes no further request: the others get their answers, then it is
   closed. It is never out of step.
3. Nobody is put behind a request that the server is slow with: a connection that was silent for
   `_SLOW_S` while requests wait on it takes no more, as long as there are not too many connections.
4. `NoConnection`: the server did nothing with the request: it was not sent, or it stood behind one
   with whose answer the server closed the connection. `Broken`: it may have.

Limits are as in client/connection.py: until the head of the answer at `limit`, then as long again
for each further piece. For one event loop; not safe from other threads.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable, Generator
from typing import TypeVar, cast

from tideline.client.answers import Answer, Broken, Failure, NoConnection, Reading, request_bytes
from tideline.client.connection import Endpoint, failure

__all__ = ["Pool", "connect"]

_KEPT = 8  # connections, as long as the server answers on them
_MOST = 64  # and when it is slow with some requests
_SLOW_S = 0.25
_JOINED_BYTES = 1 << 20  # a longer body is not copied behind its head

P = TypeVar("P", bound=asyncio.BaseProtocol)


async def connect(endpoint: Endpoint, protocol: Callable[[], P], limit: float) -> P:
    """A protocol on a new connection: the first of the host's addresses that takes one.

    `OSError` when there is none before `limit`, a time of `time.monotonic`.
    """
    loop = asyncio.get_running_loop()
    host, port = endpoint.address
    async with asyncio.timeout(_left_s(limit)):
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    failed: OSError = OSError("the name has no address")
    for n, (family, _, number, _, address) in enumerate(found):
        # One that is silent leaves time for the others.
        span_s = _left_s(limit) / (len(found) - n)
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


class Pool:
    """The connections to one server."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._connections: list[_Connection] = []

    async def request(
        self, method: str, target: str, kind: str | None, body: bytes | None, limit: float
    ) -> Answer:
        """Ask, and wait for the answer; `client.connection.Pool.request`."""
        head = request_bytes(method, target, self._endpoint.head, kind, body)
        call = _Call(method == "HEAD", limit)
        connection = self._choose(limit)
        connection.ask(call, head, body)
        try:
            return await call.answer
        finally:
            call.timer.cancel()
            if call.answer.cancelled():
                connection.give_up()

    async def close(self) -> None:
        """Cut all connections; whoever waits for an answer gets none."""
        for connection in [*self._connections]:
            connection.end(Broken("the connection was closed"))
        while self._connections:
            await asyncio.sleep(0)  # the loop lets go of them

    def _choose(self, limit: float) -> _Connection:
        slow = time.monotonic() - _SLOW_S
        usable = 0
        best: _Connection | None = None  # the one with the fewest requests, of those
        best_quick = False  # on which the server was heard lately, if there are any
        for one in self._connections:
            if not one.accepts:
                continue
            if not one.waiting:
                return one
            usable += 1
            quick = one.heard > slow
            if (
                best is None
                or (quick and not best_quick)
                or (quick is best_quick and len(one.waiting) < len(best.waiting))
            ):
                best, best_quick = one, quick
        if best is None or usable < _KEPT or (not best_quick and usable < _MOST):
            return _Connection(self._endpoint, limit, self._connections)
        return best


class _Call:
    """A request that waits for its answer."""

    __slots__ = ("answer", "bare", "given_s", "timer")

    def __init__(self, bare: bool, limit: float) -> None:
        self.bare = bare
        try:
            self.given_s = _left_s(limit)
        except TimeoutError as error:
            raise NoConnection(str(error)) from None
        self.answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self.timer: asyncio.TimerHandle

    def fail(self, error: Failure) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


class _Connection(asyncio.Protocol):
    """A connection, from the moment that somebody wants one."""

    def __init__(self, endpoint: Endpoint, limit: float, all_: list[_Connection]) -> None:
        self.accepts = True
        """Whether it takes another request."""
        self._all = all_
        all_.append(self)
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self.waiting: deque[_Call] = deque()
        """The requests that have no answer yet, in order."""
        self._unsent: list[bytes] = []
        self._reading = Reading(tls=endpoint.tls is not None)
        self._steps: Generator[None, bytes, Answer] | None = None
        self.heard = time.monotonic()
        """When the server said something, or had nothing to say."""
        self._opening = self._loop.create_task(self._open(endpoint, limit))

    # ---- requests ----------------------------------------------------------------------------

    def ask(self, call: _Call, head: bytes, body: bytes | None) -> None:
        """Send a request behind the others."""
        call.timer = self._loop.call_later(call.given_s, self._late, call)
        if not self.waiting:
            self.heard = time.monotonic()  # nobody was waited for until now
        self.waiting.append(call)
        if not self._unsent and self._transport is not None:
            self._loop.call_soon(self._flush)
        if body is None or len(body) <= _JOINED_BYTES:
            self._unsent.append(head + body if body else head)
        else:
            self._unsent += [head, body]

    def give_up(self) -> None:
        """Somebody does not want an answer any more: finish what others wait for, then close."""
        self.accepts = False
        if all(call.answer.done() for call in self.waiting):
            self.end(Broken("nobody waits any more"))

    def end(self, error: Failure) -> None:
        """Close it; whoever waits gets the error."""
        self.accepts = False
        self._opening.cancel()
        if self._transport is not None:
            self._transport.abort()
        elif self in self._all:
            self._all.remove(self)
        waiting, self.waiting = self.waiting, deque()
        for call in waiting:
            call.fail(error)

    def _flush(self) -> None:
        if self._transport is not None and self._unsent:
            parts, self._unsent = self._unsent, []
            joined: list[bytes] = []
            for part in parts:
                if len(part) > _JOINED_BYTES:
                    self._transport.write(b"".join(joined))
                    self._transport.write(part)
                    joined = []
                else:
                    joined.append(part)
            if joined:
                self._transport.write(b"".join(joined))

    def _late(self, call: _Call) -> None:
        """The time of a call is over, unless its answer is coming."""
        if self._reading.in_body and self.waiting and self.waiting[0] is call:
            left_s = call.given_s - (time.monotonic() - self.heard)
            if left_s > 0:
                call.timer = self._loop.call_later(left_s, self._late, call)
                return
        call.fail((NoConnection if self._transport is None else Broken)("timed out"))
        self.give_up()

    # ---- the loop ----------------------------------------------------------------------------

    async def _open(self, endpoint: Endpoint, limit: float) -> None:
        try:
            await connect(endpoint, lambda: self, limit)
        except OSError as error:
            self.end(failure(NoConnection, error))
        except Exception as error:  # nobody is left waiting
            self.end(NoConnection(f"{type(error).__name__}: {error}"))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.heard = time.monotonic()
        if not self.accepts and not self.waiting:  # it was ended before it was there
            self._transport.abort()
        self._flush()

    def data_received(self, data: bytes) -> None:
        self.heard = time.monotonic()
        try:
            self._read(data)
        except Failure as error:
            self.end(error)

    def connection_lost(self, exc: Exception | None) -> None:
        if self in self._all:
            self._all.remove(self)
        if isinstance(exc, OSError):
            error: Failure = failure(Broken, exc)
        else:
            error = self._reading.cut()
        self.end(error)

    def _read(self, data: bytes) -> None:
        """Read on in the answer, and in those behind it."""
        while True:
            try:
                if self._steps is None:
                    if not self.waiting:
                        raise Broken("the server speaks out of turn")
                    self._steps = self._reading.answer(self.waiting[0].bare)
                    next(self._steps)  # reads what came behind the last answer
                if not data:
                    return
                given, data = data, b""
                self._steps.send(given)
                return
            except StopIteration as done:
                self._answered(done.value)
            if not self._reading.rest:
                return

    def _answered(self, answer: Answer) -> None:
        """An answer is whole."""
        self._steps = None
        self._reading.in_body = False
        call = self.waiting.popleft()
        if not call.answer.done():
            call.answer.set_result(answer)
        if not self._reading.lasting:
            # By RFC 9112, 9.6, the server does nothing of what was sent after that.
            raise NoConnection("the server closed the connection after another answer")
        if not self.accepts and all(call.answer.done() for call in self.waiting):
            raise Broken("nobody waits any more")


def _left_s(limit: float) -> float:
    left_s = limit - time.monotonic()
    if left_s <= 0:
        raise TimeoutError("timed out")
    return left_s
