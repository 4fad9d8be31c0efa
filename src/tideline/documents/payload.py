"""One write as the payload of a log frame.

    payload := kind, count, first seq, bytes of keys, bytes of docs         int64 each
             | ops, a byte a row, zeros up to a multiple of 8
             | sizes of the keys, int32 each | sizes of the docs, int32 each
             | keys | docs
             | [old versions] | [once] | [untils]
    kind    := 1 without old versions | 2 with them; 4 more with once, 8 more with untils
    old versions := zeros up to a multiple of 8 | sizes, int32 each, -1 for none | texts
    once    := a writer, UTF-8 | the number of its batch, int64 | bytes of the writer, int64
    untils  := when each row expires, int64 each: microseconds since 1970, 0 for never

The old version of a row is the document that it replaces or deletes. Old versions are written
only while somebody wants them (feed.py); recovery passes over them. Index entries are not in the
payload: recovery extracts them again. All numbers are little-endian.

With the last rows of a writer's batch, `once` says that it has landed (lsm/writers.py).

Invariant: `read_payload` of what `payload_parts` gave is the same rows, and anything else whose
sizes do not add up is `Corruption`. Pure functions; safe from any thread.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tideline.documents.types import Rows
from tideline.errors import Corruption
from tideline.index.texts import Texts

__all__ = [
    "HEAD_BYTES", "first_seq", "has_old", "payload_parts", "read_old", "read_once", "read_payload",
]  # fmt: skip

_HEAD = struct.Struct("<5q")
HEAD_BYTES = _HEAD.size
_PLAIN, _WITH_OLD, _ONCE, _UNTILS = 1, 2, 4, 8
_KINDS = tuple(
    base | once | untils
    for base in (_PLAIN, _WITH_OLD) for once in (0, _ONCE) for untils in (0, _UNTILS)
)  # fmt: skip
_ONCE_TAIL = struct.Struct("<2q")
_ONE = struct.Struct("<qii")


def payload_parts(
    rows: Rows,
    seq: int,
    old: Sequence[bytes | None] | None = None,
    once: tuple[str, int] | None = None,
) -> list[bytes | memoryview]:
    """The payload in parts, without a copy of the documents; `old` are the old versions.

    `once` is the writer's batch that ends with these rows.

    >>> ops, key = np.array([1], np.uint8), Texts.of([b"k"])
    >>> parts = payload_parts(Rows(ops, key, Texts.of([b"{}"]), {}), 7)
    >>> read_payload(memoryview(b"".join(parts)))[1]
    7
    """
    count = rows.count
    key_bytes, doc_bytes = rows.keys.size_bytes, rows.docs.size_bytes
    kind = (_PLAIN if old is None else _WITH_OLD) | (0 if once is None else _ONCE)
    if rows.untils is not None:
        kind |= _UNTILS
    head = _HEAD.pack(kind, count, seq, key_bytes, doc_bytes)
    if count == 1:  # the short way for single writes
        sizes_of_one = _ONE.pack(int(rows.ops[0]), key_bytes, doc_bytes)
        parts: list[bytes | memoryview] = [head + sizes_of_one, _view(rows.keys), _view(rows.docs)]
    else:
        sizes = np.concatenate([np.diff(rows.keys.offsets), np.diff(rows.docs.offsets)])
        parts = [
            head,
            rows.ops.tobytes() + bytes(-count % 8),
            sizes.astype(np.int32).tobytes(),
            _view(rows.keys),
            _view(rows.docs),
        ]
    if old is not None:
        had = [-1 if text is None else len(text) for text in old]
        parts.append(bytes(-sum(map(len, parts)) % 8) + np.array(had, np.int32).tobytes())
        parts.append(b"".join(text for text in old if text is not None))
    if once is not None:
        writer = once[0].encode()
        parts.append(writer + _ONCE_TAIL.pack(once[1], len(writer)))
    if rows.untils is not None:
        parts.append(rows.untils.astype(np.int64).tobytes())
    return parts


def first_seq(head: bytes) -> int:
    """The seq of the first row, from the first bytes of a payload."""
    kind, count, seq, _, _ = _HEAD.unpack_from(head.ljust(HEAD_BYTES, b"\0"))
    if kind not in _KINDS or count < 1:
        raise Corruption("log frame is no write of documents", file="log")
    return int(seq)


def read_payload(payload: memoryview) -> tuple[Rows, int]:
    """The rows, without entries, and the seq of the first."""
    rest, _, untils = _split(payload)
    rows, seq, _ = _rows(rest)
    return (rows if untils is None else rows._replace(untils=untils)), seq


def read_once(payload: memoryview) -> tuple[str, int] | None:
    """The writer's batch that ends with this payload, if one does.

    >>> one = Rows(np.array([1], np.uint8), Texts.of([b"k"]), Texts.of([b"{}"]), {})
    >>> read_once(memoryview(b"".join(payload_parts(one, 7, once=("loader", 3)))))
    ('loader', 3)
    """
    return _split(payload)[1]


def has_old(payload: memoryview) -> bool:
    """Whether a payload that `read_payload` takes says what its rows replaced."""
    return payload[0] & _WITH_OLD > 0


def read_old(payload: memoryview) -> tuple[NDArray[np.bool_], Texts] | None:
    """Which rows had an old version, and the old versions, empty for those that had none.

    None when the payload says nothing of them.

    >>> two = Rows(np.array([1, 1], np.uint8), Texts.of([b"a", b"b"]), Texts.of([b"{}"] * 2), {})
    >>> had, old = read_old(memoryview(b"".join(payload_parts(two, 7, [b'{"n":1}', None]))))
    >>> had.tolist(), old.to_list()
    ([True, False], [b'{"n":1}', b''])
    """
    payload, _, _ = _split(payload)
    rows, _, limit = _rows(payload)
    if limit == len(payload):
        return None
    try:
        start = limit + -limit % 8
        sizes = np.frombuffer(payload, np.int32, rows.count, start)
        data = np.frombuffer(payload, np.uint8, offset=start + 4 * rows.count)
        return sizes >= 0, _texts(np.maximum(sizes, 0), data)
    except (ValueError, struct.error):
        raise Corruption("log frame is no write of documents", file="log") from None


def _split(
    payload: memoryview,
) -> tuple[memoryview, tuple[str, int] | None, NDArray[np.int64] | None]:
    """The payload without what may stand at its end, `once`, and `untils`."""
    try:
        kind, count = struct.unpack_from("<2q", payload)
        if kind not in _KINDS:
            return payload, None, None
        untils = None
        if kind & _UNTILS:
            end = len(payload) - 8 * count
            if end < _HEAD.size:
                raise ValueError
            untils = np.frombuffer(payload, np.int64, count, end)
            if untils.min() < 0:
                raise ValueError
            payload = payload[:end]
        if not kind & _ONCE:
            return payload, None, untils
        end = len(payload) - _ONCE_TAIL.size
        number, size = _ONCE_TAIL.unpack_from(payload, end)
        if not 0 < size <= end - _HEAD.size:
            raise ValueError
        return payload[: end - size], (str(payload[end - size : end], "utf-8"), number), untils
    except (ValueError, struct.error):
        raise Corruption("log frame is no write of documents", file="log") from None


def _rows(payload: memoryview) -> tuple[Rows, int, int]:
    """The rows, the seq of the first, and where they end."""
    try:
        kind, count, seq, key_bytes, doc_bytes = _HEAD.unpack_from(payload)
        start = _HEAD.size
        sizes_at = start + count + -count % 8
        keys_at = sizes_at + 8 * count
        limit = keys_at + key_bytes + doc_bytes
        whole = limit == len(payload) if kind & _PLAIN else limit < len(payload)
        if kind not in _KINDS or count < 1 or not whole:
            raise ValueError
        ops = np.frombuffer(payload, np.uint8, count, start)
        sizes = np.frombuffer(payload, np.int32, 2 * count, sizes_at)
        data = np.frombuffer(payload, np.uint8, key_bytes + doc_bytes, keys_at)
        keys = _texts(sizes[:count], data[:key_bytes])
        docs = _texts(sizes[count:], data[key_bytes:])
    except (ValueError, struct.error):
        raise Corruption("log frame is no write of documents", file="log") from None
    return Rows(ops, keys, docs, {}), seq, limit


def _texts(sizes: NDArray[np.int32], data: NDArray[np.uint8]) -> Texts:
    if len(sizes) == 1:  # the short way for single writes
        if int(sizes[0]) != len(data):
            raise ValueError
        return Texts(np.array((0, len(data)), np.int64), data)
    offsets = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    if offsets[-1] != len(data) or np.any(np.diff(offsets) < 0):
        raise ValueError
    return Texts(offsets, data)


def _view(texts: Texts) -> memoryview:
    part = np.ascontiguousarray(texts.data[texts.offsets[0] : texts.offsets[-1]])
    return memoryview(part)  # type: ignore[arg-type]
