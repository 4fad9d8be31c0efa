"""`Channel.move`, `Subscription.move`, `Channel.get` and `take(timeout_s=)`: what each promises.

Moves mixed with everything else, kills too: tests/test_channel_machine.py.
"""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest
from contract import LAYOUTS, Opener, ids
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import few

import tideline
from tideline import Circle, QuadTree, Topics
from tideline.errors import InvalidRequest, NotFound, Unavailable
from tideline.testing import ManualClock


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_moved_subscription_gets_what_is_new_to_it_and_nothing_twice(
    layout: str, open_channel: Opener
) -> None:
    channel = open_channel(layout, Topics())
    for id, place in [("both", "x"), ("old", "x/1"), ("new", "x/2")]:
        channel.publish(place, {}, id=id, ttl_s=600)
    sub = channel.subscribe("x/1", user="u", id="s", since_s=-60, until_s=600)
    assert ids(sub.past) == ["both", "old"]
    channel.publish("x/1", {}, id="waits", ttl_s=600)
    sub.move("x/2")
    assert sub.place == "x/2"
    assert channel.subscription("s").place == "x/2"
    assert ids(sub.take()) == ["waits", "new"]  # its queue stays, then what is new
    assert channel.publish("x/1", {}, id="gone", ttl_s=600).subscriptions == []
    channel.publish("x/2", {}, id="live", ttl_s=600)
    assert ids(sub.take()) == ["live"]
    sub.move("x/1")
    assert ids(sub.take()) == ["gone"]
    sub.move("x/1")  # it is there
    assert sub.take() == []


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("unseen", [False, True])
@pytest.mark.parametrize("between", ["nothing", "seal", "reopen"])
def test_a_moved_subscription_is_resumed_with_all_it_was_answered_with(
    layout: str, unseen: bool, between: str, open_channel: Opener, clock: ManualClock
) -> None:
    channel = open_channel(layout)
    channel.publish("b", {}, id="b1", ttl_s=600)
    sub = channel.subscribe("a", user="u", id="s", since_s=-60, until_s=600, unseen=unseen)
    channel.publish("a", {}, id="a1", ttl_s=600)
    channel.publish("a", {}, id="short", ttl_s=5)
    info = channel.move("s", "b")
    assert (info.id, info.user, info.place, info.unseen) == ("s", "u", "b", unseen)
    channel.publish("b", {}, id="b2", ttl_s=600)
    got = sub.take()
    assert ids(got) == ["a1", "short", "b1", "b2"]
    channel.move("s", "c")
    channel.prolong("s", until_s=900)
    if between == "seal":
        channel.seal()
    elif between == "reopen":
        channel = open_channel(layout)
    clock.advance(5)
    again = channel.resume("s").past
    assert ids(again) == ["a1", "b1", "b2"]
    assert [e.token for e in again] == [e.token for e in got if e.id != "short"]
    assert ids(channel.resume("s", after=got[2].token).past) == ["b2"]
    assert channel.subscribe("b", user="u", since_s=-60, unseen=True).past == []


