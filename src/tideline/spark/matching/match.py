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

import importlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tideline.errors import InvalidRequest, Unavailable
from tideline.space import CELLS, Space
from tideline.spark.matching.settings import Settings, levels_of, may_be_wide, settings_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

__all__ = ["check_session", "match"]

_PUBLISH, _SUBSCRIBE, _CANCEL = 1, 2, 3
_TEXTS = frozenset(["id", "place", "user", "body", "where", "op"])
_NUMBERS = frozenset(["lon", "lat", "radius_m"])
_TIMES = frozenset(["at", "since", "until"])
_NUMERIC = frozenset(
    ["byte", "short", "integer", "int", "long", "bigint", "float", "double", "tinyint", "smallint"]
)
_EVENTS = ("id", "place", "lon", "lat", "radius_m", "at", "until", "body")
_SUBSCRIPTIONS = (
    "op", "id", "place", "lon", "lat", "radius_m", "user", "at", "since", "until", "where",
    "unseen",
)  # fmt: skip
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_PROVIDER = "spark.sql.streaming.stateStore.providerClass"


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
    frames = _frames(subscriptions, events)
    known = [_checked(frame, *asked) for frame, asked in zip(frames, _ASKED, strict=True)]
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


_ASKED = (
    ("subscriptions", _SUBSCRIPTIONS, ("id", "user", "at")),
    ("events", _EVENTS, ("id", "at")),
)
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
    from pyspark.sql import types as T

    types: dict[str, Any] = dict.fromkeys(_TEXTS, T.StringType())
    types |= dict.fromkeys(_NUMBERS, T.DoubleType())
    types |= dict.fromkeys(_TIMES, T.TimestampType())
    types["unseen"] = T.BooleanType()

    def columns(frame: DataFrame, names: list[str]) -> list[Column]:
        return [frame[name].cast(types[name]).alias(name) for name in names if name != "op"]

    kind = F.lit(_SUBSCRIBE).cast("byte")
    if "op" in known[0]:
        op = subscriptions["op"]
        kind = F.when(op == "subscribe", F.lit(_SUBSCRIBE)).when(op == "cancel", F.lit(_CANCEL))
        kind = kind.cast("byte")
    asked = [kind.alias("kind"), *columns(subscriptions, known[0])]
    if unseen:
        asked.append(F.lit(True).alias("unseen"))
    told = [F.lit(_PUBLISH).cast("byte").alias("kind"), *columns(events, known[1])]
    if "body" not in known[1]:
        told.append(F.lit("null").alias("body"))
    return subscriptions.select(*asked), events.select(*told)


def _frames(subscriptions: Any, events: Any) -> tuple[Any, Any]:
    """Both are DataFrames of one kind, or the call is wrong."""
    for name, frame in (("subscriptions", subscriptions), ("events", events)):
        if not (hasattr(frame, "isStreaming") and hasattr(frame, "mapInArrow")):
            kind = type(frame).__name__
            raise InvalidRequest(f"{name} must be a Spark DataFrame", type=kind)
    if subscriptions.isStreaming != events.isStreaming:
        still = "events" if subscriptions.isStreaming else "subscriptions"
        raise InvalidRequest(
            "subscriptions and events must both be streams or both be batches: "
            f"read {still} as a stream (spark.readStream) too"
        )
    return subscriptions, events


def _checked(frame: Any, side: str, allowed: tuple[str, ...], needed: tuple[str, ...]) -> list[str]:
    """The columns of a frame that matching uses; their types are right."""
    fields = {field.name: field.dataType for field in frame.schema.fields}
    for name in needed:
        if name not in fields:
            raise InvalidRequest(
                f"{side} need the column {name}", columns=", ".join(fields) or "none"
            )
    used = [name for name in allowed if name in fields]
    for name in used:
        given = fields[name].typeName()
        if name in _TEXTS:
            right, wanted = given in ("string", "char", "varchar", "void"), "text"
        elif name in _NUMBERS:
            right = given in _NUMERIC or given in ("decimal", "void")
            wanted = "numbers"
        elif name in _TIMES:
            right, wanted = given in ("timestamp", "void"), "timestamps"
        else:
            right, wanted = given in ("boolean", "void"), "booleans"
        if not right:
            hint = ""
            if name in ("body", "where") and given in ("struct", "map", "array", "variant"):
                hint = ": to_json makes text of it"
            elif name in _TIMES and given in ("timestamp_ntz", "date", "string"):
                hint = ": cast it to timestamp"
            raise InvalidRequest(
                f"the column {name} of {side} must hold {wanted}{hint}", type=given
            )
    return used


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


# ---- what a stream needs -------------------------------------------------------------------------


def check_session(frame: DataFrame, doing: str) -> None:
    """State of this kind is kept by Spark's RocksDB store and no other."""
    provider = frame.sparkSession.conf.get(_PROVIDER)
    if provider != _ROCKSDB:
        raise Unavailable(
            f"{doing} needs Spark's RocksDB state store: take tideline.spark.session(), "
            f"or set {_PROVIDER} before the query starts", wanted=_ROCKSDB, provider=provider,
        )  # fmt: skip
    try:
        importlib.import_module("google.protobuf.descriptor")
    except ImportError:
        raise Unavailable("Spark's state needs protobuf: pip install 'tideline[spark]'") from None


def has_watermark(frame: Any) -> bool:
    """Whether a stream has a watermark already; Spark refuses a second one after it."""
    java = getattr(frame, "_jdf", None)
    return java is not None and "EventTimeWatermark" in java.queryExecution().analyzed().toString()
