"""Which entries of an LSM R-tree count: three ways side by side, over the same packed trees.

    python benchmarks/reconcile.py [--only PART ...] [--size tiny|small|full] [--rounds N] [--help]

    inserts   points alone: twelve components, then one (table 4.4)
    deletes   one row of a hundred takes back an earlier one (figure 4.5)
    updates   every second row moves an earlier point

`by number` is ours, `deleted keys` the published LSM R-tree, `anti-matter` the AMLSM R-tree
(peers/lsm_rtrees.py, which says what they have in common). The published ways are told the place
of what a row takes back; reading it is not in these figures. Points are made up
(workload/clusters.py). Answers are compared with one another and with a scan.
Writes benchmarks/results/reconcile.json, .md and .png.
"""

from __future__ import annotations

import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # also from a clone that is not installed
    sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

import numpy as np

from benchmarks import common, pages
from benchmarks.common import markdown_table, say
from benchmarks.pages import Plot, by_turns, check_same, percentiles
from benchmarks.peers.lsm_rtrees import WAYS
from tideline.workload.clusters import Clusters

PARTS = {"inserts": (0.0, 0.0), "deletes": (0.01, 0.0), "updates": (0.0, 0.5)}
SIZES = {"tiny": (6_000, 10), "small": (1_200_000, 200), "full": (12_000_000, 500)}
COMPONENTS, _BATCHES = 12, 10  # and calls of `write` for each
HITS = 1_000
_TITLES = {
    "inserts": "Points alone (table 4.4)", "deletes": "One row of a hundred deletes (figure 4.5)",
    "updates": "Every second row moves a point",
}  # fmt: skip


class Stream:
    """Rows: new points, deletes and moves of earlier ones, and what is there in the end."""

    def __init__(self, count: int, deletes: float, updates: float) -> None:
        self.clusters = Clusters(seed=6)
        x, y = self.clusters.points(0, count)
        draw = np.random.default_rng(7)
        what = draw.random(count)
        keys, live = np.arange(count), list(range(0))
        rows: list[tuple[int, float, float, bool]] = []
        self.there: dict[int, tuple[float, float]] = {}
        picks = draw.random(count)
        for n in range(count):
            mine = (float(x[n]), float(y[n]))
            if what[n] < deletes + updates and live:
                at = int(picks[n] * len(live))
                key = live[at]
                rows.append((key, *self.there.pop(key), True))
                if what[n] < deletes:
                    live[at] = live[-1]
                    live.pop()
                    continue
                rows.append((key, *mine, False))
                self.there[key] = mine
            else:
                key = int(keys[n])
                rows.append((key, *mine, False))
                self.there[key] = mine
                live.append(key)
        columns = list(zip(*rows, strict=True))
        self.keys = np.array(columns[0], np.int64)
        self.x, self.y = np.array(columns[1]), np.array(columns[2])
        self.gone = np.array(columns[3], np.bool_)


def measure(size: str, rounds: int, part: str) -> dict[str, Any]:
    """Write, ask twelve components, merge, ask one."""
    count, number = SIZES[size]
    stream = Stream(count, *PARTS[part])
    warm = np.arange(100)
    for way in WAYS:  # what is loaded the first time takes longer than all the rest
        tree = way()
        for gone in (False, True):
            tree.write(warm, warm / 9.0, warm / 9.0, np.full(100, gone))
            tree.flush()
        tree.search((0, 0, 9, 9))
        tree.merge(0, 2)
    trees = {way.name: way() for way in WAYS}
    spent = {name: {"write": 0.0, "merge": 0.0} for name in trees}
    rows = np.arange(len(stream.keys))
    for step in np.array_split(rows, COMPONENTS):
        for name, tree in trees.items():
            begun = time.perf_counter()
            for some in np.array_split(step, _BATCHES):
                tree.write(stream.keys[some], stream.x[some], stream.y[some], stream.gone[some])
            tree.flush()
            spent[name]["write"] += time.perf_counter() - begun
    boxes = stream.clusters.boxes(number, hits=HITS, of=count)
    outcome: dict[str, Any] = {"rows": len(rows), "live": len(stream.there), "ways": {}}
    several, hits = asked(trees, stream, boxes, rounds)
    sizes = {name: tree.size_bytes for name, tree in trees.items()}
    for name, tree in trees.items():
        begun = time.perf_counter()
        tree.merge(0, len(tree.parts))
        spent[name]["merge"] = time.perf_counter() - begun
    one, _ = asked(trees, stream, boxes, rounds)
    for name, tree in trees.items():
        outcome["ways"][name] = {
            "write_us": spent[name]["write"] / len(rows) * 1e6,
            "merge_us": spent[name]["merge"] / len(rows) * 1e6,
            "bytes": sizes[name], "merged_bytes": tree.size_bytes,
            "several_us": percentiles(several[name]), "one_us": percentiles(one[name]),
        }  # fmt: skip
        say(f"  {name}: {outcome['ways'][name]['several_us']['median']:.0f} us in {COMPONENTS}")
    return outcome | {"hits": hits}


