"""Arrow over HTTP: apply, scan and journal as in the library; bad streams change nothing."""

from __future__ import annotations

import struct
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from talk import ROADS, Api, as_

from tideline.errors import InvalidRequest
from tideline.server.tables import read_stream


def stream_of(table: pa.Table, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as out:
        out.write_table(table)
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


@pytest.mark.parametrize("case", bad_streams(), ids=lambda case: case[0])
def test_a_bad_stream_changes_nothing(
    api: Api, path: str, channel: Any, case: tuple[str, bytes]
) -> None:
    refused = api.post(f"{path}/apply", data=case[1])
    assert refused.error == (400, "InvalidRequest")
    assert channel.stats().events == 0


def test_a_damaged_stream_is_refused_or_read_never_worse() -> None:
    """Every byte of a stream changed in turn: a table or `InvalidRequest`, nothing else."""
    whole = stream_of(operations(2))
    outcomes = set()
    for at in range(len(whole)):
        for flip in (0x01, 0x80, 0xFF):
            data = bytearray(whole)
            data[at] ^= flip
            try:
                read_stream(bytes(data))
                outcomes.add("table")
            except InvalidRequest:
                outcomes.add("refused")
    assert outcomes == {"table", "refused"}


def test_a_column_that_comes_twice_is_refused(guarded: dict[str, Any]) -> None:
    table = operations().append_column("op", pa.array(["subscribe"] * 3))
    table = table.append_column("at", table["at"])
    for path in ("apply", "staged?job=j"):
        refused = as_(guarded, "publisher").post(f"{ROADS}/{path}", data=stream_of(table))
        assert refused.error == (400, "InvalidRequest")
        assert "['op', 'at']" in refused.json["error"]["message"]
    assert guarded["database"].channel("roads").stats().events == 0
