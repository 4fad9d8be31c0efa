"""Operators without their $ and metres for radians are caught where a condition is given."""

from __future__ import annotations

import pytest

from tideline import InvalidRequest
from tideline.where import parse, parse_text

SLIPS = [
    ({"price": {"gte": 20}}, r"where.price.gte is not an operator: did you mean \$gte\?"),
    ({"price": {"gt": 1, "lt": 5}}, r"did you mean \$gt\?"),
    ({"price": {"in": [1, 2]}}, r"did you mean \$in\?"),
    ({"price": {"exists": True}}, r"did you mean \$exists\?"),
    ({"price": {"options": "i", "regex": "^A"}}, r"did you mean \$options\?"),
    ({"$or": [{"a": 1}, {"a.b": {"ne": None}}]}, r"where.\$or\[1\].a.b.ne is not an operator"),
    ({"a": {"$elemMatch": {"b": {"lte": 1}}}}, r"where.a.\$elemMatch.b.lte is not"),
    ({"at": {"near": [2, 48]}}, r"did you mean \$near\?"),
    ({"at": {"maxDistance": 9, "near": [2, 48]}}, r"did you mean \$(near|maxDistance)\?"),
    ({"name": {"contains": "sushi"}}, r"did you mean \$contains\?"),
    ({"name": {"fuzzy": {"word": "sushi"}}}, r"did you mean \$fuzzy\?"),
    ({"name": {"jaccard": {"text": "a", "similarity": 1}}}, r"did you mean \$jaccard\?"),
    ({"at": {"$geoWithin": {"$centerSphere": [[2, 48], 500]}}}, r"divide metres by 6371009"),
]
MEANT = [
    {"price": {"$eq": {"gte": 20}}},
    {"price": {"gte": 20, "currency": "EUR"}},
    {"box": {"size": 3}},
    {"place": {"type": "Point"}},
    {"length": {"in": 5}},  # inches
    {"found": {"exists": "yes"}},
    {"a": {}},
    {"sign": {"maxDistance": 9}},
    {"road": {"near": "Kiel"}},
    {"page": {"words": "one"}},
    {"at": {"$geoWithin": {"$centerSphere": [[2, 48], 4]}}},
    {"gte": 20},
    {"a": {"b": {"gte": 20}}},
]


@pytest.mark.parametrize(("condition", "message"), SLIPS)
def test_a_slip_is_caught(condition: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        parse(condition)
    assert parse(condition, stored=True) == parse_text(parse(condition, stored=True).text)


@pytest.mark.parametrize("condition", MEANT)
def test_what_may_be_meant_is_taken(condition: dict[str, object]) -> None:
    assert parse(condition) == parse(condition, stored=True)


def test_what_it_says_to_do_does_it() -> None:
    meant = parse({"price": {"$eq": {"gte": 20}}})
    assert meant.matches({"price": {"gte": 20}})
    assert not meant.matches({"price": 20})
