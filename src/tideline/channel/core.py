"""What the verbs of a channel share: its engine, its clock, its handles, and whether it is open.

    Channel (channel.py)   the names users call
      `-- Core (here)      what every verb is given
            |-- engine          memory, components, log              engine.py
            |-- handles         subscriptions held in this process   handles.py
            `-- subscriptions   how subscriptions are kept           kept.py

Every verb takes `engine.lock` and calls `begin` before anything else. (The lock is taken by `with`
itself: a method that took it could be interrupted before it says so, and nobody would release it.)
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import pyarrow as pa

from tideline.channel.ahead import Ahead, ahead_s, ahead_us
from tideline.channel.codec import Row
from tideline.channel.engine import Engine
from tideline.channel.handles import Handles
from tideline.channel.writers import check_once
from tideline.clock import Clock, Seconds
from tideline.errors import Closed
from tideline.kernels import layout as at
from tideline.model import Applied, Event, SubscriptionInfo
from tideline.space import Space
from tideline.where import parse_text

if TYPE_CHECKING:
    from tideline.channel.batch import Admit
    from tideline.channel.kept import Subscriptions

__all__ = ["Core", "Ids"]


class Ids:
    """Ids for what has none: never the same twice, in other processes too."""

    def __init__(self) -> None:
        self._nonce = secrets.token_hex(4)
        self._format = self._nonce.encode() + b"-%x"
        self._made = 0

    def one(self) -> bytes:
        """A new id, as rows have it."""
        self._made += 1
        return self._format % self._made

    def many(self, count: int) -> list[str]:
        """So many new ids."""
        first = self._made + 1
        self._made += count
        return [f"{self._nonce}-{n:x}" for n in range(first, first + count)]


class Core:
    """A channel as its verbs see it."""

    subscriptions: Subscriptions
    """How its subscriptions are kept; set by `Channel`."""

    def __init__(self, name: str, space: Space, engine: Engine, clock: Clock) -> None:
        self.name = name
        self.space = space
        self.clock = clock
        self.engine = engine
        self.handles = Handles()
        self.ids = Ids()
        self.clocked = bool(engine.facts.get("clocked"))
        """Whether the last write was at the clock's time."""
        self.closed = ""
        """Why the channel is closed, once it is."""
        self._interrupts = engine.interrupts

    def begin(self) -> None:
        """What comes first under the lock: an interrupted call is ended; `Closed` when closed."""
        if self._interrupts.unfinished is not None:
            self._interrupts.mend()
        if self.closed:
            self.check_open()

    def check_open(self) -> None:
        """`Closed` when the channel is closed."""
        if self.closed:
            raise Closed(self.closed, channel=self.name)

    def now(self) -> int:
        """The channel's time: the clock's, or what writes have brought if that is later."""
        return self.engine.now(self.clock.now())

    # ---- batches -------------------------------------------------------------------------------

    def apply(
        self, table: pa.Table, once: tuple[str, int] | None = None, admit: Admit | None = None
    ) -> Applied:
        """`Channel.apply`; a server may reject rows of its own accord (`admit`)."""
        self.check_open()
        checked = None if once is None else check_once(once)
        return self.subscriptions.apply(table, checked, admit)

    # ---- rows ahead of the clock ---------------------------------------------------------------

    @property
    def max_ahead_s(self) -> float:
        """How far ahead of the clock a row of a batch may be."""
        return ahead_s(self.engine.facts)

    def ahead(self) -> Ahead | None:
        """The limit for the rows of a batch that comes now."""
        return Ahead.of(self.max_ahead_s, self.clock.now())

    def allow_ahead(self, max_ahead_s: Seconds) -> None:
        """Change `max_ahead_s`, for good."""
        with self.engine.lock:
            self.check_open()
            if max_ahead_s == self.max_ahead_s:
                return
        self.engine.allow_ahead(ahead_us(max_ahead_s))

    # ---- records as users get them -------------------------------------------------------------

    def event(self, row: Row) -> Event:
        """The event of a record."""
        return Event(row.id, self.space.decode(*row.place), row.first, row.until, row.seq, row.text)

    def info(self, row: Row) -> SubscriptionInfo:
        """The subscription of a record."""
        return SubscriptionInfo(
            row.id,
            row.user,
            self.space.decode(*row.place),
            row.first,
            row.until,
            parse_text(row.text, delta=True).document or None,
            bool(row.flags & at.R_UNSEEN),
            f"{row.seq:018d}",
        )

    # ---- the end -------------------------------------------------------------------------------

    def leave_to_parent(self, why: str) -> None:
        """In a forked child: nothing here is to be used, and nobody is told anything."""
        self.closed = why
        self.engine.leave_to_parent()
        self.handles.leave_to_parent()
        self.subscriptions.leave_to_parent()

    def shut(self, why: str = "the database was closed") -> None:
        """The database is closing, or the channel was dropped."""
        self.closed = why
        self.engine.facts["clocked"] = self.clocked
        self.handles.end()
        self.subscriptions.close()
        self.engine.close()
