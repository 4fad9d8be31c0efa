"""What a condition promises on a Spark frame: the answer of the predicate, row by row.

One session for all (`spark_session.py`). A Spark job costs a fifth of a second or more, so the
random tests ask many conditions in one job: all pushed Columns in one select, all filters in
one union.
"""

from __future__ import annotations

import doctest
import math
import random
import subprocess
import sys
from functools import cache, reduce
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from typed_rows import SCHEMA, conditions, document, random_row

from tideline.errors import InvalidRequest
from tideline.where import ALWAYS, column, parse
from tideline.where.column import filter_frame, split
from tideline.where.predicate import predicate
from tideline.where.tree import All, Node

pytest.importorskip("pyspark", reason="needs the extra `spark`")

from tideline.where import exact, said, schema  # these load pyspark

pytestmark = pytest.mark.spark


class Frames:
    """Frames of random rows, by seed: an even one in a file, an odd one in Spark's memory."""

    def __init__(self, spark: Any, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        self.of = cache(self._of)

    def _of(self, seed: int) -> tuple[Any, list[object]]:
        draw = random.Random(seed)
        rows = [random_row(draw) for _ in range(150)]
        file = f"random{seed}" if seed % 2 == 0 else None
        return self.frame(rows, file), [document(row) for row in rows]

    def frame(self, rows: list[Any], file: str | None = None, schema: Any = SCHEMA) -> Any:
        """A frame of these rows, numbered in a column `row`."""
        numbered = [{**row, "row": number} for number, row in enumerate(rows)]
        table = pa.Table.from_pylist(numbered, schema.append(pa.field("row", pa.int64())))
        frame = self.spark.createDataFrame(table)
        if file is not None:
            path = str(self.folder / file)
            # Small files, so that a reader that may skip a block for its bounds does.
            frame.repartition(len(rows) // 8 + 1).write.parquet(path)
            frame = self.spark.read.parquet(path)
        return frame


@pytest.fixture(scope="module")
def frames(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Frames:
    return Frames(spark, tmp_path_factory.mktemp("frames"))


def rows_of(frame: Any) -> list[int]:
    return sorted(frame.select("row").toArrow()["row"].to_pylist())


# An example is many conditions and the message names the one that failed: nothing to shrink.
MANY = settings(phases=[Phase.generate], report_multiple_bugs=False)
EXAMPLES = settings.default.max_examples // 6
SEEDS = st.integers(0, EXAMPLES // 4)


def said_by(tree: Node, documents: list[object]) -> list[bool]:
    return list(map(predicate(tree), documents))


@settings(MANY, max_examples=EXAMPLES)
@given(seed=SEEDS, asked=st.lists(conditions(), min_size=50, max_size=50))
def test_what_is_pushed_and_what_is_checked_make_the_predicate(
    frames: Frames, seed: int, asked: list[dict[str, Any]]
) -> None:
    frame, documents = frames.of(seed)
    parts = [split(parse(condition), frame.schema) for condition in asked]
    pushed = [
        part.pushed.alias(str(number))
        for number, part in enumerate(parts)
        if part.pushed is not None
    ]
    said = frame.select("row", *pushed).toArrow().sort_by("row")
    for number, (condition, part) in enumerate(zip(asked, parts, strict=True)):
        column = said[str(number)].to_pylist() if part.pushed is not None else [True] * len(said)
        assert None not in column, condition
        assert column == said_by(part.pushed_tree, documents), condition
        checked = map(part.checked.matches, documents)
        both = [a and b for a, b in zip(column, checked, strict=True)]
        assert both == said_by(parse(condition).tree, documents), condition


@settings(MANY, max_examples=EXAMPLES)
@given(seed=SEEDS, asked=st.lists(conditions(), min_size=10, max_size=10))
def test_a_filtered_frame_holds_the_rows_the_predicate_holds_for(
    frames: Frames, seed: int, asked: list[dict[str, Any]]
) -> None:
    frame, documents = frames.of(seed)
    found = rows_by_condition(frame, asked)
    for condition, rows in zip(asked, found, strict=True):
        said = said_by(parse(condition).tree, documents)
        assert rows == [row for row, holds in enumerate(said) if holds], condition


def rows_by_condition(frame: Any, asked: list[dict[str, Any]]) -> list[list[int]]:
    """The rows left by each condition, in one job."""
    from pyspark.sql import functions as F

    filtered = [
        filter_frame(frame, condition).select("row", F.lit(number).alias("asked"))
        for number, condition in enumerate(asked)
    ]
    found = reduce(lambda a, b: a.unionAll(b), filtered).toArrow().sort_by("row").to_pylist()
    return [[row["row"] for row in found if row["asked"] == number] for number in range(len(asked))]


# --- promises by name ---


def test_null_is_missing(frames: Frames) -> None:
    schema = pa.schema({"n": pa.int64(), "d": pa.float64(), "o": pa.struct({"n": pa.int64()})})
    rows = [
        {"n": 1, "d": 1.0, "o": {"n": 1}},
        {"n": None, "d": math.nan, "o": {"n": None}},
        {"n": None, "d": math.inf, "o": None},
        {"n": None, "d": None, "o": None},
    ]
    asked: list[dict[str, Any]] = [
        {"n": {"$exists": True}}, {"n": None}, {"n": {"$ne": 1}}, {"n": {"$not": {"$gt": 0}}},
        {"n": {"$gte": None}}, {"n": {"$type": "null"}}, {"d": {"$exists": True}},
        {"d": None}, {"d": {"$gt": 0}}, {"d": {"$type": "number"}},
        {"o": {"$exists": True}}, {"o.n": {"$exists": True}}, {"o.n": None}, {"x.y": None},
    ]  # fmt: skip
    frame = frames.frame(rows, "nulls", schema)
    assert [split(parse(condition), frame.schema).checked for condition in asked] == [ALWAYS] * 14
    assert rows_by_condition(frame, asked) == [
        [0], [1, 2, 3], [1, 2, 3], [1, 2, 3],
        [1, 2, 3], [], [0],
        [1, 2, 3], [0], [0],
        [0, 1], [0], [1, 2, 3], [0, 1, 2, 3],
    ]  # fmt: skip


def test_a_null_element_is_null_and_not_missing(frames: Frames) -> None:
    schema = pa.schema({"a": pa.list_(pa.float64()), "o": pa.list_(pa.struct({"n": pa.int64()}))})
    rows = [
        {"a": [None], "o": [None]},
        {"a": [math.nan, 1.0], "o": [{"n": None}]},
        {"a": [1.0], "o": [{"n": 1}]},
        {"a": [], "o": []},
        {"a": None, "o": None},
    ]
    asked: list[dict[str, Any]] = [
        {"a": None}, {"a": {"$ne": None}}, {"a": {"$type": "null"}}, {"a": {"$lte": None}},
        {"a": {"$elemMatch": {"$type": "null"}}}, {"a": {"$elemMatch": {"$exists": True}}},
        {"a": {"$elemMatch": {"$ne": 1}}}, {"a": {"$elemMatch": {"$not": {"$gt": 0}}}},
        {"o": None}, {"o": {"$elemMatch": {"n": None}}}, {"o": {"$elemMatch": {"n": {"$ne": 1}}}},
        {"o": {"$elemMatch": {}}}, {"a": {"$size": 2}},
    ]  # fmt: skip
    frame = frames.frame(rows, None, schema)
    assert {split(parse(condition), frame.schema).checked for condition in asked} == {ALWAYS}
    assert rows_by_condition(frame, asked) == [
        [0, 1, 4], [2, 3], [0, 1], [0, 1, 4],
        [0, 1], [0, 1, 2],
        [0, 1], [0, 1],
        [0, 4], [1], [1],
        [1, 2], [1],
    ]  # fmt: skip


def test_large_numbers_are_compared_by_value(frames: Frames) -> None:
    """2**53 and 2**53 + 1 are the same double, and 2**63 is no long."""
    schema = pa.schema({"i": pa.int64(), "d": pa.float64()})
    big = 2**53
    rows = [
        {"i": big, "d": float(big)},
        {"i": big + 1, "d": big + 2.0},
        {"i": 2**63 - 1, "d": 2.0**63},
    ]
    asked: list[dict[str, Any]] = [
        {"i": big}, {"i": {"$gt": float(big)}}, {"i": {"$gte": big + 0.0}}, {"i": {"$lt": 2.0**63}},
        {"i": 2.0**63}, {"i": {"$in": [big + 1, 2**64 - 1]}},
        {"d": big + 1}, {"d": {"$gt": big + 1}}, {"d": {"$lte": big + 1}},
        {"d": {"$lt": 2**63 - 1}}, {"d": {"$in": [big + 1, 2**63]}},
    ]  # fmt: skip
    assert rows_by_condition(frames.frame(rows, None, schema), asked) == [
        [0], [1, 2], [0, 1, 2], [0, 1, 2],
        [], [1],
        [], [1, 2], [0], [0, 1],
        [2],
    ]  # fmt: skip


def test_the_type_of_a_whole_number_is_by_its_size(frames: Frames) -> None:
    numbers = [-(2**31) - 1, -(2**31), 2**31 - 1, 2**31]
    frame = frames.frame([{"i64": number, "i8": 1, "f64": 1.0} for number in numbers])
    asked = [{"i64": {"$type": name}} for name in ("int", "long", "double", "number")]
    assert rows_by_condition(frame, asked) == [[1, 2], [0, 3], [], [0, 1, 2, 3]]
    asked = [{name: {"$type": "int"}} for name in ("i8", "f64")]
    assert rows_by_condition(frame, asked) == [[0, 1, 2, 3], []]


def test_a_fraction_lies_between_two_whole_numbers(frames: Frames) -> None:
    frame = frames.frame([{"i8": number} for number in (-2, -1, 0, 1)])
    tests = {
        "$gt": [2, 3],
        "$gte": [2, 3],
        "$lt": [0, 1],
        "$lte": [0, 1],
        "$eq": [],
        "$ne": range(4),
    }
    asked: list[dict[str, Any]] = [{"i8": {name: -0.5}} for name in tests]
    assert rows_by_condition(frame, asked) == list(map(list, tests.values()))


@pytest.mark.parametrize("zero", [0.0, -0.0])
def test_a_reader_of_files_finds_zeros_of_both_signs(frames: Frames, zero: float) -> None:
    """Spark skips a block of a Parquet file whose only zeros have the other sign."""
    schema = pa.schema({"d": pa.float64(), "f": pa.float32()})
    rows = [{"d": zero, "f": zero}] * 7  # so many that a file lists its values once
    frame = frames.frame(rows, f"zero{zero}", schema)
    for name in "df":
        asked: list[dict[str, Any]] = [
            {name: test}
            for test in (
                0, {"$gte": 0}, {"$lte": 0}, {"$in": [0, 1]}, {"$in": list(range(12))},
                {"$gt": 0}, {"$lt": 0}, {"$ne": 0}, {"$nin": [0, 1]},
            )
        ]  # fmt: skip
        found = rows_by_condition(frame, asked)
        assert found == [list(range(7))] * 5 + [[]] * 4, name


def test_text_is_ordered_by_code_point(frames: Frames) -> None:
    """In UTF-16, Java's own, the second text comes before the first."""
    frame = frames.frame([{"s": "\uffff"}, {"s": "\U0001f600"}])
    assert rows_of(filter_frame(frame, {"s": {"$gt": "\uffff"}})) == [1]


def test_names_are_told_apart_by_case_and_may_hold_anything(frames: Frames) -> None:
    names = ["Road", "a`b", "c d", "é"]
    schema = pa.schema({name: pa.string() for name in names})
    frame = frames.frame([dict.fromkeys(names, "x")], None, schema)
    asked = [{name: "x"} for name in [*names, "road", "É"]]
    assert rows_by_condition(frame, asked) == [[0], [0], [0], [0], [], []]
    checked = [{name: {"$words": "x"}} for name in [*names, "road"]]
    assert rows_by_condition(frame, checked) == [[0], [0], [0], [0], []]


def test_fields_that_spark_takes_for_one_are_checked(frames: Frames) -> None:
    schema = pa.schema({"o": pa.struct({"road": pa.string(), "Road": pa.string()})})
    frame = frames.frame([{"o": {"road": "a", "Road": "b"}}], None, schema)
    asked = [{"o.road": "a"}, {"o.road": "b"}, {"o.Road": "b"}]
    assert [split(parse(c), frame.schema).checked.document for c in asked] == asked
    assert rows_by_condition(frame, asked) == [[0], [], [0]]


FUZZY = {"$fuzzy": {"word": "jam", "distance": 1}}
PUSHED: list[dict[str, Any]] = [
    {"s": "a"}, {"s": {"$in": ["a", None, 1, {"$regex": "^b"}]}}, {"s": {"$gt": "a", "$lt": "c"}},
    {"s": {"$regex": "^a\\.b$"}}, {"s": {"$regex": "a", "$options": "s"}}, {"b": {"$ne": True}},
    {"i64": {"$mod": [4, 0]}}, {"f32": {"$not": {"$gte": 0.1}}}, {"f64": {"$type": "double"}},
    {"o.o.s": "a"}, {"o": {"$exists": False}}, {"o": "a"}, {"ss": {"$size": 2}}, {"ss": "a"},
    {"ss": {"$all": ["a", "b"]}}, {"i64s": {"$elemMatch": {"$gt": 1, "$lt": 5}}},
    {"os": {"$elemMatch": {"i32": 1, "s": {"$ne": "a"}}}}, {"os": {"$type": "array"}},
    {"at": {"$geoWithin": {"$box": [[0, 0], [1, 1]]}}}, {"x": {"$words": "jam"}},
    {"geo": {"$geoWithin": {"$box": [[0, 0], [1, 1]]}}}, {"i64": FUZZY},
    {"$or": [{"s": "a"}, {"$nor": [{"b": True}, {"i8": 7}]}]},
]  # fmt: skip
CHECKED: list[dict[str, Any]] = [
    {"s": {"$regex": "a|b"}}, {"s": {"$regex": "a", "$options": "i"}}, {"s": {"$words": "jam"}},
    {"s": {"$regex": "^a", "$options": "m"}}, {"s": FUZZY}, {"o": {"s": "a"}},
    {"s": {"$in": [{"$regex": "[ab]"}]}}, {"ss": ["a"]}, {"ss": {"$gt": ["a"]}}, {"ss.0": "a"},
    {"os.s": "a"}, {"os.0.s": "a"}, {"f64ss": 1}, {"os": {"$elemMatch": {"s": {"$words": "a"}}}},
    {"at": {"$geoWithin": {"$centerSphere": [[0, 0], 1]}}}, {"f64": {"$mod": [2**53 + 1, 0]}},
    {"at": {"$near": [0, 0], "$maxDistance": 5}}, {"$or": [{"s": "a"}, {"s": {"$words": "jam"}}]},
]  # fmt: skip


def test_what_is_pushed(frames: Frames) -> None:
    schema = frames.of(1)[0].schema
    left = [split(parse(condition), schema).checked for condition in PUSHED]
    assert left == [ALWAYS] * len(PUSHED)


def test_what_is_checked(frames: Frames) -> None:
    schema = frames.of(1)[0].schema
    for condition in map(parse, CHECKED):
        parts = split(condition, schema)
        assert parts.pushed is None, condition  # a Column has no truth, so one by one
        assert (parts.pushed_tree, parts.checked) == (All(()), condition)


def test_parts_that_must_all_hold_go_their_own_ways(frames: Frames) -> None:
    schema = frames.of(1)[0].schema
    parts = split(
        parse(
            {
                "s": {"$gt": "a", "$regex": "b+", "$options": "i"},
                "at": {"$near": [0, 0], "$maxDistance": 5, "$exists": True},
                "o": {},
                "i8": 0,
                "$and": [{"i8": 1}, {"i16": 2, "ss": []}, {"$and": [{"i32": 3}]}],
                "$or": [{"i64": 1}, {"ss": []}],
            }
        ),
        schema,
    )
    assert parts.checked == parse(
        {
            "s": {"$regex": "b+", "$options": "i"},
            "at": {"$near": [0, 0], "$maxDistance": 5},
            "o": {},
            "$and": [{"ss": []}],
            "$or": [{"i64": 1}, {"ss": []}],
        }
    )
    paths = [node.path for node in parts.pushed_tree.nodes]
    assert sorted(paths) == [("at",), ("i16",), ("i32",), ("i8",), ("i8",), ("s",)]


def test_what_is_pushed_reaches_the_reader_of_files(frames: Frames) -> None:
    frame, _ = frames.of(0)
    left = filter_frame(
        frame, {"i32": {"$gt": 6.5}, "o.s": {"$regex": "^a"}, "ss": {"$words": "a"}}
    )
    plan = left._jdf.queryExecution().executedPlan().toString()
    assert "GreaterThanOrEqual(i32,7)" in plan
    assert "StringStartsWith(o.s,a)" in plan


def test_only_the_columns_that_are_checked_go_through_python(frames: Frames) -> None:
    frame, _ = frames.of(0)
    plan = filter_frame(frame, {"s": {"$words": "a"}, "i8": 1})._jdf.queryExecution()
    evaluated = [line for line in plan.executedPlan().toString().splitlines() if "holds(" in line]
    assert evaluated
    assert all("struct(s, s#" in line and "i8" not in line for line in evaluated)


def test_a_stream_is_filtered(frames: Frames, spark: Any) -> None:
    frame, documents = frames.of(0)
    asked = {"i64": {"$gte": 0}, "ss": {"$words": "jam"}}
    stream = spark.readStream.schema(frame.schema).parquet(str(frames.folder / "random0"))
    found: list[int] = []
    query = (
        filter_frame(stream, asked)
        .writeStream.foreachBatch(lambda batch, _: found.extend(rows_of(batch)))
        .option("checkpointLocation", str(frames.folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(60)
    expected = [row for row, holds in enumerate(said_by(parse(asked).tree, documents)) if holds]
    assert expected
    assert sorted(found) == expected


# --- what is refused ---


@pytest.mark.parametrize(
    ("kind", "condition"),
    [
        ("timestamp", {"t": {"$gt": 5}}),
        ("date", {"t": {"$exists": True}}),
        ("decimal(5,2)", {"$or": [{"s": "a"}, {"t": 1}]}),
        ("binary", {"t": {"$not": {"$eq": "a"}}}),
        ("map<string,string>", {"t.x": "a"}),
        ("array<date>", {"t": "2024-05-01"}),
        ("struct<day:date>", {"t.day": None}),
        ("struct<day:date>", {"t": {"day": "2024-05-01"}}),
        ("array<struct<day:date>>", {"t": {"$elemMatch": {"day": None}}}),
        ("array<struct<day:date>>", {"t.0.day": None}),
    ],
)
def test_a_type_that_is_no_json_value_is_refused(
    spark: Any, kind: str, condition: dict[str, Any]
) -> None:
    frame = spark.createDataFrame([], f"s string, t {kind}")
    with pytest.raises(InvalidRequest, match=r"^where\.t\S*: a \S+ is no JSON value; cast"):
        filter_frame(frame, condition)


def test_a_type_that_is_no_json_value_passes_where_nobody_asks(spark: Any) -> None:
    frame = spark.sql(
        "SELECT current_timestamp() AS now, map('a', 1) AS m, "
        "named_struct('day', current_date(), 's', 'a jam') AS o"
    )
    left = filter_frame(frame, {"o.s": {"$words": "jam"}})
    assert left.schema == frame.schema
    assert left.count() == 1


def test_a_change_is_refused(frames: Frames) -> None:
    condition = parse({"i8": {"$delta": {"$gt": 1}}}, delta=True)
    with pytest.raises(InvalidRequest, match=r"^where\.i8\.\$delta is supported in"):
        filter_frame(frames.of(1)[0], condition)


# --- the module itself ---


@pytest.mark.parametrize("module", [column, exact, said, schema])
def test_the_examples_run(spark: Any, module: ModuleType) -> None:
    result = doctest.testmod(module, extraglobs={"spark": spark}, optionflags=doctest.ELLIPSIS)
    assert result.attempted
    assert not result.failed


def test_the_module_loads_without_spark() -> None:
    code = "import sys, tideline.where.column; assert 'pyspark' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
