"""What the tests of `watch` share: writes with the results of queries after each, and a stream.

The model is a collection itself: after every write each query is asked again, by `find`.

`Stream` runs the stages as Spark does, micro-batch by micro-batch, on a state store in memory: with
workers that are forgotten, and tasks whose state is lost.
"""

from __future__ import annotations

import copy
import functools
import json
import random
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

import tideline
from tideline.spark.watching import kept, packets
from tideline.spark.watching.cell import broadcast
from tideline.spark.watching.pack import checked_query, pack_queries, pack_writes
from tideline.spark.watching.packets import Settings

Row = dict[str, Any]
Results = dict[int, dict[str, list[Any]]]
"""By version, what `find` gives for each query."""

QUERIES: list[Row] = [
    {"id": "all"},
    {"id": "shop", "where": {"shop": 1}},
    {"id": "dear", "where": {"total": {"$gte": 10}}},
    {"id": "tags", "where": {"tags": {"$elemMatch": {"$regex": "^b"}}, "shop": {"$ne": 2}}},
    {"id": "or", "where": {"$or": [{"shop": 0, "total": {"$lt": 5}}, {"total": None}]}},
    {"id": "sorted", "where": {"shop": {"$in": [0, 1]}}, "sort": [["total", -1], ["shop", 1]]},
    {"id": "top", "sort": [["total", -1]], "limit": 3},
    {"id": "page", "where": {"total": {"$gt": 2}}, "sort": [["total", 1]], "limit": 4, "offset": 2},
    {"id": "newest", "where": {"shop": 2}, "limit": 2},
    {"id": "later", "where": {"shop": 1}, "offset": 3},
]  # fmt: skip


def asked(query: Row, op: str | None = None) -> Row:
    """A query as a row of a frame."""
    where, sort = query.get("where"), query.get("sort")
    return {
        "id": query["id"], "where": None if where is None else json.dumps(where),
        "sort": None if sort is None else json.dumps(sort), "limit": query.get("limit"),
        "offset": query.get("offset"), "op": op,
    }  # fmt: skip


@functools.cache
def story(seed: int, count: int, keys: int = 12) -> tuple[list[Row], Results]:
    """Writes to a collection, as rows of a frame, and the results of all queries after each."""
    draw = random.Random(seed)
    rows: list[Row] = []
    results: Results = {0: {query["id"]: [] for query in QUERIES}}
    with tideline.open(":memory:") as db:
        orders = db.collection("orders", key="id")
        changes = orders.changes(before=True)
        while len(rows) < count:
            key: Any = draw.choice([draw.randrange(keys), f"k{draw.randrange(3)}"])
            if draw.random() < 0.25:
                orders.delete(key)
            else:
                document = {"id": key, "shop": draw.randrange(3), "total": draw.randrange(20),
                            "tags": draw.sample(["a", "b", "bc", "é"], 2)}  # fmt: skip
                if draw.random() < 0.1:
                    del document["total"]
                orders.put(document)
            for change in changes.take():
                rows.append({
                    "key": json.dumps(change.key), "seq": change.seq,
                    "op": "d" if change.is_delete else "u", "document": _text(change.after),
                    "before": _text(change.before),
                })  # fmt: skip
                results[change.seq] = {query["id"]: _found(orders, query) for query in QUERIES}
    return rows, results


def _text(document: Any) -> str | None:
    return None if document is None else json.dumps(document)


def _found(orders: Any, query: Row) -> list[Any]:
    sort = query.get("sort")
    order = None if sort is None else [tuple(pair) for pair in sort]
    found = orders.find(
        query.get("where"), sort=order, limit=query.get("limit"), skip=query.get("offset", 0)
    )
    return list(found)


def applied(changes: Iterable[Row]) -> Results:
    """The results that changes give, by version and query: each where it was told anew."""
    states: dict[str, list[Any]] = {}
    made: Results = {}
    for row in sorted(changes, key=lambda row: (row["version"], row["query"], row["step"] or 0)):
        state = states.setdefault(row["query"], [])
        plain = row["index"] is None and row["old_index"] is None
        document = json.loads(row["document"]) if row["document"] else None
        if plain:
            had = [each for each in state if json.dumps(each["id"]) == row["key"]]
            assert bool(had) == (row["kind"] != "add")
            for each in had:
                state.remove(each)
            if document is not None:
                state.insert(0, document)
        else:
            if row["old_index"] is not None:
                assert json.dumps(state.pop(row["old_index"])["id"]) == row["key"]
            if row["index"] is not None:
                assert row["index"] <= len(state)
                state.insert(row["index"], document)
        made.setdefault(row["version"], {})[row["query"]] = list(state)
    return made


