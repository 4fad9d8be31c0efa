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
    from tideline.cli.demo_source import TrafficSource

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


def test_a_late_batch_is_no_larger_and_nothing_piles_up() -> None:
    from tideline.cli.demo_source import TrafficReader

    reader = TrafficReader({name: str(value) for name, value in OPTIONS.items()} | {"most_s": "2"})
    now_us = time.time_ns() // 1000
    late = {"us": 5_000_000, "start_us": now_us - 65_000_000}  # a minute behind
    end = reader.latestOffset(late, None)
    assert end["us"] == 7_000_000
    [stretch] = reader.partitions(late, end)
    [rows] = list(reader.read(stretch))
    assert len(rows) == 2 * (200 + 20)
    times = [at.value for at in rows.column("at")]
    assert now_us - 2_000_000 <= min(times)  # made now, not a minute ago
    # Spark asks for the same batch again after a failure, and gets the same.
    [again] = list(reader.read(reader.partitions(late, end)[0]))
    assert again == rows
    after = reader.latestOffset(end, None)
    [following] = list(reader.read(reader.partitions(end, after)[0]))
    assert min(at.value for at in following.column("at")) > max(times)
    assert not set(following.column("id").to_pylist()) & set(rows.column("id").to_pylist())


def test_fleets_of_two_names_share_no_ids() -> None:
    from tideline.cli.demo_source import TrafficReader

    reader = TrafficReader({"drivers": "5", "name": "west-"})
    [stretch] = reader.partitions({"us": 0, "start_us": 0}, {"us": 1_000_000, "start_us": 0})
    [rows] = list(reader.read(stretch))
    assert {text[:5] for text in rows.column("id").to_pylist()} == {"west-"}
    users = set(filter(None, rows.column("user").to_pylist()))
    assert users == {f"west-driver-{number}" for number in range(5)}
