"""What the log of a block volume holds: one order a value. Bytes, little-endian.

    order   := head | body
    head    := kind u8 | flags u8 | count u16 | volume u32 | session u64 | first block u64
    WRITE   count blocks from `first` on; body: crc32 u32 * count [| expected u64] | data
    TRIM    body: u64, how many blocks from `first` on are forgotten
    others  body: JSON

A block is named by its reference: (index of the entry) << 8 | its number in the entry. So an entry
holds at most 256 blocks. `expected` (flag 1) is the reference that the one block of the order must
have when it is applied: a part of a block is written by reading it, changing it and writing it
back, and this says that nobody wrote in between.

`session` is 0, or the session that the writer opened (`OPEN`): an order of an older session is not
applied. So what a client sent to a leader that was cut off cannot come back later.

Pure functions; safe from any thread.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple
from zlib import crc32

import msgspec

from tideline.errors import Corruption

__all__ = [
    "CLONE", "CREATE", "DELETE", "ENTRY_BLOCKS", "ENTRY_BYTES", "OPEN", "RESIZE", "SNAPSHOT",
    "TRIM", "WRITE", "Order", "blocks_an_entry", "command", "data_at", "read", "reference", "trim",
    "write",
]  # fmt: skip

WRITE, TRIM, CREATE, SNAPSHOT, CLONE, DELETE, RESIZE, OPEN = range(1, 9)
ENTRY_BLOCKS = 256
ENTRY_BYTES = 1 << 20
_HEAD = struct.Struct("<BBHIQQ")
_U64 = struct.Struct("<Q")
_EXPECTED = 1


class Order(NamedTuple):
    """An order, read."""

    kind: int
    count: int  # type: ignore[assignment]  # tuples have a method of this name
    volume: int
    session: int
    first: int
    sums: tuple[int, ...]
    expected: int | None
    at: int
    """Where the data begins in the value."""
    values: dict[str, Any]


def reference(index: int, number: int) -> int:
    """The name of a block: the entry that wrote it, and which one of it.

    >>> reference(7, 2)
    1794
    """
    return index << 8 | number


def blocks_an_entry(block_bytes: int) -> int:
    """How many blocks one order writes at most.

    >>> blocks_an_entry(4096), blocks_an_entry(512)
    (256, 256)
    """
    return max(1, min(ENTRY_BLOCKS, ENTRY_BYTES // block_bytes))


def data_at(count: int, *, expected: bool) -> int:
    """Where the data begins in the value of a WRITE."""
    return _HEAD.size + 4 * count + 8 * expected


def write(
    volume: int, session: int, first: int, data: bytes | memoryview, block_bytes: int,
    expected: int | None = None,
) -> bytes:  # fmt: skip
    """Whole blocks.

    >>> order = read(write(0, 0, 5, b"ab" * 512, 512))
    >>> order.first, order.count, order.at
    (5, 2, 32)
    """
    count = len(data) // block_bytes
    view = memoryview(data)
    sums = [crc32(view[at : at + block_bytes]) for at in range(0, len(data), block_bytes)]
    flags = 0 if expected is None else _EXPECTED
    return b"".join((
        _HEAD.pack(WRITE, flags, count, volume, session, first),
        struct.pack(f"<{count}I", *sums),
        b"" if expected is None else _U64.pack(expected),
        data,
    ))  # fmt: skip


def trim(volume: int, session: int, first: int, blocks: int) -> bytes:
    """Forget blocks."""
    return _HEAD.pack(TRIM, 0, 0, volume, session, first) + _U64.pack(blocks)


def command(kind: int, **values: Any) -> bytes:
    """One of the others.

    >>> read(command(CREATE, name="main")).values
    {'name': 'main'}
    """
    return _HEAD.pack(kind, 0, 0, 0, 0, 0) + msgspec.json.encode(values)


def read(value: bytes) -> Order:
    """What one of these wrote; `Corruption` for anything else."""
    try:
        kind, flags, count, volume, session, first = _HEAD.unpack_from(value)
        sums: tuple[int, ...] = ()
        expected, at, values = None, _HEAD.size, {}
        if kind == WRITE:
            sums = struct.unpack_from(f"<{count}I", value, at)
            at = data_at(count, expected=bool(flags & _EXPECTED))
            if flags & _EXPECTED:
                expected = _U64.unpack_from(value, at - 8)[0]
            if not count or (len(value) - at) % count:
                raise ValueError("length")
        elif kind == TRIM:
            count = _U64.unpack_from(value, at)[0]
        elif kind in (CREATE, SNAPSHOT, CLONE, DELETE, RESIZE, OPEN):
            values = msgspec.json.decode(value[at:], type=dict[str, Any])
        else:
            raise ValueError("kind")
    except (struct.error, ValueError) as error:
        raise Corruption("an order of the volume cannot be read", file="log") from error
    return Order(kind, count, volume, session, first, sums, expected, at, values)
