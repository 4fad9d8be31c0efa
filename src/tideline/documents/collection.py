"""A collection: documents by primary key, with indexes on other fields.

    put, put_many, delete       rows.py -> engine.write: atomic over the primary and all indexes
    insert, update, replace ... what depends on what is stored: edits.py
    get, get_many               by primary key
    lookup, range_lookup        one index, newest first: lookups.py
    find, count, explain        finding.py: plan.py chooses the way, search.py goes it
    find_iter, aggregate ...    more of that: queries.py
    scan                        all of it as Arrow batches
    changes                     every write from a seq on: changes.py
    create_index, drop_index    beside readers and writers: lookups.py, indexing.py
    advise, forget_workload     which indexes it would be better off with, from what was done
    stats                       what it holds and has done

A document is JSON text inside and a dict outside. What is written is numbered; newest first
means by that number. Safe from any thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from tideline.clock import SECOND
from tideline.documents import checks, rows
from tideline.documents.advise import Workload, advise
from tideline.documents.changes import Changes
from tideline.documents.edits import SLICE, Edits, Ttl, stored
from tideline.documents.export import json_keys, scanned_batch
from tideline.documents.feed import DROPPED
from tideline.documents.finding import Finder
from tideline.documents.indexing import Build
from tideline.documents.lookups import Lookups
from tideline.documents.projection import parse_fields
from tideline.documents.queries import Fields, Queries
from tideline.documents.types import Rows
from tideline.errors import Closed, InvalidRequest
from tideline.index.kind import name_of, settings_of
from tideline.index.texts import Texts
from tideline.lsm.writers import check_once
from tideline.model import Advice, CollectionStats, Explanation, IndexStats, Stored
from tideline.where import parse
from tideline.where.batch import matching

__all__ = ["Collection"]

_PART_ROWS, _MOST_PARTS = 1_000_000, 64  # of a read in parts
_decode = msgspec.json.Decoder().decode

Document = dict[str, Any]
Given = Document | str | bytes


class Collection(Edits, Queries, Lookups):
    """An open collection of documents; `Database.collection` makes one."""

    _checks_rows = False
    """Whether `_write_good` looks at every row of `put_many` (server/collection_limited.py)."""

    def __init__(self, name: str, engine: Any) -> None:
        self.name = name
        self._engine = engine
        facts = engine.facts
        self.key: str = facts["key"]
        """The field that every document is known by."""
        self.policy: dict[str, Any] = facts["policy"]
        self.filter: str | None = facts["filter"]
        """The field whose range is kept for every component, if there is one."""
        self._plain: tuple[Any, tuple[str, ...]] = (None, ())
        self._get: Callable[[bytes], bytes | None] = engine.get
        self._workload = Workload()  # since it was opened
        self._before = Workload.of(facts.get("workload", {}))
        self._forgotten = Workload()
        engine.workload = lambda: self._observed().facts()
        self._finder = Finder(engine, self._workload)
        self._build: Build | None = None
        self._landing = threading.Lock()  # one batch from elsewhere at a time: landing.py
        self._closed = "the database was closed"  # what is said once it is

    # ---- writing ------------------------------------------------------------------------------

    def put(self, document: Given, *, ttl_s: Ttl = None) -> None:
        """Store a document, in place of the one with its key if there is one.

        With `ttl_s` it is gone by itself after so many seconds; without, after the collection's,
        and never if that has none. `math.inf` is never, too.

        >>> import tideline
        >>> db = tideline.open(":memory:")
        >>> cars = db.collection("cars", key="id", indexes={"road": "lazy"})
        >>> cars.put({"id": 1, "road": "A1"})
        >>> cars.get(1)
        {'id': 1, 'road': 'A1'}
        >>> db.close()
        """
        made = rows.single(document, self.key, self._fields(), self.filter)
        self._write(self._lasting(made.rows, ttl_s), made.arrays)
        self._workload.puts += 1

    def put_many(
        self, documents: Iterable[Given] | pa.Table | pa.RecordBatch, *, ttl_s: Ttl = None
    ) -> Stored:
        """Store many: dicts, JSON texts, or a table. Each is stored whole or not at all.

        A table has JSON in its one column `document`, or a column a field. Bad rows come back
        with the reason; the others are stored, in order: of two with one key, the later stays. A
        kill leaves those up to a multiple of 16,384, or fewer when they have more than 32 MiB.
        `ttl_s` is that of `put`, for all of them.

        >>> import tideline
        >>> db = tideline.open(":memory:")
        >>> cars = db.collection("cars", key="id")
        >>> done = cars.put_many([{"id": 1}, {"speed": 5}, '{"id": 2}'])
        >>> done.stored, done.rejected.to_pylist()[0]["row"]
        (2, 1)
        >>> db.close()
        """
        count = 0
        rejected: dict[int, str] = {}
        until = self._until(ttl_s)
        for first, part in checks.slices(documents, SLICE):
            prepared = rows.prepare(part, self.key, self._fields(), self.filter)
            prepared = prepared._replace(rows=rows.lasting(prepared.rows, until))
            for row, reason in prepared.rejected.items():
                rejected[first + row] = reason
            if self._engine.unique or self._checks_rows:
                written = self._write_distinct(prepared, part, first, rejected)
            else:
                written = prepared.rows.count
                if written:
                    self._write(prepared.rows, prepared.arrays)
            count += written
            self._workload.puts += written
        return stored(count, rejected)

    def check_many(self, documents: Iterable[Given] | pa.Table | pa.RecordBatch) -> dict[int, str]:
        """Which documents `put_many` would reject, and why, by their row; nothing is stored."""
        return {
            first + row: reason
            for first, part in checks.slices(documents, SLICE)
            for row, reason in rows.prepare(part, self.key, (), None).rejected.items()
        }

    def delete(self, key: int | str, *, if_version: int | None = None) -> None:
        """Delete the document with this key; deleting what is not there changes nothing.

        It writes without looking, so it does not say whether there was one: `delete_where` does.
        With `if_version` it must be there, or it is `NotFound`, and have this version, or it is
        `Conflict`.
        """
        if if_version is None:
            self._delete([rows.key_bytes(key)])
        else:
            self._delete_version(key, checks.version(if_version))

    def delete_many(self, keys: Iterable[int | str]) -> None:
        """Delete the documents with these keys; one bad key, and none is deleted."""
        found = [rows.key_bytes(key) for key in checks.listed(keys, "keys")]
        for first in range(0, len(found), SLICE):
            self._delete(found[first : first + SLICE])

    # ---- by key -------------------------------------------------------------------------------

    def get(self, key: int | str) -> Document | None:
        """The document with this key, or None."""
        self._workload.gets += 1
        text = self._get(rows.key_bytes(key))
        return None if text is None else _decode(text)

    def get_many(self, keys: Iterable[int | str]) -> list[Document | None]:
        """The documents with these keys, None for those that are not there."""
        found = [rows.key_bytes(key) for key in checks.listed(keys, "keys")]
        self._workload.gets += len(found)
        texts = self._engine.get_many(Texts.of(found))
        return [None if text is None else _decode(text) for text in texts]

    # ---- by condition -------------------------------------------------------------------------

    def find(
        self, where: Document | None = None, *, sort: Any = None, limit: int | None = None,
        skip: int = 0, fields: Fields = None,
    ) -> list[Document]:  # fmt: skip
        """The documents that meet a condition, planned onto the indexes.

        Without `sort` the newest come first, and with a `$near` in the condition the nearest;
        `sort` is [("time", -1), ...], 1 up and -1 down.
        The first `skip` are left out, and at most `limit` come. `fields` are those that are
        wanted, ["speed", "place.road"], or {"text": 0} for all but these; the key comes with
        them unless it says {"id": 0}.

        >>> import tideline
        >>> db = tideline.open(":memory:")
        >>> cars = db.collection("cars", key="id", indexes={"road": "lazy"})
        >>> done = cars.put_many([{"id": n, "road": "A1", "speed": n % 5} for n in range(20)])
        >>> found = cars.find({"road": "A1", "speed": {"$gte": 3}}, sort=[("speed", 1)], limit=2)
        >>> [car["id"] for car in found]
        [3, 8]
        >>> db.close()
        """
        condition = parse(where)
        order = checks.sort(sort, self.key, condition)
        most, without = checks.count(limit, "limit"), checks.skip(skip)
        project = parse_fields(fields, self.key, condition.near)
        found = self._finder.find(condition, order, most, without)
        return found if project is None else [project(one) for one in found]

    def count(self, where: Document | None = None) -> int:
        """How many documents meet a condition.

        >>> import tideline
        >>> db = tideline.open(":memory:")
        >>> cars = db.collection("cars", key="id")
        >>> done = cars.put_many([{"id": n, "speed": 10 * n} for n in range(10)])
        >>> cars.count(), cars.count({"speed": {"$gt": 50}})
        (10, 4)
        >>> db.close()
        """
        return self._finder.count(parse(where))

    def explain(
        self, where: Document | None = None, *, sort: Any = None, limit: int | None = None
    ) -> Explanation:
        """Find, and tell how: which index, what was expected and what was read, and why.

        >>> import tideline
        >>> db = tideline.open(":memory:")
        >>> cars = db.collection("cars", key="id", indexes={"road": "lazy"})
        >>> done = cars.put_many([{"id": n, "road": f"A{n % 50}"} for n in range(1000)])
        >>> told = cars.explain({"road": "A7"})
        >>> told.chosen[0].field, told.chosen[0].kind, told.found
        ('road', 'lazy', 20)
        >>> db.close()
        """
        condition = parse(where)
        order = checks.sort(sort, self.key, condition)
        most = checks.count(limit, "limit")
        return self._finder.explain(condition, order, most)

    def scan(
        self, where: Document | None = None, *, low: Any = None, high: Any = None,
        limit: Any = None,
    ) -> Iterator[pa.RecordBatch]:  # fmt: skip
        """The documents with a key from `low` to `high`, as batches: key, seq, document.

        With `limit`, only keys before it.

        In the order of keys; all of one moment. `key` is JSON, `document` too.

        >>> import tideline
        >>> db = tideline.open(":memory:")
        >>> cars = db.collection("cars", key="id")
        >>> cars.put({"id": 7})
        >>> [batch.to_pylist() for batch in cars.scan()]
        [[{'key': '7', 'seq': 1, 'document': '{"id":7}'}]]
        >>> db.close()
        """
        condition = parse(where)
        first = None if low is None else rows.key_bytes(low, "low")
        last = None if high is None else rows.key_bytes(high, "high") + b"\0"
        if limit is not None:
            end = rows.key_bytes(limit, "limit")
            last = end if last is None else min(last, end)
        view = self._engine.view()
        for made in view.scan_columns(first, last, filter=self._finder.span(condition)):
            batch = scanned_batch(made.keys, made.seqs, made.docs)
            if condition:
                batch = batch.filter(pa.array(matching(condition, batch.column("document"))))
            if batch.num_rows:
                yield batch

    def cuts(self, parts: int) -> list[str]:
        """Keys, as JSON, that cut the documents into about so many parts of one size.

        0 parts is one for every million documents. They come from what is on disk: a small
        collection, which has nothing there, has none.
        """
        if isinstance(parts, bool) or not isinstance(parts, int) or parts < 0:
            raise InvalidRequest("parts must be a whole number, 0 or more", parts=parts)
        found = sorted(self._engine.view().now[0].readers, key=lambda one: one.rows)
        parts = parts or min(_MOST_PARTS, sum(one.rows for one in found) // _PART_ROWS)
        if not found or parts < 2:
            return []
        keys = found[-1].keys
        parts = min(parts, keys.count)
        numbers = np.unique(np.arange(1, parts) * keys.count // parts)
        return [str(key) for key in json_keys(keys.take(numbers)).to_pylist()]

    @property
    def ttl_s(self) -> float | None:
        """How long documents last of which `put` says nothing; None: until they are deleted."""
        ttl_us: int = self._engine.expiry.ttl_us
        return ttl_us / SECOND if ttl_us else None

    @property
    def journal_s(self) -> float:
        """For how many seconds `changes` are kept."""
        journal_us: int = self._engine.feed.journal_us
        return journal_us / SECOND

    @property
    def journal_before(self) -> bool:
        """Whether they are kept with the old versions."""
        kept: bool = self._engine.feed.journal_before
        return kept

    @property
    def identity(self) -> str:
        """What tells this collection from every other, of the same name too."""
        return f"{self._engine.seed & (1 << 64) - 1:016x}"

    # ---- changes ------------------------------------------------------------------------------

    def landed(self, writer: str, number: int) -> int | None:
        """0 when a writer's batch has not landed yet (Spark's batches do), None when it has.

        >>> import tideline
        >>> with tideline.open(":memory:") as db:
        ...     db.collection("cars", key="id").landed("loader", 7)
        0
        """
        found: int | None = self._engine.writers.landed(*check_once((writer, number)))
        return found

    def changes(self, after: int | None = None, *, before: bool = False) -> Changes:
        """Follow what is written: an iterator over `Change`, in order and without a gap.

        `after` is the seq of a change, to begin with the next one; 0 begins with the first ever.
        `Unavailable` names the earliest when what comes next is not kept any more. Without
        `after` it begins with what is written from now on. `before=True` brings the old versions,
        too. `for` and `async for` wait for the next change; `Changes.take` does not.

        >>> import tideline
        >>> db = tideline.open(":memory:")
        >>> cars = db.collection("cars", key="id")
        >>> with cars.changes(before=True) as changes:
        ...     cars.put({"id": 1, "speed": 50})
        ...     cars.put({"id": 1, "speed": 70})
        ...     cars.delete(1)
        ...     for change in changes.take():
        ...         print(change.seq, change.key, change.before, change.after)
        1 1 None {'id': 1, 'speed': 50}
        2 1 {'id': 1, 'speed': 50} {'id': 1, 'speed': 70}
        3 1 {'id': 1, 'speed': 70} None
        >>> db.close()
        """
        return Changes(self._engine.feed, after, before)

    def position(self) -> int:
        """The seq of the newest write: what is written later comes after it."""
        newest: int = self._engine.feed.newest()
        return newest

    def earliest(self) -> int:
        """The earliest seq that `changes` can begin after: everything later is still in the log."""
        earliest: int = self._engine.feed.earliest()
        return earliest

    # ---- looking in ---------------------------------------------------------------------------

    def advise(
        self, *, scarce: bool = False, where: Iterable[Document] = (), limit: int | None = None
    ) -> list[Advice]:
        """Which kind of index fits which field, from what was asked, also before it was opened.

        `scarce` says that space is. `where` are conditions that will be asked, with `limit`: they
        count in this advice and are not asked. docs/guide/documents.md tells the rules.
        """
        scarce = checks.flag(scarce, "scarce")
        conditions = [parse(one) for one in checks.listed(where, "where")]
        more = self._finder.would_ask(conditions, checks.count(limit, "limit"))
        work = self._observed().plus(more)
        names = {field: name_of(spec) for field, spec in self.indexes.items()}
        return advise(self._engine, work, names, scarce=scarce)

    def forget_workload(self) -> None:
        """Let `advise` begin anew: what was done so far no longer counts there."""
        self._before, self._forgotten = Workload(), Workload().plus(self._workload)

    def stats(self) -> CollectionStats:
        """What it holds, and what was done since it was opened."""
        found = self._engine.stats()
        counted = self._engine.counters()
        work = self._workload
        components, written = found["components"], found["written_bytes"]

        def bytes_written(tree: str) -> tuple[int, int]:
            whole = sum(size for what, size in written.items() if what.startswith(f"{tree} "))
            merged = written.get(f"{tree} merge", 0)
            return whole - merged, merged

        indexes = tuple(
            IndexStats(
                name, name_of(spec), "building" if name in self._engine.building else "ready",
                len(components.get(name, [])), sum(c["bytes"] for c in components.get(name, [])),
                settings_of(spec), *bytes_written(f"index {name} {name_of(spec)}"),
            )
            for name, spec in sorted(self._engine.indexes.items())
        )  # fmt: skip
        return CollectionStats(
            found["memory_rows"] + sum(c["rows"] for c in components["primary"]),
            sum(map(len, components.values())),
            found["memory_bytes"], found["component_bytes"], found["log_bytes"],
            work.puts, work.deletes, work.gets, work.lookups, work.finds,
            counted["primary_blocks"], counted["index_blocks"], counted["bloom_checks"],
            counted["bloom_false"], indexes, 0, *bytes_written("primary"),
        )  # fmt: skip

    def __repr__(self) -> str:
        return f"Collection(name={self.name!r}, key={self.key!r}, indexes={self.indexes!r})"

    # ---- inside -------------------------------------------------------------------------------

    def _observed(self) -> Workload:
        """What was done since counting began, over all openings."""
        return self._before.plus(self._workload).plus(self._forgotten, -1)

    def _shut(self, *, dropped: bool = False) -> None:
        if dropped:
            self._closed = DROPPED
        self._get = self._gone
        self._engine.close(self._closed)

    def _leave_to_parent(self, why: str) -> None:
        """In a forked child: nothing here is to be used."""
        self._closed = why
        self._get = self._gone
        self._engine.leave_to_parent(why)

    def _gone(self, key: bytes) -> bytes | None:
        raise Closed(self._closed, collection=self.name)

    def _fields(self) -> tuple[str, ...]:
        """The fields whose plain values a write has to bring, of indexes that are built, too."""
        kinds, fields = self._plain
        if kinds is not self._engine.kinds:  # which is replaced, never changed
            kinds = self._engine.kinds
            fields = tuple(name for name, kind in kinds.items() if kind.extract is None)
            self._plain = kinds, fields
        return fields

    def _write(
        self, given: Rows, arrays: Iterable[str], once: tuple[str, int] | None = None
    ) -> None:
        self._finder.before_write(arrays)
        self._engine.write(given, once)

    def _delete(self, keys: list[bytes]) -> None:
        self._write(rows.deletions(keys, self._fields(), self.filter), ())
        self._workload.deletes += len(keys)
