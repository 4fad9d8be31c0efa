"""The command line as a user meets it: the real command, in a process, on real folders.

Each test reads like a transcript. `run` is one command to its end; `Running` is one that waits.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

import tideline
from tideline.cli.main import main

SOURCE = Path(__file__).resolve().parents[1] / "src"
NEW_YORK = ["--space", "quadtree", "--bounds", "-79.8,40.4,-71.8,45.1", "--depth", "9"]
COMMAND = [sys.executable, "-m", "tideline"]
TIMEOUT_S = 300  # the first call may compile kernels


def environment(**more: str) -> dict[str, str]:
    env = {**os.environ, "PYTHONPATH": os.environ.get("PYTHONPATH") or str(SOURCE), "TERM": "dumb"}
    env.pop("DEMO_S", None)
    return {**env, **more}


class Done:
    """A finished command: exit code, JSON lines on stdout, text on stderr."""

    def __init__(self, code: Any, text: str, error: str) -> None:
        self.code, self.text, self.error = code, text, error
        assert "Traceback" not in error

    @property
    def lines(self) -> list[Any]:
        assert self.code == 0, self.error
        return [json.loads(line) for line in self.text.splitlines()]


Run = Callable[..., Done]


def stream(text: str = "") -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(text.encode()), encoding="utf-8")


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """`run(words)`: a command, in this process. Starting one takes a second or two; what only a
    process of its own can show is asked with `start`."""

    def command(*words: str, stdin: str | None = None, **env: str) -> Done:
        out, error = stream(), stream()
        code: Any = None
        with (
            pytest.MonkeyPatch.context() as patch,
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(error),
        ):
            patch.chdir(tmp_path)
            patch.delenv("DEMO_S", raising=False)
            for name, value in env.items():
                patch.setenv(name, value)
            patch.setattr(sys, "stdin", stream(stdin or ""))
            try:
                main(list(words))
            except SystemExit as ended:
                code = ended.code
        texts = [each.seek(0) or each.read() for each in (out, error)]
        return Done(code, *texts)

    return command


@pytest.fixture
def roads(run: Run) -> Run:
    """A database with a quad tree of New York State."""
    assert run("channel", "create", "data", "roads", *NEW_YORK).code == 0
    return run


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Commands that wait; ended when the test ends."""
    running: list[subprocess.Popen[str]] = []

    def command(*words: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [*COMMAND, *words],
            cwd=tmp_path,
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        running.append(process)
        return process

    yield command
    for process in running:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                stream.close()


def read(process: subprocess.Popen[str]) -> Any:
    """The next JSON line of a running command."""
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, process.stderr.read() if process.stderr else ""
    return json.loads(line)


def write(process: subprocess.Popen[str], **record: Any) -> None:
    assert process.stdin is not None
    process.stdin.write(json.dumps(record) + "\n")
    process.stdin.flush()


# A story ------------------------------------------------------------------------------


def test_publish_subscribe_find(roads: Run) -> None:
    body = '{"kind": "accident", "lanes": 2}'
    [told] = roads(
        "publish", "data", "roads", "-73.98,40.75", body, "--id", "e1", "--ttl-s", "900"
    ).lines
    assert told["event"]["id"] == "e1"
    assert told["event"]["place"] == [-73.98, 40.75]
    assert told["event"]["at"].endswith("Z")
    assert told["subscriptions"] == []
    asked = [
        "subscribe", "data", "roads", "circle:-73.97,40.76,2000", "--user", "u17",
        "--since-s", "-600", "--until-s", "600", "--unseen", "--no-wait",
    ]  # fmt: skip
    made, past = roads(*asked, "--id", "s1").lines
    assert made["subscription"]["place"] == {"circle": [-73.97, 40.76, 2000.0]}
    assert (past["kind"], past["subscription"], past["user"]) == ("past", "s1", "u17")
    assert past["event"] == told["event"]
    assert len(roads(*asked, "--id", "s2").lines) == 1  # unseen: nothing again
    [told] = roads("publish", "data", "roads", "-73.975,40.755", "1", "--id", "e2").lines
    assert {"id": "s1", "user": "u17"} in told["subscriptions"]
    found = roads("find", "data", "roads", "box:-74,40,-73,41").lines
    assert [event["id"] for event in found] == ["e2", "e1"]
    [found] = roads("find", "data", "roads", "box:-74,40,-73,41", "--where", '{"lanes": 2}').lines
    assert found["id"] == "e1"


def test_subscriptions_resume_cancel(roads: Run) -> None:
    place = "circle:-73.98,40.75,900"
    roads("subscribe", "data", "roads", place, "--user", "u", "--id", "s1", "--no-wait")
    for n in (1, 2):
        roads("publish", "data", "roads", "-73.98,40.75", str(n), "--id", f"e{n}")
    [info] = roads("subscriptions", "data", "roads", "--user", "u").lines
    assert (info["id"], info["until"]) == ("s1", None)
    _, first, second = roads("resume", "data", "roads", "s1", "--no-wait").lines
    assert [first["event"]["id"], second["event"]["id"]] == ["e1", "e2"]
    after = first["event"]["token"]
    _, only = roads("resume", "data", "roads", "s1", "--after", after, "--no-wait").lines
    assert only["event"]["id"] == "e2"
    assert roads("cancel", "data", "roads", "s1").lines == [
        {"kind": "cancelled", "subscription": "s1"}
    ]
    assert roads("cancel", "data", "roads", "s1").code == 3


def test_channels_stats_check_drop(roads: Run) -> None:
    roads("channel", "create", "data", "news", "--space", "topics", "--layout", "two")
    rows = {row["name"]: row for row in roads("channels", "data").lines}
    assert rows["news"] == {
        "name": "news", "space": "topics", "layout": "two", "max_ahead_s": 60.0, "newest": None,
    }  # fmt: skip
    assert (rows["roads"]["space"], rows["roads"]["depth"]) == ("quadtree", 9)
    roads("publish", "data", "news", "a/b", "1")
    stats = {row["channel"]: row for row in roads("stats", "data").lines}
    assert (stats["news"]["events"], stats["roads"]["events"]) == (1, 0)
    [one] = roads("stats", "data", "news").lines
    assert one["events"] == 1
    assert roads("check", "data").code == 0
    assert roads("drop", "data", "news").lines == [{"dropped": "news"}]
    assert [row["name"] for row in roads("channels", "data").lines] == ["roads"]


def test_the_limit_of_a_channel_is_set_and_rows_beyond_it_are_reported(
    run: Run, tmp_path: Path
) -> None:
    [made] = run("channel", "create", "data", "news", "--max-ahead-s", "5").lines
    assert made["max_ahead_s"] == 5.0
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"op":"publish","place":"a","at":"9000-01-01T00:00:00Z","body":1}\n')
    refused = run("apply", "data", "news", "rows.jsonl")
    assert refused.code == 2
    assert "row 0: at is more than 5 s ahead of the clock" in refused.error
    [made] = run("channel", "create", "data", "news", "--max-ahead-s", "inf").lines
    assert made["max_ahead_s"] is None
    assert run("apply", "data", "news", "rows.jsonl").code == 0
    [shown] = run("channels", "data").lines
    assert shown["newest"] == "9000-01-01T00:00:00.000000Z"


