"""The figures of the page, in this process: the same feed, the same arithmetic.

    server --/v1/watch--> Figures --facts(), recent()--> the terminal

A rate is the difference of two of the server's counts over the server's time between them, at
least a second apart, as web/feed.js works it out. When the channel is dropped and made again, the
feed is opened again and the counts go on. One thread reads; any thread may ask.

Bodies are whatever visitors publish: any JSON. They are decoded one by one, and one that cannot be
decoded is shown as its text.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec
from websockets.exceptions import WebSocketException
from websockets.sync.client import connect

__all__ = ["Figures", "Happened"]

_RATES = ("events", "subscriptions", "answers")
_RECENT = 8
_AGAIN_S = 0.5


class _Event(msgspec.Struct):
    id: str
    at: str
    body: msgspec.Raw


class _Answer(msgspec.Struct):
    event: str
    kind: str


class _Message(msgspec.Struct):
    """What is read of a message; a beat has nothing of it."""

    at: str = ""
    counts: dict[str, int] | None = None
    latency_ms: dict[str, float] | None = None
    events: list[_Event] = []
    answers: list[_Answer] = []


@dataclass
class Happened:
    """An event, and how many were told of it live."""

    when: str
    body: Any
    told: int = 0


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
        self._address = f"{url.replace('http', 'ws', 1)}/v1/watch?channel={channel}"
        self._closing = threading.Event()
        self._rates: dict[str, float] | None = None
        self._counts = dict.fromkeys((*_RATES, "live_events", "live_subscriptions"), 0)
        self._before = dict.fromkeys(_RATES, 0)  # counted by earlier connections
        self._latency: dict[str, float] | None = None
        self._last: tuple[float, dict[str, int]] | None = None
        self._recent: deque[tuple[str, Happened]] = deque(maxlen=_RECENT)
        self._open = ExitStack()
        self._lock = threading.Lock()  # of the connection
        self._connect()
        self._thread = threading.Thread(target=self._read, name="tideline-figures", daemon=True)
        self._thread.start()

    def __enter__(self) -> Figures:
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        with self._lock:
            self._open.close()
        self._thread.join()

    def _connect(self) -> None:
        with self._lock:
            self._open.close()  # the connection before
            if not self._closing.is_set():
                self._socket = self._open.enter_context(
                    connect(self._address, max_size=None, compression=None, proxy=None)
                )

    def _read(self) -> None:
        while not self._closing.is_set():
            with contextlib.suppress(WebSocketException, OSError):
                for text in self._socket:
                    self.take(msgspec.json.decode(text, type=_Message))
            if self._closing.wait(_AGAIN_S):
                return  # the last figures stay
            with contextlib.suppress(WebSocketException, OSError):
                self._connect()
                self._before = {name: self._counts[name] for name in _RATES}
                self._last = None

    def take(self, message: _Message) -> None:
        """A message of the feed; a beat has no counts."""
        if message.counts is None:
            return
        counted = {name: message.counts[name] + self._before[name] for name in _RATES}
        self._counts = counts = {**message.counts, **counted}
        self._latency = message.latency_ms or self._latency
        for event in message.events[-_RECENT:]:
            self._recent.append((event.id, Happened(event.at[11:19], _decoded(event.body))))
        known = dict(self._recent)
        for answer in message.answers:
            if answer.kind == "live" and answer.event in known:
                known[answer.event].told += 1
        now = datetime.fromisoformat(message.at).timestamp()
        if self._last is None:
            self._last = now, counts
        elif now - self._last[0] >= 1:
            before, had = self._last
            self._rates = {name: (counts[name] - had[name]) / (now - before) for name in _RATES}
            self._last = now, counts

    def recent(self) -> list[Happened]:
        """The last events, the newest first."""
        return [happened for _, happened in reversed(list(self._recent))]

    def count(self, name: str) -> int:
        """How many events, subscriptions or answers there have been."""
        return self._counts[name]

    def facts(self) -> dict[str, str]:
        """Name and text of each figure, in the page's order."""
        rates = self._rates or {}
        return {
            **{f"{name}/s": _short(rates.get(name)) for name in _RATES},
            "latency p50 / p99": self.latency(),
            "valid events": f"{self._counts['live_events']:,}",
            "open subscriptions": f"{self._counts['live_subscriptions']:,}",
        }

    def latency(self) -> str:
        """From stored to a socket, of the last second in which anybody was told."""
        if self._latency is None:
            return "-"
        return f"{self._latency['p50']:.1f} / {self._latency['p99']:.1f} ms"


def _decoded(body: msgspec.Raw) -> Any:
    """A body as values, or as its text where that is no JSON to us.

    >>> _decoded(msgspec.Raw(b'{"kind": "fire"}')), _decoded(msgspec.Raw(b"1e999"))
    ({'kind': 'fire'}, '1e999')
    """
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return bytes(body).decode(errors="replace")


def _short(value: float | None) -> str:
    """As the page writes a rate.

    >>> _short(4.93), _short(1016.7), _short(None)
    ('4.9', '1,017', '-')
    """
    if value is None:
        return "-"
    return f"{value:.1f}" if value < 10 else f"{value:,.0f}"
