"""The application: position reports in, tolls, warnings and answers out, a second at a time.

    batch of a second
      -> window `reports`       every report of five minutes by (x, d, s, vid)
           slide, each minute   -> watch: sums of speeds, reports and cars of each segment
                                -> `Minute`: what each segment costs in this minute
      -> cars, as columns       whose segment is another one than before: they are told, and
                                charged for the one they left
      -> window `accounts`      what each car owes: the newest row of its number
    requests
      -> window `accounts`, collection `expenditures`

    window `cars`             once a minute: what is known of each car on the road
    window `minutes`          the sums of five minutes, by segment

What a second appends, it appends once: a process that goes on after another was killed takes the
seconds since the last minute again (progress.py).

All tables of a minute are made from minutes before it, so within a minute nothing but a look into
them is needed. A report costs some steps of arrays over all cars of the second.

Cars are numbered from 0 without large gaps: what is known of them stands in arrays by number.
For one thread.
"""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

import numba
import numpy as np
import pyarrow as pa

import tideline
from tideline.errors import InvalidRequest
from tideline.workload.linear_road import (
    BALANCE,
    EXIT,
    EXPENDITURE,
    REPORT,
    SCHEMA,
    SEGMENTS,
    LinearRoad,
)

__all__ = ["Minute", "Tolls"]

Columns = dict[str, Any]
_MINUTES = 5
_CARS = 1 << 20  # numbers of cars of an expressway: x * _CARS and up
_DAY_S = 86_400
_AHEAD = 5  # segments in which an accident matters, the car's own among them


class Minute(NamedTuple):
    """What holds for one minute, by segment: numbers of places are (x * 2 + d) * 100 + s."""

    minute: int
    toll: Any
    lav: Any
    speed: Any
    """Mean speed of the five minutes before, not rounded; NaN without reports."""
    cars: Any
    accident: Any
    """The segment of the next accident within reach, or -1."""


@numba.njit
def segments(state, x, d, s, vid, speed):  # type: ignore[no-untyped-def]
    """A mapper: by place the sum of speeds, the reports and the cars; then the last key."""
    places = (len(state) - 1) // 3
    place = (x * 2 + d) * 100 + s
    state[place] += speed
    state[places + place] += 1
    key = (place << 32) | vid  # a place is of one expressway, so this is one car
    if key != state[-1]:  # rows come in the order of keys
        state[2 * places + place] += 1
        state[-1] = key
    return state


