"""`advise` names the kinds that are made for what was asked and is no value."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from box_kind import BoxKind
from suffix_kind import SuffixKind

import tideline
from tideline.documents.advise import Seen, Workload
from tideline.index import kind as index_kind
from tideline.where.tree import Inside, Regex

BOX = {"$geoWithin": {"$box": [[0, 0], [1, 1]]}}


class Both(SuffixKind):
    """A place first, a pattern behind it."""

    name = "both"
    made_with = (Inside,)
    made_for = (Regex,)


class Box(BoxKind):
    made_for = (Inside,)


class Suffix(SuffixKind):
    made_for = (Regex,)


@pytest.fixture(autouse=True)
def kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only these are there, beside those for values."""
    values = {name: index_kind._KINDS[name] for name in ("embedded", "lazy", "composite", "eager")}
    monkeypatch.setattr(
        index_kind, "_KINDS", {**values, "box": Box, "suffix": Suffix, "both": Both}
    )


def docs_of(db: Any, **options: Any) -> Any:
    docs = db.collection("docs", key="id", **options)
    docs.put_many([
        {"id": n, "at": [n % 7, n % 5], "name": f"name {n}", "a": n * 37 % 11} for n in range(100)
    ])  # fmt: skip
    return docs


def test_a_field_that_is_asked_for_places_or_patterns_gets_the_kind_for_it() -> None:
    with tideline.open(":memory:") as db:
        docs = docs_of(db)
        for _ in range(3):
            docs.find({"at": BOX})
            docs.find({"name": {"$regex": "ame 1"}})
            docs.find({"a": 3})
        found = {each.field: each for each in docs.advise()}
        assert {field: each.kind for field, each in found.items()} == {
            "at": "box", "name": "suffix", "a": "composite",
        }  # fmt: skip
        assert found["at"].why == (
            "3 of 3 questions ask for what box is made for, and no index served 3 of them"
        )
        assert (found["at"].facts["tests"], found["at"].facts["tests_unserved"]) == (3, 3)
        for field, kind in {"at": "box", "town": "lazy"}.items():
            build = docs.create_index(field)
            build.wait()
            assert build.kind == kind
        build = docs.create_index("name", unique=True)
        assert build.kind == "lazy"  # values that are unique are no pieces of text


def test_what_an_index_served_is_not_missed() -> None:
    with tideline.open(":memory:") as db:
        docs = docs_of(db, indexes={"at": "box"})
        docs.find({"at": BOX})
        [advice] = docs.advise()
        assert (advice.now, advice.kind) == ("box", "box")
        assert advice.facts["tests_unserved"] == 0
        assert advice.why == "1 of 1 questions ask for what box is made for"


def test_values_win_when_they_are_asked_for_more_often() -> None:
    with tideline.open(":memory:") as db:
        docs = docs_of(db)
        docs.find({"name": {"$regex": "ame 1"}})
        for n in range(5):
            docs.find({"name": f"name {n}"}, limit=3)
        [advice] = docs.advise()
        assert (advice.field, advice.kind) == ("name", "lazy")


def test_two_fields_that_are_asked_together_get_a_kind_for_both() -> None:
    with tideline.open(":memory:") as db:
        docs = docs_of(db)
        for _ in range(2):
            docs.find({"at": BOX, "name": {"$regex": "ame"}})
        found = {each.field: each.kind for each in docs.advise()}
        assert found == {"at": "box", "at,name": "both", "name": "suffix"}


def test_tests_that_no_kind_is_made_for_are_not_counted() -> None:
    with tideline.open(":memory:") as db:
        docs = docs_of(db)
        docs.find({"name": {"$size": 3}, "at": {"$exists": True}, "a": {"$mod": [2, 0]}})
        assert docs.advise() == []
        [advice] = docs.advise(where=[{"at": BOX}])  # conditions to come count once
        assert advice.kind == "box"
        assert docs.advise() == []


def test_counts_are_kept_over_openings_and_a_workload_of_before_is_read(tmp_path: Path) -> None:
    for times in (1, 2):
        with tideline.open(tmp_path) as db:
            docs = docs_of(db)
            docs.find({"at": BOX})
            assert docs.advise()[0].facts["tests"] == times
    with tideline.open(tmp_path) as db:
        docs = db.collection("docs")
        assert docs.advise()[0].facts["tests"] == 2
        docs.forget_workload()
        assert docs.advise() == []
    old = {"puts": 1, "deletes": 0, "gets": 0, "lookups": 0, "finds": 0, "fields": {"a": [1, 0, 1]}}
    assert Workload.of(old).facts() == old
    more = Workload(tests={"at": {"Inside": Seen(2, 1)}})
    assert Workload.of(more.facts()).plus(more).tests == {"at": {"Inside": Seen(4, 2)}}
    assert more.plus(more, -1).tests == {}


def test_names_without_end_are_not_counted_without_end() -> None:
    with tideline.open(":memory:") as db:
        docs = docs_of(db)
        for number in range(300):
            docs.find({f"f{number}": BOX})
        assert len(docs.advise()) == 256
