"""The object a user holds: a folder of channels, collections and windows, open in one process.

    data/
      LOCK               held while open; names the owner (lsm/owner.py)
      MANIFEST           the channels, collections and stream windows there are
      channels/0001/     one folder a channel (lsm/store.py)
      collections/0002/  one folder a collection
      windows/0003/      one folder a stream window
      TOKENS             who may use a server on it (server/tokens.py), if there are any
      BACKUP, RESTORING  it is a backup that nobody opened yet; a restore has not finished
                         (lsm/inventory.py)

No two of these have the same name. A folder has one owner at a time: a second
opener gets `Unavailable` naming the first. A folder of other files is refused (lsm/folder.py).
A database belongs to the process that opened it: in a forked child everything that was inherited is
`Closed`, and neither its use nor its end touches the parent's files, lock or threads.
`":memory:"` keeps nothing: no log, and a temporary folder only for what does not fit.
Safe from any thread.
"""

from __future__ import annotations

import os
import re
import secrets
import tempfile
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tideline.channel import Channel
from tideline.channel.ahead import check_max_ahead_s
from tideline.channel.checks import check_same
from tideline.clock import Clock, Seconds, SystemClock, span_s, span_us
from tideline.datasets import Datasets, Kind, Sharing, check_journal_s, check_name, copy_to
from tideline.errors import Closed, Conflict, Corruption, InvalidRequest, NotFound
from tideline.index.memory import Budget
from tideline.kernels.warm import ensure
from tideline.lsm import inventory
from tideline.lsm.files import sync_folder, telling
from tideline.lsm.folder import check_no_strangers, make_folder
from tideline.lsm.owner import Owner
from tideline.model import ChannelStats, CollectionStats, Report, WindowStats
from tideline.near import did_you_mean
from tideline.protocols import Durability
from tideline.shelter import Shelter
from tideline.space import Flat, Space

if TYPE_CHECKING:
    from tideline.live import Collection
    from tideline.stream import StreamWindow

__all__ = [
    "Database", "check_journal_s", "check_memory_mb", "check_name", "check_no_address", "open",
]  # fmt: skip

T = TypeVar("T")
LAYOUTS = ("dual", "two", "poll")
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")  # one letter would be a drive
_FORKED = (
    "the database belongs to the process that opened it, and this one was forked from it: open the"
    " folder in one process, after the fork, or start processes with 'spawn'"
)
_OPEN: weakref.WeakSet[Database] = weakref.WeakSet()


def _forked() -> None:
    for database in list(_OPEN):
        database._leave_to_parent()


os.register_at_fork(after_in_child=_forked)


def open(
    path: str | os.PathLike[str], *, clock: Clock | None = None, memory_mb: int = 1024,
    durability: Durability = "os",
) -> Database:  # fmt: skip
    """Open a folder as a database; it is made if it is not there. `":memory:"` keeps nothing.

    A folder that holds other files and no database is `InvalidRequest`; one that is open already
    is `Unavailable`.

    >>> with open(":memory:") as db:
    ...     news = db.channel("news")
    ...     db.channels()
    ['news']
    """
    return Database(path, clock=clock, memory_mb=memory_mb, durability=durability)


def check_no_address(path: str | os.PathLike[str]) -> None:
    """Refuse what is meant as an address, such as http://host:8080, before a folder is made of it.

    >>> check_no_address("./a:b")
    """
    text = os.fspath(path)
    if isinstance(text, str) and _ADDRESS.match(text) and not os.path.isdir(text):
        raise InvalidRequest(
            "path must be a folder, and this looks like an address: tideline.connect(url) opens a "
            "server's database; write ./NAME for a folder with a colon in its name", path=text,
        )  # fmt: skip


