"""Target: the reference page of the condition language, written from the table.

    python -m tideline.where.reference > docs/reference/conditions.md

A test compares the page with the file and runs every example in it.
"""

from __future__ import annotations

import json

from tideline.where.operators import OPERATORS
from tideline.where.parse import CLAUSES_LIMIT, SIZE_LIMIT
from tideline.where.values import DEPTH_LIMIT

__all__ = ["page"]

_HEAD = """\
# Conditions

<!-- Written by `python -m tideline.where.reference`; do not edit. -->

A condition says which bodies a subscription or a search wants. It is a MongoDB query document:
`Channel.subscribe(..., where={"speed": {"$gt": 50}})` and
`tideline subscribe --where '{"speed": {"$gt": 50}}'` mean the same.

- `{field: value}`: the field equals the value.
- `{field: {operator: value, ...}}`: every operator holds for the field.
- Several fields: all must hold. `{}` or no condition: every body.

Fields are the top-level fields of a body. Names must not be empty, start with `$` or contain a dot.

## Operators

| operator | holds when | takes | example | meets it | does not |
|---|---|---|---|---|---|
"""

_RULES = """
## Rules

- **Brackets.** Values compare only within their bracket: numbers (`1` equals `1.0`), text (by code
  point), booleans (`false` before `true`), null. A boolean is not a number, `"5"` is not `5`.
- **Missing fields** read as null: `{{"kind": null}}` holds for `{{}}`, and so does
  `{{"kind": {{"$ne": "jam"}}}}`.
- **Arrays.** An operator holds for an array when it holds for any element, one level deep;
  `$ne` is the negation of `$eq`. Two operators may be met by two different elements.
- **Objects and arrays as values** equal only what is the same in every part, as the whole field or
  as one element of it. The order of an object's keys does not matter (in MongoDB it does).
- **A body that is not an object** meets no condition but the empty one.

## Limits

At most {size} bytes of JSON, {clauses} clauses (operators and plain values) and {depth} levels of
nesting. Numbers must be finite, whole ones must fit 64 bits. Anything else is `InvalidRequest`,
naming the place: `where.speed.$above is not an operator; supported are ...`.
"""


def page() -> str:
    """The page as Markdown.

    >>> "| `$gt` |" in page()
    True
    """
    rows = [
        f"| `{operator.name}` | {operator.summary} | {operator.takes} | "
        f"{_code(operator.example)} | {_codes(operator.holds)} | {_codes(operator.fails)} |\n"
        for operator in OPERATORS.values()
    ]
    rules = _RULES.format(size=SIZE_LIMIT, clauses=CLAUSES_LIMIT, depth=DEPTH_LIMIT)
    return _HEAD + "".join(rows) + rules


def _codes(values: tuple[object, ...]) -> str:
    return ", ".join(map(_code, values))


def _code(value: object) -> str:
    return f"`{json.dumps(value)}`"


if __name__ == "__main__":
    print(page(), end="")
