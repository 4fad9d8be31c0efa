"""The client's own promises: addresses, tokens, closing, names; answers are the contract tests'.

tests/test_channel_contract.py, test_channel_api.py, test_iteration.py, test_ids.py and
test_bad_input.py run on a client too: there `layout` is "http".
"""

from __future__ import annotations

import gc
import inspect
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from ports import free_port

import tideline
from tideline.channel.channel import Channel
from tideline.client.channel import RemoteChannel
from tideline.client.collection import RemoteCollection
from tideline.client.remote import Remote
from tideline.database import Database
from tideline.documents import Collection
from tideline.errors import Closed, Conflict, InvalidRequest, NotFound, Unavailable
from tideline.server import running
from tideline.testing import ManualClock

GUARD_S = 30.0
SOURCE = Path(__file__).resolve().parents[2] / "src"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Any, str]]:
    with tideline.open(tmp_path / "data") as db, running(db) as url:
        yield db, url


def parameters(method: Any) -> list[tuple[str, Any, Any]]:
    found = inspect.signature(method).parameters.values()
    return [(one.name, one.kind, one.default) for one in found]


# Names ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("embedded", "remote", "only_embedded"),
    [
        (Channel, RemoteChannel, {"seal", "maintain"}),  # an operator's, at the folder
        (Collection, RemoteCollection, set()),
        (Database, Remote, {"check", "backup"}),
    ],
)
def test_a_client_has_the_names_of_the_library(
    embedded: type, remote: type, only_embedded: set[str]
) -> None:
    names = {name for name, _ in inspect.getmembers(embedded, inspect.isfunction)}
    for name in sorted(name for name in names if name[0] != "_"):
        if name not in only_embedded:
            assert parameters(getattr(remote, name)) == parameters(getattr(embedded, name)), name


def test_a_server_is_not_checked_from_afar(served: tuple[Any, str]) -> None:
    with tideline.connect(served[1]) as remote:
        # What `Database.check` does is an operator's, at the folder; nothing else has that name.
        assert not hasattr(remote, "check")


def test_a_handle_is_a_subscription(served: tuple[Any, str]) -> None:
    with tideline.connect(served[1]) as remote:
        sub = remote.channel("roads").subscribe("a", user="u", until_s=60, id="s")
        assert isinstance(sub, tideline.Subscription)
        assert repr(sub) == "Subscription(id='s', user='u', place='a')"


def test_connecting_loads_no_kernels() -> None:
    code = "import sys, json, tideline.client.remote; print(json.dumps(sorted(sys.modules)))"
    env = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env
    )
    loaded = set(json.loads(done.stdout))
    assert not loaded & {"numba", "pyarrow", "starlette", "uvicorn", "numpy"}


def test_a_missing_extra_says_what_to_install() -> None:
    code = (
        "import sys, tideline\n"
        "sys.modules['websockets'] = None\n"
        "try:\n    tideline.connect('http://127.0.0.1:1')\n"
        "except tideline.Unavailable as error:\n    print(error)"
    )
    env = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env
    )
    assert "pip install 'tideline[client]'" in done.stdout


# Addresses and tokens -------------------------------------------------------------------


@pytest.mark.parametrize(
    "url", ["", "127.0.0.1:80", "ftp://127.0.0.1", "http://", "http://u:p@127.0.0.1/", 17, None]
)
def test_what_is_no_address_is_refused(url: Any) -> None:
    with pytest.raises(InvalidRequest, match="address"):
        tideline.connect(url)


def test_an_address_where_nobody_listens_is_unavailable_at_once() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    begin = time.monotonic()
    with pytest.raises(Unavailable, match="cannot be reached"):
        tideline.connect(url, timeout_s=300)
    assert time.monotonic() - begin < 200  # it did not wait for that


