"""A handle on an index that is being built on what is stored.

The engine builds in the background, beside readers and writers (building.py). What is written
meanwhile goes to the new index at once; it answers lookups when everything is in it. Closing
or a kill in between does no harm: it goes on when the collection is opened again.
"""

from __future__ import annotations

import time
from typing import Any

from tideline.errors import InvalidRequest, Unavailable
from tideline.index.kind import Spec, name_of

__all__ = ["Build"]

_LOOK_S = 0.01
_LONG_S = 1e9


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


class Build:
    """An index that is being built; `Collection.create_index` makes one."""

    def __init__(self, engine: Any, field: str, spec: Spec, *, begin: bool = True) -> None:
        """`begin`: False for an index that is there, or being built."""
        self.field = field
        self.kind = name_of(spec)
        self._engine = engine
        self._share = 0.0
        if begin:
            engine.add_index(field, spec, self._say)

    @property
    def progress(self) -> float:
        """The part that is done, from 0 to 1."""
        return 1.0 if self.done else min(self._share, 0.999)

    @property
    def done(self) -> bool:
        """Whether it is complete: lookups use it."""
        return self.field not in self._engine.building

    def wait(self, timeout_s: float | None = None) -> None:
        """Wait until the index answers; `Unavailable` when it does not after the time."""
        if timeout_s is None:
            self._engine.drain()  # raises what went wrong
        elif not _is_number(timeout_s) or not timeout_s >= 0:
            raise InvalidRequest(
                "timeout_s must be a number that is not negative", timeout_s=timeout_s
            )
        else:
            limit = time.monotonic() + min(timeout_s, _LONG_S)
            while not self.done and (left := limit - time.monotonic()) > 0:
                time.sleep(min(left, _LOOK_S))
        if not self.done:
            raise Unavailable(
                "the index is not ready yet", field=self.field, progress=round(self.progress, 3)
            )

    def _say(self, done: int, total: int) -> None:
        self._share = done / total if total else 1.0

    def __repr__(self) -> str:
        return f"Build(field={self.field!r}, kind={self.kind!r}, progress={self.progress:.0%})"
