"""Tideline as a server: `tideline serve` in a process of its own, `tideline.connect` in this one.

Batches go as Arrow tables over HTTP (`RemoteChannel.apply`); a single row is `publish` over HTTP or
`subscribe` over the live connection. Durability is the default, as in peers/tideline.py.

The process is what `tideline serve` runs, with two differences: no limit on the rate of one caller,
and a clock that reads the workload's time from a file that both processes map, so that a single
`subscribe`, which counts from the server's now, is judged at the time of its row.
"""

from __future__ import annotations

import math
import mmap
import os
import subprocess
import sys
import threading
from importlib import metadata
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from benchmarks.peers.base import Given, Peer
from benchmarks.peers.columns import folder_bytes
from benchmarks.peers.tideline import (
    CHANNEL,
    Single,
    answers_of,
    call,
    delivered,
    memory_of,
    single,
    space_of,
)

__all__ = ["TidelineServerPeer"]

_ROOT = Path(__file__).resolve().parents[2]


class MappedClock:
    """A time in a file, read and set by any process."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(bytes(8))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 8)
        self._time = np.frombuffer(self._map, np.int64)

    def now(self) -> int:
        return int(self._time[0])

    def set(self, us: int) -> None:
        """Move it."""
        self._time[0] = us

    def wait(self, condition: threading.Condition, until: int) -> None:
        condition.wait(0.05)


class TidelineServerPeer(Peer):
    """A channel of a server beside this process."""

    name: ClassVar[str] = "tideline server"

    @classmethod
    def missing(cls) -> str | None:
        try:
            import starlette  # noqa: F401
            import uvicorn  # noqa: F401
            import websockets  # noqa: F401
        except ImportError as error:
            return f"the extras server and client ({error.name})"
        return None

    @classmethod
    def version(cls) -> str:
        return f"Tideline {metadata.version('tideline')}"

    def __init__(self, given: Given) -> None:
        import tideline

        self._folder = given.folder
        self._clock = MappedClock(given.folder / "clock")
        settings = [str(given.folder), str(memory_of(given))]
        path = os.pathsep.join([str(_ROOT / "src"), str(_ROOT), os.environ.get("PYTHONPATH", "")])
        self._server = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.peers.tideline_server", *settings],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=_ROOT,
            env=os.environ | {"PYTHONPATH": path},
        )  # fmt: skip
        assert self._server.stdout is not None
        url = self._server.stdout.readline().strip()
        if not url:
            raise RuntimeError(f"tideline serve ended with {self._server.wait()}")
        self._remote = tideline.connect(url, timeout_s=600)
        self._channel = self._remote.channel(CHANNEL, space=space_of(given), max_ahead_s=math.inf)

    def prepare(self, operations: pa.RecordBatch) -> Any:
        if operations.num_rows == 1:
            return single(operations)
        return pa.Table.from_batches([operations])

    def apply(self, prepared: Any) -> Any:
        if not isinstance(prepared, Single):
            return self._channel.apply(prepared)
        self._clock.set(prepared.us)
        return call(self._channel, prepared)

    def answers(self, outcome: Any) -> np.ndarray:
        return answers_of(outcome)

    def deliver(self, count: int) -> list[float]:
        return delivered(self._channel, count)

    def processes(self) -> list[int]:
        return [self._server.pid]

    def disk_bytes(self) -> int:
        return folder_bytes(self._folder / "db")

    def crash(self) -> None:
        self._server.kill()
        self._server.wait()

    def close(self) -> None:
        self._remote.close()
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.close()  # it stops when nobody holds the other end
        try:
            self._server.wait(20)
        except subprocess.TimeoutExpired:
            self._server.kill()
            self._server.wait()
        self._server.stdout.close()


def main(folder: str, memory_mb: str) -> None:
    """The process of the server: until its input ends."""
    import signal

    import tideline
    from tideline.server import Settings, serve

    def stop() -> None:
        sys.stdin.read()
        os.kill(os.getpid(), signal.SIGTERM)

    def started(url: str) -> None:
        print(url, flush=True)
        threading.Thread(target=stop, daemon=True).start()

    clock = MappedClock(Path(folder) / "clock")
    many = 1 << 30
    settings = Settings(
        port=0, rate_per_s=1e9, subscriptions_per_user=many, subscriptions_per_connection=many,
        batch_bytes=many,
    )  # fmt: skip
    with tideline.open(Path(folder) / "db", clock=clock, memory_mb=int(memory_mb)) as database:
        serve(database, settings, started=started)


if __name__ == "__main__":
    main(*sys.argv[1:])
