"""A request that is answered as it arrives is answered as any other, and in its turn."""

from __future__ import annotations

import itertools
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import many

import tideline
from tideline.server import running
from tideline.server.app import create_app
from tideline.server.heads import PART
from tideline.server.tokens import Tokens

CARS, ROADS = "/v1/collections/cars", "/v1/channels/roads"
TWICE = "X-Twice: 1\r\nX-Twice: 2\r\n"  # a field that comes twice is not read at once


def request(
    method: str, path: str, body: Any = None, *, fields: str = "", chunked: bool = False
) -> bytes:
    data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{fields}"
    if chunked:
        coded = b"%x\r\n%b\r\n0\r\n\r\n" % (len(data), data)
        return f"{head}Transfer-Encoding: chunked\r\n\r\n".encode() + coded
    length = f"Content-Length: {len(data)}\r\n" if body is not None else ""
    return f"{head}{length}\r\n".encode() + data


class Line:
    """A connection, and the answers on it."""

    def __init__(self, url: str) -> None:
        address = urlsplit(url)
        self._socket = socket.create_connection((address.hostname, address.port), timeout=60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._read = self._socket.makefile("rb")

    def __enter__(self) -> Line:
        return self

    def __exit__(self, *_: object) -> None:
        self._read.close()
        self._socket.close()

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def answer(self) -> tuple[str, dict[str, str], bytes]:
        """The next answer: its first line, headers without the time, its body."""
        first = self._read.readline().decode().strip()
        headers = {}
        while line := self._read.readline().decode().strip():
            name, _, value = line.partition(": ")
            headers[name] = value
        assert first, "the connection was closed"
        headers.pop("date")
        return first, headers, self._read.read(int(headers["content-length"]))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, list[str]]]:
    """A server, and what may be said of whoever asks it."""
    with tideline.open(tmp_path_factory.mktemp("whole") / "data", memory_mb=64) as db:
        cars = db.collection("cars", key="id", indexes={"road": "lazy"})
        cars.put_many({"id": n, "road": f"A{n % 3}", "owner": "ann"} for n in range(20))
        db.channel("roads").publish("a", {"n": 1}, id="e1", ttl_s=3_600)
        tokens = Tokens(db.path)
        texts = [
            tokens.create(["admin"])[0],
            tokens.create(["read:cars"])[0],
            tokens.create(["read", "write"], user="bob", rows={"cars": {"owner": "$user"}})[0],
            tokens.create(["publish:roads"], user="ann")[0],
            "tl_unknown_unknown",
        ]
        said = ["", "Authorization: Basic eA==\r\n"]
        said += [f"Authorization: Bearer {text}\r\n" for text in texts]
        with running(db) as url:
            yield url, said


ASKED: list[tuple[str, str, Any]] = [
    ("POST", f"{CARS}/get", {"key": 3}),
    ("POST", f"{CARS}/get", {"key": 99}),
    ("POST", f"{CARS}/get", {"kee": 3}),
    ("POST", f"{CARS}/get", b"{"),
    ("POST", f"{CARS}/get", b"\xff"),
    ("POST", f"{CARS}/get?x=1", {"key": 3}),
    ("POST", f"{CARS}/get", None),
    ("POST", f"{CARS}/find_one", {"where": {"id": 4}}),
    ("POST", f"{CARS}/find_one", {"where": {"id": 4}, "fields": ["road"], "sort": {"road": 1}}),
    ("POST", f"{CARS}/find_one", {"where": {"id": 4}, "skip": 1}),
    ("POST", f"{CARS}/find_one", {"where": {"id": 4}, "skip": -1}),
    ("POST", f"{CARS}/find_one", {"where": {"id": True}}),
    ("POST", f"{CARS}/find_one", {"where": {"id": 4.0}}),
    ("POST", f"{CARS}/find_one", {"where": {"id": 1 << 70}}),
    ("POST", f"{CARS}/find_one", {"where": {"road": "A1"}, "sort": {"id": 1}}),
    ("POST", f"{CARS}/find", {"where": {"id": 4}}),
    ("POST", f"{CARS}/find", {"where": {"road": "A1"}}),
    ("POST", f"{CARS}/update", {"key": 5, "change": {"$set": {"seen": 1}}}),
    ("POST", f"{CARS}/update", {"key": 99, "change": {"$set": {"seen": 1}}}),
    ("POST", f"{CARS}/update", {"key": 5, "change": {"$sett": {"seen": 1}}}),
    ("POST", f"{CARS}/insert", {"document": {"id": 6}}),
    ("POST", f"{CARS}/put", {"document": {"id": "x" * 9_000, "owner": "bob"}}),
    ("POST", f"{CARS}/delete", {"key": 98}),
    ("POST", f"{CARS}/count", {}),
    ("POST", "/v1/collections/none/get", {"key": 3}),
    ("POST", f"{CARS}/gett", {"key": 3}),
    ("PATCH", f"{CARS}/get", {"key": 3}),
    ("GET", f"{CARS}/documents/7", None),
    ("GET", f"{CARS}/documents/97", None),
    ("GET", f"{CARS}/documents/a%2Fb", None),
    ("POST", f"{ROADS}/events", {"place": "a", "body": 1, "ttl_s": 3_600, "id": "e2"}),
    ("POST", f"{ROADS}/events", {"events": []}),
    ("POST", f"{ROADS}/events", {"place": "a"}),
    ("GET", f"{ROADS}/events?place=a&limit=1", None),
    ("GET", f"{ROADS}/events/e1", None),
    ("GET", f"{ROADS}/subscriptions/none", None),
    ("GET", "/healthz", None),
]


