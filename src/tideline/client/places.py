"""Where the servers of a client are: one, or the nodes of a cluster.

    here()        the one that is asked now
    leave(place)  it does not answer: ask the next one
    go_to(url)    a node said that another one leads: ask that one

A client that was told one address learns of others when a node says who leads. Safe from any
thread.
"""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import SplitResult, quote, urlsplit

from tideline.client.connection import Endpoint
from tideline.errors import InvalidRequest

__all__ = ["Place", "Places"]

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
        self._at = 0
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

    def go_to(self, url: str) -> None:
        """Ask this one from now on."""
        url = url.rstrip("/")
        with self._lock:
            for at, place in enumerate(self._places):
                if place.url == url:
                    if at != self._at:
                        self._move(at)
                    return
            self._places.append(self._place(url))
            self._move(len(self._places) - 1)

    def _move(self, at: int) -> None:
        self._at = at
        self.moved(self._places[at].endpoint)

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
