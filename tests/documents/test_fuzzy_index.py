"""What the kind `fuzzy` promises beside the contract of every kind (test_kinds.py).

Words and windows against a plain walk; every placement the same answers; places of all makes.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import many

import tideline
from tideline.errors import Corruption, InvalidRequest
from tideline.index import dictionary, placement
from tideline.index.fuzzy import FuzzyKind, FuzzyReader
from tideline.index.kind import Asked
from tideline.index.placement import Placement
from tideline.index.texts import Texts
from tideline.index.windows import windows_of
from tideline.kernels.inverted import window as kernel
from tideline.lsm.component import Component, Product, write_component
from tideline.lsm.tree import MergeContext
from tideline.where import parse
from tideline.where.bounds import bounds
from tideline.where.tree import Inside, Near

PLACEMENTS: list[dict[str, Any]] = [
    {}, {"placement": "FL-0"}, {"placement": "FL-1"}, {"placement": "FL-7"},
    {"placement": "VL", "window_m": 2_000},
    {"placement": "VL", "budget_bytes": 60_000, "window_m": 5_000}, {"placement": "VLF"},
    {"placement": "VLF", "frequency": 0.4, "window_m": 2_000}, {"placement": "VLF", "frequency": 0},
]  # fmt: skip


def asked_of(where: dict[str, Any]) -> Asked:
    [box] = bounds(parse(where)).boxes
    tests = (box.tests.get("at", ()), box.tests["name"])
    return Asked((), tuple(t for each in tests for t in each), lambda: True, ((), ()), tests)


def kept(kind: FuzzyKind, documents: list[dict[str, Any]], first: int = 1) -> Any:
    """A memory of documents; document i is that of seq `first` + i."""
    kind.check_fields(["at", "name"])
    [found] = kind.extract(Texts.of([msgspec.json.encode(each) for each in documents]), ["at,name"])
    memory = kind.memory()
    keys = Texts.of([b"k%d" % (first + n) for n in range(len(documents))])
    memory.add(found.values, keys, first, found.row)
    return memory


def opened(kind: FuzzyKind, folder: Path, number: int, product: Product) -> FuzzyReader:
    info = write_component(folder, number, product, kind="fuzzy", sync=False)
    reader = kind.open(Component.open(folder, info))
    reader.check()
    return reader


def led_to(kind: FuzzyKind, view: Any, where: dict[str, Any], below: int = 1 << 62) -> set[int]:
    [(ask,)] = kind.serves(asked_of(where))
    found: set[int] = set()
    for chunk in kind.search(view, ask, None, below):
        assert [b"k%d" % seq for seq in chunk.seqs.tolist()] == chunk.keys.to_list()
        found.update(chunk.seqs.tolist())
    assert kind.estimate(view, ask).entries >= len(found)
    return found


def slip(draw: random.Random, word: str) -> str:
    letters, at = list(word), draw.randrange(len(word))
    what = draw.randrange(4)
    if what == 0:
        letters[at] = draw.choice("aeß")
    elif what == 1:
        letters.insert(at, "e")
    elif what == 2 and len(letters) > 1:
        del letters[at]
    return "".join(letters)


@pytest.fixture(autouse=True)
def _costly_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lookups take what words take: so few entries are worth a tree of dictionaries."""
    monkeypatch.setattr(placement, "ALPHA_US", 1.0)
    monkeypatch.setattr(placement, "BETA_US", 1.0)


@pytest.fixture(scope="module")
def stored() -> list[dict[str, Any]]:
    draw = random.Random(4)
    words = ["".join(draw.choices("abdeinorst", k=draw.randint(1, 16))) for _ in range(3000)]
    words += ["é" * draw.randint(1, 6) + word for word in words[:300]] + ["x" * 70, "y" * 300]
    documents = []
    for _ in range(4000):
        name: Any = " ".join(draw.choices(words[: draw.choice([40, 3302])], k=3))
        at: Any = [draw.gauss(8, 3), draw.gauss(47, 2)]
        other = draw.random()
        if other < 0.05:
            at = draw.choice([None, "there", [200, 0], {"type": "Point", "coordinates": [8, 47]}])
        elif other < 0.08:
            name = [name, draw.choice(words)]
        documents.append({"at": at, "name": name})
    return documents


