"""Many clients at once, over real sockets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from websockets.asyncio.client import connect


def websocket(url: str) -> Any:
    address = url.replace("http", "ws", 1) + "/v1/live?lines=1"
    return connect(address, compression=None, max_size=None, ping_interval=None, max_queue=None)


async def hear(socket: Any, want: Callable[[Any], bool], count: int) -> list[Any]:
    """So many messages of a kind."""
    found: list[Any] = []
    async with asyncio.timeout(120):
        while len(found) < count:
            for line in (await socket.recv()).split("\n"):
                message = json.loads(line)
                if want(message):
                    found.append(message)
    return found


def test_200_clients_each_get_everything_in_order(serve: Callable[..., Any]) -> None:
    database, url = serve(connections_per_caller=300)
    channel = database.channel("c")
    clients, events = 200, 40

    async def client(n: int, ready: asyncio.Barrier) -> list[Any]:
        async with websocket(url) as socket:
            for tag, place in ((1, "all"), (2, f"own-{n}")):
                ask = {"do": "subscribe", "tag": tag, "channel": "c", "place": place, "user": "u"}
                await socket.send(json.dumps(ask))
            await hear(socket, lambda m: "past_done" in m, 2)
            await ready.wait()
            return await hear(socket, lambda m: "event" in m, events + 1)

    async def everybody() -> list[list[Any]]:
        ready = asyncio.Barrier(clients + 1)
        waiting = [asyncio.ensure_future(client(n, ready)) for n in range(clients)]
        await ready.wait()
        for n in range(clients):
            channel.publish(f"own-{n}", {"own": n}, ttl_s=60)
        for n in range(events):
            channel.publish("all", {"n": n}, ttl_s=60)
        return await asyncio.gather(*waiting)

    for n, heard in enumerate(asyncio.run(everybody())):
        assert [(m["tag"], m["event"]["body"]) for m in heard] == [
            (2, {"own": n}), *((1, {"n": k}) for k in range(events)),
        ]  # fmt: skip


def many_subscriptions(serve: Callable[..., Any], connections: int, each: int) -> None:
    """Every subscription is told of the one event at its place, on its own connection and tag."""
    most = connections * each
    database, url = serve(subscriptions_per_user=most, rate_per_s=1e6)
    channel = database.channel("c")

    async def client(n: int, ready: asyncio.Barrier) -> set[tuple[int, int]]:
        async with websocket(url) as socket:

            async def ask() -> None:
                for tag in range(each):
                    request = {"do": "subscribe", "tag": tag, "channel": "c",
                               "place": f"{n}/{tag}", "user": f"u{n}", "until_s": 600}  # fmt: skip
                    await socket.send(json.dumps(request))

            asking = asyncio.ensure_future(ask())
            await hear(socket, lambda m: "past_done" in m, each)
            await asking
            await ready.wait()
            heard = await hear(socket, lambda m: "event" in m, each)
            await socket.send('{"do": "sync", "tag": -1}')
            [_] = await hear(socket, lambda m: "synced" in m, 1)
            return {(m["tag"], m["event"]["body"]) for m in heard}

    async def everybody() -> list[set[tuple[int, int]]]:
        ready = asyncio.Barrier(connections + 1)
        waiting = [asyncio.ensure_future(client(n, ready)) for n in range(connections)]
        await ready.wait()
        assert channel.stats().subscriptions == most
        for tag in range(each):
            for n in range(connections):
                channel.publish(f"{n}/{tag}", tag, ttl_s=60)
            await asyncio.sleep(0)
        return await asyncio.gather(*waiting)

    found = asyncio.run(everybody())
    assert found == [{(tag, tag) for tag in range(each)}] * connections


def test_10_000_subscriptions_on_20_connections(serve: Callable[..., Any]) -> None:
    many_subscriptions(serve, 20, 500)


@pytest.mark.long
def test_100_000_subscriptions_on_100_connections(serve: Callable[..., Any]) -> None:
    many_subscriptions(serve, 100, 1_000)
