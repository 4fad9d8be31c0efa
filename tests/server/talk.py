"""Talking to a server over real sockets, in few words.

api = Api(url)                          api.post("/v1/channels/c/events", {...}) -> Answer
with Talk(url) as talk:                 a WebSocket on /v1/live
    talk.say(do="subscribe", tag=1, ...)
    talk.hear()                         the next message, beats left out
"""

from __future__ import annotations

import http.client
import json
import time
from types import TracebackType
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

WAIT_S = 30.0
ROADS = "/v1/channels/roads"
EVENT = {"place": "a", "body": 1, "ttl_s": 60}


class Answer(NamedTuple):
    status: int
    body: bytes
    headers: dict[str, str]

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> tuple[int, str]:
        """Status and kind of a refusal."""
        return self.status, self.json["error"]["kind"]


class Api:
    """Requests, each on a connection of its own."""

    def __init__(self, url: str, token: str | None = None) -> None:
        self.url = url
        self.token = token

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        data: bytes | None = None,
        **headers: str,
    ) -> Answer:
        address = urlsplit(self.url)
        assert address.hostname is not None
        connection = http.client.HTTPConnection(address.hostname, address.port, timeout=WAIT_S)
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if self.token is not None:
            sent.setdefault("Authorization", f"Bearer {self.token}")
        if body is not None:
            data = json.dumps(body).encode()
        try:
            connection.request(method, path, body=data, headers=sent)
            answer = connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, answer.read(), found)
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Answer:
        return self.call("GET", path, **headers)

    def post(self, path: str, body: Any = None, **options: Any) -> Answer:
        return self.call("POST", path, body, **options)

    def put(self, path: str, body: Any = None, **options: Any) -> Answer:
        return self.call("PUT", path, body, **options)

    def patch(self, path: str, body: Any = None, **options: Any) -> Answer:
        return self.call("PATCH", path, body, **options)

    def delete(self, path: str, **options: Any) -> Answer:
        return self.call("DELETE", path, **options)


class Talk:
    """A WebSocket."""

    def __init__(
        self, url: str, path: str = "/v1/live", *, token: str | None = None, **options: Any
    ) -> None:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        headers |= options.pop("headers", {})
        self._connect = connect(
            url.replace("http", "ws", 1) + path,
            additional_headers=headers,
            compression=None,
            max_size=None,
            ping_interval=None,
            **options,
        )
        self.socket = self._connect.__enter__()

    def say(self, **request: Any) -> None:
        self.socket.send(json.dumps(request))

    def hear(self, wait_s: float = WAIT_S) -> Any:
        """The next message that is no heartbeat."""
        while True:
            message = json.loads(self.socket.recv(timeout=wait_s))
            if "beat" not in message:
                return message

    def hear_until(self, key: str) -> list[Any]:
        """Messages up to the first that has this field."""
        found = [self.hear()]
        while key not in found[-1]:
            found.append(self.hear())
        return found

    def hear_close(self) -> tuple[list[Any], int]:
        """What still comes, and the code that the connection is closed with."""
        found: list[Any] = []
        try:
            while True:
                text = self.socket.recv(timeout=WAIT_S)
                found += [json.loads(line) for line in text.split("\n")]
        except ConnectionClosed as closed:
            return found, closed.rcvd.code if closed.rcvd else 1006

    def sync(self) -> list[Any]:
        """What was sent before now."""
        self.say(do="sync", tag="sync")
        return self.hear_until("synced")[:-1]

    def __enter__(self) -> Talk:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._connect.__exit__(kind, value, trace)


def eventually(check: Any, wait_s: float = WAIT_S) -> Any:
    """The first true value of `check`, which something that runs elsewhere will make true."""
    limit = time.monotonic() + wait_s
    while True:
        found = check()
        if found:
            return found
        assert time.monotonic() < limit, "it did not happen in time"
        time.sleep(0.005)


def as_(guarded: dict[str, Any], who: str) -> Api:
    return Api(guarded["url"], guarded[who])


def refused_socket(url: str, path: str = "/v1/live", **options: Any) -> tuple[int, str]:
    with pytest.raises(InvalidStatus) as refused:
        Talk(url, path, **options)
    response = refused.value.response
    assert response.body is not None
    return response.status_code, json.loads(response.body)["error"]["kind"]
