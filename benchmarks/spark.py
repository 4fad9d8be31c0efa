"""How fast Tideline is on Spark: into the store, matching, its state, from event to answer.

    python benchmarks/spark.py [--only PART ...] [--size small|full] [--rounds N] [--help]

Parts: load, match, state, latency, each in a file of its own (benchmarks/spark_PART.py). The small
size takes minutes; the full one, with a million subscriptions and a million events to match, takes
longer. Writes benchmarks/results/spark.json, .md and .png. Each Spark session runs in a process of
its own; needs Java and `pip install 'tideline[spark,bench]'`.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # also from a clone that is not installed
    sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

from benchmarks import (
    common,
    spark_latency,
    spark_load,
    spark_match,
    spark_report,
    spark_state,
)
from benchmarks.common import say

PARTS = ["load", "match", "state", "latency"]


def versions() -> str:
    """Of Spark and of the Java it runs on."""
    from tideline.spark.session import find_java

    said = subprocess.run([find_java(), "-version"], capture_output=True, text=True, check=True)
    found = re.search(r'version "([^"]+)"', said.stderr + said.stdout)
    return f"pyspark {metadata.version('pyspark')}, java {found[1] if found else 'unknown'}"


def parse_options(arguments: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = common.parser(__doc__, parts=PARTS, sizes=["tiny", "small", "full"], rounds=3)
    parser.add_argument(
        "--rate", type=int, default=spark_latency.RATE, help="events a second of latency"
    )
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> None:
    """Run what was asked for and write the results."""
    options = parse_options(arguments)
    results = common.Results(options.results, "spark")

    def keep(part: str, outcome: dict[str, Any]) -> None:
        results.put(part, {**outcome, "size": options.size, "versions": versions()})

    parts = options.only or PARTS
    if "load" in parts:
        keep("load", spark_load.measure(options.size, options.rounds))
    if "match" in parts:
        keep("match", spark_match.measure(options.size, options.rounds))
    if "state" in parts:
        keep("state", spark_state.measure(options.size))
    if "latency" in parts:
        keep("latency", spark_latency.measure(options.size, options.rate))
    for path in spark_report.write(results):
        say(f"wrote {path}")


if __name__ == "__main__":
    main()
