"""Runs stories on a real store and on the model, and compares every result.

    python tests/channel_stories.py --help         many stories, until one differs
    python tests/channel_stories.py --seed 7 --ops 20000 --space quad --layout two --memory 1,16

Where Tideline is imported from is PYTHONPATH's to say, so another tree is tested with
`PYTHONPATH=/path/to/src`. A story that differs is cut to few operations (`shrink`) and written as a
script that runs it again.

    operation      what it does                                       also
    clock          to: moves the clock there
    publish, retract, get, find, subscribe, cancel, prolong, move, resume, list, look,
    apply, stats                                                                   the verbs
    take           reads every handle that is held; `let_go` drops one
    journal_on, journal_off, journal                                  reads on from where it was
    seal, maintain, check
    reopen         how: close (same process), exit (another one), kill; memory_mb

`fault` of an operation: ["full"] or ["short"], a log write that fails: the call is `Unavailable`
and nothing of it has happened; ["die", n, when] or ["timer", us]: the process dies in the middle of
it. Then it has happened whole or not at all; the store is asked which, and the model follows it.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from channel_judge import Difference, Differs, Judge, Undecided
from channel_model import WORLDS, Refused
from channel_store import Life, Lost, nursery
from channel_writer import Writer

__all__ = ["Difference", "Result", "main", "replay", "run_seed", "run_story", "shrink", "stories"]

Op = dict[str, Any]
BATCH = 48
_ALONE = {"reopen", "journal", "journal_on", "journal_off"}
LAYOUTS = ("dual", "two")
MEMORY: tuple[float, ...] = (1, 2, 4, 16, 64)


@dataclass
class Result:
    """What a story came to."""

    ops: int = 0
    answers: int = 0
    deaths: int = 0
    opens: int = 0
    counts: dict[str, int] = field(default_factory=dict)


def run_story(
    address: str, settings: dict[str, Any], ops: Iterable[Op], *, batch: int = BATCH,
    done: list[Op] | None = None,
) -> Result:  # fmt: skip
    """Run a story; `Difference` when the store and the model do not say the same.

    `done` gets every operation that was sent, for `shrink`.
    """
    folder = tempfile.mkdtemp(prefix="tideline-story-", dir=_fast_folder())
    runner = _Runner(address, {**settings, "folder": f"{folder}/data"}, done)
    try:
        waiting: list[Op] = []
        for op in ops:
            waiting.append(op)
            dies = op.get("fault", "x")[0] in ("die", "timer")
            if len(waiting) >= batch or dies or op["op"] in _ALONE:
                runner.run(waiting)
                waiting = []
        runner.run([*waiting, {"op": "take"}, {"op": "list", "user": None, "limit": None}])
        return runner.result
    except Undecided:  # the story ends here
        return runner.result
    finally:
        runner.close()
        shutil.rmtree(folder, ignore_errors=True)


def _fast_folder() -> str | None:
    """Where files cost nothing to sync: a story is about processes that die, not machines."""
    memory = "/dev/shm"
    room = shutil.disk_usage(memory).free if os.path.isdir(memory) else 0
    return memory if room > 1 << 30 and os.access(memory, os.W_OK) else None


class _Runner:
    def __init__(self, address: str, settings: dict[str, Any], done: list[Op] | None) -> None:
        self.address, self.settings, self.done = address, settings, done
        self.judge = Judge(settings["space"])
        self.judge.count_answers = settings.get("count_answers", False)
        self.result = Result()
        self.life: Life | None = None
        self._begin(settings["memory_mb"])

    def close(self) -> None:
        if self.life is not None:
            self.life.kill()

    def run(self, ops: list[Op]) -> None:
        if self.done is not None:
            self.done += ops
        last = ops[-1] if ops else {"op": ""}
        before = ops[:-1] if last["op"] in _ALONE else ops
        self._send(before)
        if last["op"] == "reopen":
            self._reopen(last)
        elif last["op"] in _ALONE:
            self._send([last])

    def _send(self, ops: list[Op]) -> None:
        if not ops:
            return
        assert self.life is not None
        sent = [self.judge.concrete(op) for op in ops]
        plain = [{k: v for k, v in op.items() if k != "of"} for op in sent]
        try:
            results = self.life.run(plain)
        except Lost as error:
            raise Difference(self.result.ops, ops[-1], f"hangs: {error}") from None
        for op, result in zip(sent, results, strict=False):
            self._step(op, result)
        if len(results) < len(ops):
            op = sent[len(results)]
            if op.get("fault", "x")[0] not in ("die", "timer"):
                raise Difference(self.result.ops, op, "the store's process died")
            self._died(op)

    def _step(self, op: Op, result: Any) -> None:
        try:
            self.judge.step(op, result)
        except Differs as differs:
            raise Difference(self.result.ops, _plain(op), str(differs)) from None
        self.result.ops += 1
        self.result.answers = self.judge.model.given
        self.result.counts[op["op"]] = self.result.counts.get(op["op"], 0) + 1

    def _begin(self, memory_mb: float) -> None:
        """Open in a new process."""
        self.result.opens += 1
        model = self.judge.model
        settings = {**self.settings, "clock": model.clock, "memory_mb": memory_mb}
        try:
            self.life = Life(self.address, settings)
        except Lost as error:
            raise Difference(self.result.ops, {"op": "reopen"}, str(error)) from None

    def _reopen(self, op: Op) -> None:
        assert self.life is not None
        if op["how"] == "close":
            self._send([op])
        else:
            if op["how"] == "exit":
                self.life.end()
            else:
                self.life.kill()
            self.judge.do_reopen(op)
            self._begin(op["memory_mb"])
            self.result.ops += 1
        why = self.judge.agrees(self._dump())
        if why:
            raise Difference(self.result.ops - 1, op, why)

    def _dump(self, before: Judge | None = None) -> Any:
        """All there is. `before`: the judge before an operation that may have happened."""
        assert self.life is not None
        model = self.judge.model
        journal = model.journal or (before.model.journal if before else None)
        position = None if journal is None else journal.position
        models = [model, before.model] if before else [model]
        writers = {name: [m.writers[name] for m in models if name in m.writers] for name in
                   model.writers}  # fmt: skip
        try:
            (result,) = self.life.run([{"op": "dump", "position": position, "writers": writers}])
        except (Lost, ValueError) as error:
            raise Difference(self.result.ops, {"op": "dump"}, f"hangs or died: {error}") from None
        if result[0] != "ok":
            raise Difference(self.result.ops, {"op": "dump"}, f"refused: {result!r}")
        return result[1]

    def _died(self, op: Op) -> None:
        """The process died in an operation: it has happened, or it has not."""
        assert self.life is not None
        self.life.kill()
        self.result.deaths += 1
        before = self.judge
        after = before.copy()
        with contextlib.suppress(Refused):
            after.expect(op)
        for judge in (before, after):
            judge.model.handles.clear()
        self.judge = after  # asks for what either may know
        self._begin(op.get("memory_mb", 16))
        dump = self._dump(before)
        self.result.ops += 1
        why, why_not = after.agrees(dump), before.agrees(dump)
        if not why and not why_not and after.model.secrets() != before.model.secrets():
            raise Undecided  # an expired question, say: who was told is seen only by asking
        if not why and not why_not and after.model.newest != before.model.newest:
            # Nobody can tell yet; after this, nobody needs to.
            self._send([{"op": "clock", "to": after.model.newest}])
        elif why and not why_not:
            self.judge = before
        elif why:
            part, rows = self._cut(before, op, dump)
            if part is not None and self.settings.get("cut_batches"):
                self.judge = part
                return
            cut = "" if part is None else f"the first {rows} of {len(op['rows'])} rows are there: "
            raise Difference(
                self.result.ops - 1, _plain(op),
                f"died within it; {cut}not as if it had happened ({why}), nor if not ({why_not})",
            )  # fmt: skip

    def _cut(self, before: Judge, op: Op, dump: Any) -> tuple[Judge | None, int]:
        """Whether a batch was cut: the model with as many of its rows as are there."""
        for count in range(1, len(op.get("rows", []))):
            part = before.copy()
            part.model.apply(op["rows"][:count], None)
            part.model.writers = dict(dump["writers"])
            if not part.agrees(dump):
                return part, count
        return None, 0


def _plain(op: Op) -> Op:
    return {k: v for k, v in op.items() if k not in ("of", "rank", "token", "position")}


# Many stories, and one that fails ---------------------------------------------------------------


def settings_of(seed: int, spaces: list[str], layouts: list[str], memory: list[float]) -> Op:
    """The space, layout and first memory of a seed's story: seeds go round."""
    return {
        "seed": seed,
        "space": spaces[seed % len(spaces)],
        "layout": layouts[seed // len(spaces) % len(layouts)],
        "memory": memory,
    }


def run_seed(address: str, settings: Op, count: int, done: list[Op] | None = None) -> Result:
    """The story of one seed."""
    writer = _writer(settings)
    first = {**settings, "memory_mb": writer.first_memory()}
    return run_story(address, first, writer.story(count), done=done)


def _writer(settings: Op) -> Writer:
    return Writer(
        settings["seed"], settings["space"], settings["memory"], settings.get("without", ())
    )


def shrink(
    address: str, settings: Op, ops: list[Op], found: Difference, budget_s: float = 60.0
) -> tuple[list[Op], Difference]:
    """Fewer operations that still differ in the same kind of operation, within some time."""
    deadline = time.monotonic() + budget_s
    batch = 1

    def differs(part: list[Op]) -> Difference | None:
        for _ in range(2 if batch == 1 and len(part) < 50 else 1):
            try:
                run_story(address, settings, part, batch=batch)
            except Difference as again:
                if again.op["op"] == found.op["op"]:
                    return again
        return None

    best, last = ops, found
    again = differs(ops)
    if again is None:
        batch = BATCH
        again = differs(ops)
    if again is None:
        return ops, found
    last = again
    best = ops[: max(again.where + 1, 1)] if batch == 1 else ops
    for alike in _kinds(best):  # first all operations of a kind, at a place, of a name at once
        part = [op for op in best if not alike(op)]
        if len(part) < len(best) and time.monotonic() < deadline:
            again = differs(part) if part else None
            if again is not None:
                best, last = part, again
    size = max(len(best) // 2, 1)
    while time.monotonic() < deadline:
        start, smaller = 0, False
        while start < len(best) and time.monotonic() < deadline:
            part = best[:start] + best[start + size :]
            again = differs(part) if part else None
            if again is None:
                start += size
            else:
                best, last, smaller = part, again, True
        if size == 1 and not smaller:
            break
        size = max(size // 2, 1)
    for where in range(len(best) - 1, -1, -1):  # then rows of batches
        rows = best[where].get("rows", [])
        size = len(rows) // 2
        while size and time.monotonic() < deadline:
            for start in range(0, len(rows), size):
                fewer = {**best[where], "rows": rows[:start] + rows[start + size :]}
                part = [*best[:where], fewer, *best[where + 1 :]]
                again = differs(part) if fewer["rows"] else None
                if again is not None:
                    best, last, rows = part, again, fewer["rows"]
            size //= 2
    return best, last


def _kinds(ops: list[Op]) -> Iterator[Callable[[Op], bool]]:
    """Kinds of operations that a story may do without."""
    for name in sorted({op["op"] for op in ops} - {"clock", "reopen"}):
        yield lambda op, name=name: op["op"] == name
    for word in ("fault", "rows", "related"):
        yield lambda op, word=word: bool(op.get(word))
    for key in ("user", "place"):
        for value in sorted({op[key] for op in ops if op.get(key) is not None}):
            yield lambda op, key=key, value=value: op.get(key) == value
    for id in sorted({op["id"] for op in ops if op.get("id", "x")[0] == "s"}):
        yield lambda op, id=id: op.get("id") == id


def script(settings: Op, ops: list[Op], found: Difference) -> str:
    """A program that runs a story again; it needs the folder of these files on its path."""
    shown = "[\n" + "".join(f"    {_plain(op)!r},\n" for op in ops) + "]"
    return (
        f"# {found!s}\n".replace("\n  ", "\n#   ")
        + "# PYTHONPATH=src:tests python THIS_FILE\n"
        + "from channel_stories import replay\n\n"
        + f"SETTINGS = {settings!r}\nOPS = {shown}\n\nreplay(SETTINGS, OPS)\n"
    )


def replay(settings: Op, ops: list[Op], batch: int = 1) -> None:
    """Run a written story again; raises its `Difference`."""
    with nursery() as address:
        print(run_story(address, settings, ops, batch=batch))


@dataclass
class Found:
    """A seed whose story differs."""

    seed: int
    difference: Difference
    ops: list[Op]
    path: Path | None = None


def stories(
    address: str, seeds: Iterator[int], total: int, *, each: int, spaces: list[str],
    layouts: list[str], memory: list[float], keep_going: bool = False, shrink_s: float = 60.0,
    scripts: Path | None = None, progress: Callable[[str], None] = lambda text: None,
    seconds: float = 1e9, count_answers: bool = False, without: Sequence[str] = (),
    cut_batches: bool = False,
) -> tuple[Result, list[Found]]:  # fmt: skip
    """Run stories of `each` operations until there were `total`, or one differs."""
    whole, found = Result(), []
    start = shown = time.monotonic()
    while whole.ops < total and time.monotonic() - start < seconds:
        seed = next(seeds)
        settings = settings_of(seed, spaces, layouts, memory)
        settings |= {
            "count_answers": count_answers, "without": without, "cut_batches": cut_batches,
        }  # fmt: skip
        done: list[Op] = []
        try:
            result = run_seed(address, settings, min(each, total - whole.ops + 1), done)
        except Difference as difference:
            progress(
                f"seed {seed} ({settings['space']}, {settings['layout']}) differs at {difference}"
            )
            first = _writer(settings).first_memory()
            settings = {**settings, "memory_mb": first}
            ops = done[: difference.where + 1]
            if shrink_s:
                ops, difference = shrink(address, settings, done, difference, shrink_s)
            one = Found(seed, difference, ops)
            if scripts is not None:
                scripts.mkdir(parents=True, exist_ok=True)
                one.path = scripts / f"story-{seed}-{settings['space']}-{settings['layout']}.py"
                one.path.write_text(script(settings, ops, difference))
            found.append(one)
            progress(f"  cut to {len(ops)} operations: {difference}; {one.path or ''}")
            if not keep_going:
                break
            whole.ops += len(done)
        else:
            whole.ops += result.ops
            whole.answers += result.answers
            whole.deaths += result.deaths
            whole.opens += result.opens
            for name, count in result.counts.items():
                whole.counts[name] = whole.counts.get(name, 0) + count
        if time.monotonic() - shown > 10:
            shown = time.monotonic()
            rate = whole.ops / (shown - start)
            progress(f"{whole.ops} operations, seed {seed}, {rate:.0f} a second")
    return whole, found


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Random stories of a channel against a model.")
    parser.add_argument("--seed", type=int, default=1, help="the first seed; they count up")
    parser.add_argument("--ops", type=int, default=100_000, help="operations in all")
    parser.add_argument("--each", type=int, default=3000, help="operations of one story")
    parser.add_argument("--space", default=",".join(WORLDS))
    parser.add_argument("--layout", default=",".join(LAYOUTS))
    parser.add_argument("--memory", default=",".join(f"{mb:g}" for mb in MEMORY), help="memory_mb")
    parser.add_argument("--seconds", type=float, default=1e9, help="stop after so long")
    parser.add_argument("--shrink", type=float, default=60.0, help="seconds to cut a failing story")
    parser.add_argument("--keep-going", action="store_true", help="look for more than one")
    parser.add_argument("--answers", action="store_true", help="compare stats().answers, too")
    parser.add_argument(
        "--without",
        default="",
        help="kinds of operations to leave out; also: faults, deaths, ahead",
    )
    parser.add_argument(
        "--cut-batches", action="store_true", help="allow that a kill leaves a part of a batch"
    )
    parser.add_argument("--scripts", type=Path, default=Path("stories"))
    given = parser.parse_args(argv)
    import itertools

    with nursery() as address:
        start = time.monotonic()
        whole, found = stories(
            address, itertools.count(given.seed), given.ops, each=given.each,
            spaces=given.space.split(","), layouts=given.layout.split(","),
            memory=[float(mb) for mb in given.memory.split(",")], keep_going=given.keep_going,
            shrink_s=given.shrink, scripts=given.scripts, seconds=given.seconds,
            progress=lambda text: print(text, flush=True), count_answers=given.answers,
            without=given.without.split(","), cut_batches=given.cut_batches,
        )  # fmt: skip
        took = time.monotonic() - start
    print(whole, f"{took:.1f} s, {whole.ops / took:.0f} operations a second")
    for one in found:
        print(f"seed {one.seed}: {one.difference}\n  {len(one.ops)} operations, {one.path}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
