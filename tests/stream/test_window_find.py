"""Rows of a window by places and words: what a look at every row gives, wherever the rows are."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from window_model import Model

import tideline
from tideline.errors import Conflict, Corruption, InvalidRequest
from tideline.server import running
from tideline.testing import ManualClock
from tideline.where import parse

sys.path.append(str(Path(__file__).resolve().parents[1]))

from test_cli import Run, run

__all__ = ["run"]  # a fixture

SLIDE_S, PANES = 10, 3
REPORTS: dict[str, Any] = {
    "span_s": SLIDE_S * PANES, "slide_s": SLIDE_S, "key": ("seg", "vid"), "time": "t",
    "values": {"vel": "int32", "at": "point", "text": "text"},
    "indexes": {"at": "spatial", "text": "words"}, "max_ahead_s": float("inf"),
}  # fmt: skip
TEXTS = ["flat tire", "Tire, flat!", "jam", "", "Straße gesperrt", "fire ahead of the jam", "雪"]
Row = dict[str, Any]


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Any]:
    with tideline.open(tmp_path / "db", clock=ManualClock(0)) as opened:
        yield opened


def row_of(rng: random.Random, time_s: float) -> Row:
    # Few places: many rows lie on one, some on edges and at the ends of the world.
    lon = rng.choice([-180.0, 180.0, 0.0, -0.0, 1 / 3, rng.uniform(-1, 1)])
    lat = rng.choice([-90.0, 90.0, 0.0, rng.uniform(47, 49)])
    return {
        "seg": rng.randrange(3), "vid": rng.randrange(9), "vel": rng.randrange(-5, 100),
        "at": [lon, lat], "text": rng.choice(TEXTS), "t": time_s,
    }  # fmt: skip


def condition(rng: random.Random) -> dict[str, Any]:
    lon, lat = rng.uniform(-1, 1), rng.uniform(47, 49)
    parts: list[dict[str, Any]] = [
        {"at": {"$geoWithin": {"$box": [[-1, 47], [lon, lat]]}}},
        {"at": {"$geoWithin": {"$centerSphere": [[lon, lat], 0.01]}}},
        {"at": {"$geoIntersects": {"$geometry": {
            "type": "Polygon", "coordinates": [[[-1, 47], [1, 47], [lon, 49], [-1, 47]]]}}}},
        {"at": {"$near": [lon, lat], "$maxDistance": rng.choice([1e4, 1e5, 3e7])}},
        {"text": {"$words": rng.choice(["tire", "flat tire", '"flat tire"', "strasse", "雪"])}},
        {"vel": {"$gte": rng.randrange(60)}}, {"vel": {"$in": [1, 2.0, 3, "x"]}},
        {"seg": rng.randrange(4)}, {"seg": 1, "vid": {"$lt": 4}}, {"text": "jam"},
        {"text": {"$not": {"$words": "jam"}}}, {"vel": None}, {"at": {"$exists": True}}, {},
    ]  # fmt: skip
    first, second = rng.choice(parts), rng.choice(parts)
    if set(first) & set(second):
        return first
    both = str(first) + str(second)
    if rng.random() < 0.3 and "$near" not in both:
        return {"$or": [first, second]}
    return {**first, **second}


def wanted(
    model: Model, where: Any, panes: int, newest: bool, prefix: Any, of: Any = None,
    upto: int | None = None,
) -> list[Row]:  # fmt: skip
    """By looking at every row; `newest`: those that nothing with their key came after."""
    matches = parse(where).matches
    rows = model.found(lambda key: key[: len(prefix)] == prefix, panes, of, upto)
    # The newest row of a key: of all that is asked, the last that came in the last sub-window.
    last: dict[Any, int] = {key: place for place, (_, key, _) in enumerate(rows)}
    found = []
    for place, (pane, key, values) in enumerate(rows):
        row = {"seg": key[0], "vid": key[1], **values}
        if matches(row) and (not newest or last[key] == place):
            found.append({**row, "since": pane})
    return sorted(found, key=lambda row: (row["seg"], row["vid"]))


def plain(table: pa.Table) -> list[Row]:
    rows = table.to_pylist()
    return [{**row, "since": int(row["since"].timestamp()) // SLIDE_S} for row in rows]


def compare(window: Any, model: Model, rng: random.Random) -> int:
    where, newest = condition(rng), rng.random() < 0.3
    panes = rng.randint(1, PANES)
    prefix = rng.choice([(), (), (1,), (2, 3)])
    options: dict[str, Any] = {"last_s": panes * SLIDE_S, "newest": newest}
    if prefix:
        options["keys"] = prefix
    right = wanted(model, where, panes, newest, prefix)
    found = plain(window.find(where, **options))
    near = parse(where).near
    if near is None:
        assert found == right, where
        limit = rng.randint(1, 5)
        assert plain(window.find(where, limit=limit, **options)) == right[:limit]
    else:
        metres = [row["metres"] for row in found]
        assert metres == sorted(metres)
        assert metres == [near.metres(row) for row in found]
        for row in found:
            del row["metres"]
        order = lambda row: sorted(row.items(), key=str)  # noqa: E731
        assert sorted(found, key=order) == sorted(right, key=order), where
        few = window.find(where, limit=3, **options)["metres"].to_pylist()
        assert few == metres[:3]
    count, total = window.find(where, map=["count()", "sum(vel)"], **options).values()
    assert (count, total) == (len(right), sum(row["vel"] for row in right))
    return len(right)


@pytest.mark.parametrize("keep", ["last", "all"])
@pytest.mark.parametrize("few", [1, 20, 10_000], ids=["indexes", "both", "rows one by one"])
def test_what_is_found_is_what_a_look_at_every_row_gives(
    tmp_path: Path, keep: str, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tideline.stream.finding._FEW", few)
    monkeypatch.setattr("tideline.stream.memory.TAIL_ROWS", 64)
    rng = random.Random(f"{keep} {few}")
    model, hits = Model(keep, PANES, SLIDE_S), 0
    clock = ManualClock(0)
    db = tideline.open(tmp_path / "db", clock=clock)
    try:
        window = db.window("reports", keep=keep, **REPORTS)
        now = 0.0
        for _ in range(40):
            does = rng.random()
            if does < 0.55:  # some rows are late, some too late
                now += rng.choice([0, 1, 1, 4, 12])
                rows = [row_of(rng, max(0.0, now - rng.choice([0, 0, 0, 9, 21, 40])))
                        for _ in range(rng.choice([1, 3, 30, 90]))]  # fmt: skip
                done = window.append(rows if rng.random() < 0.5 else pa.Table.from_pylist(rows))
                stored, late = model.append([
                    (row["t"], (row["seg"], row["vid"]),
                     {name: row[name] for name in ("vel", "at", "text")})
                    for row in rows
                ])  # fmt: skip
                assert (done.stored, done.late, done.rejected.num_rows) == (stored, late, 0)
            elif does < 0.62:
                window.seal()
                assert window._engine.memory_bytes == 0
            elif does < 0.68:
                window.maintain()
            elif does < 0.74:
                window._engine._disk_bytes = rng.choice([1, 1 << 20])
            elif does < 0.80:
                window._engine._memory_bytes = rng.choice([5_000, None])
            elif does < 0.86:
                db.check()
                db.close()
                db = tideline.open(tmp_path / "db", clock=clock)
                window = db.window("reports")
            if model.pane is not None:
                hits += compare(window, model, rng) + compare(window, model, rng)
        assert hits > 200
        db.check()
    finally:
        db.close()


def test_a_slide_drops_rows_with_their_indexes_and_reads_none(db: Any) -> None:
    window = db.window("reports", **REPORTS)
    window._engine._disk_bytes = 1
    rng = random.Random(3)
    for n in range(8):
        window.append([{**row_of(rng, 10 * n), "vid": v} for v in range(500)])
        window.maintain()
        assert window.find({"at": {"$geoWithin": {"$box": [[-1, 47], [1, 49]]}}}).num_rows
    assert window.stats().sub_windows == PANES
    assert window._engine.dropped == 8 - PANES
    assert window.stats().components <= PANES
    # Those of closed sub-windows came with their files: none was built for the questions.
    components = [run for sub in window._engine.state.subs.values() for run in sub.runs
                  if run.owner is not None]  # fmt: skip
    assert components
    for each in components:
        assert {field: index.size_bytes for field, index in each.indexes.items()} == {
            "at": 0, "text": 0
        }  # fmt: skip


def test_an_index_in_a_file_is_checked(tmp_path: Path) -> None:
    with tideline.open(tmp_path / "db", clock=ManualClock(0)) as db:
        window = db.window("reports", **REPORTS)
        rng = random.Random(3)
        window.append([row_of(rng, 5) for _ in range(300)])
        window.seal()
        [reader] = window._engine.tree.readers
        view = reader.run.indexes["at"]
        reader.run.indexes["at"] = reader.run.indexes["text"]
        reader.check()
        reader.run.indexes["at"] = view
        facts = dict(reader.component.info.extra["indexes"])
        for wrong in ({"at": [{}]}, {"at": [{"filters": {}, "extra": {}}]}, {"text": [{}, {}]}):
            with pytest.raises(Corruption, match=r"an index of rows is not readable|other columns"):
                window._engine.indexes.read(reader.component.table, facts | wrong, "c-1.arrow")
        del facts["at"]
        assert set(window._engine.indexes.read(reader.component.table, facts, "c")) == {"text"}


def test_all_kinds_of_texts_are_served(db: Any) -> None:
    kinds = {"a": "words", "b": "ngrams", "c": {"kind": "ngrams", "n": 2}, "d": "fuzzy"}
    window = db.window("w", span_s=10, key="k", values=dict.fromkeys(kinds, "text"), indexes=kinds)
    assert window.settings["indexes"] == kinds
    rng = random.Random(1)
    rows = [{"k": n, **{name: rng.choice(TEXTS) for name in kinds}} for n in range(600)]
    window.append(rows)
    asked: list[Any] = [
        {"a": {"$words": "jam"}}, {"b": {"$contains": "tire"}}, {"c": {"$contains": "ra"}},
        {"c": {"$regex": "gesp"}}, {"d": {"$fuzzy": {"word": "fir", "distance": 1}}},
    ]  # fmt: skip
    for _ in range(2):
        for where in asked:
            matches = parse(where).matches
            right = [row["k"] for row in rows if matches(row)]
            assert right
            assert window.find(where)["k"].to_pylist() == right
        window.seal()


def test_a_limit_may_be_greater_than_any_number_of_rows(db: Any) -> None:
    cars = db.window("cars", span_s=60, key="vid", values={"at": "point"})
    cars.append([{"vid": 1, "at": [0, 1]}, {"vid": 2, "at": [0, 0]}])
    for where in ({}, {"at": {"$near": [0, 2]}}):
        assert cars.find(where, limit=10**40)["vid"].to_pylist() == [1, 2]


def test_points_and_texts_come_back_as_they_went_in(db: Any) -> None:
    options = {**REPORTS, "keep": "all"}
    window = db.window("w", **options)
    at = np.array([[2.5, 48.25], [-180.0, 90.0]])
    same = {"seg": [1, 1], "vid": [1, 2], "vel": [5, 6], "text": ["é", "b"], "t": [1, 2]}
    for points in (at, at.tolist(), pa.array(at.tolist()),
                   pa.FixedSizeListArray.from_arrays(pa.array(at.ravel()), 2)):  # fmt: skip
        assert window.append({**same, "at": points}).stored == 2
    row = {name: column[0] for name, column in same.items()}
    for point in ([2.5, 48.25], (2.5, 48.25), at[0],
                  {"type": "Point", "coordinates": [2.5, 48.25]}):  # fmt: skip
        assert window.append({**row, "at": point}).stored == 1
    assert window.get((1, 1)) == 8 * [{"vel": 5, "at": [2.5, 48.25], "text": "é"}]
    found = window.get_many([(1, 2), (7, 7)])
    assert found["at"].to_pylist() == [[-180.0, 90.0], None]
    assert found["text"].to_pylist() == ["b", None]
    assert window.range((1,), map=["count()", "mean(vel)"])["count()"] == 12
    assert window.range((1,), map=lambda state, seg, vid, vel: state + vel, initial=0) == 64
    assert window.find({"vid": 9}).schema == window.range().schema


@pytest.mark.parametrize("how", ["rows", "columns"])
def test_rows_with_a_bad_point_or_text_are_rejected(db: Any, how: str) -> None:
    window = db.window("w", **REPORTS)
    good = {"seg": 1, "vid": 1, "vel": 5, "at": [2.0, 48.0], "text": "a", "t": 1}
    rows = [good, {**good, "at": [200.0, 48.0]}, {**good, "at": [1.0]}, {**good, "at": None},
            {**good, "text": "é" * 2049}, {**good, "text": None}]  # fmt: skip
    given: Any = rows
    if how == "columns":
        given = {name: [row[name] for row in rows] for name in good}
    done = window.append(given)
    assert done.stored == 1
    assert done.rejected["row"].to_pylist() == [1, 2, 3, 4, 5]
    reasons = done.rejected["reason"].to_pylist()
    assert ["at must be a point" in reason for reason in reasons[:2]] == [True, True]
    assert "at most 4096 bytes" in reasons[3]
    assert reasons[4] == "text is missing"


@pytest.mark.parametrize(
    ("where", "options", "said"),
    [
        ({"ta": 1}, {}, "no such field. field='ta'"),
        ({"spede": 1}, {}, "field='spede'"),
        ({"text": {"words": "jam"}}, {}, "begins with $"),
        ({"$or": [{"vel": 1}, {"text.x": 2}, {"vell": 2}]}, {}, "did you mean 'vel'"),
        ({"at": {"$near": [2000, 48]}}, {}, "2000"),
        ({}, {"limit": 0}, "limit=0"), ({}, {"newest": 1}, "newest=1"),
        ({}, {"limit": 1, "map": "count()"}, "limit=1"), ({}, {"last_s": 7}, "last_s=7"),
        ({}, {"map": "sum(at)"}, "a number. value='at'"), ({}, {"initial": 1}, "initial=1"),
        ({}, {"keys": ("x",)}, "seg must be a whole number"), (7, {}, "given"),
    ],
)  # fmt: skip
def test_wrong_questions_are_told(db: Any, where: Any, options: Any, said: str) -> None:
    window = db.window("w", **REPORTS)
    window.append(row_of(random.Random(1), 5))
    with pytest.raises(InvalidRequest) as error:
        window.find(where, **options)
    assert said in str(error.value) or said == "given"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"indexes": {"vel": "spatial"}}, "point or text"),
        ({"indexes": {"at": "words"}}, "not on a point"),
        ({"indexes": {"text": "spatial"}}, "not on a text"),
        ({"indexes": {"seg": "words"}}, "on a value of the window"),
        ({"indexes": {"text": {"kind": "ngrams", "m": 3}}}, "no such setting"),
        ({"indexes": {"text": 7}}, "named by its kind"),
        ({"indexes": ["at"]}, "indexes name values"),
        ({"values": {"at": "place"}}, "point, text"),
        ({"values": {"at": "point", "metres": "int8"}}, "metres"),
    ],
)
def test_wrong_settings_are_told(db: Any, options: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        db.window("w", **{**REPORTS, **({"indexes": None} if "values" in options else {}),
                          **options})  # fmt: skip
    assert db.windows() == []


def test_other_indexes_are_a_conflict(db: Any) -> None:
    db.window("w", **REPORTS)
    assert db.window("w", indexes=REPORTS["indexes"]).name == "w"
    with pytest.raises(Conflict, match="another indexes"):
        db.window("w", indexes={"at": "spatial"})


def test_a_long_batch_of_texts_is_several_frames(db: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tideline.stream.engine._FRAME_BYTES", 100)
    window = db.window("w", **REPORTS)
    rows = [{**row_of(random.Random(n), 5), "vid": n, "text": n * "ab"} for n in range(80)]
    assert window.append(rows, once=("w", 1)).stored == 80
    assert window.append(rows, once=("w", 1)).repeated
    found = {row["vid"]: row["text"] for row in window.range().to_pylist()}
    assert found == {n: n * "ab" for n in range(80)}


# ---- on a server -------------------------------------------------------------------------------


def test_clients_find_what_the_library_finds(db: Any) -> None:
    rng = random.Random(5)
    with running(db) as url, tideline.connect(url) as remote:
        window = remote.window("reports", **REPORTS)
        local = db.window("reports")
        assert window.settings == local.settings
        rows = [row_of(rng, 5) for _ in range(200)]
        assert window.append(rows).stored == 200
        assert window.append(pa.Table.from_pylist(rows)).stored == 200
        assert window.append({**rows[0], "at": (1.0, 48.0)}).stored == 1
        columns: Any = {name: [row[name] for row in rows] for name in rows[0]}
        assert window.append({**columns, "at": np.array(columns["at"])}).stored == 200
        near = {"at": {"$near": [0.1, 48.0], "$maxDistance": 9e4}}
        for where, options in (
            ({"text": {"$words": "tire"}}, {}), (near, {"limit": 3}), (None, {"keys": (1,)}),
            (near, {"newest": True, "last_s": 10}), ({"vel": {"$gt": 50}}, {"closed": True}),
        ):  # fmt: skip
            assert window.find(where, **options).equals(local.find(where, **options))
            options.pop("limit", None)
            asked = {**options, "map": ["count()", "top(2, vel)"]}
            assert window.find(where, **asked) == local.find(where, **asked)
        for wrong in ({"where": {"x": 1}}, {"limit": 0}, {"map": len}):
            with pytest.raises(InvalidRequest):
                window.find(**wrong)


def test_the_command_line_finds_what_the_library_finds(tmp_path: Path, run: Run) -> None:
    folder = str(tmp_path / "db")

    def command(*arguments: str, code: int = 0) -> list[Any]:
        done = run("window", *arguments)
        assert done.code == code, done.text
        return [json.loads(text) for text in done.text.splitlines()]

    made = command(
        "create", folder, "r", "--span-s", "30", "--key", "vid", "--time", "t", "--value",
        "at=point", "--value", "text=text", "--value", "vel=int8", "--index", "at=spatial",
        "--index", "text=ngrams,n=2",
    )  # fmt: skip
    assert made[0]["indexes"] == {"at": "spatial", "text": {"kind": "ngrams", "n": 2}}
    rows = [{"vid": n, "at": [n / 10, 48], "text": f"car {n}", "vel": n, "t": 5} for n in range(9)]
    assert command("append", folder, "r", json.dumps(rows))[0]["stored"] == 9
    near = '{"at": {"$near": [0.31, 48]}}'
    found = command("find", folder, "r", near, "--limit", "2")
    assert [row["vid"] for row in found] == [3, 4]
    assert found[0]["at"] == [0.3, 48]
    assert round(found[0]["metres"]) == 744
    assert command("find", folder, "r", '{"text": {"$contains": "r 7"}}')[0]["vid"] == 7
    asked = ("find", folder, "r", '{"vel": {"$gt": 3}}')
    assert command(*asked, "--map", "sum(vel)", "--newest") == [{"sum(vel)": 30}]
    assert command(*asked, "--key", "6", "--last-s", "30")[0]["vid"] == 6
    command("find", folder, "r", '{"speed": 3}', code=2)
    command("create", folder, "s", "--span-s", "3", "--key", "k", "--index", "at", code=2)
