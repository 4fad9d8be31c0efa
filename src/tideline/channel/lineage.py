"""What subscriptions whose windows were moved have behind them, so that resuming them is exact.

Of a subscription whose window never moved, one rule says which valid events it was answered with:
all that its window, place and condition let in; each became an answer when it arrived. `prolong`
makes exceptions to the rule, by events that happen in the future, and these are kept here:

    found later   it arrived with a time after the window's end, and a later end let it in:
                  it became an answer when the subscription got the record with that end
    kept          it became an answer when it arrived, and the window was then cut before its time
    passed over   a later end let it in, but its user had had it by then (unseen)

A place among the answers is a seq: of the event, or of the record that found it; that is what
tokens are made of (resume.py). An exception is forgotten with its event, a life with its window.

A life also has the earlier records of an unseen subscription: each new one counts as made later
than its user's others, so each speaks for the events of its own time.

    note in the log   [seq, before, until, [[event, place, until], ...]]   the exceptions it made
    in the manifest   [[seq, until, [before, ...], [[event, place, until], ...]], ...]

Notes are taken in twice when recovery begins before the manifest: what is known is left alone.

Under the engine's lock.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from tideline.channel.codec import Row

__all__ = ["PASSED_OVER", "Exceptions", "Life", "Lineage", "listed"]

PASSED_OVER = 0

Exceptions = dict[int, tuple[int, int]]
"""By seq of an event: its place among the answers, and when it stops being valid."""


class Life(NamedTuple):
    """What one subscription has behind it."""

    until: int
    before: list[int]
    """The seqs of its earlier records, if it is an unseen one."""
    exceptions: Exceptions


_NEW = Life(0, [], {})


class Lineage:
    """The lives of subscriptions, by the seq of the record each has now.

    >>> lineage = Lineage([])
    >>> lineage.note(9, 4, 100, {}); lineage.note(12, 9, 200, {7: (12, 500)})
    >>> lineage.of(12).before, lineage.of(12).exceptions, lineage.of(4).before
    ([4, 9], {7: (12, 500)}, [])
    >>> lineage.to_json(now=150)
    [[12, 200, [4, 9], [[7, 12, 500]]]]
    """

    def __init__(self, known: list[Any]) -> None:
        self._lives: dict[int, Life] = {
            seq: Life(until, before, _read(*rest)) for seq, until, before, *rest in known
        }

    def of(self, seq: int) -> Life:
        """The life of a subscription; an empty one if there is nothing to say."""
        return self._lives.get(seq, _NEW)

    def note(
        self, seq: int, before: int, until: int, made: Exceptions, records: list[int] | None = None
    ) -> None:
        """A subscription got a new record, and exceptions; `records` are its earlier ones."""
        life = self._lives.pop(before, _NEW)
        self._lives[seq] = Life(
            until,
            [*life.before, before] if records is None else records,
            {**life.exceptions, **made},
        )

    def forget(self, seq: int) -> None:
        """A subscription has ended."""
        self._lives.pop(seq, None)

    def read(self, row: Row) -> None:
        """Take in a note from the log."""
        seq, before, until, *made = msgspec.json.decode(row.text, type=list[Any])
        if seq in self._lives:
            self._lives.pop(before, None)
        else:
            self.note(seq, before, until, _read(*made))

    def to_json(self, now: int) -> list[Any]:
        """What `Lineage` takes; what has expired is forgotten."""
        self._lives = {
            seq: life._replace(exceptions=_valid(life.exceptions, now))
            for seq, life in self._lives.items()
            if life.until > now
        }
        return [
            [seq, life.until, life.before, listed(life.exceptions)]
            for seq, life in self._lives.items()
        ]


def listed(exceptions: Exceptions) -> list[list[int]]:
    """Exceptions as notes and the manifest have them."""
    return [[event, place, until] for event, (place, until) in exceptions.items()]


def _read(found: list[list[int]] | None = None) -> Exceptions:
    return {event: (place, until) for event, place, until in found or ()}


def _valid(exceptions: Exceptions, now: int) -> Exceptions:
    return {event: found for event, found in exceptions.items() if found[1] > now}
