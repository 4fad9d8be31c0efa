"""`find_lazily` gives what `find` gives: the same documents, decoded when they are looked at."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

import tideline
from tideline import Documents, InvalidRequest
from tideline.server import running

BOX = {"at": {"$geoWithin": {"$box": [[-1.5, -1.5], [4.5, 4.5]]}}}
WHERES: list[Any] = [
    None, BOX, {"n": 3}, {"n": {"$gte": 2}}, {"id": 7}, {**BOX, "n": 3}, {"n": 99},
    {"$or": [BOX, {"n": 1}]}, {"at": {"$near": [0, 0], "$maxDistance": 300_000}},
]  # fmt: skip


@pytest.fixture(params=["embedded", "client"])
def places(request: Any) -> Iterator[Any]:
    with tideline.open(":memory:") as db:
        made = db.collection("places", key="id", indexes={"at": "spatial", "n": "lazy"})
        made.put_many([{"id": n, "at": [n % 37 / 4, n % 41 / 5], "n": n % 7} for n in range(2_500)])
        made.put({"id": 7, "at": [3, 3], "n": 3, "text": "é\n"})
        if request.param == "embedded":
            yield made
        else:
            with running(db) as url, tideline.connect(url) as remote:
                yield remote.collection("places")


@pytest.mark.parametrize("where", WHERES, ids=str)
def test_it_is_what_find_gives(places: Any, where: Any) -> None:
    asked = itertools.product(
        [None, [("n", 1), ("id", -1)]], [None, 1, 5, 1_500], [0, 3, 5_000],
        [None, ["n"], {"at": 0}],
    )  # fmt: skip
    for sort, limit, skip, fields in asked:
        options = {"sort": sort, "limit": limit, "skip": skip, "fields": fields}
        wanted = places.find(where, **options)
        found = places.find_lazily(where, **options)
        assert isinstance(found, Documents)
        assert len(found) == len(wanted)
        assert list(found) == wanted
        assert msgspec.json.decode(found.json) == wanted
        assert [msgspec.json.decode(text) for text in found.texts()] == wanted
        assert not any(text.endswith(b"\n") for text in found.texts())


def test_it_is_a_sequence(places: Any) -> None:
    found, wanted = places.find_lazily(BOX), places.find(BOX)
    numbers = [*range(-3, 3), None, 100, -100, 5_000, -5_000]
    for first, limit, step in itertools.product(numbers, numbers, [None, 1, 2, -1]):
        part = found[first:limit:step]
        assert list(part) == wanted[first:limit:step]
        if step in (None, 1):
            assert msgspec.json.decode(part.json) == wanted[first:limit]
            assert list(part[1:]) == wanted[first:limit][1:]
    for number in (0, 1, -1, -len(wanted)):
        assert found[number] == wanted[number]
    for number in (len(wanted), -len(wanted) - 1):
        with pytest.raises(IndexError):
            found[number]
    assert wanted[2] in found
    assert found.index(wanted[2]) == 2
    assert list(reversed(found)) == wanted[::-1]
    assert found[0] is not found[0]  # whoever changes one changes no other
    assert repr(found) == f"<Documents: {len(wanted)}>"


def test_it_is_of_the_moment_it_was_asked(places: Any) -> None:
    found = places.find_lazily({"n": 3})
    before = list(found)
    places.delete_where({"n": 3})
    assert list(found) == before
    assert len(before) > 300
    assert len(places.find_lazily({"n": 3})) == 0


def test_what_is_wrong_is_told_at_once(places: Any) -> None:
    for options in ({"limit": -1}, {"skip": "x"}, {"sort": "id"}, {"fields": "id"}):
        with pytest.raises(InvalidRequest):
            places.find_lazily({}, **options)
    with pytest.raises(InvalidRequest, match=r"where\.n\.\$above"):
        places.find_lazily({"n": {"$above": 1}})
