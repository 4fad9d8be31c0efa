"""The second stage: what becomes of one column, and why a row is bad.

    from or sql -> trim -> cast -> default -> required -> min, max -> one_of

The first check that fails is the reason. Casts never fail a batch: what cannot be cast is null,
and was something, so the row is bad.
"""

from __future__ import annotations

import datetime
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tideline.errors import InvalidRequest
from tideline.spark.pipeline import keys
from tideline.spark.pipeline.fits import misfits
from tideline.spark.pipeline.reasons import Reasons, shown
from tideline.where.schema import quoted

__all__ = ["cleaned"]


def cleaned(
    frame: DataFrame, name: str, clean: keys.Clean, reasons: Reasons
) -> tuple[Column, Column | None]:
    """A cleaned column, and why a row is bad, null for a good one."""
    at, look = reasons.at, reasons.look
    checks: list[Column] = []

    def fail(bad: Column, *reason: Column | str) -> None:
        parts = [F.lit(part) if isinstance(part, str) else part for part in reason]
        checks.append(F.when(bad, F.concat(*parts)))

    with at("clean", name, "sql"):
        value = reasons.attempt(clean.sql) if clean.sql else F.col(quoted(clean.from_ or name))
        look(frame, value)
    kind = frame.select(value.alias("v")).schema["v"].dataType.simpleString()
    for key, message in misfits(clean, None if kind == "void" else kind):
        with at("clean", name, key):
            raise InvalidRequest(message)
    if clean.trim:
        text = F.trim(value.cast("string"))
        value = F.when(text != "", text)
    if clean.cast:
        given = value
        with at("clean", name, "cast"):
            value = given.try_cast(clean.cast)
            look(frame, value)
        fail(
            given.isNotNull() & value.isNull(),
            f"{name}: ", shown(given), f" is not of the type {clean.cast}",
        )  # fmt: skip
    if clean.default is not None:
        with at("clean", name, "default"):
            made = frame.select(value.alias("v")).schema["v"].dataType
            value = F.coalesce(value, _literal(clean.default).cast(made))
            look(frame, value)
    if clean.required:
        fail(value.isNull(), f"{name} is missing")
    for key, words in (("min", "at least"), ("max", "at most")):
        bound = getattr(clean, key)
        if bound is not None:
            with at("clean", name, key):
                limit = _literal(bound)
                bad = value < limit if key == "min" else value > limit
                look(frame, bad)
            fail(bad, f"{name} must be {words} {bound}, not ", shown(value))
    if clean.one_of is not None:
        with at("clean", name, "one_of"):
            bad = ~value.isin([_plain(item) for item in clean.one_of])
            look(frame, bad)
        known = ", ".join(str(item) for item in clean.one_of)
        fail(bad, f"{name} must be one of {known}, not ", shown(value))
    return value, F.coalesce(*checks) if checks else None


def _literal(value: Any) -> Column:
    return F.lit(_plain(value))


def _plain(value: Any) -> Any:
    """A value of TOML as Spark takes it: a time without a zone is UTC, as everywhere here."""
    if isinstance(value, datetime.datetime) and value.tzinfo is None:
        return value.replace(tzinfo=datetime.UTC)
    return value
