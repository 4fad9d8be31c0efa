"""Reading the journal over HTTP: in parts, each row once, and it ends when nothing moves on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tideline
from tideline.errors import InvalidRequest, NotFound, Unavailable
from tideline.server import running
from tideline.spark import client as clients
from tideline.spark.http import HttpClient

pytestmark = pytest.mark.spark


@pytest.fixture
def roads(tmp_path: Path) -> Iterator[tuple[Any, HttpClient]]:
    """A channel with 25 events and a few subscriptions, and a client of its server."""
    with tideline.open(tmp_path / "data", memory_mb=64) as db, running(db) as url:
        channel = db.channel("roads", journal_s=3600)
        for n in range(25):
            channel.publish("a", {"n": n}, id=f"e{n}")
            if n % 10 == 0:
                channel.subscribe("a", user="u", id=f"s{n}", since_s=-60)
        client = HttpClient(url, None, "roads")
        yield channel, client
        client.close()


class Asked:
    """Counts the requests that read the journal, and ends what would ask for ever."""

    def __init__(self, client: HttpClient, most: int) -> None:
        self.count = 0
        self.most = most
        channel = client._channel("roads")
        ask = channel.journal

        def counted(*arguments: Any, **options: Any) -> Any:
            self.count += 1
            assert self.count <= self.most, "it asks again and again"
            return ask(*arguments, **options)

        channel.journal = counted  # type: ignore[method-assign]


def ids(client: HttpClient, kind: str, after: str, upto: str) -> list[str]:
    return [
        id
        for batch in client.journal("roads", kind, after, upto)
        for id in batch.column("id" if kind != "answers" else "event").to_pylist()
    ]


def test_many_parts_are_one_sequence(
    roads: tuple[Any, HttpClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    channel, client = roads
    monkeypatch.setattr(clients, "_PAGE", 7)
    first, last = channel.earliest(), channel.position()
    asked = Asked(client, 50)
    assert ids(client, "events", first, last) == [f"e{n}" for n in range(25)]
    assert asked.count == 4
    assert ids(client, "subscriptions", first, last) == ["s0", "s10", "s20"]
    answers = channel.journal("answers")[0]["event"].to_pylist()
    assert len(answers) > 30
    assert ids(client, "answers", first, last) == answers
    # What is written meanwhile comes after: the same span is the same rows.
    channel.publish("a", {}, id="later")
    assert ids(client, "events", first, last) == [f"e{n}" for n in range(25)]
    assert ids(client, "events", last, channel.position()) == ["later"]


def test_a_span_that_is_empty_is_not_asked_for(roads: tuple[Any, HttpClient]) -> None:
    channel, client = roads
    here = channel.position()
    asked = Asked(client, 0)
    assert ids(client, "events", here, here) == []
    assert asked.count == 0


@pytest.mark.parametrize("kind", ["events", "subscriptions", "answers"])
def test_a_journal_that_does_not_move_on_ends(kind: str, roads: tuple[Any, HttpClient]) -> None:
    """The end is spelled otherwise, or lies before the start: no position is ever equal to it."""
    channel, client = roads
    first, last = channel.earliest(), channel.position()
    asked = Asked(client, 3)
    segment, offset = last.split(":")
    other = f"0{segment}:000{offset}"
    whole = ids(client, kind, first, last)
    asked.count = 0
    assert ids(client, kind, first, other) == whole
    assert asked.count == 2  # the second says that nothing is left
    assert client.reach("roads", kind, last, last, 5) == last
    asked.count = 0
    with pytest.raises(InvalidRequest, match="not in the log"):
        ids(client, kind, last, first)
    assert asked.count == 1


def test_positions_of_another_store_are_refused(roads: tuple[Any, HttpClient]) -> None:
    channel, client = roads
    first, last = channel.earliest(), channel.position()
    segment, _ = last.split(":")
    for after, upto in [(first, f"{segment}:99999999"), (f"{int(segment) + 1}:0", last)]:
        with pytest.raises(InvalidRequest, match="after the journal's end"):
            ids(client, "events", after, upto)
    with pytest.raises(Unavailable, match="does not reach back"):
        ids(client, "events", "0:0", last)
    with pytest.raises(InvalidRequest, match="position"):
        ids(client, "events", "here", last)
    with pytest.raises(InvalidRequest, match="kind"):
        ids(client, "things", first, last)
    with pytest.raises(NotFound):
        list(client.journal("nothing", "events", first, last))
