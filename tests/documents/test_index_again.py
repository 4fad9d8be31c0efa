"""An index that is dropped can be made again, and one that cannot be begun leaves nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from engine_model import open_engine, rows_of

from tideline.errors import InvalidRequest, Unavailable
from tideline.where.keys import encode

KINDS = ("embedded", "composite", "lazy", "eager")


@pytest.mark.parametrize("kind", KINDS)
def test_an_index_that_was_there_at_opening_is_made_again(
    open_database: Callable[..., Any], kind: str
) -> None:
    cars = open_database().collection("cars", key="id", indexes={"a": kind})
    cars.put_many([{"id": n, "a": n % 10} for n in range(100)])
    cars._engine.seal()
    cars = open_database().collection("cars")
    for turn in range(2):
        cars.drop_index("a")
        cars.put({"id": 100 + turn, "a": 3})
        cars.create_index("a", kind).wait()
        assert cars.indexes == {"a": kind}
        found = [each["id"] for each in cars.lookup("a", 3)]
        assert found == [*range(100 + turn, 99, -1), *range(93, 0, -10)]
    cars = open_database().collection("cars")
    assert len(cars.lookup("a", 3)) == 12
    open_database().check()


@pytest.mark.parametrize("kind", ["lazy", "embedded"])
def test_an_index_whose_beginning_cannot_be_saved_is_not_there(
    open_database: Callable[..., Any], kind: str
) -> None:
    cars = open_database().collection("cars", key="id")
    cars.put_many([{"id": n, "a": n % 10} for n in range(100)])
    cars._engine.drain()
    in_the_way = cars._engine.store.folder / "MANIFEST.tmp"
    in_the_way.mkdir()
    with pytest.raises(Unavailable, match="manifest"):
        cars.create_index("a", kind)
    assert (cars.indexes, cars._engine.building) == ({}, [])
    cars.put({"id": 100, "a": 3})
    assert cars.count({"a": 3}) == 11
    in_the_way.rmdir()
    cars.create_index("a", kind).wait()
    assert len(cars.lookup("a", 3)) == 11


def test_a_build_that_cannot_begin_changes_nothing(tmp_path: Path) -> None:
    engine = open_engine(tmp_path / "c", {"indexes": {"n": "lazy"}})
    engine.write(rows_of([(i, {"n": i % 3, "m": 1}) for i in range(30)]))
    with pytest.raises(InvalidRequest, match="no such kind"):
        engine.building_jobs.add("m", "b-tree", None)
    assert (engine.indexes, engine.building) == ({"n": "lazy"}, [])
    engine.write(rows_of([(i, {"n": i % 3, "m": 1}) for i in range(30, 33)]))
    engine.add_index("m", "composite")
    engine.drain()
    assert len(engine.lookup("m", encode(1), encode(1)).seqs) == 33
    engine.close()
