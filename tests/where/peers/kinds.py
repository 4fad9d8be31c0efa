"""Which questions are of a kind where a peer is known to answer otherwise.

The kinds are those of `tideline.where.differences`. A rule gets the smallest question on which
there is a disagreement (`reduce.py`): a path, an operator, its operand and a body. It is as narrow
as the peer lets it be, so that a new disagreement shows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

ORDER = ("$gt", "$gte", "$lt", "$lte")
EQUALITY = ("$eq", "$ne", "$in", "$nin", "$all")


@dataclass(frozen=True, slots=True)
class Leaf:
    """A question about one field."""

    path: list[str]
    operator: str
    operand: Any
    body: dict[str, Any]

    @property
    def wanted(self) -> list[Any]:
        """The values it compares with."""
        return self.operand if self.operator in ("$in", "$nin", "$all") else [self.operand]

    @property
    def compares(self) -> bool:
        return self.operator in (*ORDER, *EQUALITY)

    def meets_array(self) -> bool:
        """Whether the path meets an array before it ends."""
        return any(isinstance(value, list) for value in on_the_way(self.body, self.path)[:-1])

    def meets_scalar(self) -> bool:
        """Whether the path meets what leads nowhere, an empty array included."""
        return any(
            not isinstance(value, (dict, list)) or value == []
            for value in on_the_way(self.body, self.path)[:-1]
        )

    def nested_arrays(self) -> bool:
        """Whether the path meets an array in an array, at its end too."""
        return any(
            isinstance(value, list) and any(isinstance(each, list) for each in value)
            for value in on_the_way(self.body, self.path)
        )

    def numbered(self) -> bool:
        return any(part.isdigit() for part in self.path)


def on_the_way(value: Any, path: list[str]) -> list[Any]:
    """Everything that lies on the path, in every array, last what lies at its end."""
    if not path:
        return [value]
    if isinstance(value, dict):
        inside = [value[path[0]]] if path[0] in value else []
        return [value, *(each for part in inside for each in on_the_way(part, path[1:]))]
    if isinstance(value, list):
        found: list[Any] = [value]
        for number, part in enumerate(value):
            if str(number) == path[0]:
                found += on_the_way(part, path[1:])
            if isinstance(part, (dict, list)):
                found += on_the_way(part, path)
        return [*found, None]
    return [value, None]


def leaf_of(condition: dict[str, Any], body: dict[str, Any]) -> Leaf | None:
    """The question as a leaf, or None when it is a larger one."""
    if len(condition) != 1:
        return None
    ((path, asked),) = condition.items()
    if path.startswith("$"):
        return None
    operator, operand = "$eq", asked
    if isinstance(asked, dict) and any(key.startswith("$") for key in asked):
        named = {key: value for key, value in asked.items() if key != "$options"}
        if len(named) != 1:
            return Leaf(path.split("."), "several", named, body)
        ((operator, operand),) = named.items()
    return Leaf(path.split("."), operator, operand, body)


def booleans_and_numbers(leaf: Leaf) -> bool:
    kinds = {type(each) for each in scalars([leaf.operand, leaf.body])}
    return bool in kinds and bool(kinds & {int, float})


def scalars(value: Any) -> list[Any]:
    inside = value.values() if isinstance(value, dict) else value
    if isinstance(value, (dict, list)):
        return [each for part in inside for each in scalars(part)]
    return [value]


def array_on_path(leaf: Leaf) -> bool:
    """Values that mingo mixes up with the array it collects from a path."""
    mixed = not leaf.compares or any(
        each is None or isinstance(each, (list, dict)) for each in leaf.wanted
    )
    arrays = sum(isinstance(value, list) for value in on_the_way(leaf.body, leaf.path))
    return leaf.meets_array() and (mixed or arrays > 1)


def seems_negative(leaf: Leaf) -> bool:
    """Null, or a negation: what should hold where nothing lies."""
    if leaf.operator in ("$not", "$ne", "$nin"):
        return True
    if leaf.operator == "several":
        return "$exists" in leaf.operand
    return (leaf.operator == "$exists" and not leaf.operand) or (
        leaf.compares and any(each is None for each in leaf.wanted)
    )


def no_object(leaf: Leaf) -> bool:
    """An `$elemMatch` on fields, and an element that has none."""
    by_field = leaf.operator == "$elemMatch" and all(
        not key.startswith("$") or key in ("$and", "$or", "$nor") for key in leaf.operand
    )
    return by_field and any(
        isinstance(value, list) and any(not isinstance(each, dict) for each in value)
        for value in on_the_way(leaf.body, leaf.path)
    )


Rule = Callable[[Leaf], bool]

MINGO: dict[str, Rule] = {
    "order of arrays": lambda leaf: leaf.operator in ORDER and isinstance(leaf.operand, list),
    "order of objects": lambda leaf: leaf.operator in ORDER and isinstance(leaf.operand, dict),
    "order with null": lambda leaf: leaf.operator in ORDER and leaf.operand is None,
    "an object without the field": lambda leaf: (
        leaf.compares and None in leaf.wanted and leaf.meets_array()
    ),
    "a path through an array": array_on_path,
    "arrays in arrays": Leaf.nested_arrays,
    "a picked element": lambda leaf: leaf.numbered() and leaf.meets_array(),
    "in with an array": lambda leaf: (
        leaf.operator in ("$in", "$nin") and any(isinstance(each, list) for each in leaf.wanted)
    ),
    "all": lambda leaf: leaf.operator == "$all",
    "an element that is an array": lambda leaf: (
        leaf.operator == "$elemMatch" and leaf.nested_arrays()
    ),
    "an element that is no object": no_object,
    "types of elements": lambda leaf: leaf.operator == "$type",
    "whole numbers": lambda leaf: leaf.operator == "$type" and leaf.operand == "double",
    "mod": lambda leaf: leaf.operator == "$mod",
    "text beyond 16 bits": lambda leaf: any(
        isinstance(each, str) and max(each, default="") > "\uffff"
        for each in scalars([leaf.operand, leaf.body])
    ),
}

MONGOMOCK: dict[str, Rule] = {
    "order with null": lambda leaf: leaf.operator in ORDER and leaf.operand is None,
    "order of arrays": lambda leaf: leaf.operator in ORDER and isinstance(leaf.operand, list),
    "order of objects": lambda leaf: leaf.operator in ORDER and isinstance(leaf.operand, dict),
    "a scalar on the path": lambda leaf: leaf.meets_scalar() and seems_negative(leaf),
    "a path through an array": lambda leaf: leaf.meets_array() and seems_negative(leaf),
    "a picked element": lambda leaf: leaf.numbered() and leaf.meets_array(),
    "in with an array": lambda leaf: (
        leaf.operator in ("$in", "$nin") and any(isinstance(each, list) for each in leaf.wanted)
    ),
    "all": lambda leaf: leaf.operator == "$all",
    "all of nothing": lambda leaf: leaf.operator == "$all" and not leaf.operand,
    "an element that is an array": lambda leaf: (
        leaf.operator == "$elemMatch" and leaf.nested_arrays()
    ),
    "an element that is no object": no_object,
    "not in elemMatch": lambda leaf: leaf.operator == "$elemMatch" and "$not" in leaf.operand,
    "an array as an element": lambda leaf: (
        leaf.compares and any(isinstance(each, list) for each in leaf.wanted)
    ),
    "several operators": lambda leaf: leaf.operator == "several" and leaf.meets_array(),
    "an empty object": lambda leaf: leaf.operand == {},
    "booleans and numbers": booleans_and_numbers,
    "size of what is no array": lambda leaf: leaf.operator == "$size",
    "the end of text": lambda leaf: leaf.operator == "$regex" and "$" in leaf.operand,
}

KINDS = {"mingo": MINGO, "mongomock": MONGOMOCK}
