"""What callers may give: spans, places as others write them, datetimes in bodies."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tideline
from tideline import Box, Circle, Flat, QuadTree
from tideline.channel.bodies import body_json
from tideline.clock import SECOND, span_s, span_us
from tideline.errors import InvalidRequest
from tideline.space.geojson import from_mapping

LAYOUTS = ["dual", "http"]
Opener = Callable[..., Any]


@given(st.timedeltas(timedelta(days=-1000), timedelta(days=1000)))
def test_a_timedelta_is_its_seconds(span: timedelta) -> None:
    assert span_us(span, "ttl_s") == span // timedelta(microseconds=1)
    assert round(span_s(span, "ttl_s") * SECOND) == span_us(span, "ttl_s")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_timedelta_goes_wherever_seconds_go(layout: str, open_database: Opener) -> None:
    minute = timedelta(minutes=1)
    with open_database(over=layout) as db:
        channel = db.channel("c", poll_s=minute, journal_s=minute, max_ahead_s=minute)
        assert channel.max_ahead_s == 60
        told = channel.publish("a", {}, id="e", ttl_s=minute)
        assert told.event.until - told.event.at == minute
        sub = channel.subscribe("a", user="u", id="s", since_s=-minute, until_s=minute)
        assert [event.id for event in sub.past] == ["e"]
        assert sub.until - sub.since == 2 * minute
        info = channel.prolong("s", until_s=2 * minute)
        assert info.until - info.since == 3 * minute
        assert len(channel.find("a", since_s=-minute, until_s=minute)) == 1
        assert sub.take(timeout_s=timedelta(0)) == []


_CORNERS = [[0, 0], [2, 0], [2, 1], [0, 1], [0, 0]]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ({"type": "Point", "coordinates": [1, 0.5]}, (1.0, 0.5)),
        ({"type": "Point", "coordinates": (1, 0.5, 120.0)}, (1.0, 0.5)),
        ({"type": "Feature", "properties": {}, "geometry":
            {"type": "Point", "coordinates": [1, 0.5]}}, (1.0, 0.5)),
        ({"lon": 1, "lat": 0.5}, (1.0, 0.5)),
        ({"circle": [1, 0.5, 90]}, Circle((1, 0.5), 90)),
        ({"box": [0, 0, 2, 1]}, Box(0, 0, 2, 1)),
        ({"type": "Polygon", "coordinates": [_CORNERS]}, Box(0, 0, 2, 1)),
        ({"type": "Polygon", "coordinates": [_CORNERS[::-1]]}, Box(0, 0, 2, 1)),
    ],
)  # fmt: skip
def test_a_place_may_be_geojson(layout: str, said: Any, meant: Any, open_channel: Opener) -> None:
    channel = open_channel(layout, QuadTree((-3, -3, 3, 3)))
    assert channel.publish(said, {}, id="e", ttl_s=60).event.place == meant
    sub = channel.subscribe(said, user="u", id="s", since_s=-60, until_s=60)
    assert [event.place for event in sub.past] == [meant]
    assert sub.place == channel.subscription("s").place == meant
    assert len(channel.find(said)) == 1
    assert channel.scan("events", place=said).num_rows == 1


def test_shapes_of_others_say_what_they_are() -> None:
    shapely = pytest.importorskip("shapely")
    space = QuadTree()
    assert space.encode(shapely.Point(1, 2)) == space.encode((1.0, 2.0))
    assert space.encode(shapely.box(0, 0, 2, 1)) == space.encode(Box(0, 0, 2, 1))


@pytest.mark.parametrize(
    ("said", "fragment"),
    [
        ({"type": "Polygon", "coordinates": [[[0, 0], [2, 0], [1, 1]]]}, "the first again"),
        ({"type": "Polygon", "coordinates": "x"}, "rings"),
        ({"type": "Polygon", "coordinates": []}, "rings"),
        ({"type": "Polygon", "coordinates": [7]}, "corners"),
        ({"type": "Polygon"}, "rings"),
        ({"type": "Polygon", "coordinates": [[[0, "a"]]]}, "number"),
        ({"type": "point", "coordinates": [1, 2]}, "did you mean Point?"),
        ({"type": "Point"}, "coordinates [lon, lat]"),
        ({"type": "Point", "coordinates": [1]}, "coordinates [lon, lat]"),
        ({"type": "Point", "coordinates": [True, 2]}, "number"),
        ({"type": "LineString", "coordinates": _CORNERS}, "a Point, a Polygon or"),
        ({"type": "Feature", "geometry": {"type": "Feature", "geometry": {}}}, "a Point, a"),
        ({"type": []}, "a Point, a"),
        ({"lng": 1, "lat": 2}, "did you mean 'lon'?"),
        ({"longitude": 1, "latitude": 2}, "did you mean"),
        ({"lon": 1}, "a place must be"),
        ({}, "a place must be"),
        ({"lon": None, "lat": 1}, "lon must be a number"),
    ],
)
def test_what_is_no_place_says_what_was_meant(said: Any, fragment: str) -> None:
    for read in (from_mapping, QuadTree().encode):
        with pytest.raises(InvalidRequest) as caught:
            read(said)
        assert fragment in str(caught.value)
    with pytest.raises(InvalidRequest):
        Flat().encode(said)


def test_a_point_the_wrong_way_round_is_noticed() -> None:
    space = QuadTree((-80, 40, -72, 48))
    with pytest.raises(InvalidRequest, match=r"did you mean \(-73.9, 40.7\)\?"):
        space.encode((40.7, -73.9))


@pytest.mark.parametrize(
    ("bounds", "depth"),
    [((-180, -90, 180, 90), 16), ((0, 0, 10, 10), 10), ((0, 0, 0.01, 0.01), 1), ((0, 0, 1, 9), 10)],
)
def test_a_quad_tree_finds_its_depth(bounds: Any, depth: int) -> None:
    assert QuadTree(bounds).depth == depth
    assert QuadTree(bounds) == QuadTree(bounds, depth)


def test_the_world_is_a_quad_tree() -> None:
    assert QuadTree() == QuadTree.world() == QuadTree((-180, -90, 180, 90), 16)
    assert QuadTree.world(depth=4).depth == 4
    with pytest.raises(InvalidRequest, match="depth"):
        QuadTree.world(depth=0)
    with tideline.open(":memory:") as db:
        db.channel("c", space=QuadTree()).publish((180, 90), {}, ttl_s=60)
        assert len(db.channel("c").find(Circle((0, 90), 1000))) == 1


@given(st.datetimes(timezones=st.sampled_from([None, UTC, timezone(timedelta(hours=5.5))]),
                    min_value=datetime(2, 1, 1)))  # fmt: skip
def test_a_datetime_in_a_body_is_its_text_in_utc(moment: datetime) -> None:
    text = json.loads(body_json({"a": [moment]}))["a"][0]
    back = datetime.fromisoformat(text)
    assert back == (moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment)
    assert len(text) == 27
    assert text.endswith("Z")


@given(st.lists(st.datetimes(), min_size=2, max_size=2))
def test_texts_of_times_order_as_the_times_do(pair: list[datetime]) -> None:
    texts = [json.loads(body_json(moment)) for moment in pair]
    assert (pair[0] < pair[1]) == (texts[0] < texts[1])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_condition_compares_with_a_datetime(layout: str, open_channel: Opener) -> None:
    channel = open_channel(layout)
    for n in (1, 3):
        body = {"due": datetime(2026, 1, n), "day": date(2026, 1, n), "of": UUID(int=n)}
        channel.publish("a", body, id=f"e{n}", ttl_s=60)
    where = {"due": {"$gt": datetime(2026, 1, 2, tzinfo=UTC)}}
    assert [event.id for event in channel.find("a", where=where)] == ["e3"]
    assert channel.scan("events", where=where).num_rows == 1
    sub = channel.subscribe("a", user="u", since_s=-60, where={"of": UUID(int=1)})
    [found] = sub.past
    assert found.body == {
        "due": "2026-01-01T00:00:00.000000Z", "day": "2026-01-01",
        "of": "00000000-0000-0000-0000-000000000001",
    }  # fmt: skip
    assert sub.where == {"of": "00000000-0000-0000-0000-000000000001"}


@pytest.mark.parametrize(
    ("body", "fragment"),
    [
        ({"price": Decimal("9.90")}, "float(x)"),
        ([timedelta(seconds=1)], "total_seconds"),
        ({"a": datetime.max.replace(tzinfo=timezone(timedelta(hours=-1)))}, "out of range"),
        ({"a": datetime(2026, 1, 1), "b": b"x"}, "bytes"),
        ({datetime(2026, 1, 1): 1}, "not JSON"),
        ({"a": {1, 2}}, "set"),
    ],
)
def test_what_a_body_does_not_take(body: Any, fragment: str, open_channel: Opener) -> None:
    with pytest.raises(InvalidRequest) as caught:
        open_channel("dual").publish("a", body)
    assert fragment in str(caught.value)
