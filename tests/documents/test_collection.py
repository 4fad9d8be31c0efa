"""What a collection promises, verb by verb, and what it refuses: embedded and on a server."""

from __future__ import annotations

import contextlib
import enum
import http
import math
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tideline
from tideline.documents.rows import DOCUMENT_LIMIT_BYTES, key_bytes
from tideline.errors import Closed, Conflict, InvalidRequest, NotFound, Unavailable
from tideline.where.keys import encode


@pytest.fixture
def tweets(open_database: Callable[..., Any], over: str) -> Any:
    return open_database(over=over).collection(
        "tweets", key="id", indexes={"user": "lazy", "time": "embedded"}
    )


# ---- writing ----------------------------------------------------------------------------------


def test_a_put_replaces_and_a_delete_removes(tweets: Any) -> None:
    tweets.put({"id": 1, "user": "a"})
    tweets.put({"id": 1, "user": "b"})
    assert tweets.get(1) == {"id": 1, "user": "b"}
    assert tweets.lookup("user", "a") == []
    tweets.delete(1)
    tweets.delete("never")
    assert tweets.get(1) is None
    assert tweets.lookup("user", "b") == []
    assert tweets.count() == 0


def test_a_document_comes_back_as_it_went_in(tweets: Any) -> None:
    document = {
        "id": "k", "user": None, "n": -0.5, "big": 2**70, "t": "é\u2028\x00", "deep": [[], {"": 0}],
    }  # fmt: skip
    tweets.put(document)
    assert tweets.get("k") == document


def test_what_is_like_json_is_stored_as_json(tweets: Any) -> None:
    class Road(enum.StrEnum):
        A1 = "a1"

    given = {"id": 1, "user": ("a", "b"), "time": OrderedDict(x=Road.A1), "n": http.HTTPStatus.OK}
    stored = {"id": 1, "user": ["a", "b"], "time": {"x": "a1"}, "n": 200}
    tweets.put(given)
    assert tweets.get(1) == stored
    assert tweets.lookup("user", "b") == [stored]
    assert tweets.put_many([{**given, "id": 2}]).stored == 1
    assert tweets.get(2) == {**stored, "id": 2}


@dataclass
class _Point:
    x: int


BAD = [
    ({"user": 1}, "lacks its key"),
    ({"id": None}, "whole number or text"),
    ({"id": True}, "whole number or text"),
    ({"id": 1.0}, "whole number or text"),
    ({"id": [1]}, "whole number or text"),
    ({"id": {}}, "whole number or text"),
    ({"id": 2**63}, "fit 64 bits"),
    ({"id": ""}, "1 to 1024 bytes"),
    ({"id": "x" * 1025}, "1 to 1024 bytes"),
    ({"id": 1, "x": math.nan}, "NaN or infinity"),
    ({"id": 1, "x": [math.inf]}, "NaN or infinity"),
    ({"id": 1, "x": object()}, "not JSON"),
    ({"id": 1, "x": b"bytes"}, "x is of type bytes"),
    ({"id": 1, "x": [{"y": bytearray(b"")}]}, "x.0.y is of type bytearray"),
    ({"id": 1, "x": Decimal("1.5")}, "a Decimal is given as float"),
    ({"id": 1, "x": {1, 2}}, "x is of type set"),
    ({"id": 1, "x": frozenset()}, "x is of type frozenset"),
    ({"id": 1, "x": _Point(1)}, "x is of type _Point"),
    ({"id": 1, 1: 2, "1": 3}, "the name 1 is of type int"),
    ({"id": 1, "x": [{None: 2}]}, "not JSON"),
    ({"id": 1, "x": {True: 2}}, "not JSON"),
    (_Point(1), "not JSON"),
    ({"id": 1, "x": 10**400}, "not JSON"),
    ([1], "JSON object"),
    (7, "JSON object"),
    ("[1]", "JSON object"),
    ('{"id": 1', "not JSON"),
    (b'{"id": 1, "x": NaN}', "not JSON"),
    (b'{"id": "\xff"}', "not JSON"),
    ("\ud800", "Unicode"),
]


