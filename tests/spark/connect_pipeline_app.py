"""A client of Spark Connect that runs a pipeline into a server of Tideline's, twice.

Run by test_connect.py with SPARK_REMOTE set; prints the counts of both runs as a line of JSON.
"""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tideline.spark import Pipeline, session

NOW = datetime.now(UTC)


def write(file: Path, *numbers: int, also: str = "") -> None:
    rows = [
        {"id": f"e{n}", "at": (NOW - timedelta(seconds=n)).isoformat(), "road": f"r{n % 3}"}
        for n in numbers
    ]
    file.write_text("\n".join(map(json.dumps, rows)) + f"\n{also}", encoding="utf-8")


def main(url: str, folder: Path) -> None:
    config: dict[str, Any] = {
        "name": "roads",
        "source": {"format": "json", "path": str(folder / "in")},
        "schema": {"id": "string", "at": "timestamp", "road": "string"},
        "place": {"column": "road"},
        "deduplicate": {"by": ["id"], "within_s": 600},
        "store": {"url": url, "channel": "roads"},
        "operation": {"id": "id", "ttl_s": 36_000},
        "run": {"checkpoint": str(folder / "checkpoint")},
        "spark": {"config": {"spark.sql.shuffle.partitions": "2"}},
    }
    (folder / "in").mkdir()
    write(folder / "in" / "a.json", *range(20), 3, also="not json\n")
    spark, counts = session(), []
    for _ in range(2):
        summary = Pipeline(config).run(spark=spark)
        counts.append(summary.counts)
        write(folder / "in" / "b.json", *range(20, 25))
    print(json.dumps({"counts": counts, "totals": summary.totals}))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
