"""What a row meets on its way: every stage, and for every bad row the reason and its text."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pipelines import BOUNDS, INTERPRETED, config, dead, scan, time_of, write_file, write_rows

import tideline
from tideline.errors import InvalidRequest, TidelineError, Unavailable
from tideline.spark.pipeline import Pipeline
from tideline.spark.pipeline.config import read_config
from tideline.spark.pipeline.counts import add_up

pytestmark = pytest.mark.spark

MAP = {"kind": "quadtree", "bounds": BOUNDS, "depth": 5}


def parquet(folder: Path, name: str, columns: dict[str, Any]) -> None:
    """A Parquet file of a stream's source."""
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), sink)
    write_file(folder, f"{name}.parquet", sink.getvalue().to_pybytes())


def letters(folder: Path) -> dict[str, str]:
    """Reason (with its stage) by text."""
    return {row["text"]: f"{row['stage']}: {row['reason']}" for row in dead(folder)}


GOOD = {"id": "a", "when": "2026-01-01T00:00:00Z", "lon": -75, "lat": 42.5, "kind": " ice ",
        "size": {"w": 1, "h": [2]}}  # fmt: skip

BAD_TEXTS = {
    "": "parse: the text is empty",
    '{"id": "x"': "parse: the text is not one JSON object",
    '{"id": "x"} {"id": "y"}': "parse: the text is not one JSON object",
    '{"id": "x"},{"id": "y"}': "parse: the text is not one JSON object",
    '[{"id": "x"}]': "parse: the text is not one JSON object",
    "null": "parse: the text is not one JSON object",
}
BAD_FIELDS: list[tuple[dict[str, Any], str]] = [
    ({"lon": "west"}, "parse: lon: 'west' is not of the type double"),
    ({"lon": "12"}, "parse: lon: '12' is not of the type double"),
    ({"when": "yesterday"}, "parse: when: 'yesterday' is not of the type timestamp"),
    ({"size": 5}, "parse: size: '5' is not of the type struct<w: int, h: array<int>>"),
    ({"kind": "  "}, "clean: kind is missing"),
    ({"kind": "sun"}, "clean: kind must be one of ice, fog, not 'sun'"),
    ({"speed": "fast"}, "clean: speed: 'fast' is not of the type int"),
    ({"speed": "-5"}, "clean: speed must be at least 0, not '-5'"),
    ({"speed": "900"}, "clean: speed must be at most 200, not '900'"),
    ({"when": "1999-01-01T00:00:00Z"}, "clean: time must be at least 2000-01-01 00:00:00+00:00, "
     "not '1999-01-01 00:00:00'"),
    ({"id": "zero"}, "clean: ids are not zero"),
    ({"lat": None}, "place: lat is missing"),
    ({"lon": 10.5}, "place: the point 10.5, 42.5 lies outside the bounds -80, 40, -72, 45"),
    ({"id": None}, "deduplicate: id is missing, a part of the key"),
    ({"id": "long" * 100}, "store: id must be 1 to 256 bytes"),
]  # fmt: skip


