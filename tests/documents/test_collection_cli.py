"""`tideline collection`: transcripts of the commands, in this process, on real folders."""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

sys.path.append(str(Path(__file__).resolve().parents[1]))

from test_cli import Run, run

__all__ = ["run"]  # a fixture


@pytest.fixture
def tweets(run: Run) -> Run:
    done = run("collection", "create", "data", "tweets", "--key", "id", "--index", "user=lazy",
               "--filter", "time")  # fmt: skip
    assert done.lines[0]["indexes"] == {"user": "lazy"}
    return run


def test_documents_go_in_and_come_out_as_lines(tweets: Run) -> None:
    text = "\n".join(['{"id": 1, "user": "a"}', "", '{"id": 2, "user": "a"}'])
    assert tweets("collection", "put", "data", "tweets", stdin=text).lines == [
        {"stored": 2, "rejected": 0}
    ]
    assert tweets("collection", "put", "data", "tweets", '{"id": "x"}').lines[0]["stored"] == 1
    found = tweets("collection", "lookup", "data", "tweets", "user", "a").lines
    assert [each["id"] for each in found] == [2, 1]
    assert tweets("collection", "get", "data", "tweets", "x", "1").lines[0] == {"id": "x"}
    assert tweets("collection", "count", "data", "tweets").lines == [{"count": 3}]
    assert tweets("collection", "delete", "data", "tweets", "x", "2").lines == [{"deleted": 2}]
    assert tweets("collection", "delete", "data", "tweets", "x", "9", "9").lines == [{"deleted": 0}]
    assert tweets("collection", "count", "data", "tweets", '{"user": "a"}').lines == [{"count": 1}]


def test_bad_lines_are_named_and_the_others_are_stored(tweets: Run) -> None:
    text = '{"id": 1}\n[1]\n{"id": null}\n{"id": 2'
    done = tweets("collection", "put", "data", "tweets", stdin=text)
    assert done.code == 2
    assert '{"stored":1,"rejected":3}' in done.text
    for number in (2, 3, 4):
        assert f"line {number}: " in done.error


def test_a_file_of_columns_is_stored(tweets: Run, tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1, 2], "time": [5, None]}), tmp_path / "t.parquet")
    done = tweets("collection", "put", "data", "tweets", "--file", "t.parquet")
    assert done.lines == [{"stored": 2, "rejected": 0}]
    found = tweets("collection", "find", "data", "tweets", "--sort", "id:-1").lines
    assert found == [{"id": 2}, {"id": 1, "time": 5}]
    assert tweets("collection", "put", "data", "tweets", "--file", "t.txt").code == 2


def test_a_direction_is_1_or_minus_1(tweets: Run) -> None:
    text = '{"id": 1, "a:b": 5, "time": 1}\n{"id": 2, "a:b": 4, "time": 2}'
    tweets("collection", "put", "data", "tweets", stdin=text)

    def ids(sort: str) -> list[int]:
        return [
            e["id"] for e in tweets("collection", "find", "data", "tweets", "--sort", sort).lines
        ]

    assert (ids("time"), ids("time:1"), ids("time:-1")) == ([1, 2], [1, 2], [2, 1])
    assert (ids("a:b:1"), ids("a:b:-1")) == ([2, 1], [1, 2])
    for command in ("find", "explain"):
        for sort in ("time:2", "time:", "time:desc", "a:b"):
            done = tweets("collection", command, "data", "tweets", "--sort", sort)
            assert done.code == 2
            assert "FIELD, FIELD:1 or FIELD:-1" in done.error


def test_messages_name_no_method_of_the_library(tweets: Run) -> None:
    for words in (
        ["lookup", "data", "tweets", "place", "x"],
        ["create", "data", "tweets", "--key", "id", "--index", "user=lazy", "--index", "a=lazy"],
        ["create", "data", "tweets", "--key", "id", "--index", "user=eager"],
    ):
        done = tweets("collection", *words)
        assert done.code != 0
        assert "_index" not in done.error


def test_advice_is_of_what_other_commands_asked(tweets: Run) -> None:
    tweets("collection", "put", "data", "tweets", '{"id": 1, "user": "a"}')
    assert tweets("collection", "advise", "data", "tweets").lines[0]["kind"] is None
    for _ in range(3):
        tweets("collection", "lookup", "data", "tweets", "user", "a", "-k", "5")
    [advice] = tweets("collection", "advise", "data", "tweets").lines
    assert (advice["field"], advice["kind"], advice["facts"]["lookups"]) == ("user", "lazy", 3)
    given = tweets("collection", "advise", "data", "tweets", "--where", '{"time": 7}').lines
    assert {each["field"] for each in given} == {"user", "time"}
    [advice] = tweets("collection", "advise", "data", "tweets", "--anew").lines
    assert (advice["field"], advice["kind"]) == ("user", None)
    [advice] = tweets("collection", "advise", "data", "tweets").lines
    assert (advice["field"], advice["kind"]) == ("user", None)


def test_indexes_come_and_go(tweets: Run) -> None:
    tweets("collection", "put", "data", "tweets", '{"id": 1, "time": 7}')
    done = tweets("collection", "index", "data", "tweets", "time", "embedded")
    assert done.lines == [{"indexed": "time", "kind": "embedded"}]
    assert tweets("collection", "range", "data", "tweets", "time", "--low", "5").lines
    told = tweets("collection", "explain", "data", "tweets", '{"time": 7}').lines[0]
    assert told["found"] == 1
    advice = tweets("collection", "advise", "data", "tweets", "--where", '{"time": 7}').lines
    assert {each["field"] for each in advice} == {"user", "time"}
    assert tweets("collection", "unindex", "data", "tweets", "time").code == 0
    assert tweets("collection", "list", "data").lines[0]["indexes"] == {"user": "lazy"}


