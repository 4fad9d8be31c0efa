"""`tideline doctor`: what it says is so, and what it says to do is needed."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tideline.cli import doctor
from tideline.cli.main import run

SOURCE = Path(__file__).resolve().parents[1] / "src"


def examined(check: str, folder: Path, port: int = 0) -> doctor.Found:
    """What a check finds; those after it are not made."""
    return next(found for found in doctor.examine(folder, port) if found.check == check)


def test_a_machine_that_runs_the_tests_is_well(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["doctor", str(tmp_path / "not" / "yet"), "--port", "0", "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    checks = [line["check"] for line in lines]
    assert checks == ["python", "packages", "server", "kernels", "disk", "fsync", "clock",
                      "memory", "open files", "port", "spark", "java"]  # fmt: skip
    assert {line["state"] for line in lines} <= {"ok", "note"}
    assert all(
        line["do"] for line in lines if line["state"] != "ok" and "could not" not in line["said"]
    )
    said = {line["check"]: line["said"] for line in lines}
    assert said["python"].startswith(f"CPython {sys.version.split()[0]}")
    assert "numpy" in said["packages"]
    assert list(tmp_path.iterdir()) == []  # nothing is left behind, nothing was made


def test_a_port_in_use_is_told_with_another(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        found = examined("port", tmp_path, port)
        assert (found.state, found.said) == ("note", f"{port} is in use")
        assert found.do == f"tideline serve --port {port + 1}"
    assert examined("port", tmp_path, port).state == "ok"


def test_what_does_not_work_is_bad_and_ends_with_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "_BASE", {**doctor._BASE, "numpy": "999", "no-such-thing": "1"})
    assert run(["doctor", str(tmp_path), "--port", "0"]) == 1
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    [bad] = [line for line in lines if line["state"] == "bad"]
    assert bad["check"] == "packages"
    assert "is older than 999, no-such-thing is missing" in bad["said"]
    assert bad["do"] == "pip install --upgrade 'tideline'"


def test_a_file_or_an_address_is_no_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    for under in ("file", "file/data"):
        found = examined("disk", tmp_path / under)
        assert (found.state, found.do) == ("bad", "choose a folder")
        assert found.said == f"{tmp_path / 'file'} is a file"
    assert run(["doctor", "http://127.0.0.1:8080"]) == 2
    assert "looks like an address" in capsys.readouterr().err


def test_a_table_shows_brackets_and_breaks_what_is_too_wide(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "_SPARK", {"no-such-thing": "1"})
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "40")
    assert run(["doctor", str(tmp_path), "--port", "0"]) == 0
    table = capsys.readouterr().out
    cells = [line.split("│")[4].strip() for line in table.splitlines() if line.count("│") == 5]
    assert "pip install --upgrade 'tideline[spark]'".replace(" ", "") in "".join(cells).replace(
        " ", ""
    )
    assert "…" not in table


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_bad(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    assert examined("disk", tmp_path / "data").state == "bad"


@pytest.mark.long
def test_without_java_and_with_a_cache_that_is_empty_it_says_what_to_do(tmp_path: Path) -> None:
    env: dict[str, Any] = {**os.environ, "JAVA_HOME": str(tmp_path),
                           "PYTHONPATH": os.environ.get("PYTHONPATH") or str(SOURCE),
                           "NUMBA_CACHE_DIR": str(tmp_path / "kernels")}  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "tideline", "doctor", str(tmp_path), "--port", "0", "--json"],
        env=env, capture_output=True, text=True, check=False,
    )  # fmt: skip
    lines = {line["check"]: line for line in map(json.loads, done.stdout.splitlines())}
    assert lines["java"]["state"] in ("bad", "note")
    assert "needed by Spark alone" in lines["java"]["do"]
    assert done.returncode == int(lines["java"]["state"] == "bad")
    if lines["kernels"]["state"] == "note":  # none came with the package
        assert "tideline warm" in lines["kernels"]["do"]


def test_minimum_versions_are_those_of_the_package() -> None:
    text = (Path(__file__).resolve().parents[1] / "pyproject.toml").read_text("utf-8")
    for name, least in {**doctor._BASE, **doctor._SERVER, **doctor._SPARK}.items():
        assert f'"{name}>={least}' in text
