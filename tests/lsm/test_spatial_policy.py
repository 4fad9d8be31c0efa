"""Levels of components apart by space: they come to rest, and a search meets few of them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tideline.errors import InvalidRequest
from tideline.lsm.component import ComponentInfo
from tideline.lsm.filter import Extent
from tideline.lsm.policy import PICKS, Spatial
from tideline.lsm.tiles import PARTITIONS, parts, z_value, z_values

counter = itertools.count(1)
degrees = st.floats(-200, 200, allow_nan=False)
points = st.lists(st.tuples(degrees, degrees), max_size=60)


def make(members, level=0):
    """A component of points; a byte each."""
    x, y = zip(*members, strict=True)
    box = Extent((min(x), min(y)), (max(x), max(y)))
    name = f"c-{next(counter):06d}.arrow"
    return ComponentInfo(name, "any", len(members), len(members), 0, {"box": box}, {}, level)


class Tree:
    """Components with their points; merges as a tree and a kind would."""

    def __init__(self, policy):
        self.policy = policy
        self.held = {}  # name -> points
        self.infos = []
        self.sealed = self.merged = 0

    def seal(self, members, level=0):
        info = make(members, level)
        self.held[info.name] = members
        self.infos.append(info)
        self.sealed += len(members)
        return info

    def settle(self):
        for _ in range(2000):
            merges = self.policy.merges(self.infos, 0)
            if not merges:
                return
            assert len(merges) == 1
            self.do(merges[0])
        raise AssertionError("the policy never comes to rest")

    def do(self, merge):
        names = [each.name for each in merge.inputs]
        assert len(set(names)) == len(names)
        known = [each.name for each in self.infos]
        assert [known.index(name) for name in names] == sorted(map(known.index, names))
        assert all(each.level in (merge.level - 1, merge.level) for each in merge.inputs)
        members = [point for name in names for point in self.held.pop(name)]
        self.infos = [each for each in self.infos if each.name not in names]
        if merge.moves:
            made = [make(members, merge.level)]
        else:
            self.merged += len(members)
            x, y = np.array(members).T
            count = -(-len(members) // merge.cut_bytes)
            cut = parts(x, y, count, merge.partition)
            made = [make([members[row] for row in rows], merge.level) for rows in cut]
            assert sum(map(len, cut)) == len(members)
        for info, rows in zip(made, [range(len(members))] if merge.moves else cut, strict=True):
            self.held[info.name] = [members[row] for row in rows]
        self.infos = sorted([*self.infos, *made], key=lambda each: -each.level)

    def everything(self):
        return sorted(point for each in self.held.values() for point in each)


@pytest.mark.parametrize("pick", PICKS)
@pytest.mark.parametrize("partition", PARTITIONS)
@given(
    sealed=st.lists(st.lists(st.tuples(degrees, degrees), min_size=1, max_size=20), max_size=25),
    ratio=st.integers(2, 5), max_count=st.integers(1, 3),
)  # fmt: skip
def test_it_comes_to_rest_keeps_its_levels_and_loses_nothing(
    partition, pick, sealed, ratio, max_count
):
    policy = Spatial(40, ratio, max_count, piece_bytes=10, partition=partition, pick=pick)
    tree = Tree(policy)
    given_points = []
    for members in sealed:
        tree.seal(members)
        given_points += members
        tree.settle()
        levels = {}
        for each in tree.infos:
            levels.setdefault(each.level, []).append(each.size_bytes)
        assert len(levels.pop(0, [])) <= max_count
        for level, sizes in levels.items():
            assert sum(sizes) <= 40 * ratio ** (level - 1)
        assert tree.everything() == sorted(given_points)


@given(components=st.lists(st.tuples(points.filter(bool), st.integers(0, 3)), max_size=15))
def test_any_components_are_a_beginning(components):
    """As they are after another policy, or of an index that was built."""
    for pick in PICKS:
        tree = Tree(Spatial(30, 2, 1, piece_bytes=7, pick=pick))
        for members, level in sorted(components, key=lambda each: -each[1]):
            tree.seal(list(members), level)
        tree.settle()


@given(
    st.lists(st.tuples(degrees, degrees), max_size=200), st.integers(1, 30),
    st.sampled_from(PARTITIONS),
)  # fmt: skip
def test_parts_have_each_point_once_and_about_the_same_number(members, count, partition):
    x, y = (np.array([point[axis] for point in members]) for axis in (0, 1))
    found = parts(x, y, count, partition)
    assert sorted(row for part in found for row in part.tolist()) == list(range(len(members)))
    sizes = [len(part) for part in found]
    assert len(sizes) == min(count, len(members))
    if sizes:
        assert min(sizes) >= 1
        assert max(sizes) <= 2 * -(-len(members) // count) + 1


def test_tiles_do_not_overlap():
    draw = np.random.default_rng(3)
    x, y = draw.uniform(-180, 180, 4000), draw.uniform(-90, 90, 4000)
    boxes = [(x[p].min(), y[p].min(), x[p].max(), y[p].max()) for p in parts(x, y, 12, "str")]
    assert len(boxes) == 12
    for one, other in itertools.combinations(boxes, 2):
        apart = one[2] < other[0] or other[2] < one[0] or one[3] < other[1] or other[3] < one[1]
        assert apart
    pieces = [
        (z_values(x[p], y[p]).min(), z_values(x[p], y[p]).max()) for p in parts(x, y, 12, "z")
    ]
    assert all(a[1] < b[0] for a, b in itertools.pairwise(pieces))


def test_the_curve_goes_through_the_quarters_in_turn():
    quarters = [(-90, -45), (90, -45), (-90, 45), (90, 45)]
    for x, y in quarters:
        found = z_value(x, y)
        assert found >> 60 == 2 * (x > 0) + (y > 0)
    assert z_value(180, 90) == (1 << 62) - 1
    assert z_value(1e9, -1e9) == z_value(180, -90)


def test_a_small_search_meets_few_components():
    """The same points, sealed 100 at a time: components whose box meets a small box."""
    draw = np.random.default_rng(5)
    members = [tuple(each) for each in draw.uniform(-80, 80, (6000, 2)).tolist()]
    touched = {}
    for name, policy in {
        "best": Spatial(800, 4, 2, piece_bytes=200, pick="best"),
        "round-robin": Spatial(800, 4, 2, piece_bytes=200, pick="round-robin"),
        "z": Spatial(800, 4, 2, piece_bytes=200, partition="z"),
    }.items():
        tree = Tree(policy)
        for first in range(0, len(members), 100):
            tree.seal(members[first : first + 100])
            tree.settle()
        met = 0
        for x, y in members[::60]:
            box = Extent((x - 1, y - 1), (x + 1, y + 1))
            met += sum(each.filters["box"].meets(box) for each in tree.infos)
        touched[name] = met / 100
        assert len(tree.infos) > 25
        assert (tree.sealed + tree.merged) / tree.sealed < 12
    assert all(count < 7 for count in touched.values()), touched


def test_round_robin_takes_each_in_turn_and_the_same_until_it_has_gone():
    policy = Spatial(10, pick="round-robin", piece_bytes=5)
    infos = [make([(west, 10.0 * n), (west + 1.0, 10.0 * n)] * 3, 1) for n, west in enumerate(
        [-170.0, -50.0, 50.0, 170.0])]  # fmt: skip
    taken = []
    for _ in range(3):
        [merge] = policy.merges(infos, 0)
        assert policy.merges(infos, 0) == [merge]
        taken.append(merge.inputs[-1])
        infos = [each for each in infos if each is not taken[-1]]
        infos.append(make([(0.0, -80.0)] * 6, 1))  # another comes, behind where it stands
    assert len({each.name for each in taken}) == 3
    places = [policy._z(each) for each in taken]
    assert places == sorted(places)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"partition": "hilbert"}, "partition must be one of str, z"),
        ({"pick": "worst"}, "pick must be one of round-robin, best"),
        ({"pick": 1}, "pick must be"), ({"ratio": 1}, "ratio must be"),
    ],
)  # fmt: skip
def test_wrong_settings_are_named(settings, named):
    with pytest.raises(InvalidRequest, match=named):
        Spatial(10, **settings)
