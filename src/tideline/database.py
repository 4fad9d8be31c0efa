"""The object a user holds: a folder of channels and collections, open in one process.

    data/
      LOCK               held while open; names the owner
      MANIFEST           the channels and collections there are
      channels/0001/     one folder a channel (lsm/store.py)
      collections/0002/  one folder a collection
      TOKENS          who may use a server on it (server/tokens.py), if there are any

A channel and a collection never have the same name. A folder has one owner at a time: a second
opener gets `Unavailable` naming the first.
`":memory:"` keeps nothing: no log, and a temporary folder only for what does not fit.
Safe from any thread.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
import tempfile
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from tideline.channel import Channel
from tideline.channel.engine import Engine
from tideline.clock import Clock, SystemClock, span_us
from tideline.errors import Closed, Conflict, Corruption, InvalidRequest, NotFound, Unavailable
from tideline.index.memory import Budget
from tideline.kernels.warm import ensure
from tideline.lsm.manifest import Manifest
from tideline.model import ChannelStats, CollectionStats, Report
from tideline.space import Flat, Space, space_from_spec

if TYPE_CHECKING:
    from tideline.documents import Collection

__all__ = ["Database", "check_journal_s", "check_memory_mb", "check_name", "open"]

FORMAT = 1
SERVING = "serving at"  # what a server says in the lock file, before its address
LAYOUTS = ("dual", "two", "poll")


def open(
    path: str | os.PathLike[str], *, clock: Clock | None = None, memory_mb: int = 1024,
    durability: str = "os",
) -> Database:  # fmt: skip
    """Open a folder as a database; it is made if it is not there. `":memory:"` keeps nothing.

    >>> with open(":memory:") as db:
    ...     news = db.channel("news")
    ...     db.channels()
    ['news']
    """
    return Database(path, clock=clock, memory_mb=memory_mb, durability=durability)


class Database:
    """An open folder of channels and collections; close it, or use it as a context manager."""

    def __init__(
        self, path: str | os.PathLike[str], *, clock: Clock | None, memory_mb: int,
        durability: str,
    ) -> None:  # fmt: skip
        check_memory_mb(memory_mb)
        if clock is not None and not (hasattr(clock, "now") and hasattr(clock, "wait")):
            raise InvalidRequest("clock must have now() and wait()", clock=clock)
        if durability not in ("os", "disk"):
            raise InvalidRequest("durability must be 'os' or 'disk'", durability=durability)
        if not isinstance(path, (str, os.PathLike)) or not str(path):
            raise InvalidRequest("path must be the path of a folder", path=path)
        self.clock: Clock = SystemClock() if clock is None else clock
        self._budget = Budget(int(memory_mb * (1 << 20)))
        self._durability = durability
        self._lock = threading.RLock()
        self._open: dict[str, Channel] = {}
        self._collections: dict[str, Collection] = {}
        self._closed = False
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        if str(path) == ":memory:":
            self._temporary = tempfile.TemporaryDirectory(prefix="tideline-")
            self.path = Path(self._temporary.name)
        else:
            self.path = Path(path)
            try:
                self.path.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise InvalidRequest(
                    "path is not a folder that can be used", path=str(path), error=str(error)
                ) from None
        self._lock_file = self._own()
        try:
            ensure()
            self._manifest = Manifest(self.path / "MANIFEST")
            document = self._manifest.load()
            if document is None:
                if any((self.path / kind).exists() for kind in ("channels", "collections")):
                    raise Corruption("manifest is missing", file=self.path / "MANIFEST")
                document = {"format": FORMAT, "next": 1, "channels": {}, "collections": {}}
                self._manifest.save(document)
            if document.get("format") != FORMAT:
                raise Corruption("manifest has an unknown format", file=self.path / "MANIFEST")
            self._next: int = document["next"]
            self._folders: dict[str, str] = document["channels"]
            # A folder made before there were collections does not name them.
            self._places: dict[str, str] = document.get("collections", {})
            # Everything is opened at once: damage shows here, not at the first question.
            for name in self._folders:
                self._open[name] = self._load(name, None)
            for name in self._places:
                self._collections[name] = self._load_collection(name, None)
            self._sweep()
        except BaseException:
            self._release()
            raise

    # ---- channels -----------------------------------------------------------------------

    def channel(
        self, name: str, *, space: Space | None = None, layout: str | None = None,
        poll_s: float = 1.0, journal_s: float | None = None,
    ) -> Channel:  # fmt: skip
        """Open a channel, or create it. Space and layout are stored; others are a `Conflict`.

        A new channel is `Flat()` and `"dual"` unless told otherwise. `journal_s` keeps what is
        written, answers too, readable for that long by `Channel.journal`; it is stored, and
        another value changes it.

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
        if span_us(poll_s, "poll_s") <= 0:
            raise InvalidRequest("poll_s must be positive", poll_s=poll_s)
        if journal_s is not None:
            check_journal_s(journal_s)
            if self._temporary is not None:
                raise InvalidRequest("a database in memory keeps no journal", journal_s=journal_s)
        with self._lock:
            self._check_open()
            channel = self._open.get(name)
            if name in self._places:
                raise Conflict("a collection has this name", name=name)
            if channel is None:
                channel = self._create(name, space or Flat(), layout or "dual", poll_s)
            if space is not None and channel.space != space:
                raise Conflict(
                    "the channel has another space", name=name, stored=channel.space, given=space
                )
            if layout is not None and channel.layout != layout:
                raise Conflict(
                    "the channel has another layout", name=name, stored=channel.layout,
                    given=layout,
                )  # fmt: skip
            if journal_s is not None:
                if channel.layout == "poll":
                    raise InvalidRequest("layout 'poll' keeps no journal", name=name)
                channel._engine.keep_journal(span_us(journal_s, "journal_s"))
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
                raise NotFound("no such channel", name=name)
            self._open.pop(name)._shut("the channel was dropped")
            folder = self._folders.pop(name)
            self._save()
            shutil.rmtree(self.path / "channels" / folder, ignore_errors=True)

    # ---- collections --------------------------------------------------------------------

    def collection(
        self, name: str, *, key: str | None = None, indexes: Mapping[str, str] | None = None,
        policy: str | Mapping[str, Any] | None = None, filter: str | None = None,
        bloom_bits: int | None = None,
    ) -> Collection:  # fmt: skip
        """Open a collection of documents, or create it. Settings are stored; others a `Conflict`.

        `key` names the field that documents are known by; a new collection needs it. `indexes`
        are fields with the kind of their index: eager, lazy, composite or embedded. `policy` says
        which components merge: none, constant, prefix, correlated-prefix or leveled. `filter` is a
        field whose least and greatest value every component keeps. `bloom_bits` is the size of
        the bloom filters of embedded indexes, in bits an entry.

        >>> db = open(":memory:")
        >>> cars = db.collection("cars", key="id", indexes={"road": "lazy"})
        >>> db.collection("cars").indexes
        {'road': 'lazy'}
        >>> db.close()
        """
        from tideline.documents import settings

        check_name(name, "collection")
        given = settings.given(key, indexes, policy, filter, bloom_bits)
        with self._lock:
            self._check_open()
            found = self._collections.get(name)
            if name in self._folders:
                raise Conflict("a channel has this name", name=name)
            if found is None:
                return self._create_collection(name, settings.complete(given))
            settings.same(name, given, found)
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
                raise NotFound("no such collection", name=name)
            self._collections.pop(name)._shut()
            folder = self._places.pop(name)
            self._save()
            shutil.rmtree(self.path / "collections" / folder, ignore_errors=True)

    # ---- looking in -------------------------------------------------------------------------

    def stats(self) -> dict[str, ChannelStats | CollectionStats]:
        """The numbers of every channel and every collection."""
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
            for one in self._all().values():
                engine: Any = one._engine
                engine.check()
                components += sum(len(tree.readers) for tree in engine.store.trees)
                size += engine.store.size_bytes + engine.store.log.size_bytes
            return Report(len(self._open), components, size, len(self._collections))

    def backup(self, folder: str | os.PathLike[str]) -> None:
        """Copy the database into a new folder while it is used; opening the copy restores it.

        Each channel and each collection is copied as it is at one moment. Where the folder is on
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
        if self._temporary is not None:
            raise InvalidRequest("a database in memory cannot be backed up")
        target = Path(folder)
        try:
            target.mkdir(parents=True, exist_ok=True)
            if any(target.iterdir()):
                raise InvalidRequest("a backup needs a new folder", folder=str(target))
        except OSError as error:
            raise InvalidRequest(
                "folder cannot be used", folder=str(target), error=str(error)
            ) from None
        with self._lock:
            self._check_open()
            held: list[tuple[str, str, str, Any]] = [
                *(("channels", name, self._folders[name], one._engine)
                  for name, one in self._open.items()),
                *(("collections", name, self._places[name], one._engine)
                  for name, one in self._collections.items()),
            ]  # fmt: skip
            following = self._next
        copied: dict[str, dict[str, str]] = {"channels": {}, "collections": {}}
        try:
            for kind, name, number, engine in held:
                with contextlib.suppress(Closed):  # dropped meanwhile
                    engine.backup(target / kind / number)
                    copied[kind][name] = number
            with contextlib.suppress(FileNotFoundError):
                shutil.copy(self.path / "TOKENS", target / "TOKENS")  # of the server, if any
            document = {"format": FORMAT, "next": following, **copied}
            Manifest(target / "MANIFEST").save(document)
        except BaseException:
            shutil.rmtree(target, ignore_errors=True)
            raise

    def close(self) -> None:
        """Close everything and let the folder go. Closing twice is allowed."""
        with self._lock:
            if self._closed:
                return
            self._release()

    def __enter__(self) -> Database:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self.close()

    # ---- inside ---------------------------------------------------------------------------------

    def _create(self, name: str, space: Space, layout: str, poll_s: float) -> Channel:
        folder = f"{self._next:04d}"
        facts = {
            "space": space.spec(),
            "layout": layout,
            "poll_s": poll_s,
            "seeds": [secrets.randbits(62), secrets.randbits(62)],
        }
        channel = self._load(name, (folder, facts))
        self._next += 1
        self._folders[name] = folder
        try:
            self._save()
        except BaseException:
            del self._folders[name]
            channel._shut()
            raise
        self._open[name] = channel
        return channel

    def _load(self, name: str, new: tuple[str, dict[str, Any]] | None) -> Channel:
        folder, facts = new if new else (self._folders[name], {})
        path = self.path / "channels" / folder
        if new is None:
            stored = Manifest(path / "MANIFEST").load()
            if stored is None:
                raise Corruption("manifest of a channel is missing", file=path / "MANIFEST")
            facts = stored["facts"]
        elif path.exists():  # left by a kill before the channel counted
            shutil.rmtree(path)
        space = space_from_spec(facts["space"])
        engine = Engine(
            path, facts, mode=space.mode, layout=facts["layout"],
            budget=self._budget, durability=self._durability,
            logged=self._temporary is None,
        )  # fmt: skip
        return Channel(name, space, facts["layout"], facts["poll_s"], engine, self.clock)

    def _create_collection(self, name: str, facts: dict[str, Any]) -> Collection:
        folder = f"{self._next:04d}"
        made = self._load_collection(name, (folder, {**facts, "seed": secrets.randbits(62)}))
        self._next += 1
        self._places[name] = folder
        try:
            self._save()
        except BaseException:
            del self._places[name]
            made._shut()
            raise
        self._collections[name] = made
        return made

    def _load_collection(self, name: str, new: tuple[str, dict[str, Any]] | None) -> Collection:
        ensure("documents")
        from tideline.documents import Collection, engine, extract

        folder, facts = new if new else (self._places[name], {})
        path = self.path / "collections" / folder
        if new is None:
            if Manifest(path / "MANIFEST").load() is None:
                raise Corruption("manifest of a collection is missing", file=path / "MANIFEST")
        elif path.exists():  # left by a kill before the collection counted
            shutil.rmtree(path)
        return Collection(
            name,
            engine.Engine(
                path, facts, budget=self._budget, durability=self._durability,
                logged=self._temporary is None, extract=extract.extract,
            ),
        )  # fmt: skip

    def _all(self) -> dict[str, Channel | Collection]:
        """Everything that is open; no two have one name."""
        return {**self._open, **self._collections}

    def _save(self) -> None:
        self._manifest.save({
            "format": FORMAT, "next": self._next, "channels": dict(self._folders),
            "collections": dict(self._places),
        })  # fmt: skip

    def _sweep(self) -> None:
        """Remove folders no manifest names: left by a kill."""
        for kind, named in (("channels", self._folders), ("collections", self._places)):
            root = self.path / kind
            if root.exists():
                for entry in root.iterdir():
                    if entry.is_dir() and entry.name not in named.values():
                        shutil.rmtree(entry, ignore_errors=True)

    def _own(self) -> int:
        """Take the folder's lock, or say who has it."""
        path = self.path / "LOCK"
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise Unavailable("folder cannot be used", path=str(path), error=str(error)) from None
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            owner = os.read(fd, 200).decode(errors="replace").strip()
            os.close(fd)
            message = "the folder is open in another process"
            values = {"path": str(self.path), "owner": owner}
            _, serving, url = owner.partition(SERVING)
            if serving:
                message += " that serves it: connect to its url"
                values["url"] = url.strip()
            raise Unavailable(message, **values) from None
        started = datetime.now(UTC).isoformat(timespec="seconds")
        self._owner = f"pid {os.getpid()} since {started}"
        _write_over(fd, self._owner)
        return fd

    def _sign(self, doing: str = "") -> None:
        """Say what the owner does with the folder, to whoever finds it in use."""
        with self._lock:
            if not self._closed:
                _write_over(self._lock_file, f"{self._owner}, {doing}" if doing else self._owner)

    def _release(self) -> None:
        self._closed = True
        for one in self._all().values():
            one._shut()
        self._open.clear()
        self._collections.clear()
        os.close(self._lock_file)
        if self._temporary is not None:
            self._temporary.cleanup()

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("the database was closed", path=str(self.path))


