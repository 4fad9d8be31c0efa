"""The kernels of standing conditions that Python calls, with the types it calls them with."""

from __future__ import annotations

from typing import Any

from numba.core import types as t

from tideline.kernels.standing import match, names, table, values, wheres

__all__ = ["kernels"]

_I = t.int64
_W = t.Array(t.int64, 1, "C")
_B = t.Array(t.uint8, 1, "C")
_I32 = t.Array(t.int32, 1, "C")


def kernels() -> list[tuple[Any, tuple[Any, ...]]]:
    """All of them."""
    return [
        (match.match, (_I, _I)),
        (table.file, (_I, _I, _I, _I)),
        (table.lengths, (_I, _I, _I, _W)),
        (table.take_out, (_I, _I)),
        (table.rehash, (_I, _I, _I)),
        (names.find, (_I, _I, _I)),
        (names.enter, (_I, _I, _I)),
        (names.drop, (_I, _I)),
        (values.hash_text, (_I, _I, _I)),
        (values.hash_word, (_I, _I, _I)),
        (wheres.find_wheres, (_I, _W, _W, _B, _W, _I32, _W, _I, _W)),
        (wheres.enter_wheres, (_W, _B, _W, _I32, _I, _W)),
    ]
