"""The edges of windows: functions that raise, far times, retries, odd input."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tideline
from tideline.errors import InvalidRequest
from tideline.stream.memory import State
from tideline.testing import ManualClock

BY_FIELD: dict[str, Any] = {
    "span_s": 30, "slide_s": 10, "key": "k", "values": {"v": "int32"}, "time": "t",
    "max_ahead_s": float("inf"),
}  # fmt: skip


@pytest.fixture
def now() -> ManualClock:
    return ManualClock(1000)


@pytest.fixture
def db(tmp_path: Path, now: ManualClock) -> Iterator[Any]:
    with tideline.open(tmp_path / "db", clock=now) as opened:
        yield opened


def row(t: float, v: int = 1, k: int = 1) -> dict[str, Any]:
    return {"k": k, "v": v, "t": t}


# ---- functions that raise ----------------------------------------------------------------------


def test_after_a_function_raised_a_watch_is_right_again(db: Any) -> None:
    window = db.window("w", **BY_FIELD, keep="all")
    broken = False

    def join(older: int, newer: int) -> int:
        if broken:
            raise ZeroDivisionError
        return older + newer

    watch = window.watch(map=lambda state, k, v: state + v, initial=0, combine=join)
    with watch:
        for t in (0, 10, 20, 30, 40):
            window.append([row(t)])
        assert [pane.value for pane in watch.take()] == [1, 2, 3, 3]
        window.append([row(25, v=100), row(50)])  # late, then a slide
        broken = True
        with pytest.raises(ZeroDivisionError):
            watch.take()
        broken = False
        window.append([row(60)])
        (pane,) = watch.take()
        assert (pane.value, pane.missed) == (3, 1)
        window.append([row(45, v=1000), row(70)])
        assert [pane.value for pane in watch.take()] == [1003]


def test_panes_before_the_one_that_raised_are_given_first(db: Any) -> None:
    window = db.window("w", **BY_FIELD)

    def summed(state: int, k: int, v: int) -> int:
        return state + 1 // v

    with window.watch(map=summed, initial=0, last_s=10) as watch:
        for t, v in ((0, 1), (10, 1), (20, 0), (30, 1), (40, 1)):
            window.append([row(t, v)])
        assert [pane.value for pane in watch.take()] == [1, 1]
        with pytest.raises(ZeroDivisionError):
            watch.take()
        assert [(pane.value, pane.missed) for pane in watch.take()] == [(1, 1)]


def test_states_that_are_changed_in_place_are_not_shared(db: Any) -> None:
    window = db.window("w", **BY_FIELD, keep="all")

    def listed(state: list[int], k: int, v: int) -> list[int]:
        state.append(v)
        return state

    def extended(older: list[int], newer: list[int]) -> list[int]:
        older.extend(newer)
        return older

    initial: list[int] = []
    sliding = window.watch(map=listed, initial=initial, combine=extended)
    anew = window.watch(map=listed, initial=initial)
    with sliding, anew:
        for n in range(8):
            window.append([row(10 * n, v=n)])
            assert window.range(map=listed, initial=initial) == list(range(max(n - 2, 0), n + 1))
        expected = [list(range(max(n - 2, 0), n + 1)) for n in range(7)]
        assert [pane.value for pane in anew.take()] == expected
        assert [pane.value for pane in sliding.take()] == expected
    assert initial == []


# ---- far times ---------------------------------------------------------------------------------


def test_panes_at_the_ends_of_time_have_times(db: Any) -> None:
    options = {**BY_FIELD, "span_s": 9e10, "slide_s": 9e10}
    window = db.window("long", **options)
    with window.watch(map="count()") as watch:
        window.append([row(-9.1e10 + 5e10), row(1), row(2e11)])
        panes = watch.take()
    assert [pane.value for pane in panes] == [1, 1, 0]
    assert panes[0].since == datetime(1, 1, 1, tzinfo=UTC)
    assert panes[0].until == datetime(1970, 1, 1, tzinfo=UTC)
    assert window.stats().rows == 1


@pytest.mark.parametrize("unit", ["D", "s", "us"])
def test_arrays_of_datetimes_that_no_datetime_can_be_are_refused(db: Any, unit: str) -> None:
    window = db.window("w", **BY_FIELD)
    texts = ["2026-01-01", "200000-01-01", "-200000-01-01", "NaT"]
    times = np.array(texts, f"datetime64[{unit}]")
    done = window.append({"k": [1, 2, 3, 4], "v": [1, 2, 3, 4], "t": times})
    assert (done.stored, done.rejected["row"].to_pylist()) == (1, [1, 2, 3])
    (since,) = window.range()["since"].to_pylist()
    assert since == datetime(2026, 1, 1, tzinfo=UTC)


def test_times_of_short_floats_are_as_exact_as_they_are(db: Any) -> None:
    window = db.window("w", **{**BY_FIELD, "span_s": 1e7, "slide_s": 0.5 * 1e4}, keep="all")
    times = np.array([9999.5, 16_777_215.0, 16_004_999.0], np.float32)
    window.append([row(t, v=n) for n, t in enumerate(times)])
    window.append({"k": [1] * 3, "v": [0, 1, 2], "t": times})
    fine = db.window("fine", **{**BY_FIELD, "slide_s": 0.5}, keep="all")
    fine.append([row(np.float32(9.5))])
    fine.append({"k": [1], "v": [1], "t": np.array([9.5], np.float32)})
    assert {at.timestamp() for at in fine.range()["since"].to_pylist()} == {9.5}
    found = [
        (v, at.timestamp())
        for v, at in zip(
            *(window.range()[name].to_pylist() for name in ("v", "since")), strict=True
        )
    ]
    assert sorted(set(found)) == [(1, 16_775_000.0), (2, 16_000_000.0)]


# ---- memory ------------------------------------------------------------------------------------


def test_a_sub_window_that_is_being_sealed_does_not_grow_without_end(
    db: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    window = db.window("w", span_s=60, key="n", values={"v": "int64"}, keep="all")
    engine, sealed = window._engine, threading.Event()
    engine._memory_bytes = 1 << 20
    wait = engine.dataset.wait_for_room

    def noticed(most: int) -> None:
        if most == 1:
            sealed.set()
        wait(most)

    monkeypatch.setattr(engine.dataset, "wait_for_room", noticed)
    engine.dataset.submit_seal(sealed.wait)  # a slow disk: nothing is sealed before a writer waits
    most = 0
    try:
        for part in range(8):
            n = np.arange(40_000)
            window.append({"n": n, "v": n + part})
            most = max(most, engine.memory_bytes)
    finally:
        sealed.set()
    assert most <= 2 << 20
    assert window.range(map="count()") == 320_000


def test_a_sub_window_that_could_not_be_joined_can_be_sealed(
    db: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    window = db.window("w", **BY_FIELD, keep="all")
    engine = window._engine

    def no_memory(*given: Any, **options: Any) -> Any:
        raise MemoryError

    window.append([row(0)])
    with monkeypatch.context() as patch:
        patch.setattr("tideline.stream.sealing.join_runs", no_memory)
        window.append([row(10)])
        engine.dataset.wait_for_seals()
    assert engine._rejoining == set()
    with pytest.raises(MemoryError):  # told once, to whoever asks
        window.seal()
    window.seal()
    assert engine.memory_bytes == 0
    assert window.range(map="count()") == 2


# ---- retries -----------------------------------------------------------------------------------


def test_a_batch_again_lands_once_also_when_other_rows_are_refused_now(
    db: Any, now: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row that was ahead of the clock at first is not when the batch comes again."""
    monkeypatch.setattr("tideline.stream.engine._FRAME_ROWS", 4)
    window = db.window("w", **{**BY_FIELD, "span_s": 3000, "max_ahead_s": 60}, keep="all")
    rows = [row(1000, v=n, k=n) for n in range(10)]
    rows[1]["t"] = 1100
    write, calls = window._engine._write, []

    def once_only(*given: Any) -> Any:
        if calls:
            raise KeyboardInterrupt
        calls.append(given)
        return write(*given)

    monkeypatch.setattr(window._engine, "_write", once_only)
    with pytest.raises(KeyboardInterrupt):
        window.append(rows, once=("loader", 1))
    monkeypatch.setattr(window._engine, "_write", write)
    assert sorted(window.range()["k"].to_pylist()) == [0, 2, 3, 4]
    now.advance(100)
    window.append(rows, once=("loader", 1))
    assert sorted(window.range()["k"].to_pylist()) == [0, 2, 3, 4, 5, 6, 7, 8, 9]


