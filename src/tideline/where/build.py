"""From a checked document to the tree: one builder an operator.

    query    := {field: value | operators, ...,  "$and" | "$or" | "$nor": [query, ...]}
    operators := {"$operator": operand, ...}

A builder gets the operand, already a canonical JSON value, and where it stands, and gives
a node or raises `InvalidRequest` naming that place. What is only another way to say the
same ends here: see `tree.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tideline.errors import InvalidRequest
from tideline.near import nearest
from tideline.where import geo, grams, patterns, words
from tideline.where.nearest import Near
from tideline.where.operators import OPERATORS, supported
from tideline.where.tree import (
    DELTA,
    All,
    At,
    ElemMatch,
    Equals,
    Exists,
    In,
    Inside,
    IsType,
    Mod,
    Node,
    Not,
    Order,
    Regex,
    Size,
    Some,
    Test,
)
from tideline.where.values import Place, place_text

__all__ = [
    "BUILDERS",
    "CLAUSES_LIMIT",
    "COMPANIONS",
    "LOGIC",
    "PROGRAM_LIMIT",
    "Builder",
    "path_of",
]

CLAUSES_LIMIT = 256  # a clause costs a body about 0.1 us
# Instructions of all patterns together. At worst an instruction costs a byte of the text
# 1.2 ns: 5 ms for a text of 1 KB. A plain pattern has ten, a class of letters a thousand.
PROGRAM_LIMIT = 4_000

Path = tuple[str, ...]
Document = dict[str, object]

TYPES = {
    1: "double", 2: "string", 3: "object", 4: "array", 8: "bool", 10: "null", 16: "int", 18: "long",
}  # fmt: skip
TYPE_NAMES = (*TYPES.values(), "number")


@dataclass(slots=True)
class Builder:
    """Builds the tree of one condition and counts what it holds."""

    delta: bool
    """Whether `$delta` is allowed."""
    careful: bool = False
    """Whether slips are an error: operators without their $, metres for radians."""
    deltas: set[str] = field(default_factory=set)
    clauses: int = 0
    program: int = 0
    in_element: bool = False
    inner: int = 0
    """How many of `$or`, `$nor`, `$not` and `$elemMatch` are around."""
    near: list[Near] = field(default_factory=list)
    """The `$near` that must hold, with nothing around but `$and`."""

    def query(self, document: Document, place: Place) -> Node:
        """A document of fields and `$and`, `$or`, `$nor`: all must hold."""
        nodes: list[Node] = []
        for name, asked in document.items():
            here = (place, name)
            if name in LOGIC:
                self.add(nodes, LOGIC[name](self, asked, here))
            elif name.startswith("$"):
                raise InvalidRequest(_not_here(name, here))
            elif self.careful and f"${name}" in LOGIC and _are_conditions(asked):
                raise InvalidRequest(f"{place_text(here)} is a field: did you mean ${name}?")
            else:
                nodes += self.field(path_of(name, here), asked, here)
        return together(nodes)

    def field(self, path: Path, asked: object, place: Place) -> list[Node]:
        """What is asked of one field: a value or operators."""
        if isinstance(asked, dict) and any(name.startswith("$") for name in asked):
            return self.operators(path, asked, place)
        if self.careful and isinstance(asked, dict) and set(asked) & set(_SIGNS):
            sign = next(name for name in asked if name in _SIGNS)
            raise InvalidRequest(
                f"{place_text((place, sign))} is not an operator: did you mean {_SIGNS[sign]}? "
                "To compare with this very object, say {'$eq': {...}}"
            )
        if self.careful and isinstance(asked, dict) and _lacks_dollars(asked):
            name = next(iter(asked))
            raise InvalidRequest(
                f"{place_text((place, name))} is not an operator: did you mean ${name}? "
                "To compare with this very object, say {'$eq': {...}}"
            )
        return [self.at(path, Equals(asked), place)]

    def operators(self, path: Path, asked: Document, place: Place) -> list[Node]:
        """Operators on one field: all must hold."""
        nodes: list[Node] = []
        for name, operand in asked.items():
            here = (place, name)
            if not name.startswith("$"):
                raise InvalidRequest(
                    f"{place_text(place)} mixes operators with fields; use one or the other"
                )
            if name in BUILDERS:
                self.add(nodes, BUILDERS[name](self, path, operand, here, asked))
            elif name in COMPANIONS:
                if not any(other in asked for other in COMPANIONS[name]):
                    raise InvalidRequest(
                        f"{place_text(here)} stands beside {' or '.join(COMPANIONS[name])} only"
                    )
            else:
                raise InvalidRequest(_not_here(name, here))
        return nodes

    def at(self, path: Path, test: Test, place: Place) -> Node:
        """A test at a path, counted."""
        self.clauses += 1
        if self.clauses > CLAUSES_LIMIT:
            raise InvalidRequest(
                f"{place_text(place)} is one clause too many; "
                f"at most {CLAUSES_LIMIT} are allowed in where"
            )
        return At(path, test)

    def add(self, nodes: list[Node], node: Node) -> None:
        """One more node that must hold; an All is its children."""
        if isinstance(node, All):
            nodes += node.nodes
        else:
            nodes.append(node)


def together(nodes: list[Node]) -> Node:
    """All of these."""
    return nodes[0] if len(nodes) == 1 else All(tuple(nodes))


_SIGNS = {">": "$gt", ">=": "$gte", "<": "$lt", "<=": "$lte", "==": "$eq", "!=": "$ne"}
_SLIPS: dict[str, Callable[[object], bool]] = {
    **dict.fromkeys(("eq", "ne", "gt", "gte", "lt", "lte"), lambda operand: True),
    **dict.fromkeys(("in", "nin", "all"), lambda operand: isinstance(operand, list)),
    "exists": lambda operand: isinstance(operand, bool),
    "regex": lambda operand: isinstance(operand, str),
    "options": lambda operand: isinstance(operand, str),
    "elemMatch": lambda operand: isinstance(operand, dict),
    "geoWithin": lambda operand: isinstance(operand, dict),
    "geoIntersects": lambda operand: isinstance(operand, dict),
    "near": lambda operand: isinstance(operand, list) and len(operand) == 2,
    "nearSphere": lambda operand: isinstance(operand, (dict, list)),
    "fuzzy": lambda operand: isinstance(operand, dict) and bool({"word", "words"} & set(operand)),
    "contains": lambda operand: isinstance(operand, str),
    "jaccard": lambda operand: isinstance(operand, dict) and "text" in operand,
}
"""Operators without their $, where nobody means a field: not `size`, `type` or `words`."""


def _are_conditions(asked: object) -> bool:
    """Whether this is what $and, $or and $nor take."""
    return isinstance(asked, list) and bool(asked) and all(isinstance(one, dict) for one in asked)


def _lacks_dollars(asked: Document) -> bool:
    """Whether every name is an operator that lacks its $ and has what the operator takes."""
    names = set(asked)
    if names & {"near", "nearSphere"}:
        names -= {"maxDistance", "minDistance"}
    return bool(names) and all(name in _SLIPS and _SLIPS[name](asked[name]) for name in names)


def path_of(name: str, place: Place) -> Path:
    """The parts of a dotted name, checked."""
    parts = tuple(name.split("."))
    for part in parts:
        if not part or part.startswith("$") or "\0" in part:
            raise InvalidRequest(
                f"{place_text(place)} is not a path: a part of it must not be empty, "
                "start with $ or hold a null character"
            )
    return parts


def _not_here(name: str, place: Place) -> str:
    where = place_text(place)
    if name in LOGIC:
        return f"{where} stands beside fields, not inside one"
    if name in BUILDERS:
        return f"{where} stands inside a field: {{'speed': {{'{name}': ...}}}}"
    meant = nearest(name, (*OPERATORS, *COMPANIONS), 0.75)
    if meant:
        return f"{where} is not an operator: did you mean {meant}?"
    return f"{where} is not an operator; supported are {supported()}"


def _bad(place: Place, message: str, **values: object) -> InvalidRequest:
    return InvalidRequest(f"{place_text(place)} {message}", **values)


def _takes(place: Place, value: object) -> InvalidRequest:
    """The operator that stands there takes something else."""
    return _bad(place, f"must be {OPERATORS[str(place[1])].takes}", value=value)


def _list(operand: object, place: Place) -> list[object]:
    if not isinstance(operand, list):
        raise _takes(place, operand)
    return operand


# --- logic ---


def _queries(builder: Builder, operand: object, place: Place) -> list[Node]:
    queries = _list(operand, place)
    if not queries:
        raise _takes(place, operand)
    nodes = []
    for number, query in enumerate(queries):
        if not isinstance(query, dict):
            raise _bad((place, number), "must be a condition", value=query)
        nodes.append(builder.query(query, (place, number)))
    return nodes


def _and(builder: Builder, operand: object, place: Place) -> Node:
    nodes: list[Node] = []
    for node in _queries(builder, operand, place):
        builder.add(nodes, node)
    return together(nodes)


def _or(builder: Builder, operand: object, place: Place) -> Node:
    builder.inner += 1
    nodes = _queries(builder, operand, place)
    builder.inner -= 1
    return nodes[0] if len(nodes) == 1 else Some(tuple(nodes))


def _nor(builder: Builder, operand: object, place: Place) -> Node:
    return Not(_or(builder, operand, place))


LOGIC: dict[str, Callable[[Builder, object, Place], Node]] = {
    "$and": _and, "$or": _or, "$nor": _nor,
}  # fmt: skip


# --- operators of a field: (builder, path, operand, place, operators beside it) -> node ---

Build = Callable[[Builder, Path, object, Place, Document], Node]


def _eq(builder: Builder, path: Path, operand: object, place: Place, _: Document) -> Node:
    return builder.at(path, Equals(operand), place)


def _ne(builder: Builder, path: Path, operand: object, place: Place, _: Document) -> Node:
    return Not(builder.at(path, Equals(operand), place))


def _order(name: str) -> Build:
    def build(builder: Builder, path: Path, operand: object, place: Place, _: Document) -> Node:
        return builder.at(path, Order(name, operand), place)

    return build


def _in(builder: Builder, path: Path, operand: object, place: Place, _: Document) -> Node:
    values: list[object] = []
    found: list[Regex] = []
    for number, value in enumerate(_list(operand, place)):
        here = (place, number)
        if isinstance(value, dict) and any(name.startswith("$") for name in value):
            if "$regex" not in value or value.keys() - {"$regex", "$options"}:
                raise _bad(here, "must be a value or {'$regex': ...}", value=value)
            found.append(_pattern(builder, value, here))
        else:
            values.append(value)
    return builder.at(path, In(tuple(values), tuple(found)), place)


def _nin(builder: Builder, path: Path, operand: object, place: Place, _: Document) -> Node:
    return Not(_in(builder, path, operand, place, _))


def _not(builder: Builder, path: Path, operand: object, place: Place, _: Document) -> Node:
    if not isinstance(operand, dict) or not operand:
        raise _takes(place, operand)
    builder.inner += 1
    node = Not(together(builder.operators(path, operand, place)))
    builder.inner -= 1
    return node


def _exists(builder: Builder, path: Path, operand: object, place: Place, _: Document) -> Node:
    if operand not in (0, 1):  # true and false are these numbers too
        raise _takes(place, operand)
    node = builder.at(path, Exists(), place)
    return node if operand else Not(node)


def _type(builder: Builder, path: Path, operand: object, place: Place, _: Document) -> Node:
    names: set[str] = set()
    for name in operand if isinstance(operand, list) else [operand]:
        known = TYPES.get(name) if type(name) is int else name
        if not isinstance(known, str) or known not in TYPE_NAMES:
            raise _takes(place, operand)
        names.add(known)
    if not names:
        raise _takes(place, operand)
    return builder.at(path, IsType(tuple(sorted(names))), place)


def _pattern(builder: Builder, holder: Document, place: Place) -> Regex:
    test = patterns.check(holder["$regex"], holder.get("$options", ""), (place, "$regex"), place)
    builder.program += patterns.program_size(test)
    if builder.program > PROGRAM_LIMIT:
        raise _bad((place, "$regex"), "makes the patterns of where too large: use shorter repeats")
    return test


def _regex(builder: Builder, path: Path, operand: object, place: Place, beside: Document) -> Node:
    return builder.at(path, _pattern(builder, beside, place[0]), place)


def _mod(builder: Builder, path: Path, operand: object, place: Place, _: Document) -> Node:
    numbers = [
        int(number)  # towards zero, as MongoDB does
        for number in _list(operand, place)
        if isinstance(number, (int, float)) and not isinstance(number, bool)
    ]
    if operand is None or len(numbers) != 2 or len(_list(operand, place)) != 2 or not numbers[0]:
        raise _takes(place, operand)
    if any(not -(1 << 63) <= number < 1 << 63 for number in numbers):
        raise _bad(place, "must be numbers of 64 bits", value=operand)
    return builder.at(path, Mod(*numbers), place)


def _all(builder: Builder, path: Path, operand: object, place: Place, _: Document) -> Node:
    wanted = _list(operand, place)
    if not wanted:  # MongoDB: holds for nothing
        return builder.at(path, In(()), place)
    nodes: list[Node] = []
    for number, value in enumerate(wanted):
        here = (place, number)
        if isinstance(value, dict) and "$elemMatch" in value:
            if len(value) != 1:
                raise _bad(here, "must be a value or {'$elemMatch': ...}", value=value)
            nodes += builder.operators(path, value, here)
        elif isinstance(value, dict) and any(name.startswith("$") for name in value):
            if "$regex" not in value or value.keys() - {"$regex", "$options"}:
                raise _bad(
                    here, "must be a value, {'$regex': ...} or {'$elemMatch': ...}", value=value
                )
            nodes.append(builder.at(path, _pattern(builder, value, here), here))
        else:
            nodes.append(builder.at(path, Equals(value), here))
    return together(nodes)


def _elem_match(builder: Builder, path: Path, operand: object, place: Place, _: Document) -> Node:
    if not isinstance(operand, dict):
        raise _takes(place, operand)
    outer = builder.in_element
    builder.in_element = True
    builder.inner += 1
    on_element = any(name.startswith("$") and name not in LOGIC for name in operand)
    if on_element:
        node = together(builder.operators((), operand, place))
    else:
        node = builder.query(operand, place)
    builder.in_element = outer
    builder.inner -= 1
    return builder.at(path, ElemMatch(node), place)


def _size(builder: Builder, path: Path, operand: object, place: Place, _: Document) -> Node:
    if type(operand) is not int or operand < 0:
        raise _takes(place, operand)
    return builder.at(path, Size(operand), place)


def _within(builder: Builder, path: Path, operand: object, place: Place, _: Document) -> Node:
    return _in_shape(builder, path, geo.within(operand, place), place)


def _intersects(
    builder: Builder, path: Path, operand: object, place: Place, _: Document
) -> Node:  # fmt: skip
    return _in_shape(builder, path, geo.intersects(operand, place), place)


def _in_shape(builder: Builder, path: Path, test: Inside, place: Place) -> Node:
    if builder.careful:  # what was stored before stays
        geo.check_radians(test, place)
    return builder.at(path, test, place)


def _near(builder: Builder, path: Path, operand: object, place: Place, beside: Document) -> Node:
    test = geo.near(operand, beside, place, place[0])
    if not builder.inner:
        builder.near.append(Near(path, *test.numbers))
    return builder.at(path, test, place)


def _words(builder: Builder, path: Path, operand: object, place: Place, _: Document) -> Node:
    return builder.at(path, words.words(operand, place), place)


def _fuzzy(builder: Builder, path: Path, operand: object, place: Place, _: Document) -> Node:
    return builder.at(path, words.fuzzy(operand, place), place)


def _contains(builder: Builder, path: Path, operand: object, place: Place, _: Document) -> Node:
    return builder.at(path, grams.contained(operand, place), place)


def _jaccard(builder: Builder, path: Path, operand: object, place: Place, _: Document) -> Node:
    return builder.at(path, grams.similar(operand, place), place)


def _delta(builder: Builder, path: Path, operand: object, place: Place, _: Document) -> Node:
    if not builder.delta:
        raise _bad(place, "is supported in the subscriptions of a channel only")
    if builder.in_element:
        raise _bad(place, "must not stand inside $elemMatch: elements have no place before")
    if not isinstance(operand, dict) or not operand:
        raise _takes(place, operand)
    for name, value in operand.items():
        numbers = value if name in ("$in", "$nin") and isinstance(value, list) else [value]
        if name not in _DELTA_OPERATORS or any(
            not isinstance(number, (int, float)) or isinstance(number, bool) for number in numbers
        ):
            raise _bad((place, name), f"must be one of {', '.join(_DELTA_OPERATORS)} with numbers")
    dotted = ".".join(path)
    builder.deltas.add(dotted)
    return together(builder.operators((DELTA, dotted), operand, place))


_DELTA_OPERATORS = ("$eq", "$ne", "$gt", "$gte", "$lt", "$lte", "$in", "$nin")

BUILDERS: dict[str, Build] = {
    "$eq": _eq,
    "$ne": _ne,
    "$gt": _order("$gt"),
    "$gte": _order("$gte"),
    "$lt": _order("$lt"),
    "$lte": _order("$lte"),
    "$in": _in,
    "$nin": _nin,
    "$not": _not,
    "$exists": _exists,
    "$type": _type,
    "$regex": _regex,
    "$mod": _mod,
    "$all": _all,
    "$elemMatch": _elem_match,
    "$size": _size,
    "$geoWithin": _within,
    "$geoIntersects": _intersects,
    "$near": _near,
    "$nearSphere": _near,
    "$words": _words,
    "$fuzzy": _fuzzy,
    "$contains": _contains,
    "$jaccard": _jaccard,
    "$delta": _delta,
}

# What stands beside an operator and belongs to it.
COMPANIONS = {
    "$options": ("$regex",),
    "$maxDistance": ("$near", "$nearSphere"),
    "$minDistance": ("$near", "$nearSphere"),
}
