"""Nodes in this process, on loopback: what callers of `Node` are promised."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from threading import Event

import pytest
from ports import free_ports

from tideline.errors import Closed, InvalidRequest, NotFound, Unavailable
from tideline.replica import Entry, Mark, Node, NotLeader

SECRET = b"a secret of enough bytes"
GUARD_S = 60.0  # nothing takes as long


class Words:
    """A machine: the list of all values."""

    def __init__(self) -> None:
        self.words: list[bytes] = []
        self.index = 0
        self.roles: list[tuple[bool, int | None]] = []
        self.installed = 0

    def apply(self, entries: list[Entry]) -> None:
        assert entries[0].index > self.index
        self.words += [entry.value for entry in entries]
        self.index = entries[-1].index

    def snapshot(self) -> bytes:
        return b" ".join(self.words)

    def install(self, mark: Mark, state: bytes) -> None:
        self.words, self.index = state.split(), mark.index
        self.installed += 1

    def role(self, leads: bool, leader: int | None) -> None:
        self.roles.append((leads, leader))


class Nodes:
    """Nodes 1 to n and their machines."""

    def __init__(self, folder: Path, count: int, groups: int = 1) -> None:
        self.folder, self.groups = folder, groups
        self.peers = {n + 1: ("127.0.0.1", port) for n, port in enumerate(free_ports(count))}
        self.nodes: dict[int, Node] = {}
        self.machines: dict[int, list[Words]] = {}
        for n in self.peers:
            Node.create(self.path(n), "test", n, self.peers, groups)

    def path(self, n: int) -> Path:
        return self.folder / f"n{n}"

    def start(self, *which: int, secret: bytes = SECRET, compact_bytes: int = 1 << 30) -> None:
        for n in which or self.peers:
            machines = self.machines[n] = [Words() for _ in range(self.groups)]
            node = Node(
                self.path(n), cluster="test", node=n, listen=self.peers[n], peers=self.peers,
                secret=secret, machines=machines, durability="os", compact_bytes=compact_bytes,
            )  # fmt: skip
            node.start()
            self.nodes[n] = node

    def stop(self, n: int) -> None:
        self.nodes.pop(n).close()

    def leader(self, group: int = 0) -> Node:
        found: list[Node] = []

        def leads() -> bool:
            found[:] = [node for node in self.nodes.values() if node.leads(group)]
            return bool(found)

        until(leads)
        return found[0]

    def elections(self) -> int:
        """How often somebody came to lead."""
        machines = [machine for some in self.machines.values() for machine in some]
        return sum(leads for machine in machines for leads, _ in machine.roles)

    def put(self, *values: bytes, group: int = 0) -> None:
        """Propose on whoever leads, until they are decided."""
        for value in values:
            while True:
                try:
                    self.leader(group).propose([value], group).wait(GUARD_S)
                    break
                except NotLeader:
                    continue

    def close(self) -> None:
        for node in self.nodes.values():
            node.close()


def until(holds: Callable[[], object]) -> None:
    """Wait for a condition."""
    event = Event()
    for _ in range(int(GUARD_S / 0.01)):
        if holds():
            return
        event.wait(0.01)
    raise AssertionError("it did not come about")


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    found = Nodes(tmp_path, 3)
    found.start()
    yield found
    found.close()


def test_three_nodes_keep_the_same(tmp_path: Path) -> None:
    for tried in count():
        nodes = Nodes(tmp_path / str(tried), 3)
        nodes.start()
        try:
            keep_the_same(nodes)
            return
        except (AssertionError, pytest.fail.Exception, NotLeader, Unavailable):
            if nodes.elections() <= 1:
                raise  # on a busy machine another may come to lead meanwhile
        finally:
            nodes.close()


def keep_the_same(nodes: Nodes) -> None:
    """What holds as long as one leads."""
    wanted = [b"%d" % n for n in range(100)]
    leader = nodes.leader()
    proposals = [leader.propose([value]) for value in wanted]
    assert [p.index for p in proposals] == list(range(proposals[0].index, proposals[-1].index + 1))
    for proposal in proposals:
        proposal.wait(GUARD_S)
        assert proposal.done
    assert leader.read_index(GUARD_S) >= proposals[-1].index
    (mine,) = nodes.machines[leader.node]
    assert mine.words == wanted
    assert mine.roles[-1] == (True, leader.node)
    until(lambda: all(m.words == wanted for (m,) in nodes.machines.values()))
    for node in nodes.nodes.values():
        until(lambda: (node.stale_s() or 0.0 if node.stale_s() is not None else 99) < 5)  # noqa: B023
        if node is not leader:
            until(lambda: node.leader() == leader.node)  # noqa: B023
            with pytest.raises(NotLeader) as raised:
                node.propose([b"x"])
            assert raised.value.leader == leader.node
            with pytest.raises(NotLeader):
                node.read_index(GUARD_S)
    status = leader.status()["groups"][0]
    assert status["role"] == "leader"
    assert status["last"] == proposals[-1].index
    assert [n for n, _ in status["members"]["voters"]] == [1, 2, 3]


def test_another_leads_when_the_leader_stops_and_it_comes_back(nodes: Nodes) -> None:
    nodes.put(b"1")
    gone = nodes.leader().node
    nodes.stop(gone)
    nodes.put(b"2")
    assert nodes.leader().node != gone
    nodes.start(gone)
    nodes.put(b"3")
    until(lambda: all(m.words == [b"1", b"2", b"3"] for (m,) in nodes.machines.values()))


def test_alone_nothing_is_decided_and_that_is_said(nodes: Nodes) -> None:
    nodes.put(b"1")
    while True:
        leader = nodes.leader()
        others = set(nodes.peers) - {leader.node}
        for n in others:
            nodes.stop(n)
        try:
            proposal = leader.propose([b"2"])
            break
        except NotLeader:  # to stop them took so long that it leads no more
            nodes.start(*others)
    with pytest.raises(Unavailable, match="not decided yet"):
        proposal.wait(0.1)
    until(lambda: not leader.leads())
    until(lambda: nodes.machines[leader.node][0].roles[-1] == (False, None))
    with pytest.raises(NotLeader):
        leader.propose([b"3"])
    leader.close()
    with pytest.raises(Unavailable, match="the node was closed"):
        proposal.wait(GUARD_S)
    with pytest.raises(Closed):
        leader.leads()


def test_who_was_away_for_long_gets_a_snapshot(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path, 3)
    nodes.start(1, 2, compact_bytes=200_000)
    wanted = [b"%06d" % n + bytes(2000).replace(b"\0", b"x") for n in range(400)]
    leader = nodes.leader()
    for value in wanted:
        proposal = leader.propose([value])
    proposal.wait(GUARD_S)
    until(lambda: leader.status()["groups"][0]["snapshot"] > 0)
    leader.compact(nodes.machines[leader.node][0].snapshot(), nodes.machines[leader.node][0].index)
    nodes.start(3, compact_bytes=200_000)
    until(lambda: nodes.machines[3][0].words == wanted)
    for n in (1, 2, 3):
        nodes.stop(n)
    nodes.start(compact_bytes=200_000)
    nodes.put(b"last")
    until(lambda: all(m.words == [*wanted, b"last"] for (m,) in nodes.machines.values()))
    nodes.close()


def test_groups_have_leaders_of_their_own_over_one_network(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path, 3, groups=3)
    nodes.start()
    for group in range(3):
        nodes.put(b"%d" % group, group=group)
    for machines in nodes.machines.values():
        until(lambda: [m.words for m in machines] == [[b"0"], [b"1"], [b"2"]])  # noqa: B023
    found = {nodes.nodes[1].group_of(n) for n in range(50)}
    assert found == {0, 1, 2}
    nodes.close()


def test_wrong_calls_say_what_is_wrong(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path, 1)
    with pytest.raises(InvalidRequest, match="empty folder"):
        Node.create(nodes.path(1), "test", 1, [1])
    with pytest.raises(InvalidRequest, match="one of the members"):
        Node.create(tmp_path / "other", "test", 2, [1])
    with pytest.raises(InvalidRequest, match="16 bytes"):
        nodes.start(secret=b"short")
    nodes.groups = 2
    with pytest.raises(InvalidRequest, match="another number of groups"):
        nodes.start()
    nodes.groups = 1
    nodes.start()
    node = nodes.leader()
    with pytest.raises(InvalidRequest, match="at least one value"):
        node.propose([])
    with pytest.raises(InvalidRequest, match="a value is bytes"):
        node.propose(["x"])  # type: ignore[list-item]
    with pytest.raises(InvalidRequest, match="too large"):
        node.propose([bytes(17 << 20)])
    with pytest.raises(InvalidRequest, match="no such group"):
        node.propose([b"x"], group=1)
    with pytest.raises(NotFound, match="does not ask"):
        node.add(9)
    other = Node(
        tmp_path / "nothing", cluster="test", node=1, listen=("127.0.0.1", 0), peers={},
        secret=SECRET, machines=[Words()],
    )  # fmt: skip
    with pytest.raises(NotFound, match="no node is in this folder"):
        other.start()
    nodes.close()
