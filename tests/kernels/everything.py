"""Use every kernel once, in every way Python calls it; print the signatures there are then.

Run by test_warm.py, with an empty folder as argument.
"""

from __future__ import annotations

import contextlib
import json
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

import tideline
from tideline.index.texts import Texts
from tideline.kernels import warm
from tideline.space.place import meets
from tideline.standing import Standing
from tideline.testing import ManualClock
from tideline.where import parse
from tideline.where.batch import matching

BOUNDS = (0.0, 0.0, 8.0, 8.0)
SPACES: list[tuple[Any, list[Any]]] = [
    (tideline.Flat(), ["a", "b"]),
    (tideline.Topics(), ["a/b", "a"]),
    (
        tideline.Grid(bounds=BOUNDS, rows=4, cols=4),
        [(1.0, 2.0), tideline.Circle((1, 2), 100)],
    ),
    (
        tideline.QuadTree(bounds=BOUNDS, depth=3),
        [(1, 2), tideline.Circle((1.0, 2.0), 5_000.0), tideline.Box(1, 1, 2, 3), "1.2"],
    ),
]
WHERE = {"kind": "x"}


def table(start_s: float, first: int, rows: int, columns: dict[str, list[Any]]) -> pa.Table:
    """Subscriptions, events and cancels of some of the subscriptions, one a second."""
    ops = [("subscribe", "publish", "publish", "cancel")[n % 4] for n in range(rows)]
    ids = [f"t{first + (n - 3 if op == 'cancel' else n)}" for n, op in enumerate(ops)]
    at = [datetime.fromtimestamp(start_s + n / 1000, UTC) for n in range(rows)]
    return pa.table(
        {
            "op": ops,
            "id": ids,
            "user": ["ann" if op == "subscribe" else None for op in ops],
            "at": at,
            "since": [t - timedelta(hours=1) if op == "subscribe" else None
                      for op, t in zip(ops, at, strict=True)],
            "until": [None if op == "cancel" else t + timedelta(hours=1)
                      for op, t in zip(ops, at, strict=True)],
            "body": ['{"kind": "x"}' if op == "publish" else None for op in ops],
            "where": ['{"kind": "x"}' if n % 8 == 0 else None for n in range(rows)],
            "unseen": [n % 16 == 0 for n in range(rows)],
            **{name: (values * rows)[:rows] for name, values in columns.items()},
        }
    )  # fmt: skip


def tables(space: Any) -> list[dict[str, list[Any]]]:
    if isinstance(space, (tideline.Flat, tideline.Topics)):
        return [{"place": ["a", "b", "c"]}]
    return [
        {"lon": [1.0, 2.5], "lat": [2.0, 3.0]},
        {"lon": [1.0, 2.5], "lat": [2.0, 3.0], "radius_m": [100.0, None]},
        {"place": ["1.2"]},
        {"lon": [1, 2], "lat": [2, 3]},
    ]


def ask(channel: Any, places: list[Any], mark: str) -> None:
    """Every verb."""
    poll = channel.layout == "poll"
    encoded = [channel.space.encode(place) for place in places]
    for one in encoded:
        meets(channel.space, one, encoded[0])
    for n, place in enumerate(places):
        channel.publish(place, {"kind": "x"}, id=f"{mark}e{n}", ttl_s=3000, related=True)
        channel.publish(place, {"kind": "x"}, id=f"{mark}e{n}", ttl_s=3000)
        channel.subscribe(place, user="ann", id=f"{mark}s{n}", since_s=-60, until_s=3000)
        channel.subscribe(place, user="bob", since_s=-60, until_s=3000, where=WHERE)
        if not poll:
            channel.subscribe(place, user="ann", since_s=-60, until_s=3000, unseen=True)
            unseen = channel.subscribe(place, user="ann", id=f"{mark}u{n}", since_s=-60,
                                       until_s=3000, unseen=True, where=WHERE)  # fmt: skip
            channel.resume(f"{mark}s{n}")
        told = channel.publish(place, {"kind": "x"}, ttl_s=5)
        assert poll or told.subscriptions  # they are made when somebody looks
        channel.find(place)
        channel.find(place, where=WHERE, limit=1)
        if not poll:
            unseen.cancel()
            channel.cancel(f"{mark}s{n}")
    channel.subscriptions()
    channel.scan("events", place=places[0], where=WHERE)
    channel.stats()


