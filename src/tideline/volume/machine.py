"""The state machine of a block volume: what a replica does with the entries of its log.

    entries -> apply -> State (state.py)     which block is in which entry
                        BlockFiles           where that entry is on this disk
    checkpoint                               both, in one file; restart goes on from it

Invariants:
1. The state after an entry depends on the entries up to it alone, so it is the same everywhere.
   An order that does not hold (an older session, no such volume) changes nothing, everywhere.
2. A block is stored once: the entry that wrote it, in the replica's log. A segment is kept by a
   hard link for as long as a block in it is mapped, whatever the log forgets.
3. The checkpoint is on disk before the log may forget what it covers (`snapshot`), and before a
   file that an older one names is deleted (`vacuum`).
4. What is read has the checksum that the writer gave it. Otherwise it is asked from other replicas
   (`fetch`), or it is an error.

Threads: `apply`, `install` and `snapshot` are called by the node, never two at once. Everything
else is safe from any thread.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from tideline.errors import Conflict, Corruption, InvalidRequest, NotFound, TidelineError
from tideline.lsm.files import replace_file, sync_folder, telling
from tideline.replica import DATA, Entry, Mark
from tideline.volume.blockfiles import BlockFiles
from tideline.volume.blockmap import CHUNK, place
from tideline.volume.orders import TRIM, WRITE, Order, read, reference
from tideline.volume.state import Local, Named, State, fenced, once, read_only

__all__ = ["Changed", "Fetch", "Vacuumed", "VolumeMachine"]

Fetch = Callable[[int, Sequence[int], int], list[tuple[int, bytes] | None]]
"""(volume, blocks, index) -> for each, its reference and bytes at another replica that has it.
Replicas wait a little until they have applied the entry of this index: the newest of the blocks."""
PlaceOf = Callable[[int], tuple[Path, int] | None]
"""Index of an entry -> (segment of the log, where its value begins); None: the log forgot it."""
Data = bytes | memoryview
_KEPT_BLOCKS = 16_384  # of a file that vacuum writes, and of those that are asked for at once
_VERDICTS = 65_536
_FRAME_BYTES = 64  # of the log, an entry: its frame and its head, about


class Changed(Conflict):
    """A part of a block was to be written, and somebody else wrote it meanwhile: do it again."""


class Vacuumed:
    """What vacuum did."""

    def __init__(self) -> None:
        self.files = 0
        """Files that were dropped."""
        self.freed_bytes = 0
        self.rewritten_bytes = 0
        """Bytes of blocks that were still mapped in them."""


class VolumeMachine:
    """The volumes of one replica. Give it to a `Node` as its machine.

    `place_of` says where the log has an entry, `fetch` asks other replicas for blocks.
    """

    def __init__(self, folder: Path, *, block_bytes: int, place_of: PlaceOf | None = None) -> None:
        """`folder` holds the checkpoint and the files."""
        self.folder = folder
        self.place_of: PlaceOf = place_of or (lambda index: None)
        self.fetch: Fetch = lambda volume, blocks, index: [None] * len(blocks)
        self.leads, self.leader = False, None  # type: tuple[bool, int | None]
        self.lock = threading.RLock()
        self._vacuuming = threading.Lock()
        self._verdicts: dict[int, TidelineError] = {}
        self._path = folder / "checkpoint"
        self.local = Local(0, {}, 0, 0, 0)
        found = self._load()
        if found is None:
            self.state = State(block_bytes)
        else:
            self.state, self.local = found
            if self.state.block_bytes != block_bytes:
                raise InvalidRequest(
                    "the volume has another block size",
                    block_bytes=block_bytes, is_bytes=self.state.block_bytes,
                )  # fmt: skip
        self.block_bytes = block_bytes
        self.files = BlockFiles(folder / "blocks", self.local.files)
        if self.files.lost:
            self._forget_places()

    # ---- what the node calls -----------------------------------------------------------------

    def apply(self, entries: list[Entry]) -> None:
        """Decided entries, in order."""
        with self.lock:
            for entry in entries:
                if entry.index <= self.local.index:
                    continue  # the checkpoint has it
                if entry.kind == DATA:
                    self._apply_one(entry)
                self.local.index = entry.index

    def _apply_one(self, entry: Entry) -> None:
        order = read(entry.value)
        if order.kind in (WRITE, TRIM):
            verdict = self._change_blocks(entry, order)
        else:
            self._check_block_size(order)
            verdict = self.state.change(entry.index, order)
        self.local.logged_bytes += _FRAME_BYTES + len(entry.value)
        if verdict is not None:
            self._verdicts[entry.index] = verdict
            while len(self._verdicts) > _VERDICTS:
                del self._verdicts[next(iter(self._verdicts))]

    def _check_block_size(self, order: Order) -> None:
        """The first order of a group says it; a replica that was made otherwise must not go on."""
        given = order.values.get("block_bytes", self.block_bytes)
        if given != self.block_bytes:
            raise InvalidRequest(
                "this replica was created with another block size than the group",
                block_bytes=self.block_bytes, is_bytes=given,
            )  # fmt: skip

    def _change_blocks(self, entry: Entry, order: Order) -> TidelineError | None:
        one = self.state.volumes.get(order.volume)
        if one is None:
            return NotFound("the volume was deleted", volume=order.volume)
        if one.kind == "snapshot":
            return read_only(one)
        if order.session not in (0, one.session):
            return fenced(one)
        if order.first + order.count > one.blocks:
            return InvalidRequest("the volume ends before", name=one.name, blocks=one.blocks)
        if order.kind == TRIM:
            one.map.forget(order.first, order.count)
            return None
        if len(entry.value) - order.at != order.count * self.block_bytes:
            return InvalidRequest("the order is of another block size")
        if order.expected is not None and one.map.get(order.first)[0] != order.expected:
            return Changed("the block changed meanwhile", block=order.first)
        refs = [reference(entry.index, number) for number in range(order.count)]
        places = [0] * order.count
        found = self.place_of(entry.index)
        number = self.files.link(found[0]) if found is not None else 0
        if found is not None and number:
            at = found[1] + order.at
            places = [place(number, at + n * self.block_bytes) for n in range(order.count)]
        one.map.put(order.first, refs, list(order.sums), places)
        self.local.data_bytes += order.count * self.block_bytes
        return None

    def snapshot(self) -> bytes:
        """The state for other replicas. The checkpoint of this one is on disk when it returns."""
        self.checkpoint()
        with self.lock:
            data = self.state.encode()
            self.local.checkpoint_bytes += len(data)
            return data

    def install(self, mark: Mark, state: bytes) -> None:
        """Go on from a snapshot. Blocks that this replica does not have are asked from others."""
        with self.lock:
            if mark.index <= self.local.index:
                return
            fresh, _ = State.decode(state, "a snapshot of the volume")
            if fresh.block_bytes != self.block_bytes:
                raise InvalidRequest(
                    "the group has another block size",
                    block_bytes=self.block_bytes, is_bytes=fresh.block_bytes,
                )  # fmt: skip
            refs, places, _ = once(self.state.rows())
            fresh.move(refs, places)
            self.state = fresh
            self.local.index = mark.index
            self._find_in_segments()
        self.checkpoint()

    def retain(self, segment: Path) -> None:
        """The log is about to delete a segment."""
        self.files.retain(segment)

    def _find_in_segments(self) -> None:
        """Blocks that a snapshot told us of may be here all the same: entries that were in our log,
        and that others count on us to have, but were not applied."""
        if not self.state.missing():
            return
        self.files.adopt()
        refs, places, sums = once(self.state.rows())
        wanted = dict(zip(refs[places == 0].tolist(), sums[places == 0].tolist(), strict=True))
        found: dict[int, int] = {}
        for number in self.files.newest():
            for index, at, value in self.files.values(number):
                order = read(value)
                for which, total in enumerate(order.sums):
                    ref = reference(index, which)
                    if wanted.get(ref) == total:  # an entry that lost its place has another sum
                        found[ref] = place(number, at + order.at + which * self.block_bytes)
        names = sorted(found)
        self.state.move(
            np.array(names, np.uint64), np.array([found[ref] for ref in names], np.uint64)
        )

    def role(self, leads: bool, leader: int | None) -> None:
        """Who leads now."""
        with self.lock:
            self.leads, self.leader = leads, leader

    # ---- the checkpoint ----------------------------------------------------------------------

    def checkpoint(self) -> None:
        """Put the map of this replica on disk."""
        with self._vacuuming:
            self._checkpoint()

    def _checkpoint(self) -> None:
        with self.lock:
            self.local.files = dict(self.files.names)
            data = self.state.encode(self.local)
            self.local.checkpoint_bytes += len(data)
        with telling("checkpoint of the volume cannot be written", self._path):
            self.files.sync()
            replace_file(self._path, b"TLvc\1\0\0\0" + crc32(data).to_bytes(4, "little") + data)
            sync_folder(self.folder)

    def _load(self) -> tuple[State, Local] | None:
        with telling("checkpoint of the volume cannot be read", self._path):
            try:
                data = self._path.read_bytes()
            except FileNotFoundError:
                return None
        if data[:8] != b"TLvc\1\0\0\0" or crc32(data[12:]).to_bytes(4, "little") != data[8:12]:
            raise Corruption("the checkpoint of the volume is damaged", file=self._path)
        state, local = State.decode(data[12:], str(self._path))
        if local is None:
            raise Corruption("the checkpoint of the volume is damaged", file=self._path)
        return state, local

    def _forget_places(self) -> None:
        """Files are lost: what was in them is missing, and asked from others."""
        refs, places, _ = once(self.state.rows())
        known = np.isin(places >> np.uint64(40), np.array(list(self.files.names), np.uint64))
        self.state.move(refs, np.where(known, places, np.uint64(0)))

    # ---- what callers ask --------------------------------------------------------------------

    @property
    def applied(self) -> int:
        """The last entry that had an order for it."""
        return self.local.index

    def verdict(self, index: int) -> TidelineError | None:
        """Why the order at this index was not done; None when it was."""
        with self.lock:
            return self._verdicts.get(index)

    def named(self, name: str) -> Named:
        """The volume or snapshot of a name; `NotFound` when there is none."""
        with self.lock:
            one = self.state.named(name)
            if one is None:
                names = sorted(each.name for each in self.state.volumes.values())
                raise NotFound("no such volume or snapshot", name=name, names=names)
            return one

    def references(self, volume: int, blocks: Sequence[int]) -> list[int]:
        """The reference of each block."""
        with self.lock:
            one = self.state.volumes.get(volume)
            return [0 if one is None else one.map.get(block)[0] for block in blocks]

    # ---- reading -----------------------------------------------------------------------------

    def read(
        self, volume: int, first: int, count: int, *, mend: bool = True
    ) -> list[tuple[int, Data] | None]:
        """(reference, bytes) of blocks; None for one that nobody has whole. Never wrong bytes."""
        size = self.block_bytes
        with self.lock:
            one = self.state.volumes.get(volume)
            if one is None:
                raise NotFound("the volume was deleted", volume=volume)
            refs, sums, places = one.map.range(first, count)
        zero = bytes(size)
        out: list[tuple[int, Data] | None] = []
        at = 0
        while at < count:
            if not refs[at]:
                out.append((0, zero))
                at += 1
                continue
            start, run = places[at], 1
            while start and at + run < count and places[at + run] == start + run * size:
                run += 1
            data = self.files.read(start, run * size) if start else None
            if data is None:
                out += [None] * run
            else:
                view = memoryview(data)
                for number in range(run):
                    block = view[number * size : (number + 1) * size]
                    whole = crc32(block) == sums[at + number]
                    out.append((refs[at + number], block) if whole else None)
            at += run
        bad = [number for number, each in enumerate(out) if each is None]
        if bad and mend:
            for number, mended in zip(bad, self._mend(volume, first, bad), strict=True):
                out[number] = mended
        return out

    def _mend(self, volume: int, first: int, bad: list[int]) -> list[tuple[int, Data] | None]:
        """Read again, from here (vacuum may have moved them) and from other replicas."""
        again = [self.read(volume, first + number, 1, mend=False)[0] for number in bad]
        wanted = [first + n for n, each in zip(bad, again, strict=True) if each is None]
        if wanted:
            given = iter(self._fetch_whole(volume, wanted))
            again = [each if each is not None else next(given) for each in again]
        return again

    def _fetch_whole(self, volume: int, blocks: Sequence[int]) -> list[tuple[int, Data] | None]:
        """Ask others for blocks; what comes is checked, and kept here from now on."""
        with self.lock:
            one = self.state.volumes.get(volume)
            known = [(0, 0, 0) if one is None else one.map.get(block) for block in blocks]
        out: list[tuple[int, Data] | None] = []
        whole: dict[int, bytes] = {}
        newest = max(ref >> 8 for ref, _, _ in known)
        found = self.fetch(volume, blocks, newest)
        for (ref, total, _), given in zip(known, found, strict=True):
            if ref and given is not None and given[0] == ref and crc32(given[1]) == total:
                whole[ref] = given[1]
                out.append((ref, given[1]))
            else:
                out.append(None)
        if whole:
            self._keep(whole)
        return out

    def _keep(self, whole: dict[int, bytes]) -> None:
        """Store blocks in a file of ours, and have the maps say so."""
        refs = sorted(whole)
        places = self.files.keep([whole[ref] for ref in refs])
        with self.lock:
            self.state.move(np.array(refs, np.uint64), np.array(places, np.uint64))
            self.local.rewritten_bytes += len(refs) * self.block_bytes

    def missing(self) -> int:
        """How many blocks are mapped and not on this replica."""
        with self.lock:
            return self.state.missing()

    def heal(self, limit: int = _KEPT_BLOCKS) -> int:
        """Ask others for blocks that are missing here, some of them; how many came."""
        with self.lock:
            wanted = {
                number: list(itertools.islice(one.map.missing(), limit))
                for number, one in self.state.volumes.items()
            }
        return sum(
            each is not None
            for number, blocks in wanted.items()
            if blocks
            for each in self._fetch_whole(number, blocks)
        )

    # ---- vacuum ------------------------------------------------------------------------------

    def mapped_bytes(self) -> int:
        """About how many bytes are mapped; at most so many."""
        with self.lock:
            return self.state.mapped() * self.block_bytes

    def garbage_bytes(self) -> int:
        """About how many bytes of the files nobody maps; at least so many."""
        with self.lock:
            return self.files.total_bytes() - self.mapped_bytes()

    def vacuum(self, live: float = 0.5) -> Vacuumed:
        """Drop files in which at most this part is still mapped; what is, is rewritten before.

        Segments that the log itself still has are left alone: dropping them frees nothing.
        """
        if not 0 <= live <= 1:
            raise InvalidRequest("live is a part, from 0 to 1", live=live)
        done = Vacuumed()
        with self._vacuuming:
            with self.lock:
                self.files.adopt()
                rows = self.state.rows()
                names = [n for n in self.files.names if not self.files.is_in_log(n)]
            refs, places, sums = once(rows)
            files = (places >> np.uint64(40)).astype(np.int64)
            used = np.bincount(files, minlength=max(names, default=0) + 1) * self.block_bytes
            for number in names:
                if used[number] <= live * self.files.size_bytes(number):
                    at = np.nonzero(files == number)[0]
                    self._empty(number, refs[at], places[at], sums[at], done)
            if done.files:
                self._checkpoint()
                with self.lock:
                    done.freed_bytes = self.files.drop()
        return done

    def _empty(
        self, number: int, refs: NDArray[np.uint64], places: NDArray[np.uint64],
        sums: NDArray[np.uint32], done: Vacuumed,
    ) -> None:  # fmt: skip
        """Copy what is mapped in a file, and forget the file."""
        for start in range(0, len(refs), _KEPT_BLOCKS):
            whole: dict[int, bytes] = {}
            part = slice(start, start + _KEPT_BLOCKS)
            for ref, where, total in zip(refs[part], places[part], sums[part], strict=True):
                data = self.files.read(int(where), self.block_bytes)
                if data is None or crc32(data) != total:
                    return  # damaged: a read of it, or `scrub`, mends it first
                whole[int(ref)] = data
            self._keep(whole)
            done.rewritten_bytes += len(whole) * self.block_bytes
        with self.lock:
            if not self.state.is_used(number):  # a clone of it may have been mapped meanwhile
                self.files.forget(number)
                done.files += 1

    def scrub(self) -> tuple[int, int]:
        """Read every block and mend what is damaged: (mended, damaged everywhere)."""
        mended = lost = 0
        with self.lock:
            maps = {number: sorted(one.map.chunks) for number, one in self.state.volumes.items()}
        for number, chunks in maps.items():
            for chunk in chunks:
                for first in range(chunk * CHUNK, (chunk + 1) * CHUNK, 256):
                    before = self.read(number, first, 256, mend=False)
                    bad = [n for n, each in enumerate(before) if each is None]
                    if bad:
                        after = self._mend(number, first, bad)
                        lost += sum(each is None for each in after)
                        mended += sum(each is not None for each in after)
        return mended, lost

    def close(self) -> None:
        """Write the checkpoint and let go of the files."""
        self.checkpoint()
        self.files.close()
