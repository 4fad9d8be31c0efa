"""The memory of the index: the arrays that kernels file conditions in, and texts and programs.

Arrays grow by half or by doubling when a kernel says that it needs more; a new array takes the
place of the old one between two calls. Texts and programs lie in blocks of a few sizes; a block
that is given back is used by the next one of its size.

    blocks   8 words, 16, 24, ... of programs; 32 bytes, 48, 64, ... of texts

Not safe from several threads: callers hold a lock.
"""

from __future__ import annotations

import secrets
import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tideline.addresses import address_of
from tideline.kernels.standing import layout as at
from tideline.kernels.standing import names, table

__all__ = ["Tables"]

Words = NDArray[np.int64]
_STAMPS_LIMIT = (1 << 28) - 2
_WORD_STEP, _BYTE_STEP = 8, 16


class Tables:
    """Arrays of the index, and what is filed in them."""

    def __init__(self) -> None:
        self.state = np.zeros(at.S_WORDS, np.int64)
        self.state[at.S_SEED] = secrets.randbits(62)
        self.state[at.S_FREE : at.S_FREE + at.CLASSES] = -1
        self._slots = np.zeros(at.SLOT * 64, np.int64)
        self._entries = np.empty(at.ENTRY * 64, np.int64)
        self._postings = np.zeros(at.POSTING * 64, np.int64)
        self._shapes = np.zeros(at.SHAPE * 16, np.int64)
        self._shape_ids: dict[tuple[int, int, int, int], int] = {}
        self._first = np.zeros(64, np.uint32)
        self._stamps = np.zeros(64, np.uint32)
        self._programs = _Blocks(np.int64, _WORD_STEP, _WORD_STEP)
        self._texts = _Blocks(np.uint8, _BYTE_STEP, 0)
        self._program_at = np.zeros(64, np.uint32)
        self._text_at = np.zeros(64, np.int64)
        self._text_size = np.full(64, -1, np.int32)
        self._names = np.zeros(64, np.uint32)
        self._named = 0
        self.state[at.S_MASK] = 63
        self.state[at.S_ENTRIES_ROOM] = self.state[at.S_POSTINGS_ROOM] = 64
        self.state[at.S_POSTINGS_TOP] = 1
        self._shape(0, 0, 0, 0)  # shape 0 stands for none, in the chains of pairs
        self._tell()

    def _tell(self) -> None:
        state = self.state
        state[at.S_SLOTS] = address_of(self._slots)
        state[at.S_ENTRIES] = address_of(self._entries)
        state[at.S_POSTINGS] = address_of(self._postings)
        state[at.S_SHAPES] = address_of(self._shapes)
        state[at.S_FIRST] = address_of(self._first)
        state[at.S_STAMPS] = address_of(self._stamps)
        state[at.S_PROGRAMS] = address_of(self._programs.data)
        state[at.S_TEXTS] = address_of(self._texts.data)
        state[at.S_TEXT_AT] = address_of(self._text_at)
        state[at.S_TEXT_SIZE] = address_of(self._text_size)
        state[at.S_NAMES], state[at.S_NAMES_MASK] = address_of(self._names), len(self._names) - 1
        self.address = address_of(state)
        self.seed = state.item(at.S_SEED)

    @property
    def room(self) -> int:
        """How many numbers there is room for."""
        return len(self._first)

    @property
    def texts(self) -> tuple[NDArray[np.uint8], Words, NDArray[np.int32]]:
        """Bytes of texts; by number, where each begins, and its size, -1 for none."""
        return self._texts.data, self._text_at, self._text_size

    # ---- shapes ---------------------------------------------------------------------------

    def shape(self, kind: int, column: int = 0, second: int = 0, level: int = 0) -> int:
        """The number of a shape, made if it is new."""
        found = self._shape_ids.get((kind, column, second, level))
        return self._shape(kind, column, second, level) if found is None else found

    def _shape(self, kind: int, column: int, second: int, level: int) -> int:
        number = self.state.item(at.S_SHAPES_COUNT)
        if at.SHAPE * (number + 1) > len(self._shapes):
            self._shapes = _larger(self._shapes, 2 * len(self._shapes))
            self._tell()
        after = 0
        if kind >= at.PAIR:
            heads = self.shape(at.HEADS, column, second)
            number = self.state.item(at.S_SHAPES_COUNT)
            if at.SHAPE * (number + 1) > len(self._shapes):
                self._shapes = _larger(self._shapes, 2 * len(self._shapes))
                self._tell()
            after = self._shapes.item(at.SHAPE * heads + 5)
            self._shapes[at.SHAPE * heads + 5] = number
        first = at.SHAPE * number
        self._shapes[first : first + at.SHAPE] = kind, column, second, level, 0, after
        self.state[at.S_SHAPES_COUNT] = number + 1
        self._shape_ids[kind, column, second, level] = number
        return number

    def levels(self) -> dict[int, list[int]]:
        """The levels of the grid in use, by column."""
        found: dict[int, list[int]] = {}
        for kind, column, _, level, *_ in self.shapes().tolist():
            if kind == at.GRID:
                found.setdefault(column, []).append(level)
        return found

    def shapes(self) -> Words:
        """The shapes in use, a row each (kernels/standing/layout.py)."""
        rows = self._shapes[: at.SHAPE * self.state.item(at.S_SHAPES_COUNT)]
        rows = rows.reshape(-1, at.SHAPE)
        return rows[rows[:, 4] > 0]

    def changed(self) -> bool:
        """Whether a shape came into use or went out of it since the last call."""
        found = self.state.item(at.S_CHANGED) != 0
        self.state[at.S_CHANGED] = 0
        return found

    # ---- conditions -----------------------------------------------------------------------

    def keep(self, number: int, text: bytes, program_words: int) -> tuple[int, int]:
        """Keep the text of a condition, and room for its program: where both begin."""
        if number >= self.room:
            room = 2 * self.room
            self._first, self._stamps = _larger(self._first, room), _larger(self._stamps, room)
            self._program_at = _larger(self._program_at, room)
            self._text_at = _larger(self._text_at, room)
            self._text_size = _larger(self._text_size, room, -1)
            self._tell()
        texts, programs = self._texts.data, self._programs.data
        text_at = self._texts.take(len(text))
        program_at = self._programs.take(program_words) if program_words else 0
        if texts is not self._texts.data or programs is not self._programs.data:
            self._tell()
        self._texts.view[text_at : text_at + len(text)] = text
        self._text_at[number], self._text_size[number] = text_at, len(text)
        self._program_at[number] = program_at
        return text_at, program_at

    def put_program(self, first: int, words: list[int]) -> None:
        """Write a program."""
        struct.pack_into(f"={len(words)}q", self._programs.view, 8 * first, *words)

    def has(self, number: int) -> bool:
        """Whether a condition has this number."""
        return 0 <= number < self.room and self._text_size.item(number) >= 0

    def text(self, number: int) -> bytes:
        """The text of a condition."""
        first = self._text_at.item(number)
        return self._texts.data[first : first + self._text_size.item(number)].tobytes()

    # ---- by text --------------------------------------------------------------------------

    def find(self, text: bytes) -> int:
        """The number that was entered for a text, or -1."""
        found: int = names.find(self.address, address_of(text), len(text))
        return found

    def enter(self, numbers: list[int]) -> None:
        """Have numbers found by their texts, none of which was entered."""
        self._named += len(numbers)
        entered = np.array(numbers, np.uint32)
        if 2 * self._named > len(self._names):
            there = self._names[self._names > 0] - np.uint32(1)
            entered = np.concatenate([there, entered])
            size = 64
            while size < 2 * self._named:
                size *= 2
            self._names = np.zeros(size, np.uint32)
            self._tell()
        names.enter(self.address, address_of(entered), len(entered))

    def drop(self, number: int) -> None:
        """Have a number that was entered not found any more."""
        names.drop(self.address, number)
        self._named -= 1

    # ---- postings -------------------------------------------------------------------------

    def postings(self, number: int) -> list[tuple[list[int], int, int]]:
        """How a condition is filed: the shape of each list, its length, the flags of the entry."""
        found = []
        mask = self.state.item(at.S_MASK)
        posting = self._first.item(number)
        while posting:
            word, token = self._postings[at.POSTING * posting :][: at.POSTING].tolist()
            slot = token & mask
            while self._slots.item(at.SLOT * slot) != token:
                slot = (slot + 1) & mask
            _, first, about, _ = self._slots[at.SLOT * slot :][: at.SLOT].tolist()
            place = word >> 32 & at.LOW
            shape = self._shapes[at.SHAPE * (about >> 40) :][: at.SHAPE].tolist()
            if place != at.HEAD:
                flags = self._entries.item(at.ENTRY * (first + place) + 3) >> 56
                found.append((shape, about & at.LOW, flags))
            posting = word & at.LOW
        return found

    def lengths(self, rows: list[int]) -> list[int]:
        """How long the lists of planned postings are now."""
        plan, count = _words(rows), len(rows) // at.PLAN
        out = np.empty(count, np.int64)
        table.lengths(self.address, address_of(plan), count, out)
        found: list[int] = out.tolist()
        return found

    def file(self, rows: list[int]) -> None:
        """File the planned postings of conditions."""
        plan, count, done = _words(rows), len(rows) // at.PLAN, 0
        plan_at = address_of(plan)
        while True:
            done = table.file(self.address, plan_at, done, count)
            if done == count:
                return
            self._grow(self.state.item(at.S_NEED))

    def take_out(self, number: int, program_words: int | None = None) -> None:
        """Forget a condition."""
        table.take_out(self.address, number)
        self._texts.give(self._text_at.item(number), self._text_size.item(number))
        self._text_size[number] = -1
        program_at = self._program_at.item(number)
        if program_at:
            self._programs.give(program_at, self._programs.data.item(program_at))

    def before_rows(self, rows: int) -> None:
        """Stamps must not come round while rows are matched."""
        if self.state.item(at.S_EPOCH) + 4 * rows > _STAMPS_LIMIT:
            self._stamps.fill(0)
            self.state[at.S_EPOCH] = 0

    def _grow(self, need: int) -> None:
        if need == at.NEED_SLOTS:
            live = self.state.item(at.S_LIVE)
            size = 64
            while size < 2 * live:
                size *= 2
            slots = np.zeros(at.SLOT * size, np.int64)
            table.rehash(self.address, address_of(slots), size - 1)
            self._slots = slots
        elif need == at.NEED_ENTRIES:
            largest = 1 << int(np.max(self._slots[2 :: at.SLOT] >> 32 & 255) + 2)
            room = self.state.item(at.S_ENTRIES_ROOM)
            room += max(room // 2, largest)
            self._entries = _larger(self._entries, at.ENTRY * room)
            self.state[at.S_ENTRIES_ROOM] = room
        else:
            room = self.state.item(at.S_POSTINGS_ROOM)
            room += room // 2
            self._postings = _larger(self._postings, at.POSTING * room)
            self.state[at.S_POSTINGS_ROOM] = room
        self._tell()

    def sizes(self) -> dict[str, int]:
        """Bytes of memory, by what they are for."""
        state = self.state
        return {
            "table": self._slots.nbytes,
            "lists": 8 * at.ENTRY * state.item(at.S_ENTRIES_TOP),
            "postings": 8 * at.POSTING * state.item(at.S_POSTINGS_TOP),
            "texts": self._texts.top,
            "programs": 8 * self._programs.top,
            "numbers": self._first.nbytes + self._stamps.nbytes + self._program_at.nbytes
            + self._text_at.nbytes + self._text_size.nbytes + self._names.nbytes,
        }  # fmt: skip


class _Blocks:
    """Blocks of an array by size, used again."""

    def __init__(self, kind: Any, step: int, top: int) -> None:
        self.data: NDArray[Any] = np.zeros(64 * step, kind)
        self.view = self.data.data
        self.top = top
        self._step = step
        self._free: dict[int, list[int]] = {}

    def take(self, size: int) -> int:
        """A block with room for `size`: where it begins."""
        steps = -(-size // self._step)
        free = self._free.get(steps)
        if free:
            return free.pop()
        first = self.top
        self.top += steps * self._step
        if self.top > len(self.data):
            self.data = _larger(self.data, max(self.top, len(self.data) * 3 // 2))
            self.view = self.data.data
        return first

    def give(self, first: int, size: int) -> None:
        """A block that is no longer used."""
        steps = -(-size // self._step)
        if steps:
            self._free.setdefault(steps, []).append(first)


def _words(rows: list[int]) -> bytes:
    """Words as a kernel reads them."""
    return struct.pack(f"={len(rows)}q", *rows)


def _larger(array: NDArray[Any], size: int, fill: int = 0) -> NDArray[Any]:
    """A copy with more room, zeros behind unless said."""
    found = np.zeros(size, array.dtype)
    found[: len(array)] = array
    if fill:
        found[len(array) :] = fill
    return found
