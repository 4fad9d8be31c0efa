"""Why rows are bad: the reasons that stages find, gathered into one column of the frame.

found     a reason, null for good rows; the first that is found counts
kept      the frame with the reasons so far in the column `PROBLEM`, "clean: n is missing"
at, look  what Spark says about an expression is a mistake of the config, with its line

time, number, seconds, flag    a column as a value of that kind; what is none is a reason
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tideline.errors import TidelineError
from tideline.spark.pipeline.config import Config
from tideline.spark.pipeline.faults import condition, said_by
from tideline.spark.pipeline.keys import OWN
from tideline.spark.pipeline.locate import Path
from tideline.where.schema import quoted

__all__ = ["PROBLEM", "Reasons", "shown"]

PROBLEM = f"{OWN}problem"
"""The column with the stage and the reason; null in a good row."""
_ROWS = (
    "INVALID_WHERE_CONDITION", "WINDOW_FUNCTION_NOT_ALLOWED_IN_CLAUSE", "UNSUPPORTED_GENERATOR",
)  # fmt: skip
_LONGEST_S = 1e11  # the limit of `span_us` in clock.py: some three thousand years


class Reasons:
    """The reasons of one call of `Stages`."""

    def __init__(self, config: Config, *, looking: bool) -> None:
        """`looking`: whether Spark is to look at every expression at once (the first time)."""
        self.config = config
        self._looking = looking
        self._reasons: list[tuple[str, Column]] = []  # the stage with ": ", the reason
        self._told = False  # whether the frame has the column `PROBLEM`

    def found(self, stage: str, reason: Column | None) -> None:
        """A reason why a row is bad; null for the others. The first found counts."""
        if reason is not None:
            self._reasons.append((f"{stage}: ", reason))

    def kept(self, frame: DataFrame, made: dict[str, Column] | None = None) -> DataFrame:
        """Turn the reasons so far into a column, at once with columns that are made anew.

        The columns that reasons are made of may be others afterwards.
        """
        # The stage is put before the reason of a bad row only: texts are costly to make.
        reasons = [reason for _, reason in self._reasons]
        stages = [F.when(reason.isNotNull(), F.lit(stage)) for stage, reason in self._reasons]
        text = F.lit(None).cast("string")
        if reasons:
            reason = F.coalesce(*reasons)
            text = F.when(reason.isNotNull(), F.concat(F.coalesce(*stages), reason))
        if self._told:
            text = F.coalesce(F.col(PROBLEM), text)
        self._reasons, self._told = [], True
        return frame.withColumns({**(made or {}), PROBLEM: text})

    def needed(self, stage: str, column: Column, reason: str, *, always: bool = True) -> None:
        """A row without a value is bad; with `always` off, a cancel is not."""
        missing = column.isNull()
        if not always:
            missing = self.unless_cancel(missing)
        self.found(stage, F.when(missing, F.lit(reason)))

    def unless_cancel(self, bad: Column) -> Column:
        """A cancel needs no place."""
        operation = self.config.operation
        if operation.op_column is not None:
            op = F.col(quoted(operation.op_column)).cast("string")
            return bad & F.coalesce(op != "cancel", F.lit(True))
        return F.lit(False) if operation.op == "cancel" else bad

    # ---- columns as values -------------------------------------------------------------------

    def time(self, frame: DataFrame, name: str, path: Path, stage: str) -> Column:
        """A column as a time."""
        return self._cast(frame, name, path, stage, "timestamp", "a time")

    def number(self, frame: DataFrame, name: str, path: Path, stage: str) -> Column:
        """A column as a number."""
        return self._cast(frame, name, path, stage, "double", "a number")

    def flag(self, frame: DataFrame, name: str, path: Path, stage: str) -> Column:
        """A column as true or false."""
        return self._cast(frame, name, path, stage, "boolean", "true or false")

    def seconds(self, frame: DataFrame, name: str, path: Path, stage: str) -> Column:
        """A column as a number of seconds that a time can be moved by."""
        number = self.number(frame, name, path, stage)
        far = ~(F.abs(number) < _LONGEST_S)  # true of NaN too
        wrong = F.concat(
            F.lit(f"{name}: "), shown(F.col(quoted(name))),
            F.lit(" is not a finite number of seconds below 1e11"),
        )  # fmt: skip
        self.found(stage, F.when(far, wrong))
        return number

    def _cast(
        self, frame: DataFrame, name: str, path: Path, stage: str, kind: str,
        what: str,
    ) -> Column:  # fmt: skip
        given = F.col(quoted(name))
        with self.at(*path):
            value = given.try_cast(kind)
            self.look(frame, value)
        if frame.schema[name].dataType.simpleString() != kind:
            wrong = F.concat(F.lit(f"{name}: "), shown(given), F.lit(f" is not {what}"))
            self.found(stage, F.when(given.isNotNull() & value.isNull(), wrong))
        return value

    # ---- expressions ---------------------------------------------------------------------------

    def attempt(self, sql: str) -> Column:
        """An expression of the user's; null for a row for which it fails.

        Without ANSI most functions give null by themselves, but `raise_error`, `element_at(a, 0)`
        or a wrong pattern of a time end the batch. Spark has what prevents that, for its own
        `try_...` functions, but no function that puts it around any expression: under Spark
        Connect, which has no Java here, such an expression ends the batch.
        """
        from pyspark import SparkContext
        from pyspark.sql.classic import column as classic
        from pyspark.sql.utils import is_remote

        if is_remote():
            return F.expr(sql)
        java: Any = SparkContext._active_spark_context._jvm  # type: ignore[union-attr]
        columns = java.org.apache.spark.sql.classic.ExpressionUtils
        written: Any = F.expr(sql)
        inner = columns.expression(written._jc)
        tried = java.org.apache.spark.sql.catalyst.expressions.TryEval(inner)
        return classic.Column(columns.column(tried))

    def look(self, frame: DataFrame, column: Column) -> None:
        """Have Spark look at an expression now, while it is known which key it came from."""
        if self._looking:
            frame.filter(column.isNull())  # a filter takes only what looks at one row, as we do

    @contextmanager
    def at(self, *path: str | int) -> Iterator[None]:
        """What Spark says about an expression, as a mistake of the config, with its line."""
        try:
            yield
        except TidelineError as error:
            raise self.config.wrong(path, str(error)) from None
        except Exception as error:
            said = said_by(error)
            if said is None:
                raise
            if condition(error).split(".")[0] in _ROWS:
                said = (
                    "an expression looks at one row: it cannot have functions over several rows "
                    "(sum, row_number) nor those that make several (explode)"
                )
            raise self.config.wrong(path, said) from None


def shown(value: Column) -> Column:
    """A value in a reason: quoted, and never long."""
    text = F.make_valid_utf8(F.coalesce(value.cast("string"), F.lit("null")))
    return F.concat(F.lit("'"), F.substring(text, 1, 60), F.lit("'"))
