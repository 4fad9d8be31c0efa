"""One background thread that runs jobs in the order they were submitted.

    submit -> [queue] -> the thread runs one job at a time -> errors kept for check()

Invariants:
1. Jobs run one at a time, in order; an error in one does not stop the next.
2. An error is never lost silently: `check` raises it, as it is, in the owner's thread.
   Of more than 100 unread ones, the first 100 are kept.
3. `drain` returns when every job submitted before it has finished: tests need no sleeps.

Every method is safe from any thread. A job may submit jobs, but not wait for them. An exception
thrown into a caller leaves nothing locked: a job is submitted or it is not.

A program that ends without closing waits for the job that runs, and for no other: a thread that is
torn away in the middle of a file, inside Arrow, would abort the whole process.
"""

from __future__ import annotations

import atexit
import contextlib
import threading
import weakref
from collections import deque
from collections.abc import Callable
from queue import Empty, SimpleQueue

from tideline.errors import Closed, InvalidRequest

__all__ = ["Worker"]

_KEPT = 100
_LOOK_S = 1.0  # between two looks whether the thread is still there


class Worker:
    """A daemon thread and its queue.

    >>> done = []
    >>> worker = Worker("merge")
    >>> worker.submit(lambda: done.append(1))
    >>> worker.drain()
    >>> done
    [1]
    >>> worker.close()
    """

    def __init__(self, name: str = "tideline-worker") -> None:
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._gone: SimpleQueue[None] = SimpleQueue()
        self._errors: deque[BaseException] = deque()
        self._closed = False
        self._over = False  # the thread has ended
        self.is_ending = False
        """Whether the program ends: no further job is begun."""
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        _OPEN.add(self)

    def submit(self, job: Callable[[], None]) -> None:
        """Run `job` after those already submitted; returns at once."""
        if self._closed:
            raise Closed("the worker was closed", worker=self._thread.name)
        self._jobs.put(job)

    def check(self) -> None:
        """Raise the oldest error no one has seen yet, if there is one."""
        if self._errors:
            raise self._errors.popleft()

    def drain(self) -> None:
        """Wait until everything submitted so far has finished, well or not."""
        self._refuse_own_thread()
        finished: SimpleQueue[None] = SimpleQueue()
        self._jobs.put(lambda: finished.put(None))
        # Not `is_alive`, which takes a thread for ended when it is interrupted itself.
        while not self._over:
            with contextlib.suppress(Empty):
                finished.get(timeout=_LOOK_S)
                return

    def close(self) -> None:
        """Finish what was submitted, then end the thread. Closing twice is allowed."""
        self._refuse_own_thread()
        self._closed = True
        self._jobs.put(None)
        while not self._over:
            with contextlib.suppress(Empty):
                self._gone.get(timeout=_LOOK_S)
        self._thread.join()

    def leave_to_parent(self) -> None:
        """In a forked child: the thread is the parent's, and so are its jobs."""
        self._jobs = SimpleQueue()
        self._closed = self._over = True

    def _refuse_own_thread(self) -> None:
        if threading.current_thread() is self._thread:
            raise InvalidRequest("a job cannot wait for its own worker", worker=self._thread.name)

    def _run(self) -> None:
        try:
            self._work(self._jobs)
        finally:
            self._over = True
            self._gone.put(None)

    def _work(self, jobs: SimpleQueue[Callable[[], None] | None]) -> None:
        while (job := jobs.get()) is not None:
            if self.is_ending:
                return
            try:
                job()
            except BaseException as error:  # kept for check(), which raises it as it is
                if len(self._errors) < _KEPT:
                    self._errors.append(error)
            # A finished job may hold a whole component: let go of it before waiting.
            del job


_OPEN: weakref.WeakSet[Worker] = weakref.WeakSet()


@atexit.register
def _end_all() -> None:
    """The program ends: the jobs that run end, too, before the interpreter goes."""
    workers = list(_OPEN)
    for worker in workers:
        worker.is_ending = True
        worker._jobs.put(None)
    for worker in workers:
        if not worker._over:
            worker._thread.join()
