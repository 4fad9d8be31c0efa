"""What the server says of a live query, and what its user has been told of it.

    message -> ready (as it came) -> handed out: applied to `kept`, what the user has

1. `kept` is what the user has: the first result and every change that was handed out.
2. `ready` is what came after it, complete up to `arrived`: where a new connection goes on.
3. When more than `queue` changes wait, or the server sends the latest result in their place
   (`reset`), `_newer` is the latest result. Changes that arrive go into it, and the next that asks
   is told the difference to what it has. So what is kept here is bounded by the result itself.

No input or output: a thread drives it (watching.py), or an event loop (aclient/watching.py). Who
may touch it when, they say.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

from tideline.client.feeds import Again
from tideline.client.kept import Gap, Kept, KeyOf, differences
from tideline.errors import Closed, InvalidRequest, TidelineError, Unauthorized
from tideline.lsm.bell import Bell
from tideline.model import LiveChange

__all__ = ["Watched"]

_WHY = {
    "expired": "the watch expired", "cancelled": "the watch was cancelled",
    "dropped": "the collection was dropped",
}  # fmt: skip
_BEHIND = (
    "the watch was read too seldom, or was away for longer than changes are kept, and keeps no "
    "result (first=False): watch again. journal_s and journal_before of the collection keep them"
)


class Watched:
    """A live query, as far as it has arrived."""

    def __init__(
        self, key_of: KeyOf, ordered: bool, queue: int, *, keeps: bool = True, skip: int = 0
    ) -> None:
        """Without `keeps` there is no result, and changes come with whole documents. `skip` changes
        after the first result were handed out before: they are in the result."""
        self.kept = Kept(key_of, ordered, [], 0)
        self._keeps = keeps
        self._skip = skip
        self.arrived = 0
        """Up to this version everything has arrived."""
        self.ended = ""
        """Why nothing comes any more; empty while something may."""
        self.error: TidelineError | None = None
        self.was_reset = False
        """Whether the server could not tell each change, and told the latest result instead."""
        self.version = 0
        """The version of what was handed out: all of it, and `done` changes of the next one."""
        self.done = 0
        self._begun = False
        self._queue = queue
        self._ready: deque[list[Any]] = deque()
        self._told: deque[LiveChange] = deque()  # the difference to `_latest`, where there is one
        self._latest: Kept | None = None  # what is kept when `_told` has been handed out
        self._newer: Kept | None = None
        self._piece: list[Any] = []
        self._bells: set[Bell] = set()

    # ---- what arrives -------------------------------------------------------------------------

    def take_result(self, documents: list[Any], version: int, more: bool, reset: bool) -> bool:
        """A piece of a result; whether it was the last."""
        self._piece += documents
        if more:
            return False
        documents, self._piece = self._piece, []
        kept = self.kept
        found = Kept(kept.key_of, kept.ordered, documents, version)
        if not self._keeps and self._begun:  # what was missed cannot be told
            self.end("behind", Closed(_BEHIND))
        elif self._begun:
            found.take_over(kept)
            self._ready.clear()
            self._newer = found
            self.was_reset = True
        else:
            self.kept, self._begun, self.was_reset = found, True, reset
            self.version = version
            self._skip = 0 if reset else self._skip
        self.arrived = version
        self.ring()
        return True

    def take_changes(self, changes: list[list[Any]], version: int) -> None:
        """Changes, all that there are up to a version."""
        try:
            if self._newer is not None:
                _apply(self._newer, changes)
            else:
                self._ready.extend(changes)
                while self._skip and self._ready:
                    self._skip -= 1
                    self.next()
                if len(self._ready) > self._queue:
                    self._fall_behind()
        except Gap as error:
            raise Again(str(error)) from None
        self.arrived = max(self.arrived, version)
        self.ring()

    def take_version(self, version: int) -> None:
        """The server has nothing to tell up to this version."""
        self.arrived = max(self.arrived, version)

    def begin(self, version: int) -> None:
        """It stands, and no result follows: it is there already, or nobody asked for it."""
        if not self._begun:
            self.arrived = self.version = version
            self._begun = True

    def begin_again(self) -> None:
        """A new connection: what was half there is not."""
        self._piece = []

    def _fall_behind(self) -> None:
        if not self._keeps:
            # What is left of a version that was handed out in part stays as it is.
            open = self._ready[0][1] if self.done else None
            kept = [wire for wire in self._ready if wire[1] == open]
            rest = list(self._ready)[len(kept) :]
            self._ready = deque([*kept, *_net(rest, self.kept.key_of)])
            return
        newer = (self._latest or self.kept).copy()
        _apply(newer, self._ready)
        self._ready.clear()
        self._newer = newer

    def end(self, reason: str, error: TidelineError | None = None) -> None:
        """Nothing comes any more."""
        if not self.ended:
            self.ended, self.error = reason, error
            if reason == "cancelled":  # whoever did that wants no more
                self._ready.clear()
                self._told.clear()
                self._newer = self._latest = None
        self.ring()

    # ---- what is handed out -------------------------------------------------------------------

    @property
    def result(self) -> list[dict[str, Any]]:
        """The documents, with all changes that were handed out."""
        if not self._keeps:
            raise InvalidRequest("the watch keeps no result: it was made with first=False")
        return self.kept.documents

    @property
    def waits(self) -> bool:
        """Whether something is there to be handed out."""
        if self._told or self._ready:
            return True
        self._compare()
        return bool(self._told)

    def next(self) -> LiveChange | None:
        """The next change; what is kept has it then."""
        if not self._told:
            self._compare()
        if self._told:
            change = self._told[0]
            self.kept.apply(change)
            self._told.popleft()
            if self._told:
                self.done += 1
            else:
                assert self._latest is not None
                self._settle(self._latest)
            return change
        if self._ready:
            if self._keeps:
                change = self.kept.told(self._ready[0])
                self.kept.apply(change)
            else:
                change = self.kept.told_whole(self._ready[0])
            self._ready.popleft()
            if self._ready and self._ready[0][1] == change.version:
                self.done += 1
            else:
                self.version, self.done = change.version, 0
            return change
        self.version = max(self.version, self.arrived)
        return None

    def take(self, limit: int | None) -> list[LiveChange]:
        """What is there, at most so many."""
        found: list[LiveChange] = []
        while limit is None or len(found) < limit:
            change = self.next()
            if change is None:
                break
            found.append(change)
        return found

    def _compare(self) -> None:
        """Make the difference to the latest result, if there is one."""
        newer = self._newer
        if newer is not None and not self._told:
            self._newer = None
            newer.take_over(self.kept)
            told = deque(differences(self.kept, newer))
            if told:
                self._told, self._latest = told, newer
            else:
                self._settle(newer)

    def _settle(self, latest: Kept) -> None:
        self.kept.replace(latest)
        self._latest = None
        self.version, self.done = latest.version, 0

    def why(self) -> TidelineError | None:
        """What is raised to who asks for more; None when it has not ended."""
        if not self.ended or self.error is not None:
            return self.error
        if self.ended == "revoked":
            return Unauthorized("the token was revoked")
        return Closed(_WHY.get(self.ended, "the connection to the server was closed"))

    # ---- who waits ----------------------------------------------------------------------------

    @contextlib.contextmanager
    def hung(self, bell: Bell) -> Iterator[None]:
        """Have a bell rung when something arrives, or at the end."""
        self._bells.add(bell)
        try:
            yield
        finally:
            self._bells.discard(bell)

    def ring(self) -> None:
        """Wake whoever waits."""
        for bell in tuple(self._bells):
            bell.notify_all()


def _apply(kept: Kept, changes: Any) -> None:
    for wire in changes:
        kept.apply(kept.told(wire))


def _net(changes: Iterable[list[Any]], key_of: KeyOf) -> list[list[Any]]:
    """What changes with whole documents come to in the end, each key once."""
    first: dict[Any, Any] = {}
    last: dict[Any, Any] = {}
    version = 0
    for wire in changes:
        kind, version = wire[0], wire[1]
        key = key_of(wire[3]) if kind == "add" else wire[3]
        document = wire[3] if kind == "add" else wire[6] if kind == "change" else None
        first.setdefault(key, None if kind == "add" else wire[-1])
        last.pop(key, None)  # the newest comes last
        last[key] = document
    made: list[list[Any]] = []
    for key, document in last.items():
        before = first[key]
        if document is None:
            if before is not None:
                made.append(["remove", version, None, key, before])
        elif before is None:
            made.append(["add", version, None, document])
        else:
            made.append(["change", version, None, key, {}, [], document, before])
    return made
