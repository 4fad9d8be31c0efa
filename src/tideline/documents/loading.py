"""Bulk load: finished components, made elsewhere, become part of a collection in one step.

    elsewhere   documents in the order of their keys --build_piece--> files, with their indexes
    here        files --adopt--> checked, numbered, named in the manifest: all of them or none

A piece is one component of the primary and those of its indexes. Its records are numbered from 0
where it is made, and the number that the first one gets is added here, in the files themselves: the
numbers stand in columns of their own. What an index needs older components for (eager lists) is
made here, too.

What is loaded is newer than everything that was there. It is in no log: whoever follows the changes
is told that there is a gap, and goes on after it (feed.py, `loaded`). A kill before the manifest
names the files leaves nothing of them.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tideline.documents import rows
from tideline.errors import Conflict, InvalidRequest, Unavailable
from tideline.index import kinds as kinds  # registers them
from tideline.index.extract import extract
from tideline.index.kind import Spec, make_kind
from tideline.index.records import Values
from tideline.index.sorted import Gathered, SortedKind, extremes
from tideline.index.texts import Texts
from tideline.lsm.component import ComponentInfo, write_component
from tideline.lsm.filter import MinMax
from tideline.lsm.loading import Arriving, each
from tideline.lsm.tree import Tree
from tideline.where.keys import decode

if TYPE_CHECKING:
    from tideline.documents.collection import Collection
    from tideline.documents.engine import Engine

__all__ = ["Piece", "Recipe", "adopt", "build_piece", "key_twice", "recipe_of"]


_NUMBER_BYTES = 9  # of a key that is a number, up to 53 bits
_CHANGED = "the indexes of the collection have changed meanwhile: load again"


class Recipe(msgspec.Struct, frozen=True):
    """What components of a collection are made by."""

    key: str
    seed: int
    bloom_bits: int
    indexes: dict[str, Spec]
    filter: str | None


class Piece(msgspec.Struct):
    """Components that were made of some documents, in a folder of their own."""

    folder: str
    rows: int
    primary: dict[str, Any]
    indexes: dict[str, list[dict[str, Any]]]
    arrays: list[str]
    """Fields in which a document has an array."""


def recipe_of(collection: Collection) -> Recipe:
    """What components of this collection are made by now."""
    engine = collection._engine
    if engine.unique:
        raise InvalidRequest(
            "a collection with unique indexes is not loaded in bulk: put its documents",
            collection=collection.name, unique=list(engine.unique),
        )  # fmt: skip
    if engine.expiry.ttl_us:
        raise InvalidRequest(
            "a collection whose documents expire is not loaded in bulk: put its documents",
            collection=collection.name, ttl_s=collection.ttl_s,
        )  # fmt: skip
    specs = {field: spec for field, spec in engine.indexes.items() if field in engine.kinds}
    bits = int(engine.facts.get("bloom_bits", 20))
    return Recipe(collection.key, engine.seed, bits, specs, collection.filter)


# ---- elsewhere ------------------------------------------------------------------------------


def build_piece(recipe: Recipe, folder: Path, documents: pa.Table) -> Piece:
    """Write the components of documents whose keys rise into a new folder.

    The table is as `Collection.put_many` takes it.
    """
    fields = {field: make_kind(spec, seed=recipe.seed) for field, spec in recipe.indexes.items()}
    plain = [field for field, kind in fields.items() if kind.extract is None]
    prepared = rows.prepare(documents, recipe.key, plain, recipe.filter)
    for row, reason in prepared.rejected.items():
        raise InvalidRequest(f"a document cannot be loaded: {reason}", row=row)
    made = prepared.rows
    seqs = np.arange(made.count)
    entries = dict(made.entries)
    for field, kind in fields.items():
        if kind.extract is not None:
            entries[field] = kind.extract(made.docs, [field])[0]
    values = {
        field: Values(_lists(entries[field].row, made.count), entries[field].values)
        for field, kind in fields.items() if kind.within
    }  # fmt: skip
    wanted = MinMax.empty() if made.filter_values is None else extremes(made.filter_values)
    sorted_kind = SortedKind(seed=recipe.seed, bloom_bits=recipe.bloom_bits, extract=extract)
    records = Gathered(made.keys, seqs, np.zeros(made.count, np.uint8), made.docs, values)
    span = MinMax(0, made.count - 1)
    own = folder / secrets.token_hex(8)
    own.mkdir()
    numbers = iter(range(1, 1 << 20))
    write = partial(write_component, own, sync=False)
    product = sorted_kind.build(records, {"seq": span, "wanted": wanted})
    primary = write(next(numbers), product, kind=sorted_kind.name)
    indexes: dict[str, list[dict[str, Any]]] = {}
    for field, kind in fields.items():
        if kind.within or kind.needs_older:
            continue
        places, texts = entries[field]
        products = (
            kind.build(texts, made.keys.take(places), seqs[places], (), {"wanted": wanted})
            if len(places)
            else ()
        )
        indexes[field] = [write(next(numbers), each, kind=kind.name).to_json() for each in products]
    arrays = sorted(prepared.arrays)
    return Piece(str(own), made.count, primary.to_json(), indexes, arrays)


def _lists(row: Any, count: int) -> Any:
    return np.searchsorted(row, np.arange(count + 1)).astype(np.int32)


# ---- in the store ---------------------------------------------------------------------------


def adopt(collection: Collection, recipe: Recipe, pieces: Sequence[Piece]) -> tuple[int, int]:
    """Make pieces part of a collection; the first and the last seq of what was loaded.

    No two may have the same key. Writers wait meanwhile, readers do not.
    """
    engine: Engine = collection._engine
    if engine.store.share is not None:
        raise InvalidRequest(
            "a cluster takes no bulk loads: write batches, or load into a database of its own and "
            "begin a cluster with that (`tideline cluster create --from`)"
        )
    pieces = [piece for piece in pieces if piece.rows]
    _require(collection, recipe)
    files = [_Files(engine, piece) for piece in pieces]
    every = [file for one in files for file in one.all]
    each(Arriving.check, every)
    for group in _overlapping(pieces):
        if len(group) > 1:
            _require_distinct(group)
    _number(files, engine.next_seq)  # probably still the next when nobody else may write
    for piece in pieces:
        collection._finder.before_write(piece.arrays)
    with engine.writing:
        engine.settle()
        engine.require_open()
        _require(collection, recipe)  # still
        first = engine.next_seq
        if pieces:
            engine.sheltered(partial(_adopt, engine, files))
        last = engine.next_seq - 1
    collection._workload.puts += last + 1 - first
    engine.dataset.tidy_soon()
    return first, last


def _require(collection: Collection, recipe: Recipe) -> None:
    if recipe_of(collection) != recipe:
        raise Conflict(_CHANGED)


class _Files:
    """The files of a piece, with the trees they are for."""

    def __init__(self, engine: Engine, piece: Piece) -> None:
        self.rows = piece.rows
        self.primary = Arriving(piece.folder, ComponentInfo.from_json(piece.primary), engine.kind)
        self.indexes: dict[str, list[Arriving]] = {}
        for field, infos in piece.indexes.items():
            kind = engine.kinds.get(field)
            if kind is None:
                raise Conflict(_CHANGED)
            self.indexes[field] = [
                Arriving(piece.folder, ComponentInfo.from_json(info), kind) for info in infos
            ]
        self.all = [self.primary, *(file for found in self.indexes.values() for file in found)]


def _number(files: Sequence[_Files], first: int) -> None:
    """Number the records of pieces, one piece after the other, from a seq on."""
    firsts = accumulate([first, *(one.rows for one in files)])
    more = {file: seq for one, seq in zip(files, firsts, strict=False) for file in one.all}
    each(lambda file: file.number(more[file]), list(more))


def _overlapping(pieces: Sequence[Piece]) -> Iterator[list[Piece]]:
    """Pieces in groups: only within one, two may have the same key."""
    spans = [(ComponentInfo.from_json(piece.primary).filters["key"], piece) for piece in pieces]
    spans.sort(key=lambda each: each[0].low)
    group: list[Piece] = []
    high: Any = None
    for span, piece in spans:
        if group and span.low > high:
            yield group
            group, high = [], None
        group.append(piece)
        high = span.high if high is None else max(high, span.high)
    if group:
        yield group


def _require_distinct(pieces: Sequence[Piece]) -> None:
    """Refuse pieces of which two have a key."""
    files = [pa.memory_map(str(Path(each.folder) / each.primary["name"])) for each in pieces]
    keys = pa.chunked_array([pa.ipc.open_file(file).get_batch(0)["key"] for file in files])
    if _differ(keys) or pc.count_distinct(keys).as_py() == len(keys):
        return
    counts = keys.value_counts()
    key = counts.filter(pc.greater(counts.field("counts"), 1)).field("values")[0].as_py()
    raise key_twice(decode(key))


def _differ(keys: pa.ChunkedArray) -> bool:
    """Whether keys of nine bytes, as numbers have, differ in the last eight: quickly known."""
    sizes = pc.min_max(pc.binary_length(keys)).as_py()
    if not sizes["min"] == sizes["max"] == _NUMBER_BYTES:
        return False
    found = []
    for chunk in keys.chunks:
        texts = Texts.from_arrow(chunk)
        start = int(texts.offsets[0])
        rows = texts.data[start : start + _NUMBER_BYTES * len(chunk)].reshape(-1, _NUMBER_BYTES)
        found.append(rows[:, 1:].copy().view(np.uint64).ravel())
    numbers = np.sort(np.concatenate(found))
    return not bool((numbers[1:] == numbers[:-1]).any())


def key_twice(key: Any) -> InvalidRequest:
    """What to raise for two rows with one key."""
    return InvalidRequest(
        "two rows have one key: drop one, or name the field that says which is newer with version=",
        key=key,
    )


def _adopt(engine: Engine, files: Sequence[_Files]) -> None:
    """The same, with `writing` held; nothing can cut it."""
    if not engine.active.is_empty:
        engine.freeze()
    engine.dataset.wait_for_seals()
    if engine.frozen:
        raise Unavailable("what was written before cannot be sealed: is the disk full?")
    made: list[tuple[Tree[Any], list[Any]]] = []
    seq = engine.next_seq

    def take(tree: Tree[Any], arriving: Sequence[Arriving]) -> None:
        number, sync = engine.store.next_component, engine.store.sync
        made.append((tree, [file.take(tree, number(), sync=sync) for file in arriving]))

    try:
        _number(files, seq)
        for one in files:
            take(engine.primary, [one.primary])
            for field, arriving in one.indexes.items():
                take(engine.alone[field].tree, arriving)
            seq += one.rows
        _with_older(engine, made)
    except BaseException:
        _drop(made)
        raise
    with engine.lock:
        for tree, readers in made:
            tree.apply(readers)
        engine.next_seq, engine.feed.loaded = seq, seq - 1
        engine.begin_generation(every=True)
    try:
        engine.dataset.commit()
    except BaseException:
        with engine.lock:  # the numbers stay used: nobody may have seen another document with one
            for tree, readers in made:
                tree.apply([], [reader for reader in readers if reader in tree.readers])
            engine.begin_generation(every=True)
        raise
    engine.feed.ring()


def _with_older(engine: Engine, made: list[tuple[Tree[Any], list[Any]]]) -> None:
    """Make what indexes have that need to know older components."""
    primary = [reader for tree, readers in made if tree is engine.primary for reader in readers]
    for index in list(engine.alone.values()):
        if not index.kind.needs_older:
            continue
        older = list(reversed(index.tree.readers))
        for reader in primary:
            values, keys, seqs = engine.building_jobs._entries(index, reader, 1 << 62)
            if len(seqs):
                wanted = {"wanted": reader.component.info.filters["wanted"]}
                products = index.kind.build(values, keys, seqs, older, wanted)
                new = engine.dataset.write_all(index.tree, products, "load")
                made.append((index.tree, new))
                older = [*reversed(new), *older]


def _drop(made: Sequence[tuple[Tree[Any], list[Any]]]) -> None:
    for _, readers in made:
        for reader in readers:
            reader.component.drop()
