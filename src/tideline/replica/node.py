"""A replica that runs: groups with their machines, ticks, the network. Build a system on `Node`.

    Node.create(folder, "demo", 1, [1, 2, 3])       once, on each node, with the same members
    node = Node(folder, cluster="demo", node=1, listen=..., peers=..., secret=..., machines=[m])
    node.start()
    node.propose([b"value"]).wait(5)                on the leader: decided
    node.read_index(5)                              the machine has all that was acknowledged

    folder := NODE               cluster, node, incarnation, number of groups; written last of all
            | group-0000/ ...    one replica each (storage.py)

Threads of a node: one with an asyncio loop (network and ticks), one that calls all machines, one
for each group that waits for its disk. All public names are safe from any thread; `wait`,
`read_index` and `close` must not be called by a machine.

What a node promises: docs/internals/replication.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import threading
from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any
from zlib import crc32

import msgspec

from tideline.errors import Closed, Corruption, InvalidRequest, NotFound, Unavailable
from tideline.lsm.files import replace_file, sync_folder, telling
from tideline.lsm.folder import make_folder
from tideline.replica.group import Group, check_values
from tideline.replica.handshake import TLS
from tideline.replica.machine import Machine, Proposal
from tideline.replica.messages import Entry, Gone, Install, Mark, Member, Members
from tideline.replica.network import Network
from tideline.replica.state import Options
from tideline.replica.steps import steady_s
from tideline.replica.storage import Storage
from tideline.replica.wire import MOST_VALUE, Address, Tagged

__all__ = ["Node"]

_PREFIX = b"tideline-node 1 "
_MOST_GROUPS = 4096
_CLOSE_S = 30.0
_GATHER_S = 0.005  # what is decided meanwhile is applied at once, where nobody waits for it


class _Identity(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    cluster: str
    node: int
    incarnation: int
    groups: int


class Node:
    """One node of a cluster, in this process.

    >>> import tempfile
    >>> class Words:
    ...     def __init__(self):
    ...         self.words = []
    ...     def apply(self, entries):
    ...         self.words += [entry.value for entry in entries]
    ...     def snapshot(self):
    ...         return b" ".join(self.words)
    ...     def install(self, mark, state):
    ...         self.words = state.split()
    ...     def role(self, leads, leader):
    ...         pass
    >>> folder, words = tempfile.TemporaryDirectory(), Words()
    >>> Node.create(Path(folder.name), "demo", 1, [1])
    >>> node = Node(Path(folder.name), cluster="demo", node=1, listen=("127.0.0.1", 0), peers={},
    ...     secret=b"at least 16 bytes", machines=[words], tick_s=0.01)
    >>> node.start()
    >>> node.wait_for_leader(30)
    1
    >>> node.propose([b"hello", b"world"]).wait(30)
    >>> index = node.read_index(30)
    >>> words.words
    [b'hello', b'world']
    >>> node.close(); folder.cleanup()
    """

    def __init__(
        self,
        folder: Path | str,
        *,
        cluster: str,
        node: int,
        listen: Address,
        peers: dict[int, Address],
        secret: bytes,
        machines: Sequence[Machine],
        tls: TLS | None = None,
        options: Options | None = None,
        tick_s: float = 0.05,
        compact_bytes: int = 256 << 20,
        durability: str = "disk",
    ) -> None:
        """Nothing happens before `start`.

        `peers` are the addresses of other nodes by number; one that is reachable is enough, nodes
        tell each other the rest. Its own address among them is what others are told, where that
        is not what it listens on. `machines` are one for each group, in order. `options` count
        ticks of `tick_s`, and are the same on all nodes. When a group's log has grown by
        `compact_bytes`, its machine is asked for a snapshot. `durability="os"` leaves writes to the
        operating system: for tests.
        """
        if not 0.001 <= tick_s <= 10:
            raise InvalidRequest("tick_s is between 0.001 and 10", tick_s=tick_s)
        if compact_bytes < 1:
            raise InvalidRequest("compact_bytes starts at 1", compact_bytes=compact_bytes)
        self.folder, self.cluster, self.node = Path(folder), cluster, node
        self._machines = list(machines)
        self._options, self._tick_s = options or Options(), tick_s
        self._compact_bytes, self._durability = compact_bytes, durability
        self._network = Network(
            cluster=cluster, node=node, listen=listen, peers=dict(peers), secret=secret, tls=tls,
            receive=self._receive, gone=self._gone, state=self._state,
        )  # fmt: skip
        self._groups: list[Group] = []
        self._work = threading.Event()
        self._turn = threading.Lock()  # held by whoever calls a machine
        self._stopping = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_thread: threading.Thread | None = None
        self._apply_thread: threading.Thread | None = None
        self._state_lock = threading.Lock()
        self._closed = False

    # ---- disks -------------------------------------------------------------------------------

    @staticmethod
    def create(
        folder: Path | str, cluster: str, node: int, members: Iterable[int], groups: int = 1,
        *, begin: tuple[int, bytes] | None = None,
    ) -> None:  # fmt: skip
        """Make the disk of a first node of a new cluster, in an empty folder.

        All first nodes are made with the same `members` (the numbers of the nodes) and `groups`.
        With `begin`, an index and the machine's state there, the node is the only one at first: its
        logs go on after that index, and nodes that are added are sent the state.
        """
        voters = tuple(Member(n, 1) for n in sorted(set(members)))
        if node not in [member.node for member in voters]:
            raise InvalidRequest("a first node is one of the members", node=node)
        _make(Path(folder), _Identity(cluster, node, 1, groups), Members(voters), begin)

    @staticmethod
    def recover(folder: Path | str, cluster: str, node: int, groups: int = 1) -> None:
        """Make the disk of a node that lost its own, or is new, in an empty folder.

        It gets an incarnation that was never used, and asks the others to be taken in: that of a
        lost node happens by itself, a new one is taken in by `add` on the leader.
        """
        incarnation = 2 + secrets.randbelow((1 << 53) - 2)
        _make(Path(folder), _Identity(cluster, node, incarnation, groups), None)

    def _read_identity(self) -> _Identity:
        path = self.folder / "NODE"
        with telling("node cannot be opened", path):
            try:
                data = path.read_bytes()
            except (FileNotFoundError, NotADirectoryError):
                raise NotFound(
                    "no node is in this folder: create it for a new cluster; "
                    "if this node is new or lost its disk, recover it", folder=str(self.folder),
                ) from None  # fmt: skip
        start = len(_PREFIX) + 9
        if data[:start] != _PREFIX + b"%08x " % crc32(data[start:]):
            raise Corruption("the identity of the node is damaged", file=path)
        found = msgspec.json.decode(data[start:], type=_Identity)
        given = (self.cluster, self.node, len(self._machines))
        if (found.cluster, found.node, found.groups) != given:
            raise InvalidRequest(
                "this folder belongs to another node, or has another number of groups",
                folder=str(self.folder), cluster=found.cluster, node=found.node,
                groups=found.groups, given=given,
            )  # fmt: skip
        return found

    # ---- life --------------------------------------------------------------------------------

    def start(self) -> None:
        """Open the disks, listen, and take part. Once."""
        if self._loop_thread is not None or self._closed:
            raise Closed("a node is started once: make another one")
        identity = self._read_identity()
        peers = tuple(sorted({*self._network.book} - {self.node}))
        try:
            for number in range(identity.groups):
                self._groups.append(
                    Group(
                        number, self.folder / f"group-{number:04d}", self._machines[number],
                        options=self._options, tick_s=self._tick_s,
                        compact_bytes=self._compact_bytes, durability=self._durability,
                        peers=peers, post=self._network.post, wake=self._work.set, turn=self._turn,
                    )
                )  # fmt: skip
            self._start_threads()
        except BaseException:
            self.close()
            raise

    def _start_threads(self) -> None:
        started: list[BaseException | None] = []
        ready = threading.Event()

        def run() -> None:
            loop = self._loop = asyncio.new_event_loop()
            try:
                loop.run_until_complete(self._run(started, ready))
            finally:
                loop.run_until_complete(_wind_up())
                loop.run_until_complete(loop.shutdown_default_executor())
                loop.close()
                ready.set()

        name = f"tideline-node-{self.node}"
        self._apply_thread = threading.Thread(target=self._apply, name=f"{name}-apply", daemon=True)
        self._apply_thread.start()
        self._loop_thread = threading.Thread(target=run, name=name, daemon=True)
        self._loop_thread.start()
        ready.wait()
        if started and started[0] is not None:
            raise started[0]

    async def _run(self, started: list[BaseException | None], ready: threading.Event) -> None:
        self._stop = asyncio.Event()
        try:
            await self._network.start()
            started.append(None)
        except BaseException as error:
            started.append(error)
            return
        finally:
            ready.set()
        try:
            while not self._stop.is_set():
                for group in self._groups:
                    group.tick()
                try:
                    await asyncio.wait_for(self._stop.wait(), self._tick_s)
                except TimeoutError:
                    continue
        finally:
            await self._network.close()

    def _end_loop(self) -> None:
        self._stop.set()

    def _apply(self) -> None:
        """The thread that calls machines."""
        while not self._stopping.is_set():
            self._work.wait()
            if not any(group.runner.core.leads for group in self._groups):
                self._stopping.wait(_GATHER_S)
            self._work.clear()
            busy = True
            while busy and not self._stopping.is_set():
                busy = False
                for group in self._groups:
                    busy = group.apply_some() or busy

    def close(self) -> None:
        """Stop: the others go on without. Waits for a machine that is at work. Twice is allowed."""
        with self._state_lock:
            if self._closed:
                return
            self._closed = True
        self._stopping.set()
        self._work.set()
        loop, thread = self._loop, self._loop_thread
        if loop is not None and thread is not None:
            with contextlib.suppress(RuntimeError):  # it has ended already
                loop.call_soon_threadsafe(self._end_loop)
            thread.join(_CLOSE_S)
        if self._apply_thread is not None:
            self._apply_thread.join()
        for group in self._groups:
            group.stop()

    def __enter__(self) -> Node:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- messages ----------------------------------------------------------------------------

    def _receive(self, _: int, messages: Sequence[Tagged]) -> None:
        """What came from one node, in the loop."""
        by_group: dict[int, list[Any]] = {}
        for number, message in messages:
            if 0 <= number < len(self._groups):
                by_group.setdefault(number, []).append(message)
        for number, found in by_group.items():
            group = self._groups[number]
            if any(isinstance(message, Install) for message in found):
                self._network.spawn(asyncio.to_thread(group.receive, found))
            else:
                group.receive(found)

    def _gone(self, node: int) -> None:
        """Nobody listens where a node was, says the network, in the loop."""
        for group in self._groups:
            group.receive([Gone(node)])

    def _state(self, number: int, mark: Mark) -> bytes:
        return self._groups[number].state(mark)

    # ---- for those who build on it -----------------------------------------------------------

    @property
    def address(self) -> Address:
        """Where it listens: with the port that was found, where 0 was asked for."""
        return self._network.address

    @property
    def addresses(self) -> dict[int, Address]:
        """Where nodes listen, itself too: those it was told of, and those that others told."""
        return dict(self._network.book)

    @property
    def groups(self) -> int:
        """How many groups there are."""
        return len(self._machines)

    def group_of(self, key: bytes | int) -> int:
        """The group of a key, by its hash: the same on every node and in every release.

        >>> node = Node("x", cluster="c", node=1, listen=("", 0), peers={},
        ...     secret=b"0123456789abcdef", machines=[None, None, None])
        >>> [node.group_of(key) for key in (b"a", b"b", 7, 8)]
        [2, 2, 0, 1]
        """
        data = key.to_bytes(16, "little", signed=True) if isinstance(key, int) else key
        found = blake2b(data, digest_size=8).digest()
        return int.from_bytes(found, "little") % self.groups

    def _group(self, number: int) -> Group:
        if self._closed:
            raise Closed("the node was closed")
        if not self._groups:
            raise Closed("the node was not started")
        if not 0 <= number < len(self._groups):
            raise InvalidRequest("no such group", group=number, groups=len(self._groups))
        return self._groups[number]

    def leads(self, group: int = 0) -> bool:
        """Whether this node leads and knows all that was acknowledged: `propose` works.

        As far as it knows: another one may have been elected meanwhile, and then what is
        proposed here is never acknowledged.
        """
        return self._group(group).leads

    def leader(self, group: int = 0) -> int | None:
        """Which node leads, as far as this one knows."""
        return self._group(group).leader

    def wait_for_leader(self, timeout: float, group: int = 0) -> int:
        """Return which node leads, once one does (and is ready, if it is this one)."""
        found = self._group(group)
        limit = _limit(timeout)
        while True:
            leader = found.leader
            if leader is not None and (leader != self.node or found.leads):
                return leader
            if limit():
                raise Unavailable("no leader is known", group=group, timeout_s=timeout)
            self._stopping.wait(self._tick_s / 2)
            self._group(group)

    def propose(self, values: Sequence[bytes], group: int = 0) -> Proposal:
        """Append values to the log, in this order, and send them; returns at once.

        The order of calls is the order of the log. `Proposal.wait` returns when they are decided.
        `NotLeader` where another node leads: nothing was proposed. `Unavailable` when too many
        entries are undecided: nothing was proposed, try again. `OutcomeUnknown` when the
        disk failed in the middle.
        """
        check_values(values, MOST_VALUE)
        return self._group(group).propose(values)

    def read_index(self, timeout: float | None, group: int = 0) -> int:
        """On the leader: return when this machine has applied all that was acknowledged before the
        call, wherever. What is then read from the machine is linearizable.

        Returns that index. `NotLeader` elsewhere; `Unavailable` after `timeout` seconds.
        """
        return self._group(group).read_index(timeout)

    def wait_applied(self, index: int, timeout: float | None, group: int = 0) -> None:
        """Return when this machine has applied `index`: the last of a proposal, say."""
        self._group(group).wait_applied(index, timeout)

    def stale_s(self, group: int = 0) -> float | None:
        """Everything that was acknowledged until so many seconds ago is applied here.

        0.0 on a leader whose lease is good; None where nothing is known: no leader is heard.
        """
        return self._group(group).stale_s()

    def entries(self, first: int, last: int, group: int = 0) -> tuple[Entry, ...]:
        """Entries [first, last] of this node's log, with their values.

        `InvalidRequest` for what is not kept; `Corruption` for one that is damaged here.
        """
        return self._group(group).entries(first, last)

    def place(self, index: int, group: int = 0) -> tuple[Path, int] | None:
        """The segment of the log that has an entry, and where its value begins there.

        None when the log does not have it (any more). For a machine that leaves values where they
        are: a hard link to a segment outlives it in the log.
        """
        return self._group(group).place(index)

    def compact(self, state: bytes, index: int, group: int = 0, *, keep: int = 0) -> None:
        """The machine's state as of `index`: the log before it goes, but for the last `keep`.

        For a machine that decides itself when; others are asked for `snapshot` by the node.
        """
        self._group(group).compact(state, index, keep=keep)

    # ---- members -----------------------------------------------------------------------------

    def members(self, group: int = 0) -> Members:
        """Who takes part, by the newest entry that says so."""
        return self._group(group).members

    def change(self, members: Members, group: int = 0) -> Proposal:
        """Other members: at most one voter more or less. For the leader.

        `Unavailable` when that is not possible now; the message says why.
        """
        return self._group(group).change(members)

    def add(self, node: int, group: int = 0) -> Proposal:
        """Take in a new node that was made by `recover`, is started, and asks for it.

        It is sent everything, and votes when it has it. `NotFound` when it was not heard of.
        """
        found = self._group(group)
        member = found.joiner(node)
        now = found.members
        if member is None:
            raise NotFound("this node does not ask to be taken in: start it first", node=node)
        rest = tuple(m for m in now.joining if m.node != node)
        return found.change(Members(now.voters, (*rest, member)))

    def remove(self, node: int, group: int = 0) -> Proposal:
        """Let a node go. A leader may remove itself."""
        found = self._group(group)
        now = found.members
        if node not in [member.node for member in now.all]:
            raise NotFound("this node is no member", node=node)
        return found.change(
            Members(
                tuple(m for m in now.voters if m.node != node),
                tuple(m for m in now.joining if m.node != node),
            )
        )

    def status(self) -> dict[str, Any]:
        """All that an operator may ask, as plain values.

        `groups`: for each its role, leader, members (node, incarnation), decided, applied and last
        index, entries that each other node lacks (on the leader), damaged entries, the snapshot's
        index, nodes that asked to be taken in, and why it has stopped. `network`: connections.
        """
        return {
            "cluster": self.cluster, "node": self.node,
            "groups": [
                {**group.status(), "stale_s": group.stale_s()} for group in self._groups
            ],
            "network": self._network.status(),
        }  # fmt: skip


async def _wind_up() -> None:
    """End what the loop still does: handshakes of strangers, say."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
    for _ in range(8):  # what was hung up is let go of in the next rounds
        await asyncio.sleep(0)


