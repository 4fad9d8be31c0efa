"""What a condition promises: MongoDB's meaning, canonical text, a clear bool and copy."""

from __future__ import annotations

import contextlib
import copy
import pickle

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from plain import holds, same
from profiles import many
from strategies import bodies, comparisons, documents, values

from tideline.errors import InvalidRequest
from tideline.where import ALWAYS, parse, parse_text
from tideline.where.tree import DELTA

MANY = many(200)


@settings(max_examples=MANY)
@given(documents(), bodies())
@example({"p": None}, {})
@example({"p": None}, {"p": []})
@example({"p": {"$gte": None}}, {})
@example({"p": [1]}, {"p": [[1.0]]})
@example({"a.0": None}, {"a": [{"b": 1}]})
@example({"a.0": 1}, {"a": [[1]]})
@example({"a": {"$elemMatch": {}}}, {"a": [1, []]})
@example({"a": {"$elemMatch": {"$not": {"$all": []}}}}, {"a": [1]})
@example({"$or": [{}]}, 1)
@example({"a": {"$not": {"$gt": 1}}}, 1)
def test_a_condition_means_what_the_plain_evaluator_says(document, body):
    assert parse(document).matches(body) is holds(document, body)


@settings(max_examples=MANY)
@given(comparisons(), values(), st.sampled_from([("a",), ("a", "b"), ("a", "b", "c")]))
def test_the_fast_ways_for_short_paths_are_the_slow_way(operators, value, path):
    body = value
    for part in reversed(path):
        body = {part: body}
    document = {".".join(path): operators}
    assert parse(document).matches(body) is holds(document, body)


@given(documents())
def test_equal_documents_have_equal_text_and_text_gives_the_condition_back(document):
    condition = parse(document)
    backwards = parse(dict(reversed(document.items())))
    assert condition == backwards
    assert hash(condition) == hash(backwards)
    assert condition.tree == backwards.tree
    assert parse_text(condition.text) == condition
    assert parse_text(condition.text).tree == condition.tree
    assert parse_text(condition.text.decode()).document == condition.document
    assert pickle.loads(pickle.dumps(condition)) == condition
    assert copy.deepcopy(condition) == condition
    assert bool(condition) is bool(document)


@given(documents(1), documents(1))
def test_different_text_means_a_different_document(first, second):
    if parse(first).text == parse(second).text:
        assert same(first, second)


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


@pytest.mark.parametrize("body", [None, 1, "x", [], [{"a": 1}], True])
@pytest.mark.parametrize(
    "document",
    [{"a": None}, {"a": {"$ne": 1}}, {"$nor": [{"a": 1}]}, {"$or": [{}, {"a": 1}]},
     {"a": {"$not": {"$not": {"$exists": False}}}}],
)  # fmt: skip
def test_a_body_that_is_no_object_meets_no_condition(document, body):
    assert not parse(document).matches(body)
    assert parse(document).matches({})


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


def test_the_limits_themselves_are_allowed():
    assert parse({f"f{n}": n for n in range(256)}).matches({f"f{n}": n for n in range(256)})
    assert len(parse({"a": "x" * (16384 - len('{"a":""}'))}).text) == 16384
    long_list = {"a": {"$in": list(range(2000))}}
    assert parse(long_list).matches({"a": 1999})
    deep: dict = {"a": 1}
    for _ in range(31):  # a list and an object each
        deep = {"$nor": [deep]}
    assert parse(deep).matches({"a": 1}) is False
    assert parse(deep).matches({"a": 2}) is True


@given(st.binary(max_size=60) | st.text(max_size=60))
def test_any_text_is_a_condition_or_an_invalid_request(text):
    with contextlib.suppress(InvalidRequest):
        parse_text(text)


# --- $delta ---


@pytest.mark.parametrize(
    ("now", "before", "held"),
    [
        ({"t": 1}, {"t": 6}, True),
        ({"t": 1}, {"t": 5.5}, False),
        ({"t": 1}, {}, False),
        ({"t": 1}, None, False),
        ({"t": 1}, {"t": "6"}, False),
        ({"t": True}, {"t": 6}, False),
        ({"t": 1.5}, {"t": 10**400}, False),
        ({}, {"t": 6}, False),
        ([1], {"t": 6}, False),
    ],
)
def test_delta_is_the_number_now_minus_the_number_before(now, before, held):
    condition = parse({"t": {"$delta": {"$lte": -5}}}, delta=True)
    assert condition.deltas == ("t",)
    assert condition.matches(condition.with_delta(now, before)) is held


def test_delta_works_inside_logic_and_on_paths():
    condition = parse(
        {
            "$or": [
                {"a.b": {"$delta": {"$gt": 1, "$lt": 9}}},
                {"l.1": {"$not": {"$delta": {"$eq": 0}}}},
            ]
        },
        delta=True,
    )
    assert condition.deltas == ("a.b", "l.1")

    def asked(now, before):
        return condition.matches(condition.with_delta(now, before))

    same_list = {"l": [7, 5]}
    assert asked({"a": {"b": 5}, **same_list}, {"a": {"b": 2}, **same_list})
    assert not asked({"a": {"b": 5}, **same_list}, {"a": {"b": 5}, **same_list})
    assert asked({"l": [7, 6]}, same_list)
    assert asked({}, None), "a change that is absent is not 0"


def test_a_body_cannot_bring_its_own_delta():
    condition = parse({"t": {"$delta": {"$gt": 0}}}, delta=True)
    forged = {"t": 1, DELTA: {"t": 5}}
    assert not condition.matches(condition.with_delta(forged, {"t": 1}))
    assert not condition.matches(condition.with_delta(forged, None))


def test_delta_goes_round_by_text_and_pickle():
    condition = parse({"t": {"$delta": {"$gt": 0}}}, delta=True)
    for again in (parse_text(condition.text, delta=True), pickle.loads(pickle.dumps(condition))):
        assert again == condition
        assert again.deltas == ("t",)
    with pytest.raises(InvalidRequest, match=r"^where\.t\.\$delta is supported in the subscr"):
        parse_text(condition.text)
    with pytest.raises(InvalidRequest, match=r"^where\.t\.\$delta is supported in the subscr"):
        parse(condition.document)
