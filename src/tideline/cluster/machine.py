"""What a node does with the values that its cluster agrees on: log and database meet here.

    leader    a write -> the dataset's log here -> propose -> decided -> `apply`: it is committed
    follower  decided -> `apply` -> the same frame in the same place of the same log, and in memory

Frames are those of the leader: seqs, times and what was accepted are in them, and nobody computes
anything again. Changes of settings, and of what there is, are values of their own: the leader has
one agreed on, then does it; a follower does it when it comes. A dataset is known by the index of
the change that made it, so it has the same number everywhere.

A machine is a follower first, then it may lead; when it leads no more it ends. Then the node is
opened anew as a follower (node.py): what was not agreed on is cut from its logs. So no memory is
ever mended. It also ends when a state from another node has arrived.

Threads: `apply`, `snapshot`, `install` and `role` are called by the node's thread that applies, in
order. On the leader that thread waits for no lock of an engine: who holds one may wait for it.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import msgspec

from tideline.cluster.applied import Applied, load_applied, save_applied
from tideline.cluster.tokens import TokenFile
from tideline.cluster.values import Change, Frame, decode, encode_change, encode_frame
from tideline.errors import (
    Conflict,
    Corruption,
    InvalidRequest,
    NotFound,
    TidelineError,
    Unavailable,
)
from tideline.lsm.position import Position
from tideline.lsm.sharedlog import NotLeading, OutcomeUnknown, SharedLog
from tideline.replica import DATA, Entry, Mark

__all__ = ["Engine", "Machine", "Nodes", "places"]

_log = logging.getLogger("tideline.cluster")


class Engine(Protocol):
    """What a dataset's engine offers to a cluster."""

    store: Any

    def follow(self, position: Position, payload: bytes) -> None:
        """Store what another node wrote."""
        ...

    def apply_change(self, change: dict[str, Any]) -> None:
        """Change a setting; doing it again does no harm."""
        ...


class Nodes(Protocol):
    """What a machine asks of its node."""

    def propose(self, values: list[bytes]) -> Any:
        """Have values agreed on; `NotLeading` on a follower."""
        ...

    def applied(self) -> int:
        """The index up to which the node has handed out everything, and it was taken."""
        ...

    def stale_s(self) -> float | None:
        """Everything acknowledged until so many seconds ago is here; None: that is not known."""
        ...

    def confirm(self, timeout_s: float) -> None:
        """Return when everything acknowledged before is here; `NotLeading` on a follower."""
        ...

    def fetch(self, urls: dict[int, str], least: int) -> None:
        """Bring the state of another node to `incoming`; it has everything up to an index."""
        ...


@dataclass
class _Asked:
    """A change that somebody here waits for."""

    decided: threading.Event
    index: int = 0


class _Share:
    """What the engine of one dataset has of the cluster."""

    def __init__(self, machine: Machine, number: int, cut: Position | None) -> None:
        self._machine, self._number, self._cut = machine, number, cut

    @property
    def leads(self) -> bool:
        """Whether this node writes."""
        return self._machine.leads

    @property
    def cut(self) -> Position | None:
        """Up to where its log was committed when the note of it was saved."""
        return self._cut

    @property
    def wait_s(self) -> float:
        """How long a write waits for the majority."""
        return self._machine.wait_s

    def propose(self, position: Position, payload: bytes | None) -> None:
        """Have a frame agreed on."""
        self._machine.propose(*encode_frame(self._number, position, payload))

    def decide(self, change: dict[str, Any], do: Callable[[], None]) -> None:
        """Have a change agreed on, then done here."""
        self._machine.decide(self._number, change, lambda _: do())


def places(urls: dict[int, str]) -> bytes:
    """A snapshot: where a state can be had (`Machine.install`)."""
    return msgspec.json.encode({"urls": {str(node): url for node, url in urls.items()}})


