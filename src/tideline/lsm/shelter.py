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
_LOOK_S = 0.05  # between two looks, for a caller that missed the end because it was interrupted


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

    def wait(self) -> None:
        """Wait for the end."""
        self._done.get()

    def finish(self) -> None:
        """Wait for the end, also when the sign of it was missed."""
        while not self.ended:
            with contextlib.suppress(Empty):
                self._done.get(timeout=_LOOK_S)


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
        self._started = False
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
            job.wait()
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
            job.finish()
            self._job = None

    def _give(self, job: _Job) -> None:
        if not self._started:
            start_new_thread(self._loop, (self._jobs,))
            self._started = True
        self._jobs.put(job)

    def _loop(self, jobs: SimpleQueue[_Job | None]) -> None:
        self._threads.add(threading.get_ident())
        while (job := jobs.get()) is not None:
            job.run()
            del job  # it may hold much memory

    def leave_to_parent(self) -> None:
        """In a forked child: the thread is the parent's."""
        self._jobs = SimpleQueue()
        self._started, self._threads, self._job = False, set(), None

    def close(self) -> None:
        """End the thread; the next work gets another."""
        jobs, self._jobs, self._started = self._jobs, SimpleQueue(), False
        jobs.put(None)
