"""Closed and large sub-windows become one run: in memory, or as a component.

    a slide          each closed sub-window that has more than one run, or a tail: joined in the
                     background; from 1 MiB on as a component
    memory is short  the largest sub-window, the open one too
    log is long      the one whose rows begin first in it

What freezes stays as it is until its seal is done, and new rows lie beside it. Fields and locks are
those of publishing.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from tideline.clock import FOREVER
from tideline.index.keyruns import Run, RunReader, join_runs
from tideline.kernels.layout import SEGMENT
from tideline.lsm.component import Product
from tideline.lsm.dataset import Seal
from tideline.lsm.filter import MinMax
from tideline.lsm.tree import MergeContext, Tree, Work
from tideline.stream.memory import NOTHING, Sub
from tideline.stream.publishing import Publishing, codec_of, mapped_count

__all__ = ["Sealing"]

_FROZEN = 4  # sub-windows that wait to be sealed: with one more, writers wait
_LOG_BYTES = 256 << 20


class Sealing(Publishing):
    """Seals of sub-windows."""

    _disk_bytes: int
    _memory_bytes: int | None
    _freezing: dict[int, int]
    """By sub-window: the first log segment of what freezes."""
    _rejoining: set[int]

    @property
    def time(self) -> int:
        """The time by which components expire."""
        raise NotImplementedError

    def _after_slide(self) -> None:
        """Let go of expired components, and seal what has closed (`writing` is held)."""
        with self.lock:
            gone = self.tree.drop_expired(self.time)
            if gone:
                self.refresh()
        for pane, sub in self.state.subs.items():
            if pane < self.state.pane:
                self._seal_soon(sub)
        if not self.dataset.stopping:
            self.dataset.tidy_soon()

    def _seal_soon(self, sub: Sub) -> None:
        if sub.pane in self._freezing or sub.pane in self._rejoining:
            return
        if self._logged and sub.memory_bytes >= self._disk_bytes:
            self.sheltered(partial(self._freeze, sub.pane))
        elif sub.tail is not None or len(sub.runs) - mapped_count(sub) > 1:
            with self.lock:
                self._hold(sub.pane)
                self._rejoining.add(sub.pane)
            self.dataset.submit_seal(partial(self._rejoin, sub.pane))

    def _hold(self, pane: int) -> Sub:
        """What a sub-window has stays as it is until its seal (the lock is held)."""
        state = self.state
        sub = state.subs[pane].flushed(codec_of(state), last=self.settings.last)
        sub = sub._replace(frozen=len(sub.runs))
        self.state = state._replace(subs={**state.subs, pane: sub})
        return sub

    def _rejoin(self, pane: int) -> None:
        """Make one run, in memory, of what a closed sub-window has in memory."""
        sub, codec = self.state.subs.get(pane), codec_of(self.state)
        joined: Run | None = None
        if sub is not None:
            held = sub.runs[mapped_count(sub) : sub.frozen]
            try:
                joined = join_runs(held, codec, last=self.settings.last)
                joined.span((0, 0) if codec.is_packed else (b"", b""))  # makes its directory
                if self.indexes is not None:
                    self.indexes.build(joined)
            except BaseException:  # no memory: it stays as it is, and may be sealed
                with self.lock:
                    self._rejoining.discard(pane)
                raise
        with self.lock:
            self.finish_write()
            self._rejoining.discard(pane)
            sub = self.state.subs.get(pane)
            if sub is not None and joined is not None:
                mapped = mapped_count(sub)
                runs = (*sub.runs[:mapped], joined, *sub.runs[sub.frozen :])
                self._publish(sub._replace(runs=runs, frozen=mapped))

    def _make_room(self) -> None:
        """Freeze the largest sub-windows while memory or log is short (`writing` is held)."""
        while True:
            subs = [
                sub for pane, sub in self.state.subs.items()
                if pane not in self._freezing and pane not in self._rejoining
            ]  # fmt: skip
            if sum(sub.memory_bytes for sub in subs) > self._most_bytes:
                chosen = max(subs, key=lambda sub: sub.memory_bytes)
            elif self._freezing and self.memory_bytes > 2 * self._most_bytes:
                # What is being sealed goes on growing, faster than it is sealed: writers wait.
                self.sheltered(partial(self.dataset.wait_for_room, 1))
                continue
            elif self._log_is_long():
                chosen = min(subs, key=lambda sub: sub.first_log, default=Sub(0))
            else:
                return
            if chosen.first_log == FOREVER and not chosen.memory_bytes:
                return
            self.sheltered(partial(self._freeze, chosen.pane))

    @property
    def _most_bytes(self) -> int:
        """The memory it may take."""
        return self._memory_bytes or int(self.budget.left_for(self)) * SEGMENT * 8

    def _log_is_long(self) -> bool:
        if not self._logged:
            return False
        first = min((sub.first_log for sub in self.state.subs.values()), default=FOREVER)
        limit = max(_LOG_BYTES, self.budget.size_bytes)
        return first < self.store.log.mark and self.store.log.size_from(first) > limit

    def _freeze(self, pane: int) -> None:
        """Have what a sub-window has in memory written as a component (sheltered)."""
        self.dataset.wait_for_room(_FROZEN)
        self.store.log.rotate()
        with self.lock:
            busy = pane in self._freezing or pane in self._rejoining
            seal = None if busy or pane not in self.state.subs else self._frozen(pane)
        if seal is not None:
            self.dataset.freeze(seal)

    def _frozen(self, pane: int) -> Seal:
        """What seals all that a sub-window has in memory (the lock is held, or nobody else is)."""
        sub = self._hold(pane)
        self._freezing[pane] = sub.first_log
        self._publish(sub._replace(first_log=FOREVER))
        span = MinMax(min(sub.low, sub.version - 1), sub.version - 1)
        return Seal(partial(self._products, pane, span), partial(self._done, pane))

    def _products(self, pane: int, span: MinMax) -> Iterator[tuple[Tree[Any], Sequence[Product]]]:
        sub = self.state.subs.get(pane)
        if sub is None:  # the window has slid over it
            return
        held = sub.runs[mapped_count(sub) : sub.frozen]
        run = join_runs(held, codec_of(self.state), last=self.settings.last)
        until = (pane + self.settings.panes) * self.settings.slide_us
        filters = {"until": MinMax(until, until), "seq": span}
        yield self.tree, self.tree.kind.seal(run, (pane, filters))

    def _done(self, pane: int) -> None:
        """Its component counts: what froze goes (the lock is held, `refresh` follows)."""
        self._freezing.pop(pane, None)
        sub = self.state.subs.get(pane)
        if sub is not None:
            mapped = self._components(pane)
            self._publish(sub._replace(runs=(*mapped, *sub.runs[sub.frozen :]), frozen=len(mapped)))

    def _components(self, pane: int) -> tuple[Run, ...]:
        return tuple(reader.run for reader in self.tree.readers if reader.pane == pane)

    def refresh(self) -> None:
        """Components came or went: the sub-windows have those there are (the lock is held)."""
        state, panes = self.state, self.settings.panes
        subs = dict(state.subs)
        of: dict[int, list[RunReader]] = {}
        for reader in self.tree.readers:
            of.setdefault(reader.pane, []).append(reader)
        for pane, readers in of.items():
            if state.pane != NOTHING and pane <= state.pane - panes:
                continue
            sub = subs.get(pane) or Sub(pane)
            before = mapped_count(sub)
            mapped = tuple(reader.run for reader in readers)
            if sub.runs[:before] != mapped:
                frozen = max(sub.frozen, before) - before + len(mapped)
                high = max(reader.seqs.high for reader in readers) + 1
                subs[pane] = sub._replace(
                    runs=(*mapped, *sub.runs[before:]), frozen=frozen,
                    version=max(sub.version, high), sealed=high,
                )  # fmt: skip
        self.state = state._replace(subs=subs)

    def merge_context(self, tree: Tree[Any], work: Work) -> MergeContext:
        """Keys become those of the codec there is now."""
        return MergeContext(owner=codec_of(self.state))
