"""Inverted lists: which texts have a token, and where in them. What `words` and `ngrams` share.

    add --> InvertedMemory --seal--> component --merge--> component
                |                       |
                +--------- view --------+--> search: candidates, in any order

    token: large_binary                                     a row a token
    hash: int64                                             of the token, with the collection's seed
    postings: large_list<struct<entry: int32, position: int32>>
    entries: large_list<struct<seq: int64, tokens: int32, key: large_binary>>   all in row 0

An *entry* is one text of one document. Entries of a component are numbered in the order of their
seqs. What a token is, the kind says: a word, or a gram of so many characters.

Invariants (`check` verifies them):
1. Rows are in rising order of hashes, which are those of their tokens; different tokens of one
   hash are in the order of their sizes and bytes.
2. A list is not empty and rises by entry, then position; entries are numbers of entries there are.
3. Seqs of entries do not fall, and lie in the component's filter.

Tokens are compared by their bytes where they have one hash (`extra["apart"]`). A component that
does not say so is of a version that took them for one: there, an entry that is found may have
another token. What is merged with such a component is one, too. An index that is made anew is not.

Searching, sealing a frozen memory and merging need no lock (index/invertedmemory.py). Which
entries are found is decided by tokens alone. Whether that is all that was asked, the kind says: an
ask of `words` may be `exact`; else every document is held against the condition again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tideline.addresses import address_of
from tideline.errors import Corruption
from tideline.index import runs
from tideline.index.invertedmemory import InvertedMemory
from tideline.index.kind import Chunk, Estimate, IndexKind
from tideline.index.runs import Run
from tideline.index.texts import Texts
from tideline.kernels import warm
from tideline.kernels.inverted import lists
from tideline.kernels.inverted import runs as kernel
from tideline.lsm.component import Component, Product
from tideline.lsm.filter import MinMax
from tideline.lsm.tree import MergeContext

__all__ = ["InvertedKind", "InvertedReader", "InvertedView", "Requirement", "TextAsk"]

Words = NDArray[np.int64]
_POSTINGS = pa.large_list(pa.struct([("entry", pa.int32()), ("position", pa.int32())]))
_ENTRIES = pa.large_list(
    pa.struct([("seq", pa.int64()), ("tokens", pa.int32()), ("key", pa.large_binary())])
)
_KEEP_ROWS = 65_536  # entries the owner is asked about at a time
_WRONG = {1: "tokens are out of order", 2: "list offsets are wrong", 3: "a list is out of order"}
_ALL_STAY = MergeContext()


class Requirement(NamedTuple):
    """Tokens, of which an entry must have some: see kernels/inverted/lists.py."""

    tokens: Sequence[str]
    offsets: Sequence[int]
    least: int
    kind: int = 0
    span: int = 0
    share: int = 0


class TextAsk:
    """What an index of tokens is asked: requirements, all of which an entry must meet."""

    point = True
    __slots__ = ("_held", "_text", "exact", "found", "items", "query", "several")

    def __init__(
        self, requirements: Sequence[Requirement], seed: int, text: str, exact: bool = False
    ) -> None:
        self._text = text
        self.exact = exact
        """Whether an entry with these tokens meets what was asked (`InvertedKind.decides`)."""
        self.found: Any = None
        """What `InvertedView.lists` found last: the view, and what that was."""
        every = [token.encode() for one in requirements for token in one.tokens]
        self._held = np.frombuffer(b"".join(every), np.uint8)
        self.items = len(every)
        head: list[int] = [len(requirements), len(every)]
        items: list[int] = []
        start, at = 0, address_of(self._held)
        for one in requirements:
            count = len(one.tokens)
            head += (start, start + count, one.least, one.kind, one.span, one.share, count, 0)
            for offset, token in zip(one.offsets, every[start : start + count], strict=True):
                items += (0, offset, at, len(token))
                at += len(token)
            start += count
        self.several = any(len(one.tokens) > one.least for one in requirements)
        self.query: Words = np.array(head + items, np.int64)
        lists.hash_items(address_of(self.query) + 8 * len(head), len(every), seed)

    def __str__(self) -> str:
        return self._text


class InvertedReader:
    """An open component: where its columns are, for kernels."""

    def __init__(self, component: Component) -> None:
        self.component = component
        table = component.table
        token = _column(table, "token", pa.large_binary())
        hashes = _column(table, "hash", pa.int64())
        postings = _column(table, "postings", _POSTINGS)
        entries = _column(table, "entries", _ENTRIES).values
        key = entries.field("key")
        self._held = (token, hashes, postings, entries)  # the map lives as long as these do
        self.tokens = Texts.from_arrow(token)
        self.hashes = hashes.to_numpy()
        self.postings = len(postings.values)
        self.seqs: Words = entries.field("seq").to_numpy()
        self.counts = entries.field("tokens").to_numpy()
        self.keys = Texts.from_arrow(key)
        self.count = len(self.seqs)
        self.apart = component.info.extra.get("apart") is True
        row = self.row = np.zeros(lists.P_WORDS, np.int64)
        row[kernel.R_TOKENS], row[kernel.R_TEXTS] = len(token), 0 if self.apart else kernel.BY_HASH
        for place, array, number in (
            (kernel.R_HASHES, hashes, 1), (kernel.R_FIRST, postings, 1),
            (kernel.R_ENTRIES, postings.values.field("entry"), 1),
            (kernel.R_POSITIONS, postings.values.field("position"), 1),
            (lists.P_SEQS, entries.field("seq"), 1), (lists.P_KEY_OFFSETS, key, 1),
            (lists.P_KEYS, key, 2), (lists.P_COUNTS, entries.field("tokens"), 1),
        ):  # fmt: skip
            buffer = array.buffers()[number]
            if array.offset or array.null_count:
                raise TypeError("a column begins inside its buffer")
            row[place] = 0 if buffer is None else address_of(buffer, self)
        offsets = self.tokens.offsets
        # Where the bytes of each token are.
        self.ats = address_of(self.tokens.data) + offsets[:-1]
        self.sizes = np.diff(offsets).astype(np.int32)
        row[kernel.R_ATS], row[kernel.R_SIZES] = address_of(self.ats), address_of(self.sizes)

    def check(self) -> None:
        """Verify the checksum and the order that searches rely on."""
        self.component.verify()
        file = self.component.info.name
        wrong = int(kernel.check_run(address_of(self.row), self.count, self.postings))
        if wrong:
            raise Corruption(_WRONG[wrong], file=file)
        bounds = self.component.info.filters["seq"]
        if self.count and (np.diff(self.seqs) < 0).any():
            raise Corruption("seqs of entries fall", file=file)
        if self.count and (self.seqs[0] < bounds.low or self.seqs[-1] > bounds.high):
            raise Corruption("a seq is outside the component's filter", file=file)


class InvertedView:
    """Memories, then components, as one index."""

    def __init__(
        self, memories: Sequence[InvertedMemory], readers: Sequence[InvertedReader]
    ) -> None:
        self.memories, self.readers = list(memories), list(readers)
        self._sealed: Words = np.concatenate([np.empty(0, np.int64), *(r.row for r in readers)])

    def passing(self, filters: Mapping[str, tuple[bytes, bytes]]) -> InvertedView:
        """The view without the components whose filters miss one of the closed ranges."""
        readers = [reader for reader in self.readers if _passes(reader, filters)]
        if len(readers) == len(self.readers):
            return self
        return InvertedView(self.memories, readers)

    def places(self) -> tuple[Words, int, Any]:
        """All of it as it is now, for kernels; how many places, and what must be held."""
        parts = [memory.shown.places() for memory in self.memories]
        words = np.concatenate([*(words for words, _ in parts), self._sealed])
        return words, len(words) // lists.P_WORDS, parts

    def lists(self, ask: TextAsk) -> tuple[int, Words, int, Words, Words, Any]:
        """The lists of the tokens that are asked for: how many postings, places, lists, drivers.

        Whoever plans a search asks first: what was found then is good for the search, because what
        is written meanwhile is too new for it.
        """
        known, ask.found = ask.found, None
        if known is not None and known[0] is self:
            return known[1]  # type: ignore[no-any-return]
        words, count, held = self.places()
        found = np.empty(max(count * ask.items * lists.L_WORDS, 1), np.int64)
        drivers = np.empty(max(2 * count, 1), np.int64)
        total = lists.find_lists(
            address_of(words), count, address_of(ask.query), address_of(found), address_of(drivers)
        )
        return int(total), words, count, found, drivers, held

    def expected(self, ask: TextAsk) -> Estimate:
        """By the lengths of the shortest lists."""
        found = self.lists(ask)
        ask.found = self, found
        total = float(found[0])
        return Estimate(total, total / 512 + found[2])

    def search(self, ask: TextAsk, below: int) -> Chunk | None:
        """The candidates with a seq below `below`; None when there are none."""
        total, words, count, found, drivers, _held = self.lists(ask)
        if not total:
            return None
        out = np.empty((4, total), np.int64)
        at = address_of(out)
        place_at, query_at, lists_at = map(address_of, (words, ask.query, found))
        stride = 8 * ask.items * lists.L_WORDS
        used = lists.search_places(
            place_at, count, query_at, lists_at, address_of(drivers), below,
            at + 24 * total, total, at,
        )  # fmt: skip
        for number in range(count) if ask.several else ():
            driver, cost = drivers[2 * number : 2 * number + 2].tolist()
            if driver < 0 or not cost:
                continue
            place, its = place_at + 8 * lists.P_WORDS * number, lists_at + stride * number
            candidates = np.empty(cost, np.int64)
            some = lists.collect(place, query_at, its, driver, address_of(candidates))
            candidates = np.unique(candidates[:some])
            used += lists.hold(
                place, query_at, its, address_of(candidates), len(candidates), below,
                at + 8 * used, at + 8 * (total + used), at + 8 * (2 * total + used),
            )  # fmt: skip
        if not used:
            return None
        seqs, ats, sizes = out[:3, :used]
        offsets = np.empty(used + 1, np.int64)
        data = np.empty(int(sizes.sum()), np.uint8)
        lists.gather(*map(address_of, (ats, sizes)), used, *map(address_of, (offsets, data)))
        return Chunk(seqs, Texts(offsets, data))


class InvertedKind(IndexKind):
    """Lists of tokens. What derives from it says what tokens are and what they serve."""

    grams = 0
    """0: tokens are words. Else how many characters a token has."""

    def __init__(self, *, seed: int) -> None:
        self._seed = seed
        warm.begin("inverted")

    def memory(self, capacity: int = 1 << 20, older: Any = None) -> InvertedMemory:
        """An empty memory for about so many bytes."""
        return InvertedMemory(self._seed, self.grams, capacity)

    def open(self, component: Component) -> InvertedReader:
        """A reader over an open component."""
        try:
            return InvertedReader(component)
        except (KeyError, IndexError, TypeError, pa.ArrowException) as error:
            raise Corruption(
                "component has other columns than it should", file=component.info.name
            ) from error

    def view(
        self, memories: Sequence[InvertedMemory], readers: Sequence[InvertedReader]
    ) -> InvertedView:
        """What there is at one moment."""
        return InvertedView(memories, readers)

    def seal(
        self, memory: InvertedMemory, context: Mapping[str, MinMax] | None = None
    ) -> list[Product]:
        """A frozen memory as a component."""
        whole = memory.whole()
        if whole is None:
            return []
        run, columns, count = whole
        ats = run.ats + address_of(columns.texts)
        keys = Texts(columns.key_offsets[: count + 1], columns.keys)
        seqs, counts = columns.seqs[:count], columns.counts[:count]
        return [_product(run, ats, seqs, counts, keys, context or {}, True)]

    def merge(
        self, readers: Sequence[InvertedReader], context: MergeContext = _ALL_STAY
    ) -> list[Product]:
        """One component of several; the context's owner is asked which entries may stay."""
        kept = np.concatenate([_kept(reader, context.owner) for reader in readers])
        seqs = np.concatenate([reader.seqs for reader in readers])
        stay = np.flatnonzero(kept)
        if not len(stay):
            return []
        order = stay[np.argsort(seqs[stay], kind="stable")]
        numbers = np.full(len(seqs), -1, np.int32)
        numbers[order] = np.arange(len(order), dtype=np.int32)
        made, start = [], 0
        for reader in readers:
            own = numbers[start : start + reader.count].copy()
            start += reader.count
            made.append(runs.remapped(_AsRun(reader), own))
        bounds: dict[str, MinMax] = {}
        for reader in readers:
            for name, given in reader.component.info.filters.items():
                bounds[name] = bounds.get(name, MinMax.empty()).merge(given)
        keys = Texts.join([reader.keys for reader in readers]).take(order)
        counts = np.concatenate([reader.counts for reader in readers])[order]
        apart = all(reader.apart for reader in readers)
        run = runs.merged(made, 0 if apart else kernel.BY_HASH)
        return [_product(run, run.ats, seqs[order], counts, keys, bounds, apart)]

    def build(
        self, values: Texts, keys: Texts, seqs: Words, older: Sequence[Any] = (),
        filters: Mapping[str, MinMax] | None = None,
    ) -> list[Product]:  # fmt: skip
        """A component of entries in any order, for an index on data that is there already."""
        order = np.argsort(seqs, kind="stable")
        memory = self.memory(values.size_bytes)
        memory.append(values.take(order), keys.take(order), np.asarray(seqs)[order])
        return self.seal(memory, filters)

    def passing(
        self, view: InvertedView, filters: Mapping[str, tuple[bytes, bytes]]
    ) -> InvertedView:
        """A view without components whose filters miss one of the closed ranges."""
        return view.passing(filters)

    def ask(self, requirements: Sequence[Requirement], text: str, exact: bool = False) -> TextAsk:
        """An ask of this index."""
        return TextAsk(requirements, self._seed, text, exact)

    def decides(self, view: InvertedView, ask: TextAsk) -> bool:
        """Whether tokens decide, and all components know them from others of the same hash."""
        return ask.exact and all(reader.apart for reader in view.readers)

    def estimate(self, view: InvertedView, ask: TextAsk) -> Estimate:
        """By the lengths of the shortest lists."""
        return view.expected(ask)

    def search(
        self, view: InvertedView, ask: TextAsk, k: int | None, below: int
    ) -> Iterable[Chunk]:
        """All candidates."""
        found = view.search(ask, below)
        return () if found is None else (found,)


