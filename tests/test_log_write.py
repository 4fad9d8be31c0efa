"""The frame of a large batch is written on a helper thread: what was promised still holds."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tideline
from tideline.channel import batch, calls
from tideline.channel.logwrite import PendingLogWrite
from tideline.errors import Unavailable
from tideline.lsm.position import Position

ROWS = 1_000


def table(first: int) -> pa.Table:
    """Rows that make a large frame, the first of them a subscription to the others."""
    numbers = range(first, first + ROWS)
    at = datetime(2026, 1, 1, tzinfo=UTC)
    return pa.table({
        "op": ["subscribe", *["publish"] * (ROWS - 1)],
        "id": [f"r{n}" for n in numbers],
        "place": ["a"] * ROWS,
        "user": ["u"] * ROWS,
        "at": pa.array([at] * ROWS, pa.timestamp("us", "UTC")),
        "body": [f'{{"n": {n}, "fill": "{"x" * 400}"}}' for n in numbers],
    })  # fmt: skip


def held(channel: Any) -> tuple[int, int]:
    return len(channel.find("a")), len(channel.subscriptions())


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The log writes on helper threads: proof that a test goes that way."""
    writes: list[Any] = []
    real = PendingLogWrite.begin

    def begin(self: Any, write: Callable[[], Any]) -> None:
        writes.append(write)
        real(self, write)

    monkeypatch.setattr(PendingLogWrite, "begin", begin)
    return writes


def test_a_large_batch_is_logged_on_a_helper_thread_and_there_after_reopening(
    tmp_path: Path, begun: list[Any]
) -> None:
    with tideline.open(tmp_path / "data") as db:
        applied = db.channel("c").apply(table(0))
        assert (applied.answers.num_rows, len(begun)) == (ROWS - 1, 1)
    with tideline.open(tmp_path / "data") as db:
        db.check()
        assert held(db.channel("c")) == (ROWS - 1, 1)


def test_a_log_that_refuses_takes_the_whole_batch_back(
    tmp_path: Path, begun: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with tideline.open(tmp_path / "data") as db:
        channel = db.channel("c")
        channel.apply(table(0))

        def full(*given: Any) -> int:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(os, "writev", full)
            with pytest.raises(Unavailable):
                channel.apply(table(ROWS))
        assert (held(channel), len(begun)) == ((ROWS - 1, 1), 2)
        channel.apply(table(2 * ROWS))  # there is room again
        assert held(channel) == (2 * ROWS - 2, 2)
    with tideline.open(tmp_path / "data") as db:
        assert held(db.channel("c")) == (2 * ROWS - 2, 2)


def test_rows_in_the_log_stay_when_their_answers_cannot_be_made(
    tmp_path: Path, begun: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with tideline.open(tmp_path / "data") as db:
        channel = db.channel("c")

        def broken(*given: Any) -> pa.Table:
            raise MemoryError

        with monkeypatch.context() as patch:
            patch.setattr(batch, "answers_columns", broken)
            with pytest.raises(MemoryError):
                channel.apply(table(0))
        assert (held(channel), len(begun)) == ((ROWS - 1, 1), 1)
        assert channel.apply(table(0)).rejected.num_rows == 0  # a retry finds them
        assert channel.publish("a", {"n": 1}, id="later").event.seq == ROWS + 1
    with tideline.open(tmp_path / "data") as db:
        db.check()
        assert held(db.channel("c")) == (ROWS, 1)


@pytest.mark.parametrize("log_first", [True, False], ids=["log first", "answers first"])
def test_whoever_waits_is_told_whether_the_log_or_the_answers_are_done_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log_first: bool
) -> None:
    real, answered = PendingLogWrite.begin, threading.Event()

    def begin(self: Any, write: Callable[[], Any]) -> None:
        if log_first:
            real(self, write)
            assert self.write.exception() is None  # it is over
        else:
            real(self, lambda: (answered.wait(), write())[1])

    def deliveries(*given: Any) -> Any:
        found = made(*given)
        answered.set()
        return found

    made = batch._deliveries
    monkeypatch.setattr(PendingLogWrite, "begin", begin)
    monkeypatch.setattr(batch, "_deliveries", deliveries)
    with tideline.open(tmp_path / "data") as db:
        channel = db.channel("c")
        waiting = channel.subscribe("a", user="ann", since=datetime(2026, 1, 1, tzinfo=UTC))
        channel.apply(table(0))
        assert len(waiting.take()) == ROWS - 1


def is_waiting(thread: int) -> bool:
    """Whether a thread waits for the end of a write."""
    frame = sys._current_frames()[thread]
    names = []
    while frame is not None:
        names.append(frame.f_code.co_name)
        frame = frame.f_back  # type: ignore[assignment]
    return names[0] == "wait" and "_ended" in names


def test_an_interrupt_is_raised_when_the_write_is_over() -> None:
    go, pending = threading.Event(), PendingLogWrite("test")
    over: list[bool] = []
    main = threading.main_thread().ident
    assert main is not None

    def slow() -> Position:
        while not is_waiting(main):
            pass
        # Again and again: a signal just before the thread really waits does not wake it.
        os.kill(os.getpid(), signal.SIGUSR1)
        while not go.wait(0.1):
            os.kill(os.getpid(), signal.SIGUSR1)
        over.append(True)
        return Position(1, 0)

    class Interrupted(Exception):
        pass

    def interrupted(*given: Any) -> None:
        if not go.is_set():
            go.set()
            raise Interrupted

    before = signal.signal(signal.SIGUSR1, interrupted)
    try:
        pending.begin(slow)
        with pytest.raises(Interrupted):
            pending.result()
        assert over == [True]
        assert not pending.failed()
        assert pending.write is None
    finally:
        signal.signal(signal.SIGUSR1, before)
        pending.close()


def test_small_batches_and_journals_are_logged_by_the_caller(
    tmp_path: Path, begun: list[Any]
) -> None:
    with tideline.open(tmp_path / "data") as db:
        db.channel("small").apply(table(0).slice(0, 5))
        db.channel("noted", journal_s=60).apply(table(0))
        assert begun == []
        assert table(0).slice(0, 5).nbytes < calls.MANY_WORDS * 8
