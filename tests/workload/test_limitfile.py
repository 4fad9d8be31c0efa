"""Workload files: read back as written, counted like a plain loop counts."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest

from tideline.errors import InvalidRequest
from tideline.workload import limitfile


@pytest.fixture(scope="module")
def workload(tmp_path_factory):
    path = tmp_path_factory.mktemp("workload") / "small.bin"
    # 40 operations a second: 10 s back are 400 operations, and ends meet exactly.
    limitfile.write(path, 2000, rate=40, subscriptions=0.5)
    return limitfile.read(path)


def test_a_written_file_reads_back(workload):
    assert (workload.n, workload.warm) == (2000, 666)
    assert np.diff(workload.t).tolist() == [25_000] * 1999
    assert set(workload.type.tolist()) == {0, 1}
    assert 0.4 < workload.type.mean() < 0.6
    assert workload.cell.max() < 250_000
    assert (workload.doff + workload.dlen).max() <= len(workload.pool)


def test_hot_cells_are_hot(workload):
    _, counts = np.unique(workload.cell, return_counts=True)
    assert counts.max() > 3


def test_the_table_says_what_the_columns_say(workload):
    rows = limitfile.table(workload, 100, 200).to_pylist()
    assert len(rows) == 100
    for k, row in enumerate(rows, start=100):
        at_us = int(workload.t[k])
        assert row["id"] == str(k)
        assert row["place"] == str(workload.cell[k])
        assert row["at"] == pa.scalar(at_us, pa.timestamp("us")).as_py()
        if row["op"] == "publish":
            start = workload.doff[k]
            text = bytes(workload.pool[start : start + workload.dlen[k]]).decode()
            assert json.loads(row["body"]) == {"text": text}
            assert row["until"] == pa.scalar(at_us + 20_000_000, pa.timestamp("us")).as_py()
            assert row["since"] is None
            assert row["user"] is None
        else:
            assert row["op"] == "subscribe"
            assert row["body"] is None
            assert row["user"] == str(workload.uid[k])
            assert row["since"] == pa.scalar(at_us - 10_000_000, pa.timestamp("us")).as_py()
            assert row["until"] == pa.scalar(at_us + 10_000_000, pa.timestamp("us")).as_py()


@pytest.mark.parametrize("until_closed", [False, True])
def test_answers_are_counted_like_a_plain_loop_counts(workload, until_closed):
    few_cells = limitfile.LimitFile(
        **{
            name: getattr(workload, name)
            for name in ("n", "warm", "t", "uid", "doff", "dlen", "type", "pool")
        },
        cell=workload.cell % 3,
    )
    expected = []
    for later in range(900):
        count = 0
        for earlier in range(later):
            if few_cells.cell[earlier] != few_cells.cell[later]:
                continue
            apart = few_cells.t[later] - few_cells.t[earlier]
            kinds = (few_cells.type[earlier], few_cells.type[later])
            if kinds == (0, 1):  # an event meets a stored subscription
                count += apart <= 10_000_000 if until_closed else apart < 10_000_000
            elif kinds == (1, 0):  # a subscription meets a stored event
                count += apart <= 10_000_000
        expected.append(count)
    counts = limitfile.count_answers(few_cells, 300, 900, until_closed=until_closed)
    assert counts.tolist() == expected[300:]


def test_a_file_of_another_kind_is_refused(tmp_path):
    path = tmp_path / "x.bin"
    path.write_bytes(b"short")
    with pytest.raises(InvalidRequest, match="not a workload file: too short"):
        limitfile.read(path)
    path.write_bytes(bytes([9] * 100))
    with pytest.raises(InvalidRequest, match="its length is wrong"):
        limitfile.read(path)
