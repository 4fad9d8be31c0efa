"""The block volume: `tideline volume ...`.

    create    Volumes.create      a folder that is one replica
    serve     Serving             that folder, for clients and over NBD
    attach    Attached            one volume of a group, over NBD, on the machine that mounts it
    list, add, snapshot, clone, resize, delete, vacuum, scrub, status

WHERE is a folder that nobody serves, or the addresses of nodes, HOST:PORT,HOST:PORT,...; commands
find the leader by themselves.
"""

from __future__ import annotations

import logging
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from tideline.cli.command import AsJson
from tideline.cli.output import line, show
from tideline.errors import InvalidRequest, Unavailable

__all__ = ["register"]

Where = Annotated[
    str,
    typer.Argument(metavar="WHERE", help="A folder, or nodes: HOST:PORT,... or unix:PATH."),
]
Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder of this replica.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="A volume or a snapshot.")]
Size = Annotated[str, typer.Option(metavar="SIZE", help="As 512m, 10g, 1t, or bytes.")]
Secret = Annotated[
    Path | None,
    typer.Option("--secret-file", metavar="FILE", help="The secret that all nodes share."),
]
Cert = Annotated[Path | None, typer.Option("--tls-cert", help="Certificate of this side (PEM).")]
Key = Annotated[Path | None, typer.Option("--tls-key", help="Its key (PEM).")]
Authority = Annotated[Path | None, typer.Option("--tls-ca", help="Who signed both sides (PEM).")]
_UNITS = {"k": 10, "m": 20, "g": 30, "t": 40}


def register(app: typer.Typer) -> None:
    """Hang the commands of this file on the command line."""
    group = typer.Typer(
        help="Block volumes: disks that survive machines.", no_args_is_help=True,
        rich_markup_mode=None,
    )  # fmt: skip
    for name, command in (
        ("create", create), ("serve", serve), ("attach", attach), ("list", list_), ("add", add),
        ("snapshot", snapshot), ("clone", clone), ("resize", resize), ("delete", delete),
        ("vacuum", vacuum), ("scrub", scrub), ("status", status),
        ("add-node", add_node), ("remove-node", remove_node),
    ):  # fmt: skip
        group.command(name)(command)
    app.add_typer(group, name="volume")


def parse_size(text: str, name: str) -> int:
    """Bytes.

    >>> parse_size("4k", "--block-size"), parse_size("10g", "--size"), parse_size("512", "--size")
    (4096, 10737418240, 512)
    """
    number, unit = (text[:-1], text[-1:].lower()) if text[-1:].lower() in _UNITS else (text, "")
    if not (number.isascii() and number.isdigit()) or len(number) > 18:
        raise InvalidRequest(f"{name} is a number of bytes, or one with k, m, g or t", given=text)
    return int(number) << _UNITS.get(unit, 0)


def parse_nodes(text: str | None) -> dict[int, str]:
    """Addresses by number.

    >>> parse_nodes("1=a:7000,2=b:7000")
    {1: 'a:7000', 2: 'b:7000'}
    """
    found: dict[int, str] = {}
    for each in text.split(",") if text else []:
        number, equals, address = each.partition("=")
        if not equals or not (number.isascii() and number.isdigit()) or not int(number):
            raise InvalidRequest("--nodes is NUMBER=HOST:PORT,..., numbers from 1 on", given=each)
        if int(number) in found:
            raise InvalidRequest("a node is named twice", given=text, node=int(number))
        found[int(number)] = address
    return found


def _secret(path: Path | None) -> bytes:
    if path is None:
        return b""
    data = path.read_bytes().strip()
    if len(data) < 16:
        raise InvalidRequest("a secret has at least 16 bytes", file=str(path), size=len(data))
    return data


def _tls(cert: Path | None, key: Path | None, ca: Path | None) -> Any:
    if cert is None and key is None and ca is None:
        return None
    if cert is None or key is None or ca is None:
        raise InvalidRequest("--tls-cert, --tls-key and --tls-ca are given together")
    from tideline.replica import TLS

    return TLS(cert, key, ca)


