"""The rows of an Arrow batch as documents, for conditions on typed columns.

A document holds what JSON can hold, and a column cannot tell null from missing, so:

- a null column, or a null field of a struct, is not in the document;
- a float that JSON cannot hold (NaN, an infinity) counts as null;
- a null element of an array stays, as null: it has a position;
- a float of 32 bits is the double of the same value;
- a column or field of a type that no JSON value has (a timestamp, a decimal) is left out.

Works on whole columns: a value is touched in Python only to be put in its document. Pure
functions; pyarrow only, so that a Spark worker needs no Spark library to run it.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

__all__ = ["documents"]


def documents(names: Sequence[str], columns: Sequence[pa.Array], count: int) -> list[object]:
    """One document for each of `count` rows.

    >>> documents(["speed", "road"], [pa.array([60.5, None]), pa.array(["A1", "B2"])], 2)
    [{'speed': 60.5, 'road': 'A1'}, {'road': 'B2'}]
    """
    if not columns:
        return [{} for _ in range(count)]
    values = [_values(column) for column in columns]
    return [
        {name: value for name, value in zip(names, row, strict=True) if value is not None}
        for row in zip(*values, strict=True)
    ]


def _values(column: pa.Array) -> list[object]:
    """The values of a column, `None` for those that are null."""
    import pyarrow.compute as pc  # slow to load

    kind = column.type
    if pa.types.is_floating(kind):
        column = pc.if_else(pc.is_finite(column), column, None)
    elif pa.types.is_struct(kind):
        rows = documents([field.name for field in kind], column.flatten(), len(column))
        return _where_valid(column, rows)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        elements = _values(column.flatten())
        lists: list[object] = []
        start = 0
        for length in pc.fill_null(pc.list_value_length(column), 0).to_pylist():
            lists.append(elements[start : start + length])
            start += length
        return _where_valid(column, lists)
    elif not (pa.types.is_boolean(kind) or pa.types.is_integer(kind) or _is_text(kind)):
        return [None] * len(column)
    values: list[object] = column.to_pylist()
    return values


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _where_valid(column: pa.Array, values: list[object]) -> list[object]:
    if not column.null_count:
        return values
    valid = column.is_valid().to_pylist()
    return [value if there else None for value, there in zip(values, valid, strict=True)]
