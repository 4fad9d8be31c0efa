"""The kernels that Python calls, in groups, and compiling them ahead of a call.

    publish    what opening a database, publishing and subscribing need
    channels   everything else of channels: batches, recovery, sealing, conditions on batches
    put        what putting and finding the first documents needs
    documents  everything else of collections
    standing   what standing conditions need besides those of channels
    stream     what stream windows need
    inverted   what indexes on text need
    spatial    what indexes of places need
    matching   what Spark's workers need besides those of channels

The lists name the exact types Python passes: a kernel that is called with others would compile in
the middle of somebody's call (a test looks for that). A new kernel is one more line in a list.

`ensure` is called before locks are taken. It compiles the first group of a kind at once, on all
cores and visibly, and has the rest compiled by a process beside this one, which ends with it. A
call that needs a kernel of the rest before it is there waits for that process instead of
compiling it again. Safe from any thread.
"""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
import threading
import time
from functools import partial
from importlib import import_module
from typing import Any

from numba.core import types as t

from tideline.kernels import (
    again,
    answers,
    cache,
    columns,
    encode,
    export,
    frames,
    geo,
    heap,
    jsonpath,
    jsontext,
    judge,
    listing,
    marks,
    polygon,
    routing,
    rows,
    sealing,
    tables,
    told,
)
from tideline.kernels.compiler import run_with
from tideline.shelter import run_apart

__all__ = ["FOLDERS", "GROUPS", "begin", "compile_groups", "ensure", "kernels", "ready"]

OWN = ("standing", "stream", "inverted", "spatial")
"""The groups that are a folder each, with a list of their kernels in its `warm.py`."""
FOLDERS = ("", "documents", *OWN)
"""Where kernels are, below this folder: what is kept and shipped is by these."""
GROUPS = ("publish", "channels", "put", "documents", *OWN, "matching")
_FIRST = {"channels": "publish", "documents": "put"}
_POLL_S = 0.005
_PATIENCE_S = 5.0

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
    if group in ("put", "documents"):
        from tideline.kernels.documents import warm as of_documents

        return of_documents.first() if group == "put" else of_documents.rest()
    if group in OWN:
        listed: list[tuple[Any, tuple[Any, ...]]] = import_module(
            f"tideline.kernels.{group}.warm"
        ).kernels()
        return listed
    if group == "matching":
        return [
            (routing.route, (_W, _B, _W, _B, _F2, _B, _W, _I, _F, _F, _F, _F,
                             _I, _I, _I, _I, _I, _Q, _W, _W, _W)),
            (routing.gather, (_W, _W, _W, _W)),
            (routing.walk, (_W, _W)),
            (routing.settle, (_W, _B, _W, _W, _W)),
        ]  # fmt: skip
    if group == "publish":
        return [
            (rows.run_one, (_I, _I, _Q)),
            (listing.list_subscribers, (_W, _W)),
            (listing.list_events, (_W, _W, _Q)),
            (frames.join_frames, (_I,) * 6),
        ]
    return [
        (rows.run_rows, (_I, _I, _Q)),
        (rows.begin_part, (_I, _Q)),
        (rows.lookup, (_I, _I)),
        (again.replay_rows, (_I,)),
        (again.take_back, (_I, _I, _I, _I)),
        (told.settle, (_I, _W, _I, _I, _I)),
        (told.told_row, (_I, _I)),
        (marks.enter_marks, (_I, _W, _I)),
        (marks.list_marks, (_I, _I, _W)),
        (heap.set_state, (_I, _I, _I)),
        (heap.drop_window, (_I, _I)),
        (heap.release, (_I,)),
        (tables.bury, (_I, _I, _I, _I)),
        (tables.sweep_dir, (_I,)),
        (tables.sweep_ids, (_I,)),
        (tables.rebuild_dir, (_I, _I, _I)),
        (tables.rebuild_ids, (_I, _I, _I)),
        (tables.rebuild_tombs, (_I, _I, _I, _I)),
        (export.pack_rows, (_I,) * 6),
        (export.pack_answers, (_I, _I)),
        (export.list_records, (_I,) * 7),
        (export.count_live, (_I, _I)),
        (sealing.list_slots, (_I, _I, _W, _W)),
        (sealing.copy_keys, (_I, _W, _W, _B)),
        (sealing.measure, (_I, _W, _W, _W)),
        (sealing.fill_subs, (_I, _W, _W2, _F2, _B, _W, _B, _W, _B, _W, _F1, _W)),
        (sealing.fill_events, (_I, _W, _W2, _F2, _B, _W, _B, _W, _F1, _W)),
        (answers.fill_answers, (_I, _W, _I, _I, _I, _W, _I32, _I32, _I8, _Q1)),
        (answers.pack_subscriptions, (_I, _I, _W, _W, _W, _I32, _B, _I32, _I32, _B)),
        (answers.pack_events, (_I, _I, _W, _W, _I32, _B)),
        (answers.take_codes, (_I32, _I32, _I32)),
        (columns.measure, (_I, _I, _I, _W)),
        (columns.fill, (_I, _I, _I, _W2, _F2) + (_W, _B) * 4),
        (encode.kinds_of, (_B, _W, _W)),
        (encode.encode_rows, (_W,) * 5 + (_B, _W, _W, _F2) + (_B, _W) * 4 + (_W,) * 3 + (_I, _W)),
        (jsontext.check_rows, (_B, _W, _Q1, _Q1)),
        (jsonpath.scan, (_I, _W, _I, _I, _W2, _B, _W, _W2, _W2, _B2)),
        (judge.judge_kinds, (_W, _B, _B)),
        (judge.judge_numbers, (_W, _W, _F1, _B, _I, _I, _F, _F, _B)),
        (judge.judge_texts, (_I, _I, _W, _W, _B, _B, _I, _B, _B)),
        (judge.copy_texts, (_I, _W, _W, _B)),
        (geo.shapes_meet, (_I, _F, _F, _F, _F) * 2),
        (polygon.polygon_meets, (_I, _F, _F, _F, _F, _I) * 2),
        (geo.circle_cover, (_F,) * 7 + (_I,) * 3),
        (geo.point_keys, (_F1, _F1, _F1, _W, _B, _W, _F2, _F, _F, _F, _F, _I, _I, _I,
                          _B, _W, _B, _F2, _Q1)),
    ]  # fmt: skip


