"""Random conditions and bodies, from few names and values so that they often meet.

`documents()` gives conditions of the whole language but places; `bodies()` what they are
asked of. The parts are there for tests that need less.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from hypothesis import strategies as st

NAMES = ["a", "b", "c"]
PATHS = ["a", "b", "c", "a.b", "b.a", "a.b.c", "a.0", "a.1", "b.0.a", "a.0.1", "c.b.0", "c.01"]
TEXTS = [
    "",
    "a",
    "b",
    "ab",
    "B",
    "1",
    "flat tire",
    "Tire, FLAT",
    "a\nb",
    "é",
    "\U0001f600",
    "\uffff",
]
NUMBERS = [0, 1, 1.0, -0.0, 1.5, 2, -1, -7, 2**31, 2**53 + 1, float(2**53), -2.5]
PATTERNS = ["a", "^a", "^ab$", "b|1", "^.b", "[ab]+", "A", "", "^", "t.re"]
TYPES = ["double", "string", "object", "array", "bool", "null", "int", "long", "number", 1, 2, 16]


PARTS = st.sampled_from([0, 0.2, 0.25, 1 / 3, 0.5, 0.6, 0.75, 0.8, 1, 1.0])


@cache
def scalars() -> st.SearchStrategy[Any]:
    return st.sampled_from([None, True, False, *NUMBERS, *TEXTS])


@cache
def values() -> st.SearchStrategy[Any]:
    return st.recursive(
        scalars(),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from([*NAMES, "0"]), inner, max_size=2)
        ),
        max_leaves=5,
    )


@cache
def bodies() -> st.SearchStrategy[Any]:
    fields = st.dictionaries(st.sampled_from(NAMES), values(), max_size=3)
    return st.one_of(fields, fields, fields, fields, values())


@cache
def regexes() -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {"$regex": st.sampled_from(PATTERNS)},
        optional={"$options": st.text("ims", max_size=2)},
    )


@cache
def mods() -> st.SearchStrategy[list[Any]]:
    return st.tuples(st.sampled_from([2, 3, -3, 2.5]), st.sampled_from([0, 1, -1, 1.9])).map(list)


@cache
def comparisons() -> st.SearchStrategy[dict[str, Any]]:
    """Operators that compare: the most used part of the language."""
    one = {name: values() for name in ("$eq", "$ne", "$gt", "$gte", "$lt", "$lte")}
    lists = {name: st.lists(values(), max_size=3) for name in ("$in", "$nin")}
    return some_of({**one, **lists})


def some_of(operands: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    """A document of one to three of these operators."""
    pairs = [st.tuples(st.just(name), operand) for name, operand in operands.items()]
    return st.lists(st.one_of(pairs), min_size=1, max_size=3).map(dict)


@cache
def fuzzies() -> st.SearchStrategy[dict[str, Any]]:
    word = st.sampled_from(["flt", "tire", "ab", "xy", "TYRES"])
    threshold = {"distance": st.integers(0, 3)}
    near = st.fixed_dictionaries({"word": word}, optional=threshold) | st.fixed_dictionaries(
        {"word": word, "similarity": PARTS}
    )
    several = {"words": st.lists(word | near, min_size=1, max_size=3) | st.just("flat tyre")}
    return st.one_of(
        near,
        st.fixed_dictionaries(several, optional=threshold),
        st.fixed_dictionaries({**several, "similarity": PARTS}),
    )


@cache
def operators(depth: int = 2) -> st.SearchStrategy[dict[str, Any]]:
    """What stands inside a field."""
    plain = some_of(
        {
            "$in": st.lists(values() | values() | regexes(), max_size=2),
            "$nin": st.lists(values() | values() | regexes(), max_size=2),
            "$exists": st.sampled_from([True, False, 1, 0]),
            "$type": st.sampled_from(TYPES)
            | st.lists(st.sampled_from(TYPES), min_size=1, max_size=2),
            "$mod": mods(),
            "$size": st.integers(0, 3),
            "$all": st.lists(values() | values() | regexes(), max_size=2),
            "$words": st.sampled_from(
                ["flat", "TIRE flat", "a", "é", '"flat tire"', '"TIRE, flat"', 'a" b', '"a" 1']
            ),
            "$fuzzy": fuzzies(),
            "$contains": st.sampled_from(["flat", "E, F", "a", "\n", "É", "t t"]),
            "$jaccard": st.fixed_dictionaries(
                {"text": st.sampled_from(["flat tire", "tire", "a", ""]), "similarity": PARTS},
                optional={"grams": st.integers(1, 4)},
            ),
        }
    )
    parts = [comparisons(), plain, regexes()]
    if depth > 0:
        matches = elem_matches(depth - 1)
        parts += [
            st.fixed_dictionaries({"$not": operators(depth - 1)}),
            st.fixed_dictionaries({"$elemMatch": matches}),
            st.fixed_dictionaries(
                {
                    "$all": st.lists(
                        st.fixed_dictionaries({"$elemMatch": matches}), min_size=1, max_size=2
                    )
                }
            ),
        ]
    return st.one_of(parts)


@cache
def elem_matches(depth: int) -> st.SearchStrategy[dict[str, Any]]:
    return operators(depth) | documents(depth)


@cache
def documents(depth: int = 2) -> st.SearchStrategy[dict[str, Any]]:
    """Conditions of the whole language but places."""
    fields = st.dictionaries(
        st.sampled_from(PATHS), values() | comparisons() | operators(depth), max_size=2
    )
    if depth == 0:
        return fields
    several = st.lists(documents(depth - 1), min_size=1, max_size=2)
    logic = some_of({"$and": several, "$or": several, "$nor": several})
    return st.one_of(
        fields, fields, st.builds(lambda left, right: {**left, **right}, fields, logic)
    )
