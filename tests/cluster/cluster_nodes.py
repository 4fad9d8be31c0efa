"""Nodes of one cluster in this process, on real disks and a real network, for tests.

`Nodes` opens, closes and reopens them as a server does (server/nodes.py), without HTTP.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path

from ports import free_ports

from tideline.cluster.node import ClusterNode, create
from tideline.cluster.settings import ClusterSettings

GUARD_S = 60.0
SECRET = b"a secret that all nodes share"


def wait_for(condition: Callable[[], object]) -> None:
    """Wait until something holds."""
    limit = time.monotonic() + GUARD_S
    while not condition():
        assert time.monotonic() < limit, "it did not come"
        time.sleep(0.005)


class Nodes:
    """Nodes by number."""

    def __init__(self, root: Path, count: int = 3, **settings: object) -> None:
        self.root, self.open = root, dict[int, ClusterNode]()
        ports = free_ports(2 * count)
        peers = {f"n{n + 1}": ("127.0.0.1", port) for n, port in enumerate(ports[:count])}
        self.ports = {n + 1: port for n, port in enumerate(ports[count:])}
        """Where a server of each may be, if somebody runs one."""
        self.settings = {
            n: ClusterSettings(
                f"n{n}", peers, SECRET, url=f"http://127.0.0.1:{self.ports[n]}", tick_s=0.25,
                **settings,  # type: ignore[arg-type]
            )
            for n in range(1, count + 1)
        }  # fmt: skip
        for n, told in self.settings.items():
            create(self.folder(n), told)

    def folder(self, number: int) -> Path:
        return self.root / f"n{number}"

    def start(self, *numbers: int, **settings: object) -> None:
        """Open nodes; all of them when none is named."""
        for number in numbers or self.settings:
            told = dataclasses.replace(self.settings[number], **settings)  # type: ignore[arg-type]
            self.open[number] = ClusterNode(self.folder(number), told, memory_mb=64)

    def stop(self, *numbers: int) -> None:
        for number in numbers:
            self.open.pop(number).close()

    def leader(self) -> int:
        """Who leads, once somebody does; what has ended is opened anew."""
        limit = time.monotonic() + GUARD_S
        while time.monotonic() < limit:
            for number, node in list(self.open.items()):
                if node.ended.is_set():
                    self.stop(number)
                    self.start(number)
                elif node.machine.leads:
                    return number
            time.sleep(0.005)
        raise AssertionError("nobody leads")

    def followers(self) -> list[int]:
        leader = self.leader()
        return [number for number in self.open if number != leader]

    def caught_up(self) -> None:
        """Wait until all that are open have applied what the leader has proposed so far."""
        leader = self.open[self.leader()]
        leader.machine.sync_all()
        wanted = leader.machine.applied
        wait_for(lambda: all(n.machine.applied >= wanted for n in self.open.values()))

    def close(self) -> None:
        self.stop(*list(self.open))