@pytest.mark.parametrize(("document", "message"), BAD, ids=map(str, range(len(BAD))))
def test_a_bad_document_is_refused_alone_and_in_a_batch(
    tweets: Any, document: Any, message: str
) -> None:
    with pytest.raises(InvalidRequest, match=message):
        tweets.put(document)
    assert tweets.count() == 0
    done = tweets.put_many([{"id": 10}, document, {"id": 11}])
    assert done.stored == 2
    [row] = done.rejected.to_pylist()
    assert row["row"] == 1
    assert message in row["reason"]
    assert tweets.get_many([10, 11]) == [{"id": 10}, {"id": 11}]


def test_a_document_over_the_limit_is_refused(tweets: Any) -> None:
    document = {"id": 1, "x": "y" * DOCUMENT_LIMIT_BYTES}
    with pytest.raises(InvalidRequest, match="too large"):
        tweets.put(document)
    done = tweets.put_many([document, {"id": 2}])
    assert (done.stored, done.rejected["row"].to_pylist()) == (1, [0])


def test_a_table_is_stored_by_columns_or_as_json(tweets: Any) -> None:
    columns = pa.table({
        "id": pa.array([1, 2, 3], pa.int16()), "user": pa.array(["a", 'q"\\\n\x01', None]),
        "time": pa.array([1.0, math.nan, -2.5]), "ok": [True, None, False],
        "u": pa.array([2**63, 0, 1], pa.uint64()),
        "tag": pa.array(["x", "y", "x"]).dictionary_encode(),
        "deep": pa.array([{"a": [1, None]}, None, {"a": None}]),
    })  # fmt: skip
    done = tweets.put_many(columns)
    assert done.rejected.to_pylist() == [
        {"row": 1, "reason": "the column time holds NaN or infinity"}
    ]
    assert tweets.get(1) == {
        "id": 1, "user": "a", "time": 1.0, "ok": True, "u": 2**63, "tag": "x",
        "deep": {"a": [1, None]},
    }  # fmt: skip
    assert type(tweets.get(1)["time"]) is float
    assert tweets.get(3) == {"id": 3, "time": -2.5, "ok": False, "u": 1, "tag": "x", "deep": {}}
    texts = pa.table({"document": ['{"id": "a"}', None, '{"id": 5, "id": 6}']})
    done = tweets.put_many(texts)
    assert done.rejected.to_pylist() == [{"row": 1, "reason": "the document is null"}]
    assert tweets.get(6) == {"id": 6}
    assert tweets.put_many(columns.slice(0, 0)).stored == 0
    assert tweets.put_many(pa.table({})).rejected.num_rows == 0
    assert tweets.put_many(columns.select([])).rejected["row"].to_pylist() == [0, 1, 2]
    assert tweets.put_many(pa.chunked_array([["1"]]).combine_chunks().to_pylist()).stored == 0


