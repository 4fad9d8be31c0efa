"""Parsing: a condition document or its JSON text becomes a checked `Condition`.

    document -> canonical copy (values.py) -> text, within the limits -> tree (build.py)
             -> what is asked most often: text and tree at once (quick.py)
             -> what was asked lately: the same Condition again

Invariants of a Condition:
1. `text` is canonical: equal documents, whatever the order of their keys and
   whether they say 1 or 1.0, have equal text; `parse_text(text)` gives it back.
2. It is within the limits, so a stored condition is small and quick.
3. Only the condition that always holds is false as a bool and has empty text.

Errors are `InvalidRequest` and begin with the path inside: `where.$or[1].speed.$gt ...`.
"""

from __future__ import annotations

import marshal
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

from tideline.errors import InvalidRequest
from tideline.where.build import Builder, together
from tideline.where.cost import Cost, cost_of
from tideline.where.nearest import Near
from tideline.where.predicate import Predicate, predicate
from tideline.where.quick import quick_nodes
from tideline.where.tree import DELTA, All, Node
from tideline.where.values import canonical, index_of

__all__ = ["ALWAYS", "SIZE_LIMIT", "Condition", "parse", "parse_text"]

SIZE_LIMIT = 16 * 1024
_NUMBERS = frozenset((int, float))
_PLAIN = frozenset((str, int, float, bool, type(None)))
_KEPT, _VALUES, _TEXT = 1_024, 100, 200
"""So many conditions are kept parsed, of so many values and texts that are not longer."""
_ENCODER = msgspec.json.Encoder(order="deterministic")


class Condition:
    """A parsed condition. Equal conditions have equal `text`.

    >>> condition = parse({"speed": {"$gt": 50}, "kind": "jam"})
    >>> condition.text
    b'{"kind":"jam","speed":{"$gt":50}}'
    >>> condition.matches({"speed": 60, "kind": "jam"})
    True
    """

    __slots__ = ("_cost", "deltas", "matches", "near", "text", "tree")

    text: bytes
    """Canonical JSON; empty when the condition always holds."""
    tree: Node
    """What other targets compile."""
    matches: Predicate
    """Whether a body, as decoding its JSON gives it, meets the condition."""
    deltas: tuple[str, ...]
    """The dotted paths `$delta` stands at; a body must go through `with_delta` if any."""

    near: Near | None
    """The one `$near` that must hold: without another order, the nearest come first."""

    def __init__(
        self, text: bytes, tree: Node, deltas: tuple[str, ...] = (), near: Near | None = None
    ) -> None:
        self.text = text
        self.tree = tree
        self.deltas = deltas
        self.near = near
        self._cost: Cost | None = None

    if not TYPE_CHECKING:  # a slot that is asked for and empty comes here

        def __getattr__(self, name: str) -> Any:
            """Build `matches` when it is first asked for: very many conditions stand unasked."""
            if name != "matches":
                raise AttributeError(name)
            self.matches = predicate(self.tree)
            return self.matches

    @property
    def cost(self) -> Cost:
        """What evaluating it on a body takes."""
        if self._cost is None:
            self._cost = cost_of(self.tree)
        return self._cost

    @property
    def document(self) -> dict[str, Any]:
        """The canonical document, a new copy each time."""
        if not self.text:
            return {}
        document: dict[str, Any] = msgspec.json.decode(self.text)
        return document

    def with_delta(self, body: object, previous: object) -> object:
        """The body with how much each field in `deltas` has changed since `previous`.

        `previous` is the body before, or None. A change is a number minus a number; where
        either is missing or no number there is none.

        >>> condition = parse({"temp": {"$delta": {"$lte": -5}}}, delta=True)
        >>> condition.matches(condition.with_delta({"temp": 1}, {"temp": 7}))
        True
        >>> condition.matches(condition.with_delta({"temp": 1}, None))
        False
        """
        if not self.deltas or type(body) is not dict:
            return body
        changes: dict[str, object] = {}
        for dotted in self.deltas:
            now, before = number_at(body, dotted), number_at(previous, dotted)
            if now is not None and before is not None:
                with suppress(OverflowError):  # a whole number too large for a float
                    changes[dotted] = now - before
        return {**body, DELTA: changes}

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
        return _parse_bytes, (self.text, bool(self.deltas))


