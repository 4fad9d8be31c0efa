"""Requests to the server: kept-alive connections, errors as a database raises them, retries.

A call waits `timeout_s` at most for its answer to begin, all tries together, and as long for each
further piece of it. What is made again when the connection fails:

    no connection could be made     every call: nothing was sent
    it broke before the answer      a call that may be made `again`: one that only reads, or
                                    that changes nothing when it had landed (an id, `once`)

A node of a cluster that does not lead says who does, and is not asked again: nothing was done
there. With several addresses, the next one is asked when one does not answer.

Any other call that breaks is `Unavailable` and says that it may have landed. Waits between
tries grow (`Places.waits`). A server that was asked too much (429) has done nothing and says when
to come back: every call waits for that, if it has the time. Any other answer is never asked for
twice.

`Requests` is that much, and does not say how it waits; `Http` blocks the thread. It is safe from
any thread: each call takes a connection of the pool for itself. The one that waits in an event
loop is aclient/http.py.
"""

from __future__ import annotations

import socket
import ssl
import time
import weakref
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from tideline.client.blocking import run
from tideline.client.connection import Answer, Broken, Endpoint, NoConnection, Pool
from tideline.client.places import Place, Places
from tideline.client.tables import ARROW
from tideline.client.wire import WireError, encode, raise_error
from tideline.errors import Closed, InvalidRequest, Unavailable

__all__ = ["Http", "Requests", "trusting"]

_LEAST_S = 0.05  # between two questions to nodes of which none leads
_AGAIN = ("OutcomeUnknown", "Closed")


class Requests:
    """A server, by its address; how a request goes there and back is for the classes below."""

    def __init__(
        self, url: str | Sequence[str], token: str | None, timeout_s: float,
        tls: ssl.SSLContext | None,
    ) -> None:  # fmt: skip
        # What ends a line would begin another header.
        if token is not None and not (
            isinstance(token, str) and token.isascii() and token.isprintable() and token
        ):
            raise InvalidRequest("token must be text")
        self.timeout_s = timeout_s
        self.headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self.places = Places(url, self.headers, tls)
        """The servers, if there are several."""
        self._closed = False

    @property
    def url(self) -> str:
        """The address that is asked now."""
        return self.places.here().url

    @property
    def endpoint(self) -> Endpoint:
        """Where that is."""
        return self.places.here().endpoint

    async def _exchange(
        self, method: str, target: str, kind: str | None, data: bytes | None, limit: float
    ) -> Answer:
        """Send one request and read its answer; `Failure` when there is none."""
        raise NotImplementedError

    async def _sleep(self, span_s: float) -> None:
        raise NotImplementedError

    async def ask(
        self, method: str, *path: str, query: Mapping[str, Any] | None = None, body: Any = None,
        arrow: bytes | None = None, again: bool = True,
    ) -> Answer:  # fmt: skip
        """Ask, and wait for the answer; raise what it says unless it is one of success.

        The parts of `path` are names and may hold any character. `body` goes as JSON, `arrow`
        as it is.
        """
        target = _joined(path)
        if query:
            asked = {name: value for name, value in query.items() if value is not None}
            if asked:
                target += "?" + urlencode(asked)
        kind, data = ARROW, arrow
        if arrow is None and body is not None:
            kind, data = "application/json", encode(body)
        answer, tried = await self._tried(method, target, kind, data, again)
        if tried and method == "DELETE" and answer.status == 404:
            return answer  # the try whose answer was lost has done it
        if not 200 <= answer.status < 300:
            raise_error(answer.status, answer.data)
        return answer

    async def ask_check(self) -> None:
        """Ask whether a Tideline server is there and takes the token; one that is not there is
        not asked again."""
        answer, _ = await self._tried("GET", "/v1/channels", "", None, again=True, tries=False)
        # A token that may not list channels is still one.
        if answer.status not in (200, 403, 404):
            raise_error(answer.status, answer.data)
        if "json" not in answer.headers.get("content-type", "") or answer.status == 404:
            raise Unavailable("this is not a Tideline server", url=self.url)

    async def ask_json(self, method: str, *path: str, type: Any = Any, **options: Any) -> Any:
        """Ask, and read the answer as JSON."""
        answer = await self.ask(method, *path, **options)
        try:
            return _decoder(type).decode(answer.data)
        except msgspec.MsgspecError as error:
            raise Unavailable(
                f"this is not the answer of a Tideline server: {error}", url=self.url
            ) from None

    async def _tried(
        self, method: str, target: str, kind: str, data: bytes | None, again: bool,
        tries: bool = True,
    ) -> tuple[Answer, bool]:  # fmt: skip
        """The answer, and whether an earlier try may have been heard."""
        limit = time.monotonic() + self.timeout_s
        heard = False
        failed: NoConnection | Broken
        left = len(self.places)  # that were not asked yet
        for wait_s in self.places.waits():
            self.check_open()
            place = self.places.here()
            try:
                answer = await self._exchange(method, place.path + target, kind, data, limit)
            except (NoConnection, Broken) as error:
                failed = error
                self.places.leave(place)
                left -= 1
            else:
                said = _said(answer)
                what = "" if said is None else said.kind
                over = time.monotonic() + max(wait_s, _LEAST_S) >= limit
                if what == "NotLeading" and not over:  # nothing was done
                    leader = None if said is None else said.values.get("leader")
                    self.places.elsewhere(place, leader)
                    await self._sleep(max(wait_s, _LEAST_S) if wait_s else 0.0)
                    continue
                if what in _AGAIN and len(self.places) > 1 and again and not over:
                    heard = True
                    self.places.elsewhere(place, None)
                    await self._sleep(max(wait_s, _LEAST_S))
                    continue
                rest_s = _rest_s(answer)
                if rest_s is None or time.monotonic() + rest_s >= limit:
                    return answer, heard
                await self._sleep(rest_s)
                continue
            heard = heard or isinstance(failed, Broken)
            if heard and not again:
                raise Unavailable(
                    "the connection broke before the answer: the call may have landed or not",
                    url=self.url, error=str(failed),
                ) from None  # fmt: skip
            over = time.monotonic() + wait_s >= limit
            if (not tries and left <= 0) or over or failed.final:
                raise Unavailable(
                    "the server cannot be reached", url=self.url, error=str(failed)
                ) from None
            await self._sleep(wait_s)
        raise AssertionError("waits never end")

    def check_open(self) -> None:
        """Refuse to go on after `close`."""
        if self._closed:
            raise Closed("the connection to the server was closed", url=self.url)