def questions(draw: random.Random, documents: list[dict[str, Any]], count: int) -> Any:
    for _ in range(count):
        one = draw.choice(documents)
        name = one["name"] if isinstance(one["name"], str) else one["name"][0]
        words = [slip(draw, word)[:64] for word in draw.sample(name.split(), draw.randint(1, 2))]
        threshold = draw.choice(
            [{"distance": draw.randint(0, 3)}, {"similarity": draw.choice([0.5, 0.7, 0.8, 0.9, 1])}]
        )
        where: dict[str, Any] = {"name": {"$fuzzy": {"words": words, **threshold}}}
        x, y = one["at"] if isinstance(one["at"], list) and one["at"][0] < 180 else (8, 47)
        kind = draw.randrange(4)
        if kind == 0:
            where["at"] = {"$geoWithin": {"$box": [[x - 0.5, y - 0.5], [x + 0.5, y + 0.5]]}}
        elif kind == 1:
            where["at"] = {"$near": [x, y], "$maxDistance": draw.choice([10, 30_000, 400_000])}
        elif kind == 2:
            where["at"] = {"$geoWithin": {"$polygon": [[x, y - 1], [x + 2, y], [x, y + 1]]}}
        yield where


@pytest.mark.parametrize("which", range(len(PLACEMENTS)))
def test_every_placement_finds_what_a_walk_finds(
    which: int, stored: list[dict[str, Any]], tmp_path: Path
) -> None:
    kind = FuzzyKind(seed=7, **PLACEMENTS[which])
    memory = kept(kind, stored)
    [product] = kind.seal(memory)
    reader = opened(kind, tmp_path, 1, product)
    about = reader.component.info.extra["placement"]
    assert about["bytes"] > 0
    assert about["nodes"] >= 1
    if PLACEMENTS[which].get("placement") in ("FL-1", "FL-7"):
        assert about["nodes"] > 1
    found = 0
    for where in questions(random.Random(which), stored, 40):
        matches = parse(where).matches
        wanted = {seq for seq, each in enumerate(stored, 1) if matches(each)}
        led = led_to(kind, kind.view([], [reader]), where)
        assert wanted <= led, where
        if "at" not in where or "$box" in str(where):
            assert wanted == led, where  # nothing else is to be held against the condition
        found += len(wanted)
        if which == 0:
            assert led_to(kind, kind.view([memory], []), where) == led, where
            assert led_to(kind, kind.view([], [reader]), where, 2000) == {
                s for s in led if s < 2000
            }
    assert found > 100


@pytest.mark.parametrize("which", range(len(PLACEMENTS)))
def test_a_window_is_looked_through_with_the_same_answers(
    which: int, stored: list[dict[str, Any]], tmp_path: Path
) -> None:
    """By the words of the entries in it, or by a dictionary: however many count as few."""
    kind = FuzzyKind(seed=7, **PLACEMENTS[which])
    [product] = kind.seal(kept(kind, stored))
    reader = opened(kind, tmp_path, 1, product)
    view, looked = kind.view([], [reader]), 0
    reader.turn_lists()
    few = int(reader.row[kernel.F_FEW])
    assert few > 0
    for where in questions(random.Random(90 + which), stored, 60):
        led = []
        for most in (0, 1, 7, few, 4096):
            reader.row[kernel.F_FEW] = most
            led.append(led_to(kind, view, where))
        assert all(each == led[0] for each in led), where
        looked += "at" in where and len(led[0]) > 0
    assert looked > 10


def test_a_placement_with_a_budget_takes_less(stored: list[dict[str, Any]]) -> None:
    sizes = {}
    for which, given_ in enumerate(PLACEMENTS):
        [product] = FuzzyKind(seed=7, **given_).seal(kept(FuzzyKind(seed=7, **given_), stored))
        sizes[which] = product.extra["placement"]["words"]
    assert sizes[0] == sizes[1] < sizes[2] <= sizes[3]
    assert sizes[0] < sizes[4]
    assert sizes[5] < sizes[4]
    assert sizes[8] <= sizes[3]


