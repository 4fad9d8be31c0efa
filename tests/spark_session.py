"""One Spark session for all the tests that need one: `def test_it(spark): ...`, marked `spark`.

Starting one takes seconds, so it is shared: leave its settings and its catalog as they were.
It is `tideline.spark.session()` as users get it, but for two tasks at a time and a Java
process that compiles less, and it keeps every file below pytest's temporary folder.

`TIDELINE_TEST_SPARK=cluster` runs the same tests on a real cluster (spark_cluster.py).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from tideline.spark import session

SETTINGS = {
    "spark.driver.extraJavaOptions": "-Xss8m -XX:TieredStopAtLevel=1",  # jobs here are short
    "spark.sql.shuffle.partitions": "2",
}


@pytest.fixture(scope="session")
def spark(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Any]:
    """The session; stopped when the last test has run."""
    master, memory = "local[2]", "1g"
    with pytest.MonkeyPatch.context() as patch:
        if os.environ.get("TIDELINE_TEST_SPARK") == "cluster":
            cluster = request.getfixturevalue("spark_cluster")
            master, memory = cluster.url, "900m"
            for name, text in cluster.environment().items():
                patch.setenv(name, text)
        started = session(
            master=master,
            memory=memory,
            app="tideline tests",
            config=SETTINGS,
            tmp=tmp_path_factory.mktemp("spark"),
        )
        yield started
        started.stop()
        end_java()


def end_java() -> None:
    """End the Java process of this one, and wait for it; Spark leaves that to the end of Python."""
    from pyspark import SparkContext

    gateway, SparkContext._gateway, SparkContext._jvm = SparkContext._gateway, None, None
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()
