"""Frames, byte by byte: the short way for plain messages, the library for everything else."""

from __future__ import annotations

import gc
import http.client
import json
import os
import socket
from typing import Any
from urllib.parse import urlsplit

import pytest
from talk import Api

from tideline.server import protocol

HANDSHAKE = (
    b"GET /v1/live HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)
TEXT, BINARY, CLOSE, PING, PONG, MORE = 1, 2, 8, 9, 10, 0


def frame(kind: int, data: bytes, *, final: bool = True, mask: bytes | None = None) -> bytes:
    mask = os.urandom(4) if mask is None else mask
    size = len(data)
    if size < 126:
        length = bytes([0x80 | size])
    elif size < 65_536:
        length = bytes([0x80 | 126]) + size.to_bytes(2, "big")
    else:
        length = bytes([0x80 | 127]) + size.to_bytes(8, "big")
    masked = bytes(byte ^ mask[n % 4] for n, byte in enumerate(data))
    return bytes([kind | (0x80 if final else 0)]) + length + mask + masked


def sync(tag: Any) -> bytes:
    return json.dumps({"do": "sync", "tag": tag}).encode()


class Wire:
    """A socket that reads frames of a server."""

    def __init__(self, url: str, more: bytes = b"") -> None:
        address = urlsplit(url)
        self.socket = socket.create_connection((address.hostname, address.port), timeout=30)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.sendall(HANDSHAKE + more)
        self.data = b""
        while b"\r\n\r\n" not in self.data:
            self._more()
        head, _, self.data = self.data.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 101")

    def _more(self) -> None:
        data = self.socket.recv(65_536)
        assert data, "the server hung up"
        self.data += data

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def _need(self, size: int) -> None:
        while len(self.data) < size:
            self._more()

    def read(self) -> tuple[int, bytes]:
        """(kind, payload) of the next frame; a server's are whole and not masked."""
        self._need(2)
        assert self.data[0] & 0xF0 == 0x80
        length, start = self.data[1], 2
        if length >= 126:
            start = 4 if length == 126 else 10
            self._need(start)
            length = int.from_bytes(self.data[2:start], "big")
        self._need(start + length)
        kind, payload = self.data[0] & 0x0F, self.data[start : start + length]
        self.data = self.data[start + length :]
        return kind, payload

    def heard(self) -> Any:
        kind, payload = self.read()
        assert kind == TEXT
        return json.loads(payload)

    def closed(self) -> int:
        """The code it is closed with."""
        kind, payload = self.read()
        while kind != CLOSE:
            kind, payload = self.read()
        return int.from_bytes(payload[:2], "big")

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()


def test_frames_that_come_byte_by_byte(url: str) -> None:
    with Wire(url) as wire:
        for byte in frame(TEXT, sync(1)) + frame(TEXT, sync("x" * 200)):
            wire.send(bytes([byte]))
        assert wire.heard()["tag"] == 1
        assert wire.heard()["tag"] == "x" * 200


def test_many_frames_in_one_piece(url: str) -> None:
    with Wire(url) as wire:
        wire.send(b"".join(frame(TEXT, sync(n)) for n in range(500)))
        assert [wire.heard()["tag"] for _ in range(500)] == list(range(500))


@pytest.mark.parametrize("size", [100, 125, 126, 127, 65_535, 65_536, 200_000])
def test_lengths_of_every_form(url: str, channel: Any, size: int) -> None:
    with Wire(url) as wire:
        ask = {"do": "sync", "tag": ""}
        ask["tag"] = "x" * (size - len(json.dumps(ask)))
        text = json.dumps(ask).encode()
        assert len(text) == size
        whole = frame(TEXT, text)
        wire.send(whole[:-1])
        wire.send(whole[-1:])
        assert wire.heard()["tag"] == ask["tag"]


def test_fragments_and_what_comes_between_them_keep_their_order(url: str) -> None:
    with Wire(url) as wire:
        one, two = sync("one"), sync("two")
        frames = [
            frame(TEXT, one[:5], final=False), frame(PING, b"p"),
            frame(MORE, one[5:9], final=False), frame(MORE, one[9:]), frame(TEXT, two),
            frame(BINARY, sync("three")),
        ]  # fmt: skip
        wire.send(b"".join(frames))
        got = [wire.read() for _ in range(4)]
    assert (PONG, b"p") in got
    tags = [json.loads(payload)["tag"] for kind, payload in got if kind == TEXT]
    assert tags == ["one", "two", "three"]


def test_pings_are_answered(url: str) -> None:
    with Wire(url) as wire:
        wire.send(frame(PING, b"hello"))
        assert wire.read() == (PONG, b"hello")
        wire.send(frame(PONG, b"unasked"))
        wire.send(frame(TEXT, sync(1)))
        assert wire.heard()["tag"] == 1


def test_frames_sent_before_the_answer_to_the_handshake(url: str) -> None:
    with Wire(url, frame(TEXT, sync(1)) + frame(TEXT, sync(2))[:4]) as wire:
        # What a client may not do is dropped or answered; the connection is not confused by it.
        pass
    with Wire(url) as wire:
        wire.send(frame(TEXT, sync(3)))
        assert wire.heard()["tag"] == 3


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"\x81\x05hello", 1002),  # not masked
        (frame(3, b"x"), 1002),  # a kind there is not
        (bytes([0xC1]) + frame(TEXT, b"{}")[1:], 1002),  # a reserved bit
        (frame(MORE, b"x"), 1002),  # a continuation of nothing
        (frame(TEXT, b"a", final=False) + frame(TEXT, b"b"), 1002),  # a message in a message
        (frame(PING, b"x" * 126), 1002),  # a control frame that is too long
        (frame(PING, b"x", final=False), 1002),
        (b"\x81\xff" + (1 << 40).to_bytes(8, "big") + bytes(4), 1009),
        (b"\x81\xff" + (1 << 63).to_bytes(8, "big") + bytes(4), 1009),
        (frame(CLOSE, (1000).to_bytes(2, "big") + b"bye"), 1000),
        (frame(CLOSE, b"x"), 1002),
    ],
    ids=["not masked", "kind", "reserved bit", "continuation", "message in a message", "long ping",
         "ping in parts", "huge", "negative", "goodbye", "half a goodbye"],
)  # fmt: skip
def test_what_is_wrong_is_answered_with_a_close(url: str, data: bytes, code: int) -> None:
    with Wire(url) as wire:
        wire.send(frame(TEXT, sync(1)))
        assert wire.heard()["tag"] == 1
        wire.send(data)
        found = wire.closed()
        assert found == code or (code == 1009 and found == 1002)


