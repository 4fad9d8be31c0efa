"""MongoDB's pipelines: stages that documents go through, one after the other.

    $match    those that meet a condition         $group    one for each _id: grouping.py
    $sort     in an order                         $project  some fields, renamed or computed
    $limit    the first                           $unwind   one for each element of an array
    $skip     without the first                   $count    how many

What stands first is left to the planner: `$match`, then `$sort`, `$skip` and `$limit`. The rest
goes over documents as they come. They come newest first, unless no stage can tell.

Documents are known by their key, and after `$group` by `_id`: that field comes with a `$project`
and ends a `$sort`. Everything wrong is `InvalidRequest`, naming the place: `pipeline[1].$group.n`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from tideline.documents import checks
from tideline.documents.expressions import Expression, expression, field_path, fields_used
from tideline.documents.grouping import group
from tideline.documents.projection import projection_of
from tideline.errors import InvalidRequest
from tideline.near import nearest
from tideline.where import Condition, parse
from tideline.where.order import sort_keys
from tideline.where.plain import plain_json
from tideline.where.values import DEPTH_LIMIT, MISSING

__all__ = ["STAGES", "Pipeline", "parse_pipeline"]

Document = dict[str, Any]
Stage = Callable[[Iterable[Document]], Iterable[Document]]
STAGES = ("$match", "$group", "$sort", "$limit", "$skip", "$project", "$unwind", "$count")
_decode = msgspec.json.Decoder().decode


class Pipeline:
    """A checked pipeline: what to find, and the stages after that."""

    def __init__(self) -> None:
        self.condition: Condition = parse(None)
        self.sort: dict[str, int] | None = None
        self.skip = 0
        self.limit: int | None = None
        self.stages: list[Stage] = []
        self.is_ordered = True
        """Whether the order of what is found matters."""
        self.fields: set[str] | None = None
        """The fields that the stages read, if not all: only these need to be decoded."""

    def run(self, documents: Iterable[Document]) -> list[Document]:
        """What comes out, of what was found."""
        for stage in self.stages:
            documents = stage(documents)
        return list(documents)


def parse_pipeline(given: Any, key: str) -> Pipeline:
    """Check a pipeline over documents that are known by `key`.

    >>> asked = parse_pipeline([{"$match": {"a": 1}}, {"$limit": 2}, {"$count": "n"}], "id")
    >>> asked.condition, asked.limit, asked.run([{"id": 1}, {"id": 2}])
    (Condition({"a":1}), 2, [{'n': 2}])
    """
    if not isinstance(given, (list, tuple)):
        raise InvalidRequest("a pipeline must be a list of stages, like [{'$match': {...}}]")
    asked: list[tuple[str, Any, str]] = []
    for number, stage in enumerate(_decode(plain_json(list(given), "pipeline"))):
        if _is_deep(stage, DEPTH_LIMIT):
            raise InvalidRequest(f"pipeline[{number}] has more than {DEPTH_LIMIT} levels")
        if not isinstance(stage, dict) or len(stage) != 1:
            raise InvalidRequest(
                f"pipeline[{number}] must be one stage, like {{'$limit': 5}}", given=stage
            )
        [(name, operand)] = stage.items()
        if name not in STAGES:
            raise InvalidRequest(_unknown(name, number))
        asked.append((name, operand, f"pipeline[{number}].{name}"))
    made = Pipeline()
    rest = _found_first(made, asked, key)
    known: str | None = key
    unordered = made.sort is None and made.limit is None and not made.skip
    for number, (name, operand, place) in enumerate(rest):
        if name == "$group":
            stage_, ordered = group(operand, place)
            known = "_id"
            if number == 0:
                made.fields = fields_used(operand)
        else:
            stage_, ordered = _MAKERS[name](operand, place, known), name != "$count"
            known = None if name == "$count" else known
        if number == 0 and unordered and not ordered:
            made.is_ordered = False
        made.stages.append(stage_)
    return made


def _found_first(
    made: Pipeline, asked: list[tuple[str, Any, str]], key: str
) -> list[tuple[str, Any, str]]:
    """Leave the first stages to the planner; the others."""
    conditions: list[Document] = []
    while asked and asked[0][0] == "$match":
        _, operand, place = asked[0]
        _condition(operand, place)
        conditions.append(operand)
        asked = asked[1:]
    if conditions:
        made.condition = parse(conditions[0] if len(conditions) == 1 else {"$and": conditions})
    if asked and asked[0][0] == "$sort":
        made.sort = _order(asked[0][1], asked[0][2], key)
        asked = asked[1:]
    if asked and asked[0][0] == "$skip":
        made.skip = _whole(asked[0][1], asked[0][2], 0)
        asked = asked[1:]
    if asked and asked[0][0] == "$limit":
        made.limit = _whole(asked[0][1], asked[0][2], 1)
        asked = asked[1:]
    return asked


def _is_deep(value: Any, levels: int) -> bool:
    """Whether objects and arrays go deeper than so many levels."""
    if not isinstance(value, (dict, list)):
        return False
    parts = value.values() if isinstance(value, dict) else value
    return levels == 0 or any(_is_deep(part, levels - 1) for part in parts)


def _unknown(name: str, number: int) -> str:
    meant = nearest(f"${name.lstrip('$')}", STAGES, 0.75)
    if meant:
        return f"pipeline[{number}].{name} is not a stage: did you mean {meant}?"
    return f"pipeline[{number}].{name} is not a stage; supported are {', '.join(STAGES)}"


# ---- stages: (operand, place, the field documents are known by) -> stage ----------------------


def _condition(operand: Any, place: str) -> Condition:
    if not isinstance(operand, dict):
        raise InvalidRequest(f"{place} must be a condition, like {{'speed': {{'$gt': 50}}}}")
    try:
        return parse(operand)
    except InvalidRequest as error:
        raise InvalidRequest(f"{place}: {error}") from None


def _match(operand: Any, place: str, known: str | None) -> Stage:
    met = _condition(operand, place).matches
    return lambda documents: (one for one in documents if met(one))


def _order(operand: Any, place: str, known: str | None) -> dict[str, int]:
    if not isinstance(operand, dict) or not operand:
        raise InvalidRequest(f"{place} must be fields with 1 or -1, like {{'time': -1}}")
    try:
        checks.sort(operand, known or "_id")
    except InvalidRequest as error:
        raise InvalidRequest(f"{place}: {error}") from None
    return operand


def _sort(operand: Any, place: str, known: str | None) -> Stage:
    make = sort_keys(_order(operand, place, known), known or "_id")
    return lambda documents: sorted(documents, key=make)


def _whole(operand: Any, place: str, least: int) -> int:
    if type(operand) is not int or operand < least:
        raise InvalidRequest(f"{place} must be a whole number from {least} on", given=operand)
    return min(operand, 1 << 40)


def _limit(operand: Any, place: str, known: str | None) -> Stage:
    most = _whole(operand, place, 1)
    return lambda documents: itertools.islice(documents, most)


def _skip(operand: Any, place: str, known: str | None) -> Stage:
    first = _whole(operand, place, 0)
    return lambda documents: itertools.islice(documents, first, None)


def _count(operand: Any, place: str, known: str | None) -> Stage:
    if not isinstance(operand, str) or not operand or "." in operand or operand.startswith("$"):
        raise InvalidRequest(f"{place} must be the name of a field, without '.' and '$'")

    def stage(documents: Iterable[Document]) -> Iterator[Document]:
        count = sum(1 for _ in documents)
        if count:
            yield {operand: count}

    return stage


def _project(operand: Any, place: str, known: str | None) -> Stage:
    if not isinstance(operand, dict) or not operand:
        raise InvalidRequest(f"{place} must name fields, like {{'speed': 1, 'road': '$at.road'}}")
    wanted: dict[str, bool] = {}
    computed: dict[str, Expression] = {}
    for name, asked in _flat(operand, ""):
        if isinstance(asked, (bool, int, float)):
            wanted[name] = bool(asked)
        elif "." in name:
            raise InvalidRequest(f"{place}.{name}: a computed field is given as an object, no path")
        else:
            computed[name] = expression(asked, f"{place}.{name}")
    if computed:
        odd = [name for name, include in wanted.items() if not include and name != known]
        if odd:
            raise InvalidRequest(f"{place}.{odd[0]} excludes a field, while others are computed")
        if known is not None and known not in computed:
            wanted.setdefault(known, True)
    try:
        kept = projection_of({n: i for n, i in wanted.items() if n not in computed},
                             None if known in computed else known)  # fmt: skip
    except InvalidRequest as error:
        raise InvalidRequest(f"{place}: {error}") from None
    if not computed:
        assert kept is not None
        return lambda documents: map(kept, documents)

    def made(document: Document) -> Document:
        found = kept(document) if kept is not None and any(wanted.values()) else {}
        for name, value in computed.items():
            one = value(document)
            if one is not MISSING:
                found[name] = one
        return found

    return lambda documents: map(made, documents)


def _flat(given: Document, before: str) -> Iterator[tuple[str, Any]]:
    """Fields and what is asked of them: objects of 1 and 0 are paths."""
    for name, asked in given.items():
        if isinstance(asked, dict) and asked and _is_plain(asked):
            yield from _flat(asked, f"{before}{name}.")
        else:
            yield f"{before}{name}", asked


def _is_plain(asked: Document) -> bool:
    return all(
        not name.startswith("$")
        and (isinstance(part, (bool, int, float)) or (isinstance(part, dict) and _is_plain(part)))
        for name, part in asked.items()
    )


def _unwind(operand: Any, place: str, known: str | None) -> Stage:
    options = operand if isinstance(operand, dict) else {"path": operand}
    odd = options.keys() - {"path", "includeArrayIndex", "preserveNullAndEmptyArrays"}
    if odd:
        raise InvalidRequest(
            f"{place}.{min(odd)} is not one of path, includeArrayIndex, preserveNullAndEmptyArrays"
        )
    path = field_path(options.get("path"), f"{place}.path")
    index = options.get("includeArrayIndex")
    if index is not None and (not isinstance(index, str) or not index or index.startswith("$")):
        raise InvalidRequest(f"{place}.includeArrayIndex must be the name of a field", given=index)
    keep = checks.flag(options.get("preserveNullAndEmptyArrays", False),
                       "preserveNullAndEmptyArrays")  # fmt: skip

    def stage(documents: Iterable[Document]) -> Iterator[Document]:
        for document in documents:
            value: Any = document
            for part in path:
                value = value.get(part, MISSING) if type(value) is dict else MISSING
            if type(value) is list and value:
                for number, one in enumerate(value):
                    yield _numbered(_with(document, path, 0, one), index, number)
            elif type(value) is not list and value is not None and value is not MISSING:
                yield _numbered(document, index, None)
            elif keep:
                made = _with(document, path, 0, MISSING) if type(value) is list else document
                yield _numbered(made, index, None)

    return stage


def _with(document: Document, path: tuple[str, ...], at: int, value: Any) -> Document:
    """A copy with another value at a path that is there."""
    name = path[at]
    if at + 1 < len(path):
        value = _with(document[name], path, at + 1, value)
    if value is MISSING:
        return {each: part for each, part in document.items() if each != name}
    return {**document, name: value}


def _numbered(document: Document, index: str | None, number: int | None) -> Document:
    return document if index is None else {**document, index: number}


_MAKERS: dict[str, Callable[[Any, str, str | None], Stage]] = {
    "$match": _match, "$sort": _sort, "$limit": _limit, "$skip": _skip, "$project": _project,
    "$unwind": _unwind, "$count": _count,
}  # fmt: skip
