"""The sort stage: the queries of a bucket that have positions, each with its window.

A window keeps everything that meets the condition, for there is no store to find out anew what
comes after it. Whatever comes late, again or out of order is known by the version of the document,
deleted ones included.

Changes of one query are numbered, `step`, and their versions never go down: a write that comes
late is told with the version that the query had come to.

Runs in Spark's Python workers; imports no pyspark.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from tideline.live.entries import rank_of
from tideline.live.item import Item
from tideline.live.query import Query, query_of
from tideline.live.window import Window, ranked
from tideline.model import LiveChange
from tideline.spark.watching import packets as p
from tideline.spark.watching.packets import Note, Settings

__all__ = ["Windows"]

_DONE = -1
_ALL = 1 << 60


class Sorted:
    """One query."""

    def __init__(self, text: bytes, key: str) -> None:
        query = query_of(text)
        assert isinstance(query, Query)
        self.text = text
        slack = 0 if query.limit is None else _ALL
        self.window = Window(rank_of(query, key), query.offset, query.limit, slack)
        self.documents: dict[str, tuple[int, bytes | None]] = {}
        """Version and text of every document that is in the window, or was: None then."""
        self.version = -1
        self.step = 0

    def begin(self, notes: list[Note]) -> list[LiveChange]:
        """What is there when it begins."""
        for note in notes:
            self.documents[note.key] = (note.seq, note.text)
        items = [Item(key, text or b"") for key, (_, text) in self.documents.items()]
        seqs = [seq for seq, _ in self.documents.values()]
        self.version = max(seqs)
        return self.window.renew(ranked(items, seqs, self.window.rank), True, self.version)

    def write(self, note: Note) -> list[LiveChange]:
        """A document meets the condition from now on, or does no more."""
        if note.seq <= self.documents.get(note.key, (-1, None))[0]:
            return []
        self.documents[note.key] = (note.seq, note.text)
        self.version = max(self.version, note.seq)
        return self.window.apply(note.key, note.text, note.seq)

    def state(self, id: str) -> Note:
        """How far it is."""
        return Note(p.STATE, id, str(self.step), self.version)


class Windows:
    """The queries of a bucket."""

    def __init__(self, settings: Settings, part: int) -> None:
        self.settings = settings
        self._queries: dict[str, Sorted] = {}

    def run(self, table: pa.Table) -> tuple[list[tuple[int, pa.Table]], pa.Table]:
        """Apply notes; returns packets of changes, and what to keep of the notes."""
        rows: list[Any] = []
        kept: list[Note] = []
        for id, notes in _by_query(p.rows_of(table)):
            rows += self._apply(id, notes)
            kept += notes
            if id in self._queries:
                kept.append(self._queries[id].state(id))
        return [(_DONE, p.changes_of(rows))], p.notes_of(kept)

    def replay(self, table: pa.Table) -> None:
        """Apply notes that were applied before."""
        for id, notes in _by_query(p.rows_of(table)):
            self._apply(id, notes)

    def snapshot(self) -> pa.Table:
        """Notes that make windows like these."""
        made: list[Note] = []
        for id, query in self._queries.items():
            made.append(Note(p.REGISTER, id, text=query.text))
            for key, (seq, text) in query.documents.items():
                made.append(Note(p.WRITE if text is None else p.FIRST, id, key, seq, text))
            made.append(query.state(id))
        return p.notes_of(made)

    def _apply(self, id: str, notes: list[Note]) -> list[Any]:
        """The notes of a query, in order; returns rows of changes."""
        rows: list[Any] = []
        query = self._queries.get(id)
        if query is None and self.settings.grid is None:  # nobody registers it
            query = self._queries[id] = Sorted(self.settings.queries[id][0], self.settings.key)
        for note in notes:
            if note.kind == p.REGISTER and query is None:
                assert note.text is not None
                query = self._queries[id] = Sorted(note.text, self.settings.key)
                firsts = [each for each in notes if each.kind == p.FIRST]
                if firsts:
                    rows += _rows(id, query, query.begin(firsts))
            elif query is None:
                continue
            elif note.kind in (p.FIRST, p.WRITE):
                rows += _rows(id, query, query.write(note))
            elif note.kind == p.STATE:
                query.step, query.version = int(note.key), note.seq
            elif note.kind in (p.LEAVE, p.CANCEL) and query.text == note.text:
                del self._queries[id]
                query = None
        return rows


def _by_query(notes: Iterable[Note]) -> list[tuple[str, list[Note]]]:
    found: dict[str, list[Note]] = {}
    for note in notes:
        found.setdefault(note.query, []).append(note)
    for some in found.values():
        some.sort(key=lambda note: (note.kind, note.seq))
    return list(found.items())


def _rows(id: str, query: Sorted, changes: list[LiveChange]) -> list[Any]:
    rows = []
    for each in changes:
        document = None if each.raw is None else each.raw.decode()
        rows.append((id, query.version, each.kind, each.key, each.index, each.old_index, document,
                     query.step))  # fmt: skip
        query.step += 1
    return rows
