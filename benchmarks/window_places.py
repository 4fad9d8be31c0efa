"""The last five minutes around here: by an index, by cells in a key, and in a collection.

    python benchmarks/window_places.py [--rows 100000] [--minutes 8] [--help]

The same reports of cars, spread over New York State, a minute's at a time: into a stream window
with the index `spatial`, into one whose key begins with the row and column of a grid cell, and into
a collection with `ttl_s` and the index `spatial`. All hold five minutes. Timed are writing a
minute's reports, sealing it (in the background, otherwise), forgetting the minute that is over (a
slide; deleting what has expired, as a reader of changes has it done), and finding the reports
within 1 km of a point. What they find is compared. Writes window_places.json and window_places.md
to benchmarks/results/.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

if __name__ == "__main__":  # also from a clone that is not installed
    sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

from benchmarks import common
from benchmarks.common import markdown_table, say

SPAN_S, SLIDE_S, RADIUS_M = 300, 60, 1000.0
WEST, SOUTH, EAST, NORTH = -79.8, 40.4, -71.8, 45.1
CELL = 0.01  # degrees: about a kilometre
METRES = 111_195.0  # of a degree of latitude
ASKED = 200
START = 1_600_000_020.0


def reports(count: int, minute: int, rng: Any) -> dict[str, Any]:
    """A minute's reports: a third of them in a few towns, as cars are."""
    towns = np.random.default_rng(1).uniform((WEST, SOUTH), (EAST, NORTH), (20, 2))
    at = rng.uniform((WEST, SOUTH), (EAST, NORTH), (count, 2))
    near = count // 3
    at[:near] = towns[rng.integers(0, 20, near)] + rng.normal(0, 0.03, (near, 2))
    at = np.clip(at, (WEST, SOUTH), (EAST - 1e-6, NORTH - 1e-6))
    numbers = np.arange(minute * count, (minute + 1) * count)
    return {"id": numbers, "lon": at[:, 0], "lat": at[:, 1]}


def cells(lon: Any, lat: Any) -> tuple[Any, Any]:
    """Row and column of a cell."""
    row = np.floor((np.asarray(lat) - SOUTH) / CELL).astype(np.int64)
    return row, np.floor((np.asarray(lon) - WEST) / CELL).astype(np.int64)


def metres(lon: Any, lat: Any, here: tuple[float, float]) -> Any:
    """Distance on the sphere, as `$near` has it."""
    lon, lat, lon0, lat0 = (np.radians(each) for each in (lon, lat, *here))
    inner = np.sin((lat - lat0) / 2) ** 2
    inner = inner + np.cos(lat) * np.cos(lat0) * np.sin((lon - lon0) / 2) ** 2
    return 2 * 6_371_008.8 * np.arcsin(np.sqrt(inner))


def around(window: Any, here: tuple[float, float]) -> set[int]:
    """The reports near a point: a range of cells for each row of them, then the distance."""
    up = RADIUS_M / METRES
    across = up / math.cos(math.radians(abs(here[1]) + up))
    (low, first), (high, last) = (
        cells(here[0] + sign * across, here[1] + sign * up) for sign in (-1, 1)
    )
    found: set[int] = set()
    for row in range(int(low), int(high) + 1):
        rows = window.range(((row, int(first)), (row, int(last) + 1)))
        lon, lat = rows["lon"].to_numpy(), rows["lat"].to_numpy()
        found.update(rows["id"].to_numpy()[metres(lon, lat, here) <= RADIUS_M].tolist())
    return found


