"""What a window promises, one by one: settings, rows, time, watching, files, errors."""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tideline
from tideline.errors import Closed, Conflict, Corruption, InvalidRequest, NotFound, Unavailable
from tideline.testing import ManualClock

Window = Any
CARS: dict[str, Any] = {
    "span_s": 300, "slide_s": 60, "key": {"x": (0, 15), "d": (0, 1), "s": (0, 99), "vid": "int"},
    "values": {"vel": "int32"},
}  # fmt: skip


@pytest.fixture
def now() -> ManualClock:
    return ManualClock(6000)


@pytest.fixture
def db(tmp_path: Path, now: ManualClock) -> Iterator[Any]:
    with tideline.open(tmp_path / "db", clock=now) as opened:
        yield opened


def car(vid: int, vel: int, s: int = 42) -> dict[str, int]:
    return {"x": 0, "d": 1, "s": s, "vid": vid, "vel": vel}


# ---- the two questions of the paper ------------------------------------------------------------


def test_one_car_of_the_last_minute_and_all_of_a_segment_of_five(db: Any, now: Any) -> None:
    cars = db.window("cars", **CARS)
    for minute in range(7):
        cars.append([car(7, 10 * minute), car(8, 50), car(9, 50, s=43)])
        now.advance(60)
    now.advance(-0)
    assert cars.get((0, 1, 42, 7)) == {"vel": 60}
    assert cars.get((0, 1, 42, 7), last_s=60) is None  # the open minute has nothing yet
    assert cars.range((0, 1, 42), map="mean(vel)", last_s=300) == np.mean(
        [30, 40, 50, 60] + [50] * 4
    )
    assert cars.range((0, 1, 42), map="mean(vel)", last_s=120) == 55
    assert cars.range((0, 1), map="count") == 12
    assert cars.range((0, 1, 42), map=["count", "max(vel)"], last_s=120, closed=True) == {
        "count": 4, "max(vel)": 60,
    }  # fmt: skip
    assert db.stats()["cars"].dropped == 2


def test_a_key_again_replaces_in_its_sub_window_only(db: Any, now: Any) -> None:
    last, every = db.window("last", **CARS), db.window("all", **CARS, keep="all")
    for window in (last, every):
        window.append([car(7, 10), car(7, 20)])
    now.advance(60)
    for window in (last, every):
        window.append([car(7, 30)])
    assert last.range((0,), map="sum(vel)") == 50
    assert every.range((0,), map="sum(vel)") == 60
    assert last.get((0, 1, 42, 7)) == {"vel": 30}
    assert every.get((0, 1, 42, 7)) == [{"vel": 10}, {"vel": 20}, {"vel": 30}]


def test_a_large_batch_comes_behind_what_waits_in_the_tail(db: Any) -> None:
    last, every = db.window("last", **CARS), db.window("all", **CARS, keep="all")
    for window in (last, every):
        window.append([car(vid, 1) for vid in (*range(1600), 4199)])  # wait unsorted
        window.append([car(vid, 2) for vid in range(4200)])  # are sorted at once
    assert last.get((0, 1, 42, 7)) == {"vel": 2}
    assert every.get((0, 1, 42, 7)) == [{"vel": 1}, {"vel": 2}]
    assert last.range((0,), map="sum(vel)") == 2 * 4200


# ---- rows and time -----------------------------------------------------------------------------


def test_late_rows_go_where_they_belong_and_later_ones_are_counted(db: Any) -> None:
    window = db.window("w", span_s=30, slide_s=10, key="k", values={"v": "int8"}, time="t")
    assert window.append([{"k": 1, "v": 1, "t": 35}, {"k": 1, "v": 2, "t": 12}]).late == 0
    done = window.append([{"k": 1, "v": 3, "t": 9}, {"k": 1, "v": 4, "t": 20}])
    assert (done.stored, done.late) == (1, 1)
    since = [row["since"].timestamp() for row in window.range().to_pylist()]
    assert since == [10, 20, 30]
    assert window.stats().late == 1


