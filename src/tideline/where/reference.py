"""Target: the reference page of the condition language, written from the tables.

    python -m tideline.where.reference > docs/reference/conditions.md

A test compares the page with the file; every example and every case in it is executed.
"""

from __future__ import annotations

import json

from tideline.space.shapes import EARTH_RADIUS_M
from tideline.where.build import CLAUSES_LIMIT, PROGRAM_LIMIT
from tideline.where.differences import CASES
from tideline.where.geo import POINTS_LIMIT
from tideline.where.operators import OPERATORS
from tideline.where.parse import SIZE_LIMIT
from tideline.where.patterns import PATTERN_LIMIT
from tideline.where.values import DEPTH_LIMIT

__all__ = ["page"]

_HEAD = """\
# Conditions

<!-- Written by `python -m tideline.where.reference`; do not edit. -->

A condition says which bodies a subscription or a search wants. It is a MongoDB query document:
`Channel.subscribe(..., where={"speed": {"$gt": 50}})` and
`tideline subscribe --where '{"speed": {"$gt": 50}}'` mean the same.

- `{path: value}`: what lies at the path equals the value.
- `{path: {operator: operand, ...}}`: every operator holds for it.
- Several of them: all must hold. `{}` or no condition: every body.

A path is the name of a field, or names with dots between them: `road.lanes.0.speed`. No part may be
empty, start with `$` or hold a null character.
"""

_TABLE_HEAD = """
| operator | holds when | takes | example | meets it | does not |
|---|---|---|---|---|---|
"""

_RULES = """
## Rules

- **Brackets.** Values compare only within their bracket: null, numbers (`1` equals `1.0`), text
  (by code point), objects, arrays, booleans (`false` before `true`). A boolean is not a number,
  `"5"` is not `5`.
- **Missing fields** read as null: `{{}}` meets `{{"kind": null}}`, and it also meets
  `{{"kind": {{"$ne": "jam"}}}}`. Only `$exists` and `$type` tell them apart.
- **Arrays.** An operator holds for an array when it holds for the whole of it or for any element,
  one level deep; `$ne`, `$nin`, `$nor` and `$not` are exact negations. Two operators may be met
  by two different elements; `$elemMatch` asks for one. `$size`, `$elemMatch` and places see the
  array only as a whole.
- **Paths through arrays.** A part goes into every element that is an object; a whole number (`0`,
  `12`, not `01`) also picks that element. An array inside an array is entered only by a number,
  and an array picked by the last part is taken whole. A path that meets an array without objects
  reaches nothing, not even null: `{{"a.b": null}}` holds for `{{"a": 5}}` and for
  `{{"a": [{{}}]}}`, not for `{{"a": []}}`.
- **Objects and arrays as values** equal what is the same in every part. In order, arrays compare
  element by element, objects field by field: first the bracket of the value, then the name, then
  the value; what ends first comes first.
- **A body that is not an object** meets no condition but the empty one.
- **Sorting** uses the order null and missing, numbers, text, objects, arrays, booleans. A field
  that holds an array sorts by its least element, descending by its greatest; an empty array comes
  before null. The primary key decides last.
- **Places.** A geometry is `[lon, lat]` or GeoJSON of any type, within -180..180 and -90..90;
  altitudes are left out. Edges are straight lines in longitude and latitude and belong to it;
  inside an area is what an odd number of its edges parts from afar, so the order of corners decides
  nothing. Whether a point is on an edge or beside it is exact. Anything else, like a line of one
  point, a ring that is not closed or a number out of range, is no geometry: it is stored like any
  value, and no condition on places meets it. What crosses the antimeridian is split there into a
  Multi-geometry, and a box into two in an `$or`. Rims are inside; distances are metres along the
  great circle to the nearest point, 0 within an area. `$centerSphere` is `[[lon, lat], radians]`:
  metres divided by {radius:,.1f}.
- **Nearest first.** A condition with one `$near` that must hold, with nothing but `$and` around it,
  has an order: without `sort`, the nearest documents come first, by their key when two are equally
  near. With several, or inside `$or`, `$nor`, `$not` or `$elemMatch`, it is a condition only.
- **Words** are runs of letters, digits and marks, compared without case and compatibility forms
  (`STRASSE` meets `Straße`); accents count. In `$words`, words between quotes are a phrase: the
  same words one after the other, whatever stands between them. A quote that nothing closes parts
  words as other signs do.
- **Near words.** The edit distance counts characters inserted, deleted or replaced. The similarity
  of two words is 1 - distance / length of the longer one, and it must be the threshold *or more*:
  the distance may be the **floor** of (1 - threshold) times the longer length. At 0.8 that is no
  edit up to four characters, one from five, two from ten. (Libraries that take the ceiling accept
  words less similar than they were asked for.) The threshold is the decimal number as written, and
  whole numbers decide: 0.8 allows one edit of five. All words of `$fuzzy` must be met, by words of
  one text; one word of it may meet several.
- **Pieces of text.** `$contains` and `$jaccard` fold both texts as words are folded; spaces and
  signs count. (An exact piece: `$regex` with plain text.) The grams of a text are its runs of so
  many characters, each once; a text shorter than that has one, itself. Two texts without any are
  equal: similarity 1.
- **Changes.** `$delta` is the number now minus the number in the previous event at exactly the
  same place that is still valid; if either is missing or no number, there is none, which reads as
  missing.

## Limits

At most {size:,} bytes of JSON, {clauses} clauses (operators and plain values; a list for `$in` is
one) and {depth} levels of nesting. A pattern has at most {pattern:,} characters, all patterns of
a condition {program:,} instructions of RE2, a polygon {points:,} points. Numbers must be finite,
whole ones must fit 64 bits. Anything else is `InvalidRequest`, naming the place:
`where.$or[1].speed.$gtt is not an operator: did you mean $gt?`.
A field compared with an object whose names are all operators without their `$`, like
`{{"price": {{"gte": 20}}}}`, is an error too: `did you mean $gte?`. What means that very object is
`{{"price": {{"$eq": {{"gte": 20}}}}}}`.

## Not as in MongoDB

- **The order of an object's keys** does not matter, neither for equality nor for order. JSON
  objects have none.
- **Patterns** run on RE2, in time linear in the text: no back references and no looking around.
  `$` is the end of the text, not also before a last line break. JSON has no literal for a
  pattern, so in a list for `$in` it is `{{"$regex": ...}}`.
- **Polygons** have straight edges in longitude and latitude, as GeoJSON says; MongoDB draws the
  edges of `$geometry` on the sphere. The earth's radius is {radius:,.1f} m here, 6,378,100 m
  there.
- **`$near`** takes metres in both forms; MongoDB takes radians or degrees beside a plain
  `[lon, lat]`. It needs no index, and may stand inside `$or`.
- **`$geoIntersects`** takes `$box`, `$polygon` and `$centerSphere`, too. Polygons that share an
  edge are one area to `$geoWithin`; what two polygons of a MultiPolygon both cover is outside, as
  it is in a ring that goes around it twice. No polygon is read as its complement, however large.
- **`$type`** knows the types JSON has. A whole number is an int (32 bits) or a long; one with a
  point or an exponent is a double.
- **`$words`, `$fuzzy`, `$contains`, `$jaccard` and `$delta`** are ours. `$text`, `$where`,
  `$expr`, `$jsonSchema` and bits are not supported.

## Where other implementations differ

The tests ask three others the same questions, thousands of random ones: [mingo] (JavaScript),
[mongomock] and mgqpy (Python; its authors check it with MongoDB 7 and 8). These are the kinds
of questions where one of them answers otherwise. MongoDB's documentation decides; where it is
silent, its server does. "-" means that it does not support the question.

[mingo]: https://github.com/kofrasa/mingo
[mongomock]: https://github.com/mongomock/mongomock

| condition | body | here | mingo | mongomock | mgqpy | because |
|---|---|---|---|---|---|---|
"""


