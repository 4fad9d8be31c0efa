"""One node of a cluster, open: its database, its machine and its part of the replicated log.

    create, recover   the disk of a new cluster's node; of one that lost its disk, or is new
    ClusterNode       opened -> `ended` is set -> closed, and opened anew by who runs it

    data/             the database, as anywhere (database.py)
    data/cluster/     what makes it one of several (applied.py)

Who runs a node opens it, serves `db`, and, when `ended` is set, closes it and opens another one on
the same folder (server/nodes.py): a node that led and leads no more begins again as a follower.
"""

from __future__ import annotations

import contextlib
import http.client
import logging
import threading
from pathlib import Path
from typing import Any

import msgspec

from tideline.clock import Clock
from tideline.cluster.applied import finish_install, place_of
from tideline.cluster.machine import Machine, places
from tideline.cluster.settings import ClusterSettings, number_of
from tideline.cluster.state import adopt, receive, speak
from tideline.database import Database
from tideline.errors import InvalidRequest, NotFound, TidelineError, Unavailable
from tideline.kernels.warm import ensure
from tideline.lsm.folder import check_no_strangers, has_database, make_folder
from tideline.lsm.sharedlog import NotLeading
from tideline.replica import TLS, Node, NotLeader, Options, OutcomeUnknown

__all__ = ["ClusterNode", "create", "recover"]

_TELL_S = 1.0
_SAVE_ROUNDS = 20
_log = logging.getLogger("tideline.cluster")


def create(folder: Path, settings: ClusterSettings, source: Path | None = None) -> list[str]:
    """Make the disk of one node of a new cluster; the names of its first members.

    Those are all peers: once on each node, with the same peers. Never again on a node that lost its
    disk: `recover`. With `source`, the folder of a single server's database, the node begins with
    a copy of it and is the only member: the others are made by `recover`, and added.
    """
    _prepare(folder)
    log, number = place_of(folder) / "log", settings.number
    if source is None:
        members = [number_of(name) for name in settings.peers]
        Node.create(log, settings.cluster, number, members)
        return list(settings.peers)
    index = adopt(folder, source)
    Node.create(log, settings.cluster, number, [number], begin=(index, places({})))
    finish_install(folder)
    return [settings.node]


def recover(folder: Path, settings: ClusterSettings) -> None:
    """Make the disk of a node that lost its own, or is new, in an empty folder."""
    _prepare(folder)
    Node.recover(place_of(folder) / "log", settings.cluster, settings.number)


def _prepare(folder: Path) -> None:
    make_folder(folder, "path is not a folder that can be used")
    if has_database(folder) or (place_of(folder) / "log").exists():
        raise InvalidRequest(
            "a node begins in an empty folder, and this one has a database or a node; a database "
            "becomes that of a cluster by `tideline cluster create NEW_FOLDER --from FOLDER`",
            folder=str(folder),
        )
    check_no_strangers(folder)
    make_folder(place_of(folder), "path is not a folder that can be used")


