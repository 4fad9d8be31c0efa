"""Configs: every mistake is found at once, with its line; what is right is explained in words."""

from __future__ import annotations

import re
import tomllib
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pipeline_reference import reference
from pipelines import BASE, config

import tideline
from tideline.errors import InvalidRequest, NotFound
from tideline.spark.pipeline import Pipeline
from tideline.spark.pipeline.config import make_config, read_config
from tideline.spark.pipeline.keys import SECTIONS
from tideline.spark.pipeline.locate import lines
from tideline.spark.pipeline.preflight import surroundings
from tideline.spark.pipeline.typenames import type_problem

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "pipeline.toml"

# ---- lines -------------------------------------------------------------------------------------

KEYS = st.one_of(
    st.from_regex(r"[A-Za-z0-9_-]{1,6}", fullmatch=True),
    st.sampled_from(['"a.b"', "'[x]'", '"#"', '"="', '"q\\"q"']),
)
VALUES = st.sampled_from([
    "1", "true", "-2.5e3", "1979-05-27T07:32:00Z", '"text # no comment"', "'[x] = {'", "''", '""',
    '"""one\n[two]\nthree = 3 # """', "'''a\n\"\"\"\n'''", '"""a\\"""b"""', "[]", "{}",
    "[1, 2]", "[\n  1, # one ]\n  [2,\n   3], # }\n]", '{ x = 1, y = "}" }', '[{a = 1}, {b = "]"}]',
    '"\\\\"', '""""quoted""""', "[ '''\n]''', \"]\" ]", "{ deep.er = [1,\n2] }",
])  # fmt: skip
BLANKS = st.sampled_from(["", "\n", '# a comment with [brackets] and = """\n', "\n\n", "  \n"])


@st.composite
def documents(draw: Any) -> tuple[str, dict[int, int]]:
    """A TOML text, and for each number that stands in it as a value the line of its key."""
    text = ""
    wanted: dict[int, int] = {}
    used: set[str] = set()
    for table in range(draw(st.integers(1, 4))):
        text += draw(BLANKS)
        text += draw(st.sampled_from([f"[t{table}]\n", f"[ 't{table}' . \"in ner\" ]  # c\n",
                                      "[[many]]\n", "[[many]]\n[many.sub]\n"]))  # fmt: skip
        used.clear()
        for _ in range(draw(st.integers(0, 5))):
            key = draw(KEYS)
            plain = key.strip("'\"").replace('\\"', '"')
            if plain in used:
                continue
            used.add(plain)
            text += draw(BLANKS)
            mark = 1_000_000 + len(wanted)
            wanted[mark] = text.count("\n") + 1
            form = draw(
                st.sampled_from(["{} = {}", "{}={}", "  {}  =\t{}  # c", "{}.'x y'.z = {}"])
            )
            text += form.format(key, mark) + "\n"
            text += f"v{len(wanted)}{len(text)} = {draw(VALUES)}\n"
    return text, wanted


