"""`Database.backup`: a copy made while the database is used opens as it was at that moment."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from contract import Opener, ids

import tideline
from tideline.errors import InvalidRequest, Unavailable
from tideline.lsm import backup


@pytest.mark.parametrize("layout", ["dual", "two"])
@pytest.mark.parametrize("links", [True, False])
@pytest.mark.parametrize("sealed", [True, False])
def test_a_copy_has_everything(
    layout: str,
    links: bool,
    sealed: bool,
    tmp_path: Path,
    open_database: Opener,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not links:

        def refuse(*_: Any, **__: Any) -> None:
            raise OSError(18, "Invalid cross-device link")

        monkeypatch.setattr(backup.os, "link", refuse)
    database = open_database()
    roads = database.channel("roads", space=tideline.Topics(), layout=layout)
    database.channel("empty")
    roads.subscribe("a", user="u", id="s", until_s=600, unseen=True)
    roads.subscribe("a", user="u", id="gone", until_s=600)
    roads.publish("a/b", {"n": 1}, id="e1", ttl_s=600)
    if sealed:
        roads.seal()
    roads.cancel("gone")
    roads.publish("a/b", {"n": 2}, id="e2", ttl_s=600)
    database.backup(tmp_path / "copy")
    roads.publish("a/b", {"n": 3}, id="e3", ttl_s=600)
    if sealed:
        roads.seal()  # merges and deletes what the copy has links to
    database = open_database(tmp_path / "copy")
    assert database.channels() == ["empty", "roads"]
    roads = database.channel("roads")
    assert ids(roads.find("a")) == ["e2", "e1"]
    assert [info.id for info in roads.subscriptions()] == ["s"]
    assert ids(roads.resume("s").past) == ["e1", "e2"]
    database.check()
    database = open_database()
    assert ids(database.channel("roads").find("a")) == ["e3", "e2", "e1"]
    database.check()


def test_writing_to_a_copy_does_not_change_the_original(
    tmp_path: Path, open_database: Opener
) -> None:
    database = open_database()
    database.channel("news").publish("a", {}, id="e1")
    database.backup(tmp_path / "copy")
    copy = open_database(tmp_path / "copy")
    copy.channel("news").publish("a", {}, id="e2")
    copy.channel("news").seal()
    assert ids(open_database().channel("news").find("a")) == ["e1"]


def test_a_copy_made_under_fire_holds_what_was_acknowledged(tmp_path: Path) -> None:
    stop = threading.Event()
    done = 0

    def publish() -> None:
        nonlocal done
        while not stop.is_set():
            news.publish("a", {"n": done}, id=f"e{done}", ttl_s=3600)
            done += 1

    with tideline.open(tmp_path / "data", memory_mb=4) as database:
        news = database.channel("news")
        writer = threading.Thread(target=publish)
        writer.start()
        spans = []
        try:
            for number in range(5):
                before = done
                database.backup(tmp_path / f"copy{number}")
                spans.append((before, done + 1))
        finally:
            stop.set()
            writer.join()
    for number, (before, after) in enumerate(spans):
        with tideline.open(tmp_path / f"copy{number}") as copy:
            found = ids(copy.channel("news").find("a"))
            copy.check()
        assert sorted(found) == sorted(f"e{n}" for n in range(len(found)))
        assert before <= len(found) <= after


def test_a_channel_dropped_meanwhile_is_not_in_the_copy(
    tmp_path: Path, open_database: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = open_database()
    database.channel("a").publish("x", {}, id="e")
    database.channel("b")
    engine = database.channel("b").core.engine
    real = engine.backup

    def slow(target: Path) -> None:
        database.drop_channel("b")
        real(target)

    monkeypatch.setattr(engine, "backup", slow)
    database.backup(tmp_path / "copy")
    assert open_database(tmp_path / "copy").channels() == ["a"]


def test_a_backup_needs_a_new_folder(tmp_path: Path, open_database: Opener) -> None:
    database = open_database()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("keep")
    with pytest.raises(InvalidRequest, match="new or an empty folder"):
        database.backup(tmp_path / "full")
    assert (tmp_path / "full" / "mine").read_text() == "keep"
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidRequest):
        database.backup(tmp_path / "file")


def test_a_database_in_memory_has_no_backup(tmp_path: Path, open_database: Opener) -> None:
    with pytest.raises(InvalidRequest, match="memory"):
        open_database(":memory:").backup(tmp_path / "copy")


def test_a_backup_that_fails_leaves_nothing(
    tmp_path: Path, open_database: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = open_database()
    database.channel("news").publish("a", {}, id="e1")

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(backup, "_copy", full)
    with pytest.raises(Unavailable, match="disk is full"):
        database.backup(tmp_path / "copy")
    assert not (tmp_path / "copy").exists()
    assert ids(database.channel("news").find("a")) == ["e1"]
