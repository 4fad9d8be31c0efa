"""Messages of replicas over TCP: one connection for each direction, signed frames, bounded queues.

    post (any thread) -> link of the receiver (link.py) ~~ frames (wire.py) ~~> receive

Whoever connects tells its address book, so a node has to be told of one other to be found by all.
A frame that is not right ends its connection; the other side makes another one. Connections that
prove nothing make room for new ones, and fill no log.

Threads: `post` and `status` are safe from any thread; all else is for the loop's.
"""

from __future__ import annotations

import asyncio
import logging
import time
from asyncio import StreamReader, StreamWriter
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import msgspec

from tideline.errors import TidelineError, Unauthorized, Unavailable
from tideline.replica.handshake import TLS, answer, check_secret, greet
from tideline.replica.link import PROVE_S, Link, tune
from tideline.replica.messages import Mark, Message
from tideline.replica.wire import (
    BATCH,
    BOOK,
    HEAD,
    MOST_BYTES,
    MOST_FRAME,
    PIECE,
    Address,
    Tagged,
    decode,
    joined,
    read_book,
    signature,
)

__all__ = ["Network"]

_STRANGERS = 64  # connections that have not proved anything yet
_READ = 16 << 10  # bytes that are taken at once, where there are as many
_TELL_S = 10.0  # at most one line about those that were refused

_log = logging.getLogger("tideline.replica")


