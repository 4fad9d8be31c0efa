"""What a window is: its settings, checked; as data they are the facts of its manifest.

    number of the sub-window (pane) of a time t := t // slide
    its slot in a ring of them := pane mod (span / slide)

A window of `span_s` is span / slide sub-windows: the open one and those before it. They begin at
whole multiples of the slide since 1970, so windows of one slide slide together.

Pure functions and values; safe from any thread.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tideline.clock import FOREVER, SECOND, span_us
from tideline.errors import Conflict, InvalidRequest
from tideline.index.values import POINT, TEXT
from tideline.near import did_you_mean

__all__ = ["CLOCK", "DTYPES", "OTHERS", "Settings", "given", "max_ahead", "same"]

CLOCK = "clock"
DTYPES = (
    "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "float32", "float64",
)  # fmt: skip
OTHERS: dict[str, np.dtype[Any]] = {"point": POINT, "text": TEXT}
"""Types of values that are no numbers."""
_AHEAD_S = 60.0  # as channels have it
_MOST_PANES, _MOST_FIELDS, _MOST_VALUES = 10_000, 16, 32
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1
_TAKEN = ("since", "found")  # columns of what `range` and `get_many` give
_METRES = "metres"  # a column of what `find` gives, where there are places


@dataclass(frozen=True)
class Settings:
    """What was declared of a window."""

    span_us: int
    slide_us: int
    key: tuple[str, ...]
    types: tuple[str, ...]
    """Of each key field: "int", "text", or "" while nothing has been appended."""
    ranges: tuple[tuple[int, int] | None, ...]
    """Of each key field: what was declared."""
    values: tuple[tuple[str, str], ...]
    """Name and type of each value."""
    keep: str
    time: str
    durable: bool
    max_ahead_us: int
    indexes: Mapping[str, Any] = field(default_factory=dict)
    """Kinds of index, by the value they are on."""

    @property
    def panes(self) -> int:
        """How many sub-windows a window is."""
        return self.span_us // self.slide_us

    @property
    def last(self) -> bool:
        """Whether of equal keys in a sub-window the last stays."""
        return self.keep == "last"

    @property
    def names(self) -> list[str]:
        """The names of the values."""
        return [name for name, _ in self.values]

    @property
    def dtypes(self) -> list[np.dtype[Any]]:
        """The types of the values."""
        return [OTHERS[kind] if kind in OTHERS else np.dtype(kind) for _, kind in self.values]

    @property
    def numbers(self) -> list[int]:
        """The places of the values that are numbers."""
        return [place for place, (_, kind) in enumerate(self.values) if kind not in OTHERS]

    def pane_of(self, time: int) -> int:
        """The number of the sub-window that a time belongs to."""
        return time // self.slide_us

    def panes_of(self, last_s: Any) -> int:
        """How many sub-windows "the last so many seconds" are."""
        if last_s is None:
            return self.panes
        span = span_us(last_s, "last_s")
        if not 0 < span <= self.span_us or span % self.slide_us:
            raise InvalidRequest(
                "last_s must be a multiple of the slide, up to the span", last_s=last_s,
                slide_s=self.slide_us / SECOND, span_s=self.span_us / SECOND,
            )  # fmt: skip
        return span // self.slide_us

    def facts(self) -> dict[str, Any]:
        """For the manifest."""
        return {
            "span_us": self.span_us, "slide_us": self.slide_us, "key": list(self.key),
            "types": list(self.types), "ranges": [r and list(r) for r in self.ranges],
            "values": [list(value) for value in self.values], "keep": self.keep,
            "time": self.time, "durable": self.durable, "max_ahead_us": self.max_ahead_us,
            "indexes": dict(self.indexes),
        }  # fmt: skip

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Settings:
        """What `facts` gave."""
        return cls(
            facts["span_us"], facts["slide_us"], tuple(facts["key"]), tuple(facts["types"]),
            tuple(None if r is None else (r[0], r[1]) for r in facts["ranges"]),
            tuple((name, kind) for name, kind in facts["values"]), facts["keep"], facts["time"],
            facts["durable"], facts["max_ahead_us"], facts.get("indexes", {}),
        )  # fmt: skip


def given(name: str, known: Sequence[str], options: Mapping[str, Any]) -> Settings:
    """Settings of a new window, from the options of `Database.window`; None is the default.

    >>> options = {"span_s": 300, "slide_s": 60, "key": ("x", "vid"), "values": {"vel": "int32"}}
    >>> settings = given("cars", [], options)
    >>> settings.panes, settings.key, settings.keep
    (5, ('x', 'vid'), 'last')
    """
    if options.get("span_s") is None or options.get("key") is None:
        raise InvalidRequest(
            f"a new window needs span_s and key{did_you_mean(name, known)}", name=name
        )
    span, slide = _spans(options["span_s"], options.get("slide_s"))
    key, types, ranges = _key(options["key"])
    values = _values(options.get("values"))
    keep = options.get("keep") or "last"
    if keep not in ("last", "all"):
        raise InvalidRequest("keep must be 'last' or 'all'", keep=keep)
    time = options.get("time") or CLOCK
    names = [*key, *(name for name, _ in values)]
    if len(set(names)) != len(names):
        raise InvalidRequest("two fields have one name", fields=names)
    if taken := [each for each in names if each in _TAKEN]:
        raise InvalidRequest(
            "no field of the key and no value can be called this: what is read has a column so",
            fields=taken,
        )
    if not isinstance(time, str) or (time in names and time != CLOCK):
        raise InvalidRequest("time must be 'clock' or a field that is no key or value", time=time)
    durable = options.get("durable")
    if durable not in (None, True, False):
        raise InvalidRequest("durable must be True or False", durable=durable)
    ahead = options.get("max_ahead_s")
    indexes = _indexes(options.get("indexes"), dict(values))
    if any(kind == "point" for _, kind in values) and _METRES in names:
        raise InvalidRequest(
            f"where a value is a point, no field can be called {_METRES}: what is found near a "
            "place has a column so", fields=[_METRES],
        )  # fmt: skip
    return Settings(
        span, slide, key, types, ranges, values, keep, time, durable is not False,
        max_ahead(_AHEAD_S if ahead is None else ahead), indexes,
    )  # fmt: skip


def same(name: str, stored: Settings, options: Mapping[str, Any]) -> None:
    """`Conflict` when options that were given are others than those of a window that is there."""
    found = {
        "span_s": stored.span_us / SECOND, "slide_s": stored.slide_us / SECOND, "keep": stored.keep,
        "time": stored.time, "durable": stored.durable, "values": stored.values,
        "indexes": stored.indexes,
    }  # fmt: skip
    for option, value in options.items():
        if value is None or option == "max_ahead_s":
            continue
        if option == "key":
            key, types, ranges = _key(value)
            alike = key == stored.key
            pairs = zip(types, stored.types, ranges, stored.ranges, strict=False)
            for kind, own, declared, own_range in pairs:
                alike = alike and kind in ("", own) and declared in (None, own_range)
            if alike:
                continue
            wanted: Any = value
            has: Any = stored.key
        else:
            wanted = value
            if option in ("span_s", "slide_s"):
                wanted = span_us(value, option) / SECOND
            if option == "values":
                wanted = _values(value)
            elif option == "indexes":
                wanted = _indexes(value, dict(stored.values))
            has = found[option]
            if wanted == has:
                continue
        raise Conflict(f"the window has another {option}", name=name, stored=has, given=wanted)


def max_ahead(ahead_s: Any) -> int:
    """`max_ahead_s`, checked, in microseconds; `FOREVER` for no limit."""
    if ahead_s == math.inf:
        return FOREVER
    ahead = span_us(ahead_s, "max_ahead_s")
    if ahead < 0:
        raise InvalidRequest("max_ahead_s must not be negative", max_ahead_s=ahead_s)
    return ahead


def _spans(span_s: Any, slide_s: Any) -> tuple[int, int]:
    span = span_us(span_s, "span_s")
    slide = span if slide_s is None else span_us(slide_s, "slide_s")
    if span <= 0 or slide <= 0 or span % slide:
        raise InvalidRequest(
            "span_s must be a positive multiple of slide_s", span_s=span_s, slide_s=slide_s
        )
    if span // slide > _MOST_PANES:
        raise InvalidRequest(
            f"a window has at most {_MOST_PANES} sub-windows", span_s=span_s, slide_s=slide_s
        )
    return span, slide


def _key(
    key: Any,
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[tuple[int, int] | None, ...]]:
    if isinstance(key, str):
        key = (key,)
    if not isinstance(key, (Mapping, Sequence)) or not 0 < len(key) <= _MOST_FIELDS:
        raise InvalidRequest(f"key must name 1 to {_MOST_FIELDS} fields", key=key)
    types: list[str] = []
    ranges: list[tuple[int, int] | None] = []
    for name in key:
        _check_field(name)
        if "," in name:
            raise InvalidRequest(
                "a field of the key has no comma: name several one by one, ('x', 'vid')", key=name
            )
        declared = key[name] if isinstance(key, Mapping) else None
        if declared is None or (isinstance(declared, str) and declared in ("int", "text")):
            types.append(declared or "")
            ranges.append(None)
            continue
        try:
            low, high = declared
            good = type(low) is int and type(high) is int and _LEAST <= low <= high <= _MOST
        except (TypeError, ValueError):
            good = False
        if not good:
            raise InvalidRequest(
                "a key field is 'int', 'text' or (least, greatest)", field=name, given=declared
            )
        types.append("int")
        ranges.append((low, high))
    return tuple(key), tuple(types), tuple(ranges)


def _values(values: Any) -> tuple[tuple[str, str], ...]:
    if values is None:
        return ()
    if not isinstance(values, Mapping) or len(values) > _MOST_VALUES:
        raise InvalidRequest(
            f"values must be up to {_MOST_VALUES} names with their types", values=values
        )
    for name, kind in values.items():
        _check_field(name)
        if not isinstance(kind, str) or kind not in (*DTYPES, *OTHERS):
            raise InvalidRequest(
                f"the type of a value is one of {', '.join((*DTYPES, *OTHERS))}",
                field=name, given=kind,
            )  # fmt: skip
    return tuple(values.items())


def _indexes(indexes: Any, types: Mapping[str, str]) -> dict[str, Any]:
    if not indexes:
        return {}
    from tideline.index.kind import spec_of
    from tideline.index.rowindex import kind_of

    if not isinstance(indexes, Mapping):
        raise InvalidRequest(
            'indexes name values with the kind of index on each: {"at": "spatial"}', indexes=indexes
        )
    found = {}
    for name, spec in indexes.items():
        made = kind_of(name, spec, types)
        found[name] = spec_of(made.name, made.settings)
    return found


def _check_field(name: Any) -> None:
    if not isinstance(name, str) or not 0 < len(name) <= 128 or not name.isprintable():
        raise InvalidRequest("a field's name must be printable text", field=name)