def _limit(timeout: float) -> Callable[[], bool]:
    """Whether `timeout` seconds are over."""
    limit = steady_s() + timeout
    return lambda: steady_s() >= limit


def _make(
    folder: Path, identity: _Identity, members: Members | None,
    begin: tuple[int, bytes] | None = None,
) -> None:  # fmt: skip
    """Make a node's folder; the file that makes it one comes last."""
    if not 1 <= identity.groups <= _MOST_GROUPS:
        raise InvalidRequest(f"groups is 1 to {_MOST_GROUPS}", groups=identity.groups)
    if not 1 <= identity.node < 1 << 32:
        raise InvalidRequest("node starts at 1", node=identity.node)
    make_folder(folder, "folder cannot be made")
    with telling("folder cannot be used", folder):
        names = sorted(name for name in os.listdir(folder) if not name.startswith("."))
        if names:
            raise InvalidRequest(
                "a node is made in an empty folder", folder=str(folder), holds=names[0]
            )
        me = Member(identity.node, identity.incarnation)
        for number in range(identity.groups):
            path = folder / f"group-{number:04d}"
            if members is None:
                Storage.recover(path, identity.cluster, me)
            else:
                Storage.create(path, identity.cluster, me, members, begin)
        rest = msgspec.json.encode(identity) + b"\n"
        replace_file(folder / "NODE", _PREFIX + b"%08x " % crc32(rest) + rest)
        sync_folder(folder)
