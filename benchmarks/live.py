"""How fast live queries are: matching, over a server as in the paper, a million of them, peers.

    python benchmarks/live.py [--only PART ...] [--size tiny|small|full] [--rounds N] [--help]

Parts, each in a file of its own: matching (live_matching.py), paper (live_served.py), million
(live_million.py), peers (live_peers.py). The small size takes minutes; the full one has a million
queries and minutes of writing for every step. Writes benchmarks/results/live.json, .md and .png.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # also from a clone that is not installed
    sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

from benchmarks import (
    common,
    live_matching,
    live_million,
    live_peers,
    live_report,
    live_served,
)
from benchmarks.common import say

PARTS = ["matching", "paper", "million", "peers"]


def parse_options(arguments: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = common.parser(__doc__, parts=PARTS, sizes=["tiny", "small", "full"], rounds=3)
    parser.add_argument("--limit", type=Path, metavar="DIR", help="the folder of the prototype")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> None:
    """Run what was asked for and write the results."""
    options = parse_options(arguments)
    results = common.Results(options.results, "live")
    size = options.size

    def keep(part: str, outcome: dict[str, Any]) -> None:
        results.put(part, {**outcome, "size": size})

    parts = options.only or PARTS
    if "matching" in parts:
        sizes = live_matching.SIZES[size]
        keep("matching", live_matching.measure(sizes, options.rounds, options.limit))
    if "paper" in parts:
        keep("paper", live_served.measure(size))
    if "million" in parts:
        keep("million", live_million.measure(size))
    if "peers" in parts:
        keep("peers", live_peers.measure(size))
    for path in live_report.write(results):
        say(f"wrote {path}")


if __name__ == "__main__":
    main()
