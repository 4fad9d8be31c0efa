"""The changes of a collection over the wire are those that the folder itself has.

The state machine writes, follows, reads, cuts connections, restarts the server and the database; a
plain list says what every follower must get: nothing twice, nothing missed, whatever happens.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from profiles import few

import tideline
from tideline.errors import Closed, Conflict, InvalidRequest, NotFound, Unauthorized, Unavailable
from tideline.server import running
from tideline.server.tokens import Tokens

sys.path.insert(0, str(Path(__file__).parent))

from proxy import Proxy

Written = tuple[int, Any, Any, Any]  # seq, key, before, after


def told(change: Any, before: bool) -> Written:
    return change.seq, change.key, change.before if before else None, change.after


class Served:
    """A folder, its server, and a proxy before it that stays when these go and come back."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stack = contextlib.ExitStack()
        self.proxy = Proxy(0)
        self.start()
        self.cars = self.database.collection("cars", key="id", journal_s=1e6, journal_before=True)

    def start(self) -> None:
        self.database = self._stack.enter_context(tideline.open(self._folder, memory_mb=64))
        self.serve()

    def serve(self) -> None:
        self._server = contextlib.ExitStack()
        url = self._stack.enter_context(self._server).enter_context(
            running(self.database, stop_s=0.2, beat_s=0.1)
        )
        port = urlsplit(url).port
        assert port is not None
        self.proxy.target = port

    def restart_server(self) -> None:
        self._server.close()
        self.serve()

    def restart(self) -> None:
        self._stack.close()
        self.start()
        self.cars = self.database.collection("cars")

    def close(self) -> None:
        self.proxy.close()
        self._stack.close()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    made = Served(tmp_path / "data")
    try:
        yield made
    finally:
        made.close()


class Feeds(RuleBasedStateMachine):
    folders: Iterator[Path]

    def __init__(self) -> None:
        super().__init__()
        self.served = Served(next(self.folders))
        self.remote = tideline.connect(self.served.proxy.url, timeout_s=60)
        self.cars = self.remote.collection("cars")
        self.log: list[Written] = []
        self.now: dict[Any, Any] = {}
        self.followers: list[tuple[Any, bool]] = []

    def teardown(self) -> None:
        for changes, _ in self.followers:
            changes.close()
        self.remote.close()
        self.served.close()

    def wrote(self, key: Any, after: Any) -> None:
        before = self.now.pop(key, None)
        if after is not None:
            self.now[key] = after
        self.log.append((len(self.log) + 1, key, before, after))

    @rule(keys=st.lists(st.one_of(st.integers(0, 3), st.sampled_from("ab")), max_size=6))
    def put(self, keys: list[Any]) -> None:
        documents = [{"id": key, "n": len(self.log) + n} for n, key in enumerate(keys)]
        self.served.cars.put_many(documents)
        for document in documents:
            self.wrote(document["id"], document)

    @rule(key=st.integers(0, 3))
    def delete(self, key: int) -> None:
        self.served.cars.delete(key)
        self.wrote(key, None)

    @rule(data=st.data(), before=st.booleans())
    def follow(self, data: Any, before: bool) -> None:
        after = data.draw(st.none() | st.integers(0, len(self.log)))
        changes = self.cars.changes(after, before=before)
        assert changes.seq == (len(self.log) if after is None else after)
        self.followers.append((changes, before))

    @rule(data=st.data(), limit=st.none() | st.integers(1, 5))
    def take(self, data: Any, limit: int | None) -> None:
        if self.followers:
            changes, before = data.draw(st.sampled_from(self.followers))
            expected = self.expected(changes, before)[:limit]
            assert [told(change, before) for change in changes.take(limit)] == expected

    @rule(data=st.data())
    def iterate(self, data: Any) -> None:
        behind = [each for each in self.followers if each[0].seq < len(self.log)]
        if behind:
            changes, before = data.draw(st.sampled_from(behind))
            expected = self.expected(changes, before)
            found = itertools.islice(changes, len(expected))
            assert [told(change, before) for change in found] == expected

    @rule()
    def cut(self) -> None:
        self.served.proxy.cut()

    @rule(count=st.integers(1, 3_000))
    def cut_the_next_after(self, count: int) -> None:
        """So many bytes, then it is reset in the middle of whatever it says; later ones are not."""
        allowances = iter([count])
        self.served.proxy.allow = lambda: next(allowances, None)
        self.served.proxy.only_back = True
        self.served.proxy.cut()

    @rule()
    def restart_the_server(self) -> None:
        self.served.restart_server()

    @rule()
    def restart_the_database(self) -> None:
        self.served.restart()

    @invariant()
    def the_folder_has_the_same(self) -> None:
        with self.served.cars.changes(after=0, before=True) as changes:
            assert [told(change, True) for change in changes.take()] == self.log

    def expected(self, changes: Any, before: bool) -> list[Written]:
        return [
            (seq, key, old if before else None, new)
            for seq, key, old, new in self.log[changes.seq :]
        ]


