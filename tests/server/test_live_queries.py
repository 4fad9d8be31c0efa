"""Live queries on the wire: what is said, to whom, when it ends; and what nobody may see."""

from __future__ import annotations

import contextlib
import itertools
import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import few, many
from talk import Api, Talk, eventually
from test_slow import stuck_socket
from test_sse import Stream

import tideline
from tideline.client.kept import Kept, key_reader
from tideline.errors import Unauthorized, Unavailable
from tideline.server import running
from tideline.server.live_jobs import results_now
from tideline.server.tokens import Tokens
from tideline.testing import ManualClock

ORDERS = "/v1/collections/orders"


@pytest.fixture
def orders(serve: Callable[..., Any]) -> Any:
    """A collection, and the address of its server."""
    database, url = serve()
    made = database.collection("orders", key="id")
    made.url = url
    return made


def order(id: int, shop: int = 7, **fields: Any) -> dict[str, Any]:
    return {"id": id, "shop": shop, **fields}


def watch(talk: Talk, tag: Any = 1, **request: Any) -> tuple[dict[str, Any], list[Any]]:
    """Watch; what the server says of it, and the result."""
    talk.say(do="watch", tag=tag, collection="orders", **request)
    watching, result = talk.hear(), []
    if watching["watching"]["result"]:
        pieces = talk.hear_until("result")
        while pieces[-1]["more"]:
            pieces.append(talk.hear())
        result = [document for piece in pieces for document in piece["result"]]
    return watching["watching"], result


# ---- what is said -------------------------------------------------------------------------------


