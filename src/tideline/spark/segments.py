"""What `match` and `watch` keep of a stream between micro-batches, key by key of Spark's.

    head       one value a key: which segments there are, and who ran the key last
    segments   number -> bytes, in the order they were written, as a log would hold them

A key has a live part (a bucket of `match`, a cell or windows of `watch`), which its segments make
again. A micro-batch adds what it leaves behind. When what was added since the last compaction has
grown as large as what was left then, everything that still counts is written anew. So over its life
a row is written about twice at most, and the state is about twice what counts at most.

The live part stays in the memory of a Python worker (`Held`). Spark hands a key now to this worker,
now to that one, repeats tasks and kills workers, so memory is never trusted: each micro-batch
writes a new random *token* into the head, and a live part counts only if its token is in the head's
trail. Then it follows: it is told the segments written since. If not, it is made of all segments.
Either way it stands where the head stands, exactly.

    task repeated after its state was lost     token is not in the trail   -> made anew
    another worker ran the last micro-batches  token is in the trail       -> follows
    restart from a checkpoint                  nothing in memory           -> made anew

Runs in Spark's Python workers; imports no pyspark.
"""

from __future__ import annotations

import contextlib
import secrets
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec

from tideline.clock import FOREVER
from tideline.errors import Conflict, Corruption

if TYPE_CHECKING:
    from pyspark.sql.streaming.stateful_processor import MapState, ValueState

__all__ = ["Head", "Held", "Segments"]

FORMAT = 3
_TRAIL = 64  # micro-batches that a live part may be behind and still follow
_LEAST_BYTES = 1 << 20  # added since the last time: below this compacting is not worth it
_MOST_SEGMENTS = 256


class Head(msgspec.Struct):
    """What the state of a key begins with."""

    format: int
    fixed: str
    """What the checkpoint was made with and must stay."""
    lineage: bytes
    """Names this key in the memory of workers."""
    next: int = 0
    """The number of the next segment."""
    segments: list[tuple[int, int, int]] = []  # msgspec copies it
    """Number, when its last row ends, and bytes."""
    compacted: int = 0
    """Segments before this one were left by the last compaction."""
    trail: list[tuple[bytes, int]] = []
    """The tokens of the last micro-batches, and `next` as each left it."""

    @property
    def is_grown(self) -> bool:
        """Whether it is time to compact."""
        added = sum(size for number, _, size in self.segments if number >= self.compacted)
        before = sum(size for number, _, size in self.segments if number < self.compacted)
        return added >= max(before, _LEAST_BYTES) or len(self.segments) > _MOST_SEGMENTS

    def start_of(self, token: bytes) -> int | None:
        """The first segment that a live part with this token has missed; None: it is of no use."""
        return dict(self.trail).get(token)


H = TypeVar("H", bound=Head)
P = TypeVar("P")


class Segments(Generic[H]):
    """Spark's state of the key that it is at. `stays` says which settings a checkpoint needs."""

    most_bytes = 8 << 20
    """No value in the state store should be larger."""

    def __init__(
        self, heads: ValueState, segments: MapState, kind: type[H], fixed: str, stays: str
    ) -> None:
        self._heads, self._segments = heads, segments
        self._kind, self._fixed, self._stays = kind, fixed, stays

    def stored(self) -> H | None:
        """The head; None for a key that is new."""
        found = self._heads.get()
        if found is None:
            return None
        head = msgspec.msgpack.decode(found[0], type=self._kind)
        if (head.format, head.fixed) != (FORMAT, self._fixed):
            raise Conflict(
                f"the checkpoint was made with other settings: {self._stays}; start with a new "
                "checkpoint to change them", checkpoint=head.fixed, now=self._fixed,
            )  # fmt: skip
        return head

    def head(self) -> H:
        """The head, or that of a new key."""
        return self.stored() or self._kind(FORMAT, self._fixed, secrets.token_bytes(12))

    def save(self, head: H) -> None:
        """Write the head."""
        self._heads.update((msgspec.msgpack.encode(head),))

    def step(self, head: H) -> bytes:
        """Give the head the token of this micro-batch, for the live part."""
        token = secrets.token_bytes(12)
        head.trail.append((token, head.next))
        del head.trail[:-_TRAIL]
        return token

    def read(self, head: H, start: int = 0) -> Iterator[bytes]:
        """The segments from a number on."""
        for number, _, _ in head.segments:
            if number >= start:
                found = self._segments.getValue((number,))
                if found is None:
                    raise Corruption("a segment of the state is missing", file=f"segment {number}")
                yield found[0]

    def write(self, head: H, data: bytes, last: int = FOREVER) -> None:
        """Add a segment; `last` is when all of it has ended."""
        self._segments.updateValue((head.next,), (data,))
        head.segments.append((head.next, last, len(data)))
        head.next += 1

    def drop_ended(self, head: H, now: int) -> None:
        """Remove segments in which nothing counts any more, without reading them."""
        for number, last, _ in head.segments:
            if last <= now:
                self._segments.removeKey((number,))
        head.segments = [each for each in head.segments if each[1] > now]

    @contextlib.contextmanager
    def compacting(self, head: H) -> Iterator[None]:
        """What is written inside takes the place of all segments."""
        old, head.segments = head.segments, []
        yield
        head.compacted = head.next
        head.trail.clear()  # whoever is behind cannot follow
        for number, _, _ in old:
            self._segments.removeKey((number,))

    def clear(self) -> None:
        """Forget the key."""
        self._segments.clear()
        self._heads.clear()


class Held(Generic[P]):
    """Live parts in the memory of this worker, by lineage; the one used longest ago goes first."""

    def __init__(
        self, most: int, let_go: Callable[[P], None] = lambda part: None,
        is_crowded: Callable[[], bool] = lambda: False,
    ) -> None:  # fmt: skip
        self._most, self._let_go, self._is_crowded = most, let_go, is_crowded
        self._parts: OrderedDict[bytes, tuple[bytes, P]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._parts)

    def take(self, head: Head) -> tuple[P, int] | None:
        """The live part, and the first segment it has missed.

        It is held no longer: if the task fails, nobody uses it again.
        """
        token, part = self._parts.pop(head.lineage, (b"", None))
        if part is None:
            return None
        start = head.start_of(token)
        if start is None:
            self._let_go(part)
            return None
        return part, start

    def put(self, head: Head, token: bytes, part: P) -> None:
        """Hold a live part until the key's next micro-batch."""
        self._parts[head.lineage] = (token, part)
        while len(self._parts) > self._most or (len(self._parts) > 1 and self._is_crowded()):
            self._let_go(self._parts.popitem(last=False)[1][1])

    def drop(self, lineage: bytes) -> None:
        """Let go of a live part, if it is held."""
        _, part = self._parts.pop(lineage, (b"", None))
        if part is not None:
            self._let_go(part)

    def clear(self) -> None:
        """Let go of everything."""
        while self._parts:
            self.drop(next(iter(self._parts)))
