"""What prolonged and moved subscriptions were answered with out of turn: resuming is exact.

Of a subscription whose window never moved, one rule says which valid events it was answered with,
and when: all that its window, place and condition let in, each when it arrived; if it is an unseen
one, those of them that it has marks of (kernels/told.py). `prolong` makes exceptions to the rule,
by events that happen in the future, and these are kept here:

    found later   it arrived with a time after the window's end, and a later end let it in:
                  it became an answer when the subscription got the record with that end
    kept          it became an answer when it arrived, and the window was then cut before its time

`move` makes them likewise: what the new place let in was found later, and what only the old place
had is kept. The rule speaks of one place, so these are noted with the ids of their events.

The turn of an answer is a seq: of the event, or of the record that found it; that is what tokens
are made of (resume.py). An exception is forgotten with its event, and all of them with the
subscription. Most subscriptions have none.

    in the log        [seq, seq before, until, [[event, turn, until, id?], ...]]   those it made
    in the manifest   [[seq, until, [[event, turn, until, id?], ...]], ...]

What the log says is taken in twice when recovery begins before the manifest: what is known is left
alone.

Under the engine's lock.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from tideline.channel.codec import Row

__all__ = ["Exceptions", "Lineage", "listed"]

Exceptions = dict[int, tuple[int, int, str]]
"""By seq of an event: its turn among the answers, when it stops being valid, and its id.

The id is "" for an event at the subscription's own place.
"""


class _Life(NamedTuple):
    until: int
    exceptions: Exceptions


class Lineage:
    """The exceptions of subscriptions, by the seq of the record each has now.

    >>> lineage = Lineage([])
    >>> lineage.note(9, 4, 100, {7: (9, 500, "")}); lineage.note(12, 9, 200, {})
    >>> lineage.of(12), lineage.of(9)
    ({7: (9, 500, '')}, {})
    >>> lineage.to_json(now=150)
    [[12, 200, [[7, 9, 500]]]]
    """

    def __init__(self, known: list[Any]) -> None:
        # Before format 5 the seqs of earlier records stood before the exceptions.
        self._lives = {seq: _Life(until, _read(rest[-1])) for seq, until, *rest in known}
        self._many = 1024  # lives that are not looked through for expired ones

    def of(self, seq: int) -> Exceptions:
        """The exceptions of a subscription; most have none."""
        life = self._lives.get(seq)
        return {} if life is None else life.exceptions

    def note(self, seq: int, before: int, until: int, made: Exceptions) -> None:
        """A subscription got a new record, and more exceptions. Noting it again changes nothing."""
        if seq not in self._lives:
            exceptions = {**self.of(before), **made}
            if exceptions:
                self._lives[seq] = _Life(until, exceptions)
        self._lives.pop(before, None)

    def forget(self, seq: int) -> None:
        """A subscription has ended."""
        self._lives.pop(seq, None)

    def read(self, row: Row) -> None:
        """Take in an annotation from the log."""
        seq, before, until, *made = msgspec.json.decode(row.text, type=list[Any])
        self.note(seq, before, until, _read(made[-1] if made else []))

    def let_go(self, now: int) -> None:
        """Forget what has expired, if there is much of it."""
        if len(self._lives) > self._many:
            self.to_json(now)
            self._many = max(1024, 2 * len(self._lives))

    def to_json(self, now: int) -> list[Any]:
        """What `Lineage` takes; what has expired is forgotten."""
        self._lives = {
            seq: _Life(life.until, valid)
            for seq, life in self._lives.items()
            if life.until > now and (valid := _valid(life.exceptions, now))
        }
        return [[seq, life.until, listed(life.exceptions)] for seq, life in self._lives.items()]


def listed(exceptions: Exceptions) -> list[list[int | str]]:
    """Exceptions as the log and the manifest have them."""
    return [
        [event, turn, until, id] if id else [event, turn, until]
        for event, (turn, until, id) in exceptions.items()
    ]


def _read(found: list[Any]) -> Exceptions:
    # Before format 5, a turn of 0 told what an unseen subscription had passed over.
    return {
        e[0]: (e[1], e[2], e[3] if len(e) > 3 else "")
        for e in found
        if isinstance(e, list) and e[1]
    }


def _valid(exceptions: Exceptions, now: int) -> Exceptions:
    return {event: found for event, found in exceptions.items() if found[1] > now}
