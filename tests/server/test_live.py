"""WebSocket /v1/live: many subscriptions on one connection, each in order and to its end."""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pytest
from talk import Api, Talk, eventually
from websockets.exceptions import ConnectionClosed

import tideline
from tideline.testing import ManualClock


def kinds(messages: list[Any]) -> list[str]:
    """What each message is, events with their id."""
    return [
        f"{m['kind']} {m['event']['id']}" if "event" in m else next(k for k in m if k != "tag")
        for m in messages
    ]


@pytest.mark.parametrize("query", ["", "?lines=1"])
def test_past_comes_first_then_live_then_the_end(url: str, channel: Any, query: str) -> None:
    class Lines(Talk):
        """Frames may hold several messages."""

        left: list[Any] = []  # noqa: RUF012

        def hear(self, wait_s: float = 30.0) -> Any:
            if not self.left:
                self.left = [json.loads(t) for t in self.socket.recv(timeout=wait_s).split("\n")]
            return self.left.pop(0)

    for n in range(3):
        channel.publish("a", {"n": n}, id=f"p{n}", ttl_s=60)
    with Lines(url, f"/v1/live{query}") as talk:
        talk.say(do="subscribe", tag=7, channel=channel.name, place="a", user="u", id="s",
                 since_s=-60, until_s=60)  # fmt: skip
        first = talk.hear_until("past_done")
        assert kinds(first) == ["subscribed", "past p0", "past p1", "past p2", "past_done"]
        assert {m["tag"] for m in first} == {7}
        made = first[0]["subscribed"]
        assert (made["id"], made["user"], made["place"]) == ("s", "u", "a")
        for n in range(3):
            channel.publish("a/b", {"n": n}, id=f"l{n}", ttl_s=60)
        live = talk.sync()
        assert kinds(live) == ["live l0", "live l1", "live l2"]
        assert [m["token"] for m in live] == [m["event"]["token"] for m in live]
        assert live[0]["event"]["body"] == {"n": 0}
        talk.say(do="cancel", tag=7)
        assert talk.hear() == {"tag": 7, "ended": "cancelled"}
        channel.publish("a", {}, id="late", ttl_s=60)
        assert talk.sync() == []
    assert channel.subscriptions() == []


def test_many_tags_on_one_connection(url: str, channel: Any) -> None:
    with Talk(url) as talk:
        for tag in [1, 2, "three", -4]:
            talk.say(do="subscribe", tag=tag, channel=channel.name, place=f"p/{tag}", user="u")
        channel.publish("p", {}, id="all")
        talk.sync()
        channel.publish("p/2", {}, id="two")
        channel.publish("p/three", {}, id="three")
        channel.publish("p", {}, id="again")
        heard = talk.sync()
        told = [(m["tag"], m["event"]["id"]) for m in heard]
        assert told[:2] == [(2, "two"), ("three", "three")]
        # One event has no order among the tags it answers.
        assert set(told[2:]) == {(tag, "again") for tag in (1, 2, "three", -4)}
        assert len(told) == 6
        talk.say(do="subscribe", tag=2, channel=channel.name, place="x", user="u")
        assert talk.hear()["error"]["kind"] == "InvalidRequest"
        talk.say(do="cancel", tag=2)
        assert talk.hear() == {"tag": 2, "ended": "cancelled"}
        talk.say(do="subscribe", tag=2, channel=channel.name, place="x", user="u")
        assert "subscribed" in talk.hear()


def test_publishing_on_the_connection(url: str, channel: Any) -> None:
    with Talk(url) as talk:
        talk.say(do="subscribe", tag=1, channel=channel.name, place="a", user="u", id="s")
        talk.hear_until("past_done")
        talk.say(do="publish", tag="p", channel=channel.name, place="a", body={"n": 1}, ttl_s=5)
        event, told = talk.hear(), talk.hear()
        assert event["event"] == told["told"]["event"]
        assert told["told"]["subscriptions"] == [{"id": "s", "user": "u"}]
        talk.say(do="publish", tag="p", channel=channel.name, place="a", body=1, ttl_s=-5)
        refused = talk.hear()
        assert (refused["tag"], refused["error"]["kind"]) == ("p", "InvalidRequest")


