"""Panes: what becomes of a range, or of the rows that meet a condition, told at each slide.

    the writer that slides    hands over the state as it was, and rings: it computes nothing
    whoever watches           computes the pane, from sub-windows that do not change any more

A pane is about the window that ended with the slide: span / slide whole sub-windows. Rows that come
late are in the panes that are told after them. Behind a silence of more than the span, one empty
pane is told and then none until there are rows again.

At most `_MOST` states wait for one who watches; of a slower one the oldest are left out, and its
next pane says how many (`missed`). A function that raises has its pane counted there, too.
One thread at a time takes from a watch; `slid`, `end` and
`close` are for any.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import AsyncIterator, Iterator
from typing import Any, Self

from tideline.clock import EARLIEST, LATEST, SECOND, WAIT_S, from_us, span_us
from tideline.errors import Closed, InvalidRequest
from tideline.lsm.bell import Bell, LoopBell
from tideline.model import Pane
from tideline.stream.engine import Engine
from tideline.stream.mappers import Mapper
from tideline.stream.memory import NOTHING, State, Sub
from tideline.stream.reading import Asked
from tideline.stream.settings import CLOCK
from tideline.stream.sliding import Sliding

__all__ = ["Watch"]

_MOST = 64


class Watch:
    """What `StreamWindow.watch` gives: iterate over it, or `take`; close it, or leave its block."""

    def __init__(self, engine: Engine, asked: Asked, mapper: Mapper, panes: int) -> None:
        self._engine = engine
        self._panes = panes
        self._sliding = Sliding(mapper, asked, panes)
        self._waiting: deque[tuple[int, list[Sub]]] = deque()
        self._last = NOTHING
        self._missed = 0
        self._bells: list[Bell] = []
        self.closed = False
        engine.watch(self)

    # ---- told by the engine ------------------------------------------------------------------

    def slid(self, first: int, limit: int, state: State) -> None:
        """Take note of slides over [first, limit); being told again of one changes nothing.

        A window may slide over thousands of sub-windows at once, while a writer waits: of those
        whose panes nobody can take any more only the number is noted.
        """
        first = max(first, self._last + 1)
        kept = max(first, limit - _MOST)
        live = state.live(limit - 1, self._panes + limit - 1 - kept)
        numbers = [sub.pane for sub in live]
        for pane in range(kept, limit):
            oldest = bisect_right(numbers, pane - self._panes)
            self._waiting.append((pane, live[oldest : bisect_right(numbers, pane)]))
        if first < limit:
            self._missed += kept - first
            self._last = limit - 1
        while len(self._waiting) > _MOST:
            self._waiting.popleft()
            self._missed += 1
        self._ring()

    def end(self) -> None:
        """The window is closed: whoever waits is let go."""
        self.closed = True
        self._ring()

    def _ring(self) -> None:
        for bell in list(self._bells):
            bell.notify_all()

    # ---- taking ------------------------------------------------------------------------------

    def take(self, limit: int | None = None, *, timeout_s: float = 0) -> list[Pane]:
        """The panes that are there; waits up to `timeout_s` for the first."""
        if limit is not None and (type(limit) is not int or limit < 1):
            raise InvalidRequest("limit must be a whole number from 1 on", limit=limit)
        clock = self._engine.clock
        until = clock.now() + span_us(timeout_s, "timeout_s")
        self._advance()
        while not self._waiting and not self.closed:
            left = until - clock.now()
            if left <= 0:
                break
            self._wait(until)
            self._advance()
        return self._panes_now(limit)

    def _panes_now(self, limit: int | None) -> list[Pane]:
        found: list[Pane] = []
        while self._waiting and (limit is None or len(found) < limit):
            pane, subs = self._waiting.popleft()
            missed, self._missed = self._missed, 0
            try:
                found.append(self._pane(pane, subs, missed))
            except BaseException as error:
                if found and isinstance(error, Exception):  # those before it first, it next time
                    self._missed += missed
                    self._waiting.appendleft((pane, subs))
                    return found
                self._missed += missed + 1
                raise
        return found

    def _pane(self, pane: int, subs: list[Sub], missed: int) -> Pane:
        slide = self._engine.settings.slide_us
        value = self._sliding.slide(subs, pane)
        # Time has ends, and a long window reaches beyond them.
        since = from_us(max((pane - self._panes + 1) * slide, EARLIEST))
        until = from_us(min((pane + 1) * slide, LATEST))
        assert since is not None
        assert until is not None
        return Pane(since, until, value, missed)

    def _advance(self) -> None:
        """Let the clock slide the window, if it is time."""
        if not self.closed:
            try:
                self._engine.advance()
            except Closed:
                self.closed = True

    def _next_slide(self) -> int | None:
        """When the clock slides the window next."""
        settings, pane = self._engine.settings, self._engine.state.pane
        return (pane + 1) * settings.slide_us if settings.time == CLOCK else None

    def _wait(self, until: int | None) -> None:
        clock, bell = self._engine.clock, Bell()
        self._bells.append(bell)
        try:
            if self._waiting or self.closed:
                return
            ends = [each for each in (until, self._next_slide()) if each is not None]
            with bell:
                clock.wait(bell, min(ends, default=clock.now() + round(WAIT_S * SECOND)))  # type: ignore[arg-type]
        finally:
            self._bells.remove(bell)

    def __iter__(self) -> Iterator[Pane]:
        while True:
            self._advance()
            yield from self._panes_now(None)
            if self.closed and not self._waiting:
                return
            if not self._waiting:
                self._wait(None)

    async def __aiter__(self) -> AsyncIterator[Pane]:
        while True:
            self._advance()
            for pane in self._panes_now(None):
                yield pane
            if self.closed and not self._waiting:
                return
            await self.rung()

    async def rung(self) -> None:
        """Wait until there is something to take, or the end; in the event loop that it is told."""
        while True:
            bell = LoopBell()
            self._bells.append(bell)
            try:
                due, now = self._next_slide(), self._engine.clock.now()
                if self._waiting or self.closed or (due is not None and now >= due):
                    return
                left_s = WAIT_S if due is None else (due - now) / SECOND
                await bell.rung(min(left_s, WAIT_S))
            finally:
                self._bells.remove(bell)

    def close(self) -> None:
        """Be told no more. Closing twice is allowed."""
        self._engine.unwatch(self)
        self.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: Any, value: Any, trace: Any) -> None:
        self.close()
