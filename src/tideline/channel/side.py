"""One index of a channel: memory windows and a tree of sealed components.

Layout `dual` has one side, which holds both lists of a place; `two` has a side for subscriptions
and one for events. The side of the events, the last one, also has the marks (kernels/told.py): in
memory in windows of their own, sealed in a tree of their own.

Under the engine's lock.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tideline.addresses import address_of
from tideline.index.memory import Memory
from tideline.index.sealed import SealedReader
from tideline.index.told import ToldReader
from tideline.kernels import layout as at
from tideline.lsm.dataset import Seal
from tideline.lsm.tree import Tree

__all__ = ["Side"]

Words = NDArray[np.int64]


class Side:
    """One index: its memory windows and its sealed components."""

    def __init__(
        self, memory: Memory, tree: Tree[SealedReader], told: Tree[ToldReader] | None = None
    ) -> None:
        self.memory = memory
        self.tree = tree
        self.told = told
        self.seal: Seal | None = None
        """A window on its way to disk."""
        self._table: Words = np.zeros(at.D_WORDS, np.int64)
        self._told_table: Words = np.zeros(at.T_WORDS, np.int64)

    @property
    def trees(self) -> list[Tree[Any]]:
        """All trees of this side."""
        return [self.tree] if self.told is None else [self.tree, self.told]

    def refresh(self) -> None:
        """Tell the kernels which components there are."""
        state = self.memory.state
        readers = self.tree.readers
        if readers:
            self._table = np.concatenate([reader.row for reader in readers])
        state[at.E_COMPONENTS] = address_of(self._table)
        state[at.E_COMPONENT_COUNT] = len(readers)
        if self.told is not None:
            if self.told.readers:
                self._told_table = np.concatenate([reader.row for reader in self.told.readers])
            state[at.E_TOLD_COMPONENTS] = address_of(self._told_table)
            state[at.E_TOLD_COMPONENT_COUNT] = len(self.told.readers)

    def drop_expired(self, now: int) -> None:
        """Leave out the components in which nothing is valid any more."""
        if sum([tree.drop_expired(now) for tree in self.trees]):
            self.refresh()
