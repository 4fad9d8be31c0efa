"""The hub of a collection's live queries: reads the log once, and tells everybody who asked.

    log -> Follower -> Block: some writes, and which standing queries each concerns (filter stage)
        -> plain query (no sort, limit, offset): its notes in the block are its changes
        -> other queries: a stage of their own, Window or Groups (entries.py)

Two kinds of readers:

*Handles* (live.py) pull. The newest blocks are kept, `KEPT_BYTES` of them, for all handles
together: a handle is a place among them. One that nobody reads costs nothing when something is
written.

*Subscribers* are pushed to: for a server. Once a tick and entry, each is given what changed.

    hub = collection.hub
    query = Query.of(collection.key, where, sort=, limit=, offset=, slack=)      query.py; checks
    query = GroupQuery.of(where, by=, count=, sum=, avg=, min=, max=)

    joined = hub.join(query, subscriber)         the result of now, and everything later
    joined = hub.join(query, subscriber, after=v)    what was missed since, and everything later
        joined.entry       shared by equal queries: keep it, to leave
        joined.version     what `items` are of, or what `missed` goes up to
        joined.items       list[Item]: `.raw` is the document as JSON text; None when resumed
        joined.missed      list[LiveChange] when it was resumed, None when it was not
    hub.leave(joined.entry, subscriber)          no call comes afterwards
    hub.join_many([(query, subscriber), ...]), hub.leave_many([(entry, subscriber), ...])
        the same of many plain queries that begin without a result, at the price of less
    entry.result_now() -> (version, items)       the result again, for who fell behind. Changes up
                                                 to that version may still be told: pass over them
    hub.advance()                                look what is committed, and tell it. Any thread.
    hub.version                                  what was told so far
    hub.count                                    how many entries stand

    class Subscriber:                            any object that is hashable
        def changed(self, entry, changes, version): ...
            # changes: Sequence[LiveChange], once a tick and entry; equal queries get the very same
            # object, so that it is encoded once. version: everything up to it was told
        def lost(self, entry): ...
            # rare (a bulk load; too far behind): what changed is not known; ask result_now()
        def ended(self, entry, why): ...         # "the collection was dropped", for example

A call for every query that a write concerns is much at a million. Plain queries can be told in bulk
instead: `hub.join(query, None)` only lets the query stand, as `entry.number`, and every function in
`hub.listeners` is called with each `Block` (notes.py), with None when something was lost. Its notes
say which row is what to which number; what a row is as a change is the same for all of them. Pass
over rows up to the version that each watch began with.

`changed` is called in the thread that advances, with the hub's lock held: it must be quick, take
no lock that somebody holds who calls the hub, and call nothing of the hub. Changes of one version
are never split over two calls. An error that it raises is nobody's: it must raise none.

Threads: everything here may be called from any thread. `lock` guards all state of entries, stages
and handles. A thread of the hub's own advances when something is written, and every `TICK_S` at
most: many writes are matched together. Nothing here may be cut in the middle: whoever calls from a
thread into which exceptions may be thrown calls by `sheltered`
(docs/decisions/0040-interrupts.md).
"""

from __future__ import annotations

import heapq
import math
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from tideline.clock import FOREVER, SECOND, WAIT_S
from tideline.documents.finding import Finder
from tideline.errors import TidelineError
from tideline.live import resume
from tideline.live.entries import Entry, Hits, StagedEntry, Subscriber, item_of, new_entry
from tideline.live.following import Following
from tideline.live.item import Item
from tideline.live.notes import Block, PlainChanges, packed
from tideline.live.query import GroupQuery, Query
from tideline.model import LiveChange, WatchPlan
from tideline.standing import Standing

__all__ = ["Hub", "Joined"]

_LITTLE_BYTES = 16 << 10


class Joined(NamedTuple):
    """What somebody begins with."""

    entry: Entry
    version: int
    items: list[Item] | None
    missed: list[LiveChange] | None


