"""A range read in parts: all of one moment, whatever is appended, sealed or let go of meanwhile."""

from __future__ import annotations

import asyncio
import json
import random
import urllib.error
import urllib.request
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tideline
from tideline.errors import Conflict, InvalidRequest
from tideline.server import running
from tideline.testing import ManualClock

CARS: dict[str, Any] = {
    "span_s": 30, "slide_s": 10, "key": ("seg", "road"), "values": {"vel": "int32"},
    "time": "t", "max_ahead_s": float("inf"),
}  # fmt: skip
ASKED: list[dict[str, Any]] = [
    {}, {"keys": (1,)}, {"keys": ((0, "b"), (2, "d"))}, {"keys": [None, (2,)], "last_s": 20},
    {"closed": True}, {"keys": (9,)}, {"keys": (1, "a")},
]  # fmt: skip


def rows_of(rng: random.Random, time_s: float, count: int = 300) -> list[dict[str, Any]]:
    return [
        {"seg": rng.randrange(3), "road": rng.choice("abcde") + str(rng.randrange(9)),
         "vel": rng.randrange(99), "t": max(0, time_s - rng.choice([0, 0, 12]))}
        for _ in range(count)
    ]  # fmt: skip


def in_parts(window: Any, parts: int, **asked: Any) -> Any:
    """What reads the parts of the moment there is now."""
    moment, cuts = window.moment(parts=parts, **asked)
    assert cuts == sorted(cuts)
    ends = list(pairwise([None, *cuts, None]))
    random.Random(1).shuffle(ends)

    def read() -> pa.Table:
        found = [window.part(moment, low=low, high=high, **asked) for low, high in ends]
        whole = pa.concat_tables(found)
        names = [name for name in whole.column_names if name != "vel"]
        return whole.sort_by([(name, "ascending") for name in names])

    return read


def ordered(table: pa.Table) -> pa.Table:
    return table.sort_by([(n, "ascending") for n in table.column_names if n != "vel"])


@pytest.mark.parametrize("keep", ["last", "all"])
@pytest.mark.parametrize("key", [("seg", "road"), ("seg", "vid")])
def test_parts_are_a_range_of_the_moment(tmp_path: Path, keep: str, key: tuple[str, str]) -> None:
    rng = random.Random(keep)
    with tideline.open(tmp_path / "db", clock=ManualClock(0)) as db:
        window = db.window("cars", **{**CARS, "key": key, "keep": keep})
        texts = ("a'", "b'")
        asked = [
            one for one in ASKED if key[1] == "road" or not any(each in str(one) for each in texts)
        ]

        def append(time_s: float) -> None:
            rows = rows_of(rng, time_s)
            for n, row in enumerate(rows):  # without equal keys in a sub-window order is total
                row["vid"] = n if keep == "last" else rng.randrange(1 << 40)
                row["road"] += f"{n}" if keep == "all" else ""
            window.append(rows)

        for time_s in (5, 14, 22):
            append(time_s)
            if time_s == 14:
                window.seal()
        reads = [(ordered(window.range(**one)), in_parts(window, 4, **one), one) for one in asked]
        assert len(window._engine.moments._held) == 1  # one moment, however many read it
        for time_s in (23, 35, 47, 80):
            append(time_s)
            window.seal()
        for right, read, one in reads:
            assert read().equals(right), one
        assert window.stats().dropped >= 3  # all that the moment has


def test_parts_are_of_about_one_size() -> None:
    rng = random.Random(2)
    with tideline.open(":memory:", clock=ManualClock(0)) as db:
        window = db.window("cars", **{**CARS, "keep": "all"})
        for _ in range(5):
            window.append(rows_of(rng, 5, 20_000))
        moment, cuts = window.moment(parts=8)
        sizes = [window.part(moment, low=low, high=high).num_rows
                 for low, high in pairwise([None, *cuts, None])]  # fmt: skip
        assert sum(sizes) == 100_000
        assert len(sizes) == 8
        assert max(sizes) < 3 * min(sizes)
        assert window.moment()[1] == []  # below two million rows one part will do


def test_a_moment_outlives_a_restart_but_no_write_that_nobody_held_it_over(tmp_path: Path) -> None:
    clock = ManualClock(0)
    with tideline.open(tmp_path / "db", clock=clock) as db:
        window = db.window("cars", **CARS)
        window.append(rows_of(random.Random(1), 5))
        moment, cuts = window.moment(parts=3)
        right = window.part(moment, low=cuts[0], high=cuts[1])
        assert 0 < right.num_rows < 300
    with tideline.open(tmp_path / "db", clock=clock) as db:
        window = db.window("cars")
        assert window.part(moment, low=cuts[0], high=cuts[1]).equals(right)
        window.append(rows_of(random.Random(2), 6))
        assert window.part(moment, low=cuts[0], high=cuts[1]).equals(
            right
        )  # held since it was read
    with tideline.open(tmp_path / "db", clock=clock) as db, running(db) as url:
        window = db.window("cars")
        with pytest.raises(Conflict, match="read the window again"):
            window.part(moment, low=cuts[0])
        assert ask(url, "part", {"moment": moment}) == 409


