"""Connections that have not said what they want, and how long they may take.

    connected ---> waits for a head ---> a request runs ---> waits for the next ---> ...
                        |                                        |
                        `--- too slow: 408, closed  <------------'

A request's line and headers must arrive within `head_timeout_s` of the connection, or of their
first byte on a connection that was used before; so must what is left of a body that nobody reads
any more. Bytes that trickle in do not buy time. Nor does their number: a head has a largest size,
and of more than `most` connections that wait, the one that has waited longest is closed, so that
whoever opens many and says nothing keeps nobody else out. While a request runs, its handler bounds
it (front.py).

Everything here is on the event loop.
"""

from __future__ import annotations

import time
from typing import Any, Protocol

from tideline.server.refusals import Refused, error_body
from tideline.server.shapes import encode

__all__ = ["HEAD_BYTES", "Arrivals", "Arriving", "refusal_bytes"]

HEAD_BYTES = 64 << 10
_SWEEP_S = 0.25
_PHRASES = {
    400: b"Bad Request", 408: b"Request Timeout", 431: b"Request Header Fields Too Large",
}  # fmt: skip


class Arriving(Protocol):
    """A connection that waits for a head."""

    def too_slow(self) -> None:
        """It took too long, or there are too many: close it."""
        ...


class Arrivals:
    """Who waits, and until when; those who have waited longest first.

    >>> class Silent:
    ...     def too_slow(self):
    ...         print("closed")
    >>> arrivals = Arrivals(10.0, most=2)
    >>> one, other = Silent(), Silent()
    >>> arrivals.expect(one); arrivals.expect(other)
    >>> arrivals.expect(Silent())
    closed
    >>> arrivals.done(other)
    >>> arrivals.sweep(time.monotonic() + 60)
    closed
    """

    def __init__(self, head_timeout_s: float, most: int) -> None:
        self.head_timeout_s = head_timeout_s
        self._most = most
        self._until: dict[Arriving, float] = {}
        self._swept = 0.0

    def __len__(self) -> int:
        return len(self._until)

    def expect(self, connection: Arriving, spare_s: float = 0.0) -> None:
        """A head must arrive from now on; `spare_s` is how long it may rest before it begins."""
        self._until.pop(connection, None)
        self._until[connection] = time.monotonic() + self.head_timeout_s + spare_s
        if len(self._until) > self._most:
            self._close(next(iter(self._until)))

    def done(self, connection: Arriving) -> None:
        """It has arrived, or the connection is gone."""
        self._until.pop(connection, None)

    def sweep(self, now: float) -> None:
        """Close those whose time is up; call it often, it looks now and then."""
        if now - self._swept < _SWEEP_S:
            return
        self._swept = now
        for connection in [each for each, until in self._until.items() if until <= now]:
            self._close(connection)

    def _close(self, connection: Arriving) -> None:
        self.done(connection)
        connection.too_slow()


def refusal_bytes(refused: Refused) -> bytes:
    """A whole answer that refuses what is not even a request, and closes.

    >>> refusal_bytes(Refused(408, "TooSlow", "x")).split(bytes([13, 10]))[0]
    b'HTTP/1.1 408 Request Timeout'
    """
    body: Any = encode(error_body(refused)) + b"\n"
    return (
        b"HTTP/1.1 %d %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n"
        b"x-content-type-options: nosniff\r\ncache-control: no-store\r\nconnection: close\r\n\r\n%b"
        % (refused.status, _PHRASES[refused.status], len(body), body)
    )
