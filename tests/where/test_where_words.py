"""What words promise: split in any script, folded, near by edit distance."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from plain import edits

from tideline.where import parse
from tideline.where.words import distance_within, folded

short = st.text("abcé", max_size=7)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", []),
        ("-- _ !", []),
        ("Flat TIRE", ["flat", "tire"]),
        ("don't stop", ["don", "t", "stop"]),
        ("snake_case", ["snake", "case"]),
        ("A8/A9,exit-12b", ["a8", "a9", "exit", "12b"]),
        ("Straße", ["strasse"]),
        ("ΣΊΣΥΦΟΣ", ["σίσυφοσ"]),
        ("e\u0301te\u0301", ["été"]),
        ("नमस्ते दुनिया", ["नमस्ते", "दुनिया"]),
        ("Ｆｕｌｌ１２", ["full12"]),
        ("ﬁre", ["fire"]),
        ("東京駅 事故", ["東京駅", "事故"]),
        ("x\u00a0y\u2003z", ["x", "y", "z"]),
    ],
)
def test_text_is_split_into_folded_words(text, words):
    assert folded(text) == [unicodedata.normalize("NFKC", word) for word in words]


@given(st.text(max_size=30))
def test_folding_is_done_once(text):
    words = folded(text)
    assert folded(" ".join(words)) == words
    assert all(words)


@given(st.text(st.characters(max_codepoint=127), max_size=30))
def test_plain_text_takes_the_fast_way_to_the_same_words(text):
    assert folded(text) == folded(text + " é")[:-1]


@given(short, short, st.integers(0, 3))
@example("", "abc", 3)
@example("a", "", 1)
def test_near_is_the_edit_distance(word, other, limit):
    assert distance_within(word, limit)(other) is (edits(word, other) <= limit)


@given(st.text("ab", min_size=60, max_size=64), st.text("ab", min_size=60, max_size=70))
def test_long_words_too(word, other):
    assert distance_within(word, 3)(other) is (edits(word, other) <= 3)


def test_words_are_found_in_any_order_and_case():
    condition = parse({"note": {"$words": "Überfall, BANK"}})
    assert condition.matches({"note": "Bank in Wien: ÜBERFALL"})
    assert not condition.matches({"note": "Überfall"})
    assert not condition.matches({"note": "Banküberfall"})


@pytest.mark.parametrize(("distance", "held"), [(0, False), (1, False), (2, True), (3, True)])
def test_fuzzy_counts_edits(distance, held):
    condition = parse({"note": {"$fuzzy": {"word": "Acidant", "distance": distance}}})
    assert condition.matches({"note": "an ACCIDENT!"}) is held
    assert condition.matches({"note": ["none", "acidant"]})
    assert not condition.matches({"note": None})
