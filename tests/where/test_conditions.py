"""What a condition promises: MongoDB's meaning, canonical text, clear errors."""

from __future__ import annotations

import contextlib
import copy
import math
import pickle
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tideline.errors import InvalidRequest
from tideline.where import ALWAYS, parse, parse_text
from tideline.where.operators import OPERATORS
from tideline.where.predicate import TESTS
from tideline.where.reference import page

ROOT = Path(__file__).parents[2]

# --- the plain evaluator: slow, obvious, shares no code with the library ---


def bracket(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, (int, float)):
        return "number"
    return {str: "text", list: "array", dict: "object"}[type(value)]


def same(a: object, b: object) -> bool:
    if bracket(a) != bracket(b):
        return False
    if isinstance(a, list):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, dict):
        return set(a) == set(b) and all(same(a[key], b[key]) for key in a)
    return a == b


def one(operator: str, value: object, wanted: object) -> bool:
    if operator == "$eq":
        return same(value, wanted)
    if bracket(value) != bracket(wanted):
        return False
    if wanted is None:
        return operator in ("$gte", "$lte")
    return {
        "$gt": lambda: value > wanted,
        "$gte": lambda: value >= wanted,
        "$lt": lambda: value < wanted,
        "$lte": lambda: value <= wanted,
    }[operator]()


def brute(document: dict, body: object) -> bool:
    if not document:
        return True
    if not isinstance(body, dict):
        return False
    for field, asked in document.items():
        is_operators = isinstance(asked, dict) and any(key.startswith("$") for key in asked)
        for operator, wanted in (asked if is_operators else {"$eq": asked}).items():
            value = body.get(field)
            candidates = [value, *value] if isinstance(value, list) else [value]
            if operator == "$ne":
                held = not any(one("$eq", each, wanted) for each in candidates)
            else:
                held = any(one(operator, each, wanted) for each in candidates)
            if not held:
                return False
    return True


# Few values, so that equal and neighbouring ones are common.
scalars = st.sampled_from(
    [None, True, False, 0, 1, 1.0, -0.0, 1.5, 2, 2**53 + 1, float(2**53), "", "a", "b", "1"]
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("xy"), inner, max_size=2)
    ),
    max_leaves=5,
)
fields = st.sampled_from("pqr")
ordered = st.dictionaries(
    st.sampled_from([name for name, row in OPERATORS.items() if row.ordered]),
    scalars,
    min_size=1,
    max_size=3,
)
equality = st.dictionaries(st.sampled_from(["$eq", "$ne"]), values, min_size=1)
documents = st.dictionaries(fields, values | ordered | equality, max_size=3)
bodies = st.dictionaries(fields, values, max_size=3) | values


@given(documents, bodies)
@example({"p": None}, {})
@example({"p": None}, {"p": []})
@example({"p": {"$gte": None}}, {})
@example({"p": [1]}, {"p": [[1.0]]})
def test_a_condition_means_what_the_plain_evaluator_says(document, body):
    assert parse(document).matches(body) is brute(document, body)


@given(documents)
def test_equal_documents_have_equal_text_and_text_gives_the_condition_back(document):
    condition = parse(document)
    backwards = parse(dict(reversed(document.items())))
    assert condition == backwards
    assert hash(condition) == hash(backwards)
    assert parse_text(condition.text) == condition
    assert parse_text(condition.text.decode()).document == condition.document
    assert pickle.loads(pickle.dumps(condition)) == condition
    assert copy.deepcopy(condition) == condition
    assert bool(condition) is bool(document)


@given(documents, documents)
def test_different_text_means_a_different_document(first, second):
    if parse(first).text == parse(second).text:
        assert same(first, second)


@pytest.mark.parametrize("operator", OPERATORS.values(), ids=list(OPERATORS))
def test_the_examples_of_the_table_are_true(operator):
    condition = parse(operator.example)
    assert all(condition.matches(body) for body in operator.holds)
    assert not any(condition.matches(body) for body in operator.fails)


def test_every_operator_has_a_builder_in_the_predicate_target():
    assert list(TESTS) == list(OPERATORS)


def test_the_reference_page_is_up_to_date():
    assert (ROOT / "docs/reference/conditions.md").read_text() == page()


@pytest.mark.parametrize("empty", [None, {}])
def test_no_condition_is_false_and_always_holds(empty):
    condition = parse(empty)
    assert condition is ALWAYS
    assert not condition
    assert condition.text == b""
    assert condition.document == {}
    assert all(condition.matches(body) for body in [None, 1, "x", [], {}, {"a": 1}])


