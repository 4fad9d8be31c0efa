"""Layout `poll`, the baseline: no subscription is stored, its subscriber asks again.

A subscription exists only as the handle its user holds. It asks once when it is made
and again every `poll_s`; what expires between two polls is missed, and `publish` cannot
say whom it answers. The polls of a handle fall on made + k * poll_s. They are run when
somebody looks or before the next write, each with the time it falls on: the store
cannot have changed in between, so the answers are those a timer would have got.

Which handles are due is read off a heap of (time, handle), so a write looks only at those. An entry
whose handle has asked since, or is gone, is stale; whoever asks clears those off the top, so that
writes do not pay for it.
"""

from __future__ import annotations

import heapq
from datetime import datetime
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from tideline.channel import batch
from tideline.channel.answer_table import answers_table, rejected_table
from tideline.channel.checks import window
from tideline.channel.codec import read_rows
from tideline.channel.core import Core
from tideline.channel.find import find_events
from tideline.channel.inbox import Inbox
from tideline.channel.results import Done, Taken
from tideline.channel.resume import After
from tideline.channel.subscription import Subscription
from tideline.clock import FOREVER, Seconds
from tideline.errors import InvalidRequest, NotFound
from tideline.kernels import layout as at
from tideline.lsm.bell import Bell
from tideline.model import Applied, Event, SubscriptionInfo
from tideline.space.place import Place
from tideline.where import Condition, parse_text

__all__ = ["PolledSubscriptions"]


class _Asking:
    """A handle and where its asking stands."""

    def __init__(self, handle: Subscription, place: Place, condition: Condition) -> None:
        self.handle = handle
        self.place = place
        self.condition = condition
        self.after = -1  # seq of the last event that was there when it asked
        self.next_us = 0


