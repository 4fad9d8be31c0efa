"""Matching without Spark: packets go from `pack` to `Processor` as Spark would hand them over.

`Stream` is a query over micro-batches with state in plain dictionaries. It has several workers,
each with a memory of its own, can lose what a task has written, and can forget all memory: what
Spark does seldom and a test wants often. Everything else is the real thing.

`rows` are in the model's terms (tests/tables.py).
"""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd
import pyarrow as pa
from model import WORLDS
from tables import table_of

import tideline
from tideline import Box, Circle
from tideline.clock import FOREVER
from tideline.spark.matching import pack, state
from tideline.spark.matching.processor import Processor
from tideline.spark.matching.settings import BAD, Settings, levels_of, may_be_wide, settings_of
from tideline.spark.matching.whole import run_batches

KINDS = {"publish": 1, "subscribe": 2, "cancel": 3}
RANKS = {"subscribe": 0, "publish": 1, "cancel": 2}
MAP = ["id", "place", "lon", "lat", "radius_m", "at", "until", "body"]

SECOND = 1_000_000
START = 1_700_000_000 * SECOND

Answer = tuple[str, str, str, str, int]


def settings(space: Any, **options: Any) -> Settings:
    """Settings for events with any kind of place."""
    levels = options.pop("levels", None)
    columns = options.pop("columns", MAP)
    wide = may_be_wide(space, columns, levels_of(space, levels))
    given = {"buckets": 4, "unseen": True, "rejected": "drop", "memory_mb": 64} | options
    return settings_of(space, levels=levels, wide=wide, **given)


def operations(rows: Sequence[dict[str, Any]]) -> pa.Table:
    """Rows as `match` unites them, on a map and elsewhere."""
    shapes, texts = table_of(rows, shapes=True), table_of(rows)
    table = texts
    for name in ("lon", "lat", "radius_m"):
        table = table.append_column(name, shapes[name])
    kinds = [KINDS.get(op) for op in table["op"].to_pylist()]
    return table.drop_columns("op").append_column("kind", pa.array(kinds, pa.int8()))


