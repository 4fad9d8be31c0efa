"""The JavaScript client's live queries: at every version what `find` gives, through cuts and kills.

`js(function, value)` runs JavaScript with the client's module `m`, in Node and in Chromium
(javascript.py); `db` in it is a connection to the server of the test.
"""

from __future__ import annotations

import json
import random
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from javascript import NODE, JavaScript, Thrown, wait_for

import tideline
from tideline.server import running
from tideline.server.tokens import Tokens
from tideline.testing import ManualClock

ROOT = Path(__file__).resolve().parents[2]
IN_NODE = pytest.mark.parametrize("js", ["node"], indirect=True)
ROWS = ROOT / "src" / "tideline" / "web" / "tideline" / "rows.js"

Asked = tuple[str, dict[str, Any] | None, dict[str, Any]]
ASKED: list[Asked] = [
    ("watch", None, {}),
    ("watch", {"shop": {"$ne": 2}}, {"sort": {"total": -1}, "limit": 4}),
    ("watch", {"tags": "a"}, {"sort": [["shop", 1], ["total", -1]], "offset": 2, "limit": 3}),
    ("watch", {"total": {"$gte": 30}}, {"limit": 5}),
    ("watch", {"shop": 1}, {"sort": {"total": 1}, "offset": 1}),
    ("watch_groups", {"total": {"$lt": 80}},
     {"by": "shop", "count": True, "sum": "total", "max": ["total", "id"]}),
    ("watch_groups", None, {"by": ["shop", "state"], "avg": "total"}),
]  # fmt: skip

# Asks everything and notes each state. Rows that did not change must be the same objects.
FOLLOW = """async (m, [collection, asked]) => {
  const orders = db.collection(collection);
  globalThis.notes = [];
  globalThis.queries = asked.map(([verb, where, options], i) => {
    const live = verb === "watch" ? orders.watch(where, options)
      : orders.watchGroups(where, options);
    const note = { states: [], changes: [], hows: [], wrong: [] };
    notes.push(note);
    let before = [];
    live.subscribe((changes, how) => {
      const { result } = live;
      if (changes.length > 0 && result === before) note.wrong.push("the same array");
      const touched = new Set(changes.map(({ key }) => JSON.stringify(key)));
      const known = new Map(before.map((row) => [JSON.stringify(row), row]));
      for (const row of result) {
        const old = known.get(JSON.stringify(row));
        const { by = "id" } = options;
        const key = Array.isArray(by) ? by.map((field) => row[field]) : row[by];
        if (touched.has(JSON.stringify(key))) continue; // it may have gone and come again
        if (old && old !== row) note.wrong.push(JSON.stringify(row));
      }
      before = result;
      note.hows.push(how);
      note.states.push([live.version, JSON.parse(JSON.stringify(result))]);
    });
    (async () => { for await (const change of live) note.changes.push(change); })();
    return live;
  });
  await Promise.all(queries.map(({ ready }) => ready));
}"""
# Brings all up to what is written, and returns what was noted.
NOTED = """async () => {
  await db.sync();
  await new Promise((resolve) => { setTimeout(resolve, 0); }); // the loops have read all
  return queries.map((live, i) => ({ ...notes[i], version: live.version,
    result: live.result, same: live.result === live.getSnapshot(), reset: live.wasReset }));
}"""


def find(orders: Any, asked: Asked) -> list[Any]:
    """What a live query must have now."""
    verb, where, options = asked
    if verb == "watch":
        sort = options.get("sort")
        order = list(sort.items()) if isinstance(sort, dict) else sort
        skip = options.get("offset", 0)
        found: list[Any] = orders.find(where, sort=order, skip=skip, limit=options.get("limit"))
        return found
    with orders.watch_groups(where, **options) as live:
        groups: list[Any] = live.result
        return groups


