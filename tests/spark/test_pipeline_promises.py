"""The pipeline's promises: each row once, counts that add up, restarts that lose nothing.

A model in plain Python says what must become of every row of a file; the pipeline is stopped,
killed, run again, and given bad input.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import tideline
from tideline import Conflict, InvalidRequest, TidelineError
from tideline.spark.pipeline import Pipeline
from tideline.spark.pipeline.counts import FATES, add_up

pytestmark = pytest.mark.spark

START = datetime(2026, 1, 1, tzinfo=UTC)
BOUNDS = [-80.0, 40.0, -72.0, 45.0]


def row(n: int, **more: Any) -> dict[str, Any]:
    at = START + timedelta(seconds=n)
    return {"id": f"e{n}", "at": at.isoformat(), "lon": -79 + n % 7, "lat": 40.5 + n % 4,
            "severity": n % 5 + 1, **more}  # fmt: skip


def write(folder: Path, name: str, rows: list[Any]) -> None:
    folder.mkdir(exist_ok=True)
    texts = [each if isinstance(each, str) else json.dumps(each) for each in rows]
    half = folder / f".{name}"
    half.write_text("\n".join(texts) + "\n", encoding="utf-8")
    # Spark takes files in the order of their times.
    when = 1_700_000_000 + 10 * len(list(folder.glob("*.jsonl")))
    os.utime(half, (when, when))
    half.rename(folder / f"{name}.jsonl")


def config(tmp_path: Path, **more: Any) -> dict[str, Any]:
    return {
        "name": "incidents",
        "source": {"format": "json", "path": str(tmp_path / "in"),
                   "options": {"maxFilesPerTrigger": 1}},
        "schema": {"id": "string", "at": "timestamp", "lon": "double", "lat": "double",
                   "severity": "int"},
        "clean": {"severity": {"required": True, "min": 1, "max": 5}},
        "place": {"point": ["lon", "lat"]},
        "deduplicate": {"by": ["id"], "within_s": 100},
        "store": {"folder": str(tmp_path / "data"), "channel": "roads",
                  "space": {"kind": "quadtree", "bounds": BOUNDS, "depth": 6}},
        "operation": {"id": "id", "ttl_s": 1_000_000_000, "body": ["severity"]},
        "archive": {"folder": str(tmp_path / "archive"), "level": 2},
        "run": {"checkpoint": str(tmp_path / "checkpoint")},
        **more,
    }  # fmt: skip


def stored(tmp_path: Path) -> list[str]:
    with tideline.open(tmp_path / "data") as db:
        return sorted(db.channel("roads").scan("events")["id"].to_pylist())


def archived(tmp_path: Path) -> list[str]:
    table = ds.dataset(tmp_path / "archive", format="parquet", partitioning="hive").to_table()
    return sorted(table["id"].to_pylist())


def dead(tmp_path: Path) -> list[dict[str, Any]]:
    files = sorted((tmp_path / "checkpoint" / "dead").rglob("*.parquet"))
    return [each for file in files for each in pq.read_table(file).to_pylist()]


class Model:
    """What becomes of the rows of one batch after the other, in plain Python.

    A watermark is the newest time of all batches so far, less the delay. A row is late when it is
    not newer than the watermark that the batch before began with; a key is forgotten when the
    watermark that its batch began with has passed its time and the delay.
    """

    def __init__(self, delay_s: float) -> None:
        self.delay_s = delay_s
        self.watermarks = [0.0, 0.0]
        self.known: dict[str, float] = {}
        self.stored: list[str] = []
        self.counts: Counter[str] = Counter()

    def batch(self, rows: list[Any]) -> None:
        times = []
        self.counts["read"] += len(rows)
        for each in rows:
            if isinstance(each, str) or each["severity"] not in range(1, 6) or each["lon"] > 0:
                self.counts["dead"] += 1
                continue
            at = datetime.fromisoformat(each["at"]).timestamp()
            if at > time.time() + 60:
                self.counts["filtered" if each["severity"] < 2 else "dead"] += 1
                continue
            times.append(at)
            if at <= self.watermarks[-2]:
                self.counts["late"] += 1
            elif each["id"] in self.known:
                self.counts["duplicate"] += 1
            else:
                self.known[each["id"]] = at + self.delay_s
                if each["severity"] < 2:
                    self.counts["filtered"] += 1
                else:
                    self.stored.append(each["id"])
                    self.counts["stored"] += 1
        past = self.watermarks[-1]
        self.known = {name: end for name, end in self.known.items() if end > past}
        self.watermarks.append(max(past, max(times, default=0) - self.delay_s))


def rows_of_a_file(draw: random.Random, n: int) -> list[Any]:
    """Half of them said before, some late, some broken, some far ahead, in no order."""
    made: list[Any] = []
    for each in range(40 * n, 40 * n + 40):
        name = each if draw.random() < 0.5 else draw.randrange(max(0, each - 200), each + 1)
        one = row(name)
        kind = draw.random()
        if kind < 0.1:
            one = draw.choice([
                {**one, "severity": 9}, {**one, "severity": None}, {**one, "lon": 200},
                "{broken", "", {**one, "id": "far", "at": "2999-01-01T00:00:00+00:00"},
            ])  # fmt: skip
        made.append(one)
    draw.shuffle(made)
    return made


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.long)])
def test_every_row_has_one_fate_over_restarts_as_the_model_says(
    spark: Any, tmp_path: Path, seed: int
) -> None:
    draw = random.Random(seed)
    told = config(tmp_path, condition={"where": {"severity": {"$gte": 2}}})
    model = Model(told["deduplicate"]["within_s"])
    others = {  # what a session may be set to, another with every run
        "spark.sql.session.timeZone": ["America/New_York", "UTC", "Asia/Tokyo"],
        "spark.sql.ansi.enabled": ["true", "false", "true"],
        "spark.sql.adaptive.enabled": ["true", "true", "false"],
        "spark.sql.shuffle.partitions": ["2", "5", "3"],
    }
    before = {name: spark.conf.get(name) for name in others}
    files = 0
    for run in range(3):
        for _ in range(2):
            rows = rows_of_a_file(draw, files)
            write(tmp_path / "in", f"{files}", rows)
            model.batch(rows)
            files += 1
        try:
            for name, values in others.items():
                spark.conf.set(name, values[run])
            pipeline = Pipeline(told)
            summary = pipeline.run(spark=spark)
            assert {name: spark.conf.get(name) for name in others} == {
                name: values[run] for name, values in others.items()
            }
        finally:
            for name, value in before.items():
                spark.conf.set(name, value)
        assert all(add_up(batch.counts) for batch in pipeline.progress)
        assert summary.totals == {**dict.fromkeys(summary.totals, 0), **model.counts}
    assert min(model.counts[name] for name in FATES) > 0
    assert stored(tmp_path) == sorted(model.stored)
    assert archived(tmp_path) == sorted(model.stored)
    assert len(dead(tmp_path)) == model.counts["dead"]
    far = [each for each in dead(tmp_path) if "2999" in each["text"]]
    assert far
    assert {each["reason"].split(" (")[0] for each in far} == {
        "at is more than 60 s ahead of the clock"
    }


def test_a_second_run_goes_on_where_the_first_ended(spark: Any, tmp_path: Path) -> None:
    write(tmp_path / "in", "a", [row(n) for n in range(20)])
    first = Pipeline(config(tmp_path)).run(spark=spark)
    again = Pipeline(config(tmp_path)).run(spark=spark)
    write(tmp_path / "in", "b", [row(n) for n in range(15, 30)])
    third = Pipeline(config(tmp_path)).run(spark=spark)
    assert (first.counts["stored"], again.counts["read"]) == (20, 0)
    assert (third.counts["stored"], third.counts["duplicate"]) == (10, 5)
    assert third.totals["read"] == 35
    assert stored(tmp_path) == sorted(f"e{n}" for n in range(30))


KILLED = """
    import os, sys
    sys.path.insert(0, {tests!r})
    from pathlib import Path
    from test_pipeline_promises import config
    from tideline.channel import Channel
    from tideline.spark import session
    from tideline.spark.pipeline import Pipeline
    from tideline.spark.pipeline.ledger import Ledger
    calls = dict()
    def die_at(owner, name, moment, when=lambda *a, **k: True):
        done = getattr(owner, name)
        def call(self, *args, **options):
            if when(*args, **options):
                calls[moment] = calls.get(moment, 0) + 1
                if "before " + moment == {moment!r} and calls[moment] == {turn}:
                    os.kill(os.getpid(), 9)
            result = done(self, *args, **options)
            if "after " + moment == {moment!r} and calls.get(moment) == {turn}:
                os.kill(os.getpid(), 9)
            return result
        setattr(owner, name, call)
    die_at(Channel, "apply", "apply")
    die_at(Ledger, "note", "count", lambda batch, before, open: not open)
    spark = session(master="local[2]", memory="1g", tmp=Path({tmp!r}) / "spark",
                    config={{"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}})
    Pipeline(config(Path({tmp!r}))).run(spark=spark)
"""
MOMENTS = [
    pytest.param(("before apply", "after apply"), marks=pytest.mark.long),
    ("after apply",),  # each is a Java of its own
    pytest.param(("after apply", "before count"), marks=pytest.mark.long),
    pytest.param(("before count", "after count", "before apply"), marks=pytest.mark.long),
]


@pytest.mark.parametrize("moments", MOMENTS)
def test_a_killed_driver_loses_nothing_doubles_nothing_and_counts_all(
    spark: Any, tmp_path: Path, moments: tuple[str, ...]
) -> None:
    for part in range(6):
        rows = [row(n) for n in range(part * 25, part * 25 + 30)]
        write(tmp_path / "in", f"{part}", [*rows, "{broken"])
    for moment in moments:
        script = textwrap.dedent(KILLED).format(
            tests=str(Path(__file__).parent), tmp=str(tmp_path), moment=moment, turn=2
        )
        paths = {"PYTHONPATH": str(Path(tideline.__file__).parents[1])}
        died = subprocess.run([sys.executable, "-c", script], env=os.environ | paths, check=False)
        assert died.returncode == -signal.SIGKILL
    summary = Pipeline(config(tmp_path)).run(spark=spark)
    wanted = sorted(f"e{n}" for n in range(155))
    assert stored(tmp_path) == wanted
    assert archived(tmp_path) == wanted
    assert len(dead(tmp_path)) == 6
    assert summary.totals == {
        "read": 186, "stored": 155, "duplicate": 25, "late": 0, "filtered": 0, "dead": 6,
        "expired": 0,
    }  # fmt: skip


def test_a_batch_that_spark_runs_again_changes_nothing(spark: Any, tmp_path: Path) -> None:
    for part in range(3):
        write(tmp_path / "in", f"{part}", [*(row(n) for n in range(part * 8, part * 8 + 10)), "{"])
    before = Pipeline(config(tmp_path)).run(spark=spark)
    (tmp_path / "checkpoint" / "spark" / "commits" / "2").unlink()
    again = Pipeline(config(tmp_path)).run(spark=spark)
    assert (again.counts["read"], again.totals) == (0, before.totals)
    assert stored(tmp_path) == archived(tmp_path) == sorted(f"e{n}" for n in range(26))
    assert len(dead(tmp_path)) == 3


def test_what_ended_before_it_came_is_counted(spark: Any, tmp_path: Path) -> None:
    write(tmp_path / "in", "a", [row(n) for n in range(4)])
    told = config(tmp_path, deduplicate=None)
    told = {name: section for name, section in told.items() if section is not None}
    told["operation"]["ttl_s"] = 60
    counts = Pipeline(told).run(spark=spark).counts
    assert (counts["stored"], counts["expired"]) == (4, 4)
    assert stored(tmp_path) == []


def test_a_condition_leaves_rows_out(spark: Any, tmp_path: Path) -> None:
    write(tmp_path / "in", "a", [row(n) for n in range(20)])
    wanted = config(tmp_path, condition={"where": {"severity": {"$gte": 4}}})
    summary = Pipeline(wanted).run(spark=spark)
    assert summary.counts["filtered"] == 12
    assert stored(tmp_path) == sorted(f"e{n}" for n in range(20) if n % 5 >= 3)


def test_a_moved_checkpoint_is_refused_with_a_reason(spark: Any, tmp_path: Path) -> None:
    write(tmp_path / "in", "a", [row(n) for n in range(5)])
    Pipeline(config(tmp_path)).run(spark=spark)
    (tmp_path / "checkpoint").rename(tmp_path / "elsewhere")
    with pytest.raises(Conflict, match="checkpoint"):
        Pipeline(config(tmp_path)).run(spark=spark)
    shutil.rmtree(tmp_path / "checkpoint", ignore_errors=True)
    (tmp_path / "elsewhere").rename(tmp_path / "checkpoint")
    other = config(tmp_path)
    other["store"]["folder"] = str(tmp_path / "other")
    with pytest.raises(Conflict, match="another"):
        Pipeline(other).run(spark=spark)
    assert len(stored(tmp_path)) == 5


def test_a_store_that_is_closed_meanwhile_gets_every_row(spark: Any, tmp_path: Path) -> None:
    """The next batch finds a folder that nobody has open, and has it opened."""
    for part in range(3):
        write(tmp_path / "in", f"{part}", [row(n) for n in range(part * 10, part * 10 + 10)])
    db = tideline.open(tmp_path / "data")

    def close_it(batch: Any) -> None:
        if batch.number == 0:
            db.close()

    done = Pipeline(config(tmp_path)).run(db, spark=spark, on_batch=close_it)
    assert done.counts["stored"] == 30
    assert stored(tmp_path) == sorted(f"e{n}" for n in range(30))


def test_missing_columns_and_files_are_named(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(TidelineError, match="in"):
        Pipeline(config(tmp_path)).run(spark=spark)
    write(tmp_path / "in", "a", [row(1)])
    wrong = config(tmp_path, place={"point": ["long", "lat"]})
    with pytest.raises(InvalidRequest, match="long"):
        Pipeline(wrong).run(spark=spark)


TOML = """name = "x"

[source]
format = "generator"
options = { rows = 10 }

[place]
piont = ["lon", "lat"]

[store]
channel = "roads"

[run]
checkpoint = 5
"""


def test_every_mistake_of_a_config_names_its_line(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.toml"
    file.write_text(TOML, encoding="utf-8")
    with pytest.raises(InvalidRequest) as caught:
        Pipeline.from_file(file)
    text = str(caught.value)
    assert "pipeline.toml:8: " in text
    assert "did you mean 'point'" in text
    assert "pipeline.toml:14: " in text
    file.write_text('name = "x"\n[source\n', encoding="utf-8")
    with pytest.raises(InvalidRequest, match=r"pipeline\.toml:2: "):
        Pipeline.from_file(file)
