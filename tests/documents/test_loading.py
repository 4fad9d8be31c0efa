"""Bulk load: what was loaded is as if it had been put, and is there whole or not at all."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tideline
from tideline.documents.loading import Piece, adopt, build_piece, recipe_of
from tideline.documents.rows import key_bytes
from tideline.errors import Conflict, InvalidRequest, Unavailable

INDEXES = {"a": "lazy", "b": "eager", "c": "composite", "d": "embedded"}


def documents(seed: int, count: int, keys: int) -> list[dict[str, Any]]:
    """Some documents, each key once, in the order of keys."""
    draw = random.Random(seed)
    chosen = sorted(draw.sample(range(keys), count))
    found: list[dict[str, Any]] = [{"id": key if key % 3 else f"k{key:05}"} for key in chosen]
    for one in found:
        one |= {"a": draw.randrange(9), "b": draw.choice(["x", "y", None])}
        one |= {"c": [draw.randrange(5), "z"], "d": draw.random(), "t": draw.randrange(100)}
        if draw.random() < 0.2:
            del one["a"]
    return sorted(found, key=lambda one: key_bytes(one["id"]))


def as_table(given: list[dict[str, Any]]) -> pa.Table:
    return pa.table({"document": [json.dumps(one) for one in given]})


def load(collection: Any, folder: Path, given: list[dict[str, Any]], size: int = 300) -> None:
    recipe = recipe_of(collection)
    pieces = [
        build_piece(recipe, folder, as_table(given[at : at + size]))
        for at in range(0, len(given), size)
    ]
    first, last = adopt(collection, recipe, pieces)
    assert last + 1 - first == len(given)


def answers(collection: Any, keys: int) -> list[Any]:
    """Everything that can be asked."""
    asked: list[Any] = [collection.get(key) for key in range(keys)]
    asked += [collection.get(f"k{key:05}") for key in range(0, keys, 3)]
    for field in INDEXES:
        for value in (*range(9), "x", "y", "z", None):
            asked.append([one["id"] for one in collection.lookup(field, value)])
    asked.append([one["id"] for one in collection.range_lookup("d", 0.2, 0.6, k=20)])
    asked.append([one["id"] for one in collection.range_lookup("c", 2, 3)])
    asked.append(collection.find({"a": {"$gt": 3}, "t": {"$lt": 50}}, sort=[("d", 1)], limit=30))
    asked.append(collection.find({"c": 2, "b": "x"}))
    asked.append(collection.count({"t": {"$gte": 90}}))
    asked.append([
        (row["key"], row["seq"], json.loads(row["document"]))
        for batch in collection.scan() for row in batch.to_pylist()
    ])  # fmt: skip
    return asked


@pytest.fixture
def make(open_database: Callable[..., Any]) -> Any:
    db = open_database()
    return lambda name: db.collection(name, key="id", indexes=INDEXES, filter="t")


@pytest.mark.parametrize("seed", range(3))
def test_what_is_loaded_is_as_if_it_had_been_put(make: Any, tmp_path: Path, seed: int) -> None:
    put, loaded = make("put"), make("loaded")
    for step in range(4):
        given = documents(10 * seed + step, 700, 2000)
        put.put_many(given)
        if step % 2:
            load(loaded, tmp_path, given)
        else:
            loaded.put_many(given)
        gone = [one["id"] for one in given[::7]]
        put.delete_many(gone)
        loaded.delete_many(gone)
        assert answers(loaded, 2000) == answers(put, 2000)
    loaded._engine.check()
    loaded._engine.seal()  # and merges what is due
    assert answers(loaded, 2000) == answers(put, 2000)
    assert put.position() == loaded.position()


PLACED: dict[str, Any] = {
    "at": "spatial", "text": "words", "name": {"kind": "ngrams", "n": 2},
    ("n", "text"): "composite",
}  # fmt: skip
PLACES: list[dict[str, Any]] = [
    {"at": {"$geoWithin": {"$box": [[-3, -3], [4, 2]]}}},
    {"at": {"$geoWithin": {"$centerSphere": [[1, 1], 0.03]}}, "n": {"$lt": 200}},
    {"at": {"$near": {"$geometry": {"type": "Point", "coordinates": [0.3, 0.2]},
                      "$maxDistance": 200_000}}},
    {"text": {"$words": "fog ice"}},
    {"name": {"$contains": "ap1"}, "text": {"$words": "jam"}},
]  # fmt: skip


def sights(seed: int, count: int, first: int) -> list[dict[str, Any]]:
    """Documents with places and words."""
    draw = random.Random(seed)
    words = ["fog", "ice", "jam", "works", "flood", "\u00e9t\u00e9"]
    return [
        {
            "id": first + n, "n": n, "name": f"map{draw.randrange(30)}",
            "at": {"type": "Point", "coordinates": [draw.uniform(-9, 9), draw.uniform(-9, 9)]},
            "text": " ".join(draw.choices(words, k=draw.randrange(5))),
        }
        for n in range(count)
    ]  # fmt: skip


def test_places_and_words_are_loaded_with_their_indexes(
    open_database: Callable[..., Any], tmp_path: Path
) -> None:
    db = open_database()
    put, loaded = (db.collection(name, key="id", indexes=PLACED) for name in ("put", "loaded"))
    for step in range(3):
        given = sights(step, 500, 400 * step)
        put.put_many(given)
        if step == 1:
            loaded.put_many(given)
        else:
            load(loaded, tmp_path, given)
    for where in PLACES:
        want = put.find(where)
        assert want, where
        found = loaded.find(where)
        if "$near" in str(where):
            assert found == want  # in the order of their distance
        else:
            assert sorted(found, key=repr) == sorted(want, key=repr)
        if "at" in where:
            assert "scan" not in [way.way for way in loaded.explain(where).chosen]
    loaded._engine.check()
    loaded._engine.seal()
    assert [len(loaded.find(where)) for where in PLACES] == [
        len(put.find(where)) for where in PLACES
    ]


def test_a_load_survives_a_restart(open_database: Callable[..., Any], tmp_path: Path) -> None:
    db = open_database()
    cars = db.collection("cars", key="id", indexes=INDEXES, filter="t")
    cars.put_many(documents(1, 300, 2000))
    load(cars, tmp_path, documents(2, 500, 2000))
    cars.put({"id": 1, "a": 4})
    want, position = answers(cars, 2000), cars.position()
    db.close()
    cars = open_database().collection("cars")
    assert (answers(cars, 2000), cars.position()) == (want, position)


def test_a_load_is_a_gap_that_followers_are_told_of(make: Any, tmp_path: Path) -> None:
    cars = make("cars")
    cars.put({"id": 1})
    with cars.changes(0) as changes:
        cars.put({"id": 2})
        load(cars, tmp_path, documents(3, 50, 2000))
        assert [change.seq for change in changes.take(2)] == [1, 2]
        with pytest.raises(Unavailable, match=r"a bulk load came after this seq.*earliest=52"):
            changes.take()
    with pytest.raises(Unavailable, match="a bulk load came after this seq"):
        cars.changes(1)
    assert cars.earliest() == cars.position() == 52
    cars.put({"id": 3})
    assert [change.seq for change in cars.changes(52).take()] == [53]


@pytest.mark.parametrize("moment", ["apply", "commit", "after"])
def test_a_kill_leaves_all_of_a_load_or_nothing(tmp_path: Path, moment: str) -> None:
    """Killed when the files are in place, when the trees have them, when the manifest has them."""
    program = f"""
