"""What the state machine draws from, and how it compares.

Few names, places and times, so that ids repeat, windows touch and matches are plentiful.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st
from model import Event, Subscription

from tideline.clock import from_us
from tideline.errors import TidelineError

PLACE = st.integers(0, 14)  # taken modulo the number of the world's places
USER = st.sampled_from(["u", "u", "v"])
BODY = st.sampled_from([{"n": 1}, {"n": 2}, {"n": 3, "kind": "x"}, {"kind": "y"}])
WHERE = st.sampled_from(
    [
        None,
        None,
        None,
        None,
        {"n": 2},
        {"n": {"$gte": 2}},
        {"n": {"$lt": 3, "$gt": 0}},
        {"kind": {"$ne": "x"}},
    ]
)
AT = st.sampled_from([-6, -2, 0, 0, 0, 1, 4])
TTL = st.sampled_from([None, 100, 12, 3, 1])
SINCE = st.sampled_from([-30, -30, -5, -1, 0, 2])
SPAN = st.sampled_from([None, 60, 35, 4, 1])
EVENT_ID = st.sampled_from([None, None, None, None, "p0", "p1"])
SUB_ID = st.sampled_from([None, None, None, None, "q0", "q1"])
BAD = st.sampled_from(
    [
        {"op": "explode"},
        {"op": None},
        {"at": None},
        {"place": None, "lon": None},
        {"until": from_us(0)},
        {"body": "{", "where": "{"},
        {"id": ""},
    ]
)
ROW = st.fixed_dictionaries(
    {
        "op": st.sampled_from(["publish", "publish", "subscribe", "subscribe", "cancel"]),
        "place": PLACE,
        "user": USER,
        "at": AT,
        "since": SINCE,
        "span": SPAN,
        "body": BODY,
        "where": WHERE,
        "unseen": st.booleans(),
        "event_id": EVENT_ID,
        "sub_id": SUB_ID,
        "bad": st.one_of(st.none(), st.none(), st.none(), BAD),
    }
)


@dataclass
class Handle:
    """A live subscription object, what it should give next, and where it has got to."""

    real: Any
    sub: Subscription
    pending: list[Event] = field(default_factory=list)
    token: str | None = None
    arrival: int = 0

    def received(self, got: list[Any], expected: list[Event]) -> None:
        assert shown(got) == [facts(e) for e in expected]
        if expected:
            self.token, self.arrival = got[-1].token, expected[-1].arrival


def facts(e: Event) -> tuple[Any, ...]:
    return (e.id, e.place, from_us(e.at), from_us(e.until), e.body)


def shown(events: list[Any]) -> list[tuple[Any, ...]]:
    return [(e.id, e.place, e.at, e.until, e.body) for e in events]


def attempt(call: Callable[[], Any]) -> tuple[Any, type[TidelineError] | None]:
    """The result, or the kind of error it was refused with."""
    try:
        return call(), None
    except TidelineError as error:
        return None, type(error)
