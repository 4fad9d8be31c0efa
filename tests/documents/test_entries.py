"""Stand-alone indexes give the entries a plain list of them would give, in every kind.

The model keeps every entry ever added. A candidate may be stale (its owner checks that), so a
search must give at least the entries that no newer one of the same value and key supersedes
and at most the ones ever added: in falling order of seq, no seq twice.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tideline.errors import Corruption, InvalidRequest
from tideline.index.entries import EntryKind
from tideline.index.entryview import View, search
from tideline.index.texts import Texts
from tideline.lsm.component import Component, write_component
from tideline.lsm.filter import MinMax
from tideline.lsm.tree import MergeContext
from tideline.where.keys import encode

KINDS = ["composite", "lazy", "eager"]


class Index:
    """One index on a real folder: memories and components, and the model beside."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self.kind = EntryKind(name, seed=7)
        self.frozen: list[Any] = []  # newest first
        self.readers: list[Any] = []  # newest first
        self.number = 0
        self.seq = 0
        self.model: list[tuple[bytes, bytes, int]] = []
        self.dropped: set[tuple[bytes, int]] = set()
        self.memory = self.kind.memory(older=View(self.kind, [], []))

    def add(self, rows: list[tuple[bytes, list[bytes]]]) -> None:
        """Write records: key and values of each."""
        values, numbers = [], []
        for n, (key, several) in enumerate(rows):
            for value in dict.fromkeys(several):
                values.append(value)
                numbers.append(n)
                self.model.append((value, key, self.seq + n + 1))
        seqs: Any = np.arange(self.seq + 1, self.seq + 1 + len(rows))
        if len(rows) % 2:
            seqs = self.seq + 1
        keys = Texts.of([key for key, _ in rows])
        self.memory.add(Texts.of(values), keys, seqs, np.array(numbers, np.int64))
        self.seq += len(rows)

    def freeze(self) -> None:
        self.frozen.insert(0, self.memory)
        self.memory = self.kind.memory(older=View(self.kind, self.frozen, self.readers))

    def write(self, built: Any) -> Any:
        self.number += 1
        info = write_component(self.folder, self.number, built, kind=self.kind.name, sync=False)
        reader = self.kind.open(Component.open(self.folder, info))
        reader.check()
        return reader

    def seal(self) -> None:
        """Seal the oldest frozen memory."""
        if not self.frozen:
            self.freeze()
        for built in self.kind.seal(self.frozen.pop()):
            self.readers.insert(0, self.write(built))
        if self.kind.eager:
            self.memory.look_back(View(self.kind, self.frozen, self.readers))

    def merge(self, first: int, limit: int, keep: Any = None) -> None:
        """Merge the components [first, limit), newest first."""
        group = self.readers[first:limit]
        if not group:
            return
        made = self.kind.merge(group[::-1], MergeContext(owner=keep))
        self.readers[first:limit] = [self.write(built) for built in made]
        if self.kind.eager:
            self.memory.look_back(View(self.kind, self.frozen, self.readers))

    def view(self) -> View:
        return View(self.kind, [self.memory, *self.frozen], self.readers)

    def drop_multiples(self, keys: Texts, seqs: Any) -> Any:
        """What a merge may be told: entries with a seq that divides by 3 are stale."""
        for key, seq in zip(keys.to_list(), seqs.tolist(), strict=True):
            if seq % 3 == 0:
                self.dropped.add((key, seq))
        return seqs % 3 != 0

    def check(
        self, low: bytes, high: bytes | None, low_open: bool, high_open: bool, k: Any
    ) -> None:
        def wanted(value: bytes) -> bool:
            if value < low or (low_open and value == low):
                return False
            return high is None or value < high or (value == high and not high_open)

        allowed = {(seq, key) for value, key, seq in self.model if wanted(value)}
        newest: dict[tuple[bytes, bytes], int] = {}
        for value, key, seq in self.model:
            if wanted(value):
                newest[value, key] = max(seq, newest.get((value, key), 0))
        needed = {(seq, key) for (_, key), seq in newest.items()} - {
            (seq, key) for key, seq in self.dropped
        }
        asked = self.view().search(low, high, low_open=low_open, high_open=high_open, k=k)
        got: list[tuple[int, bytes]] = []
        for number, chunk in enumerate(asked):
            part = list(zip(chunk.seqs.tolist(), chunk.keys.to_list(), strict=True))
            assert part
            assert k is None or len(part) <= k * 4**number
            got += part
        seqs = [seq for seq, _ in got]
        assert seqs == sorted(set(seqs), reverse=True)
        assert set(got) <= allowed
        assert set(got) >= needed
        estimate = self.view().estimate(low, high, low_open=low_open, high_open=high_open)
        assert estimate.entries >= len(got)
        assert asked.blocks >= 0


