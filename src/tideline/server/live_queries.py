"""The live queries of a connection: asked for, ended, and found anew for a reader who was too slow.

    request -> Watches: checked -> joins the collection's hub, in a thread -> watching, result
    from then on the hub tells what changes: live_watch.py

Requests are answered many in one go: those that came in one read of the connection, and are small
and want no result, as soon as it was read, while nobody holds the hub's lock; the others in
threads. How they join and leave the hub: live_jobs.py. What a query has once it stands is small;
nothing of it is a task or a lock.

Everything here is on the event loop, except what says otherwise.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from itertools import islice, takewhile
from typing import Any

from tideline.clock import FOREVER, SECOND, from_us
from tideline.errors import Conflict, NotFound
from tideline.live.entries import StagedEntry
from tideline.live.hub import Joined
from tideline.server.hub import Hub
from tideline.server.live_jobs import Job, Outcome, join_plain, leave, leave_all, results_now, run
from tideline.server.live_messages import (
    PIECE_BYTES,
    Kind,
    change_wires,
    result_texts,
    tag_head,
    watching_text,
)
from tideline.server.live_watch import BEGINNING, BEHIND, OVER, Desk, End, Line, Tag, Watch
from tideline.server.outbox import Outbox
from tideline.server.refusals import Refused
from tideline.server.requests import Watch as WatchRequest
from tideline.server.shapes import time_text

__all__ = ["Watches"]

_BATCH = 256  # requests that a thread answers in one go
_FEW, _FEW_S = 64, 0.001  # the same of the loop, and for how long; filing takes as long again
_LATEST = 16  # results that are found in one go for who is behind
_LEAVING = 10_000
Refuse = Callable[[Tag, Exception], None]


class Watches:
    """The live queries of one connection."""

    def __init__(
        self, hub: Hub, caller: Any, outbox: Outbox, kind: Kind, refuse: Refuse,
        ended: Callable[[Watch, str], None],
    ) -> None:  # fmt: skip
        self.outbox = outbox
        self.kind = kind
        self._hub = hub
        self._caller = caller
        self._refuse = refuse
        self._ended = ended
        self._by_tag: dict[Tag, Watch] = {}
        self._desks: Counter[Desk] = Counter()
        self._lines: dict[tuple[Desk, Kind], Line] = {}
        self._ends: dict[Watch, End] = {}  # of those that end by themselves
        self._asked: deque[Job] = deque()
        self._leaving: deque[Watch] = deque()
        self._behind: deque[Watch] = deque()
        self._answering: asyncio.Task[None] | None = None
        self._refreshing: asyncio.Task[None] | None = None
        self._soon = False  # it is answered once what is read now was read
        self._over = False

    def __len__(self) -> int:
        return len(self._by_tag)

    def sent(self, token: Any) -> None:
        """Something was handed to the socket."""

    def __contains__(self, tag: object) -> bool:
        return tag in self._by_tag

    def get(self, tag: Tag) -> Watch | None:
        """The live query of a tag."""
        return self._by_tag.get(tag)

    @property
    def is_busy(self) -> bool:
        """Whether somebody who asks has to wait: much is to be done already."""
        return len(self._leaving) > _LEAVING

    @property
    def has_any(self) -> bool:
        """Whether there is something that `settled` waits for."""
        return bool(self._by_tag or self._soon or self._answering or self._refreshing)

    def prefix(self, watch: Watch) -> bytes:
        """How messages with changes begin."""
        return b"" if self.kind == "stream" else tag_head(watch.tag) + b',"changes":'

    # ---- what is asked ------------------------------------------------------------------------

    def ask(self, request: Any, *, is_little: bool = False) -> None:
        """Have a live query watched; it is answered when its result is there.

        `is_little`: its text is, so that the loop may parse it.
        """
        hub, caller, settings = self._hub, self._caller, self._hub.settings
        key = caller.key
        caller.need("read", request.collection)
        rule = caller.rule(request.collection)
        collection = hub.db._collections.get(request.collection)
        if collection is None:
            raise hub.absent(NotFound("no such collection", name=request.collection))
        if request.identity is not None and request.identity != collection.identity:
            raise hub.absent(Conflict(
                "the collection was dropped and made again since: watch it anew",
                collection=request.collection, identity=collection.identity,
            ))  # fmt: skip
        if len(self._by_tag) >= settings.watches_per_connection:
            raise Refused(429, "TooMany", "too many live queries on this connection: open another")
        if hub.watched[key] >= settings.watches_per_caller:
            raise Refused(429, "TooMany", "too many live queries of this caller: cancel some")
        desk = Desk.of(hub, collection)
        kind = "whole" if request.first is False and self.kind == "live" else self.kind
        line = self._lines.get((desk, kind))
        if line is None:
            line = self._lines[desk, kind] = Line(self, desk, kind)
        watch = Watch(line, request.tag)
        if request.ttl_s is not None:
            until = self._until(request.ttl_s)
            if until < FOREVER:
                self._ends[watch] = End(watch, until)
        self._by_tag[request.tag] = watch
        self._desks[desk] += 1
        hub.watched[key] += 1
        desk.watches += 1
        is_plain = (
            request.first is False and request.after is None and type(request) is WatchRequest
            and request.sort is None and request.limit is None
        )  # fmt: skip
        self._asked.append(Job(watch, request, rule, is_plain, is_plain and is_little))
        self._work()

    def cancel(self, tag: Tag, reason: str = "cancelled") -> None:
        """End a live query."""
        watch = self._by_tag.get(tag)
        if watch is not None:
            self.end(watch, reason)

    def prolong(self, watch: Watch, ttl_s: float | None) -> str | None:
        """Move the end of a live query, None: to never; returns when that is."""
        until = self._until(ttl_s)
        self._ends.pop(watch, None)
        if until < FOREVER:
            end = self._ends[watch] = End(watch, until)
            self._hub.alarm.at(until, end)
        return time_text(until)

    def _until(self, ttl_s: float | None) -> int:
        if ttl_s is None:
            return FOREVER
        until = self._hub.db.clock.now() + round(ttl_s * SECOND)
        return until if from_us(until) is not None else FOREVER

    def look(self, watch: Watch) -> None:
        """End a live query whose time has come."""
        end = self._ends.get(watch)
        if end is not None and self._hub.db.clock.now() >= end.until_us:
            watch.line.desk.deliver()
            self.end(watch, "expired")

    # ---- the end ------------------------------------------------------------------------------

    def end(self, watch: Watch, reason: str) -> None:
        """Say no more of a live query, and why."""
        if self._forget(watch):
            self._ended(watch, reason)
            self._leaving.append(watch)
            self._work()

    def revoke(self) -> None:
        """The token is good no more: tell that nothing is to be seen, and end all."""
        for watch in list(self._by_tag.values()):
            if watch.line.kind != "whole":  # whoever asked for no result has none
                self._put_result(watch, max(watch.version, 0), [], True)
            self.end(watch, "revoked")

    def stop(self) -> None:
        """The connection has ended."""
        self._over = True
        for watch in list(self._by_tag.values()):
            self._forget(watch)
            self._leaving.append(watch)
        self._asked.clear()
        self._behind.clear()
        if self._leaving and self._answering is None:
            leaving, self._leaving = self._leaving, deque()
            self._hub.work.soon(partial(leave_all, leaving))

    def _forget(self, watch: Watch) -> bool:
        if watch.state == OVER:
            return False
        watch.state, watch.held = OVER, None
        del self._by_tag[watch.tag]
        if self._ends:
            self._ends.pop(watch, None)
        hub, desk, key = self._hub, watch.line.desk, self._caller.key
        desk.watches -= 1
        if not desk.watches and hub.desks.get(desk.collection) is desk:
            del hub.desks[desk.collection]
        left = hub.watched[key] = hub.watched[key] - 1
        if not left:
            del hub.watched[key]
        left = self._desks[desk] = self._desks[desk] - 1
        if not left:
            del self._desks[desk]
            self._lines = {key: line for key, line in self._lines.items() if key[0] is not desk}
        return True

    # ---- joining and leaving ------------------------------------------------------------------

    def _work(self) -> None:
        """See to what is asked: when the connection was read, else in a task."""
        if self._answering is None and not (self._soon or self._over):
            self._soon = self._hub.turn.at_end(self._answer_at_once)
            if not self._soon:
                self._answering = asyncio.ensure_future(self._answer_all())

    def _answer_at_once(self) -> None:
        """Answer what was read, if it takes little: no other turn of the loop is waited for."""
        self._soon = False
        if self._answering is None and not self._over:
            if self.outbox.has_room and self._is_little():
                self._answer_here()
            if self._asked or self._leaving:
                self._answering = asyncio.ensure_future(self._answer_all())

    async def _answer_all(self) -> None:
        """Join and leave, many in one go, here or in a thread."""
        hub = self._hub
        try:
            while (self._asked or self._leaving) and not self._over:
                if self._asked and not self.outbox.has_room:
                    await self.outbox.room()
                if self._is_little() and self._answer_here():
                    await asyncio.sleep(0)
                    continue
                jobs = [self._asked.popleft() for _ in range(min(_BATCH, len(self._asked)))]
                leaving, self._leaving = self._leaving, deque()
                done = await hub.long(self._caller, self, run, jobs, leaving)
                self._asked.extendleft(reversed(jobs[len(done) :]))
                self._answer_jobs(jobs, done)
        finally:
            self._answering = None
            if self._over and self._leaving:
                leaving, self._leaving = self._leaving, deque()
                hub.work.soon(partial(leave_all, leaving))

    def _is_little(self) -> bool:
        """Whether what is to be done next takes little."""
        if self._hub.waits_for_disk or len(self._leaving) > _BATCH:
            return False
        return not self._asked or self._asked[0].is_little

    def _answer_here(self) -> bool:
        """Join and leave what takes little, if nobody has to be waited for; says whether."""
        asked, limit = self._asked, time.monotonic() + _FEW_S
        if self._leaving and not leave(self._leaving, wait=False):
            return False
        few = list(takewhile(lambda job: job.is_little, islice(asked, _FEW)))
        done = join_plain(few, limit, wait=False)
        if done is None:
            return False
        for _ in done:
            asked.popleft()
        self._answer_jobs(few, done)
        return bool(done or not few)

    def _answer_jobs(self, jobs: list[Job], done: list[Outcome]) -> None:
        begun: list[tuple[Job, int]] = []  # what is answered with one text for many
        for job, found in zip(jobs, done, strict=False):
            if type(found) is int and job.watch.state != OVER and job.watch not in self._ends:
                begun.append((job, found))
                continue
            self._answer_plain(begun)
            begun = []
            try:
                self._answer(job, found)
            except Exception as error:  # a mistake in here must not leave anybody waiting
                self._answer(job, error)
        self._answer_plain(begun)

    def _answer_plain(self, begun: list[tuple[Job, int]]) -> None:
        """Say of live queries without a result and an end that they stand, from a version on."""
        if begun and self.kind == "live":
            texts, said, rest = [], None, b""
            for job, version in begun:
                desk = job.watch.line.desk
                if said != (desk, version):
                    said, rest = (desk, version), watching_text(_facts(desk, version))
                texts.append(tag_head(job.watch.tag) + rest)
            self.outbox.reply_all(texts)
        for job, version in begun:
            try:
                job.watch.go_on(version)
            except Exception as error:
                self._answer(job, error)

    def _answer(self, job: Job, found: Outcome) -> None:
        """Say what came of a request."""
        watch, request = job.watch, job.request
        if isinstance(found, Exception):
            if self._forget(watch):
                self._refuse(watch.tag, found)
                self._leaving.append(watch)
            return
        if watch.state == OVER:  # it was cancelled meanwhile; the entry was not known then
            self._leaving.append(watch)
            return
        if isinstance(found, int):
            found = Joined(watch.entry, found, None, None), False
        joined, first = found
        _, desk, kind = watch.line
        end = self._ends.get(watch)
        resumed = joined.missed is not None
        sends = first or (request.after is not None and not resumed)
        if self.kind == "live":
            self.outbox.reply(tag_head(watch.tag) + watching_text(_facts(
                desk, request.after if resumed else joined.version,
                until=None if end is None else time_text(end.until_us),
                resumed=resumed, result=sends, placed=isinstance(joined.entry, StagedEntry),
            )))  # fmt: skip
        if sends:
            version = request.after if resumed else joined.version
            self._put_result(
                watch, version, joined.items, request.after is not None and not resumed
            )
        if joined.missed:
            # What was missed goes out whatever the room: it is there, and it is the answer.
            prefix = self.prefix(watch)
            for wire in change_wires(joined.missed, joined.version, kind, desk.identity):
                self.outbox.put(watch, wire, len(prefix) + len(wire.data))
        if end is not None:
            self._hub.alarm.at(end.until_us, end)
        watch.go_on(joined.version)

    def _put_result(self, watch: Watch, version: int, items: Any, reset: bool) -> None:
        texts = result_texts(
            items, version, reset, head=tag_head(watch.tag), kind=self.kind,
            identity=watch.line.desk.identity,
        )  # fmt: skip
        if sum(len(item.raw) for item in items) < PIECE_BYTES:
            for text in texts:
                self.outbox.reply(text)
        else:
            self.outbox.put_pieces(texts)

    # ---- who is behind ------------------------------------------------------------------------

    def fall_behind(self, watch: Watch) -> None:
        """Tell nothing until there is room for the latest result."""
        watch.state = BEHIND
        self._behind.append(watch)
        if self._refreshing is None and not self._over:
            self._refreshing = asyncio.ensure_future(self._refresh())

    async def _refresh(self) -> None:
        """Send the latest results, as the socket takes them."""
        try:
            while self._behind and not self._over:
                await self.outbox.room()
                batch = [self._behind.popleft() for _ in range(min(_LATEST, len(self._behind)))]
                batch = [watch for watch in batch if watch.state == BEHIND]
                for watch in batch:
                    watch.state = BEGINNING
                found = await self._hub.long(self._caller, self, results_now, batch)
                for watch, latest in zip(batch, found, strict=True):
                    if watch.state == OVER or latest is None:
                        continue
                    if isinstance(latest, Exception):  # without its result it can tell nothing
                        if self._forget(watch):
                            self._refuse(watch.tag, latest)
                            self._leaving.append(watch)
                            self._work()
                        continue
                    self._hub.metrics.live_resets += 1
                    self._put_result(watch, *latest, True)
                    watch.go_on(latest[0])
        finally:
            self._refreshing = None

    async def settled(self) -> dict[str, int]:
        """Wait until all is in the outbox that was asked for and written so far; returns by
        collection up to which version that is."""
        await self.answered()
        versions = {desk.collection.name: await desk.caught_up() for desk in list(self._desks)}
        while self._refreshing is not None:
            await asyncio.wait([self._refreshing])
        return {name: version for name, version in versions.items() if version is not None}

    async def answered(self) -> None:
        """Wait until what was asked for so far was answered."""
        if self._soon:
            self._answer_at_once()
        while self._answering is not None:
            await asyncio.wait([self._answering])

    def places(self) -> list[bytes]:
        """Where an event stream stands, as the ids of its events say it."""
        reached = self.reached()
        return [
            b"%d-%b" % (reached[desk.collection.name], desk.identity)
            for desk in self._desks if desk.collection.name in reached
        ]  # fmt: skip

    def reached(self) -> dict[str, int]:
        """By collection, the version up to which everything is in the outbox."""
        if self._soon or self._answering is not None or self._refreshing is not None:
            return {}
        found = {}
        for desk in list(self._desks):
            version = desk.reached()
            if version is not None and self._refreshing is None:
                found[desk.collection.name] = version
        return found


def _facts(
    desk: Desk, version: int, *, until: str | None = None, resumed: bool = False,
    result: bool = False, placed: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """What is said of a live query that stands."""
    return {
        "identity": desk.collection.identity, "version": version, "until": until,
        "resumed": resumed, "result": result, "placed": placed,
    }  # fmt: skip
