"""The checkpoint: batches are decided once and stored once, over kills, copies and mix-ups."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import feed_worker
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pipelines import dead, scan, time_of

import tideline
from tideline.errors import Conflict, Corruption, Unavailable
from tideline.spark.pipeline.counts import FATES, add_up
from tideline.spark.pipeline.feed import feed
from tideline.spark.pipeline.run import check_store
from tideline.spark.pipeline.seen import DUPLICATE, LATE, NEW, PASSED, Seen
from tideline.spark.pipeline.sift import sift
from tideline.spark.pipeline.state import State

SOURCE = Path(tideline.__file__).resolve().parents[1]

# ---- seen --------------------------------------------------------------------------------------

BATCHES = st.lists(
    st.lists(st.tuples(st.integers(0, 12), st.integers(0, 200), st.booleans()), max_size=12),
    max_size=8,
)


def plain(batches: list[list[tuple[int, int, bool]]], within: int) -> list[list[int]]:
    """The verdicts by definition: a dict of every key ever taken, nothing forgotten."""
    latest: dict[int, int] = {}
    newest: int | None = None
    out = []
    for batch in batches:
        oldest = None if newest is None else newest - within
        verdicts = []
        for key, time, bad in batch:
            if bad:
                verdicts.append(PASSED)
                continue
            newest = time if newest is None else max(newest, time)
            if oldest is not None and time < oldest:
                verdicts.append(LATE)
            elif key in latest and abs(time - latest[key]) < within:
                verdicts.append(DUPLICATE)
            else:
                latest[key] = max(time, latest.get(key, time))
                verdicts.append(NEW)
        out.append(verdicts)
    return out


@given(BATCHES, st.integers(1, 60), st.sets(st.integers(0, 8)))
def test_duplicates_and_late_rows_are_those_of_the_definition(
    batches: list[list[tuple[int, int, bool]]], within: int, restarts: set[int]
) -> None:
    """With what a restart reads back in the place of what was in memory."""
    seen = Seen(within)
    kept = []
    found = []
    for number, batch in enumerate(batches):
        if number in restarts:
            again = Seen(within, seen.newest)
            for keys in kept:
                again.add(keys)
            seen = again
        key = np.array([row[0] for row in batch], np.int64)
        time = np.array([row[1] for row in batch], np.int64)
        verdict = np.array([PASSED if row[2] else NEW for row in batch], np.uint8)
        kept.append(seen.judge(key, key * 3, time, verdict))
        found.append(verdict.tolist())
    assert found == plain(batches, within)


def test_keys_that_no_row_can_repeat_are_let_go() -> None:
    seen = Seen(within_us=100)
    for second in range(200):
        key = np.arange(second * 1000, second * 1000 + 1000)
        seen.judge(key, key, np.full(1000, second * 50), np.zeros(1000, np.uint8))
    assert len(seen._table[0]) <= 1 << 15


# ---- state -------------------------------------------------------------------------------------

FACTS = {"read": 2, "duplicate": 1, "late": 0, "filtered": 0, "dead": 0, "newest": 5}


def open_state(folder: Path, **identity: Any) -> State:
    return State(folder / "checkpoint", {"name": "n", **identity}, 7)


def queue(state: State, number: int) -> None:
    state.queue(number, pa.table({"id": ["a"]}), None, None, FACTS, sync=True)


def finish(state: State, number: int) -> None:
    counts = {"read": 2, "stored": 1, "duplicate": 1, "late": 0, "filtered": 0, "dead": 0}
    state.finish(number, counts, {"newest": 5}, sync=True)


def test_a_batch_is_queued_then_done_and_totals_grow(tmp_path: Path) -> None:
    state = open_state(tmp_path)
    assert (state.queued, state.done, state.started_us) == (-1, -1, 7)
    queue(state, 0)
    queue(state, 1)
    finish(state, 0)
    state.close()
    again = open_state(tmp_path)
    assert (again.queued, again.done, again.waiting(), again.read) == (1, 0, [1], 4)
    assert again.totals["read"] == 2
    assert again.load(1)[0].to_pylist() == [{"id": "a"}]
    finish(again, 1)
    again.close()
    last = open_state(tmp_path)
    assert (last.done, last.totals["stored"], last.last["newest"]) == (1, 2, 5)
    last.close()


def test_half_a_batch_and_half_a_line_are_as_if_they_never_were(tmp_path: Path) -> None:
    state = open_state(tmp_path)
    queue(state, 0)
    finish(state, 0)
    state.close()
    (tmp_path / "checkpoint" / "queue" / ".1").mkdir()
    with (tmp_path / "checkpoint" / "batches.jsonl").open("ab") as file:
        file.write(b'{"batch": 1, "cou')
    again = open_state(tmp_path)
    assert (again.queued, again.done) == (0, 0)
    queue(again, 1)
    finish(again, 1)
    again.close()
    assert open_state(tmp_path).totals["read"] == 4


def test_a_batch_whose_line_is_written_is_not_done_again(tmp_path: Path) -> None:
    """A kill between the line and the removal of the folder."""
    state = open_state(tmp_path)
    queue(state, 0)
    kept = tmp_path / "checkpoint" / "queue" / "0"
    shutil.copytree(kept, tmp_path / "kept")
    finish(state, 0)
    state.close()
    shutil.copytree(tmp_path / "kept", kept)
    again = open_state(tmp_path)
    assert (again.queued, again.done, again.waiting()) == (0, 0, [])
    again.close()


def test_two_runs_at_a_time_are_refused(tmp_path: Path) -> None:
    state = open_state(tmp_path)
    with pytest.raises(Unavailable, match=f"pid {os.getpid()}"):
        open_state(tmp_path)
    state.close()


def test_a_checkpoint_of_another_pipeline_is_refused(tmp_path: Path) -> None:
    open_state(tmp_path, source={"path": "a"}).close()
    with pytest.raises(Conflict, match=r"its source is another.*checkpoint_has=.*'a'"):
        open_state(tmp_path, source={"path": "b"})
    with pytest.raises(Conflict, match="its name is another"):
        State(tmp_path / "checkpoint", {"name": "m"}, 7)


def test_a_folder_that_spark_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "checkpoint" / "offsets").mkdir(parents=True)
    with pytest.raises(Conflict, match="no pipeline made"):
        open_state(tmp_path)


def test_damage_is_reported_with_the_file(tmp_path: Path) -> None:
    state = open_state(tmp_path)
    queue(state, 0)
    finish(state, 0)
    state.close()
    lines = tmp_path / "checkpoint" / "batches.jsonl"
    lines.write_bytes(b"{]\n" + lines.read_bytes())
    with pytest.raises(Corruption, match=r"batches\.jsonl is damaged.*line=1"):
        open_state(tmp_path)
    (tmp_path / "checkpoint" / "pipeline.json").write_text("{")
    with pytest.raises(Corruption, match=r"pipeline\.json"):
        open_state(tmp_path)


def test_sparks_part_from_an_older_copy_is_refused(tmp_path: Path) -> None:
    offsets = tmp_path / "checkpoint" / "spark" / "offsets"
    state = open_state(tmp_path)
    offsets.mkdir(parents=True)
    (offsets / "0").write_text("v1\n{}\n5")
    queue(state, 0)
    state.close()
    open_state(tmp_path).close()
    (offsets / "0").write_text("v1\n{}\n6")
    with pytest.raises(Conflict, match="Spark's part of the checkpoint is not the one"):
        open_state(tmp_path)
    shutil.rmtree(offsets)
    with pytest.raises(Conflict, match="Spark's part of the checkpoint is not the one"):
        open_state(tmp_path)


def test_the_lines_of_a_long_life_stay_few(tmp_path: Path) -> None:
    state = open_state(tmp_path)
    for number in range(2_100):
        state.queued = number
        (tmp_path / "checkpoint" / "queue" / str(number)).mkdir()
        finish(state, number)
    state.close()
    assert len((tmp_path / "checkpoint" / "batches.jsonl").read_bytes().splitlines()) < 2_001
    assert open_state(tmp_path).totals["read"] == 4_200


# ---- store and checkpoint ----------------------------------------------------------------------


def queued(folder: Path, number: int, rows: int, state: State, seen: Seen) -> Any:
    sifted = sift(feed_worker.batch(number, rows), feed_worker.told(folder), seen, 1)
    facts = {**sifted.counts, "newest": seen.newest, "read_us": 1, "spark_s": 0.0, "sift_s": 0.0}
    state.queue(number, sifted.operations, sifted.dead, sifted.keys, facts, sync=False)
    return number, sifted.operations, sifted.dead, facts


def test_a_row_from_the_future_moves_neither_the_store_nor_what_is_late(tmp_path: Path) -> None:
    settings, now_us = feed_worker.told(tmp_path), round(time_of(0).timestamp() * 1e6)
    table = feed_worker.batch(0, 10)  # row 3 repeats, 5 is bad, 7 is no JSON
    day = 86_400_000_000
    at = table["at"].cast(pa.int64()).to_numpy().copy()
    at[[2, 8]] += day
    times = pa.array(at).cast(table["at"].type)
    table = table.set_column(table.column_names.index("at"), "at", times)
    table = table.set_column(table.column_names.index("_time"), "_time", pa.array(at))
    seen = Seen(10_000_000_000)
    sifted = sift(table, settings, seen, now_us, 60.0)
    assert seen.newest == now_us
    assert sifted.counts == {"read": 10, "duplicate": 0, "late": 0, "filtered": 0, "dead": 3}
    assert sifted.operations["id"].to_pylist() == ["e0", "e1", "e2", "e4", "e6", "e7", "e9"]
    assert sifted.dead is not None
    assert [(row["stage"], row["reason"][:25]) for row in sifted.dead.to_pylist()] == [
        ("clean", "bad"),
        ("store", "at is more than 60 s ahea"),
        ("store", "at is more than 60 s ahea"),
    ]
    assert json.loads(sifted.dead["text"][1].as_py())["id"] == "e2"
    # Without a limit, as before: the day moves what is late.
    sift(feed_worker.batch(0, 10), settings, seen, now_us)
    assert sift(table, settings, seen, now_us).counts["dead"] == 1
    assert seen.newest == now_us + day


def test_a_row_that_nobody_wants_is_no_dead_letter_for_being_ahead(tmp_path: Path) -> None:
    table = feed_worker.batch(0, 2).append_column("_met", pa.array([False, True]))
    before = round(time_of(-86_400).timestamp() * 1e6)
    sifted = sift(table, feed_worker.told(tmp_path), None, before, 60.0)
    assert (sifted.counts["filtered"], sifted.counts["dead"]) == (1, 1)
    assert sifted.operations.num_rows == 0


CRASHES = [
    "before apply",
    "after apply",
    "after the dead letters",
    "after the archive",
    "at the line",
]


class Crash(BaseException):
    """Stands for a kill at one point: nothing after it happens."""


@pytest.mark.parametrize("point", CRASHES)
def test_a_batch_is_stored_once_wherever_it_is_cut(
    point: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = feed_worker.told(tmp_path)

    def crash(*_: Any, **__: Any) -> Any:
        raise Crash

    with tideline.open(tmp_path / "data") as db:
        channel = db.channel("c")
        state = open_state(tmp_path)
        job = queued(tmp_path, 0, 100, state, Seen(10**10))
        with monkeypatch.context() as patch:
            module = "tideline.spark.pipeline.feed"
            if point == "before apply":
                patch.setattr(channel, "apply", crash)
            elif point == "after apply":
                patch.setattr(f"{module}.write_dead", crash)
            elif point == "after the dead letters":
                patch.setattr(f"{module}.archive", crash)
            elif point == "after the archive":
                patch.setattr(State, "finish", crash)
            else:
                patch.setattr(State, "_let_go", crash)
            with pytest.raises(Crash):
                feed(channel, state, settings, *job)
        state.close()
    with tideline.open(tmp_path / "data") as db:
        channel = db.channel("c")
        state = open_state(tmp_path)
        check_store(channel, settings, state)
        assert state.waiting() == ([] if point == "at the line" else [0])
        for number in state.waiting():
            done, _ = feed(channel, state, settings, number, *state.load(number), again=True)
            assert add_up(done.counts)
        state.close()
    assert state.totals == {
        "read": 100, "stored": 70, "duplicate": 10, "late": 0, "filtered": 0, "dead": 20,
    }  # fmt: skip
    check_output(tmp_path, 1, 100)


def check_output(folder: Path, batches: int, rows: int) -> None:
    """The store, the archive and the dead letters against the rows that went in."""
    numbers = range(batches * rows)
    wanted = Counter(f"e{n}" for n in numbers if n % 10 not in (3, 5, 7))
    assert Counter(row["id"] for row in scan(folder)) == wanted
    files = sorted((folder / "archive").rglob("*.parquet"))
    assert not [path for path in files if not path.name.startswith("batch-")]
    archived = [row for path in files for row in pq.ParquetFile(path).read().to_pylist()]
    assert Counter(row["id"] for row in archived) == wanted
    letters = Counter((row["stage"], row["reason"]) for row in dead(folder))
    tenth = batches * rows // 10
    assert letters == {("clean", "bad"): tenth, ("store", "body is not JSON"): tenth}


def test_a_store_that_does_not_fit_the_checkpoint_is_refused(tmp_path: Path) -> None:
    settings = feed_worker.told(tmp_path)
    with tideline.open(tmp_path / "data") as db, tideline.open(tmp_path / "other") as other:
        channel = db.channel("c")
        state = open_state(tmp_path)
        check_store(channel, settings, state)
        feed(channel, state, settings, *queued(tmp_path, 0, 10, state, Seen(10**10)))
        check_store(channel, settings, state)
        with pytest.raises(Conflict, match="does not know the batches"):
            check_store(other.channel("c"), settings, state)
        check_store(channel, settings, state)  # and looking changed nothing
        new = State(tmp_path / "new", {"name": "n"}, 7)
        with pytest.raises(Conflict, match=r"checkpoint is new: it was moved or removed"):
            check_store(channel, settings, new)
        assert not (tmp_path / "new" / "pipeline.json").exists()
        new.close()
        older = open_state(tmp_path / "older")
        queued(tmp_path / "older", 0, 10, older, Seen(10**10))
        state.done = state.queued = older.done = older.queued = -1
        older.fresh = False
        with pytest.raises(Conflict, match="put back from an older copy"):
            check_store(channel, settings, older)
        state.close()
        older.close()


# ---- kills -------------------------------------------------------------------------------------


def kill_and_go_on(folder: Path, seed: int, kills: int, batches: int, rows: int) -> None:
    """Run the worker, kill it after a random wait, until it ends by itself."""
    draw = random.Random(seed)
    env = {**os.environ, "PYTHONPATH": f"{SOURCE}{os.pathsep}{Path(__file__).parent}"}
    command = [sys.executable, feed_worker.__file__, str(folder), str(batches), str(rows)]
    for turn in range(kills + 1):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        if turn < kills:
            for _ in range(draw.randrange(3)):
                process.stdout.readline()
            try:
                process.wait(draw.uniform(0, 0.08))
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
        process.communicate(timeout=300)
        if process.returncode == 0:
            break
        assert process.returncode == -signal.SIGKILL


def check_totals(folder: Path, read: int) -> None:
    last = (folder / "checkpoint" / "batches.jsonl").read_bytes().splitlines()[-1]
    totals = json.loads(last)["totals"]
    assert add_up(totals)
    assert totals["read"] == read
    tenth = read // 10
    assert totals == dict.fromkeys(FATES, 0) | {
        "read": read, "stored": 7 * tenth, "duplicate": tenth, "dead": 2 * tenth,
    }  # fmt: skip


@pytest.mark.long
def test_a_killed_feeder_goes_on(tmp_path: Path) -> None:
    kill_and_go_on(tmp_path, seed=3, kills=2, batches=6, rows=80_000)
    check_output(tmp_path, 6, 80_000)
    check_totals(tmp_path, 480_000)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(5))
def test_a_feeder_killed_again_and_again_goes_on(tmp_path: Path, seed: int) -> None:
    kill_and_go_on(tmp_path, seed=100 + seed, kills=12, batches=20, rows=70_000)
    check_output(tmp_path, 20, 70_000)
    check_totals(tmp_path, 1_400_000)
