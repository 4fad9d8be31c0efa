"""The command line on a server, and its shell: the same commands, the same words."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from test_cli import COMMAND, Done, Run, environment, read, run, start

import tideline
from tideline.server import running
from tideline.server.tokens import Tokens

__all__ = ["run", "start"]  # fixtures

STORY: list[tuple[str, ...]] = [
    ("channel", "create", "@", "roads", "--space", "topics"),
    ("channels", "@"),
    ("publish", "@", "roads", "I-87/3", '{"lanes": 2}', "--id", "e1", "--at", "5"),
    ("find", "@", "roads", "I-87", "--since", "0", "--limit", "3"),
    ("find", "@", "raods", "I-87"),
    ("subscribe", "@", "roads", "I-87", "--user", "u", "--id", "s1", "--since", "0", "--until",
     "9e9", "--no-wait"),
    ("prolong", "@", "roads", "s1", "--until", "8e9"),
    ("prolong", "@", "roads", "s9", "--until", "8e9"),
    ("move", "@", "roads", "s1", "I-90"),
    ("move", "@", "roads", "s9", "I-90"),
    ("publish", "@", "roads", "I-90", "1", "--id", "t7", "--until", "9e9", "--at", "100"),
    ("publish", "@", "roads", "I-91", "2", "--id", "t7", "--until", "9e9", "--at", "101",
     "--replace"),
    ("event", "@", "roads", "t7"),
    ("event", "@", "roads", "t8"),
    ("retract", "@", "roads", "t7"),
    ("retract", "@", "roads", "t7"),
    ("subscriptions", "@", "roads", "--user", "u"),
    ("resume", "@", "roads", "s1", "--no-wait"),
    ("cancel", "@", "roads", "s1"),
    ("collection", "create", "@", "cars", "--key", "id", "--index", "road=lazy", "--index",
     "speed=composite", "--journal-s", "600"),
    ("collection", "create", "@", "cars", "--key", "plate"),
    ("collection", "list", "@"),
    ("collection", "put", "@", "cars", '{"id": 1, "road": "A1", "speed": 50}'),
    ("collection", "put", "@", "cars", "--file", "cars.jsonl"),
    ("collection", "insert", "@", "cars", '{"id": 1}'),
    ("collection", "get", "@", "cars", "1", "2"),
    ("collection", "get", "@", "cars", "7", "--versions"),
    ("collection", "lookup", "@", "cars", "road", "A1", "-k", "1"),
    ("collection", "range", "@", "cars", "speed", "--low", "60"),
    ("collection", "find", "@", "cars", '{"speed": {"$gt": 10}}', "--sort", "speed:-1", "--fields",
     "speed"),
    ("collection", "find", "@", "cars", '{"speed": {"gt": 10}}'),
    ("collection", "count", "@", "cars"),
    ("collection", "distinct", "@", "cars", "road"),
    ("collection", "aggregate", "@", "cars",
     '[{"$group": {"_id": "$road", "n": {"$sum": 1}}}, {"$sort": {"_id": 1}}]'),
    ("collection", "update", "@", "cars", "1", '{"$inc": {"speed": 5}}'),
    ("collection", "update-many", "@", "cars", "{}", '{"$set": {"seen": true}}'),
    ("collection", "replace", "@", "cars", "1", '{"id": 1, "road": "B2"}'),
    ("collection", "replace", "@", "cars", "1", '{"id": 1}', "--if-version", "1"),
    ("collection", "index", "@", "cars", "seen", "lazy"),
    ("collection", "unindex", "@", "cars", "seen"),
    ("collection", "delete-where", "@", "cars", '{"road": "B2"}'),
    ("collection", "delete", "@", "cars", "2", "99"),
    ("changes", "@", "cars", "--after", "2", "--limit", "4"),
    ("changes", "@", "cars", "--after", "99"),
    ("collection", "drop", "@", "cars"),
    ("drop", "@", "roads"),
    ("drop", "@", "roads"),
]  # fmt: skip


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    with tideline.open(tmp_path / "served") as database, running(database) as url:
        yield url


def shown(done: Done) -> tuple[Any, str, str]:
    """What a command printed, without what differs between two databases of the same story."""
    text = re.sub(r',"newest":[^}]*', "", done.text)
    text = re.sub(r'"(at|until|since)":"[^"]*"', r'"\1":T', text)
    return done.code, text, done.error


def test_every_command_does_on_a_server_what_it_does_on_a_folder(
    run: Run, url: str, tmp_path: Path
) -> None:
    lines = [{"id": n, "road": "A1", "speed": 40 + 10 * n} for n in (2, 3)]
    text = "".join(json.dumps(line) + "\n" for line in [*lines, {"no": "key"}])
    (tmp_path / "cars.jsonl").write_text(text)
    for words in STORY:
        here, there = (
            run(*(place if word == "@" else word for word in words)) for place in ("data", url)
        )
        assert shown(here) == shown(there), words


def test_the_address_and_the_token_of_the_environment(run: Run, url: str, tmp_path: Path) -> None:
    assert run("collection", "create", url, "cars", "--key", "id").code == 0
    assert run("collection", "put", "cars", '{"id": 1}', TIDELINE_URL=url).code == 0
    assert run("collection", "get", "cars", "1", TIDELINE_URL=url).lines == [{"id": 1}]
    assert run("stats", TIDELINE_URL=url).lines[0]["collection"] == "cars"
    # A first word with a slash is a database, all the same.
    assert run("collection", "list", "./data", TIDELINE_URL=url).code == 3
    assert run("collection", "get", f"{url}/", "cars", "1", TIDELINE_URL="http://x").code == 0
    token, _ = Tokens(tmp_path / "served").create(["read:cars"])

    def refused() -> bool:
        return run("collection", "get", url, "cars", "1").code == 2

    while not refused():  # the server looks for tokens every second
        pass
    assert "Unauthorized: a token is needed" in run("channels", url).error
    get = ("collection", "get", url, "cars", "1")
    assert run(*get, "--token", token).lines == run(*get, TIDELINE_TOKEN=token).lines == [{"id": 1}]
    done = run("collection", "put", url, "cars", '{"id": 2}', "--token", token)
    assert (done.code, "Unauthorized: the token lacks the scope" in done.error) == (2, True)


def test_pipes_lead_to_a_server_too(run: Run, url: str, tmp_path: Path) -> None:
    run("channel", "create", url, "roads")
    operations = [
        {"op": "subscribe", "place": "a", "user": "u", "id": "s1", "until_s": 600},
        {"op": "publish", "place": "a", "body": 1, "id": "e1"},
        {"op": "stats"},
    ]
    text = "".join(json.dumps(operation) + "\n" for operation in operations)
    kinds = [line["kind"] for line in run("session", url, "roads", stdin=text).lines]
    assert kinds == ["subscribed", "told", "live", "stats"]
    line = json.dumps({"place": "a", "body": 2, "id": "e2"})
    assert run("publish", url, "roads", stdin=line).lines[0]["subscriptions"][0]["id"] == "s1"
    (tmp_path / "ops.jsonl").write_text(
        '{"op": "publish", "id": "e3", "place": "a", "body": 3, "at": "2026-01-01T00:00:00Z"}\n'
    )
    assert run("apply", url, "roads", "ops.jsonl").code == 0
    assert run("stats", url, "roads").lines[0]["events"] == 3


def test_what_cannot_be_said_to_a_server(run: Run, url: str) -> None:
    assert run("--memory-mb", "64", "channels", url).code == 2
    assert run("channels", "http://127.0.0.1:1").code == 5
    assert (
        "Unavailable: the server cannot be reached" in run("channels", "http://127.0.0.1:1").error
    )


def test_changes_are_followed(
    start: Callable[..., subprocess.Popen[str]], url: str, run: Run
) -> None:
    run("collection", "create", url, "cars", "--key", "id")
    follower = start("changes", url, "cars", "--follow", "--limit", "2")
    run("collection", "put", url, "cars", '{"id": 1}')
    assert read(follower) == {"seq": 1, "key": 1, "after": {"id": 1}}
    run("collection", "delete", url, "cars", "1")
    assert read(follower) == {"seq": 2, "key": 1, "after": None}
    assert follower.wait(60) == 0


@pytest.mark.parametrize("where", ["folder", "server"])
def test_a_shell_reads_commands_from_a_pipe(run: Run, url: str, where: str) -> None:
    database = "data" if where == "folder" else url
    run("collection", "create", database, "cars", "--key", "id")
    commands = """
        # comments and empty lines are left out
        collection put cars '{"id": 1, "speed": 50}'
        tideline collection get cars 1
        collection get cars 2
        collection finds cars
        colection find cars
        collection
        collection put cars
        collection find 'cars
        help collection count
        collection count cars
        quit
        collection count cars
    """
    done = run("shell", database, stdin=commands)
    stored, got, *help_text, counted = done.text.splitlines()
    assert [stored, got, counted] == [
        '{"stored":1,"rejected":0}', '{"id":1,"speed":50}', '{"count":1}',
    ]  # fmt: skip
    assert help_text[0].startswith("Usage: tideline collection count")
    assert done.error.splitlines() == [
        "tideline: NotFound: no such document. collection='cars', keys=['2']",
        "tideline: InvalidRequest: no such command: did you mean 'collection find'? "
        "given='collection finds'",
        "tideline: InvalidRequest: no such command: did you mean 'collection find'? "
        "given='colection find'",
        done.error.splitlines()[3],
        "tideline: InvalidRequest: give a DOCUMENT, --file, or JSON lines on stdin",
        "tideline: InvalidRequest: the line cannot be read: No closing quotation. "
        'line="collection find \'cars"',
    ]
    assert "no such command: collection create," in done.error.splitlines()[3]
    assert done.code == 3  # of the first that failed
    assert run("shell", database, stdin="collection count cars\n").code == 0
    listed = run("shell", database, stdin="help\n").text
    assert "collection find" in listed
    assert "serve" not in listed


@pytest.mark.parametrize("where", ["folder", "server"])
def test_json_in_a_shell_needs_no_quotes(run: Run, url: str, where: str) -> None:
    database = url if where == "server" else "data"
    run("collection", "create", database, "orders", "--key", "id")
    commands = """
        collection put orders {"id": 1, "shop": 7, "note": "it's {here}"}
        collection put orders '{"id": 2, "shop": 8}'
        collection find orders {"shop": 7} --limit 3  # and no more
        collection aggregate orders [{"$match": {"shop": {"$gt": 6}}}, {"$count": "n"}]
    """
    done = run("shell", database, stdin=commands)
    assert done.code == 0, done.error
    assert '"note":"it\'s {here}"' in done.text
    assert '{"n":2}' in done.text
    slip = run("shell", database, stdin="collection find odrers {}\nfind orders I-87\n")
    assert slip.code == 3
    assert "did you mean 'orders'?" in slip.error
    assert "orders is a collection: where must be JSON" in slip.error


def test_a_shell_on_a_terminal_completes_and_shows_tables(run: Run, tmp_path: Path) -> None:
    run("collection", "create", "data", "wagons", "--key", "id")
    run("collection", "put", "data", "wagons", '{"id": 1, "velocity": 50, "kind": "red"}')
    near, far = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, "shell", "data"], cwd=tmp_path, stdin=far, stdout=far, stderr=far,
        env=environment(COLUMNS="100", TERM="xterm", INPUTRC="/dev/null"), close_fds=True,
    )  # fmt: skip
    os.close(far)
    heard = ""

    def hear(until: str) -> str:
        nonlocal heard
        while until not in heard:
            assert select.select([near], [], [], 120)[0], heard
            heard += os.read(near, 4096).decode(errors="replace")
        found, _, heard = heard.partition(until)
        return found + until

    try:
        hear("data> ")
        os.write(near, b"collection fi\twag\t")
        hear("collection find wagons ")
        os.write(near, b"'{\"velo\t")
        hear('velocity"')  # which readline closes
        os.write(near, b""": {"$gt": 1}}' --lim\t1\n""")
        hear("wagons")
        table = hear("data> ")
        assert "velocity" in table
        assert "│" in table
        # Brackets are no markup, and a text of somebody else moves no cursor.
        hostile = {"id": 2, "kind": "[/x] [bold]b\x1b[2J"}
        os.write(near, f"collection put wagons '{json.dumps(hostile)}'\n".encode())
        hear("stored")
        hear("data> ")
        os.write(near, b"collection find wagons\n")
        hear("wagons")
        table = hear("data> ")
        assert "[/x] [bold]b [2J" in table
        os.write(near, b"collection get wagons 7\n")
        assert "tideline: NotFound: no such document" in hear("data> ")
        os.write(near, b"quit\n")
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        os.close(near)


if sys.platform == "darwin":
    test_a_shell_on_a_terminal_completes_and_shows_tables = pytest.mark.skip(
        "its readline is another one"
    )(test_a_shell_on_a_terminal_completes_and_shows_tables)
