"""Groups of replicas on real disks: elections, kills, lost disks, damage, snapshots, members."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from tideline.errors import InvalidRequest
from tideline.replica import (
    DATA,
    Change,
    Core,
    Loaded,
    Member,
    Members,
    Message,
    Options,
    Outcome,
    Propose,
    Read,
    Runner,
    Storage,
    Tick,
)
from tideline.replica.messages import Gone

Event = Message | Tick | Gone | Propose | Read | Change


class Group:
    """Replicas of one process, with a network that is a list; the state is the list of values."""

    def __init__(self, folder: Path, nodes: int) -> None:
        self.folder, self.r = folder, Random(1)
        self.members = Members(tuple(Member(n + 1, 1) for n in range(nodes)))
        self.runners: dict[int, Runner] = {}
        self.states: dict[int, list[bytes]] = {}
        self.network: list[Message] = []
        self.lives = 0
        self.reads: list[tuple[object, list[bytes]]] = []
        for member in self.members.voters:
            Storage.create(self.path(member.node), "test", member, self.members)
            self.start(member.node)

    def path(self, node: int) -> Path:
        return self.folder / f"n{node}"

    def start(self, node: int, peers: tuple[int, ...] = ()) -> None:
        self.lives += 1
        storage = Storage.open(self.path(node), durability="os", segment_bytes=4000)
        self.runners[node] = Runner(storage, life=self.lives, peers=peers)
        snapshot = self.runners[node].core.snapshot
        self.states[node] = storage.snapshot_data().split() if snapshot.index else []

    def kill(self, node: int) -> None:
        self.runners.pop(node).close()

    def step(self, node: int, what: Event) -> Outcome:
        out = self.runners[node].step(what)
        self.network += out.messages
        state = self.states[node]
        if out.state is not None:
            state[:] = out.state[1].split()
        state += [entry.value for entry in out.entries if entry.kind == DATA]
        self.reads += [(token, list(state)) for token, _ in out.reads]
        return out

    def run(self, until: Callable[[], object]) -> None:
        """Let time go on until something holds; a bound in ticks, not in seconds."""
        for _ in range(600):
            if until():
                return
            self.tick()
        raise AssertionError("it did not come about")

    def tick(self, arrives: Callable[[Message], bool] = lambda message: True) -> None:
        """A tick for everybody, and all messages that follow, but those that do not arrive."""
        for node in list(self.runners):
            self.step(node, Tick(self.r.random()))
        while self.network:
            message = self.network.pop(0)
            if message.to.node in self.runners and arrives(message):
                self.step(message.to.node, message)

    def leader(self) -> int:
        self.run(lambda: any(r.core.leads for r in self.runners.values()))
        leads = [(r.core.promised, node) for node, r in self.runners.items() if r.core.leads]
        return max(leads)[1]

    def put(self, *values: bytes) -> None:
        """Propose, and wait until everybody who runs has it."""
        out = self.step(self.leader(), Propose(values))
        assert out.refusals == [None]
        self.run(lambda: all(s[-len(values) :] == list(values) for s in self.running()))

    def running(self) -> list[list[bytes]]:
        return [self.states[node] for node in self.runners]

    def close(self) -> None:
        for node in list(self.runners):
            self.kill(node)


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    group = Group(tmp_path, 3)
    yield group
    group.close()


def numbers(first: int, last: int) -> list[bytes]:
    return [b"%d" % n for n in range(first, last + 1)]


def test_what_was_decided_survives_the_death_of_every_leader(group: Group) -> None:
    group.put(b"1")
    for n in range(2, 6):
        gone = group.leader()
        group.kill(gone)
        group.put(b"%d" % n)
        group.start(gone)
        group.run(lambda: all(s == numbers(1, n) for s in group.running()))  # noqa: B023
    group.close()
    for node in (1, 2, 3):
        group.start(node)
    group.run(lambda: all(s == numbers(1, 5) for s in group.running()))


def test_one_of_three_decides_nothing(group: Group) -> None:
    group.put(b"1")
    alone = group.leader()
    for node in {1, 2, 3} - {alone}:
        group.kill(node)
    assert group.step(alone, Propose((b"2",))).refusals == [None]
    group.run(lambda: not group.runners[alone].core.leads)
    out = group.step(alone, Propose((b"3",)))
    assert out.refusals == ["not the leader"]
    assert group.step(alone, Read("r")).failed == ["r"]
    assert group.states[alone] == [b"1"]


def test_reads_see_what_was_acknowledged(group: Group) -> None:
    group.put(b"1", b"2")
    group.step(group.leader(), Read("a"))
    group.run(lambda: group.reads)
    assert group.reads == [("a", [b"1", b"2"])]
    other = next(node for node in group.runners if node != group.leader())
    assert group.step(other, Read("b")).failed == ["b"]
    group.run(lambda: (group.runners[other].core.stale_ticks or 99) <= 4)


def test_a_lost_disk_comes_back_as_another_member(group: Group) -> None:
    """Nobody counts what it promised before; it votes again when it has what is decided."""
    group.put(*numbers(1, 50))
    lost = next(node for node in group.runners if node != group.leader())
    group.kill(lost)
    shutil.rmtree(group.path(lost))
    new = Member(lost, 2)
    Storage.recover(group.path(lost), "test", new)
    group.start(lost, peers=tuple(n for n in (1, 2, 3) if n != lost))
    assert not group.runners[lost].core.members.voters
    boss = group.leader()
    group.run(lambda: new in group.runners[boss].core.members.voters)
    group.run(lambda: all(s == numbers(1, 50) for s in group.running()))
    assert Member(lost, 1) not in group.runners[boss].core.members.all
    other = next(n for n in (1, 2, 3) if n not in (boss, lost))
    group.kill(other)  # now the new one is needed
    group.put(b"51")


def test_a_damaged_entry_is_given_again_by_others(group: Group) -> None:
    group.put(*(b"value-%d" % n for n in range(1, 30)))
    node = next(node for node in group.runners if node != group.leader())
    group.kill(node)
    for file in sorted(group.path(node).glob("log-*/log-*.log")):
        data = file.read_bytes()
        for value in (b"value-7", b"value-29"):
            if value in data:
                changed = data.index(value)
                data = data[:changed] + b"V" + data[changed + 1 :]
        file.write_bytes(data)
    group.start(node)
    assert len(group.runners[node].core.holes) == 2
    group.run(lambda: not group.runners[node].core.holes)
    group.run(lambda: group.states[node] == [b"value-%d" % n for n in range(1, 30)])
    group.kill(node)
    group.start(node)
    assert not group.runners[node].core.holes


@pytest.mark.parametrize("keep", [0, 20])
def test_who_was_away_catches_up_by_log_or_by_snapshot(group: Group, keep: int) -> None:
    group.put(*numbers(1, 20))
    away = next(node for node in group.runners if node != group.leader())
    group.kill(away)
    group.put(*numbers(21, 30))
    for node, runner in group.runners.items():
        runner.compact(b" ".join(group.states[node]), runner.core.delivered, keep=keep)
    group.put(b"31")
    group.start(away)
    group.run(lambda: all(s == numbers(1, 31) for s in group.running()))
    assert bool(group.runners[away].core.snapshot.index) == (keep == 0)
    for node in (1, 2, 3):
        group.kill(node)
        group.start(node)
    group.run(lambda: all(s == numbers(1, 31) for s in group.running()))


def test_members_come_and_go_one_at_a_time(group: Group) -> None:
    group.put(b"1")
    boss = group.leader()
    core = group.runners[boss].core
    new = Member(4, 9)
    Storage.recover(group.path(4), "test", new)
    group.start(4, peers=(1, 2, 3))
    fewer = Members(group.members.voters[:1])
    twice = Members((*group.members.voters, Member(1, 5)))
    assert "at most one voter" in str(group.step(boss, Change(fewer)).refusals[0])
    assert "named twice" in str(group.step(boss, Change(twice)).refusals[0])
    assert group.step(boss, Change(Members(core.members.voters, (new,)))).refusals == [None]
    second = group.step(boss, Change(Members(core.members.voters[:2])))
    assert second.refusals == ["the change before is not decided yet"]
    group.run(lambda: new in core.members.voters)
    group.put(b"2")
    gone = next(m for m in core.members.voters if m.node not in (boss, 4))
    left = Members(tuple(m for m in core.members.voters if m != gone))
    group.run(lambda: group.step(boss, Change(left)).refusals == [None])
    group.kill(gone.node)
    group.put(b"3")
    assert group.states[4] == [b"1", b"2", b"3"]


def test_a_leader_that_is_removed_hands_over(group: Group) -> None:
    group.put(b"1")
    boss = group.leader()
    rest = tuple(m for m in group.members.voters if m.node != boss)
    group.run(lambda: group.step(boss, Change(Members(rest))).refusals == [None])
    group.run(lambda: not group.runners[boss].core.leads)
    group.kill(boss)
    group.put(b"2")


def test_two_nodes_decide_only_together(tmp_path: Path) -> None:
    """Two copies, and no failover: that is what two nodes give."""
    group = Group(tmp_path, 2)
    group.put(b"1")
    group.kill(3 - group.leader())
    left = next(iter(group.runners))
    group.run(lambda: not group.runners[left].core.leads)
    for _ in range(100):
        group.step(left, Tick(0.1))
    assert not group.runners[left].core.leads
    group.close()


def test_messages_for_another_incarnation_are_not_heard(group: Group) -> None:
    group.put(b"1")
    boss = group.leader()
    other = next(node for node in group.runners if node != boss)
    core = Core(Member(other, 2), Loaded.new(), life=1)
    before = core.promised
    out = group.step(boss, Propose((b"2",)))
    for message in out.messages:
        core.step(message)
    assert core.promised == before
    assert core.last == 0


def test_wrong_settings_say_what_is_wrong() -> None:
    with pytest.raises(InvalidRequest, match="heartbeat_ticks"):
        Options(heartbeat_ticks=7, lease_ticks=12)
    with pytest.raises(InvalidRequest, match="drift"):
        Options(drift=0.7)
    with pytest.raises(InvalidRequest, match="window_entries starts at 1"):
        Options(window_entries=0)
    with pytest.raises(InvalidRequest, match="start at 1"):
        Core(Member(0, 1), Loaded.new(), life=1)


def test_the_examples_of_the_page_run() -> None:
    page = Path(__file__).resolve().parents[2] / "docs" / "internals" / "replication.md"
    for part in page.read_text(encoding="utf-8").split("```python\n")[1:]:
        exec(compile(part.split("```")[0], str(page), "exec"), {})


def test_a_damaged_entry_does_not_count_as_one_that_was_never_there(group: Group) -> None:
    """Two have a decided entry; one of them lost its value, and the third never had it."""
    group.put(b"value-1")
    boss = group.leader()
    behind, damaged = (node for node in (1, 2, 3) if node != boss)
    group.kill(behind)
    group.put(b"value-2")
    group.close()
    (file,) = group.path(damaged).glob("log-1/log-*.log")
    file.write_bytes(file.read_bytes().replace(b"value-2", b"value-?"))
    group.start(damaged)
    group.start(behind)
    for _ in range(150):  # these two are a majority, and must not decide without that entry
        for node in (damaged, behind):
            group.step(node, Tick(group.r.random()))
        messages, group.network = group.network, []
        for message in messages:
            if message.to.node != boss:
                group.step(message.to.node, message)
    assert not any(runner.core.leads for runner in group.runners.values())
    group.start(boss)
    group.run(lambda: all(s == [b"value-1", b"value-2"] for s in group.running()))


def test_who_is_said_to_be_gone_is_replaced_when_its_lease_is_over_and_not_before(
    group: Group,
) -> None:
    group.put(b"a")
    leader, options = group.leader(), Options()
    others = [node for node in group.runners if node != leader]
    promised = group.runners[leader].core.promised
    group.kill(leader)
    for node in others:
        group.step(node, Gone(leader))
        assert group.runners[node].core.leader is None
    ticks = 0
    while not any(runner.core.leads for runner in group.runners.values()):
        ticks += 1
        group.tick()
        asked = max(runner.core.promised for runner in group.runners.values()) > promised
        assert not asked or ticks > options.lease_ticks
    assert ticks <= options.lease_ticks + 1 + options.heartbeat_ticks
    assert ticks < options.election_ticks


def test_who_leads_goes_on_leading_when_it_is_said_to_be_gone(group: Group) -> None:
    group.put(b"a")
    leader = group.leader()
    promised = group.runners[leader].core.promised
    for _ in range(100):
        for node in group.runners:
            group.step(node, Gone(leader))
        group.tick()
    assert group.leader() == leader
    assert group.runners[leader].core.promised == promised
    group.put(b"b")


def test_who_does_not_hear_the_leader_is_followed_by_nobody_who_does(group: Group) -> None:
    group.put(b"a")
    leader = group.leader()
    cut = next(node for node in group.runners if node != leader)
    promised = group.runners[leader].core.promised
    for _ in range(100):
        group.tick(lambda m: {m.sender.node, m.to.node} != {cut, leader})
    assert group.runners[cut].core.leader is None
    assert group.leader() == leader
    assert group.runners[leader].core.promised == promised
