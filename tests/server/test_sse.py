"""Event streams: a stored subscription for curl and for browsers."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

from talk import Api

from tideline.testing import ManualClock


class Stream:
    """Reads an event stream as a browser does."""

    def __init__(self, url: str, path: str, **headers: str) -> None:
        address = urlsplit(url)
        assert address.hostname is not None
        self._connection = http.client.HTTPConnection(address.hostname, address.port, timeout=30)
        self._connection.request(
            "GET", path, headers={n.replace("_", "-"): v for n, v in headers.items()}
        )
        self.answer = self._connection.getresponse()
        self.last_id = ""

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        """(event, data) of each message; ends when the stream does."""
        fields: dict[str, str] = {}
        for line in self.answer:
            text = line.decode().rstrip("\n")
            if text:
                name, _, value = text.partition(": ")
                fields[name] = value
                continue
            self.last_id = fields.get("id", self.last_id)
            if "event" in fields:
                yield fields["event"], json.loads(fields["data"])
            fields = {}

    def close(self) -> None:
        self.answer.close()
        self._connection.close()


def test_past_live_and_the_end(serve: Callable[..., Any]) -> None:
    clock = ManualClock(1_000)
    database, url = serve(clock=clock)
    roads = database.channel("roads")
    roads.publish("a", {"n": 1}, id="e1", ttl_s=600)
    roads.subscribe("a", user="u", id="s", since_s=-60, until_s=60)
    stream = Stream(url, "/v1/channels/roads/subscriptions/s/stream")
    assert stream.answer.headers["content-type"] == "text/event-stream"
    messages = iter(stream)
    kind, event = next(messages)
    assert (kind, event["id"], event["body"]) == ("past", "e1", {"n": 1})
    assert stream.last_id == event["token"]
    assert next(messages) == ("past_done", {})
    roads.publish("a", {"n": 2}, id="e2", ttl_s=600)
    kind, event = next(messages)
    assert (kind, event["id"]) == ("live", "e2")
    clock.advance(60)
    assert list(messages) == [("ended", {"reason": "expired"})]
    stream.close()
    assert Api(url).get("/v1/channels/roads/subscriptions/s/stream").error == (404, "NotFound")


def test_a_browser_resumes_by_itself(url: str, channel: Any) -> None:
    channel.subscribe("a", user="u", id="s", until_s=600)
    there = f"/v1/channels/{channel.name}/subscriptions/s/stream"
    stream = Stream(url, there)
    messages = iter(stream)
    assert next(messages) == ("past_done", {})
    for n in range(3):
        channel.publish("a", {}, id=f"e{n}", ttl_s=600)
        next(messages)
    last = stream.last_id
    stream.close()
    for n in range(3, 6):
        channel.publish("a", {}, id=f"e{n}", ttl_s=600)
    for stream in (
        Stream(url, there, Last_Event_ID=last),
        Stream(url, f"{there}?after={last}"),
        Stream(url, f"{there}?after=000000000000000001", Last_Event_ID=last),
    ):
        messages = iter(stream)
        assert [next(messages)[1]["id"] for _ in range(3)] == ["e3", "e4", "e5"]
        assert next(messages) == ("past_done", {})
        stream.close()


def test_another_reader_takes_over(url: str, channel: Any) -> None:
    channel.subscribe("a", user="u", id="s", until_s=600)
    there = f"/v1/channels/{channel.name}/subscriptions/s/stream"
    first = Stream(url, there)
    messages = iter(first)
    next(messages)
    second = Stream(url, there)
    assert list(messages) == [("ended", {"reason": "replaced"})]
    first.close()
    channel.cancel("s")
    assert list(second)[-1] == ("ended", {"reason": "cancelled"})
    second.close()


def test_wrong_streams(api: Api, path: str, channel: Any) -> None:
    channel.subscribe("a", user="u", id="s", until_s=600)
    assert api.get(f"{path}/subscriptions/nobody/stream").error == (404, "NotFound")
    there = f"{path}/subscriptions/s/stream"
    assert api.get(f"{there}?after=17").error == (400, "InvalidRequest")
    assert api.get(there, Last_Event_ID="x").error == (400, "InvalidRequest")
    assert api.get(f"{there}?colour=red").error == (400, "InvalidRequest")


def test_heartbeats_are_comments(serve: Callable[..., Any]) -> None:
    database, url = serve(beat_s=0.05)
    database.channel("roads").subscribe("a", user="u", id="s", until_s=600)
    stream = Stream(url, "/v1/channels/roads/subscriptions/s/stream")
    while stream.answer.readline() != b": beat\n":
        pass
    stream.close()
