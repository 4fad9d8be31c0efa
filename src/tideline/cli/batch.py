"""Files of operations, as the Arrow tables `Channel.apply` takes.

    .parquet .arrow   columns as `apply` names them
    .csv              the same columns as text; body and where are JSON text
    .jsonl            one operation a line; body and where are JSON values, a place is text,
                      [lon, lat] or {"circle": [lon, lat, radius_m]}; times are ISO 8601

Only the types are made right here; what a row may say is `apply`'s to judge.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from tideline.cli.parse import parse_time
from tideline.errors import InvalidRequest

__all__ = ["apply_table", "read_table", "write_table"]

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
}


def apply_table(channel: Any, table: Any, *, batch_rows: int) -> tuple[Any, list[dict[str, Any]]]:
    """`Channel.apply` in batches; rows are numbered over the whole table."""
    answers: list[Any] = []
    rejected: list[dict[str, Any]] = []
    for start in range(0, max(table.num_rows, 1), batch_rows):
        done = channel.apply(table.slice(start, batch_rows))
        answers.append(_shift(done.answers, start))
        rejected.extend(_shift(done.rejected, start).to_pylist())
    return pa.concat_tables(answers, promote_options="permissive"), rejected


def read_table(file: Path) -> Any:
    """The operations of a file, by its ending."""
    kind = file.suffix.lower()
    try:
        if kind == ".parquet":
            import pyarrow.parquet as pq

            return pq.read_table(file)
        if kind in (".arrow", ".feather", ".ipc"):
            import pyarrow.feather as feather

            return feather.read_table(file)
        if kind == ".csv":
            import pyarrow.csv as csv

            options = csv.ConvertOptions(column_types=_TYPES, strings_can_be_null=True)
            return csv.read_csv(file, convert_options=options)
        if kind in (".jsonl", ".ndjson"):
            return _read_jsonl(file)
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


def _read_jsonl(file: Path) -> Any:
    columns: dict[str, list[Any]] = {name: [] for name in _TYPES}
    with file.open("rb") as stream:
        for number, text in enumerate(stream, start=1):
            if not text.strip():
                continue
            try:
                row = _flat(msgspec.json.decode(text, type=dict[str, Any]))
            except (msgspec.DecodeError, InvalidRequest) as error:
                raise InvalidRequest(f"line {number}: {error}", file=str(file)) from None
            for name, values in columns.items():
                values.append(row.get(name))
    try:
        return pa.table(
            {
                name: pa.array(values, _TYPES[name])
                for name, values in columns.items()
                if any(value is not None for value in values)
            }
        )
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise InvalidRequest(f"a field has the wrong type: {error}", file=str(file)) from None


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    """One operation as a row of columns."""
    unknown = sorted(row.keys() - _TYPES.keys())
    if unknown:
        raise InvalidRequest("unknown fields", fields=unknown, allowed=sorted(_TYPES))
    for name in ("body", "where"):
        if name in row:
            row[name] = msgspec.json.encode(row[name]).decode()
    for name in ("at", "since", "until"):
        moment = parse_time(row.get(name), name)
        row[name] = None if moment is None else moment.replace(tzinfo=None)
    place = row.get("place")
    if isinstance(place, list) and len(place) == 2:
        row["place"] = None
        row["lon"], row["lat"] = place
    elif isinstance(place, dict) and _is_circle(place.get("circle")):
        row["place"] = None
        row["lon"], row["lat"], row["radius_m"] = place["circle"]
    elif place is not None and not isinstance(place, str):
        raise InvalidRequest("place must be text, [lon, lat] or a circle", place=place)
    return row


def _is_circle(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 3
