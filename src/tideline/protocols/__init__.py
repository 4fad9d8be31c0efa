"""What every way in has: one protocol a kind of object, and the types of what it takes.

    embedded     tideline.open      Database         Channel         Collection   Subscription
    a server     tideline.connect   Remote           RemoteChannel   ...          satisfy the same

Code that takes one of these takes both:

>>> from tideline import protocols
>>> def alarm(db: protocols.Database, road: str) -> int:
...     told = db.channel("roads").publish(road, {"kind": "accident"}, ttl_s=600)
...     return len(told.subscriptions)

    given.py         what verbs are handed: places, conditions, documents
    channels.py      channels and subscriptions
    collections.py   collections, their live queries and changes
    windows.py       stream windows
    database.py      what holds them

The twins for asyncio are in aprotocols.py. Protocols only say what is there; what each parameter
means is told here once, for all.
"""

from __future__ import annotations

from tideline.protocols.channels import Channel, Subscription
from tideline.protocols.collections import Build, Changes, Collection, Live
from tideline.protocols.database import Database
from tideline.protocols.given import (
    Body,
    Document,
    Durability,
    Fields,
    Given,
    Indexes,
    Key,
    Names,
    Place,
    Sort,
    Where,
)
from tideline.protocols.windows import Panes, Window

__all__ = [
    "Body", "Build", "Changes", "Channel", "Collection", "Database", "Document", "Durability",
    "Fields", "Given", "Indexes", "Key", "Live", "Names", "Panes", "Place", "Sort", "Subscription",
    "Where", "Window",
]  # fmt: skip
