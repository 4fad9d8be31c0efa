"""A stream window, and a watch of a range of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol, Self, runtime_checkable

from tideline.clock import Seconds
from tideline.model import Appended, Pane, WindowStats

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Panes", "Window"]


@runtime_checkable
class Panes(Protocol):
    """What becomes of rows of a stream window, told at each slide: `Window.watch`."""

    def take(self, limit: int | None = None, *, timeout_s: float = 0) -> list[Pane]:
        """The panes that are there; waits so long for the first."""

    def close(self) -> None:
        """Be told no more. Closing twice is allowed."""

    def __iter__(self) -> Iterator[Pane]: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, kind: Any, value: Any, trace: Any) -> None: ...


@runtime_checkable
class Window(Protocol):
    """A stream window: rows of the last so many seconds, found by key."""

    name: str

    @property
    def key(self) -> tuple[str, ...]:
        """The names of the key's fields."""

    @property
    def values(self) -> dict[str, str]:
        """The names and types of the values."""

    def append(self, rows: Any, *, once: tuple[str, int] | None = None) -> Appended:
        """Store rows: a table or batch of Arrow, columns by name, dicts, or one dict.

        once: a writer and a number that rises; a batch that has landed changes nothing.
        """

    def get(self, key: Any, *, last_s: Seconds | None = None) -> Any:
        """The newest row of a key, or None; with `keep="all"` a list of all of them."""

    def get_many(self, keys: Any, *, last_s: Seconds | None = None) -> pa.Table:
        """The newest row of each key, as a table."""

    def range(
        self, keys: Any = None, *, map: Any = None, initial: Any = None, combine: Any = None,
        last_s: Seconds | None = None, closed: bool = False,
    ) -> Any:  # fmt: skip
        """The rows whose keys begin like this, or lie in [low, high), or what a map makes of them.

        map: "mean(vel)", or several; in the process that has it also a function, with its
        `initial` state and what joins two states (`combine`). last_s: the last sub-windows, not
        all of them. closed: without the one that is open.
        """

    def find(
        self, where: Any = None, *, keys: Any = None, newest: bool = False,
        limit: int | None = None, map: Any = None, initial: Any = None, combine: Any = None,
        last_s: Seconds | None = None, closed: bool = False,
    ) -> Any:  # fmt: skip
        """The rows that meet a condition, as `range` gives them; with a `$near` the nearest first.

        where: a condition about the fields of a row. newest: of each key only its newest row
        counts. limit: how many. The others are those of `range`.
        """

    def moment(
        self, keys: Any = None, *, last_s: Seconds | None = None, closed: bool = False,
        parts: int = 0,
    ) -> tuple[str, list[list[Any]]]:  # fmt: skip
        """A moment to read a range of in parts, and the keys to cut at; 0: as the rows need."""

    def part(
        self, moment: str, keys: Any = None, *, low: Any = None, high: Any = None,
        last_s: Seconds | None = None, closed: bool = False,
    ) -> pa.Table:  # fmt: skip
        """The rows of a moment with keys in [low, high)."""

    def watch(
        self, keys: Any = None, *, map: Any, where: Any = None, newest: bool = False,
        initial: Any = None, combine: Any = None, last_s: Seconds | None = None,
    ) -> Panes:  # fmt: skip
        """What `range` gives, told at each slide; with `where` or `newest` what `find` gives."""

    def stats(self) -> WindowStats:
        """What it holds, and what was done since it was opened."""