def test_components_are_merged(stored: list[dict[str, Any]], tmp_path: Path) -> None:
    kind = FuzzyKind(seed=7)
    readers = []
    for number in range(3):
        part = stored[1000 * number : 1000 * (number + 1)]
        [product] = kind.seal(kept(kind, part, 1000 * number + 1))
        readers.append(opened(kind, tmp_path, number + 1, product))

    def owner(keys: Texts, seqs: Any) -> Any:
        return seqs % 4 != 0

    [product] = kind.merge(readers, MergeContext(owner=owner))
    merged = opened(kind, tmp_path, 9, product)
    for where in questions(random.Random(1), stored, 60):
        wanted = led_to(kind, kind.view([], readers), where)
        assert led_to(kind, kind.view([], [merged]), where) == {s for s in wanted if s % 4}
    assert kind.merge(readers, MergeContext(owner=lambda keys, seqs: seqs < 0)) == []


WORD = st.one_of(
    st.text("ab", min_size=1, max_size=14), st.text("aé東\U00020000", min_size=1, max_size=6)
)


@settings(max_examples=many(150))
@given(
    st.lists(WORD, min_size=1, max_size=150), st.lists(WORD, min_size=1, max_size=4),
    st.sampled_from([0, 0.2, 0.5, 0.6, 0.75, 0.8, 0.9, 1, 1e-300]), st.booleans(), st.booleans(),
)  # fmt: skip
def test_a_dictionary_has_every_word_that_is_near(
    words: list[str], asked: list[str], similarity: float, long: bool, many: bool
) -> None:
    if long:
        words = [word * 9 for word in words]
        asked = [(word * 9)[:64] for word in asked]
    if many:  # so that there are pieces for words of these lengths
        words = [*words, *(f"{word}{n}" for word in words[:3] for n in range(70))]
    kind = FuzzyKind(seed=2)
    documents = [{"name": word} for word in words]
    memory = kept(kind, documents)
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        [product] = kind.seal(memory)
        reader = opened(kind, Path(folder), 1, product)
        for word in asked:
            where = {"name": {"$fuzzy": {"word": word, "similarity": similarity}}}
            matches = parse(where).matches
            wanted = {seq for seq, each in enumerate(documents, 1) if matches(each)}
            for view in (kind.view([memory], []), kind.view([], [reader])):
                led = led_to(kind, view, where)
                assert wanted <= led
                if all(len(one) < 255 for one in words):
                    assert wanted == led


@given(WORD, st.fractions(0, 1))
def test_limits_by_length_are_those_of_the_condition(word: str, similarity: Any) -> None:
    for one in (Near(word, similarity=similarity), Near(word, 2)):
        limits = dictionary.limits_of(one).tolist()
        for other in range(1, 255):
            edits = one.limit(max(other, len(word)))
            assert limits[other] == (edits if abs(other - len(word)) <= edits else -1)


PLACES = st.one_of(
    st.tuples(st.floats(-180, 180), st.floats(-90, 90)).map(list),
    st.sampled_from([[180, 90], [-180, -90], [180, 0], [-180, 0], [0, 0], None, [1], "x"]),
    st.tuples(st.floats(-180, 180), st.floats(-90, 90)).map(
        lambda one: {"type": "Point", "coordinates": list(one)}
    ),
)
WINDOWS = st.one_of(
    st.tuples(st.floats(-180, 180), st.floats(-90, 90), st.floats(0, 180), st.floats(0, 90)).map(
        lambda one: {
            "$geoWithin": {
                "$box": [
                    [one[0], one[1]], [min(one[0] + one[2], 180), min(one[1] + one[3], 90)]
                ]
            }
        }
    ),
    st.tuples(st.floats(-180, 180), st.floats(-90, 90), st.floats(0, 2.1e7)).map(
        lambda one: {"$near": [one[0], one[1]], "$maxDistance": one[2]}
    ),
    st.sampled_from(
        [{"$near": [180, 0], "$maxDistance": 1000}, {"$near": [5, 90], "$maxDistance": 5}]
    ),
)  # fmt: skip


