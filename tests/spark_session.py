"""One Spark session for all the tests that need one: `def test_it(spark): ...`, marked `spark`.

Starting one takes seconds, so it is shared: leave its settings and its catalog as they were.
It is `tideline.spark.session()` as users get it, but for two tasks at a time and a Java
process that compiles less, and it keeps every file below pytest's temporary folder.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tideline.spark import session

SETTINGS = {
    "spark.driver.extraJavaOptions": "-Xss8m -XX:TieredStopAtLevel=1",  # jobs here are short
    "spark.sql.shuffle.partitions": "2",
}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The session; stopped when the last test has run."""
    started = session(
        master="local[2]",
        memory="1g",
        app="tideline tests",
        config=SETTINGS,
        tmp=tmp_path_factory.mktemp("spark"),
    )
    yield started
    started.stop()