def test_a_move_whose_log_write_fails_has_not_happened(
    open_channel: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = open_channel("dual")
    channel.publish("b", {}, id="b1", ttl_s=600)
    sub = channel.subscribe("a", user="u", id="s", since_s=-60, until_s=600)

    def refuse(*_: Any) -> None:
        raise Unavailable("disk is full")

    with monkeypatch.context() as patch:
        for name in ("append_parts", "append_framed"):
            patch.setattr(channel.core.engine.store.log, name, refuse)
        patch.setattr(channel.core.engine.calls, "_append_framed", refuse)
        with pytest.raises(Unavailable):
            sub.move("b")
    assert (sub.place, sub.take(), channel.subscription("s").place) == ("a", [], "a")
    channel.publish("a", {}, id="a1", ttl_s=600)
    assert ids(sub.take()) == ["a1"]
    sub.move("b")
    assert ids(sub.take()) == ["b1"]


def test_a_follower_is_told_what_a_move_finds(open_channel: Opener) -> None:
    channel = open_channel("dual")
    channel.publish("b", {}, id="b1", ttl_s=600)
    sub = channel.subscribe("a", user="u", since_s=-60, until_s=600)
    got: list[tuple[str, list[str]]] = []
    sub.follow(lambda events, kind: got.append((kind, ids(list(events)))))
    sub.move("b")
    assert got == [("past", []), ("live", ["b1"])]


def test_a_polled_handle_moves_too(open_channel: Opener, clock: ManualClock) -> None:
    channel = open_channel("poll", Topics())
    for id, place in [("both", "x"), ("new", "x/2")]:
        channel.publish(place, {}, id=id, ttl_s=600)
    sub = channel.subscribe("x/1", user="u", since_s=-60, until_s=600)
    assert ids(sub.past) == ["both"]
    sub.move("x/2")
    assert ids(sub.take()) == ["new"]
    channel.publish("x/2", {}, id="live", ttl_s=600)
    clock.advance(1)
    assert ids(sub.take()) == ["live"]
    sub.cancel()
    with pytest.raises(NotFound):
        sub.move("x/1")
    with pytest.raises(NotFound):
        channel.move("s", "x")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_cannot_be_moved(layout: str, open_channel: Opener) -> None:
    channel = open_channel(layout)
    sub = channel.subscribe("a", user="u", id="s", until_s=60)
    for wrong in (7, "", None, "x" * 600):
        with pytest.raises(InvalidRequest):
            sub.move(wrong)
    with pytest.raises(InvalidRequest):
        channel.move(7, "a")
    assert channel.subscription("s").place == "a"
    channel.cancel("s")
    with pytest.raises(NotFound):
        sub.move("b")
    with pytest.raises(NotFound):
        channel.move("s", "b")


_POINT = st.tuples(st.integers(-8, 8), st.integers(-8, 8)).map(lambda p: (p[0] / 4, p[1] / 4))
_CIRCLE = st.tuples(_POINT, st.sampled_from([20_000, 90_000])).map(lambda c: Circle(*c))


@settings(max_examples=few(25), deadline=None)
@given(
    steps=st.lists(
        st.one_of(_POINT.map(lambda p: ("publish", p)), _CIRCLE.map(lambda c: ("move", c))),
        max_size=25,
    ),
    first=_CIRCLE,
)
def test_a_moving_circle_gets_each_event_that_it_meets_once(steps: Any, first: Circle) -> None:
    """Against plain lists: an event is told when the circle first meets it, in that order."""
    space = QuadTree((-3, -3, 3, 3), depth=6)
    with tideline.open(":memory:", clock=ManualClock(1_000)) as db:
        channel = db.channel("c", space=space)
        sub = channel.subscribe(first, user="u", since_s=-60, until_s=600)
        events: list[tuple[str, Any]] = []
        here, told, got = first, list[str](), list[str]()
        for n, (what, place) in enumerate(steps):
            if what == "publish":
                channel.publish(place, {}, id=f"e{n}", ttl_s=600)
                events.append((f"e{n}", place))
            else:
                sub.move(place)
                here = place
            for id, at in events:
                met = tideline.space.meets(space, space.encode(here), space.encode(at))
                if met and id not in told:
                    told.append(id)
            got += ids(sub.take())
        assert got == told


@pytest.mark.parametrize("layout", LAYOUTS)
def test_get_gives_an_event_while_it_is_valid(
    layout: str, open_channel: Opener, clock: ManualClock
) -> None:
    channel = open_channel(layout)
    channel.publish("a", {"n": 1}, id="e/1", ttl_s=10)
    for _ in range(2):
        event = channel.get("e/1")
        assert (event.id, event.place, event.body) == ("e/1", "a", {"n": 1})
        channel.seal()
    assert channel.get("e2") is None
    clock.advance(10)
    assert channel.get("e/1") is None
    for wrong in (None, 7, "", "x" * 300):
        with pytest.raises(InvalidRequest):
            channel.get(wrong)


@pytest.mark.parametrize("layout", [*LAYOUTS, "poll"])
def test_take_waits_for_an_event(layout: str, open_channel: Opener, clock: ManualClock) -> None:
    channel = open_channel(layout)
    sub = channel.subscribe("a", user="u", until_s=600)
    got: list[Any] = []
    reader = threading.Thread(target=lambda: got.append(ids(sub.take(timeout_s=300))))
    reader.start()
    channel.publish("a", {}, id="e1", ttl_s=60)
    if layout == "poll":
        clock.advance(1)
    reader.join(300)
    assert got == [["e1"]]
    channel.publish("a", {}, id="e2", ttl_s=60)
    clock.advance(1)
    assert ids(sub.take(timedelta(seconds=9))) == ["e2"]  # nothing to wait for
    assert sub.take(timeout_s=0) == []
    for wrong in (-1, "1", float("nan"), timedelta(seconds=-1)):
        with pytest.raises(InvalidRequest, match="timeout_s"):
            sub.take(timeout_s=wrong)


@pytest.mark.parametrize("layout", ["dual", "poll"])
@pytest.mark.parametrize("end", ["time", "window", "cancel"])
def test_a_take_that_waits_ends(
    layout: str, end: str, open_channel: Opener, clock: ManualClock
) -> None:
    channel = open_channel(layout)
    sub = channel.subscribe("a", user="u", until_s=20)
    got: list[Any] = []
    timeout_s = 10 if end == "time" else 1000
    reader = threading.Thread(target=lambda: got.append(sub.take(timeout_s=timeout_s)))
    reader.start()
    if end == "cancel":
        sub.cancel()
    else:
        while reader.is_alive():  # the clock stands still unless somebody moves it
            clock.advance(1)
            reader.join(0.01)
    reader.join(300)
    assert got == [[]]
    assert (end == "time") == (clock.now() < 1_020_000_000) or end == "cancel"


def test_a_take_over_the_wire_gives_up_in_time(open_channel: Opener) -> None:
    sub = open_channel("http").subscribe("a", user="u", until_s=600)
    assert sub.take(timeout_s=0.05) == []
