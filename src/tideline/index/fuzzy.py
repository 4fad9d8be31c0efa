"""The kind `fuzzy`: words nearly right, on a text or on a place and a text.

    add --> InvertedMemory --seal--> component --merge--> component
                |                       |
                +--------- view --------+--> search: candidates, in any order

    word: large_binary                  a row a word, by characters
    signature: int32                    of each word (kernels/inverted/dictionary.py)
    pairs: int64                        the same of its pairs of characters
    postings: large_list<int32>         the entries that have it
    entries: large_list<struct<seq: int64, key: large_binary>>     these and the next all in row 0
    boxes: large_list<double>           west, south, east, north of each entry; NaN: no place
    fence: large_list<int64>            the Hilbert key of every 64th entry
    heads, pieces: large_list<int32>    what leads from pieces to words
    nodes: large_list<int64>            where words are looked up (kernels/inverted/window.py)

An *entry* is one text of one document at one place of it. With a place, entries are numbered along
a Hilbert curve; without, there are no boxes and no fence, and they are numbered by seq. A geometry
that is no point is its box. A document without a place is found by its words alone.

Invariants (`check` verifies them): words are in order of length; lists are not empty, rise, and
have numbers of entries there are; pieces have numbers of words; nodes are nested; seqs lie in the
filter.

`placement` says at which nodes of the tree over the entries words are looked up:
index/placement.py.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tideline.addresses import address_of
from tideline.errors import Corruption, InvalidRequest
from tideline.index import dictionary, textual
from tideline.index.compound import parts_of
from tideline.index.fuzzyview import Box, FuzzyAsk, FuzzyView
from tideline.index.invertedmemory import InvertedMemory
from tideline.index.kind import Asked, Chunk, Entries, Estimate, IndexKind, register
from tideline.index.placement import Placement, place
from tideline.index.places import POINT_BYTES, extract_places
from tideline.index.texts import Texts
from tideline.index.windows import windows_of
from tideline.kernels import warm
from tideline.kernels.inverted import dictionary as words_kernel
from tideline.kernels.inverted import lists, tokens
from tideline.kernels.inverted import window as kernel
from tideline.lsm.component import Component, Product
from tideline.lsm.filter import MinMax
from tideline.lsm.tree import MergeContext
from tideline.where.tree import Fuzzy, Inside, Near, Test
from tideline.where.tree import Words as AllWords
from tideline.where.words import FUZZY_LIMIT, WORD_LIMIT

__all__ = ["FuzzyKind", "FuzzyReader"]

Words = NDArray[np.int64]
Halves = NDArray[np.int32]
FEW = 512  # entries in a window whose words are sooner looked through than a dictionary is asked
HEAD = 32  # bytes of a box before the words of a value
_ALL_STAY = MergeContext()
_KEEP_ROWS = 65_536  # entries the owner is asked about at a time
_ENTRIES = pa.large_list(pa.struct([("seq", pa.int64()), ("key", pa.large_binary())]))
_SIDES = {
    "boxes": pa.float64(), "fence": pa.int64(), "heads": pa.int32(), "pieces": pa.int32(),
    "nodes": pa.int64(),
}  # fmt: skip


class FuzzyReader:
    """An open component: where its columns are, for kernels."""

    def __init__(self, component: Component) -> None:
        self.component = component
        table, extra = component.table, component.info.extra
        word = _column(table, "word", pa.large_binary())
        signature = _column(table, "signature", pa.int32())
        pairs = _column(table, "pairs", pa.int64())
        postings = _column(table, "postings", pa.large_list(pa.int32()))
        entries = _column(table, "entries", _ENTRIES).values
        sides = {
            name: _column(table, name, pa.large_list(kind)).values.to_numpy()
            for name, kind in _SIDES.items()
        }
        key = entries.field("key")
        self._held = (
            word,
            signature,
            pairs,
            postings,
            entries,
        )  # the map lives as long as these do
        self._signatures, self._pairs = signature.to_numpy(), pairs.to_numpy()
        self.words = Texts.from_arrow(word)
        self.keys = Texts.from_arrow(key)
        self.seqs: Words = entries.field("seq").to_numpy()
        self.count = len(self.seqs)
        self.first: Words = np.asarray(postings.offsets)
        self.entries: Halves = postings.values.to_numpy()
        self.boxes, self.fence = sides["boxes"], sides["fence"]
        self.pieces, self.nodes = sides["pieces"], sides["nodes"]
        self.bits = int(extra["bits"])
        self.margins = np.array(extra["margins"], np.float64)
        self._sizes = np.diff(self.words.offsets).astype(np.int32)
        lengths = np.array(extra["lengths"], np.int64)
        self.starts = np.zeros(words_kernel.CLASSES + 1, np.int64)
        np.cumsum(lengths, out=self.starts[1:])
        heads = sides["heads"]
        if (
            len(self.boxes) not in (0, 4 * self.count) or len(heads) != (1 << self.bits) + 1
            or self.margins.shape != (2,) or self.starts[-1] != len(word) or len(self.nodes) % 8
            or len(self.fence) != (-(-self.count // kernel.FENCE) if len(self.boxes) else 0)
        ):  # fmt: skip
            raise KeyError("sizes")
        self.heads = heads
        row = self.row = np.zeros(kernel.F_WORDS, np.int64)
        row[: words_kernel.D_WORDS] = dictionary.row_of(
            self._at(word, 2), self.words.offsets, self._sizes, self._signatures, self._pairs,
            self.starts, None,
        )  # fmt: skip
        row[words_kernel.D_HEADS], row[words_kernel.D_BITS] = address_of(heads, self), self.bits
        row[words_kernel.D_PIECES] = address_of(self.pieces, self)
        row[kernel.F_FIRST] = self._at(postings, 1)
        row[kernel.F_POSTINGS] = self._at(postings.values, 1)
        row[kernel.F_BOXES] = address_of(self.boxes, self) if len(self.boxes) else 0
        row[kernel.F_SEQS] = self._at(entries.field("seq"), 1)
        row[kernel.F_KEY_OFFSETS], row[kernel.F_KEYS] = self._at(key, 1), self._at(key, 2)
        row[kernel.F_COUNT] = self.count
        row[kernel.F_FENCE], row[kernel.F_FENCES] = address_of(self.fence, self), len(self.fence)
        row[kernel.F_MARGINS] = address_of(self.margins)
        row[kernel.F_NODES] = address_of(self.nodes, self)
        row[kernel.F_NODE_COUNT] = len(self.nodes) // kernel.N_WORDS
        self._turning = threading.Lock()
        self._words_of: tuple[Any, ...] = ()

    def turn_lists(self) -> None:
        """Have the words of each entry, for windows in which few lie; made the first time."""
        if self._words_of or not len(self.boxes):
            return
        with self._turning:
            if self._words_of:
                return
            starts = np.empty(self.count + 2, np.int64)
            words = np.empty(len(self.entries), np.int32)
            kernel.turn_lists(
                address_of(self.row), self.words.count, address_of(starts), address_of(words)
            )
            self.row[kernel.F_STARTS_OF] = address_of(starts)
            self.row[kernel.F_WORDS_OF] = address_of(words)
            self.row[kernel.F_FEW] = FEW  # the last: who reads the row meanwhile asks for it first
            self._words_of = starts, words

    def _at(self, array: Any, number: int) -> int:
        if array.offset or array.null_count:
            raise TypeError("a column begins inside its buffer")
        buffer = array.buffers()[number]
        return 0 if buffer is None else address_of(buffer, self)

    def passes(self, ranges: Mapping[str, tuple[bytes, bytes]]) -> bool:
        """Whether its filters meet all of the closed ranges."""
        filters = self.component.info.filters
        return all(
            name not in filters or filters[name].overlaps(low, high)
            for name, (low, high) in ranges.items()
        )

    def check(self) -> None:
        """Verify the checksum and what searches rely on."""
        self.component.verify()
        wrong = self._wrong()
        if wrong:
            raise Corruption(wrong, file=self.component.info.name)

    def _wrong(self) -> str:
        first, entries, nodes = self.first, self.entries, self.nodes.reshape(-1, kernel.N_WORDS)
        if first[0] != 0 or first[-1] != len(entries) or (np.diff(first) < 1).any():
            return "list offsets are wrong"
        if len(entries) and (entries.min() < 0 or entries.max() >= self.count):
            return "a list has an entry that is not there"
        inside = np.ones(len(entries), np.bool_)
        inside[first[:-1]] = False
        if (np.diff(entries, prepend=-1)[inside] < 1).any():
            return "a list is out of order"
        lengths, signatures, pairs = dictionary.measured(
            int(self.row[words_kernel.D_BASE]), self.words.offsets[:-1], self._sizes
        )
        if (dictionary.starts_of(lengths) != self.starts).any() or (np.diff(lengths) < 0).any():
            return "words are out of order"
        if (signatures != self._signatures).any() or (pairs != self._pairs).any():
            return "a signature is not that of its word"
        heads, words = self.heads, self.pieces[::2]
        if heads[0] != 0 or 2 * int(heads[-1]) != len(self.pieces) or (np.diff(heads) < 0).any():
            return "pieces are out of order"
        if len(words) and (words.min() < 0 or words.max() >= len(self._sizes)):
            return "a piece has a word that is not there"
        if (np.diff(self.fence) < 0).any():
            return "the fence is out of order"
        numbers = np.arange(len(nodes))
        after = nodes[:, kernel.N_NEXT]
        if (
            not len(nodes)
            or (after <= numbers).any()
            or (after > len(nodes)).any()
            or (
                (nodes[:, kernel.N_START] < 0).any()
                or (nodes[:, kernel.N_LIMIT] > self.count).any()
            )
        ):
            return "nodes are wrong"
        bounds = self.component.info.filters["seq"]
        if self.count and (self.seqs.min() < bounds.low or self.seqs.max() > bounds.high):
            return "a seq is outside the component's filter"
        return ""


class FuzzyKind(IndexKind):
    """Words nearly right.

    >>> from fractions import Fraction
    >>> asked = Asked((), (Fuzzy((Near("sutishi", None, Fraction("0.8")),)),), lambda: True)
    >>> [str(ask) for (ask,) in FuzzyKind(seed=1).serves(asked)]
    ['words near sutishi (0.8)']
    """

    name = "fuzzy"
    several = True
    made_with = (Inside,)
    made_for = (Fuzzy,)

    def __init__(self, *, seed: int, **settings: Any) -> None:
        self._seed = seed
        self.placement = Placement.of(settings)
        warm.begin("inverted")

    def check_fields(self, fields: Sequence[str]) -> None:
        """A text, or a place and a text."""
        if len(fields) > 2:
            raise InvalidRequest(
                "an index of this kind is on a text, or on a place and a text",
                field=",".join(fields), kind=self.name,
            )  # fmt: skip

    # ---- keeping -----------------------------------------------------------------------------

    def extract(self, docs: Texts, fields: Sequence[str]) -> list[Entries]:
        """Of each index: a box, and the words of a text."""
        return [_extracted(docs, parts_of(name)) for name in fields]

    def memory(self, capacity: int = 1 << 20, older: Any = None) -> InvertedMemory:
        """An empty memory for about so many bytes."""
        return InvertedMemory(self._seed, 0, capacity, HEAD)

    def view(self, memories: Sequence[InvertedMemory], readers: Sequence[FuzzyReader]) -> FuzzyView:
        """What there is at one moment."""
        return FuzzyView(memories, readers)

    def open(self, component: Component) -> FuzzyReader:
        """A reader over an open component."""
        try:
            return FuzzyReader(component)
        except (KeyError, IndexError, TypeError, ValueError, pa.ArrowException) as error:
            raise Corruption(
                "component has other columns than it should", file=component.info.name
            ) from error

    def seal(
        self, memory: InvertedMemory, context: Mapping[str, MinMax] | None = None
    ) -> list[Product]:
        """A frozen memory as a component."""
        whole = memory.whole()
        if whole is None:
            return []
        run, columns, count = whole
        found = _Found(
            run.hashes, run.ats + address_of(columns.texts), run.sizes,
            np.repeat(np.arange(len(run.hashes)), np.diff(run.first)), run.entries,
            columns.seqs[:count], Texts(columns.key_offsets[: count + 1], columns.keys),
            columns.heads[:count].view(np.float64),
        )  # fmt: skip
        return [found.product(self.placement, context or {})]

    def merge(
        self, readers: Sequence[FuzzyReader], context: MergeContext = _ALL_STAY
    ) -> list[Product]:
        """One component of several; the context's owner is asked which entries may stay."""
        kept = [_kept(reader, context.owner) for reader in readers]
        if not any(each.any() for each in kept):
            return []
        hashes, ats, sizes, tokens_of, entries = [], [], [], [], []
        words = numbers = 0
        for reader, stays in zip(readers, kept, strict=True):
            own = np.empty(len(reader.words.offsets) - 1, np.int64)
            tokens.hash_tokens(*reader.words.addresses, self._seed, address_of(own))
            hashes.append(own)
            ats.append(address_of(reader.words.data) + reader.words.offsets[:-1])
            sizes.append(np.diff(reader.words.offsets).astype(np.int32))
            there = stays[reader.entries]
            which = np.repeat(np.arange(len(own)), np.diff(reader.first))[there]
            tokens_of.append(which + words)
            entries.append((np.cumsum(stays) - 1)[reader.entries[there]] + numbers)
            words += len(own)
            numbers += int(stays.sum())
        stay = np.flatnonzero(np.concatenate(kept))
        boxes = [
            reader.boxes if len(reader.boxes) else np.full(4 * reader.count, np.nan)
            for reader in readers
        ]
        bounds: dict[str, MinMax] = {}
        for reader in readers:
            for name, given in reader.component.info.filters.items():
                bounds[name] = bounds.get(name, MinMax.empty()).merge(given)
        found = _Found(
            np.concatenate(hashes), np.concatenate(ats), np.concatenate(sizes),
            np.concatenate(tokens_of), np.concatenate(entries),
            np.concatenate([reader.seqs for reader in readers])[stay],
            Texts.join([reader.keys for reader in readers]).take(stay),
            np.concatenate(boxes).reshape(-1, 4)[stay],
        )  # fmt: skip
        return [found.product(self.placement, bounds)]

    def build(
        self, values: Texts, keys: Texts, seqs: Words, older: Sequence[Any] = (),
        filters: Mapping[str, MinMax] | None = None,
    ) -> list[Product]:  # fmt: skip
        """A component of entries in any order, for an index on data that is there already."""
        memory = self.memory(values.size_bytes)
        memory.append(values, keys, np.asarray(seqs))
        return self.seal(memory, filters)

    # ---- finding -----------------------------------------------------------------------------

    def serves(self, asked: Asked) -> list[tuple[Any, ...]]:
        """Words, in a window if one is asked for."""
        if asked.parts:
            if len(asked.tests_of) != 2:
                return []
            places, tests = asked.tests_of
        else:
            places, tests = (), asked.tests
        windows: list[tuple[Sequence[Box] | None, str]] = []
        for test in places:
            if isinstance(test, Inside):
                boxes = windows_of(test)
                if boxes is not None:
                    windows.append((boxes, f" in {_shown(boxes)}"))
        found: list[tuple[Any, ...]] = []
        for test in tests:
            near = _near(test)
            if near:
                shown = ", ".join(map(_named, near))
                for inside, where in windows or [(None, "")]:
                    found.append((FuzzyAsk(near, inside, f"words near {shown}{where}"),))
        return found

    def passing(self, view: FuzzyView, filters: Mapping[str, tuple[bytes, bytes]]) -> FuzzyView:
        """A view without components whose filters miss one of the closed ranges."""
        return view.passing(filters)

    def estimate(self, view: FuzzyView, ask: FuzzyAsk) -> Estimate:
        """By searching: that takes less than one document does."""
        entries = sum(len(found) for _, found in view.found(ask))
        return Estimate(float(entries), float(entries))

    def search(self, view: FuzzyView, ask: FuzzyAsk, k: int | None, below: int) -> Iterable[Chunk]:
        """All candidates."""
        return view.search(ask, below)


