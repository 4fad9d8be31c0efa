"""What `tideline.spark.session` promises: settings, workers, files, errors that help."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tideline
from tideline.errors import Conflict, Unavailable
from tideline.spark import session as start
from tideline.spark.java import find_java
from tideline.spark.session import _memory_text, _tasks

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
def test_a_process_has_one_session(spark: Any) -> None:
    assert start() is spark
    assert start(master="local[2]", memory="1g") is spark
    with pytest.raises(Conflict, match=r"stop it first.*spark.master.*local\[2\].*local\[7\]"):
        start(master="local[7]")
    with pytest.raises(Conflict, match=r"stop it first.*spark.driver.memory"):
        start(memory="64g")


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


@pytest.mark.parametrize("name", ["Pipeline", "aggregate", "match", "panes", "watch"])
def test_without_pyspark_a_name_is_there_or_says_what_to_install(name: str) -> None:
    code = f"import sys; sys.modules['pyspark'] = None\nfrom tideline.spark import {name}"
    said = run(code).stderr
    assert not said or f"Unavailable: {name} needs pyspark: pip install 'tideline[spark]'" in said


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


# ---- whole processes ----------------------------------------------------------------------

ALONE = """
import os
from tideline.spark import session
spark = session(master="local[1]", memory="1g", tmp=os.environ["FOLDER"])
print(spark.range(10).count(), spark.conf.get("spark.app.name"),
      spark.conf.get("spark.driver.memory"))
try:
    spark.sql("SELECT 1 / 0").collect()
except Exception as error:
    print(type(error).__name__)
spark.stop()
spark = session()
print(spark.range(3).count(), spark.conf.get("spark.driver.memory"))
spark.stop()
try:
    session(memory="2g")
except Exception as error:
    print(error)
"""


@pytest.mark.spark
def test_alone_it_is_local_and_quiet(tmp_path: Path) -> None:
    done = run(ALONE, FOLDER=str(tmp_path))
    first, failed, again, refused = done.stdout.splitlines()
    assert (first, failed, again) == ("10 tideline 1g", "ArithmeticException", "3 1g")
    assert refused.startswith("Java runs in this process with other memory")
    said = [line for line in done.stderr.splitlines() if not line.startswith("{")]
    assert said == ["WARNING: Using incubator modules: jdk.incubator.vector"]  # Java itself
    assert list(tmp_path.iterdir()) == []


DEFAULTS = """\
spark.master                  local[1]
spark.driver.memory           1100m
spark.driver.extraJavaOptions -XX:+UseSerialGC
spark.app.name                theirs
spark.sql.session.timeZone    America/New_York
spark.sql.shuffle.partitions  5
"""
DECIDED = """
import os
from tideline.spark import session
before = dict(os.environ)
spark = session()
names = ("master", "app.name", "driver.memory", "sql.session.timeZone", "sql.shuffle.partitions",
         "sql.ansi.enabled", "ui.enabled", "driver.host")
print(*(spark.conf.get(f"spark.{name}") for name in names))
print(dict(os.environ) == before, os.environ["SPARK_CONF_DIR"] == os.environ["FOLDER"])
java = spark._jvm.java.lang
print(java.Runtime.getRuntime().maxMemory() >> 20 < 1101)
print(os.path.isfile(spark._jvm.org.apache.logging.log4j.LogManager.getContext(False)
      .getConfiguration().getConfigurationSource().getLocation() or ""))
"""


@pytest.mark.spark
def test_what_the_environment_decided_stays(tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").write_text(DEFAULTS)
    done = run(
        DECIDED, FOLDER=str(tmp_path), SPARK_CONF_DIR=str(tmp_path), SPARK_LOCAL_IP="127.0.0.2",
        PYSPARK_SUBMIT_ARGS="--conf spark.sql.ansi.enabled=false pyspark-shell",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    settings, environment, java, logs = done.stdout.splitlines()
    want = "local[1] theirs 1100m America/New_York 5 false false 127.0.0.2"
    assert (settings, environment, java) == (want, "True True", "True")
    assert logs == "False"  # their log settings, not ours


PLAIN = """
import os
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
import tideline
from tideline.spark import session, share
with tideline.open(os.environ["FOLDER"]) as db, share(db):
    db.channel("news").publish("a", {"n": 1}, ttl_s=60)
    rows = spark.read.format("tideline").option("channel", "news").load(os.environ["FOLDER"])
    print(rows.count())
    spark.sql("CREATE TEMPORARY VIEW news USING tideline OPTIONS "
              f"(channel 'news', path '{os.environ['FOLDER']}')")
    print(spark.table("news").count())
    zone = spark.conf.get("spark.sql.session.timeZone")
    print(session() is spark, spark.conf.get("spark.sql.session.timeZone") == zone)
"""


@pytest.mark.spark
def test_a_plain_session_finds_the_format_and_is_taken_as_it_is(tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # as in an activated environment
    done = run(PLAIN, FOLDER=str(tmp_path), TZ="America/New_York", PATH=path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["1", "1", "True", "True"]


@pytest.mark.long
@pytest.mark.spark
def test_a_master_that_is_not_there_is_named() -> None:
    code = "from tideline.spark import session\nsession(master='nonsense')"
    assert "Unavailable: Spark did not start" in run(code).stderr
