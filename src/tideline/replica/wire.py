"""The bytes between two nodes.

    frame := size of the payload u32 | kind u8 | BLAKE2b-128 of (number, kind, payload) | payload
    BATCH    msgpack of [(group, message), ...]
    PIECE    lane u8 | 1 when it is the last | bytes: a BATCH that is larger than a frame
    BOOK     msgpack of {node: (host, port)}: addresses that the sender knows

Frames are numbered (u64) and signed with the key of the session (handshake.py): one that is
changed, repeated or left out is found.

Pure functions; safe from any thread.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from hashlib import blake2b

import msgspec

from tideline.replica.messages import (
    Accept,
    Accepted,
    Fetch,
    Install,
    Join,
    Message,
    Mismatch,
    Prepare,
    PreVote,
    PreVoted,
    Promise,
    Refused,
    Repair,
    Repaired,
    Supply,
)

__all__ = [
    "BATCH", "BOOK", "HEAD", "MOST_BYTES", "MOST_FRAME", "MOST_VALUE", "PIECE", "Address", "Tagged",
    "decode", "encode", "frame", "frames", "joined", "merged", "pieces", "read_book", "signature",
    "size_of",
]  # fmt: skip

Address = tuple[str, int]
Tagged = tuple[int, Message]  # group and message
_Wire = (
    Accept | Accepted | Fetch | Install | Join | Mismatch | PreVote | PreVoted | Prepare | Promise
    | Refused | Repair | Repaired | Supply
)  # fmt: skip

BATCH, PIECE, BOOK = 1, 2, 3
HEAD = struct.Struct("<IB16s")
_NUMBER = struct.Struct("<QB")
MOST_FRAME = 1 << 20  # bytes of a payload
_MERGED = 64  # entries that are put together to one message
MOST_VALUE = 16 << 20
"""Bytes of one value: a larger one would keep heartbeats waiting for too long."""
MOST_BYTES = {0: 4 * MOST_VALUE, 1: 4 << 30}
"""Of a batch in pieces, by lane. A snapshot is in memory once on each side while it travels."""

encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(list[tuple[int, _Wire]]).decode
read_book = msgspec.msgpack.Decoder(dict[int, tuple[str, int]]).decode


def size_of(message: Message) -> int:
    """About how many bytes a message takes."""
    entries = message.entries if isinstance(message, (Accept, Supply, Repaired)) else ()
    return 100 + sum(len(entry.value) + 40 for entry in entries)


def merged(one: Message, two: Message) -> Message | None:
    """Both messages in one, if that says the same."""
    if type(one) is not type(two) or one.to != two.to or one.sender != two.sender:
        return None
    if isinstance(one, Accept) and isinstance(two, Accept):
        follows = one.ballot == two.ballot and one.upto == two.prev_index
        if not follows or len(one.entries) + len(two.entries) > _MERGED:
            return None
        return msgspec.structs.replace(
            two, prev_index=one.prev_index, prev_ballot=one.prev_ballot,
            entries=one.entries + two.entries,
        )  # fmt: skip
    if isinstance(one, Accepted) and isinstance(two, Accepted):
        newer = two.index >= one.index and two.sent >= one.sent and two.probe >= one.probe
        return two if one.ballot == two.ballot and newer else None
    return None


def frames(data: bytes, lane: int) -> list[tuple[int, bytes]]:
    """A batch as one frame, or in pieces."""
    if len(data) <= MOST_FRAME:
        return [(BATCH, data)]
    return [(PIECE, piece) for piece in pieces(data, lane)]


def pieces(data: bytes, lane: int) -> Iterator[bytes]:
    """A batch as payloads of frames."""
    step = MOST_FRAME // 4
    for at in range(0, len(data), step):
        yield bytes((lane, at + step >= len(data))) + data[at : at + step]


def joined(parts: list[bytes]) -> Sequence[Tagged]:
    """What the pieces were made of."""
    return decode(b"".join(parts))


def frame(key: bytes, number: int, kind: int, payload: bytes) -> bytes:
    """The bytes of the frame with this number."""
    return HEAD.pack(len(payload), kind, signature(key, number, kind, payload)) + payload


def signature(key: bytes, number: int, kind: int, payload: bytes) -> bytes:
    """What shows that a frame is the one that the other side sent with this number."""
    found = blake2b(_NUMBER.pack(number, kind), key=key, digest_size=16)
    found.update(payload)
    return found.digest()
