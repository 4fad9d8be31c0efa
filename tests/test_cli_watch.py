"""`tideline watch` as a user meets it: on a server and on a folder, in a pipe and on a terminal."""

from __future__ import annotations

import json
import os
import pty
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import tideline
from tideline.server import running

SOURCE = Path(__file__).resolve().parents[1] / "src"
TIMEOUT_S = 300  # the first call may compile kernels
ORDERS = [{"id": n, "shop": n % 3, "total": n * 10} for n in range(1, 7)]
Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """`start(words)`: the command, until the test ends; `out` is where it prints."""
    started: list[subprocess.Popen[bytes]] = []

    def command(*words: str, out: Any = subprocess.PIPE, **more: str) -> subprocess.Popen[bytes]:
        env = {**os.environ, "PYTHONPATH": os.environ.get("PYTHONPATH") or str(SOURCE), **more}
        started.append(
            subprocess.Popen(
                [sys.executable, "-m", "tideline", "watch", *words],
                cwd=tmp_path,
                env=env,
                stdout=out,
                stderr=subprocess.PIPE,
            )
        )
        return started[-1]

    yield command
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture
def served() -> Iterator[tuple[Any, str]]:
    """A collection of orders, and the address of its server."""
    with tideline.open(":memory:") as db:
        orders = db.collection("orders", key="id")
        orders.put_many(ORDERS)
        with running(db) as url:
            yield orders, url


def ended(process: subprocess.Popen[bytes]) -> None:
    """Ctrl-C ends it, quietly."""
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, error) == (130, b"")


def read(process: subprocess.Popen[bytes]) -> Any:
    """The next line that it prints."""
    assert process.stdout is not None
    text = process.stdout.readline()
    assert text, process.communicate()
    return json.loads(text)


def test_in_a_pipe_each_state_is_a_line(served: tuple[Any, str], start: Start) -> None:
    orders, url = served
    asked: dict[str, Any] = {"sort": [("total", -1)], "limit": 3}
    process = start(url, "orders", '{"shop": {"$ne": 2}}', "--sort", "total:-1", "--limit", "3")
    states = {orders.position(): orders.find({"shop": {"$ne": 2}}, **asked)}
    told = read(process)
    pick = random.Random(3)
    for _ in range(60):
        key = pick.randrange(1, 9)
        if pick.random() < 0.2:
            orders.delete(key)
        else:
            orders.put({"id": key, "shop": pick.randrange(3), "total": pick.randrange(90)})
        states[orders.position()] = orders.find({"shop": {"$ne": 2}}, **asked)
    while told["version"] < max(states) and told["result"] != states[max(states)]:
        assert told["result"] == states[told["version"]]
        told = read(process)
    ended(process)


def test_changes_are_lines_that_lead_from_the_first_state_to_the_last(
    served: tuple[Any, str], start: Start
) -> None:
    orders, url = served
    process = start(url, "orders", "--sort", "total", "--offset", "1", "--limit", "3", "--changes")
    rows = read(process)["result"]
    assert rows == orders.find(sort=[("total", 1)], skip=1, limit=3)
    orders.put({"id": 9, "shop": 1, "total": 15})
    orders.update(9, {"$set": {"total": 35}, "$unset": {"shop": ""}})
    orders.delete(3)
    wanted = orders.find(sort=[("total", 1)], skip=1, limit=3)
    while rows != wanted:
        change = read(process)
        kind, at, to = (change[name] for name in ("kind", "old_index", "index"))
        row = change.get("document") if kind == "add" else rows.pop(at)
        if kind in ("change", "changeIndex"):
            row |= change["fields"]
            row = {name: value for name, value in row.items() if name not in change["gone"]}
        if kind != "remove":
            rows.insert(to, row)
    ended(process)


def test_groups(served: tuple[Any, str], start: Start) -> None:
    orders, url = served
    process = start(url, "orders", '{"total": {"$gt": 10}}', "--by", "shop", "--count",
                    "--sum", "total", "--max", "total")  # fmt: skip
    found = read(process)["result"]
    assert found == [
        {"shop": 0, "count": 2, "sum_total": 90, "max_total": 60},
        {"shop": 1, "count": 1, "sum_total": 40, "max_total": 40},
        {"shop": 2, "count": 2, "sum_total": 70, "max_total": 50},
    ]
    orders.delete(4)
    assert read(process)["result"] == [found[0], found[2]]
    ended(process)


