"""What the experiments with channels share: a store to drive, two ways to drive it, a tally.

    Operations --table--> Store.apply   overall: `Channel.apply`, 10,000 rows at a time
               --Rows---> Store.call    by verb: `publish` and `subscribe`, each timed alone

Time is the workload's: the clock of a store is moved by hand to the time of every operation.
A call is timed until its answers are there as objects, with Python's garbage collector held back
until the block is over. In layout `poll` the store also keeps what a subscriber would: when each of
its handles asks again. Polls fall between operations, with the clock at their own moment, and each
is a timed `take`.

Several stores are driven by turns, a block of a section each (`blocks`), so that they meet the same
machine; a ratio is taken inside a section, and the median of the sections is reported.

Answers are compared by a tally: how many there are, and a sum over their pairs of ids that does
not depend on the order. Tallies add up, so stores that answer at other moments can be compared
at the end.
"""

from __future__ import annotations

import gc
import heapq
import json
import math
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tideline.testing import ManualClock
from tideline.workload.shape import mix

__all__ = [
    "BATCH", "RATIOS", "SIZES", "Called", "Rows", "Size", "Store", "Tally", "blocks",
    "median_ratio", "padded", "pairs_of", "turns",
]  # fmt: skip

BATCH = 10_000
POLL_US = 1_000_000
RATIOS = {"3:1": (3, 1), "1:3": (1, 3)}
"""Subscriptions to events."""

Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Size:
    """How much is run: sections, and operations in each."""

    sections: int
    operations: int
    tree_operations: int
    """Of a section in a hierarchy, where fixed granularity makes many of each."""
    beyond_operations: int
    """Of a section when windows are larger than memory."""
    sealed_operations: int
    """Of a section in a hierarchy whose windows are sealed all the time."""
    read_operations: int
    """Of a section whose component reads are counted."""
    memory_mb: int = 32
    """What a database gets when its windows shall not fit, and how large the bodies are then."""
    body_bytes: int = 800


SIZES = {
    "tiny": Size(2, 1_000, 80, 2_000, 80, 1_500, memory_mb=8, body_bytes=8_000),
    "small": Size(3, 50_000, 4_000, 40_000, 1_500, 30_000),
    "full": Size(15, 1_000_000, 1_000_000, 1_000_000, 100_000, 200_000),
}


@dataclass
class Tally:
    """A set of (subscription, event) pairs, told apart from any other set that is likely."""

    count: int = 0
    total: int = 0

    @classmethod
    def of(cls, tallies: Sequence[Tally]) -> Tally:
        """All of them together."""
        total = sum(one.total for one in tallies) % (1 << 64)
        return cls(sum(one.count for one in tallies), total)

    def add(self, subscriptions: Numbers, events: Numbers) -> Tally:
        """Count these pairs too.

        >>> one = Tally().add(np.array([1, 2]), np.array([7, 8]))
        >>> one == Tally().add(np.array([2, 1]), np.array([8, 7]))
        True
        >>> one == Tally().add(np.array([1, 2]), np.array([8, 7]))
        False
        """
        mixed = mix((subscriptions << 32 | events).astype(np.uint64))
        self.count += len(mixed)
        self.total = (self.total + int(mixed.sum(dtype=np.uint64))) % (1 << 64)
        return self


@dataclass(frozen=True)
class Rows:
    """Operations as Python values, for single calls."""

    publish: list[bool]
    id: list[str]
    place: list[Any]
    user: list[str]
    at_us: list[int]
    body: list[Any]

    @classmethod
    def of(cls, table: pa.RecordBatch, places: Sequence[Any] | None = None) -> Rows:
        """The rows of a workload; `places` for those that are no text."""
        return cls(
            [op == "publish" for op in table["op"].to_pylist()],
            table["id"].to_pylist(),
            list(places) if places is not None else table["place"].to_pylist(),
            table["user"].to_pylist(),
            table["at"].cast(pa.int64()).to_pylist(),
            [None if text is None else json.loads(text) for text in table["body"].to_pylist()],
        )

    def __len__(self) -> int:
        return len(self.id)


