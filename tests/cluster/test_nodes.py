"""Several nodes, one database: what was acknowledged is on a majority, and the same everywhere."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from cluster_nodes import Nodes, wait_for

import tideline
from tideline.cluster.node import ClusterNode, create, recover
from tideline.documents.export import changes_table
from tideline.errors import InvalidRequest, NotFound, Unavailable
from tideline.lsm.sharedlog import NotLeading, OutcomeUnknown, without_waiting
from tideline.server import running


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    found = Nodes(tmp_path, wait_s=30.0)
    try:
        found.start()
        yield found
    finally:
        found.close()


def fill(db: Any) -> None:
    """Something of everything."""
    cars = db.collection("cars", key="id", indexes={"road": "lazy"}, journal_before=True)
    for n in range(20):
        cars.put({"id": n, "road": f"A{n % 3}", "n": n})
    cars.put_many([{"id": f"many-{n}", "road": "B1"} for n in range(500)])
    cars.delete(3)
    cars.create_index("n", "composite").wait()
    roads = db.channel("roads", journal_s=60)
    roads.subscribe("I-87", user="ann", until_s=600, id="s1")
    for n in range(20):
        roads.publish("I-87", {"n": n}, ttl_s=600, id=f"e{n}")
    roads.retract("e3")
    now = datetime.now(UTC)
    roads.apply(
        pa.table(
            {
                "op": ["publish"] * 50, "id": [f"b{n}" for n in range(50)], "place": ["I-90"] * 50,
                "at": [now] * 50, "until": [now + timedelta(hours=1)] * 50, "body": ["{}"] * 50,
            }
        ), once=("writer", 7),
    )  # fmt: skip
    panes = db.window("panes", span_s=600, slide_s=60, key=("seg", "vid"), values={"vel": "int32"})
    for n in range(20):
        panes.append({"seg": n % 3, "vid": n, "vel": n})


def shown(db: Any) -> Any:
    """What there is, as it must be the same everywhere."""
    cars, roads, panes = db.collection("cars"), db.channel("roads"), db.window("panes")
    return (
        sorted(map(str, cars.find({}))), sorted(map(str, cars.lookup("road", "A1"))),
        cars.indexes, cars.journal_before, cars.position(), roads.position(),
        [(e.id, e.seq, e.at, e.until, e.raw) for e in roads.find("I-87")],
        len(roads.find("I-90")), [(s.id, s.user, s.until) for s in roads.subscriptions()],
        roads.landed("writer", 7), [panes.get((n % 3, n)) for n in range(20)],
    )  # fmt: skip


def test_what_the_leader_writes_is_the_same_everywhere_in_the_same_places(nodes: Nodes) -> None:
    leader = nodes.open[nodes.leader()].db
    fill(leader)
    nodes.caught_up()
    wanted = shown(leader)
    for node in nodes.open.values():
        assert shown(node.db) == wanted
        node.db.check()
    ends = {
        str([engine.store.log.end for engine in node.machine.engines()])
        for node in nodes.open.values()
    }
    assert len(ends) == 1


def test_a_follower_refuses_to_write_and_has_changed_nothing(nodes: Nodes) -> None:
    fill(nodes.open[nodes.leader()].db)
    nodes.caught_up()
    db = nodes.open[nodes.followers()[0]].db
    before = shown(db)
    cars, roads = db.collection("cars"), db.channel("roads")
    calls: list[Callable[[], object]] = [
        partial(cars.put, {"id": 1}),
        partial(cars.delete, 1),
        partial(cars.drop_index, "n"),
        partial(cars.create_index, "road2"),
        partial(roads.publish, "I-87", {}, ttl_s=5),
        partial(roads.subscribe, "I-87", user="bob", until_s=5),
        partial(roads.cancel, "s1"),
        partial(db.window("panes").append, {"seg": 1, "vid": 1, "vel": 1}),
        partial(db.channel, "new"),
        partial(db.collection, "new", key="id"),
        partial(db.drop_channel, "roads"),
    ]
    for call in calls:
        with pytest.raises(NotLeading):
            call()
    assert shown(db) == before
    with pytest.raises(InvalidRequest, match="durable"):
        db.window("loose", span_s=9, key="k", values={"v": "int32"}, durable=False)


def test_the_next_leader_goes_on_where_the_last_one_was(nodes: Nodes) -> None:
    first = nodes.leader()
    fill(nodes.open[first].db)
    nodes.stop(first)
    second = nodes.open[nodes.leader()].db
    roads, cars = second.channel("roads"), second.collection("cars")
    assert roads.publish("I-87", {"n": 5}, ttl_s=600, id="e5").duplicate  # it is known there
    sub = roads.resume("s1")
    seq = roads.publish("I-87", {"n": 99}, ttl_s=600, id="e99").event.seq
    assert [event.id for event in sub.take()] == ["e99"]
    cars.put({"id": "later", "road": "A1"})
    assert second.collection("made later", key="id").key == "id"
    second.drop_window("panes")
    nodes.start(first)
    nodes.caught_up()
    db = nodes.open[first].db
    assert db.channel("roads").find("I-87")[0].seq == seq
    assert db.collection("cars").get("later") == {"id": "later", "road": "A1"}
    assert (db.collections(), db.windows()) == (["cars", "made later"], [])
    db.check()


def test_what_no_majority_has_is_told_to_nobody_and_is_cut(nodes: Nodes) -> None:
    first = nodes.leader()
    lonely = nodes.open[first]
    roads, cars = lonely.db.channel("roads"), lonely.db.collection("cars", key="id")
    cars.put({"id": 1})
    nodes.caught_up()
    sub = roads.subscribe("a", user="ann", until_s=600)
    live = cars.watch({})
    feed = cars.changes()
    nodes.stop(*nodes.followers())
    failed: list[BaseException] = []

    def write(call: Callable[[], object]) -> None:
        try:
            call()
        except BaseException as error:
            failed.append(error)

    threads = [
        threading.Thread(target=write, args=[call])
        for call in (
            partial(cars.put, {"id": "lost"}), partial(roads.publish, "a", {}, ttl_s=600, id="lost")
        )
    ]  # fmt: skip
    for thread in threads:
        thread.start()
    wait_for(lambda: cars.get("lost") is not None or failed)  # the writer's own node may see it
    assert (sub.take(), live.take(), list(feed.take())) == ([], [], [])
    wait_for(lonely.ended.is_set)  # nobody answers: it leads no more
    for thread in threads:
        thread.join()
    assert {type(error) for error in failed} <= {OutcomeUnknown, NotLeading}
    nodes.stop(first)
    others = [number for number in nodes.settings if number != first]
    nodes.start(*others)
    nodes.open[nodes.leader()].db.collection("cars").put({"id": 2})
    nodes.start(first)
    nodes.caught_up()
    db = nodes.open[first].db
    assert sorted(car["id"] for car in db.collection("cars").find({})) == [1, 2]
    assert db.channel("roads").find("a") == []


def test_who_has_no_thread_to_wait_in_is_told_when_it_is_agreed_or_never_will_be(
    nodes: Nodes,
) -> None:
    cars = nodes.open[nodes.leader()].db.collection("cars", key="id")
    _, waits = without_waiting(lambda: cars.put({"id": 1}))
    for log, position in waits:  # none, where the others were that quick
        told = threading.Event()
        judge = log.notify(position, told.set)
        assert told.wait(60)
        judge()  # raises nothing
    nodes.stop(*nodes.followers())
    _, waits = without_waiting(lambda: cars.put({"id": 2}))
    [(log, position)] = waits
    assert cars.get(2) == {"id": 2}  # here already
    told = threading.Event()
    judge, early = log.notify(position, told.set), log.notify(position, lambda: None)
    with pytest.raises(OutcomeUnknown, match="no majority"):
        early()
    assert told.wait(60)  # nobody answers: it leads no more
    with pytest.raises(OutcomeUnknown, match="leads no more"):
        judge()


def test_a_follower_waits_for_what_the_leader_told_of_and_the_leader_tells_what_stays(
    nodes: Nodes,
) -> None:
    leader = nodes.leader()
    db = nodes.open[leader].db
    fill(db)
    nodes.caught_up()
    roads, cars = db.channel("roads"), db.collection("cars")
    for n in range(20):  # a reader takes a place from the leader, and goes to a follower with it
        roads.publish("I-87", {"n": n}, ttl_s=600, id=f"late-{n}")
        cars.put({"id": f"late-{n}"})
        there = nodes.open[nodes.followers()[0]].db
        table, reached = there.channel("roads").journal("events", upto=roads.position())
        assert reached == roads.position()
        assert f"late-{n}" in table["id"].to_pylist()
        newest = cars.position()
        assert changes_table(there.collection("cars"), newest - 1, newest).num_rows == 1
    # What no majority has is no place to go on from: it may go.
    nodes.caught_up()
    nodes.stop(*nodes.followers())
    before, log = roads.position(), roads.core.engine.store.log
    thread = threading.Thread(target=lambda: _refused(roads))
    thread.start()
    wait_for(lambda: log.end > log.committed or not thread.is_alive())  # or it leads no more
    assert roads.position() == before
    assert roads.journal("events", after=before)[1] == before
    thread.join()


def _refused(roads: Any) -> None:
    with pytest.raises(Unavailable):
        roads.publish("I-87", {}, ttl_s=600, id="alone")


def test_a_node_that_lost_its_disk_gets_a_copy_and_then_the_log(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path, compact_bytes=200_000)
    try:
        nodes.start()
        leader = nodes.leader()
        # What the others have is had over HTTP: so the leader is served.
        with running(nodes.open[leader].db, port=nodes.ports[leader]):
            fill(nodes.open[leader].db)
            cars = nodes.open[leader].db.collection("cars")
            for n in range(100):  # so much that the log before goes
                cars.put({"id": f"large-{n}", "text": "x" * 10_000})
            nodes.caught_up()
            lost = nodes.followers()[0]
            wait_for(lambda: nodes.open[leader].node.status()["groups"][0]["snapshot"] > 0)
            nodes.open[leader].node.compact(
                nodes.open[leader].machine.snapshot(), nodes.open[leader].machine.applied
            )
            nodes.stop(lost)
            shutil.rmtree(nodes.folder(lost))
            with pytest.raises(NotFound, match="tideline cluster recover"):
                nodes.start(lost)
            recover(nodes.folder(lost), nodes.settings[lost])
            nodes.start(lost)
            wait_for(nodes.open[lost].ended.is_set)  # a copy has come
            assert (nodes.folder(lost) / "cluster" / "INSTALL").exists()
            nodes.stop(lost)
            nodes.start(lost)
            cars.put({"id": "after"})
            nodes.caught_up()
            assert shown(nodes.open[lost].db) == shown(nodes.open[leader].db)
            nodes.open[lost].db.check()
            # And it may be closed and opened without asking anybody again.
            nodes.stop(lost)
            nodes.start(lost)
            nodes.caught_up()
            assert not nodes.open[lost].ended.is_set()
            assert shown(nodes.open[lost].db) == shown(nodes.open[leader].db)
    finally:
        nodes.close()


def test_what_is_noted_counts_entries_without_a_value(tmp_path: Path) -> None:
    """Else a node that was compacted after one would ask others for a copy when it starts."""
    nodes = Nodes(tmp_path, 1)
    try:
        for _ in range(3):  # each start is an entry of the leader, without a value
            nodes.start()
            machine = nodes.open[nodes.leader()].machine
            wait_for(lambda machine=machine: machine.reached() >= machine.node.status()["decided"])
            node = machine.node.node
            node.compact(machine.snapshot(), machine.reached())
            assert not machine.why_ended
            nodes.stop(1)
    finally:
        nodes.close()


def test_what_a_node_did_not_take_before_it_was_opened_anew_comes_again(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path)
    try:
        nodes.start()
        leader = nodes.open[nodes.leader()]
        cars = leader.db.collection("cars", key="id")
        cars.put({"id": 0})
        nodes.caught_up()
        behind = nodes.followers()[0]
        nodes.open[behind].machine.end("it is to be opened anew")
        for number in range(1, 20):
            cars.put({"id": number})
        node = nodes.open[behind].node
        wait_for(lambda: node.status()["groups"][0]["applied"] >= leader.machine.applied)
        nodes.stop(behind)  # it notes how far it is
        nodes.start(behind)
        cars.put({"id": 20})
        nodes.caught_up()
        assert len(nodes.open[behind].db.collection("cars").find({})) == 21
    finally:
        nodes.close()


def test_two_nodes_are_two_copies_and_no_failover(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path, 2)
    try:
        nodes.start()
        leader = nodes.leader()
        cars = nodes.open[leader].db.collection("cars", key="id")
        cars.put({"id": 1})
        nodes.caught_up()
        nodes.stop(nodes.followers()[0])
        with pytest.raises(Unavailable):
            cars.put({"id": 2})
        wait_for(nodes.open[leader].ended.is_set)
    finally:
        nodes.close()


def test_the_folder_of_a_node_is_opened_as_one_or_not_at_all(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path, 1)
    with pytest.raises(InvalidRequest, match="node of a cluster"):
        tideline.open(nodes.folder(1))
    with pytest.raises(InvalidRequest, match="empty folder"):
        create(nodes.folder(1), nodes.settings[1])
    with tideline.open(tmp_path / "plain") as db:
        db.channel("roads")
    with pytest.raises(InvalidRequest, match="empty folder"):
        create(tmp_path / "plain", nodes.settings[1])
    with pytest.raises(NotFound, match="tideline cluster create"):
        ClusterNode(tmp_path / "plain", nodes.settings[1])
