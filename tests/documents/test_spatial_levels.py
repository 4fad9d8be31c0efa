"""A leveled collection keeps an index on places in components that are apart by space."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from box_kind import BoxKind

import tideline
from tideline.documents.collection import Collection
from tideline.documents.policies import POLICIES
from tideline.errors import Conflict, InvalidRequest
from tideline.index import kind as index_kind
from tideline.where.parse import parse

LEVELED = {
    "name": "leveled", "first_bytes": 12_000, "ratio": 3, "max_count": 1, "piece_bytes": 5_000,
}  # fmt: skip
KINDS = ("box", "spatial")
SMALL: dict[str, Any] = {
    "none": "none", "constant": {"name": "constant", "k": 3},
    "prefix": {"name": "prefix", "max_bytes": 20_000, "max_count": 2},
    "correlated-prefix": {"name": "correlated-prefix", "max_bytes": 20_000, "max_count": 2},
    "leveled": LEVELED,
    "leveled z": {**LEVELED, "partition": "z"},
    "leveled round-robin": {**LEVELED, "pick": "round-robin"},
    "leveled z round-robin": {**LEVELED, "partition": "z", "pick": "round-robin"},
}  # fmt: skip


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(index_kind._KINDS, "box", BoxKind)


def within(west: float, south: float, east: float, north: float) -> dict[str, Any]:
    return {"at": {"$geoWithin": {"$box": [[west, south], [east, north]]}}}


def place(draw: random.Random, shapes: bool) -> Any:
    x, y = draw.uniform(-20, 20), draw.uniform(-20, 20)
    if not shapes or draw.random() < 0.6:
        return [x, y]
    corners = [[x, y], [x + draw.random(), y], [x, y + draw.random()], [x, y]]
    return {"type": "Polygon", "coordinates": [corners]}


def write(docs: Collection, model: dict[int, Any], draw: random.Random, count: int) -> None:
    shapes = docs.indexes.get("at") == "spatial"
    made = [{"id": draw.randrange(3000), "at": place(draw, shapes)} for _ in range(count)]
    docs.put_many(made)
    model.update((each["id"], each) for each in made)
    gone = [draw.randrange(3000) for _ in range(count // 20)]
    docs.delete_many(gone)
    for key in gone:
        model.pop(key, None)


def agrees(docs: Collection, model: dict[int, Any], draw: random.Random) -> None:
    for _ in range(6):
        x, y = draw.uniform(-20, 20), draw.uniform(-20, 20)
        where = within(x - 2, y - 2, x + 2, y + 2)
        condition = parse(where)
        wanted = {key for key, each in model.items() if condition.matches(each)}
        assert {each["id"] for each in docs.find(where)} == wanted
        newest = [each["id"] for each in docs.find(where)]
        assert [each["id"] for each in docs.find(where, limit=2)] == newest[:2]


def touched(docs: Collection, draw: random.Random) -> float:
    """Components of the index searched for a small box; the others are skipped by their boxes."""
    searched = 0
    for _ in range(30):
        x, y = draw.uniform(-20, 20), draw.uniform(-20, 20)
        told = docs.explain(within(x - 0.5, y - 0.5, x + 0.5, y + 0.5), limit=1)
        [read] = told.components
        assert read.field == "at"
        assert read.searched + read.skipped == docs.stats().indexes[0].components
        assert not read.skipped or "by what they hold: none of" in read.why[0]
        searched += read.searched
    return searched / 30


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("policy", SMALL)
def test_answers_are_the_same_under_every_policy(policy: str, kind: str, tmp_path: Path) -> None:
    draw = random.Random(len(policy))
    model: dict[int, Any] = {}
    with tideline.open(tmp_path) as db:
        docs = db.collection("docs", key="id", indexes={"at": kind}, policy=SMALL[policy])
        for _ in range(5):
            write(docs, model, draw, 300)
            docs._engine.seal()
            agrees(docs, model, draw)
    with tideline.open(tmp_path) as db:
        docs = db.collection("docs", policy=SMALL[policy])
        write(docs, model, draw, 300)
        docs._engine.seal()
        agrees(docs, model, draw)
        docs.drop_index("at")
        docs.create_index("at", kind).wait()
        docs._engine.drain()
        agrees(docs, model, draw)
        assert db.check().collections == 1
    assert set(POLICIES) <= set(SMALL)


@pytest.mark.parametrize("kind", KINDS)
def test_a_level_is_apart_by_space_and_stats_say_what_that_cost(kind: str) -> None:
    found = {}
    for policy in ("none", "leveled", "leveled z", "leveled round-robin"):
        draw, model = random.Random(1), {}  # type: ignore[var-annotated]
        with tideline.open(":memory:") as db:
            docs = db.collection("docs", key="id", indexes={"at": kind}, policy=SMALL[policy])
            for _ in range(12):
                write(docs, model, draw, 250)
                docs._engine.seal()
            [index] = docs.stats().indexes
            amplification = index.write_amplification
            assert amplification is not None
            found[policy] = touched(docs, draw), amplification, index.components
            if policy == "none":
                assert (amplification, index.bytes_merged) == (1.0, 0)
                assert index.bytes_sealed == index.bytes_disk
                assert docs.stats().write_amplification == 1.0
            else:
                infos = docs._engine.alone["at"].tree.infos
                assert max(info.level for info in infos) >= 1
                assert index.bytes_merged > 0
                assert docs.stats().bytes_merged > 0
    assert found["none"][0] == 12
    for policy in ("leveled", "leveled z", "leveled round-robin"):
        count, amplification, components = found[policy]
        assert count < 6, found
        assert components > 6
        assert 1.5 < amplification < 15, found


def test_settings_of_levels_are_checked_stored_and_compared(tmp_path: Path) -> None:
    with tideline.open(tmp_path) as db:
        for bad in ({"partition": "hilbert"}, {"pick": "worst"}):
            with pytest.raises(InvalidRequest, match="must be one of"):
                db.collection("docs", key="id", policy={**LEVELED, **bad})
        db.collection("docs", key="id", policy={**LEVELED, "partition": "z"})
        with pytest.raises(Conflict):
            db.collection("docs", policy=LEVELED)
    with tideline.open(tmp_path) as db:
        assert db.collection("docs").policy["partition"] == "z"
        assert db.collection("docs").policy["pick"] == "best"


def test_a_policy_that_was_stored_before_it_had_these_settings(tmp_path: Path) -> None:
    with tideline.open(tmp_path) as db:
        docs = db.collection("docs", key="id", indexes={"at": "box"}, policy=LEVELED)
        for setting in ("partition", "pick"):
            del docs._engine.facts["policy"][setting]
        docs.put({"id": 1, "at": [1, 2]})
    with tideline.open(tmp_path) as db:
        docs = db.collection("docs", policy=LEVELED)
        assert docs._engine.alone["at"].tree.policy.partition == "str"  # type: ignore[attr-defined]
        assert docs.count(within(0, 0, 3, 3)) == 1
