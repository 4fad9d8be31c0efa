"""The contract of every kind of index, and of one that is made in a single file of these tests.

Whatever was written, sealed, merged under any policy, killed and opened again, built on what was
stored, or dropped: a condition that an index serves finds what a scan finds.
"""

from __future__ import annotations

import random
import shutil
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest
from suffix_kind import SuffixKind

import tideline
from tideline.documents.collection import Collection
from tideline.documents.policies import POLICIES
from tideline.errors import InvalidRequest, Unavailable
from tideline.index import kind as index_kind
from tideline.index.kind import Asked, kind_names, make_kind
from tideline.where.bounds import bounds
from tideline.where.tree import Regex

WORDS = ["", "tide", "tideline", "line", "sea line", "idle", "Tide", "ide", "été", "x" * 40,
         "Sea-line, TIDE", "line sea"]  # fmt: skip
FUZZY = [
    {"name": {"$fuzzy": asked}}
    for asked in (
        {"word": "tidelin", "distance": 1}, {"words": ["sea", "lines"], "similarity": 0.8},
        {"words": ["tide", {"word": "sae", "distance": 2}], "distance": 0},
    )
]  # fmt: skip
SERVED: dict[str, list[dict[str, Any]]] = {
    "suffix": [{"name": {"$regex": word}} for word in ("ide", "line", "e", "sea l", "x" * 20)],
    "words": [
        *({"name": {"$words": asked}} for asked in ("tide", "sea line", '"sea line"', "ÉTÉ", "no")),
        FUZZY[2],
    ],
    "fuzzy": [*FUZZY, {"name": {"$words": "line sea"}}, {"name": {"$words": '"sea line"'}}],
    "ngrams": [
        {"name": {"$contains": "IDE"}},
        {"name": {"$contains": "sea l"}},
        {"name": {"$contains": "été"}},
        {"name": {"$regex": "ea.lin"}},
        {"name": {"$regex": "^TIDE", "$options": "i"}},
        {"name": {"$regex": "été$"}},
        {"name": {"$jaccard": {"text": "sea lines", "similarity": 0.4}}},
        {"name": {"$jaccard": {"text": "tideline", "similarity": 0.3}}},
        FUZZY[0],
    ],
}
LINE = {"type": "LineString", "coordinates": [[0, 0], [6, 6], [6, 0]]}
PLACES: list[Any] = [
    [1, 2], [3, 3], [179.5, 1], [-179.5, -1], {"type": "Point", "coordinates": [5, 5]}, LINE,
    {"type": "Polygon", "coordinates": [[[2, 2], [7, 2], [7, 7], [2, 7], [2, 2]]]},
    {"type": "LineString", "coordinates": [[0, 0]]}, [181, 0],
    {"type": "GeometryCollection", "geometries": [{"type": "Point", "coordinates": [9, 9]}, LINE]},
]  # fmt: skip
SERVED["spatial"] = [
    {"name": {"$geoWithin": {"$box": [[0, 0], [6, 6]]}}},
    {"name": {"$geoIntersects": {"$box": [[4, 4], [6, 6]]}}},
    {"name": {"$geoIntersects": {"$geometry": LINE}}},
    {"name": {"$geoWithin": {"$polygon": [[0, 0], [7, 0], [7, 7], [2, 7]]}}},
    {"name": {"$geoWithin": {"$centerSphere": [[180, 0], 0.05]}}},
    {"name": {"$nearSphere": [-180, 0], "$maxDistance": 200_000}},
    {"name": {"$near": [0, 0], "$minDistance": 300_000}},
]
RANGES = [
    {"name": "tide"}, {"name": {"$gte": "ide", "$lt": "tidel"}}, {"name": {"$in": ["line", None]}},
    {"name": {"$gt": 3}}, {"name": True},
]  # fmt: skip
SMALL = {
    "none": "none",
    "constant": {"name": "constant", "k": 2},
    "prefix": {"name": "prefix", "max_bytes": 8_000, "max_count": 2},
    "correlated-prefix": {"name": "correlated-prefix", "max_bytes": 8_000, "max_count": 2},
    "leveled": {
        "name": "leveled", "first_bytes": 6_000, "ratio": 2, "max_count": 1, "piece_bytes": 3_000,
    },
}  # fmt: skip
ALL = kind_names()