def _near(test: Test) -> list[Near]:
    if isinstance(test, Fuzzy):
        return list(test.words)
    if isinstance(test, AllWords):
        short = [word for word in test.words if len(word) <= WORD_LIMIT]
        return [Near(word, 0) for word in sorted(short, key=len)[-FUZZY_LIMIT:]]
    return []


def _named(one: Near) -> str:
    if one.similarity is None:
        return one.word if not one.distance else f"{one.word} ({one.distance})"
    return f"{one.word} ({float(one.similarity):g})"


def _shown(boxes: Sequence[Box]) -> str:
    return " and ".join(f"[{', '.join(f'{n:.6g}' for n in box)}]" for box in boxes)


def _extracted(docs: Texts, parts: Sequence[str]) -> Entries:
    """A box and the words of a text: each place of a document with each of its texts."""
    [found] = textual.extract(docs, [parts[-1]], words=True)
    count = found.values.count
    if len(parts) == 1:
        return Entries(found.row, _with_heads(np.full((count, 4), np.nan), found.values))
    [places] = extract_places(docs, [parts[0]])
    boxes = _boxes(places.values)
    # The places of each text's document: from `first` on, `several` of them, or none.
    first = np.searchsorted(places.row, found.row)
    several = np.searchsorted(places.row, found.row, side="right") - first
    if (several <= 1).all():
        heads = np.full((count, 4), np.nan)
        heads[several == 1] = boxes[first[several == 1]]
        return Entries(found.row, _with_heads(heads, found.values))
    times = np.maximum(several, 1)
    texts = np.repeat(np.arange(count), times)
    which = np.arange(len(texts)) - np.repeat(np.cumsum(times) - times, times) + first[texts]
    heads = np.full((len(texts), 4), np.nan)
    placed = several[texts] > 0
    heads[placed] = boxes[which[placed]]
    return Entries(found.row[texts], _with_heads(heads, found.values.take(texts)))


