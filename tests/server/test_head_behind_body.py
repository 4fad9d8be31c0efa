"""Pipelined requests: a head is measured by itself, whatever body came before it."""

from __future__ import annotations

import json
import socket
from typing import Any
from urllib.parse import urlsplit

import pytest
from talk import eventually

BIG = 70_000  # over the 64 KiB that a head may have


def event(size: int) -> bytes:
    body = json.dumps({"place": "a", "body": 1, "ttl_s": 60}).encode() + b" " * size
    head = b"POST /v1/channels/roads/events HTTP/1.1\r\nHost: localhost\r\n"
    return head + b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body


def head(size: int) -> bytes:
    return b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * size


def answers(url: str, pieces: list[bytes], count: int) -> list[int]:
    """The statuses of so many answers to what is sent in these pieces."""
    address = urlsplit(url)
    with socket.create_connection((address.hostname, address.port), timeout=60) as sock:
        heard = b""
        for piece in pieces:
            sock.sendall(piece)
        while heard.count(b"HTTP/1.1 ") < count and (data := sock.recv(1 << 16)):
            heard += data
    return [int(each[:3]) for each in heard.split(b"HTTP/1.1 ")[1:]]


@pytest.mark.parametrize("cut", [1, 1_000, 65_536, 10_000_000])
def test_a_large_body_is_no_part_of_the_next_head(url: str, database: Any, cut: int) -> None:
    roads = database.channel("roads")
    whole = event(3 * BIG) + head(1_000) + b"\r\n\r\n" + event(10)
    at = len(event(3 * BIG)) - cut if cut < BIG else 0
    pieces = [whole[:at], whole[at:]] if at else [whole]
    before = roads.stats().events
    assert answers(url, pieces, 3) == [200, 200, 200]
    eventually(lambda: roads.stats().events == before + 2)


@pytest.mark.parametrize("size", [10, 3 * BIG])
@pytest.mark.parametrize("apart", [False, True])
def test_a_large_head_behind_a_body_is_refused(
    url: str, database: Any, size: int, apart: bool
) -> None:
    database.channel("roads")
    pieces = [event(size), head(BIG)] if apart else [event(size) + head(BIG)]
    assert answers(url, pieces, 2) == [200, 431]
