"""Live queries on nodes: exact on followers and over a failover, also those without a result."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from cluster_nodes import Nodes
from cluster_servers import GUARD_S, landed, three, wait_for

import tideline
from tideline.model import LiveChange
from tideline.server.tokens import Tokens


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    found = Nodes(tmp_path, wait_s=30.0)
    try:
        found.start()
        yield found
    finally:
        found.close()


def collection(nodes: Nodes, number: int) -> Any:
    return nodes.open[number].db.collection("cars")


def write(cars: Any, first: int, limit: int) -> None:
    """Something of each kind, in single writes and in one frame."""
    for n in range(first, limit):
        cars.put({"id": n, "n": 0})
        cars.update(n, {"$inc": {"n": 1}})
    cars.put_many([{"id": n, "n": 2} for n in (first, first + 1, first, limit)])
    cars.delete(first)


def told(changes: list[LiveChange]) -> list[Any]:
    return [(each.kind, each.key, each.document, each.before) for each in changes]


def take(live: Any, version: int) -> list[Any]:
    """What a live query tells up to a version."""
    found: list[LiveChange] = []
    while live.version < version:
        found += live.take(timeout_s=GUARD_S)
    return told(found)


def test_who_watches_on_a_follower_is_told_each_change_with_what_was_before(nodes: Nodes) -> None:
    leader, follower = nodes.leader(), nodes.followers()[0]
    nodes.open[leader].db.collection("cars", key="id").put({"id": 0, "n": 0})
    nodes.caught_up()
    there = collection(nodes, follower)
    live, kept = there.watch({}, first=False), there.watch({"n": {"$gte": 1}}, sort={"n": 1})
    cars = collection(nodes, leader)
    write(cars, 0, 10)  # nobody watches where it is written
    nodes.caught_up()
    version = cars.position()
    beside = cars.watch({}, first=False)
    changes = take(live, version)
    assert len(changes) == 25
    assert changes[0] == ("change", 0, {"id": 0, "n": 0}, {"id": 0, "n": 0})
    assert changes[1] == ("change", 0, {"id": 0, "n": 1}, {"id": 0, "n": 0})
    assert changes[-1] == ("remove", 0, None, {"id": 0, "n": 2})
    take(kept, version)
    assert not kept.was_reset
    assert kept.result == cars.find({"n": {"$gte": 1}}, sort={"n": 1})
    write(cars, 20, 25)  # now somebody does
    nodes.caught_up()
    assert take(live, cars.position()) == take(beside, cars.position())


def test_what_the_next_leader_writes_before_anybody_watches_is_told_after(nodes: Nodes) -> None:
    first = nodes.leader()
    cars = nodes.open[first].db.collection("cars", key="id")
    live = cars.watch({}, first=False)
    write(cars, 0, 5)
    take(live, cars.position())
    token = live.token
    write(cars, 10, 15)  # it did not hear of these
    missed = take(live, cars.position())
    nodes.caught_up()
    nodes.stop(first)
    cars = collection(nodes, nodes.leader())
    write(cars, 20, 25)
    version = cars.position()
    again = cars.watch_again(token, first=False)
    found = take(again, version)
    assert found[: len(missed)] == missed
    assert len(found) == 2 * len(missed)
    assert found[-1] == ("remove", 20, None, {"id": 20, "n": 2})


def test_without_a_result_it_goes_on_when_its_server_is_killed(tmp_path: Path) -> None:
    with three(tmp_path) as servers, servers.connect() as writer, servers.connect() as reader:
        landed(lambda: writer.collection("cars", key="id"))
        # The reader's connection is the leader's: what it writes brings it there.
        landed(lambda: reader.collection("cars", key="id").put({"id": "first"}))
        live = landed(lambda: reader.collection("cars").watch({}, first=False))
        keys: list[Any] = []
        stop = threading.Event()

        def write() -> None:
            n = 0
            while not stop.is_set():
                landed(lambda n=n: writer.collection("cars").put({"id": n}))
                keys.append(n)
                n += 1

        thread = threading.Thread(target=write)
        thread.start()
        seen: dict[Any, int] = {}
        try:
            wait_for(lambda: len(keys) > 20)
            servers.kill(servers.leader())
            after = len(keys)
            wait_for(lambda: len(keys) > after + 20)
        finally:
            stop.set()
            thread.join()

        def complete() -> bool:
            for change in live.take(timeout_s=0.1):
                seen[change.key] = seen.get(change.key, 0) + (change.kind == "add")
            return set(keys) <= set(seen)

        wait_for(complete)
        assert {seen[key] for key in keys} == {1}
        assert not live.was_reset


@pytest.mark.parametrize("guarded", [False, True], ids=["open", "by a new token"])
def test_a_node_that_has_just_begun_ends_nothing_that_it_does_not_know_yet(
    tmp_path: Path, guarded: bool
) -> None:
    with three(tmp_path) as servers, ExitStack() as stack:
        if guarded:
            servers.guard()
        servers.kill("n2")
        if guarded:
            leader = servers.leader()
            servers.token, made = Tokens(servers.root / leader).create(["admin"])
            wait_for(lambda: servers.knows(made.id) == {"n1", "n3"})
            wait_for(lambda: set(servers.answers(servers.token).values()) == {200})
        with servers.connect() as writer:
            cars = landed(lambda: writer.collection("cars", key="id"))
            landed(lambda: cars.put({"id": 1}))
        reader = stack.enter_context(
            tideline.connect(servers.all, token=servers.token, timeout_s=3)
        )
        live = landed(lambda: reader.collection("cars").watch({}))
        changes = landed(lambda: reader.collection("cars").changes())
        for name in list(servers.running):
            servers.kill(name)
        servers.start("n2")  # it has heard of nothing, and the others do not run

        def says() -> bool:
            with contextlib.suppress(OSError):
                status, said, _ = servers.ask("n2", "/v1/collections/cars")
                return (status, said["error"]["kind"]) == (503, "NotLeading")
            return False

        wait_for(says)
        for follow in (live.take, changes.take):
            with pytest.raises(tideline.Unavailable):
                follow()
        servers.start("n1", "n3")
        servers.leader()
        with servers.connect() as writer:
            landed(lambda: writer.collection("cars").put({"id": 2}))
        told: list[Any] = []  # of the first, too, if it began on a follower that lacked it
        wait_for(lambda: told.extend(landed(live.take)) or {each.key for each in told} >= {2})
        assert {(change.kind, change.key) for change in told} <= {("add", 1), ("add", 2)}
        assert len({change.key for change in told}) == len(told)
        assert sorted(row["id"] for row in live.result) == [1, 2]
        seen: list[Any] = []
        wait_for(lambda: seen.extend(landed(changes.take)) or 2 in {each.key for each in seen})
        assert {change.key for change in seen} <= {1, 2}


def test_who_keeps_no_result_and_was_away_too_long_is_told_what_to_do(tmp_path: Path) -> None:
    from tideline.client.watched import Watched

    state = Watched(lambda document: document["id"], False, 10, keeps=False)
    state.begin(1)
    state.take_result([], 9, False, True)
    error = state.why()
    assert isinstance(error, tideline.Closed)
    assert "watch again" in str(error)
    assert "journal_before" in str(error)
