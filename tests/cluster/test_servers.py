"""Three servers, one database: kill -9 of the leader under load, and clients go on.

Short here; `long` does it again and again. What is promised: docs/guide/three-nodes.md.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster_servers import GUARD_S, Three, three, wait_for

import tideline
from tideline.errors import InvalidRequest, Unavailable


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Three]:
    with three(tmp_path_factory.mktemp("three")) as found:
        yield found


class Load:
    """Clients that write until they are told to stop, and what they were acknowledged."""

    def __init__(self, urls: list[str], tag: str) -> None:
        self._urls, self._tag = urls, tag
        self._stop = threading.Event()
        self.documents: list[str] = []
        self.events: list[str] = []
        self.failed: list[BaseException] = []
        self._threads = [
            threading.Thread(target=self._run, args=[work])
            for work in (self._documents, self._events)
        ]
        for thread in self._threads:
            thread.start()

    def _run(self, work: Callable[[Any], None]) -> None:
        try:
            with tideline.connect(self._urls, timeout_s=GUARD_S) as db:
                work(db)
        except BaseException as error:
            self.failed.append(error)
            raise

    def _documents(self, db: Any) -> None:
        cars, n = db.collection("cars", key="id", journal_before=True), 0
        while not self._stop.is_set():
            try:
                cars.insert({"id": f"{self._tag}-{n}", "n": n})
                self.documents.append(f"{self._tag}-{n}")
            except Unavailable:
                pass  # it may have landed
            n += 1

    def _events(self, db: Any) -> None:
        roads, n = db.channel("roads"), 0
        while not self._stop.is_set():
            id = f"{self._tag}-{n}"
            roads.publish("I-87", {"n": n}, id=id, ttl_s=3600)  # made again, with its id
            self.events.append(id)
            n += 1

    @property
    def count(self) -> int:
        return min(len(self.documents), len(self.events))

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        assert self.failed == []


class Reader:
    """A client that follows a subscription, a live query and the changes of a collection."""

    def __init__(self, urls: list[str]) -> None:
        self._db = tideline.connect(urls, timeout_s=GUARD_S)
        roads, cars = self._db.channel("roads"), self._db.collection("cars")
        self._sub = roads.subscribe("I-87", user="ann", until_s=3600)
        self._live, self._feed = cars.watch({}), cars.changes()
        self.events: list[str] = []
        self.watched: list[str] = []
        self.changed: list[str] = []
        self.seqs: list[int] = []

    def read(self) -> None:
        self.events += [event.id for event in self._sub.take()]
        self.watched += [change.key for change in self._live.take() if change.kind == "add"]
        for change in self._feed.take():
            self.changed.append(change.key)
            self.seqs.append(change.seq)

    def check(self, events: list[str], documents: list[str]) -> None:
        """Read until all is there; nothing twice, and in order."""

        def complete() -> bool:
            self.read()
            return (
                set(events) <= set(self.events)
                and set(documents) <= set(self.watched)
                and set(documents) <= set(self.changed)
            )

        wait_for(complete)
        for found in (self.events, self.watched, self.changed):
            assert len(found) == len(set(found))
        assert [id for id in self.events if id in set(events)] == events
        assert self.seqs == list(range(self.seqs[0], self.seqs[0] + len(self.seqs)))

    def close(self) -> None:
        self._db.close()


def made(servers: Three) -> None:
    with tideline.connect(servers.all) as db:
        db.collection("cars", key="id", journal_before=True)
        db.channel("roads")


class AsyncReader:
    """An async client that follows a subscription, in a thread of its own."""

    def __init__(self, urls: list[str]) -> None:
        self.events: list[str] = []
        self._stop = threading.Event()
        self._begun = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._read(urls)))
        self._thread.start()
        assert self._begun.wait(GUARD_S)

    async def _read(self, urls: list[str]) -> None:
        async with await tideline.aconnect(urls, timeout_s=GUARD_S) as db:
            roads = await db.channel("roads")
            sub = await roads.subscribe("I-87", user="bob", until_s=3600)
            self._begun.set()
            while not self._stop.is_set():
                self.events += [event.id for event in await sub.take(timeout_s=0.2)]

    def check(self, events: list[str]) -> None:
        wait_for(lambda: set(events) <= set(self.events))
        self._stop.set()
        self._thread.join()
        assert [id for id in self.events if id in set(events)] == events


def storm(servers: Three, kills: int, tag: str, *, wipe: bool = False) -> None:
    """Kill the leader while clients write and read; everything acknowledged is there once."""
    made(servers)
    reader, beside = Reader(servers.all), AsyncReader(servers.all)
    load = Load(servers.all, tag)
    draw = random.Random(tag)
    try:
        for _ in range(kills):
            begun = load.count
            wait_for(lambda begun=begun: load.count > begun + 20)
            leader = servers.leader()
            time.sleep(draw.random() * 0.2)
            servers.kill(leader)
            begun = load.count
            wait_for(lambda begun=begun: load.count > begun + 20)  # clients go on
            reader.read()
            if wipe:  # it loses its disk, too
                servers.wipe(leader)
            servers.start(leader)
            servers.caught_up(leader)
    finally:
        load.stop()
    reader.check(load.events, load.documents)
    beside.check(load.events)
    reader.close()

    def all_is_there(leader: str) -> None:
        with servers.connect(leader) as db:  # a follower may lack the newest
            found = [car["id"] for car in db.collection("cars").find({}) if tag in car["id"]]
            assert set(load.documents) <= set(found)
            assert len(found) == len(set(found))
            stored = [event.id for event in db.channel("roads").find("I-87") if tag in event.id]
            assert sorted(stored) == sorted(load.events)

    servers.while_one_leads(all_is_there)
    counts = set()
    for name in servers.peers:  # the same on all
        servers.caught_up(name)
        with tideline.connect(servers.urls[name]) as db:
            counts.add((db.collection("cars").count(), len(db.channel("roads").find("I-87"))))
    assert len(counts) == 1


def test_a_leader_that_is_killed_under_load_loses_nothing_and_comes_back_without_its_disk(
    servers: Three,
) -> None:
    storm(servers, 1, "first", wipe=True)


def test_a_follower_answers_reads_as_stale_as_allowed_and_says_who_leads(servers: Three) -> None:
    made(servers)
    path = "/v1/collections/cars/documents/seen"

    def look(leader: str) -> None:
        follower = next(name for name in servers.peers if name != leader)
        with tideline.connect(servers.urls[follower]) as db:
            db.collection("cars").put({"id": "seen"})  # goes to the leader by itself
            assert db.url == servers.urls[leader]
        servers.caught_up(follower)
        status, said, headers = servers.ask(follower, f"{path}?max_stale_s=60")
        assert (status, said) == (200, {"id": "seen"})
        assert 0 <= float(headers["tideline-stale-s"]) < 60
        status, said, headers = servers.ask(follower, f"{path}?linearizable=1")
        assert (status, said["error"]["kind"]) == (307, "NotLeading")
        assert headers["location"] == f"{servers.urls[leader]}{path}?linearizable=1"
        assert servers.ask(leader, f"{path}?linearizable=1")[:2] == (200, {"id": "seen"})
        for query in ("max_stale_s=-1", "max_stale_s=x", "linearizable=maybe"):
            assert servers.ask(follower, f"{path}?{query}")[0] == 400
        status, said, _ = servers.ask(follower, "/healthz")
        assert (status, said["role"], said["leader"]) == (200, "follower", servers.urls[leader])

    servers.while_one_leads(look)
    # Cut off from the others, a follower says so, and whoever wants fresh data is refused.
    leader = servers.leader()
    follower, other = (name for name in servers.peers if name != leader)
    servers.caught_up(follower)
    servers.pause(leader)
    servers.pause(other)
    try:

        def refused() -> bool:
            status, said, _ = servers.ask(follower, f"{path}?max_stale_s=0.5")
            return status == 503 and said["error"]["kind"] == "Stale"

        wait_for(refused)
        assert servers.ask(follower, path)[:2] == (200, {"id": "seen"})
    finally:
        servers.go_on(leader)
        servers.go_on(other)
    servers.leader()


def test_the_metrics_tell_the_role_and_the_lag(servers: Three) -> None:
    import urllib.request

    def look(leader: str) -> None:
        roles = {}
        for name in servers.peers:
            with urllib.request.urlopen(servers.urls[name] + "/metrics") as answer:
                lines = dict(
                    line.rsplit(" ", 1)
                    for line in answer.read().decode().splitlines()
                    if line.startswith("tideline_cluster_")
                )
            roles[name] = lines["tideline_cluster_leads"]
            assert int(lines["tideline_cluster_decided_index"]) > 0
            assert float(lines["tideline_cluster_stale_seconds"]) >= 0
            assert int(lines["tideline_cluster_applied_index"]) > 0
        assert roles == {name: "1" if name == leader else "0" for name in servers.peers}

    servers.while_one_leads(look)


def test_a_server_of_no_cluster_says_so(tmp_path: Path) -> None:
    from tideline.server import running

    with (
        tideline.open(tmp_path / "plain") as db,
        running(db) as url,
        tideline.connect(url) as remote,
        pytest.raises(tideline.NotFound, match="--node"),
    ):
        remote.cluster()
    with pytest.raises(InvalidRequest):
        tideline.connect([])


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_leaders_are_killed_again_and_again(tmp_path: Path, seed: int) -> None:
    with three(tmp_path) as found:
        storm(found, 8, f"storm-{seed}", wipe=seed == 2)


@pytest.mark.long
def test_a_node_is_added_and_the_leader_is_removed(tmp_path: Path) -> None:
    with three(tmp_path) as found, found.connect() as db:
        cars = db.collection("cars", key="id")
        cars.put({"id": 1})
        found.add("n4")
        with pytest.raises(tideline.NotFound, match="start it first"):
            db.cluster_add("n4")
        found.start("n4")
        found.take_in("n4")
        found.caught_up("n4")
        assert found.ask("n4", "/v1/collections/cars/documents/1")[:2] == (200, {"id": 1})
        leader = found.leader()
        db.cluster_remove(leader)
        cars.put({"id": 2})
        following = found.leader(but=leader)
        assert len(found.status(following)["nodes"]) == 3
        with pytest.raises(tideline.NotFound, match="no member"):
            db.cluster_remove("n9")


@pytest.mark.long
def test_all_of_it_over_tls(tmp_path: Path) -> None:
    with three(tmp_path, tls=True) as found, found.connect() as db:
        cars = db.collection("cars", key="id")
        cars.put({"id": 1})
        leader = found.leader()
        found.kill(leader)
        found.wipe(leader)
        cars.put({"id": 2})
        found.start(leader)
        found.caught_up(leader)
        assert found.ask(leader, "/v1/collections/cars/documents/2")[:2] == (200, {"id": 2})


@pytest.mark.long
def test_linearizable_reads_stay_so_while_leaders_stand_still(tmp_path: Path) -> None:
    with three(tmp_path) as found:
        with found.connect() as db:
            db.collection("counts", key="id").put({"id": "x", "n": 0})
        acked, reads = [0], [0]
        wrong: list[Any] = []
        stop = threading.Event()

        def write() -> None:
            with found.connect() as db:
                counts, n = db.collection("counts"), 0
                while not stop.is_set():
                    n += 1
                    try:
                        counts.put({"id": "x", "n": n})
                        acked[0] = n
                    except Unavailable:
                        pass  # it may have landed

        def read() -> None:
            last = 0
            while not stop.is_set():
                for name in found.peers:
                    before = acked[0]
                    try:
                        status, said, _ = found.ask(
                            name, "/v1/collections/counts/documents/x?linearizable=1"
                        )
                    except OSError:
                        continue
                    if status == 200:
                        reads[0] += 1
                        if said["n"] < max(before, last):
                            wrong.append((name, said, before, last))
                        last = max(last, said["n"])

        threads = [threading.Thread(target=work) for work in (write, read)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(4):
                begun = acked[0], reads[0]
                wait_for(lambda begun=begun: acked[0] > begun[0] + 20 and reads[0] > begun[1] + 5)
                leader = found.leader()
                found.pause(leader)
                found.leader(but=leader)
                found.go_on(leader)
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        assert wrong == []
