"""What words promise: split in any script, folded, near by edit distance."""

from __future__ import annotations

import unicodedata
from fractions import Fraction

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


# ---- phrases, similarity, pieces ----

letters = st.text("abé", max_size=6)
some_words = st.lists(st.text("ab", min_size=1, max_size=3), max_size=6)
parts = st.one_of(
    st.sampled_from([0, 1, 0.8, 0.6, 0.5, 0.2, 1 / 3]), st.floats(0, 1, allow_nan=False)
)


@pytest.mark.parametrize(
    ("asked", "text", "held"),
    [
        ('"right lane"', "flat, RIGHT-lane", True),
        ('"right lane"', "lane right", False),
        ('"right lane"', "right: the lane", False),
        ('"a b" c', "c a b", True),
        ('"a b" c', "a b", False),
        ('"a a"', "a", False),
        ('"a a"', "b a a", True),
        ('"lane"', "a lane", True),
        ('closed "open end', "open closed end", True),
        ('"" x', "x", True),
    ],
)
def test_a_phrase_is_words_one_after_the_other(asked, text, held):
    assert parse({"note": {"$words": asked}}).matches({"note": text}) is held
    assert parse({"note": {"$words": asked}}).matches({"note": ["none", text]}) is held


@given(some_words, some_words)
def test_phrases_are_found_where_a_walk_finds_them(asked, text):
    if asked:
        phrase = {"$words": '"' + " ".join(asked) + '"'}
        held = parse({"note": phrase}).matches({"note": ", ".join(text)})
        assert held is any(text[at : at + len(asked)] == asked for at in range(len(text)))


@pytest.mark.parametrize(
    ("word", "other", "similarity", "held"),
    [
        ("jam", "jab", 0.8, False),  # 2/3: the ceiling would accept it
        ("jam", "jab", 0.6, True),
        ("tides", "tidal", 0.6, True),
        ("words", "wordy", 0.8, True),  # exactly 0.8
        ("words", "wordy", 0.8000001, False),
        ("word", "wordy", 0.8, True),
        ("ab", "xyz", 0, True),
        ("ab", "ab", 1, True),
        ("ab", "abc", 1, False),
        ("a" * 64, "a" * 80, 0.8, True),
        ("a" * 64, "a" * 81, 0.8, False),
        ("é" * 5, "é" * 4 + "e", 0.8, True),
    ],
)
def test_similarity_is_a_floor(word, other, similarity, held):
    condition = parse({"a": {"$fuzzy": {"word": word, "similarity": similarity}}})
    assert condition.matches({"a": f"some {other}"}) is held


@given(st.text("ab", min_size=1, max_size=9), st.text("ab", min_size=1, max_size=12), parts)
def test_similarity_is_exact(word, other, similarity):
    held = parse({"a": {"$fuzzy": {"word": word, "similarity": similarity}}}).matches({"a": other})
    assert held is (
        1 - Fraction(edits(word, other), max(len(word), len(other))) >= Fraction(repr(similarity))
    )


def test_every_word_must_be_met_and_has_its_own_threshold():
    asked = {"words": ["sutishi", {"word": "bar", "distance": 0}], "similarity": 0.8}
    condition = parse({"name": {"$fuzzy": asked}})
    assert condition.matches({"name": "Suteishi BAR"})
    assert not condition.matches({"name": "Suteishi bars"})
    assert not condition.matches({"name": ["Suteishi", "bar"]})
    assert parse({"name": {"$fuzzy": {"words": "Sutishi, BARS", "distance": 1}}}).matches(
        {"name": "suteishi bar"}
    )


@given(letters, letters, st.integers(1, 4), parts)
def test_jaccard_is_exact(text, other, size, similarity):
    def grams(one):
        return {one[at : at + size] for at in range(max(len(one) - size, 0) + 1)} - {""}

    a, b = grams(text), grams(other)
    asked = {"text": text.upper(), "grams": size, "similarity": similarity}
    held = parse({"a": {"$jaccard": asked}}).matches({"a": other})
    if a | b:
        assert held is (Fraction(len(a & b), len(a | b)) >= Fraction(repr(similarity)))
    else:
        assert held


@pytest.mark.parametrize(
    ("piece", "text", "held"),
    [
        ("LL-O", "hell-oh", True), ("ll o", "hell-o", False), ("straße", "STRASSE 5", True),
        ("é", "caf\u0065\u0301", True), ("e", "caf\u00e9", False), (" ", "a b", True),
        ("\U0001f600", "so \U0001f600!", True),
    ],
)  # fmt: skip
def test_a_piece_is_folded_but_not_parted(piece, text, held):
    condition = parse({"a": {"$contains": piece}})
    assert condition.matches({"a": text}) is held
    assert condition.matches({"a": [1, text]}) is held
    assert not condition.matches({"a": 5})
