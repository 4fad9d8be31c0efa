"""The batch target on texts that are not JSON, and at the end of memory it may read."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import many
from texts import body_texts, says

from tideline.errors import InvalidRequest
from tideline.where import parse
from tideline.where.batch import matching
from tideline.where.parse import Condition


def first_bad(texts: list[bytes]) -> int | None:
    for row, text in enumerate(texts):
        try:
            msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return row
    return None


def judged_like_the_decoder(condition: Condition, texts: list[bytes]) -> None:
    bad = first_bad(texts)
    bodies = pa.array(texts, pa.binary())
    if bad is None:
        assert matching(condition, bodies).tolist() == says(condition, texts)
    else:
        with pytest.raises(InvalidRequest, match="a body is not valid JSON") as raised:
            matching(condition, bodies)
        assert raised.value.values == {"row": bad}


WHOLE = [
    b'{"a":1,"b":{"c":"x\\u00e9"},"d":[1,{"e":null}],"f":true}',
    b' { "a" : -1.5e+3 , "d" : [ ] , "f" : false , "b" : { } } ',
    '{"a":"é","c":1.25,"f":null,"d":[[],{},"\\n"]}'.encode(),
]
CONDITIONS = [parse({"a": 1}), parse({"b.c": "x"}), parse({"z": 1}), parse({"d": 1, "f": True})]


@pytest.mark.parametrize("condition", CONDITIONS, ids=str)
@pytest.mark.parametrize("whole", WHOLE)
def test_every_cut_of_a_text_is_judged_like_the_decoder_does(whole, condition):
    # After the cut comes a row that would make it whole.
    for size in range(len(whole)):
        judged_like_the_decoder(condition, [whole, whole[:size], whole[size:]])


@st.composite
def damaged(draw: st.DrawFn) -> list[bytes]:
    """Texts of which one or two have bytes put in, taken out or changed."""
    texts = [bytearray(text) for text in draw(body_texts())]
    likely = st.sampled_from(list(b'{}[]",:\\u019.eE+-tfn \n\x00\x7f\x80\xbf\xc3\xe0\xed\xf4'))
    for _ in range(draw(st.integers(1, 2))):
        text = draw(st.sampled_from(texts))
        at = draw(st.integers(0, len(text)))
        kind = draw(st.sampled_from(["put", "cut", "set"]))
        if kind == "put":
            text.insert(at, draw(likely))
        elif at < len(text):
            text[at : at + 1] = b"" if kind == "cut" else bytes([draw(likely)])
    return [bytes(text) for text in texts]


@settings(max_examples=many(300))
@given(st.sampled_from(CONDITIONS), damaged())
def test_damaged_texts_are_judged_like_the_decoder_does(condition, texts):
    judged_like_the_decoder(condition, texts)


VALUES = [
    "01", "-01", "-", "+1", "--1", "1.", ".5", "-.5", "1.e3", "1e", "1e+", "1.5e", "0x1", "1_0",
    "1-2", "1.2.3", "1e5.5", "00", "-00.5", "1e400", "NaN", "tru", "truE", "nul", "fals", "falsy",
    "True", '"', '"a', '"\\"', '"\\x"', '"\\u12"', '"\\ud800"', '"\t"', '"\x00"', "'a'", "[", "[1",
    "[1,]", "[,1]", "[1 2]", "[}", '[{"a"}]', '[{"a":}]', '[{"a":1,}]', '[{"a" 1}]', "[01]", "[1.]",
    "[tru]", "[[1}]", '[{"a":1]]', '[{"a":[1}]}]', "{", "{]", '{"b"}', '{"b":}', '{"b":1,}', "",
    '{,"b":1}', '{"b" 1}', '{"b":1 "c":2}', "{1:2}", '{"b":1]', "1 1", "1}", "1,", '1,"b"', "1]",
    "null}", "\x0c1", "0", "-0", "-0.5", "0.5", "10", "-10", "1.5e+3", "true", "false", "null",
    '""', "[]", "{}", " 1 ", "[ 1 , [ ] , { } ]", "\n\t{ }\r",
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES)
def test_every_value_is_judged_like_the_decoder_does(value):
    rows = [f'{{"a":{value}}}'.encode(), b'{"a":1}']
    for condition in (parse({"a": 1}), parse({"z": 1}), parse({"a.b": 1})):
        judged_like_the_decoder(condition, rows)
        judged_like_the_decoder(condition, [rows[1], rows[0], rows[1]])


def test_the_row_is_counted_over_chunks():
    good = pa.array(['{"a":1}'] * 3)
    with pytest.raises(InvalidRequest, match=r"a body is not valid JSON \(.*\)\. row=5"):
        matching(parse({"a": 1}), pa.chunked_array([good, good.slice(1), pa.array(["{"])]))


# --- memory ---

GUARDED = """
    import ctypes, json, mmap
    import pyarrow as pa
    from tideline.where import parse
    from tideline.where.batch import matching

    # Two pages, the second of which must not be read; texts end where the first one ends.
    page = mmap.PAGESIZE
    memory = mmap.mmap(-1, 2 * page)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(address + page), page, 0) == 0
    conditions = [parse({"a": {"$gt": 1}}), parse({"b": "xy"}), parse({"b": {"$gt": "abcdefghij"}}),
                  parse({"b": {"$regex": "x"}}), parse({"c.d": 1})]
    for size in range(400):
        rows = [json.dumps({"c": {"d": 1}, "e": "z" * size, "a": 12, "b": "xy"}).encode(),
                b'{"a":1234567.25}', b'{"b":"xy"}', b'{"a":12', b'{"b":"x', b'{"c":{"d"', b""]
        for last in range(1, 4 if size else len(rows) + 1):
            text = b"".join(rows[:last])
            memory[page - len(text) : page] = text
            offsets = [sum(map(len, rows[:n])) for n in range(last + 1)]
            bodies = pa.Array.from_buffers(pa.binary(), last, [
                None, pa.array(offsets, pa.int32()).buffers()[1],
                pa.foreign_buffer(address + page - len(text), len(text))])
            for condition in conditions:
                try:
                    matching(condition, bodies)
                except Exception as error:
                    assert "is not valid JSON" in str(error), error
    print("read nothing it must not")
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="guards a page by mprotect")
def test_nothing_past_the_end_of_the_data_is_read():
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(GUARDED)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "read nothing it must not\n"), done.stderr
