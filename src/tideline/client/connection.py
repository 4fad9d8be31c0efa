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

import re
import select
import socket
import ssl
import threading
import time
from collections.abc import Mapping
from functools import lru_cache

__all__ = ["Answer", "Broken", "NoConnection", "Pool"]

_KEPT = 8  # connections that stay open between calls
_HEAD_BYTES = 65_536  # the longest head of an answer, line of a chunk, or trailers
_PIECE_BYTES = 65_536  # read at once
_LONGEST_S = 1e6  # sockets know no longer wait
_JOINED_BYTES = 1 << 20  # a longer body is not copied behind its head
_STATUS = re.compile(r"HTTP/1\.([01]) ([1-9]\d\d)(?: .*)?", re.ASCII | re.DOTALL)
_BLANK = " \t"
_TLS_ALERT = b"\x15\x03"  # what a server that wants TLS may say to a request without
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;.*)?", re.DOTALL)


class _Failure(Exception):
    final = False
    """Whether trying again cannot help: a certificate that is not trusted."""


class NoConnection(_Failure):
    """There is no connection; nothing was sent."""


class Broken(_Failure):
    """The connection broke, or said what is no answer, after sending had begun."""


class Answer:
    """What the server said; the names of `headers` are in lower case."""

    __slots__ = ("data", "headers", "status")

    def __init__(self, status: int, headers: dict[str, str], data: bytes) -> None:
        self.status = status
        self.headers = headers
        self.data = data


class Pool:
    """The connections to one server."""

    def __init__(
        self, host: str, port: int | None, headers: Mapping[str, str],
        tls: ssl.SSLContext | None = None,
    ) -> None:  # fmt: skip
        """`host` in ASCII, without brackets; `tls` makes it https."""
        usual = 80 if tls is None else 443
        self._address = (host, usual if port is None else port)
        self._tls = tls
        if tls is not None:
            tls.set_alpn_protocols(["http/1.1"])
        self._name = host.partition("%")[0].rstrip(".")  # without the zone of a local address
        named = f"[{self._name}]" if ":" in host else host
        fields = {
            "Host": named if port in (None, usual) else f"{named}:{port}",
            "User-Agent": "tideline", "Accept": "*/*", "Accept-Encoding": "identity", **headers,
        }  # fmt: skip
        lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        self._head = f" HTTP/1.1\r\n{lines}"
        self._lock = threading.Lock()
        self._idle: list[_Connection] = []
        self._closed = False

    def request(
        self, method: str, target: str, kind: str | None, body: bytes | None, limit: float
    ) -> Answer:
        """Ask, and read the answer. `target` is quoted; `kind` is the body's Content-Type."""
        if body is not None:
            length = f"Content-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
        else:
            length = "\r\n" if method in ("GET", "HEAD", "DELETE") else "Content-Length: 0\r\n\r\n"
        head = f"{method} {target}{self._head}{length}".encode("ascii")
        connection = self._take() or self._connect(limit)
        try:
            answer = connection.ask(head, body, method == "HEAD", limit)
        except BaseException as error:
            connection.close()
            if not isinstance(error, OSError):
                raise
            raise _failure(Broken, error) from None
        self._give_back(connection)
        return answer

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
                if not self._closed and len(self._idle) < _KEPT:
                    self._idle.append(connection)
                    return
        connection.close()

    def _connect(self, limit: float) -> _Connection:
        try:
            return _Connection(self.connect(limit))
        except OSError as error:
            raise _failure(NoConnection, error) from None

    def connect(self, limit: float) -> socket.socket:
        """A connected socket for anything: the first of the host's addresses that takes one."""
        found = socket.getaddrinfo(*self._address, type=socket.SOCK_STREAM)
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
                if self._tls is None:
                    return raw
                raw.settimeout(_left_s(limit))
                return self._tls.wrap_socket(raw, server_hostname=self._name)
            except BaseException as error:
                raw.close()
                if not isinstance(error, OSError) or isinstance(error, ssl.SSLError):
                    raise
                failed = error
        raise failed


