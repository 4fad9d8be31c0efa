"""Arrow over HTTP: apply, scan and journal as in the library; bad streams change nothing."""

from __future__ import annotations

import resource
import struct
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from talk import ROADS, Api, as_

from tideline.errors import InvalidRequest
from tideline.server.incoming import read_stream
from tideline.server.refusals import Refused


def stream_of(table: pa.Table, max_chunksize: int | None = None, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as out:
        out.write_table(table, max_chunksize=max_chunksize)
    return sink.getvalue().to_pybytes()


def streams_in(data: bytes) -> list[pa.Table]:
    source = pa.BufferReader(data)
    found = []
    while source.tell() < len(data):
        found.append(pa.ipc.open_stream(source).read_all())
    return found


def operations(count: int = 3) -> pa.Table:
    now = datetime.now(UTC)
    return pa.table(
        {
            "op": ["publish"] * count,
            "id": [f"e{n}" for n in range(count)],
            "place": ["a"] * count,
            "at": [now] * count,
            "body": [f'{{"n":{n}}}' for n in range(count)],
        }
    )


def test_apply_answers_with_two_streams(api: Api, path: str, channel: Any) -> None:
    channel.subscribe("a", user="u", id="s", until_s=600)
    table = operations(4).set_column(4, "body", pa.array(["{}", "{}", "nonsense", "{}"]))
    done = api.post(f"{path}/apply", data=stream_of(table))
    assert done.status == 200
    answers, rejected = streams_in(done.body)
    assert answers.to_pylist() == [
        {"row": n, "subscription": "s", "event": f"e{n}", "user": "u", "kind": "live"}
        for n in (0, 1, 3)
    ]
    assert rejected.to_pylist() == [{"row": 2, "reason": "body is not JSON"}]
    assert "tideline-repeated" not in done.headers


def test_a_writers_batch_lands_once(api: Api, path: str, channel: Any) -> None:
    first = api.post(f"{path}/apply?once=loader:a:7", data=stream_of(operations()))
    again = api.post(f"{path}/apply?once=loader:a:7", data=stream_of(operations()))
    assert ("tideline-repeated" in first.headers, again.headers["tideline-repeated"]) == (
        False, "true",
    )  # fmt: skip
    assert channel.stats().events == 3
    for wrong in ("x", "x:", ":1", "x:-1", "x:1.5", "x:²"):
        refused = api.call("POST", f"{path}/apply?once=" + wrong.replace("²", "%C2%B2"),
                           data=stream_of(operations()))  # fmt: skip
        assert refused.error == (400, "InvalidRequest"), wrong


def test_scan_and_journal_give_the_librarys_tables(api: Api, path: str, channel: Any) -> None:
    channel.subscribe("a", user="u", id="s", until_s=600)
    for n in range(3):
        channel.publish(f"a/{n}", {"n": n}, id=f"e{n}", ttl_s=600)
    for kind in ("events", "subscriptions"):
        [table] = streams_in(api.get(f"{path}/scan?kind={kind}").body)
        assert table.equals(channel.scan(kind))
    [some] = streams_in(api.get(f"{path}/scan?kind=events&place=a/1").body)
    assert some["id"].to_pylist() == ["e1"]
    [some] = streams_in(api.get(f"{path}/scan?kind=events&where=%7B%22n%22%3A2%7D").body)
    assert some["id"].to_pylist() == ["e2"]
    for kind in ("events", "subscriptions", "answers"):
        answer = api.get(f"{path}/journal?kind={kind}")
        wanted, position = channel.journal(kind)
        assert streams_in(answer.body)[0].equals(wanted)
        assert answer.headers["tideline-position"] == position
    part = api.get(f"{path}/journal?kind=events&limit=1")
    assert streams_in(part.body)[0].num_rows == 1
    rest = api.get(f"{path}/journal?kind=events&after=" + part.headers["tideline-position"])
    assert streams_in(rest.body)[0]["id"].to_pylist() == ["e1", "e2"]


@pytest.mark.parametrize(
    "query",
    ["scan", "scan?kind=x", "scan?kind=events&since=x", "scan?kind=events&where=x", "journal",
     "journal?kind=x", "journal?kind=events&after=x", "journal?kind=events&limit=0",
     "journal?kind=events&after=9:9"],
)  # fmt: skip
def test_wrong_questions(api: Api, path: str, query: str) -> None:
    assert api.get(f"{path}/{query}").error == (400, "InvalidRequest")


def test_a_large_table_comes_whole(api: Api, path: str, channel: Any) -> None:
    n = 20_000
    body = '{"text":"' + "x" * 100 + '"}'
    table = operations(n).set_column(4, "body", pa.array([body] * n))
    assert api.post(f"{path}/apply", data=stream_of(table)).status == 200
    answer = api.get(f"{path}/scan?kind=events")
    assert len(answer.body) > 2 << 20
    assert streams_in(answer.body)[0].equals(channel.scan("events"))


def bad_streams() -> list[tuple[str, bytes]]:
    whole = stream_of(operations())
    offsets = bytearray(whole)
    # The offsets of a text column: make one point far outside.
    at = whole.index(struct.pack("<4i", 0, 2, 4, 6))
    offsets[at + 8 : at + 12] = struct.pack("<i", 1 << 30)
    rows = pa.RecordBatch.from_arrays(
        [pa.nulls((1 << 31) - 1)] * 5, ["op", "id", "place", "at", "body"]
    )
    return [
        ("nothing", b""), ("text", b"hello"), ("zeros", bytes(1000)), ("json", b'{"op": 1}'),
        ("cut", whole[: len(whole) // 2]), ("offsets", bytes(offsets)),
        ("lz4", stream_of(operations(100), compression="lz4")),
        ("zstd", stream_of(operations(100), compression="zstd")),
        ("rows without bytes", stream_of(pa.Table.from_batches([rows]))),
        ("columns", stream_of(pa.table({"op": ["publish"], "colour": ["red"]}))),
        ("types", stream_of(operations().set_column(1, "id", pa.array([[1], [2], [3]])))),
    ]  # fmt: skip


BAD = ("nothing", "text", "zeros", "json", "cut", "offsets", "lz4", "zstd", "rows without bytes",
       "columns", "types")  # fmt: skip


@pytest.fixture(scope="module")
def bad() -> dict[str, bytes]:
    """Some are large: made when they are asked for, and not wherever tests are collected."""
    made = dict(bad_streams())
    assert tuple(made) == BAD
    return made


@pytest.mark.parametrize("case", BAD)
def test_a_bad_stream_changes_nothing(
    api: Api, path: str, channel: Any, case: str, bad: dict[str, bytes]
) -> None:
    refused = api.post(f"{path}/apply", data=bad[case])
    assert refused.error in [(400, "InvalidRequest"), (413, "TooLarge")]
    assert channel.stats().events == 0


def test_a_damaged_stream_is_refused_or_read_never_worse() -> None:
    """Every byte of a stream changed in turn: a table or a refusal, nothing else."""
    whole = stream_of(operations(2))
    outcomes = set()
    for at in range(len(whole)):
        for flip in (0x01, 0x80, 0xFF):
            data = bytearray(whole)
            data[at] ^= flip
            try:
                read_stream(bytes(data))
                outcomes.add("table")
            except (InvalidRequest, Refused):
                outcomes.add("refused")
    assert outcomes == {"table", "refused"}


# Bombs: small bodies that stand for much ----------------------------------------------------------


def coded(values: list[Any], indices: Any, kind: Any = None) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(indices), pa.array(values, kind))


def operations_with(count: int, **columns: Any) -> pa.Table:
    """Operations that take a byte or two a row, with other columns in place of some."""
    few = np.zeros(count, np.int8)
    now = np.full(count, int(datetime.now(UTC).timestamp() * 1e6))
    plain = {
        "op": coded(["publish"], few), "place": coded(["a"], few),
        "at": pa.array(now, pa.timestamp("us", "UTC")),
        "body": coded(["{}"], few),
    }  # fmt: skip
    return pa.table({**plain, **columns})


def growing_dictionary() -> bytes:
    """One large dictionary that grows by a text with every batch."""
    texts = ['"' + "x" * 100_000 + '"'] * 4
    batches = []
    for n in range(50):
        texts.append(f'"{n}"')
        body = coded(list(texts), np.zeros(1, np.int32))
        batches.append(operations_with(1, body=body).to_batches()[0])
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(emit_dictionary_deltas=True)
    with pa.ipc.new_stream(sink, batches[0].schema, options=options) as out:
        for batch in batches:
            out.write_batch(batch)
    return sink.getvalue().to_pybytes()


def bombs() -> dict[str, tuple[bytes, int]]:
    long = '"' + "x" * 120_000 + '"'
    many, bytes_only = np.zeros(400_000, np.int8), np.zeros(8_000_000, np.int8)
    texts = coded([long], many)
    few = operations_with(1_000)
    shared = pa.Array.from_buffers(  # every view is the same long text
        pa.string_view(), 20_000,
        [None, pa.py_buffer(struct.pack("<i4sii", len(long), long[:4].encode(), 0, 0) * 20_000),
         pa.py_buffer(long.encode())],
    )  # fmt: skip
    inner = pa.DictionaryArray.from_arrays(pa.array([0] * 1_000), pa.array(["x"]))
    nested = pa.StructArray.from_arrays([inner], ["inner"])
    runs = pa.RunEndEncodedArray.from_arrays(
        pa.array([1_000_000_000], pa.int32()), pa.array(["{}"])
    )
    tiny = stream_of(pa.table({"op": ["publish"] * 150_000}), max_chunksize=1)
    return {
        "a long text in a dictionary": (stream_of(operations_with(len(many), body=texts)), 413),
        "views of one long text": (stream_of(operations_with(20_000, body=shared)), 413),
        "a dictionary that grows": (growing_dictionary(), 400),
        "a dictionary inside": (stream_of(few.append_column("x", nested)), 400),
        "runs": (stream_of(pa.table({"op": runs})), 400),
        "rows of nulls": (stream_of(pa.table({"op": pa.nulls(1 << 30)})), 413),
        "rows of a struct without fields": (
            stream_of(pa.table({"op": pa.array([{}] * 10, pa.struct([]))})), 400),
        "a byte a row": (stream_of(pa.table({"op": coded(["publish"], bytes_only)})), 413),
        "many messages": (tiny, 413),
        "many columns": (stream_of(pa.table({f"c{n}": [1] for n in range(500)})), 400),
    }  # fmt: skip


BOMBS = bombs()


@pytest.mark.parametrize("name", BOMBS)
@pytest.mark.parametrize("where", ["apply", "staged?job=j"])
def test_a_small_body_cannot_stand_for_much(
    api: Api, path: str, channel: Any, name: str, where: str
) -> None:
    data, status = BOMBS[name]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    refused = api.post(f"{path}/{where}", data=data)
    assert refused.status == status, refused.json
    assert channel.stats().events == 0
    grown_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown_kb < 300 << 10


def test_dictionaries_of_the_usual_kind_are_taken(api: Api, path: str, channel: Any) -> None:
    for where in ("apply", "staged?job=j"):
        assert api.post(f"{path}/{where}", data=stream_of(operations_with(500))).status == 200
    assert channel.stats().events == 500
    texts = operations_with(500, body=pa.array(['"é"'] * 500, pa.string_view()))
    assert api.post(f"{path}/apply", data=stream_of(texts)).status == 200


# Whose answers ----------------------------------------------------------------------------------


@pytest.mark.parametrize("own", [True, False], ids=["with answers", "without"])
def test_nothing_of_others_is_in_the_bytes(guarded: dict[str, Any], own: bool) -> None:
    """Not in the rows, nor in the dictionaries beside them."""
    roads = guarded["database"].channel("roads")
    for n in range(5):
        roads.subscribe("a", user="carol-secret", id=f"theirs-{n}", until_s=600)
    if own:
        roads.subscribe("a", user="ann", id="mine", until_s=600)
    ann = as_(guarded, "ann")
    done = ann.post(f"{ROADS}/apply", data=stream_of(operations()))
    answers, rejected = streams_in(done.body)
    assert answers["subscription"].to_pylist() == ["mine"] * 3 * own
    assert rejected.num_rows == 0
    whole = roads.apply(operations_with(1)).answers  # the same columns as for everybody
    assert answers.schema == whole.schema
    bodies = [done.body]
    bodies += [ann.get(f"{ROADS}/journal?kind={k}").body for k in ("answers", "subscriptions")]
    bodies.append(ann.get(f"{ROADS}/scan?kind=subscriptions").body)
    for body in bodies:
        assert b"carol" not in body
        assert b"theirs" not in body


def test_a_column_that_comes_twice_is_refused(guarded: dict[str, Any]) -> None:
    table = operations().append_column("op", pa.array(["subscribe"] * 3))
    table = table.append_column("at", table["at"])
    for path in ("apply", "staged?job=j"):
        refused = as_(guarded, "publisher").post(f"{ROADS}/{path}", data=stream_of(table))
        assert refused.error == (400, "InvalidRequest")
        assert "['op', 'at']" in refused.json["error"]["message"]
    assert guarded["database"].channel("roads").stats().events == 0
