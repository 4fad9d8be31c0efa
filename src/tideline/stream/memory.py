"""Sub-windows in memory: what was appended lately, and what there is at one moment.

    State   sub-windows by number, the number of the open one, counters
    Sub     one sub-window:  runs (oldest first) | tail
    Tail    the newest rows, in the order they came; searched by looking at each

A sub-window is a generation. Rows go to its tail; a full tail is sorted into a run, and many runs
that weigh about the same become one. What is sealed, in memory or as a component, is one run again.

Invariants:
1. `State` and `Sub` never change: a write makes new ones and publishes them in one step. A tail
   grows, but only behind the `tail_rows` of every `Sub` that has it. So readers need no lock, and a
   write that is done again after an interrupt does no harm.
2. Runs [0, frozen) of a sub-window stay as they are until the seal of them is installed.
3. `version` rises with every row of a sub-window; what was computed of it holds while it is the
   same, whatever is sealed or merged meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tideline.clock import FOREVER
from tideline.index.keyruns import Run, as_codec, join_runs, sorted_run
from tideline.index.packed import Codec
from tideline.index.values import TextTail, joined, room_for

__all__ = ["NOTHING", "TAIL_ROWS", "State", "Sub", "Tail", "grown", "is_mapped"]

Array = NDArray[Any]
TAIL_ROWS = 8192
_MANY = 8  # runs of about one weight that become one
_LARGE = 1 << 21  # runs of so many rows wait for the seal


class Tail:
    """The newest rows of a sub-window, unsorted."""

    __slots__ = ("codec", "indexes", "keys", "values")

    def __init__(self, codec: Codec, keys: Array, values: Sequence[Array], room: int) -> None:
        self.codec = codec
        self.keys: Array = np.empty(room, keys.dtype)
        self.indexes: dict[str, Any] = {}  # of its rows, of those that were asked for
        self.values = tuple(room_for(value.dtype, room) for value in values)

    def takes(self, codec: Codec, keys: Array, count: int) -> bool:
        """Whether keys can follow `count` that are there."""
        return (
            self.codec is codec
            and count + len(keys) <= len(self.keys)
            and keys.dtype.itemsize <= self.keys.dtype.itemsize
        )

    def put(self, count: int, keys: Array, values: Sequence[Any]) -> None:
        """Write rows behind the first `count`."""
        limit = count + len(keys)
        self.keys[count:limit] = keys
        for own, value in zip(self.values, values, strict=True):
            if isinstance(own, TextTail):
                own.put(count, value)
            else:
                own[count:limit] = value

    def rows(self, count: int) -> Run:
        """The first rows, as they came: not in order."""
        return Run(self.codec, self.keys[:count], [value[:count] for value in self.values])

    @property
    def size_bytes(self) -> int:
        """Bytes of its buffers."""
        return int(self.keys.nbytes + sum(value.nbytes for value in self.values))


class Sub(NamedTuple):
    """One sub-window."""

    pane: int
    """Its number: its rows have times in [pane * slide, (pane + 1) * slide)."""
    runs: tuple[Run, ...] = ()
    frozen: int = 0
    """How many of the runs are being sealed, or were."""
    tail: Tail | None = None
    tail_rows: int = 0
    """Rows of the tail that are there."""
    version: int = 0
    """Seq behind the last row that was appended."""
    sealed: int = 0
    """Seq behind the last row that is in a component."""
    low: int = 0
    """Seq of the first row that is in no component."""
    first_log: int = FOREVER
    """The first log segment with a row that is in no component."""

    @property
    def rows(self) -> int:
        """How many rows, counting keys again that were appended again since they were sorted."""
        return sum(run.rows for run in self.runs) + self.tail_rows

    @property
    def memory_bytes(self) -> int:
        """Bytes that are not in components."""
        own = sum(run.size_bytes for run in self.runs if not is_mapped(run))
        return own if self.tail is None else own + self.tail.size_bytes

    @property
    def loose(self) -> tuple[Run, ...]:
        """The runs that nobody seals yet."""
        return self.runs[self.frozen :]

    def flushed(self, codec: Codec, *, last: bool) -> Sub:
        """Without a tail: its rows are a run."""
        if self.tail is None:
            return self
        rows = as_codec(self.tail.rows(self.tail_rows), codec)
        run = sorted_run(codec, rows.keys.copy(), [v.copy() for v in rows.values], last=last)
        return self._replace(runs=(*self.runs, run), tail=None, tail_rows=0)


def is_mapped(run: Run) -> bool:
    """Whether a run is a component."""
    return run.owner is not None and hasattr(run.owner, "info")


class State(NamedTuple):
    """What a window has at one moment."""

    subs: dict[int, Sub]
    """By number; replaced, never changed."""
    pane: int
    """The number of the open sub-window."""
    time: int
    """The window's time, in microseconds."""
    next_seq: int
    late: int
    """Rows that came after their sub-window had gone."""
    codec: Codec | None
    """That of the rows that were appended last."""

    def live(self, pane: int, panes: int) -> list[Sub]:
        """The sub-windows there are while `pane` is open, oldest first."""
        return [self.subs[n] for n in sorted(self.subs) if pane - panes < n <= pane]


