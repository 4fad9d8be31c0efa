"""Checks every answer of a run against the rules, apart from the application.

It goes another way: no stream. The whole input of an expressway is sorted by car, so a drive is a
piece of a column, and everything is worked out at once.

    a drive      the reports of a car up to one in lane 4
    entering     the first report of a drive, and each in another segment than the one before
    stopped      from the 4th report in a row at one position (and lane) to the next elsewhere
    accident     while at least two cars are stopped at one position. One of minute A that is
                 cleared in minute C counts in the minutes after A, up to C
    warned       a car that enters, not in lane 4, with an accident that counts in the minute, in
                 its segment or the next four
    toll         2 (cars - 50)^2 where the mean of all speeds reported in the segment in the
                 five minutes before is below 40 and more than 50 cars reported there in the minute
                 before; nothing with an accident as above
    charged      the toll told at entering, when the same drive enters the next segment

The input is made again from its settings; it shares the generator with the run, and nothing else.
Answers have to be there once, with these values, between the question and five seconds after it.
Nothing here imports the application.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from tideline.workload.linear_road import LinearRoad

__all__ = ["KEYS", "LIMIT_S", "VALUES", "Verdict", "compare", "expected", "validate"]

LIMIT_S = 5.0
_SHOWN = 5
_MILE = 5_280
_FOREVER = 1 << 40

KEYS = {
    "tolls": ("vid", "time"), "accidents": ("vid", "time"), "balances": ("qid", "time"),
    "expenditures": ("qid", "time"),
}  # fmt: skip
VALUES = {
    "tolls": ("lav", "toll"), "accidents": ("xway", "dir", "seg"),
    "balances": ("vid", "balance"), "expenditures": ("vid", "paid"),
}  # fmt: skip

Columns = dict[str, Any]


@dataclass
class Verdict:
    """What was found, by kind of answer."""

    right: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KEYS, 0))
    wrong: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KEYS, 0))
    missing: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KEYS, 0))
    extra: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KEYS, 0))
    late: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KEYS, 0))
    worst_s: float = 0.0
    examples: list[str] = field(default_factory=list)
    facts: dict[str, int] = field(default_factory=dict)
    """What was in the input: reports, tolls above nothing, accidents and so on."""

    @property
    def passed(self) -> bool:
        """Whether every answer is right, in time, and there once."""
        bad = (self.wrong, self.missing, self.extra, self.late)
        return not any(sum(each.values()) for each in bad)

    def lines(self) -> list[str]:
        """For people."""
        out = [f"{'':14}{'right':>12}{'wrong':>9}{'missing':>9}{'extra':>9}{'late':>9}"]
        for kind in KEYS:
            counts = [each[kind] for each in (self.wrong, self.missing, self.extra, self.late)]
            out.append(f"{kind:14}{self.right[kind]:12,}" + "".join(f"{n:9,}" for n in counts))
        out += self.examples
        verdict = "passed" if self.passed else "FAILED"
        out.append(f"validator: {verdict}; longest response {self.worst_s:.3f} simulated seconds")
        return out


def validate(
    road: LinearRoad, answers: Mapping[str, pa.Table],
    rows: Callable[[int], Iterable[pa.RecordBatch]] | None = None,
    known: dict[int, Any] | None = None,
) -> Verdict:  # fmt: skip
    """Check the answers of a run, expressway by expressway.

    `rows` gives the input of an expressway where it need not be made again. `known` keeps what
    was worked out, for the next run with the same input.
    """
    verdict = Verdict()
    expressways = range(road.first, road.first + road.expressways)
    for x in expressways:
        one = LinearRoad(1, road.duration_s, road.seed, road.start_s, first=x)
        if known is not None and x in known:
            wanted, facts = known[x]
        else:
            wanted, facts = expected(one.seconds() if rows is None else rows(x), one)
        if known is not None:
            known[x] = wanted, facts
        for name, count in facts.items():
            verdict.facts[name] = verdict.facts.get(name, 0) + count
        for kind, table in answers.items():
            given = _some(kind, table, lambda numbers, x=x: numbers >> 20 == x)
            compare(kind, wanted[kind], given, verdict)
    for kind, table in answers.items():  # of expressways that there are not
        first, last = expressways[0], expressways[-1]
        outside = _some(kind, table, lambda n, a=first, z=last: (n >> 20 < a) | (n >> 20 > z))
        _note(kind, "extra", outside, verdict)
    return verdict


def _some(kind: str, table: pa.Table, meant: Callable[[Any], Any]) -> Columns:
    """The answers whose cars (or requests) are meant; read batch by batch, they may be many."""
    parts = []
    for batch in table.to_batches():
        chosen = meant(batch.column(KEYS[kind][0]).to_numpy())
        if chosen.any():
            parts.append(batch.filter(pa.array(chosen)))
    some = pa.Table.from_batches(parts, table.schema)
    return {name: some.column(name).to_numpy() for name in some.column_names}


def compare(kind: str, wanted: Columns, given: Columns, verdict: Verdict) -> None:
    """Hold the answers of one kind against those that should be there."""
    # A key is a number; of answers with one key the first counts, the others are extra.
    order = np.lexsort((given["emit"], _key(kind, given)))
    given = {name: column[order] for name, column in given.items()}
    keys = _key(kind, given)
    again = np.flatnonzero(keys[1:] == keys[:-1]) + 1
    _note(kind, "extra", {n: c[again] for n, c in given.items()}, verdict)
    given = {name: np.delete(column, again) for name, column in given.items()}
    keys = np.delete(keys, again)
    order = np.argsort(_key(kind, wanted), kind="stable")
    wanted = {name: column[order] for name, column in wanted.items()}
    asked = _key(kind, wanted)
    _, mine, theirs = np.intersect1d(asked, keys, assume_unique=True, return_indices=True)
    there = np.zeros(len(asked), bool)
    there[mine] = True
    _note(kind, "missing", {n: c[~there] for n, c in wanted.items()}, verdict)
    known = np.zeros(len(keys), bool)
    known[theirs] = True
    _note(kind, "extra", {n: c[~known] for n, c in given.items()}, verdict)
    same = np.ones(len(mine), bool)
    for name in VALUES[kind]:
        same &= wanted[name][mine] == given[name][theirs]
    wrong = {n: given[n][theirs][~same] for n in given}
    wrong |= {f"right {n}": wanted[n][mine][~same] for n in VALUES[kind]}
    _note(kind, "wrong", wrong, verdict)
    spent = (given["emit"] - given["time"])[theirs]
    if len(spent):
        verdict.worst_s = max(verdict.worst_s, float(spent.max()))
    late = ~((spent >= 0) & (spent <= LIMIT_S))  # before the question is no answer either
    _note(kind, "late", {n: c[theirs][late] for n, c in given.items()}, verdict)
    verdict.right[kind] += int((same & ~late).sum())


def _key(kind: str, columns: Columns) -> Any:
    number, time = (columns[name].astype(np.int64) for name in KEYS[kind])
    return number << 20 | time


def _note(kind: str, what: str, rows: Columns, verdict: Verdict) -> None:
    count = len(rows["time"])
    getattr(verdict, what)[kind] += count
    shown = sum(1 for line in verdict.examples if line.startswith(f"{what}, {kind}:"))
    for n in range(min(count, _SHOWN - shown)):
        row = ", ".join(f"{name} {column[n]}" for name, column in rows.items())
        verdict.examples.append(f"{what}, {kind}: {row}")


# ---- what should have been answered --------------------------------------------------------------


def expected(
    batches: Iterable[pa.RecordBatch], road: LinearRoad
) -> tuple[dict[str, Columns], dict[str, int]]:
    """All answers that the rows of one expressway ask for, and some counts of them.

    `road` says what cars paid in the past.
    """
    table = pa.Table.from_batches(list(batches))
    rows = {name: table.column(name).to_numpy() for name in table.column_names}
    kinds = rows["type"]
    cars = {name: column[kinds == 0] for name, column in rows.items()}
    order = np.argsort(cars["vid"].astype(np.int64) << 20 | cars["time"], kind="stable")
    cars = {name: column[order] for name, column in cars.items()}
    minutes = int(cars["time"].max()) // 60 + 1 if len(order) else 1
    first, other = _drives(cars)
    segment = cars["dir"].astype(np.int64) * 100 + cars["seg"]
    entering = np.flatnonzero(first | np.concatenate([[True], segment[1:] != segment[:-1]]))
    ends, accidents = _accidents(cars, first | other, minutes)
    lav, tolls = _tolls(cars, segment, ends, minutes)
    minute = cars["time"] // 60
    cell = minute * 200 + segment
    told = entering[cars["lane"][entering] != 4]
    warned = told[ends[cell[told]] >= 0]
    answers: dict[str, Columns] = {
        "tolls": {
            "vid": cars["vid"][told], "time": cars["time"][told], "lav": lav[cell[told]],
            "toll": tolls[cell[told]],
        },
        "accidents": {
            "vid": cars["vid"][warned], "time": cars["time"][warned],
            "xway": cars["xway"][warned], "dir": cars["dir"][warned],
            "seg": ends[cell[warned]],
        },
    }  # fmt: skip
    # A toll is due when the same drive enters once more.
    goes_on = ~first[entering[1:]]
    due = np.where(cars["lane"][entering] == 4, 0, tolls[cell[entering]])[:-1][goes_on]
    payer, when = cars["vid"][entering[1:]][goes_on], cars["time"][entering[1:]][goes_on]
    asks = {name: column[kinds == 2] for name, column in rows.items()}
    answers["balances"] = {
        **{name: asks[name] for name in ("qid", "time", "vid")},
        "balance": _balances(asks, payer, when, due),
    }
    days = {name: column[kinds == 3] for name, column in rows.items()}
    answers["expenditures"] = {
        **{name: days[name] for name in ("qid", "time", "vid")},
        "paid": road.expenditure(days["vid"], days["day"]),
    }
    facts = {
        "reports": len(order), "cars": len(np.unique(cars["vid"])), "drives": int(first.sum()),
        "tolls above 0": int((answers["tolls"]["toll"] > 0).sum()), "charges": int((due > 0).sum()),
        "accidents": accidents,
    }  # fmt: skip
    return answers, facts


def _drives(cars: Columns) -> tuple[Any, Any]:
    """Where a drive begins; where a report is from another position than the one before."""
    vid, lane = cars["vid"], cars["lane"]
    first = np.ones(len(vid), bool)
    first[1:] = (vid[1:] != vid[:-1]) | (lane[:-1] == 4)
    other = np.ones(len(vid), bool)
    other[1:] = (
        (cars["pos"][1:] != cars["pos"][:-1])
        | (lane[1:] != lane[:-1])
        | (cars["dir"][1:] != cars["dir"][:-1])
    )
    return first, other


def _accidents(cars: Columns, moved: Any, minutes: int) -> tuple[Any, int]:
    """By minute and segment where the next accident is, or -1; and how many accidents."""
    begins = np.flatnonzero(moved)
    limits = np.append(begins[1:], len(moved))
    spots: dict[tuple[int, int, int], list[tuple[int, int]]] = {}
    for begin, limit in zip(begins, limits, strict=True):
        if limit - begin >= 4:
            since = int(cars["time"][begin + 3])
            goes_on = limit < len(moved) and cars["vid"][limit] == cars["vid"][begin]
            until = int(cars["time"][limit]) if goes_on else _FOREVER
            spot = (int(cars["dir"][begin]), int(cars["lane"][begin]), int(cars["pos"][begin]))
            spots.setdefault(spot, []).append((since, until))
    counts = np.zeros((minutes, 2, 100), bool)
    found = 0
    for (way, _, pos), stops in spots.items():
        there = 0
        begun = None
        changes = {each for stop in stops for each in stop}
        for time in sorted(changes):
            there = sum(1 for since, until in stops if since <= time < until)
            if there >= 2 and begun is None:
                begun = time
                found += 1
            elif there < 2 and begun is not None:
                counts[begun // 60 + 1 : time // 60 + 1, way, pos // _MILE] = True
                begun = None
        if begun is not None:
            counts[begun // 60 + 1 :, way, pos // _MILE] = True
    nearest = np.full((minutes, 2, 100), -1)
    for minute, way, seg in np.argwhere(counts):
        # Cars that drive towards higher segments are told of it before it, the others behind it.
        for back in range(5):
            told = seg - back if way == 0 else seg + back
            if 0 <= told < 100:
                known = nearest[minute, way, told]
                if known < 0 or abs(seg - told) < abs(known - told):
                    nearest[minute, way, told] = seg
    return nearest.reshape(-1), found


def _tolls(cars: Columns, segment: Any, ends: Any, minutes: int) -> tuple[Any, Any]:
    """By minute and segment the mean speed of the five minutes before, rounded, and the toll."""
    cell = cars["time"] // 60 * 200 + segment
    size = minutes * 200
    speeds = np.bincount(cell, cars["speed"], size).astype(np.int64).reshape(minutes, 200)
    reports = np.bincount(cell, minlength=size).reshape(minutes, 200)
    each = np.unique(cell.astype(np.int64) << 32 | cars["vid"])
    seen = np.bincount(each >> 32, minlength=size).reshape(minutes, 200)
    lav, toll = np.zeros((minutes, 200), np.int64), np.zeros((minutes, 200), np.int64)
    for minute in range(1, minutes):
        before = slice(max(0, minute - 5), minute)
        total, count = speeds[before].sum(0), reports[before].sum(0)
        mean = total / np.maximum(count, 1)
        lav[minute] = np.floor(mean + 0.5)
        crowded = (seen[minute - 1] > 50) & (count > 0) & (total < 40 * count)
        toll[minute] = np.where(crowded, 2 * (seen[minute - 1] - 50) ** 2, 0)
    toll[ends.reshape(minutes, 200) >= 0] = 0
    return lav.reshape(-1), toll.reshape(-1)


def _balances(asks: Columns, payer: Any, when: Any, due: Any) -> Any:
    """What each car owes at the second in which it asks: all of that second is in it."""
    # Charges stand by car and time already, so a car's are a piece of the running sum.
    key = payer.astype(np.int64) << 20 | when
    upto = np.concatenate([[0], np.cumsum(due)])
    vid = asks["vid"].astype(np.int64)
    last = np.searchsorted(key, vid << 20 | asks["time"], side="right")
    return upto[last] - upto[np.searchsorted(key, vid << 20, side="left")]
