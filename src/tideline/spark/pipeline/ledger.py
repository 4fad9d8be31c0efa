"""The pipeline's part of its checkpoint: whose it is, and the counts of its batches.

    checkpoint/
      pipeline.json      name, source and target, when it began
      spark/             Spark's own checkpoint: offsets, commits, the keys that were seen
      batches/12.json    the counts of a batch, and the totals of all batches before it;
                         12.open.json while Spark has not told all of them
      dead/batch=12/     dead letters, unless told elsewhere

How far the pipeline is, is Spark's to know. A batch's file is written by the batch itself, before
Spark notes it as done. Where duplicates are dropped, Spark tells how many only afterwards: then
the file is *open* until the batch's progress has come, and no row of the next batch is stored
before it is closed. A kill in between leaves a batch that is done with a file that is open:
`reopen` takes the note of it from Spark's checkpoint, Spark runs it again, the store skips it, and
it is counted.

`spark/` knows the batches; this knows what became of them. One process at a time.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tideline.errors import Conflict, Corruption
from tideline.spark.pipeline.counts import COUNTS, Batch
from tideline.spark.pipeline.files import folder_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Ledger"]

FORMAT = 2
_KEEP = 100  # files of batches that are kept when a run begins
_OPEN, _CLOSED = ".open.json", ".json"


class Ledger:
    """The counts of a checkpoint."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self.folder = folder_of(spark, path)

    # ---- whose it is -------------------------------------------------------------------------

    def recognise(self, identity: Mapping[str, Any], started_us: int) -> int:
        """Whose checkpoint this is; a new one becomes ours. Returns when it began."""
        text = self.folder.read("pipeline.json")
        self.fresh = text is None
        if text is None:
            if self.folder.has("spark") or self.folder.has("offsets"):
                raise Conflict(
                    "this folder holds a checkpoint of Spark's that no pipeline made: "
                    "give run.checkpoint a folder of its own", checkpoint=self.folder.path,
                )  # fmt: skip
            facts = {"format": FORMAT, **identity, "started_us": started_us}
            self.folder.write("pipeline.json", json.dumps(facts))
            return started_us
        stored = _loaded(text, f"{self.folder.path}/pipeline.json")
        if stored.get("format") != FORMAT:
            raise Conflict(
                "the checkpoint was made by another version of Tideline: let that one read the "
                "source to its end, then start with a new run.checkpoint and a new name",
                checkpoint=self.folder.path, format=stored.get("format"),
            )  # fmt: skip
        for name, value in identity.items():
            if stored.get(name) != value:
                raise Conflict(
                    f"the checkpoint belongs to another pipeline: its {name} is another. Put the "
                    f"{name} back, or start over with a new run.checkpoint and a new name",
                    checkpoint=self.folder.path, checkpoint_has=stored.get(name), config_has=value,
                )  # fmt: skip
        return int(stored["started_us"])

    def forget(self) -> None:
        """Undo the making of a checkpoint that turned out not to fit the store."""
        self.folder.remove("pipeline.json")

    # ---- batches -------------------------------------------------------------------------------

    def note(self, batch: Batch, before: Mapping[str, int], *, open: bool) -> None:
        """Write down what became of a batch. An open one is written again when it is closed."""
        facts = {**asdict(batch), "before": dict(before)}
        self.folder.write(f"batches/{batch.number}{_OPEN if open else _CLOSED}", json.dumps(facts))
        if not open:
            self.folder.remove(f"batches/{batch.number}{_OPEN}")

    def load(self, number: int, *, open: bool) -> tuple[Batch, dict[str, int]]:
        """A batch, and the totals before it."""
        name = f"batches/{number}{_OPEN if open else _CLOSED}"
        facts = _loaded(self.folder.read(name) or "", f"{self.folder.path}/{name}")
        before: dict[str, int] = facts.pop("before")
        return Batch(**{**facts, "reasons": tuple(facts["reasons"])}), before

    def is_open(self, number: int) -> bool:
        """Whether a batch was written down and waits for its progress."""
        return self.folder.read(f"batches/{number}{_OPEN}") is not None

    def begun(self) -> int:
        """The last batch that Spark has begun; -1 before the first."""
        return max(_numbers(self.folder.names("spark/offsets"), ""), default=-1)

    def reopen(self) -> tuple[int, dict[str, int]]:
        """The last batch that is counted, and the totals up to it. Spark runs what is open again.

        Of batches long done the files go: the last has their totals.
        """
        names = self.folder.names("batches")
        closed, opened = _numbers(names, _CLOSED), _numbers(names, _OPEN)
        last, totals = -1, dict.fromkeys(COUNTS, 0)
        for number in closed[:-_KEEP]:
            self.folder.remove(f"batches/{number}{_CLOSED}")
        for number in [number for number in opened if number in closed]:
            self.folder.remove(f"batches/{number}{_OPEN}")
        for number, is_open in [(n, False) for n in closed[-1:]] + [(n, True) for n in opened[-1:]]:
            if number <= last or (is_open and self._undo(number)):
                continue
            batch, before = self.load(number, open=is_open)
            last = number
            totals = {name: before.get(name, 0) + batch.counts[name] for name in COUNTS}
        return last, totals

    def _undo(self, number: int) -> bool:
        """Have Spark run a batch again; nothing of a later one was stored."""
        for name in (f"spark/offsets/{number + 1}", f"spark/commits/{number}"):
            if not self.folder.remove(name):
                return False
        return True


def _numbers(names: list[str], ending: str) -> list[int]:
    stems = (name.removesuffix(ending) for name in names if name.endswith(ending))
    return sorted(int(stem) for stem in stems if stem.isdigit())


def _loaded(text: str, file: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        raise Corruption("a file of the checkpoint is damaged", file=file) from None
    facts: dict[str, Any] = found
    return facts
