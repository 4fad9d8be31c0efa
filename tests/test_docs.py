"""The documentation runs: every block of Python and every command in it, with its output.

    ```python      blocks with >>> are checked as doctests, others are executed, and print what is
                   in the plain block that follows, if one does; a page is one session, in an
                   empty folder
    ```console     lines with $ are run in a shell in that folder; `...` stands for anything

Links, and pages about the inside, are looked at by test_internals_docs.py, the site that is made
of all pages by test_site.py.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "start").glob("*.md")),
    *sorted((ROOT / "docs" / "guide").glob("*.md")),
]
FLAGS = doctest.ELLIPSIS
BLOCK = re.compile(r"^```(python|console)\n(.*?)^```", re.MULTILINE | re.DOTALL)
PRINTED = re.compile(r"\n\n```\n(.*?)^```", re.MULTILINE | re.DOTALL)  # right after a block


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path, kind: str) -> list[tuple[int, str]]:
    """The blocks of one kind, each with the line it starts on."""
    text = page.read_text(encoding="utf-8")
    return [
        (text.count("\n", 0, found.start(2)), found.group(2))
        for found in BLOCK.finditer(text)
        if found.group(1) == kind
    ]


def on_spark(page: Path) -> bool:
    """Whether a page's Python needs Spark; `session()` there is the one of the tests."""
    return page.name.startswith("spark-")


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=[pytest.mark.spark] * on_spark(page)) for page in PAGES],
    ids=[name_of(page) for page in PAGES],
)
def test_the_python_of_a_page_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    if on_spark(page):
        request.getfixturevalue("spark")
    monkeypatch.chdir(tmp_path)
    session: dict[str, object] = {"__name__": "__main__"}
    report: list[str] = []
    text = page.read_text(encoding="utf-8")
    for line, source in blocks(page, "python"):
        if ">>>" not in source:
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile(source, f"{name_of(page)}:{line}", "exec"), session)
            said = PRINTED.match(text, text.index(source) + len(source) + len("```"))
            if said is not None and printed.getvalue() != said[1]:
                report.append(f"line {line} prints\n{printed.getvalue()}not\n{said[1]}")
            continue
        test = doctest.DocTestParser().get_doctest(source, session, name_of(page), None, line)
        runner = doctest.DocTestRunner(optionflags=FLAGS)
        runner.run(test, out=report.append, clear_globs=False)
        session = test.globs
    assert "".join(report) == ""


# Their commands each start a Spark: tests/spark/test_heatmap.py and test_workload.py have theirs.
STARTING = ("heatmap.md", "workloads.md")


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[pytest.mark.long] * (page.name in STARTING), id=name_of(page))
        for page in PAGES
        if blocks(page, "console")
    ],
)
def test_the_commands_of_a_page_run(page: Path, tmp_path: Path) -> None:
    command = tmp_path / "bin" / "tideline"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m tideline "$@"\n', encoding="utf-8")
    command.chmod(0o755)
    folder = tmp_path / "work"
    folder.mkdir()
    env = {
        **os.environ,
        "PATH": f"{command.parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.environ.get("PYTHONPATH") or str(ROOT / "src"),
        "TERM": "dumb",
    }
    code = 0
    for _, source in blocks(page, "console"):
        for part in re.split(r"^\$ ", source, flags=re.MULTILINE)[1:]:
            typed, _, wanted = part.partition("\n")
            done = subprocess.run(
                ["bash", "-c", f"(exit {code}); {typed}"],
                cwd=folder,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=300,
                check=False,
            )
            code = done.returncode
            matches = doctest.OutputChecker().check_output(wanted, done.stdout, FLAGS)
            assert matches, f"$ {typed}\nprinted\n{done.stdout}\nthe page says\n{wanted}"


TOML = re.compile(r"^```toml\n(name = .*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", [p for p in PAGES if TOML.search(p.read_text())], ids=name_of)
def test_a_pipeline_on_a_page_is_one(page: Path, tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    from tideline.spark import Pipeline

    for number, config in enumerate(TOML.findall(page.read_text(encoding="utf-8"))):
        file = tmp_path / f"{number}.toml"
        file.write_text(config, encoding="utf-8")
        Pipeline.from_file(file)  # refuses what a run would


def test_the_readme_names_the_two_commands() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "make demo" in text
    assert "make test" in text
