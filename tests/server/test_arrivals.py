"""Requests that never finish: bounded in time, size and number; nobody else notices."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from talk import Api, Talk, eventually

from tideline.errors import InvalidRequest
from tideline.server import Settings, run
from tideline.server.tokens import Tokens

Serve = Callable[..., Any]
HEAD = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
POST = b"POST /v1/channels/roads/events HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
EVENT = {"place": "a", "body": 1, "ttl_s": 60}
HANDSHAKE = (
    b"GET /v1/live HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)


def connect(url: str) -> socket.socket:
    address = urlsplit(url)
    return socket.create_connection((address.hostname, address.port), timeout=30)


def rest_of(sock: socket.socket) -> bytes:
    """What still comes until it is closed."""
    found = b""
    try:
        while data := sock.recv(1 << 16):
            found += data
    except ConnectionResetError:
        pass
    return found


def trickle(sock: socket.socket, byte: bytes) -> bytes:
    """Send a byte now and then until the server hangs up; what it said."""
    sock.settimeout(0.02)
    found = b""
    limit = time.monotonic() + 20
    while time.monotonic() < limit:
        try:
            sock.sendall(byte)
            data = sock.recv(1 << 16)
            if not data:
                return found
            found += data
        except TimeoutError:
            continue
        except (ConnectionResetError, BrokenPipeError):
            return found
    raise AssertionError("it was never closed")


def error_in(answer: bytes) -> tuple[int, str]:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"connection: close" in head
    return int(head.split()[1]), json.loads(body)["error"]["kind"]


def test_headers_that_never_finish_are_not_waited_for(serve: Serve) -> None:
    database, url = serve(head_timeout_s=0.3)
    database.channel("roads")
    with connect(url) as sock:
        sock.sendall(HEAD)
        assert error_in(rest_of(sock)) == (408, "TooSlow")
    with connect(url) as sock:  # bytes that trickle in buy no time
        sock.sendall(HEAD + b"X-Slow: ")
        assert error_in(trickle(sock, b"x")) == (408, "TooSlow")
    with connect(url) as sock:  # nothing was said: nothing is answered
        assert rest_of(sock) == b""


def test_a_used_connection_is_bounded_as_well(serve: Serve) -> None:
    _, url = serve(head_timeout_s=0.3)
    with connect(url) as sock:
        for _ in range(3):
            sock.sendall(HEAD + b"\r\n")
            assert sock.recv(1 << 16).startswith(b"HTTP/1.1 200")
        sock.sendall(HEAD)
        assert error_in(rest_of(sock)) == (408, "TooSlow")
    with connect(url) as sock:  # at rest, it may stay for longer
        sock.sendall(HEAD + b"\r\n")
        sock.recv(1 << 16)
        with connect(url) as silent:
            assert rest_of(silent) == b""  # so much time has passed
        sock.sendall(HEAD + b"\r\n")
        assert sock.recv(1 << 16).startswith(b"HTTP/1.1 200")


def test_a_body_that_trickles_is_not_waited_for(serve: Serve) -> None:
    database, url = serve(read_timeout_s=0.3, head_timeout_s=0.3, body_bytes=1_000)
    channel = database.channel("roads")
    with connect(url) as sock:
        sock.sendall(POST % 500 + b'{"place": "')
        assert trickle(sock, b"a").startswith(b"HTTP/1.1 408")
    with connect(url) as sock:  # refused already: what is left of it is not read for ever
        sock.sendall(POST % (1 << 40) + b"{")
        assert trickle(sock, b" ").startswith(b"HTTP/1.1 413")
    with connect(url) as sock:  # a body where none is taken
        sock.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999\r\n\r\n")
        assert trickle(sock, b" ").startswith(b"HTTP/1.1 200")
    assert channel.stats().events == 0


@pytest.mark.parametrize("endless", [b"X-Endless: ", b"GET /"])
def test_headers_have_a_largest_size(endless: bytes, serve: Serve) -> None:
    _, url = serve()
    with connect(url) as sock:
        sock.sendall((HEAD if endless.startswith(b"X") else b"") + endless)
        try:
            for _ in range(10_000):
                sock.sendall(b"x" * 65_536)
        except (BrokenPipeError, ConnectionResetError):
            pass
        else:
            raise AssertionError("all of it was taken")
    with connect(url) as sock:
        sock.sendall(HEAD + b"X: y\r\n" * 12_000)
        assert error_in(rest_of(sock))[0] in (400, 431)
    with connect(url) as sock:  # many are fine
        sock.sendall(HEAD + b"X: y\r\n" * 1_000 + b"\r\n")
        assert sock.recv(1 << 16).startswith(b"HTTP/1.1 200")


def test_what_is_no_request_is_refused_as_everything_else(url: str) -> None:
    for said in [b"\x00\x01\x02\r\n\r\n", b"HELLO\r\n\r\n", b"GET / HTTP/9.9.9\r\n\r\n",
                 b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n"]:  # fmt: skip
        with connect(url) as sock:
            sock.sendall(said)
            assert error_in(rest_of(sock)) == (400, "InvalidRequest")


def test_many_that_say_nothing_keep_nobody_out(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "_MOST_WAITING", 20)
    database, url = serve(connections=5)
    database.channel("roads")
    silent = [connect(url) for _ in range(60)]
    try:
        for sock in silent[:30]:
            sock.sendall(HEAD)
        for _ in range(5):
            assert Api(url).post("/v1/channels/roads/events", EVENT).status == 200
        assert rest_of(silent[31]) == b""  # those who have waited longest had to go
    finally:
        for sock in silent:
            sock.close()


def test_others_do_not_notice(serve: Serve) -> None:
    """Slow ones come and are closed; a WebSocket and plain calls go on all the while."""
    database, url = serve(head_timeout_s=0.4)
    database.channel("roads")
    slow = [connect(url) for _ in range(50)]
    said: list[tuple[int, str]] = []

    def be_slow(sock: socket.socket) -> None:
        sock.sendall(HEAD + b"X-Slow: ")
        said.append(error_in(trickle(sock, b"x")))
        sock.close()

    with Talk(url) as talk:
        talk.say(do="subscribe", tag=1, channel="roads", place="a", user="u", until_s=60)
        talk.hear_until("past_done")
        threads = [threading.Thread(target=be_slow, args=(sock,)) for sock in slow]
        for thread in threads:
            thread.start()
        sent = 0
        while any(thread.is_alive() for thread in threads):
            assert Api(url).post("/v1/channels/roads/events", EVENT).status == 200
            assert "event" in talk.hear()
            sent += 1
    for thread in threads:
        thread.join()
    assert said == [(408, "TooSlow")] * 50
    assert sent > 10
    eventually(lambda: Api(url).get("/healthz").status == 200)


# Handshakes --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("handshake", "error"),
    [
        (HANDSHAKE + b"X: " + b"x" * 9_000 + b"\r\n\r\n", (431, "TooLarge")),
        (HANDSHAKE + b"X: 1\r\n" * 200 + b"\r\n", (431, "TooLarge")),
        (HANDSHAKE.replace(b"live", b"live?" + b"q" * 9_000) + b"\r\n", (431, "TooLarge")),
        (HANDSHAKE + b"Content-Length: 3\r\n\r\nabc", (400, "InvalidRequest")),
    ],
    ids=["a long header", "many headers", "a long path", "a body"],
)
def test_a_handshake_that_cannot_be_read_is_refused(
    serve: Serve, handshake: bytes, error: tuple[int, str]
) -> None:
    _, url = serve()
    for _ in range(3):
        with connect(url) as sock:
            sock.sendall(handshake)
            assert error_in(rest_of(sock)) == error
    assert Api(url).get("/healthz").status == 200


def test_sockets_that_bring_no_token_are_counted(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Of more than may wait, the one that has waited longest is closed."""
    monkeypatch.setattr(run, "_MOST_WAITING", 5)
    (tmp_path / "data").mkdir()
    Tokens(tmp_path / "data").create(["admin"])
    _, url = serve()
    silent = []
    for _ in range(8):
        sock = connect(url)
        sock.sendall(HANDSHAKE + b"\r\n")
        assert sock.recv(1 << 16).startswith(b"HTTP/1.1 101 ")
        silent.append(sock)
    for sock in silent[:3]:
        assert rest_of(sock) == b""
    silent[-1].setblocking(False)
    with pytest.raises(BlockingIOError):
        silent[-1].recv(1)
    for sock in silent:
        sock.close()