def test_a_key_with_a_comma_is_a_key_in_a_flat_channel(run: Run) -> None:
    run("channel", "create", "data", "flat")
    assert run("publish", "data", "flat", "1,2", "true").lines[0]["event"]["place"] == "1,2"
    assert run("publish", "data", "flat", "box:x", "true").lines[0]["event"]["place"] == "box:x"


# Pipes --------------------------------------------------------------------------------


def test_publish_reads_lines_and_the_good_ones_land(roads: Run) -> None:
    lines = [
        '{"place": [-73.98, 40.75], "body": {"n": 1}, "id": "e1"}',
        "",
        '{"body": 2, "id": "e2"}',
        "not json",
        '{"body": 3, "colour": "red"}',
        '{"place": "box:1,2,3,4", "body": 4}',
    ]
    done = roads("publish", "data", "roads", "-73.9,40.8", stdin="\n".join(lines))
    assert done.code == 2
    places = [json.loads(line)["event"]["place"] for line in done.text.splitlines()]
    assert places == [[-73.98, 40.75], [-73.9, 40.8]]
    numbers = [line.split(": ")[:3] for line in done.error.splitlines()]
    assert numbers == [["tideline", "InvalidRequest", f"line {n}"] for n in (4, 5, 6)]
    found = roads("find", "data", "roads", "box:-74,40,-73,41").lines
    assert {event["id"] for event in found} == {"e1", "e2"}