class _AsRun:
    """A component as a run, for `remapped`."""

    def __init__(self, reader: InvertedReader) -> None:
        self.row, self.hashes, self.postings = reader.row, reader.hashes, reader.postings


def _kept(reader: InvertedReader, owner: Any) -> NDArray[np.bool_]:
    kept = np.ones(reader.count, np.bool_)
    if owner is not None:
        for start in range(0, reader.count, _KEEP_ROWS):
            limit = min(start + _KEEP_ROWS, reader.count)
            kept[start:limit] = owner(reader.keys.slice(start, limit), reader.seqs[start:limit])
    return kept


def _product(
    run: Run, ats: Words, seqs: Words, counts: Any, keys: Texts, filters: Mapping[str, MinMax],
    apart: bool,
) -> Product:  # fmt: skip
    sizes = run.sizes.astype(np.int64)
    offsets = np.empty(len(sizes) + 1, np.int64)
    data = np.empty(int(sizes.sum()), np.uint8)
    lists.gather(*map(address_of, (ats, sizes)), len(sizes), *map(address_of, (offsets, data)))
    postings = pa.StructArray.from_arrays(
        [pa.array(run.entries), pa.array(run.positions)], names=["entry", "position"]
    )
    entries = pa.StructArray.from_arrays(
        [pa.array(seqs), pa.array(counts), keys.to_arrow()], names=["seq", "tokens", "key"]
    )
    first = np.full(len(sizes) + 1, len(seqs), np.int64)
    first[0] = 0
    table = pa.table({
        "token": Texts(offsets, data).to_arrow(),
        "hash": pa.array(run.hashes),
        "postings": pa.LargeListArray.from_arrays(pa.array(run.first), postings),
        "entries": pa.LargeListArray.from_arrays(pa.array(first), entries),
    })  # fmt: skip
    bounds = {**filters, "seq": MinMax(int(seqs[0]), int(seqs[-1]))}
    extra = {"tokens": len(sizes)} | ({"apart": True} if apart else {})
    return Product(table, len(seqs), bounds, extra)


def _column(table: pa.Table, name: str, kind: pa.DataType) -> Any:
    """A column of just this type, without gaps."""
    column = table[name]
    if column.type != kind or column.num_chunks != 1 or column.null_count:
        raise TypeError(f"{name} is {column.type}")
    return column.chunk(0)


def _passes(reader: InvertedReader, ranges: Mapping[str, tuple[bytes, bytes]]) -> bool:
    filters = reader.component.info.filters
    return all(
        name not in filters or filters[name].overlaps(low, high)
        for name, (low, high) in ranges.items()
    )
