"""What the state of `match` promises: exact after every kind of failure, and no larger than needed.

Micro-batches, workers and failures as tests/spark/match_stream.py makes them.
"""

from __future__ import annotations

from typing import Any

import match_stream as matching
import msgspec
import pytest

from tideline import Flat, Topics
from tideline.clock import FOREVER
from tideline.errors import Conflict, Corruption, InvalidRequest
from tideline.spark import segments
from tideline.spark.matching import state

pytestmark = pytest.mark.spark

SECOND = 1_000_000
START = 1_700_000_000 * SECOND


def at(seconds: float) -> int:
    return START + round(seconds * SECOND)


def event(id: str, time: float, until: float | None, place: str = "a", body: Any = 1) -> Any:
    end = FOREVER if until is None else at(until)
    return {"op": "publish", "id": id, "at": at(time), "until": end, "place": place, "body": body}


def sub(
    id: str, time: float, until: float | None, *, since: float | None = None, user: str = "u",
    place: str = "a", unseen: bool = False, where: Any = None,
) -> Any:  # fmt: skip
    return {
        "op": "subscribe", "id": id, "at": at(time), "user": user, "place": place,
        "since": at(time if since is None else since), "unseen": unseen, "where": where,
        "until": FOREVER if until is None else at(until),
    }  # fmt: skip


def cancel(id: str, time: float) -> Any:
    return {"op": "cancel", "id": id, "at": at(time)}


def told(answers: list[Any]) -> list[tuple[str, str]]:
    return [(subscription, event) for subscription, event, *_ in answers]


@pytest.fixture(params=["never", "always"], ids=["growing", "compacted"])
def compacting(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """State that is compacted never, or after every micro-batch."""
    if request.param == "always":
        monkeypatch.setattr(segments, "_MOST_SEGMENTS", -1)


# What a worker remembers, and what it does not -----------------------------------------------


@pytest.mark.usefixtures("compacting")
@pytest.mark.parametrize("workers", [(0, 0, 0, 0), (0, 1, 0, 1), (0, 1, 1, 0), (0, 0, 1, 0)])
def test_what_an_expired_subscription_got_stays_seen(workers: tuple[int, ...]) -> None:
    with matching.Stream(matching.settings(Flat())) as stream:
        stream.batch([sub("s1", 0, 10)], workers[0])
        assert told(stream.batch([event("e1", 5, 500)], workers[1])) == [("s1", "e1")]
        stream.batch([event("e2", 100, 600)], workers[2])  # s1 is over by now
        asked = [sub("s2", 101, 200, since=0, unseen=True), sub("s3", 102, 200, since=0)]
        got = stream.batch(asked, workers[3])
        assert told(got) == [("s2", "e2"), ("s3", "e1"), ("s3", "e2")]


@pytest.mark.usefixtures("compacting")
@pytest.mark.parametrize("killed", [False, True])
def test_what_a_cancelled_subscription_got_stays_seen(killed: bool) -> None:
    with matching.Stream(matching.settings(Flat())) as stream:
        stream.batch([sub("s1", 0, None), event("e1", 1, 500)])
        stream.batch([cancel("s1", 2)])
        if killed:
            stream.forget()
        assert stream.batch([event("e2", 3, 500)]) == []  # nobody is told
        if killed:
            stream.forget()
        got = stream.batch([sub("s2", 4, 100, since=0, unseen=True)])
        assert told(got) == [("s2", "e2")]


@pytest.mark.usefixtures("compacting")
def test_a_task_that_is_repeated_answers_the_same() -> None:
    with matching.Stream(matching.settings(Flat())) as stream:
        stream.batch([sub("s1", 0, 100)], lost=0)
        got = stream.batch([event("e1", 1, 100), sub("s2", 2, 100, since=0)], lost=0)
        assert told(got) == [("s1", "e1"), ("s2", "e1")]
        got = stream.batch([event("e2", 3, 100)], 0, lost=1)
        assert told(got) == [("s1", "e2"), ("s2", "e2")]


def test_a_worker_that_was_behind_reads_only_what_it_missed() -> None:
    with matching.Stream(matching.settings(Flat(), unseen=False)) as stream:
        for n in range(5):
            stream.batch([sub(f"s{n}", n, None)], 0)
        stream.batch([sub("s5", 5, None)], 1)
        store = next(store for store in stream.stores.values() if store.map)
        assert store.reads == 5  # worker 1 had nothing
        got = stream.batch([event("e", 6, 100)], 0)
        assert len(got) == 6
        assert store.reads == 6  # worker 0 had missed one


def test_without_memory_every_micro_batch_is_built_from_the_state() -> None:
    with matching.Stream(matching.settings(Flat(), cached=False)) as stream:
        stream.batch([sub("s1", 0, 100)])
        assert told(stream.batch([event("e1", 1, 100)])) == [("s1", "e1")]
        assert told(stream.batch([event("e2", 2, 100)])) == [("s1", "e2")]
        store = next(store for store in stream.stores.values() if store.map)
        assert store.reads == 3


def test_a_worker_holds_only_so_many_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "_HELD", 3)
    with matching.Stream(matching.settings(Flat(), buckets=8)) as stream:
        for n in range(3):
            rows = [sub(f"s{n}{p}", n, None, place=f"p{p}") for p in range(30)]
            stream.batch(rows)
            assert len(stream.workers[0]) == 3
        assert len(stream.batch([event("e", 9, 10, place="p7")])) == 3


