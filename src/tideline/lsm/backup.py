"""A copy of one dataset while it is being written.

    under the owner's lock   a manifest of this moment; every component and every closed log segment
                             linked into the copy (or opened, where no link can be made); the end of
                             the segment that is appended to
    without it               that segment copied up to its end; what was opened copied; the manifest
                             saved last

Components and closed segments never change, so a link to one is a copy of it, made at once. What is
appended meanwhile lies behind the end that was noted. The copy opens like the original: what was
acknowledged before the moment is in it, nothing that came later is. Its manifest says where its log
ends, and whoever asked for it is told size and checksum of every file (inventory.py).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tideline.errors import InvalidRequest
from tideline.lsm.files import sync_folder, unavailable
from tideline.lsm.inventory import Listed, list_of
from tideline.lsm.log import Log
from tideline.lsm.manifest import Manifest
from tideline.lsm.store import FORMAT, Store

__all__ = ["begin_copy"]


def begin_copy(
    store: Store, target: Path, facts: dict[str, Any], first_log: int, kept_log: int
) -> Callable[[], dict[str, Listed]]:
    """Take note of a moment (the owner's lock is held); returns what finishes the copy.

    What it returns is called once, without the lock, and gives the copy's files.
    """
    log = store.log
    if not isinstance(log, Log):
        raise InvalidRequest("a database in memory cannot be backed up")
    end = log.end
    document = {
        "format": FORMAT,
        "log_end": end,
        "next_component": store.next_component(),
        "first_log": first_log,
        "kept_log": kept_log,
        "trees": {tree.name: [i.to_json() for i in tree.infos] for tree in store.trees},
        "facts": facts,
    }
    infos = [info for tree in store.trees for info in tree.infos]
    listed = {info.name: Listed(info.size_bytes, info.crc) for info in infos}
    names = list(listed)
    closed, current, size_bytes = log.files(kept_log)
    names += closed
    opened: list[tuple[int, str, int]] = []  # descriptor, name, bytes to copy
    try:
        target.mkdir(parents=True)
        for name in names:
            try:
                os.link(store.folder / name, target / name)
            except OSError:  # another disk, or one without links
                fd = os.open(store.folder / name, os.O_RDONLY | os.O_CLOEXEC)
                opened.append((fd, name, os.fstat(fd).st_size))
        fd = os.open(store.folder / current, os.O_RDONLY | os.O_CLOEXEC)
        opened.append((fd, current, size_bytes))
    except OSError as error:
        _close(opened)
        raise unavailable(error, "backup failed", target) from error

    def finish() -> dict[str, Listed]:
        try:
            for fd, name, size in opened:
                _copy(fd, target / name, size)
            sync_folder(target)
        except OSError as error:
            raise unavailable(error, "backup failed", target) from error
        finally:
            _close(opened)
        Manifest(target / "MANIFEST").save(document)
        for name in (*names, current, "MANIFEST"):
            if name not in listed:  # a component's checksum is known: it is not read
                listed[name] = list_of(target / name)
        return listed

    return finish


def _copy(fd: int, path: Path, size: int) -> None:
    with os.fdopen(os.dup(fd), "rb") as source, path.open("xb") as sink:
        left = size
        while left:
            piece = source.read(min(left, 1 << 20))
            if not piece:
                raise OSError(f"{path.name} ended {left} bytes early")
            sink.write(piece)
            left -= len(piece)
        sink.flush()
        os.fsync(sink.fileno())


def _close(opened: list[tuple[int, str, int]]) -> None:
    while opened:
        os.close(opened.pop()[0])
