"""The way of a value: what is sent when, by which thread, and who applies it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_node import GUARD_S, Nodes, Words, until

from tideline.replica import Core, Entry, Loaded, Member, Members, Message, Options, Propose, Tick
from tideline.replica.link import Link
from tideline.replica.messages import (
    NOBODY,
    Accept,
    Accepted,
    Effects,
    Event,
    Prepare,
    PreVote,
    PreVoted,
    Promise,
)

A, B, C = (Member(node, 1) for node in (1, 2, 3))
GATHER = 100


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    found = Nodes(tmp_path, 3)
    yield found
    found.close()


class _Leader:
    """A core that leads B and C; what it says is kept, what it wants on disk is there at once."""

    def __init__(self) -> None:
        self.core = Core(
            A, Loaded.new(Members((A, B, C))), life=1, options=Options(gather_bytes=GATHER)
        )
        self.said: list[Accept] = []
        while not self.core.leads:
            for m in self.step(Tick(0.5)):
                if isinstance(m, PreVote):
                    for ask in self.step(PreVoted(m.to, A, m.ballot, True, NOBODY)):
                        if isinstance(ask, Prepare):
                            self.step(Promise(ask.to, A, ask.ballot, 1, NOBODY))
        self.answer_all()
        self.answer_all()
        self.said.clear()

    def step(self, what: Message | Event) -> list[Message]:
        others: list[Message] = []
        queue: list[Message | Event] = [what]
        while queue:
            found: Effects = self.core.step(queue.pop(0))
            for message in found.sends + found.after:
                (queue if message.to == A else others).append(message)
        self.said += [m for m in others if isinstance(m, Accept)]
        return others

    def answer(self, m: Accept) -> None:
        self.step(Accepted(m.to, A, m.ballot, m.upto, m.sent, m.probe, (7, 0)))

    def answer_all(self) -> None:
        said, self.said = self.said, []
        for message in said:
            self.answer(message)

    def take(self) -> list[tuple[Member, int, int]]:
        """To whom what was sent: after an index, up to one."""
        said, self.said = self.said, []
        return [(m.to, m.prev_index, m.upto) for m in said]


def test_what_is_little_waits_for_the_answer_before_it_and_goes_in_one_message() -> None:
    leader = _Leader()
    last = leader.core.last
    leader.step(Propose((b"one",)))
    first = leader.said[:]
    assert leader.take() == [(B, last, last + 1), (C, last, last + 1)]
    for value in (b"two", b"three"):
        leader.step(Propose((value,)))
    assert leader.take() == []
    leader.answer(first[0])
    assert leader.core.decided == last + 1
    assert leader.take() == [(B, last + 1, last + 3)]
    leader.step(Propose((bytes(GATHER),)))  # much does not wait
    assert leader.take() == [(B, last + 3, last + 4), (C, last + 1, last + 4)]


def test_what_waits_for_an_answer_that_does_not_come_goes_with_a_heartbeat() -> None:
    leader = _Leader()
    last = leader.core.last
    leader.step(Propose((b"one",)))
    leader.take()
    leader.step(Propose((b"two",)))
    assert leader.take() == []
    for _ in range(Options().heartbeat_ticks):
        leader.step(Tick(0.5))
    assert leader.take() == [(B, last + 1, last + 2), (C, last + 1, last + 2)]


def test_what_many_threads_say_arrives_whole_and_in_its_order(nodes: Nodes) -> None:
    """Small messages are sent by whoever says them, large ones by the loop, on one connection."""
    nodes.start()
    leader = nodes.leader()
    straight = set()
    sent = Link._sent_straight

    def noted(self: Link, *given: Any) -> bool:
        found = sent(self, *given)
        straight.add((threading.current_thread().name, found))
        return found

    def propose(thread: int) -> None:
        for n in range(40):
            size = 100_000 if n % 8 == thread else 20
            leader.propose([b"%d-%d-" % (thread, n) + bytes(size)]).wait(GUARD_S)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Link, "_sent_straight", noted)
        threads = [threading.Thread(target=propose, args=[n], name=f"p{n}") for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert {name for name, found in straight if found} & {"p0", "p1", "p2", "p3"}
    words = [machine.words for machine, *_ in nodes.machines.values()]
    until(lambda: all(len(each) == 160 for each in words))
    assert words[0] == words[1] == words[2]
    for thread in range(4):
        mine = [word.split(b"-")[1] for word in words[0] if word.startswith(b"%d-" % thread)]
        assert mine == [b"%d" % n for n in range(40)]
    for node in nodes.nodes.values():
        assert node.status()["network"]["refused"] == 0


class _Quick(Words):
    """Notes which threads call it."""

    quick = True

    def __init__(self) -> None:
        super().__init__()
        self.threads: set[str] = set()
        self._inside = threading.Lock()

    def apply(self, entries: list[Entry]) -> None:
        assert self._inside.acquire(blocking=False), "two calls at once"
        try:
            super().apply(entries)
            self.threads.add(threading.current_thread().name)
        finally:
            self._inside.release()


def test_a_quick_machine_is_told_by_whoever_decides_and_never_twice_at_once(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("test_node.Words", _Quick)
    nodes.start()
    leader = nodes.leader()

    def propose(thread: int) -> None:
        for n in range(50):
            leader.propose([b"%d-%d" % (thread, n)] * (1 + 90 * (n % 10 == 0))).wait(GUARD_S)

    threads = [threading.Thread(target=propose, args=[n]) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    index = leader.read_index(GUARD_S)
    assert leader.status()["groups"][0]["applied"] >= index
    machine = nodes.machines[leader.node][0]
    assert isinstance(machine, _Quick)
    assert len(machine.words) == 4 * (45 + 5 * 91)
    assert any("apply" not in name for name in machine.threads)
    until(lambda: all(each.words == machine.words for each, *_ in nodes.machines.values()))
