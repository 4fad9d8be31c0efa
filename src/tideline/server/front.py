"""The way of a request from the socket to its handler, and back.

    host, origin -> route -> token -> scope -> rate -> query, body -> handler -> answer
                 `-> refusal: status and {"error": {kind, message}}

A request that was whole when it arrived (heads.py) is answered at once, if nothing in it waits
(`Path.answer`); any other is an ASGI call. Every answer leaves through here, so every refusal looks
the same, and every request is counted and logged once. Nothing is stored before all checks have
passed.

Everything here is on the event loop.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any
from urllib.parse import parse_qsl

import msgspec

from tideline.errors import InvalidRequest
from tideline.lsm.sharedlog import NotLeading
from tideline.server.access import Caller
from tideline.server.cluster import elsewhere, place
from tideline.server.hub import Hub
from tideline.server.logs import log, logger
from tideline.server.ops import ARROW, JSON, STREAM, Call, Op, Reply
from tideline.server.refusals import Refused, error_body, refusal
from tideline.server.shapes import encode, near, why
from tideline.server.work import Elsewhere

__all__ = [
    "SLASH", "Path", "address_of", "header_of", "headers_of", "query_of", "refusal_reply",
    "token_of",
]  # fmt: skip

_LISTS = (
    "/v1/channels",
    "/v1/collections",
    "/v1/windows",
    "/v1/store",
)  # of what the token may use
SLASH = "\udc2f"  # stands for an escaped slash in a path; no text from outside can hold it
_ALWAYS = [(b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store")]


def header_of(scope: Any, name: bytes) -> str | None:
    """A header of a request."""
    for key, value in scope["headers"]:
        if key == name:
            return str(value, "latin-1")
    return None


def address_of(scope: Any) -> str:
    """Where a request comes from."""
    client = scope.get("client")
    return client[0] if client else "local"


def token_of(scope: Any, query: dict[str, str]) -> str | None:
    """The token a request shows: in its header, or as ?token= where browsers can set no header."""
    header = header_of(scope, b"authorization")
    if header is not None:
        kind, _, text = header.partition(" ")
        if kind.lower() != "bearer":
            raise Refused(401, "Unauthorized", "Authorization must be: Bearer TOKEN")
        return text.strip()
    return query.get("token")


class Path:
    """One path of the server as an ASGI application: picks the method's `Op` and runs it."""

    def __init__(self, hub: Hub, path: str, ops: list[Op]) -> None:
        self._hub = hub
        self._path = path
        self._ops = {op.method: op for op in ops}
        self._decoders = {
            op.method: [msgspec.json.Decoder(kind) for kind in op.takes if kind != ARROW]
            for op in ops
            if op.takes and op.takes != ARROW
        }

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        started = time.perf_counter()
        method = scope["method"]
        status = 500
        try:
            op = self._ops.get(method)
            if op is None:
                raise Refused(
                    405, "NotAllowed", f"{method} is not possible here",
                    allow=", ".join(self._ops),
                )  # fmt: skip
            call = await self._checked(op, scope, receive)
            answer = await self._handled(op, call)
            if isinstance(answer, Reply) or not callable(answer):
                reply = answer if isinstance(answer, Reply) else Reply(answer)
                status = reply.status
                await self._send(send, reply)
            else:
                status = 200
                await answer(scope, receive, send)
        except asyncio.CancelledError:
            if not self._hub.stopping:
                status = 499
                raise
            status = await self._refuse(send, _stopping())  # it took longer than a stop waits
        except OSError:
            status = 499  # the client went away
        except Exception as error:
            if isinstance(error, RuntimeError) and "handler is closed" in str(error):
                status = 499  # so uvloop says that the client went away
                return
            status = await self._refuse(send, self._told(error, method, scope))
        finally:
            self._note(method, scope, status, started)

    async def _handled(self, op: Op, call: Call) -> Any:
        """What the handler answers; on a node of a cluster, as it was asked for."""
        placed = call.placed
        if placed is None or placed.stale is None:
            return await op.handler(call)
        cluster = call.hub.cluster
        if placed.linearizable:
            await call.hub.in_thread(cluster.confirm)
        answer = await op.handler(call)
        if placed.linearizable:
            await call.hub.in_thread(cluster.sync_all)
        if isinstance(answer, Reply) or not callable(answer):
            answer = answer if isinstance(answer, Reply) else Reply(answer)
            answer.headers = {**answer.headers, "tideline-stale-s": placed.stale}
        return answer

    def op(self, method: str) -> Op | None:
        """What a method does here."""
        return self._ops.get(method)

    def answer(self, op: Op, scope: Any, body: bytes) -> Reply | None:
        """Answer a whole request at once; None when it must wait: then nothing has happened.

        What is answered has its `data`.
        """
        hub, started = self._hub, time.perf_counter()
        settings = hub.settings
        if len(body) > (settings.batch_bytes if op.large else settings.body_bytes):
            return None
        if op.quick_bytes is not None and len(body) > op.quick_bytes:
            return None
        caller = None
        hub.work.at_once = True
        try:
            call = self._admitted(op, scope)
            caller = call.caller
            if call.placed is not None and call.placed.linearizable:
                raise Elsewhere
            if op.takes:
                call.body = body if _is_arrow(op, scope) else self._decode(op, body)
            answering = op.handler(call)
            try:
                answering.send(None)  # type: ignore[attr-defined]
            except StopIteration as done:
                found = done.value
            else:
                answering.close()  # type: ignore[attr-defined]
                raise RuntimeError("a request waited where nothing may")
            reply = found if type(found) is Reply else Reply(found)
            if call.placed is not None and call.placed.stale is not None:
                reply.headers = {**reply.headers, "tideline-stale-s": call.placed.stale}
            reply.data = reply.content
        except Elsewhere:
            if caller is not None:
                hub.limits.charge(caller, -1.0)
            return None
        except Exception as error:
            told = self._told(error, op.method, scope)
            reply = Reply(status=told.status, headers=told.headers,
                          data=encode(error_body(told)) + b"\n")  # fmt: skip
        finally:
            hub.work.at_once = False
        self._note(op.method, scope, reply.status, started)
        return reply

    def _told(self, error: Exception, method: str, scope: Any) -> Refused:
        """What the caller is told of an error."""
        if isinstance(error, NotLeading) and self._hub.cluster is not None:
            return elsewhere(self._hub.cluster, scope)
        told = refusal(error)
        if told is None:
            log("bug", level=logging.ERROR, error=error, method=method, path=self._path)
            told = Refused(500, "Bug", "this is a bug of the server: tell the operator")
        return told

    def _note(self, method: str, scope: Any, status: int, started: float) -> None:
        """Count a request, and log it."""
        self._hub.metrics.requests[method, self._path, status] += 1
        level = logging.DEBUG if status < 400 else logging.INFO
        if status >= 500:
            level = logging.WARNING
        if logger.isEnabledFor(level):
            took = time.perf_counter() - started
            path = scope["path"].replace(SLASH, "%2F")
            log(
                "request", level=level, method=method, path=path, status=status,
                caller=scope.get("tideline.caller") or address_of(scope), ms=round(took * 1000, 3),
            )  # fmt: skip

    async def _checked(self, op: Op, scope: Any, receive: Any) -> Call:
        """The request as its handler sees it, or a refusal."""
        call = self._admitted(op, scope)
        if op.takes:
            settings = self._hub.settings
            most = settings.batch_bytes if op.large else settings.body_bytes
            data = await _body_of(scope, receive, most, self._hub)
            call.body = data if _is_arrow(op, scope) else self._decode(op, data)
        return call

    def _admitted(self, op: Op, scope: Any) -> Call:
        """The request without its body; refuses who may not make it."""
        hub = self._hub
        address = scope["tideline.caller"] = address_of(scope)
        query = query_of(scope)
        names: dict[str, str] = scope.get("path_params", {})
        if SLASH in scope["path"]:
            names = {name: text.replace(SLASH, "/") for name, text in names.items()}
        channel = None
        if op.scope is None:
            caller = Caller(address, address)
        else:
            shown = token_of(scope, query if op.gives == STREAM else {})
            caller = hub.caller(shown, address)
            scope["tideline.caller"] = caller.name
            name = names.get("channel") or names.get("collection") or names.get("window")
            if name is not None or op.path not in _LISTS:
                caller.need(op.scope, name)
            hub.limits.spend(caller)
        if op.gives == STREAM:
            query.pop("token", None)
        placed = None
        if hub.cluster is not None:
            placed = place(hub.cluster, op, scope, query)
        if op.method != "PUT" and "channel" in names:
            channel = hub.channel(names["channel"])
        call = Call(hub, op, scope, caller, channel, names, placed=placed)
        if op.query is not None:
            try:
                call.query = msgspec.convert(query, op.query, strict=False)
            except msgspec.ValidationError as error:
                raise InvalidRequest(f"wrong query: {error}{near(error, op.query)}") from None
            for name in query:  # a query has no null: a number may not be given so
                if getattr(call.query, name) is None:
                    raise InvalidRequest(f"wrong query: {name} is no value of its kind")
        elif query:
            raise InvalidRequest("this takes no query", given=sorted(query))
        return call

    def _decode(self, op: Op, data: bytes) -> Any:
        """The body as the first of the documents it may be."""
        reasons: list[tuple[bool, int, str]] = []
        for decoder in self._decoders[op.method]:
            try:
                return decoder.decode(data or b"null")
            except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
                reason = why(error, data) + near(error, decoder.type)
                malformed = not isinstance(error, msgspec.ValidationError)
                reasons.append((malformed, reason.count("$"), reason))
        # No JSON is none of them; else what it was meant to be is the one in which something is
        # wrong further inside.
        *_, reason = max(reasons, key=lambda found: found[:2])
        raise InvalidRequest(f"the body is not what is taken here: {reason}")

    async def _refuse(self, send: Any, told: Refused) -> int:
        """Say what is wrong; returns the status that was sent."""
        try:
            await self._send(send, Reply(error_body(told), told.status, headers=told.headers))
        except (OSError, RuntimeError):
            return 499  # it had begun to answer, or the client went away
        return told.status

    async def _send(self, send: Any, reply: Reply) -> None:
        content = reply.content
        headers = headers_of(reply, len(content))
        await send({"type": "http.response.start", "status": reply.status, "headers": headers})
        await send({"type": "http.response.body", "body": content})