def number_at(body: object, dotted: str) -> Any:
    """The number at a dotted path, or None; a whole number in the path picks an element.

    >>> number_at({"a": [{"b": 5}]}, "a.0.b"), number_at({"a": True}, "a")
    (5, None)
    """
    for part in dotted.split("."):
        if type(body) is dict:
            body = body.get(part)
        elif type(body) is list and 0 <= index_of(part) < len(body):
            body = body[index_of(part)]
        else:
            return None
    return body if type(body) in _NUMBERS else None


ALWAYS = Condition(b"", All(()))


def parse(document: object, *, delta: bool = False, stored: bool = False) -> Condition:
    """Check a condition document; `None` and `{}` always hold.

    `delta` allows the operator `$delta`, which only a channel can answer. A field that is
    compared with an object of operators without their $ is a slip, like `{"price": {"gte": 20}}`,
    unless the condition was `stored` before. `{"price": {"$eq": {"gte": 20}}}` means that object.

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
    # Without references: the same bytes for what is the same, and of one type.
    said = marshal.dumps(document, 2) if not delta and _is_small(document) else b""
    kept = _known[stored]
    if said and (known := kept.get(said)) is not None:
        return known
    made = _parsed(document, delta, stored)
    if said:
        if len(kept) >= _KEPT:
            kept.clear()
        kept[said] = made
    return made


_known: tuple[dict[bytes, Condition], dict[bytes, Condition]] = {}, {}
"""Conditions by the bytes of their documents, as given and as stored: small ones, of plain values
alone, because what else there is may have the same bytes. Any thread may look and add."""


def _is_small(document: dict[Any, Any]) -> bool:
    """Whether there are a few values, of types that JSON knows and no classes derived from them."""
    values: list[Any] = [document]
    for value in values:  # which grows meanwhile
        kind = type(value)
        if kind is dict:
            for name in value:
                if type(name) is not str or len(name) > _TEXT:
                    return False
            values += value.values()
        elif kind is list:
            values += value
        elif kind not in _PLAIN or (kind is str and len(value) > _TEXT):
            return False
        if len(values) > _VALUES:
            return False
    return True


def _parsed(document: dict[Any, Any], delta: bool, stored: bool) -> Condition:
    nodes = quick_nodes(document, not stored)
    # Every value takes a byte of text or more.
    kept = document if nodes is not None else canonical(document, "where", [SIZE_LIMIT])
    assert isinstance(kept, dict)
    encoded = _ENCODER.encode(kept)
    if len(encoded) > SIZE_LIMIT:
        raise InvalidRequest(
            f"where is too long; at most {SIZE_LIMIT} bytes are allowed", size_bytes=len(encoded)
        )
    if nodes is not None:
        return Condition(encoded, together(nodes))
    builder = Builder(delta, careful=not stored)
    tree = builder.query(kept, "where")
    if tree == All(()):  # like {"$and": [{}]}: it holds for every object, but for nothing else
        tree = All((tree,))
    near = builder.near[0] if len(builder.near) == 1 else None
    return Condition(encoded, tree, tuple(sorted(builder.deltas)), near)


def parse_text(text: bytes | str, *, delta: bool = False) -> Condition:
    """Check a condition given as JSON text; empty text and `null` always hold.

    It may have been stored before: operators without their $ are names in it.

    The last 16,384 texts are kept parsed.

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
    return _parse_bytes(text, delta) if text else ALWAYS


@lru_cache(maxsize=16_384)
def _parse_bytes(text: bytes, delta: bool) -> Condition:
    if not text:
        return ALWAYS
    try:
        document = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequest(f"where is not valid JSON ({error})", text=text) from error
    return parse(document, delta=delta, stored=True)
