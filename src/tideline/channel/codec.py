"""Rows in Python: write one operation into a call's buffer, read records that came out.

The layout is in kernels/layout.py. One row is a fixed head of seven words, four words
of shape when the place has one, the key filled up to whole words, and the other texts
end to end; the corners of a polygon from the next whole word on.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from tideline.kernels import layout as at
from tideline.kernels import listing
from tideline.model import Event, Subscriber
from tideline.space.place import POLYGON, Place, Space

__all__ = [
    "Row",
    "read_events",
    "read_rows",
    "read_subscribers",
    "write_prolonged",
    "write_replacing",
    "write_row",
]

Words = NDArray[np.int64]
_HEAD = struct.Struct("<7q")
_SHAPE = struct.Struct("<4d")
_WORD = struct.Struct("<q")
_MOVED = struct.Struct("<3q")
_REPLACED = struct.Struct("<2q")
_NO_SHAPE = (0.0, 0.0, 0.0, 0.0)
_LOW16 = 0xFFFF
_PADS = [b"\0" * (-n & 7) for n in range(8)]
_LOW32 = 0xFFFFFFFF
_subscribers = msgspec.msgpack.Decoder(list[Subscriber]).decode
_events = msgspec.msgpack.Decoder(list[Event]).decode
_FEW = 64  # words of text for which a layout is ready: a whole row, its text filled up with zeros
_PLAIN, _SHAPED = (
    [struct.Struct(f"<{head}{words * 8}s") for words in range(_FEW)] for head in ("7q", "7q4d")
)


class Row(NamedTuple):
    """One record as it came out of the store."""

    kind: int
    flags: int
    seq: int
    made: int
    first: int
    until: int
    place: Place
    id: str
    user: str
    text: bytes
    root: int
    """Of a subscription: the seq of its first record, the same however often it is prolonged."""


def write_row(
    buffer: memoryview, kind: int, flags: int, seq: int, now: int, first: int, until: int,
    place: Place, ident: bytes, user: bytes, text: bytes,
) -> int:  # fmt: skip
    """Write one row at the start of `buffer`; returns its words."""
    key, shape = place[0], place[1]
    texts = key + _PADS[len(key) & 7] + ident + user
    if text:
        texts += text
    if shape == POLYGON:
        texts += _PADS[len(texts) & 7] + place[6]
    words = (len(texts) + 7) >> 3
    lengths = len(key) | len(ident) << 16 | len(user) << 32
    if shape:
        size = words + 11
        layout = _SHAPED[words] if words < _FEW else struct.Struct(f"<7q4d{words * 8}s")
        layout.pack_into(
            buffer, 0, kind | flags << 8 | size << 32, seq, now, first, until, lengths,
            len(text) | shape << 32, place[2], place[3], place[4], place[5], texts,
        )  # fmt: skip
    else:
        size = words + 7
        layout = _PLAIN[words] if words < _FEW else struct.Struct(f"<7q{words * 8}s")
        layout.pack_into(
            buffer, 0, kind | flags << 8 | size << 32, seq, now, first, until, lengths, len(text),
            texts,
        )  # fmt: skip
    return size


def write_prolonged(buffer: memoryview, words: int, root: int, asked: int) -> int:
    """Make the row of a subscription one that prolongs; returns its words.

    `root` is the seq of its first record; events from `asked` on are new to it.
    """
    [head] = _WORD.unpack_from(buffer, 0)
    size = words + at.PROLONGED_WORDS
    _WORD.pack_into(buffer, 0, head & 0xFFFF | at.R_PROLONGED << 8 | size << 32)
    _MOVED.pack_into(buffer, words * 8, root, asked, 0)
    return size


def write_replacing(buffer: memoryview, words: int) -> int:
    """Make the row of an event one that replaces what has its id; returns its words."""
    [head] = _WORD.unpack_from(buffer, 0)
    size = words + at.REPLACES_WORDS
    _WORD.pack_into(buffer, 0, head & 0xFFFF | at.R_REPLACES << 8 | size << 32)
    _REPLACED.pack_into(buffer, words * 8, 0, 0)
    return size


def read_rows(words: Words | bytes) -> list[Row]:
    """Rows that lie end to end."""
    if isinstance(words, bytes):
        data = memoryview(words)
    else:
        data = memoryview(words).cast("B")  # type: ignore[arg-type]
    rows = []
    start = 0
    while start < len(data):
        head, seq, made, first, until, lengths, text = _HEAD.unpack_from(data, start)
        shape = text >> 32
        position = start + 56
        numbers = _NO_SHAPE
        if shape:
            numbers = _SHAPE.unpack_from(data, position)
            position += 32
        key_end = position + (lengths & _LOW16)
        id_start = key_end + (-key_end & 7)
        id_end = id_start + (lengths >> 16 & _LOW16)
        user_end = id_end + (lengths >> 32 & _LOW16)
        text_end = user_end + (text & _LOW32)
        end = start + (head >> 32) * 8
        corners = b""
        if shape == POLYGON:
            at_byte = text_end + (-text_end & 7)
            [count] = _WORD.unpack_from(data, at_byte)
            corners = bytes(data[at_byte : at_byte + 8 + 8 * count])
        root = seq
        if head >> 8 & at.R_PROLONGED and head & 0xFF == at.SUBSCRIBE:
            [root] = _WORD.unpack_from(data, end + 8 * at.R_ROOT)
        rows.append(
            Row(
                head & 0xFF, head >> 8 & 0xFF, seq, made, first, until,
                Place(bytes(data[position:key_end]), shape, *numbers, corners),
                str(data[id_start:id_end], "utf-8"), str(data[id_end:user_end], "utf-8"),
                bytes(data[user_end:text_end]), root,
            )
        )  # fmt: skip
        start = end
    return rows


def read_subscribers(packed: Words) -> list[Subscriber]:
    """Who stands in packed rows of subscriptions, in order of arrival."""
    return _subscribers(_listed(packed, listing.list_subscribers))


def read_events(packed: Words, space: Space) -> list[Event]:
    """The events in packed rows, in order of arrival."""
    events = _events(_listed(packed, listing.list_events, space.plain))
    if not space.plain:
        decode = space.decode
        names: dict[bytes, Any] = {}
        for event in events:
            place = event.place
            if type(place) is bytes:
                found = names.get(place)
                if found is None:
                    found = names[place] = decode(place, 0, *_NO_SHAPE)
                event.place = found
            elif len(place) == 2:
                event.place = (place[0], place[1])
            else:
                event.place = decode(*place)
    return events


def _listed(packed: Words, kernel: Any, *options: bool) -> memoryview:
    """Packed rows as MessagePack."""
    words = len(packed)
    room = np.empty(listing.room_words(words), np.int64)
    size = kernel(packed, room, *options)
    start = listing.listed_at(words)
    return memoryview(room).cast("B")[start : start + size]  # type: ignore[arg-type]


assert at.R_BODY == 7  # the head's seven words
