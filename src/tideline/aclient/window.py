"""Stream windows in an event loop: of a server, and of a folder in this process.

AsyncRemoteWindow    the verbs of client/window.py, awaited; AsyncRemotePanes
AsyncWindow          a window of this process, its verbs in threads; AsyncPanes
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any, Self

from tideline.aclient.changes import AsyncRemoteChanges
from tideline.aclient.http import AsyncHttp
from tideline.aclient.threads import Run, threaded
from tideline.client.panes import ArrivingPanes
from tideline.client.window import WindowFacts, WindowVerbs, asked_of, check_no_function
from tideline.clock import Seconds
from tideline.model import Pane
from tideline.stream import StreamWindow, Watch

__all__ = ["AsyncPanes", "AsyncRemotePanes", "AsyncRemoteWindow", "AsyncWindow"]


class AsyncRemotePanes(ArrivingPanes, AsyncRemoteChanges):
    """What becomes of rows of a window at each slide; `AsyncRemoteWindow.watch` makes one."""

    def __init__(self, http: AsyncHttp, name: str, asked: dict[str, Any], slide_s: float) -> None:
        self._asks = {"window": name, **asked}
        self._map = asked["map"]
        self._slide = timedelta(seconds=slide_s)
        super().__init__(http, name, "", None, False)

    async def take(self, limit: int | None = None, *, timeout_s: float = 0) -> list[Pane]:  # type: ignore[override]
        """The panes that are there; waits up to `timeout_s` for the first: `Watch.take`."""
        found: list[Any] = await super().take(limit, timeout_s=timeout_s)
        return found

    def __aiter__(self) -> AsyncRemotePanes:
        return self

    async def __anext__(self) -> Pane:  # type: ignore[override]
        found: Any = await super().__anext__()
        assert isinstance(found, Pane)
        return found

    async def __aenter__(self) -> AsyncRemotePanes:
        await super().__aenter__()
        return self

    def __repr__(self) -> str:
        return f"AsyncRemotePanes({self._name!r})"


class AsyncRemoteWindow(WindowVerbs):
    """Rows of the last so many seconds, on a server. Made by `AsyncRemote.window`."""

    def __init__(self, http: AsyncHttp, facts: WindowFacts) -> None:
        super().__init__(http, facts)
        self._http: AsyncHttp = http

    def watch(
        self, keys: Any = None, *, map: Any, where: Any = None, newest: bool = False,
        initial: Any = None, combine: Any = None, last_s: Seconds | None = None,
    ) -> AsyncRemotePanes:  # fmt: skip
        """What `range` or `find` gives, told at each slide: `async for`, or `take`. It watches from
        the first wait on, or from `async with`."""
        check_no_function(map, initial, combine)
        asked = {"map": None, "newest": newest, **asked_of(keys, map, last_s, where)}
        return AsyncRemotePanes(self._http, self.name, asked, self.settings["slide_s"])

    def __repr__(self) -> str:
        return f"AsyncRemoteWindow({self.name!r})"


class AsyncWindow:
    """An open stream window. Made by `AsyncDatabase.window`."""

    def __init__(self, window: StreamWindow, run: Run) -> None:
        self._sync = window
        self._run = run
        self.name = window.name

    @property
    def settings(self) -> dict[str, Any]:
        """The settings, as `Database.window` takes them."""
        return self._sync.settings

    @property
    def key(self) -> tuple[str, ...]:
        """The names of the key's fields."""
        return self._sync.key

    @property
    def values(self) -> dict[str, str]:
        """The names and types of the values."""
        return self._sync.values

    append = threaded(StreamWindow.append)
    get = threaded(StreamWindow.get)
    get_many = threaded(StreamWindow.get_many)
    range = threaded(StreamWindow.range)
    find = threaded(StreamWindow.find)
    moment = threaded(StreamWindow.moment)
    part = threaded(StreamWindow.part)
    stats = threaded(StreamWindow.stats)
    seal = threaded(StreamWindow.seal)
    maintain = threaded(StreamWindow.maintain)

    def watch(
        self, keys: Any = None, *, map: Any, where: Any = None, newest: bool = False,
        initial: Any = None, combine: Any = None, last_s: Seconds | None = None,
    ) -> AsyncPanes:  # fmt: skip
        """What `range` or `find` gives, told at each slide: `StreamWindow.watch`."""
        found = self._sync.watch(
            keys, map=map, where=where, newest=newest, initial=initial, combine=combine,
            last_s=last_s,
        )  # fmt: skip
        return AsyncPanes(found, self._run)

    def __repr__(self) -> str:
        return f"Async{self._sync!r}"


class AsyncPanes:
    """What becomes of rows of a window at each slide; panes are computed in a thread."""

    def __init__(self, watch: Watch, run: Run) -> None:
        self._sync = watch
        self._run = run

    async def take(self, limit: int | None = None, *, timeout_s: float = 0) -> list[Pane]:
        """The panes that are there; waits up to `timeout_s` for the first: `Watch.take`."""
        found: list[Pane] = await self._run(self._sync.take, limit)
        if not found and timeout_s:
            try:
                async with asyncio.timeout(timeout_s):
                    while not found and not self._sync.closed:
                        await self._sync.rung()
                        found = await self._run(self._sync.take, limit)
            except TimeoutError:
                return []
        return found

    async def __aiter__(self) -> AsyncIterator[Pane]:
        while True:
            for pane in await self._run(self._sync.take):
                yield pane
            if self._sync.closed:
                return
            await self._sync.rung()

    def close(self) -> None:
        """Be told no more. Closing twice is allowed."""
        self._sync.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: Any, value: Any, trace: Any) -> None:
        self.close()
