"""Files of operations, as the Arrow tables `Channel.apply` takes.

    .parquet .arrow   columns as `apply` names them
    .csv              the same columns as text; body and where are JSON text
    .jsonl            one operation a line; body and where are JSON values, a place is text,
                      [lon, lat] or {"circle": [lon, lat, radius_m]}; times are ISO 8601

Only the types are made right here; what a row may say is `apply`'s to judge. A line that cannot be
read is rejected by itself, as a row that `apply` does not take.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from tideline.cli.parse import parse_time
from tideline.errors import InvalidRequest, NotFound

__all__ = ["Operations", "apply_table", "read_operations", "read_table", "write_table"]

_TIME = pa.timestamp("us")
_TYPES: dict[str, Any] = {
    "op": pa.string(),
    "id": pa.string(),
    "place": pa.string(),
    "lon": pa.float64(),
    "lat": pa.float64(),
    "radius_m": pa.float64(),
    "user": pa.string(),
    "at": _TIME,
    "since": _TIME,
    "until": _TIME,
    "body": pa.string(),
    "where": pa.string(),
    "unseen": pa.bool_(),
    "replace": pa.bool_(),
}
_KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    **dict.fromkeys(("op", "id", "user"), ((str,), "text")),
    **dict.fromkeys(("lon", "lat", "radius_m"), ((int, float), "a number")),
    **dict.fromkeys(("unseen", "replace"), ((bool,), "true or false")),
}


@dataclass
class Operations:
    """The operations of a file, and what is wrong with lines that could not be read."""

    table: Any
    bad: dict[int, str] = field(default_factory=dict)
    """By row; the row of the table is empty."""


def apply_table(
    channel: Any, operations: Operations, *, batch_rows: int
) -> tuple[Any, list[dict[str, Any]]]:
    """`Channel.apply` in batches; rows are numbered over the whole table."""
    table, bad = operations.table, operations.bad
    answers: list[Any] = []
    rejected: list[dict[str, Any]] = []
    for start in range(0, max(table.num_rows, 1), batch_rows):
        done = channel.apply(table.slice(start, batch_rows))
        answers.append(_shift(done.answers, start))
        rejected.extend(_shift(done.rejected, start).to_pylist())
    for record in rejected:
        record["reason"] = bad.get(record["row"], record["reason"])
    return pa.concat_tables(answers, promote_options="permissive"), rejected


def read_operations(file: Path) -> Operations:
    """The operations of a file, by its ending."""
    kind = file.suffix.lower()
    if kind in (".jsonl", ".ndjson"):
        return _gathered(_json_lines(file))
    try:
        return Operations(read_table(file))
    except InvalidRequest:
        if kind != ".csv":
            raise
        return _gathered(_csv_lines(file))  # line by line: the good ones land


def read_table(file: Path) -> Any:
    """The rows of a file, by its ending."""
    kind = file.suffix.lower()
    try:
        if kind == ".parquet":
            import pyarrow.parquet as pq

            return pq.read_table(file)
        if kind in (".arrow", ".feather", ".ipc"):
            import pyarrow.feather as feather

            return feather.read_table(file)
        if kind == ".csv":
            import pyarrow.csv as arrow_csv

            options = arrow_csv.ConvertOptions(column_types=_TYPES, strings_can_be_null=True)
            return arrow_csv.read_csv(file, convert_options=options)
    except FileNotFoundError:  # Arrow's own does not name it
        raise NotFound("no such file", file=str(file)) from None
    except pa.ArrowInvalid as error:
        raise InvalidRequest(f"the file cannot be read: {error}", file=str(file)) from None
    raise InvalidRequest("FILE must end in .parquet, .arrow, .csv or .jsonl", file=str(file))


def write_table(table: Any, file: Path) -> None:
    """Answers into a file, by its ending."""
    if file.suffix.lower() == ".parquet":
        import pyarrow.parquet as pq

        pq.write_table(table, file)
    elif file.suffix.lower() in (".arrow", ".feather", ".ipc"):
        import pyarrow.feather as feather

        feather.write_feather(table, file, compression="uncompressed")
    else:
        raise InvalidRequest("--out must end in .parquet or .arrow", file=str(file))


def _shift(table: Any, start: int) -> Any:
    if start == 0 or table.num_rows == 0:
        return table
    rows = pa.array(table.column("row").to_numpy() + start, pa.int64())
    return table.set_column(table.column_names.index("row"), "row", rows)


def _gathered(rows: Iterator[dict[str, Any] | InvalidRequest]) -> Operations:
    """Rows one by one as a table; a bad one becomes an empty row, with its reason."""
    columns: dict[str, list[Any]] = {name: [] for name in _TYPES}
    bad: dict[int, str] = {}
    for number, row in enumerate(rows):
        if isinstance(row, InvalidRequest):
            bad[number] = str(row)
            row = {}
        for name, values in columns.items():
            values.append(row.get(name))
    table = {
        name: pa.array(values, _TYPES[name])
        for name, values in columns.items()
        if name in ("op", "at") or any(value is not None for value in values)
    }
    return Operations(pa.table(table), bad)


def _json_lines(file: Path) -> Iterator[dict[str, Any] | InvalidRequest]:
    with file.open("rb") as stream:
        for number, text in enumerate(stream, start=1):
            if not text.strip():
                continue
            try:
                row = msgspec.json.decode(text, type=dict[str, Any])
                for name in ("body", "where"):
                    if name in row:
                        row[name] = msgspec.json.encode(row[name]).decode()
                yield _flat(row)
            except (msgspec.MsgspecError, UnicodeError, RecursionError, InvalidRequest) as error:
                yield InvalidRequest(f"line {number}: {error}")


def _csv_lines(file: Path) -> Iterator[dict[str, Any] | InvalidRequest]:
    with file.open(newline="", encoding="utf-8-sig") as stream:
        reader = csv.DictReader(stream)
        try:
            for row in reader:
                given: dict[str, Any] = {name: text for name, text in row.items() if text}
                try:
                    for name in given.keys() & {"lon", "lat", "radius_m"}:
                        given[name] = _number(given[name], name)
                    for name in given.keys() & {"unseen", "replace"}:
                        given[name] = _flag(given[name], name)
                    yield _flat(given)
                except InvalidRequest as error:
                    yield InvalidRequest(f"line {reader.line_num}: {error}")
        except (csv.Error, UnicodeError) as error:
            raise InvalidRequest(f"the file cannot be read: {error}", file=str(file)) from None


def _number(text: str, name: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InvalidRequest(f"{name} must be a number", **{name: text}) from None


def _flag(text: str, name: str) -> bool:
    found = {"true": True, "1": True, "false": False, "0": False}.get(text.lower())
    if found is None:
        raise InvalidRequest(f"{name} must be true or false", **{name: text})
    return found


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    """One operation as a row of columns."""
    unknown = sorted(str(name) for name in row.keys() - _TYPES.keys())
    if unknown:
        raise InvalidRequest("unknown fields", fields=unknown, allowed=sorted(_TYPES))
    for name in ("at", "since", "until"):
        moment = parse_time(row.get(name), name)
        row[name] = None if moment is None else moment.astimezone(UTC).replace(tzinfo=None)
    place = row.get("place")
    if isinstance(place, list) and len(place) == 2:
        row["place"] = None
        row["lon"], row["lat"] = place
    elif isinstance(place, dict) and _is_circle(place.get("circle")):
        row["place"] = None
        row["lon"], row["lat"], row["radius_m"] = place["circle"]
    elif isinstance(place, dict):  # GeoJSON, a box: a map reads it as text
        row["place"] = msgspec.json.encode(place).decode()
    elif place is not None and not isinstance(place, str):
        raise InvalidRequest("place must be text, [lon, lat], a circle or GeoJSON", place=place)
    for name, (kinds, wanted) in _KINDS.items():
        value = row.get(name)
        if value is not None and (
            not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds)
        ):
            raise InvalidRequest(f"{name} must be {wanted}", **{name: value})
    return row


def _is_circle(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 3
