"""The contract: each sentence of DESIGN.md, "What an answer is", as a named example.

The state machine proves the same rules over random operations; these say what they mean.
Every test that holds for the `poll` layout runs on it too; the rest of poll is test_poll.py.
"""

from __future__ import annotations

from typing import Any

import pytest
from contract import ASKING, LAYOUTS, START, Opener, after, ids, told

from tideline import Box, Circle, Grid, QuadTree, Topics
from tideline.testing import ManualClock

QUAD = QuadTree(bounds=(-80.0, 40.0, -72.0, 44.0), depth=6)
GRID = Grid(bounds=(-80.0, 40.0, -72.0, 44.0), rows=16, cols=16)


def past(channel: Any, place: Any, **options: Any) -> list[str]:
    options.setdefault("since_s", -100)
    options.setdefault("until_s", 100)
    return ids(channel.subscribe(place, user="u", **options).past)


# Rule 1: places meet ------------------------------------------------------------------


@pytest.mark.parametrize("layout", ASKING)
def test_a_flat_place_meets_the_same_key_only(layout: str, open_channel: Opener) -> None:
    channel = open_channel(layout)
    channel.publish("a", {}, id="e")
    assert past(channel, "a") == ["e"]
    assert past(channel, "a/b") == []
    assert past(channel, "A") == []


@pytest.mark.parametrize("layout", ASKING)
@pytest.mark.parametrize(
    ("place", "meeting"),
    [
        ("sports", True),
        ("sports/soccer", True),
        ("sports/soccer/fifa", True),
        ("sports/socc", False),
        ("sports/tennis", False),
        ("news", False),
    ],
)
def test_a_topic_meets_its_ancestors_and_descendants(
    layout: str, place: str, meeting: bool, open_channel: Opener
) -> None:
    channel = open_channel(layout, Topics())
    channel.publish("sports/soccer", {}, id="e")
    assert past(channel, place) == (["e"] if meeting else [])


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("space", "ancestor", "descendant", "beside"),
    [(Topics(), "a", "a/b/c", "ab"), (QUAD, "1", "1.4.2", "2.4.2")],
)
def test_trees_match_in_both_directions_live_and_past(
    layout: str, space: Any, ancestor: str, descendant: str, beside: str, open_channel: Opener
) -> None:
    channel = open_channel(layout, space)
    channel.subscribe(ancestor, user="u", id="above")
    channel.subscribe(descendant, user="u", id="below")
    channel.subscribe(beside, user="u", id="beside")
    assert told(channel.publish(descendant, {}, id="d")) == ["above", "below"]
    assert told(channel.publish(ancestor, {}, id="a")) == ["above", "below"]
    assert past(channel, ancestor) == ["d", "a"]
    assert past(channel, descendant) == ["d", "a"]


@pytest.mark.parametrize("layout", ASKING)
def test_segment_10_is_not_below_segment_1(layout: str, open_channel: Opener) -> None:
    channel = open_channel(layout, Topics())
    for place in ("a/1", "a/10", "a/9", "a/1/0"):
        channel.publish(place, {}, id=place)
    assert past(channel, "a/1") == ["a/1", "a/1/0"]
    assert past(channel, "a/10") == ["a/10"]
    assert past(channel, "a") == ["a/1", "a/10", "a/9", "a/1/0"]


@pytest.mark.parametrize("layout", ASKING)
@pytest.mark.parametrize("space", [QUAD, GRID])
def test_circles_match_exactly_and_cells_only_narrow(
    layout: str, space: Any, open_channel: Opener
) -> None:
    # One degree of latitude is 111 km, so 0.01 degrees north is 1,112 m away.
    channel = open_channel(layout, space)
    channel.publish((-73.98, 40.76), {}, id="near")
    channel.publish((-73.98, 40.77), {}, id="in the same cell, too far")
    centre = (-73.98, 40.75)
    assert past(channel, Circle(centre, radius_m=1_000)) == []
    assert past(channel, Circle(centre, radius_m=1_200)) == ["near"]
    assert past(channel, Circle(centre, radius_m=2_200)) == ["near"]
    assert len(past(channel, Circle(centre, radius_m=2_300))) == 2


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("space", [QUAD, GRID])
def test_shapes_meet_shapes_whichever_comes_first(
    layout: str, space: Any, open_channel: Opener
) -> None:
    channel = open_channel(layout, space)
    box = Box(-76.5, 41.5, -75.5, 42.5)
    channel.subscribe(box, user="u", id="box")
    channel.subscribe(Circle((-75.0, 42.0), radius_m=60_000), user="u", id="circle")
    channel.subscribe((-76.0, 42.0), user="u", id="point")
    assert told(channel.publish((-76.0, 42.0), {}, id="in the box")) == ["box", "point"]
    assert told(channel.publish((-75.4, 42.0), {}, id="in the circle")) == ["circle"]
    assert told(channel.publish((-75.55, 42.0), {}, id="in both")) == ["box", "circle"]
    assert told(channel.publish((-79.0, 43.0), {}, id="in none")) == []
    assert past(channel, box) == ["in the box", "in both"]


