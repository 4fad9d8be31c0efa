"""Opening a folder and a channel for the length of one command.

A command never makes a database or a channel by accident: a misspelt folder or name is
`NotFound`, not an empty answer. Only `tideline channel create` and `tideline collection create`
make them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tideline
from tideline.database import check_no_address
from tideline.errors import NotFound, Unavailable

__all__ = ["SETTINGS", "check_exists", "existing", "open_channel", "open_folder"]

# What `tideline --memory-mb --durability` set for this process; see main.py.
SETTINGS: dict[str, Any] = {}

_SHARE = (
    "one process owns a folder; to share it, send operations as JSON lines to one"
    " `tideline session`"
)


_SERVED = (
    "a server has it (`tideline serve`): use curl, a browser or tideline.connect;"
    " `tideline backup {url} TARGET` copies it"
)


@contextmanager
def open_folder(folder: Path, *, create: bool = False) -> Iterator[tideline.Database]:
    """The database in a folder, closed at the end of the command."""
    check_no_address(folder)
    if not create and not (folder / "MANIFEST").is_file():
        raise NotFound(
            "no database in this folder; `tideline channel create` or `tideline collection create` "
            "makes one",
            folder=str(folder),
        )
    try:
        database = tideline.open(str(folder), **SETTINGS)
    except Unavailable as error:
        if "owner" not in error.values:
            raise
        url = error.values.get("url")
        hint = _SHARE if url is None else _SERVED.format(url=url)
        raise Unavailable(f"{error} ({hint})") from None
    with database:
        yield database


@contextmanager
def open_channel(folder: Path, name: str) -> Iterator[tideline.Channel]:
    """A channel that is there, with the space and layout it was made with."""
    with open_folder(folder) as database:
        yield existing(database, name)


def check_exists(database: tideline.Database, name: str) -> None:
    """`NotFound` names the channels and collections that are there."""
    channels, collections = database.channels(), database.collections()
    if name not in channels and name not in collections:
        raise NotFound(
            "no such channel or collection", name=name, channels=channels, collections=collections
        )


def existing(database: tideline.Database, name: str) -> tideline.Channel:
    """A stored channel; `NotFound` names those that are there."""
    names = database.channels()
    if name not in names:
        raise NotFound(
            "no such channel; `tideline channel create` makes one", channel=name, channels=names
        )
    return database.channel(name)
