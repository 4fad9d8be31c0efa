"""What a server can be told: where it listens, whom it trusts, where its limits are.

Settings are data; `tideline serve` fills them from its options, `running` from keywords.
Frozen; safe from any thread.
"""

from __future__ import annotations

import ipaddress
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tideline.errors import InvalidRequest

__all__ = ["LOOPBACK", "Settings", "is_loopback"]

_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://([a-z0-9._-]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?/?")
_NAME = re.compile(r"[a-z0-9._-]+|[0-9a-f:.]+")
LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class Settings:
    """The settings of a server, with their defaults.

    >>> Settings(port=9000).host
    '127.0.0.1'
    """

    host: str = "127.0.0.1"
    port: int = 8080
    """0 takes a free one."""
    tls_cert: Path | None = None
    tls_key: Path | None = None
    origins: tuple[str, ...] = ()
    """Pages of these origins may call too; the server's own page always may."""
    hosts: tuple[str, ...] = ()
    """Names the server may be called by, beside those it knows."""
    web: Path | None = None
    """A folder with the page, instead of the one in the package."""
    status: Callable[[], str] | None = None
    """A line about whoever runs the server, asked for ten times a second: the page shows it."""
    start: dict[str, Any] | None = None
    """Where the map begins, of a server that has something to show: `channel`, `at` as [lon, lat],
    `radius_m` to ask about, `across_m` to see, `name`."""

    body_bytes: int = 1 << 20
    """Largest request body, and largest WebSocket message."""
    batch_bytes: int = 64 << 20
    """Largest body of many events or an Arrow stream."""
    staged_bytes: int = 8 << 30
    """Rows that are put aside for a later commit, of all callers."""
    rate_per_s: float = 20_000.0
    """Operations a second of one token, or of one address without tokens."""
    connections: int = 2_000
    """Open WebSockets and event streams."""
    connections_per_caller: int = 500
    """The same of one token, or of one address without tokens."""
    subscriptions_per_user: int = 10_000
    """Live subscriptions of one user in one channel."""
    subscriptions_per_connection: int = 10_000
    """Subscriptions followed on one WebSocket."""
    conditions_per_user: int = 30_000
    """Weight of the standing conditions of one user in one channel: a plain clause is one, an
    instruction of a pattern eight (where/cost.py)."""
    watches_per_connection: int = 20_000
    """Live queries on one WebSocket."""
    watches_per_caller: int = 100_000
    """The same of one token, or of one address without tokens."""
    match_steps: int = 4_000_000_000
    """Steps that the conditions of one call may take, about a nanosecond each."""
    outbox_bytes: int = 4 << 20
    """What may wait for a slow reader before it is told and disconnected."""
    beat_s: float = 15.0
    """A heartbeat on every open connection this often."""
    head_timeout_s: float = 10.0
    """A request's line and headers must arrive within, and what is left of an answered one."""
    read_timeout_s: float = 30.0
    """A request's body, and a WebSocket's first message with a token, must arrive within."""
    stop_s: float = 10.0
    """How long a stop may wait for what is still being sent."""

    def __post_init__(self) -> None:
        positive = (
            "body_bytes", "batch_bytes", "staged_bytes", "rate_per_s", "connections",
            "connections_per_caller", "subscriptions_per_user", "subscriptions_per_connection",
            "conditions_per_user", "watches_per_connection", "watches_per_caller", "match_steps",
            "outbox_bytes", "beat_s", "head_timeout_s", "read_timeout_s", "stop_s",
        )  # fmt: skip
        for name in positive:
            value = getattr(self, name)
            number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if not number or not 0 < value < math.inf:
                raise InvalidRequest(f"{name} must be a positive number", **{name: value})
        if isinstance(self.port, bool) or not 0 <= self.port < 65_536:
            raise InvalidRequest("port must be 0 to 65535", port=self.port)
        if (self.tls_cert is None) != (self.tls_key is None):
            raise InvalidRequest("TLS needs a certificate file and a key file")
        for origin in self.origins:
            if not _ORIGIN.fullmatch(origin.lower()):
                raise InvalidRequest(
                    "an origin is a scheme and a host, https://app.example or with :PORT",
                    origin=origin,
                )
        for name in self.hosts:
            if not _NAME.fullmatch(name.lower()):
                raise InvalidRequest("a host is a name without scheme or port", host=name)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address.

    >>> is_loopback("127.0.0.2"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
