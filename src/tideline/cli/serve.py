"""`tideline serve`: a database for other programs, over HTTP and WebSocket, with a page.

Twin of tideline.server.serve. Ctrl-C and SIGTERM stop it in good order: running requests are
answered, open connections get what waits for them, then the database is closed.
"""

from __future__ import annotations

import logging
import math
import sys
from pathlib import Path
from typing import Annotated

import typer

from tideline.cli.manage import Folder
from tideline.errors import InvalidRequest

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Hang the command on the command line."""
    app.command()(serve)


def serve(
    folder: Folder,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0 takes a free one.")] = 8080,
    tls_cert: Annotated[Path | None, typer.Option(help="Certificate file (PEM).")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Key file (PEM).")] = None,
    origin: Annotated[
        list[str] | None, typer.Option(help="Pages of this origin may call; may be repeated.")
    ] = None,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="A name the server is called by; may be repeated.")
    ] = None,
    rate: Annotated[float, typer.Option(help="Operations a second of one caller.")] = 20_000,
    connections: Annotated[int, typer.Option(help="Open connections.")] = 2_000,
    subscriptions: Annotated[int, typer.Option(help="Live subscriptions of a user.")] = 10_000,
    conditions: Annotated[
        int, typer.Option(help="Weight of a user's standing conditions; a plain clause is 1.")
    ] = 30_000,
    match_steps: Annotated[
        int, typer.Option(help="Steps of matching in one call, about a nanosecond each.")
    ] = 4_000_000_000,
    body_mb: Annotated[float, typer.Option(help="Largest request.")] = 1,
    batch_mb: Annotated[float, typer.Option(help="Largest batch.")] = 64,
    head_timeout: Annotated[
        float, typer.Option(help="Seconds within which a request's headers must arrive.")
    ] = 10,
    log: Annotated[
        str, typer.Option(metavar="debug|info|warning", help="debug has every request.")
    ] = "info",
    node: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Serve this node of a cluster, such as n1."),
    ] = None,
    peers: Annotated[
        str | None,
        typer.Option(
            metavar="NAME=HOST:PORT,...", help="Where its nodes talk to each other, this one too."
        ),
    ] = None,
    secret_file: Annotated[
        Path | None, typer.Option(help="File with the secret that all nodes share.")
    ] = None,
    cluster: Annotated[str, typer.Option(metavar="NAME", help="The cluster.")] = "tideline",
    url: Annotated[
        str | None, typer.Option(help="Where programs reach this node, if not at --host, --port.")
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT", help="Where it listens for nodes, if not as --peers says."
        ),
    ] = None,
    node_cert: Annotated[
        Path | None, typer.Option(help="Certificate file for what nodes say to each other.")
    ] = None,
    node_key: Annotated[Path | None, typer.Option(help="Its key file.")] = None,
    node_ca: Annotated[
        Path | None, typer.Option(help="The authority that signed those of all nodes.")
    ] = None,
) -> None:
    """Serve a database over HTTP, with a live map.

    Twin of tideline.server.serve. Makes the database if there is none. Off this machine it
    needs tokens: see `tideline token create`. The log is JSON lines on stderr.

    With --node it serves one node of a cluster: several servers, one database. `tideline cluster
    create` makes its folder first.
    """
    from tideline.cli.cluster import node_settings
    from tideline.cli.store import open_folder
    from tideline.server import Settings
    from tideline.server import serve as run
    from tideline.server.logs import lines_to

    levels = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING}
    if log not in levels:
        raise InvalidRequest("--log must be debug, info or warning", log=log)
    for name, given in [
        ("--rate", rate), ("--connections", connections), ("--subscriptions", subscriptions),
        ("--head-timeout", head_timeout), ("--conditions", conditions),
        ("--match-steps", match_steps),
    ]:  # fmt: skip
        if not 0 < given < math.inf:
            raise InvalidRequest(f"{name} must be a positive number", given=given)
    settings = Settings(
        host=host,
        port=port,
        tls_cert=tls_cert,
        tls_key=tls_key,
        origins=tuple(origin or ()),
        hosts=tuple(allow_host or ()),
        rate_per_s=rate,
        connections=connections,
        subscriptions_per_user=subscriptions,
        conditions_per_user=conditions,
        match_steps=match_steps,
        body_bytes=_bytes(body_mb, "--body-mb"),
        batch_bytes=_bytes(batch_mb, "--batch-mb"),
        head_timeout_s=head_timeout,
    )
    if node is not None:
        from tideline.cli.store import SETTINGS
        from tideline.server.nodes import serve_node

        tls = node_cert, node_key, node_ca
        told = node_settings(node, peers, secret_file, cluster, url, listen, tls)
        if SETTINGS.get("durability", "disk") != "disk":
            raise InvalidRequest("a node keeps what it writes on disk", durability="os")
        with lines_to(sys.stderr, levels[log]):
            serve_node(
                folder, told, settings, memory_mb=SETTINGS.get("memory_mb", 1024), started=_say
            )
        return
    if (folder / "cluster" / "log").exists():
        raise InvalidRequest(
            "this folder is that of a node of a cluster: serve it with --node", folder=str(folder)
        )
    with lines_to(sys.stderr, levels[log]), open_folder(folder, create=True) as database:
        run(database, settings, started=_say)


def _bytes(size_mb: float, name: str) -> int:
    if not 0 < size_mb < 1 << 20:
        raise InvalidRequest(f"{name} must be a positive number", given=size_mb)
    return int(size_mb * (1 << 20)) or 1


def _say(url: str) -> None:
    print(f"tideline: serving at {url}", flush=True)
