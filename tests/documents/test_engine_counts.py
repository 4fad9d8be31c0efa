"""What a search reads is counted, and blooms, zone maps, filters and merges keep it little."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from engine_model import open_engine, records_in, rows_of

from tideline.documents.engine import Engine
from tideline.where.keys import encode

ROWS = 4_000

KINDS = ("embedded", "composite", "lazy", "eager")


def document(n: int) -> dict[str, Any]:
    """`time` grows with the key, `user` does not."""
    return {"time": n // 4, "user": (n * 7919) % 1000 * 2, "pad": "x" * 200}


def filled(folder: Path, facts: dict[str, Any], generation_bytes: int = 300_000) -> Engine:
    engine = open_engine(
        folder, {"policy": "none", "bloom_bits": 20, **facts}, generation_bytes=generation_bytes
    )
    for first in range(0, ROWS, 500):
        engine.write(rows_of([(2 * n, document(n)) for n in range(first, first + 500)]))
    engine.seal()
    return engine


def spent(engine: Engine, question: Callable[[], Any]) -> dict[str, int]:
    before = engine.counters()
    question()
    return {name: count - before[name] for name, count in engine.counters().items()}


def test_a_get_reads_one_block_and_an_absent_key_seldom_any(tmp_path: Path) -> None:
    engine = filled(tmp_path / "c", {}, generation_bytes=100 << 20)
    assert len(engine.primary.readers) == 1
    there = spent(engine, lambda: [engine.get(encode(2 * n)) for n in range(ROWS)])
    assert there["primary_blocks"] == there["bloom_checks"] == ROWS
    assert there["bloom_false"] == 0
    absent = spent(engine, lambda: [engine.get(encode(2 * n + 1)) for n in range(ROWS - 1)])
    assert absent["bloom_checks"] == ROWS - 1
    assert absent["bloom_false"] == absent["primary_blocks"] < ROWS * 0.02
    engine.close()


def test_a_value_that_grows_with_time_is_found_in_few_blocks(tmp_path: Path) -> None:
    engine = filled(tmp_path / "c", {"indexes": {"time": "embedded", "user": "embedded"}})
    assert len(engine.primary.readers) > 2
    assert len(engine.lookup("time", encode(400), encode(400)).docs) == 4
    near = spent(engine, lambda: engine.lookup("time", encode(400), encode(400)))
    assert near["primary_blocks"] <= 2
    ranged = spent(engine, lambda: engine.lookup("time", encode(400), encode(420)))
    assert ranged["primary_blocks"] <= 84 * 210 // 4096 + 2
    far = spent(engine, lambda: engine.lookup("user", encode(500), encode(500)))
    assert far["primary_blocks"] <= 4 + far["bloom_false"]
    absent = [encode(2 * n + 1) for n in range(999)]
    nothing = spent(engine, lambda: [engine.lookup("user", value, value) for value in absent])
    blocks = sum(int(reader.facts[13]) for reader in engine.primary.readers)
    assert nothing["primary_blocks"] == nothing["bloom_false"] < 999 * blocks * 0.001
    engine.close()


def test_a_search_stops_after_the_component_that_has_enough(tmp_path: Path) -> None:
    engine = filled(tmp_path / "c", {"indexes": {"user": "embedded"}})
    all_of_it = spent(engine, lambda: engine.lookup("user", encode(0), encode(1998)))
    newest = spent(engine, lambda: engine.lookup("user", encode(0), encode(1998), 10))
    assert newest["primary_blocks"] * 2 < all_of_it["primary_blocks"]
    engine.close()


@pytest.mark.parametrize("kind", KINDS)
def test_a_filter_leaves_components_out(kind: str, tmp_path: Path) -> None:
    engine = filled(tmp_path / "c", {"indexes": {"user": kind}, "filter": "time"})
    late = (encode(ROWS // 4 - 20), encode(ROWS))
    whole = spent(engine, lambda: engine.lookup("user", encode(0), encode(1998)))
    part = spent(engine, lambda: engine.lookup("user", encode(0), encode(1998), filter=late))
    which = "primary_blocks" if kind == "embedded" else "index_blocks"
    assert part[which] * 2 < whole[which]
    scanned = spent(engine, lambda: list(engine.scan(filter=late)))
    everything = spent(engine, lambda: list(engine.scan()))
    assert scanned["primary_blocks"] * 2 < everything["primary_blocks"]
    engine.close()


def test_an_estimate_is_not_below_what_is_found(tmp_path: Path) -> None:
    kinds = {"time": "embedded", "user": "lazy"}
    engine = filled(tmp_path / "c", {"indexes": kinds})
    for field in kinds:
        for low, high in ((10, 10), (10, 40), (0, 5000)):
            found = len(engine.lookup(field, encode(low), encode(high)).docs)
            assert engine.estimate(field, encode(low), encode(high)).entries >= found
    engine.close()


def test_entries_of_replaced_records_go_when_both_have_merged(tmp_path: Path) -> None:
    for kind in ("lazy", "composite", "eager"):
        facts = {"indexes": {"n": kind}, "policy": {"name": "constant", "k": 3}}
        engine = open_engine(tmp_path / kind, facts, generation_bytes=100 << 20)
        for turn in range(9):
            engine.write(rows_of([(key, {"n": 100 * turn + key}) for key in range(50)]))
            engine.seal()
        [infos] = [engine.alone["n"].tree.infos]
        assert sum(info.rows for info in infos) <= 3 * 50
        assert len(engine.lookup("n", encode(0), encode(10_000)).docs) == 50
        engine.write(rows_of([(key, None) for key in range(50)]))
        for _ in range(3):
            engine.seal()
            engine.write(rows_of([(1000, {"n": 5})]))
        engine.seal()
        assert records_in(engine.lookup("n", encode(0), encode(10_000)))[0][1] == {"n": 5}
        assert sum(info.rows for info in engine.primary.infos) <= 4
        engine.close()


def test_correlated_indexes_merge_what_the_primary_has_merged(tmp_path: Path) -> None:
    policy = {"name": "correlated-prefix", "max_bytes": 150_000, "max_count": 2}
    engine = filled(
        tmp_path / "c", {"indexes": {"user": "lazy", "time": "composite"}, "policy": policy}, 60_000
    )
    spans = [info.filters["seq"] for info in engine.primary.infos]
    assert 1 < len(spans) < ROWS * 250 // 60_000
    for index in engine.alone.values():
        assert [info.filters["seq"] for info in index.tree.infos] == spans
    engine.close()