_lock = threading.Lock()
_seen_ready: set[str] = set()
# By group, the process that compiles its rest, and the entries that it will make.
_beside: dict[str, tuple[subprocess.Popen[bytes], set[str]]] = {}


def ready(group: str = "channels") -> bool:
    """Whether a group is compiled for this version, by an earlier process or by who built it."""
    if group not in _seen_ready:
        if not all(cache.has(kernel.entry_name(types)) for kernel, types in kernels(group)):
            return False
        _seen_ready.add(group)
    return True


def ensure(group: str = "channels") -> None:
    """See to the kernels of "channels", "documents" or another group before they are needed."""
    with _lock:
        first = _FIRST.get(group, group)
        if not ready(first):
            print("tideline: compiling kernels, once on this machine", file=sys.stderr, flush=True)
            started = time.perf_counter()
            compile_groups(first)
            seconds = time.perf_counter() - started
            print(f"tideline: kernels ready in {seconds:.0f} s", file=sys.stderr, flush=True)
        if group not in _beside and not ready(group):
            _compile_beside(group)


def begin(group: str) -> bool:
    """Whether a group is compiled; if not, another process compiles it from now on."""
    with _lock:
        if ready(group):
            return True
        if group not in _beside:
            _compile_beside(group)
        return False


def compile_groups(*groups: str, lines: bool = False) -> None:
    """Compile groups on all cores and wait for it. `lines`: print a line for each kernel."""
    if sys.executable:
        flags = ["--lines"] if lines else []
        subprocess.run([*_command(), *flags, *groups], env=_environment(), check=False)
    for group in groups:  # what no other process could do is done here
        for kernel, types in kernels(group):
            run_apart(partial(kernel.prepare, types))


def _compile_beside(group: str) -> None:
    if not sys.executable:
        return
    names = {kernel.entry_name(types) for kernel, types in kernels(group)}
    try:
        process = subprocess.Popen(
            [*_command(), "--beside", group], env=_environment(),
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
    except OSError:
        return  # then a kernel is compiled by the first call that needs it
    _beside[group] = process, names
    run_with(wait=_wait)
    atexit.register(_stop, process)


def _wait(name: str) -> None:
    """Wait for an entry that a process beside this one is about to make."""
    for process, names in list(_beside.values()):
        while name in names and process.poll() is None and not cache.has(name):
            time.sleep(_POLL_S)


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(timeout=_PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _command() -> list[str]:
    return [sys.executable, "-m", "tideline.kernels.workers"]


def _environment() -> dict[str, str]:
    """For a process that finds the same sources and the same cache as this one."""
    path = os.pathsep.join(os.path.abspath(each) for each in sys.path)
    return {**os.environ, "PYTHONPATH": path, "NUMBA_CACHE_DIR": str(cache.cache_base())}
