"""A node of a volume, running: its replica, its service for clients, NBD, and what looks after it.

    settings.nodes empty      a group of one (single.py); the service has a socket in the folder
    else                      a `Node`: the service listens on the port that is named, the replicas
                              talk to each other on the port after it

    every few seconds: blocks that are missing here are asked from the others; when half of what is
    stored is not mapped any more, vacuum

Used by `tideline volume serve`.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Sequence
from pathlib import Path

from tideline.errors import InvalidRequest, TidelineError
from tideline.replica import TLS, Node
from tideline.volume.client import Attached, Client
from tideline.volume.machine import VolumeMachine
from tideline.volume.nbd import NbdServer
from tideline.volume.service import Service, fetch_from
from tideline.volume.settings import (
    CLUSTER,
    Settings,
    load_settings,
    own_address,
    replica_address,
    save_nodes,
)
from tideline.volume.single import Single
from tideline.volume.volumes import Volumes
from tideline.volume.wire import parse_address

__all__ = ["Serving", "export"]

_log = logging.getLogger("tideline.volume")
_LOOK_EVERY_S = 5.0
_LEAST_GARBAGE = 256 << 20


def export(address: str, client: Client, *, only: str = "", write_back: bool = True) -> NbdServer:
    """Give out volumes over NBD: all of them, or only one."""

    def open_disk(name: str) -> Attached:
        if only and name not in ("", only):
            raise InvalidRequest("only one volume is exported here", name=name, exported=only)
        return Attached(client, name or only or "main", write_back=write_back)

    def names() -> list[str]:
        return [only] if only else [str(one["name"]) for one in client.call("list")]

    return NbdServer(address, open_disk, names)


class Serving:
    """A node that runs until `close`."""

    def __init__(
        self, folder: Path, *, listen: str | None = None, nbd: Sequence[str] = (),
        secret: bytes = b"", tls: TLS | None = None, write_back: bool = True,
        compact_bytes: int | None = None, tick_s: float = 0.05,
        nodes: dict[int, str] | None = None,
    ) -> None:  # fmt: skip
        """Open the folder and start. `listen` is the address of the service, where that is not the
        one other nodes know, or a socket in the folder of a group of one. `compact_bytes`: a
        checkpoint after so much log; without it, after a quarter of what is mapped, at least
        256 MiB. `nodes`: where all are, from now on."""
        if nodes is not None:
            save_nodes(folder, nodes)
        settings = load_settings(folder)
        others = [at for number, at in settings.nodes.items() if number != settings.node]
        inward = tls.context(server=False) if tls is not None else None
        outward = tls.context(server=True) if tls is not None else None
        address = listen or settings.nodes.get(settings.node) or own_address(folder)
        _check_reach(address, secret)
        self._ending = contextlib.ExitStack()
        machine, owner = Volumes.machine_of(folder)
        self._ending.callback(owner.leave)
        try:
            self._ending.callback(machine.close)
            if compact_bytes is None:
                compact_bytes = max(256 << 20, machine.mapped_bytes() // 4)
            node = _start(
                folder / "replica", settings, machine, secret, tls, compact_bytes, tick_s, address
            )
            self._ending.callback(node.close)
            machine.fetch = fetch_from(others, secret=secret, tls=inward)
            self.volumes = Volumes(machine, node, size_bytes=settings.size_bytes)
            self.service = Service(
                self.volumes, address, node=settings.node, nodes=settings.nodes or None,
                secret=secret, tls=outward,
            )  # fmt: skip
            self._ending.callback(self.service.close)
            self.client = Client([self.service.address, *others], secret=secret, tls=inward)
            self._ending.callback(self.client.close)
            self.nbd = []
            for at in nbd:
                server = export(at, self.client, write_back=write_back)
                self._ending.callback(server.close)
                self.nbd.append(server)
        except BaseException:
            self._ending.close()
            raise
        self._stop = threading.Event()
        self._keeper = threading.Thread(target=self._keep, name="volume keeper", daemon=True)
        self._keeper.start()

    def _keep(self) -> None:
        while not self._stop.wait(_LOOK_EVERY_S):
            try:
                self._heal()
                machine = self.volumes.machine
                garbage = machine.garbage_bytes()
                if garbage > max(_LEAST_GARBAGE, machine.files.total_bytes() // 2):
                    done = machine.vacuum()
                    if done.files:
                        _log.info(
                            "vacuum: %d files dropped, %d bytes freed, %d rewritten",
                            done.files, done.freed_bytes, done.rewritten_bytes,
                        )  # fmt: skip
            except TidelineError as error:
                _log.warning("looking after the volume failed: %s", error)

    def _heal(self) -> None:
        """Fetch what is missing; a checkpoint every GiB and at the end."""
        machine, rounds = self.volumes.machine, 0
        while not self._stop.is_set() and machine.missing() and machine.heal():
            rounds += 1
            if rounds % 16 == 0:
                machine.checkpoint()
        if rounds:
            machine.checkpoint()
            _log.info("blocks that were missing here were fetched; missing: %d", machine.missing())

    def close(self) -> None:
        """Stop in good order: what NBD clients wrote is brought to disk."""
        self._stop.set()
        self._keeper.join()
        self._ending.close()


def _start(
    folder: Path, settings: Settings, machine: VolumeMachine, secret: bytes, tls: TLS | None,
    compact_bytes: int, tick_s: float, address: str,
) -> Node | Single:  # fmt: skip
    if not settings.nodes:
        single = Single(folder, machine, compact_bytes=compact_bytes)
        single.start()
        return single
    node = Node(
        folder, cluster=CLUSTER, node=settings.node, listen=replica_address(address),
        peers={number: replica_address(at) for number, at in settings.nodes.items()},
        secret=secret, machines=[machine], tls=tls, compact_bytes=compact_bytes, tick_s=tick_s,
    )  # fmt: skip
    machine.place_of = node.place
    node.start()
    return node


def _check_reach(address: str, secret: bytes) -> None:
    """Without a secret nobody off this machine may reach it."""
    found = parse_address(address)
    if (
        isinstance(found, tuple)
        and found[0] not in ("127.0.0.1", "::1", "localhost")
        and not secret
    ):
        raise InvalidRequest("off this machine a secret is needed: --secret-file", address=address)
