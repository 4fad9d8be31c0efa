"""Mappers join exactly, in any grouping; what slides equals a rescan, and reads each row once."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from window_model import ranked

import tideline
from tideline.errors import InvalidRequest
from tideline.index.keyruns import sorted_run
from tideline.index.packed import Packed
from tideline.stream.mappers import mapper_of
from tideline.stream.memory import Sub
from tideline.stream.reading import ByKey, Where
from tideline.stream.settings import Settings
from tideline.stream.settings import given as declared
from tideline.stream.sketch import code_counts, quantile
from tideline.stream.sliding import Sliding, folded
from tideline.testing import ManualClock

CODEC = Packed([(0, 99)])
FINITE = st.floats(allow_nan=False, allow_infinity=False)
EVERY = ["count", "sum(v)", "mean(v)", "min(v)", "max(v)", "quantile(v, 0.25)", "top(3, v)"]


def settings_of(dtype: str) -> Settings:
    return declared("w", [], {"span_s": 60, "key": ("k",), "values": {"v": dtype}})


def run_of(rows: list[tuple[int, Any]], dtype: str) -> Any:
    keys = CODEC.pack([np.array([key for key, _ in rows], np.int64)])
    return sorted_run(CODEC, keys, [np.array([v for _, v in rows], dtype)], last=False)


@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "u2", "i4", "u4", "f4", "i8", "f8"])
@pytest.mark.parametrize("most", [99, (1 << 40) - 1])
def test_a_value_of_any_width_stays_with_its_key(dtype: str, most: int) -> None:
    rng = np.random.default_rng(3)
    codec = Packed([(0, most)])
    given = rng.integers(0, 90, 2000)
    values = rng.integers(-128, 256, 2000).astype(dtype)
    order = np.argsort(given, kind="stable")
    for columns in ([values], [values, values]):
        run = sorted_run(codec, codec.pack([given]), columns, last=False)
        assert codec.unpack(run.keys)[0].tolist() == given[order].tolist()
        for each in run.values:
            assert each.dtype == values.dtype
            assert each.tolist() == values[order].tolist()


@given(st.lists(st.lists(FINITE, max_size=12), max_size=6))
def test_sums_of_doubles_are_exact_in_any_grouping(groups: list[list[float]]) -> None:
    settings = settings_of("float64")
    mapper, mean = mapper_of("sum(v)", settings), mapper_of("mean(v)", settings)
    state, means = mapper.empty(), mean.empty()
    for group in groups:
        state = mapper.join(mapper.of(run_of([(0, v) for v in group], "f8"), mapper.empty()), state)
        means = mean.of(run_of([(0, v) for v in group], "f8"), means)
    values = [value for group in groups for value in group]
    total = sum(map(Fraction, values), Fraction(0))
    assert mapper.result(state) == rounded(total)
    assert mean.result(means) == (rounded(total / len(values)) if values else None)


def rounded(exact: Fraction) -> float:
    """The nearest double; infinite beyond them."""
    try:
        return exact.numerator / exact.denominator
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64"])
@given(data=st.data())
def test_whole_numbers_of_every_width(dtype: str, data: Any) -> None:
    info = np.iinfo(dtype)
    values = data.draw(st.lists(st.integers(int(info.min), int(info.max)), min_size=1, max_size=40))
    settings, run = settings_of(dtype), run_of([(0, v) for v in values], dtype)
    for name, expected in (
        ("sum(v)", sum(values)),
        ("min(v)", min(values)),
        ("max(v)", max(values)),
    ):
        mapper = mapper_of(name, settings)
        assert mapper.result(mapper.of(run, mapper.empty())) == expected


@given(
    st.lists(st.one_of(FINITE, st.integers(-50, 50).map(float)), min_size=1, max_size=200),
    st.floats(0, 1), st.sampled_from([0.0005, 0.01, 0.2]),
)  # fmt: skip
def test_a_quantile_is_within_its_error(values: list[float], q: float, error: float) -> None:
    exact = ranked(q, values)
    near = quantile(code_counts(np.array(values), error), q, error)
    if exact is not None and abs(exact) < 1e-300:  # a subnormal has few digits of its own
        assert near == pytest.approx(exact, abs=1e-300)
    else:
        assert near == pytest.approx(exact, rel=error * (1 + 1e-6) + 1e-9)


@given(st.data())
def test_what_slides_equals_a_rescan_whatever_comes_late(data: Any) -> None:
    settings = settings_of("float64")
    panes = data.draw(st.integers(1, 7))
    subs: dict[int, Sub] = {}
    mapper = mapper_of(EVERY, settings)
    asked = ByKey(Where(()), last=False)
    sliding = Sliding(mapper, asked, panes)
    seq = pane = 0
    for _ in range(data.draw(st.integers(1, 25))):
        pane += data.draw(st.sampled_from([1, 1, 1, 1, 2, 9]))
        for back in data.draw(st.lists(st.integers(0, panes - 1), max_size=3)):
            rows = data.draw(st.lists(st.tuples(st.integers(0, 9), FINITE), min_size=1, max_size=4))
            seq += len(rows)
            old = subs.get(pane - back) or Sub(pane - back)
            subs[pane - back] = old._replace(runs=(*old.runs, run_of(rows, "f8")), version=seq)
        live = [subs[n] for n in sorted(subs) if pane - panes < n <= pane]
        assert sliding.slide(live, pane) == mapper.result(folded(mapper, live, asked))


def test_each_sub_window_is_read_once_and_joined_about_three_times() -> None:
    settings = settings_of("int32")
    panes, slides = 50, 1_000
    mapper = mapper_of("sum(v)", settings)
    sliding = Sliding(mapper, ByKey(Where(()), last=False), panes)
    subs = [Sub(n, (run_of([(0, n)], "i4"),), version=n + 1) for n in range(slides)]
    for pane in range(slides):
        live = subs[max(0, pane - panes + 1) : pane + 1]
        assert sliding.slide(live, pane) == sum(range(max(0, pane - panes + 1), pane + 1))
    assert sliding.reads == slides
    assert sliding.joins <= 3.2 * slides


@numba.njit
def _area(state: float, a: int, b: int, v: int) -> float:
    return state + a * b + v


@numba.njit
def _by_key(state: float, key: Any, value: int) -> float:
    return state + key[0] * key[1] + value


def test_functions_are_folded_compiled_and_plain() -> None:
    with tideline.open(":memory:", clock=ManualClock(0)) as db:
        window = db.window("w", span_s=20, slide_s=10, key=("a", "b"), values={"v": "int32"})
        window.append([{"a": a, "b": b, "v": a + b} for a in range(4) for b in range(4)])
        expected = sum(a * b + a + b for a in range(1, 3) for b in range(4))
        for function in (_area, _by_key, _area.py_func, _by_key.py_func):
            assert window.range(((1,), (3,)), map=function, initial=0.0) == expected
        seen = window.range((2,), map=lambda state, key, v: [*state, (key, v)], initial=[])
        assert seen == [((2, b), 2 + b) for b in range(4)]
        for wrong, options in (
            (_area, {}), (lambda x: x, {"initial": 0}), ("sum(v)", {"initial": 0}), (7, {}),
            ("sum(w)", {}), ("summ(v)", {}), ("top(0, v)", {}), ("quantile(v, 2)", {}), ("sum", {}),
            ("median(v, 0.9)", {}), ([], {}), (_area, {"initial": 0, "combine": 7}),
        ):  # fmt: skip
            with pytest.raises(InvalidRequest):
                window.range((), map=wrong, **options)


def test_a_function_with_combine_slides_by_sub_windows() -> None:
    clock = ManualClock(0)
    with tideline.open(":memory:", clock=clock) as db:
        window = db.window("w", span_s=30, slide_s=10, key="a", values={"v": "int32"}, keep="all")
        counted: list[int] = []

        def count(state: int, a: int, v: int) -> int:
            counted.append(v)
            return state + v

        with (
            window.watch(map=count, initial=0, combine=lambda a, b: a + b) as joined,
            window.watch(map=count, initial=0) as anew,
        ):
            for step in range(5):
                window.append({"a": 1, "v": step})
                clock.advance(10)
            sums = [0, 1, 3, 6, 9]
            assert [pane.value for pane in joined.take()] == sums
            assert len(counted) == 5
            assert [pane.value for pane in anew.take()] == sums
            assert len(counted) == 5 + 1 + 2 + 3 + 3 + 3
