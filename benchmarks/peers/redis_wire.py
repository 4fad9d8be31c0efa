"""A durable redis-server on a Unix socket, and its protocol with many commands under way.

Commands are written as the bytes that go over the socket, replies are read by hiredis. redis-py,
which reads with hiredis too, spends most of its time on building commands: see redis_channel.py.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from benchmarks.peers.redis import MISSING, command

__all__ = ["Refused", "Server", "Wire"]

START_LIMIT_S = 120.0
AHEAD = 4
"""How many parts of a batch are on their way while the replies of an earlier one are read."""


class Refused(Exception):
    """An error that the server sent."""


class Server:
    """redis-server with an append-only file in `folder`; what was there before is loaded."""

    def __init__(self, folder: Path, memory_mb: int | None = None) -> None:
        binary = shutil.which("redis-server")
        if binary is None:
            raise RuntimeError(MISSING)
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        memory = () if memory_mb is None else ("--maxmemory", f"{memory_mb}mb")
        # Started inside the folder: the path of a Unix socket has at most 107 bytes.
        self.process = subprocess.Popen(
            [binary, "--port", "0", "--unixsocket", "socket", "--save", "", "--appendonly", "yes",
             "--appendfsync", "no", *memory, "--maxmemory-policy", "noeviction"],
            cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT,
            env={**os.environ, "LC_ALL": "C"},  # scripts compare bytes
        )  # fmt: skip
        self._wait()

    def _wait(self) -> None:
        limit = time.monotonic() + START_LIMIT_S
        while True:
            if self.process.poll() is not None or time.monotonic() > limit:
                self.kill()
                raise RuntimeError("redis-server does not start")
            try:
                wire = Wire(self.folder)
                try:
                    wire.call(b"PING")
                    return
                finally:
                    wire.close()
            except (OSError, Refused):  # not there yet, or still loading
                time.sleep(0.01)

    def stop(self) -> None:
        """Ask it to end, and wait until it has."""
        self.process.terminate()
        self.process.wait()

    def kill(self) -> None:
        """kill -9, of the child too that rewrites the append-only file now and then."""
        family = [self.process]
        with suppress(psutil.NoSuchProcess):
            family += psutil.Process(self.process.pid).children()
        for process in family:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self.process.wait()


class Wire:
    """One connection."""

    def __init__(self, folder: Path) -> None:
        import hiredis

        self._error = hiredis.ReplyError
        self._reader = hiredis.Reader()
        self._buffer = bytearray(1 << 18)
        self._socket = socket.socket(socket.AF_UNIX)
        at = os.open(folder, os.O_PATH)  # a short name for a folder of any length
        try:
            self._socket.connect(f"/proc/self/fd/{at}/socket")
        except OSError:
            self._socket.close()
            raise
        finally:
            os.close(at)

    def send(self, *parts: bytes) -> None:
        """One command; its reply is to be read."""
        self._socket.sendall(command(*parts))

    def push(self, data: bytes) -> None:
        """Commands as bytes; their replies are to be read."""
        self._socket.sendall(data)

    def read(self, count: int) -> list[Any]:
        """So many replies. All are read before an error among them is raised."""
        gets, replies, error = self._reader.gets, [], None
        while len(replies) < count:
            reply = gets()
            if reply is False:
                size = self._socket.recv_into(self._buffer)
                if not size:
                    raise ConnectionResetError("redis-server has closed the connection")
                self._reader.feed(self._buffer, 0, size)
                continue
            if isinstance(reply, self._error):
                error = error or reply
            replies.append(reply)
        if error is not None:
            raise Refused(str(error)) from error
        return replies

    def call(self, *parts: bytes) -> Any:
        """One command and its reply."""
        self.send(*parts)
        return self.read(1)[0]

    def run(self, parts: Iterable[tuple[bytes, int]]) -> list[list[Any]]:
        """Parts of a batch, each with how many replies it has; the replies of each.

        All replies are read before the first error among them is raised.
        """
        replies: list[list[Any]] = []
        errors: list[Refused] = []
        due: list[int] = []

        def take() -> None:
            try:
                replies.append(self.read(due.pop(0)))
            except Refused as error:
                errors.append(error)

        for data, count in parts:
            self._socket.sendall(data)
            due.append(count)
            if len(due) > AHEAD:
                take()
        while due:
            take()
        if errors:
            raise errors[0]
        return replies

    def close(self) -> None:
        """Hang up."""
        self._socket.close()
