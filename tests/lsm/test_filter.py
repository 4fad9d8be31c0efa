"""A filter may be too wide, never too narrow."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tideline.errors import InvalidRequest
from tideline.lsm.filter import MinMax

numbers = st.integers(-50, 50)
values = st.lists(numbers)


def of(found):
    return MinMax(min(found), max(found)) if found else MinMax.empty()


@given(values, numbers, numbers)
def test_nothing_that_is_there_is_skipped(found, low, high):
    if any(low <= value <= high for value in found):
        assert of(found).overlaps(low, high)
    if not found or low > high:
        assert not of(found).overlaps(low, high)


@given(values, values)
def test_a_merged_filter_is_the_filter_of_both(one, other):
    assert of(one).merge(of(other)) == of(one + other)


@given(values)
def test_a_filter_survives_json(found):
    assert MinMax.from_json(json.loads(json.dumps(of(found).to_json()))) == of(found)


def test_numpy_integers_become_plain_ones():
    assert json.dumps(MinMax(np.int64(1), np.int64(2)).to_json()) == "[1, 2]"


@given(st.lists(st.binary(max_size=3)), st.binary(max_size=3), st.binary(max_size=3))
def test_bytes_have_a_range_too(found, low, high):
    if any(low <= value <= high for value in found):
        assert of(found).overlaps(low, high)
    if not found or low > high:
        assert not of(found).overlaps(low, high)
    assert MinMax.from_json(json.loads(json.dumps(of(found).to_json()))) == of(found)
    assert of(found).merge(of([low])) == of([*found, low])


@pytest.mark.parametrize(
    ("low", "high"), [(2, 1), (0.5, 1), ("a", "b"), (None, 1), (b"b", b"a"), (b"a", 1)]
)
def test_what_is_no_range_is_refused(low, high):
    with pytest.raises(InvalidRequest):
        MinMax(low, high)


@pytest.mark.parametrize("value", [None, [1], [1, 2, 3], {}, [2, 1], ["6", "61"], ["61", 1]])
def test_what_is_no_written_filter_is_refused(value):
    with pytest.raises(InvalidRequest):
        MinMax.from_json(value)
