"""Tables through a client are the tables of the library: the same columns, types and rows."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tables import SCHEMA

import tideline
from tideline import Box, Circle, QuadTree
from tideline.server import running
from tideline.testing import ManualClock

START = datetime(2026, 1, 1, tzinfo=UTC)
QUAD = QuadTree(bounds=(0.0, 0.0, 8.0, 8.0), depth=5)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[Any, Any]]:
    """One channel used directly, one through a client; both in one database."""
    with (
        tideline.open(tmp_path, clock=ManualClock(START.timestamp())) as db,
        running(db) as url,
        tideline.connect(url) as remote,
    ):
        yield (
            db.channel("direct", space=QUAD, journal_s=3600),
            remote.channel("remote", space=QUAD, journal_s=3600),
        )


def operations(first: int, count: int) -> pa.Table:
    """Points, circles and cells, with bad rows among them."""
    rows: list[dict[str, Any]] = []
    for n in range(first, first + count):
        at = START + timedelta(milliseconds=n)
        row: dict[str, Any] = {"id": f"x{n}", "at": at, "lon": n % 8 / 1.1, "lat": n % 5 / 1.3}
        if n % 3:
            row |= {"op": "publish", "body": f'{{"n":{n}}}', "until": at + timedelta(seconds=60)}
        else:
            row |= {
                "op": "subscribe", "user": f"u{n % 4}", "radius_m": 150_000.0,
                "since": at - timedelta(seconds=5), "until": at + timedelta(seconds=60),
                "where": '{"n":{"$mod":[2,0]}}' if n % 2 else None, "unseen": n % 4 == 0,
            }  # fmt: skip
        if n % 17 == 0:
            row |= {"lon": 99.0}
        rows.append(row)
    schema = pa.schema([column for column in SCHEMA if column.name != "place"])
    return pa.Table.from_pylist(rows, schema=schema)


def test_apply_scan_and_journal_are_the_same(pair: tuple[Any, Any]) -> None:
    direct, remote = pair
    for first in (0, 100):
        table = operations(first, 100)
        ours, theirs = direct.apply(table), remote.apply(table)
        assert theirs.answers.num_rows > 20
        assert theirs.rejected.num_rows > 2
        assert theirs.answers.equals(ours.answers)
        assert theirs.answers.schema == ours.answers.schema
        assert theirs.rejected.equals(ours.rejected)
        assert theirs.rejected.schema == ours.rejected.schema
    for options in (
        {},
        {"place": Circle((2.0, 2.0), radius_m=200_000)},
        {"place": Box(0.0, 0.0, 3.0, 3.0), "since": START},
        {"place": (7 / 1.1, 0.0)},
        {"place": "1"},
        {"since": START + timedelta(seconds=0.05), "until": START + timedelta(seconds=0.1)},
        {"where": {"n": {"$gt": 50}}},
    ):
        events = direct.scan("events", **options)
        assert remote.scan("events", **options).equals(events), options
    subscriptions = direct.scan("subscriptions")
    assert subscriptions.num_rows > 20
    assert remote.scan("subscriptions").equals(subscriptions)
    for kind in ("events", "subscriptions", "answers"):
        ours, _ = direct.journal(kind)
        theirs, reached = remote.journal(kind)
        assert ours.num_rows > 20
        assert theirs.equals(ours)
        assert reached == remote.position()


def test_the_journal_goes_on_from_a_position(pair: tuple[Any, Any]) -> None:
    _, remote = pair
    begin = remote.position()
    for n in range(6):
        remote.publish((1.0, 1.0), {"n": n}, id=f"e{n}")
    seen: list[str] = []
    position = begin
    while len(seen) < 6:
        table, position = remote.journal("events", after=position, limit=2)
        assert 0 < table.num_rows <= 2
        seen += table["id"].to_pylist()
    assert seen == [f"e{n}" for n in range(6)]
    table, reached = remote.journal("events", after=begin, upto=begin)
    assert (table.num_rows, reached) == (0, begin)
    assert remote.earliest() <= begin


def test_a_writers_batch_lands_once(pair: tuple[Any, Any]) -> None:
    _, remote = pair
    table = operations(0, 40)
    assert not remote.apply(table, once=("a:b", 7)).repeated
    before = remote.stats()
    assert remote.apply(table, once=("a:b", 7)).repeated
    assert remote.apply(table, once=("a:b", 6)).repeated
    assert remote.stats().events == before.events
    assert not remote.apply(operations(40, 40), once=("a:b", 8)).repeated


def test_batches_and_slices_of_tables_are_taken(pair: tuple[Any, Any]) -> None:
    _, remote = pair
    table = operations(1, 2)
    assert remote.apply(table.slice(0, 1)).rejected.num_rows == 0
    assert remote.apply(table.slice(1, 1).to_batches()[0]).rejected.num_rows == 0
    assert remote.apply(table.slice(0, 0)).answers.num_rows == 0
    assert remote.stats().events == 2


def test_a_delivered_batch_arrives_in_order(pair: tuple[Any, Any]) -> None:
    _, remote = pair
    sub = remote.subscribe(Box(0.0, 0.0, 8.0, 8.0), user="u", until_s=600)
    remote.apply(operations(0, 200))
    got = sub.take()
    assert len(got) > 100
    assert [event.token for event in got] == sorted(event.token for event in got)
    assert got[0].body == {"n": 1}
