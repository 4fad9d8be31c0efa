"""The object a user holds: a folder of channels, open in one process.

    data/
      LOCK            held while open; names the owner
      MANIFEST        the channels there are
      channels/0001/  one folder a channel (lsm/store.py)
      TOKENS          who may use a server on it (server/tokens.py), if there are any

A folder has one owner at a time: a second opener gets `Unavailable` naming the first.
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
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any

from tideline.channel import Channel
from tideline.channel.engine import Engine
from tideline.clock import Clock, SystemClock, span_us
from tideline.errors import Closed, Conflict, Corruption, InvalidRequest, NotFound, Unavailable
from tideline.index.memory import Budget
from tideline.kernels.warm import ensure
from tideline.lsm.manifest import Manifest
from tideline.model import ChannelStats, Report
from tideline.space import Flat, Space, space_from_spec

__all__ = ["Database", "open"]

FORMAT = 1
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
    """An open folder of channels; close it, or use it as a context manager."""

    def __init__(
        self, path: str | os.PathLike[str], *, clock: Clock | None, memory_mb: int,
        durability: str,
    ) -> None:  # fmt: skip
        if isinstance(memory_mb, bool) or not isinstance(memory_mb, (int, float)):
            raise InvalidRequest("memory_mb must be a number", memory_mb=memory_mb)
        if not 1 <= memory_mb <= 1 << 20:
            raise InvalidRequest("memory_mb must be at least 1", memory_mb=memory_mb)
        if durability not in ("os", "disk"):
            raise InvalidRequest("durability must be 'os' or 'disk'", durability=durability)
        if not isinstance(path, (str, os.PathLike)) or not str(path):
            raise InvalidRequest("path must be the path of a folder", path=path)
        self.clock: Clock = SystemClock() if clock is None else clock
        self._budget = Budget(int(memory_mb * (1 << 20)))
        self._durability = durability
        self._lock = threading.RLock()
        self._open: dict[str, Channel] = {}
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
                if (self.path / "channels").exists():
                    raise Corruption("manifest is missing", file=self.path / "MANIFEST")
                document = {"format": FORMAT, "next": 1, "channels": {}}
                self._manifest.save(document)
            if document.get("format") != FORMAT:
                raise Corruption("manifest has an unknown format", file=self.path / "MANIFEST")
            self._next: int = document["next"]
            self._folders: dict[str, str] = document["channels"]
            # Every channel is opened at once: damage shows here, not at the first question.
            for name in self._folders:
                self._open[name] = self._load(name, None)
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
        if not isinstance(name, str) or not 0 < len(name.encode("utf-8", "replace")) <= 128:
            raise InvalidRequest("a channel's name must be text of 1 to 128 bytes", name=name)
        if "\0" in name or "/" in name or not name.isprintable():
            raise InvalidRequest("a channel's name must be printable, without '/'", name=name)
        if layout is not None and layout not in LAYOUTS:
            raise InvalidRequest(f"layout must be one of {', '.join(LAYOUTS)}", layout=layout)
        if space is not None and not (hasattr(space, "spec") and hasattr(space, "encode")):
            raise InvalidRequest("space must be Flat, Topics, Grid or QuadTree", space=space)
        if span_us(poll_s, "poll_s") <= 0:
            raise InvalidRequest("poll_s must be positive", poll_s=poll_s)
        if journal_s is not None:
            if span_us(journal_s, "journal_s") < 0:
                raise InvalidRequest("journal_s must not be negative", journal_s=journal_s)
            if self._temporary is not None:
                raise InvalidRequest("a database in memory keeps no journal", journal_s=journal_s)
        with self._lock:
            self._check_open()
            channel = self._open.get(name)
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
            self._open.pop(name)._shut()
            folder = self._folders.pop(name)
            self._save()
            shutil.rmtree(self.path / "channels" / folder, ignore_errors=True)

    # ---- looking in -------------------------------------------------------------------------

    def stats(self) -> dict[str, ChannelStats]:
        """The numbers of every channel."""
        with self._lock:
            self._check_open()
            return {name: channel.stats() for name, channel in sorted(self._open.items())}

    def check(self) -> Report:
        """Verify every checksum and invariant on disk; `Corruption` names the damaged file."""
        with self._lock:
            self._check_open()
            if self._manifest.load() is None:
                raise Corruption("manifest is missing", file=self.path / "MANIFEST")
            components = size = 0
            for channel in self._open.values():
                engine = channel._engine
                engine.check()
                components += sum(len(side.tree.readers) for side in engine.sides)
                size += engine.store.size_bytes + engine.store.log.size_bytes
            return Report(len(self._open), components, size)

    def backup(self, folder: str | os.PathLike[str]) -> None:
        """Copy the database into a new folder while it is used; opening the copy restores it.

        Each channel is copied as it is at one moment. Where the folder is on the same disk, most
        files are only linked, which takes no time and no room; copy it elsewhere to be safe from
        that disk.

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
            channels = [(name, self._folders[name], self._open[name]) for name in self._folders]
            following = self._next
        copied = {}
        try:
            for name, number, channel in channels:
                with contextlib.suppress(Closed):  # dropped meanwhile
                    channel._engine.backup(target / "channels" / number)
                    copied[name] = number
            with contextlib.suppress(FileNotFoundError):
                shutil.copy(self.path / "TOKENS", target / "TOKENS")  # of the server, if any
            document = {"format": FORMAT, "next": following, "channels": copied}
            Manifest(target / "MANIFEST").save(document)
        except BaseException:
            shutil.rmtree(target, ignore_errors=True)
            raise

    def close(self) -> None:
        """Close every channel and let the folder go. Closing twice is allowed."""
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

    def _save(self) -> None:
        self._manifest.save({"format": FORMAT, "next": self._next, "channels": dict(self._folders)})

    def _sweep(self) -> None:
        """Remove channel folders no manifest names: left by a kill."""
        root = self.path / "channels"
        if root.exists():
            for entry in root.iterdir():
                if entry.is_dir() and entry.name not in self._folders.values():
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
            raise Unavailable(
                "the folder is open in another process", path=str(self.path), owner=owner
            ) from None
        started = datetime.now(UTC).isoformat(timespec="seconds")
        with contextlib.suppress(OSError):  # a full disk must not keep anyone from reading
            os.ftruncate(fd, 0)
            os.pwrite(fd, f"pid {os.getpid()} since {started}\n".encode(), 0)
        return fd

    def _release(self) -> None:
        self._closed = True
        for channel in self._open.values():
            channel._shut()
        self._open.clear()
        os.close(self._lock_file)
        if self._temporary is not None:
            self._temporary.cleanup()

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("the database was closed", path=str(self.path))