def _boxes(values: Texts) -> NDArray[np.float64]:
    """West, south, east, north of places (index/places.py): a point, or a box and its outline."""
    starts, sizes = values.offsets[:-1], np.diff(values.offsets)
    boxes = np.empty((values.count, 4))
    point = sizes == POINT_BYTES
    for rows, size in ((point, POINT_BYTES), (~point, HEAD)):
        data = values.data[starts[rows][:, None] + np.arange(size)].view(np.float64)
        boxes[rows, :2], boxes[rows, 2:] = data[:, :2], data[:, -2:]
    return boxes


def _with_heads(heads: NDArray[np.float64], texts: Texts) -> Texts:
    """Each text behind the bytes of its box."""
    count = len(heads)
    ats, sizes = np.empty((count, 2), np.int64), np.full((count, 2), HEAD, np.int64)
    ats[:, 0] = address_of(heads) + HEAD * np.arange(count)
    ats[:, 1] = address_of(texts.data) + texts.offsets[:-1]
    sizes[:, 1] = np.diff(texts.offsets)
    offsets, data = np.empty(2 * count + 1, np.int64), np.empty(int(sizes.sum()), np.uint8)
    lists.gather(*map(address_of, (ats, sizes)), 2 * count, *map(address_of, (offsets, data)))
    return Texts(offsets[::2].copy(), data)


