"""A world of replicas that replays from one seed: network, disks, clocks, clients and faults.

    World(seed).run()        raises `Wrong` with what was promised and not kept

Each seed draws its own mixture of faults: lost, late, doubled and reordered messages, partitions
that are partial and one-way, clocks that drift, disks that take their time, crashes at any write
with a part of it on disk, full disks, damaged entries, lost disks, snapshots, changes of members.

What is checked:
- no two replicas apply different entries at one index, and none is applied twice or left out
- what clients saw is linearizable (histories.py), also in the order of the log
- what a replica calls fresh is as fresh as it says
- when all faults end, the group goes on within bounded time

The replicas are `tideline.replica.Core`; only the disk, the network and the clock are made up here.
"""

from __future__ import annotations

import heapq
import marshal
from bisect import bisect_right
from collections import deque
from dataclasses import dataclass, field, replace
from itertools import pairwise
from random import Random
from typing import Any

from histories import NEVER, Call, is_linearizable

from tideline.errors import TidelineError
from tideline.replica import (
    DATA,
    Ballot,
    Change,
    Compact,
    Core,
    Damaged,
    Entry,
    Loaded,
    Member,
    Members,
    Message,
    Options,
    Outline,
    Propose,
    Read,
    Tick,
)
from tideline.replica.messages import (
    Accept,
    Append,
    CompactTo,
    Event,
    Fill,
    Gone,
    Install,
    InstallSnapshot,
    Promised,
    Repaired,
    Supply,
    Truncate,
    Write,
)

OPTIONS = Options(
    heartbeat_ticks=2, election_ticks=8, lease_ticks=7, drift=0.25, batch_entries=4,
    window_entries=12,
)  # fmt: skip
MOST_EVENTS = 40_000  # an ordinary run has a tenth of it
TICK = 10.0  # units of the world's time


class Wrong(AssertionError):
    """A promise was broken."""


class WithData(CompactTo, frozen=True):
    """A snapshot of the node's own, which lands with its mark."""

    data: bytes


class Disk:
    """What writes make of a disk."""

    def __init__(self, loaded: Loaded, entries: dict[int, Entry]) -> None:
        self.promised = loaded.promised
        self.snapshot = loaded.snapshot
        self.base = loaded.outline.base
        self.data = marshal.dumps({})
        self.entries = entries
        self.damaged: set[int] = set()

    @classmethod
    def new(cls, members: Members | None) -> Disk:
        loaded = Loaded.new(members)
        first = {} if members is None else {1: Entry(1, Ballot(0, 0, 0), 2, members.encode())}
        return cls(loaded, first)

    def copy(self) -> Disk:
        other = Disk.__new__(Disk)
        other.__dict__.update(self.__dict__)
        other.entries, other.damaged = dict(self.entries), set(self.damaged)
        return other

    def load(self) -> Loaded:
        entries = [self.entries[i] for i in sorted(self.entries)]
        outline = Outline(self.base, entries)
        outline.holes = set(self.damaged)
        return Loaded(self.promised, self.snapshot, outline)

    def apply(self, write: Write) -> None:
        match write:
            case Promised():
                self.promised = write.ballot
            case Append():
                for entry in write.entries:
                    self.entries[entry.index] = entry
            case Truncate():
                self._keep(lambda index: index < write.index)
            case Fill():
                self.entries[write.entry.index] = write.entry
                self.damaged.discard(write.entry.index)
            case CompactTo():
                self.snapshot, self.base = write.mark, write.base
                if isinstance(write, WithData):
                    self.data = write.data
                self._keep(lambda index: index > write.base.index)
            case InstallSnapshot():
                self.snapshot = self.base = write.mark
                self.data = write.data
                self._keep(lambda index: write.keep and index > write.mark.index)

    def _keep(self, which: Any) -> None:
        self.entries = {i: e for i, e in self.entries.items() if which(i)}
        self.damaged = {i for i in self.damaged if which(i)}


