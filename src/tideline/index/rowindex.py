"""Indexes of the rows of a run: places and texts beside the order of keys.

    column of a run --build--> the component of a kind (spatial, words, ngrams, fuzzy)
    ask --RowIndex.search--> positions in the run, ascending

A kind is told a key and a seq for every entry. A row has neither: its entry has an empty key, and
for its seq the position in the run, counted from 1. A run never changes, so no entry is ever
stale, and an index goes when its run does. Of rows that still come, in a tail, there is a memory of
the kind, which a reader brings up to date before it searches: writers do nothing for it.

On disk an index is in the file of its run, so that both count or neither does:

    index.FIELD: dictionary<int8, large_binary>    the component as an Arrow IPC file: the only
                                                   value of the dictionary; none when it is empty
    extra["indexes"][FIELD]                        filters and extra facts of that component

Safe from any thread: two may build one index, and one of the two is kept.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.ipc
from numpy.typing import NDArray

from tideline.errors import Corruption, InvalidRequest
from tideline.index.kind import Spec, make_kind, name_of
from tideline.index.texts import Texts
from tideline.index.values import POINT, TextColumn
from tideline.lsm.component import ComponentInfo, Product
from tideline.lsm.filter import filter_from_json

__all__ = ["KINDS", "RowIndex", "RowIndexes", "TailIndex", "kind_of"]

Words = NDArray[np.int64]
KINDS = {"point": ("spatial",), "text": ("words", "ngrams", "fuzzy")}
"""The kinds there may be, by the type of a value."""
_EVERYTHING = 1 << 62
_FIELD = "f"  # what a value is called in the documents that kinds of texts are given


class _Held:
    """What a reader of a kind asks of a component: here a table in memory, or inside another."""

    def __init__(self, table: pa.Table, info: ComponentInfo) -> None:
        self.table = table
        self.info = info

    def verify(self) -> None:
        """The checksum is that of the file around it."""


class RowIndex:
    """An index of the rows of one run."""

    def __init__(self, kind: Any, readers: Sequence[Any], size_bytes: int) -> None:
        self._kind = kind
        self._readers = readers
        self._view = kind.view([], readers)
        self.size_bytes = size_bytes
        """Bytes in memory."""

    def search(self, ask: Any) -> Words:
        """The positions of candidates, ascending."""
        return _positions(self._kind.search(self._view, ask, None, _EVERYTHING))

    def estimate(self, ask: Any) -> float:
        """How many candidates, about."""
        return float(self._kind.estimate(self._view, ask).entries)

    def nearest(self, ask: Any, count: int) -> Iterator[Words]:
        """Positions, nearest first, some at a time."""
        for found in self._kind.nearest(self._view, ask, count, _EVERYTHING):
            yield found.seqs - 1

    def check(self) -> None:
        """Verify what searches rely on."""
        for reader in self._readers:
            reader.check()


class TailIndex:
    """An index of rows that still come: those that it does not know are added by whoever asks."""

    def __init__(self, kind: Any) -> None:
        self._kind = kind
        self._memory = kind.memory(1 << 20, None)
        self._known = 0
        self._adding = threading.Lock()

    def search(self, ask: Any, column: Any, rows: int) -> Words:
        """The positions of candidates among the first rows of a column."""
        return _positions(self._kind.search(self._view(column, rows), ask, None, rows + 1))

    def nearest(self, ask: Any, column: Any, rows: int, count: int) -> Iterator[Words]:
        """Positions among the first rows of a column, nearest first, some at a time."""
        for found in self._kind.nearest(self._view(column, rows), ask, count, rows + 1):
            yield found.seqs - 1

    def _view(self, column: Any, rows: int) -> Any:
        with self._adding:
            if self._known < rows:
                values, of = _entries(self._kind, column[self._known : rows])
                if values.count:
                    keys = _nothing(rows - self._known)
                    self._memory.add(values, keys, self._known + 1, of)
                self._known = rows
        return self._kind.view([self._memory], [])


def _positions(chunks: Any) -> Words:
    found = [chunk.seqs for chunk in chunks]
    if not found:
        return np.zeros(0, np.int64)
    places: Words = np.unique(np.concatenate(found)) - 1
    return places


class RowIndexes:
    """The indexes that the rows of a window have."""

    def __init__(self, specs: Mapping[str, Spec], names: Sequence[str], seed: int) -> None:
        """`names` are those of the values of a run, in their order."""
        from tideline.index import kinds  # registers them; imported by who has indexes

        assert kinds
        self.kinds: dict[str, Any] = {
            field: make_kind(spec, seed=seed) for field, spec in specs.items()
        }
        self._places = {field: names.index(field) for field in specs}

    def column(self, field: str, run: Any) -> Any:
        """The values that an index is of."""
        return run.values[self._places[field]]

    def of(self, run: Any, field: str) -> RowIndex:
        """The index of a run; the first time it is built, unless the run came with it."""
        found: RowIndex | None = run.indexes.get(field)
        if found is None:
            products = self._build(field, run)
            parts = [
                (product.table, dict(product.filters), dict(product.extra)) for product in products
            ]
            size = sum(int(product.table.nbytes) for product in products)
            found = run.indexes[field] = self._opened(field, parts, "memory", size)
        return found

    def of_tail(self, made: dict[str, Any], field: str) -> TailIndex:
        """The index of a tail, which has those that were made."""
        return made.setdefault(field, TailIndex(self.kinds[field]))  # type: ignore[no-any-return]

    def build(self, run: Any) -> None:
        """Build what a run has not."""
        for field in self.kinds:
            self.of(run, field)

    def _build(self, field: str, run: Any) -> Sequence[Product]:
        kind = self.kinds[field]
        values, of = _entries(kind, self.column(field, run))
        if not values.count:
            return []
        built: Sequence[Product] = kind.build(values, _nothing(len(of)), of + 1, [], {})
        return built

    def _opened(self, field: str, parts: Sequence[Any], file: str, size_bytes: int) -> RowIndex:
        kind = self.kinds[field]
        readers = []
        for table, filters, extra in parts:
            info = ComponentInfo(file, kind.name, table.num_rows, 0, 0, filters, extra)
            readers.append(kind.open(_Held(table, info)))
        return RowIndex(kind, readers, size_bytes)

    # ---- in a file ---------------------------------------------------------------------------

    def columns(self, run: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """For the component of a run: more columns, and what `extra` says of them."""
        columns: dict[str, Any] = {}
        facts: dict[str, Any] = {}
        for field in self.kinds:
            blobs, told = [], []
            for product in self._build(field, run):
                sink = pa.BufferOutputStream()
                with pa.ipc.new_file(sink, product.table.schema) as writer:
                    writer.write_table(product.table.combine_chunks())
                blobs.append(sink.getvalue())
                filters = {name: each.to_json() for name, each in product.filters.items()}
                told.append({"filters": filters, "extra": dict(product.extra)})
            numbers = pa.array(np.zeros(run.rows, np.int8), mask=np.full(run.rows, not blobs))
            columns[f"index.{field}"] = pa.DictionaryArray.from_arrays(numbers, _binaries(blobs))
            facts[field] = told
        return columns, facts

    def read(self, table: pa.Table, facts: Mapping[str, Any], file: str) -> dict[str, RowIndex]:
        """The indexes in the component of a run, in place."""
        found = {}
        for field in self.kinds:
            if field not in facts:
                continue  # it is built when it is asked
            try:
                blobs = table[f"index.{field}"].chunk(0).dictionary
                parts = []
                for number, told in enumerate(facts[field]):
                    filters = {n: filter_from_json(each) for n, each in told["filters"].items()}
                    reader = pa.ipc.open_file(blobs[number].as_buffer())
                    own = pa.Table.from_batches([reader.get_batch(0)])
                    parts.append((own, filters, told["extra"]))
                found[field] = self._opened(field, parts, file, 0)
            except (KeyError, IndexError, TypeError, ValueError, AttributeError,
                    InvalidRequest, pa.ArrowException) as error:  # fmt: skip
                raise Corruption("an index of rows is not readable", file=file) from error
        return found


def kind_of(field: str, spec: Any, types: Mapping[str, str]) -> Any:
    """A kind on a value, checked: `InvalidRequest` when there can be none.

    >>> kind_of("at", "spatial", {"at": "point"}).name
    'spatial'
    >>> kind_of("at", "words", {"at": "point"})
    Traceback (most recent call last):
    tideline.errors.InvalidRequest: an index of this kind is not on a point. ...
    """
    if field not in types:
        raise InvalidRequest(
            "an index is on a value of the window", field=field, values=list(types)
        )
    of = types[field]
    if of not in KINDS:
        raise InvalidRequest(
            "an index is on a value of the type point or text; what else rows are found by is "
            "the key", field=field, type=of,
        )  # fmt: skip
    if not isinstance(spec, str) and not (isinstance(spec, Mapping) and "kind" in spec):
        raise InvalidRequest(
            'an index is named by its kind, "words", or with settings, {"kind": "ngrams", "n": 3}',
            field=field, given=spec,
        )  # fmt: skip
    from tideline.index import kinds

    assert kinds
    named: Spec = spec if isinstance(spec, str) else dict(spec)
    if name_of(named) not in KINDS[of]:
        raise InvalidRequest(
            f"an index of this kind is not on a {of}", field=field, kind=name_of(named),
            kinds=", ".join(KINDS[of]),
        )  # fmt: skip
    return make_kind(named, seed=0)


def _entries(kind: Any, column: Any) -> tuple[Texts, Words]:
    """What an index has of values: entries, and the position of each."""
    count = len(column)
    if column.dtype == POINT:
        data = np.ascontiguousarray(column).view(np.uint8).reshape(-1)
        return Texts(POINT.itemsize * np.arange(count + 1), data), np.arange(count)
    assert isinstance(column, TextColumn)
    encode = msgspec.json.encode
    docs = Texts.of([b'{"%s":%s}' % (_FIELD.encode(), encode(text)) for text in column.tolist()])
    found = kind.extract(docs, [_FIELD])[0]
    return found.values, found.row


def _nothing(count: int) -> Texts:
    """So many empty keys."""
    return Texts(np.zeros(count + 1, np.int64), np.zeros(8, np.uint8))


def _binaries(blobs: Sequence[pa.Buffer]) -> pa.Array:
    """Buffers as large binaries; a single one is not copied."""
    if len(blobs) == 1:
        offsets = pa.py_buffer(np.array([0, blobs[0].size], np.int64))
        return pa.Array.from_buffers(pa.large_binary(), 1, [None, offsets, blobs[0]])
    return pa.array([blob.to_pybytes() for blob in blobs], pa.large_binary())
