"""HTTP/1.1 by hand: one request and its answer on a kept connection, and a small pool of those.

    Pool.request -> an idle connection, or a new one -> send -> read one answer -> idle again

A request is one write: its line, a head that is the same for every request, its body. An answer
is read into a buffer, its head up to the empty line, its body by Content-Length or in chunks.

1. An answer is given only when all of it is there: a head up to its empty line, a body of the
   length that the head says or up to the mark of its end. A body that ends with the connection
   cannot be told from one that was cut, and is taken for cut.
2. A connection goes back to the pool only when nothing came after a whole answer and both sides
   want to go on. One that became readable while idle was closed by the server, or speaks
   out of turn: it is let go before anything is sent.
3. `NoConnection`: nothing of the request was sent. `Broken`: some of it may have been.

All waiting until the head of the answer is there ends at `limit`, a time of `time.monotonic`; only
the system's lookup of a name has its own. Each further piece of the answer may take as long as the
request had: a long answer that goes on coming is not cut. `Pool` is safe from any thread; a
connection belongs to one request.
"""

from __future__ import annotations

import math
import select
import socket
import ssl
import threading
import time
from collections.abc import Mapping

from tideline.client.answers import (
    Answer,
    Broken,
    Failure,
    NoConnection,
    Reading,
    request_bytes,
)

__all__ = ["Answer", "Broken", "Endpoint", "NoConnection", "Pool", "failure"]

_KEPT = 8  # connections that stay open between calls
_PIECE_BYTES = 65_536  # read at once
_LONGEST_S = 1e6  # sockets know no longer wait
_AT_ONCE_BYTES = 8 << 10  # an idle connection takes so much without waiting
_JOINED_BYTES = 1 << 20  # a longer body is not copied behind its head


class Endpoint:
    """Where a server is, and what is the same in every request to it."""

    def __init__(
        self, host: str, port: int | None, headers: Mapping[str, str],
        tls: ssl.SSLContext | None = None,
    ) -> None:  # fmt: skip
        """`host` in ASCII, without brackets; `tls` makes it https."""
        usual = 80 if tls is None else 443
        self.address = (host, usual if port is None else port)
        self.tls = tls
        self.connect_s = math.inf
        """How long a connection may take to be made, within the time that a call has."""
        if tls is not None:
            tls.set_alpn_protocols(["http/1.1"])
        self.name = host.partition("%")[0].rstrip(".")  # without the zone of a local address
        named = f"[{self.name}]" if ":" in host else host
        fields = {
            "Host": named if port in (None, usual) else f"{named}:{port}",
            "User-Agent": "tideline", "Accept": "*/*", "Accept-Encoding": "identity", **headers,
        }  # fmt: skip
        lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        self.head = f" HTTP/1.1\r\n{lines}"