class _Connection:
    """A connected socket; one request at a time."""

    def __init__(self, connected: socket.socket) -> None:
        self._used = False  # it has given an answer
        self._hint = "" if isinstance(connected, ssl.SSLSocket) else ": the server may want https"
        self.lasting = False
        """Whether it can carry another request."""
        self._socket = connected
        self._buffer, self._at = b"", 0  # what was read, and how much of it was used
        self._limit = 0.0
        self._patience_s = 0.0  # for each piece of a body; 0 while the head is read
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
        self._limit = limit
        refused = False
        self._patience_s = 0.0
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
        while True:
            version, status, headers = self._head()
            if status >= 200:
                break
            if status == 101:
                raise Broken("the answer is of another protocol")
        self._patience_s = given_s
        coding, length = headers.get("transfer-encoding"), headers.get("content-length")
        if bare or status in (204, 304):
            data = b""
        elif coding is not None:
            if coding.lower() != "chunked":
                raise Broken(f"the answer is coded: {coding[:100]}")
            data = self._chunks()
        elif length is None:
            raise Broken("the answer was cut: it has no length")
        elif not (length.isascii() and length.isdigit() and len(length) < 19):
            raise Broken(f"the answer has no length: {length[:100]}")
        else:
            data = self._exactly(int(length))
        ends = "close" in headers.get("connection", "").lower()
        both = coding is not None and length is not None  # where it ends is disputed
        more = len(self._buffer) > self._at
        self.lasting = not (refused or ends or both or more or version == "0")
        self._used = True
        return Answer(status, headers, data)

    def _head(self) -> tuple[str, int, dict[str, str]]:
        """The minor version, the status and the headers."""
        first, *lines = self._until(b"\r\n\r\n").decode("latin-1").split("\r\n")
        found = _STATUS.fullmatch(first)
        if found is None:
            raise Broken(f"this is no HTTP: {first[:100]}")
        headers: dict[str, str] = {}
        name = ""
        for line in lines:
            if line[:1] in _BLANK and name:  # an old way to go on with a value
                headers[name] += " " + line.strip(_BLANK)
                continue
            name, value = _field(line)
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
        return found[1], int(found[2]), headers

    def _chunks(self) -> bytes:
        """A body in chunks, and the trailers after it, which nobody needs."""
        parts = []
        while True:
            line = self._until(b"\r\n")
            found = _CHUNK.fullmatch(line)
            if found is None:
                raise Broken(f"the answer has a chunk without a size: {line[:100]!r}")
            size = int(found[1], 16)
            if not size:
                break
            parts.append(self._exactly(size))
            if self._exactly(2) != b"\r\n":
                raise Broken("the answer has a chunk that is longer than its size")
        trailers = 0
        while line := self._until(b"\r\n"):
            trailers += len(line)
            if trailers > _HEAD_BYTES:
                raise Broken("the answer's trailers do not end")
        return b"".join(parts)

    def _until(self, mark: bytes) -> bytes:
        """What comes before a mark; the mark is passed over."""
        while (end := self._buffer.find(mark, self._at)) < 0:
            rest = self._buffer[self._at :]
            if len(rest) > _HEAD_BYTES:
                raise Broken("the answer's head does not end")
            self._buffer, self._at = rest + self._more(), 0
            if self._hint and not self._patience_s and self._buffer.startswith(_TLS_ALERT):
                failure = Broken(f"the answer is TLS{self._hint}")
                failure.final = True
                raise failure
        found = self._buffer[self._at : end]
        self._at = end + len(mark)
        return found

    def _exactly(self, count: int) -> bytes:
        """The next bytes."""
        found = self._buffer[self._at : self._at + count]
        self._at += len(found)
        left = count - len(found)
        if not left:
            return found
        parts = [found]
        while left:
            self._buffer = self._more()
            self._at = min(left, len(self._buffer))
            parts.append(self._buffer[: self._at])
            left -= self._at
        return b"".join(parts)

    def _more(self) -> bytes:
        self._socket.settimeout(self._patience_s or _left_s(self._limit))
        piece = self._socket.recv(_PIECE_BYTES)
        if not piece:
            silent = not (self._used or self._patience_s or self._buffer)
            raise Broken("the answer was cut" + (f" off{self._hint}" if silent else ""))
        return piece


@lru_cache(64)  # a server says most of them again and again
def _field(line: str) -> tuple[str, str]:
    """The name of a header, in lower case, and its value."""
    name, colon, value = line.partition(":")
    if not colon or not _NAME.fullmatch(name):
        raise Broken(f"the answer has a header that is none: {line[:100]}")
    return name.lower(), value.strip(_BLANK)


def _left_s(limit: float) -> float:
    left_s = limit - time.monotonic()
    if left_s <= 0:
        raise TimeoutError("timed out")
    return min(left_s, _LONGEST_S)


def _failure(kind: type[_Failure], error: OSError) -> _Failure:
    """What the system or TLS says, as one of ours."""
    failure = kind(str(error) or type(error).__name__)
    # TLS has names of its own for a connection that was cut; that is no reason to give up.
    cut = isinstance(error, (ssl.SSLEOFError, ssl.SSLZeroReturnError))
    failure.final = isinstance(error, ssl.SSLError) and not cut
    return failure