def create(
    folder: Folder,
    size: Size,
    block_size: Annotated[str, typer.Option(metavar="SIZE", help="A power of two.")] = "4k",
    node: Annotated[int | None, typer.Option(metavar="N", help="Which one this is.")] = None,
    nodes: Annotated[
        str | None,
        typer.Option(
            metavar="N=HOST:PORT,...",
            help="All nodes, the same on each. PORT is for clients, PORT + 1 for the nodes.",
        ),
    ] = None,
    recover: Annotated[
        bool,
        typer.Option(help="This node lost its disk, or is new: the others give it what they have."),
    ] = False,
) -> None:
    """Make the folder of a replica, with a volume "main".

    Twin of tideline.volume.Volumes.create. Without --nodes the volume is on this machine alone.
    With them, the same command is given on each node, each with its own --node. Three nodes go on
    without one of them, five without two; two nodes are two copies and no failover.
    """
    from tideline.volume import Volumes

    size_bytes, block_bytes = parse_size(size, "--size"), parse_size(block_size, "--block-size")
    Volumes.create(
        folder, size_bytes, block_bytes=block_bytes, node=node, nodes=parse_nodes(nodes),
        recover=recover,
    )  # fmt: skip
    line({"folder": str(folder), "node": node or 1, "size_bytes": size_bytes,
          "block_bytes": block_bytes})  # fmt: skip


def serve(
    folder: Folder,
    listen: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="For clients, if not the address in --nodes: HOST:PORT, unix:PATH. Without nodes"
            " it is unix:FOLDER/service.sock.",
        ),
    ] = None,
    nbd: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ADDRESS", help="Export over NBD: unix:PATH or HOST:PORT; repeatable."
        ),
    ] = None,
    nodes: Annotated[
        str | None,
        typer.Option(metavar="N=HOST:PORT,...", help="All nodes, if they are others than before."),
    ] = None,
    secret_file: Secret = None,
    write_through: Annotated[
        bool, typer.Option(help="NBD: every write waits for a majority, not only flushes.")
    ] = False,
    compact: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Checkpoint after so much log (a quarter of the data)."),
    ] = None,
    tls_cert: Cert = None,
    tls_key: Key = None,
    tls_ca: Authority = None,
) -> None:
    """Serve the volumes of a folder until Ctrl-C or SIGTERM.

    Twin of tideline.volume.serving.Serving. A disk that shall survive this node is attached with
    `tideline volume attach` on the machine that mounts it. NBD itself has no passwords: --nbd is
    for a unix socket, or for addresses that only the right ones reach.
    """
    from tideline.volume.serving import Serving

    _logging()
    serving = Serving(
        folder, listen=listen, nbd=nbd or [], secret=_secret(secret_file),
        tls=_tls(tls_cert, tls_key, tls_ca), write_back=not write_through,
        compact_bytes=None if compact is None else parse_size(compact, "--compact"),
        nodes=None if nodes is None else parse_nodes(nodes),
    )  # fmt: skip
    _until_told(
        serving.close,
        f"serving at {serving.service.address}",
        *(f"NBD at {server.address}" for server in serving.nbd),
    )


def attach(
    nodes: Annotated[str, typer.Argument(metavar="NODES", help="HOST:PORT,..., all or some.")],
    name: Annotated[str, typer.Argument(metavar="NAME", help="A volume or a snapshot.")] = "main",
    nbd: Annotated[
        str,
        typer.Option(metavar="ADDRESS", help="Where NBD clients find it: unix:PATH, HOST:PORT."),
    ] = "unix:tideline.sock",
    secret_file: Secret = None,
    write_through: Annotated[
        bool, typer.Option(help="Every write waits for a majority, not only flushes.")
    ] = False,
    give_up: Annotated[
        float, typer.Option(metavar="S", help="Seconds without a leader before writes fail.")
    ] = 300,
    tls_cert: Cert = None,
    tls_key: Key = None,
    tls_ca: Authority = None,
) -> None:
    """Give out one volume over NBD, and go to another leader when one dies.

    Twin of tideline.volume.client.Attached. What is mounted on it sees a pause and no error. Runs
    on the machine that mounts, until Ctrl-C or SIGTERM.
    """
    from tideline.volume.serving import export

    if not 0 < give_up < 1e9:
        raise InvalidRequest("--give-up is a positive number", given=give_up)
    _logging()
    client = _client(nodes, _secret(secret_file), _tls(tls_cert, tls_key, tls_ca), give_up)
    found = client.call("info", name)
    server = export(nbd, client, only=name, write_back=not write_through)

    def end() -> None:
        server.close()
        client.close()

    _until_told(end, f"{found['kind']} {name!r} of {found['size_bytes']} bytes, "
                f"NBD at {server.address}")  # fmt: skip


