"""A stand-alone index of a collection: its tree, and a view of all there is of it.

The view is made anew whenever a generation freezes or a component comes or goes. An eager index
also looks back: a value that is new in its active memory begins with the newest older list.

The owner's lock is held during every call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tideline.documents.generation import Generation
from tideline.index.entries import EntryKind
from tideline.index.entryview import View
from tideline.lsm.policy import Policy
from tideline.lsm.store import Store
from tideline.lsm.tree import Tree

__all__ = ["Index"]


class Index:
    """Entries of one field, kept apart from the documents."""

    def __init__(self, field: str, name: str, store: Store, policy: Policy, *, seed: int) -> None:
        self.field = field
        self.kind = EntryKind(name, seed=seed)
        self.tree: Tree[Any] = Tree(
            store.folder, f"index {field} {name}", self.kind, policy, store.next_component,
            sync=store.sync,
        )  # fmt: skip
        self.view = View(self.kind, [], [])

    def refresh(self, generations: Sequence[Generation]) -> None:
        """What there is now; generations newest first."""
        memories = [g.alone[self.field] for g in generations if self.field in g.alone]
        self.view = View(self.kind, memories, list(reversed(self.tree.readers)))
        if self.kind.eager and self.field in generations[0].alone:
            older = View(self.kind, memories[1:], self.view.readers)
            generations[0].alone[self.field].look_back(older)
