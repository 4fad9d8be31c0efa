"""Planning again what differs from something planned in a value alone: the same field, another box.

    shape_of    one test of one field, without its value
    is_plain    whether a plan says how all of its shape are found: by one index, with one ask
    again       that plan with what the kind makes of the new value

Conditions of one shape differ in what an index is expected to find, which is estimated anew, and
in what its kind makes of their values. Where that may lead to another plan, they are planned anew.

Pure functions of what they are given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tideline.documents.plan import Plan, through
from tideline.documents.ways import UNKNOWN, Span
from tideline.index.compound import SEPARATOR
from tideline.index.kind import Ask, Asked, Estimate, IndexKind
from tideline.where.bounds import need_of
from tideline.where.parse import Condition
from tideline.where.tree import At, Equals, Inside, Order

__all__ = ["again", "is_plain", "shape_of"]


def shape_of(condition: Condition) -> tuple[Any, ...] | None:
    """The field and the test of a condition that has no other; None of all others.

    >>> from tideline.where.parse import parse
    >>> shape_of(parse({"n": 5})) == shape_of(parse({"n": 7})) != shape_of(parse({"n": "7"}))
    True
    >>> shape_of(parse({"n": 5, "m": 5})) is None
    True
    """
    tree = condition.tree
    if type(tree) is not At:
        return None
    test = tree.test
    if type(test) is Inside:
        return tree.path, Inside, test.kind, test.how
    if type(test) is Equals:
        return tree.path, Equals, type(test.value)
    if type(test) is Order:
        return tree.path, test.operator, type(test.value)
    return None


def is_plain(
    found: Plan, indexes: Mapping[str, IndexKind], filter: str | None, limit: int | None
) -> bool:
    """Whether a plan of a condition that has a shape is good for `again`."""
    if len(found.ways) != 1 or found.joined or any(SEPARATOR in name for name in indexes):
        return False
    [way] = found.ways
    return (
        way.kind == "index" and len(way.asks) == 1 and not way.ordered
        and way.field != filter
        # What is not sure is tried for: the planner knows how often.
        and (limit is None or way.exact or way.estimate is UNKNOWN)
    )  # fmt: skip


def again(
    before: Plan, condition: Condition, indexes: Mapping[str, IndexKind], limit: int | None,
    everything: Estimate, estimate: Callable[[str, Ask, Span], Estimate],
    decides: Callable[[str, Ask], bool],
) -> Plan | None:  # fmt: skip
    """The plan of a condition, given a plain one of its shape; None: it must be planned anew."""
    [way] = before.ways
    field, test = way.field or "", condition.tree.test  # type: ignore[union-attr]
    need, _ = need_of(test)
    if need is None:
        asked = Asked((), (test,), _of_one)
    else:
        asked = Asked((need,), (), _of_one)
    kind = indexes[field]
    choices = kind.serves(asked)
    if len(choices) != 1 or len(choices[0]) != 1:
        return None
    asks = choices[0]
    if decides(field, asks[0]) != way.exact:
        return None
    if way.estimate is UNKNOWN:  # it was clear, whatever is found
        made = way._replace(asks=asks)
    else:
        found = estimate(field, asks[0], None)
        made = through(field, asks, None, kind, found, exact=way.exact, limit=limit)
        if made.cost > everything.entries:  # then perhaps a scan
            return None
    return before._replace(ways=(made,))


def _of_one() -> bool:
    """Whether a document may have an array there: all the same for one need."""
    return True
