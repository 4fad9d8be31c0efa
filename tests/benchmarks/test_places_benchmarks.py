"""The benchmarks of filters, of writing and of levels end to end on few tweets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import filters, ingestion, levels
from benchmarks.tweets_data import tweets


def test_recent_tweets_are_counted_alike_with_and_without_a_filter(tmp_path: Path) -> None:
    filters.main(
        ["--size", "tiny", "--rounds", "1", "--only", "recency", "--results", str(tmp_path)]
    )
    page = (tmp_path / "filters.md").read_text()
    assert "| index on user, filter |" in page
    rows = json.loads((tmp_path / "filters.json").read_text())["recency"]["data"]["rows"]
    with_filter, without = rows["index on user, filter"], rows["index on user"]
    assert with_filter["0.0005"]["searched"] < without["0.0005"]["searched"]
    assert with_filter["1"]["searched"] == with_filter["1"]["there"]


@pytest.mark.long
def test_every_part_of_filters_and_of_writing(tmp_path: Path) -> None:
    filters.main(["--size", "tiny", "--rounds", "1", "--results", str(tmp_path)])
    assert set(json.loads((tmp_path / "filters.json").read_text())) == set(filters.PARTS)
    ingestion.main(["--size", "tiny", "--results", str(tmp_path)])
    assert set(json.loads((tmp_path / "ingestion.json").read_text())) == set(ingestion.PARTS)
    assert "table 4.3" in (tmp_path / "ingestion.md").read_text()


def test_levels_and_stacks_find_the_same(tmp_path: Path) -> None:
    levels.main(["--size", "tiny", "--rounds", "1", "--results", str(tmp_path)])
    page = (tmp_path / "levels.md").read_text()
    for partition in ("str", "z"):
        assert f"| leveled {partition} best |" in page
    assert (tmp_path / "levels.png").stat().st_size > 0


def test_a_tweet_is_a_function_of_its_number() -> None:
    assert tweets(40, 20) == tweets(0, 60)[40:]
    late = [json.loads(text) for text in tweets(1_000, 200, late=50)]
    assert all(each["id"] - 50 < each["time"] <= each["id"] for each in late)
    assert len({each["id"] - each["time"] for each in late}) > 20
