"""Conditions of a channel's subscriptions in an index: an event is matched once with all of them.

    records -> numbers                      a kernel looks up their texts (kernels/standing/wheres)
    bodies -> candidates by number          the index over standing conditions (standing/)
    -> verdicts                             a lookup an answer; a predicate where no kernel knows

It is a cache: it may be thrown away at any time. A condition is filed when it has been looked for
`_SIGHTS` times, which is when asking its predicate has cost about as much as filing it does: so
places that events seldom reach do not fill it. Those with `$delta` and very long ones are never
filed. Of more than `_MOST`, those go that were not asked the longest.

Under the engine's lock. Whoever is interrupted in here throws the whole away.
"""

from __future__ import annotations

import secrets
from itertools import islice
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from tideline.index.texts import Texts
from tideline.kernels.standing import wheres
from tideline.standing import Standing
from tideline.where import Condition

__all__ = ["Filed"]

Words = NDArray[np.int64]

_SIGHTS = 16
_NEW = 256  # filed in one call: about 20 ms
_FILING = 64  # filing a condition takes as long as so many predicates
_MOST = 1 << 16
_MOST_BYTES = 32 << 20
_LONGEST = 2048  # bytes of a text
_SEEN = 1 << 16  # texts that are counted
_PAIRS = 1 << 20  # candidates at a time, at most
_NO, _YES, _OPEN = 0, 1, 2


class Filed:
    """Conditions that were asked often. Their numbers here count from 1; 0 is none."""

    def __init__(self) -> None:
        self._standing = Standing()
        self._seed = secrets.randbits(62)
        self._seen = np.zeros(_SEEN, np.int64)
        self._table = np.zeros(2 << 10, np.int64)
        self._costs = np.zeros((64, 3))
        self._used = np.zeros(64, np.int64)  # by number: the last call that asked it
        self._call = 0

    def __len__(self) -> int:
        return len(self._standing)

    @property
    def is_large(self) -> bool:
        """Whether it takes too much memory, and should be begun anew."""
        sizes = self._standing.stats()
        return sum(sizes.values()) - sizes["conditions"] > _MOST_BYTES

    def find(self, address: int, refs: Words) -> tuple[Words, Words]:
        """The numbers of the conditions of subscriptions; where none is, how often it was sought.

        `address` is the engine of subscriptions.
        """
        found = np.empty(len(refs), np.int64)
        texts, places, sizes = self._standing.texts
        wheres.find_wheres(
            address, refs, self._table, texts, places, sizes, self._seen, self._seed, found
        )
        self._call += 1
        numbers = np.maximum(found, 0)
        self._used[numbers] = self._call
        return numbers, np.maximum(-found, 0)

    def costs(self, numbers: Words) -> NDArray[np.float64]:
        """What conditions cost (where/cost.py), a row each; nothing for 0."""
        return self._costs[numbers]

    def verdicts(self, texts: list[bytes], numbers: Words, event_of: Words) -> NDArray[np.bool_]:
        """By answer: whether the event `event_of` of `texts` meets the condition; never for 0."""
        count = len(texts)
        order, ends = None, [0, len(numbers)]
        if count > 1:
            order = np.argsort(event_of, kind="stable")
            ends = np.searchsorted(event_of[order], np.arange(count + 1)).tolist()
        met = np.zeros(len(numbers), np.bool_)
        marks = np.zeros(len(self._used), np.uint8)
        step = max(1, _PAIRS // max(len(self), 1))
        for first in range(0, count, step):
            found = self._standing.candidates(Texts.of(texts[first : first + step]))
            cuts = np.searchsorted(found.rows, np.arange(min(step, count - first) + 1)).tolist()
            kinds = found.open.astype(np.uint8) + np.uint8(_YES)
            for row in range(len(cuts) - 1):
                event = first + row
                candidates = found.numbers[cuts[row] : cuts[row + 1]] + 1
                marks[candidates] = kinds[cuts[row] : cuts[row + 1]]
                own: Any = slice(None) if order is None else order[ends[event] : ends[event + 1]]
                verdicts = marks[numbers[own]]
                marks[candidates] = _NO
                met[own] = verdicts == _YES
                unsure = np.flatnonzero(verdicts == _OPEN)
                if len(unsure):
                    places = unsure if order is None else own[unsure]
                    met[places] = self._asked(texts[event], numbers[places])
        return met

    def _asked(self, text: bytes, numbers: Words) -> list[bool]:
        """What the predicates of conditions say of a body; each is asked once."""
        body = msgspec.json.decode(text)
        said: dict[int, bool] = {}
        for number in numbers.tolist():
            if number not in said:
                said[number] = self._standing.condition(number - 1).matches(body)
        return [said[number] for number in numbers.tolist()]

    # ---- filing ---------------------------------------------------------------------------

    def due(self, sights: Words, each: int) -> Words:
        """Which of the conditions that were sought so often are to be filed now.

        Filing them takes about as long at most as the `each` answers of every condition take
        now.
        """
        most = max(_NEW, len(sights) * each // _FILING)
        return np.flatnonzero(sights >= _SIGHTS)[:most]

    def file(self, conditions: list[tuple[bytes, Condition]]) -> None:
        """File conditions that were sought; the text is what their records have."""
        due = {
            text: condition
            for text, condition in conditions
            if not condition.deltas and len(text) <= _LONGEST and condition.text == text
        }
        room = self._room_for(len(due))
        if not room:
            return
        standing = self._standing
        numbers = np.array(standing.add_many(islice(due.values(), room)), np.int64)
        most = int(numbers.max()) + 2
        if most > len(self._used):
            more = 2 * most - len(self._used)
            self._used = np.concatenate([self._used, np.zeros(more, np.int64)])
            self._costs = np.concatenate([self._costs, np.zeros((more, 3))])
        self._used[numbers + 1] = self._call
        self._costs[numbers + 1] = [condition.cost for condition in islice(due.values(), room)]
        if 4 * len(standing) > len(self._table):
            self._make_table(2 * len(self._table))
        else:
            wheres.enter_wheres(self._table, *standing.texts, self._seed, numbers)

    def _room_for(self, count: int) -> int:
        """Make room for so many more; returns for how many there is."""
        room = _MOST - len(self)
        if room >= count:
            return count
        filed = np.flatnonzero(self._standing.texts[2] >= 0)
        used = self._used[filed + 1]
        idle = filed[used < self._call]
        idle = idle[np.argsort(self._used[idle + 1], kind="stable")[: max(count, _MOST // 16)]]
        for number in idle.tolist():
            self._standing.remove(number)
        self._make_table(len(self._table))
        return min(count, room + len(idle))

    def _make_table(self, words: int) -> None:
        self._table = np.zeros(words, np.int64)
        texts, places, sizes = self._standing.texts
        filed = np.flatnonzero(sizes >= 0)
        wheres.enter_wheres(self._table, texts, places, sizes, self._seed, filed)