def test_no_result_is_found_for_who_wants_none(
    orders: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders.put(order(1))
    hub, found = orders.hub, []
    real = hub.found
    monkeypatch.setattr(hub, "found", lambda query: found.append(query) or real(query))
    with Talk(orders.url) as talk:
        told, result = watch(talk, 1, where={"shop": 7}, first=False)
        assert (told["version"], told["result"], result, found) == (1, False, [], [])
        orders.put(order(2))
        assert talk.hear()["changes"] == [["add", 2, None, order(2)]]
        # Sorted queries have to know what they show, also when nobody is told.
        told, result = watch(talk, 2, sort=[["id", -1]], limit=1, first=False)
        assert (told["version"], told["result"], result) == (2, False, [])
        orders.put(order(3, shop=8))
        kinds = [change[:2] for change in talk.hear()["changes"]]
        assert kinds == [["remove", 3], ["add", 3]]


def test_a_result_then_what_changes_then_the_end(orders: Any) -> None:
    orders.put(order(1, total=20))
    with Talk(orders.url) as talk:
        facts, result = watch(talk, "t", where={"shop": 7}, sort=[["total", -1]], limit=2)
        assert facts == {
            "identity": orders.identity, "version": 1, "until": None, "resumed": False,
            "result": True, "placed": True,
        }  # fmt: skip
        assert result == [order(1, total=20)]
        orders.put(order(2, total=30))
        assert talk.hear() == {
            "tag": "t", "changes": [["add", 2, 0, order(2, total=30)]], "version": 2,
        }  # fmt: skip
        orders.put(order(2, total=31, note="new"))
        assert talk.hear()["changes"] == [["change", 3, 0, 2, {"total": 31, "note": "new"}, []]]
        orders.put(order(2, total=10))
        assert talk.hear()["changes"] == [["changeIndex", 4, 0, 1, 2, {"total": 10}, ["note"]]]
        orders.put(order(3, total=15))
        assert talk.hear()["changes"] == [
            ["remove", 5, 1, 2], ["add", 5, 1, order(3, total=15)],
        ]  # fmt: skip
        talk.say(do="prolong", tag="t", ttl_s=60)
        assert talk.hear()["prolonged"]["until"] is not None
        talk.say(do="cancel", tag="t")
        assert talk.hear() == {"tag": "t", "ended": "cancelled"}
        orders.put(order(4, total=99))
        assert talk.sync() == []
        assert watch(talk, "t", where={"shop": 8})[1] == []


def test_groups_and_many_tags_on_one_connection(orders: Any) -> None:
    with Talk(orders.url, "/v1/live?lines=1") as talk:
        for tag in range(300):
            talk.say(do="watch", tag=tag, collection="orders", where={"shop": tag % 3})
        talk.say(do="watch_groups", tag="g", collection="orders", by="shop", count=True)
        talk.say(do="sync", tag="s")
        heard: list[Any] = []
        while not any("synced" in message for message in heard):
            heard += map(json.loads, talk.socket.recv(timeout=30).split("\n"))
        assert sum("watching" in message for message in heard) == 301
        assert orders.hub.count == 4
        orders.put(order(1, shop=2))
        told: dict[Any, Any] = {}
        while len(told) < 101:
            for line in talk.socket.recv(timeout=30).split("\n"):
                message = json.loads(line)
                if "changes" in message:
                    told[message["tag"]] = message["changes"]
        assert told.pop("g") == [["add", 1, 0, {"shop": 2, "count": 1}]]
        assert {tag % 3 for tag in told} == {2}
        assert all(changes == [["add", 1, None, order(1, 2)]] for changes in told.values())
    eventually(lambda: orders.hub.count == 0)


def test_resuming_after_a_version(orders: Any) -> None:
    orders.put(order(1))
    with Talk(orders.url) as talk:
        facts, _ = watch(talk)
        orders.put_many([order(n) for n in range(2, 5)])
        orders.delete(1)
    after = {"after": facts["version"], "identity": facts["identity"]}
    with Talk(orders.url) as talk:
        again, result = watch(talk, **after)
        assert (again["resumed"], result) == (True, [])
        changes = talk.hear()["changes"]
        assert [change[:2] for change in changes] == [
            ["add", 2], ["add", 3], ["add", 4], ["remove", 5],
        ]  # fmt: skip
        # With `first`, the result of that version comes before.
        again, result = watch(talk, 2, first=True, **after)
        assert (again["resumed"], result) == (True, [order(1)])
        assert talk.hear()["changes"] == changes
        # A version that is not kept: the latest result, in place of what the client has.
        talk.say(do="watch", tag=3, collection="orders", after=10_000, identity=orders.identity)
        assert talk.hear()["watching"]["resumed"] is False
        reset = talk.hear()
        assert reset["reset"] is True
        assert [one["id"] for one in reset["result"]] == [4, 3, 2]
        talk.say(do="watch", tag=4, collection="orders", after=1, identity="another")
        assert talk.hear()["error"]["kind"] == "Conflict"


def test_the_time_of_a_live_query_is_the_database_s(serve: Callable[..., Any]) -> None:
    clock = ManualClock(1_000)
    database, url = serve(clock=clock)
    database.collection("orders", key="id")
    with Talk(url) as talk:
        assert watch(talk, ttl_s=60)[0]["until"] == "1970-01-01T00:17:40.000000Z"
        clock.advance(50)
        talk.say(do="prolong", tag=1, ttl_s=60)
        assert talk.hear()["prolonged"] == {"until": "1970-01-01T00:18:30.000000Z"}
        clock.advance(59)
        assert talk.sync() == []
        clock.advance(1)
        assert talk.hear() == {"tag": 1, "ended": "expired"}


def test_prolonging_without_saying_for_how_long_changes_nothing(orders: Any) -> None:
    """A slip once made a live query stay for ever: `until_s`, which is of subscriptions."""
    with Talk(orders.url) as talk:
        watching, _ = watch(talk, ttl_s=1e6)
        for slip in ({}, {"until_s": 60}, {"ttl_s": 60, "until": "2030-01-01T00:00:00Z"}):
            talk.say(do="prolong", tag=1, **slip)
            said = talk.hear()["error"]
            assert (said["kind"], said["message"]) == (
                "InvalidRequest",
                "a live query is prolonged by ttl_s: seconds, or null. tag=1",
            )
        assert orders.stats().standing_queries == 1
        talk.say(do="prolong", tag=1, ttl_s=None)
        assert talk.hear()["prolonged"] == {"until": None}
        assert watching["until"] is not None


@pytest.mark.parametrize(
    ("slip", "meant"), [({"do": "wach"}, "'watch'"), ({"do": "watch", "lmit": 1}, "limit")]
)
def test_a_slip_is_told_what_was_meant(orders: Any, slip: dict[str, Any], meant: str) -> None:
    with Talk(orders.url) as talk:
        talk.say(tag=1, collection="orders", **slip)
        assert talk.hear()["error"]["message"].endswith(f": did you mean {meant}?")
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"{orders.url}{ORDERS}/watch?lmit=3")
    assert b": did you mean limit?" in refused.value.read()


