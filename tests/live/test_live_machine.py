"""What a live query tells is what `find` gives, at every version it tells of.

Handles of every kind and speed are made, read, resumed and cancelled between writes, deletions,
expiry, seals and restarts; a model replays the change log and answers each query anew.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from live_model import Asked, AskedGroups, History, Pushed, Reader, same
from profiles import few

import tideline
from tideline.errors import Closed
from tideline.live.hub import Joined
from tideline.live.item import Item
from tideline.testing import ManualClock

KEYS = st.sampled_from([1, 2, 3, 4, 5, 6, "x", "y"])
NUMBERS = st.sampled_from([0, 1, 2, 3, 1.0, 2.5, -1, 1e16, 0.1])
VALUES = NUMBERS | st.sampled_from([None, "b", "abc", True, [1, 2], [], ["abc", 3], {"c": 1}])
LINES = [{"type": "LineString", "coordinates": [[x, y], [3, 0]]} for x, y in ((0, 1), (0, 0))]
PLACES = st.sampled_from([[0, 0], [1, 0], [1, 1], [0, 1], LINES[0]])
FIELDS = {"a": VALUES, "n": NUMBERS, "m": NUMBERS, "s": st.sampled_from(["ab", "abc", "b"]),
          "p": PLACES,
          "d": st.fixed_dictionaries({}, optional={"e": VALUES})}  # fmt: skip
BODIES = st.fixed_dictionaries({}, optional=FIELDS)
WHERES: list[dict[str, Any]] = [
    {}, {"a": 1}, {"n": {"$gte": 1}}, {"n": {"$gt": 0, "$lt": 3}}, {"a": {"$in": [1, "b", None]}},
    {"a": {"$ne": 1}}, {"a": {"$exists": True}}, {"a": {"$nin": [1, 2]}}, {"s": {"$regex": "^ab"}},
    {"$or": [{"n": 1}, {"s": "b"}]}, {"$nor": [{"n": 1}, {"a": None}]}, {"a": {"$size": 2}},
    {"a": {"$elemMatch": {"$gt": 1}}}, {"n": {"$not": {"$gt": 1}}}, {"a": {"$all": [1, 2]}},
    {"d.e": {"$lte": 2}}, {"n": {"$mod": [2, 1]}}, {"id": 3}, {"id": {"$in": [1, "x"]}, "n": 1},
    {"a": {"$type": "string"}}, {"p": {"$near": [0, 0]}},
    {"p": {"$near": [0, 0], "$maxDistance": 120_000}, "n": {"$gte": 0}},
    {"s": {"$fuzzy": {"word": "abd", "distance": 1}}}, {"s": {"$contains": "bc"}},
    {"s": {"$jaccard": {"text": "abc", "grams": 2, "similarity": 0.5}}, "n": 1},
    {"p": {"$geoIntersects": {"$geometry": LINES[1]}}},
]  # fmt: skip
SORTS = [[("n", -1)], [("a", 1)], [("s", 1), ("n", -1)], [("id", 1)], [("id", -1)],
         [("d.e", -1), ("m", 1)]]  # fmt: skip
OPTIONS = st.fixed_dictionaries({}, optional={
    "sort": st.sampled_from(SORTS), "limit": st.sampled_from([1, 2, 3, 5]),
    "offset": st.sampled_from([1, 2, 7]),
})  # fmt: skip
GROUPS: list[dict[str, Any]] = [
    {"by": "s", "count": True, "sum": "n"},
    {"by": ["s", "a"], "count": True, "min": "a", "max": ["n", "a"]},
    {"by": "a", "avg": ["n", "m"], "sum": ["n", "m"]},
    {"by": "d.e", "max": "m"},
]
ASKED = st.builds(
    lambda where, options: Asked(where, **options), st.sampled_from(WHERES), OPTIONS
) | st.builds(
    lambda where, options: AskedGroups(where, **options),
    st.sampled_from(WHERES[:8]), st.sampled_from(GROUPS),
)  # fmt: skip


class LiveMachine(RuleBasedStateMachine):
    @initialize(index=st.booleans())
    def begin(self, index: bool) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="tideline-test-"))
        self.clock = ManualClock(1_000)
        self.indexes = {"n": "composite", "s": "lazy", "p": "spatial"} if index else None
        self.open()
        self.history = History()
        self.readers: list[Reader] = []
        self.pushed: list[Pushed] = []

    def open(self) -> None:
        self.db = tideline.open(self.folder, clock=self.clock, memory_mb=16)
        self.orders = self.db.collection(
            "orders", key="id", indexes=self.indexes, journal_s=1e6, journal_before=True
        )

    def teardown(self) -> None:
        if hasattr(self, "db"):
            self.db.close()
            shutil.rmtree(self.folder, ignore_errors=True)

    # ---- writing --------------------------------------------------------------------------

    @rule(key=KEYS, body=BODIES, ttl_s=st.sampled_from([None, None, 5, 20]))
    def put(self, key: Any, body: Any, ttl_s: float | None) -> None:
        self.orders.put({"id": key, **body}, ttl_s=ttl_s)

    @rule(many=st.lists(st.tuples(KEYS, BODIES), min_size=2, max_size=12))
    def put_many(self, many: Any) -> None:
        self.orders.put_many([{"id": key, **body} for key, body in many])

    @rule(key=KEYS)
    def delete(self, key: Any) -> None:
        self.orders.delete(key)

    @rule(where=st.sampled_from(WHERES), n=NUMBERS)
    def update(self, where: Any, n: Any) -> None:
        self.orders.update_many(where, {"$set": {"n": n}})

    @rule(where=st.sampled_from(WHERES[1:]))
    def delete_where(self, where: Any) -> None:
        self.orders.delete_where(where)

    @rule(seconds=st.sampled_from([1, 6, 30]))
    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule()
    def seal(self) -> None:
        self.orders._engine.seal()

    # ---- reading --------------------------------------------------------------------------

    @rule(
        asked=ASKED, slack=st.sampled_from([None, 0, 0, 1]), first=st.booleans(),
        queue=st.sampled_from([1, 3, 10_000]),
    )  # fmt: skip
    def watch(self, asked: Asked, slack: int | None, queue: int, first: bool) -> None:
        more = {} if asked.options.get("limit") is None else {"slack": slack}
        if isinstance(asked, AskedGroups):
            live, first = asked.watch(self.orders), True
        else:
            live = asked.watch(self.orders, queue=queue, first=first, **more)
        newest = self.history.read(self.orders)
        assert live.version == newest
        if first:
            assert same(live.result, asked.at(self.history.states[newest]), ordered=True)
        self.readers.append(Reader(live, asked, self.history, first=first))

    @precondition(lambda self: self.readers)
    @rule(data=st.data())
    def watch_the_same(self, data: Any) -> None:
        reader = data.draw(st.sampled_from(self.readers))
        self.orders.hub.advance()
        count = self.orders.hub.count
        self.watch(reader.asked, None, 10_000, True)
        assert self.orders.hub.count == count

    @rule(asked=ASKED, slack=st.sampled_from([None, 0, 1]), resumed=st.booleans())
    def subscribe(self, asked: Asked, slack: int | None, resumed: bool) -> None:
        """As a server does, from now or from an earlier version on."""
        hub, after = self.orders.hub, None
        newest = self.history.read(self.orders)
        if resumed:
            after = max(newest - 5, 0)
        pushed = Pushed(asked, self.history)
        joined = hub.join(asked.query(self.orders, slack), pushed, after=after, result=True)
        self.history.read(self.orders)
        pushed.begin(joined, after)
        self.pushed.append(pushed)

    @rule(wheres=st.lists(st.sampled_from(WHERES), max_size=4), wait=st.booleans())
    def subscribe_many(self, wheres: list[Any], wait: bool) -> None:
        """As a server does with what came in one read: changes from now on, all at once."""
        hub = self.orders.hub
        asked = [each for each in map(Asked, wheres) if each.query(self.orders, None).is_plain]
        self.history.read(self.orders)
        pushed = [Pushed(each, self.history) for each in asked]
        pairs = [(p.asked.query(self.orders, None), p) for p in pushed]
        found = hub.join_many(pairs, wait=wait) or hub.join_many(pairs)
        assert found is not None
        version, entries = found
        for each, entry in zip(pushed, entries, strict=True):
            state = each.asked.at(self.history.states[version])
            rows = [Item(row["id"], json.dumps(row).encode()) for row in state]
            each.begin(Joined(entry, version, rows, None), None)
        self.pushed += pushed

    @precondition(lambda self: self.pushed)
    @rule(data=st.data(), wait=st.booleans())
    def leave_many(self, data: Any, wait: bool) -> None:
        places = data.draw(st.sets(st.integers(0, len(self.pushed) - 1), min_size=1))
        left = [self.pushed[place] for place in places]
        self.pushed = [each for n, each in enumerate(self.pushed) if n not in places]
        hub, pairs = self.orders.hub, [(each.entry, each) for each in left]
        assert hub.leave_many(pairs, wait=wait) or hub.leave_many(pairs)
        for each in left:
            each.check()

    @precondition(lambda self: self.pushed)
    @rule(data=st.data())
    def leave(self, data: Any) -> None:
        pushed = self.pushed.pop(data.draw(st.integers(0, len(self.pushed) - 1)))
        self.orders.hub.leave(pushed.entry, pushed)
        pushed.check()

    @precondition(lambda self: self.pushed)
    @rule()
    def everybody_was_told(self) -> None:
        newest = self.orders.hub.advance(renew=True)
        assert newest == self.history.read(self.orders)
        for pushed in self.pushed:
            pushed.check()
            pushed.compare(newest)

    @precondition(lambda self: self.readers)
    @rule(data=st.data(), limit=st.sampled_from([None, 1, 2]))
    def take(self, data: Any, limit: int | None) -> None:
        reader = data.draw(st.sampled_from(self.readers))
        newest = self.history.read(self.orders)
        if limit is None:
            reader.take_all(newest)
        else:
            reader.take(limit)
            if reader.first:
                assert same(reader.live.result, reader.rows, ordered=True)

    @precondition(lambda self: self.readers)
    @rule(data=st.data())
    def cancel(self, data: Any) -> None:
        reader = self.readers.pop(data.draw(st.integers(0, len(self.readers) - 1)))
        reader.live.cancel()
        with pytest.raises(Closed, match="cancelled"):
            reader.live.take()
        assert list(reader.live) == []

    @precondition(lambda self: self.readers)
    @rule(data=st.data())
    def resume(self, data: Any) -> None:
        place = data.draw(st.integers(0, len(self.readers) - 1))
        self.readers[place] = self.resumed(self.readers[place], self.readers[place].live.token)

    @rule()
    def restart(self) -> None:
        tokens = [reader.live.token for reader in self.readers]
        self.db.close()
        for reader in self.readers:
            with pytest.raises(Closed, match="the database was closed"):
                reader.live.take()
        assert all(pushed.why == "the database was closed" for pushed in self.pushed)
        self.pushed = []
        self.open()
        self.readers = [
            self.resumed(reader, token)
            for reader, token in zip(self.readers, tokens, strict=True)
        ]  # fmt: skip

    def resumed(self, reader: Reader, token: str) -> Reader:
        live = self.orders.watch_again(token, first=reader.first)
        self.history.read(self.orders)
        if live.was_reset:  # only a difference that was handed out in part cannot be gone on with
            assert reader.open is not None
            return Reader(live, reader.asked, self.history, first=reader.first)
        if reader.first:
            assert same(live.result, reader.rows, ordered=reader.asked.has_positions)
        again = Reader(live, reader.asked, self.history, first=reader.first)
        again.rows, again.version, again.open = reader.rows, reader.version, reader.open
        return again

    @invariant()
    def the_model_is_right(self) -> None:
        if hasattr(self, "history"):
            state = self.history.states[self.history.read(self.orders)]
            found = self.orders.find({"n": {"$gte": 1}}, sort=[("s", 1)], limit=3)
            asked = Asked({"n": {"$gte": 1}}, sort=[("s", 1)], limit=3)
            assert same(found, asked.at(state), ordered=True)


def test_a_live_query_tells_what_find_gives_at_every_version() -> None:
    run_state_machine_as_test(LiveMachine, settings=settings(max_examples=few(50)))