def leaves(value: Any, path: tuple[str | int, ...] = ()) -> Any:
    """Every path of a document, with its value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    for key, part in inner:
        yield (*path, key), part
        if isinstance(part, (dict, list)):
            yield from leaves(part, (*path, key))


@given(documents())
def test_every_key_has_the_line_it_stands_on(made: tuple[str, dict[int, int]]) -> None:
    text, wanted = made
    found = lines(text)
    document = tomllib.loads(text)
    seen = dict(leaves(document))
    for path, value in seen.items():
        if isinstance(value, int) and value in wanted:
            assert found[path] == wanted[value], (path, text)
        if not isinstance(value, dict):
            assert path in found, (path, text)
    assert set(found) <= set(seen), text


# ---- mistakes ----------------------------------------------------------------------------------

GOOD = EXAMPLE.read_text(encoding="utf-8")
MISTAKES = [
    ('name = "incidents"', "", "the pipeline needs a name"),
    ('name = "incidents"', "name = 5", "name must be a printable text"),
    ("[schema]", "[scheme]", "there is no section [scheme]: did you mean [schema]?"),
    ('channel = "roads"', 'chanel = "roads"', "no key 'chanel': did you mean 'channel'?"),
    ('channel = "roads"', "channel = 7", "store.channel must be a text, not 7"),
    ("within_s = 600", "", "[deduplicate] needs the key 'within_s'"),
    ("within_s = 600", "within_s = 0", "within_s must be over 0"),
    ("within_s = 600", "within_s = true", "deduplicate.within_s must be a number, not true"),
    ('severity = "int"', 'severity = "imt"', "there is no type 'imt': did you mean 'int'?"),
    ('severity = "int"', '_Tideline_x = "int"', "names that begin with _tideline_"),
    ('severity = "int"', 'severity = "int"\nAT = "int"', "AT and at differ in case only"),
    ("[clean.severity]", "[clean._tideline_was_x]", "names that begin with _tideline_"),
    ('severity = "int"', "severity = 5", "the type of severity must be a text"),
    ("min = 1", "min = 9", "max is below min"),
    ("min = 1", "trim = true", "trim goes with text, and this is int"),
    ("min = 1", 'default = "foo"', "default must be a whole number, as this is int, not 'foo'"),
    ("min = 1", "default = 9", "default lies above max"),
    ("min = 1", "default = 3_000_000_000", "default must be a whole number, as this is int"),
    ("min = 1", "min = 2020-01-01", "min is a time, and this is int"),
    ("min = 1", 'one_of = ["a", "b"]', "a value of one_of must be a whole number"),
    ("trim = true\nrequired = true", "min = 5", "min is a number, and this is string"),
    ("trim = true\nrequired = true", "default = 5", "default must be a text, as this is string"),
    ("min = 1", "mim = 1", "[clean.severity] has no key 'mim': did you mean 'min'?"),
    ("trim = true\nrequired = true", "", "[clean.kind] says nothing to do"),
    ("[clean.kind]", "[clean.kid]", "there is no column 'kid': did you mean 'kind'?"),
    ('point = ["lon", "lat"]', 'point = ["lon", "lot"]', "there is no column 'lot'"),
    ('point = ["lon", "lat"]', 'point = ["lon"]', "place.point must be two columns"),
    ('point = ["lon", "lat"]', "", "[place] needs point = [lon, lat] or column"),
    ('point = ["lon", "lat"]', 'column = "kind"\nradius_m = 5', "radius_m goes with point"),
    ('by = ["id"]', 'by = ["ident"]', "there is no column 'ident'"),
    ('{ severity = { "$gte" = 2 } }', '{ severity = { "$gtee" = 2 } }', "$gtee"),
    ('{ severity = { "$gte" = 2 } }', '{ severity = { "$gtee" = 2 } }', "did you mean $gte?"),
    ('{ severity = { "$gte" = 2 } }', "'{\"severity\": '", "where"),
    ('{ severity = { "$gte" = 2 } }', "{ sevrity = 2 }", "'sevrity': did you mean 'severity'?"),
    ('{ severity = { "$gte" = 2 } }', '{ "$or" = [{ "size.h" = 1 }] }', "no column 'size'"),
    ("depth = 9", "depth = 99", "depth must be a whole number from 1 to 24"),
    ('kind = "quadtree"', 'kind = "quadtre"', "a space's kind must be one of"),
    ('op = "publish"', 'op = "post"', 'op must be "publish", "subscribe" or "cancel"'),
    ('op = "publish"', 'op = "subscribe"', "a subscription needs user"),
    ('op = "publish"', 'user = "kind"', 'user goes with op = "subscribe", not \'publish\''),
    ('op = "publish"', "unseen = true", 'unseen goes with op = "subscribe"'),
    ('channel = "roads"', 'channel = "ro/../ads"', "a channel's name must be printable"),
    ('channel = "roads"', 'channel = "c"\nmemory_mb = 0', "memory_mb must be 1 to 1048576"),
    ('channel = "roads"', 'channel = "c"\njournal_s = -5', "journal_s must not be negative"),
    ('channel = "roads"', 'channel = "c"\nmax_ahead_s = -5', "max_ahead_s must not be negative"),
    ('channel = "roads"', 'channel = "c"\nmax_ahead_s = nan', "max_ahead_s"),
    ("level = 2", "level = 20", "level must be 0 to 9, as deep as the space"),
    ('name = "incidents"', 'name = "n"\nfoo = 1', "no key 'foo' at the top, only 'name'"),
    ("[run]", '[spark]\nmemory = "lots"\n[run]', "memory must be a number with a unit"),
    ("ttl_s = 3600", "ttl_s = -1", "ttl_s must be over 0"),
    ("ttl_s = 3600", "ttl_s = 1e300", "ttl_s must be a finite number of seconds"),
    ('id = "id"\nat = "at"', 'id = "di"\nat = "at"', "there is no column 'di'"),
    ('format = "json"', 'format = "jason"', 'parse.format must be one of "json", "csv"'),
    ("rows = 100_000", "rowz = 100_000", "no option 'rowz': did you mean 'rows'?"),
    ("bad = 0.01", "bad = 1.5", "bad must be a share, 0 to 1"),
    ('folder = "../data/archive"', 'folder = "../data/incidents"', "are the same folder"),
    ('folder = "../data/incidents"', 'folder = "s3a://b/c"', "a folder of this machine"),
    ('checkpoint = "../data/checkpoint"', 'checkpoint = "x"\nevery_s = -1', "every_s must be 0"),
]  # fmt: skip


@pytest.mark.parametrize(("there", "instead", "wanted"), MISTAKES, ids=[m[2] for m in MISTAKES])
def test_a_mistake_is_named_with_its_line(
    there: str, instead: str, wanted: str, tmp_path: Path
) -> None:
    assert GOOD.count(there) == 1, there
    text = GOOD.replace(there, instead)
    file = tmp_path / "p.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(InvalidRequest) as caught:
        read_config(file)
    said = [line for line in str(caught.value).splitlines() if wanted in line]
    assert said, str(caught.value)
    found = re.match(r"p\.toml:(\d+): ", said[0])
    assert found, said
    # The line that was changed, the one after it, or the head of its section.
    changed = text[: GOOD.index(there)].count("\n") + 1
    head = text[: GOOD.index(there)].rfind("\n[")
    allowed = {changed, changed + 1, text[: head + 1].count("\n") + 1}
    assert int(found[1]) in allowed, (said, allowed)


def test_all_mistakes_are_told_at_once_in_the_order_of_their_lines(tmp_path: Path) -> None:
    file = tmp_path / "p.toml"
    text = GOOD.replace("trim = true", "trimm = true").replace("[run]", "[rum]")
    file.write_text(text.replace('"int"', '"inte"'), encoding="utf-8")
    with pytest.raises(InvalidRequest) as caught:
        read_config(file)
    numbers = [int(n) for n in re.findall(r"^p\.toml:(\d+): ", str(caught.value), re.MULTILINE)]
    assert len(numbers) == 4  # the missing [run] too
    assert numbers == sorted(numbers)


@pytest.mark.parametrize(
    ("text", "line"), [("name = 'x'\n[source\n", 2), ("a = 1\na = 2\n", 2), ('x = """\n\n', 3)]
)
def test_what_is_no_toml_is_told_with_its_line(text: str, line: int, tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text(text, encoding="utf-8")
    with pytest.raises(InvalidRequest, match=rf"p\.toml:{line}: this is no TOML"):
        read_config(tmp_path / "p.toml")


def test_a_file_that_is_not_there_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"nothing\.toml"):
        read_config(tmp_path / "nothing.toml")
    with pytest.raises(InvalidRequest, match="cannot be read"):
        read_config(tmp_path)