def document(draw: random.Random, key: int) -> dict[str, Any]:
    one: Any = draw.choice([*WORDS, *WORDS, 7, True, None])
    value = one if draw.random() < 0.8 else [one, draw.choice(WORDS)]
    if draw.random() < 0.3:
        value = draw.choice(PLACES)
    return {"id": key, "name": value, "pad": "p" * draw.randrange(80)}


class Story:
    """A collection and a plain dict, side by side."""

    def __init__(self, folder: Path, kind: str, policy: Any, seed: int) -> None:
        self.folder = folder
        self.kind = kind
        self.draw = random.Random(seed)
        self.model: dict[int, dict[str, Any]] = {}
        self.database = tideline.open(folder / "db")
        self.found: Collection = self.database.collection(
            "docs", key="id", policy=policy, indexes={"name": kind}
        )

    def write(self, count: int) -> None:
        """Put and delete: some by one, some in a batch."""
        for _ in range(count):
            keys = [self.draw.randrange(60) for _ in range(self.draw.randrange(1, 12))]
            if self.draw.random() < 0.2:
                self.found.delete_many(keys)
                for key in keys:
                    self.model.pop(key, None)
                continue
            documents = [document(self.draw, key) for key in keys]
            self.found.put_many(documents)
            self.model.update((each["id"], each) for each in documents)

    def seal(self) -> None:
        self.found._engine.seal()

    def kill(self) -> None:
        """Go on with the files as a killed process would leave them."""
        self.found._engine.drain()
        self.copy()
        self.reopen(as_copied=True)

    def copy(self) -> None:
        """Note the files as they are; nothing is written in the background."""
        shutil.copytree(self.folder / "db", self.folder / "copy")

    def reopen(self, *, as_copied: bool = False) -> None:
        self.database.close()
        if as_copied:
            shutil.rmtree(self.folder / "db")
            (self.folder / "copy").rename(self.folder / "db")
        self.database = tideline.open(self.folder / "db")
        self.found = self.database.collection("docs")

    def agree(self, *, indexed: bool = True) -> None:
        """Every condition finds what a scan finds, and the index was there to be asked."""
        assert (self.found.indexes == {"name": self.kind}) is indexed
        for where in SERVED.get(self.kind, RANGES):
            condition = tideline.where.parse(where)
            wanted = {key for key, each in self.model.items() if condition.matches(each)}
            if indexed:
                self.asked(where, condition, wanted)
            for limit in (None, 1, 3, 50):
                found = self.found.find(where, limit=limit)
                assert all(self.model[each["id"]] == each for each in found)
                assert len(found) == min(len(wanted), limit or len(wanted)), (where, limit)
                assert {each["id"] for each in found} <= wanted
            newest = [each["id"] for each in self.found.find(where)]
            assert [each["id"] for each in self.found.find(where, limit=3)] == newest[:3]
            assert self.found.count(where) == len(wanted)

    def asked(self, where: Any, condition: Any, wanted: set[int]) -> None:
        """Whatever the planner would choose: the index itself leads to all that is wanted."""
        view = self.found._engine.view()
        [box] = bounds(condition).boxes
        needs, tests = box.needs.get("name", ()), box.tests.get("name", ())
        choices = view.kind_of("name").serves(Asked(needs, tests, lambda: True))
        assert choices, where
        for asks in choices:
            found = set()
            for ask in asks:
                all_of_it = view.search("name", ask)
                seqs = all_of_it.seqs.tolist()
                assert seqs == sorted(set(seqs), reverse=True)
                for k in (1, 4, 2000):
                    assert view.search("name", ask, k).seqs.tolist() == seqs[:k]
                documents = [msgspec.json.decode(text) for text in all_of_it.docs]
                assert all(self.model[each["id"]] == each for each in documents)
                met = {each["id"] for each in documents if condition.matches(each)}
                assert not ask.exact or len(met) == len(documents)
                found |= met
                assert view.estimate("name", ask).entries >= 0
            assert found == wanted, where

    def end(self) -> None:
        assert self.database.check().collections == 1
        self.database.close()


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("kind", ALL)
def test_an_index_finds_what_a_scan_finds(kind: str, policy: str, tmp_path: Path) -> None:
    story = Story(tmp_path, kind, SMALL[policy], seed=len(kind) * 31 + len(policy))
    for step in range(8):
        story.write(6)
        if step % 2:
            story.seal()
        story.agree()
        if step in (3, 6):
            story.kill()
            story.agree()
    story.end()


