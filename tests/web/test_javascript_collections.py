"""The JavaScript client's collections: the same calls, the same results as the library's.

`js(function, value)` runs JavaScript with the client's module `m`, in Node and in Chromium
(javascript.py); `db` in it is a connection to the server of the test.
"""

from __future__ import annotations

import random
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest
from javascript import JavaScript, Thrown, wait_for

import tideline
from tideline.server.tokens import Tokens

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
          const plain = await cars.createIndex("name", "words").catch((error) => error.message);
          const words = { kind: { kind: "ngrams", n: 2 } };
          const named = (await cars.createIndex("name", words)).kind;
          await cars.dropIndex("name");
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
                  looked.map(({ id }) => id), chosen[0].kind, key, indexes, gone, many, listed,
                  missing, named, plain];
        }"""
    )
    last = list(range(2499, 2474, -1))
    assert found[:4] == [2500, 250, last, True]
    assert found[4:9] == [[2495, 2488], "lazy", "id", {"speed": "lazy"}, "InvalidRequest"]
    assert found[9:12] == [2500, ["cars"], "NotFound"]
    assert found[12] == "ngrams"
    assert found[13] == 'options must be an object, like { kind: "words" }. options=words'


def test_settings_are_those_that_are_stored_or_a_conflict(
    locked: tuple[Any, str, Tokens], js: JavaScript
) -> None:
    """They once counted for nothing when the collection was there."""
    db, url, tokens = locked
    db.collection("orders", key="id", indexes={"owner": "lazy"})
    found = js(
        """async (m, [url, ...secrets]) => {
          const [maker, reader] = secrets.map((token) => m.connect(url, { token }));
          const named = ({ name }) => name;
          const count = (db, settings) => db.collection("orders", settings).count().catch(named);
          const same = await count(reader, { key: "id", indexes: ["owner"] });
          const other = await count(maker, { key: "no" });
          const longer = [await count(reader, { ttl_s: 60 }), await count(maker, { ttl_s: 60 })];
          const topics = reader.channel("roads", { space: { kind: "topics" } });
          const roads = await topics.find("a").catch(named);
          const asked = [same, await count(reader, { key: "no" }), other, longer, roads];
          for (const db of [maker, reader]) db.close();
          return asked;
        }""",
        [url, tokens.create(["admin"])[0], tokens.create(["read"])[0]],
    )
    assert found == [0, "Conflict", "Conflict", ["Unauthorized", 0], "Conflict"]
    assert db.collection("orders").ttl_s == 60


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
          const refused = await orders.put({ id: 4, owner: "bob" })
            .catch(({ name, kind }) => [name, kind]);
          db.close();
          return [seen, hidden, refused];
        }""",
        [url, secret],
    )
    assert found == [[{"id": 1, "owner": "ann"}], None, ["Unauthorized", "Forbidden"]]
    assert sorted(each["id"] for each in orders.find()) == [1, 2, 3]


def test_changes_come_in_order_and_once_through_cuts_and_kills(
    killed: Any, js: JavaScript, tmp_path: Path
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
              if (got.iterated.push([change.seq, change.key, change.after]) === 90) break;
            }
            got.left = true;
          })();
        }""",
        killed.proxy.url,
    )

    def write() -> None:
        for n in range(1, 120):
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
    wait_for(lambda: js("() => got.called.length") >= 40)
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
    assert len(expected) >= 120
    assert [
        tuple(each.get(name) for name in ("seq", "key", "before", "after"))
        for each in got["called"]
    ] == [each for each in expected if each[0] > 1]
    assert got["iterated"] == [[seq, key, after] for seq, key, _, after in expected[:90]]
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


def test_counts_on_a_grid(db: Any, url: str, js: JavaScript) -> None:
    places = db.collection("places", key="id")
    places.put_many([{"id": n, "at": [n % 4 / 2, n % 3]} for n in range(30)])
    found, wrong = js(
        """async (m) => {
          const places = db.collection("places");
          const options = { rows: 3, cols: 2, where: { id: { $gte: 5 } }, field: "at" };
          return [await places.aggregateGrid([0, 0, 2, 3], options),
                  await places.aggregateGrid([0, 0, 2], {}).catch((error) => error.message)];
        }"""
    )
    table = places.aggregate_grid(
        (0, 0, 2, 3), rows=3, cols=2, where={"id": {"$gte": 5}}, field="at"
    )
    columns = {name: table.column(name).to_pylist() for name in ("row", "col", "count")}
    assert found == {"box": [0, 0, 2, 3], "rows": 3, "cols": 2, **columns}
    assert "box must be (west, south, east, north)" in wrong