@pytest.mark.parametrize("begin", [b"", b"\xef\xbb\xbf"], ids=["plain", "BOM"])
def test_a_file_that_is_not_utf8_is_told_with_its_line(begin: bytes, tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_bytes(begin + b"name = 'x'\r\n\r\n[source]\r\n\xe9 = 1\r\n")
    with pytest.raises(InvalidRequest, match=r"^p\.toml:4: this is not UTF-8"):
        read_config(tmp_path / "p.toml")


def test_a_file_may_begin_with_a_bom_and_end_its_lines_as_windows_does(tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_bytes(b"\xef\xbb\xbf" + GOOD.replace("\n", "\r\n").encode())
    assert read_config(tmp_path / "p.toml").name == "incidents"
    (tmp_path / "p.toml").write_bytes(b"\xef\xbb\xbfname = 'x'\r\n[sauce]\r\n")
    with pytest.raises(InvalidRequest, match=r"p\.toml:2: there is no section \[sauce\]"):
        read_config(tmp_path / "p.toml")


SECTION_MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"source": {"format": "json", "path": "in"}}, "json text needs a [schema]"),
    ({"source": {"format": "text", "path": "in"}}, "text holds texts"),
    ({"source": {"format": "parquet"}}, "the format parquet needs a path"),
    ({"source": {"format": "kafka", "options": {}}}, 'kafka needs the option "subscribe"'),
    ({"source": {"format": "generator", "path": "in"}}, "the format generator takes no path"),
    ({"source": {"format": "generator"}}, "the generator needs the option rows"),
    ({"source": {"format": "rate", "options": {"a": []}}}, "a must be a text, a number"),
    ({"rule": {"sql": "x"}}, "rule is an array of tables: write [[rule]]"),
    ({"clean": {"a": {"from": "b", "sql": "c"}}}, "a is made from a column or by sql, not both"),
    ({"clean": {"a": {"cast": "array<imt>"}}}, "there is no type 'imt'"),
    ({"place": {"point": ["a", "b"], "store_as": "box"}}, 'store_as must be "point" or "cell"'),
    ({"place": {"point": ["a", "b"], "radius_m": 0}}, "radius_m must be over 0"),
    ({"place": {"point": ["a", "b"], "level": 2}}, "level goes with store_as"),
    (
        {"place": {"point": ["a", "b"]}, "store": {"channel": "c", "space": {"kind": "flat"}}},
        "a flat channel has no points: give column",
    ),
    ({"operation": {"op": "cancel"}}, "a cancel needs id"),
    (
        {"operation": {"op": "cancel", "id": "id", "ttl_s": 5}},
        'ttl_s goes with op = "publish" or "subscribe", not \'cancel\'',
    ),
    (
        {"operation": {"op": "subscribe", "user": "id", "body_json": "b"}},
        'body_json goes with op = "publish", not \'subscribe\'',
    ),
    ({"operation": {"until": "u", "ttl_s": 5}}, "give until or ttl_s, not both"),
    ({"operation": {"body": ["a"], "body_json": "b"}}, "give body or body_json, not both"),
    ({"operation": {"body": "a"}}, "body is a list of columns"),
    ({"store": {"channel": "c", "durability": "paper"}}, 'durability must be "os" or "disk"'),
    ({"run": {"checkpoint": "in/checkpoint"}}, "lies in the folder that the source reads"),
    ({"condition": {"where": {"a": {"$delta": {"$lt": 1}}}}}, "subscriptions of a channel only"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("sections", "wanted"), SECTION_MISTAKES, ids=[wanted for _, wanted in SECTION_MISTAKES]
)
def test_keys_that_do_not_go_together_are_named(
    sections: dict[str, Any], wanted: str, tmp_path: Path
) -> None:
    with pytest.raises(InvalidRequest, match=re.escape(wanted)):
        config(tmp_path, **sections)


