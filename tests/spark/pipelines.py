"""What the tests of the pipeline share: small configs, files of rows, and looking at what came out.

Small batches run fastest without compiled code, and Spark gives the same rows either way; the
tests in test_pipeline_promises.py run compiled.
"""

from __future__ import annotations

import copy
import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

import tideline

START = datetime(2026, 1, 1, tzinfo=UTC)
BOUNDS = [-80.0, 40.0, -72.0, 45.0]
INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
BASE: dict[str, Any] = {
    "name": "small",
    "source": {"format": "parquet", "path": "in"},
    "place": {"column": "place"},
    "store": {"folder": "data", "channel": "c"},
    "operation": {"id": "id", "ttl_s": 1e8},
    "run": {"checkpoint": "checkpoint"},
    "spark": {"config": INTERPRETED},
}


def config(folder: Path, **sections: Any) -> Any:
    """A config in a folder: `BASE` with sections replaced, or left out when None."""
    from tideline.spark.pipeline.config import make_config

    document = {**copy.deepcopy(BASE), **sections}
    document = {name: section for name, section in document.items() if section is not None}
    return make_config(document, base=folder)


def time_of(n: int) -> datetime:
    return START + timedelta(seconds=n)


def write_file(folder: Path, name: str, data: str | bytes) -> None:
    """A file of a stream's source, there all at once; the files' times rise as they are written."""
    folder.mkdir(parents=True, exist_ok=True)
    half = folder / f".{name}"
    half.write_bytes(data.encode() if isinstance(data, str) else data)
    when = 1_700_000_000 + 10 * sum(not path.name.startswith(".") for path in folder.iterdir())
    os.utime(half, (when, when))
    half.rename(folder / name)


def write_rows(folder: Path, name: str, rows: list[Any]) -> None:
    """A file of JSON lines; texts are written as they are."""
    texts = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    write_file(folder, f"{name}.jsonl", "\n".join(texts) + "\n")


def scan(folder: Path, kind: str = "events", channel: str = "c") -> list[dict[str, Any]]:
    """What the store holds."""
    with tideline.open(folder / "data") as db:
        rows: list[dict[str, Any]] = db.channel(channel).scan(kind).to_pylist()
    return rows


def dead(folder: Path) -> list[dict[str, Any]]:
    """The dead letters, in the order of the batches."""
    files = (folder / "checkpoint" / "dead").rglob("*.parquet")
    by_batch = sorted(files, key=lambda path: (int(path.parent.name.partition("=")[2]), path))
    return [row for path in by_batch for row in pq.ParquetFile(path).read().to_pylist()]
