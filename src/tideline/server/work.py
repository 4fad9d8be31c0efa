"""Where calls of the engine run, and how much matching they may do.

    on the loop     single calls, while nothing holds the channel and their conditions are quick
                    (writes that a cluster agrees on, too: the answer waits, and no thread)
    beside it       the same calls while the channel is busy: the loop never waits for its lock
    in turn         what takes long, at most two calls of one caller at a time

A channel says how many steps (where/cost.py) the conditions of a call will take before anything is
stored (channel/answers.py). On the loop, more than a few milliseconds' worth raises `Elsewhere`:
nothing has happened, and the call is made again beside the loop. More than `match_steps` is refused
wherever it is. What a call took counts against its caller's rate, so that whoever causes much
matching waits for it.

On the loop, except `allow`, which is called in the thread that makes the call.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from tideline.lsm.sharedlog import without_waiting
from tideline.server.limits import Limits
from tideline.server.refusals import Refused
from tideline.server.settings import Settings

__all__ = ["Elsewhere", "Work"]

T = TypeVar("T")
_LOOP_STEPS = 5_000_000
_OPERATION_STEPS = 50_000  # so many count as one operation
_WAITERS = 16  # threads for single calls: they mostly wait for a channel
_WORKERS = 4
_TURNS = 2  # long calls of one caller at a time


def _soon(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    """Have something done on the loop, from any thread."""
    with contextlib.suppress(RuntimeError):  # it has ended
        loop.call_soon_threadsafe(call)


class Elsewhere(BaseException):
    """The call takes too long for the loop. Nothing of it has happened."""


class _Spent(threading.local):
    """What the call of this thread took so far, and whether it may take long."""

    steps = 0
    quick = False


class Work:
    """The threads of a server, and who uses them."""

    def __init__(self, settings: Settings, limits: Limits) -> None:
        self._most = settings.match_steps
        self._limits = limits
        self._spent = _Spent()
        self._busy: Counter[int] = Counter()  # long calls by channel
        self._turns: dict[str, asyncio.Semaphore] = {}
        self._waiters = ThreadPoolExecutor(_WAITERS, thread_name_prefix="tideline-call")
        self._workers = ThreadPoolExecutor(_WORKERS, thread_name_prefix="tideline-server")
        self.at_once = False
        """Whether a call that cannot be made right here raises `Elsewhere` instead of waiting."""

    def close(self) -> None:
        """Let go of the threads."""
        self._waiters.shutdown()
        self._workers.shutdown()

    def allow(self, steps: int) -> None:
        """The conditions of a call will take so many steps (any thread)."""
        spent = self._spent
        if spent.quick and steps > _LOOP_STEPS:
            raise Elsewhere
        if steps > self._most:
            raise Refused(
                413, "TooLarge",
                f"matching conditions would take {steps} steps, more than {self._most}: send"
                " smaller bodies or fewer rows at a time, or ask less with a simpler condition",
            )  # fmt: skip
        spent.steps += steps

    def is_busy(self, channel: Any) -> bool:
        """Whether the loop might wait for a channel."""
        return self._busy[id(channel)] > 0 or bool(channel.core.engine.lock.locked())

    def here(self, caller: Any, call: Callable[..., T], *arguments: Any) -> T:
        """Make a call on the loop; `Elsewhere` if it would take long."""
        return self._made(True, caller, call, *arguments)

    async def single(
        self, caller: Any, channel: Any, waits: bool, call: Callable[..., T], *arguments: Any
    ) -> T:
        """Make one call: here if it can be, else beside the loop; `waits`: for the disk."""
        if not waits and not self.is_busy(channel):
            try:
                return self.here(caller, call, *arguments)
            except Elsewhere:
                if self.at_once:
                    raise
                return await self.long(caller, channel, call, *arguments, single=True)
        if self.at_once:
            raise Elsewhere
        try:
            return await self.beside(self._made, True, caller, call, *arguments)
        except Elsewhere:
            return await self.long(caller, channel, call, *arguments, single=True)

    def may_wait(self) -> None:
        """`Elsewhere` where nothing may be waited for; to be asked before anything is done."""
        if self.at_once:
            raise Elsewhere

    async def beside(self, call: Callable[..., T], *arguments: Any) -> T:
        """Make a call that may wait for a channel."""
        self.may_wait()
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._waiters, call, *arguments)

    async def agreed(self, call: Callable[[], T]) -> T:
        """Make a quick call here that stores what a cluster is to agree on, and wait for that.

        No thread waits meanwhile.
        """
        self.may_wait()
        found, waits = without_waiting(call)
        loop = asyncio.get_running_loop()
        for log, position in waits:
            told = asyncio.Event()
            judge = log.notify(position, partial(_soon, loop, told.set))
            timer = loop.call_later(log.share.wait_s, told.set)
            try:
                await told.wait()
            finally:
                timer.cancel()
            judge()
        return found

    async def long(
        self, caller: Any, channel: Any, call: Callable[..., T], *arguments: Any,
        single: bool = False,
    ) -> T:  # fmt: skip
        """Make a call that takes long, when it is its caller's turn."""
        self.may_wait()
        turns = self._turns.setdefault(caller.key, asyncio.Semaphore(_TURNS))
        try:
            async with turns:
                if single:
                    self._limits.check_paid(caller)  # what ran before it may have cost much
                self._busy[id(channel)] += 1
                try:
                    return await asyncio.get_running_loop().run_in_executor(
                        self._workers, lambda: self._made(False, caller, call, *arguments)
                    )
                finally:
                    self._busy[id(channel)] -= 1
                    if not self._busy[id(channel)]:
                        del self._busy[id(channel)]
        finally:
            if not turns.locked() and turns._value == _TURNS:
                self._turns.pop(caller.key, None)

    async def in_thread(self, call: Callable[..., T], *arguments: Any) -> T:
        """Run what takes long and matches nothing."""
        self.may_wait()
        return await asyncio.get_running_loop().run_in_executor(self._workers, call, *arguments)

    def soon(self, call: Callable[[], None]) -> None:
        """Run what nobody waits for."""
        with contextlib.suppress(RuntimeError):  # the server has ended
            self._workers.submit(call)

    def _made(self, quick: bool, caller: Any, call: Callable[..., T], *arguments: Any) -> T:
        spent = self._spent
        spent.steps, spent.quick = 0, quick
        try:
            return call(*arguments)
        finally:
            spent.quick = False
            if spent.steps:
                self._limits.charge(caller, spent.steps / _OPERATION_STEPS)
