"""The names others rely on: values, find, tokens and resume, channels, stats.

Each test is one promise of the public API; the rules of answers are test_channel_contract.py,
ids given twice are test_ids.py.
"""

from __future__ import annotations

import pickle
from datetime import timedelta
from typing import Any

import pytest
from contract import ASKING, LAYOUTS, Opener, after, ids
from model import WORLDS
from tables import table_of

import tideline
from tideline import Circle, Flat, QuadTree, Topics
from tideline.errors import Closed, Conflict, InvalidRequest, NotFound
from tideline.testing import ManualClock

OVER = ["", "http", "async", "async-http"]  # a folder, a server


# Values come back as they went in -----------------------------------------------------


@pytest.mark.parametrize("layout", ASKING)
@pytest.mark.parametrize("world", WORLDS)
def test_an_event_comes_back_as_it_was_published(
    layout: str, world: str, open_channel: Opener
) -> None:
    channel = open_channel(layout, WORLDS[world].space)
    body = {"text": "zürich \u2603", "n": 1.5, "list": [1, None, True], "deep": {"a": {}}}
    for n, place in enumerate(WORLDS[world].places):
        event = channel.publish(place, body, id=f"e{n}", at=after(-n), ttl_s=60).event
        assert (event.id, event.place, event.body) == (f"e{n}", place, body)
        assert (event.at, event.until) == (after(-n), after(60 - n))
        [found] = [e for e in channel.find(place) if e.id == f"e{n}"]
        assert (found.place, found.body) == (place, body)
        assert (found.at, found.until) == (event.at, event.until)


@pytest.mark.parametrize("body", [None, True, 0, -1.5, "text", "", [], [1, [2]], {}])
def test_a_body_is_any_json_value(body: Any, open_channel: Opener) -> None:
    channel = open_channel()
    channel.publish("a", body)
    channel = open_channel()
    [event] = channel.find("a")
    assert event.body == body
    assert type(event.body) is type(body)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_subscription_says_what_was_asked(layout: str, open_channel: Opener) -> None:
    channel = open_channel(layout)
    channel.subscribe(
        "a", user="u", id="s", since_s=-5, until_s=5, where={"n": {"$gt": 1}}, unseen=True
    )
    for _ in range(2):
        [info] = channel.subscriptions()
        assert (info.id, info.user, info.place) == ("s", "u", "a")
        assert (info.since, info.until) == (after(-5), after(5))
        assert (info.where, info.unseen) == ({"n": {"$gt": 1}}, True)
        channel = open_channel(layout)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_subscriptions_lists_what_is_stored_of_a_user_or_of_all(
    layout: str, open_channel: Opener, clock: ManualClock
) -> None:
    channel = open_channel(layout)
    channel.subscribe("a", user="u", id="s1", until_s=5)
    channel.subscribe("b", user="v", id="s2")
    channel.subscribe("c", user="u", id="s3")
    assert sorted(s.id for s in channel.subscriptions()) == ["s1", "s2", "s3"]
    assert sorted(s.id for s in channel.subscriptions(user="u")) == ["s1", "s3"]
    assert channel.subscriptions(user="w") == []
    clock.advance(5)
    channel.cancel("s2")
    assert [s.id for s in channel.subscriptions()] == ["s3"]


def test_a_time_without_a_zone_is_utc(open_channel: Opener) -> None:
    event = open_channel().publish("a", {}, at=after(1).replace(tzinfo=None)).event
    assert event.at == after(1)
    assert event.at.utcoffset() == timedelta(0)


def test_ids_are_made_when_none_is_given(open_channel: Opener) -> None:
    channel = open_channel()
    made = [channel.publish("a", {}).event.id for _ in range(50)]
    made += [channel.subscribe("a", user="u").id for _ in range(50)]
    channel = open_channel()
    made += [channel.publish("a", {}).event.id for _ in range(50)]
    assert len(set(made)) == 150


