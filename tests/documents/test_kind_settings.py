"""Kinds of index with settings, and kinds that are on several fields with entries of their own.

The kind is that of suffix_kind.py: its setting `cut` is the most bytes of a suffix.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from suffix_kind import SuffixKind

sys.path.append(str(Path(__file__).resolve().parents[1]))

from test_cli import Run, run

import tideline
from tideline.documents.collection import Collection
from tideline.errors import Conflict, InvalidRequest
from tideline.index import kind as index_kind
from tideline.index.kind import make_kind, register, spec_of
from tideline.lsm.manifest import Manifest
from tideline.server import running

__all__ = ["run"]  # a fixture

CUT = {"kind": "suffix", "cut": 3}
WORDS = ["tide", "tideline", "line", "sea line", "idle", "ide", "été", "x" * 40]


def fill(docs: Collection, count: int = 60, seed: int = 1) -> dict[int, dict[str, Any]]:
    draw = random.Random(seed)
    made = [{"id": n, "name": draw.choice(WORDS), "town": draw.choice(WORDS)} for n in range(count)]
    docs.put_many(made)
    return {each["id"]: each for each in made}


def agrees(docs: Collection, model: dict[int, dict[str, Any]], where: dict[str, Any]) -> None:
    condition = tideline.where.parse(where)
    wanted = {key for key, each in model.items() if condition.matches(each)}
    assert {each["id"] for each in docs.find(where)} == wanted


def stored_indexes(folder: Path) -> Any:
    [manifest] = folder.glob("collections/*/MANIFEST")
    return Manifest(manifest).load()["facts"]["indexes"]


def cut_of(docs: Collection, field: str) -> int:
    kind = docs._engine.kinds[field]
    assert isinstance(kind, SuffixKind)
    return kind.cut


def ranges(docs: Collection, where: dict[str, Any]) -> set[tuple[str, ...]]:
    """What would be asked of each way that was weighed; nothing of a scan."""
    found = docs.explain(where)
    return {way.ranges for way in (*found.chosen, *found.others)}


def test_settings_are_stored_and_listed_and_the_kind_gets_them_again(tmp_path: Path) -> None:
    with tideline.open(tmp_path) as db:
        docs = db.collection("docs", key="id", indexes={"name": CUT, "town": "suffix"})
        model = fill(docs)
        docs._engine.seal()
        assert docs.indexes == {"name": CUT, "town": "suffix"}
        assert (cut_of(docs, "name"), cut_of(docs, "town")) == (3, 12)
    assert stored_indexes(tmp_path) == {"name": CUT, "town": "suffix"}
    with tideline.open(tmp_path) as db:
        docs = db.collection("docs", indexes={"town": "suffix", "name": dict(CUT)})
        assert (cut_of(docs, "name"), cut_of(docs, "town")) == (3, 12)
        assert dict(docs._engine.kinds["name"].settings) == {"cut": 3}
        for piece in ("ide", "line", "xxxxx"):
            agrees(docs, model, {"name": {"$regex": piece}})
            assert (f"contains {piece[:3]!r}",) in ranges(docs, {"name": {"$regex": piece}})
        name, town = docs.stats().indexes
        assert (name.kind, name.settings, name.state) == ("suffix", {"cut": 3}, "ready")
        assert (town.kind, town.settings) == ("suffix", {})
        assert {each.field: each.now for each in docs.advise()} == dict.fromkeys(
            ("name", "town"), "suffix"
        )


def test_a_kind_without_settings_is_stored_by_its_name_as_it_always_was(tmp_path: Path) -> None:
    with tideline.open(tmp_path) as db:
        docs = db.collection("docs", key="id", indexes={"name": "lazy", "town": {"kind": "eager"}})
        fill(docs)
        docs.create_index(["town", "name"], {"kind": "composite"}).wait()
    assert stored_indexes(tmp_path) == {"name": "lazy", "town": "eager", "town,name": "composite"}
    with tideline.open(tmp_path) as db:
        docs = db.collection("docs", indexes={"name": "lazy", "town": "eager", "town,name": None})
        assert len(docs.lookup("name", "tide")) == docs.count({"name": "tide"}) > 0


def test_other_settings_than_those_stored_are_a_conflict() -> None:
    with tideline.open(":memory:") as db:
        docs = db.collection("docs", key="id", indexes={"name": CUT, "town": None})
        for other in ("suffix", "lazy", {"kind": "suffix", "cut": 4}):
            with pytest.raises(Conflict, match="other settings"):
                db.collection("docs", indexes={"name": other, "town": None})
            with pytest.raises(InvalidRequest, match="drop it first"):
                docs.create_index("name", other)
        for same in (CUT, {**CUT, "unique": False}, {}, None):
            assert db.collection("docs", indexes={"name": same, "town": "lazy"}) is docs
        assert docs.create_index("name", "suffix", cut=3).done
        assert docs.create_index("name", CUT).done
        assert docs.create_index("name").kind == "suffix"


@pytest.mark.parametrize(
    ("kind", "named"),
    [
        ({"kind": "suffix", "cut": 0}, "cut must be a whole number from 1 to 100"),
        ({"kind": "suffix", "cut": None}, "cut must be"),
        ({"kind": "suffix", "cut": [3]}, "cut must be"),
        ({"kind": "suffix", "n": 3}, r"no such setting.*setting='n', allowed=\['cut'\]"),
        ({"kind": "lazy", "n": 3}, r"no such setting.*kind='lazy', setting='n'"),
        ({"kind": "embedded", "seed": 3}, "no such setting.*setting='seed'"),
        ({"kind": "suffix", "cut": object()}, "must be JSON.*setting='cut'"),
        ({"kind": "suffix", "cut": float("nan")}, "must be JSON.*setting='cut', given=nan"),
        ({"kind": "fuzzy", "seed": 3}, "no such setting.*kind='fuzzy', setting='seed'"),
        ({"kind": "suffix", 3: 3}, "an index without a kind has"),
        ({"cut": 3}, "an index without a kind has"),
        ({"kind": "btree", "n": 3}, "kind must be one of.*kind='btree'"),
        ({"kind": ["suffix"]}, "kind must be one of"),
        ({"kind": "suffix", "cut": 3, "unique": True}, "cannot be unique"),
        ({"kind": "lazy", "unique": 1}, "unique must be True or False"),
    ],
)
def test_a_bad_setting_is_named_and_nothing_changes(kind: Any, named: str) -> None:
    with tideline.open(":memory:") as db:
        with pytest.raises(InvalidRequest, match=named):
            db.collection("docs", key="id", indexes={"name": kind})
        assert db.collections() == []
        docs = db.collection("docs", key="id")
        with pytest.raises(InvalidRequest, match=named):
            docs.create_index("name", kind)
        assert docs.indexes == {}


def test_settings_beside_the_kind_and_within_are_the_same() -> None:
    five = {"kind": "suffix", "cut": 5}
    with tideline.open(":memory:") as db:
        docs = db.collection("docs", key="id")
        model = fill(docs)
        docs.create_index("name", "suffix", cut=5).wait()
        docs.create_index("town", five).wait()
        assert docs.indexes == {"name": five, "town": five}
        agrees(docs, model, {"name": {"$regex": "sea line"}, "town": {"$regex": "ide"}})
        with pytest.raises(InvalidRequest, match="an index without a kind has"):
            docs.create_index("more", cut=5)


def test_a_kind_that_this_process_cannot_make_waits_for_one_that_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A release that knows fewer settings opens what a later one has made."""
    with tideline.open(tmp_path) as db:
        model = fill(db.collection("docs", key="id", indexes={"name": CUT}))

    class Older(SuffixKind):
        def __init__(self, *, seed: int) -> None:
            super().__init__(seed=seed)

    with monkeypatch.context() as older:
        older.setitem(index_kind._KINDS, "suffix", Older)
        with tideline.open(tmp_path) as db:
            docs = db.collection("docs")
            [index] = docs.stats().indexes
            assert (index.kind, index.settings, index.state) == ("suffix", {"cut": 3}, "building")
            agrees(docs, model, {"name": {"$regex": "ide"}})
            docs.put({"id": 1, "name": "tidy idea"})
            model[1] = {"id": 1, "name": "tidy idea"}
    with tideline.open(tmp_path) as db:
        docs = db.collection("docs")
        docs._engine.drain()
        assert docs.indexes == {"name": CUT}
        assert ranges(docs, {"name": {"$regex": "idea"}}) == {(), ("contains 'ide'",)}
        agrees(docs, model, {"name": {"$regex": "ide"}})


