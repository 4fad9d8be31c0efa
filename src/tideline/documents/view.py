"""A collection at one moment: what a reader reads, without a lock, while others write.

    Sources    which generations and components there are, newest first; made anew when one of
               them comes or goes (a freeze, a seal, a merge, an index)
    Now        the sources, how many rows of the active memory count, the first seq that does not,
               and the hash table of that memory; a plain tuple, because every write makes one
    View       a `Now` and the verbs to read it

A writer puts a new `Now` in the place of the one before by one Python assignment (recent.py), after
all of the write is in memory. A reader takes what is there and needs no lock: nothing that its
`Now` speaks of changes. Rows and entries that are added meanwhile have seqs from its limit on, and
kernels pass over them (kernels/documents/records.py, entries.py and search.py say how).

Invariants:
1. Every seq in a component or in a frozen memory of the sources lies below the limit.
2. An entry of an index counts exactly when the newest version of its key below the limit has its
   seq. So whatever a view is asked, the answers belong to one moment: `seq`.
3. Whoever holds a `Now` holds its memories and maps: files may be deleted meanwhile, and a memory
   is not used again as long as `Sources` that have it are alive.

Views, sources and `Now` never change and are safe from any thread. `Sources` are made under the
lock of the engine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tideline.addresses import address_of
from tideline.documents.generation import Generation
from tideline.documents.intersection import candidates
from tideline.documents.scan import Scan
from tideline.documents.types import Found
from tideline.documents.ways import Span
from tideline.errors import NotFound, Unavailable
from tideline.index.kind import Chunk, Estimate, IndexKind
from tideline.index.records import Records, Table
from tideline.index.sorted import BLOCK_BYTES, Gathered, SortedReader
from tideline.index.texts import Texts
from tideline.kernels.documents import layout as at
from tideline.lsm.component import ComponentInfo

if TYPE_CHECKING:
    from tideline.documents.reader import Reader, Readers
    from tideline.documents.recent import Recent

__all__ = ["Now", "Sources", "View"]

Words = NDArray[np.int64]
_KEYS_ONLY = 0.25  # of what it takes to read a record, to read its key


class Sources:
    """What there is to read of a collection, until something comes or goes."""

    def __init__(
        self, generations: Sequence[Generation], readers: Sequence[SortedReader],
        kinds: Mapping[str, IndexKind], building: Sequence[str], alone: Mapping[str, Any],
        filtered: bool, components: Mapping[str, Sequence[ComponentInfo]],
    ) -> None:  # fmt: skip
        self.filtered = filtered  # whether the collection has a filter
        self.generations = tuple(generations)
        self.memories = tuple(generation.records for generation in generations)
        self.active: Records = self.memories[0]
        self.readers = tuple(readers)
        self.all: tuple[Any, ...] = (*self.memories, *self.readers)
        self.kinds = {name: kind for name, kind in kinds.items() if name not in building}
        self.building = frozenset(building)
        self.alone = dict(alone)
        self.components = components  # of the indexes that stand alone
        self._passing: dict[str, tuple[tuple[bytes, bytes], Any]] = {}
        embedded = [name for name, kind in kinds.items() if kind.within]
        self.fields = {name: number for number, name in enumerate(embedded)}
        # What kernels have to know of each; a reader has words of its own for the active memory.
        self.facts: Words = np.array([source.facts for source in self.all], np.int64)
        self._fields: Words = np.zeros((len(self.all), len(embedded) + 1, at.F_WORDS), np.int64)
        for number, source in enumerate(self.all):
            for name, place in self.fields.items():
                words = source.field_facts(name)
                if words is not None:
                    self._fields[number, place] = words
            self.facts[number, at.X_FIELDS] = address_of(self._fields[number])
        self.facts[:, at.X_FIELD_COUNT] = len(embedded)
        self.addresses: list[int] = [address_of(row) for row in self.facts]

    def rows_of(self, memory: Records, rows: int) -> int:
        """How many rows of a memory count, given those of the active one."""
        return rows if memory is self.active else memory.rows

    def skipped(self, wanted: tuple[bytes, bytes]) -> NDArray[np.uint8]:
        """Which sources hold no value of the filter's field in a closed range."""
        if not self.filtered:
            return np.zeros(len(self.all), np.uint8)
        ranges = [generation.wanted for generation in self.generations]
        ranges += [reader.component.info.filters["wanted"] for reader in self.readers]
        return np.array([not each.overlaps(*wanted) for each in ranges], np.uint8)

    def passing(self, field: str, wanted: Span) -> Any:
        """The view of an index without components that hold nothing of a range of the filter."""
        whole = self.alone[field]
        if wanted is None or not self.filtered:
            return whole
        last = self._passing.get(field)  # a query plans by it and then searches it
        if last is None or last[0] != wanted:
            view = self.kinds[field].passing(whole, {"wanted": wanted})
            last = self._passing[field] = wanted, view
        return last[1]

    def kind_of(self, field: str) -> IndexKind:
        """The kind of an index that can be asked; `NotFound` or `Unavailable` if it cannot."""
        kind = self.kinds.get(field)
        if kind is None:
            if field in self.building:
                raise Unavailable("the index is being built", field=field)
            raise NotFound("no index on this field", field=field)
        return kind


