"""Where other implementations of MongoDB's conditions answer otherwise, as data.

One row a kind of question. The reference page lists them; `tests/where/test_peers.py` asks
each of the peer that is installed, and holds every disagreement it finds with random questions
to be of a kind that is listed here. `because` says what decides.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CASES", "Case"]


@dataclass(frozen=True, slots=True)
class Case:
    """A question that somebody answers otherwise; None is no answer."""

    kind: str
    condition: dict[str, object]
    body: dict[str, object]
    ours: bool
    mingo: bool | None
    mongomock: bool | None
    mgqpy: bool | None
    because: str


CASES = (
    Case(
        "order of arrays", {"a": {"$gt": [1]}}, {"a": [2]}, True, False, True, True,
        "documentation: arrays are compared as values too",
    ),
    Case(
        "order of arrays", {"a": {"$lt": [1]}}, {"a": [{}, [0]]}, True, True, False, True,
        "the array as a whole or one of its elements",
    ),
    Case(
        "order of objects", {"a": {"$gt": {"x": 1, "y": 1}}}, {"a": {"x": 2}},
        True, False, True, True,
        "documentation, comparison order: field by field",
    ),
    Case(
        "order with null", {"a": {"$gte": None}}, {}, True, False, False, True,
        "the server: null, and so missing, equals null",
    ),
    Case(
        "an object without the field", {"a.b": None}, {"a": [{"b": 1}, {}]},
        True, False, True, True,
        "documentation: null finds documents without the field",
    ),
    Case(
        "a scalar on the path", {"a.b": None}, {"a": 5}, True, True, False, True,
        "documentation: null finds documents without the field",
    ),
    Case(
        "a scalar on the path", {"a.b": {"$not": {"$gt": 5}}}, {"a": 1}, True, True, False, True,
        "documentation: `$not` holds for documents without the field",
    ),
    Case(
        "a path through an array", {"a.b": [0, 1]}, {"a": [{"b": 0}, {"b": 1}]},
        False, True, False, False,
        "the values at a path are candidates, not one array",
    ),
    Case(
        "a path through an array", {"a.b": {"$lte": 1}}, {"a": [{"b": [1]}, {"b": []}]},
        True, False, True, True,
        "documentation: the elements of each `b` are candidates",
    ),
    Case(
        "a path through an array", {"a.b": {"$size": 0}}, {"a": [2]}, False, True, False, False,
        "nothing lies there; it is no empty array",
    ),
    Case(
        "a path through an array", {"a.b": {"$exists": False}}, {"a": [{}, {"b": 1}]},
        False, False, True, False,
        "`$exists: false` is the negation of `$exists: true`",
    ),
    Case(
        "arrays in arrays", {"a.b": 5}, {"a": [[5]]}, False, True, False, False,
        "documentation: only a number enters an array in an array",
    ),
    Case(
        "arrays in arrays", {"a": {"$regex": "x"}}, {"a": [["x"]]}, False, True, False, False,
        "elements are looked at one level deep",
    ),
    Case(
        "a picked element", {"a.0": 5}, {"a": [[5]]}, False, True, True, False,
        "the server: the picked element itself, not its elements",
    ),
    Case(
        "a picked element", {"a.0": 5}, {"a": [{"0": 5}]}, True, False, False, True,
        "the server: a number is a name in the objects too",
    ),
    Case(
        "a picked element", {"a.0": None}, {"a": [{"b": 1}]}, True, False, False, True,
        "the server: the object has no field `0`",
    ),
    Case(
        "a picked element", {"a.5": None}, {"a": [1]}, False, True, False, False,
        "the server: an array without objects has no candidate",
    ),
    Case(
        "a picked element", {"a.01": 5}, {"a": [4, 5]}, False, True, True, False,
        "the server: `01` is a name, not a number",
    ),
    Case(
        "in with an array", {"a": {"$in": [[1]]}}, {"a": [1]}, True, False, False, True,
        "documentation: `$in` is equality with one of the values",
    ),
    Case(
        "all", {"a": {"$all": [1]}}, {"a": 1}, True, False, True, True,
        "documentation: `$all` is an `$and` of equalities",
    ),
    Case(
        "all", {"a": {"$all": [[1, 2]]}}, {"a": [1, 2]}, True, False, False, True,
        "documentation: the array itself, or one that holds it",
    ),
    Case(
        "all", {"a": {"$all": [None]}}, {}, True, False, False, True,
        "documentation: `$all` is an `$and` of equalities",
    ),
    Case(
        "all of nothing", {"a": {"$all": []}}, {"a": [1]}, False, False, True, False,
        "documentation: an empty `$all` finds nothing",
    ),
    Case(
        "an element that is an array", {"a": {"$elemMatch": {"$gt": 0}}}, {"a": [[1]]},
        False, True, True, False,
        "the server: the element itself, not its elements",
    ),
    Case(
        "an element that is an array", {"a": {"$elemMatch": {"b": None}}}, {"a": [[1]]},
        True, False, False, True,
        "the server: an array is an object with numbers as names",
    ),
    Case(
        "an element that is no object", {"a": {"$elemMatch": {}}}, {"a": [1]},
        False, False, True, False,
        "the server: with fields, the element must be an object",
    ),
    Case(
        "an element that is no object", {"a": {"$elemMatch": {"b.c": {"$exists": False}}}},
        {"a": [1]}, False, True, True, False,
        "the server: with fields, the element must be an object",
    ),
    Case(
        "not in elemMatch", {"a": {"$elemMatch": {"$not": {"$ne": 0}}}}, {"a": [5]},
        False, False, True, False,
        "no element is 0",
    ),
    Case(
        "several operators", {"a.b": {"$gt": 5, "$lt": 3}}, {"a": [{"b": 1}, {"b": 9}]},
        True, True, False, True,
        "documentation: each may be met by another element",
    ),
    Case(
        "an array as an element", {"a": {"$eq": [1]}}, {"a": [[1]]}, True, True, False, True,
        "documentation: the array itself, or one that holds it",
    ),
    Case(
        "an empty object", {"a": {}}, {}, False, False, True, False,
        "equality with an empty object",
    ),
    Case(
        "booleans and numbers", {"a": True}, {"a": 1}, False, False, True, False,
        "documentation: they are different types",
    ),
    Case(
        "size of what is no array", {"a": {"$size": 1}}, {"a": 5}, False, False, True, False,
        "documentation: `$size` is about arrays",
    ),
    Case(
        "types of elements", {"a": {"$type": "string"}}, {"a": ["x"]}, True, False, True, None,
        "documentation: an array with an element of the type",
    ),
    Case(
        "whole numbers", {"a": {"$type": "double"}}, {"a": 3}, False, True, False, None,
        "JavaScript has one type of numbers; the text `3` is a whole one",
    ),
    Case(
        "mod", {"a": {"$mod": [4, 0]}}, {"a": 4.5}, True, False, None, True,
        "documentation: fractions are cut off",
    ),
    Case(
        "mod", {"a": {"$mod": [3, 1]}}, {"a": True}, False, True, None, False,
        "`$mod` is about numbers",
    ),
    Case(
        "text beyond 16 bits", {"a": {"$gt": "\uffff"}}, {"a": "\U0001f600"},
        True, False, True, True,
        "the server compares bytes of UTF-8, which is by code point",
    ),
    Case(
        "the end of text", {"a": {"$regex": "b$"}}, {"a": "b\n"}, False, False, True, True,
        "RE2, see above",
    ),
    Case(
        "order of keys", {"a": {"x": 1, "y": 2}}, {"a": {"y": 2, "x": 1}}, True, True, True, False,
        "JSON, see above",
    ),
)  # fmt: skip
