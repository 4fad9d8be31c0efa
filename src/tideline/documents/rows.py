"""Documents as users give them, as the `Rows` that the engine writes.

    a dict, a JSON text      one document
    a list of either         many
    a pyarrow Table          many: JSON in one text column `document`, or a column a field
                             (convert.py writes the JSON)

Bad documents are told apart here, before anything is stored: the others land. For many
documents nothing is done in Python row by row, unless a row is odd or bad.

Keys are whole numbers of 64 bits or text of 1 to 1,024 bytes. Pure functions.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tideline.documents.convert import json_texts
from tideline.documents.types import DELETE, PUT, Rows
from tideline.errors import InvalidRequest
from tideline.index.compound import SEPARATOR
from tideline.index.extract import ARRAYS, Scanned, encoded, has_parallel_arrays, of_document
from tideline.index.kind import Entries
from tideline.index.texts import Texts
from tideline.kernels import jsonpath as at
from tideline.kernels.jsontext import DEPTH_LIMIT, check_rows
from tideline.where.keys import encode
from tideline.where.plain import encoded as encoded_json
from tideline.where.plain import has_nan, is_json, plain_json, refuse
from tideline.where.texts import in_json

__all__ = ["DOCUMENT_LIMIT_BYTES", "KEY_LIMIT_BYTES", "NONE", "Prepared", "deletions",
           "document_of", "key_bytes", "keys_of", "lasting", "prepare", "single"]  # fmt: skip

DOCUMENT_LIMIT_BYTES = 16 << 20
KEY_LIMIT_BYTES = 1024
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1
_WIDE, _DEEP = 1 << 64, 32
_lines = msgspec.json.Encoder().encode_lines
_NEWLINE = 0x0A
_decode = msgspec.json.Decoder().decode
_ONE_PUT = np.array([PUT], np.uint8)
_ROW_0 = np.zeros(1, np.int64)
_PARALLEL = "an index on several fields takes documents with an array in at most one of them"
_NO_ENTRIES = Entries(np.empty(0, np.int64), Texts.of([]))


NONE = Rows(np.empty(0, np.uint8), Texts.of([]), Texts.of([]), {})
"""Nothing to write."""


class Prepared(NamedTuple):
    """Rows that can be written, and those that cannot."""

    rows: Rows
    arrays: Collection[str]
    """The fields in which some document has an array."""
    rejected: dict[int, str]


def key_bytes(key: Any, name: str = "key") -> bytes:
    """A key as the engine knows it.

    >>> key_bytes("a"), key_bytes(True)
    Traceback (most recent call last):
    tideline.errors.InvalidRequest: a key must be a whole number or text. key=True
    """
    if type(key) is int:
        if _LEAST <= key <= _MOST:
            return encode(key)
        raise InvalidRequest("a key that is a number must fit 64 bits", **{name: key})
    if type(key) is str:
        try:
            text = key.encode()
        except UnicodeEncodeError:
            raise InvalidRequest("a key must be valid Unicode", **{name: key}) from None
        if 0 < len(text) <= KEY_LIMIT_BYTES:
            return b"\x02" + text  # as `encode`, which would cut what is longer
        raise InvalidRequest(
            f"a key that is text must be 1 to {KEY_LIMIT_BYTES} bytes", size_bytes=len(text)
        )
    raise InvalidRequest("a key must be a whole number or text", **{name: key})


def asked_key(where: Any, name: str) -> bytes | None:
    """The key that a condition asks for, if it asks for one key and nothing else.

    >>> asked_key({"id": "a"}, "id"), asked_key({"id": 1.0}, "id"), asked_key({"id": ""}, "id")
    (b'\\x02a', None, None)
    """
    if type(where) is not dict or len(where) != 1:
        return None
    with contextlib.suppress(InvalidRequest):  # no document has such a key
        return key_bytes(where.get(name))
    return None


# ---- one ------------------------------------------------------------------------------------


def single(given: Any, key: str, fields: Sequence[str], filter: str | None) -> Prepared:
    """One document, a dict or JSON text; `InvalidRequest` if it is a bad one."""
    text, document = _text_of(given)
    found = {}
    arrays = []
    for field in fields:
        values = of_document(document, field)
        if len(values) == 1:
            found[field] = Entries(_ROW_0, _one(values[0]))
        else:
            found[field] = Entries(np.zeros(len(values), np.int64), Texts.of(values))
        if values and values[-1] == ARRAYS:
            arrays.append(field)
            if SEPARATOR in field and has_parallel_arrays(document, field):
                raise InvalidRequest(_PARALLEL, index=field)
    rows = Rows(
        _ONE_PUT,
        _one(_key_of(document, key)),
        _one(text),
        found,
        None if filter is None else Texts.of(_without_mark(of_document(document, filter))),
    )
    return Prepared(rows, arrays, {})


def document_of(given: Any) -> dict[str, Any]:
    """A document, a dict or JSON text, as a dict; `InvalidRequest` if it is a bad one."""
    return _text_of(given)[1]


def _one(text: bytes) -> Texts:
    return Texts(np.array((0, len(text))), np.frombuffer(text, np.uint8))


def deletions(keys: Sequence[bytes], fields: Sequence[str], filter: str | None) -> Rows:
    """Rows that delete."""
    return Rows(
        np.full(len(keys), DELETE, np.uint8), Texts.of(keys), Texts.of([b""] * len(keys)),
        dict.fromkeys(fields, _NO_ENTRIES), None if filter is None else _NO_ENTRIES.values,
    )  # fmt: skip


def lasting(rows: Rows, until: int) -> Rows:
    """Rows that expire at a time; 0 for never."""
    return rows._replace(untils=np.full(rows.count, until, np.int64)) if until else rows


def _without_mark(values: list[bytes]) -> list[bytes]:
    return [value for value in values if value != ARRAYS]


def _text_of(given: Any) -> tuple[bytes, dict[str, Any]]:
    """A document as its JSON text and as what decoding that gives."""
    given_as_dict = type(given) is dict  # which is looked at below, by `_is_plain`
    text = encoded_json(given, "document") if given_as_dict else json_text(given)
    if len(text) > DOCUMENT_LIMIT_BYTES:
        raise InvalidRequest(
            "the document is too large", size_bytes=len(text), limit=DOCUMENT_LIMIT_BYTES
        )
    document = given
    if type(given) is not dict:
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            document = _decode(text)
    if type(document) is dict and _is_plain(document, 0):
        return text, document
    if given_as_dict:
        said = in_json(given, "document")
        if said is not given:
            return _text_of(said)
        refuse(given, "document")
    reason = _wrong(text)
    if reason is not None:
        raise InvalidRequest(reason, document=given)
    return text, _decode(text)


_SCALARS = frozenset((type(None), bool, float, str))


def _is_plain(value: Any, depth: int) -> bool:
    """Whether an object is what decoding its JSON gives, with nothing in it that is odd."""
    for name, part in value.items():
        if type(name) is not str or not (type(part) in _SCALARS or _is_plain_part(part, depth)):
            return False
    return True


def _is_plain_part(value: Any, depth: int) -> bool:
    kind = type(value)
    if kind is int:
        return bool(-_WIDE < value < _WIDE)  # JSON has no limit, but doubles have
    if depth == _DEEP:
        return False
    if kind is dict:
        return _is_plain(value, depth + 1)
    if kind is not list:
        return False
    return all(type(part) in _SCALARS or _is_plain_part(part, depth + 1) for part in value)


def _wrong(text: bytes) -> str | None:
    """What is wrong with the JSON text of a document, if anything is."""
    try:
        document = _decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return f"the document is not JSON: {error}"
    if type(document) is not dict:
        return "a document must be a JSON object"
    ok = np.ones(1, np.bool_)
    check_rows(np.frombuffer(bytearray(text), np.uint8), np.array([0, len(text)]), ok, ok)
    if not ok[0]:
        return (f"the document is not JSON that all can read: deeper than {DEPTH_LIMIT}, or with a "
                "number beyond 1.8e308")  # fmt: skip
    return None


def json_text(given: Any) -> bytes:
    """A document's JSON text; text is taken as it is."""
    if isinstance(given, (bytes, bytearray, memoryview)):
        return bytes(given)
    if isinstance(given, str):
        try:
            return given.encode()
        except UnicodeEncodeError:
            raise InvalidRequest("the document is not valid Unicode") from None
    if isinstance(given, (set, frozenset, list, tuple)):
        raise InvalidRequest("a document must be a JSON object", document=given)
    return plain_json(given, "document")


