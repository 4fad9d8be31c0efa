"""Writes random stories: one seed, one story.

A story is a list of operations as plain dicts with absolute times, so it can be cut, printed and
run again. `Writer` looks at nothing but its own random numbers and what it has written so far;
what the operations come to is for the model and the store to say (channel_stories.py).

Few users, places and moments (half seconds), so that windows touch and questions meet.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from channel_model import FOREVER, SECOND, WHERES, WORLDS

__all__ = ["START", "Writer"]

Op = dict[str, Any]
START = 1_700_000_000 * SECOND
STEP = SECOND // 2
USERS = ["ann", "bob", "cem", "dan"]
WEIGHTS = {
    "clock": 14.0, "publish": 24.0, "subscribe": 18.0, "cancel": 4.0, "prolong": 8.0, "move": 6.0,
    "get": 2.0, "retract": 3.0,
    "resume": 5.0, "take": 6.0, "let_go": 1.0, "find": 4.0, "list": 1.5, "look": 1.0,
    "stats": 0.7, "apply": 5.0, "filler": 0.25, "seal": 0.35, "maintain": 0.3, "journal": 0.4,
    "journal_on": 0.15, "journal_off": 0.12, "check": 0.05, "reopen": 0.4,
}  # fmt: skip
_WRITES = {"publish", "subscribe", "cancel", "prolong", "move", "retract", "apply"}
_SLOW = {"filler", "seal", "maintain", "check", "reopen"}


class Writer:
    """The operations of one story."""

    def __init__(
        self, seed: int, space: str, memory: list[float], without: Sequence[str] = ()
    ) -> None:
        self.random = random.Random(seed)
        self.world = WORLDS[space]
        self.memory = memory
        self.now = START
        self.named = 0
        self.events: deque[Op] = deque(maxlen=40)
        self.subs: deque[Op] = deque(maxlen=25)
        self.batches = {"loader": 0, "other": 0}
        # Every story has moods of its own: some prolong all the time, some seal, some die often.
        draw = self.random.uniform
        self.weights = {name: w * math.exp(draw(-1.2, 1.2)) for name, w in WEIGHTS.items()}
        for name in _SLOW:
            self.weights[name] = min(self.weights[name], WEIGHTS[name] * 2.5)
        self.longest_event = self.longest = self.random.choice([20, 200, 3600])
        self.mood = self.random.choice(["plain", "plain", "pressure", "files"])
        if self.mood == "pressure":  # much that lives short, between questions and their answers
            self.weights["filler"] = 3.0
            self.weights["seal"] *= self.random.choice([0, 1])
            self.weights["reopen"] = 1.0
            self.longest, self.longest_event = 20, 3600
        elif self.mood == "files":
            self.weights["seal"], self.weights["reopen"] = 3.0, 2.0
        self.unseen = self.random.choice([0.2, 0.5, 0.8])
        self.replaces = self.random.choice([0.05, 0.2, 0.7])
        self.faults = self.random.choice([0.0, 0.005, 0.03])
        self.deaths = self.random.choice([0.0, 0.002, 0.01])
        for name in without:
            if name in self.weights:
                self.weights[name] = 0.0
        self.ahead = 0 if "ahead" in without else FOREVER
        if "faults" in without:
            self.faults = 0.0
        if "deaths" in without:
            self.deaths = 0.0

    def first_memory(self) -> float:
        return self.random.choice(self.memory)

    def story(self, count: int) -> Iterator[Op]:
        names, weights = list(self.weights), list(self.weights.values())
        for _ in range(count):
            name = self.random.choices(names, weights)[0]
            write: Callable[[], Op] = getattr(self, "_" + name)
            op = write()
            if name != "reopen":
                if name in _WRITES and self.random.random() < self.faults:
                    op["fault"] = [self.random.choice(["full", "short"])]
                elif self.random.random() < self.deaths * (20 if name in _SLOW else 1):
                    op["fault"] = self._death()
                    op["memory_mb"] = self.random.choice(self.memory)
            yield op

    # Small choices --------------------------------------------------------------------------

    def _span(self, least: float = 0.5, most: float | None = None) -> int:
        """A length of time, short ones as often as long ones."""
        most = self.longest if most is None else most
        seconds = least * (most / least) ** self.random.random()
        return max(round(seconds * SECOND / STEP), 1) * STEP

    def _name(self, prefix: str) -> str:
        self.named += 1
        return f"{prefix}{self.named}"

    def _where_at(self) -> int:
        return self.random.randrange(len(self.world.places) - (self.random.random() < 0.95))

    def _body(self) -> list[Any]:
        return [self.random.randrange(4), self.random.choice("xy"), 0]

    def _condition(self) -> int:
        return 0 if self.random.random() < 0.6 else self.random.randrange(len(WHERES))

    def _some_sub(self) -> Op:
        return self.random.choice(self.subs) if self.subs else {"id": "s0"}

    def _death(self) -> list[Any]:
        if self.random.random() < 0.3:
            return ["timer", int(10 ** self.random.uniform(1, 4))]
        how = self.random.choice(["before", "half", "after"])
        return ["die", self.random.choice([1, 1, 1, 2, 3, 5, 8, 13]), how]

    # Operations -----------------------------------------------------------------------------

    def _clock(self) -> Op:
        kind = self.random.random()
        if kind < 0.85:
            self.now += self._span(0.5, 3)
        else:
            self.now += self._span(1, 60 if kind < 0.99 else self.longest)
        return {"op": "clock", "to": self.now}

    def _event(self) -> Op:
        kind = self.random.random()
        at = self.now
        if kind > 0.9:
            at += self._span(0.5, 200)
        elif kind > 0.8:
            at -= self._span(0.5, 60)
        forever = self.random.random() < 0.005
        until = None if forever else at + self._span(most=self.longest_event)
        return {"id": self._name("e"), "place": self._where_at(), "body": self._body(),
                "at": at, "until": until}  # fmt: skip

    def _publish(self) -> Op:
        again = False
        if self.events and self.random.random() < 0.05:
            made = dict(self.random.choice(self.events))  # a retry, or other content
            if self.random.random() < 0.4:
                made |= self.random.choice(
                    [{"place": self._where_at()}, {"body": self._body()}, {"at": self.now}]
                )
        else:
            made = self._event()
            again = bool(self.events) and self.random.random() < self.replaces
            if again:
                made["id"] = self.random.choice(self.events)["id"]  # "truck 7 is here now"
            self.events.append(dict(made))
            if made["at"] == self.now and self.random.random() < 0.8:
                made["at"] = None
        relative = made["until"] is not None and self.random.random() < 0.5
        related = self.random.random() < 0.1
        op = {"op": "publish", **made, "related": related, "relative": relative}
        if again or self.random.random() < self.replaces:
            op["replace"] = True
        return op

    def _window(self) -> tuple[int, int | None]:
        kind = self.random.random()
        if kind < 0.3:
            since = self.now
        elif kind < 0.92:
            since = self.now - self._span()
        else:
            since = self.now + self._span(0.5, 30)
        kind = self.random.random()
        if kind < 0.03:
            return since, None
        if kind < 0.12 and since < self.now:  # of the past only
            return since, min(since + self._span(), self.now)
        return since, max(since, self.now) + self._span()

    def _question(self) -> Op:
        since, until = self._window()
        return {"id": self._name("s"), "user": self.random.choice(USERS),
                "place": self._where_at(), "since": since, "until": until,
                "where": self._condition(), "unseen": self.random.random() < self.unseen,
               }  # fmt: skip

    def _subscribe(self) -> Op:
        relative = self.random.random() < 0.5
        if self.subs and self.random.random() < 0.06:
            made = dict(self._some_sub())
            relative = False
            if self.random.random() < 0.4:
                made |= self.random.choice(
                    [{"place": self._where_at()}, {"user": "ann"}, {"unseen": not made["unseen"]}]
                )
        else:
            made = self._question()
            self.subs.append(dict(made))
            if made["since"] == self.now and self.random.random() < 0.8:
                made["since"] = None
        hold = self.random.random() < 0.7
        return {"op": "subscribe", **made, "relative": relative, "hold": hold}

    def _cancel(self) -> Op:
        return {"op": "cancel", "id": self._some_sub()["id"]}

    def _prolong(self) -> Op:
        made = self._some_sub()
        until = self.now + self._span()
        if self.random.random() < 0.1:
            until = self.now - self._span(0.5, 5)
        made["until"] = until  # so that a retry may be one of the window as it is now
        return {"op": "prolong", "id": made["id"], "until": until,
                "relative": self.random.random() < 0.5}  # fmt: skip

    def _move(self) -> Op:
        made = self._some_sub()
        made["place"] = self._where_at()
        return {"op": "move", "id": made["id"], "place": made["place"]}

    def _retract(self) -> Op:
        some = self.events and self.random.random() < 0.9
        return {"op": "retract", "id": self.random.choice(self.events)["id"] if some else "e0"}

    def _get(self) -> Op:
        some = self.events and self.random.random() < 0.9
        return {"op": "get", "id": self.random.choice(self.events)["id"] if some else "e0"}

    def _resume(self) -> Op:
        kind = self.random.random()
        after = None if kind < 0.3 else "ahead" if kind < 0.33 else round(self.random.random(), 3)
        hold = self.random.random() < 0.8
        return {"op": "resume", "id": self._some_sub()["id"], "after": after, "hold": hold}

    def _take(self) -> Op:
        return {"op": "take"}

    def _let_go(self) -> Op:
        return {"op": "let_go", "id": self._some_sub()["id"]}

    def _find(self) -> Op:
        since, until = self._window() if self.random.random() < 0.5 else (None, None)
        limit = self.random.choice([None, None, 1, 3])
        return {"op": "find", "place": self._where_at(), "since": since, "until": until,
                "where": self._condition(), "limit": limit}  # fmt: skip

    def _list(self) -> Op:
        return {"op": "list", "user": self.random.choice([None, *USERS]),
                "limit": self.random.choice([None, 1, 3])}  # fmt: skip

    def _look(self) -> Op:
        return {"op": "look", "id": self._some_sub()["id"]}

    def _stats(self) -> Op:
        return {"op": "stats"}

    def _apply(self) -> Op:
        rows = [self._row() for _ in range(self.random.randint(1, 9))]
        op: Op = {"op": "apply", "rows": rows}
        if self.random.random() < 0.15:
            writer = self.random.choice(list(self.batches))
            self.batches[writer] += self.random.choice([0, 1, 1, 1])
            op["once"] = [writer, self.batches[writer]]
        return op

    def _row(self) -> Op:
        at = self.now + int(self.random.choice([0, 0, 0, 0, -0.5, -5, -40, 0.5, 3]) * SECOND)
        at = min(at, self.now + self.ahead)
        kind = self.random.random()
        bad: Op | None = None
        spoil = self.random.random() < 0.08
        place = self.random.choice(self.world.in_tables[: -1 if kind < 0.97 else None])
        if kind < 0.5:
            row = {**self._event(), "op": "publish", "place": place}
            row["until"] = None if row["until"] is None else at + row["until"] - row["at"]
            row["at"] = at
            if self.random.random() < self.replaces / 4:
                row["replace"] = True
            if self.random.random() < 0.8:
                self.events.append({k: row[k] for k in ("id", "place", "body", "at", "until")})
            if spoil:
                bad = self.random.choice([{"body": "{"}, {"body": None}, {"id": ""}])
        elif kind < 0.9:
            row = {**self._question(), "op": "subscribe", "place": place, "at": at}
            if self.random.random() < 0.8:
                names = ("id", "user", "place", "since", "until", "where", "unseen")
                self.subs.append({k: row[k] for k in names})
            if row["since"] == at and self.random.random() < 0.5:
                row["since"] = None
            if spoil:
                bad = self.random.choice([{"user": None}, {"where": "{"}, {"id": ""}])
        else:
            row = {"op": "cancel", "id": self._some_sub()["id"], "at": at}
            if self.random.random() < 0.4:
                row = {**self._retract(), "at": at}
            if spoil:
                bad = {"id": None}
        if spoil and self.random.random() < 0.4:
            bad = self.random.choice([{"op": "shout"}, {"op": None}, {"at": None}])
        return {**row, "bad": bad} if bad else row

    def _filler(self) -> Op:
        """Large events, so that there is more than fits into little memory."""
        pad = self.random.choice([2_000, 8_000, 8_000, 60_000])
        count = self.random.randint(1, max(2, 4_000_000 // pad))
        place = self.world.in_tables[-1]
        most = 3 if self.mood == "pressure" else 60
        until = self.now + self._span(0.5, most)
        rows = [
            {"op": "publish", "id": self._name("f"), "place": place, "body": [0, "x", pad],
             "at": self.now - (count - n) * 100, "until": until + n % 5 * STEP}
            for n in range(count)
        ]  # fmt: skip
        return {"op": "apply", "rows": rows}

    def _seal(self) -> Op:
        return {"op": "seal"}

    def _maintain(self) -> Op:
        return {"op": "maintain"}

    def _check(self) -> Op:
        return {"op": "check"}

    def _journal(self) -> Op:
        return {"op": "journal"}

    def _journal_on(self) -> Op:
        return {"op": "journal_on", "keep_us": self.random.choice([30, 600, 86_400]) * SECOND}

    def _journal_off(self) -> Op:
        return {"op": "journal_off"}

    def _reopen(self) -> Op:
        how = self.random.choice(["close", "exit", "kill", "kill", "kill"])
        return {"op": "reopen", "how": how, "memory_mb": self.random.choice(self.memory)}
