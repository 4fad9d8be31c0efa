"""The operators of the condition language, as data.

One row an operator. The parser reads the names and what values are allowed; the
reference page and the tests read the examples, so each one is executed. How an
operator is evaluated is the business of the targets (`predicate.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["OPERATORS", "Operator", "supported"]


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator: `ordered` ones compare within a bracket and take scalars only."""

    name: str
    summary: str
    ordered: bool
    example: dict[str, object]
    """A condition that uses it."""
    holds: tuple[object, ...]
    """Bodies that meet the example."""
    fails: tuple[object, ...]
    """Bodies that do not."""

    @property
    def takes(self) -> str:
        """The values it accepts, in words.

        >>> OPERATORS["$gt"].takes
        'a number, text, boolean or null'
        """
        return "a number, text, boolean or null" if self.ordered else "any JSON value"


_TABLE = (
    Operator(
        "$eq",
        "the field equals the value; `{field: value}` is short for it",
        ordered=False,
        example={"kind": {"$eq": "jam"}},
        holds=({"kind": "jam"}, {"kind": ["jam", "fog"]}),
        fails=({"kind": "fog"}, {}),
    ),
    Operator(
        "$ne",
        "the field does not equal the value: exactly when `$eq` does not hold",
        ordered=False,
        example={"kind": {"$ne": "jam"}},
        holds=({"kind": "fog"}, {}),
        fails=({"kind": "jam"}, {"kind": ["jam", "fog"]}),
    ),
    Operator(
        "$gt",
        "the field is greater than the value",
        ordered=True,
        example={"speed": {"$gt": 50}},
        holds=({"speed": 50.5}, {"speed": [10, 60]}),
        fails=({"speed": 50}, {"speed": "60"}, {}),
    ),
    Operator(
        "$gte",
        "the field is greater than the value or equal to it",
        ordered=True,
        example={"speed": {"$gte": 50}},
        holds=({"speed": 50}, {"speed": 50.0}),
        fails=({"speed": 49.9}, {"speed": True}),
    ),
    Operator(
        "$lt",
        "the field is less than the value",
        ordered=True,
        example={"speed": {"$lt": 50}},
        holds=({"speed": 49}, {"speed": [90, 10]}),
        fails=({"speed": 50}, {"speed": None}, {}),
    ),
    Operator(
        "$lte",
        "the field is less than the value or equal to it",
        ordered=True,
        example={"day": {"$lte": "2024-05-01"}},
        holds=({"day": "2024-05-01"}, {"day": "2024-04-30"}),
        fails=({"day": "2024-05-02"}, {"day": 20240501}),
    ),
)

OPERATORS: dict[str, Operator] = {operator.name: operator for operator in _TABLE}


def supported() -> str:
    """The names, for a message.

    >>> supported()
    '$eq, $ne, $gt, $gte, $lt, $lte'
    """
    return ", ".join(OPERATORS)
