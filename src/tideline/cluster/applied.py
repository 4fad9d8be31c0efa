"""What a node keeps beside its database: how far of the replicated log is in it.

    data/cluster/
      log/          the replicated log (replica/storage.py)
      APPLIED       up to which index everything is in the database, on disk, and where the log
                    of each dataset was then; changes that were agreed on and are still to be
                    done; where the nodes are served; frames of which a part is still to come
      incoming/     a state from another node, while it arrives
      INSTALL       it is whole: it takes the place of the database

APPLIED is saved before the replicated log up to its index may go. When a node starts, the logs of
its datasets are cut to where they were, and everything after the index comes again.
"""

from __future__ import annotations

import os
import shutil
from base64 import b64decode, b64encode
from pathlib import Path
from typing import Any, NamedTuple

from tideline.errors import Corruption
from tideline.lsm.files import sync_folder, telling
from tideline.lsm.manifest import Manifest
from tideline.lsm.position import Position

__all__ = ["KINDS", "Applied", "finish_install", "load_applied", "place_of", "save_applied"]

KINDS = ("channels", "collections", "windows")


class Applied(NamedTuple):
    """How far a database is."""

    index: int = 0  # type: ignore[assignment]
    logs: dict[int, Position] = {}  # noqa: RUF012
    todo: list[tuple[int, dict[str, Any]]] = []  # noqa: RUF012
    urls: dict[int, str] = {}  # noqa: RUF012
    parts: dict[int, list[bytes]] = {}  # noqa: RUF012

    def document(self) -> dict[str, Any]:
        """As it is saved."""
        return {
            "format": 1,
            "index": self.index,
            "logs": {str(number): list(at) for number, at in self.logs.items()},
            "todo": [list(each) for each in self.todo],
            "urls": {str(node): url for node, url in self.urls.items()},
            "parts": {
                str(number): [b64encode(part).decode() for part in parts]
                for number, parts in self.parts.items()
            },
        }


def place_of(folder: Path) -> Path:
    """Where a node keeps this."""
    return folder / "cluster"


def load_applied(folder: Path) -> Applied:
    """What was saved last; nothing yet for a new node."""
    path = place_of(folder) / "APPLIED"
    document = Manifest(path).load()
    if document is None:
        return Applied()
    try:
        return Applied(
            document["index"],
            {int(number): Position(*at) for number, at in document["logs"].items()},
            [(index, change) for index, change in document["todo"]],
            {int(node): url for node, url in document["urls"].items()},
            {int(n): [b64decode(part) for part in parts] for n, parts in document["parts"].items()},
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Corruption("the note of what was applied lacks a part", file=path) from error


def save_applied(folder: Path, applied: Applied) -> None:
    """Save it, durably."""
    Manifest(place_of(folder) / "APPLIED").save(applied.document())


def finish_install(folder: Path) -> None:
    """Put a state that has arrived whole in the place of the database, if there is one.

    Killed in the middle, it is done again from the start.
    """
    place = place_of(folder)
    marker, incoming = place / "INSTALL", place / "incoming"
    with telling("a state cannot be put in its place", folder):
        if marker.exists():
            for name in (*KINDS, "TOKENS", "MANIFEST"):
                _move(incoming / name, folder / name)
            sync_folder(folder)
            _move(incoming / "APPLIED", place / "APPLIED")
            sync_folder(place)
            marker.unlink()
            sync_folder(place)
        shutil.rmtree(incoming, ignore_errors=True)


def _move(source: Path, target: Path) -> None:
    """Put one thing in the place of another; one that is not there was moved before a kill."""
    if source.exists():
        if target.is_dir():
            shutil.rmtree(target)
        os.replace(source, target)