@pytest.mark.parametrize(
    "kind", ["decimal(39,1)", "array<int", "map<string>", "struct<>", "", "int x"]
)
def test_a_type_that_spark_would_refuse_is_refused(kind: str) -> None:
    assert type_problem(kind)


@pytest.mark.spark
@pytest.mark.parametrize(
    "kind",
    ["STRING", "decimal(12, 2)", "array<struct<a: int, b: map<string, double>>>", "timestamp_ntz",
     "struct<`x y`: long>", "long", "byte"],
)  # fmt: skip
def test_a_type_that_is_taken_is_one_of_sparks(kind: str, spark: Any) -> None:
    from pyspark.sql import types as T

    assert type_problem(kind) is None
    assert T._parse_datatype_string(kind)


# ---- what is right -----------------------------------------------------------------------------


def test_the_example_is_explained_stage_by_stage(tmp_path: Path) -> None:
    text = Pipeline.from_file(EXAMPLE).explain()
    stages = [line[2:15].strip() for line in text.splitlines()[1:] if line[2] != " "]
    assert stages == ["source", "parse", "clean", "place", "deduplicate", "condition", "store",
                      "archive", "dead letters", "restart"]  # fmt: skip
    for words in ("100,000 rows", "severity: at least 1, at most 5", "the same id", "roads",
                  '{"severity": {"$gte": 2}}', "2.0% repeated"):  # fmt: skip
        assert words in text
    assert max(map(len, text.splitlines())) <= 100


