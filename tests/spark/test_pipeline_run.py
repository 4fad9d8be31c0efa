"""A pipeline that runs: stopped, told wrong things, its workers and its store taken away."""

from __future__ import annotations

import json
import math
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pipelines import config, dead, scan, time_of, write_file, write_rows

import tideline
from tideline.errors import Closed, Conflict, InvalidRequest, Unavailable
from tideline.spark.pipeline import Pipeline
from tideline.spark.pipeline.counts import add_up

pytestmark = pytest.mark.spark

SOURCE = Path(tideline.__file__).resolve().parents[1]
ROOT = Path(__file__).resolve().parents[2]
GRID = {"kind": "grid", "bounds": [-79.8, 40.4, -71.8, 45.1], "rows": 8, "cols": 8}


def endless(folder: Path, **options: Any) -> Any:
    """Rows by the clock, some broken, some twice."""
    return config(
        folder,
        source={"format": "generator",
                "options": {"rows_per_second": 400, "bad": 0.1, "repeat": 0.1, **options}},
        clean={"kind": {"required": True}, "severity": {"min": 1}}, place={"point": ["lon", "lat"]},
        store={"folder": "data", "channel": "c", "space": GRID},
        deduplicate={"by": ["id"], "within_s": 600},
        operation={"id": "id", "ttl_s": 1e8, "body": ["kind"]},
        run={"checkpoint": "checkpoint", "every_s": 0.1},
    )  # fmt: skip


def frame_of(spark: Any, rows: int) -> Any:
    table = pa.table({
        "id": [f"e{n}" for n in range(rows)], "place": ["p"] * rows,
        "at": pa.array([time_of(n) for n in range(rows)], pa.timestamp("us", "UTC")),
    })  # fmt: skip
    return spark.createDataFrame(table)


@pytest.mark.parametrize("limit", [None, math.inf])
def test_a_row_from_the_future_is_a_dead_letter_unless_there_is_no_limit(
    spark: Any, tmp_path: Path, limit: float | None
) -> None:
    rows = [{"id": f"e{n}", "place": "p", "at": f"2026-01-01T00:00:0{n}Z"} for n in range(5)]
    rows[2]["at"] = "9000-01-01T00:00:00Z"
    write_rows(tmp_path / "in", "0", rows)
    write_rows(tmp_path / "in", "1", [rows[0] | {"id": "e5"}])
    told = config(
        tmp_path, source={"format": "json", "path": "in"},
        schema={"id": "string", "place": "string", "at": "timestamp"},
        store={"folder": "data", "channel": "c", **({"max_ahead_s": limit} if limit else {})},
        deduplicate={"by": ["id"], "within_s": 600},
    )  # fmt: skip
    totals = Pipeline(told).run(spark=spark).totals
    if limit is None:
        assert (totals["stored"], totals["dead"], totals["late"]) == (5, 1, 0)
        [letter] = dead(tmp_path)
        assert (letter["stage"], json.loads(letter["text"])["id"]) == ("store", "e2")
        assert letter["reason"].startswith("at is more than 60 s ahead of the clock")
        assert {row["id"] for row in scan(tmp_path)} == {"e0", "e1", "e3", "e4", "e5"}
    else:
        assert (totals["stored"] + totals["late"], totals["dead"]) == (6, 0)
        assert {row["id"] for row in scan(tmp_path)} == {"e2"}


def test_stopping_waits_for_the_batch_and_a_restart_goes_on(spark: Any, tmp_path: Path) -> None:
    pipeline = Pipeline(endless(tmp_path))
    read: list[int] = []

    def stop_after_rows(batch: Any) -> None:
        read.append(batch.read)
        if sum(read) > 0:
            pipeline.stop()

    first = pipeline.run(spark=spark, on_batch=stop_after_rows)
    assert first.stopped
    read.clear()
    second = pipeline.run(spark=spark, on_batch=stop_after_rows)
    assert second.totals["read"] == first.counts["read"] + second.counts["read"]
    assert add_up(second.totals)
    # The generator's rows are numbered: those stored, dead and repeated are all of the first n.
    stored = {row["id"] for row in scan(tmp_path)}
    assert len(stored) == second.totals["stored"]
    lost = {json.loads(row["text"])["id"] for row in dead(tmp_path)}
    seen = {int(name[1:]) for name in stored | lost}
    assert max(seen) < second.totals["read"]
    assert len(seen) >= second.totals["read"] - second.totals["duplicate"] - len(dead(tmp_path))