def test_more_than_memory_holds_goes_to_disk_and_comes_back() -> None:
    body = "x" * 2_000
    told = matching.settings(Flat(), buckets=1, memory_mb=16)
    with matching.Stream(told) as stream:
        for n in range(8):
            rows = [event(f"e{n}-{i}", n, None, f"p{i}", body) for i in range(2_000)]
            stream.batch([*rows, sub(f"s{n}", n, 10 + n, place="p7")])
        [(_, bucket)] = stream.workers[0]._parts.values()
        assert any(side.tree.readers for side in bucket.engine.sides)
        asked = [sub("t", 100, 200, since=0, place="p7", unseen=True),
                 sub("v", 100, 200, since=0, place="p7", user="v")]  # fmt: skip
        for killed in (False, True):
            if killed:
                stream.forget()
            got = stream.batch([dict(row, id=row["id"] + str(killed)) for row in asked])
            assert len(got) == 8
            assert all(row[2] == "v" for row in got)


# Time ----------------------------------------------------------------------------------------


def test_a_late_row_is_judged_at_the_time_of_the_whole_stream() -> None:
    with matching.Stream(matching.settings(Flat(), buckets=8)) as stream:
        stream.batch([sub("s1", 0, 10, place="a")])
        stream.batch([event("e1", 20, 100, place="b")])  # another bucket
        assert stream.batch([event("e2", 5, 100, place="a")]) == []


def test_a_bucket_that_is_built_anew_knows_how_late_it_is() -> None:
    with matching.Stream(matching.settings(Flat())) as stream:
        stream.batch([sub("s1", 0, 10.0005), event("e1", 10.0005, 11)])
        stream.forget()  # the watermark is a whole millisecond, 10.000
        assert stream.batch([event("e2", 9, 100)]) == []


@pytest.mark.usefixtures("compacting")
def test_a_change_is_seen_after_a_restart() -> None:
    where = {"t": {"$delta": {"$lte": -5}}}
    with matching.Stream(matching.settings(Flat())) as stream:
        stream.batch([sub("s", 0, None, where=where), event("e1", 1, 100, body={"t": 20})])
        stream.forget()
        got = stream.batch([event("e2", 2, 100, body={"t": 18})])
        assert got == []
        stream.forget()
        got = stream.batch(
            [event("e3", 3, 100, body={"t": 11}), event("e4", 4, 100, body={"t": 10})]
        )
        assert told(got) == [("s", "e3")]


# Size ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("unseen", [False, True])
def test_state_stays_flat_while_windows_expire(
    unseen: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "_LEAST_BYTES", 4_000)
    sizes = []
    with matching.Stream(matching.settings(Flat(), buckets=2, unseen=unseen)) as stream:
        for n in range(40):
            rows = [sub(f"s{n}-{i}", 10 * n, 10 * n + 20, place=f"p{i}") for i in range(50)]
            rows += [event(f"e{n}-{i}", 10 * n, 10 * n + 20, f"p{i}") for i in range(50)]
            stream.batch(rows)
            sizes.append(stream.size_bytes)
    assert max(sizes[20:]) <= max(sizes[4:20])
    assert max(sizes) < 12 * sizes[0]


def test_segments_that_have_ended_go_without_being_read() -> None:
    with matching.Stream(matching.settings(Flat(), buckets=1, unseen=False)) as stream:
        for n in range(20):
            stream.batch([sub(f"s{n}", 10 * n, 10 * n + 15), sub(f"t{n}", 10 * n, 10 * n + 3_000)])
        [store] = [store for store in stream.stores.values() if store.map]
        assert store.reads == 0
        assert len(store.map) == 2 + 20  # of the short ones only two can be alive


@pytest.mark.parametrize("cancelled", [False, True])
def test_a_cancel_counts_as_long_as_what_it_cancels(
    cancelled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "_MOST_SEGMENTS", -1)
    with matching.Stream(matching.settings(Flat(), buckets=1, unseen=False)) as stream:
        stream.batch([sub("s", 0, None), sub("t", 0, None)])
        if cancelled:
            stream.batch([cancel("s", 1), cancel("t", 1), cancel("nobody", 1)])
            assert stream.size_bytes == 0
        stream.forget()
        got = stream.batch([event("e", 2, 100)])
        assert told(got) == ([] if cancelled else [("s", "e"), ("t", "e")])


