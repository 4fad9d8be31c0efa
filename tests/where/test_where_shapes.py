"""What conditions on geometries of all kinds promise: shapely's answer, and one in every target."""

from __future__ import annotations

import itertools
import json
import math
import random
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import many

from tideline.index.texts import Texts
from tideline.kernels.geo import haversine_m
from tideline.kernels.orient import orient
from tideline.space import exact
from tideline.space.outline import (
    box_outline,
    farthest_m,
    from_bytes,
    meets,
    nearest_m,
    of_point,
    outline_of,
    side,
    within,
)
from tideline.standing import Standing
from tideline.where import parse
from tideline.where.batch import matching
from tideline.where.nearest import lying_at

MANY = many(300)
grid = st.tuples(st.integers(-4, 4), st.integers(-4, 4)).map(list)
close = st.sampled_from([0.1, 0.2, 0.3, 0.5, 0.6, 0.7, 1.1, 1.3, 179.9, 1e-17, 0.1 + 1e-16])
# Exact down to 1e-130: nearer to 0 is 0 in a geometry.
numbers = st.one_of(close, st.floats(-180, 180).map(lambda n: n if abs(n) > 1e-130 else 0.0))


def rings(size: int) -> Any:
    ring = st.lists(grid, min_size=3, max_size=size, unique_by=tuple)
    return ring.map(lambda points: [*points, points[0]])


@st.composite
def geometries(draw: Any, depth: int = 1) -> dict[str, Any]:
    """GeoJSON on a grid of whole numbers, valid as shapely sees it."""
    kind = draw(
        st.sampled_from(
            ["Point", "MultiPoint", "LineString", "MultiLineString", "Polygon", "Polygon",
             "MultiPolygon", *(["GeometryCollection"] * depth)]
        )
    )  # fmt: skip
    line = st.lists(grid, min_size=2, max_size=4)
    if kind == "GeometryCollection":
        members = draw(st.lists(geometries(depth=0), min_size=1, max_size=3))
        return {"type": kind, "geometries": members}
    made = {
        "Point": grid,
        "MultiPoint": st.lists(grid, min_size=1, max_size=3),
        "LineString": line,
        "MultiLineString": st.lists(line, min_size=1, max_size=2),
        "Polygon": st.lists(rings(6), min_size=1, max_size=2),
        "MultiPolygon": st.lists(rings(5).map(lambda ring: [ring]), min_size=1, max_size=2),
    }[kind]
    return {"type": kind, "coordinates": draw(made)}


def is_valid(geometry: dict[str, Any]) -> bool:
    return bool(shapely.geometry.shape(geometry).is_valid)


valid = geometries().filter(is_valid)
areas = geometries().filter(lambda one: "Polygon" in one["type"] and is_valid(one))


@settings(max_examples=MANY)
@given(numbers, numbers, numbers, numbers, numbers, numbers, st.booleans())
def test_the_side_of_a_line_is_exact(ax, ay, bx, by, x, y, on):
    if on:  # nearly on the line, or just on it
        x, y = ax + (bx - ax) * 0.5, ay + (by - ay) * 0.5
        x, y = (each if abs(each) > 1e-130 else 0.0 for each in (x, y))
    a, b, c, d, e, f = map(Fraction, (ax, ay, bx, by, x, y))
    wanted = (c - a) * (f - b) - (e - a) * (d - b)
    wanted_sign = (wanted > 0) - (wanted < 0)
    for found in (orient(ax, ay, bx, by, x, y), side(ax, ay, bx, by, x, y)):
        assert (found > 0) - (found < 0) == wanted_sign


@settings(max_examples=MANY)
@given(valid, valid)
def test_geometries_meet_where_shapely_says_so(one, other):
    expected = shapely.intersects(shapely.geometry.shape(one), shapely.geometry.shape(other))
    first, second = outline_of(one), outline_of(other)
    assert first is not None
    assert second is not None
    assert meets(first, second) is bool(expected)
    assert meets(second, first) is bool(expected)
    asked = parse({"at": {"$geoIntersects": {"$geometry": other}}})
    assert asked.matches({"at": one}) is bool(expected)