# ---- what the tests draw: few values, some of which share their first eight bytes ------------

VALUES = st.one_of(
    st.sampled_from([b"", b"\0", b"\0\0", b"a", b"a\0", b"ab"]),
    st.sampled_from([b"\xff", b"\xff" * 9, b"\x7f", b"\x80"]),
    st.sampled_from([b"12345678", b"123456789", b"12345678\0", b"1234567", b"12345678ab" * 3]),
    st.integers(0, 40).map(lambda n: b"sameprefix-%02d" % n),
    st.integers(0, 3).map(lambda n: b"long" * 250 + bytes([n])),
    st.binary(max_size=3),
)  # fmt: skip
KEYS = st.one_of(
    st.integers(0, 30).map(lambda n: b"key-%d" % n),
    st.integers(0, 3).map(lambda n: b"k" * 900 + bytes([n])),
    st.binary(min_size=1, max_size=2),
)
ROWS = st.lists(st.tuples(KEYS, st.lists(VALUES, max_size=3)), max_size=25)
STEPS = st.one_of(
    st.tuples(st.just("add"), ROWS),
    st.tuples(st.just("freeze"), st.none()),
    st.tuples(st.just("seal"), st.none()),
    st.tuples(st.just("merge"), st.tuples(st.integers(0, 3), st.integers(2, 4), st.booleans())),
)
QUESTIONS = st.tuples(
    VALUES, st.one_of(st.none(), VALUES), st.booleans(), st.booleans(),
    st.sampled_from([None, 1, 2, 10, 1000]),
)  # fmt: skip


@pytest.mark.parametrize("name", KINDS)
@given(
    steps=st.lists(STEPS, min_size=1, max_size=14),
    questions=st.lists(QUESTIONS, min_size=1, max_size=6),
)
def test_a_search_gives_what_a_list_would(
    name: str, steps: list[Any], questions: list[Any], tmp_path_factory: Any
) -> None:
    index = Index(tmp_path_factory.mktemp("entries"), name)
    for step, given_ in steps:
        if step == "add":
            index.add(given_)
        elif step == "merge":
            first, many, some = given_
            index.merge(first, first + many, index.drop_multiples if some else None)
        else:
            getattr(index, step)()
    for low, high, low_open, high_open, k in questions:
        index.check(low, high, low_open, high_open, k)
        index.check(low, low, False, False, k)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("bound", [b"%05d" % n for n in (0, 17, 3_000, 9_999)])
def test_a_range_in_a_large_memory(name: str, bound: bytes, tmp_path: Path) -> None:
    """Most values are kept in order, the last ones are not yet."""
    index = Index(tmp_path, name)
    numbers = np.random.default_rng(5).permutation(10_000)
    for start in (0, 3_000, 9_000):
        part = numbers[start : start + 6_000] if start < 9_000 else numbers[9_000:]
        part = part[:3_000] if start == 0 else part
        index.add([(b"k%d" % (n % 999), [b"%05d" % n]) for n in part.tolist()])
        for k in (1, 10, None):
            index.check(bound, None, False, False, k)
            index.check(b"", bound, False, True, k)
            index.check(bound, b"03010", True, False, k)


@pytest.mark.parametrize("name", KINDS)
def test_thousands_of_entries_grow_a_memory_and_stay_in_order(name: str, tmp_path: Path) -> None:
    index = Index(tmp_path, name)
    random = np.random.default_rng(3)
    for _ in range(6):
        rows = [
            (b"k%d" % random.integers(3_000), [b"user-%05d" % random.zipf(1.3)])
            for _ in range(2_000)
        ]
        index.add(rows)
        index.freeze()
        index.seal()
    index.merge(1, 4)
    index.merge(0, 2, index.drop_multiples)
    for value in (b"user-00001", b"user-00002", b"user-00017", b"user-99999"):
        for k in (None, 1, 10, 500):
            index.check(value, value, False, False, k)
    for k in (None, 10):
        index.check(b"user-00003", b"user-00900", True, False, k)
        index.check(b"", None, False, False, k)