@settings(max_examples=many(60))
@given(st.lists(PLACES, min_size=1, max_size=200), st.lists(WINDOWS, min_size=1, max_size=5))
def test_no_place_in_a_window_is_missed(places: list[Any], windows: list[dict[str, Any]]) -> None:
    import tempfile

    kind = FuzzyKind(seed=2)
    documents = [{"at": place, "name": "x"} for place in places]
    memory = kept(kind, documents)
    with tempfile.TemporaryDirectory() as folder:
        [product] = kind.seal(memory)
        reader = opened(kind, Path(folder), 1, product)
        for window in windows:
            where = {"at": window, "name": {"$fuzzy": {"word": "x"}}}
            matches = parse(where).matches
            wanted = {seq for seq, each in enumerate(documents, 1) if matches(each)}
            for view in (kind.view([memory], []), kind.view([], [reader])):
                assert wanted <= led_to(kind, view, where)


def test_a_component_without_any_place_has_nothing_in_a_window(tmp_path: Path) -> None:
    kind = FuzzyKind(seed=2)
    [product] = kind.seal(kept(kind, [{"name": "tide"}, {"at": "x", "name": "tide"}]))
    view = kind.view([], [opened(kind, tmp_path, 1, product)])
    where: dict[str, Any] = {"name": {"$fuzzy": {"word": "tide"}}}
    assert led_to(kind, view, where) == {1, 2}
    where["at"] = {"$geoWithin": {"$box": [[-180, -90], [180, 90]]}}
    assert led_to(kind, view, where) == set()


def test_a_window_around_nearly_everything_is_none() -> None:
    assert windows_of(Inside("ring", (0.0, 0.0, 5.0, float("inf")))) is None
    around = windows_of(Inside("ring", (179.9, 0.0, 0.0, 50_000.0)))
    assert around is not None
    assert around[1][0] == -180.0


@pytest.mark.parametrize("sealed", [False, True])
def test_points_that_count_as_0_are_in_a_window_at_0(tmp_path: Path, sealed: bool) -> None:
    """In outlines, coordinates nearer to 0 than 1e-130 are 0; the index has them as they are."""
    points: list[Any] = [[0, 0], [5e-324, 0], [-1e-310, 1e-200], [0, -2e-131], [1e-129, 0]]
    line = {"type": "LineString", "coordinates": [[-1e-300, 0], [0, 1]]}
    where = {"at": {"$geoIntersects": {"$geometry": line}}, "name": {"$fuzzy": {"word": "tide"}}}
    with tideline.open(tmp_path) as database:
        places = database.collection("places", key="id", indexes={"at,name": "fuzzy"})
        near = [{"id": number, "at": at, "name": "tides"} for number, at in enumerate(points)]
        far = [{"id": 100 + n, "at": [90 + n / 10, 45], "name": "tide"} for n in range(100)]
        places.put_many(near + far)
        if sealed:
            places._engine.seal()
        assert places.explain(where).chosen[0].kind == "fuzzy"
        assert sorted(each["id"] for each in places.find(where)) == [0, 1, 2, 3]


def test_a_collection_is_asked_where_and_roughly_what(tmp_path: Path) -> None:
    with tideline.open(tmp_path) as database:
        places = database.collection(
            "places", key="id", indexes={("at", "name"): {"kind": "fuzzy", "placement": "FL-1"}}
        )
        draw = random.Random(5)
        documents = [
            {"id": n, "at": [draw.uniform(-75, -73), draw.uniform(40, 41)], "name": name}
            for n in range(2500)
            for name in [draw.choice(["Suteishi Restaurant", "Sushi Bar", "Alcatraz", "Jazz Bar"])]
        ]
        where = {
            "at": {"$geoWithin": {"$box": [[-74.2, 40.4], [-73.8, 40.6]]}},
            "name": {"$fuzzy": {"words": ["sutishi", "restorant"], "similarity": 0.8}},
        }
        condition = parse(where)
        for part in range(0, 2500, 500):
            places.put_many(documents[part : part + 500])
            if part in (500, 1500):
                places._engine.seal()
            wanted = {each["id"] for each in documents[: part + 500] if condition.matches(each)}
            assert {each["id"] for each in places.find(where)} == wanted
        assert wanted
        [way] = places.explain(where).chosen
        assert way.kind == "fuzzy"
        assert (
            "words near sutishi (0.8), restorant (0.8) in [-74.2, 40.4, -73.8, 40.6]" in way.ranges
        )
        assert places.indexes == {"at,name": {"kind": "fuzzy", "placement": "FL-1"}}
    with tideline.open(tmp_path) as database:
        places = database.collection("places")
        assert {each["id"] for each in places.find(where)} == wanted
        assert database.check().collections == 1