def write(orders: Any, pick: random.Random) -> None:
    """One write of some kind."""
    key, chance = pick.randrange(12), pick.random()
    if chance < 0.2:
        orders.delete(key)
        return
    order = {"id": key, "shop": pick.randrange(3), "total": pick.randrange(100)}
    if chance < 0.5:
        order |= {"tags": pick.sample("abc", 2)}
    if chance < 0.7:
        order |= {"state": pick.choice(["open", "sent"]), "more": {"n": pick.randrange(2)}}
    orders.put(order)


def replayed(asked: Asked, rows: list[Any], changes: list[Any]) -> list[Any]:
    """A first result with changes applied in order."""
    verb, _, options = asked
    rows = list(rows)
    placed = verb == "watch_groups" or bool(options)
    by = options.get("by", "id")

    def key(row: Any) -> Any:
        return [row.get(field) for field in by] if isinstance(by, list) else row[by]

    for change in changes:
        if change["kind"] != "add":
            known = [key(row) for row in rows]
            at = change["old_index"] if placed else known.index(change["key"])
            assert known[at] == change["key"]
            assert rows.pop(at) == change["before"]
        if change["kind"] != "remove":
            rows.insert(change["index"] if placed else 0, change["document"])
        if change["kind"] in ("change", "changeIndex"):
            before, document = change["before"], change["document"]
            assert document == {**{name: value for name, value in before.items()
                                   if name not in change["gone"]}, **change["fields"]}  # fmt: skip
    return rows


def check(asked: Asked, noted: Any, states: dict[int, list[Any]]) -> None:
    """Every state that was noted is that of its version; the changes lead from first to last."""
    assert noted["wrong"] == []
    assert noted["same"]
    for version, rows in noted["states"]:
        assert rows == states[version], (asked, version)
    newest = states[max(states)]
    assert noted["result"] == newest, asked
    assert replayed(asked, noted["states"][0][1], noted["changes"]) == newest, asked


def test_every_state_is_what_find_gives_at_its_version(db: Any, url: str, js: JavaScript) -> None:
    pick = random.Random(7)
    orders = db.collection("orders", key="id")
    for _ in range(20):
        write(orders, pick)
    states: list[dict[int, list[Any]]] = [{} for _ in ASKED]

    def remember() -> None:
        for asked, known in zip(ASKED, states, strict=True):
            known[orders.position()] = find(orders, asked)

    remember()
    js(FOLLOW, ["orders", ASKED])
    for _ in range(120):
        write(orders, pick)
        remember()
    for asked, noted, known in zip(ASKED, js(NOTED), states, strict=True):
        check(asked, noted, known)
        assert set(noted["hows"]) <= {"first", "live"}
        assert not noted["reset"]
    assert js("() => Promise.all(queries.map((live) => live.cancel())).then(() => db.sync())")
    wait_for(lambda: orders.hub.count == 0)


@IN_NODE
def test_nothing_is_missed_or_twice_through_cuts_and_kills(
    killed: Any, js: JavaScript, tmp_path: Path
) -> None:
    direct = tideline.connect(f"http://127.0.0.1:{killed.port}")
    orders = direct.collection("orders", key="id", journal_s=3600, journal_before=True)
    orders.put({"id": 0, "shop": 0, "total": 1})
    pick = random.Random(11)
    js.visit(killed.proxy.url)
    js("(m, url) => { globalThis.db = m.connect(url); }", killed.proxy.url)
    js(FOLLOW, ["orders", ASKED])
    killed.proxy.allow = lambda: pick.randint(4000, 40_000) if killed.proxy.cuts < 12 else None
    for n in range(150):
        while True:
            try:
                write(orders, pick)
                break
            except tideline.errors.Unavailable:
                continue  # it may have landed: then there is one write more
        if n == 75:
            killed.kill()
            killed.start()
        elif n % 30 == 0:
            killed.proxy.cut()
        elif n % 10 == 0:  # some arrive as they are written, others after a cut
            wait_for(lambda: js("() => queries[0].version") >= orders.position())
    wait_for(lambda: js("() => queries.every(({ state }) => state === 'open')"))
    noted = js(NOTED)
    js("() => db.close()")
    direct.close()
    killed.stop()
    with tideline.open(tmp_path / "data") as db:
        written = db.collection("orders").changes(after=0).take()
    with tideline.open(":memory:") as other:
        model = other.collection("orders", key="id")
        states: list[dict[int, list[Any]]] = [{} for _ in ASKED]
        for change in written:
            if change.after is None:
                model.delete(change.key)
            else:
                model.put(change.after)
            for asked, known in zip(ASKED, states, strict=True):
                known[change.seq] = find(model, asked)
    for asked, one, known in zip(ASKED, noted, states, strict=True):
        check(asked, one, known)
        assert "reset" not in one["hows"]
    assert any("missed" in one["hows"] for one in noted)
    assert killed.proxy.cuts >= 5
    killed.start()