def test_subscribe_with_stdin_is_a_filter(roads: Run) -> None:
    bodies = [{"kind": kind, "n": n} for n, kind in enumerate(["fire", "deer", "fire"])]
    lines = "\n".join(json.dumps({"place": [-73.98, 40.75], "body": body}) for body in bodies)
    done = roads(
        "subscribe", "data", "roads", "-73.98,40.75", "--user", "u", "--stdin",
        "--where", '{"kind": "fire"}', "--until-s", "60", stdin=lines,
    )  # fmt: skip
    made, *live = done.lines
    assert made["kind"] == "subscribed"
    assert [(line["kind"], line["event"]["body"]["n"]) for line in live] == [
        ("live", 0),
        ("live", 2),
    ]


def test_a_session_answers_each_line_at_once(
    roads: Run, start: Callable[..., subprocess.Popen[str]]
) -> None:
    session = start("session", "data", "roads")
    circle = {"circle": [-73.98, 40.75, 500]}
    write(session, op="subscribe", place=circle, user="a", id="A", until_s=600)
    assert read(session)["subscription"]["id"] == "A"
    write(session, op="publish", place=[-73.98, 40.75], body={"n": 1}, id="e1")
    told, live = read(session), read(session)
    assert (told["line"], told["kind"], told["subscriptions"]) == (
        2,
        "told",
        [{"id": "A", "user": "a"}],
    )
    assert (live["line"], live["kind"], live["event"]["body"]) == (2, "live", {"n": 1})
    write(session, op="publish", place="nowhere", body=1)
    assert read(session)["error"] == "InvalidRequest"
    write(session, op="shout")
    assert read(session)["error"] == "InvalidRequest"
    write(session, op="find", place="box:-74,40,-73,41", limit=5)
    assert [event["id"] for event in read(session)["events"]] == ["e1"]
    write(session, op="resume", id="A")
    assert [read(session)["kind"], read(session)["kind"]] == ["subscribed", "past"]
    write(session, op="cancel", id="A")
    assert read(session) == {"line": 7, "kind": "cancelled", "subscription": "A"}
    write(session, op="stats")
    assert read(session)["events"] == 1
    assert session.stdin is not None
    session.stdin.close()
    assert session.wait(TIMEOUT_S) == 2  # of the first line that failed
    assert session.stderr is not None
    [said] = session.stderr.read().splitlines()
    assert said.startswith("tideline: InvalidRequest: 2 lines failed, the first is line 3: ")


def test_the_exit_code_of_a_session_is_that_of_its_first_error(roads: Run) -> None:
    good = json.dumps({"op": "publish", "place": [-73.98, 40.75], "body": 1})
    deep = '{"op": "find", "place": ' + "[" * 100_000 + "]" * 100_000 + "}"
    for bad, code, said in [
        ('{"op": "cancel", "id": "s9"}', 3, "NotFound: line 2: no such subscription"),
        ('{"op": "shout"}', 2, "op must be one of publish, subscribe, resume, cancel"),
        ('{"id": "s9"}', 2, "op must be one of publish, subscribe, resume, cancel"),
        ("no json", 2, "not an operation: JSON is malformed"),
        (deep, 2, "nested too deeply"),
    ]:
        done = roads("session", "data", "roads", stdin=f"{good}\n{bad}\n{good}\n")
        kinds = [json.loads(line)["kind"] for line in done.text.splitlines()]
        assert (done.code, kinds) == (code, ["told", "error", "told"]), bad[:50]
        [line] = done.error.splitlines()
        assert said in line
        again = roads("session", "data", "roads", "--stop-on-error", stdin=f"{bad}\n{good}\n")
        assert (again.code, again.text.count("\n")) == (code, 1)
    assert roads("session", "data", "roads", stdin=f"{good}\n\n").code == 0
    assert roads("session", "data", "roads", stdin="").code == 0


