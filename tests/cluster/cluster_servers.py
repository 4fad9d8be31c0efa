"""Three real servers that are one database, for tests that kill them.

`Three` makes the folders, starts `tideline serve --node` for each, and waits for a leader.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from certificates import certificate
from ports import free_port, free_ports

import tideline
from tideline.cluster.node import create, recover
from tideline.cluster.settings import ClusterSettings
from tideline.errors import Unavailable
from tideline.server.tokens import Tokens

GUARD_S = 120.0
SECRET = b"a secret that all nodes share"


class Three:
    """The servers, by name; all are stopped at the end."""

    def __init__(
        self, root: Path, count: int = 3, *, tls: bool = False, source: Path | None = None
    ) -> None:
        """With `tls`, between nodes and for programs; with `source`, n1 begins with a copy."""
        self.root = root
        self.tls = certificate(root) if tls else None
        scheme = "https" if tls else "http"
        ports = free_ports(2 * count)
        self.peers = {f"n{n + 1}": ("127.0.0.1", ports[n]) for n in range(count)}
        self.urls = {
            name: f"{scheme}://127.0.0.1:{ports[count + n]}" for n, name in enumerate(self.peers)
        }
        self.token: str | None = None
        """What is shown to the servers, once they have tokens."""
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        (root / "secret").write_bytes(SECRET)
        for name in self.peers:
            if source is not None and name != "n1":
                recover(root / name, self._settings(name))
            else:
                create(root / name, self._settings(name), source)

    def _settings(self, name: str) -> ClusterSettings:
        return ClusterSettings(name, self.peers, SECRET)

    @property
    def all(self) -> list[str]:
        """The addresses of all, as clients are given them."""
        return list(self.urls.values())

    def connect(self, *names: str) -> Any:
        """A client of some, or of all."""
        urls = [self.urls[name] for name in names] or self.all
        ca = None if self.tls is None else str(self.tls[0])
        return tideline.connect(urls, token=self.token, timeout_s=GUARD_S, ca=ca)

    def start(self, *names: str) -> None:
        """Start servers that do not run."""
        peers = ",".join(f"{name}={host}:{port}" for name, (host, port) in self.peers.items())
        for name in names or self.peers:
            command = [
                sys.executable, "-m", "tideline", "--memory-mb", "128", "serve",
                str(self.root / name), "--node", name, "--peers", peers, "--secret-file",
                str(self.root / "secret"), "--port", self.urls[name].rpartition(":")[2],
                "--log", "warning",
            ]  # fmt: skip
            if self.tls is not None:
                cert, key = map(str, self.tls)
                command += ["--tls-cert", cert, "--tls-key", key, "--node-cert", cert]
                command += ["--node-key", key, "--node-ca", cert]
            with (self.root / f"{name}.log").open("ab") as log:
                self.running[name] = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                    env={**os.environ, "PYTHONUNBUFFERED": "1"},
                )  # fmt: skip

    def kill(self, name: str) -> None:
        """kill -9."""
        process = self.running.pop(name)
        process.kill()
        process.wait()

    def pause(self, name: str) -> None:
        """Stop a process where it stands; nobody else is told."""
        self.running[name].send_signal(signal.SIGSTOP)

    def go_on(self, name: str) -> None:
        """Let it go on."""
        self.running[name].send_signal(signal.SIGCONT)

    def add(self, name: str) -> None:
        """Make the disk of a new node, which is to be started and taken in."""
        self.peers[name] = ("127.0.0.1", free_port())
        self.urls[name] = f"http://127.0.0.1:{free_port()}"
        recover(self.root / name, self._settings(name))

    def take_in(self, name: str) -> None:
        """Have a node that runs taken in, and wait until it votes."""
        wait_for(lambda: name in self.status(self.leader()).get("asking", []))
        with self.connect() as db:
            landed(lambda: db.cluster_add(name))

        def votes() -> bool:
            nodes = self.status(self.leader())["nodes"]
            return any(one["node"] == name and one["votes"] for one in nodes)

        wait_for(votes)

    def guard(self) -> str:
        """Make the first token, by a command at a follower; all nodes go by it from now on."""
        leader = self.leader()
        follower = next(name for name in self.peers if name != leader)
        text, token = Tokens(self.root / follower).create(["admin"])
        self.token = text
        wait_for(lambda: self.knows(token.id) == set(self.peers))
        wait_for(lambda: set(self.answers(None).values()) == {401})
        wait_for(lambda: set(self.answers(text).values()) == {200})
        return text

    def knows(self, id: str) -> set[str]:
        """On which nodes a token is."""
        return {
            name for name in self.peers
            if id in [token.id for token in Tokens(self.root / name).load()]
        }  # fmt: skip

    def answers(self, token: str | None) -> dict[str, int]:
        """How each node that runs answers whoever shows a token; 0 if it does not listen yet."""

        def answer(name: str) -> int:
            with contextlib.suppress(OSError):
                return self.ask(name, "/v1/channels")[0]
            return 0

        held, self.token = self.token, token
        try:
            return {name: answer(name) for name in self.running}
        finally:
            self.token = held

    def while_one_leads(self, look: Callable[[str], None]) -> None:
        """Look at what holds as long as one node leads; again, if another came meanwhile.

        On a busy machine one may. What is looked at may be there already.
        """
        while True:
            leader = self.leader()
            try:
                look(leader)
                return
            except Exception:
                if self.leader() == leader:
                    raise

    def wipe(self, name: str) -> None:
        """Let a node lose its disk, and make it a new one."""
        import shutil

        shutil.rmtree(self.root / name)
        recover(self.root / name, self._settings(name))

    def ask(self, name: str, path: str) -> tuple[int, Any, dict[str, str]]:
        """What a server answers: status, document, headers."""
        request = urllib.request.Request(self.urls[name] + path)
        if self.token is not None:
            request.add_header("Authorization", f"Bearer {self.token}")
        trusted = None if self.tls is None else ssl.create_default_context(cafile=self.tls[0])
        opener = urllib.request.build_opener(
            _Plain(), urllib.request.HTTPSHandler(context=trusted)
        )  # fmt: skip
        try:
            with opener.open(request, timeout=30) as answer:
                return answer.status, json.load(answer), dict(answer.headers)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read()), dict(error.headers)

    def status(self, name: str) -> dict[str, Any]:
        """What a server says of the cluster; empty while it does not."""
        try:
            status, said, _ = self.ask(name, "/v1/cluster")
        except OSError:
            self._check(name)
            return {}
        return said if status == 200 else {}

    def leader(self, *, but: str | None = None) -> str:
        """The name of the node that leads, once one does and says where it is served."""
        limit = time.monotonic() + GUARD_S
        while time.monotonic() < limit:
            for name in [each for each in self.running if each != but]:
                said = self.status(name)
                if said.get("role") == "leader" and said["leader_url"]:
                    return name
            time.sleep(0.02)
        raise AssertionError(f"nobody leads: {self._logs()}")

    def caught_up(self, name: str) -> None:
        """Wait until a node has all that the leader has decided by now."""
        wanted = self.status(self.leader())["decided"]
        limit = time.monotonic() + GUARD_S
        while self.status(name).get("applied", -1) < wanted:
            assert time.monotonic() < limit, f"{name} stays behind: {self._logs()}"
            time.sleep(0.02)

    def _check(self, name: str) -> None:
        process = self.running.get(name)
        assert process is None or process.poll() is None, f"{name} ended: {self._logs()}"

    def _logs(self) -> str:
        return "\n".join(path.read_text()[-4000:] for path in sorted(self.root.glob("*.log")))

    def close(self) -> None:
        """Stop all."""
        for process in self.running.values():
            process.kill()
        for process in self.running.values():
            process.wait()


def wait_for(condition: Callable[[], object]) -> None:
    """Wait until something holds."""
    limit = time.monotonic() + GUARD_S
    while not condition():
        assert time.monotonic() < limit, "it did not come"
        time.sleep(0.01)


def landed(write: Callable[[], Any]) -> Any:
    """Make a write that may be made twice until it is known to have landed."""
    while True:
        try:
            return write()
        except Unavailable:  # the leader changed: on a busy machine it may by itself
            continue


class _Plain(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


@contextlib.contextmanager
def three(root: Path, count: int = 3, *, tls: bool = False) -> Iterator[Three]:
    """Servers that run, with a leader."""
    servers = Three(root, count, tls=tls)
    try:
        servers.start()
        servers.leader()
        yield servers
    finally:
        servers.close()
