"""The operators of the condition language, as data.

One row an operator. The parser takes from it what to say of a wrong operand, and a test
that there is a builder for every name; the reference page and the tests read the examples,
so each one is executed. How an operator is evaluated is the business of the targets.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["OPERATORS", "Operator", "supported"]


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator."""

    name: str
    group: str
    summary: str
    takes: str
    """The operands it accepts, in words."""
    example: dict[str, object]
    """A condition that uses it."""
    holds: tuple[object, ...]
    """Bodies that meet the example."""
    fails: tuple[object, ...]
    """Bodies that do not."""


_PARIS = [2.35, 48.86]
_TABLE = (
    Operator(
        "$eq", "Comparison", "the field equals the value; `{field: value}` is short for it",
        "any JSON value",
        example={"kind": {"$eq": "jam"}},
        holds=({"kind": "jam"}, {"kind": ["jam", "fog"]}),
        fails=({"kind": "fog"}, {}),
    ),
    Operator(
        "$ne", "Comparison", "exactly when `$eq` does not hold",
        "any JSON value",
        example={"kind": {"$ne": "jam"}},
        holds=({"kind": "fog"}, {}),
        fails=({"kind": "jam"}, {"kind": ["jam", "fog"]}),
    ),
    Operator(
        "$gt", "Comparison", "the field is greater than the value, in the same bracket",
        "any JSON value",
        example={"speed": {"$gt": 50}},
        holds=({"speed": 50.5}, {"speed": [10, 60]}),
        fails=({"speed": 50}, {"speed": "60"}, {}),
    ),
    Operator(
        "$gte", "Comparison", "the field is greater than the value or equal to it",
        "any JSON value",
        example={"speed": {"$gte": 50}},
        holds=({"speed": 50}, {"speed": 50.0}),
        fails=({"speed": 49.9}, {"speed": True}),
    ),
    Operator(
        "$lt", "Comparison", "the field is less than the value, in the same bracket",
        "any JSON value",
        example={"speed": {"$lt": 50}},
        holds=({"speed": 49}, {"speed": [90, 10]}),
        fails=({"speed": 50}, {"speed": None}, {}),
    ),
    Operator(
        "$lte", "Comparison", "the field is less than the value or equal to it",
        "any JSON value",
        example={"day": {"$lte": "2024-05-01"}},
        holds=({"day": "2024-05-01"}, {"day": "2024-04-30"}),
        fails=({"day": "2024-05-02"}, {"day": 20240501}),
    ),
    Operator(
        "$in", "Comparison", "the field equals one of the values, or one of the patterns finds it",
        "a list of JSON values and {'$regex': ...}",
        example={"kind": {"$in": ["jam", None, {"$regex": "^fog"}]}},
        holds=({"kind": "jam"}, {}, {"kind": ["x", "fog bank"]}),
        fails=({"kind": "ice"}, {"kind": []}),
    ),
    Operator(
        "$nin", "Comparison", "exactly when `$in` does not hold",
        "a list of JSON values and {'$regex': ...}",
        example={"kind": {"$nin": ["jam", "fog"]}},
        holds=({"kind": "ice"}, {}),
        fails=({"kind": "fog"}, {"kind": ["ice", "jam"]}),
    ),
    Operator(
        "$and", "Logic", "every condition holds",
        "a list of one condition or more",
        example={"$and": [{"speed": {"$gt": 50}}, {"speed": {"$lt": 90}}]},
        holds=({"speed": 60}, {"speed": [10, 60]}, {"speed": [10, 95]}),
        fails=({"speed": 95}, {}),
    ),
    Operator(
        "$or", "Logic", "at least one condition holds",
        "a list of one condition or more",
        example={"$or": [{"kind": "jam"}, {"speed": {"$lt": 5}}]},
        holds=({"kind": "jam"}, {"speed": 3}),
        fails=({"kind": "fog"}, {"speed": 5}),
    ),
    Operator(
        "$nor", "Logic", "none of the conditions holds",
        "a list of one condition or more",
        example={"$nor": [{"kind": "jam"}, {"speed": {"$lt": 5}}]},
        holds=({"kind": "fog"}, {}),
        fails=({"kind": "jam", "speed": 60}, {"speed": 3}),
    ),
    Operator(
        "$not", "Logic", "the operators do not all hold for the field",
        "a document of operators",
        example={"speed": {"$not": {"$gt": 50}}},
        holds=({"speed": 50}, {"speed": "fast"}, {}),
        fails=({"speed": 60}, {"speed": [10, 60]}),
    ),
    Operator(
        "$exists", "Fields", "the field is there, null included; with false: it is not",
        "true or false (or 1 or 0)",
        example={"road.name": {"$exists": True}},
        holds=({"road": {"name": None}}, {"road": [{}, {"name": "A8"}]}),
        fails=({"road": {}}, {"road": []}, {}),
    ),
    Operator(
        "$type", "Fields", "the field, or an element of it, is of one of the types",
        "a name or number of a type, or a list of them: double 1, string 2, object 3, array 4, "
        "bool 8, null 10, int 16, long 18, number",
        example={"speed": {"$type": ["number", "null"]}},
        holds=({"speed": 3}, {"speed": None}, {"speed": ["x", 1.5]}),
        fails=({"speed": "3"}, {"speed": True}, {}),
    ),
    Operator(
        "$regex", "Values", "the pattern is found in the text; `$options` beside it: i m s x",
        "text, a pattern",
        example={"road": {"$regex": "^a\\d+$", "$options": "i"}},
        holds=({"road": "A8"}, {"road": ["x", "a96"]}),
        fails=({"road": "A8 west"}, {"road": 8}, {}),
    ),
    Operator(
        "$mod", "Values", "the whole part of the number, divided, leaves the remainder",
        "[divisor, remainder], two numbers, the divisor not 0",
        example={"minute": {"$mod": [15, 0]}},
        holds=({"minute": 30}, {"minute": 45.9}, {"minute": -15}),
        fails=({"minute": 31}, {"minute": "30"}, {}),
    ),
    Operator(
        "$all", "Arrays", "the field holds every value; with `$elemMatch`: an element for each",
        "a list of JSON values and `{'$regex': ...}`, or of {'$elemMatch': ...}",
        example={"tags": {"$all": ["ice", "night"]}},
        holds=({"tags": ["night", "ice", "fog"]},),
        fails=({"tags": ["ice"]}, {"tags": "ice"}, {}),
    ),
    Operator(
        "$elemMatch", "Arrays", "one element of the array meets the whole condition",
        "a condition on the element, or a document of operators",
        example={"lanes": {"$elemMatch": {"speed": {"$lt": 5}, "open": True}}},
        holds=({"lanes": [{"speed": 80}, {"speed": 3, "open": True}]},),
        fails=({"lanes": [{"speed": 3}, {"open": True}]}, {"lanes": {"speed": 3, "open": True}}),
    ),
    Operator(
        "$size", "Arrays", "the field is an array of so many elements",
        "a whole number, 0 or more",
        example={"lanes": {"$size": 2}},
        holds=({"lanes": [1, 2]},),
        fails=({"lanes": [1]}, {"lanes": 2}, {}),
    ),
    Operator(
        "$geoWithin", "Places", "all of the field's geometry is inside the shape, edges included",
        "one of `$box`, `$polygon`, `$centerSphere`, `$geometry` (a Polygon or MultiPolygon)",
        example={"at": {"$geoWithin": {"$box": [[2, 48], [3, 49]]}}},
        holds=(
            {"at": _PARIS}, {"at": {"type": "Point", "coordinates": _PARIS}}, {"at": [3, 49]},
            {"at": {"type": "LineString", "coordinates": [[2, 48], _PARIS]}},
        ),
        fails=(
            {"at": [3.1, 48.5]}, {"at": "Paris"}, {},
            {"at": {"type": "LineString", "coordinates": [[1, 48], _PARIS]}},
        ),
    ),
    Operator(
        "$geoIntersects", "Places", "the field's geometry and the shape have a point in common",
        "{'$geometry': any GeoJSON geometry}, or one of `$box`, `$polygon`, `$centerSphere`",
        example={
            "at": {
                "$geoIntersects": {
                    "$geometry": {"type": "LineString", "coordinates": [[2, 48], [3, 49]]}
                }
            }
        },
        holds=(
            {"at": [2.5, 48.5]}, {"at": {"type": "LineString", "coordinates": [[2, 49], [3, 48]]}},
        ),
        fails=({"at": _PARIS}, {"at": {"type": "MultiPoint", "coordinates": [[2, 49]]}}, {}),
    ),
    Operator(
        "$near", "Places",
        "the nearest point of the field's geometry is between `$minDistance` and `$maxDistance`, "
        "metres; `find` gives the nearest first",
        "{'$geometry': a GeoJSON Point, '$maxDistance': ...}, or [lon, lat] with the distances "
        "beside it; both may be left out",
        example={
            "at": {
                "$near": {
                    "$geometry": {"type": "Point", "coordinates": _PARIS},
                    "$maxDistance": 1000,
                }
            }
        },
        holds=({"at": _PARIS}, {"at": [2.36, 48.86]}),
        fails=({"at": [2.37, 48.86]}, {"at": []}, {}),
    ),
    Operator(
        "$nearSphere", "Places", "the same as `$near`",
        "as `$near`",
        example={"at": {"$nearSphere": _PARIS, "$minDistance": 500, "$maxDistance": 1000}},
        holds=({"at": [2.36, 48.86]},),
        fails=({"at": _PARIS}, {"at": [2.37, 48.86]}),
    ),
    Operator(
        "$words", "Words",
        "the text has every one of the words, in any order and case, and those between quotes "
        "one after the other",
        "text with one word or more",
        example={"note": {"$words": "flat \"right lane\""}},
        holds=({"note": "Flat rear TIRE, right lane"}, {"note": ["none", "right-lane: flat"]}),
        fails=({"note": "right lane"}, {"note": "flat: lane right"},
               {"note": ["flat", "right lane"]}, {}),
    ),
    Operator(
        "$fuzzy", "Words",
        "for each of the words, the text has one near it: within the edit distance (1 if not "
        "said), or at least so similar",
        "{'word': one word, 'distance': 0 to 3}, or {'words': [...], 'similarity': 0 to 1}; each "
        "of `words` is a word, or has a threshold of its own: {'word': ..., 'similarity': ...}",
        example={"note": {"$fuzzy": {"words": ["sutishi", "restorant"], "similarity": 0.8}}},
        holds=({"note": "Suteishi RESTAURANT"}, {"note": "restaurant: sutishi"}),
        fails=({"note": "Suteishi"}, {"note": "Sushi restaurant"}, {"note": 1}, {}),
    ),
    Operator(
        "$contains", "Words", "the text contains the other one, whatever the case",
        "text of one character or more",
        example={"name": {"$contains": "l-tea"}},
        holds=({"name": "Pearl-Tea House"}, {"name": ["none", "COOL-TEA"]}),
        fails=({"name": "pearl tea"}, {"name": ["coo", "l-t"]}, {}),
    ),
    Operator(
        "$jaccard", "Words",
        "of all grams in the text or the other one, at least so large a part is in both",
        "{'text': ..., 'similarity': 0 to 1, 'grams': the characters of a gram, 1 to 8, 3 if not "
        "said}",
        example={"name": {"$jaccard": {"text": "tideline", "grams": 3, "similarity": 0.5}}},
        holds=({"name": "Tidelines"}, {"name": "the tideline"}, {"name": "tidelin"}),
        fails=({"name": "timeline"}, {"name": ""}, {}),
    ),
    Operator(
        "$delta", "Channels",
        "how much the field has changed since the last still-valid event at exactly the same place",
        "a document of comparisons with numbers",
        example={"temp": {"$delta": {"$lte": -5}}},
        holds=(),
        fails=({"temp": 1}, {}),
    ),
)  # fmt: skip

OPERATORS: dict[str, Operator] = {operator.name: operator for operator in _TABLE}


def supported() -> str:
    """The names, for a message.

    >>> supported()[:20]
    '$eq, $ne, $gt, $gte,'
    """
    return ", ".join(OPERATORS)
