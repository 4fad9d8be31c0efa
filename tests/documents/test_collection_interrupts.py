"""A collection's calls are whole or not at all, whatever is thrown into them; nothing stays locked.

As tests/test_interrupts.py does for channels: an exception is thrown in at every line and after
every call in turn, then at random moments by signals and by other threads. After each cut a plain
dict must agree, newest first, by key, by every kind of index and by scans; then after further
writes, and after the folder is opened again.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from interrupting import (
    Interrupted,
    Operation,
    Thrower,
    by_signals,
    thrown_from_another_thread,
    try_every_place,
    twice,
)

import tideline
from tideline.index.entries import EntryKind
from tideline.index.records import Records
from tideline.index.texts import Texts

INDEXES = {"a": "lazy", "b": "composite", "c": "eager", "d": "embedded"}
Document = dict[str, Any]


pytestmark = pytest.mark.usefixtures("watchdog", "silent_cuts")


def document(key: int, n: int, size: int = 0) -> Document:
    made = {"id": key, "a": n % 3, "b": n, "c": [n % 2, "x"], "d": n % 4, "e": n % 2}
    return {**made, "p": "y" * size} if size else made


class Model:
    """A collection, and what must be in it: documents in the order of their writes."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.folder = folder
        self.settings = settings
        self.documents: dict[int, Document] = {}
        self.indexes = dict(INDEXES)
        self.made = 0
        self.db = tideline.open(folder, **settings)
        self.docs = self.db.collection("d", key="id", indexes=INDEXES, filter="d")
        for key in range(6):
            self.put(document(key, key))

    def put(self, *given: Document) -> None:
        self.docs.put_many(given)
        self.keep(given)

    def keep(self, given: Any) -> None:
        """What was written is the newest."""
        for one in given:
            self.documents.pop(one["id"], None)
            self.documents[one["id"]] = one

    def new(self) -> int:
        self.made += 1
        return 100 + self.made

    def newest_first(self, holds: Callable[[Document], bool] = lambda one: True) -> list[Document]:
        return [one for one in reversed(self.documents.values()) if holds(one)]

    def has(self, given: list[Document]) -> bool:
        """Whether all of a write is there; none of it otherwise."""
        found = [self.docs.get(one["id"]) == one for one in given]
        assert all(found) or not any(found), found
        return all(found)

    def look(self) -> None:
        """Everything that can be asked gives what the model has."""
        newest = self.newest_first()
        keys = [*self.documents, 99]
        by_key = [self.documents.get(key) for key in keys]
        assert self.docs.get_many(keys) == by_key
        assert [self.docs.get(key) for key in keys] == by_key
        assert self.docs.find() == newest
        assert self.docs.indexes == self.indexes
        for field in self.indexes:
            wanted = [one for one in newest if one[field] == 1 or one[field] == [1, "x"]]
            assert self.docs.lookup(field, 1) == wanted, field
        wanted = [one for one in newest if 1 <= one["b"] <= 2]
        assert self.docs.range_lookup("b", 1, 2) == wanted
        wanted = [one for one in newest if 1 <= one["d"] <= 2]
        assert self.docs.range_lookup("d", 1, 2, k=3) == wanted[:3]

    def agree(self) -> None:
        """The collection has what the model has, and takes more."""
        self.look()
        made = document(50, self.made)
        self.docs.put(made)
        self.keep([made])
        assert self.docs.get(50) == made
        assert self.docs.lookup("b", self.made)[0] == made

    def agree_again(self) -> None:
        """The same after closing and opening."""
        self.agree()
        self.look()
        self.db.check()
        self.db.close()
        self.db = tideline.open(self.folder, **self.settings)
        self.docs = self.db.collection("d")
        self.agree()
        self.look()

    def tidy(self) -> None:
        """Few documents, so that a call comes to the same places every time."""
        gone = [key for key in self.documents if key >= 100]
        if gone:
            self.docs.delete_many(gone)
        for key in gone:
            del self.documents[key]


# ---- one call each: run it, then say what must hold -------------------------------------------


def writing(model: Model, call: Callable[[], Any], given: list[Document]) -> Any:
    def after(hit: bool) -> None:
        happened = model.has(given)
        assert happened or hit
        if happened:
            model.keep(given)

    return call, after


def put(model: Model) -> Any:
    made = document(model.new(), 2)
    return writing(model, lambda: model.docs.put(made), [made])


def replace(model: Model) -> Any:
    model.docs.get(3)  # it is kept as text
    made = {**document(3, model.made), "m": model.new()}
    return writing(model, lambda: model.docs.put(made), [made])


def put_many(model: Model) -> Any:
    made = [document(model.new(), n) for n in range(3)]
    made.append({**document(4, 1), "m": model.made})
    return writing(model, lambda: model.docs.put_many(made), made)


