"""Receiving: `take()`, blocking iteration and async iteration, and how they end.

No test sleeps: the clock is moved by hand from the test's thread while another thread
iterates, and `GUARD_S` only turns a hang into a failure.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from typing import Any

import pytest
from contract import Opener, ids

from tideline.clock import FOREVER, SystemClock
from tideline.testing import ManualClock

LAYOUTS = ["dual", "two", "http"]
BLOCKING = [*LAYOUTS, "async", "async-http"]
GUARD_S = 300.0
END = object()


class Reader:
    """Iterates a subscription in a thread of its own; `get` waits for the next event."""

    def __init__(self, sub: Any) -> None:
        self._got: queue.Queue[Any] = queue.Queue()
        self._thread = threading.Thread(target=self._run, args=(sub,), daemon=True)
        self._thread.start()

    def _run(self, sub: Any) -> None:
        try:
            for event in sub:
                self._got.put(event.id)
            self._got.put(END)
        except BaseException as error:  # handed to the test, which compares it
            self._got.put(error)

    def get(self) -> Any:
        return self._got.get(timeout=GUARD_S)

    def join(self) -> None:
        self._thread.join(GUARD_S)
        assert not self._thread.is_alive()


@pytest.mark.parametrize("layout", BLOCKING)
def test_take_gives_what_arrived_since_the_last_take(layout: str, open_channel: Opener) -> None:
    channel = open_channel(layout)
    channel.publish("a", {}, id="past")
    sub = channel.subscribe("a", user="u", since_s=-1)
    assert ids(sub.past) == ["past"]
    assert sub.take() == []
    channel.publish("a", {}, id="e1")
    channel.publish("b", {}, id="elsewhere")
    channel.publish("a", {}, id="e2")
    assert ids(sub.take()) == ["e1", "e2"]
    assert sub.take() == []


@pytest.mark.parametrize("layout", BLOCKING)
def test_take_gives_what_was_answered_before_the_end(
    layout: str, open_channel: Opener, clock: ManualClock
) -> None:
    channel = open_channel(layout)
    expiring = channel.subscribe("a", user="u", until_s=5)
    cancelled = channel.subscribe("a", user="u")
    channel.publish("a", {}, id="e", ttl_s=2)
    cancelled.cancel()
    clock.advance(10)
    channel.publish("a", {}, id="after the end")
    assert ids(expiring.take()) == ["e"]
    assert ids(cancelled.take()) == ["e"]
    assert expiring.take() == []
    assert cancelled.take() == []


@pytest.mark.parametrize("layout", BLOCKING)
def test_every_subscription_receives_on_its_own(layout: str, open_channel: Opener) -> None:
    channel = open_channel(layout)
    one, two = (channel.subscribe("a", user="u") for _ in range(2))
    channel.publish("a", {}, id="e1")
    assert ids(one.take()) == ["e1"]
    channel.publish("a", {}, id="e2")
    assert ids(one.take()) == ["e2"]
    assert ids(two.take()) == ["e1", "e2"]


@pytest.mark.parametrize("layout", BLOCKING)
def test_iteration_gives_events_as_they_happen_and_ends_at_expiry(
    layout: str, open_channel: Opener, clock: ManualClock
) -> None:
    channel = open_channel(layout)
    channel.publish("a", {}, id="past")
    sub = channel.subscribe("a", user="u", since_s=-1, until_s=10)
    channel.publish("a", {}, id="before the reader")
    reader = Reader(sub)
    assert reader.get() == "before the reader"
    for n in range(3):
        channel.publish("a", {}, id=f"e{n}")
        assert reader.get() == f"e{n}"
        clock.advance(1)
    clock.advance(7)
    assert reader.get() is END
    reader.join()
    assert list(sub) == []


@pytest.mark.parametrize("layout", BLOCKING)
def test_iteration_ends_when_the_subscription_is_cancelled(
    layout: str, open_channel: Opener
) -> None:
    channel = open_channel(layout)
    readers = []
    for n in range(2):
        sub = channel.subscribe("a", user="u", id=f"s{n}")
        readers.append((sub, Reader(sub)))
    channel.publish("a", {}, id="e")
    assert [reader.get() for _, reader in readers] == ["e", "e"]
    readers[0][0].cancel()
    channel.cancel("s1")
    assert [reader.get() for _, reader in readers] == [END, END]
    for _, reader in readers:
        reader.join()


@pytest.mark.parametrize("layout", BLOCKING)
def test_what_waits_is_given_before_iteration_ends(
    layout: str, open_channel: Opener, clock: ManualClock
) -> None:
    channel = open_channel(layout)
    expiring = channel.subscribe("a", user="u", until_s=5)
    cancelled = channel.subscribe("a", user="u")
    channel.publish("a", {}, id="e1")
    channel.publish("a", {}, id="e2")
    cancelled.cancel()
    clock.advance(5)
    assert ids(list(expiring)) == ["e1", "e2"]
    assert ids(list(cancelled)) == ["e1", "e2"]


@pytest.mark.parametrize("layout", BLOCKING)
def test_closing_the_database_ends_iteration(layout: str, open_database: Opener) -> None:
    db = open_database(over=layout)
    channel = db.channel("roads", layout=layout if layout == "two" else "dual")
    reader = Reader(channel.subscribe("a", user="u"))
    channel.publish("a", {}, id="e")
    assert reader.get() == "e"
    db.close()
    # It ends, or says Closed: the same kind of end every other call gets.
    last = reader.get()
    assert last is END or type(last).__name__ == "Closed"
    reader.join()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_async_iteration_gives_events_as_they_happen_and_ends_at_expiry(
    layout: str, open_channel: Opener, clock: ManualClock
) -> None:
    channel = open_channel(layout)
    sub = channel.subscribe("a", user="u", until_s=10)

    async def story() -> list[str]:
        got: list[str] = []
        arrived = asyncio.Event()

        async def read() -> None:
            async for event in sub:
                got.append(event.id)
                arrived.set()

        reader = asyncio.create_task(read())
        for n in range(3):
            await asyncio.to_thread(channel.publish, "a", {}, id=f"e{n}")
            await asyncio.wait_for(arrived.wait(), GUARD_S)
            arrived.clear()
        await asyncio.to_thread(clock.advance, 10)
        await asyncio.wait_for(reader, GUARD_S)
        return got

    assert asyncio.run(story()) == ["e0", "e1", "e2"]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_async_iteration_leaves_the_loop_free_and_ends_on_cancel(
    layout: str, open_channel: Opener
) -> None:
    channel = open_channel(layout)
    subs = [channel.subscribe("a", user="u", id=f"s{n}") for n in range(40)]

    async def story() -> list[list[str]]:
        async def read(sub: Any) -> list[str]:
            return [event.id async for event in sub]

        readers = [asyncio.create_task(read(sub)) for sub in subs]
        # More readers than an executor has threads: none may hold one while it waits.
        await asyncio.sleep(0)
        channel.publish("a", {}, id="e")  # on the loop's own thread
        for sub in subs:
            sub.cancel()
        return await asyncio.wait_for(asyncio.gather(*readers), GUARD_S)

    assert asyncio.run(story()) == [["e"]] * 40


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_async_reader_that_is_cancelled_leaves_the_subscription_whole(
    layout: str, open_channel: Opener
) -> None:
    channel = open_channel(layout)
    sub = channel.subscribe("a", user="u", id="s")

    async def story() -> None:
        async def read() -> None:
            async for _ in sub:
                pass

        reader = asyncio.create_task(read())
        await asyncio.sleep(0)
        reader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reader

    asyncio.run(story())
    assert [s.id for s in channel.publish("a", {}, id="e").subscriptions] == ["s"]
    assert ids(sub.take()) == ["e"]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_two_threads_publishing_are_received_whole_and_in_order_of_arrival(
    layout: str, open_channel: Opener
) -> None:
    channel = open_channel(layout)
    sub = channel.subscribe("a", user="u")

    def publish(name: str) -> None:
        for n in range(100):
            channel.publish("a", {}, id=f"{name}{n}")

    threads = [threading.Thread(target=publish, args=(name,)) for name in "xy"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(GUARD_S)
    got = sub.take()
    assert len(got) == 200
    assert [e.token for e in got] == sorted(e.token for e in got)
    for name in "xy":
        assert [e.id for e in got if e.id[0] == name] == [f"{name}{n}" for n in range(100)]


def test_whoever_waits_looks_up_now_and_then() -> None:
    """A signal that comes just before a wait is handled after it: Ctrl-C took up to an hour."""
    held = threading.Condition()
    with held:
        SystemClock().wait(held, FOREVER)  # nobody ever notifies it
