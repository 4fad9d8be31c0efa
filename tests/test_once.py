"""`apply(once=)`: a writer's batch lands once, whatever is repeated, cut or killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tideline
from tideline import InvalidRequest
from tideline.channel import batch
from tideline.testing import ManualClock

START = datetime(2026, 1, 1, tzinfo=UTC)


def events(count: int, *, ids: bool = True, first: int = 0) -> pa.Table:
    rows: list[dict[str, Any]] = [
        {"op": "publish", "place": "a", "at": START + timedelta(milliseconds=n), "body": "{}"}
        for n in range(first, first + count)
    ]
    if ids:
        for n, row in enumerate(rows, first):
            row["id"] = f"e{n}"
    return pa.Table.from_pylist(rows)


def clock() -> ManualClock:
    return ManualClock(START.timestamp())


def test_a_repeated_batch_changes_nothing(tmp_path: Path) -> None:
    with tideline.open(tmp_path, clock=clock()) as db:
        news = db.channel("news")
        first = news.apply(events(3, ids=False), once=("w", 0))
        again = news.apply(events(3, ids=False), once=("w", 0))
        assert (first.repeated, again.repeated) == (False, True)
        assert (again.answers.num_rows, again.rejected.num_rows) == (0, 0)
        assert news.stats().events == 3


def test_an_older_number_is_a_repeat_and_a_higher_one_is_not(tmp_path: Path) -> None:
    with tideline.open(tmp_path, clock=clock()) as db:
        news = db.channel("news")
        assert not news.apply(events(1, ids=False), once=("w", 5)).repeated
        assert news.apply(events(1, ids=False), once=("w", 4)).repeated
        assert not news.apply(events(1, ids=False), once=("w", 9)).repeated
        assert not news.apply(events(1, ids=False), once=("other", 4)).repeated
        assert news.stats().events == 3


@pytest.mark.parametrize("sealed", [False, True])
def test_writers_are_remembered_after_reopening(tmp_path: Path, sealed: bool) -> None:
    with tideline.open(tmp_path, clock=clock()) as db:
        news = db.channel("news")
        news.apply(events(2, ids=False), once=("w", 1))
        if sealed:
            news.seal()
    with tideline.open(tmp_path, clock=clock()) as db:
        assert db.channel("news").apply(events(2, ids=False), once=("w", 1)).repeated
        assert db.channel("news").stats().events == 2


def test_a_batch_that_stores_nothing_counts_too(tmp_path: Path) -> None:
    bad = pa.table({"op": ["nonsense"], "at": [START]})
    with tideline.open(tmp_path, clock=clock()) as db:
        news = db.channel("news")
        assert news.apply(bad, once=("w", 1)).rejected.num_rows == 1
        assert news.apply(events(1).slice(0, 0), once=("w", 2)).rejected.num_rows == 0
    with tideline.open(tmp_path, clock=clock()) as db:
        news = db.channel("news")
        assert news.apply(events(1), once=("w", 2)).repeated
        assert not news.apply(events(1), once=("w", 3)).repeated


def test_a_batch_cut_in_the_middle_goes_on_from_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "_MOST_ROWS", 10)
    with tideline.open(tmp_path, clock=clock()) as db:
        news = db.channel("news")
        log = news.core.engine.store.log
        append, frames = log.append_parts, 0

        def refuse(payload: Any) -> Any:
            nonlocal frames
            frames += 1
            if frames == 3:
                raise tideline.Unavailable("no room", file="log")
            return append(payload)

        monkeypatch.setattr(log, "append_parts", refuse)
        with pytest.raises(tideline.Unavailable):
            news.apply(events(35, ids=False), once=("w", 1))
        assert news.stats().events == 20
        done = news.apply(events(35, ids=False), once=("w", 1))
        assert not done.repeated
        assert news.stats().events == 35
        assert news.apply(events(35, ids=False), once=("w", 1)).repeated


KILLED = """
    import os, sys
    import tideline
    from tideline.channel import batch
    sys.path.insert(0, {tests!r})
    from test_once import clock, events
    batch._MOST_ROWS = 100
    db = tideline.open({folder!r}, clock=clock())
    news = db.channel("news")
    append = news.core.engine.store.log.append_parts
    frames = 0
    def append_and_die(payload):
        global frames
        frames += 1
        done = append(payload)
        if frames == {frame}:
            os.kill(os.getpid(), 9)
        return done
    news.core.engine.store.log.append_parts = append_and_die
    news.apply(events(1000, ids=False), once=("w", 7))
"""


@pytest.mark.parametrize("frame", [1, 4, 10])
def test_a_killed_batch_is_healed_by_the_same_batch(tmp_path: Path, frame: int) -> None:
    script = textwrap.dedent(KILLED).format(
        folder=str(tmp_path / "db"), tests=str(Path(__file__).parent), frame=frame
    )
    died = subprocess.run([sys.executable, "-c", script], env=os.environ, check=False)
    assert died.returncode == -signal.SIGKILL
    with tideline.open(tmp_path / "db", clock=clock()) as db:
        news = db.channel("news")
        assert news.stats().events == 100 * frame
        assert news.apply(events(1000, ids=False), once=("w", 7)).repeated == (frame == 10)
        assert news.stats().events == 1000


@pytest.mark.parametrize(
    "once", ["w", ("w",), ("", 1), ("w", -1), ("w", 1.5), ("w", True), (1, 1), ("x" * 300, 1)]
)
def test_wrong_marks_are_refused(once: Any) -> None:
    with tideline.open(":memory:") as db, pytest.raises(InvalidRequest):
        db.channel("news").apply(events(1), once=once)


def test_the_writers_not_heard_of_for_longest_are_forgotten() -> None:
    from tideline.channel.writers import Writers

    writers = Writers([])
    for n in range(10_001):
        writers.note(f"w{n}", 1, tideline.clock.FOREVER)
    assert writers.landed("w0", 1) == 0
    assert writers.landed("w1", 1) is None
