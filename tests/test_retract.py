"""`Channel.retract`, `publish(replace=True)` and who is told: what they promise.

Both mixed with everything else, kills too: tests/test_channel_machine.py.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from contract import LAYOUTS, START, Opener, ids

import tideline
from tideline import Box, QuadTree, Topics
from tideline.errors import InvalidRequest, NotFound, Unavailable
from tideline.kernels import layout as at
from tideline.testing import ManualClock


def heard(sub: Any) -> list[tuple[str, bool]]:
    return [(event.id, event.retracted) for event in sub.take()]


def seen(channel: Any, place: str = "a") -> list[Any]:
    """What is there of an event, by every way to ask."""
    return [
        ids(channel.find(place)),
        channel.scan("events")["id"].to_pylist(),
        ids(channel.subscribe(place, user="x", since_s=-60, until_s=1).past),
        channel.stats().events,
    ]


@pytest.mark.parametrize("layout", [*LAYOUTS, "poll"])
@pytest.mark.parametrize("before", ["nothing", "seal"])
@pytest.mark.parametrize("after", ["nothing", "seal", "reopen"])
def test_a_retracted_event_is_found_by_nobody(
    layout: str, before: str, after: str, open_channel: Opener, clock: ManualClock
) -> None:
    channel = open_channel(layout)
    channel.publish("a", {}, id="e1", ttl_s=600)
    channel.publish("a", {}, id="e2", ttl_s=600)
    if before == "seal":
        channel.seal()
    channel.retract("e1")
    if after == "seal":
        channel.seal()
        channel.maintain()
    elif after == "reopen":
        channel = open_channel(layout)
    assert seen(channel) == [["e2"], ["e2"], ["e2"], 1]
    assert channel.get("e1") is None
    assert ids(channel.publish("a", {}, id="e3", related=True, ttl_s=600).related) == ["e2"]
    with pytest.raises(NotFound):
        channel.retract("e1")
    assert not channel.publish("a", {"n": 2}, id="e1", ttl_s=600).duplicate  # its id is free
    assert ids(channel.find("a"))[0] == "e1"
    clock.advance(600)
    with pytest.raises(NotFound):
        channel.retract("e1")


@pytest.mark.parametrize("layout", [*LAYOUTS, "poll"])
@pytest.mark.parametrize("between", ["nothing", "seal", "reopen"])
def test_an_event_takes_the_place_of_the_one_before(
    layout: str, between: str, open_channel: Opener
) -> None:
    channel = open_channel(layout)
    for n, place in enumerate("aabab"):
        told = channel.publish(place, {"n": n}, id="truck", ttl_s=600, replace=True)
        assert (told.duplicate, told.event.body) == (False, {"n": n})
        if between == "seal":
            channel.seal()
        elif between == "reopen":
            channel = open_channel(layout)
        assert channel.get("truck").body == {"n": n}
        assert [e.body["n"] for e in channel.find(place)] == [n]
        assert channel.stats().events == 1
    assert channel.find("a") == []


@pytest.mark.parametrize("layout", LAYOUTS)
def test_whoever_was_told_is_told_that_it_is_gone(
    layout: str, open_channel: Opener, clock: ManualClock
) -> None:
    channel = open_channel(layout, Topics())

    def ask(place: str, **more: Any) -> Any:
        return channel.subscribe(place, user=more.pop("user", "u"), until_s=600, **more)

    channel.publish("x/1", {"n": 1}, id="o1", ttl_s=600)
    clock.advance(1)
    past = ask("x", since_s=-60, retractions=True)
    moved = ask("x/1", since_s=-60, retractions=True)
    moved.move("y")
    late = ask("x", retractions=True)  # its window begins after the event
    picky = ask("x", since_s=-60, where={"n": 2}, retractions=True)
    elsewhere = ask("z", since_s=-60, retractions=True)
    deaf = ask("x", since_s=-60)
    unseen = ask("x", since_s=-60, unseen=True, retractions=True)  # its user had it already
    first = ask("x", since_s=-60, unseen=True, retractions=True, user="v")
    channel.retract("o1")
    assert [heard(s) for s in (past, moved, first)] == [[("o1", True)]] * 3
    assert [heard(s) for s in (late, picky, elsewhere, deaf, unseen)] == [[]] * 5
    live = channel.publish("x/2", {"n": 2}, id="o2", ttl_s=600)
    assert live.event.retracted is False
    assert heard(picky) == [("o2", False)]
    channel.retract("o2")
    [gone] = picky.take()
    assert (gone.id, gone.place, gone.body, gone.retracted) == ("o2", "x/2", {"n": 2}, True)
    assert gone.token > live.event.token
    assert heard(deaf) == [("o2", False)]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_whoever_loses_a_replaced_event_is_told(layout: str, open_channel: Opener) -> None:
    channel = open_channel(layout)
    here, there = (
        channel.subscribe(place, user=place, until_s=600, retractions=True) for place in "ab"
    )
    for place in "aab":
        channel.publish(place, {}, id="truck", ttl_s=600, replace=True)
    assert heard(here) == [("truck", False), ("truck", False), ("truck", True)]
    assert heard(there) == [("truck", False)]


def test_a_handle_that_is_resumed_asks_again_for_retractions(open_channel: Opener) -> None:
    channel = open_channel("http")
    sub = channel.subscribe("a", user="u", id="s", until_s=600, retractions=True)
    channel.publish("a", {}, id="e1", ttl_s=600)
    channel.publish("a", {}, id="e2", ttl_s=600)
    assert heard(sub) == [("e1", False), ("e2", False)]
    channel._verbs._live._live._socket.close()  # a cut: the client resumes by itself
    assert sub.take() == []
    channel.retract("e1")
    assert heard(sub) == [("e1", True)]
    sub = channel.resume("s", retractions=True)
    assert ids(sub.past) == ["e2"]
    channel.retract("e2")
    assert heard(sub) == [("e2", True)]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_retry_with_its_own_time_replaces_once(layout: str, open_channel: Opener) -> None:
    channel = open_channel(layout)
    sub = channel.subscribe("a", user="u", until_s=600)
    given = {"id": "truck", "at": START, "ttl_s": 600, "replace": True}
    assert [channel.publish("a", {}, **given).duplicate for _ in range(2)] == [False, True]
    assert not channel.publish("a", {}, id="truck", ttl_s=600, replace=True).duplicate
    assert len(sub.take()) == 2
    assert channel.stats().events == 1


@pytest.mark.parametrize("layout", ["dual", "two"])
@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize("verb", ["retract", "replace"])
def test_what_could_not_be_logged_has_not_happened(
    layout: str, sealed: bool, verb: str, open_channel: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = open_channel(layout)
    sub = channel.subscribe("a", user="u", until_s=600, retractions=True)
    channel.publish("a", {"n": 1}, id="e", ttl_s=600)
    assert heard(sub) == [("e", False)]
    if sealed:
        channel.seal()

    def refuse(*_: Any) -> None:
        raise Unavailable("disk is full")

    def run() -> None:
        if verb == "retract":
            channel.retract("e")
        else:
            channel.publish("b", {"n": 2}, id="e", ttl_s=600, replace=True)

    for _ in range(3):
        with monkeypatch.context() as patch:
            patch.setattr(channel.core.engine.store.log, "append_parts", refuse)
            patch.setattr(channel.core.engine.calls, "_append_framed", refuse)
            with pytest.raises(Unavailable):
                run()
        assert channel.get("e").body == {"n": 1}
        assert seen(channel) == [["e"], ["e"], ["e"], 1]
        assert heard(sub) == []
    run()
    assert heard(sub) == [("e", True)]
    channel = open_channel(layout)
    assert ids(channel.find("a")) == []
    assert channel.stats().events == (verb == "replace")


@pytest.mark.parametrize("layout", ["dual", "two"])
def test_many_replacings_against_a_dictionary(layout: str, open_channel: Opener) -> None:
    """Sealing in between and little memory: what is there is the last of each id."""
    draw = random.Random(7)
    space = QuadTree((0, 0, 8, 8), depth=4)
    channel = open_channel(layout, space, memory_mb=1)
    there: dict[str, tuple[Any, int]] = {}
    for n in range(3000):
        id = f"t{draw.randrange(40)}"
        if draw.random() < 0.1 and id in there:
            channel.retract(id)
            del there[id]
        else:
            place = (draw.uniform(0, 8), draw.uniform(0, 8))
            body = {"n": n, "pad": "x" * draw.choice([0, 0, 2000])}
            channel.publish(place, body, id=id, ttl_s=600, replace=True)
            there[id] = (place, n)
        if n % 700 == 0:
            channel.seal()
        if n % 1500 == 1400:
            channel = open_channel(layout, space, memory_mb=1)
        if n % 100 == 0:
            found = {e.id: (e.place, e.body["n"]) for e in channel.find(Box(0, 0, 8, 8))}
            assert found == there
    assert channel.stats().events == len(there)
    assert sorted(channel.scan("events")["id"].to_pylist()) == sorted(there)


@pytest.mark.parametrize("layout", ["dual", "two"])
def test_an_id_that_is_given_often_has_one_entry(layout: str) -> None:
    with tideline.open(":memory:") as db:
        channel = db.channel("c", layout=layout)
        for n in range(500):
            channel.publish("a", {"n": n}, id="truck", replace=True)
        memory = channel.core.engine.parts.side_of(at.EVENTS).memory
        assert memory.state[at.E_IDS_USED] == 1


def test_wrong_input(open_channel: Opener) -> None:
    channel = open_channel("dual")
    for wrong in (None, 7, "", "x" * 300):
        with pytest.raises(InvalidRequest, match="id"):
            channel.retract(wrong)
    with pytest.raises(InvalidRequest, match="replace needs the id"):
        channel.publish("a", {}, replace=True)
    with pytest.raises(InvalidRequest, match="replace must be True or False"):
        channel.publish("a", {}, id="e", replace=1)
    with pytest.raises(InvalidRequest, match="retractions must be True or False"):
        channel.subscribe("a", user="u", retractions="yes")
    assert (channel.subscriptions(), channel.find("a")) == ([], [])
    with pytest.raises(InvalidRequest, match="retractions"):
        open_channel("poll", name="polled").subscribe("a", user="u", retractions=True)
