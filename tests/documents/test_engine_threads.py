"""Readers beside a writer, seals, merges and indexes that come and go: every answer is whole."""

from __future__ import annotations

import contextlib
import json
import threading
from pathlib import Path
from typing import Any

from engine_model import open_engine, records_in, rows_of

from tideline.errors import NotFound, Unavailable
from tideline.where.keys import encode

FACTS: dict[str, Any] = {
    "indexes": {"n": "embedded", "tag": "lazy", "mod": "composite", "pair": "eager"},
    "policy": {
        "name": "leveled",
        "first_bytes": 30_000,
        "ratio": 3,
        "max_count": 2,
        "piece_bytes": 4_000,
    },
    "filter": "n",
}
KEYS, BATCHES = 60, 80


def document(n: int) -> dict[str, Any]:
    return {"n": n, "key": n % KEYS, "tag": f"t{n % 4}", "mod": n % 5, "pair": [n % 2, n % 3]}


def test_readers_never_see_a_half_written_or_replaced_record(tmp_path: Path) -> None:
    engine = open_engine(tmp_path / "c", FACTS)
    failures: list[BaseException] = []
    acknowledged = [-1]  # the number of the newest document that was acknowledged
    done = threading.Event()

    def write() -> None:
        for batch in range(BATCHES):
            numbers = range(batch * 20, batch * 20 + 20)
            engine.write(rows_of([(n % KEYS, document(n)) for n in numbers]))
            acknowledged[0] = numbers[-1]

    def change() -> None:
        while not done.is_set():
            engine.add_index("key", "lazy")
            engine.drain()
            engine.drop_index("key")

    def fresh(doc: dict[str, Any], before: int) -> None:
        """No answer is older than what its key had when the question was asked."""
        assert doc == document(doc["n"])
        newest = before - (before - doc["key"]) % KEYS
        assert doc["n"] >= newest

    def get() -> None:
        turn = 0
        while not done.is_set():
            turn += 1
            before = acknowledged[0]
            found = engine.get(encode(turn % KEYS))
            if found is not None:
                fresh(json.loads(found), before)
            else:
                assert before < KEYS

    def look() -> None:
        turn = 0
        while not done.is_set():
            turn += 1
            before = acknowledged[0]
            for field, value in (("tag", f"t{turn % 4}"), ("mod", turn % 5), ("pair", 1)):
                found = records_in(engine.lookup(field, encode(value), encode(value)))
                assert [seq for seq, _ in found] == sorted((seq for seq, _ in found), reverse=True)
                assert len({doc["key"] for _, doc in found}) == len(found)
                for _, doc in found:
                    fresh(doc, before)
                    assert value in (doc[field] if field == "pair" else [doc[field]])
            found = records_in(engine.lookup("n", encode(before - 5), encode(before + 99), 3))
            assert all(doc["n"] >= before - 5 for _, doc in found)
            with contextlib.suppress(NotFound, Unavailable):
                engine.lookup("key", encode(1), encode(1))

    def scan() -> None:
        while not done.is_set():
            before = acknowledged[0]
            keys: list[bytes] = []
            for part in engine.scan(batch=7):
                keys += part.keys
                for _, doc in records_in(part):
                    fresh(doc, before)
            assert keys == sorted(set(keys))
            assert before < KEYS or len(keys) == KEYS

    def guarded(work: Any) -> None:
        try:
            work()
        except BaseException as error:
            failures.append(error)
            done.set()

    threads = [threading.Thread(target=guarded, args=(work,)) for work in (change, get, look, scan)]
    for thread in threads:
        thread.start()
    try:
        write()
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert failures == []
    engine.check()
    assert engine.count() == KEYS
    engine.close()
