"""Lucene as a peer of words nearly right: its answers are those of a walk; what lacks is named."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from benchmarks.fuzzy_data import Objects, Question, answers
from benchmarks.peers import lucene


def changed(word: str, edits: int, draw: random.Random) -> str:
    """A word with so many letters changed, left out or put in."""
    letters = list(word)
    for _ in range(edits):
        at = draw.randrange(len(letters) + 1)
        letters[at : at + draw.choice([0, 1, 1])] = draw.choice(["", "q", "z"])
    return "".join(letters) or "a"


def test_words_of_all_lengths_are_found() -> None:
    draw = random.Random(3)
    roots = ["".join(draw.choices("abcde", k=length)) for length in range(1, 30)] + ["a" * 21]
    words = sorted({changed(root, edits, draw) for root in roots for edits in range(6)})
    rows = np.random.default_rng(3)
    lon, lat = rows.uniform(-180, 180, 600), rows.uniform(-90, 90, 600)
    of = Objects("", lon, lat, rows.integers(len(words), size=(600, 3)).astype(np.int32), words)
    lacking = None
    try:
        made = lucene.FuzzyWords(of)
    except ImportError as error:
        lacking = str(error)
    if lacking is not None:
        assert lacking.startswith(("mvn", "javac", "java"))
        return
    try:
        met = 0
        for word in words:
            west, south = rows.uniform(-180, 0), rows.uniform(-90, 0)
            corner = int(rows.integers(600))  # boxes that end exactly at an object
            east, north = max(float(lon[corner]), west), max(float(lat[corner]), south)
            asked = Question((float(west), float(south), east, north), (word, draw.choice(words)))
            for question in (asked, asked._replace(words=(word, word))):
                found = made.answer(question)
                assert found == answers(of, question)
                met += len(found)
        assert met > 100
        assert made.timed(asked).us > 0
    finally:
        made.close()


def test_what_lacks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lucene.shutil, "which", lambda name: None)
    monkeypatch.setattr(lucene, "_OURS", tmp_path)
    with pytest.raises(ImportError, match="mvn is not installed"):
        lucene.compiled(Path("FuzzyWords.java"), "lucene-core", tmp_path)