def test_a_window_ends_by_the_databases_clock(serve: Callable[..., Any]) -> None:
    clock = ManualClock(1_000)
    database, url = serve(clock=clock)
    roads = database.channel("roads")
    with Talk(url) as talk:
        talk.say(do="subscribe", tag=1, channel="roads", place="a", user="u", until_s=60)
        talk.say(do="subscribe", tag=2, channel="roads", place="a", user="u", id="s2", until_s=90)
        assert len(talk.sync()) == 4
        clock.advance(59)
        roads.publish("a", {}, id="e1")
        assert kinds(talk.sync()) == ["live e1", "live e1"]
        clock.advance(1)
        assert talk.hear() == {"tag": 1, "ended": "expired"}
        talk.say(do="prolong", tag=2, until_s=90)
        longer = talk.hear()["prolonged"]
        assert longer["until"] == "1970-01-01T00:19:10.000000Z"
        clock.advance(89)
        roads.publish("a", {}, id="e2")
        assert kinds(talk.sync()) == ["live e2"]
        clock.advance(1)
        assert talk.hear() == {"tag": 2, "ended": "expired"}
        talk.say(do="prolong", tag=2, until_s=90)
        assert talk.hear()["error"]["kind"] == "InvalidRequest"


def test_the_layout_poll_asks_again_by_the_clock(serve: Callable[..., Any]) -> None:
    clock = ManualClock(1_000)
    database, url = serve(clock=clock)
    polled = database.channel("polled", layout="poll", poll_s=5.0)
    with Talk(url) as talk:
        talk.say(do="subscribe", tag=1, channel="polled", place="a", user="u", until_s=20)
        talk.hear_until("past_done")
        polled.publish("a", {}, id="e1")
        assert talk.sync() == []
        clock.advance(5)
        assert kinds([talk.hear()]) == ["live e1"]
        talk.say(do="prolong", tag=1, until_s=9)
        assert talk.hear()["error"]["kind"] == "NotFound"
        clock.advance(15)
        assert talk.hear() == {"tag": 1, "ended": "expired"}


def test_a_connection_that_closes_leaves_its_subscriptions(url: str, channel: Any) -> None:
    with Talk(url) as talk:
        talk.say(do="subscribe", tag=1, channel=channel.name, place="a", user="u", id="s")
        talk.hear_until("past_done")
        channel.publish("a", {}, id="e1", ttl_s=60)
        token = talk.hear()["token"]
    channel.publish("a", {}, id="e2", ttl_s=60)
    with Talk(url) as talk:
        talk.say(do="resume", tag=5, channel=channel.name, id="s", after=token)
        assert kinds(talk.hear_until("past_done")) == ["subscribed", "past e2", "past_done"]
        channel.publish("a", {}, id="e3", ttl_s=60)
        assert kinds([talk.hear()]) == ["live e3"]


def test_a_subscription_is_followed_in_one_place(url: str, channel: Any, api: Api) -> None:
    with Talk(url) as here, Talk(url) as there:
        here.say(do="subscribe", tag=1, channel=channel.name, place="a", user="u", id="s")
        here.hear_until("past_done")
        there.say(do="resume", tag=2, channel=channel.name, id="s")
        there.hear_until("past_done")
        assert here.hear() == {"tag": 1, "ended": "replaced"}
        channel.publish("a", {}, id="e1")
        assert kinds([there.hear()]) == ["live e1"]
        assert here.sync() == []
        api.delete(f"/v1/channels/{channel.name}/subscriptions/s")
        assert there.hear() == {"tag": 2, "ended": "cancelled"}


def test_a_released_subscription_stays_stored(url: str, channel: Any) -> None:
    with Talk(url) as talk:
        talk.say(do="subscribe", tag=1, channel=channel.name, place="a", user="u", id="s")
        talk.say(do="release", tag=1)
        assert talk.sync()[-1] == {"tag": 1, "ended": "released"}
        channel.publish("a", {}, id="e1", ttl_s=60)
        assert talk.sync() == []
        talk.say(do="resume", tag=1, channel=channel.name, id="s")
        assert kinds(talk.hear_until("past_done"))[1] == "past e1"


def test_a_dropped_channel_ends_its_subscriptions(url: str, database: Any) -> None:
    channel = database.channel("short")
    with Talk(url) as talk:
        talk.say(do="subscribe", tag=1, channel="short", place="a", user="u")
        talk.hear_until("past_done")
        database.drop_channel("short")
        assert talk.hear() == {"tag": 1, "ended": "closed"}
        talk.say(do="subscribe", tag=2, channel="short", place="a", user="u")
        assert talk.hear()["error"]["kind"] == "NotFound"
    del channel