NOTHING = -(1 << 62)
"""The number of the open sub-window before there was a row."""


def grown(
    sub: Sub, codec: Codec, keys: Array, values: Sequence[Array], seq: int, log: int, *, last: bool
) -> Sub:
    """A sub-window with more rows, the first of which has a seq and is in a log segment."""
    version, rows = seq + len(keys), len(keys)
    if sub.first_log == FOREVER:
        sub = sub._replace(first_log=log, low=seq)
    large = rows >= TAIL_ROWS // 2  # a run of its own, behind what the tail has
    if sub.tail is not None and (large or not sub.tail.takes(codec, keys, sub.tail_rows)):
        if sub.tail.codec is codec and large:  # both become one run
            old = sub.tail.rows(sub.tail_rows)
            keys = np.concatenate([old.keys, keys])
            pairs = zip(old.values, values, strict=True)
            values = [joined(pair) for pair in pairs]
            sub = sub._replace(tail=None, tail_rows=0)
        else:
            sub = _compact(sub.flushed(codec, last=last), codec, last=last)
    if large:
        # Copied: what the caller gave may be changed, and a part keeps all of it.
        run = sorted_run(codec, keys.copy(), [value.copy() for value in values], last=last)
        sub = _compact(sub._replace(runs=(*sub.runs, run)), codec, last=last)
        return sub._replace(version=version)
    tail, count = sub.tail, sub.tail_rows
    if tail is None:
        room = TAIL_ROWS if sub.runs else _first_room(rows)
        tail, count = Tail(codec, keys, values, room), 0
    tail.put(count, keys, values)
    return sub._replace(tail=tail, tail_rows=count + rows, version=version)


def _first_room(rows: int) -> int:
    """A small sub-window stays small."""
    return min(TAIL_ROWS, max(256, 4 * rows))


def _compact(sub: Sub, codec: Codec, *, last: bool) -> Sub:
    """Make one of runs that weigh about the same, newest first."""
    while True:
        runs = sub.runs
        if len(runs) - sub.frozen < _MANY:
            return sub
        level = _level(runs[-1])
        start = len(runs)
        while start > sub.frozen and _level(runs[start - 1]) <= level < _level_of(_LARGE):
            start -= 1
        if len(runs) - start < _MANY:
            return sub
        joined = join_runs(runs[start:], codec, last=last)
        sub = sub._replace(runs=(*runs[:start], joined))


def _level(run: Run) -> int:
    return _level_of(run.rows)


def _level_of(rows: int) -> int:
    """Powers of `_MANY` over the size of a tail."""
    return max(0, (rows // (TAIL_ROWS // 2)).bit_length() - 1) // 3
