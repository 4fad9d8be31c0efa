"""`match` gives the answers of the contract: random operations against the brute-force model.

The real packing, routing, state and recovery run here, over micro-batches that Spark did not
make (tests/spark/match_stream.py). test_match_spark.py runs the same through Spark itself.

The order of a micro-batch is (`at`, kind, id); the model is given its rows in that order, and
told the newest time of the micro-batches before.
"""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import match_stream as matching
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from machine import BODY, USER, WHERE
from model import WORLDS, Model

from tideline import Box, Flat, QuadTree
from tideline.clock import FOREVER
from tideline.spark import segments
from tideline.spark.matching import pack
from tideline.spark.matching.whole import run_batches

pytestmark = pytest.mark.spark

SECOND, START = matching.SECOND, matching.START

ROW = st.fixed_dictionaries(
    {
        "op": st.sampled_from(
            ["publish", "publish", "publish", "subscribe", "subscribe", "cancel"]
        ),
        "place": st.integers(0, 12),
        "user": USER,
        "at": st.integers(0, 5),
        "since": st.sampled_from([-30, -5, -1, 0, 2]),
        "span": st.sampled_from([None, 60, 35, 4, 1]),
        "body": BODY,
        "where": WHERE,
        "unseen": st.booleans(),
        "again": st.sampled_from([False] * 7 + [True]),
        "which": st.integers(0, 20),
    }
)
BATCH = st.fixed_dictionaries(
    {
        "rows": st.lists(ROW, max_size=8),
        "step": st.sampled_from([0, 1, 3, 8, 40]),
        "late": st.sampled_from([0, 0, 0, 4, 30]),
        "workers": st.integers(0, 255),
        "lost": st.sampled_from([None, None, 0, 1]),
        "killed": st.sampled_from([False] * 4 + [True]),
    }
)


class Maker:
    """Rows with ids of their own, a retry now and then, cancels of what was asked before."""

    def __init__(self, world: Any) -> None:
        self.places = [place for place in world.places if not isinstance(place, Box)]
        self.made: list[dict[str, Any]] = []
        self.now = START

    def rows(self, drawn: dict[str, Any]) -> list[dict[str, Any]]:
        self.now += drawn["step"] * SECOND
        rows = []
        for one in drawn["rows"]:
            row = self._row(one, self.now - drawn["late"] * SECOND)
            if row is not None:
                rows.append(row)
        return rows

    def _row(self, one: dict[str, Any], now: int) -> dict[str, Any] | None:
        if one["again"] and self.made:
            return self.made[one["which"] % len(self.made)]
        at = now + one["at"] * SECOND
        if one["op"] == "cancel":
            asked = [row["id"] for row in self.made if row["op"] == "subscribe"]
            if not asked:
                return None
            return {"op": "cancel", "id": asked[one["which"] % len(asked)], "at": at}
        since = at + one["since"] * SECOND if one["op"] == "subscribe" else at
        until = FOREVER if one["span"] is None else since + one["span"] * SECOND
        row = {
            "op": one["op"], "id": f"{one['op'][0]}{len(self.made)}", "at": at, "since": since,
            "until": until, "place": self.places[one["place"] % len(self.places)],
            "user": one["user"], "body": one["body"], "where": one["where"],
            "unseen": one["unseen"],
        }  # fmt: skip
        self.made.append(row)
        return row


@pytest.mark.parametrize("world", list(WORLDS))
@given(
    batches=st.lists(BATCH, min_size=1, max_size=6),
    buckets=st.sampled_from([1, 3, 8]),
    levels=st.sampled_from([None, 1, 2]),
    compacting=st.booleans(),
)
def test_a_stream_answers_as_the_model_does(
    world: str, batches: list[dict[str, Any]], buckets: int, levels: int | None, compacting: bool
) -> None:
    space = WORLDS[world].space
    told = matching.settings(space, buckets=buckets, levels=None if world == "flat" else levels)
    maker, model = Maker(WORLDS[world]), Model(space)
    most = -1 if compacting else segments._MOST_SEGMENTS
    with patch.object(segments, "_MOST_SEGMENTS", most), matching.Stream(told) as stream:
        for drawn in batches:
            rows = maker.rows(drawn)
            expected = matching.model_answers(model, matching.order(rows))
            if drawn["killed"]:
                stream.forget()
            bits = drawn["workers"]
            got = stream.batch(rows, lambda label, bits=bits: bits >> label % 8 & 1,
                               lost=drawn["lost"])  # fmt: skip
            assert got == expected
            # Every row moves the stream's time, also one that does not land.
            model.newest = max([model.newest, *(row["at"] for row in rows)])


@pytest.mark.parametrize("world", list(WORLDS))
@given(
    batches=st.lists(BATCH, min_size=1, max_size=4),
    buckets=st.sampled_from([1, 3, 8]),
    levels=st.sampled_from([None, 1, 2]),
)
def test_a_batch_answers_as_the_model_does(
    world: str, batches: list[dict[str, Any]], buckets: int, levels: int | None
) -> None:
    space = WORLDS[world].space
    told = matching.settings(space, buckets=buckets, levels=None if world == "flat" else levels)
    maker = Maker(WORLDS[world])
    rows = [row for drawn in batches for row in maker.rows(drawn)]
    expected = matching.model_answers(Model(space), matching.order(rows))
    assert matching.whole(rows, told) == expected


@pytest.mark.parametrize("cached", [True, False])
def test_many_rows_are_answered_as_a_channel_does(cached: bool) -> None:
    space = QuadTree(bounds=(0.0, 0.0, 8.0, 8.0), depth=6)
    batches = matching.workload(2, batches=6, size=200)
    with matching.Stream(matching.settings(space, buckets=3, levels=3, cached=cached)) as stream:
        found = [answer for rows in batches for answer in stream.batch(rows)]
    assert sorted(found) == matching.expected(space, batches)


def test_half_of_all_rows_in_one_place_do_not_fill_the_memory() -> None:
    """Two thousand subscriptions and as many events there are four million answers."""
    half = 2_000
    rows: list[dict[str, Any]] = []
    for n in range(2 * half):
        place = "hot" if n < half else f"p{n}"
        both = {"at": START + n, "since": START, "until": FOREVER, "place": place, "body": {}}
        rows.append(both | {"op": "publish", "id": f"e{n}"})
        rows.append(both | {"op": "subscribe", "id": f"s{n}", "user": "u", "where": None,
                            "unseen": False})  # fmt: skip
    told = matching.settings(Flat(), buckets=1, unseen=False)
    packets = list(pack.pack_batches(iter(matching.operations(rows).to_batches()), told))
    before, most, found = pa.total_allocated_bytes(), 0, 0
    for batch in run_batches(iter(packets), told):
        most, found = max(most, pa.total_allocated_bytes() - before), found + batch.num_rows
    assert found == half * half + half
    assert most < 150 << 20  # all of them would be 400 MB