def test_every_bad_row_is_a_dead_letter_with_its_reason_and_text(
    spark: Any, tmp_path: Path
) -> None:
    rows: list[Any] = [GOOD, {**GOOD, "id": "b", "kind": "fog", "speed": "40", "more": [1]}]
    for n, (change, _) in enumerate(BAD_FIELDS):
        rows.append({**GOOD, "id": f"bad{n}", **change})
    write_rows(tmp_path / "in", "a", [*rows, *BAD_TEXTS])
    write_file(tmp_path / "in", "b.jsonl", b'{"id": "\xff"}\n')
    told = config(
        tmp_path,
        source={"format": "json", "path": "in"},
        schema={"id": "string", "when": "timestamp", "lon": "double", "lat": "double",
                "kind": "string", "speed": "string", "size": "struct<w: int, h: array<int>>"},
        clean={
            "time": {"from": "when", "min": time_of(0).replace(year=2000)},
            "kind": {"trim": True, "required": True, "one_of": ["ice", "fog"]},
            "speed": {"cast": "int", "default": 50, "min": 0, "max": 200},
            "fast": {"sql": "speed / 0 > 1 OR speed >= 50"},
        },
        rule=[{"sql": "id IS NULL OR id <> 'zero'", "reason": "ids are not zero"}],
        place={"point": ["lon", "lat"]},
        store={"folder": "data", "channel": "c", "space": MAP},
        deduplicate={"by": ["id"], "within_s": 1e9},
        operation={"id": "id", "at": "time", "ttl_s": 1e8},
    )  # fmt: skip
    summary = Pipeline(told).run(spark=spark)
    found = letters(tmp_path)
    for n, (change, reason) in enumerate(BAD_FIELDS):
        if reason.startswith("store: "):  # the operation as the store got it
            (text,) = (text for text, why in found.items() if why.startswith("store: "))
            assert json.loads(text)["id"] == change["id"]
        else:
            text = json.dumps({**GOOD, "id": f"bad{n}", **change})
        assert found.pop(text) == reason
    for text, reason in BAD_TEXTS.items():
        assert found.pop(text) == reason
    assert list(found.values()) == ["parse: the text is not UTF-8"]
    bad = len(BAD_FIELDS) + len(BAD_TEXTS) + 1
    assert summary.counts == {
        "read": bad + 2, "stored": 2, "duplicate": 0, "late": 0, "filtered": 0, "dead": bad,
        "expired": 0,
    }  # fmt: skip
    stored = {row["id"]: json.loads(row["body"]) for row in scan(tmp_path)}
    first = {"id": "a", "lon": -75.0, "lat": 42.5, "kind": "ice", "speed": 50, "fast": True,
             "size": {"w": 1, "h": [2]}, "time": "2026-01-01T00:00:00.000Z"}  # fmt: skip
    second = {**first, "id": "b", "kind": "fog", "speed": 40}
    del second["fast"]  # what is divided by zero is not known, and 40 decides nothing
    assert stored == {"a": first, "b": second}


def test_csv_files_say_which_column_is_which(spark: Any, tmp_path: Path) -> None:
    write_file(tmp_path / "in", "a.csv", 'n,place,at,extra\n1,"x,y",2026-01-01T00:00:00Z,?\n')
    lines = ["n,place,at,extra", "2,z,2026-01-01T00:00:01Z,", "3,z", "4,z,yesterday,",
             "five,z,2026-01-01T00:00:02Z,!"]  # fmt: skip
    write_file(tmp_path / "in", "b.csv", "\n".join(lines) + "\n")
    told = config(
        tmp_path, source={"format": "csv", "path": "in"}, parse={"options": {"header": True}},
        schema={"at": "timestamp", "n": "int", "place": "string"}, operation={"body": ["n"]},
    )  # fmt: skip
    summary = Pipeline(told).run(spark=spark)
    assert {row["place"]: row["body"] for row in scan(tmp_path)} == {
        "x,y": '{"n":1}',
        "z": '{"n":2}',
    }
    assert letters(tmp_path) == {
        "3,z": "parse: the line does not have 4 fields",
        "4,z,yesterday,": "parse: at: 'yesterday' is not of the type timestamp",
        "five,z,2026-01-01T00:00:02Z,!": "parse: n: 'five' is not of the type int",
    }
    assert summary.counts["read"] == 5  # the first lines are no rows
    missing = config(
        tmp_path, source={"format": "csv", "path": "in"}, parse={"options": {"header": True}},
        schema={"at": "timestamp", "num": "int", "place": "string"}, operation={"body": ["num"]},
    )  # fmt: skip
    with pytest.raises(InvalidRequest, match=r"first line of the CSV files has no column 'num'"):
        Pipeline(missing).run(spark=spark)


def test_columns_are_brought_to_the_schema_and_bad_rows_told_as_json(
    spark: Any, tmp_path: Path
) -> None:
    at = pa.array([time_of(n) for n in range(5)], pa.timestamp("us", "UTC"))
    text = pa.array([b"a", b"b", b"\xff", b"d", b"e"]).view(pa.string())
    parquet(tmp_path / "in", "a", {
        "place": ["p"] * 5, "at": at, "n": ["1", "x", "3", "4", None], "id": text,
        "body": ["{}", "{}", "{}", "no JSON", "{}"],
    })  # fmt: skip
    told = config(
        tmp_path, schema={"n": "int"}, operation={"id": "id", "body_json": "body", "ttl_s": 1e8}
    )
    summary = Pipeline(told).run(spark=spark)
    assert sorted(row["id"] for row in scan(tmp_path)) == ["a", "e"]
    found = {row["reason"]: row for row in dead(tmp_path)}
    parsed = json.loads(found["n: 'x' is not of the type int"]["text"])
    assert parsed["n"] == "x"
    assert parsed["id"] == "b"
    assert json.loads(found["body is not JSON"]["text"])["id"] == "d"
    assert found["id is not UTF-8"]["stage"] == "operation"
    assert summary.counts["dead"] == 3


