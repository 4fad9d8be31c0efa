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
import time
from collections import deque
from collections.abc import Generator

from tideline.aclient.sockets import Held, Sockets, left_s
from tideline.client.answers import Answer, Broken, Failure, NoConnection, Reading, request_bytes
from tideline.client.connection import failure

__all__ = ["Pool"]

_KEPT = 8  # connections, as long as the server answers on them
_MOST = 64  # and when it is slow with some requests
_SLOW_S = 0.25
_JOINED_BYTES = 1 << 20  # a longer body is not copied behind its head


class Pool:
    """The connections to one server."""

    def __init__(self, sockets: Sockets) -> None:
        self._sockets = sockets
        self._connections: list[_Connection] = []

    async def request(
        self, method: str, target: str, kind: str | None, body: bytes | None, limit: float
    ) -> Answer:
        """Ask, and wait for the answer; `client.connection.Pool.request`."""
        head = request_bytes(method, target, self._sockets.endpoint.head, kind, body)
        call = _Call(method == "HEAD", limit)
        connection = self._choose(limit)
        connection.ask(call, head, body)
        try:
            return await call.answer
        finally:
            if call.answer.cancelled():
                connection.give_up()

    def leave(self) -> None:
        """Another server is asked from now on: what waits here is waited for, then it is closed."""
        for connection in [*self._connections]:
            connection.give_up()

    def end(self) -> None:
        """Cut all connections; whoever waits for an answer gets none."""
        for connection in [*self._connections]:
            connection.end(Broken("the connection was closed"))

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
            return _Connection(self._sockets, limit, self._connections)
        return best


class _Call:
    """A request that waits for its answer."""

    __slots__ = ("answer", "bare", "due", "given_s")

    def __init__(self, bare: bool, limit: float) -> None:
        self.bare = bare
        try:
            self.given_s = left_s(limit)
        except TimeoutError as error:
            raise NoConnection(str(error)) from None
        self.due = time.monotonic() + self.given_s
        """When it is too late."""
        self.answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

    def fail(self, error: Failure) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


class _Connection(Held):
    """A connection, from the moment that somebody wants one."""

    def __init__(self, sockets: Sockets, limit: float, all_: list[_Connection]) -> None:
        self.sockets = sockets
        self.accepts = True
        """Whether it takes another request."""
        self._all = all_
        all_.append(self)
        self._loop = asyncio.get_running_loop()
        self.waiting: deque[_Call] = deque()
        """The requests that have no answer yet, in order."""
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0  # when it looks
        self._unsent: list[bytes] = []
        self._reading = Reading(tls=sockets.endpoint.tls is not None)
        self._steps: Generator[None, bytes, Answer] | None = None
        self.heard = time.monotonic()
        """When the server said something, or had nothing to say."""
        self._opening = self._loop.create_task(self._open(limit))

    # ---- requests ----------------------------------------------------------------------------

    def ask(self, call: _Call, head: bytes, body: bytes | None) -> None:
        """Send a request behind the others."""
        self._wake(call.due)
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
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._transport is None and self in self._all:
            self._all.remove(self)
        self.cut()
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

    def _wake(self, due: float) -> None:
        """Look for calls that are too late at this time, or before."""
        if self._timer is not None:
            if self._due <= due:
                return
            self._timer.cancel()
        self._due = due
        self._timer = self._loop.call_later(max(due - time.monotonic(), 0.0), self._look)

    def _look(self) -> None:
        """One timer is for all calls: to make one for each would take longer than all else."""
        self._timer = None
        now, late = time.monotonic(), False
        for call in self.waiting:
            if call.answer.done():
                continue
            if call.due <= now and self._reading.in_body and call is self.waiting[0]:
                call.due = self.heard + call.given_s  # it is coming
            if call.due <= now:
                call.fail((NoConnection if self._transport is None else Broken)("timed out"))
                late = True
            else:
                self._wake(call.due)
        if late:
            self.give_up()

    # ---- the loop ----------------------------------------------------------------------------

    async def _open(self, limit: float) -> None:
        try:
            await self.sockets.connect(lambda: self, limit)
        except OSError as error:
            self.end(failure(NoConnection, error))
        except Exception as error:  # nobody is left waiting
            self.end(NoConnection(f"{type(error).__name__}: {error}"))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.heard = time.monotonic()
        if not self.accepts and not self.waiting:  # it was ended before it was there
            self.cut()
        self._flush()

    def data_received(self, data: bytes) -> None:
        self.heard = time.monotonic()
        try:
            self._read(data)
        except Failure as error:
            self.end(error)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self in self._all:
            self._all.remove(self)
        if isinstance(exc, OSError):
            error: Failure = failure(Broken, exc)
        else:
            error = self._reading.cut()
        self.end(error)

    def _read(self, data: bytes) -> None:
        """Read on in the answer, and in those behind it."""
        at = 0
        while self._steps is None and self.waiting:
            found = self._reading.whole(data, at, self.waiting[0].bare)
            if found is None:
                break
            at = found[1]
            self._answered(found[0])
            if at == len(data):
                return
        data = data[at:]
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
