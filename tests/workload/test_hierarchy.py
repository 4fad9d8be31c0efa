"""Operations on a hierarchy: cells and circles where they must be, and copies for their leaves."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tideline.errors import InvalidRequest
from tideline.kernels.geo import circle_meets_box
from tideline.space import QuadTree
from tideline.space.shapes import Circle
from tideline.workload.hierarchy import RADII, Circles, Levels
from tideline.workload.tweets import Operations

KINDS: list[type[Levels] | type[Circles]] = [Levels, Circles]


def path_of(key: bytes) -> str:
    return "/".join(["0", *map(str, key)])


@pytest.mark.parametrize("kind", KINDS)
@given(
    seed=st.integers(0, 2**63 - 1),
    first=st.sampled_from([0, 1, 2_099, 10**9]),
    sizes=st.lists(st.integers(0, 60), min_size=1, max_size=5),
)
def test_a_split_changes_no_row(
    kind: type[Levels] | type[Circles], seed: int, first: int, sizes: list[int]
) -> None:
    work = kind(seed)
    ends = np.cumsum([0, *sizes]).tolist()
    for make in (work.batch, work.fixed):
        parts = [make(first + a, b - a) for a, b in pairwise(ends)]
        whole = make(first, ends[-1])
        assert pa.Table.from_batches(parts).combine_chunks() == pa.Table.from_batches([whole])


@pytest.mark.parametrize("kind", KINDS)
def test_all_but_places_is_as_without_a_hierarchy(kind: type[Levels] | type[Circles]) -> None:
    plain = Operations(seed=3, subscriptions=1, events=1).batch(0, 300).drop_columns(["place"])
    assert kind(seed=3).batch(0, 300).drop_columns(["place"]) == plain


@pytest.mark.parametrize("depth", [1, 3, 5])
def test_the_cell_of_a_level_holds_the_point(depth: int) -> None:
    work = Levels(seed=5, depth=depth)
    tree = QuadTree(bounds=work.shape.grid.bounds, depth=depth)
    numbers = np.arange(500)
    _, lon, lat = work._places(numbers)
    levels = work.levels(numbers).tolist()
    for place, level, x, y in zip(
        work.batch(0, 500)["place"].to_pylist(), levels, lon, lat, strict=True
    ):
        assert place == path_of(tree.encode((x, y)).key[:level])


def test_each_level_is_half_as_frequent_as_the_one_below() -> None:
    counts = np.bincount(Levels(seed=1).levels(np.arange(100_000)))
    assert counts[0] == 0
    for above, below in pairwise(counts[1:].tolist()):
        assert 0.45 < above / below < 0.55


def test_a_circle_is_on_the_cell_that_the_library_gives_it() -> None:
    work = Circles(seed=2)
    tree = QuadTree(bounds=work.shape.grid.bounds, depth=5)
    lon, lat, radius_m = work.circles(np.arange(2_000))
    for k, place in enumerate(work.batch(0, 2_000)["place"].to_pylist()):
        assert place == path_of(tree.encode(Circle((lon[k], lat[k]), radius_m[k])).key)


def test_the_leaves_of_a_circle_are_those_it_touches() -> None:
    work = Circles(seed=2)
    west, south, east, north = work.shape.grid.bounds
    numbers = np.arange(60)
    lon, lat, radius_m = work.circles(numbers)
    found = set(zip(*(side.tolist() for side in work.leaves(numbers)), strict=True))
    wide, tall = (east - west) / 32, (north - south) / 32
    wanted = {
        (k, col, row)
        for k in range(60)
        for col in range(32)
        for row in range(32)
        if circle_meets_box(
            lon[k], lat[k], radius_m[k], west + col * wide, south + row * tall,
            west + (col + 1) * wide, south + (row + 1) * tall,
        )
    }  # fmt: skip
    assert found == wanted


@pytest.mark.parametrize("kind", KINDS)
def test_copies_stand_on_leaves_below_the_cell_and_keep_the_rest(
    kind: type[Levels] | type[Circles],
) -> None:
    work = kind(seed=9)
    one, copies = work.batch(100, 50).to_pylist(), work.fixed(100, 50).to_pylist()
    by_id = {row["id"]: row for row in one}
    assert len({row["id"] for row in copies}) == len(copies)
    assert [row["at"] for row in copies] == sorted(row["at"] for row in copies)
    seen = set()
    for copy in copies:
        owner = by_id[copy["id"].partition(".")[0]]
        seen.add(owner["id"])
        assert copy["place"].count("/") == 5
        assert f"{copy['place']}/".startswith(f"{owner['place']}/")
        assert {**copy, "id": 0, "place": 0} == {**owner, "id": 0, "place": 0}
    assert seen == set(by_id)


def test_levels_have_a_copy_for_every_leaf() -> None:
    work = Levels(seed=9)
    numbers = np.arange(200)
    owner = work.leaves(numbers)[0]
    assert (np.bincount(owner) == 4 ** (5 - work.levels(numbers))).all()


def test_the_five_radii_are_equally_frequent() -> None:
    counts = np.bincount(Circles(seed=1).sizes(np.arange(50_000)))
    assert len(counts) == len(RADII)
    assert counts.min() > 9_500


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bad", [{"depth": 0}, {"depth": 9}, {"depth": 2.5}, {"place": "circle"}])
def test_what_makes_no_tree_is_refused(
    kind: type[Levels] | type[Circles], bad: dict[str, object]
) -> None:
    with pytest.raises(InvalidRequest):
        kind(seed=1, **bad)  # type: ignore[arg-type]