def test_on_a_terminal_a_table_is_drawn_again_in_place(
    served: tuple[Any, str], start: Start
) -> None:
    orders, url = served
    orders.put({"id": 70, "shop": "\x1b[31m[b]red", "total": 70})
    near, far = pty.openpty()
    process = start(url, "orders", "--sort", "total:-1", "--limit", "2", out=far,
                    TERM="xterm", COLUMNS="80", LINES="24")  # fmt: skip
    os.close(far)
    screen = b""

    def wait_for(pattern: bytes) -> None:
        nonlocal screen
        limit = time.monotonic() + TIMEOUT_S
        while not re.search(pattern, screen, re.DOTALL):
            assert time.monotonic() < limit, screen
            screen += os.read(near, 65536)

    wait_for(rb"version 7, 2 rows")
    assert b"[31m[b]red" in screen  # a document's text is text
    assert b"\x1b[31m" not in screen
    screen = b""
    orders.put({"id": 5, "shop": 2, "total": 654321})
    wait_for(rb"\x1b\[1;7m\s*654,321.*version 8, 2 rows")
    assert b"\x1b[1A" in screen  # the cursor went up again
    screen = b""
    wait_for(rb"(?<!;7m)654,321")  # after a moment nothing is marked
    process.send_signal(signal.SIGINT)
    wait_for(rb"\x1b\[\?25h")  # the cursor is seen again
    _, error = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, error) == (130, b"")
    os.close(near)


def test_a_folder_shows_what_expires(start: Start, tmp_path: Path) -> None:
    with tideline.open(tmp_path / "data") as db:
        orders = db.collection("orders", key="id")
        orders.put({"id": 1})
        orders.put({"id": 2}, ttl_s=3)
    process = start("data", "orders", "--json")
    told = read(process)["result"]
    if len(told) == 2:  # a busy machine may have taken longer
        told = read(process)["result"]
    assert told == [{"id": 1}]
    ended(process)


def test_a_server_that_is_away_is_waited_for_and_nothing_is_missed(
    start: Start, tmp_path: Path
) -> None:
    with tideline.open(tmp_path / "data") as db:
        orders = db.collection("orders", key="id")
        with running(db) as url:
            process = start(url, "orders", "--changes")
            assert read(process)["result"] == []
        for n in range(3):
            orders.put({"id": n})
        with running(db, port=int(url.rpartition(":")[2])):
            told = [read(process) for _ in range(3)]
            assert [(each["kind"], each["key"]) for each in told] == [("add", n) for n in range(3)]
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=TIMEOUT_S)
            assert process.returncode == 130


def test_a_dropped_collection_ends_it(served: tuple[Any, str], start: Start) -> None:
    _, url = served
    process = start(url, "orders", "--changes")
    read(process)
    with tideline.connect(url) as remote:
        remote.drop_collection("orders")
    _, error = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 5
    assert error.startswith(b"tideline: Closed: the collection was dropped")


WRONG: list[tuple[list[str], int, str]] = [
    (["orders", "{shop: 7}"], 2, "where must be JSON"),
    (["orders", '{"shop": {"$gtt": 7}}'], 2, r"\$gtt"),
    (["orders", "--sort", "total:down"], 2, "--sort must be"),
    (["orders", "--limit", "ten"], 2, "--limit"),
    (["orders", "--limit", "-1"], 2, "limit"),
    (["orders", "--offset", "-1"], 2, "offset"),
    (["orders", "--count"], 2, "--count is of groups"),
    (["orders", "--sum", "total"], 2, "--sum is of groups"),
    (["orders", "--by", "shop", "--sort", "shop"], 2, "leave out --sort"),
    (["orders", "--by", "shop", "--limit", "3"], 2, "leave out --limit"),
    (["orders", "--by", "shop", "--offset", "3"], 2, "leave out --offset"),
    (["orders", "--by", ""], 2, "by"),
    (["order"], 3, "no such collection"),
]


def test_wrong_input_is_named(served: tuple[Any, str], capsys: pytest.CaptureFixture[str]) -> None:
    from tideline.cli.main import main

    orders, url = served
    for words, code, said in WRONG:
        with pytest.raises(SystemExit) as failed:
            main(["watch", url, *words])
        error = capsys.readouterr().err
        assert (failed.value.code, error.count("\n")) == (code, 1), words
        assert re.search(said, error), words
    assert orders.hub.count == 0