# ---- requests that cost much -------------------------------------------------------------------


def test_a_long_text_of_a_mapper_costs_nothing(db: Any) -> None:
    """A pattern once tried all ways to share the spaces out: a request stopped the server."""
    window = db.window("w", **BY_FIELD)
    for text in ("median(" + " " * 10**6, "count" + " (" * 10**6, "x" * 10**6):
        with pytest.raises(InvalidRequest, match="at most 1024 characters"):
            window.range(map=text)
    for text in ("median(" + " " * 1000, "count)", "count(", "count()x", "()", "count()("):
        with pytest.raises(InvalidRequest):
            window.range(map=text)
    assert window.range(map=" count ( ) ") == 0


def test_mappers_in_mappers_have_an_end(db: Any) -> None:
    window = db.window("w", **BY_FIELD)
    window.append([row(1, v=7)])
    mapper: Any = "max(v)"
    for _ in range(8):
        mapper = {"a": mapper}
    assert window.range(map=mapper)["a"]["a"]["a"]["a"]["a"]["a"]["a"]["a"] == 7
    for _ in range(5_000):
        mapper = {"a": mapper}
    with pytest.raises(InvalidRequest, match="at most 8 deep"):
        window.range(map=mapper)


@pytest.mark.parametrize("writer", ["\ud800", "", "x" * 257, 5, None])
def test_a_writer_without_a_name_writes_nothing(db: Any, writer: Any) -> None:
    window = db.window("w", **BY_FIELD)
    with pytest.raises(InvalidRequest, match="a writer must be text"):
        window.append([row(1)], once=(writer, 1))
    assert window.append([row(1)], once=("\u20ac", 1)).stored == 1