ODD = ("_problem", "_text", "_met", "_original", "_parsed", "_plain", "_broken", "_was_n", "_area",
       "_high", "_low", "_time", "_", "a.b", "q`q")  # fmt: skip


@pytest.mark.parametrize("form", ["json", "csv", "parquet"])
def test_columns_may_have_any_names(form: str, spark: Any, tmp_path: Path) -> None:
    values = {name: f"of {name}" for name in ODD}
    row = {"id": "a", "place": "p", "at": "2026-01-01T00:00:00Z", "n": 1, **values}
    if form == "json":
        write_rows(tmp_path / "in", "a", [row, {**row, "n": "x"}])
    elif form == "csv":
        other = {**row, "n": "x"}
        texts = [",".join(map(str, each.values())) for each in (row, other)]
        write_file(tmp_path / "in", "a.csv", "\n".join(texts) + "\n")
    else:
        parquet(tmp_path / "in", "a", {**{k: [v, v] for k, v in row.items()}, "n": ["1", "x"]})
    told = config(
        tmp_path, source={"format": form, "path": "in"},
        schema={"id": "string", "place": "string", "at": "timestamp", "n": "int",
                **dict.fromkeys(ODD, "string")},
        clean={"_met": {"trim": True}}, condition={"where": {"_text": "of _text"}},
    )  # fmt: skip
    summary = Pipeline(told).run(spark=spark)
    assert (summary.counts["stored"], summary.counts["dead"]) == (1, 1)
    assert [row["reason"] for row in dead(tmp_path)] == ["n: 'x' is not of the type int"]
    body = json.loads(scan(tmp_path)[0]["body"])
    assert {name: body[name] for name in ODD} == values


def test_a_source_with_a_column_of_the_pipelines_own_is_refused(spark: Any, tmp_path: Path) -> None:
    at = pa.array([time_of(0)], pa.timestamp("us", "UTC"))
    parquet(tmp_path / "in", "a", {"place": ["p"], "at": at, "_Tideline_problem": ["x"]})
    with pytest.raises(InvalidRequest, match="the source has a column '_Tideline_problem'"):
        Pipeline(config(tmp_path, operation={})).run(spark=spark)


def test_rows_may_publish_subscribe_and_cancel(spark: Any, tmp_path: Path) -> None:
    at = [time_of(n) for n in range(5)]
    parquet(tmp_path / "in", "a", {
        "op": ["subscribe", "publish", "publish", "cancel", "publish"],
        "id": ["s1", "e1", "e2", "s1", "e3"], "topic": ["a/b", "a", "a/b/c", None, "a/b"],
        "who": ["ann", None, None, None, None], "n": [None, 5, 9, None, 9],
        "if": ['{"n": {"$gt": 6}}', None, None, None, None],
        "at": pa.array(at, pa.timestamp("us", "UTC")),
    })  # fmt: skip
    told = config(
        tmp_path, place={"column": "topic"},
        store={"folder": "data", "channel": "c", "space": {"kind": "topics"}, "journal_s": 1e6},
        operation={"op_column": "op", "id": "id", "user": "who", "where": "if", "body": ["n"],
                   "since_s": -60, "ttl_s": 1e8},
        archive={"folder": "archive", "level": 2},
    )  # fmt: skip
    pipeline = Pipeline(told)
    summary = pipeline.run(spark=spark)
    with tideline.open(tmp_path / "data") as db:
        answers, _ = db.channel("c").journal("answers")
    assert [(row["subscription"], row["event"], row["kind"]) for row in answers.to_pylist()] == [
        ("s1", "e2", "live")
    ]
    assert summary.counts["stored"] == 5
    assert [row["id"] for row in scan(tmp_path)] == ["e1", "e2", "e3"]
    assert scan(tmp_path, "subscriptions") == []
    areas = {path.parent.parent.name for path in (tmp_path / "archive").rglob("*.parquet")}
    assert areas == {"area=a", "area=a%2Fb", "area=__HIVE_DEFAULT_PARTITION__"}
    (batch,) = pipeline.progress
    assert batch.seconds > 0
    assert batch.newest_us == int(time_of(4).timestamp() * 1e6)


