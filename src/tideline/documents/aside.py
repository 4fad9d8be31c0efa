"""Old versions that frames of another machine lack, kept beside the log, in memory.

In a cluster the machine that writes knows of nobody who follows elsewhere: old versions are in its
frames when somebody wants them there. Where they lack them, and somebody here wants them, they are
looked up before the frame is stored (feed.py), and kept here under its first seq. There is room
for `ROOM_BYTES`, and the oldest go: for who still needs those, the frame has none.

`put` and `clear` are for one thread at a time; `get` is safe from any.
"""

from __future__ import annotations

from tideline.documents.payload import payload_parts
from tideline.documents.types import Rows

__all__ = ["ROOM_BYTES", "Aside"]

ROOM_BYTES = 16 << 20


class Aside:
    """Of one collection."""

    def __init__(self) -> None:
        self._payloads: dict[int, bytes] = {}
        self._size = 0

    def put(self, rows: Rows, seq: int, old: list[bytes | None]) -> bool:
        """Keep the old versions of a frame; False when that is too much."""
        payload = b"".join(payload_parts(rows, seq, old))
        if len(payload) > ROOM_BYTES:
            return False
        self._payloads[seq] = payload
        self._size += len(payload)
        while self._size > ROOM_BYTES:
            self._size -= len(self._payloads.pop(next(iter(self._payloads))))
        return True

    def get(self, seq: int) -> memoryview | None:
        """The frame that begins with a seq, as a payload that has them."""
        found = self._payloads.get(seq)
        return None if found is None else memoryview(found)

    def clear(self) -> None:
        """Nobody wants them any more."""
        self._payloads.clear()
        self._size = 0
