"""What conditions on places promise: shapely's answer on exact numbers, the kernel's distance."""

from __future__ import annotations

import math

import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import many

from tideline.errors import InvalidRequest
from tideline.kernels.geo import haversine_m
from tideline.space.shapes import EARTH_RADIUS_M
from tideline.where import parse
from tideline.where.geo import covers, distance_m, point_of

MANY = many(300)
# Small whole numbers: every product is exact, so a point on an edge is exactly on it.
grid = st.tuples(st.integers(-4, 4), st.integers(-4, 4))
lons = st.floats(-180, 180)
lats = st.floats(-90, 90)


def within(shape: dict, point: object) -> bool:
    return parse({"at": {"$geoWithin": shape}}).matches({"at": point})


@settings(max_examples=MANY)
@given(st.lists(grid, min_size=3, max_size=7, unique=True), grid)
def test_a_polygon_covers_what_shapely_says(ring, point):
    polygon = shapely.Polygon(ring)
    if polygon.is_valid:
        expected = polygon.covers(shapely.Point(point))
        assert within({"$polygon": [list(corner) for corner in ring]}, list(point)) is expected
        numbers = tuple(float(number) for corner in ring for number in corner)
        assert covers(numbers, (len(numbers),), *point) is expected


HOLE = {
    "type": "Polygon",
    "coordinates": [
        [[0, 0], [8, 0], [8, 8], [0, 8], [0, 0]],
        [[2, 2], [4, 2], [4, 4], [2, 4], [2, 2]],
        [[5, 5], [7, 5], [6, 7], [5, 5]],
    ],
}


def test_holes_are_outside_and_their_edges_inside():
    shape = shapely.geometry.shape(HOLE)
    for x in range(-2, 20):
        for y in range(-2, 20):
            point = [x / 2, y / 2]
            assert within({"$geometry": HOLE}, point) is shape.covers(shapely.Point(point))


def test_a_ring_closed_or_not_is_the_same():
    open_ring = [[0, 0], [4, 0], [0, 4]]
    closed = parse({"at": {"$geoWithin": {"$polygon": [*open_ring, [0, 0]]}}})
    assert closed.tree == parse({"at": {"$geoWithin": {"$polygon": open_ring}}}).tree


@pytest.mark.parametrize("ring", [[], [[0, 0]], [[0, 0], [0, 0]], [[0, 0], [1, 1], [0, 0]]])
def test_a_ring_of_too_few_points_is_refused(ring):
    for where in ({"$polygon": ring}, {"$geometry": {"type": "Polygon", "coordinates": [ring]}}):
        with pytest.raises(InvalidRequest, match=r"different points|4 points"):
            parse({"at": {"$geoWithin": where}})


@given(grid, grid, grid)
def test_a_box_has_its_edges(a, b, point):
    west, east = sorted((a[0], b[0]))
    south, north = sorted((a[1], b[1]))
    inside = west <= point[0] <= east and south <= point[1] <= north
    assert within({"$box": [[west, south], [east, north]]}, list(point)) is inside


@given(lons, lats, lons, lats)
def test_distances_are_those_of_the_kernel(lon1, lat1, lon2, lat2):
    assert distance_m(lon1, lat1, lon2, lat2) == haversine_m(lon1, lat1, lon2, lat2)


@given(lons, lats, lons, lats, st.floats(0, math.pi))
def test_a_circle_in_radians_is_one_in_metres(lon, lat, lon2, lat2, radius):
    metres = radius * EARTH_RADIUS_M
    sphere = within({"$centerSphere": [[lon, lat], radius]}, [lon2, lat2])
    assert sphere is (distance_m(lon, lat, lon2, lat2) <= metres)
    near = parse({"at": {"$near": [lon, lat], "$maxDistance": metres}})
    assert near.matches({"at": [lon2, lat2]}) is sphere


def test_near_has_a_least_distance_too():
    ring = parse({"at": {"$near": [0, 0], "$minDistance": 1000, "$maxDistance": 2000}})
    degree_m = distance_m(0, 0, 0, 1)
    found = [n for n in range(5) if ring.matches({"at": [0, n * 700 / degree_m]})]
    assert found == [2]
    outside = parse({"at": {"$near": [0, 0], "$minDistance": 1000}})
    assert outside.matches({"at": [180, 0]})
    assert not outside.matches({"at": [0, 0]})
    assert not outside.matches({"at": None})


def test_a_ring_crosses_the_antimeridian_and_the_pole():
    across = parse({"at": {"$near": [179.9, 0], "$maxDistance": 50_000}})
    assert across.matches({"at": [-179.9, 0]})
    assert within({"$centerSphere": [[0, 90], 0.01]}, [123, 89.9])


@pytest.mark.parametrize(
    "value",
    [None, 5, "0,0", [], [0], [0, 0, 0], ["0", 0], [True, 0], [181, 0], [0, -90.5], [[0, 0]],
     {"type": "Point"}, {"type": "point", "coordinates": [0, 0]},
     {"type": "Point", "coordinates": [0]}, {"type": "Point", "coordinates": [0, 0, "x"]},
     {"type": "LineString", "coordinates": [[0, 0]]}, {"lon": 0, "lat": 0}],
)  # fmt: skip
def test_what_is_no_point_lies_nowhere(value):
    assert point_of(value) is None
    everywhere = {"$box": [[-180, -90], [180, 90]]}
    assert not within(everywhere, value)
    assert not parse({"at": {"$near": [0, 0], "$minDistance": 0}}).matches({"at": value})


def test_points_are_found_on_paths_through_arrays():
    condition = parse({"stops.at": {"$geoWithin": {"$box": [[0, 0], [1, 1]]}}})
    assert condition.matches({"stops": [{"at": [5, 5]}, {"at": [1, 1]}]})
    assert not condition.matches({"stops": [{"at": [5, 5]}]})
