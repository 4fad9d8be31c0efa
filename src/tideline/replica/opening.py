"""How the log of a replica is read when it is opened, and copied when values in it are damaged.

    Found         what the records say, one after the other
    open_log      replay; where that meets damage: copy what is whole into log-N+1, and replay that
    read_entry    one entry at its place, checked

A log is copied only when every damage is in the value of an entry: its head has a checksum of its
own (records.py), so the copy has a hole with the entry's index and ballot. Any other damage may
hide a promise or an entry, and stays `Corruption`.

For one thread, while nobody else has the folder.
"""

from __future__ import annotations

import os
import shutil
import threading
from array import array
from collections.abc import Iterator
from pathlib import Path
from zlib import crc32

from tideline.errors import Corruption
from tideline.lsm.files import sync_folder
from tideline.lsm.frames import FILE_BYTES, FRAME, HEADER_BYTES, MAGIC
from tideline.lsm.frames import frames as read_frames
from tideline.lsm.log import Log
from tideline.lsm.segments import Segments, name_of
from tideline.replica.messages import MEMBERS, NOBODY, Ballot, Entry, Mark, Members
from tideline.replica.outline import Outline
from tideline.replica.records import (
    BASE,
    ENTRY,
    FILL,
    HEAD_BYTES,
    HOLE,
    KEEP,
    PROMISE,
    START,
    TRUNCATE,
    entry_parts,
    marks,
    read_head,
    read_marks,
    record,
)

__all__ = ["NO_LIMIT", "Found", "open_log", "read_entry"]

NO_LIMIT = 1 << 60  # of a segment: storage.py begins new ones itself
_EMPTY = Mark(0, NOBODY, Members(()))


class Found:
    """What the records of a log say, one after the other."""

    def __init__(self) -> None:
        self.promised = NOBODY
        self.snapshot = self.base = _EMPTY
        self.last = 0
        self.segments, self.offsets, self.sizes = array("Q"), array("Q"), array("Q")
        self.ballots: list[Ballot] = []
        self.members: dict[int, bytes] = {}
        self.holes: set[int] = set()
        self.lock = threading.RLock()  # who asks for a place may be another thread

    def add(self, segment: int, offset: int, index: int, ballot: Ballot, size: int) -> None:
        """An entry at the end. Segment 0: its place is not known."""
        self.last = index
        self.offsets.append(offset)
        self.sizes.append(size)
        self.ballots.append(ballot)
        self.segments.append(segment)  # last: then the entry has a place

    def put(self, segment: int, offset: int, index: int, size: int) -> None:
        """Another place of an entry that is there."""
        at = index - self.base.index - 1
        with self.lock:
            self.segments[at], self.offsets[at], self.sizes[at] = segment, offset, size
            self.holes.discard(index)

    def cut(self, index: int) -> None:
        """Entries from `index` on are gone."""
        with self.lock:
            self._keep(slice(0, max(0, index - self.base.index - 1)))
        self.last = min(self.last, index - 1)
        self.members = {i: m for i, m in self.members.items() if i < index}
        self.holes = {i for i in self.holes if i < index}

    def rebase(self, snapshot: Mark, base: Mark, keep: bool) -> None:
        """The log begins after `base`."""
        if not keep:
            self.cut(self.base.index + 1)
        with self.lock:
            self._keep(slice(max(0, base.index - self.base.index), None))
            self.snapshot, self.base = snapshot, base
        self.last = max(self.last, base.index)
        self.members = {i: m for i, m in self.members.items() if i > base.index}
        self.holes = {i for i in self.holes if i > base.index}

    def _keep(self, which: slice) -> None:
        self.segments, self.offsets = self.segments[which], self.offsets[which]
        self.sizes, self.ballots = self.sizes[which], self.ballots[which]

    def outline(self) -> Outline:
        """For the core."""
        outline = Outline(self.base)
        for at, ballot in enumerate(self.ballots):
            body = self.members.get(self.base.index + 1 + at)
            outline.add(ballot, self.sizes[at], None if body is None else Members.decode(body))
        outline.holes = set(self.holes)
        return outline


def open_log(folder: Path, durability: str) -> tuple[Path, Log, Found]:
    """The log in a folder `log-N`, ready for appends; another folder if it was copied."""
    try:
        return folder, *_replay(folder, durability)
    except Corruption as error:
        copy = _copy_what_is_whole(folder, error)
    return copy, *_replay(copy, durability)


def _replay(folder: Path, durability: str) -> tuple[Log, Found]:
    """Open the log, and hear what it says."""
    numbers = Segments(folder, disk=False).numbers()
    first = min(numbers, default=1)
    log = Log.open(folder, first=first, new=False, durability=durability, segment_bytes=NO_LIMIT)
    found, segment, offset = Found(), 0, 0
    try:
        for number, payload in log.replay():
            if number != segment:
                segment, offset = number, FILE_BYTES
            _hear(folder, found, payload, number, offset, False)
            offset += HEADER_BYTES + (len(payload) + 7 & ~7)
        _check(folder, found)
    except BaseException:
        log.close()
        raise
    return log, found


def _check(folder: Path, found: Found) -> None:
    if 0 in found.segments:
        at = found.base.index + 1 + found.segments.index(0)
        raise Corruption("entries are missing", file=folder, index=at)