@IN_NODE
def test_what_the_server_has_not_kept_is_told_as_a_difference(js: JavaScript) -> None:
    """Old versions are kept for a minute after the last query has gone."""
    pick = random.Random(3)
    clock = ManualClock(time.time())
    with tideline.open(":memory:", clock=clock) as db, running(db) as url:
        js.visit(url)
        js("(m, url) => { globalThis.db = m.connect(url); }", url)
        orders = db.collection("orders", key="id")
        for _ in range(30):
            write(orders, pick)
        js(FOLLOW, ["orders", ASKED])
        js("() => db.disconnect()")
        wait_for(lambda: orders.hub.count == 0)
        clock.advance(3600)
        wait_for(lambda: all(one.name != "tideline-live" for one in threading.enumerate()))
        for _ in range(30):
            write(orders, pick)
        js("() => db.reconnect()")
        wait_for(lambda: js("() => queries.every(({ state }) => state === 'open')"))
        for asked, noted in zip(ASKED, js(NOTED), strict=True):
            assert noted["result"] == find(orders, asked)
            assert noted["wrong"] == []
            first = noted["states"][0][1]
            last = replayed(asked, first, noted["changes"])
            if asked[2]:
                assert last == noted["result"]
            else:  # without places, what is as it was stays where it was
                assert sorted(last, key=repr) == sorted(noted["result"], key=repr)
            assert (noted["hows"], noted["reset"]) == (["first", "reset"], True)
        js("() => db.close()")


@IN_NODE
def test_a_loop_that_is_far_behind_is_told_the_difference(
    db: Any, url: str, js: JavaScript
) -> None:
    orders = db.collection("orders", key="id")
    js(
        """async () => {
          globalThis.live = db.collection("orders").watch({}, { sort: { id: 1 }, limit: 3 });
          globalThis.all = db.collection("orders").watch();
          await Promise.all([live.ready, all.ready]);
          globalThis.loops = [live, all].map((one) => one[Symbol.asyncIterator]());
        }"""
    )
    for _ in range(3):
        orders.put_many([{"id": n, "n": _} for n in range(4000)])
    orders.delete_where({"id": {"$gte": 10}})
    told = js(
        """async () => {
          await db.sync();
          const read = async (loop) => {
            const told = [];
            for (;;) {
              const next = await Promise.race([loop.next(), db.sync()]);
              if (typeof next === "string") return told; // there is no more
              told.push(next.value);
            }
          };
          return [await read(loops[0]), (await read(loops[1])).length];
        }"""
    )
    assert told[1] == 10
    assert replayed(ASKED[1], [], told[0]) == [{"id": n, "n": 2} for n in range(3)]


