"""The disk side of one index: its components, their readers, and the policy over them.

    memory component --seal--> components --merge--> components --drop--> gone
                                    (policy decides)

What a component holds is the business of a *kind*, which plugs in here. Writing (`write`) takes
no lock and may run in the background. `apply` changes what searches see, from any n components
to any m, and is called under the owner's lock. Files are deleted (`sweep`) only after the
manifest has stopped naming them.

Components are kept oldest to newest: those of a higher level are older. Of two that overlap, the
one that comes later has the newer records.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from tideline.lsm.component import Component, ComponentInfo, Product, write_component
from tideline.lsm.policy import Merge, Policy

__all__ = ["Kind", "MergeContext", "Reader", "Tree", "Work"]


class Reader(Protocol):
    """An open component as its kind reads it."""

    component: Component

    def check(self) -> None:
        """Verify checksum and invariants, or raise `Corruption`."""
        ...


R = TypeVar("R", bound=Reader)


@dataclass(frozen=True)
class MergeContext:
    """What a kind is told when it merges components."""

    now: int = 0
    """The owner's time: what has expired by then may be left out."""
    cut_bytes: int | None = None
    """About how large a product may be; None: everything in one."""
    hides: bool = True
    """Whether an older component may have what a delete in these hides: then deletes stay."""
    owner: Any = None
    """What only the dataset of this kind knows: see the kind."""
    partition: str | None = None
    """How entries of places are cut apart, where the policy says so (tiles.py)."""


class Kind(Protocol[R]):
    """How components of one kind are made, opened and merged."""

    name: str

    def open(self, component: Component) -> R:
        """A reader over an open component."""
        ...

    def seal(self, memory: Any, context: Any) -> Sequence[Product]:
        """A frozen memory as components: mostly one, none when there is nothing in it.

        `context` is what the dataset knows of this memory: see the kind.
        """
        ...

    def merge(self, readers: Sequence[R], context: MergeContext) -> Sequence[Product]:
        """Components made of others, which come oldest first; none when nothing is left."""
        ...


class Work(NamedTuple):
    """A merge that is due, with the readers of its components."""

    merge: Merge
    readers: list[Any]


class Tree(Generic[R]):
    """Components of one index, oldest to newest."""

    def __init__(
        self, folder: Path, name: str, kind: Kind[R], policy: Policy,
        next_number: Callable[[], int], *, sync: bool,
    ) -> None:  # fmt: skip
        self.folder = folder
        self.name = name
        self.kind = kind
        self.policy = policy
        self.readers: list[R] = []
        self.dropped = 0
        self._next_number = next_number
        self._sync = sync
        self._gone: list[Component] = []

    def load(self, infos: Sequence[ComponentInfo], now: int) -> None:
        """Open and verify the components a manifest names; expired ones are not read."""
        expired = {info.name for info in self.policy.drops(infos, now)}
        for info in infos:
            if info.name in expired:
                self.dropped += 1
                (self.folder / info.name).unlink(missing_ok=True)
            else:
                self.readers.append(self.kind.open(Component.open(self.folder, info)))

    @property
    def infos(self) -> list[ComponentInfo]:
        """What the manifest has to say."""
        return [reader.component.info for reader in self.readers]

    @property
    def size_bytes(self) -> int:
        """Bytes of the components on disk."""
        return sum(info.size_bytes for info in self.infos)

    def write(self, product: Product, level: int = 0) -> R:
        """Write a component; it does not count before `apply`."""
        info = write_component(
            self.folder, self._next_number(), product, kind=self.kind.name, level=level,
            sync=self._sync,
        )  # fmt: skip
        return self.kind.open(Component.open(self.folder, info, verify=False))

    def write_all(self, products: Sequence[Product], level: int = 0) -> list[R]:
        """Write some components, all of them or, after an error, none."""
        made: list[R] = []
        try:
            for product in products:
                made.append(self.write(product, level))  # noqa: PERF401
        except BaseException:
            for reader in made:
                reader.component.drop()
            raise
        return made

    def apply(self, added: Sequence[R], removed: Sequence[R] = (), *, oldest: bool = False) -> bool:
        """Put components in the place of others, in one step.

        `oldest`: what is added is older than all there is, and gets the level of the oldest:
        at a lower one it would come after it. False, and nothing has changed, when one of those
        to remove is gone by now; what was added is then deleted with the next sweep.
        """
        if any(reader not in self.readers for reader in removed):
            self._gone.extend(reader.component for reader in added)
            return False
        at = 0 if oldest else len(self.readers)
        if oldest and self.readers:
            level = self.readers[0].component.info.level
            for reader in added:
                reader.component.info = replace(reader.component.info, level=level)
        if removed:
            at = min(self.readers.index(reader) for reader in removed)
        before = [reader for reader in self.readers[:at] if reader not in removed]
        after = [reader for reader in self.readers[at:] if reader not in removed]
        self.readers = _in_levels([*before, *added, *after])
        self._gone.extend(reader.component for reader in removed)
        return True

    def move(self, reader: R, level: int) -> bool:
        """Give a component another level; its file stays. False when it is gone by now."""
        if reader not in self.readers:
            return False
        reader.component.info = replace(reader.component.info, level=level)
        self.readers = _in_levels(self.readers)
        return True

    def hides(self, group: Sequence[R], by: str) -> bool:
        """Whether a component that is not in the group may have older records of its range.

        `by` names the filter that says which records two components may share.
        """
        last = max(self.readers.index(reader) for reader in group)
        ranges = [reader.component.info.filters.get(by) for reader in group]
        for older in self.readers[:last]:
            own = older.component.info.filters.get(by)
            if older not in group and any(
                own is None or each is None or own.meets(each) for each in ranges
            ):
                return True
        return False

    def drop_expired(self, now: int) -> int:
        """Leave out the components in which nothing is valid. Returns how many."""
        names = {info.name for info in self.policy.drops(self.infos, now)}
        gone = [reader for reader in self.readers if reader.component.info.name in names]
        if gone:
            self.readers = [reader for reader in self.readers if reader not in gone]
            self._gone.extend(reader.component for reader in gone)
            self.dropped += len(gone)
        return len(gone)

    def merges(self, now: int) -> list[Work]:
        """What the policy wants merged."""
        by_name = {reader.component.info.name: reader for reader in self.readers}
        return [
            Work(merge, [by_name[info.name] for info in merge.inputs])
            for merge in self.policy.merges(self.infos, now)
        ]

    @property
    def has_waste(self) -> bool:
        """Whether files wait to be deleted."""
        return bool(self._gone)

    @property
    def waste(self) -> list[Component]:
        """The components that no longer count; `sweep` them once the manifest is saved."""
        return list(self._gone)

    def sweep(self, waste: Sequence[Component]) -> None:
        """Delete files that no manifest names any more."""
        for component in waste:
            component.drop()
            self._gone.remove(component)

    def check(self) -> None:
        """Verify every component."""
        for reader in list(self.readers):
            reader.check()

    def close(self) -> None:
        """Let go of the files."""
        for reader in self.readers:
            reader.component.close()
        self.readers = []


def _in_levels(readers: list[R]) -> list[R]:
    """The higher levels first; the order inside a level stays."""
    return sorted(readers, key=lambda reader: -reader.component.info.level)
