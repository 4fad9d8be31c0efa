"""Words that tests of channels share: layouts, times, ids of events, who was told."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

Opener = Callable[..., Any]  # `open_channel` and `open_database` of conftest.py
LAYOUTS = ["dual", "two", "http", "async", "async-http"]  # what stores subscriptions, every way in
ASKING = [*LAYOUTS, "poll"]
START = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=1_000)  # what the clock says at first


def after(seconds: float) -> datetime:
    """A time so long after the test began."""
    return START + timedelta(seconds=seconds)


def ids(events: list[Any]) -> list[str]:
    """Which events these are."""
    return [event.id for event in events]


def told(answer: Any) -> list[str]:
    """Which subscriptions a publish answered."""
    return [subscriber.id for subscriber in answer.subscriptions]