TOO_LONG = " is not a finite number of seconds below 1e11"
BAD_NUMBERS: list[tuple[dict[str, Any], str]] = [
    ({"ttl": "soon"}, "operation: ttl: 'soon' is not a number"),
    ({"ttl": "1e300"}, f"operation: ttl: '1e300'{TOO_LONG}"),
    ({"ttl": "9.2229e12"}, f"operation: ttl: '9.2229e12'{TOO_LONG}"),
    ({"ttl": "NaN"}, f"operation: ttl: 'NaN'{TOO_LONG}"),
    ({"back": "an hour"}, "operation: back: 'an hour' is not a number"),
    ({"radius": "wide"}, "place: radius: 'wide' is not a number"),
    ({"once": "maybe"}, "operation: once: 'maybe' is not true or false"),
]  # fmt: skip


def test_text_that_is_no_number_where_one_is_meant_is_a_dead_letter(
    spark: Any, tmp_path: Path
) -> None:
    row = {"id": "good", "op": "subscribe", "user": "ann", "at": "2026-01-01T00:00:00Z",
           "lon": -75.0, "lat": 42.0, "ttl": "1e8", "back": "-60.5", "radius": "500",
           "once": "true"}  # fmt: skip
    rows = [row, {**row, "id": "none", "ttl": None, "radius": None, "once": None, "back": None}]
    rows += [{**row, "id": f"bad{n}", **change} for n, (change, _) in enumerate(BAD_NUMBERS)]
    write_rows(tmp_path / "in", "a", rows)
    told = config(
        tmp_path,
        source={"format": "json", "path": "in"},
        schema={"id": "string", "op": "string", "user": "string", "at": "timestamp",
                "lon": "double", "lat": "double", "ttl": "string", "back": "string",
                "radius": "string", "once": "string"},
        place={"point": ["lon", "lat"], "radius_m": "radius"},
        store={"folder": "data", "channel": "c", "space": MAP},
        operation={"op_column": "op", "id": "id", "user": "user", "ttl_s": "ttl",
                   "since_s": "back", "unseen": "once"},
    )  # fmt: skip
    summary = Pipeline(told).run(spark=spark)
    found = letters(tmp_path)
    for n, (change, reason) in enumerate(BAD_NUMBERS):
        assert found.pop(json.dumps({**row, "id": f"bad{n}", **change})) == reason
    assert found == {}
    assert summary.counts["stored"] == 2
    stored = {each["id"]: each for each in scan(tmp_path, "subscriptions")}
    assert stored["good"]["since"] == time_of(0) - timedelta(seconds=60.5)
    assert (stored["good"]["unseen"], stored["good"]["radius_m"]) == (True, 500.0)
    assert (stored["none"]["until"], stored["none"]["radius_m"]) == (None, None)


def test_duplicates_and_late_rows_are_those_of_sparks_watermark(spark: Any, tmp_path: Path) -> None:
    def rows(*made: tuple[str, float]) -> list[Any]:
        start = time_of(0)
        return [{"id": name, "place": f"{name}{at:g}", "at": str(start + timedelta(seconds=at))}
                for name, at in made]  # fmt: skip

    write_rows(tmp_path / "in", "a", rows(("c", 3000), ("d", 3600)))  # the watermark: 3000
    write_rows(tmp_path / "in", "b", rows(("c", 3599), ("e", 2000), ("f", 4200)))  # and 3600
    write_rows(tmp_path / "in", "c", rows(("c", 3700), ("g", 3000), ("h", 3001)))
    told = config(
        tmp_path, source={"format": "json", "path": "in", "options": {"maxFilesPerTrigger": 1}},
        schema={"id": "string", "place": "string", "at": "timestamp"},
        deduplicate={"by": ["id"], "within_s": 600}, operation={"ttl_s": 1e8},
    )  # fmt: skip
    pipeline = Pipeline(told)
    summary = pipeline.run(spark=spark)
    # e is older than the watermark, but late is what is older than the one of the batch before;
    # and a key is forgotten after the batch whose watermark has passed it.
    taken = {"c3000", "d3600", "e2000", "f4200", "h3001"}
    assert {row["place"] for row in scan(tmp_path)} == taken
    assert (summary.counts["duplicate"], summary.counts["late"]) == (2, 1)
    assert all(add_up(batch.counts) for batch in pipeline.progress)
    words = " ".join(Pipeline(told).explain().split())
    assert "whose at lies less than 600 s before or after it are counted as duplicates" in words


