"""`tideline backup` and `tideline restore`: copies of a whole database.

A running server owns its folder, so its backup comes over HTTP, as a tar file that is unpacked
here. What arrives is not trusted: only plain files under names a database has are written.
"""

from __future__ import annotations

import http.client
import os
import re
import shutil
import tarfile
import urllib.error
import urllib.request
from pathlib import Path
from typing import Annotated, Any

import typer

from tideline.cli.output import line
from tideline.cli.store import open_folder
from tideline.errors import InvalidRequest, NotFound, Unavailable

__all__ = ["register"]

_NAME = re.compile(
    r"(MANIFEST|TOKENS|(?:channels|collections)/\d{4,}/(MANIFEST|c-\d+\.arrow|log-\d+\.log))"
)
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
        with open_folder(Path(source)) as database:
            database.backup(target)
    line({"backup": str(target)})


def restore(
    source: Annotated[Path, typer.Argument(metavar="BACKUP", help="The folder of a backup.")],
    target: Annotated[Path, typer.Argument(metavar="FOLDER", help="A new folder.")],
) -> None:
    """Make a database from a backup, and verify it.

    Twin of copying the folder and Database.check.
    """
    if not (source / "MANIFEST").is_file():
        raise NotFound("no backup in this folder", folder=str(source))
    _new(target)
    try:
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("LOCK"), dirs_exist_ok=True)
        if (target / "TOKENS").exists():
            (target / "TOKENS").chmod(0o600)
        with open_folder(target) as database:
            report = database.check()
    except BaseException:
        shutil.rmtree(target, ignore_errors=True)
        raise
    line({
        "restored": str(target), "channels": report.channels,
        "collections": report.collections, "bytes": report.bytes_checked,
    })  # fmt: skip


def _new(folder: Path) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InvalidRequest("a new folder is needed", folder=str(folder))


def _fetch(address: str, target: Path, token: str | None, ca: Path | None) -> None:
    """Unpack a server's backup; all of it or nothing."""
    _new(target)
    partial = target.with_name(target.name + ".partial")
    if partial.exists():
        raise InvalidRequest("the rest of a backup that failed is in the way", folder=str(partial))
    with _ask(address, token, ca) as answer:
        _take(answer, target, partial)


def _ask(address: str, token: str | None, ca: Path | None) -> Any:
    """The answer to a request for a backup, as far as its head."""
    from tideline.client.http import trusting

    request = urllib.request.Request(address.rstrip("/") + "/v1/backup")
    if token is not None:
        request.add_header("Authorization", f"Bearer {token}")
    tls = None if ca is None else trusting(str(ca))
    try:
        return urllib.request.urlopen(request, timeout=60, context=tls)
    except urllib.error.HTTPError as error:
        text = error.read(10_000).decode(errors="replace")
        raise InvalidRequest(f"the server refused: {error.code} {text}") from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = str(getattr(error, "reason", error)) or type(error).__name__
        if address.startswith("http:") and isinstance(error, http.client.BadStatusLine):
            reason = f"{reason}: the server may want https"
        raise Unavailable("the server cannot be reached", url=address, error=reason) from None


def _take(answer: Any, target: Path, partial: Path) -> None:
    try:
        arriving = _Arriving(answer)
        _unpack(arriving, partial)
        arriving.check_end()
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.exists():
            target.rmdir()
        os.replace(partial, target)
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
            if not member.isfile() or not _NAME.fullmatch(member.name):
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