# Pipelines ---------------------------------------------------------------------------------------


def _statuses(answers: bytes) -> list[int]:
    return [int(part[:3]) for part in answers.split(b"HTTP/1.1 ")[1:]]


_BODY = json.dumps(EVENT).encode()
_PUBLISH = POST % len(_BODY) + _BODY


@pytest.mark.parametrize(
    ("rest", "status"),
    [
        (b"\0garbage\r\n\r\n", 400),
        (POST.replace(b"Content-Length: %d", b"Transfer-Encoding: chunked") + b"zz\r\n", 400),
        (HEAD + b"X: " + b"x" * 70_000, 431),
    ],
    ids=["garbage", "a bad body", "a large head"],
)
@pytest.mark.parametrize("before", [1, 2, 3])
def test_a_request_before_one_that_is_refused_gets_its_own_answer(
    serve: Serve, before: int, rest: bytes, status: int
) -> None:
    database, url = serve()
    database.channel("roads")
    with connect(url) as sock:
        sock.sendall(_PUBLISH * before + rest)
        assert _statuses(rest_of(sock)) == [200] * before + [status]
    assert len(database.channel("roads").find("a")) == before


_FIND = b"GET /v1/channels/roads/events?place=a HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.mark.parametrize(
    "before", [_PUBLISH, _FIND, _FIND + _PUBLISH], ids=["at once", "long", "both"]
)
def test_a_handshake_behind_requests_waits_for_their_answers(serve: Serve, before: bytes) -> None:
    database, url = serve(head_timeout_s=0.1)
    database.channel("roads")
    with connect(url) as sock:
        sock.sendall(before + HANDSHAKE + b"\r\n")
        answers = b""
        while b" 101 " not in answers:
            part = sock.recv(1 << 16)
            assert part
            answers += part
        assert _statuses(answers) == [200] * before.count(b"HTTP/1.1") + [101]
        sock.settimeout(0.6)  # it is no request any more, and may take its time
        with pytest.raises(TimeoutError):
            sock.recv(1)


def test_the_timeout_is_a_setting() -> None:
    assert Settings().head_timeout_s == 10
    for wrong in (0, -1, float("nan"), True, "5"):
        with pytest.raises(InvalidRequest):
            Settings(head_timeout_s=wrong)  # type: ignore[arg-type]
