"""Windows and components in which nothing is valid any more go whole.

A kernel says when a window may have expired (`is_due`). It is dropped before the next rows run, or
when memory is short: until then answers may point into it.

Under the engine's lock.
"""

from __future__ import annotations

from tideline.channel.parts import Parts

__all__ = ["Expiry"]


class Expiry:
    """What has expired in a channel."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self.is_due = False
        """Whether windows have expired and are not dropped yet."""

    def drop_all(self) -> None:
        """Drop every window and component in which nothing is valid any more."""
        now = self._parts.newest
        self.drop_windows(now)
        for side in self._parts.sides:
            side.drop_expired(now)

    def drop_windows(self, now: int) -> None:
        """Drop the windows in which nothing is valid at `now`."""
        self.is_due = False
        for side in self._parts.sides:
            for window in side.memory.expired(now):
                side.memory.drop(window.number)
                side.tree.dropped += 1

    def release_windows(self) -> None:
        """Drop windows and give their memory back: nothing points into it (before a call)."""
        self.drop_windows(self._parts.newest)
        for side in self._parts.sides:
            side.memory.release()
            # After a burst most of the memory is free: half of it may stay warm.
            side.memory.trim(max(64, side.memory.segments_used))
