"""What is parsed at a glance is what the builder makes of it; everything else is the builder's."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from profiles import many
from strategies import PATHS, documents, scalars, values

from tideline.errors import InvalidRequest
from tideline.where import parse, parse_text

PARSING = sys.modules[parse.__module__]

NAMES = [*PATHS, "or", "$or", "", "a..b", "é", "gte", "a.$b", "x\0"]
COORDINATES = st.sampled_from([13.4, 52.5, 0.5, 1, 2.0, -190.5, 95.5, "x", True, float("nan")])
CIRCLES = st.fixed_dictionaries(
    {"$centerSphere": st.tuples(
        st.lists(COORDINATES, min_size=1, max_size=3),
        st.sampled_from([1e-4, 0.5, 300.5, -0.5, 0, None]),
    ).map(list)}
)  # fmt: skip
CORNERS = st.lists(COORDINATES, min_size=2, max_size=2) | st.just([1])
BOXES = st.fixed_dictionaries({"$box": st.lists(CORNERS, min_size=2, max_size=2)})
OPERATORS = st.sampled_from(["$eq", "$gt", "$gte", "$lt", "$lte", "$in", "$geoWithin", "$x", "gt"])
ASKED = st.dictionaries(
    OPERATORS, scalars() | values() | st.lists(scalars(), max_size=3) | CIRCLES | BOXES, max_size=3
)
SIMPLE = st.dictionaries(st.sampled_from(NAMES), scalars() | ASKED, max_size=3)


def outcome(document: Any, stored: bool) -> Any:
    """Text, tree and what is nearest; or what is wrong."""
    try:
        found = parse(document, stored=stored)
    except InvalidRequest as error:
        return str(error)
    return found.text, found.tree, found.near, found.deltas


@settings(max_examples=many(1_000))
@given(document=SIMPLE | documents(), stored=st.booleans())
@example(document={"b": {"$lt": 5, "$gt": 1}, "a": "x"}, stored=False)
@example(document={"at": {"$geoWithin": {"$centerSphere": [[13.4, 52.5], 300.5]}}}, stored=False)
@example(document={"at": {"$geoWithin": {"$box": [[0.5, 0.5], [13.4, 52.5]]}}}, stored=False)
@example(document={"at": {"$geoWithin": {"$box": [[13.4, 0.5], [0.5, 52.5]]}}}, stored=False)
def test_what_is_parsed_at_a_glance_is_as_the_builder_has_it(document: Any, stored: bool) -> None:
    found = outcome(document, stored)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PARSING, "quick_nodes", lambda document, careful: None)
        patch.setattr(PARSING, "_known", ({}, {}))
        assert outcome(document, stored) == found
    if not isinstance(found, str):
        assert outcome(parse_text(found[0]).document, True)[:2] == found[:2]


def test_names_of_several_types_are_refused_by_name() -> None:
    with pytest.raises(InvalidRequest, match="names of fields must be text"):
        parse({"a": 1, 2: 3})
