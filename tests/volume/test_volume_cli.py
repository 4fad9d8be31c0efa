"""`tideline volume` as a user meets it: on a folder, on a node that serves, with wrong words."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tideline.cli.main import main
from tideline.errors import InvalidRequest
from tideline.volume import Volumes
from tideline.volume.serving import Serving

Run = Callable[..., tuple[Any, list[Any], str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """`run(words)`: exit code, JSON lines, what is on stderr."""
    monkeypatch.chdir(tmp_path)

    def command(*words: str) -> tuple[Any, list[Any], str]:
        out, error = io.StringIO(), io.StringIO()
        code: Any = None
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
            try:
                main(["volume", *words])
            except SystemExit as ended:
                code = ended.code
        return code, [json.loads(line) for line in out.getvalue().splitlines()], error.getvalue()

    return command


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Serving]:
    Volumes.create(tmp_path / "v", 1 << 20)
    serving = Serving(tmp_path / "v", listen=f"unix:{tmp_path}/s")
    yield serving
    serving.close()


@pytest.mark.parametrize("how", ["folder", "served"])
def test_the_life_of_volumes(how: str, run: Run, tmp_path: Path) -> None:
    code, [made], _ = run("create", "v", "--size", "1m", "--block-size", "512")
    assert (code, made["size_bytes"], made["block_bytes"]) == (0, 1 << 20, 512)
    serving = Serving(tmp_path / "v", listen=f"unix:{tmp_path}/s") if how == "served" else None
    where = "v" if serving is None else serving.service.address
    try:
        assert run("snapshot", where, "main", "s")[1][0]["kind"] == "snapshot"
        assert run("clone", where, "s", "c")[1][0]["source"] == "s"
        assert run("add", where, "extra", "--size", "64k")[1][0]["size_bytes"] == 65_536
        assert run("resize", where, "extra", "--size", "128k")[1][0]["size_bytes"] == 131_072
        assert run("delete", where, "s") == (0, [], "")
        names = [one["name"] for one in run("list", where)[1]]
        assert names == ["main", "c", "extra"]
        [status] = run("status", where, "--json")[1]
        assert (status["leads"], status["volumes"], status["missing_blocks"]) == (True, 3, 0)
        assert run("vacuum", where, "--live", "1")[1][0]["rewritten_bytes"] == 0
        assert run("scrub", where)[1][0]["damaged"] == 0
        code, _, said = run("snapshot", where, "none", "x")
        assert code == 3
        assert said == "tideline: NotFound: no such volume or snapshot. name='none'\n"
        assert run("clone", where, "main", "c")[0] == 4
    finally:
        if serving is not None:
            serving.close()


def test_a_served_folder_says_so(served: Serving, run: Run) -> None:
    code, _, said = run("list", "v")
    assert code == 5
    assert "open already" in said


def test_a_volume_alone_is_served_to_its_owner_on_a_socket_in_its_folder(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No port without a secret: who may not open the NBD socket cannot come in beside it."""
    Volumes.create(tmp_path / "v", 1 << 20)
    serving = Serving(Path("v"))
    try:
        assert serving.service.address == "unix:v/service.sock"
        assert (tmp_path / "v" / "service.sock").stat().st_mode & 0o777 == 0o600
        code, _, said = run("list", "v")
        assert code == 5
        assert "give its address in the place of the folder" in said
        assert "address='unix:v/service.sock'" in said
        assert run("list", "unix:v/service.sock")[1][0]["name"] == "main"
    finally:
        serving.close()
    assert run("list", "v")[0] == 0
    far = tmp_path / ("x" * 100)
    Volumes.create(far, 1 << 20)
    monkeypatch.chdir("/")
    with pytest.raises(InvalidRequest, match="too long for a socket"):
        Serving(far)
    Serving(far, listen="127.0.0.1:0").close()


def test_a_node_that_is_away_is_said_in_its_place(served: Serving, run: Run) -> None:
    code, rows, _ = run("status", f"unix:gone,{served.service.address}", "--json")
    assert code == 0
    assert "cannot be reached" in rows[0]["error"]
    assert rows[1]["leads"]


WRONG = [
    (2, "--size", ["create", "v", "--size", "much"]),
    (2, "power of two", ["create", "v", "--size", "1m", "--block-size", "1000"]),
    (2, "multiple", ["create", "v", "--size", "1000"]),
    (2, "--nodes is", ["create", "v", "--size", "1m", "--node", "1", "--nodes", "a:1"]),
    (2, "twice", ["create", "v", "--size", "1m", "--node", "1", "--nodes", "1=a:1,1=b:1"]),
    (2, "one of nodes", ["create", "v", "--size", "1m", "--node", "3", "--nodes", "1=a:1"]),
    (2, "HOST:PORT", ["create", "v", "--size", "1m", "--node", "1", "--nodes", "1=a"]),
    (2, "several", ["create", "v", "--size", "1m", "--recover"]),
    (3, "volume create", ["list", "v"]),
    (3, "volume create", ["serve", "v"]),
    (2, "HOST:PORT", ["list", "a:b"]),
    (2, "--give-up", ["attach", "a:1", "--give-up", "0"]),
    (2, "given together", ["attach", "a:1", "--tls-cert", "x"]),
    (3, "no such file", ["attach", "a:1", "--secret-file", "none"]),
    (2, "16 bytes", ["attach", "a:1", "--secret-file", "short"]),
]


@pytest.mark.parametrize(("code", "says", "words"), WRONG, ids=[" ".join(w) for _, _, w in WRONG])
def test_wrong_words(code: int, says: str, words: list[str], run: Run, tmp_path: Path) -> None:
    (tmp_path / "short").write_text("short")
    found, _, said = run(*words)
    assert found == code
    assert says in said
    assert said.count("\n") == 1


def test_off_this_machine_a_secret_is_needed(run: Run, tmp_path: Path) -> None:
    assert run("create", "v", "--size", "1m")[0] == 0
    code, _, said = run("serve", "v", "--listen", "0.0.0.0:0")
    assert code == 2
    assert "--secret-file" in said
    nodes = "1=127.0.0.1:1001,2=127.0.0.1:1003,3=127.0.0.1:1005"
    assert run("create", "w", "--size", "1m", "--node", "1", "--nodes", nodes)[0] == 0
    code, _, said = run("serve", "w")
    assert code == 2
    assert "secret" in said


def test_a_volume_on_one_machine_has_no_nodes_to_change(run: Run, served: Serving) -> None:
    for command in ("add-node", "remove-node"):
        code, _, said = run(command, served.service.address, "2")
        assert code == 2
        assert "on one machine alone" in said
