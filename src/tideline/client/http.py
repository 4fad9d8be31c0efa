"""Requests to the server: kept-alive connections, errors as a database raises them, retries.

A call waits for an answer `timeout_s` at most, in all. What is made again when the connection
fails:

    no connection could be made     every call: nothing was sent
    it broke before the answer      a call that may be made `again`: one that only reads, or
                                    that changes nothing when it had landed (an id, `once`)

Any other call that breaks is `Unavailable` and says that it may have landed. Waits between
tries grow (`waits`). A server that was asked too much (429) says when to come back: the call waits
for that, if it has the time. Any other answer is never asked for twice.

Safe from any thread: each call takes a connection of the pool for itself.
"""

from __future__ import annotations

import random
import ssl
import time
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import msgspec
import urllib3

from tideline.client.wire import encode, raise_error
from tideline.errors import Closed, InvalidRequest, Unavailable

__all__ = ["Http", "waits"]

_UNSENT = (urllib3.exceptions.NewConnectionError, urllib3.exceptions.ConnectTimeoutError)
_KEPT = 8  # connections that stay open between calls


class _OneSegment:
    """Sends a request's head and body in one go.

    By themselves they are two writes, and the server is woken for each: a small call took a third
    longer.
    """

    _held: list[bytes] | None = None

    def request(self, *args: Any, **options: Any) -> None:
        self._held = []
        try:
            super().request(*args, **options)  # type: ignore[misc]
            whole = b"".join(self._held)
        finally:
            self._held = None
        self.send(whole)

    def send(self, data: Any) -> None:
        if self._held is None:
            super().send(data)  # type: ignore[misc]
        else:
            self._held.append(data)


class _Connection(_OneSegment, urllib3.connection.HTTPConnection):
    pass


class _TlsConnection(_OneSegment, urllib3.connection.HTTPSConnection):
    pass


