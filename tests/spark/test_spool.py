"""What the spool promises: one order of the rows, however they were spread, in bounded tables."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from tideline.channel import spool as module
from tideline.channel.spool import Spool, in_order, merged
from tideline.errors import InvalidRequest, Unavailable

SCHEMA = pa.schema(
    [("op", pa.string()), ("id", pa.string()), ("at", pa.timestamp("us", "UTC")),
     ("place", pa.string()), ("lon", pa.float64()), ("unseen", pa.bool_())]
)  # fmt: skip


def rows_of(draw: random.Random, count: int, times: int) -> list[dict[str, object]]:
    def maybe(value: object) -> object:
        return None if draw.random() < 0.1 else value

    return [
        {
            "op": maybe(draw.choice(["publish", "subscribe", "cancel"])),
            "id": maybe(f"i{draw.randrange(count)}"),
            "at": maybe(draw.randrange(times)),
            "place": maybe(draw.choice("abc")),
            "lon": maybe(draw.choice([0.5, -1.5])),
            "unseen": maybe(True),
        }
        for _ in range(count)
    ]


def batches(rows: list[dict[str, object]], size: int) -> Iterator[pa.RecordBatch]:
    for first in range(0, len(rows), size):
        yield pa.RecordBatch.from_pylist(rows[first : first + size], SCHEMA)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs and ranges of few rows, so that few rows make many."""
    monkeypatch.setattr(module, "_RUN_ROWS", 50)
    monkeypatch.setattr(module, "_HELD_BYTES", 2_000)
    monkeypatch.setattr(module, "_SAMPLE", 8)


@pytest.mark.parametrize("times", [1, 7, 100_000])
def test_the_order_does_not_depend_on_how_rows_were_spread(
    tmp_path: Path, small: None, times: int
) -> None:
    draw = random.Random(times)
    rows = rows_of(draw, 1_000, times)
    found = []
    for spread in range(4):
        draw.shuffle(rows)
        spool = Spool(tmp_path)
        parts = [rows[part :: spread + 1] for part in range(spread + 1)]
        tokens = [spool.stage("job", batches(part, 30 + spread)) for part in parts]
        tables = list(merged(spool.runs(tokens), rows=64))
        assert [table.num_rows for table in tables] == [64] * 15 + [40]
        found.append(pa.concat_tables(tables).to_pylist())
    assert found[0] == found[1] == found[2] == found[3]
    assert found[0] == in_order(pa.Table.from_pylist(rows, SCHEMA)).to_pylist()


def test_the_order_is_time_then_subscribe_publish_cancel() -> None:
    rows = [
        {"op": "cancel", "id": "s", "at": 5},
        {"op": "publish", "id": "b", "at": 5},
        {"op": "publish", "id": "a", "at": 5},
        {"op": "subscribe", "id": "s", "at": 5},
        {"op": "cancel", "id": "x", "at": 4},
        {"op": "publish", "id": "z", "at": None},
    ]
    found = in_order(pa.Table.from_pylist(rows, SCHEMA))
    assert found["id"].to_pylist() == ["z", "x", "s", "a", "b", "s"]


def test_in_order_of_arrival_rows_stay_as_they_came(tmp_path: Path, small: None) -> None:
    rows = rows_of(random.Random(1), 300, 50)
    spool = Spool(tmp_path)
    tokens = [spool.stage("job", batches(part, 40), "arrival") for part in (rows[:99], rows[99:])]
    tables = list(merged(spool.runs(tokens), "arrival", rows=128))
    assert [table.num_rows for table in tables] == [128, 128, 44]
    expected = pa.Table.from_pylist(rows, SCHEMA).to_pylist()
    assert pa.concat_tables(tables).to_pylist() == expected


def test_no_rows_are_no_tables(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    empty = pa.RecordBatch.from_pylist([], SCHEMA)
    tokens = [spool.stage("job", []), spool.stage("job", [empty])]
    assert list(merged(spool.runs(tokens))) == []


def test_a_failure_while_staging_leaves_nothing(tmp_path: Path) -> None:
    def failing() -> Iterator[pa.RecordBatch]:
        yield from batches(rows_of(random.Random(1), 100_000, 9), 10_000)
        raise ValueError("the task failed")

    with pytest.raises(ValueError, match="the task failed"):
        Spool(tmp_path).stage("job", failing())
    assert list(tmp_path.iterdir()) == []


def test_a_job_cleans_up_after_itself_alone(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    one = list(batches(rows_of(random.Random(1), 3, 9), 3))
    mine, other = spool.stage("q-1", one), spool.stage("q-10", one)
    (tmp_path / "q-1.0123456789abcdef.part").write_bytes(b"killed in the middle")
    spool.discard("q-1")
    assert [path.name for path in tmp_path.iterdir()] == [f"{other}.arrow"]
    with pytest.raises(Unavailable, match="write them again"):
        spool.runs([mine])


def test_what_a_job_that_is_over_stages_late_is_removed(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    one = list(batches(rows_of(random.Random(1), 3, 9), 3))
    spool.stage("b-1", one)

    def given_up() -> Iterator[pa.RecordBatch]:
        yield from one
        spool.discard("b-1", over=True)

    spool.stage("b-1", given_up())
    spool.stage("b-1", one)
    assert [path.name for path in tmp_path.iterdir()] == ["b-1.over"]
    (tmp_path / "b-1.0123456789abcdef.part").write_bytes(b"killed in the middle")
    spool.discard("b-2")
    assert [path.name for path in tmp_path.iterdir()] == ["b-1.over"]


@pytest.mark.parametrize("token", ["../x.0123456789abcdef", "", "job", "a/b.0123456789abcdef", 7])
def test_a_token_is_never_a_path(tmp_path: Path, token: str) -> None:
    with pytest.raises(InvalidRequest, match="no token"):
        Spool(tmp_path).runs([token])


def test_a_folder_that_is_gone_says_why(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "gone")
    with pytest.raises(Unavailable, match="cannot be staged"):
        spool.stage("job", batches(rows_of(random.Random(1), 3, 9), 3))
