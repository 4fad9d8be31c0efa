"""Search an index of entries: what there is of it at one moment, newest first.

A `View` holds the memories and the components of an index. It is made anew when a memory is
frozen or a component comes or goes. `Places` is what kernels see of a view: one array, with a
copy of the state words of each memory. A reader has its own, and brings it up to date before
each question (`follow`); searching is one kernel call a chunk.

    view.search(low, high, k=10) -> chunk (k candidates) -> chunk (4 k) -> ...

Whoever validates the candidates stops when it has k good ones; if all are good, the first
chunk was enough. `step` gives a chunk as addresses, for a kernel to go on with.

A view is safe from any thread, while one adds to its first memory: with `limit`, a search passes
over entries with a seq from there on. `Places` and `Candidates` are for one thread.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tideline.addresses import address_of
from tideline.index.entrymemory import EntryMemory, Published
from tideline.index.kind import Chunk, Estimate
from tideline.index.texts import Texts
from tideline.kernels.documents import found, newest, places
from tideline.kernels.documents.entries import M_WORDS

if TYPE_CHECKING:
    from tideline.index.entries import EntryKind, EntryReader

__all__ = ["Candidates", "Places", "View", "search"]

Words = NDArray[np.int64]
_MOST = 65_536  # entries of a chunk of a search with k
_KEY_WORDS = 4  # room for a key in the first go
_HEAD = newest.CALL_WORDS
_EMPTY: Any = np.empty(0, np.int64)


class View:
    """An index at one moment: memories, then components, each newest first."""

    def __init__(
        self, kind: EntryKind, memories: Sequence[EntryMemory], readers: Sequence[EntryReader]
    ) -> None:
        self.kind = kind
        self.memories = list(memories)
        self.readers = list(readers)
        self.count = len(self.memories) + len(self.readers)
        every: list[EntryMemory | EntryReader] = [*self.memories, *self.readers]
        rows = [place.row for place in every]
        self.words: Words = np.concatenate(rows) if rows else np.zeros(1, np.int64)
        self._every = every
        self.point = newest.POINT | (newest.EAGER if kind.eager else 0)
        """What kernels have to know of a question for one value."""
        if kind.eager:
            low = newest.EVERYTHING
            for number in range(len(every) - 1, -1, -1):
                partial = every[number].since > low
                self.words[number * places.P_WORDS + places.P_PARTIAL] = partial
                low = min(low, every[number].low)

    @property
    def low(self) -> int:
        """The smallest seq there is now; above every seq when there is none."""
        return min((place.low for place in self._every), default=newest.EVERYTHING)

    def search(
        self, low: bytes = b"", high: bytes | None = None, *, low_open: bool = False,
        high_open: bool = False, k: int | None = None,
        filters: Mapping[str, tuple[bytes, bytes]] | None = None,
        limit: int = newest.EVERYTHING,
    ) -> Candidates:  # fmt: skip
        """Candidates with a value in the range, newest first; `high=None` is no upper end.

        Components whose filters miss one of the closed ranges in `filters` are left out, and so
        are entries with a seq from `limit` on.
        """
        flags = self.ask(low, high, low_open=low_open, high_open=high_open)
        view = self.passing(filters) if filters else self
        return Candidates(view, low, high, flags, k, limit)

    def ask(
        self, low: bytes, high: bytes | None, *, low_open: bool = False, high_open: bool = False
    ) -> int:
        """Make ready for a question; what kernels have to know of it beside its texts."""
        if low == high and not (low_open or high_open):
            return self.point
        flags = self.point & ~newest.POINT
        for memory in self.memories:
            memory.prepare()
        if high is None:
            flags |= newest.NO_HIGH
        return flags | low_open * newest.LOW_OPEN | high_open * newest.HIGH_OPEN

    def places(self) -> Places:
        """All of it as it is now, for kernels."""
        made = Places(self)
        made.follow(self, newest.POINT)
        return made

    def passing(self, filters: Mapping[str, tuple[bytes, bytes]]) -> View:
        """The view without the components whose filters miss one of the closed ranges."""
        readers = [r for r in self.readers if _passes(r, filters)]
        if len(readers) == len(self.readers):
            return self
        return View(self.kind, self.memories, readers)

    def estimate(
        self, low: bytes = b"", high: bytes | None = None, *, low_open: bool = False,
        high_open: bool = False,
    ) -> Estimate:  # fmt: skip
        """How many entries and blocks of components the range has, stale ones included."""
        asked = self.search(low, high, low_open=low_open, high_open=high_open)
        return Estimate(*self.counts(asked, 0, self.count).sum(axis=0).tolist())

    def counts(self, asked: Candidates, first: int, limit: int) -> Words:
        """Entries and blocks of the places [first, limit) for a question."""
        call = np.zeros(_HEAD + 2 * (limit - first), np.int64)
        address = asked.places.address + first * places.P_WORDS * 8
        found.count_matches(address, limit - first, *asked.question, address_of(call))
        return call[_HEAD:].reshape(-1, 2)


class Places:
    """What kernels see of a view; for one thread.

    It holds nothing of the view alive: whoever searches does.
    """

    def __init__(self, view: View) -> None:
        self.view = weakref.ref(view)
        self.count = view.count
        first = len(view.words)
        self._words: Words = np.zeros(first + M_WORDS * len(view.memories), np.int64)
        self._words[:first] = view.words
        self.address = address_of(self._words)
        whole = memoryview(self._words)  # type: ignore[arg-type]
        self._states: list[Any] = []
        self._known: list[Published | None] = [None] * len(view.memories)
        for number in range(len(view.memories)):
            start = first + number * M_WORDS
            self._words[number * places.P_WORDS + places.P_MEMORY] = self.address + 8 * start
            self._states.append(whole[start : start + M_WORDS])

    def follow(self, view: View, flags: int) -> Any:
        """Take in what was published of the memories; what must be held during a search."""
        known, held = self._known, []
        for number, memory in enumerate(view.memories):
            if not flags & newest.POINT:
                held.append(memory.show_order(self._states[number]))
            if memory.published is not known[number]:
                known[number] = memory.show(self._states[number])
        return held


class Candidates(Iterator[Chunk]):
    """The chunks of one search, in falling order of seq, none twice.

    `blocks` counts the blocks of components read so far.
    """

    def __init__(
        self, view: View, low: bytes, high: bytes | None, flags: int, k: int | None,
        limit: int = newest.EVERYTHING,
    ) -> None:  # fmt: skip
        self.places = Places(view)
        self._held = self.places.follow(view, flags)
        self._limit = limit
        top = b"" if high is None else high
        self.blocks = 0
        self._text = low + top
        self.question = (address_of(self._text), len(low), len(top), flags)
        self._view = view
        self._room = k if k is None else min(k, _MOST)  # more come in the next chunk
        self._place = 0
        self._below = limit
        self._ended = view.count == 0 or k == 0 or (high is not None and low > high)
        self._call = _EMPTY
        self._keys = _EMPTY

    def step(self) -> tuple[int, int, int, int] | None:
        """The next chunk as addresses: how many, key offsets, key bytes, seqs; None at the end.

        They are good until the next step.
        """
        while not self._ended:
            at = self._some(self._room) if self._room is not None else self._all()
            if at[0]:
                return at
        return None

    def __next__(self) -> Chunk:
        """The next chunk; none is empty."""
        at = self.step()
        if at is None:
            raise StopIteration
        count, offsets_at, data_at, seqs_at = at
        base = address_of(self._call)
        seqs, offsets = (seqs_at - base) // 8, (offsets_at - base) // 8
        data = self._call.view(np.uint8) if data_at == base else self._keys
        return Chunk(
            self._call[seqs : seqs + count], Texts(self._call[offsets : offsets + count + 1], data)
        )

    def _some(self, room: int) -> tuple[int, int, int, int]:
        """Up to `room` entries from where the search stands."""
        view = self._view
        call = self._call = np.empty(_HEAD + (4 + _KEY_WORDS) * room + 1, np.int64)
        base = address_of(call)
        count = found.search(
            self.places.address, view.count, *self.question, self._limit,
            self._place, self._below, room, base, call.nbytes,
        )  # fmt: skip
        self._place, self._below, size, blocks = call[:4].tolist()
        self.blocks += blocks
        self._ended = self._place >= view.count
        self._room = min(room * 4, _MOST)
        seqs_at = base + 8 * _HEAD
        offsets_at = seqs_at + 24 * room
        if size <= 8 * _KEY_WORDS * room:
            return count, offsets_at, base, seqs_at
        self._keys = np.empty(size, np.uint8)
        offsets = call[_HEAD + 3 * room : _HEAD + 3 * room + count + 1]
        offsets -= offsets[0]
        data_at = address_of(self._keys)
        found.gather(seqs_at + 8 * room, offsets_at, count, data_at)
        return count, offsets_at, data_at, seqs_at

    def _all(self) -> tuple[int, int, int, int]:
        """All entries of the next place that has any; of all places at once if eager."""
        view = self._view
        room = first = limit = 0
        while not room and self._place < view.count:
            first = self._place
            self._place += view.count if view.kind.eager else 1
            limit = min(self._place, view.count)
            room, blocks = view.counts(self, first, limit).sum(axis=0).tolist()
            if not room:
                self.blocks += blocks
        self._ended = self._place >= view.count
        if not room:
            return 0, 0, 0, 0
        call = np.empty(_HEAD + 3 * room, np.int64)
        count = found.search(
            self.places.address, limit, *self.question[:3], self.question[3] | newest.ALL,
            self._limit, first, self._limit, room, address_of(call), call.nbytes,
        )  # fmt: skip
        self.blocks += int(call[newest.C_BLOCKS])
        seqs, addresses, sizes = call[_HEAD:].reshape(3, room)[:, :count]
        if count > 1 and not (seqs[1:] < seqs[:-1]).all():
            order = np.argsort(seqs)[::-1]
            order = order[np.concatenate(([True], np.diff(seqs[order]) != 0))]
            seqs, addresses, sizes = seqs[order], addresses[order], sizes[order]
        count = len(seqs)
        made = self._call = np.zeros(2 * count + 1, np.int64)
        made[:count] = seqs
        np.cumsum(sizes, out=made[count + 1 :])
        self._keys = np.empty(int(made[-1]), np.uint8)
        base, data_at = address_of(made), address_of(self._keys)
        addresses = np.ascontiguousarray(addresses)
        found.gather(address_of(addresses), base + 8 * count, count, data_at)
        return count, base + 8 * count, data_at, base


def search(
    kind: EntryKind, memories: Sequence[EntryMemory], readers: Sequence[EntryReader],
    low: bytes = b"", high: bytes | None = None, *, low_open: bool = False,
    high_open: bool = False, k: int | None = None,
) -> Candidates:  # fmt: skip
    """`View.search` for once: memories and readers newest first."""
    view = View(kind, memories, readers)
    return view.search(low, high, low_open=low_open, high_open=high_open, k=k)


def _passes(reader: EntryReader, ranges: Mapping[str, tuple[bytes, bytes]]) -> bool:
    filters = reader.component.info.filters
    return all(
        name not in filters or filters[name].overlaps(low, high)
        for name, (low, high) in ranges.items()
    )