@pytest.mark.parametrize("kind", ALL)
def test_an_index_is_built_on_what_is_stored_and_dropped(kind: str, tmp_path: Path) -> None:
    story = Story(tmp_path, kind, SMALL["leveled"], seed=5)
    for step in range(5):
        story.write(6)
        story.seal()
        story.found.drop_index("name")
        story.agree(indexed=False)
        story.write(3)
        if step % 2:
            story.kill()
        build = story.found.create_index("name", kind)
        story.write(3)
        build.wait()
        story.agree()
    story.end()


@pytest.mark.parametrize("kind", ALL)
def test_a_build_that_was_killed_begins_again(kind: str, tmp_path: Path) -> None:
    story = Story(tmp_path, kind, "none", seed=9)
    story.write(10)
    story.seal()
    story.found.drop_index("name")
    gate = threading.Event()
    story.found._engine.dataset.submit(gate.wait)  # type: ignore[arg-type]
    story.found.create_index("name", kind)
    story.copy()  # the manifest says that it is built, and nothing of it is there
    gate.set()
    story.reopen(as_copied=True)
    story.found._engine.drain()
    story.agree()
    story.end()


def test_an_index_of_a_kind_that_is_not_known_waits_for_one_who_knows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    story = Story(tmp_path, "suffix", "prefix", seed=3)
    story.write(8)
    story.seal()
    with monkeypatch.context() as unknown:
        unknown.delitem(index_kind._KINDS, "suffix")
        story.reopen()
        [index] = story.found.stats().indexes
        assert (index.kind, index.state) == ("suffix", "building")
        story.write(4)
        story.seal()
        story.agree(indexed=False)
        with pytest.raises(Unavailable, match="being built"):
            story.found._engine.view().kind_of("name")
    story.reopen()
    story.found._engine.drain()
    story.agree()
    story.end()


def test_an_index_of_an_unknown_kind_can_be_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    story = Story(tmp_path, "suffix", "prefix", seed=4)
    story.write(8)
    story.seal()
    monkeypatch.delitem(index_kind._KINDS, "suffix")
    story.reopen()
    story.found.drop_index("name")
    story.write(2)
    story.agree(indexed=False)
    story.end()


def test_a_kind_is_known_by_its_name_alone(tmp_path: Path) -> None:
    assert {"embedded", "composite", "lazy", "eager", "suffix"} <= set(kind_names())
    with tideline.open(tmp_path) as database:
        with pytest.raises(InvalidRequest, match=r"kind must be one of .*suffix"):
            database.collection("docs", key="id", indexes={"name": "btree"})
        docs = database.collection("docs", key="id", indexes={"name": "suffix"})
        docs.put_many([{"id": n, "name": f"name {n}"} for n in range(200)])
        docs.put({"id": 1, "name": "tideline"})
        with pytest.raises(InvalidRequest, match="does not serve lookups of values: use find"):
            docs.lookup("name", "tideline")
        [way] = docs.explain({"name": {"$regex": "deli"}}).chosen
        assert (way.kind, way.ranges) == ("suffix", ("contains 'deli'",))


def test_a_kind_says_what_it_serves() -> None:
    kind = make_kind("suffix", seed=1)
    assert isinstance(kind, SuffixKind)
    asked = Asked((), (Regex("tide"), Regex("t.de"), Regex("tide", "i")), lambda: True)
    assert [str(ask) for (ask,) in kind.serves(asked)] == ["contains 'tide'"]
    assert not make_kind("lazy", seed=1).serves(asked)
