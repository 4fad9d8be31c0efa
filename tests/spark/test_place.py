"""Cells made by Spark are the cells that `tideline.space` makes, for every point."""

from __future__ import annotations

import doctest
import math
import random
from typing import Any

import pytest

from tideline import Flat, Grid, QuadTree
from tideline.errors import InvalidRequest
from tideline.spark import place

pytestmark = pytest.mark.spark

SPACES: list[Any] = [
    QuadTree(bounds=(-79.8, 40.4, -71.8, 45.1), depth=9),
    QuadTree(bounds=(-180, -90, 180, 90), depth=24),
    QuadTree(bounds=(0.1, 0.2, 0.30000000000000004, 0.7), depth=1),
    QuadTree(bounds=(-1e-3, -1e-3, 1e-3, 1e-3), depth=13),
    Grid(bounds=(-79.8, 40.4, -71.8, 45.1), rows=64, cols=64),
    Grid(bounds=(-180, -90, 180, 90), rows=3, cols=65_536),
    Grid(bounds=(1 / 3, -1 / 7, 2 / 3, 1 / 7), rows=7, cols=49),
    Grid(bounds=(-1, -1, 1, 1), rows=1, cols=1),
]


def points(space: Any, seed: int, count: int) -> list[tuple[float | None, float | None]]:
    """Points anywhere, on edges of cells, one float beside them, and outside."""
    draw = random.Random(seed)
    west, south, east, north = space.bounds
    spec = space.spec()
    cols, rows = spec.get("cols", 1 << spec.get("depth", 0)), spec.get("rows")
    rows = rows if rows is not None else cols

    def coordinate(low: float, high: float, cells: int) -> float:
        kind = draw.randrange(8)
        if kind < 2:
            return draw.uniform(low, high)
        if kind == 2:
            return draw.choice([low, high, -0.0, 0.0, math.inf, -math.inf, math.nan, 1e308])
        if kind == 3:
            return draw.uniform(low - 1, high + 1)
        number = draw.randrange(cells + 1)
        edge = low + (high - low) * number / cells
        for _ in range(draw.randrange(3)):
            edge = math.nextafter(edge, draw.choice([-math.inf, math.inf]))
        return edge

    made: list[tuple[float | None, float | None]] = [
        (coordinate(west, east, cols), coordinate(south, north, rows)) for _ in range(count)
    ]
    return [*made, (None, south), (west, None), (west, south), (east, north), (west, north)]


def expected(space: Any, lon: float | None, lat: float | None) -> tuple[str, bytes] | None:
    """The name and the key of the cell, by the space itself."""
    try:
        key = space.encode((lon, lat)).key
    except InvalidRequest:
        return None
    return space._text(key), key


@pytest.mark.parametrize("space", SPACES, ids=repr)
def test_spark_finds_the_cell_that_the_space_finds(space: Any, spark: Any) -> None:
    from pyspark.sql import functions as F

    given = points(space, seed=11, count=2500)
    frame = spark.createDataFrame(given, "lon double, lat double").repartition(2)
    lon, lat = F.col("lon"), F.col("lat")
    depth = (
        space.depth
        if isinstance(space, QuadTree)
        else (max(space.rows, space.cols) - 1).bit_length()
    )
    levels = sorted({0, min(1, depth), depth // 2, depth})
    rows = frame.select(
        lon, lat, place.inside(space, lon, lat).alias("inside"),
        place.cell_name(space, lon, lat).alias("name"),
        *(place.path_name(space, lon, lat, level).alias(f"path{level}") for level in levels),
    ).toArrow().to_pylist()  # fmt: skip
    assert len(rows) == len(given)
    for row in rows:
        wanted = expected(space, row["lon"], row["lat"])
        assert row["inside"] == (wanted is not None), row
        assert row["name"] == (None if wanted is None else wanted[0]), row
        for level in levels:
            path = None if wanted is None else ".".join(map(str, wanted[1][:level]))
            assert row[f"path{level}"] == path, (level, row)


def test_a_larger_cell_is_a_place_of_the_space_too(spark: Any) -> None:
    from pyspark.sql import functions as F

    tree = SPACES[0]
    frame = spark.createDataFrame([(-73.97, 40.75)], "lon double, lat double")
    name = frame.select(place.cell_name(tree, F.col("lon"), F.col("lat"), 4).alias("n")).first().n
    assert tree.encode((-73.97, 40.75)).key.startswith(tree.encode(name).key)
    assert len(tree.encode(name).key) == 4


def test_what_has_no_cells_is_refused(spark: Any) -> None:
    from pyspark.sql import functions as F

    lon, lat = F.col("lon"), F.col("lat")
    with pytest.raises(InvalidRequest, match="only a grid or a quad tree has cells"):
        place.inside(Flat(), lon, lat)
    with pytest.raises(InvalidRequest, match="level must be 0 to 9"):
        place.path_name(SPACES[0], lon, lat, 10)
    with pytest.raises(InvalidRequest, match="only a quad tree has levels"):
        place.cell_name(SPACES[4], lon, lat, 2)


def test_the_examples_in_its_docstrings_run(spark: Any) -> None:
    """They are skipped where there is no session, and run here."""
    failed = 0
    found = [test for test in doctest.DocTestFinder().find(place) if test.examples]
    for test in found:
        test.globs["spark"] = spark
        for example in test.examples:
            example.options.pop(doctest.SKIP, None)
        failed += doctest.DocTestRunner().run(test).failed
    assert len(found) == 5
    assert failed == 0
