"""Conditions that name the key beside other fields: what is found is what brute force finds.

On a real store, sealed in the middle, with documents that were replaced and deleted: the order
of writes is not the order of keys.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from judge import Judge

import tideline

KEYS = st.integers(0, 9)
VALUES = st.integers(0, 4)
DOCUMENTS = st.fixed_dictionaries(
    {"id": KEYS}, optional={"a": VALUES, "b": VALUES, "free": VALUES}
)  # fmt: skip
WRITES = st.lists(st.one_of(DOCUMENTS, DOCUMENTS, KEYS), max_size=25)  # a key alone: a delete
# Beside them a scan is dear, so that plans go by the key and the indexes.
OTHERS = [{"id": 100 + n, "a": 5 + n % 40, "b": n, "free": n % 7} for n in range(300)]
SORTS = st.sampled_from([None, [("id", 1)], [("id", -1)], [("a", 1)], [("free", -1), ("b", 1)]])


FEW = VALUES | KEYS.map(lambda key: {"$in": [key, key + 1]}) | st.just({"$in": []})
BY_KEY = (KEYS | FEW).map(lambda test: {"id": test})
BY_INDEX = st.builds(lambda name, test: {name: test}, st.sampled_from(["a", "b"]), FEW)
BY_SCAN = st.builds(
    lambda name, sign, value: {name: {sign: value}},
    st.sampled_from(["free", "a", "id"]), st.sampled_from(["$gte", "$lt", "$ne"]), VALUES,
)  # fmt: skip
BOTH = st.builds(lambda left, right: {**left, **right}, BY_KEY, BY_INDEX | BY_SCAN)


def _several(parts: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.lists(parts, min_size=2, max_size=3).map(lambda some: {"$or": some})


SOME = _several(st.one_of(BY_KEY, BY_KEY, BY_INDEX, BOTH))
CONDITIONS = st.one_of(
    SOME, SOME, BY_KEY, BOTH, _several(st.one_of(SOME, BY_SCAN, BY_INDEX)),
    st.builds(lambda *parts: {"$and": list(parts)}, SOME, st.one_of(SOME, BY_SCAN, BY_INDEX)),
    st.builds(lambda some, beside: {**some, **beside}, SOME, BY_SCAN),
)  # fmt: skip


@given(
    WRITES, WRITES, st.lists(CONDITIONS, min_size=3, max_size=6), SORTS,
    st.sampled_from([None, 1, 2, 5]),
    st.sampled_from([{"a": "lazy"}, {"a": "composite", "b": "embedded"}, {"a": "eager"}]),
)  # fmt: skip
def test_find_and_count_are_brute_force(
    sealed: list[Any], fresh: list[Any], conditions: list[Any], sort: Any, limit: Any, indexes: Any
) -> None:
    judge = Judge("id")
    with tempfile.TemporaryDirectory() as folder, tideline.open(folder) as db:
        found = db.collection("c", key="id", indexes=indexes)
        found.put_many(OTHERS)
        for one in OTHERS:
            judge.put(one)
        for part in (sealed, fresh):
            found._engine.seal()
            for one in part:
                if isinstance(one, dict):
                    found.put(one)
                    judge.put(one)
                else:
                    found.delete(one)
                    judge.delete(one)
        for where in conditions:
            assert found.count(where) == len(judge.find(where)), where
            for order, most in ((None, None), (sort, None), (None, limit), (sort, limit)):
                wanted = judge.find(where, order, most)
                assert found.find(where, sort=order, limit=most) == wanted, (where, order, most)


@pytest.fixture
def thousand(open_database: Callable[..., Any]) -> Any:
    made = open_database().collection("c", key="id", indexes={"a": "lazy"})
    made.put_many([{"id": n, "a": n % 50} for n in range(1000)])
    return made


def test_an_or_of_keys_finds_all_of_them(thousand: Any) -> None:
    where = {"$or": [{"id": 1}, {"id": 2}]}
    assert [each["id"] for each in thousand.find(where)] == [2, 1]
    assert thousand.count(where) == 2


def test_a_document_that_two_parts_of_an_or_find_is_found_once(thousand: Any) -> None:
    assert thousand.count({"$or": [{"id": 7}, {"a": 7}]}) == 20


def test_the_newest_is_the_newest_whichever_part_finds_it(thousand: Any) -> None:
    found = thousand.find({"$or": [{"id": 999}, {"a": 7}]}, limit=1)
    assert [each["id"] for each in found] == [999]


def test_a_list_of_keys_comes_newest_first(thousand: Any) -> None:
    thousand.put({"id": 3, "a": 0})
    found = thousand.find({"id": {"$in": [2, 3, 5, 2000]}})
    assert [each["id"] for each in found] == [3, 5, 2]
    assert [each["id"] for each in thousand.find({"id": {"$in": [5, 2]}}, sort=[("id", 1)])] == [
        2, 5,
    ]  # fmt: skip
