"""Where the servers of a client are: one, or the nodes of a cluster.

    here()                    the one that is asked now
    leave(place)              it does not answer: ask the next one
    elsewhere(place, leader)  it does not lead: ask the one that does, or the next one
    waits()                   how long to wait between tries

A client that was told one address learns of others when a node says who leads. While nodes answer
and none leads, one soon will: waits stay short then. Safe from any thread.
"""

from __future__ import annotations

import math
import random
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import SplitResult, quote, urlsplit

from tideline.client.connection import Endpoint
from tideline.errors import InvalidRequest

__all__ = ["Place", "Places"]

_LONGEST_S = 2.0  # between tries
_NONE_LEADS_S = 0.1  # the same while nodes answer and none leads
_ELECTED_S = 10.0  # so long after the last that said so
_CONNECT_S = 1.5  # for a connection, where the next server can be asked instead
_BASE = "/%:@!$&'()*+,;=~"  # what stays as it is in the path of an address


class Place(NamedTuple):
    """A server."""

    url: str
    path: str
    """The beginning of every path there, quoted."""
    endpoint: Endpoint

    @property
    def live(self) -> str:
        """The address of its live connection."""
        return "ws" + self.url.removeprefix("http") + "/v1/live?lines=1"


class Places:
    """The servers that one client may ask."""

    def __init__(
        self, urls: str | Sequence[str], headers: Mapping[str, str], tls: ssl.SSLContext | None
    ) -> None:
        """`urls`: an address, several with commas between, or a list of them."""
        self._headers, self._tls = headers, tls
        found: Sequence[Any] = [urls]
        if isinstance(urls, str):
            found = urls.split(",")
        elif isinstance(urls, (list, tuple)) and urls:
            found = urls
        self._places = [self._place(url) for url in found]
        self._limit_connects()
        self._at = 0
        self._none_leads_until = -math.inf
        self._lock = threading.Lock()
        self.moved: Callable[[Endpoint], None] = lambda endpoint: None
        """Called with the endpoint that is asked from now on."""

    def __len__(self) -> int:
        return len(self._places)

    def here(self) -> Place:
        """The server that is asked now."""
        return self._places[self._at]

    def leave(self, place: Place) -> None:
        """A server does not answer: the next one is asked, unless somebody moved on already."""
        with self._lock:
            if len(self._places) > 1 and self._places[self._at] is place:
                self._move((self._at + 1) % len(self._places))

    def elsewhere(self, place: Place, leader: str | None) -> None:
        """A node does not lead: the one that does is asked from now on, else the next one."""
        self._none_leads_until = time.monotonic() + _ELECTED_S
        if leader is None:
            self.leave(place)
        else:
            self._go_to(leader)

    def waits(self) -> Iterator[float]:
        """How long to wait between tries: at once at first, then longer, never all at one time.

        >>> spans = Places("http://localhost", {}, None).waits()
        >>> next(spans), [next(spans) <= limit for limit in (0.02, 0.04, 0.08)]
        (0.0, [True, True, True])
        """
        yield 0.0
        span_s = 0.02
        while True:
            none_leads = time.monotonic() < self._none_leads_until
            yield min(span_s, _NONE_LEADS_S if none_leads else _LONGEST_S) * random.uniform(0.5, 1)
            span_s = min(span_s * 2, _LONGEST_S)

    def _go_to(self, url: str) -> None:
        url = url.rstrip("/")
        with self._lock:
            for at, place in enumerate(self._places):
                if place.url == url:
                    if at != self._at:
                        self._move(at)
                    return
            self._places.append(self._place(url))
            self._limit_connects()
            self._move(len(self._places) - 1)

    def _move(self, at: int) -> None:
        self._at = at
        self.moved(self._places[at].endpoint)

    def _limit_connects(self) -> None:
        for place in self._places:
            place.endpoint.connect_s = _CONNECT_S if len(self._places) > 1 else math.inf

    def _place(self, url: Any) -> Place:
        url = url.strip() if isinstance(url, str) else url
        parts, host, port = _address(url)
        if parts.username or parts.query or parts.fragment:
            raise InvalidRequest("the address must be a host, a port and a path; a token is given "
                                 "as token=", host=parts.hostname)  # fmt: skip
        secure = None
        if parts.scheme == "https":
            secure = self._tls or ssl.create_default_context()
        path = quote(parts.path.rstrip("/"), safe=_BASE)
        return Place(url.rstrip("/"), path, Endpoint(host, port, self._headers, secure))


def _address(url: Any) -> tuple[SplitResult, str, int | None]:
    """An address, its host as names are asked for, and its port.

    >>> _address("http://Bücher.example:8080/base")[1:], _address("https://[::1]/")[1:]
    (('xn--bcher-kva.example', 8080), ('::1', None))
    """
    try:
        parts = urlsplit(url if isinstance(url, str) else "")
        host, port = parts.hostname or "", parts.port
        if ":" in host:  # an address, whose zone may be quoted
            host = host.replace("%25", "%")
        else:
            host = host.encode("idna").decode("ascii")
        good = parts.scheme in ("http", "https") and host.strip(".")
        if good and host.isascii() and host.isprintable() and " " not in host:
            return parts, host, port
    except ValueError:  # brackets, a port or a name that cannot be
        pass
    raise InvalidRequest(
        "the address must be http://HOST:PORT or https://HOST:PORT; tideline.open opens a folder",
        url=url,
    )
