"""What a collection answers is what brute force answers, whatever the plan.

The upper layer alone, on an engine of dicts; test_collection.py does the same on the real one.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from judge import Judge, ModelEngine

from tests.where.strategies import comparisons, documents, scalars, values
from tideline.documents import Collection

KEYS = st.sampled_from([0, 1, 2, -5, 2**53, 2**53 + 1, "", "a", "é", "ab"]).filter(
    lambda k: k != ""
)


def bodies() -> st.SearchStrategy[dict[str, Any]]:
    """Documents whose values are mostly scalars, so that plans have something to choose from."""
    field = st.one_of(scalars(), scalars(), values())
    return st.fixed_dictionaries({"id": KEYS}, optional={"a": field, "b": field, "c": field})


def conditions() -> st.SearchStrategy[Any]:
    simple = st.dictionaries(
        st.sampled_from(["a", "b", "id", "a.b"]), st.one_of(scalars(), comparisons()), max_size=2
    )
    return st.one_of(simple, simple, documents())


def make(indexes: dict[str, str], filter: str | None = None) -> tuple[Collection, Judge]:
    facts = {"key": "id", "indexes": indexes, "filter": filter, "policy": {"name": "none"}}
    return Collection("x", ModelEngine(facts)), Judge("id")


SORTS = st.sampled_from(
    [None, [("id", 1)], [("id", -1)], [("a", 1)], [("a", -1), ("b", 1)], [("c.a", 1)]]
)
INDEXES = st.sampled_from(
    [{}, {"a": "lazy"}, {"a": "composite", "b": "embedded"}, {"a.b": "eager", "a": "lazy"}]
)


@given(
    st.lists(bodies(), max_size=12), conditions(), INDEXES,
    st.sampled_from([None, "a", "c"]), SORTS, st.sampled_from([None, 1, 3]),
)  # fmt: skip
def test_find_is_brute_force(
    docs: list[Any], where: Any, indexes: Any, filter: Any, sort: Any, limit: Any
) -> None:
    found, judge = make(indexes, filter)
    assert found.put_many(docs).stored == len(docs)
    for doc in docs:
        judge.put(doc)
    wanted = judge.find(where, sort, limit)
    assert found.find(where, sort=sort, limit=limit) == wanted, found.explain(where)
    if limit is None and sort is None:
        assert found.count(where) == len(wanted)
        batches = [batch.to_pylist() for batch in found.scan(where)]
        assert sum(map(len, batches)) == len(wanted)


@given(st.lists(bodies(), max_size=12), scalars(), scalars(), st.sampled_from([None, 1, 3]))
def test_lookups_are_brute_force(docs: list[Any], low: Any, high: Any, k: Any) -> None:
    found, judge = make({"a": "lazy", "b": "composite"})
    for doc in docs:
        found.put(doc)
        judge.put(doc)
    assert found.lookup("a", low, k=k) == judge.lookup("a", low, k)
    if type(low) is type(high) and low is not None and low <= high:
        assert found.range_lookup("a", low, high, k=k) == judge.range_lookup("a", low, high, k)
        assert found.range_lookup("b", low, k=k) == judge.range_lookup("b", low, None, k)


def test_long_texts_are_told_apart() -> None:
    found, judge = make({"a": "lazy"})
    long = "x" * 1030
    for number, text in enumerate([long, long + "a", long + "b", "x" * 1023, "x" * 1024, "y"]):
        found.put({"id": number, "a": text})
        judge.put({"id": number, "a": text})
    for text in [long, long + "a", "x" * 1024, "x" * 1023]:
        assert found.lookup("a", text) == judge.lookup("a", text)
        assert found.find({"a": text}) == judge.find({"a": text})
        for operator in ("$gt", "$gte", "$lt", "$lte"):
            where = {"a": {operator: text}}
            assert found.find(where) == judge.find(where), where
        assert found.range_lookup("a", text, "y", k=2) == judge.range_lookup("a", text, "y", 2)


def test_needs_are_joined_until_a_document_has_an_array() -> None:
    found, _ = make({"a": "lazy"})
    found.put_many([{"id": n, "a": n} for n in range(100)])
    where = {"a": {"$gte": 10, "$lt": 20}}
    assert found.explain(where).looked_at == 10
    found.put({"id": 1000, "a": [5, 30]})
    told = found.explain(where)
    assert told.looked_at > 10
    assert told.found == 11  # the array meets each need by another element
    found.delete(1000)


def test_newest_first_stops_early() -> None:
    found, _ = make({"a": "lazy"})
    found.put_many([{"id": n, "a": 1, "b": n % 2} for n in range(3000)])
    told = found.explain({"a": 1, "b": 0}, limit=3)
    assert told.found == 3
    assert told.looked_at < 100


@pytest.mark.parametrize("given_as", ["dicts", "texts", "bytes"])
def test_many_are_stored_as_they_are_given(given_as: str) -> None:
    import msgspec

    docs = [{"id": n, "a": [n, "x"], "t": "é\n"} for n in range(5)]
    found, _ = make({"a": "lazy"})
    texts = [msgspec.json.encode(doc) for doc in docs]
    made: Any = {"dicts": docs, "texts": [t.decode() for t in texts], "bytes": texts}[given_as]
    assert found.put_many(made).stored == 5
    assert found.get_many(range(6)) == [*docs, None]
