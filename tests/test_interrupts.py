"""Every call is whole or not at all, whatever is thrown into it, and leaves nothing locked.

An exception is thrown in at every line and after every call in turn, then at random moments by
signals and by other threads. After each interrupted call a plain model must agree: the call has
happened whole or not at all; what was published is delivered exactly to those who asked; nobody
waits for a lock; and the folder opens again with the same content.
"""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from _thread import start_new_thread
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from interrupting import (
    Interrupted,
    Operation,
    Storm,
    Thrower,
    by_signals,
    thrown_from_another_thread,
    try_every_place,
    twice,
)

import tideline
from tideline import shelter
from tideline.testing import ManualClock

PLACES = ("a", "b")
_LONG_S = 300.0
_LATER = datetime(2100, 1, 1, tzinfo=UTC)
_SOONER = datetime(2090, 1, 1, tzinfo=UTC)


pytestmark = pytest.mark.usefixtures("watchdog")


class Model:
    """A channel, and what must be in it."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.folder = folder
        self.layout = settings.pop("layout", "dual")
        self.journal_s = settings.pop("journal_s", None)
        self.settings = settings
        self.clock = ManualClock(1_000_000)
        self.events: dict[str, str] = {}  # id -> place
        self.subs: dict[str, str] = {}
        self.handles: dict[str, Any] = {}
        self.made = 0
        self.open()

    def open(self) -> None:
        self.db = tideline.open(self.folder, clock=self.clock, **self.settings)
        self.channel = self.db.channel("c", layout=self.layout, journal_s=self.journal_s)
        self.handles = {id: self.channel.resume(id) for id in self.subs}

    def new(self, prefix: str) -> str:
        self.made += 1
        return f"{prefix}{self.made}"

    def sub(self, place: str, **more: Any) -> str:
        id = self.new("s")
        self.handles[id] = self.channel.subscribe(place, user="u" + id, id=id, until=_LATER, **more)
        self.subs[id] = place
        return id

    # ---- what was interrupted ----------------------------------------------------------------

    def adopt_event(self, id: str, place: str) -> bool:
        """Whether a publish has happened: then its answers were delivered, else none was."""
        happened = id in {event.id for event in self.channel.find(place)}
        if happened:
            self.events[id] = place
        self.delivered([id] if happened else [], place)
        return happened

    def delivered(self, ids: list[str], place: str) -> None:
        """Every handle at the place has got exactly these, every other nothing."""
        for sub, handle in self.handles.items():
            got = [event.id for event in handle.take()]
            wanted = ids if self.subs[sub] == place else []
            assert got == wanted, (sub, place)

    def agree(self) -> None:
        """The channel has what the model has, and works."""
        for place in PLACES:
            found = {event.id for event in self.channel.find(place)}
            assert found == {id for id, at in self.events.items() if at == place}
        infos = {info.id: info for info in self.channel.subscriptions()}
        assert set(infos) == set(self.subs)
        for id, handle in self.handles.items():
            assert handle.until == infos[id].until, id
            assert not handle.expired
        for place in PLACES:
            id = self.new("probe")
            told = self.channel.publish(place, {"n": 1}, id=id, ttl_s=5)
            self.events[id] = place
            wanted = {sub for sub, at in self.subs.items() if at == place}
            assert {sub.id for sub in told.subscriptions} == wanted
            self.delivered([id], place)

    def agree_again(self) -> None:
        """The same after closing and opening; what each was answered with is known, too."""
        self.agree()
        self.db.check()
        self.db.close()
        self.open()
        for id, handle in self.handles.items():
            past = [event.id for event in handle.past]
            assert len(past) == len(set(past))
            assert set(past) <= {e for e, at in self.events.items() if at == self.subs[id]}
        self.agree()

    def tidy(self) -> None:
        """Few subscriptions and no events: then a call comes to the same places every time."""
        self.clock.advance(10)
        self.events.clear()
        for id in list(self.subs)[6:]:
            self.channel.cancel(id)
            del self.subs[id], self.handles[id]


# ---- one call each: run it, then say what must hold -------------------------------------------


def publish(model: Model) -> Any:
    id = model.new("e")

    def after(hit: bool) -> None:
        assert model.adopt_event(id, "a") or hit

    return lambda: model.channel.publish("a", {"n": 1}, id=id, ttl_s=5, related=True), after


def subscribe(model: Model, **more: Any) -> Any:
    id = model.new("s")
    place = "b"

    def call() -> None:
        model.handles[id] = model.channel.subscribe(
            place, user="u" + id, id=id, since_s=-60, until=_LATER, **more
        )

    def after(hit: bool) -> None:
        happened = id in {info.id for info in model.channel.subscriptions()}
        assert happened or hit
        if happened:
            model.subs[id] = place
            if id not in model.handles:
                model.handles[id] = model.channel.resume(id)
            past = {event.id for event in model.handles[id].past}
            assert past == {e for e, at in model.events.items() if at == place}
        else:
            assert id not in model.handles

    return call, after


def subscribe_where(model: Model) -> Any:
    return subscribe(model, where={"n": {"$gt": 0}}, unseen=True)


def cancel(model: Model) -> Any:
    id = model.sub("b")
    handle = model.handles[id]

    def after(hit: bool) -> None:
        happened = id not in {info.id for info in model.channel.subscriptions()}
        assert happened or hit
        if happened:
            del model.subs[id], model.handles[id]
            assert handle.inbox.ended == "cancelled"

    return lambda: model.channel.cancel(id), after


def prolong(model: Model) -> Any:
    id = model.sub("a")

    def after(hit: bool) -> None:
        until = model.channel.subscription(id).until
        assert until == model.handles[id].until
        assert until in (_LATER, _SOONER) if hit else until == _SOONER

    return lambda: model.channel.prolong(id, until=_SOONER), after


def event(model: Model, place: str) -> str:
    """A new event that everybody has taken."""
    id = model.new("e")
    model.channel.publish(place, {"n": 1}, id=id, ttl_s=5)
    model.events[id] = place
    for handle in model.handles.values():
        handle.take()
    return id


def move(model: Model) -> Any:
    model.clock.advance(1)  # what was there before does not answer it
    id = model.sub("a")
    found = event(model, "b")
    handle = model.handles[id]

    def after(hit: bool) -> None:
        place = model.channel.subscription(id).place
        assert place == handle.place
        assert place == "b" or hit
        model.subs[id] = place
        assert [e.id for e in handle.take()] == ([found] if place == "b" else [])

    return lambda: handle.move("b"), after


def retract(model: Model) -> Any:
    sub = model.sub("a", retractions=True)
    id = event(model, "a")

    def after(hit: bool) -> None:
        gone = model.channel.get(id) is None
        assert gone or hit
        if gone:
            del model.events[id]
        told = {s: [(e.id, e.retracted) for e in h.take()] for s, h in model.handles.items()}
        assert told[sub] == ([(id, True)] if gone else [])
        assert all(each in ([], told[sub]) for each in told.values())  # of calls before

    return lambda: model.channel.retract(id), after


def replace(model: Model) -> Any:
    id = event(model, "a")

    def after(hit: bool) -> None:
        place = model.channel.get(id).place
        assert place == "b" or hit
        model.events[id] = place
        for sub, handle in model.handles.items():
            got = [(e.id, e.retracted) for e in handle.take()]
            if place == "b" and model.subs[sub] == "a":
                assert got in ([], [(id, True)])  # if it asked for that
            else:
                assert got == ([(id, False)] if model.subs[sub] == place == "b" else [])

    return lambda: model.channel.publish("b", {"n": 1}, id=id, ttl_s=5, replace=True), after


def resume(model: Model) -> Any:
    id = model.sub("a")
    old = model.handles[id]
    fresh: list[Any] = []

    def call() -> None:
        fresh.append(model.channel.resume(id))

    def after(hit: bool) -> None:
        model.channel.position()  # whoever takes the lock next ends what was interrupted
        if fresh:
            model.handles[id] = fresh[0]
        elif old.inbox.ended:
            model.handles[id] = model.channel.resume(id)
        if fresh or old.inbox.ended:
            assert old.inbox.ended == "replaced"

    return call, after


def apply(model: Model) -> Any:
    gone = model.sub("b")
    ids = [model.new("t") for _ in range(3)]
    sub = model.new("s")
    now = datetime.fromtimestamp(model.clock.now() / 1e6, UTC)
    soon = now + timedelta(seconds=5)
    rows = [
        *({"op": "publish", "id": id, "place": "a", "at": now, "until": soon, "body": '{"n":1}'}
          for id in ids),
        {"op": "subscribe", "id": sub, "place": "b", "user": "u" + sub, "at": now,
         "until": _LATER},
        {"op": "cancel", "id": gone, "at": now},
    ]  # fmt: skip
    table = pa.Table.from_pylist(
        rows, schema=pa.schema([
            ("op", pa.string()), ("id", pa.string()), ("place", pa.string()),
            ("user", pa.string()), ("at", pa.timestamp("us", "UTC")),
            ("until", pa.timestamp("us", "UTC")), ("body", pa.string()),
        ]),
    )  # fmt: skip

    def after(hit: bool) -> None:
        found = {event.id for event in model.channel.find("a")} & set(ids)
        assert found in (set(), set(ids))
        assert found or hit
        stored = {info.id for info in model.channel.subscriptions()}
        assert (sub in stored) == bool(found) == (gone not in stored)
        model.delivered(ids if found else [], "a")
        if found:
            model.events.update((id, "a") for id in ids)
            model.subs[sub] = "b"
            model.handles[sub] = model.channel.resume(sub)
            assert model.handles[gone].inbox.ended == "cancelled"
            del model.subs[gone], model.handles[gone]

    return lambda: model.channel.apply(table), after


def reading(name: str, *args: Any, **more: Any) -> Operation:
    def read(model: Model) -> Any:
        return lambda: getattr(model.channel, name)(*args, **more), lambda hit: None

    read.__name__ = name
    return read


def take(model: Model) -> Any:
    id = model.sub("a")
    event = model.new("e")
    model.channel.publish("a", {"n": 2}, id=event, ttl_s=5)
    model.events[event] = "a"
    for other, handle in model.handles.items():
        if other != id:
            handle.take()
    got: list[Any] = []

    def after(hit: bool) -> None:
        got.extend(model.handles[id].take())
        assert [e.id for e in got] == [event] or (hit and not got)

    return lambda: got.extend(model.handles[id].take()), after


OPERATIONS: dict[str, Operation] = {
    "publish": publish,
    "subscribe": subscribe,
    "subscribe where": subscribe_where,
    "cancel": cancel,
    "prolong": prolong,
    "move": move,
    "retract": retract,
    "replace": replace,
    "resume": resume,
    "apply": apply,
    "take": take,
    "find": reading("find", "a", where={"n": {"$gt": 0}}),
    "subscriptions": reading("subscriptions"),
    "scan": reading("scan", "events"),
    "stats": reading("stats"),
    "seal": reading("seal"),
    "maintain": reading("maintain"),
    "position": reading("position"),
}


LOADED: list[bool] = []


def ready(folder: Path, **settings: Any) -> Model:
    """A channel with a little in it, and every kernel loaded: numba's loading is not ours."""
    if not LOADED:
        LOADED.append(True)
        warm = ready(folder.with_name("warm"), memory_mb=1)
        for name in OPERATIONS:
            fill(warm, random.Random(1))
            run_interrupted(warm, name, lambda call: (call(), (False, ""))[1])
        warm.agree_again()
        warm.db.close()
    model = Model(folder, **settings)
    for place in PLACES:
        model.sub(place)
        model.sub(place, where={"n": {"$gt": 0}})
        id = model.new("e")
        model.channel.publish(place, {"n": 1}, id=id, ttl_s=5)
        model.events[id] = place
    for handle in model.handles.values():
        handle.take()
    return model


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_call_is_whole_or_not_at_all_wherever_it_is_interrupted(
    name: str, tmp_path: Path
) -> None:
    model = ready(tmp_path / "db", memory_mb=16, journal_s=3600)
    for kind in ("line", "call"):
        assert try_every_place(model, OPERATIONS[name], kind) > 1
    model.agree_again()
    model.db.close()


