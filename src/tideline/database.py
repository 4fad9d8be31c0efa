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

import contextlib
import os
import re
import secrets
import shutil
import tempfile
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from tideline.channel import Channel
from tideline.channel.ahead import check_max_ahead_s
from tideline.channel.checks import check_same
from tideline.channel.engine import Engine
from tideline.clock import Clock, Seconds, SystemClock, span_s, span_us
from tideline.errors import Closed, Conflict, Corruption, InvalidRequest, NotFound
from tideline.index.memory import Budget
from tideline.kernels.warm import ensure
from tideline.lsm import inventory
from tideline.lsm.files import sync_folder, telling
from tideline.lsm.folder import check_no_strangers, make_folder
from tideline.lsm.manifest import Manifest
from tideline.lsm.owner import Owner
from tideline.model import ChannelStats, CollectionStats, Report, WindowStats
from tideline.near import did_you_mean
from tideline.protocols import Durability
from tideline.shelter import Shelter
from tideline.space import Flat, Space, space_from_spec

if TYPE_CHECKING:
    from tideline.live import Collection
    from tideline.stream import StreamWindow

__all__ = [
    "Database", "check_journal_s", "check_memory_mb", "check_name", "check_no_address", "open",
]  # fmt: skip

T = TypeVar("T")
FORMAT = 1
LAYOUTS = ("dual", "two", "poll")
_KINDS = ("channels", "collections", "windows")
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


