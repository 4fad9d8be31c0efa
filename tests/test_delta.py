"""`$delta`: tell me when a value has changed by so much since the last event at the place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tables import answers_of

import tideline
from tideline.clock import SECOND
from tideline.errors import InvalidRequest
from tideline.testing import ManualClock

COLDER = {"temp": {"$delta": {"$lte": -5}}}


@pytest.mark.parametrize("layout", ["dual", "two"])
def test_a_drop_is_told_and_a_rise_is_not(layout: str) -> None:
    clock = ManualClock(1_000)
    with tideline.open(":memory:", clock=clock) as db:
        air = db.channel("air", layout=layout)
        sub = air.subscribe("roof", user="ann", until_s=600, where=COLDER)
        told = []
        for temp in (20, 18, 12, 11, 30, 25):
            clock.advance(1)
            told.append(len(air.publish("roof", {"temp": temp}, ttl_s=60).subscriptions))
        air.publish("cellar", {"temp": 0}, ttl_s=60)  # another place: nothing to compare with
        assert told == [0, 0, 1, 0, 0, 1]
        assert [event.body["temp"] for event in sub.take()] == [12, 25]


def test_only_a_still_valid_event_counts_as_the_one_before() -> None:
    clock = ManualClock(1_000)
    with tideline.open(":memory:", clock=clock) as db:
        air = db.channel("air")
        air.subscribe("roof", user="ann", until_s=600, where=COLDER)
        air.publish("roof", {"temp": 20}, ttl_s=10)
        clock.advance(10)
        assert not air.publish("roof", {"temp": 2}, ttl_s=10).subscriptions
        clock.advance(9)
        assert air.publish("roof", {"temp": -9}, ttl_s=10).subscriptions


def test_past_answers_and_find_compare_too() -> None:
    clock = ManualClock(1_000)
    with tideline.open(":memory:", clock=clock) as db:
        air = db.channel("air", space=tideline.Topics())
        for temp in (20, 10, 9, 1):
            air.publish("house/roof", {"temp": temp}, ttl_s=60)
            air.publish("house", {"temp": -temp}, ttl_s=60)
            clock.advance(1)
        sub = air.subscribe("house", user="ann", since_s=-60, until_s=60, where=COLDER)
        # a place above or below meets the subscription, but is not the same place
        assert [event.body["temp"] for event in sub.past] == [10, 1]
        assert [event.body["temp"] for event in air.find("house", where=COLDER)] == [1, 10]


def test_it_is_remembered_over_a_restart(tmp_path: Path) -> None:
    clock = ManualClock(1_000)
    with tideline.open(tmp_path / "db", clock=clock) as db:
        air = db.channel("air")
        air.subscribe("roof", user="ann", id="s", until_s=600, where=COLDER)
        air.publish("roof", {"temp": 20}, ttl_s=60)
    with tideline.open(tmp_path / "db", clock=clock) as db:
        air = db.channel("air")
        assert [info.where for info in air.subscriptions()] == [COLDER]
        told = air.apply(table([("publish", "e", "roof", 1, 60, {"temp": 3})]))
        assert answers_of(told) == [(0, "s", "e", "ann", "live")]
        assert [event.id for event in air.resume("s").past] == ["e"]


@pytest.mark.parametrize("bad", [{"$delta": 5}, {"$delta": {}}, {"$delta": {"$gt": "a"}}])
def test_a_wrong_operand_is_refused_and_nothing_stored(bad: dict[str, Any]) -> None:
    with tideline.open(":memory:") as db:
        air = db.channel("air")
        with pytest.raises(InvalidRequest, match=r"where\.temp\.\$delta"):
            air.subscribe("roof", user="ann", until_s=9, where={"temp": bad})
        assert air.subscriptions() == []


# ---- against a plain model, one by one and in batches -------------------------------------------


def table(rows: list[tuple[str, str, str, int, int, Any]]) -> pa.Table:
    """Operations: kind, id, place, second, seconds it lasts, body or condition."""
    us = pa.timestamp("us", "UTC")
    at = [(1_000 + row[3]) * SECOND for row in rows]
    asked = [row[0] == "subscribe" for row in rows]
    return pa.table(
        {
            "op": [row[0] for row in rows],
            "id": [row[1] for row in rows],
            "place": [row[2] for row in rows],
            "user": [row[1] if ask else None for row, ask in zip(rows, asked, strict=True)],
            "at": pa.array(at, us),
            "since": pa.array(
                [t - 30 * SECOND if ask else None for t, ask in zip(at, asked, strict=True)], us
            ),
            "until": pa.array([t + row[4] * SECOND for t, row in zip(at, rows, strict=True)], us),
            "body": [None if ask else json(row[5]) for row, ask in zip(rows, asked, strict=True)],
            "where": [json(row[5]) if ask else None for row, ask in zip(rows, asked, strict=True)],
        }
    )


def json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def expected(rows: list[tuple[str, str, str, int, int, Any]]) -> list[tuple[Any, ...]]:
    """The contract, plainly: every pair, in order of arrival."""
    found = []
    events: list[tuple[str, str, int, int, float]] = []
    subs: list[tuple[str, str, int, int, float]] = []

    def fell(place: str, at: int, temp: float, now: int, older: list[Any], most: float) -> bool:
        before = [e for e in older if e[1] == place and e[2] <= at and now < e[3]]
        return bool(before) and temp - max(before, key=lambda e: e[2])[4] <= most

    for n, (kind, name, place, at, span, value) in enumerate(rows):
        if kind == "publish":
            for s, s_place, since, until, most in subs:
                met = s_place == place and since <= at < until
                if met and fell(place, at, value["temp"], at, events[::-1], most):
                    found.append((n, s, name, s, "live"))
            events.append((name, place, at, at + span, value["temp"]))
        else:
            most = value["temp"]["$delta"]["$lte"]
            for k, (e, e_place, e_at, e_until, temp) in enumerate(events):
                met = e_place == place and at - 30 <= e_at < at + span and at < e_until
                if met and fell(place, e_at, temp, at, events[:k][::-1], most):
                    found.append((n, name, e, name, "past"))
            subs.append((name, place, at - 30, at + span, most))
    return sorted(found)


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["publish", "publish", "subscribe"]),
        st.sampled_from(["a", "b"]),
        st.integers(0, 9),
        st.integers(1, 40),
        st.integers(-9, 9),
    ),
    max_size=25,
)


@given(OPERATIONS, st.integers(0, 25))
def test_batches_and_single_rows_answer_as_the_model(drawn: list[Any], cut: int) -> None:
    rows = []
    second = 0
    for n, (kind, place, step, span, number) in enumerate(drawn):
        second += step
        value = {"temp": number if kind == "publish" else {"$delta": {"$lte": number}}}
        rows.append((kind, f"{kind[0]}{n}", place, second, span, value))
    with tideline.open(":memory:", clock=ManualClock(1_000)) as db:
        channel = db.channel("c", max_ahead_s=1_000)  # the clock stands still
        found = []
        for first, part in ((0, rows[:cut]), (min(cut, len(rows)), rows[cut:])):
            if part:
                found += [(a[0] + first, *a[1:]) for a in answers_of(channel.apply(table(part)))]
        assert sorted(found) == expected(rows)
