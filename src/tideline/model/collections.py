"""What collections give: changes, the outcome of writes, and how a question was answered."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from tideline.errors import InvalidRequest

if TYPE_CHECKING:
    import pyarrow as pa


__all__ = [
    "Advice", "Change", "CollectionStats", "ComponentsRead", "Considered", "Explanation",
    "IndexStats", "Nearest", "Stored", "Updated", "Versioned",
]  # fmt: skip


class Change(msgspec.Struct, eq=False, gc=False):
    """One write to a collection: what a key had before it and has after it.

    The texts are as they were stored; `before` and `after` decode them when they are first asked
    for.

    >>> change = Change(7, "a", b'{"id": "a", "n": 2}', None)
    >>> change.after, change.before, change.is_delete
    ({'id': 'a', 'n': 2}, None, False)
    """

    seq: int
    """The number of the write: 1, 2, 3 and so on."""
    key: int | str
    raw_after: bytes | None
    """The document as JSON text; None for a delete."""
    raw_before: bytes | msgspec.UnsetType | None = msgspec.UNSET
    """The document that it replaced or deleted, None if there was none; unset if not asked for."""
    _after: Any = msgspec.UNSET
    _before: Any = msgspec.UNSET

    @property
    def after(self) -> dict[str, Any] | None:
        """The document from this write on; None for a delete."""
        if self._after is msgspec.UNSET:
            self._after = None if self.raw_after is None else msgspec.json.decode(self.raw_after)
        found: dict[str, Any] | None = self._after
        return found

    @property
    def before(self) -> dict[str, Any] | None:
        """The document until this write; None if there was none. Asked for with before=True."""
        if self._before is msgspec.UNSET:
            raw = self.raw_before
            if isinstance(raw, msgspec.UnsetType):
                raise InvalidRequest("old versions were not asked for: use changes(before=True)")
            self._before = None if raw is None else msgspec.json.decode(raw)
        found: dict[str, Any] | None = self._before
        return found

    @property
    def is_delete(self) -> bool:
        """Whether there is no document after it."""
        return self.raw_after is None

    def __repr__(self) -> str:
        before = "" if self.raw_before is msgspec.UNSET else f", before={self.before!r}"
        return f"Change(seq={self.seq}, key={self.key!r}{before}, after={self.after!r})"


@dataclass(frozen=True)
class Stored:
    """What `Collection.put_many` returns."""

    stored: int
    """How many documents are stored now."""
    rejected: pa.Table
    """row, reason. The rows that are not in it are stored."""


class Versioned(NamedTuple):
    """A document with its version, from `Collection.versioned`."""

    document: dict[str, Any]
    version: int
    """The seq of the write that made it: every write gives a document another, greater one."""


@dataclass(frozen=True)
class Updated:
    """What `Collection.update_many` returns."""

    matched: int
    """How many documents met the condition."""
    changed: int
    """How many of them are different now: these have a new version."""


class Nearest(NamedTuple):
    """A document that `Collection.nearest` found, and how far it is."""

    document: dict[str, Any]
    metres: float
    """To the nearest point of its place, along the great circle."""


@dataclass(frozen=True)
class Considered:
    """A way to find documents that the planner weighed."""

    way: str
    """"key" or "keys" (by primary key, one or a range), "index", "intersection" or "scan"."""
    field: str | None
    """Of an intersection, the fields of its indexes: "at and name"; so are the kinds."""
    kind: str | None
    ranges: tuple[str, ...]
    documents: float
    """How many documents it would look at."""
    blocks: float
    """How many blocks of about 4 KiB it would read."""
    cost: float
    why: str
    """Why it was taken, or not."""


@dataclass(frozen=True)
class ComponentsRead:
    """What was searched of an index, or of the documents, and what was skipped unread."""

    field: str | None
    """Of the index; None for the documents themselves."""
    searched: int
    """Components; what is in memory is searched beside them."""
    skipped: int
    why: tuple[str, ...] = ()
    """Why components were skipped."""
    candidates: int | None = None
    """Of an index that was intersected with others: how many it gave; None if it was not asked."""
    left: int | None = None
    """How many all of them gave together."""

    def __str__(self) -> str:
        """In a line.

        >>> print(ComponentsRead("at", 2, 5, ("5 by the filter: time in [7, 9]",), 40, 3))
        the index on at: 2 components searched, 5 skipped (5 by the filter: time in [7, 9]); \