def test_escapes_in_columns_are_json(tweets: Any) -> None:
    texts = [chr(code) * size for code in (*range(0x30), 0x5C, 0x7F, 0xE9, 0x1F600)
             for size in (1, 7, 8, 9)]  # fmt: skip
    tweets.put_many(pa.table({"id": range(len(texts)), "user": texts}))
    assert [each["user"] for each in tweets.get_many(range(len(texts)))] == texts


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (pa.table({"id": [1], "at": pa.array([0], pa.timestamp("us"))}), "no JSON value has"),
        (pa.table([[1], [2]], names=["id", "id"]), "two columns of one name"),
        (pa.table({"document": [1]}), "JSON as text"),
        ("{}", "list of documents"),
        ({"id": 1}, "list of documents"),
        (7, "list of documents"),
    ],
)
def test_a_bad_batch_is_refused_whole(tweets: Any, table: Any, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        tweets.put_many(table)
    assert tweets.count() == 0


def test_of_two_with_one_key_the_later_stays(tweets: Any) -> None:
    tweets.put_many([{"id": 1, "user": n} for n in range(100)])
    assert tweets.get(1) == {"id": 1, "user": 99}
    assert tweets.lookup("user", 50) == []


# ---- asking -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda t: t.get(None), "whole number or text"),
        (lambda t: t.get(1.5), "whole number or text"),
        (lambda t: t.get_many("abc"), "must be a list"),
        (lambda t: t.delete(True), "whole number or text"),
        (lambda t: t.lookup("place", 1), "has no index"),
        (lambda t: t.lookup("user", [1]), "value must be"),
        (lambda t: t.lookup("user", math.nan), "value must be"),
        (lambda t: t.lookup("user", 1, k=0), "k must be"),
        (lambda t: t.lookup("user", 1, k=-1), "k must be"),
        (lambda t: t.lookup("user", 1, k=True), "k must be"),
        (lambda t: t.range_lookup("time", 2, 1), "low must not be above high"),
        (lambda t: t.range_lookup("time", 1, "a"), "of one kind"),
        (lambda t: t.range_lookup("time"), "give low, high or both"),
        (lambda t: t.find([1]), "where must be"),
        (lambda t: t.find({"a": {"$no": 1}}), "not an operator"),
        (lambda t: t.find({}, limit=0), "limit must be"),
        (lambda t: t.find({}, sort="time"), "sort must be pairs"),
        (lambda t: t.find({}, sort=[("time", 2)]), "must be 1 or -1"),
        (lambda t: t.find({}, sort=[("time", 1), ("time", -1)]), "twice"),
        (lambda t: t.find({}, sort=[]), "sort must be pairs"),
        (lambda t: t.create_index("user", "composite"), "has an index"),
        (lambda t: t.create_index("id", "lazy"), "needs no index"),
        (lambda t: t.create_index("a", "btree"), "kind must be one of embedded"),
        (lambda t: t.create_index("a..b", "lazy"), "not a path"),
        (lambda t: t.drop_index("place"), "has no index"),
        (lambda t: list(t.scan(low=1.5)), "whole number or text"),
    ],
)
def test_bad_questions_are_refused(tweets: Any, call: Any, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        call(tweets)


def test_keys_of_both_types_stand_side_by_side(tweets: Any) -> None:
    keys = [5, -5, 0, 2**63 - 1, -(2**63), "5", "a", "é"]
    tweets.put_many([{"id": key} for key in keys])
    assert [each["id"] for each in tweets.find(sort=[("id", 1)])] == [
        -(2**63), -5, 0, 5, 2**63 - 1, "5", "a", "é",
    ]  # fmt: skip
    assert [each["id"] for each in tweets.find({"id": {"$gte": 0, "$lt": 6}})] == [0, 5]
    assert tweets.explain({"id": {"$in": [5, "a", "b"]}}).chosen[0].way == "key"
    for key in keys:
        assert key_bytes(key) == encode(key)
        assert tweets.get(key) == {"id": key}


def test_the_planner_takes_the_narrower_index(open_database: Callable[..., Any]) -> None:
    cars = open_database().collection("cars", key="id", indexes={"road": "lazy", "lane": "lazy"})
    cars.put_many([{"id": n, "road": n % 100, "lane": n % 2, "x": n} for n in range(5000)])
    told = cars.explain({"road": 7, "lane": 1})
    assert (told.chosen[0].field, told.found, told.looked_at) == ("road", 50, 50)
    assert "costs more than the index on road" in str(told)
    assert cars.explain({"lane": 1}).chosen[0].way == "scan"  # half of everything
    assert cars.explain({"lane": 1}, limit=5).chosen[0].way == "index"
    assert cars.explain({"x": 3}).others[0].why == "there is none"
    assert "  index on x: there is none\n" in str(cars.explain({"x": 3}))
    assert cars.explain({"id": 17}).looked_at == 1
    both = cars.explain({"$or": [{"road": 1}, {"id": 2}]})
    assert [way.way for way in both.chosen] == ["index", "key"]
    assert cars.explain({"road": {"$gt": 5, "$lt": 5}}).chosen == ()


def test_an_explanation_says_one_thing_of_the_scan(open_database: Callable[..., Any]) -> None:
    cars = open_database().collection("cars", key="id", indexes={"road": "lazy"})
    cars.put_many([{"id": n, "road": n % 50, "x": n} for n in range(1000)])

    def told(where: Any) -> list[tuple[str, str | None, str]]:
        found = cars.explain(where)
        return [(way.way, way.field, way.why) for way in (*found.chosen, *found.others)]

    assert told({"$or": [{"road": 7}, {"x": 3}]}) == [
        ("scan", None, "chosen"),
        ("index", "x", "there is none"),
        ("index", "road", "another part needs the scan"),
    ]
    assert told({"$or": [{"road": 7}, {"id": 3}, {"road": 8}]}) == [
        ("index", "road", "chosen"),
        ("key", "id", "chosen"),
        ("index", "road", "chosen"),
        ("scan", None, "costs more than these together"),
    ]
    many = {"$or": [{"road": {"$gte": 10 * n, "$lt": 10 * n + 8}} for n in range(5)]}
    assert told(many)[:2] == [
        ("scan", None, "chosen"),
        ("index", "road", "all parts together cost more than the scan"),
    ]
    assert told({"$or": [{"road": 7}, {"road": {"$in": []}}]}) == [
        ("index", "road", "chosen"),
        ("scan", None, "costs more than the index on road"),
    ]


@pytest.mark.parametrize(
    "where",
    [
        {"road": {"$in": []}}, {"x": {"$in": []}}, {"id": {"$in": []}},
        {"road": {"$gt": 5, "$lt": 5}},
        {"$or": [{"x": {"$in": []}}, {"road": {"$in": []}}]}, {"road": 1, "x": {"$in": []}},
    ],
    ids=str,
)  # fmt: skip
def test_an_explanation_says_that_nothing_can_match(
    open_database: Callable[..., Any], where: Any
) -> None:
    cars = open_database().collection("cars", key="id", indexes={"road": "lazy"})
    cars.put_many([{"id": n, "road": n % 50, "x": n} for n in range(100)])
    told = cars.explain(where)
    assert (told.chosen, told.why, told.looked_at) == ((), "nothing can meet the condition", 0)
    assert str(told).startswith("* no way: nothing can meet the condition")
    assert (cars.find(where), cars.count(where)) == ([], 0)
    assert cars.explain({"road": 1}).why is None


def test_reads_are_counted(open_database: Callable[..., Any]) -> None:
    cars = open_database().collection("cars", key="id", indexes={"road": "lazy", "t": "embedded"})
    cars.put_many([{"id": n, "road": n % 50, "t": n, "pad": "x" * 300} for n in range(4000)])
    cars._engine.seal()
    told = cars.explain({"road": 7})
    assert told.blocks_read > 0
    assert told.blocks_read <= 3 * told.blocks_expected
    few = cars.explain({"t": {"$gte": 100, "$lt": 110}})
    assert few.chosen[0].kind == "embedded"
    assert 0 < few.blocks_read < 20
    assert few.found == 10


# ---- settings ---------------------------------------------------------------------------------


def test_settings_are_stored_and_others_are_a_conflict(open_database: Callable[..., Any]) -> None:
    db = open_database()
    db.collection("c", key="id", indexes={"a": "lazy"}, policy="leveled", filter="t", bloom_bits=9)
    for _ in range(2):
        found = db.collection("c")
        assert (found.key, found.indexes, found.filter) == ("id", {"a": "lazy"}, "t")
        assert found.policy["name"] == "leveled"
        assert db.collection("c", key="id", indexes={"a": "lazy"}, policy="leveled") is found
        for other, message in [
            ({"key": "x"}, "another key"),
            ({"policy": "none"}, "another policy"),
            ({"policy": {"name": "leveled", "ratio": 4}}, "another policy"),
            ({"filter": "x"}, "another filter"),
            ({"bloom_bits": 10}, "another bloom_bits"),
            ({"indexes": {"a": "eager"}}, "another kind"),
            ({"indexes": {"a": "lazy", "b": "lazy"}}, "without an index on this field"),
            ({"indexes": {}}, "more indexes"),
        ]:
            with pytest.raises(Conflict, match=message):
                db.collection("c", **other)  # type: ignore[arg-type]
        db = open_database()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "needs the field"),
        ({"key": ""}, "name of a field"),
        ({"key": "a.b"}, "name of a field"),
        ({"key": 5}, "name of a field"),
        ({"key": "id", "indexes": "a"}, "indexes must be like"),
        ({"key": "id", "indexes": {"a": "hash"}}, "kind must be one of"),
        ({"key": "id", "indexes": {"id": "lazy"}}, "needs no index"),
        ({"key": "id", "policy": "tiered"}, "policy must be one of"),
        ({"key": "id", "policy": {"name": "prefix", "k": 3}}, "no such setting"),
        ({"key": "id", "policy": {"name": ["x"]}}, "policy must be one of"),
        ({"key": "id", "policy": {"name": "constant", "k": 0}}, "k must be .* at least 2"),
        ({"key": "id", "policy": {"name": "constant", "k": 1}}, "k must be .* at least 2"),
        ({"key": "id", "policy": {"name": "leveled", "ratio": 1}}, "ratio must be .* at least 2"),
        ({"key": "id", "policy": {"name": "prefix", "max_count": 0}}, "max_count .* at least 1"),
        ({"key": "id", "policy": {"name": "prefix", "max_count": 2.5}}, "a whole number"),
        ({"key": "id", "filter": "a..b"}, "^filter is not a path.*filter='a..b'"),
        ({"key": "id", "indexes": {"a..b": "lazy"}}, "^field is not a path"),
        ({"key": "id", "indexes": {f"f{n}": "lazy" for n in range(33)}}, "at most 32"),
        ({"key": "id", "filter": 5}, "must be text"),
        ({"key": "id", "bloom_bits": 0}, "from 1 to 1000"),
    ],
)
def test_bad_settings_make_no_collection(
    open_database: Callable[..., Any], settings: Any, message: str
) -> None:
    db = open_database()
    with pytest.raises(InvalidRequest, match=message):
        db.collection("c", **settings)
    assert db.collections() == []


