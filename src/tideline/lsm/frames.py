"""The bytes of a log segment.

    segment     := file header | frame*
    file header := "TLog" | format u32 = 2 | segment number u64 | size of the segment before u64
                   | 0 u32 | crc32 of these 28
    frame       := header | payload | pad
    header      := "TLfr" | payload length u32   | crc32 of the payload u32 | crc32 of these 12
    pad         := zero bytes up to a multiple of 8

All numbers are little-endian. A file header has 32 bytes, a frame's 16. Changing this needs a
format bump: docs/internals/log.md has worked bytes. Format 1, which is still read, had a file
header of 16 bytes: "TLog" | 1 u32 | segment number u32 | crc32 of these 12.

Invariants:
1. Every payload begins at a multiple of 8.
2. Every byte is under a checksum or must be zero, so one changed byte anywhere is found.
3. A header checks on its own. Only then is its length believed: a payload longer than the file
   is then a torn tail, not a flipped length.
4. A segment says how long the one before it was when it was closed: one that was cut since, also at
   the end of a frame, is found. 0 means that this is not known.

Pure functions; safe from any thread.
"""

from __future__ import annotations

import struct
from collections.abc import Generator
from pathlib import Path
from zlib import crc32

from tideline.errors import Corruption
from tideline.lsm.files import all_zero

__all__ = [
    "CRC", "FILE_BYTES", "FRAME", "HEADER_BYTES", "MAGIC", "MAX_PAYLOAD", "PADS", "file_header",
    "frames", "read_file_header",
]  # fmt: skip

FORMAT = 2
MAGIC = b"TLfr"
FRAME = struct.Struct("<4sII")  # a frame's header without its own checksum
CRC = struct.Struct("<I")
PADS = tuple(bytes(-size % 8) for size in range(8))  # by payload length modulo 8
HEADER_BYTES = 16
FILE_BYTES = 32
MAX_PAYLOAD = 1 << 30
_HEADER = struct.Struct("<4sIII")
_FILE = struct.Struct("<4sIQQI")


def file_header(number: int, before: int) -> bytes:
    """The first 32 bytes of a segment; `before` is the size of the one before, 0 for unknown.

    >>> file_header(2, 1000).hex(" ", 4)
    '544c6f67 02000000 02000000 00000000 e8030000 00000000 00000000 c602df36'
    """
    head = _FILE.pack(b"TLog", FORMAT, number, before, 0)
    return head + CRC.pack(crc32(head))


def read_file_header(
    path: Path, number: int, data: memoryview | bytes, last: bool
) -> tuple[int, int] | None:
    """The size of a segment's header and what it says of the one before; `Corruption` if damaged.

    None for a last segment that a kill left before its header was whole.

    >>> read_file_header(Path("log-000002.log"), 2, file_header(2, 1000), True)
    (32, 1000)
    """
    if bytes(data[:HEADER_BYTES]) == _old_header(number):
        return HEADER_BYTES, 0
    if len(data) >= FILE_BYTES:
        before = _FILE.unpack_from(data)[3]
        if bytes(data[:FILE_BYTES]) == file_header(number, before):
            return FILE_BYTES, int(before)
        torn = all_zero(data)
    else:
        torn = all_zero(data) or file_header(number, 0).startswith(bytes(data[:HEADER_BYTES]))
    if last and torn:
        return None
    raise Corruption("log file header is damaged", file=path, offset=0)


def _old_header(number: int) -> bytes:
    head = FRAME.pack(b"TLog", 1, number & 0xFFFFFFFF)
    return head + CRC.pack(crc32(head))


def frames(
    path: Path, number: int, data: memoryview, last: bool, offset: int = 0, base: int = 0
) -> Generator[tuple[int, memoryview], None, int]:
    """Yield the whole frames of a segment from `offset` on (0: the first); returns where they end.

    Returns 0 when there is no file header. With `base`, `data` begins at that byte of the file,
    which is the begin of a frame, and is read from there on.
    """
    size = len(data)
    if not base:
        head = read_file_header(path, number, data, last)
        if head is None:
            return 0
        offset = offset or head[0]
    while offset < size:
        if size - offset < 16:
            break
        magic, length, payload_crc, head_crc = _HEADER.unpack_from(data, offset)
        if crc32(data[offset : offset + 12]) != head_crc or magic != MAGIC:
            if last and all_zero(data[offset:]):
                break
            raise Corruption("log frame header is damaged", file=path, offset=base + offset)
        start = offset + 16
        limit = start + length
        following = limit + (-length & 7)
        if following > size:
            break
        payload = data[start:limit]
        if crc32(payload) != payload_crc:
            raise Corruption("log payload is damaged", file=path, offset=base + offset)
        if data[limit:following] != PADS[length & 7]:
            raise Corruption("log padding is damaged", file=path, offset=base + limit)
        yield number, payload
        offset = following
    if offset < size and not last:
        raise Corruption("log segment is cut short", file=path, offset=base + offset)
    return base + offset
