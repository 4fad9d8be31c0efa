"""`tideline cluster`: several servers, one database.

tideline cluster create     the disk of one node of a new cluster     cluster.node.create
tideline cluster recover    of a node that lost its disk, or is new   cluster.node.recover
tideline cluster status     who leads, how far each node is           GET /v1/cluster
tideline cluster add        take in a node                            POST /v1/cluster/nodes
tideline cluster remove     let one go                                DELETE /v1/cluster/nodes/NODE

A node runs by `tideline serve FOLDER --node ...` (serve.py).
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from tideline.cli.command import AsJson, Database, add
from tideline.cli.manage import Folder
from tideline.cli.output import line
from tideline.cli.store import is_address, open_database
from tideline.errors import InvalidRequest

__all__ = ["Cluster", "Node", "Peers", "register"]

Node = Annotated[str, typer.Option("--node", metavar="NAME", help="This node, such as n1.")]
Peers = Annotated[
    str,
    typer.Option(
        "--peers", metavar="NAME=HOST:PORT,...",
        help="Where nodes talk to each other, this one among them: n1=10.0.0.1:7400,n2=...",
    ),
]  # fmt: skip
Cluster = Annotated[
    str, typer.Option("--cluster", metavar="NAME", help="The cluster; other ones are refused.")
]
Source = Annotated[
    Path | None,
    typer.Option(
        "--from", metavar="FOLDER",
        help="Begin with a copy of the database in this folder, which nobody has open.",
    ),
]  # fmt: skip
Other = Annotated[str, typer.Argument(metavar="NODE", help="A node, such as n3.")]


def register(app: typer.Typer) -> None:
    """Hang the commands on the command line."""
    cluster = typer.Typer(
        help="Several servers, one database: see docs/guide/three-nodes.md.",
        no_args_is_help=True, rich_markup_mode=None,
    )  # fmt: skip
    cluster.command("create")(create)
    cluster.command("recover")(recover)
    add(cluster, status, "status")
    add(cluster, add_node, "add")
    add(cluster, remove, "remove")
    app.add_typer(cluster, name="cluster")


def _settings(node: str, peers: str, cluster: str) -> Any:
    from tideline.cluster.settings import ClusterSettings, parse_peers

    return ClusterSettings(node, parse_peers(peers), b"", cluster=cluster)


def create(
    folder: Folder, node: Node, peers: Peers, cluster: Cluster = "tideline", source: Source = None
) -> None:
    """Make the disk of one node of a new cluster, in an empty folder.

    Twin of tideline.cluster.create. Once on each node, with the same --peers. Never for a node that
    lost its disk: see `tideline cluster recover`.

    With --from, once: the node begins with a copy of a database, which stays as it is. The other
    nodes are made by `tideline cluster recover`, and get everything when they are added.
    """
    from tideline.cluster.node import create as make
    from tideline.database import check_no_address

    for path in (folder, source):
        if path is not None:
            check_no_address(path)
    settings = _settings(node, peers, cluster)
    members = make(folder, settings, source)
    line({"node": node, "folder": str(folder), "cluster": cluster, "members": members})
    others = [name for name in settings.peers if name not in members]
    if others:
        typer.echo(
            f"tideline: {node} is alone at first. Make {', '.join(others)} by `tideline cluster "
            "recover`, serve all, then `tideline cluster add` each", err=True,
        )  # fmt: skip
    elif len(settings.peers) == 2:
        typer.echo(
            "tideline: two nodes are two copies and no failover: both are needed to write", err=True
        )


def recover(folder: Folder, node: Node, peers: Peers, cluster: Cluster = "tideline") -> None:
    """Make the disk of a node that lost its own, or is new, in an empty folder.

    Twin of tideline.cluster.recover. Then serve it: a node that lost its disk is taken in by itself
    and gets everything from the others; a new one when `tideline cluster add` says so.
    """
    from tideline.cluster.node import recover as make

    make(folder, _settings(node, peers, cluster))
    line({"node": node, "folder": str(folder), "cluster": cluster})


def status(database: Database, as_json: AsJson = False) -> None:
    """Who leads, and how far each node is.

    Twin of GET /v1/cluster. Any node may be asked. `behind` counts entries of the log; only the
    leader knows it of others.
    """
    with _remote(database) as remote:
        found = remote.cluster()
    if as_json:
        line(found)
        return
    leader = found["leader"] or "none"
    stale = "unknown" if found["stale_s"] is None else f"{found['stale_s']:.3f} s"
    typer.echo(f"cluster {found['cluster']}, asked {found['node']} ({found['role']})")
    typer.echo(f"leader {leader}, decided {found['decided']}, stale {stale}")
    for one in found["nodes"]:
        role = "leader" if one["node"] == found["leader"] else "follower"
        role = role if one["votes"] else "joining"
        behind = "" if one["behind"] is None else f"  {one['behind']} behind"
        typer.echo(f"  {one['node']:<8} {role:<9} {one['url'] or 'not heard of yet'}{behind}")
    for name in found["asking"]:
        if name not in [one["node"] for one in found["nodes"]]:
            typer.echo(f"  {name:<8} asks to be taken in: tideline cluster add {database} {name}")
    if found["failure"]:
        typer.echo(f"this node has stopped: {found['failure']}")


def add_node(database: Database, node: Other) -> None:
    """Take in a new node, which was made by `tideline cluster recover` and is served.

    Twin of POST /v1/cluster/nodes. It is sent everything, and votes when it has it.
    """
    with _remote(database) as remote:
        remote.cluster_add(node)
    line({"added": node})


def remove(database: Database, node: Other) -> None:
    """Let a node go: it votes no more, and may be switched off.

    Twin of DELETE /v1/cluster/nodes/NODE.
    """
    with _remote(database) as remote:
        remote.cluster_remove(node)
    line({"removed": node})


def _remote(database: str) -> Any:
    if not is_address(database):
        raise InvalidRequest(
            "a cluster is asked at the address of one of its nodes: http://HOST:PORT",
            database=database,
        )
    return open_database(database)


def node_settings(
    node: str, peers: str | None, secret_file: Path | None, cluster: str, url: str | None,
    listen: str | None, tls: tuple[Path | None, Path | None, Path | None],
) -> Any:  # fmt: skip
    """What `tideline serve` was told of its cluster."""
    from tideline.cluster.settings import ClusterSettings, parse_peers, read_secret

    if peers is None or secret_file is None:
        raise InvalidRequest("a node needs --peers and --secret-file, too", node=node)
    at = None
    if listen is not None:
        [at] = parse_peers(f"{node}={listen}").values()
    cert, key, ca = tls
    return ClusterSettings(
        node, parse_peers(peers), read_secret(secret_file), url=(url or "").rstrip("/"), listen=at,
        cluster=cluster, tls_cert=cert, tls_key=key, tls_ca=ca,
    )  # fmt: skip