SETTINGS: dict[str, dict[str, Any]] = {
    "little memory": {"memory_mb": 1},
    "two indexes, on disk": {"memory_mb": 16, "layout": "two", "durability": "disk"},
    "journal": {"memory_mb": 16, "journal_s": 3600},
}
WRITING = (
    "publish", "subscribe", "subscribe where", "cancel", "prolong", "move", "retract", "replace",
    "resume", "apply",
)  # fmt: skip


def run_interrupted(
    model: Model, name: str, interrupted: Callable[[Callable[[], Any]], tuple[bool, str]]
) -> bool:
    """One operation, interrupted somehow; whether it was."""
    call, after = OPERATIONS[name](model)
    hit, where = interrupted(call)
    try:
        model.channel.position()
        after(hit)
        model.agree()
    except BaseException as error:
        error.add_note(f"{name} was interrupted: {where}")
        raise
    model.tidy()
    return hit


def fill(model: Model, rng: random.Random) -> None:
    """Some more in memory, so that it has to be sealed and dropped now and then."""
    for _ in range(rng.randrange(6)):
        model.channel.publish("z", {"x": "y" * rng.randrange(20_000)}, ttl_s=rng.randrange(1, 900))


def rounds(model: Model, seed: int, count: int, interrupted: Interrupted) -> int:
    """So many random operations; how many were interrupted."""
    rng = random.Random(seed)
    hits = 0
    for k in range(count):
        fill(model, rng)
        name = rng.choice(list(OPERATIONS))
        hits += run_interrupted(model, name, lambda call: interrupted(call, rng))
        if k % 50 == 49:
            model.agree_again()
    model.agree_again()
    model.db.close()
    return hits


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("count", [120, pytest.param(5000, marks=pytest.mark.long)])
def test_what_mends_a_call_may_be_interrupted_too(name: str, count: int, tmp_path: Path) -> None:
    assert rounds(ready(tmp_path / "db", **SETTINGS[name]), count, count, twice) > count // 4


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("count", [150, pytest.param(20_000, marks=pytest.mark.long)])
def test_a_signal_handler_may_raise_at_any_moment(name: str, count: int, tmp_path: Path) -> None:
    with by_signals() as interrupted:
        hits = rounds(ready(tmp_path / "db", **SETTINGS[name]), count, count, interrupted)
        assert hits > count // 4


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("count", [100, pytest.param(10_000, marks=pytest.mark.long)])
def test_another_thread_may_throw_at_any_moment(name: str, count: int, tmp_path: Path) -> None:
    model = ready(tmp_path / "db", **SETTINGS[name])
    thrown_from_another_thread(lambda interrupted: rounds(model, count, count, interrupted))


