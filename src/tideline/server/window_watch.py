"""A stream window on one connection: each pane as a message, as the window slides.

    engine, in any thread -> rings -> on the loop: `run` wakes -> a thread computes the panes
                                                               -> outbox

Panes that the socket does not take wait in the watch, 64 at most; the next one says how many were
left out (stream/watching.py). Everything here is on the event loop, except what says otherwise.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from tideline.server.outbox import Outbox
from tideline.server.shapes import encode

__all__ = ["WindowWatch"]


class WindowWatch:
    """One tag that is told the panes of a window."""

    token = None

    def __init__(
        self, hub: Any, window: Any, request: Any, outbox: Outbox,
        ended: Callable[[WindowWatch, str | Exception], None],
    ) -> None:  # fmt: skip
        self._hub = hub
        self._window = window
        self._request = request
        self._outbox = outbox
        self._ended = ended
        self._watch: Any = None
        self._task: asyncio.Task[None] | None = None
        self._taking = asyncio.Lock()

    async def start(self) -> None:
        """Begin; what is wrong with the request is raised."""
        asked = self._request
        self._watch = await self._hub.in_thread(
            lambda: self._window.watch(
                asked.keys, map=asked.map, where=asked.where, newest=asked.newest,
                last_s=asked.last_s,
            )
        )  # fmt: skip

    def go(self) -> None:
        """Tell panes from now on."""
        self._task = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        watch = self._watch
        try:
            while True:
                await watch.rung()
                await self.caught_up()
                if watch.closed:
                    break
                await self._outbox.room()
        except asyncio.CancelledError:
            raise
        except Exception as error:
            self._ended(self, error)
        else:
            gone = self._hub.db._windows.get(self._window.name) is not self._window
            self._ended(self, "dropped" if gone else "closed")

    async def caught_up(self) -> None:
        """Tell what the window has slid over by now."""
        head = encode(self._request.tag)
        async with self._taking:
            for pane in await self._hub.in_thread(self._watch.take):
                told = {"since": pane.since, "until": pane.until, "value": pane.value,
                        "missed": pane.missed}  # fmt: skip
                self._outbox.reply(b'{"tag":%b,"pane":%b}' % (head, encode(told)))

    def stop(self) -> None:
        """Tell no more."""
        if self._task is not None:
            self._task.cancel()
        if self._watch is not None:
            self._watch.close()
