"""Every way in satisfies the protocols: read by mypy, and compared parameter by parameter."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tideline
from tideline import aprotocols, protocols
from tideline.aclient.changes import AsyncRemoteChanges
from tideline.aclient.channel import AsyncRemoteChannel
from tideline.aclient.collection import AsyncRemoteCollection
from tideline.aclient.documents import AsyncChanges, AsyncCollection
from tideline.aclient.embedded import AsyncChannel, AsyncDatabase, AsyncSubscription
from tideline.aclient.embedded_live import AsyncEmbeddedLive
from tideline.aclient.remote import AsyncRemote
from tideline.aclient.subscription import AsyncRemoteSubscription
from tideline.aclient.watching import AsyncRemoteLive
from tideline.aclient.window import AsyncPanes, AsyncRemotePanes, AsyncRemoteWindow, AsyncWindow
from tideline.client.changes import RemoteChanges
from tideline.client.channel import RemoteChannel
from tideline.client.collection import RemoteCollection
from tideline.client.panes import RemotePanes
from tideline.client.remote import Remote
from tideline.client.subscription import RemoteSubscription
from tideline.client.watching import RemoteLive
from tideline.client.window import RemoteWindow
from tideline.errors import InvalidRequest
from tideline.live.live import Live
from tideline.server import running
from tideline.stream import StreamWindow, Watch

ROOT = Path(__file__).resolve().parents[2]
BLOCKING: dict[type, list[type]] = {
    protocols.Database: [tideline.Database, Remote],
    protocols.Channel: [tideline.Channel, RemoteChannel],
    protocols.Collection: [tideline.Collection, RemoteCollection],
    protocols.Subscription: [tideline.Subscription, RemoteSubscription],
    protocols.Changes: [tideline.Changes, RemoteChanges],
    protocols.Live: [Live, RemoteLive],
    protocols.Window: [StreamWindow, RemoteWindow],
    protocols.Panes: [Watch, RemotePanes],
}
WAITING: dict[type, list[type]] = {
    aprotocols.AsyncDatabase: [AsyncDatabase, AsyncRemote],
    aprotocols.AsyncChannel: [AsyncChannel, AsyncRemoteChannel],
    aprotocols.AsyncCollection: [AsyncCollection, AsyncRemoteCollection],
    aprotocols.AsyncSubscription: [AsyncSubscription, AsyncRemoteSubscription],
    aprotocols.AsyncChanges: [AsyncChanges, AsyncRemoteChanges],
    aprotocols.AsyncLive: [AsyncEmbeddedLive, AsyncRemoteLive],
    aprotocols.AsyncWindow: [AsyncWindow, AsyncRemoteWindow],
    aprotocols.AsyncPanes: [AsyncPanes, AsyncRemotePanes],
}
TWINS = list(zip(BLOCKING, WAITING, strict=True))
PAIRS = [
    (protocol, one) for all_ in (BLOCKING, WAITING) for protocol in all_ for one in all_[protocol]
]
# What a client has no use for, or an operator does at the folder.
LOCAL = {
    "Database": {
        "backup", "check", "clock", "path", "open", "cluster", "cluster_add", "cluster_remove",
    },
    "Channel": {"clock", "core", "maintain", "newest", "seal"},
    "Collection": {"cuts", "filter", "policy", "facts"},
    "Subscription": {
        "feed", "first_seq", "follow", "has_decoded_past", "inbox", "look", "seq", "since_us",
        "unfollow",
        "until_us", "fail",
    },
    "Changes": {"shut"},
    "Live": {"begin", "end_if_due", "fail", "fetch", "resume"},
    "Window": {"maintain", "seal"},
    "Panes": {"end", "rung", "shut", "slid"},
}  # fmt: skip


def verbs(kind: type) -> dict[str, Any]:
    return {
        name: getattr(kind, name)
        for name in dir(kind)
        if not name.startswith("_") and inspect.isroutine(getattr(kind, name))
    }


def parameters(verb: Any) -> list[tuple[Any, ...]]:
    found = list(inspect.signature(verb).parameters.values())[1:]
    return [(one.name, one.kind, one.default) for one in found]


@pytest.mark.parametrize(("protocol", "kind"), PAIRS, ids=lambda one: one.__name__)
def test_every_verb_has_the_parameters_of_the_protocol(protocol: type, kind: type) -> None:
    expected = {name: parameters(verb) for name, verb in verbs(protocol).items()}
    assert expected
    found = verbs(kind)
    assert {name: parameters(found[name]) for name in expected if name in found} == expected


@pytest.mark.parametrize(("protocol", "kind"), PAIRS, ids=lambda one: one.__name__)
def test_no_verb_is_missing_in_the_protocol(protocol: type, kind: type) -> None:
    local = LOCAL[protocol.__name__.removeprefix("Async")]
    more = set(verbs(kind)) - set(verbs(protocol)) - local
    assert {name for name in more if not name.startswith(("ask", "open_", "hub"))} == set()


@pytest.mark.parametrize(("blocking", "waiting"), TWINS, ids=lambda one: one.__name__)
def test_the_twins_have_the_same_verbs(blocking: type, waiting: type) -> None:
    here = {name: parameters(verb) for name, verb in verbs(blocking).items()}
    there = {name: parameters(verb) for name, verb in verbs(waiting).items()}
    asked = {"expired", "indexes", "unique"}  # properties here: they wait there
    assert {name: one for name, one in there.items() if name not in asked} == here
    for name in here:
        assert getattr(waiting, name).__doc__ == getattr(blocking, name).__doc__


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with tideline.open(":memory:") as db, running(db) as found:
        yield found


def test_what_connect_and_open_give_are_instances_and_say_what_they_are(url: str) -> None:
    with tideline.connect(url) as remote, tideline.open(":memory:") as local:
        for db in (local, remote):
            assert isinstance(db, protocols.Database)
            channel, cars = db.channel("roads"), db.collection("cars", key="id")
            sub = channel.subscribe("a", user="ann", until_s=60)
            with cars.changes() as changes:
                assert isinstance(changes, protocols.Changes)
            assert isinstance(channel, protocols.Channel)
            assert isinstance(cars, protocols.Collection)
            assert isinstance(sub, protocols.Subscription)
            assert "'roads'" in repr(channel)
            assert "'cars'" in repr(cars)
            assert "'ann'" in repr(sub)
            assert "Changes(" in repr(changes)
        assert repr(local) == "Database(':memory:')"
        assert url in repr(remote)


@pytest.mark.parametrize("way", ["open", "connect"])
def test_handles_take_the_same_limits_and_say_what_they_are_of(way: str, url: str) -> None:
    async def wait() -> list[int]:
        db = await (tideline.aopen(":memory:") if way == "open" else tideline.aconnect(url))
        async with db, asyncio.timeout(60):
            cars = await db.collection(f"waiting-{way}", key="id")
            live, changes = await cars.watch(), cars.changes()
            async with changes:
                assert f"Live('waiting-{way}', version=" in repr(live)
                for handle in (live, changes):
                    with pytest.raises(InvalidRequest, match="limit must be a whole number above"):
                        await handle.take(0)
                found = []
                for handle in (live, changes):  # what comes is waited for, one at a time
                    taking = asyncio.ensure_future(handle.take(1, timeout_s=60))
                    await asyncio.sleep(0)
                    await cars.put({"id": 7})
                    found += [change.key for change in await taking]
                return found

    with tideline.open(":memory:") if way == "open" else tideline.connect(url) as db:
        cars = db.collection(way, key="id")
        assert way in repr(cars)
        assert f"Live('{way}', version=" in repr(cars.watch())
        for handle in (cars.watch(), cars.changes()):
            with pytest.raises(InvalidRequest, match="limit must be a whole number above"):
                handle.take(0)
        with pytest.raises(InvalidRequest, match="queue must be a whole number, 1 or more"):
            cars.watch(queue=0)
    assert asyncio.run(wait()) == [7, 7]


def test_mypy_takes_all_of_them_for_the_protocols(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    done = subprocess.run(
        [
            sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent",
            f"--config-file={ROOT / 'pyproject.toml'}", str(Path(__file__).with_name("typed.py")),
        ],
        capture_output=True, text=True, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
