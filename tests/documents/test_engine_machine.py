"""The engine answers as a plain dict does: every kind and policy, over seals, merges, reopening."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from engine_model import Model, open_engine, records_in, rows_of
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tideline.documents.engine import POLICIES
from tideline.errors import Unavailable
from tideline.index.texts import Texts
from tideline.where.keys import encode

KINDS = ("embedded", "composite", "lazy", "eager")
FIELDS = ("a", "b", "c", "d")
SCALARS = st.sampled_from(
    [None, False, True, 0, 1, -1.5, 2**60 + 1, 7, 8, "", "x", "xy", "long text " * 12]
)
VALUES = st.one_of(SCALARS, st.lists(SCALARS, max_size=3))
KEYS = st.one_of(st.integers(0, 40), st.sampled_from(["k", "key", True, -3, 2.5]))
DOCUMENTS = st.fixed_dictionaries(
    {}, optional={**dict.fromkeys(FIELDS, VALUES), "pad": st.just("p" * 900)}
)
WRITES = st.lists(st.tuples(KEYS, st.one_of(st.none(), DOCUMENTS, DOCUMENTS, DOCUMENTS)),
                  min_size=1, max_size=12)  # fmt: skip


class EngineMachine(RuleBasedStateMachine):
    policy: Any = "prefix"
    kinds: tuple[str, ...] = KINDS

    @initialize(filtered=st.booleans())
    def begin(self, filtered: bool) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="tideline-test-"))
        self.facts = {
            "indexes": dict(zip(FIELDS[:3], self.kinds, strict=False)), "policy": self.policy,
            "filter": "a" if filtered else None, "bloom_bits": 12,
        }  # fmt: skip
        self.engine = open_engine(self.folder / "c", self.facts)
        self.model = Model()

    @rule(writes=WRITES, bring=st.booleans())
    def write(self, writes: Any, bring: bool) -> None:
        fields = self.engine.fields if bring else ()
        first = self.engine.write(rows_of(writes, fields))
        assert first == self.model.seq + 1
        self.model.write(writes)

    @rule()
    def seal(self) -> None:
        self.engine.seal()

    @rule()
    def reopen(self) -> None:
        self.engine.close()
        self.engine = open_engine(self.folder / "c")

    @rule()
    def crash(self) -> None:
        """What a killed process would leave: the files as they are now."""
        self.engine.drain()
        copy = self.folder / "copy"
        shutil.copytree(self.folder / "c", copy)
        self.engine.close()
        shutil.rmtree(self.folder / "c")
        copy.rename(self.folder / "c")
        self.engine = open_engine(self.folder / "c")

    @rule()
    def check(self) -> None:
        self.engine.check()

    @rule(field=st.sampled_from(FIELDS), kind=st.sampled_from(KINDS))
    def change_index(self, field: str, kind: str) -> None:
        if field in self.engine.indexes:
            self.engine.drop_index(field)
        else:
            self.engine.add_index(field, kind)

    @rule(key=KEYS)
    def get(self, key: Any) -> None:
        found = self.engine.get(encode(key))
        assert (None if found is None else json.loads(found)) == self.model.get(key)

    @rule(keys=st.lists(KEYS, max_size=5))
    def get_many(self, keys: list[Any]) -> None:
        found = self.engine.get_many(Texts.of([encode(key) for key in keys]))
        assert [None if f is None else json.loads(f) for f in found] == list(
            map(self.model.get, keys)
        )

    @rule(
        field=st.sampled_from(FIELDS), low=SCALARS, high=SCALARS, point=st.booleans(),
        k=st.sampled_from([None, 1, 3, 10]), opened=st.sampled_from([(0, 0), (1, 0), (0, 1)]),
    )  # fmt: skip
    def lookup(
        self, field: str, low: Any, high: Any, point: bool, k: int | None, opened: Any
    ) -> None:
        if field not in self.engine.indexes:
            return
        low_open, high_open = (False, False) if point else map(bool, opened)
        a, b = encode(low), encode(low if point else high)
        try:
            found = self.engine.lookup(field, a, b, k, low_open=low_open, high_open=high_open)
        except Unavailable:
            self.engine.drain()
            found = self.engine.lookup(field, a, b, k, low_open=low_open, high_open=high_open)
        assert records_in(found) == self.model.lookup(field, a, b, k, low_open, high_open)
        self.engine.estimate(field, a, b)

    @precondition(lambda self: self.engine.filter)
    @rule(field=st.sampled_from(FIELDS), low=SCALARS, high=SCALARS)
    def filtered(self, field: str, low: Any, high: Any) -> None:
        """With a range of the filter's field, nothing in that range is missed."""
        a, b = encode(low), encode(high)
        self.engine.drain()
        inside = {seq for seq, _ in self.model.lookup("a", a, b, None, False, False)}
        if field in self.engine.indexes:
            found = self.engine.lookup(field, b"", b"\xff", filter=(a, b))
            everything = self.model.lookup(field, b"", b"\xff", None, False, False)
            got = records_in(found)
            assert [r for r in got if r in everything] == got
            assert inside & {seq for seq, _ in everything} <= {seq for seq, _ in got}
        scanned = [seq for part in self.engine.scan(filter=(a, b)) for seq in part.seqs.tolist()]
        assert inside <= set(scanned) <= {seq for seq, _ in self.model.records.values()}

    @rule(low=st.none() | KEYS, high=st.none() | KEYS, batch=st.sampled_from([1, 3, 1000]))
    def scan(self, low: Any, high: Any, batch: int) -> None:
        a = None if low is None else encode(low)
        b = None if high is None else encode(high)
        scan = self.engine.scan(a, b, batch=batch)
        expected = self.model.scan(a, b)
        found = next(scan, None)
        got = [] if found is None else [found]
        writes = [(1, {"a": "later"}), (2, None)]
        self.engine.write(rows_of(writes))  # a scan does not see what comes after its start
        self.model.write(writes)
        got += scan
        assert [
            (key, seq, doc)
            for part in got
            for key, (seq, doc) in zip(part.keys, records_in(part), strict=True)
        ] == expected

    @invariant()
    def counts_agree(self) -> None:
        if hasattr(self, "model"):
            assert self.engine.count() == len(self.model.records)

    def teardown(self) -> None:
        if hasattr(self, "engine"):
            try:
                self.engine.check()
            finally:
                self.engine.close()
                shutil.rmtree(self.folder)


SPECS: dict[str, Any] = {
    "none": "none",
    "constant": {"name": "constant", "k": 3},
    "prefix": {"name": "prefix", "max_bytes": 20_000, "max_count": 3},
    "correlated-prefix": {"name": "correlated-prefix", "max_bytes": 20_000, "max_count": 3},
    "leveled": {
        "name": "leveled",
        "first_bytes": 8_000,
        "ratio": 3,
        "max_count": 2,
        "piece_bytes": 4_000,
    },
}


@pytest.mark.parametrize("policy", POLICIES)
def test_the_engine_answers_as_a_plain_dict_does(policy: str) -> None:
    turn = POLICIES.index(policy)

    class Machine(EngineMachine):
        pass

    Machine.policy = SPECS[policy]
    Machine.kinds = KINDS[turn % 4 :] + KINDS[: turn % 4]
    examples = settings.default.max_examples // 2  # of each of five
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        Machine, settings=settings(settings.default, max_examples=examples)
    )
