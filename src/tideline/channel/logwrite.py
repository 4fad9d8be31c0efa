"""Runs one log write on a helper thread; the caller always waits for it before it goes.

    caller   begin -----> goes on -----> result
    helper        `-- write -----------^

For the frame of a large batch: it is written to the log while the caller makes columns of the
answers. A caller that left early, by an error or by Ctrl-C, would release the engine's lock while
the frame is half written. So whoever wants to know how it ended waits for the end, whatever signals
arrive meanwhile.

One write at a time; for the thread that holds the engine's lock.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from tideline.lsm.position import Position

__all__ = ["PendingLogWrite"]


class PendingLogWrite:
    """A log write on a thread, which is made when it is first needed.

    >>> pending = PendingLogWrite("example")
    >>> pending.begin(lambda: Position(1, 64))
    >>> pending.result(), pending.write
    (Position(segment=1, offset=64), None)
    >>> pending.close()
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._pool: ThreadPoolExecutor | None = None
        self.write: Future[Position | None] | None = None
        """The write that was begun and whose end nobody has asked for."""

    def begin(self, write: Callable[[], Position | None]) -> None:
        """Start to write; somebody has asked for the end of the write before."""
        assert self.write is None
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, thread_name_prefix=self._name)
        self.write = self._pool.submit(write)

    def result(self) -> Position | None:
        """Wait for the end: what the write returned, or the error it ended with."""
        write = self._ended()
        self.write = None
        return write.result()

    def failed(self) -> bool:
        """Wait for the end: whether it was an error. True when nothing was begun."""
        if self.write is None:
            return True
        write = self._ended()
        self.write = None
        return write.exception() is not None

    def _ended(self) -> Future[Position | None]:
        """Wait for the end. What interrupts the wait is raised when it is over."""
        write = self.write
        assert write is not None
        interrupt: BaseException | None = None
        while not write.done():
            try:
                write.exception()
            except BaseException as error:
                interrupt = error
        if interrupt is not None:
            raise interrupt
        return write

    def close(self) -> None:
        """End the thread."""
        if self._pool is not None:
            self._pool.shutdown()
