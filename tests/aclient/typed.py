"""Read by mypy, never run: every way in satisfies the protocols (test_protocols.py).

Users write code like this, too: a function takes a protocol, and gets any of them.
"""

from __future__ import annotations

import tideline
from tideline import aprotocols, protocols
from tideline.aclient.embedded import AsyncDatabase
from tideline.aclient.remote import AsyncRemote
from tideline.client.remote import Remote


def blocking(db: protocols.Database) -> None:
    channel: protocols.Channel = db.channel("roads")
    sub: protocols.Subscription = channel.subscribe({"lon": 1, "lat": 2}, user="ann")
    print([event.id for event in sub], sub.take(timeout_s=1))
    collection: protocols.Collection = db.collection("cars", key="id")
    collection.create_index("speed").wait()
    with collection.changes(after=0) as changes:
        print([change.key for change in changes])
    window: protocols.Window = db.window("w", span_s=60, key="k")
    print(window.append({"k": 1}).stored, window.range(map="count()"))
    with window.watch(map="count()") as panes:
        print([pane.value for pane in panes])


async def waiting(db: aprotocols.AsyncDatabase) -> None:
    channel: aprotocols.AsyncChannel = await db.channel("roads")
    sub: aprotocols.AsyncSubscription = await channel.subscribe((1.0, 2.0), user="ann")
    print([event.id async for event in sub], await sub.take(timeout_s=1))
    collection: aprotocols.AsyncCollection = await db.collection("cars", key="id")
    print([car async for car in collection.find_iter()], await collection.indexes())
    async with collection.changes(after=0) as changes:
        print([change.key async for change in changes])
    window: aprotocols.AsyncWindow = await db.window("w", span_s=60, key="k")
    print((await window.append({"k": 1})).stored, await window.range(map="count()"))
    async with window.watch(map="count()") as panes:
        print([pane.value async for pane in panes])


def embedded(db: tideline.Database) -> None:
    blocking(db)


def remote(db: Remote) -> None:
    blocking(db)


async def async_embedded(db: AsyncDatabase) -> None:
    await waiting(db)


async def async_remote(db: AsyncRemote) -> None:
    await waiting(db)


async def opened(path: str, url: str) -> None:
    blocking(tideline.open(path))
    blocking(tideline.connect(url))
    await waiting(await tideline.aopen(path))
    await waiting(await tideline.aconnect(url))
