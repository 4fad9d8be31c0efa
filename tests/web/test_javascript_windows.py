"""The JavaScript client's stream windows: rows, ranges and panes are those of the library.

`js(function, value)` runs JavaScript with the client's module `m`, in Node and in Chromium
(javascript.py); `db` in it is a connection to the server of the test.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
from javascript import JavaScript, Thrown, wait_for

START = 1_577_836_800
MAKE = """async () => {
  globalThis.cars = db.window("cars", { span_s: 30, slide_s: 10, key: ["seg", "vid"],
    values: { vel: "int32" }, time: "at", max_ahead_s: "never" });
  await cars.info();
}"""


def row(seg: int, vid: int, vel: int | None, at: float) -> dict[str, Any]:
    return {"seg": seg, "vid": vid, "vel": vel, "at": START + at}


def test_rows_are_appended_found_and_mapped(db: Any, url: str, js: JavaScript) -> None:
    js(MAKE)
    cars = db.window("cars")
    done = js(
        """async (m, [rows, at]) => {
          const first = await cars.append(rows, { once: ["page", 1] });
          const again = await cars.append(rows, { once: ["page", 1] });
          const one = await cars.append({ seg: 2, vid: 9, vel: 80, at: new Date(at * 1000) });
          return [first, again, one];
        }""",
        [[row(1, 7, 50, 0), row(1, 8, 60, 12), row(1, 9, None, 12), row(1, 7, 55, 14),
          row(1, 3, 5, -25)], START + 14.5],
    )  # fmt: skip
    assert done == [
        {"stored": 3, "late": 1, "rejected": {"2": "vel is missing"}, "repeated": False},
        {"stored": 0, "late": 0, "rejected": {"2": "vel is missing"}, "repeated": True},
        {"stored": 1, "late": 0, "rejected": {}, "repeated": False},
    ]
    assert js(
        """async () => [await cars.get([1, 7]), await cars.get([1, 99]),
          await cars.getMany([[1, 8], [5, 5]]), await cars.range([1], { map: "mean(vel)" }),
          await cars.range(null, { map: { n: "count()", high: "max(vel)" }, last_s: 10 }),
          await cars.range([[1, 8], null], { map: "count()" }),
          await cars.range([1], { closed: true })]"""
    ) == [
        {"vel": 55}, None,
        [{"seg": 1, "vid": 8, "vel": 60, "found": True},
         {"seg": 5, "vid": 5, "vel": None, "found": False}],
        cars.range((1,), map="mean(vel)"), {"n": 3, "high": 80}, 2,
        [{"seg": 1, "vid": 7, "vel": 50, "since": "2020-01-01T00:00:00Z"}],
    ]  # fmt: skip
    names, rows, left = js(
        """async () => {
          const names = (await db.windows()).map(({ name }) => name);
          const { rows } = await cars.stats();
          await db.dropWindow("cars");
          return [names, rows, await db.windows()];
        }"""
    )
    assert (names, rows, left, db.windows()) == (["cars"], 4, [], [])


def test_rows_are_found_by_places_and_words(db: Any, url: str, js: JavaScript) -> None:
    found = js(
        """async () => {
          const reports = db.window("reports", { span_s: 30, key: "vid", time: "t",
            values: { at: "point", text: "text", vel: "int8" }, max_ahead_s: "never",
            indexes: { at: "spatial", text: "words" } });
          await reports.append([
            { vid: 1, at: [2, 48], text: "flat tire", vel: 5, t: 1 },
            { vid: 2, at: { type: "Point", coordinates: [2.1, 48] }, text: "jam", vel: 6, t: 1 },
            { vid: 1, at: [3, 48], text: "jam", vel: 7, t: 31 },
          ]);
          const near = { at: { $near: [2.1, 48.01] } };
          return [await reports.find(near, { limit: 1 }),
            await reports.find({ text: { $words: "jam" } }, { map: "sum(vel)" }),
            (await reports.find(null, { newest: true })).map(({ vid }) => vid),
            await reports.find({ speed: 1 }).catch(({ message }) => message)];
        }"""
    )
    window = db.window("reports")
    assert found[0][0]["vid"] == 1
    assert found[1:3] == [window.find({"text": {"$words": "jam"}}, map="sum(vel)"), [1]]
    assert "no such field" in found[3]


def test_panes_of_a_condition_are_those_of_the_library(db: Any, url: str, js: JavaScript) -> None:
    js(MAKE)
    cars = db.window("cars")
    js(
        """async () => {
          globalThis.told = [];
          for (const options of [{ where: { vel: { $gt: 6 } } }, { newest: true }]) {
            const panes = cars.watch([1], { map: ["count()", "sum(vel)"], ...options });
            panes.onpane = ({ value }) => told.push(value);
            await panes.ready;
          }
        }"""
    )
    map = ["count()", "sum(vel)"]
    watches = [cars.watch((1,), map=map, where={"vel": {"$gt": 6}}),
               cars.watch((1,), map=map, newest=True)]  # fmt: skip
    cars.append([row(1, n % 5, n, n) for n in range(12)])
    js("() => db.sync()")
    right = [pane.value for watch in watches for pane in watch.take()]
    assert right == [{"count()": 3, "sum(vel)": 24}, {"count()": 5, "sum(vel)": 35}]
    wait_for(lambda: len(js("() => told")) == 2)
    assert sorted(js("() => told"), key=str) == sorted(right, key=str)
    with pytest.raises(Thrown, match="no such field"):
        js("() => cars.watch(null, { map: 'count()', where: { speed: 1 } }).next()")


def test_panes_are_told_at_each_slide_and_those_of_a_break_are_counted(
    db: Any, url: str, js: JavaScript
) -> None:
    js(MAKE)
    cars = db.window("cars")
    js(
        """async () => {
          globalThis.told = [];
          globalThis.panes = cars.watch([1], { map: ["count()", "sum(vel)"] });
          panes.onpane = ({ since, until, value, missed }) => told.push(
            [Date.parse(since) / 1000, Date.parse(until) / 1000, value, missed]);
          await panes.ready;
        }"""
    )
    watch = cars.watch((1,), map=["count()", "sum(vel)"])

    def expected() -> list[Any]:
        return [[p.since.timestamp(), p.until.timestamp(), p.value, 0] for p in watch.take()]

    cars.append([row(1, n, n, 4 * n) for n in range(12)])
    panes = expected()
    assert len(panes) == 4
    js("() => db.sync()")
    assert js("() => told.splice(0)") == panes
    js("() => db.disconnect()")
    wait_for(lambda: cars.stats().watches == 1)
    cars.append([row(1, 1, 5, 60), row(1, 1, 6, 75)])
    expected()
    js("() => db.reconnect()")
    wait_for(lambda: js("() => panes.state") == "open")
    cars.append(row(1, 2, 7, 95))
    told = expected()
    js("() => db.sync()")
    assert len(told) == 2
    told[0][3] = math.floor((told[0][1] - panes[-1][1]) / 10) - 1
    assert js("() => told") == told
    assert js("() => panes.cancel().then(() => [panes.state, panes.reason])") == [
        "ended", "cancelled"
    ]  # fmt: skip
    wait_for(lambda: cars.stats().watches == 1)


def test_a_loop_over_panes_ends_with_the_window(db: Any, url: str, js: JavaScript) -> None:
    js(MAKE)
    cars = db.window("cars")
    js(
        """async () => {
          const panes = cars.watch(null, { map: "count()" });
          globalThis.values = [];
          globalThis.loop = (async () => {
            for await (const { value } of panes) values.push(value);
            return panes.reason;
          })();
          await panes.ready;
        }"""
    )
    cars.append([row(1, 1, 1, 0), row(1, 2, 1, 11)])
    wait_for(lambda: js("() => values") == [1])
    db.drop_window("cars")
    assert js("() => loop") == "dropped"


WRONG = [
    ("cars.range([1], { map: 'mean(speed)' })", "InvalidRequest", "no such value"),
    ("cars.range([undefined])", "InvalidRequest", "is undefined"),
    ("cars.watch([1], {})", "InvalidRequest", "watch needs a map"),
    ("cars.watch([1], { map: 'men(vel)' }).next()", "InvalidRequest", "did you mean 'mean'"),
    ("cars.append([{ seg: 1, vid: NaN }])", "InvalidRequest", "JSON does not have"),
    ("db.window('crs').get([1, 2])", "NotFound", "no such window"),
    ("db.window('new', { span_s: 7, slide_s: 2, key: 'a' }).stats()", "InvalidRequest",
     "multiple of slide_s"),
]  # fmt: skip


def test_what_is_wrong_is_said(db: Any, url: str, js: JavaScript) -> None:
    js(MAKE)
    for call, name, said in WRONG:
        with pytest.raises(Thrown, match=said) as caught:
            js(f"async () => {call}")
        assert caught.value.name == name
