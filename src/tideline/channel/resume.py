"""`Channel.resume`: which answers of a stored subscription come after a token.

A subscription's answers have an order, and every answer a token that says where in it:

    token := seq of the event                        it was an answer when it arrived
           | seq of a record "." seq of the event    a prolonged window, or one that was moved to
                                                     another place, found it, with that record

Both are 18 digits, so tokens order as texts; no event has the seq of a record. Answers are
delivered in the order of their tokens, so what was missed is exactly what comes after the last one
that was handled, however often the window moved. What the rule cannot tell, lineage.py remembers.

Under the engine's lock.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from tideline.channel.codec import Row
from tideline.channel.core import Core
from tideline.channel.find import find_event, find_events
from tideline.clock import FOREVER
from tideline.errors import InvalidRequest
from tideline.kernels import layout as at
from tideline.model.channels import Event, LateEvent
from tideline.where import parse_text

__all__ = ["START", "After", "by_rule", "missed", "read_token", "token_text", "turn_of"]

After = tuple[int, int]
"""What a token names, as numbers: those of two answers order as the answers do."""
START: After = (-1, 0)
_TOKEN = re.compile(r"([0-9]{18})(?:\.([0-9]{18}))?")


def read_token(text: Any) -> After:
    """The numbers of a token; START for none.

    >>> read_token("000000000000000009"), read_token("000000000000000009.000000000000000007")
    ((9, 0), (9, 7))
    """
    if text is None:
        return START
    found = _TOKEN.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise InvalidRequest("after must be the token of an event", after=text)
    return int(found[1]), int(found[2] or 0)


def token_text(after: After) -> str:
    """The token of some numbers.

    >>> token_text(read_token("000000000000000009.000000000000000007"))
    '000000000000000009.000000000000000007'
    """
    return f"{after[0]:018d}.{after[1]:018d}" if after[1] else f"{after[0]:018d}"


def missed(core: Core, row: Row, now: int, after: After) -> Sequence[Event]:
    """The answers of a subscription after a token, in order, as far as they are still valid."""
    if after[0] >= core.engine.next_seq:
        # What comes next would have a lower token, and be missed by whoever resumes after this one.
        raise InvalidRequest(
            "the token is not of this channel: nothing here has come so far",
            channel=core.name, after=token_text(after),
        )  # fmt: skip
    found = by_rule(core, row, now, after[0], row.first)
    exceptions = core.engine.lineage.of(row.seq)
    if not exceptions:
        return found
    wanted = {}
    others: list[Event] = []
    for seq, (turn, until, id) in exceptions.items():
        if until <= now or _numbers(seq, turn) <= after:
            continue
        if not id:
            wanted[seq] = turn
            continue
        elsewhere = find_event(core, id.encode(), now)
        if elsewhere is not None and elsewhere.seq == seq:
            others.append(elsewhere if turn == seq else LateEvent.of(elsewhere, turn))
    if wanted:
        since = min(wanted) - 1
        for event in find_events(core, row.place, row.first, FOREVER, now, after=since):
            if event.seq in wanted:
                turn = wanted[event.seq]
                others.append(event if turn == event.seq else LateEvent.of(event, turn))
    plain = [event for event in found if event.seq not in exceptions]
    return sorted([*plain, *others], key=lambda event: event.token)


def turn_of(event: Event) -> int:
    """The seq with which an event became an answer."""
    return event.found if isinstance(event, LateEvent) else event.seq


def _numbers(event: int, turn: int) -> After:
    return (event, 0) if event == turn else (turn, event)


def by_rule(core: Core, row: Row, now: int, after: int, first: int) -> Sequence[Event]:
    """The answers the rule gives: those that arrived after `after` and happened from `first` on.

    What an unseen subscription was answered with is known; of any other it follows from its
    window, place and condition.
    """
    known_from = core.engine.marks_from
    marked: Sequence[Event] = []
    if row.flags & at.R_UNSEEN:
        marked = find_events(
            core, row.place, first, row.until, now, after=max(after, known_from - 1),
            flags=at.R_UNSEEN, root=row.root,
        )  # fmt: skip
        if row.root >= known_from:
            return marked
    condition = parse_text(row.text, delta=True)
    found = find_events(core, row.place, first, row.until, now, after=after, condition=condition)
    if not row.flags & at.R_UNSEEN:
        return found
    return [*(event for event in found if event.seq < known_from), *marked]