@dataclass
class Called:
    """What a run of single calls took and found."""

    spent_ns: Numbers
    """Of each row, until its answers were there as objects."""
    returned_ns: Numbers
    """Of each row, until the call came back: its answers are found, but mostly still bytes."""
    publish: NDArray[np.bool_]
    subscriptions: Numbers
    events: Numbers
    polls: int = 0
    polls_ns: int = 0
    related: Tally = field(default_factory=Tally)

    @classmethod
    def of(cls, parts: Sequence[Called]) -> Called:
        """All parts as one."""
        names = ("spent_ns", "returned_ns", "publish", "subscriptions", "events")
        related = Tally.of([one.related for one in parts])
        return cls(
            *(np.concatenate([getattr(one, name) for one in parts]) for name in names),
            sum(one.polls for one in parts), sum(one.polls_ns for one in parts), related,
        )  # fmt: skip

    def mean_us(self, verb: str) -> float:
        """Microseconds of one `publish`, one `subscribe` with its polls, or one of `all`."""
        polls = 0 if verb == "publish" else self.polls_ns
        return (self._sum(self.spent_ns, verb) + polls) / 1000 / max(1, self._count(verb))

    def returned_us(self, verb: str) -> float:
        """The same until the call came back; no polls."""
        return self._sum(self.returned_ns, verb) / 1000 / max(1, self._count(verb))

    def _sum(self, spent_ns: Numbers, verb: str) -> int:
        return int(spent_ns[self._rows(verb)].sum())

    def _count(self, verb: str) -> int:
        return int(self._rows(verb).sum())

    def _rows(self, verb: str) -> NDArray[np.bool_]:
        if verb == "all":
            return np.ones(len(self.publish), bool)
        return self.publish if verb == "publish" else ~self.publish


class Store:
    """A database of one channel whose clock is moved by hand."""

    def __init__(
        self, folder: Path, layout: str, start_us: int, *, space: Any = None,
        memory_mb: int | None = None, seal_every: int | None = None,
    ) -> None:  # fmt: skip
        import tideline

        self.layout = layout
        self.clock = ManualClock(start_us / 1e6)
        options = {} if memory_mb is None else {"memory_mb": memory_mb}
        self.database = tideline.open(folder, clock=self.clock, **options)
        self.channel: Any = self.database.channel(
            "run", space=space, layout=layout, max_ahead_s=math.inf
        )
        self._due: list[tuple[int, int, Any]] = []  # of `poll`
        self._seal_every = seal_every  # operations, of single calls
        self._seal_at = seal_every or 0

    def close(self) -> None:
        """Let go of the files."""
        self.database.close()

    def move_to(self, at_us: int) -> None:
        """Set the clock; it never goes back."""
        self.clock.advance(max(0, at_us - self.clock.now()) / 1e6)

    # ---- batches ------------------------------------------------------------------------

    def apply(self, table: pa.RecordBatch) -> tuple[float, pa.Table]:
        """Run a table in batches: seconds inside `apply`, and the answers."""
        rows = pa.Table.from_batches([table])
        at = table["at"].cast(pa.int64()).to_numpy()
        spent_s = 0.0
        told = []
        for first in range(0, rows.num_rows, BATCH):
            part = rows.slice(first, BATCH)
            self.move_to(int(at[first]))
            with _undisturbed():
                begin = time.perf_counter()
                applied = self.channel.apply(part)
                spent_s += time.perf_counter() - begin
            if applied.rejected.num_rows:
                raise SystemExit(f"rejected: {applied.rejected.slice(0, 3).to_pylist()}")
            told.append(applied.answers)
        return spent_s, pa.concat_tables([one.select(["subscription", "event"]) for one in told])

    # ---- single calls ----------------------------------------------------------------------

    def call(self, rows: Rows, *, joined: bool = False) -> Called:
        """Run rows one by one. `joined`: events ask for related ones, subscriptions for unseen."""
        spent = np.zeros(len(rows), np.int64)
        subs: list[int] = []
        events: list[int] = []
        done = Called(spent, np.zeros_like(spent), np.array(rows.publish, bool), _NONE, _NONE)
        with _undisturbed():
            self._run(rows, joined, done, subs, events)
        done.subscriptions, done.events = np.array(subs, np.int64), np.array(events, np.int64)
        return done

    def _run(
        self, rows: Rows, joined: bool, done: Called, subs: list[int], events: list[int]
    ) -> None:
        clock, publish, subscribe = (
            time.perf_counter_ns,
            self.channel.publish,
            self.channel.subscribe,
        )
        spent, returned = done.spent_ns, done.returned_ns
        for k in range(len(rows)):
            at, name, place = rows.at_us[k], rows.id[k], rows.place[k]
            number = _number(name)
            if self._seal_every and number >= self._seal_at:
                self._seal_at += self._seal_every
                self.channel.seal()
            if self._due and self._due[0][0] <= at:
                self._poll(at, done, subs, events)
            self.move_to(at)
            if rows.publish[k]:
                body = rows.body[k]
                begin = clock()
                told = publish(place, body, id=name, ttl_s=20, related=joined)
                returned[k] = clock() - begin
                found = told.subscriptions
                spent[k] = clock() - begin
                for one in found:
                    subs.append(_number(one.id))
                    events.append(number)
                if joined and told.related:
                    earlier = np.array([_number(one.id) for one in told.related])
                    done.related.add(earlier, np.full(len(earlier), number))
            else:
                user = rows.user[k]
                begin = clock()
                handle = subscribe(
                    place, user=user, id=name, since_s=-10, until_s=10, unseen=joined
                )
                returned[k] = clock() - begin
                past = handle.past
                spent[k] = clock() - begin
                for event in past:
                    subs.append(number)
                    events.append(_number(event.id))
                if self.layout == "poll":
                    self.ask_later(at, handle)

    # ---- polls --------------------------------------------------------------------------

    def ask_later(self, now_us: int, handle: Any) -> None:
        """Note when a handle asks next, a second after `now_us`, unless it is over by then."""
        if now_us + POLL_US <= handle.until_us:
            heapq.heappush(self._due, (now_us + POLL_US, handle.seq, handle))

    def due(self, upto: int) -> Iterator[tuple[int, Any]]:
        """The handles that ask up to a time, each with its moment, in order; then their next."""
        while self._due and self._due[0][0] <= upto:
            at, _, handle = heapq.heappop(self._due)
            yield at, handle
            self.ask_later(at, handle)

    def finish(self) -> Called:
        """The polls that are left when the operations are over."""
        subs: list[int] = []
        events: list[int] = []
        done = Called(_NONE, _NONE, np.zeros(0, bool), _NONE, _NONE)
        self._poll(self.clock.now() + 11 * POLL_US, done, subs, events)
        done.subscriptions, done.events = np.array(subs, np.int64), np.array(events, np.int64)
        return done

    def _poll(self, upto: int, done: Called, subs: list[int], events: list[int]) -> None:
        """Have every handle ask that is due by then, each at its own moment."""
        clock = time.perf_counter_ns
        for at, handle in self.due(upto):
            self.move_to(at)
            begin = clock()
            found = handle.take()
            done.polls_ns += clock() - begin
            done.polls += 1
            number = _number(handle.id)
            for event in found:
                subs.append(number)
                events.append(_number(event.id))


