"""What a route is: one declaration that serves it, checks it and describes it.

    Op  --app.py-->      a path of the server
        --openapi.py-->  a part of the description

A handler gets a `Call` whose token, scope, channel, query and body have been checked, and returns a
`Reply`, a document, or an ASGI application for answers that take a while.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from tideline.server.shapes import encode

if TYPE_CHECKING:
    from tideline.server.access import Caller
    from tideline.server.hub import Hub

__all__ = ["ANY", "ARROW", "JSON", "STREAM", "Call", "Op", "Reply"]

JSON = "application/json"
ARROW = "application/vnd.apache.arrow.stream"
STREAM = "text/event-stream"
ANY = "any"


@dataclass(frozen=True)
class Op:
    """One method of one path."""

    method: str
    path: str
    summary: str
    handler: Callable[[Call], Awaitable[Any]]
    scope: str | None = None
    """What the token must allow, `ANY`: anything here; None: no token is asked for."""
    query: type[msgspec.Struct] | None = None
    takes: Any = ()
    """What the JSON body may be, as types; `ARROW` for a stream, or beside types when it may be
    one; nothing: no body."""
    gives: Any = None
    """The type of the answer, or its media type; several, if it may be any of them."""
    statuses: tuple[int, ...] = (200,)
    """What it answers when it works."""
    refuses: tuple[int, ...] = ()
    """What else it may answer, beside what every route may."""
    large: bool = False
    """Whether the body may be as large as a batch."""
    at_once: bool = False
    """Whether it may be answered as it arrives: it waits only where `Work` can say `Elsewhere`,
    and has done nothing until then."""
    quick_bytes: int | None = None
    """What its body may be at most for that."""


@dataclass
class Call:
    """One request, checked."""

    hub: Hub
    op: Op
    scope: dict[str, Any]
    caller: Caller
    channel: Any
    names: dict[str, str]
    """The parts of the path."""
    query: Any = None
    body: Any = None
    placed: Any = None
    """How a node of a cluster answers it (cluster.py)."""

    def header(self, name: str) -> str | None:
        """A header of the request."""
        wanted = name.lower().encode()
        for key, value in self.scope["headers"]:
            if key == wanted:
                return str(value, "latin-1")
        return None


@dataclass
class Reply:
    """An answer."""

    document: Any = None
    status: int = 200
    data: bytes | None = None
    media: str = JSON
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def content(self) -> bytes:
        """The bytes of the body; a document ends its line, for whoever reads it in a terminal."""
        return encode(self.document) + b"\n" if self.data is None else self.data