def test_a_cancel_is_no_duplicate_of_its_subscription(spark: Any, tmp_path: Path) -> None:
    at = pa.array([time_of(n) for n in range(5)], pa.timestamp("us", "UTC"))
    parquet(tmp_path / "in", "a", {
        "op": ["subscribe", "subscribe", "cancel", "publish", None], "id": ["s1"] * 5,
        "place": ["p"] * 5, "who": ["ann"] * 5, "at": at,
    })  # fmt: skip
    told = config(
        tmp_path, deduplicate={"by": ["id"], "within_s": 600},
        operation={"op_column": "op", "id": "id", "user": "who", "ttl_s": 1e8},
    )  # fmt: skip
    summary = Pipeline(told).run(spark=spark)
    assert (summary.counts["stored"], summary.counts["duplicate"]) == (3, 1)
    assert scan(tmp_path, "subscriptions") == []
    assert [row["id"] for row in scan(tmp_path)] == ["s1"]
    assert [f"{row['stage']}: {row['reason']}" for row in dead(tmp_path)] == [
        "operation: op is missing"
    ]
    assert "of rows with the same id, op one is taken" in Pipeline(told).explain()


def test_a_point_may_be_stored_as_its_cell(spark: Any, tmp_path: Path) -> None:
    at = pa.array([time_of(0)] * 2, pa.timestamp("us", "UTC"))
    parquet(tmp_path / "in", "a", {"lon": [-79.9, 0.0], "lat": ["44.9", "1"], "at": at})
    told = config(
        tmp_path, place={"point": ["lon", "lat"], "store_as": "cell", "level": 3},
        store={"folder": "data", "channel": "c", "space": MAP}, operation={"ttl_s": 1e8},
    )  # fmt: skip
    summary = Pipeline(told).run(spark=spark)
    assert [row["place"] for row in scan(tmp_path)] == ["1.1.1"]
    assert summary.counts["dead"] == 1


def test_a_condition_that_spark_cannot_say_is_checked_too(spark: Any, tmp_path: Path) -> None:
    at = pa.array([time_of(n) for n in range(4)], pa.timestamp("us", "UTC"))
    parquet(tmp_path / "in", "a", {
        "place": ["p"] * 4, "at": at, "id": ["a", "b", "c", "a"], "n": [1, 2, 3, 9],
        "text": ["black ice", "a fire", "ice", "ice"],
    })  # fmt: skip
    told = config(
        tmp_path, condition={"where": {"text": {"$words": "ice"}, "n": {"$gte": 2}}},
        deduplicate={"by": ["id"], "within_s": 100},
    )  # fmt: skip
    summary = Pipeline(told).run(spark=spark)
    # `a` is seen first in a row that is filtered: its second row is a duplicate all the same.
    assert [row["id"] for row in scan(tmp_path)] == ["c"]
    assert (summary.counts["filtered"], summary.counts["duplicate"]) == (2, 1)


def test_an_expression_that_fails_for_a_row_gives_null(spark: Any, tmp_path: Path) -> None:
    rows = [{"id": f"e{n}", "place": "p", "at": "2026-01-01T00:00:00Z", "n": n} for n in range(3)]
    write_rows(tmp_path / "in", "a", rows)
    told = config(
        tmp_path, source={"format": "json", "path": "in"},
        schema={"id": "string", "place": "string", "at": "timestamp", "n": "int"},
        clean={"n": {"sql": "if(n = 0, raise_error('x'), n)", "required": True},
               "first": {"sql": "element_at(array(n), n - 1)"},
               "day": {"sql": "date_format(at, 'no pattern')"}},
        rule=[{"sql": "element_at(array(n), n - 1) = 2", "reason": "two is the only one"}],
    )  # fmt: skip
    summary = Pipeline(told).run(spark=spark)
    assert {json.loads(row["text"])["id"]: row["reason"] for row in dead(tmp_path)} == {
        "e0": "n is missing", "e1": "two is the only one",
    }  # fmt: skip
    assert summary.counts["stored"] == 1
    (stored,) = scan(tmp_path)
    assert json.loads(stored["body"]).keys() == {"id", "place", "at", "n", "first"}