def test_rows_far_ahead_of_the_clock_move_nothing(db: Any, now: Any) -> None:
    window = db.window("w", span_s=30, slide_s=10, key="k", time="t")
    done = window.append([{"k": 1, "t": 6060}, {"k": 2, "t": 6060.1}, {"k": 3, "t": 9e9}])
    assert done.stored == 1
    assert done.rejected.to_pylist() == [
        {"row": n, "reason": "t is more than 60 s ahead of the clock (max_ahead_s of the window)"}
        for n in (1, 2)
    ]
    db.window("w", max_ahead_s=math.inf)
    assert window.append({"k": 3, "t": 9e9}).stored == 1
    assert db.window("w").settings["max_ahead_s"] is None


def test_rows_that_are_not_as_declared_come_back_with_the_reason(db: Any) -> None:
    cars = db.window("cars", **CARS)
    bad = [
        {"x": 16, "d": 1, "s": 1, "vid": 1, "vel": 1}, {"x": 1, "d": 1, "s": 1, "vel": 1}, 7,
        car(True, 1), car(1, 2**31), {**car(1, 1), "vel": 1.5}, {**car(1, 1), "vel": math.nan},
        {**car(1, 1), "s": "x"}, car(2**63, 1), {**car(1, 1), "vel": None},
    ]  # fmt: skip
    done = cars.append([car(1, 1), *bad, car(2, 2)])
    assert done.stored == 2
    assert done.rejected["row"].to_pylist() == list(range(1, 11))
    assert done.rejected["reason"].to_pylist() == [
        "x is not 0 to 15", "vid is missing", "a row must be a dict", "vid must be a whole number",
        "vel does not fit int32", "vel must be a whole number", "vel must be a whole number",
        "s must be a whole number", f"vid is not {-(2**63)} to {2**63 - 1}", "vel is missing",
    ]  # fmt: skip
    table = pa.table({
        "x": [0, 16, 1, None, 2], "d": [0, 0, 0, 0, 2], "s": [1] * 5, "vid": [1] * 5,
        "vel": [1.0, 2.0, 2.5, 4.0, math.nan], "more": ["ignored"] * 5,
    })  # fmt: skip
    done = cars.append(table)
    assert (done.stored, done.rejected["row"].to_pylist()) == (1, [1, 2, 3, 4])
    for wrong in (7, "x", None, {"x": [1]}, pa.table({"x": [1]}),
                  {"x": [1], "d": [1, 2], "s": [1], "vid": [1], "vel": [1]},
                  table.set_column(0, "x", pa.array(["a"] * 5))):  # fmt: skip
        with pytest.raises(InvalidRequest):
            cars.append(wrong)
    assert cars.stats().appended == 3


def test_times_are_datetimes_or_seconds(db: Any) -> None:
    window = db.window("w", span_s=60, slide_s=10, key="k", time="at", keep="all",
                       max_ahead_s=math.inf)  # fmt: skip
    at = datetime(2026, 5, 1, 12, 0, 5, tzinfo=UTC)
    naive = at.replace(tzinfo=None)
    window.append([{"k": 1, "at": at}, {"k": 2, "at": at.timestamp()}])
    window.append(pa.table({"k": [3], "at": pa.array([at])}))
    window.append({"k": np.array([4]), "at": np.array([naive], "datetime64[ms]")})
    window.append({"k": [5], "at": [int(at.timestamp())]})
    rows = window.range().to_pylist()
    assert [row["k"] for row in rows] == [1, 2, 3, 4, 5]
    assert {row["since"] for row in rows} == {at - timedelta(seconds=5)}
    done = window.append(pa.table({"k": [6, 7], "at": [math.nan, 1e12]}))
    assert done.rejected["row"].to_pylist() == [0, 1]


def test_a_batch_that_landed_changes_nothing(db: Any) -> None:
    window = db.window("w", span_s=60, key="k", keep="all")
    rows = [{"k": n} for n in range(5)]
    assert not window.append(rows, once=("loader", 1)).repeated
    assert window.append(rows, once=("loader", 1)).repeated
    assert window.append(rows, once=("loader", 2)).stored == 5
    assert window.range(map="count()") == 10
    with pytest.raises(InvalidRequest):
        window.append(rows, once=("loader", -1))


