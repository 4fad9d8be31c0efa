"""What every test shares: a clock that stands still, channels on real folders, profiles, Spark.

`open_channel` called again in one test closes what it opened before and opens the same
folder again: that is how a test reopens. Everything is closed when the test ends.

The layout "http" is a channel of layout "dual" behind a real server in this process, used
through `tideline.connect`: what holds for the library holds for the client. "async" is one used
through `tideline.aopen`, "async-http" one behind a server used through `tideline.aconnect`.

Profiles of Hypothesis: `default` repeats the same bounded examples on every run; `long`
(`HYPOTHESIS_PROFILE=long`, `make test-long`) draws new ones, many more of them.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from driving import AsyncServed
from hypothesis import HealthCheck, Phase, settings
from spark_cluster import spark_cluster as spark_cluster  # a fixture
from spark_session import spark as spark  # a fixture

import tideline
from tideline.addresses import ranges
from tideline.testing import ManualClock

_QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]

settings.register_profile(
    "default",
    derandomize=True,
    deadline=None,
    max_examples=40,
    stateful_step_count=40,
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
    max_examples=20,
)
settings.register_profile(
    "long",
    deadline=None,
    max_examples=500,
    stateful_step_count=80,
    print_blob=True,
    suppress_health_check=_QUIET,
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


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
        self._remote = self._stack.enter_context(tideline.connect(url))

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