def test_a_name_is_a_channel_or_a_collection(open_database: Callable[..., Any]) -> None:
    db = open_database()
    db.channel("roads")
    db.collection("cars", key="id")
    with pytest.raises(Conflict):
        db.collection("roads", key="id")
    with pytest.raises(Conflict):
        db.channel("cars")
    with pytest.raises(NotFound):
        db.drop_collection("roads")
    assert (db.channels(), db.collections(), list(db.stats())) == (
        ["roads"], ["cars"], ["cars", "roads"],
    )  # fmt: skip
    db.drop_collection("cars")
    assert open_database().collections() == []
    assert not list((open_database().path / "collections").iterdir())


def test_a_backup_has_the_collections(open_database: Callable[..., Any], tmp_path: Any) -> None:
    db = open_database()
    cars = db.collection("cars", key="id", indexes={"road": "composite"})
    cars.put_many([{"id": n, "road": n % 3} for n in range(100)])
    cars._engine.seal()
    cars.put({"id": 500, "road": 1})
    db.backup(tmp_path / "copy")
    cars.put({"id": 501, "road": 1})
    copy = open_database(tmp_path / "copy")
    assert copy.check().collections == 1
    assert copy.collection("cars").count() == 101
    assert copy.collection("cars").lookup("road", 1, k=1) == [{"id": 500, "road": 1}]


