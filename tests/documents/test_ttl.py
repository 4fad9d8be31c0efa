"""Documents with `ttl_s` are gone by themselves, for every reader, exactly when their time is over.

A random story runs beside a plain dict, over all policies and kinds: what every verb gives is what
the dict has at the time of the clock, over seals, merges, kills, backups and index builds. Somebody
who follows the changes ends up with the same documents.
"""

from __future__ import annotations

import math
import random
import shutil
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from test_kinds import SMALL

import tideline
from tideline.documents.loading import recipe_of
from tideline.documents.policies import POLICIES
from tideline.errors import Conflict, InvalidRequest, NotFound
from tideline.index.kind import kind_names
from tideline.testing import ManualClock

KINDS = ("embedded", "composite", "lazy", "eager")


class Story:
    """A collection, and a dict of key -> (order of the write, document, when it expires)."""

    def __init__(self, folder: Path, kind: str, policy: Any, seed: int) -> None:
        self.folder = folder
        self.draw = random.Random(seed)
        self.clock = ManualClock(1_000)
        self.rows: dict[int, tuple[int, Any, float]] = {}
        self.told: dict[int, Any] = {}
        self.writes = 0
        self.database = tideline.open(folder / "db", clock=self.clock)
        self.docs: Any = self.database.collection(
            "docs", key="id", policy=policy, indexes={"a": kind}, journal_s=1e6, journal_before=True
        )
        self.changes = self.docs.changes(before=True)

    def now(self) -> float:
        return self.clock.now() / 1e6

    def there(self) -> dict[int, tuple[int, Any, float]]:
        return {key: row for key, row in self.rows.items() if row[2] > self.now()}

    def wrote(self, document: Any, until: float) -> None:
        self.writes += 1
        self.rows[document["id"]] = (self.writes, document, until)

    def step(self) -> None:
        draw = self.draw
        key, ttl_s = draw.randrange(40), draw.choice([None, None, 1, 5, 20, math.inf])
        until = math.inf if ttl_s is None else self.now() + ttl_s
        document = {"id": key, "a": draw.randrange(4), "pad": "p" * draw.randrange(60)}
        old = self.there().get(key)
        match draw.choice(["put", "many", "insert", "update", "touch", "all", "replace", "delete"]):
            case "put":
                self.docs.put(document, ttl_s=ttl_s)
                self.wrote(document, until)
            case "many":
                some = [{**document, "id": draw.randrange(40)} for _ in range(draw.randrange(9))]
                self.docs.put_many(some, ttl_s=ttl_s)
                for each in some:
                    self.wrote(each, until)
            case "insert" if old is not None:
                with pytest.raises(Conflict):
                    self.docs.insert(document, ttl_s=ttl_s)
            case "insert":
                self.docs.insert(document, ttl_s=ttl_s)
                self.wrote(document, until)
            case "update" | "touch" | "replace" if old is None:
                with pytest.raises(NotFound):
                    self.docs.update(key, {"$inc": {"n": 1}})
                with pytest.raises(NotFound):
                    self.docs.replace(key, document)
            case "update":
                assert old is not None
                self.wrote(self.docs.update(key, {"$inc": {"n": 1}}), old[2])
            case "touch":
                assert old is not None
                given = self.docs.update(key, {"$set": {"id": key}}, ttl_s=ttl_s)
                if ttl_s is not None:
                    self.wrote(given, until)
            case "all":
                where = {"a": document["a"]}
                met = [row for row in self.there().values() if row[1]["a"] == document["a"]]
                done = self.docs.update_many(where, {"$inc": {"n": 1}})
                assert done.changed == len(met)
                for _, each, its in sorted(met, key=lambda row: row[0]):
                    self.wrote({**each, "n": each.get("n", 0) + 1}, its)
                self.follow_order()
            case "replace":
                self.docs.replace(key, document, ttl_s=ttl_s)
                self.wrote(document, until)
            case "delete":
                self.docs.delete(key)
                self.rows.pop(key, None)

    def follow_order(self) -> None:
        """Of a step on many documents any order is right: take the one there is."""
        newest = {each["id"]: -place for place, each in enumerate(self.docs.find())}
        rows = self.there()
        for key, row in rows.items():
            self.rows[key] = (self.writes + newest[key], *row[1:])
        self.writes += 1

    def agrees(self) -> None:
        rows = self.there()
        newest = [row[1] for row in sorted(rows.values(), key=lambda row: -row[0])]
        docs = self.docs
        assert docs.find() == newest
        assert docs.count() == len(newest)
        assert [docs.get(key) for key in range(40)] == [
            rows[key][1] if key in rows else None for key in range(40)
        ]
        assert docs.get_many(range(40)) == [docs.get(key) for key in range(40)]
        scanned = [row for batch in docs.scan() for row in batch.to_pylist()]
        assert [msgspec.json.decode(row["document"]) for row in scanned] == [
            rows[key][1] for key in sorted(rows)
        ]
        assert docs.distinct("a") == sorted({each["a"] for each in newest})
        [grouped] = docs.aggregate([{"$group": {"_id": None, "n": {"$sum": 1}}}]) or [{"n": 0}]
        assert grouped["n"] == len(newest)
        for a in range(4):
            wanted = [each for each in newest if each["a"] == a]
            assert docs.find({"a": a}) == wanted
            assert docs.count({"a": a}) == len(wanted)
            if "a" in docs.indexes:
                for k in (None, 1, 3):
                    assert docs.lookup("a", a, k) == wanted[:k]
                up = [each for each in newest if each["a"] >= a]
                assert docs.range_lookup("a", a, None, 2) == up[:2]

    def follows(self) -> None:
        """Whoever follows has the same, and each old version is what was told before."""
        for change in self.changes.take():
            assert isinstance(change.key, int)
            assert change.before == self.told.get(change.key)
            if change.after is None:
                self.told.pop(change.key, None)
            else:
                self.told[change.key] = change.after
        assert self.told == {key: row[1] for key, row in self.there().items()}

    def reopen(self, *, killed: bool) -> None:
        place = self.changes.seq
        self.changes.close()
        if killed:
            self.docs._engine.drain()
            shutil.copytree(self.folder / "db", self.folder / "copy")
        self.database.close()
        if killed:
            shutil.rmtree(self.folder / "db")
            (self.folder / "copy").rename(self.folder / "db")
        self.database = tideline.open(self.folder / "db", clock=self.clock)
        self.docs = self.database.collection("docs")
        self.changes = self.docs.changes(after=place, before=True)

    def end(self) -> None:
        self.database.check()
        self.changes.close()
        self.database.close()


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("kind", KINDS)
def test_every_reader_judges_by_the_clock(kind: str, policy: str, tmp_path: Path) -> None:
    story = Story(tmp_path, kind, SMALL[policy], seed=len(kind) * 11 + len(policy))
    for turn in range(15):
        for _ in range(12):
            story.step()
            if story.draw.random() < 0.3:
                story.clock.advance(story.draw.choice([0.5, 1, 3]))
        story.agrees()
        match turn % 5:
            case 0:
                story.docs._engine.seal()
            case 1:
                story.follows()
            case 2:
                story.docs.drop_index("a")
                story.step()
                story.docs.create_index("a", kind).wait()
            case 3:
                story.reopen(killed=turn > 5)
        story.agrees()
    story.follows()
    story.clock.advance(100)
    story.agrees()
    story.follows()
    story.end()


