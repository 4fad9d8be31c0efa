"""Arrow streams from outside, which are not trusted.

    messages   looked at one by one: compressed ones and dictionaries that grow are refused, because
               a small one may hide a large one; each says how many rows it claims
    columns    of numbers, times and texts, plain or as a dictionary; nothing nested, but lists of
               numbers where these are points
    size       what the rows take when every dictionary is written out, known before it is done
    buffers    checked whole before a kernel reads them

A stream is read in place. What it holds decoded is at most `most_bytes`: a dictionary lets a row of
one byte stand for a text of any length, and a column of nulls takes no bytes at all.

Pure functions; safe from any thread.
"""

from __future__ import annotations

import struct
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tideline.errors import InvalidRequest
from tideline.server.refusals import Refused

__all__ = ["DECODED", "read_stream"]

DECODED = 4
"""How much larger than the largest body a decoded stream may be."""

_DICTIONARY, _RECORDS = 2, 3  # kinds of an Arrow message
_HEADER_TYPE, _HEADER = 1, 2  # fields of a message
_DATA, _IS_DELTA = 1, 2  # fields of a dictionary batch
_LENGTH, _COMPRESSION = 0, 3  # fields of a record batch
_ROW_BYTES = 32  # what a row takes beside its columns
_MESSAGE_BYTES = 2_048  # what a message takes for each column, however small
_MOST_COLUMNS = 64


def read_stream(
    data: bytes, most_bytes: int = DECODED * (64 << 20), *, points: bool = False
) -> pa.Table:
    """The table of an Arrow stream, checked; with `points` it may have lists of numbers."""
    try:
        rows, messages = _claims(data)
        with pa.ipc.open_stream(pa.py_buffer(data)) as stream:
            schema = stream.schema
            _check_columns(schema, points)
            # Every row takes this, whatever its columns are.
            _check_size(rows * _ROW_BYTES + messages * len(schema) * _MESSAGE_BYTES, most_bytes)
            table = stream.read_all()
        table.validate(full=True)
        _check_size(rows * _ROW_BYTES + sum(map(_decoded, table.columns)), most_bytes)
    except (pa.ArrowException, OSError, ValueError, struct.error, IndexError) as error:
        raise InvalidRequest(f"the body is not an Arrow stream: {error}") from None
    if table.num_rows > len(data):  # columns without bytes may claim any number of rows
        raise InvalidRequest("the stream claims more rows than it holds", rows=table.num_rows)
    return table


def _check_size(size: int, most_bytes: int) -> None:
    if size > most_bytes:
        raise Refused(
            413, "TooLarge",
            f"the stream takes {size} bytes when its rows are written out, more than {most_bytes}:"
            " send fewer rows at a time",
        )  # fmt: skip


# ---- columns -----------------------------------------------------------------------------------


def _check_columns(schema: pa.Schema, points: bool) -> None:
    if len(schema) > _MOST_COLUMNS:
        raise InvalidRequest("the stream has too many columns", columns=len(schema))
    repeated = [name for name, count in Counter(schema.names).items() if count > 1]
    if repeated:
        raise InvalidRequest("the stream has a column twice", columns=repeated)
    for column in schema:
        kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        if not (_is_text(kind) or _is_plain(kind) or (points and _is_list(column.type))):
            raise InvalidRequest(
                "the columns of a stream are numbers, times and texts",
                column=column.name, type=str(column.type),
            )  # fmt: skip


def _is_text(kind: Any) -> bool:
    types = pa.types
    return bool(
        types.is_string(kind) or types.is_large_string(kind) or types.is_binary(kind)
        or types.is_large_binary(kind) or types.is_string_view(kind)
    )  # fmt: skip


def _is_plain(kind: Any) -> bool:
    types = pa.types
    return bool(
        types.is_null(kind) or types.is_primitive(kind) or types.is_decimal(kind)
    )  # fmt: skip


def _is_list(kind: Any) -> bool:
    types = pa.types
    listed = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    return bool(listed) and bool(
        types.is_floating(kind.value_type) or types.is_integer(kind.value_type)
    )


def _decoded(column: pa.ChunkedArray) -> int:
    """The bytes of a column when every dictionary in it is written out."""
    return sum(_chunk(chunk) for chunk in column.chunks)


def _chunk(chunk: pa.Array) -> int:
    if _is_list(chunk.type):
        return len(chunk) * 8 + len(chunk.values) * 8
    if not pa.types.is_dictionary(chunk.type):
        if not _is_text(chunk.type):
            return len(chunk) * 8
        return len(chunk) * 8 + int(_lengths(chunk).sum())
    texts = chunk.dictionary
    if not _is_text(texts.type) or not len(texts):
        return len(chunk) * 8
    used = chunk.indices.drop_null().to_numpy()
    return len(chunk) * 8 + int(_lengths(texts)[used].sum())


def _lengths(texts: pa.Array) -> Any:
    """The bytes of each text."""
    if pa.types.is_string_view(texts.type):  # sixteen bytes each: the first four say how long
        if not len(texts):
            return np.zeros(0, np.int64)
        words = np.frombuffer(texts.buffers()[1], np.int32)
        return words[texts.offset * 4 :: 4][: len(texts)].astype(np.int64)
    return pc.fill_null(pc.binary_length(texts), 0).to_numpy(zero_copy_only=False).astype(np.int64)


# ---- messages ----------------------------------------------------------------------------------


def _claims(data: bytes) -> tuple[int, int]:
    """The rows that a stream claims, and how many messages it has."""
    rows = messages = 0
    for message in pa.ipc.MessageReader.open_stream(pa.py_buffer(data)):
        messages += 1
        rows += _rows_of(message.metadata.to_pybytes())
    return rows, messages


def _rows_of(message: bytes) -> int:
    """The rows of an Arrow message (a flatbuffer), of which the buffers are as they are sent."""
    root = int.from_bytes(message[:4], "little")
    kind = _field(message, root, _HEADER_TYPE)
    header = _table(message, root, _HEADER)
    if kind is None or header is None or message[kind] not in (_DICTIONARY, _RECORDS):
        return 0
    records: int | None = header
    if message[kind] == _DICTIONARY:
        delta = _field(message, header, _IS_DELTA)
        if delta is not None and message[delta]:
            raise InvalidRequest("a dictionary of the stream grows: send it whole")
        records = _table(message, header, _DATA)
    if records is None:
        return 0
    if _field(message, records, _COMPRESSION) is not None:
        raise InvalidRequest("the stream is compressed: send it uncompressed")
    at = _field(message, records, _LENGTH)
    if at is None:
        return 0
    (length,) = struct.unpack_from("<q", message, at)
    if length < 0:
        raise InvalidRequest("a message of the stream claims less than no rows")
    return int(length)


def _field(message: bytes, table: int, number: int) -> int | None:
    """Where a field of a flatbuffer's table lies."""
    (back,) = struct.unpack_from("<i", message, table)
    (size,) = struct.unpack_from("<H", message, table - back)
    if 4 + 2 * number >= size:
        return None
    (offset,) = struct.unpack_from("<H", message, table - back + 4 + 2 * number)
    return table + int(offset) if offset else None


def _table(message: bytes, table: int, number: int) -> int | None:
    """The table that a field names."""
    at = _field(message, table, number)
    if at is None:
        return None
    (forward,) = struct.unpack_from("<I", message, at)
    return at + int(forward)
