"""Verbs that block, awaited: each call runs in a thread of the database's own (embedded.py).

    threaded    await channel.publish(...)              one call
    streamed    async for car in cars.find_iter(...)    an iterator, read a part at a time

Both make a method of an object that has the verb's object as `_sync`, and `_run`.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, Concatenate, ParamSpec, TypeVar

__all__ = ["Run", "streamed", "threaded"]

P = ParamSpec("P")
T = TypeVar("T")
Run = Callable[..., Coroutine[Any, Any, Any]]


def threaded(
    verb: Callable[Concatenate[Any, P], T],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """A method that runs a verb in a thread."""

    @functools.wraps(verb)
    async def call(self: Any, /, *args: P.args, **options: P.kwargs) -> T:
        found: T = await self._run(verb, self._sync, *args, **options)
        return found

    return call


def streamed(
    verb: Callable[Concatenate[Any, P], Iterator[T]], part: int
) -> Callable[Concatenate[Any, P], AsyncIterator[T]]:
    """A method that runs a verb in a thread, and then reads so many at a time there."""

    @functools.wraps(verb)
    async def call(self: Any, /, *args: P.args, **options: P.kwargs) -> AsyncIterator[T]:
        found = await self._run(verb, self._sync, *args, **options)
        while True:
            several: list[T] = await self._run(list, itertools.islice(found, part))
            for one in several:
                yield one
            if len(several) < part:
                return

    return call
