"""`journal` and `scan`: what was written, in order, from any position; what there is, as tables."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tideline
from tideline import Box, Circle, Grid, InvalidRequest, QuadTree, Topics, Unavailable
from tideline.testing import ManualClock

START = datetime(2026, 1, 1, tzinfo=UTC)
EVEN = '{"n": {"$mod": [2, 0]}}'
QUAD = QuadTree(bounds=(0.0, 0.0, 8.0, 8.0), depth=5)


def clock() -> ManualClock:
    return ManualClock(START.timestamp())


def answers_of(channel: Any, **options: Any) -> list[tuple[str, str, str, str]]:
    table, _ = channel.journal("answers", **options)
    columns = [table[name].to_pylist() for name in ("subscription", "event", "user", "kind")]
    return list(zip(*columns, strict=True))


def test_the_journal_tells_everything_in_order(tmp_path: Path) -> None:
    with tideline.open(tmp_path, clock=clock()) as db:
        news = db.channel("news", journal_s=3600)
        news.publish("a", {"n": 1}, id="e1", ttl_s=60)
        news.subscribe("a", user="ann", id="s1", since_s=-60, until_s=60)
        news.publish("a", {"n": 2}, id="e2", ttl_s=60)
        news.cancel("s1")
        news.publish("a", {"n": 3}, id="e3", ttl_s=60)
        events, end = news.journal("events")
        assert events["id"].to_pylist() == ["e1", "e2", "e3"]
        assert events["body"].to_pylist() == ['{"n":1}', '{"n":2}', '{"n":3}']
        assert end == news.position()
        subscriptions, _ = news.journal("subscriptions")
        assert subscriptions.select(["id", "user", "place"]).to_pylist() == [
            {"id": "s1", "user": "ann", "place": "a"}
        ]
        assert answers_of(news) == [("s1", "e1", "ann", "past"), ("s1", "e2", "ann", "live")]


def test_the_number_of_a_writers_batch_is_no_count_of_answers(tmp_path: Path) -> None:
    with tideline.open(tmp_path, clock=clock()) as db:
        news = db.channel("news", journal_s=3600)
        news.subscribe("a", user="ann", id="s1", until_s=60)
        for number in (1 << 20, 2 << 20, 3 << 20):
            rows = {
                "op": ["publish"],
                "id": [f"e{number}"],
                "place": ["a"],
                "body": ["{}"],
                "at": [START],
            }
            news.apply(pa.table(rows), once=("w", number))
        assert len(answers_of(news)) == 3
        assert len(answers_of(news, limit=2)) == 2


def test_the_journal_tells_what_was_retracted_or_replaced(tmp_path: Path) -> None:
    with tideline.open(tmp_path, clock=ManualClock(1_000)) as db:
        channel = db.channel("c", journal_s=3600)
        first = channel.publish("a", {}, id="gone", ttl_s=60).event.seq
        channel.publish("a", {}, id="truck", ttl_s=60, replace=True)  # replaces nothing
        channel.retract("gone")
        middle = channel.position()
        second = channel.publish("b", {}, id="truck", ttl_s=60, replace=True).event.seq
        channel.seal()
        channel.retract("truck")
        table, end = channel.journal("retractions")
        rows = table.to_pylist()
        assert [(row["id"], row["event"]) for row in rows] == [
            ("gone", first), ("truck", first + 1), ("truck", second),
        ]  # fmt: skip
        assert rows[1]["seq"] == second
        assert [row["at"].timestamp() for row in rows] == [1_000] * 3
        assert channel.journal("retractions", upto=middle)[0].num_rows == 1
        assert channel.journal("retractions", after=middle)[0].to_pylist() == rows[1:]
        assert channel.journal("retractions", after=end)[0].num_rows == 0


def test_positions_cut_the_journal_anywhere(tmp_path: Path) -> None:
    with tideline.open(tmp_path, clock=clock()) as db:
        news = db.channel("news", journal_s=3600)
        positions = [news.position()]
        for n in range(6):
            news.publish("a", {}, id=f"e{n}")
            positions.append(news.position())
        for low in range(7):
            for high in range(low, 7):
                table, reached = news.journal("events", after=positions[low], upto=positions[high])
                assert table["id"].to_pylist() == [f"e{n}" for n in range(low, high)]
                assert reached == positions[high]
        seen, position = [], None
        while len(seen) < 6:
            table, position = news.journal("events", after=position, limit=2)
            assert 0 < table.num_rows <= 2
            seen += table["id"].to_pylist()
        assert seen == [f"e{n}" for n in range(6)]


def table_of(n: int, count: int) -> pa.Table:
    rows: list[dict[str, Any]] = []
    for k in range(n, n + count):
        at = START + timedelta(milliseconds=k)
        row: dict[str, Any] = {"at": at, "place": f"p{k % 5}", "id": f"x{k}"}
        if k % 3:
            row |= {"op": "publish", "body": f'{{"n":{k}}}', "until": at + timedelta(seconds=30)}
        else:
            row |= {
                "op": "subscribe", "user": f"u{k % 4}", "since": at - timedelta(seconds=5),
                "until": at + timedelta(seconds=5), "where": EVEN if k % 2 else None,
                "unseen": k % 4 == 0,
            }  # fmt: skip
        rows.append(row)
    return pa.Table.from_pylist(rows)


def test_batches_and_single_calls_note_the_answers_they_gave(tmp_path: Path) -> None:
    time = clock()
    given: list[tuple[str, str, str, str]] = []
    with tideline.open(tmp_path, clock=time) as db:
        news = db.channel("news", journal_s=3600)
        for n in range(0, 300, 60):
            answers = news.apply(table_of(n, 50)).answers
            columns = [answers[c].to_pylist() for c in ("subscription", "event", "user", "kind")]
            given += zip(*columns, strict=True)
            time.advance(0.06)
            told = news.publish("p1", {"n": n}, id=f"single{n}", ttl_s=10)
            given += [(s.id, told.event.id, s.user, "live") for s in told.subscriptions]
            sub = news.subscribe("p2", user="me", id=f"s{n}", since_s=-10, until_s=1, unseen=True)
            given += [(sub.id, event.id, "me", "past") for event in sub.past]
        assert {kind for *_, kind in given} == {"past", "live"}
        assert answers_of(news) == given
    with tideline.open(tmp_path, clock=time) as db:
        assert answers_of(db.channel("news")) == given


def test_times_of_answers_are_those_of_the_operations(tmp_path: Path) -> None:
    time = clock()
    with tideline.open(tmp_path, clock=time) as db:
        news = db.channel("news", journal_s=3600)
        news.apply(table_of(0, 50))
        time.advance(5)
        news.publish("p0", {"n": 2}, id="late")
        table, _ = news.journal("answers")
        by_event = {(row["subscription"], row["event"]): row["at"] for row in table.to_pylist()}
        for (sub, event), at in by_event.items():
            if event == "late":
                assert at == START + timedelta(seconds=5)
            else:
                later = max(int(sub[1:]), int(event[1:]))
                assert at == START + timedelta(milliseconds=later)


def test_what_is_kept_outlives_expiry_and_sealing(tmp_path: Path) -> None:
    time = clock()
    with tideline.open(tmp_path, clock=time) as db:
        news = db.channel("news", journal_s=100)
        begin = news.position()
        engine = news.core.engine
        for n in range(400):
            news.publish("a", {"text": "x" * 300}, id=f"e{n}", ttl_s=1)
            time.advance(1)
            if n % 50 == 0:
                engine.store.log.rotate()
                news.maintain()
        news.maintain()
        kept, _ = news.journal("events")
        ids = kept["id"].to_pylist()
        assert ids == [f"e{n}" for n in range(400 - len(ids), 400)]
        assert 100 <= len(ids) < 220  # whole segments are kept
        with pytest.raises(Unavailable, match="reach back"):
            news.journal("events", after=begin)
        earliest = news.earliest()
    with tideline.open(tmp_path, clock=time) as db:
        news = db.channel("news")
        assert news.earliest() == earliest
        assert news.journal("events")[0]["id"].to_pylist() == ids
        assert news.stats().events <= 1


def test_without_a_journal_nothing_is_kept_that_recovery_does_not_need(tmp_path: Path) -> None:
    time = clock()
    with tideline.open(tmp_path, clock=time) as db:
        news = db.channel("news")
        for n in range(600):
            news.publish("a", {"text": "x" * 300}, ttl_s=1)
            time.advance(1)
            if n % 50 == 0:
                news.core.engine.store.log.rotate()
                news.maintain()
        assert len(news.journal("events")[0]) <= 100
        with pytest.raises(InvalidRequest, match="journal_s"):
            news.journal("answers")


def test_wrong_questions_are_refused(tmp_path: Path) -> None:
    with tideline.open(tmp_path, clock=clock()) as db:
        news = db.channel("news", journal_s=60)
        for wrong in ("x", "1", "1:x", 5, "1:2:3"):
            with pytest.raises(InvalidRequest, match="position"):
                news.journal("events", after=wrong)
        with pytest.raises(InvalidRequest, match="end"):
            news.journal("events", after="9:16")
        with pytest.raises(InvalidRequest, match="kind"):
            news.journal("drivers")
        with pytest.raises(InvalidRequest, match="limit"):
            news.journal("events", limit=0)
        with pytest.raises(InvalidRequest, match="kind"):
            news.scan("answers")
        with pytest.raises(InvalidRequest, match="journal_s"):
            db.channel("news", journal_s=-1)
        with pytest.raises(InvalidRequest, match="poll"):
            db.channel("asked", layout="poll", journal_s=60)
    with tideline.open(":memory:") as db, pytest.raises(InvalidRequest, match="memory"):
        db.channel("news", journal_s=60)


PLACES: list[tuple[Any, list[Any]]] = [
    (tideline.Flat(), ["a", "b", "ü/x"]),
    (Topics(), ["a", "a/b", "a/10", "a/9"]),
    (Grid(bounds=(0.0, 0.0, 8.0, 8.0), rows=4, cols=4), [(1.5, 2.5), Circle((3.0, 3.0), 5000.0)]),
    (QUAD, [(1.5, 2.5), "1.4", Circle((3.0, 3.0), 5000.0), Box(1.0, 1.0, 2.0, 3.0)]),
]


@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize(("space", "places"), PLACES)
def test_a_scan_gives_back_what_was_given(
    tmp_path: Path, space: Any, places: list[Any], sealed: bool
) -> None:
    time = clock()
    with tideline.open(tmp_path, clock=time) as db:
        roads = db.channel("roads", space=space)
        for n, place in enumerate(places):
            roads.publish(place, {"n": n}, id=f"e{n}", ttl_s=None if n == 0 else 60)
            roads.subscribe(
                place, user=f"u{n}", id=f"s{n}", until_s=60, unseen=n == 1,
                where={"n": n} if n else None,
            )  # fmt: skip
        roads.publish(places[0], {}, id="gone", ttl_s=1)
        roads.subscribe(places[0], user="x", id="gone", until_s=1)
        roads.subscribe(places[0], user="x", id="cancelled", until_s=60)
        roads.cancel("cancelled")
        time.advance(2)
        if sealed:
            roads.seal()
        events = roads.scan("events").to_pylist()
        subs = roads.scan("subscriptions").to_pylist()
        assert [e["id"] for e in events] == [f"e{n}" for n in range(len(places))]
        assert [s["id"] for s in subs] == [f"s{n}" for n in range(len(places))]
        for n, (event, sub, place) in enumerate(zip(events, subs, places, strict=True)):
            assert given_place(event) == given_place(sub) == place
            assert event["body"] == f'{{"n":{n}}}'
            assert event["until"] == (None if n == 0 else START + timedelta(seconds=60))
            assert (sub["user"], sub["unseen"]) == (f"u{n}", n == 1)
            assert (sub["where"] is None) == (n == 0)


def given_place(row: dict[str, Any]) -> Any:
    if row.get("west") is not None:
        return Box(row["west"], row["south"], row["east"], row["north"])
    if row.get("radius_m") is not None:
        return Circle((row["lon"], row["lat"]), row["radius_m"])
    if row.get("lon") is not None:
        return (row["lon"], row["lat"])
    return row["place"]


@pytest.mark.parametrize(("space", "places"), PLACES)
def test_a_scan_narrows_as_find_does(tmp_path: Path, space: Any, places: list[Any]) -> None:
    chance = random.Random(7)
    time = clock()
    with tideline.open(tmp_path, clock=time) as db:
        roads = db.channel("roads", space=space)
        for n in range(60):
            roads.publish(chance.choice(places), {"n": n}, id=f"e{n}", ttl_s=1000)
            time.advance(1)
            if n == 30:
                roads.seal()
        for place in places:
            low, high = START + timedelta(seconds=10), START + timedelta(seconds=45)
            where = {"n": {"$mod": [3, 0]}}
            found = roads.scan("events", place=place, since=low, until=high, where=where)
            asked = roads.find(place, since=low, until=high, where=where)
            assert found["id"].to_pylist() == [event.id for event in reversed(asked)]
            assert asked


def test_subscriptions_are_narrowed_by_place_and_time(tmp_path: Path) -> None:
    with tideline.open(tmp_path, clock=clock()) as db:
        roads = db.channel("roads", space=QUAD)
        roads.subscribe(Circle((3.0, 3.0), 5000.0), user="u", id="near", until_s=60)
        roads.subscribe(Circle((7.0, 7.0), 5000.0), user="u", id="far", until_s=60)
        roads.subscribe((3.0, 3.0), user="u", id="past", since_s=-60, until_s=1)
        ids = roads.scan("subscriptions", place=(3.0, 3.0))["id"].to_pylist()
        assert ids == ["near", "past"]
        later = roads.scan("subscriptions", place=(3.0, 3.0), since=START + timedelta(seconds=1))
        assert later["id"].to_pylist() == ["near"]


def test_a_segment_that_is_being_let_go_does_not_come_back(tmp_path: Path) -> None:
    """A writer looks after the log while a manifest that does without a segment is being saved."""
    clock = ManualClock(1_700_000_000)
    with tideline.open(tmp_path / "db", clock=clock) as db:
        channel = db.channel("c", journal_s=30)
        engine = channel.core.engine
        for _ in range(3):
            for _ in range(10):
                clock.advance(1)
                channel.publish("a", 1, ttl_s=1)
            with engine.lock:
                engine.store.log.rotate()
                engine.upkeep.look_after()
        clock.advance(40)
        channel.publish("a", 1, ttl_s=1)
        with engine.lock:
            engine.expiry.drop_all()
            _, first, kept = engine.upkeep.snapshot()
            assert kept > engine.store.kept_log
            assert engine.upkeep.kept_log(first) == kept
        channel.maintain()
    with tideline.open(tmp_path / "db", clock=clock) as db:
        db.check()
