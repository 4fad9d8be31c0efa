"""`bulk_load` into collections and channels: as if the sink had written it, or nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import tideline
from tideline.errors import InvalidRequest
from tideline.spark import share

pytestmark = pytest.mark.spark


@pytest.fixture
def db(open_database: Callable[..., Any]) -> Any:
    """A shared database."""
    found = open_database()
    share(found)
    return found


def test_a_bulk_load_of_a_channel_is_as_if_it_had_been_published(db: Any, spark: Any) -> None:
    from pyspark.sql import functions as F

    from tideline.spark import bulk_load

    space = tideline.QuadTree(bounds=(-10, -10, 10, 10), depth=6)
    told, loaded = (db.channel(name, space=space) for name in ("told", "loaded"))
    now = F.lit(db.clock.now() // 1_000_000)
    body = F.struct((F.col("id") % 11).alias("n"), F.repeat(F.lit('\u00e9"'), 3).alias("t"))
    place = F.struct((F.col("id") % 90 / 5 - 9).alias("lon"), (F.col("id") % 7).alias("lat"))
    rows = spark.range(3000).repartition(3).select(
        F.format_string("e%d", "id").alias("id"),
        place.alias("place"),
        F.timestamp_seconds(now - F.col("id")).alias("at"),
        F.timestamp_seconds(now - F.col("id") + 2500).alias("until"),
        body.alias("body"),
    ).cache()  # fmt: skip
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        rows.write.format("tideline").option("channel", "told").mode("append").save(str(db.path))
        done = bulk_load(rows, loaded)
        assert done.rows + done.expired == 3000
        assert done.expired > 400
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    box = tideline.Box(-10, -10, 10, 10)
    for place, where in ((box, None), (tideline.Circle((0.8, 3), 1_000), None), (box, {"n": 4})):
        found = [
            {
                (one.id, one.place, one.at, one.until, str(one.body))
                for one in each.find(place, where=where)
            }
            for each in (told, loaded)
        ]
        assert found[0] == found[1]
        assert found[0]
    loaded.core.engine.check()
    with pytest.raises(Exception, match="an event of this id is there already"):
        bulk_load(rows, db.path, channel="loaded")
    more = rows.withColumn("id", F.concat(F.lit("x"), "id"))
    assert bulk_load(more, db.path, channel="loaded").first == done.last + 1
    with pytest.raises(InvalidRequest, match="did you mean 'body'"):
        bulk_load(rows.withColumnRenamed("body", "bodi"), loaded)
    with pytest.raises(Exception, match="ahead of the clock"):
        bulk_load(rows.withColumn("at", F.expr("at + interval 2 hours")), loaded)
    with pytest.raises(InvalidRequest, match="are for collections"):
        bulk_load(rows, loaded, clustered=True)
    loaded.subscribe(box, user="ann", until_s=60)
    with pytest.raises(InvalidRequest, match="publish the events"):
        bulk_load(rows, loaded)
    assert list((db.path / "spool").iterdir()) == []


@pytest.mark.parametrize(
    ("target", "named", "said"),
    [
        ("data", {}, "a folder needs the name"),
        ("data", {"collection": "a", "channel": "b"}, "a folder needs the name"),
        ("http://127.0.0.1:1", {"channel": "b"}, "a server takes rows, never files"),
        ("http://127.0.0.1:1", {"collection": "b"}, "a server takes rows, never files"),
        (7, {}, "give a collection, a channel, or the folder"),
    ],
)
def test_a_bulk_load_to_nowhere_says_where_it_can_go(
    spark: Any, target: Any, named: dict[str, str], said: str
) -> None:
    from tideline.spark import bulk_load

    with pytest.raises(InvalidRequest, match=said):
        bulk_load(spark.range(3), target, **named)


def test_a_bulk_load_is_as_if_it_had_been_put(db: Any, spark: Any) -> None:
    from tideline.spark import bulk_load

    indexes = {"a": "lazy", "b": "eager", "c": "composite", "d": "embedded"}
    put = db.collection("put", key="id", indexes=indexes)
    loaded = db.collection("loaded", key="id", indexes=indexes)
    first = [{"id": n, "a": -1, "b": "x", "c": 0, "d": 0.5} for n in range(0, 900, 3)]
    rows = [
        {"id": n, "a": n % 7, "b": "xyz"[n % 3], "c": n // 5, "d": n / 8, "text": 'é"\n' * (n % 4)}
        for n in range(3000)
    ]
    for one in (put, loaded):
        one.put_many(first)
    put.put_many(rows)
    frame = spark.createDataFrame(pa.Table.from_pylist(rows)).repartition(3)
    assert bulk_load(frame, loaded, partitions=4).rows == 3000
    assert loaded.find(sort=[("id", 1)]) == put.find(sort=[("id", 1)])
    for where in ({"a": 3}, {"b": "y", "c": {"$lt": 40}}, {"d": {"$gte": 300}}, {"a": -1}):
        found = [{one["id"] for one in each.find(where)} for each in (put, loaded)]
        assert found[0] == found[1], where
    loaded._engine.check()
    with pytest.raises(Exception, match="two rows have one key"):
        bulk_load(frame.union(frame), loaded)
    older = frame.selectExpr("id", "a + 100 as a", "-1 as v")
    both = older.union(frame.selectExpr("id", "a", "id as v"))
    assert bulk_load(both, db.path, "loaded", version="v").rows == 3000
    assert loaded.get(2999) == {"id": 2999, "a": 2999 % 7, "v": 2999}
    assert list((db.path / "spool").iterdir()) == []


def test_places_and_words_are_indexed_in_the_tasks_and_asked_by_where(db: Any, spark: Any) -> None:
    from tideline.spark import bulk_load

    indexes: dict[str, Any] = {"at": "spatial", "text": "words"}
    sights = db.collection("sights", key="id", indexes=indexes)
    rows = spark.range(2000).selectExpr(
        "id", "concat_ws(' ', 'stop', if(id % 3 = 0, 'fog', 'ice')) as text",
        "named_struct('type', 'Point', 'coordinates', array(id % 40 / 4D - 5, id % 50 / 5D - 5))"
        " at",
    )  # fmt: skip
    assert bulk_load(rows.repartition(3), sights).rows == 2000
    told = {row.id: (row.at["coordinates"], row.text) for row in rows.collect()}
    near = {
        key for key, ((lon, lat), text) in told.items()
        if -1 <= lon <= 1 and 0 <= lat <= 2 and "fog" in text
    }  # fmt: skip
    box = [[[-1, 0], [1, 0], [1, 2], [-1, 2], [-1, 0]]]
    where = {
        "at": {"$geoWithin": {"$geometry": {"type": "Polygon", "coordinates": box}}},
        "text": {"$words": "fog"},
    }
    found = {one["id"] for one in sights.find(where)}
    read = spark.read.format("tideline").option("collection", "sights")
    read = read.option("where", json.dumps(where)).schema("id long").load(str(db.path))
    assert {row.id for row in read.collect()} == found
    assert len(found) > 20
    # Edges are great circles: a point at the very edge of the box may be on either side.
    assert {key for key in found ^ near if 0 < told[key][0][1] < 2} == set()
    assert "scan" not in [way.way for way in sights.explain(where).chosen]
