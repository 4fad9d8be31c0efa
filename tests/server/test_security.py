"""Who may do what, from where, and how much: refused with the right status, and nothing stored."""

from __future__ import annotations

import http.client
import json
import logging
import socket
import ssl
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pytest
from talk import Api, Talk, eventually
from test_tables import operations, stream_of, streams_in
from websockets.exceptions import InvalidStatus

import tideline
from tideline.errors import Corruption, InvalidRequest, NotFound, Unavailable
from tideline.server import Settings, refusals, running
from tideline.server.logs import JsonLines
from tideline.server.tokens import Tokens

Serve = Callable[..., Any]


@pytest.fixture
def guarded(serve: Serve, tmp_path: Path) -> dict[str, Any]:
    """A server with tokens: two channels, a token for each role."""
    (tmp_path / "data").mkdir()
    tokens = Tokens(tmp_path / "data")
    made = {
        name: tokens.create(scopes, user=user)[0]
        for name, scopes, user in [
            ("admin", ["admin"], None),
            ("service", ["read", "publish", "subscribe"], None),
            ("reader", ["read:roads"], None),
            ("publisher", ["publish:roads"], None),
            ("ann", ["read", "publish", "subscribe:roads"], "ann"),
            ("bob", ["read", "publish", "subscribe:roads"], "bob"),
            ("owner", ["admin:roads"], None),
        ]
    }
    database, url = serve(beat_s=0.1)
    for name in ("roads", "news"):
        database.channel(name, journal_s=600)
    return {"database": database, "url": url, "tokens": tokens, **made}


def as_(guarded: dict[str, Any], who: str) -> Api:
    return Api(guarded["url"], guarded[who])


ROADS = "/v1/channels/roads"
EVENT = {"place": "a", "body": 1, "ttl_s": 60}
CALLS: list[tuple[str, str, str, Any]] = [
    ("any", "GET", ROADS, None), ("read", "GET", f"{ROADS}/events?place=a", None),
    ("read", "GET", f"{ROADS}/scan?kind=events", None),
    ("read", "GET", f"{ROADS}/journal?kind=events", None),
    ("publish", "POST", f"{ROADS}/events", EVENT),
    ("publish", "POST", f"{ROADS}/apply", stream_of(operations())),
    ("subscribe", "POST", f"{ROADS}/subscriptions", {"place": "a", "user": "u", "id": "s"}),
    ("subscribe", "GET", f"{ROADS}/subscriptions", None),
    ("subscribe", "GET", f"{ROADS}/subscriptions/x", None),
    ("subscribe", "PATCH", f"{ROADS}/subscriptions/x", {"until_s": 5}),
    ("subscribe", "DELETE", f"{ROADS}/subscriptions/x", None),
    ("subscribe", "GET", f"{ROADS}/subscriptions/x/stream", None),
    ("admin", "PUT", ROADS, {}), ("admin", "DELETE", ROADS, None),
    ("all read", "GET", "/metrics", None),
    ("all admin", "GET", "/v1/backup", None),
]  # fmt: skip
GRANTED = {
    "admin": {"any", "read", "publish", "subscribe", "admin", "all read", "all admin"},
    "service": {"any", "read", "publish", "subscribe", "all read"},
    "reader": {"any", "read"},
    "publisher": {"any", "publish"},
    "owner": {"any", "read", "publish", "subscribe", "admin"},
}


def make(api: Api, method: str, path: str, body: Any) -> int:
    if isinstance(body, bytes):
        return api.call(method, path, data=body).status
    return api.call(method, path, body).status


def test_a_token_allows_its_scopes_and_no_more(guarded: dict[str, Any]) -> None:
    channel = guarded["database"].channel("roads")
    for who, granted in GRANTED.items():
        for scope, method, path, body in CALLS:
            if (method, path) == ("DELETE", ROADS):
                continue  # tried below
            status = make(as_(guarded, who), method, path, body)
            assert (status == 403) == (scope not in granted), (who, method, path, status)
            assert status != 401
    before = channel.stats()
    for text in (None, "", "x", "tl_00000000_" + "a" * 43, guarded["admin"][:-1] + "!"):
        for _, method, path, body in CALLS:
            assert make(Api(guarded["url"], text), method, path, body) == 401
    assert channel.stats() == before
    assert as_(guarded, "reader").delete(ROADS).status == 403
    assert "roads" in guarded["database"].channels()
    assert as_(guarded, "owner").delete("/v1/channels/news").status == 403
    assert as_(guarded, "owner").delete(ROADS).status == 200


