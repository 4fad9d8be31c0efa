"""What a handle was given, what of it was handed out, and the result with that.

    pending   [ handed out | next ...        ]        in the order of versions
    result    as it was before the first change that is not applied yet

Handing out moves a number. All else is done under the hub's lock, where nothing can cut it.

A version may have several changes. One of which some were handed out, *begun*, is told to its end,
whatever happens to the rest; a token says how many of them were.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tideline.live.difference import added, changed, removed
from tideline.live.item import Item
from tideline.model import LiveChange

__all__ = ["Handed", "State", "apply_change", "net"]

_NO_VERSIONS: frozenset[int] = frozenset()
State = list[Item] | dict[Any, Item]
"""A result with positions; or without, by key and oldest first."""


class Handed:
    """The changes of one handle."""

    __slots__ = ("_applied", "_at", "_base", "_inexact", "_pending", "_state", "_upto")

    def __init__(self) -> None:
        self._state: State | None = None  # with the first `_applied` changes
        self._pending: Sequence[LiveChange] = ()  # a list once there was something
        self._at = 0  # so many of them were handed out
        self._applied = 0
        self._base = 0  # the version before the first of them
        self._inexact = _NO_VERSIONS  # their versions that were told as differences
        self._upto = 0  # the version after the last of them

    def _hand_out(self, most: int | None) -> list[LiveChange]:
        at, pending = self._at, self._pending
        limit = len(pending) if most is None else min(at + most, len(pending))
        found = list(pending[at:limit])
        self._at = limit
        return found

    def _stands_at(self) -> tuple[int, int, bool]:
        """The last version that was told whole, how many changes of the next were handed out,
        and whether these would come again as they were."""
        pending, at = self._pending, self._at
        if at == len(pending):
            return self._upto, 0, True
        following = pending[at].version
        first = at
        while first and pending[first - 1].version == following:
            first -= 1
        if first < at:
            return following - 1, at - first, following not in self._inexact
        return (pending[at - 1].version if at else self._base), 0, True

    def _had(self, begun: int) -> State:
        """The result when the version that was begun is told to its end; a copy."""
        state = self._state
        assert state is not None
        had = dict(state) if isinstance(state, dict) else list(state)
        for change in self._pending[self._at : begun]:
            apply_change(had, change)
        return had

    def _begun(self) -> int:
        """Up to which change a version goes of which some were handed out already."""
        pending, at = self._pending, self._at
        limit = at
        if at:
            while limit < len(pending) and pending[limit].version == pending[at - 1].version:
                limit += 1
        return limit

    def _replace(self, begun: int, changes: list[LiveChange]) -> None:
        """Hand out these instead of what is pending, but for a version that was begun."""
        kept = self._pending[:begun]
        self._pending = [*kept, *changes]
        told = {change.version for change in changes[:1]}
        self._inexact = frozenset(told | {one.version for one in kept[-1:]} & self._inexact)

    def _apply_handed_out(self) -> None:
        """Bring the result up to what was handed out."""
        state = self._state
        if state is not None:
            for change in self._pending[self._applied : self._at]:
                apply_change(state, change)
        self._applied = self._at

    def _drop_handed_out(self) -> None:
        """Let go of what was handed out, but for a version that was in part."""
        pending, at = self._pending, self._at
        first = at
        if at < len(pending):
            while first and pending[first - 1].version == pending[at].version:
                first -= 1  # it may be asked for by `token`
            if first:
                self._base = pending[first - 1].version
        elif at:
            self._base, self._inexact = self._upto, _NO_VERSIONS
        if first:
            self._pending = pending[first:] or ()
            self._at -= first
            self._applied -= first


def apply_change(state: State, change: LiveChange) -> None:
    """Bring a result up to a change: in order, or without positions and oldest first."""
    item = None if change.raw is None else Item(change.key, change.raw, change.known_document)
    if isinstance(state, dict):
        state.pop(change.key, None)
        if item is not None:
            state[change.key] = item
        return
    if change.old_index is not None:
        del state[change.old_index]
    if change.index is not None:
        assert item is not None
        state.insert(change.index, item)


def net(changes: Iterable[LiveChange], version: int) -> list[LiveChange]:
    """What changes without positions come to in the end."""
    first: dict[Any, bytes | None] = {}
    last: dict[Any, bytes | None] = {}
    for change in changes:
        first.setdefault(change.key, change.raw_before)
        last.pop(change.key, None)  # the newest comes last
        last[change.key] = change.raw
    made: list[LiveChange] = []
    for key, raw in last.items():
        before = first[key]
        if raw is None:
            if before is not None:
                made.append(removed(Item(key, before), version, None))
        elif before is None:
            made.append(added(Item(key, raw), version, None))
        else:
            made.append(changed(Item(key, before), Item(key, raw), version, None, None))
    return made
