"""Live queries as messages: changes and results, made once however many connections send them.

    changes  --live-->    [["add",18,0,{...}],...],"version":18}        behind {"tag":1,"changes":
             --stream-->  id: 18-... / event: changes / data: {...}     in an event stream

    ["add", version, index, document]           ["remove", version, old_index, key]
    ["change", version, index, key, {set}, [gone]]
    ["changeIndex", version, old_index, index, key, {set}, [gone]]

A client that asked for no result ("first": false) gets the new and the old document behind [gone],
and the old one behind the key of a remove.

Documents go out as they are stored, as JSON text. Of one that changed, only the fields that did:
the two texts are cut into their fields, and no value is decoded. An index is null where a query
has no positions.

Pure functions; safe from any thread.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from tideline.live.item import Item
from tideline.live.notes import SHIFT, Block, PlainChanges
from tideline.model import LiveChange
from tideline.server.outbox import Wire
from tideline.server.shapes import encode

__all__ = ["Kind", "change_wires", "result_texts", "tag_head"]

PIECE_BYTES = 64 << 10
_NOTE = (1 << SHIFT) - 1  # a note without its query
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
Kind = str
"""Of a message: "live", "whole" (the same with whole documents), "stream"."""


def change_text(change: LiveChange, whole: bool = False) -> bytes:
    """A change as JSON.

    >>> change_text(LiveChange("change", 1, 7, 0, 0, b'{"id": 1, "n": 2}', b'{"id": 1, "m": 0}'))
    b'["change",7,0,1,{"n":2},["m"]]'
    """
    kind, version = change.kind, change.version
    new, old = change.raw, change.raw_before
    if kind == "add":
        return b'["add",%d,%b,%b]' % (version, _place(change.index), new or b"null")
    if kind == "remove":
        rest = b",%b]" % (old or b"null") if whole else b"]"
        place = _place(change.old_index)
        return b'["remove",%d,%b,%b%b' % (version, place, encode(change.key), rest)
    assert new is not None
    assert old is not None
    now, before = _fields(new), _fields(old)
    fields = {name: raw for name, raw in now.items() if name not in before or before[name] != raw}
    gone = [name for name in before if name not in now]
    rest = b"%b,%b,%b" % (encode(change.key), encode(fields), encode(gone))
    rest += b",%b,%b]" % (new, old) if whole else b"]"
    place = _place(change.index)
    if kind == "change":
        return b'["change",%d,%b,%b' % (version, place, rest)
    return b'["changeIndex",%d,%b,%b,%b' % (version, _place(change.old_index), place, rest)


def _place(index: int | None) -> bytes:
    return b"null" if index is None else b"%d" % index


def change_wires(
    changes: Sequence[LiveChange], version: int, kind: Kind, identity: bytes
) -> list[Wire]:
    """Changes as messages that are not too long; all changes of a version are in one.

    `version` is what they reach; a message says the one that it reaches.
    """
    made = time.perf_counter()
    wires: list[Wire] = []
    texts: list[bytes] = []
    size = last = 0
    for change in changes:
        if size >= PIECE_BYTES and change.version != last:
            wires.append(_wire(texts, last, kind, identity, made))
            texts, size = [], 0
        text = change_text(change, kind == "whole")
        texts.append(text)
        size += len(text)
        last = change.version
    wires.append(_wire(texts, version, kind, identity, made))
    return wires


def versions_of(changes: Sequence[LiveChange]) -> tuple[int, int]:
    """The version of the first and of the last change."""
    if isinstance(changes, PlainChanges):
        seq, run = changes.block.seq, changes.run
        return seq + _row(int(run[0])), seq + _row(int(run[-1]))
    return changes[0].version, changes[-1].version


def _row(note: int) -> int:
    return (note & _NOTE) >> 2  # notes.py


class BlockWires:
    """The messages of one block of writes: what a write is to one query, it is to many."""

    __slots__ = ("_identity", "_kind", "_wires", "block", "version")

    def __init__(self, block: Block, version: int, kind: Kind, identity: bytes) -> None:
        self.block = block
        self.version = version
        self._kind = kind
        self._identity = identity
        self._wires: dict[int, list[Wire]] = {}

    def of(self, changes: PlainChanges) -> list[Wire]:
        """The messages of some changes."""
        run = changes.run
        if len(run) > 1:
            return change_wires(changes, self.version, self._kind, self._identity)
        note = int(run[0]) & _NOTE
        found = self._wires.get(note)
        if found is None:
            found = change_wires(changes, self.version, self._kind, self._identity)
            self._wires[note] = found
        return found


def _wire(texts: list[bytes], version: int, kind: Kind, identity: bytes, made: float) -> Wire:
    # A frame may hold several messages, one a line.
    text = b'[%b],"version":%d}' % (_line(b",".join(texts)), version)
    if kind == "stream":
        text = b'id: %d-%b\nevent: changes\ndata: {"changes":%b\n\n' % (version, identity, text)
    return Wire(text, version, made)


def _line(text: bytes) -> bytes:
    return text.replace(b"\n", b" ").replace(b"\r", b" ")


def tag_head(tag: int | str) -> bytes:
    """How every message of a tag begins."""
    return b'{"tag":%d' % tag if type(tag) is int else b'{"tag":%b' % encode(tag)


def result_texts(
    items: Sequence[Item], version: int, reset: bool, *, head: bytes, kind: Kind, identity: bytes
) -> Iterator[bytes]:
    """A result as messages that are not too long; the last says that there are no more."""
    first = 0
    while True:
        size, limit = 0, first
        while limit < len(items) and size < PIECE_BYTES:
            size += len(items[limit].raw)
            limit += 1
        documents = _line(b",".join([item.raw for item in items[first:limit]]))
        more = limit < len(items)
        rest = b'"result":[%b],"version":%d,"more":%b%b}' % (
            documents, version, b"true" if more else b"false", b',"reset":true' if reset else b"",
        )  # fmt: skip
        if kind != "stream":
            yield b"%b,%b" % (head, rest)
        else:
            id = b"" if more else b"id: %d-%b\n" % (version, identity)
            yield b"%bevent: result\ndata: {%b\n\n" % (id, rest)
        if not more:
            return
        first = limit


def watching_text(facts: dict[str, Any]) -> bytes:
    """What a live query is, once it stands: behind the head of its tag."""
    return b',"watching":%b}' % encode(facts)


def ended_text(tag: int | str, reason: str) -> bytes:
    """The end of what a tag stands for, and why."""
    return b'%b,"ended":%b}' % (tag_head(tag), encode(reason))
