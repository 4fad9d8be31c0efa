"""The handles of subscriptions that somebody in this process holds, by the seq of their record.

References are weak: a handle that its user lets go of is fed no more. Its subscription stays
stored, and may be resumed.

Under the engine's lock; a handle may go at any moment.
"""

from __future__ import annotations

import weakref

from tideline.channel.subscription import Subscription

__all__ = ["Handles"]


class _Held(weakref.ref["Subscription"]):
    """A handle that goes when its user lets go of it."""

    __slots__ = ("seq",)
    seq: int


class Handles:
    """The handles somebody holds, by the seq of their subscription. One lets go by itself."""

    def __init__(self) -> None:
        self.held: dict[int, _Held] = {}
        """By seq; empty when nobody holds any."""
        self.retracting: dict[int, weakref.ref[Subscription]] = {}
        """Those that are told when an event is retracted."""

    def __bool__(self) -> bool:
        return bool(self.held)

    def __len__(self) -> int:
        return len(self.held)

    def add(self, handle: Subscription) -> None:
        """Feed a handle from now on."""
        ref = _Held(handle, self._gone)
        ref.seq = seq = handle.seq
        self.held[seq] = ref

    def tell_retractions(self, handle: Subscription) -> None:
        """Have a handle told when an event that it got is retracted."""
        number, retracting = id(handle), self.retracting

        def gone(_: object) -> None:
            retracting.pop(number, None)

        retracting[number] = weakref.ref(handle, gone)

    def _gone(self, ref: _Held) -> None:
        if self.held.get(ref.seq) is ref:
            del self.held[ref.seq]

    def get(self, seq: int) -> Subscription | None:
        """The handle of a subscription, if somebody holds it."""
        ref = self.held.get(seq)
        return None if ref is None else ref()

    def pop(self, seq: int) -> Subscription | None:
        """The same, and stop feeding it."""
        ref = self.held.pop(seq, None)
        return None if ref is None else ref()

    def let_go(self, handle: Subscription) -> None:
        """Stop feeding a handle, whoever still holds it; it stays stored, and may be resumed."""
        if self.get(handle.seq) is handle:
            self.held.pop(handle.seq, None)

    def leave_to_parent(self) -> None:
        """In a forked child: nobody feeds them any more."""
        held, self.held = list(self.held.values()), {}
        for ref in held:
            if (handle := ref()) is not None:
                handle.inbox.leave_to_parent()

    def end(self) -> None:
        """End all of them: the channel closes."""
        for ref in list(self.held.values()):
            handle = ref()
            if handle is not None:
                handle.inbox.end("closed")
        self.held.clear()
