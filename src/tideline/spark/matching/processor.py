"""What `transformWithState` calls, and nothing else: the work is done in state.py.

Spark starts a Python process for each query only to ask which state there is. That process
unpickles a `Processor`, so this module loads neither numba nor pandas: they are loaded by the
first rows, in the workers that go on to use them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from tideline.clock import FOREVER
from tideline.spark.matching.settings import Settings

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql.streaming.stateful_processor import (
        ExpiredTimerInfo,
        StatefulProcessorHandle,
        TimerValues,
    )

    from tideline.spark.matching.state import Matcher

__all__ = ["Processor"]


class Processor(StatefulProcessor):
    """A bucket's rows and timers, handed on with Spark's state."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Name the state."""
        self.handle = handle
        self.heads = handle.getValueState("head", "data binary")
        self.segments = handle.getMapState("segments", "number bigint", "data binary")

    def handleInputRows(  # noqa: N802
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: TimerValues  # noqa: N803
    ) -> Iterator[pd.DataFrame]:  # fmt: skip
        """Run the packets of one bucket."""
        return self.matcher().rows(int(key[0]), rows, watermark_us(timerValues))

    def handleExpiredTimer(  # noqa: N802
        self, key: Any, timerValues: TimerValues, expiredTimerInfo: ExpiredTimerInfo  # noqa: N803
    ) -> Iterator[pd.DataFrame]:  # fmt: skip
        """Clear a bucket in which everything has ended."""
        self.matcher().expired(expiredTimerInfo.getExpiryTimeInMs(), watermark_us(timerValues))
        return iter(())

    def matcher(self) -> Matcher:
        """What does the work on the bucket that Spark is at."""
        from tideline.spark.matching.state import Matcher

        return Matcher(self.settings, self.handle, self.heads, self.segments)


def watermark_us(timer_values: TimerValues) -> int:
    """The time that the whole stream has come to; -FOREVER before anything is known."""
    milliseconds = timer_values.getCurrentWatermarkInMs()
    return milliseconds * 1000 if milliseconds > 0 else -FOREVER
