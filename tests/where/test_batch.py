"""The batch target says of every body what the predicate says of it, decoded."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import many
from strategies import TEXTS, documents, scalars
from texts import body_texts, raw_numbers, says

from tideline.errors import InvalidRequest
from tideline.where import ALWAYS, batch, parse
from tideline.where.batch import matching
from tideline.where.operators import OPERATORS

# --- the same answer ---


@settings(max_examples=many(300))
@given(documents(), body_texts())
def test_a_batch_gets_the_answers_of_the_predicate(document, texts):
    condition = parse(document)
    assert matching(condition, pa.array(texts, pa.binary())).tolist() == says(condition, texts)


COMPARED = st.sampled_from([*TEXTS, "abcdefgh", "abcdefghi", "abcdefgh\0", "a\0", "é" * 9])


@settings(max_examples=many(200))
@given(
    st.sampled_from(["$eq", "$ne", "$gt", "$gte", "$lt", "$lte"]),
    COMPARED | st.text(max_size=12),
    st.lists(COMPARED | st.text(max_size=12), min_size=1, max_size=9),
)
def test_texts_compare_by_code_point(operator, wanted, texts):
    condition = parse({"a": {operator: wanted}})
    rows = [json.dumps({"a": text}, ensure_ascii=False).encode() for text in texts]
    assert matching(condition, pa.array(rows, pa.binary())).tolist() == says(condition, rows)


@settings(max_examples=many(300))
@given(
    st.sampled_from(["$eq", "$ne", "$gt", "$gte", "$lt", "$lte"]),
    raw_numbers,
    st.lists(raw_numbers, max_size=9),
)
def test_numbers_compare_exactly(operator, wanted, numbers):
    value = msgspec.json.decode(wanted)
    if isinstance(value, int) and not -(1 << 64) < value < 1 << 64:
        value = float(value)
    condition = parse({"a": {operator: value}})
    rows = [b'{"a":%s}' % number.encode() for number in [*numbers, wanted]]
    assert matching(condition, pa.array(rows, pa.binary())).tolist() == says(condition, rows)


@settings(max_examples=many(100))
@given(st.sampled_from(["$in", "$nin"]), st.lists(scalars() | raw_numbers.map(float)), body_texts())
def test_long_lists_of_values(operator, listed, texts):
    condition = parse({"a": {operator: [*listed, *range(9)]}})
    assert matching(condition, pa.array(texts, pa.binary())).tolist() == says(condition, texts)


EXAMPLES = [(name, body) for name, it in OPERATORS.items() for body in (*it.holds, *it.fails)]


@pytest.mark.parametrize(("name", "body"), EXAMPLES, ids=lambda it: json.dumps(it)[:40])
def test_the_examples_of_the_operators(name, body):
    condition = parse(OPERATORS[name].example, delta=True)
    rows = [json.dumps(body).encode()] * 2
    assert matching(condition, pa.array(rows, pa.binary())).tolist() == says(condition, rows)


PLACES = [
    {"at": {"$geoWithin": {"$box": [[-1, -1], [1, 1]]}}},
    {"at": {"$geoWithin": {"$centerSphere": [[0, 0], 0.01]}}},
]


@pytest.mark.parametrize("document", PLACES, ids=str)
def test_places(document):
    condition = parse(document)
    bodies: list[Any] = [
        {"at": [0, 0]}, {"at": [9, 9]}, {"at": {"type": "Point", "coordinates": [0.5, 0]}}, {},
        {"at": 0}, {"at": None}, {"at": {"lon": 0}},
    ]  # fmt: skip
    rows = [json.dumps(body).encode() for body in bodies]
    assert matching(condition, pa.array(rows, pa.binary())).tolist() == says(condition, rows)
    assert says(condition, rows)[:3] == [True, False, True]


# --- shapes that the fast way must tell apart ---

CASES: list[tuple[dict[str, Any], list[str]]] = [
    # One name in different objects, which look alike from inside.
    ({"from.x": 1}, ['{"from":{"x":1},"to":{"x":2}}', '{"to":{"x":1},"from":{"x":2}}'] * 3),
    ({"x": 1}, ['{"o":{"x":1}}', '{"o":{},"x":1}', '{"o":{"x":0},"x":1}', '{"o":{"x":0,"x":1}}']),
    ({"a.a.a": 1}, ['{"a":{"a":{"a":1}}}', '{"a":{"a":1}}', '{"a":1}', '{"a":{"a":{"b":1}}}'] * 2),
    # A name that begins or ends like another.
    ({"ab": 1}, ['{"a":1,"abc":1,"b":1}', '{"ab":1}', '{"ab ":1}', '{"abc":1,"ab":1}'] * 2),
    # Twice the same name: the last one counts, with all that is in it.
    ({"a": 2}, ['{"a":1,"a":2}', '{"a":2,"a":1}', '{"a":2,"b":0,"a":"2"}']),
    ({"a.b": 2}, ['{"a":{"b":2},"a":{}}', '{"a":{"b":2},"a":3}', '{"a":1,"a":{"b":2}}']),
    # Names with escapes, names that are not ASCII.
    ({"a": 1}, [r'{"\u0061":1}', r'{"a":2,"\u0061":1}', r'{"\u0062":1}', r'{"b":{"\u0061":1}}']),
    ({"é": 1}, ['{"é":1}', r'{"\u00e9":1}', '{"e":1}']),
    # A name longer than a lead that is kept, wanted and not.
    ({"n" * 40: 1}, [f'{{"{"n" * 40}":1}}', f'{{"{"n" * 39}":1}}', f'{{"{"n" * 41}":1}}'] * 2),
    ({"n" * 40 + ".a": 1}, [f'{{"{"n" * 40}":{{"a":1}},"{"m" * 40}":{{"a":2}}}}'] * 2),
    ({"a": 1}, [f'{{"{"n" * 40}":{{"a":1}},"a":2}}', f'{{"{"n" * 40}":{{"a":2}},"a":1}}'] * 2),
    # Arrays on the way, at the end, in what nobody wants.
    ({"a.b": 1}, ['{"a":[{"b":1}]}', '{"a":[[{"b":1}]]}', '{"a":[]}', '{"a":{"b":[1]}}']),
    ({"a.0": 1}, ['{"a":[1]}', '{"a":{"0":1}}', '{"a":[0,1]}']),
    ({"b": 1}, ['{"a":[1,{"b":[2,"]"]},[],{},true,null,-1.5e3],"b":1}', '{"a":[[[]]],"b":2}']),
    ({"a": {"$size": 2}}, ['{"a":[1,2]}', '{"a":[[1,2]]}', '{"a":[{"b":[]},[3,4]]}', '{"a":[]}']),
    ({"a": [1, 2]}, ['{"a":[1,2]}', '{"a":[[1,2]]}', '{"a":[1, 2.0]}', '{"a":{"0":1}}']),
    ({"a": {"b": 1}}, ['{"a":{"b":1}}', '{"a":{"b":1,"c":2}}', '{"a":[{"b":1}]}', '{"a":{}}']),
    # Bodies that are no objects.
    ({"a": {"$ne": 1}}, ["1", "null", '"a"', "[]", "{}", ' {"a":1} ', '\n{\t"a":2}\r\n']),
    ({"$nor": [{"a": 1}]}, ["1", "[]", "{}", '{"a":1}']),
    ({"$and": [{}]}, ["1", "[]", "{}", '{"a":1}']),
    # Words.
    ({"a": True}, ['{"a":true}', '{"a":false}', '{"a":null}', '{"a":[true]}', '{"a":"true"}']),
    ({"a": None}, ['{"a":true}', '{"a":false}', '{"a":null}', "{}", '{"a":[null]}', '{"b":null}']),
]  # fmt: skip


@pytest.mark.parametrize(("document", "texts"), CASES, ids=lambda it: str(it)[:50])
def test_cases(document, texts):
    condition = parse(document)
    rows = [text.encode() for text in texts]
    assert matching(condition, pa.array(rows, pa.binary())).tolist() == says(condition, rows)


def test_more_names_than_leads_are_kept():
    rows = [
        json.dumps({f"name {n * 7 % 900}": n, f"x{n}": {"y": n % 3}, "y": n % 5}).encode()
        for n in range(1_000)
    ]
    for condition in (parse({"y": 3}), parse({"x9.y": 0}), parse({"name 63": {"$gt": 0}})):
        assert matching(condition, pa.array(rows, pa.binary())).tolist() == says(condition, rows)


@pytest.mark.parametrize("size", [30, 31, 32, 33, 56, 57, 58, 63, 64, 65, 500, 8_191, 70_000])
def test_long_texts(size):
    wanted = "é" + "y" * min(size, 9_000)
    rows = [
        json.dumps({"a": "x" * size, "b": text, "c": 1}, ensure_ascii=False).encode()
        for text in (wanted, wanted[1:], wanted[:-1] + "z", wanted + "y" * size)
    ]
    condition = parse({"b": wanted})
    assert matching(condition, pa.array(rows, pa.binary())).tolist() == [True, False, False, False]


@pytest.mark.parametrize("depth", [1, 60, 63, 64, 65, 66, 130, 300])
def test_deep_bodies(depth):
    path = ".".join("a" * depth)
    rows = [
        b'{"a":' * depth + b"1" + b"}" * depth,
        b'{"b":' * depth + b"1" + b"}" * depth,
        b'{"b":' + b"[" * depth + b"]" * depth + b',"a":2}',
        b'{"a":' * (depth - 1) + b'{"a":2}' + b"}" * (depth - 1),
    ]
    for condition in (parse({path: 1}), parse({"a": 2}), parse({"b": {"$exists": True}})):
        assert matching(condition, pa.array(rows, pa.binary())).tolist() == says(condition, rows)


def test_many_rows_and_many_paths():
    rows = [
        json.dumps({"kind": "jam" if n % 3 else "fog", "n": n, "o": {"p": n / 4}}).encode()
        for n in range(70_000)
    ]
    bodies = pa.array(rows, pa.binary())
    assert matching(parse({"n": {"$gte": 65_000}, "kind": "fog"}), bodies).sum() == 1_667
    assert matching(parse({"o.p": {"$lt": 2.5}}), bodies).nonzero()[0].tolist() == list(range(10))
    many = parse({"$or": [{f"f{k}.g": 1} for k in range(60)] + [{"n": 69_999}]})
    assert matching(many, bodies).nonzero()[0].tolist() == [69_999]


# --- the fast way is the one that is used ---

FAST = [
    {"speed": {"$gt": 50}}, {"speed": 50}, {"temp": {"$lt": 3.25, "$gte": -1}}, {"kind": "jam"},
    {"kind": {"$in": ["jam", "fog"]}}, {"kind": {"$in": [f"k{n}" for n in range(20)]}},
    {"open": True}, {"gone": None}, {"road.lanes": {"$lte": 2}}, {"road.name": {"$gt": "A"}},
    {"kind": {"$regex": "^j.m$", "$options": "i"}}, {"kind": {"$words": "jam"}},
    {"speed": {"$mod": [7, 1]}}, {"speed": {"$type": "int"}}, {"speed": {"$exists": False}},
    {"tags": {"$size": 2}}, {"$nor": [{"kind": {"$not": {"$fuzzy": {"word": "jan"}}}}]},
]  # fmt: skip


@pytest.mark.parametrize("document", FAST, ids=str)
def test_common_conditions_decode_nothing(document, monkeypatch):
    random = Random(1)
    rows = [
        json.dumps(
            {"kind": random.choice(["jam", "fog", "Straße"]), "speed": random.randrange(99),
             "temp": random.uniform(-9, 9), "open": random.random() < 0.5, "tags": ["a", "b"],
             "road": {"name": f"A{random.randrange(9)}", "lanes": random.randrange(1, 5)}},
            ensure_ascii=False,
        ).encode()
        for _ in range(200)
    ]  # fmt: skip
    condition = parse(document)
    expected = says(condition, rows)
    monkeypatch.setattr(batch, "_decoded", None)
    assert matching(condition, pa.array(rows, pa.binary())).tolist() == expected


# --- arrays of every make ---

TYPES = [
    pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), pa.string_view(),
    pa.binary_view(), pa.dictionary(pa.int32(), pa.string()), pa.json_(),
    pa.json_(pa.large_string()),
]  # fmt: skip


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_every_type_of_text(kind):
    rows = ['{"a":1}', None, '{"a":2}', '{"a":[1]}', '{"a":1}']
    condition = parse({"a": 1})
    bodies = pa.array(rows, kind)
    assert matching(condition, bodies).tolist() == [True, False, False, True, True]
    assert matching(condition, bodies.slice(3)).tolist() == [True, True]
    assert matching(condition, bodies.slice(1, 1)).tolist() == [False]
    assert matching(condition, bodies.slice(5)).tolist() == []
    assert matching(condition, pa.array([], kind)).tolist() == []


@settings(max_examples=many(60))
@given(st.lists(st.none() | st.sampled_from([b'{"a":1}', b'{"a":[1]}', b'{"b":1}']), max_size=9),
       st.integers(0, 9), st.integers(0, 9))  # fmt: skip
def test_slices_and_chunks_and_nulls(texts, first, size):
    condition = parse({"a": 1})
    whole = pa.array(texts, pa.binary())
    part = texts[first : first + size]
    assert matching(condition, whole.slice(first, size)).tolist() == says(condition, part)
    chunked = pa.chunked_array([whole.slice(first), whole, whole.slice(0, 0)], pa.binary())
    assert matching(condition, chunked).tolist() == says(condition, texts[first:] + texts)


def test_no_rows_and_no_chunks():
    assert matching(parse({"a": 1}), pa.chunked_array([], pa.string())).tolist() == []
    assert matching(parse({"a": 1}), pa.nulls(2)).tolist() == [False, False]
    assert matching(parse({"a": 1}), pa.array([""]).slice(1)).tolist() == []


def test_what_lies_under_a_null_is_not_read():
    offsets = pa.py_buffer(np.array([0, 3, 10], np.int32))
    valid = pa.py_buffer(np.array([0b10], np.uint8))
    rows = pa.Array.from_buffers(pa.binary(), 2, [valid, offsets, pa.py_buffer(b'{"a{"a":1}')])
    assert matching(parse({"a": 1}), rows).tolist() == [False, True]


def test_the_empty_condition_holds_for_every_row():
    rows = pa.array(['{"a":1}', None, "1", "not read"])
    assert matching(ALWAYS, rows).tolist() == [True] * 4


def test_what_is_no_array_of_texts_is_refused():
    for condition in (ALWAYS, parse({"a": 1})):
        with pytest.raises(InvalidRequest, match=r"bodies must be JSON texts.*type='int64'"):
            matching(condition, pa.array([1]))
        with pytest.raises(InvalidRequest, match=r"bodies must be an Arrow array\. type='list'"):
            matching(condition, ["{}"])
