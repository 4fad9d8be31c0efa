"""Tables for `apply`, from rows in the model's terms.

A row is a dict: `op`, `id`, `at`, and what its verb needs (`place`, `user`, `since`, `until`,
`body`, `where`, `unseen`), times in microseconds. `bad` holds raw column values that replace
the row's own, so that a test can say exactly what is wrong with it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from tideline import Circle, MultiPolygon, Polygon
from tideline.clock import FOREVER, from_us

__all__ = ["SCHEMA", "answers_of", "rejected_of", "table_of"]

_TIME = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema(
    [
        ("op", pa.string()),
        ("id", pa.string()),
        ("place", pa.string()),
        ("lon", pa.float64()),
        ("lat", pa.float64()),
        ("radius_m", pa.float64()),
        ("user", pa.string()),
        ("at", _TIME),
        ("since", _TIME),
        ("until", _TIME),
        ("body", pa.string()),
        ("where", pa.string()),
        ("unseen", pa.bool_()),
    ]
)


def table_of(rows: Sequence[dict[str, Any]], *, shapes: bool = False) -> pa.Table:
    """The table; with `shapes`, places stand in lon, lat and radius_m, else in place."""
    dropped = {"place"} if shapes else {"lon", "lat", "radius_m"}
    schema = pa.schema([column for column in SCHEMA if column.name not in dropped])
    raw = [_raw(row) | (row.get("bad") or {}) for row in rows]
    return pa.table(
        {
            name: pa.array([r.get(name) for r in raw], schema.field(name).type)
            for name in schema.names
        },
        schema=schema,
    )


def _raw(row: dict[str, Any]) -> dict[str, Any]:
    raw: dict[str, Any] = {"op": row["op"], "id": row["id"], "at": _time(row["at"])}
    if row["op"] in ("cancel", "retract"):
        return raw
    place = row["place"]
    if isinstance(place, str):
        raw["place"] = place
    elif isinstance(place, (Polygon, MultiPolygon)):
        raw["place"] = json.dumps(place.__geo_interface__)
    elif isinstance(place, Circle):
        (raw["lon"], raw["lat"]), raw["radius_m"] = place.center, place.radius_m
    else:
        raw["lon"], raw["lat"] = place
    raw["until"] = _time(row["until"])
    if row["op"] == "publish":
        raw["body"] = json.dumps(row["body"])
        return raw
    raw["user"] = row["user"]
    raw["since"] = None if row["since"] == row["at"] else _time(row["since"])
    raw["where"] = None if row["where"] is None else json.dumps(row["where"])
    raw["unseen"] = row["unseen"]
    return raw


def _time(value: int) -> datetime | None:
    """A time as the table holds it; never is null."""
    return None if value >= FOREVER else (from_us(value) or datetime.max.replace(tzinfo=UTC))


def answers_of(applied: Any) -> list[tuple[int, str, str, str, str]]:
    """`Applied.answers` as (row, subscription, event, user, kind), sorted."""
    columns = ["row", "subscription", "event", "user", "kind"]
    return sorted(zip(*(applied.answers.column(name).to_pylist() for name in columns), strict=True))


def rejected_of(applied: Any) -> dict[int, str]:
    """`Applied.rejected` as row -> reason."""
    rows = applied.rejected.column("row").to_pylist()
    assert len(set(rows)) == len(rows)
    return dict(zip(rows, applied.rejected.column("reason").to_pylist(), strict=True))
