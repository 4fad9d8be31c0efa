"""The change feed is the history: a dict that replays it is the collection at every seq.

Followers of every speed, with and without old versions, attach anywhere in the history and go on
over seals, merges, changes of indexes, closing, and copies of the folder as a kill leaves it.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from engine_model import Write, open_engine, rows_of
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)
from profiles import few
from test_engine_machine import FIELDS, KEYS, WRITES

from tideline.documents.changes import Changes
from tideline.errors import Closed, InvalidRequest, Unavailable
from tideline.model import Change
from tideline.where.keys import decode, encode

Told = tuple[int, bytes, Any, Any]  # seq, key, before, after
KINDS = ("embedded", "composite", "lazy", "eager")


class History:
    """Every change there ever was, in order."""

    def __init__(self) -> None:
        self.all: list[Told] = []
        self.now: dict[bytes, Any] = {}

    def write(self, writes: list[Write]) -> None:
        for key, document in writes:
            name = encode(key)
            self.all.append((len(self.all) + 1, name, self.now.pop(name, None), document))
            if document is not None:
                self.now[name] = document


class Reader:
    """A handle, and what it must hand out next."""

    def __init__(self, changes: Changes, seq: int, before: bool) -> None:
        self.changes = changes
        self.seq = seq
        self.before = before

    def take(self, history: History, limit: int | None) -> None:
        found = self.changes.take(limit)
        wanted = history.all[self.seq :][:limit]
        assert [told(change, self.before) for change in found] == [
            each if self.before else (*each[:2], ..., each[3]) for each in wanted
        ]
        self.seq += len(found)
        assert self.changes.seq == self.seq


def told(change: Change, before: bool) -> tuple[int, bytes, Any, Any]:
    if not before:
        with pytest.raises(InvalidRequest):
            change.before  # noqa: B018
    return change.seq, encode(change.key), change.before if before else ..., change.after


class ChangesMachine(RuleBasedStateMachine):
    journal_us = 1 << 60
    journal_before = True

    @initialize()
    def begin(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="tideline-test-"))
        self.engine = open_engine(self.folder / "c", {
            "indexes": dict(zip(FIELDS[:3], KINDS, strict=False)),
            "policy": {"name": "prefix", "max_bytes": 60_000, "max_count": 3},
            "journal_us": self.journal_us, "journal_before": self.journal_before, "old_from": 1,
        }, segment_bytes=6_000)  # fmt: skip
        self.history = History()
        self.readers: list[Reader] = []

    def teardown(self) -> None:
        if hasattr(self, "engine"):
            self.engine.close()
            shutil.rmtree(self.folder, ignore_errors=True)

    @rule(writes=WRITES)
    def write(self, writes: Any) -> None:
        self.engine.write(rows_of(writes))
        self.history.write(writes)

    @rule(writes=WRITES, count=st.sampled_from([2, 30]))
    def write_many(self, writes: Any, count: int) -> None:
        """A batch that repeats its keys."""
        self.engine.write(rows_of(writes * count))
        self.history.write(writes * count)

    @rule()
    def seal(self) -> None:
        self.engine.seal()

    @rule(field=st.sampled_from(FIELDS), kind=st.sampled_from(KINDS))
    def change_index(self, field: str, kind: str) -> None:
        if field in self.engine.indexes:
            self.engine.drop_index(field)
        else:
            self.engine.add_index(field, kind)

    @rule(share=st.floats(0, 1), before=st.booleans(), now=st.booleans())
    def attach(self, share: float, before: bool, now: bool) -> None:
        newest = len(self.history.all)
        seq = newest if now else round(share * newest)
        try:
            changes = Changes(self.engine.feed, None if now else seq, before)
        except Unavailable as error:
            seq = self.told_what_is_kept(error, seq)
            changes = Changes(self.engine.feed, seq, before)
        if before and not self.journal_before and not now:
            changes.close()  # who came before may not have wanted old versions
            return
        self.readers.append(Reader(changes, seq, before))

    def told_what_is_kept(self, error: Unavailable, seq: int) -> int:
        """Nothing is said to be gone that is not; what is named can be read."""
        self.engine.drain()  # what goes in the background is gone
        assert not self.journal_us
        assert seq < error.values["earliest"] <= self.engine.feed.earliest()
        assert self.engine.feed.earliest() <= len(self.history.all)
        return self.engine.feed.earliest()

    @precondition(lambda self: self.readers)
    @rule(data=st.data(), limit=st.sampled_from([None, 1, 3, 100]))
    def take(self, data: Any, limit: int | None) -> None:
        data.draw(st.sampled_from(self.readers)).take(self.history, limit)

    @precondition(lambda self: self.readers)
    @rule(data=st.data())
    def take_columns(self, data: Any) -> None:
        reader = data.draw(st.sampled_from(self.readers))
        part = reader.changes._follower.take_part()
        if part is None:
            assert reader.seq == len(self.history.all)
            return
        wanted = self.history.all[reader.seq : part.limit - 1]
        assert part.rows.keys.to_list()[-len(wanted) :] == [key for _, key, _, _ in wanted]
        reader.seq = part.limit - 1

    @precondition(lambda self: self.readers)
    @rule(data=st.data())
    def let_go(self, data: Any) -> None:
        self.readers.pop(data.draw(st.integers(0, len(self.readers) - 1))).changes.close()

    @rule(killed=st.booleans())
    def reopen(self, killed: bool) -> None:
        """Followers end with the engine, and go on where they were after a restart."""
        if killed:
            self.engine.drain()
            shutil.copytree(self.folder / "c", self.folder / "copy")
        self.engine.close()
        for reader in self.readers:
            with pytest.raises(Closed):
                reader.changes.take()
        if killed:
            shutil.rmtree(self.folder / "c")
            (self.folder / "copy").rename(self.folder / "c")
        self.engine = open_engine(self.folder / "c", segment_bytes=6_000)
        assert self.engine.feed.journal_us == self.journal_us
        old, self.readers = self.readers, []
        for reader in old:
            if self.journal_before or not reader.before:
                seq = reader.seq
                try:
                    changes = Changes(self.engine.feed, seq, reader.before)
                except Unavailable as error:  # it stays: how many there are is no matter of time
                    seq = self.told_what_is_kept(error, seq)
                    changes = Changes(self.engine.feed, seq, reader.before)
                self.readers.append(Reader(changes, seq, reader.before))

    @rule()
    def replay(self) -> None:
        """All changes from the first give the collection, at every seq on the way."""
        try:
            changes = Changes(self.engine.feed, 0, False)
        except Unavailable as error:
            self.told_what_is_kept(error, 0)
            return
        records: dict[bytes, Any] = {}
        expected = History()
        for seq, change in enumerate(changes.take(), start=1):
            assert change.seq == seq
            key = encode(change.key)
            records.pop(key, None)
            if change.after is not None:
                records[key] = change.after
            expected.write([(decode(key), self.history.all[seq - 1][3])])
            assert records == expected.now
        changes.close()
        scanned = {
            key: json.loads(doc)
            for part in self.engine.scan() for key, doc in zip(part.keys, part.docs, strict=True)
        }  # fmt: skip
        assert records == scanned == self.history.now

    @rule(key=KEYS)
    def get(self, key: Any) -> None:
        found = self.engine.get(encode(key))
        assert (None if found is None else json.loads(found)) == self.history.now.get(encode(key))


@pytest.mark.parametrize("journal", ["long", "none"])
@pytest.mark.parametrize("before", [True, False], ids=["old versions", "no old versions"])
def test_the_feed_is_the_history(journal: str, before: bool) -> None:
    kept = {"journal_us": 1 << 60 if journal == "long" else 0, "journal_before": before}
    machine = type("Machine", (ChangesMachine,), kept)
    run_state_machine_as_test(machine, settings=settings(max_examples=few(25)))


def test_whoever_comes_while_the_log_goes_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = open_engine(tmp_path, {"journal_us": 0}, segment_bytes=6_000)
    log, told_earliest = engine.store.log, []
    forget = log.forget

    def attach_first(before: int) -> int:
        with pytest.raises(Unavailable) as told:
            Changes(engine.feed, 0, False)
        told_earliest.append(told.value.values["earliest"])
        return forget(before)

    monkeypatch.setattr(log, "forget", attach_first)
    for round in range(3):
        engine.write(rows_of([(f"{round} {n}", "x" * 200) for n in range(100)]))
        engine.seal()
    engine.drain()
    assert told_earliest
    changes = Changes(engine.feed, told_earliest[-1], False)  # what is named can be read
    assert len(changes.take()) == 300 - told_earliest[-1]
    engine.close()
