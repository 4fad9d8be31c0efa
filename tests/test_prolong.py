"""`Channel.prolong` and `Subscription.follow`: a window's end moves, answers go to a function."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest
from contract import START, Opener, ids, told

from tideline.errors import InvalidRequest, NotFound
from tideline.testing import ManualClock

LAYOUTS = ["dual", "two"]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("between", ["nothing", "seal", "reopen"])
def test_a_prolonged_window_goes_on(
    layout: str, between: str, open_channel: Opener, clock: ManualClock
) -> None:
    channel = open_channel(layout)
    channel.publish("a", {}, id="before", ttl_s=1000)
    sub = channel.subscribe("a", user="u", id="s", since_s=-60, until_s=10, where={"n": None})
    assert ids(sub.past) == ["before"]
    if between == "seal":
        channel.seal()
    elif between == "reopen":
        channel = open_channel(layout)
        sub = channel.resume("s")
    clock.advance(9)
    info = channel.prolong("s", until_s=100)
    assert (info.id, info.user, info.place, info.where) == ("s", "u", "a", {"n": None})
    assert info.until == START + timedelta(seconds=109)
    assert sub.until == info.until
    clock.advance(50)
    assert told(channel.publish("a", {}, id="after", ttl_s=1000)) == ["s"]
    assert ids(sub.take()) == ["after"]  # and nothing of what it had before
    channel = open_channel(layout)
    assert [i.until for i in channel.subscriptions()] == [info.until]
    assert ids(channel.resume("s").past) == ["before", "after"]
    clock.advance(50)
    with pytest.raises(NotFound):
        channel.prolong("s", until_s=1)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_window_can_end_earlier(layout: str, open_channel: Opener, clock: ManualClock) -> None:
    channel = open_channel(layout)
    sub = channel.subscribe("a", user="u", id="s", until_s=1000)
    channel.prolong("s", until_s=5)
    clock.advance(5)
    assert told(channel.publish("a", {}, id="e")) == []
    assert sub.expired
    assert channel.subscriptions() == []


def test_a_wrong_end_is_told_as_a_time(open_channel: Opener) -> None:
    channel = open_channel("dual")
    channel.subscribe("a", user="u", id="s", until_s=60)
    with pytest.raises(InvalidRequest) as refused:
        channel.prolong("s", until_s=-5)
    assert refused.value.values == {
        "until": "1970-01-01T00:16:35+00:00", "now": "1970-01-01T00:16:40+00:00",
    }  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_only_the_new_end_lets_in_is_delivered(layout: str, open_channel: Opener) -> None:
    channel = open_channel(layout)
    sub = channel.subscribe("a", user="u", id="s", until_s=10)
    channel.publish("a", {}, id="inside", at=START + timedelta(seconds=5))
    channel.publish("a", {}, id="later", at=START + timedelta(seconds=50))
    assert ids(sub.take()) == ["inside"]
    channel.prolong("s", until_s=100)
    assert ids(sub.take()) == ["later"]
    assert ids(channel.resume("s").past) == ["inside", "later"]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("between", ["nothing", "seal", "reopen"])
def test_an_unseen_one_is_resumed_with_what_it_missed_before_it_was_prolonged(
    layout: str, between: str, open_channel: Opener
) -> None:
    channel = open_channel(layout)
    channel.subscribe("a", user="u", id="other", since_s=-60, until_s=5)
    channel.publish("a", {}, id="of the other", ttl_s=1000)
    sub = channel.subscribe("a", user="u", id="s", since_s=-60, until_s=10, unseen=True)
    assert sub.past == []
    channel.cancel("other")
    channel.publish("a", {}, id="one", ttl_s=1000)
    channel.prolong("s", until_s=100)
    channel.publish("a", {}, id="two", ttl_s=1000)
    channel.prolong("s", until_s=200)
    channel.publish("a", {}, id="three", ttl_s=1000)
    assert ids(sub.take()) == ["one", "two", "three"]
    if between == "seal":
        channel.seal()
    elif between == "reopen":
        channel = open_channel(layout)
    found = channel.resume("s").past
    assert ids(found) == ["one", "two", "three"]
    assert ids(channel.resume("s", after=found[0].token).past) == ["two", "three"]
    # And it has them: a new one of the same user is not given them again.
    assert channel.subscribe("a", user="u", since_s=-60, unseen=True).past == []


def test_the_journal_tells_of_a_new_record_and_new_answers(
    open_database: Opener, clock: ManualClock
) -> None:
    channel = open_database().channel("roads", journal_s=600)
    channel.subscribe("a", user="u", id="s", until_s=10)
    channel.publish("a", {}, id="later", at=START + timedelta(seconds=50))
    channel.prolong("s", until_s=100)
    written = channel.journal("subscriptions")[0]
    assert written.column("id").to_pylist() == ["s", "s"]
    answers = channel.journal("answers")[0].to_pylist()
    assert [(row["subscription"], row["event"], row["kind"]) for row in answers] == [
        ("s", "later", "past")
    ]


@pytest.mark.parametrize(
    "asked",
    [{}, {"until_s": 0}, {"until_s": -5}, {"until_s": 5, "until": START}, {"until": "soon"},
     {"until_s": float("nan")}, {"until": START}],
)  # fmt: skip
def test_a_wrong_end_changes_nothing(asked: dict[str, Any], open_channel: Opener) -> None:
    channel = open_channel("dual")
    channel.subscribe("a", user="u", id="s", until_s=10)
    before = channel.subscription("s")
    with pytest.raises(InvalidRequest):
        channel.prolong("s", **asked)
    assert channel.subscription("s") == before
    with pytest.raises(NotFound):
        channel.prolong("nobody", until_s=5)


def test_a_future_window_keeps_its_start(open_channel: Opener) -> None:
    channel = open_channel("dual")
    begin = START + timedelta(seconds=50)
    channel.subscribe("a", user="u", id="s", since=begin, until_s=100)
    with pytest.raises(InvalidRequest):
        channel.prolong("s", until_s=50)
    assert channel.prolong("s", until_s=51).since == START + timedelta(seconds=50)


def test_poll_has_nothing_to_prolong(open_channel: Opener) -> None:
    with pytest.raises(NotFound):
        open_channel("poll").prolong("s", until_s=5)


def test_one_subscription_is_looked_up_by_its_id(open_channel: Opener) -> None:
    channel = open_channel("dual")
    channel.subscribe("a", user="u", id="s", until_s=10)
    assert channel.subscription("s") == channel.subscriptions()[0]
    with pytest.raises(NotFound):
        channel.subscription("t")


# Followers ------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_follower_gets_past_then_waiting_then_live(layout: str, open_channel: Opener) -> None:
    channel = open_channel(layout)
    channel.publish("a", {}, id="past", ttl_s=100)
    sub = channel.subscribe("a", user="u", id="s", since_s=-60)
    channel.publish("a", {}, id="waiting", ttl_s=100)
    got: list[tuple[str, list[str]]] = []
    sub.follow(lambda events, kind: got.append((kind, ids(events))))
    channel.publish("a", {}, id="live", ttl_s=100)
    assert got == [("past", ["past"]), ("live", ["waiting"]), ("live", ["live"])]
    assert sub.take() == []
    sub.unfollow()
    channel.publish("a", {}, id="later", ttl_s=100)
    assert ids(sub.take()) == ["later"]


@pytest.mark.parametrize(
    ("act", "reason"),
    [
        (lambda channel, sub: channel.cancel("s"), "cancelled"),
        (lambda channel, sub: sub.cancel(), "cancelled"),
        (lambda channel, sub: channel.resume("s"), "replaced"),
        (lambda channel, sub: channel.subscribe("a", user="u", id="s", until_s=60), "replaced"),
    ],
)
def test_a_follower_hears_why_it_ended(act: Any, reason: str, open_channel: Opener) -> None:
    channel = open_channel("dual")
    sub = channel.subscribe("a", user="u", id="s", until_s=60)
    ends: list[str] = []
    sub.follow(lambda events, kind: None, ends.append)
    held = act(channel, sub)
    assert ends == [reason]
    channel.publish("a", {}, id="e")
    assert ends == [reason]
    del held


def test_a_follower_hears_that_the_database_closed(open_database: Opener) -> None:
    database = open_database()
    sub = database.channel("roads").subscribe("a", user="u", until_s=60)
    ends: list[str] = []
    sub.follow(lambda events, kind: None, ends.append)
    database.close()
    assert ends == ["closed"]


def test_following_while_others_publish_misses_and_repeats_nothing(open_channel: Opener) -> None:
    channel = open_channel("dual")
    stop = threading.Event()
    count = 0

    def publish() -> None:
        nonlocal count
        while not stop.is_set():
            channel.publish("a", {}, id=f"e{count}", ttl_s=1000)
            count += 1

    publisher = threading.Thread(target=publish)
    publisher.start()
    got: list[str] = []
    after = None
    try:
        channel.subscribe("a", user="u", id="s", since_s=-60)
        for _ in range(200):  # cut and resume while events keep arriving
            sub = channel.resume("s", after)
            seen: list[Any] = []
            sub.follow(lambda events, kind, seen=seen: seen.extend(events))  # type: ignore[misc]
            while not seen:
                pass
            kept = seen[: len(seen)]  # the connection breaks here: what comes later is lost
            got += ids(kept)
            after = kept[-1].token
    finally:
        stop.set()
        publisher.join()
    got += ids(channel.resume("s", after).past)
    assert got == [f"e{n}" for n in range(count)]
