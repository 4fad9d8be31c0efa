"""Pages of `find`: each document that does not change comes once and in its place, whatever is
written between two pages, and whether or not the server still has what was left of the answer.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import many
from talk import Api

import tideline
from tideline.server import running
from tideline.server.tokens import Tokens
from tideline.testing import ManualClock
from tideline.where import parse
from tideline.where.order import sort_keys

VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 2), st.sampled_from(["", "a", "b", 1.5, -0.0]),
    st.lists(st.integers(-1, 1), max_size=2), st.fixed_dictionaries({"x": st.integers(0, 1)}),
)  # fmt: skip
SORTS = st.sampled_from([
    None, {"a": 1}, {"a": -1}, [["a", 1], ["b", -1]], {"a.x": -1, "b": 1}, {"id": 1}, {"id": -1},
    {"b": 1, "id": -1},
])  # fmt: skip
WHERES = st.sampled_from([None, {}, {"b": {"$gte": 0}}, {"a": {"$ne": None}}, {"id": {"$gt": 3}}])


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[Any, Any]]:
    with tideline.open(":memory:") as db, running(db) as url:
        yield db.collection("c", key="id", indexes={"b": "lazy"}), Api(url)


def forgotten(cursor: str) -> str:
    """The same cursor, of an answer that the server no longer has."""
    *place, _ = json.loads(base64.urlsafe_b64decode(cursor))
    return base64.urlsafe_b64encode(json.dumps([*place, "gone"]).encode()).decode()


@given(data=st.data())
@settings(max_examples=many(120))
def test_pages_hold_what_did_not_change_once_and_in_order(served: Any, data: Any) -> None:
    documents, api = served
    documents.delete_where({})
    keys = st.integers(0, 12) | st.sampled_from(["k", "l"])
    for key in data.draw(st.lists(keys, max_size=12)):
        documents.put({"id": key, "a": data.draw(VALUES), "b": data.draw(st.integers(-1, 1))})
    where, sort = data.draw(WHERES), data.draw(SORTS)
    skip, limit = data.draw(st.integers(0, 2)), data.draw(st.none() | st.integers(1, 9))
    first = documents.find(where, sort=sort, skip=skip, limit=limit)
    asked = {"where": where, "sort": sort, "skip": skip, "limit": limit,
             "page": data.draw(st.integers(1, 5))}  # fmt: skip
    found: list[Any] = []
    changed: set[Any] = set()
    cursor: str | None = None
    while True:
        page = api.post("/v1/collections/c/find", asked | ({"cursor": cursor} if cursor else {}))
        assert page.status == 200, page
        found += page.json["result"]
        assert len(page.json["result"]) <= asked["page"]
        cursor = page.json["next"]
        if cursor is None:
            break
        assert page.json["result"], "a page with a next one has documents"
        for key in data.draw(st.lists(keys, max_size=2)):
            changed.add(key)
            if data.draw(st.booleans()):
                documents.delete(key)
            else:
                documents.put({"id": key, "a": data.draw(VALUES), "b": 5})
        if data.draw(st.booleans()):
            cursor = forgotten(cursor)
    still = [one for one in found if one["id"] not in changed]
    if not changed:
        assert found == first
    elif limit is None:
        assert still == [one for one in first if one["id"] not in changed]
    names = [one["id"] for one in (found if sort is None else still)]
    assert len(names) == len(set(names))
    condition = parse(where)
    assert all(condition.matches(one) for one in found)
    if sort is not None:
        marks = [sort_keys(sort, "id")(one) for one in still]
        assert marks == sorted(marks)


def test_a_page_is_never_large(served: Any) -> None:
    documents, api = served
    documents.delete_where({})
    documents.put_many([{"id": n, "text": "x" * 3_000_000} for n in range(5)])
    sizes, cursor = [], None
    while True:
        page = api.post(
            "/v1/collections/c/find", {"limit": 5} | ({"cursor": cursor} if cursor else {})
        )
        sizes.append(len(page.json["result"]))
        cursor = page.json["next"]
        if cursor is None:
            break
    assert sizes == [2, 2, 1]


@pytest.mark.parametrize("cursor", [
    "", "x", "{}", "é", "bnVsbA==", base64.b64encode(b"[1,2,3]").decode(),
    base64.b64encode(b"[" * 100_000).decode(), base64.b64encode(b"\xff\xfe").decode(),
])  # fmt: skip
def test_what_is_no_cursor_is_refused(served: Any, cursor: str) -> None:
    answer = served[1].post("/v1/collections/c/find", {"cursor": cursor})
    assert answer.error == (400, "InvalidRequest")


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.floats(-9, 9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=2),
)


@given(place=ANYTHING, left=st.none() | st.integers(-1, 3) | st.text(), sort=SORTS)
def test_a_forged_cursor_does_no_harm(served: Any, place: Any, left: Any, sort: Any) -> None:
    documents, api = served
    documents.delete_where({})
    documents.put_many([{"id": n, "a": n % 3, "b": "x"} for n in range(5)])
    asked = {"sort": sort, "page": 2}
    cursor = api.post("/v1/collections/c/find", asked).json["next"]
    name, *_ = json.loads(base64.urlsafe_b64decode(cursor))
    forged = base64.urlsafe_b64encode(json.dumps([name, left, place, "x"]).encode()).decode()
    answer = api.post("/v1/collections/c/find", asked | {"cursor": forged})
    assert answer.status in (200, 400), answer
    for other in ({"where": {"a": 1}}, {"skip": 1}, {"limit": 3}):
        assert (
            api.post("/v1/collections/c/find", {**asked, **other, "cursor": cursor}).status == 400
        )


def test_what_is_left_of_an_answer_is_for_whoever_asked(tmp_path: Path) -> None:
    def place(cursor: str) -> list[Any]:
        found: list[Any] = json.loads(base64.urlsafe_b64decode(cursor))
        return found

    with tideline.open(tmp_path) as db:
        orders = db.collection("orders", key="id")
        orders.put_many({"id": n, "owner": "ann" if n < 5 else "bob"} for n in range(3_000))
        tokens = Tokens(tmp_path)
        all_rows, _ = tokens.create(["read"])
        own, _ = tokens.create(["read"], user="ann", rows={"orders": {"owner": "$user"}})
        with running(db) as url:
            path = "/v1/collections/orders/find"
            theirs = place(Api(url, all_rows).post(path, {}).json["next"])
            api = Api(url, own)
            mine = place(api.post(path, {"page": 2}).json["next"])
            mine[3] = theirs[3]
            forged = base64.urlsafe_b64encode(json.dumps(mine).encode()).decode()
            found = api.post(path, {"page": 2, "cursor": forged}).json["result"]
            assert [one["id"] for one in found] == [2, 1]


@pytest.mark.parametrize("sort", [None, {"id": 1}])
@pytest.mark.parametrize("page", [None, 7, 400])
def test_what_expires_between_two_pages_is_not_on_the_next(sort: Any, page: int | None) -> None:
    clock = ManualClock(1_000)
    with tideline.open(":memory:", clock=clock) as db, running(db) as url:
        documents = db.collection("c", key="id")
        documents.put_many([{"id": n} for n in range(2_500) if n % 5 == 0 and not 800 < n < 1_900])
        documents.put_many([{"id": n} for n in range(2_500) if n % 5 or 800 < n < 1_900], ttl_s=10)
        asked = {"where": {"id": {"$gte": 0}}, "sort": sort, "page": page}
        answer = Api(url).post("/v1/collections/c/find", asked).json
        seen = [one["id"] for one in answer["result"]]
        clock.advance(11)
        left = {one["id"] for one in documents.find()} - set(seen)
        later: list[int] = []
        while answer["next"] is not None:
            answer = (
                Api(url).post("/v1/collections/c/find", asked | {"cursor": answer["next"]}).json
            )
            later += [one["id"] for one in answer["result"]]
            assert answer["result"] or answer["next"] is None
        assert sorted(later) == sorted(left)
        assert later == sorted(later) if sort else True
