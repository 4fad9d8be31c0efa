"""Random conditions and bodies that the peers understand, from a source of randomness.

Few names and values, so that conditions often meet bodies. Keys are made in sorted order:
MongoDB and some peers tell objects apart by the order of their keys, we do not.
"""

from __future__ import annotations

import random
from typing import Any

NAMES = ["a", "b", "c"]
PATHS = [*NAMES, *NAMES, *NAMES, "a.b", "b.a", "a.b.c", "a.0", "a.1", "b.0.a", "c.a.1"]
SCALARS = [None, True, False, 0, 1, 1, 1.5, 2, -7.5, "", "a", "a", "ab", "B", "1"]
PATTERNS = ["a", "^a", "^ab", "b|1", "^.b", "[ab]+", "A"]
TYPES = ["double", "string", "object", "array", "bool", "int", "number", "null"]


class Generator:
    """A stream of conditions and bodies."""

    def __init__(self, draw: random.Random) -> None:
        self.draw = draw

    def body(self) -> dict[str, Any]:
        return self.object(NAMES, 0)

    def object(self, names: list[str], depth: int) -> dict[str, Any]:
        chosen = [name for name in names if self.draw.random() < 0.8]
        return {name: self.value(depth + 1) for name in sorted(chosen)}

    def value(self, depth: int = 0) -> Any:
        kind = self.draw.random()
        if depth > 3 or kind < 0.6:
            return self.draw.choice(SCALARS)
        if kind < 0.82:
            return [self.value(depth + 1) for _ in range(self.draw.randrange(4))]
        return self.object([*NAMES, "0"], depth)

    def condition(self, depth: int = 0) -> dict[str, Any]:
        document: dict[str, Any] = {}
        for _ in range(self.draw.choice([1, 1, 1, 2])):
            if depth < 2 and self.draw.random() < 0.2:
                name = self.draw.choice(["$and", "$or", "$nor"])
                document[name] = [
                    self.condition(depth + 1) for _ in range(self.draw.choice([1, 2]))
                ]
            else:
                document[self.draw.choice(PATHS)] = self.asked(depth)
        return document

    def asked(self, depth: int) -> Any:
        if self.draw.random() < 0.2:
            return self.value(3)
        return self.operators(depth)

    def operators(self, depth: int) -> dict[str, Any]:
        asked: dict[str, Any] = {}
        for _ in range(self.draw.choice([1, 1, 2])):
            name = self.draw.choice(
                ["$eq", "$ne", "$gt", "$gte", "$lt", "$lte", "$in", "$nin", "$exists", "$type",
                 "$regex", "$mod", "$all", "$size", "$not", "$elemMatch"]
            )  # fmt: skip
            asked[name] = self.operand(name, depth)
        if "$regex" in asked and self.draw.random() < 0.3:
            asked["$options"] = self.draw.choice(["i", "s", "m"])
        return asked

    def operand(self, name: str, depth: int) -> Any:
        pick = self.draw.choice
        if name in ("$in", "$nin"):
            return [self.value(3) for _ in range(self.draw.randrange(5))]
        if name == "$exists":
            return pick([True, False])
        if name == "$type":
            return pick(TYPES)
        if name == "$regex":
            return pick(PATTERNS)
        if name == "$mod":
            return [pick([2, 3, -3]), pick([0, 1, -1])]
        if name == "$size":
            return self.draw.randrange(4)
        if name == "$all":
            if depth < 2 and self.draw.random() < 0.3:
                return [
                    {"$elemMatch": self.operand("$elemMatch", depth)} for _ in range(pick([1, 2]))
                ]
            return [self.value(3) for _ in range(self.draw.randrange(3))]
        if name == "$not":
            return self.operators(depth + 1) if depth < 2 else {"$gt": self.value(3)}
        if name == "$elemMatch":
            if depth >= 2:
                return {"$gt": self.value(3)}
            return (
                self.operators(depth + 1) if self.draw.random() < 0.5 else self.condition(depth + 1)
            )
        return self.value(3)