@pytest.mark.parametrize("name", ["lazy", "composite"])
def test_a_search_that_has_enough_reads_no_older_component(name: str, tmp_path: Path) -> None:
    index = Index(tmp_path, name)
    for _ in range(3):
        index.add([(b"k%d" % n, [b"v"]) for n in range(10)])
        index.freeze()
        index.seal()
    asked = index.view().search(b"v", b"v", k=10)
    assert next(asked).seqs.tolist() == list(range(30, 20, -1))
    assert asked.blocks == 1
    assert next(asked).seqs.tolist() == list(range(20, 0, -1))
    assert asked.blocks == 3
    with pytest.raises(StopIteration):
        next(asked)


def test_eager_reads_one_place_for_one_value(tmp_path: Path) -> None:
    index = Index(tmp_path, "eager")
    index.add([(b"k%d" % n, [b"v", b"w"]) for n in range(10)])
    index.freeze()
    index.seal()
    index.add([(b"new", [b"v"])])
    assert index.memory.count == 11  # ten are a copy of the older list
    index.freeze()
    index.seal()
    asked = index.view().search(b"v", b"v")
    assert [chunk.seqs.tolist() for chunk in asked] == [[11, *range(10, 0, -1)]]
    assert asked.blocks == 1
    asked = index.view().search(b"w", b"w")
    assert [len(chunk.seqs) for chunk in asked] == [10]
    assert asked.blocks == 1  # the bloom filter of the newer component says no


def test_eager_copies_from_a_frozen_memory(tmp_path: Path) -> None:
    index = Index(tmp_path, "eager")
    index.add([(b"a", [b"v"]), (b"b", [b"v"])])
    index.freeze()
    index.add([(b"c", [b"v"])])
    assert index.memory.count == 3
    index.check(b"v", b"v", False, False, 1)


@pytest.mark.parametrize("merged", [False, True])
def test_an_eager_index_built_on_old_data_joins_with_what_came_meanwhile(
    merged: bool, tmp_path: Path
) -> None:
    """Lists that began before the old entries were there do not hide them."""
    index = Index(tmp_path, "eager")
    index.seq = 100
    index.add([(b"a", [b"v"]), (b"b", [b"w"])])
    index.freeze()
    index.seal()
    index.add([(b"c", [b"v"])])
    values, keys = Texts.of([b"v", b"v", b"x"]), Texts.of([b"o1", b"o2", b"o3"])
    [built] = index.kind.build(values, keys, np.array([7, 8, 9]), [])
    index.readers.append(index.write(built))
    index.model += [(b"v", b"o1", 7), (b"v", b"o2", 8), (b"x", b"o3", 9)]
    index.memory.look_back(View(index.kind, [], index.readers))
    index.add([(b"d", [b"v", b"w", b"x"])])
    for _ in range(3):
        if merged:
            index.merge(0, len(index.readers))
        for value in (b"v", b"w", b"x"):
            for k in (None, 1, 3, 100):
                index.check(value, value, False, False, k)
        index.freeze()
        index.seal()
        index.add([(b"e", [b"v", b"x"])])
    if merged:
        asked = index.view().search(b"w", b"w", k=1)
        next(asked)
        assert asked.blocks == 1


def test_a_filter_leaves_components_out(tmp_path: Path) -> None:
    index = Index(tmp_path, "lazy")
    for low in (b"1", b"5"):
        index.add([(b"k" + low, [b"v"])])
        index.frozen.insert(0, index.memory)
        [built] = index.kind.seal(index.frozen.pop(), {"filter": MinMax(low, low + b"9")})
        index.readers.insert(0, index.write(built))
        index.memory = index.kind.memory()
    found = index.view().search(b"v", b"v", filters={"filter": (b"0", b"4")})
    assert [chunk.keys.to_list() for chunk in found] == [[b"k1"]]
    index.merge(0, 2)
    assert index.readers[0].component.info.filters == {
        "seq": MinMax(1, 2), "value": MinMax(b"v", b"v"), "filter": MinMax(b"1", b"59"),
    }  # fmt: skip


