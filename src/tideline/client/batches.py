"""Documents of a batch as Arrow streams, a part at a time, and what became of them.

    dicts, JSON texts     one column `document` of JSON texts
    a table               as it is; nested columns become JSON here, as the library would make it

A part has at most 16,384 documents and about 16 MB. A document that is no JSON is never sent: it is
rejected here, with its row number, and the others are stored.

pyarrow is loaded when a batch is sent. Pure functions.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from tideline.client.tables import table_bytes
from tideline.errors import InvalidRequest
from tideline.model import Stored
from tideline.where.plain import plain_json

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Part", "slices", "stored_of", "table_of_cells", "table_of_stream"]

_ROWS = 16_384
_BYTES = 16 << 20
_MOST_COLUMNS = 64  # that a server takes


class Part:
    """Documents that go in one request."""

    def __init__(self, table: pa.Table, rows: list[int] | range, rejected: dict[int, str]) -> None:
        self._table = table
        self._rows = rows  # of the whole batch, one for each that is sent
        self._rejected = rejected

    def stream(self) -> bytes:
        """The documents as an Arrow stream."""
        return table_bytes(self._table)

    def texts(self) -> list[bytes]:
        """The documents as JSON texts; what is no JSON stands as its own text."""
        if self._table.column_names != ["document"]:
            rows = self._table.to_pylist()
            return [msgspec.json.encode({k: v for k, v in one.items() if v is not None})
                    for one in rows]  # fmt: skip
        found = []
        for text in self._table["document"].to_pylist():
            try:
                msgspec.json.decode(text)
                found.append(text.encode())
            except (msgspec.DecodeError, RecursionError):
                found.append(msgspec.json.encode(text))
        return found

    def numbered(self, rejected: Mapping[int, str]) -> dict[int, str]:
        """What the server rejected, and what was rejected before, by the rows of the batch."""
        return {**self._rejected, **{self._rows[row]: why for row, why in rejected.items()}}


def slices(documents: Any) -> Iterator[Part]:
    """The parts of a batch.

    >>> [len(part._rows) for part in slices({"id": n} for n in range(20_000))]
    [16384, 3616]
    """
    import pyarrow as pa

    if isinstance(documents, pa.RecordBatch):
        documents = pa.Table.from_batches([documents])
    if isinstance(documents, pa.Table):
        yield from _of_table(documents)
        return
    if isinstance(documents, (str, bytes, Mapping)) or not isinstance(documents, Iterable):
        raise InvalidRequest(
            "give a list of documents or a pyarrow Table", type=type(documents).__name__
        )
    left = iter(documents)
    first = 0
    while some := list(itertools.islice(left, _ROWS)):
        yield from _of_documents(some, first)
        first += len(some)


def _of_documents(documents: list[Any], first: int) -> Iterator[Part]:
    texts: list[str] = []
    rows: list[int] = []
    rejected: dict[int, str] = {}
    size = 0
    for row, document in enumerate(documents, first):
        try:
            text = _text(document)
        except InvalidRequest as error:
            rejected[row] = str(error)
            continue
        if texts and size + len(text) > _BYTES:
            yield _part(texts, rows, rejected)
            texts, rows, rejected, size = [], [], {}, 0
        texts.append(text)
        rows.append(row)
        size += len(text)
    yield _part(texts, rows, rejected)


def _part(texts: list[str], rows: list[int], rejected: dict[int, str]) -> Part:
    import pyarrow as pa

    return Part(pa.table({"document": pa.array(texts, pa.large_string())}), rows, rejected)


def _text(document: Any) -> str:
    """A document as JSON text; one that is text is taken as it is."""
    if isinstance(document, str):
        try:
            document.encode()
        except UnicodeEncodeError:
            raise InvalidRequest("the document is not valid Unicode") from None
        return document
    if isinstance(document, (bytes, bytearray, memoryview)):
        try:
            return bytes(document).decode()
        except UnicodeDecodeError as error:
            raise InvalidRequest(f"the document is not JSON: {error}") from None
    return plain_json(document, "document").decode()


def _of_table(table: pa.Table) -> Iterator[Part]:
    import pyarrow as pa

    nested = any(pa.types.is_nested(column.type) for column in table.schema)
    nested = nested or table.num_columns > _MOST_COLUMNS
    nested = nested or len(set(table.column_names)) < table.num_columns  # which it refuses
    size = max(1, _ROWS if table.nbytes < _BYTES else _ROWS * _BYTES // table.nbytes)
    for first in range(0, max(table.num_rows, 1), size):
        rows = range(first, min(first + size, table.num_rows))
        some = table.slice(first, len(rows))
        yield _flat(some, rows) if nested else Part(some, rows, {})


def _flat(table: pa.Table, rows: range) -> Part:
    """A table with nested columns as one of JSON texts."""
    import pyarrow as pa

    from tideline.documents.convert import json_texts  # loads the compiled kernels

    rejected: dict[int, str] = {}
    texts = json_texts(table, rejected).to_arrow(pa.large_string())
    good = [row for row in range(len(rows)) if row not in rejected]
    told = {rows[row]: why for row, why in rejected.items()}
    return Part(
        pa.table({"document": texts.take(pa.array(good, pa.int64()))}),
        [rows[row] for row in good],
        told,
    )


def stored_of(count: int, rejected: dict[int, str]) -> Stored:
    """What a verb on many documents tells."""
    import pyarrow as pa

    numbers = sorted(rejected)
    table = pa.table({
        "row": pa.array(numbers, pa.int64()),
        "reason": pa.array([rejected[row] for row in numbers], pa.string()),
    })  # fmt: skip
    return Stored(count, table)


def table_of_cells(found: dict[str, Any]) -> pa.Table:
    """The cells of a grid that have any, as `Collection.aggregate_grid` gives them."""
    import numpy as np

    from tideline.space import Grid
    from tideline.space.counted import counted

    grid = Grid(bounds=tuple(found["box"]), rows=found["rows"], cols=found["cols"])
    return counted(grid, *(np.array(found[name], np.int64) for name in ("row", "col", "count")))


def table_of_stream(data: Any) -> Iterator[pa.RecordBatch]:
    """The batches of an Arrow stream."""
    import pyarrow as pa

    with pa.ipc.open_stream(pa.py_buffer(data)) as stream:
        return iter(stream.read_all().to_batches())
