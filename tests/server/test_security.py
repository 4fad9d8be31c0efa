"""Who may do what: tokens and their scopes, refused with the right status, nothing stored."""

from __future__ import annotations

import itertools
import json
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from talk import EVENT, ROADS, Api, Talk, as_, eventually, refused_socket
from test_tables import operations, stream_of, streams_in

from tideline.errors import Corruption, InvalidRequest, NotFound
from tideline.server.tokens import Tokens

Serve = Callable[..., Any]


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
    ("admin", "PUT", ROADS, {}), ("any", "PUT", ROADS, {}), ("admin", "DELETE", ROADS, None),
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
    channel, kept_s = guarded["database"].channel("roads"), itertools.count(60)
    for who, granted in GRANTED.items():
        for scope, method, path, body in CALLS:
            if (method, path) == ("DELETE", ROADS):
                continue  # tried below
            if (scope, method) == ("admin", "PUT"):
                body = {"journal_s": next(kept_s)}  # as it is, anybody may ask for it
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


def test_an_id_of_another_user_is_refused_and_nothing_else_is_told(guarded: dict[str, Any]) -> None:
    ann = as_(guarded, "ann")
    channel = guarded["database"].channel("roads")
    theirs = {"place": "secret", "id": "his", "until_s": 600, "where": {"n": 1}}
    with Talk(guarded["url"], token=guarded["bob"]) as bob:
        bob.say(do="subscribe", tag=1, channel="roads", **theirs)
        bob.hear_until("past_done")
        before = channel.subscription("his")
        # Whatever she asks for, his own included, and in the words for one of her own.
        ann.post(f"{ROADS}/subscriptions", {"place": "a", "id": "hers", "until_s": 600})
        own = ann.post(f"{ROADS}/subscriptions", {"place": "b", "id": "hers", "until_s": 600})
        assert own.error == (409, "Conflict")
        for asked in (theirs, {"place": "a", "id": "his", "until_s": 60}):
            refused = ann.post(f"{ROADS}/subscriptions", asked)
            assert refused.status == 409
            assert refused.body == own.body.replace(b"hers", b"his")
            with Talk(guarded["url"], token=guarded["ann"]) as talk:
                talk.say(do="subscribe", tag=1, channel="roads", **asked)
                assert talk.hear()["error"] == refused.json["error"]
                for tag, after in ((2, None), (3, "0" * 18), (4, "9" * 18), (5, "wrong")):
                    talk.say(do="resume", tag=tag, channel="roads", id="his", after=after)
                    assert talk.hear()["error"]["kind"] == "NotFound"
        assert channel.subscription("his") == before
        channel.publish("secret", {"n": 1}, id="e", ttl_s=60)
        assert bob.hear()["event"]["id"] == "e"  # and he notices nothing


def test_related_events_are_told_only_to_whoever_may_read(guarded: dict[str, Any]) -> None:
    channel = guarded["database"].channel("roads")
    channel.publish("a", {"a": "secret"}, id="before", ttl_s=600)
    publisher, service = as_(guarded, "publisher"), as_(guarded, "service")
    asked = {**EVENT, "related": True}
    refused = publisher.post(f"{ROADS}/events", asked)
    assert refused.error == (403, "Forbidden")
    assert "'read'" in refused.json["error"]["message"]
    with Talk(guarded["url"], token=guarded["publisher"]) as talk:
        talk.say(do="publish", tag=1, channel="roads", **asked)
        assert talk.hear()["error"]["kind"] == "Forbidden"
    assert channel.stats().events == 1
    # Of many, those that ask for it are refused, each by itself.
    many = publisher.post(f"{ROADS}/events", {"events": [EVENT, asked, EVENT]}).json["results"]
    assert [result.get("error", {}).get("kind") for result in many] == [None, "Forbidden", None]
    assert channel.stats().events == 3
    assert len(service.post(f"{ROADS}/events", asked).json["related"]) == 3
    with Talk(guarded["url"], token=guarded["service"]) as talk:
        talk.say(do="publish", tag=1, channel="roads", **asked)
        assert len(talk.hear()["told"]["related"]) == 4


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
    now = datetime.now(UTC)
    for row in (
        {"op": "retract", "id": "e0", "at": now},
        {"op": "publish", "id": "e0", "place": "b", "body": "1", "at": now, "replace": True},
    ):  # an event belongs to nobody
        ends = stream_of(pa.Table.from_pylist([row]))
        assert bob.post(f"{ROADS}/apply", data=ends).error == (403, "Forbidden")
        [_, rejected] = streams_in(as_(guarded, "service").post(f"{ROADS}/apply", data=ends).body)
        assert rejected.num_rows == 0
    assert as_(guarded, "publisher").post(f"{ROADS}/apply", data=forged).status == 403
    assert as_(guarded, "service").post(f"{ROADS}/apply", data=forged).status == 200


def test_the_figures_of_all_are_not_for_a_token_of_a_user_or_with_rows(
    guarded: dict[str, Any],
) -> None:
    """A token with `read` that was bound to a user read every channel's figures."""
    owned = {"rows": {"orders": {"owner": "ann"}}}
    rows, _ = guarded["tokens"].create(["read"], **owned)
    ann = as_(guarded, "ann")
    eventually(lambda: Api(guarded["url"], rows).get("/v1/channels").status != 401)
    for api in (ann, Api(guarded["url"], rows)):
        assert api.get("/metrics").error == (403, "Forbidden")
    assert b"tideline_events" in as_(guarded, "service").get("/metrics").body


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
    for wrong in ([], ["delete"], ["read:"], [":roads"], [""], ["read", "x"]):
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


def test_a_refusal_names_no_scope_that_does_not_exist(guarded: dict[str, Any]) -> None:
    refused = as_(guarded, "reader").get("/v1/channels/news")
    assert refused.error == (403, "Forbidden")
    assert refused.json["error"]["message"] == "the token has no scope here"
