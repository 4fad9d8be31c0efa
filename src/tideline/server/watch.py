"""WebSocket /v1/watch: what a whole channel does, about ten times a second, for the map.

    log --one pass, in a thread--> rows by kind --sample--> one message --> everybody who watches

The messages are made from the channel's log, the same bytes that recovery would read, so the feed
can claim nothing that did not happen. Long lists are evenly sampled: at most `MOST` of each, and
`of` says how many there were. Answers are noted in the log of channels with `journal_s` only; of
others they are counted and not listed.

One task a channel makes the messages while somebody watches; everything else is on the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from typing import Any

import msgspec
import numpy as np

from tideline.channel.annotations import read_answers
from tideline.channel.codec import read_rows
from tideline.errors import InvalidRequest, Unavailable
from tideline.kernels import layout as at
from tideline.lsm.nulllog import NullLog
from tideline.lsm.position import BEFORE_ALL
from tideline.server.connection import Send, Socket
from tideline.server.hub import Hub
from tideline.server.logs import log
from tideline.server.outbox import Wire
from tideline.server.shapes import encode, time_text
from tideline.space.plain import to_plain

__all__ = ["MOST", "Watch", "Watching"]

MOST = 1_000
_EVERY_S = 0.1
_SECOND = 10  # ticks


class Watching(Socket):
    """One WebSocket that watches a channel."""

    def __init__(self, hub: Hub, caller: Any, send: Send, channel: Any, *, socket: Any) -> None:
        super().__init__(hub, caller, send, lines=False, socket=socket)
        self._watch = Watch.of(hub, channel)
        self._watch.join(self)

    def stop(self) -> dict[str, str | int | None]:
        """Watch no more."""
        self._watch.leave(self)
        return {}

    def tell(self, message: Wire) -> None:
        """Have a message sent."""
        self._outbox.add(None, message, len(message.data))

    def fail(self) -> None:
        """The channel is gone."""
        self.hang_up(4400, "the channel cannot be watched any more")


class Watch:
    """A channel that somebody watches."""

    def __init__(self, hub: Hub, channel: Any) -> None:
        if isinstance(channel.core.engine.store.log, NullLog):
            raise InvalidRequest("a database in memory keeps no log: there is nothing to watch")
        self._hub = hub
        self._channel = channel
        self._watchers: set[Watching] = set()
        self._task: asyncio.Task[None] | None = None
        self._position = BEFORE_ALL
        self._begun = False
        self._counts = {"events": 0, "subscriptions": 0, "answers": 0}
        self._stats: Any = None
        self._answers_before: int | None = None
        self._ticks = 0
        self._delivered: deque[int] = deque(maxlen=_SECOND)

    @staticmethod
    def of(hub: Hub, channel: Any) -> Watch:
        """The watch of a channel."""
        found: Watch | None = hub.watches.get(channel)
        if found is None:
            found = hub.watches[channel] = Watch(hub, channel)
        return found

    def join(self, watcher: Watching) -> None:
        """Begin to tell somebody."""
        self._watchers.add(watcher)
        start = self._hub.settings.start
        if start is not None and start["channel"] == self._channel.name:
            watcher.tell(Wire(encode({"start": start})))
        if self._task is None:
            self._begun = not self._hub.work.is_busy(self._channel)
            if self._begun:
                self._begin()
            self._task = asyncio.get_running_loop().create_task(self._run())

    def leave(self, watcher: Watching) -> None:
        """Stop telling them."""
        self._watchers.discard(watcher)
        if not self._watchers and self._task is not None:
            self._task.cancel()
            self._task = None

    async def _run(self) -> None:
        try:
            if not self._begun:
                await self._hub.in_thread(self._begin)
            while True:
                started = time.monotonic()
                users = {watcher.caller.user for watcher in self._watchers}
                messages = await self._hub.in_thread(self._messages, users)
                for watcher in list(self._watchers):
                    message = messages.get(watcher.caller.user)
                    if message is not None:
                        watcher.tell(message)
                await asyncio.sleep(max(0.01, started + _EVERY_S - time.monotonic()))
        except Exception as error:
            if not self._channel.core.closed:
                log("bug", level=logging.ERROR, error=error, channel=self._channel.name)
            for watcher in list(self._watchers):
                watcher.fail()

    # ---- in a thread -------------------------------------------------------------------------

    def _begin(self) -> None:
        """Tell of what is written from now on."""
        engine = self._channel.core.engine
        with engine.lock:
            self._position = engine.store.log.end

    def _messages(self, users: set[str | None]) -> dict[str | None, Wire]:
        """What happened since the last message, as each user may see it."""
        rows = self._rows()
        if not self._ticks % _SECOND:  # it counts what is alive: not for every message
            self._stats = self._channel.stats()
        self._ticks += 1
        stats = self._stats
        answers, answer_count = _answers(rows[at.NOTE])
        self._counts["events"] += len(rows[at.PUBLISH])
        self._counts["subscriptions"] += len(rows[at.SUBSCRIBE])
        self._counts["answers"] = self._count_answers(answer_count)
        events = self._decoded(rows[at.PUBLISH])
        made = self._decoded(rows[at.SUBSCRIBE])
        made_at = {row.id: row.seq for row in made}
        published_at = {row.id: row.seq for row in events}
        message: dict[str, Any] = {
            "at": time_text(self._channel.clock.now()),
            "events": [
                {"id": row.id, "place": self._place(row), "at": time_text(row.first),
                 "until": time_text(row.until), "body": msgspec.Raw(row.text)}
                for row in events
            ],
            "retracted": [  # what was published again since, is there
                row.id for row in self._decoded(rows[at.RETRACT])
                if published_at.get(row.id, 0) < row.seq
            ],
            "counts": {**self._counts, "live_events": stats.events,
                       "live_subscriptions": stats.subscriptions},
            "latency_ms": self._latency(),
        }  # fmt: skip
        of = {"events": len(rows[at.PUBLISH]), "subscriptions": len(rows[at.SUBSCRIBE]),
              "answers": answer_count}  # fmt: skip
        if max(of.values()) > MOST:
            message["of"] = of
        if self._hub.settings.status is not None:
            message["status"] = self._hub.settings.status()
        cancelled = [  # what was only prolonged is made again after it
            row.id for row in self._decoded(rows[at.CANCEL]) if made_at.get(row.id, 0) < row.seq
        ]
        told = {}
        for user in users:
            own = [row for row in made if user is None or row.user == user]
            seen = [a for a in answers if user is None or a[2] == user]
            message["subscriptions"] = [
                {"id": row.id, "user": row.user, "place": self._place(row),
                 "until": time_text(row.until), "unseen": bool(row.flags & at.R_UNSEEN)}
                for row in own
            ]  # fmt: skip
            message["answers"] = [
                {"subscription": sub, "event": event, "kind": kind} for sub, event, _, kind in seen
            ]
            message["cancelled"] = cancelled if user is None else []
            told[user] = Wire(encode(message))
        return told

    def _count_answers(self, noted: int) -> int:
        """The answers since somebody began to watch; without a journal the log notes none."""
        if self._answers_before is None:
            self._answers_before = self._stats.answers
        if self._channel.core.engine.journal_us:
            return self._counts["answers"] + noted
        since: int = self._stats.answers - self._answers_before
        return max(self._counts["answers"], since)

    def _rows(self) -> dict[int, list[memoryview]]:
        """The rows written since the last time, by kind; each as its bytes."""
        engine = self._channel.core.engine
        log = engine.store.log
        with engine.lock:
            self._channel.core.check_open()
            first, last = max(self._position, log.start), log.end
        found: dict[int, list[memoryview]] = {
            at.PUBLISH: [], at.SUBSCRIBE: [], at.CANCEL: [], at.NOTE: [], at.RETRACT: [],
        }  # fmt: skip
        with contextlib.suppress(Unavailable):  # a segment that was let go of meanwhile
            for _, payload in log.read(first, last):
                words = memoryview(payload).cast("q")
                start = 0
                while start < len(words):
                    limit = start + (words[start] >> 32)
                    kind = words[start] & 0xFF
                    if kind in found:
                        found[kind].append(payload[start * 8 : limit * 8])
                    start = limit
        self._position = last
        return found

    def _decoded(self, rows: list[memoryview]) -> list[Any]:
        return [read_rows(bytes(row))[0] for row in _sample(rows)]

    def _place(self, row: Any) -> Any:
        return to_plain(self._channel.space.decode(*row.place))

    def _latency(self) -> dict[str, float] | None:
        """How long live answers took to their sockets, of the last second."""
        metrics = self._hub.metrics
        self._delivered.append(metrics.delivered)
        count = min(self._delivered[-1] - self._delivered[0], len(metrics.recent))
        if not count:
            return None
        recent = np.array(list(metrics.recent)[-count:])
        p50, p99 = np.percentile(recent, [50, 99]) * 1000
        return {"p50": round(float(p50), 3), "p99": round(float(p99), 3)}


def _sample(rows: list[Any]) -> list[Any]:
    """At most so many, evenly."""
    if len(rows) <= MOST:
        return rows
    return [rows[n * len(rows) // MOST] for n in range(MOST)]


def _answers(found: list[memoryview]) -> tuple[list[tuple[str, str, str, str]], int]:
    """A sample of the answers that notes tell of, and how many there are."""
    noted: list[tuple[str, str, str, str]] = []
    total = 0
    for row in found:
        note = read_rows(bytes(row))[0]
        if note.flags & at.N_LISTED:
            total += note.first
            noted += msgspec.json.decode(note.text, type=list[tuple[str, str, str, str]])
        elif note.flags & at.N_ANSWERS:
            total += note.first
            table = read_answers(note.flags, note.made, memoryview(note.text))
            if table is not None:
                step = max(1, len(table) // MOST)
                picked = table.take(np.arange(0, len(table), step))
                columns = ("subscription", "event", "user", "kind")
                noted += zip(*(picked[name].to_pylist() for name in columns), strict=True)
    return _sample(noted), total
