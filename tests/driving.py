"""Async objects driven from tests that block: what holds for the library holds for them.

    driven = Driven(await tideline.aopen(...), loop)     driven.channel("roads").publish(...)

Every call runs in an event loop of a thread of its own. A subscription is iterated by `for`, and
what a coroutine returns is driven too if it is one of ours.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import functools
import inspect
import threading
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import tideline
from tideline.server import running

GUARD_S = 400.0  # only turns a hang into a failure: kernels may be compiled on a busy machine
_ASKED = ("expired", "indexes", "unique")  # methods there, because they wait; properties here


class Loop:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(GUARD_S)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@functools.cache
def loop_of_tests() -> Loop:
    """One for all tests: objects are used after they were closed, too."""
    loop = Loop()
    atexit.register(loop.close)
    return loop


class Built:
    """An index that was waited for."""

    done, progress = True, 1.0

    def __init__(self, found: None) -> None:
        assert found is None

    def wait(self, timeout_s: float | None = None) -> None:
        """It is done."""


class Driven:
    """An async object, used by calls that block."""

    def __init__(self, there: Any, loop: Loop) -> None:
        self._there = there
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._there, name)
        if not callable(found):
            return found

        def call(*args: Any, **options: Any) -> Any:
            return self._result(found, *args, **options)

        if name == "create_index":  # waits until it is done there
            return lambda *args, **options: Built(call(*args, **options))
        return call() if name in _ASKED else call

    def _result(self, method: Any, *args: Any, **options: Any) -> Any:
        async def called() -> Any:  # in the loop, where such objects are made
            made = method(*args, **options)
            return await made if inspect.isawaitable(made) else made

        found = self._loop.run(called())
        if inspect.isasyncgen(found):
            return iter(Driven(found, self._loop))
        if type(found).__module__.startswith("tideline.aclient"):
            return Driven(found, self._loop)
        return found

    def __iter__(self) -> Iterator[Any]:
        async def begun() -> Any:
            return aiter(self._there)

        events = self._loop.run(begun())
        while True:
            try:
                yield self._loop.run(anext(events))
            except StopAsyncIteration:
                return

    def __enter__(self) -> Driven:
        self._loop.run(self._there.__aenter__())
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Driven({self._there!r})"


class AsyncServed(Driven):
    """An async database: a folder, or one behind a server of its own that an async client uses."""

    def __init__(self, folder: str | Path, over_http: bool, options: dict[str, Any]) -> None:
        self._stack = contextlib.ExitStack()
        loop = loop_of_tests()
        if over_http:
            self._database = self._stack.enter_context(tideline.open(folder, **options))
            url = self._stack.enter_context(running(self._database))
            there = loop.run(tideline.aconnect(url, timeout_s=GUARD_S))
        else:
            there = loop.run(tideline.aopen(folder, **options))
            self._database = there._sync
        super().__init__(there, loop)
        self._stack.callback(lambda: loop.run(there.close()))

    def channel(self, name: str, **options: Any) -> Any:
        channel = self._result(self._there.channel, name, **options)
        stored = self._database.channel(name)
        # What an operator does at the folder, not a client.
        channel.seal, channel.maintain = stored.seal, stored.maintain
        return channel

    def close(self) -> None:
        self._stack.close()
