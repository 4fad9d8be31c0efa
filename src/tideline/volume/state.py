"""What a volume's replicas agree on, and its bytes: names, sizes, sessions, maps.

    State      volumes and snapshots by number; the same on all replicas after the same orders
    Named      one of them: its name, size, who may write to it, its map

    encoded := msgpack of (format, block size, next number, volumes, chunks[, local])
               chunks that maps share are stored once. `local` is a replica's own: places and files

Whoever uses this holds the machine's lock.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from tideline.errors import Conflict, Corruption, InvalidRequest, NotFound, TidelineError
from tideline.volume.blockmap import CHUNK, BlockMap, Chunk
from tideline.volume.orders import CREATE, DELETE, OPEN, RESIZE, SNAPSHOT, Order

__all__ = ["MAIN", "Local", "Named", "Rows", "State", "fenced", "once", "read_only"]

MAIN = 1  # the number of the volume that a new group begins with
_FORMAT = 1


@dataclass
class Named:
    """A volume, or a snapshot of one (read only)."""

    number: int
    name: str
    blocks: int
    kind: str = "volume"
    source: str = ""
    session: int = 0
    client: str = ""
    map: BlockMap = field(default_factory=BlockMap)


class Local(msgspec.Struct, array_like=True):
    """A replica's own part of a checkpoint."""

    index: int
    files: dict[int, str]
    data_bytes: int
    logged_bytes: int
    rewritten_bytes: int
    checkpoint_bytes: int = 0


class _Stored(msgspec.Struct, array_like=True):
    format: int
    block_bytes: int
    following: int
    volumes: list[tuple[int, str, int, str, str, int, str, dict[int, int]]]
    chunks: list[tuple[bytes, bytes, bytes]]
    local: Local | None = None


Rows = tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint32]]
"""References, places, checksums."""


def once(rows: Rows) -> Rows:
    """Each block once, in the order of references."""
    refs, first = np.unique(rows[0], return_index=True)
    return refs, rows[1][first], rows[2][first]


def read_only(one: Named) -> InvalidRequest:
    """Nobody writes to a snapshot."""
    return InvalidRequest("a snapshot is read only: make a clone of it to write", name=one.name)


def fenced(one: Named) -> Conflict:
    """One client writes at a time: the one that opened the volume last."""
    return Conflict("the volume was opened by another client", name=one.name)


