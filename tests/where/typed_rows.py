"""Random rows of typed columns, their documents by a plain rule, and conditions on them.

Few values, chosen at the edges of their types, so that rows and conditions often meet; most
conditions fit the type of the column they ask about, some do not.
"""

from __future__ import annotations

import math
import random
import struct
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

TEXTS = ["", "a", "ab", "A", "b.c", "a\nb", "\0", "é", "\uffff", "\U0001f600", "a jam", "Point"]
WHOLE = [0, 1, -1, 2, 7, -8, 127, -128, 2**31 - 1, -(2**31), 2**31, 2**53, 2**53 + 1, 2**63 - 1]
WHOLE += [-value for value in WHOLE] + [-(2**63)]
REAL = [0.0, -0.0, 1.0, -1.0, 1.5, -7.5, 0.1, 2.0**31, 2.0**53, 2.0**63, 1e308, 5e-324]
REAL += [-value for value in REAL] + [math.nan, math.inf, -math.inf]

DEGREES = [-90, -7.5, -1, 0, 0.1, 1, 1.5, 90]

SCHEMA = pa.schema(
    {
        "s": pa.string(), "b": pa.bool_(), "i8": pa.int8(), "i16": pa.int16(), "i32": pa.int32(),
        "i64": pa.int64(), "f32": pa.float32(), "f64": pa.float64(),
        "o": pa.struct({"s": pa.string(), "i64": pa.int64(), "f64": pa.float64(),
                        "o": pa.struct({"b": pa.bool_(), "s": pa.string()})}),
        "ss": pa.list_(pa.string()), "bs": pa.list_(pa.bool_()), "i64s": pa.list_(pa.int64()),
        "f64s": pa.list_(pa.float64()), "f64ss": pa.list_(pa.list_(pa.float64())),
        "os": pa.list_(pa.struct({"i32": pa.int32(), "s": pa.string()})),
        "at": pa.list_(pa.float32()),
        "geo": pa.struct({"type": pa.string(), "coordinates": pa.list_(pa.int64())}),
    }
)  # fmt: skip
PATHS = ["s", "b", "i8", "i16", "i32", "i64", "f32", "f64", "o", "o.s", "o.i64", "o.f64", "o.o"]
PATHS += ["o.o.b", "o.o.s", "ss", "bs", "i64s", "f64s", "f64ss", "os", "at", "geo", "geo.type"]
ODD_PATHS = ["S", "s.x", "o.x", "x", "x.y", "os.s", "os.0.s", "ss.0", "f64ss.1", "o.O.b", "i64.0"]


def random_value(kind: pa.DataType, draw: random.Random, null: float = 0.15) -> object:
    if draw.random() < null:
        return None
    if pa.types.is_string(kind):
        return draw.choice(TEXTS)
    if pa.types.is_boolean(kind):
        return draw.random() < 0.5
    if pa.types.is_integer(kind):
        limit = 1 << (kind.bit_width - 1)
        return draw.choice([value for value in WHOLE if -limit <= value < limit])
    if pa.types.is_floating(kind):
        value = draw.choice([*REAL, draw.uniform(-90, 90)])
        return single(value) if kind.bit_width == 32 else value
    if pa.types.is_struct(kind):
        return {field.name: random_value(field.type, draw, null) for field in kind}
    return [random_value(kind.value_type, draw, null / 2) for _ in range(draw.choice([0, 1, 2, 3]))]


def random_row(draw: random.Random) -> dict[str, Any]:
    row = {field.name: random_value(field.type, draw) for field in SCHEMA}
    if draw.random() < 0.6:  # chance alone makes too few points
        row["at"] = [single(draw.choice(DEGREES)) for _ in range(draw.choice([2, 2, 2, 3]))]
        numbers = [draw.choice([-1, 0, 1, 90, None]) for _ in range(draw.choice([2, 3, 3, 4]))]
        row["geo"] = {"type": draw.choice(["Point", "Point", "a"]), "coordinates": numbers}
    return row


def single(value: float) -> float:
    """The float of 32 bits next to a value, as a double."""
    if not math.isfinite(value) or abs(value) > 3.4e38:
        return math.copysign(math.inf, value) if value == value else value
    return float(struct.unpack("f", struct.pack("f", value))[0])