def check_memory_mb(memory_mb: Any) -> None:
    """`InvalidRequest` for what is no `memory_mb` of a database."""
    if isinstance(memory_mb, bool) or not isinstance(memory_mb, (int, float)):
        raise InvalidRequest("memory_mb must be a number", memory_mb=memory_mb)
    if not 1 <= memory_mb <= 1 << 20:
        raise InvalidRequest("memory_mb must be 1 to 1048576", memory_mb=memory_mb)


def check_journal_s(journal_s: Any) -> None:
    """`InvalidRequest` for what is no `journal_s` of a channel."""
    if span_us(journal_s, "journal_s") < 0:
        raise InvalidRequest("journal_s must not be negative", journal_s=journal_s)


def check_name(name: Any, what: str) -> None:
    """`InvalidRequest` for what is no name of a channel or collection."""
    if not isinstance(name, str) or not 0 < len(name.encode("utf-8", "replace")) <= 128:
        raise InvalidRequest(f"a {what}'s name must be text of 1 to 128 bytes", name=name)
    if "\0" in name or "/" in name or not name.isprintable():
        raise InvalidRequest(f"a {what}'s name must be printable, without '/'", name=name)


def _write_over(fd: int, text: str) -> None:
    with contextlib.suppress(OSError):  # a full disk must not keep anyone from reading
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{text}\n".encode(), 0)
