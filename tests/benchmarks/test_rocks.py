"""The peer keeps Tideline's contract: checked against a plain loop on few, busy places."""

from __future__ import annotations

import dataclasses

import pytest

from tideline.workload import limitfile

pytest.importorskip("rocksdict")

from benchmarks.peers.rocks import KEY_BYTES, RocksChannel


@pytest.fixture
def workload(tmp_path):
    limitfile.write(tmp_path / "w.bin", 1200, rate=40, subscriptions=0.5, seed=3)
    made = limitfile.read(tmp_path / "w.bin")
    return dataclasses.replace(made, cell=made.cell % 5)  # busy enough for the numpy filter


def brute(workload, limit):
    """(row, other id) of every answer: each operation against all before it."""
    answers = set()
    for later in range(limit):
        now = workload.t[later]
        for earlier in range(later):
            then = workload.t[earlier]
            if workload.cell[earlier] != workload.cell[later]:
                continue
            if workload.type[later] == 1 and workload.type[earlier] == 0:
                if then - 10_000_000 <= now < then + 10_000_000:
                    answers.add((later, earlier))
            elif (
                workload.type[later] == 0
                and workload.type[earlier] == 1
                and now - 10_000_000 <= then
                and now < then + 20_000_000
            ):
                answers.add((later, earlier))
    return answers


def test_the_peer_gives_the_answers_of_a_plain_loop(workload, tmp_path):
    channel = RocksChannel(tmp_path / "db")
    got = []
    for start in range(0, 1200, 250):
        got += channel.apply(workload, start, min(start + 250, 1200)).tolist()
    channel.close()
    assert len(got) == len({(row, other) for row, other, _ in got})
    assert {(row, other) for row, other, _ in got} == brute(workload, 1200)
    assert len(got) == limitfile.count_answers(workload, 0, 1200).sum()
    users = {user == workload.uid[other] for row, other, user in got if workload.type[row] == 1}
    assert users == {True}


def test_a_late_event_does_not_answer_an_expired_subscription(tmp_path):
    channel = RocksChannel(tmp_path / "db")
    channel.subscribe(1, 10, 7, at=100, since=0, until=200)
    channel.subscribe(1, 11, 7, at=100, since=0, until=900)
    channel.publish(2, 12, at=500, until=600, body=b"")
    late = channel.publish(1, 13, at=150, until=400, body=b"")
    assert len(late) == KEY_BYTES  # only the one still valid at 500
    assert channel.subscribe(1, 14, 7, at=500, since=0, until=900) == b""  # 13 has expired
    channel.close()


def test_loading_stores_without_answering(workload, tmp_path):
    channel = RocksChannel(tmp_path / "db")
    channel.load(workload, 0, 600)
    answers = channel.apply(workload, 600, 1200)
    assert len(answers) == limitfile.count_answers(workload, 600, 1200).sum()
    channel.close()


def test_the_expired_are_swept_out(workload, tmp_path):
    channel = RocksChannel(tmp_path / "db", sweep_us=1)
    channel.apply(workload, 0, 1200)
    assert 0 < len(channel) < 850  # 20 s of 40 operations a second, and no more
    channel.close()
