"""Ids: the same content again is a safe retry, other content is a conflict, cancel frees.

An id is known while its record is valid, wherever the record lies: in memory, in a sealed
component, in a log that was replayed. Events and subscriptions have names of their own.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from contract import LAYOUTS, START, Opener, after, ids, told

from tideline.errors import Conflict, NotFound
from tideline.testing import ManualClock

# Retry and conflict -------------------------------------------------------------------


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("between", ["nothing", "seal", "reopen"])
def test_a_retry_stores_nothing_and_answers_nobody_again(
    layout: str, between: str, open_channel: Opener
) -> None:
    channel = open_channel(layout)
    channel.subscribe("a", user="u", id="s", since_s=-10)
    first = channel.publish("a", {"n": 1}, id="e")
    assert (told(first), first.duplicate) == (["s"], False)
    if between == "seal":
        channel.seal()
    elif between == "reopen":
        channel = open_channel(layout)
    again = channel.publish("a", {"n": 1}, id="e")
    assert (told(again), again.duplicate, again.event.id) == ([], True, "e")
    assert again.event.token == first.event.token
    retried = channel.subscribe("a", user="u", id="s", since_s=-10)
    assert (retried.id, retried.past) == ("s", [])
    stats = channel.stats()
    assert (stats.events, stats.subscriptions) == (1, 1)
    assert ids(channel.resume("s").past) == ["e"]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_retried_subscription_gives_its_past_once(layout: str, open_channel: Opener) -> None:
    channel = open_channel(layout)
    channel.publish("a", {}, id="e", at=after(1))
    asked = {"user": "u", "id": "s", "since": after(-5), "until": after(30), "where": {}}
    assert ids(channel.subscribe("a", **asked).past) == ["e"]
    assert channel.subscribe("a", **asked).past == []


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_same_content_in_another_spelling_is_a_retry(layout: str, open_channel: Opener) -> None:
    channel = open_channel(layout)
    at = pa.array([START], pa.timestamp("us", tz="UTC"))
    row = {"op": ["publish"], "id": ["e"], "place": ["a"], "at": at}
    channel.apply(pa.table(row | {"body": ['{ "n": 1.0,\n "text": "\\u00fc" }']}))
    assert channel.publish("a", {"n": 1.0, "text": "ü"}, id="e", at=START).duplicate
    applied = channel.apply(pa.table(row | {"body": ['{"text":"ü","n":1.0}']}))
    assert applied.rejected.num_rows == 0
    assert channel.stats().events == 1


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_retry_a_moment_later_is_the_same_when_times_are_relative(
    layout: str, open_channel: Opener, clock: ManualClock
) -> None:
    channel = open_channel(layout)
    channel.publish("a", {"n": 1}, id="e", ttl_s=60)
    channel.subscribe("a", user="u", id="s", since_s=-10, until_s=60)
    clock.advance(2)
    again = channel.publish("a", {"n": 1}, id="e", ttl_s=60)
    assert (again.duplicate, again.event.at) == (True, START)
    assert channel.subscribe("a", user="u", id="s", since_s=-10, until_s=60).since == after(-10)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize(
    "change",
    [
        {"place": "b"},
        {"body": {"n": 2}},
        {"body": {"n": True}},
        {"at": after(1)},
        {"until": after(61)},
        {"until": None},
    ],
)
def test_an_event_id_with_other_content_is_a_conflict(
    layout: str, sealed: bool, change: dict[str, Any], open_channel: Opener
) -> None:
    channel = open_channel(layout)
    content = {"place": "a", "body": {"n": 1}, "id": "e", "at": START, "until": after(60)}
    channel.publish(**content)
    if sealed:
        channel.seal()
    with pytest.raises(Conflict, match="'e'"):
        channel.publish(**(content | change))
    assert channel.stats().events == 1
    assert [e.body for e in channel.find("a")] == [{"n": 1}]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize(
    "change",
    [
        {"place": "b"},
        {"user": "v"},
        {"since": after(1)},
        {"until": after(61)},
        {"where": {"n": 2}},
        {"where": None},
        {"unseen": True},
    ],
)
def test_a_subscription_id_with_other_content_is_a_conflict(
    layout: str, sealed: bool, change: dict[str, Any], open_channel: Opener
) -> None:
    channel = open_channel(layout)
    content = {"place": "a", "user": "u", "id": "s", "since": START, "until": after(60)}
    content["where"] = {"n": 1}
    channel.subscribe(**content)
    if sealed:
        channel.seal()
    with pytest.raises(Conflict, match="'s'"):
        channel.subscribe(**(content | change))
    assert channel.stats().subscriptions == 1


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("window", "other"),
    [
        ({"since_s": -600}, {"since_s": -1}),
        ({"since_s": -600}, {}),
        ({"since_s": -600, "until_s": 600}, {"since_s": 0, "until_s": 1200}),
        ({"since": START, "until_s": 600}, {"since": START, "until_s": 60_000}),
        ({"since_s": -5, "until": after(900)}, {"since_s": -500, "until": after(900)}),
        ({"until_s": 600}, {"until_s": 600, "since_s": -5}),
    ],
)
def test_another_window_in_seconds_is_a_conflict_and_the_same_is_a_retry(
    layout: str, window: dict[str, Any], other: dict[str, Any], open_channel: Opener,
    clock: ManualClock,
) -> None:  # fmt: skip
    channel = open_channel(layout)
    clock.advance(3)
    first = channel.subscribe("a", user="u", id="s", **window)
    clock.advance(40)
    channel.publish("b", {})  # time goes on in the channel too
    again = channel.subscribe("a", user="u", id="s", **window)
    assert (again.duplicate, again.since, again.until) == (True, first.since, first.until)
    with pytest.raises(Conflict, match="'s'"):
        channel.subscribe("a", user="u", id="s", **other)


@pytest.mark.parametrize("ahead_s", [3, 7000])
def test_a_retry_is_one_where_writes_are_ahead_of_the_clock(
    ahead_s: int, open_channel: Opener, clock: ManualClock
) -> None:
    channel = open_channel()
    channel.publish("b", {}, at=after(5000))  # does not move time
    table = pa.table({
        "op": ["publish"], "place": ["b"], "body": ["1"],
        "at": pa.array([after(ahead_s)], pa.timestamp("us", "UTC")),
    })  # fmt: skip
    channel.apply(table)
    window = {"since_s": -60, "until_s": 90_000}
    first = channel.subscribe("a", user="u", id="s", **window)
    for _ in range(2):
        clock.advance(10)
        again = channel.subscribe("a", user="u", id="s", **window)
        assert (again.duplicate, again.since) == (True, first.since)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("sealed", [False, True])
def test_an_id_is_known_while_its_record_is_valid(
    layout: str, sealed: bool, open_channel: Opener, clock: ManualClock
) -> None:
    channel = open_channel(layout)
    channel.publish("a", {"n": 1}, id="e", ttl_s=5)
    channel.subscribe("a", user="u", id="s", until_s=5)
    if sealed:
        channel.seal()
    clock.advance(5)
    assert not channel.publish("b", {"n": 2}, id="e").duplicate
    channel.subscribe("b", user="v", id="s")
    assert [(s.id, s.user) for s in channel.subscriptions()] == [("s", "v")]
    assert [e.body for e in channel.find("b")] == [{"n": 2}]


# Cancel -------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("sealed", [False, True])
def test_a_cancelled_subscription_is_never_answered_again(
    layout: str, sealed: bool, open_channel: Opener
) -> None:
    channel = open_channel(layout)
    channel.subscribe("a", user="u", id="s")
    if sealed:
        channel.seal()
    channel.cancel("s")
    assert told(channel.publish("a", {})) == []
    channel = open_channel(layout)
    assert told(channel.publish("a", {})) == []
    assert channel.subscriptions() == []
    assert channel.stats().subscriptions == 0
    with pytest.raises(NotFound, match="'s'"):
        channel.cancel("s")
    with pytest.raises(NotFound, match="'s'"):
        channel.resume("s")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_cancelled_subscription_frees_its_id_at_once(layout: str, open_channel: Opener) -> None:
    channel = open_channel(layout)
    old = channel.subscribe("a", user="u", id="s")
    old.cancel()
    channel.subscribe("b", user="v", id="s")
    old.cancel()  # a handle cancels its own subscription, not another of the same id
    assert told(channel.publish("b", {})) == ["s"]
    assert told(channel.publish("a", {})) == []


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_expired_subscription_cannot_be_cancelled(
    layout: str, open_channel: Opener, clock: ManualClock
) -> None:
    channel = open_channel(layout)
    channel.subscribe("a", user="u", id="s", until_s=5)
    clock.advance(5)
    with pytest.raises(NotFound, match="'s'"):
        channel.cancel("s")


def test_an_event_and_a_subscription_may_share_an_id(open_channel: Opener) -> None:
    channel = open_channel()
    channel.publish("a", {}, id="x")
    assert ids(channel.subscribe("a", user="u", id="x", since_s=-1).past) == ["x"]
    channel.cancel("x")
    assert ids(channel.find("a")) == ["x"]
