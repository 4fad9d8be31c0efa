"""Compiling kernels on all cores: `python -m tideline.kernels.workers GROUP ...`.

numba compiles under one lock, so this takes processes. One infers types, which has to go down
the tree of calls; each function whose types are known is then lowered by a forked copy of it
(kernels/compiler.py), as many at a time as there are cores. A copy that needs what another is
still busy with waits for that file; it was begun earlier, so the waiting ends.

It is a process of its own, with one thread: the process of a user has threads and cannot be
forked. Whoever comes second waits until the first is done, and finds everything there.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import fcntl
import gc
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tideline.kernels import cache
from tideline.kernels.compiler import Task, run_with

__all__ = ["compile_kernels"]

_POLL_S = 0.002
_SHARE = 8
Say = Callable[[int, int, str], None]


class Workers:
    """Forked copies of this process, each with some functions to lower."""

    def __init__(self, cores: int) -> None:
        self._cores = cores
        self._count = max(1, cores - 1)  # one core is for this process, while it infers
        self._parent = os.getppid()
        self._waiting: collections.deque[tuple[str, Task]] = collections.deque()
        self._running: dict[int, str] = {}

    def run(self, name: str, task: Task) -> None:
        """Lower soon."""
        self._waiting.append((name, task))
        self._turn()

    def finish(self) -> None:
        """Wait until everything is lowered."""
        self._count = self._cores
        while self._waiting or self._running:
            self._turn()
            time.sleep(_POLL_S)

    def stop(self) -> None:
        """End all copies."""
        self._waiting.clear()
        for pid in self._running:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
        self._running.clear()

    def _turn(self) -> None:
        if os.getppid() != self._parent:  # whoever wanted this is gone
            raise SystemExit(1)
        for pid, name in list(self._running.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                del self._running[pid]
                if status:
                    raise RuntimeError(f"a kernel was not compiled. name={name!r}")
        while self._waiting and len(self._running) < self._count:
            # A copy costs tens of milliseconds: it takes several of many that wait. It takes them
            # in the order they came, so it never waits for one that was begun after it.
            share = min(_SHARE, -(-len(self._waiting) // self._count))
            taken = [self._waiting.popleft() for _ in range(share)]
            pid = os.fork()
            if pid == 0:
                _lower_and_exit([task for _, task in taken])
            self._running[pid] = ", ".join(name for name, _ in taken)


def _lower_and_exit(tasks: list[Task]) -> None:
    """What a copy does."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    parent = os.getppid()

    def wait(name: str) -> None:
        while not cache.has(name):
            if os.getppid() != parent:
                os._exit(1)
            time.sleep(_POLL_S)

    run_with(wait=wait)
    code = 1
    try:
        for task in tasks:
            task()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def compile_kernels(todo: Sequence[tuple[Any, tuple[Any, ...]]], say: Say) -> None:
    """Compile kernels for types into the cache; `say(number, total, name)` before each."""
    workers = Workers(max(1, len(os.sched_getaffinity(0))))
    gc.collect()
    gc.freeze()
    gc.disable()  # nothing that numba makes is garbage before the end
    run_with(workers.run)
    try:
        for number, (kernel, types) in enumerate(todo, start=1):
            say(number, len(todo), kernel.py_func.__name__)
            kernel.prepare(types)
        workers.finish()
    finally:
        workers.stop()
        run_with()
        gc.enable()


@contextlib.contextmanager
def _alone(group: str) -> Iterator[None]:
    """One process at a time compiles a group for a cache."""
    folder = cache.cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / f"LOCK-{group}", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _to_terminal(number: int, total: int, name: str) -> None:
    print(f"\r  [{number:2}/{total}] {name:20}\r", end="", file=sys.stderr, flush=True)


def _as_line(number: int, total: int, name: str) -> None:
    print(f"tideline: [{number:2}/{total}] {name}", file=sys.stderr, flush=True)


def _leave(*_: Any) -> None:
    raise SystemExit(1)  # the copies are ended on the way out


def main(words: Sequence[str]) -> None:
    """Compile groups of kernels (kernels/warm.py), with progress on a terminal."""
    from tideline.kernels import warm

    parser = argparse.ArgumentParser()
    parser.add_argument("--lines", action="store_true", help="print a line for each kernel")
    parser.add_argument("--beside", action="store_true", help="yield to other processes")
    parser.add_argument("groups", nargs="+", choices=warm.GROUPS)
    given = parser.parse_args(words)
    if given.beside:
        os.nice(5)
    signal.signal(signal.SIGTERM, _leave)

    def say(number: int, total: int, name: str) -> None:
        if given.lines:
            _as_line(number, total, name)
        elif sys.stderr.isatty():
            _to_terminal(number, total, name)

    for group in given.groups:
        with _alone(group):
            todo = [
                (kernel, types) for kernel, types in warm.kernels(group)
                if not cache.has(kernel.entry_name(types))
            ]  # fmt: skip
            compile_kernels(todo, say)


if __name__ == "__main__":
    main(sys.argv[1:])
