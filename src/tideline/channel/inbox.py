"""What a subscription has got and nobody has taken yet, and who waits for more.

    channel --deliver--> arrived --> take, iteration
                    `--> follower, if there is one

An exception may be thrown into whoever waits (Ctrl-C above all) and into whoever delivers, so no
lock is held here: a `threading.Condition` that is entered at the wrong moment stays locked for
ever. Whoever waits hangs up a bell, looks whether something is there, and waits for the bell.

Deliveries have rising numbers: a delivery that is repeated after an interrupt is taken once.

`deliver` is for one thread at a time (the engine's lock is held); the rest is safe from any thread.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence

from tideline.lsm.bell import Bell
from tideline.model import Event

__all__ = ["FORKED", "Inbox"]

FORKED = "forked"
"""Why a subscription has ended in a forked child."""
_Follower = tuple[Callable[[Sequence[Event], str], None], Callable[[str], None] | None]
_MAKING = threading.Lock()


def _forked() -> None:
    global _MAKING
    _MAKING = threading.Lock()  # another thread of the parent may have held it


os.register_at_fork(after_in_child=_forked)


class Inbox:
    """The queue of one subscription; `number` is that of a delivery before the first."""

    # Slots and few, cheap assignments: it is made with every subscription.
    __slots__ = ("_bells", "_delivered", "_follower", "arrived", "ended")

    def __init__(self, number: int) -> None:
        # Made when something arrives, as `_bells` when somebody first waits: most subscriptions
        # are made and let go without either.
        self.arrived: deque[Event] | None = None
        """What nobody has taken yet."""
        self.ended = ""
        """Why nothing comes any more, once it is so."""
        self._delivered = number  # the number of the last delivery
        self._bells: set[Bell] | None = None
        self._follower: _Follower | None = None

    # ---- for the channel -----------------------------------------------------------------------

    def deliver(self, events: list[Event], number: int | None = None) -> None:
        """Hand out events. A delivery that has a number is taken once: numbers rise."""
        if number is not None and number <= self._delivered:
            self.ring()
            return
        follower = self._follower
        if follower is not None:
            follower[0](events, "live")
            if number is not None:
                self._delivered = number
            return
        fresh = deque(events)
        if number is None:
            number = self._delivered
        # One step, without a call: no exception comes between, and no other thread.
        if self.arrived is None:
            self.arrived = fresh; self._delivered = number  # noqa: E702 # fmt: skip
        else:
            self.arrived += fresh; self._delivered = number  # noqa: E702 # fmt: skip
        self.ring()

    def end(self, reason: str) -> None:
        """Nothing comes any more; whoever follows is told."""
        self.close(reason)
        self.tell_end()

    def close(self, reason: str) -> None:
        """Nothing comes any more; the follower is still to be told (`tell_end`)."""
        self.ended = reason
        self.ring()

    def tell_end(self) -> None:
        """Tell the follower why nothing comes any more; it is told once."""
        follower: _Follower | None = None
        try:
            with _MAKING:  # whoever gets the follower tells it, nobody else
                follower, self._follower = self._follower, None
            if follower is not None and follower[1] is not None:
                follower[1](self.ended)
        except BaseException:
            if follower is not None:
                self._follower = follower  # whoever tries again tells it
            raise

    def ring(self) -> None:
        """Wake whoever waits."""
        if self._bells:
            for bell in tuple(self._bells):
                bell.notify_all()

    def leave_to_parent(self) -> None:
        """In a forked child: what comes is the parent's."""
        self.ended = FORKED
        self.arrived = self._follower = self._bells = None

    # ---- for readers ---------------------------------------------------------------------------

    def take(self) -> list[Event]:
        """Everything that has arrived."""
        # One step, without a call: no exception comes between, and no other thread.
        taken, self.arrived = self.arrived, None
        return [*taken] if taken else []

    def first(self) -> Event | None:
        """The next event, if one has arrived."""
        try:
            return self.arrived.popleft() if self.arrived else None
        except (AttributeError, IndexError):  # another thread took it
            return None

    @contextlib.contextmanager
    def hung(self, bell: Bell) -> Iterator[None]:
        """Have a bell rung at whatever happens."""
        # Whoever waits hangs it up first and looks into the queue afterwards; whoever delivers
        # fills the queue first and rings afterwards. So no event is slept over.
        if self._bells is None:
            with _MAKING:
                if self._bells is None:
                    self._bells = set()
        bells = self._bells
        bells.add(bell)
        try:
            yield
        finally:
            bells.discard(bell)

    def follow(
        self, deliver: Callable[[Sequence[Event], str], None], ended: Callable[[str], None] | None
    ) -> None:
        """Have what arrives handed to a function; what has arrived goes there first.

        Nobody delivers meanwhile: the caller holds the lock of whoever does.
        """
        waiting = self.take()
        if waiting:
            deliver(waiting, "live")
        self._follower = (deliver, ended)

    def unfollow(self) -> None:
        """What comes later waits for readers again."""
        self._follower = None