def test_a_scope_of_one_channel_is_of_that_one_alone(guarded: dict[str, Any]) -> None:
    reader = as_(guarded, "reader")
    assert [c["name"] for c in reader.get("/v1/channels").json] == ["roads"]
    assert reader.get("/v1/channels/news").error == (403, "Forbidden")
    # Whether there is such a channel is not theirs to know.
    assert reader.get("/v1/channels/nothing").error == (403, "Forbidden")
    assert [c["name"] for c in as_(guarded, "service").get("/v1/channels").json] == [
        "news", "roads",
    ]  # fmt: skip


def test_users_see_and_end_only_their_own_subscriptions(guarded: dict[str, Any]) -> None:
    ann, bob = as_(guarded, "ann"), as_(guarded, "bob")
    channel = guarded["database"].channel("roads")
    made = ann.post(f"{ROADS}/subscriptions", {"place": "a", "id": "hers", "until_s": 600})
    assert made.json["user"] == "ann"
    asked = {"place": "a", "id": "x", "user": "ann", "until_s": 600}
    assert bob.post(f"{ROADS}/subscriptions", asked).error == (403, "Forbidden")
    bob.post(f"{ROADS}/subscriptions", {"place": "a", "id": "his", "until_s": 600})
    assert [s["id"] for s in bob.get(f"{ROADS}/subscriptions").json["subscriptions"]] == ["his"]
    assert bob.get(f"{ROADS}/subscriptions?user=ann").error == (403, "Forbidden")
    for method, path, body in [
        ("GET", f"{ROADS}/subscriptions/hers", None),
        ("DELETE", f"{ROADS}/subscriptions/hers", None),
        ("PATCH", f"{ROADS}/subscriptions/hers", {"until_s": 1}),
        ("GET", f"{ROADS}/subscriptions/hers/stream", None),
    ]:
        refused = bob.call(method, path, body)
        nobody = bob.call(method, path.replace("hers", "nobody"), body)
        assert refused.error == (404, "NotFound")
        # The same words as for one that is not there.
        assert refused.body == nobody.body.replace(b"nobody", b"hers")
    told = bob.post(f"{ROADS}/events", EVENT).json
    assert told["subscriptions"] == [{"id": "his", "user": "bob"}]
    with Talk(guarded["url"], token=guarded["bob"]) as talk:
        talk.say(do="resume", tag=1, channel="roads", id="hers")
        assert talk.hear()["error"]["kind"] == "NotFound"
        talk.say(do="subscribe", tag=1, channel="roads", place="a", user="ann")
        assert talk.hear()["error"]["kind"] == "Forbidden"
        talk.say(do="subscribe", tag=1, channel="news", place="a")
        assert talk.hear()["error"]["kind"] == "Forbidden"
        talk.say(do="resume", tag=1, channel="roads", id="his")
        assert talk.hear()["subscribed"]["user"] == "bob"
    assert {info.id for info in channel.subscriptions()} == {"hers", "his"}


def test_tables_show_a_user_their_own_rows(guarded: dict[str, Any]) -> None:
    ann, bob = as_(guarded, "ann"), as_(guarded, "bob")
    for api, id in ((ann, "hers"), (bob, "his")):
        api.post(f"{ROADS}/subscriptions", {"place": "a", "id": id, "until_s": 600})
    [answers, _] = streams_in(bob.post(f"{ROADS}/apply", data=stream_of(operations(2))).body)
    assert set(answers["subscription"].to_pylist()) == {"his"}
    for path, column in [
        ("scan?kind=subscriptions", "id"), ("journal?kind=subscriptions", "id"),
        ("journal?kind=answers", "subscription"),
    ]:  # fmt: skip
        for api, id in ((ann, "hers"), (bob, "his")):
            [table] = streams_in(api.get(f"{ROADS}/{path}").body)
            assert set(table[column].to_pylist()) == {id}
        [table] = streams_in(as_(guarded, "service").get(f"{ROADS}/{path}").body)
        assert set(table[column].to_pylist()) == {"hers", "his"}
    row = {"op": "subscribe", "place": "a", "user": "ann", "id": "forged", "at": datetime.now(UTC)}
    forged = stream_of(pa.Table.from_pylist([row]))
    assert bob.post(f"{ROADS}/apply", data=forged).error == (403, "Forbidden")
    cancel = {"op": "cancel", "id": "hers", "at": datetime.now(UTC)}
    wrong = stream_of(pa.Table.from_pylist([cancel]))
    assert bob.post(f"{ROADS}/apply", data=wrong).error == (403, "Forbidden")
    assert as_(guarded, "publisher").post(f"{ROADS}/apply", data=forged).status == 403
    assert as_(guarded, "service").post(f"{ROADS}/apply", data=forged).status == 200


