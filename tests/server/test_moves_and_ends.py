"""Over the wire: one event, moves and retractions, by HTTP and on a WebSocket."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from talk import Api, Talk

from tideline import QuadTree, Unauthorized, connect
from tideline.server.tokens import Tokens


def test_moves_and_retractions_on_a_websocket(serve: Callable[..., Any]) -> None:
    database, url = serve()
    channel = database.channel("c")
    channel.publish("b", {"n": 0}, id="b0", ttl_s=600)
    with Talk(url) as talk:
        talk.say(do="subscribe", tag=1, channel="c", place="a", user="u", id="s", since_s=-60,
                 until_s=600, retractions=True)  # fmt: skip
        assert "subscribed" in talk.hear()
        assert talk.hear()["past_done"]
        talk.say(do="move", tag=1, place="b")
        found = talk.hear()
        assert (found["event"]["id"], found["kind"]) == ("b0", "live")
        assert talk.hear()["moved"]["place"] == "b"
        channel.retract("b0")
        gone = talk.hear()
        assert (gone["event"]["id"], gone["kind"]) == ("b0", "retracted")
        assert gone["event"]["retracted"] is True
        assert gone["token"] > found["token"]
        talk.say(do="publish", tag=2, channel="c", place="b", body={}, id="t", replace=True)
        assert "retracted" not in talk.hear()["event"]
        assert talk.hear()["told"]["subscriptions"] == [{"id": "s", "user": "u"}]
        talk.say(do="publish", tag=3, channel="c", place="a", body={}, id="t", replace=True)
        assert talk.hear()["kind"] == "retracted"
        assert talk.hear()["told"]["subscriptions"] == []
        for wrong in ({"place": 7}, {"place": None}, {}, {"place": "c", "more": 1}):
            talk.say(do="move", tag=1, **wrong)
            assert talk.hear()["error"]["kind"] == "InvalidRequest"
        talk.say(do="move", tag=9, place="c")
        assert talk.hear()["error"]["kind"] == "InvalidRequest"


def test_a_token_of_a_user_ends_no_events(serve: Callable[..., Any]) -> None:
    database, url = serve()
    database.channel("c").publish("a", {}, id="e", ttl_s=600)
    token, _ = Tokens(database.path).create(["publish:c", "read:c"], user="ann")
    with connect(url, token=token, timeout_s=timedelta(seconds=30)) as remote:
        channel = remote.channel("c")
        with pytest.raises(Unauthorized, match="neither retracts nor replaces"):
            channel.retract("e")
        with pytest.raises(Unauthorized, match="neither retracts nor replaces"):
            channel.publish("b", {}, id="e", replace=True)
        assert channel.publish("b", {}, id="f").event.id == "f"
    assert database.channel("c").get("e") is not None


def test_one_event_and_changes_by_http(serve: Callable[..., Any]) -> None:
    database, url = serve()
    database.channel("c", space=QuadTree())
    api, path = Api(url), "/v1/channels/c"
    place = {"type": "Point", "coordinates": [1, 2]}
    made = api.post(f"{path}/events", {"place": place, "body": {}, "id": "e/1", "ttl_s": 600})
    assert made.json["event"]["place"] == [1.0, 2.0]
    assert api.get(f"{path}/events/e%2F1").json == made.json["event"]
    sub = {"place": {"lon": 5, "lat": 5}, "user": "u", "id": "s", "since_s": -60, "until_s": 600}
    assert api.post(f"{path}/subscriptions", sub).json["past"] == []
    moved = api.patch(f"{path}/subscriptions/s", {"place": [1, 2]})
    assert (moved.status, moved.json["place"]) == (200, [1.0, 2.0])
    assert [e.id for e in database.channel("c").resume("s").past] == ["e/1"]
    for wrong in ({"place": [1, 2], "until_s": 5}, {"place": [1]}, {"place": None}, {}):
        assert api.patch(f"{path}/subscriptions/s", wrong).status == 400
    assert api.patch(f"{path}/subscriptions/t", {"place": [1, 2]}).status == 404
    assert api.delete(f"{path}/events/e%2F1").json == {"retracted": "e/1"}
    assert api.delete(f"{path}/events/e%2F1").status == 404
    assert api.get(f"{path}/events/e%2F1").status == 404