def test_a_kind_may_be_on_several_fields_with_entries_of_its_own(tmp_path: Path) -> None:
    conditions: list[dict[str, Any]] = [
        {"name": {"$regex": "ide"}}, {"town": {"$regex": "ide"}},
        {"name": {"$regex": "line"}, "town": {"$regex": "sea"}},
        {"$or": [{"name": {"$regex": "sea"}}, {"town": {"$regex": "xxx"}}]},
    ]  # fmt: skip
    with tideline.open(tmp_path) as db:
        docs = db.collection("docs", key="id", indexes={("name", "town"): CUT})
        model = fill(docs, 300)
        docs._engine.seal()
        docs.delete(3)
        del model[3]
        model |= fill(docs, 20, seed=2)
        for where in conditions:
            agrees(docs, model, where)
        for where in conditions[:2]:
            view = docs._engine.view()
            plan = docs._finder._plan(view, tideline.where.parse(where), 1)
            assert [(way.kind, way.field) for way in plan.ways] == [("index", "name,town")], where
    with tideline.open(tmp_path) as db:
        docs = db.collection("docs")
        assert docs.indexes == {"name,town": CUT}
        for where in conditions:
            agrees(docs, model, where)
        docs.drop_index(["name", "town"])
        docs.create_index(["town", "name"], CUT).wait()  # built on what is stored
        for where in conditions:
            agrees(docs, model, where)


