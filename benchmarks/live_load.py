"""The load of the live query benchmarks: a server, a writer and readers, each a process.

    serve     the server, with one collection `bench`
    Reader    holds standing queries on some WebSockets, and notes when each change arrives
    write     puts documents at a rate, open loop: on time, whatever the server does
    churn     registers and cancels queries at a rate, beside the others

A document begins with when it was due and which it is: {"t": nanoseconds, "n": number, ...}. All
processes read one clock (CLOCK_MONOTONIC), so an arrival minus `t` is the latency from when the
document should have been written: a writer that is late, or waits for the server, counts. The
sockets are spoken to directly: the load must cost less than what it measures. Nor does a process of
the load pause for its own garbage collector: a reader's pauses of 50 to 250 ms would count as the
server's.
"""

from __future__ import annotations

import gc
import re
import selectors
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

import numpy as np

from benchmarks.server_load import Tideline, frame
from benchmarks.server_processes import serve_until_told

__all__ = ["COLLECTION", "Arrivals", "Line", "Reader", "churn", "read", "serve", "summary", "write"]

COLLECTION = "bench"
_CHANGE = re.compile(rb'\["(?:add|change)",\d+,null,(?:\d+,)?\{"t":(\d+),"n":(\d+)')
_LONGEST = 100  # what a match can be long, and more
_RECEIVE = 1 << 20
_AT_ONCE = 1_000  # queries that are asked for before their answers are read
_MOST = 1_000  # documents of one request
_GROUP = 500  # queries that are registered, and then cancelled, in one go
_SYNCED = b'"synced"'
Arrivals = tuple[Any, Any, int]
"""Numbers of documents, the milliseconds that each took, and how often a result was reset."""


def serve(pipe: Any, folder: str) -> None:
    """The process of `tideline serve` with one collection, and room for very many queries."""
    most = 10_000_000
    serve_until_told(
        pipe, folder, lambda database: database.collection(COLLECTION, key="id"),
        watches_per_caller=most, watches_per_connection=most,
    )  # fmt: skip


def _never_pause() -> None:
    """In a process of the load: none of what it makes is garbage before its end."""
    gc.collect()
    gc.freeze()
    gc.disable()


# ---- reading -------------------------------------------------------------------------------------


def watch_frame(tag: int, where: bytes, first: bool) -> bytes:
    """The request for a live query."""
    return frame(
        b'{"do":"watch","tag":%d,"collection":"bench","where":%b%b}'
        % (tag, where, b"" if first else b',"first":false')
    )


class Line:
    """One connection, and the end of what it received that may go on."""

    def __init__(self, sock: Any) -> None:
        self.dialect = Tideline()
        self.sock = sock
        self.rest = self._done = b""
        self._awaited = 0

    def receive(self) -> bytes:
        """What came; pings are answered."""
        data: bytes = self.sock.recv(_RECEIVE)
        if not data:
            raise SystemExit("the server closed a connection")
        said = self.dialect.answer(data)
        if said:
            self.sock.sendall(said)
        return data

    def changes(self, data: bytes) -> list[tuple[bytes, bytes]]:
        """The (t, n) of adds and changes in what was received; one may be cut anywhere."""
        data = self.rest + data
        end, found = 0, []
        for each in _CHANGE.finditer(data):
            # A number may go on in what comes next.
            if each.end() < len(data):
                found.append((each[1], each[2]))
                end = each.end()
        self.rest = data[max(end, len(data) - _LONGEST) :]
        return found

    def send(self, requests: list[bytes], done: bytes) -> None:
        """Send requests; `done` is what each is answered with."""
        self._awaited, self._done, self.rest = len(requests), done, b""
        self.sock.sendall(b"".join(requests))

    def answered(self, data: bytes) -> bool:
        """Look for answers in what was received; says whether all are there."""
        data = self.rest + data
        if b'"error"' in data:
            at = data.index(b'"error"')
            raise SystemExit(f"refused: {data[max(at - 100, 0) : at + 300]!r}")
        self._awaited -= data.count(self._done)
        self.rest = data[max(len(data) - len(self._done) + 1, 0) :]
        return self._awaited <= 0

    def ask(self, requests: list[bytes], done: bytes) -> None:
        """Send requests and wait until each was answered."""
        self.send(requests, done)
        while not self.answered(self.receive()):
            pass


