"""A collection as a token with rows may use it: the same verbs, on the documents of its rule.

    reads     the rule beside what was asked; a document that does not meet it is not there
    writes    the old document, if there is one, and the new one must meet the rule

Writes are checked where they are computed, while no other writer is between (`Engine.change`). So
nobody can change a document between the check and the write.

A document that does not meet the rule looks as if it were not there, as far as that can be:

    get, find, ...                 do not give it
    update, replace                `NotFound`
    delete, delete_many            leave it alone and say nothing
    insert, insert_many            `Conflict`: its key cannot be used twice
    put, put_many, upsert          refused: it would be overwritten

Safe from any thread; one is made for each call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tideline.documents import Collection
from tideline.documents import rows as written
from tideline.documents.aggregation import parse_pipeline
from tideline.documents.parts import taken
from tideline.documents.types import PUT, Found, Rows
from tideline.errors import Conflict
from tideline.index.texts import Texts
from tideline.model import Change, Documents, Nearest, Stored, Updated
from tideline.server.collection_rules import Rule
from tideline.server.refusals import Refused
from tideline.where.batch import matching

__all__ = ["Limited", "seen", "seen_table"]

T = TypeVar("T")
Document = dict[str, Any]
_decode = msgspec.json.Decoder().decode
_NEW = "the token may not write such a document"
_OLD = "the token may not write the document with this key"
_THERE = "there is a document with this key"
_UNIQUE = "another document has this value of a unique index"


class _Hidden(Refused):
    """A write to a document that does not meet the rule."""


class Limited(Collection):
    """The documents of a collection that meet a rule."""

    _checks_rows = True
    _hidden = _OLD  # why a row is rejected whose document is not to be seen

    def __init__(self, whole: Collection, rule: Rule) -> None:
        self.__dict__.update(whole.__dict__)
        self.rule = rule
        self._engine = _Engine(whole._engine, rule)
        self._get = self._engine.get

    def limited(self, where: Document | None) -> Document:
        """A condition and the rule."""
        return self.rule.also(where)

    # ---- reading ------------------------------------------------------------------------------

    def find(self, where: Document | None = None, **options: Any) -> list[Document]:
        return super().find(self.limited(where), **options)

    def find_one(self, where: Document | None = None, **options: Any) -> Document | None:
        if written.asked_key(where, self.key) is not None:  # `_get` holds it against the rule
            return super().find_one(where, **options)
        return super().find_one(self.limited(where), **options)

    def find_lazily(self, where: Document | None = None, **options: Any) -> Documents:
        return super().find_lazily(self.limited(where), **options)

    def find_iter(self, where: Document | None = None, **options: Any) -> Iterator[Document]:
        return super().find_iter(self.limited(where), **options)

    def find_batches(
        self, where: Document | None = None, **options: Any
    ) -> Iterator[pa.RecordBatch]:
        return super().find_batches(self.limited(where), **options)

    def scan(self, where: Document | None = None, **options: Any) -> Iterator[pa.RecordBatch]:
        return super().scan(self.limited(where), **options)

    def count(self, where: Document | None = None) -> int:
        return super().count(self.limited(where))

    def distinct(self, field: str, where: Document | None = None) -> list[Any]:
        return super().distinct(field, self.limited(where))

    def aggregate(self, pipeline: Sequence[Document]) -> list[Document]:
        parse_pipeline(pipeline, self.key)  # says what is wrong by the numbers it was given with
        return super().aggregate([{"$match": self.rule.where}, *pipeline])

    def nearest(
        self, point: Any, limit: int = 10, where: Document | None = None, **options: Any
    ) -> list[Nearest]:
        return super().nearest(point, limit, self.limited(where), **options)

    def aggregate_grid(
        self, box: Any, *, where: Document | None = None, **options: Any
    ) -> pa.Table:
        return super().aggregate_grid(box, where=self.limited(where), **options)

    def lookup(self, field: str, value: Any, k: int | None = None) -> list[Document]:
        return self._newest(lambda most: super(Limited, self).lookup(field, value, most), k)

    def range_lookup(
        self, field: str, low: Any = None, high: Any = None, k: int | None = None
    ) -> list[Document]:
        return self._newest(
            lambda most: super(Limited, self).range_lookup(field, low, high, most), k
        )

    def _newest(
        self, look_up: Callable[[int | None], list[Document]], k: int | None
    ) -> list[Document]:
        """The `k` newest of a lookup that meet the rule: more are asked for until there are."""
        most = k
        while True:
            found = look_up(most)
            good = [one for one in found if self.rule.holds(one)]
            if k is None or most is None or len(good) >= k or len(found) < most:
                return good[:k]
            most *= 4

    # ---- writing ------------------------------------------------------------------------------

    def insert(self, document: Any, *, ttl_s: Any = None) -> int:
        try:
            return super().insert(document, ttl_s=ttl_s)
        except _Hidden:
            shown = written.document_of(document)[self.key]
            raise Conflict(_THERE, **{self.key: shown}) from None

    def insert_many(self, documents: Any, *, ttl_s: Any = None) -> Stored:
        self._hidden = _THERE
        return super().insert_many(documents, ttl_s=ttl_s)

    def update_many(self, where: Document, change: Document) -> Updated:
        return super().update_many(where if where is None else self.limited(where), change)

    def delete_where(self, where: Document) -> int:
        return super().delete_where(where if where is None else self.limited(where))

    def _write_good(
        self, made: written.Prepared, size: int, bad: Callable[[Any], dict[int, str]], first: int,
        rejected: dict[int, str],
    ) -> int:  # fmt: skip
        """Store rows but those that are bad, not unique or against the rule."""

        def refused(view: Any) -> dict[int, str]:
            new, old = self._engine.against(view.whole, made.rows)
            reasons = dict.fromkeys(np.flatnonzero(old).tolist(), self._hidden)
            reasons |= dict.fromkeys(np.flatnonzero(new).tolist(), _NEW)
            return bad(view) | reasons

        count = super()._write_good(made, size, refused, first, rejected)
        for row, reason in rejected.items():
            if reason.startswith(_UNIQUE):  # it names the other document
                rejected[row] = _UNIQUE
        return count


class _Engine:
    """An engine on which a rule is imposed; all else is the engine's own."""

    def __init__(self, engine: Any, rule: Rule) -> None:
        self._engine = engine
        self._rule = rule

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def get(self, key: bytes) -> bytes | None:
        return _View(self._engine, self._rule).get(key)

    def get_many(self, keys: Texts) -> list[bytes | None]:
        rule = self._rule
        return [
            text if text is None or rule.holds(_decode(text)) else None
            for text in self._engine.get_many(keys)
        ]

    def fetch(self, keys: Texts) -> Found:
        return _View(self._engine, self._rule).fetch(keys)

    def write(self, rows: Rows, once: Any = None) -> int:
        """Store rows, if the rule allows it."""
        return self.change(lambda view: (rows, None))[0]

    def change(self, compute: Callable[[Any], tuple[Rows, T]]) -> tuple[int, T]:
        """Store computed rows, if the rule allows it; `compute` sees what meets the rule."""

        def checked(view: Any) -> tuple[Rows, T]:
            rows, found = compute(_View(view, self._rule))
            return self._allowed(view, rows), found

        try:
            found: tuple[int, T] = self._engine.change(checked)
        except Conflict as error:
            if str(error).startswith(_UNIQUE):  # it names the other document
                raise Conflict(_UNIQUE) from None
            raise
        return found

    def _allowed(self, view: Any, rows: Rows) -> Rows:
        """The rows, without deletes of what is not to be seen; refuses what may not be written."""
        new, old = self.against(view, rows)
        if new.any():
            raise Refused(403, "Forbidden", _NEW)
        puts = rows.ops == PUT
        if (old & puts).any():
            raise _Hidden(403, "Forbidden", _OLD)
        return taken(rows, np.flatnonzero(~old)) if old.any() else rows

    def against(self, view: Any, rows: Rows) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Which new documents do not meet the rule, and which rows are of old ones that do not."""
        puts = rows.ops == PUT
        new = np.zeros(rows.count, np.bool_)
        if puts.any():
            texts = rows.docs.take(np.flatnonzero(puts)).to_arrow(pa.large_binary())
            new[puts] = ~matching(self._rule.condition, texts)
        found = view.fetch(rows.keys)
        hidden: set[bytes] = set()
        if found.docs:
            meets = matching(self._rule.condition, pa.array(found.docs, pa.large_binary()))
            hidden = {key for key, good in zip(found.keys, meets, strict=True) if not good}
        old = np.array([key in hidden for key in rows.keys.to_list()], np.bool_)
        return new, old


class _View:
    """What meets a rule, of a view or of an engine."""

    def __init__(self, whole: Any, rule: Rule) -> None:
        self.whole = whole
        self._rule = rule

    def __getattr__(self, name: str) -> Any:
        return getattr(self.whole, name)

    def get(self, key: bytes) -> bytes | None:
        text: bytes | None = self.whole.get(key)
        return text if text is None or self._rule.holds(_decode(text)) else None

    def fetch(self, keys: Texts) -> Found:
        found: Found = self.whole.fetch(keys)
        if not found.docs:
            return found
        meets = matching(self._rule.condition, pa.array(found.docs, pa.large_binary()))
        rows = np.flatnonzero(meets)
        return Found(
            found.seqs[rows], [found.docs[row] for row in rows.tolist()],
            [found.keys[row] for row in rows.tolist()],
        )  # fmt: skip


def seen(change: Change, rule: Rule) -> Change | None:
    """A change as the rule lets it be seen; None when it does not. It needs the old version.

    What comes to meet the rule looks new, and what no longer does looks deleted.

    >>> from tideline.server.collection_rules import rule_of
    >>> rule = rule_of({"owner": "ann"}, None)
    >>> seen(Change(7, 1, b'{"owner":"bob"}', b'{"owner":"ann"}'), rule)
    Change(seq=7, key=1, before={'owner': 'ann'}, after=None)
    >>> seen(Change(8, 1, b'{"owner":"bob"}', None), rule)
    """
    before, after = change.before, change.after
    had = before is not None and rule.holds(before)
    has = after is not None and rule.holds(after)
    if not (had or has):
        return None
    if had and has:
        return change
    return Change(
        change.seq, change.key, change.raw_after if has else None,
        change.raw_before if had else None,
    )  # fmt: skip


def seen_table(table: pa.Table, rule: Rule, before: bool) -> pa.Table:
    """Changes as columns (documents/export.py), with old versions, as `seen` lets them be seen.

    Without `before` the old versions are left out of what is returned.
    """
    if not table.num_rows:
        return table
    has = pc.fill_null(_meets(table["document"], rule), False)
    had = pc.fill_null(_meets(table["before"], rule), False)
    none = pa.scalar(None, pa.large_string())
    olds = pc.if_else(had, table["before"], none) if before else pa.nulls(table.num_rows, none.type)
    columns = {
        "op": pc.if_else(has, pc.if_else(had, "u", "c" if before else "u"), "d"),
        "document": pc.if_else(has, table["document"], none),
        "before": olds,
    }
    for name, column in columns.items():
        table = table.set_column(table.column_names.index(name), name, column)
    return table.filter(pc.or_(has, had))


def _meets(texts: pa.ChunkedArray, rule: Rule) -> pa.Array:
    return pa.array(matching(rule.condition, texts))
