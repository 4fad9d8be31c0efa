"""What a cluster agrees on: one value of the replicated log, as bytes.

    value  := FRAME u8 | 0 u8 * 3 | number u32 | segment i64 | offset i64 | payload
            | PART u8, LAST u8 | 0 u8 * 3 | number u32 | segment i64 | offset i64 | at i64 | payload
            | ROTATION u8 | 0 u8 * 3 | number u32 | segment i64 | offset i64
            | CHANGE u8 | JSON of `Change`

A frame is that of a dataset's log, at its position there; `number` is that of the dataset. One
that is too large for a value comes in parts, one right after the other: `at` is where in its
payload a part stands. A change is of settings, or of what there is. All numbers are
little-endian. Pure functions.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import msgspec

from tideline.errors import Corruption
from tideline.lsm.position import Position

__all__ = ["MOST_BYTES", "Change", "Frame", "decode", "encode_change", "encode_frame"]

FRAME, ROTATION, CHANGE, PART, LAST = 1, 2, 3, 4, 5
MOST_BYTES = 8 << 20
"""A longer payload is sent in parts."""
_AT = struct.Struct("<q")
_HEAD = struct.Struct("<B3xIqq")


class Frame(NamedTuple):
    """A frame of a dataset's log, or, without a payload, where a new segment begins."""

    number: int
    position: Position
    payload: bytes | None
    at: int | None = None
    """Where in the payload of the frame this part stands; None for all of it."""
    more: bool = False
    """Whether more parts follow."""


class Change(msgspec.Struct, forbid_unknown_fields=True):
    """A change that is no frame: of the dataset `number`, or of what there is (0)."""

    id: str
    number: int
    what: dict[str, Any]


_decoder = msgspec.json.Decoder(Change)


def encode_frame(number: int, position: Position, payload: bytes | None) -> list[bytes]:
    """A frame as values.

    >>> [value] = encode_frame(7, Position(1, 32), b"payload")
    >>> decode(value)[:3]
    (7, Position(segment=1, offset=32), b'payload')
    """
    if payload is None:
        return [_HEAD.pack(ROTATION, number, *position)]
    parts, at = [], 0
    while len(payload) - at > MOST_BYTES:
        head = _HEAD.pack(PART, number, *position) + _AT.pack(at)
        parts.append(head + payload[at : at + MOST_BYTES])
        at += MOST_BYTES
    if not parts:
        return [_HEAD.pack(FRAME, number, *position) + payload]
    return [*parts, _HEAD.pack(LAST, number, *position) + _AT.pack(at) + payload[at:]]


def encode_change(change: Change) -> bytes:
    """A change as a value.

    >>> decode(encode_change(Change("a", 7, {"drop": True}))).what
    {'drop': True}
    """
    return bytes([CHANGE]) + msgspec.json.encode(change)


def decode(value: bytes) -> Frame | Change:
    """What a value says; `Corruption` for one that this version does not know."""
    try:
        if value[0] == CHANGE:
            return _decoder.decode(value[1:])
        kind, number, segment, offset = _HEAD.unpack_from(value)
        if kind in (FRAME, ROTATION):
            payload = value[_HEAD.size :] if kind == FRAME else None
            return Frame(number, Position(segment, offset), payload)
        if kind in (PART, LAST):
            [at] = _AT.unpack_from(value, _HEAD.size)
            rest = value[_HEAD.size + _AT.size :]
            return Frame(number, Position(segment, offset), rest, at, kind == PART)
    except (IndexError, struct.error, msgspec.MsgspecError):
        pass
    raise Corruption("the cluster's log has a value of another version", file="cluster")
