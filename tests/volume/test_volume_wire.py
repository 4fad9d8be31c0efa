"""A volume over sockets: the service, the client with its cache of writes, the NBD server."""

from __future__ import annotations

import os
import shutil
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from certificates import certificate

from tideline.errors import Conflict, InvalidRequest, NotFound, Unauthorized, Unavailable
from tideline.replica import TLS
from tideline.volume import Volumes
from tideline.volume.client import Attached, Client
from tideline.volume.nbd import NbdServer
from tideline.volume.service import Service
from tideline.volume.serving import Serving, export

BLOCK = 4096
SIZE = 4 << 20
SECRET = b"sixteen bytes or more"


@pytest.fixture
def volumes(tmp_path: Path) -> Iterator[Volumes]:
    Volumes.create(tmp_path / "v", SIZE)
    with Volumes.open(tmp_path / "v") as opened:
        yield opened


@pytest.fixture
def service(volumes: Volumes) -> Iterator[Service]:
    found = Service(volumes, "127.0.0.1:0", secret=SECRET)
    yield found
    found.close()


@pytest.fixture
def client(service: Service) -> Iterator[Client]:
    found = Client(["127.0.0.1:1", service.address], secret=SECRET, give_up_s=60)
    yield found
    found.close()


def test_who_has_not_the_secret_is_told_nothing(service: Service) -> None:
    with pytest.raises(Unauthorized):
        Client([service.address], secret=b"another secret, long").call("list")
    with pytest.raises(Unauthorized):
        Client([service.address]).call("list")