@dataclass
class Node:
    """One machine; `core` is None while it is down."""

    member: Member
    disk: Disk
    peers: tuple[int, ...] = ()
    core: Core | None = None
    view: Disk = None  # type: ignore[assignment]  # the disk with what is still being written
    queue: deque[tuple[float, list[Write], list[Message]]] = field(default_factory=deque)
    state: dict[int, tuple[int, ...]] = field(default_factory=dict)
    applied: int = 0
    proposals: dict[int, tuple[Ballot, int]] = field(default_factory=dict)
    reads: list[tuple[int, int]] = field(default_factory=list)
    rate: float = TICK
    lives: int = 0
    ticks: list[float] = field(default_factory=list)
    gone: bool = False


@dataclass
class Faults:
    """How often what goes wrong, drawn from the seed."""

    loss: float
    twice: float
    delay: float
    late: float
    split: float
    crash: float
    damage: float
    wipe: float
    change: float
    pause: float
    snapshot: int
    latency: float
    drift: float
    spread: float
    heavy: float = 0.0
    """How long a snapshot travels, also when all is calm."""
    slow: float = 0.0
    """How much longer some disks take."""
    aside: float = 0.0
    """How often one is cut off from the leader only, and the others start again and again."""
    burst: int = 0
    """How many values leaders are given when links break."""
    every: float = 1.0
    """How long it is between two things that go wrong, beside how long it is otherwise."""
    resize: float = 0.0
    """How often leaders are asked for several changes of members when links break."""
    hint: float = 0.5
    """How often it is noticed that somebody crashed, and said of somebody who did not."""

    @classmethod
    def draw(cls, r: Random) -> Faults:
        def some(chance: float, most: float) -> float:
            return r.random() * most if r.random() < chance else 0.0

        return cls(
            loss=some(0.6, 0.2), twice=some(0.5, 0.2), delay=r.choice([2.0, 6.0, 20.0]),
            late=some(0.5, 0.1), split=some(0.7, 1.0), crash=some(0.6, 0.01),
            damage=some(0.3, 0.6), wipe=some(0.3, 0.6), change=some(0.3, 0.6),
            pause=some(0.4, 0.7), snapshot=r.choice([0, 0, 7, 15, 40]),
            latency=r.choice([0.0, 1.0, 8.0]), drift=r.choice([0.0, 0.1, 0.25, 0.25]),
            spread=r.choice([0.1, 1.0, 1.0]),
        )  # fmt: skip

    def draw_more(self, r: Random) -> Faults:
        """What was thought of later, drawn apart: seeds stay what they were."""
        if self in BIASED:
            return self
        return replace(
            self, heavy=r.choice([0.0, 0.0, 250.0]), slow=r.choice([0.0, 0.0, 40.0, 150.0]),
            hint=r.choice([0.0, 0.5, 1.0]),
        )  # fmt: skip


LEASES = Faults(
    loss=0.0, twice=0.0, delay=2.0, late=0.0, split=1.0, crash=0.0, damage=0.0, wipe=0.0,
    change=0.0, pause=0.0, snapshot=0, latency=0.0, drift=0.25, spread=0.1,
)  # fmt: skip
"""Hard on leases: links break all the time, elections are quick, clocks are far apart."""
RESTARTS = replace(LEASES, aside=1.0)
"""Hard on what is forgotten at a restart: who may vote has just started, the leader has a lease."""
ELECTIONS = replace(
    LEASES, spread=1.0, crash=0.02, burst=6, late=0.2, pause=0.7, loss=0.2, every=0.4, latency=8.0
)
"""Hard on elections: leaders come and go in the middle of what they send."""
SNAPSHOTS = replace(ELECTIONS, snapshot=7, crash=0.005, burst=30, late=0.0, every=1.0)
"""Hard on snapshots: what a leader that was cut off has is longer than what others have decided."""
CHANGES = replace(LEASES, resize=1.0, pause=0.2)
"""Hard on changes of members: leaders are asked for many at once, when links break."""
BIASED = (LEASES, RESTARTS, ELECTIONS, SNAPSHOTS, CHANGES)
PATIENT = replace(OPTIONS, heartbeat_ticks=3, batch_entries=64)
"""Where a leader hears late that there is another one."""
SHORT_LEASES = replace(OPTIONS, election_ticks=24, lease_ticks=5)
"""Where an election takes long and a lease is over soon, what was sent for one comes after it."""
SMALL = replace(OPTIONS, batch_entries=1)
"""Where each entry travels alone."""


