"""Arguments of the verbs, checked: bad input never reaches the store.

Each function returns the value as the store takes it, or raises `InvalidRequest` naming the
argument and what is allowed. Pure functions; safe from any thread.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa

from tideline.clock import span_us
from tideline.documents.policies import SETTINGS, policy_of
from tideline.errors import InvalidRequest
from tideline.index import kinds as kinds  # registers them
from tideline.index.compound import SEPARATOR, parts_of
from tideline.index.kind import Spec, kind_names, make_kind, name_of, spec_of
from tideline.near import check_no_directions
from tideline.where import Condition, parse
from tideline.where.build import path_of
from tideline.where.order import sort_keys
from tideline.where.values import compare

__all__ = ["at_most", "between", "condition", "count", "flag", "index", "index_name", "indexes",
           "listed", "name_of_field", "name_without_comma", "policy", "scalar", "skip", "slices",
           "sort", "ttl", "unique", "version"]  # fmt: skip

_FIELDS_LIMIT = 32
_PARTS_LIMIT = 8
_WHOLE = 1 << 53
_COUNT_LIMIT = 1 << 40  # more documents than there can be


def scalar(value: Any, name: str) -> Any:
    """A value that an index can hold, of a type that JSON gives.

    >>> scalar(10**400, "value")
    Traceback (most recent call last):
    tideline.errors.InvalidRequest: value must be null, a finite number, text or a boolean. ...
    """
    kind = type(value)
    if value is None or kind is bool or kind is str or (kind is int and -_WHOLE < value < _WHOLE):
        return value
    if isinstance(value, (int, float)):
        try:
            finite = math.isfinite(value)
        except OverflowError:  # a whole number beyond doubles
            finite = False
        if finite:
            return int(value) if isinstance(value, int) else float(value)
    if isinstance(value, str):
        return str.__str__(value)
    raise InvalidRequest(
        f"{name} must be null, a finite number, text or a boolean", **{name: value}
    )


def between(low: Any, high: Any) -> tuple[Any, Any, str]:
    """The ends of a range, and its bracket."""
    if low is None and high is None:
        raise InvalidRequest("give low, high or both")
    low, high = scalar(low, "low"), scalar(high, "high")
    sides = [_bracket(value) for value in (low, high) if value is not None]
    if len(set(sides)) > 1:
        raise InvalidRequest(
            "low and high must be of one kind: numbers, text or booleans", low=low, high=high
        )
    if low is not None and high is not None and compare(low, high) > 0:
        raise InvalidRequest("low must not be above high", low=low, high=high)
    return low, high, sides[0]


def _bracket(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    return "text" if isinstance(value, str) else "number"


def count(value: Any, name: str) -> int | None:
    """How many are wanted; None for all."""
    if type(value) is int and 0 < value < _COUNT_LIMIT:  # the common case, quick
        return value
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value <= 0:
        raise InvalidRequest(f"{name} must be a whole number above 0, or None", **{name: value})
    return min(int(value), _COUNT_LIMIT)


def skip(value: Any) -> int:
    """How many are left out at the start."""
    if type(value) is not int or value < 0:
        raise InvalidRequest("skip must be a whole number, 0 or more", skip=value)
    return min(value, _COUNT_LIMIT)


def flag(value: Any, name: str) -> bool:
    """True or False, and nothing that is like them."""
    if not isinstance(value, bool):
        raise InvalidRequest(f"{name} must be True or False", **{name: value})
    return value


def ttl(value: Any) -> int:
    """How long a document lasts, in microseconds; 0 for ever, which infinity asks for.

    >>> ttl(1.5), ttl(timedelta(minutes=1)), ttl(math.inf)
    (1500000, 60000000, 0)
    """
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, float) and value == math.inf:
        return 0
    found = span_us(value, "ttl_s")
    if found <= 0:
        raise InvalidRequest("ttl_s must be above 0: the seconds a document lasts", ttl_s=value)
    return found


def version(value: Any) -> int | None:
    """The version that a document must have; None for any."""
    if value is not None and (type(value) is not int or value < 1):
        raise InvalidRequest(
            "if_version must be the version of a document, a whole number", if_version=value
        )
    return value


def condition(where: Any, verb: str) -> Condition:
    """The condition of a verb that changes what meets it: `{}` is everything, None is an error."""
    if where is None:
        raise InvalidRequest(f"{verb} needs a condition; {{}} is every document")
    return parse(where)


def sort(
    spec: Any, key: str, condition: Condition | None = None
) -> list[tuple[str, int]] | None:  # fmt: skip
    """An order; None for the newest first. A condition with a `$near` has one of its own."""
    if spec is None:
        return None if condition is None or condition.near is None else condition.near.order
    allowed = "sort must be pairs of a field and 1 or -1, like [('time', -1)]"
    if isinstance(spec, (str, bytes)) or not isinstance(spec, (Mapping, Iterable)):
        raise InvalidRequest(allowed, sort=spec)
    pairs = list(spec.items() if isinstance(spec, Mapping) else spec)
    if not pairs or not all(isinstance(pair, (tuple, list)) and len(pair) == 2 for pair in pairs):
        raise InvalidRequest(allowed, sort=spec)
    found = [(name, direction) for name, direction in pairs]
    for name, _ in found:
        if isinstance(name, str) and name.startswith("$"):
            path_of(name, ("sort", name))  # which says that it is none
    sort_keys(found, key)  # names the rest that can be wrong
    return found


def indexes(given: Any, key: str) -> dict[str, Spec | None]:
    """Indexed fields and their kinds; None for any kind."""
    if isinstance(given, (list, tuple)):
        names = [index_name(each) for each in given]
        if len(set(names)) < len(names):
            raise InvalidRequest("indexes names a field twice", indexes=given)
        given = dict.fromkeys(names)
    if not isinstance(given, Mapping):
        raise InvalidRequest("indexes must be like {'user': 'lazy'} or ['user']", indexes=given)
    at_most(len(given))
    return dict(index(field, kind, key) for field, kind in given.items())


def unique(given: Any) -> dict[str, bool]:
    """Of indexes with settings, whether each is unique."""
    found: dict[str, bool] = {}
    for field, kind in given.items() if isinstance(given, Mapping) else ():
        if isinstance(kind, Mapping):
            wanted = found[index_name(field)] = flag(kind.get("unique", False), "unique")
            spec = _spec(field, kind)
            if wanted and spec is not None and make_kind(spec, seed=0).extract:
                raise InvalidRequest(
                    "an index of this kind cannot be unique", field=field, kind=name_of(spec)
                )
    return found


def index(field: Any, kind: Any, key: str) -> tuple[str, Spec | None]:
    """A field and the kind of its index; None for any kind."""
    field = index_name(field)
    spec = _spec(field, kind)
    if spec is not None:
        make_kind(spec, seed=0).check_fields(parts_of(field))
    if field == key:
        raise InvalidRequest("the key needs no index: documents are in its order", field=field)
    return field, spec


def _spec(field: Any, given: Any) -> Spec | None:
    """A kind by its name, or with settings; whether it is unique is no setting of its kind."""
    name, settings = given, {}
    if isinstance(given, Mapping):
        name = given.get("kind")
        settings = {key: each for key, each in given.items() if key not in ("kind", "unique")}
    if name is not None and (not isinstance(name, str) or name not in kind_names()):
        names = ", ".join(kind_names())
        raise InvalidRequest(f"kind must be one of {names}", field=field, kind=name)
    for setting in settings:
        if name is None or not isinstance(setting, str):
            raise InvalidRequest(
                "an index without a kind has the setting unique and no other; with one it has "
                "those of its kind, like {'kind': 'lazy', 'unique': True}",
                field=field, given=dict(given),
            )  # fmt: skip
    return None if name is None else spec_of(name, settings)


def at_most(indexes: int) -> None:
    """How many indexes a collection may have."""
    if indexes > _FIELDS_LIMIT:
        raise InvalidRequest(f"at most {_FIELDS_LIMIT} indexes are possible", count=indexes)


def index_name(given: Any) -> str:
    """The name of an index: its field, or its fields with commas between.

    >>> index_name("road"), index_name(["road", "speed"]), index_name("road,speed")
    ('road', 'road,speed', 'road,speed')
    """
    if isinstance(given, (list, tuple)):
        check_no_directions(given)
        for part in given:
            if SEPARATOR in name_of_field(part):
                raise InvalidRequest("the name of a field of several has no comma", field=part)
        given = SEPARATOR.join(given)
    parts = parts_of(name_of_field(given)) if isinstance(given, str) and given else [given]
    if len(parts) > 1:
        if given[0] + given[-1] in ("()", "[]"):
            raise InvalidRequest(
                "several fields are a list, or text with commas between", field=given,
                did_you_mean=SEPARATOR.join(each.strip(" ()[]'\"") for each in parts),
            )  # fmt: skip
        for part in parts:
            if part != part.strip():
                raise InvalidRequest(
                    "fields have a comma between and no space", field=given,
                    did_you_mean=SEPARATOR.join(each.strip() for each in parts),
                )  # fmt: skip
            name_of_field(part)
    else:
        name_of_field(parts[0])
    if len(parts) > _PARTS_LIMIT or len(set(parts)) < len(parts):
        raise InvalidRequest(
            f"an index is on at most {_PARTS_LIMIT} fields, and on each once", field=given
        )
    return SEPARATOR.join(parts)


def name_of_field(field: Any, name: str = "field") -> str:
    """The dotted path of a field, given as the argument `name`."""
    if not isinstance(field, str):
        raise InvalidRequest(f"{name} must be text: the name of a field", **{name: field})
    try:
        field.encode()
    except UnicodeEncodeError:
        raise InvalidRequest(f"{name} must be valid Unicode", **{name: field}) from None
    try:
        path_of(field, name)
    except InvalidRequest as error:
        raise InvalidRequest(str(error), **{name: field}) from None
    return field


def name_without_comma(field: Any, name: str) -> str:
    """The same, of a field that is called by one name: a comma stands between several."""
    if SEPARATOR in name_of_field(field, name):
        raise InvalidRequest(f"{name} must be one field, without a comma", **{name: field})
    return str(field)


def policy(given: Any) -> dict[str, Any]:
    """A policy by its name, or with its settings: {"name": "prefix", "max_count": 5}."""
    wanted = {"name": given} if isinstance(given, str) else given
    name = wanted.get("name") if isinstance(wanted, Mapping) else None
    if not isinstance(name, str) or name not in SETTINGS:
        raise InvalidRequest(
            f"policy must be one of {', '.join(SETTINGS)}, or like "
            "{'name': 'prefix', 'max_count': 5}", policy=given,
        )  # fmt: skip
    settings: dict[str, Any] = {"name": name, **SETTINGS[name]}
    for setting, value in wanted.items():
        if setting not in settings:
            raise InvalidRequest(
                "the policy has no such setting",
                policy=name, setting=setting, allowed=sorted(SETTINGS[name]),
            )  # fmt: skip
        settings[setting] = value
    policy_of(settings, None)  # names the least that a number may be
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
            "give a list of documents or a pyarrow Table", type=type(given).__name__
        )
    left = iter(given)
    first = 0
    while part := list(itertools.islice(left, size)):
        yield first, part
        first += len(part)
