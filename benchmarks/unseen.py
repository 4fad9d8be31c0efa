"""What asking again costs, the longer people ask: with `unseen`, and without.

    python benchmarks/unseen.py [--users N] [--seconds S] [--help]

N couriers ask every second about the 20 km around them, ten minutes back and 20 s ahead; two events
happen in a second and stay valid for ten minutes. One channel is asked with `unseen=True`, another
one without, by turns, second by second; the clock is moved by hand. With `unseen` a courier gets
only what is new to them; without, everything again. Writes unseen.json, unseen.md and unseen.png
to benchmarks/results/.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # also from a clone that is not installed
    sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

from benchmarks import common
from benchmarks.common import markdown_table, pyplot, say

EVENTS_S = 2
RADIUS_M = 20_000
VALID_S = 600
SHOWN_S = 10  # seconds of one row
KINDS = ("unseen", "plain")


def measure(users: int, seconds: int) -> list[dict[str, Any]]:
    """Microseconds of an ask and of a publish, by kind, for every few seconds."""
    import tideline
    from tideline import Circle, QuadTree
    from tideline.testing import ManualClock

    rng = random.Random(1)
    clock = ManualClock(1_790_000_000)
    rows: list[dict[str, Any]] = []
    with common.scratch() as folder, tideline.open(folder / "db", clock=clock) as db:
        space = QuadTree(bounds=(-79.8, 40.4, -71.8, 45.1), depth=9)
        channels = {kind: db.channel(kind, space=space) for kind in KINDS}
        where = [[rng.gauss(-74, 0.1), rng.gauss(40.8, 0.08)] for _ in range(users)]
        taken: dict[str, list[float]] = {f"{kind} {what}": [] for kind in KINDS
                                         for what in ("ask", "publish")}  # fmt: skip
        given = dict.fromkeys(KINDS, 0)
        for second in range(1, seconds + 1):
            clock.advance(1)
            for place in where:
                place[0] += rng.gauss(0, 0.002)
            happened = [(rng.gauss(-74, 0.1), rng.gauss(40.8, 0.08)) for _ in range(EVENTS_S)]
            for kind in KINDS if second % 2 else reversed(KINDS):
                channel = channels[kind]
                begun = time.perf_counter()
                for number, place in enumerate(where):
                    sub = channel.subscribe(
                        Circle((place[0], place[1]), RADIUS_M), user=f"u{number}",
                        since_s=-VALID_S, until_s=20, unseen=kind == "unseen",
                    )  # fmt: skip
                    given[kind] += len(sub.past)
                asked = time.perf_counter()
                for place in happened:
                    channel.publish(place, {"second": second}, ttl_s=VALID_S)
                taken[f"{kind} ask"].append((asked - begun) / users * 1e6)
                taken[f"{kind} publish"].append((time.perf_counter() - asked) / EVENTS_S * 1e6)
            if second % SHOWN_S == 0:
                row = {name: statistics.median(values) for name, values in taken.items()}
                rows.append({"second": second, "given": dict(given), **row})
                say(f"{second:4d} s: " + ", ".join(f"{n} {v:,.0f} us" for n, v in row.items()))
                taken = {name: [] for name in taken}
                given = dict.fromkeys(KINDS, 0)
    return rows


def write(results: common.Results) -> Path:
    """The page of results."""
    part = results.parts["asking"]
    data, facts = part["data"], part["facts"]
    rows = data["rows"]
    head = ["after s", "unseen: ask, us", "past answers an ask", "plain: ask, us",
            "past answers an ask", "unseen to plain"]  # fmt: skip
    asks = data["users"] * SHOWN_S
    lines = [
        [str(row["second"]), f"{row['unseen ask']:.1f}", f"{row['given']['unseen'] / asks:.2f}",
         f"{row['plain ask']:.1f}", f"{row['given']['plain'] / asks:.1f}",
         f"{row['unseen ask'] / row['plain ask']:.2f}"]
        for row in rows
    ]  # fmt: skip
    flat = rows[-1]["unseen ask"] / rows[0]["unseen ask"]
    text = (
        "# Asking again\n\nWritten by `python benchmarks/unseen.py`.\n\n"
        f"{data['users']} couriers ask every second about the {RADIUS_M // 1000} km around them,"
        f" {VALID_S // 60} minutes back; {EVENTS_S} events a second stay valid for as long. An ask"
        " makes its past answers into objects: without `unseen` that is most of it. The last row"
        f" takes {flat:.2f} times what the first takes with `unseen`, while what must be looked at"
        " grows with the events that are valid.\n\n"
        + markdown_table(head, lines)
        + "\n![Microseconds of an ask](unseen.png)\n"
        + f"\n{facts['cpu']}, {facts['cores']} cores; {part['date']}, commit {part['commit']}.\n"
    )
    path = results.folder / "unseen.md"
    path.write_text(text, encoding="utf-8")
    _plot(rows, results.folder / "unseen.png")
    return path


def _plot(rows: list[dict[str, Any]], path: Path) -> None:
    plt = pyplot()
    figure, axes = plt.subplots(figsize=(7, 3.5), layout="constrained")
    for kind in KINDS:
        axes.plot([row["second"] for row in rows], [row[f"{kind} ask"] for row in rows], "o-",
                  markersize=3, label="with unseen" if kind == "unseen" else "without")  # fmt: skip
    axes.set_xlabel("seconds that people have asked for, once a second")
    axes.set_ylabel("microseconds of an ask")
    axes.set_ylim(0)
    axes.legend()
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--users", type=int, default=300)
    parser.add_argument("--seconds", type=int, default=120)
    parser.add_argument("--out", type=Path, default=common.RESULTS)
    options = parser.parse_args()
    results = common.Results(options.out, "unseen")
    rows = measure(options.users, max(options.seconds, SHOWN_S))
    results.put("asking", {"users": options.users, "rows": rows})
    say(f"wrote {write(results)}")


if __name__ == "__main__":
    main()
