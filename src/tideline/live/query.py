"""What a live query asks: checked, with a canonical text, and as a token that goes on later.

    canonical text := where                          of a plain query: no sort, limit or offset
                    | where 00 [sort, limit, offset]
                    | where 01 [by, measures]        of groups
    token          := base64 of [identity, canonical text, version, done, exact]

`where` is the condition's own canonical text, which has no control characters. Equal queries have
equal texts, and the text alone says everything: an entry keeps nothing else. `slack` is how much
is kept beside the result; it is no part of what is asked.

Values; safe from any thread.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from tideline.documents import checks
from tideline.errors import InvalidRequest
from tideline.where import Condition, parse, parse_text

__all__ = ["GroupQuery", "Measure", "Query", "Token", "query_of"]

_ORDERED, _GROUPED = b"\0", b"\1"
_MEASURES = ("sum", "avg", "min", "max")
_LIMIT = 1 << 40
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode

Order = list[tuple[str, int]] | None


class Query(msgspec.Struct, frozen=True):
    """A condition, and which part of what meets it in which order.

    >>> query = Query.of("id", {"shop": 7}, sort=[("total", -1)], limit=10)
    >>> query.text
    b'{"shop":7}\\x00[[["total",-1]],10,0]'
    >>> query_of(query.text).limit, query_of(query.text).order
    (10, (('total', -1),))
    """

    where: bytes
    order: tuple[tuple[str, int], ...] | None = None
    limit: int | None = None
    offset: int = 0
    slack: int | None = None
    parsed: Condition | None = None

    @classmethod
    def of(
        cls, key: str, where: Any = None, *, sort: Any = None, limit: Any = None, offset: Any = 0,
        slack: Any = None,
    ) -> Query:  # fmt: skip
        """Check what a user gives; `key` is the collection's. `InvalidRequest` names what is wrong.

        >>> Query.of("id", {}, offset=-1)
        Traceback (most recent call last):
        tideline.errors.InvalidRequest: offset must be a whole number, 0 or more. offset=-1
        """
        condition = parse(where)
        if sort is limit is slack is condition.near is None and type(offset) is int and not offset:
            return cls(condition.text, None, None, 0, None, condition)
        order = checks.sort(sort, key, condition)
        most = checks.count(limit, "limit")
        if slack is not None and most is None:
            raise InvalidRequest("slack goes with a limit: it is kept beyond it", slack=slack)
        spare = None if slack is None else _whole(slack, "slack")
        return cls(
            condition.text, None if order is None else tuple((f, d) for f, d in order), most,
            _whole(offset, "offset"), spare, condition,
        )  # fmt: skip

    @property
    def is_plain(self) -> bool:
        """Whether its changes have no positions."""
        return self.order is None and self.limit is None and not self.offset

    @property
    def text(self) -> bytes:
        """What equal queries share."""
        if self.order is None and self.limit is None and not self.offset:
            return self.where
        return self.where + _ORDERED + _encode((self.order, self.limit, self.offset))

    @property
    def condition(self) -> Condition:
        """The condition, parsed."""
        return self.parsed or parse_text(self.where)

    @property
    def sort(self) -> Order:
        """The order as searches take it."""
        return None if self.order is None else list(self.order)

    @property
    def asked_sort(self) -> Order:
        """The order as somebody asks for it: by the distance of a `$near`, none at all."""
        near = self.condition.near
        return None if near is not None and self.sort == near.order else self.sort


class Measure(NamedTuple):
    """A column of groups: `name` is the field of the result, `kind` what is computed of `field`."""

    kind: str
    field: str

    @property
    def name(self) -> str:
        """How the field of the result is called."""
        return f"{self.kind}_{self.field}" if self.field else self.kind


class GroupQuery(NamedTuple):
    """A condition, fields to group by, and what to compute of each group.

    >>> query = GroupQuery.of({"state": "open"}, by="shop", count=True, sum="total")
    >>> query.text
    b'{"state":"open"}\\x01[["shop"],true,[["count",""],["sum","total"]]]'
    """

    where: bytes
    by: tuple[str, ...]
    single: bool
    """Whether one field was given, and not a list: the key of a group is its value, then."""
    measures: tuple[Measure, ...]
    parsed: Condition | None = None

    @classmethod
    def of(
        cls, where: Any = None, *, by: Any, count: Any = False, sum: Any = None, avg: Any = None,
        min: Any = None, max: Any = None,
    ) -> GroupQuery:  # fmt: skip
        """Check what a user gives; `InvalidRequest` names what is wrong.

        >>> GroupQuery.of({}, by=[["shop"]], count=True)
        Traceback (most recent call last):
        tideline.errors.InvalidRequest: by must be text: the name of a field. by=['shop']
        """
        condition = parse(where)
        fields = _fields(by, "by")
        if not fields:
            raise InvalidRequest("by must be a field, or a list of one or more", by=by)
        measures = [Measure("count", "")] if checks.flag(count, "count") else []
        given = dict(zip(_MEASURES, (sum, avg, min, max), strict=True))
        for kind, value in given.items():
            measures += [Measure(kind, field) for field in _fields(value, kind)]
        names = [*fields, *(each.name for each in measures)]
        if len(set(names)) < len(names):
            raise InvalidRequest("two fields of the result have one name", names=names)
        return cls(condition.text, fields, isinstance(by, str), tuple(measures), condition)

    @property
    def is_plain(self) -> bool:
        """Whether its changes have no positions: those of groups have."""
        return False

    @property
    def text(self) -> bytes:
        """What equal queries share."""
        return self.where + _GROUPED + _encode((self.by, self.single, self.measures))

    @property
    def condition(self) -> Condition:
        """The condition, parsed."""
        return self.parsed or parse_text(self.where)


def query_of(text: bytes) -> Query | GroupQuery:
    """The query of a canonical text; `ValueError` for anything else."""
    if _GROUPED in text:
        where, rest = text.split(_GROUPED, 1)
        by, single, measures = _decode(rest)
        return GroupQuery(where, tuple(by), single, tuple(Measure(*each) for each in measures))
    where, _, rest = text.partition(_ORDERED)
    if not rest:
        return Query(where)
    order, limit, offset = _decode(rest)
    pairs = None if order is None else tuple((field, direction) for field, direction in order)
    return Query(where, pairs, limit, offset)


class Token(NamedTuple):
    """Where a handle stands."""

    identity: str
    text: bytes
    version: int
    done: int = 0
    """How many changes of the version after it were handed out already."""
    exact: bool = True
    """Whether that version's changes come again as they were."""

    def __str__(self) -> str:
        parts = (self.identity, self.text.decode("latin-1"), self.version, self.done, self.exact)
        return base64.urlsafe_b64encode(_encode(parts)).decode().rstrip("=")

    @classmethod
    def parse(cls, given: Any) -> Token:
        """The token of its text.

        >>> token = Token("0123456789abcdef", b'{"shop":7}', 17)
        >>> Token.parse(str(token)) == token
        True
        """
        try:
            data = base64.urlsafe_b64decode(given + "=" * (-len(given) % 4))
            identity, text, version, done, exact = msgspec.json.decode(
                data, type=tuple[str, str, int, int, bool]
            )
            if version < 0 or done < 0:
                raise ValueError
            token = cls(identity, text.encode("latin-1"), version, done, exact)
            _check(query_of(token.text))
        except (
            AttributeError, TypeError, ValueError, binascii.Error, msgspec.MsgspecError,
            InvalidRequest,
        ):  # fmt: skip
            raise InvalidRequest("token must be the token of a live query", token=given) from None
        return token


