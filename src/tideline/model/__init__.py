"""The values users hold: events, what verbs return, facts about channels and collections.

    channels.py      events, subscriptions, answers
    collections.py   changes, outcomes of writes, explanations, advice
    documents.py     documents that are decoded when they are looked at
    live.py          changes of a live query
    windows.py       stream windows; `Report` of a whole database

Times inside are integer microseconds (`at_us`); the properties give datetimes.
"""

from __future__ import annotations

from tideline.model.channels import (
    Applied,
    ChannelStats,
    Event,
    Subscriber,
    SubscriptionInfo,
    Told,
)
from tideline.model.collections import (
    Advice,
    Change,
    CollectionStats,
    ComponentsRead,
    Considered,
    Explanation,
    IndexStats,
    Nearest,
    Stored,
    Updated,
    Versioned,
)
from tideline.model.documents import Documents
from tideline.model.live import LiveChange, WatchPlan
from tideline.model.windows import Appended, Pane, Report, WindowStats

__all__ = [
    "Advice", "Appended", "Applied", "Change", "ChannelStats", "CollectionStats", "ComponentsRead",
    "Considered", "Documents", "Event", "Explanation", "IndexStats", "LiveChange", "Nearest",
    "Pane", "Report", "Stored", "Subscriber", "SubscriptionInfo", "Told",
    "Updated", "Versioned", "WatchPlan", "WindowStats",
]  # fmt: skip
