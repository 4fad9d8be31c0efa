"""The JavaScript client against real servers: its package in Node, /tideline.js in Chromium.

What it does is compared with what the library holds and does. `js(function, value)` runs JavaScript
with the client's module `m` (javascript.py).
"""

from __future__ import annotations

import random
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from client.proxy import Proxy
from javascript import JavaScript, Node, Tab, Thrown, wait_for

import tideline
from tideline.server import running
from tideline.server.tokens import Tokens

SERVING = Path(__file__).resolve().parents[1] / "client" / "serving.py"


@pytest.fixture(params=["node", "chromium"])
def js(request: pytest.FixtureRequest) -> Iterator[JavaScript]:
    """JavaScript in Node, and in Chromium."""
    if request.param == "node":
        node = Node(request.getfixturevalue("package"))
        yield node
        node.close()
        return
    browser = request.getfixturevalue("browser")
    with browser.new_context() as context:
        yield Tab(context.new_page())


@pytest.fixture
def db() -> Iterator[Any]:
    with tideline.open(":memory:") as made:
        yield made


@pytest.fixture
def url(db: Any, js: JavaScript) -> Iterator[str]:
    with running(db) as served:
        js.visit(served)
        js("(m, url) => { globalThis.db = m.connect(url); }", served)
        yield served
        js("() => globalThis.db.close()")


# ---- channels -------------------------------------------------------------------------------


def test_what_has_happened_comes_at_once_and_the_rest_as_it_happens(
    db: Any, url: str, js: JavaScript
) -> None:
    roads = db.channel("roads")
    roads.publish("I-87", {"n": 1, "severity": 4}, id="before", ttl_s=600)
    roads.publish("I-87", {"n": 2, "severity": 1}, id="mild", ttl_s=600)
    found = js(
        """async () => {
          const roads = db.channel("roads");
          globalThis.sub = await roads.subscribe("I-87", {
            user: "ann", since_s: -600, until_s: 3600, where: { severity: { $gte: 3 } } });
          const told = await roads.publish("I-87", { n: 3, severity: 5 }, { ttl_s: 600, id: "after" });
          await roads.publish("I-90", { n: 4, severity: 5 });
          const taken = await sub.take();
          const { id, user, state } = sub;
          return { past: sub.past, taken, told: told.subscriptions, id, user, state };
        }"""
    )
    assert [event["id"] for event in found["past"]] == ["before"]
    assert [event["body"] for event in found["taken"]] == [{"n": 3, "severity": 5}]
    assert found["told"] == [{"id": found["id"], "user": "ann"}]
    assert (found["user"], found["state"]) == ("ann", "open")
    (stored,) = roads.subscriptions()
    assert (stored.id, stored.where) == (found["id"], {"severity": {"$gte": 3}})

    for n in range(5):
        roads.publish("I-87", {"n": n, "severity": 3}, ttl_s=600)
    read = js(
        """async () => {
          const read = [];
          for await (const event of sub) if (read.push(event.body.n) === 3) break;
          await new Promise((resolve) => {
            sub.onevent = ({ body }, how) => { if (read.push(`${body.n} ${how}`) === 5) resolve(); };
          });
          return read;
        }"""
    )
    assert read == [0, 1, 2, "3 live", "4 live"]
    ended = js(
        """async () => {
          const { until } = sub;
          await sub.prolong({ until_s: 7200 });
          const later = sub.until > until;
          let reason; sub.onended = (why) => { reason = why; };
          await sub.cancel(); await sub.cancel();
          return [later, reason, sub.state, (await sub.next()).done];
        }"""
    )
    assert ended == [True, "cancelled", "ended", True]
    assert roads.subscriptions() == []


def test_a_subscription_is_taken_up_again_by_its_id(db: Any, url: str, js: JavaScript) -> None:
    roads = db.channel("roads")
    token = js(
        """async () => {
          const roads = db.channel("roads");
          const sub = await roads.subscribe("a", { user: "ann", id: "s1" });
          await roads.publish("a", 1, { id: "e1" });
          const [event] = await sub.take();
          await sub.release();
          return [sub.reason, event.token === sub.token, sub.token];
        }"""
    )
    assert token[:2] == ["released", True]
    roads.publish("a", 2, id="e2")
    roads.subscribe("b", user="bob", id="s2")
    found = js(
        """async (m, after) => {
          const roads = db.channel("roads");
          const sub = await roads.resume("s1", after);
          const all = await roads.subscriptions();
          const one = await roads.subscription("s1");
          await roads.cancel("s1");
          await sub.next();
          const missing = await roads.resume("s1").catch((error) => error instanceof m.NotFound);
          return [sub.past.map(({ id }) => id), all.map(({ id }) => id), one.user, sub.reason, missing];
        }""",
        token[2],
    )
    assert found == [["e2"], ["s1", "s2"], "ann", "cancelled", True]


