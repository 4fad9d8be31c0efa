"""When an async client was closed, its loop has no socket of it: whatever was going on.

A loop that ends before it let go of a socket leaves a complaint for the garbage collector, in
whatever runs then. `tests/conftest.py` has every loop looked at when it is closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tideline
from tideline.aclient.remote import AsyncRemote
from tideline.errors import Closed, TidelineError, Unavailable
from tideline.server import running

GUARD_S = 120.0


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("closing") / "data"
    with tideline.open(folder) as db, running(db) as url:
        db.channel("roads")
        db.collection("cars", key="id")
        yield url


@pytest.fixture
def silent() -> Iterator[str]:
    """Takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


def held() -> list[Any]:
    """The sockets that this loop has not let go of."""
    loop: Any = asyncio.get_running_loop()
    return [one for one in loop._transports.values() if one._sock is not None]


async def use_and_close(url: str, turns: int, known: bool) -> list[Any]:
    """Begin one of each, close so many turns of the loop later; what they were told."""
    db = AsyncRemote(url, None, GUARD_S, None)
    doing = [asyncio.create_task(db.channels())]
    if known:
        roads = await db.channel("roads")
        cars = await db.collection("cars", key="id")
        begun = (cars.changes().take(), cars.changes(after=0).take(timeout_s=GUARD_S))
        calls = (*begun, roads.subscribe("a", user="u"), cars.watch(), cars.count())
        doing += [asyncio.create_task(call) for call in calls]
    else:
        doing.append(asyncio.create_task(db._live.sync()))
    for _ in range(turns):
        await asyncio.sleep(0)
    await db.close()
    assert held() == []
    return await asyncio.gather(*doing, return_exceptions=True)


@pytest.mark.parametrize("turns", [*range(24), *range(24, 300, 12)])
def test_a_client_that_is_closed_in_any_turn_leaves_no_socket(served: str, turns: int) -> None:
    story = use_and_close(served, turns, known=True)
    for told in asyncio.run(asyncio.wait_for(story, GUARD_S)):
        assert not isinstance(told, BaseException) or isinstance(told, TidelineError), told


@pytest.mark.parametrize("turns", range(16))
def test_nor_while_it_waits_for_a_server_that_is_silent(silent: str, turns: int) -> None:
    story = use_and_close(silent, turns, known=False)
    for told in asyncio.run(asyncio.wait_for(story, GUARD_S)):
        assert isinstance(told, (Closed, Unavailable)), told


@pytest.mark.parametrize("turns", range(0, 40, 2))
def test_a_loop_that_ends_within_a_call_lets_go_of_its_socket(served: str, turns: int) -> None:
    async def story() -> None:
        async with await tideline.aconnect(served) as db:
            cars = await db.collection("cars", key="id")
            task = asyncio.create_task(cars.changes().take(timeout_s=GUARD_S))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        assert held() == []

    asyncio.run(asyncio.wait_for(story(), GUARD_S))


def test_a_feed_that_is_closed_while_it_connects_says_so_at_once(
    served: str, tmp_path: Path
) -> None:
    async def story() -> None:
        async with await tideline.aconnect(served) as db:
            cars = await db.collection("cars", key="id")
            for turns in range(0, 60, 3):
                changes = cars.changes()
                task = asyncio.create_task(changes.take(timeout_s=GUARD_S))
                for _ in range(turns):
                    await asyncio.sleep(0)
                changes.close()
                with pytest.raises(Closed):
                    await task

    asyncio.run(asyncio.wait_for(story(), GUARD_S))
