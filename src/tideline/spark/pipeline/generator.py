"""The built-in source `generator`: incidents over New York State, made by Spark itself.

    id  at  lon  lat  kind  severity             events
    op  user  radius_m  until                    too, when `subscribe` asks for subscriptions
    value                                        instead of these: a JSON text, when `text` is on

Row n is a pure function of n, the seed and the options: the same rows whatever the number of
partitions, and again after a restart. `bad`, `repeat` and `late` are shares of rows that are
broken, that say again what one of the rows shortly before said, and that come an hour late:
what a pipeline must cope with. JVM expressions only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["BOUNDS", "OPTIONS", "columns", "frame", "problems"]

BOUNDS = (-79.8, 40.4, -71.8, 45.1)  # New York State
OPTIONS: dict[str, tuple[type, Any, str]] = {
    "rows": (int, None, "how many rows; without it there is no end"),
    "rows_per_second": (int, None, "how many a second; without it as fast as it goes"),
    "batch_rows": (int, 100_000, "rows of a batch, without rows_per_second"),
    "seed": (int, 7, "another seed, other rows"),
    "text": (bool, False, "one column `value` with JSON text"),
    "subscribe": (float, 0.0, "share of rows that subscribe"),
    "bad": (float, 0.0, "share of rows that are broken"),
    "repeat": (float, 0.0, "share of rows that repeat an earlier one"),
    "late": (float, 0.0, "share of rows that come an hour late"),
}
_CITIES = (
    (-73.97, 40.75), (-73.76, 42.65), (-78.86, 42.89), (-77.61, 43.16), (-76.15, 43.05),
    (-75.91, 42.10), (-73.90, 40.93), (-73.10, 40.80),
)  # fmt: skip
_KINDS = ("accident", "roadwork", "slow traffic", "closed road", "animals", "ice", "fog", "fire")


def problems(options: Mapping[str, Any]) -> dict[str, str]:
    """What is wrong with the options, by name ("" for what is missing).

    >>> problems({"rows": 10, "bed": 0.1})
    {'bed': "the generator has no option 'bed': did you mean 'bad'?"}
    """
    from tideline.spark.pipeline.config import did_you_mean

    found = {}
    for name, value in options.items():
        if name not in OPTIONS:
            found[name] = f"the generator has no option {name!r}{did_you_mean(name, OPTIONS)}"
            continue
        kind = OPTIONS[name][0]
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if kind is bool and not isinstance(value, bool):
            found[name] = f"{name} must be true or false"
        elif kind is int and (not isinstance(value, int) or not number or value < 1):
            found[name] = f"{name} must be a whole number from 1 on"
        elif kind is float and not (number and 0 <= value <= 1):
            found[name] = f"{name} must be a share, 0 to 1"
    if not any(name in options for name in ("rows", "rows_per_second")):
        found[""] = "the generator needs the option rows, rows_per_second, or both"
    return found


def columns(options: Mapping[str, Any]) -> dict[str, str]:
    """The columns it gives, with their types."""
    if options.get("text"):
        return {"value": "string"}
    more = {"op": "string", "user": "string", "radius_m": "double", "until": "timestamp"}
    return {
        "id": "string", "at": "timestamp", "lon": "double", "lat": "double", "kind": "string",
        "severity": "int", **(more if options.get("subscribe") else {}),
    }  # fmt: skip


def option(options: Mapping[str, Any], name: str) -> Any:
    """An option, or what it is by default."""
    return options.get(name, OPTIONS[name][1])


def frame(numbers: DataFrame, options: Mapping[str, Any], at: Column, step_us: float) -> DataFrame:
    """Rows from numbers in the column `n`.

    `at` is the time of row n as microseconds, `step_us` how much later the next row is.
    """
    from pyspark.sql import functions as F

    seed = option(options, "seed")

    def draw(what: int) -> Column:
        """A number in [0, 1) that belongs to row m (`what` tells the draws apart)."""
        return F.xxhash64("m", F.lit(seed * 1000 + what)).bitwiseAND((1 << 52) - 1) / F.lit(2.0**52)

    def pick(values: tuple[str, ...], what: int) -> Column:
        names = F.split(F.lit("|".join(values)), "\\|")
        return names[F.floor(draw(what) * len(values)).cast("int")]

    def number(what: int, values: list[float]) -> Column:
        table = F.from_json(F.lit(str(values)), "array<double>")
        return table[F.floor(draw(what) * len(values)).cast("int")]

    # Row n says what row m said: itself, or one of the fifty before.
    back = F.xxhash64("n", F.lit(seed)).bitwiseAND(1023)
    again = (back < F.lit(1024 * option(options, "repeat"))) & (F.col("n") > 50)
    earlier = F.col("n") - 1 - F.pmod(F.xxhash64("n", F.lit(seed + 1)), F.lit(50))
    made = numbers.withColumn("m", F.when(again, earlier).otherwise(F.col("n")))
    moment = at - ((F.col("n") - F.col("m")) * F.lit(step_us)).cast("bigint")
    moment = moment - F.when(draw(0) < option(options, "late"), 3_600_000_000).otherwise(0)
    spread = draw(2) + draw(3) + draw(4) - 1.5, draw(5) + draw(6) + draw(7) - 1.5
    lon = number(1, [city[0] for city in _CITIES]) + spread[0] * 0.4
    lat = number(1, [city[1] for city in _CITIES]) + spread[1] * 0.4
    west, south, east, north = BOUNDS
    broken = draw(8) < option(options, "bad")
    how = F.floor(draw(9) * 3)
    made = made.select(
        F.concat(F.lit("e"), F.col("m").cast("string")).alias("id"),
        F.timestamp_micros(moment).alias("at"),
        F.when(broken & (how == 0), F.lit(200.0))
        .otherwise(F.greatest(F.least(lon, F.lit(east)), F.lit(west))).alias("lon"),
        F.greatest(F.least(lat, F.lit(north)), F.lit(south)).alias("lat"),
        F.when(broken & (how == 1), F.lit(None)).otherwise(pick(_KINDS, 10)).alias("kind"),
        F.when(broken & (how == 2), F.lit(-1))
        .otherwise(F.floor(draw(11) * 5).cast("int") + 1).alias("severity"),
        F.when(draw(12) < option(options, "subscribe"), "subscribe").otherwise("publish")
        .alias("op"),
        F.concat(F.lit("u"), F.floor(draw(13) * 10_000).cast("string")).alias("user"),
        broken.alias("broken"),
    )  # fmt: skip
    asks = F.col("op") == "subscribe"
    made = made.withColumns({
        "radius_m": F.when(asks, F.lit(1500.0)),
        "until": F.col("at") + F.expr("INTERVAL 10 MINUTES"),
    })  # fmt: skip
    names = columns({**options, "text": False})
    if not option(options, "text"):
        return made.select(*names)
    text = F.to_json(F.struct(*names))
    cut = F.when(F.col("broken") & (F.col("severity") > 3), F.substring(text, 1, 40))
    return made.select(cut.otherwise(text).alias("value"))