def outlive(channel: Any, clock: ManualClock) -> None:
    """An event that is valid for longer than the subscriptions it answered."""
    channel.publish("a", 1, ttl_s=300)
    channel.subscribe("a", user="ann", since_s=-10, until_s=5)
    for seconds in (8, 60):
        clock.advance(seconds)
        channel.publish("b", 1, ttl_s=9)
    for part in range(12):  # as many live records at every moment: tables with stale entries
        places = [f"place {n}" for n in range(1_500)]
        channel.apply(table(clock.now() / 1e6, 10_000 * part, 1_500, {"place": places}))
        clock.advance(2 * 3600)
    for n in range(20_000):
        clock.advance(0.001)
        channel.publish(f"place {n}", 1, ttl_s=2)
    engine = channel.core.engine
    with engine.lock:  # nothing is sealed meanwhile: the third finds what the second left
        memory = engine.sides[0].memory
        for _ in range(3):  # the first may change their size, the third finds it right and sweeps
            memory._rebuild_dir()
            memory._rebuild_ids()


def use(folder: str, clock: ManualClock) -> None:
    with tideline.open(folder, clock=clock, memory_mb=8) as database:
        outlive(database.channel("flat"), clock)
        database.drop_channel("flat")
        for layout in ("dual", "two", "poll"):
            for number, (space, places) in enumerate(SPACES):
                channel = database.channel(f"{layout}{number}", space=space, layout=layout)
                ask(channel, places, "1-")
                for part, columns in enumerate(tables(space)):
                    rows = table(clock.now() / 1e6, 1000 * part, 300, columns)
                    channel.apply(pa.concat_tables([rows.slice(0, 7), rows.slice(7)]))
                    channel.apply(rows.slice(5, 1))
                    channel.apply(rows.slice(0, 0))
                    channel.apply(rows.combine_chunks().to_batches()[0])
                if layout != "poll":
                    kept = [channel.subscribe(places[0], user="eve", until_s=3000).id
                            for _ in range(200)]  # fmt: skip
                channel.seal()
                ask(channel, places, "2-")
                if layout != "poll":
                    for name in kept:
                        channel.cancel(name)
                channel.seal()
                channel.maintain()
                ask(channel, places, "3-")
        clock.advance(10)
    if folder == ":memory:":
        return
    with tideline.open(folder, clock=clock, memory_mb=8) as database:
        for name in database.channels():
            channel = database.channel(name)
            ask(channel, SPACES[int(name[-1])][1], "4-")
        database.check()
        clock.advance(7200)
        for name in database.channels():
            channel = database.channel(name)
            ask(channel, SPACES[int(name[-1])][1], "5-")
            channel.maintain()


def crowd(clock: ManualClock) -> None:
    """A place with many conditions, and an area with corners."""
    with tideline.open(":memory:", clock=clock) as database:
        channel = database.channel("roads")
        for n in range(50):
            channel.subscribe("a", user="ann", until_s=3000, where={"n": n})
        for n in range(40):
            channel.publish("a", {"n": n}, ttl_s=9)
        assert channel.core.engine.conditions.filed
    space = tideline.QuadTree(bounds=BOUNDS, depth=3)
    area = space.encode(tideline.Polygon([(1, 1), (3, 1), (2, 3)]))
    meets(space, area, space.encode((2, 2)))


def overfill(folder: str, clock: ManualClock) -> None:
    """More than memory holds in one batch; then a write that cannot be logged."""
    with tideline.open(folder, clock=clock, memory_mb=1) as database:
        channel = database.channel("roads")
        for part in range(4):
            places = [f"place {n}" for n in range(5_000)]
            channel.apply(table(clock.now() / 1e6, 30_000 * part, 30_000, {"place": places}))
        log = channel.core.engine.store.log

        def fail(*_: Any) -> Any:
            raise OSError("full")

        log.append_parts, kept = fail, log.append_parts
        with contextlib.suppress(tideline.TidelineError, OSError):
            channel.publish("a", 1, ttl_s=9)
        with contextlib.suppress(tideline.TidelineError, OSError):
            channel.apply(table(clock.now() / 1e6, 200_000, 8, {"place": ["a"]}))
        log.append_parts = kept