def test_what_is_wrong_is_said_and_ends_are_told(db: Any, url: str, js: JavaScript) -> None:
    orders = db.collection("orders", key="id")
    orders.put({"id": 1, "shop": 7})
    wrong: list[tuple[str, Any, Any]] = [
        ("watch", {"shop": {"$gtt": 3}}, {}),
        ("watch", {}, {"sort": {"shop": 3}}),
        ("watch", {}, {"limit": -1}),
        ("watch", {}, {"offset": -1}),
        ("watch", {}, {"skip": 3}),
        ("watch", {}, {"first": False}),
        ("watch_groups", {}, {"count": True}),
        ("watch_groups", {}, {"by": "shop", "sum": 3}),
    ]
    for verb, where, options in wrong:
        with pytest.raises(Thrown, match=r"^InvalidRequest: "):
            js(
                """async (m, [verb, where, options]) => {
                  const live = db.collection("orders")[verb](where, options);
                  const thrown = await live.ready.catch((error) => error);
                  if (live.state !== "ended" || live.error !== thrown) throw new Error(live.state);
                  await live.cancel();
                  for await (const change of live) throw new Error(change.kind);
                }""",
                ["watchGroups" if verb == "watch_groups" else verb, where, options],
            )
    unsaid = "() => db.collection('orders').watch({ shop: undefined }).ready"
    with pytest.raises(Thrown, match=r"^InvalidRequest: where.shop is undefined"):
        js(unsaid)
    plan = "() => db.collection('orders').explainWatch({ shop: 7 }, { limit: 10 })"
    assert js(plan)["kept"] == orders.explain_watch({"shop": 7}, limit=10).kept == 20
    assert orders.hub.count == 0
    with pytest.raises(Thrown, match=r"^NotFound: "):
        js("() => db.collection('order').watch().ready")
    ended = js(
        """async () => {
          const orders = db.collection("orders");
          const short = orders.watch({}, { ttl_s: 0.2 });
          const longer = orders.watch({}, { ttl_s: 0.3 });
          const dropped = orders.watchGroups(null, { by: "shop", count: true });
          await Promise.all([short.ready, longer.ready, dropped.ready]);
          const unsaid = await longer.prolong({ ttl: 600 }).catch(({ name }) => name);
          await longer.prolong({ ttl_s: 600 });
          const until = Date.parse(longer.until) - Date.now() > 500_000;
          for await (const change of short) throw new Error(change.kind);
          const both = ({ name, message }) => [name, message];
          const late = await short.prolong({ ttl_s: 600 }).catch(both);
          const left = [];
          for await (const change of (async function* () {
            const loop = dropped[Symbol.asyncIterator]();
            await orders.put({ id: 2, shop: 7 });
            yield (await loop.next()).value;
          })()) left.push([change.kind, change.key, change.document.count]);
          await db.dropCollection("orders");
          for await (const change of dropped) left.push(change.kind);
          return [short.reason, longer.reason, until, dropped.reason, left, unsaid, late];
        }"""
    )
    assert ended.pop() == ["Closed", "this has ended: expired"]
    assert ended == ["expired", "dropped", True, "dropped", [["change", 7, 2]], "InvalidRequest"]


def test_one_that_was_told_to_stay_is_there_after_a_break(
    db: Any, url: str, js: JavaScript
) -> None:
    db.collection("orders", key="id").put({"id": 1})
    stayed = js(
        """async () => {
          const live = db.collection("orders").watch({}, { ttl_s: 600 });
          await live.ready;
          await live.prolong({ ttl_s: null });
          db.disconnect(); db.reconnect();
          await db.sync();
          return [live.until, live.state];
        }"""
    )
    assert stayed == [None, "open"]


def test_a_token_sees_its_rows_and_none_when_it_is_revoked(
    locked: tuple[Any, str, Tokens], js: JavaScript
) -> None:
    db, url, tokens = locked
    orders = db.collection("orders", key="id")
    orders.put_many([{"id": 1, "owner": "ann"}, {"id": 2, "owner": "bob"}])
    secret, made = tokens.create(["read:orders"], user="ann", rows={"orders": {"owner": "$user"}})
    js(
        """async (m, [url, token]) => {
          globalThis.mine = m.connect(url, { token });
          globalThis.live = mine.collection("orders").watch(null, { sort: { id: 1 } });
          globalThis.told = [];
          live.subscribe((changes) => told.push(...changes.map(({ kind, key }) => [kind, key])));
          await live.ready;
        }""",
        [url, secret],
    )
    orders.put({"id": 3, "owner": "bob"})
    orders.update(1, {"$set": {"owner": "bob"}})
    orders.put({"id": 4, "owner": "ann"})
    js("() => mine.sync()")
    assert js("() => [live.result, told]") == [
        [{"id": 4, "owner": "ann"}], [["remove", 1], ["add", 4]]
    ]  # fmt: skip
    tokens.revoke(made.id)
    wait_for(lambda: js("() => live.state") == "ended")
    assert js("() => { mine.close(); return [live.result, told.at(-1)]; }") == [[], ["remove", 4]]


