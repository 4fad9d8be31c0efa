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

import os
import secrets
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tideline.addresses import address_of
from tideline.documents import rows
from tideline.errors import Conflict, Corruption, InvalidRequest, Unavailable
from tideline.index import kinds as kinds  # registers them
from tideline.index.extract import extract
from tideline.index.kind import make_kind
from tideline.index.records import Values
from tideline.index.sorted import Gathered, SortedKind, extremes
from tideline.index.texts import Texts
from tideline.lsm.component import Component, ComponentInfo, write_component
from tideline.lsm.files import checksum
from tideline.lsm.filter import MinMax
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
    indexes: dict[str, str]
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
    names = {field: kind.name for field, kind in engine.kinds.items()}
    bits = int(engine.facts.get("bloom_bits", 20))
    return Recipe(collection.key, engine.seed, bits, names, collection.filter)


# ---- elsewhere ------------------------------------------------------------------------------


def build_piece(recipe: Recipe, folder: Path, documents: pa.Table) -> Piece:
    """Write the components of documents whose keys rise into a new folder.

    The table is as `Collection.put_many` takes it.
    """
    fields = {field: make_kind(kind, seed=recipe.seed) for field, kind in recipe.indexes.items()}
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
    pieces = [piece for piece in pieces if piece.rows]
    _require(collection, recipe)
    _check(engine, pieces)
    for piece in pieces:
        collection._finder.before_write(piece.arrays)
    with engine.writing:
        engine.settle()
        engine.require_open()
        _require(collection, recipe)  # still
        first = engine.next_seq
        if pieces:
            engine.sheltered(partial(_adopt, engine, pieces))
        last = engine.next_seq - 1
    collection._workload.puts += last + 1 - first
    engine.dataset.tidy_soon()
    return first, last


def _require(collection: Collection, recipe: Recipe) -> None:
    if recipe_of(collection) != recipe:
        raise Conflict(_CHANGED)


def _check(engine: Engine, pieces: Sequence[Piece]) -> None:
    """Whether files are what they say, and no key is in two of them."""

    def check(piece: Piece, info: ComponentInfo, kind: Any) -> None:
        reader = kind.open(Component.open(Path(piece.folder), info))
        reader.check()
        reader.component.close()

    with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:  # sums are made without the GIL
        files = ((piece, *file) for piece in pieces for file in _files(engine, piece))
        for done in [pool.submit(check, *file) for file in files]:
            done.result()
    for group in _overlapping(pieces):
        if len(group) > 1:
            _require_distinct(group)


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


def _files(engine: Engine, piece: Piece) -> Iterator[tuple[ComponentInfo, Any]]:
    yield ComponentInfo.from_json(piece.primary), engine.kind
    for field, infos in piece.indexes.items():
        kind = engine.kinds.get(field)
        if kind is None:
            raise Conflict(_CHANGED)
        for info in infos:
            yield ComponentInfo.from_json(info), kind


def _adopt(engine: Engine, pieces: Sequence[Piece]) -> None:
    """The same, with `writing` held; nothing can cut it."""
    if not engine.active.is_empty:
        engine.freeze()
    engine.dataset.wait_for_seals()
    if engine.frozen:
        raise Unavailable("what was written before cannot be sealed: is the disk full?")
    made: list[tuple[Tree[Any], list[Any]]] = []
    try:
        seq = engine.next_seq
        for piece in pieces:
            reader = _take(engine, engine.primary, piece, piece.primary, seq)
            made.append((engine.primary, [reader]))
            for field, infos in piece.indexes.items():
                tree = engine.alone[field].tree
                made.append((tree, [_take(engine, tree, piece, info, seq) for info in infos]))
            seq += piece.rows
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


def _take(engine: Engine, tree: Tree[Any], piece: Piece, given: dict[str, Any], seq: int) -> Any:
    """Number the records of a file from `seq` on, and put it with the others."""
    info = ComponentInfo.from_json(given)
    path = Path(piece.folder) / info.name
    _shift(path, seq)
    span = info.filters["seq"]
    with pa.memory_map(str(path), "r") as file:
        crc = checksum(memoryview(file.read_buffer()))
    name = f"c-{engine.store.next_component():06d}.arrow"
    filters = {**info.filters, "seq": MinMax(span.low + seq, span.high + seq)}
    if engine.store.sync:
        with path.open("rb") as file:
            os.fsync(file.fileno())
    os.replace(path, tree.folder / name)
    moved = replace(info, name=name, crc=crc, filters=filters)
    return tree.kind.open(Component.open(tree.folder, moved, verify=False))


def _shift(path: Path, seq: int) -> None:
    """Add a number to all seqs of a component's file, in place."""
    with pa.memory_map(str(path), "r") as file:
        whole = file.read_buffer()
        table = pa.Table.from_batches([pa.ipc.open_file(whole).get_batch(0)])
        if "seq" in table.column_names:
            column = table["seq"].chunk(0)
        else:
            column = table["entries"].chunk(0).values.field("seq")
        if column.offset or column.null_count:
            raise Corruption("component has other columns than it should", file=path)
        start = address_of(column.to_numpy()) - address_of(np.frombuffer(whole, np.uint8))
        count = len(column)
        del table, column, whole
    numbers = np.memmap(path, np.int64, "r+", start, (count,))
    numbers += seq
    numbers.flush()


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