def test_tls_hides_what_is_said_and_asks_for_certificates(volumes: Volumes, tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for folder in (ours, theirs):
        folder.mkdir()
        certificate(folder)
    tls, other = (
        TLS(each / "cert.pem", each / "key.pem", ca=each / "cert.pem") for each in (ours, theirs)
    )
    service = Service(volumes, "127.0.0.1:0", secret=SECRET, tls=tls.context(server=True))
    client = Client([service.address], secret=SECRET, tls=tls.context(server=False))
    disk = Attached(client, "main")
    disk.write(0, b"hidden", force=True)
    assert disk.read(0, 6) == b"hidden"
    disk.close()
    client.close()
    for context in (other.context(server=False), None):
        with pytest.raises((Unavailable, InvalidRequest)):
            Client([service.address], secret=SECRET, tls=context, give_up_s=0).call("list")
    service.close()


def test_something_else_that_listens_is_told(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        client = Client([f"127.0.0.1:{other.getsockname()[1]}"], give_up_s=0)
        other.listen()
        accepted: list[socket.socket] = []

        def greet() -> None:
            found, _ = other.accept()
            accepted.append(found)
            found.sendall(b"HTTP/1.1 400 no\r\n\r\n")

        thread = threading.Thread(target=greet)
        thread.start()
        with pytest.raises(InvalidRequest, match="no node of a volume"):
            client.call("list")
        thread.join()
        accepted[0].close()


def test_errors_come_as_they_are(client: Client) -> None:
    for kind, call in (
        (NotFound, lambda: client.call("info", "nothing")),
        (Conflict, lambda: client.make("snapshot", "main", "main")),
        (InvalidRequest, lambda: client.call("read", "main", SIZE, 1, False)),
        (InvalidRequest, lambda: client.call("nonsense")),
        (InvalidRequest, lambda: client.call("read", "main")),
    ):
        with pytest.raises(kind):
            call()


def test_nobody_there_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(Unavailable) as told:
        Client([f"unix:{tmp_path}/none"], give_up_s=0).call("list")
    assert told.value.values["nodes"] == [f"unix:{tmp_path}/none"]


def test_reads_see_the_writes_that_returned(client: Client, volumes: Volumes) -> None:
    disk = Attached(client, "main")
    model = bytearray(SIZE)
    for step in range(60):
        at = (step * 7919) % (SIZE - 9000)
        data = bytes([step + 1]) * (step * 150)
        disk.write(at, data)
        model[at : at + len(data)] = data
        if step % 7 == 3:
            disk.trim(at + 100, 5000)
            model[at + 100 : at + 5100] = bytes(5000)
        assert disk.read(at, 9000) == model[at : at + 9000]
    disk.flush()
    assert volumes.read("main", 0, SIZE) == model
    disk.close()


def test_who_writes_last_has_the_volume(client: Client) -> None:
    first, second = Attached(client, "main"), Attached(client, "main")
    first.write(0, b"first", force=True)
    assert second.read(0, 5) == b"first"  # to read takes nothing away
    first.write(0, b"again", force=True)
    second.write(0, b"other", force=True)
    first.write(0, b"late")
    with pytest.raises(Conflict, match="another client"):
        first.flush()
    with pytest.raises(Conflict):
        first.write(0, b"late")
    assert second.read(0, 5) == b"other"
    with pytest.raises(Conflict):
        first.close()
    second.close()


def test_a_snapshot_is_read_only(client: Client) -> None:
    client.make("snapshot", "main", "s")
    disk = Attached(client, "s")
    assert disk.read_only
    with pytest.raises(InvalidRequest):
        disk.write(0, b"1")
    disk.close()


def test_a_client_goes_on_when_the_service_comes_back(volumes: Volumes, tmp_path: Path) -> None:
    """What was sent to the first one may or may not have been done: it is sent again."""
    address = f"unix:{tmp_path}/s"
    service = Service(volumes, address)
    client = Client([address])
    disk = Attached(client, "main")
    disk.write(0, b"before", force=True)
    session = volumes.info("main").session
    service.close()
    disk.write(6, b"between")
    service = Service(volumes, address)
    disk.flush()
    assert volumes.read("main", 0, 13) == b"beforebetween"
    assert volumes.info("main").session > session  # what was under way before is not applied now
    disk.close()
    client.close()
    service.close()


# ---- NBD -----------------------------------------------------------------------------------------


class Nbd:
    """A client of the protocol, written from its description."""

    def __init__(self, address: str, name: str, *, old: bool = False) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(address.removeprefix("unix:"))
        assert self.get(18)[:16] == b"NBDMAGICIHAVEOPT"
        self.sock.sendall(struct.pack(">I", 3))
        self.code = 0
        if old:
            self.option(1, name.encode())
            self.size, self.flags = struct.unpack(">QH", self.get(10))
            return
        self.option(7, struct.pack(">I", len(name)) + name.encode() + struct.pack(">H", 0))
        while True:
            kind, data = self.answer()
            if kind == 1:
                return
            if kind >> 31:
                self.code = kind
                return
            if data[:2] == b"\0\0":
                self.size, self.flags = struct.unpack(">QH", data[2:])

    def option(self, option: int, data: bytes = b"") -> None:
        self.sock.sendall(b"IHAVEOPT" + struct.pack(">II", option, len(data)) + data)

    def answer(self) -> tuple[int, bytes]:
        _, _, kind, size = struct.unpack(">QIII", self.get(20))
        return kind, self.get(size)

    def get(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self.sock.recv(size - len(data))
            assert piece, "the server left"
            data += piece
        return data

    def ask(
        self, kind: int, offset: int = 0, size: int = 0, data: bytes = b"", flags: int = 0
    ) -> tuple[int, bytes]:
        size = size or len(data)
        self.sock.sendall(struct.pack(">IHHQQI", 0x25609513, flags, kind, 99, offset, size) + data)
        magic, code, cookie = struct.unpack(">IIQ", self.get(16))
        assert (magic, cookie) == (0x67446698, 99)
        return code, self.get(size) if kind == 0 and not code else b""

    def close(self) -> None:
        self.sock.close()


@pytest.fixture
def nbd(client: Client, tmp_path: Path) -> Iterator[NbdServer]:
    found = export(f"unix:{tmp_path}/nbd", client)
    yield found
    found.close()


def test_nbd_reads_and_writes(nbd: NbdServer, volumes: Volumes) -> None:
    disk = Nbd(nbd.address, "main")
    assert disk.size == SIZE
    assert disk.flags & 1
    assert not disk.flags & 2
    assert disk.ask(0, 100, 50) == (0, bytes(50))
    assert disk.ask(1, 100, data=b"hello") == (0, b"")
    assert disk.ask(0, 98, 9) == (0, b"\0\0hello\0\0")
    assert disk.ask(3) == (0, b"")
    assert volumes.read("main", 100, 5) == b"hello"
    assert disk.ask(1, 5000, data=b"at once", flags=1)[0] == 0
    assert volumes.read("main", 5000, 7) == b"at once"
    assert disk.ask(4, 0, BLOCK) == (0, b"")  # trim
    assert disk.ask(6, 5000, 2, flags=1) == (0, b"")  # zeroes
    assert disk.ask(0, 5000, 7) == (0, b"\0\0 once")
    assert volumes.read("main", 0, BLOCK) == bytes(BLOCK)
    assert disk.ask(1, SIZE - 1, data=b"too long")[0] == 22
    assert disk.ask(0, SIZE, 1)[0] == 22
    assert disk.ask(9)[0] == 22  # no such command
    disk.sock.sendall(struct.pack(">IHHQQI", 0x25609513, 0, 2, 0, 0, 0))
    assert disk.sock.recv(1) == b""
    disk.close()


def test_nbd_names(nbd: NbdServer, client: Client) -> None:
    client.make("snapshot", "main", "s")
    refused = Nbd(nbd.address, "nothing")
    assert refused.code == (1 << 31) + 6
    refused.close()
    disk = Nbd(nbd.address, "s")
    assert disk.flags & 2  # read only
    assert disk.ask(1, 0, data=b"1")[0] == 1
    disk.close()
    disk = Nbd(nbd.address, "", old=True)  # the default, by the oldest option
    assert disk.size == SIZE
    assert disk.ask(0, 0, 4) == (0, bytes(4))
    disk.close()
    asking = Nbd(nbd.address, "nothing")
    asking.option(3)
    found = []
    while (answer := asking.answer())[0] == 2:
        found.append(answer[1][4:].decode())
    assert found == ["main", "s"]
    asking.option(77)
    assert asking.answer()[0] == (1 << 31) + 1
    asking.option(7, b"\xff\xff\xff\xff")
    assert asking.answer()[0] == (1 << 31) + 3
    asking.option(2)
    assert asking.answer()[0] == 1
    asking.close()


def test_what_nbd_wrote_is_there_after_the_end(tmp_path: Path) -> None:
    Volumes.create(tmp_path / "v", SIZE)
    serving = Serving(tmp_path / "v", nbd=[f"unix:{tmp_path}/nbd"])
    disk = Nbd(f"unix:{tmp_path}/nbd", "main")
    for at in range(0, SIZE, BLOCK * 64):
        assert disk.ask(1, at, data=os.urandom(10) + b"x" * 1000)[0] == 0
    serving.close()
    disk.close()
    with Volumes.open(tmp_path / "v") as volumes:
        for at in range(0, SIZE, BLOCK * 64):
            assert volumes.read("main", at + 10, 1000) == b"x" * 1000


@pytest.mark.skipif(shutil.which("nbdinfo") is None, reason="libnbd-bin is not installed")
def test_libnbd_understands(nbd: NbdServer, tmp_path: Path) -> None:
    def info(*words: str) -> str:
        done = subprocess.run(["nbdinfo", *words], capture_output=True, text=True, check=True)
        return done.stdout

    uri = f"nbd+unix:///main?socket={tmp_path}/nbd"
    assert info("--size", uri).strip() == str(SIZE)
    assert "can_flush: true" in info(uri)
    assert 'export="main"' in info("--list", uri)


# ---- addresses -----------------------------------------------------------------------------------


@pytest.mark.parametrize("address", ["", "7000", "host:", "host:x", "host:70000", "unix:", ":1"])
def test_a_wrong_address_is_told(address: str) -> None:
    with pytest.raises(InvalidRequest) as told:
        Client([address])
    assert told.value.values["address"] == address


def test_an_address_in_use_is_told(volumes: Volumes, tmp_path: Path) -> None:
    made: list[Callable[[], Service]] = [lambda: Service(volumes, f"unix:{tmp_path}/s")]
    first = made[0]()
    with pytest.raises(Unavailable, match="another process listens"):
        made[0]()
    first.close()
    made[0]().close()  # what nobody listens on any more is taken over
