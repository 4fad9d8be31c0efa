"""Polygons as places: what is one, and which shapes they meet, against shapely and the sphere."""

import itertools
import json
import math

import numpy as np
import pyarrow as pa
import pytest
import shapely
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from profiles import many

from tideline import Box, Circle, Grid, MultiPolygon, Polygon, QuadTree
from tideline.errors import InvalidRequest
from tideline.kernels.geo import haversine_m
from tideline.space import meets
from tideline.space.polygon import CORNERS_LIMIT, corners_of, from_corners

QUAD = QuadTree((-8, -8, 8, 8), depth=6)
GRID = Grid((-8, -8, 8, 8), rows=5, cols=7)
WORLD = QuadTree()
BOW_TIE = Polygon([(0, 0), (4, 4), (4, 0), (0, 4)])
RING = Polygon([(0, 0), (6, 0), (6, 6), (0, 6)], [[(2, 2), (4, 2), (4, 4), (2, 4)]])

FRAME = Polygon([(-2, -2), (8, -2), (8, 8), (-2, 8)], [[(-1, -1), (7, -1), (7, 7), (-1, 7)]])

# Quarters of a degree: products of them are exact, and shapes touch each other often.
_numbers = st.integers(-24, 24).map(lambda n: n / 4)
_points = st.tuples(_numbers, _numbers)
_boxes = st.tuples(_points, _points).map(
    lambda p: Box(min(p[0][0], p[1][0]), min(p[0][1], p[1][1]), max(p[0][0], p[1][0]),
                  max(p[0][1], p[1][1]))
)  # fmt: skip
_rings = st.lists(_points, min_size=3, max_size=8, unique=True)


def _flat(shape):
    if isinstance(shape, tuple):
        return shapely.Point(shape)
    if isinstance(shape, Box):
        return shapely.box(shape.west, shape.south, shape.east, shape.north)
    return shapely.geometry.shape(shape.__geo_interface__)


@st.composite
def _polygons(draw):
    """A valid polygon, with a hole if one fits, or two that do not overlap."""
    made = Polygon(draw(_rings), [draw(_rings)] if draw(st.booleans()) else [])
    if not _flat(made).is_valid:
        made = Polygon(made.shell)
    assume(_flat(made).is_valid and _flat(made).area > 0)
    other = Polygon(draw(_rings))
    if draw(st.booleans()) and _flat(MultiPolygon([made, other])).is_valid:
        return MultiPolygon([made, other])
    return made


@settings(max_examples=many(300))
@given(st.sampled_from([QUAD, GRID]), _polygons(), st.one_of(_points, _boxes, _polygons()))
@example(QUAD, RING, (3.0, 3.0))  # in the hole
@example(QUAD, RING, (2.0, 3.0))  # on the edge of the hole
@example(QUAD, RING, Box(2.5, 2.5, 3.5, 3.5))
@example(QUAD, RING, Box(2.0, 2.0, 4.0, 4.0))  # the hole itself
@example(QUAD, RING, Polygon([(2.5, 2.5), (3.5, 2.5), (3, 3.5)]))
@example(QUAD, RING, FRAME)  # around it, and nowhere on it
def test_shapes_meet_as_shapely_says(space, polygon, other):
    p, q = space.encode(polygon), space.encode(other)
    assert meets(space, p, q) == meets(space, q, p) == _flat(polygon).intersects(_flat(other))


@given(st.lists(_rings, min_size=1, max_size=3), _points)
@example([BOW_TIE.shell], (1.0, 2.0))  # a wing
@example([BOW_TIE.shell], (2.0, 1.0))  # between the wings
def test_inside_is_what_an_odd_number_of_edges_parts_from_afar(rings, point):
    """Whatever the rings do: cross themselves, each other, or lie outside of the shell."""
    x, y = point
    edges = [e for ring in rings for e in zip(ring, [*ring[1:], ring[0]], strict=True)]
    odd = sum((a[1] > y) != (b[1] > y) and (b[0] - a[0]) * (y - a[1]) / (b[1] - a[1]) + a[0] > x
              for a, b in edges) % 2  # fmt: skip
    on = any(shapely.LineString(edge).intersects(shapely.Point(x, y)) for edge in edges)
    got = meets(QUAD, QUAD.encode(Polygon(rings[0], rings[1:])), QUAD.encode(point))
    assert got == bool(odd or on)


@given(_rings, st.integers(0, 7), st.booleans(), _points | _boxes)
def test_where_a_ring_begins_and_which_way_it_goes_changes_nothing(ring, start, back, other):
    turned = ring[start % len(ring) :] + ring[: start % len(ring)]
    turned = turned[::-1] if back else turned
    places = [QUAD.encode(Polygon(each)) for each in (ring, turned, [*ring, ring[0]])]
    assert len({meets(QUAD, place, QUAD.encode(other)) for place in places}) == 1


def _distance_m(lon, lat, polygon):
    """The least distance to the edges: a dense sample of each, refined around its best."""
    least = math.inf
    for ring in (polygon.shell, *polygon.holes):
        for a, b in zip(ring, (*ring[1:], ring[0]), strict=True):
            low, high = 0.0, 1.0
            for _ in range(8):
                at = np.linspace(low, high, 400)
                away = [haversine_m(lon, lat, a[0] + (b[0] - a[0]) * t, a[1] + (b[1] - a[1]) * t)
                        for t in at.tolist()]  # fmt: skip
                best = int(np.argmin(away))
                low, high = at[max(best - 1, 0)], at[min(best + 1, 399)]
            least = min(least, away[best])
    return least


