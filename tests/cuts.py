"""Two users who ask the same questions: one is never cut, the other all the time.

A story is a list of steps: events now, before and in the future; subscriptions; ends that move;
cuts, and resumes after the token of the last event that was handled. The first user's handles
follow everything. Whenever the second user reads, they must have got exactly what the first did, in
the same order, but for what stopped being valid while they were away. `Reader` is how they read: a
handle, a WebSocket, an event stream.

Some stories seal after every write: then records, their marks and their ends lie in components,
each in another one, and nothing can be marked any more.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Protocol

from hypothesis import strategies as st

from tideline.clock import SECOND, from_us
from tideline.errors import NotFound
from tideline.testing import ManualClock

__all__ = ["HandleReader", "Reader", "World", "sealed_stories", "steps"]

Step = tuple[Any, ...]
_MOST_SUBSCRIPTIONS = 6
_WHICH = st.integers(0, _MOST_SUBSCRIPTIONS - 1)

_PUBLISH = st.tuples(
    st.just("publish"),
    st.sampled_from("aaab"),
    st.sampled_from([0, 25, 5, 12, -3, 40]),  # at
    st.sampled_from([200, 200, 30, 4]),  # ttl_s
    st.integers(1, 2),  # n of the body
)
_SUBSCRIBE = st.tuples(
    st.just("subscribe"),
    st.sampled_from("aab"),
    st.sampled_from([-30, -2, 0, 3]),  # since_s
    st.sampled_from([60, 20, 9]),  # until_s
    st.sampled_from([None, None, {"n": 1}]),
    st.booleans(),  # unseen
)
_PROLONG = st.tuples(st.just("prolong"), _WHICH, st.sampled_from([60, 30, 18, 10, 4]))
_CUT = st.tuples(st.just("cut"), _WHICH, st.integers(0, 3))
_RESUME = st.tuples(st.just("resume"), _WHICH)
_ADVANCE = st.tuples(st.just("advance"), st.sampled_from([0.5, 1, 3, 8]))
_CANCEL = st.tuples(st.just("cancel"), _WHICH)
_FILES = st.sampled_from([("reopen",), ("seal",)])
_OFTEN = [_PUBLISH, _PUBLISH, _PROLONG, _PROLONG, _CUT, _RESUME, _RESUME, _ADVANCE]
_SELDOM = [_SUBSCRIBE, _SUBSCRIBE, _CANCEL]
_BEGIN: list[Step] = [
    ("subscribe", "a", -30, 20, None, False),
    ("subscribe", "a", -30, 20, None, True),
    ("resume", 0),
    ("resume", 1),
]


def steps(*, reopens: bool) -> st.SearchStrategy[list[Step]]:
    """Stories; they begin with two subscriptions. `reopens`: of a store that is at hand.

    Such a store may seal after every write (`World.seal_always`).
    """
    often, seldom = st.one_of(*_OFTEN), st.one_of(*_SELDOM)
    begin = [_BEGIN]
    if reopens:
        seldom = st.one_of(*_SELDOM, _FILES)
        begin.append([("seal_always",), *_BEGIN])
    # Lists that Hypothesis may end at any step are short: mistakes need a story.
    scene = st.tuples(often, often, often, often, seldom)
    return st.builds(
        lambda first, scenes: [*first, *(step for scene in scenes for step in scene)],
        st.sampled_from(begin),
        st.lists(scene, min_size=6, max_size=16),
    )


def sealed_stories() -> st.SearchStrategy[list[Step]]:
    """Stories of one that was answered with an event, ends, and is outlived by the event.

    What is kept of it says that its user had that event, and nothing about what came after its
    end. Anything may happen in between.
    """
    between = st.lists(st.one_of(*_OFTEN, *_SELDOM, _FILES, _FILES), max_size=2)
    scenes: list[st.SearchStrategy[Step]] = [
        st.tuples(
            st.just("subscribe"), st.just("a"), st.just(-30), st.sampled_from([9, 4]),
            st.none(), st.booleans(),
        ),
        st.tuples(
            st.just("publish"), st.just("a"), st.just(0), st.sampled_from([200, 30]), st.just(1)
        ),
        st.just(("subscribe", "a", -30, 60, None, True)),
        st.one_of(
            st.just(("cancel", 0)),
            st.tuples(st.just("prolong"), st.just(0), st.sampled_from([60, 3])),
        ),
        st.just(("publish", "a", 0, 200, 1)),
        st.sampled_from([("advance", 3), ("advance", 8), ("advance", 16)]),
        st.just(("publish", "a", 0, 200, 1)),
        _FILES,
        st.just(("resume", 1)),
    ]  # fmt: skip
    whole = st.tuples(*(st.tuples(scene, between) for scene in scenes))
    return st.builds(
        lambda first, whole: [*first, *(s for scene, more in whole for s in (scene, *more))],
        st.sampled_from([[], [("seal_always",)]]),
        whole,
    )


class Reader(Protocol):
    """How the second user reads one subscription, until it is cut."""

    def read(self, count: int) -> list[tuple[str, str]]:
        """(id, token) of the next events; there are that many, and a reader who can says so."""
        ...

    def cut(self) -> None:
        """Gone, without a word."""
        ...


class HandleReader:
    """The handle that the library gives."""

    def __init__(self, channel: Any, id: str, after: str | None) -> None:
        self._handle = channel.resume(id, after)
        self._rest = list(self._handle.past)

    def read(self, count: int) -> list[tuple[str, str]]:
        self._rest += self._handle.take()
        assert len(self._rest) == count
        found, self._rest = self._rest, []
        return [(event.id, event.token) for event in found]

    def cut(self) -> None:
        del self._handle


@dataclass
class Twin:
    """One question of both users."""

    number: int
    handle: Any = None
    stream: list[Any] = field(default_factory=list)
    """What the first user got."""
    reader: Reader | None = None
    ahead: list[int] = field(default_factory=list)
    """Where in the stream the second user reads next, if all goes well."""
    token: str | None = None
    handled: int = 0
    """How much of the stream the second user is done with."""
    over: bool = False

    @property
    def ids(self) -> tuple[str, str]:
        return f"first{self.number}", f"second{self.number}"

    def follow(self, events: Any, kind: str) -> None:
        for event in events:
            if self.reader is not None:
                self.ahead.append(len(self.stream))
            self.stream.append(event)


class World:
    """A channel, and both users."""

    def __init__(
        self, channel: Any, clock: ManualClock, read: Callable[[Any, str, str | None], Reader],
        reopen: Callable[[], Any] | None = None,
    ) -> None:  # fmt: skip
        self.channel = channel
        self.clock = clock
        self._read = read
        self._reopen = reopen
        self.twins: list[Twin] = []
        self._events = 0
        self._sealing = False

    def run(self, story: list[Step]) -> None:
        """Go through a story, then let everybody read to the end."""
        for name, *arguments in story:
            getattr(self, name)(*arguments)
        for twin in self.twins:
            self.cut(twin.number, 1)
            self.resume(twin.number)
            self._take(twin)
            self.close(twin)

    # ---- the steps -----------------------------------------------------------------------

    def publish(self, place: str, at_s: float, ttl_s: float, n: int) -> None:
        self._events += 1
        now = from_us(self.clock.now())
        assert now is not None
        self.channel.publish(
            place, {"n": n}, id=f"e{self._events}", at=now + timedelta(seconds=at_s), ttl_s=ttl_s
        )
        self._written()

    def subscribe(
        self, place: str, since_s: float, until_s: float, where: Any, unseen: bool
    ) -> None:
        if len(self.twins) == _MOST_SUBSCRIPTIONS:
            return
        twin = Twin(len(self.twins))
        window: dict[str, Any] = {"until_s": until_s}
        if since_s > 0:
            window["since"] = from_us(self.clock.now() + since_s * SECOND)
        else:
            window["since_s"] = since_s
        first, second = (
            self.channel.subscribe(place, user=id[:5], id=id, where=where, unseen=unseen, **window)
            for id in twin.ids
        )
        twin.handle = first
        first.follow(twin.follow)
        del second  # nobody has read its past: resuming it without a token gives everything
        self.twins.append(twin)
        self._written()

    def prolong(self, which: int, until_s: float) -> None:
        if twin := self._alive(which):
            for id in twin.ids:
                # Not before a window's start: that is refused, and tested elsewhere.
                info = self.channel.subscription(id)
                if self.clock.now() + until_s * 1_000_000 > info.since_us:
                    self.channel.prolong(id, until_s=until_s)
            self._written()

    def cancel(self, which: int) -> None:
        if twin := self._alive(which):
            for id in twin.ids:
                self.channel.cancel(id)
            twin.over = True
            self._written()

    def cut(self, which: int, keep: int) -> None:
        """Read everything, handle the first few, and lose the rest with the connection."""
        twin = self._twin(which)
        if twin is None or twin.reader is None:
            return
        self._take(twin, keep)
        self.close(twin)

    def close(self, twin: Twin) -> None:
        if twin.reader is not None:
            twin.reader.cut()
            twin.reader = None
            twin.ahead = []

    def resume(self, which: int) -> None:
        twin = self._alive(which)
        if twin is None or twin.reader is not None:
            return
        now = self.clock.now()
        twin.reader = self._read(self.channel, twin.ids[1], twin.token)
        twin.ahead = [
            n for n in range(twin.handled, len(twin.stream)) if twin.stream[n].until_us > now
        ]

    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)

    def seal(self) -> None:
        self.channel.seal()

    def seal_always(self) -> None:
        self._sealing = True

    def reopen(self) -> None:
        assert self._reopen is not None
        for twin in self.twins:
            self.cut(twin.number, 1)
        self.channel = self._reopen()
        for twin in self.twins:
            if self._alive(twin.number):
                last = twin.stream[-1].token if twin.stream else None
                twin.handle = self.channel.resume(twin.ids[0], last)
                assert twin.handle.past == []
                twin.handle.follow(twin.follow)

    # ---- inside --------------------------------------------------------------------------

    def _written(self) -> None:
        if self._sealing:
            self.channel.seal()

    def _take(self, twin: Twin, keep: int | None = None) -> None:
        """What the second user reads is what the first has got; they handle `keep` of it."""
        if twin.reader is None:
            return
        got = twin.reader.read(len(twin.ahead))
        wanted = [twin.stream[n].id for n in twin.ahead]
        assert [id for id, _ in got] == wanted
        tokens = [token for _, token in got]
        assert tokens == sorted(set(tokens))
        assert not tokens or twin.token is None or tokens[0] > twin.token
        kept = len(got) if keep is None else min(keep, len(got))
        if kept:
            twin.token = tokens[kept - 1]
            twin.handled = twin.ahead[kept - 1] + 1
        twin.ahead = twin.ahead[kept:]

    def _twin(self, which: int) -> Twin | None:
        return self.twins[which] if which < len(self.twins) else None

    def _alive(self, which: int) -> Twin | None:
        twin = self._twin(which)
        if twin is None or twin.over:
            return None
        with contextlib.suppress(NotFound):
            self.channel.subscription(twin.ids[0])
            return twin
        twin.over = True
        return None
