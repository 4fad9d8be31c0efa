"""The kernel that checks JSON accepts exactly what the standard and the decoders do."""

from __future__ import annotations

import json

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import many

from tideline.kernels.jsontext import DEPTH_LIMIT, check_rows, valid_json


def valid(text: bytes) -> bool:
    # Other bytes around the text, which the kernel must not look at.
    data = np.frombuffer(b'"[' + text + b'"]1', np.uint8)
    return valid_json(data, 2, 2 + len(text))


def no_constant(name: str) -> None:
    raise ValueError(name)


def json_says(text: bytes) -> bool:
    """The standard library, held to the standard."""
    try:
        json.loads(text.decode("utf-8"), parse_constant=no_constant)
    except (ValueError, RecursionError):
        return False
    return True


def msgspec_says(text: bytes) -> bool:
    try:
        msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    return True


VALID = [
    b"0", b"-0", b"1", b"-1.5e+10", b"1E-400", b"0.0e400", b"0e99999999999999999999999999",
    b"1.7976931348623157e308", b"-1.7976931348623157e308", b"179769313486231570" + b"0" * 291,
    b"0." + b"0" * 400 + b"1e700", b"1" + b"0" * 308, b"1" + b"0" * 308 + b".5e-300",
    b"true", b"false", b"null", b" \t\r\n1 \t\r\n", b'""', b'"\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9"',
    b'"\\ud83d\\uDE00"', '"é€😀\u007f\ufeff"'.encode(), b'"\xed\x9f\xbf\xee\x80\x80"',
    b'"\xf0\x90\x80\x80\xf4\x8f\xbf\xbf\xe0\xa0\x80\xc2\x80"',
    b"[]", b"{}", b"[ ]", b"{ }", b"[1,[2,{}],{}]", b'{"a":{"b":[]},"c":1}', b'{"a":1,"a":2}',
    b' { "a" : [ 1 , 2 ] , "b" : { } } ', b"[" * DEPTH_LIMIT + b"]" * DEPTH_LIMIT,
    b'{"":' * DEPTH_LIMIT + b"0" + b"}" * DEPTH_LIMIT,
]  # fmt: skip
INVALID = [
    b"", b" ", b"NaN", b"Infinity", b"-Infinity", b"nan", b"tru", b"truE", b"truee", b"nul",
    b"fals", b"falsy", b"None", b"-", b"+1", b"01", b"-01", b"00", b"1.", b".5", b"1.e5", b"1e",
    b"1e+", b"1e+-5", b"0x10", b"1_0", b"1e400", b"-1e309", b"1.7976931348623159e308",
    b"1" + b"0" * 309, b"0." + b"0" * 400 + b"1e710", b"1e99999999999999999999999999", b"1 2",
    b"[", b"]", b"{", b"}", b"[1", b"[1,", b"[1,]", b"[,1]", b"[1 2]", b"[}", b"{]", b"[1}",
    b'{"a"}', b'{"a":}', b'{"a":1,}', b'{,"a":1}', b'{"a" 1}', b'{"a":1 "b":2}', b"{1:2}", b"{a:1}",
    b'{"a":1]', b'"', b'"a', b'"\\"', b'"\\', b'"\\x"', b'"\\u"', b'"\\u12"', b'"\\u12g4"',
    b"'a'", b'"\n"', b'"\x00"', b'"\x1f"', b"\x0c1", b"1\x00", b"\xef\xbb\xbf1", b"\xc2\xa01",
    b'"\\ud800"', b'"\\udc00"', b'"\\ud800\\ud800"', b'"\\ud800x"', b'"\\ud83d\\u0041"',
    b'"\\ud83d\\', b'"\x80"', b'"\xc0\x80"', b'"\xc1\xbf"', b'"\xc3"', b'"\xc3', b'"\xe0\x9f\xbf"',
    b'"\xed\xa0\x80"', b'"\xe2\x82"', b'"\xf0\x8f\xbf\xbf"', b'"\xf4\x90\x80\x80"', b'"\xf5"',
    b'"\xff"', b"// c\n1", b"1 // c", b"/**/1",
    b"[" * (DEPTH_LIMIT + 1) + b"]" * (DEPTH_LIMIT + 1), b"[" * 5000,
]  # fmt: skip


@pytest.mark.parametrize("text", VALID)
def test_json_is_accepted_and_decoders_agree(text):
    assert valid(text)
    assert json_says(text)
    assert msgspec_says(text)


@pytest.mark.parametrize("text", INVALID)
def test_what_is_not_json_is_refused(text):
    assert not valid(text)


@pytest.mark.parametrize("text", VALID)
def test_every_cut_of_a_text_is_judged_like_the_decoder_does(text):
    for size in range(min(len(text), 60)):
        assert valid(text[:size]) is msgspec_says(text[:size])


documents = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**80), 2**80)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@st.composite
def texts(draw):
    return json.dumps(
        draw(documents),
        ensure_ascii=draw(st.booleans()),
        indent=draw(st.sampled_from([None, 0, 2])),
    ).encode()


@given(texts())
def test_what_json_writes_is_accepted(text):
    assert valid(text)


@st.composite
def mutated(draw):
    """A text with a few bytes put in, taken out or changed for others that matter in JSON."""
    text = bytearray(draw(texts()))
    likely = st.sampled_from(list(b'{}[]",:\\u019.eE+-tfn \n\x00\x7f\x80\xbf\xc3\xe0\xed\xf4'))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(text)))
        kind = draw(st.sampled_from(["put", "cut", "set"]))
        if kind == "put":
            text.insert(at, draw(likely))
        elif at < len(text):
            text[at : at + 1] = b"" if kind == "cut" else bytes([draw(likely)])
    return bytes(text)


@settings(max_examples=many(500))
@given(mutated() | st.binary(max_size=12) | st.text('{}[]",:\\u01.eE-d', max_size=14))
def test_damaged_text_is_judged_like_the_decoders_do(text):
    text = text.encode() if isinstance(text, str) else text
    judged = valid(text)
    assert judged is msgspec_says(text)
    if judged:
        assert json_says(text)


@given(st.from_regex(rb"-?[0-9]{1,25}(\.[0-9]{1,25})?([eE][+-]?[0-9]{1,4})?", fullmatch=True))
def test_numbers_are_judged_like_the_decoder_does(text):
    assert valid(text) is msgspec_says(text)


@given(st.lists(st.tuples(mutated() | texts(), st.booleans()), max_size=8))
def test_rows_are_judged_one_by_one(rows):
    offsets = np.cumsum([0] + [len(text) for text, _ in rows])
    wanted = np.array([wish for _, wish in rows], np.bool_)
    ok = np.empty(len(rows), np.bool_)
    bad = check_rows(np.frombuffer(b"".join(t for t, _ in rows), np.uint8), offsets, wanted, ok)
    assert ok.tolist() == [not wish or valid(text) for text, wish in rows]
    assert bad == len(rows) - ok.sum()


def test_rows_take_the_offsets_of_an_arrow_column():
    ok = np.empty(2, np.bool_)
    data = np.frombuffer(b"xx[1]2", np.uint8)
    assert check_rows(data, np.array([2, 5, 6], np.int32), np.ones(2, np.bool_), ok) == 0
    assert ok.all()
