"""Update operators mean what MongoDB's manual says, and what mongomock and mingo do.

The table below is from the manual. Random changes are asked of both peers: one of them must agree.
Neither is right everywhere. mongomock takes changes that MongoDB refuses (two operators on one
field, a path through a number, `$inc` of a boolean), fails on mixed kinds in `$min` and `$max`,
cannot `$unset` an element and has no `$mul`; mingo goes into every element of an array that is on
the way, and compares kinds as JavaScript does. Both keep the
repeats of `$addToSet` with `$each` on a missing field.
"""

from __future__ import annotations

import copy
from typing import Any

import mongomock
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import many

from tests.where.peers import Mingo
from tideline import InvalidRequest
from tideline.documents.updates import OPERATORS, parse_update

Document = dict[str, Any]

CASES: list[tuple[Document, Document, Document]] = [
    ({}, {"$set": {"a.b.0": 1}}, {"a": {"b": {"0": 1}}}),
    ({"a": [1]}, {"$set": {"a.3": 4}}, {"a": [1, None, None, 4]}),
    ({"a": [{"b": 1}, 2]}, {"$set": {"a.0.b": 5, "a.1": 6}}, {"a": [{"b": 5}, 6]}),
    ({"a": [{}]}, {"$set": {"a.1.b": 5}}, {"a": [{}, {"b": 5}]}),
    ({"a": None}, {"$set": {"a": {"b": 1}}}, {"a": {"b": 1}}),
    ({"a": 1}, {"$set": {}}, {"a": 1}),
    ({"a": 1, "b": {"c": 2, "d": 3}}, {"$unset": {"a": "", "b.c": 1}}, {"b": {"d": 3}}),
    ({"a": [1, 2, 3]}, {"$unset": {"a.1": ""}}, {"a": [1, None, 3]}),
    ({"a": 5}, {"$unset": {"a.b": "", "c.d": "", "e": ""}}, {"a": 5}),
    ({"a": 5}, {"$inc": {"a": -2, "b": 3, "c.d": 0.5}}, {"a": 3, "b": 3, "c": {"d": 0.5}}),
    ({"a": 5}, {"$mul": {"a": 2, "b": 3, "c": 0.5}}, {"a": 10, "b": 0, "c": 0.0}),
    ({"a": 5}, {"$min": {"a": 4, "b": 1}}, {"a": 4, "b": 1}),
    ({"a": 5}, {"$max": {"a": 4, "b": 1}}, {"a": 5, "b": 1}),
    ({"a": None, "b": "x"}, {"$max": {"a": -1, "b": 5}}, {"a": -1, "b": "x"}),
    ({"a": 5, "b": True}, {"$min": {"a": None, "b": "x"}}, {"a": None, "b": "x"}),
    ({"a": 1, "b": 2}, {"$rename": {"a": "b"}}, {"b": 1}),
    ({"a": {"b": 1, "c": 2}}, {"$rename": {"a.b": "d.e", "x": "y"}},
     {"a": {"c": 2}, "d": {"e": 1}}),
    ({"a": [1]}, {"$push": {"a": 2, "b": 3, "c.d": [4]}},
     {"a": [1, 2], "b": [3], "c": {"d": [[4]]}}),
    ({"a": [1, 2]}, {"$push": {"a": {"$each": [8, 9], "$position": 1}}}, {"a": [1, 8, 9, 2]}),
    ({"a": [1, 2]}, {"$push": {"a": {"$each": [8], "$position": -1}}}, {"a": [1, 8, 2]}),
    ({"a": [1, 2]}, {"$push": {"a": {"$each": [8], "$position": -9}}}, {"a": [8, 1, 2]}),
    ({"a": [1, 2]}, {"$push": {"a": {"$each": [8], "$position": 9}}}, {"a": [1, 2, 8]}),
    ({"a": [5, 1]}, {"$push": {"a": {"$each": [3], "$sort": -1, "$slice": 2}}}, {"a": [5, 3]}),
    ({"a": [5, 1]}, {"$push": {"a": {"$each": [3], "$slice": -2}}}, {"a": [1, 3]}),
    ({"a": [5, 1]}, {"$push": {"a": {"$each": [], "$slice": 0}}}, {"a": []}),
    ({"a": [{"n": 1, "t": 1}, {"n": 2}]},
     {"$push": {"a": {"$each": [{"n": 1, "t": 2}, 7], "$sort": {"n": 1, "t": -1}}}},
     {"a": [7, {"n": 1, "t": 2}, {"n": 1, "t": 1}, {"n": 2}]}),
    ({"a": [1, "x"]}, {"$addToSet": {"a": 1.0, "b": {"c": 1}}}, {"a": [1, "x"], "b": [{"c": 1}]}),
    ({"a": [1]}, {"$addToSet": {"a": {"$each": [True, 2, 2, [1]]}}}, {"a": [1, True, 2, [1]]}),
    ({"a": [1, 2, 1, [1], None]}, {"$pull": {"a": 1}}, {"a": [2, [1], None]}),
    ({"a": [1, 5, [7], "x"]}, {"$pull": {"a": {"$gte": 5}}}, {"a": [1, "x"]}),
    ({"a": [1, 5, "x"]}, {"$pull": {"a": {"$in": [1, "x"]}}}, {"a": [5]}),
    ({"a": [{"b": 1, "c": 2}, {"b": 2}, 3]}, {"$pull": {"a": {"b": 1}}}, {"a": [{"b": 2}, 3]}),
    ({"a": [{"b": 1}, {"b": 2}]}, {"$pull": {"a": {"$or": [{"b": 2}, {"b": 3}]}}},
     {"a": [{"b": 1}]}),
    ({"a": [[1, 2], [2, 1]]}, {"$pull": {"a": [1, 2]}}, {"a": [[2, 1]]}),
    ({"b": 1}, {"$pull": {"a": 1, "b.c": 1}}, {"b": 1}),
    ({"a": [1, {"b": 1}]}, {"$pull": {"a": {}}}, {"a": [1]}),
    ({}, {"$addToSet": {"a": {"$each": [2, 2]}}}, {"a": [2]}),
    ({}, {"$push": {"a": {"$each": [2, "x", 1], "$sort": 1, "$slice": 2}}}, {"a": [1, 2]}),
    ({"a": [1], "b": [2]}, {"$min": {"a": 5}, "$max": {"b": 5}}, {"a": 5, "b": [2]}),
    ({"a": [1, 2, {"b": 1}, 2]}, {"$pullAll": {"a": [2, {"b": 1.0}]}}, {"a": [1]}),
    ({"a": [1, 2, 3]}, {"$pop": {"a": 1}}, {"a": [1, 2]}),
    ({"a": [1, 2, 3]}, {"$pop": {"a": -1, "b": 1}}, {"a": [2, 3]}),
    ({"a": []}, {"$pop": {"a": 1}}, {"a": []}),
    ({"a": 1}, {"$setOnInsert": {"a": 2, "b": 3}}, {"a": 1}),
]  # fmt: skip