# find ---------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ASKING)
@pytest.mark.parametrize("sealed", [False, True])
def test_find_is_newest_first_and_stops_at_its_limit(
    layout: str, sealed: bool, open_channel: Opener
) -> None:
    channel = open_channel(layout)
    for id, at in [("b", -2), ("c", -1), ("a", -3), ("c2", -1)]:
        channel.publish("a", {}, id=id, at=after(at))
        if sealed:
            channel.seal()
    assert ids(channel.find("a")) == ["c2", "c", "b", "a"]
    assert ids(channel.find("a", limit=2)) == ["c2", "c"]
    assert ids(channel.find("a", limit=10)) == ["c2", "c", "b", "a"]
    assert ids(channel.find("a", since_s=-2, until_s=-1)) == ["b"]
    assert ids(channel.find("a", since=after(-1))) == ["c2", "c"]


def test_find_stores_nothing_and_marks_nothing_seen(open_channel: Opener) -> None:
    channel = open_channel()
    channel.publish("a", {}, id="e")
    before = channel.stats()
    assert ids(channel.find("a")) == ["e"]
    assert (channel.stats().subscriptions, channel.stats().bytes_log) == (0, before.bytes_log)
    assert ids(channel.subscribe("a", user="u", since_s=-1, unseen=True).past) == ["e"]


# Tokens and resume --------------------------------------------------------------------


def test_tokens_are_text_in_order_of_arrival(open_channel: Opener) -> None:
    channel = open_channel()
    tokens = [channel.publish("a", {}, at=after(-n)).event.token for n in range(12)]
    channel = open_channel()
    tokens += [channel.publish("a", {}).event.token for _ in range(12)]
    assert tokens == sorted(tokens)
    assert len(set(tokens)) == 24


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("sealed", [False, True])
def test_resume_after_a_restart_misses_nothing_and_repeats_nothing(
    layout: str, sealed: bool, open_channel: Opener
) -> None:
    channel = open_channel(layout)
    channel.publish("a", {}, id="e1")
    sub = channel.subscribe("a", user="u", id="s", since_s=-10)
    channel.publish("a", {}, id="e2")
    [e1], [e2] = sub.past, sub.take()
    channel.publish("a", {}, id="e3")  # delivered, never taken
    if sealed:
        channel.seal()
    channel = open_channel(layout)
    channel.publish("a", {}, id="e4")
    resumed = channel.resume("s", after=e2.token)
    assert (resumed.id, resumed.user, resumed.place) == ("s", "u", "a")
    assert ids(resumed.past) == ["e3", "e4"]
    channel.publish("a", {}, id="e5")
    assert ids(resumed.take()) == ["e5"]
    assert ids(channel.resume("s", after=e1.token).past) == ["e2", "e3", "e4", "e5"]
    assert ids(channel.resume("s").past) == ["e1", "e2", "e3", "e4", "e5"]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_resume_gives_only_its_own_answers_that_are_still_valid(
    layout: str, open_channel: Opener, clock: ManualClock
) -> None:
    channel = open_channel(layout)
    channel.subscribe("a", user="u", id="first", where={"n": 1})
    channel.subscribe("a", user="u", id="second", unseen=True)
    channel.publish("a", {"n": 1}, id="to the first")
    channel.publish("a", {"n": 2}, id="to the second")
    channel.publish("a", {"n": 2}, id="short", ttl_s=5)
    clock.advance(5)
    channel = open_channel(layout)
    assert ids(channel.resume("first").past) == ["to the first"]
    assert ids(channel.resume("second").past) == ["to the second"]


def test_resume_of_what_is_not_there_is_refused(open_channel: Opener, clock: ManualClock) -> None:
    channel = open_channel()
    channel.subscribe("a", user="u", id="s", until_s=5)
    with pytest.raises(NotFound, match="'nobody'"):
        channel.resume("nobody")
    with pytest.raises(InvalidRequest, match="no token"):
        channel.resume("s", after="no token")
    clock.advance(5)
    with pytest.raises(NotFound, match="'s'"):
        channel.resume("s")


