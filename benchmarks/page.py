"""How smoothly the page draws: frame times in a real browser while drivers move.

    python benchmarks/page.py [--drivers N] [--seconds S] [--help]

A server with N drivers on the roads of New York State runs in a process of its own; each driver
asks again every two seconds, more often than in the demo, and incidents happen. Chromium shows the
page; the times between its animation frames are taken by the page's own clock. Without a graphics
card it draws by software, on the cores the server uses too. Writes page.json, page.md and page.png
to benchmarks/results/.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # also from a clone that is not installed
    sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

from benchmarks import common
from benchmarks.common import markdown_table, pyplot, say

EVERY_S = 2.0  # a driver asks again
START_S = 4.0  # the page loads what is there, and finds out whether it must draw coarser
INCIDENTS_S = 5.0
RADIUS_M = 5_000
SIZES = [(1440, 900, 1), (1440, 900, 2), (360, 740, 2)]  # width, height, pixels per CSS pixel
FRAMES = """(ms) => new Promise((done) => {
  const times = [];
  const next = (now) => {
    times.push(now);
    if (now - times[0] < ms) requestAnimationFrame(next);
    else done(times);
  };
  requestAnimationFrame(next);
})"""
SCALE = """() => { const moving = document.querySelectorAll('#map canvas')[2];
  return moving.width / moving.clientWidth; }"""
_spawn = get_context("spawn")


def drive(pipe: Any, folder: str, drivers: int) -> None:
    """The server's process: drivers and incidents until it is told to stop."""
    import tideline
    from tideline.server import running
    from tideline.space import Circle, QuadTree
    from tideline.workload.newyork import BOUNDS, NewYork

    with tideline.open(folder) as database:
        space = QuadTree(bounds=BOUNDS, depth=9)
        roads = database.channel("roads", space=space, journal_s=30)
        state = NewYork(drivers=drivers, seed=1, hurry=20.0)
        with running(database) as url:
            pipe.send(url)
            start = time.perf_counter()
            asked = happened = 0
            while not pipe.poll(0.01):
                now = time.perf_counter() - start
                while happened < now * INCIDENTS_S:
                    incident = state.incident()
                    roads.publish(incident.place, incident.body, ttl_s=incident.ttl_s)
                    happened += 1
                due = min(now * drivers / EVERY_S, asked + drivers / 10)
                while asked < due:
                    who = state.drivers[asked % drivers]
                    roads.subscribe(
                        Circle(state.move(who, now), radius_m=RADIUS_M), user=who.user,
                        since_s=-600, until_s=3 * EVERY_S, unseen=True,
                    )  # fmt: skip
                    asked += 1
            pipe.send((asked, time.perf_counter() - start))


@contextmanager
def driven(drivers: int) -> Iterator[tuple[str, dict[str, float]]]:
    """A server with drivers; gives its address, and in the end how often they asked."""
    asked: dict[str, float] = {}
    ours, theirs = _spawn.Pipe()
    with common.scratch() as folder:
        process = _spawn.Process(target=drive, args=(theirs, str(folder / "db"), drivers))
        process.start()
        theirs.close()
        try:
            yield ours.recv(), asked
            ours.send("stop")
            count, seconds = ours.recv()
            asked["per_s"] = count / seconds
        finally:
            ours.close()
            process.join()


def measure(drivers: int, seconds: float) -> dict[str, Any]:
    """Frame times at every size, in milliseconds."""
    from playwright.sync_api import sync_playwright

    names = [os.environ.get("CHROMIUM") or "chromium", "chromium-browser", "google-chrome"]
    executable = next((found for name in names if (found := shutil.which(name))), None)
    if executable is None:
        raise SystemExit("no Chromium: run scripts/chromium.sh, or name one in CHROMIUM")
    rows = []
    with sync_playwright() as playwright, driven(drivers) as (url, asked):
        browser = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        for width, height, scale in SIZES:
            context = browser.new_context(
                viewport={"width": width, "height": height}, device_scale_factor=scale
            )
            page = context.new_page()
            page.goto(url)
            page.wait_for_function(
                "(n) => parseInt(document.querySelector('#frames').title) >= n", arg=drivers
            )
            times = page.evaluate(FRAMES, (START_S + seconds) * 1000)
            title = page.get_attribute("#frames", "title") or ""
            row = {
                "width": width,
                "height": height,
                "scale": scale,
                **summary([t for t in times if t - times[0] >= START_S * 1000]),
            }
            row["start_per_s"] = summary([t for t in times if t - times[0] < START_S * 1000])[
                "per_s"
            ]
            row["moving_scale"] = page.evaluate(SCALE)
            row["gaps_ms"] = [round(b - a, 1) for a, b in pairwise(times)]
            row["on_map"] = int(re.findall(r"\d+", title)[0])
            say(f"{width} x {height} at {scale}: {row['per_s']:.1f} frames/s")
            rows.append(row)
            context.close()
        version = browser.version
        browser.close()
    return {"drivers": drivers, "rows": rows, "chromium": version, "asked_per_s": asked["per_s"]}