def _logging() -> None:
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(levelname)s %(message)s")


def _until_told(end: Callable[[], None], *said: str) -> None:
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    for each in said:
        print(f"tideline: {each}", flush=True)
    try:
        stop.wait()
    finally:
        end()


def _client(nodes: str, secret: bytes, tls: Any, give_up_s: float) -> Any:
    from tideline.volume.client import Client

    context = tls.context(server=False) if tls is not None else None
    return Client(nodes.split(","), secret=secret, tls=context, give_up_s=give_up_s)


class _Folder:
    """A folder that is opened for one command, with the verbs of a service."""

    def __init__(self, volumes: Any) -> None:
        self._volumes = volumes

    def call(self, verb: str, *arguments: Any) -> Any:
        if verb == "list":
            return [one._asdict() for one in self._volumes.all()]
        return getattr(self._volumes, verb)(*arguments)

    make = call

    def delete(self, name: str) -> None:
        self._volumes.delete(name)

    def remove_node(self, number: int) -> None:
        self._volumes.remove_node(number)


@contextmanager
def _opened(where: str, secret: Path | None, tls: Any) -> Iterator[Any]:
    if ":" in where:
        client = _client(where, _secret(secret), tls, 30)
        try:
            yield client
        finally:
            client.close()
        return
    from tideline.volume import Volumes

    try:
        volumes = Volumes.open(Path(where))
    except Unavailable as error:
        served = Path(where) / "service.sock"
        if served.exists():
            raise Unavailable(
                "this folder is served: give its address in the place of the folder",
                folder=where, address=f"unix:{served}",
            ) from error  # fmt: skip
        raise
    with volumes:
        yield _Folder(volumes)


def list_(
    where: Where, secret_file: Secret = None, as_json: AsJson = False, tls_cert: Cert = None,
    tls_key: Key = None, tls_ca: Authority = None,
) -> None:  # fmt: skip
    """List volumes and snapshots.

    Twin of tideline.volume.Volumes.all. `used_bytes` is what is mapped; copies share it.
    """
    with _opened(where, secret_file, _tls(tls_cert, tls_key, tls_ca)) as opened:
        rows = _rows(opened)
    show(rows, title="volumes", as_json=as_json)


def _rows(opened: Any) -> list[dict[str, Any]]:
    fields = ("name", "kind", "size_bytes", "used_bytes", "source")
    return [{field: one[field] for field in fields} for one in opened.call("list")]


def _row(opened: Any, name: str) -> dict[str, Any]:
    return next((one for one in _rows(opened) if one["name"] == name), {"name": name})


def add(
    where: Where, name: Name, size: Size, secret_file: Secret = None, tls_cert: Cert = None,
    tls_key: Key = None, tls_ca: Authority = None,
) -> None:  # fmt: skip
    """Make one more volume, empty.

    Twin of tideline.volume.Volumes.add.
    """
    with _opened(where, secret_file, _tls(tls_cert, tls_key, tls_ca)) as opened:
        opened.make("add", name, parse_size(size, "--size"))
        line(_row(opened, name))


def snapshot(
    where: Where,
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="The volume.")],
    name: Annotated[str, typer.Argument(metavar="NAME", help="What the snapshot is called.")],
    secret_file: Secret = None,
    tls_cert: Cert = None,
    tls_key: Key = None,
    tls_ca: Authority = None,
) -> None:
    """Keep what a volume holds now, read only.

    Twin of tideline.volume.Volumes.snapshot. It is what a power cut would leave: for a file system
    that is mounted, freeze it before (fsfreeze), or let it replay its journal on a clone.
    """
    with _opened(where, secret_file, _tls(tls_cert, tls_key, tls_ca)) as opened:
        opened.make("snapshot", source, name)
        line(_row(opened, name))


def clone(
    where: Where,
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="A volume or a snapshot.")],
    name: Annotated[str, typer.Argument(metavar="NAME", help="What the new volume is called.")],
    secret_file: Secret = None,
    tls_cert: Cert = None,
    tls_key: Key = None,
    tls_ca: Authority = None,
) -> None:
    """Make a volume that begins with what another volume, or a snapshot, holds now.

    Twin of tideline.volume.Volumes.clone.
    """
    with _opened(where, secret_file, _tls(tls_cert, tls_key, tls_ca)) as opened:
        opened.make("clone", source, name)
        line(_row(opened, name))


