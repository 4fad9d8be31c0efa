"""WebSocket /v1/watch: what a whole channel does, for the map."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from talk import Api, Talk
from test_tables import operations, stream_of

import tideline
from tideline.server import running
from tideline.server.watch import MOST


def gather(talk: Talk, until: Any) -> dict[str, Any]:
    """Messages put together, until enough has been heard."""
    lists: dict[str, list[Any]] = {
        name: [] for name in ("events", "subscriptions", "answers", "cancelled", "retracted")
    }
    while True:
        message = talk.hear()
        for name, found in lists.items():
            found += message[name]
        if until(lists, message):
            return {**message, **lists}


def test_it_tells_what_happened_and_nothing_else(url: str, channel: Any, api: Api) -> None:
    channel.publish("a", {}, id="before")
    with Talk(url, f"/v1/watch?channel={channel.name}") as talk:
        assert talk.hear()["events"] == []
        channel.subscribe("a", user="ann", id="s1", until_s=600, unseen=True)
        channel.subscribe("a", user="bob", id="s2", until_s=600)
        channel.publish("a/b", {"n": 1}, id="p1", ttl_s=600)
        channel.prolong("s1", until_s=900)
        channel.cancel("s2")
        channel.retract("before")
        channel.publish("c", {}, id="truck", ttl_s=600)
        channel.retract("truck")
        channel.publish("c", {}, id="truck", ttl_s=600)
        channel.publish("d", {}, id="truck", ttl_s=600, replace=True)
        api.post(f"/v1/channels/{channel.name}/apply", data=stream_of(operations(2)))
        told = gather(talk, lambda lists, m: len(lists["events"]) == 6)
    assert [e["id"] for e in told["events"]] == ["p1", "truck", "truck", "truck", "e0", "e1"]
    assert told["retracted"][0] == "before"
    assert set(told["retracted"]) <= {"before", "truck"}  # the truck, if the messages parted there
    assert told["events"][0]["body"] == {"n": 1}
    assert [(s["id"], s["user"], s["unseen"]) for s in told["subscriptions"]] == [
        ("s1", "ann", True), ("s2", "bob", False), ("s1", "ann", True),
    ]  # fmt: skip
    assert told["cancelled"] == ["s2"]
    pairs = [(a["subscription"], a["event"], a["kind"]) for a in told["answers"]]
    assert set(pairs[:2]) == {("s1", "p1", "live"), ("s2", "p1", "live")}
    assert told["counts"]["events"] == 6
    assert "of" not in told


def test_long_lists_are_sampled_and_say_so(url: str, channel: Any, api: Api) -> None:
    channel.subscribe("a", user="u", id="s", until_s=600)
    n = 3 * MOST
    with Talk(url, f"/v1/watch?channel={channel.name}") as talk:
        talk.hear()
        api.post(f"/v1/channels/{channel.name}/apply", data=stream_of(operations(n)))
        told = gather(talk, lambda lists, m: m["counts"]["answers"] == n)
    assert told["of"] == {"events": n, "subscriptions": 0, "answers": n}
    assert len(told["events"]) == MOST
    assert len(told["answers"]) == MOST
    assert told["events"][1]["id"] == "e3"


def test_several_watch_and_the_counts_run_on(url: str, channel: Any) -> None:
    there = f"/v1/watch?channel={channel.name}"
    with Talk(url, there) as one, Talk(url, there) as two:
        one.hear(), two.hear()
        channel.publish("a", {}, id="e1")
        for talk in (one, two):
            gather(talk, lambda lists, m: m["counts"]["events"] == 1)
    with Talk(url, there) as talk:
        assert talk.hear()["counts"]["events"] == 1


def test_latency_is_that_of_delivered_answers(url: str, channel: Any) -> None:
    with Talk(url, f"/v1/watch?channel={channel.name}") as talk, Talk(url) as live:
        live.say(do="subscribe", tag=1, channel=channel.name, place="a", user="u")
        live.hear_until("past_done")
        latency = None
        for n in range(1, 100):  # a message may be made between an event and its delivery
            channel.publish("a", {})
            live.hear()
            latency = gather(talk, lambda lists, m, n=n: m["counts"]["events"] == n)["latency_ms"]
            if latency is not None:
                break
    assert latency is not None
    assert 0 < latency["p50"] <= latency["p99"]


def test_what_cannot_be_watched(url: str, database: Any) -> None:
    for there, kind in [("/v1/watch", "InvalidRequest"), ("/v1/watch?channel=x", "NotFound")]:
        with Talk(url, there) as talk:
            [told], code = talk.hear_close()
            assert (told["error"]["kind"], code) == (kind, 4400)
    with tideline.open(":memory:") as memory, running(memory) as other:
        memory.channel("c")
        with Talk(other, "/v1/watch?channel=c") as talk:
            assert talk.hear()["error"]["kind"] == "InvalidRequest"


def test_a_dropped_channel_ends_the_feed(url: str, database: Any) -> None:
    database.channel("watched")
    with Talk(url, "/v1/watch?channel=watched") as talk:
        talk.hear()
        database.drop_channel("watched")
        assert talk.hear_close()[1] == 4400


def test_a_channel_without_a_journal_tells_no_answers(url: str, database: Any) -> None:
    channel = database.channel("plain")
    channel.subscribe("a", user="u", id="s")
    with Talk(url, "/v1/watch?channel=plain") as talk:
        talk.hear()
        channel.apply(pa.Table.from_pylist(operations(1).to_pylist()))
        told = gather(talk, lambda lists, m: lists["events"])
    assert told["answers"] == []
