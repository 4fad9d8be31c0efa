"""Arguments of the verbs, checked: bad input never reaches the store.

Each function returns the value as the store takes it, or raises `InvalidRequest` naming the
argument and what is allowed. Pure functions; safe from any thread.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from tideline.documents.types import Found
from tideline.errors import InvalidRequest
from tideline.where.build import path_of
from tideline.where.keys import decode
from tideline.where.order import sort_keys
from tideline.where.values import compare

__all__ = ["KINDS", "POLICIES", "batch", "between", "count", "indexes", "listed",
           "policy", "scalar", "slices", "sort"]  # fmt: skip

KINDS = ("eager", "lazy", "composite", "embedded")
POLICIES: dict[str, dict[str, int]] = {
    "none": {},
    "constant": {"k": 4},
    "prefix": {"max_bytes": 1 << 30, "max_count": 5},
    "correlated-prefix": {"max_bytes": 1 << 30, "max_count": 5},
    "leveled": {"first_bytes": 128 << 20, "ratio": 10, "max_count": 4},
}
"""The policies, with their settings and what these are when nobody says otherwise."""

_FIELDS_LIMIT = 32
_NUMBERS = (int, float)


def scalar(value: Any, name: str) -> Any:
    """A value that an index can hold."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, _NUMBERS) and math.isfinite(value):
        return value
    raise InvalidRequest(
        f"{name} must be null, a finite number, text or a boolean", **{name: value}
    )


def between(low: Any, high: Any) -> str:
    """The bracket of a range."""
    if low is None and high is None:
        raise InvalidRequest("give low, high or both")
    sides = [_bracket(value, name) for value, name in ((low, "low"), (high, "high"))
             if value is not None]  # fmt: skip
    if len(set(sides)) > 1:
        raise InvalidRequest(
            "low and high must be of one kind: numbers, text or booleans", low=low, high=high
        )
    if low is not None and high is not None and compare(low, high) > 0:
        raise InvalidRequest("low must not be above high", low=low, high=high)
    return sides[0]


def _bracket(value: Any, name: str) -> str:
    scalar(value, name)
    if isinstance(value, bool):
        return "boolean"
    return "text" if isinstance(value, str) else "number"


def count(value: Any, name: str) -> int | None:
    """How many are wanted; None for all."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value <= 0:
        raise InvalidRequest(f"{name} must be a whole number above 0, or None", **{name: value})
    return int(value)


def sort(spec: Any, key: str) -> list[tuple[str, int]] | None:
    """An order; None for the newest first."""
    if spec is None:
        return None
    allowed = "sort must be pairs of a field and 1 or -1, like [('time', -1)]"
    if isinstance(spec, (str, bytes)) or not isinstance(spec, (Mapping, Iterable)):
        raise InvalidRequest(allowed, sort=spec)
    pairs = list(spec.items() if isinstance(spec, Mapping) else spec)
    if not pairs or not all(isinstance(pair, (tuple, list)) and len(pair) == 2 for pair in pairs):
        raise InvalidRequest(allowed, sort=spec)
    found = [(name, direction) for name, direction in pairs]
    sort_keys(found, key)  # names the rest that can be wrong
    return found


def indexes(given: Any, key: str) -> dict[str, str]:
    """Indexed fields and their kinds."""
    if not isinstance(given, Mapping):
        raise InvalidRequest("indexes must be like {'user': 'lazy'}", indexes=given)
    if len(given) > _FIELDS_LIMIT:
        raise InvalidRequest(f"at most {_FIELDS_LIMIT} indexes are possible", count=len(given))
    for field, kind in given.items():
        name_of_field(field)
        if kind not in KINDS:
            raise InvalidRequest(f"kind must be one of {', '.join(KINDS)}", field=field, kind=kind)
        if field == key:
            raise InvalidRequest("the key needs no index: documents are in its order", field=field)
    return dict(given)


def name_of_field(field: Any) -> str:
    """The dotted path of a field."""
    if not isinstance(field, str):
        raise InvalidRequest("a field's name must be text", field=field)
    path_of(field, ("indexes", field))
    return field


def policy(given: Any) -> dict[str, Any]:
    """A policy by its name, or with its settings: {"name": "prefix", "max_count": 5}."""
    wanted = {"name": given} if isinstance(given, str) else given
    if not isinstance(wanted, Mapping) or wanted.get("name") not in POLICIES:
        raise InvalidRequest(
            f"policy must be one of {', '.join(POLICIES)}, or like "
            "{'name': 'prefix', 'max_count': 5}", policy=given,
        )  # fmt: skip
    settings: dict[str, Any] = {"name": wanted["name"], **POLICIES[wanted["name"]]}
    for name, value in wanted.items():
        if name not in settings:
            raise InvalidRequest(
                "the policy has no such setting",
                policy=wanted["name"], setting=name, allowed=sorted(settings),
            )  # fmt: skip
        if name != "name" and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise InvalidRequest(f"policy.{name} must be a whole number above 0", value=value)
        settings[name] = value
    return settings


def listed(given: Any, name: str) -> list[Any]:
    """Some values; text is none."""
    if isinstance(given, (str, bytes, Mapping)) or not isinstance(given, Iterable):
        raise InvalidRequest(f"{name} must be a list", **{name: given})
    return list(given)


def slices(given: Any, size: int) -> Iterator[tuple[int, Any]]:
    """Many documents in parts, with the number of the first of each."""
    if isinstance(given, pa.RecordBatch):
        given = pa.Table.from_batches([given])
    if isinstance(given, pa.Table):
        for first in range(0, max(given.num_rows, 1), size):
            # Of no columns, pyarrow slices as many rows as it is told.
            yield first, given.slice(first, min(size, given.num_rows - first))
        return
    if isinstance(given, (str, bytes, Mapping)) or not isinstance(given, Iterable):
        raise InvalidRequest(
            "put_many takes a list of documents or a pyarrow Table", type=type(given).__name__
        )
    left = iter(given)
    first = 0
    while part := list(itertools.islice(left, size)):
        yield first, part
        first += len(part)


def batch(found: Found) -> pa.RecordBatch:
    """Documents as columns; a key as JSON."""
    import msgspec

    keys = [msgspec.json.encode(decode(key)).decode() for key in found.keys]
    return pa.RecordBatch.from_arrays(
        [
            pa.array(keys, pa.string()),
            pa.array(found.seqs, pa.int64()),
            pa.array(found.docs, pa.large_binary()).cast(pa.large_string()),
        ],
        names=["key", "seq", "document"],
    )
