"""What a replica has on disk. A value is stored once: where the log has it.

    folder := IDENTITY             whose disk this is; without it nothing is served
            | LOCK                 one process at a time (lsm/owner.py)
            | log-N/               segments of lsm/log.py; the highest N counts
            | snapshot-INDEX       of the caller's state (20 digits)

Invariants:
1. A folder without IDENTITY is refused: a replica that lost its disk does not come back as one that
   never promised anything. `Storage.recover` gives it a new incarnation.
2. In memory an entry is its place in the log. `entries` reads values there, and checks them.
3. An entry whose value is damaged is a hole, known by index and ballot: the log is copied without
   it, and others give it again (`Fill`). Other damage is `Corruption`: recover the replica.
4. Each segment begins with all that earlier ones would say but for entries, so that segments whose
   entries are all behind the snapshot can go.
5. After a write or an fsync failed nothing more is written: open it anew.

Threads: `sync` is safe from any thread, and one fsync serves all who wait; so are `place`,
`save_snapshot` and `snapshot_data`. Everything else is for one thread at a time.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from tideline.errors import Closed, Corruption, InvalidRequest, NotFound
from tideline.lsm.files import replace_file, sync_folder, telling
from tideline.lsm.folder import make_folder
from tideline.lsm.frames import FILE_BYTES, HEADER_BYTES
from tideline.lsm.log import Log
from tideline.lsm.owner import Owner
from tideline.lsm.position import Position
from tideline.lsm.segments import name_of
from tideline.replica.messages import (
    MEMBERS,
    NOBODY,
    Append,
    CompactTo,
    Entry,
    Fill,
    InstallSnapshot,
    Mark,
    Member,
    Members,
    Promised,
    Truncate,
    Write,
)
from tideline.replica.opening import NO_LIMIT, Found, open_log, read_entry
from tideline.replica.records import (
    BASE,
    FILL,
    HEAD_BYTES,
    KEEP,
    PROMISE,
    START,
    TRUNCATE,
    Identity,
    entry_parts,
    marks,
    read_identity,
    read_snapshot,
    record,
    write_identity,
    write_snapshot,
)
from tideline.replica.state import Loaded

__all__ = ["Storage"]

_LOG = re.compile(r"log-([0-9]+)")
_SNAPSHOT = re.compile(r"snapshot-([0-9]{20})")


class Storage:
    """The disk of one replica.

    >>> import tempfile
    >>> from tideline.replica import DATA, Ballot, Member
    >>> folder = tempfile.TemporaryDirectory()
    >>> members = Members((Member(1, 1), Member(2, 1), Member(3, 1)))
    >>> Storage.create(Path(folder.name), "demo", Member(1, 1), members)
    >>> storage = Storage.open(Path(folder.name))
    >>> storage.sync(storage.write([Append((Entry(2, Ballot(1, 1, 1), DATA, b"hello"),))]))
    >>> storage.entries(2, 2)[0].value, storage.load().outline.last
    (b'hello', 2)
    >>> storage.close(); folder.cleanup()
    """

    def __init__(self, folder: Path, identity: Identity, owner: Owner) -> None:
        """Use `Storage.open`."""
        self.folder, self.identity = folder, identity
        self._owner = owner
        self._log: Log | None = None
        self._log_folder = folder
        self._found = Found()
        self._files: dict[int, int] = {}
        self._segment_bytes = 0
        self.retain: Callable[[Path], None] | None = None
        """Called with a segment before it is deleted."""
        self._recent: dict[int, Entry] = {}  # the newest entries, in their order
        self._recent_bytes = self._cache_bytes = 0
        self._saved: Mark | None = None  # the snapshot written last

    # ---- making one --------------------------------------------------------------------------

    @classmethod
    def create(
        cls, folder: Path, cluster: str, me: Member, members: Members,
        begin: tuple[int, bytes] | None = None,
    ) -> None:  # fmt: skip
        """The disk of a first member of a new group; all first members are given the same.

        With `begin`, an index and the caller's state there, for a group of one: its log goes on
        after that index, and members that come later are sent the state.
        """
        if me not in members.voters:
            raise InvalidRequest("a first member is one of the voters", node=me.node)
        if begin is None:
            first: Write = Append((Entry(1, NOBODY, MEMBERS, members.encode()),))
        elif members.all != (me,) or begin[0] < 1:
            raise InvalidRequest(
                "a group that begins with a state has one member, and an index from 1 on",
                members=len(members.all), index=begin[0],
            )  # fmt: skip
        else:
            first = InstallSnapshot(Mark(begin[0], NOBODY, members), False, begin[1])
        cls._make(folder, Identity(cluster, *me), [first])

    @classmethod
    def recover(cls, folder: Path, cluster: str, me: Member) -> None:
        """The disk of a node that is new, or lost what it had: with an incarnation never used."""
        cls._make(folder, Identity(cluster, *me), [])

    @classmethod
    def _make(cls, folder: Path, identity: Identity, writes: list[Write]) -> None:
        if identity.node < 1 or identity.incarnation < 1:
            raise InvalidRequest(
                "node and incarnation start at 1",
                node=identity.node, incarnation=identity.incarnation,
            )  # fmt: skip
        folder = Path(folder)
        make_folder(folder, "folder cannot be made")
        with telling("folder cannot be used", folder):
            names = [name for name in os.listdir(folder) if not name.startswith(".")]
            if names:
                raise InvalidRequest(
                    "a replica is made in an empty folder",
                    folder=str(folder),
                    holds=sorted(names)[0],
                )
            self = cls(folder, identity, Owner(folder))
            try:
                self._log_folder = folder / "log-1"
                self._log_folder.mkdir()
                self._log = Log.open(self._log_folder, durability="disk", segment_bytes=NO_LIMIT)
                self._start_segment()
                self.write(writes)
                self._log.sync_all()
                sync_folder(folder)
                # Last: before, the folder is nobody's.
                replace_file(folder / "IDENTITY", write_identity(identity))
                sync_folder(folder)
            finally:
                self.close()

    @classmethod
    def open(
        cls,
        folder: Path,
        *,
        durability: str = "disk",
        segment_bytes: int = 64 << 20,
        cache_bytes: int = 0,
    ) -> Storage:
        """Open what a replica had. `NotFound` where there is no identity.

        The newest entries, `cache_bytes` of them, are kept in memory as well.
        """
        folder = Path(folder)
        path = folder / "IDENTITY"
        with telling("replica cannot be opened", path):
            try:
                identity = read_identity(path.read_bytes(), path)
            except (FileNotFoundError, NotADirectoryError):
                raise NotFound(
                    "no replica is in this folder: create it for a new group; "
                    "if this node lost its disk, recover it with a new incarnation",
                    folder=str(folder),
                ) from None  # fmt: skip
            self = cls(folder, identity, Owner(folder))
            self._cache_bytes = cache_bytes
            try:
                self._open(durability, segment_bytes)
            except BaseException:
                self.close()
                raise
        return self

    def _open(self, durability: str, segment_bytes: int) -> None:
        self._segment_bytes = segment_bytes
        numbers = sorted(int(m[1]) for m in map(_LOG.fullmatch, os.listdir(self.folder)) if m)
        if not numbers:
            raise Corruption("the log of the replica is missing", file=self.folder / "log-1")
        self._log_folder = self.folder / f"log-{numbers[-1]}"
        self._log_folder, log, found = open_log(self._log_folder, durability)
        self._log, self._found = log, found
        for number in numbers:
            if f"log-{number}" != self._log_folder.name:
                shutil.rmtree(self.folder / f"log-{number}")
        shutil.rmtree(self.folder / "log.tmp", ignore_errors=True)
        if log.end.offset <= FILE_BYTES:
            self._start_segment()
        if found.snapshot.index:
            self.snapshot_data()
        self._drop_snapshots()

    # ---- writing -----------------------------------------------------------------------------

    def load(self) -> Loaded:
        """What the core starts from."""
        found = self._found
        return Loaded(found.promised, found.snapshot, found.outline())

    def write(self, writes: Sequence[Write]) -> Position:
        """Hand writes to the operating system; `sync` with what this returns brings them to disk.

        `Unavailable` when the disk is full or fails: some of them may be there. Open anew.
        """
        log = self._require_log()
        try:
            for write in writes:
                self._write(log, write)
        except BaseException:
            log.close()
            raise
        return log.last

    def _write(self, log: Log, write: Write) -> None:
        found = self._found
        match write:
            case Append():
                for entry in write.entries:
                    self._make_room(log)
                    at = log.append_parts(entry_parts(entry))
                    found.add(at.segment, at.offset, entry.index, entry.ballot, len(entry.value))
                    if entry.kind == MEMBERS:
                        found.members[entry.index] = entry.value
                    self._remember(entry)
            case Promised():
                log.append_parts(record(PROMISE, ballot=write.ballot))
                found.promised = write.ballot
            case Truncate():
                log.append_parts(record(TRUNCATE, write.index))
                found.cut(write.index)
                self._forget(write.index)
            case Fill():
                entry = write.entry
                at = log.append_parts(entry_parts(entry, FILL))
                found.put(at.segment, at.offset, entry.index, len(entry.value))
            case CompactTo():
                self._rebase(log, write.mark, write.base, True)
            case InstallSnapshot():
                if write.mark != self._saved or not self._snapshot_path(write.mark.index).exists():
                    self.save_snapshot(write.mark, write.data)
                self._rebase(log, write.mark, write.mark, write.keep)

    def _rebase(self, log: Log, mark: Mark, base: Mark, keep: bool) -> None:
        """A snapshot counts: what is before goes, once that is on disk."""
        if not self._snapshot_path(mark.index).exists():
            raise InvalidRequest("save_snapshot comes before CompactTo", index=mark.index)
        self._make_room(log)
        log.append_parts(record(KEEP if keep else BASE, body=marks(mark, base)))
        self._found.rebase(mark, base, keep)
        if not keep:
            self._forget(0)
        log.sync_all()
        self._drop_snapshots()
        used = min(self._found.segments, default=log.mark)
        if self.retain is not None:
            for path in sorted(self._log_folder.glob("log-*.log")):
                if int(path.stem[4:]) < used:
                    self.retain(path)
        log.forget(used)
        for number in [n for n in self._files if n < used]:
            os.close(self._files.pop(number))

    def _remember(self, entry: Entry) -> None:
        """Keep a new entry in memory; the oldest go."""
        if self._cache_bytes:
            self._recent[entry.index] = entry
            self._recent_bytes += len(entry.value)
            while self._recent_bytes > self._cache_bytes:
                old = self._recent.pop(next(iter(self._recent)))
                self._recent_bytes -= len(old.value)

    def _forget(self, index: int) -> None:
        """Entries from `index` on are gone."""
        while self._recent:
            last, entry = self._recent.popitem()
            if last < index:
                self._recent[last] = entry
                return
            self._recent_bytes -= len(entry.value)

    def _make_room(self, log: Log) -> None:
        if log.end.offset > self._segment_bytes > 0:
            log.rotate()
            self._start_segment()

    def _start_segment(self) -> None:
        """Say at the start of a segment what earlier ones say but for entries."""
        found = self._found
        body = marks(found.snapshot, found.base, found.last)
        self._require_log().append_parts(record(START, ballot=found.promised, body=body))

    def sync(self, position: Position) -> None:
        """Return when what was written up to `position` is on disk."""
        self._require_log().sync(position)

    # ---- reading -----------------------------------------------------------------------------

    def entries(self, first: int, last: int) -> tuple[Entry, ...]:
        """The entries [first, last] with their values; `Corruption` names one that is damaged."""
        found = self._found
        if not found.base.index < first <= last <= found.last:
            raise InvalidRequest(
                "these entries are not kept", first=first, last=last,
                kept=(found.base.index + 1, found.last),
            )  # fmt: skip
        recent = self._recent
        return tuple(recent.get(i) or self._entry(i) for i in range(first, last + 1))

    def _entry(self, index: int) -> Entry:
        found = self._found
        at = index - found.base.index - 1
        if index in found.holes:
            file = self._log_folder / name_of(found.segments[at])
            raise Corruption("an entry is damaged", file=file, index=index)
        segment = found.segments[at]
        path = self._log_folder / name_of(segment)
        with telling("log cannot be read", path):
            if segment not in self._files:
                self._files[segment] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            return read_entry(self._files[segment], path, segment, found.offsets[at], index)

    def place(self, index: int) -> tuple[Path, int] | None:
        """The segment that has an entry, and where its value begins; None: not kept, or damaged.

        Safe from any thread.
        """
        found = self._found
        with found.lock:
            at = index - found.base.index - 1
            if not 0 <= at < len(found.segments) or index in found.holes:
                return None
            segment, offset = found.segments[at], found.offsets[at]
        if not segment:
            return None
        return self._log_folder / name_of(segment), offset + HEADER_BYTES + HEAD_BYTES

    # ---- snapshots ---------------------------------------------------------------------------

    def save_snapshot(self, mark: Mark, data: bytes) -> None:
        """Put a snapshot on disk; it counts once a `CompactTo` of its mark is written.

        Safe from any thread, if no other saves one of the same index.
        """
        path = self._snapshot_path(mark.index)
        with telling("snapshot cannot be written", path):
            replace_file(path, write_snapshot(mark, data))
            sync_folder(self.folder)
        self._saved = mark

    def snapshot_data(self, mark: Mark | None = None) -> bytes:
        """The state of the snapshot that counts; `Corruption` when it is damaged or missing.

        With `mark`, of that one, if it is still there. Safe from any thread.
        """
        mark = mark or self._found.snapshot
        path = self._snapshot_path(mark.index)
        with telling("snapshot cannot be read", path):
            try:
                found, data = read_snapshot(path.read_bytes(), path)
            except FileNotFoundError:
                raise Corruption("the snapshot of the replica is missing", file=path) from None
        if found != mark:
            raise Corruption("the snapshot is another one", file=path, index=found.index)
        return data

    def _snapshot_path(self, index: int) -> Path:
        return self.folder / f"snapshot-{index:020d}"

    def _drop_snapshots(self) -> None:
        for name in os.listdir(self.folder):
            found = _SNAPSHOT.fullmatch(name)
            if found and int(found[1]) != self._found.snapshot.index:
                (self.folder / name).unlink()

    # ---- the end -----------------------------------------------------------------------------

    @property
    def base_index(self) -> int:
        """The last entry that is not kept."""
        return self._found.base.index

    @property
    def size_bytes(self) -> int:
        """Bytes of the log."""
        return self._require_log().size_bytes

    def close(self) -> None:
        """Finish. Twice is allowed."""
        log, self._log = self._log, None
        self._close_files()
        try:
            if log is not None:
                log.close()
        finally:
            self._owner.leave()

    def _close_files(self) -> None:
        files, self._files = self._files, {}
        for file in files.values():
            os.close(file)

    def _require_log(self) -> Log:
        if self._log is None:
            raise Closed("the replica's storage was closed", folder=str(self.folder))
        return self._log
