"""The rows of a collection that a token may see and write.

    rows  :=  {collection or "*": condition}        {"orders": {"owner": "$user"}}

"$user" as a value stands for the token's user. A rule is one of these conditions with the user in
its place. Every read has it beside what was asked, and every write is held against it, the old
document and the new one (collection_limited.py).

Pure functions; safe from any thread.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from tideline.database import check_name
from tideline.errors import InvalidRequest
from tideline.where import Condition, parse

__all__ = ["EVERY", "Rule", "check_rows", "rule_of"]

EVERY = "*"
"""Stands for every collection that is not named."""
_USER = "$user"
_SHAPE = """rows must be conditions by collection, like {"orders": {"owner": "$user"}}"""


class Rule(msgspec.Struct, frozen=True, eq=False):
    """What a document must meet."""

    where: dict[str, Any]
    condition: Condition

    def also(self, where: dict[str, Any] | None) -> dict[str, Any]:
        """A condition and the rule.

        >>> rule_of({"owner": "$user"}, "ann").also({"open": True})
        {'$and': [{'owner': 'ann'}, {'open': True}]}
        """
        parse(where)  # says what is wrong with it in its own words
        return {"$and": [self.where, where]} if where else self.where

    def holds(self, document: dict[str, Any]) -> bool:
        """Whether a document meets the rule."""
        return self.condition.matches(document)


def rule_of(condition: dict[str, Any], user: str | None) -> Rule | None:
    """The rule of a user; None for `{}`, which every document meets."""
    return _rule(msgspec.json.encode(condition), user) if condition else None


@lru_cache(1024)
def _rule(text: bytes, user: str | None) -> Rule:
    where = _with_user(msgspec.json.decode(text), user)
    return Rule(where, parse(where, stored=True))


def _with_user(value: Any, user: str | None) -> Any:
    if value == _USER and isinstance(value, str):
        if user is None:
            raise InvalidRequest("rows with $user need a token of a user")
        return user
    if isinstance(value, str) and value.startswith("$"):
        raise InvalidRequest(f"a text with a $ in front: did you mean {_USER}?", value=value)
    if isinstance(value, dict):
        return {name: _with_user(part, user) for name, part in value.items()}
    if isinstance(value, list):
        return [_with_user(part, user) for part in value]
    return value


def check_rows(rows: Any, user: str | None, scopes: list[str]) -> None:
    """`InvalidRequest` for rows that no token can have.

    >>> check_rows({"orders": {"owner": "$user"}}, "ann", ["read:orders"])
    >>> check_rows({"orders": {"owner": {"eq": 1}}}, None, ["read"])
    Traceback (most recent call last):
    tideline.errors.InvalidRequest: rows.orders: where.owner.eq is not an operator: ...
    """
    if rows is None:
        return
    if not isinstance(rows, dict) or not rows:
        raise InvalidRequest(_SHAPE, rows=rows)
    if any(scope.partition(":")[0] == "admin" for scope in scopes):
        raise InvalidRequest("a token with rows cannot have the scope admin, which sees all rows")
    for name, condition in rows.items():
        if name != EVERY:
            check_name(name, "collection")
        if not isinstance(condition, dict):
            raise InvalidRequest(_SHAPE, rows=rows)
        try:
            parse(_with_user(condition, user))
        except InvalidRequest as error:
            raise InvalidRequest(f"rows.{name}: {error}") from None
