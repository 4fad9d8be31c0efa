"""What the gate promises: other processes use a store that this one has open, and only they."""

from __future__ import annotations

import json
import os
import secrets
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from multiprocessing import connection as sockets
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tideline
from tideline.channel import Channel, landing
from tideline.errors import (
    Closed,
    Conflict,
    Corruption,
    InvalidRequest,
    NotFound,
    TidelineError,
    Unavailable,
)
from tideline.spark import client as clients
from tideline.spark import gate, share, wire
from tideline.spark.client import Client, Landed, Once, connect
from tideline.spark.remote import GateClient
from tideline.testing import ManualClock

SECOND = 1_000_000


def events(count: int, first: int = 0) -> pa.Table:
    """Events one after the other, at one of ten places."""
    numbers = range(first, first + count)
    return pa.table(
        {
            "op": ["publish"] * count,
            "id": [f"e{n}" for n in numbers],
            "place": [f"p{n % 10}" for n in numbers],
            "at": pa.array([n * SECOND for n in numbers], pa.timestamp("us", "UTC")),
            "body": [json.dumps({"n": n}) for n in numbers],
        }
    )


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(100_000)  # no row is ahead of it


@pytest.fixture
def shared(open_database: Callable[..., Any]) -> Iterator[Any]:
    """A database with the channel `roads`, shared."""
    db = open_database()
    db.channel("roads", journal_s=3600)
    share(db)
    return db


@pytest.fixture
def client(shared: Any) -> Iterator[GateClient]:
    found = connect(shared.path)
    yield found
    found.close()


@pytest.fixture
def small(monkeypatch: Any) -> None:
    """Slices of a thousand rows, so that few rows make many."""
    monkeypatch.setattr(landing, "SLICE", 1000)
    monkeypatch.setattr(clients, "SLICE", 1000)


def ids(client: GateClient, **options: Any) -> list[str]:
    return [
        ident
        for batch in client.scan("roads", "events", **options)
        for ident in batch.column("id").to_pylist()
    ]


def write(client: Client, *tables: pa.Table, once: Once | None = None) -> Landed:
    """Stage tables one by one and commit them in this order."""
    job = f"job-{secrets.token_hex(8)}"
    tokens = [client.stage(job, table.to_batches(), "arrival") for table in tables]
    landed = client.commit("roads", tokens, once=once, order="arrival")
    client.discard(job)
    return landed


def test_another_process_writes_and_reads(shared: Any) -> None:
    code = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from test_gate import events, ids, write
from tideline.spark.client import connect
client = connect({str(shared.path)!r})
landed = write(client, events(3))
print(landed.rows, landed.rejected, ids(client))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "3 0 ['e0', 'e1', 'e2']\n", done.stderr
    assert [event.id for event in shared.channel("roads").find("p1")] == ["e1"]


def test_the_address_is_private_and_goes_with_the_gate(shared: Any) -> None:
    path = shared.path / "GATE"
    address = json.loads(path.read_text())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(os.stat(Path(address["socket"]).parent).st_mode) == 0o700
    assert stat.S_IMODE(os.stat(address["spool"]).st_mode) == 0o700
    share(shared).close()
    assert not path.exists()
    assert not Path(address["socket"]).parent.exists()
    assert not Path(address["spool"]).exists()


def test_closing_the_database_closes_the_gate(shared: Any, client: GateClient) -> None:
    assert client.describe("roads").space == {"kind": "flat"}
    shared.close()
    assert not (shared.path / "GATE").exists()
    with pytest.raises(Unavailable, match=r"call tideline.spark.share"):
        client.describe("roads")


def test_sharing_twice_gives_one_gate(shared: Any) -> None:
    assert share(shared) is share(shared)


def test_the_outermost_block_closes_the_gate(open_database: Callable[..., Any]) -> None:
    """A pipeline shares what its caller has shared, and the caller goes on afterwards."""
    db = open_database()
    with share(db) as one:
        with share(db) as inner:
            assert inner is one
        assert not one.closed
    assert one.closed
    by_call = share(db)
    with share(db):
        pass
    assert not by_call.closed
    by_call.close()
    assert share(db) is not by_call


