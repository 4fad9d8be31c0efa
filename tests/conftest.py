"""What every test shares: a clock that stands still, channels on real folders, profiles, Spark.

`open_channel` called again in one test closes what it opened before and opens the same
folder again: that is how a test reopens. Everything is closed when the test ends.

The layout "http" is a channel of layout "dual" behind a real server in this process, used
through `tideline.connect`: what holds for the library holds for the client. "async" is one used
through `tideline.aopen`, "async-http" one behind a server used through `tideline.aconnect`.

Files are not synced to the disk, but under the profile `long`.

Profiles of Hypothesis: `default` repeats the same bounded examples on every run; `long`
(`HYPOTHESIS_PROFILE=long`, `make test-long`) draws new ones, many more of them.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import os
import shutil
import signal
import sys
import time
from asyncio.selector_events import BaseSelectorEventLoop
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from driving import GUARD_S, AsyncServed
from hypothesis import HealthCheck, Phase, settings
from hypothesis.database import DirectoryBasedExampleDatabase
from quick_java import java_home
from spark_cluster import spark_cluster as spark_cluster  # a fixture
from spark_session import spark as spark  # a fixture

import tideline
from tideline.addresses import ranges
from tideline.testing import ManualClock

# A shell that runs `make test &` has it ignore Ctrl-C, and all that it starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

if (_home := java_home()) is not None:  # `make test` makes it
    os.environ["JAVA_HOME"] = str(_home)

_QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]

settings.register_profile(
    "default",
    derandomize=True,
    deadline=None,
    max_examples=30,
    stateful_step_count=30,
    suppress_health_check=_QUIET,
)
settings.register_profile(  # for the person who mends something: the first failure, unshrunk
    "quick",
    parent=settings.get_profile("default"),
    phases=[Phase.generate],
    report_multiple_bugs=False,
)
settings.register_profile(  # the tests have run before: now the same ground with checks on
    "bounds",
    parent=settings.get_profile("default"),
    max_examples=10,
)
settings.register_profile(
    "long",  # the default profile is the parent of what names none, so this is said as well
    derandomize=False,
    database=DirectoryBasedExampleDatabase(
        Path(__file__).resolve().parents[1] / ".hypothesis" / "examples"
    ),
    deadline=None,
    max_examples=500,
    stateful_step_count=80,
    print_blob=True,
    suppress_health_check=_QUIET,
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

if os.environ.get("HYPOTHESIS_PROFILE") != "long":
    # No test cuts the power, and what a killed process wrote is kept by the system: so nobody waits
    # for the disk, some ten thousands of times. Tests of what a failing fsync does set their own.
    def _fsync(file: Any) -> None:
        os.fstat(file if isinstance(file, int) else file.fileno())  # `OSError` for what is closed

    os.fsync = _fsync

# Files with tests of one session of Spark. A group runs in one process and shares one: to start
# another takes longer than most tests, and a session that has run for a while is quicker.
SESSIONS = (
    ("test_pipeline_promises.py", "test_session.py", "test_pipeline_run.py",
     "test_source_probes.py", "test_source_http.py", "test_source.py", "test_pipeline_stages.py",
     "test_pipeline_changes.py", "test_pipeline_config.py", "test_place.py", "test_traffic.py"),
    ("[docs/guide/spark-", "test_watch_spark.py", "test_match_spark.py", "test_documents_source.py",
     "test_aggregate.py", "test_window_source.py", "test_windows.py", "test_stream.py",
     "test_shapes.py", "test_workload.py", "test_heatmap.py", "test_column.py", "test_options.py"),
)  # fmt: skip

# Other files that take long. They come first, so that no worker is left with one at the end
# (`--no-loadscope-reorder`: xdist by itself would begin with the files of the most tests).
HEAVY = (
    "test_demo.py", "test_cluster.py", "test_match_model.py", "test_connect.py", "test_docs.py",
    "test_engine_faults.py", "test_state_machine.py", "test_restore.py", "test_compiler.py",
    "test_warm.py", "test_patience.py", "test_told.py", "test_collection_interrupts.py",
    "test_websocket.py", "test_damage.py", "test_live_benchmark.py", "test_readers.py",
    "test_keeper.py", "test_batch.py", "test_javascript_collections.py", "test_interrupts.py",
    "test_standing.py", "test_channel_machine.py", "test_guide.py", "test_fork.py",
)  # fmt: skip


def _session(nodeid: str) -> int | None:
    """Which group a test belongs to."""
    file = nodeid.partition("::")[0].rpartition("/")[2]
    for number, names in enumerate(SESSIONS):
        if file in names or any(name in nodeid for name in names if name[0] == "["):
            return number
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    order = {name: number for number, name in enumerate(HEAVY)}

    def place(item: pytest.Item) -> tuple[int, int]:
        session = _session(item.nodeid)
        if session is not None:
            return -1, session
        return order.get(item.path.name, len(HEAVY)), 0

    items.sort(key=place)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With `--dist loadfile`: a file to a process, and a group of files above to one."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler.loadfile import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            session = _session(nodeid)
            if session is not None:
                return f"session {session}"
            return str(super()._split_scope(nodeid))

    return Scheduling(config, log)


# What is collected, half a million objects, stays to the end: the garbage collector need not look
# at it each time, which took 0.3 s. Nor need it look after each 700 new objects.
gc.set_threshold(10_000, 10, 10)


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()


_begun_s = time.monotonic()
_last: dict[str, tuple[float, str]] = {}  # by process: when its last test ended, and which it was


def pytest_runtest_logreport(report: Any) -> None:
    node = getattr(report, "node", None)  # of xdist, in the process that collects reports
    if node is not None:
        _last[node.gateway.id] = time.monotonic() - _begun_s, report.nodeid


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Which process was the last, and with what: that belongs to `HEAVY`."""
    if len(_last) > 1:
        ends = (f"{took:.0f} s ({nodeid.partition('::')[0]})" for took, nodeid in _last.values())
        terminalreporter.write_line(f"processes ended after {', '.join(sorted(ends))}")


