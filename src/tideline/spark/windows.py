"""Stream windows that Spark itself computes: for streams that outgrow one machine.

    panes     what `window.watch` tells of every key: Spark's own `window()` with a watermark
    latest    what `window.get` gives of every key: `transformWithState` over buckets of keys

The same rows give the same panes and rows as a window of the library that is given the same batches
(tests/spark/test_windows.py): a row belongs to its sub-window, one that is late is in the later
panes, one that is older than the window is left out. Time is what the newest row of the batches
before says: a watermark of no delay, unless the frame has one already. For `panes` that is so where
spark.sql.streaming.statefulOperator.allowMultiple is false: else Spark judges late rows by the
watermark of one micro-batch before, and a pane has those of one batch more.

    latest:  rows -> bucket of the key -> a state a bucket, one Arrow stream of its newest rows

A Python call for each key is what costs, so keys share buckets. Spark starts a Python process to
ask which state there is: it unpickles a `_Newest`, so this module loads neither numba nor pandas.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from tideline.clock import Seconds
from tideline.errors import InvalidRequest
from tideline.near import did_you_mean
from tideline.spark.given import check_session, has_watermark
from tideline.spark.mappers import aggregate_of, calls_of, quoted

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle, TimerValues

    from tideline.stream.settings import Settings

__all__ = ["latest", "panes"]

_AT, _BUCKET = "_tideline_at", "_tideline_bucket"
_MOST_BUCKETS = 4096


def panes(
    frame: DataFrame, *, key: str | Sequence[str], map: str | Sequence[str] | Mapping[str, str],
    span_s: Seconds, slide_s: Seconds | None = None, time: str = "at",
    rest: str | Sequence[str] = (),
) -> DataFrame:  # fmt: skip
    """What mappers make of the rows of each key, a row for each slide: `StreamWindow.watch`.

    Columns: `since` and `until` of the pane, the fields of the key, and one for each of `map`, all
    mappers of windows, as text, several as a list, or by name. `rest` are the other fields of a
    window's key: `top` tells them, as [{"key": {...}, "value": ...}, ...]. A key with no rows in a
    pane has none. Rows without a key, a time or a value, or with one that is not finite, are left
    out. Of a stream a pane is told when the watermark has passed it, in output mode append: with
    none of its own the frame gets one without delay. With keep="all" a window of the library
    tells the same; sums of floats are added as Spark adds them.

    >>> speeds = panes(reports, key=("x", "d", "s"), map={"speed": "mean(vel)", "cars": "count()"},
    ...                span_s=300, slide_s=60)                            # doctest: +SKIP
    >>> speeds.writeStream.format("console").start()                      # doctest: +SKIP
    """
    from pyspark.sql import functions as F

    calls = calls_of(map, frame)
    fields = [call.field for call in calls.values() if call.field]
    settings = _settings(frame, key, fields, span_s, slide_s, time)
    others = _settings(frame, rest, [], span_s, slide_s, time).key if rest else ()
    if twice := sorted(set(settings.key) & set(others)):
        raise InvalidRequest("rest are the fields of the key that key does not name", rest=twice)
    rows = _watermarked(frame.dropna(subset=[*settings.key, *others, time, *fields]), time)
    for field in fields:
        if frame.schema[field].dataType.typeName() in ("float", "double"):
            rows = rows.where(F.abs(quoted(field)) != float("inf"))
    length, step = (f"{us} microseconds" for us in (settings.span_us, settings.slide_us))
    whole = [*settings.key, *others]
    grouped = rows.groupBy(F.window(time, length, step), *(F.col(quoted(n)) for n in settings.key))
    made = grouped.agg(
        *(aggregate_of(call, frame, whole).alias(name) for name, call in calls.items())
    )
    return made.select(
        F.col("window.start").alias("since"), F.col("window.end").alias("until"),
        *(F.col(quoted(name)) for name in (*settings.key, *calls)),
    )  # fmt: skip


def latest(
    frame: DataFrame, *, key: str | Sequence[str], span_s: Seconds, slide_s: Seconds | None = None,
    time: str = "at", buckets: int = 16,
) -> DataFrame:  # fmt: skip
    """The newest row of each key, told whenever it changes: `StreamWindow.get`, of a stream.

    Columns: those of the frame, and `until`, when the row leaves the window unless a newer one
    takes its place. A row takes the place of one of the same sub-window or an earlier; rows of one
    micro-batch count by their time, those of one time by their other columns. A row that is older
    than the window is left out, and so is one without a key or a time. Output mode append; the
    state is forgotten with the window. `buckets` is into how many states keys are spread: it stays
    what it was as long as the checkpoint is used.

    >>> cars = latest(reports, key="vid", span_s=300, slide_s=60)         # doctest: +SKIP
    >>> cars.writeStream.format("console").start()                        # doctest: +SKIP
    """
    from pyspark.sql import functions as F
    from pyspark.sql.pandas.types import to_arrow_schema

    settings = _settings(frame, key, [], span_s, slide_s, time)
    if not frame.isStreaming:
        raise InvalidRequest("latest is for streams: of a table, take max_by or row_number")
    if isinstance(buckets, bool) or not isinstance(buckets, int):
        raise InvalidRequest("buckets must be a whole number", buckets=buckets)
    if not 1 <= buckets <= _MOST_BUCKETS:
        raise InvalidRequest(f"buckets must be 1 to {_MOST_BUCKETS}", buckets=buckets)
    check_session(frame, "the newest rows of a stream")
    others = [name for name in frame.columns if name != time]
    rows = _watermarked(frame.dropna(subset=[*settings.key, time]), time).select(
        F.pmod(F.hash(*(F.col(quoted(name)) for name in settings.key)), F.lit(buckets)).alias(
            _BUCKET
        ),
        F.unix_micros(time).alias(_AT),  # a number: Spark drops no row for its watermark
        *(F.col(quoted(name)) for name in others),
    )
    given = rows.drop(_BUCKET).schema
    processor = _Newest(
        list(settings.key), others, to_arrow_schema(given, timezone="UTC"), settings.slide_us,
        settings.panes,
    )  # fmt: skip
    found = rows.groupBy(_BUCKET).transformWithStateInPandas(
        processor, given, "Append", "EventTime"
    )
    slide = F.lit(settings.slide_us)
    until = F.col(_AT) - F.pmod(F.col(_AT), slide) + F.lit(settings.panes) * slide
    return found.select(
        *(F.timestamp_micros(_AT).alias(time) if n == time else F.col(quoted(n))
          for n in frame.columns),
        F.timestamp_micros(until).alias("until"),
    )  # fmt: skip


class _Newest(StatefulProcessor):
    """The newest rows of a bucket of keys."""

    def __init__(
        self, key: list[str], others: list[str], schema: Any, slide_us: int, count: int
    ) -> None:
        self.key, self.others, self.schema = key, others, schema
        self.slide_us, self.count = slide_us, count

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Name the state."""
        self.handle = handle
        self.rows = handle.getValueState("rows", "data binary")

    def handleInputRows(  # noqa: N802
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: TimerValues  # noqa: N803
    ) -> Iterator[pd.DataFrame]:  # fmt: skip
        """Keep the newest row of each key, and tell those that are new."""
        import pandas as pd

        names = self.schema.names
        # By place: Spark makes tuples of rows, and those rename what is no name in Python.
        parts = [part.iloc[:, -len(names) :].set_axis(names, axis=1) for part in rows]
        came = pd.concat(parts, ignore_index=True)
        came = came.sort_values([_AT, *sorted(self.others)], kind="stable")
        both = pd.concat([self._kept(), came], ignore_index=True)
        is_new = [False] * (len(both) - len(came)) + [True] * len(came)
        pane = both[_AT] // self.slide_us
        both = both.assign(_new=is_new, _pane=pane)[pane >= self._first(timerValues)]
        both = both.sort_values("_pane", kind="stable").drop_duplicates(self.key, keep="last")
        self._keep(both)
        yield both[both["_new"]][names]

    def handleExpiredTimer(  # noqa: N802
        self, key: Any, timerValues: TimerValues, expiredTimerInfo: Any  # noqa: N803
    ) -> Iterator[pd.DataFrame]:  # fmt: skip
        """Clear a bucket in which everything has left the window."""
        kept = self._kept()
        if not len(kept) or kept[_AT].max() // self.slide_us < self._first(timerValues):
            self.rows.clear()
        return iter(())

    def _first(self, timer_values: TimerValues) -> int:
        """The first sub-window that is in the window."""
        newest_us = max(timer_values.getCurrentWatermarkInMs(), 0) * 1000
        return newest_us // self.slide_us - self.count + 1 if newest_us else -(1 << 62)

    def _kept(self) -> pd.DataFrame:
        import pyarrow as pa

        state = self.rows.get()
        if state is None:
            return self.schema.empty_table().to_pandas()
        with pa.ipc.open_stream(bytes(state[0])) as stream:
            return stream.read_all().to_pandas()

    def _keep(self, rows: pd.DataFrame) -> None:
        import pyarrow as pa

        if not len(rows):
            return
        table = pa.Table.from_pandas(rows[self.schema.names], self.schema, preserve_index=False)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self.schema) as stream:
            stream.write_table(table)
        self.rows.update((sink.getvalue().to_pybytes(),))
        last = int(rows[_AT].max()) // self.slide_us
        self.handle.registerTimer((last + self.count) * self.slide_us // 1000)


def _settings(
    frame: DataFrame, key: Any, fields: Sequence[str], span_s: Any, slide_s: Any, time: str
) -> Settings:
    """Everything checked, as a window of the library checks it."""
    from pyspark.sql import types as T

    from tideline.stream.settings import given

    found = given("panes", [], {
        "span_s": span_s, "slide_s": slide_s, "key": key, "time": time,
        "values": dict.fromkeys(fields, "float64"),
    })  # fmt: skip
    if time == "clock":
        raise InvalidRequest("time must be the column that says when a row happened", time=time)
    if found.slide_us % 1000:
        raise InvalidRequest("Spark's watermark has milliseconds: slide_s is no whole number of "
                             "these", slide_s=found.slide_us / 1e6)  # fmt: skip
    for name in (*found.key, time):
        if name not in frame.columns:
            raise InvalidRequest(
                f"the frame has no such column{did_you_mean(name, frame.columns)}", column=name,
                columns=frame.columns,
            )  # fmt: skip
    kind = frame.schema[time].dataType
    if not isinstance(kind, T.TimestampType):
        raise InvalidRequest(f"the column {time} must hold timestamps", type=kind.simpleString())
    return found


def _watermarked(frame: DataFrame, time: str) -> DataFrame:
    """The frame with a watermark, when it is a stream that has none."""
    if not frame.isStreaming or has_watermark(frame):
        return frame
    return frame.withWatermark(time, "0 seconds")
