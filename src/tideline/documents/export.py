"""Documents and changes as columns, without a look at each row.

    scanned     key, seq, document               key and document are JSON text
    changes     seq, key, op, document, before   op is c, u or d; u may be of a new document, too

Pure functions, but for `changes_table`, which reads the log.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tideline.documents.types import DELETE
from tideline.errors import Unavailable
from tideline.index.texts import Texts
from tideline.kernels.documents import objects

if TYPE_CHECKING:
    from tideline.documents.collection import Collection
    from tideline.documents.follower import Part

__all__ = ["CHANGES", "SCANNED", "changes_table", "json_keys", "key_of", "scanned_batch"]

SCANNED = pa.schema({"key": pa.string(), "seq": pa.int64(), "document": pa.large_string()})
CHANGES = pa.schema({
    "seq": pa.int64(), "key": pa.string(), "op": pa.string(), "document": pa.large_string(),
    "before": pa.large_string(),
})  # fmt: skip


def key_of(text: str | None) -> Any:
    """A key from an option or a query: JSON, or text.

    >>> key_of("17"), key_of('"17"'), key_of("a b")
    (17, '17', 'a b')
    """
    if text is None:
        return None
    with contextlib.suppress(msgspec.DecodeError):
        return msgspec.json.decode(text)
    return text


def json_keys(keys: Texts) -> pa.Array:
    """Keys as JSON text.

    >>> from tideline.documents.rows import key_bytes
    >>> json_keys(Texts.of([key_bytes(7), key_bytes(-2)])).to_pylist()
    ['7', '-2']
    >>> json_keys(Texts.of([key_bytes("é"), key_bytes('say "a"')])).to_pylist()
    ['"é"', '"say \\\\"a\\\\""']
    """
    count = keys.count
    ends = np.zeros(count + 1, np.int32)
    out = np.empty(objects.ESCAPED * keys.size_bytes + objects.ROOM * count, np.uint8)
    size = int(objects.write_keys(*keys.addresses, ends, out)) if count else 0
    text = pa.py_buffer(out[:size].copy())  # what it has room for is many times that
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(ends), text])


def scanned_batch(keys: Texts, seqs: NDArray[np.int64], docs: Texts) -> pa.RecordBatch:
    """Records as `Collection.scan` gives them."""
    columns = [json_keys(keys), pa.array(seqs), docs.to_arrow(pa.large_string())]
    return pa.RecordBatch.from_arrays(columns, schema=SCANNED)


def changes_table(
    collection: Collection, after: int, upto: int, *, before: bool = False
) -> pa.Table:
    """The changes with a seq in (after, upto], which have been written."""
    batches = []
    collection._engine.feed.reach(upto)
    with collection.changes(after, before=before) as changes:
        while after < upto:
            part = changes._follower.take_part()
            if part is None:
                raise Unavailable("these changes are not there yet", after=after, upto=upto)
            first, limit = max(0, after + 1 - part.seq), min(part.rows.count, upto + 1 - part.seq)
            batches.append(_changes(part, first, limit))
            after = part.limit - 1
    return pa.Table.from_batches(batches, schema=CHANGES)


def _changes(part: Part, first: int, limit: int) -> pa.RecordBatch:
    rows = part.rows
    deleted = pa.array(rows.ops[first:limit] == DELETE)
    none = pa.scalar(None, pa.large_string())
    docs = rows.docs.slice(first, limit).to_arrow(pa.large_string())
    before, new = pa.nulls(limit - first, pa.large_string()), pa.scalar("u")
    if part.had is not None and part.old is not None:
        had = pa.array(part.had[first:limit])
        old = part.old.slice(first, limit).to_arrow(pa.large_string())
        before = pc.if_else(had, old, none)
        new = pc.if_else(had, "u", "c")
    return pa.RecordBatch.from_arrays(
        [
            pa.array(np.arange(part.seq + first, part.seq + limit)),
            json_keys(rows.keys.slice(first, limit)),
            pc.if_else(deleted, "d", new),
            pc.if_else(deleted, none, docs),
            before,
        ],
        schema=CHANGES,
    )