def test_an_index_is_built_from_entries_in_any_order(tmp_path: Path) -> None:
    index = Index(tmp_path, "lazy")
    values = Texts.of([b"b", b"a", b"b", b"b"])
    keys = Texts.of([b"1", b"2", b"3", b"1"])
    [built] = index.kind.build(values, keys, np.array([9, 4, 7, 2]))
    index.readers = [index.write(built)]
    (chunk,) = index.view().search(b"b", b"b")
    assert list(zip(chunk.seqs.tolist(), chunk.keys.to_list(), strict=True)) == [
        (9, b"1"), (7, b"3"),
    ]  # fmt: skip


def test_the_worked_example_of_the_page(tmp_path: Path) -> None:
    """docs/internals/entries.md"""
    for name in ("lazy", "composite"):
        index = Index(tmp_path, name)
        index.add([(encode(key), [encode(1)]) for key in ("a", "b", "a")])
        [built] = index.kind.seal(index.memory)
        if name == "lazy":
            (row,) = built.table.to_pylist()
            assert row["value"].hex() == "01bff0000000000000"
            assert [(it["seq"], it["key"].hex()) for it in row["entries"]] == [
                (3, "0261"), (2, "0262"),
            ]  # fmt: skip
        else:
            rows = built.table.select(["key", "seq"]).to_pylist()
            assert rows == [{"key": b"\x02a", "seq": 3}, {"key": b"\x02b", "seq": 2}]


@pytest.mark.parametrize("name", KINDS)
def test_nothing_makes_no_component(name: str, tmp_path: Path) -> None:
    index = Index(tmp_path, name)
    assert index.kind.seal(index.memory) == []
    index.add([(b"k", [b"v"])])
    index.seal()
    nothing_stays = MergeContext(owner=lambda keys, seqs: np.zeros(len(seqs), bool))
    assert index.kind.merge(index.readers, nothing_stays) == []
    assert list(search(index.kind, [], [], b"v", b"v", k=3)) == []
    assert list(index.view().search(b"w", b"v")) == []


def test_seqs_do_not_fall() -> None:
    memory = EntryKind("lazy").memory()
    one = Texts.of([b"x", b"y"])
    with pytest.raises(InvalidRequest, match="must not fall"):
        memory.add(one, one, np.array([2, 1]))
    assert memory.count == 0
    with pytest.raises(InvalidRequest, match="no such kind"):
        EntryKind("btree")


# ---- damage ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", KINDS)
def test_a_flipped_byte_is_corruption(name: str, tmp_path: Path) -> None:
    index = Index(tmp_path, name)
    index.add([(b"k%d" % n, [b"v%d" % n]) for n in range(50)])
    index.seal()
    path = tmp_path / index.readers[0].component.info.name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(Corruption, match="checksum"):
        Component.open(tmp_path, index.readers[0].component.info)


def swap_rows(table: Any) -> Any:
    return table.take([1, 0, *range(2, len(table))])


def other_name(table: Any) -> Any:
    return table.rename_columns(["other", *table.column_names[1:]])


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize(
    ("change", "says"), [(swap_rows, "out of order"), (other_name, "other columns")]
)
def test_a_component_with_the_wrong_content_is_corruption(
    name: str, change: Callable[[Any], Any], says: str, tmp_path: Path
) -> None:
    index = Index(tmp_path, name)
    index.add([(b"k%d" % n, [b"v%d" % n]) for n in range(5)])
    [built] = index.kind.seal(index.memory)
    built.table = change(built.table)
    with pytest.raises(Corruption, match=says):
        index.write(built)


def test_a_list_whose_seqs_rise_is_corruption(tmp_path: Path) -> None:
    index = Index(tmp_path, "lazy")
    index.add([(b"k%d" % n, [b"v"]) for n in range(5)])
    [built] = index.kind.seal(index.memory)
    lists = built.table["entries"].chunk(0)
    turned = lists.values.take(np.arange(4, -1, -1))
    built.table = built.table.set_column(
        1, "entries", type(lists).from_arrays(lists.offsets, turned)
    )
    with pytest.raises(Corruption, match="do not fall"):
        index.write(built)
