"""Parsing: a condition document or its JSON text becomes a checked `Condition`.

    document := {} | {field: value | {"$operator": value, ...}, ...}     all must hold

Invariants of a Condition:
1. `text` is canonical: equal documents, whatever the order of their keys and
   whether they say 1 or 1.0, have equal text; `parse_text(text)` gives it back.
2. It is within the limits below, so a stored condition is small and quick.
3. Only the condition that always holds is false as a bool and has empty text.

Errors are `InvalidRequest` and begin with the path inside: `where.speed.$gt ...`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from tideline.errors import InvalidRequest
from tideline.where.operators import OPERATORS, supported
from tideline.where.predicate import Predicate, predicate
from tideline.where.tree import All, Compare, Node
from tideline.where.values import canonical, text

__all__ = ["ALWAYS", "CLAUSES_LIMIT", "SIZE_LIMIT", "Condition", "parse", "parse_text"]

SIZE_LIMIT = 16 * 1024
CLAUSES_LIMIT = 64
_ENCODER = msgspec.json.Encoder(order="deterministic")


class Condition:
    """A parsed condition. Equal conditions have equal `text`.

    >>> condition = parse({"speed": {"$gt": 50}, "kind": "jam"})
    >>> condition.text
    b'{"kind":"jam","speed":{"$gt":50}}'
    >>> condition.matches({"speed": 60, "kind": "jam"})
    True
    """

    __slots__ = ("matches", "text", "tree")

    text: bytes
    """Canonical JSON; empty when the condition always holds."""
    tree: Node
    """What other targets compile."""
    matches: Predicate
    """Whether a body, as decoding its JSON gives it, meets the condition."""

    def __init__(self, text: bytes, tree: Node) -> None:
        self.text = text
        self.tree = tree
        self.matches = predicate(tree)

    @property
    def document(self) -> dict[str, Any]:
        """The canonical document, a new copy each time."""
        if not self.text:
            return {}
        document: dict[str, Any] = msgspec.json.decode(self.text)
        return document

    def __bool__(self) -> bool:
        return bool(self.text)

    def __eq__(self, other: object) -> bool:
        return self.text == other.text if isinstance(other, Condition) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"Condition({self.text.decode()})"

    def __reduce__(self) -> tuple[Any, ...]:
        # Closures do not pickle; the text says everything.
        return parse_text, (self.text,)


ALWAYS = Condition(b"", All(()))


def parse(document: object) -> Condition:
    """Check a condition document; `None` and `{}` always hold.

    >>> parse({"speed": {"$gt": 50}})
    Condition({"speed":{"$gt":50}})
    >>> bool(parse({}))
    False
    >>> parse({"speed": {"$above": 50}})
    Traceback (most recent call last):
    tideline.errors.InvalidRequest: where.speed.$above is not an operator; supported are ...
    """
    if document is None:
        return ALWAYS
    if not isinstance(document, dict):
        raise InvalidRequest(
            "where must be a document like {'speed': {'$gt': 50}}", type=type(document).__name__
        )
    if not document:
        return ALWAYS
    budget = [SIZE_LIMIT]  # every value takes a byte of text or more
    clauses: list[Compare] = []
    kept: dict[str, object] = {}
    for field, asked in document.items():
        path = f"where.{_field(field)}"
        kept[field] = _clauses(field, asked, path, budget, clauses)
        if len(clauses) > CLAUSES_LIMIT:
            raise InvalidRequest(f"where has too many clauses; at most {CLAUSES_LIMIT} are allowed")
    encoded = _ENCODER.encode(kept)
    if len(encoded) > SIZE_LIMIT:
        raise InvalidRequest(
            f"where is too long; at most {SIZE_LIMIT} bytes are allowed", size_bytes=len(encoded)
        )
    clauses.sort(key=lambda clause: (clause.field, clause.operator))
    return Condition(encoded, All(tuple(clauses)))


def parse_text(text: bytes | str) -> Condition:
    """Check a condition given as JSON text; empty text and `null` always hold.

    Repeated texts are answered from a small cache.

    >>> parse_text('{"speed": {"$gt": 5e1}}') == parse({"speed": {"$gt": 50}})
    True
    """
    if isinstance(text, str):
        try:
            text = text.encode()
        except UnicodeEncodeError as error:
            raise InvalidRequest("where must be valid Unicode", text=text) from error
    elif not isinstance(text, bytes):
        raise InvalidRequest("where must be JSON text", type=type(text).__name__)
    if len(text) > SIZE_LIMIT:
        raise InvalidRequest(
            f"where is too long; at most {SIZE_LIMIT} bytes are allowed", size_bytes=len(text)
        )
    return _parse_bytes(text) if text else ALWAYS


@lru_cache(maxsize=1024)
def _parse_bytes(text: bytes) -> Condition:
    try:
        document = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequest(f"where is not valid JSON ({error})", text=text) from error
    return parse(document)


def _field(name: object) -> str:
    """A field's name, checked."""
    name = text(name, "where")
    if not name:
        raise InvalidRequest("where: the name of a field must not be empty")
    if name.startswith("$"):
        raise InvalidRequest(
            f"where.{name} is not a field; operators stand inside a field: "
            "{'speed': {'$gt': 50}}"
        )
    if "." in name:
        # In MongoDB this is a path into the body. Storing it now with another
        # meaning would change stored conditions once paths are supported.
        raise InvalidRequest(f"where.{name}: only top-level fields are supported, without a dot")
    return name


def _clauses(
    field: str, asked: object, path: str, budget: list[int], clauses: list[Compare]
) -> object:
    """Add what is asked of one field to `clauses`; its canonical form."""
    operators = (
        [key for key in asked if isinstance(key, str) and key.startswith("$")]
        if isinstance(asked, dict)
        else []
    )
    if not operators or not isinstance(asked, dict):
        value = canonical(asked, path, budget)
        clauses.append(Compare(field, "$eq", value))
        return value
    if len(operators) != len(asked):
        raise InvalidRequest(f"{path} mixes operators with fields; use one or the other")
    kept: dict[str, object] = {}
    for name, value in asked.items():
        inside = f"{path}.{name}"
        operator = OPERATORS.get(name)
        if operator is None:
            raise InvalidRequest(f"{inside} is not an operator; supported are {supported()}")
        if operator.ordered and isinstance(value, (dict, list, tuple)):
            raise InvalidRequest(f"{inside} must be {operator.takes}", value=value)
        kept[name] = canonical(value, inside, budget)
        clauses.append(Compare(field, name, kept[name]))
    return kept