@pytest.mark.parametrize("layout", ASKING)
def test_a_quad_path_meets_points_of_its_cell(layout: str, open_channel: Opener) -> None:
    channel = open_channel(layout, QUAD)
    channel.publish((-79.5, 40.2), {}, id="e")
    met = [digit for digit in "1234" if past(channel, digit) == ["e"]]
    assert len(met) == 1
    assert past(channel, Box(-80.0, 40.0, -76.5, 41.5)) == ["e"]


# Rule 2: since <= at < until ----------------------------------------------------------


@pytest.mark.parametrize("layout", ASKING)
def test_a_window_holds_its_start_and_not_its_limit(layout: str, open_channel: Opener) -> None:
    channel = open_channel(layout)
    channel.publish("a", {}, id="e", at=after(-10))
    assert past(channel, "a", since_s=-10) == ["e"]
    assert past(channel, "a", since_s=-9.999999) == []
    assert past(channel, "a", since_s=-20, until_s=-10) == []
    assert past(channel, "a", since_s=-20, until_s=-9.999999) == ["e"]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_live_answer_keeps_to_the_window(layout: str, open_channel: Opener) -> None:
    channel = open_channel(layout)
    channel.subscribe("a", user="u", id="s", since=after(5), until=after(10))
    assert told(channel.publish("a", {}, at=after(4.999999))) == []
    assert told(channel.publish("a", {}, at=after(5))) == ["s"]
    assert told(channel.publish("a", {}, at=after(9.999999))) == ["s"]
    assert told(channel.publish("a", {}, at=after(10))) == []


@pytest.mark.parametrize("layout", LAYOUTS)
def test_by_default_a_subscription_starts_now_and_never_ends(
    layout: str, open_channel: Opener, clock: ManualClock
) -> None:
    channel = open_channel(layout)
    channel.publish("a", {}, at=after(-1))
    sub = channel.subscribe("a", user="u", id="s")
    assert (sub.past, sub.since, sub.until) == ([], START, None)
    clock.advance(10_000_000)
    assert told(channel.publish("a", {})) == ["s"]


@pytest.mark.parametrize("layout", ASKING)
def test_by_default_an_event_happens_now_and_never_expires(
    layout: str, open_channel: Opener, clock: ManualClock
) -> None:
    channel = open_channel(layout)
    event = channel.publish("a", {}, id="e").event
    assert (event.at, event.until) == (START, None)
    clock.advance(10_000_000)
    assert past(channel, "a", since=START, since_s=None) == ["e"]


# Rule 3: where ------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ASKING)
@pytest.mark.parametrize(
    ("where", "answers"),
    [
        ({}, ["1", "2", "3", "none"]),
        ({"n": 2}, ["2"]),
        ({"n": {"$eq": 2}}, ["2"]),
        ({"n": {"$gt": 1, "$lt": 3}}, ["2"]),
        ({"n": {"$gte": 2}}, ["2", "3"]),
        ({"n": {"$lte": 2}, "kind": "b"}, ["2"]),
        ({"n": {"$ne": 2}}, ["1", "3", "none"]),
        ({"n": "2"}, []),
    ],
)
def test_a_condition_narrows_the_answers(
    layout: str, where: dict[str, Any], answers: list[str], open_channel: Opener
) -> None:
    channel = open_channel(layout)
    channel.publish("a", {"n": 1, "kind": "a"}, id="1")
    channel.publish("a", {"n": 2, "kind": "b"}, id="2")
    channel.publish("a", {"n": 3, "kind": "b"}, id="3")
    channel.publish("a", {"kind": "a"}, id="none")
    assert past(channel, "a", where=where) == answers
    assert sorted(ids(channel.find("a", where=where))) == sorted(answers)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_condition_narrows_live_answers(layout: str, open_channel: Opener) -> None:
    channel = open_channel(layout)
    channel.subscribe("a", user="u", id="cold", where={"t": {"$lt": 5}})
    channel.subscribe("a", user="u", id="warm", where={"t": {"$gte": 5}})
    assert told(channel.publish("a", {"t": 4})) == ["cold"]
    assert told(channel.publish("a", {"t": 5})) == ["warm"]
    assert told(channel.publish("a", "not a document")) == []


# Rule 4: the earlier is still valid ---------------------------------------------------


@pytest.mark.parametrize("layout", ASKING)
def test_an_expired_event_is_never_an_answer(
    layout: str, open_channel: Opener, clock: ManualClock
) -> None:
    channel = open_channel(layout)
    channel.publish("a", {}, id="e", ttl_s=5)
    clock.advance(4.999999)
    assert past(channel, "a") == ["e"]
    clock.advance(0.000001)
    assert past(channel, "a") == []
    assert channel.find("a") == []


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_expired_subscription_is_never_answered(
    layout: str, open_channel: Opener, clock: ManualClock
) -> None:
    channel = open_channel(layout)
    channel.subscribe("a", user="u", id="s", until_s=5)
    clock.advance(5)
    # Its time lies in the window; the subscription is gone all the same.
    assert told(channel.publish("a", {}, at=after(3))) == []
    assert channel.subscriptions() == []


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_event_expired_on_arrival_still_answers_live_subscriptions(
    layout: str, open_channel: Opener
) -> None:
    channel = open_channel(layout)
    sub = channel.subscribe("a", user="u", id="s", since_s=-60)
    assert told(channel.publish("a", {}, id="e", at=after(-20), ttl_s=5)) == ["s"]
    assert ids(sub.take()) == ["e"]
    assert past(channel, "a") == []
    assert channel.find("a") == []


