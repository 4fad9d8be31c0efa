"""A WebSocket read by whoever waits: frames in any pieces, threads in any order, ends of any kind.

The other end is a socket of the test's own that says what it is told to. `GUARD_S` only turns a
hang into a failure.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import queue
import select
import signal
import socket
import struct
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from certificates import certificate
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import many
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

import tideline
from tideline.client import websocket
from tideline.client.websocket import WebSocket
from tideline.errors import Unavailable
from tideline.server import running

GUARD_S = 30.0
_KEY = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


def frame(data: bytes, first: int = 0x81) -> bytes:
    """A frame as a server sends it."""
    size = len(data)
    if size < 126:
        return bytes((first, size)) + data
    if size < 65_536:
        return bytes((first, 126)) + struct.pack(">H", size) + data
    return bytes((first, 127)) + struct.pack(">Q", size) + data


def read_frame(end: socket.socket) -> tuple[int, bytes]:
    """A frame of a client: its first byte and its content."""

    def exactly(count: int) -> bytes:
        data = b""
        while len(data) < count:
            piece = end.recv(count - len(data))
            assert piece, "it was cut"
            data += piece
        return data

    first, size = exactly(2)
    assert size & 0x80, "a client must mask"
    size &= 0x7F
    if size > 125:
        size = int.from_bytes(exactly(2 if size == 126 else 8), "big")
    mask, data = exactly(4), exactly(size)
    return first, bytes(byte ^ mask[n % 4] for n, byte in enumerate(data))


def agree(end: socket.socket, rest: bytes) -> None:
    head = b""
    while b"\r\n\r\n" not in head:
        head += end.recv(4096)
    key = next(line[19:] for line in head.split(b"\r\n") if line.startswith(b"Sec-WebSocket-Key: "))
    accept = base64.b64encode(hashlib.sha1(key + _KEY).digest())
    end.sendall(
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n" + rest
    )


@contextmanager
def opened(rest: bytes = b"") -> Iterator[tuple[WebSocket, socket.socket]]:
    """A WebSocket whose server is this test; `rest` comes right behind the handshake."""
    ours, theirs = socket.socketpair()
    theirs.settimeout(GUARD_S)
    shaking = threading.Thread(target=agree, args=(theirs, rest))
    shaking.start()
    try:
        found = WebSocket(ours, "ws://test/", {"X-Test": "1"}, time.monotonic() + GUARD_S)
        shaking.join()
        yield found, theirs
        found.close()
    finally:
        theirs.close()
        ours.close()


class Background:
    """The thread of a WebSocket, as live.py has it."""

    def __init__(self, connection: WebSocket) -> None:
        self.heard: queue.Queue[bytes] = queue.Queue()
        self.ended: queue.Queue[Exception] = queue.Queue()
        self._connection = connection
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        try:
            self._connection.run(self.heard.put)
        except Exception as error:
            self.ended.put(error)


def take(connection: WebSocket) -> None:
    """Take the reading over, when the thread is not just looking itself."""
    limit = time.monotonic() + GUARD_S
    while not connection.take():
        assert time.monotonic() < limit
        time.sleep(0.001)


def take_all(connection: WebSocket, count: int) -> list[bytes]:
    found: list[bytes] = []
    limit = time.monotonic() + GUARD_S
    while len(found) < count and time.monotonic() < limit:
        found += connection.read(GUARD_S)  # none, when a part of one came
    return found


lengths = st.one_of(st.integers(0, 300), st.sampled_from([125, 126, 65_535, 65_536, 200_000]))


@settings(max_examples=many(60), deadline=None)
@given(
    sizes=st.lists(lengths, min_size=1, max_size=6),
    cuts=st.lists(st.integers(0, 700_000), max_size=8),
    parts=st.integers(1, 3),
)
def test_frames_cut_anywhere_are_the_same_messages(
    sizes: list[int], cuts: list[int], parts: int
) -> None:
    messages = [(b"<%d>" % n * size)[:size] for n, size in enumerate(sizes)]
    stream = b""
    for n, message in enumerate(messages):
        if n % 2 == 0 or parts == 1:
            stream += frame(message)
        else:  # in fragments, with a ping between them
            size = len(message) // parts + 1
            pieces = [message[first : first + size] for first in range(0, len(message), size)]
            pieces = pieces or [b""]
            for m, piece in enumerate(pieces):
                last = 0x80 if m == len(pieces) - 1 else 0
                stream += frame(piece, last | (0x01 if m == 0 else 0))
                stream += frame(b"are you there", 0x89)
    places = sorted({0, len(stream), *(cut % (len(stream) + 1) for cut in cuts)})
    with opened() as (connection, server):
        take(connection)

        def speak() -> None:
            for first, last in itertools.pairwise(places):
                server.sendall(stream[first:last])

        speaking = threading.Thread(target=speak)
        speaking.start()
        assert take_all(connection, len(messages)) == messages
        speaking.join()
        connection.give_back()


def test_what_comes_with_the_handshake_is_heard() -> None:
    with opened(frame(b"early") + frame(b"too")) as (connection, server):
        background = Background(connection)
        assert background.heard.get(timeout=GUARD_S) == b"early"
        assert background.heard.get(timeout=GUARD_S) == b"too"
        server.sendall(frame(b"later"))
        assert background.heard.get(timeout=GUARD_S) == b"later"
        connection.end(OSError("enough"))
        assert str(background.ended.get(timeout=GUARD_S)) == "enough"


def test_a_ping_is_answered_and_a_close_is_told_with_its_code() -> None:
    with opened() as (connection, server):
        background = Background(connection)
        server.sendall(frame(b"7", 0x89))
        assert read_frame(server) == (0x8A, b"7")
        server.sendall(frame(b"last") + frame(struct.pack(">H", 4401) + b"revoked", 0x88))
        assert background.heard.get(timeout=GUARD_S) == b"last"
        first, said = read_frame(server)
        assert (first, said[:2]) == (0x88, struct.pack(">H", 4401))
        server.close()
        error = background.ended.get(timeout=GUARD_S)
        assert isinstance(error, ConnectionClosed)
        assert error.rcvd is not None
        assert (error.rcvd.code, error.rcvd.reason) == (4401, "revoked")


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(b"\x81\x81\0\0\0\0a", id="masked"),
        pytest.param(b"\xf1\x01a", id="bits that mean nothing"),
        pytest.param(frame(b"a", 0x80), id="goes on with nothing"),
        pytest.param(frame(b"a" * 126, 0x89), id="a ping that is too long"),
        pytest.param(frame(b"a", 0x83), id="an unknown kind"),
        pytest.param(b"", id="nothing"),
        pytest.param(b"\x81\x05ab", id="a part of a message"),
    ],
)
def test_what_no_server_may_say_ends_it(said: bytes) -> None:
    with opened() as (connection, server):
        background = Background(connection)
        server.sendall(said)
        server.shutdown(socket.SHUT_WR)
        assert isinstance(background.ended.get(timeout=GUARD_S), WebSocketException)
        assert background.heard.empty()
        with pytest.raises(OSError, match="ended"):
            connection.send(b"more")
        assert not connection.take()


@pytest.mark.parametrize("cut", [1, 12, 30, 90, 10_000])
def test_a_refusal_comes_with_its_words(cut: int) -> None:
    said = b'HTTP/1.1 403 Forbidden\r\nContent-Length: 21\r\n\r\n{"error":"forbidden"}'
    ours, theirs = socket.socketpair()

    def refuse() -> None:
        theirs.recv(65_536)
        theirs.sendall(said[:cut])
        theirs.sendall(said[cut:])

    refusing = threading.Thread(target=refuse)
    refusing.start()
    with pytest.raises(InvalidStatus) as told:
        WebSocket(ours, "ws://test/", {}, time.monotonic() + GUARD_S)
    refusing.join()
    assert told.value.response.status_code == 403
    assert told.value.response.body == b'{"error":"forbidden"}'
    ours.close()
    theirs.close()


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 101", b"hello\r\n\r\n", b"x" * 200_000])
def test_what_is_no_handshake_is_an_error(said: bytes) -> None:
    ours, theirs = socket.socketpair()

    def speak() -> None:
        theirs.recv(65_536)
        theirs.settimeout(GUARD_S)
        with suppress(OSError):  # it may have heard enough
            theirs.sendall(said)
            theirs.shutdown(socket.SHUT_WR)

    speaking = threading.Thread(target=speak)
    speaking.start()
    with pytest.raises(WebSocketException):
        WebSocket(ours, "ws://test/", {}, time.monotonic() + GUARD_S)
    ours.close()
    speaking.join()
    theirs.close()


def test_nobody_waits_for_a_server_that_does_not_read() -> None:
    """A caller that reads, and sends more than the socket takes, still hears what comes."""
    messages = [bytes([n]) * 100_000 for n in range(100)]
    with opened() as (connection, server):
        background = Background(connection)
        for message in messages[:50]:
            connection.send(message)  # 5 MB, and nobody has read a byte of it
        take(connection)
        for message in messages[50:]:
            connection.send(message)
        server.sendall(frame(b"reply"))
        assert connection.read(GUARD_S) == [b"reply"]
        connection.give_back()
        assert [read_frame(server)[1] for _ in messages] == messages
        server.sendall(frame(b"thanks"))
        assert background.heard.get(timeout=GUARD_S) == b"thanks"


def test_while_a_caller_reads_the_thread_does_not() -> None:
    with opened() as (connection, server):
        background = Background(connection)
        take(connection)
        assert not connection.take()
        server.sendall(frame(b"for the caller"))
        assert connection.read(GUARD_S) == [b"for the caller"]
        connection.give_back()
        server.sendall(frame(b"for the thread"))
        assert background.heard.get(timeout=GUARD_S) == b"for the thread"
        assert background.heard.empty()


def test_a_caller_that_reads_is_told_of_the_end() -> None:
    with opened() as (connection, server):
        background = Background(connection)
        take(connection)
        server.close()
        with pytest.raises(ConnectionClosed) as told:
            connection.read(GUARD_S)
        connection.end(told.value)
        connection.give_back()
        assert background.ended.get(timeout=GUARD_S) is told.value


def test_a_silent_server_is_asked_and_then_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websocket, "BEAT_S", 2.0)
    with opened() as (connection, server):
        background = Background(connection)
        limit = time.monotonic() + 3 * websocket.BEAT_S
        while time.monotonic() < limit:  # any word is a sign of life
            server.sendall(frame(b"here"))
            assert background.heard.get(timeout=GUARD_S) == b"here"
        assert background.ended.empty()
        assert read_frame(server) == (0x89, b"")
        assert isinstance(background.ended.get(timeout=GUARD_S), TimeoutError)


# ---- with a server ---------------------------------------------------------------------------


@pytest.fixture(params=["epoll", "without", "tls"])
def remote(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Any]:
    options: dict[str, Any] = {}
    trusted: dict[str, Any] = {}
    if request.param == "without":
        monkeypatch.delattr(select, "epoll")
    if request.param == "tls":
        cert, key = certificate(tmp_path)
        options, trusted = {"tls_cert": cert, "tls_key": key}, {"ca": str(cert)}
    with (
        tideline.open(":memory:") as db,
        running(db, **options) as url,
        tideline.connect(url, **trusted) as found,
    ):
        yield found


def test_a_long_past_and_what_comes_meanwhile_arrive_whole(remote: Any) -> None:
    roads = remote.channel("roads")
    text = "x" * 3_000
    for n in range(300):
        roads.publish("a", {"n": n, "text": text})
    live = roads.subscribe("b", user="u")
    past = roads.subscribe("a", user="u", since_s=-600, until_s=60).past
    assert [event.body["n"] for event in past] == list(range(300))
    for n in range(300):
        roads.publish("b", {"n": n, "text": text})
    got = list(itertools.islice(live, 300))
    assert [event.body["n"] for event in got] == list(range(300))
    assert all(event.body["text"] == text for event in got)


def test_many_threads_get_each_its_own_reply(remote: Any) -> None:
    roads = remote.channel("roads")
    listener = roads.subscribe("a", user="listener")
    failed: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for n in range(40):
                id = f"{number}-{n}"
                assert roads.publish("a", {"id": id}, id=id).event.id == id
                sub = roads.subscribe(f"b{number}", user="u", id=f"s{id}")
                told = roads.publish(f"b{number}", {"n": n})
                assert sub.id in [other.id for other in told.subscriptions]
                assert [event.body for event in sub.take()] == [{"n": n}]
                sub.cancel()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(GUARD_S * 4)
    assert not failed
    ids = [event.body["id"] for event in listener.take()]
    assert len(ids) == len(set(ids)) == 200
    for number in range(5):
        mine = [id for id in ids if id.startswith(f"{number}-")]
        assert mine == [f"{number}-{n}" for n in range(40)]


def test_a_function_that_follows_is_never_called_inside_a_call(remote: Any) -> None:
    roads = remote.channel("roads")
    threads: queue.Queue[int] = queue.Queue()
    sub = roads.subscribe("a", user="u")
    sub.follow(lambda events, kind: threads.put(threading.get_ident()))
    for n in range(20):
        roads.publish("a", {"n": n})
        roads.subscribe("b", user="u")
    for _ in range(20):
        assert threads.get(timeout=GUARD_S) != threading.get_ident()


def test_a_publish_takes_the_open_connection_and_a_long_one_does_not() -> None:
    with tideline.open(":memory:") as db, running(db) as url, tideline.connect(url) as remote:
        roads = remote.channel("roads")

        def posts() -> int:
            text = urllib.request.urlopen(f"{url}/metrics").read().decode()
            lines = [line for line in text.splitlines() if "POST" in line and "/events" in line]
            return sum(int(float(line.split()[-1])) for line in lines)

        sub = roads.subscribe("a", user="u")
        tries = 100  # the thread may be just looking itself: then a call goes the other way
        for n in range(tries):
            before = posts()
            roads.publish("a", {"n": n})
            if posts() == before:
                break
        assert posts() == before
        roads.publish("a", {"text": "x" * 50_000})
        assert posts() == before + 1
        assert [list(event.body) for event in sub.take()] == [["n"]] * (n + 1) + [["text"]]


def test_a_publish_that_nobody_answers_is_not_made_twice() -> None:
    with (
        tideline.open(":memory:") as db,
        running(db) as url,
        tideline.connect(url, timeout_s=5) as remote,
    ):
        stored, roads = db.channel("roads"), remote.channel("roads")
        roads.subscribe("a", user="u")
        while remote._live._socket._taken:  # the thread may be just looking itself
            time.sleep(0.001)
        with stored.core.engine.lock, pytest.raises(Unavailable, match="does not answer"):
            roads.publish("a", {})
        metrics = urllib.request.urlopen(f"{url}/metrics").read().decode()
        assert not [line for line in metrics.splitlines() if "POST" in line and "/events" in line]


def test_an_interrupted_call_loses_nothing() -> None:
    with tideline.open(":memory:") as db, running(db) as url, tideline.connect(url) as remote:
        stored = db.channel("roads")
        roads = remote.channel("roads")
        sub = roads.subscribe("a", user="u")
        stored.publish("a", {"n": 1})
        main = threading.main_thread().ident
        assert main is not None

        def interrupt(number: int, place: Any) -> None:
            raise KeyboardInterrupt

        def when_it_waits() -> None:
            while "late" not in [feed.id for feed in list(remote._live._feeds.values())]:
                time.sleep(0.001)
            time.sleep(0.1)  # sooner, it would meet the call on its way, which is as good
            signal.pthread_kill(main, signal.SIGUSR1)

        before = signal.signal(signal.SIGUSR1, interrupt)
        try:
            # The server stands still, so that the call waits until the signal comes.
            threading.Thread(target=when_it_waits).start()
            with stored.core.engine.lock, pytest.raises(KeyboardInterrupt):
                roads.subscribe("b", user="u", id="late")
        finally:
            signal.signal(signal.SIGUSR1, before)
        stored.publish("a", {"n": 2})
        assert [event.body["n"] for event in sub.take()] == [1, 2]
        assert roads.subscribe("b", user="u", id="late").id == "late"
