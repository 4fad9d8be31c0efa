"""What a side-by-side run asks of a system: take these operations, say who must be told what.

    operations --prepare--> what the system's own client sends --apply--> answers, read back

Only `apply` is timed, from the first byte sent until the last answer is in this process. `prepare`
puts the operations into the form that the system's client likes best, `answers` puts what came back
into one form for all, so that the answers of every system can be compared, row by row.

Operations are a table as `tideline.Channel.apply` takes it: `op`, `id`, `place` (a text key) or
`lon`, `lat`, `radius_m`, then `user`, `at`, `since`, `until`, `body`, and `unseen` where it is
used. Ids are numbers written out; a row's `at` is its "now", so channel time is the workload's, not
the wall's. A system that follows the wall clock alone says so with `wall_clock`, and is given
operations that happen when they are sent.

Invariants:
1. Operations take effect in the order of their rows. A row sees all rows before it.
2. A subscription answers with past events when it is stored; an event with the subscriptions that
   must be told. An answer counts when since <= event.at < until and both are valid at the row.
3. What has expired leaves the system, by the means the system's documentation recommends.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

__all__ = ["Cannot", "Given", "Peer", "answer_type"]

answer_type = np.dtype([("row", "i8"), ("subscription", "i8"), ("event", "i8")])


class Cannot(Exception):
    """The system has no way to do this that its documentation would call one; says why."""


@dataclass(frozen=True)
class Given:
    """How a system is to be set up."""

    folder: Path
    """Where it keeps everything; empty at the start, there again after a crash."""
    shapes: bool = False
    """Events are at points and subscriptions watch circles, instead of text keys."""
    memory_mb: int | None = None
    """The memory it may use for data, where it can be told."""
    unseen: bool = False
    """Some subscriptions will ask for unseen events only; others need not remember who saw what."""


class Peer(ABC):
    """A system under test. One thread at a time."""

    name: ClassVar[str]
    wall_clock: ClassVar[bool] = False
    tolerance_s: ClassVar[float] = 0.0
    """With `wall_clock`: so near to the edge of a window an answer may fall on either side."""
    batch: ClassVar[int] = 10_000
    """Operations a call, where the system is at its best."""

    @classmethod
    def missing(cls) -> str | None:
        """What must be installed first, as one line; None when all is there."""
        return None

    @classmethod
    @abstractmethod
    def version(cls) -> str:
        """What is measured."""

    @abstractmethod
    def __init__(self, given: Given) -> None:
        """Start it, or start it again on a folder it has used before."""

    @abstractmethod
    def prepare(self, operations: pa.RecordBatch) -> Any:
        """The operations in the form that `apply` takes."""

    @abstractmethod
    def apply(self, prepared: Any) -> Any:
        """Do them, and wait for the answers. With one row this is a single call."""

    @abstractmethod
    def answers(self, outcome: Any) -> np.ndarray:
        """What `apply` gave, as `answer_type`; rows count from 0 in each call."""

    def load(self, subscriptions: pa.RecordBatch) -> None:
        """Store subscriptions as fast as the system can, without their past; for `growth`."""
        self.apply(self.prepare(subscriptions))

    def deliver(self, count: int) -> list[float]:
        """Seconds from an event's publish until a subscriber elsewhere has it, one at a time."""
        raise Cannot("answers go to the caller; it has nothing that tells others")

    @abstractmethod
    def processes(self) -> list[int]:
        """The processes whose memory counts."""

    @abstractmethod
    def disk_bytes(self) -> int:
        """What its files take."""

    @abstractmethod
    def crash(self) -> None:
        """kill -9 of all its processes; it can then be started again on the same folder.

        A system that lives in this process takes this process with it.
        """

    @abstractmethod
    def close(self) -> None:
        """Stop it, and leave nothing running."""
