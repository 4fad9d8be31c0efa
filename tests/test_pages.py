"""Pages are made beside the writers: a write seldom stands still for the operating system."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tideline
from tideline.index import memory
from tideline.lsm import pages
from tideline.testing import ManualClock

linux = pytest.mark.skipif(sys.platform != "linux", reason="asks Linux for pages")


@pytest.mark.parametrize(("first", "count"), [(0, 1 << 18), (3, 1), (511, 2), (100_000, 7_777)])
def test_fetching_pages_changes_no_byte(first: int, count: int) -> None:
    words = pages.zeros(1 << 19)
    words[::1000] = np.arange(len(words[::1000]))
    before = words.copy()
    pages.fetch(words.ctypes.data + first * 8, count * 8)
    assert (words == before).all()


@linux
def test_a_database_larger_than_the_machine_leaves_room_to_start_programs(tmp_path: Path) -> None:
    """Addresses are reserved, not memory: a fork, which copies all that is counted, goes on."""
    with tideline.open(tmp_path, memory_mb=1 << 20) as db:
        news = db.channel("news")
        tweets = db.collection("tweets", key="id", indexes={"user": "lazy", "time": "embedded"})
        told = news.publish("a", {}, id="e1")
        tweets.put({"id": 1, "user": 2, "time": 3})
        # `preexec_fn` makes it a fork, as Spark's start is one
        subprocess.run([sys.executable, "-c", ""], check=True, preexec_fn=os.getpid)
        assert news.find("a") == [told.event]
        assert [doc["id"] for doc in tweets.lookup("user", 2)] == [1]


def faults_of_writes(folder: Path) -> int:
    """Pages the writer's own thread had to wait for while 25 MB of events came in."""
    clock = ManualClock(1_000)
    with tideline.open(folder, clock=clock, memory_mb=512) as db:
        channel = db.channel("c")
        body = {"fill": "x" * 200}
        met = 0
        for number in range(60_000):
            if number % 256 == 0:
                channel.core.engine.drain()  # it had its time
            before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
            channel.publish(f"p{number}", body, id=f"e{number}", ttl_s=3_600)
            met += resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before
        channel.core.engine.drain()
        assert len(channel.find("p7")) == 1
        return met


@linux
def test_a_writer_meets_few_pages_that_are_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults_of_writes(tmp_path / "first")  # loads code, which is met as pages too
    fetched = faults_of_writes(tmp_path / "fetched")
    monkeypatch.setattr(memory, "fetch", lambda address, size: None)  # as if there were none
    plain = faults_of_writes(tmp_path / "plain")
    assert fetched * 2 < plain


def test_a_table_that_will_be_needed_is_ready(tmp_path: Path) -> None:
    """And one that was made for nothing does not stay."""
    with tideline.open(tmp_path / "data", clock=ManualClock(1_000)) as db:
        channel = db.channel("c")
        held = channel.core.engine.sides[0].memory
        ready = set()
        for number in range(60_000):
            channel.publish(f"p{number}", 1, id=f"e{number}", ttl_s=3_600)
            ready |= held._spares.keys()
        channel.core.engine.drain()
        used = {len(held._dir), len(held._ids)}
        assert used & ready
        assert sum(spare.nbytes for spare in held._spares.values()) <= 2 * held.size_bytes