def measure(count: int, minutes: int) -> dict[str, float]:
    """Seconds of each step, medians."""
    import tideline
    from tideline.testing import ManualClock

    rng = np.random.default_rng(7)
    clock = ManualClock(START)
    took: dict[str, list[float]] = {}

    def timed(name: str, do: Any) -> Any:
        begun = time.perf_counter()
        made = do()
        took.setdefault(name, []).append(time.perf_counter() - begun)
        return made

    with common.scratch() as folder, tideline.open(folder / "data", clock=clock) as db:
        window = db.window(
            "cells", span_s=SPAN_S, slide_s=SLIDE_S, keep="all",
            key={"row": (0, 511), "col": (0, 1023), "id": (0, (1 << 32) - 1)},
            values={"lon": "float64", "lat": "float64"},
        )  # fmt: skip
        indexed = db.window(
            "indexed", span_s=SPAN_S, slide_s=SLIDE_S, keep="all", key={"id": (0, (1 << 32) - 1)},
            values={"at": "point"}, indexes={"at": "spatial"},
        )  # fmt: skip
        places = db.collection("places", key="id", indexes={"at": "spatial"}, ttl_s=SPAN_S)
        for minute in range(minutes):
            given = reports(count, minute, rng)
            row, col = cells(given["lon"], given["lat"])
            pairs = np.stack([given["lon"], given["lat"]], axis=1)
            lists = pa.FixedSizeListArray.from_arrays(pa.array(pairs.ravel()), 2)
            table = pa.table({"id": given["id"], "at": lists.cast(pa.list_(pa.float64()))})
            timed("window: write", lambda g=given, r=row, c=col: window.append(
                {**g, "row": r, "col": c}))  # fmt: skip
            timed("index: write", lambda g=given, p=pairs: indexed.append({"id": g["id"], "at": p}))
            timed("collection: write", lambda t=table: places.put_many(t))
            clock.advance(SLIDE_S)
            if minute >= SPAN_S // SLIDE_S - 1:
                timed("window: forget a minute", window._engine.advance)
                timed("index: forget a minute", indexed._engine.advance)
                # The minute that has closed, as the background does it.
                timed("window: seal a minute", window.maintain)
                timed("index: seal a minute", indexed.maintain)
                timed("collection: forget a minute", lambda: places.changes().take())
        last = reports(count, minutes - 1, np.random.default_rng(9))
        for n in range(ASKED):
            here = float(last["lon"][n]), float(last["lat"][n])
            asked = {"at": {"$geoWithin": {"$centerSphere": [list(here), RADIUS_M / 6_371_008.8]}}}
            ours = timed("window: around", lambda h=here: around(window, h))
            theirs = timed("collection: around", lambda a=asked: places.find(a))
            table = timed("index: around", lambda a=asked: indexed.find(a))
            ids = {one["id"] for one in theirs}
            if not ours == ids == set(table["id"].to_pylist()):
                raise SystemExit(f"the reports around {here} are not the same in all")
    return {name: float(np.median(each)) for name, each in took.items()}


def write(results: Any, rows: int) -> Path:
    kept = results.parts["places"]
    per, facts = kept["data"], kept["facts"]

    def line(what: str, verb: str, told: Any) -> list[str]:
        names = [f"{name}: {verb}" for name in ("index", "window", "collection")]
        return [what, *(told(per[name]) if name in per else "" for name in names)]

    lines = [
        line("write, reports a second", "write", lambda s: f"{rows / s:,.0f}"),
        line("seal a minute, ms", "seal a minute", lambda s: f"{s * 1e3:,.1f}"),
        line("forget a minute, ms", "forget a minute", lambda s: f"{s * 1e3:,.1f}"),
        line("within 1 km, ms a question", "around", lambda s: f"{s * 1e3:,.2f}"),
    ]
    text = (
        f"# The last five minutes around here\n\n{rows:,} reports a minute, medians.\n\n"
        + markdown_table(
            ["", "window, spatial", "window with cells in its key", "collection, ttl_s, spatial"],
            lines,
        )
        + f"\n{facts['cpu']}, {facts['cores']} cores; {kept['date']}, commit {kept['commit']}.\n"
    )
    path: Path = results.folder / "window_places.md"
    path.write_text(text, encoding="utf-8")
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=100_000, help="reports a minute")
    parser.add_argument("--minutes", type=int, default=8)
    parser.add_argument("--out", type=Path, default=common.RESULTS)
    options = parser.parse_args()
    results = common.Results(options.out, "window_places")
    results.put("places", measure(options.rows, options.minutes))
    say(f"wrote {write(results, options.rows)}")


if __name__ == "__main__":
    main()
