"""One background thread that runs jobs in the order they were submitted.

    submit -> [queue] -> the thread runs one job at a time -> errors kept for check()

Invariants:
1. Jobs run one at a time, in order; an error in one does not stop the next.
2. An error is never lost silently: `check` raises it, as it is, in the owner's thread.
   Of more than 100 unread ones, the first 100 are kept.
3. `drain` returns when every job submitted before it has finished: tests need no sleeps.

Every method is safe from any thread. A job may submit jobs, but not wait for them.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from tideline.errors import Closed, InvalidRequest

__all__ = ["Worker"]

_KEPT = 100


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
        self._changed = threading.Condition()
        self._jobs: deque[Callable[[], None]] = deque()
        self._errors: deque[BaseException] = deque()
        self._submitted = 0
        self._finished = 0
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, job: Callable[[], None]) -> None:
        """Run `job` after those already submitted; returns at once."""
        with self._changed:
            if self._closed:
                raise Closed("the worker was closed", worker=self._thread.name)
            self._jobs.append(job)
            self._submitted += 1
            self._changed.notify_all()

    def check(self) -> None:
        """Raise the oldest error no one has seen yet, if there is one."""
        if not self._errors:  # the usual case, without the lock
            return
        with self._changed:
            error = self._errors.popleft() if self._errors else None
        if error is not None:
            raise error

    def drain(self) -> None:
        """Wait until everything submitted so far has finished, well or not."""
        self._refuse_own_thread()
        with self._changed:
            target = self._submitted
            self._changed.wait_for(lambda: self._finished >= target)

    def close(self) -> None:
        """Finish what was submitted, then end the thread. Closing twice is allowed."""
        self._refuse_own_thread()
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join()

    def _refuse_own_thread(self) -> None:
        if threading.current_thread() is self._thread:
            raise InvalidRequest("a job cannot wait for its own worker", worker=self._thread.name)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._jobs or self._closed)
                if not self._jobs:
                    return
                job = self._jobs.popleft()
            try:
                job()
            except BaseException as error:  # kept for check(), which raises it as it is
                with self._changed:
                    if len(self._errors) < _KEPT:
                        self._errors.append(error)
            # A finished job may hold a whole component: let go of it before waiting.
            del job
            with self._changed:
                self._finished += 1
                self._changed.notify_all()
