"""Folders that earlier releases wrote open with the code of today, and everything in them is found.

tests/stored/VERSION.tar.gz has what `tests/stored/write_VERSION.py` wrote with the code of that
release: `closed`, a database that was closed, and `killed`, the same as it stood on disk while it
was open. docs/reference/stored-formats.md lists the formats. What is unknown is refused.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tideline
from tideline import Box, Circle, Conflict, Corruption, Polygon, QuadTree, Topics
from tideline.index.oldhashes import hash_of_id
from tideline.kernels.text import hash_id
from tideline.lsm.manifest import Manifest
from tideline.testing import ManualClock
from tideline.where import parse

STORED = Path(__file__).resolve().parent / "stored"
STATE = Box(-79, 40.5, -72, 45)
CITY = Box(-74.1, 40.6, -73.8, 40.9)
SPOT = (-73.98, 40.75)


def unpacked(version: str, which: str, folder: Path) -> Path:
    with tarfile.open(STORED / f"{version}.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return folder / which


@pytest.fixture(params=["closed", "killed"])
def first_release(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tideline.Database]:
    """The folder of 0.1.0, opened ten seconds after it was written."""
    folder = unpacked("0.1.0", request.param, tmp_path)
    with tideline.open(folder, clock=ManualClock(1_700_000_020)) as db:
        yield db


def test_channels_of_the_first_release_keep_their_settings(
    first_release: tideline.Database,
) -> None:
    db = first_release
    assert db.channels() == ["fleet", "news", "polls", "roads", "sensors"]
    assert db.collections() == []
    bounds = (-79.8, 40.4, -71.8, 45.1)
    assert db.channel("roads").space == QuadTree(bounds=bounds, depth=9)
    assert (db.channel("news").space, db.channel("news").layout) == (Topics(), "two")
    assert db.channel("polls").layout == "poll"
    assert db.check().components == 5


def test_events_of_the_first_release_are_found(first_release: tideline.Database) -> None:
    db = first_release
    roads = db.channel("roads")
    wanted = ["e0", "e1", "e2", "e3", "e4", "e5", "late"]
    assert sorted(event.id for event in roads.find(STATE)) == wanted
    for number in range(6):  # by id, too: those of 0.1.0 were hashed in another way
        found = roads.get(f"e{number}")
        assert found is not None
        assert found.body == {"kind": "accident", "lanes": number % 3}
    assert roads.get("gone") is None
    assert [event.id for event in db.channel("news").find("sports")] == ["goal"]
    assert [event.id for event in db.channel("news").find("weather")] == ["rain"]
    assert [event.body for event in db.channel("sensors").find("sensor-7")] == [{"c": 21.5}]
    around = Circle((-78.88, 42.9), radius_m=5000)
    assert [event.id for event in db.channel("fleet").find(around)] == ["p1"]
    assert [event.id for event in db.channel("polls").find("a")] == ["n1"]


def test_subscriptions_of_the_first_release_are_told(first_release: tideline.Database) -> None:
    roads = first_release.channel("roads")
    assert sorted(sub.id for sub in roads.subscriptions()) == [
        "cell", "circle", "lanes", "unseen", "wide",
    ]  # fmt: skip
    told = roads.publish(SPOT, {"lanes": 2}, id="new", ttl_s=60).subscriptions
    assert sorted((who.id, who.user) for who in told) == [
        ("circle", "ann"), ("lanes", "cem"), ("unseen", "bob"), ("wide", "fay"),
    ]  # fmt: skip
    told = roads.publish(SPOT, {"lanes": 1}, id="newer", ttl_s=60).subscriptions
    assert "lanes" not in [who.id for who in told]
    assert [event.id for event in roads.resume("circle").past][-2:] == ["new", "newer"]
    after_e4 = roads.get("e4").token  # as 0.1.0 gave it
    assert [event.id for event in roads.resume("lanes", after=after_e4).past] == [
        "e5",
        "late",
        "new",
    ]
    news = first_release.channel("news").publish("sports/tennis", {}, ttl_s=60)
    assert [who.id for who in news.subscriptions] == ["sports"]


def test_ids_of_the_first_release_stay_taken(first_release: tideline.Database) -> None:
    roads = first_release.channel("roads")
    with pytest.raises(Conflict):
        roads.publish(SPOT, {"kind": "other"}, id="e0", ttl_s=5)
    with pytest.raises(Conflict):
        roads.subscribe(SPOT, user="zoe", id="circle")
    roads.cancel("circle")
    roads.retract("e0")
    assert roads.get("e0") is None
    assert "circle" not in [sub.id for sub in roads.subscriptions()]


def test_a_folder_of_the_first_release_is_one_of_today_afterwards(tmp_path: Path) -> None:
    """New kinds of rows and merged components beside the old ones, and opened once more."""
    folder = unpacked("0.1.0", "killed", tmp_path)
    clock = ManualClock(1_700_000_020)
    with tideline.open(folder, clock=clock) as db:
        roads = db.channel("roads")
        roads.publish(
            Polygon([(-74, 40.7), (-73.9, 40.7), (-73.9, 40.8)]), {}, id="area", ttl_s=900
        )
        roads.cancel("circle")
        roads.seal()
        roads.maintain()
        orders = db.collection("orders", key="id", indexes={"shop": "lazy"})
        orders.put({"id": 1, "shop": 7})
    with tideline.open(folder, clock=clock) as db:
        roads = db.channel("roads")
        found = ["area", "e0", "e1", "e2", "e3", "e4", "e5", "late"]
        assert sorted(event.id for event in roads.find(CITY)) == found
        assert all(roads.get(name) is not None for name in found)
        assert [sub.id for sub in roads.subscriptions("ann")] == []
        assert db.collection("orders").lookup("shop", 7) == [{"id": 1, "shop": 7}]
        assert db.check().components >= 5


# ---- 0.2.0: documents, indexes, windows -------------------------------------------------------


@pytest.fixture(params=["closed", "killed"])
def second_release(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tideline.Database]:
    """The folder of 0.2.0, opened ten seconds after it was written."""
    folder = unpacked("0.2.0", request.param, tmp_path)
    with tideline.open(folder, clock=ManualClock(1_700_000_060)) as db:
        yield db


def test_channels_of_the_second_release_are_whole(second_release: tideline.Database) -> None:
    roads = second_release.channel("roads")
    assert sorted(event.id for event in roads.find(STATE)) == ["e1", "e2", "e3"]
    replaced = roads.get("e1")
    assert replaced is not None
    assert replaced.body == {"lanes": 9}
    assert roads.get("retracted") is None
    park = roads.get("e2")
    assert park is not None
    assert isinstance(park.place, Polygon)
    assert roads.subscription("circle").place == Circle((-73.0, 42.0), radius_m=5000)
    told = roads.publish((-73.965, 40.775), {"lanes": 2}, id="new", ttl_s=60).subscriptions
    assert sorted(who.id for who in told) == ["park", "unseen"]
    # Who was told what is stored: the same user is not told again.
    near = Circle((-73.97, 40.76), radius_m=2000)
    assert roads.subscribe(near, user="bob", since_s=-100, unseen=True).past == []
    news = second_release.channel("news")
    assert [event.id for event in news.find("sports")] == ["goal"]


def test_documents_of_the_second_release_are_found_by_every_index(
    second_release: tideline.Database,
) -> None:
    orders = second_release.collection("orders")
    assert orders.count() == 40  # 0 to 38, and 40: one was deleted, one has expired
    assert orders.get(39) is None
    assert orders.get(41) is None
    everything = orders.find()
    box = {"$geoWithin": {"$box": [[-0.05, 46.9], [1.05, 47.1]]}}
    for where in (
        {"shop": 1},
        {"total": {"$gte": 100, "$lt": 200}},
        {"state": "sent"},
        {"time": {"$gt": 30}},
        {"code": "c7"},
        {"at": box},
        {"note": {"$words": "tire"}},
        {"name": {"$contains": "sushi"}},
        {"at": box, "name": {"$fuzzy": {"words": ["sutishi"], "similarity": 0.8}}},
        {"shop": 2, "total": {"$gt": 300}},
    ):
        found = sorted(each["id"] for each in orders.find(where))
        assert found == sorted(each["id"] for each in everything if matches(where, each)), where
        assert found
    assert [each["id"] for each in orders.lookup("shop", 1, k=2)] == [40, 4]  # by write
    assert [near.document["id"] for near in orders.nearest((0.31, 47.0), limit=2)] == [3, 4]
    with pytest.raises(Conflict):
        orders.insert({"id": 99, "code": "c7"})
    assert len(orders.find({"name": {"$contains": "lilas"}})) == 10
    texts = second_release.collection("texts")
    assert texts.get("Sea Line") == {"name": "Sea Line", "size": 8}


def matches(where: dict[str, Any], document: dict[str, Any]) -> bool:
    """Whether a document meets a condition, by the predicate on one document."""
    return bool(parse(where).matches(document))


def test_writes_of_the_second_release_can_be_followed(second_release: tideline.Database) -> None:
    orders = second_release.collection("orders")
    with orders.changes(after=0, before=True) as changes:
        read = changes.take()
    assert [change.seq for change in read[:40]] == list(range(1, 41))
    [deleted] = [each for each in read if each.after is None and each.key == 39]
    assert deleted.before is not None
    assert deleted.before["code"] == "c39"


def test_windows_of_the_second_release_are_whole(second_release: tideline.Database) -> None:
    cars = second_release.window("cars")
    assert cars.range((87,), map=["count()", "sum(speed)"]) == {"count()": 5, "sum(speed)": 260}
    assert cars.get((90, 9)) == {"speed": 70}
    names = second_release.window("names")
    assert names.range(("a",), map="mean(speed)") == 2.0


# ---- what is the same for all ------------------------------------------------------------------


@pytest.mark.parametrize("text", [b"", b"e1", b"12345678", b"123456789", bytes(range(256))])
def test_ids_are_hashed_as_the_kernel_does(text: bytes) -> None:
    data = np.frombuffer(text + b"x", np.uint8)
    for seed in (0, 7, -1, 1 << 62, -(1 << 63)):
        assert hash_of_id(text, seed) == hash_id(data, 0, len(text), seed)


def test_a_format_of_a_later_release_is_refused(tmp_path: Path) -> None:
    folder = unpacked("0.1.0", "closed", tmp_path)
    manifest = Manifest(folder / "channels" / "0001" / "MANIFEST")
    document = manifest.load()
    assert document is not None
    assert document["format"] == 1
    manifest.save({**document, "format": 999})
    with pytest.raises(Corruption, match=r"a later release.*format=999"):
        tideline.open(folder)
