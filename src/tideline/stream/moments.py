"""What a window had at a moment, kept while somebody reads it in parts.

    moment   "SEQ:PANE": all rows before a seq, while a sub-window was open -> a state
    cuts     keys that cut the rows that are asked for into parts of about one size

A state never changes, so holding one costs what the window has let go of or replaced since. It is
held until nobody has read of it for `_HELD_S`, and at most `_MOST` are. A moment that is not held
is still there when nothing was appended since and the window has let go of nothing of it, as after
a restart; else asking for it is a `Conflict`: a part of another moment is no part of the whole.

Safe from any thread.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tideline.clock import SECOND, Clock
from tideline.errors import Conflict, InvalidRequest
from tideline.index.keyruns import Run
from tideline.stream.memory import State, Sub
from tideline.stream.reading import Where, key_columns, scanned
from tideline.stream.settings import Settings

__all__ = ["Moments", "cuts", "moment_of"]

_MOST = 8
_HELD_S = 600
_PART_ROWS = 1 << 20  # of a part, when nobody says how many parts
_MOST_PARTS = 1 << 10
_SAMPLES = 1 << 14


class Moments:
    """The moments of one window that are held."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._held: OrderedDict[tuple[int, int], tuple[State, int]] = OrderedDict()
        self._lock = threading.Lock()

    def hold(self, state: State, pane: int) -> str:
        """Keep what there is while this sub-window is open; the moment."""
        self._keep((state.next_seq, pane), state)
        return moment_of(state, pane)

    def state(self, moment: Any, now: State, back: int, panes: int) -> tuple[State, int]:
        """What there was at a moment, and the sub-window that was open; `now` is the newest state.

        It is read so many sub-windows `back`, of a window of `panes`.
        """
        name = _read(moment)
        with self._lock:
            found = self._held.get(name)
        seq, pane = name
        if found is not None:
            state = found[0]
        elif now.next_seq == seq and now.pane - panes <= pane - back:
            state = now
        else:
            raise Conflict(
                "the rows of this moment are not kept any more: read the window again",
                moment=moment,
            )
        self._keep(name, state)
        return state, pane

    def _keep(self, name: tuple[int, int], state: State) -> None:
        now = self._clock.now()
        with self._lock:
            self._held[name] = state, now
            self._held.move_to_end(name)
            for each, (_, used) in list(self._held.items()):
                if len(self._held) > _MOST or now - used > _HELD_S * SECOND:
                    del self._held[each]

    def clear(self) -> None:
        """Hold none any more."""
        with self._lock:
            self._held.clear()


def moment_of(state: State, pane: int) -> str:
    """What names a moment."""
    return f"{state.next_seq}:{pane}"


def _read(moment: Any) -> tuple[int, int]:
    if isinstance(moment, str):
        seq, colon, pane = moment.partition(":")
        try:
            if colon and len(moment) < 64:
                return int(seq), int(pane)
        except ValueError:
            pass
    raise InvalidRequest("a moment is what `moment` of the window gave", moment=moment)


def cuts(
    subs: Sequence[Sub], where: Where, settings: Settings, parts: Any
) -> list[tuple[Any, ...]]:  # fmt: skip
    """Keys that cut the rows that are meant into about so many parts; 0: as their number says."""
    if isinstance(parts, bool) or not isinstance(parts, int) or not 0 <= parts <= _MOST_PARTS:
        raise InvalidRequest(f"parts must be a whole number, 0 to {_MOST_PARTS}", parts=parts)
    total = sum(rows.rows for rows in _meant(subs, where))
    parts = parts or min(_MOST_PARTS, total // _PART_ROWS)
    if parts < 2 or not total:
        return []
    step = max(1, total // _SAMPLES)
    keys: list[tuple[Any, ...]] = []
    seen = 0
    for rows in _meant(subs, where):
        places = np.arange(-seen % step, rows.rows, step)
        seen += rows.rows
        columns = key_columns(Run(rows.codec, rows.keys[places], ()), settings).values()
        lists = [c if isinstance(c, list) else c.tolist() for c in columns]
        keys += zip(*lists, strict=True)
    keys.sort()
    return sorted({keys[n * len(keys) // parts] for n in range(1, parts)} - {keys[0]})


def _meant(subs: Sequence[Sub], where: Where) -> Iterator[Run]:
    """The rows that are meant, run by run; of tails in no order, and none joined with another."""
    for sub in subs:
        for run in sub.runs:
            start, limit = run.span(where.bounds(run.codec))
            if start < limit:
                yield run.part(start, limit)
        if sub.tail is not None and sub.tail_rows:
            rows = sub.tail.rows(sub.tail_rows)
            yield rows.take(scanned(rows, where.bounds(rows.codec)))