def test_a_dropped_collection_and_a_stop_are_told(serve: Callable[..., Any]) -> None:
    database, url = serve()
    for name in ("orders", "others"):
        database.collection(name, key="id")
    with Talk(url) as talk:
        watch(talk)
        database.drop_collection("orders")
        assert talk.hear() == {"tag": 1, "ended": "dropped"}
        talk.say(do="watch", tag=1, collection="orders")
        assert talk.hear()["error"]["kind"] == "NotFound"


@pytest.mark.parametrize(
    ("request_", "kind"),
    [
        ({"where": {"a": {"$nope": 1}}}, "InvalidRequest"),
        ({"where": [1]}, "InvalidRequest"),
        ({"where": {"a": {"$delta": {"field": "a", "gt": 1}}}}, "InvalidRequest"),
        ({"sort": []}, "InvalidRequest"),
        ({"sort": "total"}, "InvalidRequest"),
        ({"offset": -1}, "InvalidRequest"),
        ({"limit": "x"}, "InvalidRequest"),
        ({"ttl_s": 0}, "InvalidRequest"),
        ({"ttl_s": -1e300}, "InvalidRequest"),
        ({"after": -1}, "InvalidRequest"),
        ({"unknown": 1}, "InvalidRequest"),
        ({"collection": "nope"}, "NotFound"),
        ({"do": "watch_groups"}, "InvalidRequest"),
        ({"do": "watch_groups", "by": []}, "InvalidRequest"),
        ({"do": "watch_groups", "by": "a", "sum": {"x": 1}}, "InvalidRequest"),
    ],
)
def test_what_cannot_be_watched_is_refused(orders: Any, request_: Any, kind: str) -> None:
    with Talk(orders.url) as talk:
        talk.say(**{"do": "watch", "tag": 1, "collection": "orders", **request_})
        error = talk.hear()
        assert (error["tag"], error["error"]["kind"]) == (1, kind)
        assert orders.hub.count == 0
        assert watch(talk)[1] == []
        talk.say(do="watch", tag=1, collection="orders")
        assert "in use" in talk.hear()["error"]["message"]
        talk.say(do="move", tag=1, place="a")
        assert talk.hear()["error"]["kind"] == "InvalidRequest"


@given(st.binary(max_size=60) | st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["do", "tag", "where", "by", "sort", "$and", "after", "limit"]), inner,
        max_size=5), max_leaves=12,
))  # fmt: skip
@settings(max_examples=many(150))
def test_hostile_requests_are_answered(said: Any) -> None:
    with hostile() as talk:
        if isinstance(said, dict):
            said = {**said, "do": "watch", "collection": "orders", "tag": 1}
        text = said if isinstance(said, bytes) else json.dumps(said).encode()
        talk.socket.send(text.decode("utf-8", "replace"))
        talk.say(do="cancel", tag=1)
        talk.say(do="sync", tag="sync")
        assert all("Bug" not in str(message) for message in talk.hear_until("synced"))


_TALKS: list[Talk] = []


@contextlib.contextmanager
def hostile() -> Iterator[Talk]:
    yield _TALKS[0]


@pytest.fixture(autouse=True, scope="module")
def hostile_talk(shared: tuple[Any, str]) -> Iterator[None]:
    database, url = shared
    database.collection("orders", key="id")
    with Talk(url) as talk:
        _TALKS.append(talk)
        yield
        _TALKS.clear()


# ---- limits and slow readers --------------------------------------------------------------------


def test_limits_of_a_connection_and_of_a_caller(serve: Callable[..., Any]) -> None:
    database, url = serve(watches_per_connection=3, watches_per_caller=4)
    database.collection("orders", key="id")
    with Talk(url) as one, Talk(url) as two:
        for tag in range(3):
            watch(one, tag)
        one.say(do="watch", tag=9, collection="orders")
        assert "on this connection" in one.hear()["error"]["message"]
        watch(two, 1)
        two.say(do="watch", tag=2, collection="orders")
        assert "of this caller" in two.hear()["error"]["message"]
        one.say(do="cancel", tag=0)
        one.hear()
        watch(two, 2)