class ClusterNode:
    """An open node; close it, or use it by `with`."""

    def __init__(
        self, folder: Path, settings: ClusterSettings, *, clock: Clock | None = None,
        memory_mb: int = 1024,
    ) -> None:  # fmt: skip
        place = place_of(folder)
        if not (place / "log" / "NODE").exists():
            raise NotFound(
                "there is no node in this folder: `tideline cluster create` makes one of a new "
                "cluster, `tideline cluster recover` one that lost its disk or is new",
                folder=str(folder),
            )
        self.settings = settings
        self.ended = threading.Event()
        """Set when it is to be closed and opened anew."""
        self._closing = threading.Event()
        finish_install(folder)
        self.machine = Machine(
            folder, self, node=settings.number, url=settings.url, wait_s=settings.wait_s,
            ended=self.ended.set,
        )  # fmt: skip
        tls = None
        if settings.tls_cert is not None:
            assert settings.tls_key is not None
            assert settings.tls_ca is not None
            tls = TLS(settings.tls_cert, settings.tls_key, settings.tls_ca)
        self.node = Node(
            place / "log", cluster=settings.cluster, node=settings.number,
            listen=settings.listens_at,
            peers={number_of(name): at for name, at in settings.peers.items()},
            secret=settings.secret, machines=[self.machine], tls=tls, options=Options(),
            tick_s=settings.tick_s, compact_bytes=settings.compact_bytes,
        )  # fmt: skip
        for kernels in ("documents", "stream"):
            ensure(kernels)  # now, and not while others wait for this node
        self.db = Database(folder, clock=clock, memory_mb=memory_mb, sharing=self.machine)
        try:
            self.machine.db = self.db
            self.machine.finish()
            self.node.start()
        except BaseException:
            self.close()
            raise
        self._teller = threading.Thread(target=self._tell, name="tideline-tell", daemon=True)
        self._teller.start()

    # ---- for the machine -----------------------------------------------------------------------

    def propose(self, values: list[bytes]) -> None:
        """Have values agreed on."""
        try:
            self.node.propose(values)
        except NotLeader:
            raise NotLeading(
                "another node of the cluster writes", leader=self.machine.leader_url()
            ) from None
        except OutcomeUnknown:  # the disk failed: what was proposed may be decided all the same
            self.machine.end("the disk of this node failed")
            raise

    def fetch(self, urls: dict[int, str], least: int) -> None:
        """Bring the state of another node to `incoming`."""
        known = {**urls, **self.machine.urls}
        known.pop(self.settings.number, None)
        receive(self.db.path, known, least, self.settings.password, self.settings.tls_ca)

    def applied(self) -> int:
        """The index up to which everything was handed to the machine, and it has taken it."""
        groups = self.node.status()["groups"]
        return int(groups[0]["applied"]) if groups else 0

    def stale_s(self) -> float | None:
        """Everything acknowledged until so many seconds ago is here; None: that is not known."""
        return self.node.stale_s()

    def confirm(self, timeout_s: float) -> None:
        """Return when everything acknowledged before is here; `NotLeading` on a follower."""
        try:
            self.node.read_index(timeout_s)
        except NotLeader:
            raise NotLeading(
                "another node of the cluster leads", leader=self.machine.leader_url()
            ) from None

    # ---- for operators -------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """Who takes part, who leads, how far each is."""
        names = {number_of(name): name for name in self.settings.peers}
        found = self.node.status()
        group = found["groups"][0]
        return {
            "cluster": self.settings.cluster,
            "node": self.settings.node,
            "role": "leader" if self.machine.leads else "follower",
            "leader": None if group["leader"] is None else names.get(
                group["leader"], f"n{group['leader']}"),
            "leader_url": self.machine.leader_url(),
            "decided": group["decided"], "applied": self.machine.reached(),
            "stale_s": self.stale_s(),
            "nodes": [
                {
                    "node": names.get(number, f"n{number}"), "number": number, "votes": votes,
                    "url": self.machine.urls.get(number),
                    "behind": 0 if number == self.settings.number else group["lag"].get(number),
                }
                for kind, votes in (("voters", True), ("joining", False))
                for number, _ in group["members"][kind]
            ],
            "asking": [names.get(number, f"n{number}") for number in group["asking"]],
            "failure": group["failure"],
        }  # fmt: skip

    def add(self, number: int) -> None:
        """Take in a node that was made by `recover`, runs, and asks for it."""
        if not self._placed():
            raise Unavailable("this node has not said yet where it is served: try again")
        self._changed(lambda: self.node.add(number))

    def remove(self, number: int) -> None:
        """Let a node go."""
        self._changed(lambda: self.node.remove(number))

    def _changed(self, change: Any) -> None:
        try:
            change().wait(self.settings.wait_s)
        except NotLeader:
            raise NotLeading(
                "another node of the cluster leads", leader=self.machine.leader_url()
            ) from None

    def agree_tokens(self) -> None:
        """Have all nodes do what was changed in this node's file of tokens; through the leader."""
        changes = self.machine.tokens.differences()
        if not changes:
            return
        if self.machine.leads:
            self.machine.agree(changes)
            return
        leader = self.machine.leader_url()
        if leader is None:
            raise Unavailable("the cluster has no leader now: tokens are agreed on later")
        body, settings = msgspec.json.encode({"changes": changes}), self.settings
        status = speak(
            leader, "POST", "/v1/cluster/tokens", settings.password, settings.tls_ca, body
        )
        if status != 200:
            raise Unavailable("the leader did not take the tokens", status=status)

    def _placed(self) -> bool:
        """See to it that who is sent the snapshot learns from it where nodes are served."""
        told = self.machine.placed
        if told is None or told == self.machine.urls:
            return True  # without a snapshot the log itself is sent
        told, state = dict(self.machine.urls), places(self.machine.urls)
        index = self.machine.save()
        self.node.compact(state, index, keep=1 << 60)
        if self.node.status()["groups"][0]["snapshot"] < index:
            return False
        self.machine.placed = told
        return True

    # ---- its life ------------------------------------------------------------------------------

    def _tell(self) -> None:
        """Have the others know where this node is served; note how far it is, from time to time."""
        me, settings = self.settings.number, self.settings
        rounds, stamp = 0, object()
        while not self._closing.wait(_TELL_S):
            rounds += 1
            if rounds % _SAVE_ROUNDS == 0:
                with contextlib.suppress(TidelineError):  # no room on disk: the next time
                    self.machine.save()
            with contextlib.suppress(TidelineError):  # the next time
                self._placed()
            now = self.machine.tokens.stamp()
            if now != stamp:
                with contextlib.suppress(TidelineError, OSError, http.client.HTTPException):
                    self.agree_tokens()
                    stamp = now  # later changes give another
            leader = self.machine.leader_url()
            if not settings.url or self.machine.urls.get(me) == settings.url or leader is None:
                continue
            if self.machine.leads:
                self.machine.tell(me, settings.url)
                continue
            body = msgspec.json.encode({"node": me, "url": settings.url})
            with contextlib.suppress(OSError, http.client.HTTPException):
                speak(leader, "POST", "/v1/cluster/here", settings.password, settings.tls_ca, body)

    def close(self) -> None:
        """Let go of everything; twice is allowed."""
        again = self._closing.is_set()
        self._closing.set()
        self.machine.end("the node is closing")
        with contextlib.suppress(TidelineError):
            self.node.close()
        if not again:
            with contextlib.suppress(TidelineError):
                self.machine.save()
        self.db.close()

    def __enter__(self) -> ClusterNode:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
