"""Long runs draw new examples, and more of them; no test keeps to a number of its own."""

from __future__ import annotations

import re
from pathlib import Path

from hypothesis import settings

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