def test_a_slow_reader_gets_the_latest_result(serve: Callable[..., Any]) -> None:
    database, url = serve(outbox_bytes=200_000)
    orders = database.collection("orders", key="id")
    count = 600
    with (
        Talk(url) as fast,
        Talk(url, sock=stuck_socket(url), max_queue=1, close_timeout=0) as slow,
    ):
        for talk in (fast, slow):
            watch(talk, 1, where={"id": {"$lt": 2}})
            watch(talk, 2, where={"id": {"$lt": 2}}, sort=[["id", 1]], limit=2)
        for n in range(count):  # more than sockets hold
            orders.put({"id": n % 2, "n": n, "text": str(n % 10) * 20_000})
            assert [len(fast.hear()["changes"]) for _ in range(2)] == [1, 1]
        heard = slow.sync()
        assert sum(len(message.get("changes", ())) for message in heard) < 2 * count
        assert metric(url, "live_resets_total") > 0
        for tag, expected in ((1, orders.find()), (2, orders.find(sort=[("id", 1)]))):
            kept = Kept(key_reader("id"), tag == 2, [], 0)
            for message in heard:
                if message["tag"] == tag and message.get("reset"):
                    kept = Kept(key_reader("id"), tag == 2, message["result"], message["version"])
                elif message["tag"] == tag:
                    for change in message["changes"]:
                        assert change[1] > kept.version
                        kept.apply(kept.told(change))
            assert kept.documents == expected
        orders.put({"id": 0, "n": -1, "text": "0" * 20_000})
        assert [slow.hear()["changes"][0][4]["n"] for _ in range(2)] == [-1, -1]


def metric(url: str, name: str) -> int:
    lines = Api(url).get("/metrics").body.decode().splitlines()
    return sum(int(line.split()[-1]) for line in lines
               if line.startswith((f"tideline_{name} ", f"tideline_{name}{{")))  # fmt: skip


def test_metrics_and_the_description_tell_of_live_queries(orders: Any) -> None:
    with Talk(orders.url) as talk:
        watch(talk, 1, where={"shop": 7})
        watch(talk, 2, where={"shop": 7})
        orders.put(order(1))
        talk.hear(), talk.hear()
        assert metric(orders.url, "live_queries") == 2
        assert metric(orders.url, "standing_queries") == 1
        assert metric(orders.url, "live_changes_total") == 2
    api = Api(orders.url)
    paths = api.get("/openapi.json").json["paths"]
    assert "/v1/collections/{collection}/watch" in paths
    plan = api.post(f"{ORDERS}/explain_watch", {"where": {"shop": 7}}).json["result"]
    assert plan["indexed"] is True


# ---- event streams ------------------------------------------------------------------------------


def test_an_event_stream_of_a_live_query(orders: Any) -> None:
    orders.put(order(1, total=5))
    where = quote(json.dumps({"shop": 7}))
    path = f"{ORDERS}/watch?where={where}&sort=total:-1&limit=2"
    stream = Stream(orders.url, path)
    events = iter(stream)
    assert next(events) == (
        "result", {"result": [order(1, total=5)], "version": 1, "more": False},
    )  # fmt: skip
    orders.put(order(2, total=7))
    assert next(events) == (
        "changes", {"changes": [["add", 2, 0, order(2, total=7)]], "version": 2},
    )  # fmt: skip
    last = stream.last_id
    assert last == f"2-{orders.identity}"
    stream.close()
    orders.put(order(3, total=6))
    stream = Stream(orders.url, path, last_event_id=last)
    kind, data = next(iter(stream))
    assert (kind, [change[:3] for change in data["changes"]]) == (
        "changes", [["remove", 3, 1], ["add", 3, 1]],
    )  # fmt: skip
    stream.close()
    # Another collection of the same name: it begins anew.
    stream = Stream(orders.url, path, last_event_id="2-another")
    assert next(iter(stream))[0] == "result"
    stream.close()
    api = Api(orders.url)
    unknown = quote(json.dumps({"a": {"$x": 1}}))
    for wrong in ("where={", "sort=total:2", "limit=-1", "after=x", f"where={unknown}"):
        assert api.get(f"{ORDERS}/watch?{wrong}").status == 400, wrong
    assert api.get("/v1/collections/nope/watch").status == 404
    eventually(lambda: metric(orders.url, "live_queries") == 0)


# ---- who may see what ---------------------------------------------------------------------------


USERS = ("ann", "bob")
ROWS = {"orders": {"owner": "$user"}}


