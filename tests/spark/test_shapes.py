"""Bodies, documents and places as structs and VARIANT: what is written is what is read."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tideline import QuadTree
from tideline.spark import share
from tideline.testing import ManualClock

pytestmark = pytest.mark.spark

START = datetime(2030, 1, 1, tzinfo=UTC)
QUAD = QuadTree(bounds=(-80, 40, -72, 48), depth=9)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START.timestamp())


@pytest.fixture
def db(open_database: Callable[..., Any]) -> Any:
    found = open_database()
    found.channel("roads", journal_s=3600)
    found.channel("map", space=QUAD, journal_s=3600)
    found.collection("tweets", key="id", journal_s=3600, journal_before=True)
    share(found)
    return found


@pytest.fixture
def save(db: Any) -> Callable[..., None]:
    def write(frame: Any, **options: str) -> None:
        frame.write.format("tideline").options(**options).mode("append").save(str(db.path))

    return write


@pytest.fixture
def load(db: Any, spark: Any) -> Callable[..., Any]:
    def read(schema: str | None = None, **options: str) -> Any:
        reader = spark.read.format("tideline").options(**options)
        return (reader.schema(schema) if schema else reader).load(str(db.path))

    return read


def test_bodies_are_read_and_written_as_struct_and_variant(
    db: Any, spark: Any, save: Any, load: Any
) -> None:
    from pyspark.sql import functions as F

    frame = spark.sql(
        "select id, place, timestamp'2030-01-01 00:00:00Z' at, body from values "
        "('a', 'p', named_struct('n', 1L, 'tags', array('x', null), "
        "'deep', named_struct('y', 0.5D))), "
        "('b', 'p', named_struct('n', null, 'tags', null, 'deep', null)) t(id, place, body)"
    )
    save(frame, channel="roads")
    variants = frame.selectExpr("id || 2 as id", "place", "at", "parse_json(to_json(body)) as body")
    save(variants, channel="roads")
    bodies = {event.id: event.body for event in db.channel("roads").find("p")}
    assert bodies["a"] == bodies["a2"] == {"n": 1, "tags": ["x", None], "deep": {"y": 0.5}}
    assert bodies["b"] == bodies["b2"] == {}
    read = load("id string, body struct<n: long, deep: struct<y: double>>", channel="roads")
    found = {row.id: row.body for row in read.collect()}
    assert (found["a"].n, found["a"].deep.y, found["b"].n) == (1, 0.5, None)
    texts = load(channel="roads", bodyAs="variant").select("id", F.to_json("body").alias("body"))
    assert {row.id: json.loads(row.body) for row in texts.collect()} == bodies
    empty = spark.sql(
        "select 'p' place, timestamp'2030-01-01' at, cast(null as struct<n: int>) body"
    )
    with pytest.raises(Exception, match=r"1 of 1 rows are rejected.*body"):
        save(empty, channel="roads")


def test_documents_are_read_and_written_as_struct_variant_and_columns(
    db: Any, spark: Any, save: Any, load: Any
) -> None:
    frame = spark.sql(
        "select named_struct('id', id, 'user', 'u' || id, 'x', null) document from range(3)"
    )
    save(frame, collection="tweets")
    save(frame.selectExpr("parse_json(to_json(document)) as document").where(
        "variant_get(document, '$.id', 'int') = 2"), collection="tweets")  # fmt: skip
    tweets = db.collection("tweets")
    assert tweets.find(sort=[("id", 1)]) == [{"id": n, "user": f"u{n}"} for n in range(3)]
    columns = load("user string, seq long, id int, none date", collection="tweets").orderBy("id")
    assert [tuple(row) for row in columns.collect()] == [
        ("u0", 1, 0, None), ("u1", 2, 1, None), ("u2", 4, 2, None),
    ]  # fmt: skip
    whole = load("document struct<id: long, user: string>, key string", collection="tweets")
    assert whole.where("document.user = 'u1'").head().key == "1"
    variant = load(collection="tweets", bodyAs="variant", high="1")
    assert variant.selectExpr("sum(variant_get(document, '$.id', 'int'))").head()[0] == 1


def test_a_stream_of_changes_has_before_in_any_shape(db: Any, spark: Any, tmp_path: Any) -> None:
    tweets = db.collection("tweets")
    tweets.put({"id": 1, "user": "ann"})
    tweets.put({"id": 1, "user": "bob"})
    tweets.delete(1)

    def changes(name: str, schema: str | None = None, **options: str) -> list[Any]:
        stream = spark.readStream.format("tideline").options(collection="tweets", **options)
        stream = stream.schema(schema) if schema else stream
        query = (
            stream.load(str(db.path)).writeStream.format("parquet").trigger(availableNow=True)
            .option("checkpointLocation", str(tmp_path / f"{name}.c")).start(str(tmp_path / name))
        )  # fmt: skip
        query.awaitTermination()
        return list(spark.read.parquet(str(tmp_path / name)).orderBy("seq").collect())

    rows = changes("text", before="true")
    assert [row.op for row in rows] == ["c", "u", "d"]
    assert [row.before and json.loads(row.before)["user"] for row in rows] == [None, "ann", "bob"]
    schema = "seq long, user string, before struct<user: string>"
    rows = changes("struct", schema, before="true")
    assert [row.user for row in rows] == ["ann", "bob", None]
    assert [row.before and row.before.user for row in rows] == [None, "ann", "bob"]
    with pytest.raises(Exception, match="of streams with the option before"):
        changes("none", schema)


def test_places_are_read_and_written_as_structs(db: Any, spark: Any, save: Any, load: Any) -> None:
    frame = spark.sql(
        "select id, place, timestamp'2030-01-01 00:00:00Z' at, '{}' body from values "
        "('a', named_struct('name', null, 'lon', -73.98D, 'lat', 40.75D, 'radius_m', null)), "
        "('b', named_struct('name', null, 'lon', -74.5D, 'lat', 41, 'radius_m', 250)), "
        "('c', named_struct('name', '1.4.2', 'lon', null, 'lat', null, 'radius_m', null)) "
        "t(id, place)"
    )
    save(frame, channel="map")
    found = {row.id: row.place for row in load(channel="map", placeAs="struct").collect()}
    assert (found["a"].lon, found["a"].lat, found["a"].name, found["a"].west) == (
        -73.98,
        40.75,
        None,
        None,
    )
    assert (found["b"].radius_m, found["c"].name) == (250.0, "1.4.2")
    some = load("id string, place struct<lon: double, name: string>", channel="map")
    assert {row.id: tuple(row.place) for row in some.collect()} == {
        "a": (-73.98, None), "b": (-74.5, None), "c": (None, "1.4.2"),
    }  # fmt: skip
    save(
        frame.selectExpr("id", "named_struct('name', 'p') as place", "at", "body"), channel="roads"
    )
    flat = load(channel="roads", placeAs="struct", place="p")
    assert flat.schema["place"].dataType.simpleString() == "struct<name:string>"
    assert flat.where("place.name = 'p'").count() == 3


# ---- texts and values, without Spark ----------------------------------------------------------

LEAVES = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text()
LEAVES |= st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner),
)


def kind_of(value: Any) -> pa.DataType:
    """A type that holds this value and others of its kind; lists take the type of the first."""
    if isinstance(value, dict):
        return pa.struct([pa.field(name, kind_of(part)) for name, part in sorted(value.items())])
    if isinstance(value, list):
        return pa.list_(kind_of(value[0] if value else None))
    known = {bool: pa.bool_(), int: pa.int64(), float: pa.float64()}
    return known.get(type(value), pa.string())


def as_kind(value: Any, kind: pa.DataType) -> Any:
    """What a value is as another type: the rule, written down plainly."""
    if pa.types.is_struct(kind):
        if not isinstance(value, dict):
            return None
        return {field.name: as_kind(value.get(field.name), field.type) for field in kind}
    if pa.types.is_list(kind):
        if not isinstance(value, list):
            return None
        return [as_kind(each, kind.value_type) for each in value]
    if value is None:
        return None
    if kind == pa.string():
        return value if isinstance(value, str) else json.loads(json.dumps(value))
    if kind == pa.bool_():
        return value if isinstance(value, bool) else None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    if kind == pa.int64():
        return value if isinstance(value, int) else None
    return float(value)


@given(st.lists(st.dictionaries(st.sampled_from("abc"), VALUES), min_size=1, max_size=4))
def test_every_json_is_read_as_any_type(documents: list[dict[str, Any]]) -> None:
    from tideline.spark.shapes import from_json

    kind = kind_of(documents[0])
    texts = pa.array([json.dumps(each) for each in documents] + [None])
    found = from_json(texts, kind).to_pylist()
    assert found.pop() is None
    for row, document in zip(found, documents, strict=True):
        assert loosely(row) == loosely(as_kind(document, kind))


def loosely(value: Any) -> Any:
    """Texts that are JSON as their values: how numbers are spelled is not compared."""
    if isinstance(value, dict):
        return {name: loosely(part) for name, part in value.items()}
    if isinstance(value, list):
        return [loosely(part) for part in value]
    if isinstance(value, str):
        try:
            return loosely(json.loads(value))
        except (ValueError, RecursionError):
            return value
    return value


def test_a_text_that_is_no_object_is_null() -> None:
    from tideline.spark.shapes import from_json

    kind = pa.struct([pa.field("n", pa.int64())])
    texts = pa.array(["null", "5", "[]", '"x"', "{", '{"n": 1e3}', ' {"n":1}\n'])
    assert from_json(texts, kind).to_pylist() == [None] * 5 + [{"n": None}, {"n": 1}]