KINDS = {"n": "embedded", "tag": "lazy", "place": "composite", "mod": "eager"}


def documents(first: int, count: int) -> list[dict[str, Any]]:
    """Documents with a scalar of every kind, arrays, escapes, and some keys again and again."""
    return [
        {
            "id": n % 3_000, "n": n, "tag": f"t{n % 50}", "mod": [n % 3, n % 5],
            "place": [None, True, 1.5, 2**60 + n, "é\\n"][n % 5], "text": "x" * 200,
        }
        for n in range(first, first + count)
    ]  # fmt: skip


def collect(folder: str) -> None:
    """Collections of documents: every kind of index, filled past a seal, merged, opened again."""
    with tideline.open(folder, memory_mb=1) as database:
        for number, policy in enumerate(("prefix", "correlated-prefix", "leveled")):
            found = database.collection(
                f"c{number}", key="id", indexes=KINDS, policy=policy, filter="n"
            )
            ask_collection(found)
            for part in range(8 if number == 0 else 2):
                found.put_many(documents(10_000 * part, 4_000))
                found.put_many(pa.Table.from_pylist(documents(10_000 * part, 100)[:1]))
                found.put_many([json.dumps(document) for document in documents(50_000, 40)])
            ask_collection(found)
            engine = found._engine
            engine.seal()
            ask_collection(found)
            engine.add_index("text", "lazy")
            engine.drain()
            engine.count()
            engine.check()
    if folder == ":memory:":
        return
    with tideline.open(folder, memory_mb=1) as database:
        for name in database.collections():
            ask_collection(database.collection(name))
        database.check()


def ask_collection(found: Any) -> None:
    """Every verb."""
    found.put(documents(1, 1)[0])
    found.get(1)
    found.get_many([1, 2, "none"])
    found.delete(1)
    for field in KINDS:
        found.lookup(field, 3, k=2)
        found.lookup(field, "t3")
        found.range_lookup(field, 1, 40, k=5)
        found.range_lookup(field, "a", "z")
    found.find({"n": {"$gt": 5}, "tag": "t3"}, sort=[("n", -1)], limit=3)
    found.explain({"place": 1.5})
    list(found.scan())
    list(found._engine.scan(b"\x01", b"\x02"))
    found.stats()


def filter_bodies() -> None:
    """Every way to look at bodies in a batch, in arrays of every make."""
    texts = ['{"a": 1, "b": {"c": "x"}}', '{"a": 2.5, "b": [1]}', '{"b": {"c": "longer"}}', None]
    wheres: list[dict[str, Any]] = [
        {"a": {"$gt": 1}}, {"a": 1 << 63}, {"a": {"$lte": 0.5}}, {"b.c": "x"},
        {"b.c": {"$lt": "é"}}, {"b.c": {"$regex": "o.g"}}, {"a": {"$exists": True}},
        {"a": {"$in": list(range(20))}},
    ]  # fmt: skip
    for kind in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary()):
        for bodies in (
            pa.array(texts * 50, kind),
            pa.array(texts, kind).slice(1),
            pa.array([], kind),
        ):
            for where in wheres:
                matching(parse(where), bodies)


def keep_documents(folder: str) -> None:
    """Collections of every kind and policy: written every way, sealed, merged, asked, reopened."""
    kinds = ("eager", "lazy", "composite", "embedded")
    for number, policy in enumerate(("none", {"name": "constant", "k": 2}, "correlated-prefix")):
        with tideline.open(folder, memory_mb=8) as database:
            made = database.collection(
                f"c{number}", key="id", indexes=dict(zip("abcd", kinds, strict=True)),
                policy=policy, filter="t",
            )  # fmt: skip
            for part in range(4):
                docs = [
                    {"id": n % 700, **dict.fromkeys("abcd", n % 50), "t": n, "x": "y" * 50}
                    for n in range(1000 * part, 1000 * part + 900)
                ]
                made.put_many(docs[:300])
                made.put_many([json.dumps(each) for each in docs[300:600]])
                made.put_many(pa.Table.from_pylist([{**d, "l": [1, None]} for d in docs[600:]]))
                text = '{"id": "k", "a": [1, "x"], "b": "\\u0041"}'
                made.put_many(pa.table({"document": [text]}))
                made.put({"id": f"key {part}", "a": 2**60 + 1, "b": None, "c": True, "d": 0.5})
                made.delete(part)
                question(made)
                made._engine.seal()
                question(made)
        if folder == ":memory:":
            continue
        with tideline.open(folder, memory_mb=8) as database:
            made = database.collection(f"c{number}")
            made.put({"id": 1, "a": 1})
            question(made)
            for field, kind in zip("tuvw", kinds, strict=True):
                made.create_index(field, kind).wait()
                made.range_lookup(field, 5, k=3)
            made.drop_index("t")
            made.drop_index("w")
            question(made)
            database.check()