class Tolls:
    """Linear Road over a database."""

    def __init__(self, db: Any, expressways: int, *, durable: bool = True) -> None:
        most = expressways * _CARS
        self.places = expressways * 2 * SEGMENTS
        self.reports = db.window(
            "reports", span_s=300, slide_s=60, keep="all", time="time", max_ahead_s=float("inf"),
            # The number on its expressway: up to 16 of these a key has 32 bits.
            key={"x": (0, expressways - 1), "d": (0, 1), "s": (0, SEGMENTS - 1),
                 "vid": (0, _CARS - 1)},
            values={"speed": "int16"}, durable=durable,
        )  # fmt: skip
        self.accounts = db.window(
            "accounts", span_s=_DAY_S, time="time", max_ahead_s=float("inf"),
            key={"vid": (0, most - 1)}, values={"balance": "int32"}, durable=durable,
        )  # fmt: skip
        self._cars = db.window(
            "cars", span_s=120, slide_s=60, time="time", max_ahead_s=float("inf"),
            key={"vid": (0, most - 1)}, durable=durable,
            values={"at": "int64", "count": "int8", "place": "int32", "due": "int32"},
        )  # fmt: skip
        self._sums = db.window(
            "minutes", span_s=60 * (_MINUTES + 1), slide_s=60, time="time",
            max_ahead_s=float("inf"), key={"place": (0, self.places - 1)}, durable=durable,
            values={"speeds": "int32", "reports": "int32", "cars": "int32", "accident": "int16"},
        )  # fmt: skip
        self.expenditures = db.collection("expenditures", key="id")
        zeros = np.zeros(3 * self.places + 1, np.int64)
        zeros[-1] = -1
        self._zeros = zeros
        self._watch = self.reports.watch(map=segments, initial=zeros, last_s=60)
        self._minutes: deque[tuple[int, Any, Any, Any]] = deque(maxlen=_MINUTES)
        self.now = self._minute(-1)
        # By car. Pages of zeros take no memory until they are written.
        self._where = np.zeros(most, np.int64)  # its place, lane and position, and 1
        self._count = np.zeros(most, np.int8)  # reports from there, one after the other
        self._place = np.zeros(most, np.int32)  # its segment, and 1; 0: it is not on the road
        self._due = np.zeros(most, np.int32)  # the toll of that segment
        self._owes = np.zeros(most, np.int32)
        self._stopped: dict[int, set[int]] = {}  # by `where`: cars that stopped there
        self._crashed = np.zeros(self.places, np.int64)  # accidents by place

    @staticmethod
    def warm(expressways: int) -> None:
        """Compile what a run of so many needs, so that its first minute has not to wait for it."""
        with tideline.open(":memory:") as db:
            app = Tolls(db, expressways)
            road = LinearRoad(1, 130, seed=1)
            app.load(road)
            for batch in road.seconds():
                app.second(batch)
            for kind in (BALANCE, EXPENDITURE):
                row = {name: [0] for name in SCHEMA.names} | {"type": [kind], "day": [1]}
                app.second(pa.RecordBatch.from_pydict(row, schema=SCHEMA))

    def load(self, road: LinearRoad) -> int:
        """Store what cars paid in the past, and make room for them; how many cars."""
        count = 0
        columns = self._where, self._count, self._place, self._due, self._owes
        for x in range(road.first, road.first + road.expressways):
            for vids, paid in road.history(x):
                rows, days = paid.shape
                lists = pa.FixedSizeListArray.from_arrays(pa.array(paid.ravel()), days)
                table = pa.table({
                    "id": vids, "x": np.full(rows, x, np.int16),
                    "paid": lists.cast(pa.list_(pa.int16())),
                })  # fmt: skip
                for column in columns:  # else the first second waits for the memory of all
                    column[vids] = 0
                count += self.expenditures.put_many(table).stored
        return count

    def second(self, batch: pa.RecordBatch) -> dict[str, Columns]:
        """Take the rows of one second; the answers, by kind (answers.py)."""
        columns = {name: batch.column(name).to_numpy() for name in batch.schema.names}
        kinds = columns["type"]
        reports = {name: column[kinds == REPORT] for name, column in columns.items()}
        told = self._moved(reports) if len(reports["vid"]) else {}
        for kind, name, answer in (
            (BALANCE, "balances", self._balances),
            (EXPENDITURE, "expenditures", self._expenditures),
        ):
            asked = np.flatnonzero(kinds == kind)
            if len(asked):
                told[name] = answer({name: column[asked] for name, column in columns.items()})
        return told

    # ---- reports -----------------------------------------------------------------------------

    def _moved(self, rows: Columns) -> dict[str, Columns]:
        time = int(rows["time"][0])
        vid = rows["vid"]
        if int(rows["vid"].max()) >= len(self._where):
            raise InvalidRequest("a car has a number that is too great", vid=int(vid.max()))
        self.reports.append({
            "x": rows["xway"], "d": rows["dir"], "s": rows["seg"], "vid": vid % _CARS,
            "speed": rows["speed"], "time": np.full(len(vid), time, np.int64),
        }, once=("reports", time))  # fmt: skip
        if time // 60 + 1 != self.now.minute:
            self.now = self._minute(time // 60 + 1)
        line = rows["xway"].astype(np.int64) * 2 + rows["dir"]
        self._standing(vid, rows, line)
        return self._told(vid, time, rows, line)

    def _told(self, vid: Any, time: int, rows: Columns, line: Any) -> dict[str, Columns]:
        now = self.now
        place = (line * SEGMENTS + rows["seg"]).astype(np.int32)
        left = rows["lane"] == EXIT
        before = self._place[vid]
        entered = np.flatnonzero(before != place + 1)
        self._charge(vid, entered, before, time)
        self._place[vid] = np.where(left, 0, place + 1)
        entered = entered[~left[entered]]
        here, who = place[entered], vid[entered]
        toll = now.toll[here]
        self._due[vid[left]] = 0
        self._due[who] = toll
        when = np.full(len(who), time)
        told = {"tolls": {"vid": who, "time": when, "lav": now.lav[here], "toll": toll}}
        near = now.accident[here]
        warned = near >= 0
        if warned.any():
            told["accidents"] = {
                "vid": who[warned], "time": when[warned], "seg": near[warned],
                "xway": rows["xway"][entered][warned], "dir": rows["dir"][entered][warned],
            }  # fmt: skip
        return told

    def _charge(self, vid: Any, entered: Any, before: Any, time: int) -> None:
        """Who goes on to another segment pays for the one before."""
        payers = vid[entered[before[entered] > 0]]
        payers = payers[self._due[payers] > 0]
        if len(payers):
            owes = self._owes[payers] + self._due[payers]
            done = self.accounts.append({
                "vid": payers, "balance": owes, "time": np.full(len(payers), time, np.int64),
            }, once=("accounts", time))  # fmt: skip
            if not done.repeated:  # else `restore` has found it there
                self._owes[payers] = owes

    def _standing(self, vid: Any, rows: Columns, line: Any) -> None:
        """Who reports one position for the fourth time has stopped; two there are an accident."""
        where = ((line * 8 + rows["lane"]) << 20) + rows["pos"] + 1
        before, count = self._where[vid], self._count[vid]
        same = where == before
        gone = np.flatnonzero(~same & (count >= 4))
        stops = np.flatnonzero(same & (count == 3))
        self._where[vid] = where
        self._count[vid] = np.where(same, np.minimum(count + 1, 4), 1)
        changed = set()
        for row in gone.tolist():
            self._stopped[int(before[row])].discard(int(vid[row]))
            changed.add(int(before[row]))
        for row in stops.tolist():
            self._stopped.setdefault(int(where[row]), set()).add(int(vid[row]))
            changed.add(int(where[row]))
        if changed:
            self._count_crashes()

    def _count_crashes(self) -> None:
        self._crashed[:] = 0
        for spot, cars in list(self._stopped.items()):
            if not cars:
                del self._stopped[spot]
            elif len(cars) > 1:
                at = (spot - 1) & ((1 << 20) - 1)
                self._crashed[((spot - 1) >> 23) * SEGMENTS + at // 5_280] += 1

    def on_road(self) -> int:
        """Cars that are between their first and their last report."""
        return int(np.count_nonzero(self._place))

    @property
    def accidents(self) -> Any:
        """Accidents that there are now, by place."""
        return self._crashed

    # ---- a minute ----------------------------------------------------------------------------

    def _minute(self, minute: int, accident: Any = None) -> Minute:
        """What holds in a minute that begins, from the minutes before it; or began with this."""
        places = self.places
        told = [(int(pane.until.timestamp()) // 60, pane.value) for pane in self._watch.take()]
        known = {each for each, *_ in self._minutes} | {each for each, _ in told}
        if minute > 1 and minute - 1 not in known:  # it closed in a process that was killed
            told.append((minute - 1, self.reports.range(
                map=segments, initial=self._zeros, last_s=60, closed=True)))  # fmt: skip
        for each, state in told:
            self._minutes.append((each, *state[: 3 * places].reshape(3, places)))
        total, count, cars = np.zeros((3, places), np.int64)
        for each, speeds, reports, seen in self._minutes:
            if each >= minute - _MINUTES:
                total += speeds
                count += reports
            if each == minute - 1:
                cars = seen
        some = np.maximum(count, 1)
        if accident is None:
            accident = self._ahead() if minute >= 0 else np.full(places, -1)
        costs = (count > 0) & (total < 40 * count) & (cars > 50) & (accident < 0)
        return Minute(
            minute, np.where(costs, 2 * (cars - 50) ** 2, 0), (2 * total + some) // (2 * some),
            np.where(count > 0, total / some, np.nan), cars, accident,
        )  # fmt: skip

    def _ahead(self) -> Any:
        """By place the segment of the next accident in five segments from there, or -1."""
        there = (self._crashed > 0).reshape(-1, 2, SEGMENTS)
        found = np.full(there.shape, -1)
        numbers = np.arange(SEGMENTS)
        for step in reversed(range(_AHEAD)):
            end = SEGMENTS - step
            east = np.where(there[:, 0, step:], numbers[step:], found[:, 0, :end])
            west = np.where(there[:, 1, :end], numbers[:end], found[:, 1, step:])
            found[:, 0, :end], found[:, 1, step:] = east, west
        return found.reshape(-1)

    # ---- for who goes on ---------------------------------------------------------------------

    def keep(self, second: int) -> None:
        """Store what is known behind a second, the first of a minute."""
        vids = np.flatnonzero((self._place > 0) | (self._count >= 4))
        if len(vids):
            self._cars.append({
                "vid": vids, "at": self._where[vids], "count": self._count[vids],
                "place": self._place[vids], "due": self._due[vids],
                "time": np.full(len(vids), second, np.int64),
            }, once=("cars", second))  # fmt: skip
        places = np.arange(self.places)
        for minute, speeds, reports, cars in self._minutes:
            self._sums.append({
                "place": places, "speeds": speeds, "reports": reports, "cars": cars,
                "accident": self.now.accident,  # of the minute after the newest
                "time": np.full(self.places, 60 * (minute - 1), np.int64),
            }, once=("minutes", minute))  # fmt: skip

    def restore(self, second: int) -> None:
        """Know what was stored behind a second, if any, and what cars owe by now."""
        owing = self.accounts.range()
        self._owes[owing["vid"].to_numpy()] = owing["balance"].to_numpy()
        if second < 0:
            return
        columns = self._of(self._cars.range(), second // 60)
        vids = columns["vid"]
        for name, column in (("at", self._where), ("count", self._count),
                             ("place", self._place), ("due", self._due)):  # fmt: skip
            column[vids] = columns[name]
        for vid, at, count in zip(*(columns[n].tolist() for n in ("vid", "at", "count")),
                                  strict=True):  # fmt: skip
            if count >= 4:
                self._stopped.setdefault(at, set()).add(vid)
        self._count_crashes()
        self._minutes.clear()
        sums = self._sums.range()
        minute = second // 60 + 1
        for each in range(minute - _MINUTES, minute):
            columns = self._of(sums, each - 1)
            if len(columns["place"]):
                self._minutes.append(
                    (each, *(columns[n].astype(np.int64) for n in ("speeds", "reports", "cars")))
                )
        newest = self._of(sums, minute - 2)["accident"].astype(np.int64)
        self.now = self._minute(minute, newest if len(newest) else None)

    @staticmethod
    def _of(table: pa.Table, pane: int) -> Columns:
        """The rows of one sub-window."""
        since = table["since"].cast(pa.int64()).to_numpy()
        rows = table.filter(pa.array(since == pane * 60_000_000))
        return {name: rows[name].to_numpy() for name in rows.column_names if name != "since"}

    # ---- requests ----------------------------------------------------------------------------

    def _balances(self, asked: Columns) -> Columns:
        found = self.accounts.get_many({"vid": asked["vid"]})
        balance = found.column("balance").fill_null(0).to_numpy()
        return {**{name: asked[name] for name in ("qid", "time", "vid")}, "balance": balance}

    def _expenditures(self, asked: Columns) -> Columns:
        found = self.expenditures.get_many(asked["vid"].tolist())
        paid = [
            document["paid"][day - 1] if document and document["x"] == x and day > 0 else 0
            for document, day, x in zip(
                found, asked["day"].tolist(), asked["xway"].tolist(), strict=True
            )
        ]
        return {**{name: asked[name] for name in ("qid", "time", "vid")}, "paid": np.array(paid)}
