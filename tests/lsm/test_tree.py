"""Edits of a tree, under every policy: what is read is always the newest, and nothing is lost."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from profiles import few

from tideline.lsm.component import Component, Product
from tideline.lsm.filter import MinMax
from tideline.lsm.policy import Constant, Leveled, NoMerge, Policy, Prefix
from tideline.lsm.tree import MergeContext, Tree


class Reader:
    """Keys and the number of the write of each; a negative one is a delete."""

    def __init__(self, component: Component) -> None:
        self.component = component
        table = component.table
        self.rows = dict(zip(table["key"].to_pylist(), table["seq"].to_pylist(), strict=True))

    def check(self) -> None:
        self.component.verify()


class Numbers:
    """The smallest kind: sorted keys, cut into pieces of so many bytes, eight a row."""

    name = "numbers"

    def open(self, component: Component) -> Reader:
        return Reader(component)

    def seal(self, memory: dict[int, int], context: Any = None) -> list[Product]:
        return self._products(memory, None)

    def merge(self, readers: Sequence[Reader], context: MergeContext) -> list[Product]:
        rows: dict[int, int] = {}
        for reader in readers:
            rows |= reader.rows
        if not context.hides:
            rows = {key: seq for key, seq in rows.items() if seq > 0}
        return self._products(rows, context.cut_bytes)

    def _products(self, rows: dict[int, int], cut_bytes: int | None) -> list[Product]:
        keys = sorted(rows)
        size = len(keys) if cut_bytes is None else max(cut_bytes // 8, 1)
        made = []
        for first in range(0, len(keys), size or 1):
            some = keys[first : first + size]
            table = pa.table({"key": some, "seq": [rows[key] for key in some]})
            made.append(Product(table, len(some), {"key": MinMax(some[0], some[-1])}))
        return made


POLICIES: dict[str, Policy] = {
    "none": NoMerge(),
    "constant": Constant(3),
    "prefix": Prefix(3000, 2),
    "leveled": Leveled(4000, 2, 2, 32, by="key"),
    "leveled in large pieces": Leveled(2000, 3, 1, 4000, by="key"),
    "leveled without a cut": Leveled(1000, 2, 2),
}


def tree_of(folder: Path, policy: Policy) -> Tree[Reader]:
    return Tree(folder, "numbers", Numbers(), policy, itertools.count(1).__next__, sync=False)


def newest(tree: Tree[Reader]) -> dict[int, int]:
    """What a search finds that goes from the newest component back."""
    found: dict[int, int] = {}
    for reader in reversed(tree.readers):
        for key, seq in reader.rows.items():
            found.setdefault(key, seq)
    return {key: seq for key, seq in found.items() if seq > 0}


def merge_once(tree: Tree[Reader]) -> bool:
    due = tree.merges(0)
    if not due:
        return False
    merge, readers = due[0]
    if merge.moves:
        return tree.move(readers[0], merge.level)
    context = MergeContext(0, merge.cut_bytes, tree.hides(readers, "key"))
    made = tree.write_all(tree.kind.merge(readers, context), merge.level)
    return tree.apply(made, readers)


@pytest.mark.parametrize("name", POLICIES)
@settings(
    max_examples=few(25),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    seals=st.lists(
        st.lists(st.tuples(st.integers(0, 60), st.booleans()), min_size=1, max_size=30),
        max_size=12,
    )
)
def test_the_newest_is_found_whatever_was_merged(
    name: str, tmp_path_factory: pytest.TempPathFactory, seals: list[list[tuple[int, bool]]]
) -> None:
    policy = POLICIES[name]
    tree = tree_of(tmp_path_factory.mktemp("tree"), policy)
    model: dict[int, int] = {}
    seq = 0
    for writes in seals:
        memory: dict[int, int] = {}
        for key, deleted in writes:
            seq += 1
            memory[key] = -seq if deleted else seq
            model[key] = memory[key]
        tree.apply(tree.write_all(tree.kind.seal(memory, None)))
        for _ in range(1000):
            assert newest(tree) == {key: seq for key, seq in model.items() if seq > 0}
            if not merge_once(tree):
                break
        else:
            raise AssertionError("the policy never comes to rest")
        if isinstance(policy, Leveled):
            assert_leveled(tree, policy)
        tree.sweep(tree.waste)
        named = {info.name for info in tree.infos}
        assert {path.name for path in tree.folder.iterdir()} == named
    tree.close()


def assert_leveled(tree: Tree[Reader], policy: Leveled) -> None:
    """Levels fall from the oldest to the newest, and inside one of them nothing overlaps."""
    levels = [info.level for info in tree.infos]
    assert levels == sorted(levels, reverse=True)
    assert levels.count(0) <= policy.max_count
    for level in set(levels) - {0}:
        ranges = sorted(
            (info.filters["key"].low, info.filters["key"].high)
            for info in tree.infos
            if info.level == level
        )
        assert all(high < low for (_, high), (low, _) in itertools.pairwise(ranges))
        size = sum(info.size_bytes for info in tree.infos if info.level == level)
        assert size <= policy.first_bytes * policy.ratio ** (level - 1)


def test_an_edit_with_a_component_that_is_gone_changes_nothing(tmp_path: Path) -> None:
    tree = tree_of(tmp_path, NoMerge())
    first, second = (tree.write(tree.kind.seal({key: key}, None)[0]) for key in (1, 2))
    assert tree.apply([first])
    assert not tree.apply([second], [tree.write(tree.kind.seal({3: 3}, None)[0])])
    assert tree.readers == [first]
    tree.sweep(tree.waste)
    assert not (tmp_path / second.component.info.name).exists()
    assert not tree.move(second, 1)
    tree.close()


def test_what_is_older_than_all_comes_first(tmp_path: Path) -> None:
    tree = tree_of(tmp_path, NoMerge())
    new, old = (tree.write(tree.kind.seal({1: seq}, None)[0]) for seq in (2, 1))
    tree.apply([new])
    tree.apply([old], oldest=True)
    assert newest(tree) == {1: 2}
    tree.close()


def test_of_several_components_all_are_written_or_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = tree_of(tmp_path, NoMerge())
    made = [tree.kind.seal({key: key}, None)[0] for key in (1, 2)]
    opened = tree.kind.open

    def open_once(component: Component) -> Reader:
        monkeypatch.setattr(tree.kind, "open", fails)
        return opened(component)

    def fails(component: Component) -> Reader:
        raise OSError("no")

    monkeypatch.setattr(tree.kind, "open", open_once)
    with pytest.raises(OSError, match="no"):
        tree.write_all(made)
    # The second is a file that no manifest names: it goes at the next opening.
    assert len(list(tmp_path.iterdir())) == 1