class Http:
    """A server, by its address."""

    def __init__(
        self, url: str, token: str | None, timeout_s: float, tls: ssl.SSLContext | None
    ) -> None:
        parts = urlsplit(url) if isinstance(url, str) else None
        if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidRequest("the address must be http://HOST:PORT or https://...", url=url)
        if parts.username or parts.query or parts.fragment:
            raise InvalidRequest("the address must be a host, a port and a path; a token is given "
                                 "as token=", host=parts.hostname)  # fmt: skip
        if token is not None and not (isinstance(token, str) and token.isascii() and token):
            raise InvalidRequest("token must be text")
        self.url = url.rstrip("/")
        self.timeout_s = timeout_s
        self.tls = tls
        self.headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._path = parts.path.rstrip("/")
        options: dict[str, Any] = {"ssl_context": tls} if parts.scheme == "https" and tls else {}
        self._pool = urllib3.connection_from_url(url, maxsize=_KEPT, retries=False, **options)
        self._pool.ConnectionCls = _TlsConnection if parts.scheme == "https" else _Connection
        self._closed = False

    def request(
        self, method: str, *path: str, query: Mapping[str, Any] | None = None, body: Any = None,
        arrow: bytes | None = None, again: bool = True,
    ) -> urllib3.BaseHTTPResponse:  # fmt: skip
        """Ask, and wait for the answer; raise what it says unless it is one of success.

        The parts of `path` are names and may hold any character. `body` goes as JSON, `arrow`
        as it is.
        """
        target = "/".join([self._path, *(quote(part, safe="") for part in path)])
        asked = {name: value for name, value in (query or {}).items() if value is not None}
        if asked:
            target += "?" + urlencode(asked)
        headers = dict(self.headers)
        data = arrow
        if arrow is not None:
            headers["Content-Type"] = "application/vnd.apache.arrow.stream"
        elif body is not None:
            headers["Content-Type"] = "application/json"
            data = encode(body)
        answer, tried = self._ask(method, target, headers, data, again)
        if tried and method == "DELETE" and answer.status == 404:
            return answer  # the try whose answer was lost has done it
        if not 200 <= answer.status < 300:
            raise_error(answer.status, answer.data)
        return answer

    def check(self) -> None:
        """Ask once whether a Tideline server is there and takes the token."""
        target = f"{self._path}/v1/channels"
        answer, _ = self._ask("GET", target, self.headers, None, again=True, tries=False)
        # A token that may not list channels is still one.
        if answer.status not in (200, 403, 404):
            raise_error(answer.status, answer.data)
        if "json" not in answer.headers.get("Content-Type", "") or answer.status == 404:
            raise Unavailable("this is not a Tideline server", url=self.url)

    def json(self, method: str, *path: str, type: Any = Any, **options: Any) -> Any:
        """Ask, and read the answer as JSON."""
        answer = self.request(method, *path, **options)
        try:
            return msgspec.json.decode(answer.data, type=type)
        except msgspec.MsgspecError as error:
            raise Unavailable(
                f"this is not the answer of a Tideline server: {error}", url=self.url
            ) from None

    def _ask(
        self, method: str, target: str, headers: dict[str, str], data: bytes | None, again: bool,
        tries: bool = True,
    ) -> tuple[urllib3.BaseHTTPResponse, bool]:  # fmt: skip
        """The answer, and whether an earlier try may have been heard."""
        limit = time.monotonic() + self.timeout_s
        heard = False
        failed: Exception
        for wait_s in waits():
            self.check_open()
            left_s = max(limit - time.monotonic(), 0.001)
            timeout = urllib3.Timeout(connect=left_s, read=left_s)
            try:
                answer = self._pool.urlopen(method, target, data, headers, timeout=timeout)
                if _whole(answer):
                    rest_s = _rest_s(answer)
                    if not tries or rest_s is None or time.monotonic() + rest_s >= limit:
                        return answer, heard
                    time.sleep(rest_s)
                    continue
                failed = urllib3.exceptions.ProtocolError("the answer was cut")
            except urllib3.exceptions.HTTPError as error:
                failed = error
            except OSError as error:  # a name that cannot be resolved, no file handle left
                failed = urllib3.exceptions.NewConnectionError(self._pool, str(error))  # type: ignore[arg-type]
            heard = heard or not isinstance(failed, _UNSENT)
            if heard and not again:
                raise Unavailable(
                    "the connection broke before the answer: the call may have landed or not",
                    url=self.url, error=str(failed),
                ) from None  # fmt: skip
            over = time.monotonic() + wait_s >= limit
            if not tries or over or isinstance(failed, urllib3.exceptions.SSLError):
                raise Unavailable(
                    "the server cannot be reached", url=self.url, error=str(failed)
                ) from None
            time.sleep(wait_s)
        raise AssertionError("waits() never ends")

    def check_open(self) -> None:
        """Refuse to go on after `close`."""
        if self._closed:
            raise Closed("the connection to the server was closed", url=self.url)

    def close(self) -> None:
        """Let go of the connections; closing twice is allowed."""
        self._closed = True
        self._pool.close()


def _whole(answer: urllib3.BaseHTTPResponse) -> bool:
    """Whether an answer is complete: one that is cut inside its headers looks like an empty one.

    Headers come before the body, so a body of the length they say has all of them before it.
    """
    if "chunked" in answer.headers.get("Transfer-Encoding", ""):
        return True  # a proxy did that; its end is marked
    length = answer.headers.get("Content-Length", "")
    return length.isdigit() and int(length) == len(answer.data)


def _rest_s(answer: urllib3.BaseHTTPResponse) -> float | None:
    """How long the server wants to be left alone; None when that is not what it says."""
    after = answer.headers.get("Retry-After", "")
    return float(after) if answer.status == 429 and after.isdigit() else None


def waits(first_s: float = 0.02, most_s: float = 2.0) -> Iterator[float]:
    """How long to wait between tries: at once at first, then longer, never all at one time.

    >>> spans = waits()
    >>> next(spans), [next(spans) <= limit for limit in (0.02, 0.04, 0.08)]
    (0.0, [True, True, True])
    """
    yield 0.0
    span_s = first_s
    while True:
        yield span_s * random.uniform(0.5, 1.0)
        span_s = min(span_s * 2, most_s)
