"""The workload by row number: the same rows however they are asked for, and skewed as promised."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tideline.errors import Conflict, InvalidRequest
from tideline.space import Grid
from tideline.workload.newyork import BOUNDS
from tideline.workload.parts import Parts, bounds_of
from tideline.workload.shape import Choice, Shape, learn, mix, new_york
from tideline.workload.tweets import Operations, Tweets
from tideline.workload.words import WORDS

KINDS: list[Callable[..., Tweets]] = [
    Tweets,
    Operations,
    lambda seed: Operations(seed, subscriptions=1, events=3, place="circle"),
    lambda seed: Tweets(seed, new_york().with_rate(1)),
    lambda seed: Tweets(seed, new_york().with_users(10).with_rate(50_000)),
]


@pytest.fixture(scope="module")
def many() -> pa.RecordBatch:
    """Enough tweets to see what is frequent."""
    return Tweets(seed=3).batch(0, 200_000)


# The same rows ------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@given(
    seed=st.integers(0, 2**63 - 1),
    first=st.sampled_from([0, 1, 2_099, 2_100, 999_999, 10**9]),
    sizes=st.lists(st.integers(0, 400), min_size=1, max_size=6),
)
def test_a_split_changes_no_row(
    kind: Callable[..., Tweets], seed: int, first: int, sizes: list[int]
) -> None:
    workload = kind(seed)
    ends = np.cumsum([0, *sizes])
    parts = [workload.batch(first + int(a), int(b - a)) for a, b in pairwise(ends)]
    whole = workload.batch(first, int(ends[-1]))
    assert pa.Table.from_batches(parts).combine_chunks() == pa.Table.from_batches([whole])


@given(st.lists(st.integers(0, 10**7), min_size=1, max_size=50), st.integers(0, 5))
def test_rows_in_any_order_are_the_rows_of_their_numbers(numbers: list[int], seed: int) -> None:
    workload = Tweets(seed)
    rows = workload.rows(np.array(numbers))
    assert rows.to_pylist() == [workload.batch(number, 1).to_pylist()[0] for number in numbers]


@given(st.integers(1, 40), st.integers(0, 500), st.integers(0, 99))
def test_parts_follow_each_other(parts: int, count: int, first: int) -> None:
    bounds = [bounds_of(part, parts, count, first) for part in range(parts)]
    assert [row for start, limit in bounds for row in range(start, limit)] == list(
        range(first, first + count)
    )


def test_another_seed_gives_other_rows() -> None:
    one, other = Tweets(seed=1).batch(0, 1000), Tweets(seed=2).batch(0, 1000)
    for name in ("user", "at", "lon", "lat", "cell", "text"):
        same = pc.equal(one.column(name), other.column(name))
        assert pc.sum(same).as_py() < 50, name
    assert one.column("id") == other.column("id")


def test_the_rows_of_a_seed_stay_what_they_are() -> None:
    """A workload that others have measured with must not change: this is its fingerprint."""
    rows = [
        *Tweets(seed=1).batch(10**6, 500).to_pylist(),
        *Operations(seed=1).batch(0, 500).to_pylist(),
    ]
    text = json.dumps(rows, default=str)
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == "e800dc11c8c53e2d"


def test_no_rows_is_a_batch_without_rows() -> None:
    assert Tweets().batch(5, 0).num_rows == 0
    assert Operations().batch(5, 0).schema == Operations().schema


# What they are like -------------------------------------------------------------------


def test_time_never_goes_back(many: pa.RecordBatch) -> None:
    at = many.column("at").cast(pa.int64()).to_numpy()
    assert (np.diff(at) >= 0).all()


@pytest.mark.parametrize("rate", [1, 35, 2_000])
def test_rows_a_second_are_uniform_from_none_to_twice_the_rate(rate: int) -> None:
    seconds = 600
    batch = Tweets(seed=5, shape=new_york().with_rate(rate), start_us=0).batch(0, seconds * rate)
    at = batch.column("at").cast(pa.int64()).to_numpy()
    sizes = np.bincount(at // 1_000_000, minlength=seconds)
    assert len(sizes) == seconds  # the minutes hold exactly what the rate says
    assert (sizes.reshape(-1, 60).sum(axis=1) == 60 * rate).all()
    assert sizes.max() <= 2 * rate
    # Uniform: each quarter of the range is met about equally often.
    quarters = np.histogram(sizes, bins=4, range=(0, 2 * rate + 1))[0] if rate > 1 else [150] * 4
    assert min(quarters) > 100
    assert max(quarters) < 200
    if rate > 1:  # neighbours are not each other's complement
        assert abs(np.corrcoef(sizes[:-1], sizes[1:])[0, 1]) < 0.15


def test_few_users_write_much(many: pa.RecordBatch) -> None:
    counts = np.sort(many.column("user").value_counts().field("counts").to_numpy())[::-1]
    users = new_york().users
    expected = users[:6_000].sum() / users.sum()  # a hundredth of the users
    assert counts[:6_000].sum() / counts.sum() == pytest.approx(expected, abs=0.02)
    assert counts[0] > 100 * np.median(counts)


def test_most_come_from_few_towns(many: pa.RecordBatch) -> None:
    lon, lat = (many.column(name).to_numpy() for name in ("lon", "lat"))
    west, south, east, north = BOUNDS
    assert ((lon >= west) & (lon <= east) & (lat >= south) & (lat <= north)).all()
    city = (np.abs(lon + 73.98) < 0.35) & (np.abs(lat - 40.75) < 0.25)
    assert 0.25 < city.mean() < 0.65
    cells = np.sort(many.column("cell").value_counts().field("counts").to_numpy())[::-1]
    assert cells[:2_500].sum() / cells.sum() > 0.6  # a hundredth of the cells
    assert len(cells) > 10_000  # and the others are there too


def test_a_point_lies_in_the_cell_that_is_named(many: pa.RecordBatch) -> None:
    grid = new_york().grid
    for row in many.slice(0, 3_000).to_pylist():
        assert grid.encode((row["lon"], row["lat"])).key == grid.encode(row["cell"]).key


def test_texts_are_words_of_many_lengths(many: pa.RecordBatch) -> None:
    texts = many.column("text").to_pylist()
    known = set(WORDS)
    assert all(word in known for text in texts[:5_000] for word in text.split(" "))
    lengths = np.array([len(text) for text in texts])
    wanted = new_york().lengths
    mean = (wanted * np.arange(len(wanted))).sum() / wanted.sum()
    assert lengths.max() <= 140
    assert mean - 4 < lengths.mean() < mean  # cut back to the end of a word
    assert np.median(lengths) < lengths.mean()  # skewed: short ones are many
    assert (lengths >= 130).mean() > 0.02  # and some say as much as they may


# Operations ---------------------------------------------------------------------------


@pytest.mark.parametrize(("subscriptions", "events"), [(3, 1), (1, 3), (0, 1), (1, 0)])
def test_the_ratio_of_operations_is_what_was_asked(subscriptions: int, events: int) -> None:
    batch = Operations(seed=1, subscriptions=subscriptions, events=events).batch(0, 40_000)
    share = pc.mean(pc.equal(batch.column("op"), "subscribe")).as_py()
    assert share == pytest.approx(subscriptions / (subscriptions + events), abs=0.01)


def test_operations_are_the_tweets(many: pa.RecordBatch) -> None:
    tweets = many.slice(0, 2_000).to_pylist()
    for tweet, op in zip(tweets, Operations(seed=3).batch(0, 2_000).to_pylist(), strict=True):
        assert (op["id"], op["at"], op["place"]) == (tweet["id"], tweet["at"], tweet["cell"])
        if op["op"] == "subscribe":
            assert (op["user"], op["body"]) == (tweet["user"], None)
            assert op["since"] == op["at"] - timedelta(seconds=10)
            assert op["until"] == op["at"] + timedelta(seconds=10)
        else:
            assert (op["user"], op["since"]) == (None, None)
            assert json.loads(op["body"]) == {"text": tweet["text"]}
            assert op["until"] == op["at"] + timedelta(seconds=20)


@pytest.mark.parametrize("place", ["cell", "circle"])
def test_a_channel_takes_them_as_they_are(open_channel: Any, place: str) -> None:
    grid = new_york().grid
    channel = open_channel(space=grid, max_ahead_s=math.inf)  # the clock stands still
    workload = Operations(seed=2, shape=new_york().with_rate(20_000), place=place)
    done = channel.apply(pa.Table.from_batches([workload.batch(0, 20_000)]))
    assert done.rejected.num_rows == 0  # rows without a radius are points
    assert done.answers.num_rows > 1_000


# Shapes -------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=12).filter(any))
def test_a_choice_is_as_likely_as_its_weight(weights: list[int]) -> None:
    slots, chances = len(weights), 2048
    slot = (np.arange(slots, dtype=np.uint64) << np.uint64(32)) // np.uint64(slots) + np.uint64(1)
    chance = np.arange(chances, dtype=np.uint64) << np.uint64(21)
    draws = ((slot[:, None] << np.uint64(32)) | chance).ravel()
    picked = np.bincount(Choice(np.array(weights)).pick(draws), minlength=slots)
    expected = np.array(weights) / sum(weights) * len(draws)
    assert np.abs(picked - expected).max() <= slots  # a slot may be off by one of its draws
    assert not picked[np.array(weights) == 0].any()


def test_more_users_keep_the_curve() -> None:
    shape = new_york()
    for count in (7_000, 600_000, 3_000_000):
        users = shape.with_users(count).users
        assert len(users) == count
        for share in (0.001, 0.01, 0.1, 0.5):
            got = users[: int(count * share)].sum() / users.sum()
            want = shape.users[: int(600_000 * share)].sum() / shape.users.sum()
            assert got == pytest.approx(want, abs=0.005)


def test_what_is_learned_from_tweets_makes_tweets_like_them() -> None:
    seeds = Tweets(1, new_york().with_users(500).with_rate(80)).batch(0, 60_000)
    shape = learn(pa.Table.from_batches([seeds]))
    assert (len(shape.users), shape.rate, shape.tweets) == (500, 80, 60_000)
    made = Tweets(9, shape).batch(0, 60_000)

    def by(batch: pa.RecordBatch, name: str) -> dict[str, int]:
        counts = batch.column(name).value_counts()
        return dict(zip(counts.field(0).to_pylist(), counts.field(1).to_pylist(), strict=True))

    busy = [sorted(by(batch, "user").values())[-20:] for batch in (seeds, made)]
    assert np.allclose(busy[0], busy[1], rtol=0.1)
    there, here = by(seeds, "cell"), by(made, "cell")
    assert set(here) <= set(there)  # no tweet from where nobody wrote
    top = sorted(there, key=lambda cell: -there[cell])[:20]
    assert np.allclose([there[c] for c in top], [here[c] for c in top], rtol=0.35)
    mean = [pc.mean(pc.utf8_length(batch.column("text"))).as_py() for batch in (seeds, made)]
    assert mean[1] == pytest.approx(mean[0], abs=4)


def test_learning_reads_batches_with_gaps() -> None:
    at = [datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=n) for n in range(3)]
    rows = {
        "user": ["a", "b", None],
        "lon": [-74.0, None, 10.0],
        "lat": [41.0, 41.0, 10.0],
        "text": ["yes", None, "x" * 5_000],
        "at": [at[0], None, at[2]],
        "other": [1, 2, 3],
    }
    shape = learn(pa.table(rows).to_batches())
    assert (shape.cells.sum(), shape.lengths.sum(), shape.tweets) == (1, 2, 3)
    assert Tweets(1, shape).batch(0, 10).num_rows == 10


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"text": None}, "needs the columns user, lon, lat, text and at"),
        ({"lon": ["west", "east"]}, "lon must be double"),
        ({"at": [1, 2]}, "at must be a timestamp"),
        ({"lon": [0.0, 0.0]}, "one inside the bounds"),
    ],
)
def test_a_seed_set_that_teaches_nothing_is_refused(change: dict[str, Any], message: str) -> None:
    at = [datetime(2026, 1, 1), datetime(2026, 1, 2)]
    rows = {"user": ["a", "b"], "lon": [-74.0] * 2, "lat": [41.0] * 2, "text": ["x", "y"], "at": at}
    kept = {name: values for name, values in {**rows, **change}.items() if values is not None}
    with pytest.raises(InvalidRequest, match=message):
        learn(pa.table(kept))


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Tweets(seed=-1),
        lambda: Tweets(seed=2**63),
        lambda: Tweets(seed=1.5),  # type: ignore[arg-type]
        lambda: Tweets(start_us=-1),
        lambda: Tweets().batch(-1, 5),
        lambda: Tweets(shape=new_york().with_rate(1)).batch(10**12, 5),
        lambda: new_york().with_rate(0),
        lambda: new_york().with_rate(500_001),
        lambda: new_york().with_users(0),
        lambda: Operations(subscriptions=0, events=0),
        lambda: Operations(subscriptions=-1),
        lambda: Operations(ahead_s=0),
        lambda: Operations(valid_s=float("nan")),
        lambda: Operations(place="cells"),
    ],
)
def test_settings_that_mean_nothing_are_refused(wrong: Callable[[], object]) -> None:
    with pytest.raises(InvalidRequest):
        wrong()


def test_equal_shapes_are_equal() -> None:
    assert new_york().with_users(5) == new_york().with_users(5)
    assert new_york().with_users(5) != new_york()
    assert hash(new_york().with_rate(5)) == hash(new_york().with_rate(5))
    small = Grid(bounds=BOUNDS, rows=2, cols=2)
    ones = np.ones(4, np.int64)
    assert Shape(small, ones, ones, ones, rate=1, tweets=4) != new_york()


def test_the_mixer_is_the_published_one() -> None:
    """SplitMix64 from 0: the first numbers as its authors' code gives them."""
    steps = np.arange(1, 4, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    assert [hex(n) for n in mix(steps)] == [
        "0xe220a8397b1dcdaf", "0x6e789e6aa1b965f4", "0x6c45d188009454f",
    ]  # fmt: skip


# Files --------------------------------------------------------------------------------


def test_files_hold_the_rows_in_order(tmp_path: Path) -> None:
    workload = Tweets(seed=4)
    for files in (1, 3, 7):
        parts = Parts(workload, 50_000, tmp_path / str(files), files)
        parts.write_here(parts.claim(), threads=2)
        assert parts.finish() > 0
        assert pq.read_table(tmp_path / str(files)).equals(
            pa.Table.from_batches([workload.batch(0, 50_000)])
        )


def test_a_stopped_run_goes_on_where_it_was(tmp_path: Path) -> None:
    parts = Parts(Operations(seed=4), 1_000, tmp_path / "out", 5)
    assert parts.claim() == [0, 1, 2, 3, 4]
    parts.write(1)
    parts.write(3)
    (tmp_path / "out" / ".part-00002.parquet.dead").write_bytes(b"half")  # of a killed run
    before = parts.file(1).stat().st_mtime_ns
    again = Parts(Operations(seed=4), 1_000, tmp_path / "out", 5)
    assert again.claim() == [0, 2, 4]
    again.write_here(again.claim(), threads=1)
    again.finish()
    assert parts.file(1).stat().st_mtime_ns == before
    assert (tmp_path / "out" / "_SUCCESS").exists()
    assert pq.read_table(tmp_path / "out").column("id").to_pylist() == [
        str(n) for n in range(1_000)
    ]


def test_a_folder_with_something_else_is_refused(tmp_path: Path) -> None:
    Parts(Tweets(seed=1), 100, tmp_path / "a", 2).claim()
    with pytest.raises(Conflict, match=r"another workload.*seed.: 1"):
        Parts(Tweets(seed=2), 100, tmp_path / "a", 2).claim()
    with pytest.raises(Conflict, match="another workload"):
        Parts(Tweets(seed=1), 100, tmp_path / "a", 4).claim()
    with pytest.raises(Conflict, match="another workload"):
        Parts(Tweets(seed=1, shape=new_york().with_rate(5)), 100, tmp_path / "a", 2).claim()
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "mine.txt").write_text("keep")
    with pytest.raises(Conflict, match="empty folder"):
        Parts(Tweets(seed=1), 100, tmp_path / "b", 2).claim()
    with pytest.raises(InvalidRequest, match="must be a folder"):
        Parts(Tweets(seed=1), 100, tmp_path / "b" / "mine.txt", 2).claim()


@pytest.mark.parametrize(
    "wrong", [{"count": 0}, {"parts": 0}, {"parts": 101}, {"form": "xml"}, {"count": 10**14}]
)
def test_files_that_cannot_be_made_are_refused(tmp_path: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        Parts(**{"workload": Tweets(), "count": 100, "folder": tmp_path, "parts": 1, **wrong})


def test_csv_is_what_the_command_apply_reads(tmp_path: Path) -> None:
    from tideline.cli.batch import read_table

    parts = Parts(Operations(seed=4), 300, tmp_path, 1, "csv")
    parts.write_here(parts.claim(), threads=1)
    rows = read_table(parts.file(0)).to_pylist()
    wanted = parts.workload.batch(0, 300).to_pylist()
    naive = {"at", "since", "until"}
    for got, want in zip(rows, wanted, strict=True):
        for name, value in want.items():
            expected = value.replace(tzinfo=None) if name in naive and value else value
            assert got[name] == expected, name
    assert csv.read_csv(parts.file(0)).num_rows == 300
