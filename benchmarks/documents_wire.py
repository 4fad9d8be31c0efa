"""How fast are documents over the wire: one at a time beside Redis and PostgreSQL, and many?

    python benchmarks/documents_wire.py [--calls N] [--rounds N] [--documents N] [--help]

One program, one connection, one call after the other, by turns: read one document by its key, and
add 1 to a field of it. Redis has hashes, PostgreSQL (psycopg) one table of jsonb. Then many
documents through `tideline.connect`: dicts and an Arrow table in, batches out. The server is a
process of its own on this machine. A peer that is not installed is left out and said so. Writes
benchmarks/results/documents_wire.json, .md and .png.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

if __name__ == "__main__":  # also from a clone that is not installed
    sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

from benchmarks import common
from benchmarks.common import pyplot, say
from benchmarks.peers import postgres_cluster, redis
from benchmarks.server_processes import child, serve

STORED = 10_000
VERBS = ("read", "update")
Call = Callable[[int], Any]
Ways = dict[str, Call]


@contextmanager
def tideline_ways(port: int) -> Iterator[Ways]:
    """Tideline: `find_one` by the key, and `update`."""
    import tideline

    with tideline.connect(f"http://127.0.0.1:{port}") as db:
        cars = db.collection("cars", key="id")
        cars.put_many({"id": n, "seen": 0, "road": f"A{n}"} for n in range(STORED))
        yield {
            "read": lambda n: cars.find_one({"id": n}),
            "update": lambda n: cars.update(n, {"$inc": {"seen": 1}}),
        }


@contextmanager
def redis_ways(port: int) -> Iterator[Ways]:
    """Redis: hashes."""
    import redis as driver

    client = driver.Redis(port=port)
    pipe = client.pipeline()
    for n in range(STORED):
        pipe.hset(f"car:{n}", mapping={"id": n, "seen": 0, "road": f"A{n}"})
    pipe.execute()
    yield {
        "read": lambda n: client.hgetall(f"car:{n}"),
        "update": lambda n: client.hincrby(f"car:{n}", "seen", 1),
    }
    client.close()


@contextmanager
def postgres_ways(cluster: Any) -> Iterator[Ways]:
    """PostgreSQL: one table of jsonb; statements are prepared after a few calls."""
    with cluster.connect() as one:
        one.autocommit = True
        one.execute("CREATE TABLE cars (id int PRIMARY KEY, document jsonb NOT NULL)")
        one.execute(
            "INSERT INTO cars SELECT n, jsonb_build_object('id', n, 'seen', 0, 'road', 'A' || n) "
            f"FROM generate_series(0, {STORED - 1}) n"
        )
        one.execute("VACUUM ANALYZE cars")
        change = (
            "UPDATE cars SET document = jsonb_set(document, '{seen}', "
            "to_jsonb((document->>'seen')::int + 1)) WHERE id = %s RETURNING document"
        )
        yield {
            "read": lambda n: one.execute(
                "SELECT document FROM cars WHERE id = %s", (n,)
            ).fetchone(),
            "update": lambda n: one.execute(change, (n,)).fetchone(),
        }


def median_us(call: Call, calls: int) -> float:
    """The median of so many calls."""
    took = []
    for n in range(calls):
        begin = time.perf_counter()
        call(n * 7_919 % STORED)
        took.append(time.perf_counter() - begin)
    return statistics.median(took) * 1e6


def single(ways: dict[str, Any], calls: int, rounds: int) -> dict[str, dict[str, float]]:
    """Microseconds a call: the medians of the rounds, which are run by turns."""
    with ExitStack() as stack:
        opened = {name: stack.enter_context(way) for name, way in ways.items()}
        found: dict[str, dict[str, list[float]]] = {
            name: {verb: [] for verb in VERBS} for name in opened
        }
        for number in range(rounds + 1):
            for verb in VERBS:
                for name, verbs in opened.items():
                    took = median_us(verbs[verb], calls if number else 300)
                    if number:  # the first warms up
                        found[name][verb].append(took)
                        say(f"{name:9} {verb:7} {took:7.1f} us")
    return {
        name: {verb: statistics.median(took) for verb, took in verbs.items()}
        for name, verbs in found.items()
    }


def many(port: int, count: int, rounds: int) -> dict[str, float]:
    """Documents a second, in and out: the medians of the rounds."""
    import tideline

    documents = [{"id": n, "road": f"A{n % 97}", "text": "words of a tweet " * 6}
                 for n in range(count)]  # fmt: skip
    table = pa.Table.from_pylist(documents)
    found: dict[str, list[float]] = {}

    def timed(name: str, work: Callable[[], Any]) -> None:
        begin = time.perf_counter()
        done = work()
        rate = count / (time.perf_counter() - begin)
        assert done == count, (name, done)
        found.setdefault(name, []).append(rate)
        say(f"{name:16} {rate:10,.0f} documents/s")

    with tideline.connect(f"http://127.0.0.1:{port}") as db:
        for number in range(rounds + 1):
            cars = db.collection(f"many{number}", key="id", indexes={"road": "lazy"})
            timed("put_many, dicts", lambda c=cars: c.put_many(documents).stored)
            timed("put_many, Arrow", lambda c=cars: c.put_many(table).stored)
            timed("scan, Arrow", lambda c=cars: sum(each.num_rows for each in c.scan()))
            timed("find, Arrow", lambda c=cars: sum(each.num_rows for each in c.find_batches()))
            timed("find, dicts", lambda c=cars: len(c.find()))
            db.drop_collection(cars.name)
    return {name: statistics.median(rates[1:]) for name, rates in found.items()}


def missing(driver: str, server: str | None) -> str | None:
    """Why a peer is left out."""
    try:
        __import__(driver)
    except ImportError:
        return f"pip install {driver}"
    return server


def write(results: common.Results) -> Path:
    """The page of results, and its picture."""
    one, bulk = results.parts["single_us"]["data"], results.parts["many"]["data"]
    ours = one["tideline"]
    lines = [
        [name, *(f"{us[verb]:.1f}" for verb in VERBS), *(f"{ours[verb] / us[verb]:.2f}"
                                                         for verb in VERBS)]
        for name, us in one.items()
    ]  # fmt: skip
    facts = results.parts["many"]
    text = (
        "# Documents over the wire\n\nWritten by `python benchmarks/documents_wire.py`.\n\n"
        "One call after the other, on one connection; ratios are ours to theirs, of one run.\n\n"
        + common.markdown_table(
            ["", *(f"{verb}, us" for verb in VERBS), *(f"{verb}, ratio" for verb in VERBS)], lines
        )
        + "\nMany documents, through `tideline.connect`:\n\n"
        + common.markdown_table(
            ["", "documents/s"], [[name, f"{rate:,.0f}"] for name, rate in bulk.items()]
        )
        + "\n![Microseconds a call](documents_wire.png)\n"
        + f"\n{facts['facts']['cpu']}, {facts['facts']['cores']} cores; {facts['date']}, commit"
        + f" {facts['commit']}.\n"
    )
    path = results.folder / "documents_wire.md"
    path.write_text(text, encoding="utf-8")
    _plot(one, results.folder / "documents_wire.png")
    return path


def _plot(one: dict[str, dict[str, float]], path: Path) -> None:
    plt = pyplot()
    figure, axes = plt.subplots(figsize=(6, 3), layout="constrained")
    for number, verb in enumerate(VERBS):
        axes.barh([at + 0.4 * number for at in range(len(one))],
                  [us[verb] for us in one.values()], 0.38, label=verb)  # fmt: skip
    axes.set_yticks([at + 0.2 for at in range(len(one))], list(one))
    axes.set_xlabel("microseconds a call")
    axes.legend()
    figure.savefig(path, dpi=110)


def main() -> None:
    """Measure, and write the results."""
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])  # type: ignore[union-attr]
    options.add_argument("--calls", type=int, default=5_000)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--documents", type=int, default=200_000)
    options.add_argument("--results", type=Path, default=common.RESULTS)
    given = options.parse_args()
    with ExitStack() as stack:
        folder = stack.enter_context(common.scratch())
        server = stack.enter_context(child(serve, str(folder / "db"))).recv()
        ways: dict[str, Any] = {"tideline": tideline_ways(server.port)}
        absent = missing("redis", redis.MISSING if redis.version() == "absent" else None)
        if absent:
            say(f"redis is left out: {absent}")
        else:
            ways["redis"] = redis_ways(stack.enter_context(redis.running())[0])
        absent = postgres_cluster.missing()
        absent = missing("psycopg", None if absent is None or "PostGIS" in absent else absent)
        if absent:
            say(f"postgres is left out: {absent}")
        else:
            cluster = postgres_cluster.Cluster(folder / "postgres", None, fsync=False)
            stack.callback(cluster.close)
            ways["postgres"] = postgres_ways(cluster)
        results = common.Results(given.results, "documents_wire")
        results.put("single_us", single(ways, given.calls, given.rounds))
        results.put("many", many(server.port, given.documents, given.rounds))
    say(f"wrote {write(results)}")


if __name__ == "__main__":
    main()
