"""Slow consumers are bounded: told, disconnected, resumed; nobody else notices."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import pytest
from talk import Api, Talk, eventually
from test_protocol import HANDSHAKE, frame
from test_protocol import TEXT as TEXT_FRAME

import tideline
from tideline.server.outbox import Outbox, Turn

TEXT = "x" * 8_000
MOST = 200_000


def slow_count(url: str) -> int:
    text = Api(url).get("/metrics").body.decode()
    [line] = [x for x in text.splitlines() if x.startswith("tideline_slow_total ")]
    return int(line.split()[1])


def stuck_socket(url: str) -> socket.socket:
    """A connection whose receiving end holds little: it stops reading, and the sender notices."""
    address = urlsplit(url)
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.connect((address.hostname, address.port))
    return sock


def flood(url: str, channel: Any, fast: Talk) -> int:
    """Publish, in step with a reader that keeps up, until somebody else was too slow."""
    count = 0
    while slow_count(url) == 0:
        for _ in range(50):
            channel.publish("a", {"n": count, "text": TEXT}, ttl_s=600)
            assert fast.hear()["event"]["body"]["n"] == count
            count += 1
        assert count < 20_000, "nobody was too slow"
    return count


@pytest.mark.parametrize("query", ["", "?lines=1"])
def test_a_slow_websocket_is_told_where_to_resume(serve: Callable[..., Any], query: str) -> None:
    database, url = serve(outbox_bytes=MOST)
    channel = database.channel("c")
    with Talk(url) as fast, Talk(url, f"/v1/live{query}", sock=stuck_socket(url),
                                 max_queue=1) as slow:  # fmt: skip
        fast.say(do="subscribe", tag=1, channel="c", place="a", user="fast")
        fast.hear_until("past_done")
        for tag in (1, 2):
            slow.say(do="subscribe", tag=tag, channel="c", place="a" if tag == 1 else "never",
                     user="slow", id=f"s{tag}")  # fmt: skip
        count = flood(url, channel, fast)
        # Now it reads: what was on its way, then why it ends, then the end.
        heard, code = slow.hear_close()
        assert code == 4008
        told = heard.pop()
        events = [message for message in heard if "event" in message]
        got = [message["event"]["body"]["n"] for message in events]
        token = events[-1]["token"]
        assert told == {"slow": {"1": token, "2": None}}
        assert 0 < len(got) < count
    with Talk(url) as again:
        again.say(do="resume", tag=1, channel="c", id="s1", after=token)
        got += [m["event"]["body"]["n"] for m in again.hear_until("past_done") if "event" in m]
    assert got == list(range(count))


def test_a_slow_event_stream_is_told_and_resumes(serve: Callable[..., Any]) -> None:
    database, url = serve(outbox_bytes=MOST, stop_s=0.001)  # whoever waits for it is not told
    channel = database.channel("c")
    channel.subscribe("a", user="u", id="s", until_s=600)
    with Talk(url) as fast, stuck_socket(url) as stuck:
        fast.say(do="subscribe", tag=1, channel="c", place="a", user="fast")
        fast.hear_until("past_done")
        stuck.sendall(
            b"GET /v1/channels/c/subscriptions/s/stream HTTP/1.1\r\nHost: localhost\r\n"
            b"Connection: close\r\n\r\n"
        )
        while b"past_done" not in stuck.recv(4096):
            pass
        count = flood(url, channel, fast)
        answer = bytearray()
        stuck.settimeout(30)
        while data := stuck.recv(1 << 16):
            answer += data
    lines = bytes(answer).split(b"\n")
    whole = [line for line in lines if line.startswith(b"id: ")]
    token = whole[-1][4:].strip().decode()
    # However late it reads: why it ends comes last, and the answer is whole.
    told = json.loads(lines[lines.index(b"event: slow") + 1].removeprefix(b"data: "))
    assert told == {"token": token}
    assert answer.endswith(b"\n\n\r\n0\r\n\r\n")
    address = urlsplit(url)
    assert address.hostname is not None
    connection = http.client.HTTPConnection(address.hostname, address.port, timeout=30)
    there = "/v1/channels/c/subscriptions/s/stream"
    connection.request("GET", there, headers={"Last-Event-ID": token})
    rest = []
    for line in connection.getresponse():
        if line.startswith(b"data: ") and b'"id"' in line:
            rest.append(json.loads(line[6:])["body"]["n"])
        if line.startswith(b"event: past_done"):
            break
    connection.close()
    assert rest == list(range(count - len(rest), count))
    assert len(whole) + len(rest) == count


def test_a_reader_that_never_reads_holds_up_nobody(serve: Callable[..., Any]) -> None:
    """Ten of them: each is let go of, and the server stops in time with them still there."""
    database, url = serve(outbox_bytes=MOST, stop_s=1.0)
    channel = database.channel("c")
    stuck = []
    with Talk(url) as fast:
        fast.say(do="subscribe", tag=1, channel="c", place="a", user="fast")
        fast.hear_until("past_done")
        for n in range(10):
            sock = stuck_socket(url)
            sock.sendall(HANDSHAKE)
            assert b"101" in sock.recv(4096)
            ask = json.dumps(
                {"do": "subscribe", "tag": 1, "channel": "c", "place": "a", "user": f"u{n}"}
            ).encode()
            sock.sendall(frame(TEXT_FRAME, ask))
            stuck.append(sock)
        eventually(lambda: channel.stats().subscriptions == 11)
        count = 0
        while slow_count(url) < 10:
            for _ in range(50):
                channel.publish("a", {"n": count, "text": TEXT}, ttl_s=600)
                assert fast.hear()["event"]["body"]["n"] == count
                count += 1
            assert count < 20_000
        assert fast.sync() == []
    for sock in stuck:
        sock.close()


@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize(
    ("count", "size", "waits"), [(0, 0, False), (32, 10, False), (33, 10, True), (3, 50_000, True)]
)
def test_a_past_that_is_long_or_large_waits_for_the_socket(
    count: int, size: int, waits: bool, listed: bool
) -> None:
    with tideline.open(":memory:") as db:
        channel = db.channel("c")
        for _ in range(count):
            channel.publish("a", "x" * size)
        handle = channel.subscribe("a", user="u", since_s=-60, until_s=60)
        found = handle._load() if handle._load is not None else []
        events = list(found) if listed else found

        async def sent_at_once() -> bool:
            loop = asyncio.get_running_loop()
            outbox = Outbox(loop, 1 << 20, Turn(loop))
            outbox.add_past(None, events)
            items = outbox.take_now(1 << 16)
            rest = [] if items else await outbox.take()
            assert [list(item[1]) for item in items or rest] == [list(events)]
            return items is not None

        assert asyncio.run(sent_at_once()) is not waits
