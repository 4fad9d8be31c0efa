"""Entries: one for each distinct query, shared by everybody who asks it.

    PlainEntry    no sort, limit or offset: its notes are its changes. It keeps nothing.
    StagedEntry   has a stage, Window or Groups, and the changes that not all handles have read

A plain entry is small: there may be a million. The index of conditions has its text, so it keeps
none of its own. A stage is brought up to date when somebody reads
it, from the blocks that the hub keeps, or at every tick when it has subscribers.

Renewal: a stage that lacks something begins anew with what the collection has at a version V, and
tells the difference to what it told last as changes of V. Notes up to V are passed over then. For
subscribers this is done at most every `RENEW_S`, and less often when it takes long; meanwhile
nothing is told. A handle that asks is given a result that is right.

The hub's lock guards all of it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol
from weakref import ReferenceType, ref

import msgspec

from tideline.errors import Closed
from tideline.live.groups import Groups
from tideline.live.item import Item
from tideline.live.query import GroupQuery, Query, query_of
from tideline.live.window import Rank, Ranked, Window, ranked
from tideline.model import LiveChange
from tideline.where.order import sort_keys

if TYPE_CHECKING:
    from tideline.live.hub import Hub

__all__ = ["Entry", "Hits", "PlainEntry", "StagedEntry", "Subscriber", "item_of",
           "new_entry", "rank_of"]  # fmt: skip

RENEW_S = 0.05
_SHARE = 20  # of the time, a renewal may take one part in so many
_decode = msgspec.json.Decoder().decode
Hits = Sequence[tuple[int, bytes]]


class Subscriber(Protocol):
    """Who is told at every tick: hub.py says how."""

    def changed(self, entry: Entry, changes: Sequence[LiveChange], version: int) -> None:
        """What changed, in order."""

    def lost(self, entry: Entry) -> None:
        """What changed is not known: ask `entry.result_now()`."""

    def ended(self, entry: Entry, why: str) -> None:
        """Nothing more will come."""


class Entry:
    """A distinct query that stands."""

    if not TYPE_CHECKING:  # what there is to assign to, each kind says
        __slots__ = ()
    number: int
    """By which the filter stage knows it; -1 once it stands no more."""
    holders: int
    """How many handles and subscribers it has."""
    subscribers: Subscriber | dict[Subscriber, None] | None
    """None, one, or several: most have one, and there may be a million."""

    @property
    def hub(self) -> Hub:
        """Where it stands."""
        raise NotImplementedError

    @property
    def text(self) -> bytes:
        """Canonical: query.py."""
        raise NotImplementedError

    @property
    def query(self) -> Query | GroupQuery:
        """What is asked."""
        return query_of(self.text)

    def result_now(self) -> tuple[int, list[Item]]:
        """A version, and the result at that version, in order."""
        raise NotImplementedError

    def subscribe(self, subscriber: Subscriber) -> None:
        """One subscriber more."""
        there = self.subscribers
        if there is None:
            self.subscribers = subscriber
        elif isinstance(there, dict):
            there[subscriber] = None
        else:
            self.subscribers = {there: None, subscriber: None}

    def unsubscribe(self, subscriber: Subscriber) -> None:
        """One subscriber less, if it is one."""
        there = self.subscribers
        if isinstance(there, dict):
            there.pop(subscriber, None)
            if not there:
                self.subscribers = None
        elif there is subscriber:
            self.subscribers = None

    def all_subscribers(self) -> list[Subscriber]:
        """All of them."""
        there = self.subscribers
        return [] if there is None else list(there) if isinstance(there, dict) else [there]


class PlainEntry(msgspec.Struct, Entry, eq=False, gc=False):
    """A query without positions.

    The garbage collector does not look at it: a million took it seconds. So it does not keep its
    hub, which keeps it.
    """

    _hub: ReferenceType[Hub]
    number: int
    holders: int = 0
    subscribers: Any = None

    @property
    def hub(self) -> Hub:
        """Where it stands."""
        found = self._hub()
        if found is None:
            raise Closed("the live query has ended")
        return found

    @property
    def text(self) -> bytes:
        """Canonical: query.py. Only while it stands (any thread)."""
        number = self.number
        if number >= 0:
            text = self.hub.text_of(number)
            if self.number == number:  # else the number may be another's by now
                return text
        raise Closed("the live query has ended")

    def result_now(self) -> tuple[int, list[Item]]:
        """A version, and the result at that version, newest first."""
        hub = self.hub
        return hub.found(self.query)


class StagedEntry(Entry):
    """A query with positions, or of groups."""

    __slots__ = ("_hub", "_text", "dropped", "holders", "inexact", "kept", "number", "position",
                 "ready", "renew_at", "renewals", "stage", "subscribers", "told", "version",
    )  # fmt: skip

    def __init__(self, hub: Hub, text: bytes, number: int, slack: int | None) -> None:
        self._hub, self._text = hub, text
        self.number, self.holders, self.subscribers = number, 0, None
        query = self.query
        self.stage: Window | Groups
        if isinstance(query, GroupQuery):
            self.stage = Groups(query)
        else:
            spare = (query.limit or 0) if slack is None else slack
            self.stage = Window(rank_of(query, hub.key), query.offset, query.limit, spare)
        self.position = hub.next_block
        """The first block that it has not read."""
        self.version = -1
        """It has read everything up to this one."""
        self.ready = False
        """Whether it has begun: its first result is found without the lock."""
        self.told: list[LiveChange] = []
        self.dropped = 0
        """How many changes were told and are not kept: the number of the first that is."""
        self.kept = 0
        """How many changes are kept for handles."""
        self.inexact: set[int] = set()
        """Versions, of changes that are kept, that were told as a difference."""
        self.renew_at = 0.0
        self.renewals = 0

    @property
    def text(self) -> bytes:
        """Canonical: query.py."""
        return self._text

    @property
    def hub(self) -> Hub:
        """Where it stands."""
        return self._hub

    @property
    def end(self) -> int:
        """The number that the next change will have."""
        return self.dropped + len(self.told)

    def result_now(self) -> tuple[int, list[Item]]:
        """A version, and the result at that version, in order."""
        with self.hub.lock:
            self.catch_up()
            return self.version, list(self.stage.shown())

    def fill(self, version: int, hits: Hits) -> None:
        """Begin with what the collection has at a version, unless somebody else did."""
        if self.ready:
            return
        stage = self.stage
        if isinstance(stage, Groups):
            stage.fill(text for _, text in hits)
        else:
            stage.fill(*self._ranked(hits, stage))
        self.ready, self.version = True, version

    def catch_up(self, *, renew: bool = True) -> None:
        """Read the blocks that came since, find out anew what is lacking, and tell subscribers.

        With subscribers, it has read every block before this one that concerned it.
        """
        hub, stage, first = self.hub, self.stage, self.end
        if self.position < hub.first_block and self.subscribers is None:
            self.lose()
        elif not stage.lacking:
            try:
                for block in hub.blocks_from(self.position):
                    for note in block.of(block.run(self.number, self.version)):
                        self.told += stage.note(note)
            except BaseException:
                self.lose()
                raise
        self.position = hub.next_block
        self.version = max(self.version, hub.version)
        if stage.lacking and renew:
            self.renew()
        if self.subscribers is not None and self.end > first:
            changes = self.told[first - self.dropped :]
            hub.tell(self, changes, changes[0].version)
            self.trim()

    def renew(self) -> None:
        """Begin anew with what the collection has now, and tell the difference."""
        began = time.monotonic()
        stage = self.stage
        version, hits = self.hub.hits(self.query, self.room)
        if isinstance(stage, Groups):
            made = stage.renew((text for _, text in hits), version)
        else:
            made = stage.renew(*self._ranked(hits, stage), version)
        self.told += made
        if made:
            self.inexact.add(version)
        self.version, self.position = version, self.hub.next_block
        self.renewals += 1
        self.hub.renewals += 1
        now = time.monotonic()
        self.renew_at = now + max(RENEW_S, _SHARE * (now - began))

    def trim(self) -> None:
        """Let go of changes that are too many."""
        over = len(self.told) - self.kept
        if over > 0:
            del self.told[:over]
            self.dropped += over
            oldest = self.told[0].version if self.told else self.version + 1
            self.inexact = {version for version in self.inexact if version >= oldest}

    def drop_all(self) -> None:
        """Let go of all changes: whoever reads them has."""
        self.dropped += len(self.told)
        self.told, self.inexact = [], set()

    @property
    def room(self) -> int | None:
        """How many documents it begins with; None for all."""
        stage = self.stage
        return stage.room if isinstance(stage, Window) else None

    def lose(self) -> None:
        """What was written is not known: it has to be renewed."""
        stage = self.stage
        if isinstance(stage, Window):
            stage.forget()
        else:
            stage.lacking = True

    def _ranked(self, hits: Hits, stage: Window) -> tuple[list[Ranked], bool]:
        """Hits as a window takes them, and whether there are no others."""
        items = [item_of(text, self.hub.key) for _, text in hits]
        pairs = ranked(items, [seq for seq, _ in hits], stage.rank)
        return pairs, stage.room is None or len(hits) < stage.room


def new_entry(hub: Hub, query: Query | GroupQuery, number: int) -> Entry:
    """An entry for a query that stands as `number`."""
    if isinstance(query, GroupQuery):
        return StagedEntry(hub, query.text, number, None)
    if query.is_plain:
        return PlainEntry(ref(hub), number)
    return StagedEntry(hub, query.text, number, query.slack)


def item_of(text: bytes, key: str) -> Item:
    """A document as an item of a result."""
    return Item(_decode(text)[key], text)


def rank_of(query: Query, key: str) -> Rank:
    """The sort key of documents in the order of a query."""
    if query.order is None:
        return _newest_first
    make = sort_keys(query.order, key)
    return lambda text, seq: make(_decode(text))


def _newest_first(text: bytes, seq: int) -> Any:
    return -seq
