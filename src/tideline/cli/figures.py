"""The figures of the page, in this process: the same feed, the same arithmetic.

    server --/v1/watch--> Figures --facts()--> the terminal

A rate is the difference of two of the server's counts over the server's time between them, at
least a second apart, as web/feed.js works it out. One thread reads; any thread may ask.
"""

from __future__ import annotations

import threading
from contextlib import ExitStack
from datetime import datetime
from types import TracebackType
from typing import Any

import msgspec
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

__all__ = ["Figures"]

_RATES = ("events", "subscriptions", "answers")


class Figures:
    """What a channel does, as the server tells those who watch it.

    >>> import tempfile
    >>> import tideline
    >>> from tideline.server import running
    >>> with tempfile.TemporaryDirectory() as folder, tideline.open(folder + "/data") as db:
    ...     news = db.channel("news", journal_s=60)
    ...     with running(db) as url, Figures(url, "news") as figures:
    ...         figures.facts()["latency p50 / p99"]
    '-'
    """

    def __init__(self, url: str, channel: str) -> None:
        address = f"{url.replace('http', 'ws', 1)}/v1/watch?channel={channel}"
        self._open = ExitStack()
        self._socket = self._open.enter_context(
            connect(address, max_size=None, compression=None, proxy=None)
        )
        self._rates: dict[str, float] | None = None
        self._counts = dict.fromkeys((*_RATES, "live_events", "live_subscriptions"), 0)
        self._latency: dict[str, float] | None = None
        self._last: tuple[float, dict[str, int]] | None = None
        self._thread = threading.Thread(target=self._read, name="tideline-figures", daemon=True)
        self._thread.start()

    def __enter__(self) -> Figures:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self._open.close()
        self._thread.join()

    def _read(self) -> None:
        try:
            for text in self._socket:
                self.take(msgspec.json.decode(text))
        except ConnectionClosed:
            return  # the server has stopped: the last figures stay

    def take(self, message: dict[str, Any]) -> None:
        """A message of the feed; a beat has no counts."""
        if "counts" not in message:
            return
        self._counts = counts = message["counts"]
        self._latency = message["latency_ms"] or self._latency
        now = datetime.fromisoformat(message["at"]).timestamp()
        if self._last is None:
            self._last = now, counts
        elif now - self._last[0] >= 1:
            before, had = self._last
            self._rates = {name: (counts[name] - had[name]) / (now - before) for name in _RATES}
            self._last = now, counts

    def facts(self) -> dict[str, str]:
        """Name and text of each figure, in the page's order."""
        rates = self._rates or {}
        return {
            **{f"{name}/s": _short(rates.get(name)) for name in _RATES},
            "latency p50 / p99": self._latency_text(),
            "valid events": f"{self._counts['live_events']:,}",
            "open subscriptions": f"{self._counts['live_subscriptions']:,}",
        }

    def summary(self) -> str:
        """All it counted, in one line."""
        counts = ", ".join(f"{self._counts[name]:,} {name}" for name in _RATES)
        return f"{counts}; to a socket p50 / p99 {self._latency_text()} in the last second"

    def _latency_text(self) -> str:
        if self._latency is None:
            return "-"
        return f"{self._latency['p50']:.1f} / {self._latency['p99']:.1f} ms"


def _short(value: float | None) -> str:
    """As the page writes a rate.

    >>> _short(4.93), _short(1016.7), _short(None)
    ('4.9', '1,017', '-')
    """
    if value is None:
        return "-"
    return f"{value:.1f}" if value < 10 else f"{value:,.0f}"
