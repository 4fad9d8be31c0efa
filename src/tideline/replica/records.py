"""The bytes of a replica on disk: records in the frames of a log, the identity, a snapshot.

    record   := head | body                     the payload of one frame (lsm/frames.py)
    head     := kind u8 | entry kind u8 | 0 u16 | node u32 | index u64 | round u64
                | incarnation u64 | size of the body u64 | crc32 of these 40
    ENTRY, FILL          index, ballot, entry kind; body: the value
    HOLE                 index, ballot, size of what was damaged as body, 8 bytes
    PROMISE              ballot
    TRUNCATE             index
    BASE, KEEP, START    body: msgpack of (snapshot, base), START also of the last index

    identity := "tideline-replica 1 " crc32 of the rest, 8 hex digits " " JSON "\\n"
    snapshot := "TLsn" | 1 u32 | size of the mark u32 | crc32 of mark and data u32 | mark | data

All numbers are little-endian. A head has its own checksum: an entry whose value is damaged is
still known by its index and ballot, and is never taken for one that was not there.

Pure functions; safe from any thread.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

import msgspec

from tideline.errors import Corruption
from tideline.replica.messages import NOBODY, Ballot, Entry, Mark, Member

__all__ = [
    "BASE", "ENTRY", "FILL", "HEAD_BYTES", "HOLE", "KEEP", "PROMISE", "START", "TRUNCATE",
    "Identity", "Record", "entry_parts", "marks", "read_head", "read_identity", "read_marks",
    "read_snapshot", "record", "write_identity", "write_snapshot",
]  # fmt: skip

ENTRY, FILL, HOLE, PROMISE, TRUNCATE, BASE, KEEP, START = range(1, 9)
_HEAD = struct.Struct("<BBHIQQQQ")
_CRC = struct.Struct("<I")
HEAD_BYTES = _HEAD.size + 4
_SNAPSHOT = struct.Struct("<4sIII")
_IDENTITY = b"tideline-replica 1 "


class Record(NamedTuple):
    """A head."""

    kind: int
    entry_kind: int
    index: int  # type: ignore[assignment]  # tuples have a method of this name
    ballot: Ballot
    size: int


class Identity(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who a disk belongs to."""

    cluster: str
    node: int
    incarnation: int

    @property
    def member(self) -> Member:
        """As a member."""
        return Member(self.node, self.incarnation)


def record(
    kind: int, index: int = 0, ballot: Ballot = NOBODY, body: bytes = b"", entry_kind: int = 0
) -> tuple[bytes, bytes]:
    """A record in two parts: head and body.

    >>> head, body = record(TRUNCATE, 7)
    >>> read_head(head + body).index
    7
    """
    head = _HEAD.pack(
        kind, entry_kind, 0, ballot.node, index, ballot.round, ballot.incarnation, len(body)
    )
    return head + _CRC.pack(crc32(head)), body


def entry_parts(entry: Entry, kind: int = ENTRY) -> tuple[bytes, bytes]:
    """An entry as a record."""
    return record(kind, entry.index, entry.ballot, entry.value, entry.kind)


def read_head(payload: bytes | memoryview) -> Record | None:
    """The head of a record; None when it is damaged."""
    if len(payload) < HEAD_BYTES:
        return None
    data = bytes(payload[:HEAD_BYTES])
    if _CRC.unpack_from(data, _HEAD.size)[0] != crc32(data[: _HEAD.size]):
        return None
    kind, entry_kind, _, node, index, number, incarnation, size = _HEAD.unpack_from(data)
    if HEAD_BYTES + size != len(payload):
        return None
    return Record(kind, entry_kind, index, Ballot(number, node, incarnation), size)


def marks(snapshot: Mark, base: Mark, last: int = 0) -> bytes:
    """The body of BASE, KEEP and START."""
    return msgspec.msgpack.encode((snapshot, base, last))


_MARKS = msgspec.msgpack.Decoder(tuple[Mark, Mark, int])
_MARK = msgspec.msgpack.Decoder(Mark)


def read_marks(body: bytes | memoryview) -> tuple[Mark, Mark, int]:
    """What `marks` gave."""
    return _MARKS.decode(body)


def write_identity(identity: Identity) -> bytes:
    """An identity as a file."""
    rest = msgspec.json.encode(identity) + b"\n"
    return _IDENTITY + b"%08x " % crc32(rest) + rest


def read_identity(data: bytes, path: Path) -> Identity:
    """What `write_identity` gave; `Corruption` for anything else."""
    start = len(_IDENTITY) + 9
    rest = data[start:]
    if data[:start] != _IDENTITY + b"%08x " % crc32(rest):
        raise Corruption("the identity of the replica is damaged", file=path)
    return msgspec.json.decode(rest, type=Identity)


def write_snapshot(mark: Mark, data: bytes) -> bytes:
    """A snapshot as a file."""
    head = msgspec.msgpack.encode(mark)
    crc = crc32(data, crc32(head))
    return _SNAPSHOT.pack(b"TLsn", 1, len(head), crc) + head + data


def read_snapshot(data: bytes, path: Path) -> tuple[Mark, bytes]:
    """What `write_snapshot` gave; `Corruption` for anything else."""
    if len(data) >= _SNAPSHOT.size:
        magic, version, size, crc = _SNAPSHOT.unpack_from(data)
        rest = data[_SNAPSHOT.size :]
        if magic == b"TLsn" and version == 1 and crc32(rest) == crc and size <= len(rest):
            return _MARK.decode(rest[:size]), rest[size:]
    raise Corruption("the snapshot of the replica is damaged", file=path)
