"""Layouts of words: constants, sizes, names, dumps, and their part in the key of the cache."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tideline.kernels import layout, words
from tideline.kernels.documents import layout as documents
from tideline.kernels.words import Layout, dump

SOURCE = Path(__file__).resolve().parents[2] / "src"


def test_constants_are_plain_ints_in_the_order_of_their_lines() -> None:
    for found in (layout.ENGINE, layout.CALL, documents.SOURCE, documents.STATE):
        module = sys.modules[found.module]
        for place, word in enumerate(found.words):
            assert type(getattr(module, word.name)) is int
            assert getattr(module, word.name) == place


def test_every_layout_has_a_meaning_for_every_word() -> None:
    ours = [each for each in words.LAYOUTS if each.module.startswith("tideline.")]
    assert len(ours) > 10
    for found in ours:
        assert found.size >= len(found.words) > 0
        assert found.meaning
        assert all(word.name and word.meaning for word in found.words)


def declare(space: dict[str, Any]) -> Layout:
    return Layout("pair", "P_", "two of a kind", space)


def test_a_constant_between_two_words_is_refused() -> None:
    space: dict[str, Any] = {}
    pair = declare(space)
    space["P_FIRST"] = pair.word("one")
    space["P_LIMIT"] = 99
    space["P_SECOND"] = pair.word("the other")
    with pytest.raises(ValueError, match=r"pair: these are not its words.*P_LIMIT"):
        pair.end()


def test_a_name_without_the_prefix_is_refused() -> None:
    space: dict[str, Any] = {}
    pair = declare(space)
    space["FIRST"] = pair.word("one")
    with pytest.raises(ValueError, match="FIRST"):
        pair.end()


def test_a_word_that_two_layouts_share_stands_at_the_same_place_in_both() -> None:
    space: dict[str, Any] = {}
    first = declare(space)
    space["P_A"] = first.word("a")
    space["P_B"] = first.word("b")
    first.end()
    second = declare(space)
    with pytest.raises(ValueError, match="P_B is not word 0"):
        second.also("P_B", "b")


def test_a_state_can_be_read_by_names() -> None:
    state = np.arange(layout.C_WORDS)
    named = state.view(layout.CALL.dtype)
    assert named["C_NEWEST_LOGGED"].tolist() == [layout.C_NEWEST_LOGGED]
    text = dump(layout.CALL, state)
    assert f"{layout.C_ROWS:3} C_ROWS " in text
    assert f"{layout.C_ROWS:#x} rows" in text


def test_a_changed_layout_changes_the_key_of_the_cache(tmp_path: Path) -> None:
    here = tmp_path / "tideline"
    shutil.copytree(SOURCE / "tideline", here, ignore=shutil.ignore_patterns("__pycache__"))
    top = here / "kernels" / "layout.py"
    group = here / "kernels" / "documents" / "layout.py"

    def keys() -> list[str]:
        code = "from tideline.kernels.cache import fingerprint as f; print(f(''), f('documents'))"
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONPATH": str(tmp_path)},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.split()

    first = keys()
    changed(group, "M_WORDS = CURSOR.end()", "M_WORDS = CURSOR.end(spare=1)")
    second = keys()
    changed(top, "E_WORDS = ENGINE.end(spare=3)", "E_WORDS = ENGINE.end(spare=4)")
    third = keys()
    assert first[0] == second[0] != third[0]  # what documents have is no matter of the others
    assert len({first[1], second[1], third[1]}) == 3


def changed(path: Path, old: str, new: str) -> None:
    text = path.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new), "utf-8")