@pytest.mark.parametrize(
    ("given_", "said"),
    [
        ({"placement": "FL"}, "placement must be 'auto'"), ({"placement": 5}, "placement must be"),
        ({"placement": "VL", "budget_bytes": 0}, "budget_bytes must be a whole number above 0"),
        ({"placement": "VLF", "frequency": -1}, "frequency must be a number, 0 to 1"),
        ({"placement": "VL", "frequency": 0.5}, "frequency is for placement VLF"),
        ({"budget_bytes": 5}, "budget_bytes is for placement VL and VLF"),
        ({"placement": "VL", "window_m": float("inf")}, "window_m must be metres above 0"),
        ({"placement": "VL", "window_m": 10**400}, "window_m must be metres above 0"),
        ({"places": 1}, "no such setting"),
    ],
)  # fmt: skip
def test_a_wrong_placement_is_told(given_: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        Placement.of(given_)


def test_it_is_on_a_text_or_a_place_and_a_text() -> None:
    with pytest.raises(InvalidRequest, match="on a text, or on a place and a text"):
        FuzzyKind(seed=1).check_fields(["a", "b", "c"])


@pytest.mark.parametrize(
    ("column", "change", "said"),
    [
        ("signature", lambda rows: rows[::-1], "signature"),
        ("postings", lambda rows: [[99], *rows[1:]], "not there"),
        ("postings", lambda rows: [[*rows[0][::-1], 0, 0], *rows[1:]], r"order|not there"),
        ("word", lambda rows: rows[::-1], r"order|signature"),
        ("pieces", lambda rows: [[999] * len(rows[0]), *rows[1:]], "a piece has a word"),
        ("nodes", lambda rows: [[5, 0, 0, 2, 0, 0, 0, 0], *rows[1:]], "nodes are wrong"),
        ("fence", lambda rows: [[], *rows[1:]], "other columns than it should"),
    ],
)  # fmt: skip
def test_a_component_in_disorder_is_told(
    column: str, change: Any, said: str, tmp_path: Path
) -> None:
    kind = FuzzyKind(seed=1)
    documents = [{"at": [n, n], "name": f"a{'bcd'[n % 3]} x{'yz' * n}"} for n in range(9)]
    [product] = kind.seal(kept(kind, documents))
    names = product.table.column_names
    rows = change(product.table[column].to_pylist())
    table = product.table.set_column(
        names.index(column), column, pa.array(rows, product.table[column].type)
    )
    changed = Product(table, product.rows, product.filters, product.extra)
    info = write_component(tmp_path, 1, changed, kind="fuzzy", sync=False)
    with pytest.raises(Corruption, match=said):
        kind.open(Component.open(tmp_path, info)).check()


def test_it_answers_while_it_is_written() -> None:
    kind = FuzzyKind(seed=1)
    memory = kind.memory()
    view = kind.view([memory], [])
    where = {"name": {"$fuzzy": {"word": "tidelime", "distance": 1}}}
    for first in range(1, 400, 3):
        documents = [{"name": f"tideline x{first}", "at": [n, 1]} for n in range(3)]
        [found] = kind.extract(
            Texts.of([msgspec.json.encode(each) for each in documents]), ["at,name"]
        )
        keys = Texts.of([b"k%d" % (first + n) for n in range(3)])
        memory.add(found.values, keys, first, found.row)
        assert led_to(kind, view, where) == set(range(1, first + 3))
    assert np.all(memory.shown.columns.seqs[:5] == [1, 2, 3, 4, 5])
