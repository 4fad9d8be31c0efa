"""Opening a database, a channel or a collection for the length of one command.

A database is a folder, or the address of a server: the same commands work on both. `tideline
shell` holds one open for all its commands (`hold`).

A command never makes a database or a channel by accident: a misspelt folder or name is
`NotFound`, not an empty answer. Only `tideline channel create` and `tideline collection create`
make them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tideline
from tideline.errors import InvalidRequest, NotFound, Unauthorized, Unavailable
from tideline.near import did_you_mean

if TYPE_CHECKING:
    from tideline.client.remote import Remote

__all__ = [
    "ACCESS", "SETTINGS", "check_exists", "existing", "held", "hold", "is_address", "open_channel",
    "open_database", "open_folder", "usual_database",
]  # fmt: skip

# What `tideline --memory-mb --durability` set for this process; see main.py.
SETTINGS: dict[str, Any] = {}
# What --token and --ca said to a command on data; see command.py.
ACCESS: dict[str, str | None] = {}
_HELD: list[tuple[str, Any]] = []

_SHARE = (
    "one process owns a folder; to share it, send operations as JSON lines to one"
    " `tideline session`, or serve it: `tideline serve`"
)
_SERVED = "a server has it (`tideline serve`): give its address, {url}, instead of the folder"


def is_address(database: str) -> bool:
    """Whether a database is on a server.

    >>> is_address("https://example.org"), is_address("data")
    (True, False)
    """
    return database.lower().startswith(("http://", "https://"))


def usual_database() -> str | None:
    """The database of a command that names none; None when there is no such."""
    return _HELD[-1][0] if _HELD else os.environ.get("TIDELINE_URL") or None


def held() -> Any:
    """The database that is open for many commands, if there is one."""
    return _HELD[-1][1] if _HELD else None


@contextmanager
def hold(database: str) -> Iterator[Any]:
    """Open a database for all commands until the end."""
    with open_database(database) as opened:
        _HELD.append((database, opened))
        try:
            yield opened
        finally:
            _HELD.pop()


@contextmanager
def open_database(
    database: str, *, create: bool = False
) -> Iterator[tideline.Database | Remote | Any]:
    """A database, in a folder or on a server, closed at the end of the command."""
    if _HELD:
        yield held()
    elif is_address(database):
        if SETTINGS:
            raise InvalidRequest(
                "--memory-mb and --durability are for a folder: a server has its own", url=database
            )
        with tideline.connect(database, **ACCESS) as remote:  # type: ignore[arg-type]
            yield remote
    else:
        with open_folder(Path(database), create=create) as found:
            yield found


@contextmanager
def open_folder(folder: Path, *, create: bool = False) -> Iterator[tideline.Database]:
    """The database in a folder, closed at the end of the command."""
    from tideline.database import check_no_address  # loads what commands on a server do without

    check_no_address(folder)
    if not create and not (folder / "MANIFEST").is_file():
        raise NotFound(
            "no database in this folder; `tideline channel create`, `tideline collection create` "
            "or `tideline window create` makes one",
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
def open_channel(database: str | Path, name: str) -> Iterator[Any]:
    """A channel that is there, with the space and layout it was made with."""
    with open_database(str(database)) as opened:
        yield existing(opened, name)


def check_exists(database: Any, name: str) -> None:
    """`NotFound` names the channels and collections that are there."""
    channels, collections = database.channels(), database.collections()
    if name not in channels and name not in collections:
        hint = did_you_mean(name, [*channels, *collections])
        with suppress(Unauthorized):
            if name in database.windows():
                hint = f": {name} is a stream window, see `tideline window --help`"
        raise NotFound(
            f"no such channel or collection{hint}", name=name, channels=channels,
            collections=collections,
        )  # fmt: skip


def existing(database: Any, name: str) -> Any:
    """A stored channel; `NotFound` names those that are there."""
    names = database.channels()
    if name not in names:
        hint = did_you_mean(name, names)
        if not hint and name in database.collections():
            hint = f": {name} is a collection, as in `collection find {name}`"
        raise NotFound(
            f"no such channel; `tideline channel create` makes one{hint}",
            channel=name, channels=names,
        )  # fmt: skip
    return database.channel(name)