def test_stats_tell_versions_and_count_tells_documents(open_database: Callable[..., Any]) -> None:
    cars = open_database().collection("cars", key="id", policy={"name": "constant", "k": 2})
    cars.put_many([{"id": n} for n in range(3)])
    cars.delete_many(["not", "there", "ever"])
    for _ in range(40):
        cars.put({"id": 2})
    assert (cars.stats().versions, cars.count()) == (46, 3)
    assert not hasattr(cars.stats(), "documents")
    cars._engine.seal()
    assert (cars.stats().versions, cars.count()) == (6, 3)  # the newest of every key, and deletes
    cars.put({"id": 2})
    cars._engine.seal()
    cars._engine.drain()
    assert (cars.stats().versions, cars.count()) == (3, 3)  # all in one component


def test_a_closed_collection_says_so(open_database: Callable[..., Any]) -> None:
    db = open_database()
    cars = db.collection("cars", key="id", indexes={"a": "lazy"})
    db.close()
    calls = [
        lambda: cars.put({"id": 1}), lambda: cars.get_many([1]), lambda: cars.find({"a": 1}),
        lambda: cars.lookup("a", 1), lambda: cars.get(1), lambda: list(cars.scan()), cars.stats,
        cars.advise, cars.count, lambda: cars.delete(1), lambda: cars.explain({"a": 1}),
        lambda: cars.create_index("b", "lazy"), lambda: cars.drop_index("a"),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(Closed):
            call()


# ---- indexes ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["eager", "lazy", "composite", "embedded"])
def test_an_index_is_built_beside_writers(open_database: Callable[..., Any], kind: str) -> None:
    cars = open_database().collection("cars", key="id", filter="t")
    cars.put_many([{"id": n, "a": n % 10, "t": n} for n in range(3000)])
    stop = threading.Event()
    written: list[int] = []

    def write() -> None:
        for number in range(3000, 20_000):
            if stop.is_set():
                return
            cars.put({"id": number % 4000, "a": number % 10, "t": number})
            written.append(number)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        build = cars.create_index("a", kind)
        assert "a" in cars.indexes or 0 <= build.progress < 1
        with contextlib.suppress(Unavailable):
            build.wait(timeout_s=0.001)
        build.wait()
    finally:
        stop.set()
        thread.join()
    assert build.progress == 1
    assert cars.indexes == {"a": kind}
    for value in range(10):
        found = cars.lookup("a", value)
        assert found == [each for each in cars.find() if each["a"] == value]


def test_a_collection_has_at_most_32_indexes(open_database: Callable[..., Any]) -> None:
    cars = open_database().collection(
        "cars", key="id", indexes={f"f{n}": "embedded" for n in range(31)}
    )
    cars.create_index("one", "embedded").wait()
    with pytest.raises(InvalidRequest, match="at most 32 indexes"):
        cars.create_index("more", "embedded")
    cars.drop_index("one")
    cars.create_index("more", "embedded").wait()
    assert len(cars.indexes) == 32


def test_advice_follows_the_workload(open_database: Callable[..., Any]) -> None:
    cars = open_database().collection("cars", key="id", indexes={"unused": "eager"})
    cars.put_many([
        {"id": n, "user": n * 7919 % 97, "time": n, "road": n * 31 % 11} for n in range(2000)
    ])  # fmt: skip
    for number in range(2000):
        cars.get(number)
    for number in range(200):
        cars.find({"user": number % 97}, limit=10)
        cars.find({"road": number % 11})
    cars.find({"time": {"$gte": 5, "$lt": 9}})
    found = {each.field: each for each in cars.advise()}
    assert {field: each.kind for field, each in found.items()} == {
        "unused": None, "user": "lazy", "road": "composite", "time": "embedded",
    }  # fmt: skip
    assert found["unused"].now == "eager"
    assert found["time"].facts["rises_with_time"] == 1.0
    assert abs(found["user"].facts["rises_with_time"]) < 0.2
    assert found["user"].facts["small_k_share"] == 1.0
    assert {each.kind for each in cars.advise(scarce=True)} == {None, "embedded"}


def test_few_lookups_among_many_writes_want_no_index_of_their_own(
    open_database: Callable[..., Any],
) -> None:
    cars = open_database().collection("cars", key="id")
    cars.put_many([{"id": n, "user": n * 7919 % 97} for n in range(2000)])
    for number in range(500):
        cars.get(number)
    cars.find({"user": 3}, limit=5)
    [advice] = cars.advise()
    assert (advice.kind, advice.now) == ("embedded", None)
    assert "writes" in advice.why


def test_in_memory_keeps_nothing() -> None:
    with tideline.open(":memory:") as db:
        cars = db.collection("cars", key="id", indexes={"a": "composite"})
        cars.put({"id": 1, "a": 2})
        assert cars.lookup("a", 2) == [{"id": 1, "a": 2}]
        assert cars.stats().bytes_log == 0


@pytest.mark.parametrize(
    "keys",
    [
        [2**n for n in range(50)] + [-(3**n) for n in range(30)],
        [f"the same beginning {n:05}" for n in range(3_000)],
        [*range(1_000), 10**15, "a", "b" * 900, *(f"{n}" for n in range(500))],
    ],
    ids=["powers", "prefix", "mixed"],
)
def test_every_key_is_found_however_keys_lie(tmp_path: Path, keys: list[Any]) -> None:
    with tideline.open(tmp_path / "db") as db:
        things = db.collection("things", key="id")
        things.put_many([{"id": key} for key in keys])
        things._engine.seal()
        assert [things.get(key) for key in keys] == [{"id": key} for key in keys]
        assert not any(things.get(f"{key}!") for key in keys)
        assert things.get(5 * 10**14) is None
        assert things.get(-(10**18)) is None


@pytest.mark.parametrize("kind", ["lazy", "composite", "eager", "embedded"])
@pytest.mark.parametrize("k", [1, 10, 1024, 1025, None])
def test_a_lookup_goes_past_what_was_replaced(tmp_path: Path, kind: str, k: int | None) -> None:
    """The newest entries of a value are mostly of documents that have another value by now."""
    with tideline.open(tmp_path / "db") as db:
        cars = db.collection("cars", key="id", indexes={"road": kind})
        cars.put_many([{"id": n, "road": "A1"} for n in range(4_000)])
        cars._engine.seal()
        cars.put_many([{"id": n, "road": "B2"} for n in range(100, 4_000)])
        want = [{"id": n, "road": "A1"} for n in range(99, -1, -1)][:k]
        assert cars.lookup("road", "A1", k=k) == want
        assert cars.range_lookup("road", "A0", "A9", k=k) == want
        newest = [{"id": n, "road": "B2"} for n in range(3_999, 99, -1)][:k]
        assert cars.lookup("road", "B2", k=k) == newest
        assert cars.lookup("road", "C3", k=k) == []


# ---- what was asked, over openings ----------------------------------------------------------


def test_advice_speaks_of_what_was_asked_before_it_was_opened(
    open_database: Callable[..., Any],
) -> None:
    indexes = {"user": "lazy", "road": "composite", "unused": "lazy"}
    cars = open_database().collection("cars", key="id", indexes=indexes)
    cars.put_many([{"id": n, "user": n * 7919 % 97, "road": n * 31 % 11} for n in range(500)])
    for number in range(100):
        cars.lookup("user", number, k=5)
    for number in range(2000):
        cars.get(number % 500)
    cars = open_database().collection("cars")
    for number in range(100):
        cars.lookup("user", number, k=5)
        cars.count({"road": number % 11})
    found = {each.field: each for each in cars.advise()}
    assert found["user"].facts["lookups"] == 200
    assert (found["user"].kind, found["road"].kind) == ("lazy", "composite")
    assert found["road"].facts["lookups"] == 100
    assert found["unused"].kind is None
    again = open_database().collection("cars")
    assert [each.facts for each in again.advise()] == [each.facts for each in found.values()]
    assert again.stats().gets == 0  # stats are of this opening


def test_advice_begins_anew(open_database: Callable[..., Any]) -> None:
    cars = open_database().collection("cars", key="id", indexes={"user": "lazy"})
    cars.put_many([{"id": n, "user": n % 7} for n in range(50)])
    cars.lookup("user", 3)
    cars = open_database().collection("cars")
    cars.lookup("user", 3)
    cars.forget_workload()
    assert (cars.advise()[0].kind, cars.stats().lookups) == (None, 1)
    cars.lookup("user", 3)
    assert cars.advise()[0].facts["lookups"] == 1
    cars = open_database().collection("cars")
    assert cars.advise()[0].facts["lookups"] == 1


def test_conditions_to_come_count_once(open_database: Callable[..., Any]) -> None:
    cars = open_database().collection("cars", key="id")
    cars.put_many([{"id": n, "user": n * 7919 % 97} for n in range(50)])
    [advice] = cars.advise(where=[{"user": 3}], limit=5)
    assert (advice.field, advice.kind) == ("user", "lazy")
    assert (cars.advise(), cars.stats().finds) == ([], 0)
    with pytest.raises(InvalidRequest, match="where must be a list"):
        cars.advise(where={"user": 3})


def test_names_without_end_are_not_counted_without_end(open_database: Callable[..., Any]) -> None:
    cars = open_database().collection("cars", key="id")
    for number in range(300):
        cars.find({f"f{number}": 1})
    cars = open_database().collection("cars")
    for number in range(300, 600):
        cars.find({f"f{number}": 1})
    assert len(cars.advise()) == 256
    assert len(open_database().collection("cars").advise()) == 256
