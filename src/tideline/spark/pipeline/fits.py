"""Whether the keys of [clean.COLUMN] fit the type that the column has.

    misfits(clean, "int")     the keys that do not, each with what to do about it

Spark would make something of it: a text of the number, null of a default, no row of a comparison
with text. `check.py` asks with the types of [schema], `clean.py` with those that Spark has found,
which also knows what an expression gives. Needs no Spark.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Any

from tideline.spark.pipeline import keys
from tideline.spark.pipeline.typenames import WHOLE, kind_of

__all__ = ["misfits"]

_WANTED = {
    "text": "a text",
    "whole": "a whole number",
    "number": "a number",
    "flag": "true or false",
    "time": "a time",
    "day": "a day",
}


def misfits(clean: keys.Clean, given: str | None) -> Iterator[tuple[str, str]]:
    """The keys that do not fit, and why. `given` is the type before cleaning; None: unknown.

    >>> list(misfits(keys.Clean(trim=True), "int"))
    [('trim', 'trim goes with text, and this is int')]
    >>> list(misfits(keys.Clean(cast="int", default="foo"), "string"))
    [('default', "default must be a whole number, as this is int, not 'foo'")]
    """
    if clean.trim and given is not None and kind_of(given) != "text":
        yield "trim", f"trim goes with text, and this is {given}"
    kind = clean.cast or ("string" if clean.trim else given)
    if kind is None:
        return
    wanted = _WANTED.get(kind_of(kind))
    for key, values in (("default", [clean.default]), ("one_of", clean.one_of or [])):
        for value in values:
            if value is None or _is_a(value, kind):
                continue
            what = "a value of one_of" if key == "one_of" else key
            if wanted:
                yield key, f"{what} must be {wanted}, as this is {kind}, not {value!r}"
            else:
                yield key, f"{what} cannot be given for {kind}"
    for key in ("min", "max"):
        bound = getattr(clean, key)
        if bound is None:
            continue
        moment = isinstance(bound, datetime.date)  # a datetime is one too
        if kind_of(kind) not in (("time", "day") if moment else ("whole", "number")):
            what = "a time" if moment else "a number"
            yield key, f"{key} is {what}, and this is {kind}: cast it to a type that fits"
    yield from _lost(clean)


def _lost(clean: keys.Clean) -> Iterator[tuple[str, str]]:
    """A default that the checks after it refuse."""
    default = clean.default
    if default is None:
        return
    for key, words in (("min", "below"), ("max", "above")):
        bound = getattr(clean, key)
        try:
            out = bound is not None and (default < bound if key == "min" else default > bound)
        except TypeError:
            continue  # of two kinds: said already, or a time without a zone beside one with
        if out:
            yield "default", f"default lies {words} {key}: every row that gets it would be bad"
    if clean.one_of is not None and default not in clean.one_of:
        yield "default", "default is none of one_of: every row that gets it would be bad"


def _is_a(value: Any, kind: str) -> bool:
    """Whether a value of the config is one of a type."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    match kind_of(kind):
        case "text":
            return isinstance(value, str)
        case "whole":
            limit = 1 << (WHOLE[kind.strip().lower()] - 1)
            return number and isinstance(value, int) and -limit <= value < limit
        case "number":
            return number
        case "flag":
            return isinstance(value, bool)
        case "time":
            return isinstance(value, datetime.date) or _is_iso(value, datetime.datetime)
        case "day":
            is_day = isinstance(value, datetime.date) and not isinstance(value, datetime.datetime)
            return is_day or _is_iso(value, datetime.date)
    return False


def _is_iso(value: Any, kind: type[datetime.date]) -> bool:
    """Whether it is a text that says a time, as Spark reads one."""
    try:
        return isinstance(value, str) and kind.fromisoformat(value) is not None
    except ValueError:
        return False
