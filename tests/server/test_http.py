"""The routes, one promise a test: the right status, the right document, nothing stored on error."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any
from urllib.parse import quote

import pytest
from talk import Api, Talk, refused_socket

import tideline
from tideline.server import create_app


def test_a_channel_is_made_once_and_described(api: Api) -> None:
    space = {"kind": "quadtree", "bounds": [-80.0, 40.0, -72.0, 45.0], "depth": 7}
    made = api.put("/v1/channels/made", {"space": space, "journal_s": 60})
    assert made.status == 201
    assert made.json["space"] == space
    assert made.json["journal_s"] == 60
    assert len(made.json["identity"]) == 32
    again = api.put("/v1/channels/made", {"space": space})
    assert (again.status, again.json["name"]) == (200, "made")
    assert api.put("/v1/channels/made").status == 200
    assert api.get("/v1/channels/made").json == again.json
    assert "made" in [found["name"] for found in api.get("/v1/channels").json]
    assert api.put("/v1/channels/made", {"space": {"kind": "flat"}}).error == (409, "Conflict")
    assert api.put("/v1/channels/made", {"layout": "two"}).error == (409, "Conflict")
    assert api.delete("/v1/channels/made").json == {"dropped": "made"}
    assert api.get("/v1/channels/made").error == (404, "NotFound")
    assert api.delete("/v1/channels/made").error == (404, "NotFound")


@pytest.mark.parametrize(
    "body",
    [
        {"space": {"kind": "cube"}},
        {"space": {"kind": "grid"}},
        {"space": "flat"},
        {"layout": "three"},
        {"layout": 3},
        {"journal_s": -1},
        {"journal_s": "long"},
        {"colour": "red"},
        [],
    ],
)
def test_a_wrong_channel_is_not_made(api: Api, body: Any) -> None:
    assert api.put("/v1/channels/wrong", body).error == (400, "InvalidRequest")
    assert api.get("/v1/channels/wrong").status == 404


def test_a_name_is_any_printable_text(api: Api) -> None:
    name = quote("Straße 7, north & south?", safe="")
    assert api.put(f"/v1/channels/{name}").status == 201
    assert api.post(f"/v1/channels/{name}/events", {"place": "a", "body": 1}).status == 200
    assert api.put("/v1/channels/%00").error == (400, "InvalidRequest")
    assert api.put("/v1/channels/" + "x" * 200).error == (400, "InvalidRequest")


def test_publish_tells_whom_it_answers(api: Api, path: str, channel: Any) -> None:
    channel.subscribe("a", user="ann", id="s1", until_s=60)
    told = api.post(f"{path}/events", {"place": "a/b", "body": {"n": [1, None]}, "ttl_s": 60})
    assert told.status == 200
    event = told.json["event"]
    assert (event["place"], event["body"]) == ("a/b", {"n": [1, None]})
    assert event["at"].endswith("Z")
    assert told.json["subscriptions"] == [{"id": "s1", "user": "ann"}]
    assert told.json["related"] == []
    second = api.post(f"{path}/events", {"place": "a/b", "body": 2, "related": True, "ttl_s": 9})
    assert [found["id"] for found in second.json["related"]] == [event["id"]]


def test_an_id_makes_a_retry_safe(api: Api, path: str) -> None:
    event = {"place": "a", "body": {"n": 1}, "id": "e1", "ttl_s": 60}
    first = api.post(f"{path}/events", event).json
    again = api.post(f"{path}/events", event).json
    assert (first["duplicate"], again["duplicate"]) == (False, True)
    assert again["event"] == first["event"]
    assert api.post(f"{path}/events", event | {"body": 2}).error == (409, "Conflict")


def test_absolute_times(api: Api, path: str) -> None:
    body = {
        "place": "a",
        "body": 1,
        "at": "2026-01-02T03:04:05",
        "until": "2990-01-01T00:00:00+01:00",
    }
    event = api.post(f"{path}/events", body).json["event"]
    assert event["at"] == "2026-01-02T03:04:05.000000Z"
    assert event["until"] == "2989-12-31T23:00:00.000000Z"
    found = api.get(f"{path}/events?place=a&since=2026-01-01&until=2026-02-01").json["events"]
    assert [e["id"] for e in found] == [event["id"]]
    assert api.get(f"{path}/events?place=a&since=2026-01-03").json["events"] == []


def test_many_events_land_or_are_refused_one_by_one(api: Api, path: str, channel: Any) -> None:
    channel.subscribe("a", user="u", id="s", until_s=60)
    events = [{"place": "a", "body": n, "ttl_s": 60, "id": f"e{n}"} for n in range(5)] + [
        {"place": "a", "body": 9, "ttl_s": -1},
        {"place": [1, 2], "body": 9},
    ]
    results = api.post(f"{path}/events", {"events": events}).json["results"]
    assert [r["event"]["id"] for r in results[:5]] == [f"e{n}" for n in range(5)]
    assert all(r["subscriptions"] == [{"id": "s", "user": "u"}] for r in results[:5])
    assert [r["error"]["kind"] for r in results[5:]] == ["InvalidRequest"] * 2
    assert len(channel.find("a")) == 5


def test_a_badly_shaped_event_refuses_no_other(api: Api, path: str, channel: Any) -> None:
    good = {"place": "x", "body": 1, "ttl_s": 60}
    shapes = [good, {"place": "y"}, good, 17, None, [], {**good, "colour": 1}, {**good, "id": 5}]
    shapes.append(good)
    answer = api.post(f"{path}/events", {"events": shapes})
    assert answer.status == 200
    results = answer.json["results"]
    assert [n for n, result in enumerate(results) if "event" in result] == [0, 2, 8]
    refused = [result["error"] for result in results if "error" in result]
    assert {error["kind"] for error in refused} == {"InvalidRequest"}
    assert "missing required field `body`" in refused[0]["message"]
    assert "unknown field `colour`" in refused[4]["message"]
    assert channel.stats().events == 3
    # A text that is not UTF-8 is wrong with that one event too; what is no JSON is no list.
    data = b'{"events": [{"place": "x", "body": "\xff"}, {"place": "x", "body": 2}]}'
    results = api.post(f"{path}/events", data=data).json["results"]
    assert ["error" in result for result in results] == [True, False]
    for wrong in (b'{"events": [{"place": "x", "body": 3}, {]}', b'{"events": {}}'):
        assert api.post(f"{path}/events", data=wrong).error == (400, "InvalidRequest")
    assert channel.stats().events == 4


def test_find(api: Api, path: str, channel: Any) -> None:
    for n in range(4):
        channel.publish(f"a/{n}", {"n": n}, id=f"e{n}", ttl_s=60)

    def ids(query: str) -> list[str]:
        return [e["id"] for e in api.get(f"{path}/events?{query}").json["events"]]

    assert ids("place=a") == ["e3", "e2", "e1", "e0"]
    assert ids("place=a/2") == ["e2"]
    assert ids("place=a&limit=2") == ["e3", "e2"]
    assert ids("place=a&since=2999-01-01") == []
    assert ids("place=a&where=" + quote('{"n": {"$gte": 2}}')) == ["e3", "e2"]


@pytest.mark.parametrize(
    "query",
    [
        "", "place=a&limit=-1", "place=a&limit=x", "place=a&since_s=soon", "place=a&where=%7B",
        "place=a&where=%7B%22%24what%22%3A1%7D", "place=a&place=b", "place=a&colour=red",
        "place=%FF", "place=a&since_s=1&since=2026-01-01", "place=a&since=yesterday",
        "place=a&token=tl_1",
    ],
)  # fmt: skip
def test_a_wrong_question_is_refused(api: Api, path: str, query: str) -> None:
    assert api.get(f"{path}/events?{query}").error == (400, "InvalidRequest")


def test_places_on_a_map(api: Api, database: Any) -> None:
    space = {"kind": "quadtree", "bounds": [-80, 40, -72, 45], "depth": 7}
    api.put("/v1/channels/map", {"space": space})
    there = "/v1/channels/map"
    for n, place in enumerate(
        [[-73.5, 42.5], {"circle": [-73.5, 42.5, 500]}, {"box": [-74, 42, -73, 43]}, "1.2"]
    ):
        told = api.post(f"{there}/events", {"place": place, "body": {}, "id": f"e{n}"})
        assert (told.status, told.json["event"]["place"]) == (200, place)
    wanted = {"e0", "e1", "e2"}
    for text in ("-73.5,42.5", "circle:-73.5,42.5,10", "box:-73.6,42.4,-73.4,42.6",
                 quote("[-73.5, 42.5]"), quote('{"circle": [-73.5, 42.5, 10]}')):  # fmt: skip
        found = api.get(f"{there}/events?place={text}").json["events"]
        assert {event["id"] for event in found} == wanted, text
    bad: list[Any] = [
        [1], [500, 1], {"circle": [1, 2]}, {"circle": "x"}, {"ball": [1]}, 7, None, True,
        {"box": [1, 2, 3, 4], "circle": [1, 2, 3]}, [1e400, 2], [None, 2],
    ]  # fmt: skip
    for place in bad:
        body = {"place": place, "body": 1}
        assert api.post(f"{there}/events", body).status == 400, place
    assert database.channel("map").stats().events == 4


def test_subscribe_answers_with_the_past(api: Api, path: str, channel: Any) -> None:
    channel.publish("a", {"n": 1}, id="e1", ttl_s=60)
    asked = {"place": "a", "user": "ann", "id": "s1", "since_s": -60, "until_s": 60}
    made = api.post(f"{path}/subscriptions", asked)
    assert made.status == 201
    assert [event["id"] for event in made.json["past"]] == ["e1"]
    assert made.json["token"] > made.json["past"][0]["token"]
    again = api.post(f"{path}/subscriptions", asked)
    assert (again.status, again.json["duplicate"], again.json["past"]) == (200, True, [])
    other = asked | {"place": "b"}
    assert api.post(f"{path}/subscriptions", other).error == (409, "Conflict")
    channel.publish("a", {"n": 2}, id="e2", ttl_s=60)
    assert [e.id for e in channel.resume("s1", made.json["token"]).past] == ["e2"]


def test_subscriptions_are_listed_prolonged_and_cancelled(api: Api, path: str) -> None:
    for user in ("ann", "bob"):
        asked = {"place": "a", "user": user, "id": user, "until_s": 60, "where": {"n": 1}}
        api.post(f"{path}/subscriptions", asked)
    listed = api.get(f"{path}/subscriptions").json["subscriptions"]
    assert [s["id"] for s in listed] == ["ann", "bob"]
    assert listed[0]["where"] == {"n": 1}
    [own] = api.get(f"{path}/subscriptions?user=bob").json["subscriptions"]
    longer = api.patch(f"{path}/subscriptions/bob", {"until_s": 600})
    assert longer.status == 200
    assert longer.json["until"] > own["until"]
    assert api.patch(f"{path}/subscriptions/bob", {"until": "2990-01-01"}).status == 200
    for wrong in ({}, {"until_s": -1}, {"until_s": 1, "until": "2990-01-01"}, {"until": "x"}):
        assert api.patch(f"{path}/subscriptions/bob", wrong).error == (400, "InvalidRequest")
    assert api.delete(f"{path}/subscriptions/bob").json == {"cancelled": "bob"}
    assert api.delete(f"{path}/subscriptions/bob").error == (404, "NotFound")
    assert api.patch(f"{path}/subscriptions/bob", {"until_s": 5}).error == (404, "NotFound")


def test_an_id_may_hold_anything(api: Api, path: str) -> None:
    for id in ("a/b", "a/stream", "%2F", "ü ?#&", "..", "a\nb"):
        there = f"{path}/subscriptions/{quote(id, safe='')}"
        api.post(f"{path}/subscriptions", {"place": "a", "user": "u", "id": id, "until_s": 60})
        assert api.get(there).json["id"] == id
        assert api.patch(there, {"until_s": 90}).json["id"] == id
        assert api.delete(there).json == {"cancelled": id}
        assert api.get(there).error == (404, "NotFound")


def test_a_path_that_is_no_text_is_refused(api: Api, path: str, database: Any) -> None:
    before = database.channels()
    for name in ("%ff", "a%2F%ff", "%C3", "%ed%a0%80"):
        assert api.put(f"/v1/channels/{name}").error == (400, "InvalidRequest")
        assert api.get(f"{path}/subscriptions/{name}").error == (400, "InvalidRequest")
    assert refused_socket(api.url, "/v1/%ff") == (400, "InvalidRequest")
    assert database.channels() == before
    assert api.get(f"{path}/subscriptions/%EF%BF%BD").error == (404, "NotFound")


@pytest.mark.parametrize(
    "text",
    [r"\ud800", r"\uDFFF", r"x\ud800y", r"\ud800\u0041", r"\udc00\ud800", r"\\\ud800",
     r"\ud800\\udc00", r"\ud83d\ude00\ude00", r"\ud83d\ud83d\ude00"],
)  # fmt: skip
def test_half_a_surrogate_is_named(api: Api, path: str, text: str, url: str) -> None:
    fields = f'"place": "a", "body": "{text}"'
    for data in (f"{{{fields}}}", f'{{"events": [{{{fields}}}]}}'):
        refused = api.post(f"{path}/events", data=data.encode())
        assert refused.error == (400, "InvalidRequest")
        assert "a text holds a lone surrogate" in refused.json["error"]["message"]
    where = quote(f'{{"n": "{text}"}}')
    found = api.get(f"{path}/events?place=a&where={where}")
    assert "a text holds a lone surrogate" in found.json["error"]["message"]
    with Talk(url) as talk:
        talk.socket.send(f'{{"do": "publish", "tag": 1, "channel": "c", {fields}}}')
        assert "a text holds a lone surrogate" in talk.hear()["error"]["message"]


def test_a_pair_of_surrogates_is_a_letter(api: Api, path: str) -> None:
    for text in (r"\ud83d\ude00", r"\\ud800", r"\\\ud83d\ude00\\"):
        data = f'{{"place": "a", "ttl_s": 60, "body": "{text}"}}'.encode()
        told = api.post(f"{path}/events", data=data).json
        assert told["event"]["body"] == json.loads(f'"{text}"')
    cut = api.post(f"{path}/events", data=b'{"place": "a\\\\ud800')
    assert "surrogate" not in cut.json["error"]["message"]


BAD_EVENTS: list[Any] = [
    {}, {"place": "a"}, {"body": 1}, {"place": "a", "body": 1, "ttl": 5},
    {"place": "a", "body": 1, "ttl_s": "5"}, {"place": "a", "body": 1, "ttl_s": 0},
    {"place": "a", "body": 1, "ttl_s": 5, "until": "2990-01-01"}, {"place": "", "body": 1},
    {"place": "a", "body": 1, "at": 5}, {"place": "a", "body": 1, "id": ""},
    {"place": "a", "body": 1, "id": "x" * 257}, {"place": "a", "body": 1, "related": 1},
    {"place": "a", "body": "x" * 140_000}, {"events": {}}, {"events": 1}, [], "event", None, 7,
]  # fmt: skip


@pytest.mark.parametrize("body", BAD_EVENTS, ids=lambda body: json.dumps(body)[:40])
def test_a_wrong_event_is_not_stored(api: Api, path: str, channel: Any, body: Any) -> None:
    answer = api.call("POST", f"{path}/events", data=json.dumps(body).encode())
    assert answer.error == (400, "InvalidRequest")
    assert channel.stats().events == 0


BAD_SUBSCRIPTIONS: list[Any] = [
    {"place": "a"}, {"user": "u"}, {"place": "a", "user": ""}, {"place": "a", "user": 7},
    {"place": "a", "user": "u", "since_s": 5, "until_s": 4},
    {"place": "a", "user": "u", "where": []},
    {"place": "a", "user": "u", "where": {"n": {"$what": 1}}},
    {"place": "a", "user": "u", "unseen": "yes"}, {"place": "a", "user": "u", "since": "never"},
    {"place": "a", "user": "u" * 300},
]  # fmt: skip


@pytest.mark.parametrize("body", BAD_SUBSCRIPTIONS, ids=lambda body: json.dumps(body)[:50])
def test_a_wrong_subscription_is_not_stored(api: Api, path: str, channel: Any, body: Any) -> None:
    assert api.post(f"{path}/subscriptions", body).error == (400, "InvalidRequest")
    assert channel.stats().subscriptions == 0


@pytest.mark.parametrize(
    "data",
    [
        b"", b"{", b'{"place": "a", "body": 1', b"\xff\xfe", b'{"place": "\xff", "body": 1}',
        b'{"place": "a", "body": NaN}', b'{"place": "a", "body": 1} x', b"[" * 100_000,
        b'{"place": "a", "body": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"place": "a", "body": 1e999}', b'{"place": "a", "body": "\\ud800"}',
    ],
    ids=lambda data: repr(data[:30]),
)  # fmt: skip
def test_a_body_that_is_no_json_is_refused(api: Api, path: str, channel: Any, data: bytes) -> None:
    assert api.post(f"{path}/events", data=data).error == (400, "InvalidRequest")
    assert channel.stats().events == 0


def test_what_is_not_there_is_404_and_the_wrong_method_405(api: Api, path: str) -> None:
    for there in ("/nothing", "/v1", "/v1/channels/", f"{path}/nothing", "/assets/../channels.py"):
        assert api.get(there).error == (404, "NotFound"), there
    answer = api.call("POST", "/v1/channels")
    assert answer.error == (405, "NotAllowed")
    assert answer.headers["allow"] == "GET"
    assert api.post("/v1/channels/nobody/events", {"place": "a", "body": 1}).status == 404
    assert api.get("/v1/live").error == (426, "NotAllowed")


def test_the_layout_poll_stores_no_subscriptions(api: Api, database: Any) -> None:
    assert api.put("/v1/channels/polled", {"layout": "poll", "poll_s": 0.05}).status == 201
    there = "/v1/channels/polled"
    assert api.get(there).json["position"] is None
    api.post(f"{there}/events", {"place": "a", "body": 1, "id": "e1"})
    asked = {"place": "a", "user": "u", "since_s": -60}
    made = api.post(f"{there}/subscriptions", asked)
    assert [event["id"] for event in made.json["past"]] == ["e1"]
    assert api.delete(f"{there}/subscriptions/{made.json['id']}").error == (404, "NotFound")
    assert api.get(f"{there}/subscriptions/{made.json['id']}/stream").error == (404, "NotFound")
    assert api.post(f"{there}/subscriptions", asked | {"unseen": True}).status == 400


def test_a_server_waits_for_the_disk_without_holding_up_others(serve: Any) -> None:
    _, url = serve(durability="disk")
    api = Api(url)
    api.put("/v1/channels/c")
    assert api.post("/v1/channels/c/events", {"place": "a", "body": 1}).status == 200
    asked = {"place": "a", "user": "u", "id": "s", "since_s": -60}
    assert len(api.post("/v1/channels/c/subscriptions", asked).json["past"]) == 1
    assert api.patch("/v1/channels/c/subscriptions/s", {"until_s": 60}).status == 200
    assert api.delete("/v1/channels/c/subscriptions/s").status == 200


def test_the_page_is_served(api: Api) -> None:
    page = api.get("/")
    assert page.status == 200
    assert page.headers["content-type"].startswith("text/html")
    assert "default-src 'self'" in page.headers["content-security-policy"]
    assert api.get("/assets/app.js").status == 200
    assert api.get("/assets/nothing.js").error == (404, "NotFound")
    assert api.call("POST", "/").error == (405, "NotAllowed")


def test_the_server_needs_its_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    import tideline.server as package

    monkeypatch.setitem(sys.modules, "starlette", None)
    for name in [n for n in sys.modules if n.startswith(("starlette.", "tideline.server."))]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(tideline.Unavailable, match=r"tideline\[server\]"):
        package.__getattr__("create_app")


def test_a_number_in_a_query_cannot_be_null(api: Api, channel: Any, path: str) -> None:
    for query in ("since_s=null", "limit=null", "until_s=NULL"):
        assert api.get(f"{path}/events?place=a&{query}").error == (400, "InvalidRequest")
    # A user may have that name.
    channel.subscribe("a", user="null", id="s1", until_s=60)
    channel.subscribe("a", user="other", id="s2", until_s=60)
    found = api.get(f"{path}/subscriptions?user=null").json["subscriptions"]
    assert [each["id"] for each in found] == ["s1"]


async def _statuses_under_a_prefix(app: Any, sent: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for path in (
        "/", "/tideline.js", "/tideline/http.js", "/assets/app.js", "/assets/nothing.js",
        "/healthz", "/v1/live", "/nothing",
    ):  # fmt: skip
        told: list[Any] = []

        async def send(message: Any, told: list[Any] = told) -> None:
            told.append(message)

        scope = {
            "type": "http", "method": "GET", "path": sent + path, "root_path": "/maps",
            "raw_path": (sent + path).encode(), "query_string": b"", "scheme": "http",
            "headers": [(b"host", b"localhost")], "client": ("127.0.0.1", 1), "http_version": "1.1",
        }  # fmt: skip
        await app(scope, asyncio.Event().wait, send)
        found[path] = told[0]["status"]
    return found


@pytest.mark.parametrize("sent", ["", "/maps"], ids=["taken off by the proxy", "left in the path"])
def test_everything_is_found_under_a_prefix(sent: str) -> None:
    with tideline.open(":memory:") as database:
        found = asyncio.run(_statuses_under_a_prefix(create_app(database), sent))
    assert found == {
        "/": 200, "/tideline.js": 200, "/tideline/http.js": 200, "/assets/app.js": 200,
        "/assets/nothing.js": 404, "/healthz": 200, "/v1/live": 426, "/nothing": 404,
    }  # fmt: skip


def test_the_page_asks_for_nothing_above_itself(api: Api) -> None:
    """Whatever begins with a slash would miss a prefix."""
    assert b'="/' not in api.get("/").body
    for name in ("app.js", "feed.js"):
        text = api.get(f"/assets/{name}").body.decode()
        assert not re.search(r"fetch\([`'\"]/|location\.href", text)
