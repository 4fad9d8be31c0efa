"""The filter stage: which standing queries some writes concern, and how.

    Cell        a query partition times a write partition: its queries and its documents. What it
                is told late, again or out of order it knows by the version of the document.
    Broadcast   all queries, and no state: the old document comes with the write

A plain query's changes are done here. Those of the others go on to the sort stage as notes.

Runs in Spark's Python workers; imports no pyspark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tideline.index.texts import Texts
from tideline.live.query import Query, query_of
from tideline.spark.watching import packets as p
from tideline.spark.watching.pack import BAD, read_writes
from tideline.spark.watching.packets import Note, Settings
from tideline.spark.worker import settle
from tideline.standing import REMOVE, Standing

__all__ = ["Cell", "broadcast"]

Words = NDArray[np.int64]
_PLAIN = -1
_KINDS = pa.array(["add", "change", "remove"])


class Queries:
    """Queries by id, filed in an index over their conditions."""

    def __init__(self) -> None:
        self.standing = Standing()
        self.texts: dict[str, bytes] = {}
        self._numbers: dict[str, int] = {}
        self._names: dict[int, tuple[str, int]] = {}  # number -> id, bucket of the sort stage

    def add(self, id: str, text: bytes) -> None:
        """A query begins."""
        query = query_of(text)
        assert isinstance(query, Query)
        number = self.standing.add(query.condition)
        self.texts[id], self._numbers[id] = text, number
        self._names[number] = (id, _PLAIN if query.is_plain else p.bucket_of(id))

    def remove(self, id: str) -> None:
        """A query ends."""
        number = self._numbers.pop(id)
        self.standing.remove(number)
        del self.texts[id], self._names[number]

    def is_plain(self, id: str) -> bool:
        """Whether its changes are done after this stage."""
        return self._names[self._numbers[id]][1] == _PLAIN

    def told(
        self, rows: Words, numbers: Words, kinds: Any, writes: pa.Table, done: int, note: int
    ) -> Iterator[tuple[int, pa.Table]]:
        """What was found, as changes and as notes of the kind `note`; writes: key, seq, text."""
        if not len(rows):
            return
        distinct, inverse = np.unique(numbers, return_inverse=True)
        names = [self._names[number] for number in distinct.tolist()]
        ids = pa.array([id for id, _ in names], pa.string()).take(pa.array(inverse))
        buckets = np.array([bucket for _, bucket in names], np.int64)[inverse]
        found = writes.take(pa.array(rows))
        for bucket in np.unique(buckets).tolist():
            here = pa.array(buckets == bucket)
            some, share = ids.filter(here), found.filter(here)
            kind = kinds[buckets == bucket]
            count = len(some)
            gone = pa.array(kind == REMOVE)
            text = pc.if_else(gone, pa.scalar(None, pa.large_binary()), share["text"])
            key, seq = share["key"], share["seq"]
            if bucket == _PLAIN:
                none = pa.nulls(count, pa.int64())
                named = _KINDS.take(pa.array(kind))
                text = text.cast(pa.string())
                columns = [some, seq, named, key, none, none, text, none]
                yield done, pa.table(columns, schema=p.CHANGES)
            else:
                same = pa.array(np.full(count, note, np.int8))
                yield bucket, pa.table([same, some, key, seq, text], schema=p.NOTES)


class Cell:
    """The queries of a query partition, and the documents of a write partition."""

    def __init__(self, settings: Settings, part: int) -> None:
        self.settings = settings
        self._seen: bytes | None = None  # the queries of a batch that it has
        cell = settings.labels.index(part)
        width = (settings.grid or (1, 1))[1]
        self._part, self._first = cell // width, cell % width == 0
        self._done = -2 - cell
        self._queries = Queries()
        self._documents: dict[str, tuple[int, bytes]] = {}  # b"" for one that was deleted

    def run(self, table: pa.Table) -> tuple[list[tuple[int, pa.Table]], pa.Table]:
        """Apply notes; returns packets for the next stage, and what to keep of the notes."""
        notes = [*self._begun(), *p.rows_of(table)]
        return self._apply(notes, tell=True)

    def replay(self, table: pa.Table) -> None:
        """Apply notes that were applied before."""
        self._apply(list(p.rows_of(table)), tell=False)

    def snapshot(self) -> pa.Table:
        """Notes that make a cell like this one."""
        made = [Note(p.REGISTER, id, text=text) for id, text in self._queries.texts.items()]
        made += [
            Note(p.WRITE, "", key, seq, text or None)
            for key, (seq, text) in self._documents.items()
        ]
        return p.notes_of(made)

    def _begun(self) -> list[Note]:
        """What the queries of a batch are that this cell does not have yet, or no more."""
        if self.settings.given == self._seen:
            return []
        self._seen = self.settings.given
        given = self.settings.queries
        wanted = {id: text for id, (text, part) in given.items() if part == self._part}
        had = self._queries.texts
        left = [Note(p.LEAVE, id) for id, text in had.items() if wanted.get(id) != text]
        come = [Note(p.REGISTER, id, text=text) for id, text in wanted.items()
                if had.get(id) != text]  # fmt: skip
        return left + come

    def _apply(
        self, notes: list[Note], tell: bool
    ) -> tuple[list[tuple[int, pa.Table]], pa.Table]:  # fmt: skip
        queries = self._queries
        made: list[tuple[int, pa.Table]] = []
        kept: list[Note] = []
        onward: list[Note] = []
        bad: list[Any] = []
        notes.sort(key=_order)
        writes = [note for note in notes if note.kind == p.WRITE]
        for note in notes:
            if note.kind == p.LEAVE:
                kept += self._end(note, onward)
        fresh = Queries()
        for id, text in ((note.query, note.text) for note in notes if note.kind == p.REGISTER):
            assert text is not None
            if id not in queries.texts:
                queries.add(id, text)
                if tell and self._documents:
                    fresh.add(id, text)
                kept.append(Note(p.REGISTER, id, text=text))
                if not queries.is_plain(id):
                    onward.append(kept[-1])
            elif queries.texts[id] != text and self._first:
                bad.append((id, None, None, "id is taken by another query"))
        if fresh.texts:
            made += self._firsts(fresh)
        old, new, landed = [], [], []
        for note in writes:
            seq, before = self._documents.get(note.key, (-1, b""))
            if note.seq > seq:  # else it is stale
                old.append(before)
                new.append(note.text or b"")
                landed.append(note)
                self._documents[note.key] = (note.seq, new[-1])
        kept += landed
        if tell and landed:
            found = queries.standing.changes(Texts.of(old), Texts.of(new))
            made += queries.told(*found, p.notes_of(landed), self._done, p.WRITE)
        for note in notes:
            if note.kind == p.CANCEL:
                kept += self._end(note, onward)
        made += _by_bucket(onward)
        made.append((self._done, p.errors_of(bad)))
        return made, p.notes_of(kept)

    def _end(self, note: Note, onward: list[Note]) -> list[Note]:
        text = self._queries.texts.get(note.query)
        if text is None:
            return []
        if not self._queries.is_plain(note.query):
            onward.append(note._replace(text=text))
        self._queries.remove(note.query)
        return [note]

    def _firsts(self, fresh: Queries) -> Iterator[tuple[int, pa.Table]]:
        """What queries that begin find among the documents of the cell."""
        there = [(key, *each) for key, each in self._documents.items() if each[1]]
        rows, numbers = fresh.standing.matching(Texts.of([text for _, _, text in there]))
        docs = p.notes_of([Note(p.FIRST, "", key, seq, text) for key, seq, text in there])
        kinds = np.zeros(len(rows), np.uint8)
        return fresh.told(rows, numbers, kinds, docs, self._done, p.FIRST)


def _order(note: Note) -> tuple[int, int]:
    return note.kind, note.seq


def _by_bucket(notes: Iterable[Note]) -> list[tuple[int, pa.Table]]:
    parts: dict[int, list[Note]] = {}
    for note in notes:
        parts.setdefault(p.bucket_of(note.query), []).append(note)
    return [(bucket, p.notes_of(some)) for bucket, some in parts.items()]


# ---- without state ---------------------------------------------------------------------------

_built: list[tuple[bytes, Queries]] = []  # the last one; a worker runs one query of Spark's


def broadcast(batches: Iterator[pa.RecordBatch], settings: Settings) -> Iterator[pa.RecordBatch]:
    """What `mapInArrow` calls with rows of writes that have the document before."""
    queries = None
    for batch in batches:
        queries = queries or _all_queries(settings)
        writes = read_writes(batch, settings.key)
        yield from p.packets_of([(BAD, writes.bad)])
        table = pa.Table.from_batches([writes.rows])
        old = _texts(table["before"].cast(pa.large_binary()))
        found = queries.standing.changes(old, _texts(table["text"]))
        yield from p.packets_of(queries.told(*found, table, BAD, p.WRITE))
    if queries is not None:
        settle("watching")


def _texts(column: Any) -> Texts:
    return Texts.from_arrow(column.fill_null(b""))


def _all_queries(settings: Settings) -> Queries:
    """The queries of a batch, filed; kept for the next task of this worker."""
    assert settings.given is not None
    if not _built or _built[0][0] != settings.given:
        queries = Queries()
        for id, (text, _) in settings.queries.items():
            queries.add(id, text)
        _built[:] = [(settings.given, queries)]
    return _built[0][1]
