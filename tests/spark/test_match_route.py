"""Routing: whoever meets is brought together, in exactly one bucket, with whoever decides `unseen`.

No Spark here: the kernels that route, and the values they are told.
"""

from __future__ import annotations

from typing import Any

import match_stream as matching
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from model import WORLDS, meets
from tables import table_of

from tideline import Box, Circle, Flat, Grid, Polygon, QuadTree, Topics
from tideline import space as spaces
from tideline.channel.codec import read_rows
from tideline.channel.operations import read_operations
from tideline.errors import InvalidRequest
from tideline.kernels import routing as kernel
from tideline.kernels import warm
from tideline.spark.matching import pack
from tideline.spark.matching.bucket import in_order
from tideline.spark.matching.settings import labels, levels_of, may_be_wide, settings_of

pytestmark = pytest.mark.spark

START = 1_700_000_000_000_000
NUMBER = st.one_of(st.integers(0, 16).map(lambda n: n / 2), st.floats(0, 8, allow_nan=False))
POINT = st.tuples(NUMBER, NUMBER)
CIRCLE = st.builds(Circle, POINT, st.sampled_from([1.0, 5_000.0, 80_000.0, 400_000.0]))
PATH = st.lists(st.sampled_from("1234"), min_size=1, max_size=5).map(".".join)
CELL = st.tuples(st.integers(0, 9), st.integers(0, 12)).map(lambda cell: f"{cell[0]}.{cell[1]}")
TOPIC = st.lists(st.sampled_from(["a", "b", "7"]), min_size=1, max_size=4).map("/".join)
SPACES = {
    "flat": (Flat(), st.sampled_from(["a", "b", "c", "a/b", "d" * 300])),
    "topics": (Topics(), TOPIC),
    "quad": (QuadTree((0, 0, 8, 8), depth=5), st.one_of(POINT, CIRCLE, PATH)),
    "grid": (Grid((0, 0, 8, 8), rows=10, cols=13), st.one_of(POINT, CIRCLE, CELL)),
}


def routed(rows: list[dict[str, Any]], told: Any) -> list[set[int]]:
    """The buckets of each row."""
    table = matching.operations(rows)
    operations = pack._operations(table, told)
    assert not operations.rejected
    picked, buckets = pack.routes(operations, told)
    found: list[set[int]] = [set() for _ in rows]
    for row, bucket in zip(picked.tolist(), buckets.tolist(), strict=True):
        assert bucket not in found[row]
        found[row].add(bucket)
    return found


def row(op: str, place: Any, user: str = "u") -> dict[str, Any]:
    return {
        "op": op, "id": "x", "at": START, "until": START + 1, "since": START, "place": place,
        "user": user, "body": 1, "where": None, "unseen": False,
    }  # fmt: skip


@pytest.mark.parametrize("name", list(SPACES))
@given(data=st.data(), buckets=st.sampled_from([1, 2, 7, 64]), levels=st.sampled_from([None, 1, 3]))
def test_who_meets_is_together_in_exactly_one_bucket(
    name: str, data: Any, buckets: int, levels: int | None
) -> None:
    space, places = SPACES[name]
    told = matching.settings(space, buckets=buckets, levels=None if name == "flat" else levels)
    asked = data.draw(st.lists(places, min_size=1, max_size=6))
    happened = data.draw(st.lists(places, min_size=1, max_size=6))
    rows = [row("subscribe", place) for place in asked] + [row("publish", p) for p in happened]
    found = routed(rows, told)
    users = set(range(buckets, 2 * buckets))
    for number, place in enumerate(asked):
        for other, where in enumerate(happened, start=len(asked)):
            together = found[number] & found[other]
            assert len(together) <= 1
            if meets(space, place, where):
                assert len(together) == 1
    for event in found[len(asked) :]:
        assert len(event) == 1 or event == users


