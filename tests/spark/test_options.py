"""Options and columns of the format `tideline`: what is refused, and in which words.

Readers and writers are made here as Spark makes them, without Spark.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tideline import Flat, Grid, QuadTree, Topics
from tideline.channel import tables
from tideline.channel.annotations import ANSWERS
from tideline.errors import InvalidRequest, TidelineError
from tideline.spark import share
from tideline.spark.client import connect

# Spark parses the types that a test writes down, and wants a session for it.
pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

QUAD = QuadTree(bounds=(-80, 40, -72, 48), depth=9)
EVENTS = {"id": "string", "place": "string", "at": "timestamp", "body": "string"}


@pytest.fixture
def source(open_database: Callable[..., Any]) -> Callable[..., Any]:
    """`source(channel=...)`: the data source with these options, on a store with `roads`."""
    from pyspark.sql.datasource import CaseInsensitiveDict

    from tideline.spark.source import TidelineSource

    db = open_database()
    db.channel("roads", journal_s=3600)
    db.channel("plain")
    db.channel("quads", space=QUAD)
    share(db)

    def make(**options: str | None) -> TidelineSource:
        given = {"path": str(db.path), "channel": "roads", **options}
        kept = {name: value for name, value in given.items() if value is not None}
        return TidelineSource(CaseInsensitiveDict(kept))

    return make


def struct(columns: dict[str, str]) -> Any:
    from pyspark.sql.types import StructType, _parse_datatype_string

    found = StructType()
    for name, kind in columns.items():
        found.add(name, _parse_datatype_string(kind))
    return found


@pytest.mark.parametrize("space", [Flat(), Topics(), Grid((0, 0, 9, 9), rows=4, cols=4), QUAD])
@pytest.mark.parametrize("kind", ["events", "subscriptions", "answers"])
def test_the_schema_is_the_channels(space: Any, kind: str) -> None:
    from pyspark.sql.pandas.types import to_arrow_schema

    from tideline.spark.columns import schema_of

    there = ANSWERS if kind == "answers" else tables.schema_of(kind, space)
    assert to_arrow_schema(schema_of(kind, space.spec()), timezone="UTC") == there


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"channel": "rods"},
            r"no such channel\. name='rods', channels=\['plain', 'quads', 'roads'\]",
        ),
        ({"channel": None}, "the option channel is missing"),
        ({"path": None}, "the store's folder is missing"),
        ({"path": "http://host/x"}, "the path must be the folder of a store"),
        ({"colour": "red"}, "takes no such option, it is unknown: there are channel, kind, place"),
        ({"chanel": "c"}, r"it is unknown \(did you mean channel\?\): there are channel, kind"),
        ({"op": "publish"}, "a batch read takes no such option, it is one of a batch write"),
        ({"maxRowsPerBatch": "5"}, "it is one of a streaming read"),
        ({"kind": "cars"}, "kind must be one of events, subscriptions"),
        ({"kind": "answers"}, "kind must be one of events, subscriptions"),
        ({"since": "yesterday"}, "since must be ISO 8601 or seconds since 1970"),
        ({"until": "1e400"}, "until must be ISO 8601 or seconds since 1970"),
        ({"where": "{n: 1}"}, "where must be JSON"),
        ({"where": "[1]"}, "where must be a JSON object"),
        ({"where": '{"n": {"$gtee": 1}}'}, r"where.n.\$gtee is not an operator: did you mean"),
        ({"kind": "subscriptions", "where": '{"n": 1}'}, "where asks about the bodies of events"),
        ({"since": "2030-01-01", "until": "2020-01-01"}, "the window must end after it starts"),
        ({"until": "9990-01-01"}, "until must lie in the years 1 to 9891"),
        ({"since": "60", "until": "60"}, "the window must end after it starts"),
        ({"place": ""}, "a place must be text of 1 to 512 bytes"),
        (
            {"channel": "quads", "place": "circle:1,2"},
            "expected circle:LON,LAT,RADIUS_M, 3 numbers",
        ),
        ({"channel": "quads", "place": "circle:500,2,3"}, "a circle's center must be"),
        ({"bodyAs": "struct"}, "bodyAs must be one of json, variant"),
        ({"placeAs": "text"}, "placeAs must be one of columns, struct"),
        ({"kind": "subscriptions", "bodyAs": "variant"}, "no body for the option bodyAs"),
        ({"channel": "quads", "place": "9/9"}, "a quad path is 1 to 9 of the digits 1 to 4"),
    ],
    ids=str,
)
def test_a_read_that_cannot_be_says_why(
    source: Callable[..., Any], options: dict[str, Any], said: str
) -> None:
    with pytest.raises(TidelineError, match=said):
        source(**options).reader(struct(EVENTS))


@pytest.mark.parametrize("options", [{"where": '{"n": {"$gtee": 1}}'}, {"place": ""},
                                     {"since": "9", "until": "8"}], ids=str)  # fmt: skip
def test_load_says_what_is_wrong(source: Callable[..., Any], options: dict[str, str]) -> None:
    with pytest.raises(InvalidRequest):
        source(**options).schema()  # Spark asks for it in load()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("fial", "did you mean 'fail'? A folder of that name is './fial'"),
        ("Drop", "did you mean 'drop'?"),
        ("dropped", "did you mean 'drop'? A folder of that name is './dropped'"),
        ("keep", "must be fail, drop or the path of a folder. A folder of that name is './keep'"),
        (" ", "must be fail, drop or the path of a folder. given=' '"),
        ("s3a://bucket/bad", "of S3 it is s3://, with the keys of the environment"),
    ],
)
def test_a_word_that_is_nearly_one_is_no_folder(
    source: Callable[..., Any], given: str, said: str
) -> None:
    with pytest.raises(InvalidRequest, match=re.escape(said)):
        source(rejected=given).writer(struct(EVENTS), False)
    with pytest.raises(InvalidRequest, match=re.escape(said)):
        source(rejected=given, channel=None, collection="c", key="id").writer(
            struct({"document": "string"}), False
        )
    for folder in ("./fial", "/rows/keep", "bad rows", "s3://bucket/drop"):
        source(rejected=folder).writer(struct(EVENTS), False)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"id": "string", "colour": "string"}, "events have no such column: there are id, place"),
        ({"boddy": "string"}, r"no such column \(did you mean 'body'\?\)"),
        ({"id": "bigint"}, "the column id of events is string. asked='bigint'"),
        ({"body": "bigint"}, "the column body of events is string, or a struct. asked='bigint'"),
        ({"body": "struct<d: binary>"}, r"not read as this type.*column='body.d', type='binary'"),
        ({"place": "struct<lon: double>"}, "places have no such column: there are name"),
        ({"place": "struct<name: int>"}, "the column name of places is string. asked='int'"),
    ],
    ids=str,
)
def test_columns_that_are_not_there_are_not_read(
    source: Callable[..., Any], columns: dict[str, str], said: str
) -> None:
    with pytest.raises(InvalidRequest, match=said):
        source().reader(struct(columns))
    with pytest.raises(InvalidRequest, match=said):
        source().streamReader(struct(columns))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"channel": "rods"}, "no such channel"),
        ({"kind": "cars"}, "kind must be one of events, subscriptions, answers"),
        ({"startingPosition": "noon"}, "startingPosition must be earliest, latest or a position"),
        ({"maxRowsPerBatch": "0"}, "maxRowsPerBatch must be a whole number from 1 on"),
        ({"maxRowsPerBatch": "many"}, "maxRowsPerBatch must be a whole number from 1 on"),
        ({"where": "{}"}, "a streaming read takes no such option, it is one of a batch read"),
        ({"channel": "plain", "kind": "answers"}, "notes no answers: open it with journal_s"),
    ],
    ids=str,
)
def test_a_stream_that_cannot_be_says_why(
    source: Callable[..., Any], options: dict[str, Any], said: str
) -> None:
    from tideline.spark.columns import schema_of

    schema = schema_of(options.get("kind", "events"), {"kind": "flat"})
    with pytest.raises(TidelineError, match=said):
        source(**options).streamReader(schema)


@pytest.mark.parametrize(
    ("columns", "options", "said"),
    [
        ({}, {"channel": "rods"}, "no such channel"),
        ({}, {"colour": "red"}, "write takes no such option, it is unknown"),
        ({}, {"place": "p1"}, "it is one of a batch read"),
        ({}, {"op": "cancel"}, "op must be one of publish, subscribe, apply"),
        ({}, {"op": "subscribe"}, "the column user is missing: whose subscription it is"),
        ({}, {"op": "apply"}, "the column op is missing: publish, subscribe or cancel"),
        ({}, {"order": "size"}, "order must be one of time, arrival"),
        ({}, {"space": '{"kind": "topics"}'}, "the channel has another space"),
        ({}, {"space": "topics"}, "space must be JSON"),
        ({}, {"channel": "new", "space": '{"kind": "cube"}'}, "a space's kind must be one of"),
        ({"at": None}, {}, "the column at is missing: the time of each row"),
        ({"body": None}, {}, "the column body is missing: JSON text"),
        ({"place": None}, {}, "a place is missing"),
        ({"colour": "string"}, {}, "the column colour is unknown; with op publish there are id"),
        ({"at": "string"}, {}, r"at must hold timestamps, not string: for example F.to_timestamp"),
        ({"until": "date"}, {}, "the column until must hold timestamps"),
        ({"id": "bigint"}, {}, "the column id must hold text, not bigint"),
        (
            {"body": "map<string,int>"},
            {},
            r"not map<string,int>: write JSON, for example F.to_json",
        ),
        ({"body": "struct<d: date>"}, {}, r"body.d is date, which no JSON value is: .*F.to_json"),
        ({"place": "struct<nam: string>"}, {}, r"a place has no nam \(did you mean 'name'\?\)"),
        ({"place": "struct<lon: string, lat: int>"}, {}, "place.lon must hold numbers, not string"),
        ({"place": "struct<lon: int>", "lon": "int"}, {}, "goes without lon, lat and radius_m"),
        (
            {"body": None, "At": "timestamp", "at": None, "boddy": "string", "id": "int"},
            {},
            r"at is missing \(did you mean 'At'\?\).*body is missing \(did you mean 'boddy'\?\)"
            r".*id must hold text, not int.*columns=\{'id': 'int', .*'boddy': 'string'\}",
        ),
        ({"lon": "string"}, {}, "the column lon must hold numbers"),
        ({"op": "string", "unseen": "int"}, {"op": "apply"}, "unseen must hold booleans"),
    ],
    ids=str,
)
def test_a_write_that_cannot_be_says_why(
    source: Callable[..., Any], columns: dict[str, Any], options: dict[str, Any], said: str
) -> None:
    given = {name: kind for name, kind in {**EVENTS, **columns}.items() if kind is not None}
    with pytest.raises(TidelineError, match=said):
        source(**options).writer(struct(given), False)
    with pytest.raises(TidelineError, match=said):
        source(**options).streamWriter(struct(given), False)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"writer": "w"}, "give the options writer and number together"),
        ({"number": "1"}, "give the options writer and number together"),
        ({"writer": "w", "number": "x"}, "number must be a whole number from 0 on"),
    ],
    ids=str,
)
def test_a_writer_is_named_with_its_number(
    source: Callable[..., Any], options: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidRequest, match=said):
        source(**options).writer(struct(EVENTS), False)
    with pytest.raises(InvalidRequest, match="a streaming write takes no such option"):
        source(**options).streamWriter(struct(EVENTS), False)


def test_rows_are_never_replaced(source: Callable[..., Any]) -> None:
    with pytest.raises(InvalidRequest, match=r"use mode\('append'\)"):
        source().writer(struct(EVENTS), True)


def test_nothing_is_made_by_a_write_that_cannot_be(source: Callable[..., Any]) -> None:
    with pytest.raises(InvalidRequest):
        source(channel="new", space='{"kind": "flat"}').writer(struct({"at": "timestamp"}), False)
    with pytest.raises(TidelineError, match="no such channel"):
        source(channel="new").schema()


def test_a_relative_path_is_made_absolute() -> None:
    from tideline.spark.options import target

    found = target({"path": "./data", "channel": "x"}, "read")
    assert re.fullmatch(r"/.*/data", found.path)


def test_types_that_spark_has_more_of_are_taken(source: Callable[..., Any]) -> None:
    """Numbers of any width, times without a zone, columns of nulls."""
    columns = {"place": "void", "lon": "decimal(9,6)", "lat": "int", "radius_m": "float"}
    columns |= {"at": "timestamp_ntz", "until": "void", "body": "string"}
    source(channel="map", space='{"kind":"quadtree","bounds":[0,0,9,9],"depth":3}').writer(
        struct(columns), False
    )


def test_the_guide_has_every_option_where_it_goes() -> None:
    from tideline.spark.options import _NAMES, _PLACES

    page = Path(__file__).resolve().parents[2] / "docs" / "guide" / "spark-source.md"
    lines = page.read_text().partition("## Options")[2].partition("\n## ")[0].splitlines()
    told: dict[str, set[str]] = {each: set() for each in [*_NAMES, "follow window"]}
    for line in lines:
        if not line.startswith("| `"):
            continue
        names, *cells = line.split("|")[1:6]
        for doing, cell in zip(("read", "follow", "write", "stream"), cells, strict=True):
            assert set(cell.strip().split(", ")) <= {"", "both", "channel", "collection", "window"}
            cell = cell.replace("both", "channel, collection")
            for name in re.findall("`([a-zA-Z]+)`", names):
                if "channel" in cell:
                    told[doing].add(name)
                if "collection" in cell:
                    told[f"{doing} documents"].add(name)
                if "window" in cell:
                    told[f"{doing} window"].add(name)
    assert told.pop("follow window") == set()
    assert told == {doing: {*names, *_PLACES} for doing, names in _NAMES.items()}


# ---- positions ----------------------------------------------------------------------------


def batches(follower: Any, start: dict[str, str] | None = None) -> tuple[list[list[str]], Any]:
    """The ids that a query would read, by micro-batch, as Spark asks for them; and the offset."""
    follower.prepareForTriggerAvailableNow()
    found = []
    offset = follower.initialOffset() if start is None else start
    while True:
        end = follower.latestOffset(offset, follower.getDefaultReadLimit())
        if end == offset:
            follower.stop()
            return found, offset
        parts = follower.partitions(offset, end)
        found.append([i for p in parts for b in follower.read(p) for i in b["id"].to_pylist()])
        offset = end


def publish(client: Any, first: int, limit: int) -> None:
    numbers = range(first, limit)
    rows = [{"op": "publish", "id": f"e{n}", "place": "p", "body": "{}"} for n in numbers]
    times = pa.array([n * 1_000_000 for n in numbers], pa.timestamp("us", "UTC"))
    table = pa.Table.from_pylist(rows).append_column("at", times)
    client.commit("roads", [client.stage("job", table.to_batches())])


@pytest.fixture
def schema() -> Any:
    from tideline.spark.columns import schema_of

    return schema_of("events", {"kind": "flat"})


def test_a_stream_starts_where_it_is_told_and_goes_on(
    source: Callable[..., Any], schema: Any
) -> None:
    client = connect(source().options["path"])
    publish(client, 0, 3)
    middle = client.position("roads")
    publish(client, 3, 5)
    publish(client, 5, 6)
    every = source().streamReader(schema)
    assert batches(every)[0] == [["e0", "e1", "e2", "e3", "e4", "e5"]]
    limited = source(maxRowsPerBatch="2").streamReader(schema)
    found, offset = batches(limited)
    assert found == [["e0", "e1", "e2"], ["e3", "e4"], ["e5"]]  # whole calls
    assert batches(source(startingPosition=middle).streamReader(schema))[0] == [["e3", "e4", "e5"]]
    latest = source(startingPosition="latest").streamReader(schema)
    assert batches(latest)[0] == []
    publish(client, 6, 8)
    assert batches(source().streamReader(schema), offset)[0] == [["e6", "e7"]]
    for position, said in (("0:0", "does not reach back so far"), ("9:0", "after the journal")):
        with pytest.raises(TidelineError, match=said):
            batches(source(startingPosition=position).streamReader(schema))


def test_a_checkpoint_of_another_channel_is_refused(
    source: Callable[..., Any], schema: Any, open_database: Callable[..., Any]
) -> None:
    client = connect(source().options["path"])
    publish(client, 0, 5)
    _, offset = batches(source().streamReader(schema))
    db = open_database()
    db.drop_channel("roads")
    db.channel("roads", journal_s=3600)
    share(db)
    publish(client, 0, 50)
    with pytest.raises(InvalidRequest, match=r"the checkpoint is of another channel.*new checkp"):
        batches(source().streamReader(schema), offset)
