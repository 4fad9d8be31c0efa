"""A table as one column of JSON texts.

    one text column `document`     taken as it is
    a column a field               {"name":value,...} a row; what is null is left out

Structs become objects and lists become arrays, in which a null stays. NaN and infinity are no
JSON: such a row is rejected. A column of a type that no JSON value has (a timestamp, a decimal,
binary) is refused as a whole: cast it first.

Works on whole columns (kernels/documents/objects.py); of a row nothing is seen in Python. Pure
functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tideline.addresses import address_of
from tideline.errors import InvalidRequest
from tideline.index.texts import Texts
from tideline.kernels.documents import objects as at

__all__ = ["json_texts"]

_NONE = np.empty(0, np.int64)


class _Column(NamedTuple):
    """A column as the kernel reads it; holds what its addresses point to."""

    kind: int
    values: NDArray[Any]
    offsets: NDArray[np.int64]
    valid: NDArray[np.uint8] | None
    rows: int
    bad: NDArray[np.bool_] | None = None
    """Where it holds what JSON cannot say."""

    @property
    def room(self) -> int:
        """Bytes that its values take at most."""
        size = int(self.offsets[-1] - self.offsets[0]) if len(self.offsets) else 0
        return (6 if self.kind == at.TEXT else 1) * size + at.ROOM * self.rows


def json_texts(table: pa.Table, rejected: dict[int, str]) -> Texts:
    """The JSON texts of a table; rows that have none are noted in `rejected`.

    >>> rows = pa.table({"id": [1, 2], "name": ['say "a"', None], "x": [0.5, float("nan")]})
    >>> bad = {}
    >>> json_texts(rows, bad)[0], bad
    (b'{"id":1,"name":"say \\\\"a\\\\"","x":0.5}', {1: 'the column x holds NaN or infinity'})
    """
    names = table.column_names
    if len(set(names)) != len(names):
        raise InvalidRequest("the table has two columns of one name", columns=names)
    if names == ["document"]:
        return _given(_whole(table.column(0)), rejected)
    columns = [
        _column(_whole(column), name) for name, column in zip(names, table.columns, strict=True)
    ]
    for name, column in zip(names, columns, strict=True):
        if column.bad is not None:
            for row in np.flatnonzero(column.bad).tolist():
                rejected.setdefault(row, f"the column {name} holds NaN or infinity")
    return _objects(names, columns, table.num_rows)


def _given(column: pa.Array, rejected: dict[int, str]) -> Texts:
    kind = column.type
    if pa.types.is_dictionary(kind):
        column, kind = column.dictionary_decode(), kind.value_type
    if not (_is_text(kind) or _is_binary(kind) or pa.types.is_null(kind)):
        raise InvalidRequest("the column document must hold JSON as text", type=str(kind))
    column = column.cast(pa.large_binary())
    if column.null_count:
        for row in pc.indices_nonzero(column.is_null()).to_pylist():
            rejected[row] = "the document is null"
        column = column.fill_null(b"")
    return Texts.from_arrow(column)


# ---- columns --------------------------------------------------------------------------------


def _column(column: pa.Array, name: str) -> _Column:
    kind, count = column.type, len(column)
    if pa.types.is_dictionary(kind):
        return _column(column.dictionary_decode(), name)
    valid = _valid(column)
    if pa.types.is_null(kind):
        return _Column(at.FLAG, np.zeros(count, np.uint8), _NONE, np.zeros(count, np.uint8), count)
    if pa.types.is_boolean(kind):
        flags = column.fill_null(False).to_numpy(zero_copy_only=False).view(np.uint8)
        return _Column(at.FLAG, flags, _NONE, valid, count)
    if pa.types.is_integer(kind) and kind != pa.uint64():
        wide = column.cast(pa.int64()).fill_null(0)
        return _Column(at.INT, wide.to_numpy(), _NONE, valid, count)
    if _is_text(kind):
        return _texts(at.TEXT, column.cast(pa.large_string()), valid)
    if pa.types.is_integer(kind):
        return _texts(at.RAW, column.cast(pa.large_string()), valid)
    if pa.types.is_floating(kind):
        wide = column.cast(pa.float64())
        finite = pc.fill_null(pc.is_finite(wide), True)
        bad = None
        if not pc.all(finite).as_py():
            bad = ~finite.to_numpy(zero_copy_only=False)
        return _texts(at.FLOAT, wide.cast(pa.large_string()), valid)._replace(bad=bad)
    if pa.types.is_struct(kind):
        return _struct(column, name, valid)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _list(column, name, valid)
    raise InvalidRequest(
        "a column has a type that no JSON value has: cast it to text or a number",
        column=name, type=str(kind),
    )  # fmt: skip


def _texts(kind: int, column: pa.Array, valid: NDArray[np.uint8] | None) -> _Column:
    texts = Texts.from_arrow(column)
    return _Column(kind, texts.data, texts.offsets, valid, len(column))


def _struct(column: pa.Array, name: str, valid: NDArray[np.uint8] | None) -> _Column:
    names = [field.name for field in column.type]
    parts = [
        _column(values, f"{name}.{part}")
        for part, values in zip(names, column.flatten(), strict=True)
    ]
    texts = _objects(names, parts, len(column))
    bad = None
    for part in parts:
        if part.bad is not None:
            bad = part.bad if bad is None else bad | part.bad
    return _Column(at.RAW, texts.data, texts.offsets, valid, len(column), bad)


def _list(column: pa.Array, name: str, valid: NDArray[np.uint8] | None) -> _Column:
    elements = _column(column.flatten(), name)
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    starts = np.zeros(len(column) + 1, np.int64)
    np.cumsum(lengths, out=starts[1:])
    offsets = np.empty(len(starts), np.int64)
    out = np.empty(elements.room + 5 * elements.rows + 2 * len(starts) + at.ROOM, np.uint8)
    size = at.write_arrays(starts, _words([""], [elements]), offsets, out)
    bad = None
    if elements.bad is not None:
        sums = np.concatenate([[0], np.cumsum(elements.bad)])
        bad = sums[starts[1:]] > sums[starts[:-1]]
    return _Column(at.RAW, out[:size], offsets, valid, len(column), bad)


def _objects(names: Sequence[str], columns: Sequence[_Column], count: int) -> Texts:
    heads = [msgspec.json.encode(name) + b":" for name in names]
    room = sum(column.room + (len(head) + 1) * count
               for head, column in zip(heads, columns, strict=True))  # fmt: skip
    out = np.empty(room + 2 * count + at.ROOM, np.uint8)  # what is not written takes no memory
    offsets = np.zeros(count + 1, np.int64)
    held = [np.frombuffer(head, np.uint8) for head in heads]
    size = at.write_objects(count, _words(held, columns), offsets, out)
    return Texts(offsets, out[:size])


def _words(heads: Sequence[Any], columns: Sequence[_Column]) -> NDArray[np.int64]:
    words = np.zeros((len(columns), at.C_WORDS), np.int64)
    for row, head, column in zip(words, heads, columns, strict=True):
        row[:4] = (
            column.kind,
            address_of(column.values),
            address_of(column.offsets),
            0 if column.valid is None else address_of(column.valid),
        )
        if len(head):
            row[4:] = address_of(head), len(head)
    return words


def _valid(column: pa.Array) -> NDArray[np.uint8] | None:
    if not column.null_count:
        return None
    found: NDArray[np.uint8] = column.is_valid().to_numpy(zero_copy_only=False).view(np.uint8)
    return found


def _whole(column: pa.ChunkedArray) -> pa.Array:
    if column.num_chunks == 1:
        return column.chunk(0)
    if _is_text(column.type) or _is_binary(column.type):  # one chunk holds 2 GiB otherwise
        column = column.cast(pa.large_string() if _is_text(column.type) else pa.large_binary())
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _is_text(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or kind == pa.string_view()
    )


def _is_binary(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))
