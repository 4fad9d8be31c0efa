"""Bodies that mean harm: each is refused in words, and nothing is stored."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from talk import Api

import tideline
from tideline.server import running
from tideline.server.app import all_ops

VERBS = sorted(
    op.path.rpartition("/")[2]
    for op in all_ops()
    if op.method == "POST" and "{collection}" in op.path and "staged" not in op.path
)
C = "/v1/collections/c"
DEEP = b"[" * 50_000 + b"]" * 50_000
OBJECTS = b'{"a":' * 5_000 + b"1" + b"}" * 5_000


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[Any, Api]]:
    with tideline.open(":memory:") as db, running(db) as url:
        made = db.collection("c", key="id", indexes={"a": "lazy"})
        made.put({"id": 1, "a": 1})
        yield made, Api(url)


@pytest.mark.parametrize("verb", VERBS)
def test_a_hostile_body_is_refused(served: tuple[Any, Api], verb: str) -> None:
    documents, api = served
    before = documents.position()
    for body in (
        b"", b"null", b"[]", b"17", b'"text"', b"{", b'{"a":}', b"\xff\xfe{}", b"{}{}",
        b'{"unknown": 1}', b'{"document": {"id": NaN}}', b'{"where": Infinity}', DEEP, OBJECTS,
        b'{"document": ' + DEEP + b"}", b'{"where": ' + OBJECTS + b"}",
        b'{"documents": "x"}', b'{"documents": {"id": 1}}', b'{"key": 1.5}', b'{"key": true}',
        b'{"key": null}', b'{"key": {}}', b'{"key": 123456789012345678901234567890}',
        b'{"key": ' + b"9" * 5_000 + b"}", b'{"key": "\\ud800"}', b'{"keys": [1, {}]}',
        b'{"where": []}', b'{"where": "x"}', b'{"where": {"$where": "1"}}', b'{"limit": -1}',
        b'{"limit": 1e400}', b'{"skip": -1}',
        b'{"sort": {"a": 2}}', b'{"sort": [["a"]]}', b'{"fields": 5}', b'{"pipeline": {}}',
        b'{"pipeline": [{"$out": "x"}]}', b'{"change": {"a": 1}}', b'{"field": 7}',
        b'{"field": ""}', b'{"field": "a", "kind": "none"}', b'{"cursor": 7}',
    ):  # fmt: skip
        if verb == "advise" and body == b'{"where": []}':
            continue  # no conditions
        answer = api.post(f"{C}/{verb}", data=body)
        assert answer.status in (400, 413), (verb, body[:80], answer)
        assert answer.json["error"]["kind"] in ("InvalidRequest", "TooLarge")
    assert documents.position() == before
    assert documents.find() == [{"id": 1, "a": 1}]


@pytest.mark.parametrize(("document", "reason"), [
    (b'{"id": 1e999}', "Number"), (b'{"id": true}', "key"), (b'{"id": ""}', "key"),
    (b'{"id": "' + b"k" * 2_000 + b'"}', "key"), (b'{"a": 1}', "lacks its key"), (b"[1]", "object"),
    (b'{"id": 2, "a": ' + b"[" * 3_000 + b"]" * 3_000 + b"}", "deep"),
    (b'{"id": 2, "a": "\xff"}', ""), (b'{"id": 2, "a": 1e999}', ""),
])  # fmt: skip
def test_a_bad_document_is_refused_and_the_others_of_a_batch_are_stored(
    served: tuple[Any, Api], document: bytes, reason: str
) -> None:
    documents, api = served
    for verb in ("put", "insert"):
        answer = api.post(f"{C}/{verb}", data=b'{"document": ' + document + b"}")
        assert answer.error == (400, "InvalidRequest"), answer
    answer = api.post(f"{C}/put_many", data=b'{"documents": [' + document + b', {"id": 3}]}')
    if answer.status == 200:  # a body that is no text at all is refused whole
        told = answer.json["result"]
        assert told["stored"] == 1
        assert reason in told["rejected"]["0"]
        assert documents.get(3) == {"id": 3}
    else:
        assert answer.error == (400, "InvalidRequest")
    documents.delete(3)
    assert documents.find() == [{"id": 1, "a": 1}]


def test_a_number_beyond_doubles_stays_what_it_is(served: tuple[Any, Api]) -> None:
    documents, api = served
    big = 2**70 + 1
    assert api.post(f"{C}/put", data=b'{"document": {"id": 8, "n": %d}}' % big).status == 200
    assert str(big).encode() in api.post(f"{C}/get", {"key": 8}).body
    documents.delete(8)


@pytest.mark.parametrize("data", [b"", b"ARROW1", b"\xff\xff\xff\xff\x10\x00\x00\x00" * 9])
def test_what_is_no_arrow_stream_is_refused(served: tuple[Any, Api], data: bytes) -> None:
    _, api = served
    kind = "application/vnd.apache.arrow.stream"
    answer = api.post(f"{C}/put_many", data=data, Content_Type=kind)
    assert answer.error == (400, "InvalidRequest")


def test_an_arrow_stream_of_bad_rows_is_told_row_by_row(served: tuple[Any, Api]) -> None:
    documents, api = served
    table = pa.table({"document": ['{"id": 4}', "no", None, '{"id": 5}']})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    answer = api.post(
        f"{C}/put_many", data=sink.getvalue().to_pybytes(),
        Content_Type="application/vnd.apache.arrow.stream",
    )  # fmt: skip
    told = answer.json["result"]
    assert (told["stored"], sorted(told["rejected"])) == (2, ["1", "2"])
    documents.delete_many([4, 5])


def test_keys_in_a_path(served: tuple[Any, Api]) -> None:
    documents, api = served
    for path, key in [("7", 7), ("-7", -7), ("0", 0), ("007", "007"), ("%227%22", "7"),
                      ("a%2Fb", "a/b"),
                      ("1.5", "1.5"), ("true", "true"), ("-0", "-0"), ("%22", '"'), ("é", "é"),
                      ("9223372036854775807", 2**63 - 1)]:  # fmt: skip
        quoted = path.replace("é", "%C3%A9")
        assert api.put(f"{C}/documents/{quoted}", {"a": 2}).status == 200
        assert documents.get(key) == {"id": key, "a": 2}
        assert api.get(f"{C}/documents/{quoted}").json == {"id": key, "a": 2}
        assert api.put(f"{C}/documents/{quoted}", {"id": key, "a": 3}).status == 200
        assert api.put(f"{C}/documents/{quoted}", {"id": "other"}).error == (400, "InvalidRequest")
        assert json.loads(api.call("DELETE", f"{C}/documents/{quoted}").body) == {"result": None}
        assert api.get(f"{C}/documents/{quoted}").error == (404, "NotFound")
    assert api.get(f"{C}/documents/99999999999999999999").error == (400, "InvalidRequest")
    assert documents.count() == 1


def test_a_misspelt_parameter_is_told(served: tuple[Any, Api]) -> None:
    answer = served[1].post(f"{C}/find", {"lmit": 5})
    assert "did you mean limit?" in answer.json["error"]["message"]
