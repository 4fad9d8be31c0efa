"""Nothing missed, nothing twice: clients that are cut and resume while events keep arriving.

The race where others fail: history is replayed while live events come in. A publisher runs flat
out; each client reads for a while, is cut at a random moment, in the middle of a frame or between
two, and resumes with the token of the last event it handled. What each has handled at the end is
every event, once, in order.
"""

from __future__ import annotations

import contextlib
import json
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from talk import Api, Talk, eventually
from websockets.client import ClientProtocol
from websockets.exceptions import ConnectionClosed
from websockets.uri import parse_uri

HERE = Path(__file__).parent


class Raw:
    """A WebSocket read byte by byte, so that it can be cut anywhere."""

    def __init__(self, url: str, path: str) -> None:
        address = urlsplit(url)
        assert address.hostname is not None
        assert address.port is not None
        self.socket = socket.create_connection((address.hostname, address.port), timeout=30)
        self._protocol = ClientProtocol(
            parse_uri(url.replace("http", "ws", 1) + path), max_size=None
        )
        self._protocol.send_request(self._protocol.connect())
        self._flush()

    def say(self, **request: Any) -> None:
        self._protocol.send_text(json.dumps(request).encode())
        self._flush()

    def _flush(self) -> None:
        for data in self._protocol.data_to_send():
            if data:
                self.socket.sendall(data)

    def open(self) -> None:
        while not self._protocol.events_received():
            self._protocol.receive_data(self.socket.recv(1 << 16))

    def read(self, size: int) -> list[Any]:
        """At most so many bytes more; the messages that are whole by then."""
        data = self.socket.recv(size)
        assert data, "the server hung up"
        self._protocol.receive_data(data)
        frames = self._protocol.events_received()
        return [
            json.loads(line)
            for frame in frames
            for line in bytes(frame.data).decode().split("\n")  # type: ignore[union-attr]
        ]

    def cut(self) -> None:
        """Gone, without a word."""
        self.socket.close()


class Client(threading.Thread):
    """Follows one subscription over many cuts."""

    def __init__(self, url: str, channel: str, id: str, seed: int, stop: threading.Event) -> None:
        super().__init__()
        self._url, self._channel, self._id = url, channel, id
        self._random = random.Random(seed)
        self._stop_asked = stop
        self.got: list[Any] = []
        self.cuts = 0
        self.failed: BaseException | None = None
        self._token: str | None = None

    def run(self) -> None:
        try:
            while not self._stop_asked.is_set():
                # From a few bytes, inside the first frame, to hundreds of events.
                self._session(int(10 ** self._random.uniform(1, 5.3)))
                self.cuts += 1
            self._session(None)
        except BaseException as error:
            self.failed = error

    def _session(self, most_bytes: int | None) -> None:
        """Read so many bytes, then cut; None: until everything is there."""
        raw = Raw(self._url, "/v1/live?lines=1")
        try:
            raw.open()
            raw.say(do="resume", tag=1, channel=self._channel, id=self._id, after=self._token)
            if most_bytes is None:
                raw.say(do="sync", tag=2)
            else:
                raw.socket.settimeout(0.05)
            left = most_bytes or 0
            while most_bytes is None or left > 0:
                size = 1 << 16 if most_bytes is None else min(1 << 14, left)
                try:
                    messages = raw.read(size)
                except TimeoutError:
                    if self._stop_asked.is_set():
                        return
                    continue
                left -= size
                for message in messages:
                    if "event" in message:
                        self.got.append(message["event"]["body"])
                        self._token = message["token"]
                    if "synced" in message:
                        return
        finally:
            raw.cut()


def publish_inside(channel: Any, count: int) -> None:
    """A publisher in the server's own process, another thread than the event loop's."""
    for n in range(count):
        channel.publish("a", {"inside": n}, ttl_s=600)
        if n % 20 == 0:
            time.sleep(0.002)  # it would keep the interpreter to itself


def publish_outside(url: str, count: int) -> None:
    """A publisher over a WebSocket, flat out."""
    with Talk(url) as talk:
        sent = heard = 0
        while heard < count:
            while sent < min(count, heard + 200):
                talk.say(
                    do="publish", tag=sent, channel="c", place="a", body={"n": sent}, ttl_s=600
                )
                sent += 1
            assert "told" in talk.hear()
            heard += 1


def run_all(publishers: list[threading.Thread], clients: list[Client], cuts: int,
            stop: threading.Event) -> None:  # fmt: skip
    for thread in (*publishers, *clients):
        thread.start()
    for publisher in publishers:
        publisher.join()
    eventually(lambda: min(client.cuts for client in clients) >= cuts or
               any(client.failed for client in clients), 60)  # fmt: skip
    stop.set()
    for client in clients:
        client.join()
    assert [client.failed for client in clients] == [None] * len(clients)