class Network:
    """The connections of one node.

    `receive(node, messages)` is called with what comes; `gone(node)` when nobody listens where a
    node was, as after its process was killed; `state(group, mark)` gives the state of a snapshot
    that is to be sent (from another thread; `TidelineError` when there is none any more).
    """

    def __init__(
        self,
        *,
        cluster: str,
        node: int,
        listen: Address,
        peers: dict[int, Address],
        secret: bytes,
        tls: TLS | None,
        receive: Callable[[int, Sequence[Tagged]], None],
        gone: Callable[[int], None],
        state: Callable[[int, Mark], bytes],
    ) -> None:
        self.cluster, self.node, self.listen = cluster, node, listen
        self.secret = check_secret(secret)
        self.address = listen
        self.receive, self.gone, self.state = receive, gone, state
        self._client_tls = tls.context(server=False) if tls else None
        self._server_tls = tls.context(server=True) if tls else None
        self._peers = {peer: at for peer, at in peers.items() if peer != node}
        self.book: dict[int, Address] = dict(peers)
        self.links: dict[int, Link] = {}
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._incoming: dict[int, StreamWriter] = {}
        self._strangers: dict[asyncio.Task[Any], None] = {}  # the oldest first
        self.refused = self._told = 0
        self._told_at = -_TELL_S
        self.refusal: str | None = None

    # ---- life --------------------------------------------------------------------------------

    async def start(self) -> None:
        """Listen and dial; `Unavailable` when the address cannot be listened on."""
        host, port = self.listen
        try:
            self._server = await asyncio.start_server(
                self._on_connection, host, port, ssl=self._server_tls, limit=MOST_FRAME,
                ssl_handshake_timeout=PROVE_S if self._server_tls else None,
            )  # fmt: skip
        except OSError as error:
            raise Unavailable(
                "this address cannot be listened on", address=f"{host}:{port}", reason=str(error)
            ) from None
        self.address = (host, self._server.sockets[0].getsockname()[1])
        self.book[self.node] = self.book.get(self.node, self.address)
        for peer in list(self.book):
            self._dial(peer)

    def _dial(self, peer: int) -> None:
        if peer != self.node and peer not in self.links:
            link = self.links[peer] = Link(
                peer, self.book, self._client_tls, self._greet, self.state, self.gone
            )
            self.spawn(link.run())

    async def _greet(self, reader: StreamReader, writer: StreamWriter, peer: int) -> bytes:
        return await greet(reader, writer, self.secret, self.cluster, self.node, peer)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something until `close`."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Hang up."""
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in list(self._incoming.values()):
            writer.transport.abort()

    # ---- sending -----------------------------------------------------------------------------

    def post(self, group: int, messages: Sequence[Message]) -> None:
        """Send, now or soon, what can be sent. Safe from any thread; the order of calls counts."""
        for message in messages:
            link = self.links.get(message.to.node)
            if link is not None:
                link.put(group, message)

    # ---- addresses ---------------------------------------------------------------------------

    def meet(self, book: dict[int, Address]) -> None:
        """Learn addresses. What this node was told itself counts more than what others say."""
        fresh = {
            node: at
            for node, at in book.items()
            if node != self.node and node not in self._peers and self.book.get(node) != at
        }
        if not fresh:
            return
        self.book.update(fresh)
        for node in fresh:
            self._dial(node)
        for link in self.links.values():
            link.tell_book()

    # ---- receiving ---------------------------------------------------------------------------

    async def _on_connection(self, reader: StreamReader, writer: StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._serve(reader, writer, task)
        except (TidelineError, msgspec.DecodeError) as error:
            self._refuse(str(error))
        except (OSError, EOFError, TimeoutError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    def _refuse(self, why: str) -> None:
        """Say so, seldom: anybody can call."""
        self.refused += 1
        self.refusal = why
        now = time.monotonic()
        if now - self._told_at >= _TELL_S:
            more = self.refused - self._told - 1
            others = f" ({more:,} others were since the last such line)" if more else ""
            _log.warning("a connection was refused: %s%s", why, others)
            self._told, self._told_at = self.refused, now

    async def _serve(
        self, reader: StreamReader, writer: StreamWriter, task: asyncio.Task[Any]
    ) -> None:
        if len(self._strangers) >= _STRANGERS:  # a node needs milliseconds: the oldest is none
            oldest = next(iter(self._strangers))
            del self._strangers[oldest]
            oldest.cancel()
            self._refuse("too many connections prove nothing")
        self._strangers[task] = None
        try:
            async with asyncio.timeout(PROVE_S):
                peer, key = await answer(reader, writer, self.secret, self.cluster, self.node)
        finally:
            self._strangers.pop(task, None)
        tune(writer)
        old = self._incoming.get(peer)
        if old is not None:
            old.transport.abort()  # the same node connected anew
        self._incoming[peer] = writer
        try:
            await self._hear(reader, peer, key)
        finally:
            if self._incoming.get(peer) is writer:
                del self._incoming[peer]

    async def _hear(self, reader: StreamReader, peer: int, key: bytes) -> None:
        parts: dict[int, list[bytes]] = {0: [], 1: []}
        sizes = {0: 0, 1: 0}
        number = 0
        data = b""
        while True:
            data = await _at_least(HEAD.size, data, reader)
            size, kind, signed = HEAD.unpack_from(data)
            if size > MOST_FRAME:
                raise Unauthorized("a frame is too large", node=peer, size_bytes=size)
            data = await _at_least(HEAD.size + size, data, reader)
            payload, data = data[HEAD.size : HEAD.size + size], data[HEAD.size + size :]
            if signature(key, number, kind, payload) != signed:
                raise Unauthorized("a frame is damaged or forged", node=peer)
            number += 1
            if kind == BOOK:
                self.meet(read_book(payload))
            elif kind == BATCH:
                self._take(peer, decode(payload))
            elif kind == PIECE and size >= 2 and payload[0] in parts:
                lane = payload[0]
                parts[lane].append(payload[2:])
                sizes[lane] += size
                if sizes[lane] > MOST_BYTES[lane]:
                    raise Unauthorized("a message is too large", node=peer)
                if payload[1]:
                    found, parts[lane], sizes[lane] = parts[lane], [], 0
                    self._take(peer, await asyncio.to_thread(joined, found))
            else:
                raise Unauthorized("a frame is of no known kind", node=peer, kind=kind)

    def _take(self, peer: int, messages: Sequence[Tagged]) -> None:
        for _, message in messages:
            if message.sender.node != peer:
                raise Unauthorized("a message is in the name of another node", node=peer)
        self.receive(peer, messages)

    def status(self) -> dict[str, Any]:
        """What is connected, and what was dropped."""
        return {
            "address": "{}:{}".format(*self.address),
            "peers": {peer: link.status() for peer, link in sorted(self.links.items())},
            "incoming": sorted(self._incoming),
            "refused": self.refused,
            "refusal": self.refusal,
        }


async def _at_least(size: int, data: bytes, reader: StreamReader) -> bytes:
    """What was read and not used yet, with as much more as makes it so many bytes at least."""
    lacks = size - len(data)
    if lacks <= 0:
        return data
    if lacks > _READ:
        return data + await reader.readexactly(lacks)
    more = await reader.read(_READ)
    if not more:
        raise EOFError("the connection ended")
    return await _at_least(size, data + more, reader)