def insert(model: Model) -> Any:
    made = document(model.new(), 2)
    return writing(model, lambda: model.docs.insert(made), [made])


def update(model: Model) -> Any:
    made = {**document(3, model.made), "m": model.new()}
    return writing(model, lambda: model.docs.update(3, {"$set": made}), [made])


def update_many(model: Model) -> Any:
    mark = model.new()
    made = [{**one, "m": mark} for one in model.documents.values() if one["id"] < 3]
    made.sort(key=lambda one: int(one["id"]))
    change = {"$set": {"m": mark}}
    return writing(model, lambda: model.docs.update_many({"id": {"$lt": 3}}, change), made)


def delete_where(model: Model) -> Any:
    return deleting(model, lambda keys: model.docs.delete_where({"id": {"$in": keys}}))


def put_when_full(model: Model) -> Any:
    """The generation freezes first; the one before is sealed."""
    big = document(model.new(), 1, size=300_000)
    model.put(big)
    made = document(model.new(), 2)
    return writing(model, lambda: model.docs.put(made), [made])


def put_after_expiry(model: Model) -> Any:
    """What has expired is deleted first: gone for readers, whichever part of that is done."""
    model.docs.put_many([document(model.new(), n) for n in range(3)], ttl_s=1e-6)
    return put(model)


def deleting(model: Model, call: Callable[[list[int]], Any]) -> Any:
    gone = [document(model.new(), n) for n in range(2)]
    model.put(*gone)
    model.docs.get(gone[0]["id"])

    def after(hit: bool) -> None:
        left = [model.docs.get(one["id"]) for one in gone]
        assert left in ([None, None], gone)
        assert hit or left[0] is None
        if left[0] is None:
            for one in gone:
                del model.documents[one["id"]]

    return lambda: call([one["id"] for one in gone]), after


def delete(model: Model) -> Any:
    key = model.new()
    model.put(document(key, 1))

    def after(hit: bool) -> None:
        happened = model.docs.get(key) is None
        assert happened or hit
        if happened:
            del model.documents[key]

    return lambda: model.docs.delete(key), after


def delete_many(model: Model) -> Any:
    return deleting(model, lambda keys: model.docs.delete_many(keys))


def create_index(kind: str) -> Operation:
    def create(model: Model) -> Any:
        def after(hit: bool) -> None:
            model.docs.delete(99)  # whoever writes next waits for what was interrupted
            assert hit or "e" in model.docs._engine.indexes
            if "e" in model.docs._engine.indexes:
                model.docs._engine.drain()
                assert model.docs.indexes == {**INDEXES, "e": kind}
                assert model.docs.lookup("e", 1) == model.newest_first(lambda one: one["e"] == 1)
                model.docs.drop_index("e")

        return lambda: model.docs.create_index("e", kind), after

    return create


def drop_index(kind: str) -> Operation:
    def drop(model: Model) -> Any:
        model.docs.create_index("e", kind).wait()

        def after(hit: bool) -> None:
            model.docs.delete(99)
            if "e" in model.docs.indexes:
                assert hit
                assert model.docs.lookup("e", 0) == model.newest_first(lambda one: one["e"] == 0)
                model.docs.drop_index("e")

        return lambda: model.docs.drop_index("e"), after

    return drop


def reading(name: str, *args: Any, **more: Any) -> Operation:
    def read(model: Model) -> Any:
        return lambda: list(_flat(getattr(model.docs, name)(*args, **more))), lambda hit: None

    return read


def _flat(found: Any) -> Any:
    return found if isinstance(found, (list, Iterator)) else [found]


def seal(model: Model) -> Any:
    model.put(document(model.new(), 1))
    return model.docs._engine.seal, lambda hit: None


WRITES: dict[str, Operation] = {
    "put": put,
    "replace": replace,
    "put_many": put_many,
    "put when full": put_when_full,
    "put after expiry": put_after_expiry,
    "insert": insert,
    "update": update,
    "update_many": update_many,
    "delete_where": delete_where,
    "delete": delete,
    "delete_many": delete_many,
    "create_index lazy": create_index("lazy"),
    "create_index embedded": create_index("embedded"),
    "drop_index eager": drop_index("eager"),
    "drop_index embedded": drop_index("embedded"),
    "seal": seal,
}
READS: dict[str, Operation] = {
    "get": reading("get", 3),
    "get_many": reading("get_many", [1, 2, 99]),
    "lookup lazy": reading("lookup", "a", 1),
    "lookup composite": reading("lookup", "b", 1, 2),
    "lookup eager": reading("lookup", "c", 1, 2),
    "lookup embedded": reading("lookup", "d", 1, 2),
    "range_lookup": reading("range_lookup", "b", 1, 3),
    "range_lookup embedded": reading("range_lookup", "d", 1, 3),
}
PLANNED: dict[str, Operation] = {  # many steps that only read, and then one of the reads above
    "find": reading("find", {"a": 1, "b": {"$gt": 1}}),
    "count": reading("count", {"e": 1}),
    "explain": reading("explain", {"a": 1}, limit=2),
    "scan": reading("scan", {"a": 1}),
    "stats": reading("stats"),
    "advise": reading("advise"),
}
SOME = {
    "put_many": 3,
    "put when full": 5,
    "update_many": 4,
    "delete_where": 4,
}  # of lines; `put` has most of them
OPERATIONS = {**WRITES, **READS, **PLANNED}
LOADED: list[bool] = []