def headers_of(reply: Reply, size: int) -> list[tuple[bytes, bytes]]:
    """What is said above an answer of so many bytes."""
    return [
        (b"content-type", reply.media.encode()),
        (b"content-length", b"%d" % size),
        *_ALWAYS,
        *((name.lower().encode(), value.encode()) for name, value in reply.headers.items()),
    ]


def _is_arrow(op: Op, scope: Any) -> bool:
    """Whether a body is a stream, of those that may be one."""
    if op.takes == ARROW or ARROW not in op.takes:
        return bool(op.takes == ARROW)
    kind = header_of(scope, b"content-type") or ""
    return kind != JSON and kind.partition(";")[0].strip().lower() == ARROW


def query_of(scope: Any) -> dict[str, str]:
    text = scope["query_string"]
    if not text:
        return {}
    try:
        pairs = parse_qsl(text.decode("ascii"), keep_blank_values=True, errors="strict")
    except (UnicodeError, ValueError):
        raise InvalidRequest("the query is not valid text") from None
    query = dict(pairs)
    if len(query) != len(pairs):
        raise InvalidRequest("a parameter of the query is given twice")
    return query


async def _body_of(scope: Any, receive: Any, most: int, hub: Hub) -> bytes:
    """The body of a request, never more than is taken here; a stop waits for no more of it."""
    too_large = Refused(413, "TooLarge", f"the body is over {most} bytes")
    length = header_of(scope, b"content-length")
    if length is not None and length.isdigit() and int(length) > most:
        raise too_large
    parts: list[bytes] = []
    size = 0
    timeout_s = hub.settings.read_timeout_s
    try:
        async with hub.arriving(timeout_s):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise OSError("the client went away")
                part = message.get("body", b"")
                size += len(part)
                if size > most:
                    raise too_large
                if part:
                    parts.append(part)
                if not message.get("more_body", False):
                    return parts[0] if len(parts) == 1 else b"".join(parts)
    except TimeoutError:
        if hub.stopping:
            raise _stopping() from None
        raise Refused(408, "TooSlow", f"the body did not arrive within {timeout_s:g} s") from None


def _stopping() -> Refused:
    return Refused(503, "Unavailable", "the server is stopping", connection="close")


def refusal_reply(refused: Refused) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
    """A refusal as status, headers and body, for what does not pass through a `Path`."""
    body = encode(error_body(refused)) + b"\n"
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
        *_ALWAYS,
        *((name.lower().encode(), value.encode()) for name, value in refused.headers.items()),
    ]
    return refused.status, headers, body
