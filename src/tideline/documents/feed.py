"""The engine's side of the change feed: who follows, how far, and what is kept for them.

    writer     log frame (with old versions, if somebody wants them) -> memory -> rings the bells
    follower   hangs up a bell -> reads the frames that are committed -> waits (follower.py)
    dataset    asks which log segments are kept: for `journal_s`, and for who follows

The log is the one source: a follower reads the frames that recovery would read, so it sees the
same after a restart, and nothing is copied or queued for it. A change is shown once it is in
memory and committed (`Log.committed`): whoever sees it and asks the collection finds it there.

What is kept: closed segments whose end is younger than `journal_s`, by the clock of the database;
and for whoever follows, the segments from its place on, up to `FOLLOWED_BYTES` of them beyond what
recovery needs. Somebody who is further behind is told so.

Old versions are in the frames while somebody follows with before=True, or always with the fact
`journal_before`; `old_from` is the seq from which on all frames have them.

In a cluster, frames of another machine may lack old versions that somebody here wants (aside.py).
And those who followed a machine that is gone come a while later: so the next one goes on writing
old versions, and every one keeps its log, for `FAILOVER_S`.

Facts: `journal_us`, `journal_before`, `old_from`, `log_ends`, `loaded`.

Threads: `followers` and `bells` are changed in single steps, and read as copies. What says so needs
the engine's lock, or `writing`. A follower that nobody holds any more goes by itself, at any
moment and in any thread: nothing is locked then.
"""

from __future__ import annotations

import contextlib
import threading
import time
import weakref
from bisect import bisect_right, insort
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from tideline.clock import FOREVER, SECOND, Clock
from tideline.documents.aside import Aside
from tideline.documents.parts import between
from tideline.documents.payload import HEAD_BYTES, first_seq, read_old
from tideline.documents.types import DELETE, Rows
from tideline.errors import InvalidRequest, TidelineError, Unavailable
from tideline.index.records import PART_BYTES
from tideline.index.texts import Texts
from tideline.lsm.bell import Bell
from tideline.lsm.nulllog import NullLog
from tideline.lsm.position import Position
from tideline.lsm.retention import Retention
from tideline.lsm.sharedlog import SharedLog, wait_for_others
from tideline.shelter import run_apart

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tideline.documents.engine import Engine
    from tideline.documents.follower import Follower

__all__ = ["DROPPED", "FOLLOWED_BYTES", "Feed"]

DROPPED = "the collection was dropped"

FOLLOWED_BYTES = 256 << 20
"""How much log is kept for followers, beyond what recovery needs."""
FAILOVER_S = 60.0
"""How long those are waited for who followed another machine of the cluster."""
_NOTE_EVERY = 512  # frames between two notes of a search
_LEAST_KEYS, _MOST_KEYS, _LOOKED_UP_BYTES = 16, 4096, 1 << 20


