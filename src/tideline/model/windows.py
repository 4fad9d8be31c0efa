"""What stream windows give, and what `Database.check` does."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa


__all__ = ["Appended", "Pane", "Report", "WindowStats"]


@dataclass(frozen=True)
class Appended:
    """What `StreamWindow.append` returns."""

    stored: int
    """How many rows are in the window now."""
    late: int
    """How many came after their sub-window had gone; they are counted, not stored."""
    rejected: pa.Table
    """row, reason: those that are not as declared, or too far ahead of the clock."""
    repeated: bool = False
    """Whether this was a writer's batch that had landed before: nothing was done."""


@dataclass(frozen=True)
class Pane:
    """What a range became over [since, until), told when the window slid."""

    since: datetime
    until: datetime
    value: Any
    missed: int = 0
    """How many panes were left out before this one: whoever watches was too slow."""


@dataclass(frozen=True)
class WindowStats:
    """What a stream window holds and has done since it was opened."""

    rows: int
    """Rows that are stored; of `keep="last"`, keys that came again count until they are sealed."""
    sub_windows: int
    """Sub-windows with rows in them."""
    components: int
    bytes_memory: int
    bytes_disk: int
    bytes_log: int
    appended: int
    late: int
    """Rows that came too late, ever."""
    dropped: int
    """Sub-windows that were let go of, whole."""
    watches: int
    until: datetime | None
    """When the open sub-window ends; None before the first row."""


@dataclass(frozen=True)
class Report:
    """What `Database.check` verified."""

    channels: int
    components: int
    bytes_checked: int
    collections: int = 0
    windows: int = 0