def test_so_many_mappers_at_once(db: Any) -> None:
    window = db.window("w", **BY_FIELD)
    names = [f"m{n}" for n in range(257)]
    assert len(window.range(map=dict.fromkeys(names[1:], "count()"))) == 256
    for wrong in (
        dict.fromkeys(names, "count()"),
        {"a": dict.fromkeys(names[:200], "count()"), "b": dict.fromkeys(names[:57], "count()")},
    ):
        with pytest.raises(InvalidRequest, match="at most 256 mappers"):
            window.range(map=wrong)


# ---- far slides --------------------------------------------------------------------------------


@pytest.mark.parametrize("panes", [3, 70, 1000])
def test_a_row_after_a_long_silence_costs_the_writer_one_look(
    db: Any, panes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many sub-windows the window slides over: a watch can be told of 64 of them."""
    window = db.window("w", **{**BY_FIELD, "span_s": 10 * panes})
    looks = 0
    live = State.live

    def looking(state: State, pane: int, count: int) -> Any:
        nonlocal looks
        looks += 1
        return live(state, pane, count)

    with window.watch(map="count()") as watch, window.watch(map="sum(v)", last_s=20) as short:
        window.append([row(10 * n) for n in range(panes)])
        watch.take()
        short.take()
        with monkeypatch.context() as patch:
            patch.setattr(State, "live", looking)
            window.append([row(10 * 100 * panes)])
            assert looks <= 2
        # Of the sub-window that was open, of each until all had gone, of an empty window.
        expected = [panes - n for n in range(panes)] + [0]
        found = watch.take()
        assert found[0].missed == len(expected) - len(found)
        assert [pane.value for pane in found] == expected[-64:]
        assert [pane.value for pane in short.take()] == ([2, 1] + [0] * (panes - 1))[-64:]


# ---- odd input ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "columns",
    [
        {"k": [1], "v": 5, "t": [1]},
        {"k": np.array([[1]]), "v": [1], "t": [1]},
        {"k": np.array(1), "v": [1], "t": [1]},
        {"k": [2**70], "v": [1], "t": [1]},
    ],
)
def test_columns_that_are_none_are_refused(db: Any, columns: Any) -> None:
    window = db.window("w", **BY_FIELD)
    with pytest.raises(InvalidRequest):
        window.append(columns)


@pytest.mark.parametrize(
    "column",
    [
        pa.array([b"x", None]), pa.array([[1], None]), pa.array([{"a": 1}, None]),
        pa.array([timedelta(1), None]), pa.array([True, None]), pa.array([True, False]),
        ["\ud800", "a"],
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", ["k", "v", "t"])
def test_columns_of_types_that_no_row_has_are_refused(db: Any, name: str, column: Any) -> None:
    window = db.window("w", **BY_FIELD)
    with pytest.raises(InvalidRequest):
        window.append({"k": [1, 2], "v": [1, 2], "t": [1.0, 2.0], name: column})


def test_dates_and_views_of_text_may_have_nulls(db: Any) -> None:
    window = db.window("w", **BY_FIELD)
    table = pa.table({
        "k": pa.array(["a", None, "b"], pa.string_view()), "v": [1, 2, 3],
        "t": pa.array([date(1970, 1, 1), date(1970, 1, 1), None]),
    })  # fmt: skip
    done = window.append(table)
    assert done.rejected["reason"].to_pylist() == ["k is missing", "t is missing"]
    assert window.get("a") == {"v": 1}


@pytest.mark.parametrize("wide", [-(2.0**63) * 1.5, 2.0**63, 1e300, -math.inf])
@pytest.mark.parametrize("beside", [math.nan, 0.5, 7.0])
def test_a_number_that_does_not_fit_is_refused_whatever_stands_beside_it(
    db: Any, wide: float, beside: float
) -> None:
    window = db.window("w", **{**BY_FIELD, "values": {"v": "int64"}})
    columns = {"k": [1, 2, 3], "v": [wide, beside, -(2.0**63)], "t": [1.0] * 3}
    rows = [{"k": k, "v": v, "t": 1} for k, v in enumerate(columns["v"])]
    doubles = [{**row, "v": np.float64(row["v"])} for row in rows]
    for given in (columns, pa.table(columns), rows, doubles):
        done = window.append(given)
        bad = [0] if beside == 7.0 else [0, 1]
        assert (done.stored, done.rejected["row"].to_pylist()) == (3 - len(bad), bad)
    assert window.range(map="min(v)") == -(2**63)


@pytest.mark.parametrize(
    "bad", [{"v": 1}, {"k": 0.5, "v": 1}, {"k": "\ud800", "v": 1}, {"k": 5, "v": "fast"}]
)
def test_a_row_that_is_refused_does_not_say_what_keys_are(db: Any, bad: dict[str, Any]) -> None:
    """A key field of no declared type is what the first row that is stored has."""
    window = db.window("w", **BY_FIELD)
    done = window.append([{"t": 1, **bad}, {"t": 1, "k": "a", "v": 2}, {"t": 1, "k": 5, "v": 3}])
    assert (done.stored, done.rejected["row"].to_pylist()) == (1, [0, 2])
    assert window.get("a") == {"v": 2}


def test_datetimes_that_are_too_late_are_refused_as_in_columns(db: Any) -> None:
    window = db.window("w", **BY_FIELD)
    late = datetime.max.replace(tzinfo=UTC)
    for given in ([{"k": 1, "v": 1, "t": late}], {"k": [1], "v": [1], "t": [late]}):
        done = window.append(given)
        assert done.rejected["reason"].to_pylist() == ["t is no time from the year 1 to 9892"]


@pytest.mark.parametrize("keys", [5, "abc", [(2**64,)], [(None,)], [(0.5,)]])
def test_many_keys_that_are_none_are_refused(db: Any, keys: Any) -> None:
    window = db.window("w", **BY_FIELD)
    with pytest.raises(InvalidRequest):
        window.get_many(keys)
    window.append([row(1)])
    with pytest.raises(InvalidRequest):
        window.get_many(keys)


def test_a_field_cannot_take_the_name_of_a_column_that_answers_have(db: Any) -> None:
    with pytest.raises(InvalidRequest, match="since"):
        db.window("w", **{**BY_FIELD, "key": "since"})
    with pytest.raises(InvalidRequest, match="found"):
        db.window("w", **{**BY_FIELD, "values": {"found": "int8"}})


def test_a_prefix_with_a_field_that_is_none_is_refused(db: Any) -> None:
    window = db.window("w", **BY_FIELD)
    with pytest.raises(InvalidRequest, match="first fields"):
        window.range({"k": 1, "x": 2})


def test_a_range_of_a_field_that_is_an_array_is_refused(db: Any) -> None:
    with pytest.raises(InvalidRequest, match="least, greatest"):
        db.window("w", **{**BY_FIELD, "key": {"k": np.array([0, 1])}})
