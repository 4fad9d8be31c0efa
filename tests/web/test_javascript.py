"""The JavaScript client's channels and tokens against real servers.

Its npm package runs in Node, /tideline.js in Chromium. `js(function, value)` runs JavaScript with
the client's module `m` (javascript.py); `db` in it is a connection to the server of the test.
"""

from __future__ import annotations

import os
import random
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from javascript import JavaScript, Node, Thrown, wait_for

import tideline
from tideline.server import running
from tideline.server.tokens import Tokens

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
          const told = await roads.publish("I-87", { n: 3, severity: 5 }, { ttl_s: 600 });
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
            sub.onevent = ({ body: { n } }, how) => {
              if (read.push(`${n} ${how}`) === 5) resolve();
            };
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
          const ids = (list) => list.map(({ id }) => id);
          return [ids(sub.past), ids(all), one.user, sub.reason, missing];
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
            { place: [-75, 43], body: 1 }, { place: [-75.01, 43], body: 2, ttl_s: 60 },
            { place: [200, 43], body: 3 }, { place: [-79, 41], body: 4 }]);
          const near = await roads.find({ circle: [-75, 43, 5000] });
          const ahead = { since: new Date(), until_s: 9 };
          const later = await roads.find({ box: [-80, 40, -71, 45.5] }, ahead);
          const { name, space } = await roads.info();
          const { events } = await roads.stats();
          const names = (await db.channels()).map((one) => one.name);
          return [results.map((one) => one.error?.kind ?? "stored"), near.map(({ body }) => body),
                  later, name, space.depth, events, names];
        }"""
    )
    refused = ["stored", "stored", "InvalidRequest", "stored"]
    assert found == [refused, [2, 1], [], "map", 9, 3, ["map"]]
    js("async () => { await db.dropChannel('map'); }")
    assert db.channels() == []


def test_polygons_are_geojson(db: Any, url: str, js: JavaScript) -> None:
    roads = db.channel("roads", space=tideline.QuadTree(bounds=(0, 0, 8, 8), depth=4))
    corner = tideline.Polygon([(0, 0), (4, 0), (0, 4)])
    roads.publish(corner, 1, id="corner", ttl_s=600)
    found = js(
        """async () => {
          const roads = db.channel("roads");
          const coordinates = [[[0, 0], [4, 0], [4, 4], [0, 0]]];
          const sub = await roads.subscribe({ type: "Polygon", coordinates },
            { user: "ann", since_s: -60, until_s: 60 });
          await roads.publish([3, 2], 2, { id: "in", ttl_s: 60 });
          await roads.publish([2, 3], 3, { id: "out", ttl_s: 60 });
          const taken = (await sub.take()).map(({ id }) => id);
          await sub.move({ type: "Polygon", coordinates: [[[0, 0], [4, 4], [0, 4], [0, 0]]] });
          const moved = (await sub.take()).map(({ id }) => id);
          const wrong = await roads.publish({ type: "Polygon", coordinates: [[[0, 0]]] }, 1)
            .catch(({ name }) => name);
          return [sub.past.map(({ id, place }) => [id, place]), taken, moved, wrong, sub.place];
        }"""
    )
    triangle = tideline.Polygon([(0, 0), (4, 4), (0, 4)]).__geo_interface__
    past = [["corner", corner.__geo_interface__]]
    assert found == [past, ["in"], ["out"], "InvalidRequest", triangle]


def test_an_event_by_its_id_and_a_subscription_that_moves(
    db: Any, url: str, js: JavaScript
) -> None:
    roads = db.channel("roads")
    for place in "ab":
        roads.publish(place, 1, id=f"at {place}", ttl_s=600)
    found = js(
        """async () => {
          const roads = db.channel("roads");
          const got = [(await roads.get("at a")).body, await roads.get("nothing")];
          const missing = await db.channel("nowhere").get("a").catch(({ name }) => name);
          const sub = await roads.subscribe("a", { user: "ann", since_s: -60, until_s: 600 });
          await sub.move("b");
          const moved = (await sub.take()).map(({ id }) => id);
          const waited = sub.take({ timeout_s: 100 });
          await roads.publish("a", 2, { id: "behind" });
          await roads.publish("b", 3, { id: "there" });
          const nothing = await sub.take({ timeout_s: 0.01 });
          return [got, missing, moved, (await waited).map(({ id }) => id), nothing, sub.place];
        }"""
    )
    assert found == [[1, None], "NotFound", ["at b"], ["there"], [], "b"]
    assert [stored.place for stored in roads.subscriptions()] == ["b"]


def test_events_that_are_replaced_and_retracted(db: Any, url: str, js: JavaScript) -> None:
    told = js(
        """async (m) => {
          const trucks = db.channel("trucks", {});
          await trucks.publish("north", 1, { id: "t7", ttl_s: 60 });
          const options = { user: "eva", since_s: -60, until_s: 600, retractions: true };
          const sub = await trucks.subscribe("north", options);
          const told = sub.past.map(({ id }) => `${id} past`);
          sub.onevent = ({ id, retracted = false }, how) => told.push(`${id} ${how} ${retracted}`);
          await trucks.publish("south", 2, { id: "t7", ttl_s: 60, replace: true });
          await trucks.publish("north", 3, { id: "t8", ttl_s: 60 });
          await sub.take();
          db.disconnect(); db.reconnect(); // it is asked for again when it is resumed
          await sub.take();
          await trucks.retract("t8");
          await sub.take();
          const wrong = await trucks.retract("t8").catch(({ name }) => name);
          const needed = await trucks.publish("a", 1, { replace: true }).catch(({ name }) => name);
          return [told, (await trucks.get("t7")).place, await trucks.get("t8"), wrong, needed];
        }"""
    )
    assert told == [
        ["t7 past", "t7 retracted true", "t8 live false", "t8 retracted true"],
        "south", None, "NotFound", "InvalidRequest",
    ]  # fmt: skip


WRONG = [
    ("InvalidRequest", "unknown field `tl_s`", "db.channel('roads').publish('a', 1, { tl_s: 3 })"),
    ("InvalidRequest", "does not have. n=NaN", "db.channel('roads').publish('a', { n: 0 / 0 })"),
    ("InvalidRequest", "does not have. n=9", "db.channel('roads').publish('a', { n: 9n })"),
    ("InvalidRequest", "where.a is undefined",
     "db.channel('roads').find('a', { where: { a: undefined } })"),
    ("InvalidRequest", "where.a is undefined",
     "db.channel('roads').subscribe('a', { user: 'u', where: { a: undefined } })"),
    ("InvalidRequest", "where.$or[0].a.$in[1] is undefined",
     "db.collection('cars').deleteWhere({ $or: [{ a: { $in: [1, undefined] } }] })"),
    ("InvalidRequest", "where.at is undefined",
     "db.collection('cars').count({ $and: [{ at: new Date(0) }], at: undefined })"),
    ("InvalidRequest", "change.$pull.items.id is undefined",
     "db.collection('cars').update(1, { $pull: { items: { id: undefined } } })"),
    ("InvalidRequest", "pipeline[0].$match.a is undefined",
     "db.collection('cars').aggregate([{ $match: { a: undefined } }])"),
    ("InvalidRequest", "did you mean offset?",
     "db.collection('cars', { key: 'id' }).watch({}, { skip: 1 }).ready"),
    ("InvalidRequest", "did you mean skip?", "db.collection('cars').find({}, { offset: 1 })"),
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
        assert words in str(thrown.value)


# ---- connections that break -----------------------------------------------------------------


def test_nothing_is_missed_and_nothing_comes_twice(killed: Any, js: JavaScript) -> None:
    """Connections are cut in the middle of messages, the server is killed; a reader with a
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
          const window = { since_s: -600, until_s: 3600 };
          const [called, iterated, taken] = await Promise.all(["c", "i", "t"].map(
            (user) => db.channel("roads").subscribe("a", { user, ...window })));
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
    expected = [f"e{n}" for n in range(120)]

    def publish() -> None:
        for id in expected[1:]:
            roads.publish("a", {"long": "x" * 200}, id=id)  # made again while there is no server

    publisher = threading.Thread(target=publish)
    publisher.start()
    wait_for(lambda: js("() => got.called.length") >= 40)
    killed.kill()
    killed.start()
    publisher.join()
    wait_for(lambda: all(len(each) >= 120 for each in js("() => take()").values()))
    assert js("() => take()") == dict.fromkeys(("called", "iterated", "taken"), expected)
    assert killed.proxy.cuts > 5
    js("() => db.close()")
    direct.close()