def resize(
    where: Where, name: Name, size: Size, secret_file: Secret = None, tls_cert: Cert = None,
    tls_key: Key = None, tls_ca: Authority = None,
) -> None:  # fmt: skip
    """Make a volume larger, or smaller: what is behind the new end is forgotten.

    Twin of tideline.volume.Volumes.resize. Clients that have it open see the size they began with.
    """
    with _opened(where, secret_file, _tls(tls_cert, tls_key, tls_ca)) as opened:
        opened.call("resize", name, parse_size(size, "--size"))
        line(_row(opened, name))


def delete(
    where: Where, name: Name, secret_file: Secret = None, tls_cert: Cert = None,
    tls_key: Key = None, tls_ca: Authority = None,
) -> None:  # fmt: skip
    """Delete a volume or a snapshot; vacuum gives its room back.

    Twin of tideline.volume.Volumes.delete.
    """
    with _opened(where, secret_file, _tls(tls_cert, tls_key, tls_ca)) as opened:
        opened.delete(name)


def _each_node(
    where: str, secret: Path | None, tls: Any, verb: str, *arguments: Any
) -> list[dict[str, Any]]:
    """What every node that is named says; an error is said in its place."""
    with _opened(where, secret, tls) as opened:
        if isinstance(opened, _Folder):
            return [opened.call(verb, *arguments)]
        rows = []
        for node in opened.nodes:
            try:
                rows.append({"address": node, **opened.call_node(node, verb, *arguments)})
            except Unavailable as error:
                rows.append({"address": node, "error": str(error)})
        return rows


def vacuum(
    where: Where,
    live: Annotated[
        float, typer.Option(help="Rewrite files of which at most this part is mapped, 0 to 1.")
    ] = 0.5,
    secret_file: Secret = None,
    tls_cert: Cert = None,
    tls_key: Key = None,
    tls_ca: Authority = None,
) -> None:
    """Give back the room of blocks that are not mapped any more, on every node that is named.

    Twin of tideline.volume.Volumes.vacuum. `rewritten_bytes` is what it cost: blocks that were
    still mapped, and were copied before their file was dropped.
    """
    tls = _tls(tls_cert, tls_key, tls_ca)
    for one in _each_node(where, secret_file, tls, "vacuum", live):
        line(one)


def scrub(
    where: Where, secret_file: Secret = None, tls_cert: Cert = None, tls_key: Key = None,
    tls_ca: Authority = None,
) -> None:  # fmt: skip
    """Read every block of every node that is named, and mend what is damaged from the others.

    Twin of tideline.volume.Volumes.scrub.
    """
    for one in _each_node(where, secret_file, _tls(tls_cert, tls_key, tls_ca), "scrub"):
        line(one)


def status(
    where: Where, secret_file: Secret = None, as_json: AsJson = False, tls_cert: Cert = None,
    tls_key: Key = None, tls_ca: Authority = None,
) -> None:  # fmt: skip
    """Figures of every node that is named.

    Twin of tideline.volume.Volumes.status. `missing_blocks` are asked from other nodes; while there
    are some, this node is no full copy.
    """
    rows = _each_node(where, secret_file, _tls(tls_cert, tls_key, tls_ca), "status")
    show(rows, title="nodes", as_json=as_json)


Number = Annotated[int, typer.Argument(metavar="N", help="The number of the node.")]


def add_node(
    where: Where, node: Number, secret_file: Secret = None, tls_cert: Cert = None,
    tls_key: Key = None, tls_ca: Authority = None,
) -> None:  # fmt: skip
    """Take in a new node, which was made by `create --recover` and is served.

    Twin of tideline.volume.Volumes.add_node. It is sent what the others have, and votes when it has
    it. Give the new --nodes to `serve` on the others when they are next started.
    """
    with _opened(where, secret_file, _tls(tls_cert, tls_key, tls_ca)) as opened:
        opened.call("add_node", node)
    line({"added": node})


def remove_node(
    where: Where, node: Number, secret_file: Secret = None, tls_cert: Cert = None,
    tls_key: Key = None, tls_ca: Authority = None,
) -> None:  # fmt: skip
    """Let a node go: it votes no more, and may be switched off.

    Twin of tideline.volume.Volumes.remove_node.
    """
    with _opened(where, secret_file, _tls(tls_cert, tls_key, tls_ca)) as opened:
        opened.remove_node(node)
    line({"removed": node})
