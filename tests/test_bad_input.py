"""Bad input: refused with `InvalidRequest` naming the value, and nothing is stored.

"Nothing" is measured: the live counts, the contents, and every byte of the log files.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from contract import START, Opener

import tideline
from tideline import Box, Circle, Flat, Grid, QuadTree, Topics
from tideline.errors import InvalidRequest
from tideline.testing import ManualClock

LAYOUTS = ["dual", "two", "poll"]
QUAD = QuadTree(bounds=(0.0, 0.0, 8.0, 8.0), depth=3)
GRID = Grid(bounds=(0.0, 0.0, 8.0, 8.0), rows=4, cols=4)
NAN, INF = float("nan"), float("inf")
EARLIER = START - timedelta(seconds=1)
DEEP: list[Any] = []
for _ in range(3_000):
    DEEP = [DEEP]
CIRCULAR: list[Any] = []
CIRCULAR.append(CIRCULAR)


# What the message must name, beside each bad value.
IDS = [
    (17, "17"),
    (b"bytes", "bytes"),
    ("", "''"),
    ("x" * 257, "256"),
    ("\u2603" * 86, "256"),  # 86 characters, 258 bytes
    ("\ud800", "ud800"),
]
PLACES = [
    (Flat(), None, "None"),
    (Flat(), 17, "17"),
    (Flat(), "", "''"),
    (Flat(), "k" * 513, "512"),
    (Flat(), "\ud800", "ud800"),
    (Flat(), (1.0, 2.0), "1.0"),
    (Topics(), "", "''"),
    (Topics(), "a//b", "a//b"),
    (Topics(), "/a", "/a"),
    (Topics(), "a/" + "k" * 512, "512"),
    (Topics(), (1.0, 2.0), "1.0"),
    (QUAD, "1.5", "1.5"),
    (QUAD, "1.x", "1.x"),
    (QUAD, "1.2.3.4", "1.2.3.4"),
    (QUAD, (9.0, 1.0), "9.0"),
    (QUAD, (1.0, -0.001), "-0.001"),
    (QUAD, (NAN, 1.0), "nan"),
    (QUAD, (1.0, INF), "inf"),
    (QUAD, (1.0,), "1.0"),
    (QUAD, ("1", "x"), "'1'"),
    (QUAD, None, "None"),
    (GRID, (9.0, 1.0), "9.0"),
    (GRID, (NAN, 1.0), "nan"),
    (GRID, 17, "17"),
]
PUBLISH = [
    ({"body": object()}, "body"),
    ({"body": {1, 2}}, "body"),
    ({"body": {"n": NAN}}, "body"),
    ({"body": {"n": [INF]}}, "body"),
    ({"body": CIRCULAR}, "body"),
    ({"body": DEEP}, "body"),
    ({"body": {"a": DEEP, "b": None}}, "body"),
    ({"body": "\ud800"}, "body"),
    ({"body": "x" * (128 * 1024)}, "131072"),
    ({"related": "x"}, "related='x'"),
    ({"ttl_s": -1}, "ttl_s=-1"),
    ({"ttl_s": NAN}, "ttl_s=nan"),
    ({"ttl_s": INF}, "ttl_s=inf"),
    ({"ttl_s": "5"}, "ttl_s='5'"),
    ({"ttl_s": True}, "ttl_s=True"),
    ({"ttl_s": 5, "until": START + timedelta(5)}, "ttl_s"),
    ({"until": EARLIER}, "until"),
    ({"until": 5.0}, "until=5.0"),
    ({"at": 5.0}, "at=5.0"),
    ({"at": "yesterday"}, "at='yesterday'"),
]
WINDOWS = [
    ({"since_s": NAN}, "since_s=nan"),
    ({"since_s": "5"}, "since_s='5'"),
    ({"until_s": INF}, "until_s=inf"),
    ({"since": 5}, "since=5"),
    ({"until": "tomorrow"}, "until='tomorrow'"),
    ({"since_s": -4, "until_s": -4}, "until"),
    ({"since_s": -4, "until_s": -5}, "until"),
    ({"since_s": 60}, "did you mean -60?"),
    ({"since_s": timedelta(hours=1), "until_s": 7200}, "did you mean -3600?"),
    ({"until_s": timedelta(days=10**8)}, "until_s is too long"),
    ({"since": START, "until": EARLIER}, "until"),
    ({"since_s": 1, "since": START}, "since_s"),
    ({"until_s": 1, "until": START + timedelta(5)}, "until_s"),
]
CONDITIONS = [
    ({"where": "n > 1"}, "where"),
    ({"where": [1]}, "where"),
    ({"where": {"n": {"$nope": 1}}}, "$nope"),
    ({"where": {"$nope": 1}}, "$nope"),
    ({"where": {"n": object()}}, "object"),
]


@pytest.fixture
def unchanged(tmp_path: Path) -> Callable[..., Callable[[], None]]:
    """`verify = unchanged(channel)`; `verify()` after the refused call."""

    def stored(channel: Any) -> Any:
        stats = channel.stats()
        logs = {p: p.read_bytes() for p in sorted(tmp_path.rglob("log-*"))}
        return (stats.events, stats.subscriptions, stats.bytes_log, logs)

    def remember(channel: Any) -> Callable[[], None]:
        before = stored(channel)

        def verify() -> None:
            assert stored(channel) == before

        return verify

    return remember


def refused(fragment: str, call: Callable[[], Any]) -> None:
    with pytest.raises(InvalidRequest) as caught:
        call()
    assert fragment in str(caught.value)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("space", "place", "fragment"), PLACES)
def test_a_place_the_space_does_not_know(
    layout: str, space: Any, place: Any, fragment: str, open_channel: Opener, unchanged: Any
) -> None:
    channel = open_channel(layout, space)
    verify = unchanged(channel)
    refused(fragment, lambda: channel.publish(place, {}))
    refused(fragment, lambda: channel.subscribe(place, user="u"))
    refused(fragment, lambda: channel.find(place))
    verify()


@pytest.mark.parametrize(
    ("make", "fragment"),
    [
        (lambda: Circle((1.0, 1.0), radius_m=-1), "radius_m=-1"),
        (lambda: Circle((1.0, 1.0), radius_m=NAN), "nan"),
        (lambda: Circle((1.0, 1.0), radius_m=INF), "inf"),
        (lambda: Circle((NAN, 1.0), radius_m=5), "nan"),
        (lambda: Circle((1.0, 91.0), radius_m=5), "91"),
        (lambda: Box(2.0, 0.0, 1.0, 1.0), "west=2"),
        (lambda: Box(0.0, 2.0, 1.0, 1.0), "south=2"),
        (lambda: Box(0.0, NAN, 1.0, 1.0), "nan"),
    ],
)
def test_a_shape_that_is_none(make: Callable[[], Any], fragment: str) -> None:
    refused(fragment, make)


@pytest.mark.parametrize("shape", [Circle((1.0, 1.0), radius_m=5), Box(0.0, 0.0, 1.0, 1.0)])
def test_a_shape_in_a_space_without_coordinates(
    shape: Any, open_channel: Opener, unchanged: Any
) -> None:
    for name, space in (("flat", Flat()), ("topics", Topics())):
        channel = open_channel(space=space, name=name)
        verify = unchanged(channel)
        refused(type(shape).__name__, lambda c=channel: c.publish(shape, {}))
        refused(type(shape).__name__, lambda c=channel: c.subscribe(shape, user="u"))
        verify()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("change", "fragment"), PUBLISH)
def test_publish_refuses(
    layout: str, change: dict[str, Any], fragment: str, open_channel: Opener, unchanged: Any
) -> None:
    channel = open_channel(layout)
    channel.publish("a", {}, id="kept")
    verify = unchanged(channel)
    refused(fragment, lambda: channel.publish(**({"place": "a", "body": {}} | change)))
    verify()
    assert [e.id for e in channel.find("a")] == ["kept"]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("change", "fragment"), WINDOWS + CONDITIONS)
def test_subscribe_and_find_refuse(
    layout: str, change: dict[str, Any], fragment: str, open_channel: Opener, unchanged: Any
) -> None:
    channel = open_channel(layout)
    verify = unchanged(channel)
    refused(fragment, lambda: channel.subscribe("a", user="u", **change))
    refused(fragment, lambda: channel.find("a", **change))
    verify()


@pytest.mark.parametrize(("value", "fragment"), IDS)
def test_an_id_or_user_of_the_wrong_kind(
    value: Any, fragment: str, open_channel: Opener, unchanged: Any
) -> None:
    channel = open_channel()
    verify = unchanged(channel)
    refused(fragment, lambda: channel.publish("a", {}, id=value))
    refused(fragment, lambda: channel.subscribe("a", user="u", id=value))
    refused(fragment, lambda: channel.subscribe("a", user=value))
    refused(fragment, lambda: channel.cancel(value))
    refused(fragment, lambda: channel.resume(value))
    verify()


def test_the_longest_allowed_values_are_kept_whole(open_channel: Opener) -> None:
    channel = open_channel()
    key, name, body = "k" * 512, "\u2603" * 85 + "x", "x" * (128 * 1024 - 2)  # 2 quotes
    channel.publish(key, body, id=name)
    channel.subscribe(key, user=name, id=name)
    channel = open_channel()
    [event], [info] = channel.find(key), channel.subscriptions(user=name)
    assert (event.id, event.place, event.body) == (name, key, body)
    assert (info.id, info.user, info.place) == (name, name, key)


@pytest.mark.parametrize("limit", [-1, 1.5, "2", True])
def test_find_refuses_a_limit_that_is_no_count(limit: Any, open_channel: Opener) -> None:
    channel = open_channel()
    refused(f"limit={limit!r}", lambda: channel.find("a", limit=limit))


@pytest.mark.parametrize("table", [None, [{"op": "publish"}], {"op": ["publish"]}])
def test_apply_refuses_what_is_no_table(table: Any, open_channel: Opener, unchanged: Any) -> None:
    channel = open_channel()
    verify = unchanged(channel)
    refused("Table", lambda: channel.apply(table))
    verify()


@pytest.mark.parametrize(
    ("columns", "fragment"),
    [
        ({"id": ["x"]}, "op"),
        ({"op": ["publish"], "id": [1.5]}, "id"),
        ({"op": ["publish"], "id": ["x"], "at": [5.0]}, "at"),
        ({"op": [1], "id": ["x"]}, "op"),
    ],
)
def test_apply_refuses_a_table_with_wrong_columns(
    columns: dict[str, list[Any]], fragment: str, open_channel: Opener, unchanged: Any
) -> None:
    channel = open_channel()
    verify = unchanged(channel)
    refused(fragment, lambda: channel.apply(pa.table(columns)))
    verify()


@pytest.mark.parametrize(
    ("change", "fragment"),
    [
        ({"name": ""}, "name"),
        ({"name": 17}, "17"),
        ({"name": "x" * 257}, "name"),
        ({"layout": "triple"}, "triple"),
        ({"space": "flat"}, "flat"),
        ({"layout": "poll", "poll_s": 0}, "poll_s=0"),
        ({"layout": "poll", "poll_s": NAN}, "poll_s=nan"),
    ],
)
def test_channel_refuses(change: dict[str, Any], fragment: str, open_database: Opener) -> None:
    db = open_database()
    refused(fragment, lambda: db.channel(**({"name": "roads"} | change)))
    assert db.channels() == []
    assert open_database().channels() == []


@pytest.mark.parametrize(
    ("change", "fragment"),
    [
        ({"memory_mb": 0}, "memory_mb=0"),
        ({"memory_mb": -1}, "memory_mb=-1"),
        ({"memory_mb": NAN}, "memory_mb=nan"),
        ({"memory_mb": "much"}, "memory_mb='much'"),
        ({"durability": "paper"}, "durability='paper'"),
        ({"durability": None}, "durability=None"),
        ({"memory_mb": 1 << 21}, "1048576"),
        ({"clock": 5}, "clock=5"),
        ({"path": 17}, "17"),
        ({"path": ""}, "path"),
    ],
)
def test_open_refuses(
    change: dict[str, Any], fragment: str, tmp_path: Path, clock: ManualClock
) -> None:
    folder = tmp_path / "data"
    refused(fragment, lambda: tideline.open(**({"path": folder, "clock": clock} | change)))
    assert not folder.exists()


@pytest.mark.parametrize(
    "address",
    ["http://localhost:8080", "https://db.example/x", "ws://h", "HTTP://h", "http:", "sqlite:a.db",
     "sqlite:///a.db", Path("http://localhost:8080")],
)  # fmt: skip
def test_open_makes_no_folder_of_an_address(
    address: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    refused("tideline.connect", lambda: tideline.open(address))
    assert list(tmp_path.iterdir()) == []


def test_a_folder_with_a_colon_in_its_name_can_be_opened(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tideline.open("./run:7", clock=clock).close()
    tideline.open("run:7", clock=clock).close()  # it is there
    tideline.open(tmp_path / "x:y", clock=clock).close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run:7", "x:y"]


def test_open_refuses_a_file_and_leaves_it_as_it_is(tmp_path: Path, clock: ManualClock) -> None:
    path = tmp_path / "letter.txt"
    path.write_text("dear tide")
    refused("letter.txt", lambda: tideline.open(path, clock=clock))
    assert path.read_text() == "dear tide"
    assert [p.name for p in tmp_path.iterdir()] == ["letter.txt"]


@pytest.mark.parametrize(
    ("make", "fragment"),
    [
        (lambda: QuadTree(bounds=(8.0, 0.0, 0.0, 8.0), depth=3), "bounds"),
        (lambda: QuadTree(bounds=(0.0, NAN, 8.0, 8.0), depth=3), "nan"),
        (lambda: QuadTree(bounds=(0.0, 0.0, 8.0), depth=3), "bounds"),
        (lambda: QuadTree(bounds=(0.0, 0.0, 8.0, 8.0), depth=0), "depth=0"),
        (lambda: QuadTree(bounds=(0.0, 0.0, 8.0, 8.0), depth=1.5), "depth=1.5"),
        (lambda: Grid(bounds=(0.0, 0.0, 8.0, 8.0), rows=0, cols=4), "rows=0"),
        (lambda: Grid(bounds=(0.0, 0.0, 8.0, 8.0), rows=4, cols=-1), "cols=-1"),
        (lambda: Grid(bounds=(0.0, 0.0, 0.0, 8.0), rows=4, cols=4), "bounds"),
    ],
)
def test_a_space_with_wrong_bounds(make: Callable[[], Any], fragment: str) -> None:
    refused(fragment, make)
