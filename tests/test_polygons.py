"""Polygons in a channel: every layout, over the wire, sealed, merged, killed.

Which shapes a polygon meets: tests/space/test_polygon.py. Polygons among all other places, with
kills: tests/test_channel_machine.py and test_state_machine.py.
"""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from contract import ASKING, LAYOUTS, Opener, ids, told
from killed import copy_as_killed

import tideline
from tideline import Box, Circle, Conflict, InvalidRequest, MultiPolygon, Polygon, QuadTree, Topics
from tideline.testing import ManualClock

QUAD = QuadTree(bounds=(0.0, 0.0, 8.0, 8.0), depth=4)
CORNER = Polygon([(0, 0), (4, 0), (0, 4)])
RING = Polygon([(1, 1), (7, 1), (7, 7), (1, 7)], [[(3, 3), (5, 3), (5, 5), (3, 5)]])
EAST = Polygon([(7, 0), (8, 0), (8, 1)])
ISLANDS = MultiPolygon([Polygon([(0, 7.25), (2, 7.25), (0, 8)]), EAST])
MANY = Polygon([(n / 200, (n % 2) / 8) for n in range(999)] + [(5, 8)])


@pytest.mark.parametrize("layout", ASKING)
@pytest.mark.parametrize("between", ["nothing", "seal", "reopen"])
def test_events_at_polygons_are_found_by_their_exact_shapes(
    layout: str, between: str, open_channel: Opener
) -> None:
    channel = open_channel(layout, QUAD)
    events = {"corner": CORNER, "ring": RING, "islands": ISLANDS, "many": MANY, "point": (2.0, 2.0)}
    for id, place in events.items():
        channel.publish(place, {"n": 1}, id=id, ttl_s=600)
    if between == "seal":
        channel.seal()
        channel.publish((2.0, 2.0), {}, id="late", ttl_s=600)
        channel.seal()
        channel.maintain()
        channel.retract("late")
    elif between == "reopen":
        channel = open_channel(layout, QUAD)
    for place, found in [
        ((2.0, 2.0), ["corner", "many", "point", "ring"]),  # on an edge of the corner
        ((4.0, 4.0), ["many"]),  # in the hole
        ((5.0, 4.0), ["ring"]),  # on its edge
        (Box(3.25, 3.25, 3.5, 4.5), ["many"]),
        (Box(0.0, 7.0, 0.5, 7.25), ["islands"]),
        (Circle((7.9, 0.1), 1000), ["islands"]),
        (Circle((4.0, 4.0), 120_000), ["many", "ring"]),
        (Polygon([(3.5, 3.5), (4.5, 3.5), (4, 4.5)]), ["many"]),
        (CORNER, ["corner", "many", "point", "ring"]),
        ("4.4.4.4", ["islands"]),
    ]:
        assert sorted(ids(channel.find(place))) == found, place
        assert (
            sorted(ids(channel.subscribe(place, user="u", since_s=-60, until_s=60).past)) == found
        )
    for id, place in events.items():
        assert channel.get(id).place == place
    stored = {row["id"]: row for row in channel.scan("events", place=CORNER).to_pylist()}
    assert sorted(stored) == ["corner", "many", "point", "ring"]
    assert json.loads(stored["ring"]["place"]) == RING.__geo_interface__
    assert stored["ring"]["west"] is None
    assert stored["point"]["place"] is None


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("between", ["nothing", "seal", "reopen"])
def test_subscriptions_to_polygons_are_told_and_moved_and_prolonged(
    layout: str, between: str, open_channel: Opener
) -> None:
    channel = open_channel(layout, QUAD)
    ring = channel.subscribe(RING, user="u", id="ring", where={"n": {"$gt": 1}}, until_s=60)
    channel.subscribe(CORNER, user="u", id="corner", until_s=600)
    channel.prolong("ring", until_s=600)
    if between == "seal":
        channel.seal()
        channel.maintain()
    elif between == "reopen":
        channel = open_channel(layout, QUAD)
        ring = channel.resume("ring")
    assert told(channel.publish((2.0, 2.0), {"n": 2}, id="a", ttl_s=60)) == ["corner", "ring"]
    assert told(channel.publish((2.0, 2.0), {"n": 1}, ttl_s=60)) == ["corner"]
    assert told(channel.publish((4.0, 4.0), {"n": 2}, id="hole", ttl_s=60)) == []
    assert told(channel.publish(ISLANDS, {"n": 2}, id="islands", ttl_s=60)) == []
    assert channel.subscription("ring").place == RING
    assert ids(ring.take()) == ["a"]
    channel.move("ring", MANY)
    assert ids(ring.take()) == ["hole"]  # "a" it had
    assert channel.subscription("ring").place == MANY
    ring.move(ISLANDS)
    assert ids(ring.take()) == ["islands"]
    rows = {row["id"]: row["place"] for row in channel.scan("subscriptions").to_pylist()}
    assert json.loads(rows["ring"]) == ISLANDS.__geo_interface__
    assert ids(channel.resume("ring").past) == ["a", "hole", "islands"]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_retract_replace_unseen_and_related_at_polygons(layout: str, open_channel: Opener) -> None:
    channel = open_channel(layout, QUAD)
    channel.publish(RING, {"n": 1}, id="fire", ttl_s=600)
    first = channel.subscribe(RING, user="u", since_s=-60, until_s=600, retractions=True)
    assert ids(first.past) == ["fire"]
    assert channel.subscribe((2.0, 2.0), user="u", since_s=-60, unseen=True).past == []
    channel.publish(ISLANDS, {"n": 2}, id="fire", ttl_s=600, replace=True)
    assert [(event.id, event.retracted) for event in first.take()] == [("fire", True)]
    assert channel.find(RING) == []
    again = channel.publish(ISLANDS, {"n": 2}, id="more", ttl_s=600, related=True)
    assert ids(again.related) == ["fire"]
    # The same box around it, another polygon: another place.
    other = MultiPolygon([Polygon([(0, 7.25), (1, 7.25), (0, 8)]), EAST])
    assert channel.publish(other, {"n": 2}, id="other", ttl_s=600, related=True).related == []
    assert channel.publish(other, {"n": 2}, id="other", ttl_s=600).duplicate
    with pytest.raises(Conflict):
        channel.publish(ISLANDS, {"n": 2}, id="other", ttl_s=600)
    channel.retract("other")
    assert sorted(ids(channel.find((7.9, 0.1)))) == ["fire", "more"]


