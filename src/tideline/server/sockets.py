"""How a WebSocket begins: its token, its place among the connections, then who serves it.

A program sends its token in a header. A browser cannot: it adds ?token= to the address, or sends
`{"do": "hello", "token": "..."}` as its first message. Without a good token the connection is
refused with 401 before it opens, or closed with 4401 after a wrong hello.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from tideline.errors import InvalidRequest, TidelineError
from tideline.server.access import Caller
from tideline.server.front import address_of, query_of, refusal_reply, token_of
from tideline.server.hub import Hub
from tideline.server.live import Live
from tideline.server.logs import log
from tideline.server.refusals import Refused, error_body, refusal
from tideline.server.requests import Hello
from tideline.server.shapes import encode
from tideline.server.watch import Watching

__all__ = ["BAD_REQUEST", "BAD_TOKEN", "FORBIDDEN", "SocketApp", "live_socket", "watch_socket"]

BAD_TOKEN = 4401
FORBIDDEN = 4403
BAD_REQUEST = 4400
BUSY = 1013
_read_hello = msgspec.json.Decoder(Hello).decode


Serve = Callable[[Hub, Caller, dict[str, str], Any, Any, Any], Awaitable[None]]


class SocketApp:
    """An ASGI application for a WebSocket: checks who comes, then serves them."""

    def __init__(self, hub: Hub, serve: Serve) -> None:
        self._hub = hub
        self._serve = serve

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        hub = self._hub
        opened = False
        try:
            query = query_of(scope)
            text = token_of(scope, query)
            query.pop("token", None)
            if hub.stopping:
                raise Refused(503, "Unavailable", "the server is stopping")
            await receive()  # websocket.connect
            if text is None and hub.access.required:
                await send({"type": "websocket.accept"})
                opened = True
                if (socket := _own(scope)) is not None:
                    socket.awaits_token(hub.settings.read_timeout_s)
                text = await _hello(hub, receive)
            caller = hub.caller(text, address_of(scope))
            hub.limits.spend(caller)
            hub.limits.connect(caller)
            if (socket := _own(scope)) is not None:
                socket.admitted()
        except Exception as error:
            log("turned away", address=address_of(scope), path=scope["path"], why=str(error))
            await _turn_away(send, error, opened)
            return
        try:
            if not opened:
                await send({"type": "websocket.accept"})
                opened = True
            log("connected", caller=caller.name, path=scope["path"])
            await self._serve(hub, caller, query, scope, receive, send)
        except OSError:
            pass  # it went away
        except (Refused, TidelineError) as error:
            await _turn_away(send, error, opened)
        finally:
            hub.limits.disconnect(caller)
            log("disconnected", caller=caller.name, path=scope["path"])


async def _hello(hub: Hub, receive: Any) -> str | None:
    """The token of the first message."""
    try:
        async with asyncio.timeout(hub.settings.read_timeout_s):
            message = await receive()
    except TimeoutError:
        raise Refused(401, "Unauthorized", "no hello with a token arrived in time") from None
    if message["type"] == "websocket.disconnect":
        raise OSError("the client went away")
    text = message.get("text") or message.get("bytes") or b""
    try:
        return _read_hello(text).token
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        raise Refused(
            401, "Unauthorized", 'the first message must be {"do": "hello", "token": "..."}'
        ) from None


async def _turn_away(send: Any, error: Exception, opened: bool) -> None:
    """Say why, in the way that is left."""
    if isinstance(error, OSError):
        return
    told = refusal(error) or Refused(500, "Bug", "this is a bug of the server: tell the operator")
    with contextlib.suppress(OSError):
        if opened:
            await send({"type": "websocket.send", "text": encode(error_body(told)).decode()})
            codes = {401: BAD_TOKEN, 403: FORBIDDEN, 429: BUSY, 503: BUSY}
            code = codes.get(told.status, BAD_REQUEST)
            await send({"type": "websocket.close", "code": code, "reason": str(told)[:120]})
            return
        status, headers, body = refusal_reply(told)
        await send({"type": "websocket.http.response.start", "status": status, "headers": headers})
        await send({"type": "websocket.http.response.body", "body": body})


def live_socket(hub: Hub) -> Any:
    """/v1/live."""

    async def serve(
        hub: Hub, caller: Caller, query: dict[str, str], scope: Any, receive: Any, send: Any
    ) -> None:
        lines = query.get("lines") in ("1", "true")
        await Live(hub, caller, send, lines=lines, socket=_own(scope)).serve(receive)

    return SocketApp(hub, serve)


def watch_socket(hub: Hub) -> Any:
    """/v1/watch."""

    async def serve(
        hub: Hub, caller: Caller, query: dict[str, str], scope: Any, receive: Any, send: Any
    ) -> None:
        name = query.get("channel")
        if name is None:
            raise InvalidRequest("channel is missing: /v1/watch?channel=NAME")
        caller.need("read", name)
        await Watching(hub, caller, send, hub.channel(name), socket=_own(scope)).serve(receive)

    return SocketApp(hub, serve)


def _own(scope: Any) -> Any:
    """The connection itself, where the server is ours (protocol.py)."""
    return scope.get("extensions", {}).get("tideline")