@pytest.mark.parametrize(
    "frame",
    [
        "", "{", "null", "[]", "7", '"do"', "{}", '{"do": "dance", "tag": 1}', '{"do": "cancel"}',
        '{"do": "cancel", "tag": 99}', '{"do": "cancel", "tag": [1]}',
        '{"do": "subscribe", "tag": 1}',
        '{"do": "subscribe", "tag": 1, "channel": "nobody", "place": "a", "user": "u"}',
        '{"do": "subscribe", "tag": 1, "channel": "CHANNEL", "place": "a"}',
        '{"do": "subscribe", "tag": 1, "channel": "CHANNEL", "place": "a", "user": "u", "x": 1}',
        '{"do": "subscribe", "tag": 1, "channel": "CHANNEL", "place": "a", "user": "u",'
        ' "until_s": -1}',
        '{"do": "resume", "tag": 1, "channel": "CHANNEL", "id": "nobody"}',
        '{"do": "resume", "tag": 1, "channel": "CHANNEL", "id": "s", "after": "17"}',
        '{"do": "publish", "tag": 1, "channel": "CHANNEL", "place": "a"}',
        '{"do": "publish", "tag": 1, "channel": "CHANNEL", "place": 7, "body": 1}',
        '{"do": "prolong", "tag": 1, "until_s": 5}', b"\x00\xff", b'{"do": "sync"', "[" * 50_000,
    ],
    ids=lambda frame: repr(frame)[:60],
)  # fmt: skip
def test_a_malformed_frame_is_answered_and_the_connection_goes_on(
    url: str, channel: Any, frame: str | bytes
) -> None:
    with Talk(url) as talk:
        if isinstance(frame, str):
            frame = frame.replace("CHANNEL", channel.name)
        talk.socket.send(frame)
        refused = talk.hear()
        assert refused["error"]["kind"] in ("InvalidRequest", "NotFound")
        assert refused["error"]["message"]
        assert talk.sync() == []
    stats = channel.stats()
    assert (stats.events, stats.subscriptions) == (0, 0)


def test_a_frame_that_is_too_large_closes_the_connection(url: str, channel: Any) -> None:
    request = {"do": "publish", "tag": 1, "channel": channel.name, "place": "a"}
    with Talk(url) as talk:
        # The server says no when it has read how long it is: the rest may find nobody there, and
        # then the operating system may throw away what was said.
        with contextlib.suppress(ConnectionClosed):
            talk.socket.send(json.dumps({**request, "body": "x" * 1_100_000}))
        messages, code = talk.hear_close()
        assert messages == []
        assert code in (1009, 1006)
    assert channel.stats().events == 0


def test_bytes_are_read_as_text(url: str, channel: Any) -> None:
    with Talk(url) as talk:
        talk.socket.send(b'{"do": "sync", "tag": 1}')
        assert "synced" in talk.hear()


def test_heartbeats(serve: Callable[..., Any]) -> None:
    _, url = serve(beat_s=0.05)
    with Talk(url) as talk:
        for _ in range(3):
            assert json.loads(talk.socket.recv(timeout=30))["beat"].endswith("Z")


def test_a_long_past_is_no_slow_reader(serve: Callable[..., Any]) -> None:
    database, url = serve(outbox_bytes=20_000)
    roads = database.channel("roads")
    for n in range(3_000):
        roads.publish("a", {"n": n, "text": "x" * 200}, id=f"e{n}", ttl_s=600)
    with Talk(url) as talk:
        talk.say(do="subscribe", tag=1, channel="roads", place="a", user="u", since_s=-60)
        heard = kinds(talk.hear_until("past_done"))
        assert heard[1:-1] == [f"past e{n}" for n in range(3_000)]
        roads.publish("a", {}, id="live")
        assert kinds([talk.hear()]) == ["live live"]


def test_requests_wait_while_their_answers_are_not_read(serve: Callable[..., Any]) -> None:
    """Who asks and does not read is slowed down by its own socket, and loses nothing."""
    database, url = serve(outbox_bytes=50_000)
    database.channel("roads")
    with Talk(url) as talk:
        body = "x" * 2_000
        count = 2_000

        def ask() -> None:
            for n in range(count):
                talk.say(do="publish", tag=n, channel="roads", place="a", body=body, ttl_s=60)

        asking = threading.Thread(target=ask)
        asking.start()
        heard = [talk.hear() for _ in range(count)]
        asking.join()
    assert [message["tag"] for message in heard] == list(range(count))
    assert all("told" in message for message in heard)


