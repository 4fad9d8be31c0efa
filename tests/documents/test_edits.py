"""Verbs that write what depends on what is stored: nothing is lost between two of them.

test_collection_machine.py mixes them with all others; test_collection_interrupts.py cuts them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tideline
from tideline import Conflict, InvalidRequest, NotFound, Updated
from tideline.documents import edits


@pytest.fixture
def db(open_database: Callable[..., Any], over: str) -> Any:
    return open_database(":memory:", over=over)


@pytest.fixture
def cars(db: tideline.Database) -> tideline.Collection:
    return db.collection("cars", key="id", indexes={"road": "lazy", "speed": "composite"})


def at_once(count: int, work: Callable[[int], None]) -> None:
    """The same work in some threads; what one of them raises is raised."""
    errors: list[BaseException] = []

    def run(number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    if errors:
        raise errors[0]


def test_updates_of_many_threads_are_all_there(cars: tideline.Collection) -> None:
    cars.insert({"id": 1, "n": 0, "by": [], "road": "A1"})

    def work(number: int) -> None:
        for _ in range(100):
            cars.update(1, {"$inc": {"n": 1}, "$addToSet": {"by": number}})

    at_once(4, work)
    assert cars.get(1) == {"id": 1, "n": 400, "by": cars.get(1)["by"], "road": "A1"}  # type: ignore[index]
    assert sorted(cars.get(1)["by"]) == [0, 1, 2, 3]  # type: ignore[index]
    assert [each["n"] for each in cars.lookup("road", "A1")] == [400]


def test_compare_and_set_lets_one_win(cars: tideline.Collection) -> None:
    cars.insert({"id": 1, "n": 0})

    def work(number: int) -> None:
        done = 0
        while done < 50:
            document, version = cars.versioned(1)  # type: ignore[misc]
            try:
                cars.replace(1, {"id": 1, "n": document["n"] + 1}, if_version=version)
                done += 1
            except Conflict:
                pass

    at_once(3, work)
    assert cars.get(1) == {"id": 1, "n": 150}


def test_of_many_inserts_of_one_key_one_is_stored(cars: tideline.Collection) -> None:
    won: list[tuple[int, int]] = []

    def work(number: int) -> None:
        for key in range(100):
            try:
                cars.insert({"id": key, "by": number})
                won.append((key, number))
            except Conflict:
                pass

    at_once(4, work)
    assert sorted(won) == [(each["id"], each["by"]) for each in cars.find(sort=[("id", 1)])]


def test_update_many_beside_updates_loses_nothing(cars: tideline.Collection) -> None:
    cars.put_many([{"id": key, "n": 0, "m": 0} for key in range(300)])

    def work(number: int) -> None:
        if number:
            for key in range(300):
                cars.update(key, {"$inc": {"n": 1}})
        else:
            for _ in range(10):
                assert cars.update_many({}, {"$inc": {"m": 1}}) == Updated(300, 300)

    at_once(3, work)
    assert cars.count({"n": 2, "m": 10}) == 300


@pytest.mark.parametrize("over", [""], ids=["embedded"])
def test_what_no_longer_meets_the_condition_is_left_alone(
    cars: tideline.Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(edits, "SLICE", 2)
    cars.put_many([{"id": key, "speed": 5} for key in range(5)])
    looked = cars._slices

    def slices(condition: Any) -> Iterator[Any]:
        for number, keys in enumerate(looked(condition)):
            if number == 0:
                cars.update(0, {"$set": {"speed": 9}})  # met it when the call began
                cars.put({"id": 7, "speed": 5})  # comes later
            yield keys

    monkeypatch.setattr(cars, "_slices", slices)
    assert cars.update_many({"speed": 5}, {"$set": {"speed": 6}}) == Updated(4, 4)
    assert {each["id"]: each["speed"] for each in cars.find()} == {
        0: 9, 1: 6, 2: 6, 3: 6, 4: 6, 7: 5,
    }  # fmt: skip
    assert cars.delete_where({"speed": 6}) == 4


def test_an_error_leaves_the_slices_before_it(
    cars: tideline.Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(edits, "SLICE", 2)
    cars.put_many([{"id": key, "n": key if key != 3 else "x"} for key in range(6)])
    with pytest.raises(InvalidRequest, match=r"\$inc.n: the field holds text and no number. id=3"):
        cars.update_many({}, {"$inc": {"n": 10}})
    assert [each["n"] for each in cars.find(sort=[("id", 1)])] == [10, 11, 2, "x", 4, 5]


def test_versions_are_the_seqs_of_writes(cars: tideline.Collection) -> None:
    first = cars.insert({"id": 1, "speed": 5})
    assert cars.update(1, {"$set": {"speed": 5}}) == {"id": 1, "speed": 5}
    assert cars.versioned(1) == ({"id": 1, "speed": 5}, first)  # nothing changed, nothing written
    cars.update(1, {"$set": {"speed": 5.0}})
    second = cars.versioned(1)
    assert second is not None
    assert second.version > first
    with pytest.raises(Conflict, match="another version"):
        cars.update(1, {"$inc": {"speed": 1}}, if_version=first)
    with pytest.raises(Conflict, match="another version"):
        cars.delete(1, if_version=first)
    assert cars.update(1, {"$inc": {"speed": 1}}, if_version=second.version)["speed"] == 6.0
    newest = cars.versioned(1)
    assert newest is not None
    assert [batch["seq"].to_pylist() for batch in cars.scan()] == [[newest.version]]
    cars.delete(1, if_version=newest.version)
    assert cars.versioned(1) is None
    with pytest.raises(NotFound):
        cars.delete(1, if_version=newest.version)
    with pytest.raises(NotFound):
        cars.replace(1, {"id": 1}, if_version=newest.version)


@pytest.mark.parametrize("over", [""], ids=["embedded"])
def test_changes_tell_of_every_edit_with_what_was_before(db: tideline.Database) -> None:
    cars = db.collection("cars", key="id")
    with cars.changes(before=True) as changes:
        cars.insert({"id": 1, "n": 1})
        cars.update(1, {"$inc": {"n": 1}})
        cars.update(1, {"$max": {"n": 0}})  # changes nothing
        cars.insert_many([{"id": 1}, {"id": 2, "n": 5}])
        cars.update_many({"n": {"$gt": 1}}, {"$set": {"n": 0}})
        cars.replace(2, {"n": 7})
        cars.delete_where({"n": 0})
        found = [(each.key, each.before, each.after) for each in changes.take()]
    assert found == [
        (1, None, {"id": 1, "n": 1}),
        (1, {"id": 1, "n": 1}, {"id": 1, "n": 2}),
        (2, None, {"id": 2, "n": 5}),
        (1, {"id": 1, "n": 2}, {"id": 1, "n": 0}),
        (2, {"id": 2, "n": 5}, {"id": 2, "n": 0}),
        (2, {"id": 2, "n": 0}, {"id": 2, "n": 7}),
        (1, {"id": 1, "n": 0}, None),
    ]


def test_edits_are_there_after_opening_again(tmp_path: Path) -> None:
    with tideline.open(tmp_path / "db") as database:
        cars = database.collection("cars", key="id", indexes={"road": "lazy"})
        cars.insert_many(pa.table({"id": range(50), "road": ["A1", "B2"] * 25}))
        cars._engine.seal()
        cars.update_many({"road": "A1"}, {"$set": {"road": ["C3", "D4"]}})
        cars.delete_where({"id": {"$lt": 10}})
        wanted = cars.find(sort=[("id", 1)])
    with tideline.open(tmp_path / "db") as database:
        cars = database.collection("cars")
        assert cars.find(sort=[("id", 1)]) == wanted
        assert len(cars.lookup("road", "D4")) == 20
        assert cars.lookup("road", "A1") == []
        assert cars.update(10, {"$push": {"road": "E5"}})["road"] == ["C3", "D4", "E5"]


def test_many_new_documents_and_those_that_are_there(cars: tideline.Collection) -> None:
    assert cars.insert_many([]).stored == 0
    cars.put({"id": 3, "old": True})
    done = cars.insert_many(['{"id": 1}', {"id": 2}, {"id": 3}, {"x": 1}, {"id": 2}, b'{"id": 4}'])
    assert done.stored == 3
    assert [each["row"] for each in done.rejected.to_pylist()] == [2, 3, 4]
    assert [each["reason"] for each in done.rejected.to_pylist()][::2] == [
        "there is a document with this key"
    ] * 2
    assert cars.get(3) == {"id": 3, "old": True}
    assert cars.insert_many([{"id": 1}]).stored == 0


def test_wrong_calls_are_refused_and_nothing_is_stored(cars: tideline.Collection) -> None:
    cars.put({"id": 1, "n": 1})
    wrong: list[tuple[type[Exception], str, Callable[[], Any]]] = [
        (NotFound, "no document with this key", lambda: cars.update(2, {"$set": {"a": 1}})),
        (NotFound, "no document with this key", lambda: cars.replace(2, {"a": 1})),
        (InvalidRequest, "a key must be", lambda: cars.update(None, {"$set": {"a": 1}})),  # type: ignore[arg-type]
        (InvalidRequest, "did you mean", lambda: cars.update(1, {"$ste": {"a": 1}})),
        (InvalidRequest, "key of a document", lambda: cars.update(1, {"$set": {"id": 5}})),
        (InvalidRequest, "whole number", lambda: cars.update(1, {"$set": {}}, if_version=True)),
        (InvalidRequest, "upsert", lambda: cars.update(1, {"$set": {}}, upsert=1)),  # type: ignore[arg-type]
        (InvalidRequest, "upsert or if_version",
         lambda: cars.update(1, {"$set": {}}, upsert=True, if_version=1)),
        (InvalidRequest, "another key", lambda: cars.replace(1, {"id": 2})),
        (InvalidRequest, "another key", lambda: cars.replace(1, {"id": "1"})),
        (InvalidRequest, "JSON object", lambda: cars.replace(1, [1])),  # type: ignore[arg-type]
        (InvalidRequest, "needs a condition", lambda: cars.delete_where(None)),  # type: ignore[arg-type]
        (InvalidRequest, "needs a condition", lambda: cars.update_many(None, {})),  # type: ignore[arg-type]
        (InvalidRequest, "a change must be", lambda: cars.update_many({}, {})),
        (InvalidRequest, "lacks its key", lambda: cars.insert({"n": 1})),
        (InvalidRequest, "list of documents", lambda: cars.insert_many("x")),
    ]  # fmt: skip
    for kind, message, call in wrong:
        with pytest.raises(kind, match=message):
            call()
    assert cars.find() == [{"id": 1, "n": 1}]
    assert cars.position() == 1


def test_a_result_that_is_too_large_is_refused(cars: tideline.Collection) -> None:
    cars.put({"id": 1, "a": "x" * (9 << 20)})
    with pytest.raises(InvalidRequest, match="too large"):
        cars.update(1, {"$set": {"b": "x" * (9 << 20)}})
    with pytest.raises(InvalidRequest, match="too large"):
        cars.update_many({}, {"$set": {"b": "x" * (9 << 20)}})


@pytest.mark.parametrize("over", [""], ids=["embedded"])
def test_readers_go_on_while_a_change_is_computed(cars: tideline.Collection) -> None:
    cars.put({"id": 1, "n": 1})
    inside, go_on = threading.Event(), threading.Event()

    def compute(view: Any) -> Any:
        inside.set()
        assert go_on.wait(300)
        return edits.rows.NONE, None

    writer = threading.Thread(target=lambda: cars._engine.change(compute))
    writer.start()
    assert inside.wait(300)
    assert cars.get(1) == {"id": 1, "n": 1}
    assert cars.find({"n": 1}) == [{"id": 1, "n": 1}]
    go_on.set()
    writer.join()


def test_the_key_alone_makes_a_new_document(cars: tideline.Collection) -> None:
    made = cars.update("a", {"$setOnInsert": {"n": 1}, "$push": {"l": 2}}, upsert=True)
    assert made == {"id": "a", "n": 1, "l": [2]} == cars.get("a")
    again = cars.update("a", {"$setOnInsert": {"n": 5}, "$push": {"l": 3}}, upsert=True)
    assert again == {"id": "a", "n": 1, "l": [2, 3]}
    with pytest.raises(InvalidRequest, match="key of a document"):
        cars.update("b", {"$set": {"id": "c"}}, upsert=True)
    assert cars.count() == 1
