"""The poll layout: the baseline that stores no subscriptions and asks again every `poll_s`.

It gives the answers of the other layouts within its stated limits: it may miss what expires
between two polls, nobody is told on publish, and what needs stored subscriptions is refused.
"""

from __future__ import annotations

import queue
import threading
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from contract import START, Opener, ids
from model import WORLDS
from tables import answers_of, rejected_of, table_of

from tideline.clock import FOREVER, SECOND
from tideline.errors import InvalidRequest, NotFound
from tideline.testing import ManualClock

GUARD_S = 300.0
END = object()


def test_publish_tells_nobody(open_channel: Opener) -> None:
    channel = open_channel("poll")
    channel.subscribe("a", user="u")
    assert channel.publish("a", {}).subscriptions == []


def test_a_subscription_is_not_stored(open_channel: Opener) -> None:
    channel = open_channel("poll")
    channel.subscribe("a", user="u", id="s")
    assert channel.subscriptions() == []
    assert channel.subscriptions(user="u") == []
    assert channel.stats().subscriptions == 0
    with pytest.raises(NotFound, match="'s'"):
        channel.resume("s")
    with pytest.raises(NotFound, match="'s'"):
        channel.cancel("s")


def test_unseen_is_refused_since_nothing_remembers_who_got_what(open_channel: Opener) -> None:
    channel = open_channel("poll")
    with pytest.raises(InvalidRequest, match="poll stores no subscriptions"):
        channel.subscribe("a", user="u", unseen=True)


@pytest.mark.parametrize("world", WORLDS)
def test_past_answers_are_those_of_the_other_layouts(world: str, open_database: Opener) -> None:
    db = open_database()
    space, places = WORLDS[world].space, WORLDS[world].places
    channels = [db.channel(name, space=space, layout=name) for name in ("dual", "two", "poll")]
    for channel in channels:
        for n, place in enumerate(places):
            at = START - timedelta(seconds=n % 5)
            channel.publish(place, {"n": n % 3}, id=f"e{n}", at=at, ttl_s=2 + n % 4)
    for place in places:
        for where in (None, {"n": {"$gte": 1}}):
            dual, two, poll = (
                ids(c.subscribe(place, user="u", since_s=-3, where=where).past) for c in channels
            )
            assert dual == two == poll


def test_take_asks_again_every_poll_and_gives_nothing_twice(
    open_channel: Opener, clock: ManualClock
) -> None:
    channel = open_channel("poll", poll_s=2.0)
    channel.publish("a", {}, id="past")
    sub = channel.subscribe("a", user="u", since_s=-1, until_s=60)
    assert ids(sub.past) == ["past"]
    clock.advance(2)
    assert sub.take() == []
    channel.publish("a", {}, id="e1")
    channel.publish("b", {}, id="elsewhere")
    clock.advance(2)
    assert ids(sub.take()) == ["e1"]
    channel.publish("a", {}, id="e2")
    channel.publish("a", {}, id="e3")
    clock.advance(2)
    assert ids(sub.take()) == ["e2", "e3"]
    clock.advance(2)
    assert sub.take() == []


def test_a_late_event_in_the_window_is_found_by_the_next_poll(
    open_channel: Opener, clock: ManualClock
) -> None:
    channel = open_channel("poll")
    sub = channel.subscribe("a", user="u", since_s=-10, until_s=60)
    channel.publish("a", {}, id="newer")
    clock.advance(1)
    assert ids(sub.take()) == ["newer"]
    channel.publish("a", {}, id="older", at=START - timedelta(seconds=5))
    channel.publish("a", {}, id="too old", at=START - timedelta(seconds=11))
    clock.advance(1)
    assert ids(sub.take()) == ["older"]


def test_what_expires_between_two_polls_is_missed(open_channel: Opener, clock: ManualClock) -> None:
    channel = open_channel("poll", poll_s=1.0)
    sub = channel.subscribe("a", user="u", until_s=60)
    channel.publish("a", {}, id="short", ttl_s=0.5)
    channel.publish("a", {}, id="long", ttl_s=5)
    clock.advance(1)
    assert ids(sub.take()) == ["long"]