def test_a_generator_with_an_end_ends_there_and_gives_the_same_rows(
    spark: Any, tmp_path: Path
) -> None:
    ids = []
    for turn in ("one", "two"):
        (tmp_path / turn).mkdir()
        told = endless(tmp_path / turn, rows=700, batch_rows=300)
        del told.source.options["rows_per_second"]
        summary = Pipeline(told).run(spark=spark)
        assert (summary.counts["read"], summary.batches, summary.stopped) == (700, 3, False)
        again = Pipeline(told).run(spark=spark)
        assert (again.counts["read"], again.totals) == (0, summary.totals)
        ids.append({row["id"] for row in scan(tmp_path / turn)})
    assert ids[0] == ids[1]


def test_a_frame_that_does_not_grow_is_one_batch_once(spark: Any, tmp_path: Path) -> None:
    told = config(tmp_path)
    with tideline.open(tmp_path / "data") as db:
        first = Pipeline(told).run(db, spark=spark, source=frame_of(spark, 50))
        again = Pipeline(told).run(db, spark=spark, source=frame_of(spark, 50))
        assert (first.counts["stored"], again.counts["read"]) == (50, 0)
        assert db.channel("c").scan("events").num_rows == 50


def test_files_that_spark_could_follow_can_be_one_batch(spark: Any, tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_rows(
            tmp_path / "in", name, [{"id": name, "place": "p", "at": "2026-01-01T00:00:00Z"}]
        )
    told = config(
        tmp_path, source={"format": "json", "path": "in", "stream": False},
        schema={"id": "string", "place": "string", "at": "timestamp"},
    )  # fmt: skip
    assert Pipeline(told).run(spark=spark).batches == 1
    assert Counter(row["id"] for row in scan(tmp_path)) == {"a": 1, "b": 1}
    # The same checkpoint cannot be followed as a stream: that would read everything again.
    followed = config(
        tmp_path, source={"format": "json", "path": "in"},
        schema={"id": "string", "place": "string", "at": "timestamp"},
    )  # fmt: skip
    with pytest.raises(Conflict, match="its source is another"):
        Pipeline(followed).run(spark=spark)


def test_a_worker_killed_in_the_middle_loses_and_doubles_nothing(
    spark: Any, tmp_path: Path
) -> None:
    marker = tmp_path / "killed"

    def die_once(batches: Any) -> Any:
        for batch in batches:
            yield batch
            try:
                os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                continue
            os.kill(os.getpid(), signal.SIGKILL)

    frame = frame_of(spark, 1000).repartition(4)
    frame = frame.mapInArrow(die_once, frame.schema)
    summary = Pipeline(config(tmp_path)).run(spark=spark, source=frame)
    assert marker.exists()
    assert summary.counts["stored"] == 1000
    assert Counter(row["id"] for row in scan(tmp_path)) == {f"e{n}": 1 for n in range(1000)}


def test_workers_that_die_every_time_are_told_and_nothing_is_stored(
    spark: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def die(batches: Any) -> Any:
        os.kill(os.getpid(), signal.SIGKILL)
        yield from batches

    frame = frame_of(spark, 10)
    with pytest.raises(Unavailable, match="Spark lost a worker again and again"):
        Pipeline(config(tmp_path)).run(spark=spark, source=frame.mapInArrow(die, frame.schema))
    assert scan(tmp_path) == []
    assert "\tat org.apache" not in capfd.readouterr().err
    healed = Pipeline(config(tmp_path)).run(spark=spark, source=frame)
    assert healed.counts["stored"] == 10


def test_a_damaged_file_is_told_and_can_be_put_back(spark: Any, tmp_path: Path) -> None:
    told = config(tmp_path, source={"format": "parquet", "path": "in",
                                    "options": {"maxFilesPerTrigger": 1}})  # fmt: skip
    for n in range(3):
        at = pa.array([time_of(n)], pa.timestamp("us", "UTC"))
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table({"id": [f"e{n}"], "place": ["p"], "at": at}), sink)
        whole = sink.getvalue().to_pybytes()
        write_file(tmp_path / "in", f"{n}.parquet", whole if n < 2 else whole[:-20] + bytes(20))
    with pytest.raises(Unavailable, match="a file of the source is gone or damaged"):
        Pipeline(told).run(spark=spark)
    (tmp_path / "in" / "2.parquet").write_bytes(whole)
    Pipeline(told).run(spark=spark)
    assert Counter(row["id"] for row in scan(tmp_path)) == {f"e{n}": 1 for n in range(3)}


def test_a_closed_database_and_a_folder_in_use_are_told(spark: Any, tmp_path: Path) -> None:
    db = tideline.open(tmp_path / "data")
    with pytest.raises(Unavailable, match="this process has the folder open already"):
        Pipeline(config(tmp_path)).run(spark=spark)
    db.close()
    with pytest.raises(Closed):
        Pipeline(config(tmp_path)).run(db, spark=spark)
    no_folder = config(tmp_path, store={"channel": "c"})
    with pytest.raises(InvalidRequest, match="needs a folder"):
        Pipeline(no_folder).run(spark=spark)
    with tideline.open(tmp_path / "polled") as polled:
        polled.channel("c", layout="poll")
        with pytest.raises(InvalidRequest, match="layout 'poll'"):
            Pipeline(config(tmp_path)).run(polled, spark=spark)


# ---- the command -------------------------------------------------------------------------------


def tideline_command(
    *words: str, folder: Path, env: dict[str, str] | None = None, **options: Any
) -> subprocess.Popen[str]:
    env = {**os.environ, "PYTHONPATH": str(SOURCE), "TERM": "dumb", **(env or {})}
    command = [sys.executable, "-m", "tideline", "pipeline", *words]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, cwd=folder, env=env, text=True, **pipes, **options)