_NONE = np.zeros(0, np.int64)


@contextmanager
def _undisturbed() -> Iterator[None]:
    """No garbage collection meanwhile: it would fall on whoever is running."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _number(name: str) -> int:
    """The operation an id belongs to: a copy of one is named `17.3`."""
    return int(name.partition(".")[0])


def pairs_of(answers: pa.Table) -> tuple[Numbers, Numbers]:
    """The ids of answers of `apply` as numbers, those of copies as of what they are copies of."""
    import pyarrow.compute as pc

    found = []
    for name in ("subscription", "event"):
        column = answers[name].combine_chunks()
        if isinstance(column, pa.ChunkedArray):
            column = pa.concat_arrays(column.chunks) if column.num_chunks else column
        text = column.cast(pa.string())
        if len(text) and pc.any(pc.match_substring(text, ".")).as_py():
            text = pc.replace_substring_regex(text, r"\..*", "")
        found.append(np.asarray(text.cast(pa.int64())))
    return found[0], found[1]


def padded(table: pa.RecordBatch, body_bytes: int | None) -> pa.RecordBatch:
    """The same operations, each event's body filled up with spaces inside its text."""
    import pyarrow.compute as pc

    if body_bytes is None:
        return table
    open_text = pc.utf8_rtrim(table["body"], characters='"}')
    body = pc.binary_join_element_wise(pc.utf8_rpad(open_text, body_bytes - 2), '"}', "")
    return table.set_column(table.schema.names.index("body"), "body", body)


def blocks(table: pa.RecordBatch, count: int = 5) -> list[pa.RecordBatch]:
    """A section in so many parts, each of whole batches of `apply` if it is large enough."""
    size = -(-table.num_rows // count)
    size = -(-size // BATCH) * BATCH if size > BATCH // 2 else size
    return [table.slice(first, size) for first in range(0, table.num_rows, size)]


def turns(names: Sequence[str], section: int) -> list[str]:
    """Another one begins in every section.

    >>> turns(["dual", "two", "poll"], 1)
    ['two', 'poll', 'dual']
    """
    first = section % len(names)
    return [*names[first:], *names[:first]]


def median_ratio(slow: Sequence[float], fast: Sequence[float]) -> float:
    """How many times `slow` is of `fast`, in the median section."""
    return statistics.median(a / b for a, b in zip(slow, fast, strict=True))
