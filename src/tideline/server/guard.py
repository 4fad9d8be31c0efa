"""At the door: whose pages may call, and by what name.

A browser says in `Origin` which page makes a request. The server's own page may; others only when
the operator named them (`origins`). So no foreign page can publish through a visitor's browser, nor
read through it. A server on this machine alone also refuses names it does not know in `Host`, so
that a foreign name pointed at this machine does not make a foreign page its own.

Programs send no `Origin` and are not concerned.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote, unquote_to_bytes, urlsplit

from starlette._utils import get_route_path
from starlette.exceptions import HTTPException

from tideline.server.front import SLASH, address_of, header_of, refusal_reply
from tideline.server.heads import Heads
from tideline.server.hub import Hub
from tideline.server.logs import log
from tideline.server.refusals import Refused
from tideline.server.settings import LOOPBACK, is_loopback

__all__ = ["Guard", "Page", "check_path", "nowhere", "with_prefix", "with_slashes"]

_SOCKETS = ("/v1/live", "/v1/watch")
_PREFLIGHT = (
    (b"access-control-allow-methods", b"GET, POST, PUT, PATCH, DELETE"),
    (b"access-control-allow-headers", b"authorization, content-type, last-event-id"),
    (b"access-control-max-age", b"600"),
)
_EXPOSED = (b"access-control-expose-headers", b"tideline-position, tideline-repeated, retry-after")
_PAGE = [
    (b"content-security-policy",
     b"default-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self' ws: wss:;"
     b" object-src 'none'; base-uri 'none'; frame-ancestors 'none'; form-action 'none'"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-cache"),
]  # fmt: skip


class Guard:
    """Wraps the whole application."""

    def __init__(self, app: Any, hub: Hub) -> None:
        self.hub = hub
        self.heads = Heads(self, app)
        """Reads requests that need no ASGI (protocol.py)."""
        self._app = app
        self._origins = {origin.rstrip("/").lower() for origin in hub.settings.origins}
        names = {name.lower() for name in hub.settings.hosts}
        self._hosts: set[str] | None = None
        if is_loopback(hub.settings.host):
            self._hosts = names | set(LOOPBACK) | {hub.settings.host.lower()}
        elif names:
            self._hosts = names | {hub.settings.host.lower()}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        try:
            check_path(scope)
            scope = with_prefix(with_slashes(scope))
            origin = self.check(scope)
        except Refused as refused:
            await _refuse(scope, send, refused)
            return
        if origin is None or scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        allowed = [
            (b"access-control-allow-origin", origin.encode("latin-1")),
            (b"vary", b"origin"),
            _EXPOSED,
        ]
        if scope["method"] == "OPTIONS":
            await send(
                {"type": "http.response.start", "status": 204, "headers": [*allowed, *_PREFLIGHT]}
            )
            await send({"type": "http.response.body", "body": b""})
            return

        async def with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", []), *allowed]}
            await send(message)

        await self._app(scope, receive, with_headers)

    def check(self, scope: Any) -> str | None:
        """Refuse a foreign name or page; returns the foreign page that is allowed."""
        host = (header_of(scope, b"host") or "").lower()
        if self._hosts is not None and _name_of(host) not in self._hosts:
            raise Refused(403, "Forbidden", "the server is not known by this name (Host)")
        origin = header_of(scope, b"origin")
        if origin is None:
            return None
        plain = origin.rstrip("/").lower()
        scheme = {"ws": "http", "wss": "https"}.get(scope["scheme"], scope["scheme"])
        if plain == f"{scheme}://{host}":
            return None
        if plain in self._origins:
            return origin
        raise Refused(403, "Forbidden", "pages of this origin may not call the server (Origin)")


def check_path(scope: Any) -> None:
    """Refuse a path that is no text: what is wrong in it would become a part of a name.

    >>> check_path({"raw_path": b"/v1/channels/caf%C3%A9"})
    >>> check_path({"raw_path": b"/v1/channels/caf%E9"})
    Traceback (most recent call last):
        ...
    tideline.server.refusals.Refused: the path is not valid UTF-8
    """
    raw = scope.get("raw_path") or b""
    if b"%" in raw:
        try:
            unquote_to_bytes(raw).decode()
        except UnicodeDecodeError:
            raise Refused(400, "InvalidRequest", "the path is not valid UTF-8") from None


def with_slashes(scope: Any) -> Any:
    """Let an escaped slash be part of a name: an id may hold one, a path's parts may not.

    >>> scope = with_slashes({"path": "/a/b/c", "raw_path": b"/a/b%2Fc"})
    >>> scope["path"].replace(SLASH, "|")
    '/a/b|c'
    """
    raw = scope.get("raw_path") or b""
    if b"%2F" in raw or b"%2f" in raw:
        parts = raw.decode("ascii", "replace").split("/")
        path = "/".join(unquote(part).replace("/", SLASH) for part in parts)
        return {**scope, "path": path}
    return scope


def with_prefix(scope: Any) -> Any:
    """Let the path begin with the prefix that a proxy serves this at, whether it sent it or not.

    >>> with_prefix({"path": "/assets/app.js", "root_path": "/maps"})["path"]
    '/maps/assets/app.js'
    >>> with_prefix({"path": "/maps/", "root_path": "/maps"})["path"]
    '/maps/'
    """
    prefix = scope.get("root_path", "").rstrip("/")
    if not prefix or scope["path"] == prefix or scope["path"].startswith(prefix + "/"):
        return scope
    return {**scope, "path": prefix + scope["path"]}


def _name_of(host: str) -> str:
    """A host without its port."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


async def _refuse(scope: Any, send: Any, refused: Refused) -> None:
    path = scope["path"].replace(SLASH, "%2F")
    log("turned away", address=address_of(scope), path=path, why=str(refused))
    status, headers, body = refusal_reply(refused)
    kind = "websocket.http.response" if scope["type"] == "websocket" else "http.response"
    await send({"type": f"{kind}.start", "status": status, "headers": headers})
    await send({"type": f"{kind}.body", "body": body})


async def nowhere(scope: Any, receive: Any, send: Any) -> None:
    """What is at every path that there is not."""
    if scope["type"] not in ("http", "websocket"):
        return
    refused = Refused(404, "NotFound", "there is nothing at this path")
    if scope["type"] == "http" and get_route_path(scope) in _SOCKETS:
        refused = Refused(426, "NotAllowed", "this is a WebSocket", upgrade="websocket")
    await _refuse(scope, send, refused)


class Page:
    """Static files, with the headers that keep a page to itself."""

    def __init__(self, files: Any) -> None:
        self._files = files

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await nowhere(scope, receive, send)
            return

        async def with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", []), *_PAGE]}
            await send(message)

        if scope["method"] not in ("GET", "HEAD"):
            refused = Refused(405, "NotAllowed", "a page can only be read", allow="GET, HEAD")
            await _refuse(scope, send, refused)
            return
        try:
            await self._files(scope, receive, with_headers)
        except HTTPException:
            await nowhere(scope, receive, send)