def order(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The order in which rows of one micro-batch run."""
    return sorted(rows, key=lambda row: (row["at"], RANKS[row["op"]], row["id"].encode()))


def answers_of(table: Any) -> list[Answer]:
    """Answers as tuples, sorted; bad rows are left out."""
    columns = [list(table[name]) for name in ("subscription", "event", "user", "kind", "at")]
    return sorted(row for row in zip(*columns, strict=True) if row[3] != "rejected")


def model_answers(model: Any, rows: Sequence[dict[str, Any]]) -> list[Answer]:
    """What a model answers to rows in this order."""
    answers, _ = model.apply(rows)
    return sorted((sub, event, user, kind, rows[n]["at"]) for n, sub, event, user, kind in answers)


def whole(rows: Sequence[dict[str, Any]], told: Settings) -> list[Answer]:
    """A batch: all rows at once."""
    packets = pack.pack_batches(iter(operations(rows).to_batches()), told)
    tables = [pa.Table.from_batches([batch]) for batch in run_batches(packets, told)]
    return sorted(row for table in tables for row in answers_of(table.to_pydict()))


def workload(seed: int, batches: int, size: int) -> list[list[dict[str, Any]]]:
    """Micro-batches with everything in them: shapes, conditions, unseen, cancels, late rows."""
    draw = random.Random(seed)
    places = [place for place in WORLDS["quad"].places if not isinstance(place, Box)]
    made: list[list[dict[str, Any]]] = []
    asked: list[str] = []
    for number in range(batches):
        rows = []
        for n in range(size):
            at = START + (10 * number + draw.randrange(-4, 10)) * SECOND
            place: Any = draw.choice(places)
            if draw.random() < 0.7:
                place = (round(draw.uniform(0, 8), 1), round(draw.uniform(0, 8), 1))
                if draw.random() < 0.3:
                    place = Circle(place, draw.choice([1_000, 30_000, 200_000]))
            life = draw.choice([3, 12, 40, None])
            row = {
                "op": draw.choice(["publish", "publish", "subscribe", "subscribe", "cancel"]),
                "id": f"{number}-{n}", "at": at, "since": at, "place": place, "user": "u",
                "until": FOREVER if life is None else at + life * SECOND,
                "body": {"n": draw.randrange(4)}, "where": None, "unseen": False,
            }  # fmt: skip
            if row["op"] == "subscribe":
                row["since"] = at - draw.choice([0, 5, 30]) * SECOND
                row["user"] = draw.choice("uvwxyz")
                row["unseen"] = draw.random() < 0.3
                row["where"] = draw.choice([None, None, {"n": {"$gte": 2}}])
                asked.append(str(row["id"]))
            elif row["op"] == "cancel":
                if not asked or draw.random() < 0.7:
                    continue
                row = {"op": "cancel", "id": draw.choice(asked), "at": at}
            rows.append(row)
        made.append(rows)
    return made


def expected(space: Any, batches: list[list[dict[str, Any]]]) -> list[Any]:
    """What a channel answers to the same rows in the promised order."""
    names = ["", "publish", "subscribe", "cancel"]
    found = []
    with tideline.open(":memory:") as db:
        channel = db.channel("c", space=space)
        for rows in batches:
            ordered = order(rows)
            table = operations(ordered)
            op = pa.array([names[kind] for kind in table["kind"].to_pylist()])
            applied = channel.apply(table.drop_columns("kind").append_column("op", op))
            for answer in applied.answers.to_pylist():
                at = ordered[answer.pop("row")]["at"]
                found.append((*answer.values(), at))
    return sorted(found)


class Times:
    """`TimerValues` and `ExpiredTimerInfo` in one."""

    def __init__(self, watermark_ms: int, expired_ms: int = 0) -> None:
        self._watermark_ms, self._expired_ms = watermark_ms, expired_ms

    def getCurrentWatermarkInMs(self) -> int:
        return self._watermark_ms

    def getExpiryTimeInMs(self) -> int:
        return self._expired_ms


class Store:
    """The state of one bucket, as `StatefulProcessorHandle` gives it."""

    def __init__(self) -> None:
        self.value: tuple[bytes] | None = None
        self.map: dict[int, bytes] = {}
        self.timers: set[int] = set()
        self.reads = 0

    # a handle
    def getValueState(self, name: str, schema: str) -> Store:
        assert (name, schema) == ("head", "data binary")
        return self

    def getMapState(self, name: str, key: str, value: str) -> Segments:
        assert (name, key, value) == ("segments", "number bigint", "data binary")
        return Segments(self)

    def registerTimer(self, at_ms: int) -> None:
        self.timers.add(at_ms)

    def deleteTimer(self, at_ms: int) -> None:
        self.timers.remove(at_ms)

    # a value
    def get(self) -> tuple[bytes] | None:
        return self.value

    def update(self, value: tuple[bytes]) -> None:
        self.value = value

    def clear(self) -> None:
        self.value = None

    @property
    def size_bytes(self) -> int:
        return sum(map(len, self.map.values()))


class Segments:
    """A map in a `Store`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def getValue(self, key: tuple[int]) -> tuple[bytes] | None:
        self._store.reads += 1
        found = self._store.map.get(key[0])
        return None if found is None else (found,)

    def updateValue(self, key: tuple[int], value: tuple[bytes]) -> None:
        assert isinstance(value[0], bytes)
        self._store.map[key[0]] = value[0]

    def removeKey(self, key: tuple[int]) -> None:
        del self._store.map[key[0]]

    def clear(self) -> None:
        self._store.map.clear()


class Stream:
    """A query; `batch` runs one micro-batch and gives its answers."""

    def __init__(self, told: Settings, workers: int = 2) -> None:
        self.settings = told
        self.stores: dict[int, Store] = {}
        self.workers = [state.new_held() for _ in range(workers)]
        self.watermark_ms = 0
        self.newest_ms = 0

    def batch(self, rows: Sequence[dict[str, Any]], worker: Any = 0, *, lost: Any = None) -> Any:
        """Run a micro-batch on a worker, by number or by bucket.

        With `lost`, the tasks first run on that worker, and what they wrote is thrown away.
        """
        if lost is not None:
            before = copy.deepcopy(self.stores)
            self._tasks(rows, lost)
            self.stores = before
        found = self._tasks(rows, worker)
        times = [row["at"] // 1000 for row in rows if row["at"] is not None]
        self.newest_ms = max([self.newest_ms, *times])
        return found

    def _tasks(self, rows: Sequence[dict[str, Any]], worker: Any) -> list[Answer]:
        self.watermark_ms = self.newest_ms
        packets: dict[int, list[tuple[bool, bytes]]] = {}
        if rows:
            batches = iter(operations(rows).to_batches())
            for batch in pack.pack_batches(batches, self.settings):
                for packet in batch.to_pylist():
                    packet_list = packets.setdefault(packet["bucket"], [])
                    packet_list.append((packet["deltas"], packet["data"]))
        answers: list[Answer] = []
        frames: list[pd.DataFrame] = []
        for label, given in packets.items():
            frame = pd.DataFrame(given, columns=["deltas", "data"])
            with self._matcher(label, worker) as matcher:
                times = Times(self.watermark_ms)
                frames += matcher.handleInputRows((label,), iter([frame]), times)
        self.rejected = [r for f in frames for r in f.to_dict("records") if r["kind"] == "rejected"]
        for frame in frames:
            answers += answers_of(frame)
        self._timers(worker)
        return sorted(answers)

    def _timers(self, worker: Any) -> None:
        for label, store in self.stores.items():
            for at_ms in sorted(at for at in store.timers if at <= self.watermark_ms):
                with self._matcher(label, worker) as matcher:
                    times = Times(self.watermark_ms)
                    info = Times(0, at_ms)
                    assert list(matcher.handleExpiredTimer((label,), times, info)) == []
                store.timers.discard(at_ms)

    def _matcher(self, label: int, worker: Any) -> Any:
        number = worker if isinstance(worker, int) else worker(label)
        return _Task(self, label, number)

    def forget(self) -> None:
        """Every worker is killed."""
        for worker in self.workers:
            worker.clear()

    def close(self) -> None:
        self.forget()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def size_bytes(self) -> int:
        return sum(store.size_bytes for store in self.stores.values())


class _Task:
    """One task: a fresh `Processor` on the memory of its worker."""

    def __init__(self, stream: Stream, label: int, worker: int) -> None:
        self._stream, self._label, self._worker = stream, label, worker

    def __enter__(self) -> Any:
        self._before = state.held
        state.held = self._stream.workers[self._worker]
        processor = Processor(self._stream.settings)
        processor.init(self._stream.stores.setdefault(self._label, Store()))
        return processor

    def __exit__(self, *_: object) -> None:
        state.held = self._before


def labels(stream: Stream) -> Iterator[int]:
    """The buckets that have state."""
    return (label for label, store in stream.stores.items() if store.value and label != BAD)