def test_the_feed_shows_a_user_their_own_subscriptions(guarded: dict[str, Any]) -> None:
    path = "/v1/watch?channel=roads"
    with Talk(guarded["url"], path, token=guarded["bob"]) as watching:
        watching.hear()
        channel = guarded["database"].channel("roads")
        for user in ("ann", "bob"):
            channel.subscribe("a", user=user, id=f"{user}'s", until_s=600)
        channel.publish("a", {}, id="e", ttl_s=60)
        heard: dict[str, list[Any]] = {"subscriptions": [], "answers": [], "events": []}
        while not heard["events"]:
            message = watching.hear()
            for name, found in heard.items():
                found += message[name]
    assert [s["id"] for s in heard["subscriptions"]] == ["bob's"]
    assert [a["subscription"] for a in heard["answers"]] == ["bob's"]
    with Talk(guarded["url"], path, token=guarded["publisher"]) as talk:
        assert talk.hear()["error"]["kind"] == "Forbidden"
        assert talk.hear_close() == ([], 4403)


def test_a_refused_websocket_is_no_error_of_the_server(
    guarded: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    assert refused_socket(guarded["url"], token="wrong")[0] == 401
    assert [r for r in caplog.records if r.levelno >= logging.WARNING] == []


def refused_socket(url: str, path: str = "/v1/live", **options: Any) -> tuple[int, str]:
    with pytest.raises(InvalidStatus) as refused:
        Talk(url, path, **options)
    response = refused.value.response
    assert response.body is not None
    return response.status_code, json.loads(response.body)["error"]["kind"]


def test_a_websocket_shows_its_token_in_one_of_three_ways(guarded: dict[str, Any]) -> None:
    url = guarded["url"]
    assert refused_socket(url, token="wrong") == (401, "Unauthorized")
    assert refused_socket(url, "/v1/live?token=wrong") == (401, "Unauthorized")
    with Talk(url, token=guarded["ann"]) as talk:
        assert talk.sync() == []
    with Talk(url, f"/v1/live?token={guarded['ann']}") as talk:
        assert talk.sync() == []
    with Talk(url) as talk:
        talk.say(do="hello", token=guarded["ann"])
        assert talk.sync() == []
    for first in (
        {"do": "hello", "token": "wrong"}, {"do": "sync", "tag": 1}, {"do": "hello"}, [],
    ):  # fmt: skip
        with Talk(url) as talk:
            talk.socket.send(json.dumps(first))
            assert talk.hear()["error"]["kind"] == "Unauthorized"
            assert talk.hear_close() == ([], 4401)


def test_a_hello_that_does_not_come_is_not_waited_for_long(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    Tokens(tmp_path / "data").create(["read"])
    _, url = serve(read_timeout_s=0.1)
    with Talk(url) as talk:
        assert talk.hear_close()[1] == 4401


def test_a_hello_where_none_is_needed_is_fine(url: str) -> None:
    with Talk(url) as talk:
        talk.say(do="hello", token="anything")
        assert talk.sync() == []


def test_an_event_streams_token_may_be_in_its_address(guarded: dict[str, Any]) -> None:
    api = Api(guarded["url"])
    there = f"{ROADS}/subscriptions/x/stream"
    assert api.get(f"{there}?token={guarded['ann']}").error == (404, "NotFound")
    assert api.get(f"{there}?token=wrong").error == (401, "Unauthorized")
    # Only there: elsewhere an address with a token in it would end up in logs and histories.
    assert api.get(f"{ROADS}?token={guarded['ann']}").error == (401, "Unauthorized")


def test_a_revoked_token_is_worthless_and_its_connections_close(guarded: dict[str, Any]) -> None:
    with Talk(guarded["url"], token=guarded["ann"]) as talk:
        talk.sync()
        guarded["tokens"].revoke(guarded["ann"].split("_")[1])
        assert talk.hear_close()[1] == 4401
    assert as_(guarded, "ann").get(ROADS).error == (401, "Unauthorized")
    assert as_(guarded, "bob").get(ROADS).status == 200


def test_the_first_token_closes_an_open_server(serve: Serve) -> None:
    database, url = serve(beat_s=0.1)
    database.channel("roads")
    assert Api(url).get(ROADS).status == 200
    text, _ = Tokens(database.path).create(["read"])
    eventually(lambda: Api(url).get(ROADS).status == 401)
    assert Api(url, text).get(ROADS).status == 200
    assert Api(url).get("/healthz").status == 200
    assert Api(url).get("/").status == 200
    assert Api(url).get("/openapi.json").status == 200


def test_revoking_the_last_token_opens_nothing(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    tokens = Tokens(tmp_path / "data")
    text, token = tokens.create(["admin"])
    database, url = serve(beat_s=0.1)
    database.channel("roads")
    assert Api(url, text).get(ROADS).status == 200
    tokens.revoke(token.id)
    eventually(lambda: Api(url, text).get(ROADS).status == 401)
    assert Api(url).get(ROADS).error == (401, "Unauthorized")
    assert Api(url).post(f"{ROADS}/events", EVENT).status == 401
    with Talk(url) as talk:
        talk.say(do="sync", tag=1)
        assert talk.hear_close()[1] == 4401


def test_tokens_are_kept_hashed_and_private(tmp_path: Path) -> None:
    tokens = Tokens(tmp_path)
    text, token = tokens.create(["read", "publish:roads"], user="ann", name="page")
    stored = (tmp_path / "TOKENS").read_text()
    assert text not in stored
    assert text.split("_", 2)[2] not in stored
    assert (tmp_path / "TOKENS").stat().st_mode & 0o077 == 0
    assert tokens.match(text) == token
    assert (token.scopes, token.user, token.name) == (("read", "publish:roads"), "ann", "page")
    for wrong in ([], ["write"], ["read:"], [":roads"], [""], ["read", "x"]):
        with pytest.raises(InvalidRequest):
            tokens.create(wrong)
    with pytest.raises(InvalidRequest):
        tokens.create(["read"], user="")
    with pytest.raises(NotFound):
        tokens.revoke("00000000")
    with pytest.raises(NotFound):
        Tokens(tmp_path / "nothing").create(["read"])
    assert tokens.load() == [token]
    (tmp_path / "TOKENS").write_text(stored.replace('"page"', '"pest"'))
    with pytest.raises(Corruption):
        tokens.load()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", ""])
def test_off_this_machine_a_server_needs_tokens(host: str, tmp_path: Path) -> None:
    with tideline.open(tmp_path / "data") as database:
        with (
            pytest.raises(InvalidRequest, match="tideline token create"),
            running(database, host=host),
        ):
            pass
        if host == "0.0.0.0":
            text, _ = Tokens(database.path).create(["read"])
            with running(database, host=host) as url:
                here = url.replace("0.0.0.0", "127.0.0.1")
                assert Api(here).get("/v1/channels").status == 401
                assert Api(here, text).get("/v1/channels").json == []


def test_an_address_that_is_taken_or_not_ours(tmp_path: Path) -> None:
    with tideline.open(tmp_path / "data") as database, socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(Unavailable, match="address"):
            running(database, port=taken.getsockname()[1]).__enter__()
        with pytest.raises(InvalidRequest):
            running(database, port=70_000).__enter__()
        with pytest.raises(InvalidRequest):
            running(database, rate_per_s=0).__enter__()


# Pages and names ----------------------------------------------------------------------------


def test_foreign_pages_are_refused(url: str, channel: Any) -> None:
    api = Api(url)
    path = f"/v1/channels/{channel.name}"
    port = urlsplit(url).port
    for origin in ("http://evil.example", "null", f"https://127.0.0.1:{port}", "http://127.0.0.1"):
        assert api.get(path, Origin=origin).error == (403, "Forbidden"), origin
        posted = api.post(f"{path}/events", EVENT, Origin=origin)
        assert posted.error == (403, "Forbidden")
        assert "access-control-allow-origin" not in posted.headers
        assert api.call("OPTIONS", path, Origin=origin).status == 403
        assert refused_socket(url, headers={"Origin": origin}) == (403, "Forbidden")
    assert channel.stats().events == 0
    # Its own page may.
    assert api.get(path, Origin=url).status == 200
    with Talk(url, headers={"Origin": url}) as talk:
        assert talk.sync() == []


def test_pages_that_the_operator_named_may_call(serve: Serve) -> None:
    database, url = serve(origins=("https://app.example",))
    database.channel("roads")
    api = Api(url)
    answer = api.get(ROADS, Origin="https://app.example")
    assert answer.headers["access-control-allow-origin"] == "https://app.example"
    asked = api.call("OPTIONS", ROADS, Origin="https://app.example",
                     Access_Control_Request_Method="PUT")  # fmt: skip
    assert asked.status == 204
    assert "PUT" in asked.headers["access-control-allow-methods"]
    assert "access-control-allow-credentials" not in asked.headers
    assert api.get(ROADS, Origin="https://other.example").status == 403
    with Talk(url, headers={"Origin": "https://app.example"}) as talk:
        assert talk.sync() == []


def test_a_foreign_name_for_this_machine_is_refused(serve: Serve) -> None:
    """So that a page of evil.example, whose name leads here, is not taken for the server's own."""
    _, url = serve(hosts=("maps.example",))
    api = Api(url)
    port = urlsplit(url).port
    for host in ("evil.example", f"evil.example:{port}", "", "127.0.0.1.evil.example"):
        assert api.get("/healthz", Host=host).status in (400, 403), host
    for host in ("localhost", f"LOCALHOST:{port}", "127.0.0.1", "[::1]:80", "maps.example:80"):
        assert api.get("/healthz", Host=host).status == 200, host


# Limits -------------------------------------------------------------------------------------


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


# What is told, what is logged, and how it travels ----------------------------------------------


def test_no_secret_and_no_path_is_told_or_logged(
    guarded: dict[str, Any], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)
    url, folder = guarded["url"], str(guarded["database"].path)
    ann = as_(guarded, "ann")
    ann.post(f"{ROADS}/events", {**EVENT, "body": "a secret body"})
    Api(url).get(f"{ROADS}/subscriptions/x/stream?token={guarded['ann']}")
    with Talk(url, f"/v1/live?token={guarded['ann']}") as talk:
        talk.sync()
    with Talk(url) as talk:
        talk.say(do="hello", token=guarded["ann"])
        talk.sync()
    channel = guarded["database"].channel("roads")

    def full(*_: Any) -> None:
        raise Unavailable("disk is full", file=f"{folder}/log", reason="No space left")

    monkeypatch.setattr(channel._engine, "write_one", full)
    answer = ann.post(f"{ROADS}/events", EVENT)
    assert answer.json == {"error": {"kind": "Unavailable", "message": "disk is full"}}

    def bug(*_: Any) -> None:
        raise RuntimeError(f"secret {folder}")

    monkeypatch.setattr(channel._engine, "write_one", bug)
    answer = ann.post(f"{ROADS}/events", EVENT)
    assert answer.error == (500, "Bug")
    assert folder not in answer.body.decode()
    monkeypatch.undo()
    assert any(record.exc_info for record in caplog.records)  # the operator hears of it
    ours = [r for r in caplog.records if not r.name.startswith("websockets.client")]
    lines = [JsonLines().format(record) for record in ours]
    text = "".join(line for line in lines if "traceback" not in json.loads(line))
    assert guarded["ann"] not in text
    assert guarded["ann"].split("_", 2)[2] not in text
    assert "a secret body" not in text


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (InvalidRequest("x"), 400, "InvalidRequest"), (NotFound("x"), 404, "NotFound"),
        (tideline.Conflict("x"), 409, "Conflict"), (Unavailable("x"), 503, "Unavailable"),
        (tideline.Closed("x"), 503, "Closed"), (Corruption("x", file="/f"), 503, "Corruption"),
        (RecursionError(), 400, "InvalidRequest"),
    ],
)  # fmt: skip
def test_every_error_of_the_library_has_a_status(error: Exception, status: int, kind: str) -> None:
    told = refusals.refusal(error)
    assert told is not None
    assert (told.status, told.kind) == (status, kind)
    assert "/f" not in str(told)
    assert refusals.refusal(RuntimeError("x")) is None


def certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate for this machine, signed by itself."""
    import ipaddress

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "tideline test")])
    now = datetime.now(UTC)
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(names, critical=False)
        .sign(key, hashes.SHA256())
    )
    cert, private = folder / "cert.pem", folder / "key.pem"
    cert.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return cert, private


def test_tls(serve: Serve, tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    _, url = serve(tls_cert=cert, tls_key=key)
    address = urlsplit(url)
    assert address.scheme == "https"
    assert address.hostname is not None
    trusted = ssl.create_default_context(cafile=str(cert))
    connection = http.client.HTTPSConnection(
        address.hostname, address.port, context=trusted, timeout=30
    )
    connection.request("GET", "/healthz")
    assert json.loads(connection.getresponse().read()) == {"ok": True}
    connection.close()
    with Talk(url, ssl=trusted, headers={"Origin": url}) as talk:
        assert talk.sync() == []
    with pytest.raises((OSError, http.client.HTTPException)):
        Api(url.replace("https", "http")).get("/healthz")


def test_tls_needs_both_files(tmp_path: Path) -> None:
    cert, _ = certificate(tmp_path)
    with pytest.raises(InvalidRequest, match="key file"):
        Settings(tls_cert=cert)
    with tideline.open(":memory:") as database, pytest.raises(InvalidRequest, match="no such file"):
        running(database, tls_cert=cert, tls_key=tmp_path / "nothing").__enter__()
