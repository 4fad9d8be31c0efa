"""Standing conditions on rough words and on shapes are found by tokens, and none is missed.

The names of places are few and alike, so that words are often near one another.
"""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import many
from test_standing import check

from tideline.index.texts import Texts
from tideline.standing import Standing
from tideline.where import parse

LETTERS = "aabbcdeéß İ1-"
words = st.text("abcé1", min_size=1, max_size=9)
texts = st.text(LETTERS, max_size=14) | st.sampled_from(
    [
        "Sushi Bar",
        "SUTISHI bar",
        "sushi-bar",
        "Straße",
        "STRASSE 1",
        "x" * 200,
        "a\tb\u0000c",
        "ﬁsh",
    ]
)
thresholds = st.sampled_from([0, 0.3, 0.5, 0.66, 0.8, 0.9, 1])
near = st.one_of(
    st.builds(lambda word, distance: {"word": word, "distance": distance}, words,
              st.integers(0, 3)),
    st.builds(lambda word, similarity: {"words": [word], "similarity": similarity}, words,
              thresholds),
    st.builds(lambda many, similarity: {"words": many, "similarity": similarity},
              st.lists(words, min_size=1, max_size=3), thresholds),
)  # fmt: skip
asked = st.one_of(
    st.builds(lambda one: {"$fuzzy": one}, near),
    st.builds(lambda text: {"$contains": text}, texts.filter(bool)),
    st.builds(lambda text, grams, similarity: {"$jaccard": {
        "text": text, "grams": grams, "similarity": similarity}},
        texts, st.integers(1, 5), thresholds),
)  # fmt: skip
POINTS = [[0, 0], [1.5, 1], [179.99, 3], [-180, 3], [5, 89.9]]
SHAPES: list[Any] = [
    {"type": "Point", "coordinates": [1, 1]},
    {"type": "LineString", "coordinates": [[0, 0], [3, 1]]},
    {"type": "LineString", "coordinates": [[-170, 3], [170, 3]]},
    {"type": "Polygon", "coordinates": [[[0, 0], [2, 0], [2, 2], [0, 2], [0, 0]]]},
    {"type": "Polygon", "coordinates": [[[-179, -80], [179, -80], [179, 80], [-179, -80]]]},
    {"type": "MultiPoint", "coordinates": [[179.99, 3], [0, 0]]},
    {"type": "GeometryCollection", "geometries": [
        {"type": "Point", "coordinates": [5, 89]},
        {"type": "LineString", "coordinates": [[1, 1], [1.001, 1]]}]},
]  # fmt: skip
here = st.one_of(
    st.builds(lambda point, metres: {"$near": {
        "$geometry": {"type": "Point", "coordinates": point}, "$maxDistance": metres}},
        st.sampled_from(POINTS), st.sampled_from([10, 1000, 200_000, 9_000_000])),
    st.sampled_from([
        {"$geoWithin": {"$box": [[-1, -1], [2, 2]]}}, {"$geoIntersects": {"$geometry": SHAPES[1]}},
        {"$geoIntersects": {"$geometry": SHAPES[3]}}, {"$geoWithin": {"$geometry": SHAPES[4]}},
        {"$not": {"$geoWithin": {"$box": [[0, 0], [1, 1]]}}},
        {"$geoWithin": {"$box": [[-180, -90], [180, 90]]}},
    ]),
)  # fmt: skip
wheres = st.one_of(
    st.builds(lambda one: {"name": one}, asked),
    st.builds(lambda one: {"at": one}, here),
    st.builds(lambda one, other: {"name": one, "at": other}, asked, here),
    st.builds(lambda one, other: {"$or": [{"name": one}, {"at": other}, {"n": 1}]}, asked, here),
).map(parse)
documents = st.fixed_dictionaries(
    {},
    optional={
        "name": texts | st.lists(texts, max_size=2) | st.just(7),
        "at": st.sampled_from([*POINTS, *SHAPES]) | st.lists(st.sampled_from(SHAPES), max_size=2),
        "n": st.integers(0, 1),
    },
).map(msgspec.json.encode) | st.just(b"")


@settings(max_examples=many(250))
@given(st.lists(wheres, max_size=10), st.lists(st.tuples(documents, documents), max_size=6))
def test_it_says_what_the_predicates_say(
    given_: list[Any], rows: list[tuple[bytes, bytes]]
) -> None:
    standing = Standing()
    conditions = {standing.add(condition): condition for condition in given_}
    check(standing, conditions, [old for old, _ in rows], [new for _, new in rows])


@pytest.mark.parametrize(
    ("where", "by"),
    [
        ({"name": {"$fuzzy": {"word": "restaurant", "distance": 2}}}, "piece of a text"),
        ({"name": {"$fuzzy": {"words": ["sutishi"], "similarity": 0.8}}}, "piece of a text"),
        ({"name": {"$fuzzy": {"word": "ab", "distance": 1}}}, "type"),
        ({"name": {"$contains": "l-tea"}}, "piece of a text"),
        ({"name": {"$contains": "x"}}, "type"),
        ({"name": {"$jaccard": {"text": "tideline", "similarity": 0.6}}}, "piece of a text"),
        ({"name": {"$jaccard": {"text": "tideline", "similarity": 0}}}, "type"),
    ],
)
def test_what_narrows_is_filed_by_it(where: Any, by: str) -> None:
    standing = Standing()
    [filed] = standing.explain(standing.add(parse(where)))["filed"]
    assert (filed["by"], filed["fields"]) == (by, ["name"])


def test_few_of_many_are_left_to_predicates() -> None:
    """Of 20,000 who ask for a word near a place, a name concerns few; a road those beside it."""
    random = Random(3)
    standing = Standing()
    letters = "abcdefghijklmnoprstuvw"
    for _ in range(20_000):
        word = "".join(random.choices(letters, k=random.randint(6, 10)))
        point = [random.uniform(0, 1), random.uniform(0, 1)]
        standing.add(parse({
            "name": {"$fuzzy": {"words": [word], "similarity": 0.8}},
            "at": {"$near": {"$geometry": {"type": "Point", "coordinates": point},
                             "$maxDistance": 5000}},
        }))  # fmt: skip
    road = {"type": "LineString", "coordinates": [[0.5, 0.5], [0.501, 0.501]]}
    docs = [{"name": "Golden Sushi Restaurant", "at": at} for at in ([0.5, 0.5], road)]
    found = standing.candidates(Texts.of([msgspec.json.encode(one) for one in docs]))
    for row, most in ((0, 20), (1, 200)):
        assert (found.rows == row).sum() < most
