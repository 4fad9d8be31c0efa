"""However a window moves and a reader is cut, resuming gives what an uncut handle got."""

from __future__ import annotations

import tempfile
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from contract import START, Opener, ids
from cuts import HandleReader, Step, World, sealed_stories, steps
from hypothesis import given

import tideline
from tideline.errors import Unavailable
from tideline.lsm.manifest import Manifest
from tideline.lsm.store import FORMAT
from tideline.testing import ManualClock

LAYOUTS = ["dual", "two"]


def run(layout: str, story: list[Step]) -> None:
    clock = ManualClock(1_000)
    opened: list[Any] = []
    with tempfile.TemporaryDirectory() as folder:

        def open_again() -> Any:
            while opened:
                opened.pop().close()
            opened.append(tideline.open(Path(folder) / "data", clock=clock, memory_mb=16))
            return opened[-1].channel("c", layout=layout)

        World(open_again(), clock, HandleReader, open_again).run(story)
        opened.pop().close()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_cut_reader_gets_what_an_uncut_one_got(layout: str) -> None:
    @given(story=steps(reopens=True))
    def check(story: list[Step]) -> None:
        run(layout, story)

    check()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_record_that_ended_speaks_for_its_own_time_alone(layout: str) -> None:
    @given(story=sealed_stories())
    def check(story: list[Step]) -> None:
        run(layout, story)

    check()


# What the stories found, by name ----------------------------------------------------------------


