"""A stream window: the rows of the last so many seconds, found by key.

    append    rows -> rows.py -> engine.append: one frame of the log, then memory
    get       the newest row of a key, or all of them
    range     rows whose keys begin alike, or lie in [low, high); or what a mapper makes of them
    find      rows that meet a condition, by indexes of places and words: finding.py
    watch     what a mapper makes of either, told at each slide: watching.py
    moment    a range in parts, all of one moment: moments.py
    stats, seal, maintain

A window of `span_s` is the open sub-window and those before it: what is asked for, whole
sub-windows. Safe from any thread.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from tideline.clock import FOREVER, SECOND, Seconds, from_us
from tideline.errors import InvalidRequest
from tideline.index.keyruns import Run
from tideline.index.packed import Spelled
from tideline.index.values import TEXT, as_arrow
from tideline.lsm.writers import check_once
from tideline.model import Appended, WindowStats
from tideline.stream.engine import Engine
from tideline.stream.finding import ByCondition, Finder
from tideline.stream.incoming import Incoming
from tideline.stream.mappers import mapper_of
from tideline.stream.memory import NOTHING, Sub
from tideline.stream.moments import cuts, moment_of
from tideline.stream.reading import (
    Asked,
    Between,
    ByKey,
    Where,
    check_prefix,
    newest,
    rows_in,
    where_of,
)
from tideline.stream.rows import read
from tideline.stream.sliding import folded
from tideline.stream.tables import dicts, fits, in_order, keys_of
from tideline.stream.watching import Watch

__all__ = ["StreamWindow"]


class StreamWindow:
    """An open stream window; `Database.window` makes one."""

    def __init__(self, name: str, engine: Engine) -> None:
        self.name = name
        self._engine = engine

    # ---- what it is --------------------------------------------------------------------------

    @property
    def settings(self) -> dict[str, Any]:
        """The settings, as `Database.window` takes them."""
        own = self._engine.settings
        ahead = own.max_ahead_us
        key: Any = {
            name: list(declared) if declared else kind or None
            for name, kind, declared in zip(own.key, own.types, own.ranges, strict=True)
        }
        return {
            "span_s": own.span_us / SECOND, "slide_s": own.slide_us / SECOND, "key": key,
            "values": dict(own.values), "keep": own.keep, "time": own.time,
            "durable": own.durable, "max_ahead_s": None if ahead >= FOREVER else ahead / SECOND,
            "indexes": dict(own.indexes),
        }  # fmt: skip

    @property
    def key(self) -> tuple[str, ...]:
        """The names of the key's fields."""
        return self._engine.settings.key

    @property
    def values(self) -> dict[str, str]:
        """The names and types of the values."""
        return dict(self._engine.settings.values)

    # ---- writing -----------------------------------------------------------------------------

    def append(self, rows: Any, *, once: tuple[str, int] | None = None) -> Appended:
        """Store rows: an Arrow table or batch, columns by name, dicts, or one dict.

        A row goes to the sub-window of its time. One that is older than the window is counted in
        `late` and not stored; one that is further ahead of the clock than `max_ahead_s`, or not as
        declared, is in `rejected` with the reason. With `once`, a writer and a number that rises,
        a batch that has landed before changes nothing.

        >>> import tideline
        >>> db = tideline.open(":memory:")
        >>> cars = db.window("cars", span_s=300, slide_s=60, key=("seg", "vid"),
        ...                  values={"vel": "int32"})
        >>> done = cars.append([{"seg": 4, "vid": 7, "vel": 50}, {"seg": 4, "vid": 9, "vel": 60}])
        >>> done.stored, cars.range((4,), map="mean(vel)")
        (2, 55.0)
        >>> db.close()
        """
        engine = self._engine
        engine.require_open()
        writer = None if once is None else check_once(once)
        found = self._incoming(rows)
        stored = late = known = 0
        if found.total:
            stored, late, known = engine.append(found, writer)
        rejected = pa.table({
            "row": pa.array(sorted(found.rejected), pa.int64()),
            "reason": pa.array([found.rejected[n] for n in sorted(found.rejected)], pa.string()),
        })  # fmt: skip
        return Appended(stored, late, rejected, bool(found.total) and known == found.total)

    def _incoming(self, rows: Any) -> Incoming:
        """What `append` would make of rows, and which it would reject; nothing is stored."""
        settings, latest = self._engine.settings, self._engine.latest()
        found = read(rows, settings)
        if found.times is None or latest >= FOREVER or not found.total:
            return found
        why = (
            f"{settings.time} is more than {settings.max_ahead_us / SECOND:.12g} s ahead of the "
            "clock (max_ahead_s of the window)"
        )
        return found.kept(found.times <= latest, why)

    # ---- reading -----------------------------------------------------------------------------

    def get(self, key: Any, *, last_s: Seconds | None = None) -> Any:
        """The newest row of a key, as a dict of its values, or None.

        With `keep="all"`: a list of all of them, oldest sub-window first, in the order in which
        they were appended. `last_s` as in `range`: without it, the whole window.
        """
        settings = self._engine.settings
        where = Where(check_prefix(key, settings, whole=True))
        subs = self._subs(last_s, closed=False)
        if settings.last:
            for sub in reversed(subs):
                parts = rows_in(sub, where, last=True)
                if parts:
                    return dicts(parts[-1], settings)[-1]
            return None
        return [
            row
            for sub in subs
            for run in rows_in(sub, where, last=False)
            for row in dicts(run, settings)
        ]

    def get_many(self, keys: Any, *, last_s: Seconds | None = None) -> pa.Table:
        """The newest row of each key: a table with a row for each, in the order of the keys.

        `keys` are tuples, or columns by name (arrays). Values of keys that are not there are null.
        """
        settings = self._engine.settings
        columns = keys_of(keys, settings)
        subs = self._subs(last_s, closed=False)
        names = {name: columns[place] for place, name in enumerate(settings.key)}
        count = len(columns[0])
        types = settings.types
        found: list[Any] = [np.zeros(count, bool)]
        if count and subs and "" not in types:
            codec = self._engine.state.codec
            if codec is None or not all(fits(c, codec, n) for n, c in enumerate(columns)):
                codec = Spelled(types)
            found = newest(subs, Run(codec, codec.pack(columns), ()))
        there = found[0]
        values = found[1:] or [np.full(count, "", d) if d == TEXT else np.zeros(count, d)
                               for d in settings.dtypes]  # fmt: skip
        made = {
            name: as_arrow(value, ~there)
            for name, value in zip(settings.names, values, strict=True)
        }
        return pa.table({**names, **made, "found": pa.array(there)})

    def range(
        self, keys: Any = None, *, map: Any = None, initial: Any = None, combine: Any = None,
        last_s: Seconds | None = None, closed: bool = False,
    ) -> Any:  # fmt: skip
        """The rows whose keys begin with `keys`, or lie in [low, high) when it is (low, high).

        Without `map` an Arrow table: the fields of the key, the values and `since`, when the
        sub-window of the row began; in the order of keys, equal ones oldest first. With `map` what
        that makes of them: "mean(vel)", several of these as a list or by name, or a function with
        its `initial` state (stream/mappers.py, stream/functions.py).

        `last_s`, a multiple of the slide, takes the open sub-window and those before it, so many;
        `closed` leaves the open one out: of a window of n, up to n - 1 are closed.
        """
        settings = self._engine.settings
        where = where_of(keys, settings)
        if map is None:
            if initial is not None or combine is not None:
                raise InvalidRequest("initial and combine go with a map", initial=initial)
            return self._table(where, self._subs(last_s, closed=closed))
        mapper = mapper_of(map, settings, initial, combine)
        subs = self._subs(last_s, closed=closed)
        return mapper.result(folded(mapper, subs, ByKey(where, last=settings.last)))

    def find(
        self, where: Any = None, *, keys: Any = None, newest: bool = False,
        limit: int | None = None, map: Any = None, initial: Any = None, combine: Any = None,
        last_s: Seconds | None = None, closed: bool = False,
    ) -> Any:  # fmt: skip
        """The rows that meet a condition, as `range` gives them: a table, or what `map` makes.

        The condition is about the fields of the key and the values, as documents have them:
        {"at": {"$geoWithin": ...}}, {"text": {"$words": "jam"}}, {"vel": {"$lt": 20}}. Places and
        words are found by `indexes` of the window; without, rows are looked at one by one.
        `keys`, `last_s` and `closed` are those of `range`, and so is the order of rows. With a
        `$near` the nearest come first, with how far they are in the column `metres`; `limit` is
        how many come.

        With keep="last" each sub-window has one row of a key. `newest=True` counts only the
        newest row of each key of all that is asked: who *is* here, and not who was.

        >>> import tideline
        >>> db = tideline.open(":memory:")
        >>> cars = db.window("cars", span_s=300, slide_s=60, key="vid", values={"at": "point"},
        ...                  indexes={"at": "spatial"})
        >>> done = cars.append([{"vid": 7, "at": [2.0, 48.5]}, {"vid": 9, "at": [2.1, 48.5]}])
        >>> cars.find({"at": {"$near": [2.0, 48.501]}}, limit=1)["vid"].to_pylist()
        [7]
        >>> db.close()
        """
        settings = self._engine.settings
        if limit is not None and (type(limit) is not int or limit < 1):
            raise InvalidRequest("limit must be a whole number from 1 on", limit=limit)
        if map is None and (initial is not None or combine is not None):
            raise InvalidRequest("initial and combine go with a map", initial=initial)
        if map is not None and limit is not None:
            raise InvalidRequest(
                "a map is of all rows that are found: it has no limit", limit=limit
            )
        asked = self._condition(where, keys, newest)
        finder = asked.finder
        if map is not None:
            mapper = mapper_of(map, settings, initial, combine)
            return mapper.result(folded(mapper, self._subs(last_s, closed=closed), asked))
        subs = self._subs(last_s, closed=closed)
        first = limit if finder.near is not None else None
        parts = [
            (found, sub.pane * settings.slide_us)
            for place, sub in enumerate(subs)
            for found in asked.rows(sub, subs[place + 1 :], first=first)
            if found.rows
        ]
        table = in_order(parts, settings, self._engine.state.codec)
        if finder.near is not None:
            metres = finder.metres(table)
            table = table.append_column("metres", pa.array(metres))
            table = table.take(np.argsort(metres, kind="stable"))
        return table if limit is None else table.slice(0, min(limit, table.num_rows))

    def _condition(self, where: Any, keys: Any, newest: Any) -> ByCondition:
        if not isinstance(newest, bool):
            raise InvalidRequest("newest must be True or False", newest=newest)
        settings = self._engine.settings
        finder = Finder(where, settings, self._engine.indexes)
        return ByCondition(finder, keys, settings, is_newest=newest)

    def _table(self, where: Where, subs: list[Sub]) -> pa.Table:
        settings = self._engine.settings
        parts = []
        for sub in subs:
            for run in rows_in(sub, where, last=settings.last, ordered=True):
                parts.append((run, sub.pane * settings.slide_us))  # noqa: PERF401
        return in_order(parts, settings, self._engine.state.codec)

    def watch(
        self, keys: Any = None, *, map: Any, where: Any = None, newest: bool = False,
        initial: Any = None, combine: Any = None, last_s: Seconds | None = None,
    ) -> Watch:  # fmt: skip
        """What `range` gives with this map, told at each slide: `for pane in window.watch(...)`.

        With a condition, `where`, or `newest=True`, what `find` gives with this map. A `$near`
        counts what is within its `$maxDistance`.

        A pane has `since`, `until`, `value` and `missed`; it is about the whole sub-windows that
        end with the slide. A window that goes by the clock slides whether rows come or not; one
        that goes by a field slides with its rows.
        """
        settings = self._engine.settings
        mapper = mapper_of(map, settings, initial, combine)
        self._engine.require_open()
        panes = settings.panes_of(last_s)
        asked: Asked
        if where is None and newest is False:
            asked = ByKey(where_of(keys, settings), last=settings.last)
        else:
            asked = self._condition(where, keys, newest)
        return Watch(self._engine, asked, mapper, panes)

    def _subs(self, last_s: Any, *, closed: bool) -> list[Sub]:
        panes, skipped = self._panes(last_s, closed)
        state, pane = self._engine.view()
        return state.live(pane - skipped, panes)

    def _panes(self, last_s: Any, closed: Any) -> tuple[int, int]:
        """How many sub-windows are asked for, and how many newer ones are left out."""
        settings = self._engine.settings
        if not isinstance(closed, bool):
            raise InvalidRequest("closed must be True or False", closed=closed)
        panes = settings.panes_of(last_s)
        if closed:
            panes = min(panes, settings.panes - 1) if last_s is None else panes
            if panes > settings.panes - 1 or not panes:
                raise InvalidRequest(
                    "a window has one closed sub-window less than its span has slides",
                    last_s=last_s, span_s=settings.span_us / SECOND,
                )  # fmt: skip
        return panes, int(closed)

    # ---- in parts ----------------------------------------------------------------------------

    def moment(
        self, keys: Any = None, *, last_s: Seconds | None = None, closed: bool = False,
        parts: int = 0,
    ) -> tuple[str, list[list[Any]]]:  # fmt: skip
        """For who reads a range in parts that are of one moment: the moment, and where to cut.

        The cuts are keys, ascending; 0 parts are one for every million rows. `part` reads what
        lies between two cuts, from any thread and in any order. A moment that is cut is held for
        ten minutes after it was read of last, and eight at most are.
        """
        settings = self._engine.settings
        where = where_of(keys, settings)
        panes, skipped = self._panes(last_s, closed)
        state, pane = self._engine.view()
        found = cuts(state.live(pane - skipped, panes), where, settings, parts)
        if found:
            return self._engine.moments.hold(state, pane), [list(cut) for cut in found]
        return moment_of(state, pane), []

    def part(
        self, moment: str, keys: Any = None, *, low: Any = None, high: Any = None,
        last_s: Seconds | None = None, closed: bool = False,
    ) -> pa.Table:  # fmt: skip
        """What `range` gave at a moment, of keys in [low, high): `Conflict` when it is not held.

        The others are what `moment` was asked.
        """
        settings = self._engine.settings
        ends = [None if end is None else check_prefix(end, settings) for end in (low, high)]
        where = Between(where_of(keys, settings), *ends)
        panes, skipped = self._panes(last_s, closed)
        state, pane = self._engine.moments.state(
            moment, self._engine.view()[0], panes + skipped, settings.panes
        )
        return self._table(where, state.live(pane - skipped, panes))

    # ---- looking in, looking after -----------------------------------------------------------

    def stats(self) -> WindowStats:
        """What it holds and has done since it was opened."""
        engine = self._engine
        state, pane = engine.view()
        subs = state.live(pane, engine.settings.panes)
        until = None if pane == NOTHING else from_us((pane + 1) * engine.settings.slide_us)
        return WindowStats(
            rows=sum(sub.rows for sub in subs),
            sub_windows=len(subs),
            components=len(engine.tree.readers),
            bytes_memory=engine.memory_bytes,
            bytes_disk=engine.store.size_bytes,
            bytes_log=engine.store.log.size_bytes,
            appended=engine.rows,
            late=state.late,
            dropped=engine.dropped,
            watches=len(engine.watchers),
            until=until,
        )

    def seal(self) -> None:
        """Write everything that is in memory as components now."""
        self._engine.seal()

    def maintain(self) -> None:
        """Slide by the clock, drop what has expired, and finish the work in the background."""
        self._engine.maintain()

    def __repr__(self) -> str:
        return f"StreamWindow({self.name!r})"

    # ---- for the database --------------------------------------------------------------------

    def _shut(self, *, dropped: bool = False) -> None:
        self._engine.close("the window was dropped" if dropped else "the database was closed")

    def _leave_to_parent(self, why: str) -> None:
        self._engine.leave_to_parent(why)
