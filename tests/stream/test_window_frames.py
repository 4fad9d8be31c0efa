"""Data frames as rows: whatever hands out an Arrow stream is a table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import tideline
from tideline.errors import InvalidRequest
from tideline.server import running

CARS: dict[str, Any] = {
    "span_s": 30, "slide_s": 10, "key": ("road", "vid"), "values": {"vel": "int32"}, "time": "t",
    "max_ahead_s": float("inf"),
}  # fmt: skip


class Frame:
    """What Polars and others are to us."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._table.__arrow_c_stream__(requested_schema)


def test_frames_are_rows(tmp_path: Path) -> None:
    table = pa.table({"road": ["a", "b"], "vid": [1, 2], "vel": [50, None], "t": [5, 5]})
    frame = pd.DataFrame({
        "road": ["a", "c"], "vid": [3, 4], "vel": [7, 8], "t": pd.to_datetime([6, 6], unit="s"),
    }, index=[5, 9])  # fmt: skip
    with tideline.open(tmp_path / "db") as db, running(db) as url, tideline.connect(url) as remote:
        for name in ("here", "there"):
            db.window(name, **CARS)
        for window in (db.window("here"), remote.window("there")):
            for given in (Frame(table), table, table.to_batches()[0]):
                done = window.append(given)
                assert done.stored == 1
                assert done.rejected.to_pylist() == [{"row": 1, "reason": "vel is missing"}]
            assert window.append(frame).stored == 2
            assert window.get(("c", 4)) == {"vel": 8}
            assert window.range(map="count()") == 3
            with pytest.raises(InvalidRequest, match="columns are missing"):
                window.append(frame.drop(columns="vel"))
            with pytest.raises(InvalidRequest):
                window.append(pa.chunked_array([[1, 2]]))


def test_a_mapper_without_its_bracket_is_told_so() -> None:
    with tideline.open(":memory:") as db:
        window = db.window("w", **CARS)
        for text in ("mean(vel", "mean vel)", "count("):
            with pytest.raises(InvalidRequest, match=r"ends with a bracket|no such mapper"):
                window.range(map=text)
        with pytest.raises(InvalidRequest, match=r"ends with a bracket: mean\(vel\)"):
            window.range(map="mean(vel")
