"""Redis pub/sub as a peer: Debian's redis-server on a free port of this machine, and its protocol.

Started without persistence (pub/sub stores nothing anyway) and stopped with the benchmark.
"""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["MISSING", "command", "running", "version"]

MISSING = "redis-server is not installed (apt-get install redis-server)"


@contextmanager
def running() -> Iterator[tuple[int, int]]:
    """A server; gives its port and its process."""
    binary = shutil.which("redis-server")
    if binary is None:
        raise SystemExit(MISSING)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    process = subprocess.Popen(
        [binary, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no",
         "--client-output-buffer-limit", "pubsub 0 0 0"],
        stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        limit = time.monotonic() + 10
        while True:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                if time.monotonic() > limit or process.poll() is not None:
                    raise SystemExit("redis-server does not start") from None
                time.sleep(0.02)
        yield port, process.pid
    finally:
        process.terminate()
        process.wait(10)


def version() -> str:
    """What is installed, or that nothing is."""
    binary = shutil.which("redis-server")
    if binary is None:
        return "absent"
    said = subprocess.run([binary, "--version"], capture_output=True, text=True, check=False)
    found = re.search(r"v=([0-9.]+)", said.stdout)
    return found[1] if found else "unknown"


def command(*parts: bytes) -> bytes:
    """A command as Redis reads it.

    >>> command(b"PUBLISH", b"a", b"hi")
    b'*3\\r\\n$7\\r\\nPUBLISH\\r\\n$1\\r\\na\\r\\n$2\\r\\nhi\\r\\n'
    """
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%b\r\n" % (len(p), p) for p in parts)
