"""Readers, a writer, and indexes that come and go, all at once: no answer is ever wrong."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tideline

KINDS = ("embedded", "composite", "lazy", "eager")

WRITES = 1_500
FIELDS = "abc"


def has(document: Any, field: str, value: int) -> bool:
    return document[field] in (value, [value])


def test_answers_hold_beside_writers_and_changing_indexes(tmp_path: Path) -> None:
    with tideline.open(tmp_path / "data", memory_mb=2) as database:
        found = database.collection(
            "c", key="id", indexes={"a": "lazy", "b": "embedded"}, filter="t",
            policy={"name": "constant", "k": 3},
        )  # fmt: skip
        truth: dict[int, Any] = {}
        ended = threading.Event()
        errors: list[BaseException] = []

        def write(draw: random.Random) -> None:
            for number in range(WRITES):
                if errors:
                    return
                row = {"id": draw.randrange(500), **{f: draw.randrange(20) for f in FIELDS}}
                if number % 7 == 0:
                    row["a"] = [row["a"]]
                if number % 5 == 0:
                    found.delete(row["id"])
                    truth.pop(row["id"], None)
                else:
                    truth[row["id"]] = {**row, "t": number, "pad": "x" * 300}
                    found.put(truth[row["id"]])
                if number % 300 == 299:
                    found._engine.seal()

        def change(draw: random.Random) -> None:
            while not ended.is_set():
                field = draw.choice(FIELDS)
                if field in found.indexes:
                    found.drop_index(field)
                else:
                    found.create_index(field, draw.choice(KINDS)).wait()

        def read(draw: random.Random) -> None:
            while not ended.is_set():
                value, field = draw.randrange(20), draw.choice(FIELDS)
                for each in found.find({field: value}, limit=draw.choice([None, 5])):
                    assert has(each, field, value)
                either = {"$or": [{"a": value}, {"b": {"$gte": value, "$lt": value + 2}}]}
                for each in found.find(either):
                    assert has(each, "a", value) or value <= each["b"] < value + 2
                keys = [each["id"] for each in found.find({field: {"$gte": 3, "$lt": 9}})]
                assert len(keys) == len(set(keys))
                found.count({field: value, "t": {"$gt": 100}})

        def guarded(do: Callable[[random.Random], None], last: bool = False) -> threading.Thread:
            def run() -> None:
                try:
                    do(random.Random(do.__name__))
                except BaseException as error:
                    errors.append(error)
                finally:
                    if last or errors:
                        ended.set()

            return threading.Thread(target=run)

        threads = [guarded(write, last=True), guarded(change), guarded(read)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]
        assert {each["id"]: each for each in found.find()} == truth
        for field in found.indexes:
            for value in range(20):
                keys = sorted(each["id"] for each in found.lookup(field, value))
                assert keys == sorted(k for k, each in truth.items() if has(each, field, value))
        database.check()