def page() -> str:
    """The page as Markdown.

    >>> "| `$gt` |" in page()
    True
    """
    groups: dict[str, list[str]] = {}
    for operator in OPERATORS.values():
        groups.setdefault(operator.group, []).append(
            f"| `{operator.name}` | {operator.summary} | {operator.takes} | "
            f"{_code(operator.example)} | {_codes(operator.holds)} | {_codes(operator.fails)} |\n"
        )
    tables = [f"\n## {name}\n{_TABLE_HEAD}{''.join(rows)}" for name, rows in groups.items()]
    rules = _RULES.format(
        size=SIZE_LIMIT,
        clauses=CLAUSES_LIMIT,
        depth=DEPTH_LIMIT,
        pattern=PATTERN_LIMIT,
        program=PROGRAM_LIMIT,
        points=POINTS_LIMIT,
        radius=EARTH_RADIUS_M,
    )
    cases = [
        f"| {_code(case.condition)} | {_code(case.body)} | {_word(case.ours)} | "
        f"{_word(case.mingo)} | {_word(case.mongomock)} | {_word(case.mgqpy)} | {case.because} |\n"
        for case in CASES
    ]
    return _HEAD + "".join(tables) + rules + "".join(cases)


def _codes(values: tuple[object, ...]) -> str:
    return ", ".join(map(_code, values)) or "-"


def _code(value: object) -> str:
    """A JSON value in a cell of a table."""
    return f"`{json.dumps(value)}`".replace("|", "\\|")


def _word(answer: bool | None) -> str:
    return "-" if answer is None else "yes" if answer else "no"


if __name__ == "__main__":
    print(page(), end="")
