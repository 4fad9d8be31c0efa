"""The smallest part of a question on which a peer and we still disagree.

A disagreement over a large condition says little. `smallest` goes down: into `$and`, `$or`,
`$nor`, one field, one operator, `$not`, one value of a list, and the elements that an
`$elemMatch` asks about, as long as the disagreement goes with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from peers import Answers
from tideline.where import parse

Peer = Callable[[dict[str, Any], list[Any]], Answers]
Question = tuple[dict[str, Any], dict[str, Any]]


def smallest(peer: Peer, condition: dict[str, Any], body: dict[str, Any]) -> Question:
    """The smallest question inside this one on which the peer disagrees with us."""
    for part, inside in parts(condition, body):
        if (part, inside) != (condition, body) and disagree(peer, part, inside):
            return smallest(peer, part, inside)
    return condition, body


def disagree(peer: Peer, condition: dict[str, Any], body: dict[str, Any]) -> bool:
    answers = peer(condition, [body])
    return answers is not None and answers != [parse(condition).matches(body)]


def parts(condition: dict[str, Any], body: dict[str, Any]) -> Iterator[Question]:
    """The questions one step inside."""
    for name, asked in condition.items():
        yield {name: asked}, body
        if name in ("$and", "$or", "$nor"):
            for each in asked:
                yield each, body
        elif not isinstance(asked, dict) or not any(key.startswith("$") for key in asked):
            yield {name: asked}, body
        else:
            for operator, operand in asked.items():
                if operator != "$options":
                    yield from of_operator(name, operator, operand, asked, body)


def of_operator(
    path: str, operator: str, operand: Any, beside: dict[str, Any], body: dict[str, Any]
) -> Iterator[Question]:
    options = {key: beside[key] for key in ("$options",) if key in beside and operator == "$regex"}
    yield {path: {operator: operand, **options}}, body
    if operator == "$not":
        yield {path: operand}, body
    elif operator in ("$in", "$nin", "$all"):
        for value in operand:
            yield {path: {operator: [value]}}, body
            if isinstance(value, dict) and "$elemMatch" in value:
                yield {path: value}, body
    elif operator == "$elemMatch":
        yield from of_elements(path, operand, body)
    if len(body) > 1 and path.split(".")[0] in body:  # without the fields that do not matter
        first = path.split(".")[0]
        yield {path: {operator: operand, **options}}, {first: body[first]}


def of_elements(path: str, operand: dict[str, Any], body: dict[str, Any]) -> Iterator[Question]:
    """What an `$elemMatch` asks of elements, as questions about a document or a field `e`."""
    by_field = all(not key.startswith("$") or key in ("$and", "$or", "$nor") for key in operand)
    if not by_field and len(operand) > 1:
        for operator in operand.keys() - {"$options"}:
            with_options = {operator, "$options"} if operator == "$regex" else {operator}
            part = {key: operand[key] for key in operand if key in with_options}
            yield {path: {"$elemMatch": part}}, body
    for element in elements(body):
        if not by_field:
            yield {"e": operand}, {"e": element}
        elif isinstance(element, dict):
            yield operand, element


def elements(value: Any) -> Iterator[Any]:
    """Every element of every array, however deep."""
    inside = value.values() if isinstance(value, dict) else value
    for each in inside if isinstance(value, (dict, list)) else ():
        if isinstance(value, list):
            yield each
        yield from elements(each)
