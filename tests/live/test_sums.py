"""Sums of `aggregate` and of live groups are exact: rounded once, whatever the order."""

from __future__ import annotations

import contextlib
import math
import random
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

import tideline
from tideline.documents.sums import ExactSum

FLOATS = st.floats(allow_nan=False, allow_infinity=False, width=64)
NUMBERS = FLOATS | st.integers(-(2**70), 2**70)


@given(st.lists(FLOATS, min_size=1), st.lists(NUMBERS))
def test_a_sum_is_that_of_fsum_whatever_came_and_went(kept: list[float], gone: list[float]) -> None:
    total = ExactSum()
    operations = [(True, number) for number in kept + gone]
    random.Random(len(kept)).shuffle(operations)
    for _, number in operations:
        total.add(number)
    for number in gone:
        total.remove(number)
    assert total.count == len(kept)
    exact = sum(map(Fraction, kept))
    try:
        expected = float(exact)
    except OverflowError:
        expected = math.inf if exact > 0 else -math.inf
    assert total.result() == expected
    with contextlib.suppress(OverflowError):  # fsum gives up where an intermediate sum is too large
        assert total.result() == math.fsum(kept)


@given(st.lists(st.integers(-(2**70), 2**70)))
def test_whole_numbers_stay_whole(numbers: list[int]) -> None:
    total = ExactSum()
    for number in numbers:
        total.add(number)
    assert total.result() == sum(numbers)
    assert type(total.result()) is int


def test_aggregate_and_groups_agree_on_what_floats_sum_to() -> None:
    values = [0.1] * 10 + [1e16, 1, -1e16, 2**53 + 1, 1e-320, -0.5]
    with tideline.open(":memory:") as db:
        rows = db.collection("rows", key="id")
        live = rows.watch_groups(by="g", count=True, sum="x", avg="x")
        rows.put_many([{"id": n, "g": 1, "x": x} for n, x in enumerate(values)])
        live.take()
        for n in (10, 11, 12, 15):
            [told] = rows.aggregate([
                {"$group": {"_id": "$g", "count": {"$sum": 1}, "sum": {"$sum": "$x"},
                            "avg": {"$avg": "$x"}}},
            ])  # fmt: skip
            left = [x for k, x in enumerate(values) if rows.get(k) is not None]
            assert told["sum"] == float(sum(map(Fraction, left)))
            assert live.result == [
                {"g": 1, "count": told["count"], "sum_x": told["sum"], "avg_x": told["avg"]}
            ]
            rows.delete(n)
            live.take()


@given(st.lists(FLOATS, min_size=1))
def test_a_mean_is_rounded_once(numbers: list[float]) -> None:
    total = ExactSum()
    for number in numbers:
        total.add(number)
    assert total.mean() == float(sum(map(Fraction, numbers)) / len(numbers))
