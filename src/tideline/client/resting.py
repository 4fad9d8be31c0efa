"""Subscriptions that could not be resumed yet, because the client was over the server's rate.

    refused with retry_after_s -> waits here -> all are asked for again, on the same connection

A new connection would use up the rate once more without getting any further: with more
subscriptions than the rate allows in a second, it would never get all of them.

A feed stays here until its request has been sent again, so whoever asks the server behind it knows
that it comes first. Safe from any thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from tideline.client.feeds import Feed

__all__ = ["Resting"]


class Resting:
    """Feeds that wait, each with the tag it had: with another one it was resumed otherwise."""

    def __init__(self, resume: Callable[[list[tuple[int, Feed]]], None]) -> None:
        self._resume = resume
        self._lock = threading.Lock()
        self._feeds: list[tuple[int, Feed]] = []

    def __bool__(self) -> bool:
        return bool(self._feeds)

    def add(self, feed: Feed, span_s: float) -> None:
        """Ask for a feed again after a while."""
        feed.rested = True
        with self._lock:
            self._feeds.append((feed.tag, feed))
            if len(self._feeds) > 1:
                return  # a timer runs
        self._start(span_s)

    def _start(self, span_s: float) -> None:
        timer = threading.Timer(span_s, self._over, [span_s])
        timer.daemon = True
        timer.start()

    def _over(self, span_s: float) -> None:
        feeds = list(self._feeds)
        try:
            self._resume(feeds)
        finally:
            with self._lock:
                del self._feeds[: len(feeds)]
                more = bool(self._feeds)
            if more:
                self._start(span_s)
