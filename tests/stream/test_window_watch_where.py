"""A condition, told at every slide: what a look at every row of the pane gives."""

from __future__ import annotations

import asyncio
import json
import random
import sys
from pathlib import Path
from typing import Any

import pytest
from test_window_find import PANES, REPORTS, SLIDE_S, Row, condition, row_of, wanted
from window_model import Model, mapped

import tideline
from tideline.errors import InvalidRequest
from tideline.server import running
from tideline.testing import ManualClock

sys.path.append(str(Path(__file__).resolve().parents[1]))

from test_cli import Run, run

__all__ = ["run"]  # a fixture

MAPS = ["count()", "sum(vel)", "mean(vel)", "min(vel)", "max(vel)", "top(3, vel)"]
HERE = {"at": {"$geoWithin": {"$box": [[0, 47], [1, 49]]}}}


def in_order(state: list[Any], seg: int, vid: int, vel: int) -> list[Any]:
    return [*state, (seg, vid, vel)]


def as_rows(rows: list[Row]) -> list[Any]:
    """As models have them: (sub-window, key, values)."""
    return [(row["since"], (row["seg"], row["vid"]), row) for row in rows]


@pytest.mark.parametrize("keep", ["last", "all"])
@pytest.mark.parametrize("few", [1, 20, 10_000], ids=["indexes", "both", "rows one by one"])
def test_panes_of_a_condition_are_what_a_look_at_every_row_gives(
    tmp_path: Path, keep: str, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tideline.stream.finding._FEW", few)
    monkeypatch.setattr("tideline.stream.memory.TAIL_ROWS", 64)
    rng = random.Random(f"{keep} {few}")
    model, now, hits = Model(keep, PANES, SLIDE_S), 0.0, 0
    with tideline.open(tmp_path / "db", clock=ManualClock(0)) as db:
        window = db.window("reports", keep=keep, **REPORTS)
        watched = []
        for _ in range(12):
            where, newest = condition(rng), rng.random() < 0.3
            panes, prefix = rng.randint(1, PANES), rng.choice([None, None, (1,), (2, 3)])
            options = {"where": where, "newest": newest, "last_s": panes * SLIDE_S}
            watch = window.watch(prefix, map=MAPS, **options)
            folded = window.watch(prefix, map=in_order, initial=[], **options)
            joined = window.watch(
                prefix, map=in_order, initial=[], combine=lambda a, b: a + b, **options
            )
            watched.append(((where, panes, newest, prefix or ()), watch, folded, joined))
        for _ in range(35):
            now += rng.choice([0, 1, 4, 12])
            rows = [row_of(rng, max(0.0, now - rng.choice([0, 0, 0, 9, 21])))
                    for _ in range(rng.choice([1, 3, 30, 90]))]  # fmt: skip
            window.append(rows)
            model.append([
                (row["t"], (row["seg"], row["vid"]),
                 {name: row[name] for name in ("vel", "at", "text")}) for row in rows
            ])  # fmt: skip
            does = rng.random()
            if does < 0.2:
                window.seal()
            elif does < 0.4:
                window.maintain()
            told, model.told = model.told, []
            for asked, *watches in watched:
                found = [watch.take() for watch in watches]
                assert [len(each) for each in found] == 3 * [len(told)]
                for (closed, there), pane, first, second in zip(told, *found, strict=True):
                    assert pane.until.timestamp() == (closed + 1) * SLIDE_S
                    right = as_rows(wanted(model, *asked, there, closed))
                    assert pane.value == {
                        name: mapped("count" if name == "count()" else name, right) for name in MAPS
                    }, asked
                    # Sub-window by sub-window, those of one in the order of keys.
                    in_turn = sorted(right, key=lambda row: row[0])
                    seen = [(*key, row["vel"]) for _, key, row in in_turn]
                    assert sorted(first.value) == sorted(seen)
                    assert [each[:2] for each in first.value] == [each[:2] for each in seen]
                    assert second.value == first.value
                    hits += len(right)
        assert hits > 200


def test_a_pane_reads_each_sub_window_once_and_later_ones_when_newest_counts() -> None:
    with tideline.open(":memory:", clock=ManualClock(0)) as db:
        window = db.window("reports", keep="all", **REPORTS)
        watch = window.watch(where=HERE, map="count()")
        newest = window.watch(where=HERE, newest=True, map="count()")
        for n in range(6):
            # A car that is here in one sub-window and elsewhere in the next.
            window.append({**row_of(random.Random(1), 10 * n), "at": [0.5 if n % 2 else -0.5, 48]})
        assert [pane.value for pane in watch.take()] == [0, 1, 1, 2, 1]
        assert [pane.value for pane in newest.take()] == [0, 1, 0, 1, 0]
        assert watch._sliding.reads == 5
        assert newest._sliding.reads == 1 + 2 + 3 + 3 + 3


def test_a_near_counts_what_is_within_its_distance() -> None:
    with tideline.open(":memory:", clock=ManualClock(0)) as db:
        window = db.window("reports", **REPORTS)
        near = {"at": {"$near": [0.0, 48.0], "$maxDistance": 1_000}}
        with (
            window.watch(where=near, map="count()") as few,
            window.watch(where={"at": {"$near": [0.0, 48.0]}}, map="count()") as every,
        ):
            rows = [{**row_of(random.Random(1), 5), "vid": n, "at": [n / 100, 48]}
                    for n in range(9)]  # fmt: skip
            window.append(rows)
            assert window.find(near, map="count()") == 2
            window.append({**rows[0], "t": 15})
            assert [pane.value for pane in few.take()] == [2]
            assert [pane.value for pane in every.take()] == [9]


def test_a_watch_begins_before_the_first_row_says_what_keys_are() -> None:
    with tideline.open(":memory:", clock=ManualClock(0)) as db:
        window = db.window("w", span_s=20, slide_s=10, key=("road", "n"), time="t",
                           values={"v": "int32"})  # fmt: skip
        with (
            window.watch(where={"road": "A1", "n": {"$gt": 1}}, map="sum(v)") as texts,
            window.watch(where={"road": 7}, map="count()") as numbers,
        ):
            window.append([{"road": "A1", "n": n, "v": n, "t": 5} for n in range(4)])
            window.append({"road": "A1", "n": 9, "v": 9, "t": 15})
            assert [pane.value for pane in texts.take()] == [5]
            assert [pane.value for pane in numbers.take()] == [0]


def test_what_is_wrong_with_a_condition_is_said_at_once(tmp_path: Path) -> None:
    with tideline.open(tmp_path / "db", clock=ManualClock(0)) as db:
        window = db.window("reports", **REPORTS)
        with running(db) as url, tideline.connect(url) as remote:
            for each in (window, remote.window("reports")):
                for options, said in (
                    ({"where": {"spede": 1}}, "no such field"), ({"where": 7}, "where"),
                    ({"where": {"at": {"$near": [2000, 48]}}}, "2000"),
                    ({"newest": 1}, "newest=1"), ({"where": {}, "newest": "yes"}, "newest='yes'"),
                    ({"where": {"vel": {"$gtt": 1}}}, "gtt"),
                    ({"where": {}, "keys": (1, 2, 3)}, "a key has 2 fields"),
                ):  # fmt: skip
                    with pytest.raises(InvalidRequest, match=said):
                        each.watch(**{"map": "count()", **options})
            assert db.window("reports").stats().watches == 0


def test_clients_are_told_what_the_library_tells(tmp_path: Path) -> None:
    rng = random.Random(7)
    near = {"at": {"$near": [0.1, 48.0], "$maxDistance": 9e4}}
    asked: list[dict[str, Any]] = [
        {"where": HERE, "map": MAPS}, {"where": near, "newest": True, "map": "top(2, vel)"},
        {"newest": True, "map": "count()"},
        {"where": {"text": {"$words": "jam"}}, "keys": (1,), "last_s": 10, "map": {"n": "count()"}},
    ]  # fmt: skip
    with tideline.open(tmp_path / "db", clock=ManualClock(0)) as db, running(db) as url:
        local = db.window("reports", **REPORTS)
        with tideline.connect(url) as remote:
            window = remote.window("reports")
            here = [local.watch(**options) for options in asked]
            there = [window.watch(**options) for options in asked]
            window.append([row_of(rng, n / 10) for n in range(400)])
            for own, told in zip(here, there, strict=True):
                panes = own.take()
                assert len(panes) == 3
                assert told.take() == panes
                told.close()

        async def awaited() -> None:
            async with await tideline.aconnect(url) as remote:
                window = await remote.window("reports")
                own = local.watch(**asked[0])
                async with window.watch(**asked[0]) as told:
                    await window.append([row_of(rng, 40 + n / 10) for n in range(200)])
                    assert await told.take() == own.take() != []

        asyncio.run(awaited())

    async def embedded() -> None:
        async with await tideline.aopen(":memory:") as database:
            window = await database.window("reports", **REPORTS)
            async with window.watch(**asked[0]) as told:
                await window.append([row_of(rng, n / 10) for n in range(200)])
                assert [pane.value["count()"] > 0 for pane in await told.take()] == [True]

    asyncio.run(embedded())


def test_the_command_line_is_told_what_the_library_tells(tmp_path: Path, run: Run) -> None:
    with tideline.open(tmp_path / "db") as db, running(db) as url:
        window = db.window("w", span_s=900, slide_s=0.1, key="k",
                           values={"at": "point", "v": "int8"},
                           indexes={"at": "spatial"})  # fmt: skip
        window.append([{"k": n, "at": [n / 10, 48], "v": n} for n in range(6)])
        done = run(
            "window", "watch", url, "w", "--map", "sum(v)", "--map", "count()", "--count", "2",
            "--newest", "--where", '{"at": {"$near": [0.3, 48], "$maxDistance": 8000}}',
        )  # fmt: skip
        assert done.code == 0, done.text
        panes = [json.loads(text) for text in done.text.splitlines()]
        assert [pane["value"] for pane in panes] == 2 * [{"sum(v)": 2 + 3 + 4, "count()": 3}]
        done = run("window", "watch", url, "w", "--map", "count()", "--where", '{"x": 1}')
        assert (done.code, "no such field" in done.error) == (2, True)
