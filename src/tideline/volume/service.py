"""What a node of a volume answers to clients and to other nodes.

One thread a connection; its requests are answered in order, those of different connections at
once, and then share an fsync. Verbs are methods of `Service` whose names begin with `do_`.

`fetch_from` is how a replica asks the others for blocks that it lacks or that are damaged.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Sequence
from typing import Any

import msgspec

from tideline.errors import InvalidRequest, TidelineError, Unavailable
from tideline.replica import Node
from tideline.volume.machine import Fetch
from tideline.volume.settings import service_address
from tideline.volume.volumes import Volumes
from tideline.volume.wire import Stream, accept, connect, listen, parse_address, told

__all__ = ["Service", "fetch_from"]

_FETCH_WAIT_S = 2.0


class Service:
    """Answers for the volumes of one node."""

    def __init__(
        self, volumes: Volumes, address: str, *, node: int = 1, nodes: dict[int, str] | None = None,
        secret: bytes = b"", tls: ssl.SSLContext | None = None,
    ) -> None:  # fmt: skip
        """Listen at once. `nodes`: where the service of each node is, for clients."""
        self._volumes, self._node = volumes, node
        self._secret, self._tls = secret, tls
        self._server = listen(parse_address(address))
        found = self._server.getsockname()
        self.address = f"unix:{found}" if isinstance(found, str) else f"{found[0]}:{found[1]}"
        self._nodes = {node: self.address} if nodes is None else nodes
        self._streams: set[Stream] = set()
        self._closed = False
        threading.Thread(target=self._accept, name="volume service", daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        stream = None
        try:
            if sock.family != socket.AF_UNIX:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            stream = accept(sock, self._secret, self._tls)
            self._streams.add(stream)
            while not self._closed:
                stream.send(self._answer(stream.receive()))
        except (OSError, msgspec.DecodeError):
            pass  # the client left, or is none
        finally:
            if stream is not None:
                self._streams.discard(stream)
                stream.close()
            sock.close()

    def _answer(self, request: Any) -> list[Any]:
        try:
            verb, arguments = request
            call = getattr(self, f"do_{verb}", None)
            if call is None:
                raise InvalidRequest("no such verb", verb=verb)
            return [0, call(*arguments)]
        except TidelineError as error:
            return told(error)
        except (TypeError, ValueError) as error:
            return told(InvalidRequest(f"the request cannot be read: {error}"))

    # ---- verbs -------------------------------------------------------------------------------

    def do_hello(self) -> dict[str, Any]:
        machine, nodes = self._volumes.machine, self._served()
        return {
            "node": self._node,
            "leads": self._volumes.node.leads(),
            "leader": nodes.get(machine.leader or 0),
            "nodes": list(nodes.values()),
        }

    def _served(self) -> dict[int, str]:
        """Where all nodes are served: also those that were added after this one had started."""
        node = self._volumes.node
        if not isinstance(node, Node):
            return self._nodes
        told = {number: service_address(at) for number, at in node.addresses.items()}
        return {**told, **self._nodes}

    def do_list(self) -> list[dict[str, Any]]:
        self._volumes.begin()
        return [one._asdict() for one in self._volumes.all()]

    def do_info(self, name: str) -> dict[str, Any]:
        self._volumes.catch_up()
        one = self._volumes.info(name)
        return {**one._asdict(), "block_bytes": self._volumes.block_bytes}

    def do_status(self) -> dict[str, Any]:
        return {"node": self._node, **self._volumes.status()}

    def do_add(self, name: str, size_bytes: int, ask: str) -> None:
        self._volumes.add(name, size_bytes, ask=ask)

    def do_snapshot(self, source: str, name: str, ask: str) -> None:
        self._volumes.snapshot(source, name, ask=ask)

    def do_clone(self, source: str, name: str, ask: str) -> None:
        self._volumes.clone(source, name, ask=ask)

    def do_delete(self, name: str) -> None:
        self._volumes.delete(name)

    def do_resize(self, name: str, size_bytes: int) -> None:
        self._volumes.resize(name, size_bytes)

    def do_add_node(self, number: int) -> None:
        self._volumes.add_node(number)

    def do_remove_node(self, number: int) -> None:
        self._volumes.remove_node(number)

    def do_open(self, name: str, client: str, take: bool) -> int:
        return self._volumes.open_session(name, client, take=take)

    def do_read(self, name: str, offset: int, size: int, local: bool) -> bytes:
        return self._volumes.read(name, offset, size, local=local)

    def do_write(self, name: str, session: int, writes: list[tuple[int, bytes]]) -> None:
        self._volumes.write_many(name, writes, session=session)

    def do_trim(self, name: str, session: int, offset: int, size: int) -> None:
        self._volumes.trim(name, offset, size, session=session)

    def do_vacuum(self, live: float) -> dict[str, Any]:
        return self._volumes.vacuum(live)

    def do_scrub(self) -> dict[str, int]:
        return self._volumes.scrub()

    def do_fetch(
        self, volume: int, blocks: list[int], index: int
    ) -> list[tuple[int, bytes | memoryview] | None]:
        machine = self._volumes.machine
        with contextlib.suppress(Unavailable):
            self._volumes.node.wait_applied(index, _FETCH_WAIT_S)
        return [machine.read(volume, block, 1, mend=False)[0] for block in blocks]

    def close(self) -> None:
        """Stop answering."""
        self._closed = True
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for stream in list(self._streams):
            stream.close()


def fetch_from(
    addresses: Sequence[str], *, secret: bytes = b"", tls: ssl.SSLContext | None = None
) -> Fetch:
    """Ask these nodes for blocks, one node after the other."""

    def fetch(volume: int, blocks: Sequence[int], index: int) -> list[tuple[int, bytes] | None]:
        out: list[tuple[int, bytes] | None] = [None] * len(blocks)
        for address in addresses:
            left = [at for at, each in enumerate(out) if each is None]
            if not left:
                break
            try:
                stream = connect(parse_address(address), secret, tls, 5)
                try:
                    stream.sock.settimeout(30)
                    for start in range(0, len(left), 64):
                        part = left[start : start + 64]
                        given = stream.call("fetch", [volume, [blocks[at] for at in part], index])
                        for at, each in zip(part, given, strict=True):
                            if each is not None:
                                out[at] = (each[0], each[1])
                finally:
                    stream.close()
            except (OSError, TidelineError):
                continue  # the next one may have them
        return out

    return fetch
