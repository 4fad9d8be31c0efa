"""Unique indexes: no two documents have one value of the field.

As in MongoDB: a missing field is null, and only one document may have that; an array has each of
its elements. 1 and 1.0 are one value. Texts of 1,024 bytes and more are refused: an index holds
only their beginning. Of an index on several fields, the values of all of them together are one.

The check runs while `writing` is held (engine.py), on every write, before its first frame. Rows are
taken in their order: a row may have a value that an earlier row of the same write has let go.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from tideline.documents import rows as documents
from tideline.documents.types import PUT, Rows
from tideline.errors import Conflict, InvalidRequest
from tideline.index.compound import SEPARATOR, shown
from tideline.index.extract import ARRAYS, extract
from tideline.index.texts import Texts
from tideline.where.keys import LIMIT, decode, is_cut

if TYPE_CHECKING:
    from tideline.documents.view import View

__all__ = ["refuse_repeated", "repeated", "require_distinct"]


def repeated(rows: Rows, fields: Sequence[str], key: str, view: View) -> dict[int, str]:
    """The rows that would repeat a value of another document, with the reason."""
    keys = rows.keys.to_list()
    bad: dict[int, str] = {}
    values = {field: _values(rows, field) for field in fields}
    owners: dict[tuple[str, bytes], bytes] = {}  # of values, by rows of this write
    written: dict[bytes, list[tuple[str, bytes]]] = {}  # keys of this write, and what they have
    for row, mine in enumerate(keys):
        had = [] if rows.ops[row] != PUT else [
            (field, value) for field in fields for value in values[field].get(row, ())
        ]  # fmt: skip
        for field, value in had:
            if is_cut(value):
                bad[row] = f"a text of a unique index must be under 1,024 bytes. field={field!r}"
                break
            owner = owners.get((field, value))
            if owner is None:
                owner = _stored_owner(view, field, value, key, written)
            if owner is not None and owner != mine:
                bad[row] = (
                    "another document has this value of a unique index. "
                    f"field={field!r}, value={_shown(field, value)!r}, {key}={decode(owner)!r}"
                )
                break
        if row not in bad:
            for each in written.get(mine, ()):
                owners.pop(each, None)
            written[mine] = had
            owners.update(dict.fromkeys(had, mine))
    return bad


def refuse_repeated(rows: Rows, fields: Sequence[str], key: str, view: View) -> None:
    """`Conflict` when a row would repeat a value of another document."""
    for reason in repeated(rows, fields, key, view).values():
        raise Conflict(reason) if reason.startswith("another") else InvalidRequest(reason)


def require_distinct(view: View, field: str) -> None:
    """`Conflict` when two documents have one value of a field."""
    parts = []
    for made in view.scan_columns():
        found = extract(made.docs, [field])[0].values.to_arrow()
        parts.append(found.filter(pc.not_equal(found, ARRAYS)))
    if not parts:
        return
    counts = pc.value_counts(pa.concat_arrays(parts))
    for value in counts.filter(pc.greater(counts.field("counts"), 1)).field("values").to_pylist():
        raise Conflict(
            "documents have the same value, so the index cannot be unique",
            field=field, value=_shown(field, value),
        )  # fmt: skip
    longest = pc.max(pc.binary_length(counts.field("values"))).as_py() or 0
    if longest >= LIMIT:
        raise InvalidRequest("a text of a unique index must be under 1,024 bytes", field=field)


def _shown(field: str, value: bytes) -> object:
    return shown(value) if SEPARATOR in field else decode(value)


def _values(rows: Rows, field: str) -> dict[int, list[bytes]]:
    """The values of each row."""
    found: dict[int, list[bytes]] = {}
    entries = rows.entries[field] if field in rows.entries else extract(rows.docs, [field])[0]
    for row, value in zip(entries.row.tolist(), entries.values.to_list(), strict=True):
        if value != ARRAYS:
            found.setdefault(row, []).append(value)
    return found


def _stored_owner(
    view: View, field: str, value: bytes, key: str, written: dict[bytes, list[tuple[str, bytes]]]
) -> bytes | None:
    """The key of the stored document with a value, unless this write has written it already."""
    docs = view.lookup(field, value, value, 1).docs
    owner = documents.keys_of(Texts.of(docs), key)[0] if docs else None
    return None if owner in written else owner
