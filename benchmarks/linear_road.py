"""Linear Road: how many expressways fit on this machine.

    python benchmarks/linear_road.py [--size tiny|small] [--only index|whole] [--help]
    python benchmarks/linear_road.py --full --expressways 8 --speed 10

Two questions, which are not to be mixed up:

*The index*: the queries Q1 and Q2 of the paper on windows. In every simulated second the reports of
L expressways are appended to one window; Q1 is asked for each car that reported (its speed in the
last minute), Q2 for every segment once a minute (the mean speed of five minutes). L doubles until
a second takes more than a second. Expressways beyond the first ones repeat their traffic under
other numbers.

*The whole benchmark* (examples/linear_road): tolls, accidents, balances, expenditures, with the
validator. Small runs are ten simulated minutes of the busiest time, faster and faster until an
answer is late; the validator has to pass. What counts there is reports a second. Such a run is
shortened and is no L-rating. `--full` is the rating: three whole hours of so many expressways, at
a speed of 1 or more (answers then have five *simulated* seconds, so a higher speed is harder).
Both store where they stand, each second, so that they could go on after a crash.

Writes linear-road.json, .md and .png to benchmarks/results/.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa

if __name__ == "__main__":  # also from a clone that is not installed
    sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

from benchmarks import common
from benchmarks.common import markdown_table, pyplot, say
from examples.linear_road.answers import AnswerFiles, read_answers
from examples.linear_road.drive import drive, prepare, prepared
from examples.linear_road.progress import Progress
from examples.linear_road.tolls import Tolls
from examples.linear_road.validator import LIMIT_S, validate
from tideline.workload.linear_road import SEGMENTS, WHOLE_S, LinearRoad


@dataclass(frozen=True)
class Size:
    """How much is run."""

    made: int
    """Expressways whose traffic is made."""
    minutes: int
    start_s: int
    measured_s: int
    """Simulated seconds of the index workload, after five minutes have filled the window."""
    first_l: int
    most_l: int
    speeds: tuple[int, ...]


SIZES = {
    "tiny": Size(1, 7, 0, 5, 1, 2, (400,)),
    "small": Size(4, 10, 4_800, 60, 8, 128, (40, 80, 160, 240, 320)),
}
_LEAST_FREE = 3 << 30  # bytes of memory; with less, L is not doubled again


# ---- the index workload --------------------------------------------------------------------------


def index_run(paths: Sequence[Path], count: int, measured_s: int) -> dict[str, Any]:
    """The index workload with so many expressways; milliseconds of each part a second."""
    import tideline

    parts: dict[str, list[float]] = {"append": [], "Q1": [], "Q2": []}
    asked = np.random.default_rng(count).permutation(count * 2 * SEGMENTS)
    with common.scratch() as folder, tideline.open(folder / "db") as db:
        cars = db.window(
            "cars", span_s=300, slide_s=60, time="time", max_ahead_s=float("inf"),
            key={"x": (0, count - 1), "d": (0, 1), "s": (0, SEGMENTS - 1),
                 "vid": (0, (1 << 20) - 1)},
            values={"vel": "int16"},
        )  # fmt: skip
        rows = stored = number = 0
        for number, columns in enumerate(_spread(paths, count)):
            measured = number >= 300
            spent = [time.perf_counter()]
            stored += cars.append(columns).stored
            rows += len(columns["vid"])
            spent.append(time.perf_counter())
            if measured:
                keys = {name: columns[name] for name in ("x", "d", "s", "vid")}
                found = cars.get_many(keys, last_s=60)
                spent.append(time.perf_counter())
                for place in asked[number % 60 :: 60].tolist():
                    x, d, s = place // 200, place // 100 % 2, place % 100
                    cars.range((x, d, s), map="mean(vel)")
                spent.append(time.perf_counter())
                for name, each in zip(parts, np.diff(spent) * 1e3, strict=True):
                    parts[name].append(float(each))
                assert (found.column("vel").to_numpy() == columns["vel"]).all(), "Q1 is wrong"
            if number == 299 + measured_s:
                break
        assert stored == rows, (stored, rows)
        if number != 299 + measured_s:
            raise AssertionError(f"the input ended at second {number}")
        _check_q2(cars, paths[0], number)
        kept = cars.stats().rows
    total = np.array(list(parts.values())).sum(0)
    return {
        "L": count, "rows": kept, "reports_s": round(rows / (number + 1)),
        "ms": {name: float(np.median(each)) for name, each in parts.items()},
        "second_ms": float(np.mean(total)), "worst_ms": float(total.max()),
        "keeps_up": bool(np.mean(total) <= 1_000 and total.max() <= LIMIT_S * 1_000),
    }  # fmt: skip


def _spread(paths: Sequence[Path], count: int) -> Iterator[dict[str, Any]]:
    """Reports by second; expressways beyond those that were made repeat them."""
    for batch in prepared(paths):
        columns = _reports(batch)
        base = {
            "x": columns["xway"], "d": columns["dir"], "s": columns["seg"],
            "vid": columns["vid"] & ((1 << 20) - 1), "vel": columns["speed"],
            "time": columns["time"],
        }  # fmt: skip
        made = len(paths)
        whole = []
        for first in range(0, count, made):
            part = {**base, "x": base["x"] + np.int16(first)}
            if first + made > count:
                few = part["x"] < count
                part = {name: column[few] for name, column in part.items()}
            whole.append(part)
        yield {name: np.concatenate([each[name] for each in whole]) for name in base}


def _reports(batch: pa.RecordBatch) -> dict[str, Any]:
    columns = {name: batch.column(name).to_numpy() for name in batch.schema.names}
    chosen = columns["type"] == 0
    return {name: column[chosen] for name, column in columns.items()}


def _check_q2(cars: Any, path: Path, seconds: int) -> None:
    """Q2 of a few segments, by a plain scan of the input: one report a car and minute."""
    batches = list(prepared([path]))[: seconds + 1]
    columns = _reports(pa.Table.from_batches(batches).combine_chunks().to_batches()[0])
    pane = columns["time"] // 60
    for d, s in ((0, 40), (1, 55), (0, 70)):
        mine = (columns["dir"] == d) & (columns["seg"] == s) & (pane > pane.max() - 5)
        last = {
            (p, vid): vel
            for p, vid, vel in zip(
                pane[mine].tolist(), columns["vid"][mine].tolist(),
                columns["speed"][mine].tolist(), strict=True,
            )
        }  # fmt: skip
        told = cars.range((0, d, s), map=["count()", "sum(vel)"])
        assert (told["count()"], told["sum(vel)"]) == (len(last), sum(last.values())), (d, s)


def index_part(paths: Sequence[Path], size: Size) -> dict[str, Any]:
    """Double L until a second takes more than a second, or memory is short."""
    runs: list[dict[str, Any]] = []
    count, why = size.first_l, "the largest that is tried"
    index_run(paths[:1], 1, 2)  # compiles
    while count <= size.most_l:
        runs.append(index_run(paths, count, size.measured_s))
        say(f"index: {runs[-1]}")
        if not runs[-1]["keeps_up"]:
            why = "the next one takes longer than a second"
            break
        if psutil.virtual_memory().available < _LEAST_FREE:
            why = "memory is short"
            break
        count *= 2
    best = max((run["L"] for run in runs if run["keeps_up"]), default=0)
    return {"runs": runs, "best": best, "why": why}


# ---- the whole benchmark -------------------------------------------------------------------------


def whole_run(
    road: LinearRoad, paths: Sequence[Path], speed: float, known: dict[int, Any] | None = None
) -> dict[str, Any]:
    """The benchmark at a speed, validated."""
    import tideline

    with common.scratch() as folder:
        with tideline.open(folder / "db") as db:
            app = Tolls(db, road.expressways)
            begun = time.perf_counter()
            cars = app.load(road)
            loaded = time.perf_counter() - begun
            files = AnswerFiles(folder / "answers")
            progress = Progress(db, road)
            run = drive(
                app, prepared(paths), files, start_s=road.start_s, speed=speed,
                done=lambda run, app=app: progress.done(app, run, files), run=progress.begin(),
            )  # fmt: skip
            files.close()
        del app  # the validator needs memory, too
        verdict = validate(
            road, read_answers(folder / "answers"), lambda x: prepared([paths[x - road.first]]),
            known,
        )  # fmt: skip
    seconds = road.duration_s / speed
    bad = (verdict.wrong, verdict.missing, verdict.extra)
    took = np.sort(run.took)
    out = {
        "L": road.expressways, "speed": speed, "minutes": road.duration_s / 60,
        "reports": run.reports, "reports_s": run.reports / seconds,
        "busy": run.busy_s / seconds, "loaded_s": loaded, "cars": cars,
        "median_s": float(np.median(took)), "p99_s": float(took[int(len(took) * 0.99)]),
        "worst_s": verdict.worst_s, "passed": verdict.passed,
        "late": sum(verdict.late.values()), "facts": verdict.facts,
        "wrong": sum(sum(each.values()) for each in bad),
    }  # fmt: skip
    say("\n".join(verdict.lines()))
    say(f"whole: {out}")
    return out


def whole_part(road: LinearRoad, paths: Sequence[Path], size: Size) -> list[dict[str, Any]]:
    """Faster and faster, until an answer is late in two tries."""
    Tolls.warm(road.expressways)
    runs: list[dict[str, Any]] = []
    known: dict[int, Any] = {}
    for speed in size.speeds:
        for attempt in (1, 2):  # a machine may do something else for a moment
            run = whole_run(road, paths, speed, known) | {"attempt": attempt}
            assert not run["wrong"], "an answer is wrong"
            if run["passed"]:
                break
        runs.append(run)
        if not run["passed"]:
            break
    return runs


def full_part(expressways: int, speed: float, duration_s: int = WHOLE_S) -> dict[str, Any]:
    """Three hours: what an L-rating is of."""
    road = LinearRoad(expressways, duration_s)
    with common.scratch() as folder:
        say(f"making {expressways} expressways")
        paths = prepare(road, folder / "input")
        Tolls.warm(road.expressways)
        return whole_run(road, paths, speed)


# ---- the page ------------------------------------------------------------------------------------


def page(parts: dict[str, Any]) -> str:
    """The results as Markdown; a part that was not run is left out."""
    text = ["# Linear Road\n\nWritten by `python benchmarks/linear_road.py`.\n"]
    made = (("full", _full_page), ("whole", _whole_page), ("index", _index_page))
    for name, table in made:
        if name in parts:
            part = parts[name]
            facts = part["facts"]
            text.append(table(part["data"]))
            text.append(
                f"{facts['cpu']}, {facts['cores']} cores, {facts['memory']}; {part['date']}, "
                f"commit {part['commit']}.\n"
            )
    return "\n".join(text)


_WHOLE_HEAD = [
    "expressways", "speed", "reports", "reports a second", "application works", "median response",
    "99 %", "longest", "validator",
]  # fmt: skip


def _whole_row(run: dict[str, Any]) -> list[str]:
    passed = "passed" if run["passed"] else f"{run['late']:,} late, {run['wrong']:,} wrong"
    if run.get("attempt", 1) > 1:
        passed += ", second try"
    return [
        f"{run['L']}", f"{run['speed']:g}x", f"{run['reports']:,}", f"{run['reports_s']:,.0f}",
        f"{run['busy']:.0%}", f"{run['median_s']:.2f} s", f"{run['p99_s']:.2f} s",
        f"{run['worst_s']:.2f} s", passed,
    ]  # fmt: skip


def _full_page(run: dict[str, Any]) -> str:
    facts = ", ".join(f"{count:,} {name}" for name, count in run["facts"].items())
    if run["minutes"] < 180:
        title = f"## A shortened run of {run['minutes']:g} simulated minutes: no L-rating\n\n"
    elif run["passed"]:
        title = f"## L-rating: {run['L']}, three simulated hours, validated\n\n"
    else:
        title = "## Three simulated hours: not passed\n\n"
    return title + markdown_table(_WHOLE_HEAD, [_whole_row(run)]) + f"\nInput: {facts}.\n"


def _whole_page(runs: list[dict[str, Any]]) -> str:
    passed = [run for run in runs if run["passed"]]
    best = max((run["reports_s"] for run in passed), default=0)
    first = runs[0]
    return (
        f"## The whole benchmark, shortened: {first['minutes']:g} simulated minutes, no L-rating"
        f"\n\nThe busiest time of {first['L']} expressways, {first['cars']:,} cars with a past."
        " Responses are in simulated seconds, of which an answer has five: at a higher speed they"
        f" are shorter ones. The validator passes up to {best:,.0f} reports a second.\n\n"
        + markdown_table(_WHOLE_HEAD, [_whole_row(run) for run in runs])
    )


def _index_page(data: dict[str, Any]) -> str:
    rows = [
        [f"{run['L']}", f"{run['rows']:,}", f"{run['reports_s']:,}",
         *(f"{run['ms'][name]:.1f}" for name in ("append", "Q1", "Q2")),
         f"{run['second_ms']:.0f}", f"{run['worst_ms']:.0f}", "yes" if run["keeps_up"] else "no"]
        for run in data["runs"]
    ]  # fmt: skip
    head = ["expressways", "rows in the window", "reports a second", "append, ms", "Q1, ms",
            "Q2, ms", "mean second, ms", "longest", "keeps up"]  # fmt: skip
    return (
        "## The queries Q1 and Q2 of the paper on windows: an index workload, no L-rating\n\n"
        "In each simulated second all reports are appended, Q1 is asked for every car that"
        f" reported, Q2 for each segment once a minute. Up to L = {data['best']}"
        f" ({data['why']}).\n\n" + markdown_table(head, rows)
    )


def draw(parts: dict[str, Any], path: Path) -> None:
    """Response by speed, and a second's work by L."""
    plt = pyplot()
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4))
    if "whole" in parts:
        runs = parts["whole"]["data"]
        at = [run["reports_s"] / 1e3 for run in runs]
        for name, label in (("worst_s", "longest"), ("p99_s", "99 %"), ("median_s", "median")):
            left.plot(at, [run[name] for run in runs], marker="o", label=label)
        left.axhline(LIMIT_S, color="red", linestyle=":", label="limit")
        left.set_yscale("log")
        left.legend(fontsize=8)
    left.set_xlabel("thousand reports a second")
    left.set_ylabel("response, simulated seconds")
    if "index" in parts:
        runs = parts["index"]["data"]["runs"]
        for name in ("append", "Q1", "Q2"):
            at = [run["L"] for run in runs]
            right.plot(at, [run["ms"][name] for run in runs], marker="o", label=name)
        right.set_xscale("log", base=2)
        right.set_yscale("log")
        right.legend(fontsize=8)
    right.set_xlabel("expressways")
    right.set_ylabel("milliseconds a simulated second")
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the parts that are asked for, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--only", choices=("index", "whole"), help="one of the two")
    parser.add_argument("--full", action="store_true", help="three hours, for an L-rating")
    parser.add_argument("--expressways", type=int, default=4, help="of --full")
    parser.add_argument("--speed", type=float, default=1, help="of --full")
    parser.add_argument("--minutes", type=float, default=180, help="of --full; less is no rating")
    parser.add_argument("--results", type=Path, default=common.RESULTS)
    options = parser.parse_args(arguments)
    results = common.Results(options.results, "linear-road")
    if options.full:
        duration = round(options.minutes * 60)
        results.put("full", full_part(options.expressways, options.speed, duration))
    else:
        size = SIZES[options.size]
        road = LinearRoad(size.made, size.minutes * 60, start_s=size.start_s)
        with common.scratch() as folder:
            say(f"making {size.made} expressways")
            paths = prepare(road, folder)
            if options.only != "index":
                results.put("whole", whole_part(road, paths, size))
            if options.only != "whole":
                results.put("index", index_part(paths, size))
    (results.folder / "linear-road.md").write_text(page(results.parts), encoding="utf-8")
    draw(results.parts, results.folder / "linear-road.png")
    say(f"wrote {results.folder / 'linear-road.md'}")


if __name__ == "__main__":
    main()
