"""Secondary indexes of collections: what each kind costs and gives, and ours beside others.

    python benchmarks/secondary.py [--only PART ...] [--scale 10] [--size small|full] [--help]

Parts: static (size, put, get, lookups by k and selectivity), mixed (write-, read- and update-heavy
mixes), bloom (the length of bloom filters), speed (beside SQLite and RocksDB). Scale 1 is 18
million tweets; the experiments that docs/experiments.md compares with are scale 10: 180 million
tweets and mixes of 50 million operations. Writes benchmarks/results/secondary.json, .md and one
picture a question.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

if __name__ == "__main__":  # also from a clone that is not installed
    sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

from benchmarks import common, secondary_mixed, secondary_report, secondary_speed, secondary_static
from benchmarks.common import say

PARTS = ["static", "mixed", "bloom", "speed"]
SEED_TWEETS = 18_000_000
SEED_OPERATIONS = 5_000_000
SEED_BLOOM = 2_000_000
BITS = (5, 10, 20, 50, 100, 200, 500, 1000)
SIZES = {"small": 500_000, "full": 5_000_000}


def parse_options(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="benchmarks/secondary.py",
        description="Index benchmarks. Results go to benchmarks/results/secondary.*",
    )
    parser.add_argument("--only", action="append", choices=PARTS, help="run this part; repeatable")
    parser.add_argument(
        "--scale", type=float, default=1 / 60,
        help="of static, mixed and bloom; 10 is 180 million tweets (default 1/60: 300,000)",
    )  # fmt: skip
    parser.add_argument(
        "--size", choices=list(SIZES), default="small", help="tweets of speed: 500,000 or 5,000,000"
    )
    parser.add_argument("--count", type=int, help="tweets of static and of speed, instead")
    parser.add_argument("--operations", type=int, help="operations of a mix, instead")
    parser.add_argument("--gets", type=int, default=3_000, help="default 3000")
    parser.add_argument("--lookups", type=int, default=300, help="of a sort, at most (default 300)")
    parser.add_argument(
        "--cell-s", type=float, default=0.3, help="seconds for the queries of a sort (default 0.3)"
    )
    common.add_results(parser)
    options = parser.parse_args(arguments)
    options.speed_count = options.count or SIZES[options.size]
    options.count = options.count or max(1_000, round(options.scale * SEED_TWEETS))
    options.operations = options.operations or max(1_000, round(options.scale * SEED_OPERATIONS))
    return options


def main(arguments: list[str] | None = None) -> None:
    """Run what was asked for and write the results."""
    options = parse_options(arguments)
    parts = options.only or PARTS
    results = common.Results(options.results, "secondary")
    if "speed" in parts:
        results.put("speed", secondary_speed.measure(options.speed_count))
    if "static" in parts:
        results.put("static", secondary_static.measure(options))
    if "mixed" in parts:
        results.put("mixed", secondary_mixed.measure(options.operations))
    if "bloom" in parts:
        count = max(1_000, round(options.count * SEED_BLOOM / SEED_TWEETS * 3))
        results.put("bloom", secondary_mixed.measure_bloom(count, options.lookups, BITS))
    for path in secondary_report.write(results):
        say(f"wrote {path}")


if __name__ == "__main__":
    main()
