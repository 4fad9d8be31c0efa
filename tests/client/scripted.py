"""A server that says what a test tells it to, byte for byte.

    with scripted([b"HTTP/1.1 200 OK...", CLOSE], [b"..."]) as server:

Each request is met by the next script: bytes are sent, `ECHO` sends the request's body back,
`CLOSE` ends the connection, a function is called with the socket. A thread a connection; what was
asked is in `asked`, in order.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from typing import Any

CLOSE, ECHO = object(), object()
GUARD_S = 30.0
Step = Any  # bytes, CLOSE, ECHO or Callable[[socket.socket], None]


class Scripted:
    """Listens on a port of this machine."""

    def __init__(self, scripts: list[list[Step]], tls: ssl.SSLContext | None) -> None:
        self.asked: list[tuple[int, bytes]] = []
        """The number of the connection, and the request, for each that came whole."""
        self.connections = 0
        self._scripts = scripts
        self._tls = tls
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._threads[0].join(GUARD_S)
        for end in self._open:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(GUARD_S)
            assert not thread.is_alive()

    def _accept(self) -> None:
        while True:
            try:
                end, _ = self._listening.accept()
            except OSError:
                return
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._open.append(end)
            thread = threading.Thread(target=self._serve, args=(end, self.connections), daemon=True)
            self.connections += 1
            self._threads.append(thread)
            thread.start()

    def _serve(self, end: socket.socket, number: int) -> None:
        try:
            if self._tls is not None:
                end = self._tls.wrap_socket(end, server_side=True)
            with end:
                while request := _request(end):
                    with self._lock:
                        self.asked.append((number, request))
                        steps = self._scripts.pop(0)
                    for step in steps:
                        if step is CLOSE:
                            return
                        elif step is ECHO:
                            body = request.partition(b"\r\n\r\n")[2]
                            length = b"Content-Length: %d\r\n\r\n" % len(body)
                            end.sendall(b"HTTP/1.1 200 OK\r\n" + length + body)
                        elif callable(step):
                            step(end)
                        else:
                            end.sendall(step)
        except OSError:
            pass  # the other end has had enough


def _request(end: socket.socket) -> bytes:
    """One whole request; nothing when the other end hung up."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = end.recv(65_536)
        if not piece:
            return b""
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    length = 0
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    while len(body) < length:
        piece = end.recv(65_536)
        if not piece:
            return b""
        body += piece
    return head + b"\r\n\r\n" + body


@contextlib.contextmanager
def scripted(*scripts: list[Step], tls: ssl.SSLContext | None = None) -> Iterator[Scripted]:
    server = Scripted(list(scripts), tls)
    try:
        yield server
    finally:
        server.close()


def call(function: Callable[[], Any]) -> Callable[[socket.socket], None]:
    """A step that does not care for the socket."""
    return lambda _: function()
