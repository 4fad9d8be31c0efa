"""Load for benchmarks/server.py: publishers and listeners on raw sockets, each a process.

    Publisher   sends events at a rate (open loop: on time, whatever the server does) or as fast
                as at most `window` of them wait for their reply
    Listener    holds the open subscriptions, spread over connections, and notes when each
                event arrives

An event's body says which it is and when it was due: {"t": nanoseconds, "n": number, ...}. Both
ends read one clock (CLOCK_MONOTONIC, the same for all processes of a machine), so an arrival minus
`t` is the latency, from when the event should have been sent: a publisher that is late counts.

The sockets are spoken to directly, not through a client library: the load must cost less than
what it measures. Two dialects: Tideline's WebSocket and Redis. Safe for one process each.
"""

from __future__ import annotations

import base64
import os
import re
import selectors
import socket
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from benchmarks.peers import redis

__all__ = ["DIALECTS", "Dialect", "Line", "body", "frame", "listen", "publish"]

_FOUND = re.compile(rb'"t":(\d+),"n":(\d+),"kind"')
_LONGEST = 64  # what a match can be long, and more
_RECEIVE = 1 << 18
_PAD = "x" * 64


def body(due_ns: int, number: int) -> bytes:
    """What an event says; about as long as a sensor's reading."""
    return b'{"t":%d,"n":%d,"kind":"jam","text":"%b"}' % (due_ns, number, _PAD.encode())


class Dialect:
    """How to talk to a server: bytes out, and how to count what comes back."""

    done = b""
    """What a finished subscription is answered with."""
    replied = b""
    """What a published event is answered with."""

    def connect(self, port: int) -> socket.socket:
        """A connection that is ready for use."""
        sock = socket.create_connection(("127.0.0.1", port))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock

    def subscribe(self, numbers: range, user: int) -> bytes:
        """Subscriptions to places, one each."""
        raise NotImplementedError

    def publish(self, place: int, due_ns: int, number: int) -> bytes:
        """An event."""
        raise NotImplementedError

    def answer(self, received: bytes) -> bytes:
        """What must be said to what was received, if anything."""
        return b""


class Tideline(Dialect):
    """WebSocket /v1/live."""

    done = b'"past_done":true'
    replied = b'"told":'
    _ping = re.compile(rb"\x89([\x00-\x7d])", re.DOTALL)

    def connect(self, port: int) -> socket.socket:
        sock = super().connect(port)
        key = base64.b64encode(os.urandom(16)).decode()
        sock.sendall(
            f"GET /v1/live?lines=1 HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\n"
            f"Connection: Upgrade\r\nSec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n"
            .encode()
        )  # fmt: skip
        said = b""
        while b"\r\n\r\n" not in said:
            said += sock.recv(4096)
        if b" 101 " not in said.split(b"\r\n", 1)[0]:
            raise SystemExit(f"no WebSocket: {said[:200]!r}")
        return sock

    def subscribe(self, numbers: range, user: int) -> bytes:
        return b"".join(
            frame(b'{"do":"subscribe","tag":%d,"channel":"bench","place":"p%d","user":"u%d",'
                   b'"until_s":36000}' % (n + 1, n, user))
            for n in numbers
        )  # fmt: skip

    def publish(self, place: int, due_ns: int, number: int) -> bytes:
        return frame(
            b'{"do":"publish","tag":1,"channel":"bench","place":"p%d","ttl_s":60,"body":%b}'
            % (place, body(due_ns, number))
        )

    def answer(self, received: bytes) -> bytes:
        # The JSON here is ASCII, so 0x89 is a ping, or a length: then the pong is one too many,
        # which is allowed.
        if b"\x89" not in received:
            return b""
        return b"".join(
            frame(received[found.end() : found.end() + found[1][0]], 0x8A)
            for found in self._ping.finditer(received)
        )


