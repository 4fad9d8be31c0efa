"""What waits to be sent on one connection, and no more than that connection may make wait.

    publisher's thread --add--> outbox --take--> the connection's writer --> socket --sent-->

`add` is called under a channel's lock: it appends, and wakes the loop once per nap, not once per
message. Little that finds the writer at rest is sent without it (`drain`): waking a task costs more
than sending. When more than `most_bytes` would wait, the outbox overflows: it drops what it holds
and takes no more. The writer then tells the reader where to resume, and hangs up. Nobody else
notices.

Three things never overflow it. What a new subscription finds in the past is kept as events, and the
writer encodes it piece by piece as the socket takes it: a long past is not a slow reader. And the
answer to a request is always taken, but requests are read only while there is `room`. And changes
of a collection are read from its log only while there is (changes.py); those of live queries are
left out when there is not, and the latest result goes out in their place (live_queries.py).

Threads: `add`, `add_past`, `reply` and `close` from any; the rest on the connection's loop.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from tideline.channel.lazy import LazyEvents
from tideline.model import Event
from tideline.server.shapes import event_json

__all__ = ["Outbox", "Pieces", "Turn", "Wire", "Wires"]

_MOST_PASTS = 8
_FEW, _LITTLE_BYTES = 32, 64 << 10  # of a past that is sent at once, as messages are


def _is_long(events: Sequence[Event]) -> bool:
    """Whether a past has to wait until the socket takes it."""
    if len(events) > _FEW:
        return True
    if isinstance(events, LazyEvents):
        return events.size_bytes > _LITTLE_BYTES
    return sum(len(event.raw) for event in events) > _LITTLE_BYTES


class Wire(msgspec.Struct, eq=False, gc=False):
    """One message, encoded once however many connections send it."""

    data: bytes
    token: str | int | None = None
    made: float = 0.0


class Pieces:
    """Messages that are made one by one, as the socket takes them."""

    __slots__ = ("texts",)

    def __init__(self, texts: Iterator[bytes]) -> None:
        self.texts = texts


class Wires:
    """The last event of a channel as a message: its many subscribers share the bytes.

    An event is delivered to all of them under the channel's lock, one after the other, so one is
    all there is to remember.
    """

    __slots__ = ("_last", "_wrap")

    def __init__(self, wrap: Callable[[bytes, bytes, bytes], bytes]) -> None:
        self._wrap = wrap
        # One reference, so that whoever reads it without the lock sees parts that belong together.
        self._last: tuple[Event | None, bytes, Wire] = (None, b"", Wire(b""))

    def of(self, event: Event) -> Wire:
        """The message of a live event (the channel's lock is held)."""
        last, _, wire = self._last
        if event is not last:
            token = event.token
            text = event_json(event)
            kind = b"retracted" if event.retracted else b"live"
            wire = Wire(self._wrap(text, kind, token.encode()), token, time.perf_counter())
            self._last = (event, text, wire)
        return wire

    def text_of(self, event: Event) -> bytes:
        """An event as JSON (any thread): most often the last one."""
        last, text, _ = self._last
        return text if last is event else event_json(event)


class Turn:
    """What comes into outboxes while a connection is read goes out when that is over.

    A connection that reads says when it begins and ends; what comes at another time waits for the
    next turn of the loop. What is asked in one read can be done in one go, before anything goes
    out: `at_end`. On the loop.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._filled: list[Outbox] = []
        self._calls: list[Callable[[], None]] = []
        self._reading = False
        self._due = False

    def begin(self) -> None:
        """What is read now may fill outboxes."""
        self._reading = True

    def at_end(self, call: Callable[[], None]) -> bool:
        """Have a call made once what is read now was read, before anything is sent. False: nothing
        is being read."""
        if self._reading:
            self._calls.append(call)
        return self._reading

    def end(self) -> None:
        """Send what is there."""
        try:
            while self._calls:
                self._calls.pop()()
        finally:
            self._reading = self._due = False
        if self._filled:
            filled, self._filled = self._filled, []
            for outbox in filled:
                outbox.rise()

    def add(self, outbox: Outbox) -> None:
        """An outbox has something to send."""
        self._filled.append(outbox)
        if not (self._reading or self._due):
            self._due = True
            self._loop.call_soon(self.end)


class Outbox:
    """A bounded queue from publishers to one connection's writer."""

    def __init__(self, loop: asyncio.AbstractEventLoop, most_bytes: int, turn: Turn) -> None:
        self.most_bytes = most_bytes
        self.size_bytes = 0
        """What waits, and what the writer has taken and not yet sent."""
        self.overflowed = False
        self.closed = False
        self._loop = loop
        self._turn = turn
        self._thread = threading.get_ident()
        self._items: deque[tuple[Any, Any, int]] = deque()
        self._pasts = 0
        self._long_pasts = 0  # of those
        self._lock = threading.Lock()
        self._awake = asyncio.Event()
        self._spilled = asyncio.Event()
        self._woken = False
        self._waiting: list[asyncio.Future[None]] = []
        self.drain: Callable[[], bool] | None = None
        """Sends the little that waits at once, without the writer; says whether it did."""
        self._resting = False  # the writer waits for something to do
        self._soon = False

    def __len__(self) -> int:
        return len(self._items)

    def add(self, stream: Any, wire: Wire, size_bytes: int) -> None:
        """Have a message sent; `stream` is whose. Never waits."""
        with self._lock:
            if self.overflowed or self.closed:
                return
            if self.size_bytes and self.size_bytes + size_bytes > self.most_bytes:
                self.overflowed = True
                self._items.clear()
                self._woken = False  # it may sleep in its socket: wake whoever watches
            else:
                self._items.append((stream, wire, size_bytes))
                self.size_bytes += size_bytes
        self._wake()

    def reply(self, data: bytes) -> None:
        """Have the answer to a request sent."""
        self.put(None, Wire(data), len(data))

    def reply_all(self, texts: list[bytes]) -> None:
        """The same of many."""
        with self._lock:
            if self.overflowed or self.closed:
                return
            self._items += [(None, Wire(text), len(text)) for text in texts]
            self.size_bytes += sum(map(len, texts))
        self._wake()

    def put(self, stream: Any, wire: Wire, size_bytes: int) -> None:
        """Have a message sent that was made when there was room: it never overflows."""
        with self._lock:
            if self.overflowed or self.closed:
                return
            self._items.append((stream, wire, size_bytes))
            self.size_bytes += size_bytes
        self._wake()

    def add_past(self, stream: Any, events: Sequence[Event]) -> None:
        """Have the past of a subscription sent, piece by piece."""
        many = _is_long(events)
        with self._lock:
            if self.overflowed or self.closed:
                return
            self._items.append((stream, events, 0))
            self._pasts += 1
            self._long_pasts += many
        self._wake()

    def put_pieces(self, texts: Iterator[bytes]) -> None:
        """Have messages sent that are made as the socket takes them: they never overflow it."""
        with self._lock:
            if self.overflowed or self.closed:
                return
            self._items.append((None, Pieces(texts), 0))
            self._pasts += 1
            self._long_pasts += 1
        self._wake()

    def _wake(self) -> None:
        # The writer clears `_woken` before it takes: whoever adds later wakes it again.
        if self._woken:
            return
        self._woken = True
        if threading.get_ident() == self._thread:
            if self._resting and self.drain is not None and not (self.overflowed or self.closed):
                if not self._soon:  # what else comes in this turn goes along
                    self._soon = True
                    self._turn.add(self)
                return
            self.rise()
            return
        try:
            self._loop.call_soon_threadsafe(self.rise)
        except RuntimeError:  # the loop is gone, and its connections with it
            self.closed = True

    def rise(self) -> None:
        """Send what is there, or wake the writer for it."""
        self._soon = False
        at_rest = self._resting and not (self.overflowed or self.closed)
        if not (at_rest and self.drain is not None and self.drain()):
            self._awake.set()
        if self.overflowed:
            self._spilled.set()
        self._let_in()

    async def spilled(self) -> None:
        """Wait until it has overflowed."""
        await self._spilled.wait()

    def close(self) -> None:
        """Take no more; the writer sends what is there and ends (any thread)."""
        with self._lock:
            self.closed = True
            self._woken = False
        self._wake()

    async def take(self) -> list[tuple[Any, Any, int]]:
        """Everything that waits; waits for something. Empty when closed or overflowed."""
        while True:
            self._woken = False
            with self._lock:
                items = list(self._items)
                self._items.clear()
                self._pasts = self._long_pasts = 0
            if items or self.overflowed or self.closed:
                return items
            self._awake.clear()
            if not self._woken:
                self._resting = True
                try:
                    await self._awake.wait()
                finally:
                    self._resting = False

    def take_now(self, most_bytes: int) -> list[tuple[Any, Any, int]] | None:
        """What waits, if it is little."""
        self._woken = False
        with self._lock:
            if self._long_pasts or self.size_bytes > most_bytes:
                return None
            items = list(self._items)
            self._items.clear()
            self._pasts = 0
        return items

    def sent(self, size_bytes: int) -> None:
        """The socket has taken so much of what was taken here."""
        with self._lock:
            self.size_bytes -= size_bytes
        self._let_in()

    async def room(self) -> None:
        """Wait until a good part is free: requests are read only then."""
        while not self.has_room:
            waiter = self._loop.create_future()
            self._waiting.append(waiter)
            await waiter

    @property
    def has_room(self) -> bool:
        """Whether a good part is free."""
        if self.overflowed or self.closed:
            return True
        return self.size_bytes * 2 <= self.most_bytes and self._pasts < _MOST_PASTS

    def _let_in(self) -> None:
        if self._waiting and self.has_room:
            waiting, self._waiting = self._waiting, []
            for waiter in waiting:
                if not waiter.done():
                    waiter.set_result(None)
