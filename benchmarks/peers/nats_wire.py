"""nats-server with JetStream on a free port of this machine, and its protocol by hand.

The text protocol of NATS is small, and a loop over a buffer is faster than nats-py, which hands
every message through queues and tasks (figures in nats.py).
"""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["MISSING", "Message", "Server", "Wire", "header", "token", "version"]

MISSING = "nats-server is not installed (apt-get install nats-server)"
START_LIMIT_S = 60.0
_LOCAL = "127.0.0.1"


def _binary() -> str | None:
    return shutil.which("nats-server") or shutil.which("nats-server", path="/usr/sbin")


def version() -> str:
    """What is installed, or that nothing is."""
    binary = _binary()
    if binary is None:
        return "absent"
    said = subprocess.run([binary, "--version"], capture_output=True, text=True, check=False)
    found = re.search(r"v([0-9.]+)", said.stdout)
    return found[1] if found else "unknown"


class Server:
    """nats-server with its streams in `folder`."""

    def __init__(self, folder: Path, memory_mb: int | None = None) -> None:
        binary = _binary()
        if binary is None:
            raise RuntimeError(MISSING)
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        with socket.create_server((_LOCAL, 0)) as free:
            self.port: int = free.getsockname()[1]
        settings = folder / "nats.conf"
        settings.write_text(
            f'listen: "{_LOCAL}:{self.port}"\nmax_pending: 1GB\n'
            f'jetstream {{ store_dir: "{folder / "streams"}", max_file_store: 100GB }}\n'
        )
        memory = {} if memory_mb is None else {"GOMEMLIMIT": f"{memory_mb}MiB"}
        self.process = subprocess.Popen(
            [binary, "-c", str(settings)],
            stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT, env={**os.environ, **memory},
        )  # fmt: skip
        limit = time.monotonic() + START_LIMIT_S
        while True:
            try:
                socket.create_connection((_LOCAL, self.port)).close()
                return
            except OSError:
                if time.monotonic() > limit or self.process.poll() is not None:
                    self.kill()
                    raise RuntimeError("nats-server does not start") from None
                time.sleep(0.01)

    def stop(self) -> None:
        """Ask it to end, and wait until it has."""
        self.process.terminate()
        self.process.wait()

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        self.process.wait()


class Message(NamedTuple):
    """What came in; `head` is empty where there is none."""

    subject: bytes
    sid: int
    reply: bytes
    head: bytes
    body: bytes


class Wire:
    """One connection. What is written goes out with `flush`, or when much has gathered."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection((_LOCAL, port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._in = b""
        self._out: list[bytes] = []
        self._pongs = 0
        options = {"verbose": False, "pedantic": False, "headers": True, "no_responders": True}
        self.write(b"CONNECT " + json.dumps({**options, "lang": "python"}).encode() + b"\r\n")
        self.meet()

    def write(self, *parts: bytes) -> None:
        """Bytes of the protocol."""
        self._out += parts
        if len(self._out) > 4_000:
            self.flush()

    def publish(self, subject: bytes, reply: bytes, body: bytes) -> None:
        """PUB, answered at `reply`."""
        self.write(b"PUB %b %b %d\r\n%b\r\n" % (subject, reply, len(body), body))

    def flush(self) -> None:
        """Hand over what is written, reading meanwhile: the server may be writing too."""
        data = memoryview(b"".join(self._out))
        self._out.clear()
        self._socket.setblocking(False)
        try:
            while data:
                readable, writable, _ = select.select([self._socket], [self._socket], [])
                if readable:
                    self._take()
                if writable:
                    data = data[self._socket.send(data) :]
        finally:
            self._socket.setblocking(True)

    def _take(self) -> None:
        got = self._socket.recv(1 << 20)
        if not got:
            raise ConnectionResetError("nats-server has closed the connection")
        self._in += got

    def read(self, wait_s: float) -> list[Message]:
        """The messages that are there; waits for the first bytes at most so long."""
        if select.select([self._socket], [], [], wait_s)[0]:
            self._take()
        return list(self._parse())

    def meet(self) -> list[Message]:
        """Wait until the server has read all that was written; what came in meanwhile."""
        self.write(b"PING\r\n")
        self.flush()
        due, messages = self._pongs + 1, []
        while self._pongs < due:
            messages += self.read(1.0)
        return messages

    def request(self, subject: str, body: Any = None, *, wait_s: float = 10.0) -> Any:
        """A call of the JetStream API; only while nothing else is under way."""
        self.write(b"SUB _one 999999\r\n")
        self.publish(subject.encode(), b"_one", b"" if body is None else json.dumps(body).encode())
        self.flush()
        limit = time.monotonic() + wait_s
        while time.monotonic() < limit:
            for message in self.read(0.1):
                if message.sid == 999_999:
                    self.write(b"UNSUB 999999\r\n")
                    return json.loads(message.body) if message.body else None
        raise TimeoutError(f"no reply to {subject}")

    def _parse(self) -> Iterator[Message]:
        data, at = self._in, 0
        while True:
            end = data.find(b"\r\n", at)
            if end < 0:
                break
            line = data[at:end]
            kind = line[:4]
            if kind in (b"MSG ", b"HMSG"):
                words = line.split(b" ")
                size = int(words[-1])
                start = end + 2
                if len(data) < start + size + 2:
                    break
                head = int(words[-2]) if kind == b"HMSG" else 0
                plain = 5 if head else 4
                reply = words[3] if len(words) > plain else b""
                body = data[start + head : start + size]
                yield Message(words[1], int(words[2]), reply, data[start : start + head], body)
                at = start + size + 2
                continue
            if line == b"PING":
                self._out.append(b"PONG\r\n")
            elif line == b"PONG":
                self._pongs += 1
            elif kind == b"-ERR":
                raise RuntimeError(f"nats-server: {line.decode()}")
            at = end + 2
        self._in = data[at:]

    def close(self) -> None:
        """Hang up."""
        self._socket.close()


def token(place: bytes) -> bytes:
    """A place as part of a subject: as it is where it can be, else in hexadecimal."""
    parts = place.split(b".")
    if all(part.isalnum() and part.isascii() for part in parts) and parts[0] != b"x":
        return place
    return b"x." + place.hex().encode()


def header(head: bytes, name: bytes) -> bytes:
    """The value of a header.

    >>> header(b"NATS/1.0\\r\\nNats-Sequence: 7\\r\\n\\r\\n", b"Nats-Sequence")
    b'7'
    """
    start = head.index(name + b": ") + len(name) + 2
    return head[start : head.index(b"\r\n", start)]
