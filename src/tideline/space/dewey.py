"""Topic paths as bytes whose order is the order of the tree.

    path    := segment ("/" segment)*             1 to 32 segments, at most 512 bytes
    key     := number-or-text*
    number  := 0x01 digits-count digits 0x00      decimal, no leading zero; at most 255 digits
    text    := 0x02 utf-8 0x00                    any other segment

    "news/9"    02 6e 65 77 73 00  01 01 39 00
    "news/10"   02 6e 65 77 73 00  01 02 31 30 00

Invariants:
1. 0x00 stands at the end of a segment and nowhere else, so a subtree is exactly the
   keys that start with its root's key.
2. Byte order is preorder: a parent before its children; among siblings numbers by
   value (9 before 10), then texts by code point.
3. `decode_path(encode_path(path)) == path`.

Pure functions; safe from any thread.
"""

from __future__ import annotations

from tideline.errors import InvalidRequest
from tideline.space.place import KEY_LIMIT_BYTES

__all__ = ["DIGITS_LIMIT", "SEGMENTS_LIMIT", "decode_path", "encode_path"]

SEGMENTS_LIMIT = 32
DIGITS_LIMIT = 255  # their count is one byte

_NUMBER, _TEXT, _END = b"\x01", b"\x02", b"\x00"


def encode_path(path: str) -> bytes:
    """A path as bytes.

    >>> encode_path("news/10").hex(" ")
    '02 6e 65 77 73 00 01 02 31 30 00'
    >>> encode_path("news/9") < encode_path("news/10") < encode_path("news/a")
    True
    """
    segments = path.split("/")
    if len(segments) > SEGMENTS_LIMIT:
        raise InvalidRequest(
            f"a topic path has at most {SEGMENTS_LIMIT} segments",
            segments=len(segments),
            place=path,
        )
    try:
        size_bytes = len(path.encode())
    except UnicodeEncodeError:
        raise InvalidRequest("a topic path must be valid Unicode text", place=path) from None
    if size_bytes > KEY_LIMIT_BYTES:
        raise InvalidRequest(
            f"a topic path has at most {KEY_LIMIT_BYTES} bytes",
            size_bytes=size_bytes,
            place=path,
        )
    if "\x00" in path:
        raise InvalidRequest("a topic path must not contain NUL", place=path)
    return b"".join([_encode_segment(segment, path) for segment in segments])


def decode_path(key: bytes) -> str:
    """The path a key was made from.

    >>> decode_path(encode_path("sports/soccer/7"))
    'sports/soccer/7'
    """
    segments = []
    start = 0
    while start < len(key):
        limit = key.index(_END, start)
        skip = 2 if key[start] == 1 else 1  # a number also carries its count of digits
        segments.append(key[start + skip : limit].decode())
        start = limit + 1
    return "/".join(segments)


def _encode_segment(segment: str, path: str) -> bytes:
    if not segment:
        raise InvalidRequest(
            "a topic path is segments joined by '/', none of them empty", place=path
        )
    if segment.isdigit() and segment.isascii() and (segment[0] != "0" or segment == "0"):
        if len(segment) > DIGITS_LIMIT:
            raise InvalidRequest(
                f"a number in a topic path has at most {DIGITS_LIMIT} digits",
                digits=len(segment),
                place=path,
            )
        return _NUMBER + bytes((len(segment),)) + segment.encode() + _END
    return _TEXT + segment.encode() + _END