def test_feeds_over_the_wire_are_the_feed_of_the_folder(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    Feeds.folders = (tmp_path_factory.mktemp("feeds") / "data" for _ in itertools.count())
    from hypothesis.stateful import run_state_machine_as_test

    run_state_machine_as_test(
        Feeds, settings=settings(max_examples=few(12), stateful_step_count=25, deadline=None)
    )


def test_readers_go_on_while_writers_write_and_everything_breaks(served: Served) -> None:
    """Threads iterate, others write, connections and the server end: each change comes once."""
    total = 1_500
    got: list[list[int]] = [[], [], []]
    with tideline.connect(served.proxy.url, timeout_s=60) as remote:
        cars = remote.collection("cars")
        feeds = [cars.changes(0, before=bool(n)) for n in range(3)]

        def read(n: int) -> None:
            for change in itertools.islice(feeds[n], total):
                got[n].append(change.seq)

        readers = [threading.Thread(target=read, args=(n,)) for n in range(3)]
        for reader in readers:
            reader.start()
        for turn in range(15):
            for n in range(50):
                served.cars.put({"id": n, "turn": turn})
            served.proxy.cut() if turn % 5 else served.restart_server()
            served.cars.put_many([{"id": n, "turn": turn} for n in range(50)])
        for reader in readers:
            reader.join(60)
        assert got == [list(range(1, total + 1))] * 3
        for feed in feeds:
            feed.close()


def test_a_wait_ends_when_the_handle_or_the_client_is_closed(served: Served) -> None:
    remote = tideline.connect(served.proxy.url)
    one, other = (remote.collection("cars").changes() for _ in range(2))
    results: list[Any] = []

    def wait(changes: Any) -> None:
        try:
            results.append(list(changes))
        except Closed as error:
            results.append(str(error))

    for changes, end in ((one, one.close), (other, remote.close)):
        waiting = threading.Thread(target=wait, args=(changes,))
        waiting.start()
        end()
        waiting.join(30)
        assert not waiting.is_alive()
    assert results[0] == []
    assert "the connection to the server was closed" in results[1]
    with pytest.raises(Closed, match="the feed was closed"):
        one.take()


def test_taking_waits_for_the_first(served: Served) -> None:
    with (
        tideline.connect(served.proxy.url) as remote,
        remote.collection("cars").changes() as changes,
    ):
        assert changes.take(timeout_s=0.01) == []
        threading.Timer(0.05, lambda: served.cars.put({"id": 1})).start()
        assert [change.key for change in changes.take(timeout_s=60)] == [1]
        assert repr(changes) == "RemoteChanges('cars', seq=1, before=False)"
        for wrong in ({"limit": -1}, {"limit": True}, {"timeout_s": -1}):
            with pytest.raises(InvalidRequest):
                changes.take(**wrong)


def test_what_is_refused(served: Served) -> None:
    with tideline.connect(served.proxy.url) as remote:
        cars = remote.collection("cars")
        for wrong in ({"after": 7}, {"after": -1}, {"after": True}, {"before": 1}):
            with pytest.raises(InvalidRequest):
                cars.changes(**wrong)
        trucks = remote.collection("trucks", key="id")
        for n in range(3):
            trucks.put({"id": n})
            served.database.collection("trucks")._engine.seal()
        with pytest.raises(Unavailable, match="not kept any more") as gone:
            trucks.changes(0)
        assert gone.value.values["earliest"] == trucks.earliest() == 3
        changes, waiting = trucks.changes(3), trucks.changes(3)
        served.database.drop_collection("trucks")
        for _ in range(2):
            with pytest.raises(Closed, match="the collection was dropped"):
                next(changes)
        with pytest.raises(NotFound):
            trucks.changes()
        # Made again while a follower was away: it is another collection.
        served.proxy.cut()
        remote.collection("trucks", key="id").put_many([{"id": n} for n in range(9)])
        with pytest.raises(Closed, match="the collection was dropped"):
            waiting.take()
        with pytest.raises(Conflict, match="made again"):
            trucks.changes(3)


def test_rows_of_a_token_and_its_end(served: Served, tmp_path: Path) -> None:
    tokens = Tokens(tmp_path / "data")
    tokens.create(["admin"])  # without any, everybody would be let in
    text, token = tokens.create(["read:cars"], user="ann", rows={"cars": {"owner": "$user"}})
    served.restart_server()
    with tideline.connect(served.proxy.url, token=text) as remote:
        cars = remote.collection("cars")
        with cars.changes() as plain, cars.changes(before=True) as full:
            for owner in ("bob", "ann", "ann", "bob", "bob"):
                served.cars.put({"id": 1, "owner": owner})
            served.cars.put({"id": 2, "owner": "bob"})
            assert [(c.seq, c.after) for c in plain.take()] == [
                (2, {"id": 1, "owner": "ann"}), (3, {"id": 1, "owner": "ann"}), (4, None),
            ]  # fmt: skip
            assert [(c.seq, c.before) for c in full.take()] == [
                (2, None), (3, {"id": 1, "owner": "ann"}), (4, {"id": 1, "owner": "ann"}),
            ]  # fmt: skip
            served.proxy.cut()
            served.cars.put({"id": 3, "owner": "ann"})
            assert [c.seq for c in plain.take()] == [7]
            # Where it stands moves on with what it may not see: the log need not be kept for it.
            for n in range(5):
                served.cars.put({"id": 10 + n, "owner": "bob"})
            while plain._last < served.cars.position():
                assert plain.take(timeout_s=0.05) == []
            assert plain.seq == 7
            tokens.revoke(token.id)
            served.restart_server()
            with pytest.raises(Unauthorized):
                next(plain)
