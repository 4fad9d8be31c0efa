"""The benchmark of live queries on Spark counts what it says, and all of it runs, small."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("psutil")

from benchmarks import spark_live


def test_a_write_is_of_the_shape_that_it_says() -> None:
    table, found = spark_live.batch_of(3, 50)
    documents = [json.loads(text) for text in table["document"].to_pylist()]
    assert [each["random"] for each in documents] == found.tolist()
    assert [str(each["id"]) for each in documents] == table["key"].to_pylist()
    assert table["seq"].to_pylist() == list(range(151, 201))
    kinds = sorted(type(value).__name__ for name, value in documents[0].items() if name != "id")
    assert kinds == ["int"] * 5 + ["str"] * 5


@pytest.mark.spark
@pytest.mark.long
def test_every_change_that_numpy_counts_is_told(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    spark_live.main(["--size", "tiny", "--batches", "2", "--results", str(tmp_path)])
    lines = json.loads((tmp_path / "spark-live.json").read_text())["live"]["data"]["lines"]
    assert len(lines) == len(spark_live.CONFIGS)
    assert all(line["right"] for line in lines)
    assert "| queries | local[2] | (2, 1) |" in (tmp_path / "spark-live.md").read_text()
    assert (tmp_path / "spark-live.png").stat().st_size > 1_000
