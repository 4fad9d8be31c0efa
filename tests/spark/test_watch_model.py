"""`watch` against `find` asked again after every write; the stages run without Spark.

Through Spark itself: test_watch_spark.py.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from watch_stream import QUERIES, Row, Stream, applied, asked, check, settings_of, story

from tideline.errors import Conflict
from tideline.spark import segments
from tideline.spark.watching import kept

pytestmark = pytest.mark.spark

GRIDS = [(1, 1), (2, 1), (1, 3), (2, 2), (3, 2)]


@pytest.fixture(params=["growing", "compacted"])
def compacting(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """State that is never written anew, or after every micro-batch and in small pieces."""
    if request.param == "compacted":
        monkeypatch.setattr(segments, "_MOST_SEGMENTS", -1)
        monkeypatch.setattr(segments.Segments, "most_bytes", 600)


def cut(rows: list[Row], draw: random.Random) -> list[list[Row]]:
    """Rows as micro-batches, in any order inside each."""
    made, at = [], 0
    while at < len(rows):
        size = draw.choice([1, 2, 5, 20])
        made.append(rows[at : at + size])
        draw.shuffle(made[-1])
        at += size
    return made


@pytest.mark.parametrize("grid", [None, *GRIDS])
def test_changes_give_what_find_gives_at_every_version(grid: Any, compacting: None) -> None:
    draw = random.Random(1)
    rows, results = story(2, 150)
    stream = Stream(settings_of(grid, QUERIES))
    found: list[Row] = []
    for batch in cut(rows, draw):
        if draw.random() < 0.3:
            kept._held.clear()  # the workers are killed
        found += stream.batch(batch, lost=draw.random() < 0.3)
    check(found, results)


@pytest.mark.parametrize("grid", GRIDS)
def test_a_query_that_comes_later_begins_with_what_is_there(grid: Any, compacting: None) -> None:
    draw = random.Random(3)
    rows, results = story(4, 120)
    stream = Stream(settings_of(grid, None))
    begun: dict[str, int] = {}
    ended: dict[str, int] = {}
    found: list[Row] = []
    for batch in cut(rows, draw):
        newest = min(row["seq"] for row in batch) - 1
        told: list[Row] = []
        for query in QUERIES:
            if query["id"] not in begun and draw.random() < 0.2:
                begun[query["id"]] = newest
                told.append(asked(query))
            elif query["id"] in begun and query["id"] not in ended and draw.random() < 0.03:
                ended[query["id"]] = max(row["seq"] for row in batch)
                told.append(asked(query, "cancel"))
            elif query["id"] in begun and query["id"] not in ended and draw.random() < 0.1:
                told.append(asked(query, "register"))  # again: nothing happens
        found += stream.batch(batch, told, lost=draw.random() < 0.2)
    assert begun
    assert ended
    for id, first in begun.items():
        mine = [row for row in found if row["query"] == id]
        last = ended.get(id, max(results))
        assert all(row["version"] <= last for row in mine)
        states = {version: each[id] for version, each in applied(mine).items()}
        now: Any = []
        for version in sorted(results):
            now = states.get(version, now)
            if first <= version <= last:
                assert now == results[version][id], (id, version)


@pytest.mark.parametrize("grid", [(1, 1), (2, 3)])
def test_what_comes_late_or_again_brings_nothing_back(grid: Any, compacting: None) -> None:
    draw = random.Random(5)
    rows, results = story(6, 100)
    late = [*rows, *draw.sample(rows, 60)]
    draw.shuffle(late)
    stream = Stream(settings_of(grid, QUERIES))
    found = [row for batch in cut(late, draw) for row in stream.batch(batch)]
    assert not [row for row in found if row["kind"] == "error"]
    newest = max(results)
    told: dict[Any, list[int]] = {}
    for row in found:
        told.setdefault((row["query"], row["key"]), []).append(row["version"])
    assert all(versions == sorted(versions) for versions in told.values())
    for query in QUERIES:  # when all has come, the result is right
        states = applied([row for row in found if row["query"] == query["id"]])
        last = states[max(states)][query["id"]] if states else []
        assert last == results[newest][query["id"]], query["id"]


def test_the_queries_of_a_batch_may_change_with_a_grid_and_not_without() -> None:
    rows, results = story(7, 60)
    few, others = QUERIES[:7], [*QUERIES[3:6], {**QUERIES[6], "limit": 2}, *QUERIES[7:]]
    stream = Stream(settings_of((2, 2), few))
    stream.batch(rows[:40])
    stream.settings = settings_of((2, 2), others)
    found = stream.batch(rows[40:])
    states = applied([row for row in found if row["query"] in ("page", "newest")])
    last = {id: state for version in sorted(states) for id, state in states[version].items()}
    assert last == {id: results[max(results)][id] for id in ("page", "newest")}
    top = [row for row in found if row["query"] == "top" and row["step"] == 0]
    assert [(row["kind"], row["index"]) for row in top] == [("add", 0)]

    plain = Stream(settings_of(None, few))
    plain.batch(rows[:40])
    plain.settings = settings_of(None, others)
    with pytest.raises(Conflict, match="without a grid the sorted and limited queries too"):
        plain.batch(rows[40:])


def test_a_row_that_is_wrong_is_told_and_ends_nothing() -> None:
    stream = Stream(settings_of((2, 2), None))
    queries = [
        {**asked({"id": "a"}), "where": "{"},
        asked({"id": "b", "where": {"n": {"$gtt": 1}}}),
        asked({"id": "c", "sort": 5}),
        asked({"id": "d", "offset": -1}),
        asked({"id": "e", "where": {"n": {"$delta": 1}}}),
        asked({"id": "f"}, "remove"),
        asked({"id": None}),
        asked({"id": "ok", "where": {"n": 1}}),
    ]
    write = {"key": "1", "seq": 1, "op": "u", "document": '{"id": 1, "n": 1}', "before": None}
    writes = [
        write,
        {**write, "key": "2", "document": "[1]"},
        {**write, "key": "3", "document": '{"n": 1}'},
        {**write, "key": "4", "op": "x"},
        {**write, "key": "5", "document": None},
        {**write, "key": None},
        {**write, "key": "6", "seq": None},
    ]
    found = stream.batch(writes, queries)
    assert [row for row in found if row["kind"] != "error"] == [
        {"query": "ok", "version": 1, "kind": "add", "key": "1", "index": None, "old_index": None,
         "document": '{"id": 1, "n": 1}', "step": None},
    ]  # fmt: skip
    why = {row["query"] or row["key"]: row["document"] for row in found if row["kind"] == "error"}
    words = {
        "a": "where is not JSON", "b": "$gtt", "c": "sort must be", "d": "offset", "e": "$delta",
        "f": "op must be register", None: "is missing", "2": "no JSON object", "3": "no field id",
        "4": "op must be c, u, r", "5": "no JSON object", "6": "seq is missing",
    }  # fmt: skip
    assert set(why) == set(words)
    assert {name for name, word in words.items() if word not in why[name]} == set()
    taken = stream.batch([], [asked({"id": "ok", "where": {"n": 2}})])
    assert [(row["query"], row["document"]) for row in taken] == [
        ("ok", '{"error":"id is taken by another query"}')
    ]
