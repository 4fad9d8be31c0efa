"""A database from one node to another: what a node needs that lacks too much of the replicated log.

    donor     backup beside the data -> a tar file, over HTTP            `packed`
    receiver  tar file -> data/cluster/incoming -> INSTALL               `receive`
    beginning a single server's database -> incoming -> INSTALL          `adopt`

What is sent are the files of a backup: sealed components, as they are, and the logs. `APPLIED` goes
with them: the index up to which everything is in the copy. What is in it beyond that comes again
by the replicated log, and is passed over by its position.
"""

from __future__ import annotations

import http.client
import shutil
import ssl
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tideline.cluster.applied import KINDS, Applied, place_of
from tideline.database import Database
from tideline.errors import InvalidRequest, NotFound, TidelineError, Unavailable
from tideline.lsm import inventory
from tideline.lsm.files import sync_folder, telling
from tideline.lsm.folder import has_database
from tideline.lsm.manifest import Manifest

__all__ = ["adopt", "packed", "receive", "speak"]

_PIECE = 1 << 20


def packed(machine: Any, least: int, wait_s: float) -> Path:
    """A copy of the database in a folder of its own, which the caller removes.

    It has everything up to the index `least`, and nothing that could still be lost.
    """
    limit = time.monotonic() + wait_s
    while machine.settled() < least:
        if machine.why_ended or time.monotonic() >= limit:
            raise Unavailable("this node has not come so far", asked=least, here=machine.settled())
        time.sleep(0.01)
    db, place = machine.db, place_of(machine.db.path)
    with telling("a copy cannot be made", place):
        folder = Path(tempfile.mkdtemp(prefix="outgoing-", dir=place))
    try:
        index = machine.settled()
        db.backup(folder / "copy")
        machine.sync_all()
        if machine.why_ended:
            raise Unavailable("this node is being opened anew")
        Manifest(folder / "copy" / "APPLIED").save(
            Applied(index, urls=dict(machine.urls)).document()
        )
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return folder


def adopt(folder: Path, source: Path) -> int:
    """Copy a single server's database into the folder of a node; its index in the log of a cluster.

    The index is above the numbers of all datasets, so that later ones get others. Where both
    folders are on one disk, most files are only linked.
    """
    if (place_of(source) / "log").exists():
        raise InvalidRequest(
            "this is the folder of a node of a cluster already: serve it, and add nodes to it",
            folder=str(source),
        )
    if not has_database(source):
        raise NotFound("no database in this folder: check the path", folder=str(source))
    if inventory.load_list(source) is not None:
        raise InvalidRequest(
            "this is a backup, and opening it changes it: `tideline restore` it first, and give "
            "the folder that this makes", folder=str(source),
        )  # fmt: skip
    incoming = place_of(folder) / "incoming"
    with telling("a copy cannot be made", incoming):  # of one that was killed
        (place_of(folder) / "INSTALL").unlink(missing_ok=True)
        shutil.rmtree(incoming, ignore_errors=True)
    with Database(source) as db:
        loose = [name for name in db.windows() if not db.window(name).settings["durable"]]
        if loose:
            raise InvalidRequest(
                "in a cluster windows are durable, and these are not: drop them first "
                "(`tideline window drop`)", windows=", ".join(loose), folder=str(source),
            )  # fmt: skip
        db.backup(incoming)
    manifest = Manifest(incoming / "MANIFEST").load()
    assert manifest is not None
    index = int(manifest["next"])
    Manifest(incoming / "APPLIED").save(Applied(index).document())
    _accept(folder)
    return index


def receive(folder: Path, urls: dict[int, str], least: int, password: str, ca: Path | None) -> None:
    """Bring a copy that has everything up to `least` into `incoming`, whole."""
    said = "no other node has said where it is served"
    for url in urls.values():
        try:
            _receive(folder, url, least, password, ca)
            return
        except (OSError, http.client.HTTPException, TidelineError, tarfile.TarError) as error:
            said = f"{url}: {error}"
    raise Unavailable("no state could be had from another node", reason=said)


def _receive(folder: Path, url: str, least: int, password: str, ca: Path | None) -> None:
    place = place_of(folder)
    incoming = place / "incoming"
    shutil.rmtree(incoming, ignore_errors=True)
    incoming.mkdir()
    connection, path = _connection(url, ca, 300)
    try:
        connection.request(
            "GET", f"{path}/v1/cluster/state?least={least}",
            headers={"Authorization": f"Bearer {password}"},
        )  # fmt: skip
        answer = connection.getresponse()
        if answer.status != 200:
            raise Unavailable("the state was refused", status=answer.status, url=url)
        with tarfile.open(fileobj=answer, mode="r|") as tar:
            for member in tar:
                if not member.isfile() or not _is_ours(member.name):
                    raise Unavailable("this is not the state of a node", name=member.name, url=url)
                target = incoming / member.name
                target.parent.mkdir(parents=True, exist_ok=True)
                source = tar.extractfile(member)
                assert source is not None
                with target.open("wb") as sink:
                    shutil.copyfileobj(source, sink, _PIECE)
    finally:
        connection.close()
    if not (incoming / "APPLIED").exists():
        raise Unavailable("the state broke off", url=url)
    _accept(folder)


def _accept(folder: Path) -> None:
    """A copy is in `incoming`: verify it, and have it take the place of the database."""
    place = place_of(folder)
    incoming = place / "incoming"
    listed = inventory.load_list(incoming)
    if listed is None:
        raise Unavailable("the state broke off", folder=str(incoming))
    inventory.verify_list(incoming, listed)
    (incoming / inventory.LIST).unlink()
    for kind in KINDS:
        (incoming / kind).mkdir(exist_ok=True)
    for path_ in (incoming, *(each for each in incoming.rglob("*") if each.is_dir())):
        sync_folder(path_)
    (place / "INSTALL").touch()
    sync_folder(place)


def _is_ours(name: str) -> bool:
    return name in ("APPLIED", inventory.LIST) or inventory.is_name(name)


def speak(
    url: str, method: str, target: str, password: str, ca: Path | None, body: bytes | None = None
) -> int:
    """Say something short to another node's server; the status of its answer."""
    connection, path = _connection(url, ca, 5)
    try:
        headers = {"Authorization": f"Bearer {password}", "Content-Type": "application/json"}
        connection.request(method, path + target, body=body, headers=headers)
        return connection.getresponse().status
    finally:
        connection.close()


def _connection(url: str, ca: Path | None, wait_s: float) -> tuple[http.client.HTTPConnection, str]:
    parts = urlsplit(url)
    host, path = parts.hostname or "", parts.path.rstrip("/")
    if parts.scheme == "https":
        context = ssl.create_default_context(cafile=None if ca is None else str(ca))
        return http.client.HTTPSConnection(host, parts.port, timeout=wait_s, context=context), path
    return http.client.HTTPConnection(host, parts.port, timeout=wait_s), path