def test_keys_beyond_what_was_found_widen_it(db: Any) -> None:
    window = db.window("w", span_s=60, key=("a", "b"), values={"v": "int32"}, keep="all")
    keys = [(1, 1), (-5, 2**20), (2**40, -(2**40)), (-(2**63), 2**63 - 1), (0, 0)]
    for n, (a, b) in enumerate(keys):
        window.append({"a": a, "b": b, "v": n})
        for m, key in enumerate(keys[: n + 1]):
            assert window.get(key) == [{"v": m}]
    rows = window.range().to_pylist()
    assert [(row["a"], row["b"]) for row in rows] == sorted(keys)
    assert window.range(((-5,), (1,)), map="count()") == 2
    assert window.get((2**70, 0)) == []


# ---- watching ----------------------------------------------------------------------------------


def test_a_watch_is_told_at_every_slide_of_the_clock(db: Any, now: Any) -> None:
    window = db.window("w", span_s=30, slide_s=10, key="k", values={"v": "int32"}, keep="all")
    with window.watch((1,), map="sum(v)") as watch:
        told: list[Any] = []

        def listen() -> None:
            for pane in watch:
                told.append(pane)  # noqa: PERF402

        thread = threading.Thread(target=listen)
        thread.start()
        for v in (1, 2, 4):
            window.append([{"k": 1, "v": v}, {"k": 2, "v": 100}])
            now.advance(10)
        now.advance(1000)
        window.maintain()
        db.drop_window("w")  # ends it
        thread.join()
    assert [pane.value for pane in told] == [1, 3, 7, 6, 4, 0]
    assert told[0].until.timestamp() == 6010
    assert told[0].since.timestamp() == 5980


def test_a_watch_is_not_told_of_slides_before_it_began(db: Any, now: Any) -> None:
    window = db.window("w", span_s=30, slide_s=10, key="k", values={"v": "int32"})
    window.append([{"k": 1, "v": 5}])
    now.advance(10)  # the slide is due, and nobody has looked at the window since
    with window.watch((1,), map="sum(v)") as watch:
        assert watch.take() == []
        now.advance(10)
        assert [pane.value for pane in watch.take()] == [5]


def test_a_watch_is_awaited(db: Any) -> None:
    window = db.window("w", span_s=20, slide_s=10, key="k", time="t", keep="all")

    async def listen() -> list[Any]:
        watch = window.watch(map="count()")
        told = []
        ready = asyncio.Event()

        async def append() -> None:
            await ready.wait()
            for t in (0, 1, 12, 25, 31):
                await asyncio.to_thread(window.append, {"k": 1, "t": t})

        writer = asyncio.create_task(append())
        ready.set()
        async for pane in watch:
            told.append(pane.value)
            if len(told) == 3:
                break
        await writer
        watch.close()
        return told

    assert asyncio.run(listen()) == [2, 3, 2]


def test_a_slow_watch_is_told_what_it_missed(db: Any) -> None:
    window = db.window("w", span_s=20, slide_s=10, key="k", time="t", max_ahead_s=math.inf)
    with window.watch(map="count()", last_s=10) as watch:
        window.append([{"k": 1, "t": 10 * n} for n in range(101)])
        panes = watch.take(1)
        assert (panes[0].missed, panes[0].until.timestamp()) == (36, 370)
        rest = watch.take()
        assert [pane.missed for pane in rest] == [0] * 63
        assert watch.take() == []


def test_taking_waits_until_there_is_a_pane() -> None:
    with tideline.open(":memory:") as db:
        window = db.window("w", span_s=0.2, slide_s=0.1, key="k")
        with window.watch(map="count()") as watch:
            assert len(watch.take(1, timeout_s=30)) == 1


# ---- settings ----------------------------------------------------------------------------------


