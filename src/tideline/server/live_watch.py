"""A live query on one connection, and what the hub of its collection tells of it.

    hub (live/hub.py), in its thread -> Desk.tell -> on the loop: Watch -> Outbox -> socket

A `Desk` is there for each collection that is watched. What the hub tells of a tick waits there
until the loop comes by, once for all, and is made into messages once for equal queries. A `Watch`
is one tag of one connection, and small: there may be ten thousand on one. What it has in common
with others is a `Line`, and only one that ends at a time has an `End`.

    BEGINNING   its result is being found; what changes meanwhile is held
    TOLD        it is told what changes
    BEHIND      the socket took no more: nothing is told until it does. Then the latest result is
                found and sent with "reset"
    OVER        nothing is said of it any more

`Watch.version` is the version that its reader has once all is sent that is in the outbox. Changes
up to it are passed over.

Everything here is on the event loop, except what says otherwise.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from tideline.errors import Closed
from tideline.live.notes import PlainChanges
from tideline.model import LiveChange
from tideline.server.hub import Hub
from tideline.server.live_messages import BlockWires, Kind, change_wires, versions_of
from tideline.server.outbox import Wire

if TYPE_CHECKING:
    from tideline.server.live_queries import Watches

__all__ = ["BEGINNING", "BEHIND", "OVER", "TOLD", "Desk", "End", "Line", "Tag", "Watch"]

BEGINNING, TOLD, BEHIND, OVER = range(4)
Tag = int | str
_TURN = 2_000  # changes that are delivered before others have a turn
_HELD = 10_000  # changes that are held for a result; more, and it is found again


class Desk:
    """The live queries of one collection, as the server tells them."""

    def __init__(self, hub: Hub, collection: Any) -> None:
        self.collection = collection
        self.queries = collection.hub
        """The hub of its live queries."""
        self.identity = collection.identity.encode()
        self.watches = 0
        self._metrics = hub.metrics
        self._loop = asyncio.get_running_loop()
        self._work = hub.work
        self._told: deque[tuple[Watch, Any, int]] = deque()
        self._woken = False
        self._last: dict[Kind, tuple[Any, list[Wire]]] = {}
        self._blocks: dict[Kind, BlockWires] = {}

    @staticmethod
    def of(hub: Hub, collection: Any) -> Desk:
        """The desk of a collection."""
        found: Desk | None = hub.desks.get(collection)
        if found is None:
            found = hub.desks[collection] = Desk(hub, collection)
        return found

    def tell(self, watch: Watch, what: Any, version: int) -> None:
        """What the hub tells somebody (any thread): changes, None if they are lost, or the end."""
        self._told.append((watch, what, version))
        if not self._woken:
            self._woken = True
            with contextlib.suppress(RuntimeError):  # the loop is gone
                self._loop.call_soon_threadsafe(self._deliver_some)

    def _deliver_some(self) -> None:
        self._woken = False
        self._deliver(_TURN)
        if self._told and not self._woken:
            self._woken = True
            self._loop.call_soon(self._deliver_some)

    def deliver(self) -> None:
        """Put all that was told into the outboxes."""
        self._deliver(len(self._told))

    def _deliver(self, most: int) -> None:
        told = self._told
        for _ in range(min(most, len(told))):
            watch, what, version = told.popleft()
            watch.deliver(what, version)
        if not told:
            self._last.clear()
            self._blocks.clear()

    def wires(self, changes: Sequence[LiveChange], version: int, kind: Kind) -> list[Wire]:
        """Changes as messages: equal queries are told the very same object."""
        self._metrics.live_changes += len(changes)
        known, wires = self._last.get(kind, (None, []))
        if known is changes:
            return wires
        if isinstance(changes, PlainChanges):
            block = self._blocks.get(kind)
            if block is None or block.block is not changes.block or block.version != version:
                block = BlockWires(changes.block, version, kind, self.identity)
                self._blocks[kind] = block
            wires = block.of(changes)
        else:
            wires = change_wires(changes, version, kind, self.identity)
        self._last[kind] = changes, wires
        return wires

    async def caught_up(self) -> int | None:
        """Have all that is committed in the outboxes; returns up to which version that is."""
        version: int | None = None
        with contextlib.suppress(Closed):  # it says so to everybody by itself
            version = self.queries.advance_at_once()
            if version is None:
                version = await self._work.beside(partial(self.queries.advance, renew=True))
        self.deliver()
        return version

    def reached(self) -> int | None:
        """Up to which version everything is in the outboxes; None: not known now."""
        version: int | None = self.queries.settled_version()
        self.deliver()
        return version


class Line(NamedTuple):
    """What live queries of one connection, collection and kind have in common."""

    owner: Watches
    desk: Desk
    kind: Kind


class End:
    """When a live query ends by itself: what the alarm rings."""

    __slots__ = ("__weakref__", "until_us", "watch")

    def __init__(self, watch: Watch, until_us: int) -> None:
        self.watch = watch
        self.until_us = until_us

    def ring(self) -> None:
        """The alarm: it is the time it was set to."""
        self.watch.line.owner.look(self.watch)


class Watch(msgspec.Struct, eq=False, gc=False):
    """One live query on one connection.

    The garbage collector does not look at it. What refers to it and it to, the entry and those of
    its connection, let go of it when it ends.
    """

    line: Line
    tag: Tag
    entry: Any = None
    """Its query in the hub, while it is told of it."""
    state: int = BEGINNING
    held: list[tuple[Any, int]] | None = None
    version: int = -1

    # ---- what the hub says, in any thread ----------------------------------------------------

    def changed(self, entry: Any, changes: Sequence[LiveChange], version: int) -> None:
        """Its result changed."""
        self.line.desk.tell(self, changes, version)

    def lost(self, entry: Any) -> None:
        """What changed is not known."""
        self.line.desk.tell(self, None, 0)

    def ended(self, entry: Any, why: str) -> None:
        """Nothing more will come."""
        self.line.desk.tell(self, why, 0)

    # ---- on the loop --------------------------------------------------------------------------

    @property
    def prefix(self) -> bytes:
        """How its messages with changes begin."""
        return self.line.owner.prefix(self)

    def sent(self, token: Any) -> None:
        """Something was handed to the socket."""

    def deliver(self, what: Any, version: int) -> None:
        """Put what the hub told into the outbox, if there is room."""
        if isinstance(what, str):
            self.line.owner.end(self, "dropped" if "dropped" in what else "closed")
        elif self.state == TOLD:
            if what is None:
                self.line.owner.fall_behind(self)
            else:
                first, last = versions_of(what)
                self._put(what, first, max(version, last))
        elif self.state == BEGINNING:
            if self.held is None:
                self.held = []
            if what is None or len(self.held) >= _HELD:
                self.held = [(None, 0)]  # found again, once it is there
            else:
                self.held.append((what, version))

    def _put(self, changes: Sequence[LiveChange], first: int, version: int) -> None:
        owner, desk, kind = self.line
        outbox = owner.outbox
        if first <= self.version:
            changes = [change for change in changes if change.version > self.version]
            if not changes:
                return
        wires = iter(desk.wires(changes, version, kind) if outbox.has_room else ())
        prefix = self.prefix
        while self.version < version:
            wire = next(wires, None)
            if wire is None or not outbox.has_room:
                owner.fall_behind(self)
                return
            outbox.put(self, wire, len(prefix) + len(wire.data))
            assert isinstance(wire.token, int)
            self.version = wire.token

    def go_on(self, version: int) -> None:
        """Its result is in the outbox, or need not be: tell what changed since."""
        self.version, self.state = version, TOLD
        held = self.held
        if held is not None:
            self.held = None
            for what, reached in held:
                self.deliver(what, reached)