@settings(max_examples=MANY)
@given(valid, areas)
def test_a_geometry_is_within_what_shapely_says_covers_it(one, area):
    expected = shapely.covers(shapely.geometry.shape(area), shapely.geometry.shape(one))
    first, second = outline_of(one), outline_of(area)
    assert first is not None
    assert second is not None
    assert within(first, second) is bool(expected)
    assert exact.within(first.parts, second.parts) is bool(expected)
    asked = parse({"at": {"$geoWithin": {"$geometry": area}}})
    assert asked.matches({"at": one}) is bool(expected)


@given(valid, grid, grid)
def test_a_box_has_what_shapely_says(one, a, b):
    west, east = sorted((a[0], b[0]))
    south, north = sorted((a[1], b[1]))
    shape = shapely.geometry.shape(one)
    box = {"$box": [[west, south], [east, north]]}
    if west < east and south < north:
        area = shapely.box(west, south, east, north)
        inside = bool(shapely.covers(area, shape))
        assert parse({"at": {"$geoWithin": box}}).matches({"at": one}) is inside
        met = bool(shapely.intersects(area, shape))
        assert parse({"at": {"$geoIntersects": box}}).matches({"at": one}) is met


@given(st.lists(st.tuples(numbers, numbers), min_size=2, max_size=4))
def test_a_line_meets_every_point_that_is_exactly_on_it(points):
    line = outline_of({"type": "LineString", "coordinates": [[x, y / 2 + 0.0] for x, y in points]})
    assert line is not None
    for x, y in points:
        assert meets(of_point(x, y / 2), line)


def test_polygons_that_share_an_edge_are_one_area():
    left, right = [[0, 0], [2, 0], [2, 2], [0, 2], [0, 0]], [[2, 0], [4, 0], [4, 2], [2, 2], [2, 0]]
    both = {"type": "MultiPolygon", "coordinates": [[left], [right]]}
    across = {"type": "Polygon", "coordinates": [[[1, 0], [3, 0], [3, 1], [1, 1], [1, 0]]]}
    asked = parse({"at": {"$geoWithin": {"$geometry": both}}})
    assert asked.matches({"at": across})
    assert asked.matches({"at": {"type": "LineString", "coordinates": [[0, 0], [4, 2]]}})
    assert not asked.matches({"at": {"type": "LineString", "coordinates": [[0, 0], [4, 3]]}})


def test_a_hole_is_outside_however_large_the_geometry_around_it():
    donut = [[[0, 0], [8, 0], [8, 8], [0, 8], [0, 0]], [[3, 3], [5, 3], [5, 5], [3, 5], [3, 3]]]
    asked = parse({"at": {"$geoWithin": {"$geometry": {"type": "Polygon", "coordinates": donut}}}})
    around = {"type": "Polygon", "coordinates": [[[1, 1], [7, 1], [7, 7], [1, 7], [1, 1]]]}
    assert not asked.matches({"at": around})
    beside = {"type": "Polygon", "coordinates": [[[1, 1], [3, 1], [3, 7], [1, 7], [1, 1]]]}
    assert asked.matches({"at": beside})
    filled = {"type": "Polygon", "coordinates": [donut[1]]}
    assert not asked.matches({"at": filled})
    assert asked.matches({"at": {"type": "Polygon", "coordinates": donut}})
    meets_hole = parse({"at": {"$geoIntersects": {"$geometry": filled}}})
    assert meets_hole.matches({"at": around})


lon, lat = st.floats(-180, 180), st.floats(-90, 90)


@settings(max_examples=many(60))
@given(st.lists(st.tuples(lon, lat), min_size=2, max_size=3), lon, lat)
def test_no_point_of_a_line_is_nearer_than_the_nearest(points, x, y):
    line = outline_of({"type": "LineString", "coordinates": [list(p) for p in points]})
    assert line is not None
    parts = np.linspace(0, 1, 200)
    sampled = [
        haversine_m(x, y, a[0] + (b[0] - a[0]) * t, a[1] + (b[1] - a[1]) * t)
        for a, b in itertools.pairwise(points) for t in parts
    ]  # fmt: skip
    near, far = nearest_m(line, x, y), farthest_m(line, x, y)
    step = max(math.hypot(b[0] - a[0], b[1] - a[1]) for a, b in itertools.pairwise(points))
    slack = step / 199 * 111_195 + 1e-3
    assert min(sampled) - slack <= near <= min(sampled) * (1 + 1e-8) + 1e-3
    assert max(sampled) * (1 - 1e-8) - 1e-3 <= far <= max(sampled) + slack


