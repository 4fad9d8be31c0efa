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
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tideline.channel import batch
from tideline.channel.checks import BODY_LIMIT_BYTES, ID_LIMIT_BYTES
from tideline.channel.codec import read_rows
from tideline.channel.operations import read_operations
from tideline.channel.results import Done, Taken
from tideline.channel.subscription import Subscription
from tideline.errors import InvalidRequest, NotFound
from tideline.kernels import layout as at
from tideline.model import Applied, Event
from tideline.space.place import Place
from tideline.where import Condition, parse_text

if TYPE_CHECKING:
    from tideline.channel.channel import Channel

__all__ = ["Poller"]


class _Asking:
    """A handle and where its asking stands."""

    def __init__(self, handle: Subscription, place: Place, condition: Condition) -> None:
        self.handle = handle
        self.place = place
        self.condition = condition
        self.after = -1  # seq of the last event that was there when it asked
        self.next_us = 0


class Poller:
    """The handles of a channel that ask again and again."""

    def __init__(self, channel: Channel, every_us: int) -> None:
        if every_us <= 0:
            raise InvalidRequest("poll_s must be positive", poll_s=every_us / 1_000_000)
        self._channel = channel
        self._every = every_us
        self._asking: dict[int, _Asking] = {}
        self._times: list[tuple[int, int]] = []
        self._made = 0

    def subscribe(
        self, encoded: Place, place: Any, ident: bytes, user: str, since_us: int, until_us: int,
        condition: Condition, unseen: bool, now: int,
    ) -> Subscription:  # fmt: skip
        """Ask for the past and begin to poll."""
        if unseen:
            raise InvalidRequest("poll stores no subscriptions: unseen needs them", unseen=unseen)
        channel = self._channel
        engine = channel._engine
        with engine.lock:
            if engine.unfinished is not None:
                engine.mend()
            channel._check_open()
            begin = partial(
                self._begin, encoded, place, ident.decode(), user, since_us, until_us, condition,
                engine.now(now),
            )  # fmt: skip
            return engine.sheltered(begin)

    def _begin(
        self, encoded: Place, place: Any, ident: str, user: str, since_us: int, until_us: int,
        condition: Condition, now: int,
    ) -> Subscription:  # fmt: skip
        channel = self._channel
        self._made += 1
        past = list(channel._find(encoded, since_us, until_us, now, condition=condition))
        handle = Subscription(
            channel, id=ident, user=user, place=place, since_us=since_us, until_us=until_us,
            where=condition.document or None, unseen=False, seq=self._made, past=lambda: past,
        )  # fmt: skip
        asking = _Asking(handle, encoded, condition)
        asking.after = channel._engine.next_seq - 1
        asking.next_us = min(now + self._every, until_us)  # the last one falls on the end
        channel._engine.answers += len(past)
        if until_us > now:
            self._asking[handle.seq] = asking
            heapq.heappush(self._times, (asking.next_us, handle.seq))
        return handle

    def ask(self, handle: Subscription) -> None:
        """Run the polls of a handle that are due."""
        channel, engine = self._channel, self._channel._engine
        with engine.lock:
            if engine.unfinished is not None:
                engine.mend()
            if not channel._closed:
                engine.sheltered(partial(self._ask, handle.seq, channel._now()))

    def _ask(self, number: int, now: int) -> None:
        self._run(number, now)
        while self._times and self._stale(*self._times[0]):
            heapq.heappop(self._times)

    def due(self, now: int) -> list[tuple[Subscription, Event]]:
        """Run everybody's polls up to `now` (the lock is held)."""
        if not self._times or self._times[0][0] > now:
            return []
        return self._channel._engine.sheltered(partial(self._run_due, now))

    def _run_due(self, now: int) -> list[tuple[Subscription, Event]]:
        numbers = []
        while self._times and self._times[0][0] <= now:
            entry = heapq.heappop(self._times)
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
        found = []
        asking = self._asking.get(number)
        if asking is None or asking.next_us > now:
            return []
        while asking.next_us <= now:
            handle, time_us = asking.handle, asking.next_us
            found_now = self._channel._find(
                asking.place, handle.since_us, handle.until_us, time_us,
                condition=asking.condition, after=asking.after,
            )  # fmt: skip
            events = list(found_now)
            asking.after = self._channel._engine.next_seq - 1
            if time_us >= handle.until_us:
                del self._asking[number]
            asking.next_us = min(time_us + self._every, handle.until_us)
            if events:
                self._channel._engine.answers += len(events)
                handle._deliver(events)
                found += [(handle, event) for event in events]
            elif self._idle(asking, now):
                asking.next_us += (now - asking.next_us) // self._every * self._every
            if number not in self._asking:
                return found
        heapq.heappush(self._times, (asking.next_us, number))
        return found

    def _idle(self, asking: _Asking, now: int) -> bool:
        """Whether polls may be skipped: nothing was found and nothing can have come since."""
        return asking.next_us + self._every <= now < asking.handle.until_us

    def next_at(self, handle: Subscription) -> int:
        """When a waiting handle asks again."""
        asking = self._asking.get(handle.seq)
        return handle.until_us if asking is None else min(asking.next_us, handle.until_us)

    def stop(self, handle: Subscription) -> None:
        """The user cancelled a handle."""
        self._asking.pop(handle.seq, None)

    def cancel(self, id: str) -> None:
        """There is nothing stored to cancel: handles cancel themselves."""
        raise NotFound("layout 'poll' stores no subscriptions", id=id)

    def apply(self, table: pa.Table) -> Applied:
        """Run a table row by row; polls that fall due are answers of the row they precede."""
        channel, engine = self._channel, self._channel._engine
        operations = read_operations(
            table, channel.space, channel._new_ids, id_limit=ID_LIMIT_BYTES,
            body_limit=BODY_LIMIT_BYTES, ahead=channel._ahead(),
        )  # fmt: skip
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
                if engine.unfinished is not None:
                    engine.mend()
                channel._check_open()
                now = engine.now(row.made)
                found += [
                    (number, handle.id, event.id, handle.user, "live")
                    for handle, event in self.due(now)
                ]
                if row.kind == at.CANCEL:
                    rejected[number] = f"layout 'poll' stores no subscriptions: {row.id!r}"
                elif row.kind == at.PUBLISH:
                    engine.sheltered(partial(self._publish_row, number, words, rejected))
                elif row.flags & at.R_UNSEEN:
                    rejected[number] = "poll stores no subscriptions: unseen needs them"
                else:
                    engine.state[at.C_NEWEST] = now
                    begin = partial(
                        self._begin, row.place, channel.space.decode(*row.place), row.id, row.user,
                        row.first, row.until, parse_text(row.text, delta=True), now,
                    )  # fmt: skip
                    handle = engine.sheltered(begin)
                    found += [
                        (number, handle.id, event.id, handle.user, "past") for event in handle.past
                    ]
        columns = list(zip(*found, strict=True)) or [()] * 5
        return Applied(
            batch.answers_table(*map(list, columns)),
            batch.rejected_table(rejected),
        )

    def _publish_row(self, number: int, words: Any, rejected: dict[int, str]) -> None:
        rows, starts = np.ascontiguousarray(words), np.zeros(1, np.int64)

        def take(done: Done) -> Taken:
            if done.existing[0]:
                reason = batch.why_repeated(self._channel, rows, starts, 0, int(done.existing[0]))
                if reason:
                    rejected[number] = reason
            return Taken(0)

        self._channel._engine.write(rows, starts, take)

    def leave_to_parent(self) -> list[Subscription]:
        """In a forked child: the handles that nobody feeds any more."""
        handles = [asking.handle for asking in self._asking.values()]
        self._asking.clear()
        self._times.clear()
        return handles

    def close(self) -> None:
        """The channel closes: nobody asks any more."""
        for asking in self._asking.values():
            asking.handle._end("closed")
        self._asking.clear()
        self._times.clear()
