"""One dataset on disk: a manifest, a log, and the components of its indexes.

    write      rows -> memory of every index -> one log frame -> acknowledged
    recovery   manifest -> components (verified) -> log from `first_log` on -> memory
    commit     manifest names components, `first_log` and `kept_log`; then files and segments go

Segments from `kept_log` to `first_log` hold nothing that recovery needs: they are kept to be read.

The manifest is the only thing that makes a component count, and it is switched
atomically. So a kill at any moment leaves either the old set of components with the
log that goes with it, or the new one.

`commit` takes the owner's lock for a moment; nobody calls it with that lock held.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tideline.errors import Closed, Corruption, Unavailable
from tideline.lsm.anylog import AnyLog
from tideline.lsm.component import ComponentInfo, remove_strays
from tideline.lsm.files import sync_folder, telling
from tideline.lsm.log import Log
from tideline.lsm.manifest import Manifest
from tideline.lsm.nulllog import NullLog
from tideline.lsm.position import Position
from tideline.lsm.sharedlog import Share, SharedLog
from tideline.lsm.tree import Tree

__all__ = ["FORMAT", "Store"]

FORMAT = 8
# 1 had other hashes of ids in its components (index/oldhashes.py); 2 no notes in its log; 3 no
# rows of tombs in it; 4 shorter headers of log segments, and ghosts in the place of marks; 5 no
# levels of components, and no old versions in the logs of collections; 6 no documents that expire,
# and no events that are retracted or replaced; 7 no polygons. docs/reference/stored-formats.md
_READABLE = (1, 2, 3, 4, 5, 6, 7, 8)


class Store:
    """The files of one dataset."""

    def __init__(
        self, folder: Path, *, durability: str, logged: bool, segment_bytes: int,
        share: Share | None = None,
    ) -> None:  # fmt: skip
        """With a `share`, the log is one that a cluster agrees on."""
        self.folder = folder
        self.share = share
        self.sync = durability == "disk" or share is not None
        """Whether a write that was appended has to be waited for, and files go to disk."""
        self._manifest = Manifest(folder / "MANIFEST")
        self._lock = threading.Lock()  # for component numbers
        self._committing = threading.Lock()
        self._ended = False
        self._detached: list[Tree[Any]] = []
        self.trees: list[Tree[Any]] = []
        document = self._manifest.load() if folder.exists() else None
        self.is_new = document is None
        if self.is_new:
            with telling("folder cannot be made", folder):
                folder.mkdir(parents=True, exist_ok=True)
                # Before a manifest names it: the folder's own name survives a power cut.
                sync_folder(folder.parent)
                sync_folder(folder.parent.parent)
        document = document or {
            "format": FORMAT, "next_component": 1, "first_log": 1, "trees": {}, "facts": {},
        }  # fmt: skip
        if document.get("format") not in _READABLE:
            raise Corruption(
                "this folder has a format that is not known here: a later release may have "
                "written it",
                file=folder / "MANIFEST", format=document.get("format"),
            )  # fmt: skip
        self.format: int = document["format"]
        """The version of the files as they were found."""
        self.is_outdated = self.format != FORMAT
        """Whether the manifest is to be saved before something is that older versions misread."""
        try:
            self.facts: dict[str, Any] = document["facts"]
            self.first_log: int = document["first_log"]
            self.kept_log: int = document.get("kept_log", self.first_log)
            end = document.get("log_end")
            self._log_end: Position | None = None if end is None else Position(*end)
            self._next_component: int = document["next_component"]
            self._infos: dict[str, list[ComponentInfo]] = {  # of trees that nobody attached yet
                name: [ComponentInfo.from_json(item) for item in items]
                for name, items in document["trees"].items()
            }
        except (KeyError, TypeError, AttributeError) as error:
            raise Corruption("manifest lacks a part", file=folder / "MANIFEST") from error
        known = {info.name for infos in self._infos.values() for info in infos}
        remove_strays(folder, known)
        self.log: AnyLog = NullLog()
        ends: dict[str, Any] = {
            "first": self.first_log, "kept": self.kept_log, "end": self._log_end,
            "new": self.is_new, "segment_bytes": segment_bytes,
        }  # fmt: skip
        if share is not None:
            self.log = SharedLog.open_shared(folder, share, **ends)
        elif logged:
            self.log = Log.open(folder, durability=durability, **ends)

    def attach(self, tree: Tree[Any], now: int) -> None:
        """Load what the manifest said of a tree and keep its components from now on.

        What it said at opening counts once: a tree that was detached has nothing when one of
        its name comes again.
        """
        tree.load(self._infos.pop(tree.name, []), now)
        self.trees.append(tree)

    def next_component(self) -> int:
        """A number no component has had."""
        with self._lock:
            number = self._next_component
            self._next_component += 1
            return number

    def detach(self, tree: Tree[Any]) -> None:
        """Forget a tree and, at the next commit, delete its components (owner's lock)."""
        tree.apply([], tree.readers)
        self.trees.remove(tree)
        self._detached.append(tree)

    def commit(
        self, lock: threading.Lock, snapshot: Callable[[], tuple[dict[str, Any], int, int]],
        *, last: bool = False,
    ) -> None:  # fmt: skip
        """Save the manifest, then delete what it no longer names. One at a time.

        `snapshot` gives the facts, the first log segment that recovery needs and the first to
        keep. It is called under the owner's `lock`, and so are the components taken note of:
        facts, components and log position belong together.

        Where the log ends is noted, once it is on disk: a log that is found shorter was cut, which
        neither a kill nor a power cut can explain. `last`: nothing is appended after it.
        """
        with self._committing:
            if self._ended:  # its trees have let go of their components: nothing may say so
                raise Closed("the database was closed")
            try:
                self._log_end = self.log.settle() or self._log_end
            except Unavailable:
                if last or self.sync:
                    raise
            with lock:
                facts, first_log, kept_log = snapshot()
                trees = {tree.name: [i.to_json() for i in tree.infos] for tree in self.trees}
                swept = [*self.trees, *self._detached]
                waste = [tree.waste for tree in swept]
                with self._lock:
                    number = self._next_component
                point = self.log.commit_point()
            if point is not None:  # what the facts and components say is agreed on
                self._log_end = point() or self._log_end
            self._manifest.save(
                {
                    "format": FORMAT,
                    "log_end": self._log_end,
                    "next_component": number,
                    "first_log": first_log,
                    "kept_log": kept_log,
                    "trees": trees,
                    "facts": facts,
                }
            )
            self.facts = facts
            for tree, gone in zip(swept, waste, strict=True):
                tree.sweep(gone)
            self._detached = [tree for tree in self._detached if tree not in swept]
            self.first_log = first_log
            self.log.protect(first_log)
            if kept_log > self.kept_log:
                self.log.forget(kept_log)
                self.kept_log = kept_log

    def decide(self, change: dict[str, Any], do: Callable[[], None]) -> None:
        """Change a setting: `do` does it here; in a cluster all agree on `change` first.

        No lock is held.
        """
        if self.share is None:
            do()
        else:
            self.share.decide(change, do)

    def truncate(self, to: Position) -> None:
        """Cut the log after a position, durably; under the lock of whoever appends.

        Refused where components have what would be cut. Memory is not changed: the owner
        brings it back from components and log, by opening anew. A kill in the middle leaves a log
        that ends at `to` or at a frame after it.
        """
        with self._committing:
            document = self._manifest.load()
            if document is None:
                raise Corruption("manifest is missing", file=self.folder / "MANIFEST")
            self.log.require_cut(to)
            if self._log_end is not None and to < self._log_end:
                # The note of the end first: a log that is shorter than its note is damaged.
                self._manifest.save({**document, "log_end": to})
                self._log_end = to
            self.log.truncate(to)

    def check(self) -> None:
        """Read the manifest, the log and every component again and verify them."""
        if self._manifest.load() is None:
            raise Corruption("manifest is missing", file=self.folder / "MANIFEST")
        self.log.verify()
        for tree in self.trees:
            tree.check()

    @property
    def size_bytes(self) -> int:
        """Bytes of all components."""
        return sum(tree.size_bytes for tree in self.trees)

    def close(self) -> None:
        """Let go of the files; nothing is committed after this."""
        with self._committing:
            self._ended = True
        self.log.close()
        for tree in self.trees:
            tree.close()