def test_another_kind_of_server_is_not_taken_for_one() -> None:
    class Other(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "5")
            self.end_headers()
            self.wfile.write(b"hello")

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Other)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        with pytest.raises(Unavailable, match="not a Tideline server"):
            tideline.connect(f"http://127.0.0.1:{server.server_port}")
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_server_that_never_answers_is_unavailable_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(Unavailable, match="cannot be reached"):
            tideline.connect(url, timeout_s=0.3)


@pytest.mark.parametrize("options", [{"token": ""}, {"token": 5}, {"timeout_s": 0}, {"ca": "/no"}])
def test_bad_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        tideline.connect("http://127.0.0.1:1", **options)


# Closing --------------------------------------------------------------------------------


def test_a_closed_client_says_so(served: tuple[Any, str]) -> None:
    db, url = served
    with tideline.connect(url) as remote:
        channel = remote.channel("roads")
        sub = channel.subscribe("a", user="u", id="s")
    calls: list[Callable[[], Any]] = [
        lambda: channel.publish("a", {}),
        lambda: channel.subscribe("a", user="u"),
        lambda: channel.resume("s"),
        lambda: channel.find("a"),
        lambda: channel.cancel("s"),
        lambda: channel.prolong("s", until_s=5),
        lambda: channel.stats(),
        lambda: channel.position(),
        lambda: sub.take(),
        lambda: remote.channel("roads"),
        lambda: remote.channels(),
        lambda: remote.stats(),
    ]
    for call in calls:
        with pytest.raises(Closed):
            call()
    assert list(sub) == []
    assert sub.expired
    remote.close()  # again: harmless
    # What is stored stays stored: only this client let go of it.
    assert [s.id for s in db.channel("roads").subscriptions()] == ["s"]


def test_closing_ends_whoever_waits(served: tuple[Any, str]) -> None:
    remote = tideline.connect(served[1])
    sub = remote.channel("roads").subscribe("a", user="u")
    got: list[Any] = []
    reader = threading.Thread(target=lambda: got.extend(sub))
    reader.start()
    remote.close()
    reader.join(GUARD_S)
    assert not reader.is_alive()
    assert got == []


# Channels -------------------------------------------------------------------------------


def test_a_channel_is_made_once_and_kept(served: tuple[Any, str]) -> None:
    db, url = served
    quad = tideline.QuadTree(bounds=(0.0, 0.0, 8.0, 8.0), depth=3)
    with tideline.connect(url) as remote:
        made = remote.channel("roads", space=quad, layout="two", journal_s=60)
        assert (made.name, made.space, made.layout) == ("roads", quad, "two")
        assert db.channel("roads").space == quad
        again = remote.channel("roads")
        assert (again.space, again.layout) == (quad, "two")
        with pytest.raises(Conflict, match="space"):
            remote.channel("roads", space=tideline.Flat())
        with pytest.raises(Conflict, match="layout"):
            remote.channel("roads", layout="dual")
        assert remote.channels() == ["roads"]
        made.publish((1.0, 1.0), {}, id="e")
        assert remote.stats() == {"roads": made.stats()} == db.stats()
        assert made.position() == db.channel("roads").position()
        assert made.earliest() == db.channel("roads").earliest()
        remote.drop_channel("roads")
        assert remote.channels() == []
        with pytest.raises(NotFound, match="roads"):
            remote.drop_channel("roads")
        with pytest.raises(NotFound, match="roads"):
            made.find("1")


def test_names_may_hold_any_character(served: tuple[Any, str]) -> None:
    with tideline.connect(served[1]) as remote:
        channel = remote.channel("Straßen & wege? #1 100%")
        assert remote.channels() == ["Straßen & wege? #1 100%"]
        sub = channel.subscribe("a b/ü?&", user="ö/&?", id="s/1?&#")
        channel.publish("a b/ü?&", {}, id="e/1")
        assert [event.id for event in sub.take()] == ["e/1"]
        assert [one.id for one in channel.subscriptions(user="ö/&?")] == ["s/1?&#"]
        assert [event.id for event in channel.find("a b/ü?&")] == ["e/1"]
        channel.prolong("s/1?&#", until_s=60)
        channel.cancel("s/1?&#")
        assert sub.expired