import os, signal
from pathlib import Path
import tideline
from tests_documents_loading import INDEXES, documents, load
from tideline.lsm.dataset import Dataset
from tideline.lsm.tree import Tree
db = tideline.open({str(tmp_path / "db")!r})
cars = db.collection("cars", key="id", indexes=INDEXES, filter="t")
cars.put_many(documents(1, 300, 2000))
cars._engine.seal()
die = lambda *args, **options: os.kill(os.getpid(), signal.SIGKILL)
if {moment!r} == "apply":
    Tree.apply = die
if {moment!r} == "commit":
    Dataset.commit = die
load(cars, Path({str(tmp_path)!r}), documents(2, 500, 2000))
die()
"""
    here = Path(__file__)
    (tmp_path / "tests_documents_loading.py").write_text(here.read_text())
    paths = os.pathsep.join([str(tmp_path), *sys.path])
    done = subprocess.run([sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": paths})
    assert done.returncode == -9
    with tideline.open(tmp_path / "db") as db:
        cars = db.collection("cars")
        want = {one["id"]: one for one in documents(1, 300, 2000)}
        if moment == "after":
            want |= {one["id"]: one for one in documents(2, 500, 2000)}
        assert {one["id"]: one for one in cars.find()} == want
        assert cars.lookup("a", 3) == [one for one in cars.find() if one.get("a") == 3]
        db.check()


def test_what_does_not_fit_changes_nothing(make: Any, tmp_path: Path) -> None:
    cars = make("cars")
    cars.put({"id": 1, "a": 1})
    recipe = recipe_of(cars)
    given = as_table(documents(5, 40, 500))
    pieces = [build_piece(recipe, tmp_path, given) for _ in range(2)]
    with pytest.raises(InvalidRequest, match="two rows have one key"):
        adopt(cars, recipe, pieces)
    damaged = build_piece(recipe, tmp_path, given)
    file = Path(damaged.folder) / damaged.primary["name"]
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    with pytest.raises(Exception, match="checksum differs"):
        adopt(cars, recipe, [damaged])
    cars.drop_index("a")
    with pytest.raises(Conflict, match="indexes of the collection have changed"):
        adopt(cars, recipe, pieces[:1])
    with pytest.raises(InvalidRequest, match="cannot be loaded"):
        build_piece(recipe, tmp_path, pa.table({"document": ['{"no": 1}']}))
    assert cars.find() == [{"id": 1, "a": 1}]
    assert adopt(cars, recipe_of(cars), []) == (2, 1)
    assert isinstance(pieces[0], Piece)


@pytest.mark.parametrize("name", ["number", "text", "eight letters", "mixed"])
@pytest.mark.parametrize("twice", [False, True])
def test_pieces_may_overlap_but_have_no_key_twice(
    make: Any, tmp_path: Path, name: str, twice: bool
) -> None:
    cars = make("cars")
    recipe = recipe_of(cars)
    forms: dict[str, Callable[[int], Any]] = {
        "number": lambda n: n,
        "text": lambda n: "k" * (n % 5) + str(n),
        "eight letters": lambda n: f"{n:08d}",
        "mixed": lambda n: n if n % 2 else f"{n:08d}",
    }
    keys = [forms[name](n) for n in range(300)]
    keys.sort(key=lambda key: (isinstance(key, str), key))
    parts = [keys[start::3] for start in range(3)]
    if twice:
        parts[2] = sorted([*parts[2], parts[0][7]], key=lambda key: (isinstance(key, str), key))
    pieces = [
        build_piece(recipe, tmp_path, as_table([{"id": key, "a": 1} for key in part]))
        for part in parts
    ]
    if twice:
        with pytest.raises(InvalidRequest, match="two rows have one key") as raised:
            adopt(cars, recipe, pieces)
        assert raised.value.values["key"] == parts[0][7]
        assert cars.count() == 0
        return
    assert adopt(cars, recipe, pieces) == (1, 300)
    assert {one["id"] for one in cars.find()} == set(keys)
    assert len(cars.lookup("a", 1)) == 300