def _kept(reader: FuzzyReader, owner: Any) -> NDArray[np.bool_]:
    kept = np.ones(reader.count, np.bool_)
    if owner is not None:
        for start in range(0, reader.count, _KEEP_ROWS):
            limit = min(start + _KEEP_ROWS, reader.count)
            kept[start:limit] = owner(reader.keys.slice(start, limit), reader.seqs[start:limit])
    return kept


class _Found:
    """What a component is made of: words, postings and entries, in any order."""

    def __init__(
        self, hashes: Words, ats: Words, sizes: Halves, words: Words, entries: Any, seqs: Words,
        keys: Texts, boxes: Any,
    ) -> None:  # fmt: skip
        self.hashes, self.ats, self.sizes = hashes, ats, sizes
        self.words, self.entries = words, entries
        self.seqs, self.keys, self.boxes = seqs, keys, boxes

    def product(self, placement: Placement, filters: Mapping[str, MinMax]) -> Product:
        """The component."""
        count = len(self.seqs)
        curve = np.empty(count, np.int64)
        boxes = np.ascontiguousarray(self.boxes, np.float64)
        kernel.hilbert_keys(address_of(boxes), count, address_of(curve))
        placed = bool((curve >= 0).any())
        along = np.argsort(curve, kind="stable") if placed else np.argsort(self.seqs, kind="stable")
        number = np.empty(count, np.int64)
        number[along] = np.arange(count)
        boxes, curve = boxes[along], curve[along]
        # Words: each once, by length.
        hashes, where, which = np.unique(self.hashes, return_index=True, return_inverse=True)
        used = np.zeros(len(hashes), np.bool_)
        used[which[self.words]] = True
        ats, sizes = np.ascontiguousarray(self.ats[where]), np.ascontiguousarray(self.sizes[where])
        lengths, signatures, pairs = dictionary.measured(0, ats, sizes)
        by_length = np.lexsort((hashes, lengths, ~used))[: int(used.sum())]
        rank = np.zeros(len(hashes), np.int64)
        rank[by_length] = np.arange(len(by_length))
        ats, sizes = ats[by_length], sizes[by_length]
        signatures, lengths = signatures[by_length], lengths[by_length]
        pairs = pairs[by_length]
        postings = (rank[which[self.words]] << 32) | number[self.entries]
        postings.sort()
        postings = postings[np.diff(postings, prepend=-1) != 0]
        first = np.zeros(len(ats) + 1, np.int64)
        np.cumsum(np.bincount(postings >> 32, minlength=len(ats)), out=first[1:])
        entries = (postings & 0xFFFFFFFF).astype(np.int32)
        # Where words are looked up.
        row = dictionary.row_of(
            0, ats, sizes, signatures, pairs, dictionary.starts_of(lengths), None
        )
        nodes, members, of_nodes, about = place(
            placement if placed else Placement(), boxes, first, entries, lengths
        )
        pieces = dictionary.pieces_of(row, members, of_nodes)
        texts = _gathered(ats, sizes)
        known = pa.StructArray.from_arrays(
            [pa.array(self.seqs[along]), self.keys.take(along).to_arrow()], names=["seq", "key"]
        )
        sides = {
            "boxes": boxes.ravel() if placed else np.empty(0),
            "fence": curve[:: kernel.FENCE] if placed else np.empty(0, np.int64),
            "heads": pieces.heads, "pieces": pieces.pieces, "nodes": nodes.ravel(),
        }  # fmt: skip
        table = pa.table({
            "word": texts.to_arrow(),
            "signature": pa.array(signatures),
            "pairs": pa.array(pairs),
            "postings": pa.LargeListArray.from_arrays(pa.array(first), pa.array(entries)),
            "entries": _in_first_row(known, len(ats)),
            **{n: _in_first_row(pa.array(side), len(ats)) for n, side in sides.items()},
        })  # fmt: skip
        wide = np.nan_to_num(boxes[:, 2:] - boxes[:, :2]).max(axis=0, initial=0.0)
        extra = {
            "words": len(ats), "bits": pieces.bits, "margins": (wide / 2 * (1 + 1e-12)).tolist(),
            "lengths": np.bincount(lengths, minlength=words_kernel.CLASSES).tolist(),
            "placement": about | {"bytes": pieces.heads.nbytes + pieces.pieces.nbytes},
        }  # fmt: skip
        bounds = {**filters, "seq": MinMax(int(self.seqs.min()), int(self.seqs.max()))}
        return Product(table, count, bounds, extra)


def _gathered(ats: Words, sizes: Halves) -> Texts:
    wide = sizes.astype(np.int64)
    offsets, data = np.empty(len(wide) + 1, np.int64), np.empty(int(wide.sum()), np.uint8)
    lists.gather(*map(address_of, (ats, wide)), len(wide), *map(address_of, (offsets, data)))
    return Texts(offsets, data)


def _in_first_row(values: Any, rows: int) -> Any:
    offsets = np.full(rows + 1, len(values), np.int64)
    offsets[0] = 0
    return pa.LargeListArray.from_arrays(pa.array(offsets), values)


def _column(table: pa.Table, name: str, kind: pa.DataType) -> Any:
    """A column of just this type, without gaps."""
    column = table[name]
    if column.type != kind or column.num_chunks != 1 or column.null_count:
        raise TypeError(f"{name} is {column.type}")
    return column.chunk(0)


register("fuzzy", FuzzyKind)