# Databases and channels ---------------------------------------------------------------


@pytest.mark.parametrize("over", OVER)
def test_a_channel_keeps_its_space_and_layout(over: str, open_database: Opener) -> None:
    quad = QuadTree(bounds=(0.0, 0.0, 8.0, 8.0), depth=3)
    open_database(over=over).channel("roads", space=quad, layout="two")
    db = open_database(over=over)
    again = db.channel("roads", space=quad, layout="two")
    assert (again.name, again.space, again.layout) == ("roads", quad, "two")
    for space, layout in [
        (quad, "dual"),
        (Flat(), "two"),
        (QuadTree(bounds=(0.0, 0.0, 8.0, 8.0), depth=4), "two"),
    ]:
        with pytest.raises(Conflict, match="'roads'"):
            db.channel("roads", space=space, layout=layout)
    assert db.channels() == ["roads"]


@pytest.mark.parametrize("over", OVER)
def test_channels_share_nothing_and_can_be_dropped(over: str, open_database: Opener) -> None:
    db = open_database(over=over)
    one, two = db.channel("one"), db.channel("two", space=Topics())
    one.publish("a", {}, id="e")
    two.subscribe("a", user="u", id="s", since_s=-10)
    assert two.find("a") == []
    db.drop_channel("one")
    with pytest.raises(NotFound, match="'one'"):
        db.drop_channel("one")
    if not over.endswith("http"):
        with pytest.raises(Closed, match="the channel was dropped"):
            one.find("a")
    db = open_database(over=over)
    assert db.channels() == ["two"]
    assert db.channel("one", layout="two").find("a") == []
    assert [s.id for s in db.channel("two", space=Topics()).subscriptions()] == ["s"]


@pytest.mark.parametrize("over", OVER)
def test_a_closed_database_says_so(over: str, open_database: Opener) -> None:
    with open_database(over=over) as db:
        channel = db.channel("roads")
        sub = channel.subscribe("a", user="u", id="s")
    for call in (
        lambda: channel.publish("a", {}),
        lambda: channel.subscribe("a", user="u"),
        lambda: channel.find("a"),
        lambda: channel.cancel("s"),
        lambda: channel.apply(table_of([])),
        lambda: channel.stats(),
        lambda: sub.take(),
        lambda: db.channel("roads"),
    ):
        with pytest.raises(Closed):
            call()
    db.close()  # again: harmless


def test_a_database_in_memory_leaves_no_file(
    clock: ManualClock, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with tideline.open(":memory:", clock=clock) as db:
        channel = db.channel("roads", space=QuadTree(bounds=(0.0, 0.0, 8.0, 8.0), depth=3))
        channel.publish((1.0, 1.0), {}, id="e")
        near = channel.subscribe(Circle((1.0, 1.0), radius_m=10), user="u", since_s=-1)
        assert ids(near.past) == ["e"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("layout", LAYOUTS)
def test_stats_count_what_is_live(layout: str, open_channel: Opener, clock: ManualClock) -> None:
    channel = open_channel(layout)
    channel.publish("a", {}, ttl_s=5)
    channel.publish("a", {})
    channel.subscribe("a", user="u", until_s=5, since_s=-1)
    channel.subscribe("a", user="u", id="s")
    stats = channel.stats()
    assert (stats.events, stats.subscriptions, stats.answers) == (2, 2, 4)
    assert stats.bytes_memory > 0
    assert stats.bytes_log > 0
    clock.advance(5)
    channel.cancel("s")
    stats = channel.stats()
    assert (stats.events, stats.subscriptions) == (1, 0)


def test_an_event_can_be_pickled_before_and_after_somebody_looked() -> None:
    with tideline.open(":memory:") as db:
        event = db.channel("news").publish("a", {"n": [1]}).event
        unread = pickle.dumps(event)
        assert event.body == {"n": [1]}
        for data in (unread, pickle.dumps(event)):
            again = pickle.loads(data)
            assert (again, again.body, again.token) == (event, {"n": [1]}, event.token)