@given(
    boxes=st.lists(st.tuples(NUMBER, NUMBER, NUMBER, NUMBER), min_size=1, max_size=5),
    cells=st.lists(PATH, min_size=1, max_size=5),
    points=st.lists(POINT, max_size=3),
)
def test_an_area_is_in_the_buckets_of_all_it_touches(
    boxes: list[Any], cells: list[str], points: list[Any]
) -> None:
    """Boxes, and polygons, which are routed as the boxes around them."""
    space = SPACES["quad"][0]
    told = matching.settings(space, buckets=64, levels=4)
    values: list[Any] = [Box(min(a, c), min(b, d), max(a, c), max(b, d)) for a, b, c, d in boxes]
    values += [Polygon([(a, b), (c, d), (a, d)]) for a, b, c, d in boxes if a != c and b != d]
    values += [*cells, *points]
    encoded = [space.encode(value) for value in values]
    keys = [place.key for place in encoded]
    at = np.cumsum([0, *map(len, keys)]).astype(np.int64)
    data = np.frombuffer(b"".join(keys) + b"\0", np.uint8).copy()
    kinds = np.array([place.kind for place in encoded], np.uint8)
    shapes = np.array([place[2:6] for place in encoded])
    found = []
    for i in range(len(values)):
        seen = np.zeros(64, np.int64)
        kernel.cover(i, data, at, kinds, shapes, spaces.CELLS, *told.tree, 4, 64, seen, 1)
        found.append(set(np.flatnonzero(seen).tolist()))
    for i, one in enumerate(encoded):
        for j, other in enumerate(encoded):
            if spaces.meets(space, one, other):
                assert found[i] & found[j]


def test_a_point_at_the_edge_of_the_bounds_meets_what_reaches_beyond() -> None:
    for space in (SPACES["quad"][0], SPACES["grid"][0]):
        told = matching.settings(space, buckets=64)
        for point in [(0.0, 0.0), (8.0, 8.0), (0.0, 8.0), (8.0, 0.0), (8.0, 4.0)]:
            lon, lat = point
            beyond = Circle((lon + (1 if lon else -1) * 0.01, lat), 2_000)
            one, other = routed([row("publish", point), row("subscribe", beyond)], told)
            assert meets(space, point, beyond)
            assert one & other


def test_rows_that_copy_to_many_buckets_find_room() -> None:
    told = matching.settings(Topics(), buckets=300, levels=3)
    rows = [row("subscribe", "a") for _ in range(100)]
    assert all(len(buckets) == 301 for buckets in routed(rows, told))


def test_a_cancel_goes_everywhere() -> None:
    rows = [{"op": "cancel", "id": "s", "at": START}]
    assert routed(rows, matching.settings(Flat(), buckets=5)) == [set(range(5))]
    quad = matching.settings(SPACES["quad"][0], buckets=5)
    assert routed(rows, quad) == [set(range(10))]


@pytest.mark.parametrize(
    ("space", "columns", "levels", "wide"),
    [
        (Flat(), matching.MAP, None, False),
        (Topics(), matching.MAP, None, False),
        (Topics(), matching.MAP, 2, True),
        (Grid((0, 0, 8, 8), 4, 4), ["place", "lon", "lat"], None, False),
        (Grid((0, 0, 8, 8), 4, 4), ["lon", "lat", "radius_m"], None, True),
        (QuadTree((0, 0, 8, 8), 4), ["lon", "lat"], None, False),
        (QuadTree((0, 0, 8, 8), 4), ["place"], None, True),
    ],
)
def test_columns_tell_whether_an_event_can_be_in_several_buckets(
    space: Any, columns: list[str], levels: int | None, wide: bool
) -> None:
    assert may_be_wide(space, columns, levels_of(space, levels)) is wide


def test_the_places_of_the_worlds_are_all_routed() -> None:
    for world in WORLDS.values():
        told = matching.settings(world.space)
        rows = [row("subscribe", p) for p in world.places if not isinstance(p, Box)]
        assert all(routed(rows, told))


