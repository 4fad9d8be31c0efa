"""`$group`: documents that have one `_id` become one, with what their accumulators say.

    $sum $avg      of numbers, exactly; everything else counts for nothing (sums.py)
    $min $max      of what is neither null nor missing, in the order of values
    $first $last   in the order in which documents come
    $count         how many
    $push          all values that are not missing
    $addToSet      each of them once

An accumulator begins with a new object, is given one value after the other, and then says its
result. Pure functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tideline.documents.expressions import Expression, expression
from tideline.documents.sums import ExactSum
from tideline.errors import InvalidRequest
from tideline.where.order import sort_key
from tideline.where.values import MISSING, compare

__all__ = ["ACCUMULATORS", "ORDERED", "group"]

Document = dict[str, Any]
Stage = Callable[[Iterable[Document]], Iterable[Document]]
_NUMBERS = frozenset((int, float))


class _Sum:
    def __init__(self) -> None:
        self.sum = ExactSum()

    def add(self, value: Any) -> None:
        if type(value) in _NUMBERS:
            self.sum.add(value)

    def result(self) -> Any:
        return self.sum.result()


class _Average(_Sum):
    def result(self) -> Any:
        return self.sum.mean()


class _Least:
    sign = 1

    def __init__(self) -> None:
        self.value: Any = None

    def add(self, value: Any) -> None:
        if value is None or value is MISSING:
            return
        if self.value is None or self.sign * compare(value, self.value) < 0:
            self.value = value

    def result(self) -> Any:
        return self.value


class _Greatest(_Least):
    sign = -1


class _First:
    def __init__(self) -> None:
        self.values: list[Any] = []

    def add(self, value: Any) -> None:
        if not self.values:
            self.values.append(value)

    def result(self) -> Any:
        return None if self.values[0] is MISSING else self.values[0]


class _Last(_First):
    def add(self, value: Any) -> None:
        self.values = [value]


class _Count:
    def __init__(self) -> None:
        self.count = 0

    def add(self, value: Any) -> None:
        self.count += 1

    def result(self) -> int:
        return self.count


class _Push:
    def __init__(self) -> None:
        self.values: list[Any] = []

    def add(self, value: Any) -> None:
        if value is not MISSING:
            self.values.append(value)

    def result(self) -> list[Any]:
        return self.values


class _Set:
    def __init__(self) -> None:
        self.values: dict[Any, Any] = {}

    def add(self, value: Any) -> None:
        if value is not MISSING:
            self.values.setdefault(sort_key(value), value)

    def result(self) -> list[Any]:
        return list(self.values.values())


ACCUMULATORS: dict[str, Any] = {
    "$sum": _Sum, "$avg": _Average, "$min": _Least, "$max": _Greatest, "$first": _First,
    "$last": _Last, "$count": _Count, "$push": _Push, "$addToSet": _Set,
}  # fmt: skip
ORDERED = frozenset(("$first", "$last", "$push", "$addToSet"))
"""Those whose result depends on the order of documents."""


def group(spec: Any, place: str) -> tuple[Stage, bool]:
    """The stage, and whether the order of documents matters to it.

    >>> stage, _ = group({"_id": "$road", "n": {"$sum": "$cars"}}, "pipeline[0].$group")
    >>> list(stage([{"road": "A1", "cars": 2}, {"road": "A1", "cars": 5}, {"cars": 1}]))
    [{'_id': None, 'n': 1}, {'_id': 'A1', 'n': 7}]
    """
    if not isinstance(spec, dict) or "_id" not in spec:
        raise InvalidRequest(f"{place} needs _id, like {{'_id': '$road'}}; None is one group")
    by = expression(spec["_id"], f"{place}._id")
    made: list[tuple[str, Any, Expression]] = []
    ordered = False
    for name, asked in spec.items():
        if name == "_id":
            continue
        here = f"{place}.{name}"
        if not name or "." in name or name.startswith("$"):
            raise InvalidRequest(f"{here} is no name of a field: no dots, and no $ in front")
        if not isinstance(asked, dict) or len(asked) != 1 or not asked.keys() <= set(ACCUMULATORS):
            raise InvalidRequest(
                f"{here} must be one of {', '.join(ACCUMULATORS)}, like {{'$sum': '$speed'}}",
                given=asked,
            )
        [(kind, operand)] = asked.items()
        if kind == "$count" and operand != {}:
            raise InvalidRequest(f"{here}.$count takes {{}}", given=operand)
        if kind in ("$sum", "$avg") and isinstance(operand, str) and not operand.startswith("$"):
            raise InvalidRequest(f"{here}.{kind} is of numbers: did you mean '${operand}'?")
        made.append((name, ACCUMULATORS[kind], expression(operand, f"{here}.{kind}")))
        ordered = ordered or kind in ORDERED

    def stage(documents: Iterable[Document]) -> Iterator[Document]:
        groups: dict[Any, tuple[Any, list[Any]]] = {}
        values = [value for _, _, value in made]
        for document in documents:
            known = by(document)
            key = sort_key(known)
            found = groups.get(key)
            if found is None:
                shown = None if known is MISSING else known
                found = groups[key] = shown, [begin() for _, begin, _ in made]
            for value, each in zip(values, found[1], strict=True):
                each.add(value(document))
        names = [name for name, _, _ in made]
        for key in sorted(groups):
            shown, states = groups[key]
            results = (state.result() for state in states)
            yield {"_id": shown, **dict(zip(names, results, strict=True))}

    return stage, ordered