def test_a_gate_opens_again_and_its_clients_find_it(shared: Any, client: GateClient) -> None:
    write(client, events(2))
    share(shared).close()
    share(shared)
    assert client.describe("roads").layout == "dual"
    assert ids(client) == ["e0", "e1"]


def test_a_closed_database_is_not_shared(open_database: Callable[..., Any]) -> None:
    db = open_database()
    db.close()
    with pytest.raises(Closed):
        share(db)


def test_a_folder_that_cannot_be_written_is_not_shared(
    open_database: Callable[..., Any], monkeypatch: Any
) -> None:
    db = open_database()

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(gate, "_write_private", full)
    with pytest.raises(Unavailable, match=r"the store cannot be shared.*No space left"):
        share(db)


def test_a_client_that_takes_nothing_is_cut_off(shared: Any, small: None, monkeypatch: Any) -> None:
    """It asks for more than a socket holds and does not read it; the database still closes."""
    monkeypatch.setattr(gate, "_STEP_S", 0.1)
    write(connect(shared.path), events(20_000))
    lazy = connect(shared.path).scan("roads", "events")
    next(lazy)
    shared.close()
    assert not (shared.path / "GATE").exists()


def test_what_a_killed_owner_left_is_replaced(shared: Any, tmp_path: Path) -> None:
    address = json.loads((shared.path / "GATE").read_text())
    shared.close()
    socket = tmp_path / "tideline-gate-x" / "socket"
    socket.parent.mkdir()
    left = {**address, "socket": str(socket)}
    (shared.path / "GATE").write_text(json.dumps(left))
    (shared.path / "spool").mkdir()
    (shared.path / "spool" / "old.arrow").write_text("left")
    with pytest.raises(Unavailable, match="ended without closing it"):
        connect(shared.path).describe("roads")
    with tideline.open(shared.path) as db, share(db):
        assert connect(shared.path).describe("roads").layout == "dual"
        assert list((shared.path / "spool").iterdir()) == []
        assert not socket.parent.exists()


def test_without_the_key_nobody_is_let_in(shared: Any) -> None:
    address = json.loads((shared.path / "GATE").read_text())
    with pytest.raises(sockets.AuthenticationError):
        sockets.Client(address["socket"], "AF_UNIX", authkey=b"guess")
    quiet = sockets.Client(address["socket"], "AF_UNIX")  # says nothing, and holds up nobody
    assert connect(shared.path).describe("roads").layout == "dual"
    quiet.close()


@pytest.mark.parametrize("message", [b"", b"H", b"H\0\0\0\0\0\0\0{", b"X" * 40, b"A" * 64])
def test_a_broken_message_ends_only_its_connection(shared: Any, message: bytes) -> None:
    address = json.loads((shared.path / "GATE").read_text())
    with sockets.Client(
        address["socket"], "AF_UNIX", authkey=bytes.fromhex(address["key"])
    ) as connection:
        connection.send_bytes(message)
        with pytest.raises(EOFError):
            connection.recv_bytes()
    assert connect(shared.path).describe("roads").layout == "dual"


@pytest.mark.parametrize(
    "request_", [[], {"call": "close"}, {"call": "_land"}, {"call": "scan", "args": {"x": 1}}]
)
def test_a_call_that_is_none_is_an_error_and_the_next_one_works(shared: Any, request_: Any) -> None:
    address = json.loads((shared.path / "GATE").read_text())
    with sockets.Client(
        address["socket"], "AF_UNIX", authkey=bytes.fromhex(address["key"])
    ) as connection:
        wire.send(connection, request_)
        with pytest.raises(wire.Failed) as failed:
            wire.receive(connection)
        assert isinstance(failed.value.error, TidelineError)
        wire.send(connection, {"call": "describe", "args": {"channel": "roads"}})
        assert wire.receive(connection)["value"]["layout"] == "dual"


