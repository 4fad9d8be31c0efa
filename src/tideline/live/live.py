"""The handle of a live query: its result, and what changes in it.

    hub's blocks, or the entry's changes -> pending -> handed out -> applied to the result

A handle is a place among the blocks that the hub keeps (of a plain query), or among the changes
that its entry keeps. When it is read, what came since is fetched, to be handed out (handed.py). The
result is brought up to what was handed out when it is asked for.

What is fetched and not handed out yet is at most `queue` changes. Where there are more, the handle
is behind: it is given the difference between what it had and what is now, with the version of now.

Iteration waits for the next change. It ends when the handle is cancelled, and with `Closed` when
the watch expired, the database was closed or the collection dropped: the message says which.
Several threads may share a handle: each change goes to one of them.
"""

from __future__ import annotations

from datetime import datetime
from types import TracebackType
from typing import Any, NamedTuple

from tideline.clock import FOREVER, WAIT_S, from_us, span_us
from tideline.documents import checks
from tideline.errors import Closed, InvalidRequest
from tideline.live import resume
from tideline.live.difference import newest, ordered
from tideline.live.entries import Entry, StagedEntry
from tideline.live.handed import Handed, net
from tideline.live.hub import Hub
from tideline.live.notes import PlainChanges
from tideline.live.query import GroupQuery, Query, Token
from tideline.lsm.bell import Bell, LoopBell
from tideline.model import LiveChange

__all__ = ["QUEUE", "Live"]

QUEUE = 10_000
CANCELLED = "the watch was cancelled"
EXPIRED = "the watch expired"
_BEHIND = "the watch was read too seldom and keeps no result (first=False): watch again"


class _Begin(NamedTuple):
    """What is found before a handle begins, without a lock."""

    position: int
    version: int = -1
    items: Any = ()


