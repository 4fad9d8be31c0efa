"""What live queries give: the changes of a result, and how one is kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import msgspec

__all__ = ["LiveChange", "WatchPlan"]


class LiveChange(msgspec.Struct, eq=False, gc=False):
    """One step of the result of a live query.

    Apply them in order: "add" puts `document` at `index`; "remove" takes what is at `old_index`
    away; "change" puts `document` in the place of what is there; "changeIndex" does that and moves
    it. Without positions, an "add" and a "change" make their document the newest.

    >>> change = LiveChange("change", 1, 7, 0, 0, b'{"id": 1, "n": 2}', b'{"id": 1, "m": 0}')
    >>> change.document, change.fields, change.gone
    ({'id': 1, 'n': 2}, {'n': 2}, ['m'])
    """

    kind: Literal["add", "change", "changeIndex", "remove"]
    key: Any
    """The key of the document; of groups the value that they are grouped by, or a tuple of them."""
    version: int
    """The seq of the write that made it; one write may make several changes."""
    old_index: int | None
    """Where it was; None for "add", and for queries without positions."""
    index: int | None
    """Where it is; None for "remove", and for queries without positions."""
    raw: bytes | None
    """The document as JSON text; None for "remove"."""
    raw_before: bytes | None = None
    """What the result had before, as JSON text; None for "add"."""
    _document: Any = msgspec.UNSET
    _before: Any = msgspec.UNSET

    @property
    def document(self) -> dict[str, Any] | None:
        """The document from this version on; None for "remove"."""
        if self._document is msgspec.UNSET:
            self._document = None if self.raw is None else msgspec.json.decode(self.raw)
        found: dict[str, Any] | None = self._document
        return found

    @property
    def before(self) -> dict[str, Any] | None:
        """The document that the result had until this version; None for "add"."""
        if self._before is msgspec.UNSET:
            self._before = None if self.raw_before is None else msgspec.json.decode(self.raw_before)
        found: dict[str, Any] | None = self._before
        return found

    @property
    def known_document(self) -> Any:
        """The document if it was decoded before, else None."""
        return None if self._document is msgspec.UNSET else self._document

    @property
    def fields(self) -> dict[str, Any]:
        """What of the document is new or different: all of it for "add"."""
        document, before = self.document or {}, self.before or {}
        return {
            name: value for name, value in document.items()
            if name not in before or not _same(value, before[name])
        }  # fmt: skip

    @property
    def gone(self) -> list[str]:
        """The fields that the document had before and has no more; none for "remove"."""
        document = self.document
        return (
            [] if document is None else [name for name in self.before or {} if name not in document]
        )

    def __repr__(self) -> str:
        places = {"old_index": self.old_index, "index": self.index}
        shown = "".join(f", {name}={at}" for name, at in places.items() if at is not None)
        return (f"LiveChange({self.kind!r}, key={self.key!r}, version={self.version}{shown}, "
                f"document={self.document!r})")  # fmt: skip


def _same(one: Any, other: Any) -> bool:
    """Whether two JSON values are the same: 1 is neither True nor 1.0."""
    return type(one) is type(other) and one == other and (
        not isinstance(one, (dict, list)) or msgspec.json.encode(one) == msgspec.json.encode(other)
    )  # fmt: skip


@dataclass(frozen=True)
class WatchPlan:
    """What `Collection.explain_watch` tells: how a live query is kept up to date, at what cost."""

    filed: str
    """What of a write leads to it, as "value on shop"; or that it is always looked at."""
    indexed: bool
    """Whether a write that does not concern it passes by without looking at it."""
    beside: int
    """How many queries, with this one, a write is held against that is filed in the same place."""
    standing: int
    """How many different queries stand now."""
    kept: int | None
    """How many documents are kept for it beside what its readers keep; None: all that it finds."""
    shared: int
    """How many watch this very query already."""

    def __str__(self) -> str:
        kept = "its whole result" if self.kept is None else f"{self.kept} documents"
        return (f"{self.filed}, with {self.beside - 1} others; keeps {kept}; "
                f"{self.standing} queries stand, {self.shared} watch this one")  # fmt: skip