class State:
    """Volumes and snapshots.

    >>> state = State(4096)
    >>> state.add("main", 100).number
    1
    >>> State.decode(state.encode(), "a message")[0].named("main").blocks
    100
    """

    def __init__(self, block_bytes: int) -> None:
        self.block_bytes = block_bytes
        self.following = MAIN
        self.volumes: dict[int, Named] = {}

    def named(self, name: str) -> Named | None:
        """The volume or snapshot of this name."""
        return next((one for one in self.volumes.values() if one.name == name), None)

    def add(self, name: str, blocks: int, kind: str = "volume", source: str = "") -> Named:
        """One more."""
        one = Named(self.following, name, blocks, kind, source)
        self.volumes[self.following] = one
        self.following += 1
        return one

    def change(self, index: int, order: Order) -> TidelineError | None:
        """Do what an order of names says; why not, where it cannot be done."""
        given = order.values
        name = given["name"]
        one = self.named(name)
        if order.kind in (DELETE, RESIZE, OPEN):
            if one is None:
                return NotFound("no such volume or snapshot", name=name)
            return self._change_one(index, order.kind, one, given)
        if one is not None:
            same = given.get("ask") and one.client == given["ask"]
            return None if same else Conflict("the name is taken", name=name)
        if order.kind == CREATE:
            made = self.add(name, given["blocks"])
        else:
            source = self.named(given["source"])
            if source is None:
                return NotFound("no such volume or snapshot", name=given["source"])
            kind = "snapshot" if order.kind == SNAPSHOT else "volume"
            made = self.add(name, source.blocks, kind, source.name)
            made.map = source.map.copy()
        made.client = given.get("ask", "")
        return None

    def _change_one(
        self, index: int, kind: int, one: Named, given: dict[str, Any]
    ) -> TidelineError | None:
        if kind == DELETE:
            del self.volumes[one.number]
        elif one.kind == "snapshot":
            return read_only(one)
        elif kind == RESIZE:
            if given["blocks"] < one.blocks:
                one.map.forget(given["blocks"], one.blocks - given["blocks"])
            one.blocks = given["blocks"]
        elif not given["take"] and one.client != given["client"]:
            return fenced(one)
        else:
            one.session, one.client = index, given["client"]
        return None

    def chunks(self) -> Iterator[Chunk]:
        """Each chunk once."""
        seen: set[int] = set()
        for one in self.volumes.values():
            for chunk in one.map.chunks.values():
                if id(chunk) not in seen:
                    seen.add(id(chunk))
                    yield chunk

    def rows(self) -> Rows:
        """Every block that is mapped, copied: some more than once, where maps differ nearby."""
        rows = [
            (chunk.refs[used], chunk.places[used], chunk.sums[used])
            for chunk in self.chunks()
            for used in [chunk.refs != 0]
        ]
        if not rows:
            return np.zeros(0, np.uint64), np.zeros(0, np.uint64), np.zeros(0, np.uint32)
        refs, places, sums = (np.concatenate(column) for column in zip(*rows, strict=True))
        return refs, places, sums

    def mapped(self) -> int:
        """How many rows those are."""
        return sum(int(np.count_nonzero(chunk.refs)) for chunk in self.chunks())

    def missing(self) -> int:
        """How many of them are not on this replica."""
        return sum(
            int(np.count_nonzero((chunk.refs != 0) & (chunk.places == 0)))
            for chunk in self.chunks()
        )

    def is_used(self, file: int) -> bool:
        """Whether a block is in this file."""
        return any(bool(np.any(chunk.places >> np.uint64(40) == file)) for chunk in self.chunks())

    def move(self, refs: NDArray[np.uint64], places: NDArray[np.uint64]) -> None:
        """Blocks of these references (in order) are elsewhere now."""
        if not len(refs):
            return
        for chunk in self.chunks():
            at = np.minimum(np.searchsorted(refs, chunk.refs), len(refs) - 1)
            found = (refs[at] == chunk.refs) & (chunk.refs != 0)
            chunk.places[found] = places[at[found]]

    def encode(self, local: Local | None = None) -> bytes:
        """As bytes; with `local` also the places."""
        numbers: dict[int, int] = {}
        chunks: list[tuple[bytes, bytes, bytes]] = []
        volumes = []
        for one in self.volumes.values():
            mapped = {}
            for number, chunk in one.map.chunks.items():
                at = numbers.get(id(chunk))
                if at is None:
                    at = numbers[id(chunk)] = len(chunks)
                    places = chunk.places.tobytes() if local is not None else b""
                    chunks.append((chunk.refs.tobytes(), chunk.sums.tobytes(), places))
                mapped[number] = at
            volumes.append((one.number, one.name, one.blocks, one.kind, one.source, one.session,
                            one.client, mapped))  # fmt: skip
        stored = _Stored(_FORMAT, self.block_bytes, self.following, volumes, chunks, local)
        return msgspec.msgpack.encode(stored)

    @classmethod
    def decode(cls, data: bytes, source: str) -> tuple[State, Local | None]:
        """What `encode` gave; `Corruption` for anything else."""
        try:
            stored = msgspec.msgpack.decode(data, type=_Stored)
            if stored.format != _FORMAT:
                raise InvalidRequest(
                    "this state of a volume is of a newer release", format=stored.format
                )
            chunks = [
                Chunk(
                    np.frombuffer(refs, np.uint64).copy(),
                    np.frombuffer(sums, np.uint32).copy(),
                    np.frombuffer(places or bytes(8 * CHUNK), np.uint64).copy(),
                )
                for refs, sums, places in stored.chunks
            ]
            if any(len(c.refs) != CHUNK or len(c.sums) != CHUNK for c in chunks):
                raise ValueError("length of a chunk")
        except (msgspec.DecodeError, ValueError) as error:
            raise Corruption("the state of the volume cannot be read", file=source) from error
        self = cls(stored.block_bytes)
        self.following = stored.following
        used: set[int] = set()
        for number, name, blocks, kind, origin, session, client, mapped in stored.volumes:
            for at in mapped.values():
                chunks[at].shared |= at in used
                used.add(at)
            found = BlockMap({chunk: chunks[at] for chunk, at in mapped.items()})
            self.volumes[number] = Named(number, name, blocks, kind, origin, session, client, found)
        return self, stored.local
