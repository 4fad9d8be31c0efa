"""Compile every kernel Python calls, once and visibly.

Compiling takes the better part of a minute; the result is kept (kernels/__init__.py)
and found again by the next process. `ready` says whether it is there; `compile_all`
makes it so. The lists name the exact types Python passes: a kernel that is called with
others would compile in the middle of somebody's call (a test looks for that).

There is a list a group: a database without collections never compiles those of documents.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numba.core import types as t

from tideline.kernels import (
    answers,
    cache_folder,
    columns,
    encode,
    export,
    frames,
    geo,
    ghosts,
    heap,
    jsonpath,
    jsontext,
    judge,
    listing,
    rows,
    seen,
    tables,
)

__all__ = ["GROUPS", "compile_all", "ensure", "kernels", "ready"]

GROUPS = ("channels", "documents")

_I, _F, _Q = t.int64, t.float64, t.boolean
_W = t.Array(t.int64, 1, "C")
_W2 = t.Array(t.int64, 2, "C")
_B = t.Array(t.uint8, 1, "C")
_B2 = t.Array(t.uint8, 2, "C")
_F1 = t.Array(t.float64, 1, "C")
_F2 = t.Array(t.float64, 2, "C")
_Q1 = t.Array(t.boolean, 1, "C")
_I32 = t.Array(t.int32, 1, "C")
_I8 = t.Array(t.int8, 1, "C")


def kernels(group: str | None = None) -> list[tuple[Any, tuple[Any, ...]]]:
    """The kernels of a group that Python calls, with the types it calls them with."""
    if group is None:
        return [kernel for name in GROUPS for kernel in kernels(name)]
    if group == "documents":
        from tideline.kernels.documents.warm import kernels as of_documents

        return of_documents()
    return [
        (rows.run_rows, (_I, _I, _Q)),
        (rows.run_one, (_I, _I, _Q)),
        (rows.begin_part, (_I,)),
        (rows.lookup, (_I, _I)),
        (rows.replay_rows, (_I,)),
        (rows.take_back, (_I, _I, _I, _I)),
        (ghosts.collect_ghosts, (_I, _I, _I, _Q)),
        (ghosts.count_kept, (_I, _I, _I)),
        (heap.set_state, (_I, _I, _I)),
        (heap.drop_window, (_I, _I)),
        (heap.linger, (_I, _I, _I)),
        (heap.release, (_I,)),
        (tables.bury, (_I, _I, _I, _I)),
        (tables.sweep_dir, (_I,)),
        (tables.sweep_ids, (_I,)),
        (tables.rebuild_dir, (_I, _I, _I)),
        (tables.rebuild_ids, (_I, _I, _I)),
        (tables.rebuild_tombs, (_I, _I, _I, _I)),
        (export.pack_rows, (_I,) * 6),
        (export.pack_answers, (_I, _I)),
        (listing.list_subscribers, (_W, _W)),
        (listing.list_events, (_W, _W, _Q)),
        (export.list_records, (_I,) * 7),
        (export.count_live, (_I, _I)),
        (export.list_slots, (_I, _I, _W, _W)),
        (export.copy_keys, (_I, _W, _W, _B)),
        (export.measure, (_I, _W, _W, _W)),
        (export.fill_subs, (_I, _W, _W2, _F2, _B, _W, _B, _W, _B, _W)),
        (export.fill_events, (_I, _W, _W2, _F2, _B, _W, _B, _W)),
        (answers.fill_answers, (_I, _W, _I, _I, _I, _W, _I32, _I32, _I8, _Q1)),
        (answers.pack_subscriptions, (_I, _I, _W, _W, _W, _I32, _B, _I32, _I32, _B)),
        (answers.pack_events, (_I, _I, _W, _W, _I32, _B)),
        (answers.take_codes, (_I32, _I32, _I32)),
        (columns.measure, (_I, _I, _I, _W)),
        (columns.fill, (_I, _I, _I, _W2, _F2) + (_W, _B) * 4),
        (encode.kinds_of, (_B, _W, _W)),
        (encode.encode_rows, (_W,) * 5 + (_B, _W, _W, _F2) + (_B, _W) * 4 + (_W, _I, _W)),
        (frames.join_frames, (_I,) * 6),
        (jsontext.check_rows, (_B, _W, _Q1, _Q1)),
        (jsonpath.scan, (_I, _W, _I, _I, _W2, _B, _W, _W2, _W2, _B2)),
        (judge.judge_kinds, (_W, _B, _B)),
        (judge.judge_numbers, (_W, _W, _F1, _B, _I, _I, _F, _F, _B)),
        (judge.judge_texts, (_I, _I, _W, _W, _B, _B, _I, _B, _B)),
        (judge.copy_texts, (_I, _W, _W, _B)),
        (seen.judge_rows, (_W, _W, _W, _B, _I, _I, _W, _W, _W)),
        (seen.move_keys, (_W, _W, _W, _I, _W, _W, _W)),
        (geo.shapes_meet, (_I, _F, _F, _F, _F) * 2),
        (geo.circle_cover, (_F,) * 7 + (_I,) * 3),
        (geo.point_keys, (_F1, _F1, _F1, _W, _B, _W, _F2, _F, _F, _F, _F, _I, _I, _I,
                          _B, _W, _B, _F2, _Q1)),
    ]  # fmt: skip


def ready(group: str = "channels") -> bool:
    """Whether an earlier process has compiled a group for this version."""
    return _mark(group).exists()


def compile_all(say: Callable[[int, int, str], None], group: str = "channels") -> float:
    """Compile (or load) a group; `say(number, total, name)` before each. Returns seconds."""
    started = time.perf_counter()
    todo = kernels(group)
    for number, (kernel, signature) in enumerate(todo, start=1):
        say(number, len(todo), kernel.py_func.__name__)
        kernel.compile(signature)
    try:
        _mark(group).touch()
    except OSError:
        pass  # a cache that cannot be written is only slow
    return time.perf_counter() - started


def ensure(group: str = "channels") -> None:
    """On the first use of a group on this machine, compile with a line of progress."""
    if ready(group):
        return
    print(f"tideline: compiling kernels of {group}, once on this machine",
          file=sys.stderr, flush=True)  # fmt: skip
    live = sys.stderr.isatty()

    def say(number: int, total: int, name: str) -> None:
        if live:
            print(f"\r  [{number:2}/{total}] {name:20}", end="", file=sys.stderr, flush=True)

    seconds = compile_all(say, group)
    print(f"{chr(13) if live else ''}tideline: kernels ready in {seconds:.0f} s",
          file=sys.stderr, flush=True)  # fmt: skip


def _mark(group: str) -> Path:
    return cache_folder("" if group == "channels" else group) / "ready"
