"""The kernels of indexes on text that Python calls, with the types it calls them with."""

from __future__ import annotations

from typing import Any

from numba.core import types as t

from tideline.kernels.inverted import dictionary, folding, lists, runs, tokens, window

__all__ = ["kernels"]

_I = t.int64


def kernels() -> list[tuple[Any, tuple[Any, ...]]]:
    """All of them."""
    return [
        (folding.fold_rows, (_I,) * 9),
        (tokens.tokenise, (_I,) * 13),
        (tokens.hash_tokens, (_I,) * 5),
        (runs.make_run, (_I,) * 11),
        (runs.count_tokens, (_I,) * 3),
        (runs.merge_runs, (_I,) * 4),
        (runs.remap_run, (_I,) * 3),
        (runs.check_run, (_I,) * 3),
        (lists.hash_items, (_I,) * 3),
        (lists.find_lists, (_I,) * 5),
        (lists.search_places, (_I,) * 9),
        (lists.collect, (_I,) * 5),
        (lists.hold, (_I,) * 9),
        (lists.gather, (_I,) * 5),
        (dictionary.measure_words, (_I,) * 7),
        (dictionary.count_pieces, (_I,) * 7),
        (dictionary.fill_pieces, (_I,) * 8),
        (window.hilbert_keys, (_I,) * 3),
        (window.search_fuzzy, (_I,) * 9),
        (window.turn_lists, (_I,) * 4),
        (window.emit, (_I,) * 7),
    ]