def test_commands_that_read_stdin_say_so_when_it_is_closed(roads: Run, tmp_path: Path) -> None:
    words = [*COMMAND, "session", "data", "roads"]
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" <&-', "sh", *words], cwd=tmp_path, env=environment(),
        capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("tideline: InvalidRequest: stdin is closed")


def test_a_second_process_is_told_who_owns_the_folder(
    roads: Run, start: Callable[..., subprocess.Popen[str]]
) -> None:
    session = start("session", "data", "roads")
    write(session, op="stats")
    read(session)
    done = roads("publish", "data", "roads", "-73.98,40.75", "1")
    assert done.code == 5
    assert done.error.startswith("tideline: Unavailable: ")
    assert str(session.pid) in done.error
    assert "tideline session" in done.error


def test_ctrl_c_ends_a_waiting_subscriber_quietly(
    roads: Run, start: Callable[..., subprocess.Popen[str]]
) -> None:
    waiting = start("subscribe", "data", "roads", "-73.98,40.75", "--user", "u", "--id", "s1")
    assert read(waiting)["kind"] == "subscribed"
    waiting.send_signal(signal.SIGINT)
    _, error = waiting.communicate(timeout=TIMEOUT_S)
    assert (waiting.returncode, error) == (130, "")
    assert [info["id"] for info in roads("subscriptions", "data", "roads").lines] == ["s1"]


def test_a_subscriber_stops_when_its_window_ends(roads: Run) -> None:
    done = roads("subscribe", "data", "roads", "-73.98,40.75", "--user", "u", "--until-s", "0.5")
    assert [line["kind"] for line in done.lines] == ["subscribed"]


