"""A collection answers as brute force does: all kinds and policies, over seals and reopening."""

from __future__ import annotations

import shutil
import tempfile
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    rule,
    run_state_machine_as_test,
)
from judge import Judge
from test_find import SORTS, conditions

import tideline
from tests.where.strategies import scalars, values
from tideline.documents.policies import POLICIES

KINDS = ("embedded", "composite", "lazy", "eager")

KEYS = st.one_of(st.integers(-3, 12), st.sampled_from(["a", "b", "é", 2**60]))
FIELD = st.one_of(scalars(), scalars(), values())
DOCUMENTS = st.fixed_dictionaries(
    {"id": KEYS}, optional={"a": FIELD, "b": FIELD, "c": FIELD, "pad": st.just("p" * 900)}
)
ROWS = st.lists(
    st.fixed_dictionaries(
        {"id": st.integers(-3, 12)},
        optional={"a": st.sampled_from(["", "x", 'q"\n\\é\x01']), "b": st.integers(-2, 2),
                  "c": st.lists(st.sampled_from([1.5, -0.0, 3.0]), max_size=2)},
    ),
    min_size=1, max_size=8,
)  # fmt: skip

CHANGES = st.sampled_from([
    {"$set": {"a": 1}}, {"$set": {"a": [1, "x"], "b": 2}}, {"$unset": {"a": "", "c": ""}},
    {"$inc": {"b": 1}}, {"$max": {"b": 1}, "$min": {"c": 0}}, {"$push": {"a": 1}},
    {"$addToSet": {"c": "x"}}, {"$pull": {"c": "x"}}, {"$rename": {"a": "b"}}, {"$set": {"a.b": 1}},
])  # fmt: skip

_CONDITIONS = conditions()


@st.composite
def some(draw: st.DrawFn) -> Any:
    return draw(DOCUMENTS)


@st.composite
def where_any(draw: st.DrawFn) -> Any:
    return draw(_CONDITIONS)


# Hypothesis says these names: written out, strategies of conditions fill pages.
SOME, WHERE = some(), where_any()