@settings(max_examples=many(60))
@given(grid, grid, st.sampled_from([3, 7, 10]), st.integers(0, 3), st.integers(-140, 140))
def test_a_point_on_an_edge_is_at_no_distance_from_it(begin, step, steps, at, east):
    """Also at a third of it, which halving never comes to."""
    ax, ay = begin[0] + east, begin[1]
    x, y = ax + at * step[0], ay + at * step[1]
    body = {"type": "LineString", "coordinates": [
        [ax, ay], [ax + steps * step[0], ay + steps * step[1]]
    ]}  # fmt: skip
    line = outline_of(body)
    assert line is not None
    assert nearest_m(line, x, y) == 0.0
    assert parse({"at": {"$near": [x, y], "$maxDistance": 0}}).matches({"at": body})


def test_distances_of_areas():
    square = outline_of(
        {"type": "Polygon", "coordinates": [[[10, 10], [20, 10], [20, 20], [10, 20], [10, 10]]]}
    )
    assert square is not None
    assert nearest_m(square, 15, 15) == 0.0
    assert nearest_m(square, 10, 12) == 0.0
    assert nearest_m(square, 9, 12) > 100_000
    assert farthest_m(square, -165.0, -15.0) == pytest.approx(math.pi * 6_371_008.8)
    assert farthest_m(square, 15, 15) == pytest.approx(
        max(haversine_m(15, 15, 10, 10), haversine_m(15, 15, 20, 10))
    )