def test_a_message_just_too_large(serve: Any) -> None:
    _, url = serve(body_bytes=1_000)
    with Wire(url) as wire:
        wire.send(frame(TEXT, b"x" * 1_000))
        assert wire.heard()["error"]["kind"] == "InvalidRequest"
        wire.send(frame(TEXT, b"x" * 1_001))
        assert wire.closed() == 1009
    with Wire(url) as wire:  # in fragments, none of them too large
        wire.send(frame(TEXT, b"x" * 900, final=False) + frame(MORE, b"x" * 900))
        assert wire.closed() == 1009


def test_text_that_is_no_text(url: str) -> None:
    with Wire(url) as wire:
        wire.send(frame(TEXT, b'{"do": "sync", "tag": "\xff"}'))
        assert wire.heard()["error"]["kind"] == "InvalidRequest"


def publish(n: int) -> bytes:
    request = {"do": "publish", "tag": n, "channel": "flood", "place": "a", "body": n, "ttl_s": 600}
    return frame(TEXT, json.dumps(request).encode(), mask=bytes(4))


@pytest.mark.parametrize("turn_s", [0.0, 0.02])
def test_a_flood_is_taken_in_turns_in_order_and_whole(
    turn_s: float, url: str, database: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "_TURN_S", turn_s, raising=False)
    channel = database.channel("flood")
    before = channel.stats().events
    with Wire(url) as wire:
        wire.send(b"".join(publish(n) for n in range(1_500)) + frame(TEXT, sync("end")))
        tags = [wire.heard()["tag"] for _ in range(1_501)]
    assert tags == [*range(1_500), "end"]
    assert channel.stats().events - before == 1_500


def test_others_are_served_during_a_flood(
    url: str, database: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "_TURN_S", 0.002, raising=False)
    channel = database.channel("flood")
    before = channel.stats().events
    with Wire(url) as wire:
        wire.send(b"".join(publish(n) for n in range(1_500)))
        wire.heard()  # it has begun
        assert Api(url).get("/healthz").status == 200
        done = channel.stats().events - before
        assert done < 1_200, "one connection kept the server to itself"
        wire.send(frame(TEXT, sync("end")))
        while wire.heard()["tag"] != "end":
            pass
    assert channel.stats().events - before == 1_500


def test_an_answered_request_leaves_nothing_to_the_garbage_collector(
    url: str, database: Any
) -> None:
    """While the collector looks, nobody is answered: what comes often must need none of it."""
    database.collection("swept", key="id")
    address = urlsplit(url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=30)
    gc.disable()
    try:
        for n in range(50):
            body = json.dumps({"documents": [{"id": n}]})
            connection.request(
                "POST", "/v1/collections/swept/put_many", body, {"content-type": "application/json"}
            )
            assert connection.getresponse().read()
        cycles = [one for one in gc.get_objects() if type(one).__name__ == "RequestResponseCycle"]
        assert len(cycles) < 10  # one a connection, and those of other tests that end
    finally:
        gc.enable()
        connection.close()
