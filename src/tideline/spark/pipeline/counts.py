"""What became of the rows of a batch: counts that add up, and where the time went.

    read = stored + duplicate + late + filtered + dead

`read` is what came from the source, counted before anything else; the others are counted where
they happen. `filtered` are rows that do not meet the condition: 0 without one.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

__all__ = ["FATES", "Batch", "Summary", "add_up"]

FATES = ("stored", "duplicate", "late", "filtered", "dead")


@dataclass(frozen=True)
class Batch:
    """One batch that is done."""

    number: int
    read: int
    stored: int
    duplicate: int
    late: int
    filtered: int
    dead: int
    answers: int
    """Answers that the store gave to this batch."""
    spark_s: float
    """Spark's part: reading, parsing, cleaning, placing, and handing over as Arrow."""
    sift_s: float
    """Deduplicating and queueing."""
    store_s: float
    """The store's part: `Channel.apply`."""
    write_s: float
    """Dead letters, archive and the batch's line."""
    latency_s: tuple[float, float, float] | None = None
    """From an event's time to when it was stored: median, p99, most. None without rows."""
    newest_us: int | None = None
    """The newest time of the rows that were stored."""
    again: bool = False
    """Whether it was stored from the queue after a restart."""

    @property
    def counts(self) -> dict[str, int]:
        """The counts by name."""
        return {"read": self.read, **{name: getattr(self, name) for name in FATES}}


@dataclass
class Summary:
    """What a run did. `totals` are those of the pipeline since it began, over all its runs."""

    name: str
    batches: int = 0
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("read", *FATES), 0))
    totals: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("read", *FATES), 0))
    answers: int = 0
    elapsed_s: float = 0.0
    reading_s: float = 0.0
    """From the start of reading to the last batch: without the start of Spark."""
    spark_s: float = 0.0
    store_s: float = 0.0
    dead_letters: str = ""
    stopped: bool = False
    """Whether it was asked to stop before the source was read to its end."""

    def add(self, batch: Batch) -> None:
        """Take in a batch."""
        self.batches += 1
        self.answers += batch.answers
        self.spark_s += batch.spark_s
        self.store_s += batch.store_s
        for name, count in batch.counts.items():
            self.counts[name] += count
            self.totals[name] = self.totals.get(name, 0) + count

    def to_dict(self) -> dict[str, Any]:
        """As JSON-able values."""
        return asdict(self)


def add_up(counts: dict[str, int]) -> bool:
    """Whether counts add up.

    >>> add_up({"read": 5, "stored": 3, "duplicate": 1, "late": 0, "filtered": 0, "dead": 1})
    True
    """
    return counts["read"] == sum(counts[name] for name in FATES)