NO_GEOMETRY = [
    {"type": "LineString", "coordinates": [[0, 0]]},
    {"type": "LineString", "coordinates": [[0, 0], [181, 0]]},
    {"type": "LineString", "coordinates": [[0, 0], ["1", 0]]},
    {"type": "LineString", "coordinates": [0, 0]},
    {"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [1, 1]]]},
    {"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [1, 1], [0, 1]]]},
    {"type": "Polygon", "coordinates": []},
    {"type": "MultiPolygon", "coordinates": [[]]},
    {"type": "MultiPoint", "coordinates": []},
    {"type": "MultiPoint", "coordinates": [[0, 0, 0, 0]]},
    {"type": "GeometryCollection", "geometries": []},
    {"type": "GeometryCollection", "coordinates": [0, 0]},
    {"type": "GeometryCollection",
     "geometries": [{"type": "Point", "coordinates": [0, 0]}, {"type": "Point"}]},
    {"type": ["Point"], "coordinates": [0, 0]},
    {"type": "linestring", "coordinates": [[0, 0], [1, 1]]},
    {"coordinates": [[0, 0], [1, 1]]},
]  # fmt: skip


@pytest.mark.parametrize("value", NO_GEOMETRY, ids=json.dumps)
def test_what_is_no_geometry_is_met_by_nothing(value):
    assert outline_of(value) is None
    everywhere = {"$box": [[-180, -90], [180, 90]]}
    for asked in (
        {"$geoWithin": everywhere}, {"$geoIntersects": everywhere}, {"$near": [0, 0]},
        {"$geoWithin": {"$centerSphere": [[0, 0], 4]}},
    ):  # fmt: skip
        assert not parse({"at": asked}).matches({"at": value})


def test_collections_in_collections_have_an_end():
    deep: Any = {"type": "Point", "coordinates": [0, 0]}
    for _ in range(31):
        deep = {"type": "GeometryCollection", "geometries": [deep]}
    assert outline_of(deep) is not None
    assert outline_of({"type": "GeometryCollection", "geometries": [deep]}) is None


def test_an_outline_comes_back_from_its_bytes():
    found = outline_of({"type": "LineString", "coordinates": [[0, 1], [2, 3, 7]]})
    assert found is not None
    again = from_bytes(found.numbers.tobytes())
    assert again.box == found.box == (0, 1, 2, 3)
    assert again.parts == found.parts == [(2, 0, [(0, 1), (2, 3)])]
    assert box_outline(0, 0, 1, 1).parts[0][0] == 3


def test_only_one_near_that_must_hold_orders():
    near = {"$near": [0, 0]}
    assert parse({"at": near}).near is not None
    assert parse({"$and": [{"at": near}, {"a": 1}]}).near is not None
    assert parse({"at": near, "b": near}).near is None
    assert parse({"$or": [{"at": near}, {"a": 1}]}).near is None
    assert parse({"at": {"$not": near}}).near is None
    assert parse({"a": {"$elemMatch": {"at": near}}}).near is None
    assert parse({"at": {"$geoWithin": {"$centerSphere": [[0, 0], 1]}}}).near is None
    found = parse({"a.at": {"$nearSphere": [1, 2], "$minDistance": 5, "$maxDistance": 6}}).near
    assert found is not None
    assert found == (("a", "at"), 1.0, 2.0, 5.0, 6.0)


def test_what_lies_at_a_path_is_what_a_test_looks_at():
    body = {"a": [{"b": [1, 2]}, {"b": {"c": 1}}, [{"b": 9}], 5], "d": {"b": [[1, 2]]}}
    for path in ("a.b", "a.1.b", "a.2.0.b", "d.b", "d.b.0", "a", "x", "a.b.c", "a.0.b.0"):
        for value in lying_at(body, tuple(path.split("."))):
            text = json.dumps(value)
            assert parse({path: {"$exists": True}}).matches(body), text


def random_place(draw: random.Random) -> Any:
    point = [draw.randrange(-6, 7), draw.randrange(-6, 7)]
    end = [point[0] + draw.randrange(-3, 4), point[1] + draw.randrange(1, 4)]
    return draw.choice(
        [
            point, {"type": "Point", "coordinates": point}, None, "here", [point, end],
            {"type": "LineString", "coordinates": [point, end]},
            {"type": "Polygon", "coordinates": [[point, end, [7, 8], point]]},
            {"type": "Polygon", "coordinates": [[point, end]]},
            {"type": "MultiPoint", "coordinates": [point, end]},
            {"type": "GeometryCollection", "geometries": [{"type": "Point", "coordinates": end}]},
        ]
    )  # fmt: skip


ASKED = [
    {"$geoWithin": {"$box": [[-3, -3], [4, 4]]}}, {"$geoIntersects": {"$box": [[0, 0], [2, 2]]}},
    {"$geoWithin": {"$polygon": [[-5, -5], [6, -5], [0, 6]]}},
    {"$geoIntersects": {"$polygon": [[-5, -5], [6, -5], [0, 6]]}},
    {"$geoIntersects": {"$geometry": {"type": "LineString", "coordinates": [[-6, -6], [6, 6]]}}},
    {"$geoWithin": {"$centerSphere": [[0, 0], 0.06]}},
    {"$geoIntersects": {"$centerSphere": [[0, 0], 0.03]}},
    {"$near": [1, 1], "$minDistance": 100_000, "$maxDistance": 400_000}, {"$near": [0, 0]},
    {"$not": {"$geoIntersects": {"$box": [[0, 0], [2, 2]]}}},
]  # fmt: skip


def test_every_target_says_the_same():
    draw = random.Random(17)
    bodies: list[dict[str, Any]] = []
    for _ in range(300):
        kind = draw.randrange(4)
        if kind == 0:
            bodies.append({"stops": [{"at": random_place(draw)} for _ in range(draw.randrange(3))]})
        else:
            bodies.append({"at": random_place(draw), "stops": {"at": random_place(draw)}})
    texts = [json.dumps(body).encode() for body in bodies]
    conditions = [parse({path: asked}) for path in ("at", "stops.at") for asked in ASKED]
    conditions += [
        parse({"at": ASKED[0], "stops.at": ASKED[7]}),
        parse({"$or": [{"at": ASKED[1]}]}),
    ]
    conditions.append(parse({"stops": {"$elemMatch": {"at": ASKED[3]}}}))
    standing = Standing()
    numbers = standing.add_many(conditions)
    pairs = standing.matching(Texts.of(texts))
    told = set(zip(pairs.rows.tolist(), pairs.numbers.tolist(), strict=True))
    old = Texts.of([*texts[1:], b""])
    changed = standing.changes(old, Texts.of(texts))
    kinds = {(r, n): k for r, n, k in zip(*(part.tolist() for part in changed), strict=True)}
    for condition, number in zip(conditions, numbers, strict=True):
        wanted = [condition.matches(body) for body in bodies]
        assert any(wanted)
        assert not all(wanted)
        assert matching(condition, pa.array(texts, pa.binary())).tolist() == wanted
        assert [(row, number) in told for row in range(len(bodies))] == wanted
        before = [*wanted[1:], False]
        for row, (was, now) in enumerate(zip(before, wanted, strict=True)):
            kind = {(True, True): 1, (False, True): 0, (True, False): 2}.get((was, now))
            assert kinds.get((row, number)) == kind
