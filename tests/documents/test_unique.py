"""Unique indexes: no two documents ever have one value, whatever writes and however many."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tideline
from tideline import Conflict, InvalidRequest
from tideline.documents.loading import recipe_of
from tideline.where.order import entries, sort_key

KINDS = ("lazy", "composite", "eager", "embedded")


def people(db: tideline.Database, kind: str = "lazy") -> tideline.Collection:
    return db.collection("people", key="id", indexes={"mail": {"kind": kind, "unique": True}})


@pytest.mark.parametrize("kind", KINDS)
def test_no_verb_makes_a_second_one(kind: str, tmp_path: Path) -> None:
    with tideline.open(tmp_path / "db") as db:
        found = people(db, kind)
        assert found.unique == ("mail",)
        found.put({"id": 1, "mail": "a"})
        found.put({"id": 1, "mail": "a", "again": True})  # its own
        found.insert({"id": 2, "mail": ["b", "c"]})
        message = "another document has this value of a unique index"
        for call in (
            lambda: found.put({"id": 3, "mail": "a"}),
            lambda: found.insert({"id": 3, "mail": ["x", "c"]}),
            lambda: found.update(2, {"$push": {"mail": "a"}}),
            lambda: found.update(3, {"$set": {"mail": "b"}}, upsert=True),
            lambda: found.replace(2, {"mail": "a"}),
            lambda: found.update_many({}, {"$set": {"mail": "z"}}),
        ):
            with pytest.raises(Conflict, match=message):
                call()
        done = found.put_many(
            [{"id": 4, "mail": "d"}, {"id": 5, "mail": "a"}, {"id": 6, "mail": "d"}]
        )
        assert done.stored == 1
        assert [each["row"] for each in done.rejected.to_pylist()] == [1, 2]
        assert "id=1" in done.rejected.to_pylist()[0]["reason"]
        done = found.insert_many([{"id": 4}, {"id": 7, "mail": "e"}, {"id": 8, "mail": "b"}, {}])
        assert (done.stored, [each["row"] for each in done.rejected.to_pylist()]) == (1, [0, 2, 3])
        wanted = found.find()
        found._engine.seal()
    with tideline.open(tmp_path / "db") as db:
        found = people(db, kind)
        assert found.find() == wanted
        with pytest.raises(Conflict, match=message):
            found.put({"id": 9, "mail": "e"})
        found.delete(7)
        found.put({"id": 9, "mail": "e"})
        with pytest.raises(InvalidRequest, match="not loaded in bulk"):
            recipe_of(found)
        found.drop_index("mail")
        assert found.unique == ()
        found.put({"id": 10, "mail": "e"})


def test_a_missing_field_is_null_and_numbers_are_by_value() -> None:
    with tideline.open(":memory:") as db:
        found = people(db)
        found.put({"id": 1})
        for wrong in ({"id": 2}, {"id": 2, "mail": None}, {"id": 2, "mail": [None]}):
            with pytest.raises(Conflict):
                found.put(wrong)
        found.put({"id": 2, "mail": 1})
        with pytest.raises(Conflict):
            found.put({"id": 3, "mail": 1.0})
        found.put({"id": 3, "mail": True})
        found.put({"id": 4, "mail": {"any": "object"}})
        found.put({"id": 5, "mail": {"any": "object"}})
        with pytest.raises(InvalidRequest, match="under 1,024 bytes"):
            found.put({"id": 6, "mail": "x" * 2000})


@pytest.mark.parametrize("kind", KINDS)
def test_one_is_made_of_what_is_stored_or_refused(kind: str, tmp_path: Path) -> None:
    with tideline.open(tmp_path / "db") as db:
        found = db.collection("people", key="id")
        found.put_many([{"id": n, "mail": f"m{n}", "town": n % 3} for n in range(100)])
        found._engine.seal()
        found.put({"id": 100, "mail": "m100", "town": 0})
        with pytest.raises(Conflict, match="documents have the same value"):
            found.create_index("town", kind, unique=True)
        assert found.indexes == {}
        found.put({"id": 5, "mail": "new", "town": 1})
        found.create_index("mail", kind, unique=True)
        assert (found.indexes, found.unique) == ({"mail": kind}, ("mail",))
    with tideline.open(tmp_path / "db") as db:
        found = db.collection("people", indexes={"mail": {"kind": kind, "unique": True}})
        with pytest.raises(Conflict):
            found.put({"id": 200, "mail": "new"})
        found.put({"id": 200, "mail": "m5"})  # which was replaced
        with pytest.raises(Conflict, match="unique or not as it was made"):
            db.collection("people", indexes={"mail": {"unique": False}})


def test_of_many_threads_one_gets_each_value() -> None:
    with tideline.open(":memory:") as db:
        found = people(db)
        won: list[int] = []

        def work(number: int) -> None:
            for value in range(60):
                try:
                    found.put({"id": 1000 * number + value, "mail": value})
                    won.append(value)
                except Conflict:
                    pass

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        assert sorted(won) == list(range(60))
        assert found.count() == 60


MAILS = st.sampled_from([None, 1, 1.0, "a", "b", ["a", "c"], ["b"], [], {"x": 1}])
WRITES = st.lists(
    st.tuples(st.sampled_from(["put", "many", "delete"]),
              st.lists(st.tuples(st.integers(0, 4), MAILS), min_size=1, max_size=4)),
    max_size=8,
)  # fmt: skip


def values(document: dict[str, Any]) -> set[Any]:
    return {sort_key(one) for one in entries(document, "mail") if type(one) not in (list, dict)}


@given(writes=WRITES)
def test_what_is_stored_is_what_a_dict_has(writes: Any) -> None:
    with tideline.open(":memory:") as db:
        found = people(db)
        model: dict[int, dict[str, Any]] = {}

        def fits(document: dict[str, Any]) -> bool:
            return not any(
                values(other) & values(document)
                for key, other in model.items() if key != document["id"]
            )  # fmt: skip

        for verb, rows in writes:
            documents = [{"id": key, "mail": mail} for key, mail in rows]
            if verb == "delete":
                found.delete(documents[0]["id"])
                model.pop(documents[0]["id"], None)
            elif verb == "put":
                if fits(documents[0]):
                    found.put(documents[0])
                    model[documents[0]["id"]] = documents[0]
                else:
                    with pytest.raises(Conflict):
                        found.put(documents[0])
            else:
                stored = 0
                for document in documents:
                    if fits(document):
                        model[document["id"]] = document
                        stored += 1
                assert found.put_many(documents).stored == stored
            assert {each["id"]: each for each in found.find()} == model


@pytest.mark.parametrize(("indexes", "message"), [
    ({"a": {"kind": "lazy", "uniq": True}}, "no such setting.*uniq"),
    ({"a": {"kind": "lazy", "unique": 1}}, "unique must be True or False"),
    ({"a": {"kind": "hash", "unique": True}}, "kind must be one of"),
])  # fmt: skip
def test_wrong_settings_are_refused(indexes: Any, message: str) -> None:
    with tideline.open(":memory:") as db, pytest.raises(InvalidRequest, match=message):
        db.collection("people", key="id", indexes=indexes)
