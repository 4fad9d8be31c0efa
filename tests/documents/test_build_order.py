"""An index that is built while others write and merge keeps the order of what was written.

What is built of the documents that were there comes last in a lookup, wherever the entries that
were written meanwhile are by then: in memory, in components, or merged to a higher level.
"""

from __future__ import annotations

import random
import threading
from pathlib import Path
from typing import Any

import pytest
from engine_model import open_engine, rows_of
from test_kinds import SMALL

from tideline.documents.policies import POLICIES
from tideline.where.keys import encode

KINDS = ("embedded", "composite", "lazy", "eager")


class Model:
    """What was written, newest last, and what it answers."""

    def __init__(self, engine: Any, seed: int) -> None:
        self.engine = engine
        self.draw = random.Random(seed)
        self.rows: dict[int, tuple[int, Any]] = {}  # key -> seq, value

    def write(self, count: int) -> None:
        for _ in range(count):
            keys = [self.draw.randrange(300) for _ in range(20)]
            given = [
                (key, None if self.draw.random() < 0.1 else {"a": key % 7, "p": "p" * 60})
                for key in keys
            ]
            seq = self.engine.write(rows_of(given))
            for number, (key, document) in enumerate(given):
                self.rows.pop(key, None)
                if document is not None:
                    self.rows[key] = (seq + number, document["a"])

    def agrees(self) -> None:
        for low, high in [(3, 3), (0, 0), (1, 4), (0, 9)]:
            wanted = sorted((s for s, a in self.rows.values() if low <= a <= high), reverse=True)
            for k in (None, 1, 5, 40, 2000):
                found = self.engine.lookup("a", encode(low), encode(high), k)
                assert found.seqs.tolist() == wanted[:k], (low, high, k)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_built_is_older_than_what_was_merged_meanwhile(
    kind: str, policy: str, tmp_path: Path
) -> None:
    engine = open_engine(tmp_path / "c", {"policy": SMALL[policy]}, generation_bytes=4_000)
    model = Model(engine, seed=len(kind) * 7 + len(policy))
    model.write(20)
    engine.seal()
    for turn in range(3):
        if turn:
            engine.drop_index("a")
        gate = threading.Event()

        def long_merge(gate: threading.Event = gate) -> None:
            gate.wait()  # seals go on meanwhile, and what they make is merged by this very merge
            engine.dataset.tidy()

        engine.dataset.submit(long_merge)
        engine.add_index("a", kind)
        model.write(20)
        engine.dataset.wait_for_seals()
        gate.set()
        engine.drain()
        model.agrees()
        model.write(10)
        engine.seal()
        model.agrees()
        engine.check()
    engine.close()
    engine = model.engine = open_engine(tmp_path / "c")
    model.agrees()
    engine.close()


@pytest.mark.parametrize("kind", KINDS)
def test_indexes_come_and_go_while_writers_write(kind: str, tmp_path: Path) -> None:
    engine = open_engine(tmp_path / "c", {"policy": SMALL["leveled"]}, generation_bytes=4_000)
    model = Model(engine, seed=3)
    ended = threading.Event()

    def change() -> None:
        while not ended.is_set():
            engine.add_index("a", kind)
            engine.drain()
            engine.drop_index("a")

    changer = threading.Thread(target=change)
    changer.start()
    try:
        model.write(150)
    finally:
        ended.set()
        changer.join()
    engine.add_index("a", kind)
    model.write(10)
    engine.drain()
    model.agrees()
    engine.seal()
    model.agrees()
    engine.close()
