"""Brings each second to the application when its time has come, and notes when it was answered.

    simulated time = start + wall time since the beginning * speed

A second's rows are there when it begins. The answers are given at `emit`; the difference is the
response time, in simulated seconds: at twenty times the speed, five seconds are a quarter of one.
So a run at a higher speed is a harder test of the same answers.

    batches_of           the input, made in a process of its own
    prepare, prepared    the input in files that are made before
    drive                the run itself

For one thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pyarrow as pa

from examples.linear_road.answers import AnswerFiles
from examples.linear_road.tolls import Tolls
from tideline.errors import Unavailable
from tideline.workload.linear_road import REPORT, SCHEMA, LinearRoad

__all__ = ["Run", "batches_of", "drive", "prepare", "prepared"]

_AHEAD = 32  # seconds that may wait between the processes


@dataclass
class Run:
    """What a run has done so far."""

    second: int = 0
    reports: int = 0
    requests: int = 0
    tolls: int = 0
    warnings: int = 0
    worst_s: float = 0.0
    """The longest response, in simulated seconds."""
    worst_ms: float = 0.0
    """The longest response, in milliseconds of the wall's time."""
    busy_s: float = 0.0
    """Wall time that the application worked; the rest it waited."""
    took: list[float] = field(default_factory=list)
    """Of each second its response, in simulated seconds."""


def drive(
    app: Tolls, batches: Iterable[pa.RecordBatch], answers: AnswerFiles, *, start_s: int = 0,
    speed: float | None = None, shown: Callable[[Run], object] = lambda run: None,
    done: Callable[[Run], object] = lambda run: None, run: Run | None = None,
) -> Run:  # fmt: skip
    """Run to the end of the batches, the first of which is second `start_s`.

    After each second `done` is called, and then `shown`. A `run` that is given goes on.

    Without `speed` time stands still: nothing waits, and nothing is late. That is for tests.
    """
    run = run or Run()
    begun = 0.0
    for number, batch in enumerate(batches):
        begun = begun or time.perf_counter()  # with the first second: it may take a while to come
        due = begun + number / speed if speed else 0.0
        while speed and (wait := due - time.perf_counter()) > 0:
            time.sleep(wait)
        started = time.perf_counter()
        told = app.second(batch)
        ended = time.perf_counter()
        late = ended - due if speed else 0.0
        run.second = start_s + number
        run.busy_s += ended - started
        run.took.append(late * (speed or 1))
        run.worst_s = max(run.worst_s, run.took[-1])
        run.worst_ms = max(run.worst_ms, late * 1e3)
        answers.add(told, run.second + run.took[-1])
        reports = int((batch.column("type").to_numpy() == REPORT).sum())
        run.reports += reports
        run.requests += batch.num_rows - reports
        run.tolls += len(told["tolls"]["vid"]) if "tolls" in told else 0
        run.warnings += len(told["accidents"]["vid"]) if "accidents" in told else 0
        done(run)
        shown(run)
    return run


@contextmanager
def batches_of(road: LinearRoad, first: int = 0) -> Iterator[Iterator[pa.RecordBatch]]:
    """The seconds of a run but the first so many, made ahead by another process."""
    context = get_context("spawn")
    there, here = context.Pipe(duplex=False)
    room = context.BoundedSemaphore(_AHEAD)
    process = context.Process(target=_make, args=(road, first, here, room), daemon=True)
    process.start()
    here.close()
    try:
        yield _received(there, room)
    finally:
        process.terminate()
        process.join()
        there.close()


def _received(pipe: Any, room: Any) -> Iterator[pa.RecordBatch]:
    while True:
        try:
            data = pipe.recv_bytes()
        except EOFError:
            raise Unavailable("the process that makes the traffic has ended") from None
        if not data:
            return
        room.release()
        yield pa.ipc.read_record_batch(pa.py_buffer(data), SCHEMA)


def _make(road: LinearRoad, first: int, pipe: Any, room: Any) -> None:
    with suppress(KeyboardInterrupt, BrokenPipeError):
        for batch in islice(road.seconds(), first, None):
            room.acquire()
            pipe.send_bytes(batch.serialize())
        pipe.send_bytes(b"")


def prepare(road: LinearRoad, folder: Path, processes: int = 2) -> list[Path]:
    """Write the seconds of a run to files, one for each expressway; the files."""
    folder.mkdir(parents=True, exist_ok=True)
    numbers = range(road.first, road.first + road.expressways)
    paths = [folder / f"{x}.arrow" for x in numbers]
    ones = [LinearRoad(1, road.duration_s, road.seed, road.start_s, first=x) for x in numbers]
    if processes < 2:
        for one, path in zip(ones, paths, strict=True):
            _write(one, path)
        return paths
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        list(pool.map(_write, ones, paths))
    return paths


def _write(road: LinearRoad, path: Path) -> None:
    with pa.ipc.new_file(str(path), SCHEMA) as sink:
        for batch in road.seconds():
            sink.write_batch(batch)


def prepared(paths: Sequence[Path]) -> Iterator[pa.RecordBatch]:
    """The seconds that `prepare` wrote, of some expressways together."""
    with ExitStack() as stack:
        readers = []
        for path in paths:
            source = stack.enter_context(pa.memory_map(str(path)))
            readers.append(stack.enter_context(pa.ipc.open_file(source)))
        for number in range(readers[0].num_record_batches):
            parts = [reader.get_batch(number) for reader in readers]
            yield pa.Table.from_batches(parts).combine_chunks().to_batches()[0]
