"""`tideline completion`: its script, run by a real bash, knows what the command line knows."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import typer

from tideline.cli.completion import SHELLS, script, walk
from tideline.cli.main import app, run


@pytest.fixture(scope="module")
def complete(tmp_path_factory: pytest.TempPathFactory) -> object:
    """`complete("window", "cr")`: what bash offers for the last word."""
    file = tmp_path_factory.mktemp("completion") / "tideline"
    file.write_text(script("bash"))
    ask = 'source "$1"; shift; COMP_WORDS=(tideline "$@"); COMP_CWORD=$#; _tideline; ' + (
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )

    def offered(*words: str) -> list[str]:
        done = subprocess.run(
            ["bash", "--norc", "-c", ask, "bash", str(file), *words],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert done.stderr == ""
        return done.stdout.split()

    return offered


def test_bash_completes_commands_options_and_choices(complete: object) -> None:
    assert callable(complete)
    assert complete("win") == ["window"]
    assert complete("window", "cr") == ["create"]
    assert complete("window", "create", "--sp") == ["--span-s"]
    assert complete("completion", "") == list(SHELLS)
    assert complete("token", "re") == ["revoke"]
    assert complete("no", "such", "--thing") == []
    # Options and their values are no commands: a folder may be called as a command is.
    assert complete("--memory-mb", "64", "back") == ["backup"]
    assert complete("--memory-mb", "window", "cr") == []
    assert complete("--durability=os", "back") == ["backup"]
    assert complete("--memory-mb", "") == []  # a value: bash offers files
    assert complete("--durability", "") == ["os", "disk"]
    assert complete("serve", "--log", "d") == ["debug"]
    assert complete("channel", "create", "data", "roads", "--space", "qu") == ["quadtree"]


def test_every_command_and_option_is_in_every_script(complete: object) -> None:
    assert callable(complete)
    words = list(walk(typer.main.get_command(app)))
    assert len(words) > 60
    every = {word.path: word for word in words}
    for word in (every[""], every["window"], every["collection find"], every["serve"]):
        path = word.path.split()
        assert set(complete(*path, "--")) == {o for o in word.options if o.startswith("--")}
        if word.commands:
            assert set(complete(*path, "")) == set(word.commands)
    for shell in ("zsh", "fish"):
        text = script(shell)
        for word in words:
            assert all(n.lstrip("-") in text for n in (*word.commands, *word.options)), word.path


def test_an_option_that_says_no_is_not_described_as_the_one_that_says_yes() -> None:
    words = {word.path: word for word in walk(typer.main.get_command(app))}
    options = words["volume attach"].options
    assert options["--write-through"].startswith("Every write waits")
    assert options["--no-write-through"] == "Not --write-through"


def test_a_shell_reads_its_script_where_it_is_installed(tmp_path: Path) -> None:
    for shell in SHELLS:
        file = tmp_path / f"tideline.{shell}"
        file.write_text(script(shell))
        if shutil.which(shell):
            subprocess.run([shell, "-n", str(file)], check=True)


def test_another_shell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", "tcsh"]) == 2
    assert capsys.readouterr().err == (
        "tideline: InvalidRequest: there is a script for bash, zsh, fish. shell='tcsh'\n"
    )