@pytest.mark.parametrize("text", [b"", "", b"null", b"{}", " {} "])
def test_empty_text_is_no_condition(text):
    assert parse_text(text) is ALWAYS


def test_one_and_one_point_zero_are_one_condition():
    assert parse({"a": 1.0}).text == parse({"a": 1}).text == b'{"a":1}'
    assert parse({"a": 1e18}).text == parse({"a": 10**18}).text
    assert parse({"a": True}) != parse({"a": 1})


def test_the_document_is_a_copy():
    given_document = {"a": {"$gt": 1}}
    condition = parse(given_document)
    given_document["a"]["$gt"] = 2
    condition.document["a"]["$gt"] = 3
    assert condition.document == {"a": {"$gt": 1}}


def nested(depth: int) -> list:
    value: list = []
    for _ in range(depth):
        value = [value]
    return value


def itself() -> list:
    value: list = []
    value += [value, value]
    return value


BAD = {
    "an operator nobody knows": (
        {"speed": {"$above": 1}},
        r"where\.speed\.\$above is not an operator; supported are \$eq, \$ne, \$gt, \$gte, "
        r"\$lt, \$lte",
    ),
    "an operator as a field": ({"$or": []}, r"where\.\$or is not a field"),
    "an empty name": ({"": 1}, "must not be empty"),
    "a path": ({"a.b": 1}, r"where\.a\.b: only top-level fields"),
    "a name that is not text": ({1: 2}, "names of fields must be text"),
    "a mix": ({"a": {"$gt": 1, "b": 2}}, r"where\.a mixes operators with fields"),
    "a mix with a number": ({"a": {"$gt": 1, 2: 2}}, r"where\.a mixes"),
    "NaN": ({"a": {"$gt": math.nan}}, r"where\.a\.\$gt must be a finite number\. value=nan"),
    "infinity inside": ({"a": [1, {"b": math.inf}]}, r"where\.a\[1\]\.b must be a finite"),
    "an array to compare with": ({"a": {"$lt": [1]}}, r"where\.a\.\$lt must be a number, text"),
    "an object to compare with": ({"a": {"$lt": {}}}, r"where\.a\.\$lt must be a number, text"),
    "bytes": ({"a": b"x"}, r"where\.a must be a JSON value\. type='bytes'"),
    "a set": ({"a": {1}}, r"where\.a must be a JSON value\. type='set'"),
    "a huge int": ({"a": 10**5000}, r"where\.a: a whole number must fit 64 bits"),
    "a lone surrogate": ({"a": "\ud800"}, r"where\.a: text must be valid Unicode"),
    "a lone surrogate as a name": ({"\ud800": 1}, "must be valid Unicode"),
    "too deep": ({"a": nested(100)}, r"holds too much: at most 64 levels"),
    "a list that holds itself": ({"a": itself()}, "holds too much"),
    "too many clauses": ({f"f{n}": n for n in range(65)}, "too many clauses; at most 64"),
    "too long": ({"a": "x" * 16384}, "too long; at most 16384 bytes"),
    "a list": ([1], r"where must be a document .* type='list'"),
    "text": ("a", r"where must be a document .* type='str'"),
}


@pytest.mark.parametrize(("document", "message"), BAD.values(), ids=list(BAD))
def test_a_bad_condition_is_refused_naming_the_place(document, message):
    with pytest.raises(InvalidRequest, match=message):
        parse(document)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "where is not valid JSON"),
        ('{"a": NaN}', "where is not valid JSON"),
        ('{"a": 1e999}', "where is not valid JSON"),
        (b'{"a": "\xff"}', "where is not valid JSON"),
        ("\ud800", "where must be valid Unicode"),
        ("[" * 8000, "where is not valid JSON"),
        ("[1]", "where must be a document"),
        (" " * 20000, "too long; at most 16384 bytes"),
        (5, "where must be JSON text"),
    ],
)
def test_bad_text_is_refused(text, message):
    with pytest.raises(InvalidRequest, match=message):
        parse_text(text)


def test_the_limits_themselves_are_allowed():
    assert parse({f"f{n}": n for n in range(64)}).matches({f"f{n}": n for n in range(64)})
    assert len(parse({"a": "x" * (16384 - len('{"a":""}'))}).text) == 16384


@given(st.binary(max_size=60) | st.text(max_size=60))
def test_any_text_is_a_condition_or_an_invalid_request(text):
    with contextlib.suppress(InvalidRequest):
        parse_text(text)
