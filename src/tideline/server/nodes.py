"""Serving a node of a cluster: opened, served, and opened anew when it has to begin again.

A node that led and leads no more, one that was sent a state, and one that failed, are closed and
opened again on the same folder, in this process. Who is connected is told to connect again (1012).
"""

from __future__ import annotations

import dataclasses
import gc
import logging
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tideline.cluster.node import ClusterNode
from tideline.cluster.settings import ClusterSettings
from tideline.errors import Corruption, InvalidRequest
from tideline.server.logs import log
from tideline.server.run import serve
from tideline.server.settings import Settings

__all__ = ["serve_node"]

_AGAIN_S = 1.0


def serve_node(
    folder: Path, cluster: ClusterSettings, settings: Settings, *, memory_mb: int = 1024,
    started: Any = None,
) -> None:  # fmt: skip
    """Serve a node until SIGINT or SIGTERM; `started(url)` is called when it answers first."""
    if not cluster.url:
        if settings.port == 0 or settings.host in ("0.0.0.0", "::"):
            raise InvalidRequest(
                "a node must know its own address: give --port, and --url where programs reach it",
                host=settings.host, port=settings.port,
            )  # fmt: skip
        scheme = "http" if settings.tls_cert is None else "https"
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        cluster = dataclasses.replace(cluster, url=f"{scheme}://{host}:{settings.port}")
    name = urlsplit(cluster.url).hostname
    if name is not None:  # so the others call it
        settings = dataclasses.replace(settings, hosts=(*settings.hosts, name))
    while True:
        begun = time.monotonic()
        with ClusterNode(folder, cluster, memory_mb=memory_mb) as node:
            serve(node.db, settings, started=started, until=node.ended)
            again = node.ended.is_set()
            failure, why = node.machine.failure, node.machine.why_ended
        if isinstance(failure, Corruption):
            raise failure
        if not again:
            return
        started = node = None  # type: ignore[assignment]
        gc.unfreeze()  # what `serve` had set aside for good is let go of with the old database
        gc.collect()
        log("opened anew", level=logging.WARNING, node=cluster.node, why=why)
        time.sleep(max(0.0, _AGAIN_S - (time.monotonic() - begun)))
