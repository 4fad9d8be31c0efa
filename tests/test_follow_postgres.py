"""examples/follow_postgres.py on a real PostgreSQL: every committed change arrives, in order.

docs/guide/follow-postgres.md shows parts of the program; they are in it to the letter.
"""

from __future__ import annotations

import random
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tideline

pytest.importorskip("psycopg", reason="psycopg is not installed: pip install 'psycopg[binary]'")

from benchmarks.peers.postgres_cluster import Cluster, missing
from examples.follow_postgres import follow_once, prepare

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = ROOT / "examples" / "follow_postgres.py"

LACKS = missing() or ""  # PostGIS is for the benchmarks only
needs_postgres = pytest.mark.skipif(LACKS != "" and "PostGIS" not in LACKS, reason=LACKS)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    found = Cluster(tmp_path_factory.mktemp("postgres"), 64, fsync=False)
    yield found
    found.close()


@pytest.fixture
def table(cluster: Cluster) -> Iterator[Any]:
    postgres = cluster.connect()
    postgres.execute("DROP TABLE IF EXISTS orders, tideline_notes CASCADE")
    postgres.execute("CREATE TABLE orders (id int PRIMARY KEY, shop text, total numeric)")
    postgres.execute("INSERT INTO orders VALUES (1, 'north', 20), (2, 'south', 30)")
    yield postgres
    postgres.close()


def rows_of(postgres: Any) -> dict[int, dict[str, Any]]:
    found = postgres.execute("SELECT id, to_jsonb(orders) FROM orders").fetchall()
    return dict(found)


def stored(orders: Any) -> dict[int, dict[str, Any]]:
    return {each["id"]: each for each in orders.find()}


@needs_postgres
def test_the_rows_that_are_there_come_first(table: Any) -> None:
    with tideline.open(":memory:") as db:
        orders = db.collection("orders", key="id")
        prepare(table, "orders", "id")
        prepare(table, "orders", "id")  # again: nothing is noted twice
        assert follow_once(table, "orders", orders) == 2
        assert follow_once(table, "orders", orders) == 0
        assert stored(orders) == rows_of(table)


@needs_postgres
def test_a_reader_sees_what_is_committed_and_in_order(table: Any, cluster: Cluster) -> None:
    """The transaction that began first changes the row last, and another one is rolled back."""
    early, late = cluster.connect(), cluster.connect()
    with tideline.open(":memory:") as db:
        orders = db.collection("orders", key="id")
        prepare(table, "orders", "id")
        follow_once(table, "orders", orders)
        early.execute("BEGIN")
        early.execute("UPDATE orders SET total = 1 WHERE id = 2")
        late.execute("UPDATE orders SET total = 2 WHERE id = 1")
        assert follow_once(table, "orders", orders) == 0  # not while an older one is running
        early.execute("UPDATE orders SET total = 3 WHERE id = 1")
        early.execute("COMMIT")
        late.execute("BEGIN")
        late.execute("DELETE FROM orders")
        late.execute("ROLLBACK")
        assert follow_once(table, "orders", orders) == 3
        assert stored(orders) == rows_of(table)
        assert orders.get(1)["total"] == 3
    early.close()
    late.close()


@needs_postgres
def test_any_changes_give_the_same_rows(table: Any) -> None:
    draw = random.Random(7)
    with tideline.open(":memory:") as db:
        orders = db.collection("orders", key="id")
        prepare(table, "orders", "id")
        for _ in range(150):
            one, other = draw.randrange(12), draw.randrange(12)
            table.execute(
                draw.choice(
                    [
                        "INSERT INTO orders VALUES (%(a)s, 'west', 5) ON CONFLICT (id) DO NOTHING",
                        "UPDATE orders SET total = total + 1 WHERE id IN (%(a)s, %(b)s)",
                        "DELETE FROM orders WHERE id = %(a)s",
                        "UPDATE orders SET id = id + 100 WHERE id = %(a)s AND NOT EXISTS"
                        " (SELECT 1 FROM orders WHERE id = %(a)s + 100)",
                    ]
                ),
                {"a": one, "b": other},
            )
            if draw.random() < 0.2:
                follow_once(table, "orders", orders)
        follow_once(table, "orders", orders)
        assert stored(orders) == rows_of(table)


@needs_postgres
def test_the_program_follows_until_it_is_stopped(
    table: Any, cluster: Cluster, tmp_path: Path
) -> None:
    where = f"host={table.info.host} user=tideline dbname=postgres"
    folder = tmp_path / "data"
    from tideline.server import running

    with tideline.open(folder) as db, running(db) as url:
        orders = db.collection("orders", key="id")
        program = subprocess.Popen(
            [sys.executable, str(PROGRAM), where, "orders", "id", url], cwd=ROOT
        )
        try:
            table.execute("INSERT INTO orders VALUES (9, 'east', 90)")
            deadline = time.monotonic() + 120
            while stored(orders) != rows_of(table):
                assert program.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.05)
        finally:
            program.kill()
            program.wait()


def test_the_guide_shows_the_program() -> None:
    page = (ROOT / "docs" / "guide" / "follow-postgres.md").read_text(encoding="utf-8")
    program = PROGRAM.read_text(encoding="utf-8")
    shown = re.findall(r"^```py\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert shown
    assert [part for part in shown if part.strip() not in program] == []
