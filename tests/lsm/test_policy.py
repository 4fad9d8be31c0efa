"""Policies keep the order, come to rest, and keep components few."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tideline.errors import InvalidRequest
from tideline.lsm.component import ComponentInfo
from tideline.lsm.filter import MinMax
from tideline.lsm.policy import (
    Constant,
    Correlated,
    Leveled,
    Merge,
    NoMerge,
    Prefix,
    Window,
)

POLICIES = [
    NoMerge(),
    Constant(3),
    Prefix(1000, 4),
    Leveled(first_bytes=500, ratio=4, max_count=3),
    Window(max_count=4, max_bytes=5000),
]
counter = iter(range(1, 1 << 40))


def make(size, bucket=(10, 10), until=None, level=0):
    filters = {} if until is None else {"until": until}
    name = f"c-{next(counter):06d}.arrow"
    return ComponentInfo(name, "any", 1, size, 0, filters, {"bucket": list(bucket)}, level)


components = st.lists(
    st.builds(
        make,
        st.integers(1, 2000),
        st.sampled_from([(10, 10), (10, 20), (40, 40)]),
        st.none() | st.just(MinMax.empty()) | st.builds(lambda n: MinMax(0, n), st.integers(1, 99)),
    ),
    max_size=30,
)


def merged(merge):
    group = merge.inputs
    size = sum(component.size_bytes for component in group)
    until = group[0].filters.get("until")
    for component in group[1:]:
        other = component.filters.get("until")
        until = until.merge(other) if until and other else None
    return make(size, group[0].extra["bucket"], until, merge.level)


def settle(policy, found, now=0):
    """Do what the policy says until it says nothing; returns the rest and the bytes written."""
    written = 0
    for _ in range(1000):
        gone = {component.name for component in policy.drops(found, now)}
        found = [component for component in found if component.name not in gone]
        merges = policy.merges(found, now)
        if not merges:
            return found, written
        for merge in merges:
            result = merged(merge)
            written += 0 if merge.moves else result.size_bytes
            at = found.index(merge.inputs[0])  # the result takes the place of the oldest
            names = {component.name for component in merge.inputs}
            found = [
                result if index == at else component
                for index, component in enumerate(found)
                if index == at or component.name not in names
            ]
            found.sort(key=lambda component: -component.level)
    raise AssertionError("the policy never comes to rest")


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: type(policy).__name__)
@given(found=components, now=st.integers(0, 100))
def test_groups_are_ordered_runs_that_do_not_overlap(policy, found, now):
    names = [component.name for component in found]
    seen = {component.name for component in policy.drops(found, now)}
    kept = [component for component in found if component.name not in seen]
    for merge in policy.merges(found, now):
        group = list(merge.inputs)
        assert len(group) >= 2
        peers = kept
        if isinstance(policy, Window):
            peers = [c for c in kept if c.extra == group[0].extra]
        start = peers.index(group[0])
        assert group == peers[start : start + len(group)]
        assert not seen & {component.name for component in group}
        seen |= {component.name for component in group}
    assert seen <= set(names)


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: type(policy).__name__)
@given(found=components, now=st.integers(0, 100))
def test_every_policy_comes_to_rest_and_loses_nothing(policy, found, now):
    alive = set(map(id, found)) - set(map(id, policy.drops(found, now)))
    rest, _ = settle(policy, found, now)
    expected = sum(component.size_bytes for component in found if id(component) in alive)
    assert sum(component.size_bytes for component in rest) == expected


@given(found=components)
def test_no_merge_does_nothing(found):
    assert NoMerge().merges(found, 0) == []
    assert NoMerge().drops(found, 1 << 60) == []


@given(found=components, k=st.integers(2, 9))
def test_constant_keeps_fewer_than_k(found, k):
    assert Constant(k).merges(found, 0) == ([Merge(tuple(found))] if len(found) >= k else [])
    assert len(settle(Constant(k), found)[0]) < k


@given(found=components, max_bytes=st.integers(1, 3000), max_count=st.integers(1, 6))
def test_prefix_takes_the_shortest_sequence_and_leaves_large_ones_alone(
    found, max_bytes, max_count
):
    policy = Prefix(max_bytes, max_count)
    for group in (merge.inputs for merge in policy.merges(found, 0)):
        sizes = [component.size_bytes for component in group]
        assert max(sizes) <= max_bytes
        assert sum(sizes) > max_bytes or len(sizes) > max_count
        assert len(sizes) == 2 or (sum(sizes[:-1]) <= max_bytes and len(sizes) - 1 <= max_count)
        first = found.index(group[0])
        assert first == 0 or found[first - 1].size_bytes > max_bytes
    run = 0
    for component in settle(policy, found)[0]:
        run = 0 if component.size_bytes > max_bytes else run + 1
        assert run <= max_count


@given(sizes=st.lists(st.integers(1, 100), max_size=300))
def test_prefix_stays_bounded_while_components_arrive(sizes):
    policy = Prefix(1000, 5)
    found = []
    for size in sizes:
        found, _ = settle(policy, [*found, make(size)])
        total = sum(component.size_bytes for component in found)
        assert len(found) <= total / 1000 + 5


@given(found=components, now=st.integers(0, 100))
def test_window_drops_exactly_what_has_expired(found, now):
    dropped = Window().drops(found, now)
    for component in found:
        until = component.filters.get("until")
        expired = until is not None and not until.overlaps(now + 1, 1 << 62)
        assert (component in dropped) == expired


def test_window_looks_at_the_filter_it_was_told():
    component = ComponentInfo("c-000001.arrow", "any", 1, 1, 0, {"limit": MinMax(0, 5)})
    assert Window().drops([component], 9) == []
    assert Window("limit").drops([component], 9) == [component]


def test_window_never_merges_across_buckets():
    found = [make(10, (10, 10 * (index % 2))) for index in range(10)]
    groups = Window(max_count=4).merges(found, 0)
    assert groups == [Merge(tuple(found[0::2])), Merge(tuple(found[1::2]))]


def test_window_knows_a_bucket_before_and_after_json():
    fresh = ComponentInfo("c-000001.arrow", "any", 1, 1, 0, {}, {"bucket": (1, 2)})
    read = ComponentInfo.from_json({**fresh.to_json(), "extra": {"bucket": [1, 2]}})
    assert Window(max_count=1).merges([fresh, read], 0) == [Merge((fresh, read))]


def test_window_waits_until_there_are_too_many():
    found = [make(10) for _ in range(4)]
    assert Window(max_count=4).merges(found, 0) == []
    assert Window(max_count=4).merges([*found, make(10)], 0) != []


@given(found=components)
def test_window_never_makes_more_than_max_bytes(found):
    for merge in Window(max_count=1, max_bytes=3000).merges(found, 0):
        assert sum(component.size_bytes for component in merge.inputs) <= 3000


@given(sizes=st.lists(st.integers(1, 1000), max_size=300))
def test_window_keeps_sizes_that_double(sizes):
    policy = Window(max_count=4, max_bytes=1 << 40)
    found = []
    for size in sizes:
        found, _ = settle(policy, [*found, make(size)])
        total = sum(component.size_bytes for component in found)
        assert len(found) <= max(4, math.log2(total) + 1)


def test_window_is_bounded_over_a_long_run():
    """4,000 seals of one bucket: what docs/internals/components.md says."""
    policy = Window(max_count=4, max_bytes=1 << 60)
    found, written, most = [], 0, 0
    for _ in range(4000):
        found, more = settle(policy, [*found, make(1000)])
        written += more
        most = max(most, len(found))
    assert most <= 8
    assert written / (4000 * 1000) <= 8


def test_window_stays_bounded_while_buckets_come_and_expire():
    """One bucket every 10 ticks, each living 50: old ones vanish without being merged."""
    policy = Window(max_count=4, max_bytes=1 << 40)
    found, most = [], 0
    for now in range(2000):
        hi = (now // 10 + 5) * 10
        component = make(100, (10, hi), MinMax(now + 1, hi))
        found, _ = settle(policy, [*found, component], now)
        most = max(most, len(found))
    assert most <= 12
    assert settle(policy, found, now + 1000)[0] == []


@pytest.mark.parametrize(
    "build",
    [
        lambda: Constant(1),
        lambda: Constant(2.5),
        lambda: Constant(True),
        lambda: Prefix(0, 3),
        lambda: Prefix(10, 0),
        lambda: Window(""),
        lambda: Window(7),
        lambda: Window(max_count=0),
        lambda: Window(max_bytes=-1),
        lambda: Leveled(0),
        lambda: Leveled(1, ratio=1),
        lambda: Leveled(1, piece_bytes=0),
    ],
)
def test_wrong_settings_are_refused(build):
    with pytest.raises(InvalidRequest):
        build()


@given(found=components, ratio=st.integers(2, 5), max_count=st.integers(1, 4))
def test_leveled_without_a_cut_rests_with_one_component_a_level(found, ratio, max_count):
    policy = Leveled(500, ratio, max_count)
    levels = [component.level for component in settle(policy, found)[0]]
    runs = [it for it in levels if it > 0]
    assert levels == [*runs, *[0] * (len(levels) - len(runs))]
    assert runs == sorted(set(runs), reverse=True)
    assert len(levels) - len(runs) <= max_count


def test_leveled_rewrites_a_byte_at_most_ratio_times_a_level():
    policy = Leveled(first_bytes=100, ratio=4, max_count=1)
    found, written, count = [], 0, 400
    for _ in range(count):
        found, more = settle(policy, [*found, make(100)])
        written += more
    levels = math.log(count, 4)
    assert len(found) <= levels + 2
    assert written <= 100 * count * 4 * (levels + 1)


def test_correlated_merges_what_its_leader_has_merged():
    def ranged(low, high):
        return ComponentInfo("c-000001.arrow", "any", 1, 9, 0, {"seq": MinMax(low, high)})

    mine = [ranged(1, 3), ranged(4, 9), ranged(10, 12), ranged(13, 20)]
    leader = [ranged(1, 12), ranged(13, 20)]
    assert Correlated(lambda: leader, "seq").merges(mine, 0) == [Merge(tuple(mine[:3]))]
    assert Correlated(lambda: mine, "seq").merges(mine, 0) == []
    # One that repeats entries of older components belongs where it ends.
    repeating = [ranged(1, 3), ranged(1, 9), ranged(1, 20)]
    assert Correlated(lambda: leader, "seq").merges(repeating, 0) == [Merge(tuple(repeating[:2]))]
    # The leader may have lost a component whole: what it had led stays apart.
    assert Correlated(lambda: leader[1:], "seq").merges(mine, 0) == []
