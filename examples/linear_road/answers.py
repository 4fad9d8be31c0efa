"""What the application answers, with the moment of each answer; and files of answers.

    tolls           to a car that enters a segment: what the segment costs, and how fast it is
    accidents       to the same, when an accident is in one of the five segments from there on
    balances        what a car owes
    expenditures    what a car paid on a day of the past

Times are seconds of the simulation; `emit` is when the answer was given, on the same clock. A file
is an Arrow stream of one of them, in the order in which they were given:

    KIND-SECOND.arrows      the answers from a second on

A run that went on in another process has files from where it did. What an older file has of those
seconds, or the half of at its end, was written by a process that was killed, and does not count.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["SCHEMAS", "AnswerFiles", "read_answers"]

SCHEMAS = {
    "tolls": pa.schema([
        ("vid", pa.int32()), ("time", pa.int32()), ("emit", pa.float64()), ("lav", pa.int16()),
        ("toll", pa.int32()),
    ]),
    "accidents": pa.schema([
        ("vid", pa.int32()), ("time", pa.int32()), ("emit", pa.float64()), ("xway", pa.int16()),
        ("dir", pa.int8()), ("seg", pa.int8()),
    ]),
    "balances": pa.schema([
        ("qid", pa.int32()), ("time", pa.int32()), ("emit", pa.float64()), ("vid", pa.int32()),
        ("balance", pa.int32()),
    ]),
    "expenditures": pa.schema([
        ("qid", pa.int32()), ("time", pa.int32()), ("emit", pa.float64()), ("vid", pa.int32()),
        ("paid", pa.int32()),
    ]),
}  # fmt: skip
_TOGETHER = 200_000  # rows of a batch in a file

Columns = dict[str, Any]


class AnswerFiles:
    """Writes answers from a second on to a folder, a file for each kind. For one thread."""

    def __init__(self, folder: Path, first: int = 0) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._sinks = {
            kind: pa.ipc.new_stream(str(folder / f"{kind}-{first:05}.arrows"), schema)
            for kind, schema in SCHEMAS.items()
        }
        self._held: dict[str, list[Columns]] = {kind: [] for kind in SCHEMAS}
        self._rows = dict.fromkeys(SCHEMAS, 0)

    def add(self, answers: dict[str, Columns], emit: float) -> None:
        """Keep the answers of one moment."""
        for kind, columns in answers.items():
            count = len(columns["vid"])
            if count:
                self._held[kind].append({**columns, "emit": np.full(count, emit)})
                self._rows[kind] += count
                if self._rows[kind] >= _TOGETHER:
                    self._write(kind)

    def _write(self, kind: str) -> None:
        held, self._held[kind], self._rows[kind] = self._held[kind], [], 0
        if held:
            schema = SCHEMAS[kind]
            arrays = [
                pa.array(
                    np.concatenate([each[name] for each in held]).astype(
                        schema.field(name).type.to_pandas_dtype()
                    )
                )
                for name in schema.names
            ]
            self._sinks[kind].write_batch(pa.record_batch(arrays, schema=schema))

    def write(self) -> None:
        """Give to the files what is held."""
        for kind in self._sinks:
            self._write(kind)

    def close(self) -> None:
        """Write what is left."""
        self.write()
        for sink in self._sinks.values():
            sink.close()


def read_answers(folder: Path) -> dict[str, pa.Table]:
    """All answers in a folder, by kind."""
    found = {}
    for kind, schema in SCHEMAS.items():
        paths = sorted(folder.glob(f"{kind}-*.arrows"))
        firsts = [int(path.stem.rpartition("-")[2]) for path in paths]
        batches: list[pa.RecordBatch] = []
        for path, limit in zip(paths, [*firsts[1:], None], strict=True):
            for batch in _whole_batches(path):
                if limit is not None and pc.max(batch["time"]).as_py() >= limit:
                    batch = batch.filter(pc.less(batch["time"], limit))
                batches.append(batch)
        found[kind] = pa.Table.from_batches(batches, schema)
    return found


def _whole_batches(path: Path) -> Iterator[pa.RecordBatch]:
    """The batches of a file, of which a process that was killed may have written half of one."""
    with pa.memory_map(str(path)) as source:
        try:
            yield from pa.ipc.open_stream(source)
        except (pa.ArrowInvalid, OSError):
            return
