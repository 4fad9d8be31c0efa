"""What a bad condition gets: `InvalidRequest` that begins with the exact place, and soon."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tideline.errors import InvalidRequest
from tideline.where import parse, parse_text


def nested(depth: int) -> list:
    value: list = []
    for _ in range(depth):
        value = [value]
    return value


def itself() -> list:
    value: list = []
    value += [value, value]
    return value


def object_in_itself() -> dict:
    value: dict = {}
    value["x"] = value
    return value


def nots(depth: int) -> dict:
    value: dict = {"$gt": 1}
    for _ in range(depth):
        value = {"$not": value}
    return value


POLYGON = [[0, 0], [4, 0], [4, 4]]
GEOMETRY = "$geometry"

# name: (document, how the message begins)
BAD = {
    "an operator nobody knows": (
        {"speed": {"$above": 1}},
        "where.speed.$above is not an operator; supported are $eq, $ne, $gt, $gte, $lt, $lte, $in",
    ),
    "a sign": ({"n": {">": 1}}, "where.n.> is not an operator: did you mean $gt?"),
    "or without its $": ({"or": [{"n": 1}]}, "where.or is a field: did you mean $or?"),
    "nearly known": ({"n": {"$gtee": 1}}, "where.n.$gtee is not an operator: did you mean $gte?"),
    "known in another case": (
        {"n": {"$NE": 1}},
        "where.n.$NE is not an operator: did you mean $ne?",
    ),
    "nearly known beside one": (
        {"n": {"$regex": "a", "$option": "i"}},
        "where.n.$option is not an operator: did you mean $options?",
    ),
    "nearly known at the top": ({"$orr": []}, "where.$orr is not an operator: did you mean $or?"),
    "nobody knows at the top": ({"$where": "1"}, "where.$where is not an operator; supported"),
    "an operator outside a field": ({"$gt": 1}, "where.$gt stands inside a field: {'speed'"),
    "logic inside a field": ({"a": {"$or": []}}, "where.a.$or stands beside fields"),
    "deep inside": (
        {"$or": [{"a": 1}, {"speed": {"$gt": 1, "$above": 1}}]},
        "where.$or[1].speed.$above is not an operator",
    ),
    "an empty name": ({"": 1}, "where. is not a path: a part of it must not be empty"),
    "an empty part": ({"a..b": 1}, "where.a..b is not a path"),
    "a dot at the end": ({"a.": 1}, "where.a. is not a path"),
    "an operator as a part": ({"a.$gt": 1}, "where.a.$gt is not a path: a part of it must not be"),
    "a null character": ({"a.\0delta": 1}, "where.a.\0delta is not a path"),
    "a name that is not text": ({1: 2}, "where: names of fields must be text. name=1"),
    "a name deep inside": ({"$and": [{"a": {2: 1}}]}, "where.$and[0].a: names of fields must be"),
    "a mix": ({"a": {"$gt": 1, "b": 2}}, "where.a mixes operators with fields"),
    "NaN": ({"a": {"$gt": math.nan}}, "where.a.$gt must be a finite number. value=nan"),
    "infinity inside": ({"a": [1, {"b": math.inf}]}, "where.a[1].b must be a finite number"),
    "bytes": ({"a": b"x"}, "where.a must be a JSON value. type='bytes'"),
    "a set": ({"a": {"$in": [1, {1}]}}, "where.a.$in[1] must be a JSON value. type='set'"),
    "a huge int": ({"a": {"$lt": 10**5000}}, "where.a.$lt: a whole number must fit 64 bits"),
    "a lone surrogate": ({"a": "\ud800"}, "where.a: text must be valid Unicode"),
    "a lone surrogate as a name": ({"\ud800": 1}, "where: text must be valid Unicode"),
    "too deep": ({"a": nested(100)}, "where.a[0][0][0]"),
    "too deep logic": ({"a": nots(100)}, "where.a.$not.$not"),
    "a list that holds itself": ({"a": itself()}, "where.a[0][0][0]"),
    "an object that holds itself": ({"a": object_in_itself()}, "where.a.x.x.x"),
    "too many clauses": (
        {"$and": [{"a": n} for n in range(257)]},
        "where.$and[256].a is one clause too many; at most 256",
    ),
    "too many in all": (
        {"a": {"$all": list(range(257))}},
        "where.a.$all[256] is one clause too many; at most 256",
    ),
    "too long": ({"a": "x" * 16384}, "where is too long; at most 16384 bytes"),
    "too many values": ({"a": {"$in": [0] * 16384}}, "where.a.$in[16381] holds too much"),
    "a list": ([1], "where must be a document like {'speed': {'$gt': 50}}. type='list'"),
    "text": ("a", "where must be a document like {'speed': {'$gt': 50}}. type='str'"),
    # operands
    "and of nothing": ({"$and": []}, "where.$and must be a list of one condition or more"),
    "or of a document": ({"$or": {"a": 1}}, "where.$or must be a list of one condition or more"),
    "nor of values": ({"$nor": [{}, 5]}, "where.$nor[1] must be a condition. value=5"),
    "in without a list": ({"a": {"$in": 5}}, "where.a.$in must be a list of JSON values"),
    "nin without a list": ({"a": {"$nin": "x"}}, "where.a.$nin must be a list of JSON values"),
    "in with an operator": ({"a": {"$in": [1, {"$gt": 1}]}}, "where.a.$in[1] must be a value or"),
    "not of a value": ({"a": {"$not": 5}}, "where.a.$not must be a document of operators"),
    "not of nothing": ({"a": {"$not": {}}}, "where.a.$not must be a document of operators"),
    "not of fields": ({"a": {"$not": {"b": 1}}}, "where.a.$not mixes operators with fields"),
    "exists text": ({"a": {"$exists": "no"}}, "where.a.$exists must be true or false"),
    "exists 2": ({"a": {"$exists": 2}}, "where.a.$exists must be true or false"),
    "a type nobody has": ({"a": {"$type": "date"}}, "where.a.$type must be a name or number of"),
    "a number of no type": ({"a": {"$type": [2, 7]}}, "where.a.$type must be a name or number"),
    "true as a type": ({"a": {"$type": True}}, "where.a.$type must be a name or number of"),
    "no type": ({"a": {"$type": []}}, "where.a.$type must be a name or number of a type"),
    "mod of one": ({"a": {"$mod": [2]}}, "where.a.$mod must be [divisor, remainder]"),
    "mod of text": ({"a": {"$mod": [2, "1"]}}, "where.a.$mod must be [divisor, remainder]"),
    "mod by zero": ({"a": {"$mod": [0.5, 1]}}, "where.a.$mod must be [divisor, remainder], two"),
    "mod by too much": ({"a": {"$mod": [1e300, 1]}}, "where.a.$mod must be numbers of 64 bits"),
    "mod of a number": ({"a": {"$mod": 2}}, "where.a.$mod must be [divisor, remainder]"),
    "all without a list": ({"a": {"$all": 1}}, "where.a.$all must be a list of JSON values"),
    "all with an operator": ({"a": {"$all": [1, {"$gt": 1}]}}, "where.a.$all[1] must be a value"),
    "all with a mix": (
        {"a": {"$all": [{"$elemMatch": {}, "$gt": 1}]}},
        "where.a.$all[0] must be a value or {'$elemMatch': ...}",
    ),
    "all with a pattern and more": (
        {"a": {"$all": [{"$regex": "a", "$gt": 1}]}},
        "where.a.$all[0] must be a value, {'$regex': ...} or {'$elemMatch': ...}",
    ),
    "elemMatch of a value": ({"a": {"$elemMatch": 1}}, "where.a.$elemMatch must be a condition"),
    "elemMatch of a mix": ({"a": {"$elemMatch": {"$gt": 1, "b": 1}}}, "where.a.$elemMatch mixes"),
    "elemMatch of both": (
        {"a": {"$elemMatch": {"$gt": 1, "$or": [{}]}}},
        "where.a.$elemMatch.$or stands beside fields",
    ),
    "inside elemMatch": (
        {"a": {"$elemMatch": {"b": {"$size": -1}}}},
        "where.a.$elemMatch.b.$size must be a whole number, 0 or more",
    ),
    "size of a half": ({"a": {"$size": 0.5}}, "where.a.$size must be a whole number, 0 or more"),
    "size true": ({"a": {"$size": True}}, "where.a.$size must be a whole number, 0 or more"),
    # patterns
    "a pattern that is no text": ({"a": {"$regex": 5}}, "where.a.$regex must be text, a pattern"),
    "a bad pattern": ({"a": {"$regex": "("}}, "where.a.$regex is not a pattern RE2 can run (miss"),
    "a back reference": ({"a": {"$regex": r"(a)\1"}}, "where.a.$regex is not a pattern RE2 can"),
    "looking ahead": ({"a": {"$regex": "(?=a)"}}, "where.a.$regex is not a pattern RE2 can run"),
    "a pattern that explodes": ({"a": {"$regex": "((a{99}){99}){99}"}}, "where.a.$regex is not a"),
    "a large pattern": ({"a": {"$regex": r"\pL{900}"}}, "where.a.$regex is not a pattern RE2 can"),
    "a long pattern": ({"a": {"$regex": "a" * 1025}}, "where.a.$regex is too long; at most 1024"),
    "an option nobody has": ({"a": {"$regex": "a", "$options": "g"}}, "where.a.$options must be"),
    "options that are no text": ({"a": {"$regex": "a", "$options": 1}}, "where.a.$options must be"),
    "options alone": ({"a": {"$options": "i"}}, "where.a.$options stands beside $regex only"),
    "a bad pattern in a list": (
        {"a": {"$in": ["x", {"$regex": "["}]}},
        "where.a.$in[1].$regex is not a pattern RE2 can run",
    ),
    "a pattern of many steps": (
        {"a": {"$regex": "(x[^y]{0,60}){9}z"}},
        "where.a.$regex makes the patterns of where too large: use shorter repeats",
    ),
    "many patterns": (
        {"$or": [{"a": {"$in": [{"$regex": f"[^y]{{{n}}}"}]}} for n in range(200, 210)]},
        "where.$or[2].a.$in[0].$regex makes the patterns of where too large",
    ),
    # places
    "no shape": ({"a": {"$geoWithin": {}}}, "where.a.$geoWithin must hold one of $box, $polygon"),
    "a shape nobody knows": (
        {"a": {"$geoWithin": {"$star": 1}}},
        "where.a.$geoWithin.$star is not a shape; supported are $box",
    ),
    "two shapes": (
        {"a": {"$geoWithin": {"$box": [[0, 0], [1, 1]], "$polygon": POLYGON}}},
        "where.a.$geoWithin must hold one of",
    ),
    "a box of one corner": (
        {"a": {"$geoWithin": {"$box": [[0, 0]]}}},
        "where.a.$geoWithin.$box must be two corners",
    ),
    "a box off the globe": (
        {"a": {"$geoWithin": {"$box": [[0, 0], [181, 0]]}}},
        "where.a.$geoWithin.$box[1] must be [lon, lat] within -180..180, -90..90",
    ),
    "a box inside out": (
        {"a": {"$geoWithin": {"$box": [[1, 1], [0, 0]]}}},
        "where.a.$geoWithin.$box must be [[west, south], [east, north]]",
    ),
    "a polygon of two points": (
        {"a": {"$geoWithin": {"$polygon": [[0, 0], [1, 1], [0, 0]]}}},
        "where.a.$geoWithin.$polygon must have 3 different points or more",
    ),
    "a point of text": (
        {"a": {"$geoWithin": {"$polygon": [[0, 0], ["1", 1], [0, 1]]}}},
        "where.a.$geoWithin.$polygon[1] must be [lon, lat]",
    ),
    "a polygon of too many points": (
        {"a": {"$geoWithin": {"$polygon": [[n % 9, n % 7] for n in range(1001)]}}},
        "where.a.$geoWithin.$polygon has too many points; at most 1000",
    ),
    "no rings": (
        {"a": {"$geoWithin": {GEOMETRY: {"type": "Polygon", "coordinates": []}}}},
        "where.a.$geoWithin.$geometry.coordinates must be a list of rings",
    ),
    "an open ring": (
        {"a": {"$geoWithin": {GEOMETRY: {"type": "Polygon", "coordinates": [[*POLYGON, [1, 1]]]}}}},
        "where.a.$geoWithin.$geometry.coordinates[0] must be a ring of 4 points or more, the last",
    ),
    "a line": (
        {"a": {"$geoWithin": {GEOMETRY: {"type": "LineString", "coordinates": POLYGON}}}},
        "where.a.$geoWithin.$geometry.type must be 'Polygon'",
    ),
    "no geometry": (
        {"a": {"$geoWithin": {GEOMETRY: POLYGON}}},
        "where.a.$geoWithin.$geometry must be GeoJSON",
    ),
    "a negative radius": (
        {"a": {"$geoWithin": {"$centerSphere": [[0, 0], -1]}}},
        "where.a.$geoWithin.$centerSphere[1] must be a number, 0 or more",
    ),
    "a radius in metres": (
        {"a": {"$geoWithin": {"$centerSphere": [[0, 0], 500]}}},
        "where.a.$geoWithin.$centerSphere[1] is in radians, and half around the earth is 3.14: "
        "divide metres by 6371009. value=500",
    ),
    "a box with its corners the wrong way": (
        {"a": {"$geoWithin": {"$box": [[3, 49], [2, 48]]}}},
        "where.a.$geoWithin.$box must be [[west, south], [east, north]]; one that crosses the "
        "antimeridian: two boxes in an $or. value=[[3, 49], [2, 48]]",
    ),
    "near a point that stands alone": (
        {"a": {"$near": {"type": "Point", "coordinates": [0, 0]}}},
        "where.a.$near.coordinates is none of $geometry, $maxDistance, $minDistance: a point is "
        "[lon, lat], or {'$geometry': {'type': 'Point', 'coordinates': [lon, lat]}}",
    ),
    "intersects a line of one point": (
        {"a": {"$geoIntersects": {GEOMETRY: {"type": "LineString", "coordinates": [[0, 0]]}}}},
        "where.a.$geoIntersects.$geometry is no LineString",
    ),
    "intersects what is no type": (
        {"a": {"$geoIntersects": {GEOMETRY: {"type": "Circle", "coordinates": [0, 0]}}}},
        "where.a.$geoIntersects.$geometry.type must be one of Point, MultiPoint",
    ),
    "intersects nothing": (
        {"a": {"$geoIntersects": [0, 0]}},
        "where.a.$geoIntersects must hold one of $box",
    ),
    "a collection without geometries": (
        {"a": {"$geoIntersects": {GEOMETRY: {"type": "GeometryCollection", "coordinates": []}}}},
        "where.a.$geoIntersects.$geometry must be GeoJSON, {'type': ..., 'geometries': ...}",
    ),
    "within a line": (
        {"a": {"$geoWithin": {GEOMETRY: {"type": "LineString", "coordinates": [[0, 0], [1, 1]]}}}},
        "where.a.$geoWithin.$geometry.type must be 'Polygon' or 'MultiPolygon'",
    ),
    "within no polygons": (
        {"a": {"$geoWithin": {GEOMETRY: {"type": "MultiPolygon", "coordinates": []}}}},
        "where.a.$geoWithin.$geometry.coordinates must be a list of polygons",
    ),
    "near nowhere": ({"a": {"$near": {"$maxDistance": 5}}}, "where.a.$near.$geometry must be Geo"),
    "near with more": (
        {"a": {"$near": {GEOMETRY: {"type": "Point", "coordinates": [0, 0]}, "$limit": 5}}},
        "where.a.$near.$limit is none of $geometry, $maxDistance, $minDistance",
    ),
    "near a polygon": (
        {"a": {"$near": {GEOMETRY: {"type": "Polygon", "coordinates": []}}}},
        "where.a.$near.$geometry.type must be 'Point'",
    ),
    "a distance of text": (
        {"a": {"$nearSphere": [0, 0], "$maxDistance": "5"}},
        "where.a.$maxDistance must be a number, 0 or more",
    ),
    "a distance true": (
        {"a": {"$near": [0, 0], "$minDistance": True}},
        "where.a.$minDistance must be a number, 0 or more",
    ),
    "a distance alone": (
        {"a": {"$maxDistance": 5}},
        "where.a.$maxDistance stands beside $near or $nearSphere only",
    ),
    # words
    "no words": ({"a": {"$words": " ... "}}, "where.a.$words must be text with one word or more"),
    "words of a number": ({"a": {"$words": 5}}, "where.a.$words must be text with one word or"),
    "fuzzy text": ({"a": {"$fuzzy": "x"}}, "where.a.$fuzzy must be like {'word': 'acident',"),
    "fuzzy with two thresholds": (
        {"a": {"$fuzzy": {"words": ["x"], "distance": 1, "similarity": 0.5}}},
        "where.a.$fuzzy takes a distance or a similarity, not both",
    ),
    "fuzzy without words": (
        {"a": {"$fuzzy": {"words": []}}},
        "where.a.$fuzzy.words must be a list of 1 to 32 words",
    ),
    "fuzzy with something else": (
        {"a": {"$fuzzy": {"words": ["x"], "n": 1}}},
        "where.a.$fuzzy must be like {'words':",
    ),
    "fuzzy with no word": (
        {"a": {"$fuzzy": {"words": ["x", 7]}}},
        "where.a.$fuzzy.words[1].word must be one word",
    ),
    "fuzzy too similar": (
        {"a": {"$fuzzy": {"words": [{"word": "x", "similarity": 1.5}]}}},
        "where.a.$fuzzy.words[0].similarity must be a number, 0 to 1",
    ),
    "fuzzy as true": (
        {"a": {"$fuzzy": {"word": "x", "similarity": True}}},
        "where.a.$fuzzy.similarity must be a number, 0 to 1",
    ),
    "contains nothing": ({"a": {"$contains": ""}}, "where.a.$contains must be text of one char"),
    "contains a number": ({"a": {"$contains": 5}}, "where.a.$contains must be text of one char"),
    "jaccard text": ({"a": {"$jaccard": "x"}}, "where.a.$jaccard must be like {'text':"),
    "jaccard of a number": (
        {"a": {"$jaccard": {"text": 5, "similarity": 0.5}}},
        "where.a.$jaccard.text must be text",
    ),
    "jaccard of many": (
        {"a": {"$jaccard": {"text": "x", "similarity": 0.5, "grams": 9}}},
        "where.a.$jaccard.grams must be a whole number, 1 to 8",
    ),
    "jaccard below nothing": (
        {"a": {"$jaccard": {"text": "x", "similarity": -0.5}}},
        "where.a.$jaccard.similarity must be a number, 0 to 1",
    ),
    "fuzzy with more": ({"a": {"$fuzzy": {"word": "x", "n": 1}}}, "where.a.$fuzzy must be like"),
    "two fuzzy words": ({"a": {"$fuzzy": {"word": "a b"}}}, "where.a.$fuzzy.word must be one word"),
    "a long fuzzy word": (
        {"a": {"$fuzzy": {"word": "a" * 65}}},
        "where.a.$fuzzy.word must be one word of at most 64 characters",
    ),
    "too fuzzy": (
        {"a": {"$fuzzy": {"word": "a", "distance": 4}}},
        "where.a.$fuzzy.distance must be a whole number, 0 to 3",
    ),
    "fuzzy by half": (
        {"a": {"$fuzzy": {"word": "a", "distance": 0.5}}},
        "where.a.$fuzzy.distance must be a whole number, 0 to 3",
    ),
}


@pytest.mark.parametrize(("document", "message"), BAD.values(), ids=list(BAD))
def test_a_bad_condition_is_refused_naming_the_place(document, message):
    with pytest.raises(InvalidRequest, match="^" + re.escape(message)):
        parse(document)


DELTA_BAD = {
    "a value": ({"a": {"$delta": 5}}, "where.a.$delta must be a document of comparisons"),
    "nothing": ({"a": {"$delta": {}}}, "where.a.$delta must be a document of comparisons"),
    "text": ({"a": {"$delta": {"$gt": "5"}}}, "where.a.$delta.$gt must be one of $eq, $ne"),
    "true": ({"a": {"$delta": {"$gt": True}}}, "where.a.$delta.$gt must be one of $eq, $ne"),
    "null in a list": ({"a": {"$delta": {"$in": [1, None]}}}, "where.a.$delta.$in must be one of"),
    "in without a list": ({"a": {"$delta": {"$in": 1}}}, "where.a.$delta.$in must be a list"),
    "another operator": ({"a": {"$delta": {"$size": 1}}}, "where.a.$delta.$size must be one of"),
    "in elemMatch": (
        {"a": {"$elemMatch": {"b": {"$delta": {"$gt": 1}}}}},
        "where.a.$elemMatch.b.$delta must not stand inside $elemMatch",
    ),
}


@pytest.mark.parametrize(("document", "message"), DELTA_BAD.values(), ids=list(DELTA_BAD))
def test_a_bad_delta_is_refused_naming_the_place(document, message):
    with pytest.raises(InvalidRequest, match="^" + re.escape(message)):
        parse(document, delta=True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "where is not valid JSON"),
        ('{"a": NaN}', "where is not valid JSON"),
        ('{"a": 1e999}', "where is not valid JSON"),
        (b'{"a": "\xff"}', "where is not valid JSON"),
        ("\ud800", "where must be valid Unicode"),
        ("[" * 8000, "where is not valid JSON"),
        ('{"a":' * 3000 + "1" + "}" * 3000, "where"),
        ("[1]", "where must be a document"),
        (" " * 20000, "where is too long; at most 16384 bytes"),
        (5, "where must be JSON text"),
    ],
)
def test_bad_text_is_refused(text, message):
    with pytest.raises(InvalidRequest, match="^" + message):
        parse_text(text)


def test_a_pattern_cannot_explode():
    # Takes a backtracking engine longer than the universe is old.
    condition = parse({"a": {"$regex": "^(a+)+$"}})
    assert not condition.matches({"a": "a" * 100_000 + "!"})
    assert parse({"a": {"$regex": "(x+x+)+y"}}).matches({"a": "x" * 100_000 + "y"})


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3)
    | st.sampled_from(["$gt", "$regex", "(", "Polygon"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["a", "a.b", "word", "type", "coordinates", "$and", "$or", "$nor", "$not",
            "$in", "$all", "$elemMatch", "$geoWithin", "$near", "$geometry", "$box", "$polygon",
            "$centerSphere", "$maxDistance", "$mod", "$regex", "$options", "$type", "$fuzzy",
            "$delta", "$gt", "$size", "$exists", "$words"]),
        inner, max_size=3,
    ),
    max_leaves=12,
)  # fmt: skip


@given(anything, anything, st.booleans())
def test_any_document_is_a_condition_or_an_invalid_request(document, body, delta):
    refused = None
    try:
        condition = parse(document, delta=delta)
    except InvalidRequest as error:
        refused = str(error)
    if refused is None:
        assert condition.matches(condition.with_delta(body, body)) in (True, False)
        assert parse_text(condition.text, delta=delta) == condition
    else:
        assert refused.startswith("where")
