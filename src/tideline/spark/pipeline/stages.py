"""The stages that Spark runs: from a row of the source to an operation, or to a reason why not.

    parse -> clean -> place -> key -> condition -> operation

Every row of the source gives exactly one row, so nothing has to be counted: what is read is
what arrives. A row that cannot be used carries `_problem`, its stage and the reason, and becomes a
dead letter; a row that does not meet the condition carries `_met` false.

    _problem     "clean: speed must be at most 200, not 900"; null for a good row
    _text        a bad row as it came
    _met         whether the condition holds
    _expired     whether it has ended already
    _high, _low  the hashed key to deduplicate by, _time its time; of a bad row a key of its own
    _area        where the archive puts it
    op, id, place, lon, ...    the columns of `Channel.apply`

JVM expressions only, but for the part of a condition that Spark cannot say exactly
(`where/column.py`). Expressions of the user that fail for a row give null, not an error.
"""

from __future__ import annotations

import functools
import math
import operator
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tideline.channel.ahead import Ahead
from tideline.errors import InvalidRequest
from tideline.space import Space
from tideline.space.place import CELLS, KEY_LIMIT_BYTES, TOPICS
from tideline.spark.pipeline import parse
from tideline.spark.pipeline.check import (
    BINARY,
    check_columns,
    condition_of,
    deduplicated_by,
)  # fmt: skip
from tideline.spark.pipeline.clean import cleaned
from tideline.spark.pipeline.config import Config, Problems, did_you_mean
from tideline.spark.pipeline.keys import OWN, is_own
from tideline.spark.pipeline.reasons import PROBLEM, Reasons
from tideline.spark.pipeline.source import Opened
from tideline.spark.place import cell_name, inside, path_name
from tideline.where.schema import quoted

__all__ = ["Stages", "deduplicated"]


