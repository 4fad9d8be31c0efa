"""Frames of a log, checked and joined: what recovery reads, at memory speed.

`join_frames` stops before the first frame it cannot vouch for, whatever the reason;
lsm/frames.py then decides whether that is a torn tail or damage. The format and its
checksum (CRC-32, as in zlib) are described there.
"""

from __future__ import annotations

import numpy as np

from tideline.kernels import jit
from tideline.kernels.views import words

__all__ = ["checksum_words", "join_frames", "put_header"]


def _tables() -> np.ndarray:
    """Eight tables: entry [k, b] is what byte b adds to the checksum k bytes later."""
    tables = np.zeros((8, 256), np.int64)
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = (value >> 1) ^ (0xEDB88320 if value & 1 else 0)
        tables[0, byte] = value
    for k in range(1, 8):
        for byte in range(256):
            before = int(tables[k - 1, byte])
            tables[k, byte] = int(tables[0, before & 0xFF]) ^ (before >> 8)
    return tables


_T = _tables()
_MASK = 0xFFFFFFFF
_FRAME = int.from_bytes(b"TLfr", "little")


@jit
def checksum_words(data, start, limit):
    """CRC-32 of whole words."""
    crc = _MASK
    for i in range(start, limit):
        low = (data[i] & _MASK) ^ crc
        high = (data[i] >> 32) & _MASK
        crc = (
            _T[7, low & 0xFF]
            ^ _T[6, (low >> 8) & 0xFF]
            ^ _T[5, (low >> 16) & 0xFF]
            ^ _T[4, low >> 24]
            ^ _T[3, high & 0xFF]
            ^ _T[2, (high >> 8) & 0xFF]
            ^ _T[1, (high >> 16) & 0xFF]
            ^ _T[0, high >> 24]
        )
    return crc ^ _MASK


@jit
def head_checksum(first, second):
    """CRC-32 of the twelve bytes of a frame's head that it covers."""
    low = (first & _MASK) ^ _MASK
    high = (first >> 32) & _MASK
    crc = (
        _T[7, low & 0xFF]
        ^ _T[6, (low >> 8) & 0xFF]
        ^ _T[5, (low >> 16) & 0xFF]
        ^ _T[4, low >> 24]
        ^ _T[3, high & 0xFF]
        ^ _T[2, (high >> 8) & 0xFF]
        ^ _T[1, (high >> 16) & 0xFF]
        ^ _T[0, high >> 24]
    )
    low = (second & _MASK) ^ crc
    crc = (
        _T[3, low & 0xFF] ^ _T[2, (low >> 8) & 0xFF] ^ _T[1, (low >> 16) & 0xFF] ^ _T[0, low >> 24]
    )
    return crc ^ _MASK


@jit
def put_header(address, count):
    """Write the header of a frame of `count` words at `address`, before its payload."""
    data = words(address, count + 2)
    data[0] = _FRAME | (count << 35)  # the length in bytes, in the upper half
    payload = checksum_words(data, 2, count + 2)
    data[1] = payload | (head_checksum(data[0], payload) << 32)


@jit
def join_frames(address, position, limit, magic, out_address, room):
    """Copy the payloads of whole, right frames of whole words end to end.

    `position` and `limit` are words of the segment. Returns (position, words copied): the
    first frame that was not taken, because it does not fit, does not check, or is not whole.
    """
    data = words(address, limit)
    out = words(out_address, room)
    used = 0
    while position + 2 <= limit:
        first = data[position]
        second = data[position + 1]
        size = (first >> 32) & _MASK
        count = size >> 3
        if first & _MASK != magic or size & 7 != 0 or position + 2 + count > limit:
            break
        if head_checksum(first, second) != (second >> 32) & _MASK or used + count > room:
            break
        if checksum_words(data, position + 2, position + 2 + count) != second & _MASK:
            break
        for i in range(count):
            out[used + i] = data[position + 2 + i]
        used += count
        position += 2 + count
    return position, used