class Http(Requests):
    """A server, asked by calls that block."""

    def __init__(
        self, url: str | Sequence[str], token: str | None, timeout_s: float,
        tls: ssl.SSLContext | None,
    ) -> None:  # fmt: skip
        super().__init__(url, token, timeout_s, tls)
        self._pool = Pool(self.endpoint)
        self.places.moved = self._pool.move
        self.followers: weakref.WeakSet[Any] = weakref.WeakSet()
        """Who has a connection of its own, and is told when this is closed."""

    def request(self, method: str, *path: str, **options: Any) -> Answer:
        """`Requests.ask`."""
        return run(self.ask(method, *path, **options))

    def json(self, method: str, *path: str, **options: Any) -> Any:
        """`Requests.ask_json`."""
        return run(self.ask_json(method, *path, **options))

    def check(self) -> None:
        """`Requests.ask_check`."""
        run(self.ask_check())

    def connect(self, limit: float, place: Place) -> socket.socket:
        """A connected socket of one's own; `OSError` when there is none before `limit`."""
        return self._pool.connect(limit, place.endpoint)

    def close(self) -> None:
        """Let go of the connections; closing twice is allowed."""
        self._closed = True
        self._pool.close()
        for follower in list(self.followers):
            follower.shut()

    async def _exchange(
        self, method: str, target: str, kind: str | None, data: bytes | None, limit: float
    ) -> Answer:
        return self._pool.request(method, target, kind, data, limit)

    async def _sleep(self, span_s: float) -> None:
        time.sleep(span_s)


def trusting(ca: str) -> ssl.SSLContext:
    """TLS with servers that the certificates in a file vouch for."""
    try:
        return ssl.create_default_context(cafile=ca)
    except (OSError, ssl.SSLError, TypeError) as error:
        raise InvalidRequest(f"ca must be a file with certificates: {error}", path=ca) from None


@lru_cache(256)
def _joined(path: tuple[str, ...]) -> str:
    """The parts of a path, quoted; most calls ask for one of a few.

    >>> _joined(("v1", "channels", "a/b c"))
    '/v1/channels/a%2Fb%20c'
    """
    return "".join("/" + quote(part, safe="") for part in path)


@lru_cache(64)
def _decoder(type: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(type)


def _said(answer: Answer) -> WireError | None:
    """A refusal, of those that a node of a cluster gives."""
    if answer.status not in (307, 503):
        return None
    try:
        return msgspec.json.decode(answer.data, type=dict[str, WireError])["error"]
    except (msgspec.MsgspecError, KeyError):
        return None


def _rest_s(answer: Answer) -> float | None:
    """How long the server wants to be left alone; None when that is not what it says."""
    if answer.status != 429:
        return None
    after = answer.headers.get("retry-after", "")
    return float(after) if after.isascii() and after.isdigit() else None
