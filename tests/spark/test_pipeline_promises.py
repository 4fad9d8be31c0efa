"""The pipeline's promises: each row once, counts that add up, restarts that lose nothing.

A model in plain Python says what must become of every row of a file; the pipeline is stopped,
killed, run again, and given bad input.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import tideline
from tideline import Conflict, InvalidRequest, TidelineError
from tideline.spark.pipeline import Pipeline

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


def test_every_row_has_one_fate_and_the_counts_add_up(spark: Any, tmp_path: Path) -> None:
    write(tmp_path / "in", "a", [row(n) for n in range(200, 230)])
    write(
        tmp_path / "in",
        "b",
        [
            row(215),  # a duplicate of a row of the file before
            row(230),
            row(230),  # and of the same file
            row(50),  # 179 s older than the newest so far: late
            row(231, severity=9),
            row(232, severity=None),
            row(233, lon=200),
            row(234, at="yesterday"),
            '{"id": "e235", "at": ',
            row(236),
        ],
    )
    summary = Pipeline(config(tmp_path)).run(spark=spark)
    assert summary.counts == {
        "read": 40, "stored": 32, "duplicate": 2, "late": 1, "filtered": 0, "dead": 5,
    }  # fmt: skip
    wanted = sorted(f"e{n}" for n in [*range(200, 231), 236])
    assert stored(tmp_path) == wanted
    assert archived(tmp_path) == wanted
    letters = dead(tmp_path)
    assert len(letters) == 5
    assert all(letter["reason"] for letter in letters)
    assert any("yesterday" in letter["text"] for letter in letters)
    assert any(letter["text"].startswith('{"id": "e235"') for letter in letters)


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
    import json, os, sys
    sys.path.insert(0, {tests!r})
    from pathlib import Path
    from test_pipeline_promises import config
    from tideline.spark import session
    from tideline.spark.pipeline import Pipeline, feed
    applied = 0
    from tideline.channel import Channel
    apply = Channel.apply
    def apply_and_die(self, table, **options):
        global applied
        applied += 1
        if applied == {batch} and {before}:
            os.kill(os.getpid(), 9)
        done = apply(self, table, **options)
        if applied == {batch}:
            os.kill(os.getpid(), 9)
        return done
    Channel.apply = apply_and_die
    spark = session(master="local[2]", memory="1g", tmp=Path({tmp!r}) / "spark",
                    config={{"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}})
    Pipeline(config(Path({tmp!r}))).run(spark=spark)
"""


@pytest.mark.parametrize("before", [pytest.param(True, marks=pytest.mark.long), False])
def test_a_killed_pipeline_loses_nothing_and_doubles_nothing(
    spark: Any, tmp_path: Path, before: bool
) -> None:
    for part in range(4):
        write(tmp_path / "in", f"{part}", [row(n) for n in range(part * 25, part * 25 + 30)])
    script = textwrap.dedent(KILLED).format(
        tests=str(Path(__file__).parent), tmp=str(tmp_path), batch=2, before=before
    )
    paths = {"PYTHONPATH": str(Path(tideline.__file__).parents[1])}
    died = subprocess.run([sys.executable, "-c", script], env=os.environ | paths, check=False)
    assert died.returncode == -signal.SIGKILL
    summary = Pipeline(config(tmp_path)).run(spark=spark)
    wanted = sorted(f"e{n}" for n in range(105))
    assert stored(tmp_path) == wanted
    assert archived(tmp_path) == wanted
    assert summary.totals == {
        "read": 120, "stored": 105, "duplicate": 15, "late": 0, "filtered": 0, "dead": 0,
    }  # fmt: skip


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


def test_a_store_that_goes_away_is_said_and_healed(spark: Any, tmp_path: Path) -> None:
    for part in range(3):
        write(tmp_path / "in", f"{part}", [row(n) for n in range(part * 10, part * 10 + 10)])
    db = tideline.open(tmp_path / "data")

    def close_it(batch: Any, applied: Any) -> None:
        if batch.number == 0:
            db.close()

    with pytest.raises(TidelineError, match="start the pipeline again"):
        Pipeline(config(tmp_path)).run(db, spark=spark, on_batch=close_it)
    Pipeline(config(tmp_path)).run(spark=spark)
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
