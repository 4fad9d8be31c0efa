"""Rows put aside on the server: one sequence when they are committed, nothing before."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from talk import Api
from test_tables import operations, stream_of, streams_in

import tideline
from tideline.server import running
from tideline.server.tokens import Tokens

START = datetime(2020, 1, 1, tzinfo=UTC)


def part(first: int, count: int, **columns: Any) -> bytes:
    """Events, newest first: order is made by the commit."""
    numbers = range(first + count - 1, first - 1, -1)
    rows = {
        "op": ["publish"] * count,
        "id": [f"e{n}" for n in numbers],
        "place": ["a"] * count,
        "at": [START + timedelta(seconds=n) for n in numbers],
        "body": [f'{{"n":{n}}}' for n in numbers],
    }
    return stream_of(pa.table({**rows, **columns}))


def stage(api: Api, path: str, data: bytes, job: str = "j") -> str:
    answer = api.post(f"{path}/staged?job={job}", data=data)
    assert answer.status == 200, answer
    return str(answer.json["token"])


def test_rows_of_many_are_committed_as_one_sequence_once(api: Api, path: str, channel: Any) -> None:
    tokens = [stage(api, path, part(first, 10)) for first in (10, 0, 20)]
    assert channel.find("a") == []
    asked = {"tokens": tokens, "once": ["spark", 3]}
    assert api.post(f"{path}/staged/check", {"tokens": tokens}).json["rejected"] == 0
    landed = api.post(f"{path}/staged/commit", asked)
    assert landed.json == {
        "rows": 30, "answers": 0, "rejected": 0, "reasons": [], "repeated": 0, "token": None,
        "late": 0,
    }  # fmt: skip
    ids = channel.scan("events")["id"].to_pylist()
    assert ids == [f"e{n}" for n in range(30)]
    assert api.post(f"{path}/staged/commit", asked).json["repeated"] == 30
    assert api.get(f"{path}/landed?once=spark:{3 << 20}").json == {"rows": None}
    assert api.get(f"{path}/landed?once=spark:{4 << 20}").json == {"rows": 0}
    assert api.delete(f"{path}/staged?job=j").status == 200
    assert api.post(f"{path}/staged/commit", {"tokens": tokens}).error == (503, "Unavailable")
    assert len(channel.scan("events")) == 30


def test_bad_rows_are_told_and_kept(api: Api, path: str, channel: Any) -> None:
    token = stage(api, path, part(0, 3, body=["{}", "nonsense", "{}"]))
    checked = api.post(f"{path}/staged/check", {"tokens": [token], "keep": "j"}).json
    assert (checked["rows"], checked["rejected"]) == (3, 1)
    assert checked["reasons"] == ["body is not JSON"]
    [kept] = streams_in(api.get(f"{path}/staged/{checked['token']}").body)
    assert kept.select(["id", "reason"]).to_pylist() == [{"id": "e1", "reason": "body is not JSON"}]
    assert channel.find("a") == []
    landed = api.post(f"{path}/staged/commit", {"tokens": [token]}).json
    assert (landed["rows"], landed["rejected"], len(channel.find("a"))) == (3, 1, 2)


@pytest.mark.parametrize(
    ("query", "data", "status"),
    [
        ("", part(0, 1), 400), ("?job=", part(0, 1), 400), ("?job=../x", part(0, 1), 400),
        ("?job=j&order=random", part(0, 1), 400), ("?job=j", b"nonsense", 400),
        ("?job=j", stream_of(operations().drop_columns("at")), 400),
        ("?job=j", stream_of(pa.table({"op": ["publish"], "at": ["noon"]})), 400),
    ],
)  # fmt: skip
def test_what_cannot_be_staged_is_refused(
    api: Api, path: str, query: str, data: bytes, status: int
) -> None:
    assert api.post(f"{path}/staged{query}", data=data).status == status


def test_nonsense_is_refused(api: Api, path: str) -> None:
    for token in ("x", "../../MANIFEST", "j.0123456789abcdef"):
        answer = api.post(f"{path}/staged/commit", {"tokens": [token]})
        assert answer.status in (400, 503)
        assert b"/" not in answer.body.replace(b"../../MANIFEST", b"")
    assert api.post(f"{path}/staged/commit", {"tokens": [], "once": ["w", -1]}).status == 400
    assert api.post(f"{path}/staged/commit", {"tokens": [], "order": "x"}).status == 400
    assert api.get(f"{path}/staged/j.0123456789abcdef").status == 503


def test_nobody_else_gets_at_staged_rows(serve: Any, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    tokens = Tokens(tmp_path / "data")
    one, other, reader = (tokens.create([scope])[0] for scope in ("publish", "publish", "read"))
    bound, _ = tokens.create(["publish", "subscribe"], user="ann")
    database, url = serve(staged_bytes=100_000)
    database.channel("c")
    path = "/v1/channels/c"
    token = stage(Api(url, one), path, part(0, 3))
    for stranger in (other, bound):
        answer = Api(url, stranger).post(f"{path}/staged/commit", {"tokens": [token]})
        assert answer.error == (503, "Unavailable")
        assert Api(url, stranger).get(f"{path}/staged/{token}").status == 503
        assert Api(url, stranger).delete(f"{path}/staged?job=j").status == 200
    assert Api(url, reader).post(f"{path}/staged?job=j", data=part(0, 3)).status == 403
    assert Api(url).post(f"{path}/staged?job=j", data=part(0, 3)).status == 401
    cancel = part(0, 1, op=["cancel"])
    assert Api(url, bound).post(f"{path}/staged?job=j", data=cancel).error == (403, "Forbidden")
    large = part(0, 1000, body=['"' + "x" * 200 + '"'] * 1000)
    assert Api(url, one).post(f"{path}/staged?job=j", data=large).error == (429, "TooMany")
    landed = Api(url, one).post(f"{path}/staged/commit", {"tokens": [token]})
    assert landed.json["rows"] == 3


def test_what_was_staged_is_gone_with_the_server(serve: Any, tmp_path: Path) -> None:
    from tideline.server import running

    database, url = serve()
    database.channel("c")
    stage(Api(url), "/v1/channels/c", part(0, 3))
    assert list((tmp_path / "data" / "staged").glob("*/*"))
    with running(database):  # a start removes what a killed one left
        assert not (tmp_path / "data" / "staged").exists()


def test_staged_rows_count_against_the_rate(serve: Any) -> None:
    database, url = serve(rate_per_s=100)
    channel = database.channel("c")
    api, path = Api(url), "/v1/channels/c"
    large = part(0, 15_000)  # 150 operations: a second and a half's worth

    def until_taken(call: Any) -> tuple[Any, int]:
        """The first answer that is no refusal, and how often it was refused before."""
        for tries in range(1_000):
            answer = call()
            if answer.status != 429:
                return answer, tries
            assert answer.error == (429, "TooMany")
            assert int(answer.headers["retry-after"]) >= 1
            time.sleep(0.02)
        raise AssertionError("it was never taken")

    token = stage(api, path, large)
    refused = api.post(f"{path}/staged?job=j", data=part(0, 1))
    assert refused.error == (429, "TooMany")
    for call in ("check", "commit"):  # each goes through all rows again
        where = f"{path}/staged/{call}"
        answer, tries = until_taken(lambda where=where: api.post(where, {"tokens": [token]}))
        assert (answer.json["rows"], tries > 0) == (15_000, True)
    assert api.get(path).error == (429, "TooMany")
    assert len(channel.scan("events")) == 15_000


def test_rows_of_a_window_are_appended_by_their_time_once(tmp_path: Path) -> None:
    with tideline.open(tmp_path / "data") as db, running(db) as url:
        tokens = Tokens(db.path)
        made = {name: tokens.create([f"{name}:cars"])[0] for name in ("write", "read")}
        cars = db.window("cars", span_s=300, slide_s=60, key="vid", values={"vel": "int32"},
                         time="ts")  # fmt: skip
        api, path = Api(url, made["write"]), "/v1/windows/cars"

        def rows(*given: tuple[int, int | None, int]) -> bytes:
            at = [START + timedelta(seconds=second) for _, _, second in given]
            return stream_of(
                pa.table(
                    {
                        "vid": [one[0] for one in given],
                        "at": at,
                        "vel": pa.array([one[1] for one in given], pa.int32()),
                    }
                )
            )

        first, second = (rows((1, 10, 500)), rows((1, 20, 400), (2, None, 0), (3, 30, 0)))
        staged = [stage(api, path, data) for data in (first, second)]
        assert cars.range(map="count()") == 0
        checked = api.post(f"{path}/staged/check", {"tokens": staged, "keep": "j"}).json
        assert (checked["rejected"], checked["reasons"]) == (1, ["vel is missing"])
        [kept] = streams_in(api.get(f"{path}/staged/{checked['token']}").body)
        assert kept.to_pylist() == [
            {"vid": 2, "ts": START, "vel": None, "reason": "vel is missing"}
        ]
        asked = {"tokens": staged, "once": ["spark", 1]}
        assert api.post(f"{path}/staged/commit", asked).json == {
            "rows": 4, "answers": 0, "rejected": 1, "reasons": ["vel is missing"], "repeated": 0,
            "token": None, "late": 0,
        }  # fmt: skip
        assert api.post(f"{path}/staged/commit", asked).json["repeated"] == 4
        assert (cars.get(1), cars.stats().appended) == ({"vel": 10}, 3)
        late = stage(api, path, rows((4, 1, 0)))
        assert api.post(f"{path}/staged/commit", {"tokens": [late]}).json["late"] == 1
        assert api.delete(f"{path}/staged?job=j").status == 200
        assert api.post(f"{path}/staged/commit", asked).error == (503, "Unavailable")
        bad = api.post(f"{path}/staged?job=j", data=stream_of(pa.table({"vid": [1], "vel": [1]})))
        assert bad.status == 400
        assert "the column at must be timestamps" in bad.json["error"]["message"]
        assert api.post(f"{path}/staged?job=j&order=arrival", data=first).status == 400
        assert Api(url, made["read"]).post(f"{path}/staged?job=j", data=first).status == 403