class Live(Handed):
    """A live query; `Collection.watch`, `watch_groups` and `watch_again` make one.

    >>> import tideline
    >>> db = tideline.open(":memory:")
    >>> orders = db.collection("orders", key="id")
    >>> orders.put({"id": 1, "total": 30})
    >>> live = orders.watch({"total": {"$gte": 20}}, sort=[("total", -1)], limit=2)
    >>> live.result
    [{'id': 1, 'total': 30}]
    >>> orders.put({"id": 2, "total": 50})
    >>> [(change.kind, change.key, change.index) for change in live.take()]
    [('add', 2, 0)]
    >>> [order["id"] for order in live.result]
    [2, 1]
    >>> db.close()
    """

    __slots__ = (
        "__weakref__", "_ended", "_entry", "_hub", "_keeps", "_place", "_queue", "_text", "_until",
        "was_reset",
    )  # fmt: skip

    def __init__(self, hub: Hub, *, queue: int, ttl_us: int | None, keeps: bool) -> None:
        super().__init__()
        self._hub = hub
        self._queue = queue
        self._keeps = keeps
        self._ended = ""  # why
        self._text = b""  # what it asked, once it has ended
        self._entry: Entry | None = None
        self._place = 0  # the next block, or the number of the entry's next change
        self._until = FOREVER if ttl_us is None else hub.clock.now() + ttl_us
        self.was_reset = False
        """Whether `watch_again` could not tell what was missed: the result is the one of now."""

    # ---- beginning ----------------------------------------------------------------------------

    def begin(self, query: Query | GroupQuery) -> Live:
        """Begin with the result of now."""
        hub = self._hub
        started = hub.sheltered(lambda: self._begin(query))
        if started is not None:
            entry = self._entry
            found: tuple[int, Any]
            if isinstance(entry, StagedEntry):
                found = hub.hits(query, entry.room)
            else:
                found = hub.found(query)
            started = started._replace(version=found[0], items=found[1])
            hub.sheltered(lambda: self._attach(started))
        return self

    def resume(self, token: Token, query: Query | GroupQuery) -> Live:
        """Begin where a token says, with what was missed; if that is lost, with what is now."""
        self._hub.sheltered(lambda: self._resume(token, query))
        if not self.was_reset:
            return self
        reset = self._hub.sheltered(self._release)  # its entry is entered again
        return reset.begin(query)

    def _begin(self, query: Query | GroupQuery) -> _Begin | None:
        """Enter the query, and begin if there is nothing to be found for that."""
        started = self._enter(query)
        entry = self._entry
        if isinstance(entry, StagedEntry):
            if not entry.ready:
                return started
        elif self._keeps:
            return started
        else:
            started = started._replace(version=self._hub.newest())
        self._attach(started)
        return None

    def _enter(self, query: Query | GroupQuery) -> _Begin:
        self._entry, position = self._hub.enter(query)
        return _Begin(position)

    def _release(self) -> Live:
        with self._hub.lock:
            entry, self._entry = self._entry, None
            if entry is not None:
                self._hub.pulling -= 1
                self._hub.release(entry)
        return self

    def _attach(self, found: _Begin) -> None:
        hub, entry = self._hub, self._entry
        with hub.lock:
            if isinstance(entry, StagedEntry):
                entry.fill(found.version, found.items)
                hub.advance()
                entry.catch_up()
                entry.kept = max(entry.kept, self._queue)
                self._state, self._place = list(entry.stage.shown()), entry.end
                self._upto = entry.version
            else:
                self._place, self._upto = found.position, found.version
                if self._upto == hub.version:
                    self._upto = hub.version  # the same number, once for all
                if self._keeps:
                    self._state = {item.key: item for item in reversed(found.items)}
            self._base = self._upto
            self._arm()

    def _resume(self, token: Token, query: Query | GroupQuery) -> None:
        hub = self._hub
        position = self._enter(query).position
        entry = self._entry
        assert entry is not None
        with hub.lock:
            staged = isinstance(entry, StagedEntry)
            found = None
            if token.exact or not token.done:
                wanted = self._keeps or staged
                found = resume.missed(hub, entry, token.version, result=wanted)
            if found is None or len(found.changes) < token.done:
                self.was_reset = True
                return
            if isinstance(entry, StagedEntry):
                entry.kept = max(entry.kept, self._queue)
                self._state, self._place = found.items, entry.end
            else:
                self._place = position
                if self._keeps:
                    self._state = {item.key: item for item in reversed(found.items)}
            self._pending, self._at = found.changes, token.done
            self._base, self._upto = token.version, found.version
            self._arm()

    def _arm(self) -> None:
        if self._until < FOREVER:
            self._hub.expire(self, self._until)

    # ---- what it has --------------------------------------------------------------------------

    @property
    def result(self) -> list[dict[str, Any]]:
        """The documents, in the order of `find`, with all changes that were handed out.

        The same objects again, as long as they stay what they are: do not change them.
        """
        if self._state is None:
            raise InvalidRequest("the watch keeps no result: it was made with first=False")
        if self._applied < self._at:
            self._hub.sheltered(self._apply)
        with self._hub.handing:
            state = self._state
            if isinstance(state, dict):
                return [item.document for item in reversed(state.values())]
            return [item.document for item in state]

    @property
    def version(self) -> int:
        """The seq of the write that the result is of: that of `find` at that moment."""
        with self._hub.handing:
            if self._at == len(self._pending):
                return self._upto
            return self._pending[self._at - 1].version if self._at else self._base

    @property
    def token(self) -> str:
        """Where it stands, for `Collection.watch_again`."""
        entry = self._entry
        assert entry is not None
        with self._hub.handing:
            version, done, exact = self._stands_at()
        try:
            text = entry.text
        except Closed:  # it has ended, and left its text here before
            text = self._text
        return str(Token(self._hub.identity, text, version, done, exact))

    @property
    def until(self) -> datetime | None:
        """When it ends by itself; None for never."""
        return from_us(self._until)

    @property
    def ended(self) -> str:
        """Why it has ended; empty as long as it has not."""
        return self._ended or self._hub.why

    # ---- reading ------------------------------------------------------------------------------

    def take(self, limit: int | None = None, *, timeout_s: float = 0) -> list[LiveChange]:
        """What changed since, at most `limit` of it; waits up to `timeout_s` for the first."""
        most = checks.count(limit, "limit")
        wait_us = span_us(timeout_s, "timeout_s")
        if wait_us < 0:
            raise InvalidRequest("timeout_s must not be negative", timeout_s=timeout_s)
        self._require_open()
        found = self._take(most)
        if not found and wait_us:
            clock = self._hub.clock
            until = clock.now() + wait_us
            while not found and clock.now() < until:
                self._wait(until)
                self._require_open()
                found = self._take(most)
        return found

    def fetch(self) -> None:
        """Bring in what came since, and hand out nothing: what `take` does that may take long."""
        self._require_open()
        if self._is_stale():
            self._hub.sheltered(self._fetch)

    def prolong(self, *, ttl_s: float | None) -> None:
        """Let it end so many seconds from now; None: not by itself."""
        ttl_us = check_ttl(ttl_s)
        self._require_open()
        self._hub.sheltered(lambda: self._prolong(ttl_us))

    def cancel(self) -> None:
        """End it, whoever waits. Cancelling one that has ended is allowed."""
        if not self._ended:
            self._hub.sheltered(lambda: self._end(CANCELLED))

    close = cancel

    def __iter__(self) -> Live:
        return self

    def __next__(self) -> LiveChange:
        while True:
            found = self._next()
            if found is not None:
                return found
            if self._ended == CANCELLED:
                raise StopIteration
            self._wait(FOREVER)

    def __aiter__(self) -> Live:
        return self

    async def __anext__(self) -> LiveChange:
        while True:
            found = self._next()
            if found is not None:
                return found
            entry = self._entry
            if self._ended == CANCELLED or entry is None:
                raise StopAsyncIteration
            bell = LoopBell()
            with self._hub.hung(entry.number, bell):
                if not self._is_ready():
                    left_s = (self._until - self._hub.clock.now()) / 1e6
                    await bell.rung(max(min(WAIT_S, left_s), 0))

    def __enter__(self) -> Live:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self.cancel()

    def __del__(self) -> None:
        entry = getattr(self, "_entry", None)  # none when making it was cut
        if entry is not None and not self._ended:
            self._hub.forget(entry)

    def __repr__(self) -> str:
        ended = f", ended={self.ended!r}" if self.ended else ""
        return f"Live({self._hub.name!r}, version={self.version}{ended})"

    # ---- inside -------------------------------------------------------------------------------

    def _next(self) -> LiveChange | None:
        try:
            self._require_open()
            found = self._take(1, fetch=self._at == len(self._pending))
        except Closed:
            if self._ended == CANCELLED:  # by somebody else, while this one waited
                return None
            raise
        return found[0] if found else None

    def _take(self, most: int | None, fetch: bool = True) -> list[LiveChange]:
        hub = self._hub
        if fetch and self._is_stale():
            hub.sheltered(self._fetch)
            self._require_open()
        with hub.handing:
            return self._hand_out(most)

    def _is_stale(self) -> bool:
        """Whether something may have come since the last fetch."""
        hub, entry = self._hub, self._entry
        if hub.is_behind():
            return True
        if isinstance(entry, StagedEntry):
            read = entry.position, entry.end, entry.version
            return entry.stage.lacking or read != (hub.next_block, self._place, self._upto)
        return self._place != hub.next_block

    def _is_ready(self) -> bool:
        """Whether there is more to hand out, or it has ended."""
        if self._at < len(self._pending) or self.ended:
            return True
        entry, hub = self._entry, self._hub
        if isinstance(entry, StagedEntry):
            return entry.end != self._place or entry.position != hub.next_block
        return self._place != hub.next_block

    def _wait(self, until: int) -> None:
        """Wait for a change, the end, or a time."""
        entry = self._entry
        assert entry is not None
        bell = Bell()
        with self._hub.hung(entry.number, bell):
            if not self._is_ready():
                self._hub.clock.wait(bell, min(until, self._until))

    def _require_open(self) -> None:
        if not self._ended and self._until <= self._hub.clock.now():
            self._hub.sheltered(lambda: self._end(EXPIRED))
        if self.ended:
            raise Closed(self.ended)

    # ---- inside, and nothing can cut it: in the hub's shelter -------------------------------

    def end_if_due(self, now: int) -> None:
        """End it if its time is over (the hub's lock is held)."""
        if self._until <= now:
            self._end(EXPIRED)

    def _end(self, why: str) -> None:
        hub, entry = self._hub, self._entry
        with hub.lock:
            if self._ended or entry is None:
                return
            number, self._text = entry.number, entry.text
            self._ended = why
            hub.pulling -= 1
            hub.release(entry)
        hub.ring(number)

    def _prolong(self, ttl_us: int | None) -> None:
        with self._hub.lock:
            self._until = FOREVER if ttl_us is None else self._hub.clock.now() + ttl_us
            self._arm()

    def _fetch(self) -> None:
        """Bring in what came since."""
        hub, entry = self._hub, self._entry
        with hub.lock:
            if self.ended:
                return
            hub.advance()
            with hub.handing:
                self._apply_handed_out()
                self._drop_handed_out()
                if isinstance(entry, StagedEntry):
                    self._fetch_staged(entry)
                else:
                    self._fetch_plain()

    def _fetch_plain(self) -> None:
        hub, entry = self._hub, self._entry
        assert entry is not None
        if self._place < hub.first_block:
            self._fetch_lost(entry)
            return
        after = self._upto
        runs = [(block, block.run(entry.number, after)) for block in hub.blocks_from(self._place)]
        many = sum(len(run) for _, run in runs)
        if many:
            came = (change for block, run in runs for change in PlainChanges(block, run))
            if len(self._pending) - self._at + many > self._queue:
                begun = self._begun()
                self._replace(begun, net([*self._pending[begun:], *came], hub.version))
            else:
                self._pending = [*self._pending, *came]
        self._place, self._upto = hub.next_block, max(after, hub.version)

    def _fetch_lost(self, entry: Entry) -> None:
        """What was written since is not kept: find out what is now."""
        if not isinstance(self._state, dict):
            self._end(_BEHIND)
            return
        version, items = self._hub.found(entry.query)
        now = {item.key: item for item in reversed(items)}
        begun = self._begun()
        had = self._had(begun)
        assert isinstance(had, dict)
        self._replace(begun, newest(had, now, version))
        self._place, self._upto = self._hub.next_block, version

    def _fetch_staged(self, entry: StagedEntry) -> None:
        entry.catch_up()
        new = entry.told[max(self._place - entry.dropped, 0) :]
        left = len(self._pending) - self._at
        if self._place < entry.dropped or left + len(new) > self._queue:
            begun = self._begun()
            had = self._had(begun)
            assert isinstance(had, list)
            stage = entry.stage
            made = ordered(had, stage.shown(), entry.version, stage.identity)
            self._replace(begun, made)
        elif new:
            self._pending = [*self._pending, *new]
            if entry.inexact:
                self._inexact |= entry.inexact
        self._place, self._upto = entry.end, entry.version
        if entry.holders == 1:  # nobody else reads them
            entry.drop_all()
        else:
            entry.trim()

    def _apply(self) -> None:
        with self._hub.handing:
            self._apply_handed_out()


def check_ttl(ttl_s: Any) -> int | None:
    """How long a watch lasts, in microseconds; None for ever."""
    if ttl_s is None:
        return None
    found = span_us(ttl_s, "ttl_s")
    if found <= 0:
        raise InvalidRequest("ttl_s must be above 0: the seconds a watch lasts", ttl_s=ttl_s)
    return found