class Stages:
    """The stages of one config, for one space. `stages(frame)` may be called many times."""

    def __init__(
        self, config: Config, space: Space, source: Opened, max_ahead_s: float = math.inf
    ) -> None:
        names, fields = source.frame.columns, source.fields
        self.config = config
        self.space = space
        self._ahead = Ahead.of(max_ahead_s, 0)
        self._why_far = "" if self._ahead is None else self._ahead.reason
        self._fields = list(config.schema) if fields is None else fields
        self._tried = False  # whether Spark has looked at every expression once
        problems = Problems(config.file, config.lines)
        for column in names:
            if is_own(column):
                message = (
                    f"the source has a column {column!r}: {OWN} begins the pipeline's own names"
                )
                problems.add(("source",), message)
        problems.check()
        if config.parsed_as == "columns":
            for column in config.schema:
                if column not in names:
                    near = did_you_mean(column, names)
                    problems.add(("schema", column), f"the source has no column {column!r}{near}")
            problems.check()
            check_columns(config, names, problems)
        elif config.parse.column not in names:
            near = did_you_mean(config.parse.column, names)
            path = ("parse", "column")
            problems.add(path, f"the source has no column {config.parse.column!r}{near}")
        problems.check()

    def __call__(self, frame: DataFrame) -> DataFrame:
        """A frame of the source's rows as a frame of operations."""
        self._reasons = Reasons(self.config, looking=not self._tried)
        frame, original = self._original(frame)
        source = frame.columns
        frame, problem = parse.parse(self.config, frame, self._fields)
        self._record = [name for name in frame.columns if name not in source]
        self._reasons.found("parse", problem)
        if self.config.parsed_as in BINARY:
            problems = Problems(self.config.file, self.config.lines)
            check_columns(self.config, frame.columns, problems)
            problems.check()
        frame = self._clean(self._reasons.kept(frame))
        columns = {**self._key(frame), "_met": self._met(frame)}
        if self.config.store.collection is None:
            columns |= {
                **self._place(frame), **self._operation(frame), **self._area(frame),
            }  # fmt: skip
        else:
            columns |= self._document(frame)
        self._check_texts(columns)
        far = self._far(columns)
        self._reasons.found("store", F.when(far & columns["_met"], F.lit(self._why_far)))
        frame = self._reasons.kept(frame)
        bad = F.col(PROBLEM).isNotNull()
        text = F.when(bad, F.make_valid_utf8(original))
        until = columns.get("until", F.lit(None).cast("timestamp"))
        columns["_expired"] = F.coalesce(until <= F.current_timestamp(), F.lit(False))
        if "_time" in columns:
            # What is no duplicate of anything, whatever its key is, has a key and a time of its
            # own: a dead letter is not dropped, and moves no watermark.
            own, apart = F.uuid(), bad | far
            for name in ("_high", "_low"):
                key = F.xxhash64(F.lit(name), own)
                columns[name] = F.when(apart, key).otherwise(columns[name])
            columns["_time"] = F.when(~apart, columns["_time"])
        made = frame.select(
            F.col(PROBLEM).alias("_problem"), text.alias("_text"),
            *(column.alias(name) for name, column in columns.items()),
        )  # fmt: skip
        self._tried = True
        return made

    # ---- clean -------------------------------------------------------------------------------

    def _clean(self, frame: DataFrame) -> DataFrame:
        for name, clean in self.config.clean.items():
            made, problem = cleaned(frame, name, clean, self._reasons)
            self._reasons.found("clean", problem)
            frame = self._reasons.kept(frame, {name: made})  # both from the column as it was
            if clean.from_ and clean.from_ != name:
                frame = frame.drop(clean.from_)  # takes names as they are
        for n, rule in enumerate(self.config.rules):
            with self._reasons.at("rule", n, "sql"):
                held = self._reasons.attempt(rule.sql)
                self._reasons.look(frame, held)
                kind = frame.select(held.alias("v")).schema["v"].dataType.simpleString()
                if kind not in ("boolean", "void"):
                    raise InvalidRequest(f"a rule is true or false, and this is {kind}")
                broken = ~F.coalesce(held, F.lit(False))
                reason = rule.reason or f"the rule is broken: {rule.sql}"
            self._reasons.found("clean", F.when(broken, F.lit(reason)))
        return frame

    # ---- place ---------------------------------------------------------------------------------

    def _place(self, frame: DataFrame) -> dict[str, Column]:
        place = self.config.place
        if place.column is not None:
            text = F.col(quoted(place.column)).cast("string")
            self._reasons.needed("place", text, f"{place.column} is missing", always=False)
            size = F.octet_length(text)
            long = f"{place.column} must be 1 to {KEY_LIMIT_BYTES} bytes long"
            self._reasons.found("place", F.when((size < 1) | (size > KEY_LIMIT_BYTES), F.lit(long)))
            return {"place": text}
        assert place.point is not None
        numbers = []
        for n, name in enumerate(place.point):
            number = self._reasons.number(frame, name, ("place", "point", n), "place")
            self._reasons.needed("place", number, f"{name} is missing", always=False)
            numbers.append(number)
        lon, lat = numbers
        outside = F.concat(
            F.lit("the point "), lon.cast("string"), F.lit(", "), lat.cast("string"),
            F.lit(f" lies outside the bounds {self._bounds()}"),
        )  # fmt: skip
        if place.radius_m is None:  # a circle may have its center outside
            out = ~inside(self.space, lon, lat)
            self._reasons.found("place", F.when(self._reasons.unless_cancel(out), outside))
        if place.store_as == "cell":
            return {"place": cell_name(self.space, lon, lat, place.level)}
        columns = {"lon": lon, "lat": lat}
        if isinstance(place.radius_m, str):
            path = ("place", "radius_m")
            columns["radius_m"] = self._reasons.number(frame, place.radius_m, path, "place")
            plain = columns["radius_m"].isNull() & ~inside(self.space, lon, lat)
            self._reasons.found("place", F.when(self._reasons.unless_cancel(plain), outside))
        elif place.radius_m is not None:
            columns["radius_m"] = F.lit(float(place.radius_m))
        return columns

    def _area(self, frame: DataFrame) -> dict[str, Column]:
        """What the archive files a row under."""
        archive, place = self.config.archive, self.config.place
        if archive is None or archive.level == 0:
            return {}
        level = archive.level
        if place.point is not None:
            lon, lat = (F.col(quoted(name)).try_cast("double") for name in place.point)
            with self._reasons.at("archive", "level"):
                return {"_area": path_name(self.space, lon, lat, level)}
        assert place.column is not None
        text = F.col(quoted(place.column)).cast("string")
        if self.space.mode in (CELLS, TOPICS):
            sign = "/" if self.space.mode == TOPICS else "."
            return {"_area": F.substring_index(text, sign, level)}
        return {"_area": F.substring(text, 1, level)}

    def _bounds(self) -> str:
        return ", ".join(f"{side:g}" for side in self.space.spec()["bounds"])

    # ---- key -----------------------------------------------------------------------------------

    def _key(self, frame: DataFrame) -> dict[str, Column]:
        wanted = self.config.deduplicate
        if wanted is None:
            return {}
        columns = [F.col(quoted(name)) for name in deduplicated_by(self.config)]
        for name in wanted.by:
            column = F.col(quoted(name))
            self._reasons.needed("deduplicate", column, f"{name} is missing, a part of the key")
        time_column = wanted.time or self.config.operation.at
        time = self._reasons.time(frame, time_column, ("deduplicate", "time"), "deduplicate")
        self._reasons.needed("deduplicate", time, f"{time_column} is missing")
        # Two hashes with other beginnings: 128 bits in all.
        return {
            "_high": F.xxhash64(F.lit(1), *columns),
            "_low": F.xxhash64(F.lit(2), *columns),
            "_time": time,
        }

    # ---- operation ---------------------------------------------------------------------------

    def _operation(self, frame: DataFrame) -> dict[str, Column]:
        operation = self.config.operation
        found: dict[str, Column] = {}
        for name, source in (("op", operation.op_column), ("id", operation.id),
                             ("user", operation.user), ("where", operation.where)):  # fmt: skip
            if source is not None:
                found[name] = F.col(quoted(source)).cast("string")
        if operation.op_column is not None:
            self._reasons.needed("operation", found["op"], f"{operation.op_column} is missing")
        else:
            found["op"] = F.lit(operation.op)
        at = self._reasons.time(frame, operation.at, ("operation", "at"), "operation")
        self._reasons.needed("operation", at, f"{operation.at} is missing")
        found["at"] = at
        for name, column, seconds in (
            ("since", operation.since, operation.since_s),
            ("until", operation.until, operation.ttl_s),
        ):
            if column is not None:
                found[name] = self._reasons.time(frame, column, ("operation", name), "operation")
            elif seconds is not None:
                path = ("operation", "since_s" if name == "since" else "ttl_s")
                amount = (
                    self._reasons.seconds(frame, seconds, path, "operation")
                    if isinstance(seconds, str) else F.lit(float(seconds))
                )  # fmt: skip
                micros = F.unix_micros(at) + F.rint(amount * 1e6).try_cast("bigint")
                found[name] = F.timestamp_micros(micros)
        if operation.op_column is not None:
            found["body"] = F.when(found["op"] == "publish", self._body(frame))
        elif operation.op == "publish":
            found["body"] = self._body(frame)
        if isinstance(operation.unseen, str):
            path = ("operation", "unseen")
            found["unseen"] = self._reasons.flag(frame, operation.unseen, path, "operation")
        elif operation.unseen:
            found["unseen"] = F.lit(True)
        return found

    def _document(self, frame: DataFrame) -> dict[str, Column]:
        """A document, and what is done with it."""
        store, op = self.config.store, self.config.op_column
        assert store.key_ is not None
        self._reasons.needed("operation", F.col(quoted(store.key_)), f"{store.key_} is missing")
        if store.version is not None:
            version = F.col(quoted(store.version))
            self._reasons.needed("operation", version, f"{store.version} is missing")
        found = {"document": self._body(frame)}
        if op is not None:
            found["op"] = F.col(quoted(op)).cast("string")
            self._reasons.needed("operation", found["op"], f"{op} is missing")
        return found

    def _body(self, frame: DataFrame) -> Column:
        operation = self.config.operation
        if operation.body_json is not None:
            return F.col(quoted(operation.body_json)).cast("string")
        if isinstance(operation.body, list):
            also = (self.config.store.key_, self.config.store.version)
            names = [*(n for n in also if n and n not in operation.body), *operation.body]
        else:
            own = {*self.config.schema, *self.config.clean}  # not Kafka's offset and the like
            every = self.config.parsed_as == "columns"
            if self.config.parsed_as in BINARY:
                own |= set(self._record)
            names = [n for n in frame.columns if n in own or (every and not is_own(n))]
            op, version = self.config.op_column, self.config.store.version
            if self.config.store.collection is not None:  # op is said beside the document
                names = [n for n in names if n != op]
                names += [version] if version is not None and version not in names else []
        with self._reasons.at("operation", "body"):
            body = F.to_json(F.struct(*(F.col(quoted(name)) for name in names)))
            self._reasons.look(frame, body)
        return body

    def _check_texts(self, columns: dict[str, Column]) -> None:
        """Parsers make valid text; columns of a source need not be."""
        if self.config.parsed_as != "columns":
            return
        texts = ["id", "place", "user", "where"]
        texts += ["body"] if self.config.operation.body_json else []
        for name in texts:
            if name in columns:
                wrong = F.when(~F.is_valid_utf8(columns[name]), F.lit(f"{name} is not UTF-8"))
                self._reasons.found("operation", wrong)

    # ---- which rows are wanted ---------------------------------------------------------------

    def _met(self, frame: DataFrame) -> Column:
        """Whether the condition holds."""
        from tideline.where.column import _holds, split, top_fields

        condition = condition_of(self.config)
        # After a delete Debezium sends a message without a value: there is nothing to do.
        told = F.col(parse.ORIGINAL).isNotNull() if self.config.parse.envelope else F.lit(True)
        if condition is None:
            return told
        with self._reasons.at("condition", "where"):
            parts = split(condition, frame.schema)
        met = told if parts.pushed is None else told & parts.pushed
        if parts.checked:
            wanted = top_fields(parts.checked.tree)
            columns = [F.col(quoted(name)) for name in frame.columns if name in wanted]
            holds: Any = F.arrow_udf(_holds(parts.checked), "boolean")  # type: ignore[attr-defined]
            met = met & holds(F.struct(*columns))
        return F.coalesce(met, F.lit(False))

    def _far(self, columns: dict[str, Column]) -> Column:
        """Whether a row is too far ahead of the clock: the store would not take it.

        The clock is that of the batch, which Spark keeps: a batch that is run again has the same.
        """
        if self._ahead is None:
            return F.lit(False)
        latest = F.unix_micros(F.current_timestamp()) + F.lit(self._ahead.latest)
        times = [columns[name] for name in ("at", "_time") if name in columns]
        if not times:
            return F.lit(False)
        far = [F.coalesce(F.unix_micros(time) > latest, F.lit(False)) for time in times]
        return functools.reduce(operator.or_, far)

    # ---- the row as it came ----------------------------------------------------------------------

    def _original(self, frame: DataFrame) -> tuple[DataFrame, Column]:
        """The row as it came, for a dead letter: its text, or its columns as JSON.

        Columns that a stage replaces are kept under another name. The JSON is made at the very
        end, inside a test for a problem: Spark makes it for bad rows only.
        """
        if self.config.parsed_as != "columns":
            text = F.col(quoted(self.config.parse.column))
            is_bytes = self.config.parsed_as in BINARY
            text = F.base64(text.cast("binary")) if is_bytes else text.cast("string")
            frame = frame.withColumn(parse.ORIGINAL, text)
            return frame, F.col(parse.ORIGINAL)
        replaced = {*self.config.schema, *self.config.clean}
        replaced |= {clean.from_ for clean in self.config.clean.values() if clean.from_}
        columns = []
        for name in frame.columns:
            kept = f"{parse.WAS}{name}" if name in replaced else name
            if kept != name:
                frame = frame.withColumn(kept, F.col(quoted(name)))
            columns.append(F.col(quoted(kept)).alias(name))
        return frame, F.to_json(F.struct(*columns))


def deduplicated(frame: DataFrame, config: Config, *, counted: bool = True) -> DataFrame:
    """The frame of `Stages` without duplicates and late rows, if the config asks for that.

    With `counted`, its rows are counted before, as `read`. A frame that does not grow has no late
    rows, and of each
    key one row.
    """
    wanted = config.deduplicate
    if wanted is None:
        return frame
    keys = ["_high", "_low"]
    if not frame.isStreaming:
        return frame.dropDuplicates(keys).drop(*keys, "_time")
    delay = f"{max(1, round(wanted.within_s * 1000))} milliseconds"
    if counted:
        frame = frame.observe("tideline", F.count(F.lit(1)).alias("read"))
    once = frame.withWatermark("_time", delay).dropDuplicatesWithinWatermark(keys)
    return once.drop(*keys, "_time")