def test_many_events_and_what_is_found(db: Any, url: str, js: JavaScript) -> None:
    found = js(
        """async (m) => {
          const settings = { space: { kind: "quadtree", bounds: [-80, 40, -71, 45.5], depth: 9 } };
          const roads = db.channel("map", settings);
          const results = await roads.publishMany([
            { place: [-75, 43], body: { n: 1 } }, { place: [-75.01, 43], body: { n: 2 }, ttl_s: 60 },
            { place: [200, 43], body: { n: 3 } }, { place: [-79, 41], body: { n: 4 } }]);
          const near = await roads.find({ circle: [-75, 43, 5000] });
          const later = await roads.find({ box: [-80, 40, -71, 45.5] }, { since: new Date(), until_s: 9 });
          const { name, space } = await roads.info();
          return [results.map((one) => one.error?.kind ?? "stored"), near.map(({ body }) => body.n), later, name,
                  space.depth, (await roads.stats()).events, (await db.channels()).map((one) => one.name)];
        }"""
    )
    refused = ["stored", "stored", "InvalidRequest", "stored"]
    assert found == [refused, [2, 1], [], "map", 9, 3, ["map"]]
    js("async () => { await db.dropChannel('map'); }")
    assert db.channels() == []


WRONG = [
    ("InvalidRequest", "unknown field `tl_s`", "db.channel('roads').publish('a', 1, { tl_s: 3 })"),
    ("InvalidRequest", "JSON does not have. n=NaN", "db.channel('roads').publish('a', { n: 0 / 0 })"),
    ("InvalidRequest", "has. n=9", "db.channel('roads').publish('a', { n: 9n })"),
    ("InvalidRequest", "name must be text", "db.channel('')"),
    ("InvalidRequest", "name must be text", "db.collection(7)"),
    ("InvalidRequest", "user", "db.channel('roads').subscribe('a', { user: '' })"),
    ("InvalidRequest", "$near", "db.channel('roads').find('a', { where: { a: { $near: 1 } } })"),
    ("InvalidRequest", "address must be", "m.connect('localhost:8080')"),
    ("InvalidRequest", "timeout_s", "m.connect('http://localhost', { timeout_s: 0 })"),
    ("NotFound", "no such channel", "db.channel('nowhere').find('a')"),
    ("NotFound", "no such channel", "db.channel('nowhere').subscribe('a', { user: 'u' })"),
    ("Conflict", "other content", "db.channel('roads').publish('a', 2, { id: 'taken' })"),
    ("Closed", "was closed", "{ const c = m.connect(db.url); c.close(); return c.channels() }"),
    ("Unavailable", "reconnect() first",
     "{ db.disconnect(); try { return await db.channel('roads').subscribe('a', { user: 'u' }) }"
     " finally { db.reconnect() } }"),
    ("Unavailable", "cannot be reached",
     "m.connect('http://127.0.0.1:9', { timeout_s: 0.2 }).channels()"),
]  # fmt: skip


def test_what_is_refused_is_an_error_of_its_class(db: Any, url: str, js: JavaScript) -> None:
    db.channel("roads").publish("a", 1, id="taken")
    for name, words, call in WRONG:
        body = call if call.startswith("{") else f"{{ return await {call}; }}"
        with pytest.raises(Thrown, match=f"^{name}: .*") as thrown:
            js(f"async (m) => {body}")
        assert words.replace("has. n=9", "have. n=9") in str(thrown.value)


# ---- connections that break -----------------------------------------------------------------


