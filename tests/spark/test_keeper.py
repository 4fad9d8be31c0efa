"""A folder that nobody has open: opened for whoever needs it, and left again. Without Spark."""

from __future__ import annotations

import os
import re
import signal
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

import tideline
from tideline.errors import Unavailable
from tideline.lsm import owner
from tideline.spark.client import connect
from tideline.spark.options import Target, target


@pytest.fixture
def place(tmp_path: Path) -> Target:
    """A closed store with the channel `roads`, as Spark's planning names it."""
    with tideline.open(tmp_path / "data") as db:
        db.channel("roads")
    return target({"path": str(tmp_path / "data"), "channel": "roads"}, "write")


def owner_of(place: Target) -> int:
    found = re.match(r"pid (\d+) .*for Spark", (Path(place.path) / "LOCK").read_text())
    assert found
    return int(found[1])


def test_all_who_come_at_once_share_one_owner_and_a_killed_one_is_replaced(place: Target) -> None:
    clients = [connect(place) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(lambda each: each.describe("roads").identity, clients))) == 1
    first = owner_of(place)
    os.kill(first, signal.SIGKILL)
    client = connect(place)
    client.describe("roads")
    assert owner_of(place) != first
    for each in (*clients, client):
        each.close()
    tideline.open(place.path).close()  # waits until it has left


def test_staged_rows_keep_it_until_they_are_committed(
    place: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = connect(place)
    row = {"op": "publish", "place": "p", "at": datetime.now(UTC), "body": "{}"}
    token = client.stage("job", [pa.RecordBatch.from_pylist([row])])
    client.close()
    with monkeypatch.context() as patch:
        patch.setattr(owner, "_STEPS", 80)  # four seconds: longer than it stays for nothing
        with pytest.raises(Unavailable, match=r"open in another process.*for Spark, until it is"):
            tideline.open(place.path)
    client = connect(place)
    assert client.commit("roads", [token]).rejected == 0
    client.discard("job")
    client.close()
    with tideline.open(place.path) as db:
        assert len(db.channel("roads").find("p")) == 1


def test_another_machine_does_not_open_it(place: Target) -> None:
    with pytest.raises(Unavailable, match=r"nobody shares the store.*share\(db\)"):
        connect(replace(place, host="elsewhere")).describe("roads")
    with tideline.open(place.path), pytest.raises(Unavailable, match="cannot be opened for Spark"):
        connect(place).describe("roads")