def test_settings_are_stored_and_others_are_a_conflict(tmp_path: Path) -> None:
    with tideline.open(tmp_path / "db") as db:
        first = db.window("cars", **CARS)
        assert db.window("cars") is first
        assert db.window("cars", **CARS) is first
        for other in (
            {"span_s": 600}, {"keep": "all"}, {"values": {"vel": "int64"}}, {"key": ("x", "d")},
            {"time": "t"}, {"slide_s": 30}, {"durable": False},
        ):  # fmt: skip
            with pytest.raises(Conflict):
                db.window("cars", **other)
        described = first.settings
    with tideline.open(tmp_path / "db") as db:
        assert db.windows() == ["cars"]
        assert db.window("cars").settings == described
        with pytest.raises(Conflict, match="a window has this name"):
            db.channel("cars")
        with pytest.raises(Conflict, match="a window has this name"):
            db.collection("cars", key="id")
        db.channel("roads")
        with pytest.raises(Conflict, match="a channel has this name"):
            db.window("roads", span_s=1, key="k")


@pytest.mark.parametrize(
    "wrong",
    [
        {}, {"span_s": 60}, {"key": "k"}, {"span_s": 0, "key": "k"}, {"span_s": -1, "key": "k"},
        {"span_s": 60, "slide_s": 7, "key": "k"}, {"span_s": 60, "slide_s": 0, "key": "k"},
        {"span_s": 60, "slide_s": 0.001, "key": "k"}, {"span_s": 60, "key": ()},
        {"span_s": 60, "key": ("a", "a")}, {"span_s": 60, "key": "k", "values": {"k": "int8"}},
        {"span_s": 60, "key": {"k": (5, 1)}}, {"span_s": 60, "key": {"k": "float"}},
        {"span_s": 60, "key": "k", "values": {"v": "str"}}, {"span_s": 60, "key": 7},
        {"span_s": 60, "key": "k", "keep": "first"}, {"span_s": 60, "key": "k", "time": "k"},
        {"span_s": 60, "key": "k", "durable": 1.5}, {"span_s": 60, "key": "k", "max_ahead_s": -1},
        {"span_s": 60, "key": "k", "values": ["v"]}, {"span_s": "x", "key": "k"},
        {"span_s": 60, "key": "x,vid"}, {"span_s": 60, "key": ["k", "x,vid"]},
    ],
)  # fmt: skip
def test_settings_that_mean_nothing_are_refused(wrong: dict[str, Any], db: Any) -> None:
    with pytest.raises(InvalidRequest):
        db.window("w", **wrong)
    assert db.windows() == []


def test_another_span_is_told_in_seconds(db: Any) -> None:
    db.window("w", span_s=60, slide_s=10, key="k")
    with pytest.raises(Conflict, match=r"another span_s. name='w', stored=60.0, given=120.0"):
        db.window("w", span_s=120)
    db.window("w", span_s=60.0, slide_s=timedelta(seconds=10), key="k")


def test_questions_that_mean_nothing_are_refused(db: Any) -> None:
    cars = db.window("cars", **CARS)
    cars.append(car(1, 1))
    for ask in (
        lambda: cars.get((0, 1)), lambda: cars.get((0, 1, 2, "x")),
        lambda: cars.get((0, 1, 2, 1.5)),
        lambda: cars.range((0, 1, 2, 3, 4)), lambda: cars.range((0,), last_s=61),
        lambda: cars.range((0,), last_s=360), lambda: cars.range((0,), last_s=0),
        lambda: cars.range((0,), last_s=300, closed=True), lambda: cars.range((0,), closed=1),
        lambda: cars.range((0,), initial=0), lambda: cars.watch((0,), map=None),
        lambda: cars.get_many([(0, 1)]), lambda: cars.range({"d": 1}),
    ):  # fmt: skip
        with pytest.raises(InvalidRequest):
            ask()
    assert cars.range({"x": 0, "d": 1}, map="count") == 1
    assert cars.range((99,), map="count") == 0
    assert cars.range(0, map="count") == 1


# ---- files -------------------------------------------------------------------------------------