class Machine:
    """The database of one node, as its cluster sees it. It is also what `Database` shares with."""

    def __init__(
        self, folder: Path, nodes: Nodes, *, node: int, url: str, wait_s: float,
        ended: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        """`ended` is told once when this machine is to be opened anew."""
        self.wait_s = wait_s
        self.leads = False
        self.leader: int | None = None
        self.why_ended = ""
        """Why it does nothing any more, once it does not."""
        self.failure: BaseException | None = None
        self.db: Any = None
        """The database; set before anything is applied."""
        self.node: Any = nodes
        """The node that it is the machine of."""
        self._folder, self._nodes, self._node, self._url = folder, nodes, node, url
        self._ended = ended
        self._stood = load_applied(folder)
        self.tokens = TokenFile(folder)
        self.applied = self._stood.index
        """The index up to which everything has come."""
        self.urls = dict(self._stood.urls)
        """Where nodes are served, as far as they have said."""
        self.placed: dict[int, str] | None = None
        """What of that the newest snapshot says; None where there is no snapshot."""
        self._engines: dict[int, Any] = {}
        self._asked: dict[str, _Asked] = {}
        self._todo: dict[int, Change] = {}  # decided and not done yet, by index
        # By dataset, of a frame that comes in parts, those that have come; from an index on.
        self._parts: dict[int, list[bytes]] = dict(self._stood.parts)
        self._parts_from = self._stood.index if self._parts else 0
        self._lock = threading.Lock()  # for these
        self._saving = threading.Lock()
        self._saved = self._stood.index

    # ---- for the database ----------------------------------------------------------------------

    def share(self, number: int) -> _Share:
        """What a dataset that is about to be opened has of the cluster."""
        return _Share(self, number, self._stood.logs.get(number))

    def opened(self, number: int, engine: Any) -> None:
        """A dataset is open."""
        self._engines[number] = engine

    def dropped(self, number: int) -> None:
        """A dataset is gone; whoever waits for the majority waits in vain."""
        engine = self._engines.pop(number, None)
        if engine is not None:
            engine.store.log.lose("it was dropped")

    def propose(self, *values: bytes) -> None:
        """Have values agreed on; returns at once."""
        if not self.leads:
            raise NotLeading("another node of the cluster writes", leader=self.leader_url())
        self._nodes.propose([*values])

    def decide(self, number: int, what: dict[str, Any], do: Callable[[int], None]) -> None:
        """Have a change agreed on; then `do` is given its index, in this thread.

        What `do` refuses changes nothing, here and elsewhere. When it fails otherwise, this node is
        opened anew and does it then.
        """
        asked, change = _Asked(threading.Event()), Change(secrets.token_hex(8), number, what)
        with self._lock:
            self._asked[change.id] = asked
        try:
            self.propose(encode_change(change))
        except BaseException:
            self._asked.pop(change.id, None)
            raise
        if not asked.decided.wait(self.wait_s) or not asked.index:
            with self._lock:
                known = self._asked.pop(change.id, None) is None and asked.index
            if not known:
                self.end("a change was not agreed on in time")
                raise OutcomeUnknown(
                    "no majority of the cluster has answered: the change may come or not"
                )
        try:
            do(asked.index)
        except (InvalidRequest, Conflict, NotFound):
            self._done(asked.index)
            raise
        except BaseException:
            self.end("a change that was agreed on could not be made here")
            raise
        self._done(asked.index)

    def _done(self, index: int) -> None:
        with self._lock:
            self._todo.pop(index, None)

    # ---- for the node --------------------------------------------------------------------------

    @property
    def quick(self) -> bool:
        """Whether `apply` does no more than tell who waits: what is decided is here already."""
        return self.leads

    def apply(self, entries: Iterable[Entry]) -> None:
        """Take what was decided."""
        if self.why_ended:
            return
        with self._failing():
            self._take(entries)

    @contextlib.contextmanager
    def _failing(self) -> Iterator[None]:
        """What goes wrong ends this machine: the node is opened anew."""
        try:
            yield
        except BaseException as error:
            self.failure = error
            self.end(f"it failed: {error}")
            raise

    def _take(self, entries: Iterable[Entry]) -> None:
        touched: set[SharedLog] = set()
        try:
            for entry in entries:
                if entry.kind == DATA and entry.index > self._stood.index:
                    self._apply(entry.index, decode(entry.value), touched)
                self.applied = max(self.applied, entry.index)
        finally:
            for log in touched:
                log.tell()

    def _apply(self, index: int, value: Frame | Change, touched: set[SharedLog]) -> None:
        if isinstance(value, Change):
            self._apply_change(index, value)
            return
        payload = value.payload
        parts = self._parts.pop(value.number, []) if value.at else []
        if payload is not None and value.at is not None:
            if value.at == 0:
                self._parts_from = index
            if sum(map(len, parts)) != value.at:
                raise Corruption("a part of a frame is missing", file="cluster")
            parts.append(payload)
            if value.more:
                self._parts[value.number] = parts
                return
            payload = b"".join(parts)
        engine = self._engines.get(value.number)
        if engine is None:
            return  # it was dropped
        log: SharedLog = engine.store.log
        if not log.decided(value.position, rotation=payload is None):
            if payload is None:
                log.take_rotation(value.position)
            else:
                engine.follow(value.position, payload)
        touched.add(log)

    def _apply_change(self, index: int, change: Change) -> None:
        with self._lock:
            asked = self._asked.pop(change.id, None)
            if asked is not None:
                self._todo[index] = change
                asked.index = index
        if asked is not None:
            asked.decided.set()
        else:
            self._do(index, change)

    def _do(self, index: int, change: Change) -> None:
        """Make a change that somebody else asked for, or that was not finished here."""
        what = change.what
        if "token" in what or "revoke" in what:
            self.tokens.take(what)
        elif "node" in what:
            self.urls[int(what["node"])] = str(what["url"])
        elif change.number:
            engine = self._engines.get(change.number)
            if engine is not None:
                engine.apply_change(what)
        else:
            self.db._apply_change(index, what)

    def snapshot(self) -> bytes:
        """Bring everything that was applied to this node's disk; where a state can be had.

        The state itself stays where it is: who needs it asks a node for a copy (state.py).
        """
        if self.why_ended:
            raise Unavailable("this node is being opened anew")
        with self._failing():
            with self._lock:
                todo = sorted(self._todo.items())
            self._save_applied(
                self.reached(), [(i, msgspec.to_builtins(c)) for i, c in todo], dict(self._parts)
            )
        self.placed = dict(self.urls)
        return places(self.placed)

    def save(self) -> int:
        """The same for a start that is quick, from any thread: less has to come again.

        The index up to which everything is on this node's disk.
        """
        index = self.settled()  # first: what is in the logs beyond it is passed over
        if index > self._saved and self.failure is None:
            self._save_applied(index, [], {})
        return self._saved

    def _save_applied(
        self, index: int, todo: list[tuple[int, dict[str, Any]]], parts: dict[int, list[bytes]]
    ) -> None:
        with self._saving:
            if index <= self._saved:
                return
            logs = {number: engine.store.log.save() for number, engine in self._all()}
            save_applied(self._folder, Applied(index, logs, todo, dict(self.urls), parts))
            self._saved = index

    def install(self, mark: Mark, state: bytes) -> None:
        """Have a state from another node, unless everything in it is here."""
        if self.why_ended:
            return
        urls = msgspec.json.decode(state, type=dict[str, dict[int, str]])["urls"]
        self.placed = dict(urls)
        if mark.index <= self._stood.index:
            self.applied = max(self.applied, mark.index)
            return
        urls.pop(self._node, None)
        with self._failing():
            self._nodes.fetch(urls, mark.index)
        self.end("a state from another node has arrived")

    def role(self, leads: bool, leader: int | None) -> None:
        """Hear who leads."""
        self.leader = leader
        if self.leads and not leads:
            self.end("this node leads no more")
        elif leads and not self.leads and not self.why_ended:
            self.leads = True
            self.tell(self._node, self._url)

    def agree(self, tokens: Iterable[dict[str, Any]]) -> None:
        """Have changes of tokens agreed on, and done here; only the leader can."""
        for change in tokens:
            self.decide(0, change, lambda _, change=change: self.tokens.take(change))  # type: ignore[misc]

    # ---- who is where --------------------------------------------------------------------------

    def tell(self, node: int, url: str) -> None:
        """Have all nodes know where one is served; only the leader can."""
        if self.urls.get(node) != url:
            change = Change(secrets.token_hex(8), 0, {"node": node, "url": url})
            try:
                self.propose(encode_change(change))
            except TidelineError as error:
                _log.info("nobody was told where node %s is: %s", node, error)

    def leader_url(self) -> str | None:
        """Where the leader is served, as far as is known."""
        return None if self.leader is None else self.urls.get(self.leader)

    # ---- its life ------------------------------------------------------------------------------

    def _all(self) -> list[tuple[int, Any]]:
        return sorted(self._engines.items())

    def finish(self) -> None:
        """The database is open: do what was agreed on and not done when it was closed."""
        for index, change in self._stood.todo:
            self._do(index, msgspec.convert(change, Change))

    def settled(self) -> int:
        """An index up to which everything is in the database, changes too."""
        reached = self.reached()  # first: what is open up to there has been noted
        with self._lock:
            open_at = [*self._todo, *([self._parts_from] if self._parts else [])]
        return min([reached, *(index - 1 for index in open_at)])

    def reached(self) -> int:
        """The index up to which everything was applied, entries without a value included."""
        handed_out = self._nodes.applied()
        if self.why_ended:  # asked after: from the end on, what is handed out is not taken
            return self.applied
        return max(self.applied, handed_out)

    def engines(self) -> list[Any]:
        """The engines of all datasets."""
        return [engine for _, engine in self._all()]

    def stale_s(self) -> float | None:
        """Everything acknowledged until so many seconds ago is here; None: that is not known."""
        return self._nodes.stale_s()

    def confirm(self) -> None:
        """Return when everything acknowledged before is here; `NotLeading` on a follower."""
        self._nodes.confirm(self.wait_s)

    def sync_all(self) -> None:
        """Return when a majority has everything that is here."""
        for engine in self.engines():
            engine.store.log.sync_all()

    def end(self, why: str) -> None:
        """Do nothing any more; whoever waits for the majority is told."""
        with self._lock:
            if self.why_ended:
                return
            self.why_ended = why
            asked, self._asked = list(self._asked.values()), {}
        self.leads = False
        _log.info("node %s: %s", self._node, why)
        for _, engine in self._all():
            engine.store.log.lose(why)
        for one in asked:
            one.decided.set()
        self._ended()
