"""`tideline collection insert`, `update` and so on: transcripts, on real folders."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[1]))

from test_cli import Run, run

__all__ = ["run"]  # a fixture


@pytest.fixture
def cars(run: Run) -> Run:
    done = run("collection", "create", "data", "cars", "--key", "id", "--index", "road",
               "--index", "speed=composite")  # fmt: skip
    assert done.lines[0]["indexes"] == {"road": "lazy", "speed": "composite"}
    text = "\n".join(f'{{"id": {n}, "road": "A{n % 2}", "speed": {10 * n}}}' for n in range(4))
    stored = run("collection", "insert", "data", "cars", stdin=text)
    assert stored.lines == [{"stored": 4, "rejected": 0}]
    return run


def test_new_documents_are_stored_and_others_refused(cars: Run) -> None:
    done = cars("collection", "insert", "data", "cars", '{"id": 1}')
    assert done.code == 4
    assert "Conflict: there is a document with this key. id=1" in done.error
    done = cars("collection", "insert", "data", "cars", stdin='{"id": 9}\n{"id": 1}\n{"x": 1}')
    assert done.code == 2
    assert '{"stored":1,"rejected":2}' in done.text
    assert "line 2: there is a document with this key" in done.error
    assert cars("collection", "insert", "data", "cars", '{"id": "x"}').lines[0]["stored"] == 1
    assert cars("collection", "insert", "data", "cars", "{}", "--file", "x.jsonl").code == 2


def test_a_document_is_changed_and_printed(cars: Run) -> None:
    done = cars("collection", "update", "data", "cars", "1", '{"$inc": {"speed": 5}}')
    assert done.lines == [{"id": 1, "road": "A1", "speed": 15}]
    done = cars("collection", "update", "data", "cars", "7", '{"$set": {"speed": 5}}', "--upsert")
    assert done.lines == [{"id": 7, "speed": 5}]
    missing = cars("collection", "update", "data", "cars", "8", '{"$set": {"speed": 5}}')
    assert missing.code == 3
    assert "NotFound: no document with this key. key=8" in missing.error
    wrong = cars("collection", "update", "data", "cars", "1", '{"$sett": {"speed": 5}}')
    assert wrong.code == 2
    assert "did you mean $set?" in wrong.error
    assert cars("collection", "update", "data", "cars", "1", "{$set").code == 2


def test_versions_guard_writes(cars: Run) -> None:
    [found] = cars("collection", "get", "data", "cars", "1", "--versions").lines
    assert found == {"version": 2, "document": {"id": 1, "road": "A1", "speed": 10}}
    done = cars("collection", "replace", "data", "cars", "1", '{"speed": 7}', "--if-version", "2")
    assert done.lines == [{"version": 5}]
    for command in (("replace", "1", '{"speed": 8}'), ("update", "1", '{"$set": {"speed": 8}}'),
                    ("delete", "1")):  # fmt: skip
        stale = cars("collection", command[0], "data", "cars", *command[1:], "--if-version", "2")
        assert stale.code == 4
        assert "another version" in stale.error
    assert cars("collection", "get", "data", "cars", "1").lines == [{"id": 1, "speed": 7}]
    gone = cars("collection", "delete", "data", "cars", "1", "--if-version", "5")
    assert gone.lines == [{"deleted": 1}]
    assert cars("collection", "delete", "data", "cars", "1", "2", "--if-version", "5").code == 2


def test_many_are_changed_and_deleted_by_condition(cars: Run) -> None:
    where = '{"speed": {"$gte": 20}}'
    done = cars("collection", "update-many", "data", "cars", where, '{"$set": {"road": "B"}}')
    assert done.lines == [{"matched": 2, "changed": 2}]
    assert cars("collection", "distinct", "data", "cars", "road").text.split() == [
        '"A0"', '"A1"', '"B"',
    ]  # fmt: skip
    assert cars("collection", "distinct", "data", "cars", "speed", '{"road": "B"}').lines == [
        20, 30,
    ]  # fmt: skip
    assert cars("collection", "delete-where", "data", "cars", '{"road": "B"}').lines == [
        {"deleted": 2}
    ]
    assert cars("collection", "delete-where", "data", "cars", "null").code == 2
    slip = cars("collection", "delete-where", "data", "cars", '{"speed": {"gte": 1}}')
    assert slip.code == 2
    assert "did you mean $gte?" in slip.error


def test_questions_of_more_than_one_step(cars: Run) -> None:
    pipeline = '[{"$group": {"_id": "$road", "mean": {"$avg": "$speed"}}}]'
    assert cars("collection", "aggregate", "data", "cars", pipeline).lines == [
        {"_id": "A0", "mean": 10.0}, {"_id": "A1", "mean": 20.0},
    ]  # fmt: skip
    assert cars("collection", "aggregate", "data", "cars", '{"$match": {}}').code == 2
    found = cars("collection", "find", "data", "cars", "--sort", "id", "--skip", "1",
                 "--limit", "2", "--fields", "speed")  # fmt: skip
    assert found.lines == [{"id": 1, "speed": 10}, {"id": 2, "speed": 20}]
    found = cars("collection", "find", "data", "cars", "--fields", '{"id": 0, "road": 0}')
    assert found.lines[0] == {"speed": 30}
    assert cars("collection", "find", "data", "cars", "--fields", '{"id": 5}').code == 2
    assert cars("collection", "find", "data", "cars", "--skip", "-1").code == 2


def test_an_index_gets_a_kind(cars: Run) -> None:
    done = cars("collection", "index", "data", "cars", "lane")
    assert done.lines == [{"indexed": "lane", "kind": "lazy"}]
    assert cars("collection", "create", "data", "x", "--key", "id", "--index", "a=").code == 2


def test_an_index_may_be_unique(cars: Run) -> None:
    refused = cars("collection", "index", "data", "cars", "lane", "--unique")
    assert refused.code == 4
    assert "documents have the same value" in refused.error
    cars("collection", "update-many", "data", "cars", '{"id": 0}', '{"$set": {"lane": 1}}')
    cars("collection", "delete-where", "data", "cars", '{"id": {"$gt": 1}}')
    done = cars("collection", "index", "data", "cars", "lane", "lazy", "--unique")
    assert done.lines == [{"indexed": "lane", "kind": "lazy", "unique": True}]
    assert cars("collection", "put", "data", "cars", '{"id": 9, "lane": 1}').code == 4
    made = cars("collection", "create", "data", "users", "--key", "id", "--unique", "mail",
                "--index", "town")  # fmt: skip
    assert made.lines[0]["indexes"] == {"town": "lazy", "mail": "lazy"}
    assert made.lines[0]["unique"] == ["mail"]