def test_more_than_memory_goes_to_disk_and_is_dropped_whole(tmp_path: Path, now: Any) -> None:
    with tideline.open(tmp_path / "db", clock=now, memory_mb=8) as db:
        window = db.window("w", span_s=120, slide_s=60, key=("a", "n"), values={"v": "int64"},
                           keep="all")  # fmt: skip
        window._engine._memory_bytes = 1 << 20
        for part in range(8):
            n = np.arange(40_000)
            window.append({"a": n % 7, "n": n, "v": n + part})
        window._engine.drain()
        assert window.stats().bytes_disk > 2 << 20
        assert window._engine.memory_bytes < 3 << 20
        assert window.range((3,), map="count") == 8 * len(range(3, 40_000, 7))
        now.advance(180)
        window.maintain()
        stats = window.stats()
        assert (stats.bytes_disk, stats.rows, stats.components) == (0, 0, 0)
        assert list((tmp_path / "db" / "windows" / "0001").glob("c-*")) == []
        assert window._engine.store.log.size_from(window._engine.snapshot().first_log) < 1 << 20


def test_a_slide_lets_go_of_the_log(tmp_path: Path, now: Any) -> None:
    with tideline.open(tmp_path / "db", clock=now) as db:
        window = db.window("w", span_s=20, slide_s=10, key="n", values={"v": "int64"}, keep="all")
        window._engine.store.log._segment_bytes = 100_000
        for _ in range(20):
            window.append({"n": np.arange(5_000), "v": np.arange(5_000)})
            now.advance(5)
        window.maintain()
        assert window.stats().bytes_log < 1_000_000


def test_a_backup_and_a_damaged_component(tmp_path: Path, now: Any) -> None:
    with tideline.open(tmp_path / "db", clock=now) as db:
        window = db.window("w", span_s=20, slide_s=10, key="n", values={"v": "int64"})
        gone = db.window("gone", span_s=20, key="n", durable=False)
        gone.append({"n": 1})
        window.append({"n": np.arange(5_000), "v": np.arange(5_000)})
        window.seal()
        window.append({"n": 7, "v": -1})
        db.backup(tmp_path / "copy")
        assert db.check().windows == 2
    with tideline.open(tmp_path / "copy", clock=now) as db:
        window = db.window("w")
        assert window.get(7) == {"v": -1}
        assert window.range(map="sum(v)") == sum(range(5_000)) - 8
        assert db.window("gone").range(map="count") == 0
    file = next((tmp_path / "copy" / "windows").rglob("c-*.arrow"))
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    with pytest.raises(Corruption):
        tideline.open(tmp_path / "copy", clock=now)


def test_a_window_in_memory_only_begins_empty(tmp_path: Path, now: Any) -> None:
    with tideline.open(tmp_path / "db", clock=now) as db:
        window = db.window("w", span_s=20, key="n", durable=False)
        window.append({"n": np.arange(100)})
        assert window.stats().bytes_log == 0
    with tideline.open(tmp_path / "db", clock=now) as db:
        assert db.window("w").range(map="count") == 0
        assert not db.window("w").settings["durable"]


def test_dropped_and_closed_windows_say_so(db: Any) -> None:
    window = db.window("w", span_s=20, key="n")
    watch = window.watch(map="count")
    db.drop_window("w")
    for call in (
        lambda: window.append({"n": 1}),
        lambda: window.range(),
        window.stats,
        window.seal,
    ):
        with pytest.raises(Closed, match="dropped"):
            call()
    assert watch.closed
    assert list(watch) == []
    assert db.windows() == []
    with pytest.raises(NotFound):
        db.drop_window("w")
    db.window("w", span_s=30, key="m")


def test_a_full_disk_keeps_what_was_there(db: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    window = db.window("w", span_s=20, slide_s=10, key="n", keep="all")
    window.append({"n": np.arange(1000)})

    def full(*_: Any, **__: Any) -> Any:
        raise Unavailable("disk is full")

    with monkeypatch.context() as patch:
        patch.setattr("tideline.lsm.tree.write_component", full)
        with pytest.raises(Unavailable):
            window.seal()
        assert window.range(map="count") == 1000
        assert window.append({"n": 1}).stored == 1
    window._engine.dataset.wait_for_seals()
    with monkeypatch.context() as patch:
        patch.setattr(window._engine.store.log, "append_parts", full)
        with pytest.raises(Unavailable):
            window.append({"n": 2})
    assert window.range(map="count") == 1001
    with contextlib.suppress(Unavailable):  # it says once more why it could not
        window.seal()
    window.seal()
    assert (window.range(map="count"), window._engine.memory_bytes) == (1001, 0)