@pytest.mark.parametrize("condition", [None, {"$nor": [{"x": 1}]}])
def test_cut_and_resumed_at_random_under_fire(
    serve: Callable[..., Any], condition: dict[str, Any] | None
) -> None:
    database, url = serve()
    channel = database.channel("c")
    stop = threading.Event()
    for n in range(4):
        channel.subscribe("a", user=f"u{n}", id=f"s{n}", since_s=-60, where=condition)
    clients = [Client(url, "c", f"s{n}", n, stop) for n in range(4)]
    publishers = [
        threading.Thread(target=publish_inside, args=(channel, 1_500)),
        threading.Thread(target=publish_outside, args=(url, 1_500)),
    ]
    run_all(publishers, clients, 8, stop)
    wanted = [json.loads(body) for body in channel.scan("events")["body"].to_pylist()]
    assert len(wanted) == 3_000
    for client in clients:
        assert client.got == wanted


def test_cut_while_batches_and_prolongings_go_on(serve: Callable[..., Any]) -> None:
    """The same with batches, and with ends that keep moving."""
    database, url = serve()
    channel = database.channel("c")
    api = Api(url)
    stop = threading.Event()
    for n in range(4):
        channel.subscribe("a", user=f"u{n}", id=f"s{n}", since_s=-60, until_s=600, unseen=n < 2)
    clients = [Client(url, "c", f"s{n}", 100 + n, stop) for n in range(4)]

    def publish() -> None:
        for first in range(0, 2_500, 50):
            events = [{"place": "a", "body": first + k, "ttl_s": 600} for k in range(50)]
            assert api.post("/v1/channels/c/events", {"events": events}).status == 200

    def prolong() -> None:
        for n in range(100):
            there = f"/v1/channels/c/subscriptions/s{n % 4}"
            assert api.patch(there, {"until_s": 600 + n}).status == 200

    publishers = [threading.Thread(target=publish), threading.Thread(target=prolong)]
    run_all(publishers, clients, 6, stop)
    for client in clients:
        assert client.got == list(range(2_500))


def serve_process(folder: Path, port: int) -> tuple[subprocess.Popen[str], str]:
    """`tideline serve` in a process of its own, and its address."""
    command = [sys.executable, "-m", "tideline", "serve", str(folder), "--port", str(port),
               "--log", "warning"]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    line = process.stdout.readline()
    assert "serving at" in line
    return process, line.split()[-1]


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


def test_killed_and_started_again(tmp_path: Path) -> None:
    """kill -9 of the server while it publishes and delivers; what was acknowledged is there."""
    process, url = serve_process(tmp_path / "data", 0)
    port = urlsplit(url).port
    assert port is not None
    api = Api(url)
    api.put("/v1/channels/c")
    api.post("/v1/channels/c/subscriptions", {"place": "a", "user": "u", "id": "s", "until_s": 600})
    acknowledged: list[int] = []
    got: list[int] = []
    token = None
    try:
        for life in range(2):
            stop = threading.Event()

            def publish(life: int = life, stop: threading.Event = stop, url: str = url) -> None:
                n = life * 1_000_000
                with Talk(url) as talk:
                    try:
                        while not stop.is_set():
                            talk.say(do="publish", tag=n, channel="c", place="a", body=n, ttl_s=600)
                            if "told" in talk.hear():
                                acknowledged.append(n)
                            n += 1
                    except ConnectionClosed:
                        pass

            with Talk(url) as talk:
                talk.say(do="resume", tag=1, channel="c", id="s", after=token)
                publisher = threading.Thread(target=publish)
                publisher.start()
                heard = talk.hear_until("past_done")
                while sum("event" in message for message in heard) < 300:
                    heard.append(talk.hear())
                process.send_signal(signal.SIGKILL)
                with contextlib.suppress(ConnectionClosed):
                    while True:  # what was on its way
                        heard.append(talk.hear())
                events = [message for message in heard if "event" in message]
                got += [message["event"]["body"] for message in events]
                token = events[-1]["token"]
                stop.set()
                publisher.join()
            end(process)
            process, url = serve_process(tmp_path / "data", port)
        with Talk(url) as talk:
            talk.say(do="resume", tag=1, channel="c", id="s", after=token)
            rest = talk.hear_until("past_done")
            got += [m["event"]["body"] for m in rest if "event" in m]
    finally:
        end(process)
    assert got == sorted(set(got))  # in order, nothing twice
    assert set(acknowledged) <= set(got)  # nothing missed
