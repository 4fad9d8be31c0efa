"""Verbs that are written once, as coroutines, for a client that blocks and for one that waits.

A verb asks the server through an object that either blocks the thread (http.py) or waits in an
event loop (aclient/). With the first, nothing in the coroutine is ever suspended: it runs to its
end in one go, and `blocking` makes a plain method of it.

    class AsyncRemoteChannel:  async def find(...)            the verb
    class RemoteChannel:       find = blocking(AsyncRemoteChannel.find)

Pure functions; safe from any thread.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, TypeVar

__all__ = ["blocking", "run"]

P = ParamSpec("P")
T = TypeVar("T")


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that is never suspended.

    >>> async def double(n):
    ...     return 2 * n
    >>> run(double(21))
    42
    """
    try:
        coroutine.send(None)
    except StopIteration as done:
        found: T = done.value
        return found
    coroutine.close()
    raise AssertionError("a verb of a client that blocks must not wait for a loop")


def blocking(
    verb: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Any, P], T]:
    """A method that runs a verb of the object's `_verbs`."""

    @functools.wraps(verb)
    def call(self: Any, /, *args: P.args, **options: P.kwargs) -> T:
        return run(verb(self._verbs, *args, **options))

    return call