def test_readers_beside_writers_never_see_what_has_expired(tmp_path: Path) -> None:
    """Only the writer moves the clock, so it knows when each document expires."""
    clock = ManualClock(1_000)
    with tideline.open(tmp_path, clock=clock) as database:
        docs = database.collection(
            "docs", key="id", indexes={"a": "lazy", "b": "embedded"}, policy=SMALL["leveled"]
        )
        ended = threading.Event()
        wrong: list[Any] = []

        def read(ask: Any) -> None:
            while not ended.is_set():
                now = clock.now()
                wrong.extend(each for each in ask() if each is not None and each["until"] <= now)

        asks = [
            docs.find,
            lambda: docs.lookup("a", 1),
            lambda: docs.range_lookup("b", 0, 2, 5),
            lambda: docs.get_many(range(50)),
            lambda: [docs.get(7)],
        ]
        threads = [threading.Thread(target=read, args=(ask,)) for ask in asks]
        for thread in threads:
            thread.start()
        draw = random.Random(5)
        for turn in range(150):
            ttl_s = draw.randrange(1, 9)
            until = clock.now() + ttl_s * 1_000_000
            keys = {draw.randrange(50) for _ in range(6)}
            made = [{"id": key, "a": key % 3, "b": key % 4, "until": until} for key in keys]
            docs.put_many(made, ttl_s=ttl_s)
            clock.advance(draw.choice([0, 0.5, 1]))
            if turn % 20 == 0:
                docs._engine.seal()
        ended.set()
        for thread in threads:
            thread.join()
        assert not wrong
        database.check()


