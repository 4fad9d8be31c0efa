"""How a task of a bulk load cuts its sorted rows into pieces. No Spark is started."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tideline.errors import InvalidRequest
from tideline.spark import bulk

Row = tuple[int, int]
ROWS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 5)), max_size=60).map(sorted)


def cut(rows: list[Row], batch: int, piece_rows: int, by: str | None) -> list[list[Row]]:
    """The pieces of rows that come in batches of a size."""
    table = pa.table({"k": [k for k, _ in rows], "v": [v for _, v in rows]},
                     pa.schema({"k": pa.int64(), "v": pa.int64()}))  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bulk, "_PIECE_BYTES", piece_rows * 16)
        pieces = list(bulk._pieces(iter(table.to_batches(max_chunksize=batch)), "k", by))
    return [[(row["k"], row["v"]) for row in piece.to_pylist()] for piece in pieces]


@given(ROWS, st.integers(1, 9), st.integers(2, 20))
def test_of_rows_with_one_key_the_greatest_version_stays(
    rows: list[Row], batch: int, piece_rows: int
) -> None:
    pieces = cut(rows, batch, piece_rows, "v")
    assert [row for piece in pieces for row in piece] == sorted(dict(rows).items())


@given(ROWS, st.integers(1, 9), st.integers(2, 20))
def test_two_rows_with_one_key_are_refused(rows: list[Row], batch: int, piece_rows: int) -> None:
    keys = [k for k, _ in rows]
    if len(set(keys)) == len(keys):
        assert [row for piece in cut(rows, batch, piece_rows, None) for row in piece] == rows
    else:
        with pytest.raises(InvalidRequest, match="two rows have one key"):
            cut(rows, batch, piece_rows, None)


def test_a_row_without_a_key_is_not_left_out() -> None:
    rows: Any = pa.table({"k": pa.array([None, None, 1], pa.int64()), "v": [1, 2, 3]})
    for by in ("v", None):
        (piece,) = bulk._pieces(iter(rows.to_batches(max_chunksize=1)), "k", by)
        assert piece.num_rows == 3  # building the piece then refuses it