class Killed:
    """A server in a process of its own, behind a proxy that cuts connections."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self._folder = folder
        self.start()
        self.proxy = Proxy(self.port)

    def start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(SERVING), str(self._folder), str(self.port)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"ready\n"

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()

    def stop(self) -> None:
        self._process.communicate()  # its input ends, and so does it


@pytest.fixture
def killed(tmp_path: Path) -> Iterator[Killed]:
    made = Killed(tmp_path / "data")
    yield made
    made.proxy.close()
    made.stop()


def test_nothing_is_missed_and_nothing_comes_twice(killed: Killed, js: JavaScript) -> None:
    """Connections are cut in the middle of messages, the server is killed twice; a reader with a
    function, one that iterates and one that takes get every event once, in order."""
    direct = tideline.connect(f"http://127.0.0.1:{killed.port}")
    roads = direct.channel("roads")
    roads.publish("a", 0, id="e0")
    pick = random.Random(7)
    js.visit(killed.proxy.url)
    killed.proxy.allow = lambda: pick.randint(150, 4000) if killed.proxy.cuts < 40 else None
    killed.proxy.cut()
    js(
        """async (m, url) => {
          globalThis.db = m.connect(url);
          globalThis.got = { called: [], iterated: [], taken: [] };
          const subscribe = (user) => db.channel("roads").subscribe("a", { user, since_s: -600, until_s: 3600 });
          const [called, iterated, taken] = await Promise.all(["c", "i", "t"].map(subscribe));
          for (const [name, sub] of Object.entries({ called, iterated, taken })) {
            got[name].push(...sub.past.map(({ id }) => id));
          }
          called.onevent = ({ id }) => got.called.push(id);
          (async () => { for await (const { id } of iterated) got.iterated.push(id); })();
          globalThis.take = async () => {
            got.taken.push(...(await taken.take()).map(({ id }) => id));
            return got;
          };
        }""",
        killed.proxy.url,
    )
    expected = [f"e{n}" for n in range(150)]

    def publish() -> None:
        for id in expected[1:]:
            roads.publish("a", {"long": "x" * 200}, id=id)  # made again while there is no server

    publisher = threading.Thread(target=publish)
    publisher.start()
    for count in (30, 80):
        wait_for(lambda count=count: js("() => got.called.length") >= count)  # type: ignore[misc]
        killed.kill()
        killed.start()
    publisher.join()
    wait_for(lambda: all(len(each) >= 150 for each in js("() => take()").values()))
    assert js("() => take()") == {name: expected for name in ("called", "iterated", "taken")}
    assert killed.proxy.cuts > 5
    js("() => db.close()")
    direct.close()


def test_a_call_that_breaks_is_made_again_and_does_nothing_twice(
    killed: Killed, js: JavaScript
) -> None:
    js.visit(killed.proxy.url)
    direct = tideline.connect(f"http://127.0.0.1:{killed.port}")
    roads = direct.channel("roads")
    pick = random.Random(3)
    killed.proxy.allow = lambda: pick.randint(50, 900) if killed.proxy.cuts < 8 else None
    killed.proxy.cut()
    duplicates = js(
        """async (m, url) => {
          const db = m.connect(url);
          const roads = db.channel("roads");
          let duplicates = 0;
          for (let n = 0; n < 40; n++) duplicates += (await roads.publish("a", n)).duplicate;
          db.close();
          return duplicates;
        }""",
        killed.proxy.url,
    )
    assert sorted(event.body for event in roads.find("a")) == list(range(40))
    assert killed.proxy.cuts >= 8
    assert duplicates <= killed.proxy.cuts
    direct.close()


def test_a_subscription_that_ended_meanwhile_says_so(db: Any, url: str, js: JavaScript) -> None:
    roads = db.channel("roads")
    js(
        """async () => {
          globalThis.subs = [];
          for (const id of ["kept", "cancelled"]) {
            subs.push(await db.channel("roads").subscribe("a", { user: "ann", id }));
          }
          globalThis.states = [];
          db.onstate = (state) => states.push(state);
          db.disconnect();
        }"""
    )
    assert js("() => [db.state, ...subs.map(({ state }) => state)]") == ["idle", "away", "away"]
    roads.cancel("cancelled")
    roads.publish("a", 1, id="e1")
    found = js(
        """async () => {
          db.reconnect();
          const missed = new Promise((resolve) => { subs[0].onevent = ({ id }, how) => resolve([id, how]); });
          return [(await subs[1].next()).done, subs[1].reason, await missed, states];
        }"""
    )
    assert found == [True, "expired", ["e1", "missed"], ["idle", "connecting", "open"]]


# ---- tokens ---------------------------------------------------------------------------------


@pytest.fixture
def locked(tmp_path: Path, js: JavaScript) -> Iterator[tuple[Any, str, Tokens]]:
    """A server that needs tokens, and notices quickly when one is revoked."""
    with tideline.open(tmp_path / "locked") as db:
        tokens = Tokens(db.path)
        tokens.create(["admin"])
        db.channel("roads")
        with running(db, beat_s=0.05) as url:
            js.visit(url)
            yield db, url, tokens


def test_without_a_good_token_every_call_is_unauthorized(
    locked: tuple[Any, str, Tokens], js: JavaScript
) -> None:
    _, url, tokens = locked
    narrow, _ = tokens.create(["read:roads"])
    for token, kind in (
        (None, "Unauthorized"),
        ("tl_wrong", "Unauthorized"),
        (narrow, "Forbidden"),
    ):
        for call in ("publish('a', 1)", "subscribe('a', { user: 'u' })"):
            with pytest.raises(Thrown, match=r"^Unauthorized: ") as thrown:
                js(
                    "async (m, [url, token]) => { const db = m.connect(url, { token });"
                    f" try {{ await db.channel('roads').{call}; }} finally {{ db.close(); }} }}",
                    [url, token],
                )
            assert thrown.value.kind == kind


def test_a_function_gives_the_token_and_another_when_it_was_revoked(
    locked: tuple[Any, str, Tokens], js: JavaScript
) -> None:
    """Calls that are refused at once ask once; a stream goes on with the new token."""
    db, url, tokens = locked
    first, first_row = tokens.create(["publish", "subscribe"])
    second, _ = tokens.create(["publish", "subscribe"])
    begun = js(
        """async (m, [url, ...good]) => {
          globalThis.asked = [];
          const given = ["tl_wrong", ...good];
          globalThis.db = m.connect(url, { token: async (refused) => {
            asked.push(refused?.name ?? null);
            return given.shift();
          } });
          const roads = db.channel("roads");
          await Promise.all([1, 2, 3].map((n) => roads.publish("a", n)));
          globalThis.sub = await roads.subscribe("a", { user: "u", since_s: -60, until_s: 600 });
          return [sub.past.length, asked];
        }""",
        [url, first, second],
    )
    assert begun == [3, [None, "Unauthorized"]]
    tokens.revoke(first_row.id)
    wait_for(lambda: len(js("() => asked")) == 3)
    db.channel("roads").publish("a", 4, id="after")
    assert js("async () => (await sub.next()).value.id") == "after"

    # No more tokens: what is followed ends with the error.
    for row in tokens.load():
        tokens.revoke(row.id)
    tokens.create(["admin"])
    ended = js(
        "async () => { const error = await sub.next().catch((thrown) => thrown);"
        " db.close(); return [error.name, sub.reason]; }"
    )
    assert ended == ["Unauthorized", "refused"]


# ---- collections ----------------------------------------------------------------------------

ROADS = ["A1", "B2", "C3"]


Called = tuple[str, list[Any], dict[str, Any] | None]


def _calls(pick: random.Random, count: int) -> list[Called]:
    """Calls of a collection as JavaScript makes them: a method, its arguments, its options."""

    def document() -> dict[str, Any]:
        made = {"id": pick.randrange(30), "road": pick.choice(ROADS), "speed": pick.randrange(100)}
        return made if pick.random() < 0.8 else {**made, "tags": pick.sample(ROADS, 2)}

    def where() -> dict[str, Any]:
        return pick.choice(
            [{"road": pick.choice(ROADS)}, {"speed": {"$gte": pick.randrange(100)}}, {"tags": "A1"}]
        )

    def change() -> dict[str, Any]:
        return pick.choice(
            [{"$inc": {"speed": 1}}, {"$set": {"road": "B2"}}, {"$push": {"tags": "C3"}},
             {"$unset": {"tags": ""}}, {"$wrong": {"speed": 1}}]
        )  # fmt: skip

    def key() -> int:
        return pick.randrange(35)

    def version() -> dict[str, int]:
        return {"if_version": pick.randrange(60)}

    def group() -> list[Any]:
        most = {"_id": "$road", "n": {"$sum": 1}, "most": {"$max": "$speed"}}
        return [{"$match": where()}, {"$group": most}]

    asked: list[Any] = [
        lambda: ("put", [document()], None),
        lambda: ("putMany", [[document() for _ in range(3)] + [{"no": "key"}]], None),
        lambda: ("insert", [document()], None),
        lambda: ("insertMany", [[document() for _ in range(3)]], None),
        lambda: ("checkMany", [[document(), {"no": "key"}]], None),
        lambda: ("update", [key(), change()], {"upsert": pick.random() < 0.5}),
        lambda: ("update", [key(), change()], version()),
        lambda: ("updateMany", [where(), change()], None),
        lambda: ("replace", [key(), {"road": "D4"}], None),
        lambda: ("replace", [key(), {"road": "D4"}], version()),
        lambda: ("delete", [key()], None),
        lambda: ("delete", [key()], version()),
        lambda: ("deleteMany", [[key(), key()]], None),
        lambda: ("deleteWhere", [{"speed": pick.randrange(100)}], None),
        lambda: ("get", [key()], None),
        lambda: ("getMany", [[key(), key(), key()]], None),
        lambda: ("versioned", [key()], None),
        lambda: ("find", [where()], {"sort": {"speed": 1, "id": -1}, "limit": 4, "skip": 1}),
        lambda: ("find", [where()], {"fields": ["speed"]}),
        lambda: ("find", [], None),
        lambda: ("findOne", [where()], {"sort": [["id", 1]]}),
        lambda: ("count", [where()], None),
        lambda: ("distinct", ["tags", where()], None),
        lambda: ("aggregate", [group()], None),
        lambda: ("lookup", ["road", pick.choice(ROADS)], {"k": 3}),
        lambda: ("rangeLookup", ["speed", 10, 60], {"k": 5}),
        lambda: ("rangeLookup", ["speed", None, 60], None),
    ]
    return [pick.choice(asked)() for _ in range(count)]


def _snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)


def _done(collection: Any, call: Called) -> Any:
    """The same call of the library, and its result as JSON has it."""
    name, given, options = call
    try:
        found = getattr(collection, _snake(name))(*given, **(options or {}))
    except tideline.errors.TidelineError as error:
        return {"thrown": type(error).__name__}
    if name in ("putMany", "insertMany"):
        rows = zip(
            *(found.rejected[column].to_pylist() for column in ("row", "reason")), strict=True
        )
        return {"stored": found.stored, "rejected": {str(row): reason for row, reason in rows}}
    if name == "checkMany":
        return {str(row): reason for row, reason in found.items()}
    return found._asdict() if hasattr(found, "_asdict") else msgspec.to_builtins(found)


def test_the_verbs_do_what_the_library_does(db: Any, url: str, js: JavaScript) -> None:
    """Random calls, one after the other, on a server and on a collection of this process."""
    settings = {"key": "id", "indexes": {"road": "lazy", "speed": "composite"}}
    calls = _calls(random.Random(5), 300)
    results = js(
        """async (m, [settings, calls]) => {
          const cars = db.collection("cars", settings);
          const results = [];
          for (const [name, given, options] of calls) {
            const done = options ? cars[name](...given, options) : cars[name](...given);
            results.push(await done.catch((error) => ({ thrown: error.name })));
          }
          return results;
        }""",
        [settings, calls],
    )
    with tideline.open(":memory:") as other:
        model = other.collection("cars", **settings)
        for call, result in zip(calls, results, strict=True):
            assert result == _done(model, call), call
        assert model.find() == db.collection("cars").find()
    thrown = {
        result["thrown"] for result in results if isinstance(result, dict) and "thrown" in result
    }
    assert thrown == {"InvalidRequest", "NotFound", "Conflict"}


def test_pages_indexes_and_what_there_is(db: Any, url: str, js: JavaScript) -> None:
    db.collection("cars", key="id").put_many([{"id": n, "speed": n % 7} for n in range(2500)])
    found = js(
        """async (m) => {
          const cars = db.collection("cars");
          const all = await cars.find({}, { sort: { id: 1 }, fields: ["id"] });
          const few = await cars.find({ speed: 3 }, { limit: 250 });
          const read = [];
          for await (const { id } of cars.findIter({}, { sort: { id: -1 }, page: 10 })) {
            if (read.push(id) === 25) break;
          }
          const built = await cars.createIndex("speed", { kind: "lazy" });
          const looked = await cars.lookup("speed", 3, { k: 2 });
          const { chosen } = await cars.explain({ speed: 3 });
          const { key, indexes } = await cars.info();
          await cars.dropIndex("speed");
          const gone = await cars.lookup("speed", 3).catch((error) => error.name);
          const many = (await cars.getMany([...Array(12_000).keys()])).filter(Boolean).length;
          const listed = (await db.collections()).map(({ name }) => name);
          await db.dropCollection("cars");
          const missing = await cars.count().catch((error) => error.name);
          return [all.every(({ id }, n) => id === n) && all.length, few.length, read, built.done,
                  looked.map(({ id }) => id), chosen[0].kind, key, indexes, gone, many, listed, missing];
        }"""
    )
    last = list(range(2499, 2474, -1))
    assert found[:4] == [2500, 250, last, True]
    assert found[4:9] == [[2495, 2488], "lazy", "id", {"speed": "lazy"}, "InvalidRequest"]
    assert found[9:] == [2500, ["cars"], "NotFound"]


def test_a_token_with_rows_sees_and_writes_its_own(
    locked: tuple[Any, str, Tokens], js: JavaScript
) -> None:
    db, url, tokens = locked
    orders = db.collection("orders", key="id")
    orders.put_many([{"id": 1, "owner": "ann"}, {"id": 2, "owner": "bob"}])
    secret, _ = tokens.create(
        ["read:orders", "write:orders"], user="ann", rows={"orders": {"owner": "$user"}}
    )
    found = js(
        """async (m, [url, token]) => {
          const db = m.connect(url, { token });
          const orders = db.collection("orders", { key: "id" });
          const seen = await orders.find();
          await orders.insert({ id: 3, owner: "ann" });
          const hidden = await orders.get(2);
          const refused = await orders.put({ id: 4, owner: "bob" }).catch((error) => [error.name, error.kind]);
          db.close();
          return [seen, hidden, refused];
        }""",
        [url, secret],
    )
    assert found == [[{"id": 1, "owner": "ann"}], None, ["Unauthorized", "Forbidden"]]
    assert sorted(each["id"] for each in orders.find()) == [1, 2, 3]


def test_changes_come_in_order_and_once_through_cuts_and_kills(
    killed: Killed, js: JavaScript, tmp_path: Path
) -> None:
    port = killed.port
    direct = tideline.connect(f"http://127.0.0.1:{port}")
    cars = direct.collection("cars", key="id", journal_s=3600, journal_before=True)
    cars.put({"id": 0, "n": 0})
    pick = random.Random(11)
    js.visit(killed.proxy.url)
    killed.proxy.allow = lambda: pick.randint(300, 4000) if killed.proxy.cuts < 25 else None
    killed.proxy.cut()
    js(
        """async (m, url) => {
          globalThis.db = m.connect(url);
          globalThis.got = { called: [], iterated: [] };
          const cars = db.collection("cars");
          const called = cars.changes({ before: true });
          called.onchange = (change) => got.called.push(change);
          await called.ready;
          (async () => {
            for await (const change of cars.changes({ after: 0 })) {
              if (got.iterated.push([change.seq, change.key, change.after]) === 120) break;
            }
            got.left = true;
          })();
        }""",
        killed.proxy.url,
    )

    def write() -> None:
        for n in range(1, 150):
            while True:
                try:
                    if n % 5:
                        cars.put({"id": n % 20, "n": n, "long": "x" * 150})
                    else:
                        cars.delete(n % 20)
                    break
                except tideline.errors.Unavailable:
                    continue  # it may have landed: then there is one change more

    writer = threading.Thread(target=write)
    writer.start()
    for count in (30, 80):
        wait_for(lambda count=count: js("() => got.called.length") >= count)  # type: ignore[misc]
        killed.kill()
        killed.start()
    writer.join()
    newest = cars.position()
    wait_for(lambda: js("() => got.left && got.called.at(-1).seq") == newest)
    got = js("() => { db.close(); return got; }")
    direct.close()
    killed.stop()
    with tideline.open(tmp_path / "data") as db:
        written = db.collection("cars").changes(after=0, before=True)
        expected = [(each.seq, each.key, each.before, each.after) for each in written.take()]
        written.close()
    assert len(expected) >= 150
    assert [
        tuple(each.get(name) for name in ("seq", "key", "before", "after"))
        for each in got["called"]
    ] == [each for each in expected if each[0] > 1]
    assert got["iterated"] == [[seq, key, after] for seq, key, _, after in expected[:120]]
    assert killed.proxy.cuts > 5
    killed.start()


def test_changes_that_are_not_kept_are_an_error(db: Any, url: str, js: JavaScript) -> None:
    cars = db.collection("cars", key="id")
    cars.put({"id": 1})
    for after, name in ((10**6, "InvalidRequest"), ("x", "InvalidRequest")):
        with pytest.raises(Thrown, match=f"^{name}: "):
            js("(m, after) => db.collection('cars').changes({ after }).next()", after)
    ended = js(
        """async () => {
          const changes = db.collection("cars").changes();
          await changes.ready;
          const next = changes.next();
          await db.dropCollection("cars");
          return [(await next).done, changes.reason];
        }"""
    )
    assert ended == [True, "dropped"]