def _key_of(document: dict[str, Any], key: str) -> bytes:
    if key not in document:
        raise InvalidRequest(f"the document lacks its key, the field {key}", document=document)
    return key_bytes(document[key], key)


# ---- many -----------------------------------------------------------------------------------


def prepare(given: Any, key: str, fields: Sequence[str], filter: str | None) -> Prepared:
    """Many documents: a Table, or an iterable of dicts and JSON texts."""
    rejected: dict[int, str] = {}
    if isinstance(given, (pa.Table, pa.RecordBatch)):
        table = pa.Table.from_batches([given]) if isinstance(given, pa.RecordBatch) else given
        docs = json_texts(table, rejected)
    else:
        docs = _many(given, rejected)
    return _prepared(docs, key, fields, filter, rejected)


def _many(given: Sequence[Any], rejected: dict[int, str]) -> Texts:
    """Documents one by one as JSON texts, or all in one go when all are dicts."""
    if all(type(one) is dict for one in given):
        with contextlib.suppress(TypeError, ValueError, RecursionError, msgspec.MsgspecError):
            data = np.frombuffer(_lines(given), np.uint8)
            ends = np.flatnonzero(data == _NEWLINE) + 1  # inside of JSON there is none
            docs = Texts(np.concatenate([[0], ends]), data)
            if not len(given) or (not _any_nan(docs, given) and all(map(is_json, given))):
                return docs
    texts: list[bytes] = []
    for row, one in enumerate(given):
        try:
            texts.append(json_text(one))
        except InvalidRequest as error:
            rejected[row] = str(error)
            texts.append(b"")
    return Texts.of(texts)


