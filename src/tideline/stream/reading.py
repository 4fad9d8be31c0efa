"""Searches over the sub-windows of one moment: spans of runs, and the rows of tails.

    Where     which keys: those that begin like a prefix, or [low, high)
    Asked     which rows of a sub-window are meant: ByKey here, ByCondition in finding.py
    rows_in   what a sub-window has of them: parts of runs, as they are where that will do
    newest    the newest row of each of many keys

With `keep` "last" a key that was appended again counts once in a sub-window, wherever its rows lie
by now. Reads only immutable runs and the visible rows of tails; safe from any thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tideline.addresses import address_of
from tideline.errors import InvalidRequest
from tideline.index.keyruns import Run, as_codec, join_runs, sorted_run
from tideline.index.packed import Codec
from tideline.index.values import TextColumn
from tideline.kernels.stream import runs as kernels
from tideline.stream.memory import Sub
from tideline.stream.settings import Settings

__all__ = [
    "Asked", "Between", "ByKey", "Where", "check_prefix", "key_columns", "newest", "present",
    "rows_in", "scanned", "where_of",
]  # fmt: skip


class Where:
    """Which keys are meant; bounds are made for the codec of each run."""

    __slots__ = ("_found", "high", "low", "prefix")

    def __init__(self, prefix: tuple[Any, ...] | None, low: Any = None, high: Any = None) -> None:
        self.prefix = prefix
        self.low = low
        self.high = high
        self._found: tuple[Codec | None, Any] = None, None

    def bounds(self, codec: Codec) -> tuple[Any, Any] | None:
        """As `Run.span` takes them."""
        last, found = self._found
        if last is not codec:
            if self.prefix is not None:
                found = codec.beginning(self.prefix)
            else:
                found = codec.between(self.low, self.high)
            self._found = codec, found
        bounds: tuple[Any, Any] | None = found
        return bounds

    def holds(self, rows: Run) -> NDArray[np.bool_]:
        """Which rows, in any order, are meant."""
        kept = np.zeros(rows.rows, np.bool_)
        kept[scanned(rows, self.bounds(rows.codec))] = True
        return kept


class Between(Where):
    """Those of some keys that lie in [low, high), too."""

    __slots__ = ("_others",)

    def __init__(self, others: Where, low: Any, high: Any) -> None:
        super().__init__(None, low, high)
        self._others = others

    def bounds(self, codec: Codec) -> tuple[Any, Any] | None:
        """As `Run.span` takes them."""
        own, others = super().bounds(codec), self._others.bounds(codec)
        if own is None or others is None:
            return None
        low, high = max(own[0], others[0]), min(own[1], others[1])
        return (low, high) if low < high or (codec.is_packed and low == high) else None


class Asked(Protocol):
    """Which rows are meant."""

    alone: bool
    """Whether those of a sub-window depend on nothing that came in later ones."""

    def rows(self, sub: Sub, later: Sequence[Sub], *, ordered: bool) -> Sequence[Run]:
        """Those of a sub-window, oldest part first; `ordered`: one part, in the order of keys."""
        ...


class ByKey:
    """Rows with some keys."""

    alone = True

    def __init__(self, where: Where, *, last: bool) -> None:
        self._where = where
        self._last = last

    def rows(self, sub: Sub, later: Sequence[Sub], *, ordered: bool) -> Sequence[Run]:
        """As `rows_in`."""
        return rows_in(sub, self._where, last=self._last, ordered=ordered)


def where_of(given: Any, settings: Settings) -> Where:
    """What `range` and `watch` take: a prefix of the key, or (low, high) of two such.

    >>> from tideline.stream.settings import given as declared
    >>> cars = declared("cars", [], {"span_s": 60, "key": {"x": "int", "vid": "int"}})
    >>> where_of((0,), cars).prefix, where_of(((0, 7), (1,)), cars).high
    ((0,), (1,))
    """
    if given is None:
        return Where(())
    if isinstance(given, dict):
        return Where(check_prefix(given, settings))
    if not isinstance(given, (tuple, list)):
        given = (given,)
    if len(given) == 2 and any(isinstance(each, (tuple, list)) for each in given):
        low, high = given
        return Where(
            None, None if low is None else check_prefix(low, settings),
            None if high is None else check_prefix(high, settings),
        )  # fmt: skip
    return Where(check_prefix(given, settings))


def check_prefix(given: Any, settings: Settings, *, whole: bool = False) -> tuple[Any, ...]:
    """A prefix of a key, checked; `whole`: all of it."""
    if isinstance(given, dict):
        missing = [name for name in settings.key[: len(given)] if name not in given]
        if missing or len(given) > len(settings.key):
            raise InvalidRequest(
                f"a prefix names the first fields of the key: {', '.join(settings.key)}",
                given=given,
            )
        given = [given[name] for name in settings.key[: len(given)]]
    if not isinstance(given, (tuple, list)):
        given = (given,)
    if len(given) > len(settings.key) or (whole and len(given) != len(settings.key)):
        raise InvalidRequest(
            f"a key has {len(settings.key)} fields: {', '.join(settings.key)}", given=given
        )
    made = []
    for value, name, kind in zip(given, settings.key, settings.types, strict=False):
        is_int = isinstance(value, (int, np.integer)) and not isinstance(value, (bool, np.bool_))
        if not (is_int if kind == "int" else isinstance(value, str) if kind == "text" else True):
            what = "a whole number" if kind == "int" else "text"
            raise InvalidRequest(f"{name} must be {what}", given=value)
        if isinstance(value, str):
            try:
                value.encode()
            except UnicodeEncodeError:
                raise InvalidRequest(f"{name} has no UTF-8", given=value) from None
        made.append(int(value) if is_int else value)
    return tuple(made)


def rows_in(sub: Sub, where: Where, *, last: bool, ordered: bool = False) -> list[Run]:
    """The rows of a sub-window that are meant, oldest part first.

    `last`: of equal keys only the last. `ordered`: one part, in the order of keys.
    """
    parts = []
    for run in sub.runs:
        start, limit = run.span(where.bounds(run.codec))
        if start < limit:
            parts.append(run.part(start, limit))
    if sub.tail is not None and sub.tail_rows:
        rows = sub.tail.rows(sub.tail_rows)
        places = scanned(rows, where.bounds(rows.codec))
        if len(places):
            taken = rows.take(places)
            if last or ordered:
                taken = sorted_run(taken.codec, taken.keys, taken.values, last=last)
            parts.append(taken)
    if len(parts) > 1 and (last or ordered):
        return [join_runs(parts, parts[-1].codec, last=last)]
    return parts


def scanned(rows: Run, bounds: tuple[Any, Any] | None) -> NDArray[np.int64]:
    """Where rows without order are within bounds."""
    if bounds is None:
        return np.zeros(0, np.int64)
    low, high = bounds
    keys = rows.keys
    if not rows.codec.is_packed:
        width = max(keys.dtype.itemsize, len(low), len(high))
        first, limit = np.array([low, high], f"S{width}")
        return np.flatnonzero((keys >= first) & (keys < limit))
    out = np.empty(rows.rows, np.int64)
    count = kernels.scan(
        address_of(keys), rows.rows, int(keys.dtype == np.uint32), low, high, address_of(out)
    )
    return out[:count]


def newest(subs: Sequence[Sub], keys: Run) -> list[NDArray[Any]]:
    """Of each key the newest row: where it is found as a mask, then its values; none when
    nothing was found.

    `keys` are the keys that are asked for, in any order, in some codec.
    """
    count = keys.rows
    found = np.zeros(count, bool)
    values: list[NDArray[Any]] | None = None
    asked: dict[int, Any] = {}
    for sub in reversed(subs):
        runs = list(sub.runs)
        if sub.tail is not None and sub.tail_rows:
            rows = sub.tail.rows(sub.tail_rows)
            runs.append(sorted_run(rows.codec, rows.keys, rows.values, last=True))
        for run in reversed(runs):
            left = np.flatnonzero(~found)
            if not len(left):
                break
            wanted = asked.get(id(run.codec))
            if wanted is None:
                wanted = asked[id(run.codec)] = _recoded(keys, run.codec), run.codec
            (there, own), _ = wanted
            left = left[there[left]]
            places = run.find(own[left])
            hit = places >= 0
            if values is None:
                values = [np.zeros(count, value.dtype) for value in run.values]  # texts: objects
            for mine, value in zip(values, run.values, strict=True):
                hits: Any = value[places[hit]]
                mine[left[hit]] = hits.tolist() if isinstance(hits, TextColumn) else hits
            found[left[hit]] = True
    return [found, *(values or [])]


def present(run: Run, rows: Run) -> NDArray[np.bool_]:
    """Which rows have a key that a run has."""
    there, own = _recoded(rows, run.codec)
    return there & (run.find(own) >= 0)


def _recoded(keys: Run, codec: Codec) -> tuple[NDArray[np.bool_], NDArray[Any]]:
    """Which keys another codec can have, and as what; the others are anything."""
    if not codec.is_packed or keys.codec == codec:
        return np.ones(keys.rows, bool), as_codec(keys, codec).keys
    columns = keys.codec.unpack(keys.keys)
    there = np.ones(keys.rows, bool)
    ranges = getattr(codec, "ranges", [])
    fitted = []
    for column, (low, high) in zip(columns, ranges, strict=True):
        numbers = np.asarray(column, np.int64)
        there &= (numbers >= low) & (numbers <= high)
        fitted.append(np.clip(numbers, low, high))
    return there, codec.pack(fitted)


def key_columns(run: Run, settings: Settings) -> dict[str, Any]:
    """The key fields of rows, by name."""
    return dict(zip(settings.key, run.codec.unpack(run.keys), strict=True))
