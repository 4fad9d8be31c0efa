"""What a range becomes: built-in mappers, and functions of the user's.

    count()   sum(f)   mean(f)   min(f)   max(f)
    quantile(f, q)   quantile(f, q, error)   median(f)          a sketch: sketch.py
    top(n, f)                                                    the rows with the greatest values

A mapper makes a *state* of rows (`of`), joins two (`join`), and a result of one (`result`). Joining
is exact, in any order and grouping: sums are whole numbers (of doubles in units of 2**-1074), a
sketch counts, so what is kept by sub-windows equals one pass over everything.

Function: what the user wrote, folded over the rows in order; joined only with a `combine`.

Values; safe from any thread.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from tideline.addresses import address_of
from tideline.errors import InvalidRequest
from tideline.index.keyruns import Run
from tideline.kernels.stream import fold
from tideline.kernels.stream.layout import CHUNKS
from tideline.near import did_you_mean
from tideline.stream.settings import OTHERS, Settings
from tideline.stream.sketch import DEFAULT_ERROR, check_error, code_counts, quantile

__all__ = ["MAPPERS", "Call", "Mapper", "call_of", "mapper_of"]

Array = NDArray[Any]
MAPPERS = ("count", "sum", "mean", "min", "max", "quantile", "median", "top")
_MOST_TOP = 10_000
_MOST_MAPPERS, _MOST_TEXT, _MOST_DEPTH = 256, 1024, 8


class Mapper(Protocol):
    """How rows become a state, states one, and one a result."""

    ordered: bool
    """Whether the rows of a sub-window must be one part, in order."""
    joins: bool
    """Whether states can be joined."""

    def empty(self) -> Any:
        """The state of no rows."""
        ...

    def of(self, run: Run, before: Any) -> Any:
        """The state with some rows more; `before` is changed by nobody."""
        ...

    def join(self, older: Any, newer: Any) -> Any:
        """The state of both."""
        ...

    def result(self, state: Any) -> Any:
        """What the caller gets."""
        ...


class _BuiltIn:
    ordered = False
    joins = True

    def __init__(self, settings: Settings, field: str | None = None) -> None:
        self._settings = settings
        self._place = -1 if field is None else settings.names.index(field)
        dtype = settings.dtypes[self._place] if settings.values else np.dtype(np.int64)
        self._real = dtype.kind == "f"

    def _values(self, run: Run) -> tuple[Array, int]:
        """Values as a kernel takes them, with their kind."""
        values = run.values[self._place]
        if self._real:
            return np.ascontiguousarray(values, np.float64), fold.DOUBLES
        if values.dtype == np.int64 or values.dtype == np.uint32:
            return np.ascontiguousarray(values, np.int64), fold.WORDS
        return np.ascontiguousarray(values, np.int32), fold.HALVES

    def _plain(self, value: Any) -> Any:
        return float(value) if self._real else int(value)


class _Count(_BuiltIn):
    def empty(self) -> int:
        return 0

    def of(self, run: Run, before: int) -> int:
        return before + run.rows

    def join(self, older: int, newer: int) -> int:
        return older + newer

    def result(self, state: int) -> int:
        return state


class _Sum(_BuiltIn):
    """(rows, exact sum)."""

    def empty(self) -> tuple[int, int]:
        return 0, 0

    def of(self, run: Run, before: tuple[int, int]) -> tuple[int, int]:
        values, kind = self._values(run)
        out = np.empty(CHUNKS, np.int64)
        fold.add_up(address_of(values), kind, len(values), address_of(out))
        total = sum(int(word) << (32 * n) for n, word in enumerate(out.tolist()) if word)
        return before[0] + run.rows, before[1] + total

    def join(self, older: tuple[int, int], newer: tuple[int, int]) -> tuple[int, int]:
        return older[0] + newer[0], older[1] + newer[1]

    def _over(self, total: int, count: int) -> float:
        try:
            return total / ((count << 1074) if self._real else count)
        except OverflowError:
            return math.inf if total > 0 else -math.inf

    def result(self, state: tuple[int, int]) -> Any:
        return self._over(state[1], 1) if self._real else state[1]


class _Mean(_Sum):
    def result(self, state: tuple[int, int]) -> float | None:
        return self._over(state[1], state[0]) if state[0] else None


class _Extreme(_BuiltIn):
    """The least or greatest value, or None."""

    def __init__(self, settings: Settings, field: str, which: int) -> None:
        super().__init__(settings, field)
        self._which = which
        self._better = (min, max)[which]

    def empty(self) -> None:
        return None

    def of(self, run: Run, before: Any) -> Any:
        if not run.rows:
            return before
        values, kind = self._values(run)
        out = np.empty(2, np.int64)
        fold.extremes(address_of(values), kind, len(values), address_of(out))
        return self.join(before, self._plain(values[out[self._which]]))

    def join(self, older: Any, newer: Any) -> Any:
        if older is None or newer is None:
            return newer if older is None else older
        return self._better(older, newer)

    def result(self, state: Any) -> Any:
        return state


class _Quantile(_BuiltIn):
    """Counts by the code of a bucket."""

    def __init__(self, settings: Settings, field: str, q: float, error: float) -> None:
        super().__init__(settings, field)
        self._q = q
        self._error = error

    def empty(self) -> dict[int, int]:
        return {}

    def of(self, run: Run, before: dict[int, int]) -> dict[int, int]:
        values = np.ascontiguousarray(run.values[self._place], np.float64)
        return self.join(before, code_counts(values, self._error))

    def join(self, older: dict[int, int], newer: dict[int, int]) -> dict[int, int]:
        if not older or not newer:
            return older or newer
        joined = dict(older)
        for code, count in newer.items():
            joined[code] = joined.get(code, 0) + count
        return joined

    def result(self, state: dict[int, int]) -> float | None:
        return quantile(state, self._q, self._error)


class _Top(_BuiltIn):
    """The rows with the greatest values: (-value, key), ascending."""

    def __init__(self, settings: Settings, field: str, count: int) -> None:
        super().__init__(settings, field)
        self._count = count

    def empty(self) -> list[Any]:
        return []

    def of(self, run: Run, before: list[Any]) -> list[Any]:
        values = run.values[self._place]
        if len(values) > 4 * self._count:
            # All that are not below the last of the greatest: ties are for the keys to decide.
            cut = np.partition(values, len(values) - self._count)[len(values) - self._count]
            run = run.take(np.flatnonzero(values >= cut))
            values = run.values[self._place]
        columns = [list(map(_plain, column)) for column in run.codec.unpack(run.keys)]
        rows = zip((-self._plain(value) for value in values), zip(*columns, strict=True),
                   strict=True)  # fmt: skip
        return heapq.nsmallest(self._count, [*before, *rows])

    def join(self, older: list[Any], newer: list[Any]) -> list[Any]:
        return heapq.nsmallest(self._count, [*older, *newer])

    def result(self, state: list[Any]) -> list[tuple[Any, Any]]:
        return [(key, -value) for value, key in state]


class _Several:
    """Several mappers in one pass."""

    def __init__(self, mappers: Mapping[str, Any]) -> None:
        self._mappers = dict(mappers)
        self.size = sum(getattr(each, "size", 1) for each in mappers.values())
        if self.size > _MOST_MAPPERS:
            raise InvalidRequest(f"at most {_MOST_MAPPERS} mappers at once", mappers=self.size)
        self.ordered = any(each.ordered for each in mappers.values())
        self.joins = all(each.joins for each in mappers.values())

    def empty(self) -> list[Any]:
        return [each.empty() for each in self._mappers.values()]

    def of(self, run: Run, before: list[Any]) -> list[Any]:
        pairs = zip(self._mappers.values(), before, strict=True)
        return [each.of(run, state) for each, state in pairs]

    def join(self, older: list[Any], newer: list[Any]) -> list[Any]:
        triples = zip(self._mappers.values(), older, newer, strict=True)
        return [each.join(a, b) for each, a, b in triples]

    def result(self, state: list[Any]) -> dict[str, Any]:
        pairs = zip(self._mappers.items(), state, strict=True)
        return {name: each.result(own) for (name, each), own in pairs}


def _plain(value: Any) -> Any:
    return value if isinstance(value, str) else int(value)


def mapper_of(
    given: Any, settings: Settings, initial: Any = None, combine: Any = None, *, depth: int = 0
) -> Mapper:  # fmt: skip
    """What the caller named: text, a mapping or list of texts, or a function.

    >>> from tideline.stream.settings import given as declared
    >>> options = {"span_s": 60, "key": ("vid",), "values": {"vel": "int32"}}
    >>> mapper_of("mean(speed)", declared("cars", [], options))
    Traceback (most recent call last):
    tideline.errors.InvalidRequest: the window has no such value. value='speed'
    """
    if isinstance(given, str):
        _no_more(initial, combine)
        made: Mapper = _built_in(given, settings)
        return made
    if isinstance(given, Mapping) or (
        isinstance(given, Sequence) and all(isinstance(each, str) for each in given)
    ):
        _no_more(initial, combine)
        named = given if isinstance(given, Mapping) else {each: each for each in given}
        if not named or not all(isinstance(name, str) for name in named):
            raise InvalidRequest("map needs names and mappers", map=given)
        if depth == _MOST_DEPTH:
            raise InvalidRequest(f"mappers by name are at most {_MOST_DEPTH} deep in one another")
        return _Several(
            {name: mapper_of(each, settings, depth=depth + 1) for name, each in named.items()}
        )
    if callable(given):
        from tideline.stream.functions import Function

        return Function(given, settings, initial, combine)
    raise InvalidRequest("map is the text of a mapper, several of them, or a function", map=given)


def _no_more(initial: Any, combine: Any) -> None:
    if initial is not None or combine is not None:
        raise InvalidRequest("initial and combine are for functions", initial=initial)


class Call(NamedTuple):
    """A built-in mapper as its text has it."""

    name: str
    field: str = ""
    rows: int = 0
    """Of `top`: how many."""
    q: float = 0.5
    error: float = DEFAULT_ERROR


def call_of(text: str) -> Call:
    """The text of a mapper, read.

    >>> call_of("quantile(vel, 0.9)")
    Call(name='quantile', field='vel', rows=0, q=0.9, error=0.01)
    """
    if len(text) > _MOST_TEXT:
        raise InvalidRequest(f"a mapper is at most {_MOST_TEXT} characters", length=len(text))
    name, opened, rest = (each.strip() for each in text.partition("("))
    if name in MAPPERS and bool(opened) != rest.endswith(")"):
        whole = "count()" if name == "count" else f"{name}(vel)"
        raise InvalidRequest(f"a mapper ends with a bracket: {whole}", map=text)
    if name not in MAPPERS:
        raise InvalidRequest(
            f"no such mapper{did_you_mean(name, MAPPERS)}", map=text, mappers=", ".join(MAPPERS)
        )
    inner = rest[:-1].strip()
    args = [each.strip() for each in inner.split(",")] if inner else []
    if name == "count":
        if args:
            raise InvalidRequest("count takes no value: count()", map=text)
        return Call(name)
    if name == "top":
        if len(args) != 2 or not args[0].isdecimal() or not 0 < int(args[0]) <= _MOST_TOP:
            raise InvalidRequest(f"top takes 1 to {_MOST_TOP} and a value: top(10, vel)", map=text)
        return Call(name, args[1], int(args[0]))
    if name in ("quantile", "median"):
        least, most = (2, 3) if name == "quantile" else (1, 2)
        if not least <= len(args) <= most:
            raise InvalidRequest("quantile takes a value and 0 to 1: quantile(vel, 0.9)", map=text)
        q = _fraction(args[1], text) if name == "quantile" else 0.5
        error = check_error(_fraction(args[-1], text)) if len(args) == most else DEFAULT_ERROR
        return Call(name, args[0], 0, q, error)
    if len(args) != 1:
        raise InvalidRequest(f"{name} takes one value: {name}(vel)", map=text)
    return Call(name, args[0])


def _built_in(text: str, settings: Settings) -> Any:
    call = call_of(text)
    if call.name == "count":
        return _Count(settings)
    field = _field(call.field, settings)
    if call.name == "top":
        return _Top(settings, field, call.rows)
    if call.name in ("quantile", "median"):
        return _Quantile(settings, field, call.q, call.error)
    if call.name in ("min", "max"):
        return _Extreme(settings, field, int(call.name == "max"))
    return (_Sum if call.name == "sum" else _Mean)(settings, field)


def _fraction(text: str, whole: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= 1:
        raise InvalidRequest("this must be a number from 0 to 1", given=text, map=whole)
    return value


def _field(name: str, settings: Settings) -> str:
    if name not in settings.names:
        raise InvalidRequest(
            f"the window has no such value{did_you_mean(name, settings.names)}", value=name
        )
    kind = dict(settings.values)[name]
    if kind in OTHERS:
        raise InvalidRequest("a mapper is of a value that is a number", value=name, type=kind)
    return name
