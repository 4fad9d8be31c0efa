"""The format `traffic`: what lies between two offsets is always the same."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tideline.workload.fleet import Fleet

pytestmark = pytest.mark.spark

OPTIONS = {"drivers": 50, "drivers_s": 200.0, "incidents_s": 20.0, "seed": 3}


@pytest.fixture(scope="module")
def registered(spark: Any) -> Any:
    from tideline.spark.traffic import TrafficSource

    spark.dataSource.register(TrafficSource)
    return spark


def test_a_stream_is_the_fleet_from_its_start_on(registered: Any, tmp_path: Path) -> None:
    start_us = time.time_ns() // 1000 - 10_000_000
    frame = registered.readStream.format("traffic").options(start_us=start_us, **OPTIONS).load()
    batches: list[pa.Table] = []
    query = (
        frame.writeStream.foreachBatch(lambda rows, number: batches.append(rows.toArrow()))
        .option("checkpointLocation", str(tmp_path))
        .trigger(once=True)
        .start()
    )
    query.awaitTermination()
    rows = pa.concat_tables(batches).sort_by([("at", "ascending"), ("id", "ascending")])
    limit_us = rows["at"][-1].value - start_us + 1
    made = Fleet(**OPTIONS).operations(0, limit_us, start_us)
    assert len(made) >= 2_000
    assert rows["id"].to_pylist() == made.column("id").to_pylist()
    assert rows["lon"].to_pylist() == made.column("lon").to_pylist()


@pytest.mark.parametrize(
    ("option", "value", "says"), [("wheels", "4", "no option wheels"), ("drivers", "x", "number")]
)
def test_wrong_options_are_refused(registered: Any, option: str, value: str, says: str) -> None:
    with pytest.raises(Exception, match=says):
        registered.readStream.format("traffic").option(option, value).load().writeStream.format(
            "noop"
        ).start().processAllAvailable()