def test_every_section_can_be_explained(tmp_path: Path) -> None:
    told = config(
        tmp_path,
        source={"format": "kafka", "options": {"subscribe": "t", "kafka.bootstrap.servers": "h:1"}},
        parse={"format": "csv"}, schema={"a": "string", "t": "timestamp", "x": "double"},
        clean={"b": {"sql": "a || 'x'"}, "n": {"from": "x", "cast": "int", "default": 1,
                                               "one_of": [1, 2]}},
        rule=[{"sql": "n > 0"}], place={"column": "b"},
        operation={"op": "subscribe", "user": "a", "at": "t", "since_s": -60, "ttl_s": 60},
        run={"checkpoint": "checkpoint", "every_s": 2},
    )  # fmt: skip
    text = Pipeline(told).explain()
    for words in ("Kafka topic t at h:1", "one CSV record", "b: made by a || 'x'",
                  "n: renamed from x, cast to int, 1 where there is none, one of 1, 2",
                  "keep the rule n > 0", "the text in b", "subscribe", "every 2 s"):  # fmt: skip
        assert words in " ".join(text.split()), words


@pytest.mark.parametrize(
    ("kind", "clean"),
    [
        ("string", {"trim": True, "cast": "int", "default": 5, "min": 1}),
        ("timestamp", {"default": "2020-01-01T00:00:00Z", "min": date(2020, 1, 1)}),
        ("date", {"default": date(2020, 1, 1), "max": datetime(2030, 1, 1, tzinfo=UTC)}),
        ("decimal(9,2)", {"default": 5, "min": 0.5, "one_of": [1, 2.5, 5]}),
        ("boolean", {"default": False, "one_of": [False]}),
        ("bigint", {"min": 0.5, "one_of": [1 << 62]}),
        ("struct<a: int>", {"required": True}),
        ("int", {"sql": "upper('a')", "trim": True, "default": "none"}),
    ],
)  # fmt: skip
def test_keys_that_fit_the_type_are_taken(kind: str, clean: dict[str, Any], tmp_path: Path) -> None:
    schema = {"id": "string", "place": "string", "at": "timestamp", "x": kind}
    told = config(
        tmp_path, source={"format": "json", "path": "in"}, schema=schema, clean={"x": clean}
    )
    assert list(told.clean) == ["x"]


def test_types_are_followed_through_the_columns(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest) as caught:
        config(
            tmp_path, source={"format": "json", "path": "in"},
            schema={"id": "string", "place": "string", "at": "timestamp", "n": "int"},
            clean={"m": {"from": "n", "trim": True}, "at": {"cast": "date", "one_of": [True]},
                   "at2": {"from": "at", "default": "soon"}},
        )  # fmt: skip
    assert str(caught.value).splitlines() == [
        "clean.m.trim: trim goes with text, and this is int",
        "clean.at.one_of: a value of one_of must be a day, as this is date, not True",
        "clean.at2.default: default must be a day, as this is date, not 'soon'",
    ]


def test_what_a_run_would_refuse_is_found_by_looking_at_what_is_there(tmp_path: Path) -> None:
    def refused(**sections: Any) -> str:
        with pytest.raises(InvalidRequest) as caught:
            Pipeline(config(tmp_path, **sections)).check()
        return str(caught.value)

    tree = {"kind": "quadtree", "bounds": [-80, 40, -72, 45], "depth": 5}
    point = {"point": ["lon", "lat"]}
    assert refused(store={"channel": "c"}) == (
        "store: [store] needs a folder or a url, or run an open database"
    )
    assert refused(place=point) == "place.point: a flat channel has no points: give column"
    with tideline.open(tmp_path / "data") as db:
        db.channel("c", space=tideline.QuadTree(bounds=(-80, 40, -72, 45), depth=5))
        db.channel("polled", layout="poll")
        Pipeline(config(tmp_path, place=point)).check()  # the store may be open meanwhile
    Pipeline(config(tmp_path, place=point, archive={"folder": "a", "level": 5})).check()
    assert "archive.level: level must be 0 to 5" in refused(
        place=point, archive={"folder": "a", "level": 6}
    )
    other = {"folder": "data", "channel": "c", "space": {**tree, "depth": 6}}
    assert "store.space: the channel c has another space: QuadTree(" in refused(store=other)
    assert "'poll' takes no batches" in refused(store={"folder": "data", "channel": "polled"})