Now = tuple[Sources, int, int, Table]
"""Sources, rows of the active memory that count, the first seq that does not, its table of keys.

No two of one collection have the same sources and the same limit.
"""


class View:
    """A collection at one moment; `Engine.view` takes one.

    All answers of one view belong together: they are what the collection held after the write
    `seq`, whatever is written, sealed, merged or dropped while it is asked, without what had
    expired when it was taken.
    """

    __slots__ = ("_readers", "_recent", "now", "time")

    def __init__(self, now: Now, readers: Readers, recent: Recent, time: int) -> None:
        self.now = now
        self._readers = readers
        self._recent = recent
        self.time = time
        """What has expired by then is not in it; 0: nothing has."""

    def _take(self) -> Reader:
        """A reader for one call."""
        reader = self._readers.take()
        reader.judge_at(self.time)
        return reader

    @property
    def seq(self) -> int:
        """The last write that is in it."""
        return self.now[2] - 1

    @property
    def kinds(self) -> dict[str, IndexKind]:
        """The indexes that it can be asked by: field -> kind."""
        return self.now[0].kinds

    def kind_of(self, field: str) -> IndexKind:
        """The kind of an index; `NotFound` or `Unavailable` if it cannot be asked."""
        return self.now[0].kind_of(field)

    def get(self, key: bytes) -> bytes | None:
        """The newest version of a record as JSON text, or None."""
        text = self._recent.texts.get(key) or self._recent.older.get(key)
        if text is None or self._recent.now is not self.now:  # asked after the text was found
            reader = self._take()
            text = reader.get(self.now, key)
            lasts = reader.lasts
            self._readers.give(reader)
            if text is not None and lasts:
                self._recent.keep(key, text, self.now)
        return text

    def get_many(self, keys: Texts) -> list[bytes | None]:
        """The newest versions of many records, None for each that is not there."""
        reader = self._take()
        found = reader.get_many(self.now, keys)
        self._readers.give(reader)
        return found

    def fetch(self, keys: Texts) -> Found:
        """The newest versions of records with their seqs, in the order of the keys.

        Those that are not there are left out.
        """
        reader = self._take()
        found = reader.fetch(self.now, keys)
        self._readers.give(reader)
        return found

    def untils(self, keys: Texts) -> Words:
        """When records expire, in microseconds; 0 for never, and for what is not there."""
        if not self.time:
            return np.zeros(keys.count, np.int64)
        reader = self._take()
        found = reader.untils(self.now, keys)
        self._readers.give(reader)
        return found

    def search(
        self, field: str, ask: Any, k: int | None = None, *,
        filter: tuple[bytes, bytes] | None = None,
    ) -> Found:  # fmt: skip
        """The `k` newest records that an ask of an index leads to, newest first.

        `filter` is a range of the filter's field: components outside it are not searched.
        """
        reader, count = self._find(field, ask, k, filter)
        found = reader.found(count)
        self._readers.give(reader)
        return found

    def nearest(
        self, field: str, ask: Any, count: int, filter: tuple[bytes, bytes] | None = None
    ) -> Iterator[tuple[list[tuple[int, bytes]], float]]:
        """Records by an index of places, nearest first: some seqs and documents at a time.

        With them, the haversine of the distance of the last candidate: the following ones are at
        least as far.
        """
        sources = self.now[0]
        kind = sources.kind_of(field)
        view = sources.alone[field]
        if filter is not None:
            view = kind.passing(view, {"wanted": filter})
        for seqs, keys, haversines in kind.nearest(view, ask, count, self.now[2]):
            found: list[tuple[int, bytes]] = []
            if len(seqs):
                reader = self._take()
                made = reader.found(reader.follow(self.now, [Chunk(seqs, keys)], None, False))
                self._readers.give(reader)
                found = list(zip(made.seqs.tolist(), made.docs, strict=True))
            yield found, float(haversines[-1])

    def first_part(
        self, field: str, ask: Any, order: Sequence[tuple[str, int]], count: int
    ) -> tuple[Any, bool]:
        """`IndexKind.first_part` of an index that stands alone."""
        sources = self.now[0]
        kind = sources.kind_of(field)
        return kind.first_part(sources.alone[field], field, ask, order, count)

    def lookup(
        self, field: str, low: bytes, high: bytes, k: int | None = None, *,
        low_open: bool = False, high_open: bool = False,
        filter: tuple[bytes, bytes] | None = None,
    ) -> Found:  # fmt: skip
        """The `k` newest records with a value of `field` in the range, newest first."""
        ask = self.now[0].kind_of(field).range_ask(low, high, low_open, high_open)
        return self.search(field, ask, k, filter=filter)

    def _find(
        self, field: str, ask: Any, k: int | None, filter: tuple[bytes, bytes] | None
    ) -> tuple[Reader, int]:
        """Find records: who has them, and how many there are."""
        sources = self.now[0]
        kind = sources.kinds.get(field) or sources.kind_of(field)
        reader = self._take()
        if k is not None and k < 1:
            return reader, 0
        view: Any
        if kind.within:
            view = None if filter is None else sources.skipped(filter)
        else:
            view = sources.passing(field, filter)
        return reader, kind.find(reader, self.now, field, view, ask, k)

    def scan(
        self, low: bytes | None = None, high: bytes | None = None, *,
        filter: tuple[bytes, bytes] | None = None, batch: int = 10_000,
    ) -> Iterator[Found]:  # fmt: skip
        """All records with a key in [low, high), in key order."""
        for made in self.scan_columns(low, high, filter=filter, batch=batch):
            yield Found(made.seqs, made.docs.to_list(), made.keys.to_list())

    def scan_columns(
        self, low: bytes | None = None, high: bytes | None = None, *,
        filter: tuple[bytes, bytes] | None = None, batch: int = 10_000,
    ) -> Iterator[Gathered]:  # fmt: skip
        """The same as columns."""
        scan = Scan(self.now, self._skipped(filter), self.time)
        for made in scan.batches(low, high, batch):
            reader = self._readers.take()
            reader.count_blocks(-(-made.docs.size_bytes // BLOCK_BYTES))
            self._readers.give(reader)
            yield made

    def count(self) -> int:
        """How many records there are: reads every key."""
        return Scan(self.now, None, self.time).count()

    def candidates(self, field: str, asks: Sequence[Any], filter: Span = None) -> Chunk:
        """What asks of an index that stands alone lead to, newest first, each once.

        Whether they count is not known: `follow` says that.
        """
        sources = self.now[0]
        kind, view = sources.kind_of(field), sources.passing(field, filter)
        found: list[Chunk] = []
        for ask in asks:
            found += kind.search(view, ask, None, self.now[2])
        return candidates(found)

    def all_text(
        self, field: str, asks: Sequence[Any], k: int | None = None, filter: Span = None
    ) -> tuple[bytes, Words]:
        """The `k` newest records that asks of an index that stands alone lead to, newest first.

        All of them as one JSON array, and where each ends in it; before, 0.
        """
        sources = self.now[0]
        kind, view = sources.kind_of(field), sources.passing(field, filter)
        reader = self._take()
        count = kind.find_all(reader, self.now, view, asks, k)
        text, ends = reader.text(count), reader.ends(count)
        self._readers.give(reader)
        return text, ends

    def follow(self, found: Chunk, k: int | None = None) -> Found:
        """The records of the first `k` candidates that count, newest first."""
        reader = self._take()
        count = reader.follow(self.now, [found], k, True)
        records = reader.found(count)
        self._readers.give(reader)
        return records

    def follow_columns(self, found: Chunk) -> Gathered:
        """The records of the candidates that count, in their order; each is given once."""
        reader = self._take()
        made = reader.columns(found, reader.follow(self.now, [found], None, True, texts=False))
        self._readers.give(reader)
        return made

    def share(self, filter: tuple[bytes, bytes]) -> float:
        """The part of all rows that a scan reads when it leaves out what the filter does.

        Of what is newer than anything wanted, and left out, it reads the keys.
        """
        sources = self.now[0]
        skipped = sources.skipped(filter)
        rows = np.array(
            [sources.rows_of(memory, self.now[1]) for memory in sources.memories]
            + [reader.rows for reader in sources.readers]
        )
        wanted = np.flatnonzero(skipped == 0)
        last = int(wanted[-1]) + 1 if len(wanted) else 0
        read = rows[wanted].sum() + _KEYS_ONLY * rows[:last][skipped[:last] > 0].sum()
        return float(read) / max(int(rows.sum()), 1)

    def count_all(self, field: str, asks: Sequence[Any], filter: Span = None) -> int:
        """How many records asks of an index that stands alone lead to; none of them is read."""
        sources = self.now[0]
        kind, view = sources.kind_of(field), sources.passing(field, filter)
        reader = self._take()
        count = kind.find_all(reader, self.now, view, asks, None, texts=False)
        self._readers.give(reader)
        return count

    def decides(self, field: str, ask: Any) -> bool:
        """Whether what an index leads to meets all that an ask was made of."""
        sources = self.now[0]
        return sources.kind_of(field).decides(sources.alone.get(field), ask)

    def estimate(self, field: str, ask: Any, filter: Span = None) -> Estimate:
        """What a search without k would take."""
        sources = self.now[0]
        kind = sources.kind_of(field)
        if not kind.within:
            return kind.estimate(sources.passing(field, filter), ask)
        reader = self._readers.take()
        found = kind.estimate(_Within(reader, self.now, field), ask)
        self._readers.give(reader)
        return found

    def _skipped(self, filter: tuple[bytes, bytes] | None) -> NDArray[np.uint8] | None:
        return None if filter is None else self.now[0].skipped(filter)


class _Within(NamedTuple):
    """An index that is within the records, for its kind to estimate."""

    reader: Reader
    now: Now
    field: str

    def estimate(self, low: bytes, high: bytes) -> Estimate:
        """What a search for a range would take."""
        return self.reader.estimate(self.now, self.field, low, high)