def check(changes: Sequence[Row], results: Results, queries: Sequence[Row] = QUERIES) -> None:
    """Applied in order, the changes give at every version what `find` gave."""
    assert not [row for row in changes if row["kind"] == "error"]
    for query in queries:
        steps = sorted(row["step"] for row in changes
                       if row["query"] == query["id"] and row["step"] is not None)  # fmt: skip
        assert steps == list(range(len(steps)))
    found = applied(changes)
    now: dict[str, list[Any]] = {query["id"]: [] for query in queries}
    for version in sorted(results):
        now |= found.get(version, {})
        want = {query["id"]: results[version][query["id"]] for query in queries}
        assert now == want, version
    assert set(found) <= set(results)


# ---- a stream without Spark ------------------------------------------------------------------


class Store:
    """The state of one part: `ValueState` and `MapState` in one."""

    def __init__(self) -> None:
        self.value: tuple[bytes] | None = None
        self.map: dict[int, bytes] = {}

    def get(self) -> tuple[bytes] | None:
        return self.value

    def update(self, value: tuple[bytes]) -> None:
        self.value = value

    def getValue(self, key: tuple[int]) -> tuple[bytes] | None:
        found = self.map.get(key[0])
        return None if found is None else (found,)

    def updateValue(self, key: tuple[int], value: tuple[bytes]) -> None:
        self.map[key[0]] = value[0]

    def removeKey(self, key: tuple[int]) -> None:
        del self.map[key[0]]


def settings_of(grid: tuple[int, int] | None, queries: Sequence[Row] | None) -> Settings:
    """As `watch` makes them; queries of a stream are None."""
    if queries is None:
        return Settings("id", grid)
    ids = [query["id"] for query in queries]
    texts = [checked_query(asked(query), "id").text for query in queries]
    parts = [_part(id, (grid or (1, 1))[0]) for id in ids]
    table = pa.table([ids, pa.array(texts, pa.binary()), pa.array(parts, pa.int32())],
                     names=["id", "text", "part"])  # fmt: skip
    return Settings("id", grid, packets.written(table))


def _part(text: str, parts: int) -> int:
    return sum(text.encode()) % parts


class Stream:
    """A query of Spark's; `batch` runs one micro-batch and gives its changes."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.stores: dict[tuple[str, int], Store] = {}

    def batch(
        self, writes: Sequence[Row], queries: Sequence[Row] = (), *, lost: bool = False
    ) -> list[Row]:  # fmt: skip
        """Run a micro-batch; with `lost`, once before, and what it wrote is thrown away."""
        if lost:
            before = copy.deepcopy(self.stores)
            self.batch(writes, queries)
            self.stores = before
        grid = self.settings.grid or (1, 1)
        rows = [{**row, "part": _part(row["key"] or "", grid[1])} for row in writes]
        told = iter(pa.Table.from_pylist(rows, schema=_WRITES).to_batches(max_chunksize=7))
        if self.settings.grid is None:
            made = list(broadcast(told, self.settings))
        else:
            made = list(pack_writes(told, self.settings))
            given = [{**row, "part": _part(row["id"] or "", grid[0]), "op": row["op"] or "register"}
                     for row in queries]  # fmt: skip
            if given:
                batches = iter(pa.Table.from_pylist(given).to_batches())
                made += pack_queries(batches, self.settings)
            made = self._stage("filter", made)
        made = self._stage("sort", made)
        assert all(number < 0 for batch in made for number in batch["part"].to_pylist())
        return [row for batch in packets.unpacked(iter(made)) for row in batch.to_pylist()]

    def _stage(self, stage: str, batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
        done = [batch for batch in batches if batch["part"][0].as_py() < 0]
        parts: dict[int, list[bytes]] = {}
        for batch in batches:
            if batch["part"][0].as_py() >= 0:
                parts.setdefault(batch["part"][0].as_py(), []).extend(batch["data"].to_pylist())
        for number, data in parts.items():
            store: Any = self.stores.setdefault((stage, number), Store())
            work = kept.Kept(stage, self.settings, store, store)
            done += packets.packets_of(work.run(number, data))
        return done


_WRITES = pa.schema(
    [("key", pa.string()), ("seq", pa.int64()), ("op", pa.string()), ("document", pa.string()),
     ("before", pa.string()), ("part", pa.int32())]
)  # fmt: skip
