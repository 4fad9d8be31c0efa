"""Values of several fields as one value of an index: bytes that sort as the lists of values do.

    field   := name | name "," name ...               the name of an index on several fields
    value   := part part ...                          one for each field, in their order
    part    := 00                                     null, or no such field
             | 01 double, 8 bytes, size, rest         a number; size is 00 where there is no rest
             | 02 UTF-8 bytes 00 00                   text; a byte 00 in it is written 00 FF
             | 03                                     nothing that an index holds: an object, an
                                                      empty array
             | 05 00 | 05 01                          false, true

A part is that of where/keys.py with an end, so that no part is the beginning of another. The whole
is cut after `LIMIT` bytes, as other values are. A document whose fields meet an array has a value
for each element, and the entry `ARRAYS` (extract.py).

Invariant: of two values that are not cut, the order of the bytes is that of the lists.

Pure functions; safe from any thread.
"""

from __future__ import annotations

from collections.abc import Sequence

from tideline.where.keys import LIMIT, decode

__all__ = ["OTHER", "SEPARATOR", "joined", "part_of", "parts_of", "shown", "starts"]

SEPARATOR = ","
OTHER = b"\x03"
_AFTER = 0xFF  # no part begins with it


def parts_of(field: str) -> list[str]:
    """The fields that an index is on.

    >>> parts_of("road,place.lane"), parts_of("road")
    (['road', 'place.lane'], ['road'])
    """
    return field.split(SEPARATOR)


def joined(values: Sequence[bytes]) -> bytes:
    """Encoded values of several fields as one.

    >>> from tideline.where.keys import encode
    >>> joined([encode("A1"), encode(7)]).hex()
    '024131000001c01c00000000000000'
    >>> joined([encode("A"), encode(9)]) < joined([encode("A"), encode(10)])
    True
    """
    return b"".join([part_of(value) for value in values])[:LIMIT]


def part_of(value: bytes) -> bytes:
    """An encoded value with an end."""
    kind = value[0]
    if kind == 1:
        return value if len(value) > 9 else value + b"\0"
    if kind == 2:
        return value.replace(b"\0", b"\0\xff") + b"\0\0"
    return value


def starts(value: bytes) -> list[int]:
    """Where each whole part of a value ends, and 0 before.

    >>> from tideline.where.keys import encode
    >>> starts(joined([encode("A1"), encode(7)]) + b"\\xff")
    [0, 5, 15]
    """
    found = [0]
    while (at := found[-1]) < len(value):
        kind, end = value[at], at + 1
        if kind == 1:
            end = at + 10 + (value[at + 9] if at + 9 < len(value) else 0)
        elif kind == 2:
            while end < len(value) and value[end : end + 2] != b"\0\0":
                end += 2 if value[end] == 0 else 1
            end += 2
        elif kind == 5:
            end = at + 2
        if kind == _AFTER or end > len(value):
            break
        found.append(end)
    return found


def shown(value: bytes) -> tuple[object, ...]:
    """What a value stands for, for people; one that is cut as far as it goes.

    >>> from tideline.where.keys import encode
    >>> shown(joined([encode(v) for v in ("A\\0", None, 2**60 + 1, -1.5, True)]))
    ('A\\x00', None, 1152921504606846977, -1.5, True)
    """
    found: list[object] = []
    at = 0
    while at < len(value) and value[at] != _AFTER:
        kind, end = value[at], at + 1
        if kind == 1:
            if len(value) < at + 10:
                break
            end = at + 10 + value[at + 9]
            found.append(decode(value[at : at + 9] if value[at + 9] == 0 else value[at:end]))
        elif kind == 2:
            while end < len(value) and value[end : end + 2] != b"\0\0":
                end += 2 if value[end] == 0 else 1
            found.append(value[at + 1 : end].replace(b"\0\xff", b"\0").decode("utf-8", "ignore"))
            end += 2
        elif kind == 5:
            end = at + 2
            found.append(value[at + 1 : end] == b"\1")
        else:
            found.append({} if kind == OTHER[0] else None)
        at = end
    return tuple(found)
