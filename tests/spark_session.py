"""One Spark session for all the tests that need one: `def test_it(spark): ...`, marked `spark`.

Starting one takes seconds, so it is shared: leave its settings and its catalog as they were.
It runs two tasks at a time in a Java process of its own, keeps every file below pytest's
temporary folder, and says nothing but errors. Its workers are this Python and import the
library from this checkout.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

SOURCE = Path(__file__).resolve().parents[1] / "src"

LOG = """
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %p %c{1}: %m%n
"""

SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-Xss8m -XX:TieredStopAtLevel=1",  # jobs here are short
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The session; stopped when the last test has run."""
    folder = tmp_path_factory.mktemp("spark")
    (folder / "conf").mkdir()
    (folder / "conf" / "log4j2.properties").write_text(LOG, encoding="utf-8")
    paths = [str(SOURCE), os.environ.get("PYTHONPATH", "")]
    environment = {
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
        "SPARK_CONF_DIR": str(folder / "conf"),
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        from pyspark.sql import SparkSession

        builder = SparkSession.builder.master("local[2]").appName("tideline tests")
        builder = builder.config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        for name, value in SETTINGS.items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
        yield session
        session.stop()