# ---- mistakes that only Spark can see ----------------------------------------------------------

TOML = """name = "n"
[source]
format = "parquet"
path = "in"
[schema]
{schema}
[clean.a]
sql = "{sql}"
{clean}
[[rule]]
sql = "{rule}"
[place]
column = "{place}"
[condition]
where = '{where}'
[store]
folder = "data"
channel = "c"
[run]
checkpoint = "checkpoint"
[spark]
config = {config}
"""
RIGHT = {"schema": "", "sql": "1", "clean": "", "rule": "true", "place": "place", "where": "{}"}


@pytest.mark.parametrize(
    ("change", "line", "words"),
    [
        ({"schema": 'plaice = "string"'}, 6, "no column 'plaice': did you mean 'place'?"),
        ({"schema": 'list = "int"'}, 6, "the source's column list is of the type array<bigint>"),
        ({"sql": "1 +"}, 8, "Syntax error"),
        ({"sql": "no_such(1)"}, 8, "no_such"),
        ({"sql": "sum(length(place))"}, 8, "an expression looks at one row"),
        ({"sql": "explode(list)"}, 8, "an expression looks at one row"),
        ({"sql": "row_number() OVER (ORDER BY at)"}, 8, "an expression looks at one row"),
        ({"sql": "1 + 1", "clean": "trim = true"}, 9, "trim goes with text, and this is int"),
        ({"sql": "place", "clean": "min = 5"}, 9, "min is a number, and this is string"),
        ({"sql": "at", "clean": "default = 'x'"}, 9, "default must be a time, as this is"),
        ({"rule": "plaice > 1"}, 11, "plaice"),
        ({"rule": "max(place) > 'a'"}, 11, "an expression looks at one row"),
        ({"rule": "place"}, 11, "a rule is true or false, and this is string"),
        ({"place": "plaice"}, 13, "there is no column 'plaice': did you mean 'place'?"),
        ({"where": '{"plaice": "p"}'}, 15, "there is no column 'plaice': did you mean 'place'?"),
        ({"where": '{"at": 5}'}, 15, "a timestamp is no JSON value"),
    ],
    ids=lambda value: str(value)[:40],
)  # fmt: skip
def test_what_only_spark_can_see_has_its_line_too(
    change: dict[str, str], line: int, words: str, spark: Any, tmp_path: Path
) -> None:
    at = pa.array([time_of(0)], pa.timestamp("us", "UTC"))
    parquet(tmp_path / "in", "a", {"place": ["p"], "at": at, "list": [[1]]})
    settings = ", ".join(f'"{name}" = "{value}"' for name, value in INTERPRETED.items())
    file = tmp_path / "p.toml"
    file.write_text(TOML.format(**{**RIGHT, **change}, config=f"{{{settings}}}"), encoding="utf-8")
    pipeline = Pipeline(read_config(file))
    for attempt in (pipeline.run, pipeline.analyse):
        with pytest.raises(InvalidRequest) as caught:
            attempt(spark=spark)
        assert str(caught.value).startswith(f"p.toml:{line}: "), caught.value
        assert words in str(caught.value)


SOURCES: list[tuple[dict[str, Any], type[TidelineError], str]] = [
    (
        {"format": "kafka", "options": {"subscribe": "t", "kafka.bootstrap.servers": "h:1"}},
        Unavailable,
        r'\[spark\] packages = \["org\.apache\.spark:spark-sql-kafka-0-10_2\.13:4\.',
    ),
    ({"format": "parkett", "path": "in"}, InvalidRequest, "'parkett': did you mean 'parquet'"),
    ({"format": "parquet", "path": "nothing"}, TidelineError, "no files at the source's path"),
    ({"format": "parquet", "path": "empty"}, TidelineError, "says which columns there are"),
]  # fmt: skip


@pytest.mark.parametrize(("source", "kind", "words"), SOURCES, ids=lambda it: str(it)[:30])
def test_a_source_that_cannot_be_opened_is_told_what_to_do(
    source: dict[str, Any], kind: type[TidelineError], words: str, spark: Any, tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    (tmp_path / "empty").mkdir()
    parse = {"format": "columns"}
    with pytest.raises(kind, match=words):
        Pipeline(config(tmp_path, source=source, parse=parse)).run(spark=spark)
    assert "\tat org.apache" not in capfd.readouterr().err  # no Java stacks