def test_a_feed_that_waits_is_told_when_time_moves() -> None:
    clock = ManualClock(1_000)
    with tideline.open(":memory:", clock=clock) as database:
        docs = database.collection("docs", key="id")
        docs.put({"id": 1}, ttl_s=5)
        told: list[Any] = []
        with docs.changes() as changes:
            waiting = threading.Thread(target=lambda: told.append(next(changes)))
            waiting.start()
            while not docs._engine.feed.bells:  # it waits, or is about to
                pass
            clock.advance(5)
            while waiting.is_alive():
                clock.advance(0)
                waiting.join(0.01)
        assert [(change.key, change.after) for change in told] == [(1, None)]


def test_what_has_expired_is_gone_from_records_and_indexes_after_a_merge(tmp_path: Path) -> None:
    clock = ManualClock(1_000)
    database = tideline.open(tmp_path, clock=clock)
    docs = database.collection(
        "docs",
        key="id",
        indexes={"a": "lazy", "b": "composite"},
        policy={"name": "constant", "k": 2},
    )
    docs.put_many([{"id": n, "a": n, "b": n} for n in range(500)], ttl_s=10)
    docs.put_many([{"id": n, "a": n, "b": n} for n in range(1000, 1100)])
    docs._engine.seal()
    clock.advance(10)
    assert docs.count() == 100
    docs._engine.seal()
    docs.put({"id": 2000})
    docs._engine.seal()
    components = docs._engine.stats()["components"]
    assert {name: sum(c["rows"] for c in each) for name, each in components.items()} == {
        "primary": 101, "a": 101, "b": 101,
    }  # fmt: skip
    database.check()
    database.close()


def test_a_unique_value_is_free_when_its_document_has_expired() -> None:
    clock = ManualClock(1_000)
    with tideline.open(":memory:", clock=clock) as database:
        docs = database.collection(
            "docs", key="id", indexes={"mail": {"kind": "lazy", "unique": True}}
        )
        docs.put({"id": 1, "mail": "a"}, ttl_s=5)
        with pytest.raises(Conflict, match="another document"):
            docs.put({"id": 2, "mail": "a"})
        clock.advance(5)
        docs.insert({"id": 2, "mail": "a"})
        assert docs.find() == [{"id": 2, "mail": "a"}]


def test_a_newest_version_that_has_expired_hides_the_older_ones(tmp_path: Path) -> None:
    clock = ManualClock(1_000)
    with tideline.open(tmp_path, clock=clock) as database:
        docs = database.collection("docs", key="id", indexes={"a": "lazy"}, policy="none")
        docs.put({"id": 1, "a": "old"})
        docs._engine.seal()
        docs.put({"id": 1, "a": "new"}, ttl_s=1)
        clock.advance(1)
        assert (docs.get(1), docs.find(), docs.lookup("a", "old")) == (None, [], [])


