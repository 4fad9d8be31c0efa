"""What each operator promises: the examples of the table, and the rules that are easy to miss."""

from __future__ import annotations

from pathlib import Path

import pytest

from tideline.where import parse
from tideline.where.build import BUILDERS, COMPANIONS, LOGIC
from tideline.where.operators import OPERATORS
from tideline.where.reference import page

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("operator", OPERATORS.values(), ids=list(OPERATORS))
def test_the_examples_of_the_table_are_true(operator):
    condition = parse(operator.example, delta=True)
    assert [body for body in operator.holds if not condition.matches(body)] == []
    assert [body for body in operator.fails if condition.matches(body)] == []
    assert operator.fails


def test_every_operator_of_the_table_has_a_builder():
    assert set(OPERATORS) == set(BUILDERS) | set(LOGIC)
    assert not set(COMPANIONS) & set(OPERATORS)


def test_the_reference_page_is_up_to_date():
    assert (ROOT / "docs/reference/conditions.md").read_text(encoding="utf-8") == page()


# One line a rule: the condition, a body that meets it, a body that does not.
RULES = {
    "null equals missing": ({"a": None}, {}, {"a": 0}),
    "a scalar on the way is missing": ({"a.b": None}, {"a": 5}, {"a": [5]}),
    "an empty array has no candidate": ({"a.b": {"$ne": None}}, {"a": []}, {"a": [{}]}),
    "one object without the field is enough": (
        {"a.b": None},
        {"a": [{"b": 1}, {}]},
        {"a": [{"b": 1}]},
    ),
    "exists false is never": ({"a.b": {"$exists": False}}, {"a": [{}]}, {"a": [{}, {"b": 1}]}),
    "int and float are one": ({"a": 2**53 + 1}, {"a": 2**53 + 1}, {"a": float(2**53)}),
    "true is not 1": ({"a": 1}, {"a": 1.0}, {"a": True}),
    "true is not in 1": ({"a": {"$in": [1]}}, {"a": [1]}, {"a": [True]}),
    "gte null holds for missing": ({"a": {"$gte": None}}, {}, {"a": 0}),
    "text compares by code point": ({"a": {"$gt": "\uffff"}}, {"a": "\U0001f600"}, {"a": "z"}),
    "false before true": ({"a": {"$lt": True}}, {"a": False}, {"a": 0}),
    "arrays compare whole": ({"a": {"$gt": [1, 2]}}, {"a": [1, 3]}, {"a": [1, 2]}),
    "arrays compare by bracket first": ({"a": {"$lt": ["x"]}}, {"a": [9]}, {"a": [{}]}),
    "a shorter array comes first": ({"a": {"$lt": [1, 2]}}, {"a": [1]}, {"a": 1}),
    "an array within an array is an element": ({"a": [1]}, {"a": [[1]]}, {"a": [[[1]]]}),
    "objects compare by names and values": (
        {"a": {"$gte": {"x": 1}}},
        {"a": {"x": 1}},
        {"a": {"w": 1}},
    ),
    "the order of keys does not matter": (
        {"a": {"x": 1, "y": 2}},
        {"a": {"y": 2, "x": 1}},
        {"a": {"x": 1}},
    ),
    "two operators, two elements": ({"a": {"$gt": 5, "$lt": 3}}, {"a": [1, 9]}, {"a": [4]}),
    "elemMatch: one element": (
        {"a": {"$elemMatch": {"$gt": 5, "$lt": 9}}},
        {"a": [7]},
        {"a": [1, 10]},
    ),
    "elemMatch does not go deeper": ({"a": {"$elemMatch": {"$gt": 5}}}, {"a": [7]}, {"a": [[7]]}),
    "elemMatch in elemMatch does": (
        {"a": {"$elemMatch": {"$elemMatch": {"$gt": 5}}}},
        {"a": [[7]]},
        {"a": [7]},
    ),
    "elemMatch needs an object": ({"a": {"$elemMatch": {"b": None}}}, {"a": [{}]}, {"a": [1]}),
    "elemMatch with or": (
        {"a": {"$elemMatch": {"$or": [{"b": 1}, {"c": 1}]}}},
        {"a": [{"c": 1}]},
        {"a": [{}]},
    ),
    "all on one value": ({"a": {"$all": [1]}}, {"a": 1}, {"a": 2}),
    "all with a whole array": ({"a": {"$all": [[1, 2]]}}, {"a": [1, 2]}, {"a": [2, 1]}),
    "all with elemMatch": (
        {"a": {"$all": [{"$elemMatch": {"b": 1}}, {"$elemMatch": {"c": 1}}]}},
        {"a": [{"b": 1}, {"c": 1}]},
        {"a": [{"b": 1}]},
    ),
    "size counts the array itself": ({"a": {"$size": 1}}, {"a": [[]]}, {"a": [[], []]}),
    "a number picks an element": ({"a.1": 5}, {"a": [4, 5]}, {"a": [5, 4]}),
    "a number is a name too": ({"a.1": 5}, {"a": {"1": 5}}, {"a": {"0": 5}}),
    "a picked array is whole": ({"a.0": [5]}, {"a": [[5]]}, {"a": [5]}),
    "a picked array is not by element": ({"a.0": {"$ne": 5}}, {"a": [[5]]}, {"a": [5]}),
    "01 is a name": ({"a.01": {"$ne": 5}}, {"a": [4, 5]}, {"a": [{"01": 5}]}),
    "numbers walk into arrays of arrays": ({"a.0.1": 5}, {"a": [[4, 5]]}, {"a": [[5, 4]]}),
    "names do not": ({"a.b": 5}, {"a": [{"b": 5}]}, {"a": [[{"b": 5}]]}),
    "not is exact": ({"a": {"$not": {"$gt": 5, "$lt": 9}}}, {"a": 9}, {"a": 7}),
    "an int is small": ({"a": {"$type": "int"}}, {"a": 2**31 - 1}, {"a": 2**31}),
    "a long is large": ({"a": {"$type": 18}}, {"a": 2**31}, {"a": 2.0**31}),
    "a missing field has no type": ({"a": {"$type": "null"}}, {"a": None}, {}),
    "mod cuts off": ({"a": {"$mod": [4, 0]}}, {"a": 4.9}, {"a": 5}),
    "mod has the sign of the number": ({"a": {"$mod": [3, -1]}}, {"a": -4}, {"a": 4}),
    "mod cuts its operands": ({"a": {"$mod": [4.9, 0.9]}}, {"a": 8}, {"a": 9}),
    "in with a pattern": (
        {"a": {"$nin": [{"$regex": "^X", "$options": "i"}]}},
        {"a": "ax"},
        {"a": "xa"},
    ),
    "words of one element": ({"a": {"$words": "x y"}}, {"a": ["z", "y x"]}, {"a": ["x", "y"]}),
}


@pytest.mark.parametrize(("document", "meets", "fails"), RULES.values(), ids=list(RULES))
def test_a_rule(document, meets, fails):
    condition = parse(document)
    assert condition.matches(meets)
    assert not condition.matches(fails)
