"""Bytes of scalars sort as the values do, and the batch twin writes the same bytes."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tideline.addresses import address_of
from tideline.errors import InvalidRequest
from tideline.kernels import jsonpath as at
from tideline.kernels.documents import keys as twin
from tideline.where.keys import LIMIT, decode, encode, high_of, is_cut, low_of
from tideline.where.order import sort_key
from tideline.where.values import MISSING, compare, equal

NUMBERS = st.one_of(
    st.integers(-(2**64), 2**64),
    st.integers(2**53 - 3, 2**53 + 9),
    st.integers(-(2**53) - 9, -(2**53) + 3),
    st.integers(2**63 - 2000, 2**63 + 2000),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([0.0, -0.0, 5e-324, -5e-324, 1.7976931348623157e308, float(2**60)]),
)
SCALARS = st.one_of(st.none(), st.booleans(), NUMBERS, st.text(max_size=12))


@given(SCALARS, SCALARS)
@example(2**53, 2**53 + 1)
@example(2**60 + 1, float(2**60))
@example(1, True)
@example("", None)
def test_bytes_order_as_conditions_and_sorting_do(a: Any, b: Any) -> None:
    one, other = encode(a), encode(b)
    assert (one > other) - (one < other) == compare(a, b)
    assert (one == other) == equal(a, b)
    assert (one < other) == (sort_key(a) < sort_key(b))


@given(SCALARS)
def test_decode_gives_an_equal_value_back(value: Any) -> None:
    assert equal(decode(encode(value)), value)


@given(NUMBERS)
def test_numbers_lie_in_their_bracket(value: Any) -> None:
    assert low_of("number") <= encode(value) < high_of("number")


def test_brackets_come_one_after_the_other() -> None:
    names = ["null", "number", "text", "boolean"]
    bounds = [bound for name in names for bound in (low_of(name), high_of(name))]
    assert bounds == sorted(bounds)
    assert low_of("text") <= encode("") < encode("\U0010ffff" * 2000) < high_of("text")
    assert low_of("boolean") <= encode(False) < encode(True) < high_of("boolean")
    assert low_of("null") <= encode(MISSING) < high_of("null")


def test_long_text_is_cut_and_says_so() -> None:
    assert len(encode("x" * 5000)) == LIMIT
    assert is_cut(encode("x" * 1024))
    assert not is_cut(encode("x" * 1023))
    assert encode("x" * 1024 + "a") == encode("x" * 1024 + "b")
    assert decode(encode("é" * 600)) == "é" * 512
    assert decode(encode("x" + "é" * 600)) == "x" + "é" * 511


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 10**400, "\ud800", [], {}, b"x"])
def test_what_has_no_place_in_an_index_is_refused(value: Any) -> None:
    with pytest.raises(InvalidRequest):
        encode(value)


PLAIN = st.one_of(
    st.booleans(), st.none(), st.text(max_size=9), st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
)  # fmt: skip


@given(st.lists(PLAIN, max_size=20))
@example([2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63), 2**62 + 255, 2**62 + 256, 0, -1])
@example(["x" * 2000, "é" * 700, 0.0, -0.0, 1e300])
def test_the_batch_twin_writes_the_same_bytes(values: list[Any]) -> None:
    texts = b"".join(value.encode() for value in values if isinstance(value, str))
    data = np.frombuffer(texts + b"\0", np.uint8)
    tags, numbers = np.zeros((2, len(values)), np.int64)
    place = 0
    for n, value in enumerate(values):
        if isinstance(value, bool):
            tags[n] = at.TRUE if value else at.FALSE
        elif value is None:
            tags[n] = at.NULL if n % 2 else at.MISSING
        elif isinstance(value, int):
            tags[n], numbers[n] = at.INT, value
        elif isinstance(value, float):
            tags[n], numbers[n] = at.FLOAT, np.float64(value).view(np.int64)
        else:
            size = len(value.encode())
            tags[n], numbers[n] = at.TEXT | size << 8, place
            place += size
    offsets = np.zeros(len(values) + 1, np.int64)
    out = np.zeros(len(values) * twin.ROOM + len(texts), np.uint8)
    rows = np.arange(len(values))
    used = twin.encode_column(address_of(data), tags, numbers, rows, offsets, out)
    assert used == offsets[-1]
    found = [out[a:b].tobytes() for a, b in pairwise(offsets)]
    assert found == [encode(value) for value in values], json.dumps(values)


def test_a_row_that_is_no_plain_scalar_gets_no_bytes() -> None:
    tags = np.array([at.ARRAY, at.INT, at.OBJECT, at.UNSURE, at.ESCAPED], np.int64)
    offsets = np.zeros(6, np.int64)
    out = np.zeros(99, np.uint8)
    twin.encode_column(0, tags, np.ones(5, np.int64), np.arange(5), offsets, out)
    assert np.diff(offsets).tolist() == [0, 9, 0, 0, 0]
    assert LIMIT == twin.LIMIT
