"""Functions of the user's as mappers: numba functions, compiled into a loop, and plain ones.

    function(state, field ..., value ...) -> state      every key field, then every value
    function(state, key, value) -> state                where that takes three arguments in all:
                                                        the key as a tuple, the value (or a tuple)

A key of one field and a value alone are given as they are, not as tuples. Rows come sub-window by
sub-window, oldest first, those of a sub-window in the order of their keys. A function that numba
compiled (`numba.njit`) is called in a compiled loop, which is compiled once for it; a plain one is
called for each row by Python, and only plain ones are given keys that are text. Values that are
no numbers, points and texts, are given to none.

`combine(state, state) -> state` joins what two runs of sub-windows gave, both having begun at
`initial`. Without it a window that slides is folded anew at each slide. Both may change the states
that they are given in place: they get copies.
"""

from __future__ import annotations

import copy
import inspect
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from tideline.errors import InvalidRequest
from tideline.index.keyruns import Run
from tideline.stream.settings import Settings

__all__ = ["Function"]

_loops: weakref.WeakKeyDictionary[Any, dict[tuple[int, int, bool], Any]] = (
    weakref.WeakKeyDictionary()
)
_compiling = threading.Lock()
_TOGETHER = 1 << 14  # rows of one call of a compiled loop


class Function:
    """A function as a mapper; its state is the function's."""

    ordered = True

    def __init__(self, function: Any, settings: Settings, initial: Any, combine: Any) -> None:
        if initial is None:
            raise InvalidRequest("a function needs initial: the state before the first row")
        if combine is not None and not callable(combine):
            raise InvalidRequest("combine must be a function of two states", combine=combine)
        self._function = function
        self._initial = initial
        self._combine = combine
        self.joins = combine is not None
        plain = getattr(function, "py_func", function)
        self._compiled = plain is not function
        self._numbers = settings.numbers
        fields, values = len(settings.key), len(settings.numbers)
        count = _arguments(plain)
        if count is not None and count not in (3, 1 + fields + values):
            raise InvalidRequest(
                "a function takes (state, key, value), or state, key fields and values",
                expected=["state", *settings.key, *(settings.names[n] for n in settings.numbers)],
                arguments=count,
            )  # fmt: skip
        self._spread = count is None or count == 1 + fields + values
        self._shape = fields, values

    def empty(self) -> Any:
        return _copied(self._initial)

    def of(self, run: Run, before: Any) -> Any:
        if self._compiled and run.rows > _TOGETHER:  # what is unpacked stays in the cache
            for start in range(0, run.rows, _TOGETHER):
                before = self.of(run.part(start, min(start + _TOGETHER, run.rows)), before)
            return before
        keys: list[Any] = run.codec.unpack(run.keys)
        numbers = [run.values[n] for n in self._numbers]
        if self._compiled and all(isinstance(column, np.ndarray) for column in keys):
            columns = [np.ascontiguousarray(c, np.int64) for c in keys]
            values = [np.array(value) for value in numbers]  # of one layout, for one loop
            return self._loop()(self._function, before, run.rows, *columns, *values)
        if self._compiled:
            raise InvalidRequest("a numba function cannot be given keys that are text or bytes")
        lists = [column if isinstance(column, list) else column.tolist() for column in keys]
        return self._folded(before, lists, [value.tolist() for value in numbers])

    def _folded(self, state: Any, keys: list[Any], values: list[Any]) -> Any:
        function = self._function
        for row in zip(*keys, *values, strict=True):
            if self._spread:
                state = function(state, *row)
            else:
                key, value = row[: len(keys)], row[len(keys) :]
                state = function(
                    state, key[0] if len(key) == 1 else key,
                    value[0] if len(value) == 1 else value,
                )  # fmt: skip
        return state

    def _loop(self) -> Any:
        fields, values = self._shape
        shape = fields, values, self._spread
        with _compiling:
            made = _loops.setdefault(self._function, {})
            if shape not in made:
                made[shape] = _made_loop(*shape)
            return made[shape]

    def join(self, older: Any, newer: Any) -> Any:
        return self._combine(_copied(older), _copied(newer))

    def result(self, state: Any) -> Any:
        return state.item() if isinstance(state, np.generic) else state


def _copied(state: Any) -> Any:
    """A state that may be changed in place: a list, an array; those kept stay as they are."""
    try:
        return copy.deepcopy(state)
    except Exception:  # what cannot be copied is the function's to leave alone
        return state


def _arguments(function: Callable[..., Any]) -> int | None:
    """How many it takes; None: as many as there are, or nobody knows."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(each.kind is each.VAR_POSITIONAL for each in parameters):
        return None
    return len(parameters)


def _made_loop(fields: int, values: int, spread: bool) -> Any:
    """A compiled loop over rows of so many columns."""
    import numba

    keys = [f"k{n}" for n in range(fields)]
    others = [f"v{n}" for n in range(values)]
    at_keys, at_values = [f"{k}[i]" for k in keys], [f"{v}[i]" for v in others]
    if spread:
        given = ", ".join([*at_keys, *at_values])
    else:
        key = at_keys[0] if fields == 1 else f"({', '.join(at_keys)})"
        value = at_values[0] if values == 1 else f"({''.join(f'{v}, ' for v in at_values)})"
        given = f"{key}, {value}"
    lines = [
        f"def loop(function, state, count, {', '.join([*keys, *others])}):",
        "    for i in range(count):",
        f"        state = function(state, {given})",
        "    return state",
    ]
    space: dict[str, Any] = {}
    exec("\n".join(lines), space)
    return numba.njit(nogil=True)(space["loop"])
