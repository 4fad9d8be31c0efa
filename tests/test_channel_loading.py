"""Bulk load of a channel: what was loaded is as if it had been published, whole or not at all."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tideline
from tideline import Box, Circle, Flat, QuadTree, Topics
from tideline.channel.loading import Piece, adopt, build_piece, recipe_of
from tideline.clock import SECOND
from tideline.errors import Corruption, InvalidRequest, Unavailable
from tideline.testing import ManualClock

NOW = 1_700_000_000.0
QUAD = QuadTree(bounds=(-10, -10, 10, 10), depth=6)
SPACES = {"flat": Flat(), "topics": Topics(), "quadtree": QUAD}
ASKED: dict[str, list[Any]] = {
    "flat": [f"p{n}" for n in range(9)],
    "topics": ["a", "a/1", "a/2/x", "b", "c/3"],
    "quadtree": [(0.5, 0.5), Circle((1, 1), 300_000), Box(-10, -10, 10, 10), (7, -7)],
}


def events(kind: str, seed: int, count: int, first: int = 0, long: bool = False) -> pa.Table:
    """Some events of the last minutes, in no order."""
    draw = random.Random(seed)
    at = [NOW - draw.random() * 300 for _ in range(count)]
    until = [moment + 400 + draw.choice([0, 50, 5_000, 1e6]) for moment in at]
    if long:
        until[::3] = [None for _ in until[::3]]  # type: ignore[list-item]
    columns: dict[str, Any] = {
        "id": [f"e{first + n}" for n in range(count)],
        "at": pa.array([int(moment * SECOND) for moment in at], pa.timestamp("us", "UTC")),
        "until": pa.array(
            [None if each is None else int(each * SECOND) for each in until],
            pa.timestamp("us", "UTC"),
        ),
        "body": [f'{{"n":{n},"w":"{draw.choice("xyz")}"}}' for n in range(count)],
    }
    if kind == "flat":
        columns["place"] = [f"p{draw.randrange(9)}" for _ in range(count)]
    elif kind == "topics":
        columns["place"] = [draw.choice(["a", "a/1", "a/2", "b/x/y", "c"]) for _ in range(count)]
    else:
        columns["lon"] = [draw.uniform(-9, 9) for _ in range(count)]
        columns["lat"] = [draw.uniform(-9, 9) for _ in range(count)]
        columns["radius_m"] = [draw.choice([None, 5_000.0, 90_000.0]) for _ in range(count)]
    return pa.table(columns)


def published(channel: Any, table: pa.Table) -> None:
    table = table.sort_by("at").append_column("op", pa.array(["publish"] * len(table)))
    assert not channel.apply(table).rejected.num_rows


def load(channel: Any, folder: Path, table: pa.Table, size: int = 300) -> tuple[int, int]:
    recipe = recipe_of(channel)
    pieces = [
        build_piece(recipe, folder, table.slice(at, size)) for at in range(0, len(table), size)
    ]
    return adopt(channel, recipe, pieces)


def answers(channel: Any, kind: str, ids: range) -> list[Any]:
    """Everything that can be asked, without the numbers of the rows."""

    def plain(found: Any) -> list[Any]:
        return sorted((e.id, str(e.place), e.at, e.until, str(e.body)) for e in found)

    asked: list[Any] = [plain(channel.find(place)) for place in ASKED[kind]]
    asked += [plain(channel.find(place, since_s=-90)) for place in ASKED[kind]]
    asked += [plain(channel.find(place, where={"w": "x"})) for place in ASKED[kind]]
    asked += [plain(filter(None, [channel.get(f"e{n}")])) for n in ids]
    asked.append(sorted(channel.scan("events").drop_columns("seq").to_pylist(), key=str))
    return asked


def past(channel: Any, kind: str, user: str) -> list[Any]:
    found = [
        channel.subscribe(place, user=user, since_s=-1000, until_s=60) for place in ASKED[kind]
    ]
    told = [sorted(event.id for event in one.past) for one in found]
    for one in found:
        channel.cancel(one.id)
    return told


@pytest.mark.parametrize("kind", SPACES)
@pytest.mark.parametrize("layout", ["dual", "two"])
def test_what_is_loaded_is_as_if_it_had_been_published(
    tmp_path: Path, kind: str, layout: str
) -> None:
    clock = ManualClock(NOW)
    with tideline.open(tmp_path / "db", clock=clock) as db:
        told, loaded = (
            db.channel(name, space=SPACES[kind], layout=layout) for name in ("told", "loaded")
        )
        for step in range(4):
            table = events(kind, step, 700, 1000 * step, long=step > 1)
            published(told, table)
            if step % 2:
                first, last = load(loaded, tmp_path, table)
                assert last + 1 - first == 700
            else:
                published(loaded, table)
        ids = range(0, 4000, 7)
        assert answers(loaded, kind, ids) == answers(told, kind, ids)
        assert past(loaded, kind, "ann") == past(told, kind, "ann")
        for channel in (told, loaded):
            channel.retract("e1001")
            channel.publish(ASKED[kind][0], {"n": 1, "w": "x"}, id="new", ttl_s=90)
        for seconds in (200, 300, 7_000):  # windows expire, components are dropped whole
            clock.advance(seconds)
            for channel in (told, loaded):
                channel.maintain()
            assert answers(loaded, kind, ids) == answers(told, kind, ids)
        loaded.core.engine.check()
        want = answers(loaded, kind, ids)
    with tideline.open(tmp_path / "db", clock=clock) as db:
        assert answers(db.channel("loaded"), kind, ids) == want


@pytest.fixture
def roads(tmp_path: Path) -> Any:
    with tideline.open(tmp_path / "db", clock=ManualClock(NOW)) as db:
        yield db.channel("roads", space=Flat())


@pytest.mark.parametrize("where", ["the load", "two pieces", "memory", "a component"])
def test_an_id_that_is_taken_loads_nothing(roads: Any, tmp_path: Path, where: str) -> None:
    table = events("flat", 1, 500)
    twice = table
    said = "two rows have one id"
    if where == "the load":
        twice = pa.concat_tables([table.slice(0, 200), table.slice(150)])
    elif where == "two pieces":
        twice = pa.concat_tables([table, table.slice(0, 1)])
    else:
        published(roads, table.slice(499))
        if where == "a component":
            roads.core.engine.upkeep.seal_all()
        said = "an event of this id is there already"
    before = roads.scan("events").to_pylist()
    with pytest.raises(InvalidRequest, match=rf"{said}.*id='e\d+'"):
        load(roads, tmp_path, twice)
    assert roads.scan("events").to_pylist() == before
    # An id that was retracted, or whose event has expired, is free.
    if before:
        roads.retract(before[0]["id"])
        load(roads, tmp_path, table)
        assert len(roads.scan("events")) == 500


def test_an_id_written_while_pieces_are_taken_is_seen(
    roads: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    upkeep = roads.core.engine.upkeep
    seal_all = upkeep.seal_all

    ids = iter(["e7", "e8"])

    def sealed() -> None:
        seal_all()
        roads.publish("p1", {"n": 1}, id=next(ids))

    monkeypatch.setattr(upkeep, "seal_all", sealed)
    with pytest.raises(InvalidRequest, match=r"an event of this id is there already.*id='e7'"):
        load(roads, tmp_path, events("flat", 1, 50))
    first, _ = load(roads, tmp_path, events("flat", 1, 50, 100))
    assert first == 3  # numbered again: one came between
    assert len(roads.scan("events")) == 52


def test_whoever_would_have_to_be_answered_forbids_a_load(roads: Any, tmp_path: Path) -> None:
    recipe = recipe_of(roads)
    piece = build_piece(recipe, tmp_path, events("flat", 1, 50))
    subscription = roads.subscribe("p1", user="ann", until_s=60)
    for attempt in (lambda: recipe_of(roads), lambda: adopt(roads, recipe, [piece])):
        with pytest.raises(InvalidRequest, match=r"valid subscriptions.*publish the events"):
            attempt()
    assert not len(roads.scan("events"))
    roads.cancel(subscription.id)
    piece = build_piece(recipe, tmp_path, events("flat", 1, 50))
    assert adopt(roads, recipe, [piece])[1] - adopt(roads, recipe, [])[0] == -1


def test_a_load_is_a_gap_in_the_journal(tmp_path: Path) -> None:
    with tideline.open(tmp_path / "db", clock=ManualClock(NOW)) as db:
        roads = db.channel("roads", journal_s=3600)
        roads.publish("p1", {"n": 1})
        before = [roads.earliest(), roads.position()]
        load(roads, tmp_path, events("flat", 1, 50))
        for position in before:
            with pytest.raises(Unavailable, match="a bulk load came in between"):
                roads.journal("events", after=position)
        after = roads.earliest()
        assert after == roads.position()
        roads.publish("p1", {"n": 2}, id="next")
    with tideline.open(tmp_path / "db", clock=ManualClock(NOW)) as db:
        table, _ = db.channel("roads").journal("events", after=after)
        assert table["id"].to_pylist() == ["next"]
        with pytest.raises(Unavailable, match="a bulk load came in between"):
            db.channel("roads").journal("events", after=before[1])


def test_what_has_expired_is_counted_and_left_out(roads: Any, tmp_path: Path) -> None:
    table = events("flat", 1, 100)
    gone = pa.array([int((NOW - 500) * SECOND)] * 100, pa.timestamp("us", "UTC"))
    over = pa.array([int((NOW - 1) * SECOND)] * 100, pa.timestamp("us", "UTC"))
    old = table.set_column(1, "at", gone).set_column(2, "until", over)
    piece = build_piece(recipe_of(roads), tmp_path, pa.concat_tables([table, old]))
    assert (piece.rows, piece.expired) == (100, 100)
    piece = build_piece(recipe_of(roads), tmp_path, old)
    assert (piece.rows, piece.expired) == (0, 100)
    assert adopt(roads, recipe_of(roads), [piece]) == (1, 0)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda table: table.drop_columns("at"), "the column at is missing"),
        (lambda table: table.append_column("user", table["id"]), "loads events"),
        (lambda table: table.append_column("speed", table["id"]), "loads events"),
        (lambda table: table.set_column(2, "body", pa.array(["{"] * len(table))), "not JSON"),
        (
            lambda table: table.set_column(
                1, "at", pa.array([int((NOW + 3600) * SECOND)] * len(table),
                pa.timestamp("us", "UTC")),
            ),
            "60 s ahead of the clock",
        ),
    ],
)  # fmt: skip
def test_a_row_that_is_no_event_loads_nothing(
    roads: Any, tmp_path: Path, change: Callable[[pa.Table], pa.Table], said: str
) -> None:
    table = change(events("flat", 1, 20).drop_columns("until"))
    with pytest.raises(InvalidRequest, match=said):
        load(roads, tmp_path, table)


def test_a_damaged_piece_is_refused(roads: Any, tmp_path: Path) -> None:
    recipe = recipe_of(roads)
    piece = build_piece(recipe, tmp_path, events("flat", 1, 300))
    path = Path(piece.folder) / piece.components[0]["name"]
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(Corruption):
        adopt(roads, recipe, [piece])
    assert not len(roads.scan("events"))


KILLED = f"""
import os, sys, pickle
from pathlib import Path
import tideline
from tideline.channel.loading import adopt
from tideline.testing import ManualClock
folder, given, step = sys.argv[1:]
recipe, pieces = pickle.loads(Path(given).read_bytes())
roads = tideline.open(folder, clock=ManualClock({NOW!r})).channel("roads")
engine = roads.core.engine
if step == "commit":
    engine.upkeep.commit = lambda: os._exit(9)
else:
    engine.advance = lambda now: os._exit(9)
adopt(roads, recipe, pieces)
"""


@pytest.mark.parametrize("step", ["advance", "commit"])
def test_a_kill_in_the_middle_leaves_nothing(tmp_path: Path, step: str) -> None:
    import pickle

    with tideline.open(tmp_path / "db", clock=ManualClock(NOW)) as db:
        roads = db.channel("roads")
        published(roads, events("flat", 1, 40, 1000))
        recipe = recipe_of(roads)
        piece: Piece = build_piece(recipe, tmp_path, events("flat", 2, 300))
    (tmp_path / "given").write_bytes(pickle.dumps((recipe, [piece])))
    arguments = [str(tmp_path / "db"), str(tmp_path / "given"), step]
    done = subprocess.run([sys.executable, "-c", KILLED, *arguments], env=dict(os.environ))
    assert done.returncode == 9
    with tideline.open(tmp_path / "db", clock=ManualClock(NOW)) as db:
        roads = db.channel("roads")
        assert len(roads.scan("events")) == 40
        roads.core.engine.check()
        load(roads, tmp_path, events("flat", 2, 300))
        assert len(roads.scan("events")) == 340