# Nothing missed, nothing twice --------------------------------------------------------


@pytest.mark.parametrize("layout", LAYOUTS)
def test_past_and_live_together_hold_everything_once(layout: str, open_channel: Opener) -> None:
    channel = open_channel(layout)
    got: list[str] = []
    for n in range(3):
        channel.publish("a", {"n": n}, id=f"early{n}")
    sub = channel.subscribe("a", user="u", since_s=-1)
    got += ids(sub.past)
    for n in range(3):
        channel.publish("a", {"n": n}, id=f"late{n}")
        got += ids(sub.take())
    assert got == ["early0", "early1", "early2", "late0", "late1", "late2"]
    assert sub.take() == []


@pytest.mark.parametrize("layout", LAYOUTS)
def test_publish_tells_every_subscription_in_order_of_arrival(
    layout: str, open_channel: Opener
) -> None:
    channel = open_channel(layout, Topics())
    places = ["a/b", "a", "a/b/c", "a/b", "a"]
    for n, place in enumerate(places):
        channel.subscribe(place, user=f"u{n}", id=f"s{n}")
    answer = channel.publish("a/b", {})
    assert [(s.id, s.user) for s in answer.subscriptions] == [(f"s{n}", f"u{n}") for n in range(5)]


# unseen -------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("ending", ["stays", "expires", "is cancelled", "is sealed"])
def test_unseen_leaves_out_what_an_earlier_subscription_got(
    layout: str, ending: str, open_channel: Opener, clock: ManualClock
) -> None:
    channel = open_channel(layout)
    channel.publish("a", {}, id="old")
    first = channel.subscribe("a", user="u", since_s=-10, until_s=5)
    channel.publish("a", {}, id="live")
    if ending == "expires":
        clock.advance(6)
    elif ending == "is cancelled":
        first.cancel()
    elif ending == "is sealed":
        channel.seal()
        clock.advance(6)
    channel.publish("a", {}, id="new", at=after(6))
    assert past(channel, "a", unseen=True) == ["new"]
    assert past(channel, "a", unseen=True) == []
    assert past(channel, "a", unseen=False) == ["old", "live", "new"]
    other = channel.subscribe("a", user="other", since_s=-100, unseen=True)
    assert ids(other.past) == ["old", "live", "new"]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_unseen_counts_what_was_answered_not_what_was_asked(
    layout: str, open_channel: Opener
) -> None:
    channel = open_channel(layout, Topics())
    channel.publish("a/1", {"n": 1}, id="e1")
    channel.publish("a/2", {"n": 2}, id="e2")
    channel.subscribe("a", user="u", since_s=-10, where={"n": 1})
    assert past(channel, "a", unseen=True) == ["e2"]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_unseen_subscription_yields_to_the_earlier(layout: str, open_channel: Opener) -> None:
    channel = open_channel(layout, Topics())
    channel.subscribe("a", user="u", id="unseen1", unseen=True)
    channel.subscribe("a/b", user="u", id="plain")
    channel.subscribe("a", user="u", id="unseen2", unseen=True)
    channel.subscribe("a", user="v", id="other", unseen=True)
    assert told(channel.publish("a/b", {})) == ["unseen1", "plain", "other"]
    assert told(channel.publish("a/c", {})) == ["unseen1", "other"]
    channel.cancel("unseen1")
    assert told(channel.publish("a/b", {})) == ["plain", "other"]
    assert told(channel.publish("a/c", {})) == ["unseen2", "other"]


# related ------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ASKING)
def test_related_returns_the_valid_earlier_events_at_exactly_the_same_place(
    layout: str, open_channel: Opener, clock: ManualClock
) -> None:
    channel = open_channel(layout, Topics())
    channel.publish("a/b", {}, id="gone", ttl_s=1)
    channel.publish("a/b", {}, id="first", ttl_s=10)
    channel.publish("a", {}, id="above")
    channel.publish("a/b/c", {}, id="below")
    clock.advance(1)
    channel.publish("a/b", {}, id="second")
    answer = channel.publish("a/b", {}, id="third", related=True)
    assert ids(answer.related) == ["first", "second"]
    assert channel.publish("a/b", {}, id="fourth").related == []


@pytest.mark.parametrize("layout", ASKING)
def test_related_at_a_point_is_the_same_point_not_the_same_cell(
    layout: str, open_channel: Opener
) -> None:
    channel = open_channel(layout, QUAD)
    channel.publish((-76.01, 42.01), {}, id="same")
    channel.publish((-76.0100001, 42.01), {}, id="beside")
    assert ids(channel.publish((-76.01, 42.01), {}, related=True).related) == ["same"]
