"""A live query as the user of an async client holds it.

    live connection --> Watched --> await take(), async for ...

What client/watching.py says of a handle holds here too: the connection is made again when it
breaks, `take` asks the server first, and a result that the server could only tell as a whole is
told as the difference. Several tasks may share a handle: each change goes to one of them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from types import TracebackType
from typing import TYPE_CHECKING, Any

from tideline.client.arriving import check_take
from tideline.client.feeds import WatchFeed
from tideline.client.watching import ENDS, LiveFacts, lasting_s
from tideline.clock import WAIT_S, Seconds
from tideline.lsm.bell import LoopBell
from tideline.model import LiveChange

if TYPE_CHECKING:
    from tideline.aclient.live import AsyncLive

__all__ = ["AsyncRemoteLive"]


class AsyncRemoteLive(LiveFacts):
    """A live query on a server: its result, kept up to date. `AsyncRemoteCollection.watch` makes
    one."""

    def __init__(self, live: AsyncLive, feed: WatchFeed) -> None:
        super().__init__(feed)
        self._live = live

    @property
    def result(self) -> list[dict[str, Any]]:
        """The documents, in order, with all changes that were handed out."""
        return self.inbox.result

    async def take(self, limit: int | None = None, *, timeout_s: Seconds = 0) -> list[LiveChange]:
        """What happened since, at most `limit` of it; waits up to `timeout_s` for the first.

        Asks the server: what was written before this call is there. `Unavailable` when it cannot
        be reached in time; nothing is lost by that, ask again.
        """
        wait_s = check_take(limit, timeout_s)
        inbox = self.inbox
        if not inbox.ended:
            await self._live.sync()
        if wait_s:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    while not inbox.waits and not inbox.ended:
                        await self._rung()
        self._live.reach(self.feed)
        found = inbox.take(limit)
        why = inbox.why()
        if not found and why is not None:
            raise why
        return found

    async def prolong(self, *, ttl_s: Seconds | None) -> None:
        """Let it end so many seconds from now, by the server's clock; None: not by itself."""
        await self._live.prolong(self.feed, None if ttl_s is None else lasting_s(ttl_s))
        why = self.inbox.why()
        if why is not None:
            raise why

    async def cancel(self) -> None:
        """End it. Cancelling one that has ended is allowed."""
        await self._live.cancel(self)

    close = cancel

    async def __aiter__(self) -> AsyncIterator[LiveChange]:
        inbox = self.inbox
        while True:
            found = inbox.next()
            if found is not None:
                yield found
                continue
            why = inbox.why()
            if why is not None:
                if inbox.ended in ENDS:
                    return
                raise why
            await self._rung()

    async def _rung(self) -> None:
        """Wait until something arrives, or ends, but not for long; both come in this loop."""
        bell = LoopBell()
        with self.inbox.hung(bell):
            if not self.inbox.waits and not self.inbox.ended:
                await bell.rung(WAIT_S)

    async def __aenter__(self) -> AsyncRemoteLive:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        await self.cancel()

    def __repr__(self) -> str:
        return f"AsyncRemoteLive({self.feed.channel!r}, version={self.version})"
