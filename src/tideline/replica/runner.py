"""A core and its storage, run together: what a step asks for is done in the right order.

    outcome = runner.step(message or event)     writes are on disk; send `outcome.messages`

One step is one fsync. `step_all` takes many events at once, which share one: whoever has a queue of
messages and proposals gives all of it. Who wants to go on while the disk is busy calls `take`, has
another thread sync, and then `release` (steps.py does).

A value that turns out to be damaged when it is read is not sent: the core hears of it, and asks the
others for it. After an error (a full disk, damage in what is to be applied) the replica has
stopped: close it and open it again.

One thread at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from tideline.errors import Corruption
from tideline.lsm.position import Position
from tideline.replica.core import Core
from tideline.replica.messages import (
    Accept,
    Ballot,
    Compact,
    CompactTo,
    Damaged,
    Entry,
    Event,
    Install,
    Mark,
    Message,
    Repaired,
    Supply,
)
from tideline.replica.state import Options
from tideline.replica.storage import Storage

__all__ = ["Outcome", "Runner"]


class Outcome:
    """What came of one or more steps."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        """To others, with their values."""
        self.state: tuple[Mark, bytes] | None = None
        """Replace the state by this snapshot, before `entries`."""
        self.entries: list[Entry] = []
        """Decided now: apply them in order."""
        self.reads: list[tuple[Any, int]] = []
        """(token, index): answer from a state that has applied `index` or more."""
        self.failed: list[Any] = []
        """Tokens of reads that this replica cannot answer."""
        self.proposed: list[tuple[int, Ballot] | None] = []
        """For each `Propose` and `Change`, in order: its first index and ballot, or None."""
        self.refusals: list[str | None] = []
        """For each of these, why it was refused."""
        self.after: list[Message] = []
        """What waits for the disk: `release` takes it. Of use only with `take`."""
        self.wrote: Position | None = None
        """Up to where that is."""
        self.installed: Mark | None = None
        """With `lazy`, in the place of `state`: a snapshot that counts and is on disk."""


class Runner:
    """One replica with its disk.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from tideline.replica import Member, Members, Propose, Storage, Tick
    >>> folder = tempfile.TemporaryDirectory()
    >>> me = Member(1, 1)
    >>> Storage.create(Path(folder.name), "demo", me, Members((me,)))
    >>> runner = Runner(Storage.open(Path(folder.name)), life=1)
    >>> while not runner.core.leads:
    ...     outcome = runner.step(Tick(0.5))
    >>> [entry.value for entry in runner.step(Propose((b"hello",))).entries]
    [b'hello']
    >>> runner.close(); folder.cleanup()
    """

    def __init__(
        self,
        storage: Storage,
        *,
        life: int,
        options: Options | None = None,
        peers: tuple[int, ...] = (),
        lazy: bool = False,
    ) -> None:
        """`life` is another number at each start; `peers` are nodes to ask to be taken in by.

        With `lazy`, values that are decided and states of snapshots are not read: the caller reads
        them from the storage when they are wanted, also for an `Install` that is to be sent.
        """
        self.storage = storage
        self._lazy = lazy
        me = storage.identity.member
        self.core = Core(me, storage.load(), life=life, options=options, peers=peers)

    def step(self, what: Message | Event) -> Outcome:
        """Take one message or event."""
        return self.step_all([what])

    def step_all(self, what: Sequence[Message | Event]) -> Outcome:
        """Take messages and events, with one fsync for all."""
        out = Outcome()
        queue: Sequence[Message | Event] = what
        while queue:
            for one in queue:
                self.take(one, out)
            if out.wrote is not None:
                self.storage.sync(out.wrote)
            queue = self.release(out)
        return out

    def take(self, what: Message | Event, out: Outcome) -> None:
        """Take one message or event, and do not wait for the disk."""
        fx = self.core.step(what)
        if fx.writes:
            out.wrote = self.storage.write(fx.writes)
        out.after += fx.after
        for message in fx.sends:
            if message.to == self.core.me:
                out.after.append(message)
            else:
                self._send(message, out)
        if fx.installed is not None and self._lazy:
            out.installed = fx.installed
        elif fx.installed is not None:
            out.state = fx.installed, self.storage.snapshot_data()
            out.entries = []
        if fx.decided is not None and not self._lazy:
            first, last = fx.decided
            out.entries += self.storage.entries(first + 1, last)
        out.reads += fx.reads
        out.failed += fx.failed
        if fx.proposed is not None or fx.refusal is not None:
            out.proposed.append(fx.proposed)
            out.refusals.append(fx.refusal)

    def release(self, out: Outcome) -> list[Message]:
        """What `out.after` waited for is on disk: send it. Returns what is to be taken again."""
        after, out.after, out.wrote = out.after, [], None
        for message in after:
            if message.to != self.core.me:
                self._send(message, out)
        return [message for message in after if message.to == self.core.me]

    def _send(self, message: Message, out: Outcome) -> None:
        """Fill in values; when one is damaged, send nothing and tell the core."""
        try:
            out.messages.append(self._filled(message))
        except Corruption as error:
            if "index" not in error.values:
                raise
            self.take(Damaged(error.values["index"]), out)

    def _filled(self, m: Message) -> Message:
        storage = self.storage
        match m:
            case Accept() | Supply() if m.upto > m.prev_index:
                found = storage.entries(m.prev_index + 1, m.upto)
                return msgspec.structs.replace(m, entries=found)
            case Install() if not self._lazy:
                return msgspec.structs.replace(m, data=storage.snapshot_data())
            case Repaired():
                entries = tuple(storage.entries(index, index)[0] for index in m.indexes)
                return msgspec.structs.replace(m, entries=entries)
        return m

    def compact(self, state: bytes, index: int, *, keep: int = 0) -> None:
        """The caller's state with everything up to `index` applied: earlier log may go.

        The last `keep` entries before stay, for members that are a little behind.
        """
        if index <= self.core.snapshot.index:
            return
        fx = self.core.step(Compact(index, keep))
        for write in fx.writes:
            if isinstance(write, CompactTo):
                self.storage.save_snapshot(write.mark, state)
        self.storage.sync(self.storage.write(fx.writes))

    def close(self) -> None:
        """Let go of the disk."""
        self.storage.close()