_close = BaseSelectorEventLoop.close


def _close_loop(loop: Any) -> None:
    """Close an event loop; one that has sockets left fails the test that made it.

    The garbage collector would complain about them later, in a test that knows nothing of it.
    """
    left = [one for one in loop._transports.values() if one._sock is not None]
    _close(loop)
    assert left == [], f"the loop ends with sockets: {left}"


BaseSelectorEventLoop.close = _close_loop  # type: ignore[method-assign]


if ranges is not None:  # in the checked job: somebody may have caught what a kernel reported

    @pytest.fixture(autouse=True)
    def no_bad_access() -> Iterator[None]:
        yield
        assert ranges is not None
        reported = [*ranges.bad]
        ranges.bad.clear()
        assert reported == []


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_000)


@pytest.fixture
def open_database(tmp_path: Path, clock: ManualClock) -> Iterator[Callable[..., Any]]:
    """`open_database(**options)`: the test's one folder, closing it first if it is open."""
    opened: list[Any] = []

    def factory(folder: str | Path = tmp_path / "data", *, over: str = "", **options: Any) -> Any:
        while opened:
            opened.pop().close()
        options.setdefault("clock", clock)
        if over.startswith("async"):
            opened.append(AsyncServed(folder, over == "async-http", options))
            return opened[-1]
        database = tideline.open(folder, **options)
        opened.append(Served(database) if over == "http" else database)
        return opened[-1]

    yield factory
    while opened:
        opened.pop().close()


@pytest.fixture
def copies(golden: Path, tmp_path: Path) -> Callable[[], Path]:
    """`copies()` makes a fresh copy of the module's `golden` folder, in place of the last one."""
    scratch = tmp_path / "copy"

    def fresh() -> Path:
        shutil.rmtree(scratch, ignore_errors=True)
        shutil.copytree(golden, scratch)
        return scratch

    return fresh


@pytest.fixture
def watchdog() -> Iterator[None]:
    """A lock that stays locked shows where everybody waits."""
    faulthandler.dump_traceback_later(300.0, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture
def silent_cuts(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is thrown into a generator that is being closed is swallowed there, and told."""
    monkeypatch.setattr(sys, "unraisablehook", lambda told: None)


@pytest.fixture(scope="module")
def mingo() -> Iterator[Any]:
    """Another implementation of MongoDB's language, in a process of node's."""
    from tests.where.peers import Mingo

    found = Mingo()
    yield found
    found.close()


@pytest.fixture(
    params=["", "http", "async", "async-http"], ids=["embedded", "http", "async", "async-http"]
)
def over(request: pytest.FixtureRequest) -> str:
    """How a collection of a contract test is reached: `open_database(over=over)`."""
    way: str = request.param
    return way


@pytest.fixture
def open_channel(open_database: Callable[..., Any]) -> Callable[..., Any]:
    """`open_channel(layout, space, **options)`: a channel in the test's folder."""

    def factory(
        layout: str = "dual",
        space: Any = None,
        *,
        name: str = "roads",
        poll_s: float = 1.0,
        max_ahead_s: float | None = None,
        **options: Any,
    ) -> Any:
        database = open_database(over=layout, **options)
        layout = "dual" if layout in ("http", "async", "async-http") else layout
        return database.channel(
            name,
            space=tideline.Flat() if space is None else space,
            layout=layout,
            poll_s=poll_s,
            max_ahead_s=max_ahead_s,
        )

    return factory


class Served:
    """A database behind a server of its own, used through a client."""

    def __init__(self, database: Any) -> None:
        from tideline.server import running

        self._stack = contextlib.ExitStack()
        self._database = self._stack.enter_context(database)
        url = self._stack.enter_context(running(database))
        self._remote = self._stack.enter_context(tideline.connect(url, timeout_s=GUARD_S))

    def channel(self, name: str, **options: Any) -> Any:
        channel = self._remote.channel(name, **options)
        stored = self._database.channel(name)
        # What an operator does at the folder, not a client.
        channel.seal, channel.maintain = stored.seal, stored.maintain
        return channel

    def close(self) -> None:
        self._stack.close()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._remote, name)
