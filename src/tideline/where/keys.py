"""JSON scalars as bytes that sort as the values do.

    value   := 00                                   null (a missing field too)
             | 01 number                            by value, ints and floats together
             | 02 UTF-8 bytes                       by code point
             | 05 00 | 05 01                        false, true
    number  := double, 8 bytes [ rest ]             the greatest double that is not above it
    rest    := size, 1 byte | what is left, big-endian without leading zeros

The first byte is the bracket (`values.RANK`), so bytes of different brackets order as sorting
orders their values. A double is written big-endian with its sign bit turned (all bits, if it is
negative). Whole numbers beyond 2**53 that no double equals have a rest, so 1 and 1.0 are the same
bytes and no two numbers are. Objects and arrays have no bytes: an index holds scalars.

A value stands alone or has its length beside it, so text needs no end mark. It is cut after
`LIMIT` bytes: values that are this long may be cut, and what is found by one has to be compared
again (`is_cut`).

Invariant: for two scalars that are not cut, encode(a) < encode(b) exactly when a comes before b,
and encode(a) == encode(b) exactly when they are equal. Changing this needs a format bump.

Pure functions; safe from any thread. The twin for batches is kernels/documents/keys.py.
"""

from __future__ import annotations

import math
import struct

from tideline.errors import InvalidRequest
from tideline.where.values import MISSING, RANK

__all__ = ["LIMIT", "decode", "encode", "high_of", "is_cut", "low_of"]

LIMIT = 1025  # bytes of an encoded value: one for the bracket and 1 KiB

_DOUBLE = struct.Struct(">d")
_POSITIVE = struct.Struct(">Bd").pack
_EXACT = 1 << 53
_SIGN = 1 << 63
_ALL = (1 << 64) - 1
_NAMES = {"null": 0, "number": 1, "text": 2, "boolean": 5}


def encode(value: object) -> bytes:
    """The bytes of a JSON scalar.

    >>> encode(None).hex(), encode(True).hex(), encode("é").hex()
    ('00', '0501', '02c3a9')
    >>> encode(1).hex(), encode(1) == encode(1.0), encode(-2) < encode(-1.5)
    ('01bff0000000000000', True, True)
    >>> encode(2**53) < encode(2**53 + 1) < encode(2**53 + 2)
    True
    """
    if type(value) is int and 0 <= value <= _EXACT:
        return _POSITIVE(1, -float(value))  # the common case, quick: bits that sort, sign set
    if isinstance(value, str):
        try:
            return b"\x02" + value.encode()[: LIMIT - 1]
        except UnicodeEncodeError as error:
            raise InvalidRequest("text must be valid Unicode", value=value) from error
    if value is None or value is MISSING:
        return b"\x00"
    if isinstance(value, bool):
        return b"\x05\x01" if value else b"\x05\x00"
    if isinstance(value, int):
        return _whole(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise InvalidRequest("a number must be finite", value=value)
        return b"\x01" + _ordered(value + 0.0)
    raise InvalidRequest("only scalars have a place in an index", type=type(value).__name__)


def decode(data: bytes) -> object:
    """The value that `encode` was given; whole numbers as ints, cut text as far as it goes.

    >>> [decode(encode(v)) for v in (None, False, "x", -1.5, 3.0, 2**63 + 1)]
    [None, False, 'x', -1.5, 3, 9223372036854775809]
    """
    kind = data[0]
    if kind == 1:
        bits = int.from_bytes(data[1:9], "big")
        bits = bits ^ _SIGN if bits & _SIGN else bits ^ _ALL
        number: float = _DOUBLE.unpack(bits.to_bytes(8, "big"))[0]
        if len(data) > 9:
            return int(number) + int.from_bytes(data[10:], "big")
        return int(number) if number.is_integer() else number
    if kind == 2:
        return data[1:].decode("utf-8", "ignore" if is_cut(data) else "strict")
    return data[1] == 1 if kind == 5 else None


def is_cut(data: bytes) -> bool:
    """Whether the bytes may be only the beginning of a value.

    >>> is_cut(encode("x" * 1024)), is_cut(encode("x" * 1023))
    (True, False)
    """
    return len(data) >= LIMIT


def low_of(bracket: str) -> bytes:
    """The first bytes a value of a bracket can have: "null", "number", "text", "boolean".

    >>> low_of("number") <= encode(-1e308)
    True
    """
    return bytes([_NAMES[bracket]])


def high_of(bracket: str) -> bytes:
    """What all bytes of a bracket come before: the open end of its range.

    >>> encode(1e308) < high_of("number") <= encode("")
    True
    """
    return bytes([_NAMES[bracket] + 1])


def _whole(value: int) -> bytes:
    try:
        near = float(value)
    except OverflowError:
        # No value in the message: Python refuses to print very long ints.
        raise InvalidRequest("a whole number is too large for an index") from None
    if near > value:  # exact: Python compares an int with a float by value
        near = math.nextafter(near, -math.inf)
    rest = value - int(near)
    if not rest:
        return b"\x01" + _ordered(near)
    size = (rest.bit_length() + 7) // 8
    return b"\x01" + _ordered(near) + bytes([size]) + rest.to_bytes(size, "big")


def _ordered(value: float) -> bytes:
    bits = int.from_bytes(_DOUBLE.pack(value), "big")
    bits = bits ^ _ALL if bits & _SIGN else bits | _SIGN
    return bits.to_bytes(8, "big")


assert all(RANK[kind] == _NAMES[name] for kind, name in
           ((type(None), "null"), (int, "number"), (str, "text"), (bool, "boolean")))  # fmt: skip