def summary(times: list[float]) -> dict[str, float]:
    """Frames a second and times between frames.

    >>> summary([0.0, 16.0, 32.0, 64.0])["longest_ms"]
    32.0
    """
    gaps = sorted(b - a for a, b in pairwise(times))

    def at(share: float) -> float:
        return gaps[min(int(len(gaps) * share), len(gaps) - 1)]

    return {
        "per_s": len(gaps) / (times[-1] - times[0]) * 1000,
        "median_ms": at(0.5),
        "p95_ms": at(0.95),
        "p99_ms": at(0.99),
        "longest_ms": gaps[-1],
        "in_time": sum(gap < 17.5 for gap in gaps) / len(gaps),
    }


def write(results: common.Results) -> Path:
    """The page of results."""
    part = results.parts["frames"]
    data, facts = part["data"], part["facts"]
    head = ["window", "pixels a CSS pixel", "moving layer", "frames/s at the start", "frames/s",
            "median ms", "p95 ms", "p99 ms", "longest ms", "in time"]  # fmt: skip
    rows = [
        [f"{row['width']} x {row['height']}", str(row["scale"]),
         f"{row['moving_scale']:.0f}", f"{row['start_per_s']:.1f}", f"{row['per_s']:.1f}",
         *(f"{row[name]:.1f}" for name in ("median_ms", "p95_ms", "p99_ms", "longest_ms")),
         f"{row['in_time']:.0%}"]
        for row in data["rows"]
    ]  # fmt: skip
    text = (
        "# Frames of the page\n\nWritten by `python benchmarks/page.py`.\n\n"
        f"{data['drivers']:,} moving drivers on the map, {data['asked_per_s']:,.0f} questions a"
        f" second, {INCIDENTS_S:g} incidents a second; Chromium {data['chromium']} without a"
        " window or a graphics card, drawing by software beside the server. A frame is in time"
        " when it comes within 17.5 ms of the one before. The first"
        f" {START_S:g} s with all drivers on the map are the start: the page loads what is there,"
        " and where frames stay under 50 a second it draws what moves at one pixel a CSS pixel"
        " (`moving layer`). The other columns are of what comes after.\n\n"
        + markdown_table(head, rows)
        + "\n![Times between frames](page.png)\n"
        + f"\n{facts['cpu']}, {facts['cores']} cores; {part['date']}, commit {part['commit']}.\n"
    )
    path = results.folder / "page.md"
    path.write_text(text, encoding="utf-8")
    _plot(data["rows"], results.folder / "page.png")
    return path


def _plot(rows: list[dict[str, Any]], path: Path) -> None:
    """Every time between two frames, one strip a window."""
    plt = pyplot()
    figure, axes = plt.subplots(
        len(rows), 1, figsize=(8, 1.5 * len(rows) + 0.6), layout="constrained", sharex=True,
        sharey=True, squeeze=False,
    )  # fmt: skip
    for row, strip in zip(rows, axes[:, 0], strict=True):
        seconds = [sum(row["gaps_ms"][: n + 1]) / 1000 for n in range(len(row["gaps_ms"]))]
        strip.plot(seconds, row["gaps_ms"], ".", markersize=3)
        strip.axvline(START_S, color="grey", linewidth=1, linestyle=":")
        strip.axhline(1000 / 60, color="grey", linewidth=1, linestyle=":")
        strip.set_ylim(0, max(70, strip.get_ylim()[1]))
        strip.set_title(
            f"{row['width']} x {row['height']}, {row['scale']} pixels a CSS pixel:"
            f" {row['per_s']:.1f} frames/s", fontsize=9,
        )  # fmt: skip
        strip.set_ylabel("ms")
    axes[-1, 0].set_xlabel("seconds; dotted: 60 frames a second, and the end of the start")
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--drivers", type=int, default=5_000)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--out", type=Path, default=common.RESULTS)
    options = parser.parse_args()
    results = common.Results(options.out, "page")
    results.put("frames", measure(options.drivers, options.seconds))
    say(f"wrote {write(results)}")


if __name__ == "__main__":
    main()
