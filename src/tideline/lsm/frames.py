"""The bytes of a log segment.

    segment     := file header | frame*
    file header := "TLog" | format u32 = 1       | segment number u32       | crc32 of these 12
    frame       := header | payload | pad
    header      := "TLfr" | payload length u32   | crc32 of the payload u32 | crc32 of these 12
    pad         := zero bytes up to a multiple of 8

All numbers are little-endian; both headers have 16 bytes. Changing this needs a format bump:
docs/internals/log.md has worked bytes.

Invariants:
1. Every payload begins at a multiple of 8.
2. Every byte is under a checksum or must be zero, so one changed byte anywhere is found.
3. A header checks on its own. Only then is its length believed: a payload longer than the file
   is then a torn tail, not a flipped length.

Pure functions; safe from any thread.
"""

from __future__ import annotations

import struct
from collections.abc import Generator
from pathlib import Path
from zlib import crc32

from tideline.errors import Corruption
from tideline.lsm.files import all_zero

__all__ = ["CRC", "FRAME", "HEADER_BYTES", "MAGIC", "MAX_PAYLOAD", "PADS", "file_header", "frames"]

FORMAT = 1
MAGIC = b"TLfr"
FRAME = struct.Struct("<4sII")  # either header without its own checksum
CRC = struct.Struct("<I")
PADS = tuple(bytes(-size % 8) for size in range(8))  # by payload length modulo 8
HEADER_BYTES = 16
MAX_PAYLOAD = 1 << 30
_HEADER = struct.Struct("<4sIII")


def file_header(number: int) -> bytes:
    """The first 16 bytes of a segment.

    >>> file_header(1).hex(" ", 4)
    '544c6f67 01000000 01000000 5ff802f4'
    """
    head = FRAME.pack(b"TLog", FORMAT, number)
    return head + CRC.pack(crc32(head))


def frames(
    path: Path, number: int, data: memoryview, last: bool, offset: int = 16
) -> Generator[tuple[int, memoryview], None, int]:
    """Yield the whole frames of a segment from `offset` on; returns where they end.

    Returns 0 when there is no file header.
    """
    size = len(data)
    expected = file_header(number)
    if data[:16] != expected:
        if last and (all_zero(data) or (size < 16 and expected.startswith(data))):
            return 0
        raise Corruption("log file header is damaged", file=path, offset=0)
    while offset < size:
        if size - offset < 16:
            break
        magic, length, payload_crc, head_crc = _HEADER.unpack_from(data, offset)
        if crc32(data[offset : offset + 12]) != head_crc or magic != MAGIC:
            if last and all_zero(data[offset:]):
                break
            raise Corruption("log frame header is damaged", file=path, offset=offset)
        start = offset + 16
        limit = start + length
        following = limit + (-length & 7)
        if following > size:
            break
        payload = data[start:limit]
        if crc32(payload) != payload_crc:
            raise Corruption("log payload is damaged", file=path, offset=offset)
        if data[limit:following] != PADS[length & 7]:
            raise Corruption("log padding is damaged", file=path, offset=limit)
        yield number, payload
        offset = following
    if offset < size and not last:
        raise Corruption("log segment is cut short", file=path, offset=offset)
    return offset
