"""Arguments of the verbs, checked: bad input never reaches the store.

Each function returns the value as the store takes it, or raises `InvalidRequest` naming
the argument and what is allowed. Pure functions; safe from any thread.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from tideline.channel.bodies import body_json
from tideline.clock import EARLIEST, FOREVER, LATEST, SECOND, Seconds, from_us, span_us, to_us
from tideline.errors import Conflict, InvalidRequest

__all__ = [
    "AHEAD_US",
    "BODY_LIMIT_BYTES",
    "ID_LIMIT_BYTES",
    "OUT_OF_TIME",
    "check_flag",
    "check_limit",
    "check_same",
    "check_text",
    "check_time",
    "encode_body",
    "read_cursor",
    "same_json",
    "same_window",
    "shown",
    "too_large",
    "wait_us",
    "window",
]

BODY_LIMIT_BYTES = 128 << 10
ID_LIMIT_BYTES = 256
OUT_OF_TIME = "must lie in the years 1 to 9891"
AHEAD_US = 5 * SECOND  # how far clocks of several writers may be apart without anybody noticing


def encode_body(body: Any) -> bytes:
    """A body as JSON text, within the limit."""
    text = body_json(body)
    if len(text) > BODY_LIMIT_BYTES:
        raise too_large(text)
    return text


def too_large(text: bytes) -> InvalidRequest:
    """What to raise for a body over the limit."""
    return InvalidRequest("body is too large", size_bytes=len(text), limit=BODY_LIMIT_BYTES)


def same_json(one: bytes, other: bytes) -> bool:
    """Whether two texts say the same, in whatever spelling: 1.0 is 1, but true is not.

    >>> same_json(b'{"a": 1}', b'{"a":1.0}'), same_json(b'{"a": 1}', b'{"a": true}')
    (True, False)
    """
    if one == other or not (one and other):
        return one == other
    return _same(msgspec.json.decode(one), msgspec.json.decode(other))


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def check_same(channel: Any, space: Any, layout: str | None) -> None:
    """`Conflict` when a channel that is there has another space or layout than what was given."""
    for what, given in (("space", space), ("layout", layout)):
        if given is not None and given != (stored := getattr(channel, what)):
            raise Conflict(
                f"the channel has another {what}", name=channel.name, stored=stored, given=given
            )


def check_limit(limit: Any, least: int = 0) -> None:
    """How many are wanted, `None` for all."""
    if limit is None:
        return
    if isinstance(limit, bool) or not isinstance(limit, int):
        raise InvalidRequest("limit must be a whole number", limit=limit)
    if limit < least:
        raise InvalidRequest(f"limit must not be below {least}", limit=limit)


def read_cursor(after: Any) -> int:
    """The seq that a cursor names; -1 for the beginning."""
    if after is None:
        return -1
    if not (isinstance(after, str) and len(after) == 18 and after.isascii() and after.isdigit()):
        raise InvalidRequest("after must be the cursor of a subscription", after=after)
    return int(after)


def check_text(value: Any, name: str) -> bytes:
    """An id or a user as bytes."""
    if not isinstance(value, str):
        raise InvalidRequest(f"{name} must be text", **{name: value})
    try:
        text = value.encode()
    except UnicodeEncodeError:
        raise InvalidRequest(f"{name} is not valid text", **{name: value}) from None
    if not 0 < len(text) <= ID_LIMIT_BYTES:
        raise InvalidRequest(f"{name} must be 1 to {ID_LIMIT_BYTES} bytes", **{name: value})
    return text


def check_flag(value: Any, name: str) -> bool:
    """A yes or no."""
    if not isinstance(value, bool):
        raise InvalidRequest(f"{name} must be True or False", **{name: value})
    return value


def wait_us(timeout_s: Seconds | None) -> int:
    """How long to wait at most; None is not at all."""
    if timeout_s is None:
        return 0
    span = span_us(timeout_s, "timeout_s")
    if span < 0:
        raise InvalidRequest("timeout_s must not be negative", timeout_s=timeout_s)
    return span


def check_time(value: int, name: str) -> int:
    """A time that datetimes can name."""
    if not EARLIEST <= value < LATEST:
        raise InvalidRequest(f"{name} {OUT_OF_TIME}", **{name: shown(value) or value})
    return value


def window(
    now: int, since_s: Seconds | None, since: datetime | None, until_s: Seconds | None,
    until: datetime | None, *, earliest: bool = False,
) -> tuple[int, int]:  # fmt: skip
    """The window [since, until) in microseconds."""
    if since_s is not None and since is not None:
        raise InvalidRequest("give since_s or since, not both", since_s=since_s, since=since)
    if until_s is not None and until is not None:
        raise InvalidRequest("give until_s or until, not both", until_s=until_s, until=until)
    if since is not None:
        since_us = to_us(since, "since")
    elif since_s is not None:
        back_us = span_us(since_s, "since_s")
        if back_us > 0:
            raise InvalidRequest(
                "since_s is positive: it lies in the future (did you mean "
                f"{-back_us / SECOND:g}?). A window that begins later is given by since",
                since_s=since_s,
            )
        since_us = now + back_us
    else:
        since_us = -FOREVER if earliest else now
    if until is not None:
        until_us = to_us(until, "until")
    elif until_s is not None:
        until_us = now + span_us(until_s, "until_s")
    else:
        until_us = FOREVER
    if until_us <= since_us:
        raise InvalidRequest(
            "the window must end after it starts", since=shown(since_us), until=shown(until_us)
        )
    return since_us, until_us


def shown(time_us: int) -> str | None:
    """A time as a message shows it."""
    moment = from_us(time_us)
    return None if moment is None else moment.isoformat()


def same_window(
    first: int, limit: int, made: int | None, since_s: Seconds | None, since: datetime | None,
    until_s: Seconds | None, until: datetime | None,
) -> bool:  # fmt: skip
    """Whether a stored window is the one asked for, now or a while ago.

    What was relative then was so to the call that `made` it, or to a moment before: batches of
    others may have brought a later time than the clock's. None when that moment is not known: then
    only the window's length can be compared.

    >>> same_window(40 * SECOND, 110 * SECOND, 100 * SECOND, -60, None, 10, None)
    True
    >>> same_window(40 * SECOND, 110 * SECOND, 100 * SECOND, -50, None, 20, None)
    False
    """
    if until is not None and limit != to_us(until, "until"):
        return False
    if since is not None and first != to_us(since, "since"):
        return False
    if until_s is None and until is None and limit != FOREVER:
        return False
    calls = []
    if since is None:
        calls.append(first - (0 if since_s is None else span_us(since_s, "since_s")))
    if until_s is not None:
        calls.append(limit - span_us(until_s, "until_s"))
    if len(set(calls)) > 1:
        return False
    return not calls or made is None or 0 <= made - calls[0] <= AHEAD_US
