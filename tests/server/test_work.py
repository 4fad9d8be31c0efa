"""Matching has a budget: nobody makes the server stand still, by conditions or by bodies."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from talk import ROADS, Api, Talk, eventually

import tideline
from tideline.errors import InvalidRequest
from tideline.server import running
from tideline.where import parse

Serve = Callable[..., Any]
COSTLY = {"t": {"$regex": "[^y]{300}y"}}
LARGE = {"t": "x" * 131_000}


def subscribe(api: Api, n: int, where: Any, **others: Any) -> Any:
    wanted = {"id": f"s{n}", "place": "a", "user": "eve", "until_s": 600, "where": where}
    return api.post(f"{ROADS}/subscriptions", {**wanted, **others})


def test_many_costly_conditions_of_one_user_are_refused(serve: Serve) -> None:
    database, url = serve()
    roads, api = database.channel("roads"), Api(url)
    statuses = [subscribe(api, n, COSTLY).status for n in range(40)]
    assert set(statuses) == {201, 429}
    weight = parse(COSTLY).cost.weight
    assert statuses.count(201) * weight <= 30_000
    assert "would weigh" in subscribe(api, 50, COSTLY).json["error"]["message"]
    assert subscribe(api, 51, COSTLY, user="ann").status == 201  # others have their own
    assert subscribe(api, 52, {"n": 1}).status == 201  # and plain ones find room
    assert subscribe(api, 0, COSTLY).status == 200  # a retry takes no more room
    assert len(roads.subscriptions()) == statuses.count(201) + 2
    published = api.post(f"{ROADS}/events", {"place": "a", "body": LARGE, "ttl_s": 60})
    assert published.status == 200
    assert published.json["subscriptions"] == []


def test_a_condition_that_is_too_heavy_is_refused(serve: Serve) -> None:
    database, url = serve(conditions_per_user=100)
    database.channel("roads")
    refused = subscribe(Api(url), 1, COSTLY)
    assert refused.error == (413, "TooLarge")
    assert "weighs" in refused.json["error"]["message"]
    assert database.channel("roads").subscriptions() == []
    with Talk(url) as talk:
        talk.say(do="subscribe", tag=1, channel="roads", place="a", user="u", where=COSTLY)
        assert talk.hear()["error"]["kind"] == "TooLarge"


def test_what_has_ended_weighs_nothing_and_a_restart_counts_again(tmp_path: Any) -> None:
    where = {"$or": [{"n": n} for n in range(40)]}
    with tideline.open(tmp_path / "data", memory_mb=64) as database:
        database.channel("roads")
        with running(database, conditions_per_user=100) as url:
            api = Api(url)
            assert subscribe(api, 1, where).status == subscribe(api, 2, where).status == 201
            assert subscribe(api, 3, where).status == 429
            assert api.patch(f"{ROADS}/subscriptions/s2", {"until_s": 900}).status == 200
            assert subscribe(api, 3, where).status == 429
        with running(database, conditions_per_user=100) as url:
            api = Api(url)
            assert subscribe(api, 3, where).status == 429
            assert api.delete(f"{ROADS}/subscriptions/s1").status == 200
            assert subscribe(api, 3, where).status == 201
            assert subscribe(api, 4, where).status == 429


def operations(*rows: dict[str, Any]) -> pa.Table:
    now = datetime.now(UTC)
    plain = {"op": "subscribe", "place": "a", "user": "eve", "at": now,
             "until": now + timedelta(seconds=600), "where": WEIGHS_50, "body": None}  # fmt: skip
    return pa.Table.from_pylist([{**plain, **row} for row in rows])


WEIGHS_50 = json.dumps({"$or": [{"n": n} for n in range(40)]})


def test_conditions_in_a_batch_weigh_as_much_as_single_ones(tmp_path: Any) -> None:
    where = json.loads(WEIGHS_50)
    with (
        tideline.open(tmp_path / "data", memory_mb=64) as database,
        running(database, conditions_per_user=100) as url,
        tideline.connect(url) as remote,
    ):
        api, roads = Api(url), remote.channel("roads")
        applied = roads.apply(operations(
            {"id": "s1"}, {"id": "s2"}, {"id": "s3"}, {"id": "s4", "where": None},
            {"id": "s5", "user": "ann"},
        ))  # fmt: skip
        [rejected] = applied.rejected.to_pylist()
        assert rejected["row"] == 2
        assert "would weigh 150" in rejected["reason"]
        stored = database.channel("roads").subscriptions()
        assert [found.id for found in stored] == ["s1", "s2", "s4", "s5"]
        assert subscribe(api, 6, where).status == 429  # they count for single ones, too
        assert roads.apply(operations({"id": "s1"})).rejected.num_rows == 1  # another window
        assert subscribe(api, 6, where).status == 429
        # One that ends, in the same batch or before, gives its room back.
        gone = {"op": "cancel", "where": None}
        again = operations({"id": "s1", **gone}, {"id": "s7"}, {"id": "s7", **gone}, {"id": "s8"})
        assert roads.apply(again).rejected.num_rows == 0
        assert subscribe(api, 6, where).status == 429
        assert api.delete(f"{ROADS}/subscriptions/s8").status == 200
        assert subscribe(api, 6, where).status == 201
        assert roads.apply(operations({"id": "s9"})).rejected.num_rows == 1
        assert roads.apply(operations({"id": "s6", **gone}, {"id": "s9"})).rejected.num_rows == 0
        # The database's own process is not a caller of the server.
        assert database.channel("roads").apply(operations({"id": "s10"})).rejected.num_rows == 0


def test_a_batch_that_fails_takes_no_room_and_gives_none(tmp_path: Any) -> None:
    where = json.loads(WEIGHS_50)
    with (
        tideline.open(tmp_path / "data", memory_mb=64) as database,
        running(database, conditions_per_user=100, match_steps=10_000) as url,
        tideline.connect(url) as remote,
    ):
        api, roads = Api(url), remote.channel("roads")
        assert subscribe(api, 1, where).status == 201
        too_much = {"op": "publish", "id": "e", "where": None, "body": json.dumps([1] * 1000)}
        ends = {"op": "cancel", "id": "s1", "where": None}
        with pytest.raises(InvalidRequest, match="matching conditions would take"):
            roads.apply(operations(ends, {"id": "s2"}, too_much))
        assert [found.id for found in database.channel("roads").subscriptions()] == ["s1"]
        assert subscribe(api, 3, where).status == 201
        assert subscribe(api, 4, where).status == 429


def test_conditions_of_staged_rows_weigh_too(serve: Serve) -> None:
    database, url = serve(conditions_per_user=100)
    database.channel("roads")
    api = Api(url)
    table = operations({"id": "s1"}, {"id": "s2"}, {"id": "s3"})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    staged = api.post(f"{ROADS}/staged?job=j", data=sink.getvalue().to_pybytes())
    assert staged.status == 200, staged.json
    landed = api.post(f"{ROADS}/staged/commit", {"tokens": [staged.json["token"]]}).json
    assert (landed["rows"], landed["rejected"]) == (3, 1)
    assert subscribe(api, 6, json.loads(WEIGHS_50)).status == 429


def test_matching_over_the_budget_is_refused_and_changes_nothing(serve: Serve) -> None:
    database, url = serve(match_steps=100_000_000)
    roads, api = database.channel("roads"), Api(url)
    roads.publish("a", LARGE, id="past", ttl_s=600)
    roads.subscribe("a", user="ann", id="s", until_s=600, where=COSTLY)
    event = {"place": "a", "body": LARGE, "ttl_s": 60}
    for refused in [
        api.post(f"{ROADS}/events", event),
        subscribe(api, 1, COSTLY, since_s=-60),
        api.call("GET", f"{ROADS}/events?place=a&where=%7B%22t%22:%7B%22$regex%22:%22%5B%5Ey%5D"
                 "%7B300%7Dy%22%7D%7D"),
        api.call("GET", f"{ROADS}/scan?kind=events&where=%7B%22t%22:%7B%22$regex%22:%22%5B%5Ey%5D"
                 "%7B300%7Dy%22%7D%7D"),
        api.post(f"{ROADS}/apply", data=_operations([LARGE])),
    ]:  # fmt: skip
        assert refused.error == (413, "TooLarge"), refused
        assert "steps" in refused.json["error"]["message"]
    many = api.post(f"{ROADS}/events", {"events": [event, {**event, "body": {"t": "short"}}]})
    assert [("error" in result) for result in many.json["results"]] == [True, False]
    with Talk(url) as talk:
        talk.say(do="publish", tag=1, channel="roads", **event)
        talk.say(do="publish", tag=2, channel="roads", place="a", body=2, ttl_s=60)
        assert talk.hear()["error"]["kind"] == "TooLarge"
        assert talk.hear()["tag"] == 2
    assert len(roads.find("a")) == 3
    assert [info.id for info in roads.subscriptions()] == ["s"]
    assert api.post(f"{ROADS}/events", {**event, "place": "b"}).status == 200


def _operations(bodies: list[Any]) -> bytes:
    import json

    count = len(bodies)
    table = pa.table({"op": ["publish"] * count, "place": ["a"] * count,
                      "at": [datetime.now(UTC)] * count,
                      "body": [json.dumps(body) for body in bodies]})  # fmt: skip
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as out:
        out.write_table(table)
    return sink.getvalue().to_pybytes()


def test_a_hostile_body_is_refused_where_plain_conditions_stand(serve: Serve) -> None:
    """An array of many values makes every plain condition at its place look at each of them."""
    database, url = serve()
    roads, api = database.channel("roads"), Api(url)
    for n in range(200):
        roads.subscribe("a", user="ann", id=f"s{n}", until_s=600, where={"t": {"$gt": n}})
    body = {"t": [0] * 60_000}
    assert api.post(f"{ROADS}/events", {"place": "a", "body": body}).error == (413, "TooLarge")
    assert roads.find("a") == []
    usual = {"place": "a", "body": {"t": [500, 7]}}
    assert len(api.post(f"{ROADS}/events", usual).json["subscriptions"]) == 200


def test_long_matching_leaves_the_loop(serve: Serve) -> None:
    database, url = serve()
    roads, api = database.channel("roads"), Api(url)
    threads: list[str] = []
    where = {"t": {"$regex": "[^y]{100}$"}}
    handle = roads.subscribe("a", user="ann", id="s", until_s=600, where=where)
    handle.follow(lambda events, kind: threads.append(threading.current_thread().name))
    threads.clear()
    for n, body in enumerate([{"t": "x" * 200}, LARGE]):
        assert api.post(f"{ROADS}/events", {"place": "a", "body": body}).status == 200
        with Talk(url) as talk:
            talk.say(do="publish", tag=n, channel="roads", place="a", body=body)
            assert "told" in talk.hear()
    short, long = threads[:2], threads[2:]
    assert short == ["tideline-serve"] * 2
    assert len(long) == 2
    assert all(name.startswith("tideline-server") for name in long)


def test_what_matching_cost_counts_against_the_rate(serve: Serve) -> None:
    database, url = serve(rate_per_s=500)
    roads, api = database.channel("roads"), Api(url)
    roads.subscribe("a", user="ann", id="s", until_s=600, where={"t": {"$regex": "[^y]{100}y"}})
    assert api.post(f"{ROADS}/events", {"place": "a", "body": LARGE}).status == 200
    refused = api.post(f"{ROADS}/events", {"place": "a", "body": LARGE})
    assert refused.error == (429, "TooMany")
    assert "retry-after" in refused.headers


def test_the_loop_waits_for_no_channel(serve: Serve) -> None:
    """While a call holds a channel, everything else is answered; what needs it is, afterwards."""
    database, url = serve()
    roads, api = database.channel("roads"), Api(url)
    database.channel("news")
    news = "/v1/channels/news"
    roads.subscribe("a", user="ann", id="s", until_s=600)
    answers: list[Any] = []

    def ask(method: str, path: str, body: Any = None) -> threading.Thread:
        thread = threading.Thread(target=lambda: answers.append(api.call(method, path, body)))
        thread.start()
        return thread

    with Talk(url) as talk, Talk(url) as other:
        assert talk.sync() == other.sync() == []
        with roads.core.engine.lock:
            threads = [
                ask("POST", f"{ROADS}/events", {"place": "a", "body": 1, "id": "e1"}),
                ask("POST", f"{ROADS}/subscriptions", {"place": "a", "user": "u", "until_s": 60}),
                ask("PATCH", f"{ROADS}/subscriptions/s", {"until_s": 900}),
                ask("GET", f"{ROADS}/subscriptions/s"),
            ]
            talk.say(do="publish", tag=1, channel="roads", place="a", body=1, id="e2")
            talk.say(do="subscribe", tag=2, channel="roads", place="b", user="u", until_s=60)
            talk.say(do="resume", tag=3, channel="roads", id="s")
            for n in range(20):
                assert api.get("/healthz").status == 200
                assert api.post(f"{news}/events", {"place": "a", "body": n}).status == 200
                other.say(do="publish", tag=n, channel="news", place="a", body=n)
                assert other.hear()["tag"] == n
            assert answers == []
        for thread in threads:
            thread.join(30)
        assert sorted(answer.status for answer in answers) == [200, 200, 200, 201]
        assert "told" in talk.hear()
        assert [m["tag"] for m in talk.hear_until("past_done")] == [2, 2]
        assert talk.hear_until("past_done")[0]["tag"] == 3
    assert {event.id for event in eventually(lambda: roads.find("a"))} == {"e1", "e2"}


def test_the_budgets_are_settings() -> None:
    from tideline.errors import InvalidRequest
    from tideline.server import Settings

    for name in ("conditions_per_user", "match_steps"):
        with pytest.raises(InvalidRequest):
            Settings(**{name: 0})