def test_commands_of_the_whole_database_cover_collections(tweets: Run) -> None:
    tweets("collection", "put", "data", "tweets", '{"id": 1}')
    tweets("channel", "create", "data", "roads")
    rows = tweets("stats", "data").lines
    assert [row.get("channel") or row["collection"] for row in rows] == ["roads", "tweets"]
    assert tweets("stats", "data", "tweets").lines[0]["versions"] == 1
    assert tweets("check", "data").lines[0]["collections"] == 1
    assert tweets("backup", "data", "copy").code == 0
    assert tweets("restore", "copy", "again").lines[0]["collections"] == 1
    assert tweets("collection", "get", "again", "tweets", "1").lines == [{"id": 1}]
    assert tweets("drop", "data", "tweets").lines == [{"dropped": "tweets"}]
    assert tweets("collection", "list", "data").lines == []


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["get", "data", "tweets", "9"], 3),
        (["get", "data", "twets", "9"], 3),
        (["get", "nowhere", "tweets", "9"], 3),
        (["lookup", "data", "tweets", "place", "x"], 2),
        (["lookup", "data", "tweets", "user", "x", "-k", "0"], 2),
        (["range", "data", "tweets", "user"], 2),
        (["range", "data", "tweets", "user", "--low", "2", "--high", "1"], 2),
        (["find", "data", "tweets", "{"], 2),
        (["find", "data", "tweets", '{"a": {"$no": 1}}'], 2),
        (["index", "data", "tweets", "a", "b-tree"], 2),
        (["unindex", "data", "tweets", "a"], 2),
        (["create", "data", "tweets", "--key", "other"], 4),
        (["create", "data", "more", "--key", "id", "--index", "a="], 2),
        (["drop", "data", "twets"], 3),
    ],
)
def test_what_is_wrong_ends_in_an_exit_code(tweets: Run, words: list[str], code: int) -> None:
    assert tweets("collection", *words).code == code


def test_changes_are_printed_in_order_with_old_versions(run: Run) -> None:
    made = run("collection", "create", "data", "cars", "--key", "id", "--journal-s", "3600",
               "--journal-before")  # fmt: skip
    assert made.lines[0]["name"] == "cars"
    for document in ('{"id": 1, "n": 1}', '{"id": 1, "n": 2}'):
        run("collection", "put", "data", "cars", document)
    run("collection", "delete", "data", "cars", "1")
    first = {"seq": 1, "key": 1, "after": {"id": 1, "n": 1}}
    assert run("changes", "data", "cars", "--limit", "1").lines == [first]
    assert run("changes", "data", "cars", "--after", "1", "--before").lines == [
        {"seq": 2, "key": 1, "before": {"id": 1, "n": 1}, "after": {"id": 1, "n": 2}},
        {"seq": 3, "key": 1, "before": {"id": 1, "n": 2}, "after": None},
    ]
    assert run("changes", "data", "cars", "--after", "3").lines == []
    refused = run("changes", "data", "cars", "--after", "4")
    assert (refused.code, "later than the newest" in refused.error) == (2, True)
    refused = run("changes", "data", "cars", "--limit", "0")
    assert (refused.code, "above 0" in refused.error) == (2, True)
    assert run("changes", "data", "ships").code == 3


def test_a_setting_is_changed_without_giving_the_others_again(run: Run) -> None:
    made = ("collection", "create", "data", "cars", "--key", "id")
    first = run(*made, "--index", "road=lazy", "--policy", "leveled").lines
    (again,) = run(*made, "--journal-s", "60", "--journal-before", "--ttl-s", "5").lines
    kept = {"journal_s": 60.0, "journal_before": True, "ttl_s": 5.0}
    assert again == {**first[0], **kept}
    assert run("collection", "list", "data", "--json").lines == [again]
    assert first[0]["policy"] == "leveled"
    assert run(*made, "--policy", "none").code == 4


def test_documents_expire_and_an_index_is_on_several_fields(tweets: Run) -> None:
    put = ("collection", "put", "data", "tweets")
    tweets(*put, '{"id": 1, "user": "a", "time": 3}', "--ttl-s", "0.000001")
    tweets(*put, '{"id": 2, "user": "a", "time": 4}', "--ttl-s", "1000")
    tweets("collection", "insert", "data", "tweets", '{"id": 1, "time": 5}', "--ttl-s", "inf")
    assert tweets("collection", "get", "data", "tweets", "1").lines == [{"id": 1, "time": 5}]
    for command in ("update", "replace"):
        change = '{"$set": {"n": 1}}' if command == "update" else '{"n": 1}'
        tweets("collection", command, "data", "tweets", "2", change, "--ttl-s", "0.000001")
        assert tweets("collection", "count", "data", "tweets").lines == [{"count": 1}]
        tweets(*put, '{"id": 2, "user": "a", "time": 4}')
    bad = tweets(*put, '{"id": 3}', "--ttl-s", "0")
    assert (bad.code, "ttl_s must be above 0" in bad.error) == (2, True)
    assert tweets("collection", "index", "data", "tweets", "user,time", "lazy").lines == [
        {"indexed": "user,time", "kind": "lazy"}
    ]
    where = '{"user": "a", "time": {"$gt": 3}}'
    assert [each["id"] for each in tweets("collection", "find", "data", "tweets", where).lines] == [
        2
    ]
    assert tweets("collection", "unindex", "data", "tweets", "user,time").code == 0
    assert (
        "did_you_mean='user,time'"
        in tweets("collection", "index", "data", "tweets", "user, time").error
    )
