"""Three servers, one database: the leader is killed, and whoever writes or listens goes on.

    python examples/three_nodes                 # half a minute
    python examples/three_nodes --kills 5

It runs the same commands as you would, `tideline cluster create` and `tideline serve --node`, on
loopback and in a temporary folder. One thread writes orders, another follows them as a live query;
both know all three addresses. At the end it counts: nothing acknowledged may be missing.
"""

from __future__ import annotations

import argparse
import contextlib
import secrets
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import tideline

NAMES = ("n1", "n2", "n3")
PATIENCE_S = 60.0


class Servers:
    """The three, each a process of its own."""

    def __init__(self, folder: Path) -> None:
        held = [socket.create_server(("127.0.0.1", 0)) for _ in range(2 * len(NAMES))]
        ports = [one.getsockname()[1] for one in held]
        for one in held:
            one.close()
        self.folder = folder
        self.urls = dict(zip(NAMES, (f"http://127.0.0.1:{port}" for port in ports), strict=False))
        between = zip(NAMES, ports[len(NAMES) :], strict=True)
        self.peers = ",".join(f"{name}=127.0.0.1:{port}" for name, port in between)
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        (folder / "secret").write_text(secrets.token_hex(32), "utf-8")
        for name in NAMES:
            command = ["cluster", "create", str(folder / name), "--node", name]
            subprocess.run(
                [sys.executable, "-m", "tideline", *command, "--peers", self.peers],
                check=True, stdout=subprocess.DEVNULL,
            )  # fmt: skip
            self.start(name)

    def start(self, name: str) -> None:
        command = [
            "serve", str(self.folder / name), "--node", name, "--peers", self.peers,
            "--secret-file", str(self.folder / "secret"),
            "--port", self.urls[name].rpartition(":")[2], "--log", "warning",
        ]  # fmt: skip
        with (self.folder / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                [sys.executable, "-m", "tideline", *command], stdout=log, stderr=log
            )

    def kill(self, name: str) -> None:
        """As a power cut would: kill -9."""
        self.running[name].kill()
        self.running[name].wait()

    def leader(self, *, but: str = "") -> str:
        """Who writes; waits until there is one."""
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            for name, url in self.urls.items():
                if name != but and self.running[name].poll() is None:
                    with contextlib.suppress(tideline.TidelineError), tideline.connect(url) as one:
                        if (leads := one.cluster()["leader"]) not in (None, but):
                            return str(leads)
            time.sleep(0.1)
        raise tideline.Unavailable("nobody leads", logs=str(self.folder))

    def close(self) -> None:
        for process in self.running.values():
            process.terminate()
        for process in self.running.values():
            process.wait()


@contextlib.contextmanager
def three(folder: Path) -> Iterator[Servers]:
    servers = Servers(folder)
    try:
        yield servers
    finally:
        servers.close()


class Orders:
    """What was written and acknowledged, and what a live query was told of."""

    def __init__(self, urls: list[str]) -> None:
        self.db = tideline.connect(urls)
        self.orders = self.db.collection("orders", key="id")
        self.live = self.orders.watch({"state": "open"})
        self.acknowledged: list[int] = []
        self.unknown: list[int] = []
        self.told: list[int] = []
        self.longest_s = 0.0
        self.over = threading.Event()
        self.threads = [threading.Thread(target=self.write), threading.Thread(target=self.follow)]
        for thread in self.threads:
            thread.start()

    def write(self) -> None:
        number = 0
        while not self.over.is_set():
            number += 1
            began = time.monotonic()
            try:
                self.orders.put({"id": number, "state": "open"})
                self.acknowledged.append(number)
            except tideline.TidelineError:  # it may have landed or not: nobody was promised
                self.unknown.append(number)
            self.longest_s = max(self.longest_s, time.monotonic() - began)

    def follow(self) -> None:
        for change in self.live:
            self.told.append(change.key)

    def finish(self) -> set[int]:
        """What is stored, once the live query was told of it, or was given up."""
        self.over.set()
        self.threads[0].join()
        stored = set(self.orders.distinct("id"))
        until = time.monotonic() + PATIENCE_S
        while stored - set(self.told) and time.monotonic() < until:
            time.sleep(0.05)
        self.live.cancel()
        self.threads[1].join()
        return stored


def run(folder: Path, kills: int, between_s: float) -> bool:
    """Whether nothing was lost and nothing was told twice."""
    with three(folder) as servers:
        print(f"the leader is {servers.leader()}; {', '.join(servers.urls.values())}")
        orders = Orders(list(servers.urls.values()))
        for _ in range(kills):
            time.sleep(between_s)
            name = servers.leader()
            before = len(orders.acknowledged)
            servers.kill(name)
            print(f"{before} orders are acknowledged; {name}, the leader, is killed")
            print(f"  {servers.leader(but=name)} leads now; {name} starts again as a follower")
            servers.start(name)
        time.sleep(between_s)
        stored = orders.finish()
        lost = set(orders.acknowledged) - stored
        missed = stored - set(orders.told)
        twice = len(orders.told) - len(set(orders.told))
        print(f"{len(orders.acknowledged)} acknowledged, {len(lost)} lost")
        print(f"{len(orders.unknown)} writes ended without an answer")
        print(f"the live query was told {len(orders.told)}: {len(missed)} missed, {twice} twice")
        print(f"the longest write took {orders.longest_s:.1f} s")
        orders.db.close()
    return not lost and not missed and not twice


def main() -> int:
    options = argparse.ArgumentParser(
        prog="python examples/three_nodes", description=__doc__.splitlines()[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )  # fmt: skip
    options.add_argument("--kills", type=int, default=2, help="how often the leader is killed")
    options.add_argument("--seconds", type=float, default=3, help="between two of them")
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        try:
            return 0 if run(Path(folder), chosen.kills, chosen.seconds) else 1
        except tideline.TidelineError as error:
            print(f"error: {error}", file=sys.stderr)
            return 2


if __name__ == "__main__":
    sys.exit(main())