def document(value: object) -> object:
    """What JSON can hold of a value; fields that are null are not there."""
    if isinstance(value, dict):
        fields = {name: document(part) for name, part in value.items()}
        return {name: part for name, part in fields.items() if part is not None}
    if isinstance(value, list):
        return [document(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


# --- random conditions ---

NUMBERS = [*WHOLE, 2**64 - 1, 1 - 2**64, single(0.1), 2.5, 1e300, *filter(math.isfinite, REAL)]
SCALARS = [None, True, False, *TEXTS, *NUMBERS]
PATTERNS = [
    "",
    "a",
    "^a",
    "b$",
    "^ab$",
    "^",
    "$",
    "^$",
    r"\.",
    r"^b\.c$",
    "a|b",
    ".",
    "a\nb",
    "[aA]",
]
TYPES = ["double", "string", "object", "array", "bool", "null", "int", "long", "number"]
DIVISORS = [1, -1, 2, 3, -4, 2**53 + 1, 2**63 - 1, -(2**63)]
OPERATORS: dict[str, list[str]] = {  # by the last letters of a path: what may well hold there
    "s": ["compare", "compare", "in", "in", "text", "type"],
    "b": ["compare", "in", "type"],
    "number": ["compare", "compare", "compare", "in", "number", "type"],
    "array": ["compare", "in", "array", "array", "type", "text", "number"],
    "place": ["place", "place", "array", "type"],
    "any": ["compare", "in", "type", "text", "number", "array", "place"],
}


def fitting(path: str) -> tuple[str, list[Any]]:
    """What lies at a path: its kind in `OPERATORS`, and values to compare it with."""
    last = path.split(".")[-1]
    if last in ("at", "geo"):
        return "place", NUMBERS
    if last in ("s", "type", "b"):
        return ("b", [True, False]) if last == "b" else ("s", TEXTS)
    if last in ("ss", "bs", "i64s", "f64s"):
        return "array", {"s": TEXTS, "b": [True, False]}.get(last[0], NUMBERS)
    return ("number", NUMBERS) if last[0] in "if" else ("any", SCALARS)


@st.composite
def values(draw: st.DrawFn, scalars: list[Any]) -> object:
    one = st.sampled_from([*scalars, None])
    kind = draw(st.integers(0, 9))
    if kind == 0:
        return draw(st.lists(one, max_size=3))
    if kind == 1:
        return dict(zip(["s", "b", "i32"], draw(st.lists(one, max_size=3)), strict=False))
    return draw(one if kind > 2 else st.sampled_from(SCALARS))


@st.composite
def operators(
    draw: st.DrawFn, kind: str, scalars: list[Any], element: bool = False
) -> dict[str, Any]:
    """What is asked of a field, or of the `element` of an array."""

    def one(choices: list[Any]) -> Any:
        return draw(st.sampled_from(choices))

    value = values(scalars)
    asked = one([*OPERATORS[kind], *OPERATORS[kind], "not", *OPERATORS["any"][:2]])
    if asked == "compare":
        return {one(["$eq", "$ne", "$gt", "$gte", "$lt", "$lte"]): draw(value)}
    if asked == "in":
        found = [
            {"$regex": pattern} for pattern in draw(st.lists(st.sampled_from(PATTERNS), max_size=1))
        ]
        return {one(["$in", "$nin"]): draw(st.lists(value, max_size=14)) + found}
    if asked == "type":
        named = {"$type": [one(TYPES), one(TYPES)]}
        return one([{"$exists": True}, {"$exists": False}, named])
    if asked == "text":
        found = {"$regex": one(PATTERNS), "$options": one(["", "", "i", "m", "s", "x"])}
        return one([found, {"$words": "jam"}, {"$fuzzy": {"word": "jam", "distance": 1}}])
    if asked == "number":
        return {"$mod": [one(DIVISORS), one([0, 1, -1, 2])]}
    if asked == "array":
        if not element and one([True, False]):
            field = one([None, None, "i32", "s", "x"])
            if field is None:
                return {"$elemMatch": draw(operators("any", scalars, element=True))}
            return {"$elemMatch": {field: draw(operators(*fitting(field), element=True))}}
        return one([{"$size": one([0, 1, 2])}, {"$all": [one(scalars), one(scalars)]}])
    if asked == "place":
        (west, east), (south, north) = (sorted([one(DEGREES), one(DEGREES)]) for _ in range(2))
        box = {"$geoWithin": {"$box": [[west, south], [east, north]]}}
        return one([box, box, {"$near": [1, 1], "$maxDistance": 1e6}])
    return {"$not": draw(operators(kind, scalars, element=element))}


@st.composite
def conditions(draw: st.DrawFn, depth: int = 2) -> dict[str, Any]:
    logic = draw(st.sampled_from(["$and", "$or", "$nor", *[None] * 4])) if depth else None
    if logic is not None:
        return {logic: draw(st.lists(conditions(depth - 1), min_size=1, max_size=3))}
    path = draw(st.sampled_from([*PATHS, *PATHS, *ODD_PATHS]))
    kind, scalars = fitting(path)
    return {path: draw(operators(kind, scalars) if draw(st.integers(0, 4)) else values(scalars))}
