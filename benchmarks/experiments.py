"""The papers' experiments with channels: layouts, self-joins, hierarchies, reads, little memory.

    python benchmarks/experiments.py [--only PART ...] [--size tiny|small|full] [--help]

Parts: simple (layouts dual, two and poll), selfjoin (dual and two), hierarchy (variable and fixed
granularity, by level and for circles), reads (component reads per operation), beyond (all of it
with windows larger than memory). Small is minutes; full is the papers' 15 million operations, in
sections of a million. Writes benchmarks/results/experiments.json, .md and one picture a question;
docs/experiments.md says what holds of the papers' claims.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # also from a clone that is not installed
    sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

from benchmarks import (
    common,
    experiments_beyond,
    experiments_hierarchy,
    experiments_reads,
    experiments_report,
    experiments_selfjoin,
    experiments_simple,
)
from benchmarks.common import say
from benchmarks.experiments_common import SIZES, Size
from benchmarks.experiments_simple import Run

PARTS: dict[str, Callable[[Size], Any]] = {
    "simple": lambda size: experiments_simple.measure(Run(size.sections, size.operations)),
    "selfjoin": lambda size: experiments_selfjoin.measure(Run(size.sections, size.operations)),
    "hierarchy": lambda size: experiments_hierarchy.measure(size.sections, size.tree_operations),
    "reads": experiments_reads.measure,
    "beyond": experiments_beyond.measure,
}


def parse_options(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="benchmarks/experiments.py",
        description="The experiments with channels. Results: benchmarks/results/experiments.*",
    )
    parser.add_argument(
        "--only", action="append", choices=list(PARTS), help="run this part; repeatable"
    )
    parser.add_argument(
        "--size", choices=list(SIZES), default="small",
        help="small: minutes (default); full: 15 million operations; tiny: does it run",
    )  # fmt: skip
    common.add_results(parser)
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> None:
    """Run what was asked for and write the results."""
    options = parse_options(arguments)
    results = common.Results(options.results, "experiments")
    experiments_simple.warm_up()
    for part in options.only or PARTS:
        begin = time.perf_counter()
        results.put(part, {"size": options.size} | PARTS[part](SIZES[options.size]))
        say(f"{part}: {time.perf_counter() - begin:.0f} s")
    for path in experiments_report.write(results):
        say(f"wrote {path}")


if __name__ == "__main__":
    main()