def order_values() -> None:
    """Many values of one memory, asked for a range, and again after more came."""
    with tideline.open(":memory:") as database:
        made = database.collection("ordered", key="id", indexes={"v": "lazy"})
        for part in range(2):
            made.put_many([{"id": n, "v": n} for n in range(6000 * part, 6000 * part + 6000)])
            made.range_lookup("v", 5, 9)


def find_places(folder: str) -> None:
    """Places of every make: written, sealed, merged, asked every way, opened again."""
    places: list[Any] = [
        [1, 2], {"type": "Point", "coordinates": [3.5, 4, 1]}, "nowhere",
        {"type": "LineString", "coordinates": [[0, 0], [5, 5]]},
        {"type": "Polygon", "coordinates": [[[0, 0], [9, 0], [9, 9], [0, 0]]]},
    ]  # fmt: skip
    asked: list[dict[str, Any]] = [
        {"$geoWithin": {"$box": [[0, 0], [6, 6]]}}, {"$geoIntersects": {"$box": [[0, 0], [6, 6]]}},
        {"$geoWithin": {"$polygon": [[0, 0], [9, 0], [9, 9]]}},
        {"$geoIntersects": {"$geometry": {"type": "LineString", "coordinates": [[0, 3], [8, 3]]}}},
        {"$geoWithin": {"$centerSphere": [[2, 2], 0.1]}}, {"$near": [2, 2], "$maxDistance": 1e6},
    ]  # fmt: skip
    with tideline.open(folder, memory_mb=1) as database:
        made = database.collection("places", key="id", indexes={"at": "spatial"})
        for part in range(3):
            made.put_many([{"id": n, "at": places[n % 5]} for n in range(6000)])
            made.put({"id": part, "at": [1, 2]})
            for one in asked:
                made.find({"at": one}, limit=3)
                made.count({"at": one})
                list(made.find_batches({"at": one}))
            made.nearest((1, 2), 3)
            made._engine.seal()
            made.explain({"at": asked[0]})
        database.check()
    for one in asked:
        for place in places:
            parse({"at": one}).matches({"at": place})


def question(made: Any) -> None:
    """Every way to ask a collection."""
    for key in (5, "k", "nobody"):
        made.get(key)
    made.get_many([1, 2, "k"])
    for field in "abcd":
        for k in (None, 3):
            made.lookup(field, 7, k=k)
            made.range_lookup(field, 5, 9, k=k)
            made.find({field: {"$gte": 5, "$lt": 9}, "t": {"$lt": 800}}, limit=k)
        made.explain({field: "x" * 2000})
    made.find({"id": {"$gt": 100, "$lt": 200}})
    made.count({"x": {"$ne": "y"}})
    made.aggregate_grid((0, 0, 1, 1), rows=2, cols=2, field="at")
    list(made.scan())
    made.stats()
    made._engine.count()


def stand() -> None:
    """Standing conditions of every make come, are asked and go."""
    standing = Standing()
    wheres: list[dict[str, Any]] = [
        {"a": 1}, {"b": "x", "a": {"$gt": 1, "$lt": 5}}, {"c": {"$words": "flat tire"}},
        {"at": {"$near": [1, 2], "$maxDistance": 500}}, {"b": {"$regex": "^x"}}, {},
    ]  # fmt: skip
    numbers = standing.add_many(
        [parse(where) for where in wheres] + [parse({"a": n}) for n in range(200)]
    )
    old = Texts.of([b'{"a": 3, "b": "x"}', b"", b'{"at": [1, 2], "c": "\xc3\xa9"}'])
    new = Texts.of([b'{"a": [3], "b": "x"}', b'{"a": 1}', b"3"])
    standing.matching(new)
    standing.changes(old, new)
    for number in numbers:
        standing.remove(number)
    [named] = standing.add_many([parse({"named": 1})], named=True)
    standing.find(standing.text(named))
    standing.remove(named, named=True)