def test_iteration_asks_again_every_poll_and_ends_at_expiry(
    open_channel: Opener, clock: ManualClock
) -> None:
    channel = open_channel("poll", poll_s=1.0)
    sub = channel.subscribe("a", user="u", until_s=10)
    got: queue.Queue[Any] = queue.Queue()

    def read() -> None:
        for event in sub:
            got.put(event.id)
        got.put(END)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    for n in range(3):
        channel.publish("a", {}, id=f"e{n}")
        clock.advance(1)
        assert got.get(timeout=GUARD_S) == f"e{n}"
    clock.advance(7)
    assert got.get(timeout=GUARD_S) is END
    reader.join(GUARD_S)
    assert not reader.is_alive()


def test_cancelling_the_handle_ends_the_asking(open_channel: Opener, clock: ManualClock) -> None:
    channel = open_channel("poll")
    sub = channel.subscribe("a", user="u")
    sub.cancel()
    channel.publish("a", {}, id="e")
    clock.advance(1)
    assert sub.take() == []
    assert list(sub) == []


def test_events_are_stored_and_survive_a_reopen(open_channel: Opener) -> None:
    channel = open_channel("poll", poll_s=3.0)
    channel.publish("a", {"n": 1}, id="e1")
    channel.seal()
    channel.publish("a", {"n": 2}, id="e2")
    channel = open_channel("poll", poll_s=3.0)
    assert ids(channel.find("a")) == ["e2", "e1"]
    assert ids(channel.subscribe("a", user="u", since_s=-1).past) == ["e1", "e2"]
    assert channel.publish("a", {"n": 1}, id="e1", at=START).duplicate


def test_apply_answers_the_past_and_stores_no_subscription(open_channel: Opener) -> None:
    channel = open_channel("poll")
    at = 1_000 * SECOND
    ask = {"op": "subscribe", "place": "a", "user": "u", "where": None, "unseen": False}
    ask |= {"at": at, "since": at - SECOND, "until": FOREVER}
    tell = {"op": "publish", "place": "a", "at": at, "until": FOREVER, "body": {}}
    table = table_of(
        [
            tell | {"id": "e1"},
            ask | {"id": "s"},
            tell | {"id": "e2"},
            {"op": "cancel", "id": "s", "at": at},
            ask | {"id": "s2", "unseen": True},
        ]
    )
    assert isinstance(table, pa.Table)
    applied = channel.apply(table)
    assert answers_of(applied) == [(1, "s", "e1", "u", "past")]
    rejected = rejected_of(applied)
    assert sorted(rejected) == [3, 4]
    assert "poll stores no subscriptions" in rejected[4]
    assert channel.stats().subscriptions == 0


def test_who_asked_in_between_is_asked_for_by_a_write_like_the_others(
    open_channel: Opener,
) -> None:
    clock = ManualClock(1_000)
    channel = open_channel("poll", clock=clock)
    eager, quiet, gone = (channel.subscribe("a", user=user, until_s=60) for user in "uvw")
    gone.cancel()
    for _ in range(20):
        clock.advance(0.25)
        assert eager.take() == []
    assert len(channel.core.subscriptions.times) < 10  # takes between polls leave nothing behind
    channel.publish("a", {}, id="e", ttl_s=60)
    assert len(channel.core.subscriptions.times) == 2  # what was due is gone, one a handle is left
    clock.advance(1)
    channel.publish("b", {}, id="other")
    assert [ids(list(sub.inbox.arrived or ())) for sub in (eager, quiet, gone)] == [
        ["e"],
        ["e"],
        [],
    ]


def test_polls_before_a_write_find_what_is_valid_at_their_own_moment(open_channel: Opener) -> None:
    clock = ManualClock(1_000)
    channel = open_channel("poll", clock=clock)
    subs = [channel.subscribe("a", user=f"u{n}", until_s=10) for n in range(3)]
    clock.advance(0.5)
    channel.publish("a", {}, id="e", ttl_s=0.6)  # gone 1.1 s after the start
    clock.advance(0.7)
    assert ids(subs[1].take()) == ["e"]
    clock.advance(5)
    channel.publish("b", {}, id="other")
    assert [ids(list(sub.inbox.arrived or ())) for sub in subs] == [["e"], [], ["e"]]
