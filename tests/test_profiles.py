"""Long runs draw new examples, and more of them; no test keeps to a number of its own."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import settings

from scripts import test_long

TESTS = Path(__file__).parent
OWN_NUMBER = re.compile(r"max_examples\s*=\s*\d")


def test_long_runs_draw_new_examples_and_keep_those_that_fail() -> None:
    long = settings.get_profile("long")
    assert not long.derandomize
    assert long.database is not None
    assert long.max_examples > settings.get_profile("default").max_examples


def test_every_count_of_examples_is_one_of_the_profile() -> None:
    found = [
        str(path.relative_to(TESTS))
        for path in sorted(TESTS.rglob("*.py"))
        if path.name != "conftest.py" and OWN_NUMBER.search(path.read_text(encoding="utf-8"))
    ]
    assert found == []


def test_every_test_is_in_one_piece_of_a_long_run() -> None:
    pieces = [
        piece for piece in test_long.pieces() if piece.environment == {"HYPOTHESIS_PROFILE": "long"}
    ]
    files = Counter(
        file
        for piece in pieces
        for path in map(test_long.ROOT.joinpath, piece.arguments)
        for file in (path.rglob("test_*.py") if path.is_dir() else [path])
    )
    assert files == Counter(TESTS.rglob("test_*.py"))


def test_a_piece_that_fails_keeps_no_other_from_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(test_long, "LOGS", tmp_path / "logs")
    bad, good = tmp_path / "test_bad.py", tmp_path / "test_good.py"
    bad.write_text("def test_it(): assert 1 + 1 == 3")
    good.write_text("def test_it(): pass")
    assert test_long.main([str(bad), str(good)]) == 1
    said, _, table = capfd.readouterr().out.rpartition("test-long: 2 pieces in ")
    assert "test-long: 2 of 2: " in said
    assert "test_good.py::test_it PASSED" in said
    assert "FAILED in" in table
    assert "passed in" in table
    assert "test_bad.py::test_it" in table.splitlines()[-1]
    assert {"test_it PASSED" in log.read_text() for log in test_long.LOGS.iterdir()} == {
        True,
        False,
    }
    assert test_long.main([str(good), "--", "-k", "it"]) == 0


def test_a_piece_that_is_not_there_is_named_with_those_that_are() -> None:
    with pytest.raises(SystemExit, match=r"path: tests/steam. Pieces: doctests, tests/aclient, "):
        test_long.main(["tests/steam"])