def slide(folder: str, clock: ManualClock) -> None:
    """Windows with keys of every width, in memory and sealed, asked every way."""
    mappers = ["count()", "mean(a)", "sum(b)", "min(c)", "max(b)", "quantile(c, 0.9)", "top(2, a)"]
    with tideline.open(folder, clock=clock) as database:
        for number, key in enumerate(
            ({"x": (0, 99), "y": (0, 99)}, ("x", "y"), {"x": "text", "y": "int"})
        ):
            made = database.window(f"w{number}", span_s=20, slide_s=10, key=key, keep="all",
                                   values={"a": "int32", "b": "int64", "c": "float32"})  # fmt: skip
            watch = made.watch((), map=mappers)
            for part in range(4):
                rows = [
                    {"x": n % 50 if number < 2 else f"x{n % 50}",
                     "y": 99 - n // 50 << (20 * number), "a": n, "b": -n, "c": n / 2}
                    for n in range(400)
                ]  # fmt: skip
                for count in (400, 3):
                    made.append(rows[:count] * (15 if part % 2 else 1))
                first = rows[0]["x"]
                made.range((first,), map=mappers)
                made.range(((first,), (first, 7)))
                made.get((first, 3))
                made.get_many([(first, 3), (first, 1 << 40)])
                if part == 1:
                    made.seal()
                clock.advance(7)
            watch.take()
            watch.close()


def keep_texts(folder: str) -> None:
    """Indexes on text, in memory, sealed, merged and built on what is there."""
    with tideline.open(folder) as database:
        made = database.collection(
            "texts", key="id", policy={"name": "constant", "k": 2},
            indexes={"a": "words", "b": "ngrams", "c": "fuzzy", ("at", "e"): "fuzzy"},
        )  # fmt: skip
        for part in range(3):
            made.put({"id": part, "a": "flat tire é", "b": "Flat Tire"})
            made.put_many([
                {"id": n, "a": f"flat {n % 9}", "b": f"tire {n}", "c": f"w{n}x",
                 "at": [n / 3000, 1], "e": f"v{n}x"}
                for n in range(3000)
            ])  # fmt: skip
            for where in ({"a": {"$words": 'tire "flat 5"'}}, {"b": {"$contains": "ire 1"}},
                          {"b": {"$jaccard": {"text": "tire 12", "similarity": 0.5}}},
                          {"b": {"$fuzzy": {"word": "tires7", "distance": 1}}},
                          {"c": {"$fuzzy": {"word": "w250", "distance": 1}}},
                          {"at": {"$geoWithin": {"$box": [[0, 0], [0.02, 2]]}},
                           "e": {"$fuzzy": {"word": "v20", "distance": 1}}}):  # fmt: skip
                made.find(where, limit=5)
                made.explain(where)
            if folder != ":memory:":
                made._engine.seal()
        if folder != ":memory:":
            made.create_index("d", "words").wait()
            made._engine.drain()
            database.check()


def main(folder: Path) -> None:
    stand()
    slide(":memory:", ManualClock(1_000_000))
    slide(str(folder / "windows"), ManualClock(1_000_000))
    keep_texts(":memory:")
    keep_texts(str(folder / "texts"))
    keep_documents(":memory:")
    keep_documents(str(folder / "documents"))
    order_values()
    find_places(":memory:")
    find_places(str(folder / "places"))
    filter_bodies()
    use(":memory:", ManualClock(1_000_000))
    use(str(folder / "all"), ManualClock(1_000_000))
    crowd(ManualClock(1_000_000))
    overfill(str(folder / "full"), ManualClock(1_000_000))
    collect(":memory:")
    collect(str(folder / "collections"))
    found = {
        f"{kernel.py_func.__module__}.{kernel.py_func.__name__}": [
            str(signature) for signature in kernel.signatures
        ]
        for kernel, _ in warm.kernels()
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
