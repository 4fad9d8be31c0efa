"""The load of the server's benchmark counts right, however the stream is cut, and runs."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from benchmarks import server, server_report
from benchmarks.common import Results
from benchmarks.server_load import Line, body


@pytest.mark.parametrize("seed", range(20))
def test_events_are_counted_once_however_the_stream_is_cut(seed: int) -> None:
    draw = random.Random(seed)
    stream = b"".join(
        b'\x81\x7e\x01\x10{"tag":%d,"event":{"id":"x-%d","body":%b},"token":"%018d"}\n'
        % (n, n, body(draw.randrange(10**18), n), n)
        for n in range(200)
    )
    line, found, at = Line(None), [], 0
    while at < len(stream):
        size = draw.choice([1, 7, 60, 300, 2_000])
        found += line.events(stream[at : at + size])
        at += size
    assert [int(n) for _, n in found] == list(range(200))
    replies, at, total = Line(None), 0, 0
    while at < len(stream):
        size = draw.randint(1, 400)
        total += replies.count(stream[at : at + size], b'"token":')
        at += size
    assert total == 200


@pytest.mark.long
@pytest.mark.skipif(shutil.which("redis-server") is None, reason="needs redis-server")
def test_a_small_run_writes_its_page(tmp_path: Path) -> None:
    results = Results(tmp_path, "server")
    found = server.measure_latency([200], 300, 0.5, 1)
    assert all(one["right"] for one in found["sizes"]["200"].values())
    results.put("latency", found)
    delivered = server.measure_deliver(0.2, 1, [3])
    assert all(one["right"] for one in delivered["fanouts"]["3"].values())
    results.put("deliver", delivered)
    [page] = server_report.write(results)
    assert "## From publish to delivery" in page.read_text()
