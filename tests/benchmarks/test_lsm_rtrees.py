"""Three ways to tell which entries of an LSM R-tree count: each answers as a dict does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import few

from benchmarks.peers.lsm_rtrees import WAYS, Rtree

KEYS, PLACES = 12, 5
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, KEYS), st.integers(0, PLACES), st.just(0)),
        st.tuples(st.just("delete"), st.integers(0, KEYS), st.just(0), st.just(0)),
        st.tuples(st.just("flush"), st.just(0), st.just(0), st.just(0)),
        st.tuples(st.just("merge"), st.just(0), st.integers(0, 4), st.integers(0, 5)),
    ),
    max_size=60,
)
BOXES = [(0, 0, PLACES, PLACES), (1, 1, 3, 3), (2, 2, 2, 2), (-5, -5, -1, -1)]


def written(tree: Rtree, rows: list[tuple[int, float, bool]]) -> None:
    keys, places, gone = (np.array(each) for each in zip(*rows, strict=True))
    tree.write(keys, places.astype(float), places.astype(float), gone)


def agrees(tree: Rtree, model: dict[int, float]) -> None:
    for west, south, east, north in BOXES:
        wanted = sorted(k for k, at in model.items() if west <= at <= east and south <= at <= north)
        assert tree.search((west, south, east, north)).tolist() == wanted


@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=few(25), deadline=None)
@given(steps=STEPS)
def test_answers_are_those_of_a_dict_after_every_step(way: Any, steps: list[Any]) -> None:
    tree, model = way(), {}
    for step, key, first, more in steps:
        if step == "put":
            before = model.get(key)
            # An update: the published ways are told what it replaces.
            rows = [] if before is None else [(key, before, True)]
            written(tree, [*rows, (key, float(first), False)])
            model[key] = float(first)
        elif step == "delete" and key in model:
            written(tree, [(key, model.pop(key), True)])
        elif step == "flush":
            tree.flush()
        elif step == "merge":
            tree.merge(first, first + more)
        agrees(tree, model)


@pytest.mark.parametrize("way", WAYS)
def test_many_points_before_and_after_flush_and_merge(way: Any) -> None:
    draw = np.random.default_rng(3)
    tree, model = way(), {}
    for part in range(6):
        for _ in range(4):
            keys = draw.choice(3_000, 300, replace=False)
            places = draw.integers(0, 400, 300) / 100
            rows: list[tuple[int, float, bool]] = []
            for key, place in zip(keys.tolist(), places.tolist(), strict=True):
                if key in model:
                    rows.append((key, model.pop(key), True))
                if draw.random() < 0.8:
                    rows.append((key, place, False))
                    model[key] = place
            written(tree, rows)
        agrees(tree, model)
        tree.flush()
        agrees(tree, model)
        if part == 3:
            tree.merge(1, 3)
            agrees(tree, model)
    tree.merge(0, len(tree.parts))
    agrees(tree, model)
    assert len(tree.parts) == 1
    assert len(tree.parts[0].keys) == len(model)  # nothing is left of what is gone


def test_ours_needs_not_know_what_it_replaces() -> None:
    tree = WAYS[0]()
    written(tree, [(1, 1.0, False)])
    tree.flush()
    written(tree, [(1, 3.0, False)])
    assert tree.search((0, 0, 2, 2)).tolist() == []
    assert tree.search((3, 3, 3, 3)).tolist() == [1]
