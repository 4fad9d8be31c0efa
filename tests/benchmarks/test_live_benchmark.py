"""The benchmark of live queries counts right, and its parts run in small."""

from __future__ import annotations

import random
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from benchmarks import live, live_load, live_million, live_report, live_served
from benchmarks.common import Results


def test_changes_are_counted_once_however_the_stream_is_cut() -> None:
    stream = b"".join(
        b'\x81\x7e\x01\x10{"tag":%d,"changes":[["%b",%d,null,%b{"t":%d,"n":%d,"id":3}]],"version":9}'
        % (n, *((b"add", n, b"") if n % 2 else (b"change", n, b"%d," % n)), 10**15 + n, n)
        for n in range(200)
    )
    for seed in range(20):
        draw = random.Random(seed)
        line = live_load.Line(None)
        found: list[tuple[bytes, bytes]] = []
        at = 0
        while at < len(stream):
            size = draw.choice([1, 7, 60, 300, 2_000])
            found += line.changes(stream[at : at + size])
            at += size
        assert [int(n) for _, n in found] == list(range(200))
        assert [int(t) - 10**15 for t, _ in found] == list(range(200))


def test_of_the_papers_queries_so_many_meet_one_document_each() -> None:
    import msgspec

    made = [
        msgspec.json.decode(where)["random"] for where in live_served.queries(500, 3, 7, 90, 40)
    ]
    written = np.array([live_served.random_of(n) for n in range(7, 97)])
    assert len(set(written.tolist())) == 90
    met = [int(((written >= one["$gte"]) & (written < one["$lt"])).sum()) for one in made]
    assert met == [1] * 40 + [0] * 460


@pytest.mark.long
def test_what_is_on_its_way_from_before_is_not_counted() -> None:
    """Changes of the load once were, when they came late: a machine with other work showed it."""
    found = live_million.measure("tiny")
    assert found["quiet"]["right"]
    assert found["churned"]["right"]


def test_small_runs_write_a_page(tmp_path: Path) -> None:
    live.main(["--size", "tiny", "--rounds", "1", "--only", "matching", "--results", str(tmp_path)])
    with ExitStack() as stack:
        bench = live_served.Bench(stack)
        steps = [bench.step(queries, 400, 0.5) for queries in (300, 500)]
    assert [step["queries"] for step in steps] == [300, 500]
    assert all(step["right"] and step["count"] == 200 for step in steps)
    results = Results(tmp_path, "live")
    results.put("paper", {
        "size": "tiny", "seconds": 0.5, "rate": 400, "queries": steps, "writes": steps,
        "alone": steps[0], "sustained_queries": live_served.sustained(steps, "queries"),
        "sustained_writes": live_served.sustained(steps, "rate"),
    })  # fmt: skip
    page, picture = live_report.write(results)
    assert "## Matching" in page.read_text()
    assert "figure 4" in page.read_text()
    assert picture.stat().st_size > 0
