"""A stage over Spark's state: what a part of it was told is kept, and told again after a failure.

    head       one value a part: which segments there are, and who ran the part last
    segments   number -> notes, an Arrow stream

A part, a `Cell` or `Windows`, is what the notes make of it that it was told, so these are its
state: a micro-batch adds its own. When what was added has grown as large as what was left the last
time, the part says in as few notes as it can what it is, and these are all that is kept.

The part itself stays in the memory of a Python worker, which is never trusted: each micro-batch
writes a new random token into the head. A part whose token is in the head's trail is told the
segments that were written since; any other is made anew from all of them.

Runs in Spark's Python workers.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
import pandas as pd
import pyarrow as pa

from tideline.errors import Conflict, Corruption
from tideline.spark.watching.cell import Cell
from tideline.spark.watching.packets import PACKETS, Settings, packets_of, read, written
from tideline.spark.watching.windows import Windows
from tideline.spark.worker import settle

if TYPE_CHECKING:
    from pyspark.sql.streaming.stateful_processor import MapState, ValueState

__all__ = ["Kept", "Part", "part_of", "run_whole"]

FORMAT = 1
_TRAIL = 64  # micro-batches that a part in memory may be behind and still follow
_LEAST_BYTES = 1 << 20  # added since the last time: below this writing anew is not worth it
_MOST_SEGMENTS = 256
_SEGMENT_BYTES = 8 << 20  # of one value in the state store
_HELD = 256  # parts that a worker keeps at most


class Part(Protocol):
    """A part of a stage."""

    settings: Settings

    def run(self, table: pa.Table) -> tuple[list[tuple[int, pa.Table]], pa.Table]: ...
    def replay(self, table: pa.Table) -> None: ...
    def snapshot(self) -> pa.Table: ...


def part_of(stage: str, settings: Settings, part: int) -> Part:
    """An empty part of a stage, "filter" or "sort"."""
    return Cell(settings, part) if stage == "filter" else Windows(settings, part)


class Head(msgspec.Struct):
    """What the state of a part begins with."""

    format: int
    fixed: str
    """What the checkpoint was made with and must stay."""
    lineage: bytes
    """Names this part in the memory of workers."""
    next: int = 0
    """The number of the next segment."""
    segments: list[tuple[int, int]] = []  # msgspec copies it
    """Number and bytes."""
    compacted: int = 0
    """Segments before this one were written by the last compaction."""
    trail: list[tuple[bytes, int]] = []
    """The tokens of the last micro-batches, and `next` as each left it."""


class Kept:
    """The work on one part at a time: Spark's state at hand, `processor.py` calls."""

    def __init__(
        self, stage: str, settings: Settings, heads: ValueState, segments: MapState
    ) -> None:  # fmt: skip
        self.stage, self.settings = stage, settings
        self.heads, self.segments = heads, segments

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
        head = self._head()
        part = part_of(self.stage, self.settings, number)
        for data in packets:
            part.replay(read(data))
        self._write(head, part.snapshot())
        self.heads.update((msgspec.msgpack.encode(head),))

    def run(self, number: int, packets: list[bytes]) -> list[tuple[int, pa.Table]]:
        """Run packets of notes."""
        head = self._head()
        part = self._part(head, number)
        made, notes = part.run(pa.concat_tables(read(data) for data in packets))
        self._write(head, notes)
        added = sum(size for n, size in head.segments if n >= head.compacted)
        before = sum(size for n, size in head.segments if n < head.compacted)
        if added >= max(before, _LEAST_BYTES) or len(head.segments) > _MOST_SEGMENTS:
            self._compact(head, part)
        head.trail.append((secrets.token_bytes(12), head.next))
        del head.trail[:-_TRAIL]
        self.heads.update((msgspec.msgpack.encode(head),))
        _held[head.lineage] = (head.trail[-1][0], part)
        while len(_held) > _HELD:
            _held.popitem(last=False)
        return made

    def _head(self) -> Head:
        found = self.heads.get()
        fixed = self.settings.fixed
        if found is None:
            return Head(FORMAT, fixed, secrets.token_bytes(12))
        head = msgspec.msgpack.decode(found[0], type=Head)
        if head.format != FORMAT or head.fixed != fixed:
            raise Conflict(
                "the checkpoint was made with other settings: grid and key must stay, without a "
                "grid the sorted and limited queries too; start with a new checkpoint",
                checkpoint=head.fixed, now=fixed,
            )  # fmt: skip
        return head

    def _part(self, head: Head, number: int) -> Part:
        """The part as the head describes it, from memory if there is one to start from."""
        # Taken out of the memory: if the task fails, nobody uses it again.
        token, part = _held.pop(head.lineage, (b"", None))
        start = dict(head.trail).get(token) if part is not None else None
        if part is None or start is None:
            part, start = part_of(self.stage, self.settings, number), 0
        part.settings = self.settings
        for segment, _ in head.segments:
            if segment >= start:
                found = self.segments.getValue((segment,))
                if found is None:
                    raise Corruption("a segment of the state is missing", file=f"segment {segment}")
                part.replay(read(found[0]))
        return part

    def _write(self, head: Head, notes: pa.Table) -> None:
        """Write notes as segments, none larger than a value of the state store should be."""
        if not notes.num_rows:
            return
        step = max(1, notes.num_rows * _SEGMENT_BYTES // max(notes.nbytes, _SEGMENT_BYTES))
        for first in range(0, notes.num_rows, step):
            data = written(notes.slice(first, step))
            self.segments.updateValue((head.next,), (data,))
            head.segments.append((head.next, len(data)))
            head.next += 1

    def _compact(self, head: Head, part: Part) -> None:
        """Write what the part is, in place of all segments."""
        old = [number for number, _ in head.segments]
        head.segments = []
        self._write(head, part.snapshot())
        head.compacted = head.next
        head.trail.clear()  # whoever is behind cannot follow
        for number in old:
            self.segments.removeKey((number,))


_held: OrderedDict[bytes, tuple[bytes, Part]] = OrderedDict()


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