def test_the_default_of_a_collection_is_kept_and_changes(tmp_path: Path) -> None:
    clock = ManualClock(1_000)
    with tideline.open(tmp_path, clock=clock) as database:
        docs = database.collection("docs", key="id", ttl_s=timedelta(seconds=10))
        docs.put({"id": 1})
        docs.put({"id": 2}, ttl_s=math.inf)
        docs.put({"id": 3}, ttl_s=30)
    with tideline.open(tmp_path, clock=clock) as database:
        docs = database.collection("docs")
        assert docs.ttl_s == 10
        docs.insert({"id": 4})
        docs.update(5, {"$set": {"a": 1}}, upsert=True)
        clock.advance(10)
        assert [each["id"] for each in docs.find()] == [3, 2]
        assert database.collection("docs", ttl_s=math.inf).ttl_s is None
        docs.put({"id": 6})
        clock.advance(1_000)
        assert [each["id"] for each in docs.find()] == [6, 2]
        database.collection("docs", ttl_s=5)
        with pytest.raises(InvalidRequest, match="expire is not loaded in bulk"):
            recipe_of(docs)


def test_a_backup_has_the_times_too(tmp_path: Path) -> None:
    clock = ManualClock(1_000)
    with tideline.open(tmp_path / "db", clock=clock) as database:
        docs = database.collection("docs", key="id")
        docs.put_many([{"id": n} for n in range(10)], ttl_s=5)
        docs._engine.seal()
        docs.put_many([{"id": n} for n in range(10, 20)], ttl_s=7)
        database.backup(tmp_path / "copy")
    with tideline.open(tmp_path / "copy", clock=clock) as database:
        docs = database.collection("docs")
        assert docs.count() == 20
        clock.advance(5)
        assert docs.count() == 10
        clock.advance(2)
        assert docs.count() == 0


@pytest.mark.parametrize("ttl_s", [0, -1, math.nan, "60", True, -math.inf, timedelta(0)])
def test_a_wrong_ttl_is_named(ttl_s: Any) -> None:
    with tideline.open(":memory:") as database:
        docs = database.collection("docs", key="id")
        for call in (
            lambda: docs.put({"id": 1}, ttl_s=ttl_s),
            lambda: docs.put_many([{"id": 1}], ttl_s=ttl_s),
            lambda: docs.insert({"id": 1}, ttl_s=ttl_s),
            lambda: docs.insert_many([{"id": 1}], ttl_s=ttl_s),
            lambda: docs.update(1, {"$set": {"a": 1}}, upsert=True, ttl_s=ttl_s),
            lambda: docs.replace(1, {"a": 1}, ttl_s=ttl_s),
            lambda: database.collection("docs", ttl_s=ttl_s),
        ):
            with pytest.raises(InvalidRequest, match="ttl_s"):
                call()
        assert docs.count() == 0


ASKED: dict[str, Any] = {
    "spatial": {"a": {"$geoWithin": {"$box": [[0, 0], [2, 2]]}}},
    "words": {"a": {"$words": "tide"}},
    "ngrams": {"a": {"$contains": "tid"}}, "fuzzy": {"a": {"$fuzzy": {"word": "tidy"}}},
}  # fmt: skip
"""What an index of the kinds that hold no plain values is asked."""


@pytest.mark.parametrize("kind", ASKED)
def test_what_expired_is_gone_from_an_index_of_places_and_words(kind: str, tmp_path: Path) -> None:
    clock = ManualClock(1_000)
    with tideline.open(tmp_path / "data", clock=clock) as db:
        docs = db.collection("docs", key="id", indexes={"a": kind})
        value, other = ([1, 1], [50, 50]) if kind == "spatial" else ("High tide", "Nothing here")
        docs.put_many([{"id": 100 + n, "a": other} for n in range(3000)])
        for n in range(60):
            docs.put({"id": n, "a": value}, ttl_s=5 if n % 2 else None)
            if n % 25 == 20:
                docs._engine.seal()
        where = ASKED[kind]
        assert [way.kind for way in docs.explain(where).chosen] == [kind]
        assert docs.count(where) == 60
        clock.advance(6)
        assert {each["id"] % 2 for each in docs.find(where)} == {0}
        assert docs.count(where) == len(docs.find(where, limit=40)) == 30
        docs._engine.seal()
        assert docs.count(where) == 30


def test_every_kind_is_in_the_story() -> None:
    assert set(kind_names()) - {"suffix"} == {*KINDS, *ASKED}
