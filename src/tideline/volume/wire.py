"""How a client and a node of a volume talk: requests and answers over a stream, one at a time.

    address  := "HOST:PORT" | "unix:PATH"
    greeting := server: "TLvol1" | 32 random bytes
                client: 32 random bytes | HMAC-SHA256 of both with the secret
                server: HMAC-SHA256 of both, the other way round
    message  := length u32 | msgpack
                [verb, arguments], [0, result], or [1, kind of error, message, values]

Both sides prove that they have the secret; nothing is encrypted but by TLS. A stream is used by one
thread at a time, and closed after any error of it.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import socket
import ssl
import struct
from typing import Any

import msgspec

from tideline import errors
from tideline.errors import Corruption, InvalidRequest, TidelineError, Unauthorized, Unavailable

__all__ = ["Stream", "accept", "connect", "listen", "parse_address"]

MAX_BYTES = 72 << 20
_HELLO = b"TLvol1"
_LENGTH = struct.Struct("<I")
_GREETING_S = 10.0
Address = tuple[str, int] | str


def parse_address(text: str) -> Address:
    """(host, port), or the path of a unix socket.

    >>> parse_address("127.0.0.1:7000"), parse_address("unix:/run/v.sock")
    (('127.0.0.1', 7000), '/run/v.sock')
    """
    if text.startswith("unix:"):
        if not 0 < len(os.fsencode(text[5:])) < 108:
            raise InvalidRequest("the path of a unix socket has 1 to 107 bytes", address=text)
        return text[5:]
    host, _, port = text.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise InvalidRequest("an address is HOST:PORT or unix:PATH", address=text)
    return host.strip("[]"), int(port)


def listen(address: Address) -> socket.socket:
    """A socket that waits for connections; a unix socket that nobody listens on is replaced."""
    family = socket.AF_UNIX
    if not isinstance(address, str):
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    server = socket.socket(family)
    try:
        if isinstance(address, str):
            _replace(address)
            server.bind(address)
            os.chmod(address, 0o600)
        else:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            server.bind(address)
        server.listen(64)
    except OSError as error:
        server.close()
        reason = error.strerror or str(error)
        raise Unavailable(f"cannot listen: {reason}", address=address) from error
    except BaseException:
        server.close()
        raise
    return server


def _replace(path: str) -> None:
    if os.path.exists(path):
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(path)
            except ConnectionRefusedError:
                os.unlink(path)
                return
        raise Unavailable("another process listens on this socket", address=path)


class Stream:
    """One connection."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock

    def send(self, message: Any) -> None:
        """Send one message."""
        data = msgspec.msgpack.encode(message)
        self.sock.sendall(_LENGTH.pack(len(data)) + data)

    def receive(self) -> Any:
        """The next message; `ConnectionError` when the other side left."""
        size = _LENGTH.unpack(self.exactly(4))[0]
        if size > MAX_BYTES:
            raise ConnectionError("a message is too large")
        return msgspec.msgpack.decode(self.exactly(size))

    def exactly(self, size: int) -> bytes:
        """So many bytes."""
        data = bytearray(size)
        view, at = memoryview(data), 0
        while at < size:
            got = self.sock.recv_into(view[at:])
            if not got:
                raise ConnectionError("the connection was closed")
            at += got
        return bytes(data)

    def call(self, verb: str, arguments: list[Any]) -> Any:
        """Ask, and wait for the answer; errors of the other side are raised here."""
        self.send([verb, arguments])
        try:
            answer = self.receive()
        except msgspec.DecodeError as error:
            raise ConnectionError("not an answer") from error
        if answer[0] == 0:
            return answer[1]
        raise _error(*answer[1:])

    def close(self) -> None:
        """Close it."""
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)
        self.sock.close()


def told(error: TidelineError) -> list[Any]:
    """An error as an answer."""
    kind = type(error)
    while kind.__name__ not in errors.__all__:
        kind = kind.__bases__[0]
    values = {name: str(value) for name, value in error.values.items()}
    message = str(error)
    cut = message.rfind(". ") if values else -1
    return [1, kind.__name__, message[:cut] if cut > 0 else message, values]


def _error(kind: str, message: str, values: dict[str, str]) -> TidelineError:
    found = getattr(errors, kind) if kind in errors.__all__ else TidelineError
    if found is Corruption:
        return Corruption(message, **{"file": "another replica", **values})
    made: TidelineError = found(message, **values)
    return made


def _proof(secret: bytes, first: bytes, second: bytes) -> bytes:
    return hmac.digest(secret, first + second, "sha256")


def accept(sock: socket.socket, secret: bytes, tls: ssl.SSLContext | None) -> Stream:
    """The server's side of the greeting; `ConnectionError` for who has not the secret."""
    stream = Stream(sock)
    try:
        sock.settimeout(_GREETING_S)
        if tls is not None:
            stream.sock = sock = tls.wrap_socket(sock, server_side=True)
        ours = os.urandom(32)
        sock.sendall(_HELLO + ours)
        theirs = stream.exactly(32)
        if not hmac.compare_digest(stream.exactly(32), _proof(secret, ours, theirs)):
            raise ConnectionError("wrong secret")
        sock.sendall(_proof(secret, theirs, ours))
        sock.settimeout(None)
    except BaseException:
        stream.close()
        raise
    return stream


def connect(
    address: Address, secret: bytes, tls: ssl.SSLContext | None, timeout_s: float
) -> Stream:
    """A connection to a node; `ConnectionError` and `OSError` when there is none."""
    if isinstance(address, str):
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(timeout_s)
        try:
            sock.connect(address)
        except OSError:
            sock.close()
            raise
    else:
        sock = socket.create_connection(address, timeout=timeout_s)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    stream = Stream(sock)
    try:
        if tls is not None:
            host = address if isinstance(address, str) else address[0]
            stream.sock = sock = tls.wrap_socket(sock, server_hostname=host)
        if stream.exactly(len(_HELLO)) != _HELLO:
            raise InvalidRequest("what listens there is no node of a volume", address=address)
        theirs, ours = stream.exactly(32), os.urandom(32)
        sock.sendall(ours + _proof(secret, theirs, ours))
        try:
            answer = stream.exactly(32)
        except ConnectionError:
            raise Unauthorized("the node has another secret", address=address) from None
        if not hmac.compare_digest(answer, _proof(secret, ours, theirs)):
            raise Unauthorized("the node has another secret", address=address)
    except BaseException:
        stream.close()
        raise
    return stream