def ready(folder: Path, **settings: Any) -> Model:
    """A collection with a little in it, and every kernel loaded."""
    if not LOADED:
        LOADED.append(True)
        warm = ready(folder.with_name("warm"), memory_mb=1)
        for operation in OPERATIONS.values():
            call, after = operation(warm)
            call()
            after(False)
            warm.agree()
        warm.agree_again()
        warm.db.close()
    return Model(folder, **settings)


@pytest.mark.parametrize("name", WRITES)
def test_a_call_is_whole_or_not_at_all_wherever_it_is_interrupted(
    name: str, tmp_path: Path
) -> None:
    model = ready(tmp_path / "db", memory_mb=1 if name == "put when full" else 16)
    assert try_every_place(model, WRITES[name], "line", step=SOME.get(name, 1)) > 1
    assert try_every_place(model, WRITES[name], "call") > 1
    model.agree_again()
    model.db.close()


def lookup_of_much(model: Model) -> Any:
    """The answer finds no room: larger buffers take the place of those there are."""
    engine = model.docs._engine
    reader = engine._readers.take()
    reader._out = np.zeros((len(reader._out), 0), np.int64)
    reader._out_room(1)
    reader._reply_room(16)
    engine._readers.give(reader)
    engine._recent._clear()
    return lambda: model.docs.lookup("d", 1), lambda hit: None


def test_a_read_that_is_interrupted_leaves_everything_as_it_was(tmp_path: Path) -> None:
    model = ready(tmp_path / "db", memory_mb=16)
    for kind in ("line", "call"):
        for operation in (lookup_of_much, *READS.values()):
            assert try_every_place(model, operation, kind) > 1
        for operation in PLANNED.values():
            assert try_every_place(model, operation, kind, step=11) > 1
    model.agree_again()
    model.db.close()


# ---- more than one, and at random moments -----------------------------------------------------

SETTINGS: dict[str, dict[str, Any]] = {
    "little memory": {"memory_mb": 1},
    "on disk": {"memory_mb": 16, "durability": "disk"},
}


def rounds(model: Model, seed: int, count: int, interrupted: Interrupted) -> int:
    """So many random operations; how many were interrupted."""
    rng = random.Random(seed)
    hits = 0
    for k in range(count):
        name = rng.choice(list(OPERATIONS))
        call, after = OPERATIONS[name](model)
        hit, where = interrupted(call, rng)
        try:
            after(hit)
            model.agree()
        except BaseException as error:
            error.add_note(f"{name} was interrupted: {where}")
            raise
        model.tidy()
        hits += hit
        if k % 50 == 49:
            model.agree_again()
    model.agree_again()
    model.db.close()
    return hits


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("count", [100, pytest.param(5000, marks=pytest.mark.long)])
def test_what_mends_a_call_may_be_interrupted_too(name: str, count: int, tmp_path: Path) -> None:
    assert rounds(ready(tmp_path / "db", **SETTINGS[name]), count, count, twice) > count // 4


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("count", [100, pytest.param(10_000, marks=pytest.mark.long)])
def test_a_signal_handler_may_raise_at_any_moment(name: str, count: int, tmp_path: Path) -> None:
    with by_signals() as interrupted:
        hits = rounds(ready(tmp_path / "db", **SETTINGS[name]), count, count, interrupted)
        assert hits > count // 4


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("count", [100, pytest.param(5000, marks=pytest.mark.long)])
def test_another_thread_may_throw_at_any_moment(name: str, count: int, tmp_path: Path) -> None:
    model = ready(tmp_path / "db", **SETTINGS[name])
    thrown_from_another_thread(lambda interrupted: rounds(model, count, count, interrupted))


