"""How many calls a second does one async program make, with 1,000 of them waiting at any time?

    python benchmarks/many_calls.py [--seconds S] [--rounds N]

The async client beside `redis.asyncio` (hashes) and `asyncpg` (jsonb), by turns: read
one document by its key, and add 1 to a field of it. The server is a process of its own on this
machine; the client is this process, in asyncio's own loop. A peer that is not installed is left out
and said so. Writes benchmarks/results/many_calls.json and .md.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # also from a clone that is not installed
    sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

from benchmarks import common
from benchmarks.common import say
from benchmarks.peers import postgres_cluster, redis
from benchmarks.server_processes import child, serve

CALLS, DOCUMENTS = 1_000, 10_000
PEER_CONNECTIONS = 16

Call = Callable[[int], Awaitable[Any]]
Ways = dict[str, Call]


@asynccontextmanager
async def tideline_ways(port: int) -> AsyncIterator[Ways]:
    """Tideline: the verbs of a collection, and publishing."""
    import tideline

    async with await tideline.aconnect(f"http://127.0.0.1:{port}") as db:
        cars = await db.collection("cars", key="id")
        await cars.put_many({"id": n, "seen": 0, "road": f"A{n}"} for n in range(DOCUMENTS))
        roads = await db.channel("bench")
        sub = await roads.subscribe("nothing", user="u")  # opens the live connection

        async def publish(n: int) -> None:
            await roads.publish(f"A{n}", {"speed": n}, ttl_s=60)

        yield {
            "read": cars.get, "update": lambda n: cars.update(n, {"$inc": {"seen": 1}}),
            "publish": publish,
        }  # fmt: skip
        await sub.cancel()


@asynccontextmanager
async def redis_ways(port: int) -> AsyncIterator[Ways]:
    """Redis: hashes, on a pool of connections that calls wait for."""
    from redis import asyncio as aioredis

    pool = aioredis.BlockingConnectionPool(
        host="127.0.0.1", port=port, max_connections=PEER_CONNECTIONS, timeout=60
    )
    client = aioredis.Redis(connection_pool=pool)
    for first in range(0, DOCUMENTS, 1_000):
        pipe = client.pipeline()
        for n in range(first, first + 1_000):
            pipe.hset(f"car:{n}", mapping={"id": n, "seen": 0, "road": f"A{n}"})
        await pipe.execute()
    yield {
        "read": lambda n: client.hgetall(f"car:{n}"),
        "update": lambda n: client.hincrby(f"car:{n}", "seen", 1),
    }
    await client.aclose()


@asynccontextmanager
async def postgres_ways(host: str) -> AsyncIterator[Ways]:
    """PostgreSQL: one table of jsonb, on a pool of connections that calls wait for."""
    import asyncpg

    pool = await asyncpg.create_pool(
        host=host, user="tideline", database="postgres", min_size=PEER_CONNECTIONS,
        max_size=PEER_CONNECTIONS,
    )  # fmt: skip
    await pool.execute("CREATE TABLE cars (id int PRIMARY KEY, document jsonb NOT NULL)")
    await pool.execute(
        "INSERT INTO cars SELECT n, jsonb_build_object('id', n, 'seen', 0, 'road', 'A' || n) "
        f"FROM generate_series(0, {DOCUMENTS - 1}) n"
    )
    await pool.execute("VACUUM ANALYZE cars")
    change = (
        "UPDATE cars SET document = jsonb_set(document, '{seen}', "
        "to_jsonb((document->>'seen')::int + 1)) WHERE id = $1 RETURNING document"
    )
    yield {
        "read": lambda n: pool.fetchval("SELECT document FROM cars WHERE id = $1", n),
        "update": lambda n: pool.fetchval(change, n),
    }
    await pool.close()


async def rate(call: Call, seconds: float) -> float:
    """Calls a second, with so many waiting at any time."""
    done = 0
    begin = time.perf_counter()
    until = begin + seconds

    async def caller(first: int) -> None:
        nonlocal done
        n = first
        while time.perf_counter() < until:
            await call(n % DOCUMENTS)
            done += 1
            n += 7_919

    await asyncio.gather(*(caller(n) for n in range(CALLS)))
    return done / (time.perf_counter() - begin)


async def measure(ways: dict[str, Any], seconds: float, rounds: int) -> dict[str, Any]:
    """The medians of the rounds, by system and way."""
    async with AsyncExitStack() as stack:
        opened = {name: await stack.enter_async_context(way) for name, way in ways.items()}
        found: dict[str, dict[str, list[float]]] = {
            name: {verb: [] for verb in verbs} for name, verbs in opened.items()
        }
        for number in range(rounds + 1):
            for name, verbs in opened.items():
                for verb, call in verbs.items():
                    calls = await rate(call, seconds if number else 0.5)
                    if number:  # the first warms up
                        found[name][verb].append(calls)
                        say(f"{name:9} {verb:8} {calls:9,.0f} calls/s")
    return {
        name: {verb: statistics.median(rates) for verb, rates in verbs.items()}
        for name, verbs in found.items()
    }


def missing_redis() -> str | None:
    """Why Redis is left out."""
    try:
        import redis as driver  # noqa: F401
    except ImportError:
        return "redis is not installed: pip install redis"
    return redis.MISSING if redis.version() == "absent" else None


def missing_postgres() -> str | None:
    """Why PostgreSQL is left out."""
    try:
        import asyncpg  # noqa: F401
    except ImportError:
        return "asyncpg is not installed: pip install asyncpg"
    absent = postgres_cluster.missing()
    return None if absent is None or "PostGIS" in absent else absent  # which is not used here


def main() -> None:
    """Measure, and write the results."""
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])  # type: ignore[union-attr]
    options.add_argument("--seconds", type=float, default=2.0)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--results", type=Path, default=common.RESULTS)
    given = options.parse_args()
    with ExitStack() as stack:
        folder = stack.enter_context(common.scratch())
        server = stack.enter_context(child(serve, str(folder / "db"))).recv()
        ways: dict[str, Any] = {"tideline": tideline_ways(server.port)}
        if missing_redis():
            say(f"redis is left out: {missing_redis()}")
        else:
            ways["redis"] = redis_ways(stack.enter_context(redis.running())[0])
        if missing_postgres():
            say(f"postgres is left out: {missing_postgres()}")
        else:
            cluster = postgres_cluster.Cluster(folder / "postgres", None, fsync=False)
            stack.callback(cluster.close)
            with cluster.connect() as one:
                ways["postgres"] = postgres_ways(one.info.host)
        found = asyncio.run(measure(ways, given.seconds, given.rounds))
    results = common.Results(given.results, "many_calls")
    results.put("calls_per_s", found)
    verbs = ["read", "update", "publish"]
    rows = [
        [name, *(f"{one[verb]:,.0f}" if verb in one else "" for verb in verbs)]
        for name, one in found.items()
    ]
    table = common.markdown_table([f"calls/s, {CALLS:,} waiting", *verbs], rows)
    (results.folder / "many_calls.md").write_text(table)
    print(table)


if __name__ == "__main__":
    main()