# Handles --------------------------------------------------------------------------------


def test_a_handle_that_is_let_go_is_released(served: tuple[Any, str]) -> None:
    db, url = served
    stored = db.channel("roads")
    with tideline.connect(url) as remote:
        channel = remote.channel("roads")
        kept = channel.subscribe("a", user="u", id="kept")
        gone = channel.subscribe("a", user="u", id="gone")
        del gone
        gc.collect()
        channel.publish("a", {}, id="e1")
        assert [event.id for event in kept.take()] == ["e1"]
        kept.take()  # the release went out with the last one; by now the server has it
        assert len(remote._live._feeds) == 1
        again = channel.resume("gone")
        assert [event.id for event in again.past] == ["e1"]
    assert sorted(s.id for s in stored.subscriptions()) == ["gone", "kept"]


def test_two_clients_share_a_subscription_by_turns(served: tuple[Any, str]) -> None:
    with tideline.connect(served[1]) as one, tideline.connect(served[1]) as two:
        first = one.channel("roads").subscribe("a", user="u", id="s")
        one.channel("roads").publish("a", {}, id="e1")
        [e1] = first.take()
        second = two.channel("roads").resume("s", after=e1.token)
        assert list(first) == []  # it was taken over
        two.channel("roads").publish("a", {}, id="e2")
        assert [event.id for event in second.take()] == ["e2"]


def test_prolonging_moves_the_end_and_the_handle_goes_on(tmp_path: Path) -> None:
    clock = ManualClock(1_000)
    with (
        tideline.open(tmp_path, clock=clock) as db,
        running(db) as url,
        tideline.connect(url) as remote,
    ):
        channel = remote.channel("roads")
        sub = channel.subscribe("a", user="u", id="s", until_s=10)
        channel.publish("a", {}, id="e1")
        channel.prolong("s", until_s=100)
        clock.advance(50)
        assert not sub.expired
        channel.publish("a", {}, id="e2")
        assert [event.id for event in sub.take()] == ["e1", "e2"]
        clock.advance(50)
        assert sub.expired
        assert list(sub) == []


def test_follow_hands_over_past_then_live(served: tuple[Any, str]) -> None:
    with tideline.connect(served[1]) as remote:
        channel = remote.channel("roads")
        channel.publish("a", {}, id="e1")
        sub = channel.subscribe("a", user="u", since_s=-60)
        channel.publish("a", {}, id="e2")
        sub._live.sync()
        got: list[tuple[str, str]] = []
        ends: list[str] = []
        sub.follow(lambda events, kind: got.extend((e.id, kind) for e in events), ends.append)
        channel.publish("a", {}, id="e3")
        sub.cancel()
        assert got == [("e1", "past"), ("e2", "live"), ("e3", "live")]
        assert ends == ["cancelled"]


def test_many_threads_share_one_client(served: tuple[Any, str]) -> None:
    with tideline.connect(served[1]) as remote:
        channel = remote.channel("roads")
        sub = channel.subscribe("a", user="u")
        failures: list[BaseException] = []

        def work(name: str) -> None:
            try:
                own = channel.subscribe(name, user=name)
                for n in range(20):
                    channel.publish("a", {"n": n}, id=f"{name}{n}")
                    channel.publish(name, {"n": n})
                assert [event.body["n"] for event in own.take()] == list(range(20))
                own.cancel()
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(name,)) for name in "wxyz"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(GUARD_S)
        assert failures == []
        got = [event.id for event in sub.take()]
        assert len(got) == 80
        for name in "wxyz":
            assert [id for id in got if id[0] == name] == [f"{name}{n}" for n in range(20)]
