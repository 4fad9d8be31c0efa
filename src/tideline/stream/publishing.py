"""The state of a window that readers see, and how a batch and a slide make the next one.

    batch    each step of it opens a later sub-window, or not, and has rows for some -> a new state
    slide    sub-windows that are over the span are let go of, whole; whoever watches is handed the
             state as it was

The base of `Engine` (engine.py), with the fields that all of it shares. `writing` is held by one
writer, `lock` by whoever publishes. An interrupt may come between any two steps: `unfinished` is
the write that is under way, the log says whether it counts, and `settle` brings it to its end
(as documents/engine.py).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from tideline.clock import Clock
from tideline.errors import InvalidRequest
from tideline.index.keyruns import RunReader
from tideline.index.packed import Codec
from tideline.index.rowindex import RowIndexes
from tideline.kernels.layout import SEGMENT
from tideline.lsm.dataset import Dataset
from tideline.lsm.store import Store
from tideline.lsm.tree import Tree
from tideline.lsm.writers import Writers
from tideline.stream.batch import Batch
from tideline.stream.memory import NOTHING, State, Sub, grown, is_mapped
from tideline.stream.settings import Settings

__all__ = ["Publishing", "Told", "codec_of", "mapped_count"]


class Told(Protocol):
    """Whoever is told of slides; called with the engine's lock, so it only takes note."""

    def slid(self, first: int, limit: int, state: State) -> None:
        """Sub-windows have closed, [first, limit); `state` is from before any was let go of."""
        ...

    def end(self) -> None:
        """Nothing more will come."""
        ...


class Publishing:
    """What a window has, and how it changes."""

    dataset: Dataset
    store: Store
    lock: Any
    writing: Any
    clock: Clock
    budget: Any
    facts: dict[str, Any]
    settings: Settings
    state: State
    tree: Tree[RunReader]
    indexes: RowIndexes | None
    watchers: list[Told]
    writers: Writers
    unfinished: tuple[Batch | None, int] | None
    dropped: int
    rows: int
    _logged: bool

    def finish_write(self) -> None:
        """Bring into memory what the log has and memory has not (the lock is held)."""
        unfinished = self.unfinished
        if unfinished is None or unfinished[0] is None or unfinished[1] == self.store.log.frames:
            return
        if self.state.next_seq == unfinished[0].seq:
            self._land(unfinished[0])

    def _land(self, batch: Batch) -> None:
        """Publish the state with a batch in it; doing it again from the start does no harm."""
        state, at, seq = self.state, 0, batch.seq
        subs = dict(state.subs)
        if batch.once is not None:
            self.writers.note(*batch.once)
        for step in batch.steps:
            if step.pane > state.pane:
                state = self._slid(state._replace(subs=subs), step.pane)
                subs = dict(state.subs)
            state = state._replace(time=max(state.time, step.time))
            for pane, count in step.parts:
                limit = at + count
                subs[pane] = grown(
                    subs.get(pane) or Sub(pane), batch.codec, batch.keys[at:limit],
                    [value[at:limit] for value in batch.values], seq, batch.log,
                    last=self.settings.last,
                )  # fmt: skip
                at, seq = limit, seq + count
        self.state = state._replace(subs=subs, next_seq=seq, late=batch.late, codec=batch.codec)
        self.rows += len(batch.keys)

    def _slid(self, state: State, to: int) -> State:
        """The state once a later sub-window is open (the lock is held)."""
        panes = self.settings.panes
        if state.pane != NOTHING and self.watchers:
            # Behind a silence of more than the span all are empty: one of them is told.
            for watcher in self.watchers:
                watcher.slid(state.pane, min(to, state.pane + panes + 1), state)
        if to - state.pane < panes:  # those there are lie in (state.pane - panes, state.pane]
            kept = dict(state.subs)
            for pane in range(state.pane - panes + 1, to - panes + 1):
                kept.pop(pane, None)
        else:
            kept = {pane: sub for pane, sub in state.subs.items() if pane > to - panes}
        gone = len(state.subs) - len(kept)
        if gone:
            self.dropped += gone
            if not self.dataset.stopping:
                # Large memory is given back in the background: the last reference goes there.
                self.dataset.submit(partial(_let_go, [state.subs]))
        return state._replace(subs=kept, pane=to)

    def _publish(self, sub: Sub) -> None:
        self.state = self.state._replace(subs={**self.state.subs, sub.pane: sub})

    @property
    def segments_used(self) -> int:
        """What its memory takes of the budget."""
        return self.memory_bytes // (SEGMENT * 8)

    @property
    def memory_bytes(self) -> int:
        """Bytes of the sub-windows in memory."""
        return sum(sub.memory_bytes for sub in self.state.subs.values())

    # ---- interrupted calls (as documents/engine.py) ------------------------------------------

    def finish_call(self) -> None:
        """Bring a write to its end that was interrupted (the lock is held)."""
        self.finish_write()

    def sheltered(self, work: Callable[[], None]) -> None:
        """Run something of many steps that nothing can cut (`writing` is held)."""
        self.unfinished = None, self.store.log.frames
        self.dataset.shelter.run(work)
        self.unfinished = None

    def settle(self) -> None:
        """Bring what was cut to its end (`writing` is held)."""
        if self.unfinished is not None:
            self.dataset.shelter.finish()
            self.store.log.repair()
            with self.lock:
                self.finish_write()
                self.unfinished = None


def codec_of(state: State) -> Codec:
    if state.codec is None:
        raise InvalidRequest("nothing has been appended yet")
    return state.codec


def mapped_count(sub: Sub) -> int:
    """How many of its runs are components: the first ones."""
    count = 0
    while count < len(sub.runs) and is_mapped(sub.runs[count]):
        count += 1
    return count


def _let_go(held: list[Any]) -> None:
    held.clear()
