"""What rows found is what running them returns: no field of call state is read afterwards.

Rows run straight on the engine of a real channel on disk; whatever else ran before or after, the
values of a call stay what they were.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tideline
from tideline.channel.channel import Channel
from tideline.channel.codec import read_rows, write_row
from tideline.channel.results import Done, Taken, Written, cancelled_by
from tideline.clock import SECOND
from tideline.kernels import layout as at
from tideline.kernels.rows import UNKNOWN
from tideline.testing import ManualClock

NOW = 1_000 * SECOND
DURABILITIES = ("os", "disk")


@pytest.fixture(params=DURABILITIES)
def channel(request: Any, tmp_path: Path) -> Iterator[Channel]:
    clock = ManualClock(NOW / SECOND)
    with tideline.open(tmp_path / "data", clock=clock, durability=request.param) as db:
        yield db.channel("c")


def row(channel: Channel, kind: int, id: str, place: str = "a", user: str = "", flags: int = 0,
        text: bytes = b"{}") -> bytes:  # fmt: skip
    room = bytearray(1024)
    words = write_row(
        memoryview(room), kind, flags, 0, NOW, NOW, NOW + 60 * SECOND,
        channel.space.encode(place), id.encode(), user.encode(), text,
    )  # fmt: skip
    return bytes(room[: words * 8])


def run_one(channel: Channel, given: bytes, side: int | None) -> Written:
    engine = channel.core.engine
    with engine.lock:
        channel.core.begin()
        engine.calls.buffer[: len(given)] = given
        return engine.calls.write_one(len(given) // 8, side)


def subscribe(channel: Channel, id: str, **more: Any) -> Written:
    return run_one(channel, row(channel, at.SUBSCRIBE, id, user="u" + id, **more), at.EVENTS)


def publish(channel: Channel, id: str, **more: Any) -> Written:
    return run_one(channel, row(channel, at.PUBLISH, id, **more), at.SUBS)


def ids(written: Written) -> list[str]:
    return sorted(found.id for found in read_rows(written.packed))


def test_a_row_returns_its_number_and_its_answers(channel: Channel) -> None:
    first, second = subscribe(channel, "s1"), subscribe(channel, "s2", place="b")
    written = publish(channel, "e1")
    later = publish(channel, "e2", place="b")
    assert [w.seq for w in (first, second, written, later)] == [1, 2, 3, 4]
    assert (ids(written), ids(later), ids(first)) == (["s1"], ["s2"], [])
    assert (written.existing, written.target) == (0, 0)


def test_answers_whose_condition_fails_are_not_returned(channel: Channel) -> None:
    for id, where in (("s1", b'{"n":1}'), ("s2", b'{"n":2}')):
        subscribe(channel, id, flags=at.R_COND, text=where)
    assert ids(publish(channel, "e1", text=b'{"n":2}')) == ["s2"]
    assert ids(publish(channel, "e2", text=b'{"n":3}')) == []
    assert channel.stats().answers == 1


def test_an_id_that_is_taken_returns_who_has_it(channel: Channel) -> None:
    publish(channel, "e1")
    again = publish(channel, "e1", place="b")
    other = publish(channel, "e2", place="b")
    assert (again.seq, len(again.packed), again.position) == (0, 0, None)
    with channel.core.engine.lock:
        assert channel.core.engine.records.one(at.EVENTS, again.existing).id == "e1"
    assert other.seq == 2


def test_a_cancel_returns_whom_it_ended(channel: Channel) -> None:
    first, second = subscribe(channel, "s1"), subscribe(channel, "s2")
    ended = run_one(channel, row(channel, at.CANCEL, "s2"), None)
    nobody = run_one(channel, row(channel, at.CANCEL, "s2"), None)
    assert (ended.target, ended.seq) == (second.seq, 3)
    assert (nobody.seq, nobody.existing, nobody.target) == (0, 0, 0)
    assert run_one(channel, row(channel, at.CANCEL, "s1"), None).target == first.seq


def test_there_is_a_position_to_wait_for_when_the_disk_must_have_it(channel: Channel) -> None:
    engine = channel.core.engine
    written = publish(channel, "e1")
    assert written.position == (engine.store.log.last if engine.store.sync else None)


def test_a_batch_is_told_what_became_of_its_rows(channel: Channel) -> None:
    subscribe(channel, "s1")
    publish(channel, "e1")
    given = [
        row(channel, at.PUBLISH, "e2"),
        row(channel, at.PUBLISH, "e1"),
        row(channel, at.CANCEL, "s1"),
        row(channel, at.CANCEL, "nobody"),
        row(channel, at.PUBLISH, "e3"),
    ]
    rows = np.frombuffer(b"".join(given), np.int64).copy()
    sizes = [len(each) // 8 for each in given]
    starts = np.cumsum([0, *sizes[:-1]])
    engine = channel.core.engine
    seen: list[tuple[int, int, list[int], list[int]]] = []

    def take(done: Done) -> Taken:
        existing = [int(ref) if ref in (0, UNKNOWN) else 1 for ref in done.existing]
        seen.append((done.first, done.limit, existing, done.answers.row.tolist()))
        assert done.is_settled
        return Taken(len(done.answers.row))

    with engine.lock:
        channel.core.begin()
        engine.interrupts.sheltered(lambda: engine.calls.write(rows, starts, take, offset=100))
    assert seen == [(0, 5, [0, 1, 0, UNKNOWN, 0], [100])]  # only e2 finds s1
    assert cancelled_by(rows, starts) == [1]
    assert cancelled_by(rows, starts[:2]) == []
