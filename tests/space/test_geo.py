"""Geometry on the globe, against independent formulas and dense sampling."""

import math

import numpy as np
import pytest
import shapely
from hypothesis import example, given
from hypothesis import strategies as st

from tideline.kernels import geo
from tideline.space import BOX, CELL, CIRCLE, NONE, POINT, place
from tideline.space.shapes import EARTH_RADIUS_M, RADIUS_LIMIT_M

_lons = st.one_of(st.floats(-180, 180), st.sampled_from([-180.0, -90.0, 0.0, 90.0, 180.0]))
_lats = st.one_of(st.floats(-90, 90), st.sampled_from([-90.0, 0.0, 90.0]))
_radii = st.one_of(st.floats(1, 5e4), st.floats(1, RADIUS_LIMIT_M))
_boxes = st.tuples(_lons, _lats, _lons, _lats).map(
    lambda b: (min(b[0], b[2]), min(b[1], b[3]), max(b[0], b[2]), max(b[1], b[3]))
)
# Shapes on a coarse lattice touch each other often.
_few = st.integers(-4, 4).map(float)


def _vectors(lon, lat):
    lon, lat = np.radians(lon), np.radians(lat)
    return np.stack([np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)], -1)


def _angle(u, v):
    """Angle of two unit vectors, precise everywhere."""
    return 2 * np.arctan2(np.linalg.norm(u - v, axis=-1), np.linalg.norm(u + v, axis=-1))


def _distance_m(lon, lat, lons, lats):
    return EARTH_RADIUS_M * _angle(_vectors(lon, lat), _vectors(lons, lats))


def _sampled_distance_m(lon, lat, box, size=400):
    """The least distance to a box: a dense sample, refined around its best, and its slack."""
    w, s, e, n = box
    slack = 0.0
    for _ in range(6):
        xs, ys = np.linspace(w, e, size), np.linspace(s, n, size)
        away = _distance_m(lon, lat, *np.meshgrid(xs, ys))
        i, j = np.unravel_index(np.argmin(away), away.shape)
        slack = math.radians((e - w) + (n - s)) / size * EARTH_RADIUS_M
        w, e = xs[max(j - 2, 0)], xs[min(j + 2, size - 1)]
        s, n = ys[max(i - 2, 0)], ys[min(i + 2, size - 1)]
    return away.min(), slack


def test_kernels_and_spaces_use_the_same_numbers():
    for name in ("NONE", "CELL", "POINT", "CIRCLE", "BOX"):
        assert getattr(geo, name) == getattr(place, name)
    assert geo.EARTH_RADIUS_M == EARTH_RADIUS_M
    assert geo.RADIUS_LIMIT_M == RADIUS_LIMIT_M


@given(_lons, _lats, _lons, _lats)
def test_haversine_is_the_angle_between_the_two_directions(lon1, lat1, lon2, lat2):
    expected = _distance_m(lon1, lat1, lon2, lat2)
    got = geo.haversine_m(lon1, lat1, lon2, lat2)
    assert got == pytest.approx(expected, rel=1e-9, abs=0.2 if expected > 2e7 else 1e-6)
    assert got == geo.haversine_m(lon2, lat2, lon1, lat1)


@given(_lons, _lats, _boxes)
@example(179.0, 0.0, (-180.0, -10.0, -175.0, 10.0))  # over the antimeridian
@example(180.0, 0.0, (-180.0, -10.0, -175.0, 10.0))  # the same meridian, named otherwise
@example(0.0, 80.0, (100.0, 10.0, 170.0, 85.0))  # over the pole: the far edge's north end
@example(0.0, 60.0, (30.0, 0.0, 40.0, 89.0))  # nearest inside an edge, not at its ends
@example(0.0, 0.0, (170.0, -5.0, 179.0, 5.0))  # more than 90 degrees around
@example(0.0, 89.0, (-10.0, 90.0, 10.0, 90.0))  # a box that is the pole
@example(5.0, 5.0, (5.0, 5.0, 5.0, 5.0))  # a box that is the center
def test_circle_meets_box_from_its_true_distance_on(lon, lat, box):
    least, slack = _sampled_distance_m(lon, lat, box)
    margin = slack + 1e-3 + least * 1e-9 + (1.0 if least > 1.9e7 else 0.0)
    assert geo.circle_meets_box(lon, lat, least + margin, *box)
    if least - margin > 0:
        assert not geo.circle_meets_box(lon, lat, least - margin, *box)


