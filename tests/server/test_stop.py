"""A stop waits for no request that does not come, and tells every caller why, as any refusal."""

from __future__ import annotations

import json
import logging
import socket
import struct
import subprocess
import sys
import threading
from pathlib import Path
from traceback import walk_stack
from typing import Any
from urllib.parse import urlsplit

import pytest
from talk import eventually

import tideline
from tideline.server import running


def answer_of(sock: socket.socket) -> tuple[int, dict[str, str], Any]:
    """Status, headers and document of the answer that comes before the connection ends."""
    data = bytearray()
    while piece := sock.recv(1 << 16):
        data += piece
    head, _, body = bytes(data).partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines)
    return int(first.split()[1]), headers, json.loads(body)


def connected(url: str) -> socket.socket:
    address = urlsplit(url)
    return socket.create_connection((address.hostname, address.port), timeout=10)


def stop(server: Any) -> threading.Thread:
    """Begin to stop a server; the thread ends when it has."""
    stopping = threading.Thread(target=server.__exit__, args=(None, None, None))
    stopping.start()
    return stopping


def check_told(answer: tuple[int, dict[str, str], Any]) -> None:
    """A request that the stop cut short was told so."""
    status, headers, document = answer
    assert (status, headers["connection"]) == (503, "close")
    assert document["error"] == {"kind": "Unavailable", "message": "the server is stopping"}


def test_a_stop_does_not_wait_for_half_a_body(caplog: pytest.LogCaptureFixture) -> None:
    with tideline.open(":memory:") as database:
        channel = database.channel("roads")
        server = running(database, stop_s=20)
        with connected(server.__enter__()) as sock:
            sock.sendall(
                b"POST /v1/channels/roads/events HTTP/1.1\r\nHost: localhost\r\n"
                b"Content-Length: 99\r\nExpect: 100-continue\r\n\r\n"
            )
            assert sock.recv(4096).startswith(b"HTTP/1.1 100 ")  # somebody waits for the body
            sock.sendall(b'{"place": "a", ')
            stopping = stop(server)
            check_told(answer_of(sock))
            stopping.join()
        assert channel.stats().events == 0
    assert [r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR] == []


def is_running(name: str) -> bool:
    """Whether a thread is in a function of this name."""
    frames = [frame for top in sys._current_frames().values() for frame, _ in walk_stack(top)]
    return any(frame.f_code.co_name == name for frame in frames)


def test_a_request_that_takes_longer_than_a_stop_waits_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    body = b'{"events": [{"place": "a", "body": 1}]}'
    with tideline.open(":memory:") as database:
        channel = database.channel("roads")
        server = running(database, stop_s=0.2)
        with connected(server.__enter__()) as sock:
            with channel.core.engine.lock:
                sock.sendall(
                    b"POST /v1/channels/roads/events HTTP/1.1\r\nHost: localhost\r\n"
                    b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
                )
                eventually(lambda: is_running("_publish_many"))
                stopping = stop(server)
                check_told(answer_of(sock))
            stopping.join()
    assert [r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR] == []


LEFT_OPEN = """
import sys, tideline, urllib.request
from tideline.server import running
db = tideline.open(sys.argv[1])
entered = running(db)
url = entered.__enter__()
remote = tideline.connect(url)
remote.channel("news").subscribe("a", user="ann", until_s=60)
print(urllib.request.urlopen(url + "/v1/channels").status)
sys.exit(7)
"""


def test_a_program_that_never_leaves_running_ends(tmp_path: Path) -> None:
    """As at a prompt: it is stopped then, and the folder is whole."""
    done = subprocess.run(
        [sys.executable, "-c", LEFT_OPEN, str(tmp_path / "data")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (7, "200\n", "")
    with tideline.open(tmp_path / "data") as db:
        assert len(db.channel("news").subscriptions()) == 1


def test_a_client_that_leaves_in_the_middle_of_an_answer_is_no_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with tideline.open(":memory:") as db, running(db) as url:
        documents = db.collection("c", key="id")
        documents.put_many([{"id": n, "x": "y" * 1_000} for n in range(20_000)])
        asked = b"GET /v1/collections/c/documents HTTP/1.1\r\nHost: localhost\r\n\r\n"
        for _ in range(10):
            with connected(url) as sock:
                sock.sendall(asked * 3)
                assert sock.recv(100)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    assert [one for one in caplog.records if one.levelno >= logging.WARNING] == []
