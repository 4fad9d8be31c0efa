"""Work beside the caller's own that nobody runs away from.

    caller   begin -----> goes on -----> result
    thread        `-- work -------------^

For the frame of a large batch: it is written to the log while the caller makes columns of the
answers. A caller that left early, by an error or by Ctrl-C, would let go of the lock while the
frame is half written. So whoever wants to know how it ended waits for it, whatever signals arrive,
and the engine looks for work that is left before it begins anything new.

One piece of work at a time; for the thread that holds the engine's lock.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

__all__ = ["Beside"]

T = TypeVar("T")


class Beside(Generic[T]):
    """A thread, made when it is first needed.

    >>> beside = Beside("example")
    >>> beside.begin(lambda: 6 * 7)
    >>> beside.result(), beside.work
    (42, None)
    >>> beside.close()
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._pool: ThreadPoolExecutor | None = None
        self.work: Future[T] | None = None
        """What was begun and whose end nobody has asked for."""

    def begin(self, work: Callable[[], T]) -> None:
        """Start; the end of what came before was asked for."""
        assert self.work is None
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, thread_name_prefix=self._name)
        self.work = self._pool.submit(work)

    def result(self) -> T:
        """What came of it, or the error it ended with."""
        work = self._ended()
        self.work = None
        return work.result()

    def failed(self) -> bool:
        """Whether it ended with an error; also when there was none."""
        if self.work is None:
            return True
        work = self._ended()
        self.work = None
        return work.exception() is not None

    def _ended(self) -> Future[T]:
        """Wait for the end. What interrupts the wait is raised when it is over."""
        work = self.work
        assert work is not None
        interrupt: BaseException | None = None
        while not work.done():
            try:
                work.exception()
            except BaseException as error:
                interrupt = error
        if interrupt is not None:
            raise interrupt
        return work

    def close(self) -> None:
        """End the thread."""
        if self._pool is not None:
            self._pool.shutdown()