# ---- making, dropping, closing ------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["line", "call"])
def test_a_collection_is_made_and_dropped_whole_or_not_at_all(kind: str, tmp_path: Path) -> None:
    model = ready(tmp_path / "db", memory_mb=16)
    verbs = {
        "make": lambda: model.db.collection("more", key="id", indexes={"a": "lazy"}),
        "drop": lambda: model.db.drop_collection("more"),
    }
    for verb, call in verbs.items():
        n = 0
        hit = True
        while hit:
            n += 1
            if verb == "drop":
                model.db.collection("more", key="id").put({"id": n})
            thrower = Thrower(kind, n)
            with thrower:
                call()
            hit = thrower.hit
            there = "more" in model.db.collections()
            assert there == (verb == "make") or hit
            if there:
                more = model.db.collection("more")
                assert more.count() == (verb == "drop")
                model.db.drop_collection("more")
        assert n > 3
    model.agree_again()
    model.db.close()


@pytest.mark.parametrize("kind", ["line", "call"])
def test_a_database_with_a_collection_is_closed_or_it_is_not(kind: str, tmp_path: Path) -> None:
    """Also right after a write that was cut between the log and memory."""
    model = ready(tmp_path / "db", memory_mb=16)
    n = 0
    hit = True
    while hit:
        n += 1
        call, after = put(model)
        with Thrower("line", 330 + n):
            call()
        thrower = Thrower(kind, n)
        with thrower:
            model.db.close()
        model.db.close()
        hit = thrower.hit
        model.db = tideline.open(model.folder, **model.settings)
        model.docs = model.db.collection("d")
        after(True)
        model.agree()
        model.tidy()
    model.db.close()
    assert n > 3


# ---- memories: what was cut is ended by calling again ------------------------------------------


def texts(prefix: str, first: int, limit: int) -> Texts:
    return Texts.of([b"%s%d" % (prefix.encode(), n) for n in range(first, limit)])


def rows_of(first: int, limit: int) -> tuple[Any, ...]:
    """Rows with seqs [first, limit); each key twice, the values of a field one to three."""
    count = limit - first
    row = np.repeat(np.arange(count), np.arange(first, limit) % 3 + 1)
    keys = Texts.of([b"k%d" % (n // 2) for n in range(first, limit)])
    values = Texts.of([b"v%d" % (n % 40) for n in range(len(row))])
    return keys, texts("d", first, limit), np.zeros(count, np.uint8), first, [(row, values)]


@pytest.mark.parametrize("kind", ["line", "call"])
def test_rows_that_were_added_in_part_are_added_whole(kind: str) -> None:
    """Few and many, with and without a larger table."""
    for first, limit in ((2, 3), (2, 40), (510, 530)):
        whole = Records(1 << 16, ["f"], seed=7)
        for each in (rows_of(1, first), rows_of(first, limit)):
            whole.add(*each)
        n = 0
        hit = True
        while hit:
            n += 1
            memory = Records(1 << 16, ["f"], seed=7)
            memory.add(*rows_of(1, first))
            thrower = Thrower(kind, n)
            with thrower:
                memory.add(*rows_of(first, limit))
            hit = thrower.hit
            memory.add(*rows_of(first, limit))
            same_records(memory, whole, thrower.where)
        assert n > 10


def same_records(memory: Records, whole: Records, where: str) -> None:
    assert (memory.rows, memory.size_bytes) == (whole.rows, whole.size_bytes), where
    for what in ("keys", "docs"):
        assert memory.row_texts(what).to_list() == whole.row_texts(what).to_list(), where
    assert memory.newest().tolist() == whole.newest().tolist(), where
    mine, other = memory.values(0), whole.values(0)
    assert mine.lists.tolist() == other.lists.tolist(), where
    assert mine.texts.to_list() == other.texts.to_list(), where


@pytest.mark.parametrize("kind", ["line", "call"])
def test_entries_that_were_added_in_part_are_added_once(kind: str) -> None:
    """With room, and with all parts too small."""
    for first, limit in ((2, 3), (10, 900)):
        n = 0
        hit = True
        while hit:
            n += 1
            memory = EntryKind("lazy", seed=7).memory(64)
            batches = [
                (texts("v", low, high), texts("k", low, high), low)
                for low, high in ((1, first), (first, limit))
            ]
            memory.add(*batches[0])
            thrower = Thrower(kind, n)
            with thrower:
                memory.add(*batches[1])
            hit = thrower.hit
            memory.add(*batches[1])
            assert (memory.count, memory.values) == (limit - 1, limit - 1), thrower.where
            [built] = EntryKind("lazy", seed=7).seal(memory)
            found = {
                value: [(one["seq"], one["key"]) for one in entries]
                for value, entries in zip(
                    built.table["value"].to_pylist(), built.table["entries"].to_pylist(),
                    strict=True,
                )
            }  # fmt: skip
            assert found == {
                b"v%d" % i: [(i, b"k%d" % i)] for i in range(1, limit)
            }, thrower.where  # fmt: skip
        assert n > 5