SCRIPT = """
import { Rows, same } from %s;
let seed = 7;
const below = (n) => {
  seed = (seed * 1103515245 + 12345) %% 2147483648;
  return (seed >> 16) %% n;
};
const make = (id) => ({ id, n: below(3), deep: { a: below(2) }, ...(below(2) ? { x: [1] } : {}) });
const list = () => {
  const ids = [];
  for (let id = 0; id < 8; id++) if (below(3)) ids.splice(below(ids.length + 1), 0, id);
  return ids.map(make);
};
const key = ({ id }) => id;
for (let round = 0; round < 4000; round++) {
  const placed = round %% 2 === 0;
  const [had, wanted] = [list(), list()];
  const rows = new Rows(key, placed, had);
  const other = rows.copy();
  const changes = rows.replace(wanted, 5);
  const told = changes.map(({ kind, version, old_index, index, key, document, fields, gone }) => {
    if (kind === "add") return other.apply([kind, version, index, document]);
    if (kind === "remove") return other.apply([kind, version, old_index, key]);
    const places = kind === "change" ? [index] : [old_index, index];
    return other.apply([kind, version, ...places, key, fields, gone]);
  });
  const lost = rows.result.filter((row) => had.some((old) => old !== row && same(old, row)));
  if (lost.length || !same(rows.result, wanted)) throw new Error(`round ${round}: rows`);
  if (!same(told, changes)) throw new Error(`round ${round}: told`);
  if (placed && !same(other.result, wanted)) throw new Error(`round ${round}: places`);
}
const moved = new Rows(key, true, [0, 1, 2, 3, 4].map((id) => ({ id })));
const said = moved.replace([1, 2, 3, 4, 0].map((id) => ({ id })), 9);
const places = said.map(({ kind, key, old_index, index }) => [kind, key, old_index, index]);
console.log(JSON.stringify(places));
"""


def test_the_difference_of_two_results_is_right_and_short() -> None:
    """The module alone: random pairs of results, and one row that moved."""
    script = SCRIPT % json.dumps(ROWS.as_uri())
    done = subprocess.run(
        [*NODE, "--input-type=module", "--eval", script],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.stderr, done.stdout) == ("", '[["changeIndex",0,0,4]]\n')


def test_the_nearest_come_first_and_stay_first(db: Any, url: str, js: JavaScript) -> None:
    places = db.collection("places", key="id")
    places.put_many([{"id": n, "at": [n / 100, 0]} for n in range(5)])
    near = {"at": {"$near": {"$geometry": {"type": "Point", "coordinates": [0.02, 0]}}}}
    first, last, nearest = js(
        """async (m, [near]) => {
          const places = db.collection("places");
          const live = places.watch(near);
          const first = (await live.ready).map(({ id }) => id);
          await places.put({ id: 9, at: [0.0201, 0] });
          await places.put({ id: 2, at: [0.05, 0] });
          await places.put({ id: 8, at: [0.012, 0] });
          await db.sync();
          const last = live.result.map(({ id }) => id);
          await live.cancel();
          const options = { field: "at", limit: 2, where: { id: { $lt: 9 } } };
          const found = (await places.nearest([0.02, 0], options))
            .map(({ document, metres }) => [document.id, Math.round(metres)]);
          return [first, last, found];
        }""",
        [near],
    )
    assert first == [2, 3, 1, 0, 4]
    assert last == [one["id"] for one in places.find(near)] == [9, 8, 3, 1, 0, 4, 2]
    assert nearest == [[8, 890], [3, 1112]]