def test_users_never_see_each_other_s_rows(tmp_path: Path) -> None:
    """Whatever is written, whatever is asked: each is told exactly what their rows are."""
    folder = tmp_path / "data"
    with contextlib.ExitStack() as stack:
        db = stack.enter_context(tideline.open(folder, memory_mb=64))
        tokens = Tokens(folder)
        texts = {user: tokens.create(["read:orders"], user=user, rows=ROWS)[0] for user in USERS}
        url = stack.enter_context(running(db))
        orders = db.collection("orders", key="id")
        remotes = {
            user: stack.enter_context(tideline.connect(url, token=text)).collection("orders")
            for user, text in texts.items()
        }
        queries = [{}, {"n": {"$gte": 2}}, {"owner": "bob"}, {"$or": [{"owner": "ann"}, {"n": 1}]}]

        @given(st.lists(st.tuples(
            st.integers(0, 4), st.sampled_from([*USERS, "eve", None]), st.integers(0, 4)
        ), max_size=12))  # fmt: skip
        @settings(max_examples=few(20))
        def check(writes: list[tuple[int, str | None, int]]) -> None:
            lives = [
                (user, where, remotes[user].watch(where, **options))
                for user in USERS
                for where in queries
                for options in ({}, {"sort": [("n", -1)], "limit": 2})
            ]
            groups = [(user, remotes[user].watch_groups(by="owner", count=True)) for user in USERS]
            for id, owner, n in writes:
                if owner is None:
                    orders.delete(id)
                else:
                    orders.put({"id": id, "owner": owner, "n": n})
            for user, where, live in lives:
                assert all(one["owner"] == user for one in live.result)
                for change in live.take():
                    assert (change.document or change.before or {})["owner"] == user
                options = {} if len(live.token) and not live.feed.asked.ordered else {
                    "sort": [("n", -1)], "limit": 2,
                }  # fmt: skip
                mine = {"$and": [{"owner": user}, where]}
                assert live.result == orders.find(mine, **options)
                live.cancel()
            for user, live in groups:
                live.take()
                count = orders.count({"owner": user})
                assert live.result == ([{"owner": user, "count": count}] if count else [])
                live.cancel()

        check()
        with pytest.raises(Unauthorized, match="all documents"):
            remotes["ann"].explain_watch({})


def test_a_revoked_token_is_shown_nothing_any_more(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with contextlib.ExitStack() as stack:
        db = stack.enter_context(tideline.open(folder, memory_mb=64))
        tokens = Tokens(folder)
        tokens.create(["admin"])
        text, token = tokens.create(["read:orders"], user="ann", rows=ROWS)
        other, _ = tokens.create(["read:other"])
        url = stack.enter_context(running(db, beat_s=0.05))
        orders = db.collection("orders", key="id")
        orders.put({"id": 1, "owner": "ann"})
        remote = stack.enter_context(tideline.connect(url, token=text))
        lives = [
            remote.collection("orders").watch(),
            remote.collection("orders").watch(sort=[("id", 1)]),
        ]
        unseen = remote.collection("orders").watch(first=False)
        with Talk(url, token=other) as stranger:
            stranger.say(do="watch", tag=1, collection="orders")
            assert stranger.hear()["error"]["kind"] == "Forbidden"
        with Talk(url, token=text) as talk:
            watch(talk)
            tokens.revoke(token.id)
            said, code = talk.hear_close()
            said = [message for message in said if "tag" in message]
            assert said == [
                {"tag": 1, "result": [], "version": 1, "more": False, "reset": True},
                {"tag": 1, "ended": "revoked"},
            ]  # fmt: skip
            assert code == 4401
        for live in lives:
            told = list(itertools.islice(live, 1))
            assert [(change.kind, change.key) for change in told] == [("remove", 1)]
            assert live.result == []
            with pytest.raises(Unauthorized):
                next(live)
        with pytest.raises(Unauthorized):
            next(unseen)


def test_one_that_ends_while_results_are_found_anew_leaves_the_others_theirs(orders: Any) -> None:
    """Another thread may let go of a query while results are found for who is behind."""
    orders.put(order(1))
    joined = orders.hub.join(orders.hub_query(), None)

    class Broken:
        def result_now(self) -> None:
            raise Unavailable("the disk is away")

    entries = [None, Broken(), joined.entry]
    gone, broken, there = results_now([SimpleNamespace(entry=each) for each in entries])
    assert gone is None
    assert isinstance(broken, Unavailable)
    assert there[0] == 1
    orders.hub.leave(joined.entry, None)