class Reader:
    """Standing queries on some connections."""

    def __init__(self, port: int, connections: int) -> None:
        self.selector = selectors.DefaultSelector()
        self._lines = [Line(Tideline().connect(port)) for _ in range(connections)]
        self._tag = self._last = 0
        self._times: list[tuple[int, list[tuple[bytes, bytes]]]] = []
        self.arrived = 0
        self.resets = 0
        """How often a query was told its whole result again: its connection was too slow."""
        for line in self._lines:
            self.selector.register(line.sock, selectors.EVENT_READ, line)

    def watch(self, wheres: Iterable[bytes], first: bool) -> float:
        """Have queries stand, on all connections at the same time; the seconds it took.

        The first thousand are on the first connection.
        """
        wheres = iter(wheres)
        self._last = self._tag
        begin = time.monotonic()
        open_lines = {line for line in self._lines if self._ask_some(line, wheres, first)}
        while open_lines:
            for key, _ in self.selector.select(1.0):
                line = key.data
                if line is not None and line.answered(line.receive()):
                    open_lines.discard(line)
                    if self._ask_some(line, wheres, first):
                        open_lines.add(line)
        return time.monotonic() - begin

    def _ask_some(self, line: Line, wheres: Iterator[bytes], first: bool) -> bool:
        """Send the next requests on a connection, if there are any."""
        some = list(islice(wheres, _AT_ONCE))
        frames = [watch_frame(self._tag + n, where, first) for n, where in enumerate(some)]
        self._tag += len(some)
        line.send(frames, b'"more":false' if first else b'"watching":')
        return bool(some)

    def cancel(self, count: int) -> None:
        """End the first queries of the last call of `watch`; a thousand at most."""
        tags = range(self._last, self._last + count)
        self._lines[0].ask([frame(b'{"do":"cancel","tag":%d}' % tag) for tag in tags], b'"ended":')

    def settle(self) -> None:
        """Wait until the changes of everything that was written before have arrived."""
        left = dict.fromkeys(self._lines, b"")
        for line in self._lines:
            line.sock.sendall(frame(b'{"do":"sync","tag":"settle"}'))
        while left:
            for key, _ in self.selector.select(1.0):
                if key.data is None:
                    continue
                data = self.note(key.data)
                if key.data in left:
                    said = left[key.data] + data
                    left[key.data] = said[-len(_SYNCED) :]
                    if _SYNCED in said:
                        del left[key.data]

    def note(self, line: Line) -> bytes:
        """Read what is there."""
        data = line.receive()
        now = time.monotonic_ns()
        self.resets += data.count(b'"reset":true')
        found = line.changes(data)
        if found:
            self._times.append((now, found))
            self.arrived += len(found)
        return data

    def forget(self) -> None:
        """Begin to count anew."""
        self._times, self.arrived = [], 0

    def arrivals(self) -> Arrivals:
        """What arrived."""
        numbers = np.array([int(n) for _, found in self._times for _, n in found], np.int64)
        ms = np.array([(now - int(t)) / 1e6 for now, found in self._times for t, _ in found])
        return numbers, ms, self.resets


def read(pipe: Any, port: int, connections: int, queries: Callable[..., Iterator[bytes]]) -> None:
    """A process: holds queries and notes arrivals, as the pipe says.

    ("watch", first, ...)        what `queries(...)` gives; `first`: with a result -> seconds
    ("cancel", count)            end the first of those -> True
    ("begin",)                   forget what arrived, and is on its way -> True
    ("end", expected, wait_s)    what arrived, once so much did or the time is over -> Arrivals
    ("all",)                     what arrived, once all that was written has -> Arrivals
    """
    _never_pause()
    reader = Reader(port, connections)
    reader.selector.register(pipe, selectors.EVENT_READ, None)
    waiting: tuple[int, float] | None = None
    while True:
        for key, _ in reader.selector.select(0.05):
            if key.data is not None:
                reader.note(key.data)
                continue
            order = pipe.recv()
            if order[0] == "watch":
                pipe.send(reader.watch(queries(*order[2:]), order[1]))
            elif order[0] == "cancel":
                reader.cancel(order[1])
                pipe.send(True)
            elif order[0] == "begin":
                reader.settle()
                reader.forget()
                pipe.send(True)
            elif order[0] == "all":
                reader.settle()
                pipe.send(reader.arrivals())
            elif order[0] == "end":
                waiting = (order[1], time.monotonic() + order[2])
            else:
                return
        if waiting is not None and (reader.arrived >= waiting[0] or time.monotonic() > waiting[1]):
            pipe.send(reader.arrivals())
            waiting = None


def summary(ms: Any) -> dict[str, float]:
    """The figures of some latencies, as table 3 of the paper has them."""
    if not len(ms):
        return {"count": 0}
    p50, p99 = np.percentile(ms, [50, 99])
    return {
        "count": len(ms), "avg_ms": float(ms.mean()), "std_ms": float(ms.std()),
        "p50_ms": float(p50), "p99_ms": float(p99), "max_ms": float(ms.max()),
    }  # fmt: skip