def _hear(
    folder: Path,
    found: Found,
    payload: bytes | memoryview,
    segment: int,
    offset: int,
    damaged: bool,
) -> None:
    """Take one record into account; `damaged`: its body is not what was written."""
    head = read_head(payload)
    path = folder / name_of(segment)
    whole = head is not None and (
        not damaged or (head.kind in (ENTRY, FILL) and head.entry_kind != MEMBERS)
    )
    if head is None or not whole:
        raise Corruption("a record is damaged", file=path, offset=offset)
    body = payload[HEAD_BYTES:]
    if head.kind in (ENTRY, HOLE):
        if head.index != found.last + 1:
            raise Corruption("entries are missing", file=path, offset=offset, index=head.index)
        size = head.size
        if head.kind == HOLE:
            size = int.from_bytes(body, "little")
        found.add(segment, offset, head.index, head.ballot, size)
        if head.kind == HOLE or damaged:
            found.holes.add(head.index)
        elif head.entry_kind == MEMBERS:
            found.members[head.index] = bytes(body)
    elif head.kind == FILL:
        if found.base.index < head.index <= found.last and not damaged:
            found.put(segment, offset, head.index, head.size)
    elif head.kind == PROMISE:
        found.promised = head.ballot
    elif head.kind == TRUNCATE:
        found.cut(head.index)
    elif head.kind in (BASE, KEEP):
        snapshot, base, _ = read_marks(body)
        found.rebase(snapshot, base, head.kind == KEEP)
    elif head.kind == START:
        snapshot, base, last = read_marks(body)
        found.promised = head.ballot
        if not found.segments and not found.last:
            found.rebase(snapshot, base, False)
            for index in range(base.index + 1, last + 1):  # in segments that went
                found.add(0, 0, index, NOBODY, 0)
    else:
        raise Corruption("a record is of no known kind", file=path, offset=offset)


def _scan(folder: Path) -> Iterator[tuple[bytes | memoryview, int, int, bool]]:
    """Every record with its place, also one with a damaged body; `Corruption` for the rest."""
    segments = Segments(folder, disk=False)
    numbers = segments.numbers()
    for number in numbers:
        path, data = segments.path(number), segments.map(number)
        last, offset = number == numbers[-1], 0
        if numbers[0] + numbers.index(number) != number:
            raise Corruption("log segment is missing", file=path)
        while True:
            reader = read_frames(path, number, data, last, offset)
            offset = offset or FILE_BYTES
            try:
                for _, payload in reader:
                    yield payload, number, offset, False
                    offset += HEADER_BYTES + (len(payload) + 7 & ~7)
                break
            except Corruption:
                # Its header is whole, so that its length is known: the value is damaged.
                magic, size, _ = FRAME.unpack_from(data, min(offset, len(data) - 16))
                head = int.from_bytes(data[offset + 12 : offset + 16], "little")
                limit = offset + HEADER_BYTES + size
                if magic != MAGIC or crc32(data[offset : offset + 12]) != head:
                    raise
                if limit > len(data) or read_head(data[offset + HEADER_BYTES : limit]) is None:
                    raise
                yield data[offset + HEADER_BYTES : limit], number, offset, True
                offset = limit + (-size & 7)


def _copy_what_is_whole(folder: Path, error: Corruption) -> Path:
    """Write the log anew, with a hole for every entry whose value is damaged."""
    found = Found()
    for payload, segment, offset, damaged in _scan(folder):
        _hear(folder, found, payload, segment, offset, damaged)
    _check(folder, found)
    if not found.holes and not _is_of_a_value(error):
        raise error
    fresh = folder.with_name("log.tmp")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir()
    log = Log.open(fresh, durability="disk", segment_bytes=NO_LIMIT)
    try:
        body = marks(found.snapshot, found.base, found.base.index)
        log.append_parts(record(START, ballot=found.promised, body=body))
        for at, ballot in enumerate(found.ballots):
            index = found.base.index + 1 + at
            if index in found.holes:
                size = found.sizes[at].to_bytes(8, "little")
                log.append_parts(record(HOLE, index, ballot, size))
            else:
                segment, offset = found.segments[at], found.offsets[at]
                entry = _read_from(folder, segment, offset, index)
                log.append_parts(entry_parts(entry))
        log.sync_all()
    finally:
        log.close()
    copy = folder.with_name(f"log-{int(folder.name[4:]) + 1}")
    fresh.rename(copy)
    sync_folder(folder.parent)
    return copy


def _read_from(folder: Path, segment: int, offset: int, index: int) -> Entry:
    path = folder / name_of(segment)
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return read_entry(file, path, segment, offset, index)
    finally:
        os.close(file)


def read_entry(file: int, path: Path, segment: int, offset: int, index: int) -> Entry:
    """The entry whose frame begins there; `Corruption` naming it when that is not what is there."""
    head = os.pread(file, HEADER_BYTES, offset)
    size = int.from_bytes(head[4:8], "little")
    data = head + os.pread(file, size + (-size & 7), offset + HEADER_BYTES)
    try:
        _, payload = next(read_frames(path, segment, memoryview(data), False, 0, offset))
    except (Corruption, StopIteration):
        payload = memoryview(b"")
    found = read_head(payload)
    if found is None or found.index != index:
        raise Corruption("an entry is damaged", file=path, offset=offset, index=index)
    return Entry(index, found.ballot, found.entry_kind, bytes(payload[HEAD_BYTES:]))


def _is_of_a_value(error: Corruption) -> bool:
    """Whether a copy mends it: the damage is in bytes that the copy does not take over."""
    return "payload" in str(error) or "padding" in str(error)
