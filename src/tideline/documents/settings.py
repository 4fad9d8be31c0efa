"""The settings of a collection: given, filled up, compared with what is stored.

    key          a field without dots          needed for a new collection
    indexes      field -> kind, or fields      none
                 {"kind": ..., "unique": True, ...} stands for a kind with its settings
    policy       name and numbers              prefix
    filter       a field                       none
    bloom_bits   bits an entry                 20

An index without a kind gets the one that `advise` has for a field of which nothing is known.
They are stored when the collection is made. Whoever opens it again gives none of them or the
same; indexes change by `create_index` and `drop_index`. Pure functions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tideline.documents import checks
from tideline.documents.advise import UNKNOWN
from tideline.errors import Conflict, InvalidRequest
from tideline.index.kind import Spec

if TYPE_CHECKING:
    from tideline.documents.collection import Collection

__all__ = ["complete", "given", "same"]

_BLOOM_BITS = 20


def given(key: Any, indexes: Any, policy: Any, filter: Any, bloom_bits: Any) -> dict[str, Any]:
    """What was given, checked; without what was not.

    >>> given("id", None, "none", None, None)
    {'key': 'id', 'policy': {'name': 'none'}}
    """
    found: dict[str, Any] = {}
    if key is not None:
        if not isinstance(key, str) or not key or "." in key or key.startswith("$"):
            raise InvalidRequest(
                "key must be the name of a field, without '.' or a '$' in front", key=key
            )
        checks.name_without_comma(key, "key")
        found["key"] = key
    if indexes is not None:
        found["indexes"] = checks.indexes(indexes, key or "")
        if unique := checks.unique(indexes):
            found["unique"] = unique
    if policy is not None:
        found["policy"] = checks.policy(policy)
    if filter is not None:
        found["filter"] = checks.name_without_comma(filter, "filter")
    if bloom_bits is not None:
        if (
            isinstance(bloom_bits, bool)
            or not isinstance(bloom_bits, int)
            or not 1 <= bloom_bits <= 1000
        ):
            raise InvalidRequest(
                "bloom_bits must be a whole number from 1 to 1000", bloom_bits=bloom_bits
            )
        found["bloom_bits"] = bloom_bits
    return found


def complete(found: Mapping[str, Any], meant: str = "") -> dict[str, Any]:
    """The settings of a new collection; `meant` ends the message about one that has no key."""
    if "key" not in found:
        raise InvalidRequest(
            "there is no such collection, and a new one needs the field its documents are known "
            f"by, like key='id'{meant}"
        )
    indexes = found.get("indexes", {})
    unique = [field for field, is_unique in found.get("unique", {}).items() if is_unique]
    made = {
        "policy": checks.policy("prefix"), "filter": None, "bloom_bits": _BLOOM_BITS, **found,
        "indexes": {field: kind or UNKNOWN for field, kind in indexes.items()},
    }  # fmt: skip
    made.pop("unique", None)
    return {**made, "unique": unique} if unique else made


def same(name: str, found: Mapping[str, Any], stored: Collection) -> None:
    """`Conflict` when something else was given than what is stored."""
    for setting, value in found.items():
        if setting == "indexes":
            _same_indexes(name, value, stored)
        elif setting == "unique":
            for field, is_unique in value.items():
                if is_unique != (field in stored.unique):
                    raise Conflict(
                        "the index is unique or not as it was made: drop it and make another",
                        name=name, field=field, stored=field in stored.unique, given=is_unique,
                    )  # fmt: skip
        elif value != (has := _stored(stored._engine.facts, setting)):
            raise Conflict(
                f"the collection has another {setting}", name=name, stored=has, given=value
            )


def _stored(facts: Mapping[str, Any], setting: str) -> Any:
    """What is stored; a policy with the settings that were added since it was."""
    return checks.policy(facts[setting]) if setting == "policy" else facts[setting]


def _same_indexes(name: str, wanted: dict[str, Spec | None], stored: Collection) -> None:
    has = stored._engine.indexes
    for field, kind in wanted.items():
        if field not in has:
            raise Conflict(
                "the collection is there, without an index on this field: add it separately",
                name=name, field=field, indexes=sorted(has),
            )  # fmt: skip
        if kind is not None and has[field] != kind:
            raise Conflict(
                "the index is of another kind, or has other settings: drop it and make another",
                name=name, field=field, stored=has[field], given=kind,
            )  # fmt: skip
    missing = sorted(has.keys() - wanted.keys())
    if missing:
        raise Conflict(
            "the collection has more indexes: drop those, or give none, which is always right",
            name=name, indexes=missing,
        )  # fmt: skip