@pytest.mark.parametrize("kind", ["line", "call"])
def test_a_database_is_closed_or_it_is_not(kind: str, tmp_path: Path) -> None:
    model = ready(tmp_path / "db", memory_mb=16)
    n = 0
    hit = True
    while hit:
        n += 1
        thrower = Thrower(kind, n)
        with thrower:
            model.db.close()
        model.db.close()
        hit = thrower.hit
        model.open()
        model.agree()
        model.tidy()
    model.db.close()
    assert n > 3


def test_who_waits_for_events_may_be_interrupted(tmp_path: Path) -> None:
    """Ctrl-C in a loop over events: whoever publishes must not wait for a lock for ever."""
    model = ready(tmp_path / "db", memory_mb=16)
    rng = random.Random(5)
    [id, *_] = model.subs
    handle = model.handles[id]
    place = model.subs[id]
    with Storm() as storm:
        for _ in range(300):
            first_s = rng.choice([1e-5, 1e-4, 1e-3]) * rng.uniform(0.1, 3)
            # Again and again: one that falls into a weak reference's callback is swallowed there.
            assert storm.strike(lambda: next(iter(handle)), first_s, 0.01)
            model.agree()
            model.tidy()
    assert storm.thrown >= 300
    waiting = threading.Thread(target=lambda: got.append(next(iter(handle)).id))
    got: list[str] = []
    waiting.start()
    model.channel.publish(place, {"n": 1}, id="last", ttl_s=5)
    waiting.join()
    assert got == ["last"]
    model.db.close()


