"""NATS gives Tideline's answers, as far as the wall clock can promise: a small run at its own pace.

The edges of windows are where two clocks meet: an event within the tolerance (and the most that an
operation came late) of an edge may or may not answer; all others must be answered once, or never.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest

from benchmarks.peers.base import Cannot, Given
from benchmarks.peers.nats import DESIGNS, NatsPeer

if NatsPeer.missing():
    pytest.skip(NatsPeer.missing(), allow_module_level=True)

START = datetime(2024, 1, 1, tzinfo=UTC)
AGE_S = 30.0
SCHEMA = pa.schema({
    "op": pa.string(), "id": pa.string(), "place": pa.string(), "user": pa.string(),
    "at": pa.timestamp("us", "UTC"), "since": pa.timestamp("us", "UTC"),
    "until": pa.timestamp("us", "UTC"), "body": pa.string(),
})  # fmt: skip


def row(number, event, at_s, *, back_s=0.8, ahead_s=0.8, place="37.363"):
    at = START + timedelta(seconds=at_s)
    if event:
        until = at + timedelta(seconds=AGE_S)
        some = {"op": "publish", "until": until, "body": f'{{"n":{number}}}'}
    else:
        since, until = at - timedelta(seconds=back_s), at + timedelta(seconds=ahead_s)
        some = {"op": "subscribe", "user": "1", "since": since, "until": until}
    return {"id": str(number), "at": at, "place": place, **some}


def table(rows):
    return pa.RecordBatch.from_pylist(rows, SCHEMA)


def paced(count, seconds, seed):
    rng = np.random.default_rng(seed)
    places = ["37.363", "a b*", "x.1", "35"]
    return [
        row(n, rng.random() < 0.4, n * seconds / count, place=places[rng.integers(0, 4)])
        for n in range(count)
    ]


def distances(rows):
    """(row, subscription, event) of all pairs at one place: seconds inside the window, or less."""
    found = {}
    for i, one in enumerate(rows):
        for j, other in enumerate(rows):
            if (one["op"], other["op"]) != ("subscribe", "publish"):
                continue
            if one["place"] == other["place"]:
                inside = min(other["at"] - one["since"], one["until"] - other["at"])
                found[max(i, j), i, j] = inside.total_seconds()
    return found


def got(peer, rows):
    answers = peer.answers(peer.apply(peer.prepare(table(rows))))
    return [tuple(answer) for answer in answers.tolist()]


@pytest.mark.parametrize("design", DESIGNS)
def test_past_and_future_come_once_each(design, tmp_path):
    rows = paced(300, 3.0, seed=1)
    pairs = distances(rows)
    for attempt in range(3):
        peer = NatsPeer(Given(tmp_path / str(attempt)), design=design)
        try:
            answers = got(peer, rows)
            edge = peer.tolerance_s + peer.behind_s
        finally:
            peer.close()
        assert len(answers) == len(set(answers))
        sure = {pair for pair, inside in pairs.items() if inside > edge}
        maybe = {pair for pair, inside in pairs.items() if inside > -edge}
        assert set(answers) <= maybe
        if sure <= set(answers):
            break
        # It follows the wall clock: a server that the machine let stand still, which nobody here
        # can know, deletes consumers before they were served. Three times is no accident.
    assert sure <= set(answers)
    if edge < 0.3:  # the machine kept the pace
        assert len(sure) > 500
        assert len({pair for pair in sure if pair[1] > pair[2]}) > 100  # past ones


def test_answers_of_several_calls(tmp_path):
    peer = NatsPeer(Given(tmp_path), paced=False)
    try:
        assert got(peer, [row(0, True, 0)]) == []
        later = [row(1, False, 0.01, back_s=20, ahead_s=20), row(2, True, 0.02)]
        assert sorted(got(peer, later)) == [(0, 1, 0), (1, 1, 2)]
        assert got(peer, [row(3, True, 0.03)]) == [(0, 1, 3)]
        assert peer.disk_bytes() > 0
    finally:
        peer.close()


def test_durable_ones_are_there_after_a_kill(tmp_path):
    peer = NatsPeer(Given(tmp_path), paced=False)
    try:
        rows = [row(0, True, 0), row(1, False, 0.01, back_s=20, ahead_s=100)]
        assert got(peer, rows) == [(1, 1, 0)]
        peer.crash()
        peer = NatsPeer(Given(tmp_path), paced=False)
        later = [row(2, False, 0.02, back_s=20, ahead_s=100), row(3, True, 0.03)]
        answers = set(got(peer, later))
        # What was pushed before the kill may be pushed again: the consumer's place is saved later.
        assert answers - {(-1, 1, 0)} == {(0, 2, 0), (1, 2, 3), (1, 1, 3)}
    finally:
        peer.close()


def test_the_end_of_a_window_deletes_the_consumer(tmp_path):
    peer = NatsPeer(Given(tmp_path))
    try:
        got(peer, [row(0, False, 0, ahead_s=0.2), row(1, False, 0.1, ahead_s=60)])
        assert got(peer, [row(2, True, 0.6)]) == [(0, 1, 2)]
        listed = peer._wire.request("$JS.API.CONSUMER.NAMES.events")
        assert [name.split("-")[1] for name in listed["consumers"]] == ["1"]
    finally:
        peer.close()


def test_what_has_no_way_is_said(tmp_path):
    with pytest.raises(Cannot, match="circle"):
        NatsPeer(Given(tmp_path, shapes=True))
    peer = NatsPeer(Given(tmp_path))
    try:
        unseen = table([row(0, False, 0)]).append_column("unseen", pa.array([True]))
        with pytest.raises(Cannot, match="unseen"):
            peer.prepare(unseen)
        short = row(2, True, 0) | {"until": START + timedelta(seconds=1)}
        with pytest.raises(Cannot, match="max_age"):
            peer.prepare(table([row(1, True, 0), short]))
        with pytest.raises(Cannot, match="wall clock"):
            peer.prepare(table([row(1, True, 1), row(2, True, 0)]))
    finally:
        peer.close()


@pytest.mark.parametrize("design", DESIGNS)
def test_delivery_and_growth_are_measured(design, tmp_path):
    peer = NatsPeer(Given(tmp_path), design=design)
    try:
        taken = peer.deliver(20)
        steps = peer.consumers(0.05, step=100)
    finally:
        peer.close()
    assert len(taken) == 20
    assert min(taken) > 0
    count, rate, size = steps[-1]
    assert count == 100 * len(steps)
    assert rate > 0
    assert size > 1 << 20
