"""Other programs that match documents to standing queries.

    lucene, mingo, postgres    conditions without an order -> (matches, documents a second)
    event_reduce               sorted queries with a limit -> (results, events a second)

Each gives None when it cannot be had, and says why. Programs in Java and JavaScript lie beside
this file; what they need comes from the registries, once, into a cache folder of this user.
"""

from __future__ import annotations

import json
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

from benchmarks import common
from benchmarks.common import say
from benchmarks.peers import postgres_cluster
from benchmarks.peers.lucene import VERSION, compiled

__all__ = ["VERSIONS", "event_reduce", "lucene", "mingo", "postgres"]

VERSIONS = {"lucene": VERSION, "mingo": "7.2.6", "event-reduce-js": "6.0.0"}
_HERE = Path(__file__).parent
_BATCH = 100  # documents of a call of Lucene, and of a transaction of PostgreSQL
Matched = tuple[int, float] | None
Queries = list[dict[str, Any]]


def _run(command: list[str], folder: Path | None = None) -> str | None:
    """What a program says; None when it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)
    except FileNotFoundError:
        say(f"left out: {command[0]} is not installed")
        return None
    if done.returncode:
        told = (done.stderr.strip() or done.stdout.strip()).splitlines()
        say(f"left out: {command[0]} failed: {told[-1] if told else done.returncode}")
        return None
    return done.stdout


def _lines(path: Path, rows: list[str]) -> str:
    path.write_text("".join(f"{row}\n" for row in rows))
    return str(path)


# ---- Lucene --------------------------------------------------------------------------------------


def _tabbed(where: dict[str, Any]) -> str:
    """A condition as Monitor.java reads it."""
    if "user" in where:
        fields = ["u", where["user"]]
    elif "product" in where:
        fields = ["p", *where["product"]["$in"]]
    else:
        price, rating = where["price"], where.get("rating", {"$gte": -1})
        fields = ["c", where["category"], price["$gte"], price["$lt"], rating["$gte"]]
    return "\t".join(map(str, fields))


def lucene(folder: Path, queries: Queries, documents: Queries) -> Matched:
    """Lucene Monitor, with its presearcher; building the documents is in the time."""
    try:
        command = compiled(_HERE / "Monitor.java", "lucene-monitor", folder)
    except ImportError as error:
        say(f"left out: {error}")
        return None
    names = ("user", "product", "category", "price", "rating")
    asked = _lines(folder / "queries.tsv", [_tabbed(where) for where in queries])
    given = _lines(folder / "documents.tsv",
                   ["\t".join(str(one[name]) for name in names) for one in documents])  # fmt: skip
    said = _run([*command, asked, given, str(_BATCH)])
    if said is None:
        return None
    matches, seconds = said.split()
    return int(matches), len(documents) / float(seconds)


# ---- JavaScript ----------------------------------------------------------------------------------


def _modules() -> Path | None:
    """A folder with the JavaScript that is needed."""
    folder = common.cache_dir() / "standing"
    names = [f"{name}@{VERSIONS[name]}" for name in ("mingo", "event-reduce-js")]
    if not (folder / "node_modules" / "event-reduce-js").is_dir():
        folder.mkdir(exist_ok=True)
        if _run(["npm", "install", "--no-save", "--prefix", str(folder), *names]) is None:
            return None
    return folder / "node_modules"


def _js(folder: Path, program: str, queries: Queries, documents: Queries, *more: str) -> Any:
    modules = _modules()
    if modules is None:
        return None
    asked = _lines(folder / "queries.json", [json.dumps(where) for where in queries])
    given = _lines(folder / "documents.json", [json.dumps(one) for one in documents])
    said = _run(["node", str(_HERE / program), str(modules), asked, given, *more])
    return None if said is None else json.loads(said)


def mingo(folder: Path, queries: Queries, documents: Queries) -> Matched:
    """mingo: each compiled query on each decoded document."""
    found = _js(folder, "mingo.js", queries, documents)
    return None if found is None else (found["matches"], len(documents) / found["seconds"])


def event_reduce(
    folder: Path, queries: Queries, documents: Queries, limit: int
) -> tuple[list[list[int]], float] | None:
    """event-reduce: equality on `shop`, the dearest first; a rerun sorts what is in memory."""
    found = _js(folder, "reduce.js", queries, documents, str(limit))
    return None if found is None else (found["results"], len(documents) / found["seconds"])


# ---- PostgreSQL ----------------------------------------------------------------------------------

_SCHEMA = """
CREATE TABLE by_user (q int, "user" bigint);
CREATE TABLE by_product (q int, product bigint);
CREATE TABLE by_price (q int, category bigint, low bigint, high bigint, rating bigint);
CREATE TABLE orders (id bigint PRIMARY KEY, "user" bigint, product bigint, category bigint,
                     price bigint, rating bigint);
CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('live', found.q || ' ' || NEW.id) FROM (
        SELECT q FROM by_user w WHERE w."user" = NEW."user"
        UNION ALL SELECT DISTINCT q FROM by_product w WHERE w.product = NEW.product
        UNION ALL SELECT q FROM by_price w WHERE w.category = NEW.category AND w.low <= NEW.price
            AND w.high > NEW.price AND w.rating <= NEW.rating) found;
    RETURN NULL;
END $$;
CREATE TRIGGER told AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION tell();
"""
_INDEXES = """
CREATE INDEX ON by_user ("user");
CREATE INDEX ON by_product (product);
CREATE INDEX ON by_price (category, low, high);
ANALYZE;
"""


def postgres(folder: Path, queries: Queries, documents: Queries) -> Matched:
    """PostgreSQL: queries are rows of indexed tables, a trigger joins with them and notifies.

    Until the listener has all; a transaction has a hundred documents.
    """
    absent = postgres_cluster.missing()
    if absent is not None and "PostGIS" not in absent:
        say(f"left out: {absent}")
        return None
    cluster = postgres_cluster.Cluster(folder / "postgres", None, fsync=False)
    try:
        with cluster.connect() as one, cluster.connect() as listener:
            _store_queries(one, queries)
            listener.execute("LISTEN live")
            heard: list[int] = []
            over = threading.Event()

            def listen() -> None:
                for told in listener.notifies():
                    if told.payload == "over":
                        break
                    heard.append(1)
                over.set()

            thread = threading.Thread(target=listen, daemon=True)
            thread.start()
            rows = [(one["id"], one["user"], one["product"], one["category"], one["price"],
                     one["rating"]) for one in documents]  # fmt: skip
            begin = time.perf_counter()
            for first in range(0, len(rows), _BATCH):
                with one.transaction(), one.cursor() as cursor:
                    cursor.executemany(
                        "INSERT INTO orders VALUES (%s, %s, %s, %s, %s, %s)",
                        rows[first : first + _BATCH],
                    )
            one.execute("NOTIFY live, 'over'")
            over.wait()
            return len(heard), len(documents) / (time.perf_counter() - begin)
    finally:
        cluster.close()


def _store_queries(one: Any, queries: Queries) -> None:
    one.execute(_SCHEMA)
    with one.cursor() as cursor:
        users, products, prices = [], [], []
        for number, where in enumerate(queries):
            if "user" in where:
                users.append((number, where["user"]))
            elif "product" in where:
                products += [(number, product) for product in where["product"]["$in"]]
            else:
                price, rating = where["price"], where.get("rating", {"$gte": -1})
                prices.append((number, where["category"], price["$gte"], price["$lt"],
                               rating["$gte"]))  # fmt: skip
        for table, rows in (("by_user", users), ("by_product", products), ("by_price", prices)):
            with cursor.copy(f"COPY {table} FROM STDIN") as copy:
                for row in rows:
                    copy.write_row(row)
    one.execute(_INDEXES)
