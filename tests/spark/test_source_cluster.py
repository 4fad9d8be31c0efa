"""The format `tideline` on a cluster: it writes through the leader, and reads from followers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from cluster.cluster_servers import Three, landed, three
from pipelines import time_of

pytestmark = pytest.mark.spark


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Three]:
    with three(tmp_path) as found:
        yield found


def documents(first: int, limit: int) -> pa.Table:
    return pa.table({"id": list(range(first, limit)), "n": [n % 7 for n in range(first, limit)]})


def events(first: int, limit: int) -> pa.Table:
    numbers = range(first, limit)
    return pa.table(
        {
            "id": [f"e{n}" for n in numbers],
            "place": [f"p{n % 3}" for n in numbers],
            "at": pa.array([time_of(n) for n in numbers], pa.timestamp("us", "UTC")),
            "body": [f'{{"n":{n}}}' for n in numbers],
        }
    )


def test_jobs_go_on_when_the_leader_is_killed(servers: Three, spark: Any, tmp_path: Path) -> None:
    with servers.connect() as db:
        landed(lambda: db.collection("cars", key="id"))
        landed(lambda: db.channel("roads", journal_s=3600))
    url = ",".join(servers.all)

    def write(first: int, limit: int) -> None:
        for table, named in (
            (documents(first, limit), {"collection": "cars"}),
            (events(first, limit), {"channel": "roads"}),
        ):
            frame = spark.createDataFrame(table).repartition(2)
            once = {"writer": "loader", "number": str(limit)}
            (frame.write.format("tideline").options(url=url, **named, **once)
                .mode("append").save())  # fmt: skip

    def read(where: str, **named: str) -> set[Any]:
        reader = spark.read.format("tideline").options(url=where, **named)
        shape = "id long" if "collection" in named else "id string"
        return set(reader.schema(shape).load().toArrow()["id"].to_pylist())

    def copy() -> int:
        """A stream of the channel, as far as it is; how many events it has brought."""
        stream = spark.readStream.format("tideline").options(url=url, channel="roads").load()
        sink = stream.writeStream.format("parquet").option("path", str(tmp_path / "copy"))
        sink = sink.option("checkpointLocation", str(tmp_path / "checkpoint"))
        sink.trigger(availableNow=True).start().awaitTermination()
        return int(spark.read.parquet(str(tmp_path / "copy")).count())

    write(0, 50)
    leader = servers.leader()
    followers = [name for name in servers.peers if name != leader]
    for name in followers:
        servers.caught_up(name)
        assert read(servers.urls[name], collection="cars") == set(range(50))
        assert read(servers.urls[name], channel="roads") == {f"e{n}" for n in range(50)}
    assert copy() == 50
    servers.kill(leader)
    write(50, 100)
    assert read(url, collection="cars") >= set(range(50))
    servers.leader()
    for name in followers:
        servers.caught_up(name)
    assert read(url, collection="cars") == set(range(100))
    assert copy() == 100
