"""What `tideline.spark.session` promises: settings, workers, files, errors that help."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tideline
from tideline.errors import Conflict, InvalidRequest, Unavailable
from tideline.spark import session as start
from tideline.spark.session import _folder, _folders, _memory_text, _sweep, _tasks, find_java

SOURCE = Path(tideline.__file__).resolve().parents[1]


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Code in a process of its own, with an environment of its own."""
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(SOURCE), **environment},
    )


# ---- a session ----------------------------------------------------------------------------


@pytest.mark.spark
def test_the_settings_that_everybody_needs(spark: Any) -> None:
    wanted = {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.ui.enabled": "false",
    }
    assert {name: spark.conf.get(name) for name in wanted} == wanted
    provider = spark.conf.get("spark.sql.streaming.stateStore.providerClass")
    assert provider.endswith("RocksDBStateStoreProvider")


@pytest.mark.spark
def test_workers_import_this_tideline_and_share_its_kernels(spark: Any) -> None:
    from tideline.kernels import cache_folder

    def where(batches: Any) -> Any:
        import pyarrow as pa

        import tideline
        from tideline.kernels import cache_folder

        for _ in batches:
            yield pa.RecordBatch.from_pydict(
                {"file": [tideline.__file__], "cache": [str(cache_folder())]}
            )

    found = spark.range(1, numPartitions=1).mapInArrow(where, "file string, cache string").first()
    assert Path(found["file"]).resolve() == Path(tideline.__file__).resolve()
    assert found["cache"] == str(cache_folder())


@pytest.mark.spark
@pytest.mark.spark
def test_workers_import_pyspark_as_it_is_installed(spark: Any) -> None:
    import pyspark

    def where(_: Any) -> Any:
        import pyspark

        yield pyspark.__file__

    found = spark.sparkContext.parallelize([0], 1).mapPartitions(where).collect()
    assert found == [pyspark.__file__]  # not out of the zip, where nothing is compiled


def test_a_pyspark_that_workers_would_not_find_keeps_its_zip(
    tmp_path: Path, monkeypatch: Any
) -> None:
    module = importlib.import_module("tideline.spark.session")

    monkeypatch.setattr(module.site, "getsitepackages", lambda: [str(tmp_path)])
    monkeypatch.delenv("PYTHONPATH", raising=False)
    assert not module._home(tmp_path / "home")
    assert not (tmp_path / "home").exists()


def test_a_process_has_one_session(spark: Any) -> None:
    assert start() is spark
    assert start(master="local[2]", memory="1g") is spark
    with pytest.raises(Conflict, match=r"stop it first.*spark.master.*local\[2\].*local\[7\]"):
        start(master="local[7]")
    with pytest.raises(Conflict, match=r"stop it first.*spark.driver.memory"):
        start(memory="64g")


@pytest.mark.spark
def test_its_files_are_in_one_private_folder(spark: Any) -> None:
    folder = _folders[-1][0]
    for name in ("spark.local.dir", "spark.sql.warehouse.dir"):
        assert spark.sparkContext.getConf().get(name).removeprefix("file:").startswith(str(folder))
    assert folder.stat().st_mode & 0o777 == 0o700
    assert spark.sparkContext._jvm.System.getProperty("java.io.tmpdir") == str(folder / "tmp")


@pytest.mark.spark
def test_the_environment_is_as_it_was(spark: Any) -> None:
    assert "SPARK_CONF_DIR" not in os.environ
    assert "SPARK_LOCAL_IP" not in os.environ


# ---- what it is made of -------------------------------------------------------------------


def test_importing_it_loads_no_pyspark() -> None:
    code = "import sys, tideline.spark; print('pyspark' in sys.modules, 'numba' in sys.modules)"
    assert run(code).stdout == "False False\n"


def test_the_function_keeps_its_name_when_the_module_is_imported() -> None:
    code = "import tideline.spark.session; print(callable(tideline.spark.session))"
    assert run(code).stdout == "True\n"


def test_the_package_has_what_it_names() -> None:
    package = importlib.import_module("tideline.spark")
    assert sorted(package.__all__) == dir(package)
    assert all(callable(getattr(package, name)) for name in package.__all__)
    with pytest.raises(AttributeError, match="no attribute 'sesion'"):
        package.sesion  # noqa: B018


def test_without_pyspark_it_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['pyspark'] = None\nfrom tideline.spark import session\nsession()"
    )
    said = run(code).stderr
    assert "tideline.errors.Unavailable: this needs pyspark: pip install 'tideline[spark]'" in said


def test_without_java_it_says_what_to_install(tmp_path: Path) -> None:
    code = "from tideline.spark import session\nsession()"
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**environment, "PYTHONPATH": str(SOURCE), "PATH": str(tmp_path)},
    )
    assert "Unavailable: Spark needs Java 17 or newer and there is none: install" in done.stderr
    assert "apt-get install openjdk-17-jre-headless" in done.stderr


