"""What `transformWithState` calls, and nothing else: the work is done in kept.py.

Spark starts a Python process for each query only to ask which state there is. That process
unpickles a `Processor`, so this module loads neither numba nor pandas.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.stateful_processor import StatefulProcessor

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle, TimerValues

    from tideline.spark.watching.kept import Kept
    from tideline.spark.watching.packets import Settings

__all__ = ["Processor"]


class Processor(StatefulProcessor):
    """The packets of a part, handed on with Spark's state; `stage` is "filter" or "sort"."""

    def __init__(self, stage: str, settings: Settings) -> None:
        self.stage, self.settings = stage, settings

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Name the state."""
        self.heads = handle.getValueState("head", "data binary")
        self.segments = handle.getMapState("segments", "number bigint", "data binary")

    def handleInputRows(  # noqa: N802
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: TimerValues  # noqa: N803
    ) -> Iterator[pd.DataFrame]:  # fmt: skip
        """Run the packets of one part."""
        return self.kept().rows(int(key[0]), rows)

    def handleInitialState(  # noqa: N802
        self, key: Any, initialState: pd.DataFrame, timerValues: TimerValues  # noqa: N803
    ) -> None:  # fmt: skip
        """Keep the first documents of one part."""
        self.kept().begin(int(key[0]), initialState["data"])

    def kept(self) -> Kept:
        """What does the work on the part that Spark is at."""
        from tideline.spark.watching.kept import Kept

        return Kept(self.stage, self.settings, self.heads, self.segments)