def test_moments_are_forgotten() -> None:
    clock = ManualClock(0)
    with tideline.open(":memory:", clock=clock) as db:
        window = db.window("cars", **CARS)
        moments = []
        for n in range(10):
            window.append({"seg": n, "road": "a", "vel": n, "t": 1})
            window.append({"seg": n, "road": "b", "vel": n, "t": 1})
            moments.append(window.moment(parts=2)[0])
        for gone in moments[:2]:
            with pytest.raises(Conflict):
                window.part(gone)
        assert window.part(moments[2]).num_rows == 6
        clock.advance(599)
        assert window.part(moments[2]).num_rows == 6
        clock.advance(599)
        assert window.part(moments[3]).num_rows == 8  # nobody looked, so it was still there
        assert window.part(moments[2]).num_rows == 6
        for gone in moments[4:9]:
            with pytest.raises(Conflict):
                window.part(gone)
        assert window.part(moments[9]).num_rows == 20  # nothing was appended since


def test_a_window_by_the_clock_is_read_as_it_was() -> None:
    clock = ManualClock(0)
    with tideline.open(":memory:", clock=clock) as db:
        window = db.window("w", span_s=30, slide_s=10, key="k")
        assert window.moment(parts=2)[1] == []
        window.append({"k": [1, 2, 3]})
        clock.advance(10)
        window.append({"k": [4]})
        moment, cuts = window.moment(parts=2, last_s=10)
        assert cuts == []
        moment, cuts = window.moment(parts=2)
        clock.advance(100)
        window.maintain()
        found = [window.part(moment, low=low, high=high)["k"].to_pylist()
                 for low, high in pairwise([None, *cuts, None])]  # fmt: skip
        assert [k for part in found for k in part] == [1, 2, 3, 4]
        assert len(found) == 2
        assert window.range().num_rows == 0


@pytest.mark.parametrize(
    ("verb", "given", "said"),
    [
        ("moment", {"parts": -1}, "parts"), ("moment", {"parts": True}, "parts"),
        ("moment", {"last_s": 7}, "last_s=7"), ("moment", {"keys": (1, 2, 3)}, "a key has 2"),
        ("part", {"moment": "x"}, "a moment is what"), ("part", {"moment": 7}, "a moment is what"),
        ("part", {"moment": "1:2:3"}, "a moment is what"),
        ("part", {"moment": "1:0", "low": ("x",)}, "seg must be a whole number"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told(verb: str, given: dict[str, Any], said: str) -> None:
    with tideline.open(":memory:", clock=ManualClock(0)) as db:
        window = db.window("cars", **CARS)
        window.append(rows_of(random.Random(1), 5, 3))
        with pytest.raises(InvalidRequest, match=said):
            getattr(window, verb)(**given)


def ask(url: str, verb: str, body: Any) -> Any:
    request = urllib.request.Request(
        f"{url}/v1/windows/cars/{verb}", data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )  # fmt: skip
    try:
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code


def test_clients_read_parts(tmp_path: Path) -> None:
    asked: dict[str, Any] = {"keys": ((0, "b"), (2,)), "last_s": 20}
    with tideline.open(tmp_path / "db", clock=ManualClock(0)) as db, running(db) as url:
        window = db.window("cars", **{**CARS, "keep": "all"})
        window.append(rows_of(random.Random(1), 15))
        right = window.range(**asked)

        async def awaited() -> list[pa.Table]:
            async with await tideline.aconnect(url) as there:
                cars = await there.window("cars")
                moment, cuts = await cars.moment(parts=2, **asked)
                ends = pairwise([None, *cuts, None])
                return [await cars.part(moment, low=low, high=high, **asked) for low, high in ends]

        with tideline.connect(url) as remote:
            cars = remote.window("cars")
            moment, cuts = cars.moment(parts=2, **asked)
            found = [cars.part(moment, low=low, high=high, **asked)
                     for low, high in pairwise([None, *cuts, None])]  # fmt: skip
            with pytest.raises(InvalidRequest):
                cars.part("x")
            with pytest.raises(Conflict):
                cars.part("1:0")
        for tables in (found, asyncio.run(awaited())):
            assert len(tables) == 2
            assert pa.concat_tables(tables).equals(right)


def test_a_server_gives_parts(tmp_path: Path) -> None:
    with tideline.open(tmp_path / "db", clock=ManualClock(0)) as db, running(db) as url:
        window = db.window("cars", **CARS)
        window.append(rows_of(random.Random(1), 5))
        found = ask(url, "moment", {"keys": [1], "parts": 3})
        assert len(found["cuts"]) == 2
        right = window.range((1,)).num_rows
        window.append({"seg": 1, "road": "new", "vel": 1, "t": 6})
        rows = [
            row
            for low, high in pairwise([None, *found["cuts"], None])
            for row in ask(url, "part", {"moment": found["moment"], "keys": [1], "low": low,
                                         "high": high})["result"]
        ]  # fmt: skip
        assert len(rows) == right
        assert (
            ask(url, "moment", {"parts": "x"}) == 422 or ask(url, "moment", {"parts": "x"}) == 400
        )