def test_check_explains_without_starting_spark(tmp_path: Path) -> None:
    code = "import sys; from tideline.cli.main import run; code = run(sys.argv[1:]); "
    code += "from pyspark import SparkContext; print(SparkContext._active_spark_context, code)"
    done = subprocess.run(
        [sys.executable, "-c", code, "pipeline", "check", str(ROOT / "examples" / "pipeline.toml")],
        env={**os.environ, "PYTHONPATH": str(SOURCE)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "The pipeline incidents" in done.stdout
    assert "the database is made by the first run" in done.stdout
    assert done.stdout.endswith("None 0\n")


def test_check_tells_every_mistake_on_a_line_of_its_own(tmp_path: Path) -> None:
    text = (ROOT / "examples" / "pipeline.toml").read_text(encoding="utf-8")
    (tmp_path / "p.toml").write_text(text.replace("trim", "trimm").replace("level", "levle"))
    process = tideline_command("check", "p.toml", folder=tmp_path)
    out, err = process.communicate(timeout=300)
    assert (process.returncode, out) == (2, "")
    first, second = err.splitlines()
    line = text[: text.index("trim")].count("\n") + 1
    wrong = f"tideline: InvalidRequest: p.toml:{line}: [clean.kind] has no key 'trimm'"
    assert first.startswith(wrong)
    assert second.startswith("tideline: InvalidRequest: p.toml:")
    assert "did you mean 'level'" in second


def test_check_notices_what_run_would_refuse(tmp_path: Path) -> None:
    text = (ROOT / "examples" / "pipeline.toml").read_text(encoding="utf-8")
    start = text.index("space = {")
    (tmp_path / "p.toml").write_text(text[:start] + text[text.index("\n", start) :])
    process = tideline_command("check", "p.toml", folder=tmp_path)
    out, err = process.communicate(timeout=300)
    assert (process.returncode, out) == (2, "")
    line = text[: text.index("point = [")].count("\n") + 1
    wanted = f"tideline: InvalidRequest: p.toml:{line}: a flat channel has no points: give column\n"
    assert err == wanted


def test_java_is_looked_for_before_the_store_is_opened(tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text(
        (ROOT / "examples" / "pipeline.toml").read_text(encoding="utf-8").replace("../data", "data")
    )
    env = {"JAVA_HOME": str(tmp_path / "no java")}
    process = tideline_command("run", "p.toml", folder=tmp_path, env=env)
    out, err = process.communicate(timeout=300)
    assert (process.returncode, out) == (5, "")
    assert err.startswith("tideline: Unavailable: Spark needs Java 17 or newer")
    assert not (tmp_path / "data").exists()


def config_file(folder: Path, rows: int) -> None:
    """A pipeline over JSON files, as TOML."""
    (folder / "p.toml").write_text(
        f"""name = "killed"
[source]
format = "json"
path = "in"
options = {{ maxFilesPerTrigger = 1 }}
[schema]
id = "string"
place = "string"
at = "timestamp"
n = "int"
[clean.n]
required = true
[place]
column = "place"
[deduplicate]
by = ["id"]
within_s = {rows}
[store]
folder = "data"
channel = "c"
[operation]
id = "id"
ttl_s = 1e8
[archive]
folder = "archive"
[run]
checkpoint = "checkpoint"
[spark]
master = "local[2]"
memory = "1g"
config = {{ "spark.driver.extraJavaOptions" = "-XX:TieredStopAtLevel=1" }}
""",
        encoding="utf-8",
    )


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_a_pipeline_killed_at_random_loses_nothing_and_doubles_nothing(
    tmp_path: Path, seed: int
) -> None:
    draw = random.Random(seed)
    files, size = 24, 3000
    for name in range(files):
        rows: list[Any] = []
        for n in range(name * size, (name + 1) * size):
            row = {"id": f"e{n}", "place": f"p{n % 9}", "at": time_of(n).isoformat(), "n": n}
            rows.append("{broken" if n % 50 == 9 else {**row, "n": None} if n % 50 == 19 else row)
            if n % 50 == 29:
                rows.append(row)
        write_rows(tmp_path / "in", f"{name:03}", rows)
    config_file(tmp_path, files * size)
    for turn in range(12):
        process = tideline_command("run", "p.toml", "--json", folder=tmp_path)
        assert process.stdout is not None
        assert process.stderr is not None
        for _ in range(draw.randrange(1, 4)):
            process.stdout.readline()
        if turn < 6:
            try:
                process.wait(draw.uniform(0, 0.5))
            except subprocess.TimeoutExpired:
                process.kill()
        out, err = process.communicate(timeout=300)
        if process.returncode == 0:
            break
        assert process.returncode == -signal.SIGKILL, err
    summary = json.loads(out.splitlines()[-1])
    total = files * size
    assert summary["totals"] == {
        "read": total + total // 50, "stored": total - 2 * total // 50, "duplicate": total // 50,
        "late": 0, "filtered": 0, "dead": 2 * total // 50, "expired": 0,
    }  # fmt: skip
    wanted = Counter(f"e{n}" for n in range(total) if n % 50 not in (9, 19))
    assert Counter(row["id"] for row in scan(tmp_path)) == wanted
    archived = [
        name for path in (tmp_path / "archive").rglob("*.parquet")
        for name in pq.ParquetFile(path).read(["id"])["id"].to_pylist()
    ]  # fmt: skip
    assert Counter(archived) == wanted
    assert len(dead(tmp_path)) == 2 * total // 50


@pytest.mark.long
def test_ctrl_c_stops_after_the_batch_with_a_summary(tmp_path: Path) -> None:
    text = (ROOT / "examples" / "pipeline.toml").read_text(encoding="utf-8")
    text = text.replace("rows = 100_000, batch_rows = 25_000", "rows_per_second = 500")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "p.toml").write_text(text, encoding="utf-8")
    process = tideline_command("run", "sub/p.toml", folder=tmp_path, start_new_session=True)
    assert process.stdout is not None
    while "batch" not in process.stdout.readline():
        assert process.poll() is None
    os.killpg(process.pid, signal.SIGINT)  # a terminal sends it to the whole group
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert "incidents: stopped after" in out
    assert "Traceback" not in err
    assert "\tat " not in err
    again = tideline_command("check", "sub/p.toml", folder=tmp_path)
    assert "batches are done" in again.communicate(timeout=300)[0]