class Sharing(Protocol):
    """What a database that several nodes have asks of its cluster."""

    def share(self, number: int) -> Any:
        """What a dataset that is about to be opened has of it (lsm/sharedlog.py)."""
        ...

    def opened(self, number: int, engine: Any) -> None:
        """A dataset is open."""
        ...

    def dropped(self, number: int) -> None:
        """A dataset is gone."""
        ...

    def decide(self, number: int, what: dict[str, Any], do: Callable[[int], None]) -> None:
        """Have a change agreed on; then `do` is given its number."""
        ...


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
        self._open: dict[str, Channel] = {}
        self._collections: dict[str, Collection] = {}
        self._windows: dict[str, StreamWindow] = {}
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
            self._manifest = Manifest(self.path / "MANIFEST")
            document = self._manifest.load()
            if document is None:
                if any((self.path / kind).exists() for kind in _KINDS):
                    raise Corruption("manifest is missing", file=self.path / "MANIFEST")
                document = {"format": FORMAT, "next": 1, "channels": {}, "collections": {}}
                self._manifest.save(document)
            if document.get("format") != FORMAT:
                raise Corruption(
                    "this folder has a format that is not known here: a later release may have "
                    "written it",
                    file=self.path / "MANIFEST", format=document.get("format"),
                )  # fmt: skip
            self._next: int = document["next"]
            self._folders: dict[str, str] = document["channels"]
            # A folder made before there were collections does not name them.
            self._places: dict[str, str] = document.get("collections", {})
            self._panes: dict[str, str] = document.get("windows", {})
            # Everything is opened at once: damage shows here, not at the first question.
            for name in self._folders:
                self._open[name] = self._load(name, None)
            for name in self._places:
                self._collections[name] = self._load_collection(name, None)
            for name in self._panes:
                self._windows[name] = self._load_window(name, None)
            self._sweep()
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
            self._check_free(name, "channel")
            if channel is None:
                facts = {
                    "space": (space or Flat()).spec(),
                    "layout": layout or "dual",
                    "poll_s": every_s,
                    "seeds": [secrets.randbits(62), secrets.randbits(62)],
                }
                self._make("channels", name, facts)
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
        with self._lock:
            self._check_open()
            return sorted(self._folders)

    def drop_channel(self, name: str) -> None:
        """Delete a channel with everything in it."""
        with self._lock:
            self._check_open()
            if name not in self._folders:
                meant = did_you_mean(name, self._folders)
                raise NotFound(f"no such channel{meant}", name=name)
            self._drop("channels", name)

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
            found = self._collections.get(name)
            self._check_free(name, "collection")
            if found is None:
                complete = settings.complete(given, did_you_mean(name, self._places))
                ensure("documents")  # it may take long: not sheltered
                self._make("collections", name, {**complete, "seed": secrets.randbits(62)})
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
        with self._lock:
            self._check_open()
            return sorted(self._places)

    def drop_collection(self, name: str) -> None:
        """Delete a collection with everything in it."""
        check_name(name, "collection")
        with self._lock:
            self._check_open()
            if name not in self._places:
                meant = did_you_mean(name, self._places)
                raise NotFound(f"no such collection{meant}", name=name)
            self._drop("collections", name)

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
            self._check_free(name, "window")
            if found is None:
                made = settings.given(name, list(self._panes), given)
                facts = {"settings": made.facts(), "seed": secrets.randbits(62)}
                if self._sharing is not None and not made.durable:
                    raise InvalidRequest(
                        "in a cluster a window is durable: leave durable=False out", name=name
                    )
                self._make("windows", name, facts)
                return self._windows[name]
            settings.same(name, found._engine.settings, given)
            if max_ahead_s is not None:
                found._engine.allow_ahead(max_ahead_s)
            return found

    def windows(self) -> list[str]:
        """The names of the stream windows."""
        with self._lock:
            self._check_open()
            return sorted(self._panes)

    def drop_window(self, name: str) -> None:
        """Delete a stream window with everything in it."""
        check_name(name, "window")
        with self._lock:
            self._check_open()
            if name not in self._panes:
                raise NotFound(f"no such window{did_you_mean(name, self._panes)}", name=name)
            self._drop("windows", name)

    def _check_free(self, name: str, kind: str) -> None:
        """`Conflict` when something of another kind has a name."""
        named = {"channel": self._folders, "collection": self._places, "window": self._panes}
        for other, names in named.items():
            if other != kind and name in names:
                raise Conflict(f"a {other} has this name", name=name)

    # ---- looking in -------------------------------------------------------------------------

    def stats(self) -> dict[str, ChannelStats | CollectionStats | WindowStats]:
        """The numbers of every channel, every collection and every window."""
        with self._lock:
            self._check_open()
            return {name: one.stats() for name, one in sorted(self._all().items())}

    def check(self) -> Report:
        """Verify every checksum and invariant on disk; `Corruption` names the damaged file."""
        with self._lock:
            self._check_open()
            if self._manifest.load() is None:
                raise Corruption("manifest is missing", file=self.path / "MANIFEST")
            components = size = 0
            engines: list[Any] = [
                *(channel.core.engine for channel in self._open.values()),
                *(collection._engine for collection in self._collections.values()),
                *(window._engine for window in self._windows.values()),
            ]
            for engine in engines:
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
            held: list[tuple[str, str, str, Any]] = [
                *(("channels", name, self._folders[name], one.core.engine)
                  for name, one in self._open.items()),
                *(("collections", name, self._places[name], one._engine)
                  for name, one in self._collections.items()),
                *(("windows", name, self._panes[name], one._engine)
                  for name, one in self._windows.items()),
            ]  # fmt: skip
            following = self._next
        copied: dict[str, dict[str, str]] = {kind: {} for kind in _KINDS}
        files: dict[str, inventory.Listed] = {}
        try:
            for kind, name, number, engine in held:
                with contextlib.suppress(Closed):  # dropped meanwhile
                    listed = engine.backup(target / kind / number)
                    copied[kind][name] = number
                    files |= {f"{kind}/{number}/{file}": each for file, each in listed.items()}
            with telling("backup failed", target):
                if (self.path / "TOKENS").exists():  # of the server, if any
                    shutil.copy(self.path / "TOKENS", target / "TOKENS")
                    files["TOKENS"] = inventory.list_of(target / "TOKENS")
                for folder in (*(target / kind for kind in copied if copied[kind]), target.parent):
                    sync_folder(folder)
            document = {"format": FORMAT, "next": following, **copied}
            Manifest(target / "MANIFEST").save(document)
            files["MANIFEST"] = inventory.list_of(target / "MANIFEST")
            inventory.save_list(target, files)
        except BaseException:
            shutil.rmtree(target, ignore_errors=True)
            raise

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

    def _make(self, kind: str, name: str, facts: dict[str, Any]) -> None:
        """Create something; in a cluster all nodes agree first, and on its number (lock held)."""
        if self._sharing is None:
            self._whole(partial(self._create, kind, name, facts, self._next))
        else:
            self._sharing.decide(
                0, {"make": kind, "name": name, "facts": facts},
                lambda number: self._whole(partial(self._create, kind, name, facts, number)),
            )  # fmt: skip

    def _drop(self, kind: str, name: str) -> None:
        """Delete something; in a cluster all nodes agree first (lock held)."""
        drop = partial(self._whole, partial(self._remove, kind, name))
        if self._sharing is None:
            drop()
        else:
            number = int(self._named(kind)[name])
            self._sharing.decide(0, {"drop": kind, "number": number}, lambda _: drop())

    def _named(self, kind: str) -> dict[str, str]:
        """The folders of a kind, by name."""
        named = {"channels": self._folders, "collections": self._places, "windows": self._panes}
        return named[kind]

    def _apply_change(self, number: int, change: dict[str, Any]) -> None:
        """Do what the nodes of a cluster have agreed on; doing it again does no harm."""
        with self._lock:
            self._check_open()
            if "make" in change:
                if change["name"] not in self._all():
                    ensure("documents" if change["make"] == "collections" else "stream")
                    make = (change["make"], change["name"], change["facts"], number)
                    self._whole(partial(self._create, *make))
                return
            kind, dropped = change["drop"], f"{change['number']:04d}"
            for name in [n for n, folder in self._named(kind).items() if folder == dropped]:
                self._whole(partial(self._remove, kind, name))

    def _create(self, kind: str, name: str, facts: dict[str, Any], number: int) -> None:
        folder = f"{number:04d}"
        load: dict[str, Callable[[str, tuple[str, dict[str, Any]]], Any]] = {
            "channels": self._load, "collections": self._load_collection,
            "windows": self._load_window,
        }  # fmt: skip
        made = load[kind](name, (folder, facts))
        self._next = max(self._next, number) + 1
        self._named(kind)[name] = folder
        try:
            self._save()
        except BaseException:
            del self._named(kind)[name]
            if isinstance(made, Channel):
                made.core.shut()
            else:
                made._shut()
            raise
        if isinstance(made, Channel):
            self._open[name] = made
        elif kind == "collections":
            self._collections[name] = made
        else:
            self._windows[name] = made

    def _remove(self, kind: str, name: str) -> None:
        folder = self._forget(self._named(kind), name)
        if self._sharing is not None:
            self._sharing.dropped(int(folder))
        if kind == "channels":
            self._open.pop(name).core.shut("the channel was dropped")
        else:
            held: dict[str, Any] = self._collections if kind == "collections" else self._windows
            held.pop(name)._shut(dropped=True)
        shutil.rmtree(self.path / kind / folder, ignore_errors=True)

    def _share(self, folder: str) -> Any:
        """What a dataset has of the cluster; None where there is none."""
        return None if self._sharing is None else self._sharing.share(int(folder))

    def _opened(self, folder: str, engine: Any) -> None:
        if self._sharing is not None:
            self._sharing.opened(int(folder), engine)

    def _load(self, name: str, new: tuple[str, dict[str, Any]] | None) -> Channel:
        folder, facts = new if new else (self._folders[name], {})
        path = self.path / "channels" / folder
        if new is None:
            stored = Manifest(path / "MANIFEST").load()
            if stored is None:
                raise Corruption("manifest of a channel is missing", file=path / "MANIFEST")
            facts = stored["facts"]
        else:
            _remove(path)  # left by a kill, or a full disk, before the channel counted
        space = space_from_spec(facts["space"])
        with telling("channel cannot be opened", path):
            engine = Engine(
                path, facts, mode=space.mode, layout=facts["layout"],
                budget=self._budget, durability=self._durability,
                logged=self._temporary is None, share=self._share(folder),
            )  # fmt: skip
        self._opened(folder, engine)
        return Channel(name, space, facts["layout"], facts["poll_s"], engine, self.clock)

    def _load_collection(self, name: str, new: tuple[str, dict[str, Any]] | None) -> Collection:
        ensure("documents")
        from tideline.documents import engine
        from tideline.live import Collection

        folder, facts = new if new else (self._places[name], {})
        path = self.path / "collections" / folder
        if new is None:
            if Manifest(path / "MANIFEST").load() is None:
                raise Corruption("manifest of a collection is missing", file=path / "MANIFEST")
        else:
            _remove(path)  # left by a kill, or a full disk, before the collection counted
        with telling("collection cannot be opened", path):
            opened = engine.Engine(
                path, facts, budget=self._budget, durability=self._durability,
                logged=self._temporary is None, clock=self.clock, share=self._share(folder),
            )  # fmt: skip
        self._opened(folder, opened)
        return Collection(name, opened)

    def _load_window(self, name: str, new: tuple[str, dict[str, Any]] | None) -> StreamWindow:
        ensure("stream")
        from tideline.stream import StreamWindow, engine

        folder, facts = new if new else (self._panes[name], {})
        path = self.path / "windows" / folder
        if new is None:
            stored = Manifest(path / "MANIFEST").load()
            if stored is None:
                raise Corruption("manifest of a window is missing", file=path / "MANIFEST")
            facts = stored["facts"]
        logged = self._temporary is None and bool(facts["settings"]["durable"])
        if new is not None:
            _remove(path)  # left by a kill, or a full disk, before the window counted
        elif not logged:
            _remove(path)  # kept in memory only: it begins empty
            facts = {"settings": facts["settings"], "seed": facts.get("seed", 0)}
        with telling("window cannot be opened", path):
            opened = engine.Engine(
                path, facts, budget=self._budget, durability=self._durability, logged=logged,
                clock=self.clock, share=self._share(folder),
            )  # fmt: skip
        self._opened(folder, opened)
        return StreamWindow(name, opened)

    def _all(self) -> dict[str, Channel | Collection | StreamWindow]:
        """Everything that is open; no two have one name."""
        return {**self._open, **self._collections, **self._windows}

    def _save(self) -> None:
        self._manifest.save({
            "format": FORMAT, "next": self._next, "channels": dict(self._folders),
            "collections": dict(self._places), "windows": dict(self._panes),
        })  # fmt: skip

    def _forget(self, named: dict[str, str], name: str) -> str:
        """Save that something is not there any more; when that fails, it still is. Its folder."""
        folder = named.pop(name)
        try:
            self._save()
        except BaseException:
            named[name] = folder
            raise
        return folder

    def _sweep(self) -> None:
        """Remove folders no manifest names: left by a kill."""
        for kind, named in zip(_KINDS, (self._folders, self._places, self._panes), strict=True):
            root = self.path / kind
            with telling("folder cannot be read", root):
                entries = list(root.iterdir()) if root.exists() else []
            for entry in entries:
                if entry.is_dir() and entry.name not in named.values():
                    shutil.rmtree(entry, ignore_errors=True)

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
        for channel in self._open.values():
            channel.core.shut()
        for collection in self._collections.values():
            collection._shut()
        for window in self._windows.values():
            window._shut()
        self._open.clear()
        self._collections.clear()
        self._windows.clear()
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
        for channel in self._open.values():
            channel.core.leave_to_parent(_FORKED)
        for collection in self._collections.values():
            collection._leave_to_parent(_FORKED)
        for window in self._windows.values():
            window._leave_to_parent(_FORKED)
        self._owner.leave(to_parent=True)
        if self._temporary is not None:  # the folder goes with the parent
            self._temporary._finalizer.detach()  # type: ignore[attr-defined]


