"""An index of a collection that is kept apart from the documents: its tree, and a view of it.

The view has all there is of the index, in memory and in components. It is made anew whenever a
generation freezes or a component comes or goes.

The owner's lock is held during every call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tideline.documents.generation import Generation
from tideline.index.kind import IndexKind
from tideline.lsm.policy import Policy
from tideline.lsm.store import Store
from tideline.lsm.tree import Tree

__all__ = ["Index"]


class Index:
    """Entries of one field."""

    def __init__(self, field: str, kind: IndexKind, store: Store, policy: Policy) -> None:
        self.field = field
        self.kind = kind
        self.tree: Tree[Any] = Tree(
            store.folder, f"index {field} {kind.name}", kind, policy, store.next_component,
            sync=store.sync,
        )  # fmt: skip
        self.view = kind.view([], [])

    def refresh(self, generations: Sequence[Generation]) -> None:
        """What there is now; generations newest first."""
        memories = [g.indexes[self.field] for g in generations if self.field in g.indexes]
        readers = list(reversed(self.tree.readers))
        self.view = self.kind.view(memories, readers)
        if self.field in generations[0].indexes:
            self.kind.refreshed(memories[0], self.kind.view(memories[1:], readers))
