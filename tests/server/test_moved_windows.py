"""Windows that move while readers are cut: a WebSocket and an event stream, as a handle.

The stories are those of tests/cuts.py: events in the future, ends that move, cuts and resumes.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import pytest
from cuts import Reader, Step, World, steps
from hypothesis import given, settings
from profiles import few
from talk import Api, Talk

from tideline.testing import ManualClock

FUTURE = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=1_000)


class SocketReader:
    """One subscription on a WebSocket."""

    def __init__(self, url: str, channel: Any, id: str, after: str | None) -> None:
        self._talk = Talk(url)
        self._talk.say(do="resume", tag=1, channel=channel.name, id=id, after=after)
        assert "subscribed" in self._talk.hear()

    def read(self, count: int) -> list[tuple[str, str]]:
        heard = [message for message in self._talk.sync() if "event" in message]
        assert len(heard) == count
        return [(message["event"]["id"], message["token"]) for message in heard]

    def cut(self) -> None:
        self._talk.socket.socket.shutdown(socket.SHUT_RDWR)
        self._talk.__exit__(None, None, None)


class StreamReader:
    """An event stream, read line by line."""

    def __init__(self, url: str, channel: Any, id: str, after: str | None) -> None:
        address = urlsplit(url)
        assert address.hostname is not None
        assert address.port is not None
        self._socket = socket.create_connection((address.hostname, address.port), timeout=30)
        path = f"/v1/channels/{channel.name}/subscriptions/{id}/stream"
        last = "" if after is None else f"Last-Event-ID: {after}\r\n"
        self._socket.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{last}\r\n".encode())
        self._lines = self._read_lines()
        assert next(self._lines).endswith("200 OK")

    def _read_lines(self) -> Iterator[str]:
        """Lines of the answer; what frames its chunks is passed over, for it has no colon."""
        rest = b""
        while data := self._socket.recv(1 << 16):
            *lines, rest = (rest + data).split(b"\n")
            yield from (line.decode().rstrip("\r") for line in lines)

    def read(self, count: int) -> list[tuple[str, str]]:
        found: list[tuple[str, str]] = []
        token = ""
        while len(found) < count:
            name, colon, text = next(self._lines).partition(": ")
            if colon and name == "id":
                token = text
            elif name == "data" and token:
                found.append((json.loads(text)["id"], token))
                token = ""
        return found

    def cut(self) -> None:
        self._socket.close()


READERS = {"socket": SocketReader, "stream": StreamReader}


@pytest.mark.parametrize("kind", READERS)
def test_a_cut_reader_gets_what_an_uncut_one_got(kind: str, serve: Callable[..., Any]) -> None:
    clock = ManualClock(1_000)
    database, url = serve(clock)
    names = iter(range(1_000))

    def read(channel: Any, id: str, after: str | None) -> Reader:
        reader: Reader = READERS[kind](url, channel, id, after)
        return reader

    @settings(max_examples=few(12))
    @given(story=steps(reopens=False))
    def check(story: list[Step]) -> None:
        World(database.channel(f"c{next(names)}"), clock, read).run(story)

    check()


@pytest.mark.parametrize("kind", READERS)
def test_tokens_rise_when_a_prolonged_window_lets_in_what_arrived_before(
    kind: str, serve: Callable[..., Any]
) -> None:
    """The last token a browser keeps by itself must stand for everything before it."""
    database, url = serve(ManualClock(1_000))
    channel = database.channel("c")
    channel.subscribe("a", user="u", id="s", until_s=10)
    channel.publish("a", {}, id="future", at=FUTURE + timedelta(seconds=50))
    channel.publish("a", {}, id="now")
    reader = READERS[kind](url, channel, "s", None)
    ((_, first),) = reader.read(1)
    assert Api(url).patch("/v1/channels/c/subscriptions/s", {"until_s": 100}).status == 200
    ((id, second),) = reader.read(1)
    assert id == "future"
    assert second > first
    reader.cut()
    # Cut before it arrived, it comes again; cut after it, nothing comes twice.
    again = READERS[kind](url, channel, "s", first)
    assert again.read(1) == [("future", second)]
    again.cut()
    channel.publish("a", {}, id="later")
    last = READERS[kind](url, channel, "s", second)
    assert [id for id, _ in last.read(1)] == ["later"]
    last.cut()


def test_a_token_that_is_none_is_refused(serve: Callable[..., Any]) -> None:
    database, url = serve()
    database.channel("c").subscribe("a", user="u", id="s", until_s=60)
    for token in ["x", "1", "0" * 17, "0" * 18 + ".", "0" * 18 + ".1", "0" * 18 + "." + "0" * 19]:
        answer = Api(url).get(f"/v1/channels/c/subscriptions/s/stream?after={token}")
        assert answer.error == (400, "InvalidRequest")
