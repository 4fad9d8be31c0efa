"""Postings in memory: a small tail of tokens as they came, and runs.

    add --> tail --(full)--> run, run, run --(two of about one size)--> run

    Shown    runs, tail and how much of it counts, columns of the entries and how many count

A writer makes everything new behind what counts, and then puts a new `Shown` in the place of the
one before by one Python assignment. Nothing that a `Shown` speaks of changes, but for the counts of
tokens, which are 0 until they are known. So readers need no lock, and a call that was cut by an
exception has done nothing, or all of it: `Shown` has the first seq of the last call.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tideline.addresses import address_of
from tideline.index import runs
from tideline.index.runs import Run, Tokens
from tideline.index.texts import Texts
from tideline.kernels.inverted import lists, tokens
from tideline.kernels.inverted import runs as kernel

__all__ = ["Columns", "InvertedMemory", "Shown"]

Words = NDArray[np.int64]
_TAIL = 1024  # tokens: sorted for a search in 20 us
_ENTRY_BYTES = 8 + 8 + 4
_TOKEN_BYTES = 16
_UNNAMED = -1


class Columns:
    """What is known of each entry, with room for more."""

    __slots__ = ("counts", "heads", "key_offsets", "keys", "seqs", "texts")

    def __init__(self, entries: int, key_bytes: int, text_bytes: int, head: int) -> None:
        self.seqs: Words = np.empty(entries, np.int64)
        self.key_offsets: Words = np.zeros(entries + 1, np.int64)
        self.keys = np.empty(key_bytes, np.uint8)
        self.counts = np.zeros(entries, np.int32)
        """How many different tokens an entry has; 0 as long as that is not known."""
        self.texts = np.empty(text_bytes, np.uint8)
        self.heads = np.empty((entries, head), np.uint8)

    def with_room(
        self, count: int, used: int, entries: int, key_bytes: int, text_bytes: int
    ) -> Columns:
        """The same with room for more, in new arrays where there is too little."""
        keys_used = int(self.key_offsets[count])
        room = (
            len(self.seqs) - count >= entries,
            len(self.keys) - keys_used >= key_bytes,
            len(self.texts) - used >= text_bytes,
        )
        if all(room):
            return self
        made = object.__new__(Columns)
        for name in Columns.__slots__:
            setattr(made, name, getattr(self, name))
        if not room[0]:
            size = 2 * (count + entries)
            made.seqs, made.counts = _larger(self.seqs, count, size), np.zeros(size, np.int32)
            made.counts[:count] = self.counts[:count]
            made.key_offsets = _larger(self.key_offsets, count + 1, size + 1)
            made.heads = np.empty((size, self.heads.shape[1]), np.uint8)
            made.heads[:count] = self.heads[:count]
        if not room[1]:
            made.keys = _larger(self.keys, keys_used, 2 * (keys_used + key_bytes))
        if not room[2]:
            made.texts = _larger(self.texts, used, 2 * (used + text_bytes))
        return made


class Shown:
    """A memory at one moment."""

    __slots__ = (
        "_every", "_places", "batch", "columns", "count", "near", "runs", "tail", "tail_count",
        "texts_used",
    )  # fmt: skip

    def __init__(
        self, runs: tuple[Run, ...], tail: Tokens, tail_count: int, columns: Columns, count: int,
        texts_used: int, batch: int,
    ) -> None:  # fmt: skip
        self.runs, self.tail, self.tail_count = runs, tail, tail_count
        self.columns, self.count, self.texts_used, self.batch = columns, count, texts_used, batch
        self._every: tuple[Run, ...] | None = None
        self._places: tuple[Words, Any] | None = None
        self.near: Any = None
        """The same for searches for near words (index/fuzzyview.py)."""

    def every(self) -> tuple[Run, ...]:
        """All of it as runs."""
        if self._every is None:
            texts = address_of(self.columns.texts)
            tail = (runs.make(self.tail, self.tail_count, texts),) if self.tail_count else ()
            self._every = (*self.runs, *tail)
        return self._every

    def places(self) -> tuple[Words, Any]:
        """As kernels search it, and what must be held meanwhile."""
        if self._places is None:
            every = self.every()
            words = np.zeros((len(every), lists.P_WORDS), np.int64)
            columns = self.columns
            for row, run in zip(words, every, strict=True):
                row[: kernel.R_WORDS] = run.row
            words[:, kernel.R_TEXTS] = address_of(columns.texts)
            words[:, lists.P_SEQS] = address_of(columns.seqs)
            words[:, lists.P_KEY_OFFSETS] = address_of(columns.key_offsets)
            words[:, lists.P_KEYS] = address_of(columns.keys)
            words[:, lists.P_COUNTS] = address_of(columns.counts)
            self._places = words.ravel(), (every, columns)
        return self._places


class InvertedMemory:
    """The tokens of texts; made by an `InvertedKind`."""

    def __init__(self, seed: int, grams: int, capacity: int, head: int = 0) -> None:
        self._seed, self.grams = seed, grams
        self.head = head
        """Bytes of each value before its text: kept as they are, for whoever reads them."""
        columns = Columns(
            max(capacity // 64, 64), max(capacity // 4, 1024), max(capacity, 4096), head
        )
        self.shown = Shown((), Tokens(_TAIL), 0, columns, 0, 0, _UNNAMED)

    @property
    def size_bytes(self) -> int:
        """Bytes in use."""
        shown = self.shown
        postings = sum(run.postings for run in shown.runs) + shown.tail_count
        size: int = (
            shown.texts_used + int(shown.columns.key_offsets[shown.count])
            + _ENTRY_BYTES * shown.count + _TOKEN_BYTES * postings
        )  # fmt: skip
        return size

    @property
    def count(self) -> int:
        """Entries in here."""
        return self.shown.count

    def add(self, values: Texts, keys: Texts, seqs: int, rows: Words) -> None:
        """Add entries: value i with the key and the seq of row `rows[i]`; row 0 has seq `seqs`."""
        if values.count and self.shown.batch != seqs:
            if len(rows) != keys.count or not np.array_equal(rows, np.arange(len(rows))):
                keys = keys.take(rows)
            self.append(values, keys, seqs + rows, seqs)

    def append(self, values: Texts, keys: Texts, seqs: Words, batch: int = _UNNAMED) -> None:
        """Add entries: value i has key i and seq i; seqs do not fall."""
        shown, added = self.shown, values.count
        size, key_size = values.size_bytes, keys.size_bytes
        count, used, tail, tail_count = shown.count, shown.texts_used, shown.tail, shown.tail_count
        columns = shown.columns.with_room(count, used, added, key_size, size)
        columns.seqs[count : count + added] = seqs
        keys_used = columns.key_offsets[count]
        columns.key_offsets[count + 1 : count + added + 1] = (
            keys.offsets[1:] - keys.offsets[0] + keys_used
        )
        columns.keys[keys_used : keys_used + key_size] = _bytes(keys)
        columns.texts[used : used + size] = _bytes(values)
        columns.counts[count : count + added] = 0
        texts = address_of(columns.texts)
        if self.head:
            starts = (values.offsets[:-1])[:, None] + np.arange(self.head)
            columns.heads[count : count + added] = values.data[starts]
        every = shown.runs
        most = (size if self.grams else (size - self.head * added) // 2) + added
        if tail_count + most > _TAIL and tail_count:
            every = self._with(every, runs.make(tail, tail_count, texts), columns)
            tail, tail_count = Tokens(_TAIL), 0
        fits = most <= _TAIL
        into = tail if fits else Tokens(most)
        found = tokens.tokenise(
            *values.addresses, self.grams, self.head, self._seed, count, used,
            *into.addresses(tail_count if fits else 0),
        )  # fmt: skip
        if fits:
            tail_count += found
        elif found:
            every = self._with(every, runs.make(into, found, texts), columns)
        self.shown = Shown(every, tail, tail_count, columns, count + added, used + size, batch)

    def _with(self, every: tuple[Run, ...], run: Run, columns: Columns) -> tuple[Run, ...]:
        """The runs with one more; those of about one size become one."""
        kernel.count_tokens(address_of(run.row), 0, address_of(columns.counts))
        kept = [*every, run]
        while len(kept) > 1 and kept[-2].postings < 2 * kept[-1].postings:
            kept[-2:] = [runs.merged(kept[-2:], address_of(columns.texts))]
        return tuple(kept)

    def whole(self) -> tuple[Run, Columns, int] | None:
        """A frozen memory as one run, with its entries."""
        shown = self.shown
        every = shown.every()
        if not every:
            return None
        if shown.tail_count:
            kernel.count_tokens(address_of(every[-1].row), 0, address_of(shown.columns.counts))
        whole = runs.merged(every, address_of(shown.columns.texts))
        return whole, shown.columns, shown.count


def _bytes(texts: Texts) -> Any:
    return texts.data[texts.offsets[0] : texts.offsets[-1]]


def _larger(array: Any, used: int, size: int) -> Any:
    made = np.empty(size, array.dtype)
    made[:used] = array[:used]
    return made