def test_a_call_that_breaks_is_made_again_and_does_nothing_twice(
    killed: Any, js: JavaScript
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


def test_a_reader_that_was_too_slow_gets_everything(package: Path, tmp_path: Path) -> None:
    """Node reads nothing while it waits for a file: the server hangs up, the rest comes after."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    node = Node(package)
    with tideline.open(":memory:") as db, running(db) as url:
        roads = db.channel("roads")
        node(
            """async (m, [url, gate]) => {
              const fs = await import("node:fs");
              globalThis.got = []; globalThis.states = [];
              globalThis.db = m.connect(url);
              db.onstate = (state) => states.push(state);
              const sub = await db.channel("roads").subscribe("a", { user: "ann", until_s: 600 });
              sub.onevent = ({ body }) => got.push(body.n);
              setTimeout(() => fs.readFileSync(gate));
            }""",
            [url, str(gate)],
        )
        for n in range(300):
            roads.publish("a", {"n": n, "long": "x" * 100_000})
        gate.write_text("go on", encoding="utf-8")
        wait_for(lambda: node("() => got.length") >= 300)
        roads.publish("a", {"n": 300})
        wait_for(lambda: node("() => got.length") >= 301)
        assert node("() => got") == list(range(301))
        assert node("() => states").count("open") > 1
        node("() => db.close()")
    node.close()


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
          const missed = new Promise((resolve) => {
            subs[0].onevent = ({ id }, how) => resolve([id, how]);
          });
          return [(await subs[1].next()).done, subs[1].reason, await missed, states];
        }"""
    )
    assert found == [True, "expired", ["e1", "missed"], ["idle", "connecting", "open"]]


