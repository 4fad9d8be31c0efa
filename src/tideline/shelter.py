"""Work that nothing can cut in the middle: a thread runs it while the caller waits.

    caller   run -----> waits ------------> goes on, or raises what was thrown into it
    thread     `-- work, to its end --^

An exception may be thrown into a caller at any moment: Ctrl-C, a signal handler that raises,
another thread that calls PyThreadState_SetAsyncExc. Work of many steps under a lock must not end
between two of them. Here it cannot: only the waiting is interrupted, and that goes on until the
work has ended.

A caller that is interrupted again and again may get away while its work still runs. So whoever
takes the same lock next calls `finish` first (the engines do: `unfinished`). Work that had not
begun is then done.

An exception for the caller may hit the thread it has just started: until that runs, CPython has it
under the caller's number. The thread is gone then, before it has done anything, and the caller,
who looks now and then, starts another.

One caller at a time: the one that holds the lock which the shelter belongs to.
"""

from __future__ import annotations

import contextlib
import threading
from _thread import start_new_thread
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

__all__ = ["Shelter", "run_apart"]

T = TypeVar("T")
_LOOK_S = 0.05  # between two looks: a caller may have missed the end, or lost its thread


class _Job:
    """One piece of work and what came of it."""

    __slots__ = ("_begun", "_done", "ended", "error", "value", "work")

    def __init__(self, work: Callable[[], Any]) -> None:
        self.work: Callable[[], Any] | None = work
        self.value: Any = None
        self.error: BaseException | None = None
        self.ended = False
        self._begun = threading.Lock()  # taken by who runs the work: it may be given twice
        self._done: SimpleQueue[None] = SimpleQueue()

    def run(self) -> None:
        work = self.work
        if work is None or not self._begun.acquire(blocking=False):
            return
        try:
            self.value = work()
        except BaseException as error:
            self.error = error
        finally:
            self.work = work = None
            self.ended = True
            self._done.put(None)

    def wait(self) -> bool:
        """Wait for the end, for a while; whether it has come."""
        if not self.ended:
            with contextlib.suppress(Empty):
                self._done.get(timeout=_LOOK_S)
        return self.ended


def run_apart(work: Callable[[], T]) -> T:
    """Run work in a thread of its own, to its end, whatever is thrown into the caller.

    For work that takes its locks itself.

    >>> run_apart(lambda: 6 * 7)
    42
    """
    shelter = Shelter()
    try:
        return shelter.run(work)
    finally:
        shelter.close()


class Shelter:
    """A thread, made when it is first needed.

    >>> shelter = Shelter()
    >>> shelter.run(lambda: 6 * 7)
    42
    >>> shelter.close()
    """

    def __init__(self) -> None:
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._started = 0
        self._threads: set[int] = set()  # one, or more when a caller was interrupted as it began
        self._job: _Job | None = None  # what may still run

    def run(self, work: Callable[[], T]) -> T:
        """What the work returns, or raises. What is thrown into the caller is raised at its end."""
        if self._job is not None:
            return work()  # a part of sheltered work
        job = _Job(work)
        try:
            self._job = job
            self._give(job)
            self._wait(job)
        except BaseException:
            self.finish()
            raise
        self._job = None
        if job.error is not None:
            raise job.error
        value: T = job.value
        return value

    @property
    def is_inside(self) -> bool:
        """Whether the caller is sheltered work itself."""
        return self._job is not None and threading.get_ident() in self._threads

    def finish(self) -> None:
        """See to it that nothing runs here any more; not for sheltered work itself."""
        job = self._job
        if job is not None:
            self._give(job)
            self._wait(job)
            self._job = None

    def _give(self, job: _Job) -> None:
        if not self._started:
            self._start()
        self._jobs.put(job)

    def _start(self) -> None:
        start_new_thread(_work, (self._jobs, self._threads))
        self._started += 1

    def _wait(self, job: _Job) -> None:
        while not job.wait():
            if not self._threads:
                self._start()

    def leave_to_parent(self) -> None:
        """In a forked child: the thread is the parent's."""
        self._jobs = SimpleQueue()
        self._started, self._threads, self._job = 0, set(), None

    def close(self) -> None:
        """End the thread; the next work gets another."""
        jobs, count = self._jobs, self._started
        self._jobs, self._started, self._threads = SimpleQueue(), 0, set()
        for _ in range(count):
            jobs.put(None)


def _work(jobs: SimpleQueue[_Job | None], threads: set[int]) -> None:
    """What the thread does; `threads` says who has begun."""
    threads.add(threading.get_ident())
    while (job := jobs.get()) is not None:
        job.run()
        del job  # it may hold much memory
