"""Tideline: a database for live data. Ask about the past and the future with one question.

>>> import tideline
>>> with tideline.open(":memory:") as db:
...     roads = db.channel("roads")
...     told = roads.publish("I-87", {"kind": "accident"}, ttl_s=600)
...     sub = roads.subscribe("I-87", user="ann", since_s=-60, until_s=60)
...     [event.body["kind"] for event in sub.past]
['accident']
"""

from __future__ import annotations

import typing as _typing

from tideline.errors import (
    Closed,
    Conflict,
    Corruption,
    InvalidRequest,
    NotFound,
    TidelineError,
    Unauthorized,
    Unavailable,
)
from tideline.model import (
    Advice,
    Appended,
    Applied,
    Change,
    ChannelStats,
    CollectionStats,
    Documents,
    Event,
    Explanation,
    LiveChange,
    Nearest,
    Pane,
    Report,
    Stored,
    Subscriber,
    SubscriptionInfo,
    Told,
    Updated,
    Versioned,
    WatchPlan,
    WindowStats,
)
from tideline.space import Box, Circle, Flat, Grid, MultiPolygon, Polygon, QuadTree, Topics

if _typing.TYPE_CHECKING:
    from tideline.aclient import aconnect, aopen
    from tideline.channel import Channel, Subscription
    from tideline.client import connect
    from tideline.database import Database, open
    from tideline.documents import Changes
    from tideline.live import Collection, Live
    from tideline.stream import StreamWindow

__all__ = [
    "Advice", "Appended", "Applied", "Box", "Change", "Changes", "Channel", "ChannelStats",
    "Circle", "Closed", "Collection", "CollectionStats", "Conflict", "Corruption", "Database",
    "Documents", "Event", "Explanation", "Flat", "Grid", "InvalidRequest", "Live", "LiveChange",
    "MultiPolygon", "Nearest", "NotFound", "Pane", "Polygon", "QuadTree", "Report", "Stored",
    "StreamWindow", "Subscriber", "Subscription", "SubscriptionInfo", "TidelineError", "Told",
    "Topics", "Unauthorized", "Unavailable", "Updated", "Versioned", "WatchPlan", "WindowStats",
    "aconnect", "aopen", "connect", "open",
]  # fmt: skip

__version__ = "0.2.0"

# What needs the compiled kernels is loaded when it is first asked for.
_LATE = {
    "Changes": "tideline.documents",
    "Channel": "tideline.channel",
    "Collection": "tideline.live",
    "Database": "tideline.database",
    "Live": "tideline.live",
    "StreamWindow": "tideline.stream",
    "Subscription": "tideline.channel",
    "aconnect": "tideline.aclient",
    "aopen": "tideline.aclient",
    "connect": "tideline.client",
    "open": "tideline.database",
}


def __getattr__(name: str) -> _typing.Any:
    if name in _LATE:
        import importlib

        value = getattr(importlib.import_module(_LATE[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'tideline' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
