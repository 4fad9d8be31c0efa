"""Handles of live queries: reading, waiting, ending, sharing, falling behind, going on."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from interrupting import Thrower

import tideline
from tideline.documents.loading import adopt, build_piece, recipe_of
from tideline.errors import Closed, Conflict, InvalidRequest
from tideline.live import Collection, following
from tideline.live.entries import StagedEntry
from tideline.live.query import Token
from tideline.testing import ManualClock


@pytest.fixture
def orders() -> Iterator[Collection]:
    with tideline.open(":memory:") as db:
        yield db.collection("orders", key="id")


def kinds(changes: list[Any]) -> list[tuple[Any, ...]]:
    return [(change.kind, change.key) for change in changes]


def totals(collection: Collection, *values: int) -> None:
    collection.put_many([{"id": number, "total": value} for number, value in enumerate(values)])


# ---- reading ----------------------------------------------------------------------------------


def test_a_plain_query_goes_on_in_the_order_that_it_had(tmp_path: Path) -> None:
    with tideline.open(tmp_path / "data") as db:
        orders = db.collection("orders", key="id")
        for number in (1, 2, 3):
            orders.put({"id": number})
        live = orders.watch()
        had, token = live.result, live.token
        orders.put({"id": 3, "n": 1})
        orders.put({"id": 2, "n": 1})
        again = orders.watch_again(token)
        assert again.result == had
        again.take(1)
        assert [order["id"] for order in again.result] == [3, 2, 1]
        again.take()
        assert again.result == orders.find()


def test_a_change_is_there_as_soon_as_it_was_written(orders: Collection) -> None:
    live = orders.watch({"n": {"$gt": 0}})
    for n in range(1, 200):
        orders.put({"id": 1, "n": n})
        [change] = live.take()
        assert (change.kind, change.version) == ("change" if n > 1 else "add", n)
        assert live.result == [{"id": 1, "n": n}]
        assert live.version == n


def test_leaving_by_update_is_one_remove(orders: Collection) -> None:
    orders.put({"id": 1, "n": 1})
    live = orders.watch({"n": 1})
    orders.put({"id": 1, "n": 2})
    orders.put({"id": 1, "n": 3})
    [change] = live.take()
    assert (change.kind, change.key, change.document) == ("remove", 1, None)
    assert change.before == {"id": 1, "n": 1}


def test_unchanged_documents_stay_the_same_objects(orders: Collection) -> None:
    totals(orders, 10, 20, 30)
    live = orders.watch(sort=[("total", 1)], limit=3)
    before = live.result
    orders.put({"id": 5, "total": 15})
    live.take()
    assert live.result[0] is before[0]
    assert live.result[2] is before[1]


def test_a_handle_without_a_first_result_tells_changes_alone(orders: Collection) -> None:
    orders.put({"id": 1})
    live = orders.watch(first=False)
    orders.put({"id": 1, "n": 2})
    assert kinds(live.take()) == [("change", 1)]
    with pytest.raises(InvalidRequest, match="keeps no result"):
        live.result  # noqa: B018


def test_iteration_waits_and_ends_when_it_is_cancelled(orders: Collection) -> None:
    live = orders.watch({"n": {"$gte": 0}}, sort=[("n", -1)], limit=2)
    seen: list[Any] = []
    ready = threading.Event()

    def read() -> None:
        ready.set()
        for change in live:
            seen.append((change.kind, [row["n"] for row in live.result]))
            if len(seen) == 4:
                arrived.set()

    arrived = threading.Event()
    thread = threading.Thread(target=read)
    thread.start()
    ready.wait()
    for n in (1, 2, -5, 3):
        orders.put({"id": n, "n": n})
    arrived.wait()
    live.cancel()
    thread.join()
    assert seen == [("add", [1]), ("add", [2, 1]), ("remove", [2]), ("add", [3, 2])]
    assert list(live) == []
    live.cancel()


def test_async_iteration(orders: Collection) -> None:
    async def read() -> list[int]:
        live = orders.watch({"n": {"$gte": 0}})
        found: list[int] = []

        async def follow() -> None:
            async for change in live:
                found.append(change.key)  # noqa: PERF401

        task = asyncio.create_task(follow())
        for n in range(3):
            orders.put({"id": n, "n": n})
            orders.put({"id": -n - 1, "n": -1})
            while len(found) <= n:
                await asyncio.sleep(0)
        live.cancel()
        await task
        return found

    assert asyncio.run(read()) == [0, 1, 2]


def test_take_waits_as_long_as_it_is_told() -> None:
    clock = ManualClock(1_000)
    with tideline.open(":memory:", clock=clock) as db:
        orders = db.collection("orders", key="id")
        live = orders.watch({"n": 1})
        found: list[Any] = []
        thread = threading.Thread(target=lambda: found.append(live.take(timeout_s=10)))
        thread.start()
        while thread.is_alive():
            clock.advance(1)
        thread.join()
        assert found == [[]]
        for n in range(5):
            orders.put({"id": n, "n": 1})
        assert kinds(live.take(2, timeout_s=10)) == [("add", 0), ("add", 1)]
        assert len(live.take(timeout_s=10)) == 3


# ---- ending -----------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["closed", "dropped"])
def test_the_end_of_a_collection_ends_iteration_and_says_why(how: str) -> None:
    db = tideline.open(":memory:")
    orders = db.collection("orders", key="id")
    lives = [orders.watch(), orders.watch(limit=3), orders.watch_groups(by="id", count=True)]
    said: list[str] = []

    def read(live: Any) -> None:
        try:
            for _ in live:
                pass
        except Closed as error:
            said.append(str(error))

    threads = [threading.Thread(target=read, args=(live,)) for live in lives]
    for thread in threads:
        thread.start()
    if how == "closed":
        db.close()
    else:
        db.drop_collection("orders")
    for thread in threads:
        thread.join()
    why = "the database was closed" if how == "closed" else "the collection was dropped"
    assert len(said) == 3
    assert all(why in each for each in said)
    with pytest.raises(Closed, match=why):
        lives[0].take()
    with pytest.raises(Closed):
        orders.watch()
    assert lives[0].result == []
    lives[0].cancel()
    db.close()


def test_a_watch_expires_unless_it_is_prolonged() -> None:
    clock = ManualClock(1_000)
    with tideline.open(":memory:", clock=clock) as db:
        orders = db.collection("orders", key="id")
        live, other = orders.watch({"n": 1}, ttl_s=10), orders.watch({"n": 2}, ttl_s=10)
        assert live.until is not None
        assert live.until.timestamp() == 1_010
        clock.advance(6)
        live.prolong(ttl_s=10)
        clock.advance(6)
        orders.put({"id": 1, "n": 1})
        assert kinds(live.take()) == [("add", 1)]
        with pytest.raises(Closed, match="the watch expired"):
            next(other)
        assert orders.hub.count == 1

        def wait() -> None:
            with pytest.raises(Closed):
                next(live)

        waiting = threading.Thread(target=wait)
        waiting.start()
        clock.advance(10)
        waiting.join()
        assert live.ended == "the watch expired"
        assert orders.hub.count == 0
        endless = orders.watch(ttl_s=5)
        endless.prolong(ttl_s=None)
        clock.advance(100)
        assert endless.take() == []
        assert endless.until is None


def test_handles_may_end_at_one_time() -> None:
    """Also one that was told the same end again and again, while the clock stood."""
    clock = ManualClock(1000)
    with tideline.open(":memory:", clock=clock) as db:
        orders = db.collection("orders", key="id")
        lives = [orders.watch({"total": n}, ttl_s=5) for n in range(20)]
        for live in lives * 3:
            live.prolong(ttl_s=5)
        for n in range(20):
            orders.watch({"total": n}, ttl_s=5)  # and is let go of: the next may stand in its place
        clock.advance(5)
        for live in lives:
            with pytest.raises(Closed, match="the watch expired"):
                live.take()


def test_documents_that_expire_are_removed() -> None:
    clock = ManualClock(1_000)
    with tideline.open(":memory:", clock=clock) as db:
        orders = db.collection("orders", key="id")
        orders.put({"id": 1, "n": 1}, ttl_s=5)
        orders.put({"id": 2, "n": 1})
        live, first = orders.watch({"n": 1}), orders.watch({"n": 1}, sort=[("id", 1)], limit=1)
        assert first.result == [{"id": 1, "n": 1}]
        found: list[Any] = []
        thread = threading.Thread(target=lambda: found.append(next(live)))
        thread.start()
        clock.advance(5)
        thread.join()
        assert kinds(found) == [("remove", 1)]
        assert kinds(first.take()) == [("remove", 1), ("add", 2)]
        orders.put({"id": 3, "n": 1}, ttl_s=5)
        clock.advance(5)
        assert kinds(live.take()) == [("add", 3), ("remove", 3)]
        assert live.result == orders.find({"n": 1})


def test_a_handle_that_nobody_holds_is_forgotten(orders: Collection) -> None:
    live, kept = orders.watch({"n": 1}), orders.watch({"n": 2})
    assert orders.hub.count == 2
    del live
    gc.collect()
    assert kept.take() == []
    assert orders.hub.count == 1


def test_a_cancelled_handle_still_has_its_token(orders: Collection) -> None:
    live = orders.watch({"n": 1})
    token = live.token
    live.cancel()
    other = orders.watch({"n": 2})  # its number is that of the one that has gone
    assert (live.token, other.token != token) == (token, True)
    orders.put({"id": 1, "n": 1})
    assert kinds(orders.watch_again(live.token).take()) == [("add", 1)]


def test_an_entry_without_positions_is_small_and_is_not_taken_for_its_successor(
    orders: Collection,
) -> None:
    """There may be a million: the index of conditions has its text."""
    hub = orders.hub
    entry = hub.join(orders.hub_query({"n": 1}), None).entry
    assert (entry.text, sys.getsizeof(entry) <= 64) == (b'{"n":1}', True)
    again = hub.join(orders.hub_query({"n": 1}), None).entry
    assert again is entry
    hub.leave(entry, None)
    assert (hub.count, entry.text) == (1, b'{"n":1}')
    hub.leave(entry, None)
    successor = hub.join(orders.hub_query({"n": 2}), None).entry
    assert (hub.count, successor.number, successor.text) == (1, 0, b'{"n":2}')
    with pytest.raises(Closed, match="the live query has ended"):
        entry.result_now()
    hub.leave(successor, None)


def test_in_a_forked_child_a_handle_is_closed(orders: Collection) -> None:
    live = orders.watch({"n": 1})
    orders.put({"id": 1, "n": 1})
    pid = os.fork()
    if pid == 0:  # pragma: no cover - the child
        try:
            live.take()
        except Closed as error:
            os._exit(0 if "forked" in str(error) else 2)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert kinds(live.take()) == [("add", 1)]


# ---- sharing and falling behind -----------------------------------------------------------------


def test_equal_queries_are_one(orders: Collection) -> None:
    one = orders.watch({"a": 1, "b": {"$gt": 2}}, sort=[("b", 1)], limit=3)
    two = orders.watch({"b": {"$gt": 2.0}, "a": 1}, sort={"b": 1}, limit=3, slack=9, queue=5)
    assert orders.hub.count == 1
    orders.put({"id": 1, "a": 1, "b": 3})
    assert one.take()[0] is two.take()[0]
    one.cancel()
    orders.put({"id": 2, "a": 1, "b": 3})
    assert kinds(two.take()) == [("add", 2)]
    two.cancel()
    assert orders.hub.count == 0


def test_slack_saves_renewals(orders: Collection) -> None:
    totals(orders, *range(100))
    renewals = {}
    for slack in (0, 5):
        live = orders.watch(sort=[("total", -1)], limit=10, slack=slack)
        before = orders.hub.renewals
        top = max(row["id"] for row in orders.find(limit=200))
        for number in range(top, top - 12, -1):
            orders.delete(number)
            assert len(live.take()) == 2
            assert live.result == orders.find(sort=[("total", -1)], limit=10)
        renewals[slack] = orders.hub.renewals - before
        live.cancel()
    assert renewals == {0: 12, 5: 2}


def test_a_change_that_stays_in_place_needs_no_renewal(orders: Collection) -> None:
    totals(orders, *range(20))
    live = orders.watch(sort=[("total", -1)], limit=5, slack=0)
    for row in live.result:
        orders.put({**row, "seen": True})
    assert {change.kind for change in live.take()} == {"change"}
    assert orders.hub.renewals == 0


@pytest.mark.parametrize("options", [{}, {"sort": [("n", 1)], "limit": 5}, {"limit": 4}])
def test_a_slow_handle_gets_the_difference(orders: Collection, options: Any) -> None:
    totals(orders, 1, 2, 3)
    live = orders.watch(queue=6, **options)
    for n in range(50):
        orders.put({"id": n % 20, "n": n})
    changes = live.take()
    assert len({change.version for change in changes}) == 1
    assert len(changes) <= 25
    assert live.version == 53
    assert live.result == orders.find(**options)
    orders.put({"id": 99, "n": 0})
    assert live.take()
    assert live.result == orders.find(**options)


def test_what_is_kept_for_handles_is_bounded(
    orders: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    totals(orders, 1, 2, 3)
    live = orders.watch()
    ordered = orders.watch(sort=[("total", 1)], limit=2)
    groups = orders.watch_groups(by="total", count=True)
    blind = orders.watch(first=False)
    monkeypatch.setattr(following, "KEPT_BYTES", 20_000)
    for n in range(300):
        orders.put({"id": n % 7, "total": n, "text": "x" * 100})
        orders.hub.advance()
    assert live.take()
    assert live.result == orders.find()
    assert ordered.take()
    assert ordered.result == orders.find(sort=[("total", 1)], limit=2)
    assert groups.take()
    assert [row["total"] for row in groups.result] == sorted(o["total"] for o in orders.find())
    with pytest.raises(Closed, match="read too seldom"):
        blind.take()


def test_a_bulk_load_is_told_as_a_difference(tmp_path: Path) -> None:
    with tideline.open(tmp_path / "data") as db:
        orders = db.collection("orders", key="id")
        totals(orders, 5, 6)
        live, ordered = orders.watch(), orders.watch(sort=[("total", -1)], limit=2)
        recipe = recipe_of(orders)
        table = pa.table({"document": ['{"id": 1, "total": 9}', '{"id": 7, "total": 8}']})
        adopt(orders, recipe, [build_piece(recipe, tmp_path, table)])
        assert sorted(kinds(live.take())) == [("add", 7), ("change", 1)]
        assert live.result == orders.find()
        ordered.take()
        assert ordered.result == orders.find(sort=[("total", -1)], limit=2)
        orders.put({"id": 8, "total": 10})
        assert kinds(live.take()) == [("add", 8)]


def test_an_interrupted_take_leaves_a_handle_that_is_right(orders: Collection) -> None:
    parts = (str(Path(tideline.__file__).parent / "live"),)
    live = orders.watch(sort=[("n", -1)], limit=3, slack=1)
    plain = orders.watch({"n": {"$gt": 5}})
    for place in range(1, 400):
        orders.put({"id": place % 11, "n": place * 7 % 13})
        orders.delete(place % 5)
        with Thrower("line", place, parts=parts) as thrower:
            live.take(1)
            plain.take()
            assert isinstance(live.result, list)
            assert live.token
        live.take()
        plain.take()
        assert live.result == orders.find(sort=[("n", -1)], limit=3)
        assert plain.result == orders.find({"n": {"$gt": 5}})
        if not thrower.hit:
            break
    assert not thrower.hit


def test_an_interrupted_watch_registers_nothing_for_good(orders: Collection) -> None:
    totals(orders, 1, 2, 3)
    parts = (str(Path(tideline.__file__).parent / "live"),)
    for place in range(1, 400):
        live = None
        with Thrower("line", place, parts=parts) as thrower:
            live = orders.watch({"total": 2}, sort=[("total", 1)], limit=2)
        del live
        orders.hub.advance()
        assert orders.hub.count == 0
        if not thrower.hit:
            break
    assert not thrower.hit


# ---- going on -----------------------------------------------------------------------------------


def reopened(folder: Path, **options: Any) -> tuple[Any, Collection]:
    db = tideline.open(folder)
    return db, db.collection("orders", key="id", **options)


def test_a_token_goes_on_after_a_restart(tmp_path: Path) -> None:
    db, orders = reopened(tmp_path, journal_s=1e6, journal_before=True)
    totals(orders, 5, 6, 7)
    live = orders.watch({"total": {"$gte": 6}}, sort=[("total", -1)], limit=1)
    groups = orders.watch_groups(by="total", count=True)
    tokens = live.token, groups.token
    orders.put({"id": 9, "total": 9})
    orders.delete(9)
    db.close()
    db, orders = reopened(tmp_path)
    live, groups = map(orders.watch_again, tokens)
    assert live.result == [{"id": 2, "total": 7}]
    assert [(c.kind, c.key, c.version) for c in live.take()] == [
        ("remove", 2, 4), ("add", 9, 4), ("remove", 9, 5), ("add", 2, 5),
    ]  # fmt: skip
    assert kinds(groups.take()) == [("add", 9), ("remove", 9)]
    assert not live.was_reset
    orders.put({"id": 4, "total": 8})
    assert kinds(live.take()) == [("remove", 2), ("add", 4)]
    db.close()


def test_what_is_not_kept_is_a_reset(tmp_path: Path) -> None:
    db, orders = reopened(tmp_path)
    live = orders.watch()
    token = live.token
    live.cancel()
    db.close()
    db, orders = reopened(tmp_path)
    totals(orders, 1, 2)
    again = orders.watch_again(token)
    assert again.was_reset
    assert again.result == orders.find()
    assert again.take() == []
    orders.put({"id": 7})
    assert kinds(again.take()) == [("add", 7)]
    db.drop_collection("orders")
    orders = db.collection("orders", key="id")
    with pytest.raises(Conflict, match="another collection"):
        orders.watch_again(token)
    assert orders.hub.count == 0
    db.close()


def test_a_token_within_a_version_goes_on_within_it(orders: Collection) -> None:
    totals(orders, 1, 2, 3)
    live = orders.watch(sort=[("total", -1)], limit=2)
    orders.put({"id": 9, "total": 9})
    [gone] = live.take(1)
    assert gone.kind == "remove"
    again = orders.watch_again(live.token)
    assert again.result == live.result
    assert kinds(again.take()) == kinds(live.take()) == [("add", 9)]
    assert again.result == live.result


# ---- subscribers, as a server has them ---------------------------------------------------------


class Told:
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, int]] = []
        self.why = ""
        self.times_lost = 0

    def changed(self, entry: Any, changes: Any, version: int) -> None:
        self.calls.append((changes, version))

    def lost(self, entry: Any) -> None:
        self.times_lost += 1

    def ended(self, entry: Any, why: str) -> None:
        self.why = why


@pytest.mark.parametrize("options", [{}, {"sort": [("total", -1)], "limit": 2}])
def test_subscribers_are_told_once_a_tick(orders: Collection, options: Any) -> None:
    totals(orders, 1, 2, 3, 4)
    slack = {"slack": 0} if options else {}
    query = orders.hub_query({"total": {"$gt": 0}}, **options, **slack)
    one, two = Told(), Told()
    joined = orders.hub.join(query, one)
    again = orders.hub.join(query, two)
    assert joined.entry is again.entry
    assert [item.document for item in joined.items or ()] == orders.find(**options)
    orders.put_many([{"id": n, "total": 10 + n} for n in range(50)])
    assert orders.hub.advance() == 54
    assert one.calls
    assert all(mine[0] is yours[0] for mine, yours in zip(one.calls, two.calls, strict=True))
    orders.hub.leave(again.entry, two)
    heard = len(two.calls)
    rows = [item.document for item in joined.items or ()]
    orders.delete(49)
    orders.delete(48)
    orders.hub.advance(renew=True)
    for changes, _ in one.calls:
        for change in changes:
            there = [at for at, row in enumerate(rows) if row["id"] == change.key]
            if change.kind != "add":
                assert options == {} or there == [change.old_index]
                del rows[there[0]]
            if change.document is not None:
                rows.insert(0 if change.index is None else change.index, change.document)
    assert rows == orders.find({"total": {"$gt": 0}}, **options) == (
        [item.document for item in joined.entry.result_now()[1]]
    )  # fmt: skip
    assert len(two.calls) == heard
    orders.hub.leave(joined.entry, one)
    assert orders.hub.count == 0


def test_a_subscriber_goes_on_after_a_version(orders: Collection) -> None:
    keeper = orders.watch({"n": 1})
    totals(orders, 1, 2)
    orders.put({"id": 7, "n": 1})
    one = Told()
    joined = orders.hub.join(orders.hub_query({"n": 1}), one, after=2)
    assert joined.missed is not None
    assert kinds(joined.missed) == [("add", 7)]
    assert joined.items is None
    orders.put({"id": 8, "n": 1})
    orders.hub.advance()
    assert [kinds(list(changes)) for changes, _ in one.calls] == [[("add", 8)]]
    keeper.cancel()


def test_handles_and_subscribers_of_one_entry_hear_the_same(orders: Collection) -> None:
    totals(orders, *range(20))
    one = Told()
    query = orders.hub_query({}, sort=[("total", -1)], limit=3, slack=0)
    joined = orders.hub.join(query, one)
    live = orders.watch(sort=[("total", -1)], limit=3, slack=0)
    assert isinstance(joined.entry, StagedEntry)
    for n in range(19, 10, -1):
        orders.delete(n)
        live.take()  # which renews: the subscriber hears of it, too
        assert live.result == orders.find(sort=[("total", -1)], limit=3)
    told = [change.version for changes, _ in one.calls for change in changes]
    assert told == [version for version in range(21, 30) for _ in range(2)]


def test_listeners_get_blocks(orders: Collection) -> None:
    blocks: list[Any] = []
    orders.hub.listeners.append(blocks.append)
    joined = orders.hub.join(orders.hub_query({"n": 1}), None)
    orders.hub.join(orders.hub_query({"n": {"$gte": 1}}), None)
    orders.put_many([{"id": n, "n": n} for n in range(5)])
    orders.hub.advance()
    found = [
        (number, note.seq)
        for block in blocks for number, run in block.runs() for note in block.of(run)
    ]  # fmt: skip
    assert len(found) == 5
    assert (joined.entry.number, 2) in found


def test_the_end_is_told_to_subscribers() -> None:
    db = tideline.open(":memory:")
    orders = db.collection("orders", key="id")
    one = Told()
    orders.hub.join(orders.hub_query({"n": 1}), one)
    db.drop_collection("orders")
    assert one.why == "the collection was dropped"
    db.close()


# ---- bad input ----------------------------------------------------------------------------------


BAD: list[tuple[str, Callable[[Any], Any]]] = [
    ("where", lambda c: c.watch({"n": {"$above": 1}})),
    ("where", lambda c: c.watch({"n": {"$delta": {"$gt": 1}}})),
    ("where", lambda c: c.watch([1])),
    ("sort", lambda c: c.watch(sort=[])),
    ("sort", lambda c: c.watch(sort="n")),
    ("sort", lambda c: c.watch(sort=[("n", 2)])),
    ("sort", lambda c: c.watch(sort=[("", 1)])),
    ("limit", lambda c: c.watch(limit=0)),
    ("limit", lambda c: c.watch(limit=1.5)),
    ("offset", lambda c: c.watch(offset=-1)),
    ("offset", lambda c: c.watch(offset="1")),
    ("slack", lambda c: c.watch(limit=1, slack=-1)),
    ("slack", lambda c: c.watch(slack=1)),
    ("ttl_s", lambda c: c.watch(ttl_s=0)),
    ("ttl_s", lambda c: c.watch(ttl_s="1")),
    ("first", lambda c: c.watch(first=1)),
    ("queue", lambda c: c.watch(queue=0)),
    ("queue", lambda c: c.watch(queue=None)),
    ("by", lambda c: c.watch_groups(by=[])),
    ("by", lambda c: c.watch_groups(by=[["n"]])),
    ("by", lambda c: c.watch_groups(by=None)),
    ("by", lambda c: c.watch_groups(by=["n", "n"])),
    ("by", lambda c: c.watch_groups(by="$n")),
    ("count", lambda c: c.watch_groups(by="n", count=1)),
    ("sum", lambda c: c.watch_groups(by="n", sum={"n": 1})),
    ("max", lambda c: c.watch_groups(by="n", max=[1])),
    ("name", lambda c: c.watch_groups(by="count", count=True)),
    ("ttl_s", lambda c: c.watch_groups(by="n", ttl_s=-1)),
    ("where", lambda c: c.watch_groups({"$what": 1}, by="n")),
    ("token", lambda c: c.watch_again("nonsense")),
    ("token", lambda c: c.watch_again(None)),
    ("token", lambda c: c.watch_again("")),
    ("where", lambda c: c.explain_watch({"$what": 1})),
    ("offset", lambda c: c.explain_watch(offset=-2)),
]


def test_bad_input_is_named_and_nothing_is_registered(orders: Collection) -> None:
    for name, call in BAD:
        with pytest.raises(InvalidRequest, match=name):
            call(orders)
    gc.collect()
    assert orders.hub.count == 0


def test_bad_arguments_of_a_handle(orders: Collection) -> None:
    live = orders.watch()
    for call in (lambda: live.take(0), lambda: live.take(timeout_s=-1),
                 lambda: live.prolong(ttl_s=0), lambda: live.take("1")):  # fmt: skip
        with pytest.raises(InvalidRequest):
            call()


def test_explain_watch_says_what_a_query_costs(orders: Collection) -> None:
    live = orders.watch({"shop": 7})
    told = orders.explain_watch({"shop": 7})
    assert (told.standing, told.shared, told.kept) == (1, 1, 0)
    told = orders.explain_watch({"shop": 7}, sort=[("n", 1)], limit=10, offset=5, slack=3)
    assert (told.kept, told.shared) == (18, 0)
    assert orders.hub.count == 1
    live.cancel()


@pytest.mark.parametrize(("one", "other"), [(1, True), (0, False), ([], "[]"), ({}, "{}")])
def test_groups_whose_keys_look_the_same_are_two(orders: Collection, one: Any, other: Any) -> None:
    """Told as a difference: a handle that keeps one change has missed more."""
    orders.put_many([{"id": 1, "a": one}, {"id": 2, "a": other}])
    token = orders.watch_groups(by="a", count=True).token
    live = orders.watch_again(token, queue=1)
    rows = live.result
    assert len(rows) == 2
    for writes in (
        [{"id": 3, "a": one}, {"id": 4, "a": other}, {"id": 5, "a": 5}],
        [{"id": 1, "a": 5}, {"id": 3, "a": 5}, {"id": 4, "a": 5}],
    ):
        for document in writes:
            orders.put(document)
        for change in live.take():
            if change.old_index is not None:
                assert rows.pop(change.old_index) == change.before
            if change.index is not None:
                rows.insert(change.index, change.document or {})
        found = orders.aggregate([{"$group": {"_id": "$a", "count": {"$sum": 1}}}])
        told = [{"_id": row["a"], "count": row["count"]} for row in rows]
        assert repr(told) == repr(found)
        assert repr(live.result) == repr(rows)


@pytest.mark.parametrize("text", [
    b'\0[[["n",-1]],"x",0]', b'\0[[["n",-1]],-3,0]', b'\0[[["n",-1]],3,null]', b"\0[null,3,-1]",
    b"\0[null,3,1e30]", b"\0[3,3,0]", b'\0[[["n",-1],["n",1]],3,0]', b"\0[null]",
    b'\1[[],true,[["count",""]]]', b'\1[[1],true,[["sum","x"]]]', b'\1[["a"],true,[["boom","x"]]]',
    b'\1[["a"],3,[]]', b'\1[["a","b"],true,[]]', b'\1[["a"],true,[["sum","$x"]]]',
    b'\1[["a"],true,[["sum","x"],["sum","x"]]]', b'\1[["a"],true,[["by","x"]]]', b"[]", b"{",
])  # fmt: skip
def test_a_token_that_was_made_up_is_refused(orders: Collection, text: bytes) -> None:
    with pytest.raises(InvalidRequest, match="token"):
        orders.watch_again(str(Token(orders.identity, text, 0)))
    assert orders.hub.count == 0


def test_closing_waits_for_who_is_about_to_follow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go, errors = threading.Event(), threading.Event(), []
    start = threading.Thread.start

    def slow(self: threading.Thread) -> None:
        if self.name == "tideline-live":
            begun.set()
            go.wait(30)
        start(self)

    def run(work: Callable[[], Any]) -> None:
        try:
            work()
        except Closed:
            pass
        except BaseException as error:
            errors.append(error)

    db = tideline.open(tmp_path / "data")
    orders = db.collection("orders", key="id")
    monkeypatch.setattr(threading.Thread, "start", slow)
    threads = [threading.Thread(target=run, args=(work,)) for work in (orders.watch, db.close)]
    threads[0].start()
    assert begun.wait(30)
    threads[1].start()
    threads[1].join(0.1)
    go.set()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    assert errors == []