class Feed:
    """The followers of one engine."""

    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine = engine
        self.clock = clock
        self.log = engine.store.log
        facts = engine.facts
        self.journal_us = int(facts.get("journal_us", 0))
        self.journal_before = bool(facts.get("journal_before", False))
        self._retention = Retention(facts.get("log_ends", []), kept=engine.store.kept_log)
        self.wants_old = self.journal_before
        """Whether frames have old versions; changed under `writing` when it becomes true."""
        self.old_from: int | None = facts.get("old_from") if self.journal_before else None
        self.loaded = int(facts.get("loaded", 0))
        """The last seq of the last bulk load, which is in no log (loading.py)."""
        self.bells: set[Bell] = set()
        self._followers: dict[int, weakref.ref[Follower]] = {}
        self._old_until = 0.0  # others followed with old versions elsewhere, by the steady clock
        self._aside = Aside()
        self._searching = threading.Lock()  # for the notes
        self._notes: list[tuple[int, Position]] = []  # where frames with these first seqs begin
        if isinstance(self.log, NullLog):
            self.log.followers = self._followers

    # ---- who follows -------------------------------------------------------------------------

    def attach(self, follower: Follower, after: int | None, before: bool) -> None:
        """Let somebody follow from the change after `after` on; None: from now on."""
        self.reach(after)
        engine = self._engine
        log = self.log
        with engine.writing:
            engine.settle()
            with engine.lock:
                engine.require_open()
                newest = engine.next_seq - 1
                if after is not None and after > newest:
                    raise InvalidRequest(
                        "after is later than the newest change: it is of another collection, or "
                        "this one lost its end", after=after, newest=newest,
                    )  # fmt: skip
                follower.begin(log.end if after in (None, newest) else log.start, newest)
                self.join(follower)
                if before and not self.wants_old:
                    self.old_from, self.wants_old = engine.next_seq, True
        self.log.sync_all()  # what is said to be the newest stays
        if after is not None and after != newest:
            # From here on nothing that it needs goes: it stands at the begin of what there is.
            follower.begin(self._find(after), after)

    def reach(self, after: int | None) -> None:
        """Where another machine writes: wait a while for a change that was told there already."""
        wait_for_others(self.log, lambda: after is None or self.newest() >= after)

    def detach(self, follower: Follower) -> None:
        """Let it go."""
        self._gone(id(follower))

    def _gone(self, key: int) -> None:
        self._followers.pop(key, None)  # the next write looks what is still wanted

    def _attached(self) -> list[Follower]:
        found = [ref() for ref in list(self._followers.values())]
        return [one for one in found if one is not None]

    @contextlib.contextmanager
    def hung(self, bell: Bell) -> Iterator[None]:
        """Have a bell rung at every change, and at the end."""
        self.bells.add(bell)
        try:
            yield
        finally:
            self.bells.discard(bell)

    def ring(self) -> None:
        """Wake whoever waits."""
        for bell in tuple(self.bells):
            bell.notify_all()

    def join(self, follower: Follower) -> None:
        """Keep what somebody needs who stands where another follower stands."""
        key = id(follower)
        self._followers[key] = weakref.ref(follower, lambda _: self._gone(key))

    @property
    def dropped(self) -> bool:
        """Whether there is nothing to follow because the collection was dropped."""
        return self._engine.dataset.why_closed == DROPPED

    def require_open(self) -> None:
        """`Closed` when there is nothing to read any more."""
        self._engine.require_open()

    def limit(self) -> Position:
        """How far followers may read now; `Closed` when there is nothing to read any more."""
        engine = self._engine
        if engine.expiry.due < FOREVER:
            engine.expiry.sweep_now()  # who follows is told of it
        with engine.lock:
            limit = self.log.committed  # first: what it has is in memory afterwards
            engine.require_readable()
        return limit

    def close(self) -> None:
        """The engine was closed: nobody follows any more, and who waits is told."""
        self._followers.clear()
        self.ring()

    def leave_to_parent(self) -> None:
        """In a forked child: nobody follows here."""
        self._searching = threading.Lock()  # the old one may be locked for ever
        self.bells = set()
        for follower in self._attached():
            follower.leave_to_parent()
        self._followers.clear()

    # ---- old versions ------------------------------------------------------------------------

    def still_wants_old(self) -> bool:
        """Look whether old versions are still wanted (`writing` is held)."""
        self.wants_old = (
            self.journal_before or self._is_followed() or time.monotonic() < self._old_until
        )
        return self.wants_old

    def _is_followed(self) -> bool:
        """Whether somebody here wants old versions."""
        return True in [one.before for one in self._attached()]

    def follows(self, rows: Rows, seq: int, *, has_old: bool) -> None:
        """A frame of another machine is about to be stored (`writing` is held)."""
        if has_old:
            self._old_until = time.monotonic() + FAILOVER_S
        elif self._is_followed():
            has_old = self._set_aside(rows, seq)
        else:
            self._aside.clear()
        if not has_old:
            self.old_from, self.wants_old = None, self.journal_before
        elif self.old_from is None or not self.wants_old:
            self.old_from, self.wants_old = seq, True

    def _set_aside(self, rows: Rows, seq: int) -> bool:
        """Look up the old versions that a frame lacks; False where they are too much."""
        old = self._engine.expiry.told_view().get_many(rows.keys)
        _replace_repeated(rows, old)
        return self._aside.put(rows, seq, old)

    def old_of(self, payload: memoryview, seq: int) -> tuple[NDArray[np.bool_], Texts] | None:
        """The old versions of a frame, as far as they are known; from any thread."""
        found = read_old(payload)
        if found is None and (kept := self._aside.get(seq)) is not None:
            return read_old(kept)
        return found

    def with_old(self, rows: Rows) -> Iterator[tuple[Rows, list[bytes | None]]]:
        """Rows with the documents that they replace (`writing` is held).

        In parts of which the old versions fit a frame; each is written before the next is asked
        for. Of two rows with one key, the second replaces the first.
        """
        if rows.count == 1:
            yield rows, [self._engine.expiry.told_view().get(rows.keys[0])]
            return
        first, step = 0, _LEAST_KEYS
        while first < rows.count:
            old: list[bytes | None] = []
            size, limit = 0, first
            while limit < rows.count and size < PART_BYTES:
                asked = rows.keys.slice(limit, min(limit + step, rows.count))
                found = self._engine.expiry.told_view().get_many(asked)
                before = size
                for text in found:
                    old.append(text)
                    limit += 1
                    size += 0 if text is None else len(text)
                    if size >= PART_BYTES:
                        break
                small = size - before < _LOOKED_UP_BYTES
                step = min(2 * step, _MOST_KEYS) if small else max(step // 2, 1)
            part = between(rows, first, limit)
            _replace_repeated(part, old)
            yield part, old
            first = limit

    # ---- what is kept ------------------------------------------------------------------------

    def keep(self, span_us: int | None, before: bool | None) -> None:
        """Change `journal_us` and `journal_before`, where given, and save them."""
        span = self.journal_us if span_us is None else span_us
        always = self.journal_before if before is None else before
        if (span, always) != (self.journal_us, self.journal_before):
            change = {"journal": [span, always]}
            self._engine.store.decide(change, partial(self.keep_agreed, span, always))

    def keep_agreed(self, span: int, always: bool) -> None:
        """The same, without asking anybody."""
        if (span, always) != (self.journal_us, self.journal_before):
            run_apart(partial(self._keep, span, always))

    def _keep(self, span_us: int, before: bool) -> None:
        engine = self._engine
        with engine.writing:
            engine.settle()
            with engine.lock:
                engine.require_open()
                stood = self.journal_us, self.journal_before, self.wants_old, self.old_from
                self.journal_us, self.journal_before = span_us, before
                if before and not self.wants_old:
                    self.old_from, self.wants_old = engine.next_seq, True
        try:
            engine.dataset.commit()
        except BaseException:
            with engine.lock:
                self.journal_us, self.journal_before, self.wants_old, self.old_from = stood
            raise

    def kept_log(self, first: int) -> int:
        """The first log segment to keep, when recovery needs `first` (the lock is held)."""
        log = self.log
        kept = self._retention.first_kept(
            first=first, current=log.mark, now=self.clock.now(), span=self.journal_us
        )
        needed = min((one.position.mark for one in self._attached()), default=kept)
        if isinstance(log, SharedLog):  # who followed another machine may come here
            span = max(self.journal_us, round(FAILOVER_S * SECOND))
            recent = self._retention.first_kept(
                first=first, current=log.mark, now=self.clock.now(), span=span
            )
            needed = min(needed, recent)
        most = log.size_from(first) + FOLLOWED_BYTES
        while kept > max(needed, self._retention.kept) and log.size_from(kept - 1) <= most:
            kept -= 1
        return kept

    def facts(self, kept: int) -> dict[str, Any]:
        """What the manifest has to say, when segments before `kept` go (the lock is held)."""
        self._retention.let_go(kept)
        return {
            "loaded": self.loaded,
            "journal_us": self.journal_us,
            "journal_before": self.journal_before,
            "old_from": self.old_from if self.journal_before else None,
            "log_ends": self._retention.to_json(),
        }

    # ---- where a change is -------------------------------------------------------------------

    def newest(self) -> int:
        """The seq of the newest change."""
        engine = self._engine
        with engine.lock:
            engine.require_readable()
            return engine.next_seq - 1

    def earliest(self) -> int:
        """The least seq that somebody may follow after: all later changes are in the log."""
        while True:
            limit = self.limit()
            newest = self.newest()
            starts = self._starts()
            try:
                found = (self._first(*ends) for ends in pairwise([*starts, limit]))
                kept = next((seq - 1 for seq in found if seq is not None), newest)
                return max(kept, self.loaded)
            except Unavailable:
                if starts == self._starts():
                    raise  # else they went meanwhile: look again

    def _starts(self) -> list[Position]:
        """Where each segment of the log begins that will stay: some may be about to go."""
        kept = self._retention.kept  # first: later ones are a part of it
        return [at for at in self.log.starts if at.mark >= kept]

    def _find(self, after: int) -> Position:
        """Where the frame that has the change after `after` begins, or an earlier one does."""
        if after < self.loaded:
            raise self.lost(after)
        limit, earliest = self.limit(), self.log.start
        log = self.log
        try:
            with self._searching:
                for start, end in reversed(list(pairwise([*self._starts(), limit]))):
                    first = self._first(start, end)
                    if first is not None and first <= after + 1:
                        return self._search(start, limit, after + 1)
        except Unavailable:
            if earliest == log.start:
                raise  # else it went meanwhile
        raise self.lost(after)

    def _search(self, start: Position, limit: Position, seq: int) -> Position:
        """The last frame from `start` on that does not begin after `seq`; only heads are read."""
        self._notes = [note for note in self._notes if note[1] >= self.log.start]
        at = bisect_right(self._notes, seq, key=lambda note: note[0])
        if at and self._notes[at - 1][1] > start:
            start = self._notes[at - 1][1]
        found = start
        cursor = self.log.cursor(start)
        try:
            for count, (position, head) in enumerate(cursor.heads(limit, HEAD_BYTES), start=1):
                first = first_seq(head)
                if first > seq:
                    break
                found = position
                if count % _NOTE_EVERY == 0:
                    insort(self._notes, (first, position))
        finally:
            cursor.close()
        return found

    def _first(self, start: Position, limit: Position) -> int | None:
        """The seq of the first change in [start, limit); None when there is none."""
        cursor = self.log.cursor(start)
        try:
            found = next(cursor.heads(limit, HEAD_BYTES), None)
            return None if found is None else first_seq(found[1])
        finally:
            cursor.close()

    def lost(self, after: int) -> TidelineError:
        """What somebody is told who wants changes that are gone."""
        if after < self.loaded:
            return Unavailable(
                "a bulk load came after this seq, which is in no log: read the collection, then "
                "follow after the earliest", after=after, earliest=self.earliest(),
            )  # fmt: skip
        return Unavailable(
            "the changes after this seq are not kept any more; journal_s keeps more of them",
            after=after, earliest=self.earliest(),
        )  # fmt: skip

    def without_old(self, seq: int) -> TidelineError:
        """What somebody is told who wants old versions that were not kept."""
        values: dict[str, Any] = {"seq": seq}
        if self.wants_old and self.old_from is not None:
            values["kept_after"] = self.old_from - 1
        return Unavailable(
            "the old version of this change was not kept: journal_before=True keeps those of all "
            "changes from then on, and whoever follows with before=True those from then on",
            **values,
        )  # fmt: skip


def _replace_repeated(rows: Rows, old: list[bytes | None]) -> None:
    """Let rows that repeat a key have the earlier row as their old version."""
    keys = rows.keys.to_list()
    if len(set(keys)) == len(keys):
        return
    newest: dict[bytes, int] = {}
    for row, key in enumerate(keys):
        earlier = newest.get(key)
        if earlier is not None:
            old[row] = None if rows.ops[earlier] == DELETE else rows.docs[earlier]
        newest[key] = row
