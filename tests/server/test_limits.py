"""How much a caller may send and keep open: refused with the right status, nothing stored."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from talk import EVENT, ROADS, Api, Talk, eventually, refused_socket

import tideline
from tideline.server.tokens import Tokens

Serve = Callable[..., Any]


def test_a_body_over_the_limit_is_refused(serve: Serve) -> None:
    database, url = serve(body_bytes=10_000, batch_bytes=50_000)
    channel = database.channel("roads")
    api = Api(url)
    large = {"place": "a", "user": "u", "where": {"x": "y" * 11_000}}
    assert api.post(f"{ROADS}/subscriptions", large).error == (413, "TooLarge")
    assert api.post(f"{ROADS}/events", {**EVENT, "body": "y" * 60_000}).error == (413, "TooLarge")
    address = urlsplit(url)
    assert address.hostname is not None
    connection = http.client.HTTPConnection(address.hostname, address.port, timeout=30)
    # In pieces, without saying how much there will be.
    pieces = iter([b'{"place": "'] + [b"a" * 1_000] * 12)
    connection.request("POST", f"{ROADS}/subscriptions", body=pieces, encode_chunked=True,
                       headers={"Transfer-Encoding": "chunked"})  # fmt: skip
    answer = connection.getresponse()
    assert answer.status == 413
    answer.read()
    connection.close()
    with Talk(url) as talk:
        talk.say(do="publish", tag=1, channel="roads", place="a", body="y" * 11_000)
        assert talk.hear_close() == ([], 1009)
    assert (channel.stats().events, channel.stats().subscriptions) == (0, 0)


def test_a_body_that_does_not_arrive_is_not_waited_for(serve: Serve) -> None:
    database, url = serve(read_timeout_s=0.2)
    database.channel("roads")
    address = urlsplit(url)
    with socket.create_connection((address.hostname, address.port), timeout=30) as sock:
        sock.sendall(
            b"POST /v1/channels/roads/events HTTP/1.1\r\nHost: localhost\r\n"
            b"Content-Length: 99\r\n\r\n{"
        )
        assert sock.recv(65536).startswith(b"HTTP/1.1 408")


def test_a_caller_over_its_rate_is_slowed_down(serve: Serve) -> None:
    database, url = serve(rate_per_s=20)
    channel = database.channel("roads")
    answers = [Api(url).post(f"{ROADS}/events", EVENT) for _ in range(60)]
    refused = [answer for answer in answers if answer.status == 429]
    assert refused
    assert refused[0].error == (429, "TooMany")
    assert refused[0].headers["retry-after"] == "1"
    assert channel.stats().events == 60 - len(refused)
    # It comes back by itself.
    eventually(lambda: Api(url).get(ROADS).status == 200)


def test_a_websocket_over_its_rate_is_told_and_goes_on(serve: Serve) -> None:
    _, url = serve(rate_per_s=20)
    with Talk(url) as talk:
        for n in range(60):
            talk.say(do="sync", tag=n)
        heard = [talk.hear() for _ in range(60)]
        assert [m["tag"] for m in heard] == list(range(60))
        assert {m["error"]["kind"] for m in heard if "error" in m} == {"TooMany"}
        assert any("synced" in m for m in heard)


def test_connections_are_limited(serve: Serve) -> None:
    database, url = serve(connections=3, connections_per_caller=2)
    database.channel("roads").subscribe("a", user="u", id="s")
    there = f"{ROADS}/subscriptions/s/stream"
    with Talk(url), Talk(url):
        assert refused_socket(url) == (429, "TooMany")
        assert Api(url).get(there).error == (429, "TooMany")
    eventually(lambda: "tideline_connections 0" in Api(url).get("/metrics").body.decode())
    with Talk(url) as talk:
        assert talk.sync() == []


def test_a_full_server_says_when_to_come_back(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    text, _ = Tokens(tmp_path / "data").create(["admin"])
    other, _ = Tokens(tmp_path / "data").create(["admin"])
    database, url = serve(connections=2, connections_per_caller=1)
    database.channel("roads").subscribe("a", user="u", id="s")
    there = f"{ROADS}/subscriptions/s/stream"
    with Talk(url, token=text):
        # One caller has as many as it may.
        assert refused_socket(url, token=text) == (429, "TooMany")
        assert Api(url, text).get(there).error == (429, "TooMany")
        with Talk(url) as late:
            late.say(do="hello", token=text)
            assert late.hear()["error"]["kind"] == "TooMany"
            assert late.hear_close() == ([], 1013)
        with Talk(url, token=other):
            # The server has as many as it may, whoever asks.
            third, _ = Tokens(tmp_path / "data").create(["admin"])
            eventually(lambda: Api(url, third).get(ROADS).status == 200)
            assert refused_socket(url, token=third) == (503, "Unavailable")
            full = Api(url, third).get(there)
            assert full.error == (503, "Unavailable")
            assert full.headers["retry-after"] == "1"
            with Talk(url) as late:
                late.say(do="hello", token=third)
                assert late.hear()["error"]["kind"] == "Unavailable"
                assert late.hear_close() == ([], 1013)


def test_subscriptions_of_a_user_are_limited(serve: Serve, tmp_path: Path) -> None:
    with tideline.open(tmp_path / "data") as before:  # counted when the server starts
        before.channel("roads").subscribe("a", user="u", id="old", until_s=600)
        before.channel("roads").subscribe("a", user="u", id="short", until_s=0.001)
    database, url = serve(subscriptions_per_user=3)
    api = Api(url)

    def subscribe(id: str, user: str = "u") -> int:
        asked = {"place": "a", "user": user, "id": id, "until_s": 600}
        return api.post(f"{ROADS}/subscriptions", asked).status

    assert [subscribe("s1"), subscribe("s2"), subscribe("s3")] == [201, 201, 429]
    assert subscribe("s1", "another") == 409
    assert subscribe("other", "another") == 201
    with Talk(url) as talk:
        talk.say(do="subscribe", tag=1, channel="roads", place="a", user="u")
        assert talk.hear()["error"]["kind"] == "TooMany"
        talk.say(do="resume", tag=1, channel="roads", id="s2")
        talk.hear_until("past_done")
        talk.say(do="cancel", tag=1)
        assert talk.hear()["ended"] == "cancelled"
    assert [subscribe("s4"), subscribe("s5")] == [201, 429]
    assert api.patch(f"{ROADS}/subscriptions/s4", {"until_s": 900}).status == 200
    assert api.delete(f"{ROADS}/subscriptions/s4").status == 200
    assert [subscribe("s6"), subscribe("s7")] == [201, 429]
    assert len(database.channel("roads").subscriptions(user="u")) == 3


def test_a_subscribe_is_repeated_safely_at_the_limit(serve: Serve) -> None:
    database, url = serve(subscriptions_per_user=2)
    channel = database.channel("roads")
    api = Api(url)
    there = f"{ROADS}/subscriptions"
    asked = [{"place": "a", "user": "u", "id": id, "until_s": 600} for id in ("s1", "s2", "s3")]
    assert [api.post(there, one).status for one in asked] == [201, 201, 429]
    again = api.post(there, asked[0])
    assert (again.status, again.json["duplicate"]) == (200, True)
    assert api.post(there, {**asked[0], "place": "b"}).error == (409, "Conflict")
    with Talk(url) as talk:
        talk.say(do="subscribe", tag=1, channel="roads", **asked[1])
        assert talk.hear()["subscribed"]["duplicate"] is True
        talk.say(do="subscribe", tag=2, channel="roads", **asked[2])
        assert talk.hear_until("error")[-1]["error"]["kind"] == "TooMany"
    # The repeated ones were not counted again.
    assert api.delete(f"{there}/s1").status == 200
    assert [api.post(there, asked[2]).status, api.post(there, asked[0]).status] == [201, 429]
    assert channel.stats().subscriptions == 2


def test_what_cannot_be_read_counts_against_the_rate(serve: Serve) -> None:
    _, url = serve(rate_per_s=20)
    with Talk(url) as talk:
        kinds = set()
        for _ in range(200):
            talk.socket.send("{")
            kinds.add(talk.hear()["error"]["kind"])
        assert kinds == {"InvalidRequest", "TooMany"}


def test_subscriptions_on_one_connection_are_limited(serve: Serve) -> None:
    database, url = serve(subscriptions_per_connection=2)
    database.channel("roads")
    with Talk(url) as talk:
        for tag in range(3):
            talk.say(do="subscribe", tag=tag, channel="roads", place="a", user="u")
        assert [m["tag"] for m in talk.sync() if "error" in m] == [2]
