"""The async ways in: `aconnect` to a server, `aopen` for a folder in this process.

    remote.py, channel.py, collection.py, subscription.py   what users hold, on a server
    embedded.py, documents.py, threads.py                   the same over an open folder
    live.py        the WebSocket of all subscriptions; reconnects, resumes
    http.py        requests; the verbs and their retries are those of client/
    connection.py  HTTP/1.1, pipelined;  websocket.py  frames
    sockets.py     the connections themselves, until the loop has let go of them

Imports point down that list. Nothing here takes a thread, but `aopen`, whose calls run in a few.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tideline.clock import Clock, Seconds
from tideline.errors import Unavailable
from tideline.protocols import Durability

if TYPE_CHECKING:
    from tideline.aclient.embedded import AsyncDatabase
    from tideline.aclient.remote import AsyncRemote

__all__ = ["aconnect", "aopen"]


async def aconnect(
    url: str | Sequence[str],
    *,
    token: str | None = None,
    timeout_s: Seconds = 30.0,
    ca: str | None = None,
) -> AsyncRemote:  # fmt: skip
    """A server of `tideline serve`, used from asyncio; every verb is awaited.

    Parameters, errors and retries are those of `connect`. It belongs to the event loop that it was
    made in.

    >>> import asyncio
    >>> import tideline
    >>> from tideline.server import running
    >>> async def main(url):
    ...     async with await aconnect(url) as db:
    ...         roads = await db.channel("roads")
    ...         sub = await roads.subscribe("I-87", user="ann", until_s=60)
    ...         await roads.publish("I-87", {"kind": "accident"}, ttl_s=600)
    ...         async for event in sub:
    ...             return event.body
    >>> with tideline.open(":memory:") as db, running(db) as url:
    ...     asyncio.run(main(url))
    {'kind': 'accident'}
    """
    try:
        from tideline.aclient.remote import AsyncRemote
    except ModuleNotFoundError as error:
        raise Unavailable(
            "the client needs more packages: pip install 'tideline[client]'", missing=error.name
        ) from None
    remote = AsyncRemote(url, token, timeout_s, ca)
    try:
        await remote.check()
    except BaseException:
        await remote.close()
        raise
    return remote


async def aopen(
    path: str | os.PathLike[str], *, clock: Clock | None = None, memory_mb: int = 1024,
    durability: Durability = "os",
) -> AsyncDatabase:  # fmt: skip
    """Open a folder as a database in this process, used from asyncio: `open`, awaited.

    The objects have the names of those that `aconnect` gives. Calls run in a few threads.

    >>> import asyncio
    >>> async def main():
    ...     async with await aopen(":memory:") as db:
    ...         cars = await db.collection("cars", key="id")
    ...         await cars.put({"id": 1, "speed": 50})
    ...         return await cars.update(1, {"$inc": {"speed": 20}})
    >>> asyncio.run(main())
    {'id': 1, 'speed': 70}
    """
    from tideline.aclient.embedded import AsyncDatabase

    return await AsyncDatabase.open(path, clock=clock, memory_mb=memory_mb, durability=durability)
