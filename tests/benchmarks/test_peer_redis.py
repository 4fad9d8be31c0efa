"""Redis gives Tideline's answers: every test runs the same operations on both."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest

import tideline
from benchmarks.peers.base import Cannot, Given
from benchmarks.peers.redis_channel import RedisPeer
from tideline.space import QuadTree
from tideline.testing import ManualClock

if RedisPeer.missing():
    pytest.skip(RedisPeer.missing(), allow_module_level=True)

START = datetime(2024, 1, 1, tzinfo=UTC)
BOUNDS = (-79.8, 40.4, -71.8, 45.1)


@pytest.fixture
def embedded():
    with tideline.open(":memory:", clock=ManualClock(START.timestamp() - 3600)) as database:
        yield database


@pytest.fixture
def redis(tmp_path):
    peer = RedisPeer(Given(tmp_path))
    yield peer
    peer.close()


def operations(count, *, seed, first=0, start_s=0.0, late=0.0, circles=False, unseen=False):
    """Random operations, 20 a second, on a few busy places; windows and validities of all sizes."""
    rng = np.random.default_rng(seed)
    rows = []
    for number in range(first, first + count):
        at_s = start_s + (number - first) * 0.05
        if rng.random() < late:
            at_s -= float(rng.uniform(0, 8))
        at = START + timedelta(seconds=at_s)
        event = rng.random() < 0.5
        row = {"op": "publish" if event else "subscribe", "id": str(number), "at": at}
        ahead = float(rng.choice([0.1, 2.0, 10.0, 40.0]))
        row["until"] = at + timedelta(seconds=ahead)
        if circles:
            row |= {"lon": float(rng.uniform(-74.1, -73.9)), "lat": float(rng.uniform(40.6, 40.8))}
            row["radius_m"] = None if event else float(rng.choice([261.25, 1000.0, 4180.0, 9000.0]))
        else:
            row["place"] = f"{rng.integers(0, 5)}.{rng.integers(0, 2)}"
        if event:
            row |= {"body": f'{{"n":{number}}}'}
        else:
            back = float(rng.choice([0.0, 1.0, 10.0, 30.0]))
            row |= {"since": at - timedelta(seconds=back), "user": str(rng.integers(0, 6))}
        if unseen:
            row["unseen"] = bool(not event and rng.random() < 0.5)
        rows.append(row)
    time, text, number = pa.timestamp("us", "UTC"), pa.string(), pa.float64()
    place = {"lon": number, "lat": number, "radius_m": number} if circles else {"place": text}
    schema = {"op": text, "id": text, **place, "user": text, "at": time, "since": time}
    schema |= {"until": time, "body": text} | ({"unseen": pa.bool_()} if unseen else {})
    return pa.RecordBatch.from_pylist(rows, pa.schema(schema))


def ours(channel, batch):
    applied = channel.apply(batch)
    assert applied.rejected.num_rows == 0, applied.rejected.to_pylist()
    table = applied.answers
    columns = [table["row"].to_pylist()]
    columns += [[int(id) for id in table[side].to_pylist()] for side in ("subscription", "event")]
    return sorted(zip(*columns, strict=True))


def theirs(peer, batch):
    return sorted(map(tuple, peer.answers(peer.apply(peer.prepare(batch))).tolist()))


@pytest.mark.parametrize("late", [0.0, 0.2])
def test_answers_are_ours(embedded, redis, late):
    channel = embedded.channel("c", max_ahead_s=math.inf)
    seen = 0
    for n, size in enumerate([1, 700, 300, 1, 1, 600]):
        batch = operations(size, seed=n, first=n * 1000, start_s=n * 20.0, late=late)
        expected = ours(channel, batch)
        assert theirs(redis, batch) == expected
        seen += len(expected)
    assert seen > 5_000


def test_batches_prepared_ahead_are_answered_in_the_order_they_are_applied(embedded, redis):
    channel = embedded.channel("c", max_ahead_s=math.inf)
    batches = [operations(100, seed=n, first=n * 100, start_s=s) for n, s in enumerate([9, 3, 6])]
    prepared = [redis.prepare(batch) for batch in batches]
    for batch, one in zip(batches, prepared, strict=True):
        got = sorted(map(tuple, redis.answers(redis.apply(one)).tolist()))
        assert got == ours(channel, batch)


def test_circles(embedded, redis, tmp_path):
    channel = embedded.channel("c", space=QuadTree(BOUNDS, depth=9), max_ahead_s=math.inf)
    peer = RedisPeer(Given(tmp_path / "map", shapes=True))
    seen = 0
    try:
        for n in range(3):
            batch = operations(400, seed=n, first=n * 1000, start_s=n * 20, late=0.1, circles=True)
            expected = ours(channel, batch)
            assert theirs(peer, batch) == expected
            seen += len(expected)
        peer.crash()
        peer = RedisPeer(Given(tmp_path / "map", shapes=True))
        batch = operations(400, seed=9, first=9000, start_s=60, circles=True)
        assert theirs(peer, batch) == ours(channel, batch)
    finally:
        peer.close()
    assert seen > 1_000


def test_unseen(embedded, redis):
    channel = embedded.channel("c", max_ahead_s=math.inf)
    kept, all_of_them = 0, 0
    for n in range(3):
        batch = operations(500, seed=n, first=n * 1000, start_s=n * 20, late=0.1, unseen=True)
        expected = ours(channel, batch)
        assert theirs(redis, batch) == expected
        kept += len(expected)
        all_of_them += len(
            ours(embedded.channel("d", max_ahead_s=math.inf), batch.drop_columns(["unseen"]))
        )
    assert 100 < kept < all_of_them - 100  # many had been seen
    later = operations(200, seed=3, first=9000, start_s=60)  # the column is left out
    assert theirs(redis, later) == ours(channel, later)


def test_the_expired_leave_on_both_sides(redis):
    redis.apply(redis.prepare(operations(600, seed=1)))
    redis.apply(redis.prepare(operations(600, seed=2, first=1000, start_s=200)))
    redis.sweep_all()
    wire = redis._wire
    kept = {key: wire.call(b"ZCARD", key) for key in wire.call(b"KEYS", b"[es]:*")}
    bodies = wire.call(b"KEYS", b"b:*")
    # 30 s of operations came last, 40 s is the longest that any is valid.
    assert 0 < sum(kept.values()) <= 600
    assert 0 < sum(wire.call(b"HLEN", key) for key in bodies) <= 600
    redis.apply(redis.prepare(operations(1, seed=3, first=3000, start_s=1000)))
    redis.sweep_all()
    assert sum(wire.call(b"ZCARD", key) for key in wire.call(b"KEYS", b"[es]:*")) <= 1


def test_sweeping_goes_on_by_itself(redis):
    for n in range(20):  # 100 s of operations, at most 40 s of them valid
        redis.apply(redis.prepare(operations(100, seed=n, first=n * 100, start_s=n * 100)))
    keys = redis._wire.call(b"KEYS", b"[es]:*")
    assert sum(redis._wire.call(b"ZCARD", key) for key in keys) < 600


def test_killed_and_started_again(embedded, tmp_path):
    channel = embedded.channel("c", max_ahead_s=math.inf)
    peer = RedisPeer(Given(tmp_path))
    try:
        for n in range(4):
            batch = operations(300, seed=n, first=n * 1000, start_s=n * 15, late=0.1)
            assert theirs(peer, batch) == ours(channel, batch)
            peer.crash()
            peer = RedisPeer(Given(tmp_path))
            assert peer.disk_bytes() > 1_000
    finally:
        peer.close()


def test_loaded_subscriptions_are_answered(embedded, redis):
    channel = embedded.channel("c", max_ahead_s=math.inf)
    batch = operations(600, seed=5)
    subscriptions = batch.filter(pa.compute.equal(batch["op"], "subscribe"))
    redis.load(subscriptions)
    channel.apply(subscriptions)
    later = operations(300, seed=6, first=1000, start_s=31)
    assert theirs(redis, later) == ours(channel, later)


def test_more_than_the_memory_it_may_use_is_refused(tmp_path):
    peer = RedisPeer(Given(tmp_path, memory_mb=2))
    try:
        many = pa.Table.from_batches([operations(2000, seed=n, first=n * 2000) for n in range(8)])
        [prepared] = map(peer.prepare, many.combine_chunks().to_batches())
        with pytest.raises(Cannot, match="memory"):
            peer.apply(prepared)
    finally:
        peer.close()


def test_pub_sub_delivers_every_event(redis):
    taken = redis.deliver(50)
    assert len(taken) == 50
    assert min(taken) > 0
