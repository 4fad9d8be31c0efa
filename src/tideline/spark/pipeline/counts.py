"""What became of the rows of a batch: counts that add up.

    read = stored + duplicate + late + filtered + dead

`read` is what came from the source, counted before anything else; the others are counted where
they happen. `filtered` are rows that do not meet the condition: 0 without one. `expired` is how
many of the stored ones had ended already when they came: nobody can find them any more.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

__all__ = ["COUNTS", "FATES", "Batch", "Summary", "add_up"]

FATES = ("stored", "duplicate", "late", "filtered", "dead")
COUNTS = ("read", *FATES, "expired")


@dataclass(frozen=True)
class Batch:
    """One batch that is done."""

    number: int
    read: int = 0
    stored: int = 0
    duplicate: int = 0
    late: int = 0
    filtered: int = 0
    dead: int = 0
    expired: int = 0
    seconds: float = 0.0
    """From the first row read to the last file written."""
    newest_us: int | None = None
    """The newest time of the rows that were stored."""
    reasons: tuple[str, ...] = ()
    """The first reasons of its dead letters."""

    @property
    def counts(self) -> dict[str, int]:
        """The counts by name."""
        return {name: getattr(self, name) for name in COUNTS}


def _none() -> dict[str, int]:
    return dict.fromkeys(COUNTS, 0)


@dataclass
class Summary:
    """What a run did. `totals` are those of the pipeline since it began, over all its runs."""

    name: str
    batches: int = 0
    counts: dict[str, int] = field(default_factory=_none)
    totals: dict[str, int] = field(default_factory=_none)
    reasons: list[str] = field(default_factory=list)
    """The first reasons of dead letters of this run."""
    elapsed_s: float = 0.0
    reading_s: float = 0.0
    """From the start of reading to the last batch: without the start of Spark."""
    dead_letters: str = ""
    stopped: bool = False
    """Whether it was asked to stop before the source was read to its end."""

    def add(self, batch: Batch) -> None:
        """Take in a batch."""
        self.batches += 1
        for name, count in batch.counts.items():
            self.counts[name] += count
            self.totals[name] = self.totals.get(name, 0) + count
        for reason in batch.reasons:
            if reason not in self.reasons and len(self.reasons) < 5:
                self.reasons.append(reason)

    def to_dict(self) -> dict[str, Any]:
        """As JSON-able values."""
        return asdict(self)


def add_up(counts: dict[str, int]) -> bool:
    """Whether counts add up.

    >>> add_up({"read": 5, "stored": 3, "duplicate": 1, "late": 0, "filtered": 0, "dead": 1})
    True
    """
    return counts["read"] == sum(counts[name] for name in FATES)
