"""A filter skips components of the documents and of every kind of index, and no answer changes.

The time of a record, `t`, is the filter's field. Old versions need no care: an entry of a component
that is searched counts only if its write is the newest of its key, and that is looked up in all
components, skipped ones too; a scan reads the keys of what is newer than what it wants. So a
version that was replaced never appears, although the component of the newer version is skipped.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from suffix_kind import SuffixKind
from test_intersection import POLICIES, Story, always

import tideline
from tideline.documents.collection import Collection
from tideline.documents.plan import Plan
from tideline.documents.search import Search
from tideline.where.parse import parse

__all__ = ["always"]  # a fixture

INDEXES: dict[str, dict[str, str]] = {
    "none": {}, "lazy": {"a": "lazy"}, "composite": {"a": "composite"}, "eager": {"a": "eager"},
    "embedded": {"a": "embedded"}, "several": {"a,b": "lazy"}, "suffix": {"name": "suffix"},
    "intersection": {"a": "lazy", "name": "suffix"}, "spatial": {"at": "spatial"},
    "words": {"text": "words"}, "ngrams": {"text": "ngrams"},
    "places and words": {"at": "spatial", "text": "words"},
}  # fmt: skip


PLACE: dict[str, Any] = {"at": [1, 2], "text": "closed road"}
THERE: dict[str, Any] = {
    "at": {"$geoWithin": {"$box": [[0, 0], [2, 2]]}},
    "text": {"$words": "closed", "$contains": "oad"},
}  # fmt: skip


def open_docs(db: Any, which: str, policy: Any = "none") -> Collection:
    found: Collection = db.collection(
        "docs", key="id", filter="t", policy=policy, indexes=INDEXES[which]
    )
    return found


def every_way(docs: Collection, where: dict[str, Any]) -> list[Any]:
    planned = docs._finder._plan(docs._engine.view(), parse(where), None, True)
    return [*planned.ways, *(way for way, why in planned.others if why != "there is none")]


def by_every_way(docs: Collection, where: dict[str, Any]) -> list[list[int]]:
    found = []
    for way in every_way(docs, where):
        search = Search(docs._engine.view(), "id", parse(where), None, None)
        found.append([each["id"] for each in search.documents(Plan((way,), False, {}))])
    return found


def waves(docs: Collection, count: int = 6) -> None:
    """Components of 50 documents, each of a time of its own."""
    for wave in range(count):
        docs.put_many([
            {"id": 50 * wave + n, "t": 1000 * wave + n, "a": n % 5, "b": 1,
             "name": f"tide {n}", **PLACE}
            for n in range(50)
        ])  # fmt: skip
        docs._engine.seal()


@pytest.mark.parametrize("which", INDEXES)
def test_components_outside_of_the_filter_are_skipped_and_explain_says_so(which: str) -> None:
    with tideline.open(":memory:") as db:
        docs = open_docs(db, which)
        waves(docs)
        where = {"t": {"$gte": 5000}, "a": 3, "b": 1, "name": {"$regex": "tide"}, **THERE}
        wanted = sorted(range(253, 300, 5), reverse=True)
        assert by_every_way(docs, where) == [wanted] * len(every_way(docs, where))
        told = docs.explain(where)
        for read in told.components:
            assert (read.searched, read.skipped) == (1, 5)
            assert read.why == ("5 by the filter: t in [5000, ]",)
        assert told.components
        assert "1 components searched, 5 skipped (5 by the filter: t in [5000, ])" in str(told)


def test_what_is_skipped_is_not_read() -> None:
    """By each search of the index: which components it was given."""
    given = []

    class Watched(SuffixKind):
        def search(self, view: Any, ask: Any, k: Any, below: int) -> Any:
            given.append(len(view))
            return super().search(view, ask, k, below)

    with tideline.open(":memory:") as db:
        docs = open_docs(db, "suffix")
        waves(docs)
        docs._engine.kinds["name"].__class__ = Watched
        where = {"t": {"$lt": 999}, "name": {"$regex": "tide 7"}}
        assert [each["id"] for each in docs.find(where, limit=5)] == [7]
        assert given == [2]  # one component, and what is in memory


def test_a_component_is_skipped_by_what_it_holds() -> None:
    with tideline.open(":memory:") as db:
        docs = open_docs(db, "suffix")
        for wave, name in enumerate(["ab", "ab", "zz", "ab"]):
            docs.put_many([{"id": 50 * wave + n, "t": wave, "name": name} for n in range(50)])
            docs._engine.seal()
        told = docs.explain({"name": {"$regex": "zz"}, "t": {"$lte": 2}}, limit=1)
        assert told.found == 1
        [read] = told.components
        assert (read.field, read.searched, read.skipped) == ("name", 1, 3)
        assert read.why == (
            "1 by the filter: t in [, 2]", "2 by what they hold: none of contains 'zz'",
        )  # fmt: skip


def test_estimates_are_of_what_is_left_by_the_filter() -> None:
    """The index is best for all times; of the newest wave, it is one component of each."""
    with tideline.open(":memory:") as db:
        docs = open_docs(db, "lazy")
        waves(docs)
        [whole] = [w for w in every_way(docs, {"a": 3}) if w.kind == "index"]
        [recent] = [w for w in every_way(docs, {"a": 3, "t": {"$gte": 5000}}) if w.kind == "index"]
        assert (whole.estimate.entries, recent.estimate.entries) == (60, 10)
        [scan] = [w for w in every_way(docs, {"t": {"$gte": 5000}, "b": 1}) if w.kind == "scan"]
        assert scan.estimate.entries == pytest.approx(50)
        [old] = [w for w in every_way(docs, {"t": {"$lt": 999}, "b": 1}) if w.kind == "scan"]
        assert 50 < old.estimate.entries < 150  # and the keys of what is newer


@pytest.mark.parametrize("policy", POLICIES, ids=str)
@pytest.mark.parametrize("which", INDEXES)
def test_a_version_that_was_replaced_or_deleted_never_appears(which: str, policy: Any) -> None:
    """Its component passes the filter; that of the newer version, or of the delete, does not."""
    with tideline.open(":memory:") as db:
        docs = open_docs(db, which, policy)
        waves(docs, 3)
        rest = {"a": 3, "b": 1, "name": "tide 3", **PLACE}
        docs.put({"id": 3, "t": 9000, **rest})  # leaves the range
        docs.put({"id": 103, "t": 1, **rest})  # comes in, out of order
        docs.delete(8)
        docs.put({"id": 13, **rest})  # has no time at all any more
        docs.put({"id": 18, "t": "late", **rest})
        for sealed in (False, True):
            if sealed:
                docs._engine.seal()
                docs._engine.drain()
            where = {"t": {"$lt": 1000}, "a": 3, "b": 1, "name": {"$regex": "tide"}, **THERE}
            wanted = [103, *range(48, 18, -5)]
            for found in by_every_way(docs, where):
                assert found == wanted
            assert docs.count(where) == len(wanted)
            assert [each["id"] for each in docs.find(where, limit=3)] == wanted[:3]
            assert [each["id"] for each in docs.find({"t": 9000, "a": 3})] == [3]


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("seed", [20, 21, 22])
def test_records_out_of_order_are_found_by_every_way(seed: int, tmp_path: Path) -> None:
    """As what a plan may be (test_intersection.py), with times that rise, and with stragglers."""
    clock = random.Random(seed)
    story = Story(tmp_path, seed, "t")
    with story.db:
        times = iter(range(10**6))
        original = story.document

        def document(key: int) -> dict[str, Any]:
            late = clock.random() < 0.2
            made = original(key)
            made["t"] = clock.randrange(100) if late else next(times) // 3
            return made

        story.document = document  # type: ignore[method-assign]
        for step in range(4):
            story.write()
            story.docs._engine.seal()
            if step == 2:
                story.docs._engine.drain()
            story.check(story.docs._engine.view(), story.model)