def test_a_bucket_in_which_all_has_ended_is_cleared_by_a_timer() -> None:
    with matching.Stream(matching.settings(Flat(), buckets=4)) as stream:
        stream.batch([sub("s1", 0, 10, place="a"), event("e", 0, 30, place="a")])
        first = set(matching.labels(stream))
        assert len(first) == 1
        stream.batch([sub("s2", 9, 40, place="a")])  # the timer at 30 finds more to wait for
        elsewhere = next(p for p in "bcdefgh" if bucket_of(p) not in first)
        stream.batch([event("x", 35, 36, place=elsewhere)])
        stream.batch([event("y", 36, 37, place=elsewhere)])
        assert first <= set(matching.labels(stream))
        stream.batch([event("z", 50, 51, place=elsewhere)])
        stream.batch([event("zz", 51, 52, place=elsewhere)])
        assert not first & set(matching.labels(stream))
        got = stream.batch([sub("s3", 60, 70, place="a"), event("e2", 61, 70, place="a")])
        assert told(got) == [("s3", "e2")]


def bucket_of(place: str) -> int:
    """The label of a flat place's bucket."""
    with matching.Stream(matching.settings(Flat(), buckets=4)) as stream:
        stream.batch([event("e", 0, 1, place=place)])
        return next(iter(stream.stores))


def test_a_large_state_is_written_in_several_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments.Segments, "most_bytes", 4_096)
    with matching.Stream(matching.settings(Flat(), buckets=1)) as stream:
        rows = [event(f"e{i}", 0, None, body="x" * 300) for i in range(50)]
        stream.batch([*rows, event("big", 0, None, body="y" * 20_000)])
        [store] = [store for store in stream.stores.values() if store.map]
        sizes = sorted(map(len, store.map.values()))
        assert len(sizes) > 5
        assert sizes[-2] <= 8_192
        stream.forget()
        assert len(stream.batch([sub("s", 1, 2, since=0)])) == 51


# Bad state and bad rows ------------------------------------------------------------------------


def test_other_settings_on_the_same_checkpoint_are_a_conflict() -> None:
    with matching.Stream(matching.settings(Topics())) as stream:
        stream.batch([sub("s", 0, None)])
        for other in (
            matching.settings(Topics(), buckets=8),
            matching.settings(Topics(), levels=2),
            matching.settings(Flat()),
        ):
            stream.settings = other
            with pytest.raises(Conflict, match="made with other settings"):
                stream.batch([sub("t", 1, None)])


def test_a_segment_that_is_gone_is_corruption() -> None:
    with matching.Stream(matching.settings(Flat())) as stream:
        stream.batch([sub("s", 0, None)])
        [store] = [store for store in stream.stores.values() if store.map]
        store.map.clear()
        stream.forget()
        with pytest.raises(Corruption, match="segment of the state is missing"):
            stream.batch([event("e", 1, None)])


def test_an_id_with_other_content_is_told_once() -> None:
    told = matching.settings(Topics(), rejected="keep", levels=2)
    with matching.Stream(told) as stream:
        stream.batch([sub("s", 0, None, place="a"), event("e", 0, None, place="a/b")])
        stream.batch([sub("s", 0, None, place="a"), event("e", 0, None, place="a/b")])
        assert stream.rejected == []  # the same again is a retry
        stream.batch([sub("s", 0, 99, place="a"), event("e", 0, 99, place="a/b")])
        assert sorted(row["reason"] for row in stream.rejected) == [
            "a subscription with the id 's' exists with other content",
            "an event with the id 'e' exists with other content",
        ]


def test_bad_rows_fail_the_query_unless_told_otherwise() -> None:
    rows = [sub("s", 0, 10), dict(sub("t", 0, 10), bad={"user": None}), event("e", 1, 2)]
    with matching.Stream(matching.settings(Flat(), rejected="drop")) as stream:
        assert told(stream.batch(rows)) == [("s", "e")]
        assert stream.rejected == []
    with matching.Stream(matching.settings(Flat(), rejected="keep")) as stream:
        assert told(stream.batch(rows)) == [("s", "e")]
        [bad] = stream.rejected
        assert (bad["subscription"], bad["at"]) == ("t", at(0))
        assert bad["reason"] == "user must be text of 1 to 256 bytes"
    with (
        matching.Stream(matching.settings(Flat(), rejected="fail")) as stream,
        pytest.raises(InvalidRequest, match="1 rows are bad; the first: user must be text"),
    ):
        stream.batch(rows)


def test_no_id_is_made_up() -> None:
    with matching.Stream(matching.settings(Flat(), rejected="keep")) as stream:
        stream.batch([dict(event("e", 0, None), bad={"id": None})])
        assert [row["reason"] for row in stream.rejected] == ["id is missing"]


def test_a_head_is_read_back_as_it_was_written() -> None:
    head = state.Head(1, "{}", b"name", trail=[(b"token", 3)], segments=[(1, 2, 3)])
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(head), type=state.Head) == head
    assert state.Head(1, "{}", b"x").trail is not state.Head(1, "{}", b"y").trail