def check_memory_mb(memory_mb: Any) -> None:
    """`InvalidRequest` for what is no `memory_mb` of a database."""
    if isinstance(memory_mb, bool) or not isinstance(memory_mb, (int, float)):
        raise InvalidRequest("memory_mb must be a number", memory_mb=memory_mb)
    if not 1 <= memory_mb <= 1 << 20:
        raise InvalidRequest("memory_mb must be 1 to 1048576", memory_mb=memory_mb)


def check_journal_s(journal_s: Any) -> None:
    """`InvalidRequest` for what is no `journal_s` of a channel or a collection."""
    if span_us(journal_s, "journal_s") < 0:
        raise InvalidRequest("journal_s must not be negative", journal_s=journal_s)


def check_name(name: Any, what: str) -> None:
    """`InvalidRequest` for what is no name of a channel or collection."""
    if not isinstance(name, str) or not 0 < len(name.encode("utf-8", "replace")) <= 128:
        raise InvalidRequest(f"a {what}'s name must be text of 1 to 128 bytes", name=name)
    if "\0" in name or "/" in name or not name.isprintable():
        raise InvalidRequest(f"a {what}'s name must be printable, without '/'", name=name)


def _remove(folder: Path) -> None:
    with telling("folder cannot be removed", folder):
        if folder.exists():
            shutil.rmtree(folder)