class Hub(Following):
    """The live queries of one collection."""

    def __init__(self, name: str, engine: Any, finder: Finder, key: str, identity: str) -> None:
        super().__init__(engine)
        self.name = name
        self._finder = finder
        self.key = key
        """The primary key of the collection."""
        self.identity = identity
        """What tells the collection from every other."""
        self._made: Standing | None = None
        self._staged: dict[bytes, StagedEntry] = {}  # by text; the index finds the others
        self._numbers: list[Entry | None] = []  # all, by number
        self._pushed = 0  # how many of them have subscribers
        self._lacking: dict[int, StagedEntry] = {}  # with subscribers, to be renewed
        self._ahead: dict[tuple[int, Subscriber], int] = {}  # who began later than was told so far
        self.listeners: list[Callable[[Block | None], None]] = []
        """Called with every block that concerns somebody; None: something was lost."""
        self._gone: deque[Entry] = deque()  # of handles that nobody holds any more
        self._ends: list[tuple[int, int, weakref.ref[Any]]] = []  # when watches expire
        self._ends_made = 0  # how many there were of these
        self.renewals = 0
        """How often an entry was found out anew."""

    @property
    def _standing(self) -> Standing:
        """The conditions of all entries: the filter stage. Made when the first one comes."""
        if self._made is None:
            self._made = Standing()
        return self._made

    def text_of(self, number: int) -> bytes:
        """The text of a plain query (any thread; good only if it still stands afterwards)."""
        return self._standing.text(number)

    @property
    def count(self) -> int:
        """How many different queries stand."""
        return 0 if self._made is None else len(self._made)

    # ---- joining ------------------------------------------------------------------------------

    def join(
        self, query: Query | GroupQuery, subscriber: Subscriber | None, *,
        after: int | None = None, result: bool = False, first: bool = True,
    ) -> Joined:  # fmt: skip
        """Let somebody be told of a query's changes; `after`: from those of that version on.

        `missed` is None when `after` was not given, and when changes since are not kept any more.
        `result`: with the items at that version, too. `first=False`: a plain query begins with
        what changes from now on, without items.
        """
        self.feed.reach(after)
        joined = self._join(query, subscriber, after, result, first)
        try:
            self._engine.store.log.sync_all()  # what they begin with stays
        except BaseException:
            self.leave(joined.entry, subscriber)
            raise
        return joined

    def _join(
        self, query: Query | GroupQuery, subscriber: Subscriber | None, after: int | None,
        result: bool, first: bool,
    ) -> Joined:  # fmt: skip
        entry, position = self.enter(query)
        try:
            if after is not None:
                with self.lock:
                    found = resume.missed(self, entry, after, result=result)
                    if found is not None:
                        if subscriber is not None:
                            self._subscribe(entry, subscriber, found.version)
                        items = found.items if result else None
                        return Joined(entry, found.version, items, found.changes)
            if not first and not isinstance(entry, StagedEntry):
                with self.lock:
                    version = self.newest()
                    if subscriber is not None:
                        self._subscribe(entry, subscriber, version)
                return Joined(entry, version, None, None)
            version, items = self.begin(entry)
            with self.lock:
                version, items = self.latest(entry, position, version, items)
                if subscriber is not None:
                    self._subscribe(entry, subscriber, version)
            return Joined(entry, version, items, None)
        except BaseException:
            self.leave(entry, subscriber)
            raise
        finally:
            with self.lock:
                self.pulling -= 1

    def join_many(
        self, asked: Sequence[tuple[Query, Subscriber]], *, wait: bool = True
    ) -> tuple[int, list[Entry]] | None:
        """`join` of many plain queries with `first=False`: the version, and the entry of each.

        All of them, or none. `wait=False`: None when somebody would have to be waited for, or the
        first query has to be made ready for; nothing has happened then.
        """
        if not self.lock.acquire(blocking=wait):
            return None
        try:
            if not wait and (self._made is None or self._follower is None):
                return None
            self._require_open()
            self._start()
            version = self.newest()  # nothing is matched meanwhile: what is later will be told
            entries = self._entered([query for query, _ in asked])
            for entry, (_, subscriber) in zip(entries, asked, strict=True):
                self._subscribe(entry, subscriber, version)
        finally:
            self.lock.release()
        try:
            self._engine.store.log.sync_all()
        except BaseException:
            self.leave_many([(e, s) for e, (_, s) in zip(entries, asked, strict=True)])
            raise
        return version, entries

    def leave(self, entry: Entry, subscriber: Subscriber | None) -> None:
        """Tell somebody nothing more."""
        self.leave_many([(entry, subscriber)])

    def leave_many(
        self, who: Iterable[tuple[Entry, Subscriber | None]], *, wait: bool = True
    ) -> bool:
        """The same of many; `wait=False`: says whether it could be done without waiting."""
        if not self.lock.acquire(blocking=wait):
            return False
        try:
            for entry, subscriber in who:
                if subscriber is not None and entry.subscribers is not None:
                    self._unsubscribe(entry, subscriber)
                self.release(entry)
        finally:
            self.lock.release()
        return True

    def _unsubscribe(self, entry: Entry, subscriber: Subscriber) -> None:
        if isinstance(entry, StagedEntry):
            entry.catch_up(renew=False)  # it was told of every block so far
        entry.unsubscribe(subscriber)
        if self._ahead:
            self._ahead.pop((entry.number, subscriber), None)
        if entry.subscribers is None:
            self._pushed -= 1
            self._lacking.pop(entry.number, None)

    def enter(self, query: Query | GroupQuery) -> tuple[Entry, int]:
        """The entry of a query, with one more holder, and the first block that concerns that one.

        Blocks are kept from then on: `pulling` is one more.
        """
        with self.lock:
            self._require_open()
            self._start()
            entry = self._entered([query])[0]
            self.pulling += 1
            return entry, self.next_block

    def _entered(self, queries: Sequence[Query | GroupQuery]) -> list[Entry]:
        """The entries of queries, each with one more holder (the lock is held). All, or none.

        All of them are plain, or none is.
        """
        is_plain = all(query.is_plain for query in queries)
        texts = [query.text for query in queries]
        there = [self._found(is_plain, text) for text in texts]
        new: dict[bytes, Query | GroupQuery] = {
            text: query
            for text, query, entry in zip(texts, queries, there, strict=True) if entry is None
        }  # fmt: skip
        made: dict[bytes, Entry] = {}
        if new:
            conditions = [query.condition for query in new.values()]
            numbers = self._standing.add_many(conditions, named=is_plain)
            self._numbers += [None] * (max(numbers) + 1 - len(self._numbers))
            for (text, query), number in zip(new.items(), numbers, strict=True):
                entry = made[text] = self._numbers[number] = new_entry(self, query, number)
                if isinstance(entry, StagedEntry):
                    self._staged[text] = entry
        found = [made[text] if e is None else e for text, e in zip(texts, there, strict=True)]
        for entry in found:
            entry.holders += 1
        return found

    def _found(self, is_plain: bool, text: bytes) -> Entry | None:
        """The entry of a query that stands."""
        if not is_plain:
            return self._staged.get(text)
        number = self._standing.find(text)
        return None if number < 0 else self._numbers[number]

    def release(self, entry: Entry) -> None:
        """An entry has one holder less, and is forgotten with the last (the lock is held)."""
        entry.holders -= 1
        if not entry.holders and entry.number >= 0:
            number, entry.number = entry.number, -1
            self._numbers[number] = None
            staged = isinstance(entry, StagedEntry)
            if staged:
                del self._staged[entry.text]
                self._lacking.pop(number, None)
            self._standing.remove(number, named=not staged)
            if not self._standing:
                self._idle_since = self.clock.now()
                self._wake()

    def begin(self, entry: Entry) -> tuple[int, list[Item]]:
        """The first result of an entry and its version, found without the lock."""
        if isinstance(entry, StagedEntry):
            if not entry.ready:
                version, hits = self.hits(entry.query, entry.room)
                with self.lock:
                    entry.fill(version, hits)
            return -1, []
        return self.found(entry.query)

    def latest(
        self, entry: Entry, position: int, version: int, items: list[Item]
    ) -> tuple[int, list[Item]]:
        """The same with what was written since (the lock is held)."""
        if isinstance(entry, StagedEntry):
            self.advance()
            entry.catch_up()
            return entry.version, entry.stage.shown()
        if position < self.first_block:  # it took so long
            return self.found(entry.query)
        if self.version <= version:
            return version, items
        state = {item.key: item for item in reversed(items)}
        for block in self.blocks_from(position):
            for change in PlainChanges(block, block.run(entry.number, version)):
                state.pop(change.key, None)
                if change.raw is not None:
                    state[change.key] = Item(change.key, change.raw)
        return self.version, list(reversed(state.values()))

    # ---- finding ------------------------------------------------------------------------------

    def hits(self, query: Query | GroupQuery, limit: int | None) -> tuple[int, Hits]:
        """A version, and what meets the condition of a query then; in its order, if it has one."""
        self._engine.expiry.sweep_now(wait=False)
        view = self.committed_view()
        return view.seq, self.hits_of(view, query, limit)

    def hits_of(self, view: Any, query: Query | GroupQuery, limit: int | None) -> Hits:
        """The same of a view."""
        order = query.sort if isinstance(query, Query) else None
        return self._finder.found(view, query.condition, order, limit)

    def committed_view(self) -> Any:
        """What there is now, of which everything can be read in the log."""
        view = self._engine.expiry.told_view()
        self._engine.store.log.sync_all()
        return view

    def found(self, query: Query | GroupQuery) -> tuple[int, list[Item]]:
        """A version, and the result of a plain query then, newest first."""
        version, hits = self.hits(query, None)
        return version, [item_of(text, self.key) for _, text in hits]

    def explain(self, query: Query) -> WatchPlan:
        """How a query would stand."""
        with self.lock:
            self._require_open()
            entry, stand = self._found(query.is_plain, query.text), self.count
            number = self._standing.add(query.condition) if entry is None else entry.number
            try:
                told = self._standing.explain(number)
            finally:
                if entry is None:
                    self._standing.remove(number)
            spare = (query.limit or 0) if query.slack is None else query.slack
            kept = None if query.limit is None else query.offset + query.limit + spare
            ways = (
                each["by"] + (f" on {', '.join(each['fields'])}" if each["fields"] else "")
                for each in told["filed"]
            )
            return WatchPlan(
                ", ".join(ways), not told["always_looked_at"],
                max((each["longest"] for each in told["filed"]), default=0), stand,
                0 if query.is_plain else kept, 0 if entry is None else entry.holders,
            )  # fmt: skip

    # ---- advancing ----------------------------------------------------------------------------

    def advance(self, *, renew: bool = False) -> int:
        """Match and tell everything that is committed; returns the last write that was told.

        `renew`: also what may not be renewed yet, for somebody who waits for it.
        """
        with self.lock:
            self.read_log()
            self._renew_due(math.inf if renew else time.monotonic())
            return self.version

    def advance_at_once(self) -> int | None:
        """Advance if that takes little time and waits for nobody; None when it did not."""
        engine = self._engine
        if not self.lock.acquire(blocking=False):
            return None
        try:
            if self._follower is None or self._lacking or engine.lock.locked():
                return None
            begin, end = self._follower.position, engine.store.log.committed
            if begin.segment != end.segment or end.offset - begin.offset > _LITTLE_BYTES:
                return None
            version = self.advance()
            return None if self._lacking else version
        finally:
            self.lock.release()

    def settled_version(self) -> int | None:
        """Up to which write subscribers were told everything; None when that is not known now."""
        if not self.lock.acquire(blocking=False):
            return None
        try:
            return None if self._lacking else self.version
        finally:
            self.lock.release()

    def _match(self, block: Block) -> Block:
        if not self.count:
            return block
        return block._replace(notes=packed(*self._standing.changes(block.old, block.new)))

    def _tell(self, block: Block) -> None:
        for listener in self.listeners:
            listener(block)
        if self._pushed:
            self._push(block)
        if self._ahead:
            self._ahead = {who: v for who, v in self._ahead.items() if v > self.version}

    def _push(self, block: Block) -> None:
        """Tell subscribers of a block."""
        for number, run in block.runs():
            entry = self._numbers[number]
            if entry is None or entry.subscribers is None:
                continue
            if isinstance(entry, StagedEntry):
                # It has read every block before this one that concerns it.
                entry.position = max(entry.position, self.next_block - 1)
                entry.catch_up(renew=False)
                if entry.stage.lacking:
                    self._lacking[number] = entry
            else:
                self.tell(entry, PlainChanges(block, run), block.seq)

    def tell(self, entry: Entry, changes: Sequence[LiveChange], first: int) -> None:
        """Give subscribers what changed; `first` is not after the first version (lock held)."""
        for subscriber in entry.all_subscribers():
            given = changes
            since = self._ahead.get((entry.number, subscriber), 0) if self._ahead else 0
            if first <= since:
                given = [change for change in changes if change.version > since]
            if len(given):
                version = self.version
                if isinstance(entry, StagedEntry):  # one that lacks something is not up to date
                    last = given[-1].version
                    version = last if entry.stage.lacking else max(version, last)
                subscriber.changed(entry, given, version)

    def _renew_due(self, now: float) -> None:
        """Renew what subscribers wait for, and what may be renewed again."""
        for entry in [one for one in self._lacking.values() if one.renew_at <= now]:
            try:
                entry.catch_up()
            except TidelineError:
                entry.renew_at = time.monotonic() + WAIT_S  # it stays lacking, and is asked again
            else:
                self._lacking.pop(entry.number, None)

    def _lose(self) -> None:
        for listener in self.listeners:
            listener(None)
        for entry in filter(None, self._numbers):
            if isinstance(entry, StagedEntry):
                entry.lose()
                if entry.subscribers is not None:
                    self._lacking[entry.number] = entry
            else:
                for subscriber in entry.all_subscribers():
                    subscriber.lost(entry)

    def _subscribe(self, entry: Entry, subscriber: Subscriber, since: int) -> None:
        if since > self.version:
            self._ahead[entry.number, subscriber] = since
        self._pushed += entry.subscribers is None
        entry.subscribe(subscriber)

    # ---- handles ------------------------------------------------------------------------------

    def forget(self, entry: Entry) -> None:
        """A handle is gone: at any moment and in any thread, so that nothing is locked."""
        self._gone.append(entry)

    def expire(self, handle: Any, until: int) -> None:
        """End a handle at a time, unless it was prolonged then (the lock is held)."""
        self._ends_made += 1  # of one time, the first comes first: handles have no order
        heapq.heappush(self._ends, (until, self._ends_made, weakref.ref(handle)))
        self._wake()

    def _let_go(self) -> None:
        while self._gone:
            self.pulling -= 1
            self.release(self._gone.popleft())
        now = self.clock.now()
        while self._ends and self._ends[0][0] <= now:
            handle = heapq.heappop(self._ends)[2]()
            if handle is not None:
                handle.end_if_due(now)

    def _has_left(self) -> bool:
        return bool(self._gone)

    def _next_end(self) -> int:
        due = self._ends[0][0] if self._ends else FOREVER
        if self._lacking:
            left_s = min(one.renew_at for one in list(self._lacking.values())) - time.monotonic()
            due = min(due, self.clock.now() + round(max(left_s, 0) * SECOND))
        return due

    def close(self, why: str) -> None:
        """End everything; `why` is told to whoever waits."""
        super().close(why)
        with self.lock:
            told = [(entry, entry.all_subscribers()) for entry in filter(None, self._numbers)]
            self._pushed, self._lacking = 0, {}
        for entry, subscribers in told:
            for subscriber in subscribers:
                subscriber.ended(entry, why)
