"""An index without a kind gets the one that `advise` would give."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tideline
from tideline import Conflict, InvalidRequest


def test_a_new_collection_takes_fields_alone(tmp_path: Path) -> None:
    with tideline.open(tmp_path / "db") as db:
        cars = db.collection("cars", key="id", indexes=["road", "at.lane"])
        assert cars.indexes == {"road": "lazy", "at.lane": "lazy"}
        trucks = db.collection("trucks", key="id", indexes={"road": None, "time": "embedded"})
        assert trucks.indexes == {"road": "lazy", "time": "embedded"}
        # Whoever opens it again without kinds takes those that are there.
        assert db.collection("trucks", indexes=["time", "road"]) is trucks
        with pytest.raises(Conflict, match="without an index on this field"):
            db.collection("trucks", indexes=["time", "road", "lane"])


@pytest.mark.parametrize(("indexes", "message"), [
    ("road", "indexes must be like"), (["road", "road"], "twice"), ([5], "field must be text"),
    (["id"], "the key needs no index"), ([""], "not a path"), ({"road": ""}, "kind must be one of"),
])  # fmt: skip
def test_wrong_fields_are_refused(indexes: Any, message: str) -> None:
    with tideline.open(":memory:") as db, pytest.raises(InvalidRequest, match=message):
        db.collection("cars", key="id", indexes=indexes)


def test_an_index_gets_the_kind_that_fits() -> None:
    with tideline.open(":memory:") as db:
        cars = db.collection("cars", key="id")
        cars.put_many([{"id": n, "time": n, "road": n % 7, "lane": n % 3} for n in range(200)])
        for _ in range(50):
            cars.find({"lane": 1})
            cars.get(1)
        wanted = {"time": "embedded", "road": "lazy", "lane": "composite"}
        advice = {each.field: each.kind for each in cars.advise()}
        assert advice["lane"] == "composite" == wanted["lane"]
        for field, kind in wanted.items():
            build = cars.create_index(field)
            build.wait()
            assert build.kind == kind
        assert cars.indexes == wanted
        assert len(cars.lookup("lane", 1)) == 67


def test_an_index_that_is_there_may_be_asked_for_again() -> None:
    with tideline.open(":memory:") as db:
        cars = db.collection("cars", key="id", indexes={"road": "lazy"})
        cars.create_index("road").wait()
        cars.create_index("road", "lazy").wait()
        with pytest.raises(InvalidRequest, match="drop it first"):
            cars.create_index("road", "composite")
        with pytest.raises(InvalidRequest, match="drop it first"):
            cars.create_index("road", unique=True)
        assert cars.indexes == {"road": "lazy"}