# ---- writing -------------------------------------------------------------------------------------


class _Writer:
    """One HTTP connection."""

    def __init__(self, port: int) -> None:
        self._sock = socket.create_connection(("127.0.0.1", port))
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def put(self, documents: list[bytes]) -> None:
        """Write one document by `put`, several by `put_many`."""
        if len(documents) == 1:
            verb, body = b"put", b'{"document":%b}' % documents[0]
        else:
            verb, body = b"put_many", b'{"documents":[%b]}' % b",".join(documents)
        self._sock.sendall(
            b"POST /v1/collections/bench/%b HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: "
            b"application/json\r\nContent-Length: %d\r\n\r\n%b" % (verb, len(body), body)
        )
        said = b""
        while True:
            got = self._sock.recv(1 << 16)
            if not got:
                raise SystemExit("not written: the server closed the connection")
            said += got
            head, gap, rest = said.partition(b"\r\n\r\n")
            if gap:
                found = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
                if found is not None and len(rest) >= int(found[1]):
                    break
        if not said.startswith(b"HTTP/1.1 200") or b'"rejected":{"' in said:
            raise SystemExit(f"not written: {said[:500]!r}")


def write(pipe: Any, port: int, documents: Callable[..., Callable[[int, int], bytes]]) -> None:
    """A process: writes documents, as the pipe says.

    ("rate", first, count, rate, ...)   `documents(...)` gives what makes the document of a number
                                        and a time -> {"per_s", "late_ms", "calls"}

    What is due is written in one call; while it is answered, more falls due.
    """
    _never_pause()
    while True:
        order = pipe.recv()
        if order[0] != "rate":
            return
        writer = _Writer(port)  # anew: the server closes what was idle meanwhile
        first, count, rate = order[1:4]
        pipe.send(_at_rate(writer, documents(*order[4:]), first, count, rate))


def _at_rate(
    writer: _Writer, make: Callable[[int, int], bytes], first: int, count: int, rate: float
) -> dict[str, float]:
    gap = 1e9 / rate
    begin = time.monotonic_ns() + 5_000_000
    sent = calls = 0
    latest = 0.0
    while sent < count:
        now = time.monotonic_ns()
        due = min(count, int((now - begin) / gap) + 1, sent + _MOST)
        if due <= sent:
            time.sleep(max((begin + sent * gap - now) / 1e9, 0.0))
            continue
        latest = max(latest, now - (begin + sent * gap))
        writer.put([make(first + n, int(begin + n * gap)) for n in range(sent, due)])
        sent = due
        calls += 1
    took = (time.monotonic_ns() - begin) / 1e9
    return {"per_s": count / took, "late_ms": latest / 1e6, "calls": calls}


# ---- registering and cancelling ------------------------------------------------------------------


def churn(pipe: Any, port: int, queries: Callable[..., Iterator[bytes]]) -> None:
    """A process: registers queries (without a first result) and cancels them, as the pipe says.

    ("rate", seconds, rate, ...)   what `queries(...)` gives, over and over; each stands until its
                                   group was answered -> {"per_s", "group", "p50_ms", "p99_ms"}

    As with what is written, what is due is one group; while it is registered and cancelled, more
    falls due. A group has what falls due in 5 ms, or more, and 500 at most; "group" is the mean.
    """
    _never_pause()
    while True:
        order = pipe.recv()
        if order[0] != "rate":
            return
        line = Line(Tideline().connect(port))
        seconds, rate = order[1:3]
        wheres = list(queries(*order[3:]))
        least = max(1, min(round(rate / 200), _GROUP))
        begin = time.monotonic()
        done, took = 0, []
        while (now := time.monotonic()) < begin + seconds:
            due = int((now - begin) * rate) - done
            if due < least:
                time.sleep((least - due) / rate)
                continue
            group = min(due, _GROUP)
            some = [wheres[(done + n) % len(wheres)] for n in range(group)]
            asked = time.monotonic()
            line.ask([watch_frame(done + n, w, False) for n, w in enumerate(some)],
                     b'"watching":')  # fmt: skip
            took.append((time.monotonic() - asked) * 1e3)
            line.ask([frame(b'{"do":"cancel","tag":%d}' % (done + n)) for n in range(group)],
                     b'"ended":')  # fmt: skip
            done += group
        p50, p99 = np.percentile(took, [50, 99])
        pipe.send({
            "per_s": done / (time.monotonic() - begin), "group": done / len(took),
            "p50_ms": float(p50), "p99_ms": float(p99),
        })  # fmt: skip