@pytest.mark.parametrize(
    "error",
    [
        InvalidRequest("no", a=1),
        NotFound("no", name="x"),
        Conflict("no"),
        Unavailable("no", path=Path("/x")),
        Closed("no"),
        Corruption("no", file="log-1"),
        TidelineError("no"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_comes_over_as_what_it_was(error: TidelineError) -> None:
    found = wire.unpack_error(json.loads(json.dumps(wire.pack_error(error))))
    assert type(found) is type(error)
    assert str(found) == str(error)
    assert set(found.values) == set(error.values)
    if isinstance(error, Corruption):
        assert isinstance(found, Corruption)
        assert found.file == error.file


def test_errors_of_the_store_come_over(client: GateClient, shared: Any) -> None:
    with pytest.raises(NotFound, match=r"no such channel.*rods.*roads"):
        client.describe("rods")
    with pytest.raises(NotFound):
        list(client.scan("rods", "events"))
    with pytest.raises(InvalidRequest, match="kind must be one of"):
        list(client.scan("roads", "cars"))
    with pytest.raises(InvalidRequest, match="unknown or repeated columns"):
        write(client, pa.table({"op": ["publish"], "colour": ["red"]}))
    with pytest.raises(Conflict):
        client.create("roads", {"kind": "topics"})
    assert ids(client) == []


def test_a_folder_without_a_store_or_a_gate_says_so(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="there is no store here"):
        connect(tmp_path / "nowhere").describe("roads")
    with pytest.raises(Unavailable, match=r"call tideline.spark.share\(db\)"):
        connect(tmp_path).describe("roads")


def test_a_large_table_goes_in_slices(client: GateClient, small: None, monkeypatch: Any) -> None:
    sizes: list[int] = []
    whole = Channel.apply

    def counted(self: Any, table: pa.Table, **options: Any) -> Any:
        sizes.append(table.num_rows)
        return whole(self, table, **options)

    monkeypatch.setattr(Channel, "apply", counted)
    landed = write(client, events(1500), events(1000, first=1500), once=("w", 1))
    assert (landed.rows, landed.repeated) == (2500, 0)
    assert sizes == [1000, 1000, 500]
    again = write(client, events(2500), once=("w", 1))
    assert (again.rows, again.repeated) == (2500, 2500)
    assert len(ids(client)) == 2500
    assert ids(client, since=2498 * SECOND) == ["e2498", "e2499"]


def test_a_reader_that_leaves_early_breaks_nothing(client: GateClient, small: None) -> None:
    write(client, events(5000))
    first = next(client.scan("roads", "events"))
    assert first.num_rows == 1000
    assert client.describe("roads").layout == "dual"


def test_many_clients_at_once(shared: Any) -> None:
    failed: list[BaseException] = []

    def work(number: int) -> None:
        try:
            mine = connect(shared.path)
            for turn in range(5):
                write(mine, events(10, first=100 * number + 10 * turn))
            assert len(ids(mine)) >= 50
            mine.close()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert len(ids(connect(shared.path))) == 400


def test_the_journal_is_read_from_position_to_position(client: GateClient) -> None:
    start = client.position("roads")
    assert client.earliest("roads", "events") == start
    for number in range(4):
        write(client, events(10, first=10 * number))
    end = client.position("roads")
    middle = client.reach("roads", "events", start, end, 15)
    first = pa.Table.from_batches(client.journal("roads", "events", start, middle))
    rest = pa.Table.from_batches(client.journal("roads", "events", middle, end))
    assert first.num_rows == 20  # whole calls
    assert first["id"].to_pylist() + rest["id"].to_pylist() == [f"e{n}" for n in range(40)]
    assert list(client.journal("roads", "events", end, end)) == []


def test_closing_in_the_middle_of_a_write_ends_it(
    client: GateClient, shared: Any, small: None, monkeypatch: Any
) -> None:
    """A part of the rows has landed, then the database is closed; the writer is told."""
    opened = share(shared)
    begun = threading.Event()
    whole = Channel.apply

    def close() -> None:
        begun.wait()
        shared.close()

    closer = threading.Thread(target=close)
    closer.start()

    def applied(self: Any, table: pa.Table, **options: Any) -> Any:
        found = whole(self, table, **options)
        begun.set()
        assert opened.client.stopping.wait(300)  # it now waits for this call
        return found

    with monkeypatch.context() as patched:
        patched.setattr(Channel, "apply", applied)
        with pytest.raises((Unavailable, Closed)):
            write(client, events(5500), once=("w", 1))
    closer.join()
    with tideline.open(shared.path) as db, share(db):
        again = connect(shared.path)
        assert 0 < len(ids(again)) < 5500
        landed = write(again, events(5500), once=("w", 1))
        assert landed.rows == 5500
        assert len(ids(again)) == 5500