def test_a_thread_that_is_hit_before_it_begins_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """CPython throws into the new thread what comes for the caller while that one starts it."""
    starts: list[Any] = []

    def start(*given: Any) -> None:
        starts.append(given)
        if len(starts) > 1:
            start_new_thread(*given)

    monkeypatch.setattr(shelter, "start_new_thread", start)
    made: list[int] = []
    caller = threading.Thread(target=lambda: made.append(shelter.run_apart(lambda: 7)), daemon=True)
    caller.start()
    caller.join(_LONG_S / 10)
    assert made == [7]


ENDING = """
import sys, tideline
db = tideline.open(sys.argv[1], memory_mb=16)
if sys.argv[2] == "collection":
    docs = db.collection("d", key="id", indexes={"u": "lazy", "v": "composite"},
                         policy={"name": "constant", "k": 2})
    for k in range(6):
        docs.put_many([{"id": 3000 * k + i, "u": i % 7, "v": i, "p": "x" * 400}
                       for i in range(3000)])
else:
    channel = db.channel("c")
    for k in range(3000):
        channel.publish("a", {"x": "y" * 4000}, ttl_s=900)
sys.exit(7)
"""


@pytest.mark.parametrize("what", ["collection", "channel"])
def test_a_program_that_ends_without_closing_ends_as_it_says(what: str, tmp_path: Path) -> None:
    for k in range(3):
        ended = subprocess.run(
            [sys.executable, "-c", ENDING, str(tmp_path / f"db{k}"), what],
            capture_output=True, text=True, timeout=_LONG_S, check=False,
        )  # fmt: skip
        assert (ended.returncode, ended.stderr) == (7, "")
        with tideline.open(tmp_path / f"db{k}") as db:
            db.check()
