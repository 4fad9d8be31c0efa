"""`tideline backup` and `tideline restore`: copies of a whole database.

A running server owns its folder, so its backup comes over HTTP, as a tar file that is unpacked
here. What arrives is not trusted: only plain files under names a database has are written.

A backup lists its files (lsm/inventory.py). Restoring compares them while it copies, so a backup is
whole or refused; a folder that a restore has not filled yet is not opened, so a restore is whole or
not there.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import shutil
import tarfile
import urllib.error
import urllib.request
from pathlib import Path
from typing import Annotated, Any

import typer

from tideline.cli.output import line
from tideline.cli.store import SETTINGS, open_folder
from tideline.errors import InvalidRequest, NotFound, TidelineError, Unavailable
from tideline.lsm import inventory
from tideline.lsm.files import sync_folder, telling
from tideline.lsm.folder import has_database, is_tolerated, make_folder
from tideline.lsm.owner import Owner

__all__ = ["register"]

Target = Annotated[Path, typer.Argument(metavar="TARGET", help="A new folder for the copy.")]


def register(app: typer.Typer) -> None:
    """Hang the commands on the command line."""
    app.command()(backup)
    app.command()(restore)


def backup(
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="A folder, or the address of a server.")
    ],
    target: Target,
    token: Annotated[
        str | None,
        typer.Option(envvar="TIDELINE_TOKEN", help="For a server: a token with scope admin."),
    ] = None,
    ca: Annotated[
        Path | None,
        typer.Option(help="For a server: a file with the certificates to trust (PEM)."),
    ] = None,
) -> None:
    """Copy a database, also while a server uses it.

    Twin of Database.backup.
    """
    if source.startswith(("http://", "https://")):
        _fetch(source, target, token, ca)
    else:
        if Path(source).resolve() in target.resolve().parents:
            raise InvalidRequest("give a folder outside the database", folder=str(target))
        with open_folder(Path(source)) as database:
            database.backup(target)
    line({"backup": str(target)})


def restore(
    source: Annotated[Path, typer.Argument(metavar="BACKUP", help="The folder of a backup.")],
    target: Annotated[Path, typer.Argument(metavar="FOLDER", help="A new folder.")],
    unverified: Annotated[
        bool,
        typer.Option(
            "--unverified",
            help="Take a backup without a list of its files, as the first versions made them:"
            " what was cut off its end is not noticed.",
        ),
    ] = False,
) -> None:
    """Make a database from a backup that is whole, and verify it.

    Twin of copying the folder, opening the copy and Database.check.

    The new folder may be there if it is empty. Exit codes: 2 a file instead of a folder, a folder
    that is not empty, a backup without a list; 3 no such backup; 5 in use, disk full; 6 damaged.
    """
    _check_paths(source, target)
    files = inventory.load_list(source)
    if files is None:
        files = _files(source, unverified)
    if source.resolve() in target.resolve().parents:
        raise InvalidRequest("restore into a folder outside the backup", folder=str(target))
    made = not target.exists()
    make_folder(target, "folder cannot be used: give a new or an empty one")
    owner = Owner(target)
    try:
        if (target / inventory.RESTORING).exists():
            inventory.clear(target)
            typer.echo(f"removed what an unfinished restore had left in {target}", err=True)
        inventory.begin_restore(target, source)
        inventory.copy_listed(source, target, files)
        owner.leave()
        from tideline.database import Database  # loads what only opening a folder needs

        with Database(target, restoring=True, **SETTINGS) as database:
            report = database.check()
        inventory.end_restore(target)
    except BaseException:
        owner.leave()
        if made:
            shutil.rmtree(target, ignore_errors=True)
        else:
            with contextlib.suppress(TidelineError):
                inventory.clear(target)
                (target / "LOCK").unlink(missing_ok=True)
        raise
    line({
        "restored": str(target), "channels": report.channels,
        "collections": report.collections, "bytes": report.bytes_checked,
    })  # fmt: skip


def _files(source: Path, unverified: bool) -> dict[str, inventory.Listed]:
    """The files of a backup that does not list them."""
    if not (source / "MANIFEST").is_file():
        raise NotFound(
            "no backup in this folder, or one that was not finished: give the folder that"
            " `tideline backup` made", folder=str(source),
        )  # fmt: skip
    if not unverified:
        raise InvalidRequest(
            "the backup has no list of its files: it is not whole, it has been opened, or an"
            " older version made it; --unverified restores what is there",
            folder=str(source),
        )
    if (source / "LOCK").exists():
        Owner(source).leave()  # a database that is open changes while it is copied
    names = [path.relative_to(source).as_posix() for path in source.rglob("*") if path.is_file()]
    names.sort(key=lambda name: (name == "MANIFEST", name))
    return {name: inventory.list_of(source / name) for name in names if inventory.is_name(name)}


def _check_paths(source: Path, target: Path) -> None:
    """Refuse what cannot be restored from, or into, before anything is touched."""
    with telling("backup cannot be read", source):
        if not source.exists():
            raise NotFound("no such backup: there is no such folder", folder=str(source))
        if not source.is_dir():
            raise InvalidRequest(
                "a backup is a folder, and this is a file: give the folder that `tideline backup`"
                " made, unpacked if it was packed", path=str(source),
            )  # fmt: skip
    with telling("folder cannot be read", target):
        left = (target / inventory.RESTORING).exists()
    if not left:  # what a killed restore left is removed
        _check_new(target, hidden=True)


def _check_new(folder: Path, *, hidden: bool = False) -> None:
    """Refuse a target that is there and not an empty folder; `hidden` files may stay in it."""
    with telling("folder cannot be read", folder):
        if not folder.exists():
            return
        if not folder.is_dir():
            raise InvalidRequest(
                "a folder is needed, and this is a file: give a new folder", path=str(folder)
            )
        names = {path.name for path in folder.iterdir()}
    if hidden:
        names = {name for name in names if not is_tolerated(name) and name != "LOCK"}
    if names:
        what = "holds a database" if has_database(folder) else "is not empty"
        raise InvalidRequest(
            f"the folder {what}: give a new or an empty one; nothing in it was changed",
            folder=str(folder),
        )


def _fetch(address: str, target: Path, token: str | None, ca: Path | None) -> None:
    """Unpack a server's backup; all of it or nothing."""
    _check_new(target)
    partial = target.with_name(target.name + ".partial")
    if partial.exists():
        raise InvalidRequest(
            "what a backup that was killed has left is in the way: remove it", folder=str(partial)
        )
    with _ask(address, token, ca) as answer:
        _take(answer, target, partial)


