"""The disk side of one index: its components, their readers, and the policy over them.

    memory component --seal--> component --merge--> component --drop--> gone
                                 (policy decides)

What a component holds is the business of a *kind*, which plugs in here. Writing
(`write`) takes no lock and may run in the background; `install` changes what
searches see and is called under the owner's lock; files are deleted (`sweep`) only
after the manifest has stopped naming them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import pyarrow as pa

from tideline.lsm.component import Component, ComponentInfo, write_component
from tideline.lsm.filter import MinMax
from tideline.lsm.policy import Policy

__all__ = ["Kind", "Product", "Reader", "Tree"]


class Product(Protocol):
    """A component about to be written: what sealing or merging made.

    It may have `streams`: buffers of its table that are made while they are written.
    """

    @property
    def table(self) -> pa.Table: ...
    @property
    def rows(self) -> int: ...
    @property
    def filters(self) -> dict[str, MinMax]: ...
    @property
    def extra(self) -> dict[str, Any]: ...


class Reader(Protocol):
    """An open component as its kind reads it."""

    component: Component

    def check(self) -> None:
        """Verify checksum and invariants, or raise `Corruption`."""
        ...


R = TypeVar("R", bound=Reader)
R_co = TypeVar("R_co", bound=Reader, covariant=True)


class Kind(Protocol[R_co]):
    """What an index plugs in."""

    name: str

    def open(self, component: Component) -> R_co:
        """A reader over an open component."""
        ...


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

    def write(self, product: Product) -> R:
        """Write a component; it does not count before `install`."""
        info = write_component(
            self.folder,
            self._next_number(),
            product.table,
            kind=self.kind.name,
            rows=product.rows,
            filters=product.filters,
            extra=product.extra,
            sync=self._sync,
            streams=getattr(product, "streams", ()),
        )
        return self.kind.open(Component.open(self.folder, info, verify=False))

    def install(self, added: R | None, removed: Sequence[R] = ()) -> bool:
        """Put a component in the place of others. False when one of those is gone by now."""
        if any(reader not in self.readers for reader in removed):
            if added is not None:
                self._gone.append(added.component)
            return False
        at = self.readers.index(removed[0]) if removed else len(self.readers)
        self.readers = [reader for reader in self.readers if reader not in removed]
        if added is not None:
            self.readers.insert(min(at, len(self.readers)), added)
        self._gone.extend(reader.component for reader in removed)
        return True

    def drop_expired(self, now: int) -> int:
        """Leave out the components in which nothing is valid. Returns how many."""
        names = {info.name for info in self.policy.drops(self.infos, now)}
        gone = [reader for reader in self.readers if reader.component.info.name in names]
        if gone:
            self.readers = [reader for reader in self.readers if reader not in gone]
            self._gone.extend(reader.component for reader in gone)
            self.dropped += len(gone)
        return len(gone)

    def merges(self, now: int) -> list[list[R]]:
        """Groups of readers the policy wants merged."""
        by_name = {reader.component.info.name: reader for reader in self.readers}
        return [
            [by_name[info.name] for info in group] for group in self.policy.merges(self.infos, now)
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