def test_a_connection_that_ends_is_forgotten(shared: tuple[Any, str], channel: Any) -> None:
    _, url = shared
    api = Api(url)

    def open_connections() -> int:
        text = api.get("/metrics").body.decode()
        [line] = [x for x in text.splitlines() if x.startswith("tideline_connections ")]
        return int(line.split()[1])

    eventually(lambda: open_connections() == 0)
    with Talk(url) as talk:
        talk.say(do="subscribe", tag=1, channel=channel.name, place="a", user="u", id="s")
        talk.hear_until("past_done")
        assert open_connections() == 1
        talk.socket.socket.close()  # cut, without a word
        channel.publish("a", {}, id="e1", ttl_s=60)
    eventually(lambda: open_connections() == 0)
    assert [event.id for event in channel.resume("s").past] == ["e1"]


def test_a_reader_that_left_collects_nothing(channel: Any, url: str) -> None:
    """Its window may last for years: what is delivered meanwhile waits in the store, not here."""
    with Talk(url) as talk:
        for tag in (1, 2):
            ask = {"place": "a", "user": "u", "id": f"s{tag}", "until_s": 1e6}
            talk.say(do="subscribe", tag=tag, channel=channel.name, **ask)
            talk.hear_until("past_done")
        talk.say(do="release", tag=2)
        talk.hear_until("ended")
        assert len(channel.core.handles) == 1
    eventually(lambda: not channel.core.handles)
    channel.publish("a", {"n": 1}, id="e1", ttl_s=60)
    with Talk(url) as talk:
        talk.say(do="resume", tag=1, channel=channel.name, id="s1")
        assert [m["event"]["id"] for m in talk.hear_until("past_done") if "event" in m] == ["e1"]


@pytest.mark.parametrize("lines", ["", "?lines=1"])
def test_a_body_of_several_lines_is_one_message(channel: Any, url: str, lines: str) -> None:
    """`apply` keeps a body as it was written; a line is a message."""
    body = '{\r\n "n": 1,\n "text": "a\\nb"}'
    row = {"op": "publish", "place": "a", "at": datetime.now(UTC), "body": body, "id": "e1"}
    with Talk(url, f"/v1/live{lines}") as talk:
        ask = {"place": "a", "user": "u", "id": "s1", "since_s": -60}
        talk.say(do="subscribe", tag=1, channel=channel.name, **ask)
        talk.socket.recv()
        channel.apply(pa.Table.from_pylist([row]))
        talk.say(do="sync", tag=2)
        heard: list[Any] = []
        while not any("synced" in message for message in heard):
            heard += [json.loads(line) for line in talk.socket.recv().split("\n")]
    [event] = [message["event"] for message in heard if "event" in message]
    assert event["body"] == {"n": 1, "text": "a\nb"}
    address = urlsplit(url)
    assert address.hostname is not None
    connection = http.client.HTTPConnection(address.hostname, address.port, timeout=30)
    connection.request("GET", f"/v1/channels/{channel.name}/subscriptions/s1/stream")
    found = []
    for line in connection.getresponse():
        assert line == b"\n" or line.split(b":")[0] in (b"id", b"event", b"data", b"retry"), line
        found.append(line)
        if line.startswith(b"event: past_done"):
            break
    connection.close()
    [data] = [json.loads(line[6:]) for line in found if line.startswith(b"data: {")]
    assert data["body"] == {"n": 1, "text": "a\nb"}


def test_a_token_never_goes_back(serve: Any) -> None:
    """A prolonged window brings in an event that came before others that were delivered."""
    database, url = serve()
    channel = database.channel("c")
    with tideline.connect(url) as remote:
        sub = remote.channel("c").subscribe("a", user="u", id="s", until_s=60)
        later = datetime.now(UTC) + timedelta(seconds=90)
        channel.publish("a", "later", at=later, ttl_s=600, id="later")
        channel.publish("a", "now", ttl_s=600, id="now")
        assert [event.id for event in sub.take()] == ["now"]
        remote.channel("c").prolong("s", until_s=3600)
        assert [event.id for event in sub.take()] == ["later"]
        remote._live._socket.close()  # a cut: what was delivered does not come again
        channel.publish("a", "last", ttl_s=600, id="last")
        assert [event.id for event in sub.take()] == ["last"]
