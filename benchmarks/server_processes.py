"""The processes of benchmarks/server.py: what is measured, what loads it, and who disturbs it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

import psutil

from benchmarks import common
from benchmarks.peers import redis

__all__ = ["System", "Usage", "ask", "child", "serve_until_told", "systems"]

_spawn = get_context("spawn")


@dataclass(frozen=True)
class System:
    """A server that is measured."""

    port: int
    pid: int


def serve(pipe: Any, folder: str) -> None:
    """The process of `tideline serve`: one channel, no limit on the rate of one caller."""
    serve_until_told(pipe, folder, lambda database: database.channel("bench"))


def serve_until_told(pipe: Any, folder: str, make: Callable[[Any], Any], **limits: int) -> None:
    """Serve what `make` makes; tell the pipe where, and end when something comes through it."""
    import os
    import signal
    import threading

    import tideline
    from tideline.server import Settings
    from tideline.server import serve as run

    def stop() -> None:
        pipe.recv()  # until it is told to
        os.kill(os.getpid(), signal.SIGTERM)

    def started(url: str) -> None:
        pipe.send(System(int(url.rpartition(":")[2]), os.getpid()))
        threading.Thread(target=stop, daemon=True).start()

    with tideline.open(folder) as database:
        make(database)
        run(database, Settings(port=0, rate_per_s=1e9, **limits), started=started)


@contextmanager
def child(target: Any, *arguments: Any) -> Iterator[Any]:
    """A process that obeys a pipe; gives the pipe."""
    near, far = _spawn.Pipe()
    process = _spawn.Process(target=target, args=(far, *arguments), daemon=True)
    process.start()
    far.close()
    try:
        yield near
        near.send(("stop",))
        process.join(20)
    finally:
        if process.is_alive():
            process.terminate()
        process.join()


def ask(pipe: Any, *order: Any, timeout_s: float = 300.0) -> Any:
    """Send an order and wait for what comes of it."""
    pipe.send(order)
    if not pipe.poll(timeout_s):
        raise SystemExit(f"no answer to {order[0]!r} within {timeout_s:.0f} s")
    return pipe.recv()


@contextmanager
def systems() -> Iterator[dict[str, System]]:
    """What is measured, all of it running: Tideline on a new folder, and Redis."""
    with ExitStack() as stack:
        folder = stack.enter_context(common.scratch())
        pipe = stack.enter_context(child(serve, str(folder / "db")))
        yield {"tideline": pipe.recv(), "redis": System(*stack.enter_context(redis.running()))}


class Usage:
    """How many cores were used since this was made: by one process; by others and the host."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self._time, self._own, self._others = time.monotonic(), self._used(), self._foreign()

    def cores(self) -> tuple[float, float]:
        """(the process, others)."""
        span = time.monotonic() - self._time
        return (self._used() - self._own) / span, max(0.0, (self._foreign() - self._others) / span)

    def _used(self) -> float:
        used = self._process.cpu_times()
        return float(used.user + used.system)

    def _foreign(self) -> float:
        times, own = psutil.cpu_times(), psutil.Process()
        ours = 0.0
        for process in [own, *own.children(recursive=True)]:
            with suppress(psutil.NoSuchProcess):
                used = process.cpu_times()
                ours += used.user + used.system
        # What the machine's host took away (steal) is as lost to us as what a program used.
        taken = times.user + times.nice + times.system + getattr(times, "steal", 0.0)
        return float(taken - ours)
