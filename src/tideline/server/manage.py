"""The routes of an operator: is it well, what does it do, a copy of everything.

    GET /healthz       nobody needs a token; says nothing but whether it works
    GET /metrics       Prometheus text
    GET /v1/backup     a tar file of the database as it is now, while it is used; the scope admin

A backup is made beside the channels, mostly of links, and removed when it has been sent; if the
server is killed meanwhile, the next start removes it.
"""

from __future__ import annotations

import shutil
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from tideline.errors import InvalidRequest
from tideline.lsm.files import telling
from tideline.server.ops import Call, Op, Reply

__all__ = ["OPS", "TAR", "Tar"]

TAR = "application/x-tar"
TEXT = "text/plain; version=0.0.4; charset=utf-8"
_PIECE = 1 << 20


async def health(call: Call) -> Reply:
    hub = call.hub
    logs = [channel.core.engine.store.log for channel in list(hub.db._open.values())]
    well = not (hub.stopping or hub.db._closed)
    well = well and all(getattr(log, "_refusal", None) is None for log in logs)
    said: dict[str, Any] = {"ok": well}
    cluster = call.hub.cluster
    if cluster is not None:
        said["role"] = "leader" if cluster.leads else "follower"
        said["leader"] = cluster.leader_url()
        said["stale_s"] = cluster.stale_s()
        failed = cluster.why_ended or cluster.node.status()["failure"]
        well = said["ok"] = well and not failed
    return Reply(said, status=200 if well else 503)


async def metrics(call: Call) -> Reply:
    call.caller.need_everything()
    text = await call.hub.in_thread(call.hub.metrics.render, call.hub)
    return Reply(data=text.encode(), media=TEXT)


async def backup(call: Call) -> Any:
    db = call.hub.db
    if db._temporary is not None:
        raise InvalidRequest("a database in memory cannot be backed up")

    def make() -> Tar:
        with telling("backup failed", db.path):
            (db.path / "channels").mkdir(exist_ok=True)
            folder = Path(tempfile.mkdtemp(prefix="backup-", dir=db.path / "channels"))
        try:
            db.backup(folder / "copy")
            return Tar(call.hub, folder)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise

    return await call.hub.in_thread(make)


class Tar:
    """A folder as a tar file, sent as the socket takes it; the folder is removed then."""

    def __init__(self, hub: Any, folder: Path) -> None:
        self._hub = hub
        self._folder = folder
        root = folder / "copy"
        self._files = [
            (path, path.relative_to(root).as_posix(), path.stat().st_size)
            # The manifest last: a copy that broke off has none.
            for path in sorted(root.rglob("*"), key=lambda path: (path == root / "MANIFEST", path))
            if path.is_file()
        ]

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        size = sum(512 + (length + 511) // 512 * 512 for _, _, length in self._files) + 1024
        headers = [
            (b"content-type", TAR.encode()),
            (b"content-length", b"%d" % size),
            (b"cache-control", b"no-store"),
        ]
        try:
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            for path, name, length in self._files:
                info = tarfile.TarInfo(name)
                info.size = length
                await _send(send, info.tobuf(tarfile.USTAR_FORMAT))
                with path.open("rb") as file:
                    while piece := await self._hub.in_thread(file.read, _PIECE):
                        await _send(send, piece)
                await _send(send, bytes(-length % 512))
        finally:
            await self._hub.in_thread(shutil.rmtree, self._folder, True)
        # Last, so that who has the whole file knows that nothing of it is left here.
        await send({"type": "http.response.body", "body": bytes(1024)})


async def _send(send: Any, data: bytes) -> None:
    if data:
        await send({"type": "http.response.body", "body": data, "more_body": True})


OPS = [
    Op("GET", "/healthz", "Whether the server works.", health, gives=dict[str, Any],
       refuses=(503,)),
    Op("GET", "/metrics", "What the server does, for Prometheus.", metrics, scope="read",
       gives="text/plain"),
    Op("GET", "/v1/backup", "A copy of the whole database, as a tar file.", backup, scope="admin",
       gives=TAR),
]  # fmt: skip
