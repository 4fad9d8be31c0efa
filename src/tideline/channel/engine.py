"""The engine of a channel: memory, components, log and recovery behind one lock.

    Engine ── Parts            what it holds: dataset, sides, call buffers           parts.py
           ├─ calls            runs rows and logs them                               calls.py
           ├─ records          reads records                                         records.py
           ├─ conditions       checks which answers hold                             conditions.py
           ├─ pressure         gives kernels the memory they ask for                 pressure.py
           ├─ expiry           drops what has expired                                expiry.py
           ├─ upkeep           what to seal, and when; which log is kept             upkeep.py
           ├─ interrupts       brings interrupted calls to their end                 interrupts.py
           └─ recovery         brings the memory back from the log                   recovery.py

Layout `dual` keeps both sides of a place in one index; `two` keeps an index a side; `poll` is
`dual` without subscriptions. The kernels are the same: they are given two engines, which may be
one.

Threads: whoever takes `lock` calls `interrupts.finish` before anything else (or `Core.begin`).
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tideline.channel.calls import Calls
from tideline.channel.conditions import Conditions
from tideline.channel.expiry import Expiry
from tideline.channel.interrupts import Interrupts
from tideline.channel.parts import Parts
from tideline.channel.pressure import Pressure
from tideline.channel.records import Records
from tideline.channel.recovery import Recovery
from tideline.channel.upkeep import Upkeep
from tideline.errors import Closed
from tideline.index.memory import Budget
from tideline.kernels import layout as at
from tideline.lsm.inventory import Listed
from tideline.lsm.position import Position
from tideline.lsm.sharedlog import Share, SharedLog

__all__ = ["Engine"]

_LOOK_EVERY = 256  # frames that were followed between two looks at memory, log and components
FORKED = "the channel belongs to the process that opened it"

Words = NDArray[np.int64]


class Engine:
    """Everything a channel keeps, in memory and on disk, and what is done with it."""

    def __init__(
        self, folder: Path, facts: dict[str, Any], *, mode: int, layout: str, budget: Budget,
        durability: str, logged: bool, segment_bytes: int = 64 << 20, remember: bool = True,
        share: Share | None = None,
    ) -> None:  # fmt: skip
        """With a `share`, its log is one that a cluster agrees on (lsm/sharedlog.py)."""
        parts = self.parts = Parts(
            folder, facts, durability=durability, logged=logged, segment_bytes=segment_bytes,
            remember=remember, share=share,
        )  # fmt: skip
        self.lock = parts.lock
        self.store, self.facts, self.sides = parts.store, parts.facts, parts.sides
        self.writers, self.lineage = parts.writers, parts.lineage
        self._followed = 0
        try:
            parts.open_sides(mode=mode, layout=layout, budget=budget)
            self.interrupts = Interrupts(parts)
            self.expiry = Expiry(parts)
            heavy_log = max(4 * segment_bytes, 2 * budget.size_bytes)
            self.upkeep = Upkeep(parts, self.interrupts, self.expiry, heavy_log)
            self.pressure = Pressure(parts, self.upkeep, self.expiry)
            self.records = Records(parts)
            self.conditions = Conditions(parts, self.interrupts, self.pressure, self.records)
            self.calls = Calls(
                parts, self.interrupts, self.expiry, self.upkeep, self.pressure, self.records,
                self.conditions,
            )  # fmt: skip
            self.recovery = Recovery(parts, self.pressure, self.expiry)
            self.recovery.run()
            self.upkeep.begin()
            if self.store.format < 5:
                self.facts["marks_from"] = self.next_seq
            if self.store.is_new or self.store.is_outdated:
                self.upkeep.commit()
        except BaseException:
            parts.dataset.end_threads()
            self.store.close()
            raise

    # ---- what it knows -------------------------------------------------------------------------

    @property
    def newest(self) -> int:
        """The newest time a write has brought; -FOREVER before the first."""
        return int(self.parts.view[at.C_NEWEST])

    def now(self, clock_now: int) -> int:
        """The channel's time: the clock's, or what writes have already seen if that is later."""
        newest = int(self.parts.view[at.C_NEWEST])
        return clock_now if clock_now > newest else newest

    def advance(self, now: int) -> None:
        """Let the channel's time be `now` if that is later (the lock is held)."""
        if now > self.newest:
            self.parts.view[at.C_NEWEST] = now

    @property
    def next_seq(self) -> int:
        """The number that the next row gets."""
        return int(self.parts.view[at.C_NEXT_SEQ])

    @property
    def answers(self) -> int:
        """How many answers the channel has given."""
        return self.parts.answers

    @property
    def late(self) -> int:
        """How many rows came with a time before the channel's."""
        return int(self.parts.view[at.C_LATE])

    @property
    def journal_us(self) -> int:
        """How long the log is kept to be read, by the channel's time; 0 for not at all."""
        return self.parts.journal_us

    @property
    def marks_from(self) -> int:
        """Of events with a smaller seq it is not known who was told: they are from format 4."""
        return int(self.facts.get("marks_from", 0))

    @property
    def deltas(self) -> bool:
        """Whether a condition of this channel ever asked for a change."""
        return bool(self.facts.get("deltas"))

    def count_answers(self, count: int) -> None:
        """So many answers were given without a row that is logged (the lock is held)."""
        self.parts.answers += count

    # ---- settings (the lock is not held) ---------------------------------------------------------

    def watch_deltas(self) -> None:
        """Remember, for good, that a condition asks for a change."""
        if not self.deltas:
            self._save_fact("deltas", True)

    def keep_journal(self, span_us: int) -> None:
        """Keep the log that long from now on."""

        if span_us != self.journal_us:
            self._save_fact("journal_us", span_us)

    def allow_ahead(self, span_us: int) -> None:
        """Let the rows of a batch be that far ahead of the clock."""
        self._save_fact("max_ahead_us", span_us)

    def _save_fact(self, name: str, value: Any) -> None:
        change = {"fact": name, "value": value}
        self.store.decide(change, partial(self.apply_change, change))

    def apply_change(self, change: dict[str, Any]) -> None:
        """Do what a cluster has agreed on, or what there is nobody to agree with on."""

        def note() -> None:
            if change["fact"] == "journal_us":
                self.parts.journal_us = change["value"]

        self.upkeep.save_fact(change["fact"], change["value"], note)

    # ---- following another machine -------------------------------------------------------------

    def follow(self, position: Position, payload: bytes) -> None:
        """Store what another machine wrote, which a cluster agreed on."""
        log = self.store.log
        assert isinstance(log, SharedLog)
        with self.lock:
            self.interrupts.finish()
            if self.parts.closed:
                raise Closed("the database was closed")
            log.take(position, payload)
            self.recovery.replay(np.frombuffer(payload, np.int64).copy(), log.mark)
            self.calls.use_own_rows()
            self.parts.logged_answers = self.parts.answers
            self._followed += 1
            if self._followed >= _LOOK_EVERY:
                self._followed = 0
                self.upkeep.look_after()
                self.expiry.drop_all()

    # ---- rows of a channel that nobody logs (the lock is held) -----------------------------------

    def replay(self, rows: Words, newest: int, next_seq: int) -> None:
        """Store rows again, up to where the channel stood then."""
        if len(rows):
            self.recovery.replay(rows, 1)
            self.calls.use_own_rows()
        self.parts.view[at.C_NEXT_SEQ] = next_seq
        self.advance(newest)
        self.expiry.drop_all()

    # ---- the end ---------------------------------------------------------------------------------

    def drain(self) -> None:
        """Wait for the work in the background that was begun; raises what went wrong."""
        self.parts.dataset.drain()

    def check(self) -> None:
        """Verify every checksum and invariant on disk."""
        self.upkeep.check()

    def backup(self, target: Path) -> dict[str, Listed]:
        """Copy everything as it is now into a new folder, while writers go on; its files."""
        return self.upkeep.backup(target)

    def leave_to_parent(self) -> None:
        """In a forked child: everything here belongs to the parent, locks and threads too."""
        self.parts.dataset.leave_to_parent(FORKED)
        self.lock = self.parts.lock = self.parts.dataset.lock
        self.interrupts.leave_to_parent()

    def close(self) -> None:
        """Finish background work, save the manifest, let go of the files."""
        if self.upkeep.close():
            self.calls.close()