class Redis(Dialect):
    """SUBSCRIBE and PUBLISH."""

    done = b"\r\nsubscribe\r\n"
    replied = b":"

    def subscribe(self, numbers: range, user: int) -> bytes:
        return redis.command(b"SUBSCRIBE", *(b"p%d" % n for n in numbers))

    def publish(self, place: int, due_ns: int, number: int) -> bytes:
        return redis.command(b"PUBLISH", b"p%d" % place, body(due_ns, number))


DIALECTS: dict[str, type[Dialect]] = {"tideline": Tideline, "redis": Redis}


def frame(payload: bytes, code: int = 0x81) -> bytes:
    """A frame of a client: masked, with a mask of zeros, which leaves the payload as it is."""
    size = len(payload)
    if size < 126:
        return b"%c%c\0\0\0\0" % (code, 0x80 | size) + payload
    return b"%c\xfe" % code + size.to_bytes(2, "big") + b"\0\0\0\0" + payload


# ---- listening ---------------------------------------------------------------------------------


@dataclass
class Line:
    """One connection and the end of what it received that may go on."""

    sock: Any
    rest: bytes = b""

    def events(self, data: bytes) -> list[tuple[bytes, bytes]]:
        """The (t, n) of the events in what was received; one may be cut anywhere."""
        data = self.rest + data
        # Kept is the end that follows the last whole match, as far as it can be part of one.
        self.rest = data[max(data.rfind(b'"kind"'), len(data) - _LONGEST, 0) :]
        return _FOUND.findall(data)

    def count(self, data: bytes, what: bytes) -> int:
        """How often something stands in what was received."""
        data = self.rest + data
        self.rest = data[max(len(data) - len(what) + 1, 0) :]
        return data.count(what)


def listen(pipe: Connection, dialect_name: str, port: int) -> None:
    """A process: opens subscriptions and notes arrivals, as the pipe says.

    ("open", places, of, connections)  subscribe to p0..p(places-1), `of` times each -> seconds
    ("begin",)                         forget what arrived -> True
    ("end", expected, timeout_s)       what arrived: (numbers, latencies in ms, seconds)
    """
    dialect = DIALECTS[dialect_name]()
    selector = selectors.DefaultSelector()
    lines: list[Line] = []
    times: list[tuple[int, list[tuple[bytes, bytes]]]] = []
    selector.register(pipe, selectors.EVENT_READ, None)
    waiting: tuple[int, float] | None = None
    arrived = 0
    while True:
        for key, _ in selector.select(0.1):
            line: Line | None = key.data
            if line is None:
                order = pipe.recv()
                if order[0] == "open":
                    pipe.send(_open(dialect, port, selector, lines, *order[1:]))
                elif order[0] == "begin":
                    times, arrived = [], 0
                    pipe.send(True)
                elif order[0] == "end":
                    waiting = (order[1], time.monotonic() + order[2])
                else:
                    return
                continue
            data = line.sock.recv(_RECEIVE)
            now = time.monotonic_ns()
            if not data:
                raise SystemExit(f"{dialect_name} closed a connection")
            said = dialect.answer(data)
            if said:
                line.sock.sendall(said)
            found = line.events(data)
            if found:
                times.append((now, found))
                arrived += len(found)
        if waiting is not None and (arrived >= waiting[0] or time.monotonic() > waiting[1]):
            pipe.send(_collected(times))
            waiting = None