class PolledSubscriptions:
    """The handles of a channel that ask again and again; see kept.py."""

    def __init__(self, core: Core, every_us: int) -> None:
        if every_us <= 0:
            raise InvalidRequest("poll_s must be positive", poll_s=every_us / 1_000_000)
        self._core = core
        self._every = every_us
        self._asking: dict[int, _Asking] = {}
        self.times: list[tuple[int, int]] = []
        """A heap: when which handle asks next."""
        self._made = 0

    # ---- making and ending ---------------------------------------------------------------------

    def subscribe(
        self, encoded: Place, place: Any, owner: bytes, ident: bytes, condition: Condition,
        where: dict[str, Any] | None, unseen: bool, since_s: Seconds | None,
        since: datetime | None, until_s: Seconds | None, until: datetime | None,
        retractions: bool,
    ) -> Subscription:  # fmt: skip
        """Ask for the past and begin to poll."""
        core = self._core
        now = core.clock.now()
        since_us, until_us = window(now, since_s, since, until_s, until)
        if unseen:
            raise InvalidRequest("poll stores no subscriptions: unseen needs them", unseen=unseen)
        with core.engine.lock:
            core.begin()
            begin = partial(
                self._begin, encoded, place, ident.decode(), owner.decode(), since_us, until_us,
                condition, core.engine.now(now),
            )  # fmt: skip
            return core.engine.interrupts.sheltered(begin)

    def _begin(
        self, encoded: Place, place: Any, ident: str, user: str, since_us: int, until_us: int,
        condition: Condition, now: int,
    ) -> Subscription:  # fmt: skip
        core = self._core
        self._made += 1
        past = list(find_events(core, encoded, since_us, until_us, now, condition=condition))
        handle = Subscription(
            self, id=ident, user=user, place=place, since_us=since_us, until_us=until_us,
            where=condition.document or None, unseen=False, seq=self._made, past=lambda: past,
        )  # fmt: skip
        asking = _Asking(handle, encoded, condition)
        asking.after = core.engine.next_seq - 1
        asking.next_us = min(now + self._every, until_us)  # the last one falls on the end
        core.engine.count_answers(len(past))
        if until_us > now:
            self._asking[handle.seq] = asking
            heapq.heappush(self.times, (asking.next_us, handle.seq))
        return handle

    def cancel(self, ident: bytes) -> None:
        """There is nothing stored to cancel: handles cancel themselves."""
        raise self._none(ident)

    def prolong(
        self, ident: bytes, until_s: Seconds | None, until: datetime | None
    ) -> SubscriptionInfo:
        """There is nothing stored to prolong."""
        raise self._none(ident)

    def move(self, ident: bytes, place: Place) -> SubscriptionInfo:
        """There is nothing stored to move."""
        raise self._none(ident)

    def get(self, ident: bytes) -> SubscriptionInfo:
        """There is nothing stored."""
        raise self._none(ident)

    def resume(self, ident: bytes, after: After, retractions: bool) -> Subscription:
        """There is nothing stored to resume."""
        raise self._none(ident)

    def _none(self, ident: bytes) -> NotFound:
        return NotFound("layout 'poll' stores no subscriptions", id=ident.decode())

    def check_listed(self, kind: str) -> None:
        """`InvalidRequest` for subscriptions: they are not stored."""
        if kind == "subscriptions":
            raise InvalidRequest("layout 'poll' stores no subscriptions", kind=kind)

    # ---- polls ---------------------------------------------------------------------------------

    def before_write(self, now: int) -> None:
        """Run everybody's polls up to `now` (the lock is held)."""
        self._due(self._core.engine.now(now))

    def look(self, handle: Subscription) -> None:
        """Run the polls of a handle that are due."""
        core = self._core
        with core.engine.lock:
            core.engine.interrupts.finish()
            if not core.closed:
                core.engine.interrupts.sheltered(partial(self._ask, handle.seq, core.now()))

    def _ask(self, number: int, now: int) -> None:
        self._run(number, now)
        while self.times and self._stale(*self.times[0]):
            heapq.heappop(self.times)

    def _due(self, now: int) -> list[tuple[Subscription, Event]]:
        if not self.times or self.times[0][0] > now:
            return []
        return self._core.engine.interrupts.sheltered(partial(self._run_due, now))

    def _run_due(self, now: int) -> list[tuple[Subscription, Event]]:
        numbers = []
        while self.times and self.times[0][0] <= now:
            entry = heapq.heappop(self.times)
            if not self._stale(*entry):
                numbers.append(entry[1])
        found = []
        for number in sorted(numbers):
            found += self._run(number, now)
        return found

    def _stale(self, time_us: int, number: int) -> bool:
        """Whether a handle does not ask at this time any more."""
        asking = self._asking.get(number)
        return asking is None or asking.next_us != time_us

    def _run(self, number: int, now: int) -> list[tuple[Subscription, Event]]:
        engine = self._core.engine
        found = []
        asking = self._asking.get(number)
        if asking is None or asking.next_us > now:
            return []
        while asking.next_us <= now:
            handle, time_us = asking.handle, asking.next_us
            found_now = find_events(
                self._core, asking.place, handle.since_us, handle.until_us, time_us,
                condition=asking.condition, after=asking.after,
            )  # fmt: skip
            events = list(found_now)
            asking.after = engine.next_seq - 1
            if time_us >= handle.until_us:
                del self._asking[number]
            asking.next_us = min(time_us + self._every, handle.until_us)
            if events:
                engine.count_answers(len(events))
                handle.inbox.deliver(events)
                found += [(handle, event) for event in events]
            elif self._idle(asking, now):
                asking.next_us += (now - asking.next_us) // self._every * self._every
            if number not in self._asking:
                return found
        heapq.heappush(self.times, (asking.next_us, number))
        return found

    def _idle(self, asking: _Asking, now: int) -> bool:
        """Whether polls may be skipped: nothing was found and nothing can have come since."""
        return asking.next_us + self._every <= now < asking.handle.until_us

    # ---- for handles ---------------------------------------------------------------------------

    def check_open(self) -> None:
        """`Closed` when the channel is closed."""
        self._core.check_open()

    def now(self) -> int:
        """The channel's time."""
        return self._core.now()

    def wake_at(self, handle: Subscription) -> int:
        """When a waiting handle asks again."""
        asking = self._asking.get(handle.seq)
        return handle.until_us if asking is None else min(asking.next_us, handle.until_us)

    def wait(self, handle: Subscription, bell: Bell, limit_us: int = FOREVER) -> None:
        """Wait for the bell, the next poll, or the clock's time `limit_us`."""
        self._core.clock.wait(bell, min(self.wake_at(handle), limit_us))  # type: ignore[arg-type]

    def clock_us(self) -> int:
        """The clock's time."""
        return self._core.clock.now()

    def follow(self, inbox: Inbox, follower: Any, ended: Any) -> None:
        """`Inbox.follow`, while nobody polls."""
        with self._core.engine.lock:
            inbox.follow(follower, ended)

    def move_handle(self, handle: Subscription, place: Any) -> None:
        """A handle asks at another place from now on; what is new to it there is delivered."""
        core = self._core
        encoded = core.space.encode(place)
        with core.engine.lock:
            core.begin()
            core.engine.interrupts.sheltered(partial(self._move, handle, encoded, core.now()))

    def _move(self, handle: Subscription, place: Place, now: int) -> None:
        core = self._core
        self._run(handle.seq, now)
        asking = self._asking.get(handle.seq)
        if asking is None:
            raise NotFound("the subscription has ended", id=handle.id)
        ask = partial(
            find_events, core, since_us=handle.since_us, until_us=handle.until_us, now=now,
            condition=asking.condition,
        )  # fmt: skip
        # What was there at the last poll and is valid still, it was answered with then.
        had = {event.seq for event in ask(place=asking.place) if event.seq <= asking.after}
        found = [event for event in ask(place=place) if event.seq not in had]
        asking.place, handle.place = place, core.space.decode(*place)
        asking.after = core.engine.next_seq - 1
        core.engine.count_answers(len(found))
        if found:
            handle.inbox.deliver(found)

    def cancel_handle(self, handle: Subscription) -> None:
        """The user cancelled a handle: it asks no more."""
        self._asking.pop(handle.seq, None)
        handle.inbox.end("cancelled")

    def let_go(self, handle: Subscription) -> None:
        """Stop asking: nothing is stored that could be resumed."""
        handle.cancel()

    # ---- batches -------------------------------------------------------------------------------

    def apply(
        self, table: pa.Table, once: tuple[str, int] | None, admit: batch.Admit | None
    ) -> Applied:
        """Run a table row by row; polls that fall due are answers of the row they precede."""
        if once is not None:
            raise InvalidRequest("layout 'poll' does not take once", once=once)
        core = self._core
        engine = core.engine
        operations = batch.read_table(core, table)
        rows, starts, _ = operations.encode()
        rejected = operations.rejected
        found: list[tuple[int, str, str, str, str]] = []
        for number in range(len(operations.kinds)):
            if operations.kinds[number] == at.VOID:
                continue
            start = int(starts[number])
            words = rows[start : start + (int(rows[start]) >> 32)]
            row = read_rows(words)[0]
            with engine.lock:
                core.begin()
                now = engine.now(row.made)
                found += [
                    (number, handle.id, event.id, handle.user, "live")
                    for handle, event in self._due(now)
                ]
                if row.kind == at.CANCEL:
                    rejected[number] = f"layout 'poll' stores no subscriptions: {row.id!r}"
                elif row.kind in (at.PUBLISH, at.RETRACT):
                    engine.interrupts.sheltered(partial(self._write, number, words, rejected))
                elif row.flags & at.R_UNSEEN:
                    rejected[number] = "poll stores no subscriptions: unseen needs them"
                else:
                    engine.advance(now)
                    begin = partial(
                        self._begin, row.place, core.space.decode(*row.place), row.id, row.user,
                        row.first, row.until, parse_text(row.text, delta=True), now,
                    )  # fmt: skip
                    handle = engine.interrupts.sheltered(begin)
                    found += [
                        (number, handle.id, event.id, handle.user, "past") for event in handle.past
                    ]
        columns = list(zip(*found, strict=True)) or [()] * 5
        return Applied(answers_table(*map(list, columns)), rejected_table(rejected))

    def _write(self, number: int, words: Any, rejected: dict[int, str]) -> None:
        """Store or retract the event of a row; why it was rejected, if it was."""
        engine = self._core.engine
        rows, starts = np.ascontiguousarray(words), np.zeros(1, np.int64)
        retracts = rows[0] & 0xFF == at.RETRACT

        def take(done: Done) -> Taken:
            if done.existing[0] and rows[0] & 0xFF == at.VOID:
                reason: str | None = batch.nothing_to_retract(rows, starts, 0)
                if not retracts:
                    reason = batch.why_repeated(engine, rows, starts, 0, int(done.existing[0]))
                if reason:
                    rejected[number] = reason
            return Taken(0)

        engine.calls.write(rows, starts, take)

    # ---- the end -------------------------------------------------------------------------------

    def leave_to_parent(self) -> None:
        """In a forked child: nobody asks any more."""
        for asking in self._asking.values():
            asking.handle.inbox.leave_to_parent()
        self._asking.clear()
        self.times.clear()

    def close(self) -> None:
        """The channel closes: nobody asks any more."""
        for asking in self._asking.values():
            asking.handle.inbox.end("closed")
        self._asking.clear()
        self.times.clear()
