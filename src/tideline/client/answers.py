"""Answers of HTTP/1.1 out of bytes: what a connection reads, without the connection.

    reading = Reading(...)
    steps = reading.answer(bare)     wants more bytes at each `yield`, returns the answer
    reading.whole(data, at, bare)    the same for one that is all there, which most are

1. An answer is given only when all of it is there: a head up to its empty line, a body of the
   length that the head says or up to the mark of its end. A body that ends with the connection
   cannot be told from one that was cut, and is taken for cut.
2. `lasting`: whether the connection can carry another request after an answer, as far as the answer
   says. What came behind it (`rest`) is of the next one, or out of turn: who reads knows.

A thread that blocks (connection.py) and an event loop (aclient/connection.py) both drive it. Not
safe from several threads.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import TypeAlias

__all__ = ["Answer", "Broken", "Failure", "NoConnection", "Reading", "request_bytes"]

_HEAD_BYTES = 65_536  # the longest head of an answer, line of a chunk, or trailers
_STATUS = re.compile(r"HTTP/1\.([01]) ([1-9]\d\d)(?: .*)?", re.ASCII | re.DOTALL)
_BLANK = " \t"
_TLS_ALERT = b"\x15\x03"  # what a server that wants TLS may say to a request without
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;.*)?", re.DOTALL)
_WANTS_TLS = ": the server may want https"

Bytes: TypeAlias = Generator[None, bytes, bytes]


class Failure(Exception):
    """Why there is no answer."""

    final = False
    """Whether trying again cannot help: a certificate that is not trusted."""


class NoConnection(Failure):
    """There is no connection; nothing was sent."""


class Broken(Failure):
    """The connection broke, or said what is no answer, after sending had begun."""


class Answer:
    """What the server said; the names of `headers` are in lower case."""

    __slots__ = ("data", "headers", "status")

    def __init__(self, status: int, headers: Mapping[str, str], data: bytes) -> None:
        self.status = status
        self.headers = headers
        self.data = data


def request_bytes(
    method: str, target: str, head: str, kind: str | None, body: bytes | None
) -> bytes:
    """The head of a request; `head` is what is the same for every one."""
    if body is not None:
        length = f"Content-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    else:
        length = "\r\n" if method in ("GET", "HEAD", "DELETE") else "Content-Length: 0\r\n\r\n"
    return f"{method} {target}{head}{length}".encode("ascii")


class Reading:
    """The bytes of one connection, read as answers one after the other."""

    def __init__(self, *, tls: bool) -> None:
        self.in_body = False
        """Whether the head of the answer that is read has been there."""
        self.lasting = False
        self._hint = "" if tls else _WANTS_TLS
        self._used = False  # it has given an answer
        self._buffer, self._at = b"", 0  # what was read, and how much of it was used

    @property
    def rest(self) -> bool:
        """Whether something came behind the last answer."""
        return len(self._buffer) > self._at

    def cut(self) -> Broken:
        """What it means that the connection ends here."""
        silent = not (self._used or self.in_body or self._buffer)
        return Broken("the answer was cut" + (f" off{self._hint}" if silent else ""))

    def whole(self, data: bytes, at: int, bare: bool) -> tuple[Answer, int] | None:
        """The answer that begins at `at` and its end, if all of it is there and says its length.

        None for any other: `answer` reads it. Nothing must be left of an earlier one.
        """
        end = data.find(b"\r\n\r\n", at)
        if end < 0 or bare or self.rest:
            return None
        try:
            status, headers, size = _plain_head(data[at:end])
        except Broken:
            return None
        start, end = end + 4, end + 4 + size
        if size < 0 or end > len(data):
            return None
        self.in_body, self.lasting, self._used = False, True, True
        return Answer(status, headers, data[start:end]), end

    def answer(self, bare: bool) -> Generator[None, bytes, Answer]:
        """Read one answer, which has no body when it is `bare`; send in what arrives."""
        self.lasting = self.in_body = False
        while True:
            version, status, headers = yield from self._head()
            if status >= 200:
                break
            if status == 101:
                raise Broken("the answer is of another protocol")
        self.in_body = True
        coding, length = headers.get("transfer-encoding"), headers.get("content-length")
        if bare or status in (204, 304):
            data = b""
        elif coding is not None:
            if coding.lower() != "chunked":
                raise Broken(f"the answer is coded: {coding[:100]}")
            data = yield from self._chunks()
        elif length is None:
            raise Broken("the answer was cut: it has no length")
        elif not (length.isascii() and length.isdigit() and len(length) < 19):
            raise Broken(f"the answer has no length: {length[:100]}")
        else:
            data = yield from self._exactly(int(length))
        ends = "close" in headers.get("connection", "").lower()
        both = coding is not None and length is not None  # where it ends is disputed
        self.lasting = not (ends or both or version == "0")
        self._used = True
        return Answer(status, headers, data)

    def _head(self) -> Generator[None, bytes, tuple[str, int, dict[str, str]]]:
        """The minor version, the status and the headers."""
        return _read_head((yield from self._until(b"\r\n\r\n")))

    def _chunks(self) -> Bytes:
        """A body in chunks, and the trailers after it, which nobody needs."""
        parts = []
        while True:
            line = yield from self._until(b"\r\n")
            found = _CHUNK.fullmatch(line)
            if found is None:
                raise Broken(f"the answer has a chunk without a size: {line[:100]!r}")
            size = int(found[1], 16)
            if not size:
                break
            part = yield from self._exactly(size)
            parts.append(part)
            end = yield from self._exactly(2)
            if end != b"\r\n":
                raise Broken("the answer has a chunk that is longer than its size")
        trailers = 0
        while line := (yield from self._until(b"\r\n")):
            trailers += len(line)
            if trailers > _HEAD_BYTES:
                raise Broken("the answer's trailers do not end")
        return b"".join(parts)

    def _until(self, mark: bytes) -> Bytes:
        """What comes before a mark; the mark is passed over."""
        while (end := self._buffer.find(mark, self._at)) < 0:
            rest = self._buffer[self._at :]
            if len(rest) > _HEAD_BYTES:
                raise Broken("the answer's head does not end")
            piece = yield
            self._buffer, self._at = rest + piece, 0
            if self._hint and not self.in_body and self._buffer.startswith(_TLS_ALERT):
                failure = Broken(f"the answer is TLS{self._hint}")
                failure.final = True
                raise failure
        found = self._buffer[self._at : end]
        self._at = end + len(mark)
        return found

    def _exactly(self, count: int) -> Bytes:
        """The next bytes."""
        found = self._buffer[self._at : self._at + count]
        self._at += len(found)
        left = count - len(found)
        if not left:
            return found
        parts = [found]
        while left:
            self._buffer = yield
            self._at = min(left, len(self._buffer))
            parts.append(self._buffer[: self._at])
            left -= self._at
        return b"".join(parts)


def _read_head(text: bytes) -> tuple[str, int, dict[str, str]]:
    """The minor version, the status and the headers that a head says."""
    first, *lines = text.decode("latin-1").split("\r\n")
    found = _STATUS.fullmatch(first)
    if found is None:
        raise Broken(f"this is no HTTP: {first[:100]}")
    headers: dict[str, str] = {}
    name = ""
    for line in lines:
        if line[:1] in _BLANK and name:  # an old way to go on with a value
            headers[name] += " " + line.strip(_BLANK)
            continue
        name, value = _field(line)
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return found[1], int(found[2]), headers


@lru_cache(256)  # one a second and length, as long as a server says the time
def _plain_head(text: bytes) -> tuple[int, Mapping[str, str], int]:
    """The status, the headers and the length; -1 for a head that says more than that."""
    version, status, headers = _read_head(text)
    length = headers.get("content-length", "")
    plain = (
        version == "1" and 200 <= status not in (204, 304) and "transfer-encoding" not in headers
        and "connection" not in headers and length.isascii() and length.isdigit()
    )  # fmt: skip
    size = int(length) if plain and len(length) < 10 else -1
    return status, MappingProxyType(headers), size  # many answers share them


@lru_cache(64)  # a server says most of them again and again
def _field(line: str) -> tuple[str, str]:
    """The name of a header, in lower case, and its value."""
    name, colon, value = line.partition(":")
    if not colon or not _NAME.fullmatch(name):
        raise Broken(f"the answer has a header that is none: {line[:100]}")
    return name.lower(), value.strip(_BLANK)