def test_a_kind_gets_the_tests_of_each_field(monkeypatch: pytest.MonkeyPatch) -> None:
    given = []

    class Listening(SuffixKind):
        def serves(self, asked: Any) -> Any:
            given.append((asked.parts, asked.tests_of, asked.tests))
            return super().serves(asked)

    monkeypatch.setitem(index_kind._KINDS, "suffix", Listening)
    with tideline.open(":memory:") as db:
        docs = db.collection("docs", key="id", indexes={("name", "at", "town"): "suffix"})
        fill(docs)
        docs.find({"name": "tide", "town": {"$regex": "ide"}, "lane": 3})
        [(parts, tests_of, tests)] = given
        assert [len(part) for part in parts] == [1, 0, 0]
        assert [len(each) for each in tests_of] == [0, 0, 1]
        assert tests == tests_of[2]
        given.clear()
        docs.find({"lane": 3})
        assert not given  # nothing is asked of its fields


def test_a_kind_says_on_which_fields_it_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    class Pairs(SuffixKind):
        def check_fields(self, fields: Any) -> None:
            if len(fields) != 2:
                raise InvalidRequest("an index of this kind is on two fields", fields=list(fields))

    class Alone(SuffixKind):
        several = False

    monkeypatch.setitem(index_kind._KINDS, "pairs", Pairs)
    monkeypatch.setitem(index_kind._KINDS, "alone", Alone)
    with tideline.open(":memory:") as db:
        docs = db.collection("docs", key="id", indexes={("name", "town"): "pairs"})
        for field in ("name", "a,b,c"):
            with pytest.raises(InvalidRequest, match="on two fields"):
                docs.create_index(field, "pairs")
        with pytest.raises(InvalidRequest, match="of this kind is on one field"):
            docs.create_index("a,b", "alone")


