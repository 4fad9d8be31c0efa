"""A stage over Spark's state: what a part of it was told is kept, and told again after a failure.

A part, a `Cell` or `Windows`, is what the notes make of it that it was told, so these are its
segments (segments.py), as Arrow streams: a micro-batch adds its own. When they are compacted, the
part says in as few notes as it can what it is, and these are all that is kept.

Runs in Spark's Python workers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

import pandas as pd
import pyarrow as pa

from tideline.spark.segments import Head, Held, Segments
from tideline.spark.watching.cell import Cell
from tideline.spark.watching.packets import PACKETS, Settings, packets_of, read, written
from tideline.spark.watching.windows import Windows
from tideline.spark.worker import settle

if TYPE_CHECKING:
    from pyspark.sql.streaming.stateful_processor import MapState, ValueState

__all__ = ["Kept", "Part", "part_of", "run_whole"]

_STAYS = "grid and key must stay, without a grid the sorted and limited queries too"


class Part(Protocol):
    """A part of a stage."""

    settings: Settings

    def run(self, table: pa.Table) -> tuple[list[tuple[int, pa.Table]], pa.Table]: ...
    def replay(self, table: pa.Table) -> None: ...
    def snapshot(self) -> pa.Table: ...


def part_of(stage: str, settings: Settings, part: int) -> Part:
    """An empty part of a stage, "filter" or "sort"."""
    return Cell(settings, part) if stage == "filter" else Windows(settings, part)


class Kept:
    """The work on one part at a time: Spark's state at hand, `processor.py` calls."""

    def __init__(self, stage: str, settings: Settings, heads: ValueState, parts: MapState) -> None:
        self.stage, self.settings = stage, settings
        self.segments = Segments(heads, parts, Head, settings.fixed, _STAYS)

    def rows(self, part: int, rows: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        """Run the packets of one part; yields packets for the next stage."""
        packets = [data for frame in rows for data in frame["data"]]
        if part < 0:  # they are changes already
            yield pd.DataFrame({"part": [part] * len(packets), "data": packets})
            return
        for batch in packets_of(self.run(part, packets)):
            yield pd.DataFrame(batch.to_pydict())
        settle("watching")

    def begin(self, number: int, packets: Iterable[bytes]) -> None:
        """Keep what there is before the first micro-batch; a query that begins will find it."""
        head = self.segments.head()
        part = part_of(self.stage, self.settings, number)
        for data in packets:
            part.replay(read(data))
        self._write(head, part.snapshot())
        self.segments.save(head)

    def run(self, number: int, packets: list[bytes]) -> list[tuple[int, pa.Table]]:
        """Run packets of notes."""
        head = self.segments.head()
        part, start = _held.take(head) or (part_of(self.stage, self.settings, number), 0)
        part.settings = self.settings
        for data in self.segments.read(head, start):
            part.replay(read(data))
        made, notes = part.run(pa.concat_tables(read(data) for data in packets))
        self._write(head, notes)
        if head.is_grown:
            with self.segments.compacting(head):
                self._write(head, part.snapshot())
        token = self.segments.step(head)
        self.segments.save(head)
        _held.put(head, token, part)
        return made

    def _write(self, head: Head, notes: pa.Table) -> None:
        """Write notes as segments."""
        most = self.segments.most_bytes
        step = max(1, notes.num_rows * most // max(notes.nbytes, most))
        for first in range(0, notes.num_rows, step):
            self.segments.write(head, written(notes.slice(first, step)))


_held: Held[Part] = Held(256)  # parts that a worker keeps at most


def run_whole(
    batches: Iterable[pa.RecordBatch], stage: str, settings: Settings
) -> Iterator[pa.RecordBatch]:  # fmt: skip
    """What `mapInArrow` calls in a batch: the packets of whole parts, each run at once."""
    parts: dict[int, list[Any]] = {}
    for batch in batches:
        for number, data in zip(batch["part"].to_pylist(), batch["data"], strict=True):
            if number < 0:
                columns = [pa.array([number], pa.int32()), pa.array([data.as_py()], pa.binary())]
                yield pa.RecordBatch.from_arrays(columns, schema=PACKETS)
            else:
                parts.setdefault(number, []).append(data.as_buffer())
    for number in list(parts):
        notes = pa.concat_tables(read(data) for data in parts.pop(number))
        made, _ = part_of(stage, settings, number).run(notes)
        yield from packets_of(made)