class CollectionMachine(RuleBasedStateMachine):
    policy = "prefix"

    @initialize(
        kinds=st.lists(st.sampled_from(KINDS), min_size=2, max_size=2),
        filter=st.sampled_from([None, "a", "b"]),
    )
    def begin(self, kinds: list[str], filter: str | None) -> None:
        self.folder = tempfile.mkdtemp(prefix="tideline-test-")
        self.database = tideline.open(self.folder)
        self.found = self.database.collection(
            "docs", key="id", indexes={"a": kinds[0], "b": kinds[1]}, policy=self.policy,
            filter=filter, bloom_bits=10,
        )  # fmt: skip
        self.judge = Judge("id")

    def teardown(self) -> None:
        if hasattr(self, "database"):
            self.database.close()
            shutil.rmtree(self.folder, ignore_errors=True)

    @rule(document=SOME)
    def put(self, document: Any) -> None:
        self.found.put(document)
        self.judge.put(document)

    @rule(documents=st.lists(SOME, max_size=8), texts=st.booleans())
    def put_many(self, documents: list[Any], texts: bool) -> None:
        given = [msgspec.json.encode(each) for each in documents] if texts else documents
        assert self.found.put_many(given).stored == len(documents)
        for each in documents:
            self.judge.put(each)

    @rule(rows=ROWS)
    def put_table(self, rows: list[Any]) -> None:
        table = pa.Table.from_pylist(rows, schema=pa.schema(
            [("id", pa.int32()), ("a", pa.string()), ("b", pa.int64()),
             ("c", pa.list_(pa.float64()))]
        ))  # fmt: skip
        assert self.found.put_many(table).stored == len(rows)
        for each in rows:
            self.judge.put(each)

    @rule(key=KEYS)
    def delete(self, key: Any) -> None:
        self.found.delete(key)
        self.judge.delete(key)

    @rule(document=SOME)
    def insert(self, document: Any) -> None:
        if self.judge.get(document["id"]) is not None:
            with pytest.raises(tideline.Conflict):
                self.found.insert(document)
        else:
            version = self.found.insert(document)
            self.judge.put(document)
            assert self.found.versioned(document["id"]) == (document, version)

    @rule(documents=st.lists(SOME, max_size=8))
    def insert_many(self, documents: list[Any]) -> None:
        new = []
        for each in documents:
            if self.judge.get(each["id"]) is None:
                self.judge.put(each)
                new.append(each)
        assert self.found.insert_many(documents).stored == len(new)

    @rule(key=KEYS, change=CHANGES, upsert=st.booleans(), stale=st.booleans())
    def update(self, key: Any, change: Any, upsert: bool, stale: bool) -> None:
        versioned = self.found.versioned(key)
        assert (versioned is None) == (self.judge.get(key) is None)
        expected = None if versioned is None or upsert else versioned.version + stale
        wanted = self.judge.updated(key, change, upsert, stale and expected is not None)
        if isinstance(wanted, dict):
            assert self.found.update(key, change, upsert=upsert, if_version=expected) == wanted
            after = self.found.versioned(key)
            assert after is not None
            assert after.document == wanted
        else:
            with pytest.raises(wanted):
                self.found.update(key, change, upsert=upsert, if_version=expected)

    @rule(document=SOME, stale=st.booleans())
    def replace(self, document: Any, stale: bool) -> None:
        versioned = self.found.versioned(document["id"])
        if versioned is None:
            with pytest.raises(tideline.NotFound):
                self.found.replace(document["id"], document)
        elif stale:
            with pytest.raises(tideline.Conflict):
                self.found.replace(document["id"], document, if_version=versioned.version + 1)
            with pytest.raises(tideline.Conflict):
                self.found.delete(document["id"], if_version=versioned.version + 1)
        else:
            version = self.found.replace(document["id"], document, if_version=versioned.version)
            self.judge.put(document)
            assert version > versioned.version

    @rule(where=WHERE, change=CHANGES)
    def update_many(self, where: Any, change: Any) -> None:
        wanted = self.judge.update_many(where, change)
        if isinstance(wanted, tuple):
            done = self.found.update_many(where, change)
            assert (done.matched, done.changed) == wanted
            self.judge.follow({
                each["id"]: version
                for batch in self.found.scan()
                for each, version in zip(
                    map(msgspec.json.decode, batch["document"].to_pylist()),
                    batch["seq"].to_pylist(), strict=True,
                )
            })  # fmt: skip
        else:
            with pytest.raises(wanted):
                self.found.update_many(where, change)

    @rule(where=WHERE)
    def delete_where(self, where: Any) -> None:
        gone = self.judge.find(where)
        if len(gone) < 4:  # some are to stay
            assert self.found.delete_where(where) == len(gone)
            for each in gone:
                self.judge.delete(each["id"])

    @rule()
    def seal(self) -> None:
        self.found._engine.seal()

    @rule()
    def reopen(self) -> None:
        self.database.close()
        self.database = tideline.open(self.folder)
        self.found = self.database.collection("docs")

    @rule(field=st.sampled_from(["a", "b", "c", "a.b"]), kind=st.sampled_from(KINDS))
    def change_index(self, field: str, kind: str) -> None:
        if field in self.found.indexes:
            self.found.drop_index(field)
        else:
            self.found.create_index(field, kind).wait()
            assert self.found.indexes[field] == kind

    @rule(keys=st.lists(KEYS, max_size=4))
    def get(self, keys: list[Any]) -> None:
        wanted = [self.judge.get(key) for key in keys]
        assert self.found.get_many(keys) == wanted
        assert [self.found.get(key) for key in keys] == wanted

    @rule(low=scalars(), high=scalars(), k=st.sampled_from([None, 1, 3]))
    def lookup(self, low: Any, high: Any, k: Any) -> None:
        for field in self.found.indexes:
            assert self.found.lookup(field, low, k=k) == self.judge.lookup(field, low, k)
            if type(low) is type(high) and low is not None and low <= high:
                wanted = self.judge.range_lookup(field, low, high, k)
                assert self.found.range_lookup(field, low, high, k=k) == wanted

    @rule(
        where=WHERE, sort=SORTS, limit=st.sampled_from([None, 1, 3]), skip=st.sampled_from([0, 2])
    )  # fmt: skip
    def find(self, where: Any, sort: Any, limit: Any, skip: int) -> None:
        wanted = self.judge.find(where, sort)[skip:][:limit]
        asked: Any = {"sort": sort, "limit": limit, "skip": skip}
        assert self.found.find(where, **asked) == wanted
        assert list(self.found.find_iter(where, **asked)) == wanted
        assert self.found.find_one(where, sort=sort, skip=skip) == (wanted or [None])[0]
        batches = list(self.found.find_batches(where, **asked))
        texts = [text for batch in batches for text in batch["document"].to_pylist()]
        assert [msgspec.json.decode(text) for text in texts] == wanted
        versions = [self.found.versioned(each["id"]).version for each in wanted]
        assert [seq for batch in batches for seq in batch["seq"].to_pylist()] == versions
        assert self.found.count(where) == len(self.judge.find(where))

    @rule()
    def check(self) -> None:
        assert self.database.check().collections == 1


def test_the_rules_are_short_to_say() -> None:
    """Hypothesis writes them out when it draws again; of pages it warns, which is an error here."""
    for each in CollectionMachine.setup_state().rules:
        for strategy in each.arguments.values():
            strategy.validate()
        assert len(repr(each)) < 10_000


@pytest.mark.parametrize("policy", POLICIES)
def test_a_collection_is_brute_force(policy: str) -> None:
    machine = type("Machine", (CollectionMachine,), {"policy": policy})
    run_state_machine_as_test(machine)
