"""Changes of a collection as messages: made once, however many connections send them.

    Batch  --live_wire-->    [{"seq": 17, "key": 3, "after": {...}}, ...]}      on a WebSocket
           --stream_wire-->  id: 17 / event: change / data: {...}               in an event stream

Documents go out as they are stored, as JSON text; nothing is decoded, but for whoever may see part
of a collection.

Pure functions and values of one event loop.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from tideline.model import Change
from tideline.server.outbox import Wire
from tideline.server.shapes import encode

__all__ = ["Batch", "Visible", "live_wire", "stream_wire"]

Visible = Callable[[Change], Change | None]
"""A change as somebody may see it, None when they may not; it has the old version, too."""


class Batch:
    """Changes one after the other, made into a message once however many follow."""

    __slots__ = ("_wires", "changes", "last", "made")

    def __init__(self, changes: Sequence[Change], last: int) -> None:
        self.changes = changes
        self.last = last
        """The seq that it reaches, also when nobody may see that change."""
        self.made = time.perf_counter()
        self._wires: dict[Any, Wire] = {}

    def wire(self, wrap: Callable[[Sequence[Change]], bytes]) -> Wire:
        """It as a message of a kind of connection."""
        found = self._wires.get(wrap)
        if found is None:
            found = self._wires[wrap] = Wire(wrap(self.changes), self.last, self.made)
        return found

    def after(self, seq: int) -> Batch:
        """What comes after a seq."""
        if not self.changes or self.changes[0].seq > seq:
            return self
        return Batch([change for change in self.changes if change.seq > seq], self.last)

    def seen(self, visible: Visible, before: bool) -> Batch:
        """What somebody may see of it; `before`: with old versions."""
        found = [change for change in map(visible, self.changes) if change is not None]
        if not before:
            found = [Change(change.seq, change.key, change.raw_after) for change in found]
        return Batch(found, self.last)


def _change_text(change: Change) -> bytes:
    old, key = change.raw_before, encode(change.key)
    after = b"null" if change.raw_after is None else change.raw_after
    if isinstance(old, msgspec.UnsetType):
        return b'{"seq":%d,"key":%b,"after":%b}' % (change.seq, key, after)
    before = b"null" if old is None else old
    return b'{"seq":%d,"key":%b,"before":%b,"after":%b}' % (change.seq, key, before, after)


def live_wire(changes: Sequence[Change]) -> bytes:
    """Changes on a WebSocket, without their beginning `{"tag":1,"changes":`."""
    # A frame may hold several messages, one a line.
    return b"[%b]}" % b",".join(map(_change_text, changes)).replace(b"\n", b" ")


def stream_wire(changes: Sequence[Change]) -> bytes:
    """Changes in an event stream; the id is the seq, so that browsers resume by themselves."""
    return b"".join(
        b"id: %d\nevent: change\ndata: %b\n\n"
        % (change.seq, _change_text(change).replace(b"\n", b" ").replace(b"\r", b" "))
        for change in changes
    )
