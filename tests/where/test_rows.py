"""What the documents of Arrow rows promise: what JSON can hold of each row, and no nulls."""

from __future__ import annotations

import math
import random
from datetime import date
from decimal import Decimal

import pyarrow as pa
import pytest
from typed_rows import SCHEMA, document, random_row

from tideline.where.rows import documents


def documents_of(table: pa.Table) -> list[object]:
    """By the batches of a table."""
    return [
        found
        for batch in table.to_batches()
        for found in documents(batch.schema.names, batch.columns, batch.num_rows)
    ]


@pytest.mark.parametrize("seed", range(5))
def test_a_document_is_what_the_plain_rule_gives(seed: int) -> None:
    draw = random.Random(seed)
    rows = [random_row(draw) for _ in range(200)]
    table = pa.Table.from_pylist(rows, SCHEMA)
    expected = [document(row) for row in rows]
    assert documents_of(table) == expected
    assert documents_of(table.slice(7, 150)) == expected[7:157]  # a batch may be part of a buffer


def test_a_float_of_32_bits_is_the_double_of_its_value() -> None:
    assert documents(["x"], [pa.array([0.1], pa.float32())], 1) == [{"x": 0.10000000149011612}]


def test_what_json_cannot_hold_is_left_out() -> None:
    rows = [
        {
            "x": math.nan,
            "o": {"x": -math.inf, "y": 1},
            "xs": [math.inf, 1.0],
            "os": [{"x": math.nan}],
        },
        {"x": 1.0, "o": None, "xs": None, "os": [None, {"x": 2.0}]},
    ]
    found = documents_of(pa.Table.from_pylist(rows))
    assert found == [
        {"o": {"y": 1}, "xs": [None, 1.0], "os": [{}]},
        {"x": 1.0, "os": [None, {"x": 2.0}]},
    ]


def test_types_that_no_json_value_has_are_left_out() -> None:
    row = {
        "day": date(2024, 5, 1),
        "sum": Decimal("1.5"),
        "raw": b"a",
        "o": {"day": date(2024, 5, 1)},
    }
    table = pa.Table.from_pylist([{**row, "n": 1}])
    assert documents_of(table) == [{"o": {}, "n": 1}]


def test_rows_without_columns_are_empty_documents() -> None:
    assert documents([], [], 2) == [{}, {}]
    assert documents(["o"], [pa.array([{}, None], pa.struct([]))], 2) == [{"o": {}}, {}]


def test_text_of_any_width_is_text() -> None:
    columns = [pa.array(["a", None], kind) for kind in (pa.string(), pa.large_string())]
    assert documents(["s", "l"], columns, 2) == [{"s": "a", "l": "a"}, {}]
