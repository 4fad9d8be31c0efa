"""Nodes as processes that are killed, stopped, cut off and slowed: no acknowledged value is lost,
doubled or reordered, and what clients saw is linearizable."""

from __future__ import annotations

import resource
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from processes import GUARD_S, Clients, Cluster, Refused, until


@pytest.fixture
def clusters(tmp_path: Path) -> Iterator[list[Cluster]]:
    """What a test adds to it is closed."""
    found: list[Cluster] = []
    yield found
    for cluster in found:
        cluster.close()


def test_leaders_that_are_killed_under_load_lose_nothing(
    clusters: list[Cluster], tmp_path: Path
) -> None:
    cluster = Cluster(tmp_path, compact_bytes=20_000)
    clusters.append(cluster)
    clients = Clients(cluster, pad=50)
    for _ in range(2):
        clients.until_more(150)
        gone = cluster.leader()
        cluster.kill(gone)
        clients.until_more(100)
        cluster.start(gone)
    clients.until_more(100)
    # And one whose disk is lost comes back as another member, and is needed then.
    lost, boss = (cluster.leader() % 3 + 1), cluster.leader()
    cluster.kill(lost)
    cluster.lose_disk(lost)
    cluster.start(lost)
    until(lambda: any(v[0] == lost and v[1] > 1 for v in voters(cluster, boss)), "it votes")
    other = next(n for n in (1, 2, 3) if n not in (lost, boss))
    cluster.kill(other)
    clients.until_more(100)
    cluster.start(other)
    clients.check()


def voters(cluster: Cluster, n: int) -> list[list[int]]:
    found: list[list[int]] = cluster.group(n)["members"]["voters"]
    return found


def test_a_leader_that_is_cut_off_or_stopped_answers_nothing_old(
    clusters: list[Cluster], tmp_path: Path
) -> None:
    cluster = Cluster(tmp_path)
    clusters.append(cluster)
    clients = Clients(cluster)
    clients.until_more(100)
    for held in (False, True):
        lone = cluster.leader()
        cluster.part({lone}, held=held)
        clients.until_more(100)
        with pytest.raises(Refused):
            cluster.ask(lone, do="call", kind="read", key=0, wait_s=1.0)
        cluster.heal()
        clients.until_more(50)
    frozen = cluster.leader()
    cluster.freeze(frozen)
    # Asked while it stands still, it answers when it goes on: not from what it had.
    late = cluster.members[frozen].ask(do="call", kind="read", key=9, wait_s=5.0)
    others = {1, 2, 3} - {frozen}
    new = cluster.leader(others)
    cluster.ask(new, do="call", kind="put", key=9, word=-1)
    cluster.thaw(frozen)
    error = late.exception(GUARD_S)
    if error is None:
        assert late.result() == [-1]
    else:
        assert isinstance(error, Refused)
    clients.check()


