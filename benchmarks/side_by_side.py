"""Tideline beside other systems that could do its work: the same operations, the same answers.

    python benchmarks/side_by_side.py [--only PART ...] [--system KEY ...] [--size SIZE] [--help]

Parts: speed (operations/s, all systems by turns), single (p50 and p99 of one operation), room
(memory and disk), can (what each can do, tried), growth (from 10 thousand live subscriptions up).
Systems: tideline, sqlite and rocksdb inside the process; tideline-server, postgres, redis and nats
over a local socket. One that is not installed is named and left out (scripts/peers.sh installs the
servers). Writes benchmarks/results/side-by-side.json, .md and pictures.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

if __name__ == "__main__":  # also from a clone that is not installed
    sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

from benchmarks import (
    common,
    side_can,
    side_growth,
    side_report,
    side_room,
    side_single,
    side_speed,
)
from benchmarks.common import say
from benchmarks.side_common import SIZES, SYSTEMS, find_systems

PARTS = {
    "speed": side_speed.measure,
    "single": side_single.measure,
    "room": side_room.measure,
    "can": side_can.measure,
    "growth": side_growth.measure,
}


def parse_options(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=PARTS, metavar="PART", help="parts to run")
    parser.add_argument(
        "--system", nargs="+", choices=SYSTEMS, metavar="KEY", default=list(SYSTEMS),
        help="systems to run",
    )  # fmt: skip
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--results", type=Path, default=common.RESULTS, help="folder to write to")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> None:
    """Run the parts and write the page."""
    options = parse_options(arguments)
    systems, missing = find_systems(options.system)
    results = common.Results(options.results, "side-by-side")
    for part in options.only or PARTS:
        begin = time.perf_counter()
        outcome = PARTS[part](systems, SIZES[options.size])
        results.put(part, {
            "size": options.size, "missing": missing, "systems": outcome,
            "versions": {system.key: system.load().version() for system in systems},
        })  # fmt: skip
        say(f"{part} took {time.perf_counter() - begin:.0f} s")
    for path in side_report.write(results):
        say(f"wrote {path}")


if __name__ == "__main__":
    main()