def test_a_java_home_without_java_is_named(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(Unavailable, match=f"there is none.*JAVA_HOME='{tmp_path}'"):
        find_java()


@pytest.mark.parametrize(
    ("said", "version"),
    [
        ('openjdk version "11.0.2" 2019-01-15', "11"),
        ('java version "1.8.0_292"', "8"),
        ("what?", "what?"),
    ],
)
def test_an_old_java_is_named(tmp_path: Path, monkeypatch: Any, said: str, version: str) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho '{said}' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(Unavailable, match="Spark needs Java 17 or newer") as told:
        find_java()
    assert f"version='{version}'" in str(told.value)


@pytest.mark.parametrize("said", ['openjdk version "17.0.15"', 'openjdk version "21" 2023-09-19'])
def test_a_new_java_will_do(tmp_path: Path, monkeypatch: Any, said: str) -> None:
    java = tmp_path / "java"
    java.write_text(f"#!/bin/sh\necho '{said}' >&2\n")
    java.chmod(0o755)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    assert find_java() == str(java)


def test_memory_is_a_part_of_what_there_is() -> None:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    megabytes = int(_memory_text().removesuffix("m"))
    assert 1024 <= megabytes <= max(1024, min(16 << 10, total >> 22))


def test_tasks_of_a_local_master() -> None:
    here = len(os.sched_getaffinity(0))
    masters = {"local": 1, "local[4]": 4, "local[4,2]": 4, "local[*]": here, "local[*,3]": here}
    assert {master: _tasks(master) for master in masters} == masters


def test_the_folder_of_a_killed_process_is_removed(tmp_path: Path) -> None:
    folder = _folder(tmp_path, "/bin/java")
    try:
        _sweep(folder)
        assert folder.exists()  # its owner lives
        os.close(_folders[-1][1])  # as the system does for a process that is gone
        assert _folder(tmp_path, "/bin/java") != folder
        assert not folder.exists()
    finally:
        os.close(_folders.pop()[1])
        _folders.pop()


def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InvalidRequest, match="tmp is not a folder that can be used"):
        _folder(tmp_path / "file", "/bin/java")


# ---- whole processes ----------------------------------------------------------------------

WHOLE = """
import os, sys
from tideline.spark import session
spark = session(memory="1g", tmp=sys.argv[1] if len(sys.argv) > 1 else os.environ["FOLDER"])
spark.range(10).write.mode("overwrite").saveAsTable("t")
print(spark.sparkContext.master, spark.sparkContext.getConf().get("spark.driver.memory"),
      spark.table("t").count(), flush=True)
"""
AGAIN = """
spark.stop()
spark = session()
print(spark.range(3).count(), spark.sparkContext.getConf().get("spark.driver.memory"))
spark.stop()
try:
    session(memory="2g")
except Exception as error:
    print(error)
"""


@pytest.mark.long
@pytest.mark.spark
def test_a_process_leaves_no_file_and_says_nothing(tmp_path: Path) -> None:
    """And what a killed one left is removed by the next."""
    killed = run(f"{WHOLE}\nimport signal; os.kill(os.getpid(), {signal.SIGKILL})",
                 FOLDER=str(tmp_path), TIDELINE_SPARK_MASTER="local[1]")  # fmt: skip
    assert killed.returncode == -signal.SIGKILL
    assert len(list(tmp_path.iterdir())) == 1
    done = run(WHOLE + AGAIN, FOLDER=str(tmp_path), TIDELINE_SPARK_MASTER="local[1]")
    assert (done.returncode, done.stderr) == (0, "")
    first, again, refused = done.stdout.splitlines()
    assert (first, again) == ("local[1] 1g 10", "3 1g")
    assert refused.startswith("Java runs in this process with other memory")
    assert list(tmp_path.iterdir()) == []


STREAM = """
import os, sys
from tideline import Flat
from tideline.spark import match, session
folder = os.environ["FOLDER"]
spark = session(master="local[1]", memory="1g", tmp=folder)
events = spark.sql("SELECT 'e1' id, 'p' place, timestamp'2026-01-01 08:00:00' at, '{}' body")
asked = spark.sql("SELECT 's1' id, 'ann' user, 'p' place, timestamp'2026-01-01 07:00:00' at")
events.write.parquet(f"{folder}/events")
asked.write.parquet(f"{folder}/asked")
follow = lambda frame, name: spark.readStream.schema(frame.schema).parquet(f"{folder}/{name}")
answers = match(follow(asked, "asked"), follow(events, "events"), space=Flat())
query = (answers.writeStream.format("parquet").option("path", f"{folder}/answers")
         .option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True).start())
query.awaitTermination()
print(spark.read.parquet(f"{folder}/answers").count())
for wrong in ("SELECT nothing", "SELECT 1 / 0"):
    try:
        spark.sql(wrong).collect()
    except Exception as error:
        print(type(error).__name__)
"""


@pytest.mark.long
@pytest.mark.spark
def test_streams_and_errors_that_are_raised_write_nothing(tmp_path: Path) -> None:
    """Spark's worker for streams with state prints what it does, and errors were logged too."""
    done = run(STREAM, FOLDER=str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == ["1", "AnalysisException", "ArithmeticException"]


@pytest.mark.spark
def test_what_workers_of_streams_print_themselves_is_shown(spark: Any) -> None:
    """Only the one module of Spark's that tells its progress is kept quiet."""
    shown = "import sys; print(sys.executable, sys.argv)"
    done = subprocess.run([spark.sparkContext.pythonExec, "-c", shown, "x"],
                          capture_output=True, text=True, check=True)  # fmt: skip
    assert done.stdout.split() == [sys.executable, "['-c',", "'x']"]
    module = "pyspark.sql.streaming.transform_with_state_driver_worker"
    failed = subprocess.run([spark.sparkContext.pythonExec, "-m", module],
                            capture_output=True, text=True)  # fmt: skip
    assert (failed.returncode, failed.stdout) == (1, "")
    assert "get_sock_file_to_executor" in failed.stderr  # no Spark to talk to: that is not hidden


@pytest.mark.long
@pytest.mark.spark
def test_a_master_that_is_not_there_is_named(tmp_path: Path) -> None:
    code = f"from tideline.spark import session\nsession(master='nonsense', tmp={str(tmp_path)!r})"
    assert "Unavailable: Spark did not start" in run(code).stderr
