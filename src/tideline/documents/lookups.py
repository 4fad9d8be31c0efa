"""The indexes of a collection: asked for one value or a range, made and dropped.

Asking through several at once, or by other conditions, is `find`: finding.py. Safe from any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from tideline.documents import checks
from tideline.documents.advise import Workload, kind_for
from tideline.documents.indexing import Build
from tideline.documents.types import Found
from tideline.errors import Conflict, InvalidRequest
from tideline.index.compound import SEPARATOR
from tideline.where.keys import encode, high_of, is_cut, low_of
from tideline.where.order import entries

if TYPE_CHECKING:
    from tideline.documents.finding import Finder

__all__ = ["Lookups"]

_decode = msgspec.json.Decoder().decode

Document = dict[str, Any]


class Lookups:
    """A part of `Collection`."""

    key: str
    _engine: Any
    _finder: Finder
    _workload: Workload
    _build: Build | None
    _observed: Callable[[], Workload]

    def lookup(self, field: str, value: Any, k: int | None = None) -> list[Document]:
        """The documents whose field has this value, the newest first; at most `k` of them.

        The field needs an index. One that holds an array has each of its elements; None is a
        field that is null or missing.

        >>> import tideline
        >>> db = tideline.open(":memory:")
        >>> cars = db.collection("cars", key="id", indexes={"road": "lazy"})
        >>> done = cars.put_many([{"id": 1, "road": "A1"}, {"id": 2, "road": ["A1", "B2"]}])
        >>> [car["id"] for car in cars.lookup("road", "A1", k=10)]
        [2, 1]
        >>> db.close()
        """
        self._looked_up(field)
        k = checks.count(k, "k")
        wanted = checks.scalar(value, "value")
        self._workload.looked(field, k, ranged=False)
        data = encode(wanted)
        if is_cut(data):  # it may stand for others too
            return self._checked(field, data, data, k, lambda one: one == wanted)
        found: list[Document] = _decode(self._engine.lookup_text(field, data, data, k))
        return found

    def range_lookup(
        self, field: str, low: Any = None, high: Any = None, k: int | None = None
    ) -> list[Document]:
        """The documents whose field lies from `low` to `high`, both included, newest first.

        Values of one kind: numbers, text or booleans. Without `low` or without `high` the range
        is open there.

        >>> import tideline
        >>> db = tideline.open(":memory:")
        >>> cars = db.collection("cars", key="id", indexes={"speed": "embedded"})
        >>> done = cars.put_many([{"id": n, "speed": 10 * n} for n in range(10)])
        >>> [car["id"] for car in cars.range_lookup("speed", 30, 60, k=3)]
        [6, 5, 4]
        >>> db.close()
        """
        self._looked_up(field)
        k = checks.count(k, "k")
        low, high, bracket = checks.between(low, high)
        self._workload.looked(field, k, ranged=True)
        first = low_of(bracket) if low is None else encode(low)
        last = high_of(bracket) if high is None else encode(high)
        if bracket == "text":  # a long text is cut in an index: its document has it whole
            return self._checked(
                field, first, last, k,
                lambda one: type(one) is str and (low is None or one >= low)
                and (high is None or one <= high),
                high_open=high is None,
            )  # fmt: skip
        found: list[Document] = _decode(
            self._engine.lookup_text(field, first, last, k, high_open=high is None)
        )
        return found

    def _checked(
        self, field: str, low: bytes, high: bytes, k: int | None,
        holds: Callable[[object], bool], high_open: bool = False,
    ) -> list[Document]:  # fmt: skip
        """A lookup of which every document is looked at again."""
        most = k
        view = self._engine.view()
        while True:
            found: Found = view.lookup(field, low, high, most, high_open=high_open)
            documents = [_decode(text) for text in found.docs]
            good = [one for one in documents if any(map(holds, entries(one, field)))]
            if k is None or most is None or len(good) >= k or len(documents) < most:
                return good[:k]
            most *= 4

    @property
    def indexes(self) -> dict[str, str | dict[str, Any]]:
        """The indexed fields and the kind of each index, without one that is being built.

        A kind that was made with settings is like {"kind": "ngrams", "n": 3}.
        """
        return self._finder.indexes()

    @property
    def unique(self) -> tuple[str, ...]:
        """The fields of which no two documents have one value."""
        unique: tuple[str, ...] = self._engine.unique
        return unique

    def create_index(
        self, field: str | Sequence[str], kind: str | Mapping[str, Any] | None = None, *,
        unique: bool = False, **settings: Any,
    ) -> Build:  # fmt: skip
        """Index a field of what is stored and of what will be, while everything else goes on.

        Several fields, ["road", "speed"] or "road,speed", are one index: for values of the first
        ones and a range of the next. Without a `kind` it gets the one that fits by the rules of
        `advise`. Settings of a kind are given beside it, or within: {"kind": "ngrams", "n": 3}.
        One that is there already stays as it is. A `unique` one is waited for; `Conflict`
        when documents have the same value, and then there is no index.

        Returns at once: `Build.wait()` waits, `Build.progress` tells how far it is.

        >>> import tideline
        >>> db = tideline.open(":memory:")
        >>> cars = db.collection("cars", key="id")
        >>> done = cars.put_many([{"id": n, "lanes": n % 3} for n in range(9)])
        >>> cars.create_index("lanes", "composite").wait()
        >>> [car["id"] for car in cars.lookup("lanes", 2)]
        [8, 5, 2]
        >>> db.close()
        """
        given = {"kind": kind} if not isinstance(kind, Mapping) else dict(kind)
        given = {"unique": unique, **given, **settings}
        field, spec = checks.index(field, given, self.key)
        unique = checks.unique({field: given})[field]
        there = self._engine.indexes.get(field)
        if there is not None and spec in (None, there) and unique == (field in self.unique):
            return Build(self._engine, field, there, begin=False)
        if there is not None:
            raise InvalidRequest(
                "the field has an index; drop it first to have another kind, or other settings",
                field=field, kind=there,
            )  # fmt: skip
        checks.at_most(len(self._engine.indexes) + 1)
        if self._build is not None and not self._build.done:
            raise InvalidRequest("an index is being built; wait for it", field=self._build.field)
        self._finder.indexes_change(field)
        spec = spec or kind_for(self._engine, self._observed(), field, unique=unique)
        self._build = Build(self._engine, field, spec)
        if unique:
            self._build.wait()
            try:
                self._engine.make_unique(field)
            except (Conflict, InvalidRequest):
                self.drop_index(field)
                raise
        return self._build

    def drop_index(self, field: str | Sequence[str]) -> None:
        """Drop the index on a field, or on several."""
        field = checks.index_name(field)
        self._indexed(field)
        self._finder.indexes_change(field)
        try:
            self._engine.drop_index(field)
        finally:
            self._finder.indexes_change(field)

    def _looked_up(self, field: str) -> None:
        self._indexed(field)
        if SEPARATOR in field:
            raise InvalidRequest(
                "an index on several fields serves no lookups of one value: use find", field=field
            )

    def _indexed(self, field: str) -> None:
        if not isinstance(field, str) or field not in self._engine.indexes:
            checks.name_of_field(field)
            raise InvalidRequest(
                "the field has no index: make one, or use find, which needs none",
                field=field, indexes=sorted(self._engine.indexes),
            )  # fmt: skip
