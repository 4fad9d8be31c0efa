"""Grid and quad tree: a point has one leaf, and what meets is related in the tree."""

import json
import math
import pickle

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from profiles import many

from tideline.errors import InvalidRequest
from tideline.kernels import geo
from tideline.space import (
    BOX,
    CELL,
    CIRCLE,
    POINT,
    Box,
    Circle,
    Grid,
    QuadTree,
    meets,
    space_from_spec,
)

WORLD = QuadTree((-180, -90, 180, 90), 6)
UNIT = QuadTree((0, 0, 16, 16), 4)  # split lines at whole numbers
STATE = QuadTree((-79.8, 40.4, -71.8, 45.1), 9)
DEEP = QuadTree((-180, -90, 180, 90), 24)
ODD = Grid((0, 0, 10, 5), rows=5, cols=10)
THIRDS = Grid((-79.8, 40.4, -71.8, 45.1), rows=7, cols=3)
TALL = Grid((-180, -90, 180, 90), rows=9, cols=1)
ONE = Grid((0, 0, 1, 1), rows=1, cols=1)
MAPS = [WORLD, UNIT, STATE, DEEP, ODD, THIRDS, TALL, ONE]


def _edges(space, axis):
    """Every edge of the leaves, or of some when there are too many."""
    low, high = space.bounds[axis], space.bounds[axis + 2]
    if isinstance(space, QuadTree):
        count = 1 << space.depth
    else:
        count = space.cols if axis == 0 else space.rows
    few = range(count + 1) if count < 1000 else range(0, count + 1, count // 512)
    return [geo.edge(low, high, count, i) for i in few]


def _coordinate(space, axis, beyond=0.0):
    """Numbers on edges, next to edges, and anywhere; maybe beyond the bounds."""
    low, high = space.bounds[axis], space.bounds[axis + 2]
    globe = 180.0 if axis == 0 else 90.0
    on = st.sampled_from(_edges(space, axis))
    near = st.tuples(on, st.sampled_from([-math.inf, math.inf])).map(
        lambda pair: min(max(math.nextafter(*pair), low), high)
    )
    wide = st.floats(max(-globe, low - beyond), min(globe, high + beyond))
    return st.one_of(on, near, wide)


@st.composite
def _boxes(draw, space):
    xs = sorted(draw(st.tuples(*[_coordinate(space, 0, 3.0)] * 2)))
    ys = sorted(draw(st.tuples(*[_coordinate(space, 1, 3.0)] * 2)))
    box = Box(xs[0], ys[0], xs[1], ys[1])
    west, south, east, north = space.bounds
    assume(box.east >= west and box.west <= east and box.north >= south and box.south <= north)
    return box


@st.composite
def _circles(draw, space):
    lon = draw(_coordinate(space, 0, 3.0))
    lat = draw(_coordinate(space, 1, 3.0))
    # Often exactly as far as an edge, so that the rim touches it.
    edge = draw(st.sampled_from(_edges(space, 0)))
    touching = geo.haversine_m(lon, lat, edge, lat)
    radius_m = draw(
        st.one_of(
            st.just(touching),
            st.floats(1, 1e5),
            st.floats(1, geo.RADIUS_LIMIT_M),
        )
    )
    assume(0 < radius_m <= geo.RADIUS_LIMIT_M)
    assume(geo.circle_meets_box(lon, lat, radius_m, *space.bounds))
    return Circle((lon, lat), radius_m)


def _points(space):
    return st.tuples(_coordinate(space, 0), _coordinate(space, 1))


def _names(space):
    if isinstance(space, QuadTree):
        digits = st.lists(st.sampled_from("1234"), min_size=1, max_size=space.depth)
        return digits.map(".".join)
    cells = st.tuples(st.integers(0, space.rows - 1), st.integers(0, space.cols - 1))
    return cells.map(lambda cell: f"{cell[0]}.{cell[1]}")


def _values(space):
    return st.one_of(_points(space), _circles(space), _boxes(space), _names(space))


_spaces = st.sampled_from(MAPS)
_space_and_two = _spaces.flatmap(lambda s: st.tuples(st.just(s), _values(s), _values(s)))
_space_and_point = _spaces.flatmap(lambda s: st.tuples(st.just(s), _points(s)))


def _related(p, q):
    return p.key.startswith(q.key) or q.key.startswith(p.key)


@settings(max_examples=many(600), deadline=None)
@given(_space_and_two)
@example((UNIT, (8.0, 4.0), Box(7, 3, 8, 5)))  # a point on a split line, a box from its west
@example((UNIT, (8.0, 4.0), Box(8, 3, 9, 5)))  # and one from its east
@example((UNIT, Box(7, 3, 8, 5), Box(8, 4, 9, 5)))  # two boxes that share an edge
@example((UNIT, Box(7, 7, 8, 8), Box(8, 8, 9, 9)))  # and two that share a corner
@example((UNIT, "3", Box(8, 1, 9, 2)))  # a box on the edge of a named cell
@example((WORLD, (-180.0, 0.0), Circle((179.9, 0.0), 5e4)))  # over the antimeridian
@example((WORLD, (-180.0, 0.0), Circle((180.0, 0.0), 1.0)))
@example((WORLD, (0.0, 90.0), Circle((120.0, 89.9), 5e4)))  # over the pole
@example((STATE, Box(-85, 42, -79.8, 43), Circle((-80.0, 42.5), 3e4)))  # partly outside
def test_shapes_that_meet_are_related_in_the_tree(case):
    space, one, other = case
    p, q = space.encode(one), space.encode(other)
    if p.kind in (CELL, POINT) and q.kind in (CELL, POINT) and CELL in (p.kind, q.kind):
        return  # there the tree is the definition: see the tests of leaves below
    if geo.shapes_meet(*p[1:6], *q[1:6]):
        assert _related(p, q)
        assert meets(space, p, q)
    else:
        assert not meets(space, p, q)
    assert meets(space, p, q) == meets(space, q, p)


@settings(max_examples=many(200), deadline=None)
@given(_spaces.flatmap(lambda s: st.tuples(st.just(s), _boxes(s), _boxes(s))))
def test_boxes_that_meet_only_outside_the_bounds_still_meet(case):
    space, one, other = case
    together = (
        one.west <= other.east
        and other.west <= one.east
        and one.south <= other.north
        and other.south <= one.north
    )
    assert meets(space, space.encode(one), space.encode(other)) == together


@settings(max_examples=many(200), deadline=None)
@given(_space_and_point)
def test_a_point_lies_in_its_leaf(case):
    space, (lon, lat) = case
    key = space.encode((lon, lat)).key
    west, south, east, north = space._cells.extent(key)
    assert len(key) == space._cells.depth
    assert west <= lon <= east
    assert south <= lat <= north
    assert lon < east or east == space.bounds[2]
    assert lat < north or north == space.bounds[3]


@settings(max_examples=many(150), deadline=None)
@given(_spaces.flatmap(lambda s: st.tuples(st.just(s), _names(s), _points(s))))
def test_a_named_cell_meets_exactly_the_points_in_it(case):
    space, name, (lon, lat) = case
    cell = space.encode(name)
    _, _, west, south, east, north, _ = cell
    inside = (
        west <= lon
        and (lon < east or lon == east == space.bounds[2])
        and south <= lat
        and (lat < north or lat == north == space.bounds[3])
    )
    assert meets(space, cell, space.encode((lon, lat))) == inside


@settings(max_examples=many(150), deadline=None)
@given(_spaces.flatmap(lambda s: st.tuples(st.just(s), _values(s))))
def test_a_place_comes_back_as_it_was_given(case):
    space, value = case
    back = space.decode(*space.encode(value))
    assert back == value
    assert type(back) is type(value)


def test_quarters_are_numbered_as_they_are_read():
    square = QuadTree((0, 0, 2, 2), 1)
    corners = {"1": (0.5, 1.5), "2": (1.5, 1.5), "3": (0.5, 0.5), "4": (1.5, 0.5)}
    for name, point in corners.items():
        assert square.encode(point).key == bytes([int(name)]) == square.encode(name).key


def test_a_box_inside_one_leaf_gets_that_leaf():
    assert UNIT.encode(Box(3.1, 3.1, 3.9, 3.9)).key == UNIT.encode((3.5, 3.5)).key


def test_a_box_that_touches_a_split_line_goes_to_the_parent():
    leaf = UNIT.encode((2.5, 2.5)).key
    assert UNIT.encode(Box(2.1, 2.1, 2.9, 2.9)).key == leaf
    assert UNIT.encode(Box(2.1, 2.1, 3.0, 2.9)).key == leaf[:-1]
    assert UNIT.encode(Box(2.0, 2.1, 2.9, 2.9)).key == leaf[:-2]  # 2 splits one level higher
    assert UNIT.encode(Box(7.9, 2.1, 8.0, 2.9)).key == b""


def test_the_bounds_of_the_map_are_no_split_line():
    assert UNIT.encode(Box(0, 0, 0.5, 0.5)).key == UNIT.encode((0.0, 0.0)).key
    assert UNIT.encode(Box(15.5, 15.5, 16, 16)).key == UNIT.encode((16.0, 16.0)).key


def test_a_circle_over_the_antimeridian_or_a_pole_goes_where_nothing_is_missed():
    assert WORLD.encode(Circle((179.99, 10.0), 5000)).key == b""
    assert WORLD.encode(Circle((10.0, 89.99), 5000)).key == b""
    assert TALL.encode(Circle((179.99, 85.0), 5000)).key == TALL.encode((0.0, 85.0)).key


def test_a_grid_cell_is_named_by_row_and_column():
    for row in range(5):
        for col in range(10):
            cell = ODD.encode(f"{row}.{col}")
            assert cell[1:6] == (CELL, float(col), float(row), float(col + 1), float(row + 1))
            assert cell.key == ODD.encode((col + 0.5, row + 0.5)).key
            assert cell.key == ODD.encode((float(col), float(row))).key


def test_a_grid_of_one_cell_is_the_root():
    assert ONE.encode("0.0").key == b"" == ONE.encode((0.5, 0.5)).key
    assert ONE.decode(*ONE.encode("0.0")) == "0.0"


def test_points_come_from_any_sequence_of_two_numbers():
    expected = UNIT.encode((3.0, 4.0))
    for value in ([3, 4], (3, 4.0), np.array([3, 4]), (np.float32(3), np.int64(4))):
        assert UNIT.encode(value) == expected
    assert type(UNIT.decode(*UNIT.encode((np.float64(3), 4)))[0]) is float


@pytest.mark.parametrize(
    "value",
    [
        *(None, 7, True, b"1.2", {}, (1.0,), (1.0, 2.0, 3.0), (1.0, "2"), (True, 1.0), ("1", "2")),
        *((math.nan, 1.0), (1, math.nan), (math.inf, 1.0), (10**400, 1), (-0.1, 1.0), (1.0, 16.1)),
        *("", "5", "0", "1.", ".1", "1..2", "12", "1.2.3.4.1", "1 ", "a", "\ud800", "١"),
        *(Box(-9, -9, -1, -1), Box(17, 0, 18, 1), Circle((40.0, 40.0), 1000.0)),
    ],
)
def test_what_is_no_place_on_this_map_is_refused(value):
    with pytest.raises(InvalidRequest):
        UNIT.encode(value)


@pytest.mark.parametrize("name", ["5.0", "0.10", "-1.0", "01.0", "1", "1.2.3", "1.", ".1", "a.b"])
def test_a_grid_refuses_cells_it_does_not_have(name):
    with pytest.raises(InvalidRequest, match="row 0 to 4, col 0 to 9"):
        ODD.encode(name)


@pytest.mark.parametrize(
    "make",
    [
        lambda: QuadTree((0, 0, 1, 1), 0),
        lambda: QuadTree((0, 0, 1, 1), 25),
        lambda: QuadTree((0, 0, 1, 1), True),
        lambda: QuadTree((0, 0, 1, 1), 2.0),
        lambda: QuadTree((1, 0, 1, 1), 3),
        lambda: QuadTree((0, 2, 1, 1), 3),
        lambda: QuadTree((0, 0, math.nan, 1), 3),
        lambda: QuadTree((-181, 0, 1, 1), 3),
        lambda: QuadTree((0, 0, 1, 91), 3),
        lambda: QuadTree((0, 0, 1), 3),
        lambda: QuadTree("0011", 3),
        lambda: QuadTree(None, 3),
        lambda: QuadTree((0, 0, 1e-6, 1e-6), 20),
        lambda: Grid((0, 0, 1, 1), 0, 1),
        lambda: Grid((0, 0, 1, 1), 1, 65_537),
        lambda: Grid((0, 0, 1, 1), "3", 1),
        lambda: Circle((0, 0), 0),
        lambda: Circle((0, 0), -1),
        lambda: Circle((0, 0), math.nan),
        lambda: Circle((0, 0), math.inf),
        lambda: Circle((0, 0), 2.1e7),
        lambda: Circle((0, 91), 1),
        lambda: Circle((math.nan, 0), 1),
        lambda: Circle("ab", 1),
        lambda: Circle((0, 0), "1"),
        lambda: Box(0, 1, 1, 0),
        lambda: Box(0, 0, 181, 1),
        lambda: Box(0, 0, math.nan, 1),
        lambda: Box("0", 0, 1, 1),
        lambda: space_from_spec({"kind": "sphere"}),
        lambda: space_from_spec({}),
        lambda: space_from_spec({"kind": "grid", "bounds": [0, 0, 1, 1]}),
    ],
)
def test_wrong_settings_are_refused(make):
    with pytest.raises(InvalidRequest):
        make()


def test_a_box_over_the_antimeridian_says_what_to_do():
    with pytest.raises(InvalidRequest, match="split it at the antimeridian"):
        Box(170, 0, -170, 10)


@pytest.mark.parametrize("space", MAPS)
def test_a_space_survives_its_spec_and_pickling(space):
    back = space_from_spec(json.loads(json.dumps(space.spec())))
    assert back == space
    assert hash(back) == hash(space)
    assert back.encode(Box(0, 0, 0.5, 0.5)) if space in (UNIT, ODD, ONE) else True
    copy = pickle.loads(pickle.dumps(space))
    assert copy == space
    assert copy.bounds == space.bounds


def test_kinds_are_told_apart():
    values = {POINT: (1.0, 1.0), CIRCLE: Circle((1, 1), 9), BOX: Box(1, 1, 2, 2), CELL: "1"}
    assert {UNIT.encode(value).kind for value in values.values()} == set(values)