def later(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


@pytest.mark.parametrize("between", ["nothing", "seal", "reopen"])
@pytest.mark.parametrize("unseen", [False, True])
def test_what_a_prolonged_window_lets_in_comes_after_what_was_delivered_before(
    between: str, unseen: bool, open_channel: Opener
) -> None:
    channel = open_channel("dual")
    sub = channel.subscribe("a", user="u", id="s", until_s=10, unseen=unseen)
    channel.publish("a", {}, id="future", at=later(50))
    channel.publish("a", {}, id="now")
    (now,) = sub.take()
    channel.prolong("s", until_s=100)
    (future,) = sub.take()
    channel.publish("a", {}, id="last")
    (last,) = sub.take()
    assert now.token < future.token < last.token
    if between == "seal":
        channel.seal()
    elif between == "reopen":
        channel = open_channel("dual")
    assert ids(channel.resume("s").past) == ["now", "future", "last"]
    assert ids(channel.resume("s", now.token).past) == ["future", "last"]
    assert [e.token for e in channel.resume("s", now.token).past] == [future.token, last.token]
    assert ids(channel.resume("s", future.token).past) == ["last"]
    assert channel.resume("s", last.token).past == []


@pytest.mark.parametrize("between", ["nothing", "seal", "reopen"])
@pytest.mark.parametrize("unseen", [False, True])
def test_what_was_answered_is_neither_lost_nor_repeated_when_a_window_is_cut_and_prolonged(
    between: str, unseen: bool, open_channel: Opener
) -> None:
    channel = open_channel("dual")
    sub = channel.subscribe("a", user="u", id="s", until_s=100, unseen=unseen)
    channel.publish("a", {}, id="answered", at=later(50))
    (answered,) = sub.take()
    channel.prolong("s", until_s=20)
    channel.publish("a", {}, id="left out", at=later(50))
    assert sub.take() == []
    if between == "seal":
        channel.seal()
    elif between == "reopen":
        channel = open_channel("dual")
    sub = channel.resume("s")
    assert ids(sub.past) == ["answered"]
    channel.prolong("s", until_s=200)
    assert ids(sub.take()) == ["left out"]
    assert ids(channel.resume("s").past) == ["answered", "left out"]
    assert ids(channel.resume("s", answered.token).past) == ["left out"]


def test_an_unseen_one_is_not_resumed_with_what_a_new_end_passed_over(
    open_channel: Opener,
) -> None:
    channel = open_channel("dual")
    sub = channel.subscribe("a", user="u", id="s", until_s=10, unseen=True)
    channel.publish("a", {}, id="future", at=later(50))
    assert ids(channel.subscribe("a", user="u", until_s=100).past) == ["future"]
    channel.prolong("s", until_s=100)  # its user has had it by now
    assert sub.take() == []
    assert channel.resume("s").past == []


@pytest.mark.parametrize("between", ["nothing", "reopen"])
def test_an_unseen_one_is_resumed_exactly_however_often_it_was_prolonged(
    between: str, open_channel: Opener, clock: ManualClock
) -> None:
    """Each record of it speaks for the events of its own time, and there is no most of them."""
    channel = open_channel("dual")
    sub = channel.subscribe("a", user="u", id="s", until_s=1000, unseen=True)
    got = []
    for n in range(40):
        # Another one of the same user comes and goes: at times it is the earlier, at times not.
        other = channel.subscribe("a", user="u", until_s=1000)
        if n % 3:
            channel.prolong("s", until_s=1000 + n)
        channel.publish("a", {"n": n}, id=f"e{n}", ttl_s=5000 if n % 2 else 0.5)
        other.cancel()
        clock.advance(1)
        got += [event for event in sub.take() if int(event.id[1:]) % 2]
    assert 0 < len(got) < 20
    if between == "reopen":
        channel = open_channel("dual")
    assert ids(channel.resume("s").past) == ids(got)
    assert ids(channel.resume("s", got[3].token).past) == ids(got[4:])


def test_lives_that_are_over_are_forgotten(open_channel: Opener, clock: ManualClock) -> None:
    channel = open_channel("dual")
    channel.subscribe("a", user="u", id="s", until_s=10, unseen=True)
    channel.subscribe("a", user="u", id="t", until_s=10)
    channel.publish("a", {}, id="future", at=later(50), ttl_s=1)
    channel.prolong("s", until_s=100)
    channel.prolong("t", until_s=60)
    lineage = channel.core.engine.lineage
    assert len(lineage.to_json(clock.now())) == 2
    channel.cancel("s")
    assert len(lineage.to_json(clock.now())) == 1
    clock.advance(55)
    assert lineage.to_json(clock.now()) == []  # the event is not valid any more


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("end", ["cancel", "prolong"])
def test_a_sealed_record_that_ended_is_not_asked_about_later_events_after_a_restart(
    layout: str, end: str, open_channel: Opener, clock: ManualClock
) -> None:
    """What it told was logged before it ended, and the log brings the end back as well."""
    channel = open_channel(layout)
    channel.subscribe("a", user="u", id="first", until_s=20)
    channel.publish("a", {}, id="e1", ttl_s=200)
    channel.seal()
    sub = channel.subscribe("a", user="u", id="second", since_s=-60, until_s=100, unseen=True)
    if end == "cancel":
        channel.cancel("first")
    else:
        channel.prolong("first", until_s=5)  # counts as made now: later than the second
    clock.advance(1)
    channel.publish("a", {}, id="e2", ttl_s=200)
    clock.advance(30)
    channel.publish("a", {}, id="e3", ttl_s=200)
    assert ids(sub.take()) == ["e2", "e3"]
    channel = open_channel(layout)
    assert ids(channel.resume("second").past) == ["e2", "e3"]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("end", ["cancel", "prolong"])
@pytest.mark.parametrize("sealed", ["before", "before and after"])
def test_sealed_marks_of_a_record_that_ended_say_nothing_of_later_events(
    layout: str, end: str, sealed: str, open_channel: Opener, clock: ManualClock
) -> None:
    """As above, and what it told was sealed as well before the record ended."""
    channel = open_channel(layout)
    channel.subscribe("a", user="u", id="first", until_s=10)
    channel.seal()
    channel.publish("a", {}, id="e1", ttl_s=30)
    channel.seal()
    sub = channel.subscribe("a", user="u", id="second", since_s=-60, until_s=100, unseen=True)
    if end == "cancel":
        channel.cancel("first")
    else:
        channel.prolong("first", until_s=5)
    if sealed == "before and after":
        channel.seal()
    clock.advance(1)
    channel.publish("a", {}, id="e2", ttl_s=200)
    clock.advance(10)
    channel.publish("a", {}, id="e3", ttl_s=200)
    assert ids(sub.take()) == ["e2", "e3"]
    for _ in range(2):
        channel = open_channel(layout)
        assert ids(channel.resume("second").past) == ["e2", "e3"]
    # The mark still says what its record was answered with, for as long as that is valid.
    assert ids(channel.subscribe("a", user="u", since_s=-60, unseen=True).past) == []


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_end_of_a_record_is_kept_as_long_as_the_record_and_no_longer(
    layout: str, open_channel: Opener, clock: ManualClock
) -> None:
    channel = open_channel(layout)
    for n in range(20):
        channel.subscribe("a", user="u", id=f"s{n}", until_s=10)
    channel.seal()
    channel.publish("a", {}, ttl_s=30)
    channel.seal()
    for n in range(20):
        channel.cancel(f"s{n}")
    channel.seal()
    for seconds, kept in ((0, 20), (70, 0)):
        clock.advance(seconds)
        channel.publish("b", {}, ttl_s=1)
        channel.maintain()
        channel = open_channel(layout)
        assert len(channel.core.engine.sides[0].memory.tombs()) == kept
    assert sum(len(side.tree.readers) for side in channel.core.engine.sides) == 0


@pytest.mark.parametrize("layout", LAYOUTS)
def test_events_that_end_one_after_the_other_stay_told_to_the_last(
    layout: str, open_channel: Opener, clock: ManualClock
) -> None:
    channel = open_channel(layout)
    channel.subscribe("a", user="u", until_s=10)
    channel.seal()
    channel.publish("a", {}, id="e1", ttl_s=30)
    channel.publish("a", {}, id="e2", ttl_s=31)
    channel.seal()
    clock.advance(30.5)
    channel.publish("b", {}, ttl_s=1)
    channel.maintain()
    for _ in range(2):
        assert ids(channel.subscribe("a", user="u", since_s=-60, unseen=True).past) == []
        channel = open_channel(layout)


def test_an_end_that_is_taken_back_changes_nothing(
    open_channel: Opener, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = open_channel("dual")
    channel.subscribe("a", user="u", id="first", until_s=10)
    channel.seal()
    channel.publish("a", {}, id="e1", ttl_s=30)

    def refuse(*_: Any) -> None:
        raise Unavailable("disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(channel.core.engine.store.log, "append_parts", refuse)
        with pytest.raises(Unavailable):
            channel.cancel("first")
    assert [s.id for s in channel.publish("a", {}, id="e2", ttl_s=30).subscriptions] == ["first"]
    clock.advance(15)
    assert ids(channel.subscribe("a", user="u", since_s=-60, unseen=True).past) == []


def test_a_second_try_at_an_end_counts(
    open_channel: Opener, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = open_channel("dual")
    channel.subscribe("a", user="u", id="first", until_s=10)
    channel.seal()

    def refuse(*_: Any) -> None:
        raise Unavailable("disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(channel.core.engine.store.log, "append_parts", refuse)
        with pytest.raises(Unavailable):
            channel.cancel("first")
    channel.publish("a", {}, id="e1", ttl_s=30)
    channel.seal()
    channel.cancel("first")
    assert len(channel.core.engine.sides[0].memory.tombs()) == 1
    channel.publish("a", {}, id="e2", ttl_s=200)
    clock.advance(15)
    channel.publish("b", {}, ttl_s=1)
    channel.core.engine.sides[0].memory._rebuild_tombs(clock.now())
    assert len(channel.core.engine.sides[0].memory.tombs()) == 0
    assert ids(channel.subscribe("a", user="u", since_s=-60, unseen=True).past) == ["e2"]


def test_a_folder_of_the_format_before_is_read_and_saved_in_the_new_one_at_once(
    tmp_path: Path, clock: ManualClock
) -> None:
    """An older version would misread what is written now: it must refuse before that.

    Of the events in it, it is not known who was told: resuming gives what the window lets in.
    """
    with tideline.open(tmp_path / "data", clock=clock) as db:
        channel = db.channel("c")
        channel.subscribe("a", user="u", id="s", until_s=10)
        channel.subscribe("a", user="u", id="t", until_s=10, unseen=True)
        channel.publish("a", 1, id="e1", ttl_s=60)
        channel.seal()
    manifest = Manifest(tmp_path / "data" / "channels" / "0001" / "MANIFEST")
    document = manifest.load()
    assert document is not None
    manifest.save({**document, "format": 4})
    with tideline.open(tmp_path / "data", clock=clock) as db:
        saved = manifest.load()
        assert saved is not None
        assert saved["format"] == FORMAT
        channel = db.channel("c")
        channel.publish("a", 1, id="e2", ttl_s=60)
        assert ids(channel.resume("t").past) == ["e1"]  # it yields e2 to the other
        channel.cancel("s")
        channel.publish("a", 1, id="e3", ttl_s=60)
    with tideline.open(tmp_path / "data", clock=clock) as db:
        channel = db.channel("c")
        assert [info.id for info in channel.subscriptions()] == ["t"]
        assert ids(channel.resume("t").past) == ["e1", "e3"]
