"""What the library refuses the client refuses, with the same words, and nothing is stored.

The lists are those of tests/test_bad_input.py; one server takes all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from test_bad_input import CONDITIONS, IDS, PLACES, PUBLISH, WINDOWS, refused

import tideline
from tideline.errors import Conflict, NotFound
from tideline.server import running
from tideline.testing import ManualClock


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, Any]]:
    """The stored database, and a client of it."""
    folder: Path = tmp_path_factory.mktemp("refusals")
    with (
        tideline.open(folder, clock=ManualClock(1_000)) as db,
        running(db) as url,
        tideline.connect(url) as remote,
    ):
        yield db, remote


@pytest.fixture
def channel(pair: tuple[Any, Any]) -> Iterator[Any]:
    """A channel that must have nothing in it afterwards."""
    db, remote = pair
    yield remote.channel("roads")
    stats = db.channel("roads").stats()
    assert (stats.events, stats.subscriptions) == (0, 0)


def test_places(pair: tuple[Any, Any]) -> None:
    db, remote = pair
    for n, (space, place, fragment) in enumerate(PLACES):
        channel = remote.channel(f"places {n}", space=space)
        calls: list[Callable[[], Any]] = [
            lambda c=channel, p=place: c.publish(p, {}),  # type: ignore[misc]
            lambda c=channel, p=place: c.subscribe(p, user="u"),  # type: ignore[misc]
            lambda c=channel, p=place: c.find(p),  # type: ignore[misc]
        ]
        for call in calls:
            refused(fragment, call)
        stats = db.channel(f"places {n}").stats()
        assert (stats.events, stats.subscriptions) == (0, 0)
        remote.drop_channel(f"places {n}")


@pytest.mark.parametrize(("change", "fragment"), PUBLISH)
def test_publish(change: dict[str, Any], fragment: str, channel: Any) -> None:
    refused(fragment, lambda: channel.publish(**({"place": "a", "body": {}} | change)))


@pytest.mark.parametrize(("change", "fragment"), WINDOWS + CONDITIONS)
def test_subscribe_and_find(change: dict[str, Any], fragment: str, channel: Any) -> None:
    refused(fragment, lambda: channel.subscribe("a", user="u", **change))
    refused(fragment, lambda: channel.find("a", **change))


@pytest.mark.parametrize(("value", "fragment"), IDS)
def test_ids_and_users(value: Any, fragment: str, channel: Any) -> None:
    refused(fragment, lambda: channel.publish("a", {}, id=value))
    refused(fragment, lambda: channel.subscribe("a", user="u", id=value))
    refused(fragment, lambda: channel.subscribe("a", user=value))
    refused(fragment, lambda: channel.cancel(value))
    refused(fragment, lambda: channel.resume(value))


@pytest.mark.parametrize("limit", [-1, 1.5, "2", True])
def test_limits(limit: Any, channel: Any) -> None:
    refused(f"limit={limit!r}", lambda: channel.find("a", limit=limit))


@pytest.mark.parametrize("table", [None, [{"op": "publish"}], pa.table({"id": ["x"]})])
def test_tables(table: Any, channel: Any) -> None:
    refused("Table" if not isinstance(table, pa.Table) else "op", lambda: channel.apply(table))


@pytest.mark.parametrize("once", ["w", ("w",), ("w", "1"), ("w", -1), (1, 1), ("w", True)])
def test_once(once: Any, channel: Any) -> None:
    table = pa.table({"op": pa.array([], pa.string()), "at": pa.array([], pa.timestamp("us"))})
    refused("once", lambda: channel.apply(table, once=once))


@pytest.mark.parametrize(
    ("change", "fragment"),
    [
        ({"name": ""}, "name"),
        ({"name": 17}, "17"),
        ({"name": "x" * 257}, "name"),
        ({"layout": "triple"}, "triple"),
        ({"space": "flat"}, "flat"),
        ({"journal_s": -1}, "journal_s"),
        ({"journal_s": "1"}, "journal_s"),
    ],
)
def test_channels(change: dict[str, Any], fragment: str, pair: tuple[Any, Any]) -> None:
    refused(fragment, lambda: pair[1].channel(**({"name": "other"} | change)))
    assert "other" not in pair[0].channels()


def test_what_is_not_there(channel: Any, pair: tuple[Any, Any]) -> None:
    with pytest.raises(NotFound, match="'nobody'"):
        channel.cancel("nobody")
    with pytest.raises(NotFound, match="'nobody'"):
        channel.prolong("nobody", until_s=5)
    refused("kind", lambda: channel.scan("things"))
    refused("kind", lambda: channel.journal("things"))
    refused("position", lambda: channel.journal("events", after="nowhere"))


def test_another_content(pair: tuple[Any, Any]) -> None:
    channel = pair[1].channel("conflicts")
    channel.publish("a", {"n": 1}, id="e")
    with pytest.raises(Conflict, match="'e'"):
        channel.publish("a", {"n": 2}, id="e")
    assert channel.publish("a", {"n": 1}, id="e").duplicate