@pytest.mark.parametrize("layout", ["dual", "two", "http"])
def test_a_table_of_operations_names_polygons_as_geojson(
    layout: str, open_channel: Opener, clock: ManualClock
) -> None:
    channel = open_channel(layout, QUAD)
    now = pa.scalar(1_000_000_000, pa.timestamp("us", "UTC"))
    texts = [json.dumps(p.__geo_interface__) for p in (RING, CORNER, MANY)]
    table = pa.table({
        "op": ["subscribe", "subscribe", "publish", "publish", "publish"],
        "id": ["ring", "corner", "many", "point", "bad"],
        "place": [texts[0], texts[1], texts[2], None, '{"type": "Polygon", "coordinates": 1}'],
        "lon": [None, None, None, 4.0, None], "lat": [None, None, None, 3.0, None],
        "user": ["u", "v", None, None, None], "at": pa.array([now.as_py()] * 5, now.type),
        "body": [None, None, '{"n":1}', '{"n":2}', "{}"],
    })  # fmt: skip
    applied = channel.apply(table)
    assert [row["row"] for row in applied.rejected.to_pylist()] == [4]
    found = [(row["subscription"], row["event"]) for row in applied.answers.to_pylist()]
    assert sorted(found) == [("corner", "many"), ("ring", "many"), ("ring", "point")]
    assert channel.get("many").place == MANY
    # What a scan gives, a table takes.
    scanned = channel.scan("events").select(["id", "place", "lon", "lat", "at", "body"])
    ops = pa.array(["publish"] * len(scanned))
    again = channel.apply(scanned.append_column("op", ops))
    assert again.rejected.num_rows == again.answers.num_rows == 0


def test_a_killed_channel_has_its_polygons(tmp_path: Path, clock: ManualClock) -> None:
    with tideline.open(tmp_path / "data", clock=clock) as db:
        channel = db.channel("c", space=QUAD)
        channel.subscribe(RING, user="u", id="sealed")
        channel.publish(MANY, {"n": 1}, id="sealed", ttl_s=600)
        channel.seal()
        channel.subscribe(ISLANDS, user="u", id="logged")
        channel.publish(CORNER, {"n": 1}, id="logged", ttl_s=600)
        copy_as_killed(channel, tmp_path / "data", tmp_path / "killed")
    with tideline.open(tmp_path / "killed", clock=clock) as db:
        channel = db.channel("c")
        places = [channel.get(id).place for id in ("sealed", "logged")]
        places += [channel.subscription(id).place for id in ("sealed", "logged")]
        assert places == [MANY, CORNER, RING, ISLANDS]
        assert told(channel.publish((1.0, 1.0), {}, ttl_s=60)) == ["sealed"]
        assert told(channel.publish((0.5, 7.5), {}, ttl_s=60)) == ["logged"]
        db.check()


@pytest.mark.parametrize("layout", ["dual", "http"])
def test_what_is_no_place_here_is_refused(layout: str, open_channel: Opener) -> None:
    channel = open_channel(layout, QUAD)
    for place, reason in [
        ({"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [0, 1]]]}, "first again"),
        ({"type": "LineString", "coordinates": [[0, 0], [1, 0]]}, "a Point, a Polygon or"),
        (Polygon([(9, 9), (10, 9), (9, 10)]), "must meet the bounds"),
    ]:
        with pytest.raises(InvalidRequest, match=reason):
            channel.publish(place, {})
    with pytest.raises(InvalidRequest, match="must be a path"):
        open_channel(layout, Topics(), name="topics").publish(CORNER, {})