def _ask(address: str, token: str | None, ca: Path | None) -> Any:
    """The answer to a request for a backup, as far as its head."""
    from tideline.client.http import trusting
    from tideline.client.wire import raise_error

    request = urllib.request.Request(address.rstrip("/") + "/v1/backup")
    if token is not None:
        request.add_header("Authorization", f"Bearer {token}")
    tls = None if ca is None else trusting(str(ca))
    try:
        return urllib.request.urlopen(request, timeout=60, context=tls)
    except urllib.error.HTTPError as error:
        raise_error(error.code, error.read(10_000))
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = str(getattr(error, "reason", error)) or type(error).__name__
        if address.startswith("http:") and isinstance(error, http.client.BadStatusLine):
            reason = f"{reason}: the server may want https"
        raise Unavailable("the server cannot be reached", url=address, error=reason) from None


def _take(answer: Any, target: Path, partial: Path) -> None:
    try:
        arriving = _Arriving(answer)
        with telling("backup failed", partial):
            _unpack(arriving, partial)
            arriving.check_end()
            files = inventory.load_list(partial)
            if files is None:
                raise Unavailable(
                    "the server sends no list of its files: it is of an older version"
                )
            inventory.verify_list(partial, files)
            for folder in {path.parent for path in partial.rglob("*")}:
                sync_folder(folder)
            target.parent.mkdir(parents=True, exist_ok=True)
            if target.exists():
                target.rmdir()
            os.replace(partial, target)
            sync_folder(target.parent)
    except tarfile.TarError as error:
        raise Unavailable(f"the backup did not arrive whole: {error}") from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)


class _Arriving:
    """The bytes of an answer; what is wrong with the connection is told from a full disk."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer
        length = answer.headers.get("Content-Length", "")
        self._left = int(length) if length.isascii() and length.isdigit() else None

    def read(self, size: int = -1) -> bytes:
        try:
            data: bytes = self._answer.read(size)
        except (OSError, http.client.HTTPException) as error:
            reason = str(error) or type(error).__name__
            raise Unavailable(f"the backup did not arrive whole: {reason}") from None
        if self._left is not None:
            self._left -= len(data)
        return data

    def check_end(self) -> None:
        """Refuse what is shorter than was announced: it may lack whole files."""
        if self._left:
            raise Unavailable("the backup did not arrive whole", missing_bytes=self._left)


def _private(path: str, flags: int) -> int:
    """Opens a file for its owner alone."""
    return os.open(path, flags, 0o600)


def _unpack(answer: Any, folder: Path) -> None:
    whole = False
    with tarfile.open(fileobj=answer, mode="r|") as archive:
        for member in archive:
            known = member.name == inventory.LIST or inventory.is_name(member.name)
            if not member.isfile() or not known:
                raise Unavailable("the backup holds what is not of a database", name=member.name)
            source = archive.extractfile(member)
            assert source is not None
            path = folder / member.name
            path.parent.mkdir(parents=True, exist_ok=True)
            with open(path, "xb", opener=_private if path.name == "TOKENS" else None) as sink:
                shutil.copyfileobj(source, sink, 1 << 20)
                if sink.tell() != member.size:
                    raise Unavailable("the backup did not arrive whole", name=member.name)
                os.fsync(sink.fileno())
            whole = whole or member.name == "MANIFEST"
    # The end is marked by two blocks of zeros, of which the second may not have been read yet.
    if not whole or answer.read().strip(b"\0"):
        raise Unavailable("the backup did not arrive whole")
