"""`max_ahead_s` over HTTP: who may publish does not move everybody's time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from talk import Api

from tideline.server.tables import stream_of

YEAR_9000 = datetime(9000, 1, 1, tzinfo=UTC)


def operations(*times: datetime) -> Any:
    ids = [f"e{n}" for n in range(len(times))]
    columns = {"op": ["publish"] * len(ids), "id": ids, "place": ["a"] * len(ids)}
    at = pa.array(times, pa.timestamp("us", "UTC"))
    return stream_of(pa.table({**columns, "at": at, "body": ["1"] * len(ids)}))


def rejected(body: bytes) -> list[dict[str, Any]]:
    source = pa.py_buffer(body)
    with pa.BufferReader(source) as reader:
        for _ in range(2):
            with pa.ipc.open_stream(reader) as stream:
                table = stream.read_all()
    return list(table.to_pylist())


@pytest.mark.parametrize("who", ["publisher", "ann"])
@pytest.mark.parametrize("way", ["apply", "staged"])
def test_a_token_that_may_publish_cannot_end_others_data(
    guarded: dict[str, Any], who: str, way: str
) -> None:
    admin, caller = Api(guarded["url"], guarded["admin"]), Api(guarded["url"], guarded[who])
    roads = "/v1/channels/roads"
    event = {"place": "a", "body": 1, "id": "mine", "ttl_s": 3600}
    assert admin.post(f"{roads}/events", event).status == 200
    data = operations(YEAR_9000, datetime.now(UTC))
    if way == "apply":
        done = caller.post(f"{roads}/apply", data=data)
        assert [(bad["row"], bad["reason"][:31]) for bad in rejected(done.body)] == [
            (0, "at is more than 60 s ahead of t")
        ]
    else:
        token = caller.post(f"{roads}/staged?job=j", data=data).json["token"]
        assert caller.post(f"{roads}/staged/check", {"tokens": [token]}).json["rejected"] == 1
        landed = caller.post(f"{roads}/staged/commit", {"tokens": [token]}).json
        assert (landed["rows"], landed["rejected"]) == (2, 1)
    found = admin.get(f"{roads}/events?place=a").json["events"]
    assert {event["id"] for event in found} == {"mine", "e1"}


def test_only_an_admin_sets_the_limit(guarded: dict[str, Any]) -> None:
    roads = "/v1/channels/roads"
    for who in ("publisher", "ann", "service"):
        refused = Api(guarded["url"], guarded[who]).put(roads, {"max_ahead_s": 1e9})
        assert refused.error == (403, "Forbidden")
    assert Api(guarded["url"], guarded["owner"]).put(roads, {"max_ahead_s": 5}).status == 200
    assert guarded["database"].channel("roads").max_ahead_s == 5


def test_a_channel_tells_its_limit_and_its_time(api: Api, database: Any) -> None:
    made = api.put("/v1/channels/ahead", {"max_ahead_s": 2.5})
    assert (made.status, made.json["max_ahead_s"], made.json["newest"]) == (201, 2.5, None)
    assert api.put("/v1/channels/ahead").json["max_ahead_s"] == 2.5
    soon = datetime.now(UTC) + timedelta(days=1)
    assert len(rejected(api.post("/v1/channels/ahead/apply", data=operations(soon)).body)) == 1
    assert api.put("/v1/channels/ahead", {"max_ahead_s": None}).json["max_ahead_s"] is None
    assert not rejected(api.post("/v1/channels/ahead/apply", data=operations(soon)).body)
    told = api.get("/v1/channels/ahead").json["newest"]
    assert told == soon.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    database.drop_channel("ahead")


@pytest.mark.parametrize("wrong", [-1, "inf", True, []])
def test_a_wrong_limit_is_refused(api: Api, wrong: Any) -> None:
    refused = api.put("/v1/channels/wrong", {"max_ahead_s": wrong})
    assert refused.error == (400, "InvalidRequest")
    assert api.get("/v1/channels/wrong").status == 404
