"""Tweets as documents: of the size, the skew and the rate that is promised; queries that fit."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tideline.errors import InvalidRequest
from tideline.workload.documents import Documents
from tideline.workload.queries import (
    GET,
    LOOKUP,
    MIXES,
    PUT,
    UPDATE,
    Mix,
    Mixed,
    Static,
)  # fmt: skip

COUNT = 120_000


@pytest.fixture(scope="module")
def tweets() -> Documents:
    return Documents.of(COUNT, seed=3)


@pytest.fixture(scope="module")
def many(tweets: Documents) -> pa.RecordBatch:
    return tweets.batch(0, COUNT)


# Documents ------------------------------------------------------------------------------


def test_a_text_is_its_row_as_json(tweets: Documents) -> None:
    rows = tweets.batch(500, 300)
    assert [json.loads(text) for text in tweets.texts(500, 300).to_pylist()] == rows.to_pylist()


def test_a_document_has_22_attributes_and_about_550_bytes(tweets: Documents) -> None:
    texts = tweets.texts(0, 20_000)
    sizes = [len(text) for text in texts.to_pylist()]
    assert len(json.loads(texts[0].as_py())) == 22
    assert 530 < np.mean(sizes) < 570
    assert min(sizes) > 350


@given(
    first=st.sampled_from([0, 1, 2_099, 10**6]), count=st.integers(1, 300), cut=st.integers(0, 300)
)
def test_a_split_changes_no_document(first: int, count: int, cut: int) -> None:
    tweets = Documents.of(9_000, seed=5)
    cut = min(cut, count)
    whole = tweets.texts(first, count).to_pylist()
    parts = [tweets.texts(first, cut), tweets.texts(first + cut, count - cut)]
    assert whole == [text for part in parts for text in part.to_pylist()]


def test_about_30_tweets_a_user_and_few_users_write_most(many: pa.RecordBatch) -> None:
    wrote = np.bincount(many["user"].to_numpy())
    assert len(wrote) == COUNT // 30
    busiest = np.sort(wrote)[::-1]
    assert busiest[: len(wrote) // 10].sum() > 0.5 * COUNT
    assert busiest[0] < 0.02 * COUNT
    assert np.median(wrote) < 20
    # Busy users are not neighbours: a tenth of the numbers writes about a tenth.
    parts = wrote[: COUNT // 30 // 10 * 10].reshape(10, -1).sum(axis=1) / COUNT
    assert parts.max() < 0.16


def test_35_tweets_a_second_from_none_to_twice_as_many(many: pa.RecordBatch) -> None:
    time = many["time"].to_numpy()
    assert (np.diff(time) >= 0).all()
    a_second = np.bincount(time - time[0])[:-1]
    assert a_second.min() <= 2
    assert 68 <= a_second.max() <= 70
    assert a_second.mean() == pytest.approx(35, rel=0.02)


def test_what_belongs_to_a_user_is_the_same_in_every_tweet(many: pa.RecordBatch) -> None:
    names = ["user", "name", "about", "town", "followers", "friends", "posts", "joined", "verified"]
    users = pa.Table.from_batches([many]).select(names).group_by(names).aggregate([])
    assert users.num_rows == len(np.unique(many["user"].to_numpy()))


def test_other_ids_leave_the_rest_as_it_is(tweets: Documents) -> None:
    rows, ids = np.array([7, 900]), np.array([3, 4])
    changed = tweets.rows(rows, ids)
    assert changed["id"].to_pylist() == [3, 4]
    assert changed.drop_columns(["id"]) == tweets.rows(rows).drop_columns(["id"])


def test_a_set_larger_than_the_shape_has_more_users() -> None:
    assert Documents.of(36_000_000).user_count == 1_200_000
    with pytest.raises(InvalidRequest):
        Documents.of(0)


# Queries --------------------------------------------------------------------------------


def test_static_queries_ask_for_what_is_there(tweets: Documents, many: pa.RecordBatch) -> None:
    static = Static(tweets, COUNT, seed=2)
    assert all(0 <= key < COUNT for key in static.keys(5_000))
    wrote = np.bincount(many["user"].to_numpy())
    asked = np.array(static.values("user", 5_000))
    assert (wrote[asked] > 0).all()
    assert wrote[asked].mean() > 3 * wrote.mean()  # by tweet, not by user
    assert set(static.values("time", 5_000)) <= set(many["time"].to_pylist())
    assert static.keys(10) == static.keys(20)[:10]


@pytest.mark.parametrize(("field", "width", "wide"), [("user", 10, 10), ("time", 2, 120)])
def test_ranges_are_as_wide_as_asked_and_inside(
    tweets: Documents, many: pa.RecordBatch, field: str, width: int, wide: int
) -> None:
    values = many[field].to_numpy()
    for low, high in Static(tweets, COUNT).ranges(field, 500, width):
        assert high - low + 1 == wide
        assert values.min() <= low
        assert high <= values.max()


@pytest.mark.parametrize("name", MIXES)
@given(first=st.integers(0, 2_000), count=st.integers(0, 500), cut=st.integers(0, 500))
def test_a_split_changes_no_operation(name: str, first: int, count: int, cut: int) -> None:
    mixed = Mixed(Documents.of(3_000), MIXES[name], loaded=10, seed=4)
    cut = min(cut, count)
    whole = mixed.batch(first, count)
    parts = [mixed.batch(first, cut), mixed.batch(first + cut, count - cut)]
    for column in range(3):
        joined = [one for part in parts for one in part[column].tolist()]
        assert whole[column].tolist() == joined


@pytest.mark.parametrize("name", MIXES)
def test_mixes_have_their_shares_and_ask_for_what_was_put(tweets: Documents, name: str) -> None:
    loaded = 50
    batch = Mixed(tweets, MIXES[name], loaded).batch(0, 5_000)
    assert np.bincount(batch.kind, minlength=4).tolist() == [
        50 * share
        for share in (MIXES[name].put, MIXES[name].get, MIXES[name].lookup, MIXES[name].update)
    ]
    documents = iter([json.loads(text) for text in batch.documents.to_pylist()])
    there = dict.fromkeys(range(loaded))
    users = set(tweets.users(np.arange(loaded)).tolist())
    for kind, value in zip(batch.kind.tolist(), batch.value.tolist(), strict=True):
        if kind in (PUT, UPDATE):
            document = next(documents)
            assert document["id"] == value
            assert (value in there) == (kind == UPDATE)
            there[value] = None
            users.add(document["user"])
        elif kind == GET:
            assert value in there
        else:
            assert kind == LOOKUP
            assert value in users
    assert next(documents, None) is None


def test_a_mix_must_add_up() -> None:
    with pytest.raises(InvalidRequest, match="add up to 100"):
        Mixed(Documents.of(10), Mix(50, 20, 10, 0))
