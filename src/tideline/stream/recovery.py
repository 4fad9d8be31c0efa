"""What the manifest says of a window, and how its memory comes back from the log.

The log is replayed from the first segment with a row that is in no component. Of each sub-window
the rows up to the last seq that its components have are passed over. So is what another machine
wrote, for a replica: `_replay` lands a batch in either case.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tideline.index.packed import Packed
from tideline.lsm.dataset import Snapshot
from tideline.stream.batch import Batch, read_payload
from tideline.stream.memory import Sub, grown
from tideline.stream.sealing import Sealing

__all__ = ["Recovering"]


class Recovering(Sealing):
    """Facts and recovery."""

    def snapshot(self) -> Snapshot:
        """What the manifest has to say (the lock is held)."""
        state = self.state
        logs = [sub.first_log for sub in state.subs.values()]
        first = min([*logs, *self._freezing.values(), self.store.log.mark])
        facts = {
            **self.facts, "settings": self.settings.facts(), "pane": state.pane, "time": state.time,
            "codec": None if state.codec is None else state.codec.to_json(), "late": state.late,
            "next_seq": state.next_seq, "writers": self.writers.to_json(),
        }  # fmt: skip
        return Snapshot(facts, first, first)

    def _recover(self) -> None:
        """Bring the memory back from the log."""
        for segment, payload in self.store.log.replay():
            self._replay(self._known(read_payload(payload, self.settings, segment)))
            self._make_room_at_once()
        state, panes = self.state, self.settings.panes
        kept = {pane: sub for pane, sub in state.subs.items() if pane > state.pane - panes}
        self.state = state._replace(subs=kept)
        self._note_types()
        self.rows = 0

    def _known(self, batch: Batch) -> Batch:
        """A batch of the log with the codec there is, if it has that one."""
        if self.state.codec is not None and batch.codec == self.state.codec:
            return batch._replace(codec=self.state.codec)
        return batch

    def _note_types(self) -> None:
        """The types of keys that were to be found, once rows have told them."""
        codec = self.state.codec
        if codec is not None and "" in self.settings.types:
            types = ("int",) * len(self.settings.key) if isinstance(codec, Packed) else codec.types
            self.settings = replace(self.settings, types=tuple(types))

    def _make_room_at_once(self) -> None:
        """Seal the largest sub-windows while memory is short, in this thread."""
        while self.memory_bytes > self._most_bytes:
            sub = max(self.state.subs.values(), key=lambda sub: sub.memory_bytes)
            if not sub.memory_bytes:
                return
            self.dataset.seal(self._frozen(sub.pane))

    def _replay(self, batch: Batch) -> None:
        """Land the rows of a batch that are in no component."""
        at, seq, kept = 0, batch.seq, np.ones(len(batch.keys), bool)
        steps = []
        for step in batch.steps:
            parts = []
            for pane, count in step.parts:
                sub = self.state.subs.get(pane)
                sealed = max(0 if sub is None else sub.sealed, seq)
                passed = min(sealed - seq, count)
                kept[at : at + passed] = False
                if passed < count:
                    parts.append((pane, count - passed, seq + passed))
                at, seq = at + count, seq + count
            steps.append((step, parts))
        subs, at = dict(self.state.subs), 0
        keys, values = batch.keys[kept], [value[kept] for value in batch.values]
        state = self.state
        for step, parts in steps:
            floor = max(state.pane, step.pane) - self.settings.panes
            subs = {pane: sub for pane, sub in subs.items() if pane > floor}
            state = state._replace(pane=max(state.pane, step.pane), time=max(state.time, step.time))
            for pane, count, first in parts:
                if pane > floor:
                    subs[pane] = grown(
                        subs.get(pane) or Sub(pane), batch.codec, keys[at : at + count],
                        [value[at : at + count] for value in values], first, batch.log,
                        last=self.settings.last,
                    )  # fmt: skip
                at += count
        codec = batch.codec if seq >= state.next_seq or state.codec is None else state.codec
        if batch.once is not None:
            self.writers.note(*batch.once)
        self.state = state._replace(
            subs=subs, next_seq=max(state.next_seq, seq), late=max(state.late, batch.late),
            codec=codec,
        )  # fmt: skip