def test_what_cannot_be_stored_is_no_setting() -> None:
    assert spec_of("suffix", {"cut": 3, "more": (1, 2)}) == {
        "kind": "suffix", "cut": 3, "more": [1, 2],
    }  # fmt: skip
    register("open", lambda **settings: SuffixKind(seed=settings.pop("seed")))
    try:
        assert make_kind({"kind": "open", "any": 1}, seed=1).settings == {"any": 1}
    finally:
        del index_kind._KINDS["open"]


# ---- other ways in ---------------------------------------------------------------------------


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Any, str]]:
    with tideline.open(tmp_path / "data") as db, running(db) as url:
        yield db, url


def test_a_client_gives_settings(served: tuple[Any, str]) -> None:
    db, url = served
    with tideline.connect(url) as remote:
        docs = remote.collection("docs", key="id", indexes={"name": CUT, ("name", "town"): CUT})
        assert docs.indexes == {"name": CUT, "name,town": CUT}
        assert remote.collection("docs", indexes={"name": CUT, "name,town": CUT}).name == "docs"
        with pytest.raises(Conflict, match="other settings"):
            remote.collection("docs", indexes={"name": "suffix", "name,town": CUT})
        docs.create_index("town", "suffix", cut=4).wait()
        docs.create_index("more", {"kind": "suffix", "cut": 5}).wait()
        with pytest.raises(InvalidRequest, match=r"cut must be a whole number.*cut=0"):
            docs.create_index("other", "suffix", cut=0)
        settings = {index.field: index.settings for index in docs.stats().indexes}
    assert settings == {
        "name": {"cut": 3}, "name,town": {"cut": 3}, "town": {"cut": 4}, "more": {"cut": 5},
    }  # fmt: skip
    found = db.collection("docs")
    assert (cut_of(found, "town"), cut_of(found, "more")) == (4, 5)


def test_callers_that_wait_give_settings(served: tuple[Any, str], tmp_path: Path) -> None:
    async def story(opened: Any) -> None:
        async with await opened as db:
            docs = await db.collection("docs", key="id", indexes={"name": CUT})
            await docs.create_index("town", "suffix", cut=4)
            assert await docs.indexes() == {"name": CUT, "town": {"kind": "suffix", "cut": 4}}

    asyncio.run(story(tideline.aopen(tmp_path / "other")))
    asyncio.run(story(tideline.aconnect(served[1])))


def test_the_command_line_takes_settings(run: Run) -> None:
    done = run(
        "collection", "create", "data", "docs", "--key", "id", "--index", "name=suffix,cut=3",
        "--index", "town,name=suffix", "--index", "mail=lazy", "--unique", "mail",
    )  # fmt: skip
    assert done.lines[0]["indexes"] == {"name": CUT, "town,name": "suffix", "mail": "lazy"}
    done = run("collection", "index", "data", "docs", "more", "suffix,cut=7")
    assert done.lines == [{"indexed": "more", "kind": "suffix"}]
    assert run("collection", "index", "data", "docs", "x", "suffix,cut=no").code == 2
    assert "once" in run("collection", "index", "data", "docs", "x", "suffix,cut=1,cut=2").error
    listed = run("collection", "list", "data").text
    assert '"name":{"kind":"suffix","cut":3}' in listed.replace(" ", "")


def test_a_backup_has_the_settings(tmp_path: Path) -> None:
    with tideline.open(tmp_path / "db") as db:
        model = fill(db.collection("docs", key="id", indexes={"name": CUT, "name,town": CUT}))
        db.backup(tmp_path / "copy")
    with tideline.open(tmp_path / "copy") as db:
        docs = db.collection("docs")
        assert docs.indexes == {"name": CUT, "name,town": CUT}
        assert cut_of(docs, "name,town") == 3
        agrees(docs, model, {"name": {"$regex": "tide"}})