class Database:
    """An open folder of channels, collections and windows; close it, or use it by `with`."""

    def __init__(
        self, path: str | os.PathLike[str], *, clock: Clock | None = None, memory_mb: int = 1024,
        durability: Durability = "os", restoring: bool = False, sharing: Sharing | None = None,
    ) -> None:  # fmt: skip
        """With `sharing`, several nodes have it (cluster/), and the one that leads writes."""
        check_memory_mb(memory_mb)
        if clock is not None and not (hasattr(clock, "now") and hasattr(clock, "wait")):
            raise InvalidRequest("clock must have now() and wait()", clock=clock)
        if durability not in ("os", "disk"):
            raise InvalidRequest("durability must be 'os' or 'disk'", durability=durability)
        if not isinstance(path, (str, os.PathLike)) or not str(path):
            raise InvalidRequest("path must be the path of a folder", path=path)
        check_no_address(path)
        self.clock: Clock = SystemClock() if clock is None else clock
        self._budget = Budget(int(memory_mb * (1 << 20)))
        self._durability = durability
        self._sharing = sharing
        self._lock = threading.RLock()
        self._shelter = Shelter()
        self._closed = ""  # why, once it is
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        if str(path) == ":memory:":
            with telling("no temporary folder can be made", tempfile.gettempdir()):
                self._temporary = tempfile.TemporaryDirectory(
                    prefix="tideline-", ignore_cleanup_errors=True
                )
            self.path = Path(self._temporary.name)
        else:
            self.path = Path(path)
            make_folder(self.path, "path is not a folder that can be used")
            check_no_strangers(self.path)
        self._owner = Owner(self.path)
        self._datasets = Datasets(
            self.path, clock=self.clock, budget=self._budget, durability=durability,
            in_memory=self._temporary is not None, sharing=sharing, whole=self._whole,
        )  # fmt: skip
        self._open: dict[str, Channel] = self._datasets.channels.open
        self._collections: dict[str, Collection] = self._datasets.collections.open
        self._windows: dict[str, StreamWindow] = self._datasets.windows.open
        _OPEN.add(self)
        try:
            if not restoring and (self.path / inventory.RESTORING).exists():
                raise Corruption(
                    "a restore into this folder did not finish: run it again",
                    file=self.path / inventory.RESTORING,
                )
            if sharing is None and (self.path / "cluster" / "log").exists():
                raise InvalidRequest(
                    "this folder is that of a node of a cluster: serve it with `tideline serve "
                    "--node`, and use it at its address", folder=str(self.path),
                )  # fmt: skip
            ensure()
            self._accept_backup()
            self._datasets.open()
        except BaseException:
            self._release()
            raise

    # ---- channels -----------------------------------------------------------------------

    def channel(
        self, name: str, *, space: Space | None = None, layout: str | None = None,
        poll_s: Seconds = 1.0, journal_s: Seconds | None = None,
        max_ahead_s: Seconds | None = None,
    ) -> Channel:  # fmt: skip
        """Open a channel, or create it. Space and layout are stored; others are a `Conflict`.

        A new channel is `Flat()` and `"dual"` unless told otherwise. `journal_s` keeps what is
        written, answers too, readable for that long by `Channel.journal`. `max_ahead_s` (60 unless
        told otherwise) is how far ahead of the clock the rows of a batch may be: they move the
        channel's time, and what is further ahead is rejected; `math.inf` lifts the limit. Both
        are stored, and another value changes them.

        >>> db = open(":memory:")
        >>> db.channel("news").layout
        'dual'
        >>> db.close()
        """
        check_name(name, "channel")
        if layout is not None and layout not in LAYOUTS:
            raise InvalidRequest(f"layout must be one of {', '.join(LAYOUTS)}", layout=layout)
        if space is not None and not (hasattr(space, "spec") and hasattr(space, "encode")):
            raise InvalidRequest("space must be Flat, Topics, Grid or QuadTree", space=space)
        every_s = span_s(poll_s, "poll_s")
        if every_s <= 0:
            raise InvalidRequest("poll_s must be positive", poll_s=poll_s)
        if journal_s is not None:
            check_journal_s(journal_s)
            if self._temporary is not None:
                raise InvalidRequest("a database in memory keeps no journal", journal_s=journal_s)
        if max_ahead_s is not None:
            check_max_ahead_s(max_ahead_s)
        with self._lock:
            self._check_open()
            channel = self._open.get(name)
            self._check_free(name, self._datasets.channels)
            if channel is None:
                facts = {
                    "space": (space or Flat()).spec(),
                    "layout": layout or "dual",
                    "poll_s": every_s,
                    "seeds": [secrets.randbits(62), secrets.randbits(62)],
                }
                self._datasets.make(self._datasets.channels, name, facts)
                channel = self._open[name]
            check_same(channel, space, layout)
            if journal_s is not None:
                if channel.layout == "poll":
                    raise InvalidRequest("layout 'poll' keeps no journal", name=name)
                channel.core.engine.keep_journal(span_us(journal_s, "journal_s"))
            if max_ahead_s is not None:
                channel.core.allow_ahead(max_ahead_s)
            return channel

    def channels(self) -> list[str]:
        """The names of the channels."""
        return self._names(self._datasets.channels)

    def drop_channel(self, name: str) -> None:
        """Delete a channel with everything in it."""
        self._drop(self._datasets.channels, name)

    # ---- collections --------------------------------------------------------------------

    def collection(
        self, name: str, *, key: str | None = None,
        indexes: Mapping[str, str | Mapping[str, Any] | None] | Sequence[str] | None = None,
        policy: str | Mapping[str, Any] | None = None, filter: str | None = None,
        bloom_bits: int | None = None, journal_s: float | None = None,
        journal_before: bool | None = None, ttl_s: float | timedelta | None = None,
    ) -> Collection:  # fmt: skip
        """Open a collection of documents, or create it. Settings are stored; others a `Conflict`.

        `key` names the field that documents are known by; a new collection needs it. `indexes`
        are fields with the kind of their index: eager, lazy, composite or embedded, spatial for
        places, and words, ngrams or fuzzy for text; or fields alone, ["road"], for the kind that
        fits when nothing is known (lazy); or settings, {"mail": {"kind": "lazy", "unique": True}},
        with those of the kind. `policy` says which components merge: none, constant, prefix,
        correlated-prefix or leveled. `filter` is a field whose least and greatest value every
        component keeps. `bloom_bits` is the size of the bloom filters of embedded indexes, in bits
        an entry.

        `journal_s` keeps what is written readable for that long by `Collection.changes`, and
        `journal_before` the old versions with it. `ttl_s` is how long documents last of which
        `put` says nothing; `math.inf` is for ever, as without it. These three are stored, and
        another value changes them, for what is written from then on.

        >>> db = open(":memory:")
        >>> cars = db.collection("cars", key="id", indexes={"road": "lazy"})
        >>> db.collection("cars").indexes
        {'road': 'lazy'}
        >>> db.close()
        """
        from tideline.documents import checks, settings

        check_name(name, "collection")
        given = settings.given(key, indexes, policy, filter, bloom_bits)
        if journal_s is not None:
            check_journal_s(journal_s)
            if self._temporary is not None:
                raise InvalidRequest("a database in memory keeps no journal", journal_s=journal_s)
        if journal_before is not None and not isinstance(journal_before, bool):
            raise InvalidRequest(
                "journal_before must be True or False", journal_before=journal_before
            )
        ttl_us = None if ttl_s is None else checks.ttl(ttl_s)
        ensure("documents")  # before the lock: the first time it takes seconds
        with self._lock:
            self._check_open()
            kind, found = self._datasets.collections, self._collections.get(name)
            self._check_free(name, kind)
            if found is None:
                complete = settings.complete(given, did_you_mean(name, kind.folders))
                ensure("documents")  # it may take long: not sheltered
                self._datasets.make(kind, name, {**complete, "seed": secrets.randbits(62)})
                found = self._collections[name]
            else:
                settings.same(name, given, found)
            if journal_s is not None or journal_before is not None:
                span = None if journal_s is None else span_us(journal_s, "journal_s")
                found._engine.feed.keep(span, journal_before)
            if ttl_us is not None:
                found._engine.expiry.keep(ttl_us)
            return found

    def collections(self) -> list[str]:
        """The names of the collections."""
        return self._names(self._datasets.collections)

    def drop_collection(self, name: str) -> None:
        """Delete a collection with everything in it."""
        self._drop(self._datasets.collections, name)

    # ---- stream windows -----------------------------------------------------------------

    def window(
        self, name: str, *, span_s: Seconds | None = None, slide_s: Seconds | None = None,
        key: str | Sequence[str] | Mapping[str, Any] | None = None,
        values: Mapping[str, str] | None = None, keep: str | None = None, time: str | None = None,
        durable: bool | None = None, max_ahead_s: Seconds | None = None,
        indexes: Mapping[str, Any] | None = None,
    ) -> StreamWindow:  # fmt: skip
        """Open a stream window, or create it. Settings are stored; others are a `Conflict`.

        It keeps the rows of the last `span_s`, in sub-windows of `slide_s` (the span, unless told
        otherwise) which are forgotten whole. `key` names the fields that rows are found by, the
        first one first: whole numbers or text; as a mapping each with its range, {"x": (0, 15)},
        its type, "int" or "text", or None where it is to be found. `values` are the numbers of a
        row with their types. `keep` "last" (unless told otherwise) keeps the last row of a key in
        a sub-window, "all" every row. `time` is the field that says when a row happened; without
        it, the clock does. `durable=False` keeps rows in memory only. `max_ahead_s` (60 unless
        told otherwise) is how far ahead of the clock a row may be; another value changes it.

        Values may also be points, "point", and texts, "text". `indexes` names the kind of index on
        each that rows are to be found by, {"at": "spatial", "text": "words"}: `StreamWindow.find`.

        >>> db = open(":memory:")
        >>> cars = db.window("cars", span_s=300, slide_s=60, key=("seg", "vid"),
        ...                  values={"vel": "int32"})
        >>> done = cars.append({"seg": 4, "vid": 7, "vel": 50})
        >>> cars.get((4, 7))
        {'vel': 50}
        >>> db.close()
        """
        check_name(name, "window")
        from tideline.stream import settings

        given = {
            "span_s": span_s, "slide_s": slide_s, "key": key, "values": values, "keep": keep,
            "time": time, "durable": durable, "max_ahead_s": max_ahead_s, "indexes": indexes,
        }  # fmt: skip
        ensure("stream")  # before the lock: the first time it takes seconds
        with self._lock:
            self._check_open()
            found = self._windows.get(name)
            self._check_free(name, self._datasets.windows)
            if found is None:
                made = settings.given(name, list(self._datasets.windows.folders), given)
                facts = {"settings": made.facts(), "seed": secrets.randbits(62)}
                if self._sharing is not None and not made.durable:
                    raise InvalidRequest(
                        "in a cluster a window is durable: leave durable=False out", name=name
                    )
                self._datasets.make(self._datasets.windows, name, facts)
                return self._windows[name]
            settings.same(name, found._engine.settings, given)
            if max_ahead_s is not None:
                found._engine.allow_ahead(max_ahead_s)
            return found

    def windows(self) -> list[str]:
        """The names of the stream windows."""
        return self._names(self._datasets.windows)

    def drop_window(self, name: str) -> None:
        """Delete a stream window with everything in it."""
        self._drop(self._datasets.windows, name)

    # ---- looking in -------------------------------------------------------------------------

    def stats(self) -> dict[str, ChannelStats | CollectionStats | WindowStats]:
        """The numbers of every channel, every collection and every window."""
        with self._lock:
            self._check_open()
            return {name: one.stats() for name, one in sorted(self._datasets.handles().items())}

    def check(self) -> Report:
        """Verify every checksum and invariant on disk; `Corruption` names the damaged file."""
        with self._lock:
            self._check_open()
            if self._datasets.manifest.load() is None:
                raise Corruption("manifest is missing", file=self.path / "MANIFEST")
            components = size = 0
            for engine in self._datasets.engines():
                engine.check()
                components += sum(len(tree.readers) for tree in engine.store.trees)
                size += engine.store.size_bytes + engine.store.log.size_bytes
            return Report(
                len(self._open), components, size, len(self._collections), len(self._windows)
            )

    def backup(self, folder: str | os.PathLike[str]) -> None:
        """Copy the database into a new folder while it is used; opening the copy restores it.

        A copy is whole or refused: it lists its files, and opening or restoring it compares them.
        Each channel, collection and window is copied as it is at one moment; a window that is
        not durable is empty in the copy. Where the folder is on
        the same disk, most files are only linked, which takes no time and no room; copy it
        elsewhere to be safe from that disk.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as here:
        ...     with open(f"{here}/data") as db:
        ...         told = db.channel("news").publish("a", {"n": 1}, id="e1")
        ...         db.backup(f"{here}/copy")
        ...     with open(f"{here}/copy") as db:
        ...         [event.id for event in db.channel("news").find("a")]
        ['e1']
        """
        self._check_open()
        if self._temporary is not None:
            raise InvalidRequest("a database in memory cannot be backed up")
        target = Path(folder)
        make_folder(target, "folder cannot be used")
        with telling("backup failed", target):
            if any(target.iterdir()):
                raise InvalidRequest("a backup needs a new or an empty folder", folder=str(target))
        with self._lock:
            self._check_open()
            held, document = self._datasets.held()
        copy_to(target, self.path, held, document)

    def close(self) -> None:
        """Close everything and let the folder go. Closing twice is allowed."""
        with self._lock:
            if self._closed == _FORKED:
                self._check_open()
            self._shelter.finish()  # of a `close` that was interrupted
            if not self._closed:
                self._shelter.run(self._release)
                self._shelter.close()

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        if self._closed != _FORKED:  # a forked child that leaves the block has nothing to close
            self.close()

    def __repr__(self) -> str:
        shown = ":memory:" if self._temporary is not None else str(self.path)
        return f"Database({shown!r}{', closed' if self._closed else ''})"

    # ---- inside ---------------------------------------------------------------------------------

    def _whole(self, work: Callable[[], T]) -> T:
        """Run something that nothing can cut in the middle (the lock is held)."""
        self._shelter.finish()
        self._check_open()
        return self._shelter.run(work)

    def _names(self, kind: Kind) -> list[str]:
        with self._lock:
            self._check_open()
            return sorted(kind.folders)

    def _drop(self, kind: Kind, name: str) -> None:
        """Delete one with everything in it."""
        check_name(name, kind.word)
        with self._lock:
            self._check_open()
            if name not in kind.folders:
                meant = did_you_mean(name, kind.folders)
                raise NotFound(f"no such {kind.word}{meant}", name=name)
            self._datasets.drop(kind, name)

    def _check_free(self, name: str, kind: Kind) -> None:
        """`Conflict` when something of another kind has a name."""
        for other in self._datasets.kinds:
            if other is not kind and name in other.folders:
                raise Conflict(f"a {other.word} has this name", name=name)

    def _apply_change(self, number: int, change: dict[str, Any]) -> None:
        """Do what the nodes of a cluster have agreed on; doing it again does no harm."""
        with self._lock:
            self._check_open()
            self._datasets.apply_change(number, change)

    def _accept_backup(self) -> None:
        """Opening a backup makes a database of it, if it is whole."""
        files = inventory.load_list(self.path)
        if files is not None:
            inventory.verify_list(self.path, files)
            with telling("folder cannot be used", self.path):
                (self.path / inventory.LIST).unlink()  # from now on the files change
                sync_folder(self.path)

    def _sign(self, doing: str = "") -> None:
        """Say what the owner does with the folder, to whoever finds it in use."""
        with self._lock:
            if not self._closed:
                self._owner.sign(doing)

    def _release(self) -> None:
        self._closed = "the database was closed"
        self._datasets.shut()
        self._owner.leave()
        if self._temporary is not None:
            self._temporary.cleanup()

    def _check_open(self) -> None:
        if self._closed:
            raise Closed(self._closed, path=str(self.path))

    def _leave_to_parent(self) -> None:
        """In a forked child: let go of everything without touching it."""
        self._lock = threading.RLock()  # the old one may be locked for ever
        self._shelter.leave_to_parent()
        if self._closed:
            return
        self._closed = _FORKED
        self._datasets.leave_to_parent(_FORKED)
        self._owner.leave(to_parent=True)
        if self._temporary is not None:  # the folder goes with the parent
            self._temporary._finalizer.detach()  # type: ignore[attr-defined]


def check_memory_mb(memory_mb: Any) -> None:
    """`InvalidRequest` for what is no `memory_mb` of a database."""
    if isinstance(memory_mb, bool) or not isinstance(memory_mb, (int, float)):
        raise InvalidRequest("memory_mb must be a number", memory_mb=memory_mb)
    if not 1 <= memory_mb <= 1 << 20:
        raise InvalidRequest("memory_mb must be 1 to 1048576", memory_mb=memory_mb)