class Pool:
    """The connections to one server."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._lock = threading.Lock()
        self._idle: list[_Connection] = []
        self._closed = False

    def request(
        self, method: str, target: str, kind: str | None, body: bytes | None, limit: float
    ) -> Answer:
        """Ask, and read the answer. `target` is quoted; `kind` is the body's Content-Type."""
        connection = self._take() or self._connect(limit)
        head = request_bytes(method, target, connection.endpoint.head, kind, body)
        try:
            answer = connection.ask(head, body, method == "HEAD", limit)
        except BaseException as error:
            connection.close()
            if not isinstance(error, OSError):
                raise
            raise failure(Broken, error) from None
        self._give_back(connection)
        return answer

    def move(self, endpoint: Endpoint) -> None:
        """Ask another server from now on; what is open to this one is closed after its answer."""
        with self._lock:
            self._endpoint = endpoint
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def close(self) -> None:
        """Close what is idle now, and the others when they are given back."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _take(self) -> _Connection | None:
        """The idle connection that was used last, if it is still good."""
        while True:
            with self._lock:
                if not self._idle:
                    return None
                connection = self._idle.pop()
            if not connection.readable():
                return connection
            connection.close()

    def _give_back(self, connection: _Connection) -> None:
        if connection.lasting:
            with self._lock:
                mine = connection.endpoint is self._endpoint
                if mine and not self._closed and len(self._idle) < _KEPT:
                    self._idle.append(connection)
                    return
        connection.close()

    def _connect(self, limit: float) -> _Connection:
        try:
            endpoint = self._endpoint
            return _Connection(self.connect(limit, endpoint), endpoint)
        except OSError as error:
            raise failure(NoConnection, error) from None

    def connect(self, limit: float, endpoint: Endpoint | None = None) -> socket.socket:
        """A connected socket for anything: the first of the host's addresses that takes one."""
        endpoint = endpoint or self._endpoint
        limit = min(limit, time.monotonic() + endpoint.connect_s)
        found = socket.getaddrinfo(*endpoint.address, type=socket.SOCK_STREAM)
        failed: OSError = OSError("the name has no address")
        for n, (family, kind, protocol, _, address) in enumerate(found):
            try:
                raw = socket.socket(family, kind, protocol)
            except OSError as error:  # no such family here, or no file handle left
                failed = error
                continue
            try:
                # One that is silent leaves time for the others.
                raw.settimeout(_left_s(limit) / (len(found) - n))
                raw.connect(address)
                raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if endpoint.tls is None:
                    return raw
                raw.settimeout(_left_s(limit))
                return endpoint.tls.wrap_socket(raw, server_hostname=endpoint.name)
            except BaseException as error:
                raw.close()
                if not isinstance(error, OSError) or isinstance(error, ssl.SSLError):
                    raise
                failed = error
        raise failed


class _Connection:
    """A connected socket; one request at a time."""

    def __init__(self, connected: socket.socket, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.lasting = False
        """Whether it can carry another request."""
        self._socket = connected
        self._reading = Reading(tls=isinstance(connected, ssl.SSLSocket))
        if hasattr(select, "poll"):
            self._poll = select.poll()
            self._poll.register(connected, select.POLLIN)

    def readable(self) -> bool:
        """Whether the server closed it, or said something, since the last answer."""
        if hasattr(select, "poll"):
            return bool(self._poll.poll(0))
        return bool(select.select([self._socket], [], [], 0)[0])

    def close(self) -> None:
        self._socket.close()

    def ask(self, head: bytes, body: bytes | None, bare: bool, limit: float) -> Answer:
        """Send a request and read its answer, which has no body when it is `bare`."""
        self.lasting = False
        refused = False
        try:
            given_s = _left_s(limit)
        except TimeoutError as error:
            raise NoConnection(str(error)) from None
        self._socket.settimeout(given_s)
        try:
            if body is None or len(body) <= _JOINED_BYTES:
                self._socket.sendall(head + body if body else head)
            else:
                self._socket.sendall(head)
                self._socket.sendall(body)
        except (BrokenPipeError, ConnectionResetError):
            refused = True  # it may have said why before it hung up
        reading = self._reading
        if body is not None and len(body) > _AT_ONCE_BYTES:  # sending it may have taken long
            self._socket.settimeout(_left_s(limit))
        piece = self._socket.recv(_PIECE_BYTES)
        found = reading.whole(piece, 0, bare)
        if found is not None and found[1] == len(piece):
            self.lasting = not refused
            return found[0]
        steps = reading.answer(bare)
        try:
            next(steps)
            while True:
                if not piece:
                    raise reading.cut()
                steps.send(piece)
                self._socket.settimeout(given_s if reading.in_body else _left_s(limit))
                piece = self._socket.recv(_PIECE_BYTES)
        except StopIteration as done:
            answer: Answer = done.value
        self.lasting = reading.lasting and not (refused or reading.rest)
        return answer


def _left_s(limit: float) -> float:
    left_s = limit - time.monotonic()
    if left_s <= 0:
        raise TimeoutError("timed out")
    return min(left_s, _LONGEST_S)


def failure(kind: type[Failure], error: OSError) -> Failure:
    """What the system or TLS says, as one of ours."""
    found = kind(str(error) or type(error).__name__)
    # TLS has names of its own for a connection that was cut; that is no reason to give up.
    cut = isinstance(error, (ssl.SSLEOFError, ssl.SSLZeroReturnError))
    found.final = isinstance(error, ssl.SSLError) and not cut
    return found
