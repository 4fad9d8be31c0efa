"""The channels, collections and windows of a folder: made, opened, dropped, copied.

    MANIFEST           {"format", "next", "channels": {name: number}, "collections": ...}
    channels/0001/     one folder each, of its kind; a number is never used again

A dataset counts once the manifest names it: a folder that no manifest names was left by a kill,
and is removed. No two have one name. In a cluster all nodes agree before something is made or
dropped, and on its number.

A database has one of these, and holds its own lock in every call.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from tideline.channel import Channel
from tideline.channel.engine import Engine
from tideline.clock import Clock, span_us
from tideline.errors import Closed, Corruption, InvalidRequest
from tideline.index.memory import Budget
from tideline.kernels.warm import ensure
from tideline.lsm import inventory
from tideline.lsm.files import sync_folder, telling
from tideline.lsm.manifest import Manifest
from tideline.space import space_from_spec

__all__ = ["Datasets", "Kind", "Sharing", "check_journal_s", "check_name", "copy_to"]

FORMAT = 1


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


class Kind:
    """The datasets of one kind, and what is special about it."""

    name: str
    """Of the folder, and in the manifest."""
    word: str
    kernels = ""
    """The group that it needs beside those of channels."""

    def __init__(self) -> None:
        self.folders: dict[str, str] = {}
        """All there are: the number of the folder, by name."""
        self.open: dict[str, Any] = {}

    def prepare(self) -> None:
        """Load its kernels; the first time it takes seconds."""
        if self.kernels:
            ensure(self.kernels)

    def facts(self, stored: dict[str, Any]) -> dict[str, Any]:
        """What its engine is told of what its manifest says."""
        facts: dict[str, Any] = stored["facts"]
        return facts

    def logged(self, facts: dict[str, Any]) -> bool:
        """Whether it has a log, in a database that is on disk."""
        return True

    def engine(self, path: Path, facts: dict[str, Any], clock: Clock, **room: Any) -> Any:
        """Its engine, open."""
        raise NotImplementedError

    def handle(self, name: str, engine: Any, facts: dict[str, Any], clock: Clock) -> Any:
        """What users hold."""
        raise NotImplementedError

    def engine_of(self, handle: Any) -> Any:
        """The engine of what users hold."""
        return handle._engine

    def shut(self, handle: Any, *, dropped: bool = False) -> None:
        """Close it."""
        handle._shut(dropped=dropped)

    def leave_to_parent(self, handle: Any, why: str) -> None:
        """In a forked child: let go of it."""
        handle._leave_to_parent(why)


class _Channels(Kind):
    name, word = "channels", "channel"

    def engine(self, path: Path, facts: dict[str, Any], clock: Clock, **room: Any) -> Any:
        mode = space_from_spec(facts["space"]).mode
        return Engine(path, facts, mode=mode, layout=facts["layout"], **room)

    def handle(self, name: str, engine: Any, facts: dict[str, Any], clock: Clock) -> Any:
        space = space_from_spec(facts["space"])
        return Channel(name, space, facts["layout"], facts["poll_s"], engine, clock)

    def engine_of(self, handle: Any) -> Any:
        return handle.core.engine

    def shut(self, handle: Any, *, dropped: bool = False) -> None:
        handle.core.shut("the channel was dropped" if dropped else "the database was closed")

    def leave_to_parent(self, handle: Any, why: str) -> None:
        handle.core.leave_to_parent(why)


class _Collections(Kind):
    name, word, kernels = "collections", "collection", "documents"

    def facts(self, stored: dict[str, Any]) -> dict[str, Any]:
        return {}  # its engine reads them

    def engine(self, path: Path, facts: dict[str, Any], clock: Clock, **room: Any) -> Any:
        from tideline.documents.engine import Engine

        return Engine(path, facts, clock=clock, **room)

    def handle(self, name: str, engine: Any, facts: dict[str, Any], clock: Clock) -> Any:
        from tideline.live import Collection

        return Collection(name, engine)


class _Windows(Kind):
    name, word, kernels = "windows", "window", "stream"

    def logged(self, facts: dict[str, Any]) -> bool:
        return bool(facts["settings"]["durable"])

    def engine(self, path: Path, facts: dict[str, Any], clock: Clock, **room: Any) -> Any:
        from tideline.stream.engine import Engine

        return Engine(path, facts, clock=clock, **room)

    def handle(self, name: str, engine: Any, facts: dict[str, Any], clock: Clock) -> Any:
        from tideline.stream import StreamWindow

        return StreamWindow(name, engine)


class Datasets:
    """All of a folder."""

    def __init__(
        self, path: Path, *, clock: Clock, budget: Budget, durability: str, in_memory: bool,
        sharing: Sharing | None, whole: Callable[[Callable[[], Any]], Any],
    ) -> None:  # fmt: skip
        """whole: runs something that nothing can cut in the middle."""
        self._path = path
        self._clock = clock
        self._room = {"budget": budget, "durability": durability}
        self._in_memory = in_memory
        self._sharing = sharing
        self._whole = whole
        self.manifest = Manifest(path / "MANIFEST")
        self._next = 1
        self.channels, self.collections, self.windows = _Channels(), _Collections(), _Windows()
        self.kinds: tuple[Kind, ...] = (self.channels, self.collections, self.windows)

    def open(self) -> None:
        """Open everything at once: damage shows here, not at the first question."""
        document = self.manifest.load()
        if document is None:
            if any((self._path / kind.name).exists() for kind in self.kinds):
                raise Corruption("manifest is missing", file=self._path / "MANIFEST")
            self._save()
        else:
            if document.get("format") != FORMAT:
                raise Corruption(
                    "this folder has a format that is not known here: a later release may have "
                    "written it",
                    file=self._path / "MANIFEST", format=document.get("format"),
                )  # fmt: skip
            self._next = document["next"]
            for kind in self.kinds:  # a folder made before there was a kind does not name it
                kind.folders.update(document.get(kind.name, {}))
        for kind in self.kinds:
            for name, folder in kind.folders.items():
                kind.open[name] = self._load(kind, name, folder, None)
        self._sweep()

    def handles(self) -> dict[str, Any]:
        """Everything that is open, by name."""
        return {name: one for kind in self.kinds for name, one in kind.open.items()}

    def engines(self) -> list[Any]:
        """The engine of each."""
        return [kind.engine_of(one) for kind in self.kinds for one in kind.open.values()]

    # ---- making and dropping ------------------------------------------------------------------

    def make(self, kind: Kind, name: str, facts: dict[str, Any]) -> None:
        """Create something; in a cluster all nodes agree first, and on its number."""
        if self._sharing is None:
            self._whole(partial(self._create, kind, name, facts, self._next))
        else:
            self._sharing.decide(
                0, {"make": kind.name, "name": name, "facts": facts},
                lambda number: self._whole(partial(self._create, kind, name, facts, number)),
            )  # fmt: skip

    def drop(self, kind: Kind, name: str) -> None:
        """Delete something; in a cluster all nodes agree first."""
        drop = partial(self._whole, partial(self._remove, kind, name))
        if self._sharing is None:
            drop()
        else:
            change = {"drop": kind.name, "number": int(kind.folders[name])}
            self._sharing.decide(0, change, lambda _: drop())

    def apply_change(self, number: int, change: dict[str, Any]) -> None:
        """Do what the nodes of a cluster have agreed on; doing it again does no harm."""
        kinds = {kind.name: kind for kind in self.kinds}
        if "make" in change:
            kind = kinds[change["make"]]
            if change["name"] not in self.handles():
                kind.prepare()  # it may take long: not sheltered
                self._whole(partial(self._create, kind, change["name"], change["facts"], number))
            return
        kind, dropped = kinds[change["drop"]], f"{change['number']:04d}"
        for name in [name for name, folder in kind.folders.items() if folder == dropped]:
            self._whole(partial(self._remove, kind, name))

    def _create(self, kind: Kind, name: str, facts: dict[str, Any], number: int) -> None:
        folder = f"{number:04d}"
        made = self._load(kind, name, folder, facts)
        self._next = max(self._next, number) + 1
        kind.folders[name] = folder
        try:
            self._save()
        except BaseException:
            del kind.folders[name]
            kind.shut(made)
            raise
        kind.open[name] = made

    def _remove(self, kind: Kind, name: str) -> None:
        folder = kind.folders.pop(name)
        try:
            self._save()
        except BaseException:  # then it is still there
            kind.folders[name] = folder
            raise
        if self._sharing is not None:
            self._sharing.dropped(int(folder))
        kind.shut(kind.open.pop(name), dropped=True)
        shutil.rmtree(self._path / kind.name / folder, ignore_errors=True)

    def _load(self, kind: Kind, name: str, folder: str, facts: dict[str, Any] | None) -> Any:
        """Open one; a new one has facts."""
        kind.prepare()
        path = self._path / kind.name / folder
        new = facts is not None
        if facts is None:
            stored = Manifest(path / "MANIFEST").load()
            if stored is None:
                raise Corruption(f"manifest of a {kind.word} is missing", file=path / "MANIFEST")
            facts = kind.facts(stored)
        durable = kind.logged(facts)
        if new:
            _remove(path)  # left by a kill, or a full disk, before it counted
        elif not durable:
            _remove(path)  # kept in memory only: it begins empty
            facts = {"settings": facts["settings"], "seed": facts.get("seed", 0)}
        share = None if self._sharing is None else self._sharing.share(int(folder))
        with telling(f"{kind.word} cannot be opened", path):
            engine = kind.engine(
                path, facts, self._clock, logged=durable and not self._in_memory, share=share,
                **self._room,
            )  # fmt: skip
        if self._sharing is not None:
            self._sharing.opened(int(folder), engine)
        return kind.handle(name, engine, facts, self._clock)

    def _document(self, named: dict[str, dict[str, str]]) -> dict[str, Any]:
        return {"format": FORMAT, "next": self._next, **named}

    def _save(self) -> None:
        named = {kind.name: dict(kind.folders) for kind in self.kinds}
        self.manifest.save(self._document(named))

    def _sweep(self) -> None:
        """Remove folders no manifest names: left by a kill."""
        for kind in self.kinds:
            root = self._path / kind.name
            with telling("folder cannot be read", root):
                entries = list(root.iterdir()) if root.exists() else []
            for entry in entries:
                if entry.is_dir() and entry.name not in kind.folders.values():
                    shutil.rmtree(entry, ignore_errors=True)

    # ---- copying and closing ------------------------------------------------------------------

    def held(self) -> tuple[list[tuple[Kind, str, str, Any]], dict[str, Any]]:
        """What a copy is made of: each as (kind, name, number, engine), and the manifest."""
        held = [
            (kind, name, kind.folders[name], kind.engine_of(one))
            for kind in self.kinds
            for name, one in kind.open.items()
        ]
        return held, self._document({kind.name: {} for kind in self.kinds})

    def shut(self) -> None:
        """Close everything."""
        for kind in self.kinds:
            for one in kind.open.values():
                kind.shut(one)
            kind.open.clear()

    def leave_to_parent(self, why: str) -> None:
        """In a forked child: let go of everything without touching it."""
        for kind in self.kinds:
            for one in kind.open.values():
                kind.leave_to_parent(one, why)


def copy_to(
    target: Path, source: Path, held: list[tuple[Kind, str, str, Any]], document: dict[str, Any]
) -> None:
    """Copy what `held` told into an empty folder; what fails leaves nothing there."""
    files: dict[str, inventory.Listed] = {}
    try:
        for kind, name, number, engine in held:
            with contextlib.suppress(Closed):  # dropped meanwhile
                listed = engine.backup(target / kind.name / number)
                document[kind.name][name] = number
                files |= {f"{kind.name}/{number}/{file}": each for file, each in listed.items()}
        with telling("backup failed", target):
            if (source / "TOKENS").exists():  # of the server, if any
                shutil.copy(source / "TOKENS", target / "TOKENS")
                files["TOKENS"] = inventory.list_of(target / "TOKENS")
            for folder in (*(kind for kind in target.iterdir() if kind.is_dir()), target.parent):
                sync_folder(folder)
        Manifest(target / "MANIFEST").save(document)
        files["MANIFEST"] = inventory.list_of(target / "MANIFEST")
        inventory.save_list(target, files)
    except BaseException:
        shutil.rmtree(target, ignore_errors=True)
        raise


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
