"""What the filter stage found: which standing queries some writes concern, and how.

    Block    the changes of one or more frames as columns, with one number a note, sorted
    note :=  number of the query << 22 | row << 2 | kind

Sorted by query and then by row, the notes of one query are one run, found by two searches: nothing
is made for a query that nobody reads. A note takes 8 bytes.

Values; safe from any thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tideline.documents.follower import Part
from tideline.index.texts import Texts
from tideline.model import LiveChange
from tideline.where.keys import decode

__all__ = ["ADD", "CHANGE", "REMOVE", "Block", "Note", "PlainChanges", "block_of",
           "packed", "plain_change"]  # fmt: skip

ADD, CHANGE, REMOVE = 0, 1, 2
KINDS = ("add", "change", "remove")
_ROW_BITS, _KIND_BITS = 20, 2
SHIFT = _ROW_BITS + _KIND_BITS
_NOTE_BYTES = 8
Words = NDArray[np.int64]


class Note(NamedTuple):
    """One write as one query sees it; texts are empty where there is no document."""

    kind: int
    seq: int
    key: bytes
    old: bytes
    new: bytes


class Block(NamedTuple):
    """Some writes in order, and what they mean to standing queries."""

    seq: int
    """Of row 0; the others follow."""
    keys: Texts
    old: Texts
    new: Texts
    notes: Words
    """Sorted."""

    @property
    def limit(self) -> int:
        """The seq after the last row's."""
        return self.seq + self.keys.count

    @property
    def size_bytes(self) -> int:
        """What keeping it takes."""
        texts = self.keys.size_bytes + self.old.size_bytes + self.new.size_bytes
        return texts + 24 * self.keys.count + _NOTE_BYTES * len(self.notes) + 500

    def run(self, number: int, after: int) -> Words:
        """The notes of one query, without those of writes up to the seq `after`."""
        first = number << SHIFT
        if after >= self.seq:
            first |= (after + 1 - self.seq) << _KIND_BITS
        ends = np.searchsorted(self.notes, [first, (number + 1) << SHIFT])
        found: Words = self.notes[ends[0] : ends[1]]
        return found

    def numbers(self) -> Words:
        """The queries with notes, each once."""
        found: Words = np.unique(self.notes >> SHIFT)
        return found

    def runs(self) -> Iterator[tuple[int, Words]]:
        """Every query with its notes."""
        numbers = self.notes >> SHIFT
        starts = np.flatnonzero(np.diff(numbers, prepend=-1))
        for number, (first, limit) in zip(
            numbers[starts].tolist(), pairwise([*starts.tolist(), len(numbers)]), strict=True
        ):
            yield number, self.notes[first:limit]

    def of(self, run: Words) -> Iterator[Note]:
        """Notes with their texts."""
        for packed in run.tolist():
            row = packed >> _KIND_BITS & (1 << _ROW_BITS) - 1
            yield Note(packed & 3, self.seq + row, self.keys[row], self.old[row], self.new[row])


class PlainChanges(Sequence[LiveChange]):
    """The changes that notes are to a plain query; made when they are asked for."""

    __slots__ = ("_made", "block", "run")

    def __init__(self, block: Block, run: Words) -> None:
        self.block = block
        self.run = run
        self._made: list[LiveChange] | None = None

    def __len__(self) -> int:
        return len(self.run)

    def __getitem__(self, at):  # type: ignore[no-untyped-def]
        if self._made is None:
            self._made = [plain_change(note) for note in self.block.of(self.run)]
        return self._made[at]


def plain_change(note: Note) -> LiveChange:
    """What a note is to a query without positions."""
    return LiveChange(
        KINDS[note.kind], decode(note.key), note.seq, None, None,  # type: ignore[arg-type]
        None if note.kind == REMOVE else note.new, None if note.kind == ADD else note.old,
    )  # fmt: skip


def block_of(parts: Sequence[Part]) -> Block:
    """The rows of parts that follow one another, without notes."""
    return Block(
        parts[0].seq, Texts.join([part.rows.keys for part in parts]), Texts.join(_olds(parts)),
        Texts.join([part.rows.docs for part in parts]), np.empty(0, np.int64),
    )  # fmt: skip


def packed(rows: Words, numbers: Words, kinds: NDArray[np.integer]) -> Words:
    """Notes, sorted."""
    notes = numbers << SHIFT
    notes |= rows << _KIND_BITS
    notes |= kinds
    notes.sort()
    return notes


def _olds(parts: Sequence[Part]) -> list[Texts]:
    found = [part.old for part in parts]
    assert None not in found  # the follower reads old versions
    return found  # type: ignore[return-value]
