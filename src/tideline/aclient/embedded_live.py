"""A live query of a folder in this process, used from asyncio: see embedded.py.

What may take long runs in a thread; handing out what is there does not. So a task that is cancelled
takes nothing with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any

from tideline.aclient.threads import Run, threaded
from tideline.clock import SECOND, Seconds, span_us
from tideline.errors import InvalidRequest
from tideline.live import Live
from tideline.model import LiveChange

__all__ = ["AsyncEmbeddedLive"]


class AsyncEmbeddedLive:
    """A live query; `AsyncCollection.watch` makes one."""

    def __init__(self, live: Live, run: Run) -> None:
        self._sync = live
        self._run = run

    @property
    def result(self) -> list[dict[str, Any]]:
        """The documents, in the order of `find`, with all changes that were handed out."""
        return self._sync.result

    @property
    def version(self) -> int:
        """The seq of the write that the result is of."""
        return self._sync.version

    @property
    def token(self) -> str:
        """Where it stands, for `watch_again`."""
        return self._sync.token

    @property
    def until(self) -> datetime | None:
        """When it ends by itself; None for never."""
        return self._sync.until

    @property
    def was_reset(self) -> bool:
        """Whether `watch_again` could not tell what was missed: the result is the one of now."""
        return self._sync.was_reset

    async def take(self, limit: int | None = None, *, timeout_s: Seconds = 0) -> list[LiveChange]:
        """What changed since, at most `limit` of it; waits up to `timeout_s` for the first."""
        wait_s = span_us(timeout_s, "timeout_s") / SECOND
        if wait_s < 0:
            raise InvalidRequest("timeout_s must not be negative", timeout_s=timeout_s)
        await self._run(self._sync.fetch)
        found = self._sync.take(limit)
        if found or not wait_s:
            return found
        try:
            async with asyncio.timeout(wait_s):
                found = [await self._sync.__anext__()]
        except (TimeoutError, StopAsyncIteration):
            return []
        if limit == 1:
            return found
        return found + self._sync.take(None if limit is None else limit - 1)

    prolong = threaded(Live.prolong)
    cancel = threaded(Live.cancel)
    close = cancel

    def __aiter__(self) -> AsyncIterator[LiveChange]:
        return self._sync

    async def __aenter__(self) -> AsyncEmbeddedLive:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.cancel()

    def __repr__(self) -> str:
        return f"Async{self._sync!r}"
