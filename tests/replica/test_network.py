"""The network of nodes: who is let in, what is said in one message, and what is not believed."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from test_node import SECRET, Nodes, Words, until
from test_node_processes import make_certificates

from tideline.errors import InvalidRequest, TidelineError, Unavailable
from tideline.replica import DATA, TLS, Ballot, Entry, Member, Node
from tideline.replica.handshake import greet
from tideline.replica.messages import Accept, Accepted, Join
from tideline.replica.wire import BATCH, PIECE, frame, merged

ONE, TWO, THREE = Member(1, 1), Member(2, 1), Member(3, 1)
BALLOT = Ballot(1, 1, 1)


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    found = Nodes(tmp_path, 3)
    yield found
    found.close()


def network(node: Node) -> dict[str, Any]:
    found: dict[str, Any] = node.status()["network"]
    return found


def test_another_secret_is_refused_on_both_sides(nodes: Nodes) -> None:
    nodes.start(1)
    nodes.start(2, secret=b"another secret of enough bytes")
    one, two = nodes.nodes[1], nodes.nodes[2]
    for a, b in ((one, 2), (two, 1)):
        until(lambda: "another secret" in (network(a)["peers"][b]["error"] or ""))  # noqa: B023
        assert not network(a)["peers"][b]["connected"]
        assert network(a)["incoming"] == []
    until(lambda: network(one)["refused"] + network(two)["refused"] > 0)
    nodes.start(3)
    nodes.put(b"goes on without")  # 1 and 3 are most
    assert nodes.machines[2][0].words == []


def test_a_node_of_another_cluster_is_refused(tmp_path: Path, nodes: Nodes) -> None:
    nodes.start(1)
    Node.create(tmp_path / "other", "other", 2, [1, 2])
    with Node(
        tmp_path / "other", cluster="other", node=2, listen=("127.0.0.1", 0),
        peers={1: nodes.peers[1]}, secret=SECRET, machines=[Words()],
    ):  # fmt: skip
        until(lambda: "another cluster" in (network(nodes.nodes[1])["refusal"] or ""))


def talk(node: Node, work: Callable[[Any, Any], Awaitable[Any]]) -> Any:
    """Connect to a node as anybody can."""

    async def run() -> Any:
        reader, writer = await asyncio.open_connection(*node.address)
        try:
            return await work(reader, writer)
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    return asyncio.run(run())


def test_a_stranger_is_told_nothing(nodes: Nodes) -> None:
    nodes.start(1)
    node = nodes.nodes[1]

    async def noise(reader: Any, writer: Any) -> bytes:
        writer.write(b"GET / HTTP/1.1\r\n" + bytes(100))
        found: bytes = await reader.read()
        return found

    assert talk(node, noise) == b""
    until(lambda: "no node called" in (network(node)["refusal"] or ""))

    said: list[bytes] = []

    class Noting:
        """A writer that notes what is written."""

        def __init__(self, writer: Any) -> None:
            self.writer = writer

        def write(self, data: bytes) -> None:
            said.append(data)
            self.writer.write(data)

    async def right(reader: Any, writer: Any) -> bytes:
        return await greet(reader, Noting(writer), SECRET, "test", 2, 1)  # type: ignore[arg-type]

    async def again(reader: Any, writer: Any) -> bytes:
        writer.write(said[0])
        await reader.readexactly(64)
        writer.write(said[1])  # what proved it once proves nothing now
        found: bytes = await reader.read()
        return found

    assert len(talk(node, right)) == 32
    assert talk(node, again) == b""
    until(lambda: "another secret called" in (network(node)["refusal"] or ""))


@pytest.mark.parametrize(
    ("what", "why"),
    [
        (lambda key: frame(b"wrong" * 10, 0, BATCH, b"x"), "damaged or forged"),
        (lambda key: frame(key, 1, BATCH, b"x"), "damaged or forged"),  # not the first frame
        (lambda key: frame(key, 0, BATCH, bytes(2 << 20)), "too large"),
        (lambda key: frame(key, 0, 77, b"x"), "no known kind"),
        (lambda key: frame(key, 0, BATCH, b"\xc1"), "MessagePack"),
        (lambda key: frame(key, 0, PIECE, b"\x07\x01x"), "no known kind"),
        (
            lambda key: frame(key, 0, BATCH, msgspec.msgpack.encode([(0, Join(THREE, ONE))])),
            "in the name of another",
        ),
    ],
)
def test_a_wrong_frame_ends_the_connection(
    nodes: Nodes, what: Callable[[bytes], bytes], why: str
) -> None:
    nodes.start(1)
    node = nodes.nodes[1]

    async def speak(reader: Any, writer: Any) -> bytes:
        key = await greet(reader, writer, SECRET, "test", 2, 1)
        with contextlib.suppress(OSError):
            writer.write(what(key))
            await reader.read()
        return b""

    talk(node, speak)
    until(lambda: why in (network(node)["refusal"] or ""))


def test_who_proves_nothing_keeps_no_node_out_and_fills_no_log(
    nodes: Nodes, caplog: pytest.LogCaptureFixture
) -> None:
    nodes.start(1)
    node = nodes.nodes[1]
    with contextlib.ExitStack() as stack:
        for _ in range(200):
            stack.enter_context(socket.create_connection(node.address))
        until(lambda: network(node)["refused"] >= 200 - 64)
        key = talk(node, lambda r, w: greet(r, w, SECRET, "test", 2, 1))  # while they wait
        assert len(key) == 32
    assert network(node)["refusal"] == "too many connections prove nothing"
    lines = [r for r in caplog.records if "a connection was refused" in r.getMessage()]
    assert len(lines) < 20  # one in ten seconds
    assert lines[0].getMessage() == "a connection was refused: too many connections prove nothing"


def test_with_tls_nobody_gets_in_without(tmp_path: Path, nodes: Nodes) -> None:
    make_certificates(tmp_path)
    tls = TLS(tmp_path / "node.pem", tmp_path / "node.key", tmp_path / "ca.pem")
    machine = Words()
    with Node(
        nodes.path(1), cluster="test", node=1, listen=nodes.peers[1], peers=nodes.peers,
        secret=SECRET, machines=[machine], tls=tls,
    ) as node:  # fmt: skip
        nodes.start(2)  # it speaks plainly
        until(lambda: nodes.nodes[2].status()["network"]["peers"][1]["error"])
        with pytest.raises((TidelineError, OSError, EOFError)):
            talk(node, lambda r, w: greet(r, w, SECRET, "test", 2, 1))
        assert network(node)["incoming"] == []
    with pytest.raises(InvalidRequest, match="TLS files"):
        Node(
            nodes.path(1), cluster="test", node=1, listen=nodes.peers[1], peers={}, secret=SECRET,
            machines=[machine], tls=TLS(tmp_path / "none.pem", tmp_path / "node.key", "ca"),
        )  # fmt: skip


def test_an_address_in_use_is_said(nodes: Nodes) -> None:
    nodes.start(1)
    nodes.peers[2] = nodes.peers[1]
    with pytest.raises(Unavailable, match="cannot be listened on"):
        nodes.start(2)


def entries(first: int, last: int) -> tuple[Entry, ...]:
    return tuple(Entry(i, BALLOT, DATA, b"%d" % i) for i in range(first, last + 1))


def accept(prev: int, upto: int, sent: int = 1, ballot: Ballot = BALLOT) -> Accept:
    found = entries(prev + 1, upto)
    return Accept(ONE, TWO, ballot, prev, BALLOT, upto, prev, sent, sent, (1, sent), True, found)


def test_what_follows_on_another_is_said_with_it() -> None:
    both = merged(accept(3, 5, sent=1), accept(5, 8, sent=2))
    assert isinstance(both, Accept)
    assert (both.prev_index, both.upto, both.decided, both.sent) == (3, 8, 5, 2)
    assert both.entries == entries(4, 8)
    assert merged(accept(3, 5), accept(6, 8)) is None
    assert merged(accept(3, 5), accept(5, 8, ballot=Ballot(2, 1, 1))) is None
    assert merged(accept(0, 50), accept(50, 90)) is None  # too many
    one = Accepted(TWO, ONE, BALLOT, 5, 1, 1, (1, 1))
    two = Accepted(TWO, ONE, BALLOT, 7, 2, 1, (1, 2))
    assert merged(one, two) == two
    assert merged(two, one) is None
    assert merged(one, accept(1, 2)) is None


def test_a_large_snapshot_arrives_and_disturbs_nobody(nodes: Nodes) -> None:
    nodes.start(1, 2)
    word = b"x" * (1 << 20)
    leader = nodes.leader()
    for _ in range(8):
        leader.propose([word]).wait(60)
    (machine,) = nodes.machines[leader.node]
    leader.read_index(60)
    leader.compact(machine.snapshot(), machine.index)
    roles = len(machine.roles)
    nodes.start(3)
    until(lambda: nodes.machines[3][0].installed)
    assert nodes.machines[3][0].words == [word] * 8
    nodes.put(b"y")
    until(lambda: nodes.machines[3][0].words[-1] == b"y")
    assert len(machine.roles) == roles
