"""`match`: subscriptions and events as DataFrames in, answers out.

    subscriptions - pack -.
                           >- union - watermark - shuffle by bucket - run - answers
    events -------- pack -'           (stream)                        state.py (stream)
                    pack.py                                           whole.py (batch)

Each side is packed by itself, with its own columns only: a column costs as much to hand over
to Python when it is empty.

Everything that can be wrong with the call is found here, before Spark runs anything.
Importing this needs no pyspark; calling `match` does, with the DataFrames it is given.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tideline.errors import InvalidRequest
from tideline.space import CELLS, Space
from tideline.spark.given import (
    cast_columns,
    check_session,
    given_frames,
    has_watermark,
    used_columns,
)
from tideline.spark.matching.settings import Settings, levels_of, may_be_wide, settings_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

__all__ = ["match"]

_PUBLISH, _SUBSCRIBE, _CANCEL = 1, 2, 3
_PLACE = {"id": "text", "place": "text", "lon": "numbers", "lat": "numbers", "radius_m": "numbers"}
_EVENTS = {**_PLACE, "at": "timestamps", "until": "timestamps", "body": "text"}
_SUBSCRIPTIONS = {
    "op": "text", **_PLACE, "user": "text", "at": "timestamps", "since": "timestamps",
    "until": "timestamps", "where": "text", "unseen": "booleans",
}  # fmt: skip


def match(
    subscriptions: DataFrame, events: DataFrame, *, space: Space, unseen: bool | None = None,
    buckets: int = 16, levels: int | None = None, rejected: str = "fail", memory_mb: int = 512,
) -> DataFrame:  # fmt: skip
    """The answers of a channel to which both frames were applied in order of time.

    The columns are those of `Channel.apply` (docs/guide/batches.md), without `op`: events have
    `id`, `at`, `until`, `body` and a place (`place`, or `lon`, `lat` and maybe `radius_m`);
    subscriptions have `id`, `user`, `at`, `since`, `until`, `where`, `unseen` and a place, and
    may have `op`, "subscribe" or "cancel". Others are ignored. `unseen=True` says it for all
    subscriptions. Two streams give a stream, in append mode; two batches give a batch.

    Answers have `subscription`, `event`, `user`, `kind` ("past" or "live") and `at`, the time
    of the row that caused the answer. Of a bad row, `rejected="fail"` makes an error, "keep" an
    answer of the kind "rejected" with a sixth column `reason`, and "drop" nothing.

    `buckets` and `levels` say how the work is divided, `memory_mb` what each Python worker may
    use before it goes to disk: docs/guide/spark-matching.md.

    >>> answers = match(subscriptions, events, space=Flat())          # doctest: +SKIP
    >>> answers.writeStream.format("kafka").start()                   # doctest: +SKIP
    """
    _check_frames(subscriptions, events)
    known = [
        used_columns(subscriptions, "subscriptions", _SUBSCRIPTIONS, ("id", "user", "at")),
        used_columns(events, "events", _EVENTS, ("id", "at")),
    ]
    if unseen is not None and not isinstance(unseen, bool):
        raise InvalidRequest("unseen must be True, False or None", unseen=unseen)
    if unseen is not None and "unseen" in known[0]:
        raise InvalidRequest("give unseen or the column unseen, not both", unseen=unseen)
    settings = settings_of(
        space, buckets=buckets, levels=levels, wide=False, unseen=bool(unseen) or
        "unseen" in known[0], rejected=rejected, memory_mb=memory_mb,
    )  # fmt: skip
    for side, columns in zip(("subscriptions", "events"), known, strict=True):
        _check_place(space, side, columns)
    return plan(subscriptions, events, settings, known, unseen, levels_of(space, levels))


def plan(
    subscriptions: DataFrame, events: DataFrame, settings: Settings,
    known: list[list[str]], unseen: bool | None, levels: int,
) -> DataFrame:  # fmt: skip
    """The query itself."""
    from dataclasses import replace

    from pyspark.sql import functions as F

    settings = replace(settings, wide=may_be_wide(settings.space, known[1], levels))
    streaming = subscriptions.isStreaming
    asked, told = _sides(subscriptions, events, known, unseen)
    packets = asked.mapInArrow(_packer(settings), _PACKETS).union(
        told.mapInArrow(_packer(settings), _PACKETS)
    )
    if streaming:
        check_session(packets, "matching streams")
        if not (has_watermark(subscriptions) or has_watermark(events)):
            # No row is dropped for being late: this only tells every bucket how far time has got.
            packets = packets.withWatermark("at", "0 seconds")
    packets = packets.select("bucket", "deltas", "data")
    ran = _run_stream(packets, settings) if streaming else _run_whole(packets, settings)
    columns: list[Column | str] = ["subscription", "event", "user", "kind"]
    columns.append(F.timestamp_micros("at").alias("at"))
    if settings.rejected == "keep":
        columns.append("reason")
    return ran.select(*columns)


_PACKETS = "bucket int, deltas boolean, data binary, at timestamp"
_ANSWERS = "subscription string, event string, user string, kind string, at bigint, reason string"


def _run_stream(packets: DataFrame, settings: Settings) -> DataFrame:
    from tideline.spark.matching.processor import Processor

    grouped = packets.groupBy("bucket")
    return grouped.transformWithStateInPandas(Processor(settings), _ANSWERS, "Append", "EventTime")


def _run_whole(packets: DataFrame, settings: Settings) -> DataFrame:
    from tideline.spark.matching.whole import run_batches

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return run_batches(batches, settings)

    parts = len(settings.labels) + 1
    return packets.repartition(parts, "bucket").mapInArrow(run, _ANSWERS)


def _packer(settings: Settings) -> Any:
    def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from tideline.spark.matching.pack import pack_batches

        return pack_batches(batches, settings)

    return pack


# ---- columns -----------------------------------------------------------------------------------


def _sides(
    subscriptions: DataFrame, events: DataFrame, known: list[list[str]], unseen: bool | None
) -> tuple[DataFrame, DataFrame]:
    """Both frames with the columns and types that `pack` reads."""
    from pyspark.sql import functions as F

    asked_of = cast_columns(subscriptions, _SUBSCRIPTIONS, known[0])
    asked_of.pop("op", None)
    told_of = cast_columns(events, _EVENTS, known[1])
    kind = F.lit(_SUBSCRIBE).cast("byte")
    if "op" in known[0]:
        op = subscriptions["op"]
        kind = F.when(op == "subscribe", F.lit(_SUBSCRIBE)).when(op == "cancel", F.lit(_CANCEL))
        kind = kind.cast("byte")
    asked = [kind.alias("kind"), *asked_of.values()]
    if unseen:
        asked.append(F.lit(True).alias("unseen"))
    told = [F.lit(_PUBLISH).cast("byte").alias("kind"), *told_of.values()]
    if "body" not in known[1]:
        told.append(F.lit("null").alias("body"))
    return subscriptions.select(*asked), events.select(*told)


def _check_frames(subscriptions: Any, events: Any) -> None:
    """Both are DataFrames of one kind, or the call is wrong."""
    given_frames(subscriptions=subscriptions, events=events)
    if subscriptions.isStreaming != events.isStreaming:
        still = "events" if subscriptions.isStreaming else "subscriptions"
        raise InvalidRequest(
            "subscriptions and events must both be streams or both be batches: "
            f"read {still} as a stream (spark.readStream) too"
        )


def _check_place(space: Space, side: str, columns: list[str]) -> None:
    """Whether a place can be told from these columns at all."""
    point = "lon" in columns and "lat" in columns
    if space.mode != CELLS:
        if "place" not in columns:
            raise InvalidRequest(f"{side} need the column place", columns=", ".join(columns))
        return
    if "place" not in columns and not point:
        raise InvalidRequest(
            f"{side} need the column place, or lon and lat", columns=", ".join(columns)
        )