def test_dates_are_the_texts_that_python_writes(db: Any, url: str, js: JavaScript) -> None:
    """In bodies, documents, changes and conditions; and so ranges find what both wrote."""
    moment = datetime(2026, 1, 2, 3, 4, 5, 6_000, tzinfo=UTC)
    text = "2026-01-02T03:04:05.006000Z"
    roads, cars = db.channel("roads"), db.collection("cars", key="id")
    roads.publish("a", {"due": moment}, id="python")
    cars.put({"id": 1, "due": moment})
    found = js(
        """async () => {
          const due = new Date(Date.UTC(2026, 0, 2, 3, 4, 5, 6));
          const [roads, cars] = [db.channel("roads"), db.collection("cars")];
          await roads.publish("a", { due, deep: [{ due }] }, { id: "js" });
          await cars.put({ id: 2, due });
          await cars.insert({ id: 3, due: new Date(+due + 1) });
          await cars.insert({ id: 4 });
          const changed = await cars.update(4, { $set: { due } });
          const ids = (list) => list.map(({ id }) => id);
          return [changed.due, ids(await cars.find({ due }, { sort: { id: 1 } })),
                  ids(await cars.find({ due: { $gt: due } })),
                  ids(await roads.find("a", { where: { due } })).sort()];
        }"""
    )
    assert found == [text, [1, 2, 4], [3], ["js", "python"]]
    assert roads.get("js").body == {"due": text, "deep": [{"due": text}]}
    assert [one["id"] for one in cars.find({"due": {"$lte": moment}}, sort=[("id", 1)])] == [
        1,
        2,
        4,
    ]


def test_take_says_what_its_option_is_called(db: Any, url: str, js: JavaScript) -> None:
    db.channel("roads")
    with pytest.raises(Thrown, match="take has no option timeout: did you mean timeout_s"):
        js(
            """async () => {
              const sub = await db.channel("roads").subscribe("a", { user: "ann" });
              await sub.take({ timeout: 1000 });
            }"""
        )


# ---- tokens ---------------------------------------------------------------------------------


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
