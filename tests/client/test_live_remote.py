"""A live query over the wire tells what `find` gives, at every version it tells of.

The machine of tests/live, whose handles are those of a client: it writes, reads, resumes and
cancels; connections are cut, the server and the database are restarted, and handles go on by
themselves without a gap.
"""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from driving import Driven, loop_of_tests
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule, run_state_machine_as_test
from profiles import few

import tideline
from tideline.aclient.embedded import AsyncDatabase
from tideline.server import running

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "live"))

from live_model import same
from proxy import Proxy
from test_live_machine import LiveMachine


class Both:
    """A collection of a folder, and how its live queries are reached."""

    def __init__(self, stored: Any, watched: Any) -> None:
        self._stored = stored
        self.watch = watched.watch
        self.watch_groups = watched.watch_groups
        self.watch_again = watched.watch_again

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stored, name)


class WatchedMachine(LiveMachine):
    """Handles that are not those of the folder itself."""

    @precondition(lambda self: self.readers)
    @rule(data=st.data(), limit=st.sampled_from([None, 1, 2]))
    def take(self, data: Any, limit: int | None) -> None:
        reader = data.draw(st.sampled_from(self.readers))
        newest = self.history.read(self.orders)
        if limit is None:
            reader.take_all(newest)
            return
        reader.take(limit)
        if reader.first:
            # After resuming, what was written since stands last until it has been handed out.
            positions = reader.asked.has_positions
            assert same(reader.live.result, reader.rows, ordered=positions)


class AsyncLiveMachine(WatchedMachine):
    """The handles of a folder that is used from asyncio."""

    def open(self) -> None:
        super().open()
        there = loop_of_tests().run(AsyncDatabase(self.db).collection("orders"))
        self.orders = Both(self.orders, Driven(there, loop_of_tests()))  # type: ignore[assignment]


class RemoteLiveMachine(WatchedMachine):
    """The handles of a client."""

    proxy: Proxy | None = None

    def open(self) -> None:
        super().open()
        if self.proxy is None:
            self.proxy = Proxy(0)
            self.serve()
            self.remote = self.connect(self.proxy.url)
        else:
            self.serve()
        self.orders = Both(self.orders, self.remote.collection("orders"))  # type: ignore[assignment]

    def connect(self, url: str) -> Any:
        return tideline.connect(url, timeout_s=60)

    def serve(self) -> None:
        assert self.proxy is not None
        self.server = contextlib.ExitStack()
        url = self.server.enter_context(running(self.db, stop_s=0.2, beat_s=0.05))
        port = urlsplit(url).port
        assert port is not None
        self.proxy.target = port

    def teardown(self) -> None:
        if self.proxy is not None:
            self.remote.close()
            self.server.close()
            self.proxy.close()
        super().teardown()

    @precondition(lambda self: self.readers)
    @rule(data=st.data())
    def watch_the_same(self, data: Any) -> None:
        # The server notices late that a connection was cut: entries are not counted.
        reader = data.draw(st.sampled_from(self.readers))
        self.watch(reader.asked, None, 10_000, True)

    @rule()
    def cut(self) -> None:
        assert self.proxy is not None
        self.proxy.cut()

    @rule(count=st.integers(1, 3_000))
    def cut_the_next_after(self, count: int) -> None:
        """So many bytes, then it is reset in the middle of whatever it says; later ones are not."""
        assert self.proxy is not None
        allowances = iter([count])
        self.proxy.allow = lambda: next(allowances, None)
        self.proxy.only_back = True
        self.proxy.cut()

    @rule()
    def restart_the_server(self) -> None:
        self.server.close()
        self.serve()

    @rule()
    def restart(self) -> None:
        self.server.close()
        self.db.close()
        self.pushed = []
        self.open()


class AsyncRemoteLiveMachine(RemoteLiveMachine):
    """The handles of an async client."""

    def connect(self, url: str) -> Any:
        return Driven(loop_of_tests().run(tideline.aconnect(url, timeout_s=60)), loop_of_tests())


def run(machine: Any, examples: int) -> None:
    run_state_machine_as_test(machine, settings=settings(max_examples=few(examples)))


def test_an_async_live_query_tells_what_find_gives() -> None:
    run(AsyncLiveMachine, 8)


def test_a_remote_live_query_tells_what_find_gives() -> None:
    run(RemoteLiveMachine, 15)


def test_an_async_remote_live_query_tells_what_find_gives() -> None:
    run(AsyncRemoteLiveMachine, 8)