_wide = st.tuples(st.integers(-170, 170), st.integers(-88, 88)).map(lambda p: (p[0], p[1]))


@settings(max_examples=many(100))
@given(
    st.lists(_wide, min_size=3, max_size=4, unique=True),
    st.tuples(st.floats(-180, 180), st.floats(-90, 90)),
)
@example([(0, 80), (170, 90), (0, 81)], (0.0, 85.0))  # an edge that winds around the pole
@example([(-170, 0), (0, 40), (-170, 40)], (175.0, 20.0))  # over the antimeridian
@example([(0, 0), (100, 60), (0, 1)], (50.0, 45.0))
def test_a_circle_meets_a_polygon_from_its_true_distance_on(ring, center):
    assume(all(abs(a[0] - b[0]) <= 180 for a, b in itertools.pairwise([*ring, ring[0]])))
    polygon = Polygon(ring)
    place = WORLD.encode(polygon)
    inside = meets(WORLD, place, WORLD.encode(center))
    least = 0.0 if inside else _distance_m(*center, polygon)
    margin = 1e-3 + least * 1e-7
    assert meets(WORLD, WORLD.encode(Circle(center, min(least + margin, 2e7))), place)
    if least - margin > 0:
        assert not meets(WORLD, WORLD.encode(Circle(center, least - margin)), place)


@given(_polygons())
def test_a_polygon_comes_back_as_it_was_given(polygon):
    assert from_corners(corners_of(polygon)) == polygon
    said = polygon.__geo_interface__
    back = QUAD.decode(*QUAD.encode(polygon))
    assert back == polygon or isinstance(back, Box)
    ways = [said, {"type": "Feature", "geometry": said}, json.dumps(said), _flat(polygon)]
    assert {QUAD.encode(way) for way in ways} == {QUAD.encode(polygon)}


def test_a_column_of_places_may_say_geojson():
    texts = [json.dumps(RING.__geo_interface__), "1.4", '{"type": "Point", "coordinates": [1, 2]}',
             json.dumps(RING.__geo_interface__), '{"box": [0, 0, 1, 1]}', '{"type": "Line"}', "{",
             None]  # fmt: skip
    lon = pa.array([None] * 7 + [3.5])
    table = pa.table({"place": texts, "lon": lon, "lat": lon})
    places = QUAD.encode_many(table, len(texts))
    given_places = [RING, "1.4", (1.0, 2.0), RING, Box(0, 0, 1, 1)]
    assert [places.place(n) for n in range(5)] == [QUAD.encode(place) for place in given_places]
    assert places.place(7) == QUAD.encode((3.5, 3.5))
    assert sorted(places.bad) == [5, 6]
    for row in (5, 6):
        with pytest.raises(InvalidRequest) as error:
            QUAD.encode(texts[row])
        assert str(error.value) == places.bad[row]


@pytest.mark.parametrize(
    ("coordinates", "reason"),
    [
        ([], "list of rings"),
        ("x", "list of rings"),
        ([[[0, 0], [1, 0], [0, 1]]], "the last one the first again"),
        ([[[0, 0], [1, 0], [0, 1], [0, 0.5]]], "the last one the first again"),
        ([[[0, 0], [1, 0], [0, 0], [0, 0]]], "three different corners"),
        ([[[0, 0], [1, "0"], [0, 1], [0, 0]]], "must be a number"),
        ([[[0, 0], [1, 0, 0, 0], [0, 1], [0, 0]]], "corners"),
        ([[[0, 0], [1, math.nan], [0, 1], [0, 0]]], "finite"),
        ([[[170, 0], [-170, 0], [-170, 1], [170, 0]]], "antimeridian"),
        ([[[170, 0], [190, 0], [190, 1], [170, 0]]], "antimeridian"),
        ([[[0, 0], [1, 99], [0, 1], [0, 0]]], "within -180..180"),
    ],
)
def test_what_is_no_polygon_is_refused(coordinates, reason):
    with pytest.raises(InvalidRequest, match=reason):
        WORLD.encode({"type": "Polygon", "coordinates": coordinates})


def test_limits():
    circle = [(math.cos(n), math.sin(n)) for n in np.linspace(0, 6, CORNERS_LIMIT).tolist()]
    assert len(QUAD.decode(*QUAD.encode(Polygon(circle))).shell) == CORNERS_LIMIT
    with pytest.raises(InvalidRequest, match="at most 1000 corners"):
        Polygon([*circle, (0, -2)])
    with pytest.raises(InvalidRequest, match="at most 1000 corners"):
        MultiPolygon([Polygon(circle), Polygon([(5, 5), (6, 5), (5, 6)])])
    with pytest.raises(InvalidRequest, match="must meet the bounds"):
        QUAD.encode(Polygon([(9, 9), (10, 9), (9, 10)]))
    with pytest.raises(InvalidRequest, match="did you mean Polygon"):
        QUAD.encode({"type": "polygon", "coordinates": []})
    with pytest.raises(InvalidRequest, match="list of Polygon"):
        MultiPolygon([])
