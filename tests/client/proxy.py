"""A TCP proxy that cuts connections: at chosen bytes, all at once, or not at all.

    client --> proxy --> server

A connection gets an allowance, in bytes of both directions together, or of what the server says
alone; when it is used up, both ends are reset in the middle of whatever they were saying. Two
threads a connection.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Any

RESET = struct.pack("ii", 1, 0)  # linger for no time: the other end sees a reset


class Proxy:
    """Forwards to 127.0.0.1:`port`. `allow` gives the bytes a new connection may carry.

    `only_back`: it counts what the server says, and nothing else.
    """

    def __init__(self, port: int, allow: Callable[[], int | None] = lambda: None) -> None:
        self.target = port
        self.allow = allow
        self.only_back = False
        self.cuts = 0
        """Connections that were cut."""
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self._lock = threading.Lock()
        self._open: set[_Pair] = set()
        self._closed = False
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def cut(self) -> int:
        """Cut every connection now; how many there were."""
        with self._lock:
            pairs = list(self._open)
        for pair in pairs:
            pair.cut()
        return len(pairs)

    def close(self) -> None:
        self._closed = True
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._thread.join(10)
        self.cut()

    def _accept(self) -> None:
        while not self._closed:
            try:
                near, _ = self._server.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self.target), timeout=5)
            except OSError:
                near.close()
                continue
            far.settimeout(None)
            for end in (near, far):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            pair = _Pair(self, near, far, self.allow(), self.only_back)
            with self._lock:
                self._open.add(pair)
            pair.start()

    def _over(self, pair: _Pair, was_cut: bool) -> None:
        with self._lock:
            if pair in self._open:
                self._open.discard(pair)
                self.cuts += was_cut


class _Pair:
    """One connection and its two ends."""

    def __init__(
        self, proxy: Proxy, near: Any, far: Any, left: int | None, only_back: bool
    ) -> None:
        self._proxy = proxy
        self._ends = (near, far)
        self._left = left
        self._counted = (far,) if only_back else (near, far)
        self._lock = threading.Lock()

    def start(self) -> None:
        near, far = self._ends
        for source, sink in ((near, far), (far, near)):
            threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    def cut(self) -> None:
        self._proxy._over(self, was_cut=True)
        self._reset()

    def _reset(self) -> None:
        for end in self._ends:
            with contextlib.suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)  # wakes the thread that reads it
            end.close()

    def _pump(self, source: Any, sink: Any) -> None:
        try:
            while data := source.recv(65_536):
                with self._lock:
                    if self._left is not None and source in self._counted:
                        allowed = min(len(data), self._left)
                        self._left -= allowed
                        data, cut = data[:allowed], self._left == 0
                    else:
                        cut = False
                if data:
                    sink.sendall(data)
                if cut:
                    self.cut()
                    return
        except OSError:
            pass
        self._proxy._over(self, was_cut=False)
        self._reset()


@contextlib.contextmanager
def proxied(port: int, allow: Callable[[], int | None] = lambda: None) -> Iterator[Proxy]:
    proxy = Proxy(port, allow)
    try:
        yield proxy
    finally:
        proxy.close()
