"""One result becomes another by the changes between them, however long both are."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tideline.client.kept import Kept, differences, key_reader
from tideline.live.difference import ordered
from tideline.live.handed import apply_change
from tideline.live.item import Item
from tideline.live.remaining import Remaining

ROWS = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 1)), unique_by=lambda row: row[0])


def item(row: tuple[int, int]) -> Item:
    return Item(row[0], b'{"id":%d,"n":%d}' % row)


@given(st.permutations(range(9)), st.integers(0, 9))
def test_remaining_counts_what_is_left_before(order: list[int], many: int) -> None:
    left, remaining = list(range(9)), Remaining(9)
    for place in order[:many]:
        assert remaining.take(place) == left.index(place)
        left.remove(place)


@given(ROWS, ROWS)
def test_the_changes_lead_from_one_result_to_the_other(had: list, now: list) -> None:
    state = [item(row) for row in had]
    wanted = [item(row) for row in now]
    for change in ordered(state[:], wanted, 7):
        apply_change(state, change)
    assert [one.raw for one in state] == [one.raw for one in wanted]
    of = key_reader("id")
    kept, newer = (
        Kept(of, True, [{"id": key, "n": n} for key, n in rows], version)
        for version, rows in enumerate((had, now))
    )
    for change in differences(kept.copy(), newer):
        kept.apply(change)
    assert kept.documents == newer.documents


@pytest.mark.parametrize("shuffled", [False, True])
def test_long_results_are_not_searched_for_each_document(shuffled: bool) -> None:
    """A shuffled result of thousands was held against itself once a document."""
    count, asked = 3000, 0
    had = [item((key, 0)) for key in range(count)]
    now = had[::-1]
    if shuffled:
        random.Random(7).shuffle(now)

    def identity(one: Item) -> int:
        nonlocal asked
        asked += 1
        return one.key

    changes = ordered(had, now, 1, identity)
    assert asked <= 4 * count
    assert sum(change.old_index - change.index for change in changes) > count