def test_buckets_are_stable() -> None:
    """Checkpoints hold rows by bucket: these numbers must never change."""
    told = matching.settings(Flat(), buckets=16)
    flat = routed([row("publish", f"p{n}") for n in range(8)], told)
    quad = matching.settings(SPACES["quad"][0], buckets=16)
    points = routed([row("publish", (n + 0.5, n / 2)) for n in range(8)], quad)
    assert flat == [{6}, {5}, {7}, {6}, {10}, {5}, {8}, {2}]
    assert points == [{8}, {2}, {9}, {6}, {13}, {5}, {2}, {9}]
    assert labels(8) == [12, 6, 5, 1, 25, 15, 2, 0]


def test_the_kernel_says_modes_and_kinds_as_spaces_do() -> None:
    assert (kernel.FLAT, kernel.CELLS, kernel.TOPICS) == (0, 1, 2)
    assert (spaces.FLAT, spaces.CELLS, spaces.TOPICS) == (0, 1, 2)
    assert (kernel.CIRCLE, kernel.BOX) == (spaces.CIRCLE, spaces.BOX)


def test_the_kernels_are_called_with_the_listed_types_only() -> None:
    told = matching.settings(SPACES["quad"][0], buckets=4)
    rows = [row("subscribe", Circle((1, 2), 5_000)), row("publish", (1.0, 2.0))]
    packets = [batch["data"].to_pylist() for batch in pack.pack(matching.operations(rows), told)]
    in_order([packet for some in packets for packet in some])
    for each, types in warm.kernels("matching"):
        assert [str(each.signatures)] == [str([types])]


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["publish", "subscribe", "cancel"]),
                          st.text("ab", min_size=1, max_size=3)), max_size=80))  # fmt: skip
def test_rows_run_by_time_then_kind_then_id(drawn: list[tuple[int, str, str]]) -> None:
    rows = [row(op, "a") | {"id": id, "at": START + at} for at, op, id in drawn]
    for one in rows:
        one["until"] = START + 100
    told = matching.settings(Flat(), buckets=1)
    packets = [
        packet for batch in pack.pack(matching.operations(rows), told)
        for packet in batch["data"].to_pylist()
    ]  # fmt: skip
    ran = in_order(packets)
    ranks = {1: 1, 2: 0, 3: 2}  # subscribe, publish, cancel
    got = [(r.made, ranks[r.kind], r.id.encode()) for r in read_rows(ran.rows)]
    assert got == sorted(got)
    assert len(got) == len(rows)


def test_the_checks_are_those_of_apply() -> None:
    rows = [row("publish", "a"), row("publish", ""), row("subscribe", "b", user="")]
    table = table_of(rows)
    applied = read_operations(table, Flat(), lambda n: [], id_limit=256, body_limit=1 << 17)
    packed = pack._operations(matching.operations(rows), matching.settings(Flat()))
    assert packed.rejected == applied.rejected
    assert set(packed.rejected) == {1, 2}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"buckets": 0}, "buckets must be 1 to"),
        ({"buckets": 1.5}, "buckets must be a whole number"),
        ({"buckets": True}, "buckets must be a whole number"),
        ({"levels": 0}, "levels must be 1 to"),
        ({"levels": 99}, "levels must be 1 to"),
        ({"levels": "2"}, "levels must be a whole number"),
        ({"rejected": "shout"}, "rejected must be one of fail, keep, drop"),
        ({"memory_mb": 1}, "memory_mb must be"),
        ({"space": "flat"}, "space must be Flat, Topics, Grid or QuadTree"),
    ],
)
def test_a_wrong_setting_is_told(options: dict[str, Any], message: str) -> None:
    given = {
        "space": Topics(), "buckets": 4, "levels": None, "wide": False, "unseen": False,
        "rejected": "fail", "memory_mb": 64,
    } | options  # fmt: skip
    with pytest.raises(InvalidRequest, match=message):
        settings_of(given.pop("space"), **given)


def test_levels_are_for_trees() -> None:
    with pytest.raises(InvalidRequest, match="levels is for spaces with a tree"):
        levels_of(Flat(), 1)
    assert levels_of(Grid((0, 0, 1, 1), 1, 1), None) == 0