def test_a_reader_that_goes_away_is_no_error(roads: Run, tmp_path: Path) -> None:
    lines = "\n".join(f'{{"place": [-73.98, 40.75], "body": {n}}}' for n in range(2000))
    roads("publish", "data", "roads", stdin=lines)
    words = " ".join([*COMMAND, "find", "data", "roads", "box:-74,40,-73,41"])
    piped = subprocess.run(
        ["bash", "-c", f"{words} | head -n 1; echo ${{PIPESTATUS[0]}}"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert piped.stderr == ""
    assert piped.stdout.splitlines()[-1] == "141"


# Files --------------------------------------------------------------------------------


def operations() -> list[dict[str, Any]]:
    return [
        {"op": "subscribe", "id": "s1", "place": "a", "user": "u", "at": "2026-01-01T00:00:00",
         "until": "2026-01-02T00:00:00", "where": {"n": {"$gte": 1}}},
        {"op": "publish", "id": "e1", "place": "a", "at": "2026-01-01T00:00:01", "body": {"n": 1}},
        {"op": "publish", "id": "e0", "place": "a", "at": "2026-01-01T00:00:02", "body": {"n": 0}},
        {"op": "shout", "id": "x", "place": "a", "at": "2026-01-01T00:00:03"},
    ]  # fmt: skip


def operations_table() -> pa.Table:
    rows = operations()
    columns: dict[str, Any] = {name: [row.get(name) for row in rows] for name in rows[0]}
    columns["body"] = [json.dumps(row["body"]) if "body" in row else None for row in rows]
    columns["where"] = [json.dumps(row["where"]) if "where" in row else None for row in rows]
    for name in ("at", "until"):
        columns[name] = pa.array(columns[name], pa.string()).cast(pa.timestamp("us"))
    return pa.table(columns)


def write_operations(file: Path) -> None:
    if file.suffix == ".jsonl":
        file.write_text("\n".join(json.dumps(row) for row in operations()), encoding="utf-8")
    elif file.suffix == ".parquet":
        pq.write_table(operations_table(), file)
    elif file.suffix == ".arrow":
        feather.write_feather(operations_table(), str(file), compression="uncompressed")
    else:
        import pyarrow.csv as csv

        csv.write_csv(operations_table(), file)


@pytest.mark.parametrize("ending", [".jsonl", ".parquet", ".arrow", ".csv"])
def test_apply_runs_a_file_of_operations(run: Run, tmp_path: Path, ending: str) -> None:
    run("channel", "create", "data", "flat")
    write_operations(tmp_path / f"operations{ending}")
    done = run("apply", "data", "flat", f"operations{ending}", "--batch-rows", "3")
    assert [json.loads(line) for line in done.text.splitlines()] == [
        {"row": 1, "subscription": "s1", "event": "e1", "user": "u", "kind": "live"}
    ]
    rejected, summary = done.error.splitlines()
    assert rejected.startswith("tideline: InvalidRequest: row 3: ")
    assert summary == "applied 3 of 4 rows, 1 answers"
    assert done.code == 2


BAD_LINES = {
    ".jsonl": [
        '{"op": "publish", "place": "a", "at": "2026-01-02T03:04:05+02:00", "body": 1, "id": "e"}',
        '{"op": "publish", "place": "a", "at": "soon", "body": 1}',
        '{"op": "publish", "place": 7, "at": "2026-01-02T03:04:05Z", "body": 1}',
        '{"op": "publish", "place": "a", "at": "2026-01-02T03:04:05Z", "body": ',
        '{"op": "publish", "place": "a", "at": "2026-01-02T03:04:05Z", "unseen": 1}',
        '{"op": "publish", "place": "a", "when": 1}',
    ],
    ".csv": [
        "op,place,at,body,id,lon,unseen",
        "publish,a,2026-01-02T03:04:05+02:00,1,e,,",
        "publish,a,soon,1,,,",
        "publish,a,2026-01-02T03:04:05Z,1,,east,",
        "publish,a,2026-01-02T03:04:05Z,1,,,perhaps",
    ],
}


@pytest.mark.parametrize("ending", list(BAD_LINES))
def test_a_line_that_cannot_be_read_is_rejected_by_itself(
    run: Run, tmp_path: Path, ending: str
) -> None:
    lines = BAD_LINES[ending]
    run("channel", "create", "data", "flat")
    (tmp_path / f"operations{ending}").write_text("\n".join(lines), encoding="utf-8")
    done = run("apply", "data", "flat", f"operations{ending}")
    *rejected, summary = done.error.splitlines()
    count = len(lines) - (ending == ".csv")
    first = 3 if ending == ".csv" else 2
    for number, text in enumerate(rejected):
        assert text.startswith(
            f"tideline: InvalidRequest: row {number + 1}: line {number + first}: "
        )
    assert (summary, done.code) == (f"applied 1 of {count} rows, 0 answers", 2)
    [event] = [json.loads(line) for line in run("find", "data", "flat", "a").text.splitlines()]
    assert event["at"] == "2026-01-02T01:04:05.000000Z"


def test_apply_writes_answers_to_a_file(run: Run, tmp_path: Path) -> None:
    run("channel", "create", "data", "flat")
    pq.write_table(operations_table().slice(0, 3), tmp_path / "operations.parquet")
    done = run("apply", "data", "flat", "operations.parquet", "--out", "answers.parquet")
    assert (done.code, done.text) == (0, "")
    [answer] = pq.read_table(tmp_path / "answers.parquet").to_pylist()
    assert (answer["subscription"], answer["event"]) == ("s1", "e1")


# Errors -------------------------------------------------------------------------------

P = ["publish", "data", "roads"]

WRONG: list[tuple[list[str], int, str]] = [
    (["stats", "nowhere"], 3, "NotFound"),
    (["stats", "data", "raods"], 3, "NotFound"),
    (["publish", "data", "raods", "a", "1"], 3, "NotFound"),
    (["drop", "data", "raods"], 3, "NotFound"),
    (["cancel", "data", "roads", "s9"], 3, "NotFound"),
    (["resume", "data", "roads", "s9", "--no-wait"], 3, "NotFound"),
    (["apply", "data", "roads", "missing.parquet"], 3, "NotFound"),
    (["apply", "data", "roads", "file.xls"], 2, "InvalidRequest"),
    (["channel", "create", "data", "roads", "--space", "topics"], 4, "Conflict"),
    (["channel", "create", "data", "x", "--space", "cube"], 2, "InvalidRequest"),
    (["channel", "create", "data", "x", "--space", "grid"], 2, "InvalidRequest"),
    (["channel", "create", "data", "x", "--layout", "triple"], 2, "InvalidRequest"),
    (["channel", "create", "data", "x", "--depth", "3"], 2, "InvalidRequest"),
    ([*P, "1,2", "1"], 2, "InvalidRequest"),
    ([*P, "nan,40", "1"], 2, "InvalidRequest"),
    ([*P, "-73.98,40.75,9", "1"], 2, "InvalidRequest"),
    ([*P, "circle:-73.98,40.75,-5", "1"], 2, "InvalidRequest"),
    ([*P, "circle:-73.98,40.75", "1"], 2, "InvalidRequest"),
    ([*P, "-73.98,40.75", "{no json"], 2, "InvalidRequest"),
    ([*P, "-73.98,40.75", "1", "--at", "yesterday"], 2, "InvalidRequest"),
    ([*P, "-73.98,40.75", "1", "--ttl-s", "5", "--until", "2030-01-01"], 2, "InvalidRequest"),
    ([*P, "-73.98,40.75", "1", "--ttl-s", "soon"], 2, "InvalidRequest"),
    ([*P, "-73.98,40.75", "1", "--colour", "red"], 2, "InvalidRequest"),
    (["subscribe", "data", "roads", "-73.98,40.75"], 2, "InvalidRequest"),
    (["find", "data", "roads", "-73.98,40.75", "--where", "{"], 2, "InvalidRequest"),
    (["--durability", "tape", "stats", "data"], 2, "InvalidRequest"),
    (["shout"], 2, "InvalidRequest"),
    (["demo", "--seconds", "-1"], 2, "InvalidRequest"),
    (["demo", "--drivers", "0"], 2, "InvalidRequest"),
    (["stats", "http://127.0.0.1:1"], 5, "Unavailable"),
    (["serve", "https://127.0.0.1:8080"], 2, "InvalidRequest"),
    (["channel", "create", "notes", "x"], 2, "InvalidRequest"),
    (["collection", "create", "notes", "x", "--key", "id"], 2, "InvalidRequest"),
    (["serve", "notes"], 2, "InvalidRequest"),
    (["token", "create", "notes", "--scope", "read"], 2, "InvalidRequest"),
    (["restore", "missing", "new"], 3, "NotFound"),
    (["restore", "notes", "new"], 3, "NotFound"),
    (["restore", "notes/todo.txt", "new"], 2, "InvalidRequest"),
    (["restore", "copy", "notes"], 2, "InvalidRequest"),
    (["restore", "copy", "notes/todo.txt"], 2, "InvalidRequest"),
    (["restore", "copy", "notes/todo.txt/new"], 2, "InvalidRequest"),
    (["restore", "copy", "data"], 2, "InvalidRequest"),
    (["restore", "copy", "copy"], 2, "InvalidRequest"),
    (["restore", "copy", "copy/new"], 2, "InvalidRequest"),
    (["restore", "data", "new"], 2, "InvalidRequest"),
]


def test_an_error_is_one_line_and_an_exit_code(roads: Run, tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "todo.txt").write_text("milk")
    assert roads("backup", "data", "copy").code == 0
    backup = sorted((tmp_path / "copy").rglob("*"))
    for words, code, kind in WRONG:
        done = roads(*words)
        assert (done.code, done.text) == (code, ""), (words, done.error)
        [line] = done.error.splitlines()
        assert line.startswith(f"tideline: {kind}: "), words
    assert [path.name for path in (tmp_path / "notes").iterdir()] == ["todo.txt"]
    assert sorted((tmp_path / "copy").rglob("*")) == backup
    assert not (tmp_path / "new").exists()
    assert roads("stats", "data", "roads").lines[0]["events"] == 0


@pytest.mark.parametrize("words", [["run"], ["check"], ["check", "--spark"]])
def test_a_pipeline_without_pyspark_names_the_extra(tmp_path: Path, words: list[str]) -> None:
    (tmp_path / "p.toml").write_text(
        '[source]\nformat = "generator"\n[store]\nfolder = "data"\nchannel = "c"\n'
    )
    code = "import sys; sys.modules['pyspark'] = None; from tideline.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "pipeline", *words, "p.toml"], cwd=tmp_path,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (5, ""), done.stderr
    [line] = done.stderr.splitlines()
    assert line.startswith(
        "tideline: Unavailable: this needs pyspark: pip install 'tideline[spark]'"
    )
    assert not (tmp_path / "data").exists()


def test_stats_of_a_collection_are_words_on_a_terminal(run: Run, tmp_path: Path) -> None:
    run("collection", "create", "data", "cars", "--key", "id", "--index", "road=lazy")
    ours, theirs = os.openpty()
    with open(ours, "rb", buffering=0) as terminal:
        process = subprocess.Popen(
            [*COMMAND, "stats", "data"], cwd=tmp_path, env=environment(COLUMNS="100"), stdout=theirs
        )
        os.close(theirs)
        parts = []
        with contextlib.suppress(OSError):  # how a terminal says that nobody writes any more
            while part := terminal.read(4096):
                parts.append(part)
        assert process.wait(TIMEOUT_S) == 0
    said = b"".join(parts).decode()
    assert "IndexStats" not in said
    assert "field road, kind lazy" in said


def test_other_content_under_an_id_is_a_conflict(roads: Run) -> None:
    words = [*P, "-73.98,40.75", "1", "--id", "e1", "--at", "2026-01-01T00:00:00Z"]
    assert roads(*words).code == 0
    assert roads(*words).lines[0]["duplicate"] is True
    words[4] = "2"
    assert roads(*words).code == 4


def test_a_damaged_database_is_corruption(roads: Run, tmp_path: Path) -> None:
    manifest = tmp_path / "data" / "MANIFEST"
    content = bytearray(manifest.read_bytes())
    content[len(content) // 2] ^= 0xFF
    manifest.write_bytes(content)
    done = roads("check", "data")
    assert done.code == 6
    assert done.error.startswith("tideline: Corruption: ")
    assert "MANIFEST" in done.error


def test_a_wrong_spelling_is_told_the_right_one(run: Run) -> None:
    create = ["window", "create", "data", "cars", "--span-s", "60"]
    for words, said in [
        ([*create, "--key", "road:0-100"], "FIELD=TYPE, with '=': road=0..100; a field with"),
        ([*create, "--key", "road:int"], "with '=': road=int; a field with"),
        ([*create, "--key", "road", "--value", "v:int32"], "--value is FIELD=TYPE, with '=': v="),
        ([*create, "--key", "road=0-100"], "a range is LEAST..GREATEST: 0..100. given="),
        (["cluster", "create", "new", "--node", "n1", "--peers", "n1=127.0.0.1:7400", "--from",
          "http://127.0.0.1:8080"], "this looks like an address"),
    ]:  # fmt: skip
        done = run(*words)
        assert (done.code, said in done.error) == (2, True), done.error
    [made] = run(*create, "--key", "a:b=int").lines
    assert made["key"] == {"a:b": "int"}


def test_what_is_missing_is_named(roads: Run) -> None:
    for words, said in [
        (["apply", "data", "roads", "missing.csv"], "no such file. file='missing.csv'"),
        (["apply", "data", "roads", "missing.parquet"], "no such file. file='missing.parquet'"),
        (["apply", "data", "roads", "missing.jsonl"], "no such file. file='missing.jsonl'"),
        (["drop", "data", "raods"], "did you mean 'roads'? name='raods', channels="),
        (["stats", "data", "raods"], "no such channel or collection: did you mean 'roads'? name="),
    ]:
        done = roads(*words)
        assert (done.code, said in done.error) == (3, True), done.error
    done = roads("backup", "data", "data/copy")
    assert (done.code, "outside the database" in done.error) == (2, True)


def test_the_version_is_told(run: Run) -> None:
    done = run("--version")
    assert (done.code, done.text) == (0, f"tideline {tideline.__version__}\n")


def test_help_needs_nothing(run: Run) -> None:
    assert run("--help").code == 0
    assert run().code == 2
    assert "Usage: tideline" in run("publish", "-h").text
