"""Counts on a grid are what a loop over all documents counts, whoever asks."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import many

import tideline
from tideline.documents.grid import count_on
from tideline.errors import InvalidRequest
from tideline.server import running
from tideline.space import Grid
from tideline.where.geo import point_of

ODD = [0, 1, 2, -1, 0.5, 1.5, 1e-9, 180, -180, 90, 181, 1e300, -0.0]
NUMBERS = st.sampled_from(ODD) | st.floats(
    -3, 3, allow_nan=False
)  # fmt: skip
PAIRS = st.lists(NUMBERS, min_size=2, max_size=2)
POINTS = PAIRS | st.builds(
    lambda pair, more: {"type": "Point", "coordinates": [*pair, *more]},
    PAIRS, st.lists(NUMBERS, max_size=1),
)  # fmt: skip
PLACES = POINTS | st.lists(POINTS, max_size=3) | st.sampled_from(
    [None, 7, "x", [], [1], [1, "2"], [1, 2, 3], {"type": "Poi\\u006et"}, {"type": "Point"},
     {"coordinates": [1, 1]}, {"type": 3, "coordinates": [1, 1]}]
)  # fmt: skip
BOXES = st.sampled_from([(-1, -1, 2, 2), (0, 0, 1, 1), (-180, -90, 180, 90), (-3, 0.5, 2, 1.5)])


def expected(documents: list[Any], field: str, grid: Grid) -> dict[tuple[int, int], int]:
    """The cells of all points at a field."""
    west, south, east, north = grid.bounds
    found: Counter[tuple[int, int]] = Counter()

    def see(value: Any, path: list[str]) -> None:
        if path:
            if isinstance(value, list):
                for one in value:
                    if isinstance(one, dict):
                        see(one, path)
            elif isinstance(value, dict) and path[0] in value:
                see(value[path[0]], path[1:])
            return
        point = point_of(value)
        if point and west <= point[0] <= east and south <= point[1] <= north:
            found[cell(grid, point)] += 1

    for document in documents:
        see(document, field.split("."))
    return dict(found)


def cell(grid: Grid, point: tuple[float, float]) -> tuple[int, int]:
    """The cell whose edges hold a point, looked for one by one."""
    west, south, east, north = grid.bounds

    def number(x: float, low: float, high: float, count: int) -> int:
        edges = [low + (high - low) * i / count for i in range(count)]
        return max((i for i, edge in enumerate(edges) if edge <= x), default=0)

    return number(point[1], south, north, grid.rows), number(point[0], west, east, grid.cols)


def cells(table: Any) -> dict[tuple[int, int], int]:
    return {(each["row"], each["col"]): each["count"] for each in table.to_pylist()}


@settings(max_examples=many(150))
@given(
    st.lists(PLACES, max_size=8), st.sampled_from(["at", "a.at"]), BOXES,
    st.integers(1, 5), st.integers(1, 7), st.booleans(),
)  # fmt: skip
def test_counts_are_those_of_a_loop(
    places: list[Any], field: str, box: Any, rows: int, cols: int, listed: bool
) -> None:
    grid = Grid(bounds=box, rows=rows, cols=cols)
    documents: list[Any] = [{"at": place, "x": 1} for place in places]
    if field == "a.at":
        documents = [{"a": [one] if listed else one} for one in documents]
    texts = [json.dumps(each).replace("\\\\u", "\\u").encode() for each in documents]
    documents = [json.loads(text) for text in texts]
    assert cells(count_on([texts], field, grid)) == expected(documents, field, grid)


def test_shapes_count_in_the_middle_of_their_bounds() -> None:
    shapes = [
        {"type": "LineString", "coordinates": [[0, 0], [1, 0], [1, 3]]},
        {"type": "Polygon", "coordinates": [[[0, 0], [4, 0], [4, 4], [0, 4], [0, 0]]]},
        {"type": "GeometryCollection", "geometries": [
            {"type": "Point", "coordinates": [3, 3]}, {"type": "MultiPoint", "coordinates": []}]},
        {"type": "Circle", "coordinates": [1, 1]}, {"type": "Polygon", "coordinates": []},
    ]  # fmt: skip
    texts = [json.dumps({"at": shape}).encode() for shape in shapes]
    found = count_on([texts], "at", Grid(bounds=(0, 0, 4, 4), rows=4, cols=4))
    assert cells(found) == {(1, 0): 1, (2, 2): 1, (3, 3): 1}


@pytest.fixture
def places(tmp_path: Path) -> Any:
    with tideline.open(tmp_path / "data") as db:
        made = db.collection("places", key="id", filter="time", indexes=["kind"])
        made.put_many(
            [{"id": n, "at": [math.sin(n), math.cos(3 * n)], "time": n, "kind": "ab"[n % 2]}
             for n in range(500)]
        )  # fmt: skip
        made.db = db
        yield made


def test_an_index_changes_no_count(tmp_path: Path) -> None:
    corner = {"type": "LineString", "coordinates": [[-9, 0.5], [-9, 9], [0.5, 9]]}  # around it
    bent = {
        "type": "LineString",
        "coordinates": [[0.2, 0.2], [0.2, 9], [9, 9]],
    }  # its middle is out
    shapes = [
        [0.5, 0.5], [[0.5, 0.5], [0.6, 0.6]], corner, bent, [1, 1], [1.1, 1], "here",
        {"type": "Polygon", "coordinates": [[[-5, -5], [5, -5], [5, 5], [-5, 5], [-5, -5]]]},
        {"type": "Polygon", "coordinates": []},
        {"type": "MultiPoint", "coordinates": [[0.1, 0.9], [7, 7]]},
    ]  # fmt: skip
    with tideline.open(tmp_path / "data") as db:
        plain = db.collection("plain", key="id")
        indexed = db.collection("indexed", key="id", indexes={"at": "spatial"})
        for made in (plain, indexed):
            made.put_many([{"id": n, "at": shape} for n, shape in enumerate(shapes)])
        found = [
            cells(made.aggregate_grid((0, 0, 1, 1), rows=2, cols=2, field="at"))
            for made in (plain, indexed)
        ]
    assert found[0] == found[1] == {(1, 1): 4, (0, 0): 1}


def test_a_condition_is_planned_and_counted(places: Any) -> None:
    places._engine.seal()
    places.put_many([{"id": n, "at": [5, 5], "time": n, "kind": "b"} for n in range(0, 50)])
    box, where = (-1, -1, 1, 1), {"kind": "b", "time": {"$gte": 40}}
    found = cells(places.aggregate_grid(box, rows=7, cols=9, where=where, field="at"))
    met = places.find(where)
    assert found == expected(met, "at", Grid(bounds=box, rows=7, cols=9))
    assert sum(found.values()) == len([one for one in met if one["at"] != [5, 5]])


def test_every_way_in_gives_the_same_table(places: Any) -> None:
    asked = {"rows": 4, "cols": 3, "where": {"kind": "a"}, "field": "at"}
    here = places.aggregate_grid((-1, -1, 1, 1), **asked)
    with running(places.db) as url, tideline.connect(url) as remote:
        there = remote.collection("places")
        for box in ((-1, -1, 1, 1), [[-1, -1], [1, 1]], {"$box": [[-1, -1], [1, 1]]},
                    tideline.Box(-1, -1, 1, 1)):  # fmt: skip
            assert places.aggregate_grid(box, **asked).equals(here)
            assert there.aggregate_grid(box, **asked).equals(here)
        for wrong in WRONG:
            for collection in (places, there):
                with pytest.raises(InvalidRequest, match=wrong["says"]):
                    collection.aggregate_grid(wrong["box"], **{**asked, **wrong["more"]})


WRONG: list[dict[str, Any]] = [
    {"box": box, "more": more, "says": says}
    for box, more, says in (
        ((1, 2, 3), {}, "box must be"), (None, {}, "box must be"), ("world", {}, "box must be"),
        ([[0], [1, 1, 2]], {}, "box must be"), ((1, 0, -1, 1), {}, "west"),
        ((0, 0, 1, 1), {"rows": 0}, "rows"),
        ((0, 0, 1, 1), {"cols": "3"}, "cols"),
        ((0, 0, 1, 1), {"rows": 4000, "cols": 4000}, "at most 4,000,000 cells"),
        ((0, 0, 1, 1), {"where": {"a": {"$gtt": 1}}}, "gtt"),
        ((0, 0, 1, 1), {"field": None}, "name the field of the places"),
        ((0, 0, 1, 1), {"field": "a,b"}, "field"),
    )
]  # fmt: skip
