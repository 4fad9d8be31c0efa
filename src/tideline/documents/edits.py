"""The verbs of a collection that write what depends on what is stored.

    insert, insert_many     only where there is no document with the key
    update                  one document, by MongoDB's operators (updates.py)
    update_many             all that meet a condition
    replace                 a whole document, if it has the version that is expected
    delete_where            all that meet a condition
    versioned               a document with its version, to expect later

Each reads and writes in one step, while no other writer is between (`Engine.change`): two updates
of one document never lose one another. A verb on one document is whole or not at all.

Verbs on what meets a condition look for it at one moment, and go over it in slices of 16,384
documents, or fewer when these have more than 32 MiB. Each slice is one step: what no longer meets
the condition is left alone. So every document that is changed met the condition just before, and
every one that met it when the call began and still does is changed. What comes to meet it during
the call is not looked at. An error or an interrupt leaves the slices before it; so does a kill, and
of the slice it hits a part only if the new documents have more than 32 MiB.

The version of a document is the seq of the write that made it. `update` and `update_many` leave the
time at which a document expires as it is, unless they are given another. Safe from any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa

from tideline.documents import checks, rows
from tideline.documents.parts import taken
from tideline.documents.types import Found, Rows
from tideline.documents.unique import repeated
from tideline.documents.updates import Update, parse_update
from tideline.errors import Conflict, InvalidRequest, NotFound
from tideline.index.texts import Texts
from tideline.model import Stored, Updated, Versioned
from tideline.where import Condition
from tideline.where.batch import matching

if TYPE_CHECKING:
    from tideline.documents.advise import Workload
    from tideline.documents.finding import Finder
    from tideline.documents.view import View

__all__ = ["SLICE", "Edits", "Ttl", "stored"]

SLICE = 16_384  # documents that are written at once, and share one frame of the log
_SLICE_BYTES = 32 << 20
_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode

Document = dict[str, Any]
Given = Document | str | bytes
Key = int | str
Ttl = float | timedelta | None
"""How long a document lasts."""


class Edits:
    """A part of `Collection`."""

    key: str
    filter: str | None
    _engine: Any
    _finder: Finder
    _workload: Workload

    def _fields(self) -> tuple[str, ...]:
        raise NotImplementedError

    def _until(self, ttl_s: Ttl) -> int:
        """When a document expires that is written now; 0 for never."""
        expiry = self._engine.expiry
        ttl_us: int = expiry.ttl_us if ttl_s is None else checks.ttl(ttl_s)
        return max(expiry.clock.now() + ttl_us, 1) if ttl_us else 0

    def _lasting(self, given: Rows, ttl_s: Ttl) -> Rows:
        """Rows with the time at which they expire."""
        return rows.lasting(given, self._until(ttl_s))

    # ---- one document -------------------------------------------------------------------------

    def versioned(self, key: Key) -> Versioned | None:
        """The document with this key and its version, or None.

        >>> import tideline
        >>> db = tideline.open(":memory:")
        >>> cars = db.collection("cars", key="id")
        >>> cars.insert({"id": 1, "speed": 50})
        1
        >>> cars.versioned(1)
        Versioned(document={'id': 1, 'speed': 50}, version=1)
        >>> db.close()
        """
        found: Found = self._engine.fetch(Texts.of([rows.key_bytes(key)]))
        self._workload.gets += 1
        return Versioned(_decode(found.docs[0]), int(found.seqs[0])) if found.docs else None

    def insert(self, document: Given, *, ttl_s: Ttl = None) -> int:
        """Store a new document; returns its version. `Conflict` when there is one with its key.

        `ttl_s` is that of `put`: the seconds after which it is gone by itself.

        >>> import tideline
        >>> db = tideline.open(":memory:")
        >>> cars = db.collection("cars", key="id")
        >>> cars.insert({"id": 1})
        1
        >>> cars.insert({"id": 1})
        Traceback (most recent call last):
        tideline.errors.Conflict: there is a document with this key. id=1
        >>> db.close()
        """
        made = rows.single(document, self.key, self._fields(), self.filter)
        key, until = made.rows.keys[0], self._until(ttl_s)

        def compute(view: View) -> tuple[Rows, None]:
            if view.get(key) is not None:
                shown = rows.document_of(document)[self.key]
                raise Conflict("there is a document with this key", **{self.key: shown})
            return rows.lasting(made.rows, until), None

        return self._change_one(made, compute)

    def update(
        self, key: Key, change: Document, *, upsert: bool = False,
        if_version: int | None = None, ttl_s: Ttl = None,
    ) -> Document:  # fmt: skip
        """Change the document with this key by MongoDB's operators; returns what it is now.

        `NotFound` when there is none; with `upsert` one is made, of its key and the change.
        `if_version` is the version it must have (`versioned`), else `Conflict`. A change that
        changes nothing is not written. With `ttl_s` it lasts so long from now on; without, it
        expires when it would have.

        >>> import tideline
        >>> db = tideline.open(":memory:")
        >>> cars = db.collection("cars", key="id")
        >>> cars.update(1, {"$inc": {"seen": 1}, "$push": {"roads": "A1"}}, upsert=True)
        {'id': 1, 'seen': 1, 'roads': ['A1']}
        >>> cars.update(1, {"$inc": {"seen": 1}, "$set": {"last.road": "A1"}})
        {'id': 1, 'seen': 2, 'roads': ['A1'], 'last': {'road': 'A1'}}
        >>> db.close()
        """
        update = parse_update(change, self.key)
        data = rows.key_bytes(key)
        upsert = checks.flag(upsert, "upsert")
        expected = checks.version(if_version)
        until = self._until(ttl_s)
        if upsert and expected is not None:
            raise InvalidRequest("give upsert or if_version: a new document has no version")

        def compute(view: View) -> tuple[Rows, Document]:
            text = self._current(view, data, key, expected, missing=upsert)
            old = {self.key: key} if text is None else _decode(text)
            new = update.apply(old, inserting=text is None)
            if text is not None and ttl_s is None and _is_same(old, new):
                return rows.NONE, new
            made = rows.single(new, self.key, self._fields(), self.filter)
            self._finder.before_write(made.arrays)
            keeps = text is not None and ttl_s is None
            then = int(view.untils(made.rows.keys)[0]) if keeps else until
            return rows.lasting(made.rows, then), new

        found: Document = self._engine.change(compute)[1]
        self._workload.puts += 1
        return found

    def replace(
        self, key: Key, document: Given, *, if_version: int | None = None, ttl_s: Ttl = None
    ) -> int:
        """Store a document in place of the one with this key; returns its version.

        `NotFound` when there is none. `if_version` is the version that it must have, else
        `Conflict`: read it again (`versioned`) and decide. The document may leave out its key.
        It is a new document: it lasts as `put` says.

        >>> import tideline
        >>> db = tideline.open(":memory:")
        >>> cars = db.collection("cars", key="id")
        >>> first = cars.insert({"id": 1, "speed": 50})
        >>> cars.replace(1, {"speed": 70}, if_version=first)
        2
        >>> cars.replace(1, {"speed": 90}, if_version=first)
        Traceback (most recent call last):
        tideline.errors.Conflict: the document has another version: ... version=2, if_version=1
        >>> db.close()
        """
        data = rows.key_bytes(key)
        expected = checks.version(if_version)
        given = rows.document_of(document)
        if rows.key_bytes(given.get(self.key, key), self.key) != data:
            raise InvalidRequest(
                "the document has another key", key=key, **{self.key: given[self.key]}
            )
        made = rows.single({self.key: key, **given}, self.key, self._fields(), self.filter)
        until = self._until(ttl_s)

        def compute(view: View) -> tuple[Rows, None]:
            self._current(view, data, key, expected)
            return rows.lasting(made.rows, until), None

        return self._change_one(made, compute)

    def _delete_version(self, key: Key, expected: int | None) -> None:
        """Delete a document that has this version."""
        data = rows.key_bytes(key)

        def compute(view: View) -> tuple[Rows, None]:
            self._current(view, data, key, expected)
            return rows.deletions([data], self._fields(), self.filter), None

        self._engine.change(compute)
        self._workload.deletes += 1

    # ---- many documents -----------------------------------------------------------------------

    def insert_many(
        self, documents: Iterable[Given] | pa.Table | pa.RecordBatch, *, ttl_s: Ttl = None
    ) -> Stored:
        """Store many new documents, given as to `put_many`.

        Rows whose key is there, or came before in the call, come back with the bad ones.

        >>> import tideline
        >>> db = tideline.open(":memory:")
        >>> cars = db.collection("cars", key="id")
        >>> done = cars.insert_many([{"id": 1}, {"id": 2}, {"id": 1, "again": True}])
        >>> done.stored, done.rejected.to_pylist()
        (2, [{'row': 2, 'reason': 'there is a document with this key'}])
        >>> db.close()
        """
        count = 0
        rejected: dict[int, str] = {}
        until = self._until(ttl_s)
        for first, part in checks.slices(documents, SLICE):
            size = part.num_rows if isinstance(part, pa.Table) else len(part)
            made = rows.prepare(part, self.key, self._fields(), self.filter)
            made = made._replace(rows=rows.lasting(made.rows, until))
            self._finder.before_write(made.arrays)
            count += self._write_good(made, size, partial(_there, made.rows), first, rejected)
            for row, reason in made.rejected.items():
                rejected[first + row] = reason
        self._workload.puts += count
        return stored(count, rejected)

    def _write_distinct(
        self, made: rows.Prepared, part: Any, first: int, rejected: dict[int, str]
    ) -> int:
        """Store rows of `put_many` in a collection with unique indexes; how many were stored."""
        size = part.num_rows if isinstance(part, pa.Table) else len(part)
        self._finder.before_write(made.arrays)
        return self._write_good(made, size, lambda view: {}, first, rejected)

    def _write_good(
        self, made: rows.Prepared, size: int, bad: Callable[[View], dict[int, str]], first: int,
        rejected: dict[int, str],
    ) -> int:  # fmt: skip
        """Store prepared rows but those that are `bad` or not unique, which are `rejected`."""
        numbers = np.setdiff1d(np.arange(size), list(made.rejected))

        def compute(view: View) -> tuple[Rows, dict[int, str]]:
            reasons = bad(view)
            if self._engine.unique:
                good = np.setdiff1d(np.arange(made.rows.count), list(reasons))
                more = repeated(taken(made.rows, good), self._engine.unique, self.key, view)
                reasons |= {int(good[row]): reason for row, reason in more.items()}
            return taken(
                made.rows, np.setdiff1d(np.arange(made.rows.count), list(reasons))
            ), reasons

        reasons: dict[int, str] = self._engine.change(compute)[1]
        for row, reason in reasons.items():
            rejected[first + int(numbers[row])] = reason
        return made.rows.count - len(reasons)

    def update_many(self, where: Document, change: Document) -> Updated:
        """Change all documents that meet a condition; how many met it, and how many changed.

        In steps of 16,384 documents, each of which is checked again as it is changed: the file
        edits.py says what is promised beside other writers. `{}` is every document.

        >>> import tideline
        >>> db = tideline.open(":memory:")
        >>> cars = db.collection("cars", key="id")
        >>> done = cars.insert_many([{"id": n, "speed": 10 * n} for n in range(10)])
        >>> cars.update_many({"speed": {"$gte": 50}}, {"$min": {"speed": 60}})
        Updated(matched=5, changed=3)
        >>> db.close()
        """
        condition = checks.condition(where, "update_many")
        update = parse_update(change, self.key)
        matched = changed = 0
        for keys in self._slices(condition):
            step = partial(self._updated, keys, condition, update)
            met, different = self._engine.change(step)[1]
            matched, changed = matched + met, changed + different
            self._workload.puts += different
        return Updated(matched, changed)

    def delete_where(self, where: Document) -> int:
        """Delete all documents that meet a condition; how many. `{}` is every document.

        In steps, as `update_many`.

        >>> import tideline
        >>> db = tideline.open(":memory:")
        >>> cars = db.collection("cars", key="id")
        >>> done = cars.insert_many([{"id": n, "speed": 10 * n} for n in range(10)])
        >>> cars.delete_where({"speed": {"$gte": 50}}), cars.count()
        (5, 5)
        >>> db.close()
        """
        condition = checks.condition(where, "delete_where")
        count = 0
        for keys in self._slices(condition):
            gone: int = self._engine.change(partial(self._deleted, keys, condition))[1]
            count += gone
            self._workload.deletes += gone
        return count

    # ---- steps: what there is -> rows (no other writer is between) ----------------------------

    def _change_one(self, made: rows.Prepared, compute: Any) -> int:
        self._finder.before_write(made.arrays)
        version: int = self._engine.change(compute)[0]
        self._workload.puts += 1
        return version

    def _current(
        self, view: View, data: bytes, key: Key, expected: int | None, *, missing: bool = False
    ) -> bytes | None:
        """The text of a document that has the version expected; None if it may be missing."""
        if expected is None:
            text = view.get(data)
        else:
            found = view.fetch(Texts.of([data]))
            text = found.docs[0] if found.docs else None
            if found.docs and found.seqs[0] != expected:
                raise Conflict(
                    "the document has another version: read it again and decide",
                    key=key, version=int(found.seqs[0]), if_version=expected,
                )  # fmt: skip
        if text is None and not missing:
            raise NotFound("no document with this key", key=key)
        return text

    def _updated(
        self, keys: Texts, condition: Condition, update: Update, view: View
    ) -> tuple[Rows, tuple[int, int]]:
        found = _still(view, keys, condition)
        pairs = ((old, update.apply(old)) for old in map(_decode, found.docs))
        changed = [new for old, new in pairs if not _is_same(old, new)]
        if not changed:
            return rows.NONE, (len(found.docs), 0)
        made = rows.prepare(changed, self.key, self._fields(), self.filter)
        for row, reason in made.rejected.items():
            raise InvalidRequest(reason, **{self.key: changed[row][self.key]})
        self._finder.before_write(made.arrays)
        untils = view.untils(made.rows.keys)
        kept = made.rows._replace(untils=untils) if untils.any() else made.rows
        return kept, (len(found.docs), len(changed))

    def _deleted(self, keys: Texts, condition: Condition, view: View) -> tuple[Rows, int]:
        found = list(_still(view, keys, condition).keys)
        gone = rows.deletions(found, self._fields(), self.filter) if found else rows.NONE
        return gone, len(found)

    def _slices(self, condition: Condition) -> Iterator[Texts]:
        """The keys of what meets a condition at one moment."""
        kept: list[bytes] = []
        size = 0
        for hits in self._finder.hits(condition).parts:
            docs = Texts.of([text for _, text in hits])
            for key, (_, text) in zip(rows.keys_of(docs, self.key).to_list(), hits, strict=True):
                kept.append(key)
                size += len(text)
                if len(kept) == SLICE or size >= _SLICE_BYTES:
                    yield Texts.of(kept)
                    kept, size = [], 0
        if kept:
            yield Texts.of(kept)


def stored(count: int, rejected: dict[int, str]) -> Stored:
    """What a verb on many documents tells."""
    numbers = sorted(rejected)
    table = pa.table({
        "row": pa.array(numbers, pa.int64()),
        "reason": pa.array([rejected[row] for row in numbers], pa.string()),
    })  # fmt: skip
    return Stored(count, table)


def _there(given: Rows, view: View) -> dict[int, str]:
    """The rows whose keys are stored, or came before."""
    seen = set(view.fetch(given.keys).keys)
    found: dict[int, str] = {}
    for row, key in enumerate(given.keys.to_list()):
        if key in seen:
            found[row] = "there is a document with this key"
        seen.add(key)
    return found


def _still(view: View, keys: Texts, condition: Condition) -> Found:
    """The documents with these keys that meet the condition now."""
    found = view.fetch(keys)
    if not condition or not found.docs:
        return found
    met = np.flatnonzero(matching(condition, pa.array(found.docs, pa.large_binary())))
    return Found(
        found.seqs[met], [found.docs[row] for row in met.tolist()],
        [found.keys[row] for row in met.tolist()],
    )  # fmt: skip


def _is_same(old: Document, new: Document) -> bool:
    """Whether a change changed nothing; 1 and 1.0 are not the same to who reads it."""
    return old is new or (old == new and _encode(old) == _encode(new))