def test_relative_paths_are_meant_from_the_configs_folder(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    file = tmp_path / "sub" / "p.toml"
    file.write_text(GOOD, encoding="utf-8")
    told = read_config(file)
    assert told.checkpoint == str(tmp_path / "data" / "checkpoint")
    assert told.dead_folder == str(tmp_path / "data" / "checkpoint" / "dead")
    far = read_config(file).resolve("s3a://bucket/checkpoint")
    assert far == "s3a://bucket/checkpoint"


def test_the_reference_in_the_guide_is_that_of_the_classes() -> None:
    page = (ROOT / "docs" / "guide" / "pipeline.md").read_text(encoding="utf-8")
    begin, end = "<!-- reference -->\n", "<!-- /reference -->"
    assert page[page.index(begin) + len(begin) : page.index(end)].strip() == reference().strip()


def test_every_section_of_the_classes_can_be_given() -> None:
    """What `SECTIONS` names is read, and nothing is read that it does not name."""
    with pytest.raises(InvalidRequest) as caught:
        make_config({**BASE, **{name: {"nothing": 1} for name in SECTIONS if name != "rule"}})
    for name in SECTIONS:
        if name not in ("rule", "clean"):
            assert f"[{name}] has no key 'nothing'" in str(caught.value)


def test_a_pipeline_is_exported_as_a_project_of_declarative_pipelines(tmp_path: Path) -> None:
    text = GOOD.replace(GOOD[GOOD.index("options = {") : GOOD.index("\n\n[parse]")], 'path = "in"')
    file = tmp_path / "p.toml"
    file.write_text(text.replace('format = "generator"', 'format = "json"'), encoding="utf-8")
    spec, code = Pipeline.from_file(file).export(tmp_path / "project")
    assert "include: transformations/**" in Path(spec).read_text()
    compile(Path(code).read_text(), code, "exec")
    assert str(file) in Path(code).read_text()
    with pytest.raises(InvalidRequest, match="sdp only"):
        Pipeline.from_file(file).export(tmp_path, to="airflow")
    file.write_text(GOOD, encoding="utf-8")
    with pytest.raises(InvalidRequest, match=r"p\.toml:\d+: a declarative pipeline follows"):
        Pipeline.from_file(file).export(tmp_path / "project")


CHANGES = """\
name = "orders"
[source]
format = "text"
path = "in"
[parse]
format = "json"
envelope = "debezium"
[schema]
id = "bigint"
total = "double"
[store]
folder = "file:{here}/data"
collection = "orders"
key = "id"
version = "__ts_ms"
[run]
checkpoint = "file:{here}/checkpoint"
"""


def test_a_pipeline_into_a_collection_is_told_in_words(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text(CHANGES.format(here=tmp_path), encoding="utf-8")
    told = " ".join(Pipeline.from_file(file).explain().split())
    assert "must be a change of Debezium's, of a row with id (bigint), total (double)" in told
    assert f"does what __op says in the collection orders of {tmp_path}/data, by the key id" in told
    assert "an older __ts_ms never replaces a newer one" in told
    assert "None" not in told
    assert "store: the database is made by the first run" in surroundings(read_config(file))
    with tideline.open(tmp_path / "data") as db:
        db.collection("cars", key="id")
    assert "store: the collection orders is made by the first run" in surroundings(
        read_config(file)
    )
    with tideline.open(tmp_path / "data") as db:
        db.collection("orders", key="id")
    assert "store: the collection orders is there" in surroundings(read_config(file))
    assert "checkpoint: new; the source is read from its beginning" in surroundings(
        read_config(file)
    )


def test_folders_are_compared_however_they_are_written(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    text = CHANGES.format(here=tmp_path).replace('"in"', f'"file:{tmp_path}/in"')
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").write_text("{}", encoding="utf-8")
    file.write_text(text, encoding="utf-8")
    assert any("1 files" in line for line in surroundings(read_config(file)))
    file.write_text(text.replace("/checkpoint", "/in/checkpoint"), encoding="utf-8")
    with pytest.raises(
        InvalidRequest, match=r"c.toml:17: .*lies in the folder that the source reads"
    ):
        read_config(file)
    file.write_text(text.replace("/checkpoint", "/data"), encoding="utf-8")
    with pytest.raises(InvalidRequest, match=r"run.checkpoint are the same folder"):
        read_config(file)
    file.write_text(text.replace(f"file:{tmp_path}/data", "s3a://bucket/data"), encoding="utf-8")
    with pytest.raises(InvalidRequest, match=r"c.toml:12: store.folder must be a folder of this"):
        read_config(file)