def test_both_ways_give_the_same_answer(served: tuple[str, list[str]]) -> None:
    url, said = served
    with Line(url) as line:
        for who, (method, path, body) in itertools.product(said, ASKED):
            found = []
            for fields in (who, who, who + TWICE):  # the second time it is as it was the first
                line.send(request(method, path, body, fields=fields))
                found.append(line.answer())
            assert found[1] == found[2], (who, method, path, body)
            if "/events" not in path:  # which may be new the first time
                assert found[0] == found[1]


@settings(max_examples=many(60), deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["get", "find", "chunked", "twice", "bad"]),
                       st.integers(0, 19)), min_size=1, max_size=30),
    st.lists(st.integers(1, 400), max_size=12),
)  # fmt: skip
def test_answers_come_in_order_however_requests_arrive(
    served: tuple[str, list[str]], asked: list[tuple[str, int]], cuts: list[int]
) -> None:
    url, said = served
    sent = []
    for way, n in asked:
        path, body, fields = f"{CARS}/get", {"key": n}, said[2]
        if way == "find":  # in a thread, when it is its turn
            path, body = f"{CARS}/find", {"where": {"road": f"A{n % 3}", "id": {"$lte": n}},
                                          "sort": {"id": -1}, "limit": 1}  # fmt: skip
        elif way == "twice":
            fields += TWICE
        elif way == "bad":
            body = {"key": [n]}
        sent.append(request("POST", path, body, fields=fields, chunked=way == "chunked"))
    stream = b"".join(sent)
    with Line(url) as line:
        at = 0
        for size in cuts:
            line.send(stream[at : at + size])
            at += size
        line.send(stream[at:])
        for way, n in asked:
            first, _, body = line.answer()
            found = json.loads(body)
            if way == "bad":
                assert (first, found["error"]["kind"]) == ("HTTP/1.1 400 Bad Request",
                                                           "InvalidRequest")  # fmt: skip
            else:
                one = found["result"][0] if way == "find" else found["result"]
                assert (first, one["id"]) == ("HTTP/1.1 200 OK", n)


def test_what_is_whole_and_what_is_not(tmp_path: Path) -> None:
    with tideline.open(tmp_path / "data") as db:
        heads = create_app(db).heads
        get = request("POST", f"{CARS}/get", {"key": 1})

        def read(data: bytes, at: int = 0) -> Any:
            return heads.read(data, at, ("127.0.0.1", 1), "http")

        for _ in range(2):
            whole = read(b"x" * 7 + get + get, 7)
            assert (whole.body, whole.end) == (b'{"key": 1}', 7 + len(get))
            assert whole.scope["path"] == f"{CARS}/get"
            assert whole.scope["path_params"] == {"collection": "cars"}
            assert (b"content-length", b"10") in whole.scope["headers"]
        found = read(request("GET", f"{ROADS}/events?place=a&limit=1"))
        assert (found.scope["query_string"], found.body) == (b"place=a&limit=1", b"")
        for size in range(len(get)):
            assert read(get[:size]) is PART
        unusual = [
            get.replace(b"Host", b" Host"),
            get.replace(b"Host: localhost", b"Host : localhost"),
            get.replace(b"Host: localhost", b"Host: elsewhere.example"),
            get.replace(b"Host: localhost\r\n", b""),
            get.replace(b"\r\nHost", b"\nHost"),
            get.replace(b"10\r\n", b"10\r\n 3\r\n"),
            get.replace(b"10\r\n", b"+10\r\n"),
            get.replace(b"10\r\n", b"10\r\nContent-Length: 10\r\n"),
            get.replace(b"10\r\n", b"10\r\ncontent-length: 3\r\n"),
            get.replace(b"10\r\n", b"9999999999\r\n"),
            get.replace(b"10\r\n", b"999999\r\n"),
            get.replace(b"HTTP/1.1", b"HTTP/1.0"),
            get.replace(b"/get ", b"/get#x "),
            get.replace(b"/get ", b"/get?a b "),
            get.replace(b"/get ", b"/g%65t "),
            get.replace(b"/get ", b"//get "),
            get.replace(b"/get ", b"/nothing/here "),
            get.replace(b"POST /v1", b"POST http://localhost/v1"),
            get.replace(b"POST", b"HEAD"),
            request("POST", f"{CARS}/get", {"key": 1}, chunked=True),
            *(request("POST", f"{CARS}/get", {"key": 1}, fields=fields + "\r\n") for fields in (
                "Connection: close", "Upgrade: websocket", "Expect: 100-continue", "X:1",
                "Origin: http://elsewhere.example", "X: \x7f", TWICE.strip(), "X: " + "x" * 9_000,
            )),
            request("GET", f"{CARS}/documents/7", {"key": 1}),  # which takes no body
        ]  # fmt: skip
        for data in unusual:
            for _ in range(2):
                assert read(data) is None, data
