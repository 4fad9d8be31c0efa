"""The volumes of a folder: what may be asked of them.

    Volumes.create(folder, size)     a group of one replica;  Volumes.open(folder)
    Volumes(machine, node)           on a `Node`, in a group of several

    write, trim      through the log: on a majority of disks when they return
    read             from the leader, when it is known to lead; local=True: from this replica, from
                     what it has applied. That is not linearizable: it may miss the last writes
    snapshot, clone  copies of the map; take no time and no room

Blocks are the unit of the map; offsets and sizes of calls are bytes. A part of a block is read,
changed and written back, on the condition that nobody wrote it in between.

Safe from any thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from tideline.errors import Conflict, Corruption, InvalidRequest, TidelineError
from tideline.lsm.files import all_zero
from tideline.lsm.owner import Owner
from tideline.replica import Node
from tideline.volume import orders
from tideline.volume.machine import Changed, VolumeMachine
from tideline.volume.settings import check_size, create, load_settings
from tideline.volume.single import Single
from tideline.volume.state import MAIN, once

__all__ = ["Info", "NodeLike", "Volumes"]

_TRIES = 100
_MEMBERS_S = 10.0  # for a majority to agree on other nodes
_BATCH = 64  # values in one proposal


class Info(NamedTuple):
    """A volume or a snapshot."""

    name: str
    kind: str
    size_bytes: int
    used_bytes: int
    source: str
    number: int
    session: int


class NodeLike(Protocol):
    """What is needed of a `Node`."""

    def leads(self, group: int = 0) -> bool: ...
    def propose(self, values: Sequence[bytes], group: int = 0) -> Any: ...
    def read_index(self, timeout: float | None, group: int = 0) -> int: ...
    def wait_applied(self, index: int, timeout: float | None, group: int = 0) -> None: ...
    def stale_s(self, group: int = 0) -> float | None: ...


def _check_name(name: str) -> str:
    plain = name.replace("-", "").replace("_", "").replace(".", "")
    if not (plain.isascii() and plain.isalnum() and len(name) <= 100):
        raise InvalidRequest(
            "a name has letters, digits, '-', '_' and '.', at most 100 of them", name=name
        )
    return name


def _again(error: TidelineError) -> TidelineError:
    """One of the same kind, to be raised by whoever asked."""
    fresh = type(error).__new__(type(error))
    fresh.args, fresh.values = error.args, error.values
    return fresh


class Volumes:
    """The volumes of one folder.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> Volumes.create(Path(folder.name) / "v", 1 << 20)
    >>> with Volumes.open(Path(folder.name) / "v") as volumes:
    ...     volumes.write("main", 10_000, b"hello")
    ...     volumes.snapshot("main", "before")
    ...     volumes.write("main", 10_000, b"HELLO")
    ...     volumes.read("main", 9_999, 7), volumes.read("before", 10_000, 5)
    (b'\\x00HELLO\\x00', b'hello')
    >>> folder.cleanup()
    """

    def __init__(
        self, machine: VolumeMachine, node: NodeLike, *, size_bytes: int, timeout_s: float = 30,
        owner: Owner | None = None,
    ) -> None:  # fmt: skip
        """`size_bytes`: of "main", if this is the first who uses the group. `timeout_s`: how long
        a write or a read waits for the group."""
        self.machine, self.node = machine, node
        self._size_bytes = size_bytes
        self.timeout_s = timeout_s
        self.block_bytes = machine.block_bytes
        self._owner = owner

    # ---- one replica -------------------------------------------------------------------------

    @staticmethod
    def create(
        folder: Path, size_bytes: int, *, block_bytes: int = 4096, node: int | None = None,
        nodes: dict[int, str] | None = None, recover: bool = False,
    ) -> None:  # fmt: skip
        """Make a replica with a volume "main" of this size: on this machine alone, or as `node` of
        `nodes`. `recover`: this node lost its disk, and the others have what it had."""
        create(
            Path(folder), size_bytes, block_bytes=block_bytes, node=node, nodes=nodes or {},
            recover=recover,
        )  # fmt: skip

    @classmethod
    def machine_of(cls, folder: Path) -> tuple[VolumeMachine, Owner]:
        """The machine of a folder, and the lock on it."""
        folder = Path(folder)
        settings = load_settings(Path(folder))
        owner = Owner(folder)
        try:
            return VolumeMachine(folder, block_bytes=settings.block_bytes), owner
        except BaseException:
            owner.leave()
            raise

    @classmethod
    def open(
        cls, folder: Path, *, compact_bytes: int = 256 << 20, segment_bytes: int = 64 << 20
    ) -> Volumes:
        """Open the volumes of one machine."""
        machine, owner = cls.machine_of(folder)
        try:
            node = Single(
                Path(folder) / "replica", machine, compact_bytes=compact_bytes,
                segment_bytes=segment_bytes,
            )  # fmt: skip
            node.start()
            size_bytes = load_settings(Path(folder)).size_bytes
            volumes = cls(machine, node, size_bytes=size_bytes, owner=owner)
            volumes.begin()
        except BaseException:
            owner.leave()
            raise
        return volumes

    def begin(self) -> None:
        """A group that nobody used yet gets its first volume; every node that leads sees to it."""
        if self.machine.state.following == MAIN and self.node.leads():
            blocks = self._size_bytes // self.block_bytes
            self._decide([orders.command(
                orders.CREATE, name="main", blocks=blocks, block_bytes=self.block_bytes, ask="main",
            )])  # fmt: skip

    def close(self) -> None:
        """Let go of the folder; of a `Node`, whoever made it closes it first."""
        try:
            if isinstance(self.node, Single):
                self.node.close()
            self.machine.close()
        finally:
            if self._owner is not None:
                self._owner.leave()

    def __enter__(self) -> Volumes:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # ---- names -------------------------------------------------------------------------------

    def all(self) -> list[Info]:
        """Volumes and snapshots, by number."""
        machine = self.machine
        with machine.lock:
            return [
                Info(one.name, one.kind, one.blocks * self.block_bytes,
                     one.map.used() * self.block_bytes, one.source, one.number, one.session)
                for one in machine.state.volumes.values()
            ]  # fmt: skip

    def info(self, name: str) -> Info:
        """One of them; `NotFound` when there is none."""
        number = self.machine.named(name).number
        return next(one for one in self.all() if one.number == number)

    def add(self, name: str, size_bytes: int, *, ask: str = "") -> None:
        """One more volume, empty. Asked again with the same `ask`, it is the same one."""
        blocks = check_size(size_bytes, self.block_bytes) // self.block_bytes
        self._command(orders.CREATE, name=_check_name(name), blocks=blocks, ask=ask)

    def snapshot(self, source: str, name: str, *, ask: str = "") -> None:
        """Keep what a volume holds now, read only."""
        self._command(orders.SNAPSHOT, name=_check_name(name), source=source, ask=ask)

    def clone(self, source: str, name: str, *, ask: str = "") -> None:
        """A volume that begins with what another one, or a snapshot, holds now."""
        self._command(orders.CLONE, name=_check_name(name), source=source, ask=ask)

    def delete(self, name: str) -> None:
        """Forget a volume or a snapshot; vacuum gives its room back."""
        self._command(orders.DELETE, name=name)

    def resize(self, name: str, size_bytes: int) -> None:
        """Make a volume larger, or smaller: what is behind the new end is forgotten."""
        blocks = check_size(size_bytes, self.block_bytes) // self.block_bytes
        self._command(orders.RESIZE, name=name, blocks=blocks)

    def open_session(self, name: str, client: str, *, take: bool = True) -> int:
        """From now on only this client writes to a volume: its orders carry what this returns.

        With take=False only who opened it last may open it again; others get `Conflict`.
        """
        return self._command(orders.OPEN, name=name, client=client, take=take)

    def _command(self, kind: int, **values: Any) -> int:
        self.begin()
        first, errors = self._decide([orders.command(kind, **values)])
        for error in errors:
            raise _again(error)
        return first

    # ---- data --------------------------------------------------------------------------------

    def read(self, name: str, offset: int, size: int, *, local: bool = False) -> bytes:
        """Bytes of a volume; what was never written is zero.

        Through the leader: everything that was acknowledged is in it. With `local` from this
        replica, which may be behind. `Corruption` when a block is damaged everywhere.
        """
        if not local:
            self.catch_up()
        one = self.machine.named(name)
        self._check_range(one.blocks, offset, size)
        return self.read_here(one.number, offset, size)

    def read_here(self, number: int, offset: int, size: int) -> bytes:
        """Bytes from what this replica has applied."""
        if not size:
            return b""
        block = self.block_bytes
        first, last = offset // block, (offset + size - 1) // block
        parts: list[bytes | memoryview] = []
        for at, found in enumerate(self.machine.read(number, first, last - first + 1)):
            if found is None:
                raise Corruption(
                    "a block is damaged here, and no other replica that answers has it whole",
                    file=self.machine.files.folder, block=first + at,
                )  # fmt: skip
            parts.append(found[1])
        data = b"".join(parts)
        start = offset - first * block
        return data if start == 0 and size == len(data) else data[start : start + size]

    def catch_up(self) -> None:
        """Return when this replica leads and has applied everything that was acknowledged."""
        self.begin()
        self.node.read_index(self.timeout_s)

    def write(self, name: str, offset: int, data: bytes, *, session: int = 0) -> None:
        """Write bytes; they are on a majority of disks when this returns."""
        self.write_many(name, [(offset, data)], session=session)

    def write_many(
        self, name: str, writes: Sequence[tuple[int, bytes]], *, session: int = 0
    ) -> None:
        """Several writes, one after the other, with one fsync. A block is written whole or not."""
        self.begin()
        one = self.machine.named(name)
        for offset, data in writes:
            self._check_range(one.blocks, offset, len(data))
        values = self._values(one.number, session, writes)
        for _ in range(_TRIES):
            changed = set[int]()
            for at in range(0, len(values), _BATCH):
                _, errors = self._decide(values[at : at + _BATCH])
                for error in errors:
                    if not isinstance(error, Changed):
                        raise _again(error)
                    changed.add(error.values["block"])
            if not changed:
                return
            values = self._values(one.number, session, writes, changed)
        raise Conflict("other writers change the same block all the time", name=name)

    def _values(
        self, number: int, session: int, writes: Sequence[tuple[int, bytes]],
        only: set[int] | None = None,
    ) -> list[bytes]:  # fmt: skip
        """Orders for these writes: runs of whole blocks, and single blocks that were in part."""
        size = self.block_bytes
        whole: dict[int, bytes | bytearray | memoryview] = {}
        expected: dict[int, int] = {}
        caught_up = False
        for offset, data in writes:
            view = memoryview(data)
            at = 0
            while at < len(view):
                block, start = divmod(offset + at, size)
                part = view[at : at + size - start]
                at += len(part)
                if only is not None and block not in only:
                    continue
                if len(part) == size:
                    whole[block] = part
                    expected.pop(block, None)
                    continue
                base: bytes | bytearray | memoryview | None = whole.get(block)
                if base is None:
                    if not caught_up:
                        self.catch_up()
                        caught_up = True
                    [found] = self.machine.read(number, block, 1)
                    if found is None:
                        raise Corruption(
                            "a part of a damaged block cannot be written",
                            file=self.machine.files.folder, block=block,
                        )  # fmt: skip
                    expected[block], base = found
                changed = bytearray(base)
                changed[start : start + len(part)] = part
                whole[block] = changed
        return self._runs(number, session, whole, expected)

    def _runs(
        self, number: int, session: int, whole: dict[int, Any], expected: dict[int, int]
    ) -> list[bytes]:
        size, most = self.block_bytes, orders.blocks_an_entry(self.block_bytes)
        values: list[bytes] = []
        run: list[int] = []

        def end() -> None:
            if run:
                data = b"".join(whole[block] for block in run)
                if not data[0] and all_zero(data):
                    values.append(orders.trim(number, session, run[0], len(run)))
                else:
                    values.append(orders.write(number, session, run[0], data, size))
                run.clear()

        for block in sorted(whole):
            if block in expected:
                end()
                data = bytes(whole[block])
                values.append(orders.write(number, session, block, data, size, expected[block]))
                continue
            if run and (block != run[-1] + 1 or len(run) == most):
                end()
            run.append(block)
        end()
        return values

    def trim(self, name: str, offset: int, size: int, *, session: int = 0) -> None:
        """Forget bytes: they read as zero from now on, and vacuum gives their room back."""
        one = self.machine.named(name)
        self._check_range(one.blocks, offset, size)
        block = self.block_bytes
        first, limit = -(-offset // block), (offset + size) // block
        if first >= limit:
            self.write_many(name, [(offset, bytes(size))], session=session)
            return
        edges = [
            (start, bytes(end - start))
            for start, end in ((offset, first * block), (limit * block, offset + size))
            if end > start
        ]
        if edges:
            self.write_many(name, edges, session=session)
        _, errors = self._decide([orders.trim(one.number, session, first, limit - first)])
        for error in errors:
            raise _again(error)

    def flush(self) -> None:
        """Nothing to do: what was acknowledged is on disk already."""

    def _check_range(self, blocks: int, offset: int, size: int) -> None:
        limit = blocks * self.block_bytes
        if offset < 0 or size < 0 or offset + size > limit:
            raise InvalidRequest(
                "these bytes are not in the volume", offset=offset, size=size, size_bytes=limit
            )

    def _decide(self, values: list[bytes]) -> tuple[int, list[TidelineError]]:
        """The index of the first order, and why some were not done, when all are decided."""
        proposal = self.node.propose(values)
        proposal.wait(self.timeout_s)
        limit = proposal.index + len(values)
        self.node.wait_applied(limit - 1, self.timeout_s)
        found = map(self.machine.verdict, range(proposal.index, limit))
        return proposal.index, [error for error in found if error is not None]

    # ---- looking after it --------------------------------------------------------------------

    def vacuum(self, live: float = 0.5) -> dict[str, Any]:
        """Give back the room of what is not mapped any more, on this replica."""
        if isinstance(self.node, Single):
            self.node.compact()
        done = self.machine.vacuum(live)
        return {
            "files": done.files,
            "freed_bytes": done.freed_bytes,
            "rewritten_bytes": done.rewritten_bytes,
        }

    def scrub(self) -> dict[str, int]:
        """Read every block of this replica, and mend what is damaged from the others."""
        mended, lost = self.machine.scrub()
        return {"mended": mended, "damaged": lost}

    def add_node(self, number: int) -> None:
        """Take in a node that was made with `recover`, runs, and asks for it; only the leader can.

        It is sent what the others have, and votes when it has it. One that is there already is not
        asked twice.
        """
        group = self._group()
        if number not in [member.node for member in group.members().all]:
            group.add(number).wait(_MEMBERS_S)

    def remove_node(self, number: int) -> None:
        """Let a node go: it votes no more, and may be switched off; only the leader can."""
        self._group().remove(number).wait(_MEMBERS_S)

    def _group(self) -> Node:
        if not isinstance(self.node, Node):
            raise InvalidRequest("this volume is on one machine alone: it was made without nodes")
        return self.node

    def _members(self) -> dict[str, Any]:
        if not isinstance(self.node, Node):
            return {}
        group = self.node.status()["groups"][0]
        voters, joining = (group["members"][kind] for kind in ("voters", "joining"))
        return {
            "voters": [node for node, _ in voters], "joining": [node for node, _ in joining],
            "asking": group["asking"],
        }  # fmt: skip

    def status(self) -> dict[str, Any]:
        """Figures of this replica. `write_amplification`: bytes written to disk a byte of data."""
        machine = self.machine
        with machine.lock:
            rows = machine.state.rows()
            local = machine.local
            written = local.logged_bytes + local.rewritten_bytes + local.checkpoint_bytes
            figures = {
                "applied": local.index,
                "block_bytes": self.block_bytes,
                "stored_bytes": machine.files.total_bytes(),
                "missing_blocks": machine.state.missing(),
                "data_bytes": local.data_bytes,
                "logged_bytes": local.logged_bytes,
                "rewritten_bytes": local.rewritten_bytes,
                "checkpoint_bytes": local.checkpoint_bytes,
                "write_amplification": round(written / max(local.data_bytes, 1), 4),
                "volumes": len(machine.state.volumes),
            }
        return {
            "leads": self.node.leads(),
            "leader": machine.leader,
            "stale_s": self.node.stale_s(),
            "mapped_bytes": len(once(rows)[0]) * self.block_bytes,
            **figures,
            **self._members(),
        }
