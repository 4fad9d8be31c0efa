"""The Spark benchmark measures what it says: its data, its cuts, its page; and all of it, small."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("pyspark")
pytest.importorskip("psutil")

from benchmarks import spark, spark_data
from benchmarks.spark_latency import STAGES, _way


def test_the_expected_answers_are_those_of_a_plain_loop(tmp_path: Path) -> None:
    data = spark_data.make(tmp_path, 300, places=7, seconds=90, files=3)
    second = 1_000_000
    plain = [
        sub << 32 | event
        for sub in range(300)
        for event in range(300)
        if data.sub_place[sub] == data.event_place[event]
        and -10 * second <= data.event_at[event] - data.sub_at[sub] < 10 * second
    ]
    assert len(plain) > 500
    assert np.array_equal(spark_data.pairs(data), np.sort(plain))
    assert sorted(path.name for path in (tmp_path / "events").iterdir()) == [
        "0000.parquet", "0001.parquet", "0002.parquet",
    ]  # fmt: skip


def test_the_stages_of_an_event_add_up_to_its_whole_way() -> None:
    way = _way(created=1.0, received=8.75, moments=[0.5, 2.5, 9.0])
    assert dict(zip(STAGES, way, strict=True)) == {"source wait": 1.5, "micro-batch": 6.25}
    assert sum(way) == pytest.approx(8.75 - 1.0)


@pytest.mark.spark
@pytest.mark.long
def test_every_part_runs_small_and_gets_the_right_answers(tmp_path: Path) -> None:
    spark.main(["--size", "tiny", "--rounds", "1", "--rate", "2000", "--results", str(tmp_path)])
    text = (tmp_path / "spark.md").read_text()
    for title in ("Into the store", "Matching", "State of a stream", "From event to answer"):
        assert f"## {title}\n" in text
    assert "**no**" not in text
    assert (tmp_path / "spark.png").stat().st_size > 10_000
