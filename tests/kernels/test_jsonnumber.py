"""Numbers in JSON text are read as a decoder reads them, to the last bit, or not at all."""

from __future__ import annotations

import struct
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from profiles import many

from tideline.addresses import address_of
from tideline.kernels.jsonnumber import FLOAT, INT, UNSURE, read_number


def read(text: str) -> Any:
    """The number in the text, "unsure", or None for what is no number."""
    data = np.frombuffer(f"{text},".encode() + b"9" * 64, np.uint8)
    address = address_of(data)
    end, kind, value = read_number(address, address + len(text) + 1)
    if end - address != len(text):
        return None
    if kind == FLOAT:
        return struct.unpack("<d", struct.pack("<q", value))[0]
    assert kind in (INT, UNSURE)
    return int(value) if kind == INT else "unsure"


def decoded(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return None


def same(found: Any, wanted: Any) -> bool:
    """The same type and value; a zero has a sign."""
    return type(found) is type(wanted) and repr(found) == repr(wanted)


floats = st.floats(allow_nan=False, allow_infinity=False)
halfway = st.builds(  # between two floats, where rounding to even shows
    lambda bits, power: f"{2 * (bits | 1 << 52) + 1}e{power}",
    st.integers(0, (1 << 53) - 1),
    st.integers(-30, 30),
)
written = st.one_of(
    floats.map(repr),
    st.integers(-(10**20), 10**20).map(str),
    st.builds(
        lambda value, digits: f"{value:.{digits}f}", st.floats(-1e9, 1e9), st.integers(1, 18)
    ),
    st.builds(lambda value, digits: f"{value:.{digits}e}", floats, st.integers(0, 19)),
    st.from_regex(r"-?[0-9]{1,20}(\.[0-9]{0,20})?([eE][+-]?[0-9]{0,4})?", fullmatch=True),
    st.text("0123456789.eE+-", min_size=1, max_size=12),
    halfway,
)


@settings(max_examples=many(2_000))
@given(written)
@example("9007199254740993.0")
@example("9007199254740993e0")
@example("4503599627370496.5")
@example("4503599627370497.5")
@example("9007199254740991.5")
@example("1.7976931348623159e308")
@example("0e400")
def test_a_number_is_what_the_decoder_reads(text: str) -> None:
    found, wanted = read(text), decoded(text)
    assert (found == "unsure" and wanted is not None) or same(found, wanted)


@settings(max_examples=many(500))
@given(
    st.floats(-1e15, 1e15).filter(lambda value: value == 0 or abs(value) > 1e-3).map(repr)
    | st.integers(-(10**18) + 1, 10**18 - 1).map(str)
)
@example("0")
@example("-0")
@example("0.0")
@example("-0.0")
@example("1e3")
@example("6.02214076e23")
def test_the_numbers_people_write_are_read(text: str) -> None:
    assert same(read(text), decoded(text))


@pytest.mark.parametrize(
    "text", ["1234567890123456789", "18446744073709551615", "5e-324", "1" * 40, "0." + "1" * 40]
)
def test_what_is_not_read_exactly_is_not_read(text: str) -> None:
    assert read(text) == "unsure"