def asked(
    trees: dict[str, Any], stream: Stream, boxes: Any, rounds: int
) -> tuple[dict[str, Any], float]:
    """Microseconds of each box; and how many keys it has, the same for all."""
    known = np.array(list(stream.there))
    x, y = (np.array([place[n] for place in stream.there.values()]) for n in range(2))
    counts = []
    for number, box in enumerate(boxes):
        found = {name: tree.search(box).tolist() for name, tree in trees.items()}
        wanted = next(iter(found.values()))
        if number < 20:
            west, south, east, north = box
            inside = (x >= west) & (x <= east) & (y >= south) & (y <= north)
            wanted = np.sort(known[inside]).tolist()
        check_same(str(box), wanted, found)
        counts.append(len(wanted))
    turns = {name: [partial(tree.found, box) for box in boxes] for name, tree in trees.items()}
    return by_turns(turns, rounds), float(np.mean(counts))


# ---- the page ------------------------------------------------------------------------------------


def table(part: str, data: dict[str, Any]) -> str:
    """What each way took."""
    ways = data["ways"]
    ours = next(iter(ways.values()))
    rows = []
    for name, way in ways.items():
        several, one = way["several_us"]["median"], way["one_us"]["median"]
        rows.append([
            name, f"{way['write_us']:.2f}", f"{several:.0f} "
            f"({several / ours['several_us']['median']:.1f}x)", f"{way['merge_us']:.2f}",
            f"{one:.0f} ({one / ours['one_us']['median']:.1f}x)", f"{way['bytes'] / 1e6:.1f}",
            f"{way['merged_bytes'] / 1e6:.1f}",
        ])  # fmt: skip
    head = ["", "write, us a row", f"box in {COMPONENTS} components, median us", "merge, us a row",
            "box in one, median us", "MB", "merged, MB"]  # fmt: skip
    said = (
        f"{data['rows']:,} rows, {data['live']:,} points in the end, {data['hits']:,.0f} in a box"
    )
    return f"## {_TITLES[part]}\n\n{said}.\n\n" + markdown_table(head, rows)


def plots(parts: dict[str, Any]) -> list[Plot]:
    """Medians by number of components."""
    return [
        Plot(
            _TITLES[part], "components", "a box, median us",
            {
                name: [(1, way["one_us"]["median"]), (COMPONENTS, way["several_us"]["median"])]
                for name, way in data["ways"].items()
            },
            log_up=False,
        )
        for part, data in parts.items()
    ]  # fmt: skip


def main(arguments: list[str] | None = None) -> None:
    """Run what was asked for and write the results."""
    options = common.parser(__doc__, parts=PARTS, sizes=SIZES, rounds=3).parse_args(arguments)
    results = common.Results(options.results, "reconcile")
    for part in options.only or PARTS:
        say(part)
        measured = measure(options.size, options.rounds, part)
        results.put(part, {**measured, "size": options.size})
    about = (
        "Written by `python benchmarks/reconcile.py`, whose head says what is compared. The "
        "points are made up. MB are those of entries, nodes and keys on the side; `by number` "
        "looks into the index of the documents, which is there anyway and not in its MB."
    )
    tables = {part: partial(table, part) for part in PARTS}
    for path in pages.write(results, "reconcile", "Which entries count", about, tables, plots):
        say(f"wrote {path}")


if __name__ == "__main__":
    main()
