"""What somebody waits for who must be told at once: a bell for a thread, one for a coroutine.

    reader   hangs up a bell -> looks whether something is there -> waits for the bell
    writer   stores something -> rings every bell that hangs

In this order nothing is slept over. No lock is held here: an exception may be thrown into either
side at any moment, and a `threading.Condition` that is entered at the wrong one stays locked for
ever. Safe from any thread.
"""

from __future__ import annotations

import asyncio
import contextlib
from queue import Empty, SimpleQueue

__all__ = ["Bell", "LoopBell"]


class Bell:
    """What one reader waits for; it rings for good: a ring before the wait counts.

    A clock takes it for the condition it waits on (`tideline.clock.Clock`).

    >>> bell = Bell()
    >>> bell.notify_all(); bell.wait(), bell.wait(0.001)
    (True, False)
    """

    __slots__ = ("__weakref__", "_rings")

    def __init__(self) -> None:
        self._rings: SimpleQueue[None] = SimpleQueue()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it rings; False when it did not in so many seconds."""
        try:
            self._rings.get(timeout=timeout)
        except Empty:
            return False
        return True

    def notify_all(self) -> None:
        """Ring it."""
        self._rings.put(None)

    def __enter__(self) -> Bell:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class LoopBell(Bell):
    """A bell that wakes a coroutine; made in the loop that it runs in."""

    __slots__ = ("_loop", "_waiter")

    def __init__(self) -> None:
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self._waiter: asyncio.Future[None] = self._loop.create_future()

    def notify_all(self) -> None:
        """Ring it; a loop that was closed has nobody who waits."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(_finish, self._waiter)

    async def rung(self, timeout_s: float | None = None) -> None:
        """Wait until it rings, or so many seconds."""
        await asyncio.wait([self._waiter], timeout=timeout_s)


def _finish(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
