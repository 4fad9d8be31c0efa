"""A window answers as lists do: late rows, empty panes, seals, little memory, reopening, kills."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from profiles import few
from window_model import PANES, SLIDE_S, Model, begins, between, mapped, ranked

import tideline
from tideline.stream.engine import Engine
from tideline.testing import ManualClock

TEXTS = ["", "a", "a\x00", "a\x01b", "ab", "b", "é"]
INTS = st.one_of(st.integers(-2, 4), st.sampled_from([100, 2**40, -(2**62), 2**63 - 1]))
SMALL = st.integers(0, 4)
REALS = st.one_of(
    st.sampled_from([0.0, 1e300, -1e300, 1e-300, 5e-324, 0.1, 1 / 3]), st.floats(-1e6, 1e6)
)
MAPPERS = ["count", "sum(v)", "mean(v)", "min(v)", "max(v)", "sum(w)", "mean(w)", "min(w)",
           "max(w)", "top(3, v)", "top(2, w)"]  # fmt: skip


def rows_of(keys: Any) -> Any:
    return st.lists(
        st.tuples(st.integers(-45, 15), keys, st.integers(-(2**31), 2**31 - 1), REALS),
        max_size=30,
    )


class WindowMachine(RuleBasedStateMachine):
    keys: Any = st.tuples(SMALL, SMALL)
    types: tuple[str, ...] = ("int", "int")
    keep = "last"
    time = "t"
    durable = True

    @initialize(declared=st.booleans(), tail=st.sampled_from([4, 32, 8192]))
    def begin(self, declared: bool, tail: int) -> None:
        self.context = contextlib.ExitStack()
        self.patch = self.context.enter_context(pytest.MonkeyPatch.context())
        self.patch.setattr("tideline.stream.memory.TAIL_ROWS", tail)
        self.patch.setattr("tideline.stream.engine._FRAME_ROWS", 16)
        self.folder = Path(tempfile.mkdtemp(prefix="tideline-test-"))
        self.clock = ManualClock(1000)
        self.model = Model(self.keep)
        self.watches: list[tuple[Any, int, Any, str]] = []
        self.open(
            span_s=SLIDE_S * PANES, slide_s=SLIDE_S, values={"v": "int32", "w": "float64"},
            key=dict(zip(("a", "b"), self.types, strict=True)) if declared else ("a", "b"),
            keep=self.keep, time=self.time, durable=self.durable, max_ahead_s=float("inf"),
        )  # fmt: skip

    def open(self, **options: Any) -> None:
        self.db = tideline.open(self.folder / "db", clock=self.clock)
        self.window = self.db.window("w", **options)
        self.engine: Engine = self.window._engine

    @property
    def now_s(self) -> float:
        return self.clock.now() / 1e6

    def append(self, rows: Any, how: str) -> None:
        at = 0.0 if self.model.pane is None else self.model.pane * SLIDE_S
        by_clock = self.time == "clock"
        times = [self.now_s if by_clock else max(at + offset, -60) for offset, *_ in rows]
        dicts = [
            {"a": key[0], "b": key[1], "v": v, "w": w, "t": time}
            for time, (_, key, v, w) in zip(times, rows, strict=True)
        ]
        given: Any = dicts
        if how != "rows" and dicts:
            columns: dict[str, Any] = {name: [row[name] for row in dicts] for name in dicts[0]}
            types = dict(zip(("a", "b"), self.types, strict=True))
            arrow = {
                name: pa.array(
                    column, {"v": pa.int32(), "w": pa.float64(), "t": pa.float64()}.get(
                        name, pa.string() if types.get(name) == "text" else pa.int64()))
                for name, column in columns.items()
            }  # fmt: skip
            given = pa.table(arrow)
            if how == "columns":
                given = {
                    name: column if types.get(name) == "text" else np.asarray(arrow[name])
                    for name, column in columns.items()
                }
        done = self.window.append(given)
        stored, late = self.model.append([
            (time, key, {"v": v, "w": w}) for time, (_, key, v, w) in zip(times, rows, strict=True)
        ])  # fmt: skip
        assert (done.stored, done.late, done.rejected.num_rows) == (stored, late, 0)

    @rule(data=st.data(), how=st.sampled_from(["rows", "table", "columns"]))
    def write(self, data: Any, how: str) -> None:
        self.append(data.draw(rows_of(self.keys)), how)

    @rule(data=st.data())
    def write_many(self, data: Any) -> None:
        """Many rows of few keys: enough for runs to be merged."""
        rows = data.draw(rows_of(self.keys).filter(bool))
        self.append([(0, key, v + n if abs(v) < 2**30 else v, w)
                     for n in range(8) for _, key, v, w in rows], "table")  # fmt: skip

    @rule(slides=st.integers(0, 6))
    def advance(self, slides: int) -> None:
        """Time goes on; where rows have no times, the window goes with it."""
        self.clock.advance(slides * SLIDE_S)
        if self.time == "clock":
            self.engine.advance()
            if self.model.pane is not None:
                pane = self.model.pane_of(self.now_s)
                if pane > self.model.pane:
                    self.model.slide(pane)

    @rule()
    def seal(self) -> None:
        self.window.seal()
        assert self.engine.memory_bytes == 0

    @rule()
    def maintain(self) -> None:
        self.window.maintain()

    @rule(tight=st.booleans())
    def memory_is_short(self, tight: bool) -> None:
        self.engine._memory_bytes = 2_000 if tight else None

    @rule(small=st.booleans())
    def closed_ones_go_to_disk(self, small: bool) -> None:
        self.engine._disk_bytes = 1 if small else 1 << 20

    @rule()
    def reopen(self) -> None:
        self.leave_watches()
        self.db.close()
        self.after_restart()

    @rule()
    def crash(self) -> None:
        """What a killed process would leave: the files as they are now."""
        self.leave_watches()
        self.engine.drain()
        shutil.copytree(self.folder / "db", self.folder / "copy")
        self.db.close()
        shutil.rmtree(self.folder / "db")
        (self.folder / "copy").rename(self.folder / "db")
        (self.folder / "db" / "LOCK").unlink(missing_ok=True)
        self.after_restart()

    def after_restart(self) -> None:
        if not self.durable:
            self.model = Model(self.keep)
        self.open()

    @precondition(lambda self: len(self.watches) < 3)
    @rule(data=st.data(), name=st.sampled_from(MAPPERS), panes=st.integers(1, PANES))
    def watch(self, data: Any, name: str, panes: int) -> None:
        prefix = data.draw(self.keys)[: data.draw(st.integers(0, 2))]
        watch = self.window.watch(prefix, map=name, last_s=panes * SLIDE_S)
        if self.time == "clock" and self.model.pane is None:
            self.model.pane = self.model.pane_of(self.now_s)
        self.watches.append((watch, len(self.model.told), (begins(prefix), panes), name))

    @rule()
    def read_watches(self) -> None:
        for place, (watch, start, (meant, panes), name) in enumerate(self.watches):
            told = self.model.told[start:]
            found = watch.take()
            assert [pane.missed for pane in found[1:]] == [0] * (len(found) - 1 if found else 0)
            missed = found[0].missed if found else 0
            assert len(found) + missed == len(told)
            for pane, (closed, rows) in zip(found, told[missed:], strict=True):
                assert pane.until.timestamp() == (closed + 1) * SLIDE_S
                expected = mapped(name, self.model.found(meant, panes, rows, closed))
                assert pane.value == expected
            self.watches[place] = (watch, len(self.model.told), (meant, panes), name)

    def leave_watches(self) -> None:
        for watch, *_ in self.watches:
            watch.close()
        self.watches = []

    @rule(data=st.data(), panes=st.integers(1, PANES))
    def read(self, data: Any, panes: int) -> None:
        prefix = data.draw(self.keys)[: data.draw(st.integers(0, 2))]
        ends = [data.draw(self.keys)[: data.draw(st.integers(0, 2))] or None for _ in range(2)]
        last_s = panes * SLIDE_S
        for given_keys, meant in ((prefix, begins(prefix)), (tuple(ends), between(*ends))):
            if given_keys == (None, None):
                given_keys = None
            rows = self.model.found(meant, panes)
            table = self.window.range(given_keys, last_s=last_s)
            expected = [
                (*key, values["v"], values["w"], pane * SLIDE_S)
                for pane, key, values in sorted(rows, key=lambda row: row[1])
            ]
            columns = [table[name].to_pylist() for name in ("a", "b", "v", "w")]
            since = [each.timestamp() for each in table["since"].to_pylist()]
            assert list(zip(*columns, since, strict=True)) == expected
            found = self.window.range(given_keys, map=MAPPERS, last_s=last_s)
            assert found == {name: mapped(name, rows) for name in MAPPERS}
            for q in (0, 0.5, 0.9, 1):
                exact = ranked(q, [values["v"] for *_, values in rows])
                near = self.window.range(given_keys, map=f"quantile(v, {q})", last_s=last_s)
                assert near is exact is None or near == pytest.approx(exact, rel=0.0101)
            folded = self.window.range(
                given_keys, map=lambda state, a, b, v, w: [*state, ((a, b), v)], initial=[],
                last_s=last_s,
            )  # fmt: skip
            assert folded == [(key, values["v"]) for _, key, values in rows]

    @rule(data=st.data(), panes=st.integers(1, PANES))
    def get(self, data: Any, panes: int) -> None:
        keys = data.draw(st.lists(self.keys, min_size=1, max_size=6))
        last_s = panes * SLIDE_S
        newest = []
        for key in keys:
            rows = [values for _, _, values in self.model.found(begins(key), panes)]
            newest.append(rows[-1] if rows else None)
            found = self.window.get(key, last_s=last_s)
            assert found == (newest[-1] if self.keep == "last" else rows)
        many = self.window.get_many(keys, last_s=last_s).to_pylist()
        assert [(row["a"], row["b"]) for row in many] == keys
        assert [{"v": row["v"], "w": row["w"]} if row["found"] else None for row in many] == newest

    @rule(data=st.data(), panes=st.integers(1, PANES - 1))
    def read_closed(self, data: Any, panes: int) -> None:
        if self.model.pane is not None:
            rows = self.model.found(begins(()), panes, upto=self.model.pane - 1)
            found = self.window.range(map=["count", "sum(v)"], last_s=panes * SLIDE_S, closed=True)
            assert found == {name: mapped(name, rows) for name in ("count", "sum(v)")}

    @rule()
    def check(self) -> None:
        self.db.check()

    @invariant()
    def counters_hold(self) -> None:
        if hasattr(self, "window"):
            stats = self.window.stats()
            if self.durable:
                assert stats.late == self.model.late
            assert stats.sub_windows == len([rows for rows in self.model.rows.values() if rows])

    def teardown(self) -> None:
        if hasattr(self, "db"):
            self.leave_watches()
            self.db.close()
            self.context.close()
            shutil.rmtree(self.folder)


VARIANTS: dict[str, dict[str, Any]] = {
    "numbers": {},
    "all": {"keep": "all"},
    "clock": {"time": "clock"},
    "clock, all": {"time": "clock", "keep": "all"},
    "wide": {"keys": st.tuples(INTS, INTS), "keep": "all"},
    "text": {"keys": st.tuples(st.sampled_from(TEXTS), SMALL), "types": ("text", "int")},
    "text last": {
        "keys": st.tuples(SMALL, st.sampled_from(TEXTS)), "types": ("int", "text"), "keep": "all",
    },
    "memory": {"durable": False},
}  # fmt: skip


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_window_answers_as_a_rescan_does(variant: str) -> None:
    machine = type("Machine", (WindowMachine,), VARIANTS[variant])
    run_state_machine_as_test(machine, settings=settings(max_examples=few(12)))