@pytest.mark.long
def test_a_slow_member_slows_nobody(clusters: list[Cluster], tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    clusters.append(cluster)
    boss = cluster.leader()
    slow = boss % 3 + 1
    cluster.proxy.slow[boss, slow] = 20_000
    clients = Clients(cluster, pad=2000)
    clients.until_more(400)
    assert cluster.leader() == boss
    assert cluster.ask(boss, do="status")["network"]["peers"][str(slow)]["connected"]
    cluster.heal()
    clients.check()


@pytest.mark.long
def test_a_full_disk_stops_one_node_until_there_is_room(
    clusters: list[Cluster], tmp_path: Path
) -> None:
    cluster = Cluster(tmp_path)
    clusters.append(cluster)
    clients = Clients(cluster)
    clients.until_more(50)
    full = cluster.leader()
    process = cluster.members[full].process.pid
    before = resource.prlimit(process, resource.RLIMIT_FSIZE)
    resource.prlimit(process, resource.RLIMIT_FSIZE, (1, before[1]))
    until(lambda: "disk is full" in (cluster.group(full)["failure"] or ""), "the disk is full")
    clients.until_more(50)
    assert cluster.group(full)["role"] == "stopped"
    resource.prlimit(process, resource.RLIMIT_FSIZE, before)
    until(lambda: cluster.group(full)["role"] != "stopped", "it goes on")
    clients.check()


def test_followers_are_as_fresh_as_they_say(clusters: list[Cluster], tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    clusters.append(cluster)
    clients = Clients(cluster)
    clients.until_more(50)
    looked = 0
    for n in (1, 2, 3, 1, 2, 3):
        until(lambda: cluster.group(n)["stale_s"] is not None)  # noqa: B023
        for _ in range(20):
            begin = time.monotonic()
            stale_s, order = cluster.ask(n, do="look")
            if stale_s is None:
                continue
            looked += 1
            with clients.lock:
                owed = [word for at, word in clients.acked_at if at < begin - stale_s]
            assert set(owed) <= set(order)
        if n == 3 and looked < 100:
            cluster.part({n})
    assert looked > 50
    cluster.heal()
    clients.check()


def test_nodes_speak_tls_and_members_come_and_go(clusters: list[Cluster], tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificates")
    make_certificates(tmp_path)

    def tls(n: int) -> dict[str, str]:
        names = {"cert": "node.pem", "key": "node.key", "ca": "ca.pem"}
        return {what: str(tmp_path / name) for what, name in names.items()}

    cluster = Cluster(tmp_path, spare=1, tls=tls)
    clusters.append(cluster)
    clients = Clients(cluster)
    clients.until_more(50)
    with pytest.raises(Refused, match="does not ask"):
        cluster.ask(cluster.leader(), do="add", node=4)
    from tideline.replica import Node

    Node.recover(cluster.path(4), "storm", 4)
    cluster.start(4)
    boss = cluster.leader()
    until(lambda: 4 in cluster.group(boss)["asking"])
    cluster.ask(boss, do="add", node=4)
    until(lambda: 4 in [v[0] for v in voters(cluster, cluster.leader())], "4 votes")
    clients.until_more(50)
    until(lambda: removes(cluster, cluster.leader()), "a leader removes itself")
    clients.until_more(50)
    gone = next(n for n in (1, 2, 3) if n not in [v[0] for v in voters(cluster, cluster.leader())])
    cluster.kill(gone)
    clients.until_more(50)
    clients.check()


def removes(cluster: Cluster, boss: int) -> bool:
    """Ask a leader to remove itself; it may be too early for that."""
    try:
        cluster.ask(boss, do="remove", node=boss)
    except Refused as error:
        return error.kind == "OutcomeUnknown"
    return True


def make_certificates(folder: Path) -> None:
    """An authority, and a certificate for the nodes."""

    def run(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    new = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2")
    run("req", "-x509", *new, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=ca")
    run("req", *new[:-2], "-keyout", "node.key", "-out", "node.csr", "-subj", "/CN=node")
    run("x509", "-req", "-in", "node.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
        "-days", "2", "-out", "node.pem")  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize(("count", "durability", "seed"), [
    (3, "os", 1), (3, "disk", 2), (5, "os", 3), (3, "os", 4), (5, "disk", 5),
])  # fmt: skip
def test_storms(clusters: list[Cluster], tmp_path: Path, count: int, durability: str,
                seed: int) -> None:  # fmt: skip
    """Kills, stops, cuts, slow links and lost disks, drawn from a seed, for as long as it takes to
    acknowledge many writes. The machine's timing is its own: a seed is not a run."""
    r = Random(seed)
    cluster = Cluster(tmp_path, count, durability=durability, compact_bytes=100_000)
    clusters.append(cluster)
    clients = Clients(cluster, 6, seed=seed, pad=100)
    for _ in range(25):
        clients.until_more(60)
        boss = cluster.leader()
        victims = r.sample(range(1, count + 1), (count - 1) // 2)
        if r.random() < 0.6 and boss not in victims:
            victims[0] = boss
        match r.choice(["kill", "kill", "freeze", "cut", "held", "slow", "all", "disk"]):
            case "kill":
                for n in victims:
                    cluster.kill(n)
                clients.until_more(r.choice([0, 30, 300]))
                cluster.start(*victims)
            case "freeze":
                for n in victims:
                    cluster.freeze(n)
                clients.until_more(60)
                for n in victims:
                    cluster.thaw(n)
            case "cut" | "held" as how:
                cluster.part(set(victims), held=how == "held")
                clients.until_more(60)
                cluster.heal()
            case "slow":
                cluster.proxy.slow = dict.fromkeys(cluster.proxy.ports, r.choice([20_000, 200_000]))
                clients.until_more(10)
                cluster.heal()
            case "all":  # the lights go out
                for n in list(cluster.members):
                    cluster.kill(n)
                cluster.start(*range(1, count + 1))
            case "disk":
                n = victims[0]
                cluster.kill(n)
                cluster.lose_disk(n)
                cluster.start(n)
                until(lambda: is_voter(cluster, n), "it votes again")  # noqa: B023
    cluster.heal()
    clients.check()


def is_voter(cluster: Cluster, n: int) -> bool:
    """Whether this node's new incarnation votes."""
    me = cluster.group(n)["me"]
    return me in voters(cluster, cluster.leader())
