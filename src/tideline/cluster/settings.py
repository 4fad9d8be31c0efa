"""What a node is told of its cluster: its name, the other nodes, the secret, where it is served.

    name    := letters, digits or "-", and a number at the end that no other node has     n1
    peers   := name=host:port, ...        where nodes talk to each other, this one among them

Frozen; safe from any thread.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tideline.errors import InvalidRequest

__all__ = ["Address", "ClusterSettings", "number_of", "parse_peers", "read_secret"]

Address = tuple[str, int]
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]*?([1-9][0-9]{0,5})")
_PEER = re.compile(r"([^=]+)=(\[[0-9A-Fa-f:.]+\]|[^:\[\]]+):([0-9]{1,5})")
_LEAST_SECRET = 16


def number_of(name: str) -> int:
    """The number in the name of a node.

    >>> number_of("n2"), number_of("berlin-12")
    (2, 12)
    """
    found = _NAME.fullmatch(name) if isinstance(name, str) else None
    if found is None:
        raise InvalidRequest("a node's name is letters and a number, such as n1", node=name)
    return int(found[1])


def parse_peers(text: str) -> dict[str, Address]:
    """The nodes of a cluster and where each talks to the others.

    >>> parse_peers("n1=10.0.0.1:7400,n2=[::1]:7400")
    {'n1': ('10.0.0.1', 7400), 'n2': ('::1', 7400)}
    """
    peers: dict[str, Address] = {}
    numbers: set[int] = set()
    for part in text.split(","):
        found = _PEER.fullmatch(part.strip())
        if found is None or not 0 < int(found[3]) < 1 << 16:
            raise InvalidRequest("peers are n1=HOST:PORT,n2=HOST:PORT and so on", given=part)
        name = found[1].strip()
        if number_of(name) in numbers:
            raise InvalidRequest("two nodes have the same number in their names", node=name)
        numbers.add(number_of(name))
        peers[name] = found[2].strip("[]"), int(found[3])
    return peers


def read_secret(path: Path) -> bytes:
    """The secret of a cluster: what stands in a file, without white space around it."""
    try:
        secret = path.read_bytes().strip()
    except OSError as error:
        raise InvalidRequest(
            "the file with the secret cannot be read", file=str(path), error=error.strerror
        ) from None
    if len(secret) < _LEAST_SECRET:
        raise InvalidRequest(
            f"the secret has at least {_LEAST_SECRET} bytes, the same on all nodes", file=str(path)
        )
    return secret


@dataclass(frozen=True)
class ClusterSettings:
    """What a node is told.

    >>> settings = ClusterSettings("n2", {"n1": ("a", 1), "n2": ("b", 2)}, b"0123456789abcdef")
    >>> settings.number, settings.listens_at, settings.others
    (2, ('b', 2), {1: ('a', 1)})
    """

    node: str
    peers: Mapping[str, Address]
    secret: bytes = field(repr=False)
    url: str = ""
    """Where programs reach this node; set when it is served."""
    listen: Address | None = None
    """Where it listens for other nodes, if that is not its address among the peers."""
    cluster: str = "tideline"
    """The name of the cluster: nodes of another one are refused."""
    tls_cert: Path | None = None
    tls_key: Path | None = None
    tls_ca: Path | None = None
    """Certificate, key and authority for what nodes say to each other; all of them, or none."""
    wait_s: float = 10.0
    """How long a write waits for the majority."""
    tick_s: float = 0.1
    """How long a tick of the replicated log is, in which `Options` counts."""
    compact_bytes: int = 256 << 20
    """How much the replicated log grows before what every dataset has of it goes."""

    def __post_init__(self) -> None:
        if self.node not in self.peers:
            raise InvalidRequest(
                "the node must be among the peers", node=self.node, peers=", ".join(self.peers)
            )
        for name in self.peers:
            number_of(name)
        given = [each is not None for each in (self.tls_cert, self.tls_key, self.tls_ca)]
        if any(given) and not all(given):
            raise InvalidRequest("TLS between nodes needs a certificate, its key and an authority")
        if not 0 < self.wait_s < 1e6:
            raise InvalidRequest("wait_s must be a positive number", wait_s=self.wait_s)

    @property
    def number(self) -> int:
        """The number of this node."""
        return number_of(self.node)

    @property
    def listens_at(self) -> Address:
        """Where it listens for the others."""
        return self.listen or self.peers[self.node]

    @property
    def others(self) -> dict[int, Address]:
        """Where the other nodes are, by number."""
        return {number_of(n): at for n, at in self.peers.items() if n != self.node}

    @property
    def password(self) -> str:
        """What a node shows a server of another one, over HTTP."""
        return hmac.digest(self.secret, b"state of " + self.cluster.encode(), "sha256").hex()
