"""Random JSON texts as people and programs write them, for tests of the batch target.

Any white space, escapes, names that stand twice, numbers of every make; and several texts
of one shape, because what the batch target knows of a row it guesses of the next.
"""

from __future__ import annotations

import json
from random import Random
from typing import Any

import msgspec
from hypothesis import strategies as st
from strategies import NAMES, scalars

from tideline.where.parse import Condition

NUMBERS = [
    "0", "-0", "0.0", "-0.0", "1", "1.0", "1e0", "10e-1", "1.5", "-1", "-7", "2", "2147483648",
    "-2147483649", "12345678", "123456789", "9007199254740992", "9007199254740993",
    "9007199254740993.0", "123456789012345678", "1234567890123456789", "9223372036854775807",
    "-9223372036854775808", "18446744073709551615", "12345678901234567890123", "0.1", "0.10",
    "0.1000000000000000055511151231257827", "0.30000000000000004", "1e3", "1E+3", "-2.5", "25e-1",
    "1234567.12345678", "12345678.5", "1e308", "1.7976931348623157e308", "5e-324", "1e-400",
    "2.2250738585072014e-308", "123456789012345678901234567890.5", "1e22", "1e23", "8.5e15",
]  # fmt: skip


class Raw(str):
    """A number as it is written."""


raw_numbers = st.sampled_from(NUMBERS) | st.from_regex(
    r"-?(0|[1-9][0-9]{0,18})(\.[0-9]{1,18})?([eE][+-]?[0-9]{1,2})?", fullmatch=True
)
leaves = scalars() | raw_numbers.map(Raw) | st.text(max_size=40)
# Pairs, because a name may stand twice.
names = st.sampled_from([*NAMES, *NAMES, *NAMES, "0", "é", "ab", "a longer name than others have"])
values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3) | st.lists(st.tuples(names, inner), max_size=3).map(tuple)
    ),
    max_leaves=6,
)
objects = st.lists(st.tuples(names, values), max_size=5).map(tuple)


def write(value: Any, random: Random, style: str) -> str:
    """JSON text of a value: compact, spaced, or with white space and escapes anywhere."""

    def space() -> str:
        return "".join(random.choices(" \t\r\n", k=random.randrange(3))) if style == "wild" else ""

    def text(part: str) -> str:
        if style == "wild" and random.random() < 0.3:
            escaped = [
                f"\\u{ord(c):04x}" if ord(c) < 0xD800 and random.random() < 0.5 else c for c in part
            ]
            return '"' + "".join(c if len(c) > 1 else json.dumps(c)[1:-1] for c in escaped) + '"'
        return json.dumps(part, ensure_ascii=style == "ascii")

    comma, colon = (", ", ": ") if style == "spaced" else (",", ":")
    if isinstance(value, Raw):
        return str(value)
    if isinstance(value, str):
        return text(value)
    if isinstance(value, (list, tuple)):
        opening, closing = "{}" if isinstance(value, tuple) else "[]"
        parts = []
        for part in value:
            name = ""
            if isinstance(value, tuple):
                name, part = f"{text(part[0])}{space()}{colon}{space()}", part[1]
            parts.append(f"{space()}{name}{write(part, random, style)}{space()}")
        return opening + (comma.join(parts) or space()) + closing
    if isinstance(value, dict):
        return write(tuple(value.items()), random, style)
    return json.dumps(value)


@st.composite
def body_texts(draw: st.DrawFn) -> list[bytes]:
    """Some texts, of a few shapes so that rows look like the ones before."""
    random = draw(st.randoms(use_true_random=False))
    style = draw(st.sampled_from(["compact", "spaced", "ascii", "wild"]))
    shapes = draw(st.lists(objects | objects | objects | values, min_size=1, max_size=4))
    rows = draw(st.lists(st.sampled_from(shapes), min_size=1, max_size=12))
    again = [
        tuple(
            (name, draw(leaves)) if random.random() < 0.2 else (name, value) for name, value in row
        )
        if isinstance(row, tuple)
        else row
        for row in rows
    ]
    return [write(row, random, style).encode() for row in again]


def says(condition: Condition, texts: list[bytes | None]) -> list[bool]:
    """What the predicate says of each, decoded."""
    return [
        not condition if text is None else condition.matches(msgspec.json.decode(text))
        for text in texts
    ]