40 candidates, 3 of them in all indexes
        """
        name = "the documents" if self.field is None else f"the index on {self.field}"
        why = f" ({'; '.join(self.why)})" if self.why else ""
        found = f"{name}: {self.searched} components searched, {self.skipped} skipped{why}"
        if self.candidates is None:
            return found
        return f"{found}; {self.candidates} candidates, {self.left} of them in all indexes"


@dataclass(frozen=True)
class Explanation:
    """What `Collection.explain` tells: how a condition is answered, and what that took."""

    chosen: tuple[Considered, ...]
    """One way, or one for each part of an `$or`; none when nothing can meet the condition."""
    others: tuple[Considered, ...]
    blocks_expected: float
    blocks_read: int
    documents_expected: float
    looked_at: int
    found: int
    bloom_checks: int
    bloom_false: int
    """How often a bloom filter said yes and was wrong."""
    why: str | None = None
    """Why there is no way, when there is none."""
    components: tuple[ComponentsRead, ...] = ()
    """Of each index, and of the documents, that was searched for them."""

    def __str__(self) -> str:
        lines = [] if self.why is None else [f"* no way: {self.why}"]
        for mark, ways in (("*", self.chosen), (" ", self.others)):
            for way in ways:
                what = way.way if way.field is None else f"{way.way} on {way.field}"
                kind = "" if way.kind is None else f" ({way.kind})"
                ranges = f" in {', '.join(way.ranges[:3])}" if way.ranges else ""
                more = f" and {len(way.ranges) - 3} more" if len(way.ranges) > 3 else ""
                if way.way == "index" and way.kind is None:  # nothing was estimated
                    lines.append(f"{mark} {what}: {way.why}")
                    continue
                lines.append(f"{mark} {what}{kind}{ranges}{more}: about {way.documents:.0f} "
                             f"documents, {way.blocks:.0f} blocks; {way.why}")  # fmt: skip
        lines += [f"  {each}" for each in self.components if each.searched or each.skipped]
        lines.append(f"  read {self.blocks_read} blocks, looked at {self.looked_at} documents, "
                     f"found {self.found}")  # fmt: skip
        return "\n".join(lines)


@dataclass(frozen=True)
class Advice:
    """What `Collection.advise` says of one field."""

    field: str
    now: str | None
    """The kind of its index, if it has one."""
    kind: str | None
    """The kind that fits best; None for no index."""
    why: str
    facts: dict[str, float | int | None]
    """What was measured: shares of the operations, the k used, the correlation with time."""


@dataclass(frozen=True)
class IndexStats:
    """An index of a collection."""

    field: str
    kind: str
    state: str
    """"ready", or "building" until everything that was there is in it."""
    components: int
    bytes_disk: int
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    """Those that its kind was made with."""
    bytes_sealed: int = 0
    """Of components that were written first, since it was opened: sealed, or built."""
    bytes_merged: int = 0
    """Of components that were made of others."""

    @property
    def write_amplification(self) -> float | None:
        """How often a byte was written since it was opened; None before the first."""
        return _amplification(self.bytes_sealed, self.bytes_merged)


@dataclass(frozen=True)
class CollectionStats:
    """What a collection holds and has done since it was opened."""

    versions: int
    """Puts and deletes that are stored. What was replaced or deleted, and the deletes themselves,
    count until they are merged away: how many documents there are is for `count()` to say."""
    components: int
    bytes_memory: int
    bytes_disk: int
    bytes_log: int
    puts: int
    deletes: int
    gets: int
    lookups: int
    finds: int
    primary_blocks: int
    index_blocks: int
    bloom_checks: int
    bloom_false: int
    indexes: tuple[IndexStats, ...]
    standing_queries: int = 0
    """Different live queries that stand on it now."""
    bytes_sealed: int = 0
    """Of components of the documents that were written first, since it was opened."""
    bytes_merged: int = 0
    """Of those that were made of others."""

    @property
    def write_amplification(self) -> float | None:
        """How often a byte of the documents was written since it was opened; None before one."""
        return _amplification(self.bytes_sealed, self.bytes_merged)


def _amplification(sealed: int, merged: int) -> float | None:
    return (sealed + merged) / sealed if sealed else None
