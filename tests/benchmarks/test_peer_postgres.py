"""PostgreSQL as a peer: its answers are Tideline's, and what it acknowledged survives kill -9."""

from __future__ import annotations

import numpy as np
import psutil
import pyarrow as pa
import pytest

import tideline

pytest.importorskip("psycopg", reason="psycopg is not installed: pip install 'psycopg[binary]'")

from benchmarks.peers.base import Given, answer_type
from benchmarks.peers.postgres import PostgresPeer
from benchmarks.peers.postgres_batch import bucket_of, buckets_of

pytestmark = pytest.mark.skipif(
    PostgresPeer.missing() is not None, reason=str(PostgresPeer.missing())
)

SECOND = 1_000_000
START = 1_700_000_000 * SECOND
BOUNDS = (0.0, 0.0, 8.0, 8.0)


def random_operations(seed, count, *, shapes, first_id=0, start=START, unseen=0.5):
    """Few places and users, lives from 1 ms to 100 s, some rows late, some over at once."""
    rng = np.random.default_rng(seed)
    event = rng.random(count) < 0.4
    at = start + np.cumsum(rng.integers(0, SECOND // 2, count))
    at -= np.where(rng.random(count) < 0.2, rng.integers(0, 8 * SECOND, count), 0)
    ahead = (1000 * 10 ** rng.uniform(0, 5, count)).astype(np.int64)
    back = rng.integers(0, 20 * SECOND, count)
    forever = rng.random(count) < 0.02
    # A window that was over before it was asked for still has a past.
    over = ~event & (rng.random(count) < 0.1)
    until = np.where(over, at - back // 2, at + ahead)
    since = np.minimum(at - back, until - 1)
    if shapes:
        place = {
            "lon": pa.array(rng.uniform(3.9, 4.1, count)),
            "lat": pa.array(rng.uniform(3.9, 4.1, count)),
            "radius_m": pa.array(rng.uniform(0, 15_000, count), mask=event),
        }
    else:
        place = {"place": pa.array([f"p{n}" for n in rng.integers(0, 3, count)])}
    time = pa.timestamp("us", "UTC")
    return pa.RecordBatch.from_pydict({
        "op": pa.array(np.where(event, "publish", "subscribe").tolist()),
        "id": pa.array([str(first_id + n) for n in range(count)]),
        **place,
        "user": pa.array([f"u{n}" for n in rng.integers(0, 3, count)], mask=event),
        "at": pa.array(at).cast(time),
        "since": pa.array(since, mask=event).cast(time),
        "until": pa.array(until, mask=forever).cast(time),
        "body": pa.array(['{"n":1}'] * count, mask=~event),
        "unseen": pa.array(~event & (rng.random(count) < unseen)),
    })  # fmt: skip


def channel_of(database, *, shapes):
    space = tideline.QuadTree(BOUNDS, depth=8) if shapes else tideline.Flat()
    return database.channel("c", space=space)


def answers_of(channel, operations):
    applied = channel.apply(operations)
    assert applied.rejected.num_rows == 0
    found = np.empty(applied.answers.num_rows, answer_type)
    found["row"] = applied.answers["row"].to_numpy()
    for name in ("subscription", "event"):
        found[name] = applied.answers[name].cast(pa.string()).cast(pa.int64()).to_numpy()
    return np.sort(found)


def batches_of(operations, sizes):
    start = 0
    for size in sizes:
        yield operations.slice(start, size)
        start += size
    assert start == operations.num_rows


@pytest.fixture
def start(tmp_path):
    """Starts the peer on the test's folder, as often as asked."""
    running = []

    def started(**given):
        running.append(PostgresPeer(Given(tmp_path / "pg", memory_mb=32, **given)))
        return running[-1]

    yield started
    for peer in running:
        peer.close()


@pytest.fixture
def ours():
    database = tideline.open(":memory:")
    yield database
    database.close()


@pytest.mark.parametrize("shapes", [False, True], ids=["flat", "circles"])
def test_the_answers_are_tidelines_before_and_after_a_crash(shapes, start, ours):
    peer, channel = start(shapes=shapes), channel_of(ours, shapes=shapes)
    sizes = [200, 1, 1, 1, 40, 2, 255, *[1] * 100, 400] * 2
    operations = random_operations(7, sum(sizes), shapes=shapes)
    total = 0
    for number, batch in enumerate(batches_of(operations, sizes)):
        if number == len(sizes) // 2:
            peer.crash()
            peer = start(shapes=shapes)
        wanted = answers_of(channel, batch)
        got = np.sort(peer.answers(peer.apply(peer.prepare(batch))))
        assert got.tolist() == wanted.tolist(), f"batch {number}"
        total += len(got)
    assert total > 2000


def test_unseen_leaves_out_what_an_expired_subscription_had(start, ours):
    peer, channel = start(), channel_of(ours, shapes=False)
    time = pa.timestamp("us", "UTC")

    def row(op, number, at, until, unseen=False):
        return pa.RecordBatch.from_pydict({
            "op": [op], "id": [str(number)], "place": ["a"], "user": ["ann"],
            "at": pa.array([START + at * SECOND], time), "since": pa.array([START], time),
            "until": pa.array([START + until * SECOND], time), "body": ["{}"], "unseen": [unseen],
        })  # fmt: skip

    rows = [row("subscribe", 1, 0, 2), row("publish", 2, 1, 100), row("publish", 3, 20, 100)]
    rows += [row("subscribe", 4, 30, 100, True), row("subscribe", 5, 31, 100, True)]
    got = [peer.answers(peer.apply(peer.prepare(one))).tolist() for one in rows]
    assert got == [answers_of(channel, one).tolist() for one in rows]
    assert got == [[], [(0, 1, 2)], [], [(0, 4, 3)], []]


def tables(peer):
    names = "select relname from pg_class where relname ~ '^(subs|events)_' and relkind = 'r'"
    return {name for (name,) in peer._db.execute(names)}


def test_expired_partitions_vanish_on_both_sides(start):
    peer = start()
    small = peer.disk_bytes()
    sizes = [300] * 12
    operations = random_operations(3, sum(sizes), shapes=False)
    seen: set[str] = set()
    for batch in batches_of(operations, sizes):
        peer.apply(peer.prepare(batch))
        now = peer._newest
        left = tables(peer)
        seen |= left
        assert not [name for name in left if name.startswith("events") and bucket(name) <= now]
    assert {name.split("_")[0] for name in seen} == {"subs", "events"}
    late = random_operations(4, 2, shapes=False, first_id=9000, start=peer._newest + 3600 * SECOND)
    peer.apply(peer.prepare(late))
    # An event without an end may keep subscriptions: `unseen` may ask what they had.
    assert not [n for n in tables(peer) if n.startswith("events") and bucket(n) <= peer._newest]
    assert len(tables(peer)) < len(seen)
    assert peer.disk_bytes() < small + (64 << 20)


def test_without_events_that_live_on_expired_subscriptions_vanish(start):
    peer = start()
    operations = random_operations(3, 400, shapes=False)
    operations = operations.filter(pa.compute.is_valid(operations["until"]))
    peer.apply(peer.prepare(operations))
    before = tables(peer)
    late = random_operations(4, 3, shapes=False, first_id=9000, start=peer._newest + 3600 * SECOND)
    peer.apply(peer.prepare(late))
    assert before
    assert not before & tables(peer)


def bucket(name):
    return int(name.split("_")[1])


def test_a_bucket_ends_after_its_rows_and_buckets_are_few():
    rng = np.random.default_rng(1)
    arrived = START + np.sort(rng.integers(0, 100 * SECOND, 5000))
    ends = arrived + rng.integers(-SECOND, 20 * SECOND, 5000)
    found = buckets_of(ends, arrived, span=100 * SECOND)
    assert (found >= ends).all()
    assert (found > arrived).all()
    assert len(np.unique(found)) <= 4
    # Each life alone, as single calls see it: a row goes at most one more life after its end.
    alone = buckets_of(ends, arrived, span=0)
    assert alone.tolist() == [bucket_of(int(e), int(a)) for e, a in zip(ends, arrived, strict=True)]
    assert (alone - np.maximum(ends, arrived) <= np.maximum(ends - arrived, 2)).all()


def test_loading_stores_without_answering(start, ours):
    peer, channel = start(), channel_of(ours, shapes=False)
    first, second = random_operations(5, 500, shapes=False), random_operations(
        6, 300, shapes=False, first_id=1000, start=START + 60 * SECOND
    )  # fmt: skip
    first = first.filter(pa.compute.equal(first["op"], "subscribe"))
    channel.apply(first)
    peer.load(first)
    wanted = answers_of(channel, second)
    assert len(wanted) > 100
    assert np.sort(peer.answers(peer.apply(peer.prepare(second)))).tolist() == wanted.tolist()


@pytest.mark.parametrize("shapes", [False, True], ids=["flat", "circles"])
def test_who_listens_is_told(shapes, start):
    peer = start(shapes=shapes)
    times = peer.deliver(5)
    assert len(times) == 5
    assert all(0 < seconds < 60 for seconds in times)


def test_closing_leaves_nothing_running(start):
    peer = start()
    found = peer.processes()
    assert len(found) > 1
    peer.close()
    assert not [pid for pid in found if psutil.pid_exists(pid)]