def _check(query: Query | GroupQuery) -> None:
    """Raise something when nobody can have asked this: a token may have been made up."""
    assert query.condition is not None  # it can be parsed
    if isinstance(query, Query):
        Query.of("id", sort=query.asked_sort, limit=query.limit, offset=query.offset)
        return
    given: dict[str, list[str]] = {}
    for each in query.measures:
        given.setdefault(each.kind, []).append(each.field)
    counted = given.pop("count", [])
    by = query.by[0] if query.single and len(query.by) == 1 else list(query.by)
    found = GroupQuery.of(by=by, count=bool(counted), **given)
    if (found.by, found.single, len(found.measures)) != (
        query.by, query.single, len(query.measures),
    ):  # fmt: skip
        raise ValueError("no query of groups")


def _fields(given: Any, name: str) -> tuple[str, ...]:
    if given is None:
        return ()
    if isinstance(given, (bytes, Mapping)) or not isinstance(given, Iterable):
        raise InvalidRequest(f"{name} must be a field, or a list of fields", **{name: given})
    listed = [given] if isinstance(given, str) else list(given)
    found = [checks.name_of_field(field, name) for field in listed]
    if len(set(found)) < len(found):
        raise InvalidRequest(f"{name} names a field twice", **{name: given})
    return tuple(found)


def _whole(value: Any, name: str) -> int:
    if type(value) is not int or value < 0:
        raise InvalidRequest(f"{name} must be a whole number, 0 or more", **{name: value})
    return min(value, _LIMIT)