@pytest.mark.parametrize(("before", "change", "after"), CASES, ids=lambda one: str(one)[:60])
def test_a_change_does_what_the_manual_says(
    before: Document, change: Document, after: Document
) -> None:
    given = {"id": 1, **copy.deepcopy(before)}
    assert parse_update(change, "id").apply(given) == {"id": 1, **after}
    assert given == {"id": 1, **before}  # a document is never changed


def test_what_is_set_on_insert_counts_then_only() -> None:
    update = parse_update({"$setOnInsert": {"made": 5}, "$inc": {"n": 1}}, "id")
    assert update.apply({"id": 1}) == {"id": 1, "n": 1}
    assert update.apply({"id": 1}, inserting=True) == {"id": 1, "n": 1, "made": 5}


@pytest.mark.parametrize(("change", "message"), [
    (5, "a change must be operators with fields"),
    ({}, "a change must be operators with fields"),
    ({"speed": 5}, "change.speed is not an operator. .* `replace` stores a whole document"),
    ({"set": {"speed": 5}}, r"change.set is not an operator: did you mean \$set\?"),
    ({"$sett": {"a": 5}}, r"did you mean \$set\?"),
    ({"$addtoset": {"a": 5}}, r"did you mean \$addToSet\?"),
    ({"$where": {"a": 5}}, r"is not an operator; supported are \$set, "),
    ({"$set": 5}, r"change.\$set must be fields with what to do"),
    ({"$set": {"a": float("nan")}}, "not JSON"),
    ({"$set": {"a": {1, 2}}}, "not JSON"),
    ({"$set": {"a..b": 1}}, r"change.\$set.a..b is not a path"),
    ({"$set": {"a.$.b": 1}}, "is not a path"),
    ({"$set": {"a.$[].b": 1}}, r"\$\[\] in a path is not supported"),
    ({"$set": {".".join("a" * 65): 1}}, "more than 64 parts"),
    ({"$set": {"a": 1}, "$inc": {"a.b": 1}}, r"touches what change.\$set.a changes"),
    ({"$set": {"a": 1}, "$unset": {"a": 1}}, "touches what"),
    ({"$rename": {"a": "a"}}, "touches what"),
    ({"$rename": {"a": "a.b"}}, "touches what"),
    ({"$rename": {"a": 5}}, "must be the new name"),
    ({"$inc": {"a": "1"}}, r"change.\$inc.a must be a number"),
    ({"$mul": {"a": True}}, "must be a number"),
    ({"$push": {"a": {"$each": 5}}}, r"needs \$each with a list"),
    ({"$push": {"a": {"$slice": 5}}}, r"needs \$each with a list"),
    ({"$push": {"a": {"$each": [], "$sorted": 1}}}, r"\$sorted is not one of \$each"),
    ({"$push": {"a": {"$each": [], "$slice": "x"}}}, "must be a whole number"),
    ({"$push": {"a": {"$each": [], "$sort": 2}}}, r"\$sort must be 1, -1"),
    ({"$push": {"a": {"$each": [], "$sort": {}}}}, "names no field"),
    ({"$addToSet": {"a": {"$each": [], "$slice": 1}}}, "is not one of"),
    ({"$pull": {"a": {"$gtee": 1}}}, r"change.\$pull.a: where.element.\$gtee .*did you mean \$gte"),
    ({"$pullAll": {"a": 5}}, "must be a list of values"),
    ({"$pop": {"a": 2}}, "must be 1 for the last or -1"),
])  # fmt: skip
def test_a_wrong_change_is_refused_in_plain_words(change: Any, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        parse_update(change, "id")


@pytest.mark.parametrize(("before", "change", "message"), [
    ({"a": "x"}, {"$inc": {"a": 1}}, r"change.\$inc.a: the field holds text and no number. id=1"),
    ({"a": None}, {"$mul": {"a": 1}}, "holds null and no number"),
    ({"a": True}, {"$inc": {"a": 1}}, "holds a boolean and no number"),
    ({"a": 1e308}, {"$mul": {"a": 10}}, "the result is too large"),
    ({"a": 2**63}, {"$mul": {"a": 2}}, "the result is too large"),
    ({"a": 5}, {"$set": {"a.b": 1}}, "b cannot be made in a, which holds a number"),
    ({"a": [5]}, {"$set": {"a.b": 1}}, "b cannot be made in a, which holds an array"),
    ({"a": [5]}, {"$set": {"a.9999999": 1}}, "would become too long"),
    ({"a": 5}, {"$push": {"a": 1}}, "the field holds a number and no array"),
    ({"a": {}}, {"$addToSet": {"a": 1}}, "the field holds an object and no array"),
    ({"a": 5}, {"$pull": {"a": 1}}, "no array"),
    ({"a": 5}, {"$pop": {"a": 1}}, "no array"),
    ({"a": [{"b": 1}]}, {"$rename": {"a.0.b": "c"}}, "leads through an array"),
    ({"a": [], "b": 1}, {"$rename": {"b": "a.0"}}, "the new path leads through an array"),
    ({"a": 1}, {"$set": {"id": 2}}, "the key of a document cannot change: id. before=1, after=2"),
    ({"a": 1}, {"$set": {"id": 1.0}}, "the key of a document cannot change"),
    ({"a": 1}, {"$unset": {"id": ""}}, "the key of a document cannot change"),
    ({"a": 2}, {"$rename": {"a": "id"}}, "the key of a document cannot change"),
])  # fmt: skip
def test_a_document_that_does_not_fit_is_refused(before: Any, change: Any, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        parse_update(change, "id").apply({"id": 1, **before})


def test_setting_the_key_to_itself_is_allowed() -> None:
    assert parse_update({"$set": {"id": 1, "a": 2}}, "id").apply({"id": 1}) == {"id": 1, "a": 2}


# ---- beside others ---------------------------------------------------------------------------

SCALARS = st.sampled_from([0, 1, 2, -3, 1.5, "x", "y"])
VALUES = st.one_of(SCALARS, st.lists(SCALARS, max_size=3), st.dictionaries(
    st.sampled_from("ab"), SCALARS, max_size=2))  # fmt: skip
BODIES = st.dictionaries(
    st.sampled_from("abc"),
    st.one_of(VALUES, st.lists(st.dictionaries(st.sampled_from("ab"), SCALARS), max_size=2)),
    max_size=3,
)
PATHS = st.sampled_from(["a", "b", "c", "a.a", "a.b", "b.0", "b.1.a", "c.a.b"])
NUMBERS = st.sampled_from([1, 2, -1, 0.5])
OPERANDS = {
    "$set": VALUES,
    "$unset": st.just(""),
    "$inc": NUMBERS,
    "$mul": NUMBERS,
    "$min": NUMBERS,
    "$max": NUMBERS,
    "$rename": st.sampled_from(["d", "e"]),
    "$push": st.one_of(VALUES, st.fixed_dictionaries(
        {"$each": st.lists(SCALARS, max_size=3)},
        optional={"$slice": st.integers(-3, 3), "$position": st.integers(-3, 3),
                  "$sort": st.sampled_from([1, -1])})),
    "$addToSet": st.one_of(VALUES, st.fixed_dictionaries({"$each": st.lists(VALUES, max_size=3)})),
    "$pull": st.one_of(VALUES, st.sampled_from([{"$gte": 1}, {"a": 1}, {"$in": [1, "x"]}])),
    "$pullAll": st.lists(VALUES, max_size=3),
    "$pop": st.sampled_from([1, -1]),
}  # fmt: skip


def test_every_operator_is_asked() -> None:
    assert set(OPERANDS) | {"$setOnInsert"} == set(OPERATORS)


@st.composite
def changes(draw: Any) -> Document:
    name = draw(st.sampled_from(sorted(OPERANDS)))
    return {name: {draw(PATHS): draw(OPERANDS[name])}}


def by_mongomock(body: Document, change: Document) -> Document | None:
    """The body after the change; None where mongomock refuses or fails."""
    collection = mongomock.MongoClient().db.c
    collection.insert_one({"_id": 1, **copy.deepcopy(body)})
    try:
        collection.update_one({"_id": 1}, change)
    except Exception:
        return None
    found = collection.find_one({"_id": 1})
    assert found is not None
    del found["_id"]
    return found


def excused(change: Document) -> bool:
    """Whether both peers are known to be wrong, which the table above shows."""
    [(name, fields)] = change.items()
    [operand] = fields.values()
    return (
        name in ("$min", "$max")  # neither knows the order of kinds
        or operand == {}  # `$pull` takes objects away then, and nothing else
        # On a missing field neither looks for repeats, and mingo neither sorts nor slices.
        or (isinstance(operand, dict) and "$each" in operand)
    )


@settings(max_examples=many(300))
@given(body=BODIES, change=changes())
def test_another_implementation_says_the_same(
    mingo: Mingo, body: Document, change: Document
) -> None:
    try:
        ours: Document | None = parse_update(change, "id").apply(body)
    except InvalidRequest:
        ours = None
    answers = mingo.ask(change=change, bodies=[body])
    theirs = [answers[0] if answers else None, by_mongomock(body, change)]
    # What we refuse both may take for "nothing to do".
    assert ours in theirs or (ours is None and body in theirs) or excused(change), theirs