@given(_lons, _lats, _radii, st.floats(0, 2 * math.pi), st.floats(0, 1))
def test_circle_bounds_hold_every_point_of_the_circle(lon, lat, radius_m, bearing, part):
    # The destination formula, as in navigation: independent of the code under test.
    reach, phi = radius_m * part / EARTH_RADIUS_M, math.radians(lat)
    sine = math.sin(phi) * math.cos(reach) + math.cos(phi) * math.sin(reach) * math.cos(bearing)
    lat2 = math.asin(min(1.0, max(-1.0, sine)))
    turn = math.atan2(
        math.sin(bearing) * math.sin(reach) * math.cos(phi),
        math.cos(reach) - math.sin(phi) * math.sin(lat2),
    )
    lon2 = (lon + math.degrees(turn) + 180) % 360 - 180
    if geo.haversine_m(lon, lat, lon2, math.degrees(lat2)) > radius_m:
        return  # rounded to just beyond the rim
    w, s, e, n = geo.circle_bounds(lon, lat, radius_m)
    assert w <= lon2 <= e
    assert s <= math.degrees(lat2) <= n


def test_circle_bounds_are_not_needlessly_large():
    w, s, e, n = geo.circle_bounds(10.0, 60.0, 1000.0)
    dlat = math.degrees(1000 / EARTH_RADIUS_M)
    assert n - 60 == pytest.approx(dlat, rel=1e-6)
    assert 60 - s == pytest.approx(dlat, rel=1e-6)
    assert e - 10 == pytest.approx(2 * dlat, rel=1e-3)
    assert 10 - w == pytest.approx(2 * dlat, rel=1e-3)


def _lattice_shape(draw_kind, a, b, c, d):
    w, e, s, n = min(a, c), max(a, c), min(b, d), max(b, d)
    return {
        NONE: (NONE, 0.0, 0.0, 0.0, 0.0),
        CELL: (CELL, w, s, e, n),
        POINT: (POINT, a, b, 0.0, 0.0),
        CIRCLE: (CIRCLE, a, b, 1000.0 * (1 + abs(c)) ** 3, 0.0),
        BOX: (BOX, w, s, e, n),
    }[draw_kind]


_shapes = st.builds(
    _lattice_shape, st.sampled_from([NONE, CELL, POINT, CIRCLE, BOX]), _few, _few, _few, _few
)


@given(_shapes, _shapes)
def test_shapes_meet_is_symmetric(p, q):
    assert geo.shapes_meet(*p, *q) == geo.shapes_meet(*q, *p)


@given(_shapes, _shapes)
def test_shapes_meet_as_shapely_and_the_sphere_say(p, q):
    kinds = {p[0], q[0]}
    got = geo.shapes_meet(*p, *q)
    if NONE in kinds or kinds == {CELL} or kinds == {CELL, POINT}:
        assert got  # the tree has decided
    elif CIRCLE not in kinds:
        flat = [shapely.Point(s[1:3]) if s[0] == POINT else shapely.box(*s[1:]) for s in (p, q)]
        assert got == flat[0].intersects(flat[1])
    else:
        circle, other = (p, q) if p[0] == CIRCLE else (q, p)
        if other[0] in (CELL, BOX):
            assert got == geo.circle_meets_box(*circle[1:4], *other[1:])
        else:
            reach = circle[3] + (other[3] if other[0] == CIRCLE else 0.0)
            away = _distance_m(*circle[1:3], *other[1:3])
            if abs(away - reach) > 1e-3:
                assert got == (away <= reach)


def test_the_rim_of_a_circle_belongs_to_it():
    away = geo.haversine_m(0.0, 0.0, 1.0, 0.0)
    assert geo.shapes_meet(CIRCLE, 0.0, 0.0, away, 0.0, POINT, 1.0, 0.0, 0.0, 0.0)
    less = math.nextafter(away, 0)
    assert not geo.shapes_meet(CIRCLE, 0.0, 0.0, less, 0.0, POINT, 1.0, 0.0, 0.0, 0.0)