def _open(
    dialect: Dialect, port: int, selector: Any, lines: list[Line], places: int, of: int,
    connections: int,
) -> float:  # fmt: skip
    """Open subscriptions, spread evenly over new connections; the seconds it took."""
    begin = time.monotonic()
    each = -(-places // connections) if of == 1 else places
    for user in range(connections):
        numbers = range(user * each, min((user + 1) * each, places)) if of == 1 else range(places)
        sock = dialect.connect(port)
        sock.sendall(dialect.subscribe(numbers, user))
        wanted, said = len(numbers), b""
        count = 0
        while count < wanted:
            data = sock.recv(_RECEIVE)
            if not data:
                raise SystemExit(f"closed while subscribing: {said[-300:]!r}")
            said += data
            count = said.count(dialect.done)
            if b'"error"' in said:
                raise SystemExit(f"refused: {said[-300:]!r}")
        line = Line(sock)
        lines.append(line)
        selector.register(sock, selectors.EVENT_READ, line)
    return time.monotonic() - begin


def _collected(times: list[tuple[int, list[tuple[bytes, bytes]]]]) -> tuple[Any, Any, float]:
    numbers = np.array([int(n) for _, found in times for _, n in found], np.int64)
    ms = np.array([(now - int(t)) / 1e6 for now, found in times for t, _ in found], np.float64)
    span = (times[-1][0] - times[0][0]) / 1e9 if times else 0.0
    return numbers, ms, span


# ---- publishing --------------------------------------------------------------------------------


def publish(pipe: Connection, dialect_name: str, port: int) -> None:
    """A process: publishes, as the pipe says.

    ("rate", places, first, rate, seconds)      on time -> (events, seconds, latest in ms)
    ("flood", places, first, seconds, window)   as fast as replies come -> (events, seconds)
    """
    dialect = DIALECTS[dialect_name]()
    line = Line(dialect.connect(port))
    while True:
        order = pipe.recv()
        if order[0] == "rate":
            pipe.send(_at_rate(dialect, line, *order[1:]))
        elif order[0] == "flood":
            pipe.send(_flood(dialect, line, *order[1:]))
        else:
            return


def _at_rate(
    dialect: Dialect, line: Line, places: int, first: int, rate: int, seconds: float
) -> tuple[int, float, float]:
    sock = line.sock
    count = int(rate * seconds)
    gap = 1_000_000_000 // rate
    order = np.random.default_rng(first).integers(0, places, count).tolist()
    begin = time.monotonic_ns() + 10_000_000
    sent, latest = 0, 0
    replies = 0
    sock.setblocking(False)
    while sent < count:
        now = time.monotonic_ns()
        due = min(count, (now - begin) // gap + 1)
        if due > sent:
            latest = max(latest, now - (begin + sent * gap))
            sock.setblocking(True)
            sock.sendall(b"".join(
                dialect.publish(order[n], begin + n * gap, first + n) for n in range(sent, due)
            ))  # fmt: skip
            sock.setblocking(False)
            sent = due
        replies += _replies(dialect, line)
        time.sleep(max(0.0, (begin + sent * gap - time.monotonic_ns()) / 1e9))
    took = (time.monotonic_ns() - begin) / 1e9
    limit = time.monotonic() + 10
    while replies < count and time.monotonic() < limit:
        replies += _replies(dialect, line)
        time.sleep(0.001)
    sock.setblocking(True)
    return replies, took, latest / 1e6


def _flood(
    dialect: Dialect, line: Line, places: int, first: int, seconds: float, window: int
) -> tuple[int, float]:
    sock = line.sock
    begin = time.monotonic_ns()
    limit = begin + int(seconds * 1e9)
    sent = replies = 0
    sock.setblocking(True)
    now = begin
    order = np.random.default_rng(first).integers(0, places, 1 << 16).tolist()
    while now < limit or replies < sent:
        room = window - (sent - replies) if now < limit else 0
        if room > 0:
            sock.sendall(b"".join(
                dialect.publish(order[n & 0xFFFF], now, first + n)
                for n in range(sent, sent + room)
            ))  # fmt: skip
            sent += room
        replies += _replies(dialect, line)
        now = time.monotonic_ns()
    return sent, (now - begin) / 1e9


def _replies(dialect: Dialect, line: Line) -> int:
    """How many replies have come since the last time."""
    try:
        data = line.sock.recv(_RECEIVE)
    except BlockingIOError:
        return 0
    said = dialect.answer(data)
    if said:
        line.sock.sendall(said)
    return line.count(data, dialect.replied)