def _any_nan(docs: Texts, given: Sequence[Any]) -> bool:
    nulls = pc.match_substring(docs.to_arrow(), b"null")
    return any(has_nan(given[row]) for row in pc.indices_nonzero(nulls).to_pylist())


def _prepared(
    docs: Texts, key: str, fields: Sequence[str], filter: str | None, rejected: dict[int, str]
) -> Prepared:
    sizes = docs.offsets[1:] - docs.offsets[:-1]
    for row in np.flatnonzero(sizes > DOCUMENT_LIMIT_BYTES).tolist():
        rejected[row] = f"the document is too large. limit={DOCUMENT_LIMIT_BYTES}"
    wanted = dict.fromkeys([key, *fields, *([filter] if filter else [])])
    scanned = Scanned(docs, list(wanted))
    for row in scanned.unread.tolist():
        if row not in rejected:
            reason = _wrong(docs[row])
            if reason is not None:
                rejected[row] = reason
    keys = _keys(scanned, key, rejected)
    bad = np.zeros(len(sizes), np.bool_)
    if rejected:
        bad[list(rejected)] = True
    for field in fields:
        if SEPARATOR in field:
            for row in scanned.parallel(field, bad):
                rejected[row], bad[row] = f"{_PARALLEL}. index={field!r}", True
    entries = {
        field: scanned.entries(field, bad) for field in wanted if field != key or field in fields
    }
    filter_values = None
    if filter is not None:
        filter_values = _unmarked(entries[filter].values)
        if filter not in fields:
            del entries[filter]
    if rejected:
        kept = np.flatnonzero(~bad)
        docs = docs.take(kept)
        keys = keys.take(kept)
        numbers = np.cumsum(~bad) - 1
        entries = {name: Entries(numbers[e.row], e.values) for name, e in entries.items()}
    count = len(docs.offsets) - 1
    return Prepared(
        Rows(np.full(count, PUT, np.uint8), keys, docs, entries, filter_values),
        scanned.arrays,
        rejected,
    )


def keys_of(docs: Texts, key: str) -> Texts:
    """The keys of documents that are stored.

    >>> keys_of(Texts.of([b'{"id": "a"}', b'{"id": "b"}']), "id").to_list()
    [b'\\x02a', b'\\x02b']
    """
    return _keys(Scanned(docs, [key]), key, {})


def _keys(scanned: Scanned, key: str, rejected: dict[int, str]) -> Texts:
    """The keys of all rows; of a rejected one, anything."""
    tags, values = scanned.at(key)
    kinds, sizes = tags & 255, tags >> 8
    good = (kinds == at.INT) | (
        (kinds == at.TEXT) & (sizes > 0) & (sizes <= KEY_LIMIT_BYTES)
    )  # fmt: skip
    fast = encoded(scanned.docs, tags, values, np.flatnonzero(good))
    if good.all():
        return fast
    rows = np.flatnonzero(~good)
    slow = []
    for row in rows.tolist():
        slow.append(b"")
        if row not in rejected:
            try:
                slow[-1] = _key_of(scanned.document(row), key)
            except InvalidRequest as error:
                rejected[row] = str(error)
    places = np.argsort(np.concatenate([np.flatnonzero(good), rows]), kind="stable")
    return Texts.join([fast, Texts.of(slow)]).take(places)


def _unmarked(values: Texts) -> Texts:
    sizes = values.offsets[1:] - values.offsets[:-1]
    marked = sizes == len(ARRAYS)
    marked[marked] = values.data[values.offsets[:-1][marked]] == ARRAYS[0]
    return values.take(np.flatnonzero(~marked)) if marked.any() else values
