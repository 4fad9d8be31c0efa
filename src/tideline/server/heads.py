"""Requests that are whole when they arrive, read without the machinery for those that are not.

    POST /v1/collections/cars/get HTTP/1.1      a line: which route, and the names in it
    Host: 127.0.0.1:8080                        fields: the same in every request of a program, but
    Content-Length: 9                               for the length of the body
    (empty line) {"key":17}

A program sends the same line and fields again and again: what they mean is kept by their text. So
reading a request is two lookups and a slice, in place of a parser, an object a header, a task and
an event (`protocol.py` has the other way, which takes every request).

What is read here is a strict part of HTTP/1.1: anything unusual is None, and takes the other way.
No line that goes on in the next, no transfer coding, no upgrade, no second length, no escape in a
path. So both ways read the same request from the same bytes.

Pure, but for what it keeps; on the event loop.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from tideline.server.ops import Op
from tideline.server.refusals import Refused

__all__ = ["PART", "Heads", "Whole"]

_MOST = 1_024  # lines and fields that are kept
_HEAD_BYTES = 8 << 10  # a longer head takes the other way
_BODY_BYTES = 64 << 10  # a longer body, too
_LINE = re.compile(
    rb"(GET|POST|PUT|PATCH|DELETE) ((?:/[A-Za-z0-9_.~:@!$&'()*+,;=-]+)+) HTTP/1\.1", re.ASCII
)
_QUERY = re.compile(rb"[!-\"$-~]*")  # what is printed, without the mark of a fragment
_FIELDS = re.compile(rb"(?:\r\n[!#$%&'*+.^_`|~0-9A-Za-z-]+: [!-~](?:[ -~]*[!-~])?)*")
_LENGTH = b"\r\nContent-Length: "
_DIGITS = 9
_NEVER = (b"transfer-encoding", b"upgrade", b"expect")
Headers = list[tuple[bytes, bytes]]


class Whole(NamedTuple):
    """A request, all of it."""

    path: Any
    """The `Path` that answers it."""
    op: Op
    scope: dict[str, Any]
    """As ASGI has it."""
    body: bytes
    end: int
    """Where the next one begins."""


PART = Whole(None, None, {}, b"", 0)  # type: ignore[arg-type]
"""A request of which more must arrive."""


class Heads:
    """Lines and fields by their text."""

    def __init__(self, guard: Any, paths: Any) -> None:
        """`guard` says whose requests are let in, `paths` which application answers a path."""
        self._guard = guard
        self._paths = paths
        self._lines: dict[bytes, tuple[Any, Op, str, dict[str, str]] | None] = {}
        self._fields: dict[tuple[bytes, str], tuple[Headers, int] | None] = {}

    def read(self, data: bytes, at: int, client: Any, scheme: str) -> Whole | None:
        """The request that begins at `at`; `PART` when more of it must arrive, None when it is
        none that is read here."""
        line_end = data.find(b"\r\n", at)
        head_end = data.find(b"\r\n\r\n", line_end, at + _HEAD_BYTES) if line_end > 0 else -1
        if head_end < 0:
            return PART if len(data) - at < _HEAD_BYTES else None
        fields, length = data[line_end:head_end], b""
        found_at = fields.find(_LENGTH)
        if found_at >= 0:
            stop = fields.find(b"\r\n", found_at + len(_LENGTH))
            stop = len(fields) if stop < 0 else stop
            length = fields[found_at + len(_LENGTH) : stop]
            if not length.isdigit() or len(length) > _DIGITS:
                return None
            fields = fields[:found_at] + fields[stop:]
        known = self._known(fields, scheme)
        if known is None:
            return None
        headers, size = known
        if length:
            if size >= 0:
                return None  # there are two
            size = int(length)
            headers = [*headers, (b"content-length", length)]
        body_at = head_end + 4
        end = body_at + max(size, 0)
        if size > _BODY_BYTES:
            return None
        if end > len(data):
            return PART
        line, query = data[at:line_end], b""
        mark = line.find(b"?")
        if mark >= 0:
            target, _, version = line[mark + 1 :].partition(b" ")
            if not _QUERY.fullmatch(target):
                return None
            line, query = line[:mark] + b" " + version, target
        route = self._route(line)
        if route is None:
            return None
        path, op, text, names = route
        if not op.takes and end > body_at:
            return None
        scope = {
            "type": "http", "method": op.method, "path": text, "path_params": names,
            "query_string": query, "headers": headers, "client": client, "extensions": {},
        }  # fmt: skip
        return Whole(path, op, scope, data[body_at:end], end)

    def _route(self, line: bytes) -> tuple[Any, Op, str, dict[str, str]] | None:
        """Who answers a line without a query."""
        if line in self._lines:
            return self._lines[line]
        route = None
        read = _LINE.fullmatch(line)
        if read is not None:
            text = read[2].decode()
            found = self._paths.find(text)
            op = None if found is None else found[0].op(read[1].decode())
            if found is not None and op is not None:
                route = found[0], op, text, found[1]
        if len(self._lines) >= _MOST:
            self._lines.clear()
        self._lines[line] = route
        return route

    def _known(self, fields: bytes, scheme: str) -> tuple[Headers, int] | None:
        """The headers that fields say, and their Content-Length, -1 for none."""
        key = fields, scheme
        if key in self._fields:
            return self._fields[key]
        if len(self._fields) >= _MOST:
            self._fields.clear()
        found = self._fields[key] = self._parsed(fields, scheme)
        return found

    def _parsed(self, fields: bytes, scheme: str) -> tuple[Headers, int] | None:
        if not _FIELDS.fullmatch(fields):
            return None
        headers: Headers = []
        for text in fields.split(b"\r\n")[1:]:
            name, _, value = text.partition(b": ")
            headers.append((name.lower(), value))
        said: dict[bytes, bytes] = dict(headers)
        if len(said) < len(headers) or any(name in said for name in _NEVER):
            return None
        if said.get(b"connection", b"keep-alive").lower() != b"keep-alive":
            return None
        length = said.get(b"content-length")
        if length is not None and not (length.isdigit() and len(length) <= _DIGITS):
            return None
        try:
            if self._guard.check({"headers": headers, "scheme": scheme}) is not None:
                return None  # a page of another origin, which needs to be told so
        except Refused:
            return None
        return headers, -1 if length is None else int(length)
