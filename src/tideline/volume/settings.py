"""What is chosen when a volume is made, and the folder it is made in.

folder := VOLUME         settings, JSON; written last of all: without it there is no volume
        | replica/       the log: a folder of `Node`
        | blocks/        files with blocks (blockfiles.py)
        | checkpoint     the map (machine.py)
        | LOCK           one process at a time
        | service.sock   where a volume on this machine alone is served (own_address)
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from tideline.errors import Corruption, InvalidRequest, NotFound
from tideline.lsm.files import replace_file, sync_folder, telling
from tideline.lsm.folder import make_folder
from tideline.replica import Node
from tideline.volume.wire import Address, parse_address

__all__ = [
    "CLUSTER", "Settings", "check_size", "create", "load_settings", "own_address",
    "replica_address", "save_nodes", "service_address",
]  # fmt: skip

CLUSTER = "volume"


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is chosen when a volume is made; all replicas have the same."""

    block_bytes: int
    size_bytes: int
    node: int = 1
    nodes: dict[int, str] = {}  # where the service of each is; empty: a group of one


def check_block_size(block_bytes: int) -> int:
    """A power of two from 512 to 1 MiB.

    >>> check_block_size(4096)
    4096
    """
    if not 512 <= block_bytes <= 1 << 20 or block_bytes & (block_bytes - 1):
        raise InvalidRequest(
            "a block size is a power of two from 512 to 1048576", block_bytes=block_bytes
        )
    return block_bytes


def check_size(size_bytes: int, block_bytes: int) -> int:
    """Whole blocks, at least one, at most 2^50 bytes.

    >>> check_size(1 << 20, 4096)
    1048576
    """
    if size_bytes < block_bytes or size_bytes % block_bytes or size_bytes > 1 << 50:
        raise InvalidRequest(
            "the size of a volume is a multiple of its block size, up to 1 PiB",
            size_bytes=size_bytes, block_bytes=block_bytes,
        )  # fmt: skip
    return size_bytes


def replica_address(service: str) -> tuple[str, int]:
    """Where the replica of a node listens: on the port after that of its service.

    >>> replica_address("10.0.0.1:7000")
    ('10.0.0.1', 7001)
    """
    found: Address = parse_address(service)
    if isinstance(found, str) or not 0 < found[1] < 65535:
        raise InvalidRequest("a node of several has an address HOST:PORT", node=service)
    return found[0], found[1] + 1


def service_address(replica: tuple[str, int]) -> str:
    """Where the service of a node is whose replica listens there.

    >>> service_address(("10.0.0.1", 7001))
    '10.0.0.1:7000'
    """
    host = f"[{replica[0]}]" if ":" in replica[0] else replica[0]
    return f"{host}:{replica[1] - 1}"


def own_address(folder: Path) -> str:
    """Where a volume on this machine alone is served: who may open the folder may open that.

    >>> own_address(Path("disk"))
    'unix:disk/service.sock'
    """
    full = os.path.abspath(folder)
    path = min(str(folder), full, os.path.relpath(full), key=len) + "/service.sock"
    if len(os.fsencode(path)) >= 108:
        raise InvalidRequest(
            "the path is too long for a socket in the folder: --listen names another, unix:PATH",
            folder=str(folder),
        )
    return f"unix:{path}"


def create(
    folder: Path, size_bytes: int, *, block_bytes: int, node: int | None,
    nodes: dict[int, str], recover: bool,
) -> None:  # fmt: skip
    """Make a replica with a volume "main" of this size: on this machine alone, or as `node` of
    `nodes`. `recover`: this node lost its disk, and the others have what it had."""
    check_size(size_bytes, check_block_size(block_bytes))
    if (node is None) != (not nodes) or (nodes and node not in nodes):
        raise InvalidRequest("node is one of nodes, and is given with them", node=node,
                             nodes=sorted(nodes))  # fmt: skip
    if recover and len(nodes) < 2:
        raise InvalidRequest("only a node of several can recover", nodes=sorted(nodes))
    for address in nodes.values():
        replica_address(address)
    make_folder(folder, "folder cannot be made")
    with telling("folder cannot be used", folder):
        names = sorted(name for name in os.listdir(folder) if not name.startswith("."))
    if names:
        raise InvalidRequest(
            "a volume is made in an empty folder", folder=str(folder), holds=names[0]
        )
    if recover:
        Node.recover(folder / "replica", CLUSTER, node or 1)
    else:
        Node.create(folder / "replica", CLUSTER, node or 1, nodes or [1])
    # Last of all: the folder counts from now on.
    _save(folder, Settings(block_bytes, size_bytes, node or 1, nodes))


def save_nodes(folder: Path, nodes: dict[int, str]) -> None:
    """Other nodes than before: some came, or went."""
    settings = load_settings(folder)
    if not settings.nodes or settings.node not in nodes:
        raise InvalidRequest(
            "the nodes of a volume of several can change, and this one is among them",
            node=settings.node, nodes=sorted(nodes),
        )  # fmt: skip
    for address in nodes.values():
        replica_address(address)
    if nodes != settings.nodes:
        _save(folder, msgspec.structs.replace(settings, nodes=nodes))


def _save(folder: Path, settings: Settings) -> None:
    with telling("folder cannot be used", folder):
        replace_file(folder / "VOLUME", msgspec.json.encode(settings) + b"\n")
        sync_folder(folder)


def load_settings(folder: Path) -> Settings:
    """What was chosen; `NotFound` where no volume is."""
    path = Path(folder) / "VOLUME"
    with telling("volume cannot be opened", path):
        try:
            data = path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            raise NotFound(
                "no volume is in this folder; `tideline volume create` makes one",
                folder=str(folder),
            ) from None  # fmt: skip
    try:
        return msgspec.json.decode(data, type=Settings)
    except msgspec.DecodeError as error:
        raise Corruption("the settings of the volume are damaged", file=path) from error
