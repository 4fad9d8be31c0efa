"""A workload as a folder of files, one a part, whoever makes them and in whichever order.

    out/
      _workload.json       what the rows depend on, how many there are, in how many parts
      part-00000.parquet   the rows [0, n / parts), and so on: names in order are rows in order
      _SUCCESS             all parts are there

A part is written under a name that readers skip and renamed when it is whole. So a folder holds
whole parts only; running the same command again makes the parts that are missing; two that make
the same part write the same bytes. Another workload is refused (`Conflict`).

`write` may run anywhere that sees the folder: threads here, workers of Spark.
"""

from __future__ import annotations

import json
import os
import secrets
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from tideline.errors import Conflict, InvalidRequest
from tideline.workload.tweets import BATCH_ROWS, Tweets

__all__ = ["FORMATS", "PART_ROWS", "Parts", "bounds_of"]

FORMATS = ("parquet", "csv")
PART_ROWS = 1_000_000
PARTS_LIMIT = 100_000
_GROUP_ROWS = 4 * BATCH_ROWS  # rows of a row group
_REPEATED = ["op", "place", "cell"]  # the columns with few values, worth a dictionary


def bounds_of(part: int, parts: int, count: int, first: int = 0) -> tuple[int, int]:
    """The rows `[start, limit)` of a part.

    >>> [bounds_of(part, 3, 10) for part in range(3)]
    [(0, 3), (3, 6), (6, 10)]
    """
    return first + count * part // parts, first + count * (part + 1) // parts


@dataclass(frozen=True)
class Parts:
    """The first `count` rows of a workload in a folder."""

    workload: Tweets
    count: int
    folder: Path
    parts: int
    form: str = "parquet"

    def __post_init__(self) -> None:
        if self.count < 1:
            raise InvalidRequest("count must be at least 1", count=self.count)
        if not 1 <= self.parts <= min(self.count, PARTS_LIMIT):
            raise InvalidRequest(
                f"partitions must be from 1 to {PARTS_LIMIT:,}, and no more than rows",
                partitions=self.parts, count=self.count,
            )  # fmt: skip
        if self.form not in FORMATS:
            raise InvalidRequest(f"format must be {' or '.join(FORMATS)}", format=self.form)
        self.workload.check(self.count)

    def file(self, part: int) -> Path:
        return self.folder / f"part-{part:05}.{self.form}"

    def missing(self) -> list[int]:
        """The parts that are not there."""
        try:
            have = set(os.listdir(self.folder))
        except FileNotFoundError:
            have = set()
        return [part for part in range(self.parts) if self.file(part).name not in have]

    def claim(self) -> list[int]:
        """Make the folder ours, or find that it is; the parts to make."""
        if self.folder.exists() and not self.folder.is_dir():
            raise InvalidRequest("out must be a folder", out=str(self.folder))
        self.folder.mkdir(parents=True, exist_ok=True)
        ours = self._settings()
        note = self.folder / "_workload.json"
        if not note.exists():
            if any(self.folder.iterdir()):
                raise Conflict("out must be an empty folder", out=str(self.folder))
            self._put(note, json.dumps(ours, indent=1))
        try:
            stored = json.loads(note.read_text(encoding="utf-8"))
        except ValueError:
            stored = {}
        other = sorted(name for name in ours if stored.get(name) != ours[name])
        if other:
            raise Conflict(
                "the folder holds another workload: remove it, or name another",
                out=str(self.folder), other={name: stored.get(name) for name in other},
            )  # fmt: skip
        return self.missing()

    def write(self, part: int) -> int:
        """Make one part; returns its rows."""
        start, limit = bounds_of(part, self.parts, self.count)
        draft = self.folder / f".{self.file(part).name}.{secrets.token_hex(4)}"
        try:
            with self._writer(draft) as writer:
                for group in range(start, limit, _GROUP_ROWS):
                    writer.write_table(self._table(group, min(limit, group + _GROUP_ROWS)))
            draft.replace(self.file(part))
        finally:
            draft.unlink(missing_ok=True)
        return limit - start

    def write_here(self, parts: list[int], threads: int) -> None:
        """Make parts with threads of this process; numpy and Arrow let them run side by side."""
        with ThreadPoolExecutor(threads) as pool:
            waiting = [pool.submit(self.write, part) for part in parts]
            try:
                for done in as_completed(waiting):
                    done.result()
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def finish(self) -> int:
        """Say that the folder is whole; returns its bytes."""
        assert not self.missing()
        self._put(self.folder / "_SUCCESS", "")
        return sum(self.file(part).stat().st_size for part in range(self.parts))

    def _settings(self) -> dict[str, Any]:
        how = {"count": self.count, "partitions": self.parts, "format": self.form}
        settings: dict[str, Any] = json.loads(json.dumps(self.workload.settings() | how))
        return settings

    def _table(self, start: int, limit: int) -> pa.Table:
        batches = [
            self.workload.batch(first, min(BATCH_ROWS, limit - first))
            for first in range(start, limit, BATCH_ROWS)
        ]
        table = pa.Table.from_batches(batches)
        return table if self.form == "parquet" else table.cast(_without_zones(table.schema))

    def _writer(self, file: Path) -> Any:
        if self.form == "parquet":
            import pyarrow.parquet as pq

            schema = self.workload.schema
            repeated = [name for name in _REPEATED if name in schema.names]
            return pq.ParquetWriter(file, schema, compression="zstd", use_dictionary=repeated)
        import pyarrow.csv as csv

        return csv.CSVWriter(file, _without_zones(self.workload.schema))

    @staticmethod
    def _put(file: Path, text: str) -> None:
        draft = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
        draft.write_text(text, encoding="utf-8")
        draft.replace(file)


def _without_zones(schema: pa.Schema) -> pa.Schema:
    """Times in CSV are written without a zone, which readers take for UTC."""
    return pa.schema(
        [
            field.with_type(pa.timestamp("us")) if pa.types.is_timestamp(field.type) else field
            for field in schema
        ]
    )
