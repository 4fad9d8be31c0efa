"""What a channel holds, in memory and on disk: the parts that the rooms of its engine share.

    dataset  the manifest, the log, the components, and what is done in the background
    sides    one index or two: windows in memory, and trees of components
    call     the buffers of one kernel call; `state` are its words, `view` reads them faster

The rooms (interrupts.py, expiry.py, upkeep.py, pressure.py, conditions.py, calls.py, recovery.py)
are given these and each other by engine.py. What only one of them needs is there, not here.

`lock` guards everything here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tideline.addresses import address_of
from tideline.channel.call import Call
from tideline.channel.lineage import Lineage
from tideline.channel.side import Side
from tideline.channel.writers import Writers
from tideline.clock import FOREVER
from tideline.index.memory import Budget, Memory
from tideline.index.sealed import PostingsKind
from tideline.index.told import ToldKind
from tideline.kernels import layout as at
from tideline.lsm.dataset import Dataset
from tideline.lsm.policy import Window
from tideline.lsm.sharedlog import Share
from tideline.lsm.tree import Tree

__all__ = ["Parts"]

_MERGED_MARKS = 32 << 20  # bytes: larger components of marks are searched as fast, and not merged


class Parts:
    """Everything a channel keeps; `open_sides` loads the components."""

    def __init__(
        self, folder: Path, facts: dict[str, Any], *, durability: str, logged: bool,
        segment_bytes: int, remember: bool, share: Share | None = None,
    ) -> None:  # fmt: skip
        self.folder = folder
        self.dataset = Dataset(
            folder, facts, durability=durability, logged=logged, segment_bytes=segment_bytes,
            share=share,
        )  # fmt: skip
        self.lock = self.dataset.lock
        self.store = self.dataset.store
        self.facts = self.store.facts
        self.shelter = self.dataset.shelter
        self.call = Call()
        self.state = self.call.state
        self.view = self.call.view
        self.address = address_of(self.state)
        self.answers = int(self.facts.get("answers", 0))
        self.logged_answers = self.answers
        """`answers` as the log has it."""
        self.journal_us = int(self.facts.get("journal_us", 0))
        """How long the log is kept to be read, by the channel's time; 0 for not at all."""
        self.writers = Writers(self.facts.get("writers", []))
        self.lineage = Lineage(self.facts.get("lineage", []))
        self.sides: list[Side] = []
        self.state[at.C_REMEMBER] = remember
        self.state[at.C_NEWEST] = self.facts.get("newest", -FOREVER)
        self.state[at.C_NEXT_SEQ] = self.facts.get("next_seq", 1)

    def open_sides(self, *, mode: int, layout: str, budget: Budget) -> None:
        """Load the components and make the memory of each side."""
        store, folder = self.store, self.folder
        seed = self.facts["seeds"]
        names = ("subscriptions", "events") if layout == "two" else ("dual",)
        kind = PostingsKind(shaped=mode == 1, seed=seed[0])
        largest = max(32 << 20, budget.size_bytes // 2)
        for name in names:
            memory = Memory(budget, mode=mode, seeds=(seed[0], seed[1]))
            tree = Tree(
                folder, name, kind, Window(max_bytes=largest), store.next_component,
                sync=store.sync,
            )  # fmt: skip
            store.attach(tree, self.newest)
            for reader in tree.readers:
                memory.put_tombs(*reader.tombs(), now=self.newest)
            self.sides.append(Side(memory, tree))
        self.sides[-1].told = Tree(
            folder, "told", ToldKind(), Window(max_bytes=_MERGED_MARKS), store.next_component,
            sync=store.sync,
        )  # fmt: skip
        store.attach(self.sides[-1].told, self.newest)
        for side in self.sides:
            side.refresh()
        self.state[at.C_SUBS] = self.sides[0].memory.address
        self.state[at.C_EVENTS] = self.sides[-1].memory.address

    @property
    def closed(self) -> bool:
        """Whether nothing goes any more."""
        return bool(self.dataset.why_closed)

    @property
    def marks(self) -> Memory:
        """The memory that has the marks of what users were told."""
        return self.sides[-1].memory

    def side_of(self, side: int) -> Side:
        """Where the subscriptions (SUBS) or the events (EVENTS) are."""
        return self.sides[0] if side == at.SUBS else self.sides[-1]

    @property
    def newest(self) -> int:
        """The newest time a write has brought; -FOREVER before the first."""
        return int(self.state[at.C_NEWEST])

    @property
    def logged_newest(self) -> int:
        """The channel's time as the log has it.

        In the middle of a call nothing may go by a later one: the call may fail, and then its
        time has not come.
        """
        return int(self.state[at.C_NEWEST_LOGGED])

    @property
    def answers(self) -> int:
        """How many answers the channel has given."""
        return int(self.view[at.C_ANSWERED])

    @answers.setter
    def answers(self, count: int) -> None:
        self.view[at.C_ANSWERED] = count

    def log_into(self, segment: int) -> None:
        """What is stored from now on is in this segment of the log."""
        for side in self.sides:
            side.memory.state[at.E_LOG] = segment
