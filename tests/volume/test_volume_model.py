"""A volume on a real disk against byte arrays: kills, reopenings, snapshots, vacuum, damage."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tideline.errors import Conflict, InvalidRequest, NotFound
from tideline.volume import Volumes

BLOCK = 512
BLOCKS = 40
SIZE = BLOCK * BLOCKS
OFFSETS = st.integers(0, SIZE - 1) | st.integers(0, BLOCKS - 1).map(lambda n: n * BLOCK)
SIZES = st.integers(0, 3 * BLOCK) | st.integers(1, BLOCKS).map(lambda n: n * BLOCK)


def kill(volumes: Volumes) -> None:
    """What kill -9 leaves: no last checkpoint."""
    volumes.node.close()
    assert volumes._owner is not None
    volumes._owner.leave()
    volumes.machine.files.close()


class VolumeModel(RuleBasedStateMachine):
    """The model is a dict of byte arrays."""

    @initialize()
    def start(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "v"
        Volumes.create(self.path, SIZE, block_bytes=BLOCK)
        self.data = {"main": bytearray(SIZE)}
        self.frozen: set[str] = set()
        self.made = 0
        self.open()

    def open(self) -> None:
        # Small segments, and a log that is forgotten often.
        self.volumes = Volumes.open(self.path, segment_bytes=6_000, compact_bytes=20_000)

    def teardown(self) -> None:
        if hasattr(self, "volumes"):
            self.volumes.close()
            self.folder.cleanup()

    def pick(self, number: int) -> str:
        return sorted(self.data)[number % len(self.data)]

    @rule(which=st.integers(0, 9), offset=OFFSETS, size=SIZES, fill=st.integers(0, 255))
    def write(self, which: int, offset: int, size: int, fill: int) -> None:
        name = self.pick(which)
        data = bytes((fill + n * (fill % 3)) & 255 for n in range(min(size, SIZE - offset)))
        if name in self.frozen:
            if data:
                with pytest.raises(InvalidRequest):
                    self.volumes.write(name, offset, data)
            return
        self.volumes.write(name, offset, data)
        self.data[name][offset : offset + len(data)] = data

    @rule(which=st.integers(0, 9), writes=st.lists(st.tuples(OFFSETS, SIZES), max_size=5))
    def write_many(self, which: int, writes: list[tuple[int, int]]) -> None:
        name = self.pick(which)
        if name in self.frozen:
            return
        rows = [
            (offset, bytes([number + 1]) * min(size, SIZE - offset))
            for number, (offset, size) in enumerate(writes)
        ]
        self.volumes.write_many(name, rows)
        for offset, data in rows:
            self.data[name][offset : offset + len(data)] = data

    @rule(which=st.integers(0, 9), offset=OFFSETS, size=SIZES)
    def trim(self, which: int, offset: int, size: int) -> None:
        name = self.pick(which)
        size = min(size, SIZE - offset)
        if name not in self.frozen:
            self.volumes.trim(name, offset, size)
            self.data[name][offset : offset + size] = bytes(size)

    @rule(which=st.integers(0, 9), offset=OFFSETS, size=SIZES, local=st.booleans())
    def read(self, which: int, offset: int, size: int, local: bool) -> None:
        name = self.pick(which)
        size = min(size, SIZE - offset)
        found = self.volumes.read(name, offset, size, local=local)
        assert found == self.data[name][offset : offset + size]

    @rule(which=st.integers(0, 9), writable=st.booleans())
    def copy(self, which: int, writable: bool) -> None:
        source, name = self.pick(which), f"copy-{self.made}"
        if len(self.data) > 5:
            return
        self.made += 1
        (self.volumes.clone if writable else self.volumes.snapshot)(source, name)
        self.data[name] = bytearray(self.data[source])
        if not writable:
            self.frozen.add(name)
        with pytest.raises(Conflict):
            self.volumes.snapshot("main", name)

    @rule(which=st.integers(0, 9))
    def delete(self, which: int) -> None:
        name = self.pick(which)
        if name != "main":
            self.volumes.delete(name)
            del self.data[name]
            self.frozen.discard(name)
            with pytest.raises(NotFound):
                self.volumes.read(name, 0, 1)

    @rule(killed=st.booleans())
    def reopen(self, killed: bool) -> None:
        if killed:
            kill(self.volumes)
        else:
            self.volumes.close()
        self.open()

    @rule(live=st.sampled_from([0.0, 0.5, 1.0]))
    def vacuum(self, live: float) -> None:
        self.volumes.vacuum(live)
        mapped = self.volumes.status()["mapped_bytes"]
        if live == 1.0:  # what is left is what is mapped, and the segment that is written to
            stored = sum(
                self.volumes.machine.files.size_bytes(n)
                for n in self.volumes.machine.files.names
                if not self.volumes.machine.files.is_in_log(n)
            )
            assert stored <= mapped

    @rule(at=st.sampled_from(["_checkpoint", "drop"]), live=st.sampled_from([0.0, 1.0]))
    def kill_in_vacuum(self, at: str, live: float) -> None:
        """Before the checkpoint that names the new files, or before the old ones are deleted."""

        def killed() -> None:
            raise KeyboardInterrupt

        machine = self.volumes.machine
        setattr(machine if at == "_checkpoint" else machine.files, at, killed)
        with contextlib.suppress(KeyboardInterrupt):
            self.volumes.vacuum(live)
        kill(self.volumes)
        self.open()

    @rule()
    def checkpoint(self) -> None:
        self.volumes.machine.checkpoint()

    @invariant()
    def every_byte_is_there(self) -> None:
        for name, data in getattr(self, "data", {}).items():
            assert self.volumes.read(name, 0, SIZE) == data, name
        if hasattr(self, "volumes"):
            assert {one.name for one in self.volumes.all()} == set(self.data)


TestVolumeModel = VolumeModel.TestCase