class World:
    """One run."""

    def __init__(
        self,
        seed: int,
        *,
        until: float = 2400.0,
        trace: bool = False,
        faults: Faults | None = None,
        options: Options = OPTIONS,
        count: int | None = None,
    ) -> None:
        self.seed, self.until = seed, until
        # Every other leader waits for answers before it sends the rest.
        self.options = replace(options, gather_bytes=1 + 1000 * (seed % 2))
        self.r = Random(seed)
        more = self.hints = Random(f"more of {seed}")
        self.faults = (faults or Faults.draw(self.r)).draw_more(more)
        self.slow = set(more.sample(range(1, 10), 4))  # nodes with slow disks
        self.now = 0.0
        self.events: list[tuple[float, int, str, Any]] = []
        self.serial = 0
        self.moment = 0  # orders what clients see
        self.blocked: set[tuple[int, int]] = set()
        self.calm = False
        self.trace: list[str] | None = [] if trace else None
        self.truth: dict[int, Entry] = {}
        self.calls: dict[int, Call] = {}
        self.busy: dict[int, tuple[int, float]] = {}  # client: call, given up at
        self.owner: dict[int, int] = {}
        self.floor = 0  # the highest index that an answer showed
        self.floors: dict[int, int] = {}  # that, when a call was made
        self.words = self.numbers = 0
        self.acked_at: list[float] = []
        self.acked_index: list[int] = []
        count = count or self.r.choice([3, 3, 5])
        first = Members(tuple(Member(n + 1, 1) for n in range(count)))
        self.first = first
        self.incarnations = 1
        self.nodes = {m.node: Node(m, Disk.new(first)) for m in first.voters}
        for node in self.nodes.values():
            self.start(node)
        for client in range(4):
            self.at(self.r.random() * 200, "client", client)
        self.at(30 + self.r.random() * 60, "chaos", None)

    # ---- running -----------------------------------------------------------------------------

    def at(self, delay: float, kind: str, what: Any) -> None:
        self.serial += 1
        heapq.heappush(self.events, (self.now + delay, self.serial, kind, what))

    def run(self) -> None:
        try:
            self.go_on(self.until)
            self.heal()
            self.check_progress()
            self.check_history()
        except (TidelineError, AssertionError, KeyError) as error:  # KeyError: an entry is missing
            raise Wrong(f"seed {self.seed} at {self.now:.0f}: {error!r}") from error

    def go_on(self, until: float) -> None:
        while self.events and self.events[0][0] <= until:
            self.now, _, kind, what = heapq.heappop(self.events)
            getattr(self, "do_" + kind)(what)
            if self.serial > MOST_EVENTS:
                raise Wrong("too many messages")
        self.now = until

    def say(self, *what: Any) -> None:
        if self.trace is not None:
            self.trace.append(f"{self.now:8.1f} " + " ".join(map(str, what)))

    # ---- nodes -------------------------------------------------------------------------------

    def start(self, node: Node) -> None:
        node.lives += 1
        loaded = node.disk.load()
        node.view = node.disk.copy()
        node.queue.clear()
        node.core = Core(
            node.member, loaded, life=node.lives, options=self.options, peers=node.peers
        )
        node.state = marshal.loads(node.disk.data)
        node.applied = node.disk.snapshot.index
        node.proposals, node.reads, node.ticks = {}, [], [self.now]
        node.rate = TICK * (1 + self.faults.drift * self.r.choice([-1, -1, 1]))
        self.say("start", node.member, "last", node.core.last, "holes", set(node.core.holes))
        self.at(node.rate * self.r.random(), "tick", (node, node.lives))

    def crash(self, node: Node) -> None:
        """Down it goes; of what was being written, some is on disk."""
        if node.core is None:
            return
        pending = [one for _, writes, _ in node.queue for one in pieces(writes)]
        for write in pending[: self.r.randint(0, len(pending))]:
            node.disk.apply(write)
        self.say("crash", node.member)
        self.hint(node)
        node.core = None
        node.queue.clear()
        if not node.gone:
            down = 5.0 if self.faults.aside else self.r.choice([5.0, 5.0, 60.0, 300.0])
            self.at(down * self.r.random(), "restart", node)

    def hint(self, gone: Node) -> None:
        """Have others told that one of them is gone."""
        for node in self.nodes.values():
            if node is not gone and self.hints.random() < self.faults.hint:
                self.at(self.hints.random() * 2 * TICK, "hint", (node, gone.member.node))

    def do_hint(self, what: tuple[Node, int]) -> None:
        node, gone = what
        if node.core is not None:
            self.say("hint", node.member, gone)
            self.step(node, Gone(gone))

    def do_kill(self, node: int) -> None:
        if not self.calm:
            self.crash(self.nodes[node])

    def do_restart(self, node: Node) -> None:
        if node.core is None and not node.gone:
            self.start(node)

    def do_tick(self, what: tuple[Node, int]) -> None:
        node, life = what
        if node.core is not None and node.lives == life:
            node.ticks.append(self.now)
            spread = 1.0 if self.calm else self.faults.spread
            self.step(node, Tick(self.r.random() * spread))
            self.at(node.rate, "tick", what)
            self.check_fresh(node)

    def step(self, node: Node, what: Message | Event) -> Any:
        assert node.core is not None
        fx = node.core.step(what)
        for write in fx.writes:
            node.view.apply(write)
        for message in fx.sends:
            self.send(node, message)
        if fx.writes and not self.calm and self.r.random() < self.faults.crash:
            node.queue.append((0.0, fx.writes, []))
            self.crash(node)  # at a write: part of it may be there
            return fx
        if fx.writes or fx.after:
            done = self.now + self.r.random() * self.faults.latency
            if node.member.node in self.slow and not self.calm:
                done += self.faults.slow
            done = max(done, node.queue[-1][0]) if node.queue else done
            node.queue.append((done, fx.writes, fx.after))
            self.at(done - self.now, "written", (node, node.lives))
        if fx.installed is not None and fx.installed.index > node.applied:
            node.state = marshal.loads(node.view.data)
            node.applied = fx.installed.index
        if fx.decided is not None:
            self.apply(node, *fx.decided)
        node.reads += fx.reads
        self.answer_reads(node)
        for token in fx.failed:
            self.fail(token)
        return fx

    def do_written(self, what: tuple[Node, int]) -> None:
        node, life = what
        if node.core is None or node.lives != life or not node.queue:
            return
        _, writes, after = node.queue.popleft()
        for write in writes:
            node.disk.apply(write)
        for message in after:
            if node.core is None:
                return
            if message.to == node.member:
                self.step(node, message)
            else:
                self.send(node, message)

    def apply(self, node: Node, done: int, upto: int) -> None:
        if done != node.applied:
            raise Wrong(f"node {node.member} got entries from {done}, has {node.applied}")
        for index in range(done + 1, upto + 1):
            entry = node.view.entries[index]
            if index in node.view.damaged:
                raise Wrong(f"a damaged entry was handed out: {entry}")
            if self.truth.setdefault(index, entry) != entry:
                raise Wrong(f"{entry} decided where {self.truth[index]} was, on {node.member}")
            if entry.kind == DATA:
                _, key, kind, word = marshal.loads(entry.value)
                old = node.state.get(key, ())
                node.state[key] = (word,) if kind == "put" else (*old, word)
            node.applied = index
            ballot, call = node.proposals.pop(index, (None, 0))
            if ballot is not None:
                if ballot == entry.ballot:
                    self.answer(call, None, index)
                else:
                    self.fail(call)
        every = self.faults.snapshot
        if every and node.applied - node.view.snapshot.index >= every and node.core is not None:
            self.compact(node)

    def compact(self, node: Node) -> None:
        assert node.core is not None
        data, at = marshal.dumps(node.state), node.applied
        fx = node.core.step(Compact(at, keep=self.r.choice([0, 0, 5])))
        for write in fx.writes:
            if isinstance(write, CompactTo):
                with_data = WithData(write.mark, write.base, data)
                node.view.apply(with_data)
                node.queue.append((self.last_done(node), [with_data], []))
                self.at(self.last_done(node) - self.now, "written", (node, node.lives))

    def last_done(self, node: Node) -> float:
        return max(self.now, node.queue[-1][0] if node.queue else 0.0)

    # ---- network -----------------------------------------------------------------------------

    def send(self, node: Node, message: Message) -> None:
        message = fill(node.view, message)
        if message.to.node == node.member.node:
            self.at(0.0, "message", message)
            return
        f = self.faults
        if (node.member.node, message.to.node) in self.blocked:
            return
        for _ in range(2 if not self.calm and self.r.random() < f.twice else 1):
            if self.calm:
                delay = 1 + self.r.random()
            elif self.r.random() < f.loss:
                continue
            else:
                delay = self.r.random() * f.delay
                if self.r.random() < f.late:
                    delay += self.r.random() * 400
            if isinstance(message, Install):
                delay += f.heavy
            self.at(delay, "message", message)

    def do_message(self, message: Message) -> None:
        node = self.nodes.get(message.to.node)
        link = (message.sender.node, message.to.node)
        if node is None or node.core is None or link in self.blocked:
            return
        self.step(node, message)

    # ---- what goes wrong ---------------------------------------------------------------------

    def do_chaos(self, _: None) -> None:
        if self.calm:
            return
        r, f = self.r, self.faults
        self.at((20 + r.random() * 150) * f.every, "chaos", None)
        nodes = [n for n in self.nodes.values() if not n.gone]
        if not nodes:
            return
        if r.random() < f.split:
            self.split([n.member.node for n in nodes])
        if r.random() < f.pause:
            self.crash(r.choice(nodes))
        if self.hints.random() < f.hint:
            self.hint(self.hints.choice(nodes))
        if r.random() < f.damage:
            self.damage(r.choice(nodes))
        if r.random() < f.wipe:
            self.wipe(r.choice(nodes))
        while r.random() < f.change:
            self.change_members()

    def split(self, ids: list[int]) -> None:
        r = self.r
        self.blocked = set()
        kind = r.choice(["none", "one", "halves", "links", "leader", "aside", "aside"])
        if self.faults.aside and r.random() < self.faults.aside:
            kind = "restarts"
        pairs = [(a, b) for a in ids for b in ids if a != b]
        if kind in ("one", "leader"):
            leads = [n.member.node for n in self.nodes.values() if n.core and n.core.leads]
            lone = r.choice(leads) if kind == "leader" and leads else r.choice(ids)
            ways = r.choice([(True, True), (True, False), (False, True)])
            self.blocked = {
                (a, b) for a, b in pairs if (ways[0] and a == lone) or (ways[1] and b == lone)
            }
        elif kind == "aside":  # one does not hear the leader, and the others do
            leads = [n.member.node for n in self.nodes.values() if n.core and n.core.leads]
            lone, boss = r.choice(ids), r.choice(leads or ids)
            self.blocked = {(lone, boss), (boss, lone)}
            for _ in range(r.choice([0, 3])):  # and those it asks have just started
                self.at(60 + r.random() * 100, "kill", r.choice(ids))
        elif kind == "restarts":  # the same, and again and again
            leads = [n.member.node for n in self.nodes.values() if n.core and n.core.leads]
            boss = r.choice(leads or ids)
            lone, *others = r.sample([n for n in ids if n != boss], len(ids) - 1)
            self.blocked = {(lone, boss), (boss, lone)}
            for other in others:
                for _ in range(6):
                    self.at(60 + r.random() * 100, "kill", other)
        elif kind == "halves":
            left = set(r.sample(ids, len(ids) // 2))
            self.blocked = {(a, b) for a, b in pairs if (a in left) != (b in left)}
        elif kind == "links":
            self.blocked = {pair for pair in pairs if r.random() < 0.4}
        self.say("split", kind, sorted(self.blocked))
        if self.faults.burst:
            self.burst(r.randint(1, self.faults.burst))
        if self.faults.resize and r.random() < self.faults.resize:
            for _ in range(r.randint(2, 4)):
                self.change_members()

    def burst(self, count: int) -> None:
        """Give leaders more than they can bring to others before they lose them."""
        value = marshal.dumps((0, 98, "put", 0))
        for node in list(self.nodes.values()):
            for _ in range(count):
                if node.core is not None and node.core.leads:
                    self.step(node, Propose((value,)))

    def is_whole(self) -> bool:
        """Whether all are voters of a decided configuration, with nothing damaged."""
        ids = {n.member for n in self.nodes.values() if not n.gone}
        leads = [n.core for n in self.nodes.values() if n.core and n.core.leads]
        if not leads or any(n.disk.damaged for n in self.nodes.values()):
            return False
        core = max(leads, key=lambda c: c.promised)
        if set(core.members.voters) != ids or core.decided < core.last:
            return False
        # The change itself is known to be on most disks: nobody needs the one who goes.
        disks = [n.disk for n in self.nodes.values() if not n.gone]
        return all(disk.load().outline.members == core.members for disk in disks)

    def damage(self, node: Node) -> None:
        """A value on this disk goes bad. Others have it: else nobody could ever mend it."""
        if not self.is_whole():
            return
        found = [
            index
            for index, entry in node.disk.entries.items()
            if entry.kind == DATA
            and any(
                o.disk.entries.get(index) == entry for o in self.nodes.values() if o is not node
            )
        ]
        if not found:
            return
        index = self.r.choice([found[-1], self.r.choice(found)])
        self.say("damage", node.member, index)
        if node.core is not None and self.r.random() < 0.5:  # found when it is read
            node.disk.damaged.add(index)
            if index in node.view.entries:
                node.view.damaged.add(index)
                self.step(node, Damaged(index))
        else:
            self.crash(node)
            if index in node.disk.entries:
                node.disk.damaged.add(index)

    def wipe(self, node: Node) -> None:
        """A disk is lost, and its node is told to recover."""
        if not self.is_whole() or sum(not n.gone for n in self.nodes.values()) < 3:
            return  # of two none may be lost
        self.crash(node)
        self.say("wipe", node.member)
        self.recover(node)

    def recover(self, node: Node) -> None:
        """As `tideline cluster recover` would: an empty disk and a new incarnation."""
        self.incarnations += 1
        node.member = Member(node.member.node, self.incarnations)
        node.disk = Disk.new(None)
        node.peers = tuple(n for n in self.nodes if n != node.member.node)

    def all_vote(self, members: Members) -> bool:
        """No disk was lost just now: to remove another voter then would stop the group for good."""
        return all(n.member in members.voters for n in self.nodes.values() if not n.gone)

    def change_members(self) -> None:
        """Somebody new, or one less, asked of whoever leads."""
        leads = [n for n in self.nodes.values() if n.core and n.core.leads]
        if not leads:
            return
        boss = self.r.choice(leads)
        assert boss.core is not None
        now = boss.core.members
        if len(self.nodes) < 9 and len(now.voters) < 5 and self.r.random() < 0.6:
            self.incarnations += 1
            new = Member(max(self.nodes) + 1, self.incarnations)
            node = Node(new, Disk.new(None), tuple(self.nodes))
            self.nodes[new.node] = node
            self.start(node)
            fx = self.step(boss, Change(Members(now.voters, (new,))))
            if fx.refusal is not None:
                node.gone = True
            self.say("add", new, fx.refusal)
        elif len(now.voters) > 2 and self.all_vote(now):
            gone = self.r.choice(now.voters)
            fx = self.step(boss, Change(Members(tuple(v for v in now.voters if v != gone))))
            self.say("remove", gone, fx.refusal)
            if fx.refusal is None:
                self.nodes[gone.node].gone = True  # keeps running until it crashes

    # ---- clients -----------------------------------------------------------------------------

    def do_client(self, client: int) -> None:
        if self.calm:
            return
        r = self.r
        if client in self.busy:
            if self.now < self.busy[client][1]:
                self.at(r.random() * 20, "client", client)
                return
            self.busy.pop(client)  # no answer: it may have happened, or may still
        self.at(r.random() * 15, "client", client)
        up = [n for n in self.nodes.values() if n.core is not None]
        leads = [n for n in up if n.core is not None and n.core.leads]
        if not up:
            return
        node = r.choice(leads if leads and r.random() < 0.9 else up)
        kind = r.choice(["put", "append", "append", "read", "read", "read"])
        if self.faults.aside and leads:  # an old leader is asked, and a new one writes
            rank = max if kind != "read" else min
            node = rank(leads, key=lambda n: n.core.promised)  # type: ignore[union-attr]
        self.call(client, node, kind)

    def call(self, client: int, node: Node, kind: str) -> None:
        assert node.core is not None
        self.moment += 1
        self.words += 1
        self.numbers += 1
        number, key = self.numbers, self.r.choice([0, 0, 1])
        self.calls[number] = Call(self.moment, NEVER, key, kind, self.words)
        self.floors[number] = self.floor
        self.owner[number] = client
        self.busy[client] = (number, self.now + self.r.choice([60, 200]))
        if kind == "read":
            self.step(node, Read(number))
            return
        fx = self.step(node, Propose((marshal.dumps((number, key, kind, self.words)),)))
        if fx.refusal is not None:
            self.fail(number)
        elif fx.proposed is not None and node.core is not None:
            node.proposals[fx.proposed[0]] = (fx.proposed[1], number)
            self.say("propose", number, kind, "at", node.member, fx.proposed)

    def answer(self, number: int, result: tuple[int, ...] | None, index: int) -> None:
        self.moment += 1
        old = self.calls.get(number)
        if old is None or old.end != NEVER:
            return
        if self.busy.get(self.owner[number], (0, 0))[0] == number:
            del self.busy[self.owner[number]]
            self.calls[number] = replace(old, end=self.moment, result=result, hint=index)
            self.say("answer", number, old.kind, result)
            if index < self.floors[number]:
                raise Wrong(f"call {number} was answered at {index}, after {self.floors[number]}")
            self.floor = max(self.floor, index)
            if old.kind != "read":
                self.acked_at.append(self.now)
                self.acked_index.append(max(index, self.acked_index[-1] if self.acked_index else 0))

    def fail(self, number: int) -> None:
        """It did not happen and never will."""
        if number in self.calls and self.calls[number].end == NEVER:
            del self.calls[number]
            if self.busy.get(self.owner[number], (0, 0))[0] == number:
                del self.busy[self.owner[number]]

    def answer_reads(self, node: Node) -> None:
        ready = [token for token, index in node.reads if index <= node.applied]
        node.reads = [one for one in node.reads if one[1] > node.applied]
        for token in ready:
            call = self.calls.get(token)
            if call is not None:
                self.answer(token, node.state.get(call.key, ()), node.applied)

    # ---- checks ------------------------------------------------------------------------------

    def check_fresh(self, node: Node) -> None:
        core = node.core
        if core is None or core.stale_ticks is None:
            return
        since = node.ticks[len(node.ticks) - 1 - core.stale_ticks]
        at = bisect_right(self.acked_at, since - 1e-9)
        if at and node.applied < self.acked_index[at - 1]:
            lacks = self.acked_index[at - 1]
            raise Wrong(f"node {node.member} says {core.stale_ticks} ticks, lacks {lacks}")

    def heal(self) -> None:
        """From here on nothing fails."""
        self.calm = True
        self.blocked = set()
        self.busy.clear()
        for node in self.nodes.values():
            if node.core is None:
                self.start(node)  # also who is gone: whether that was decided is not known

    def check_progress(self) -> None:
        """With all up and connected, something new is decided and everybody has it."""
        wanted = 0
        for _ in range(40):
            self.go_on(self.now + 100)
            leads = [n for n in self.nodes.values() if n.core and n.core.leads]
            if wanted and all(n.applied >= wanted for n in self.nodes.values() if self.counts(n)):
                return
            if leads and not wanted:
                boss = max(leads, key=lambda n: n.core.promised)  # type: ignore[union-attr]
                value = marshal.dumps((0, 99, "put", 0))
                fx = self.step(boss, Propose((value,)))
                if fx.proposed is not None:
                    wanted = fx.proposed[0]
            elif wanted and self.truth.get(wanted) is None:
                last = max((n.core.last for n in leads if n.core), default=0)
                wanted = wanted if last >= wanted else 0  # its leader was none any more
        roles = [
            (n.core.role, n.member, n.core.promised, n.core.last, n.core.decided, n.core.holes)
            for n in self.nodes.values()
            if n.core
        ]
        raise Wrong(f"no progress after all faults ended: {wanted} {roles}")

    def counts(self, node: Node) -> bool:
        """Whether a node is one that must have everything."""
        leads = [n.core for n in self.nodes.values() if n.core and n.core.leads]
        return not node.gone and any(node.member in core.members.all for core in leads)

    def check_history(self) -> None:
        for one, two in pairwise(sorted(self.truth)):
            if two != one + 1 and not any(n.applied >= two for n in self.nodes.values()):
                raise Wrong(f"nothing was decided between {one} and {two}")
        for index, entry in self.truth.items():
            number = marshal.loads(entry.value)[0] if entry.kind == DATA else 0
            if number in self.calls:
                self.calls[number] = replace(self.calls[number], hint=index)
        if not is_linearizable(list(self.calls.values())):
            raise Wrong("what clients saw is not linearizable")


def pieces(writes: list[Write]) -> list[Write]:
    """Writes as small as a crash can cut them."""
    found: list[Write] = []
    for write in writes:
        if isinstance(write, Append):
            found += [Append((entry,)) for entry in write.entries]
        else:
            found.append(write)
    return found


def fill(view: Disk, m: Message) -> Message:
    """A message with the values it names."""
    match m:
        case Accept() if m.upto > m.prev_index:
            found = tuple(view.entries[i] for i in range(m.prev_index + 1, m.upto + 1))
            return Accept(m.sender, m.to, m.ballot, m.prev_index, m.prev_ballot, m.upto, m.decided,
                          m.sent, m.probe, m.echo, m.leased, found)  # fmt: skip
        case Supply() if m.upto > m.prev_index:
            found = tuple(view.entries[i] for i in range(m.prev_index + 1, m.upto + 1))
            return Supply(m.sender, m.to, m.ballot, m.prev_index, m.upto, m.matches, m.whole, found)
        case Install():
            assert view.snapshot == m.mark, (view.snapshot, m.mark)
            return Install(m.sender, m.to, m.ballot, m.mark, m.sent, m.probe, view.data)
        case Repaired():
            return Repaired(m.sender, m.to, m.indexes, tuple(view.entries[i] for i in m.indexes))
    return m
