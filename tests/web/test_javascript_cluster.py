"""The JavaScript client of a cluster: it finds the leader, and goes on when that is killed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from cluster.cluster_servers import Three, landed, three
from javascript import Node, Thrown, wait_for
from ports import free_port

import tideline
from tideline.server import running

_FOLLOW = """async (m, { urls, user }) => {
  globalThis.db = m.connect(urls, { timeout_s: 120 });
  globalThis.seen = { events: [], added: [], changed: [] };
  globalThis.sub = await db.channel("roads").subscribe("I-87", { user, until_s: 3600 });
  sub.onevent = (event) => seen.events.push(event.id);
  globalThis.live = db.collection("cars").watch({});
  live.subscribe((changes) => {
    for (const { kind, key } of changes) if (kind === "add") seen.added.push(key);
  });
  await live.ready;
  globalThis.feed = db.collection("cars").changes();
  feed.onchange = ({ key }) => seen.changed.push(key);
  await feed.ready;
  return db.url;
}"""


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Three]:
    with three(tmp_path) as found, found.connect() as db:
        landed(lambda: db.channel("roads"))
        landed(lambda: db.collection("cars", key="id", journal_before=True, journal_s=600))
        yield found


@pytest.fixture
def node(package: Path) -> Iterator[Node]:
    process = Node(package)
    yield process
    process.close()


def test_it_goes_on_when_the_leader_is_killed_and_misses_and_repeats_nothing(
    servers: Three, node: Node
) -> None:
    node(_FOLLOW, {"urls": servers.all, "user": "ann"})
    write = """async (m, { from, to }) => {
      for (let n = from; n < to; n++) {
        await db.channel("roads").publish("I-87", { n }, { id: `e${n}`, ttl_s: 3600 });
        for (const cars = db.collection("cars"); ;) {
          try {
            await cars.insert({ id: `c${n}` });
            break;
          } catch (error) {
            if (error instanceof m.Conflict) break; // it had landed
            if (!(error instanceof m.Unavailable)) throw error;
          }
        }
      }
    }"""
    node(write, {"from": 0, "to": 20})
    killed = servers.leader()
    servers.kill(killed)
    with servers.connect(*[name for name in servers.peers if name != killed]) as db:
        landed(lambda: db.collection("cars").put({"id": "while away"}))  # by somebody else
        db.channel("roads").publish("I-87", {}, id="while away", ttl_s=3600)
    node(write, {"from": 20, "to": 40})
    wanted = {
        "events": [*(f"e{n}" for n in range(20)), "while away", *(f"e{n}" for n in range(20, 40))],
        "added": [*(f"c{n}" for n in range(20)), "while away", *(f"c{n}" for n in range(20, 40))],
    }
    wanted["changed"] = wanted["added"]
    wait_for(lambda: all(len(node("async () => seen")[each]) >= 41 for each in wanted))
    seen = node("async () => seen")
    assert seen["events"] == wanted["events"]
    assert seen["changed"] == wanted["changed"]
    assert sorted(seen["added"]) == sorted(wanted["added"])
    assert node("async () => live.result.length") == 41
    publish = """async () => {
      await db.channel("roads").publish("I-87", {}, { id: "last", ttl_s: 3600 });
      return db.url;
    }"""
    wait_for(lambda: node(publish) == servers.urls[servers.leader()])


@pytest.mark.parametrize("guarded", [False, True], ids=["open", "with tokens"])
def test_one_address_is_enough_to_find_the_leader_with_ones_token(
    servers: Three, node: Node, guarded: bool
) -> None:
    token = servers.guard() if guarded else None

    def look(leader: str) -> None:
        follower = next(name for name in servers.peers if name != leader)
        given: dict[str, Any] = {"url": servers.urls[follower], "token": token}
        found = node(
            """async (m, { url, token }) => {
              const db = m.connect(url, { token, timeout_s: 120 });
              const reads = [(await db.collection("cars").find({})).length, db.url];
              await db.collection("cars").put({ id: 1 });
              const made = await db.collection("new", { key: "id" }).info();
              const roads = db.channel("roads");
              const sub = await roads.subscribe("I-87", { user: "bob", until_s: 3600 });
              await roads.publish("I-87", { n: 1 }, { ttl_s: 3600 });
              const taken = await sub.take({ timeout_s: 120 });
              db.close();
              return { reads, url: db.url, name: made.name, taken: taken.length };
            }""",
            given,
        )
        assert found["reads"][0] <= 1
        assert found["reads"][1] == servers.urls[follower]
        assert (found["url"], found["name"]) == (servers.urls[leader], "new")
        assert found["taken"] >= 1

    servers.while_one_leads(look)


def test_addresses_are_an_array_or_have_commas_between(node: Node) -> None:
    urls = ["http://127.0.0.1:1/", "https://b.example:2/base/"]
    for given in (urls, ",".join(urls), ", ".join(urls)):
        assert node("async (m, g) => m.connect(g).url", given) == "http://127.0.0.1:1"
    for bad in ([], ["http://a:1", "ftp://b"], "http://a:1,", ",", "no address"):
        with pytest.raises(Thrown, match="address") as thrown:
            node("async (m, g) => m.connect(g)", bad)
        assert thrown.value.name == "InvalidRequest"


def test_a_server_that_is_not_there_is_passed_over(servers: Three, node: Node) -> None:
    urls = [f"http://127.0.0.1:{free_port()}", *servers.all]
    assert node(
        """async (m, urls) => {
          const db = m.connect(urls, { timeout_s: 120 });
          await db.collection("cars").put({ id: "there" });
          return await db.collection("cars").get("there");
        }""",
        urls,
    ) == {"id": "there"}
    with servers.connect(servers.leader()) as db:  # a follower may lack the newest
        assert db.collection("cars").get("there") == {"id": "there"}


def test_a_pane_that_the_next_server_tells_again_comes_once(node: Node) -> None:
    """As after a failover: a leader tells of a slide before the majority has the row of it."""
    settings: dict[str, Any] = {
        "span_s": 30, "slide_s": 10, "key": ("vid",), "values": {"vel": "int32"}, "time": "t",
        "max_ahead_s": math.inf,
    }  # fmt: skip
    rows = [{"vid": 1, "vel": 10**n, "t": 1_577_836_800 + 10 * n} for n in range(3)]
    with (
        tideline.open(":memory:") as one,
        tideline.open(":memory:") as two,
        running(two) as second,
        ExitStack() as stack,
    ):
        windows = [db.window("cars", **settings) for db in (one, two)]
        urls = [stack.enter_context(running(one)), second]
        node(
            """async (m, urls) => {
              globalThis.db = m.connect(urls, { timeout_s: 120 });
              globalThis.told = [];
              globalThis.panes = db.window("cars").watch(null, { map: "sum(vel)" });
              panes.onpane = ({ value }) => told.push(value);
              await panes.ready;
            }""",
            urls,
        )
        windows[0].append(rows[:2])
        wait_for(lambda: node("async () => told") == [1])
        stack.close()
        wait_for(lambda: windows[1].stats().watches == 1)
        windows[1].append(rows)
        wait_for(lambda: node("async () => told.at(-1)") == 11)
        assert node("async () => told") == [1, 11]
