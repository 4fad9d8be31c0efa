"""One write as the payload of a log frame.

    payload := kind = 1, count, first seq, bytes of keys, bytes of docs     int64 each
             | ops, a byte a row, zeros up to a multiple of 8
             | sizes of the keys, int32 each | sizes of the docs, int32 each
             | keys | docs

Index entries are not in it: recovery extracts them again. All numbers are little-endian.

Invariant: `read_payload` of what `payload_parts` gave is the same rows, and anything else whose
sizes do not add up is `Corruption`. Pure functions; safe from any thread.
"""

from __future__ import annotations

import struct

import numpy as np
from numpy.typing import NDArray

from tideline.documents.types import Rows
from tideline.errors import Corruption
from tideline.index.texts import Texts

__all__ = ["payload_parts", "read_payload"]

_HEAD = struct.Struct("<5q")
_ONE = struct.Struct("<qii")


def payload_parts(rows: Rows, seq: int) -> list[bytes | memoryview]:
    """The payload in parts, without a copy of the documents.

    >>> ops, key = np.array([1], np.uint8), Texts.of([b"k"])
    >>> parts = payload_parts(Rows(ops, key, Texts.of([b"{}"]), {}), 7)
    >>> read_payload(memoryview(b"".join(parts)))[1]
    7
    """
    count = rows.count
    key_bytes, doc_bytes = rows.keys.size_bytes, rows.docs.size_bytes
    head = _HEAD.pack(1, count, seq, key_bytes, doc_bytes)
    if count == 1:  # the short way for single writes
        sizes_of_one = _ONE.pack(int(rows.ops[0]), key_bytes, doc_bytes)
        return [head + sizes_of_one, _view(rows.keys), _view(rows.docs)]
    sizes = np.concatenate([np.diff(rows.keys.offsets), np.diff(rows.docs.offsets)])
    return [
        head,
        rows.ops.tobytes() + bytes(-count % 8),
        sizes.astype(np.int32).tobytes(),
        _view(rows.keys),
        _view(rows.docs),
    ]


def read_payload(payload: memoryview) -> tuple[Rows, int]:
    """The rows, without entries, and the seq of the first."""
    try:
        kind, count, seq, key_bytes, doc_bytes = _HEAD.unpack_from(payload)
        start = _HEAD.size
        sizes_at = start + count + -count % 8
        keys_at = sizes_at + 8 * count
        if kind != 1 or count < 1 or len(payload) != keys_at + key_bytes + doc_bytes:
            raise ValueError
        ops = np.frombuffer(payload, np.uint8, count, start)
        sizes = np.frombuffer(payload, np.int32, 2 * count, sizes_at)
        data = np.frombuffer(payload, np.uint8, key_bytes + doc_bytes, keys_at)
        keys = _texts(sizes[:count], data[:key_bytes])
        docs = _texts(sizes[count:], data[key_bytes:])
    except (ValueError, struct.error):
        raise Corruption("log frame is no write of documents", file="log") from None
    return Rows(ops, keys, docs, {}), seq


def _texts(sizes: NDArray[np.int32], data: NDArray[np.uint8]) -> Texts:
    offsets = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    if offsets[-1] != len(data) or np.any(np.diff(offsets) < 0):
        raise ValueError
    return Texts(offsets, data)


def _view(texts: Texts) -> memoryview:
    part = np.ascontiguousarray(texts.data[texts.offsets[0] : texts.offsets[-1]])
    return memoryview(part)  # type: ignore[arg-type]
